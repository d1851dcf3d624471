//! Frames from one guest to another through the switch in this process, without its threads: for
//! tools that count instructions.
//!
//! ```sh
//! cargo bench -p sluicegate-dataplane --bench frames --no-run
//! valgrind --tool=callgrind --toggle-collect='*frames::sender*' \
//!     target/release/deps/frames-… 2 1000 plain
//! ```
//!
//! The arguments are threads (1 or 2), bursts of 32 frames, what is sent, how many bytes of data a
//! segment has (10), and how many segments an ACK is for (2; at most what a poll brings):
//!
//! - `plain`: frames of 60 bytes from one guest to the other;
//! - `governed`: the same, and each port enforces DCTCP, which is none of theirs;
//! - `tcp`: segments of a connection and ACKs, of which a poll has both; the sender keeps to the
//!   window that it is shown;
//! - `enforced`: the same, and each port enforces DCTCP.
//!
//! With two threads each has a guest, and both are polled by turns: `sender` has the work of the
//! one that takes the frames, `receiver` that of the other.

#![allow(clippy::print_stdout)]

#[allow(dead_code)]
mod stream;

use std::{fs::File, sync::Arc};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_core::abi::HashKey;
use sluicegate_dataplane::{
    config::Config,
    engine::Engine,
    govern::{Govern, Governing},
    ledger::Ledger,
    memory::{Memory, Region, Word},
    mesh,
    offload::HEADER,
    port::Port,
    ring::Addresses,
    vhost::{Change, Setup, device::Device, feature},
};
use sluicegate_policy::PolicyFile;
use sluicegate_vswitch::{filter::Filter, learning::Membership};

use self::stream::{Flags, PATCH, PATCH_AT, Stream, mac, segment, window};

const SIZE: u16 = 256;
const BURST: u16 = 32;
const FRAME: usize = 60;
/// Bytes of a connection's window before an ACK has shown one (RFC 6928).
const FIRST_WINDOW: u64 = 10 * 1460;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const RING: u64 = 0x8000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
const BUFFERS: u64 = 0x10_0000;
const BUFFER: u64 = 2048;
const BYTES: u64 = BUFFERS + 2 * SIZE as u64 * BUFFER;

/// A guest: buffers of its first ring receive, those of the second send.
struct Guest {
    number: u8,
    memory: Arc<Memory>,
    available: [Word; 2],
    used: [Word; 2],
    next: [u16; 2],
}

impl Guest {
    fn new(number: u8) -> Result<Self> {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, BYTES)?;
        let refused = |reason: sluicegate_dataplane::memory::Refused| anyhow!(reason.0);
        let region = Region::map(GUEST, USER, BYTES, file, 0).map_err(refused)?;
        let memory = Memory::new(vec![Arc::new(region)]).map_err(refused)?;
        let word = |at: u64| {
            let piece = memory.guest(GUEST + at, 2).context("in memory")?;
            memory.word(piece).map_err(refused)
        };
        let words = |at: u64| anyhow::Ok([word(at + 2)?, word(RING + at + 2)?]);
        let (available, used) = (words(AVAILABLE)?, words(USED)?);
        let mut guest = Self {
            number,
            memory: Arc::new(memory),
            available,
            used,
            next: [0; 2],
        };
        for slot in 0..SIZE {
            guest.describe(0, slot, BUFFER as u32, 2);
            guest.describe(1, slot, (HEADER + FRAME) as u32, 0);
        }
        guest.offer(0, SIZE);
        Ok(guest)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let piece = self.memory.guest(GUEST + at, bytes.len() as u32);
        self.memory.write(piece.expect("in memory"), bytes);
    }

    fn at(ring: usize, slot: u16) -> u64 {
        BUFFERS + (ring as u64 * u64::from(SIZE) + u64::from(slot)) * BUFFER
    }

    fn describe(&self, ring: usize, slot: u16, bytes: u32, flags: u16) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&(GUEST + Self::at(ring, slot)).to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        self.write(ring as u64 * RING + 16 * u64::from(slot), &descriptor);
    }

    /// Offers the next buffers of a ring.
    fn offer(&mut self, ring: usize, buffers: u16) {
        for _ in 0..buffers {
            let slot = self.next[ring] % SIZE;
            let entry = ring as u64 * RING + AVAILABLE + 4 + 2 * u64::from(slot);
            self.write(entry, &slot.to_le_bytes());
            self.next[ring] = self.next[ring].wrapping_add(1);
        }
        self.available[ring].store(self.next[ring]);
    }

    /// What all of its frames are.
    fn load(&self, frame: &[u8]) {
        let bytes = [&[0; HEADER], frame].concat();
        for slot in 0..SIZE {
            self.describe(1, slot, bytes.len() as u32, 0);
            self.write(Self::at(1, slot), &bytes);
        }
    }

    /// Sends the next frames of a stream.
    fn send(&mut self, frames: u16, stream: &mut Stream) {
        for ahead in 0..frames {
            let slot = self.next[1].wrapping_add(ahead) % SIZE;
            let at = Self::at(1, slot) + (HEADER + PATCH_AT) as u64;
            self.write(at, &stream.next());
        }
        self.offer(1, frames);
    }

    /// Frames that came since the last look; their buffers are offered again.
    fn receive(&mut self) -> u16 {
        let had = self.next[0].wrapping_sub(SIZE);
        let count = self.used[0].load().wrapping_sub(had);
        self.offer(0, count);
        count
    }

    /// The window of the last segment that came.
    fn window(&self) -> u64 {
        let slot = self.next[0].wrapping_sub(1) % SIZE;
        let at = GUEST + Self::at(0, slot) + (HEADER + PATCH_AT) as u64;
        let mut patch = [0; PATCH];
        let piece = self.memory.guest(at, PATCH as u32).expect("in memory");
        self.memory.read(piece, &mut patch);
        window(&patch)
    }

    fn connect(&self, engine: &mut Engine) -> Result<()> {
        let mut apply = |change| {
            let applied = engine.apply(u16::from(self.number), change);
            applied.map_err(|reason| anyhow!(reason))
        };
        apply(Change::Features(feature::VERSION_1 | feature::MERGEABLE))?;
        apply(Change::Memory(Arc::clone(&self.memory)))?;
        for index in 0..2 {
            let base = USER + index as u64 * RING;
            let setup = Setup {
                size: u32::from(SIZE),
                at: Addresses {
                    descriptors: base,
                    available: base + AVAILABLE,
                    used: base + USED,
                },
                base: 0,
                log: None,
                kick: None,
                call: None,
            };
            apply(Change::Start(index, setup))?;
            apply(Change::Enable(index, true))?;
        }
        Ok(())
    }
}

