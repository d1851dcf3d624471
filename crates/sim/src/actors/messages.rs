//! Messages with completion times: mice, shuffle, traces.
//!
//! A completion time runs from the moment a message was due to the moment the receiver has its last byte.
//! One byte comes back per message and tells the sender that the connection is free.

use std::{collections::VecDeque, net::SocketAddr};

use sluicegate_scenario::workload::{
    Meter, Report,
    plan::{self, Arrival, CompletionReport, Connections, Schedule, Span},
};

use super::{Actor, Io};
use crate::{letters::Letter, net::EndId};

/// Shortest message: the lab's header.
const HEADER_BYTES: u64 = 32;

struct Message {
    letter: Letter,
    written: u64,
}

struct Connection {
    peer: usize,
    end: Option<EndId>,
    established: bool,
    /// Not completely written, in order.
    queue: VecDeque<Message>,
    /// Written, not answered, in order.
    sent: VecDeque<Letter>,
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

    fn schedule_next(&mut self, io: &mut Io<'_>) {
        if let Some(arrival) = self.arrival() {
            io.alarm(arrival.at_ns, 0);
        }
    }

    /// Starts the next transfer, if this is a closed loop.
    fn next_transfer(&mut self, io: &mut Io<'_>) {
        let now_ns = io.now_ns();
        if let Some(transfer) = self.schedule.transfer(self.number, self.span, now_ns) {
            self.start(io, transfer);
        }
    }

    fn start(&mut self, io: &mut Io<'_>, arrival: Arrival) {
        let letter = Letter {
            bytes: arrival.bytes.max(HEADER_BYTES),
            begin_ns: arrival.at_ns,
            class: arrival.class,
        };
        self.number += 1;
        let Some(index) = self.choose(io, arrival.peer as usize) else {
            return;
        };
        let queue = &mut self.connections[index].queue;
        queue.push_back(Message { letter, written: 0 });
        self.write(io, index);
    }

    /// The connection that takes the next message to this peer.
    fn choose(&mut self, io: &mut Io<'_>, peer: usize) -> Option<usize> {
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
            .position(|connection| connection.end.is_none());
        let index = free.unwrap_or(self.connections.len());
        let fresh = Connection {
            peer,
            end: Some(io.connect(address, index as u64)),
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

    fn write(&mut self, io: &mut Io<'_>, index: usize) {
        let connection = &mut self.connections[index];
        let (Some(end), true) = (connection.end, connection.established) else {
            return;
        };
        while let Some(message) = connection.queue.front_mut() {
            let begins = message.written == 0;
            message.written += io.net.write(end, message.letter.bytes - message.written);
            if begins && message.written > 0 {
                io.net.post(end, message.letter);
            }
            if message.written < message.letter.bytes {
                return;
            }
            connection.sent.push_back(message.letter);
            connection.queue.pop_front();
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, index: usize, count: u64) {
        let connection = &mut self.connections[index];
        let count = (count as usize).min(connection.sent.len());
        connection.sent.drain(..count);
        if self.policy == Connections::PerMessage && connection.idle() {
            if let Some(end) = connection.end.take() {
                io.net.release(end);
            }
        }
        for _ in 0..count {
            self.next_transfer(io);
        }
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io<'_>) {
        match self.schedule {
            Schedule::Closed { .. } => io.alarm(self.span.begin_ns, 0),
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

    fn connected(&mut self, io: &mut Io<'_>, _: EndId, key: u64) {
        self.connections[key as usize].established = true;
        self.write(io, key as usize);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let count = io.net.read(end, u64::MAX);
        if self.connections[key as usize].end == Some(end) && count > 0 {
            self.answered(io, key as usize, count);
        }
    }

    fn writable(&mut self, io: &mut Io<'_>, _: EndId, key: u64) {
        self.write(io, key as usize);
    }

    fn alarm(&mut self, io: &mut Io<'_>, _: u64) {
        if let Schedule::Closed { parallel, .. } = self.schedule {
            return (0..parallel.min(self.peers.len() as u32)).for_each(|_| self.next_transfer(io));
        }
        if let Some(arrival) = self.arrival() {
            self.start(io, arrival);
            self.schedule_next(io);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let mut open_us = vec![vec![Vec::new(); self.classes.len()]; self.peers.len()];
        let now_ns = io.now_ns();
        for connection in &self.connections {
            let waiting = connection.queue.iter().map(|message| &message.letter);
            let open = waiting.chain(&connection.sent);
            let broken = connection.end.is_some_and(|end| io.is_broken(end));
            for letter in open.filter(|letter| io.measured(letter.begin_ns)) {
                let ages_us = &mut open_us[connection.peer][usize::from(letter.class)];
                ages_us.push(plan::open_us(letter.begin_ns, now_ns, broken));
            }
        }
        for ((flow, _), open_us) in self.peers.iter().zip(open_us) {
            let classes = self.classes.iter().zip(open_us);
            for (class, open_us) in classes.filter(|(_, open_us)| !open_us.is_empty()) {
                report.completions.push(CompletionReport {
                    flow: *flow,
                    class: class.clone(),
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
    meter: Option<Meter>,
}

impl Sink {
    pub fn new(flow: u32, port: u16, classes: Vec<String>) -> Self {
        Self {
            flow,
            port,
            received: Vec::new(),
            samples_us: vec![Vec::new(); classes.len()],
            classes,
            meter: Some(Meter::new(flow)),
        }
    }
}

impl Actor for Sink {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.listen(self.port, 0);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        io.set_key(end, self.received.len() as u64);
        self.received.push(0);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let bytes = io.net.read(end, u64::MAX);
        if let Some(meter) = &mut self.meter {
            meter.count(io.plan, io.now_ns(), bytes);
        }
        let received = &mut self.received[key as usize];
        *received += bytes;
        while let Some(letter) = io
            .net
            .letters
            .peek(end)
            .filter(|letter| letter.bytes <= *received)
        {
            *received -= letter.bytes;
            io.net.letters.take(end);
            if io.measured(letter.begin_ns) {
                let elapsed_us = (io.now_ns() - letter.begin_ns) as f64 / 1e3;
                self.samples_us[usize::from(letter.class)].push(elapsed_us);
            }
            io.net.write(end, 1);
        }
        if io.net.ends[end as usize]
            .tcp
            .as_ref()
            .is_some_and(|tcp| tcp.at_end())
        {
            io.net.letters.forget(end);
            io.net.release(end);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        for (class, samples_us) in self.classes.iter().zip(self.samples_us.drain(..)) {
            report.completions.push(CompletionReport {
                flow: self.flow,
                class: class.clone(),
                samples_us,
                open_us: Vec::new(),
            });
        }
        report
            .receivers
            .extend(self.meter.take().map(|meter| meter.finish(io.plan)));
    }
}
