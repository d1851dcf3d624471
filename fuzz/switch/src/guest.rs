//! Guests that keep the rules, and the switch that all guests of an input share.

use std::{fs::File, sync::Arc};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_core::abi::HashKey;
use sluicegate_dataplane::{
    engine::{Choice, Engine},
    govern::{Govern, Governing},
    lanes::{Lanes, Priority},
    memory::{Memory, Piece, Region, Word},
    offload::HEADER,
    port::Port,
    ring::Addresses,
    vhost::{Change, Setup, device::Device, feature},
};
use sluicegate_policy::{Policy, PolicyFile};
use sluicegate_vswitch::{
    filter::Filter,
    learning::{LearningLimits, Membership},
    reserved::Reserved,
};

/// Entries of the rings of a guest that keeps the rules.
const SIZE: u16 = 16;
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const RING: u64 = 0x1000;
const BUFFERS: u64 = 2 * RING;
const BUFFER: u64 = 2048;
const BYTES: u64 = BUFFERS + 2 * SIZE as u64 * BUFFER;

/// The VLAN of those who keep the rules, where hostile guests may use any address.
const APART: u16 = 7;

/// Polls after which everything has come to rest.
const RESTS_AFTER: usize = 100_000;

/// A value that follows from a frame's number by a rule that the hostile guests do not know.
fn secret(number: u64) -> u64 {
    (number ^ 0x5bd1_e995_9d1c_b3a7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A file in memory.
pub fn memfd(bytes: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("guest", flags).expect("memfd"));
    ftruncate(&file, bytes).expect("its length");
    file
}

/// The address of a guest.
pub fn mac(port: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8 + 1]
}

/// A ring as its driver has it.
struct Ring {
    base: u64,
    available: Word,
    used: Word,
    next_available: u16,
    next_used: u16,
    /// What the switch has.
    out: [bool; SIZE as usize],
}

/// A guest that keeps the rules.
pub struct Guest {
    port: u16,
    memory: Arc<Memory>,
    /// It receives by the first and sends by the second.
    rings: [Ring; 2],
    /// Frames that it has sent to its friend, and got from it.
    sent: u64,
    got: u64,
    /// Frames of the port behind the honest ones.
    heard: Vec<Vec<u8>>,
}

impl Guest {
    /// On a port.
    pub fn new(port: u16) -> Self {
        let region = Region::map(GUEST, USER, BYTES, memfd(BYTES), 0).expect("a region");
        let memory = Arc::new(Memory::new(vec![Arc::new(region)]).expect("a memory"));
        let ring = |base: u64| {
            let word = |at: u64| {
                let piece = memory.guest(GUEST + base + at, 2).expect("in memory");
                memory.word(piece).expect("aligned")
            };
            Ring {
                base,
                available: word(AVAILABLE + 2),
                used: word(USED + 2),
                next_available: 0,
                next_used: 0,
                out: [false; SIZE as usize],
            }
        };
        let rings = [ring(0), ring(RING)];
        Self {
            port,
            rings,
            memory,
            sent: 0,
            got: 0,
            heard: Vec::new(),
        }
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
        descriptor[12] = if ring == 0 { 2 } else { 0 };
        let (base, next) = (self.rings[ring].base, self.rings[ring].next_available);
        let entry = base + AVAILABLE + 4 + 2 * u64::from(next % SIZE);
        let whole = self.at(base + 16 * u64::from(slot), 16);
        self.memory.write(whole, &descriptor);
        self.memory.write(self.at(entry, 2), &slot.to_le_bytes());
        let ring = &mut self.rings[ring];
        assert!(!ring.out[usize::from(slot)], "broken: a slot is out twice");
        ring.out[usize::from(slot)] = true;
        ring.next_available = next.wrapping_add(1);
        ring.available.store(ring.next_available);
    }

