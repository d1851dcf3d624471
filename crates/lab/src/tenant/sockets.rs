//! The kernel's sockets and time, as the roles of a tenant see them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    io::IoSlice,
    mem,
    net::SocketAddr,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use anyhow::Context;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown},
};
use sluicegate_apps::{Datagram, HEADER_BYTES, Io, MessageHeader, Seized, SenderState, SocketId};
use sluicegate_scenario::workload::{Errors, Plan, plan::SenderReport};

use super::{
    clock::Clock,
    frame::{self, Incoming},
    pattern::Pattern,
    raw::{self, RawConnection},
    socket::{self, TcpInfo},
};

/// Bytes that one read takes at most.
const READ_BYTES: usize = 1 << 20;

/// Life of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Listening,
    Connecting(SocketAddr),
    Open,
    /// Sends datagrams to this peer.
    Sending(SocketAddr),
    /// Receives datagrams.
    Receiving,
}

/// A socket, and the role that owns it.
#[derive(Debug)]
pub(super) struct Socket {
    id: SocketId,
    pub(super) fd: OwnedFd,
    pub(super) actor: usize,
    pub(super) key: u64,
    pub(super) state: State,
    opened_ns: u64,
    pub(super) refusal: Option<Errno>,
    /// The events that epoll looks for; `None` = it does not look at this socket any more.
    watched: Option<EventFlags>,
    /// A write was not taken as a whole.
    pub(super) wants_write: bool,
    /// We write no more.
    pub(super) closed: bool,
    /// The peer writes no more, and everything is read.
    ended: bool,
    /// Offsets in the pattern of what is written and read as payload.
    written_bytes: u64,
    read_bytes: u64,
    /// Of a stream of messages.
    incoming: Incoming,
    /// (datagrams, bytes) that it has taken.
    taken: (u64, u64),
    /// Speaks in its name.
    raw: Option<RawConnection>,
    /// The kernel notes when data arrive.
    stamped: bool,
}

impl Socket {
    /// The events that epoll should look for. With both directions over it would report nothing but
    /// that, for ever.
    fn wanted(&self) -> Option<EventFlags> {
        match self.state {
            State::Connecting(_) => Some(EventFlags::OUT),
            State::Sending(_) => None,
            _ if self.closed && self.ended => None,
            _ => {
                let read = if self.ended {
                    EventFlags::empty()
                } else {
                    EventFlags::IN
                };
                let write = if self.wants_write {
                    EventFlags::OUT
                } else {
                    EventFlags::empty()
                };
                Some(read | write)
            }
        }
    }
}

/// A due time and what to do then, ordered by time, then by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer {
    pub(super) at_ns: u64,
    sequence: u64,
    pub(super) actor: usize,
    pub(super) what: Due,
}

/// The kinds of work that becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Actor(u64),
    Retry {
        socket: SocketId,
        key: u64,
        peer: SocketAddr,
    },
}

/// Sockets and timers of the roles of a loop.
pub struct Sockets {
    pub(super) epoll: OwnedFd,
    pub(super) clock: Clock,
    pub(super) plan: Rc<Plan>,
    pattern: Rc<Pattern>,
    sockets: Vec<Option<Socket>>,
    opened: u32,
    /// Connections that failed.
    broken: HashSet<SocketId>,
    /// Those for which epoll may have to look for something else.
    changed: Vec<SocketId>,
    pub(super) timers: BinaryHeap<Reverse<Timer>>,
    sequence: u64,
    pub(super) current: usize,
    scratch: Vec<u8>,
    pub(super) errors: Errors,
    /// How late the data of stamped sockets were read in measured time.
    pub(super) wakes_us: Vec<f64>,
    /// The first listener that could not be opened, and why.
    pub(super) unheard: Option<anyhow::Error>,
}

