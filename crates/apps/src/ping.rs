//! The RTT probe: a request, an echo, one outstanding, on one connection (as sockperf's ping-pong
//! does).

use std::{mem, net::SocketAddr};

use sluicegate_core::number::index;
use sluicegate_scenario::workload::{
    Report,
    plan::{RttReport, Span},
};

use crate::{
    Actor,
    io::{self, Io, SocketId},
};

const CONNECT: u64 = 0;
const ASK: u64 = 1;

/// Asks and measures. A sample is the time from before the write to after the read of the last
/// byte.
pub struct Client {
    flow: u32,
    peer: SocketAddr,
    bytes: u64,
    interval_ns: u64,
    span: Span,
    socket: Option<SocketId>,
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
            socket: None,
            asked_ns: 0,
            unsent: 0,
            awaited: 0,
            samples_us: Vec::new(),
        }
    }

    fn ask<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        self.asked_ns = io.now_ns();
        if self.asked_ns < self.span.end_ns {
            (self.unsent, self.awaited) = (self.bytes, self.bytes);
            self.write(io, socket);
        }
    }

    fn write<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        if self.unsent > 0 {
            self.unsent -= io.write(socket, self.unsent);
        }
    }

    fn answered<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        let now = io.now_ns();
        if io.measured(self.asked_ns) {
            self.samples_us.push((now - self.asked_ns) as f64 / 1e3);
        }
        match self.interval_ns {
            0 => self.ask(io, socket),
            pause => io.timer(now + pause, ASK),
        }
    }
}

impl Actor for Client {
    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.ask(io, socket);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        let bytes = io.read(socket, self.awaited);
        self.awaited -= bytes;
        if bytes > 0 && self.awaited == 0 {
            return self.answered(io, socket);
        }
        io::ended(io, socket, self.flow);
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.write(io, socket);
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        match (key, self.socket) {
            (CONNECT, _) => self.socket = Some(io.connect(self.peer, 0)),
            (_, Some(socket)) => self.ask(io, socket),
            _ => {}
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let open = self.awaited > 0;
        report.rtts.push(RttReport {
            flow: self.flow,
            samples_us: mem::take(&mut self.samples_us),
            outstanding_us: open.then(|| (io.now_ns() - self.asked_ns) as f64 / 1e3),
        });
    }
}

/// A client's connection at the echo server.
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

    fn write<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let exchange = &mut self.exchanges[index(key)];
        if exchange.unsent > 0 {
            exchange.unsent -= io.write(socket, exchange.unsent);
        }
    }
}

impl Actor for Echo {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        io.listen(self.port, 0);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        io.set_key(socket, self.exchanges.len() as u64);
        self.exchanges.push(Exchange::default());
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let bytes = io.read(socket, u64::MAX);
        let exchange = &mut self.exchanges[index(key)];
        exchange.gathered += bytes;
        while exchange.gathered >= self.bytes {
            exchange.gathered -= self.bytes;
            exchange.unsent += self.bytes;
        }
        self.write(io, socket, key);
        if io.at_end(socket) {
            io.close(socket);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        self.write(io, socket, key);
    }
}
