//! Queries over a hierarchy (the zOVN thesis, section 2.5.5.1): an aggregator asks one server of each rack, which asks
//! all others of its rack, collects their answers, and answers then.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
};

use sluicegate_scenario::workload::{
    Report,
    plan::{self, CompletionReport, Connections, Query, QuerySizes},
};

use super::{
    Actor, Io,
    calls::{Calls, OF_AGGREGATOR, OF_SERVER},
};
use crate::{letters::Letter, net::EndId};

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
            calls: Calls::new(servers, connections, sizes, OF_AGGREGATOR, 0),
            next: 0,
            missing: BTreeMap::new(),
            samples_us: Vec::new(),
        }
    }

    fn schedule_next(&self, io: &mut Io<'_>) {
        if let Some(query) = self.queries.get(self.next) {
            io.alarm(query.at_ns, 0);
        }
    }
}

impl Actor for Aggregator {
    fn begin(&mut self, io: &mut Io<'_>) {
        self.schedule_next(io);
    }

    fn connected(&mut self, io: &mut Io<'_>, _: EndId, key: u64) {
        self.calls.connected(io, key);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        for number in self.calls.readable(io, end, key) {
            let Some(missing) = self.missing.get_mut(&number) else {
                continue;
            };
            *missing -= 1;
            if *missing > 0 {
                continue;
            }
            self.missing.remove(&number);
            let begin_ns = self.queries[number as usize].at_ns;
            if io.measured(begin_ns) {
                self.samples_us.push((io.now_ns() - begin_ns) as f64 / 1e3);
            }
        }
    }

    fn writable(&mut self, io: &mut Io<'_>, _: EndId, key: u64) {
        self.calls.writable(io, key);
    }

    fn alarm(&mut self, io: &mut Io<'_>, _: u64) {
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

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let broken: BTreeSet<u64> = self.calls.broken(io).collect();
        let begins = self.missing.keys();
        let begins = begins.map(|number| (self.queries[*number as usize].at_ns, number));
        let open = begins.filter(|(begin_ns, _)| io.measured(*begin_ns));
        let open_us = open.map(|(begin_ns, number)| {
            plan::open_us(begin_ns, io.now_ns(), broken.contains(number))
        });
        report.completions.push(CompletionReport {
            flow: self.flow,
            class: "query".into(),
            open_us: open_us.collect(),
            samples_us: std::mem::take(&mut self.samples_us),
        });
    }
}

/// Keys of the connections that a server opens; those that it has accepted count from 0.
const OPENED: u64 = 1 << 32;

/// A connection over which a server is asked.
#[derive(Default)]
struct Served {
    end: Option<EndId>,
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
    /// What the aggregator calls it.
    call: u64,
    missing: usize,
    begin_ns: u64,
}

/// Answers, and asks the others of its rack if an aggregator asks. Calls are called as their task: its number.
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
            calls: Calls::new(others, connections, sizes, OF_SERVER, OPENED),
            served: Vec::new(),
            free: Vec::new(),
            tasks: BTreeMap::new(),
            begun: 0,
            samples_us: Vec::new(),
        }
    }

    fn asked(&mut self, io: &mut Io<'_>, served: usize, request: Letter) {
        let call = request.begin_ns;
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

    fn answer(&mut self, io: &mut Io<'_>, served: usize, call: u64) {
        self.served[served].answers.push_back((call, 0));
        self.write(io, served);
    }

    fn write(&mut self, io: &mut Io<'_>, index: usize) {
        let served = &mut self.served[index];
        let Some(end) = served.end else { return };
        while let Some((call, written)) = served.answers.front_mut() {
            let begins = *written == 0;
            *written += io.net.write(end, self.sizes.answer_bytes - *written);
            if begins && *written > 0 {
                let answer = Letter {
                    bytes: self.sizes.answer_bytes,
                    begin_ns: *call,
                    class: 0,
                };
                io.net.post(end, answer);
            }
            if *written < self.sizes.answer_bytes {
                return;
            }
            served.answers.pop_front();
        }
        if served.at_end && served.pending == 0 {
            served.end = None;
            self.free.push(index);
            io.net.letters.forget(end);
            io.net.release(end);
        }
    }

    fn read(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let index = key as usize;
        let bytes = io.net.read(end, u64::MAX);
        if self.served[index].end != Some(end) {
            return;
        }
        self.served[index].received += bytes;
        while self.served[index].received >= self.sizes.request_bytes {
            let Some(request) = io.net.letters.take(end) else {
                break;
            };
            self.served[index].received -= self.sizes.request_bytes;
            self.asked(io, index, request);
        }
        let tcp = io.net.ends[end as usize].tcp.as_ref();
        self.served[index].at_end = tcp.is_some_and(|tcp| tcp.at_end());
        self.write(io, index);
    }

    /// One of the others has answered.
    fn collected(&mut self, io: &mut Io<'_>, number: u64) {
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
    fn begin(&mut self, io: &mut Io<'_>) {
        io.listen(self.port, 0);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        if self.calls.owns(key) {
            return self.calls.connected(io, key);
        }
        let index = self.free.pop().unwrap_or(self.served.len());
        if index == self.served.len() {
            self.served.push(Served::default());
        }
        self.served[index] = Served {
            end: Some(end),
            ..Served::default()
        };
        io.set_key(end, index as u64);
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        if !self.calls.owns(key) {
            return self.read(io, end, key);
        }
        for number in self.calls.readable(io, end, key) {
            self.collected(io, number);
        }
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        if self.calls.owns(key) {
            self.calls.writable(io, key);
        } else if self.served[key as usize].end == Some(end) {
            self.write(io, key as usize);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let broken: BTreeSet<u64> = self.calls.broken(io).collect();
        let open = self.tasks.iter();
        let open = open.filter(|(_, task)| io.measured(task.begin_ns));
        let open_us = open.flat_map(|(number, task)| {
            let is_broken = broken.contains(number);
            let open_us = plan::open_us(task.begin_ns, io.now_ns(), is_broken);
            std::iter::repeat_n(open_us, task.missing)
        });
        report.completions.push(CompletionReport {
            flow: self.flow,
            class: "answer".into(),
            open_us: open_us.collect(),
            samples_us: std::mem::take(&mut self.samples_us),
        });
    }
}
