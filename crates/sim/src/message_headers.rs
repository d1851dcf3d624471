//! The headers of messages. A simulated stream is a number of bytes, so the header of a message
//! travels beside it: it is written with the message's first byte, and read when its last byte is.

use prefetch_index::prefetch_index;
use sluicegate_apps::MessageHeader;
use sluicegate_core::number::narrow;

use crate::net::EndId;

/// No place.
const NIL: u32 = u32::MAX;

/// A header under way, in the list of the end that receives it.
#[derive(Clone, Copy, Debug)]
struct Place {
    header: MessageHeader,
    /// The header behind it, or the next free place.
    next: u32,
}

/// The headers for an end, by their places.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NIL,
    last: NIL,
};

/// Headers under way, by the end that receives them. An end's number is an index: a receiver looks
/// for a header whenever data arrive, and a hash table would cost it more than the data. All
/// headers share one table, whose place that was freed last is used first: of many ends few have
/// messages under way, and what these need is in the cache.
#[derive(Debug)]
pub struct MessageHeaders {
    lists: Vec<List>,
    places: Vec<Place>,
    free: u32,
}

impl Default for MessageHeaders {
    fn default() -> Self {
        Self {
            lists: Vec::new(),
            places: Vec::new(),
            free: NIL,
        }
    }
}

impl MessageHeaders {
    /// The next one for `at`, behind those that are on their way.
    pub fn push(&mut self, at: EndId, header: MessageHeader) {
        let at = at as usize;
        if self.lists.len() <= at {
            self.lists.resize(at + 1, EMPTY);
        }
        let new = self.keep(header);
        let list = &mut self.lists[at];
        match list.last {
            NIL => list.first = new,
            last => self.places[last as usize].next = new,
        }
        list.last = new;
    }

    fn keep(&mut self, header: MessageHeader) -> u32 {
        let place = Place { header, next: NIL };
        let Some(free) = self.places.get_mut(self.free as usize) else {
            self.places.push(place);
            return narrow::<u32>(self.places.len()) - 1;
        };
        let next = free.next;
        *free = place;
        std::mem::replace(&mut self.free, next)
    }

    /// Prefetches what the other calls read first.
    #[inline]
    pub fn fetch(&self, at: EndId) {
        prefetch_index(&self.lists, at as usize);
    }

    /// The next one for `at`, without taking it.
    #[inline]
    pub fn peek(&self, at: EndId) -> Option<MessageHeader> {
        let first = self.lists.get(at as usize)?.first;
        self.places.get(first as usize).map(|place| place.header)
    }

    /// Takes the next one for `at`.
    pub fn take(&mut self, at: EndId) -> Option<MessageHeader> {
        let list = self.lists.get_mut(at as usize)?;
        let place = self.places.get_mut(list.first as usize)?;
        let next = std::mem::replace(&mut place.next, self.free);
        self.free = std::mem::replace(&mut list.first, next);
        if next == NIL {
            list.last = NIL;
        }
        Some(place.header)
    }

    /// Drops the headers that are left for `at`, to which no more are written.
    pub fn forget(&mut self, at: EndId) {
        while self.take(at).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tag: u64) -> MessageHeader {
        MessageHeader {
            bytes: 32,
            tag,
            class: 0,
        }
    }

    #[test]
    fn each_end_has_its_own_in_order() {
        let mut headers = MessageHeaders::default();
        for round in 0..3 {
            for tag in 0..4 {
                headers.push(5, header(10 * round + tag));
                headers.push(2, header(100 + tag));
            }
            assert_eq!(headers.peek(5), Some(header(10 * round)));
            for tag in 0..4 {
                assert_eq!(headers.take(5), Some(header(10 * round + tag)));
            }
            assert_eq!((headers.peek(5), headers.take(5)), (None, None));
            assert_eq!(headers.take(2), Some(header(100)));
            headers.forget(2);
            assert_eq!(headers.peek(2), None);
        }
        assert_eq!((headers.peek(3), headers.take(9)), (None, None));
        assert_eq!(headers.places.len(), 8, "free places are used again");
    }
}
