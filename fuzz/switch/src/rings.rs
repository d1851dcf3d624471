//! Two hostile guests write whatever they like into their rings and their memory, between any two
//! steps of the switch, and change, stop and start their rings. What must hold:
//!
//! - an honest guest gets each frame of another one once and in order, and its chains come back;
//! - no honest port is closed, and a hostile one only with a reason;
//! - nothing is written beside a region; what was taken is delivered, dropped or waits;
//! - the switch comes to rest, and holds nothing when the hostile guests have gone.

use std::{fs::File, os::unix::fs::FileExt, sync::Arc, time::Duration};

use rustix::fs::ftruncate;
use sluicegate_dataplane::{
    engine::Engine,
    memory::{Log, Memory, Region},
    offload::HEADER,
    ring::Addresses,
    vhost::{Change, PAIRS_MAX, Setup, feature},
};

use crate::{
    guest::{Friends, Plan, mac, memfd},
    input::Input,
};

const HOSTILE: u16 = 2;
/// Rings of a hostile guest, and how far apart they are.
const RINGS: usize = 4;
const RING: u64 = 0x1000;
const AVAILABLE: u64 = 0x800;
const USED: u64 = 0xa00;
const USER: u64 = 0x7e00_0000_0000;

/// A region: address, length, offset in its file.
struct Layout {
    guest: u64,
    bytes: u64,
    offset: u64,
}

/// Rings; a length that is no page; a part of a file; room for the longest frames.
const REGIONS: [Layout; 4] = [
    Layout {
        guest: 0x1_0000,
        bytes: 0x4000,
        offset: 0,
    },
    Layout {
        guest: 0x2_0000,
        bytes: 0x2ff0,
        offset: 0,
    },
    Layout {
        guest: 0x2_3000,
        bytes: 0x1000,
        offset: 0x1000,
    },
    Layout {
        guest: 0x10_0000,
        bytes: 0x1_1000,
        offset: 0,
    },
];

/// Behind the second region, on its last page.
const BESIDE: [u8; 16] = [0xa5; 16];

/// Time that an input may take of a CPU.
const LONGEST: Duration = Duration::from_secs(5);

/// The flags of descriptors.
const NEXT: u16 = 1;
const WRITE: u16 = 2;

struct Hostile {
    port: u16,
    memory: Arc<Memory>,
    files: Vec<File>,
    has_shrunk: bool,
    /// As its frontend has set them up.
    features: u64,
    sizes: [u16; RINGS],
    bases: [u16; RINGS],
    runs: [bool; RINGS],
    /// What its driver would write next.
    next: [u16; RINGS],
}

impl Hostile {
    fn new(port: u16) -> Self {
        let (memory, files) = regions();
        Self {
            port,
            memory,
            files,
            has_shrunk: false,
            features: 0,
            sizes: [0; RINGS],
            bases: [0; RINGS],
            runs: [false; RINGS],
            next: [0; RINGS],
        }
    }

    /// All of its memory is zero.
    fn clear(&mut self) {
        if std::mem::take(&mut self.has_shrunk) {
            (self.memory, self.files) = regions();
        }
        static ZERO: [u8; REGIONS[3].bytes as usize] = [0; REGIONS[3].bytes as usize];
        for region in &REGIONS {
            let all = self.memory.guest(region.guest, region.bytes as u32);
            let bytes = &ZERO[..region.bytes as usize];
            self.memory.write(all.expect("a region"), bytes);
        }
        (self.runs, self.next, self.bases) = Default::default();
    }

    /// Nothing was written beside a region.
    fn check(&self) {
        let mut beside = BESIDE;
        if !self.has_shrunk {
            let read = self.files[1].read_exact_at(&mut beside, REGIONS[1].bytes);
            read.expect("it has them");
        }
        assert_eq!(beside, BESIDE, "broken: a write beside a region");
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        if let Some(piece) = self.memory.guest(address, bytes.len() as u32) {
            self.memory.write(piece, bytes);
        }
    }

    fn apply(&mut self, engine: &mut Engine, change: Change) -> bool {
        engine.apply(self.port, change).is_ok()
    }

