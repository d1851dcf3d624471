//! How far an emulation is behind its clock.

use std::time::Duration;

use sluicegate_fabric::histogram::Histogram;

/// An emulation is on time while no more than one event in a hundred is later than this. A frame of
/// 1500 bytes takes 120 us at 100 Mb/s: the bound is eight of them.
pub const LAG_BOUND: Duration = Duration::from_millis(1);

/// The fraction of events that may be later.
const LATE_MAX: f64 = 0.01;

/// How late the events of a network were handled.
#[derive(Clone, Debug, Default)]
pub struct Lag {
    /// In nanoseconds.
    histogram: Histogram,
    late: u64,
    events: u64,
}

impl Lag {
    /// An event was handled so much after its time.
    pub fn note(&mut self, late_ps: u64) {
        let late_ns = late_ps / 1000;
        self.histogram.add(late_ns);
        self.events += 1;
        self.late += u64::from(u128::from(late_ns) > LAG_BOUND.as_nanos());
    }

    /// Events that were handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Events that were later than [`LAG_BOUND`].
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The largest lag, to 3 %; `None` without events.
    pub fn max(&self) -> Option<Duration> {
        let lag_ns = self.histogram.quantile(1.0);
        lag_ns.map(|ns| Duration::from_nanos(ns as u64))
    }

    /// That of the events since `earlier`, which is a former state of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            histogram: self.histogram.since(&earlier.histogram),
            late: self.late - earlier.late,
            events: self.events - earlier.events,
        }
    }

    /// The 99th percentile, to 3 %; `None` without events.
    pub fn p99(&self) -> Option<Duration> {
        let lag_ns = self.histogram.quantile(0.99);
        lag_ns.map(|ns| Duration::from_nanos(ns as u64))
    }

    /// Whether too many events were late: what passed the network then did not pass the network
    /// that was asked for.
    pub fn is_behind(&self) -> bool {
        self.late as f64 > LATE_MAX * self.events as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_event_in_a_hundred_is_on_time_and_two_are_not() {
        let mut lag = Lag::default();
        assert!(!lag.is_behind());
        (0..99).for_each(|_| lag.note(20_000_000));
        lag.note(3_000_000_000);
        assert!(!lag.is_behind());
        assert_eq!((lag.events(), lag.late()), (100, 1));
        let max_us = lag.max().unwrap().as_micros();
        assert!(max_us.abs_diff(3000) < 100, "{max_us}");
        let p99_ns = lag.p99().unwrap().as_nanos();
        assert!(p99_ns.abs_diff(20_000) < 700, "{p99_ns}");
        lag.note(1_000_001_000);
        assert!(lag.is_behind());
    }

    #[test]
    fn what_is_as_late_as_the_bound_is_not_late() {
        let mut lag = Lag::default();
        lag.note(1_000_000_000);
        assert_eq!(lag.late(), 0);
    }
}
