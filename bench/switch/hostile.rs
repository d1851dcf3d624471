//! What a third guest that attacks costs two honest ones: the delay of a frame between them, in
//! rounds with and without the attack by turns. Part of `make bench-switch`. Root, Linux, two CPUs:
//! the switch on one, all guests on the other.
//!
//! Frames go one at a time, every 150 us, from one honest guest to the other and back. Their thread
//! goes before the attacker's at once (SCHED_FIFO), so that the delay is the switch's and not that
//! of waiting for the guests' CPU. The switch does not sleep, which gives the shortest delays to
//! compare with.

#![allow(clippy::print_stdout)]

#[path = "../../crates/dataplane/tests/common/mod.rs"]
mod common;
#[path = "../shared/results.rs"]
mod results;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::ftruncate,
    thread::{CpuSet, gettid, sched_setaffinity},
};
use serde_json::json;
use sluicegate_dataplane::offload::{Family, Work};

use common::{Bench, GUEST, Guest, LINUX, PLAIN, SIZE, frame, introduce, mac};

const PAUSE: Duration = Duration::from_micros(150);
/// For the end of a connection that said any bytes.
const GARBAGE_WAITS: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, PartialEq)]
enum Attack {
    None,
    /// A chain that is a loop, and the port connected again when it is closed.
    Loops,
    /// Kicks without anything to send.
    Kicks,
    /// Memory that shrinks below its ring, and the port connected again.
    Shrinks,
    /// Connections that say any bytes.
    Garbage,
    /// Rings full of frames whose offload header lies.
    Lies,
}

