//! Which message a receive takes: the rule of MPI. Messages of one source match in the order in
//! which they were sent, receives in the order in which they were posted.

use std::collections::{BTreeMap, VecDeque};

use crate::{ANY_SOURCE, ANY_TAG};

/// A message that has arrived, or the announcement of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// The operation that sent it.
    pub operation: u32,
    /// Its data wait at the sender until the receive is posted.
    pub waits: bool,
}

/// The receives of a rank that wait for messages, and the messages that wait for receives.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// By source and tag: (order of posting, operation).
    posted: BTreeMap<(u32, u32), VecDeque<(u64, u32)>>,
    /// Those that take any source or tag: order, source, tag, operation.
    open: VecDeque<(u64, u32, u32, u32)>,
    /// By source and tag: (order of arrival, message).
    arrived: BTreeMap<(u32, u32), VecDeque<(u64, Message)>>,
    order: u64,
}

fn fits(source: u32, tag: u32, message: (u32, u32)) -> bool {
    (source == ANY_SOURCE || source == message.0) && (tag == ANY_TAG || tag == message.1)
}

impl Matcher {
    /// Posts a receive: the message that it takes, if that is there.
    pub fn post(&mut self, source: u32, tag: u32, operation: u32) -> Option<Message> {
        let key = match source == ANY_SOURCE || tag == ANY_TAG {
            false => Some((source, tag)).filter(|key| self.arrived.contains_key(key)),
            true => self.oldest(source, tag),
        };
        if let Some(key) = key {
            return take(&mut self.arrived, key);
        }
        self.order += 1;
        if source == ANY_SOURCE || tag == ANY_TAG {
            self.open.push_back((self.order, source, tag, operation));
        } else {
            let waiting = self.posted.entry((source, tag)).or_default();
            waiting.push_back((self.order, operation));
        }
        None
    }

    /// The source and tag of the message that arrived first of those that fit.
    fn oldest(&self, source: u32, tag: u32) -> Option<(u32, u32)> {
        let fitting = self
            .arrived
            .iter()
            .filter(|(key, _)| fits(source, tag, **key));
        let first = fitting.filter_map(|(key, messages)| Some((messages.front()?.0, *key)));
        first.min().map(|(_, key)| key)
    }

    /// A message arrives: the receive that takes it, if one waits.
    pub fn arrive(&mut self, message: Message) -> Option<u32> {
        let key = (message.source, message.tag);
        let exact = self.posted.get(&key).and_then(VecDeque::front);
        let exact = exact.map(|(order, _)| *order);
        let open = self.open.iter();
        let open = open.enumerate().find(|(_, (_, s, t, _))| fits(*s, *t, key));
        let open = open.map(|(at, (order, ..))| (*order, at));
        match (exact, open) {
            (exact, Some((order, at))) if exact.is_none_or(|exact| order < exact) => {
                self.open.remove(at).map(|(.., operation)| operation)
            }
            (Some(_), _) => take(&mut self.posted, key),
            (None, _) => {
                self.order += 1;
                let waiting = self.arrived.entry(key).or_default();
                waiting.push_back((self.order, message));
                None
            }
        }
    }

    /// Messages that no receive has taken.
    pub fn unexpected(&self) -> impl Iterator<Item = &Message> {
        let messages = self.arrived.values().flatten();
        messages.map(|(_, message)| message)
    }
}

/// The first of a queue, which goes when it is empty.
fn take<T>(queues: &mut BTreeMap<(u32, u32), VecDeque<(u64, T)>>, key: (u32, u32)) -> Option<T> {
    let queue = queues.get_mut(&key)?;
    let first = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&key);
    }
    first.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: u32, tag: u32, operation: u32) -> Message {
        Message {
            source,
            tag,
            operation,
            waits: false,
        }
    }

    #[test]
    fn messages_of_a_source_match_in_order() {
        let mut matcher = Matcher::default();
        assert_eq!(matcher.arrive(message(1, 7, 10)), None);
        assert_eq!(matcher.arrive(message(1, 7, 11)), None);
        assert_eq!(matcher.post(1, 7, 0), Some(message(1, 7, 10)));
        assert_eq!(matcher.post(1, 8, 1), None);
        assert_eq!(matcher.post(1, 7, 2), Some(message(1, 7, 11)));
        assert_eq!(matcher.arrive(message(1, 8, 12)), Some(1));
    }

    #[test]
    fn an_open_receive_takes_what_came_first() {
        let mut matcher = Matcher::default();
        matcher.arrive(message(3, 1, 0));
        matcher.arrive(message(2, 1, 1));
        assert_eq!(matcher.post(ANY_SOURCE, 1, 0), Some(message(3, 1, 0)));
        assert_eq!(matcher.post(2, ANY_TAG, 1), Some(message(2, 1, 1)));
        assert_eq!(matcher.unexpected().count(), 0);
    }

    #[test]
    fn the_receive_that_was_posted_first_takes_the_message() {
        let mut matcher = Matcher::default();
        matcher.post(ANY_SOURCE, 1, 0);
        matcher.post(2, 1, 1);
        assert_eq!(matcher.arrive(message(2, 1, 5)), Some(0));
        assert_eq!(matcher.arrive(message(2, 1, 6)), Some(1));
        matcher.post(2, 1, 2);
        matcher.post(ANY_SOURCE, ANY_TAG, 3);
        assert_eq!(matcher.arrive(message(2, 1, 7)), Some(2));
    }
}
