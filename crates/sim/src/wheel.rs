//! The event queue: a hierarchical timing wheel that hands out events in the order (time, source).
//!
//! Six levels of 1024 slots; the lowest has slots of 2^12 ps (4 ns). An event lies at the level of the
//! highest digit in which its slot differs from the present one, and falls down as time comes near. The
//! present slot is a sorted list, so that the order is exact whatever the slots are.

/// Who an event is for, and where ties are decided: the smaller goes first.
pub type Source = u32;

/// log2 of the picoseconds in a slot of the lowest level.
const SLOT_BITS: u32 = 12;
/// log2 of the slots of a level.
const DIGIT_BITS: u32 = 10;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 6;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    time_ps: u64,
    source: Source,
    next: u32,
}

struct Level {
    heads: Box<[u32; DIGITS]>,
    occupied: [u64; DIGITS / 64],
}

impl Level {
    fn new() -> Self {
        Self {
            heads: Box::new([NIL; DIGITS]),
            occupied: [0; DIGITS / 64],
        }
    }

    /// The first occupied slot after `digit`.
    fn after(&self, digit: usize) -> Option<usize> {
        let from = digit + 1;
        let mut word = from / 64;
        let mut bits = *self.occupied.get(word)? & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            word += 1;
            bits = *self.occupied.get(word)?;
        }
    }
}

/// The queue.
pub struct Wheel {
    levels: [Level; LEVELS],
    entries: Vec<Entry>,
    free: u32,
    /// Events of the present slot, the next one last.
    present: Vec<(u64, Source)>,
    /// Number of the present slot.
    slot: u64,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level::new()),
            entries: Vec::new(),
            free: NIL,
            present: Vec::new(),
            slot: 0,
        }
    }
}

impl Wheel {
    /// Adds an event. One in the past is handed out next.
    pub fn push(&mut self, time_ps: u64, source: Source) {
        let slot = time_ps >> SLOT_BITS;
        if slot <= self.slot {
            let at = self
                .present
                .partition_point(|&event| event > (time_ps, source));
            self.present.insert(at, (time_ps, source));
            return;
        }
        let entry = self.entry(time_ps, source);
        self.place(entry, slot);
    }

    fn entry(&mut self, time_ps: u64, source: Source) -> u32 {
        let entry = Entry {
            time_ps,
            source,
            next: NIL,
        };
        if self.free == NIL {
            self.entries.push(entry);
            return self.entries.len() as u32 - 1;
        }
        let index = self.free;
        self.free = self.entries[index as usize].next;
        self.entries[index as usize] = entry;
        index
    }

    /// Puts an entry whose slot lies ahead where it belongs.
    fn place(&mut self, index: u32, slot: u64) {
        let highest = 63 - (slot ^ self.slot).leading_zeros();
        let level = ((highest / DIGIT_BITS) as usize).min(LEVELS - 1);
        let digit = (slot >> (DIGIT_BITS * level as u32)) as usize & (DIGITS - 1);
        let level = &mut self.levels[level];
        self.entries[index as usize].next = level.heads[digit];
        level.heads[digit] = index;
        level.occupied[digit / 64] |= 1 << (digit % 64);
    }

    /// Takes the next event if it comes before `until_ps`.
    #[inline]
    pub fn pop_before(&mut self, until_ps: u64) -> Option<(u64, Source)> {
        if self.present.is_empty() && !self.advance() {
            return None;
        }
        match self.present.last() {
            Some(&(time_ps, _)) if time_ps < until_ps => self.present.pop(),
            _ => None,
        }
    }

    /// Makes the next occupied slot the present one.
    fn advance(&mut self) -> bool {
        while self.present.is_empty() {
            let Some((level, digit)) = self.next_occupied() else {
                return false;
            };
            let shift = DIGIT_BITS * level as u32;
            let above = self.slot >> (shift + DIGIT_BITS) << DIGIT_BITS;
            self.slot = (above | digit as u64) << shift;
            self.empty(level, digit);
        }
        if self.present.len() > 1 {
            self.present.sort_unstable_by(|a, b| b.cmp(a));
        }
        true
    }

    fn next_occupied(&self) -> Option<(usize, usize)> {
        (0..LEVELS).find_map(|level| {
            let digit = (self.slot >> (DIGIT_BITS * level as u32)) as usize & (DIGITS - 1);
            self.levels[level].after(digit).map(|found| (level, found))
        })
    }

    /// Moves what a slot holds to lower levels, or into the present.
    fn empty(&mut self, level: usize, digit: usize) {
        let slots = &mut self.levels[level];
        slots.occupied[digit / 64] &= !(1 << (digit % 64));
        let mut index = std::mem::replace(&mut slots.heads[digit], NIL);
        while index != NIL {
            let Entry {
                time_ps,
                source,
                next,
            } = self.entries[index as usize];
            let slot = time_ps >> SLOT_BITS;
            if slot == self.slot {
                self.present.push((time_ps, source));
                self.entries[index as usize].next = self.free;
                self.free = index;
            } else {
                self.place(index, slot);
            }
            index = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is pushed when, the order is that of a heap.
        #[test]
        fn order_is_that_of_a_heap(steps in prop::collection::vec((0u32..48, any::<u64>(), 0u32..50, 0u8..4), 1..400)) {
            let (mut wheel, mut heap) = (Wheel::default(), BinaryHeap::new());
            let mut now = 0;
            for (bits, random, source, pops) in steps {
                let time = now + (random & ((1 << bits) - 1));
                wheel.push(time, source);
                heap.push(Reverse((time, source)));
                for _ in 0..pops {
                    let expected = heap.pop().map(|Reverse(event)| event);
                    if let Some((time, _)) = expected {
                        prop_assert_eq!(wheel.pop_before(time), None);
                    }
                    prop_assert_eq!(wheel.pop_before(u64::MAX), expected);
                    now = expected.map_or(now, |event| event.0);
                }
            }
            while let Some(Reverse(expected)) = heap.pop() {
                prop_assert_eq!(wheel.pop_before(u64::MAX), Some(expected));
            }
            prop_assert_eq!(wheel.pop_before(u64::MAX), None);
        }
    }
}
