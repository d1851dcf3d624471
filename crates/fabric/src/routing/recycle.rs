//! Path values that acknowledgements bring back: REPS (Bonato et al., "Recycled Entropy Packet
//! Spraying", 2024).
//!
//! A sender keeps the path values of the last acknowledgements without a mark and uses each once
//! more. With none left it draws one. After a timeout it draws none for a while ("freezing"),
//! because a drawn one may lead to a link that has failed: it repeats values that have worked.

use sluicegate_core::number::narrow;

use crate::random::draw;

/// How many values a sender keeps, as in the paper.
const KEPT: usize = 8;

/// How long a sender draws no values after a timeout: 100 ms. Chosen; the paper leaves it open.
const FROZEN_PS: u64 = 100_000_000_000;

/// The path values of a sender.
#[derive(Clone, Debug)]
pub struct Recycled {
    values: [u32; KEPT],
    /// Where the next value is kept.
    head: u8,
    /// How many of `values` are set.
    filled: u8,
    /// How many values before `head` have not been used again.
    fresh: u8,
    /// Values to draw before kept ones are used, after freezing.
    explore: u8,
    /// 0 = it does not freeze.
    frozen_until_ps: u64,
    draws: u64,
}

impl Recycled {
    /// Without a value. `seed` makes what is drawn by lot.
    pub fn new(seed: u64) -> Self {
        Self {
            values: [0; KEPT],
            head: 0,
            filled: 0,
            fresh: 0,
            explore: 0,
            frozen_until_ps: 0,
            draws: seed,
        }
    }

    /// The path value of the next packet.
    pub fn next_value(&mut self) -> u32 {
        let is_frozen = self.frozen_until_ps > 0;
        if self.filled == 0 || self.explore > 0 || (self.fresh == 0 && !is_frozen) {
            self.explore = self.explore.saturating_sub(1);
            return (draw(&mut self.draws) >> 32) as u32;
        }
        if self.fresh > 0 {
            let at = (usize::from(self.head) + KEPT - usize::from(self.fresh)) % KEPT;
            self.fresh -= 1;
            return self.values[at];
        }
        let at = self.head % self.filled;
        self.head = (self.head + 1) % self.filled;
        self.values[usize::from(at)]
    }

    /// An acknowledgement has come back for a packet with this path value; `marked` says whether it
    /// tells of congestion.
    pub fn acknowledged(&mut self, path: u32, marked: bool, now_ps: u64) {
        if self.frozen_until_ps > 0 {
            self.thaw(now_ps);
        }
        if marked {
            return;
        }
        self.values[usize::from(self.head)] = path;
        self.filled = self.filled.max(self.head + 1);
        self.head = (self.head + 1) % narrow::<u8>(KEPT);
        self.fresh = (self.fresh + 1).min(narrow::<u8>(KEPT));
    }

    /// A retransmission timer has expired. After a while without an acknowledgement it means that
    /// the kept values do not work either.
    pub fn timed_out(&mut self, now_ps: u64) {
        if self.frozen_until_ps > 0 {
            self.thaw(now_ps);
        } else if self.explore == 0 {
            self.frozen_until_ps = now_ps + FROZEN_PS;
        }
    }

    fn thaw(&mut self, now_ps: u64) {
        if now_ps >= self.frozen_until_ps {
            self.frozen_until_ps = 0;
            self.explore = narrow::<u8>(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_once_and_in_order() {
        let mut paths = Recycled::new(1);
        let drawn: Vec<u32> = (0..3).map(|_| paths.next_value()).collect();
        assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2]);
        paths.acknowledged(drawn[0], false, 0);
        paths.acknowledged(drawn[1], true, 0);
        paths.acknowledged(drawn[2], false, 0);
        assert_eq!(
            [paths.next_value(), paths.next_value()],
            [drawn[0], drawn[2]]
        );
        assert!(
            !drawn.contains(&paths.next_value()),
            "the marked one is not used again"
        );
    }

    #[test]
    fn the_last_eight_are_kept() {
        let mut paths = Recycled::new(1);
        (1..=10).for_each(|value| paths.acknowledged(value, false, 0));
        let next: Vec<u32> = (0..8).map(|_| paths.next_value()).collect();
        assert_eq!(next, [3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(paths.next_value() > 10);
    }

    #[test]
    fn after_a_timeout_only_values_that_worked_are_used() {
        for kept in [3, 8, 20] {
            let mut paths = Recycled::new(1);
            (1..=kept).for_each(|value| paths.acknowledged(value, false, 0));
            paths.timed_out(7);
            assert!((0..100).all(|_| (1..=kept).contains(&paths.next_value())));
            // Then it explores before it trusts what it kept.
            paths.acknowledged(1, false, 7 + FROZEN_PS);
            assert!((0..KEPT).all(|_| paths.next_value() > kept));
            assert_eq!(paths.next_value(), 1);
        }
    }

    #[test]
    fn kept_values_that_do_not_work_are_given_up() {
        let mut paths = Recycled::new(1);
        paths.acknowledged(1, false, 0);
        paths.timed_out(7);
        paths.timed_out(6 + FROZEN_PS);
        assert_eq!([paths.next_value(), paths.next_value()], [1, 1]);
        paths.timed_out(7 + FROZEN_PS);
        assert!((0..KEPT).all(|_| paths.next_value() > 1));
    }
}
