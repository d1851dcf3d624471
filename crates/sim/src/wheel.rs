//! The event queue: a hierarchical timing wheel that hands out events in the order (time, source).
//!
//! Five levels of 2048 slots; the lowest has slots of 2^13 ps (8 ns), so that it spans 16 us: more
//! than most links and queues of a datacenter take, and few events are handled twice. An event lies
//! at the level of the highest digit in which its slot differs from the present one, and falls down
//! as time comes near. The present slot is a sorted list, so that the order is exact whatever the
//! slots are.

use std::cmp::Reverse;

/// The source of an event. Of two events at one time that of the smaller source goes first.
pub type Source = u32;

/// log2 of the picoseconds in a slot of the lowest level.
const SLOT_BITS: u32 = 13;
/// log2 of the slots of a level.
const DIGIT_BITS: u32 = 11;
const DIGITS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 5;
const NIL: u32 = u32::MAX;
/// See [`Wheel::is_fresh`]. Of networks in which fewer events come together, most of what they need
/// is in the nearer caches, and reading it twice costs more than waiting for the rest
/// (docs/performance.md).
const MANY: usize = 32;

#[derive(Clone, Copy)]
struct Entry {
    time_ps: u64,
    source: Source,
    next: u32,
}

struct Level {
    heads: Box<[u32; DIGITS]>,
    occupied: [u64; DIGITS / 64],
    /// Words of `occupied` that are not 0.
    words: u32,
}

impl Level {
    fn new() -> Self {
        Self {
            heads: Box::new([NIL; DIGITS]),
            occupied: [0; DIGITS / 64],
            words: 0,
        }
    }

    /// Puts an entry before others of its slot; returns what is behind it.
    #[inline]
    fn push(&mut self, digit: usize, index: u32) -> u32 {
        let digit = digit % DIGITS;
        self.occupied[digit / 64] |= 1 << (digit % 64);
        self.words |= 1 << (digit / 64);
        std::mem::replace(&mut self.heads[digit], index)
    }

    /// Empties a slot; returns its first entry.
    #[inline]
    fn take(&mut self, digit: usize) -> u32 {
        let digit = digit % DIGITS;
        let word = &mut self.occupied[digit / 64];
        *word &= !(1 << (digit % 64));
        if *word == 0 {
            self.words &= !(1 << (digit / 64));
        }
        std::mem::replace(&mut self.heads[digit], NIL)
    }

    /// The first occupied slot after `digit`.
    #[inline]
    fn after(&self, digit: usize) -> Option<usize> {
        let digit = digit % DIGITS;
        let word = digit / 64;
        // Shifted twice: by 64 in one go is not defined.
        let bits = self.occupied[word] & (u64::MAX << (digit % 64) << 1);
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let words = self.words & (u32::MAX << word << 1);
        if words == 0 {
            return None;
        }
        let word = words.trailing_zeros() as usize % self.occupied.len();
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

const _: () = assert!(DIGITS / 64 == u32::BITS as usize);

/// The order of events: by time, then by source.
fn key(time_ps: u64, source: Source) -> u128 {
    u128::from(time_ps) << Source::BITS | u128::from(source)
}

fn time_ps(key: u128) -> u64 {
    (key >> Source::BITS) as u64
}

/// The queue.
pub struct Wheel {
    levels: [Level; LEVELS],
    entries: Vec<Entry>,
    free: u32,
    /// [`key`]s of the present slot's events, the next one last.
    present: Vec<u128>,
    /// Number of the present slot.
    slot: u64,
    /// The present slot holds many events, and they have not been prefetched for yet.
    fresh: bool,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level::new()),
            entries: Vec::new(),
            free: NIL,
            present: Vec::new(),
            slot: 0,
            fresh: false,
        }
    }
}

impl Wheel {
    /// Adds an event. One in the past is handed out next.
    #[inline]
    pub fn push(&mut self, time_ps: u64, source: Source) {
        let slot = time_ps >> SLOT_BITS;
        if slot > self.slot && slot ^ self.slot < DIGITS as u64 {
            self.add(0, slot as usize, (time_ps, source));
        } else {
            self.push_elsewhere(time_ps, source);
        }
    }

    /// Into the present slot, or where it waits for its level's turn.
    #[inline(never)]
    fn push_elsewhere(&mut self, time_ps: u64, source: Source) {
        let slot = time_ps >> SLOT_BITS;
        if slot <= self.slot {
            return self.push_present(key(time_ps, source));
        }
        let (level, digit) = self.place(slot);
        self.add(level, digit, (time_ps, source));
    }

    fn push_present(&mut self, key: u128) {
        let at = self.present.partition_point(|&event| event > key);
        self.present.insert(at, key);
    }

