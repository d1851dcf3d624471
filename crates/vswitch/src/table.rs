//! Bounded tables, by connection.
//!
//! ```text
//!  hash(key) ──▶ index: open addressing ──▶ entries: used ones and a list of free ones
//!                                           in the order in which they were last touched
//! ```
//!
//! A table grows up to `most` entries and never shrinks. Once it has held as many entries as are
//! ever there at a time, it allocates nothing. Entries stay in their places, and iteration follows
//! the order of places.

use std::mem::size_of;

use sluicegate_core::{
    abi::{BlackholeKey, FlowKey, HashKey},
    hash::flow_hash,
    life::Opener,
    number::narrow,
};

/// The key of a connection.
pub trait Connection: Copy + Eq {
    /// A hash of 32 bits, of which the high ones are used first. A tenant that chooses connections
    /// must not know the key.
    fn hash(&self, key: &HashKey) -> u32;

    /// Places that a table remembers for [`Table::find_again`].
    const RECENT: usize = 0;

    /// Which of them is for this key: any number. It need not be hard to foresee, since a tenant
    /// whose connections share one only costs them a full search.
    fn recent(&self) -> usize {
        0
    }
}

impl Connection for FlowKey {
    const RECENT: usize = 256;

    fn hash(&self, key: &HashKey) -> u32 {
        flow_hash(self, key)
    }

    #[inline]
    fn recent(&self) -> usize {
        let ports = u32::from(self.local_port) << 16 | u32::from(self.remote_port);
        let mixed = (ports ^ self.ifindex).wrapping_mul(0x9e37_79b1);
        (mixed >> 24) as usize
    }
}

/// A number that its owner gives: neighbours end far apart (Knuth, TAOCP 3, 6.4).
impl Connection for u32 {
    #[inline]
    fn hash(&self, key: &HashKey) -> u32 {
        (u64::from(self ^ key.word[0]).wrapping_mul(key.spread) >> 32) as u32
    }
}

/// A place for one of an interface's peers.
impl Connection for BlackholeKey {
    fn hash(&self, key: &HashKey) -> u32 {
        (self.ifindex.wrapping_shl(8) ^ self.slot).hash(key)
    }
}

/// A half-open connection.
impl<K: Connection> Connection for (K, Opener) {
    fn hash(&self, key: &HashKey) -> u32 {
        let (connection, opener) = self;
        (connection.hash(key) ^ key.word[11]).wrapping_mul(2 * *opener as u32 + 1)
    }
}

/// No place.
const NONE: u32 = u32::MAX;
/// Buckets of the smallest index, a power of two.
const BUCKETS_MIN: usize = 16;

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    hash: u32,
    at: u32,
}

const EMPTY: Bucket = Bucket { hash: 0, at: NONE };

#[derive(Clone, Copy, Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    /// Neighbours in the order of touch, `older` the next free one as well.
    newer: u32,
    older: u32,
    used: bool,
}

/// A bounded map from keys to values.
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    most: usize,
    hash_key: HashKey,
    index: Vec<Bucket>,
    entries: Vec<Entry<K, V>>,
    used: usize,
    free: u32,
    newest: u32,
    oldest: u32,
    /// By [`Connection::recent`], where such a key was found last.
    recent: Vec<u32>,
}

