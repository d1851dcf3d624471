//! Parallel programs: what each rank computes, sends and receives, and in which order.
//!
//! A program is a list of ranks. A rank is a graph of operations: each begins when the operations
//! that it requires have ended (`requires` of GOAL) or begun (`irequires`). The semantics are those
//! of GOAL (Hoefler, Siebert, Lumsdaine: Group Operation Assembly Language, 2009) as LogGOPSim
//! (Hoefler, Schneider, Lumsdaine, 2010) runs it: sends and receives match by source and tag as in
//! MPI, computations on one CPU of a rank follow one another.
//!
//! Nothing here opens a file, knows a network or reads a clock.

pub mod check;
pub mod collectives;
pub mod goal;
mod matching;
pub mod nas;
mod open;
mod progress;
pub mod training;
mod weave;

use std::fmt;

use prefetch_index::prefetch_index;
use serde::{Deserialize, Serialize};

pub use matching::{Matcher, Message};
pub use progress::Progress;
pub use weave::Weave;

/// Source of a receive that takes messages of every rank.
pub const ANY_SOURCE: u32 = u32::MAX;

/// Tag of a receive that takes messages of every tag.
pub const ANY_TAG: u32 = u32::MAX;

/// Phase of an operation that belongs to none.
pub const NO_PHASE: u16 = u16::MAX;

/// More repetitions of a part than this are measured as one phase.
pub const PHASES_MAX: u64 = 1_000;

/// Name of the phase of a repetition, from 1, of so many: `NAME`, `NAME-3`, or `NAME-all` of more
/// than [`PHASES_MAX`].
pub fn phase_name(name: &str, number: u64, count: u64) -> String {
    match count {
        1 => name.to_owned(),
        2..=PHASES_MAX => format!("{name}-{number}"),
        _ => format!("{name}-all"),
    }
}

/// Most ranks of a program.
pub const RANKS_MAX: u32 = 1 << 16;

/// Numbers in a cache line: what is that far behind an operation is fetched when it begins.
const AHEAD: usize = 16;

/// Most operations of a rank.
pub const OPERATIONS_MAX: usize = 1 << 30;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Sends a message.
    Send,
    /// Receives a message.
    Receive,
    /// Keeps a CPU busy.
    Compute,
}

/// An operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Bytes of the message; of a computation, its time in ns.
    pub size: u64,
    /// The other rank; [`ANY_SOURCE`] only of receives, 0 of computations.
    pub peer: u32,
    /// [`ANY_TAG`] only of receives; 0 of computations.
    pub tag: u32,
    /// Number of operations that it waits for.
    pub requires: u32,
    /// Index in [`Program::phases`]; [`NO_PHASE`] if it belongs to none.
    pub phase: u16,
    /// CPU of the rank.
    pub cpu: u8,
    /// What it does.
    pub kind: Kind,
}

/// An operation that waits for another of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// The one that waits.
    pub operation: u32,
    /// It waits for the begin of the other, not for its end.
    pub of_begin: bool,
}

/// Where a rank's operations were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Places {
    /// Nowhere: they were generated.
    #[default]
    None,
    /// The line of each, from 1.
    Lines(Vec<u32>),
    /// The offset in bytes of the first; each takes [`goal::binary::OPERATION_BYTES`].
    Offset(u64),
}

/// The operations of a rank.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rank {
    operations: Vec<Operation>,
    /// By operation, the first of its dependents in `dependents`; one more at the end.
    first: Vec<u32>,
    /// Twice the number of the dependent, plus one if it waits for the begin.
    dependents: Vec<u32>,
    places: Places,
}

impl Rank {
    /// In the order in which they were written.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether a receive takes messages of every rank or tag.
    pub fn has_wildcards(&self) -> bool {
        let mut operations = self.operations.iter();
        operations
            .any(|op| op.kind == Kind::Receive && (op.peer == ANY_SOURCE || op.tag == ANY_TAG))
    }

