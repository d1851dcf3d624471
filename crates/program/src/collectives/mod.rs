//! Collective operations as rounds of messages. A round says which pieces of the data each member
//! sends to which other; a rank begins a round when its own part of the round before is done. So
//! what a collective means can be checked without a network: see the tests.

mod exchange;
mod reduce;
#[cfg(test)]
mod tests;

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Messages of a round: pieces of the data that one member sends to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Member that sends, from 0.
    pub from: u32,
    /// Member that receives.
    pub to: u32,
    /// The pieces.
    pub pieces: Range<u32>,
    /// The receiver combines them with its own; else it replaces them.
    pub combine: bool,
}

/// What the members do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collective {
    /// Everybody ends with the combination of everybody's data.
    AllReduce,
    /// Member i ends with the i-th piece of the combination.
    ReduceScatter,
    /// Member i begins with the i-th piece; everybody ends with all.
    AllGather,
    /// Everybody has a piece for everybody.
    AllToAll,
    /// Everybody ends with the data of member 0.
    Broadcast,
    /// No member ends before all members have begun.
    Barrier,
}

impl Collective {
    /// Each with its name in scenarios.
    pub const ALL: [(&'static str, Self); 6] = [
        ("all-reduce", Self::AllReduce),
        ("reduce-scatter", Self::ReduceScatter),
        ("all-gather", Self::AllGather),
        ("all-to-all", Self::AllToAll),
        ("broadcast", Self::Broadcast),
        ("barrier", Self::Barrier),
    ];

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, one)| *one == self);
        known.map_or("", |(name, _)| name)
    }

    /// Ways to do it, the usual one first.
    pub fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::{Dissemination, Halving, Pairwise, Ring, Tree};
        match self {
            Self::AllReduce => &[Ring, Tree, Halving],
            Self::ReduceScatter | Self::AllGather => &[Ring, Halving],
            Self::AllToAll => &[Pairwise],
            Self::Broadcast => &[Tree],
            Self::Barrier => &[Dissemination],
        }
    }
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// Pieces go round a ring, each member to the next (Patarasuk and Yuan 2009).
    Ring,
    /// Binomial trees to and from member 0.
    Tree,
    /// Recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005).
    Halving,
    /// In round r everybody sends to the member r places on.
    Pairwise,
    /// In round r everybody sends to the member 2^r places on (Hensgen, Finkel and Manber 1988).
    Dissemination,
}

impl Algorithm {
    /// Each with its name in scenarios.
    pub const ALL: [(&'static str, Self); 5] = [
        ("ring", Self::Ring),
        ("tree", Self::Tree),
        ("halving-doubling", Self::Halving),
        ("pairwise", Self::Pairwise),
        ("dissemination", Self::Dissemination),
    ];

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, one)| *one == self);
        known.map_or("", |(name, _)| name)
    }
}

/// A collective of some members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Number of pieces.
    pub pieces: u32,
    /// Pieces that the data of a rank are cut into, as evenly as bytes can be.
    pub parts: u32,
    /// In order; the transfers of one are independent of each other.
    pub rounds: Vec<Vec<Transfer>>,
}

impl Rounds {
    /// A collective of so many members, 1 at least; nothing is sent by a lone one.
    ///
    /// # Errors
    /// Why these members cannot do it in this way.
    pub fn of(collective: Collective, algorithm: Algorithm, members: u32) -> Result<Self, String> {
        use Algorithm::{Dissemination, Halving, Pairwise, Ring, Tree};
        use Collective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, ReduceScatter};
        let power = members.is_power_of_two();
        Ok(match (collective, algorithm) {
            (AllReduce, Ring) => reduce::ring_all_reduce(members),
            (AllReduce, Tree) => reduce::tree_all_reduce(members),
            (AllReduce, Halving) => reduce::halving_all_reduce(members),
            (ReduceScatter, Ring) => reduce::ring_reduce_scatter(members),
            (ReduceScatter, Halving) if power => reduce::halving_reduce_scatter(members),
            (AllGather, Ring) => reduce::ring_all_gather(members, 0),
            (AllGather, Halving) if power => reduce::doubling_all_gather(members),
            (ReduceScatter | AllGather, Halving) => {
                return Err(format!("needs 2, 4, 8, … members, not {members}"));
            }
            (AllToAll, Pairwise) => exchange::all_to_all(members),
            (Broadcast, Tree) => exchange::broadcast(members),
            (Barrier, Dissemination) => exchange::barrier(members),
            _ => {
                let names = collective.algorithms().iter().map(|one| one.name());
                let names = names.collect::<Vec<_>>().join(", ");
                return Err(format!("{} knows {names}", collective.name()));
            }
        })
    }

    /// How many transfers [`Rounds::of`] makes at most, found without making them.
    pub fn transfers_max(collective: Collective, algorithm: Algorithm, members: u32) -> u64 {
        let members = u64::from(members);
        let others = members.saturating_sub(1);
        let steps = 2 + u64::from(members.max(1).ilog2());
        match algorithm {
            Algorithm::Ring if collective == Collective::AllReduce => 2 * members * others,
            Algorithm::Ring | Algorithm::Pairwise => members * others,
            Algorithm::Tree => 2 * others,
            Algorithm::Halving => 2 * members * steps,
            Algorithm::Dissemination => members * steps,
        }
    }

    /// Everybody on a grid that is closed to a torus exchanges with both neighbours in each
    /// dimension.
    pub fn halo(grid: &[u32]) -> Self {
        exchange::halo(grid)
    }

    /// Each of so many members, 1 at least, sends its data to the one `distance` places further.
    pub fn shift(members: u32, distance: u32) -> Self {
        exchange::shift(members, distance)
    }

    /// Bytes of some pieces, where a rank has data of so many bytes.
    pub fn bytes(&self, data: u64, pieces: &Range<u32>) -> u64 {
        let upto = |piece: u32| {
            let part = u128::from(data) * u128::from(piece) / u128::from(self.parts.max(1));
            part as u64
        };
        upto(pieces.end) - upto(pieces.start)
    }
}
