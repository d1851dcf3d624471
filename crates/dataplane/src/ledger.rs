//! What outlives the process: a file in memory that says which frames were handed over.
//!
//! A hand-over changes two rings, that of the receiver and that of the sender, in the memories of
//! two guests, and a process can end between any two writes. So not the rings say which frames were
//! handed over, but this file. Everything that a poll does is prepared where drivers do not look:
//! bytes in receive buffers, entries of used rings behind the index that was shown, new values in
//! this file beside those in force. One write of [`Ledger::commit`] puts all of it in force. Only
//! then are the indices of the rings shown, and a successor shows them again.
//!
//! ```text
//!  copy, used entries, prepared values ──▶ epoch + 1 ──▶ used indices of receivers, of senders
//!         killed here: nothing happened │ killed here: all of it happened, and is shown again
//! ```
//!
//! ```text
//!  magic, boot, epoch │ names of ports │ addresses │ port 0 … port 255
//!     └ features, pairs, of each ring: place, size, two values with their epochs │ chains of rings
//! ```
//!
//! A value is in force if its epoch is the higher one of two that are not above the file's.
//!
//! Each thread of a switch has an epoch of its own, and puts in force what it has prepared for its
//! ports. A chain whose frame another thread delivers is marked by that thread, in its own epoch
//! ([`Ledger::mark`]): the sender's thread shows its guest later that the chain is free.
//!
//! Other users may write where the file is: so only a file of this user alone is taken, whose
//! beginning says that it is one.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::{
    fs::{FallocateFlags, FlockOperation, MemfdFlags, fallocate, flock, ftruncate, memfd_create},
    io::Errno,
};

use crate::{
    config::{PORTS_MAX, THREADS_MAX},
    memory::Cells,
    offload::PARTS_MAX,
    ring::SIZE_MAX,
    vhost::PAIRS_MAX,
};

/// The file's kind, and in the lowest byte its form; another form is not read.
const MAGIC: u64 = u64::from_be_bytes(*b"sluice 3");
/// The form that only versions with several threads read.
const THREADED: u64 = u64::from_be_bytes(*b"sluice 4");
/// The bits of the form.
const FORM: u64 = 0xff;

/// For how long a start waits for a switch that may be ending.
const ENDING: Duration = Duration::from_secs(1);

const PAGE: usize = 512;
/// The epoch of the first thread; that of each further one is in another line of the cache.
const EPOCH: usize = 3;
const EPOCH_STEP: usize = 8;
const NAMES: usize = PAGE;
const ADDRESSES: usize = NAMES + 2 * PORTS_MAX;
/// Each half has room for so many addresses, of two words; twice as many as are kept at least.
const ADDRESSES_MAX: usize = 1 << 17;
const PORTS: usize = ADDRESSES + PAGE + 2 * 2 * ADDRESSES_MAX;
const PORT: usize = PAGE + 2 * PAIRS_MAX * CHAINS;
const CHAINS: usize = CHAIN * SIZE_MAX as usize;
const CHAIN: usize = 4;
const CELLS: usize = PORTS + PORTS_MAX * PORT;

/// Of a port: pairs, features, and the words of its rings.
const PAIRS: usize = 0;
const FEATURES: usize = 1;
const THREAD: usize = 2;
const RINGS: usize = 16;
const RING: usize = 16;

/// Of a ring: place, size, and two values, each an epoch and what it is.
const SIZE: usize = 1;
const VALUES: [usize; 2] = [2, 4];

/// Of a chain: its order and 1, the epoch that released it, and two counts of delivered parts.
const RELEASED: usize = 1;
const PARTS: [usize; 2] = [2, 3];
const NEVER: u64 = u64::MAX;

/// All parts of a frame.
pub const ALL_PARTS: u16 = u16::MAX;

/// A count of parts and its epoch in one word, by the thread that has the port.
fn counted(epoch: u64, parts: u16) -> u64 {
    epoch << 16 | u64::from(parts)
}

/// Of a count by another thread: 1, the thread in 5 bits, the epoch in 44, the parts in 14, of
/// which the last value stands for all.
const MARKED: u64 = 1 << 63;
const MARK_PARTS: u32 = 14;
const MARK_ALL: u64 = (1 << MARK_PARTS) - 1;
const MARK_THREAD: u32 = 58;
const MARK_EPOCH: u64 = (1 << (MARK_THREAD - MARK_PARTS)) - 1;