    fn used(&mut self, index: usize) -> Option<(u16, u32)> {
        let ring = &self.rings[index];
        if ring.used.load() == ring.next_used {
            return None;
        }
        let at = ring.base + USED + 4 + 8 * u64::from(ring.next_used % SIZE);
        let bytes: [u8; 8] = self.memory.load(self.at(at, 8));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let ring = &mut self.rings[index];
        ring.next_used = ring.next_used.wrapping_add(1);
        let out = &mut ring.out[word(0) as usize];
        assert!(
            *out,
            "broken: a chain came back that the switch did not have"
        );
        *out = false;
        Some((word(0) as u16, word(4)))
    }

    /// Connects anew, with empty rings.
    pub fn connect(&mut self, engine: &mut Engine) {
        (self.sent, self.got) = (0, 0);
        self.heard.clear();
        for ring in &mut self.rings {
            (ring.next_available, ring.next_used) = (0, 0);
            ring.out = [false; SIZE as usize];
            ring.available.store(0);
            ring.used.store(0);
        }
        for slot in 0..SIZE {
            self.offer(0, slot, BUFFER as u32);
        }
        let mut apply = |change| engine.apply(self.port, change).expect("a change");
        apply(Change::Features(feature::VERSION_1 | feature::MERGEABLE));
        apply(Change::Memory(Arc::clone(&self.memory)));
        for index in 0..2 {
            let base = USER + index as u64 * RING;
            let at = Addresses {
                descriptors: base,
                available: base + AVAILABLE,
                used: base + USED,
            };
            let setup = Setup {
                size: SIZE.into(),
                at,
                base: 0,
                log: None,
                kick: None,
                call: None,
            };
            apply(Change::Start(index, setup));
            apply(Change::Enable(index, true));
        }
    }

    /// Sends a frame if its ring has room: to its friend a numbered one.
    pub fn send(&mut self, to: [u8; 6], is_friend: bool) {
        while self.used(1).is_some() {}
        let Some(slot) = (0..SIZE).find(|&slot| !self.rings[1].out[usize::from(slot)]) else {
            return;
        };
        let number = if is_friend { self.sent } else { u64::MAX };
        self.sent += u64::from(is_friend);
        let mut bytes = vec![0; HEADER];
        bytes.extend([to, mac(self.port)].concat());
        bytes.extend([0x88, 0xb5]); // for experiments (IEEE 802)
        bytes.extend(number.to_be_bytes());
        bytes.extend(secret(number).to_be_bytes());
        bytes.resize(HEADER + 60 + (number % 5) as usize * 300, number as u8);
        let piece = self.at(Self::buffer(1, slot), bytes.len() as u32);
        self.memory.write(piece, &bytes);
        self.offer(1, slot, bytes.len() as u32);
    }

    /// Takes what has come, checks what its friend has sent, and gives the buffers back.
    pub fn receive(&mut self, friend: u16, may_miss: bool) {
        while let Some((head, written)) = self.used(0) {
            let mut bytes = self.take(head, written);
            for _ in 1..u16::from_le_bytes([bytes[10], bytes[11]]) {
                let (head, written) = self.used(0).expect("broken: a part of a frame");
                bytes.extend(self.take(head, written));
            }
            self.check(&bytes[HEADER..], friend, may_miss);
        }
    }

    fn take(&mut self, head: u16, written: u32) -> Vec<u8> {
        let mut bytes = vec![0; written as usize];
        self.memory
            .read(self.at(Self::buffer(0, head), written), &mut bytes);
        self.offer(0, head, BUFFER as u32);
        bytes
    }

    fn check(&mut self, frame: &[u8], friend: u16, may_miss: bool) {
        if frame.len() >= 60 && frame[..6] == mac(self.port) && frame[6..12] == mac(2) {
            self.heard.push(frame.to_vec());
        }
        if frame.len() < 60 || frame[..6] != mac(self.port) || frame[6..12] != mac(friend) {
            return;
        }
        let word = |at: usize| u64::from_be_bytes(frame[at..at + 8].try_into().expect("eight"));
        let number = word(14);
        if frame[12..14] != [0x88, 0xb5] || word(22) != secret(number) {
            panic!("broken: a frame of another sender in the name of an honest one");
        }
        let in_order = number == self.got || may_miss && number > self.got;
        assert!(in_order, "broken: frame {number} came, not {}", self.got);
        assert_eq!(
            frame.len(),
            60 + (number % 5) as usize * 300,
            "broken: length"
        );
        let payload = &frame[30..];
        assert!(
            payload.iter().all(|&byte| byte == number as u8),
            "broken: payload"
        );
        self.got = number + 1;
    }
}

