//! A receiver: when it asks its neighbour to pause a priority (IEEE 802.1Q, clause 36: the PFC
//! initiator).

use serde::{Deserialize, Serialize};

use crate::{PRIORITIES, PfcFrame, quanta_ns};

/// When a priority is paused and resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A priority that holds more is paused.
    pub xoff_bytes: u64,
    /// One that holds less is resumed; < `xoff_bytes`.
    pub xon_bytes: u64,
}

/// The time of each pause, in quanta: the longest.
const PAUSE: u16 = u16::MAX;

/// What a receiver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    rate_bps: u64,
    /// Bit p: priority p is lossless, and has a buffer.
    lossless: u8,
    thresholds: Thresholds,
    held_bytes: [u64; PRIORITIES],
    most_bytes: u64,
    state: DemandState,
}

/// What a receiver has asked for. Times are of the clock that its caller passes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandState {
    /// Bit p: priority p is to be paused.
    wanted: u8,
    /// Bit p: the neighbour has been asked to pause priority p, and not to resume it.
    asked: u8,
    /// By priority, when it was asked last, ns; where it was.
    asked_ns: [u64; PRIORITIES],
    /// Frames that were sent.
    frames: u64,
}

impl DemandState {
    /// The same where the times of pauses are unknown: all are asked for again at once.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.asked_ns = [0; PRIORITIES];
        self
    }
}

impl Demand {
    /// Of an empty buffer. `lossless`: bit p, priority p.
    pub fn new(rate_bps: u64, lossless: u8, thresholds: Thresholds) -> Self {
        Self {
            rate_bps,
            lossless,
            thresholds,
            held_bytes: [0; PRIORITIES],
            most_bytes: 0,
            state: DemandState::default(),
        }
    }

    /// What it has asked for, for another process. What it holds is not part of it.
    pub fn state(&self) -> &DemandState {
        &self.state
    }

    /// Goes on where another process was. A priority that holds nothing here is resumed.
    pub fn restore(&mut self, state: DemandState) {
        self.state = state;
        self.state.asked &= self.lossless;
        self.state.wanted = 0;
        for priority in 0..PRIORITIES {
            self.decide(priority);
        }
    }

    /// A frame takes room.
    #[inline]
    pub fn take(&mut self, priority: u8, bytes: u64) {
        let priority = usize::from(priority) % PRIORITIES;
        self.held_bytes[priority] += bytes;
        self.most_bytes = self.most_bytes.max(self.held_bytes[priority]);
        self.decide(priority);
    }

    /// A frame gives its room back.
    #[inline]
    pub fn give_back(&mut self, priority: u8, bytes: u64) {
        let priority = usize::from(priority) % PRIORITIES;
        self.held_bytes[priority] = self.held_bytes[priority].saturating_sub(bytes);
        self.decide(priority);
    }

    fn decide(&mut self, priority: usize) {
        let (bit, held) = (1 << priority, self.held_bytes[priority]);
        if self.lossless & bit == 0 {
            return;
        }
        if held > self.thresholds.xoff_bytes {
            self.state.wanted |= bit;
        } else if held < self.thresholds.xon_bytes || held == 0 {
            self.state.wanted &= !bit;
        }
    }

    /// The frame that is to be sent now, if any: it pauses and resumes what has changed, and
    /// repeats pauses half of whose time is over. One that is sent is to be told by
    /// [`Demand::sent`]; one that finds no room is asked for again.
    #[inline]
    pub fn due(&self, now_ns: u64) -> Option<PfcFrame> {
        let DemandState { wanted, asked, .. } = self.state;
        if wanted | asked == 0 {
            return None;
        }
        let late = (0..PRIORITIES).any(|priority| {
            let is_held = (wanted & asked) >> priority & 1 != 0;
            is_held && self.again_ns(priority) <= now_ns
        });
        if wanted == asked && !late {
            return None;
        }
        // Everything is said in each frame, so one that was lost is made good by the next.
        let mut frame = PfcFrame {
            enabled: wanted | asked,
            ..PfcFrame::default()
        };
        for (priority, quanta) in frame.quanta.iter_mut().enumerate() {
            if wanted >> priority & 1 != 0 {
                *quanta = PAUSE;
            }
        }
        Some(frame)
    }

