//! Memory of guests, as their frontends share it, and copies from and to it.
//!
//! A guest may write anything there at any time. So nothing is ever borrowed from it: bytes are
//! copied out, and what was copied is what is decided upon. Every access is checked against the
//! bounds of its region. A frontend can also shrink the file behind a region. The kernel then
//! answers an access with SIGBUS; [`guard`] puts zeros in place of the region and marks it, and its
//! port is closed.

#![allow(unsafe_code)]

use std::{
    fs::File,
    os::unix::fs::MetadataExt,
    ptr,
    sync::{
        Arc, Once,
        atomic::{
            AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
};

use vm_memory::{FileOffset, MmapRegion};

use crate::config::PORTS_MAX;

/// Regions that one port may have (the limit of the messages of vhost-user is 8; QEMU adds up to 32
/// one by one).
pub const REGIONS_MAX: usize = 32;

/// Mappings that [`guard`] can tell apart: of all ports the regions they have and as many that
/// replace them, logs and files of the switch.
const GUARDED_MAX: usize = 2 * PORTS_MAX * REGIONS_MAX + 1024;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// A word at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Packed<T>(T);

/// Why a region is refused.
#[derive(Debug)]
pub struct Refused(pub String);

/// A part of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    region: u16,
    /// Length in bytes.
    pub len: u32,
    offset: u64,
}

impl Piece {
    /// Removes so many bytes, at most its length, from its beginning.
    pub fn skip(&mut self, bytes: u32) {
        self.offset += u64::from(bytes);
        self.len -= bytes;
    }

    /// Its first bytes, at most its length.
    #[must_use]
    pub fn first(mut self, bytes: u32) -> Self {
        self.len = self.len.min(bytes);
        self
    }
}

/// A region: where the guest has it, where its frontend has it, and the mapping here.
#[derive(Debug)]
pub struct Region {
    /// Address in the guest.
    pub guest: u64,
    /// Address in the process of the frontend, in which the addresses of rings are given.
    pub user: u64,
    mapping: MmapRegion,
    guarded: usize,
}

impl Region {
    /// Maps `bytes` of a file from an offset.
    ///
    /// # Errors
    /// The reason: a region that is empty, overflows, or is longer than its file, or a file that is
    /// no memory.
    pub fn map(
        guest: u64,
        user: u64,
        bytes: u64,
        file: File,
        offset: u64,
    ) -> Result<Self, Refused> {
        let refuse = |reason: &str| Refused(format!("memory region at {guest:#x}: {reason}"));
        if bytes == 0 {
            return Err(refuse("it is empty"));
        }
        if guest.checked_add(bytes).is_none() || user.checked_add(bytes).is_none() {
            return Err(refuse("it ends beyond the address space"));
        }
        let length = usize::try_from(bytes).map_err(|_| refuse("it is too long"))?;
        let held = file
            .metadata()
            .map_err(|error| refuse(&error.to_string()))?;
        if offset.checked_add(bytes).is_none_or(|end| end > held.len()) {
            return Err(refuse("it is longer than its file"));
        }
        let page = page_bytes(&file).map_err(|reason| refuse(&reason))?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), length)
            .map_err(|error| refuse(&error.to_string()))?;
        let guarded = guard::add(mapping.as_ptr() as usize, length.next_multiple_of(page))
            .ok_or_else(|| refuse("the switch has too many regions of memory mapped"))?;
        Ok(Self {
            guest,
            user,
            mapping,
            guarded,
        })
    }

    fn bytes(&self) -> u64 {
        self.mapping.size() as u64
    }

    /// Whether another one has the same bytes of the same file at the same addresses.
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |region: &Self| {
            let part = region.mapping.file_offset()?;
            let file = part.file().metadata().ok()?;
            Some((file.dev(), file.ino(), part.start()))
        };
        let addresses = |region: &Self| (region.guest, region.user, region.bytes());
        addresses(self) == addresses(other)
            && place(self).is_some_and(|at| place(other) == Some(at))
    }

    /// Its address in this process.
    pub fn start(&self) -> u64 {
        self.mapping.as_ptr() as u64
    }
}