/// What the operator says of a switch, by the bits of a number.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Frames wait, or are dropped where there is no room.
    pub lossless: bool,
    /// Hostile guests are held by filters; else the others have a VLAN of their own.
    pub filters: bool,
    /// Hostile guests are governed.
    pub governs: bool,
    /// Receivers that stand still lose what waits for them.
    pub stalls: bool,
    /// Priorities are told apart; hostile guests choose theirs.
    pub lanes: bool,
}

impl Plan {
    /// From these bits.
    pub fn of(bits: u8) -> Self {
        Self {
            lossless: bits & 1 == 0,
            filters: bits & 2 == 0,
            governs: bits & 4 != 0,
            stalls: bits & 8 != 0,
            lanes: bits & 16 != 0,
        }
    }

    fn choice(self) -> Choice {
        Choice {
            lanes: match (self.lanes, self.lossless) {
                (false, true) => Lanes::LOSSLESS,
                (false, false) => Lanes::LOSSY,
                (true, true) => Lanes::each(u8::MAX),
                (true, false) => Lanes::each(1 << 3),
            },
            queue: 256,
            stall_limit_ns: self.stalls.then_some(1_000_000_000),
            // The switch floods frames to an address that it has forgotten, and flooded frames may
            // be lost.
            learning: LearningLimits {
                ageing_ns: 1 << 62,
                per_port: 8,
            },
            reserved: Reserved::default(),
        }
    }

    /// A switch with two honest ports, 0 and 1, and hostile ones behind, of guests.
    pub fn engine(self, hostile: u16) -> Engine {
        self.engine_of(hostile, || Port::Vhost(Box::new(Device::new(None))))
    }

    /// The same with other hostile ports.
    pub fn engine_of(self, hostile: u16, make: impl Fn() -> Port) -> Engine {
        let mut engine = Engine::new(self.choice(), [1, 3]);
        for port in 0..2 + hostile {
            let device = match port {
                0 | 1 => Port::Vhost(Box::new(Device::new(None))),
                _ => make(),
            };
            let member = match (self.filters, port) {
                (true, _) => Membership::Access(0),
                (false, 0 | 1) => Membership::Access(APART),
                (false, 2) => Membership::Trunk {
                    tagged: vec![5, 6],
                    native: Some(4),
                },
                (false, _) => Membership::Access(5),
            };
            let macs = if self.filters && port > 1 {
                vec![mac(port)]
            } else {
                Vec::new()
            };
            let filter = Filter {
                is_host: !macs.is_empty(),
                macs,
                prefixes: Vec::new(),
                types: Vec::new(),
            };
            engine.add(port, format!("g{port}"), device, member, filter);
            if let Some(bay) = engine.bay_mut(port).filter(|_| self.lanes && port > 1) {
                bay.priority = Priority::Tag;
            }
        }
        if self.governs {
            engine.govern = Some(govern(hostile));
        }
        engine
    }
}

fn govern(hostile: u16) -> Govern {
    thread_local! {
        static GOVERNING: Governing = {
            let text = "[[rule]]\nalgorithm = \"cubic\"\none_sided = \"cubic\"\nmode = \"enforce\"\n";
            let policy = PolicyFile {
                path: "policy.toml".into(),
                text: text.to_owned(),
            };
            Governing::new(&policy, Policy::parse("policy.toml", text).expect("a policy"))
        };
    }
    let mut govern = Govern::new(GOVERNING.with(Governing::clone), HashKey::FIXED);
    for port in 2..2 + hostile {
        govern.attach(port, &format!("g{port}"), "t");
    }
    govern
}

