//! Bulk flows from a to b that take turns with those of other paths, and what they cost: bytes
//! received and CPU time spent meanwhile.

use std::{
    fs,
    io::{Read, Write},
    iter::Sum,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    ops::Add,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::shared::{
    path::{Path, RECEIVER},
    sides::Side,
};

/// Bytes per write and per read.
const CHUNK_BYTES: usize = 128 * 1024;

/// Longest time that what was sent may take to arrive once the senders pause.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// The traffic and the cost of one or several turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Payload received.
    bytes: u64,
    /// From the first write until everything had arrived.
    elapsed: Duration,
    /// CPU time of the whole machine meanwhile.
    busy: Duration,
}

impl Cost {
    /// Payload received per second.
    pub fn goodput_bps(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.elapsed.as_secs_f64()
    }

    /// CPU time of the whole machine per byte received, in ns.
    pub fn cpu_ns_per_byte(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.bytes as f64
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            elapsed: self.elapsed + other.elapsed,
            busy: self.busy + other.busy,
        }
    }
}

/// Connected flows of one path. They send in their turns only.
pub struct Flows {
    turn: Arc<Turn>,
    received: Arc<AtomicU64>,
    ends: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    /// Connects `flows` flows through `path`, each end a thread on its side's CPUs.
    pub fn open(path: &Path, flows: usize) -> Result<Self> {
        let mut opened = Self {
            turn: Arc::default(),
            received: Arc::default(),
            ends: Vec::new(),
            threads: Vec::new(),
        };
        for (sender, receiver) in connect(path, flows)? {
            opened.ends.push(sender.try_clone()?);
            let turn = Arc::clone(&opened.turn);
            opened.spawn(Side::Sending, move || send(sender, &turn));
            let counter = Arc::clone(&opened.received);
            opened.spawn(Side::Receiving, move || receive(receiver, &counter));
        }
        Ok(opened)
    }

    fn spawn(&mut self, side: Side, work: impl FnOnce() + Send + 'static) {
        self.threads.push(thread::spawn(move || {
            if side.stay().is_ok() {
                work();
            }
        }));
    }

    /// All flows send for `length`; ends when everything has arrived.
    pub fn turn(&self, length: Duration) -> Result<Cost> {
        let (received, idle, start) = (self.received(), idle()?, Instant::now());
        self.turn.start();
        thread::sleep(length);
        self.turn.pause();
        while !self.turn.is_drained(self.ends.len(), self.received()) {
            ensure!(
                start.elapsed() < length + DRAINED_WITHIN,
                "what was sent did not arrive within {DRAINED_WITHIN:?}"
            );
            thread::sleep(Duration::from_micros(100));
        }
        let (elapsed, bytes) = (start.elapsed(), self.received() - received);
        ensure!(bytes > 0, "nothing was sent within {length:?}");
        let all = elapsed * cpus()?;
        Ok(Cost {
            bytes,
            elapsed,
            busy: all - (self::idle()? - idle).min(all),
        })
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
        self.turn.start();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Whether the senders of a path may write, and what they wrote.
#[derive(Default)]
struct Turn {
    ours: AtomicBool,
    waiting: Mutex<usize>,
    started: Condvar,
    sent: AtomicU64,
}

impl Turn {
    fn start(&self) {
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.ours.store(true, Ordering::Release);
        self.started.notify_all();
    }

    fn pause(&self) {
        self.ours.store(false, Ordering::Release);
    }

    /// Returns when the senders may write.
    fn wait(&self) {
        if self.ours.load(Ordering::Acquire) {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        while !self.ours.load(Ordering::Acquire) {
            waiting = self
                .started
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *waiting -= 1;
    }

    /// All of `senders` wait, and what they wrote has been received.
    fn is_drained(&self, senders: usize, received: u64) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting == senders && self.sent.load(Ordering::Acquire) == received
    }
}

fn connect(path: &Path, flows: usize) -> Result<Vec<(TcpStream, TcpStream)>> {
    let listener = path.within("b", || Ok(TcpListener::bind((RECEIVER, 0))?))?;
    let address = listener.local_addr()?;
    let mut pairs = Vec::with_capacity(flows);
    for _ in 0..flows {
        let sender = path
            .within("a", || connect_cubic(address))
            .context("connecting through the path")?;
        pairs.push((sender, listener.accept()?.0));
    }
    Ok(pairs)
}

/// Tenants run CUBIC, not the machine's default: with BBR it would be its pacing that is measured.
fn connect_cubic(to: SocketAddr) -> Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_congestion(&socket, "cubic").context("choosing CUBIC")?;
    rustix::net::connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

fn send(mut stream: TcpStream, turn: &Turn) {
    let chunk = vec![0x5a; CHUNK_BYTES];
    loop {
        turn.wait();
        turn.sent.fetch_add(CHUNK_BYTES as u64, Ordering::AcqRel);
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
}

fn receive(mut stream: TcpStream, counter: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        counter.fetch_add(count as u64, Ordering::AcqRel);
    }
}

/// Idle time of all CPUs since boot, as the kernel accounts it (10 ms units).
fn idle() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let ticks = fields
        .get(3)
        .zip(fields.get(4))
        .context("/proc/stat has no idle time")?;
    Ok(Duration::from_millis((ticks.0 + ticks.1) * 10))
}

fn cpus() -> Result<u32> {
    Ok(u32::try_from(thread::available_parallelism()?.get())?)
}
