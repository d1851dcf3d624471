//! The offered load of an application whose rate changes with time.

use super::plan::{Phase, Span};

/// Bits of a byte times nanoseconds of a second.
const BIT_NS: u128 = 8_000_000_000;

/// The phases as (begin ns, end ns, bit/s), cut to when the application offers at all.
fn pieces(phases: &[Phase], span: Span) -> impl Iterator<Item = (u64, u64, u64)> {
    let mut begin_ns = 0;
    let pieces = phases.iter().map(move |phase| {
        let from_ns = std::mem::replace(&mut begin_ns, phase.until_ns);
        let (from_ns, to_ns) = (from_ns.max(span.begin_ns), phase.until_ns.min(span.end_ns));
        (from_ns, to_ns, phase.rate_bps)
    });
    pieces.filter(|(from_ns, to_ns, _)| from_ns < to_ns)
}

fn bit_ns(from_ns: u64, to_ns: u64, rate_bps: u64) -> u128 {
    u128::from(to_ns.saturating_sub(from_ns)) * u128::from(rate_bps)
}

/// Bytes offered by a time (ns after the start of the run).
pub fn offered_bytes(phases: &[Phase], span: Span, now_ns: u64) -> u64 {
    let pieces = pieces(phases, span);
    let bits = pieces.map(|(from_ns, to_ns, bps)| bit_ns(from_ns, to_ns.min(now_ns), bps));
    u64::try_from(bits.sum::<u128>() / BIT_NS).unwrap_or(u64::MAX)
}

/// Bytes offered in all.
pub fn total_bytes(phases: &[Phase], span: Span) -> u64 {
    offered_bytes(phases, span, u64::MAX)
}

/// The earliest time (ns after the start of the run) by which so many bytes are offered; `None` =
/// never.
pub fn offered_at_ns(phases: &[Phase], span: Span, bytes: u64) -> Option<u64> {
    let mut missing = u128::from(bytes) * BIT_NS;
    for (from_ns, to_ns, rate_bps) in pieces(phases, span) {
        let offered = bit_ns(from_ns, to_ns, rate_bps);
        if missing <= offered {
            let wait_ns = missing.div_ceil(u128::from(rate_bps.max(1)));
            return Some(from_ns + wait_ns as u64);
        }
        missing -= offered;
    }
    (missing == 0).then_some(span.begin_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 Mbit/s, then 10 Mbit/s from 1 s to 2 s, then nothing, then 2 Mbit/s from 3 s on.
    const PHASES: [Phase; 4] = [
        phase(1, 1_000_000),
        phase(2, 10_000_000),
        phase(3, 0),
        phase(9, 2_000_000),
    ];

    const fn phase(until_s: u64, rate_bps: u64) -> Phase {
        Phase {
            until_ns: until_s * 1_000_000_000,
            rate_bps,
        }
    }

    const fn span(begin_ms: u64, end_ms: u64) -> Span {
        Span {
            begin_ns: begin_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
        }
    }

    #[test]
    fn what_is_offered_is_the_area_below_the_rate() {
        let at = |ms: u64| offered_bytes(&PHASES, span(500, 4_000), ms * 1_000_000);
        assert_eq!(at(400), 0);
        assert_eq!(at(1_000), 62_500);
        assert_eq!(at(1_500), 62_500 + 625_000);
        assert_eq!(at(3_000), 62_500 + 1_250_000);
        assert_eq!(at(60_000), 62_500 + 1_250_000 + 250_000);
        assert_eq!(offered_at_ns(&PHASES, span(500, 4_000), 2_000_000), None);
        let silence_ends = offered_at_ns(&PHASES, span(500, 4_000), 62_500 + 1_250_000 + 250);
        assert_eq!(silence_ends, Some(3_001_000_000));
    }

    proptest! {
        #[test]
        fn bytes_are_offered_when_they_are_said_to_be(
            begin_ms in 0u64..4_000, length_ms in 1u64..6_000, bytes in 1u64..3_000_000,
        ) {
            let span = span(begin_ms, begin_ms + length_ms);
            match offered_at_ns(&PHASES, span, bytes) {
                Some(at_ns) => {
                    prop_assert!(offered_bytes(&PHASES, span, at_ns) >= bytes);
                    prop_assert!(offered_bytes(&PHASES, span, at_ns - 1) < bytes);
                }
                None => prop_assert!(total_bytes(&PHASES, span) < bytes),
            }
        }
    }
}
