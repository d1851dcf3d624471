//! The headers of messages. A simulated stream is a number of bytes, so the header of a message travels beside
//! it: it is written with the message's first byte, and read when its last byte is.

use std::collections::{HashMap, VecDeque};

use sluicegate_apps::MessageHeader;

use crate::net::EndId;

/// Headers under way, by the end that receives them.
#[derive(Debug, Default)]
pub struct MessageHeaders(HashMap<EndId, VecDeque<MessageHeader>>);

impl MessageHeaders {
    /// The next one for `at`, behind those that are on their way.
    pub fn push(&mut self, at: EndId, header: MessageHeader) {
        self.0.entry(at).or_default().push_back(header);
    }

    /// The next one for `at`, without taking it.
    pub fn peek(&self, at: EndId) -> Option<MessageHeader> {
        self.0.get(&at)?.front().copied()
    }

    /// Takes the next one for `at`.
    pub fn take(&mut self, at: EndId) -> Option<MessageHeader> {
        self.0.get_mut(&at)?.pop_front()
    }

    /// Drops the headers that are left for `at`, to which no more are written.
    pub fn forget(&mut self, at: EndId) {
        self.0.remove(&at);
    }
}
