//! The pauses of a port: the paused priorities, since when they are paused, and when that changes.
//!
//! Pauses on the wire are MAC control frames (802.1Q clause 36, 802.3 annex 31D). They leave behind
//! the frame that is being sent, and last for a time. The far end renews them before that time is
//! over, as long as its buffer is full.

use std::{cmp::Reverse, collections::BinaryHeap};

use sluicegate_core::number::narrow;

use super::PRIORITIES;
use crate::port::PS_PER_S;

/// The longest pause that a frame can ask for, in quanta of 512 bit times (802.3 annex 31D).
const QUANTA: u64 = 0xffff;
const QUANTUM_BITS: u64 = 512;

/// The content of a pause frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PauseFrame {
    /// Bit p: the frame changes priority p.
    pub priorities: u8,
    /// Bit p: priority p is paused; else it resumes.
    pub xoff: u8,
}

impl PauseFrame {
    /// Pauses these priorities.
    pub(super) fn stop(priorities: u8) -> Self {
        Self {
            priorities,
            xoff: priorities,
        }
    }

    /// Resumes these priorities.
    pub(super) fn go_on(priorities: u8) -> Self {
        Self {
            priorities,
            xoff: 0,
        }
    }

    /// Times in quanta, by priority, as the frame carries them.
    pub fn quanta(&self) -> [Option<u16>; PRIORITIES] {
        std::array::from_fn(|priority| {
            let bit = 1 << priority;
            let time = if self.xoff & bit == 0 {
                0
            } else {
                narrow::<u16>(QUANTA)
            };
            (self.priorities & bit != 0).then_some(time)
        })
    }
}

/// A planned change of a port's pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A pause frame has taken effect.
    Obey(PauseFrame),
    /// The far end renews the pauses of priorities that are still too full.
    Renew,
    /// A pause ends because it was not renewed.
    Expire(u8),
}

/// Pauses of one port.
#[derive(Default)]
pub(super) struct Pauses {
    /// Planned steps, the earliest first.
    steps: BinaryHeap<Reverse<(u64, Step)>>,
    /// By priority, when its pause ends unless it is renewed.
    until_ps: [u64; PRIORITIES],
    /// Since when at least one priority has been paused; `None` = none is.
    since_ps: Option<u64>,
    /// Total duration of past times in which at least one priority was paused.
    total_ps: u64,
    /// Since when each priority has been paused.
    began_ps: [u64; PRIORITIES],
    renews: bool,
    /// Bit p: the far end has paused priority p.
    paused: u8,
    /// Bit p: the far end storms: it pauses priority p whether it has room or not.
    stormed: u8,
    /// Bit p: the host at the far end has no room for priority p.
    held: u8,
    /// The port ignores pauses.
    deaf: bool,
    /// The time of the next call of [`super::Cee::control`] that was requested.
    armed_ps: Option<u64>,
}

/// How long the longest pause lasts on a line of so many bits per second.
pub(super) fn duration_ps(rate_bps: u64) -> u64 {
    let bits = u128::from(QUANTA * QUANTUM_BITS) * u128::from(PS_PER_S);
    narrow::<u64>(bits / u128::from(rate_bps))
}

impl Pauses {
    /// Plans a step for this time. Returns the time of the timer that has to be requested, if one
    /// has.
    pub fn plan(&mut self, at_ps: u64, step: Step) -> Option<u64> {
        self.steps.push(Reverse((at_ps, step)));
        self.arm()
    }

    /// The time of the first step, if no timer for that time or an earlier one is set.
    pub fn arm(&mut self) -> Option<u64> {
        let &Reverse((at_ps, _)) = self.steps.peek()?;
        if self.armed_ps.is_some_and(|armed_ps| armed_ps <= at_ps) {
            return None;
        }
        self.armed_ps = Some(at_ps);
        Some(at_ps)
    }

    /// The timer is due; false if an earlier timer has taken its place.
    pub fn disarm(&mut self, now_ps: u64) -> bool {
        let is_armed = self.armed_ps == Some(now_ps);
        if is_armed {
            self.armed_ps = None;
        }
        is_armed
    }

    /// Takes the next step, if it is due.
    pub fn next_step(&mut self, now_ps: u64) -> Option<Step> {
        let &Reverse((at_ps, step)) = self.steps.peek()?;
        if at_ps > now_ps {
            return None;
        }
        self.steps.pop();
        Some(step)
    }

    /// Notes that a renewal by the far end is planned; false if one was planned before.
    pub fn renews_now(&mut self) -> bool {
        !std::mem::replace(&mut self.renews, true)
    }

    /// The planned renewal has taken place.
    pub fn renewed(&mut self) {
        self.renews = false;
    }

    /// The pause of a priority ends at this time, unless it is renewed.
    pub fn set_until(&mut self, priority: u8, until_ps: u64) {
        self.until_ps[usize::from(priority)] = until_ps;
    }

    /// Whether the pause of a priority has ended without a renewal.
    pub fn has_expired(&self, priority: u8, now_ps: u64) -> bool {
        self.until_ps[usize::from(priority)] <= now_ps
    }

