//! Notifications from and to a driver, none of which makes a worker wait.
//!
//! A frontend makes the descriptors, and can use them and change their flags at any time. A write
//! to an eventfd whose counter is full waits until somebody reads, unless `O_NONBLOCK` is set; both
//! can change between any check and the write. So a worker writes to none:
//!
//! - An eventfd is signalled by the kernel, as vhost does in the kernel: an asynchronous read of
//!   nothing ends at once, and its end adds 1 to the eventfd (`IOCB_FLAG_RESFD` of io_submit(2)).
//!   A full counter stays full, and nothing waits.
//! - A pipe or a socket (User-Mode Linux is called through one of a pair) is written by a thread of
//!   its own. A pipe's lock is held while a process that uses it copies, so not even a write with
//!   `O_NONBLOCK` is safe. The same is done with eventfds where the kernel has no asynchronous
//!   reads.
//!
//! Kicks are read with `RWF_NOWAIT`, whatever the flags of the descriptor are.
//!
//! The crate `vhost` takes descriptors out of messages without close-on-exec:
//! [`hand_down_nothing`] sets it before another program is started.

#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{self, IoSliceMut},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::FileTypeExt,
    },
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{ReadWriteFlags, preadv2, write},
};

/// Threads of a port that write to pipes, or wait in a write that does not end.
const WRITERS_MAX: usize = 64;

/// Counts the threads of a port that write for it: each has a copy.
pub type Writers = Arc<()>;

