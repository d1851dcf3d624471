//! Bulk flows from a to b, and what they cost: bytes received and CPU time spent meanwhile.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::path::{Path, RECEIVER};

/// Bytes per write and per read.
const CHUNK_BYTES: usize = 256 * 1024;

/// Time before the measured one: slow start, and the caches.
const WARMUP: Duration = Duration::from_millis(500);

/// Connections that a run draws at least, one set after the other.
const FLOWS_DRAWN: usize = 8;

/// Shortest measurement of one set.
const DRAW_MIN: Duration = Duration::from_millis(500);

/// What one run cost and brought.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Payload received per second of measured time.
    pub goodput_bps: f64,
    /// CPU time of the whole machine per byte received, in ns.
    pub cpu_ns_per_byte: f64,
}

/// Runs `flows` flows for `measured` after a warm-up. Few flows are run several times over, with new
/// connections: on which CPUs a flow's ends and packets meet is drawn with each, and decides more
/// about its speed than anything else.
pub fn run(path: &Path, flows: usize, measured: Duration) -> Result<Run> {
    let draws = u32::try_from(FLOWS_DRAWN.div_ceil(flows))?;
    let each = (measured / draws).max(DRAW_MIN);
    let (mut bytes, mut elapsed, mut busy) = (0, Duration::ZERO, Duration::ZERO);
    for _ in 0..draws {
        let cost = draw(path, flows, each)?;
        bytes += cost.bytes;
        elapsed += cost.elapsed;
        busy += cost.busy;
    }
    Ok(Run {
        goodput_bps: bytes as f64 * 8.0 / elapsed.as_secs_f64(),
        cpu_ns_per_byte: busy.as_nanos() as f64 / bytes as f64,
    })
}

/// What one set of connections brought and cost.
struct Cost {
    bytes: u64,
    elapsed: Duration,
    busy: Duration,
}

fn draw(path: &Path, flows: usize, measured: Duration) -> Result<Cost> {
    let received = Arc::new(AtomicU64::new(0));
    let pairs = connect(path, flows)?;
    let mut threads = Vec::new();
    let mut ends = Vec::new();
    for (sender, receiver) in pairs {
        ends.push(sender.try_clone()?);
        let counter = Arc::clone(&received);
        threads.push(thread::spawn(move || send(sender)));
        threads.push(thread::spawn(move || receive(receiver, &counter)));
    }
    thread::sleep(WARMUP);
    let (bytes, idle, start) = (received.load(Ordering::Relaxed), idle()?, Instant::now());
    thread::sleep(measured);
    let bytes = received.load(Ordering::Relaxed) - bytes;
    let elapsed = start.elapsed();
    let busy = elapsed * cpus()? - (self::idle()? - idle).min(elapsed * cpus()?);
    for end in ends {
        let _ = end.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
    anyhow::ensure!(bytes > 0, "nothing arrived within {measured:?}");
    Ok(Cost {
        bytes,
        elapsed,
        busy,
    })
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

fn send(mut stream: TcpStream) {
    let chunk = vec![0x5a; CHUNK_BYTES];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: TcpStream, counter: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
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