/// Length of the pages of which a file's mappings consist. Accesses to them have to end: those to a
/// file of another kind wait for a disk, a network, or for a process that serves its file system
/// and may never answer.
///
/// # Errors
/// The kernel's reason, or the file is no memory.
fn page_bytes(file: &File) -> Result<usize, String> {
    const HUGETLBFS: u32 = 0x9584_58f6;
    /// Also of memfds; a kernel without it has ramfs in its place.
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    let about = rustix::fs::fstatfs(file).map_err(|error| error.to_string())?;
    match about.f_type as u32 {
        HUGETLBFS => Ok(about.f_bsize as usize),
        TMPFS | RAMFS => Ok(4096),
        _ => Err("it is neither a memfd nor a file of a tmpfs or hugetlbfs".to_owned()),
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        guard::remove(self.guarded);
    }
}

/// The log of a migration: a bit for each page of the guest that was written (vhost-user,
/// "Migration").
#[derive(Debug)]
pub struct Log(Region);

impl Log {
    const PAGE: u64 = 4096;

    /// Maps `bytes` of a file from an offset.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn map(bytes: u64, file: File, offset: u64) -> Result<Self, Refused> {
        Region::map(0, 0, bytes, file, offset).map(Self)
    }

    /// So many bytes at an address of the guest have been written. Pages that have no bit, since
    /// the log is too short, are left out.
    pub fn mark(&self, address: u64, bytes: u64) {
        let Some(last) = address.checked_add(bytes.saturating_sub(1)) else {
            return;
        };
        let pages = (self.0.bytes() * 8).min(last / Self::PAGE + 1);
        for page in address / Self::PAGE..pages {
            // SAFETY: `page` is below the number of bits of the mapping, which lives as long as
            // `self`; the frontend changes it with atomic accesses, too.
            let byte = unsafe {
                &*self
                    .0
                    .mapping
                    .as_ptr()
                    .cast::<AtomicU8>()
                    .add(page as usize / 8)
            };
            byte.fetch_or(1 << (page % 8), Ordering::AcqRel);
        }
    }
}

/// All regions of one port.
#[derive(Debug, Default)]
pub struct Memory {
    regions: Vec<Arc<Region>>,
}

impl Memory {
    /// Of these regions.
    ///
    /// # Errors
    /// Too many, or two that overlap in the guest.
    pub fn new(mut regions: Vec<Arc<Region>>) -> Result<Self, Refused> {
        if regions.len() > REGIONS_MAX {
            return Err(Refused(format!("more than {REGIONS_MAX} memory regions")));
        }
        regions.sort_by_key(|region| region.guest);
        for pair in regions.windows(2) {
            if pair[0].guest + pair[0].bytes() > pair[1].guest {
                let reason = format!("memory regions overlap at {:#x}", pair[1].guest);
                return Err(Refused(reason));
            }
        }
        Ok(Self { regions })
    }

    /// The regions.
    pub fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Whether an access met a page that its file no longer has.
    pub fn is_broken(&self) -> bool {
        self.regions
            .iter()
            .any(|region| guard::is_broken(region.guarded))
    }

    /// The part at an address of the guest, if one region has all of it.
    #[inline]
    pub fn guest(&self, address: u64, bytes: u32) -> Option<Piece> {
        self.find(|region| region.guest, address, bytes)
    }

    /// The part at an address of the frontend.
    pub fn user(&self, address: u64, bytes: u32) -> Option<Piece> {
        self.find(|region| region.user, address, bytes)
    }

    #[inline]
    fn find(&self, base: impl Fn(&Region) -> u64, address: u64, bytes: u32) -> Option<Piece> {
        for (number, region) in self.regions.iter().enumerate() {
            let offset = address.wrapping_sub(base(region));
            if offset < region.bytes() {
                let fits = u64::from(bytes) <= region.bytes() - offset;
                return fits.then_some(Piece {
                    region: number as u16,
                    len: bytes,
                    offset,
                });
            }
        }
        None
    }

    /// The address of a piece in the guest.
    pub fn address(&self, piece: Piece) -> u64 {
        self.regions[usize::from(piece.region)].guest + piece.offset
    }

