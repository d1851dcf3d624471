//! What a role may do: sockets, bytes, timers, errors.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::IoSlice,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use anyhow::Context;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown},
};

use sluicegate_scenario::workload::Errors;

use super::{clock::Clock, pattern::Pattern, plan::Plan, socket};

/// Bytes that one read takes at most.
const READ_BYTES: usize = 1 << 20;

/// Handle of a socket; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub(super) u64);

/// Life of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Listening,
    Connecting(SocketAddr),
    Open,
}

/// A socket and whose it is.
#[derive(Debug)]
pub(super) struct Socket {
    id: SocketId,
    pub(super) fd: OwnedFd,
    pub(super) actor: usize,
    pub(super) key: u64,
    pub(super) state: State,
    pub(super) want_write: bool,
    opened_ns: u64,
    pub(super) refusal: Option<Errno>,
}

/// A due time and what to do then, ordered by time, then by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at_ns: u64,
    sequence: u64,
    pub(super) actor: usize,
    pub(super) what: Due,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Actor(u64),
    Retry {
        socket: SocketId,
        key: u64,
        peer: SocketAddr,
    },
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, ≥ 1.
    Bytes(usize),
    /// Nothing now.
    Empty,
    /// The peer closed its direction, or the connection broke (noted).
    End,
}

/// What an actor may do.
pub struct Io {
    pub(super) epoll: OwnedFd,
    pub(super) clock: Clock,
    pub(super) plan: Rc<Plan>,
    pattern: Rc<Pattern>,
    sockets: Vec<Option<Socket>>,
    opened: u32,
    pub(super) timers: BinaryHeap<Reverse<Timer>>,
    sequence: u64,
    pub(super) current: usize,
    scratch: Vec<u8>,
    pub(super) errors: Errors,
}

