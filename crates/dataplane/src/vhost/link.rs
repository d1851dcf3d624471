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
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

use super::relay::Message;

/// A frontend that leaves a message unfinished for longer is not handed over.
const PATIENCE: Duration = Duration::from_millis(200);

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
    /// It has stopped, and this is its connection, if it can be handed over.
    stopped: Option<Option<Connection>>,
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

    /// Waits until then.
    pub fn wait_until_begun(&self) {
        let state = self.state();
        let waits = |state: &mut State| !state.begun;
        drop(self.changed.wait_timeout_while(state, PATIENCE, waits));
    }

    /// Stops the session between two messages; its connection, if there is one that can be handed
    /// over.
    pub fn stop(&self) -> Option<Connection> {
        let mut state = self.state();
        (state.stops, state.stopped) = (state.stops + 1, None);
        if !state.is_connected {
            return None;
        }
        // It fails only if it has been written to so often that it is readable anyway.
        let _ = write(&self.wake, &1u64.to_ne_bytes());
        let waits = |state: &mut State| state.stopped.is_none() && state.is_connected;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, waits);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.stopped.take()?
    }

    /// The session goes on.
    pub fn go_on(&self) {
        let mut state = self.state();
        state.goes_on = state.stops;
        self.changed.notify_all();
    }

    /// The session has stopped; returns when it goes on.
    pub fn stopped(&self, connection: Option<Connection>) {
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
