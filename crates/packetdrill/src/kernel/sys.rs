//! System calls as a script makes them: raw, so that the kernel sees invalid arguments as well.

#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    io,
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// What a call returned, or the number of its error.
pub type Called = Result<i64, i32>;

/// The most bytes that a call gets a buffer for.
const BUFFER_MAX: usize = 1 << 28;

fn called(value: i64) -> Called {
    match value {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => Ok(value),
    }
}

/// The time by the clock that stamps packets, in ns.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    of_timespec(&time)
}

pub fn of_timespec(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// This thread runs before all others that are ready; without privileges nothing changes.
pub fn hurry() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads a structure of ours; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
}

/// A socket's address as the kernel takes it; without one the family says that there is none.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    bytes: [u8; 28],
    len: libc::socklen_t,
}

impl Address {
    pub fn new(address: IpAddr, port: u16) -> Self {
        let mut bytes = [0; 28];
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        let len = match address {
            IpAddr::V4(address) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.octets());
                16
            }
            IpAddr::V6(address) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.octets());
                28
            }
        };
        Self { bytes, len }
    }

    /// `AF_UNSPEC`
    pub fn unspecified() -> Self {
        Self {
            bytes: [0; 28],
            len: 16,
        }
    }

    fn pointer(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }
}

/// Memory that a call reads or fills, or `NULL`.
pub struct Buffer {
    bytes: Vec<u8>,
    null: bool,
    len: usize,
}

impl Buffer {
    /// `None`: more than any script needs.
    pub fn new(len: u64, null: bool) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|len| *len <= BUFFER_MAX)?;
        let bytes = if null { Vec::new() } else { vec![0; len] };
        Some(Self { bytes, null, len })
    }

    fn pointer(&mut self) -> *mut c_void {
        match self.null {
            true => ptr::null_mut(),
            false => self.bytes.as_mut_ptr().cast(),
        }
    }

    fn vector(&mut self) -> libc::iovec {
        libc::iovec {
            iov_base: self.pointer(),
            iov_len: self.len,
        }
    }
}

pub fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, i32> {
    // SAFETY: takes numbers; the descriptor is new and ours.
    unsafe {
        called(libc::socket(family, kind, protocol).into())
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn bind(fd: BorrowedFd<'_>, to: &Address) -> Called {
    // SAFETY: the address is as long as it says.
    called(unsafe { libc::bind(fd.as_raw_fd(), to.pointer(), to.len) }.into())
}

pub fn connect(fd: BorrowedFd<'_>, to: &Address) -> Called {
    // SAFETY: the address is as long as it says.
    called(unsafe { libc::connect(fd.as_raw_fd(), to.pointer(), to.len) }.into())
}

pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> Called {
    // SAFETY: takes numbers.
    called(unsafe { libc::listen(fd.as_raw_fd(), backlog) }.into())
}

pub fn accept(fd: BorrowedFd<'_>, flags: i32) -> Result<OwnedFd, i32> {
    let (none, length) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: no address is asked for; the descriptor is new and ours.
    unsafe {
        called(libc::accept4(fd.as_raw_fd(), none, length, flags).into())
            .map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn shutdown(fd: BorrowedFd<'_>, how: i32) -> Called {
    // SAFETY: takes numbers.
    called(unsafe { libc::shutdown(fd.as_raw_fd(), how) }.into())
}

/// `read`, or `recv` with flags.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut Buffer, flags: Option<i32>) -> Called {
    let (fd, len, to) = (fd.as_raw_fd(), buffer.len, buffer.pointer());
    // SAFETY: the buffer has so many bytes, or is NULL, which the kernel refuses.
    called(match flags {
        None => unsafe { libc::read(fd, to, len) },
        Some(flags) => unsafe { libc::recv(fd, to, len, flags) },
    } as i64)
}

/// `write`, or `sendto` with flags.
pub fn send(
    fd: BorrowedFd<'_>,
    buffer: &mut Buffer,
    flags: Option<i32>,
    to: Option<&Address>,
) -> Called {
    let (fd, len, from) = (fd.as_raw_fd(), buffer.len, buffer.pointer());
    let (address, address_len) = to.map_or((ptr::null(), 0), |to| (to.pointer(), to.len));
    // SAFETY: as for `receive`.
    called(match flags {
        None => unsafe { libc::write(fd, from, len) },
        Some(flags) => unsafe { libc::sendto(fd, from, len, flags, address, address_len) },
    } as i64)
}

/// `readv` or `writev`.
pub fn vectored(fd: BorrowedFd<'_>, buffers: &mut [Buffer], writes: bool) -> Called {
    let vectors: Vec<_> = buffers.iter_mut().map(Buffer::vector).collect();
    let (fd, count) = (fd.as_raw_fd(), vectors.len() as i32);
    // SAFETY: the vectors are those of buffers that live as long.
    called(match writes {
        true => unsafe { libc::writev(fd, vectors.as_ptr(), count) },
        false => unsafe { libc::readv(fd, vectors.as_ptr(), count) },
    } as i64)
}

/// `recvmsg` or `sendmsg`; `control` is memory for control messages.
pub fn message(
    fd: BorrowedFd<'_>,
    buffers: &mut [Buffer],
    control: &mut [u8],
    flags: i32,
    sends: bool,
    to: Option<&Address>,
) -> Called {
    let mut vectors: Vec<_> = buffers.iter_mut().map(Buffer::vector).collect();
    // SAFETY: zeroed is a valid value of this C structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len();
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    if let Some(to) = to {
        header.msg_name = to.pointer().cast_mut().cast();
        header.msg_namelen = to.len;
    }
    let fd = fd.as_raw_fd();
    // SAFETY: everything that the header names lives as long, and is as long as it says.
    called(match sends {
        true => unsafe { libc::sendmsg(fd, &raw const header, flags) },
        false => unsafe { libc::recvmsg(fd, &raw mut header, flags) },
    } as i64)
}

pub fn send_file(
    to: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    offset: Option<i64>,
    len: usize,
) -> Called {
    let mut offset = offset;
    let at = offset.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: the offset lives as long.
    called(unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), at, len) } as i64)
}

pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize, flags: u32) -> Called {
    let none = ptr::null_mut();
    // SAFETY: no offsets are given.
    called(unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, len, flags) } as i64)
}

pub fn pipe() -> Result<[OwnedFd; 2], i32> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills two numbers, of descriptors that are new and ours.
    called(unsafe { libc::pipe(ends.as_mut_ptr()) }.into())?;
    Ok(ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

pub fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8], len: u32) -> Called {
    let len = len.min(value.len() as u32);
    // SAFETY: the value is at least so long.
    called(
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) }.into(),
    )
}

/// How many bytes of `value` the kernel has filled.
pub fn get_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> Called {
    let mut len = value.len() as libc::socklen_t;
    let to = value.as_mut_ptr().cast();
    // SAFETY: the value is as long as it says.
    called(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, to, &raw mut len) }.into())?;
    Ok(len.into())
}

pub fn fcntl(fd: BorrowedFd<'_>, command: i32, value: i32) -> Called {
    // SAFETY: F_GETFL and F_SETFL take numbers.
    called(unsafe { libc::fcntl(fd.as_raw_fd(), command, value) }.into())
}

/// A number that an `ioctl` asks for.
pub fn ioctl(fd: BorrowedFd<'_>, request: u64) -> Called {
    let mut value: i32 = 0;
    // SAFETY: these requests write a number.
    called(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut value) }.into())?;
    Ok(value.into())
}

/// `poll`: how many are ready; the events of each are put beside its descriptor.
pub fn poll(wanted: &mut [(BorrowedFd<'_>, i16, i16)], timeout_ms: i32) -> Called {
    let entry = |&(fd, events, _): &(BorrowedFd<'_>, i16, i16)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let mut entries: Vec<_> = wanted.iter().map(entry).collect();
    // SAFETY: there are as many entries as it says.
    let ready = called(
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, timeout_ms) }.into(),
    )?;
    for (wanted, entry) in wanted.iter_mut().zip(&entries) {
        wanted.2 = entry.revents;
    }
    Ok(ready)
}

pub fn epoll() -> Result<OwnedFd, i32> {
    // SAFETY: takes a number; the descriptor is new and ours.
    unsafe { called(libc::epoll_create1(0).into()).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

pub fn epoll_control(epoll: BorrowedFd<'_>, how: i32, fd: BorrowedFd<'_>, events: u32) -> Called {
    let mut event = libc::epoll_event { events, u64: 0 };
    let fd = fd.as_raw_fd();
    // SAFETY: the kernel reads a structure of ours.
    called(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), how, fd, &raw mut event) }.into())
}

/// How many are ready, and the events of the first.
pub fn epoll_wait(epoll: BorrowedFd<'_>, timeout_ms: i32) -> Result<(i64, u32), i32> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
    // SAFETY: there are as many entries as it says.
    let ready = called(
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 16, timeout_ms) }.into(),
    )?;
    Ok((ready, events[0].events))
}
