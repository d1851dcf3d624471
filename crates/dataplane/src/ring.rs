//! A split virtqueue, seen from the device (Virtio 1.2, 2.7).
//!
//! ```text
//!  driver ── available ──▶ take() ── chain() ──▶ pieces of its memory
//!  driver ◀── used ──────── publish() ◀── complete()
//! ```
//!
//! Chains may be completed in any order. Completed chains become visible to the driver with
//! [`Ring::publish`], all at once. The driver may write anything into the ring at any time: each
//! value is read once and checked, and a ring that breaks the rules gives a [`Broken`].

use crate::memory::{Memory, Piece, Refused, Span, Word, full_fence};

/// The longest ring (Virtio 1.2, 2.7).
pub const SIZE_MAX: u32 = 32768;

/// The longest chain that is taken. Linux sends at most 17 fragments and their header.
const CHAIN_MAX: usize = 256;

/// Chains that are read ahead at a time; a power of two.
pub const AHEAD_MAX: u16 = 32;

const DESCRIPTOR: u32 = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Of the flags of both rings: no notification is wanted.
const NO_NOTIFY: u16 = 1;

/// The rule that a driver broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// The addresses of a ring, in the process of the frontend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptors.
    pub descriptors: u64,
    /// The ring of available chains.
    pub available: u64,
    /// The ring of used chains.
    pub used: u64,
}

/// A descriptor, as it was read.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn parse(bytes: &[u8; DESCRIPTOR as usize]) -> Self {
        let all = u128::from_le_bytes(*bytes);
        Self {
            address: all as u64,
            len: (all >> 64) as u32,
            flags: (all >> 96) as u16,
            next: (all >> 112) as u16,
        }
    }
}

/// A chain that was read ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Its head.
    pub head: u16,
    /// Its only piece. If that is empty, [`Ring::chain`] says what it is.
    pub piece: Piece,
}

/// A ring that is in use.
#[derive(Debug)]
pub struct Ring {
    size: u16,
    descriptors: Piece,
    available: Piece,
    used: Piece,
    /// The same, for single entries.
    table: Span,
    heads: Span,
    completed: Span,
    available_flags: Word,
    available_index: Word,
    used_event: Word,
    used_flags: Word,
    used_index: Word,
    available_event: Word,
    event_index: bool,
    /// The next available entry to read.
    next_available: u16,
    /// The driver's index as it was read last.
    seen_available: u16,
    /// The next used entry to write.
    next_used: u16,
    /// The index that the driver has been shown.
    shown_used: u16,
    /// Chains that were read ahead, the first `ahead_count`; those before `ahead_at` have been
    /// taken.
    ahead: [Seen; AHEAD_MAX as usize],
    ahead_count: u16,
    ahead_at: u16,
}

impl Ring {
    /// A ring of `size` entries in this memory, from the indices `base` on. `event_index` says
    /// whether `VIRTIO_F_EVENT_IDX` was negotiated.
    ///
    /// # Errors
    /// A size that is no power of two or above [`SIZE_MAX`]; addresses outside of the memory or
    /// not aligned.
    pub fn new(
        memory: &Memory,
        size: u32,
        at: Addresses,
        base: u16,
        event_index: bool,
    ) -> Result<Self, Refused> {
        if !size.is_power_of_two() || size > SIZE_MAX {
            return Err(Refused(format!("a ring cannot have {size} entries")));
        }
        let find = |what: &str, address: u64, bytes: u32| {
            let reason = || format!("the {what} at {address:#x} are not in the guest's memory");
            memory.user(address, bytes).ok_or_else(|| Refused(reason()))
        };
        let descriptors = find("descriptors", at.descriptors, size * DESCRIPTOR)?;
        let available = find("available entries", at.available, 6 + 2 * size)?;
        let used = find("used entries", at.used, 6 + 8 * size)?;
        let word = |piece: Piece, at: u32| memory.word(part(piece, at, 2));
        let used_index = word(used, 2)?;
        let next_used = used_index.load();
        Ok(Self {
            size: size as u16,
            descriptors,
            available,
            used,
            table: memory.span(descriptors),
            heads: memory.span(available),
            completed: memory.span(used),
            available_flags: word(available, 0)?,
            available_index: word(available, 2)?,
            used_event: word(available, 4 + 2 * size)?,
            used_flags: word(used, 0)?,
            used_index,
            available_event: word(used, 4 + 8 * size)?,
            event_index,
            next_available: base,
            seen_available: base,
            next_used,
            shown_used: next_used,
            ahead: [Seen::default(); AHEAD_MAX as usize],
            ahead_count: 0,
            ahead_at: 0,
        })
    }

