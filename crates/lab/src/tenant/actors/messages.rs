//! Messages with completion times: mice, shuffle, traces.
//!
//! A completion time runs from the moment a message was due (so waiting for a connection or a handshake
//! counts) to the moment the receiver has its last byte, on the clock that all tenants share. The byte that
//! comes back only tells the sender that the connection is free.

use std::{collections::VecDeque, mem, net::SocketAddr};

use sluicegate_scenario::workload::Meter;

use crate::tenant::{
    engine::Actor,
    frame::{HEADER_BYTES, Header},
    io::{Io, Received, SocketId},
    plan::{self, Arrival, CompletionReport, Connections, Report, Schedule, Span},
};

/// A message between its due time and its acknowledgement.
struct Message {
    header: Header,
    written: u64,
}

/// A connection of the source.
struct Connection {
    peer: usize,
    socket: Option<SocketId>,
    established: bool,
    /// Not completely written, in order.
    queue: VecDeque<Message>,
    /// Written, not acknowledged, in order.
    sent: VecDeque<Header>,
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

    fn schedule_next(&mut self, io: &mut Io) {
        if let Some(arrival) = self.arrival() {
            io.timer(arrival.at_ns, 0);
        }
    }

    /// Starts the next transfer, if this is a closed loop.
    fn next_transfer(&mut self, io: &mut Io) {
        let now_ns = io.now_ns();
        if let Some(transfer) = self.schedule.transfer(self.number, self.span, now_ns) {
            self.start(io, transfer);
        }
    }

    fn start(&mut self, io: &mut Io, arrival: Arrival) {
        let bytes = arrival.bytes.max(HEADER_BYTES as u64);
        let header = Header {
            class: arrival.class,
            begin_ns: arrival.at_ns,
            bytes,
            number: self.number,
        };
        self.number += 1;
        let Some(index) = self.choose(io, arrival.peer as usize) else {
            return;
        };
        self.connections[index]
            .queue
            .push_back(Message { header, written: 0 });
        self.write(io, index);
    }

