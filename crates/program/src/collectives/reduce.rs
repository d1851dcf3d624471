//! Reductions and gathers.

use super::{Rounds, Transfer};

/// Every member sends one piece to the next member; `piece` says which, by member and round.
fn ring(members: u32, rounds: u32, combine: bool, piece: impl Fn(u32, u32) -> u32) -> Rounds {
    let round = |round: u32| {
        let all = 0..members;
        let transfers = all.map(|from| {
            let first = piece(from, round) % members;
            Transfer {
                from,
                to: (from + 1) % members,
                pieces: first..first + 1,
                combine,
            }
        });
        transfers.collect()
    };
    Rounds {
        pieces: members,
        parts: members,
        rounds: (0..rounds).map(round).collect(),
    }
}

/// Member i ends with piece i.
pub fn ring_reduce_scatter(members: u32) -> Rounds {
    let piece = |from: u32, round: u32| from + 2 * members - round - 1;
    ring(members, members - 1, true, piece)
}

/// Member i begins with piece i + `shift`.
pub fn ring_all_gather(members: u32, shift: u32) -> Rounds {
    let piece = |from: u32, round: u32| from + shift + members - round;
    ring(members, members - 1, false, piece)
}

pub fn ring_all_reduce(members: u32) -> Rounds {
    let mut all = ring_reduce_scatter(members);
    all.rounds.extend(ring_all_gather(members, 0).rounds);
    all
}

/// Up a binomial tree to member 0, and down again.
pub fn tree_all_reduce(members: u32) -> Rounds {
    let down = super::exchange::broadcast(members).rounds;
    let up = down.iter().rev().map(|round| {
        let transfers = round.iter().map(|transfer| Transfer {
            from: transfer.to,
            to: transfer.from,
            combine: true,
            ..transfer.clone()
        });
        transfers.collect()
    });
    let mut rounds: Vec<Vec<Transfer>> = up.collect();
    rounds.extend(down);
    Rounds {
        pieces: 1,
        parts: 1,
        rounds,
    }
}

/// Partners at a distance that is halved give each other the half that the other keeps: member i
/// ends with piece i. `members` is a power of two.
pub fn halving_reduce_scatter(members: u32) -> Rounds {
    let mut rounds = Vec::new();
    let mut distance = members / 2;
    while distance > 0 {
        let transfers = (0..members).map(|from| {
            let to = from ^ distance;
            let first = to / distance * distance;
            Transfer {
                from,
                to,
                pieces: first..first + distance,
                combine: true,
            }
        });
        rounds.push(transfers.collect());
        distance /= 2;
    }
    Rounds {
        pieces: members,
        parts: members,
        rounds,
    }
}

/// Partners at a distance that is doubled give each other all that they have: member i begins with
/// piece i. `members` is a power of two.
pub fn doubling_all_gather(members: u32) -> Rounds {
    let mut rounds = Vec::new();
    let mut distance = 1;
    while distance < members {
        let transfers = (0..members).map(|from| {
            let first = from / distance * distance;
            Transfer {
                from,
                to: from ^ distance,
                pieces: first..first + distance,
                combine: false,
            }
        });
        rounds.push(transfers.collect());
        distance *= 2;
    }
    Rounds {
        pieces: members,
        parts: members,
        rounds,
    }
}

/// Members beyond the largest power of two give all their data to one of the others first, and get
/// the result from it at the end.
pub fn halving_all_reduce(members: u32) -> Rounds {
    let inner = 1 << members.ilog2();
    let mut all = halving_reduce_scatter(inner);
    all.rounds.extend(doubling_all_gather(inner).rounds);
    if inner < members {
        let outer = |to_inner: bool| {
            let transfers = (inner..members).map(|outer| {
                let (from, to) = match to_inner {
                    true => (outer, outer - inner),
                    false => (outer - inner, outer),
                };
                Transfer {
                    from,
                    to,
                    pieces: 0..inner,
                    combine: to_inner,
                }
            });
            transfers.collect()
        };
        all.rounds.insert(0, outer(true));
        all.rounds.push(outer(false));
    }
    all
}
