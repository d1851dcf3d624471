//! Partition/aggregate: one requester asks many responders at once and waits for all answers.

use std::{mem, net::SocketAddr};

use sluicegate_scenario::workload::{
    Meter, Report,
    plan::{self, CompletionReport, Span},
};

use super::{Actor, Io, probe::SenderProbe};
use crate::{letters::Letter, net::EndId};

/// Length of a request: the size of the wanted answer.
const REQUEST_BYTES: u64 = 8;

struct Answerer {
    flow: u32,
    port: u16,
    end: Option<EndId>,
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
            end: None,
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

    /// Times in µs of answers that have been asked for in measured time and are not complete.
    fn open_us(&self, io: &Io<'_>, responder: &Answerer) -> Option<f64> {
        let open = responder.awaited > 0 && io.measured(self.asked_ns);
        let broken = responder.end.is_some_and(|end| io.is_broken(end));
        open.then(|| plan::open_us(self.asked_ns, io.now_ns(), broken))
    }

    fn ask_all(&mut self, io: &mut Io<'_>) {
        self.asked_ns = io.now_ns();
        if self.asked_ns >= self.span.end_ns {
            return;
        }
        self.open = self.responders.len();
        for responder in &mut self.responders {
            responder.awaited = self.bytes;
            if let Some(end) = responder.end {
                let request = Letter {
                    bytes: self.bytes,
                    ..Letter::default()
                };
                io.net.post(end, request);
                io.net.write(end, REQUEST_BYTES);
            }
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, index: usize) {
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
            pause => io.alarm(now + pause, 0),
        }
    }
}

impl Actor for Requester {
    fn begin(&mut self, io: &mut Io<'_>) {
        for (index, responder) in self.responders.iter().enumerate() {
            io.listen(responder.port, index as u64);
        }
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        self.responders[key as usize].end = Some(end);
        if self
            .responders
            .iter()
            .all(|responder| responder.end.is_some())
        {
            io.alarm(self.span.begin_ns, 0);
        }
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) {
        let responder = &mut self.responders[key as usize];
        let bytes = io.net.read(end, responder.awaited);
        responder.meter.count(io.plan, io.now_ns(), bytes);
        responder.awaited -= bytes;
        if bytes > 0 && responder.awaited == 0 {
            self.answered(io, key as usize);
        }
    }

    fn alarm(&mut self, io: &mut Io<'_>, _: u64) {
        self.ask_all(io);
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let open = self.responders.iter();
        let open_us: Vec<_> = open.map(|open| self.open_us(io, open)).collect();
        // A round takes as long as its longest answer.
        let longest_us = open_us.iter().flatten().copied().reduce(f64::max);
        report.completions.push(CompletionReport {
            flow: self
                .responders
                .first()
                .map_or(0, |responder| responder.flow),
            class: "round".into(),
            samples_us: mem::take(&mut self.rounds_us),
            open_us: Vec::from_iter(longest_us),
        });
        for (responder, open_us) in self.responders.drain(..).zip(open_us) {
            report.completions.push(CompletionReport {
                flow: responder.flow,
                class: "answer".into(),
                samples_us: responder.answers_us,
                open_us: Vec::from_iter(open_us),
            });
            report.receivers.push(responder.meter.finish(io.plan));
        }
    }
}

const CONNECT: u64 = 0;
const SAMPLE: u64 = 1;

/// Answers requests one after the other.
pub struct Responder {
    peer: SocketAddr,
    span: Span,
    gathered: u64,
    unsent: u64,
    probe: Option<SenderProbe>,
}

impl Responder {
    pub fn new(flow: u32, peer: SocketAddr, span: Span) -> Self {
        Self {
            peer,
            span,
            gathered: 0,
            unsent: 0,
            probe: Some(SenderProbe::new(flow)),
        }
    }

    fn write(&mut self, io: &mut Io<'_>, end: EndId) {
        if self.unsent > 0 {
            self.unsent -= io.net.write(end, self.unsent);
        }
    }
}

impl Actor for Responder {
    fn begin(&mut self, io: &mut Io<'_>) {
        io.alarm(self.span.begin_ns, CONNECT);
    }

    fn connected(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        if let Some(probe) = &mut self.probe {
            let next = probe.attach(io, end);
            io.alarm(next, SAMPLE);
        }
    }

    fn readable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.gathered += io.net.read(end, u64::MAX);
        while self.gathered >= REQUEST_BYTES {
            self.gathered -= REQUEST_BYTES;
            self.unsent += io.net.letters.take(end).map_or(0, |request| request.bytes);
        }
        self.write(io, end);
    }

    fn writable(&mut self, io: &mut Io<'_>, end: EndId, _: u64) {
        self.write(io, end);
    }

    fn alarm(&mut self, io: &mut Io<'_>, key: u64) {
        if key == CONNECT {
            io.connect(self.peer, 0);
        } else if let Some(probe) = &mut self.probe {
            let next = probe.sample(io);
            io.alarm(next, SAMPLE);
        }
    }

    fn finish(&mut self, io: &mut Io<'_>, report: &mut Report) {
        let probe = self.probe.take();
        report
            .senders
            .extend(probe.and_then(|probe| probe.finish(io)));
    }
}
