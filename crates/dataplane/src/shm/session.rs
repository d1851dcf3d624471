//! The connections of a port of shared memory, in a thread of their own: it agrees with each peer,
//! hands the cable to the worker, and waits until the peer has gone. A peer that says nothing stops
//! nobody else.

use std::{
    fs::File,
    io,
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::Mutex,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use super::{
    cable::{Agreed, CableState, Plug},
    handshake::{self, Failed, Pauses, Side},
    layout::Layout,
    pfc::Settings,
};
use crate::{
    config::Access,
    offload::Takes,
    vhost::{
        Change, Owner,
        link::{Connection, Link},
        relay::Message,
        session::{Mode, RETRY, RETRY_MAX, Session, listen},
    },
};

/// What a port is, as its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which side of the socket the switch is.
    pub mode: Mode,
    /// Sizes; those of a server hold.
    pub layout: Layout,
    /// Flow control by priority.
    pub pfc: Option<Settings>,
}

impl Wanted {
    /// What the switch tells a peer of itself.
    fn side(&self) -> Side {
        Side {
            takes: Takes::ALL,
            pauses: Pauses::Switch(self.pfc.map_or(0, |pfc| pfc.lossless)),
        }
    }
}

/// What another process had of a port.
#[derive(Debug, Default)]
pub struct Before {
    /// The socket at which it listens.
    pub listener: Option<UnixListener>,
    /// Its connection, and where its cable was.
    pub connection: Option<(Connection, CableState)>,
}

/// Starts the thread of a port. Of a server, the socket exists when this returns.
///
/// # Errors
/// The socket cannot be made, or the thread.
pub fn start(
    path: &Path,
    wanted: Wanted,
    before: Before,
    port: u16,
    owner: impl Owner,
) -> anyhow::Result<Session> {
    let listener = match (wanted.mode, before.listener) {
        (Mode::Server, None) if before.connection.is_none() => {
            Some(listen(path, Access::default())?)
        }
        (_, listener) => listener,
    };
    let (begin, mut state) = before.connection.unzip();
    let retry = match wanted.mode {
        // A peer that is not there, or is refused, is asked less and less often.
        Mode::Client => RETRY_MAX,
        Mode::Server => RETRY,
    };
    let mut told = None;
    Session::run(
        path,
        listener,
        begin,
        port,
        retry,
        move |next, slot, link| {
            let made = connect(next, wanted, state.take());
            let (plug, file) = match made {
                Ok(made) => made,
                Err(Failed::Silently) => return false,
                Err(Failed::Because(reason)) => {
                    if told.as_ref() != Some(&reason) {
                        tracing::warn!(port, reason, "there is no cable");
                        told = Some(reason.clone());
                    }
                    link.begun();
                    // The switch may have ended meanwhile.
                    let _ = owner.change(port, Change::Gone(Some(reason)));
                    return false;
                }
            };
            told = None;
            serve(plug, &file, port, &owner, slot, link);
            true
        },
    )
}

/// Agrees with a peer, or goes on with one of another process.
fn connect(
    next: Connection,
    wanted: Wanted,
    state: Option<CableState>,
) -> Result<(Plug, File), Failed> {
    let Connection { stream, said } = next;
    let (agreed, file) = match (said.into_iter().next(), &state) {
        (Some(message), Some(state)) => {
            let file = message.descriptors.into_iter().next();
            let file = file.ok_or_else(|| "a descriptor is missing".to_owned())?;
            let file = File::from(file);
            let agreed = Agreed {
                mode: wanted.mode,
                layout: state.layout,
                takes: state.takes,
                memory: state.layout.map(&file)?,
            };
            (agreed, file)
        }
        _ => handshake::agree(&stream, wanted.mode, wanted.layout, wanted.side())?,
    };
    let plug = Plug::new(agreed, stream, state.as_ref()).map_err(|refused| refused.0)?;
    Ok((plug, file))
}

/// Hands a cable to the worker, and waits until the peer has gone.
fn serve(
    plug: Plug,
    file: &File,
    port: u16,
    owner: &impl Owner,
    slot: &Mutex<Option<UnixStream>>,
    link: &Link,
) {
    let copies = plug.stream().try_clone();
    let copies = copies.and_then(|stream| Ok((stream.try_clone()?, stream)));
    let (kept, stream) = match copies {
        Ok(copies) => copies,
        Err(error) => {
            link.begun();
            let _ = owner.change(port, Change::Gone(Some(error.to_string())));
            return;
        }
    };
    if let Ok(mut slot) = slot.lock() {
        *slot = Some(kept);
    }
    tracing::info!(port, layout = ?plug.agreed().layout, "there is a cable");
    let joined = owner.change(port, Change::Plug(Box::new(plug)));
    link.begun();
    if joined.is_ok() {
        wait(&stream, file, link);
    }
    // What the peer has left is delivered by the process that owns the ports.
    while link.is_borrowed() {
        thread::sleep(RETRY);
    }
    // The peer may have closed it already.
    let _ = stream.shutdown(Shutdown::Both);
    tracing::info!(port, "the peer has gone");
    // The switch may have ended meanwhile.
    let _ = owner.change(port, Change::Gone(joined.err()));
    if let Ok(mut slot) = slot.lock() {
        *slot = None;
    }
}

/// Waits until the peer has gone. While another process gets everything this stops.
fn wait(stream: &UnixStream, file: &File, link: &Link) {
    loop {
        // Kicks are the worker's.
        let mut ready = [
            PollFd::new(stream, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(link.wake(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        let [gone, stops] = ready.map(|side| !side.revents().is_empty());
        if stops {
            link.stopped(copy(stream, file));
        } else if gone {
            return;
        }
    }
}

/// What another process gets.
fn copy(stream: &UnixStream, file: &File) -> io::Result<Connection> {
    let memory = Message {
        bytes: Vec::new(),
        descriptors: vec![file.as_fd().try_clone_to_owned()?],
    };
    Ok(Connection {
        stream: stream.try_clone()?,
        said: vec![memory],
    })
}
