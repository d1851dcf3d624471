//! Compares a guest's clock with the host's.
//!
//! A guest's CLOCK_REALTIME starts some milliseconds late (it counts ticks during boot, and loses
//! some) and then runs at the host's pace. Guest and host can both read the processor's time-stamp
//! counter, which UML does not virtualise: a reading of counter and clock taken together inside the
//! guest says what the guest's clock showed at a moment that the host can date.

#![allow(unsafe_code)] // _rdtsc

use serde::{Deserialize, Serialize};

use crate::tenant::unix_ns;

/// Counter and clock, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Time-stamp counter.
    pub ticks: u64,
    /// CLOCK_REALTIME in ns since 1970.
    pub unix_ns: u64,
}

impl Stamp {
    /// The tightest of a few readings of clock between two of the counter.
    pub fn now() -> Self {
        let reading = |_| {
            let before = ticks();
            let unix_ns = unix_ns();
            let after = ticks();
            (
                after.wrapping_sub(before),
                Self {
                    ticks: before + (after.wrapping_sub(before)) / 2,
                    unix_ns,
                },
            )
        };
        let best = (0..16).map(reading).min_by_key(|(width, _)| *width);
        best.map_or(
            Self {
                ticks: 0,
                unix_ns: 0,
            },
            |(_, stamp)| stamp,
        )
    }
}

/// The guest's clock minus the host's in ns, from a stamp of the guest and two of the host that
/// give the counter's rate; `None` if the counter did not move.
pub fn offset_ns(guest: Stamp, host_first: Stamp, host_second: Stamp) -> Option<i64> {
    let ticks = host_second
        .ticks
        .checked_sub(host_first.ticks)
        .filter(|ticks| *ticks > 0)?;
    let elapsed_ns = host_second.unix_ns.checked_sub(host_first.unix_ns)?;
    let since = i128::from(host_second.ticks) - i128::from(guest.ticks);
    let since_ns = since * i128::from(elapsed_ns) / i128::from(ticks);
    let host_ns = i128::from(host_second.unix_ns) - since_ns;
    i64::try_from(i128::from(guest.unix_ns) - host_ns).ok()
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// UML exists on x86 only.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_a_clock_that_runs_ahead() {
        let host_first = Stamp {
            ticks: 1_000_000,
            unix_ns: 5_000_000_000,
        };
        let host_second = Stamp {
            ticks: 4_000_000,
            unix_ns: 5_001_000_000,
        }; // 3 ticks per ns … 3 GHz
        let guest = Stamp {
            ticks: 3_700_000,
            unix_ns: 5_400_900_000,
        };
        assert_eq!(offset_ns(guest, host_first, host_second), Some(400_000_000));
    }

    #[test]
    fn own_clock_has_no_offset() {
        let first = Stamp::now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (guest, second) = (Stamp::now(), Stamp::now());
        let offset_ns = offset_ns(guest, first, second).expect("a counter that moves");
        assert!(offset_ns.abs() < 1_000_000, "{offset_ns}");
    }

    #[test]
    fn dead_counter_gives_nothing() {
        let stamp = Stamp {
            ticks: 7,
            unix_ns: 9,
        };
        assert_eq!(offset_ns(stamp, stamp, stamp), None);
    }
}
