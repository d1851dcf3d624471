//! Estimates of the time that is left for the present run, and for all runs.

use std::{fmt, time::Duration};

/// Durations of the runs so far. All times count from the same moment, the announcement of the
/// first run or earlier.
#[derive(Debug, Default)]
pub struct Pace {
    /// The number of runs that have ended, and their total duration.
    ended: u32,
    took: Duration,
    /// Runs after the present one.
    to_come: u32,
    run_began: Duration,
    phase_began: Duration,
}

/// Wall-clock time that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    run: Duration,
    /// Time until all runs have ended, if there are more.
    all: Option<Duration>,
}

impl Pace {
    /// Run `number` (from 1) of `total` begins, and the run before it has ended.
    pub fn begins(&mut self, now: Duration, number: usize, total: usize) {
        if number == 1 {
            *self = Self::default();
        } else {
            self.ended += 1;
            self.took += now.saturating_sub(self.run_began);
        }
        self.to_come = (total - number) as u32;
        self.run_began = now;
        self.phase_began = now;
    }

    /// The present run begins to make progress: its speed is measured from now on.
    pub fn phase(&mut self, now: Duration) {
        self.phase_began = now;
    }

    /// The time that is left at the speed so far, when `done` of `total` is done; `None` while
    /// nothing is done. Runs to come are assumed to take as long as the ones so far.
    pub fn left(&self, now: Duration, done: Duration, total: Duration) -> Option<Left> {
        if done.is_zero() || total.is_zero() {
            return None;
        }
        let fraction = done.as_secs_f64() / total.as_secs_f64();
        let phase = now.saturating_sub(self.phase_began);
        let run = phase.mul_f64((1.0 / fraction - 1.0).clamp(0.0, 1e6));
        let this = now.saturating_sub(self.run_began) + run;
        let mean = (self.took + this) / (self.ended + 1);
        Some(Left {
            run,
            all: (self.to_come > 0).then(|| run + mean * self.to_come),
        })
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} left", clock(self.run))?;
        match self.all {
            Some(all) => write!(f, ", {} for all", clock(all)),
            None => Ok(()),
        }
    }
}

/// `0:12`, `1:02:03`: whole seconds, rounded up.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// `3.2/7 s`, with as many decimals as are significant.
pub fn part(done: Duration, total: Duration) -> String {
    let total_s = total.as_secs_f64();
    let decimals = match total_s {
        s if s >= 100.0 => 0,
        s if s >= 1.0 => 1,
        _ => 3,
    };
    let rounded = format!("{total_s:.decimals$}");
    let total = match decimals {
        0 => rounded.as_str(),
        _ => rounded.trim_end_matches('0').trim_end_matches('.'),
    };
    format!("{:.decimals$}/{total} s", done.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn said(pace: &Pace, now: f64, done: f64, total: f64) -> String {
        let left = pace.left(s(now), s(done), s(total));
        left.map_or(String::new(), |left| left.to_string())
    }

    #[test]
    fn a_run_goes_on_as_it_began() {
        let mut pace = Pace::default();
        pace.begins(s(5.0), 1, 1);
        assert_eq!(said(&pace, 5.0, 0.0, 8.0), "");
        pace.phase(s(6.0));
        assert_eq!(said(&pace, 8.0, 2.0, 8.0), "0:06 left");
        assert_eq!(said(&pace, 14.0, 8.0, 8.0), "0:00 left");
    }

    #[test]
    fn runs_to_come_take_as_long_as_those_so_far() {
        let mut pace = Pace::default();
        pace.begins(s(0.0), 1, 4);
        pace.begins(s(10.0), 2, 4);
        // This one takes 20 s, the mean is 15 s, two are to come.
        assert_eq!(said(&pace, 20.0, 4.0, 8.0), "0:10 left, 0:40 for all");
        // All runs again, slower.
        pace.begins(s(50.0), 1, 4);
        assert_eq!(said(&pace, 60.0, 1.0, 2.0), "0:10 left, 1:10 for all");
    }

    #[test]
    fn the_clock_has_hours_when_it_needs_them() {
        assert_eq!(clock(s(0.1)), "0:01");
        assert_eq!(clock(s(59.5)), "1:00");
        assert_eq!(clock(s(3_723.0)), "1:02:03");
    }

    #[test]
    fn parts_have_the_decimals_that_say_something() {
        assert_eq!(part(s(3.21), s(7.0)), "3.2/7 s");
        assert_eq!(part(s(0.0123), s(0.35)), "0.012/0.35 s");
        assert_eq!(part(s(99.9), s(200.0)), "100/200 s");
    }
}
