//! How priorities share the buffers of a sender.

use sluicegate_pfc::PRIORITIES;

/// The place of a priority, for frames of MAC control: they have none.
pub const CONTROL: u8 = PRIORITIES as u8;

/// Buffers that only frames of MAC control may use: one, since each says everything.
const KEPT: usize = 1;

/// The shares, and what of them the receiver has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shares {
    /// Most buffers of each lossless priority; `None`: each priority may use all of them.
    limit: Option<u16>,
    /// Bit p: priority p is lossless.
    lossless: u8,
    /// By priority, the buffers that the receiver has.
    away: [u16; PRIORITIES + 1],
    /// Bit p: a frame of priority p did not fit into its share.
    full: u8,
}

impl Shares {
    /// Each priority of `lossless` (bit p) has so many buffers at most.
    pub fn set(&mut self, lossless: u8, limit: u16) {
        (self.limit, self.lossless) = (Some(limit), lossless);
    }

    /// Buffers that a frame of a priority must leave free.
    #[inline]
    pub fn kept(&self, lane: u8) -> usize {
        match self.limit {
            Some(_) if lane != CONTROL => KEPT,
            _ => 0,
        }
    }

    /// Whether so many more buffers fit into the share of a priority.
    #[inline]
    pub fn fits(&self, lane: u8, wanted: usize) -> bool {
        let Some(limit) = self.limit else { return true };
        let is_bound = lane < CONTROL && self.lossless >> lane & 1 != 0;
        !is_bound || usize::from(self.away[usize::from(lane)]) + wanted <= usize::from(limit)
    }

    /// A frame of a priority did not fit into its share.
    pub fn note_full(&mut self, lane: u8) {
        self.full |= 1 << (lane & (CONTROL - 1));
    }

    /// Priorities whose share has no more buffers than when a frame did not fit, bit p.
    #[inline]
    pub fn full(&self) -> u8 {
        self.full
    }

    /// The receiver gets buffers.
    #[inline]
    pub fn take(&mut self, lane: u8, buffers: usize) {
        self.away[usize::from(lane.min(CONTROL))] += buffers as u16;
    }

    /// A buffer has come back.
    #[inline]
    pub fn give_back(&mut self, lane: u8) {
        let away = &mut self.away[usize::from(lane.min(CONTROL))];
        *away = away.saturating_sub(1);
        if lane < CONTROL {
            self.full &= !(1 << lane);
        }
    }
}
