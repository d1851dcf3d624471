//! Flows that live on while the policy changes, or while their path shows what it does not do.

use sluicegate_core::{
    abi::{FLOW_UNMARKED, Params, RULE_OBSERVE},
    cc::Algorithm,
    host::Action,
};

use crate::net::{Solo, params, policy_of};

const MSS: u32 = 1460;
const WIDE: u16 = u16::MAX;

fn with_algorithm(algorithm: Algorithm) -> Params {
    Params {
        algorithm: algorithm.number(),
        ..params()
    }
}

#[test]
fn another_algorithm_goes_on_from_the_window_of_the_one_before() {
    for from in Algorithm::ALL {
        for to in Algorithm::ALL.iter().filter(|to| **to != from) {
            let mut solo = Solo::with(with_algorithm(from));
            let mut at = 0;
            for _ in 0..5 {
                at = solo.round(at, MSS, false, WIDE);
            }
            let before = solo.flow().cc;
            assert_eq!(before.algorithm, from.number());
            solo.host.set_policy(&policy_of(with_algorithm(*to)));
            solo.data(at, MSS as usize);
            solo.e0b += MSS;
            solo.ack(at + MSS, WIDE);
            let after = solo.flow().cc;
            assert_eq!(after.algorithm, to.number());
            if *to != Algorithm::Fixed {
                let grown = before.cwnd..=before.cwnd + 2 * MSS;
                assert!(
                    grown.contains(&after.cwnd),
                    "{from} to {to}: {before:?} {after:?}"
                );
            }
        }
    }
}

/// Sends a window, of which the first segment is lost. Returns where the next one begins.
fn lose_one(solo: &mut Solo, at: u32, marked: bool) -> u32 {
    let count = solo.flow().cc.cwnd / MSS;
    for i in 0..count {
        solo.data(at + i * MSS, MSS as usize);
    }
    for i in 1..=4 {
        solo.duplicate(at, WIDE, &[(at + i * MSS, at + (i + 1) * MSS)]);
    }
    solo.data(at, MSS as usize);
    solo.now_ns += 100_000;
    match marked {
        true => solo.ceb += count * MSS,
        false => solo.e0b += count * MSS,
    }
    solo.ack(at + count * MSS, WIDE);
    at + count * MSS
}

#[test]
fn a_path_that_drops_and_never_marks_gets_the_fallback() {
    let mut solo = Solo::with(Params {
        fallback: Algorithm::Dcvegas.number(),
        ..params()
    });
    let mut at = solo.round(0, MSS, false, WIDE);
    for losses in 0..8 {
        assert_eq!(
            solo.flow().marks & FLOW_UNMARKED,
            0,
            "{losses} losses say little"
        );
        at = lose_one(&mut solo, at, false);
        at = solo.round(at, MSS, false, WIDE);
    }
    assert_ne!(solo.flow().marks & FLOW_UNMARKED, 0);
    assert_eq!(solo.counter("flow_unmarked"), 1);
    at = solo.round(at, MSS, false, WIDE);
    assert_eq!(solo.flow().cc.algorithm, Algorithm::Dcvegas.number());
    // The first mark shows that something marks after all.
    at = solo.round(at, MSS, true, WIDE);
    solo.round(at, MSS, false, WIDE);
    assert_eq!(solo.flow().cc.algorithm, Algorithm::Dctcp.number());
}

#[test]
fn a_path_that_marks_may_drop() {
    let mut solo = Solo::with(Params {
        fallback: Algorithm::Dcvegas.number(),
        ..params()
    });
    let mut at = solo.round(0, MSS, true, WIDE);
    for _ in 0..20 {
        at = solo.round(at, MSS, false, WIDE);
        at = lose_one(&mut solo, at, false);
    }
    assert_eq!(solo.flow().cc.algorithm, Algorithm::Dctcp.number());
}

#[test]
fn a_rate_is_held_by_the_window_of_an_rtt() {
    // 80 Mbit/s over 1 ms: 10 000 bytes.
    let mut solo = Solo::with(Params {
        rate_cap: 10_000_000,
        ..params()
    });
    let mut at = 0;
    for _ in 0..30 {
        solo.data(at, MSS as usize);
        solo.data(at + MSS, MSS as usize);
        solo.now_ns += 1_000_000;
        solo.e0b += 2 * MSS;
        at += 2 * MSS;
        solo.ack(at, WIDE);
    }
    let rtt_ns = u64::from(solo.flow().srtt_ns);
    assert!((990_000..1_100_000).contains(&rtt_ns), "{rtt_ns}");
    let shown = u64::from(solo.flow().wire_window) << 10;
    let wanted = 10_000_000 * rtt_ns / 1_000_000_000;
    assert!(
        (wanted..wanted + 1024).contains(&shown),
        "{shown}, not {wanted}"
    );
    assert!(u64::from(solo.flow().cc.cwnd) > shown);
}

#[test]
fn a_rate_never_closes_the_window() {
    let mut solo = Solo::with(Params {
        rate_cap: 1,
        ..params()
    });
    let at = solo.round(0, MSS, false, WIDE);
    let at = solo.round(at, MSS, false, WIDE);
    assert!(at > 0 && u32::from(solo.flow().wire_window) << 10 >= 2 * MSS);
}

#[test]
fn observers_count_the_windows_that_they_would_lower() {
    let mut solo = Solo::with(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let at = solo.round(0, MSS, false, WIDE);
    assert_eq!(u32::from(solo.flow().wire_window), u32::from(WIDE));
    let before = solo.counter("window_would_lower");
    assert!(before > 0);
    solo.data(at, MSS as usize);
    // A peer whose own window is smaller than what the algorithm allows is not clipped.
    solo.ack(at + MSS, 3);
    assert_eq!(solo.counter("window_would_lower"), before);
    assert_eq!(solo.counter("window_lowered"), 0);
}

/// The windows that the peer showed until then are no offence to use, but no rule has governed
/// them.
#[test]
fn windows_of_the_time_of_observing_are_charged() {
    let mut solo = Solo::with(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let at = solo.round(0, MSS, false, WIDE);
    solo.host.set_policy(&policy_of(params()));
    assert!(!solo.data(at, MSS as usize).unheld);
    let outcome = solo.data(at + 50 * MSS, MSS as usize);
    assert_eq!((outcome.action, outcome.unheld), (Action::Pass, true));
    assert_eq!(solo.counter("beyond_held"), 1);
}
