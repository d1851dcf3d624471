//! One connection whose application offers a rate that changes with time, and waits for nobody: what cannot be
//! written when it is offered is written as soon as there is room.

use std::net::SocketAddr;

use sluicegate_scenario::workload::{
    Report, phases,
    plan::{self, CompletionReport, Phase, Span},
};

use super::{Actor, Io, probe::SenderProbe};
use crate::{letters::Letter, net::EndId};

const CONNECT: u64 = 0;
const OFFER: u64 = 1;
const SAMPLE: u64 = 2;

/// What the application writes at a time, in bytes: a segment with timestamps, so that what is offered is as even as
/// packets can be.
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
    end: Option<EndId>,
    total_bytes: u64,
    written_bytes: u64,
    /// All has arrived, says the receiver.
    done: bool,
    probe: Option<SenderProbe>,
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
            end: None,
            written_bytes: 0,
            done: false,
            probe: Some(SenderProbe::new(flow)),
        }
    }

    /// The whole as one message.
    fn letter(&self) -> Letter {
        Letter {
            bytes: self.total_bytes,
            begin_ns: self.span.begin_ns,
            class: 0,
        }
    }

    /// Writes what is offered by now, and comes back when there is more; or when there is room, if that is later.
    fn offer(&mut self, io: &mut Io<'_>, end: EndId) {
        let offered_bytes = phases::offered_bytes(&self.phases, self.span, io.now_ns());
        let due = offered_bytes - self.written_bytes;
        if due > 0 {
            let begins = self.written_bytes == 0;
            let taken = io.net.write(end, due);
            if begins && taken > 0 && self.class.is_some() {
                io.net.post(end, self.letter());
            }
            self.written_bytes += taken;
            if taken < due {
                return; // `writable` comes
            }
        }
        if self.written_bytes == self.total_bytes {
            return io.net.close(end);
        }
        let chunk_bytes = match self.written_bytes {
            0 => 1 + u64::from(self.flow.wrapping_mul(SPREAD)) % CHUNK_BYTES,
            _ => CHUNK_BYTES,
        };
        let next = (self.written_bytes + chunk_bytes).min(self.total_bytes);
        if let Some(at_ns) = phases::offered_at_ns(&self.phases, self.span, next) {
            io.alarm(at_ns, OFFER);
        }
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.alarm(self.span.begin_ns, CONNECT);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        if let Some(probe) = &mut self.probe {
            let next = probe.attach(io, end);
            io.alarm(next, SAMPLE);
        }
        self.offer(io, end);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.done |= io.net.read(end, u64::MAX) > 0;
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.offer(io, end);
    }

    fn alarm(&mut self, io: &mut Io<'_>, key: u64) {
        match (key, self.end, &mut self.probe) {
            (CONNECT, ..) => self.end = Some(io.connect(self.peer, 0)),
            (OFFER, Some(end), _) => self.offer(io, end),
            (SAMPLE, _, Some(probe)) => {
                let next = probe.sample(io);
                io.alarm(next, SAMPLE);
            }
            _ => {}
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let probe = self.probe.take();
        report
            .senders
            .extend(probe.and_then(|probe| probe.finish(io)));
        let begin_ns = self.span.begin_ns;
        if let Some(class) = self
            .class
            .take()
            .filter(|_| !self.done && io.measured(begin_ns))
        {
            let broken = self.end.is_some_and(|end| io.is_broken(end));
            report.completions.push(CompletionReport {
                flow: self.flow,
                class,
                samples_us: Vec::new(),
                open_us: vec![plan::open_us(begin_ns, io.now_ns(), broken)],
            });
        }
    }
}
