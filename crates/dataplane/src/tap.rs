//! Ports at interfaces of the kernel (TAP), with the header that says what work is left.
//!
//! Frames that the kernel has for the switch wait in the interface's queue while the switch has
//! [`Tap::HELD_MAX`] of them; the kernel drops what does not fit there, and counts it
//! ([`kernel`]). So this port is lossy at ingress. Where the kernel can, it holds the
//! interface's qdisc back instead, if asked to: then drops there are rare.

#![allow(unsafe_code)]

mod abroad;
mod existing;

use std::{
    ffi::{CStr, CString},
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, IoSlice, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
};

use anyhow::{Context, anyhow};

use crate::{
    frame::Frame,
    offload::{HEADER, Takes, Work},
    port::{Delivery, Intake, Outgoing},
    xdp::interface::dropped,
};

const TUNGETIFF: libc::Ioctl = 0x8004_54d2;
/// The network namespace of the interface (Linux 5.2).
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3;
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8;
const IFF_TAP: i16 = 2;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;
/// Of an interface that was made with several queues.
const IFF_MULTI_QUEUE: i16 = 0x0100;
/// A full queue stops the interface's qdisc instead of dropping (Linux 7.2).
const IFF_BACKPRESSURE: i16 = 0x0080;
const TUNGETFEATURES: libc::Ioctl = 0x8004_54cf;
/// Checksums, TCP over IPv4 and IPv6, CWR (`TUN_F_*`).
const OFFLOADS: libc::c_uint = 1 | 2 | 4 | 8;

/// The longest read: a segment of 64 KB, its headers and the header before it.
const READ_MAX: usize = HEADER + 65_535 + 18;

/// An interface.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    buffer: Box<[u8]>,
    held: usize,
    holds_back: bool,
    whole: Vec<u8>,
}

impl Tap {
    /// What the kernel takes.
    pub const TAKES: Takes = Takes::ALL;

    /// Frames of this interface that the switch holds at most.
    pub const HELD_MAX: u16 = 512;

    /// Opens an interface, and makes it if there is none of this name.
    ///
    /// # Errors
    /// The kernel's reason, and what to do.
    pub fn open(name: &str, backpressure: bool) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options.custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let file = file.context("cannot open /dev/net/tun; load the module tun, and be root")?;
        let (bytes, text) = (name.as_bytes(), CString::new(name)?);
        if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ {
            return Err(anyhow!(
                "an interface's name has 1 to 15 bytes, not '{name}'"
            ));
        }
        // SAFETY: zeroed is a valid value of this C structure.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, &from) in request.ifr_name.iter_mut().zip(text.as_bytes()) {
            *to = from as libc::c_char;
        }
        let descriptor = file.as_raw_fd();
        let held_back = match backpressure {
            true if features(descriptor)? & IFF_BACKPRESSURE as libc::c_uint == 0 => {
                return Err(anyhow!(
                    "{name}: this kernel holds nothing back at TAP interfaces (IFF_BACKPRESSURE \
                     needs Linux 7.2): leave `backpressure` out"
                ));
            }
            true => IFF_BACKPRESSURE,
            false => 0,
        };
        let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | held_back;
        let has_queues = attach(descriptor, &mut request, flags).map_err(|error| {
            let why = existing::why_not_attached(name, &error);
            anyhow!("cannot attach to the interface {name}: {why} ({error})")
        })?;
        if has_queues {
            existing::check_alone(name)?;
        }
        let header_bytes = HEADER as libc::c_int;
        // SAFETY: as above, with a number.
        let sized = unsafe { libc::ioctl(descriptor, TUNSETVNETHDRSZ, &raw const header_bytes) };
        succeed(sized).with_context(|| format!("{name}: cannot set its header"))?;
        // SAFETY: this request takes a number and no pointer.
        let offloads = unsafe { libc::ioctl(descriptor, TUNSETOFFLOAD, OFFLOADS) };
        succeed(offloads).with_context(|| format!("{name}: cannot set its offloads"))?;
        Ok(Self::over(file, name, backpressure))
    }

    /// Over the descriptor of another process.
    pub fn over(file: File, name: &str, holds_back: bool) -> Self {
        Self {
            file,
            name: name.to_owned(),
            buffer: vec![0; READ_MAX].into(),
            held: 0,
            holds_back,
            whole: Vec::new(),
        }
    }

    /// Its descriptor, for [`Tap::over`].
    pub fn into_file(self) -> File {
        self.file
    }

    /// Lets the interface outlive this process, with its address, its bridge and its state. One
    /// that somebody else made does so already.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn persist(&self) -> io::Result<()> {
        // SAFETY: this request takes a number and no pointer.
        let kept = unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETPERSIST, 1 as libc::c_ulong) };
        succeed(kept)
    }

    /// Its descriptor, readable when the kernel has frames.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is read.
    pub fn is_read(&self) -> bool {
        self.held < usize::from(Self::HELD_MAX)
    }

    /// Frames that wait here at most.
    pub fn entries(&self) -> u16 {
        Self::HELD_MAX
    }

    /// Whether the kernel holds back what finds no room.
    pub fn holds_back(&self) -> bool {
        self.holds_back
    }

    /// Fills `frame` with the next one.
    pub fn take(&mut self, frame: &mut Frame) -> Intake {
        if !self.is_read() {
            return Intake::Empty;
        }
        let Ok(bytes) = self.file.read(&mut self.buffer) else {
            return Intake::Empty;
        };
        self.held += 1;
        (frame.pair, frame.token) = (0, Some(0));
        let Some((header, packet)) = self.buffer[..bytes].split_first_chunk::<HEADER>() else {
            return Intake::Malformed;
        };
        let Ok(work) = Work::parse(header, packet.len() as u32) else {
            return Intake::Malformed;
        };
        if packet.len() < 14 {
            return Intake::Malformed;
        }
        frame.set_own(packet);
        frame.work = work;
        Intake::Frame
    }

    /// All exits have a frame of this port.
    pub fn release(&mut self) {
        self.held -= 1;
    }

    /// Whether the kernel takes frames: it always does.
    pub fn has_room(&self) -> bool {
        true
    }

    /// Writes a frame to the interface.
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Delivery {
        let header = frame.work.header(frame.headers());
        let rest = frame.own.unwrap_or_else(|| {
            self.whole.clear();
            frame.memory.append(frame.pieces, &mut self.whole);
            &self.whole
        });
        let parts = [
            IoSlice::new(&header),
            IoSlice::new(frame.start),
            IoSlice::new(rest),
        ];
        match self.file.write_vectored(&parts) {
            Ok(_) => Delivery::Done,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Delivery::NoRoom,
            // The interface is down.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Delivery::Down,
            Err(_) => Delivery::Refused,
        }
    }
}

