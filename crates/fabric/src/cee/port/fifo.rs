//! A queue of frames that are linked in the pool.

use sluicegate_core::number::low_half;

use crate::{
    cee::{CeeFrame, Label, PRIORITIES},
    pool::{Handle, NIL, Pool},
};

/// A queue of frames in order.
#[derive(Clone, Copy)]
pub struct Fifo {
    head: Handle,
    tail: Handle,
    bytes: u32,
    /// Bytes of the first frame: kept here, so that a comparison does not read the frame.
    head_bytes: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            bytes: 0,
            head_bytes: 0,
        }
    }
}

impl Fifo {
    /// The first frame; [`NIL`] if there is none.
    #[inline(always)]
    pub fn head(&self) -> Handle {
        self.head
    }

    /// Bytes of the first frame.
    #[inline(always)]
    pub fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    /// Bytes of all its frames.
    #[inline(always)]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether there is no frame.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// A frame joins the queue as the last.
    #[inline]
    pub fn push<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle) {
        let bytes = pool[handle].bytes();
        pool.end(handle);
        match self.tail {
            NIL => (self.head, self.head_bytes) = (handle, bytes),
            last => pool.link_after(last, handle, bytes.into()),
        }
        self.tail = handle;
        // Wraps only in adapters without a bound, whose queued bytes are never read.
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    /// Takes the first frame.
    #[inline]
    pub fn pop<F: CeeFrame>(&mut self, pool: &Pool<F>) -> Option<Handle> {
        let handle = self.head;
        if handle == NIL {
            return None;
        }
        let (_, next, next_bytes) = pool.look(handle);
        self.bytes = self.bytes.wrapping_sub(self.head_bytes);
        (self.head, self.head_bytes) = (next, low_half(next_bytes));
        if next == NIL {
            self.tail = NIL;
        }
        // The next frame has waited for long and is in no cache.
        pool.fetch(next);
        Some(handle)
    }
}

/// The queues of a port, by priority.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Queues(pub(super) [Fifo; PRIORITIES]);

const _: () = assert!(size_of::<Queues>() == 128);

impl Fifo {
    /// A wrong count, for tests of the audit.
    #[cfg(test)]
    pub(super) fn miscount(&mut self, more_bytes: u32) {
        self.bytes = self.bytes.wrapping_add(more_bytes);
    }

    /// Bytes of its frames, counted one by one. Bytes of frames that take room in the buffer of
    /// their input are added to `buffered`.
    pub(super) fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        priority: usize,
        buffered: &mut [[u64; PRIORITIES]],
    ) -> u64 {
        let (mut bytes, mut handle) = (0, self.head);
        while handle != NIL {
            let label = Label::of(pool, handle);
            let length = u64::from(pool[handle].bytes());
            bytes += length;
            if label.buffered {
                buffered[label.ingress.index()][priority] += length;
            }
            handle = pool.next(handle);
        }
        bytes
    }
}