impl Sockets {
    pub(super) fn new(plan: Rc<Plan>, pattern: Rc<Pattern>) -> anyhow::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)
                .context("cannot create an epoll instance")?,
            clock: Clock::starting_at(u64::MAX),
            plan,
            pattern,
            sockets: Vec::new(),
            opened: 0,
            broken: HashSet::new(),
            changed: Vec::new(),
            timers: BinaryHeap::new(),
            sequence: 0,
            current: 0,
            scratch: vec![0; READ_BYTES],
            errors: Errors::default(),
            wakes_us: Vec::new(),
            unheard: None,
        })
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

    fn fresh_id(&mut self, slot: usize) -> SocketId {
        self.opened += 1;
        SocketId((u64::from(self.opened) << 32) | slot as u64)
    }

    pub(super) fn add(
        &mut self,
        fd: OwnedFd,
        actor: usize,
        key: u64,
        state: State,
    ) -> anyhow::Result<SocketId> {
        let free = self.sockets.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.sockets.len());
        let id = self.fresh_id(slot);
        let mut socket = Socket {
            id,
            fd,
            actor,
            key,
            state,
            opened_ns: self.now_ns(),
            refusal: None,
            watched: None,
            wants_write: false,
            closed: false,
            ended: false,
            written_bytes: 0,
            read_bytes: 0,
            incoming: Incoming::default(),
            taken: (0, 0),
            raw: None,
            stamped: false,
        };
        socket.watched = socket.wanted();
        if let Some(flags) = socket.watched {
            epoll::add(&self.epoll, &socket.fd, EventData::new_u64(id.0), flags)
                .context("cannot watch a socket")?;
        }
        if slot == self.sockets.len() {
            self.sockets.push(Some(socket));
        } else {
            self.sockets[slot] = Some(socket);
        }
        Ok(id)
    }

    /// A socket by what opening one gave; if it gave none, what stands for one that is broken.
    fn added(&mut self, opened: anyhow::Result<SocketId>) -> SocketId {
        opened.unwrap_or_else(|error| {
            self.note(format!("{error:#}"));
            let id = self.fresh_id(u32::MAX as usize);
            self.broken.insert(id);
            id
        })
    }

    /// Registers with epoll the events that sockets wait for now, of those that have changed.
    pub(super) fn update_epoll(&mut self) {
        for id in mem::take(&mut self.changed) {
            if let Err(error) = self.watch(id) {
                self.note(format!("cannot watch a socket: {error}"));
            }
        }
    }

    fn watch(&mut self, id: SocketId) -> rustix::io::Result<()> {
        let Some(socket) = self.get(id) else {
            return Ok(());
        };
        let (before, wanted) = (socket.watched, socket.wanted());
        let data = EventData::new_u64(id.0);
        match (before, wanted) {
            (before, wanted) if before == wanted => return Ok(()),
            (None, Some(flags)) => epoll::add(&self.epoll, &socket.fd, data, flags)?,
            (_, Some(flags)) => epoll::modify(&self.epoll, &socket.fd, data, flags)?,
            (_, None) => epoll::delete(&self.epoll, &socket.fd)?,
        }
        if let Some(socket) = self.get_mut(id) {
            socket.watched = wanted;
        }
        Ok(())
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.sockets
            .get(id.0 as u32 as usize)?
            .as_ref()
            .filter(|socket| socket.id == id)
    }

    /// For a change: see [`Sockets::settle`].
    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets
            .get_mut(id.0 as u32 as usize)?
            .as_mut()
            .filter(|socket| socket.id == id)
    }

    pub(super) fn change(&mut self, id: SocketId, change: impl FnOnce(&mut Socket)) {
        if let Some(socket) = self.get_mut(id) {
            change(socket);
            self.changed.push(id);
        }
    }

    /// The descriptor, while the socket is there.
    pub(super) fn fd(&self, id: SocketId) -> Option<BorrowedFd<'_>> {
        self.get(id).map(|socket| socket.fd.as_fd())
    }

    /// The application has no use for a socket any more.
    fn drop_socket(&mut self, id: SocketId) {
        if self.get(id).is_some() {
            self.sockets[id.0 as u32 as usize] = None;
        }
    }

    /// Drops and notes a broken connection; no error if the run is over anyway.
    fn broke(&mut self, id: SocketId, doing: &str, why: impl std::fmt::Display) {
        let now_ns = self.now_ns();
        self.errors.broken(&self.plan, now_ns, doing, why);
        self.drop_socket(id);
        self.broken.insert(id);
    }

    /// So many bytes of `wanted` were taken by a stream.
    fn wrote(&mut self, id: SocketId, result: rustix::io::Result<usize>, wanted: u64) -> u64 {
        let count = match result {
            Ok(count) => count as u64,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => {
                self.broke(id, "send", error);
                return 0;
            }
        };
        self.change(id, |socket| socket.wants_write = count < wanted);
        count
    }

    /// Takes the result of reading a stream.
    fn got(&mut self, id: SocketId, result: rustix::io::Result<usize>) -> u64 {
        match result {
            Ok(0) => self.change(id, |socket| socket.ended = true),
            Ok(count) => return count as u64,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.broke(id, "receive", error),
        }
        0
    }

    /// Receives at most `most` bytes of payload that begin at this offset of the pattern: compares
    /// them when the plan says so, else lets the kernel discard them without copying (tcp(7),
    /// MSG_TRUNC).
    fn receive_payload(&mut self, id: SocketId, offset: u64, most: u64) -> u64 {
        let verify = self.plan.verify;
        let flags = if verify {
            RecvFlags::empty()
        } else {
            RecvFlags::TRUNC
        };
        let mut scratch = mem::take(&mut self.scratch);
        let window = &mut scratch[..most.min(READ_BYTES as u64) as usize];
        let mut arrived_ns = None;
        let result = self.get(id).map_or(Err(Errno::AGAIN), |socket| {
            if !socket.stamped {
                return net::recv(&socket.fd, &mut *window, flags).map(|(_, length)| length);
            }
            let (count, arrival) = socket::receive_stamped(socket.fd.as_fd(), window, flags)?;
            arrived_ns = arrival;
            Ok(count)
        });
        self.note_wake(arrived_ns);
        if let Ok(count) = result {
            if verify {
                self.compare(offset, &window[..count]);
            }
        }
        self.scratch = scratch;
        self.got(id, result)
    }

    /// From now on the kernel notes when data arrive at this socket.
    pub(super) fn stamp(&mut self, id: SocketId) {
        if let Some(socket) = self.get_mut(id) {
            socket.stamped = socket::note_arrivals(socket.fd.as_fd());
        }
    }

    /// Data that have just been read came at this CLOCK_REALTIME.
    fn note_wake(&mut self, arrived_ns: Option<u64>) {
        let now_ns = self.clock.now_ns();
        let measured = self.plan.measure_begin_ns..self.plan.measure_end_ns;
        if let Some(arrived_ns) = arrived_ns.filter(|_| measured.contains(&now_ns)) {
            let late_ns = super::clock::unix_ns().saturating_sub(arrived_ns);
            self.wakes_us.push(late_ns as f64 / 1e3);
        }
    }

    fn compare(&mut self, offset: u64, received: &[u8]) {
        if let Some(at) = self.pattern.mismatch(offset, received) {
            let at = offset + at as u64;
            self.note(format!("payload differs from what was sent at offset {at}"));
        }
    }

    /// Learns whether a peer has closed that is not to send any data.
    fn receive_nothing(&mut self, id: SocketId) {
        let Some(socket) = self.get(id) else { return };
        let result = net::recv(&socket.fd, &mut [0; 1], RecvFlags::empty()).map(|(count, _)| count);
        if self.got(id, result) > 0 {
            self.change(id, |socket| socket.read_bytes += 1);
            self.note("a peer sends data that no role reads".to_owned());
        }
    }

    /// Receives what is missing of the header of a message.
    fn receive_header(&mut self, id: SocketId) -> Option<u64> {
        let socket = self.get_mut(id)?;
        let free = socket.incoming.header()?;
        let result = net::recv(&socket.fd, free, RecvFlags::empty()).map(|(count, _)| count);
        Some(self.got(id, result))
    }

    /// Sends one datagram; false if the socket has no room.
    fn send_datagram(&mut self, id: SocketId, bytes: u64) -> bool {
        let sent_ns = self.now_ns();
        let pattern = Rc::clone(&self.pattern);
        let Some(socket) = self.get_mut(id) else {
            return false;
        };
        let State::Sending(peer) = socket.state else {
            return false;
        };
        let bytes = bytes.max(HEADER_BYTES);
        let datagram = Datagram {
            number: socket.taken.0,
            end_bytes: socket.taken.1 + bytes,
            sent_ns,
            bytes,
        };
        let header = frame::of_datagram(&datagram);
        let parts = [
            IoSlice::new(&header),
            IoSlice::new(pattern.at(0, bytes - HEADER_BYTES)),
        ];
        let mut nothing = SendAncillaryBuffer::default();
        match net::sendmsg_addr(&socket.fd, &peer, &parts, &mut nothing, SendFlags::NOSIGNAL) {
            Ok(_) => {
                socket.taken = (datagram.number + 1, datagram.end_bytes);
                true
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => false,
            Err(error) => {
                self.note(format!("send to {peer}: {error}"));
                false
            }
        }
    }

    /// At the end of the run, notes the errors that no call has reported. A connection that was
    /// never established was refused until the end, or has waited for longer than a lost SYN
    /// explains.
    pub(super) fn note_troubles(&mut self) {
        let now = self.now_ns();
        for socket in self.sockets.iter().flatten() {
            match (socket.state, socket.refusal) {
                (State::Connecting(peer), Some(error)) => self.errors.refused(peer, error),
                (State::Connecting(peer), None) => {
                    self.errors.unanswered(peer, socket.opened_ns, now);
                }
                _ => {}
            }
        }
    }

    /// Ports that were full, and for how many datagrams.
    pub(super) fn overruns(&self) -> Vec<(u16, u64)> {
        let sockets = self.sockets.iter().flatten();
        let receivers = sockets.filter(|socket| matches!(socket.state, State::Receiving));
        let overruns = receivers.map(|socket| {
            let fd = socket.fd.as_fd();
            (socket::local_port(fd), u64::from(socket::overrun(fd)))
        });
        overruns.filter(|(_, count)| *count > 0).collect()
    }
}

