//! Messages with completion times: mice, shuffle, traces.
//!
//! A completion time runs from the moment a message was due (so waiting for a connection or a
//! handshake counts) to the moment the receiver has its last byte, on the clock that all tenants
//! share. One byte comes back per message and tells the sender that the connection is free.

use std::{collections::VecDeque, net::SocketAddr};

use sluicegate_core::number::{self, index, narrow};
use sluicegate_scenario::workload::{
    Report,
    plan::{self, Arrival, CompletionReport, Connections, Schedule, Span},
};

use crate::{
    Actor, Meter,
    io::{self, HEADER_BYTES, Io, MessageHeader, SocketId},
};

struct Message {
    header: MessageHeader,
    written: u64,
}

struct Connection {
    peer: usize,
    socket: Option<SocketId>,
    established: bool,
    /// Not completely written, in order.
    queue: VecDeque<Message>,
    /// Written, not answered, in order.
    sent: VecDeque<MessageHeader>,
}

impl Connection {
    fn idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty()
    }
}

/// The sending end.
pub struct Source {
    peers: Vec<(u32, SocketAddr)>,
    schedule: Schedule,
    policy: Connections,
    classes: Vec<String>,
    span: Span,
    connections: Vec<Connection>,
    number: u64,
    /// Messages begun in measured time, by peer and class.
    begun: Vec<Vec<u64>>,
}

impl Source {
    pub fn new(
        peers: Vec<(u32, SocketAddr)>,
        schedule: Schedule,
        policy: Connections,
        classes: Vec<String>,
        span: Span,
    ) -> Self {
        Self {
            begun: vec![vec![0; classes.len()]; peers.len()],
            peers,
            schedule,
            policy,
            classes,
            span,
            connections: Vec::new(),
            number: 0,
        }
    }

    fn arrival(&self) -> Option<Arrival> {
        self.schedule
            .arrival(self.number, self.span, self.peers.len())
    }

    fn schedule_next<I: Io>(&mut self, io: &mut I) {
        if let Some(arrival) = self.arrival() {
            io.timer(arrival.at_ns, 0);
        }
    }

    /// Starts the next transfer, if this is a closed loop.
    fn next_transfer<I: Io>(&mut self, io: &mut I) {
        let now_ns = io.now_ns();
        if let Some(transfer) = self.schedule.transfer(self.number, self.span, now_ns) {
            self.start(io, transfer);
        }
    }

    fn start<I: Io>(&mut self, io: &mut I, arrival: Arrival) {
        let header = MessageHeader {
            bytes: arrival.bytes.max(HEADER_BYTES),
            tag: arrival.at_ns,
            class: arrival.class,
        };
        self.number += 1;
        if io.measured(header.tag) {
            let of_peer = self.begun.get_mut(arrival.peer as usize);
            let count = of_peer.and_then(|peer| peer.get_mut(usize::from(header.class)));
            count.into_iter().for_each(|count| *count += 1);
        }
        let Some(index) = self.choose(io, arrival.peer as usize) else {
            return;
        };
        let queue = &mut self.connections[index].queue;
        queue.push_back(Message { header, written: 0 });
        self.write(io, index);
    }

    /// The connection that takes the next message to this peer.
    fn choose<I: Io>(&mut self, io: &mut I, peer: usize) -> Option<usize> {
        let usable = |connection: &Connection| match self.policy {
            Connections::One => connection.peer == peer,
            Connections::Pool => connection.peer == peer && connection.idle(),
            Connections::PerMessage => false,
        };
        if let Some(index) = self.connections.iter().position(usable) {
            return Some(index);
        }
        let address = self.peers.get(peer)?.1;
        let free = self
            .connections
            .iter()
            .position(|connection| connection.socket.is_none());
        let index = free.unwrap_or(self.connections.len());
        let fresh = Connection {
            peer,
            socket: Some(io.connect(address, index as u64)),
            established: false,
            queue: VecDeque::new(),
            sent: VecDeque::new(),
        };
        if index == self.connections.len() {
            self.connections.push(fresh);
        } else {
            self.connections[index] = fresh;
        }
        Some(index)
    }

    fn write<I: Io>(&mut self, io: &mut I, index: usize) {
        let connection = &mut self.connections[index];
        let (Some(socket), true) = (connection.socket, connection.established) else {
            return;
        };
        while let Some(message) = connection.queue.front_mut() {
            let (header, written) = (&message.header, message.written);
            message.written += io.write_message(socket, header, written..header.bytes);
            if message.written < message.header.bytes {
                return;
            }
            connection.sent.push_back(message.header);
            connection.queue.pop_front();
        }
    }