    /// The operations that wait for this one.
    pub fn dependents(&self, operation: u32) -> impl Iterator<Item = Dependent> + '_ {
        let at = operation as usize;
        let range = self.first[at] as usize..self.first[at + 1] as usize;
        self.dependents[range].iter().map(|code| Dependent {
            operation: code >> 1,
            of_begin: code & 1 == 1,
        })
    }

    /// Fetches from memory what [`Rank::dependents`] reads of operations a line behind this one.
    #[inline]
    fn fetch_dependents(&self, operation: u32) {
        let behind = operation as usize + AHEAD;
        prefetch_index(&self.first, behind);
        if let Some(first) = self.first.get(operation as usize) {
            prefetch_index(&self.dependents, *first as usize + AHEAD);
        }
    }

    /// ` at line 5` or ` at offset 120`; nothing if it was generated.
    pub fn place(&self, operation: u32) -> String {
        match &self.places {
            Places::None => String::new(),
            Places::Lines(lines) => match lines.get(operation as usize) {
                Some(line) => format!(" at line {line}"),
                None => String::new(),
            },
            Places::Offset(first) => {
                let offset = first + u64::from(operation) * goal::binary::OPERATION_BYTES;
                format!(" at offset {offset}")
            }
        }
    }

    /// An operation in words, with its place.
    pub fn describe(&self, operation: u32) -> String {
        let Some(op) = self.operations.get(operation as usize) else {
            return "an unknown operation".to_owned();
        };
        let place = self.place(operation);
        let peer = match op.peer {
            ANY_SOURCE => "any rank".to_owned(),
            peer => format!("rank {peer}"),
        };
        let tag = match op.tag {
            ANY_TAG => "any tag".to_owned(),
            tag => format!("tag {tag}"),
        };
        match op.kind {
            Kind::Send => format!("send of {} B to {peer}, {tag}{place}", op.size),
            Kind::Receive => format!("receive of {} B from {peer}, {tag}{place}", op.size),
            Kind::Compute => format!("computation of {} ns{place}", op.size),
        }
    }
}

/// The number of operations and a hash of them: a rank may have millions.
impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let (count, hash) = (self.operations.len(), hasher.finish());
        write!(f, "Rank({count} operations, {hash:016x})")
    }
}

/// A parallel program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// By rank.
    pub ranks: Vec<std::sync::Arc<Rank>>,
    /// Names of the parts whose completion is measured: collectives of a program that was generated
    /// or recorded.
    /// Empty if it has none.
    pub phases: Vec<String>,
    /// What a file says that may be meant otherwise than it was read.
    pub notes: Vec<String>,
}

impl Program {
    /// Operations of all ranks.
    pub fn operations(&self) -> u64 {
        let of = |rank: &std::sync::Arc<Rank>| rank.operations.len() as u64;
        self.ranks.iter().map(of).sum()
    }

    /// Whether a receive takes messages of every rank or tag.
    pub fn has_wildcards(&self) -> bool {
        self.ranks.iter().any(|rank| rank.has_wildcards())
    }

    /// A hash of what ranks do and in which order, the same on every machine. Where the program was
    /// read and how its parts are called is not in it.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest(self.ranks.len() as u64);
        for rank in &self.ranks {
            digest.add(rank.operations.len() as u64);
            for op in &rank.operations {
                digest.add(op.size);
                digest.add(u64::from(op.peer) << 32 | u64::from(op.tag));
                digest.add(u64::from(op.requires) << 16 | u64::from(op.cpu) << 8 | op.kind as u64);
            }
            for operation in 0..rank.operations.len() as u32 {
                // Text has requirements in any order, the binary form those of ends first.
                for of_begin in [false, true] {
                    let dependents = rank.dependents(operation);
                    let own = dependents.filter(|one| one.of_begin == of_begin);
                    own.for_each(|one| digest.add(u64::from(one.operation) + 1));
                    digest.add(0);
                }
            }
        }
        digest.0
    }

    /// The pairs of ranks that exchange messages, the lower first, in order; each once.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let mut pairs = Vec::new();
        for (me, rank) in self.ranks.iter().enumerate() {
            let sends = rank.operations.iter().filter(|op| op.kind == Kind::Send);
            let mut peers: Vec<u32> = sends.map(|op| op.peer).collect();
            peers.sort_unstable();
            peers.dedup();
            let me = me as u32;
            let peers = peers.into_iter().filter(|peer| *peer != me);
            pairs.extend(peers.map(|peer| (me.min(peer), me.max(peer))));
        }
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

