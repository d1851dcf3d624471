//! A successor whose guests have changed what their predecessor took, or are governed.

use std::{ops::Range, path::PathBuf, sync::Arc};

use sluicegate_core::abi::HashKey;
use sluicegate_policy::{Policy, PolicyFile};

use super::{
    Engine,
    killed::{memfd, successor},
};
use crate::{
    govern::{Govern, Governing},
    handover::Copy,
    lanes::Lane,
    memory::{Memory, Piece, Region},
    offload::{HEADER, Work},
    ring::{Addresses, SIZE_MAX},
    vhost::{Change, Setup, feature},
};

const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
/// From one ring to the next, and where its entries are: that much for the longest.
pub(super) const RING: u64 = 0x10_0000;
const AVAILABLE: u64 = 0x8_0000;
pub(super) const USED: u64 = 0xa_0000;
/// Behind the rings of two pairs.
pub(super) const BUFFER: u64 = 4 * RING;
const BYTES: u64 = 5 * RING;
const SHORT: u32 = 8;
/// The flag of a descriptor that the switch writes into.
pub(super) const WRITE: u8 = 2;

/// A guest with one buffer, to which all its descriptors point.
pub(super) struct Guest {
    number: u16,
    /// Entries of its rings.
    sizes: [u32; 2],
    pub memory: Arc<Memory>,
}

impl Guest {
    pub fn new(number: u16, sizes: [u32; 2]) -> Self {
        let region = Region::map(GUEST, USER, BYTES, memfd(BYTES), 0).expect("a region");
        let memory = Memory::new(vec![Arc::new(region)]).expect("a memory");
        Self {
            number,
            sizes,
            memory: Arc::new(memory),
        }
    }

    pub fn at(&self, offset: u64, bytes: u32) -> Piece {
        self.memory.guest(GUEST + offset, bytes).expect("in memory")
    }

    fn describe(&self, ring: u64, slot: u32, bytes: u32, flags: u8) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&(GUEST + BUFFER).to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12] = flags;
        let at = ring * RING + 16 * u64::from(slot);
        self.memory.write(self.at(at, 16), &descriptor);
    }

    /// Makes its first descriptors of a ring available.
    pub fn offer(&self, ring: u64, count: u32, bytes: u32, flags: u8) {
        for slot in 0..count {
            self.describe(ring, slot, bytes, flags);
            let at = ring * RING + AVAILABLE + 4 + 2 * u64::from(slot);
            let head = (slot as u16).to_le_bytes();
            self.memory.write(self.at(at, 2), &head);
        }
        let index = self.memory.word(self.at(ring * RING + AVAILABLE + 2, 2));
        index.expect("aligned").store(count as u16);
    }

    /// Sends a frame with so many of its descriptors.
    pub fn send(&self, to: [u8; 6], count: u32) {
        let mut bytes = vec![0; HEADER];
        bytes.extend([to, mac(self.number)].concat());
        bytes.resize(HEADER + 60, 0);
        let piece = self.at(BUFFER, bytes.len() as u32);
        self.memory.write(piece, &bytes);
        self.offer(1, count, bytes.len() as u32, 0);
    }

    pub fn connect(&self, engine: &mut Engine) {
        let mut apply = |change| engine.apply(self.number, change).expect("a change");
        apply(Change::Features(feature::VERSION_1 | feature::MERGEABLE));
        apply(Change::Memory(Arc::clone(&self.memory)));
        self.start(engine, 0..2);
    }

    /// Starts its second pair of queues.
    pub fn add_pair(&self, engine: &mut Engine) {
        self.start(engine, 2..4);
    }

    fn start(&self, engine: &mut Engine, rings: Range<usize>) {
        let mut apply = |change| engine.apply(self.number, change).expect("a change");
        for index in rings {
            let base = USER + index as u64 * RING;
            let setup = Setup {
                size: self.sizes[index % 2],
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
            apply(Change::Start(index, setup));
            apply(Change::Enable(index, true));
        }
    }
}

