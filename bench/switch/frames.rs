//! Frames from one guest to another through the switch in this process, without its threads: for
//! tools that count instructions.
//!
//! ```sh
//! cargo bench -p sluicegate-dataplane --bench frames --no-run
//! valgrind --tool=callgrind --toggle-collect='*frames::sender*' \
//!     target/release/deps/frames-… 2 1000
//! ```
//!
//! The arguments are threads (1 or 2) and bursts of 32 frames of 60 bytes. With two threads each
//! has a guest, and both are polled by turns: `sender` has the work of the one that takes the
//! frames, `receiver` that of the other.

#![allow(clippy::print_stdout)]

use std::{fs::File, sync::Arc};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_dataplane::{
    config::Config,
    engine::Engine,
    ledger::Ledger,
    memory::{Memory, Region, Word},
    mesh,
    offload::HEADER,
    port::Port,
    ring::Addresses,
    vhost::{Change, Setup, device::Device, feature},
};
use sluicegate_vswitch::{filter::Filter, learning::Membership};

const SIZE: u16 = 256;
const BURST: u16 = 32;
const FRAME: usize = 60;
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
    fn load(&self, to: [u8; 6]) {
        let mut bytes = vec![0; HEADER + FRAME];
        bytes[HEADER..HEADER + 6].copy_from_slice(&to);
        bytes[HEADER + 6..HEADER + 12].copy_from_slice(&mac(self.number));
        (0..SIZE).for_each(|slot| self.write(Self::at(1, slot), &bytes));
    }

    /// Frames that came since the last look; their buffers are offered again.
    fn receive(&mut self) -> u16 {
        let had = self.next[0].wrapping_sub(SIZE);
        let count = self.used[0].load().wrapping_sub(had);
        self.offer(0, count);
        count
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

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
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

/// By thread.
fn engines(threads: usize, ledger: &Arc<Ledger>) -> Result<Vec<Engine>> {
    ledger.set_threads(threads);
    let choice = Config::parse("defaults", "")?.choice;
    let engines = mesh::connect(threads)?.into_iter().map(|mesh| {
        let mut engine = Engine::new(choice, [1, 3]);
        engine.keep(Arc::clone(ledger));
        let thread = mesh.me;
        if threads > 1 {
            engine.join(mesh);
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
            engine.add(number, name, port, Membership::default(), Filter::default());
        }
        Ok(engine)
    });
    engines.collect()
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let mut number = |missing: usize| -> Result<usize> {
        Ok(words
            .next()
            .map(|word| word.parse())
            .transpose()?
            .unwrap_or(missing))
    };
    let (threads, bursts) = (number(1)?, number(1000)?);
    ensure!((1..=2).contains(&threads), "one thread or two");
    let state = File::from(memfd_create("state", MemfdFlags::CLOEXEC)?);
    let mut engines = engines(threads, &Ledger::over(state)?)?;
    let mut guests = [Guest::new(0)?, Guest::new(1)?];
    for guest in &mut guests {
        guest.connect(&mut engines[usize::from(guest.number) % threads])?;
        // Addresses are known before frames are counted.
        guest.load([0xff; 6]);
        guest.offer(1, 1);
    }
    for _ in 0..4 {
        for engine in &mut engines {
            engine.poll(1);
        }
    }
    for guest in &mut guests {
        guest.receive();
    }
    guests[0].load(mac(1));
    let mut frames = 0u64;
    for _ in 0..bursts {
        guests[0].offer(1, BURST);
        sender(&mut engines[0]);
        if let Some(other) = engines.get_mut(1) {
            receiver(other);
        }
        frames += u64::from(guests[1].receive());
    }
    println!("{frames} frames with {threads} threads");
    ensure!(
        frames == bursts as u64 * u64::from(BURST),
        "frames are missing"
    );
    Ok(())
}