/// Attaches a descriptor to an interface, or makes it. The kernel refuses one that has several
/// queues unless it is asked for one of them. Whether it has.
fn attach(descriptor: libc::c_int, request: &mut libc::ifreq, flags: i16) -> io::Result<bool> {
    let name = request.ifr_name;
    let mut ask = |flags| {
        (request.ifr_name, request.ifr_ifru.ifru_flags) = (name, flags);
        // SAFETY: the request is a valid structure for this call, which keeps no pointer.
        succeed(unsafe { libc::ioctl(descriptor, TUNSETIFF, &raw mut *request) })
    };
    match ask(flags) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            ask(flags | IFF_MULTI_QUEUE).map_or(Err(error), |()| Ok(true))
        }
        attached => attached.map(|()| false),
    }
}

/// What the kernel says of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// It is in another network namespace than the thread that asked.
    pub is_elsewhere: bool,
    /// Frames that it dropped on their way into the switch, and behind the switch; or why that is
    /// not known.
    pub drops: Result<(u64, u64), String>,
}

/// Asks the kernel for an interface, wherever it is and whatever its name is by now.
pub fn kernel(descriptor: BorrowedFd<'_>) -> Kernel {
    let (name, space) = match name_of(descriptor).and_then(|it| Ok((it, space_of(descriptor)?))) {
        Ok(found) => found,
        Err(error) => {
            return Kernel {
                is_elsewhere: false,
                drops: Err(format!("the kernel does not say where it is: {error}")),
            };
        }
    };
    let is_elsewhere = fs::metadata("/proc/thread-self/ns/net").map_or(true, |own| {
        let its = space.metadata();
        its.map_or(true, |its| (its.dev(), its.ino()) != (own.dev(), own.ino()))
    });
    let drops = match is_elsewhere {
        false => dropped(&name).ok_or_else(|| format!("there is no counter of {name}")),
        true => abroad::dropped(space.as_fd(), &name).map_err(|error| {
            format!("it is in another network namespace, of which the kernel says: {error}")
        }),
    };
    Kernel {
        is_elsewhere,
        drops: drops.map(|(receive, transmit)| (transmit, receive)),
    }
}

fn name_of(descriptor: BorrowedFd<'_>) -> io::Result<String> {
    // SAFETY: zeroed is a valid value of this C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the request is a valid structure for this call, which fills it in.
    succeed(unsafe { libc::ioctl(descriptor.as_raw_fd(), TUNGETIFF, &raw mut request) })?;
    let name = request.ifr_name.map(|byte| byte as u8);
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(name.to_string_lossy().into_owned())
}

fn space_of(descriptor: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: this request takes nothing, and returns a descriptor.
    let space = unsafe { libc::ioctl(descriptor.as_raw_fd(), TUNGETDEVNETNS) };
    succeed(space)?;
    // SAFETY: the kernel has just made it, for this caller alone.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(space) }))
}

/// Flags that the kernel knows; it ignores others.
fn features(descriptor: libc::c_int) -> anyhow::Result<libc::c_uint> {
    let mut features: libc::c_uint = 0;
    // SAFETY: this request writes a number, to a valid place.
    let asked = unsafe { libc::ioctl(descriptor, TUNGETFEATURES, &raw mut features) };
    succeed(asked).context("cannot ask /dev/net/tun what it can do")?;
    Ok(features)
}

fn succeed(code: libc::c_int) -> io::Result<()> {
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
