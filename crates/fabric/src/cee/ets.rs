//! Enhanced transmission selection (802.1Q-2018 clause 37.3; the thesis, section 2.2.2.3): which
//! priority a port sends next.
//!
//! Strict classes come first. Classes with a share take turns by deficit round robin (Shreedhar and
//! Varghese 1996). So do the priorities of any class, with equal quanta. The class with the
//! smallest share has a quantum of the longest frame, the others in proportion. So each turn sends
//! at least one frame, a choice looks at two classes at most, and rounds are as short as they can
//! be.
//!
//! The service of two classes that always have frames, in bytes per percent, never differs by more
//! than a quantum and a frame of each, over any time. The credit that a turn leaves, less than a
//! frame, counts in the next turn if the class was eligible at every choice in between. A class
//! that is empty or paused when another class is chosen loses its credit and its turn. A class that
//! is the only eligible one goes on with its turns, so a class that is eligible now and then gets
//! at most a quantum for each of those turns.

use std::sync::Arc;

use sluicegate_core::number::narrow;

use super::{EtsConfig, PRIORITIES};

/// The credits of up to eight competitors (classes, or priorities of a class).
#[derive(Clone, Debug, Default)]
struct Credits {
    bytes: [u32; PRIORITIES],
    /// Bit i: competitor i has a credit of `bytes[i]`; without the bit its credit is 0.
    kept: u8,
}

/// The competitor that sends next.
struct Next<T> {
    at: usize,
    /// Its credit after this frame.
    left: u32,
    /// The second value that `head` returned for it.
    head: T,
}

impl Credits {
    fn of(&self, at: usize) -> u32 {
        if self.kept & bit(at) == 0 {
            0
        } else {
            self.bytes[at]
        }
    }

    fn set(&mut self, at: usize, bytes: u32) {
        self.bytes[at] = bytes;
        self.kept |= bit(at);
    }

    /// [`Credits::next`] for the only candidate; and takes the frame from its credit.
    #[inline]
    fn take_alone(&mut self, at: usize, is_turn: bool, quantum: u32, bytes: u32) {
        let credit = self.of(at);
        let left = match credit.checked_sub(bytes) {
            Some(left) if is_turn => left,
            _ => quantum.saturating_add(credit).saturating_sub(bytes),
        };
        self.set(at, left);
    }

    /// Chooses the competitor whose turn it is, if its credit covers its first frame; else the next
    /// of `candidates` (bits, not all 0), which gets a new quantum. `head` returns the length of a
    /// candidate's first frame, and a value that is passed on to the caller. A frame that is longer
    /// than a quantum is sent all the same.
    #[inline]
    fn next<T>(
        &self,
        turn: usize,
        candidates: u8,
        quantum: impl Fn(usize) -> u32,
        head: impl Fn(usize) -> (u32, T),
    ) -> Next<T> {
        if candidates & self.kept & bit(turn) != 0 {
            let (bytes, head) = head(turn);
            if let Some(left) = self.bytes[turn].checked_sub(bytes) {
                let at = turn;
                return Next { at, left, head };
            }
        }
        let at = after(turn, candidates);
        let (bytes, head) = head(at);
        let left = quantum(at)
            .saturating_add(self.of(at))
            .saturating_sub(bytes);
        Next { at, left, head }
    }
}

/// Transmission selection as configured, for all ports with the same longest frame.
#[derive(Clone, Debug)]
struct Plan {
    /// The quantum of a priority within its class: the longest frame.
    frame_bytes: u32,
    /// By class, the quantum of a turn.
    quantum_bytes: [u32; PRIORITIES],
    /// By class, bit p: priority p is in it.
    members: [u8; PRIORITIES],
    /// Bit i: class i is strict; the strict class with the highest number comes first.
    strict: u8,
    /// Bit i: class i has several priorities.
    several: u8,
    /// By set of priorities, their classes.
    classes: [u8; 1 << PRIORITIES],
}