const _: () = assert!((PARTS_MAX as u64) < MARK_ALL);
const _: () = assert!(THREADS_MAX <= 1 << (63 - MARK_THREAD));
const _: () = assert!(EPOCH + EPOCH_STEP * THREADS_MAX < PAGE);

fn marked(thread: usize, epoch: u64, parts: u16) -> u64 {
    let parts = u64::from(parts).min(MARK_ALL);
    MARKED | (thread as u64) << MARK_THREAD | (epoch & MARK_EPOCH) << MARK_PARTS | parts
}

/// The parts of a count of either kind.
fn parts_of(word: u64) -> u16 {
    match word & MARKED {
        0 => word as u16,
        _ if word & MARK_ALL == MARK_ALL => ALL_PARTS,
        _ => (word & MARK_ALL) as u16,
    }
}

/// Whether a word counts in the same epoch as another one of its kind.
fn is_of_same_epoch(word: u64, other: u64) -> bool {
    let bits = if other & MARKED == 0 { 16 } else { MARK_PARTS };
    word != 0 && word >> bits == other >> bits
}

/// Prepares a count of a chain's parts. Parts only grow: the other count stays in force.
fn count(cells: &Cells, chain: usize, word: u64) {
    let known = PARTS.map(|at| cells.load(chain + at));
    let fewer = usize::from(parts_of(known[1]) < parts_of(known[0]) || known[1] == 0);
    let at = (0..2).find(|&at| is_of_same_epoch(known[at], word));
    cells.store(chain + PARTS[at.unwrap_or(fewer)], word);
}

