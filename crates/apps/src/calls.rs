//! Requests to peers, each answered with so many bytes, and the connections that they take.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    net::SocketAddr,
};

use sluicegate_core::number::index;
use sluicegate_scenario::workload::plan::{Connections, QuerySizes};

use crate::io::{self, Io, MessageHeader, SocketId};

/// [`MessageHeader::class`] of requests: from an aggregator, or from a server.
pub const OF_AGGREGATOR: u16 = 0;
pub const OF_SERVER: u16 = 1;

/// A connection to a peer.
struct Line {
    peer: usize,
    socket: Option<SocketId>,
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

/// The client of calls.
pub struct Calls {
    flow: u32,
    peers: Vec<SocketAddr>,
    policy: Connections,
    sizes: QuerySizes,
    /// [`MessageHeader::class`] of its requests.
    class: u16,
    /// Added to the number of a line to make its key.
    keys: u64,
    lines: Vec<Line>,
    /// Lines without a connection.
    free: Vec<usize>,
}

impl Calls {
    pub fn new(
        flow: u32,
        peers: Vec<SocketAddr>,
        policy: Connections,
        sizes: QuerySizes,
        class: u16,
        keys: u64,
    ) -> Self {
        Self {
            flow,
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
    pub fn ask<I: Io>(&mut self, io: &mut I, peer: usize, call: u64) {
        let index = self.choose(io, peer);
        self.lines[index].queue.push_back((call, 0));
        self.write(io, index);
    }

    /// The line that takes the next request to this peer.
    fn choose<I: Io>(&mut self, io: &mut I, peer: usize) -> usize {
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
        // A free line is idle: its queues are empty, and keep their memory.
        let (queue, asked) = match self.lines.get_mut(index) {
            Some(line) => (mem::take(&mut line.queue), mem::take(&mut line.asked)),
            None => Default::default(),
        };
        let line = Line {
            peer,
            socket: Some(io.connect(self.peers[peer], self.keys + index as u64)),
            established: false,
            queue,
            asked,
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
    pub fn connected<I: Io>(&mut self, io: &mut I, key: u64) {
        let index = index(key - self.keys);
        self.lines[index].established = true;
        self.write(io, index);
    }

    /// A line has room again.
    pub fn writable<I: Io>(&mut self, io: &mut I, key: u64) {
        self.write(io, index(key - self.keys));
    }

    fn write<I: Io>(&mut self, io: &mut I, index: usize) {
        let line = &mut self.lines[index];
        let Some(socket) = line.socket.filter(|_| line.established) else {
            return;
        };
        while let Some((call, written)) = line.queue.front_mut() {
            let request = MessageHeader {
                bytes: self.sizes.request_bytes,
                tag: *call,
                class: self.class,
            };
            *written += io.write_message(socket, &request, *written..request.bytes);
            if *written < request.bytes {
                return;
            }
            line.asked.push(*call);
            line.queue.pop_front();
        }
    }

    /// Something has arrived on a line: the calls that are answered.
    pub fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) -> Vec<u64> {
        let index = index(key - self.keys);
        let mut answered = Vec::new();
        let line = &mut self.lines[index];
        let bytes = io.read_messages(socket);
        if line.socket != Some(socket) {
            return answered; // the end of a connection that is closed
        }
        line.received += bytes;
        while let Some(answer) = io.take_message(socket, &mut line.received) {
            line.asked.retain(|call| *call != answer.tag);
            answered.push(answer.tag);
        }
        if self.policy == Connections::PerMessage && !answered.is_empty() && line.is_idle() {
            line.socket = None;
            self.free.push(index);
            io.release(socket);
        } else if bytes == 0 {
            io::ended(io, socket, self.flow);
        }
        answered
    }

    /// Calls that will never be answered: those on connections that broke.
    pub fn broken<I: Io>(&self, io: &I) -> BTreeSet<u64> {
        let broken = |line: &&Line| line.socket.is_some_and(|socket| io::is_lost(io, socket));
        let lines = self.lines.iter().filter(broken);
        let calls = lines.flat_map(|line| {
            let queued = line.queue.iter().map(|(call, _)| *call);
            queued.chain(line.asked.iter().copied())
        });
        calls.collect()
    }
}
