//! One connection whose application offers a rate that changes with time. It is an open loop: bytes
//! that do not fit into the socket when they are offered are written as soon as there is room.

use std::net::SocketAddr;

use sluicegate_scenario::workload::{
    Report, phases,
    plan::{self, CompletionReport, Phase, Span},
};

use crate::{
    Actor,
    io::{self, Io, MessageHeader, SocketId},
    probe::SenderProbe,
};

const CONNECT: u64 = 0;
const OFFER: u64 = 1;
const SAMPLE: u64 = 2;

/// Bytes that the application writes at a time: a segment with timestamps, so that the offered load
/// is as even as packets can be.
const CHUNK_BYTES: u64 = 1_448;

/// Flows that begin at once do not write at once: 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b9;

/// The sending end.
pub struct Source {
    flow: u32,
    peer: SocketAddr,
    phases: Vec<Phase>,
    class: Option<String>,
    span: Span,
    socket: Option<SocketId>,
    total_bytes: u64,
    written_bytes: u64,
    /// All has arrived, says the receiver.
    done: bool,
    probe: SenderProbe,
}

impl Source {
    pub fn new(
        flow: u32,
        peer: SocketAddr,
        phases: Vec<Phase>,
        class: Option<String>,
        span: Span,
    ) -> Self {
        Self {
            flow,
            peer,
            total_bytes: phases::total_bytes(&phases, span),
            phases,
            class,
            span,
            socket: None,
            written_bytes: 0,
            done: false,
            probe: SenderProbe::new(flow),
        }
    }

    /// Writes up to this byte: a part of one message, if its completion is measured.
    fn write<I: Io>(&self, io: &mut I, socket: SocketId, upto: u64) -> u64 {
        if self.class.is_none() {
            return io.write(socket, upto - self.written_bytes);
        }
        let whole = MessageHeader {
            bytes: self.total_bytes,
            tag: self.span.begin_ns,
            class: 0,
        };
        io.write_message(socket, &whole, self.written_bytes..upto)
    }

    /// Writes what is offered by now, and comes back when there is more; or when there is room, if
    /// that is later.
    fn offer<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        let offered_bytes = phases::offered_bytes(&self.phases, self.span, io.now_ns());
        let due = offered_bytes - self.written_bytes;
        if due > 0 {
            let taken = self.write(io, socket, offered_bytes);
            self.written_bytes += taken;
            if taken < due {
                return; // `writable` comes
            }
        }
        if self.written_bytes == self.total_bytes {
            return io.close(socket);
        }
        let chunk_bytes = match self.written_bytes {
            0 => 1 + u64::from(self.flow.wrapping_mul(SPREAD)) % CHUNK_BYTES,
            _ => CHUNK_BYTES,
        };
        let next = (self.written_bytes + chunk_bytes).min(self.total_bytes);
        if let Some(at_ns) = phases::offered_at_ns(&self.phases, self.span, next) {
            io.timer(at_ns, OFFER);
        }
    }
}

impl Actor for Source {
    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.probe.attach(io, socket, SAMPLE);
        self.offer(io, socket);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.done |= io.read(socket, u64::MAX) > 0;
        if self.written_bytes < self.total_bytes {
            io::ended(io, socket, self.flow);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.offer(io, socket);
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        match (key, self.socket) {
            (CONNECT, _) => self.socket = Some(io.connect(self.peer, 0)),
            (OFFER, Some(socket)) => self.offer(io, socket),
            (SAMPLE, _) => self.probe.sample(io, SAMPLE),
            _ => {}
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        report.senders.extend(self.probe.finish(io));
        let begin_ns = self.span.begin_ns;
        if let Some(class) = self.class.take().filter(|_| io.measured(begin_ns)) {
            let broken = self.socket.is_some_and(|socket| io::is_lost(io, socket));
            let open_us = plan::open_us(begin_ns, io.now_ns(), broken);
            report.completions.push(CompletionReport {
                flow: self.flow,
                class,
                begun: 1,
                samples_us: Vec::new(),
                open_us: Vec::from_iter((!self.done).then_some(open_us)),
            });
        }
    }
}