/// A number for words, that the next version computes alike (FNV-1a); never 0.
pub fn fingerprint(words: impl IntoIterator<Item = u64>) -> u64 {
    let bytes = words.into_iter().flat_map(u64::to_le_bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash.max(1)
}

fn name_of(name: &str) -> [u64; 2] {
    let bytes = || name.bytes().map(u64::from);
    [fingerprint(bytes()), fingerprint(bytes().chain([1]))]
}

/// The file.
#[derive(Debug)]
pub struct Ledger {
    cells: Cells,
    /// Keeps the lock.
    file: File,
}

/// Whether an error is one of the storage, and no other place or right would mend it.
pub fn is_of_storage(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    error.chain().any(|cause| {
        let of_rustix = cause.downcast_ref::<Errno>().map(|error| error.kind());
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let kind = kind.or(of_rustix);
        kind.is_some_and(|kind| {
            matches!(
                kind,
                FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull
            )
        })
    })
}

/// Opens a file of this user, or makes it and its directory.
fn make(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    let directory = path.parent().map_or(Ok(()), fs::create_dir_all);
    directory
        .and_then(|()| options.open(path))
        .map_err(|error| match error.kind() {
            _ if path.is_symlink() => anyhow!("it is a link ({error})"),
            io::ErrorKind::PermissionDenied => {
                anyhow!("be root, or choose another `socket` or `state` ({error})")
            }
            _ => error.into(),
        })
}

/// Locks a file for this process alone, and waits for [`ENDING`] if another has it.
fn lock(file: &File) -> Result<(), Errno> {
    let until = Instant::now() + ENDING;
    loop {
        let locked = flock(file, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(Errno::WOULDBLOCK) || Instant::now() >= until {
            return locked;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Ledger {
    /// Opens a file, or makes it. What its process had prepared and not put in force is forgotten.
    ///
    /// # Errors
    /// It cannot be made, is not a state of this user alone, or another process uses it.
    pub fn open(path: &Path) -> anyhow::Result<Arc<Self>> {
        let explain = || format!("the state in {}", path.display());
        let file = make(path).with_context(explain)?;
        ensure!(
            is_own(&file).with_context(explain)?,
            "{} is no state of a switch of this user; remove it, or choose another `state`",
            path.display()
        );
        match lock(&file) {
            Err(Errno::WOULDBLOCK) => bail!(
                "a switch runs already, with the state in {}; `sluicegate switch upgrade` replaces \
                 it, and another switch needs another `socket` and `state`",
                path.display()
            ),
            locked => locked.with_context(|| format!("cannot lock {}", path.display()))?,
        }
        Self::over(file).with_context(explain)
    }

    /// In memory alone: a successor gets it, and a switch that starts after this one was killed
    /// does not.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub fn in_memory() -> anyhow::Result<Arc<Self>> {
        let file = memfd_create("sluicegate-state", MemfdFlags::CLOEXEC);
        Self::over(file.context("no memory for the state")?.into())
    }

    /// Over an open file whose lock this process has.
    ///
    /// # Errors
    /// It is none, or has no room.
    pub fn over(file: File) -> anyhow::Result<Arc<Self>> {
        let bytes = (CELLS * size_of::<u64>()) as u64;
        let about = file.metadata()?;
        ensure!(about.is_file(), "it is no file");
        if about.len() != bytes {
            clear(&file, bytes)?;
        }
        let cells = map(&file)?;
        let boot = boot()?;
        let head = [cells.load(0), cells.load(1), cells.load(2)];
        let mut ledger = Self { cells, file };
        if ![MAGIC, THREADED].contains(&head[0]) || head[1..] != boot {
            // Of another form, or of guests that are gone.
            clear(&ledger.file, bytes)?;
            ledger.cells = map(&ledger.file)?;
            ledger.reserve(0, PORTS)?;
            ledger.cells.store(EPOCH, 1);
            ledger.cells.store(1, boot[0]);
            ledger.cells.store(2, boot[1]);
            ledger.cells.store(0, MAGIC);
        }
        let ledger = Arc::new(ledger);
        for number in 0..PORTS_MAX as u16 {
            if ledger.name(number)[0] != 0 {
                (0..2 * PAIRS_MAX).for_each(|index| ledger.ring(number, index).tidy());
            }
        }
        // All that is left is in force, so any thread may go on with any port.
        let newest = (0..THREADS_MAX).map(|thread| ledger.epoch(thread)).max();
        let newest = newest.unwrap_or(1);
        let behind = (0..THREADS_MAX).filter(|&thread| ledger.epoch(thread) != newest);
        behind.for_each(|thread| ledger.commit(thread, newest));
        Ok(ledger)
    }

    /// So many threads write from now on.
    pub fn set_threads(&self, threads: usize) {
        if threads > 1 {
            self.cells.store(0, THREADED);
        }
    }

    /// The file, for a successor.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Has pages for these words, so that a write to them cannot fail.
    fn reserve(&self, at: usize, words: usize) -> anyhow::Result<()> {
        let bytes = |words: usize| (words * size_of::<u64>()) as u64;
        let none = FallocateFlags::empty();
        fallocate(self.file.as_fd(), none, bytes(at), bytes(words))
            .context("no room in its file system")
    }

    /// Whether the file can no longer be used.
    pub fn is_broken(&self) -> bool {
        self.cells.is_broken()
    }

    /// The epoch of a thread that is in force.
    #[inline]
    pub fn epoch(&self, thread: usize) -> u64 {
        self.cells.load(EPOCH + EPOCH_STEP * thread)
    }

    /// Puts everything in force that a thread has prepared with this epoch.
    #[inline]
    pub fn commit(&self, thread: usize, epoch: u64) {
        self.cells.store(EPOCH + EPOCH_STEP * thread, epoch);
    }

    /// A thread prepares how many parts it has delivered of a chain of another thread's port;
    /// `chain` is from [`RingRecord::chain`].
    #[inline]
    pub fn mark(&self, thread: usize, chain: usize, parts: u16) {
        let word = marked(thread, self.epoch(thread) + 1, parts);
        count(&self.cells, chain, word);
    }

    /// The number that a port of this name had, if there was one.
    pub fn find(&self, name: &str) -> Option<u16> {
        let wanted = name_of(name);
        (0..PORTS_MAX as u16).find(|&number| self.name(number) == wanted)
    }

    fn name(&self, number: u16) -> [u64; 2] {
        [0, 1].map(|word| self.cells.load(NAMES + 2 * usize::from(number) + word))
    }

    /// A number that is not taken, if possible one that no port of the file has.
    pub fn free(&self, taken: impl Fn(u16) -> bool) -> Option<u16> {
        let numbers = || (0..PORTS_MAX as u16).filter(|&number| !taken(number));
        let unused = |&number: &u16| self.name(number)[0] == 0;
        numbers().find(unused).or_else(|| numbers().next())
    }

    /// Has room for ports of these names.
    ///
    /// # Errors
    /// No room in the file system.
    pub fn make_room<'a>(&self, names: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        for name in names.filter(|name| self.find(name).is_none()) {
            // Where all numbers have had ports, their room is there.
            if let Some(number) = self.free(|number| self.name(number)[0] != 0) {
                self.claim(number, name)?;
            }
        }
        Ok(())
    }

    /// Names a port. What another port had under its number is forgotten.
    ///
    /// # Errors
    /// No room in the file system.
    pub fn claim(&self, number: u16, name: &str) -> anyhow::Result<()> {
        let wanted = name_of(name);
        if self.name(number) == wanted {
            return Ok(());
        }
        self.reserve(port(number), PAGE)?;
        self.forget(number);
        let at = NAMES + 2 * usize::from(number);
        self.cells.store(at + 1, wanted[1]);
        self.cells.store(at, wanted[0]);
        Ok(())
    }

    /// Forgets a port.
    pub fn forget(&self, number: u16) {
        self.cells.store(NAMES + 2 * usize::from(number), 0);
        self.cells.store(port(number) + PAIRS, 0);
        (0..2 * PAIRS_MAX).for_each(|index| self.ring(number, index).end());
        let (half, count) = self.half();
        for at in (0..count).map(|at| half + 2 * at) {
            if self.cells.load(at + 1) == u64::from(number) + 1 {
                self.cells.store(at + 1, 0);
            }
        }
    }

    fn ring(&self, number: u16, index: usize) -> RingPlace<'_> {
        RingPlace::new(&self.cells, port(number), index)
    }

    /// A port's part of the file, in the hands of this thread.
    pub fn record(self: &Arc<Self>, number: u16, thread: usize) -> PortRecord {
        let base = port(number);
        if self.cells.load(base + THREAD) != thread as u64 {
            self.cells.store(base + THREAD, thread as u64);
        }
        PortRecord {
            base,
            thread,
            ledger: Arc::clone(self),
        }
    }

    /// Where addresses are, and how many.
    fn half(&self) -> (usize, usize) {
        let word = self.cells.load(ADDRESSES);
        let at = ADDRESSES + PAGE + (word >> 32 & 1) as usize * 2 * ADDRESSES_MAX;
        (at, (word as u32 as usize).min(ADDRESSES_MAX))
    }

    /// Adds an address, by its key and port. False if there is no room: see [`Ledger::rewrite`].
    pub fn learn(&self, key: u64, port: u16) -> bool {
        let (half, count) = self.half();
        if count == ADDRESSES_MAX {
            return false;
        }
        self.cells.store(half + 2 * count, key);
        self.cells.store(half + 2 * count + 1, u64::from(port) + 1);
        let word = self.cells.load(ADDRESSES);
        self.cells.store(ADDRESSES, word + 1);
        true
    }

    /// Replaces all addresses by the first 65536 of these.
    pub fn rewrite(&self, addresses: impl Iterator<Item = (u64, u16)>) {
        let other = (self.cells.load(ADDRESSES) >> 32 & 1) ^ 1;
        let half = ADDRESSES + PAGE + other as usize * 2 * ADDRESSES_MAX;
        let mut count = 0;
        // Half of the room stays free for new ones, so that this is seldom.
        for (key, port) in addresses.take(ADDRESSES_MAX / 2) {
            self.cells.store(half + 2 * count, key);
            self.cells.store(half + 2 * count + 1, u64::from(port) + 1);
            count += 1;
        }
        self.cells.store(ADDRESSES, other << 32 | count as u64);
    }

    /// The addresses by key and port, the newest of a key last.
    pub fn addresses(&self) -> Vec<(u64, u16)> {
        let (half, count) = self.half();
        let each = (0..count).map(|at| half + 2 * at);
        let each = each.map(|at| (self.cells.load(at), self.cells.load(at + 1)));
        let known = each.filter(|&(_, port)| port != 0);
        known.map(|(key, port)| (key, (port - 1) as u16)).collect()
    }
}

/// Whether a file is this user's alone, and empty or a state.
fn is_own(file: &File) -> io::Result<bool> {
    let about = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if !about.is_file() || about.uid() != user || about.mode() & 0o077 != 0 || about.nlink() != 1 {
        return Ok(false);
    }
    let mut word = [0; 8];
    let bytes = file.read_at(&mut word, 0)?;
    let is_state = (u64::from_ne_bytes(word) ^ MAGIC) & !FORM == 0;
    Ok(bytes == 0 || bytes == word.len() && is_state)
}

/// Makes a file empty and as long as this; it is a state at once, of no form.
fn clear(file: &File, bytes: u64) -> io::Result<()> {
    ftruncate(file, 0)?;
    file.write_all_at(&(MAGIC | FORM).to_ne_bytes(), 0)?;
    Ok(ftruncate(file, bytes)?)
}

fn map(file: &File) -> anyhow::Result<Cells> {
    Cells::map(file.try_clone()?, CELLS).map_err(|refused| anyhow!(refused.0))
}

/// Which run of the kernel this is: the numbers of its files in memory mean nothing to the next.
fn boot() -> anyhow::Result<[u64; 2]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("no boot_id")?;
    Ok(name_of(text.trim()))
}

