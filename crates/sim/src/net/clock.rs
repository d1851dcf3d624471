//! Time, the event queue, and the sources of events.

use crate::wheel::{Source, Wheel};

/// Kinds of sources, in the order in which their events at one time are handled. The kind is above
/// these bits of a source.
pub(super) const KIND_BITS: u32 = 28;
pub(super) const PORT: u32 = 0;
pub(super) const ADAPTER: u32 = 1;
pub(super) const END: u32 = 2;
pub(super) const ALARM: u32 = 3;
pub(crate) const LATE: u32 = 4;
pub(crate) const READER: u32 = 5;
pub(super) const TRANSMIT: u32 = 6;
pub(super) const CONTROL: u32 = 7;
pub(super) const RESEQUENCE: u32 = 8;
pub(super) const OVER: u32 = 9;
pub(super) const WAKE: u32 = 10;
pub(super) const FORWARD: u32 = 11;

pub(crate) fn source(kind: u32, index: u32) -> Source {
    kind << KIND_BITS | index
}

/// The time in a part, and its event queue.
#[derive(Default)]
pub struct Clock {
    /// Simulated time.
    pub(crate) now_ps: u64,
    pub(crate) wheel: Wheel,
    /// Events handled so far.
    pub(super) events: u64,
}

impl Clock {
    /// Simulated time in the unit of stacks.
    pub fn now_ns(&self) -> u64 {
        self.now_ps / 1_000
    }

    /// Advances the time to that of the next event, and counts the event.
    #[inline(always)]
    pub(super) fn begin_event(&mut self, time_ps: u64) {
        self.now_ps = self.now_ps.max(time_ps);
        self.events += 1;
    }

    /// Advances the time without an event.
    pub(super) fn pass(&mut self, until_ps: u64) {
        self.now_ps = self.now_ps.max(until_ps);
    }
}
