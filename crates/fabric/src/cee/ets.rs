//! Enhanced transmission selection (802.1Q-2018 clause 37.3; the thesis, section 2.2.2.3): which priority a port sends next.
//!
//! Classes with a share are chosen by start-time fair queueing (Goyal, Vin, Cheng 1996): within a frame of their
//! shares at all times, whatever the frames' sizes, which rounds of deficits are only on average. A class that has
//! nothing to send, or may not, saves no credit.

use super::{EtsConfig, PRIORITIES};

/// Virtual time of a byte at a share of one percent. Rounding costs less than 1 in 25 000; times last for 7 TB.
const BYTE_AT_ONE_PERCENT: u64 = 2_560_000;

/// Virtual times of up to eight competitors: the one that is furthest behind comes next.
#[derive(Clone, Debug, Default)]
struct Clock {
    /// When the next frame of each may start.
    next: [u64; PRIORITIES],
    /// When the frame started that was chosen last: who comes back is not behind this.
    now: u64,
}

impl Clock {
    /// When a frame of this one starts if it is chosen now.
    fn start(&self, at: usize) -> u64 {
        self.next[at].max(self.now)
    }

    fn charge(&mut self, chosen: usize, cost: u64) {
        self.now = self.start(chosen);
        self.next[chosen] = self.now.saturating_add(cost);
    }
}

/// A traffic class, as the port sees it.
#[derive(Clone, Debug, Default)]
struct Class {
    priorities: u8,
    /// Virtual time of a byte; 0 = strict.
    per_byte: u64,
    /// Among its priorities.
    turns: Clock,
}

/// Transmission selection of one port.
#[derive(Clone, Debug)]
pub struct Ets {
    classes: [Class; PRIORITIES],
    /// By priority.
    class_of: [u8; PRIORITIES],
    /// Strict classes, the first first.
    strict: [u8; PRIORITIES],
    strict_count: usize,
    /// Among the classes with a share.
    shares: Clock,
}

impl Ets {
    /// Selects as configured. What the language refuses is put right here: of two classes with one priority the first
    /// has it, priorities of no class are one with a share of 1, and a share is at least 1.
    pub fn new(config: &EtsConfig) -> Self {
        let mut selection = Self {
            classes: Default::default(),
            class_of: [0; PRIORITIES],
            strict: [0; PRIORITIES],
            strict_count: 0,
            shares: Clock::default(),
        };
        let given = config
            .classes
            .iter()
            .map(|class| (class.priorities, class.share));
        let mut free = u8::MAX;
        let mut count = 0;
        for (priorities, share) in given.chain([(u8::MAX, Some(1))]) {
            // Every class takes a free priority: there are at most eight.
            if priorities & free != 0 {
                selection.add(count, priorities & free, share);
                free &= !priorities;
                count += 1;
            }
        }
        selection.strict[..selection.strict_count].reverse();
        selection
    }

    fn add(&mut self, at: usize, priorities: u8, share: Option<u32>) {
        self.classes[at] = Class {
            priorities,
            per_byte: share.map_or(0, |share| {
                BYTE_AT_ONE_PERCENT / u64::from(share.clamp(1, 100))
            }),
            turns: Clock::default(),
        };
        for priority in (0..PRIORITIES).filter(|priority| priorities & (1 << priority) != 0) {
            self.class_of[priority] = at as u8;
        }
        if share.is_none() {
            self.strict[self.strict_count] = at as u8;
            self.strict_count += 1;
        }
    }

    /// The priority whose frame is sent next, and accounts for it. Bit p of `eligible`: priority p has a frame and is
    /// not paused; `head_bytes` says how long that frame is, and is asked for the one that is chosen. `None` if no
    /// priority is eligible.
    #[inline]
    pub fn choose(&mut self, eligible: u8, head_bytes: impl Fn(usize) -> u32) -> Option<usize> {
        if eligible == 0 {
            return None;
        }
        let at = if eligible.is_power_of_two() {
            self.class_of(eligible)
        } else {
            self.class(eligible)
        };
        let class = &mut self.classes[at];
        let priority = first(class.priorities & eligible, |priority| {
            class.turns.start(priority)
        });
        let bytes = u64::from(head_bytes(priority));
        class.turns.charge(priority, bytes);
        if class.per_byte > 0 {
            self.shares.charge(at, bytes.saturating_mul(class.per_byte));
        }
        Some(priority)
    }

    /// The class that sends next, of those with an eligible priority.
    fn class(&self, eligible: u8) -> usize {
        let strict = self.strict[..self.strict_count]
            .iter()
            .copied()
            .map(usize::from);
        let mut strict = strict.filter(|&at| self.classes[at].priorities & eligible != 0);
        strict.next().unwrap_or_else(|| {
            let mut classes = 0;
            for (at, class) in self.classes.iter().enumerate() {
                classes |= u8::from(class.priorities & eligible != 0) << at;
            }
            first(classes, |at| self.shares.start(at))
        })
    }

    /// Of the lowest of these priorities.
    fn class_of(&self, priorities: u8) -> usize {
        self.class_of[priorities.trailing_zeros() as usize].into()
    }
}

/// The one of `candidates` (bits, not all 0) that starts first; the lowest of equals.
fn first(candidates: u8, start: impl Fn(usize) -> u64) -> usize {
    let mut best = candidates.trailing_zeros() as usize;
    let mut rest = candidates & candidates.wrapping_sub(1);
    while rest != 0 {
        let other = rest.trailing_zeros() as usize;
        if start(other) < start(best) {
            best = other;
        }
        rest &= rest - 1;
    }
    best
}

#[cfg(test)]
mod tests;