    /// Index of the connection that takes the next message to this peer.
    fn choose(&mut self, io: &mut Io, peer: usize) -> Option<usize> {
        let usable = |connection: &Connection| match self.policy {
            Connections::One => connection.peer == peer,
            Connections::Pool => connection.peer == peer && connection.idle(),
            Connections::PerMessage => false,
        };
        if let Some(index) = self.connections.iter().position(usable) {
            return Some(index);
        }
        let address = self.peers.get(peer)?.1;
        let index = self
            .connections
            .iter()
            .position(|connection| connection.socket.is_none());
        let index = index.unwrap_or(self.connections.len());
        let socket = io.connect(address, index as u64);
        let fresh = Connection {
            peer,
            socket,
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

    fn write(&mut self, io: &mut Io, index: usize) {
        let connection = &mut self.connections[index];
        let (Some(socket), true) = (connection.socket, connection.established) else {
            return;
        };
        while let Some(message) = connection.queue.front_mut() {
            let count = io.send_frame(
                socket,
                &message.header.encode(),
                message.written,
                message.header.bytes,
            );
            message.written += count as u64;
            if message.written < message.header.bytes {
                return io.want_write(socket, true);
            }
            connection.sent.push_back(message.header);
            connection.queue.pop_front();
        }
        io.want_write(socket, false);
    }

    /// One byte came back for each of `count` messages.
    fn acknowledged(&mut self, io: &mut Io, index: usize, count: usize) {
        let connection = &mut self.connections[index];
        let count = count.min(connection.sent.len());
        connection.sent.drain(..count);
        if self.policy == Connections::PerMessage && connection.idle() {
            if let Some(socket) = connection.socket.take() {
                io.close(socket);
            }
        }
        for _ in 0..count {
            self.next_transfer(io);
        }
    }
}

impl Actor for Source {
    fn begin(&mut self, io: &mut Io) {
        match self.schedule {
            Schedule::Closed { .. } => io.timer(self.span.begin_ns, 0),
            Schedule::Periodic { .. } if self.policy == Connections::One => {
                // Long-lived connections exist before the first message, as in the paper's application.
                for peer in 0..self.peers.len() {
                    self.choose(io, peer);
                }
                self.schedule_next(io);
            }
            _ => self.schedule_next(io),
        }
    }

    fn connected(&mut self, io: &mut Io, _: SocketId, key: u64) {
        self.connections[key as usize].established = true;
        self.write(io, key as usize);
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, key: u64) {
        match io.receive(socket, &mut [0; 256]) {
            Received::Bytes(count) => self.acknowledged(io, key as usize, count),
            Received::Empty => {}
            Received::End => {
                let (flow, peer) = self.peers[self.connections[key as usize].peer];
                io.error(format!("flow {flow}: {peer} closed the connection"));
                io.close(socket);
            }
        }
    }

    fn writable(&mut self, io: &mut Io, _: SocketId, key: u64) {
        self.write(io, key as usize);
    }

    fn timer(&mut self, io: &mut Io, _: u64) {
        if let Schedule::Closed { parallel, .. } = self.schedule {
            return (0..parallel.min(self.peers.len() as u32)).for_each(|_| self.next_transfer(io));
        }
        if let Some(arrival) = self.arrival() {
            self.start(io, arrival);
            self.schedule_next(io);
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        let mut open_us = vec![vec![Vec::new(); self.classes.len()]; self.peers.len()];
        let now_ns = io.now_ns();
        for connection in &self.connections {
            let waiting = connection.queue.iter().map(|message| &message.header);
            let broken = connection.socket.is_some_and(|id| io.fd(id).is_none());
            for header in waiting
                .chain(&connection.sent)
                .filter(|header| io.measured(header.begin_ns))
            {
                let ages_us = &mut open_us[connection.peer][usize::from(header.class)];
                ages_us.push(plan::open_us(header.begin_ns, now_ns, broken));
            }
        }
        for ((flow, _), open_us) in self.peers.iter().zip(open_us) {
            for (class, open_us) in self
                .classes
                .iter()
                .zip(open_us)
                .filter(|(_, open_us)| !open_us.is_empty())
            {
                let (flow, class) = (*flow, class.clone());
                report.completions.push(CompletionReport {
                    flow,
                    class,
                    samples_us: Vec::new(),
                    open_us,
                });
            }
        }
    }
}

/// A connection of the sink: what is there of the current message.
#[derive(Default)]
struct Incoming {
    raw: [u8; HEADER_BYTES],
    filled: usize,
    header: Option<Header>,
    received: u64,
}

/// The receiving end.
pub struct Sink {
    flow: u32,
    port: u16,
    classes: Vec<String>,
    incoming: Vec<Incoming>,
    samples_us: Vec<Vec<f64>>,
    meter: Meter,
}

impl Sink {
    pub fn new(flow: u32, port: u16, classes: Vec<String>) -> Self {
        let samples_us = vec![Vec::new(); classes.len()];
        Self {
            flow,
            port,
            classes,
            incoming: Vec::new(),
            samples_us,
            meter: Meter::new(flow),
        }
    }

    /// One read; the message's first bytes go to the header, the others are discarded or compared.
    fn read(&mut self, io: &mut Io, socket: SocketId, key: usize) -> anyhow::Result<Received> {
        let message = &mut self.incoming[key];
        let received = match message.header {
            None => io.receive(socket, &mut message.raw[message.filled..]),
            Some(header) => {
                let position = message.received - HEADER_BYTES as u64;
                io.receive_payload(socket, position, header.bytes - message.received)
            }
        };
        let Received::Bytes(count) = received else {
            return Ok(received);
        };
        self.meter.count(io.plan(), io.now_ns(), count as u64);
        message.received += count as u64;
        if message.header.is_none() {
            message.filled += count;
            if message.filled == HEADER_BYTES {
                let header = Header::decode(&message.raw);
                let known = header.filter(|header| usize::from(header.class) < self.classes.len());
                message.header = Some(
                    known.ok_or_else(|| anyhow::anyhow!("what arrives is no message header"))?,
                );
            }
        }
        Ok(received)
    }

    fn complete(&mut self, io: &mut Io, socket: SocketId, key: usize) {
        let message = mem::take(&mut self.incoming[key]);
        let Some(header) = message.header else { return };
        if io.measured(header.begin_ns) {
            let elapsed_us = io.now_ns().saturating_sub(header.begin_ns) as f64 / 1e3;
            self.samples_us[usize::from(header.class)].push(elapsed_us);
        }
        if io.send(socket, &[0]) != 1 {
            io.error(format!(
                "flow {}: an acknowledgement of one byte did not fit",
                self.flow
            ));
        }
    }
}

impl Actor for Sink {
    fn prepare(&mut self, io: &mut Io) -> anyhow::Result<()> {
        io.listen(self.port, 0)
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        io.set_key(socket, self.incoming.len() as u64);
        self.incoming.push(Incoming::default());
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, key: u64) {
        match self.read(io, socket, key as usize) {
            Ok(Received::Bytes(_)) => {
                let message = &self.incoming[key as usize];
                if message
                    .header
                    .is_some_and(|header| header.bytes == message.received)
                {
                    self.complete(io, socket, key as usize);
                }
            }
            Ok(Received::Empty) => {}
            Ok(Received::End) => io.close(socket),
            Err(error) => {
                io.error(format!("flow {}: {error}", self.flow));
                io.close(socket);
            }
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        let flow = self.flow;
        for (class, samples_us) in self.classes.drain(..).zip(self.samples_us.drain(..)) {
            report.completions.push(CompletionReport {
                flow,
                class,
                samples_us,
                open_us: Vec::new(),
            });
        }
        let meter = mem::replace(&mut self.meter, Meter::new(flow));
        report.receivers.push(meter.finish(io.plan()));
    }
}
