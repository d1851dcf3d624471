//! Queries over a hierarchy (the zOVN thesis, section 2.5.5.1): an aggregator asks one server of
//! each rack, which asks all others of its rack, collects their answers, and answers then.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
};

use sluicegate_core::number::index;
use sluicegate_scenario::workload::{
    Report,
    plan::{self, CompletionReport, Connections, Query, QuerySizes},
};

use crate::{
    Actor,
    calls::{Calls, OF_AGGREGATOR, OF_SERVER},
    io::{Io, MessageHeader, SocketId},
};

/// Begins queries. Calls are called as their query: its number.
pub struct Aggregator {
    flow: u32,
    queries: Vec<Query>,
    calls: Calls,
    /// The next to begin.
    next: usize,
    /// Answers that a query waits for.
    missing: BTreeMap<u64, usize>,
    samples_us: Vec<f64>,
}

impl Aggregator {
    pub fn new(
        flow: u32,
        servers: Vec<SocketAddr>,
        queries: Vec<Query>,
        sizes: QuerySizes,
        connections: Connections,
    ) -> Self {
        Self {
            flow,
            queries,
            calls: Calls::new(flow, servers, connections, sizes, OF_AGGREGATOR, 0),
            next: 0,
            missing: BTreeMap::new(),
            samples_us: Vec::new(),
        }
    }

    fn schedule_next<I: Io>(&self, io: &mut I) {
        if let Some(query) = self.queries.get(self.next) {
            io.timer(query.at_ns, 0);
        }
    }
}

impl Actor for Aggregator {
    fn begin<I: Io>(&mut self, io: &mut I) {
        self.schedule_next(io);
    }

    fn connected<I: Io>(&mut self, io: &mut I, _: SocketId, key: u64) {
        self.calls.connected(io, key);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        for number in self.calls.readable(io, socket, key) {
            let Some(missing) = self.missing.get_mut(&number) else {
                continue;
            };
            *missing -= 1;
            if *missing > 0 {
                continue;
            }
            self.missing.remove(&number);
            let begin_ns = self.queries[index(number)].at_ns;
            if io.measured(begin_ns) {
                self.samples_us.push((io.now_ns() - begin_ns) as f64 / 1e3);
            }
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, _: SocketId, key: u64) {
        self.calls.writable(io, key);
    }

    fn timer<I: Io>(&mut self, io: &mut I, _: u64) {
        let Some(query) = self.queries.get(self.next) else {
            return;
        };
        let number = self.next as u64;
        self.missing.insert(number, query.servers.len());
        for server in &query.servers {
            self.calls.ask(io, *server as usize, number);
        }
        self.next += 1;
        self.schedule_next(io);
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.next == self.queries.len() && self.missing.is_empty())
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let broken = self.calls.broken(io);
        let begins = self.missing.keys();
        let begins = begins.map(|number| (self.queries[index(*number)].at_ns, number));
        let open = begins.filter(|(begin_ns, _)| io.measured(*begin_ns));
        let open_us = open.map(|(begin_ns, number)| {
            plan::open_us(begin_ns, io.now_ns(), broken.contains(number))
        });
        let open_us: Vec<f64> = open_us.collect();
        report.completions.push(CompletionReport {
            flow: self.flow,
            class: "query".into(),
            begun: (self.samples_us.len() + open_us.len()) as u64,
            open_us,
            samples_us: std::mem::take(&mut self.samples_us),
        });
    }
}

/// Keys of the connections that a server opens; those that it has accepted count from 0.
const OPENED: u64 = 1 << 32;

/// A connection over which a server is asked.
#[derive(Default)]
struct Served {
    socket: Option<SocketId>,
    /// Bytes of the present request.
    received: u64,
    /// Answers not completely written: what the asker calls them, and bytes written.
    answers: VecDeque<(u64, u64)>,
    /// Answers that others are asked for first.
    pending: usize,
    /// Nothing more is asked.
    at_end: bool,
}

/// An aggregator's request, while others are asked.
struct Task {
    served: usize,
    /// The aggregator's number for it.
    call: u64,
    missing: usize,
    begin_ns: u64,
}

/// Answers, and asks the others of its rack if an aggregator asks. Calls are called as their task:
/// its number.
pub struct Server {
    flow: u32,
    port: u16,
    sizes: QuerySizes,
    calls: Calls,
    served: Vec<Served>,
    free: Vec<usize>,
    tasks: BTreeMap<u64, Task>,
    begun: u64,
    samples_us: Vec<f64>,
}

