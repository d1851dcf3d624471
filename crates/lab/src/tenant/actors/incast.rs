//! Partition/aggregate: one requester asks many responders at once and waits for all answers.

use std::{mem, net::SocketAddr};

use sluicegate_scenario::workload::Meter;

use super::probe::SenderProbe;
use crate::tenant::{
    engine::Actor,
    io::{Io, Received, SocketId},
    plan::{self, CompletionReport, Report, Span},
};

/// A request is the size of the wanted answer in bytes, big endian.
const REQUEST_BYTES: usize = 8;

const ROUND: u64 = 0;

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
        let responders = responders.collect();
        Self {
            responders,
            bytes: bytes.max(1),
            interval_ns,
            span,
            asked_ns: 0,
            open: 0,
            rounds_us: Vec::new(),
        }
    }

    /// Times in µs of answers that have been asked for in measured time and are not complete.
    fn open_us(&self, io: &Io, responder: &Answerer) -> Option<f64> {
        let open = responder.awaited > 0 && io.measured(self.asked_ns);
        let broken = responder.socket.is_some_and(|id| io.fd(id).is_none());
        open.then(|| plan::open_us(self.asked_ns, io.now_ns(), broken))
    }

    fn ask_all(&mut self, io: &mut Io) {
        self.asked_ns = io.now_ns();
        if self.asked_ns >= self.span.end_ns {
            return;
        }
        self.open = self.responders.len();
        let request = self.bytes.to_be_bytes();
        for responder in &mut self.responders {
            responder.awaited = self.bytes;
            let Some(socket) = responder.socket else {
                continue;
            };
            if io.send(socket, &request) != REQUEST_BYTES {
                io.error(format!(
                    "flow {}: a request of {REQUEST_BYTES} bytes did not fit",
                    responder.flow
                ));
            }
        }
    }

    fn answered(&mut self, io: &mut Io, index: usize) {
        let now = io.now_ns();
        let elapsed_us = now.saturating_sub(self.asked_ns) as f64 / 1e3;
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
            pause => io.timer(now + pause, ROUND),
        }
    }
}

impl Actor for Requester {
    fn prepare(&mut self, io: &mut Io) -> anyhow::Result<()> {
        let mut listeners = self.responders.iter().enumerate();
        listeners.try_for_each(|(index, responder)| io.listen(responder.port, index as u64))
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, key: u64) {
        self.responders[key as usize].socket = Some(socket);
        if self
            .responders
            .iter()
            .all(|responder| responder.socket.is_some())
        {
            io.timer(self.span.begin_ns, ROUND);
        }
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, key: u64) {
        let responder = &mut self.responders[key as usize];
        match io.receive_payload(socket, responder.meter.position(), responder.awaited.max(1)) {
            Received::Bytes(count) if count as u64 <= responder.awaited => {
                responder.meter.count(io.plan(), io.now_ns(), count as u64);
                responder.awaited -= count as u64;
                if responder.awaited == 0 {
                    self.answered(io, key as usize);
                }
            }
            Received::Bytes(_) => io.error(format!(
                "flow {}: an answer that nobody asked for",
                responder.flow
            )),
            Received::Empty => {}
            Received::End => {
                io.error(format!(
                    "flow {}: the responder closed the connection",
                    responder.flow
                ));
                io.close(socket);
            }
        }
    }

    fn timer(&mut self, io: &mut Io, _: u64) {
        self.ask_all(io);
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        let first = self
            .responders
            .first()
            .map_or(0, |responder| responder.flow);
        let open = self.responders.iter();
        let open_us: Vec<_> = open.map(|open| self.open_us(io, open)).collect();
        let samples_us = mem::take(&mut self.rounds_us);
        report.completions.push(CompletionReport {
            flow: first,
            class: "round".into(),
            samples_us,
            // A round takes as long as its longest answer.
            open_us: Vec::from_iter(open_us.iter().flatten().copied().reduce(f64::max)),
        });
        if self
            .responders
            .iter()
            .any(|responder| responder.socket.is_none())
        {
            io.error(format!(
                "flow {first}: incast never began, not all responders connected"
            ));
        }
        for (responder, open_us) in self.responders.drain(..).zip(open_us) {
            let (flow, samples_us) = (responder.flow, responder.answers_us);
            report.completions.push(CompletionReport {
                flow,
                class: "answer".into(),
                samples_us,
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
    span: Span,
    request: [u8; REQUEST_BYTES],
    filled: usize,
    unsent: u64,
    sent_bytes: u64,
    probe: Option<SenderProbe>,
}

impl Responder {
    pub fn new(flow: u32, peer: SocketAddr, span: Span) -> Self {
        let probe = Some(SenderProbe::new(flow));
        Self {
            peer,
            span,
            request: [0; REQUEST_BYTES],
            filled: 0,
            unsent: 0,
            sent_bytes: 0,
            probe,
        }
    }

    fn write(&mut self, io: &mut Io, socket: SocketId) {
        let count = io.send_pattern(socket, self.sent_bytes, self.unsent) as u64;
        self.sent_bytes += count;
        self.unsent -= count;
        io.want_write(socket, self.unsent > 0);
    }
}

impl Actor for Responder {
    fn begin(&mut self, io: &mut Io) {
        io.timer(self.span.begin_ns, CONNECT);
    }

    fn connected(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        if let Some(probe) = &mut self.probe {
            let next = probe.attach(io, socket);
            io.timer(next, SAMPLE);
        }
    }

    fn readable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        match io.receive(socket, &mut self.request[self.filled..]) {
            Received::Bytes(count) => self.filled += count,
            Received::Empty => return,
            Received::End => return io.close(socket),
        }
        if self.filled == REQUEST_BYTES {
            self.filled = 0;
            self.unsent += u64::from_be_bytes(self.request);
            self.write(io, socket);
        }
    }

    fn writable(&mut self, io: &mut Io, socket: SocketId, _: u64) {
        self.write(io, socket);
    }

    fn timer(&mut self, io: &mut Io, key: u64) {
        if key == CONNECT {
            io.connect(self.peer, 0);
        } else if let Some(probe) = &mut self.probe {
            let next = probe.sample(io);
            io.timer(next, SAMPLE);
        }
    }

    fn finish(&mut self, io: &mut Io, report: &mut Report) {
        report
            .senders
            .extend(self.probe.take().and_then(|probe| probe.finish(io)));
    }
}