impl Io for Sockets {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn timer(&mut self, at_ns: u64, key: u64) {
        self.push_timer(at_ns, self.current, Due::Actor(key));
    }

    fn note(&mut self, line: String) {
        self.errors.note(line);
    }

    fn listen(&mut self, port: u16, key: u64) {
        let opened = socket::listen(self.plan.address, port, &self.plan.congestion_control)
            .and_then(|fd| self.add(fd, self.current, key, State::Listening));
        if let Err(error) = opened {
            self.unheard.get_or_insert(error);
        }
    }

    fn connect(&mut self, peer: SocketAddr, key: u64) -> SocketId {
        let opened = socket::connect(peer, &self.plan.congestion_control)
            .and_then(|fd| self.add(fd, self.current, key, State::Connecting(peer)));
        self.added(opened)
    }

    fn set_key(&mut self, id: SocketId, key: u64) {
        if let Some(socket) = self.get_mut(id) {
            socket.key = key;
        }
    }

    /// At most a chunk at a time, so that others have their turn.
    fn write(&mut self, id: SocketId, bytes: u64) -> u64 {
        let pattern = Rc::clone(&self.pattern);
        let Some(socket) = self.get(id).filter(|_| bytes > 0) else {
            return 0;
        };
        let data = pattern.at(socket.written_bytes, bytes);
        let sent = net::send(&socket.fd, data, SendFlags::NOSIGNAL);
        let count = self.wrote(id, sent, bytes);
        if let Some(socket) = self.get_mut(id) {
            socket.written_bytes += count;
        }
        count
    }