/// A hash of numbers: each is mixed in as a step of SplitMix64 does it.
struct Digest(u64);

impl Digest {
    fn add(&mut self, number: u64) {
        let mut mixed = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }
}

/// Collects the operations of a rank.
#[derive(Debug, Default)]
pub struct RankBuilder {
    operations: Vec<Operation>,
    /// (the one waited for, twice the one that waits + whether for the begin).
    edges: Vec<(u32, u32)>,
    places: Places,
}

impl RankBuilder {
    /// The number of the next operation.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has none yet.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Where its operations are.
    pub fn set_places(&mut self, places: Places) {
        self.places = places;
    }

    /// Adds an operation; returns its number.
    pub fn add(&mut self, operation: Operation) -> u32 {
        self.operations.push(Operation {
            requires: 0,
            ..operation
        });
        (self.operations.len() - 1) as u32
    }

    /// `waiting` begins when `before` has ended, or begun. Both exist.
    pub fn require(&mut self, waiting: u32, before: u32, of_begin: bool) {
        self.operations[waiting as usize].requires += 1;
        self.edges
            .push((before, waiting << 1 | u32::from(of_begin)));
    }

    /// The rank. Dependents of an operation are in the order in which they were required.
    pub fn finish(mut self) -> Rank {
        // Up to where the dependents of each go; then, from behind, where the last of them is.
        let mut first = vec![0; self.operations.len() + 1];
        for (before, _) in &self.edges {
            first[*before as usize] += 1;
        }
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        let mut dependents = vec![0; self.edges.len()];
        for (before, code) in self.edges.iter().rev() {
            let at = &mut first[*before as usize];
            *at -= 1;
            dependents[*at as usize] = *code;
        }
        self.operations.shrink_to_fit();
        Rank {
            operations: self.operations,
            first,
            dependents,
            places: self.places,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::goal;

    #[test]
    fn a_digest_is_of_what_ranks_do() {
        let digest = |text: &str| goal::read(text.as_bytes()).unwrap().digest();
        let text = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 8b to 1\nb requires a\n}\n\
            rank 1 {\nrecv 8b from 0\n}\n";
        assert_eq!(digest(text), digest(&text.replace("}\n", "\n\n}\n")));
        for (from, to) in [
            ("calc 5", "calc 6"),
            ("send 8b", "send 9b"),
            ("send 8b to 1", "send 8b to 1 tag 1"),
            ("requires", "irequires"),
            ("b requires a\n", ""),
            ("calc 5", "calc 5 cpu 1"),
        ] {
            assert_ne!(digest(text), digest(&text.replace(from, to)), "{to}");
        }
    }

    /// Those that wait for a begin stand behind those that wait for the end in the binary form.
    #[test]
    fn a_digest_is_that_of_either_form() {
        let text = "num_ranks 1\nrank 0 {\na: calc 5\nb: calc 6\nc: calc 7\n\
            b irequires a\nc requires a\nc irequires a\nb requires a\n}\n";
        let program = goal::read(text.as_bytes()).unwrap();
        let bytes = goal::binary::write(&program);
        let digest = goal::read(&bytes[..]).unwrap().digest();
        assert_eq!(digest, program.digest());
    }
}
