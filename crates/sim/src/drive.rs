//! Whether the parts of a network have a thread each or take turns on one: whichever is faster here
//! and now.
//!
//! Threads meet after each window, which costs more than it gains where windows hold few events, or
//! where others use the CPUs as well. That cannot be known beforehand, so it is measured; since
//! results do not depend on the number of threads, they do not depend on what is measured either.

use std::time::Duration;

/// A slice should take about this long: much longer than starting threads does.
const SLICE: Duration = Duration::from_millis(10);
/// The first slice, and what a slice is tried with that may turn out slow.
const TRIAL_PS: u64 = 10_000_000;
/// Slices between trials of the slower way; more when it turns out slower again.
const PATIENCE: u32 = 8;
const PATIENCE_MAX: u32 = 1 << 12;

/// How parts are driven.
#[derive(Clone, Debug)]
pub(crate) enum Drive {
    /// A thread each.
    Together,
    /// The faster way.
    Measured(Measured),
}

/// The measurements so far.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Seconds per event, taking turns and together; `None` = not tried yet.
    cost: [Option<f64>; 2],
    slice_ps: u64,
    /// Slices until the other way is tried again, and what that will be then.
    left: u32,
    patience: u32,
}

/// A stretch of simulated time, driven one way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub until_ps: u64,
    pub together: bool,
    trial: bool,
}

impl Drive {
    pub fn measured() -> Self {
        Self::Measured(Measured {
            cost: [None; 2],
            slice_ps: TRIAL_PS,
            left: PATIENCE,
            patience: PATIENCE,
        })
    }

    /// The slice to drive next between now and `until_ps`.
    pub fn slice(&self, now_ps: u64, until_ps: u64) -> Slice {
        let Self::Measured(measured) = self else {
            return Slice {
                until_ps,
                together: true,
                trial: false,
            };
        };
        let (together, trial) = measured.choice();
        let length_ps = match trial {
            true => measured.slice_ps.min(TRIAL_PS),
            false => measured.slice_ps,
        };
        Slice {
            until_ps: until_ps.min(now_ps.saturating_add(length_ps)),
            together,
            trial,
        }
    }

    /// How long a slice took that had so many events.
    pub fn took(&mut self, slice: &Slice, events: u64, time: Duration) {
        if let Self::Measured(measured) = self {
            measured.took(slice, events, time);
        }
    }
}

impl Measured {
    /// Whether threads are used, and whether that is a trial of what was slower.
    fn choice(&self) -> (bool, bool) {
        match self.cost {
            [None, _] => (false, false),
            [Some(_), None] => (true, true),
            [Some(turns), Some(threads)] => {
                let faster = threads < turns;
                let trial = self.left == 0;
                (faster != trial, trial)
            }
        }
    }

    fn took(&mut self, slice: &Slice, events: u64, time: Duration) {
        if !slice.trial {
            self.left = self.left.saturating_sub(1);
            if time < SLICE / 2 {
                self.slice_ps = self.slice_ps.saturating_mul(2);
            } else if time > SLICE * 2 {
                self.slice_ps = (self.slice_ps / 2).max(1);
            }
        }
        if events == 0 {
            return;
        }
        let cost = time.as_secs_f64() / events as f64;
        let known = &mut self.cost[usize::from(slice.together)];
        // A single slice may have been disturbed.
        *known = Some(known.map_or(cost, |known| (known + cost) / 2.0));
        if slice.trial {
            let [turns, threads] = self.cost.map(|cost| cost.unwrap_or(f64::MAX));
            let now_faster = (threads < turns) == slice.together;
            self.patience = match now_faster {
                true => PATIENCE,
                false => (self.patience * 2).min(PATIENCE_MAX),
            };
            self.left = self.patience;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives `slices` slices of which each event takes so many microseconds, taking turns and
    /// together; returns how many of the last half were driven together.
    fn together(slices: u32, cost_us: [u64; 2]) -> u32 {
        let mut drive = Drive::measured();
        let (mut now_ps, mut count) = (0, 0);
        for index in 0..slices {
            let slice = drive.slice(now_ps, u64::MAX);
            let events = (slice.until_ps - now_ps) / 1_000_000;
            let time = Duration::from_micros(events * cost_us[usize::from(slice.together)]);
            drive.took(&slice, events, time);
            count += u32::from(slice.together && index >= slices / 2);
            now_ps = slice.until_ps;
        }
        count
    }

    #[test]
    fn the_faster_way_is_found_and_the_other_rarely_tried() {
        assert!(together(400, [10, 6]) > 190);
        assert!(together(400, [10, 300]) < 4);
    }

    #[test]
    fn what_has_become_slow_is_left() {
        let mut drive = Drive::measured();
        let mut now_ps = 0;
        let mut last = [false; 2];
        for phase in 0..2 {
            let cost_us = [[10, 6], [10, 500]][phase];
            for _ in 0..200 {
                let slice = drive.slice(now_ps, u64::MAX);
                let time = Duration::from_micros(1_000 * cost_us[usize::from(slice.together)]);
                drive.took(&slice, 1_000, time);
                now_ps = slice.until_ps;
                last[phase] = slice.together;
            }
        }
        assert_eq!(last, [true, false]);
    }
}
