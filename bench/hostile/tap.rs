//! Frames in and out of a TAP, whose other side is an interface of some namespace.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// linux/if_tun.h
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const IFF_TAP: i16 = 0x0002;
const IFF_NO_PI: i16 = 0x1000;

/// Longer than any frame here.
const FRAME_MAX: usize = 4096;

/// A TAP's open end. It never blocks.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes the interface `name` in the calling thread's namespace.
    #[allow(unsafe_code)]
    pub fn open(name: &str) -> Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .context("/dev/net/tun: this kernel has no TAPs")?;
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
        // SAFETY: `request` lives until the call returns.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        ensure!(code == 0, "TAP {name}: {}", std::io::Error::last_os_error());
        Ok(Self(file))
    }

    /// Another handle of the same.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone().context("a TAP's handle")?))
    }

    /// Waits for a frame; false: none came in that time.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        matches!(poll(&mut fds, timeout), Ok(1..))
    }

    /// The next frame that the interface sends, into `frame`; false: there is none now.
    pub fn receive(&self, frame: &mut Vec<u8>) -> bool {
        frame.resize(FRAME_MAX, 0);
        let length = (&self.0).read(frame);
        frame.truncate(length.as_ref().map_or(0, |length| *length));
        length.is_ok()
    }

    /// The interface receives this frame. What the kernel does not take is lost, as on any wire.
    pub fn send(&self, frame: &[u8]) {
        while matches!((&self.0).write(frame), Err(error) if error.kind() == ErrorKind::Interrupted)
        {
        }
    }
}
