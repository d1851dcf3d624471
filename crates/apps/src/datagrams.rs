//! Datagrams: sent when they are due, whatever becomes of them, and counted where they arrive.

use std::{mem, net::SocketAddr};

use sluicegate_scenario::workload::{
    Report,
    plan::{Bursts, DatagramsReceived, DatagramsSent, Span},
};

use crate::{
    Actor, Meter,
    io::{Io, SocketId},
};

/// The sending end.
pub struct Source {
    peer: SocketAddr,
    bytes: u16,
    bursts: Bursts,
    socket_buffer_bytes: u64,
    span: Span,
    number: u64,
    socket: Option<SocketId>,
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
            socket: None,
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

    fn schedule_next<I: Io>(&self, io: &mut I) {
        if let Some((at_ns, _)) = self.next() {
            io.timer(at_ns, 0);
        }
    }

    fn send<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        let Some((_, bytes)) = self.next() else {
            return;
        };
        self.number += 1;
        let measured = io.measured(io.now_ns());
        if measured {
            let taken = || io.datagrams_taken(socket);
            self.before.get_or_insert_with(taken);
        }
        let (dropped, dropped_bytes) = io.send_datagrams(socket, bytes, self.bytes);
        if measured {
            self.report.socket_drops.0 += dropped;
            self.report.socket_drops.1 += dropped_bytes;
        }
        self.schedule_next(io);
    }
}

impl Actor for Source {
    fn begin<I: Io>(&mut self, io: &mut I) {
        self.socket = Some(io.open_datagrams(self.peer, self.socket_buffer_bytes));
        self.schedule_next(io);
    }

    fn timer<I: Io>(&mut self, io: &mut I, _: u64) {
        if let Some(socket) = self.socket {
            self.send(io, socket);
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let Some(socket) = self.socket else { return };
        let taken = io.datagrams_taken(socket);
        let before = self.before.unwrap_or(taken);
        report.datagrams_sent.push(DatagramsSent {
            before,
            sent: (taken.0 - before.0, taken.1 - before.1),
            ..self.report
        });
    }
}

/// The receiving end. A copy that the network made counts as nothing: it replaces no datagram that
/// was lost.
pub struct Sink {
    port: u16,
    meter: Meter,
    report: DatagramsReceived,
}

impl Sink {
    pub fn new(flow: u32, port: u16) -> Self {
        Self {
            port,
            meter: Meter::new(flow),
            report: DatagramsReceived {
                flow,
                ..DatagramsReceived::default()
            },
        }
    }
}

impl Actor for Sink {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        io.bind_datagrams(self.port);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        while let Some(datagram) = io.receive_datagram(socket) {
            if !self.report.arrived.add(datagram.number) {
                continue;
            }
            self.meter.count(io.plan(), io.now_ns(), datagram.bytes);
            if io.measured(datagram.sent_ns) {
                self.report.received.0 += 1;
                self.report.received.1 += datagram.bytes;
                let upto = (datagram.number + 1, datagram.end_bytes);
                self.report.latest = self.report.latest.max(Some(upto));
            }
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        report.receivers.push(self.meter.finish(io.plan()));
        report.datagrams_received.push(mem::take(&mut self.report));
    }
}