    fn answered<I: Io>(&mut self, io: &mut I, index: usize, count: u64) {
        let connection = &mut self.connections[index];
        let count = number::index(count).min(connection.sent.len());
        connection.sent.drain(..count);
        if self.policy == Connections::PerMessage && connection.idle() {
            if let Some(socket) = connection.socket.take() {
                io.release(socket);
            }
        }
        for _ in 0..count {
            self.next_transfer(io);
        }
    }
}

impl Actor for Source {
    fn begin<I: Io>(&mut self, io: &mut I) {
        match self.schedule {
            Schedule::Closed { .. } => io.timer(self.span.begin_ns, 0),
            Schedule::Periodic { .. } if self.policy == Connections::One => {
                // Long-lived connections exist before the first message.
                for peer in 0..self.peers.len() {
                    self.choose(io, peer);
                }
                self.schedule_next(io);
            }
            _ => self.schedule_next(io),
        }
    }

    fn connected<I: Io>(&mut self, io: &mut I, _: SocketId, key: u64) {
        self.connections[index(key)].established = true;
        self.write(io, index(key));
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let count = io.read(socket, u64::MAX);
        let connection = &self.connections[index(key)];
        if connection.socket != Some(socket) {
            return; // one that is closed
        }
        let flow = self.peers[connection.peer].0;
        if count > 0 {
            self.answered(io, index(key), count);
        } else {
            io::ended(io, socket, flow);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, _: SocketId, key: u64) {
        self.write(io, index(key));
    }

    fn timer<I: Io>(&mut self, io: &mut I, _: u64) {
        if let Schedule::Closed { parallel, .. } = self.schedule {
            return (0..parallel.min(narrow::<u32>(self.peers.len())))
                .for_each(|_| self.next_transfer(io));
        }
        if let Some(arrival) = self.arrival() {
            self.start(io, arrival);
            self.schedule_next(io);
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let mut open_us = vec![vec![Vec::new(); self.classes.len()]; self.peers.len()];
        let now_ns = io.now_ns();
        for connection in &self.connections {
            let waiting = connection.queue.iter().map(|message| &message.header);
            let open = waiting.chain(&connection.sent);
            let broken = connection
                .socket
                .is_some_and(|socket| io::is_lost(io, socket));
            for header in open.filter(|header| io.measured(header.tag)) {
                let ages_us = &mut open_us[connection.peer][usize::from(header.class)];
                ages_us.push(plan::open_us(header.tag, now_ns, broken));
            }
        }
        for (((flow, _), open_us), begun) in self.peers.iter().zip(open_us).zip(&self.begun) {
            let classes = self.classes.iter().zip(open_us).zip(begun);
            for ((class, open_us), begun) in classes.filter(|(_, begun)| **begun > 0) {
                report.completions.push(CompletionReport {
                    flow: *flow,
                    class: class.clone(),
                    begun: *begun,
                    samples_us: Vec::new(),
                    open_us,
                });
            }
        }
    }
}

/// The receiving end.
pub struct Sink {
    flow: u32,
    port: u16,
    classes: Vec<String>,
    /// Bytes of the present message, by connection.
    received: Vec<u64>,
    samples_us: Vec<Vec<f64>>,
    meter: Meter,
}

impl Sink {
    pub fn new(flow: u32, port: u16, classes: Vec<String>) -> Self {
        Self {
            flow,
            port,
            received: Vec::new(),
            samples_us: vec![Vec::new(); classes.len()],
            classes,
            meter: Meter::new(flow),
        }
    }
}

impl Actor for Sink {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        io.listen(self.port, 0);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        io.set_key(socket, self.received.len() as u64);
        self.received.push(0);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let bytes = io.read_messages(socket);
        self.meter.count(io.plan(), io.now_ns(), bytes);
        let received = &mut self.received[index(key)];
        *received += bytes;
        while let Some(header) = io.take_message(socket, received) {
            if io.measured(header.tag) {
                let elapsed_us = io.now_ns().saturating_sub(header.tag) as f64 / 1e3;
                let samples_us = self.samples_us.get_mut(usize::from(header.class));
                samples_us.into_iter().for_each(|us| us.push(elapsed_us));
            }
            io::write_whole(io, socket, 1, self.flow);
        }
        if io.at_end(socket) {
            io.release(socket);
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        for (class, samples_us) in self.classes.iter().zip(self.samples_us.drain(..)) {
            report.completions.push(CompletionReport {
                flow: self.flow,
                class: class.clone(),
                begun: 0,
                samples_us,
                open_us: Vec::new(),
            });
        }
        report.receivers.push(self.meter.finish(io.plan()));
    }
}
