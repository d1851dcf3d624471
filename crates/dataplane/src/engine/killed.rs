//! A switch that is killed at each of its writes in turn, and what its successor does.

use std::{
    collections::VecDeque,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_vswitch::{
    filter::Filter,
    learning::{LearningLimits, Membership},
    reserved::Reserved,
};

use super::{Choice, Engine};
use crate::{
    lanes::Lanes,
    ledger::Ledger,
    memory::{Memory, Piece, Region, Word, crash},
    mesh,
    offload::{Family, HEADER, Work},
    port::Port,
    ring::Addresses,
    vhost::{Change, Setup, device::Device, feature},
};

const SIZE: u16 = 8;
/// Queue pairs of each guest.
const PAIRS: usize = 2;
const RINGS: usize = 2 * PAIRS;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const RING: u64 = 0x1000;
const BUFFERS: u64 = 0x4000;
const BUFFER: u64 = 4096;
const BYTES: u64 = BUFFERS + RINGS as u64 * SIZE as u64 * BUFFER;
/// Payload of a segment's parts.
const PART: usize = 300;

fn choice() -> Choice {
    Choice {
        lanes: Lanes::LOSSLESS,
        queue: 0,
        stall_limit_ns: None,
        learning: LearningLimits::default(),
        reserved: Reserved::default(),
    }
}

/// A switch on this state with so many ports, whose guests are still to connect.
pub(super) fn successor(state: &File, ports: u16) -> Engine {
    successors(state, ports, 1).remove(0)
}

/// As [`successor`], of so many threads, which have the ports by turns.
fn successors(state: &File, ports: u16, threads: usize) -> Vec<Engine> {
    let ledger = Ledger::over(state.try_clone().expect("a copy")).expect("a ledger");
    ledger.set_threads(threads);
    let meshes = mesh::connect(threads).expect("eventfds");
    let engines = meshes.into_iter().map(|mesh| {
        let mut engine = Engine::new(choice(), [1, 3]);
        engine.keep(Arc::clone(&ledger));
        let thread = mesh.me;
        if threads > 1 {
            engine.join(mesh);
        }
        for number in 0..ports {
            let name = format!("g{number}");
            ledger.claim(number, &name).expect("a name");
            let owner = usize::from(number) % threads;
            let port = match owner == thread {
                true => {
                    let record = ledger.record(number, thread);
                    Port::Vhost(Box::new(Device::new(Some(record))))
                }
                false => Port::Remote(owner),
            };
            let (member, filter) = (Membership::default(), Filter::default());
            engine.add(number, name, port, member, filter);
        }
        engine.remember();
        engine
    });
    engines.collect()
}

pub(super) fn memfd(bytes: u64) -> File {
    let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).expect("memfd"));
    ftruncate(&file, bytes).expect("its length");
    file
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A ring, as its driver has it.
struct Ring {
    base: u64,
    available: Word,
    used: Word,
    next_available: u16,
    next_used: u16,
    free: Vec<u16>,
    /// Heads that the switch has, the oldest first.
    away: VecDeque<u16>,
}

/// A guest.
struct Guest {
    number: u8,
    features: u64,
    file: File,
    memory: Memory,
    rings: Vec<Ring>,
    /// What it has received: sender, its queue pair, and number, in their order.
    got: Vec<(u8, usize, u64)>,
}

impl Guest {
    fn new(number: u8, features: u64) -> Self {
        let file = memfd(BYTES);
        let memory = Self::map(&file);
        let ring = |base: u64| {
            let word = |at: u64| {
                let piece = memory.guest(GUEST + base + at, 2).expect("in memory");
                memory.word(piece).expect("aligned")
            };
            Ring {
                base,
                available: word(0x402),
                used: word(0x802),
                next_available: 0,
                next_used: 0,
                free: (0..SIZE).collect(),
                away: VecDeque::new(),
            }
        };
        let rings = (0..RINGS as u64).map(|index| ring(index * RING));
        let rings = rings.collect();
        let mut guest = Self {
            number,
            features,
            file,
            memory,
            rings,
            got: Vec::new(),
        };
        for slot in 0..SIZE {
            for pair in 0..PAIRS {
                guest.offer(2 * pair, slot, BUFFER as u32);
            }
        }
        guest
    }