/// Where the words of a port are.
fn port(number: u16) -> usize {
    PORTS + usize::from(number) * PORT
}

/// A port's part of the file.
#[derive(Clone, Debug)]
pub struct PortRecord {
    ledger: Arc<Ledger>,
    base: usize,
    thread: usize,
}

impl PortRecord {
    /// Queue pairs that the guest used, and its features, if it was there.
    pub fn was_up(&self) -> Option<(usize, u64)> {
        let cells = &self.ledger.cells;
        let pairs = cells.load(self.base + PAIRS) as usize;
        (pairs > 0).then(|| (pairs, cells.load(self.base + FEATURES)))
    }

    /// Says how many queue pairs the guest uses now, and its features.
    pub fn set_up(&self, pairs: usize, features: u64) {
        let cells = &self.ledger.cells;
        if cells.load(self.base + PAIRS) != pairs as u64
            || cells.load(self.base + FEATURES) != features
        {
            cells.store(self.base + FEATURES, features);
            cells.store(self.base + PAIRS, pairs as u64);
        }
    }

    /// A ring's part of the file.
    pub fn ring(&self, index: usize) -> RingRecord {
        RingRecord {
            ledger: Arc::clone(&self.ledger),
            port: self.base,
            thread: self.thread,
            index,
            newest: 0,
        }
    }
}

