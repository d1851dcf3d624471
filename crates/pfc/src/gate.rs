//! A sender: which priorities its neighbour has paused, and until when (IEEE 802.1Q,
//! clause 36: the PFC receiver and its timers).

use serde::{Deserialize, Serialize};

use crate::{PRIORITIES, PfcFrame, quanta_ns};

/// What a sender may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    rate_bps: u64,
    /// Bit p: frames of the neighbour are heard for priority p.
    listens: u8,
    state: GateState,
}

/// Where a gate is. Times are of the clock that its caller passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateState {
    /// Bit p: priority p is paused.
    paused: u8,
    /// By priority, when its pause ends, ns; where it is paused.
    until_ns: [u64; PRIORITIES],
    /// By priority, since when it is paused without a gap, ns; where it is paused.
    since_ns: [u64; PRIORITIES],
    /// By priority, for how long it was paused before, ns.
    paused_ns: [u64; PRIORITIES],
    /// Frames that were heard.
    frames: u64,
}

impl GateState {
    /// The same for a clock that is `later_ns` ahead of this one: times that have begun stay as
    /// long ago, and what is left of pauses is as long.
    #[must_use]
    pub fn shifted(mut self, from_ns: u64, to_ns: u64) -> Self {
        let shift = |at_ns: u64| to_ns.saturating_add(at_ns).saturating_sub(from_ns);
        self.until_ns = self.until_ns.map(shift);
        self.since_ns = self.since_ns.map(shift);
        self
    }
}

impl Gate {
    /// Open. `listens`: bit p, whether pauses of priority p are obeyed (where PFC is
    /// enabled for it); others may be lost and are never held back.
    pub fn new(rate_bps: u64, listens: u8) -> Self {
        Self {
            rate_bps,
            listens,
            state: GateState::default(),
        }
    }

    /// Where it is, for another process.
    pub fn state(&self) -> &GateState {
        &self.state
    }

    /// Goes on where another process was.
    pub fn restore(&mut self, state: GateState) {
        self.state = state;
        self.state.paused &= self.listens;
    }

    /// A frame of the neighbour has come.
    pub fn hear(&mut self, frame: &PfcFrame, now_ns: u64) {
        self.expire(now_ns);
        let (listens, rate_bps) = (self.listens, self.rate_bps);
        let state = &mut self.state;
        state.frames += 1;
        for (priority, &quanta) in frame.quanta.iter().enumerate() {
            let bit = 1 << priority;
            if frame.enabled & listens & bit == 0 {
                continue;
            }
            if quanta == 0 {
                state.end(priority, now_ns);
                continue;
            }
            if state.paused & bit == 0 {
                state.paused |= bit;
                state.since_ns[priority] = now_ns;
            }
            // The timer begins anew, also if it had more left.
            state.until_ns[priority] = now_ns.saturating_add(quanta_ns(quanta, rate_bps));
        }
    }

    /// Ends the pauses whose time is over. The priorities that are still paused, bit p.
    #[inline]
    pub fn expire(&mut self, now_ns: u64) -> u8 {
        if self.state.paused != 0 {
            for priority in 0..PRIORITIES {
                let until_ns = self.state.until_ns[priority];
                if self.state.paused >> priority & 1 != 0 && until_ns <= now_ns {
                    self.state.end(priority, until_ns);
                }
            }
        }
        self.state.paused
    }

    /// When the next pause ends by itself, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let paused = (0..PRIORITIES).filter(|priority| self.state.paused >> priority & 1 != 0);
        paused.map(|priority| self.state.until_ns[priority]).min()
    }

    /// Priorities that are paused, bit p.
    #[inline]
    pub fn paused(&self) -> u8 {
        self.state.paused
    }

    /// Since when a priority is paused without a gap, ns.
    pub fn since_ns(&self, priority: u8) -> Option<u64> {
        let is_paused = self.state.paused >> priority & 1 != 0;
        is_paused.then(|| self.state.since_ns[usize::from(priority)])
    }

    /// For how long a priority has been paused, all in all, ns.
    pub fn paused_ns(&self, priority: u8, now_ns: u64) -> u64 {
        let now = self.since_ns(priority);
        let now = now.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.state.paused_ns[usize::from(priority)] + now
    }

    /// Frames that were heard.
    pub fn frames(&self) -> u64 {
        self.state.frames
    }

    /// The neighbour has gone, and its pauses with it.
    pub fn open(&mut self, now_ns: u64) {
        for priority in 0..PRIORITIES {
            self.state.end(priority, now_ns);
        }
    }
}

impl GateState {
    fn end(&mut self, priority: usize, at_ns: u64) {
        if self.paused >> priority & 1 != 0 {
            self.paused &= !(1 << priority);
            self.paused_ns[priority] += at_ns.saturating_sub(self.since_ns[priority]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 512 ns for each quantum.
    const RATE: u64 = 1_000_000_000;

    fn pause(enabled: u8, quanta: u16) -> PfcFrame {
        PfcFrame {
            enabled,
            quanta: [quanta; PRIORITIES],
        }
    }

    #[test]
    fn a_pause_ends_by_its_timer_or_by_a_frame() {
        let mut gate = Gate::new(RATE, 0xff);
        gate.hear(&pause(1 << 3 | 1 << 4, 10), 1000);
        assert_eq!((gate.paused(), gate.next_ns()), (0x18, Some(6120)));
        assert_eq!(gate.expire(6119), 0x18);
        gate.hear(&pause(1 << 3, 0), 6119);
        assert_eq!(gate.paused(), 0x10);
        assert_eq!(gate.expire(6120), 0);
        assert_eq!(gate.next_ns(), None);
        assert_eq!(
            (gate.paused_ns(3, 9000), gate.paused_ns(4, 9000)),
            (5119, 5120)
        );
    }

    #[test]
    fn a_second_frame_begins_the_timer_anew() {
        let mut gate = Gate::new(RATE, 0xff);
        gate.hear(&pause(1, 100), 0);
        gate.hear(&pause(1, 10), 1000);
        assert_eq!(gate.next_ns(), Some(6120));
        assert_eq!(gate.since_ns(0), Some(0));
        gate.hear(&pause(1, 10), 7000);
        assert_eq!(
            (gate.since_ns(0), gate.paused_ns(0, 7000)),
            (Some(7000), 6120)
        );
    }

    #[test]
    fn lossy_priorities_are_never_paused() {
        let mut gate = Gate::new(RATE, 1 << 3);
        gate.hear(&pause(0xff, u16::MAX), 0);
        assert_eq!((gate.paused(), gate.frames()), (1 << 3, 1));
    }

    #[test]
    fn what_is_left_of_a_pause_goes_over_to_another_clock() {
        let mut gate = Gate::new(RATE, 0xff);
        gate.hear(&pause(1, 10), 1000);
        let mut next = Gate::new(RATE, 0xff);
        next.restore(gate.state().clone().shifted(3000, 10));
        assert_eq!(next.next_ns(), Some(10 + 3120));
        assert_eq!(next.expire(10 + 3120), 0);
    }
}