impl Server {
    pub fn new(
        flow: u32,
        port: u16,
        others: Vec<SocketAddr>,
        sizes: QuerySizes,
        connections: Connections,
    ) -> Self {
        Self {
            flow,
            port,
            sizes,
            calls: Calls::new(flow, others, connections, sizes, OF_SERVER, OPENED),
            served: Vec::new(),
            free: Vec::new(),
            tasks: BTreeMap::new(),
            begun: 0,
            samples_us: Vec::new(),
        }
    }

    fn asked<I: Io>(&mut self, io: &mut I, served: usize, request: MessageHeader) {
        let call = request.tag;
        if request.class == OF_SERVER || self.calls.peers() == 0 {
            return self.answer(io, served, call);
        }
        let number = self.begun;
        self.begun += 1;
        self.served[served].pending += 1;
        let task = Task {
            served,
            call,
            missing: self.calls.peers(),
            begin_ns: io.now_ns(),
        };
        self.tasks.insert(number, task);
        for peer in 0..self.calls.peers() {
            self.calls.ask(io, peer, number);
        }
    }

    fn answer<I: Io>(&mut self, io: &mut I, served: usize, call: u64) {
        self.served[served].answers.push_back((call, 0));
        self.write(io, served);
    }

    fn write<I: Io>(&mut self, io: &mut I, index: usize) {
        let served = &mut self.served[index];
        let Some(socket) = served.socket else { return };
        while let Some((call, written)) = served.answers.front_mut() {
            let answer = MessageHeader {
                bytes: self.sizes.answer_bytes,
                tag: *call,
                class: 0,
            };
            *written += io.write_message(socket, &answer, *written..answer.bytes);
            if *written < answer.bytes {
                return;
            }
            served.answers.pop_front();
        }
        if served.at_end && served.pending == 0 {
            served.socket = None;
            self.free.push(index);
            io.release(socket);
        }
    }

    fn read<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let index = index(key);
        let bytes = io.read_messages(socket);
        if self.served[index].socket != Some(socket) {
            return;
        }
        self.served[index].received += bytes;
        while let Some(request) = io.take_message(socket, &mut self.served[index].received) {
            self.asked(io, index, request);
        }
        self.served[index].at_end = io.at_end(socket);
        self.write(io, index);
    }

    /// One of the others has answered.
    fn collected<I: Io>(&mut self, io: &mut I, number: u64) {
        let Some(task) = self.tasks.get_mut(&number) else {
            return;
        };
        task.missing -= 1;
        if io.measured(task.begin_ns) {
            let elapsed_ns = io.now_ns() - task.begin_ns;
            self.samples_us.push(elapsed_ns as f64 / 1e3);
        }
        if task.missing > 0 {
            return;
        }
        if let Some(task) = self.tasks.remove(&number) {
            self.served[task.served].pending -= 1;
            self.answer(io, task.served, task.call);
        }
    }
}

impl Actor for Server {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        io.listen(self.port, 0);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        if self.calls.owns(key) {
            return self.calls.connected(io, key);
        }
        let index = self.free.pop().unwrap_or(self.served.len());
        if index == self.served.len() {
            self.served.push(Served::default());
        }
        self.served[index] = Served {
            socket: Some(socket),
            ..Served::default()
        };
        io.set_key(socket, index as u64);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        if !self.calls.owns(key) {
            return self.read(io, socket, key);
        }
        for number in self.calls.readable(io, socket, key) {
            self.collected(io, number);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        if self.calls.owns(key) {
            self.calls.writable(io, key);
        } else if self.served[index(key)].socket == Some(socket) {
            self.write(io, index(key));
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let broken = self.calls.broken(io);
        let open = self.tasks.iter();
        let open = open.filter(|(_, task)| io.measured(task.begin_ns));
        let open_us = open.flat_map(|(number, task)| {
            let is_broken = broken.contains(number);
            let open_us = plan::open_us(task.begin_ns, io.now_ns(), is_broken);
            std::iter::repeat_n(open_us, task.missing)
        });
        let open_us: Vec<f64> = open_us.collect();
        report.completions.push(CompletionReport {
            flow: self.flow,
            class: "answer".into(),
            begun: (self.samples_us.len() + open_us.len()) as u64,
            open_us,
            samples_us: std::mem::take(&mut self.samples_us),
        });
    }
}
