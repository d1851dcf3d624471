//! A bounded ring from one thread to another of this process.
//!
//! ```text
//!  producer ══ filled: slots, index ══▶ consumer
//!           ◀═ freed: index ═══════════
//! ```
//!
//! Slots are used again in their order. Whose a slot is follows from two indices, each of which one
//! side writes: what is written to a slot is there before the index that hands it over. Indices and
//! wake-ups are those of cables ([`crate::shm::lane`]), with their fences; here both sides belong
//! to the switch, so an index that jumps is a bug.
//!
//! A full ring takes nothing, and nothing in it is lost: [`Producer::put`] says so.

#![allow(unsafe_code)]

use std::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use crate::{
    memory::full_fence,
    shm::lane::{Reader, Shared, Writer},
};

/// The most slots of a ring.
const SLOTS_MAX: u16 = 1 << 15;

const OURS: &str = "both sides of the ring are the switch's own";

/// Where the contents of a slot are.
pub trait Slot<T> {
    /// Lets the side whose slot it is change the contents.
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R;
}

/// A slot in the memory of this process.
#[derive(Debug, Default)]
pub struct Place<T>(UnsafeCell<T>);

// SAFETY: only the side whose slot it is changes it, and the indices hand it over with release and
// acquire.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Slot<T> for Place<T> {
    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: a slot belongs to the producer until an index shows it to the consumer, and to
        // that one until the other index shows it back. Both take `&mut self`, so a side has one
        // reference at a time. The model in `ring_tests` runs the same code with a cell that looks.
        change(unsafe { &mut *self.0.get() })
    }
}

/// A word in a line of the cache of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU16);

/// A word that two threads share.
#[derive(Clone, Debug, Default)]
pub struct Word(Arc<Line>);

impl Shared for Word {
    #[inline]
    fn load(&self) -> u16 {
        self.0.0.load(Ordering::Acquire)
    }
    #[inline]
    fn store(&self, value: u16) {
        self.0.0.store(value, Ordering::Release);
    }
    #[inline]
    fn replace(&self, from: u16, to: u16) -> bool {
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.0.compare_exchange(from, to, done, seen).is_ok()
    }
    #[inline]
    fn fence(&self) {
        full_fence();
    }
}

/// The side that fills.
#[derive(Debug)]
pub struct Producer<S, W> {
    slots: Arc<[S]>,
    filled: Writer<W>,
    freed: Reader<W>,
    /// Something found no room.
    is_full: bool,
}

/// The side that empties.
#[derive(Debug)]
pub struct Consumer<S, W> {
    slots: Arc<[S]>,
    filled: Reader<W>,
    freed: Writer<W>,
}

/// The two sides of a ring of so many slots, a power of two up to 32768, whose words `word` makes.
///
/// # Panics
/// It is none.
pub fn over<T: Default, W: Shared + Clone>(
    slots: u16,
    word: impl Fn() -> W,
) -> (Producer<Place<T>, W>, Consumer<Place<T>, W>) {
    assert!(slots.is_power_of_two() && slots <= SLOTS_MAX);
    of((0..slots).map(|_| Place::default()).collect(), word)
}

fn of<S, W: Shared + Clone>(
    slots: Arc<[S]>,
    word: impl Fn() -> W,
) -> (Producer<S, W>, Consumer<S, W>) {
    let size = slots.len() as u16;
    let [filled, wants_filled, freed, wants_freed] = [word(), word(), word(), word()];
    let producer = Producer {
        slots: Arc::clone(&slots),
        filled: Writer::new(filled.clone(), wants_filled.clone(), 0),
        freed: Reader::new(freed.clone(), wants_freed.clone(), size, 0),
        is_full: false,
    };
    let consumer = Consumer {
        slots,
        filled: Reader::new(filled, wants_filled, size, 0),
        freed: Writer::new(freed, wants_freed, 0),
    };
    (producer, consumer)
}

impl<S, W: Shared> Producer<S, W> {
    /// Fills the next slot, or says that all are full. The consumer sees it after
    /// [`Producer::show`].
    #[inline]
    pub fn put<T>(&mut self, fill: impl FnOnce(&mut T)) -> bool
    where
        S: Slot<T>,
    {
        let used = || self.filled.next().wrapping_sub(self.freed.next());
        if usize::from(used()) == self.slots.len() {
            for _ in 0..self.freed.look().expect(OURS) {
                self.freed.advance();
            }
        }
        let used = self.filled.next().wrapping_sub(self.freed.next());
        self.is_full = usize::from(used) == self.slots.len();
        if self.is_full {
            return false;
        }
        let at = usize::from(self.filled.next()) % self.slots.len();
        self.slots[at].change(fill);
        self.filled.advance();
        true
    }

    /// Shows the consumer what was filled. Whether it is to be woken.
    #[inline]
    pub fn show(&mut self) -> bool {
        self.filled.show()
    }

    /// Asks for a wake-up if something found no room. Whether there is room already.
    pub fn arm(&mut self) -> bool {
        self.is_full && self.freed.arm().expect(OURS) > 0
    }

    /// Wants no wake-up.
    pub fn disarm(&mut self) {
        self.freed.disarm();
    }
}

impl<S, W: Shared> Consumer<S, W> {
    /// Empties the next slot, if one is full. The producer may fill it again after
    /// [`Consumer::show`].
    #[inline]
    pub fn take<T, R>(&mut self, empty: impl FnOnce(&mut T) -> R) -> Option<R>
    where
        S: Slot<T>,
    {
        if self.filled.known() == 0 && self.filled.look().expect(OURS) == 0 {
            return None;
        }
        let at = usize::from(self.filled.next()) % self.slots.len();
        let taken = self.slots[at].change(empty);
        self.filled.advance();
        self.freed.advance();
        Some(taken)
    }

    /// Shows the producer which slots are free. Whether it is to be woken.
    #[inline]
    pub fn show(&mut self) -> bool {
        self.freed.show()
    }

    /// Asks for a wake-up. Whether slots are full already.
    pub fn arm(&mut self) -> bool {
        self.filled.arm().expect(OURS) > 0
    }

    /// Wants no wake-up.
    pub fn disarm(&mut self) {
        self.filled.disarm();
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
