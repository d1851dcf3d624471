use proptest::prelude::*;

use super::*;
use crate::cee::EtsClass;

const JUMBO_BYTES: u32 = 9_000;

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
        let chosen = ets.choose(eligible, &|priority| sizes[priority]).unwrap();
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
        // A round alone is 9 % of what is sent here.
        ([64, JUMBO_BYTES, 1_500, 0, 0, 0, 0, 0], 9.0),
    ] {
        let classes = [(0b1, Some(50)), (0b10, Some(30)), (0b1111_1100, Some(20))];
        let longest = *sizes.iter().max().unwrap();
        let mut ets = Ets::new(&config(&classes), longest);
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
fn full_frames_are_as_the_shares_in_every_round() {
    let classes = [(0b1, Some(10)), (0b10, Some(20)), (0b100, Some(30))];
    let mut ets = Ets::new(
        &config(&[&classes[..], &[(0xf8, Some(40))]].concat()),
        1_514,
    );
    for _ in 0..100 {
        let sent = send(&mut ets, 0b1111, 10, [1_514; 8]);
        assert_eq!(sent.map(|bytes| bytes / 1_514), [1, 2, 3, 4, 0, 0, 0, 0]);
    }
}

#[test]
fn strict_classes_come_first_and_the_last_of_them_before_all() {
    let classes = [(0b0001, None), (0b0010, Some(100)), (0b1100, None)];
    let mut ets = Ets::new(&config(&classes), 1_500);
    for (eligible, chosen) in [(0b0111, 2), (0b1011, 3), (0b0011, 0), (0b0010, 1)] {
        assert_eq!(
            ets.choose(eligible, &|_| 1_500),
            Some(chosen),
            "{eligible:b}"
        );
    }
    assert_eq!(ets.choose(0, &|_| unreachable!()), None);
}

#[test]
fn priorities_of_a_class_share_it_by_bytes() {
    for share in [None, Some(100)] {
        let mut ets = Ets::new(&config(&[(0xff, share)]), JUMBO_BYTES);
        let sent = send(&mut ets, 0b11, 10_000, [64, 9_000, 0, 0, 0, 0, 0, 0]);
        let found = percent(&sent, 0b1);
        assert!((found - 50.0).abs() < 1.0, "{found}");
    }
}

#[test]
fn who_was_away_saves_no_credit() {
    let sizes = [1_500; 8];
    let halves = config(&[(0b1, Some(50)), (0xfe, Some(50))]);
    let mut ets = Ets::new(&halves, 1_500);
    let fair = |sent: [u64; 8]| sent[0] == sent[1];
    send(&mut ets, 0b11, 100, sizes);
    // Idle or paused, that is the same.
    send(&mut ets, 0b01, 1_000, sizes);
    assert!(fair(send(&mut ets, 0b11, 10, sizes)));
    // A class that had the link alone before has no debt.
    send(&mut ets, 0b10, 1_000, sizes);
    assert!(fair(send(&mut ets, 0b11, 10, sizes)));
}

#[test]
fn a_pause_ends_a_turn() {
    let classes = [(0b01, Some(75)), (0xfe, Some(25))];
    let mut ets = Ets::new(&config(&classes), 1_500);
    let mut chosen = |eligible| ets.choose(eligible, &|_| 1_500).unwrap();
    // Three frames are a turn: the first class has sent one.
    assert_eq!([chosen(0b11), chosen(0b10)], [1, 1]);
    assert_eq!([chosen(0b11), chosen(0b10)], [0, 1]);
    assert_eq!([0b11; 5].map(&mut chosen), [0, 0, 0, 1, 0]);
}

#[test]
fn a_priority_that_was_away_has_one_quantum() {
    let mut ets = Ets::new(&config(&[(0xff, Some(100))]), 1_500);
    let mut chosen = |eligible| ets.choose(eligible, &|_| 500).unwrap();
    // Three frames are a turn: the second priority has sent two.
    assert_eq!([0b11, 0b10, 0b01].map(&mut chosen), [1, 1, 0]);
    assert_eq!([0b11; 6].map(&mut chosen), [0, 0, 1, 1, 1, 0]);
}

#[test]
fn strict_frames_are_no_part_of_a_turn() {
    let classes = [(0b01, Some(75)), (0b10, Some(25)), (0xfc, None)];
    let mut ets = Ets::new(&config(&classes), 1_500);
    let rounds = [0b011, 0b111, 0b011, 0b111, 0b011, 0b111, 0b011];
    let chosen = rounds.map(|eligible| ets.choose(eligible, &|_| 1_500).unwrap());
    assert_eq!(chosen, [1, 2, 0, 2, 0, 2, 0]);
    assert_eq!(ets.choose(0b011, &|_| 1_500), Some(1));
}

#[test]
fn a_class_that_comes_and_goes_gets_no_more_than_its_share() {
    let mut ets = Ets::new(&config(&[(0b1, Some(90)), (0xfe, Some(10))]), 1_500);
    let (mut sent, mut waits) = ([0u64; 2], false);
    for frame in 0..10_000u32 {
        waits |= frame % 3 == 0;
        let eligible = 0b01 | u8::from(waits) << 1;
        let chosen = ets.choose(eligible, &|_| 1_500).unwrap();
        waits &= chosen == 0;
        sent[chosen] += 1;
    }
    // One frame of its own waits at a time, for all of the other's turn.
    assert!((900..=1_000).contains(&sent[1]), "{sent:?}");
}

#[test]
fn a_frame_longer_than_announced_is_sent_all_the_same() {
    let classes = [(0b01, Some(50)), (0xfe, Some(50))];
    for longest in [0, 64] {
        let mut ets = Ets::new(&config(&classes), longest);
        let sent = send(&mut ets, 0b111, 1_000, [1_500; 8]);
        assert_eq!(sent[..3], [750_000, 375_000, 375_000]);
    }
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
    /// The short way of a priority that is the only eligible one is that of any other choice.
    #[test]
    fn a_priority_alone_is_one_among_others(
        shared in classes(),
        strict: u8,
        steps in proptest::collection::vec((any::<u8>(), 60u32..3_000), 1..60),
    ) {
        let all = shared.iter().map(|&(members, share)| {
            (members, (members & strict == 0).then_some(share))
        });
        let config = config(&all.collect::<Vec<_>>());
        let [mut short, mut long] = [(); 2].map(|()| Ets::new(&config, 1_500));
        for (eligible, bytes) in steps {
            // Every second choice has one priority.
            let one = 1u8 << (eligible % 8);
            let eligible = if bytes % 2 == 0 { one } else { eligible | one };
            let chosen = short.choose(eligible, &|_| bytes);
            prop_assert_eq!(chosen, Some(long.choose_among(eligible, &|_| bytes)));
            prop_assert_eq!(format!("{short:?}"), format!("{long:?}"));
        }
    }
}

proptest! {
    #[test]
    fn classes_are_a_quantum_and_a_frame_each_away_from_their_shares_over_any_time(
        classes in classes(),
        sizes in prop::collection::vec(prop::sample::select(vec![64u32, 576, 1_500, JUMBO_BYTES]), 1..200),
        away in prop::collection::vec(any::<u8>(), 0..100),
        since in 0..20_000usize,
    ) {
        let given: Vec<_> = classes.iter().map(|&(bits, share)| (bits, Some(share))).collect();
        let longest = f64::from(*sizes.iter().max().unwrap());
        let mut ets = Ets::new(&config(&given), longest as u32);
        for eligible in away {
            ets.choose(eligible, &|priority| sizes[priority % sizes.len()]);
        }
        let least = f64::from(classes.iter().map(|&(_, share)| share).min().unwrap());
        let (mut sent, mut before, mut frame) = ([0u64; 8], [0u64; 8], [0usize; 8]);
        let size = |priority: usize, at: usize| sizes[(3 * priority + at) % sizes.len()];
        for round in 0..40_000 {
            if round == since {
                before = sent;
            }
            let chosen = ets.choose(0xff, &|priority| size(priority, frame[priority])).unwrap();
            sent[chosen] += u64::from(size(chosen, frame[chosen]));
            frame[chosen] += 1;
            if round % 100 != 0 {
                continue;
            }
            for (one, other) in classes.iter().zip(&classes[1..]) {
                // As Shreedhar and Varghese have it; quanta are cut to bytes.
                let bound = longest / least + longest / f64::from(one.1) + longest / f64::from(other.1);
                for from in [[0; 8], before] {
                    let [a, b] = [one, other]
                        .map(|&(bits, share)| (bytes(&sent, bits) - bytes(&from, bits)) as f64 / f64::from(share));
                    prop_assert!((a - b).abs() <= bound + a * 2.0 / longest, "{a} {b} {bound}");
                }
            }
        }
    }

    #[test]
    fn priorities_of_a_class_are_a_quantum_and_a_frame_each_apart(
        sizes in prop::collection::vec(64..=1_514u32, 1..50),
        eligible in 1..=u8::MAX,
    ) {
        let mut ets = Ets::new(&config(&[(0xff, Some(100))]), 1_514);
        let (mut sent, mut frame) = ([0u64; 8], [0usize; 8]);
        let size = |priority: usize, at: usize| sizes[(3 * priority + at) % sizes.len()];
        for _ in 0..5_000 {
            let chosen = ets.choose(eligible, &|priority| size(priority, frame[priority])).unwrap();
            sent[chosen] += u64::from(size(chosen, frame[chosen]));
            frame[chosen] += 1;
            let members = (0..8).filter(|at| eligible & (1 << at) != 0);
            let (most, least) = (members.clone().map(|at| sent[at]).max(), members.map(|at| sent[at]).min());
            prop_assert!(most.unwrap() - least.unwrap() <= 3 * 1_514);
        }
    }

    #[test]
    fn something_is_sent_whenever_something_may_be(
        classes in prop::collection::vec((any::<u8>(), prop::option::of(0..200u32)), 0..12),
        frame_bytes in any::<u32>(),
        rounds in prop::collection::vec((any::<u8>(), any::<u32>()), 1..300),
    ) {
        let mut ets = Ets::new(&config(&classes), frame_bytes);
        for (eligible, bytes) in rounds {
            match ets.choose(eligible, &|_| bytes) {
                None => prop_assert_eq!(eligible, 0),
                Some(chosen) => prop_assert!(eligible & (1 << chosen) != 0),
            }
        }
    }
}