    /// Where a ring is: the places of its parts in the files of this memory.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn places(&self, memory: &Memory) -> Result<[[u64; 3]; 3], Refused> {
        let place = |piece| memory.place(piece);
        Ok([
            place(self.descriptors)?,
            place(self.available)?,
            place(self.used)?,
        ])
    }

    /// Goes on where a predecessor had decided to: `used` is the index that the driver was to be
    /// shown, behind entries that are written already.
    pub fn resume(&mut self, used: u16) {
        self.used_index.store(used);
        (self.next_used, self.shown_used) = (used, used);
    }

    /// The next used entry to write.
    #[inline]
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// The used index that the driver has been shown.
    #[inline]
    pub fn shown(&self) -> u16 {
        self.shown_used
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The next available entry to read: where a successor goes on.
    pub fn base(&self) -> u16 {
        self.next_available
    }

    /// Chains that are available now.
    ///
    /// # Errors
    /// The driver's index is ahead by more than the ring holds.
    #[inline]
    pub fn available(&mut self) -> Result<u16, Broken> {
        let known = self.seen_available.wrapping_sub(self.next_available);
        if known > 0 {
            return Ok(known);
        }
        self.seen_available = self.available_index.load();
        let count = self.seen_available.wrapping_sub(self.next_available);
        if count > self.size {
            self.seen_available = self.next_available;
            return Err(Broken("its index jumps by more than the ring holds"));
        }
        Ok(count)
    }

    /// The head of the chain that is `ahead` of the next one. The caller has seen that so many are
    /// [`Ring::available`].
    ///
    /// # Errors
    /// A head that is no entry of the ring.
    #[inline]
    pub fn head(&self, ahead: u16) -> Result<u16, Broken> {
        let slot = self.next_available.wrapping_add(ahead) & (self.size - 1);
        let head = u16::from_le_bytes(self.heads.load(4 + 2 * u32::from(slot)));
        if head >= self.size {
            return Err(Broken("a chain begins beyond the ring"));
        }
        Ok(head)
    }

    /// Chains that are known to be available, without another look.
    #[inline]
    pub fn known(&self) -> u16 {
        self.seen_available.wrapping_sub(self.next_available)
    }

    /// Looks again for available chains and returns how many there are.
    ///
    /// # Errors
    /// As [`Ring::available`], or an index that goes back: chains may have been read ahead.
    pub fn look(&mut self) -> Result<u16, Broken> {
        let index = self.available_index.load();
        let count = index.wrapping_sub(self.next_available);
        if count > self.size {
            return Err(Broken("its index jumps by more than the ring holds"));
        }
        if count < self.known() {
            return Err(Broken("its index goes back"));
        }
        self.seen_available = index;
        Ok(count)
    }

    /// Reads chains ahead, at most [`AHEAD_MAX`], and starts to fetch their buffers: so the frames
    /// of a burst do not wait for the memory of another CPU one after the other. `writable` says
    /// which kind of chain this ring has.
    ///
    /// # Errors
    /// As [`Ring::available`].
    #[inline]
    pub fn fetch(&mut self, memory: &Memory, writable: bool) -> Result<(), Broken> {
        if self.ahead_at < self.ahead_count {
            return Ok(());
        }
        self.fetch_more(memory, writable)
    }

    #[inline(never)]
    fn fetch_more(&mut self, memory: &Memory, writable: bool) -> Result<(), Broken> {
        (self.ahead_count, self.ahead_at) = (0, 0);
        let count = self.look()?.min(AHEAD_MAX);
        for ahead in 0..count {
            // The error is returned when this chain is taken.
            let Ok(head) = self.head(ahead) else { break };
            self.table.prefetch(u32::from(head) * DESCRIPTOR);
            self.ahead[usize::from(ahead % AHEAD_MAX)].head = head;
            self.ahead_count = ahead + 1;
        }
        let kind = if writable { WRITE } else { 0 };
        for seen in self.ahead.iter_mut().take(usize::from(self.ahead_count)) {
            let bytes = self.table.load(u32::from(seen.head) * DESCRIPTOR);
            let descriptor = Descriptor::parse(&bytes);
            seen.piece = Piece::default();
            if descriptor.flags & (NEXT | WRITE | INDIRECT) == kind && descriptor.len > 0 {
                if let Some(piece) = memory.guest(descriptor.address, descriptor.len) {
                    memory.prefetch(piece, writable);
                    seen.piece = piece;
                }
            }
        }
        Ok(())
    }

    /// The next chain, if it was read ahead.
    #[inline]
    pub fn seen(&self) -> Option<Seen> {
        let seen = self.ahead[usize::from(self.ahead_at % AHEAD_MAX)];
        (self.ahead_at < self.ahead_count).then_some(seen)
    }

    /// Takes so many chains, at most those that are [`Ring::known`].
    #[inline]
    pub fn advance(&mut self, chains: u16) {
        debug_assert!(chains <= self.known());
        self.next_available = self.next_available.wrapping_add(chains);
        self.ahead_at = self.ahead_at.saturating_add(chains);
    }

    /// Adds the pieces of a chain to `pieces`, and returns how many descriptors were read.
    /// `writable` says which kind of chain this ring has.
    ///
    /// # Errors
    /// A loop, a piece outside of the guest's memory, one of the other kind, an indirect table that
    /// is malformed.
    pub fn chain(
        &self,
        memory: &Memory,
        head: u16,
        writable: bool,
        pieces: &mut Vec<Piece>,
    ) -> Result<usize, Broken> {
        let (mut table, mut entries) = (self.descriptors, u32::from(self.size));
        let (mut at, mut indirect) = (head, false);
        for read in 1..=CHAIN_MAX {
            if u32::from(at) >= entries {
                return Err(Broken("a chain goes on beyond its table"));
            }
            let entry = part(table, u32::from(at) * DESCRIPTOR, DESCRIPTOR);
            let descriptor = Descriptor::parse(&memory.load(entry));
            if descriptor.flags & INDIRECT != 0 {
                let whole = descriptor.len % DESCRIPTOR == 0 && descriptor.len > 0;
                if indirect || !whole || descriptor.flags & NEXT != 0 {
                    return Err(Broken("an indirect table is malformed"));
                }
                table = memory
                    .guest(descriptor.address, descriptor.len)
                    .ok_or(Broken("an indirect table is not in the guest's memory"))?;
                (entries, at, indirect) = (descriptor.len / DESCRIPTOR, 0, true);
                continue;
            }
            if (descriptor.flags & WRITE != 0) != writable {
                return Err(Broken("a buffer has the wrong direction"));
            }
            if descriptor.len > 0 {
                let piece = memory
                    .guest(descriptor.address, descriptor.len)
                    .ok_or(Broken("a buffer is not in the guest's memory"))?;
                pieces.push(piece);
            }
            if descriptor.flags & NEXT == 0 {
                return Ok(read);
            }
            at = descriptor.next;
        }
        Err(Broken("a chain is a loop"))
    }

    /// Completes a chain, into which `written` bytes were written.
    #[inline]
    pub fn complete(&mut self, head: u16, written: u32) {
        let slot = u32::from(self.next_used & (self.size - 1));
        let entry = u64::from(head) | u64::from(written) << 32;
        self.completed.store(4 + 8 * slot, entry.to_le_bytes());
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Shows the driver all completed chains, and returns whether it wants to be called.
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.shown_used, self.next_used);
        if old == new {
            return false;
        }
        self.used_index.store(new);
        self.shown_used = new;
        full_fence();
        if self.event_index {
            let event = self.used_event.load();
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.available_flags.load() & NO_NOTIFY == 0
        }
    }

    /// Asks the driver to kick when it makes the next chain available. The caller looks once more
    /// before it sleeps.
    pub fn want_kick(&mut self) {
        if self.event_index {
            // The driver compares with the entry that it adds next, so all it has added counts.
            self.available_event.store(self.seen_available);
        } else {
            self.used_flags.store(0);
        }
        full_fence();
    }

    /// Asks the driver not to kick.
    pub fn want_no_kick(&mut self) {
        if self.event_index {
            // An entry that the driver has just passed comes round again after 2^16 chains.
            let passed = self.seen_available.wrapping_sub(1);
            self.available_event.store(passed);
        } else {
            self.used_flags.store(NO_NOTIFY);
        }
    }
}

/// A part of a piece that has been checked to hold it.
#[inline]
fn part(mut piece: Piece, at: u32, bytes: u32) -> Piece {
    piece.skip(at);
    piece.first(bytes)
}
