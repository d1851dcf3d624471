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

/// Keys that are looked for one after the other; others are in a tree.
const FEW: usize = 16;

/// A source and a tag.
type Key = (u32, u32);

/// What waits, by source and tag; of one key in the order in which it came. Of most programs little
/// waits at a time, and then nothing is allocated and no tree is searched.
#[derive(Clone, Debug)]
struct Queues<T> {
    /// (key, order, value) in the order in which they came, up to [`FEW`].
    few: Vec<(Key, u64, T)>,
    /// What came while `few` was full, and since then until this is empty: so of a key the values
    /// in `few` are the older ones.
    many: BTreeMap<Key, VecDeque<(u64, T)>>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            few: Vec::new(),
            many: BTreeMap::new(),
        }
    }
}

impl<T> Queues<T> {
    #[inline]
    fn push(&mut self, key: Key, order: u64, value: T) {
        if self.few.len() < FEW && self.many.is_empty() {
            return self.few.push((key, order, value));
        }
        let queue = self.many.entry(key).or_default();
        queue.push_back((order, value));
    }

    /// The place of a key's first value in `few`.
    #[inline]
    fn place(&self, key: Key) -> Option<usize> {
        self.few.iter().position(|(own, ..)| *own == key)
    }

    /// Takes the first value of a key.
    #[inline]
    fn take(&mut self, key: Key) -> Option<T> {
        match self.place(key) {
            Some(at) => Some(self.few.remove(at).2),
            None if self.many.is_empty() => None,
            None => self.take_of_many(key),
        }
    }

    fn take_of_many(&mut self, key: Key) -> Option<T> {
        let queue = self.many.get_mut(&key)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.many.remove(&key);
        }
        first.map(|(_, value)| value)
    }

    /// When the first value of a key came.
    fn order(&self, key: Key) -> Option<u64> {
        let few = self.place(key).map(|at| self.few[at].1);
        few.or_else(|| self.many.get(&key)?.front().map(|(order, _)| *order))
    }

    /// The key, of those that fit, whose first value came first.
    fn oldest(&self, mut fits: impl FnMut(Key) -> bool) -> Option<Key> {
        let few = self.few.iter().map(|(key, order, _)| (*order, *key));
        let many = self.many.iter();
        let many = many.filter_map(|(key, queue)| Some((queue.front()?.0, *key)));
        let fitting = few.chain(many).filter(|(_, key)| fits(*key));
        fitting.min().map(|(_, key)| key)
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        let few = self.few.iter().map(|(.., value)| value);
        few.chain(self.many.values().flatten().map(|(_, value)| value))
    }
}

/// The receives of a rank that wait for messages, and the messages that wait for receives.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Operations that receive.
    posted: Queues<u32>,
    /// Those that take any source or tag: order, source, tag, operation.
    open: VecDeque<(u64, u32, u32, u32)>,
    arrived: Queues<Message>,
    order: u64,
}

fn fits(source: u32, tag: u32, message: Key) -> bool {
    (source == ANY_SOURCE || source == message.0) && (tag == ANY_TAG || tag == message.1)
}

impl Matcher {
    /// Posts a receive: the message that it takes, if that is there.
    pub fn post(&mut self, source: u32, tag: u32, operation: u32) -> Option<Message> {
        let is_open = source == ANY_SOURCE || tag == ANY_TAG;
        let taken = match is_open {
            false => self.arrived.take((source, tag)),
            true => (self.arrived.oldest(|key| fits(source, tag, key)))
                .and_then(|key| self.arrived.take(key)),
        };
        if taken.is_some() {
            return taken;
        }
        self.order += 1;
        match is_open {
            false => self.posted.push((source, tag), self.order, operation),
            true => self.open.push_back((self.order, source, tag, operation)),
        }
        None
    }

    /// A message arrives: the receive that takes it, if one waits.
    pub fn arrive(&mut self, message: Message) -> Option<u32> {
        let key = (message.source, message.tag);
        let taken = match self.open_before(key) {
            Some(at) => self.open.remove(at).map(|(.., operation)| operation),
            None => self.posted.take(key),
        };
        if taken.is_none() {
            self.order += 1;
            self.arrived.push(key, self.order, message);
        }
        taken
    }

    /// The place of the open receive that takes such a message, if it was posted before those that
    /// name its source and tag.
    #[inline]
    fn open_before(&self, key: Key) -> Option<usize> {
        if self.open.is_empty() {
            return None;
        }
        let mut open = self.open.iter();
        let at = open.position(|(_, source, tag, _)| fits(*source, *tag, key))?;
        let exact = self.posted.order(key);
        (exact.is_none_or(|exact| self.open[at].0 < exact)).then_some(at)
    }

    /// Messages that no receive has taken.
    pub fn unexpected(&self) -> impl Iterator<Item = &Message> {
        self.arrived.values()
    }
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

    /// Queues against the simplest that there is, with more and less than [`FEW`] waiting.
    #[test]
    fn of_many_that_wait_each_takes_its_own() {
        let mut matcher = Matcher::default();
        let mut waiting: Vec<Message> = Vec::new();
        let mut state = 1u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        let mut most = 0;
        for operation in 0..20_000 {
            // Messages come more often than receives for half of the time.
            let comes = draw(8) < if operation / 500 % 2 == 0 { 5 } else { 3 };
            let (source, tag) = (draw(5), draw(3));
            if comes {
                let one = message(source, tag, operation);
                assert_eq!(matcher.arrive(one), None);
                waiting.push(one);
                most = most.max(waiting.len());
                continue;
            }
            let any = (draw(4) == 0, draw(4) == 0);
            let source = if any.0 { ANY_SOURCE } else { source };
            let tag = if any.1 { ANY_TAG } else { tag };
            let at = waiting
                .iter()
                .position(|one| fits(source, tag, (one.source, one.tag)));
            let Some(at) = at else {
                continue; // a receive that waits would take what comes next
            };
            let expected = waiting.remove(at);
            assert_eq!(matcher.post(source, tag, operation), Some(expected));
        }
        assert!(most > 2 * FEW, "{most}");
        let mut left: Vec<Message> = matcher.unexpected().copied().collect();
        left.sort_unstable_by_key(|one| one.operation);
        assert_eq!(left, waiting);
    }

    /// The same of receives.
    #[test]
    fn many_receives_wait_in_their_order() {
        let mut matcher = Matcher::default();
        for operation in 0..100 {
            assert_eq!(matcher.post(operation % 40, 0, operation), None);
        }
        matcher.post(7, ANY_TAG, 100);
        for expected in [7, 47, 87, 100] {
            assert_eq!(matcher.arrive(message(7, 0, 0)), Some(expected));
        }
        assert_eq!(matcher.arrive(message(7, 0, 9)), None);
        assert_eq!(matcher.arrive(message(39, 0, 0)), Some(39));
        assert_eq!(matcher.post(7, 0, 101), Some(message(7, 0, 9)));
    }
}
