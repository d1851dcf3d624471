//! Requests to peers, each answered with so many bytes, and the connections that they take.

use std::{collections::VecDeque, net::SocketAddr};

use sluicegate_scenario::workload::plan::{Connections, QuerySizes};

use super::Io;
use crate::{letters::Letter, net::EndId};

/// [`Letter::class`] of requests: from an aggregator, or from a server.
pub const OF_AGGREGATOR: u16 = 0;
pub const OF_SERVER: u16 = 1;

/// A connection to a peer.
struct Line {
    peer: usize,
    end: Option<EndId>,
    established: bool,
    /// Requests not completely written, in order: what they are called here, and bytes written.
    queue: VecDeque<(u64, u64)>,
    /// Written, not answered.
    asked: Vec<u64>,
    /// Bytes of answers that are not complete.
    received: u64,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.asked.is_empty()
    }
}

/// Who asks.
pub struct Calls {
    peers: Vec<SocketAddr>,
    policy: Connections,
    sizes: QuerySizes,
    /// [`Letter::class`] of its requests.
    class: u16,
    /// Added to the number of a line to make its key.
    keys: u64,
    lines: Vec<Line>,
    /// Lines without a connection.
    free: Vec<usize>,
}

impl Calls {
    pub fn new(
        peers: Vec<SocketAddr>,
        policy: Connections,
        sizes: QuerySizes,
        class: u16,
        keys: u64,
    ) -> Self {
        Self {
            peers,
            policy,
            sizes,
            class,
            keys,
            lines: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many there are to be asked.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Whether a key is that of a line.
    pub fn owns(&self, key: u64) -> bool {
        key >= self.keys
    }

    /// Asks a peer; `call` is what its answer will be called.
    pub fn ask(&mut self, io: &mut Io<'_>, peer: usize, call: u64) {
        let index = self.choose(io, peer);
        self.lines[index].queue.push_back((call, 0));
        self.write(io, index);
    }

    /// The line that takes the next request to this peer.
    fn choose(&mut self, io: &mut Io<'_>, peer: usize) -> usize {
        let usable = |line: &Line| match self.policy {
            Connections::One => line.peer == peer,
            Connections::Pool => line.peer == peer && line.is_idle(),
            Connections::PerMessage => false,
        };
        let known = match self.policy {
            Connections::PerMessage => None,
            _ => self.lines.iter().position(usable),
        };
        if let Some(index) = known {
            return index;
        }
        let index = self.free.pop().unwrap_or(self.lines.len());
        let line = Line {
            peer,
            end: Some(io.connect(self.peers[peer], self.keys + index as u64)),
            established: false,
            queue: VecDeque::new(),
            asked: Vec::new(),
            received: 0,
        };
        if index == self.lines.len() {
            self.lines.push(line);
        } else {
            self.lines[index] = line;
        }
        index
    }

    /// A line's connection is established.
    pub fn connected(&mut self, io: &mut Io<'_>, key: u64) {
        let index = (key - self.keys) as usize;
        self.lines[index].established = true;
        self.write(io, index);
    }

    /// A line has room again.
    pub fn writable(&mut self, io: &mut Io<'_>, key: u64) {
        self.write(io, (key - self.keys) as usize);
    }

    fn write(&mut self, io: &mut Io<'_>, index: usize) {
        let line = &mut self.lines[index];
        let Some(end) = line.end.filter(|_| line.established) else {
            return;
        };
        while let Some((call, written)) = line.queue.front_mut() {
            let begins = *written == 0;
            *written += io.net.write(end, self.sizes.request_bytes - *written);
            if begins && *written > 0 {
                let request = Letter {
                    bytes: self.sizes.answer_bytes,
                    begin_ns: *call,
                    class: self.class,
                };
                io.net.post(end, request);
            }
            if *written < self.sizes.request_bytes {
                return;
            }
            line.asked.push(*call);
            line.queue.pop_front();
        }
    }

    /// Something has arrived on a line: the calls that are answered.
    pub fn readable(&mut self, io: &mut Io<'_>, end: EndId, key: u64) -> Vec<u64> {
        let index = (key - self.keys) as usize;
        let mut answered = Vec::new();
        let line = &mut self.lines[index];
        let bytes = io.net.read(end, u64::MAX);
        if line.end != Some(end) {
            return answered; // the end of a connection that is closed
        }
        line.received += bytes;
        while line.received >= self.sizes.answer_bytes {
            let Some(answer) = io.net.letters.take(end) else {
                break;
            };
            line.received -= self.sizes.answer_bytes;
            line.asked.retain(|call| *call != answer.begin_ns);
            answered.push(answer.begin_ns);
        }
        if self.policy == Connections::PerMessage && !answered.is_empty() && line.is_idle() {
            line.end = None;
            self.free.push(index);
            io.net.letters.forget(end);
            io.net.release(end);
        }
        answered
    }

    /// Calls that will never be answered: those on connections that broke.
    pub fn broken<'a>(&'a self, io: &'a Io<'_>) -> impl Iterator<Item = u64> + 'a {
        let broken = |line: &&Line| line.end.is_some_and(|end| io.is_broken(end));
        let lines = self.lines.iter().filter(broken);
        lines.flat_map(|line| {
            let queued = line.queue.iter().map(|(call, _)| *call);
            queued.chain(line.asked.iter().copied())
        })
    }
}
