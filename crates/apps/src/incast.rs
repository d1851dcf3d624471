//! Partition/aggregate: one requester asks many responders at once and waits for all answers.

use std::{mem, net::SocketAddr};

use sluicegate_core::number::index;
use sluicegate_scenario::workload::{
    Report,
    plan::{self, CompletionReport, Span},
};

use crate::{
    Actor, Meter,
    io::{self, Io, SocketId},
    probe::SenderProbe,
};

/// Length of a request. How much is asked for stands in the plan of both.
const REQUEST_BYTES: u64 = 8;

/// A responder as the requester sees it.
struct Answerer {
    flow: u32,
    port: u16,
    socket: Option<SocketId>,
    awaited: u64,
    meter: Meter,
    answers_us: Vec<f64>,
}

/// The requester. Rounds begin when all responders are connected.
pub struct Requester {
    responders: Vec<Answerer>,
    bytes: u64,
    interval_ns: u64,
    span: Span,
    asked_ns: u64,
    open: usize,
    rounds_us: Vec<f64>,
}

impl Requester {
    pub fn new(responders: Vec<(u32, u16)>, bytes: u64, interval_ns: u64, span: Span) -> Self {
        let responders = responders.into_iter().map(|(flow, port)| Answerer {
            flow,
            port,
            socket: None,
            awaited: 0,
            meter: Meter::new(flow),
            answers_us: Vec::new(),
        });
        Self {
            responders: responders.collect(),
            bytes: bytes.max(1),
            interval_ns,
            span,
            asked_ns: 0,
            open: 0,
            rounds_us: Vec::new(),
        }
    }

    fn is_connected(&self) -> bool {
        let mut responders = self.responders.iter();
        responders.all(|responder| responder.socket.is_some())
    }

    /// Times in µs of answers that have been asked for in measured time and are not complete.
    fn open_us<I: Io>(&self, io: &I, responder: &Answerer) -> Option<f64> {
        let open = responder.awaited > 0 && io.measured(self.asked_ns);
        let broken = responder
            .socket
            .is_some_and(|socket| io::is_lost(io, socket));
        open.then(|| plan::open_us(self.asked_ns, io.now_ns(), broken))
    }

    fn ask_all<I: Io>(&mut self, io: &mut I) {
        self.asked_ns = io.now_ns();
        if self.asked_ns >= self.span.end_ns {
            return;
        }
        self.open = self.responders.len();
        for responder in &mut self.responders {
            responder.awaited = self.bytes;
            if let Some(socket) = responder.socket {
                io::write_whole(io, socket, REQUEST_BYTES, responder.flow);
            }
        }
    }

    fn answered<I: Io>(&mut self, io: &mut I, index: usize) {
        let now = io.now_ns();
        let elapsed_us = (now - self.asked_ns) as f64 / 1e3;
        let measured = io.measured(self.asked_ns);
        if measured {
            self.responders[index].answers_us.push(elapsed_us);
        }
        self.open -= 1;
        if self.open > 0 {
            return;
        }
        if measured {
            self.rounds_us.push(elapsed_us);
        }
        match self.interval_ns {
            0 => self.ask_all(io),
            pause => io.timer(now + pause, 0),
        }
    }
}

impl Actor for Requester {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        for (index, responder) in self.responders.iter().enumerate() {
            io.listen(responder.port, index as u64);
        }
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        self.responders[index(key)].socket = Some(socket);
        if self.is_connected() {
            io.timer(self.span.begin_ns, 0);
        }
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let responder = &mut self.responders[index(key)];
        let bytes = io.read(socket, responder.awaited);
        responder.meter.count(io.plan(), io.now_ns(), bytes);
        responder.awaited -= bytes;
        if bytes > 0 && responder.awaited == 0 {
            return self.answered(io, index(key));
        }
        io::ended(io, socket, responder.flow);
    }

    fn timer<I: Io>(&mut self, io: &mut I, _: u64) {
        self.ask_all(io);
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        let open = self.responders.iter();
        let open_us: Vec<_> = open.map(|open| self.open_us(io, open)).collect();
        // A round takes as long as its longest answer.
        let longest_us = open_us.iter().flatten().copied().reduce(f64::max);
        let first = self.responders.first();
        report.completions.push(CompletionReport {
            flow: first.map_or(0, |responder| responder.flow),
            class: "round".into(),
            begun: self.rounds_us.len() as u64 + u64::from(longest_us.is_some()),
            samples_us: mem::take(&mut self.rounds_us),
            open_us: Vec::from_iter(longest_us),
        });
        if !self.is_connected() {
            io.note("incast never began: not all responders connected".to_owned());
        }
        for (mut responder, open_us) in self.responders.drain(..).zip(open_us) {
            report.completions.push(CompletionReport {
                flow: responder.flow,
                class: "answer".into(),
                begun: responder.answers_us.len() as u64 + u64::from(open_us.is_some()),
                samples_us: responder.answers_us,
                open_us: Vec::from_iter(open_us),
            });
            report.receivers.push(responder.meter.finish(io.plan()));
        }
    }
}

const CONNECT: u64 = 0;
const SAMPLE: u64 = 1;

/// Answers requests one after the other.
pub struct Responder {
    peer: SocketAddr,
    /// Of an answer.
    bytes: u64,
    span: Span,
    gathered: u64,
    unsent: u64,
    probe: SenderProbe,
}

impl Responder {
    pub fn new(flow: u32, peer: SocketAddr, bytes: u64, span: Span) -> Self {
        Self {
            peer,
            bytes: bytes.max(1),
            span,
            gathered: 0,
            unsent: 0,
            probe: SenderProbe::new(flow),
        }
    }

    fn write<I: Io>(&mut self, io: &mut I, socket: SocketId) {
        if self.unsent > 0 {
            self.unsent -= io.write(socket, self.unsent);
        }
    }
}

impl Actor for Responder {
    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.probe.attach(io, socket, SAMPLE);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.gathered += io.read(socket, u64::MAX);
        while self.gathered >= REQUEST_BYTES {
            self.gathered -= REQUEST_BYTES;
            self.unsent += self.bytes;
        }
        self.write(io, socket);
        if io.at_end(socket) {
            io.close(socket);
        }
    }

    fn writable<I: Io>(&mut self, io: &mut I, socket: SocketId, _: u64) {
        self.write(io, socket);
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        match key {
            CONNECT => drop(io.connect(self.peer, 0)),
            _ => self.probe.sample(io, SAMPLE),
        }
    }

    fn finish<I: Io>(&mut self, io: &mut I, report: &mut Report) {
        report.senders.extend(self.probe.finish(io));
    }
}