    /// The frame that was due has been sent.
    pub fn sent(&mut self, now_ns: u64) {
        let state = &mut self.state;
        state.frames += 1;
        state.asked = state.wanted;
        for (priority, asked_ns) in state.asked_ns.iter_mut().enumerate() {
            if state.wanted >> priority & 1 != 0 {
                *asked_ns = now_ns;
            }
        }
    }

    /// When a pause is to be repeated, ns.
    fn again_ns(&self, priority: usize) -> u64 {
        let half_ns = quanta_ns(PAUSE / 2, self.rate_bps);
        self.state.asked_ns[priority].saturating_add(half_ns)
    }

    /// When a frame is due at the latest if nothing is taken or given back, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let wanted = (0..PRIORITIES).filter(|priority| self.state.wanted >> priority & 1 != 0);
        wanted.map(|priority| self.again_ns(priority)).min()
    }

    /// Priorities that the neighbour has been asked to pause, bit p.
    pub fn asked(&self) -> u8 {
        self.state.asked
    }

    /// Bytes that a priority holds.
    pub fn held_bytes(&self, priority: u8) -> u64 {
        self.held_bytes[usize::from(priority) % PRIORITIES]
    }

    /// The most bytes that any priority has ever held.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Frames that were sent.
    pub fn frames(&self) -> u64 {
        self.state.frames
    }

    /// The thresholds.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Other thresholds, such as those of a buffer of another size.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
        (0..PRIORITIES).for_each(|priority| self.decide(priority));
    }

    /// The neighbour has gone, and all its frames with it.
    pub fn clear(&mut self) {
        self.held_bytes = [0; PRIORITIES];
        (self.state.wanted, self.state.asked) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000_000;

    fn demand() -> Demand {
        let thresholds = Thresholds {
            xoff_bytes: 10_000,
            xon_bytes: 8_000,
        };
        Demand::new(RATE, 1 << 3, thresholds)
    }

    #[test]
    fn xoff_pauses_and_xon_resumes() {
        let mut demand = demand();
        demand.take(3, 10_000);
        assert_eq!(demand.due(0), None);
        demand.take(3, 1);
        let pause = demand.due(0).expect("a pause");
        assert_eq!((pause.enabled, pause.quanta[3]), (1 << 3, u16::MAX));
        // It found no room, and is due still.
        assert_eq!(demand.due(5), Some(pause));
        demand.sent(5);
        assert_eq!((demand.due(5), demand.asked()), (None, 1 << 3));
        demand.give_back(3, 2_001);
        assert_eq!(demand.due(6), None);
        demand.give_back(3, 1);
        let resume = demand.due(6).expect("an end");
        assert_eq!((resume.enabled, resume.quanta[3]), (1 << 3, 0));
        demand.sent(6);
        assert_eq!((demand.due(7), demand.next_ns()), (None, None));
        assert_eq!(demand.frames(), 2);
    }

    #[test]
    fn a_pause_is_repeated_before_it_ends() {
        let mut demand = demand();
        demand.take(3, 10_001);
        demand.sent(0);
        let again_ns = demand.next_ns().expect("a time");
        assert!(again_ns < quanta_ns(PAUSE, RATE));
        assert_eq!(demand.due(again_ns - 1), None);
        assert!(demand.due(again_ns).is_some());
        demand.sent(again_ns);
        assert_eq!(demand.due(again_ns), None);
    }

    #[test]
    fn lossy_priorities_ask_for_nothing() {
        let mut demand = demand();
        demand.take(4, 1 << 40);
        assert_eq!(demand.due(0), None);
    }

    #[test]
    fn a_successor_that_holds_nothing_resumes() {
        let mut before = demand();
        before.take(3, 20_000);
        before.sent(0);
        let mut after = demand();
        after.restore(before.state().clone().again());
        let frame = after.due(0).expect("an end");
        assert_eq!((frame.enabled, frame.quanta[3]), (1 << 3, 0));
        // One that holds as much says again that the pause goes on.
        let mut after = demand();
        after.take(3, 20_000);
        after.restore(before.state().clone().again());
        let frame = after.due(1 << 40).expect("a pause");
        assert_eq!(frame.quanta[3], u16::MAX);
    }
}