impl Io {
    pub(super) fn new(plan: Rc<Plan>, pattern: Rc<Pattern>) -> anyhow::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .context("cannot create an epoll instance")?,
            clock: Clock::starting_at(u64::MAX),
            plan,
            pattern,
            sockets: Vec::new(),
            opened: 0,
            timers: BinaryHeap::new(),
            sequence: 0,
            current: 0,
            scratch: vec![0; READ_BYTES],
            errors: Errors::default(),
        })
    }

    /// ns after the start of the run.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether something begun at this time counts.
    pub fn measured(&self, at_ns: u64) -> bool {
        self.plan.measures(at_ns)
    }

    /// Notes what went wrong; ends up in the report.
    pub fn error(&mut self, text: String) {
        self.errors.note(text);
    }

    /// Calls [`Actor::timer`] at this time.
    pub fn timer(&mut self, at_ns: u64, key: u64) {
        self.push_timer(at_ns, self.current, Due::Actor(key));
    }

    pub(super) fn push_timer(&mut self, at_ns: u64, actor: usize, what: Due) {
        self.sequence += 1;
        self.timers.push(Reverse(Timer {
            at_ns,
            sequence: self.sequence,
            actor,
            what,
        }));
    }

    /// Listens; connections appear with [`Actor::connected`] and this key.
    pub fn listen(&mut self, port: u16, key: u64) -> anyhow::Result<()> {
        let fd = socket::listen(self.plan.address, port, &self.plan.congestion_control)?;
        let id = self.add(fd, self.current, key, State::Listening)?;
        self.watch(id, EventFlags::IN)
    }

    /// Connects, again and again until the peer listens or the run ends.
    pub fn connect(&mut self, peer: SocketAddr, key: u64) -> Option<SocketId> {
        let opened = socket::connect(peer, &self.plan.congestion_control)
            .and_then(|fd| self.add(fd, self.current, key, State::Connecting(peer)))
            .and_then(|id| self.watch(id, EventFlags::OUT).map(|()| id));
        opened
            .inspect_err(|error| self.error(format!("{error:#}")))
            .ok()
    }

    pub(super) fn add(
        &mut self,
        fd: OwnedFd,
        actor: usize,
        key: u64,
        state: State,
    ) -> anyhow::Result<SocketId> {
        let slot = self
            .sockets
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.sockets.len());
        self.opened += 1;
        let id = SocketId((u64::from(self.opened) << 32) | slot as u64);
        let data = EventData::new_u64(id.0);
        epoll::add(&self.epoll, &fd, data, EventFlags::empty()).context("cannot watch a socket")?;
        let opened_ns = self.now_ns();
        let socket = Socket {
            id,
            fd,
            actor,
            key,
            state,
            want_write: false,
            opened_ns,
            refusal: None,
        };
        if slot == self.sockets.len() {
            self.sockets.push(Some(socket));
        } else {
            self.sockets[slot] = Some(socket);
        }
        Ok(id)
    }

    pub(super) fn watch(&mut self, id: SocketId, flags: EventFlags) -> anyhow::Result<()> {
        let Some(socket) = self.get(id) else {
            return Ok(());
        };
        epoll::modify(&self.epoll, &socket.fd, EventData::new_u64(id.0), flags)
            .context("cannot watch a socket")
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.sockets
            .get(id.0 as u32 as usize)?
            .as_ref()
            .filter(|socket| socket.id == id)
    }

    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets
            .get_mut(id.0 as u32 as usize)?
            .as_mut()
            .filter(|socket| socket.id == id)
    }

    /// The descriptor, while the socket is open.
    pub fn fd(&self, id: SocketId) -> Option<BorrowedFd<'_>> {
        self.get(id).map(|socket| socket.fd.as_fd())
    }

    /// Gives an accepted connection a key of its own.
    pub fn set_key(&mut self, id: SocketId, key: u64) {
        if let Some(socket) = self.get_mut(id) {
            socket.key = key;
        }
    }

    /// Whether [`Actor::writable`] is called while there is room.
    pub fn want_write(&mut self, id: SocketId, want: bool) {
        let Some(socket) = self.get_mut(id) else {
            return;
        };
        if socket.want_write == want {
            return;
        }
        socket.want_write = want;
        let flags = if want {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        if let Err(error) = self.watch(id, flags) {
            self.error(format!("{error:#}"));
        }
    }

    /// Closes; a no-op on a closed socket.
    pub fn close(&mut self, id: SocketId) {
        if self.get(id).is_some() {
            self.sockets[id.0 as u32 as usize] = None;
        }
    }

    /// Ends our direction of the stream.
    pub fn shutdown(&mut self, id: SocketId) {
        if let Some(socket) = self.get(id) {
            let _ = net::shutdown(&socket.fd, Shutdown::Write); // a broken connection is noted when read
        }
    }

    /// Writes what fits of `data`; 0 when nothing fits or the connection is broken (noted, closed).
    pub fn send(&mut self, id: SocketId, data: &[u8]) -> usize {
        let Some(socket) = self.get(id) else { return 0 };
        let sent = net::send(&socket.fd, data, SendFlags::NOSIGNAL);
        self.sent(id, sent)
    }

    fn sent(&mut self, id: SocketId, result: rustix::io::Result<usize>) -> usize {
        match result {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => {
                self.broken(id, "send", error);
                0
            }
        }
    }

    /// Writes the pattern from stream offset `position`, at most `length` bytes.
    pub fn send_pattern(&mut self, id: SocketId, position: u64, length: u64) -> usize {
        let pattern = Rc::clone(&self.pattern);
        self.send(id, pattern.at(position, length))
    }

    /// Writes a frame (header, then pattern) from offset `written` of its `bytes`, in one segment if it is small.
    pub fn send_frame(&mut self, id: SocketId, header: &[u8], written: u64, bytes: u64) -> usize {
        let skipped = written.min(header.len() as u64);
        let position = written - skipped;
        let rest = bytes.saturating_sub(written.max(header.len() as u64));
        let pattern = Rc::clone(&self.pattern);
        let parts = [
            IoSlice::new(&header[skipped as usize..]),
            IoSlice::new(pattern.at(position, rest)),
        ];
        let Some(socket) = self.get(id) else { return 0 };
        let sent = net::sendmsg(
            &socket.fd,
            &parts,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        );
        self.sent(id, sent)
    }

    /// Reads into `buffer`.
    pub fn receive(&mut self, id: SocketId, buffer: &mut [u8]) -> Received {
        let result = match self.get(id) {
            Some(socket) => {
                net::recv(&socket.fd, buffer, RecvFlags::empty()).map(|(count, _)| count)
            }
            None => return Received::End,
        };
        self.received(id, result)
    }

    /// Takes at most `length` bytes of payload at stream offset `position`: compares them with the pattern
    /// when the plan says so, else lets the kernel discard them without copying (tcp(7), MSG_TRUNC).
    pub fn receive_payload(&mut self, id: SocketId, position: u64, length: u64) -> Received {
        let mut scratch = std::mem::take(&mut self.scratch);
        let window = &mut scratch[..length.min(READ_BYTES as u64) as usize];
        let flags = if self.plan.verify {
            RecvFlags::empty()
        } else {
            RecvFlags::TRUNC
        };
        let result = match self.get(id) {
            Some(socket) => net::recv(&socket.fd, &mut *window, flags).map(|(_, length)| length),
            None => Ok(0),
        };
        let compared = result
            .ok()
            .filter(|_| self.plan.verify)
            .map(|count| &window[..count]);
        if let Some(at) = compared.and_then(|data| self.pattern.mismatch(position, data)) {
            let offset = position + at as u64;
            self.error(format!(
                "payload differs from what was sent at offset {offset}"
            ));
        }
        self.scratch = scratch;
        self.received(id, result)
    }

    fn received(&mut self, id: SocketId, result: rustix::io::Result<usize>) -> Received {
        match result {
            Ok(0) => Received::End,
            Ok(count) => Received::Bytes(count),
            Err(Errno::AGAIN | Errno::INTR) => Received::Empty,
            Err(error) => {
                self.broken(id, "receive", error);
                Received::End
            }
        }
    }

    /// Closes and notes a broken connection, unless the run is over anyway.
    fn broken(&mut self, id: SocketId, what: &str, error: Errno) {
        let now_ns = self.now_ns();
        self.errors.broken(&self.plan, now_ns, what, error);
        self.close(id);
    }

    /// Connections that never came about: refused to the last, or waiting for longer than a lost SYN explains.
    pub(super) fn note_unconnected(&mut self) {
        let now = self.now_ns();
        for socket in self.sockets.iter().flatten() {
            let State::Connecting(peer) = socket.state else {
                continue;
            };
            match socket.refusal {
                Some(error) => self.errors.refused(peer, error),
                None => self.errors.unanswered(peer, socket.opened_ns, now),
            }
        }
    }
}