impl<K: Connection, V: Copy> Table<K, V> {
    /// An empty one for at most so many entries.
    pub fn new(most: usize, hash_key: HashKey) -> Self {
        Self {
            most: most.min(NONE as usize),
            hash_key,
            index: Vec::new(),
            entries: Vec::new(),
            used: 0,
            free: NONE,
            newest: NONE,
            oldest: NONE,
            recent: vec![NONE; K::RECENT],
        }
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Most entries.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Places of entries, used and free: each is below this.
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    /// Memory that it has allocated.
    pub fn bytes(&self) -> usize {
        self.index.capacity() * size_of::<Bucket>()
            + self.entries.capacity() * size_of::<Entry<K, V>>()
            + self.recent.capacity() * size_of::<u32>()
    }

    fn home(&self, hash: u32) -> usize {
        // The high bits, as many as tell buckets apart.
        ((u64::from(hash) * self.index.len() as u64) >> 32) as usize
    }

    fn bucket_of(&self, key: &K) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let (hash, mask) = (key.hash(&self.hash_key), self.index.len() - 1);
        let mut at = self.home(hash);
        loop {
            let bucket = self.index[at];
            if bucket.at == NONE {
                return None;
            }
            if bucket.hash == hash && self.entries[bucket.at as usize].key == *key {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// The place of the entry with this key.
    #[inline]
    pub fn find(&self, key: &K) -> Option<usize> {
        Some(self.index[self.bucket_of(key)?].at as usize)
    }

    /// As [`Table::find`], and quick for a key that was found a short time before.
    #[inline]
    pub fn find_again(&mut self, key: &K) -> Option<usize> {
        let at = key.recent() % K::RECENT.max(1);
        let known = self.recent.get(at).map_or(usize::MAX, |&at| at as usize);
        let entry = self.entries.get(known);
        if entry.is_some_and(|entry| entry.used && entry.key == *key) {
            return Some(known);
        }
        let place = self.find(key)?;
        if let Some(known) = self.recent.get_mut(at) {
            *known = narrow::<u32>(place);
        }
        Some(place)
    }

    /// The key and the value at a place, if it is used.
    pub fn at(&self, place: usize) -> Option<(&K, &V)> {
        let entry = self.entries.get(place).filter(|entry| entry.used)?;
        Some((&entry.key, &entry.value))
    }

    /// The value at a place that was found.
    #[inline]
    pub fn value(&mut self, place: usize) -> &mut V {
        &mut self.entries[place].value
    }

    /// The value with this key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.find(key).map(|place| &self.entries[place].value)
    }

    /// The value with this key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(key)?;
        Some(self.value(place))
    }

    /// Used entries in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let used = self.entries.iter().filter(|entry| entry.used);
        used.map(|entry| (&entry.key, &entry.value))
    }

    /// Keeps a value, the last touched, in place of one with this key.
    ///
    /// # Errors
    /// There is no room.
    pub fn insert(&mut self, key: K, value: V) -> Result<(), Full> {
        if let Some(place) = self.find(&key) {
            self.entries[place].value = value;
            self.unlink(place);
            self.link(place);
            return Ok(());
        }
        if self.used == self.most {
            return Err(Full);
        }
        let entry = Entry {
            key,
            value,
            newer: NONE,
            older: NONE,
            used: true,
        };
        let place = if self.free == NONE {
            self.entries.push(entry);
            self.entries.len() - 1
        } else {
            let place = self.free as usize;
            self.free = self.entries[place].older;
            self.entries[place] = entry;
            place
        };
        self.used += 1;
        self.link(place);
        if self.used * 2 > self.index.len() {
            self.rebuild();
        } else {
            self.enter(place);
        }
        Ok(())
    }

    /// The same where room can be made: what was not touched for longest goes.
    pub fn keep(&mut self, key: K, value: V) {
        if self.used == self.most && self.find(&key).is_none() && self.oldest != NONE {
            self.remove_at(self.oldest as usize);
        }
        // Only a table for nothing refuses now.
        let _ = self.insert(key, value);
    }

