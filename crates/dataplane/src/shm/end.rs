//! The end of a cable in any program: what is not a switch sends and receives frames here.
//!
//! ```no_run
//! use std::time::Duration;
//! use sluicegate_dataplane::{offload::{Takes, Work}, shm::end::End};
//!
//! let mut end = End::connect("/run/sluicegate/cable.sock".as_ref(), Takes::default())?;
//! let (frame, mut next) = ([2; 60], Vec::new());
//! while !end.send(&frame, Work::default())? {
//!     end.wait(Duration::from_secs(1))?; // the other side takes its time
//! }
//! while end.receive(&mut next)?.is_none() {
//!     end.wait(Duration::from_secs(1))?;
//! }
//! # anyhow::Ok(())
//! ```

use std::{
    fmt::{self, Display},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    cable::Plug,
    handshake::{Failed, Pauses, Side, agree},
    layout::Layout,
};
use crate::{
    frame::Frame,
    memory::Memory,
    offload::{Takes, Work},
    port::{Delivery, Intake, Outgoing},
    ring::Broken,
    vhost::session::Mode,
};

/// An end of a cable.
#[derive(Debug)]
pub struct End {
    plug: Plug,
    frame: Frame,
}

/// Why nothing more comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer has gone.
    Gone,
    /// The peer breaks the rules.
    Broken(&'static str),
    /// A frame that the peer takes never: too long, or with work that it does not do.
    Refused,
}

impl Display for Ended {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Gone => "the peer has gone",
            Self::Broken(reason) => reason,
            Self::Refused => "the peer never takes such a frame",
        })
    }
}

impl std::error::Error for Ended {}

impl From<Broken> for Ended {
    fn from(Broken(reason): Broken) -> Self {
        Self::Broken(reason)
    }
}

impl End {
    /// Connects to a switch that listens. `takes` is what this program takes.
    ///
    /// # Errors
    /// No switch listens there, or the two sides do not agree.
    pub fn connect(path: &Path, takes: Takes) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path);
        let stream = stream.with_context(|| format!("no switch listens at {}", path.display()))?;
        Self::over(stream, Mode::Client, Layout::default(), takes)
    }

    /// Over a connection. A server decides the sizes.
    ///
    /// # Errors
    /// There is no agreement.
    pub fn over(
        stream: UnixStream,
        mode: Mode,
        layout: Layout,
        takes: Takes,
    ) -> anyhow::Result<Self> {
        let side = Side {
            takes,
            pauses: Pauses::Program,
        };
        let agreed = agree(&stream, mode, layout, side);
        let (agreed, _) = agreed.map_err(|failed| match failed {
            Failed::Silently => anyhow!(Ended::Gone),
            Failed::Because(reason) => anyhow!(reason),
        })?;
        let plug = Plug::new(agreed, stream, None).map_err(|refused| anyhow!(refused.0))?;
        Ok(Self {
            plug,
            frame: Frame::default(),
        })
    }

    /// What the peer takes.
    pub fn takes(&self) -> Takes {
        self.plug.agreed().takes
    }

    /// Its socket: readable when the peer kicks or has gone. Read by [`End::wait`] and
    /// [`End::disarm`] alone.
    pub fn stream(&self) -> &UnixStream {
        self.plug.stream()
    }

    /// The shared memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.plug.agreed().memory
    }

    /// Sends a frame of at least 14 bytes with the work that is left. False: there is no room now,
    /// and [`End::wait`] says when.
    ///
    /// # Errors
    /// The peer breaks the rules, or takes no such frame.
    pub fn send(&mut self, bytes: &[u8], work: Work) -> Result<bool, Ended> {
        let memory = Memory::default();
        let frame = Outgoing::whole(bytes, work, &memory);
        match self.plug.deliver(&frame)? {
            Delivery::Done => {
                self.plug.publish(false);
                Ok(true)
            }
            Delivery::NoRoom | Delivery::Held | Delivery::Later => Ok(false),
            Delivery::TooLong | Delivery::Down | Delivery::Refused => Err(Ended::Refused),
        }
    }

    /// Puts the next frame in place of what `bytes` held: the work that its sender left, or `None`
    /// if there is none yet. Frames that are none are left out.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub fn receive(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Work>, Ended> {
        loop {
            let taken = self.plug.take(&mut self.frame)?;
            if taken == Intake::Empty {
                return Ok(None);
            }
            if taken == Intake::Frame {
                self.frame.whole_into(&self.plug.agreed().memory, bytes);
            }
            if let Some(token) = self.frame.token.take() {
                self.plug.release(token);
                self.plug.publish(true);
            }
            if taken == Intake::Frame {
                return Ok(Some(self.frame.work));
            }
        }
    }

    /// Sleeps until a frame comes, there is room for one that did not fit, or so much time has
    /// passed.
    ///
    /// # Errors
    /// The peer has gone, or breaks the rules. What it sent before can still be received.
    pub fn wait(&mut self, most: Duration) -> Result<(), Ended> {
        let has_work = self.arm()?;
        let mut ready = [PollFd::new(self.plug.stream(), PollFlags::IN)];
        let most = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let woken = match has_work {
            true => Ok(0),
            false => poll(&mut ready, Some(&most)),
        };
        self.disarm(!matches!(woken, Ok(0) | Err(Errno::INTR)))
    }

    /// Asks the peer for a kick, before the caller sleeps until [`End::stream`] is readable, as one
    /// does who has several ends. True: there is work already. [`End::disarm`] follows.
    ///
    /// # Errors
    /// The peer breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Ended> {
        Ok(self.plug.arm()?)
    }

    /// The caller of [`End::arm`] is awake, and says whether the stream is readable.
    ///
    /// # Errors
    /// The peer has gone, or breaks the rules. What it sent before can still be received.
    pub fn disarm(&mut self, is_readable: bool) -> Result<(), Ended> {
        self.plug.disarm();
        // If there is room for what did not fit, it has been told so.
        self.plug.has_new_room()?;
        match !is_readable || self.plug.kicked()? {
            true => Ok(()),
            false => Err(Ended::Gone),
        }
    }
}