    /// The address here of a piece of this memory.
    ///
    /// # Panics
    /// The piece is of another memory, and beyond the bounds of this one.
    #[inline]
    fn pointer(&self, piece: Piece) -> *mut u8 {
        let region = &self.regions[usize::from(piece.region)];
        assert!(piece.offset + u64::from(piece.len) <= region.bytes());
        // SAFETY: the assertion keeps the sum within the mapping.
        unsafe { region.mapping.as_ptr().add(piece.offset as usize) }
    }

    /// Copies a piece's first bytes, at most `to` holds.
    #[inline]
    pub fn read(&self, piece: Piece, to: &mut [u8]) {
        let bytes = to.len().min(piece.len as usize);
        // SAFETY: `pointer` has checked the piece; `to` is no memory of a guest, so the two do not
        // overlap. The guest may write meanwhile; then any bytes are as good as others.
        unsafe { ptr::copy_nonoverlapping(self.pointer(piece), to.as_mut_ptr(), bytes) }
    }

    /// The first `N` bytes of a piece that is at least as long; `N` is even. Each byte is read
    /// once, without a call: most accesses are short.
    #[inline]
    pub fn load<const N: usize>(&self, piece: Piece) -> [u8; N] {
        assert!(N <= piece.len as usize);
        // SAFETY: `pointer` has checked the piece, the assertion the length.
        unsafe { load(self.pointer(piece)) }
    }

    /// Writes `N` bytes to the beginning of a piece that is at least as long.
    #[inline]
    pub fn store<const N: usize>(&self, piece: Piece, bytes: [u8; N]) {
        #[cfg(test)]
        crash::step();
        assert!(N <= piece.len as usize);
        // SAFETY: as in `load`.
        unsafe { ptr::write_unaligned(self.pointer(piece).cast(), bytes) }
    }

    /// Takes bytes from the beginning of pieces that hold at least as many; pieces that are used up
    /// are removed.
    #[inline]
    pub fn take(&self, pieces: &mut Vec<Piece>, to: &mut [u8]) {
        if let Some(first) = pieces
            .first_mut()
            .filter(|piece| to.len() < piece.len as usize)
        {
            self.read(*first, to);
            return first.skip(to.len() as u32);
        }
        let (mut at, mut used) = (0, 0);
        while at < to.len() {
            let piece = &mut pieces[used];
            let bytes = (to.len() - at).min(piece.len as usize);
            self.read(*piece, &mut to[at..at + bytes]);
            piece.skip(bytes as u32);
            at += bytes;
            used += usize::from(piece.len == 0);
        }
        pieces.drain(..used);
    }

    /// Appends all bytes of pieces.
    pub fn append(&self, pieces: &[Piece], to: &mut Vec<u8>) {
        for &piece in pieces {
            let at = to.len();
            to.resize(at + piece.len as usize, 0);
            self.read(piece, &mut to[at..]);
        }
    }

