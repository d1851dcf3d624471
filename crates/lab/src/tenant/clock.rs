//! Time in a tenant: nanoseconds after the common start of the run.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads the monotonic clock against the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start_ns: i64,
}

impl Clock {
    /// `start_unix_ns` is CLOCK_REALTIME, the one clock that all tenants and guests share; from
    /// here on the monotonic clock counts, so that setting the system's time bends no measurement.
    pub fn starting_at(start_unix_ns: u64) -> Self {
        let (monotonic, realtime) = (read(ClockId::Monotonic), read(ClockId::Realtime));
        let start = i64::try_from(start_unix_ns).unwrap_or(i64::MAX);
        Self {
            start_ns: monotonic.saturating_add(start.saturating_sub(realtime)),
        }
    }

    /// ns after the start; 0 before it.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(read(ClockId::Monotonic) - self.start_ns).unwrap_or(0)
    }

    /// ns until the start; 0 after it.
    pub fn until_start_ns(&self) -> u64 {
        u64::try_from(self.start_ns - read(ClockId::Monotonic)).unwrap_or(0)
    }
}

/// CLOCK_REALTIME in ns since 1970.
pub fn unix_ns() -> u64 {
    u64::try_from(read(ClockId::Realtime)).unwrap_or(0)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}

/// A duration for system calls.
pub fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}
