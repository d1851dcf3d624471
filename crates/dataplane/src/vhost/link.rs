//! A session that can be stopped between two messages, and handed to another process.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

use super::relay::Message;

/// A frontend that leaves a message unfinished for longer is not handed over.
pub const STOPS_WITHIN: Duration = Duration::from_millis(200);

/// A connection as a successor gets it: its socket, and what was said on it.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: UnixStream,
    /// What makes it what it is, in its order.
    pub said: Vec<Message>,
}

#[derive(Debug, Default)]
struct State {
    /// How often it was to stop, and after which of these times it goes on.
    stops: u64,
    goes_on: u64,
    /// There is a connection.
    is_connected: bool,
    /// It has stopped, and this is its connection, or why that cannot be handed over.
    stopped: Option<io::Result<Connection>>,
    /// A connection that it begins with has heard everything again, or has failed.
    begun: bool,
}

/// What the thread of a session and the one that stops it share.
#[derive(Debug)]
pub struct Link {
    state: Mutex<State>,
    changed: Condvar,
    wake: OwnedFd,
    /// The connection is still that of another process, which may go on with it.
    is_borrowed: AtomicBool,
}

impl Link {
    /// Of a session that runs, or of one that begins with another process's connection.
    ///
    /// # Errors
    /// The kernel gives no eventfd.
    pub fn new(is_borrowed: bool) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_borrowed: AtomicBool::new(is_borrowed),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection is to be left alone when this session ends.
    pub fn is_borrowed(&self) -> bool {
        self.is_borrowed.load(Ordering::Acquire)
    }

    /// The connection is this process's alone.
    pub fn own(&self) {
        self.is_borrowed.store(false, Ordering::Release);
    }

    /// Readable when the session is to stop.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes a connection, unless the session is to stop.
    pub fn connect<T>(&self, connect: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut state = self.state();
        if state.stops != state.goes_on {
            return None;
        }
        let connection = connect();
        state.is_connected = connection.is_some();
        connection
    }

    /// The connection has ended.
    pub fn disconnected(&self) {
        let mut state = self.state();
        (state.is_connected, state.begun) = (false, true);
        self.changed.notify_all();
    }

    /// The connection has heard again what was said on it.
    pub fn begun(&self) {
        self.state().begun = true;
        self.changed.notify_all();
    }

    /// Waits until then, or until another time.
    pub fn wait_until_begun(&self, until: Instant) {
        let state = self.state();
        let waits = |state: &mut State| !state.begun;
        let patience = until.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(state, patience, waits));
    }

    /// The session is to stop between two messages, and not to begin another connection.
    pub fn stop(&self) {
        let mut state = self.state();
        (state.stops, state.stopped) = (state.stops + 1, None);
        if state.is_connected {
            // It fails only if it has been written to so often that it is readable anyway.
            let _ = write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Waits until a session that is to stop has stopped: its connection, if there is one.
    ///
    /// # Errors
    /// It cannot be handed over: it was not copied, which is an error of the kernel, or the session
    /// did not stop in time.
    pub fn connection(&self, until: Instant) -> io::Result<Option<Connection>> {
        let waits = |state: &mut State| state.stopped.is_none() && state.is_connected;
        let patience = until.saturating_duration_since(Instant::now());
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, patience, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.stopped.take() {
            None if state.is_connected => Err(io::Error::other("its frontend is in a message")),
            None => Ok(None),
            Some(connection) => connection.map(Some),
        }
    }

    /// The session goes on.
    pub fn go_on(&self) {
        let mut state = self.state();
        state.goes_on = state.stops;
        self.changed.notify_all();
    }

    /// The session has stopped; returns when it goes on.
    pub fn stopped(&self, connection: io::Result<Connection>) {
        let _ = read(&self.wake, &mut [0; 8]);
        let mut state = self.state();
        state.stopped = Some(connection);
        self.changed.notify_all();
        // It may have to stop again before it notices that it goes on.
        let this = state.stops;
        let waits = |state: &mut State| state.goes_on < this;
        drop(self.changed.wait_while(state, waits));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_do_not_stop_are_waited_for_at_once() {
        let links: Vec<_> = (0..10).map(|_| Link::new(false).expect("a link")).collect();
        for link in &links[1..] {
            link.connect(|| Some(())).expect("a connection");
        }
        let start = Instant::now();
        links.iter().for_each(Link::stop);
        let until = Instant::now() + STOPS_WITHIN;
        assert!(links[0].connection(until).is_ok_and(|none| none.is_none()));
        for link in &links[1..] {
            let error = link.connection(until).expect_err("it did not stop");
            assert_eq!(error.raw_os_error(), None);
        }
        assert!(start.elapsed() >= STOPS_WITHIN);
        assert!(start.elapsed() < 3 * STOPS_WITHIN);
        // Nothing begins until they go on.
        assert!(links[0].connect(|| Some(())).is_none());
        links[0].go_on();
        assert!(links[0].connect(|| Some(())).is_some());
    }
}