    /// The file behind a piece, by device and number, and where in it the piece begins.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn place(&self, piece: Piece) -> Result<[u64; 3], Refused> {
        let region = &self.regions[usize::from(piece.region)];
        let Some(file) = region.mapping.file_offset() else {
            return Err(Refused("a region has no file".to_owned()));
        };
        let about = file.file().metadata();
        let about = about.map_err(|error| Refused(error.to_string()))?;
        Ok([about.dev(), about.ino(), file.start() + piece.offset])
    }

    /// Copies bytes to the beginning of a piece that is at least as long.
    #[inline]
    pub fn write(&self, piece: Piece, from: &[u8]) {
        #[cfg(test)]
        crash::step();
        assert!(from.len() <= piece.len as usize);
        // SAFETY: `pointer` has checked the piece, the assertion the length.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.pointer(piece), from.len()) }
    }

    /// Copies from a piece of another memory, or of this one, to a piece that is at least as long.
    #[inline]
    pub fn copy(&self, piece: Piece, from: &Self, source: Piece) {
        #[cfg(test)]
        crash::step();
        assert!(source.len <= piece.len);
        // SAFETY: `pointer` has checked both pieces, the assertion the length. A guest may have
        // made them overlap, which `copy` allows.
        unsafe {
            ptr::copy(
                from.pointer(source),
                self.pointer(piece),
                source.len as usize,
            )
        }
    }

    /// Starts to fetch the beginning of a piece into the cache, to read it or to write to it.
    #[inline(always)]
    pub fn prefetch(&self, piece: Piece, writes: bool) {
        let start = self.pointer(piece);
        // Most are longer than a line; a prefetch beyond one that is not does no harm.
        if writes {
            prefetch_to_write(start);
            prefetch_to_write(start.wrapping_add(LINE));
        } else {
            prefetch(start);
            prefetch(start.wrapping_add(LINE));
        }
    }

    /// Writes a header and what follows it to the beginning of a piece that is at least as long,
    /// and returns what is left of the piece.
    #[inline]
    pub fn write_behind<const N: usize>(
        &self,
        mut piece: Piece,
        header: [u8; N],
        from: &[u8],
    ) -> Piece {
        #[cfg(test)]
        crash::step();
        assert!(N + from.len() <= piece.len as usize);
        let to = self.pointer(piece);
        // SAFETY: `pointer` has checked the piece, the assertion the length; `from` is no memory of
        // a guest.
        unsafe {
            ptr::write_unaligned(to.cast(), header);
            ptr::copy_nonoverlapping(from.as_ptr(), to.add(N), from.len());
        }
        piece.skip((N + from.len()) as u32);
        piece
    }

    /// A piece, for many accesses.
    pub fn span(&self, piece: Piece) -> Span {
        Span {
            address: self.pointer(piece),
            len: piece.len,
            _region: Arc::clone(&self.regions[usize::from(piece.region)]),
        }
    }

    /// A 16-bit word that the guest and the switch share.
    ///
    /// # Errors
    /// The piece is shorter, or not aligned.
    pub fn word(&self, piece: Piece) -> Result<Word, Refused> {
        let address = self.pointer(piece);
        if piece.len < 2 || address.align_offset(2) != 0 {
            return Err(Refused("a ring is not aligned".to_owned()));
        }
        Ok(Word {
            address: address.cast(),
            _region: Arc::clone(&self.regions[usize::from(piece.region)]),
        })
    }
}

/// An aligned 16-bit word of a ring. It keeps its region mapped.
#[derive(Clone, Debug)]
pub struct Word {
    address: *const AtomicU16,
    _region: Arc<Region>,
}

// SAFETY: the word is atomic, and its mapping belongs to the process, not to a thread.
unsafe impl Send for Word {}

impl Word {
    /// Reads it; what its writer had written before it is visible afterwards.
    #[inline]
    pub fn load(&self) -> u16 {
        // SAFETY: `Memory::word` has checked bounds and alignment, and the region stays mapped.
        u16::from_le(unsafe { &*self.address }.load(Ordering::Acquire))
    }

    /// Writes it after everything that was written before.
    #[inline]
    pub fn store(&self, value: u16) {
        #[cfg(test)]
        crash::step();
        // SAFETY: as in `load`.
        unsafe { &*self.address }.store(value.to_le(), Ordering::Release);
    }

    /// Replaces `from`, if that is its value, ordered as [`Word::load`] and [`Word::store`] are;
    /// else writes nothing.
    #[inline]
    pub fn replace(&self, from: u16, to: u16) -> bool {
        #[cfg(test)]
        crash::step();
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: as in `load`.
        let word = unsafe { &*self.address };
        word.compare_exchange(from.to_le(), to.to_le(), done, seen)
            .is_ok()
    }
}

/// A piece that is accessed often, without a look for its region each time. It keeps its region
/// mapped.
#[derive(Clone, Debug)]
pub struct Span {
    address: *mut u8,
    len: u32,
    _region: Arc<Region>,
}

// SAFETY: accesses are copies of bytes that anybody may change at any time, and the mapping belongs
// to the process, not to a thread.
unsafe impl Send for Span {}

impl Span {
    /// The address of bytes in it.
    ///
    /// # Panics
    /// They are not all in it.
    #[inline(always)]
    fn pointer(&self, at: u32, bytes: usize) -> *mut u8 {
        assert!(at as usize + bytes <= self.len as usize);
        // SAFETY: the assertion keeps the sum within the piece, which is within the mapping.
        unsafe { self.address.add(at as usize) }
    }

    /// `N` of its bytes, as [`Memory::load`].
    #[inline(always)]
    pub fn load<const N: usize>(&self, at: u32) -> [u8; N] {
        // SAFETY: `pointer` has checked that there are so many.
        unsafe { load(self.pointer(at, N)) }
    }