    /// Header and payload in one segment, if it is small.
    fn write_message(&mut self, id: SocketId, message: &MessageHeader, part: Range<u64>) -> u64 {
        let pattern = Rc::clone(&self.pattern);
        let Some(socket) = self.get(id) else { return 0 };
        let header = frame::of_message(message);
        let [from, to] = [part.start, part.end].map(|at| at.min(HEADER_BYTES));
        let [begin, end] = [part.start, part.end].map(|at| at.saturating_sub(HEADER_BYTES));
        let parts = [
            IoSlice::new(&header[from as usize..to as usize]),
            IoSlice::new(pattern.at(begin, end - begin)),
        ];
        let mut nothing = SendAncillaryBuffer::default();
        let sent = net::sendmsg(&socket.fd, &parts, &mut nothing, SendFlags::NOSIGNAL);
        self.wrote(id, sent, part.end - part.start)
    }

    fn read(&mut self, id: SocketId, most: u64) -> u64 {
        let Some(socket) = self.get(id).filter(|socket| !socket.ended) else {
            return 0;
        };
        if most == 0 {
            self.receive_nothing(id);
            return 0;
        }
        let count = self.receive_payload(id, socket.read_bytes, most);
        if let Some(socket) = self.get_mut(id) {
            socket.read_bytes += count;
        }
        count
    }

    /// A header, or payload of one message.
    fn read_messages(&mut self, id: SocketId) -> u64 {
        let Some(socket) = self.get(id).filter(|socket| !socket.ended) else {
            return 0;
        };
        let (offset, most) = socket.incoming.payload();
        let count = match self.receive_header(id) {
            Some(count) => count,
            None => self.receive_payload(id, offset, most),
        };
        let is_one = self
            .get_mut(id)
            .is_none_or(|socket| socket.incoming.came(count));
        if !is_one {
            self.broke(id, "receive", "what arrives is no message");
        }
        count
    }

    fn message_header(&self, id: SocketId) -> Option<MessageHeader> {
        self.get(id)?.incoming.headers.front().copied()
    }

    fn take_message_header(&mut self, id: SocketId) -> Option<MessageHeader> {
        self.get_mut(id)?.incoming.headers.pop_front()
    }

    fn at_end(&self, id: SocketId) -> bool {
        self.get(id).is_some_and(|socket| socket.ended)
    }

    fn close(&mut self, id: SocketId) {
        self.change(id, |socket| {
            socket.closed = true;
            if socket.state == State::Open {
                let _ = net::shutdown(&socket.fd, Shutdown::Write); // a broken connection is noted when read
            }
        });
    }

