//! The log of a process that must go on: lines on their way to standard error.
//!
//! ```text
//!  any thread ── a line, if there is room ──▶ queue ──▶ a thread of its own ──▶ standard error
//! ```
//!
//! A line that cannot be written (the reader has gone, the disk is full) or finds no room in the
//! queue (nothing reads the pipe) is lost. Lost lines are counted, and the next line that can be
//! written is preceded by their number. No caller waits, and none hears of an error.

use std::{
    cell::RefCell,
    io,
    os::fd::AsFd,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use nix::sys::signal::SigSet;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Lines that wait for a slow reader.
const ROOM: usize = 4096;

/// Between two attempts to say how many lines were lost.
const RETRY: Duration = Duration::from_secs(10);

/// How long the writing thread waits where another process has made its output non-blocking.
const WRITABLE_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// How long a process that ends waits for its last lines.
const LAST_WITHIN: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();
static LOST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Where this thread's lines go instead of the queue.
    static ASIDE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Lines go to standard error from now on, by a thread that takes no signals. Without that thread
/// every line is lost.
///
/// # Errors
/// No thread can be had.
pub fn begin() -> Result<()> {
    let log = Log::start(rustix::stdio::stderr(), &LOST, note)?;
    // A second one would only be another thread for the same output.
    let _ = LOG.set(log);
    Ok(())
}

/// Whether [`begin`] was called.
pub fn has_begun() -> bool {
    LOG.get().is_some()
}

/// Lines that were lost so far.
pub fn lost_lines() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Adds a line, which ends with a line feed.
pub fn add(line: &[u8]) {
    match LOG.get() {
        Some(log) => log.add(line),
        None => drop(LOST.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Waits a moment until everything that was added is written or lost: before the process ends, or
/// becomes another program.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_WITHIN);
    }
}

/// A writer of whole lines, each by one call.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = ASIDE.with_borrow_mut(|aside| {
            if let Some(aside) = aside.as_mut() {
                aside.extend_from_slice(line);
            }
            aside.is_some()
        });
        if !kept {
            add(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line about lost ones, in the shape of all others.
fn note(lost: u64) -> Vec<u8> {
    ASIDE.set(Some(Vec::new()));
    tracing::warn!(log_lines_lost = lost, "{lost} log lines were lost");
    ASIDE.take().unwrap_or_default()
}

/// What the thread is given.
enum Entry {
    Line(Vec<u8>),
    /// Dropped when its turn has come.
    Mark(#[expect(dead_code, reason = "its drop is the answer")] SyncSender<()>),
}

/// A queue of lines, and the thread that writes them.
#[derive(Debug)]
struct Log {
    lines: SyncSender<Entry>,
    lost: &'static AtomicU64,
}

impl Log {
    fn start(
        output: impl AsFd + Send + 'static,
        lost: &'static AtomicU64,
        note: fn(u64) -> Vec<u8>,
    ) -> Result<Self> {
        let (lines, queue) = sync_channel(ROOM);
        let writer = Writer {
            output,
            lost,
            note,
            told: lost.load(Ordering::Relaxed),
            is_cut: false,
        };
        // A signal for the process must find the thread that waits for it. A file at its limit
        // (RLIMIT_FSIZE) is an error like others where its signal is blocked.
        let mut mask = SigSet::empty();
        let spawned = SigSet::all()
            .thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK)
            .map(|before| mask = before)
            .map_err(io::Error::from)
            .and_then(|()| {
                thread::Builder::new()
                    .name("log".to_owned())
                    .spawn(move || writer.run(&queue))
            });
        mask.thread_set_mask().context("unblocking signals")?;
        spawned.context("starting the thread that writes the log")?;
        Ok(Self { lines, lost })
    }

    fn add(&self, line: &[u8]) {
        if self.lines.try_send(Entry::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, within: Duration) {
        let (mark, written) = sync_channel(0);
        // Where the queue is full nothing was written for long: it is not waited for.
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Entry::Mark(mark)) {
            return;
        }
        // The mark is never answered, only dropped.
        let _ = written.recv_timeout(within);
    }
}

/// The thread's own things.
struct Writer<O> {
    output: O,
    lost: &'static AtomicU64,
    note: fn(u64) -> Vec<u8>,
    /// Lost lines that were told.
    told: u64,
    /// What was written last ends in the middle of a line.
    is_cut: bool,
}

impl<O: AsFd> Writer<O> {
    fn run(mut self, queue: &Receiver<Entry>) {
        loop {
            let owes = self.lost.load(Ordering::Relaxed) > self.told;
            let next = match owes {
                true => queue.recv_timeout(RETRY),
                false => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(Entry::Line(line)) => {
                    self.tell_lost();
                    if self.put(&line).is_err() {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(Entry::Mark(_)) | Err(RecvTimeoutError::Timeout) => self.tell_lost(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Says how many lines were lost since that was said last, if it can be written.
    fn tell_lost(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.told && self.put(&(self.note)(lost - self.told)).is_ok() {
            self.told = lost;
        }
    }

    fn put(&mut self, line: &[u8]) -> Result<(), Errno> {
        if self.is_cut {
            self.write_all(b"\n")?;
            self.is_cut = false;
        }
        self.write_all(line)
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.output, rest) {
                Ok(length) if length > 0 => rest = &rest[length..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.becomes_writable() => {}
                failed => {
                    self.is_cut |= rest.len() < bytes.len();
                    return Err(failed.err().unwrap_or(Errno::IO));
                }
            }
        }
        Ok(())
    }

    fn becomes_writable(&self) -> bool {
        let mut output = [PollFd::new(&self.output, PollFlags::OUT)];
        poll(&mut output, Some(&WRITABLE_WITHIN)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Write},
    };

    fn counter() -> &'static AtomicU64 {
        Box::leak(Box::default())
    }

    fn said(lost: u64) -> Vec<u8> {
        format!("{lost} lost\n").into_bytes()
    }

    fn piped(lost: &'static AtomicU64) -> (File, Log) {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (File::from(reader), Log::start(writer, lost, said).unwrap())
    }

    #[test]
    fn lines_come_out_in_their_order_before_a_flush_ends() {
        let lost = counter();
        let (mut reader, log) = piped(lost);
        (0..100).for_each(|number| log.add(format!("line {number}\n").as_bytes()));
        log.flush(Duration::from_secs(20));
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let wanted: String = (0..100).map(|number| format!("line {number}\n")).collect();
        assert_eq!((text, lost.load(Ordering::Relaxed)), (wanted, 0));
    }

    #[test]
    fn a_reader_that_has_gone_or_a_full_disk_costs_the_lines_alone() {
        let lost = counter();
        let (reader, log) = piped(lost);
        drop(reader);
        log.add(b"to none\n");
        log.flush(Duration::from_secs(20));
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let lost = counter();
        let log = Log::start(full, lost, said).unwrap();
        (0..3).for_each(|_| log.add(b"no room\n"));
        log.flush(Duration::from_secs(20));
        assert_eq!(lost.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_pipe_that_nothing_reads_holds_no_caller_up_and_its_lost_lines_are_told_later() {
        let lost = counter();
        let (mut reader, log) = piped(lost);
        let line = [vec![b'x'; 99], vec![b'\n']].concat();
        // More than the pipe and the queue take.
        let lines = 3 * ROOM as u64;
        (0..lines).for_each(|_| log.add(&line));
        log.flush(Duration::ZERO);
        let gone = lost.load(Ordering::Relaxed);
        assert!(gone > 0);
        let reading = thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).unwrap();
            text
        });
        drop(log);
        let text = String::from_utf8(reading.join().unwrap()).unwrap();
        assert_eq!(text.matches("xxx\n").count() as u64, lines - gone);
        let told = text.lines().filter_map(|line| line.strip_suffix(" lost"));
        let told: u64 = told.map(|number| number.parse::<u64>().unwrap()).sum();
        assert_eq!(told, gone);
    }

    #[test]
    fn a_line_that_was_cut_does_not_spoil_the_next() {
        let lost = counter();
        let (reader, output) = rustix::pipe::pipe().unwrap();
        let mut writer = Writer {
            output,
            lost,
            note: said,
            told: 0,
            is_cut: true,
        };
        lost.store(2, Ordering::Relaxed);
        writer.tell_lost();
        writer.put(b"next\n").unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "\n2 lost\nnext\n");
    }

    #[test]
    fn a_writer_takes_each_line_whole_before_there_is_a_log() {
        let before = lost_lines();
        assert!(!has_begun());
        Lines.write_all(b"a line\n").unwrap();
        assert_eq!(lost_lines(), before + 1);
    }
}
