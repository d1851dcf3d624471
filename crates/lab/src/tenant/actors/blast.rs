//! A cheat: a real connection, and a raw socket that sends in its name as if there were no windows.
//!
//! It goes through `span_bytes` of sequence numbers over and over, beginning with the oldest that is not
//! acknowledged: what lies beyond the window that it was shown is new data out of turn, what lies within is repeated.
//! The kernel's own end of the connection stays idle; ACKs of what it never sent say nothing to it.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::tenant::{
    engine::Actor,
    io::{Io, Received, SocketId},
    plan::{Report, SenderReport, Span},
    raw::{self, RawConnection},
    socket::{self, TcpInfo},
};

/// Time between bursts.
const TICK_NS: u64 = 1_000_000;

#[derive(Clone, Copy)]
enum Key {
    Connect,
    Tick,
}

/// The state of a connection that a blaster has taken over.
struct Blast {
    raw: RawConnection,
    mss: u32,
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
        let report = SenderReport {
            flow,
            ..SenderReport::default()
        };
        Self {
            peer,
            rate_bps,
            span_bytes: u32::try_from(span_bytes).unwrap_or(u32::MAX),
            span,
            blast: None,
            report,
        }
    }

    fn take_over(&mut self, io: &Io, id: SocketId) -> Result<Blast> {
        let fd = io.fd(id).context("the connection is gone")?;
        let (info, _) = TcpInfo::read(fd).context("the connection is gone")?;
        let (una, expected) = raw::sequence_numbers(fd)?;
        self.report.local_port = socket::local_port(fd);
        self.report.congestion_control = "none".to_owned();
        let local = SocketAddr::new(io.plan().address, self.report.local_port);
        Ok(Blast {
            raw: RawConnection::open(local, self.peer, expected)?,
            mss: info.snd_mss.max(1),
            begun_ns: io.now_ns(),
            sent_bytes: 0,
            una,
            next: una,
        })
    }

    /// Sends what the rate allows by now.
    fn tick(&mut self, io: &mut Io) {
        let now = io.now_ns();
        let Some(blast) = &mut self.blast else { return };
        if now >= self.span.end_ns {
            return;
        }
        let elapsed = now.saturating_sub(blast.begun_ns);
        let due = u128::from(self.rate_bps) * u128::from(elapsed) / 8_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        if let Err(error) = blast.send(due, self.span_bytes) {
            io.error(format!("flow {}: {error:#}", self.report.flow));
            return;
        }
        io.timer(now + TICK_NS, Key::Tick as u64);
    }
}

impl Blast {
    fn send(&mut self, due: u64, span_bytes: u32) -> Result<()> {
        while let Some(ack) = self.raw.acknowledged()? {
            if ack.wrapping_sub(self.una) as i32 > 0 {
                self.una = ack;
            }
        }
        let payload = vec![0; self.mss as usize];
        while self.sent_bytes < due {
            // Behind the oldest, or at the end of the span: begin anew.
            if self.next.wrapping_sub(self.una) >= span_bytes {
                self.next = self.una;
            }
            if !self.raw.send(self.next, &payload)? {
                // What does not fit now is not made up for: the way out is full.
                self.sent_bytes = due;
                break;
            }
            self.next = self.next.wrapping_add(self.mss);
            self.sent_bytes += u64::from(self.mss);
        }
        Ok(())
    }
}

impl Actor for Blaster {
    fn begin(&mut self, io: &mut Io) {
        io.timer(self.span.begin_ns, Key::Connect as u64);
    }

    fn connected(&mut self, io: &mut Io, id: SocketId, _: u64) {
        match self.take_over(io, id) {
            Ok(blast) => {
                self.blast = Some(blast);
                self.tick(io);
            }
            Err(error) => io.error(format!("flow {}: {error:#}", self.report.flow)),
        }
    }

    fn readable(&mut self, io: &mut Io, id: SocketId, _: u64) {
        // A sink never answers: this is the end of the connection.
        if io.receive(id, &mut [0; 64]) == Received::End {
            io.error(format!(
                "flow {}: {} closed the connection",
                self.report.flow, self.peer
            ));
            io.close(id);
        }
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == Key::Connect as u64 {
            let _ = io.connect(self.peer, 0); // a failure is noted
        } else {
            self.tick(io);
        }
    }

    fn finish(&mut self, _: &mut Io, report: &mut Report) {
        report.senders.push(std::mem::take(&mut self.report));
    }
}