    fn connect(&mut self, engine: &mut Engine, input: &mut Input<'_>) {
        const BASIC: u64 = feature::VERSION_1 | feature::MERGEABLE | feature::PROTOCOL;
        let how = input.byte();
        self.features = match how % 4 {
            0 => BASIC,
            1 => feature::OFFERED | feature::MULTIQUEUE,
            2 => feature::EVENT_INDEX,
            _ => input.word() & (feature::OFFERED | feature::MULTIQUEUE),
        };
        let features = self.features;
        self.apply(engine, Change::Features(features));
        let memory = Arc::clone(&self.memory);
        self.apply(engine, Change::Memory(memory));
        let size = 1 << (how >> 2 & 7);
        let rings = if how & 0x80 == 0 { 2 } else { RINGS };
        for index in 0..rings {
            self.start(engine, index, size, index as u64 * RING);
            self.apply(engine, Change::Enable(index, true));
        }
    }

    /// Starts a ring, as a session does: one that runs stops before.
    fn start(&mut self, engine: &mut Engine, index: usize, size: u16, at: u64) {
        self.stop(engine, index);
        let user = (USER + REGIONS[0].guest).wrapping_add(at);
        let setup = Setup {
            size: size.into(),
            at: Addresses {
                descriptors: user,
                available: user.wrapping_add(AVAILABLE),
                used: user.wrapping_add(USED),
            },
            base: self.bases[index],
            log: None,
            kick: None,
            call: None,
        };
        self.sizes[index] = size.max(1);
        self.next[index] = self.bases[index];
        self.runs[index] = self.apply(engine, Change::Start(index, setup));
    }

    fn stop(&mut self, engine: &mut Engine, index: usize) {
        if !std::mem::take(&mut self.runs[index]) {
            return;
        }
        if let Ok(base) = engine.apply(self.port, Change::Stop(index)) {
            self.bases[index] = base;
        }
    }

    fn gone(&mut self, engine: &mut Engine) {
        self.apply(engine, Change::Gone(None));
        (self.runs, self.bases) = Default::default();
    }

    fn describe(&self, ring: usize, slot: u16, at: u64, bytes: u32, (flags, next): (u16, u16)) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&at.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        descriptor[14..].copy_from_slice(&next.to_le_bytes());
        let base = REGIONS[0].guest + ring as u64 * RING;
        self.write(base + 16 * u64::from(slot), &descriptor);
    }

    /// Makes a chain available.
    fn offer(&mut self, ring: usize, head: u16) {
        let base = REGIONS[0].guest + ring as u64 * RING + AVAILABLE;
        let slot = self.next[ring] % self.sizes[ring].max(1);
        self.write(base + 4 + 2 * u64::from(slot), &head.to_le_bytes());
        self.jump(ring, self.next[ring].wrapping_add(1));
    }

    /// Writes its index.
    fn jump(&mut self, ring: usize, index: u16) {
        let base = REGIONS[0].guest + ring as u64 * RING + AVAILABLE;
        self.next[ring] = index;
        self.write(base + 2, &index.to_le_bytes());
    }

    /// An address by turns: in a region, at its end, anywhere.
    fn address(input: &mut Input<'_>) -> u64 {
        let how = input.byte();
        let region = &REGIONS[usize::from(how & 3)];
        match how >> 2 & 3 {
            0 | 1 => region.guest + u64::from(input.half()) % region.bytes,
            2 => region.guest + region.bytes - u64::from(input.byte()),
            _ => input.word(),
        }
    }

    fn length(input: &mut Input<'_>) -> u32 {
        match input.byte() % 4 {
            0 | 1 => input.byte().into(),
            2 => input.half().into(),
            _ => input.word() as u32,
        }
    }

    /// Receive buffers.
    fn refill(&mut self, input: &mut Input<'_>) {
        let (ring, count) = (usize::from(input.byte() & 2), input.byte() % 65);
        let bytes = Self::length(input);
        for _ in 0..count {
            let slot = self.next[ring] % self.sizes[ring].max(1);
            let at = REGIONS[3].guest + u64::from(slot % 64) * 0x800;
            self.describe(ring, slot, at, bytes, (WRITE, 0));
            self.offer(ring, slot);
        }
    }

    /// A frame with a header before it, in one buffer or two.
    fn frame(&mut self, input: &mut Input<'_>) {
        let (how, what) = (input.byte(), input.byte());
        let mut bytes = header(input, how);
        let other = HOSTILE + (self.port + 1 - HOSTILE) % 2;
        let to = match what & 7 {
            0 => mac(0),
            1 => mac(1),
            2 => [0xff; 6],
            3 => mac(40),
            _ => mac(other),
        };
        let from = if what & 8 == 0 {
            mac(self.port)
        } else {
            mac(0)
        };
        bytes.extend([to, from].concat());
        if what & 0x10 != 0 {
            bytes.extend([0x81, 0, 0, input.byte() % 8]);
        }
        if what & 0x20 != 0 {
            bytes.extend(input.bytes(48));
        } else {
            bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0]);
            bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            bytes.extend([4, 0, 5, 0, 0, 0, 0, input.byte(), 0, 0, 0, input.byte()]);
            bytes.extend([5 << 4, input.byte(), 1, 0, 0, 0, 0, 0]);
        }
        // The longest take as much time as a hundred others.
        let length = match (what >> 6, input.half()) {
            (0, _) => 72,
            (1, any) => u32::from(any % 2000),
            (3, any) if any & 15 == 15 => 0xffff + u32::from(any >> 8),
            (_, any) => u32::from(any % 5000),
        };
        let at = REGIONS[3].guest + u64::from(input.byte()) * 8;
        self.write(at, &bytes);
        self.send(at, length, input);
    }

    fn send(&mut self, at: u64, length: u32, input: &mut Input<'_>) {
        let how = input.byte();
        let ring = 1 + usize::from(how & 2);
        let slot = self.next[ring] % self.sizes[ring].max(1);
        if how & 4 != 0 && self.sizes[ring] > 1 {
            let first = u32::from(input.byte()).min(length);
            let next = (slot + 1) % self.sizes[ring];
            self.describe(ring, slot, at, first, (NEXT, next));
            self.describe(ring, next, at + u64::from(first), length - first, (0, 0));
        } else {
            self.describe(ring, slot, at, length, (0, 0));
        }
        for _ in 0..=how >> 7 {
            self.offer(ring, slot);
        }
    }
}