    fn map(file: &File) -> Memory {
        let file = file.try_clone().expect("a copy");
        let region = Region::map(GUEST, USER, BYTES, file, 0).expect("a region");
        Memory::new(vec![Arc::new(region)]).expect("a memory")
    }

    fn at(&self, offset: u64, bytes: u32) -> Piece {
        self.memory.guest(GUEST + offset, bytes).expect("in memory")
    }

    fn buffer(ring: usize, slot: u16) -> u64 {
        BUFFERS + (ring as u64 * u64::from(SIZE) + u64::from(slot)) * BUFFER
    }

    fn offer(&mut self, ring: usize, slot: u16, bytes: u32) {
        let mut descriptor = [0; 16];
        let at = GUEST + Self::buffer(ring, slot);
        descriptor[..8].copy_from_slice(&at.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12] = if ring % 2 == 0 { 2 } else { 0 };
        let base = self.rings[ring].base;
        let next = self.rings[ring].next_available;
        self.memory
            .write(self.at(base + 16 * u64::from(slot), 16), &descriptor);
        let entry = base + 0x404 + 2 * u64::from(next % SIZE);
        self.memory.write(self.at(entry, 2), &slot.to_le_bytes());
        self.rings[ring].next_available = next.wrapping_add(1);
        self.rings[ring].available.store(next.wrapping_add(1));
        self.rings[ring].away.push_back(slot);
    }

    fn used(&mut self, ring: usize) -> Option<(u16, u32)> {
        let next = self.rings[ring].next_used;
        let ahead = self.rings[ring].used.load().wrapping_sub(next);
        assert!(ahead <= SIZE, "the used index jumps by {ahead}");
        if ahead == 0 {
            return None;
        }
        let entry = self.rings[ring].base + 0x804 + 8 * u64::from(next % SIZE);
        let mut bytes = [0; 8];
        self.memory.read(self.at(entry, 8), &mut bytes);
        self.rings[ring].next_used = next.wrapping_add(1);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let head = word(0) as u16;
        let oldest = self.rings[ring].away.pop_front();
        if self.features & feature::IN_ORDER != 0 {
            assert_eq!(oldest, Some(head), "chains come back in their order");
        }
        Some((head, word(4)))
    }

    /// Takes back what was sent on a queue pair.
    fn reclaim(&mut self, pair: usize) {
        let ring = 2 * pair + 1;
        while let Some((head, _)) = self.used(ring) {
            let free = &mut self.rings[ring].free;
            assert!(!free.contains(&head), "{head} comes back twice");
            free.push(head);
        }
    }

    fn send(&mut self, pair: usize, header: [u8; HEADER], frame: &[u8]) -> bool {
        self.reclaim(pair);
        let ring = 2 * pair + 1;
        // The oldest of the free ones, so that chains of all ages are in use together.
        if self.rings[ring].free.is_empty() {
            return false;
        }
        let slot = self.rings[ring].free.remove(0);
        let whole = [&header[..], frame].concat();
        let bytes = whole.len() as u32;
        self.memory
            .write(self.at(Self::buffer(ring, slot), bytes), &whole);
        self.offer(ring, slot, bytes);
        true
    }

    /// Sends a numbered frame.
    fn number(&mut self, pair: usize, to: u8, number: u64) -> bool {
        let mut frame = [mac(to), mac(self.number)].concat();
        frame.extend([0x88, 0xb5]);
        frame.extend((number | ((pair as u64) << 56)).to_be_bytes());
        frame.resize(200, number as u8);
        self.send(pair, [0; HEADER], &frame)
    }

    /// Sends a segment of so many parts, the first of which has this number.
    fn segment(&mut self, pair: usize, to: u8, number: u64, parts: u64) -> bool {
        let mut frame = [mac(to), mac(self.number)].concat();
        frame.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([4, 0, 5, 0, 0, 0, 0, 100, 0, 0, 0, 1, 5 << 4, 0x10, 1, 0]);
        frame.extend([0; 4]);
        for part in 0..parts {
            let number = (number + part) | ((pair as u64) << 56);
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(PART, 0);
            frame.extend(payload);
        }
        let work = Work {
            checksum: Some((34, 16)),
            segment: Some((Family::Tcp4, PART as u16, false)),
        };
        self.send(pair, work.header(54), &frame)
    }

