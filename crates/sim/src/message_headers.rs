//! The headers of messages. A simulated stream is a number of bytes, so the header of a message
//! travels beside it: it is written with the message's first byte, and read when its last byte is.

use std::collections::VecDeque;

use sluicegate_apps::MessageHeader;

use crate::net::EndId;

/// Headers under way, by the end that receives them. An end's number is an index: a receiver looks
/// for a header whenever data arrive, and a hash table would cost it more than the data.
#[derive(Debug, Default)]
pub struct MessageHeaders(Vec<VecDeque<MessageHeader>>);

impl MessageHeaders {
    /// The next one for `at`, behind those that are on their way.
    pub fn push(&mut self, at: EndId, header: MessageHeader) {
        let at = at as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, VecDeque::new);
        }
        self.0[at].push_back(header);
    }

    /// The next one for `at`, without taking it.
    #[inline]
    pub fn peek(&self, at: EndId) -> Option<MessageHeader> {
        self.0.get(at as usize)?.front().copied()
    }

    /// Takes the next one for `at`.
    pub fn take(&mut self, at: EndId) -> Option<MessageHeader> {
        self.0.get_mut(at as usize)?.pop_front()
    }

    /// Drops the headers that are left for `at`, to which no more are written.
    pub fn forget(&mut self, at: EndId) {
        if let Some(headers) = self.0.get_mut(at as usize) {
            *headers = VecDeque::new();
        }
    }
}
