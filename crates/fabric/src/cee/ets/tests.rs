use proptest::prelude::*;

use super::*;
use crate::cee::EtsClass;

fn config(classes: &[(u8, Option<u32>)]) -> EtsConfig {
    let class = |&(priorities, share)| EtsClass { priorities, share };
    EtsConfig {
        classes: classes.iter().map(class).collect(),
    }
}

/// Bytes of each priority over so many frames of which all `eligible` priorities always have one.
fn send(ets: &mut Ets, eligible: u8, frames: usize, sizes: [u32; 8]) -> [u64; 8] {
    let mut sent = [0; 8];
    for _ in 0..frames {
        let chosen = ets.choose(eligible, |priority| sizes[priority]).unwrap();
        sent[chosen] += u64::from(sizes[chosen]);
    }
    sent
}

fn bytes(sent: &[u64; 8], priorities: u8) -> u64 {
    let members = (0..8).filter(|at| priorities & (1 << at) != 0);
    members.map(|at| sent[at]).sum()
}

fn percent(sent: &[u64; 8], priorities: u8) -> f64 {
    100.0 * bytes(sent, priorities) as f64 / bytes(sent, 0xff) as f64
}

#[test]
fn shares_hold_over_a_thousand_frames() {
    for (sizes, within) in [
        ([1_500; 8], 0.2),
        ([64, 1_500, 576, 0, 0, 0, 0, 0], 1.0),
        // A long frame alone is 7 % of what is sent here.
        ([64, 9_000, 1_500, 0, 0, 0, 0, 0], 7.0),
    ] {
        let classes = [(0b1, Some(50)), (0b10, Some(30)), (0b100, Some(20))];
        let mut ets = Ets::new(&config(&classes));
        let sent = send(&mut ets, 0b111, 1_000, sizes);
        for (priorities, share) in [(0b1, 50.0), (0b10, 30.0), (0b100, 20.0)] {
            let found = percent(&sent, priorities);
            assert!(
                (found - share).abs() < within,
                "{found} of {share}, {sizes:?}"
            );
        }
    }
}

#[test]
fn strict_classes_come_first_and_the_last_of_them_before_all() {
    let classes = [(0b0001, None), (0b0010, Some(100)), (0b1100, None)];
    let mut ets = Ets::new(&config(&classes));
    for (eligible, chosen) in [(0b0111, 2), (0b1011, 3), (0b0011, 0), (0b0010, 1)] {
        assert_eq!(
            ets.choose(eligible, |_| 1_500),
            Some(chosen),
            "{eligible:b}"
        );
    }
    assert_eq!(ets.choose(0, |_| unreachable!()), None);
}

#[test]
fn priorities_of_a_class_share_it_by_bytes() {
    for share in [None, Some(100)] {
        let mut ets = Ets::new(&config(&[(0xff, share)]));
        let sent = send(&mut ets, 0b11, 10_000, [64, 9_000, 0, 0, 0, 0, 0, 0]);
        let found = percent(&sent, 0b1);
        assert!((found - 50.0).abs() < 1.0, "{found}");
    }
}

#[test]
fn who_was_away_saves_no_credit() {
    let sizes = [1_500; 8];
    let mut ets = Ets::new(&config(&[(0b1, Some(50)), (0b10, Some(50))]));
    // Ten frames, five each but for one that the last choice left over.
    let fair = |sent: [u64; 8]| sent[0].abs_diff(sent[1]) <= 3_000;
    send(&mut ets, 0b11, 100, sizes);
    // Idle or paused, that is the same.
    send(&mut ets, 0b01, 1_000, sizes);
    assert!(fair(send(&mut ets, 0b11, 10, sizes)));
    // And who had the link alone owes nothing.
    send(&mut ets, 0b10, 1_000, sizes);
    assert!(fair(send(&mut ets, 0b11, 10, sizes)));
}

#[test]
fn a_class_that_comes_and_goes_gets_no_more_than_its_share() {
    let mut ets = Ets::new(&config(&[(0b1, Some(90)), (0b10, Some(10))]));
    let mut sent = [0u64; 2];
    for frame in 0..10_000u32 {
        let eligible = [0b01, 0b11][usize::from(frame % 3 == 0)];
        sent[ets.choose(eligible, |_| 1_500).unwrap()] += 1;
    }
    // It has a frame at every third turn, so that some of its own pass unused.
    assert!((800..=1_000).contains(&sent[1]), "{sent:?}");
}

/// Eight priorities in up to eight classes, each with a share of at least 1; shares add up to 100.
fn classes() -> impl Strategy<Value = Vec<(u8, u32)>> {
    let members = prop::collection::vec(0..8usize, 8);
    let weights = prop::collection::vec(3..40u32, 8);
    (members, weights).prop_map(|(members, weights)| {
        let mut classes = [0u8; 8];
        for (priority, class) in members.iter().enumerate() {
            classes[*class] |= 1 << priority;
        }
        let used: Vec<usize> = (0..8).filter(|at| classes[*at] != 0).collect();
        let total: u32 = used.iter().map(|at| weights[*at]).sum();
        let shares: Vec<u32> = used.iter().map(|at| 100 * weights[*at] / total).collect();
        let rest = 100 - shares.iter().sum::<u32>();
        let mut all: Vec<_> = used.iter().map(|at| classes[*at]).zip(shares).collect();
        all[0].1 += rest;
        all
    })
}

proptest! {
    #[test]
    fn classes_are_a_frame_each_away_from_their_shares_at_all_times(
        classes in classes(),
        sizes in prop::collection::vec(prop::sample::select(vec![64u32, 576, 1_500, 9_000]), 1..200),
    ) {
        let given: Vec<_> = classes.iter().map(|&(bits, share)| (bits, Some(share))).collect();
        let mut ets = Ets::new(&config(&given));
        let (mut sent, mut frame) = ([0u64; 8], [0usize; 8]);
        let size = |priority: usize, at: usize| sizes[(3 * priority + at) % sizes.len()];
        for round in 0..40_000 {
            let chosen = ets.choose(0xff, |priority| size(priority, frame[priority])).unwrap();
            sent[chosen] += u64::from(size(chosen, frame[chosen]));
            frame[chosen] += 1;
            if round % 100 != 0 {
                continue;
            }
            // Theorem 1 of Goyal, Vin and Cheng, and 1 in 10 000 for rounding.
            for (one, other) in classes.iter().zip(&classes[1..]) {
                let [a, b] = [one, other].map(|&(bits, share)| bytes(&sent, bits) as f64 / f64::from(share));
                let bound = 9_000.0 / f64::from(one.1) + 9_000.0 / f64::from(other.1);
                prop_assert!((a - b).abs() <= bound + a / 10_000.0, "{a} {b} {bound}");
            }
        }
        for (bits, share) in classes {
            let found = percent(&sent, bits);
            prop_assert!((found - f64::from(share)).abs() < 1.0, "{found} of {share}");
        }
    }

    #[test]
    fn something_is_sent_whenever_something_may_be(
        classes in prop::collection::vec((any::<u8>(), prop::option::of(0..200u32)), 0..12),
        rounds in prop::collection::vec((any::<u8>(), any::<u32>()), 1..300),
    ) {
        let mut ets = Ets::new(&config(&classes));
        for (eligible, bytes) in rounds {
            match ets.choose(eligible, |_| bytes) {
                None => prop_assert_eq!(eligible, 0),
                Some(chosen) => prop_assert!(eligible & (1 << chosen) != 0),
            }
        }
    }
}
