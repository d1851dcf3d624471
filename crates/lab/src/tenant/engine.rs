//! One epoll loop that drives any number of roles with non-blocking sockets and timers.
//!
//! An [`App`] is one role; it never blocks. [`Sockets`] is what it may do. The loop ends at the
//! plan's stop, whatever happens.

use std::{cmp::Reverse, net::SocketAddr, num::NonZeroU64, rc::Rc};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, SocketFlags},
    time::ClockId,
};

use sluicegate_apps::{Actor, App, Io, SocketId};

use super::{
    clock::{self, Clock},
    pattern::Pattern,
    plan::{Plan, Report, Role},
    socket,
    sockets::{Due, Sockets, State},
};

/// Pause before a refused connection is tried again.
const RETRY_NS: u64 = 10_000_000;

/// How long after the plan's stop a late engine still does what was due before. A sender whose CPU
/// is slower than what it offers would otherwise catch up for seconds.
const CATCH_UP_NS: u64 = 500_000_000;

/// The loop and its roles.
pub struct Engine {
    io: Sockets,
    apps: Vec<App>,
}

impl Engine {
    /// Opens all listeners.
    pub fn prepare(plan: Plan) -> anyhow::Result<Self> {
        let apps = plan.roles.iter().map(App::from).collect();
        let io = Sockets::new(Rc::new(plan), Rc::new(Pattern::default()))?;
        let mut engine = Self { io, apps };
        for index in 0..engine.apps.len() {
            engine.with(index, |app, io| app.prepare(io));
        }
        match engine.io.unheard.take() {
            Some(error) => Err(error),
            None => Ok(engine),
        }
    }

    /// Sleeps until the start, runs until the plan's stop, reports.
    pub fn run(mut self, clock: Clock) -> Report {
        self.io.clock = clock;
        // Messages leave when they are due. By default the kernel may let 50 us pass.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let wait = clock::timespec(clock.until_start_ns());
        let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &wait);
        for index in 0..self.apps.len() {
            self.with(index, |app, io| app.begin(io));
        }
        self.turn_until_stop();
        let mut report = Report::default();
        for index in 0..self.apps.len() {
            self.with(index, |app, io| app.finish(io, &mut report));
        }
        self.io.note_troubles();
        report.errors = std::mem::take(&mut self.io.errors).into_lines();
        report.overruns = self.io.overruns();
        report.wakes_us = std::mem::take(&mut self.io.wakes_us);
        // Sockets stay open until the process ends: a peer whose clock is a little late must not
        // see them close.
        std::mem::forget(self.io);
        report
    }

    fn with(&mut self, index: usize, act: impl FnOnce(&mut App, &mut Sockets)) {
        self.io.current = index;
        act(&mut self.apps[index], &mut self.io);
        self.io.update_epoll();
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
                Err(error) => return self.io.note(format!("epoll: {error}")),
            }
            for event in &events {
                self.dispatch(SocketId(event.data.u64()), event.flags);
            }
        }
    }

    fn fire_timers(&mut self) {
        let stop = self.io.plan.stop_ns;
        let now = self.io.now_ns().min(stop);
        while let Some(Reverse(timer)) = self.io.timers.peek().copied() {
            if timer.at_ns > now || self.io.now_ns() > stop.saturating_add(CATCH_UP_NS) {
                return;
            }
            self.io.timers.pop();
            match timer.what {
                Due::Actor(key) => self.with(timer.actor, |app, io| app.timer(io, key)),
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
                    self.read(id, actor, key);
                }
                let wants_write = self.io.get(id).is_some_and(|socket| socket.wants_write);
                if flags.contains(EventFlags::OUT) && wants_write {
                    self.io.change(id, |socket| socket.wants_write = false);
                    self.with(actor, |app, io| app.writable(io, id, key));
                }
            }
            State::Receiving => self.with(actor, |app, io| app.readable(io, id, key)),
            State::Sending(_) => {}
        }
    }

    /// Bytes, the end of the stream or an error wait. Where the end was read before, it is an
    /// error.
    fn read(&mut self, id: SocketId, actor: usize, key: u64) {
        if self.io.at_end(id) {
            self.io.change(id, |socket| socket.closed = true); // a write tells what it is
            self.io.update_epoll();
        } else {
            self.with(actor, |app, io| app.readable(io, id, key));
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
                Err(error) => return self.io.note(format!("accept: {error}")),
            };
            let _ = net::sockopt::set_tcp_nodelay(&accepted, true); // inherited already; harmless if refused
            match self.io.add(accepted, actor, key, State::Open) {
                Ok(id) => {
                    if matches!(self.io.plan.roles.get(actor), Some(Role::Echo { .. })) {
                        self.io.stamp(id);
                    }
                    self.open(id, actor, key);
                }
                Err(error) => self.io.note(format!("{error:#}")),
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
        let mut closed = false;
        self.io.change(id, |socket| {
            socket.state = State::Open;
            closed = socket.closed;
        });
        if closed {
            self.io.close(id);
        }
        self.with(actor, |app, io| app.connected(io, id, key));
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
            Err(error) => self.io.note(format!("{error:#}")),
        }
    }
}