/// What a ring is to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Chains that were taken; the next available entry is this, modulo 2^16.
    pub taken: u64,
    /// The used index in force.
    pub used: u16,
    /// The one before, which the driver may have been shown last.
    pub shown: u16,
    /// Chains that are taken and not released, in their order: head, and parts that were delivered.
    pub held: Vec<(u16, u16)>,
}

/// A ring's part of the file, in the hands of the thread that has the ring.
#[derive(Debug)]
pub struct RingRecord {
    ledger: Arc<Ledger>,
    port: usize,
    thread: usize,
    index: usize,
    /// Which of the two values is the newest.
    newest: usize,
}

impl RingRecord {
    fn place(&self) -> RingPlace<'_> {
        RingPlace::new(&self.ledger.cells, self.port, self.index)
    }

    /// Where a chain's words are, for [`Ledger::mark`].
    #[inline]
    pub fn chain(&self, head: u16) -> usize {
        self.place().chain(head)
    }

    /// The epoch that is prepared.
    #[inline]
    fn next_epoch(&self) -> u64 {
        self.ledger.epoch(self.thread) + 1
    }

    /// What a ring at this place goes on with, if it is known.
    pub fn resume(&mut self, place: u64, size: u16) -> Option<Resumed> {
        let ring = self.place();
        let word = |at: usize| ring.cells.load(ring.base + at);
        if word(0) != place || word(SIZE) != u64::from(size) {
            return None;
        }
        let newest = ring.newest();
        let value = word(VALUES[newest] + 1);
        let before = match word(VALUES[1 - newest]) {
            0 => value,
            _ => word(VALUES[1 - newest] + 1),
        };
        let mut held: Vec<_> = (0..size).filter_map(|head| ring.held(head)).collect();
        held.sort_unstable();
        let held = held.into_iter().map(|(_, head, parts)| (head, parts));
        let resumed = Resumed {
            taken: value >> 16,
            used: value as u16,
            shown: before as u16,
            held: held.collect(),
        };
        self.newest = newest;
        Some(resumed)
    }

    /// A ring begins at this place, with nothing in flight.
    ///
    /// # Errors
    /// No room in the file system.
    pub fn begin(&mut self, place: u64, size: u16, taken: u64, used: u16) -> anyhow::Result<()> {
        let ring = self.place();
        let words = usize::from(size) * CHAIN;
        self.ledger.reserve(ring.chains, words)?;
        let epoch = self.ledger.epoch(self.thread);
        let store = |at: usize, value: u64| ring.cells.store(ring.base + at, value);
        store(0, 0);
        store(SIZE, u64::from(size));
        store(VALUES[0] + 1, taken << 16 | u64::from(used));
        store(VALUES[0], epoch);
        store(VALUES[1], 0);
        for head in 0..size {
            if ring.cells.load(ring.chain(head)) != 0 {
                ring.cells.store(ring.chain(head), 0);
            }
        }
        store(0, place);
        self.newest = 0;
        Ok(())
    }

    /// The ring has ended.
    pub fn end(&self) {
        self.place().end();
    }

    /// Prepares what holds with the next epoch.
    #[inline]
    pub fn prepare(&mut self, taken: u64, used: u16) {
        let epoch = self.next_epoch();
        let ring = RingPlace::new(&self.ledger.cells, self.port, self.index);
        if ring.cells.load(ring.base + VALUES[self.newest]) != epoch {
            self.newest = 1 - self.newest;
        }
        let at = ring.base + VALUES[self.newest];
        ring.cells.store(at + 1, taken << 16 | u64::from(used));
        ring.cells.store(at, epoch);
    }

    /// Prepares a chain that was taken and stays so. `order` counts chains of the ring.
    pub fn hold(&self, head: u16, order: u64, parts: u16) {
        let (epoch, cells) = (self.next_epoch(), &self.ledger.cells);
        let chain = self.place().chain(head);
        // Not in force until so many chains are taken.
        cells.store(chain, order + 1);
        cells.store(chain + RELEASED, NEVER);
        cells.store(chain + PARTS[0], counted(epoch, parts));
        cells.store(chain + PARTS[1], 0);
    }

    /// Prepares how many parts of a chain that is held are delivered.
    pub fn deliver(&self, head: u16, parts: u16) {
        let word = counted(self.next_epoch(), parts);
        count(&self.ledger.cells, self.chain(head), word);
    }

    /// Prepares the release of a chain that is held.
    #[inline]
    pub fn release(&self, head: u16) {
        let epoch = self.next_epoch();
        let chain = self.place().chain(head);
        self.ledger.cells.store(chain + RELEASED, epoch);
    }
}

