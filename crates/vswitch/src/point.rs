//! Places between the stages of the switch: their bounds, and what a full place does.

use std::collections::VecDeque;

/// How much may wait in one place. A place for at least one packet takes one when it is empty,
/// however long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Packets; 0 = nothing waits here.
    pub packets: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Bound {
    /// Nothing waits here.
    pub const NONE: Self = Self {
        packets: 0,
        bytes: 0,
    };

    /// So many bytes, in as many packets as they come.
    pub const fn bytes(bytes: u64) -> Self {
        Self {
            packets: usize::MAX,
            bytes,
        }
    }

    /// Whether there is room for `bytes` more beside what waits.
    pub(crate) fn fits(self, waiting: Load, bytes: u32) -> bool {
        let packets = waiting.packets < self.packets;
        packets && (waiting.packets == 0 || waiting.bytes + u64::from(bytes) <= self.bytes)
    }
}

/// The treatment of a packet by a full place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The packet is dropped here.
    Drop,
    /// The sender keeps the packet, and is told when there is room.
    HoldBack,
}

/// The configuration of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// How much it holds.
    pub bound: Bound,
    /// The treatment of a packet when it is full.
    pub when_full: WhenFull,
}

/// The load of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Packets.
    pub packets: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

/// First in, first out, with its load.
#[derive(Clone, Debug)]
pub(crate) struct Queue<P> {
    packets: VecDeque<(P, u32)>,
    load: Load,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self {
            packets: VecDeque::new(),
            load: Load::default(),
        }
    }
}

impl<P> Queue<P> {
    pub(crate) fn push(&mut self, packet: P, bytes: u32) {
        self.load.add(bytes);
        self.packets.push_back((packet, bytes));
    }

    pub(crate) fn pop(&mut self) -> Option<(P, u32)> {
        let (packet, bytes) = self.packets.pop_front()?;
        self.load.remove(bytes);
        Some((packet, bytes))
    }

    /// Gives `removed` the packets that `keep` does not want, with their bytes.
    pub(crate) fn remove(
        &mut self,
        mut keep: impl FnMut(&P) -> bool,
        mut removed: impl FnMut(P, u32),
    ) {
        for _ in 0..self.packets.len() {
            let Some((packet, bytes)) = self.pop() else {
                return;
            };
            if keep(&packet) {
                self.push(packet, bytes);
            } else {
                removed(packet, bytes);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &P> {
        self.packets.iter().map(|(packet, _)| packet)
    }

    pub(crate) fn first(&self) -> Option<&P> {
        self.packets.front().map(|(packet, _)| packet)
    }

    /// Length in bytes of the one that is first.
    pub(crate) fn first_bytes(&self) -> Option<u32> {
        self.packets.front().map(|&(_, bytes)| bytes)
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }
}
