//! Impairments of frames on a bad link: damage, duplicates, delays that let others overtake.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::{
    pool::Handle,
    random::{draw, happens},
};

/// The impairment of frames that have crossed one direction of a link. Rates are probabilities,
/// 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Of each bit to arrive wrong; a frame with a wrong bit is lost: with 1 − (1 − rate)^(8 ×
    /// bytes).
    pub bit_error_rate: f64,
    /// Of each frame to arrive twice.
    pub duplicate_rate: f64,
    /// Of each frame to be late, so that those behind it overtake it.
    pub reorder_rate: f64,
    /// Such a frame is late by up to this much, drawn uniformly.
    pub reorder_delay_ps: u64,
}

impl Impairment {
    /// True if it does nothing.
    pub fn is_none(&self) -> bool {
        self.bit_error_rate <= 0.0 && self.duplicate_rate <= 0.0 && self.reorder_rate <= 0.0
    }
}

/// The fate of a frame at the far end of an impaired link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is damaged: drop it.
    Corrupt,
    /// It arrives.
    Arrives {
        /// And so does a copy, now.
        twice: bool,
        /// Not now but at this time, which needs a timer.
        late_ps: Option<u64>,
    },
}

/// The impairments of one port.
pub(crate) struct Impaired {
    pub(crate) impairment: Impairment,
    random: u64,
    /// Late frames: time, number, frame.
    late: BinaryHeap<Reverse<(u64, u64, Handle)>>,
    number: u64,
}

impl Impaired {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            impairment: Impairment::default(),
            random: !seed,
            late: BinaryHeap::new(),
            number: 0,
        }
    }

    /// Decides on a frame that has crossed the link; a late one is kept.
    pub(crate) fn decide(&mut self, now_ps: u64, frame: Handle, bytes: u32) -> Fate {
        let rates = self.impairment;
        if rates.bit_error_rate > 0.0 {
            let intact = power(1.0 - rates.bit_error_rate, 8 * bytes);
            if happens(&mut self.random, 1.0 - intact) {
                return Fate::Corrupt;
            }
        }
        let twice = rates.duplicate_rate > 0.0 && happens(&mut self.random, rates.duplicate_rate);
        let late = rates.reorder_rate > 0.0 && happens(&mut self.random, rates.reorder_rate);
        let late_ps = late.then(|| {
            let share = u128::from(draw(&mut self.random)) * u128::from(rates.reorder_delay_ps);
            let at_ps = now_ps + (share >> 64) as u64;
            self.late.push(Reverse((at_ps, self.number, frame)));
            self.number += 1;
            at_ps
        });
        Fate::Arrives { twice, late_ps }
    }

    /// The next late frame that is due.
    pub(crate) fn due(&mut self, now_ps: u64) -> Option<Handle> {
        let &Reverse((at_ps, _, frame)) = self.late.peek()?;
        if at_ps > now_ps {
            return None;
        }
        self.late.pop();
        Some(frame)
    }

    pub(crate) fn late(&self) -> usize {
        self.late.len()
    }
}

/// By squaring: the same bits on every machine, which no mathematical library promises.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn impaired(impairment: Impairment) -> Impaired {
        let mut impaired = Impaired::new(7);
        impaired.impairment = impairment;
        impaired
    }

    #[test]
    fn a_frame_is_as_likely_lost_as_one_of_its_bits_is_wrong() {
        let mut link = impaired(Impairment {
            bit_error_rate: 1e-5,
            ..Impairment::default()
        });
        let frames = 100_000;
        let lost = (0..frames).filter(|_| link.decide(0, 0, 1500) == Fate::Corrupt);
        let share = lost.count() as f64 / f64::from(frames);
        // 1 - (1 - 1e-5)^12000; five standard deviations of a binomial are 0.005.
        assert!((share - 0.113_08).abs() < 0.005, "{share}");
    }

    #[test]
    fn late_frames_come_by_time_and_then_by_number() {
        let mut link = impaired(Impairment {
            reorder_rate: 1.0,
            reorder_delay_ps: 1_000,
            ..Impairment::default()
        });
        let mut times = Vec::new();
        for frame in 0..50 {
            let Fate::Arrives { twice, late_ps } = link.decide(5_000, frame, 100) else {
                panic!("nothing damages it");
            };
            let at_ps = late_ps.expect("every one is late");
            assert!(!twice && (5_000..6_000).contains(&at_ps));
            times.push(at_ps);
        }
        assert_eq!(link.due(4_999), None);
        let order: Vec<Handle> = std::iter::from_fn(|| link.due(6_000)).collect();
        assert_eq!((order.len(), link.late()), (50, 0));
        let at = |frame: Handle| (times[frame as usize], frame);
        assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])));
        assert!(
            order.windows(2).any(|two| two[0] > two[1]),
            "nothing overtakes"
        );
    }

    #[test]
    fn a_good_link_changes_nothing_and_draws_nothing() {
        let mut link = impaired(Impairment::default());
        let fate = link.decide(1, 0, 9000);
        assert_eq!(
            fate,
            Fate::Arrives {
                twice: false,
                late_ps: None
            }
        );
        assert_eq!(link.random, !7);
    }
}
