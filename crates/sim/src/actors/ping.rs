//! The RTT probe: a request, an echo, one outstanding, on one connection.

use std::net::SocketAddr;

use sluicegate_scenario::workload::{
    Report,
    plan::{RttReport, Span},
};

use super::{Actor, Io};
use crate::net::EndId;

const CONNECT: u64 = 0;
const ASK: u64 = 1;

/// Asks and measures.
pub struct Client {
    flow: u32,
    peer: SocketAddr,
    bytes: u64,
    interval_ns: u64,
    span: Span,
    end: Option<EndId>,
    asked_ns: u64,
    unsent: u64,
    awaited: u64,
    samples_us: Vec<f64>,
}

impl Client {
    pub fn new(flow: u32, peer: SocketAddr, bytes: u64, interval_ns: u64, span: Span) -> Self {
        Self {
            flow,
            peer,
            bytes: bytes.max(1),
            interval_ns,
            span,
            end: None,
            asked_ns: 0,
            unsent: 0,
            awaited: 0,
            samples_us: Vec::new(),
        }
    }

    fn ask(&mut self, io: &mut Io<'_>, end: EndId) {
        self.asked_ns = io.now_ns();
        if self.asked_ns < self.span.end_ns {
            (self.unsent, self.awaited) = (self.bytes, self.bytes);
            self.write(io, end);
        }
    }

    fn write(&mut self, io: &mut Io<'_>, end: EndId) {
        if self.unsent > 0 {
            self.unsent -= io.net.write(end, self.unsent);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, end: EndId) {
        let now = io.now_ns();
        if io.measured(self.asked_ns) {
            self.samples_us.push((now - self.asked_ns) as f64 / 1e3);
        }
        match self.interval_ns {
            0 => self.ask(io, end),
            pause => io.alarm(now + pause, ASK),
        }
    }
}

impl Actor for Client {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.alarm(self.span.begin_ns, CONNECT);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.ask(io, end);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        let bytes = io.net.read(end, self.awaited);
        self.awaited -= bytes;
        if bytes > 0 && self.awaited == 0 {
            self.answered(io, end);
        }
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.write(io, end);
    }

    fn alarm(&mut self, io: &mut Io<'_>, key: u64) {
        match (key, self.end) {
            (CONNECT, _) => self.end = Some(io.connect(self.peer, 0)),
            (_, Some(end)) => self.ask(io, end),
            _ => {}
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let open = self.awaited > 0 && io.measured(self.asked_ns);
        report.rtts.push(RttReport {
            flow: self.flow,
            samples_us: std::mem::take(&mut self.samples_us),
            outstanding_us: open.then(|| (io.now_ns() - self.asked_ns) as f64 / 1e3),
        });
    }
}

#[derive(Default)]
struct Exchange {
    gathered: u64,
    unsent: u64,
}

/// Returns every `bytes` once they are complete.
pub struct Echo {
    port: u16,
    bytes: u64,
    exchanges: Vec<Exchange>,
}

impl Echo {
    pub fn new(port: u16, bytes: u64) -> Self {
        Self {
            port,
            bytes: bytes.max(1),
            exchanges: Vec::new(),
        }
    }

    fn write(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let exchange = &mut self.exchanges[key as usize];
        if exchange.unsent > 0 {
            exchange.unsent -= io.net.write(end, exchange.unsent);
        }
    }
}

impl Actor for Echo {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.listen(self.port, 0);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        io.set_key(end, self.exchanges.len() as u64);
        self.exchanges.push(Exchange::default());
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let bytes = io.net.read(end, u64::MAX);
        let exchange = &mut self.exchanges[key as usize];
        exchange.gathered += bytes;
        while exchange.gathered >= self.bytes {
            exchange.gathered -= self.bytes;
            exchange.unsent += self.bytes;
        }
        self.write(io, end, key);
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        self.write(io, end, key);
    }

    fn finish(&mut self, _: &mut Io<'_>, _: &mut Report) {}
}
