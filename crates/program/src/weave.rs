//! Puts programs together: computations and collectives, one after the other on each rank.

use std::sync::Arc;

use crate::{Kind, Operation, Program, RankBuilder, collectives::Rounds};

/// A program in the making.
#[derive(Debug)]
pub struct Weave {
    ranks: Vec<RankBuilder>,
    phases: Vec<String>,
    /// By rank, the operations that must end before the next one begins.
    fronts: Vec<Vec<u32>>,
    /// The tag of the next round: messages of different rounds never match.
    tag: u32,
}

impl Weave {
    /// Of so many ranks, which do nothing yet.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks: (0..ranks).map(|_| RankBuilder::default()).collect(),
            phases: Vec::new(),
            fronts: vec![Vec::new(); ranks as usize],
            tag: 0,
        }
    }

    /// The number of a part of the program whose completion is measured; parts of one name are one.
    /// Beyond 65535 names all are the last.
    pub fn phase(&mut self, name: &str) -> u16 {
        let known = self.phases.iter().position(|known| known == name);
        let at = known
            .unwrap_or(self.phases.len())
            .min(usize::from(u16::MAX));
        if at == self.phases.len() {
            self.phases.push(name.to_owned());
        }
        at as u16
    }

    /// A tag that no message has yet.
    pub fn fresh_tag(&mut self) -> u32 {
        self.tag += 1;
        self.tag
    }

    /// Adds an operation behind all that its rank has to end before; it is not yet waited for.
    pub fn add(&mut self, rank: u32, operation: Operation) -> u32 {
        let own = &mut self.ranks[rank as usize];
        let number = own.add(operation);
        for before in &self.fronts[rank as usize] {
            own.require(number, *before, false);
        }
        number
    }

    /// What follows on this rank waits for these operations, and for nothing else.
    pub fn set_front(&mut self, rank: u32, front: Vec<u32>) {
        self.fronts[rank as usize] = front;
    }

    /// A rank computes.
    pub fn compute(&mut self, rank: u32, time_ns: u64, phase: u16) {
        let number = self.add(rank, compute(time_ns, phase));
        self.set_front(rank, vec![number]);
    }

    /// A rank sends; what follows does not wait for it. Returns the operation.
    pub fn send(&mut self, rank: u32, to: u32, bytes: u64, tag: u32, phase: u16) -> u32 {
        self.add(rank, message(Kind::Send, to, bytes, tag, phase))
    }

    /// A rank receives; what follows waits for it.
    pub fn receive(&mut self, rank: u32, from: u32, bytes: u64, tag: u32, phase: u16) {
        let number = self.add(rank, message(Kind::Receive, from, bytes, tag, phase));
        self.set_front(rank, vec![number]);
    }

    /// A collective of these ranks over so many bytes.
    pub fn collective(&mut self, group: &[u32], rounds: &Rounds, bytes: u64, phase: u16) {
        for round in &rounds.rounds {
            let messages = round.iter().map(|transfer| {
                let ends = (group[transfer.from as usize], group[transfer.to as usize]);
                (ends.0, ends.1, rounds.bytes(bytes, &transfer.pieces))
            });
            self.exchange(&messages.collect::<Vec<_>>(), phase);
        }
    }

    /// A round of messages: from, to, bytes.
    pub fn exchange(&mut self, messages: &[(u32, u32, u64)], phase: u16) {
        let tag = self.fresh_tag();
        let mut fronts: Vec<(u32, u32)> = Vec::with_capacity(2 * messages.len());
        for &(from, to, bytes) in messages {
            // Receives are posted first, as careful programs do.
            let receive = message(Kind::Receive, from, bytes, tag, phase);
            fronts.push((to, self.add(to, receive)));
            let send = message(Kind::Send, to, bytes, tag, phase);
            fronts.push((from, self.add(from, send)));
        }
        for (rank, _) in &fronts {
            self.fronts[*rank as usize].clear();
        }
        for (rank, number) in fronts {
            self.fronts[rank as usize].push(number);
        }
    }

    /// The program.
    pub fn finish(self) -> Program {
        let ranks = self.ranks.into_iter();
        Program {
            ranks: ranks.map(|rank| Arc::new(rank.finish())).collect(),
            phases: self.phases,
            notes: Vec::new(),
        }
    }
}

fn compute(time_ns: u64, phase: u16) -> Operation {
    Operation {
        size: time_ns,
        peer: 0,
        tag: 0,
        requires: 0,
        phase,
        cpu: 0,
        kind: Kind::Compute,
    }
}

fn message(kind: Kind, peer: u32, bytes: u64, tag: u32, phase: u16) -> Operation {
    Operation {
        size: bytes,
        peer,
        tag,
        requires: 0,
        phase,
        cpu: 0,
        kind,
    }
}