pub(super) fn mac(number: u16) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

#[test]
fn a_whole_ring_that_was_taken_and_is_broken_since_closes_its_port_once() {
    let file = memfd(0);
    let sender = Guest::new(0, [SHORT, SIZE_MAX]);
    let receiver = Guest::new(1, [SHORT, SHORT]);
    let mut engine = successor(&file, 2);
    sender.connect(&mut engine);
    receiver.connect(&mut engine);
    sender.offer(0, 1, 4096, WRITE);
    receiver.send(mac(0), 1);
    engine.poll(1);
    sender.send(mac(1), SIZE_MAX);
    while engine.poll(2) > 0 {}
    assert_eq!(engine.waiting(1).0, [(0, SIZE_MAX as usize)]);
    drop(engine);
    for slot in 0..SIZE_MAX {
        sender.describe(1, slot, 100, WRITE);
    }
    let mut engine = successor(&file, 2);
    sender.connect(&mut engine);
    receiver.connect(&mut engine);
    engine.poll(3);
    let closed =
        |engine: &mut Engine, port| engine.bay_mut(port).and_then(|bay| bay.closed.clone());
    let why = closed(&mut engine, 0).expect("it is closed");
    assert!(why.contains("wrong direction"), "{why}");
    assert_eq!((closed(&mut engine, 1), engine.held()), (None, 0));
}

#[test]
fn a_port_that_is_closed_hears_nothing_more_of_its_connection() {
    let sender = Guest::new(0, [SHORT, SHORT]);
    let mut engine = successor(&memfd(0), 1);
    sender.connect(&mut engine);
    sender.offer(1, 1, 100, WRITE);
    engine.poll(1);
    let reason = |engine: &mut Engine| engine.bay_mut(0).and_then(|bay| bay.closed.clone());
    let why = reason(&mut engine).expect("it is closed");
    let refused = engine.apply(0, Change::Enable(0, true));
    assert_eq!(refused, Err("the port is closed".to_owned()));
    let gone = Change::Gone(refused.err());
    engine.apply(0, gone).expect("it is gone");
    assert_eq!(reason(&mut engine), Some(why), "the reason stays");
    sender.connect(&mut engine);
    assert_eq!(reason(&mut engine), None, "another connection begins anew");
}

#[test]
fn a_frame_that_a_predecessor_had_passes_no_vnic_again() {
    let text = "[[rule]]\nalgorithm = \"cubic\"\none_sided = \"cubic\"\nmode = \"enforce\"\n";
    let policy = PolicyFile {
        path: PathBuf::from("policy.toml"),
        text: text.to_owned(),
    };
    let rules = Policy::parse("policy.toml", text).expect("a policy");
    let mut govern = Govern::new(Governing::new(&policy, rules), HashKey::FIXED);
    govern.attach(1, "g1", "g1");
    let receiver = Guest::new(1, [SHORT, SHORT]);
    let mut engine = successor(&memfd(0), 2);
    engine.govern = Some(govern);
    receiver.connect(&mut engine);
    receiver.offer(0, 2, 4096, WRITE);
    let frame = [&mac(1)[..], &mac(0), &[8, 0], &[0; 60]].concat();
    let copy = Copy {
        from: 0,
        pair: 0,
        exit: 1,
        vlan: 0,
        lane: Lane::default(),
        work: Work::default(),
        is_flooded: false,
        bytes: frame.len() as u32,
    };
    engine.take_copy(&copy, &frame);
    engine.poll(1);
    let bay = engine.bay_mut(1).expect("a port");
    assert_eq!(bay.counters.dropped(), 0);
    let used = receiver.memory.word(receiver.at(USED + 2, 2));
    assert_eq!(used.expect("aligned").load(), 1, "it came");
    let govern = engine.govern.as_ref().expect("it governs");
    let counters = govern.vnics().counters();
    assert!(counters.0.iter().all(|&count| count == 0), "{counters:?}");
}
