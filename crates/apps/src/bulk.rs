//! One connection that carries as much as it can, or as its application offers.

use std::net::SocketAddr;

use sluicegate_core::number::narrow;
use sluicegate_scenario::workload::{Report, plan::Span};

use crate::{
    Actor, Meter,
    io::{self, Io, SocketId},
    probe::SenderProbe,
};

const CONNECT: u64 = 0;
const STOP: u64 = 1;
const TICK: u64 = 2;
const SAMPLE: u64 = 3;

/// Time between writes of an application with a rate.
const TICK_NS: u64 = 1_000_000;

/// More than any send buffer takes at once.
const PLENTY: u64 = 1 << 30;

/// The sending end.
pub struct Source {
    flow: u32,
    peer: SocketAddr,
    rate_bps: Option<u64>,
    span: Span,
    socket: Option<SocketId>,
    connected_ns: u64,
    written_bytes: u64,
    closed: bool,
    probe: SenderProbe,
}

impl Source {
    pub fn new(flow: u32, peer: SocketAddr, rate_bps: Option<u64>, span: Span) -> Self {
        Self {
            flow,
            peer,
            rate_bps,
            span,
            socket: None,
            connected_ns: 0,
            written_bytes: 0,
            closed: false,
            probe: SenderProbe::new(flow),
        }
    }

    fn fill<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        if self.rate_bps.is_none() && io.now_ns() < self.span.end_ns {
            io.write(socket, PLENTY);
        }
    }

    /// Writes what the rate allows by now. What did not fit is made up for at the next tick.
    fn tick<I: Io>(&mut self, io: &mut I, socket: SocketId, rate_bps: u64) {
        let now = io.now_ns();
        if now >= self.span.end_ns {
            return;
        }
        let elapsed = now - self.connected_ns;
        let allowed = u128::from(rate_bps) * u128::from(elapsed) / 8_000_000_000;
        let due = narrow::<u64>(allowed).saturating_sub(self.written_bytes);
        self.written_bytes += io.write(socket, due);
        io.timer(now + TICK_NS, TICK);
    }
}

impl Actor for Source {
    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, CONNECT);
        io.timer(self.span.end_ns, STOP);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.connected_ns = io.now_ns();
        self.probe.attach(io, socket, SAMPLE);
        match self.rate_bps {
            Some(rate_bps) => self.tick(io, socket, rate_bps),
            None => self.fill(io, socket),
        }
    }

    /// A sink never answers.
    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        io.read(socket, 0);
        if !self.closed {
            self.closed = io::ended(io, socket, self.flow);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.fill(io, socket);
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        if key == CONNECT {
            self.socket = Some(io.connect(self.peer, 0));
            return;
        }
        let Some(socket) = self.socket else { return };
        match (key, self.rate_bps) {
            (STOP, _) => {
                self.closed = true;
                io.close(socket);
            }
            (TICK, Some(rate_bps)) => self.tick(io, socket, rate_bps),
            (SAMPLE, _) => self.probe.sample(io, SAMPLE),
            _ => {}
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        report.senders.extend(self.probe.finish(io));
    }
}

/// The receiving end.
pub struct Sink {
    port: u16,
    meter: Meter,
}

impl Sink {
    pub fn new(flow: u32, port: u16) -> Self {
        Self {
            port,
            meter: Meter::new(flow),
        }
    }
}

impl Actor for Sink {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        io.listen(self.port, 0);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        let bytes = io.read(socket, u64::MAX);
        self.meter.count(io.plan(), io.now_ns(), bytes);
        if io.at_end(socket) {
            io.close(socket);
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        report.receivers.push(self.meter.finish(io.plan()));
    }
}