/// A ring's words.
struct RingPlace<'a> {
    cells: &'a Cells,
    port: usize,
    base: usize,
    chains: usize,
}

impl<'a> RingPlace<'a> {
    #[inline]
    fn new(cells: &'a Cells, port: usize, index: usize) -> Self {
        Self {
            cells,
            port,
            base: port + RINGS + index * RING,
            chains: port + PAGE + index * CHAINS,
        }
    }

    #[inline]
    fn chain(&self, head: u16) -> usize {
        self.chains + usize::from(head) * CHAIN
    }

    fn end(&self) {
        if self.cells.load(self.base) != 0 {
            self.cells.store(self.base, 0);
        }
    }

    fn newest(&self) -> usize {
        let [first, second] = VALUES.map(|at| self.cells.load(self.base + at));
        usize::from(second > first)
    }

    /// Order, head and delivered parts of a chain that is held, in a ring that is tidy.
    fn held(&self, head: u16) -> Option<(u64, u16, u16)> {
        let chain = self.chain(head);
        let order = self.cells.load(chain);
        if order == 0 || self.cells.load(chain + RELEASED) != NEVER {
            return None;
        }
        let parts = PARTS.map(|at| parts_of(self.cells.load(chain + at)));
        Some((order, head, parts[0].max(parts[1])))
    }