/// Transmission selection of one port.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Ets {
    plan: Arc<Plan>,
    /// The credit of each class.
    shared: Credits,
    /// The class whose turn it is.
    turn: u8,
    /// By class, the priority whose turn it is.
    turns: [u8; PRIORITIES],
    /// The credit of each priority within its class; unused in classes of one priority.
    own: Credits,
}

/// The first cache line is read for every frame that has waited, the second one only where several
/// priorities share a class.
const _: () = assert!(size_of::<Ets>() == 128 && std::mem::offset_of!(Ets, own) <= 64);

impl Plan {
    fn new(config: &EtsConfig, frame_bytes: u32) -> Self {
        let mut classes = Vec::new();
        let mut free = u8::MAX;
        let given = config
            .classes
            .iter()
            .map(|class| (class.priorities, class.share));
        for (priorities, share) in given.chain([(u8::MAX, Some(1))]) {
            // Every class takes a free priority, so there are at most eight classes.
            if priorities & free != 0 {
                classes.push((
                    priorities & free,
                    share.map(|share| share.clamp(1, 100) as u8),
                ));
                free &= !priorities;
            }
        }
        // Strict ones last.
        classes.sort_by_key(|(_, share)| share.is_none());
        Self::of(&classes, frame_bytes)
    }

    fn of(classes: &[(u8, Option<u8>)], frame_bytes: u32) -> Self {
        let shares: Vec<u8> = classes.iter().filter_map(|&(_, share)| share).collect();
        let least = shares.iter().min().map_or(1, |&share| share.into());
        // Unit: 2^-16 bytes.
        let per_percent: u64 = (u64::from(frame_bytes) << 16).div_ceil(least);
        // A single class with a share gets all that the strict classes leave: it is the last strict
        // one.
        let turns = if shares.len() > 1 { shares.len() } else { 0 };
        let mut plan = Self {
            frame_bytes,
            quantum_bytes: [0; PRIORITIES],
            members: [0; PRIORITIES],
            strict: (turns..PRIORITIES).fold(0, |strict, at| strict | bit(at)),
            several: 0,
            classes: [0; 1 << PRIORITIES],
        };
        for (at, &(members, share)) in classes.iter().enumerate() {
            let quantum = (u64::from(share.unwrap_or(0)) * per_percent) >> 16;
            plan.quantum_bytes[at] = u32::try_from(quantum).unwrap_or(u32::MAX);
            plan.members[at] = members;
            plan.several |= if members.is_power_of_two() {
                0
            } else {
                bit(at)
            };
            for (priorities, classes) in plan.classes.iter_mut().enumerate() {
                let is_in = narrow::<u8>(priorities) & members != 0;
                *classes |= if is_in { bit(at) } else { 0 };
            }
        }
        plan
    }
}

impl Ets {
    /// Selects as configured, at a port whose longest frame has `frame_bytes`. Longer frames make
    /// shares less exact. A configuration that the scenario language would refuse is corrected: of
    /// two classes with the same priority the first one gets it, priorities without a class form a
    /// class with a share of 1, and shares are clamped to 1 to 100.
    pub fn new(config: &EtsConfig, frame_bytes: u32) -> Self {
        let plan = Plan::new(config, frame_bytes);
        Self {
            turns: plan
                .members
                .map(|members| narrow::<u8>(members.trailing_zeros())),
            plan: Arc::new(plan),
            shared: Credits::default(),
            own: Credits::default(),
            turn: 0,
        }
    }

    /// The selections of all ports; `frame_bytes` has the longest frame of each.
    pub(super) fn for_ports(
        config: &EtsConfig,
        frame_bytes: impl Iterator<Item = u32>,
    ) -> Vec<Self> {
        let mut known: Vec<Self> = Vec::new();
        let mut like = |bytes| {
            let at = known.iter().position(|ets| ets.plan.frame_bytes == bytes);
            let at = at.unwrap_or_else(|| {
                known.push(Self::new(config, bytes));
                known.len() - 1
            });
            known[at].clone()
        };
        frame_bytes.map(&mut like).collect()
    }