    /// Takes at most so many frames from each queue pair.
    fn take(&mut self, most: usize) {
        for pair in 0..PAIRS {
            self.take_from(2 * pair, most);
        }
    }

    fn take_from(&mut self, ring: usize, most: usize) {
        for _ in 0..most {
            let Some((head, written)) = self.used(ring) else {
                return;
            };
            let mut bytes = vec![0; written as usize];
            let at = self.at(Self::buffer(ring, head), written);
            self.memory.read(at, &mut bytes);
            let frame = &bytes[HEADER..];
            let at = if frame[12..14] == [8, 0] { 54 } else { 14 };
            let number = frame[at..at + 8].try_into().expect("eight bytes");
            let number = u64::from_be_bytes(number);
            let pair = (number >> 56) as usize;
            self.got.push((frame[11], pair, number & (u64::MAX >> 8)));
            self.offer(ring, head, BUFFER as u32);
        }
    }

    /// Connects to its port.
    fn connect(&self, engines: &mut [Engine]) {
        let engine = &mut engines[usize::from(self.number) % engines.len()];
        let port = u16::from(self.number);
        let mut apply = |change| engine.apply(port, change).expect("a change");
        apply(Change::Features(self.features));
        apply(Change::Memory(Arc::new(Self::map(&self.file))));
        for index in 0..RINGS {
            let base = USER + self.rings[index].base;
            let setup = Setup {
                size: u32::from(SIZE),
                at: Addresses {
                    descriptors: base,
                    available: base + 0x400,
                    used: base + 0x800,
                },
                // As QEMU does when it has lost the switch.
                base: self.rings[index].used.load(),
                log: None,
                kick: None,
                call: None,
            };
            apply(Change::Start(index, setup));
            apply(Change::Enable(index, true));
        }
    }
}

fn poll(engines: &mut [Engine], now_ns: u64) {
    for engine in engines {
        engine.poll(now_ns);
    }
}

/// Three guests, the file, and a switch while it lives.
struct World {
    file: File,
    guests: Vec<Guest>,
    /// Numbers that each sent to each, by queue pair.
    sent: [[[u64; PAIRS]; 3]; 3],
    /// Kills that are to come: writes from the start of each life.
    kills: Vec<u64>,
    /// By thread; empty while it is dead.
    engines: Vec<Engine>,
    /// Threads of each life, by turns.
    threads: &'static [usize],
    lives: u64,
    /// Writes of the first life.
    writes: u64,
}

impl World {
    fn new(kills: Vec<u64>, features: u64, threads: &'static [usize]) -> Self {
        const PLAIN: u64 = feature::VERSION_1 | feature::MERGEABLE;
        let guest = |number| Guest::new(number, PLAIN | features);
        let guests = (0..3).map(guest).collect();
        let mut world = Self {
            file: memfd(0),
            guests,
            sent: [[[0; PAIRS]; 3]; 3],
            kills,
            engines: Vec::new(),
            threads,
            lives: 0,
            writes: 0,
        };
        // The addresses are known before the first kill.
        let mut engines = world.begin();
        for guest in &world.guests {
            guest.connect(&mut engines);
        }
        for guest in &mut world.guests {
            let mut frame = [[0xff; 6], mac(guest.number)].concat();
            frame.resize(60, 0);
            assert!(guest.send(0, [0; HEADER], &frame));
        }
        for _ in 0..4 {
            poll(&mut engines, 1);
        }
        for guest in &mut world.guests {
            guest.take(2);
            guest.got.clear();
        }
        world.engines = engines;
        world
    }

    /// A switch whose guests are still to connect.
    fn begin(&mut self) -> Vec<Engine> {
        self.engines.clear();
        let threads = self.threads[self.lives as usize % self.threads.len()];
        successors(&self.file, 3, threads)
    }

    /// A life: connects in an order of its own, and polls between.
    fn revive(&mut self) {
        self.lives += 1;
        let lives = self.lives as usize;
        let mut engines = self.begin();
        for at in 0..3 {
            self.guests[(at + lives) % 3].connect(&mut engines);
            if lives % 2 == 1 {
                poll(&mut engines, 2);
            }
        }
        self.engines = engines;
    }

