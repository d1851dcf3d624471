//! The layout of the shared memory, and its file, whose length is sealed.
//!
//! ```text
//!  page 0   of each direction: index offered, index returned, receiver asks, sender asks
//!  tables   of each direction: entries offered (8 bytes each), buffers returned (2 bytes each)
//!  buffers  of each direction
//! ```
//!
//! An entry is a buffer's number (2 bytes), flags (2) and the bytes used in it (4), little endian.
//! A frame is one entry or several in a row; the first buffer begins with the header of virtio-net.

use std::{fs::File, io, sync::Arc};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use serde::{Deserialize, Serialize};

use crate::memory::{Memory, Piece, Refused, Region, Word};

/// Buffers of a direction if the file does not say.
pub const SLOTS: u16 = 1024;
/// Fewest and most buffers of a direction.
pub const SLOTS_MIN: u16 = 64;
/// See [`SLOTS_MIN`].
pub const SLOTS_MAX: u16 = 16_384;
/// Bytes of a buffer if the file does not say: a frame of 1514 bytes with its header fits.
pub const BUFFER: u32 = 2048;
/// Shortest and longest buffer, bytes.
pub const BUFFER_MIN: u32 = 512;
/// See [`BUFFER_MIN`].
pub const BUFFER_MAX: u32 = 65_536;
/// All buffers of a direction hold at least this, bytes: the longest frame.
pub const RING_BYTES_MIN: u64 = 128 << 10;
/// And at most this.
pub const RING_BYTES_MAX: u64 = 64 << 20;

/// Two lines of the cache, since processors fetch them in pairs.
const LINE: u64 = 128;
const PAGE: u64 = 4096;
const ENTRY: u64 = 8;
const RETURN: u64 = 2;

/// What nobody may do to the file: make it shorter or longer, or change what nobody may do.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Sizes of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Buffers, a power of two.
    pub slots: u16,
    /// Bytes of each, a power of two.
    pub buffer: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            slots: SLOTS,
            buffer: BUFFER,
        }
    }
}

/// The words of one direction.
#[derive(Debug)]
pub struct Words {
    /// Entries that the sender has offered.
    pub offered: Word,
    /// Buffers that the receiver has returned.
    pub returned: Word,
    /// The receiver sleeps and asks to be kicked.
    pub receiver_asks: Word,
    /// The sender waits for buffers and asks to be kicked.
    pub sender_asks: Word,
}

impl Layout {
    /// Of numbers that come from elsewhere.
    ///
    /// # Errors
    /// The reason why a cable cannot be so.
    pub fn new(slots: u32, buffer: u32) -> Result<Self, String> {
        let ring = u64::from(slots) * u64::from(buffer);
        let range = u32::from(SLOTS_MIN)..=u32::from(SLOTS_MAX);
        if !range.contains(&slots) || !slots.is_power_of_two() {
            return Err(format!("a ring cannot have {slots} buffers"));
        }
        if !(BUFFER_MIN..=BUFFER_MAX).contains(&buffer) || !buffer.is_power_of_two() {
            return Err(format!("a buffer cannot have {buffer} bytes"));
        }
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring) {
            return Err(format!("the buffers of a ring cannot have {ring} bytes"));
        }
        Ok(Self {
            slots: slots as u16,
            buffer,
        })
    }

    fn tables(self) -> u64 {
        (u64::from(self.slots) * (ENTRY + RETURN)).next_multiple_of(PAGE)
    }

    /// Length of the file in bytes.
    pub fn bytes(self) -> u64 {
        self.buffers(2)
    }

    fn buffers(self, direction: u64) -> u64 {
        let ring = u64::from(self.slots) * u64::from(self.buffer);
        PAGE + 2 * self.tables() + direction * ring
    }

    /// The words of a direction.
    ///
    /// # Errors
    /// The memory is shorter.
    pub fn words(self, memory: &Memory, direction: usize) -> Result<Words, Refused> {
        let word = |number: u64| {
            let at = (direction as u64 * 4 + number) * LINE;
            let piece = memory.guest(at, 2);
            memory.word(piece.ok_or_else(|| Refused("the memory is too short".to_owned()))?)
        };
        Ok(Words {
            offered: word(0)?,
            returned: word(1)?,
            receiver_asks: word(2)?,
            sender_asks: word(3)?,
        })
    }

    /// The pieces of a direction.
    pub fn places(self, direction: usize) -> Places {
        let direction = direction as u64;
        let entries = PAGE + direction * self.tables();
        Places {
            layout: self,
            entries,
            returns: entries + u64::from(self.slots) * ENTRY,
            buffers: self.buffers(direction),
        }
    }

    /// A new file of this length, sealed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make(self) -> io::Result<File> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("sluicegate-cable", flags)?);
        ftruncate(&file, self.bytes())?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(file)
    }

    /// Maps a file that another process may have made.
    ///
    /// # Errors
    /// It may change its length, or has another one.
    pub fn map(self, file: &File) -> Result<Arc<Memory>, String> {
        let seals = fcntl_get_seals(file).map_err(|_| "the memory cannot be sealed".to_owned())?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err("the memory is not sealed".to_owned());
        }
        let text = |error: io::Error| error.to_string();
        let (held, wanted) = (file.metadata().map_err(text)?.len(), self.bytes());
        if held != wanted {
            return Err(format!("the memory has {held} bytes and not {wanted}"));
        }
        let file = file.try_clone().map_err(text)?;
        let region = Region::map(0, 0, wanted, file, 0).map_err(|refused| refused.0)?;
        let memory = Memory::new(vec![Arc::new(region)]).map_err(|refused| refused.0)?;
        Ok(Arc::new(memory))
    }
}

