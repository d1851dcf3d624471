//! One epoll loop that drives any number of roles with non-blocking sockets and timers.
//!
//! An [`Actor`] is one role; it never blocks and reacts to five events. [`Io`] is what it may do. The loop
//! ends at the plan's stop, whatever happens.

use std::{cmp::Reverse, net::SocketAddr, rc::Rc};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, SocketFlags},
    time::ClockId,
};

use super::{
    clock::{self, Clock},
    io::{Due, Io, SocketId, State},
    pattern::Pattern,
    plan::{Plan, Report},
    socket,
};

/// Pause before a refused connection is tried again.
const RETRY_NS: u64 = 10_000_000;

/// One role of a tenant. `key` is whatever the actor gave when it opened the socket or set the timer;
/// an accepted connection starts with the key of its listener.
pub trait Actor {
    /// Opens listeners; before the start of the run.
    fn prepare(&mut self, _io: &mut Io) -> anyhow::Result<()> {
        Ok(())
    }
    /// The run starts.
    fn begin(&mut self, _io: &mut Io) {}
    /// A connection that this actor opened is established, or one was accepted.
    fn connected(&mut self, _io: &mut Io, _socket: SocketId, _key: u64) {}
    /// Bytes, or the end of the stream, wait.
    fn readable(&mut self, io: &mut Io, socket: SocketId, key: u64);
    /// There is room to write. Only while asked for with [`Io::want_write`].
    fn writable(&mut self, _io: &mut Io, _socket: SocketId, _key: u64) {}
    /// A timer of [`Io::timer`] is due.
    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    /// The run is over: sockets are still open.
    fn finish(&mut self, _io: &mut Io, _report: &mut Report) {}
}

/// The loop and its actors.
pub struct Engine {
    io: Io,
    actors: Vec<Option<Box<dyn Actor>>>,
}

impl Engine {
    /// Opens all listeners.
    pub fn prepare(
        plan: &Rc<Plan>,
        pattern: &Rc<Pattern>,
        actors: Vec<Box<dyn Actor>>,
    ) -> anyhow::Result<Self> {
        let mut io = Io::new(Rc::clone(plan), Rc::clone(pattern))?;
        let mut actors: Vec<_> = actors.into_iter().map(Some).collect();
        for (index, actor) in actors.iter_mut().flatten().enumerate() {
            io.current = index;
            actor.prepare(&mut io)?;
        }
        Ok(Self { io, actors })
    }

