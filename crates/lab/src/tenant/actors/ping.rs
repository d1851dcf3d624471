//! The RTT probe: a request, an echo, one outstanding, on one connection (as sockperf's ping-pong does).

use std::net::SocketAddr;

use crate::tenant::{
    engine::Actor,
    io::{Io, Received, SocketId},
    plan::{Report, RttReport, Span},
};

const CONNECT: u64 = 0;
const ASK: u64 = 1;

/// Asks and measures. A sample is the time from before the write to after the read of the last byte.
pub struct Client {
    flow: u32,
    peer: SocketAddr,
    bytes: u64,
    interval_ns: u64,
    span: Span,
    socket: Option<SocketId>,
    asked_ns: u64,
    /// Bytes of this request not yet written, bytes of the answer not yet read; stream offsets so far.
    unsent: u64,
    awaited: u64,
    sent_bytes: u64,
    received_bytes: u64,
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
            sent_bytes: 0,
            received_bytes: 0,
            samples_us: Vec::new(),
        }
    }

    fn ask(&mut self, io: &mut Io, socket: SocketId) {
        self.asked_ns = io.now_ns();
        if self.asked_ns >= self.span.end_ns {
            return;
        }
        (self.unsent, self.awaited) = (self.bytes, self.bytes);
        self.write(io, socket);
    }

    fn write(&mut self, io: &mut Io, socket: SocketId) {
        let count = io.send_pattern(socket, self.sent_bytes, self.unsent) as u64;
        self.sent_bytes += count;
        self.unsent -= count;
        io.want_write(socket, self.unsent > 0);
    }

    fn answered(&mut self, io: &mut Io, socket: SocketId) {
        let now = io.now_ns();
        if io.measured(self.asked_ns) {
            self.samples_us
                .push(now.saturating_sub(self.asked_ns) as f64 / 1e3);
        }
        match self.interval_ns {
            0 => self.ask(io, socket),
            pause => io.timer(now + pause, ASK),
        }
    }
}

impl Actor for Client {
    fn begin(&mut self, io: &mut Io) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        self.ask(io, socket);
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        match io.receive_payload(socket, self.received_bytes, self.awaited.max(1)) {
            Received::Bytes(count) if count as u64 <= self.awaited => {
                self.received_bytes += count as u64;
                self.awaited -= count as u64;
                if self.awaited == 0 {
                    self.answered(io, socket);
                }
            }
            Received::Bytes(_) => io.error(format!(
                "flow {}: an answer that nobody asked for",
                self.flow
            )),
            Received::Empty => {}
            Received::End => {
                io.error(format!(
                    "flow {}: {} closed the connection",
                    self.flow, self.peer
                ));
                io.close(socket);
            }
        }
    }

    fn writable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        self.write(io, socket);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        match (key, self.socket) {
            (CONNECT, _) => self.socket = io.connect(self.peer, 0),
            (_, Some(socket)) => self.ask(io, socket),
            _ => {}
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        let samples_us = std::mem::take(&mut self.samples_us);
        let open = self.awaited > 0 && io.measured(self.asked_ns);
        let outstanding_us = open.then(|| io.now_ns().saturating_sub(self.asked_ns) as f64 / 1e3);
        report.rtts.push(RttReport {
            flow: self.flow,
            samples_us,
            outstanding_us,
        });
    }
}

/// One client's connection at the echo server.
struct Exchange {
    socket: SocketId,
    gathered: u64,
    unsent: u64,
    received_bytes: u64,
    sent_bytes: u64,
}

/// Returns every `bytes` once they are complete: the pattern continues, so the answer equals the request.
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

    fn write(exchange: &mut Exchange, io: &mut Io) {
        let count = io.send_pattern(exchange.socket, exchange.sent_bytes, exchange.unsent) as u64;
        exchange.sent_bytes += count;
        exchange.unsent -= count;
        io.want_write(exchange.socket, exchange.unsent > 0);
    }
}

impl Actor for Echo {
    fn prepare(&mut self, io: &mut Io) -> anyhow::Result<()> {
        io.listen(self.port, 0)
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        io.set_key(socket, self.exchanges.len() as u64);
        self.exchanges.push(Exchange {
            socket,
            gathered: 0,
            unsent: 0,
            received_bytes: 0,
            sent_bytes: 0,
        });
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, key: u64) {
        let exchange = &mut self.exchanges[key as usize];
        match io.receive_payload(
            socket,
            exchange.received_bytes,
            self.bytes - exchange.gathered,
        ) {
            Received::Bytes(count) => {
                exchange.received_bytes += count as u64;
                exchange.gathered += count as u64;
                if exchange.gathered == self.bytes {
                    exchange.gathered = 0;
                    exchange.unsent += self.bytes;
                    Self::write(exchange, io);
                }
            }
            Received::Empty => {}
            Received::End => io.close(socket),
        }
    }

    fn writable(&mut self, io: &mut Io, _: SocketId, key: u64) {
        Self::write(&mut self.exchanges[key as usize], io);
    }
}