/// The header before a frame: none, of a checksum, of a segment, or any.
fn header(input: &mut Input<'_>, how: u8) -> Vec<u8> {
    let mut header = vec![0; HEADER];
    match how & 3 {
        0 => {}
        1 => {
            header[0] = 1;
            (header[6], header[8]) = (34, 16);
        }
        2 => {
            (header[0], header[1], header[2]) = (1, if how & 4 == 0 { 1 } else { 4 }, 54);
            header[4..6].copy_from_slice(&(8 + u16::from(input.byte()) * 8).to_le_bytes());
            (header[6], header[8]) = (34, 16);
        }
        _ => {
            let any = input.bytes(HEADER);
            header[..any.len()].copy_from_slice(any);
        }
    }
    header
}

fn regions() -> (Arc<Memory>, Vec<File>) {
    let each = REGIONS.iter().map(|region| {
        let file = memfd((region.offset + region.bytes).next_multiple_of(4096));
        let copy = file.try_clone().expect("a copy");
        let user = USER + region.guest;
        let mapped = Region::map(region.guest, user, region.bytes, copy, region.offset);
        (Arc::new(mapped.expect("a region")), file)
    });
    let (regions, files): (Vec<_>, Vec<File>) = each.unzip();
    let written = files[1].write_all_at(&BESIDE, REGIONS[1].bytes);
    written.expect("it has room");
    (Arc::new(Memory::new(regions).expect("a memory")), files)
}

/// What outlives an input, for its mappings cost more than that.
pub struct World {
    friends: Friends,
    hostile: [Hostile; 2],
    logs: Vec<Arc<Log>>,
}

impl World {
    /// With all its memory.
    pub fn new() -> Self {
        let log = |bytes| Arc::new(Log::map(bytes, memfd(4096), 0).expect("a log"));
        Self {
            friends: Friends::new(),
            hostile: [Hostile::new(HOSTILE), Hostile::new(HOSTILE + 1)],
            logs: vec![log(4096), log(3)],
        }
    }

    /// One input.
    pub fn run(&mut self, mut input: Input<'_>) {
        let begin = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let plan = Plan::of(input.byte());
        let mut engine = plan.engine(2);
        let mut now_ns = 1;
        self.friends.begin(plan, &mut engine);
        for hostile in &mut self.hostile {
            hostile.clear();
            hostile.connect(&mut engine, &mut input);
        }
        while input.has_more() {
            self.step(&mut engine, &mut input, &mut now_ns);
        }
        self.friends.send(None);
        self.friends.rest(&mut engine, now_ns);
        self.friends.account(&engine);
        for hostile in &mut self.hostile {
            hostile.gone(&mut engine);
            hostile.check();
        }
        engine.housekeep();
        self.friends.end(&mut engine, now_ns);
        let end = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let took = Duration::try_from(end - begin).unwrap_or_default();
        assert!(took < LONGEST, "broken: it takes {took:?} of a CPU");
    }