/// Two honest guests, who send to each other.
pub struct Friends {
    guests: [Guest; 2],
    plan: Plan,
}

impl Friends {
    /// At ports 0 and 1.
    pub fn new() -> Self {
        Self {
            guests: [Guest::new(0), Guest::new(1)],
            plan: Plan::of(0),
        }
    }

    /// Connects both to a switch; each hears of the other.
    pub fn begin(&mut self, plan: Plan, engine: &mut Engine) {
        self.plan = plan;
        for guest in &mut self.guests {
            guest.connect(engine);
        }
        for at in 0..2 {
            self.guests[at].send([0xff; 6], false);
            engine.poll(0);
        }
        self.receive();
    }

    fn receive(&mut self) {
        let may_miss = !self.plan.lossless;
        self.guests[0].receive(1, may_miss);
        self.guests[1].receive(0, may_miss);
    }

    /// Both honest guests send to each other, and the first one also to `other`, if there is one.
    pub fn send(&mut self, other: Option<[u8; 6]>) {
        self.guests[0].send(mac(1), true);
        self.guests[1].send(mac(0), true);
        if let Some(to) = other {
            self.guests[0].send(to, false);
        }
    }

    /// What the first of them has got from the port behind them.
    pub fn heard(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.guests[0].heard)
    }

    /// A poll of the switch, after which they take what has come. No honest port is closed, and a
    /// closed one has a reason.
    pub fn poll(&mut self, engine: &mut Engine, now_ns: u64) -> usize {
        let moved = engine.poll(now_ns);
        self.receive();
        for (port, bay) in engine.bays() {
            assert!(port > 1 || bay.closed.is_none(), "broken: {:?}", bay.closed);
            let has_reason = bay.closed.as_ref().is_some_and(|why| !why.is_empty());
            assert!(!bay.ends || has_reason, "broken: closed without a reason");
        }
        moved
    }

    /// Everything comes to rest.
    pub fn rest(&mut self, engine: &mut Engine, now_ns: u64) {
        let polls = (0..RESTS_AFTER).find(|_| self.poll(engine, now_ns) == 0);
        assert!(polls.is_some(), "broken: it never rests");
    }

    /// All hostile guests have gone: everything that was sent has come, and nothing is held.
    pub fn end(&mut self, engine: &mut Engine, now_ns: u64) {
        self.rest(engine, now_ns);
        self.account(engine);
        assert_eq!(
            engine.held(),
            0,
            "broken: the switch holds frames after the guests have gone"
        );
        for (at, guest) in self.guests.iter_mut().enumerate() {
            while guest.used(1).is_some() {}
            let out = guest.rings[1].out.iter().filter(|&&out| out).count();
            assert_eq!(out, 0, "broken: chains that do not come back");
            let bay = engine.bay_mut(at as u16).expect("a port");
            assert!(bay.counters.delivered_frames > 0 || !self.plan.lossless);
        }
        if self.plan.lossless {
            let [a, b] = &self.guests;
            assert_eq!((a.got, b.got), (b.sent, a.sent), "broken: frames are lost");
        }
    }

    /// Every frame that was taken was delivered, was dropped for a reason, or waits. Flooded frames
    /// and segments count several times on the other side, and what enforcement consumes does not.
    pub fn account(&self, engine: &Engine) {
        if !self.plan.filters || self.plan.governs {
            return;
        }
        let sum = |count: fn(&sluicegate_dataplane::count::Counters) -> u64| {
            engine
                .bays()
                .map(|(_, bay)| count(&bay.counters))
                .sum::<u64>()
        };
        let taken = sum(|counters| counters.received_frames);
        let done = sum(|counters| counters.delivered_frames + counters.dropped());
        let waits = engine.held() as u64;
        assert!(taken <= done + waits, "broken: {taken} > {done} + {waits}");
    }
}
