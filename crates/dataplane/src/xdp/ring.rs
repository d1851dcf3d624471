//! Rings that a socket of AF_XDP shares with the kernel: one side produces, the other consumes.
//!
//! ```text
//!  fill, transmit:        switch ── Producer ──▶ kernel
//!  receive, completion:   switch ◀── Consumer ── kernel
//! ```
//!
//! Both indices run freely, modulo 2^32; an entry is at its index modulo the ring's size.

#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    io,
    mm::{MapFlags, ProtFlags, mmap, munmap},
    net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset},
};

/// What the kernel puts into rings.
pub trait Entry: Copy {}

impl Entry for u64 {}
impl Entry for XdpDesc {}

/// A ring in the memory of a socket.
#[derive(Debug)]
struct Mapped<T> {
    start: NonNull<u8>,
    bytes: usize,
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    size: u32,
    kind: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and is not bound to a thread.
unsafe impl<T: Entry> Send for Mapped<T> {}

impl<T: Entry> Mapped<T> {
    /// Maps the ring of `size` entries, a power of two, that a socket has at `page`.
    fn new(socket: BorrowedFd<'_>, page: u64, at: XdpRingOffset, size: u32) -> io::Result<Self> {
        let end = |offset: u64, bytes: usize| (offset as usize).checked_add(bytes);
        let words = [Some(at.producer), Some(at.consumer), at.flags];
        let words = words.into_iter().flatten().map(|offset| end(offset, 4));
        let entries = end(at.desc, size as usize * size_of::<T>());
        let bytes = words
            .chain([entries])
            .try_fold(0, |most, end| Some(most.max(end?)));
        let bytes = bytes
            .filter(|_| size.is_power_of_two())
            .ok_or(io::Errno::INVAL)?;
        // SAFETY: a new mapping at an address that the kernel chooses changes no other one.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(io::Errno::NOMEM)?,
            bytes,
            producer: at.producer as usize,
            consumer: at.consumer as usize,
            flags: at.flags.map(|offset| offset as usize),
            entries: at.desc as usize,
            size,
            kind: PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `new` has mapped so many bytes behind each offset of a word, which the kernel
        // aligns, and the mapping lives as long as `self`. The kernel accesses it atomically, too.
        unsafe { &*self.start.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: the slot is below the size, and `new` has mapped so many entries.
        unsafe { self.start.as_ptr().add(self.entries).cast::<T>().add(slot) }
    }

    fn needs_wake(&self) -> bool {
        let flags = self
            .flags
            .map(|offset| self.word(offset).load(Ordering::Relaxed));
        flags.is_some_and(|flags| flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A ring into which the switch writes.
#[derive(Debug)]
pub struct Producer<T: Entry> {
    ring: Mapped<T>,
    /// The next entry to write.
    next: u32,
}

impl<T: Entry> Producer<T> {
    /// Of a socket, where it was left.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        at: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Mapped::new(socket, page, at, size)?;
        let next = ring.word(at.producer as usize).load(Ordering::Acquire);
        Ok(Self { ring, next })
    }

    /// Entries that the kernel has not taken.
    pub fn used(&self) -> u32 {
        let taken = self.ring.word(self.ring.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(taken)
    }

    /// Writes an entry, which the kernel sees after [`Producer::show`]; false if there is no room.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.used() >= self.ring.size {
            return false;
        }
        // SAFETY: the kernel reads this entry only when it has been shown, and has taken what was
        // there before.
        unsafe { ptr::write_volatile(self.ring.entry(self.next), entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    #[inline]
    pub fn show(&self) {
        let index = self.ring.word(self.ring.producer);
        index.store(self.next, Ordering::Release);
    }

    /// Whether the kernel is to be called to look.
    #[inline]
    pub fn needs_wake(&self) -> bool {
        self.ring.needs_wake()
    }
}

/// A ring from which the switch reads.
#[derive(Debug)]
pub struct Consumer<T: Entry> {
    ring: Mapped<T>,
    /// The next entry to read.
    next: u32,
    /// The kernel's index, as it was read last.
    seen: u32,
}

impl<T: Entry> Consumer<T> {
    /// Of a socket, where it was left.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        at: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Mapped::new(socket, page, at, size)?;
        let next = ring.word(at.consumer as usize).load(Ordering::Acquire);
        Ok(Self {
            ring,
            next,
            seen: next,
        })
    }

    /// Whether there is an entry.
    #[inline]
    pub fn has_more(&mut self) -> bool {
        if self.seen == self.next {
            let index = self.ring.word(self.ring.producer);
            self.seen = index.load(Ordering::Acquire);
        }
        self.seen != self.next
    }

    /// The next entry, whose place the kernel may use again.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if !self.has_more() {
            return None;
        }
        // SAFETY: the kernel has shown this entry, and writes another one there only when the
        // index below is beyond it. Any bytes are a value.
        let entry = unsafe { ptr::read_volatile(self.ring.entry(self.next)) };
        self.next = self.next.wrapping_add(1);
        let index = self.ring.word(self.ring.consumer);
        index.store(self.next, Ordering::Release);
        Some(entry)
    }
}
