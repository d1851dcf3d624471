//! Messages to a service manager (systemd's notification protocol); none where none listens.

use std::{
    env,
    ffi::OsStr,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    process,
    time::Duration,
};

use nix::poll::PollTimeout;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    pipe::{PipeFlags, pipe_with},
};
use sd_notify::NotifyState;
use tracing::debug;

/// The variable with the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The longest wait for the manager.
const BARRIER_WITHIN: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// The service manager that started this process, if any.
#[derive(Debug)]
pub struct Service {
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
}

impl Service {
    /// Reads what the service manager left in the environment.
    pub fn of_environment() -> Self {
        Self {
            watchdog: sd_notify::watchdog_enabled(),
        }
    }

    /// It works; `status` is shown by `systemctl status`.
    pub fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Something worth a line changed.
    pub fn status(&self, status: &str) {
        tell(&[NotifyState::Status(status)]);
    }

    /// It is about to end.
    pub fn stopping(&self, status: &str) {
        tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }

    /// Another process is the main one from now on, and it works. Returns when the manager knows,
    /// or has not said so for a while: this process may end then.
    ///
    /// The manager believes this of its main process (`NotifyAccess=main`), and of a new one in the
    /// same service; `status` as in [`Service::ready`].
    pub fn replaced(&self, pid: u32, status: &str) {
        tell(&[
            NotifyState::MainPid(pid),
            NotifyState::Ready,
            NotifyState::Status(status),
        ]);
        if let Err(error) = barrier() {
            debug!("the service manager has not said that it knows: {error}");
        }
    }

    /// Whether the manager that has started this very process ends its children with it: it does
    /// not listen, so that it cannot hear which of them goes on.
    pub fn ends_with_this_process() -> bool {
        let started = env::var("SYSTEMD_EXEC_PID").ok();
        let started = started.and_then(|pid| pid.parse().ok());
        started == Some(process::id()) && env::var_os(SOCKET).is_none()
    }

    /// A sign of life.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// How long to wait for news, at most `patience`: until half of what the manager allows between
    /// signs of life is over.
    pub fn patience(&self, patience: Duration) -> PollTimeout {
        let patience = self
            .watchdog
            .map_or(patience, |interval| patience.min(interval / 2));
        PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX)
    }
}

/// Waits until the manager has read what it was told: it closes a pipe then.
fn barrier() -> io::Result<()> {
    let Some(path) = env::var_os(SOCKET) else {
        return Ok(());
    };
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let descriptors = [theirs.as_fd()];
    attached.push(SendAncillaryMessage::ScmRights(&descriptors));
    let text = [IoSlice::new(b"BARRIER=1")];
    sendmsg(&socket, &text, &mut attached, SendFlags::NOSIGNAL)?;
    drop(theirs);
    // The other end is closed when the last process that has it closes it.
    let mut waits = [PollFd::new(&ours, PollFlags::empty())];
    match poll(&mut waits, Some(&BARRIER_WITHIN))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// A manager that does not read holds nothing up for longer than this.
const TOLD_WITHIN: Duration = Duration::from_millis(500);

fn tell(states: &[NotifyState<'_>]) {
    let Some(path) = env::var_os(SOCKET) else {
        return;
    };
    let lines = states.iter().map(|state| format!("{state}\n"));
    if let Err(error) = send(path.as_bytes(), lines.collect::<String>().as_bytes()) {
        debug!("the service manager does not listen: {error}");
    }
}

fn send(path: &[u8], message: &[u8]) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TOLD_WITHIN))?;
    socket.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_manager_that_does_not_read_is_left_alone() {
        let name = format!("sga-{}-manager", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let path = format!("@{name}");
        send(path.as_bytes(), b"READY=1\n").unwrap();
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\n");
        // Its queue is bounded by the kernel.
        let start = Instant::now();
        let refused = (0..100_000).find_map(|_| send(path.as_bytes(), &[b'x'; 64]).err());
        assert!(refused.is_some() && start.elapsed() >= TOLD_WITHIN);
    }
}
