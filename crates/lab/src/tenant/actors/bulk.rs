//! Long flows: a source that sends as much as it can (or at a rate) and a sink that counts.

use std::{mem, net::SocketAddr};

use sluicegate_scenario::workload::Meter;

use super::probe::SenderProbe;
use crate::tenant::{
    engine::Actor,
    io::{Io, Received, SocketId},
    pattern::CHUNK,
    plan::{Report, Span},
};

/// Time between the writes of a source with a rate.
const TICK_NS: u64 = 1_000_000;

/// Timers of a source.
#[derive(Clone, Copy)]
enum Key {
    Connect,
    Sample,
    Tick,
    End,
}

/// The sending end.
pub struct Source {
    flow: u32,
    peer: SocketAddr,
    rate_bps: Option<u64>,
    span: Span,
    socket: Option<SocketId>,
    connected_ns: u64,
    sent_bytes: u64,
    probe: Option<SenderProbe>,
}

impl Source {
    pub fn new(flow: u32, peer: SocketAddr, rate_bps: Option<u64>, span: Span) -> Self {
        let probe = Some(SenderProbe::new(flow));
        Self {
            flow,
            peer,
            rate_bps,
            span,
            socket: None,
            connected_ns: 0,
            sent_bytes: 0,
            probe,
        }
    }

    fn send(&mut self, io: &mut Io, socket: SocketId, length: u64) {
        self.sent_bytes += io.send_pattern(socket, self.sent_bytes, length) as u64;
    }

    /// Writes what the rate allows by now. What did not fit is made up for at the next tick.
    fn tick(&mut self, io: &mut Io, socket: SocketId, rate_bps: u64) {
        let now = io.now_ns();
        if now >= self.span.end_ns {
            return;
        }
        let elapsed = now.saturating_sub(self.connected_ns);
        let allowed = u128::from(rate_bps) * u128::from(elapsed) / 8_000_000_000;
        let due = u64::try_from(allowed)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.sent_bytes);
        if due > 0 {
            self.send(io, socket, due);
        }
        io.timer(now + TICK_NS, Key::Tick as u64);
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io) {
        io.timer(self.span.begin_ns, Key::Connect as u64);
        io.timer(self.span.end_ns, Key::End as u64);
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        self.connected_ns = io.now_ns();
        if let Some(probe) = &mut self.probe {
            let next = probe.attach(io, socket);
            io.timer(next, Key::Sample as u64);
        }
        match self.rate_bps {
            Some(rate_bps) => self.tick(io, socket, rate_bps),
            None => io.want_write(socket, true),
        }
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        // A sink never answers: this is the end of the connection.
        if io.receive(socket, &mut [0; 64]) == Received::End {
            io.error(format!(
                "flow {}: {} closed the connection",
                self.flow, self.peer
            ));
            io.close(socket);
        }
    }

    fn writable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        self.send(io, socket, CHUNK as u64);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == Key::Connect as u64 {
            self.socket = io.connect(self.peer, 0);
            return;
        }
        let Some(socket) = self.socket else { return };
        if key == Key::End as u64 {
            io.want_write(socket, false);
            io.shutdown(socket);
        } else if let (true, Some(rate_bps)) = (key == Key::Tick as u64, self.rate_bps) {
            self.tick(io, socket, rate_bps);
        } else if let (true, Some(probe)) = (key == Key::Sample as u64, &mut self.probe) {
            let next = probe.sample(io);
            io.timer(next, Key::Sample as u64);
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        report
            .senders
            .extend(self.probe.take().and_then(|probe| probe.finish(io)));
    }
}

/// The receiving end.
pub struct Sink {
    flow: u32,
    port: u16,
    meter: Meter,
}

impl Sink {
    pub fn new(flow: u32, port: u16) -> Self {
        Self {
            flow,
            port,
            meter: Meter::new(flow),
        }
    }
}

impl Actor for Sink {
    fn prepare(&mut self, io: &mut Io) -> anyhow::Result<()> {
        io.listen(self.port, 0)
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        match io.receive_payload(socket, self.meter.position(), u64::MAX) {
            Received::Bytes(count) => self.meter.count(io.plan(), io.now_ns(), count as u64),
            Received::Empty => {}
            Received::End => io.close(socket),
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        let meter = mem::replace(&mut self.meter, Meter::new(self.flow));
        report.receivers.push(meter.finish(io.plan()));
    }
}
