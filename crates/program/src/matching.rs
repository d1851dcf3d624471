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
    /// Its size in bytes; 0 in a run if it is only announced.
    pub bytes: u64,
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
    /// What came while `few` was full, and since then until this is empty: all of it is younger
    /// than what is in `few`.
    many: BTreeMap<Key, VecDeque<(u64, T)>>,
    /// Of `many`, once something has been looked for by source or tag alone.
    ways: Option<Box<Ways>>,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            few: Vec::new(),
            many: BTreeMap::new(),
            ways: None,
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
        if let Some(ways) = &mut self.ways {
            ways.push(key, order);
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
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
        if let Some(ways) = &mut self.ways {
            ways.taken += 1;
            if ways.are_stale() || self.many.is_empty() {
                self.ways = None;
            }
        }
        first.map(|(_, value)| value)
    }

    /// When the first value of a key came.
    fn order(&self, key: Key) -> Option<u64> {
        let few = self.place(key).map(|at| self.few[at].1);
        few.or_else(|| self.many.get(&key)?.front().map(|(order, _)| *order))
    }

    /// The key, of those that fit, whose first value came first.
    fn oldest(&mut self, (source, tag): Key) -> Option<Key> {
        let mut few = self.few.iter().map(|(key, ..)| *key);
        if let Some(key) = few.find(|key| fits(source, tag, *key)) {
            return Some(key);
        }
        if self.many.is_empty() {
            return None;
        }
        let many = &self.many;
        let ways = self.ways.get_or_insert_with(|| {
            let queues = many.iter();
            let all = queues.flat_map(|(key, queue)| queue.iter().map(|(order, _)| (*order, *key)));
            Box::new(Ways::of(all.collect()))
        });
        // Values of a key are taken in their order, so that those up to the first one are there.
        let waits = |order, key| {
            let first = many.get(&key).and_then(|queue| queue.front());
            first.is_some_and(|(first, _)| *first <= order)
        };
        ways.oldest((source, tag), waits)
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        let few = self.few.iter().map(|(.., value)| value);
        few.chain(self.many.values().flatten().map(|(_, value)| value))
    }
}

/// What waits by source alone, by tag alone, and all of it, in the order in which it came. What has
/// been taken stays until it is met, or until it is most of everything.
#[derive(Clone, Debug, Default)]
struct Ways {
    /// (order, key) by what is asked for: [`ANY_SOURCE`], [`ANY_TAG`] or both are in it.
    queues: BTreeMap<Key, VecDeque<(u64, Key)>>,
    pushed: u64,
    taken: u64,
}

impl Ways {
    fn of(mut all: Vec<(u64, Key)>) -> Self {
        all.sort_unstable();
        let mut ways = Self::default();
        all.into_iter()
            .for_each(|(order, key)| ways.push(key, order));
        ways
    }

    fn push(&mut self, key: Key, order: u64) {
        self.pushed += 1;
        for way in [(key.0, ANY_TAG), (ANY_SOURCE, key.1), (ANY_SOURCE, ANY_TAG)] {
            let queue = self.queues.entry(way).or_default();
            queue.push_back((order, key));
        }
    }

    /// More than three quarters are gone: to make it anew takes no longer than they took.
    fn are_stale(&self) -> bool {
        self.taken > self.pushed / 4 * 3 + 64
    }

    /// The key of the first one of a way that still waits.
    fn oldest(&mut self, way: Key, waits: impl Fn(u64, Key) -> bool) -> Option<Key> {
        let queue = self.queues.get_mut(&way)?;
        while let Some((order, key)) = queue.front().copied() {
            if waits(order, key) {
                return Some(key);
            }
            queue.pop_front();
        }
        self.queues.remove(&way);
        None
    }
}