    fn step(&mut self, engine: &mut Engine, input: &mut Input<'_>, now_ns: &mut u64) {
        let operation = input.byte();
        let hostile = &mut self.hostile[usize::from(operation >> 7)];
        let ring = usize::from(operation >> 5 & 3);
        match operation & 31 {
            0..=3 => drop(self.friends.poll(engine, *now_ns)),
            4 => {
                *now_ns += 1 << (input.byte() % 40);
                self.friends.poll(engine, *now_ns);
            }
            5..=8 => hostile.frame(input),
            9 | 10 => hostile.refill(input),
            11 => {
                let at = Hostile::address(input);
                let count = usize::from(input.byte() % 33);
                hostile.write(at, input.bytes(count));
            }
            12 | 13 => {
                let (slot, at) = (u16::from(input.byte()), Hostile::address(input));
                let bytes = Hostile::length(input);
                let (flags, next) = (input.byte() & 7, input.byte());
                hostile.describe(ring, slot, at, bytes, (flags.into(), next.into()));
            }
            14 | 15 => hostile.offer(ring, input.byte().into()),
            16 => {
                let by = i16::from(input.byte() as i8) as u16;
                hostile.jump(ring, hostile.next[ring].wrapping_add(by));
            }
            17 => hostile.jump(ring, input.half()),
            18 => {
                // Flags, indices of events, the used ring.
                let at = REGIONS[0].guest + ring as u64 * RING + AVAILABLE;
                let last = u64::from(hostile.sizes[ring]);
                let places = [0, 4 + 2 * last, USED - AVAILABLE, USED - AVAILABLE + 2];
                let place = places[usize::from(input.byte() % 4)];
                hostile.write(at + place, &input.half().to_le_bytes());
            }
            19 | 20 => {
                let others = [None, Some(mac(40)), Some(mac(2)), Some(mac(3))];
                self.friends.send(others[ring]);
                self.friends.poll(engine, *now_ns);
            }
            21 => {
                let index = usize::from(input.byte()) % (2 * PAIRS_MAX);
                hostile.apply(engine, Change::Enable(index, operation & 32 == 0));
            }
            22 => hostile.stop(engine, ring),
            23 => {
                let how = input.byte();
                let size = 1 << (how & 7);
                let at = if how & 8 == 0 {
                    ring as u64 * RING
                } else {
                    input.word()
                };
                if how & 16 != 0 {
                    hostile.bases[ring] = input.half();
                }
                hostile.start(engine, ring, size, at);
            }
            24 => {
                hostile.gone(engine);
                hostile.connect(engine, input);
            }
            25 => {
                let kept = usize::from(input.byte() % 5);
                let some = hostile.memory.regions()[..kept].to_vec();
                let memory = Memory::new(some).expect("a memory");
                hostile.apply(engine, Change::Memory(Arc::new(memory)));
            }
            26 => {
                hostile.features = input.word() & (feature::OFFERED | feature::MULTIQUEUE);
                let features = hostile.features;
                hostile.apply(engine, Change::Features(features));
            }
            27 => {
                engine.arm();
                engine.disarm();
            }
            28 => engine.housekeep(),
            29 => {
                let log = Arc::clone(&self.logs[ring & 1]);
                hostile.apply(engine, Change::Log(log));
                let at = Some(input.word()).filter(|_| ring & 2 == 0);
                hostile.apply(engine, Change::LogRing(ring, at));
            }
            30 => {
                // The place of a ring in another: a table of its own, or itself.
                let at = REGIONS[0].guest + ring as u64 * RING + u64::from(input.byte()) * 16;
                let slot = u16::from(input.byte());
                let bytes = u32::from(input.byte()) * 16;
                hostile.describe(ring, slot, at, bytes, (4, 0));
                hostile.offer(ring, slot);
            }
            _ => {
                if input.byte() % 16 == 0 {
                    hostile.has_shrunk = true;
                    let bytes = u64::from(input.byte() % 4) * 4096;
                    ftruncate(&hostile.files[ring], bytes).expect("it shrinks");
                }
            }
        }
    }
}