    /// Sleeps until the start, runs until the plan's stop, reports.
    pub fn run(mut self, clock: Clock) -> Report {
        self.io.clock = clock;
        let wait = clock::timespec(clock.until_start_ns());
        let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &wait);
        for index in 0..self.actors.len() {
            self.with(index, |actor, io| actor.begin(io));
        }
        self.turn_until_stop();
        let mut report = Report::default();
        for index in 0..self.actors.len() {
            self.with(index, |actor, io| actor.finish(io, &mut report));
        }
        self.io.note_unconnected();
        report.errors = std::mem::take(&mut self.io.errors).into_lines();
        // Sockets stay open until the process ends: a peer whose clock is a little late must not see them close.
        std::mem::forget(self.io);
        report
    }

    fn with(&mut self, index: usize, act: impl FnOnce(&mut dyn Actor, &mut Io)) {
        self.io.current = index;
        if let Some(mut actor) = self.actors[index].take() {
            act(actor.as_mut(), &mut self.io);
            self.actors[index] = Some(actor);
        }
    }

    fn turn_until_stop(&mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            self.fire_timers();
            let now = self.io.now_ns();
            if now >= self.io.plan.stop_ns {
                return;
            }
            let next = self
                .io
                .timers
                .peek()
                .map_or(u64::MAX, |timer| timer.0.at_ns);
            let wait = clock::timespec(next.min(self.io.plan.stop_ns).saturating_sub(now));
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.io.epoll, buffer, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.io.error(format!("epoll: {error}")),
            }
            for event in &events {
                self.dispatch(SocketId(event.data.u64()), event.flags);
            }
        }
    }

    fn fire_timers(&mut self) {
        let now = self.io.now_ns().min(self.io.plan.stop_ns);
        while let Some(Reverse(timer)) = self.io.timers.peek().copied() {
            if timer.at_ns > now {
                return;
            }
            self.io.timers.pop();
            match timer.what {
                Due::Actor(key) => self.with(timer.actor, |actor, io| actor.timer(io, key)),
                Due::Retry { socket, key, peer } => self.reconnect(timer.actor, socket, key, peer),
            }
        }
    }

    fn dispatch(&mut self, id: SocketId, flags: EventFlags) {
        let Some(socket) = self.io.get(id) else {
            return;
        };
        let (actor, key) = (socket.actor, socket.key);
        match socket.state {
            State::Listening => self.accept_all(id, actor, key),
            State::Connecting(peer) => self.finish_connect(id, actor, key, peer),
            State::Open => {
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.with(actor, |actor, io| actor.readable(io, id, key));
                }
                if flags.contains(EventFlags::OUT)
                    && self.io.get(id).is_some_and(|socket| socket.want_write)
                {
                    self.with(actor, |actor, io| actor.writable(io, id, key));
                }
            }
        }
    }

    fn accept_all(&mut self, listener: SocketId, actor: usize, key: u64) {
        loop {
            let Some(fd) = self.io.fd(listener) else {
                return;
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let accepted = match net::accept_with(fd, flags) {
                Ok(fd) => fd,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(error) => return self.io.error(format!("accept: {error}")),
            };
            let _ = net::sockopt::set_tcp_nodelay(&accepted, true); // inherited already; harmless if refused
            match self.io.add(accepted, actor, key, State::Open) {
                Ok(id) => self.open(id, actor, key),
                Err(error) => self.io.error(format!("{error:#}")),
            }
        }
    }

    fn finish_connect(&mut self, id: SocketId, actor: usize, key: u64, peer: SocketAddr) {
        let Some(fd) = self.io.fd(id) else { return };
        match net::sockopt::socket_error(fd) {
            Ok(Ok(())) => self.open(id, actor, key),
            Ok(Err(error)) | Err(error) => {
                let _ = epoll::delete(&self.io.epoll, fd); // a fresh socket replaces it
                if let Some(socket) = self.io.get_mut(id) {
                    socket.refusal = Some(error);
                }
                let at_ns = self.io.now_ns() + RETRY_NS;
                self.io.push_timer(
                    at_ns,
                    actor,
                    Due::Retry {
                        socket: id,
                        key,
                        peer,
                    },
                );
            }
        }
    }

    fn open(&mut self, id: SocketId, actor: usize, key: u64) {
        if let Some(socket) = self.io.get_mut(id) {
            socket.state = State::Open;
        }
        if let Err(error) = self.io.watch(id, EventFlags::IN) {
            self.io.error(format!("{error:#}"));
        }
        self.with(actor, |actor, io| actor.connected(io, id, key));
    }

    /// Puts a fresh socket under the same id.
    fn reconnect(&mut self, actor: usize, id: SocketId, key: u64, peer: SocketAddr) {
        let Some(old) = self.io.get(id) else { return };
        if old.state != State::Connecting(peer) || old.key != key || old.actor != actor {
            return;
        }
        let fresh = socket::connect(peer, &self.io.plan.congestion_control);
        let added = fresh.and_then(|fd| {
            epoll::add(
                &self.io.epoll,
                &fd,
                EventData::new_u64(id.0),
                EventFlags::OUT,
            )?;
            Ok(fd)
        });
        match added {
            Ok(fd) => {
                if let Some(socket) = self.io.get_mut(id) {
                    socket.fd = fd;
                }
            }
            Err(error) => self.io.error(format!("{error:#}")),
        }
    }
}
