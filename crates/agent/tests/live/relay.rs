//! A link between the hosts that does to packets what bad networks do: two TAPs, and a thread for
//! each direction that loses frames in bursts, repeats them, lets others overtake them and marks
//! them.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Hosts;
use crate::common::until_bridges_forward;

/// linux/if_tun.h
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const IFF_TAP: i16 = 0x0002;
const IFF_NO_PI: i16 = 0x1000;

/// Of ten thousand frames.
const LOST: u64 = 40;
const LOST_AFTER_A_LOSS: u64 = 3000;
const REPEATED: u64 = 20;
const LATE: u64 = 200;
const MARKED: u64 = 100;
const LATE_NS: u64 = 3_000_000;

/// Takes the place of the hosts' link. It ends when this is dropped.
pub struct Relay {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    pub fn between(hosts: &Hosts) -> Self {
        hosts.ip("ha", "link del dev up");
        let taps = ["ha", "hb"].map(|part| {
            let tap = hosts.within(part, || tap("up"));
            hosts.ip(part, "link set dev up master bridge up");
            until_bridges_forward(&hosts.name(part));
            tap
        });
        let end = Arc::new(AtomicBool::new(false));
        let threads = [(0, 1), (1, 0)].into_iter().map(|(from, to)| {
            let (from, to) = (
                taps[from].try_clone().unwrap(),
                taps[to].try_clone().unwrap(),
            );
            let (end, seed) = (Arc::clone(&end), from.as_raw_fd() as u64);
            thread::spawn(move || Direction::new(from, to, seed).run(&end))
        });
        Self {
            threads: threads.collect(),
            end,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said why.
            let _ = thread.join();
        }
    }
}

/// A TAP of this name in the calling thread's namespace.
fn tap(name: &str) -> File {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .expect("this kernel has TAPs");
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = IFF_TAP | IFF_NO_PI;
    // SAFETY: `request` lives until the call returns.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    file
}

struct Direction {
    from: File,
    to: File,
    random: u64,
    losing: bool,
    /// Frames that others overtake, the next one first.
    late: BinaryHeap<Reverse<(Instant, Vec<u8>)>>,
}

impl Direction {
    fn new(from: File, to: File, seed: u64) -> Self {
        Self {
            from,
            to,
            random: 0x9e37_79b9_7f4a_7c15 ^ seed,
            losing: false,
            late: BinaryHeap::new(),
        }
    }

    fn run(mut self, end: &AtomicBool) {
        let mut frame = vec![0; 1 << 16];
        while !end.load(Ordering::Relaxed) {
            if self.readable() {
                let length = self.from.read(&mut frame).expect("a TAP can be read");
                self.pass(&mut frame[..length]);
            }
            while self
                .late
                .peek()
                .is_some_and(|Reverse((due, _))| *due <= Instant::now())
            {
                let Some(Reverse((_, late))) = self.late.pop() else {
                    break;
                };
                self.send(&late);
            }
        }
    }

    /// Waits for a frame, no longer than until a late one is due.
    fn readable(&self) -> bool {
        let left = self
            .late
            .peek()
            .map_or(Duration::from_millis(20), |Reverse((due, _))| {
                due.saturating_duration_since(Instant::now())
            });
        let wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut descriptor = libc::pollfd {
            fd: self.from.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor and a time that outlive the call, no signal mask.
        unsafe { libc::ppoll(&raw mut descriptor, 1, &raw const wait, std::ptr::null()) > 0 }
    }

    fn pass(&mut self, frame: &mut [u8]) {
        let limit = if self.losing { LOST_AFTER_A_LOSS } else { LOST };
        self.losing = self.happens(limit);
        if self.losing {
            return;
        }
        if self.happens(MARKED) {
            mark(frame);
        }
        if self.happens(REPEATED) {
            self.send(frame);
        }
        if self.happens(LATE) {
            let later = Duration::from_nanos(self.draw() % LATE_NS);
            self.late
                .push(Reverse((Instant::now() + later, frame.to_vec())));
        } else {
            self.send(frame);
        }
    }

    /// A frame that a TAP refuses (its interface is gone, or its queue is full) is lost.
    fn send(&mut self, frame: &[u8]) {
        let _ = self.to.write(frame);
    }

    fn happens(&mut self, of_ten_thousand: u64) -> bool {
        self.draw() % 10_000 < of_ten_thousand
    }

    /// Xorshift64.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// CE on an ECN-capable IP packet without a VLAN tag.
fn mark(frame: &mut [u8]) {
    let Some(version) = frame.get(14).map(|byte| byte >> 4) else {
        return;
    };
    match version {
        4 if frame.len() >= 34 && frame[15] & 3 != 0 => {
            let change = u32::from(3 - (frame[15] & 3));
            frame[15] |= 3;
            // RFC 1624: the word has grown by `change`.
            let sum = u32::from(!u16::from_be_bytes([frame[24], frame[25]])) + change;
            let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        6 if frame.len() >= 54 && frame[15] & 0x30 != 0 => frame[15] |= 0x30,
        _ => {}
    }
}