/// A frame without a meaning.
fn frame(from: u8, to: [u8; 6]) -> [u8; FRAME] {
    let mut bytes = [0; FRAME];
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&mac(from));
    bytes
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Plain,
    Governed,
    Tcp,
    Enforced,
}

#[inline(never)]
fn sender(engine: &mut Engine) {
    engine.poll(1);
}

#[inline(never)]
fn receiver(engine: &mut Engine) {
    // Another time, or the linker would make one function of both.
    engine.poll(2);
}

/// Enforcement of DCTCP by one of the threads.
fn govern(thread: usize, threads: usize) -> Result<Govern> {
    let file = PolicyFile {
        path: "policy.toml".into(),
        text: "trusted = [\"0.0.0.0/0\"]\n\
               [[rule]]\nalgorithm = \"dctcp\"\nmode = \"enforce\"\n"
            .to_owned(),
    };
    let (policy, _) = file.policy().map_err(|problems| anyhow!("{problems}"))?;
    let govern = Govern::new(Governing::new(&file, policy), HashKey::FIXED);
    Ok(govern.of_thread(thread, threads))
}

/// By thread.
fn engines(threads: usize, ledger: &Arc<Ledger>, load: Load) -> Result<Vec<Engine>> {
    ledger.set_threads(threads);
    let choice = Config::parse("defaults", "")?.choice;
    let engines = mesh::connect(threads)?.into_iter().map(|mesh| {
        let mut engine = Engine::new(choice, [1, 3]);
        engine.keep(Arc::clone(ledger));
        let thread = mesh.me;
        if threads > 1 {
            engine.join(mesh);
        }
        if matches!(load, Load::Governed | Load::Enforced) {
            engine.govern = Some(govern(thread, threads)?);
        }
        for number in 0..2u16 {
            let (name, owner) = (format!("g{number}"), usize::from(number) % threads);
            ledger.claim(number, &name)?;
            let port = match owner == thread {
                true => {
                    let record = ledger.record(number, thread);
                    Port::Vhost(Box::new(Device::new(Some(record))))
                }
                false => Port::Remote(owner),
            };
            engine.add(
                number,
                name.clone(),
                port,
                Membership::default(),
                Filter::default(),
            );
            if let Some(govern) = engine.govern.as_mut().filter(|_| owner == thread) {
                govern.attach(number, &name, &name);
            }
        }
        Ok(engine)
    });
    engines.collect()
}

/// The switch and its two guests.
struct Bench {
    engines: Vec<Engine>,
    guests: [Guest; 2],
}

