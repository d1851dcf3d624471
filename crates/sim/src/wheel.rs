//! The event queue: a hierarchical timing wheel that hands out events in the order (time, source).
//!
//! Five levels of 2048 slots; the lowest has slots of 2^13 ps (8 ns), so that it spans 16 us: more
//! than most links and queues of a datacenter take, and few events are handled twice. An event lies
//! at the level of the highest digit in which its slot differs from the present one, and falls down
//! as time comes near. The present slot is a sorted list, so that the order is exact whatever the
//! slots are.
//!
//! A large network has thousands of events in a slot. They lie side by side in [`Run`]s: a list of
//! single events would be a cache miss for each, one after the other.

use std::{cmp::Reverse, ops::Range};

use sluicegate_core::number::{index, low_64, low_half, narrow};

use prefetch_index::prefetch_index;

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
/// So many events are prefetched for at a time: what they need fits into the nearest cache.
const BATCH: usize = 64;

/// Some events of one slot, in two cache lines.
#[repr(C, align(64))]
struct Run<E, const N: usize> {
    /// Further events of the slot, or the next free run.
    next: u32,
    /// How many there are, at least 1.
    len: u32,
    events: [E; N],
}

const _: () = assert!(size_of::<Run<u64, 15>>() == 128);
const _: () = assert!(size_of::<Run<Far, 7>>() == 128);

/// Runs of slots, and free ones.
struct Runs<E, const N: usize> {
    runs: Vec<Run<E, N>>,
    free: u32,
}

impl<E: Copy + Default, const N: usize> Runs<E, N> {
    const fn new() -> Self {
        Self {
            runs: Vec::new(),
            free: NIL,
        }
    }

    /// Adds an event to a slot of a level.
    #[inline(always)]
    fn add(&mut self, level: &mut Level, digit: usize, event: E) {
        let digit = digit % DIGITS;
        if let Some(run) = self.runs.get_mut(level.heads[digit] as usize) {
            if let Some(place) = run.events.get_mut(run.len as usize) {
                *place = event;
                run.len += 1;
                return;
            }
        }
        match self.runs.get_mut(self.free as usize) {
            Some(run) => {
                let index = std::mem::replace(&mut self.free, run.next);
                run.next = level.push(digit, index);
                run.len = 1;
                run.events[0] = event;
            }
            None => self.grow(level, digit, event),
        }
    }

    #[cold]
    fn grow(&mut self, level: &mut Level, digit: usize, event: E) {
        let next = level.push(digit, narrow::<u32>(self.runs.len()));
        let mut events = [E::default(); N];
        events[0] = event;
        let len = 1;
        self.runs.push(Run { next, len, events });
    }

    /// A run that is free from now on. The next one but one is prefetched.
    #[inline(always)]
    fn take(&mut self, index: u32) -> (u32, &Run<E, N>) {
        let run = &mut self.runs[index as usize];
        let next = std::mem::replace(&mut run.next, self.free);
        self.free = index;
        if let Some(run) = self.runs.get(next as usize) {
            prefetch_index(&self.runs, run.next as usize);
        }
        (next, &self.runs[index as usize])
    }
}

impl<E, const N: usize> Run<E, N> {
    fn events(&self) -> &[E] {
        self.events.get(..self.len as usize).unwrap_or_default()
    }
}

/// An event of a known slot of the lowest level: its time in the slot, then its source.
#[inline(always)]
fn brief(time_ps: u64, source: Source) -> u64 {
    (time_ps & ((1 << SLOT_BITS) - 1)) << Source::BITS | u64::from(source)
}

/// The time of a [`brief`] event of this slot.
#[inline(always)]
fn time_of(slot: u64, brief: u64) -> u64 {
    slot << SLOT_BITS | brief >> Source::BITS
}

/// An event of a higher level.
#[derive(Clone, Copy, Default)]
struct Far {
    time_ps: u64,
    source: Source,
}

struct Level {
    /// The first run of each slot.
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

    /// Puts a run before others of its slot; returns what is behind it.
    #[inline]
    fn push(&mut self, digit: usize, index: u32) -> u32 {
        let digit = digit % DIGITS;
        self.occupied[digit / 64] |= 1 << (digit % 64);
        self.words |= 1 << (digit / 64);
        std::mem::replace(&mut self.heads[digit], index)
    }

    /// Empties a slot; returns its first run.
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

    /// The first occupied slot.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        if self.words == 0 {
            return None;
        }
        let word = self.words.trailing_zeros() as usize % self.occupied.len();
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }

    /// Empties the first occupied slot, which is `digit`.
    #[inline(always)]
    fn take_first(&mut self, digit: usize) -> u32 {
        let digit = digit % DIGITS;
        let word = &mut self.occupied[digit / 64];
        *word &= word.wrapping_sub(1);
        if *word == 0 {
            self.words &= self.words.wrapping_sub(1);
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
    low_64(key >> Source::BITS)
}

/// The queue.
pub struct Wheel {
    /// The occupied slots of the lowest level come after the present one.
    levels: [Level; LEVELS],
    /// The events of the lowest level, [`brief`].
    near: Runs<u64, 15>,
    /// Those of the others.
    far: Runs<Far, 7>,
    /// [`key`]s of the present slot's events, the next one last.
    present: Vec<u128>,
    /// Number of the present slot.
    slot: u64,
    /// While fewer events are in the present slot, none of them has been prefetched for; 0 = all
    /// have.
    refill: usize,
    /// Scratch memory of [`Wheel::open`].
    scratch: Vec<u64>,
    /// The present slot was opened with many events.
    is_busy: bool,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            levels: std::array::from_fn(|_| Level::new()),
            near: Runs::new(),
            far: Runs::new(),
            present: Vec::new(),
            slot: 0,
            refill: 0,
            scratch: Vec::new(),
            is_busy: false,
        }
    }
}