/// Where the tables and buffers of a direction are.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Sizes.
    pub layout: Layout,
    entries: u64,
    returns: u64,
    buffers: u64,
}

impl Places {
    fn piece(memory: &Memory, at: u64, bytes: u32) -> Piece {
        // The file is as long as its layout says: see `Layout::map`.
        memory.guest(at, bytes).unwrap_or_default()
    }

    /// The entry of an index.
    #[inline]
    pub fn entry(&self, memory: &Memory, index: u16) -> Piece {
        let at = self.entries + u64::from(index % self.layout.slots) * ENTRY;
        Self::piece(memory, at, ENTRY as u32)
    }

    /// The place of a returned buffer's number.
    #[inline]
    pub fn returned(&self, memory: &Memory, index: u16) -> Piece {
        let at = self.returns + u64::from(index % self.layout.slots) * RETURN;
        Self::piece(memory, at, RETURN as u32)
    }

    /// The first bytes of a buffer, at most as many as it has.
    #[inline]
    pub fn buffer(&self, memory: &Memory, number: u16, bytes: u32) -> Piece {
        let at = self.buffers + u64::from(number) * u64::from(self.layout.buffer);
        Self::piece(memory, at, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_within_the_file() {
        for layout in [(64, 2048), (1024, 2048), (16_384, 512), (64, 65_536)] {
            let layout = Layout::new(layout.0, layout.1).expect("a layout");
            let file = layout.make().expect("a file");
            let memory = layout.map(&file).expect("a memory");
            let mut all = Vec::new();
            for direction in 0..2 {
                layout.words(&memory, direction).expect("its words");
                let places = layout.places(direction);
                for number in 0..layout.slots {
                    all.push(places.entry(&memory, number));
                    all.push(places.returned(&memory, number));
                    all.push(places.buffer(&memory, number, layout.buffer));
                }
            }
            let mut all: Vec<_> = all
                .iter()
                .map(|&piece| (memory.address(piece), u64::from(piece.len)))
                .collect();
            all.sort_unstable();
            assert!(all[0].0 >= PAGE && all.iter().all(|&(_, bytes)| bytes > 0));
            assert!(all.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            let last = all[all.len() - 1];
            assert_eq!(last.0 + last.1, layout.bytes());
        }
    }

    #[test]
    fn a_memory_whose_length_may_change_or_is_another_is_refused() {
        let layout = Layout::default();
        let file = layout.make().expect("a file");
        assert!(ftruncate(&file, 0).is_err(), "it is sealed");
        assert!(ftruncate(&file, layout.bytes() * 2).is_err());
        let refused = |file: &File| layout.map(file).expect_err("it is refused");
        let other = Layout::new(64, 2048).map(|other| other.make().expect("a file"));
        assert!(refused(&other.expect("a layout")).contains("bytes and not"));
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let open = File::from(memfd_create("open", flags).expect("memfd"));
            ftruncate(&open, layout.bytes()).expect("its length");
            fcntl_add_seals(&open, seals).expect("seals");
            assert_eq!(refused(&open), "the memory is not sealed");
        }
        let plain = std::env::temp_dir().join(format!("sg-shm-{}", std::process::id()));
        let plain_file = File::create_new(&plain).expect("a file");
        let _ = std::fs::remove_file(&plain);
        plain_file.set_len(layout.bytes()).expect("its length");
        // A file of tmpfs has seals, and none of these.
        let reason = refused(&plain_file);
        assert!(reason.contains("seal"), "{reason}");
    }

    #[test]
    fn sizes_are_bounded() {
        for (slots, buffer) in [(63, 2048), (96, 2048), (64, 512), (32_768, 512), (64, 1000)] {
            Layout::new(slots, buffer).expect_err("it is refused");
        }
        Layout::new(16_384, 65_536).expect_err("a gigabyte");
    }
}