    /// Makes an entry, at the place that was freed last.
    #[inline(always)]
    fn add(&mut self, level: usize, digit: usize, (time_ps, source): (u64, Source)) {
        let index = match self.free {
            NIL => self.entries.len() as u32,
            free => free,
        };
        let next = self.levels[level].push(digit, index);
        let entry = Entry {
            time_ps,
            source,
            next,
        };
        match self.entries.get_mut(index as usize) {
            Some(place) => {
                self.free = place.next;
                *place = entry;
            }
            None => self.entries.push(entry),
        }
    }

    /// The level and digit of a slot that lies ahead.
    #[inline]
    fn place(&self, slot: u64) -> (usize, usize) {
        let differs = slot ^ self.slot;
        let level = if differs < DIGITS as u64 {
            0
        } else {
            ((63 - differs.leading_zeros()) / DIGIT_BITS) as usize
        };
        (level, (slot >> (DIGIT_BITS * level as u32)) as usize)
    }

    /// Takes the next event if it comes before `until_ps`. The common case is a slot of the lowest
    /// level with one event, which need not become a list.
    #[inline(always)]
    pub fn pop_before(&mut self, until_ps: u64) -> Option<(u64, Source)> {
        if self.present.is_empty() {
            if let Some(digit) = self.levels[0].after(self.slot as usize) {
                let head = self.levels[0].heads[digit % DIGITS];
                let entry = &mut self.entries[head as usize];
                let (time_ps, source) = (entry.time_ps, entry.source);
                if entry.next == NIL {
                    if time_ps >= until_ps {
                        return None;
                    }
                    entry.next = self.free;
                    self.free = head;
                    self.levels[0].take(digit);
                    self.slot = time_ps >> SLOT_BITS;
                    return Some((time_ps, source));
                }
                self.open(digit);
            } else {
                self.advance();
            }
        }
        let &key = self.present.last()?;
        if time_ps(key) >= until_ps {
            return None;
        }
        self.present.pop();
        Some((time_ps(key), key as Source))
    }

    /// Whether the present slot has many events, and [`Wheel::seen`] was not called for it yet.
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The caller has prefetched for the events of the present slot.
    pub fn seen(&mut self) {
        self.fresh = false;
    }

    /// Sources of events that follow next, in no order.
    pub fn present(&self) -> impl Iterator<Item = Source> {
        self.present.iter().map(|&key| key as Source)
    }

    /// When the next event is.
    pub fn next_ps(&mut self) -> Option<u64> {
        if self.present.is_empty() && !self.advance() {
            return None;
        }
        self.present.last().map(|&key| time_ps(key))
    }

    /// Makes the next occupied slot the present one; false if there is none.
    #[inline(never)]
    fn advance(&mut self) -> bool {
        while self.present.is_empty() {
            let Some((level, digit)) = self.next_occupied() else {
                return false;
            };
            if level == 0 {
                self.open(digit);
            } else {
                self.spread(level, digit);
            }
        }
        true
    }

    fn next_occupied(&self) -> Option<(usize, usize)> {
        (0..LEVELS).find_map(|level| {
            let digit = (self.slot >> (DIGIT_BITS * level as u32)) as usize;
            self.levels[level].after(digit).map(|found| (level, found))
        })
    }

    /// Makes an occupied slot of the lowest level the present one.
    #[inline(never)]
    fn open(&mut self, digit: usize) {
        self.slot = self.slot & !(DIGITS as u64 - 1) | digit as u64;
        let head = self.levels[0].take(digit);
        let mut index = head;
        loop {
            let entry = &mut self.entries[index as usize];
            self.present.push(key(entry.time_ps, entry.source));
            if entry.next == NIL {
                entry.next = self.free;
                break;
            }
            index = entry.next;
        }
        self.free = head;
        self.sort_present();
    }

    /// Moves the entries of a slot of a higher level to lower ones, or into the present slot.
    fn spread(&mut self, level: usize, digit: usize) {
        let shift = DIGIT_BITS * level as u32;
        let above = self.slot >> (shift + DIGIT_BITS) << DIGIT_BITS;
        self.slot = (above | digit as u64) << shift;
        let mut index = self.levels[level].take(digit);
        while index != NIL {
            let Entry {
                time_ps,
                source,
                next,
            } = self.entries[index as usize];
            let slot = time_ps >> SLOT_BITS;
            self.entries[index as usize].next = if slot == self.slot {
                self.present.push(key(time_ps, source));
                std::mem::replace(&mut self.free, index)
            } else {
                let (level, digit) = self.place(slot);
                self.levels[level].push(digit, index)
            };
            index = next;
        }
        self.sort_present();
    }

    fn sort_present(&mut self) {
        if self.present.len() > 1 {
            self.present.sort_unstable_by_key(|&key| Reverse(key));
            self.fresh = self.present.len() >= MANY;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

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
                    prop_assert_eq!(wheel.next_ps(), expected.map(|event| event.0));
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