/// Programs that this process starts get none of its descriptors but the three standard ones.
///
/// # Errors
/// The kernel is older than 5.11, or a filter of system calls forbids it.
pub fn hand_down_nothing() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
    // SAFETY: with this flag nothing is closed here: it changes flags of descriptors, no memory.
    match unsafe { libc::close_range(3, libc::c_uint::MAX, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Eventfd,
    /// A pipe or a socket.
    Stream,
}

fn kind(file: &File) -> Result<Kind, String> {
    let about = file.metadata().map_err(|error| error.to_string())?;
    if about.file_type().is_fifo() || about.file_type().is_socket() {
        return Ok(Kind::Stream);
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let link = link.map_err(|error| format!("a descriptor of unknown kind: {error}"))?;
    match link.to_str() {
        Some("anon_inode:[eventfd]") => Ok(Kind::Eventfd),
        _ => Err("a ring is to be called or kicked through what is no eventfd".to_owned()),
    }
}

/// Where a driver kicks: an eventfd.
#[derive(Debug)]
pub struct Kick(File);

impl Kick {
    /// Of a frontend.
    ///
    /// # Errors
    /// It is no eventfd.
    pub fn new(file: File) -> Result<Self, String> {
        match kind(&file)? {
            Kind::Eventfd => Ok(Self(file)),
            Kind::Stream => Err("a ring is to be kicked through what is no eventfd".to_owned()),
        }
    }

    /// Empties it.
    pub fn clear(&self) {
        // An error means that it is empty.
        let mut count = [0; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        let _ = preadv2(&self.0, &mut into, u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

impl AsFd for Kick {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Calls a driver.
#[derive(Clone, Debug)]
pub struct Call(Arc<Way>);

#[derive(Debug)]
enum Way {
    Signal(&'static Signals, File),
    Write(Writer),
}

impl Call {
    /// Of a frontend. A thread that writes for it is counted among the port's.
    ///
    /// # Errors
    /// It is no eventfd, pipe or socket, or too many of the port's threads still write.
    pub fn new(file: File, writers: &Writers) -> Result<Self, String> {
        let signals = match kind(&file)? {
            Kind::Eventfd => signals(),
            Kind::Stream => None,
        };
        let way = match signals {
            Some(signals) => Way::Signal(signals, file),
            None => Way::Write(Writer::start(file, writers)?),
        };
        Ok(Self(Arc::new(way)))
    }

    /// Calls, and does not wait.
    #[inline(never)]
    pub fn call(&self) {
        match &*self.0 {
            Way::Signal(signals, file) => signals.signal(file),
            Way::Write(writer) => writer.wake(),
        }
    }
}

#[derive(Debug, Default)]
struct Asked {
    call: AtomicBool,
    end: AtomicBool,
}

/// A thread that writes to one descriptor, and may wait there as long as it likes.
#[derive(Debug)]
struct Writer {
    asked: Arc<Asked>,
    thread: Thread,
}

impl Writer {
    fn start(file: File, writers: &Writers) -> Result<Self, String> {
        if Arc::strong_count(writers) > WRITERS_MAX {
            return Err("calls of this port do not end: nobody reads them".to_owned());
        }
        let asked = Arc::new(Asked::default());
        let (of_thread, counted) = (Arc::clone(&asked), Arc::clone(writers));
        let thread = thread::Builder::new()
            .name("call".to_owned())
            .spawn(move || {
                of_thread.serve(&file);
                drop(counted);
            });
        let thread = thread.map_err(|error| format!("no thread for calls: {error}"))?;
        let thread = thread.thread().clone();
        Ok(Self { asked, thread })
    }

    fn wake(&self) {
        if !self.asked.call.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.asked.end.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Asked {
    fn serve(&self, file: &File) {
        loop {
            let ends = self.end.load(Ordering::Acquire);
            if self.call.swap(false, Ordering::AcqRel) {
                // What is full has a call in it already.
                let mut ready = [PollFd::new(file, PollFlags::OUT)];
                let is_ready = poll(&mut ready, Some(&Timespec::default()));
                if is_ready.is_ok_and(|count| count > 0) {
                    let _ = write(file, &1u64.to_ne_bytes());
                }
            } else if ends {
                return;
            } else {
                thread::park();
            }
        }
    }
}

/// A context of asynchronous reads, for the eventfds of all ports.
#[derive(Debug)]
struct Signals {
    context: libc::c_ulong,
    empty: File,
}

/// Reads that may have ended without having been collected.
const CONTEXT_EVENTS: libc::c_uint = 256;

/// Attempts to submit a read; each but the first collects what has ended.
const ATTEMPTS: usize = 16;

/// A request of io_submit(2) (`struct iocb`).
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: [u32; 2],
    operation: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// What io_getevents(2) writes (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event([u64; 4]);

/// `IOCB_CMD_PREAD` and `IOCB_FLAG_RESFD` (linux/aio_abi.h).
const READ: u16 = 0;
const SIGNALS: u32 = 1;

fn signals() -> Option<&'static Signals> {
    static SHARED: OnceLock<Option<Signals>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match Signals::new() {
        Ok(signals) => Some(signals),
        Err(error) => {
            tracing::warn!(%error, "no asynchronous reads (fs.aio-max-nr): threads call drivers");
            None
        }
    });
    shared.as_ref()
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let empty = File::open("/dev/null")?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, which is there.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, CONTEXT_EVENTS, &raw mut context) };
        match made {
            0 => Ok(Self { context, empty }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Adds 1 to an eventfd, as far as it has room.
    fn signal(&self, file: &File) {
        let mut request = Request {
            operation: READ,
            descriptor: self.empty.as_raw_fd() as u32,
            flags: SIGNALS,
            signalled: file.as_raw_fd() as u32,
            ..Request::default()
        };
        for _ in 0..ATTEMPTS {
            let mut list = [&raw mut request];
            // SAFETY: the list has one pointer to a request, which the kernel has copied when the
            // call returns. It reads no bytes into no buffer.
            let submitted =
                unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
            if submitted == 1 {
                return;
            }
            let error = std::io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EAGAIN) {
                tracing::error!(%error, "a driver cannot be called");
                return;
            }
            self.collect();
        }
        tracing::error!("a driver cannot be called: reads of nothing do not end");
    }

    /// Takes the results of reads that have ended, which say nothing.
    fn collect(&self) {
        let mut events = [Event::default(); CONTEXT_EVENTS as usize];
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: there is room for so many events, and the time is a valid structure. With none
        // of it the call waits for nothing.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0 as libc::c_long,
                libc::c_long::from(CONTEXT_EVENTS),
                events.as_mut_ptr(),
                &raw mut now,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::{fd::OwnedFd, unix::net::UnixStream},
        time::Duration,
    };

    use rustix::{
        event::{EventfdFlags, eventfd},
        io::read,
        pipe::pipe,
    };

    use super::*;

    fn count(file: &File) -> u64 {
        let mut bytes = [0; 8];
        read(file, &mut bytes).expect("a count");
        u64::from_ne_bytes(bytes)
    }

    fn event(first: u64) -> File {
        let made = File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        if first > 0 {
            write(&made, &first.to_ne_bytes()).expect("room");
        }
        made
    }

    #[test]
    fn each_call_adds_one_and_a_full_counter_stays_full() {
        let file = event(0);
        let call = Call::new(file.try_clone().expect("a copy"), &Writers::default());
        let call = call.expect("an eventfd");
        // More than the context holds.
        for _ in 0..10_000 {
            call.call();
        }
        assert_eq!(count(&file), 10_000);
        write(&file, &(u64::MAX - 1).to_ne_bytes()).expect("room");
        call.call();
        call.call();
        assert_eq!(count(&file), u64::MAX);
    }

    #[test]
    fn many_threads_call_at_once() {
        let files: Vec<File> = (0..4).map(|_| event(0)).collect();
        thread::scope(|scope| {
            for file in &files {
                let call = Call::new(file.try_clone().expect("a copy"), &Writers::default());
                let call = call.expect("an eventfd");
                scope.spawn(move || (0..5000).for_each(|_| call.call()));
            }
        });
        assert_eq!(files.iter().map(count).collect::<Vec<_>>(), [5000; 4]);
    }

    #[test]
    fn a_pipe_is_written_by_a_thread_which_ends() {
        let (reader, writer) = pipe().expect("a pipe");
        let writers = Writers::default();
        let call = Call::new(File::from(writer), &writers).expect("a pipe");
        call.call();
        let mut reader = File::from(reader);
        reader.read_exact(&mut [0; 8]).expect("a call");
        call.call();
        drop(call);
        // What was asked for is written, and then the pipe is closed.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("its end");
        assert_eq!(rest.len(), 8);
        while Arc::strong_count(&writers) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_socket_is_written_by_a_thread() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let call = Call::new(File::from(OwnedFd::from(writer)), &Writers::default());
        call.expect("a socket").call();
        reader.read_exact(&mut [0; 8]).expect("a call");
    }

    #[test]
    fn a_full_pipe_has_a_call_and_too_many_writers_are_refused() {
        let (_reader, writer) = pipe().expect("a pipe");
        let writer = File::from(writer);
        write(&writer, &[0; 65_536]).expect("room");
        let writers = Writers::default();
        let copy = || writer.try_clone().expect("a copy");
        let calls: Vec<Call> = (0..WRITERS_MAX)
            .map(|_| Call::new(copy(), &writers).expect("a pipe"))
            .collect();
        calls.iter().for_each(Call::call);
        assert!(Call::new(copy(), &writers).is_err());
        drop(calls);
        while Arc::strong_count(&writers) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn kicks_are_read_without_waiting_and_come_through_eventfds_alone() {
        let file = event(3);
        let kick = Kick::new(file.try_clone().expect("a copy")).expect("an eventfd");
        kick.clear();
        kick.clear();
        write(&file, &1u64.to_ne_bytes()).expect("room");
        assert_eq!(count(&file), 1);
        let (reader, _writer): (OwnedFd, OwnedFd) = pipe().expect("a pipe");
        assert!(Kick::new(File::from(reader)).is_err());
        let null = || File::open("/dev/null").expect("it");
        assert!(Kick::new(null()).is_err());
        assert!(Call::new(null(), &Writers::default()).is_err());
    }
}