    /// Writes `N` of its bytes.
    #[inline(always)]
    pub fn store<const N: usize>(&self, at: u32, bytes: [u8; N]) {
        #[cfg(test)]
        crash::step();
        // SAFETY: `pointer` has checked that there are so many.
        unsafe { ptr::write_unaligned(self.pointer(at, N).cast(), bytes) }
    }

    /// Starts to fetch one of its bytes into the cache.
    #[inline(always)]
    pub fn prefetch(&self, at: u32) {
        prefetch(self.address.wrapping_add(at as usize));
    }
}

/// Starts to fetch a line into the cache, to read it.
#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same to write to it: no other CPU's cache has the line afterwards.
#[inline(always)]
fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that the program sees, at any address; processors without
    // this one do nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// `N` bytes, which is even. Each is read once, without a call: most accesses are short.
///
/// # Safety
/// So many bytes are mapped there.
#[inline(always)]
unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    const { assert!(N % 2 == 0) };
    let (mut bytes, mut at) = ([0; N], 0);
    while at + 8 <= N {
        // SAFETY: the caller's word; a packed word may be anywhere.
        let word = unsafe { ptr::read_volatile(from.add(at).cast::<Packed<u64>>()) };
        bytes[at..at + 8].copy_from_slice(&{ word.0 }.to_ne_bytes());
        at += 8;
    }
    while at < N {
        // SAFETY: as above.
        let word = unsafe { ptr::read_volatile(from.add(at).cast::<Packed<u16>>()) };
        bytes[at..at + 2].copy_from_slice(&{ word.0 }.to_ne_bytes());
        at += 2;
    }
    bytes
}

/// Words of 64 bits in a file that outlives this process: what was stored before it was killed is
/// there afterwards, in the order in which it was stored.
#[derive(Debug)]
pub struct Cells {
    mapping: MmapRegion,
    guarded: usize,
}

impl Cells {
    /// Maps the first `count` words of a file that is at least as long.
    ///
    /// # Errors
    /// The reason.
    pub fn map(file: File, count: usize) -> Result<Self, Refused> {
        let bytes = count * size_of::<u64>();
        let refuse = |reason: &dyn std::fmt::Display| Refused(reason.to_string());
        if file.metadata().map_err(|error| refuse(&error))?.len() < bytes as u64 {
            return Err(refuse(&"it is too short"));
        }
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), bytes);
        let mapping = mapping.map_err(|error| refuse(&error))?;
        let guarded = guard::add(mapping.as_ptr() as usize, bytes)
            .ok_or_else(|| refuse(&"too many regions are mapped"))?;
        Ok(Self { mapping, guarded })
    }

    /// Whether the file has shrunk, or its file system had no room for a page of it.
    pub fn is_broken(&self) -> bool {
        guard::is_broken(self.guarded)
    }

    #[inline]
    fn cell(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.mapping.size() / size_of::<u64>());
        // SAFETY: the assertion keeps the word within the mapping, which begins at a page and lives
        // as long as `self`; all accesses to it are atomic.
        unsafe { &*self.mapping.as_ptr().cast::<AtomicU64>().add(at) }
    }

    /// Reads a word.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        self.cell(at).load(Ordering::Acquire)
    }

    /// Writes a word after everything that was written before, in this file and in guests.
    #[inline]
    pub fn store(&self, at: usize, value: u64) {
        #[cfg(test)]
        crash::step();
        self.cell(at).store(value, Ordering::Release);
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        guard::remove(self.guarded);
    }
}

/// Death at a chosen write, for tests of what a successor makes of the rest.
#[cfg(test)]
pub mod crash {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    /// The thread panics instead of its write number `writes`, counted from 0.
    pub fn at(writes: u64) {
        LEFT.set(writes);
    }

    /// Writes that are left.
    pub fn left() -> u64 {
        LEFT.get()
    }

    pub(super) fn step() {
        let left = LEFT.get();
        if left == 0 {
            LEFT.set(u64::MAX);
            std::panic::resume_unwind(Box::new("the process dies here"));
        }
        LEFT.set(left.saturating_sub(u64::from(left != u64::MAX)));
    }
}

