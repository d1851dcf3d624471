//! A cheat: a real connection, and segments that are sent in its name as if there were no windows.
//!
//! It goes through `span_bytes` of sequence numbers over and over, beginning with the oldest that
//! is not acknowledged: what lies beyond the window that it was shown is new data out of turn, what
//! lies within is repeated. The stack's own end of the connection stays idle; ACKs of what it never
//! sent say nothing to it.

use std::{mem, net::SocketAddr};

use sluicegate_core::number::narrow;
use sluicegate_scenario::workload::{
    Report,
    plan::{SenderReport, Span},
};

use crate::{
    Actor,
    io::{self, Io, SocketId},
};

const CONNECT: u64 = 0;
const TICK: u64 = 1;

/// Time between bursts.
const TICK_NS: u64 = 1_000_000;

/// The state of a connection that a blaster has taken over.
struct Blast {
    socket: SocketId,
    mss_bytes: u32,
    begun_ns: u64,
    sent_bytes: u64,
    /// The oldest sequence number that is not acknowledged.
    una: u32,
    /// The next to be sent.
    next: u32,
}

/// The sending end.
pub struct Blaster {
    peer: SocketAddr,
    rate_bps: u64,
    span_bytes: u32,
    span: Span,
    blast: Option<Blast>,
    report: SenderReport,
}

impl Blaster {
    pub fn new(flow: u32, peer: SocketAddr, rate_bps: u64, span_bytes: u64, span: Span) -> Self {
        Self {
            peer,
            rate_bps,
            span_bytes: u32::try_from(span_bytes).unwrap_or(u32::MAX),
            span,
            blast: None,
            report: SenderReport {
                flow,
                ..SenderReport::default()
            },
        }
    }

    fn take_over<I: Io>(&mut self, io: &mut I, socket: SocketId) -> Result<(), String> {
        let seized = io.seize(socket)?;
        self.report.local_port = seized.local_port;
        self.report.congestion_control = "none".to_owned();
        self.blast = Some(Blast {
            socket,
            mss_bytes: seized.mss_bytes.max(1),
            begun_ns: io.now_ns(),
            sent_bytes: 0,
            una: seized.seq,
            next: seized.seq,
        });
        self.tick(io)
    }

    /// Sends what the rate allows by now.
    fn tick<I: Io>(&mut self, io: &mut I) -> Result<(), String> {
        let now = io.now_ns();
        let Some(blast) = self.blast.as_mut().filter(|_| now < self.span.end_ns) else {
            return Ok(());
        };
        let elapsed = now - blast.begun_ns;
        let due = u128::from(self.rate_bps) * u128::from(elapsed) / 8_000_000_000;
        blast.send(io, narrow::<u64>(due), self.span_bytes)?;
        io.timer(now + TICK_NS, TICK);
        Ok(())
    }

    fn note<I: Io>(&self, io: &mut I, result: Result<(), String>) {
        if let Err(error) = result {
            io.note(format!("flow {}: {error}", self.report.flow));
        }
    }
}

impl Blast {
    fn send<I: Io>(&mut self, io: &mut I, due: u64, span_bytes: u32) -> Result<(), String> {
        while let Some(ack) = io.acknowledged(self.socket)? {
            if ack.wrapping_sub(self.una) as i32 > 0 {
                self.una = ack;
            }
        }
        while self.sent_bytes < due {
            // Behind the oldest, or at the end of the span: begin anew.
            if self.next.wrapping_sub(self.una) >= span_bytes {
                self.next = self.una;
            }
            if !io.forge(self.socket, self.next, self.mss_bytes)? {
                // Bytes that do not fit now are not made up for: the way out is full.
                self.sent_bytes = due;
                break;
            }
            self.next = self.next.wrapping_add(self.mss_bytes);
            self.sent_bytes += u64::from(self.mss_bytes);
        }
        Ok(())
    }
}

impl Actor for Blaster {
    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        let taken = self.take_over(io, socket);
        self.note(io, taken);
    }

    /// A sink never answers.
    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        io.read(socket, 0);
        io::ended(io, socket, self.report.flow);
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        if key == CONNECT {
            io.connect(self.peer, 0);
            return;
        }
        let sent = self.tick(io);
        self.note(io, sent);
    }

    fn finish<I: Io>(&mut self, _: &mut I, report: &mut Report) {
        report.senders.push(mem::take(&mut self.report));
    }
}
