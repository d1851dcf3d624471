//! Exchanges without reduction.

use super::{Rounds, Transfer};

/// Rounds in which data are not cut into pieces.
fn whole(rounds: Vec<Vec<Transfer>>) -> Rounds {
    Rounds {
        pieces: 1,
        parts: 1,
        rounds,
    }
}

/// From each member to the one `distance` places further, unless that is the same.
fn onward(members: u32, distance: u32) -> Vec<Transfer> {
    let transfer = |from: u32| Transfer {
        from,
        to: ((u64::from(from) + u64::from(distance)) % u64::from(members)) as u32,
        pieces: 0..1,
        combine: true,
    };
    let transfers = (0..members).map(transfer);
    transfers.filter(|one| one.from != one.to).collect()
}

/// Down a binomial tree from member 0.
pub fn broadcast(members: u32) -> Rounds {
    let mut rounds = Vec::new();
    let mut reached = 1;
    while reached < members {
        let transfers = (0..reached.min(members - reached)).map(|from| Transfer {
            from,
            to: from + reached,
            pieces: 0..1,
            combine: false,
        });
        rounds.push(transfers.collect());
        reached *= 2;
    }
    whole(rounds)
}

/// Piece f × members + t goes from member f to member t.
pub fn all_to_all(members: u32) -> Rounds {
    let round = |distance: u32| {
        let transfers = (0..members).map(|from| {
            let to = (from + distance) % members;
            let piece = from * members + to;
            Transfer {
                from,
                to,
                pieces: piece..piece + 1,
                combine: false,
            }
        });
        transfers.collect()
    };
    Rounds {
        pieces: members * members,
        parts: members,
        rounds: (1..members).map(round).collect(),
    }
}

/// Messages without data.
pub fn barrier(members: u32) -> Rounds {
    let mut rounds = Vec::new();
    let mut distance = 1;
    while distance < members {
        rounds.push(onward(members, distance));
        distance *= 2;
    }
    whole(rounds)
}

/// Each member sends the whole of its data to the one that is so many places further; the last ones
/// to the first.
pub fn shift(members: u32, distance: u32) -> Rounds {
    whole(vec![onward(members, distance)])
}

/// All in one round, the whole of the data to each neighbour. The first dimension varies fastest.
pub fn halo(grid: &[u32]) -> Rounds {
    let members: u32 = grid.iter().product();
    let mut transfers = Vec::new();
    let mut stride = 1;
    for &length in grid {
        for from in (0..members).filter(|_| length > 1) {
            let at = from / stride % length;
            for next in [(at + 1) % length, (at + length - 1) % length] {
                transfers.push(Transfer {
                    from,
                    to: from - at * stride + next * stride,
                    pieces: 0..1,
                    combine: true,
                });
            }
        }
        stride *= length;
    }
    whole(vec![transfers])
}
