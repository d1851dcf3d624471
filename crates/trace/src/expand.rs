//! Which messages a collective is made of. MPI leaves that to the library; the choice here is that
//! of Thakur, Rabenseifner and Gropp (2005) in kind, and does not depend on who recorded.
//!
//! | collective | algorithm |
//! |---|---|
//! | barrier | dissemination |
//! | bcast | binomial tree; above 12 KB with 8 members or more scatter and ring all-gather |
//! | reduce | binomial tree; above 2 KB reduce-scatter and gather |
//! | allreduce | recursive doubling; above 2 KB halving and doubling |
//! | allgather | doubling up to 512 KB with 2, 4, 8, … members; else ring |
//! | allgatherv | ring |
//! | gather, scatter | binomial tree |
//! | gatherv, scatterv | between the root and each member |
//! | alltoall, alltoallv | pairwise |
//! | reduce_scatter | halving with 2, 4, 8, … members; else ring |
//! | scan, exscan | in round r to the member 2^r places on |

use std::ops::Range;

use sluicegate_program::collectives::{Algorithm, Collective, Rounds};

use crate::format::What;

const BCAST_SHORT_BYTES: u64 = 12 << 10;
const BCAST_FEW_MEMBERS: u32 = 8;
const REDUCE_SHORT_BYTES: u64 = 2 << 10;
const ALLGATHER_SHORT_BYTES: u64 = 512 << 10;

/// A message between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
}

/// In order; a member begins a round when its own part of the round before is done.
pub type Transfers = Vec<Vec<Transfer>>;

/// A collective that all members have called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    pub what: What,
    pub root: u32,
    /// By member, what [`crate::format::Call::bytes`] says; of an all-to-all a number for each
    /// other member or one for all.
    pub bytes: Vec<Vec<u64>>,
}

impl Instance {
    /// Its messages. Those without data are left out, except of a barrier.
    pub fn transfers(&self) -> Transfers {
        let mut rounds = self.all();
        if self.what != What::Barrier {
            for round in &mut rounds {
                round.retain(|transfer| transfer.bytes > 0);
            }
        }
        rounds.retain(|round| !round.is_empty());
        rounds
    }

