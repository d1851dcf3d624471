//! What the bytes of a stream say, where an application needs to know: streams themselves are numbers of
//! bytes. A letter is written with its first byte, and read when its last byte is.

use std::collections::{HashMap, VecDeque};

use sluicegate_apps::Letter;

use crate::net::EndId;

/// Letters under way, by the end that receives them.
#[derive(Debug, Default)]
pub struct Letters(HashMap<EndId, VecDeque<Letter>>);

impl Letters {
    /// The next one for `at`, behind those that are on their way.
    pub fn post(&mut self, at: EndId, letter: Letter) {
        self.0.entry(at).or_default().push_back(letter);
    }

    /// The next one for `at`, without taking it.
    pub fn peek(&self, at: EndId) -> Option<Letter> {
        self.0.get(&at)?.front().copied()
    }

    /// Takes the next one for `at`.
    pub fn take(&mut self, at: EndId) -> Option<Letter> {
        self.0.get_mut(&at)?.pop_front()
    }

    /// Nobody will write to `at` any more.
    pub fn forget(&mut self, at: EndId) {
        self.0.remove(&at);
    }
}