impl Bench {
    fn new(threads: usize, load: Load) -> Result<Self> {
        let state = File::from(memfd_create("state", MemfdFlags::CLOEXEC)?);
        let mut engines = engines(threads, &Ledger::over(state)?, load)?;
        let mut guests = [Guest::new(0)?, Guest::new(1)?];
        for guest in &mut guests {
            guest.connect(&mut engines[usize::from(guest.number) % threads])?;
            // Addresses are known before frames are counted.
            guest.load(&frame(guest.number, [0xff; 6]));
            guest.offer(1, 1);
        }
        let mut bench = Self { engines, guests };
        bench.settle();
        Ok(bench)
    }

    /// Polls until all frames have arrived, uncounted.
    fn settle(&mut self) -> [u16; 2] {
        for _ in 0..4 {
            for engine in &mut self.engines {
                engine.poll(1);
            }
        }
        self.guests.each_mut().map(Guest::receive)
    }

    /// One poll of each thread, counted; the frames that each guest has received.
    fn poll(&mut self) -> [u16; 2] {
        sender(&mut self.engines[0]);
        if let Some(other) = self.engines.get_mut(1) {
            receiver(other);
        }
        self.guests.each_mut().map(Guest::receive)
    }

    fn plain(&mut self, bursts: usize) -> Result<u64> {
        self.guests[0].load(&frame(0, mac(1)));
        let mut frames = 0u64;
        for _ in 0..bursts {
            self.guests[0].offer(1, BURST);
            frames += u64::from(self.poll()[1]);
        }
        ensure!(
            frames == bursts as u64 * u64::from(BURST),
            "frames are missing"
        );
        Ok(frames)
    }

    /// A connection from the first guest to the second.
    fn connection(&mut self, bursts: usize, payload: usize, per_ack: u16) -> Result<u64> {
        for (from, flags) in [(0, Flags::Syn), (1, Flags::SynAck), (0, Flags::Ack)] {
            let mut frame = segment(from, 1 - from, &[], (flags, 0))?;
            frame.resize(frame.len().max(60), 0);
            self.guests[usize::from(from)].load(&frame);
            self.guests[usize::from(from)].offer(1, 1);
            let arrived = self.settle();
            ensure!(arrived[usize::from(1 - from)] == 1, "{flags:?} is missing");
        }
        let (mut data, mut acks) = (Stream::data(0, 1, payload, 0)?, Stream::acks(1, 0, 0)?);
        self.guests[0].load(data.frame());
        self.guests[1].load(acks.frame());
        let (mut frames, mut unanswered, mut acknowledged) = (0, 0, 1);
        let (payload, mut shown, mut sent) = (payload as u64, FIRST_WINDOW, 0);
        for _ in 0..bursts {
            let room = shown.saturating_sub(data.position() - acknowledged) / payload;
            let burst = room.min(BURST.into()) as u16;
            self.guests[0].send(burst, &mut data);
            sent += u64::from(burst);
            while unanswered > 0 && (unanswered >= per_ack || per_ack >= BURST) {
                let segments = unanswered.min(per_ack);
                acknowledged += u64::from(segments) * payload;
                acks.acknowledge(acknowledged);
                self.guests[1].send(1, &mut acks);
                unanswered -= segments;
            }
            let [came_back, came] = self.poll();
            unanswered += came;
            if came_back > 0 {
                shown = self.guests[0].window();
            }
            frames += u64::from(came_back) + u64::from(came);
        }
        let out = data.position() - acknowledged;
        ensure!(
            out <= 2 * payload * u64::from(BURST),
            "segments are missing"
        );
        ensure!(sent > bursts as u64, "the connection stands still");
        Ok(frames)
    }
}

fn main() -> Result<()> {
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    let words: Vec<String> = words.collect();
    let number = |at: usize, missing: usize| -> Result<usize> {
        let word = words.get(at).map(|word| word.parse()).transpose()?;
        Ok(word.unwrap_or(missing))
    };
    let (threads, bursts) = (number(0, 1)?, number(1, 1000)?);
    ensure!((1..=2).contains(&threads), "one thread or two");
    let load = match words.get(2).map_or("plain", String::as_str) {
        "plain" => Load::Plain,
        "governed" => Load::Governed,
        "tcp" => Load::Tcp,
        "enforced" => Load::Enforced,
        other => bail!("{other}? plain, governed, tcp or enforced"),
    };
    let mut bench = Bench::new(threads, load)?;
    let frames = match load {
        Load::Plain | Load::Governed => bench.plain(bursts)?,
        Load::Tcp | Load::Enforced => {
            let per_ack = u16::try_from(number(4, 2)?)?;
            ensure!(per_ack > 0, "an ACK is for a segment at least");
            bench.connection(bursts, number(3, 10)?, per_ack)?
        }
    };
    println!("{frames} frames with {threads} threads");
    Ok(())
}