    fn release(&mut self, id: SocketId) {
        self.drop_socket(id);
    }

    fn is_broken(&self, id: SocketId) -> bool {
        self.broken.contains(&id)
    }

    fn sender(&self, id: SocketId) -> Option<SenderState> {
        let (info, has_timeouts) = TcpInfo::read(self.fd(id)?)?;
        Some(info.sender(has_timeouts))
    }

    fn describe(&self, id: SocketId, report: &mut SenderReport) {
        if let Some(fd) = self.fd(id) {
            report.local_port = socket::local_port(fd);
            report.congestion_control = socket::congestion_control(fd);
        }
    }

    fn open_datagrams(&mut self, peer: SocketAddr, limit_bytes: u64) -> SocketId {
        let opened = socket::datagrams_to(peer, limit_bytes)
            .and_then(|fd| self.add(fd, self.current, 0, State::Sending(peer)));
        self.added(opened)
    }

    fn bind_datagrams(&mut self, port: u16) {
        let buffer_bytes = self.plan.datagram_buffer_bytes;
        let opened = socket::datagrams_at(self.plan.address, port, buffer_bytes)
            .and_then(|fd| self.add(fd, self.current, 0, State::Receiving));
        if let Err(error) = opened {
            self.unheard.get_or_insert(error);
        }
    }

    fn send_datagrams(&mut self, id: SocketId, mut bytes: u64, payload: u16) -> (u64, u64) {
        let mut dropped = (0, 0);
        while bytes > 0 {
            let next = bytes.min(payload.max(1).into());
            bytes -= next;
            if !self.send_datagram(id, next) {
                dropped = (dropped.0 + 1, dropped.1 + next);
            }
        }
        dropped
    }

    fn datagrams_taken(&self, id: SocketId) -> (u64, u64) {
        self.get(id).map_or((0, 0), |socket| socket.taken)
    }

    fn receive_datagram(&mut self, id: SocketId) -> Option<Datagram> {
        let mut scratch = mem::take(&mut self.scratch);
        let most = if self.plan.verify {
            READ_BYTES
        } else {
            frame::LENGTH
        };
        let received = self
            .get(id)
            .map(|socket| net::recv(&socket.fd, &mut scratch[..most], RecvFlags::TRUNC));
        let datagram = match received {
            Some(Ok((there, bytes))) => {
                let header = scratch[..there].first_chunk();
                let datagram = header.and_then(|header| frame::datagram(header, bytes as u64));
                match datagram {
                    None => self.note("a datagram arrives that is none of ours".to_owned()),
                    Some(_) if self.plan.verify => self.compare(0, &scratch[frame::LENGTH..there]),
                    Some(_) => {}
                }
                datagram
            }
            Some(Err(Errno::AGAIN | Errno::INTR)) | None => None,
            Some(Err(error)) => {
                self.note(format!("receive: {error}"));
                None
            }
        };
        self.scratch = scratch;
        datagram
    }

    fn seize(&mut self, id: SocketId) -> Result<Seized, String> {
        let gone = || "the connection is gone".to_owned();
        let own = self.plan.address;
        let socket = self.get_mut(id).ok_or_else(gone)?;
        let fd = socket.fd.as_fd();
        let (info, _) = TcpInfo::read(fd).ok_or_else(gone)?;
        let text = |error: anyhow::Error| format!("{error:#}");
        let (seq, expected) = raw::sequence_numbers(fd).map_err(text)?;
        let local_port = socket::local_port(fd);
        let peer = socket::peer(fd).ok_or_else(gone)?;
        let local = SocketAddr::new(own, local_port);
        socket.raw = Some(RawConnection::open(local, peer, expected).map_err(text)?);
        Ok(Seized {
            seq,
            mss_bytes: info.snd_mss,
            local_port,
        })
    }

    fn forge(&mut self, id: SocketId, seq: u32, bytes: u32) -> Result<bool, String> {
        let zeros = vec![0; bytes as usize];
        let raw = self.get(id).and_then(|socket| socket.raw.as_ref());
        let raw = raw.ok_or("the connection was not taken")?;
        raw.send(seq, &zeros).map_err(|error| format!("{error:#}"))
    }

    fn acknowledged(&mut self, id: SocketId) -> Result<Option<u32>, String> {
        let raw = self.get(id).and_then(|socket| socket.raw.as_ref());
        let raw = raw.ok_or("the connection was not taken")?;
        raw.acknowledged().map_err(|error| format!("{error:#}"))
    }
}
