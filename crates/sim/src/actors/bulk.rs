//! One connection that carries as much as it can, or as its application offers.

use std::net::SocketAddr;

use sluicegate_scenario::workload::{Meter, Report, plan::Span};

use super::{Actor, Io, probe::SenderProbe};
use crate::net::EndId;

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
    peer: SocketAddr,
    rate_bps: Option<u64>,
    span: Span,
    end: Option<EndId>,
    connected_ns: u64,
    written_bytes: u64,
    probe: Option<SenderProbe>,
}

impl Source {
    pub fn new(flow: u32, peer: SocketAddr, rate_bps: Option<u64>, span: Span) -> Self {
        Self {
            peer,
            rate_bps,
            span,
            end: None,
            connected_ns: 0,
            written_bytes: 0,
            probe: Some(SenderProbe::new(flow)),
        }
    }

    fn fill(&mut self, io: &mut Io<'_>, end: EndId) {
        if self.rate_bps.is_none() && io.now_ns() < self.span.end_ns {
            io.net.write(end, PLENTY);
        }
    }

    /// Writes what the rate allows by now. What did not fit is made up for at the next tick.
    fn tick(&mut self, io: &mut Io<'_>, end: EndId, rate_bps: u64) {
        let now = io.now_ns();
        if now >= self.span.end_ns {
            return;
        }
        let elapsed = now - self.connected_ns;
        let allowed = u128::from(rate_bps) * u128::from(elapsed) / 8_000_000_000;
        let due = (allowed as u64).saturating_sub(self.written_bytes);
        self.written_bytes += io.net.write(end, due);
        io.alarm(now + TICK_NS, TICK);
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.alarm(self.span.begin_ns, CONNECT);
        io.alarm(self.span.end_ns, STOP);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.connected_ns = io.now_ns();
        if let Some(probe) = &mut self.probe {
            let next = probe.attach(io, end);
            io.alarm(next, SAMPLE);
        }
        match self.rate_bps {
            Some(rate_bps) => self.tick(io, end, rate_bps),
            None => self.fill(io, end),
        }
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.fill(io, end);
    }

    fn alarm(&mut self, io: &mut Io<'_>, key: u64) {
        if key == CONNECT {
            self.end = Some(io.connect(self.peer, 0));
            return;
        }
        let Some(end) = self.end else { return };
        match (key, self.rate_bps, &mut self.probe) {
            (STOP, _, _) => io.net.close(end),
            (TICK, Some(rate_bps), _) => self.tick(io, end, rate_bps),
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
    }
}

/// The receiving end.
pub struct Sink {
    port: u16,
    meter: Option<Meter>,
}

impl Sink {
    pub fn new(flow: u32, port: u16) -> Self {
        Self {
            port,
            meter: Some(Meter::new(flow)),
        }
    }
}

impl Actor for Sink {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.listen(self.port, 0);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        let bytes = io.net.read(end, u64::MAX);
        if let Some(meter) = &mut self.meter {
            meter.count(io.plan, io.now_ns(), bytes);
        }
        if io.net.ends[end as usize]
            .tcp
            .as_ref()
            .is_some_and(|tcp| tcp.at_end())
        {
            io.net.close(end);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        report
            .receivers
            .extend(self.meter.take().map(|meter| meter.finish(io.plan)));
    }
}