    /// A pause frame of the far end takes effect. Returns the priorities that are newly paused, and
    /// whether any priority has changed.
    pub fn heard(&mut self, frame: PauseFrame, now_ps: u64) -> (u8, bool) {
        let before = self.paused;
        let after = before & !frame.priorities | frame.priorities & frame.xoff;
        self.paused = after;
        let new = after & !before;
        for priority in (0..PRIORITIES).filter(|priority| new & 1 << priority != 0) {
            self.began_ps[priority] = now_ps;
        }
        self.keep_time(now_ps);
        (new, before != after)
    }

    /// From now on the far end pauses these priorities whether it has room or not.
    pub fn set_stormed(&mut self, priorities: u8, now_ps: u64) {
        self.stormed = priorities;
        self.keep_time(now_ps);
    }

    /// From now on the host at the far end has no room for these priorities. Returns those for
    /// which it had.
    pub fn set_held(&mut self, priorities: u8, now_ps: u64) -> u8 {
        let new = priorities & !self.held;
        for (priority, began_ps) in self.began_ps.iter_mut().enumerate() {
            if (new & !self.paused) >> priority & 1 != 0 {
                *began_ps = now_ps;
            }
        }
        self.held = priorities;
        self.keep_time(now_ps);
        new
    }

    /// Whether the port ignores pauses from now on.
    pub fn set_deaf(&mut self, deaf: bool, now_ps: u64) {
        self.deaf = deaf;
        self.keep_time(now_ps);
    }

    /// The link has failed or is up again: all pauses end.
    pub fn forget(&mut self, now_ps: u64) {
        self.steps.clear();
        self.renews = false;
        self.paused = 0;
        self.keep_time(now_ps);
    }

    /// Updates the time for which at least one priority has been paused.
    fn keep_time(&mut self, now_ps: u64) {
        match (self.since_ps, self.paused() != 0) {
            (None, true) => self.since_ps = Some(now_ps),
            (Some(since_ps), false) => {
                self.total_ps += now_ps - since_ps;
                self.since_ps = None;
            }
            _ => {}
        }
    }

    /// Priorities that the far end has paused.
    pub fn paused(&self) -> u8 {
        self.paused | self.stormed | self.held
    }

    /// Priorities that may not be sent.
    pub fn shut(&self) -> u8 {
        if self.deaf { 0 } else { self.paused() }
    }

    /// The total time for which at least one priority has been paused.
    pub fn paused_ps(&self, now_ps: u64) -> u64 {
        self.total_ps + self.since_ps.map_or(0, |since_ps| now_ps - since_ps)
    }

    /// Since when a priority has been paused.
    pub fn began_ps(&self, priority: usize) -> u64 {
        self.began_ps[priority]
    }

    /// Checks that the paused time is kept while a priority is paused, that a timer is set for the
    /// next planned step, and that the port knows its paused priorities.
    pub fn audit(&self, shut: u8) -> Result<(), String> {
        if self.since_ps.is_some() != (self.paused() != 0) {
            return Err("keeps no time of its pauses".to_owned());
        }
        let next_ps = self.steps.peek().map(|&Reverse((at_ps, _))| at_ps);
        if next_ps.is_some_and(|next_ps| self.armed_ps.is_none_or(|armed_ps| armed_ps > next_ps)) {
            return Err(format!("is not called for the pause at {next_ps:?}"));
        }
        if shut != self.shut() {
            return Err(format!(
                "may not send {:#x} but thinks {shut:#x}",
                self.shut()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_kept_while_any_priority_is_paused() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.heard(PauseFrame::stop(0b11), 10), (0b11, true));
        assert_eq!(
            pauses.heard(PauseFrame::stop(0b10), 20),
            (0, false),
            "renewed"
        );
        assert_eq!(pauses.began_ps(1), 10);
        assert_eq!(pauses.heard(PauseFrame::go_on(0b01), 30), (0, true));
        assert_eq!((pauses.paused(), pauses.paused_ps(35)), (0b10, 25));
        pauses.heard(PauseFrame::go_on(0b10), 40);
        assert_eq!(pauses.paused_ps(99), 30);
        pauses.set_stormed(0x80, 100);
        assert_eq!((pauses.shut(), pauses.paused_ps(110)), (0x80, 40));
        pauses.set_deaf(true, 110);
        assert_eq!((pauses.shut(), pauses.paused()), (0, 0x80));
        assert_eq!(pauses.audit(0), Ok(()));
        assert!(pauses.audit(0x80).is_err());
    }

    #[test]
    fn the_owner_calls_for_the_earliest_step() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.plan(50, Step::Renew), Some(50));
        assert_eq!(pauses.plan(60, Step::Expire(3)), None, "he calls earlier");
        assert_eq!(pauses.plan(40, Step::Expire(1)), Some(40));
        assert!(pauses.disarm(40));
        assert_eq!(pauses.next_step(40), Some(Step::Expire(1)));
        assert_eq!(pauses.next_step(40), None);
        assert!(pauses.audit(0).is_err(), "he does not know of the rest");
        assert_eq!(pauses.arm(), Some(50));
        assert!(!pauses.disarm(45), "replaced");
        assert_eq!(pauses.audit(0), Ok(()));
    }

    #[test]
    fn a_pause_is_as_long_as_its_quanta() {
        // 65 535 times 512 bits at 10 Gbit/s.
        assert_eq!(duration_ps(10_000_000_000), 3_355_392_000);
        assert_eq!(PauseFrame::stop(0b10).quanta()[1], Some(0xffff));
        assert_eq!(PauseFrame::go_on(0b10).quanta()[..2], [None, Some(0)]);
    }
}
