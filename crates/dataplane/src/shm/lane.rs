//! An index that one process writes and another reads, and waking the reader.
//!
//! ```text
//!  writer: entry … entry, index (release), fence, asked? ── yes ──▶ kick
//!  reader: asked = 1, fence, index (acquire): nothing new? ── yes ──▶ sleep
//! ```
//!
//! Each side writes one word and then reads the other's. The fence between keeps the read behind
//! the write, so at least one of them sees what the other wrote: a reader that goes to sleep is
//! either kicked or sees the entries itself. The code is generic over the words, so that loom can
//! check it (`tests`).

use crate::ring::Broken;

/// A word that both processes may write.
pub trait Shared {
    /// Reads it (acquire).
    fn load(&self) -> u16;
    /// Writes it (release).
    fn store(&self, value: u16);
    /// Replaces `from`, if that is its value (acquire and release); else writes nothing.
    fn replace(&self, from: u16, to: u16) -> bool;
    /// A full barrier: what is written before it is visible before what follows is read.
    fn fence(&self);
}

/// The reader sleeps, and asks to be kicked.
const ASKED: u16 = 1;
/// The reader looks by itself.
const QUIET: u16 = 0;

/// The side that writes the index.
#[derive(Debug)]
pub struct Writer<W> {
    index: W,
    asked: W,
    next: u16,
    shown: u16,
}

impl<W: Shared> Writer<W> {
    /// Goes on at an index, up to which the reader has been shown everything.
    pub fn new(index: W, asked: W, next: u16) -> Self {
        Self {
            index,
            asked,
            next,
            shown: next,
        }
    }

    /// The index of the next entry to write.
    #[inline]
    pub fn next(&self) -> u16 {
        self.next
    }

    /// An entry has been written.
    #[inline]
    pub fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the reader all entries so far. Whether it is to be kicked.
    #[inline]
    pub fn show(&mut self) -> bool {
        if self.next == self.shown {
            return false;
        }
        self.shown = self.next;
        // Release: the entries and their buffers are there before the index says so.
        self.index.store(self.next);
        // The index is there before the question is looked for: see the module.
        self.asked.fence();
        // Who asked once is kicked once, so kicks can be counted.
        self.asked.load() == ASKED && self.asked.replace(ASKED, QUIET)
    }
}

/// The side that reads the index.
#[derive(Debug)]
pub struct Reader<W> {
    index: W,
    asks: W,
    /// The most entries that can be there.
    size: u16,
    next: u16,
    known: u16,
    is_armed: bool,
}

impl<W: Shared> Reader<W> {
    /// Goes on at an index; at most `size` entries can be there.
    pub fn new(index: W, asks: W, size: u16, next: u16) -> Self {
        Self {
            index,
            asks,
            size,
            next,
            known: next,
            is_armed: false,
        }
    }

    /// The index of the next entry to read.
    #[inline]
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Entries that are known to be there.
    #[inline]
    pub fn known(&self) -> u16 {
        self.known.wrapping_sub(self.next)
    }

    /// Looks how many entries are there.
    ///
    /// # Errors
    /// The writer's index goes back, or is ahead by more than can be there.
    #[inline]
    pub fn look(&mut self) -> Result<u16, Broken> {
        // Acquire: entries and buffers are read after the index that covers them.
        let index = self.index.load();
        let (ahead, before) = (index.wrapping_sub(self.next), self.known());
        if ahead > self.size || ahead < before {
            return Err(Broken("an index jumps"));
        }
        self.known = index;
        Ok(ahead)
    }

    /// The next entry has been read.
    ///
    /// # Panics
    /// None is known.
    #[inline]
    pub fn advance(&mut self) {
        assert_ne!(self.next, self.known);
        self.next = self.next.wrapping_add(1);
    }

    /// Asks for a kick before this side sleeps. How many entries are there already: with any, it
    /// must not sleep.
    ///
    /// # Errors
    /// As [`Reader::look`].
    pub fn arm(&mut self) -> Result<u16, Broken> {
        self.asks.store(ASKED);
        self.is_armed = true;
        // The question is there before the index is read: see the module.
        self.asks.fence();
        self.look()
    }

    /// This side is awake, and wants no kick. Whether it had asked, and none will come.
    #[inline]
    pub fn disarm(&mut self) -> bool {
        std::mem::take(&mut self.is_armed) && self.asks.replace(ASKED, QUIET)
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
pub(crate) mod tests;