/// The receives of a rank that wait for messages, and the messages that wait for receives. Each
/// match takes a time that grows with the logarithm of what waits, with wildcards too.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Operations that receive.
    posted: Queues<u32>,
    /// Those that take any source or tag, which stand in their keys.
    open: Queues<u32>,
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
        let key = match is_open {
            false => Some((source, tag)),
            true => self.arrived.oldest((source, tag)),
        };
        let taken = key.and_then(|key| self.arrived.take(key));
        if taken.is_some() {
            return taken;
        }
        self.order += 1;
        let queues = match is_open {
            false => &mut self.posted,
            true => &mut self.open,
        };
        queues.push((source, tag), self.order, operation);
        None
    }

    /// A message arrives: the receive that takes it, if one waits.
    pub fn arrive(&mut self, message: Message) -> Option<u32> {
        let key = (message.source, message.tag);
        let taken = match self.open_before(key) {
            Some(open) => self.open.take(open),
            None => self.posted.take(key),
        };
        if taken.is_none() {
            self.order += 1;
            self.arrived.push(key, self.order, message);
        }
        taken
    }

    /// The key of the open receive that takes such a message, if it was posted before those that
    /// name its source and tag.
    #[inline]
    fn open_before(&self, key: Key) -> Option<Key> {
        if self.open.is_empty() {
            return None;
        }
        let (source, tag) = key;
        let keys = [(source, ANY_TAG), (ANY_SOURCE, tag), (ANY_SOURCE, ANY_TAG)];
        let posted = keys
            .into_iter()
            .filter_map(|key| Some((self.open.order(key)?, key)));
        let (order, open) = posted.min()?;
        let exact = self.posted.order(key);
        exact.is_none_or(|exact| order < exact).then_some(open)
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
            bytes: 0,
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

    /// All that waits in one row: what the rule says, word by word.
    #[derive(Default)]
    struct Plain {
        posted: Vec<(u32, u32, u32)>,
        arrived: Vec<Message>,
    }

    impl Plain {
        fn post(&mut self, source: u32, tag: u32, operation: u32) -> Option<Message> {
            let mut arrived = self.arrived.iter();
            match arrived.position(|one| fits(source, tag, (one.source, one.tag))) {
                Some(at) => Some(self.arrived.remove(at)),
                None => {
                    self.posted.push((source, tag, operation));
                    None
                }
            }
        }

        fn arrive(&mut self, message: Message) -> Option<u32> {
            let key = (message.source, message.tag);
            let mut posted = self.posted.iter();
            match posted.position(|(source, tag, _)| fits(*source, *tag, key)) {
                Some(at) => Some(self.posted.remove(at).2),
                None => {
                    self.arrived.push(message);
                    None
                }
            }
        }
    }

    /// With few and many sources and tags, with few and many wildcards, while more messages come
    /// than receives and the other way round.
    #[test]
    fn matches_are_those_of_the_rule_word_by_word() {
        for seed in 0..40 {
            let mut state = seed * 7919 + 1;
            let mut draw = |below: u32| {
                state = u32::wrapping_mul(state, 1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % below
            };
            let (sources, tags) = (1 + draw(12), 1 + draw(12));
            let (any_source, any_tag) = (1 + draw(8), 1 + draw(8));
            let period = 20 + draw(900);
            let (mut matcher, mut plain) = (Matcher::default(), Plain::default());
            let mut most = (0, 0);
            for operation in 0..8_000 {
                let (mut source, mut tag) = (draw(sources), draw(tags));
                if draw(10) < if operation / period % 2 == 0 { 7 } else { 3 } {
                    let one = message(source, tag, operation);
                    assert_eq!(
                        matcher.arrive(one),
                        plain.arrive(one),
                        "{seed}: {operation}"
                    );
                } else {
                    source = if draw(any_source) == 0 {
                        ANY_SOURCE
                    } else {
                        source
                    };
                    tag = if draw(any_tag) == 0 { ANY_TAG } else { tag };
                    let expected = plain.post(source, tag, operation);
                    let taken = matcher.post(source, tag, operation);
                    assert_eq!(taken, expected, "{seed}: {operation}");
                }
                most.0 = most.0.max(plain.arrived.len());
                most.1 = most.1.max(plain.posted.len());
            }
            assert_eq!(matcher.unexpected().count(), plain.arrived.len());
            assert!(most.0 > 0 && most.1 > 0, "{seed}: {most:?}");
        }
    }

    /// So many that a search of all that wait would take minutes for each loop.
    #[test]
    fn time_does_not_grow_with_the_square_of_what_waits() {
        const MANY: u32 = 300_000;
        let mut matcher = Matcher::default();
        for tag in 0..MANY {
            assert_eq!(matcher.post(ANY_SOURCE, tag, tag), None);
        }
        for tag in (0..MANY).rev() {
            assert_eq!(matcher.arrive(message(3, tag, 0)), Some(tag));
        }
        for tag in 0..MANY {
            assert_eq!(matcher.arrive(message(tag % 1000, tag, tag)), None);
        }
        for tag in (1..MANY).rev().step_by(2) {
            let taken = matcher.post(ANY_SOURCE, tag, 0);
            assert_eq!(taken, Some(message(tag % 1000, tag, tag)));
        }
        for tag in (0..MANY).step_by(2) {
            let taken = matcher.post(ANY_SOURCE, ANY_TAG, 0);
            assert_eq!(taken, Some(message(tag % 1000, tag, tag)));
        }
        assert_eq!(matcher.unexpected().count(), 0);
        assert!(matcher.arrived.ways.is_none());
    }
}