impl Wheel {
    /// Adds an event. One in the past is handed out next.
    #[inline]
    pub fn push(&mut self, time_ps: u64, source: Source) {
        let slot = time_ps >> SLOT_BITS;
        if slot > self.slot && slot ^ self.slot < DIGITS as u64 {
            let event = brief(time_ps, source);
            self.near.add(&mut self.levels[0], slot as usize, event);
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
        let event = Far { time_ps, source };
        self.far.add(&mut self.levels[level], digit, event);
    }

    fn push_present(&mut self, key: u128) {
        let at = self.present.partition_point(|&event| event > key);
        self.present.insert(at, key);
        self.refill += usize::from(at < self.refill);
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
        (level, index(slot >> (DIGIT_BITS * low_half(level as u64))))
    }

    /// The number of a slot of the lowest level.
    #[inline(always)]
    fn near_slot(&self, digit: usize) -> u64 {
        self.slot & !(DIGITS as u64 - 1) | digit as u64
    }

    /// Takes the next event if it comes before `until_ps`. The common case is a slot of the lowest
    /// level with one event, which need not become a list.
    #[inline(always)]
    pub fn pop_before(&mut self, until_ps: u64) -> Option<(u64, Source)> {
        if self.present.is_empty() {
            if let Some(digit) = self.levels[0].first() {
                let head = self.levels[0].heads[digit % DIGITS];
                let slot = self.near_slot(digit);
                let run = &mut self.near.runs[head as usize];
                if run.len == 1 && run.next == NIL {
                    let event = run.events[0];
                    let time_ps = time_of(slot, event);
                    if time_ps >= until_ps {
                        return None;
                    }
                    run.next = self.near.free;
                    self.near.free = head;
                    self.levels[0].take_first(digit);
                    self.slot = slot;
                    self.is_busy = false;
                    return Some((time_ps, low_half(event)));
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
        Some((time_ps(key), low_half(low_64(key))))
    }

    /// Whether the present slot has many events, and the caller has not prefetched for those that
    /// come next: [`Wheel::see`].
    #[inline]
    pub fn is_fresh(&self) -> bool {
        self.present.len() < self.refill
    }

    /// Whether the present slot had many events.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// The caller prefetches for the events that come next. Returns the places of some of them, for
    /// [`Wheel::present`].
    pub fn see(&mut self) -> Range<usize> {
        let end = self.present.len().min(self.refill);
        let begin = end.saturating_sub(BATCH);
        self.refill = if begin == 0 { 0 } else { begin + 1 };
        begin..end
    }

    /// Sources of events of the present slot, in no order.
    pub fn present(&self, places: Range<usize>) -> impl Iterator<Item = Source> {
        let events = self.present.iter().take(places.end).skip(places.start);
        events.map(|&key| low_half(low_64(key)))
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
            let digit = index(self.slot >> (DIGIT_BITS * low_half(level as u64)));
            self.levels[level].after(digit).map(|found| (level, found))
        })
    }

    /// Makes the first occupied slot of the lowest level the present one.
    #[inline(never)]
    fn open(&mut self, digit: usize) {
        self.slot = self.near_slot(digit);
        let head = self.levels[0].take_first(digit);
        let mut index = head;
        while index != NIL {
            let (next, run) = self.near.take(index);
            // Inverted, so that the usual order puts the next event last.
            self.scratch
                .extend(run.events().iter().map(|&event| !event));
            index = next;
        }
        if self.scratch.len() > 1 {
            self.scratch.sort_unstable();
        }
        let slot = self.slot;
        let keys = self.scratch.drain(..);
        let keys = keys.map(|event| key(time_of(slot, !event), low_half(!event)));
        self.present.extend(keys);
        self.note_many();
    }

    /// Moves the events of a slot of a higher level to lower ones, or into the present slot.
    fn spread(&mut self, level: usize, digit: usize) {
        let shift = DIGIT_BITS * low_half(level as u64);
        let above = self.slot >> (shift + DIGIT_BITS) << DIGIT_BITS;
        self.slot = (above | digit as u64) << shift;
        let mut index = self.levels[level].take(digit);
        while index != NIL {
            let (next, run) = self.far.take(index);
            let (events, len) = (run.events, run.len as usize);
            for &Far { time_ps, source } in events.iter().take(len) {
                self.fall(time_ps, source);
            }
            index = next;
        }
        if self.present.len() > 1 {
            self.present.sort_unstable_by_key(|&key| Reverse(key));
        }
        self.note_many();
    }

    /// An event of a higher level moves to a lower one, or into the present slot.
    fn fall(&mut self, time_ps: u64, source: Source) {
        let slot = time_ps >> SLOT_BITS;
        if slot == self.slot {
            return self.present.push(key(time_ps, source));
        }
        match self.place(slot) {
            (0, digit) => {
                let event = brief(time_ps, source);
                self.near.add(&mut self.levels[0], digit, event);
            }
            (level, digit) => {
                let event = Far { time_ps, source };
                self.far.add(&mut self.levels[level], digit, event);
            }
        }
    }

    /// The present slot has been opened.
    fn note_many(&mut self) {
        self.is_busy = self.present.len() >= MANY;
        self.refill = if self.is_busy { self.present.len() } else { 0 };
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
