//! Which operations of a rank may begin.

use std::collections::VecDeque;

use prefetch_index::prefetch_index;

use crate::{AHEAD, Rank};

/// How far a rank is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// By operation, how many others it still waits for.
    missing: Vec<u32>,
    ready: VecDeque<u32>,
    left: usize,
}

impl Progress {
    /// Before anything has begun.
    pub fn new(rank: &Rank) -> Self {
        let missing: Vec<u32> = rank.operations().iter().map(|op| op.requires).collect();
        let free = (0..).zip(&missing).filter(|(_, missing)| **missing == 0);
        Self {
            ready: free.map(|(operation, _)| operation).collect(),
            left: missing.len(),
            missing,
        }
    }

    /// Takes the next operation that may begin, in the order in which they became free.
    pub fn take(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// Fetches from memory what will be read of the operations behind this one, of a program with
    /// so many ranks that each finds nothing in a near cache when its turn comes.
    #[inline]
    pub fn fetch_behind(&self, rank: &Rank, operation: u32) {
        prefetch_index(&self.missing, operation as usize + AHEAD);
        rank.fetch_dependents(operation);
    }

    /// An operation has begun. `freed` hears of each that may begin now.
    pub fn begun(&mut self, rank: &Rank, operation: u32, freed: impl FnMut(u32)) {
        self.release(rank, operation, true, freed);
    }

    /// An operation has ended.
    pub fn ended(&mut self, rank: &Rank, operation: u32, freed: impl FnMut(u32)) {
        self.left -= 1;
        self.release(rank, operation, false, freed);
    }

    fn release(&mut self, rank: &Rank, operation: u32, begin: bool, mut freed: impl FnMut(u32)) {
        for dependent in rank.dependents(operation) {
            if dependent.of_begin == begin {
                let missing = &mut self.missing[dependent.operation as usize];
                *missing -= 1;
                if *missing == 0 {
                    freed(dependent.operation);
                    self.ready.push_back(dependent.operation);
                }
            }
        }
    }

    /// Operations that have not ended.
    pub fn left(&self) -> usize {
        self.left
    }
}