    /// Chooses the priority whose frame is sent next, and takes the frame from its credit. Bit p of
    /// `eligible`: priority p has a frame and is not paused. `head_bytes` returns the length of the
    /// first frame of an eligible priority. If no priority is eligible, the result is `None` and
    /// nothing changes.
    #[inline(never)]
    pub fn choose(&mut self, eligible: u8, head_bytes: &dyn Fn(usize) -> u32) -> Option<usize> {
        if eligible == 0 {
            return None;
        }
        if eligible & (eligible - 1) == 0 {
            let priority = eligible.trailing_zeros() as usize;
            self.choose_alone(priority, head_bytes(priority));
            return Some(priority);
        }
        Some(self.choose_among(eligible, head_bytes))
    }

    /// [`Ets::choose`] among eligible priorities, of which there is at least one.
    fn choose_among(&mut self, eligible: u8, head_bytes: &dyn Fn(usize) -> u32) -> usize {
        let plan = &*self.plan;
        let classes = plan.classes[usize::from(eligible)];
        self.shared.kept &= classes;
        if plan.several != 0 {
            self.own.kept &= eligible;
        }
        let strict = classes & plan.strict;
        let (class, next) = if strict != 0 {
            let class = strict.ilog2() as usize;
            (class, self.member(class, eligible, head_bytes))
        } else {
            let head = |class| {
                let next = self.member(class, eligible, head_bytes);
                (next.head, next)
            };
            let quantum = |class: usize| plan.quantum_bytes[class];
            let next = self.shared.next(self.turn.into(), classes, quantum, head);
            self.shared.set(next.at, next.left);
            self.turn = narrow::<u8>(next.at);
            (next.at, next.head)
        };
        if plan.several & bit(class) != 0 {
            self.own.set(next.at, next.left);
            self.turns[class] = narrow::<u8>(next.at);
        }
        next.at
    }

    /// [`Ets::choose`] where only this priority is eligible, and its first frame has `bytes`.
    #[inline]
    pub(super) fn choose_alone(&mut self, priority: usize, bytes: u32) {
        let eligible = bit(priority);
        let plan = &*self.plan;
        let class = plan.classes[usize::from(eligible)];
        self.shared.kept &= class;
        let at = class.trailing_zeros() as usize % PRIORITIES;
        if class & plan.strict == 0 {
            let is_turn = usize::from(self.turn) == at;
            self.shared
                .take_alone(at, is_turn, plan.quantum_bytes[at], bytes);
            self.turn = narrow::<u8>(at);
        }
        if plan.several == 0 {
            return;
        }
        self.own.kept &= eligible;
        if plan.several & class != 0 {
            let is_turn = usize::from(self.turns[at]) == priority;
            self.own
                .take_alone(priority, is_turn, plan.frame_bytes, bytes);
            self.turns[at] = narrow::<u8>(priority);
        }
    }

    /// The next of the eligible priorities of a class, of which there is at least one, and the
    /// length of its frame.
    #[inline]
    fn member(&self, class: usize, eligible: u8, head_bytes: &dyn Fn(usize) -> u32) -> Next<u32> {
        let candidates = self.plan.members[class] & eligible;
        if self.plan.several & bit(class) == 0 {
            let at = candidates.trailing_zeros() as usize % PRIORITIES;
            let head = head_bytes(at);
            return Next { at, left: 0, head };
        }
        let head = |priority| {
            let bytes = head_bytes(priority);
            (bytes, bytes)
        };
        let turn = self.turns[class].into();
        let quantum = |_| self.plan.frame_bytes;
        self.own.next(turn, candidates, quantum, head)
    }
}

/// A byte with this bit set.
#[inline]
fn bit(at: usize) -> u8 {
    1 << (at % PRIORITIES)
}

/// The first of `candidates` (bits, not all 0) after `at`, in a ring; `at` itself if it is the only
/// one.
#[inline]
fn after(at: usize, candidates: u8) -> usize {
    let start = narrow::<u32>(at) + 1;
    let steps = candidates.rotate_right(start % 8).trailing_zeros();
    (start + steps) as usize % PRIORITIES
}

#[cfg(test)]
mod tests;