impl Attack {
    const ALL: [(Self, &'static str); 6] = [
        (Self::None, "none"),
        (Self::Loops, "descriptor loops"),
        (Self::Kicks, "kicks"),
        (Self::Shrinks, "memory that shrinks"),
        (Self::Garbage, "garbage on its socket"),
        (Self::Lies, "offload headers that lie"),
    ];

    /// Goes on until it is to end; how often it did what it does.
    fn run(self, bench: &Bench, ends: &AtomicBool) -> u64 {
        let mut guest = (self != Self::None).then(|| bench.guest("bad", LINUX));
        let socket = bench.directory.join("bad.sock");
        let mut count = 0;
        while !ends.load(Ordering::Relaxed) {
            match &mut guest {
                None => thread::sleep(Duration::from_millis(1)),
                Some(guest) => self.step(guest, &socket, count),
            }
            count += 1;
            if matches!(self, Self::Loops | Self::Shrinks) {
                drop(guest.take());
                guest = Some(bench.guest("bad", LINUX));
            }
        }
        count
    }

    fn step(self, guest: &mut Guest, socket: &Path, count: u64) {
        match self {
            Self::None => {}
            Self::Loops => {
                let at = GUEST + guest.buffer(1, 0);
                guest.describe(1, 0, at, 100, 1, 1);
                guest.describe(1, 1, at, 100, 1, 0);
                guest.offer_head(0);
            }
            Self::Kicks => (0..1000).for_each(|_| {
                guest.transmit.kick.write(1).ok();
            }),
            Self::Shrinks => {
                guest.describe(1, 0, GUEST + guest.buffer(1, 0), 100, 0, 0);
                ftruncate(&guest.file, 0).expect("shrink");
                guest.transmit.kick.write(1).ok();
            }
            Self::Garbage => {
                let bytes =
                    (0..300u64).map(|at| (((at ^ count).wrapping_mul(0x9e37_79b9)) >> 13) as u8);
                // The next one when the switch has ended this one or waits for more: it rests
                // between connections, and the next attack is not to wait behind all that could be
                // opened.
                if let Ok(mut stream) = UnixStream::connect(socket) {
                    stream.set_read_timeout(Some(GARBAGE_WAITS)).ok();
                    stream.write_all(&bytes.collect::<Vec<_>>()).ok();
                    stream.read_to_end(&mut Vec::new()).ok();
                }
            }
            Self::Lies => {
                let mut header = Work {
                    checksum: Some((34, 16)),
                    segment: Some((Family::Tcp4, 1, false)),
                }
                .header(54);
                header[6] = count as u8;
                let bytes = frame(mac(1), mac(3), count, 1500);
                (0..SIZE).for_each(|_| {
                    guest.send_with(header, &bytes);
                });
            }
        }
    }
}

/// Delays of so many frames, in order of size, ns.
fn delays(guests: &mut [Guest; 2], frames: usize) -> Result<Vec<u64>> {
    let mut delays = Vec::with_capacity(frames);
    for number in 0..frames {
        thread::sleep(PAUSE);
        let (from, to) = (number % 2, 1 - number % 2);
        let bytes = frame(mac(to as u8 + 1), mac(from as u8 + 1), number as u64, 100);
        let start = Instant::now();
        ensure!(guests[from].send(&bytes), "no room");
        // A flooded frame of the attacker may come before it.
        while guests[to].receive().is_none_or(|(_, came)| came != bytes) {
            ensure!(start.elapsed() < common::PATIENCE, "a frame is missing");
        }
        delays.push(start.elapsed().as_nanos() as u64);
    }
    delays.sort_unstable();
    Ok(delays)
}

fn stay(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

fn main() -> Result<()> {
    let (mut rounds, mut frames, mut out) = (7, 2000, None);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} what?"))?;
        match word.as_str() {
            "--rounds" => rounds = value.parse()?,
            "--frames" => frames = value.parse()?,
            "--out" => out = Some(std::path::PathBuf::from(value)),
            _ => bail!("{word}? --out DIR --rounds N --frames N"),
        }
    }
    let table = "cpu = 1\nspin = \"10ms\"";
    let bench = Arc::new(Bench::new(table, &[("a", ""), ("b", ""), ("bad", "")]));
    let mut guests = ["a", "b"].map(|port| bench.guest(port, PLAIN));
    let [a, b] = &mut guests;
    introduce(&mut [(a, 1), (b, 2)]);
    stay(0)?;
    let me = gettid().as_raw_nonzero().to_string();
    let first = Command::new("chrt").args(["-f", "-p", "50", &me]).status();
    ensure!(first?.success(), "chrt: this benchmark needs root");
    let mut found = Attack::ALL.map(|_| Vec::new());
    for _ in 0..rounds {
        for (at, (attack, _)) in Attack::ALL.into_iter().enumerate() {
            let ends = Arc::new(AtomicBool::new(false));
            let (asked, bench) = (Arc::clone(&ends), Arc::clone(&bench));
            let attacker = thread::spawn(move || {
                let me = gettid().as_raw_nonzero().to_string();
                let last = Command::new("chrt").args(["-o", "-p", "0", &me]).status();
                assert!(last.expect("chrt").success());
                attack.run(&bench, &asked)
            });
            let delays = delays(&mut guests, frames);
            ends.store(true, Ordering::Relaxed);
            let Ok(steps) = attacker.join() else {
                bail!("the attacker panicked");
            };
            let delays = delays?;
            let share = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
            found[at].push((share(0.5), share(0.99), steps));
        }
    }
    print(&found);
    results::write(out.as_deref(), document(&found))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// By attack and round: median and 99th percentile in ns, and how often the attacker did it.
type Found = [Vec<(u64, u64, u64)>; Attack::ALL.len()];

/// Of an attack, its 99th percentiles over those of the same rounds without attack.
fn ratios(found: &Found, at: usize) -> Vec<f64> {
    let both = found[at].iter().zip(&found[0]);
    both.map(|(with, without)| with.1 as f64 / without.1 as f64)
        .collect()
}

fn print(found: &Found) {
    println!(
        "{:26}{:>9}{:>9}{:>9}{:>10}",
        "", "p50, us", "p99, us", "ratio", "steps"
    );
    for (at, (_, name)) in Attack::ALL.into_iter().enumerate() {
        let us = |ns: fn(&(u64, u64, u64)) -> u64| {
            median(found[at].iter().map(|it| ns(it) as f64 / 1e3).collect())
        };
        let ratio = median(ratios(found, at));
        let steps: u64 = found[at].iter().map(|it| it.2).sum();
        println!(
            "{name:26}{:>9.1}{:>9.1}{ratio:>9.2}{steps:>10}",
            us(|it| it.0),
            us(|it| it.1)
        );
    }
}

fn document(found: &Found) -> serde_json::Value {
    let each = Attack::ALL.into_iter().enumerate().map(|(at, (_, name))| {
        let rounds = found[at]
            .iter()
            .map(|&(p50, p99, steps)| json!({ "p50_ns": p50, "p99_ns": p99, "steps": steps }));
        json!({ "attack": name, "rounds": rounds.collect::<Vec<_>>(), "ratios": ratios(found, at) })
    });
    json!({ "attacks": each.collect::<Vec<_>>() })
}