    /// Forgets what has this key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let bucket = self.bucket_of(key)?;
        let place = self.index[bucket].at as usize;
        self.close(bucket);
        self.unlink(place);
        let entry = &mut self.entries[place];
        entry.used = false;
        entry.older = self.free;
        self.free = narrow::<u32>(place);
        self.used -= 1;
        Some(entry.value)
    }

    /// Forgets what is at a place.
    pub fn remove_at(&mut self, place: usize) -> Option<V> {
        let key = *self.at(place)?.0;
        self.remove(&key)
    }

    /// Enters an entry whose key is not in the index.
    fn enter(&mut self, place: usize) {
        let hash = self.entries[place].key.hash(&self.hash_key);
        let mask = self.index.len() - 1;
        let mut at = self.home(hash);
        while self.index[at].at != NONE {
            at = (at + 1) & mask;
        }
        self.index[at] = Bucket {
            hash,
            at: narrow::<u32>(place),
        };
    }

    /// A larger index.
    fn rebuild(&mut self) {
        let buckets = (self.index.len() * 2).max(BUCKETS_MIN);
        self.index.clear();
        self.index.resize(buckets, EMPTY);
        for place in 0..self.entries.len() {
            if self.entries[place].used {
                self.enter(place);
            }
        }
    }

    /// Empties a bucket; those behind it that would no longer be found move up.
    fn close(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let bucket = self.index[at];
            if bucket.at == NONE {
                break;
            }
            let from_home = at.wrapping_sub(self.home(bucket.hash)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.index[hole] = bucket;
                hole = at;
            }
        }
        self.index[hole] = EMPTY;
    }

    /// Makes an entry the last touched.
    fn link(&mut self, place: usize) {
        self.entries[place].older = self.newest;
        self.entries[place].newer = NONE;
        match self.newest {
            NONE => self.oldest = narrow::<u32>(place),
            newest => self.entries[newest as usize].newer = narrow::<u32>(place),
        }
        self.newest = narrow::<u32>(place);
    }

    fn unlink(&mut self, place: usize) {
        let Entry { newer, older, .. } = self.entries[place];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 24;

    /// Few homes, so that entries meet; not all alike.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Crowded(u32);

    impl Connection for Crowded {
        fn hash(&self, _: &HashKey) -> u32 {
            ((self.0 % 5) << 29) | (self.0 % 3)
        }

        const RECENT: usize = 4;

        fn recent(&self) -> usize {
            self.0 as usize
        }
    }

    proptest! {
        /// Against a map and a queue: what is found, what is evicted, what is gone through.
        #[test]
        fn it_is_a_bounded_map(steps in prop::collection::vec((0..4_u8, 0..40_u32), 0..400)) {
            let mut table = Table::new(MOST, HashKey::default());
            let mut model = BTreeMap::new();
            let mut touched = VecDeque::new();
            for (number, (what, key)) in steps.into_iter().enumerate() {
                let key = Crowded(key);
                let known = model.contains_key(&key);
                match what {
                    0 => {
                        let kept = table.insert(key, number);
                        prop_assert_eq!(kept.is_err(), !known && model.len() == MOST);
                        if kept.is_ok() {
                            model.insert(key, number);
                            touched.retain(|other| *other != key);
                            touched.push_back(key);
                        }
                    }
                    1 => {
                        table.keep(key, number);
                        if !known && model.len() == MOST {
                            model.remove(&touched.pop_front().unwrap());
                        }
                        model.insert(key, number);
                        touched.retain(|other| *other != key);
                        touched.push_back(key);
                    }
                    2 => {
                        prop_assert_eq!(table.remove(&key), model.remove(&key));
                        touched.retain(|other| *other != key);
                    }
                    _ => {
                        prop_assert_eq!(table.get(&key), model.get(&key));
                        let place = table.find_again(&key);
                        prop_assert_eq!(place, table.find(&key));
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            let mut all: Vec<_> = table.iter().map(|(key, value)| (*key, *value)).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(model.iter().map(|(key, value)| (*key, *value))));
            for key in (0..40).map(Crowded) {
                prop_assert_eq!(table.get(&key), model.get(&key));
            }
            prop_assert!(table.places() <= MOST);
        }
    }

    #[test]
    fn a_table_for_nothing_keeps_nothing() {
        let mut table = Table::new(0, HashKey::default());
        table.keep(1_u32, 1);
        assert_eq!(table.insert(2, 2), Err(Full));
        assert!(table.is_empty() && table.get(&1).is_none());
    }

    #[test]
    fn neighbours_spread() {
        let mut table = Table::new(1 << 16, HashKey::FIXED);
        for key in 0..50_000_u32 {
            table.insert(key, ()).unwrap();
        }
        let away = |(at, bucket): (usize, &Bucket)| {
            at.wrapping_sub(table.home(bucket.hash)) & (table.index.len() - 1)
        };
        let used = table.index.iter().enumerate();
        let farthest = used.filter(|(_, bucket)| bucket.at != NONE).map(away).max();
        assert!(farthest < Some(16), "{farthest:?}");
    }
}