/// Between a write and a read of words that the other side writes and reads in the other order.
#[inline]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// The answer to SIGBUS.
pub mod guard {
    use super::{AtomicBool, AtomicU32, AtomicUsize, GUARDED_MAX, Once, Ordering, fence, ptr};

    /// A mapping. Its range is written by who has taken the entry, and read as a whole.
    pub(super) struct Entry {
        is_taken: AtomicBool,
        /// Odd while the range is written.
        version: AtomicUsize,
        start: AtomicUsize,
        bytes: AtomicUsize,
        broken: AtomicBool,
    }

    impl Entry {
        pub(super) const fn free() -> Self {
            Self {
                is_taken: AtomicBool::new(false),
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                broken: AtomicBool::new(false),
            }
        }

        pub(super) fn set(&self, start: usize, bytes: usize) {
            self.version.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::Release);
            self.start.store(start, Ordering::Relaxed);
            self.bytes.store(bytes, Ordering::Relaxed);
            self.version.fetch_add(1, Ordering::Release);
        }

        /// Its range as it was at one time: `None` while it is written.
        pub(super) fn range(&self) -> Option<(usize, usize)> {
            let before = self.version.load(Ordering::Acquire);
            let range = (
                self.start.load(Ordering::Relaxed),
                self.bytes.load(Ordering::Relaxed),
            );
            fence(Ordering::Acquire);
            let after = self.version.load(Ordering::Relaxed);
            (before % 2 == 0 && before == after).then_some(range)
        }

        /// Its range, if an address is in it.
        fn with(&self, address: usize) -> Option<(usize, usize)> {
            self.range()
                .filter(|&(start, bytes)| address.wrapping_sub(start) < bytes)
        }
    }

    static ENTRIES: [Entry; GUARDED_MAX] = [const { Entry::free() }; GUARDED_MAX];
    static USED: AtomicU32 = AtomicU32::new(0);
    static INSTALL: Once = Once::new();

    /// Watches a mapping until it is removed, which is before it is unmapped; its number, or `None`
    /// if there are too many.
    pub(super) fn add(start: usize, bytes: usize) -> Option<usize> {
        INSTALL.call_once(install);
        for (number, entry) in ENTRIES.iter().enumerate() {
            let is_taken = &entry.is_taken;
            let free = is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                entry.broken.store(false, Ordering::Relaxed);
                entry.set(start, bytes);
                USED.fetch_max(number as u32 + 1, Ordering::AcqRel);
                return Some(number);
            }
        }
        None
    }

    pub(super) fn remove(number: usize) {
        ENTRIES[number].set(0, 0);
        ENTRIES[number].is_taken.store(false, Ordering::Release);
    }

    pub(super) fn is_broken(number: usize) -> bool {
        ENTRIES[number].broken.load(Ordering::Acquire)
    }

    fn install() {
        // SAFETY: the action is a zeroed C structure with its handler set; the handler calls only
        // `mmap` and `signal`, which may be called in one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
        }
    }

    /// Maps zeros over a whole region one of whose pages has gone, so that one region takes one
    /// mapping however many of its pages go. Any other SIGBUS ends the process, as it would have
    /// without this handler.
    extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid structure, and its address is set for SIGBUS.
        let address = unsafe { (*info).si_addr() } as usize;
        let used = USED.load(Ordering::Acquire) as usize;
        let mut entries = ENTRIES[..used].iter();
        let found = entries.find_map(|entry| Some((entry, entry.with(address)?)));
        // SAFETY: the thread that runs this handler accesses a mapping at `address`. If it is one
        // of ours, the access borrows what owns the mapping, so neither the mapping nor its entry
        // goes before this returns. Mappings do not overlap, and an entry is empty before its
        // mapping goes, so a range that was read at one time and has the address is that mapping's.
        // A second look, which finds the same, costs nothing. Nothing borrows from its bytes.
        unsafe {
            let mapped = found.is_some_and(|(entry, (start, bytes))| {
                if entry.with(address) != Some((start, bytes)) {
                    return false;
                }
                entry.broken.store(true, Ordering::Release);
                let start = start as *mut libc::c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let flags = flags | libc::MAP_NORESERVE;
                libc::mmap(start, bytes, access, flags, -1, 0) != libc::MAP_FAILED
            });
            if !mapped {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
