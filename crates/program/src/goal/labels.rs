//! The labels of a rank's operations while a text is read. There may be millions: a name is kept
//! once, in one buffer with all others, and everything else has its number.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Most labels of a rank: twice a number, plus one, is a `u32`.
const LABELS_MAX: usize = 1 << 31;

/// [`Labels::operations`]: the label was only named so far.
const UNDEFINED: u32 = u32::MAX;

/// The labels that a rank's text has named, numbered in the order in which it did.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// The names, one behind the other.
    names: Vec<u8>,
    /// By label, where its name ends in `names`.
    ends: Vec<usize>,
    /// The labels by name.
    numbers: HashTable<u32>,
    /// By label, its operation.
    operations: Vec<u32>,
}

fn name<'a>(names: &'a [u8], ends: &[usize], number: u32) -> &'a [u8] {
    let at = number as usize;
    let begin = at.checked_sub(1).map_or(0, |before| ends[before]);
    &names[begin..ends[at]]
}

impl Labels {
    /// The number of a label, which is new if it was not named before. `None` if there are too
    /// many.
    pub fn number(&mut self, text: &str) -> Option<u32> {
        let Self {
            names,
            ends,
            numbers,
            operations,
        } = self;
        let hash = |bytes: &[u8]| FxBuildHasher.hash_one(bytes);
        let text = text.as_bytes();
        let is_it = |number: &u32| name(names, ends, *number) == text;
        if let Some(known) = numbers.find(hash(text), is_it) {
            return Some(*known);
        }
        if ends.len() >= LABELS_MAX {
            return None;
        }
        let new = ends.len() as u32;
        names.extend_from_slice(text);
        ends.push(names.len());
        operations.push(UNDEFINED);
        let hash_of = |number: &u32| hash(name(names, ends, *number));
        numbers.insert_unique(hash(text), new, hash_of);
        Some(new)
    }

    /// An operation has a label; false if another one has it already, which then keeps it.
    pub fn define(&mut self, label: u32, operation: u32) -> bool {
        let own = &mut self.operations[label as usize];
        let is_free = *own == UNDEFINED;
        if is_free {
            *own = operation;
        }
        is_free
    }

    /// The operation with a label, if one has it.
    pub fn operation(&self, label: u32) -> Option<u32> {
        Some(self.operations[label as usize]).filter(|operation| *operation != UNDEFINED)
    }

    /// The name of a label.
    pub fn name(&self, label: u32) -> String {
        String::from_utf8_lossy(name(&self.names, &self.ends, label)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number() {
        let mut labels = Labels::default();
        let numbers: Vec<u32> = (0..10_000)
            .filter_map(|at| labels.number(&format!("l{at}")))
            .collect();
        assert_eq!(numbers, (0..10_000).collect::<Vec<_>>());
        assert_eq!(labels.number("l123"), Some(123));
        assert_eq!(labels.name(9_999), "l9999");
        assert_eq!(labels.operation(123), None);
        assert!(labels.define(123, 7));
        assert!(!labels.define(123, 8));
        assert_eq!(labels.operation(123), Some(7));
    }
}