    /// Does something with the switch, which may be killed meanwhile; then it is started again.
    fn run(&mut self, mut act: impl FnMut(&mut World)) {
        loop {
            crash::at(self.kills.last().copied().unwrap_or(u64::MAX));
            let result = catch_unwind(AssertUnwindSafe(|| {
                if self.engines.is_empty() {
                    self.revive();
                }
                act(self);
            }));
            let left = crash::left();
            crash::at(u64::MAX);
            if result.is_ok() {
                if let Some(kill) = self.kills.last_mut() {
                    self.writes += *kill - left;
                    *kill = left;
                }
                return;
            }
            self.kills.pop();
            self.engines.clear();
        }
    }

    fn poll(&mut self) {
        self.run(|world| {
            poll(&mut world.engines, 3);
        });
    }

    fn send(&mut self, from: usize, to: usize, parts: u64) {
        for pair in 0..PAIRS {
            let number = self.sent[from][to][pair];
            let done = match parts {
                1 => self.guests[from].number(pair, to as u8, number),
                _ => self.guests[from].segment(pair, to as u8, number, parts),
            };
            self.sent[from][to][pair] += if done { parts } else { 0 };
        }
    }

    /// Traffic of all kinds: receivers that are slow, frames that pass others, segments that are
    /// cut, and one that fills its ring.
    fn traffic(&mut self) {
        for round in 0..12 {
            for _ in 0..3 {
                self.send(0, 1, 1);
                self.send(0, 2, 1);
                self.send(1, 2, 1);
            }
            // Some of more parts than their receiver has buffers.
            let parts = match round % 6 {
                0 => 5,
                3 => 12,
                _ => 1,
            };
            self.send(2, 0, parts);
            self.poll();
            self.guests[0].take(2);
            self.guests[1].take(1);
            self.guests[2].take(if round % 4 == 3 { 8 } else { 1 });
            self.poll();
        }
        for _ in 0..40 {
            for guest in &mut self.guests {
                guest.take(8);
            }
            self.poll();
        }
    }

    /// Every frame that a ring accepted came once, in its order.
    fn check(&mut self, what: &str) {
        let flows = |at: usize| (at / 3 % 3, at % 3, at / 9);
        for (from, to, pair) in (0..9 * PAIRS).map(flows) {
            let got = self.guests[to].got.iter();
            let got = got.filter(|got| (usize::from(got.0), got.1) == (from, pair));
            let numbers: Vec<_> = got.map(|&(.., number)| number).collect();
            let expected: Vec<_> = (0..self.sent[from][to][pair]).collect();
            assert_eq!(numbers, expected, "from {from} to {to} by {pair}, {what}");
            let guest = &mut self.guests[from];
            guest.reclaim(pair);
            let free = guest.rings[2 * pair + 1].free.len();
            assert_eq!(free, usize::from(SIZE), "{what}");
        }
        assert!(!self.engines.is_empty(), "it lives");
        for engine in &self.engines {
            assert_eq!(engine.held(), 0);
            let dropped = engine.bays().map(|(_, bay)| bay.counters.dropped());
            assert_eq!(dropped.sum::<u64>(), 0, "{what}");
        }
    }
}

#[test]
fn a_kill_at_any_write_keeps_the_order_of_chains() {
    kill_at_any_write(feature::IN_ORDER, &[1]);
}

fn kill_at_any_write(features: u64, threads: &'static [usize]) {
    let mut whole = World::new(vec![u64::MAX - 1], features, threads);
    whole.traffic();
    whole.check("without a kill");
    assert!(whole.sent[0][1][0] > 20 && whole.sent[2][0][1] > 20);
    let writes = whole.writes;
    assert!(writes > 500, "{writes} writes");
    for kill in 0..writes {
        // The successor is killed as well, soon or while it starts.
        let mut world = World::new(vec![(kill * 7) % 97, kill], features, threads);
        world.traffic();
        world.check(&format!("killed at write {kill} of {writes}"));
        assert!(world.kills.len() < 2, "it was killed");
    }
}

#[test]
fn a_kill_at_any_write_loses_and_doubles_nothing() {
    kill_at_any_write(0, &[1]);
}

#[test]
fn nor_does_it_with_two_threads() {
    kill_at_any_write(0, &[2]);
}

#[test]
fn nor_if_successors_have_other_threads() {
    kill_at_any_write(0, &[3, 2, 1, 2]);
}
