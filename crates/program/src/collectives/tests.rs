//! Every collective delivers what it means, checked with sets of contributions; and the operations
//! made of it match and end.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{Weave, check::check};

/// Whose data are in each piece, by member and piece; `None` = the member does not have the piece.
type State = Vec<Vec<Option<BTreeSet<u32>>>>;

fn run(rounds: &Rounds, mut state: State) -> State {
    for round in &rounds.rounds {
        let before = state.clone();
        for transfer in round {
            for piece in transfer.pieces.clone() {
                let sent = before[transfer.from as usize][piece as usize].clone();
                let sent = sent.expect("a member sends what it has");
                let kept = &mut state[transfer.to as usize][piece as usize];
                match (kept, transfer.combine) {
                    (Some(kept), true) => kept.extend(sent),
                    (kept, _) => *kept = Some(sent),
                }
            }
        }
    }
    state
}

/// Everybody has all pieces, with its own data.
fn own(members: u32, pieces: u32) -> State {
    let of = |member: u32| vec![Some(BTreeSet::from([member])); pieces as usize];
    (0..members).map(of).collect()
}

/// Member i has the pieces for which `has` is true, with the data of `i`.
fn some(members: u32, pieces: u32, has: impl Fn(u32, u32) -> bool) -> State {
    let of = |member: u32| {
        let all = 0..pieces;
        let all = all.map(|piece| has(member, piece).then(|| BTreeSet::from([member])));
        all.collect()
    };
    (0..members).map(of).collect()
}

fn everybody(members: u32) -> BTreeSet<u32> {
    (0..members).collect()
}

fn works(collective: Collective, algorithm: Algorithm, members: u32) -> Result<(), TestCaseError> {
    let rounds = Rounds::of(collective, algorithm, members).unwrap();
    let pieces = rounds.pieces;
    let all = everybody(members);
    match collective {
        Collective::AllReduce | Collective::Barrier => {
            let end = run(&rounds, own(members, pieces));
            let full = |piece: &Option<BTreeSet<u32>>| piece.as_ref() == Some(&all);
            prop_assert!(end.iter().flatten().all(full), "{end:?}");
        }
        Collective::ReduceScatter => {
            let end = run(&rounds, own(members, pieces));
            for (member, state) in end.iter().enumerate() {
                prop_assert_eq!(state[member].as_ref(), Some(&all));
            }
        }
        Collective::AllGather => {
            let begin = some(members, pieces, |member, piece| member == piece);
            for state in run(&rounds, begin) {
                let full = (0..members).map(|piece| Some(BTreeSet::from([piece])));
                prop_assert_eq!(state, full.collect::<Vec<_>>());
            }
        }
        Collective::AllToAll => {
            let begin = some(members, pieces, |member, piece| piece / members == member);
            for (to, state) in run(&rounds, begin).iter().enumerate() {
                for from in 0..members {
                    let piece = state[(from * members) as usize + to].as_ref();
                    prop_assert_eq!(piece, Some(&BTreeSet::from([from])));
                }
            }
        }
        Collective::Broadcast => {
            let begin = some(members, pieces, |member, _| member == 0);
            let end = run(&rounds, begin);
            let root = Some(BTreeSet::from([0]));
            prop_assert!(end.iter().flatten().all(|piece| *piece == root));
        }
    }
    Ok(())
}

fn is_possible(collective: Collective, algorithm: Algorithm, members: u32) -> bool {
    Rounds::of(collective, algorithm, members).is_ok()
}

