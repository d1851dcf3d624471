//! Datagrams: sent when they are due, whatever becomes of them, and counted where they arrive.

use std::net::SocketAddr;

use sluicegate_scenario::workload::{
    Meter, Report,
    plan::{Bursts, DatagramsReceived, DatagramsSent, Span},
};

use super::{Actor, Io};
use crate::net::EndId;

/// The sending end.
pub struct Source {
    peer: SocketAddr,
    bytes: u16,
    bursts: Bursts,
    socket_buffer_bytes: u64,
    span: Span,
    number: u64,
    end: Option<EndId>,
    /// (datagrams, bytes) that the socket had taken when the first was sent in measured time.
    before: Option<(u64, u64)>,
    report: DatagramsSent,
}

impl Source {
    pub fn new(
        flow: u32,
        peer: SocketAddr,
        bytes: u16,
        bursts: Bursts,
        socket_buffer_bytes: u64,
        span: Span,
    ) -> Self {
        Self {
            peer,
            bytes,
            bursts,
            socket_buffer_bytes,
            span,
            number: 0,
            end: None,
            before: None,
            report: DatagramsSent {
                flow,
                ..DatagramsSent::default()
            },
        }
    }

    /// (when, bytes) of the next.
    fn next(&self) -> Option<(u64, u64)> {
        self.bursts.burst(self.number, self.bytes, self.span)
    }

    fn schedule_next(&self, io: &mut Io<'_>) {
        if let Some((at_ns, _)) = self.next() {
            io.alarm(at_ns, 0);
        }
    }

    fn send(&mut self, io: &mut Io<'_>, end: EndId) {
        let Some((_, bytes)) = self.next() else {
            return;
        };
        self.number += 1;
        let measured = io.measured(io.now_ns());
        if measured {
            let taken = || io.net.datagrams_taken(end);
            self.before.get_or_insert_with(taken);
        }
        let (dropped, dropped_bytes) = io.net.send_datagrams(end, bytes, self.bytes);
        if measured {
            self.report.socket_drops.0 += dropped;
            self.report.socket_drops.1 += dropped_bytes;
        }
        self.schedule_next(io);
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io<'_>) {
        let (peer, limit_bytes) = (self.peer, self.socket_buffer_bytes);
        self.end = Some(io.open_datagrams(peer, limit_bytes));
        self.schedule_next(io);
    }

    fn alarm(&mut self, io: &mut Io<'_>, _: u64) {
        if let Some(end) = self.end {
            self.send(io, end);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let Some(end) = self.end else { return };
        let taken = io.net.datagrams_taken(end);
        let before = self.before.unwrap_or(taken);
        report.datagrams_sent.push(DatagramsSent {
            before,
            sent: (taken.0 - before.0, taken.1 - before.1),
            ..self.report
        });
    }
}

/// The receiving end.
pub struct Sink {
    port: u16,
    meter: Option<Meter>,
    report: DatagramsReceived,
}

impl Sink {
    pub fn new(flow: u32, port: u16) -> Self {
        Self {
            port,
            meter: Some(Meter::new(flow)),
            report: DatagramsReceived {
                flow,
                ..DatagramsReceived::default()
            },
        }
    }
}

impl Actor for Sink {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.bind_datagrams(self.port);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        while let Some(datagram) = io.net.receive_datagram(end) {
            let bytes = u64::from(datagram.payload);
            if let Some(meter) = &mut self.meter {
                meter.count(io.plan, io.now_ns(), bytes);
            }
            if io.measured(datagram.sent_ns) {
                self.report.received.0 += 1;
                self.report.received.1 += bytes;
                let upto = (u64::from(datagram.number) + 1, datagram.end_bytes);
                self.report.latest = self.report.latest.max(Some(upto));
            }
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        report
            .receivers
            .extend(self.meter.take().map(|meter| meter.finish(io.plan)));
        report.datagrams_received.push(self.report.clone());
    }
}