    /// The epoch of a thread; of none that there can be, 0.
    fn epoch(&self, thread: u64) -> u64 {
        let thread = usize::try_from(thread).unwrap_or(usize::MAX);
        let is_one = thread < THREADS_MAX;
        if is_one {
            self.cells.load(EPOCH + EPOCH_STEP * thread)
        } else {
            0
        }
    }

    /// Whether a count of parts is in force.
    fn is_counted(&self, word: u64, epoch: u64) -> bool {
        match word & MARKED {
            0 => word >> 16 <= epoch,
            _ => word >> MARK_PARTS & MARK_EPOCH <= self.epoch((word & !MARKED) >> MARK_THREAD),
        }
    }

    /// Forgets what was prepared and is not in force. Each write leaves in force what was.
    fn tidy(&self) {
        let cells = self.cells;
        let epoch = self.epoch(cells.load(self.port + THREAD));
        let size = cells.load(self.base + SIZE);
        if cells.load(self.base) == 0 || size > u64::from(SIZE_MAX) {
            return self.end();
        }
        for at in VALUES {
            if cells.load(self.base + at) > epoch {
                cells.store(self.base + at, 0);
            }
        }
        let taken = cells.load(self.base + VALUES[self.newest()] + 1) >> 16;
        for head in 0..size as u16 {
            let chain = self.chain(head);
            if cells.load(chain) == 0 {
                continue;
            }
            if cells.load(chain) > taken || cells.load(chain + RELEASED) <= epoch {
                cells.store(chain, 0);
                continue;
            }
            if cells.load(chain + RELEASED) != NEVER {
                cells.store(chain + RELEASED, NEVER);
            }
            for at in PARTS {
                if !self.is_counted(cells.load(chain + at), epoch) {
                    cells.store(chain + at, 0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_start_waits_for_a_switch_that_is_ending_and_for_no_other() {
        let path = std::env::temp_dir().join(format!("sg-ledger-{}-ending", std::process::id()));
        let running = Ledger::open(&path).expect("it is made");
        let error = Ledger::open(&path).expect_err("it is refused");
        assert!(error.to_string().contains("runs already"), "{error:#}");
        let ending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(running);
        });
        Ledger::open(&path).expect("it is taken");
        ending.join().expect("it ends");
        fs::remove_file(path).expect("it was there");
    }

    #[test]
    fn only_a_state_of_this_user_is_taken_and_anything_else_is_left_as_it_is() {
        let directory = std::env::temp_dir().join(format!("sg-ledger-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let at = |name: &str| directory.join(name);
        fs::write(at("text"), "a text").expect("a file");
        fs::write(at("short"), "sluice").expect("a file");
        symlink(at("text"), at("link")).expect("a link");
        fs::write(at("open"), "").expect("a file");
        fs::write(at("twice"), "").expect("a file");
        for name in ["text", "short", "twice"] {
            let only = fs::Permissions::from_mode(0o600);
            fs::set_permissions(at(name), only).expect("its mode");
        }
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o666)).expect("its mode");
        fs::hard_link(at("twice"), at("second")).expect("a link");
        for name in ["text", "short", "link", "open", "twice"] {
            let before = fs::read(at(name)).expect("read");
            let error = Ledger::open(&at(name)).expect_err("it is refused");
            let error = format!("{error:#}");
            let part = if name == "link" { "a link" } else { "no state" };
            assert!(error.contains(part), "{name}: {error}");
            assert_eq!(fs::read(at(name)).expect("read"), before, "{name}");
        }
        // A state is taken again, of another form too, and one that was being made.
        drop(Ledger::open(&at("state")).expect("it is made"));
        for beginning in [&b""[..], &(MAGIC ^ 3).to_ne_bytes()] {
            let ledger = Ledger::open(&at("state")).expect("it is taken");
            ledger.claim(3, "vm").expect("room");
            drop(ledger);
            let ledger = Ledger::open(&at("state")).expect("it is taken");
            assert_eq!(ledger.find("vm"), Some(3));
            drop(ledger);
            fs::write(at("state"), beginning).expect("a beginning");
        }
        let ledger = Ledger::open(&at("state")).expect("it is taken");
        assert_eq!(ledger.find("vm"), None);
        fs::remove_dir_all(&directory).expect("removed");
    }
}