proptest! {
    #[test]
    fn every_collective_delivers_what_it_means(members in 1u32..40) {
        for (_, collective) in Collective::ALL {
            for &algorithm in collective.algorithms() {
                if is_possible(collective, algorithm, members) {
                    works(collective, algorithm, members)?;
                }
            }
        }
    }

    #[test]
    fn operations_match_and_end_with_any_message_waiting(
        members in 1u32..20, bytes in 0u64..10_000, times in 1usize..3,
    ) {
        for (_, collective) in Collective::ALL {
            for &algorithm in collective.algorithms() {
                let Ok(rounds) = Rounds::of(collective, algorithm, members) else {
                    continue;
                };
                let mut weave = Weave::new(members);
                let group: Vec<u32> = (0..members).collect();
                for _ in 0..times {
                    let phase = weave.phase("x");
                    weave.collective(&group, &rounds, bytes, phase);
                }
                prop_assert_eq!(check(&weave.finish(), 0), Ok(()));
            }
        }
    }

    #[test]
    fn neighbours_on_a_torus_hear_of_each_other(
        grid in prop::collection::vec(1u32..5, 1..4),
    ) {
        let rounds = Rounds::halo(&grid);
        let members: u32 = grid.iter().product();
        let end = run(&rounds, own(members, 1));
        for member in 0..members {
            let mut expected = BTreeSet::from([member]);
            let mut stride = 1;
            for &length in &grid {
                let at = member / stride % length;
                for next in [(at + 1) % length, (at + length - 1) % length] {
                    expected.insert(member - at * stride + next * stride);
                }
                stride *= length;
            }
            prop_assert_eq!(end[member as usize][0].as_ref(), Some(&expected));
        }
    }

    #[test]
    fn a_shift_is_a_permutation(members in 1u32..40, distance in 0u32..100) {
        let end = run(&Rounds::shift(members, distance), own(members, 1));
        for member in 0..members {
            let from = (member + members * 100 - distance) % members;
            let expected = BTreeSet::from([member, from]);
            prop_assert_eq!(end[member as usize][0].as_ref(), Some(&expected));
        }
    }

    #[test]
    fn pieces_add_up(data: u32, members in 1u32..50) {
        let rounds = Rounds { pieces: members, parts: members, rounds: Vec::new() };
        let sum: u64 = (0..members).map(|at| rounds.bytes(data.into(), &(at..at + 1))).sum();
        prop_assert_eq!(sum, u64::from(data));
    }
}

#[test]
fn a_ring_sends_twice_the_data_less_two_pieces() {
    let rounds = Rounds::of(Collective::AllReduce, Algorithm::Ring, 8).unwrap();
    let of_member = rounds.rounds.iter().flatten().filter(|one| one.from == 3);
    let bytes: u64 = of_member.map(|one| rounds.bytes(800, &one.pieces)).sum();
    assert_eq!(bytes, 2 * 7 * 100);
}

#[test]
fn all_to_all_sends_a_part_to_each() {
    let rounds = Rounds::of(Collective::AllToAll, Algorithm::Pairwise, 4).unwrap();
    let sent = |from: u32, to: u32| {
        let mut all = rounds.rounds.iter().flatten();
        let found = all.find(|one| (one.from, one.to) == (from, to)).unwrap();
        rounds.bytes(400, &found.pieces)
    };
    assert_eq!((sent(0, 1), sent(3, 0), sent(2, 3)), (100, 100, 100));
}

#[test]
fn no_collective_has_more_transfers_than_is_said_before() {
    for (_, collective) in Collective::ALL {
        for &algorithm in collective.algorithms() {
            for members in 1..70 {
                let Ok(rounds) = Rounds::of(collective, algorithm, members) else {
                    continue;
                };
                let made: usize = rounds.rounds.iter().map(Vec::len).sum();
                let most = Rounds::transfers_max(collective, algorithm, members);
                assert!(
                    made as u64 <= most,
                    "{collective:?} {algorithm:?} {members}"
                );
                if matches!(algorithm, Algorithm::Ring | Algorithm::Pairwise) {
                    assert_eq!(made as u64, most);
                }
            }
        }
    }
    let many = Rounds::transfers_max(Collective::AllToAll, Algorithm::Pairwise, 65_536);
    assert_eq!(many, 65_536 * 65_535);
}

#[test]
fn what_does_not_fit_is_refused() {
    let of = |collective, algorithm, members| Rounds::of(collective, algorithm, members);
    assert_eq!(
        of(Collective::AllGather, Algorithm::Halving, 6),
        Err("needs 2, 4, 8, … members, not 6".to_owned())
    );
    assert_eq!(
        of(Collective::AllReduce, Algorithm::Pairwise, 6),
        Err("all-reduce knows ring, tree, halving-doubling".to_owned())
    );
}