    fn members(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// What each member has.
    fn own(&self) -> Vec<u64> {
        let firsts = self.bytes.iter().map(|own| own.first().copied());
        firsts.map(Option::unwrap_or_default).collect()
    }

    fn all(&self) -> Transfers {
        use Algorithm::{Dissemination, Halving, Ring};
        let members = self.members();
        let own = self.own();
        let most = own.iter().copied().max().unwrap_or(0);
        let power = members.is_power_of_two();
        let halving = if power { Halving } else { Ring };
        match self.what {
            What::Barrier => rounds(Collective::Barrier, Dissemination, members, |_| 0),
            What::Bcast => self.broadcast(own[self.root as usize]),
            What::Reduce => self.reduce(most),
            What::Allreduce if most <= REDUCE_SHORT_BYTES => doubling_all_reduce(members, most),
            What::Allreduce => evenly(Collective::AllReduce, Halving, members, most),
            What::Allgather | What::Allgatherv => {
                let short = self.what == What::Allgather
                    && own.iter().sum::<u64>() <= ALLGATHER_SHORT_BYTES;
                let algorithm = if short { halving } else { Ring };
                by_member(Collective::AllGather, algorithm, &own)
            }
            What::Gather => self.unrotated(&gather(&self.rotated(&own))),
            What::Scatter => self.unrotated(&scatter(&self.rotated(&own))),
            What::Gatherv => vec![self.with_root(&own, true)],
            What::Scatterv => vec![self.with_root(&own, false)],
            What::Alltoall | What::Alltoallv => self.all_to_all(),
            What::ReduceScatter => by_member(Collective::ReduceScatter, halving, &own),
            What::Scan | What::Exscan => scan(members, most),
        }
    }

    /// By place behind the root instead of by member.
    fn rotated(&self, own: &[u64]) -> Vec<u64> {
        let (after, before) = own.split_at(self.root as usize);
        [before, after].concat()
    }

    /// Places behind the root become members.
    fn unrotated(&self, places: &Transfers) -> Transfers {
        let member = |place: u32| (place + self.root) % self.members();
        let renamed = |transfer: &Transfer| Transfer {
            from: member(transfer.from),
            to: member(transfer.to),
            ..*transfer
        };
        let rounds = places.iter();
        rounds
            .map(|round| round.iter().map(renamed).collect())
            .collect()
    }

    fn broadcast(&self, bytes: u64) -> Transfers {
        let members = self.members();
        if bytes <= BCAST_SHORT_BYTES || members < BCAST_FEW_MEMBERS {
            let tree = rounds(Collective::Broadcast, Algorithm::Tree, members, |_| bytes);
            return self.unrotated(&tree);
        }
        let pieces = even(bytes, members);
        let mut both = scatter(&pieces);
        both.extend(by_member(Collective::AllGather, Algorithm::Ring, &pieces));
        self.unrotated(&both)
    }

    fn reduce(&self, bytes: u64) -> Transfers {
        let members = self.members();
        if bytes <= REDUCE_SHORT_BYTES {
            let down = rounds(Collective::Broadcast, Algorithm::Tree, members, |_| bytes);
            let up = down.iter().rev().map(|round| {
                let turned = round.iter().map(|transfer| Transfer {
                    from: transfer.to,
                    to: transfer.from,
                    ..*transfer
                });
                turned.collect()
            });
            return self.unrotated(&up.collect());
        }
        let algorithm = match members.is_power_of_two() {
            true => Algorithm::Halving,
            false => Algorithm::Ring,
        };
        let pieces = even(bytes, members);
        let mut both = by_member(Collective::ReduceScatter, algorithm, &pieces);
        both.extend(self.unrotated(&gather(&self.rotated(&pieces))));
        both
    }

    fn with_root(&self, own: &[u64], to_root: bool) -> Vec<Transfer> {
        let others = (0..).zip(own).filter(|(member, _)| *member != self.root);
        let transfer = |(member, bytes): (u32, &u64)| {
            let (from, to) = match to_root {
                true => (member, self.root),
                false => (self.root, member),
            };
            let bytes = *bytes;
            Transfer { from, to, bytes }
        };
        others.map(transfer).collect()
    }

    fn all_to_all(&self) -> Transfers {
        let members = self.members();
        let bytes = |piece: &Range<u32>| {
            let own = &self.bytes[(piece.start / members) as usize];
            let one = own.get((piece.start % members) as usize);
            one.or(own.first()).copied().unwrap_or(0)
        };
        rounds(
            Collective::AllToAll,
            Algorithm::Pairwise,
            members,
            |pieces| bytes(pieces),
        )
    }
}

/// The rounds of a generator, with the bytes of its pieces.
fn rounds(
    collective: Collective,
    algorithm: Algorithm,
    members: u32,
    bytes: impl Fn(&Range<u32>) -> u64,
) -> Transfers {
    // Callers choose algorithms that fit; one that did not would send nothing.
    let known = Rounds::of(collective, algorithm, members).unwrap_or_default();
    let rounds = known.rounds.iter().map(|round| {
        let transfers = round.iter().map(|transfer| Transfer {
            from: transfer.from,
            to: transfer.to,
            bytes: bytes(&transfer.pieces),
        });
        transfers.collect()
    });
    rounds.collect()
}

/// Over data that are cut into equal pieces.
fn evenly(collective: Collective, algorithm: Algorithm, members: u32, data: u64) -> Transfers {
    let known = Rounds::of(collective, algorithm, members).unwrap_or_default();
    rounds(collective, algorithm, members, |pieces| {
        known.bytes(data, pieces)
    })
}

/// Piece i is that of member i.
fn by_member(collective: Collective, algorithm: Algorithm, own: &[u64]) -> Transfers {
    let members = own.len() as u32;
    rounds(collective, algorithm, members, |pieces| {
        own[pieces.start as usize..pieces.end as usize].iter().sum()
    })
}

/// Data cut into as many pieces as members.
fn even(bytes: u64, members: u32) -> Vec<u64> {
    let upto = |piece: u64| bytes * piece / u64::from(members);
    (0..u64::from(members))
        .map(|piece| upto(piece + 1) - upto(piece))
        .collect()
}

/// Up a binomial tree to place 0: in round r those with bit r send what they have.
fn gather(own: &[u64]) -> Transfers {
    let places = own.len() as u32;
    let mut all = Vec::new();
    let mut distance = 1;
    while distance < places {
        let senders = (0..places).filter(|place| place % (2 * distance) == distance);
        let transfers = senders.map(|from| {
            let end = (from + distance).min(places);
            Transfer {
                from,
                to: from - distance,
                bytes: own[from as usize..end as usize].iter().sum(),
            }
        });
        all.push(transfers.collect());
        distance *= 2;
    }
    all
}

/// Down the same tree.
fn scatter(own: &[u64]) -> Transfers {
    let mut all = gather(own);
    all.reverse();
    for transfer in all.iter_mut().flatten() {
        std::mem::swap(&mut transfer.from, &mut transfer.to);
    }
    all
}

/// Partners at a distance that is doubled exchange all that they have. Members beyond the largest
/// power of two give their data to another first, and get the result from it at the end.
fn doubling_all_reduce(members: u32, bytes: u64) -> Transfers {
    let inner = 1 << members.ilog2();
    let outside = |to_inner: bool| {
        let transfers = (inner..members).map(|outer| match to_inner {
            true => (outer, outer - inner),
            false => (outer - inner, outer),
        });
        let with_bytes = |(from, to)| Transfer { from, to, bytes };
        transfers.map(with_bytes).collect::<Vec<_>>()
    };
    let mut all = vec![outside(true)];
    let mut distance = 1;
    while distance < inner {
        let transfers = (0..inner).map(|from| Transfer {
            from,
            to: from ^ distance,
            bytes,
        });
        all.push(transfers.collect());
        distance *= 2;
    }
    all.push(outside(false));
    all
}

fn scan(members: u32, bytes: u64) -> Transfers {
    let mut all = Vec::new();
    let mut distance = 1;
    while distance < members {
        let transfers = (0..members - distance).map(|from| Transfer {
            from,
            to: from + distance,
            bytes,
        });
        all.push(transfers.collect());
        distance *= 2;
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn instance(what: What, members: u32, root: u32, bytes: u64) -> Instance {
        let bytes = match what {
            What::Alltoallv => vec![vec![bytes; members as usize]; members as usize],
            _ => vec![vec![bytes]; members as usize],
        };
        Instance { what, root, bytes }
    }

    /// By member, whose data it can know of at the end.
    fn reach(rounds: &Transfers, members: u32) -> Vec<BTreeSet<u32>> {
        let mut known: Vec<BTreeSet<u32>> = (0..members).map(|one| BTreeSet::from([one])).collect();
        for round in rounds {
            let before = known.clone();
            for transfer in round {
                let more = before[transfer.from as usize].clone();
                known[transfer.to as usize].extend(more);
            }
        }
        known
    }

    /// Whose data a member has to know at the end.
    fn wanted(what: What, members: u32, root: u32, member: u32) -> BTreeSet<u32> {
        match what {
            What::Bcast | What::Scatter | What::Scatterv => BTreeSet::from([root, member]),
            What::Reduce | What::Gather | What::Gatherv if member != root => {
                BTreeSet::from([member])
            }
            What::Scan | What::Exscan => (0..=member).collect(),
            _ => (0..members).collect(),
        }
    }

    #[test]
    fn data_reach_those_who_need_them() {
        for what in What::ALL {
            for members in 1..=17 {
                for (root, bytes) in [(0, 8), (members - 1, 8), (members / 2, 1 << 20)] {
                    let rounds = instance(what, members, root, bytes).transfers();
                    let known = reach(&rounds, members);
                    for (member, known) in (0..).zip(known) {
                        let wanted = wanted(what, members, root, member);
                        let where_ = format!("{what:?} of {members}, root {root}, member {member}");
                        assert!(known.is_superset(&wanted), "{where_}: {known:?}");
                    }
                    let selfish = rounds.iter().flatten().any(|one| one.from == one.to);
                    assert!(!selfish, "{what:?} of {members}");
                }
            }
        }
    }

    fn total(what: What, members: u32, bytes: u64) -> u64 {
        let rounds = instance(what, members, 1 % members, bytes).transfers();
        rounds.iter().flatten().map(|one| one.bytes).sum()
    }

    #[test]
    fn as_many_bytes_as_the_algorithm_needs() {
        assert_eq!(total(What::Barrier, 8, 0), 0);
        assert_eq!(total(What::Bcast, 8, 100), 700);
        // A scatter over three levels of half the data each, and 7 rounds of the ring.
        assert_eq!(total(What::Bcast, 8, 80_000), 3 * 40_000 + 7 * 80_000);
        assert_eq!(total(What::Allreduce, 8, 100), 3 * 800);
        assert_eq!(total(What::Allreduce, 8, 80_000), 2 * 7 * 80_000);
        assert_eq!(total(What::Allgather, 6, 100), 6 * 5 * 100);
        assert_eq!(total(What::Gatherv, 6, 100), 500);
        assert_eq!(total(What::Gather, 8, 100), 12 * 100);
        assert_eq!(total(What::Alltoall, 6, 100), 30 * 100);
        assert_eq!(total(What::ReduceScatter, 8, 100), 8 * 7 * 100);
        assert_eq!(total(What::Scan, 4, 100), (3 + 2) * 100);
    }

    #[test]
    fn vectors_have_their_own_sizes() {
        let gather = Instance {
            what: What::Allgatherv,
            root: 0,
            bytes: vec![vec![1], vec![20], vec![300]],
        };
        let sum: u64 = gather
            .transfers()
            .iter()
            .flatten()
            .map(|one| one.bytes)
            .sum();
        assert_eq!(sum, 2 * 321);
        let exchange = Instance {
            what: What::Alltoallv,
            root: 0,
            bytes: vec![vec![9, 1, 0], vec![2, 9, 3], vec![0, 4, 9]],
        };
        let transfers: Vec<Transfer> = exchange.transfers().concat();
        let of = |from, to| {
            transfers
                .iter()
                .find(|one| (one.from, one.to) == (from, to))
        };
        assert_eq!(of(1, 2).map(|one| one.bytes), Some(3));
        assert_eq!(of(0, 2), None);
        assert_eq!(transfers.len(), 4);
    }
}
