//! The driver of a guest's network adapter, as fast as one thread can be: frames are written once,
//! and only [`PATCH`] bytes of each change.

use std::{
    fs::File,
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use sluicegate_dataplane::{
    memory::{Memory, Piece, Region, Word},
    offload::HEADER,
    vhost::feature,
};
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{Frontend, VhostUserFrontend},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::stream::{PATCH, PATCH_AT, Patch, Stream};

/// Entries of a ring.
pub const SIZE: u16 = 256;

const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const RING: u64 = 0x8000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
const BUFFERS: u64 = 0x10_0000;
/// Of the flags of both rings: the other side polls.
const POLLS: u16 = 1;
const WRITABLE: u16 = 2;

/// Buffers for frames of at most 1514 bytes, and for segments of 64 KB.
pub const SHORT: u64 = 2048;
/// See [`SHORT`].
pub const LONG: u64 = 1 << 17;

/// Features of a guest that leaves no work, and of one that leaves segments to cut.
pub const PLAIN: u64 = feature::VERSION_1 | feature::MERGEABLE | feature::PROTOCOL;
/// See [`PLAIN`].
pub const SEGMENTS: u64 =
    PLAIN | feature::CHECKSUM | feature::HOST_TSO4 | feature::GUEST_CHECKSUM | feature::GUEST_TSO4;

struct Ring {
    index: usize,
    /// Where its buffers are, from the beginning of the memory.
    buffers: u64,
    available_flags: Word,
    available_index: Word,
    used_flags: Word,
    used_index: Word,
    /// By entry.
    available: Vec<Piece>,
    /// By entry.
    used: Vec<Piece>,
    /// By buffer, the bytes that change.
    patches: Vec<Piece>,
    next_available: u16,
    next_used: u16,
    kick: EventFd,
    call: EventFd,
}

/// A guest.
pub struct Driver {
    memory: Memory,
    /// Keeps its descriptor open.
    _file: File,
    frontend: Frontend,
    transmit: Ring,
    receive: Ring,
    free: Vec<u16>,
    buffer: u64,
}

impl Driver {
    /// Connects to a vhost-user port that listens there.
    pub fn connect(path: &Path, features: u64, buffer: u64) -> Result<Self> {
        let start = Instant::now();
        while UnixStream::connect(path).is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                bail!("no switch listens at {}", path.display());
            }
            thread::sleep(Duration::from_millis(10));
        }
        // The connection above was one too, and must end first.
        thread::sleep(Duration::from_millis(50));
        let mut frontend = Frontend::connect(path, 2).context("connecting")?;
        let bytes = 2 * BUFFERS + 2 * u64::from(SIZE) * buffer;
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, bytes)?;
        let region = Region::map(GUEST, USER, bytes, file.try_clone()?, 0);
        let region = region.map_err(|refused| anyhow!(refused.0))?;
        let memory = Memory::new(vec![Arc::new(region)]).map_err(|refused| anyhow!(refused.0))?;
        frontend.set_owner()?;
        let features = features & frontend.get_features()?;
        if features & feature::PROTOCOL != 0 {
            let offered = frontend.get_protocol_features()?;
            let none = offered & vhost::vhost_user::VhostUserProtocolFeatures::REPLY_ACK;
            frontend.set_protocol_features(none)?;
        }
        frontend.set_features(features)?;
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: bytes,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        }])?;
        let mut driver = Self {
            receive: Ring::new(&memory, 0, buffer)?,
            transmit: Ring::new(&memory, 1, buffer)?,
            memory,
            _file: file,
            frontend,
            free: (0..SIZE).collect(),
            buffer,
        };
        for slot in 0..SIZE {
            driver.describe(0, slot, buffer as u32, WRITABLE);
            driver.receive.offer(&driver.memory, slot);
        }
        driver.receive.show();
        driver.start(features)?;
        Ok(driver)
    }

    fn start(&mut self, features: u64) -> Result<()> {
        for ring in [&self.receive, &self.transmit] {
            let (index, base) = (ring.index, USER + ring.index as u64 * RING);
            ring.available_flags.store(POLLS);
            let frontend = &mut self.frontend;
            frontend.set_vring_num(index, SIZE)?;
            let config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: base,
                used_ring_addr: base + USED,
                avail_ring_addr: base + AVAILABLE,
                log_addr: None,
            };
            frontend.set_vring_addr(index, &config)?;
            frontend.set_vring_base(index, 0)?;
            frontend.set_vring_call(index, &ring.call)?;
            frontend.set_vring_kick(index, &ring.kick)?;
            if features & feature::PROTOCOL != 0 {
                frontend.set_vring_enable(index, true)?;
            }
        }
        // The answer says that all was done.
        self.frontend.get_features()?;
        Ok(())
    }

    fn describe(&self, ring: usize, slot: u16, bytes: u32, flags: u16) {
        let mut descriptor = [0; 16];
        let at = GUEST + buffers(ring, self.buffer) + u64::from(slot) * self.buffer;
        descriptor[..8].copy_from_slice(&at.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        let base = GUEST + ring as u64 * RING + 16 * u64::from(slot);
        if let Some(piece) = self.memory.guest(base, 16) {
            self.memory.store(piece, descriptor);
        }
    }

    /// Writes a frame, and the header before it, into all buffers by which it sends. None may be
    /// under way.
    pub fn load(&mut self, header: [u8; HEADER], frame: &[u8]) -> Result<()> {
        let start = Instant::now();
        while self.room() < usize::from(SIZE) {
            if start.elapsed() > Duration::from_secs(5) {
                bail!(
                    "the switch keeps {} frames",
                    usize::from(SIZE) - self.room()
                );
            }
            thread::sleep(Duration::from_millis(1));
        }
        let bytes = [&header, frame].concat();
        for slot in 0..SIZE {
            let at = GUEST + self.transmit.buffers + u64::from(slot) * self.buffer;
            let piece = self.memory.guest(at, bytes.len() as u32);
            self.memory.write(piece.context("a long frame")?, &bytes);
            self.describe(1, slot, bytes.len() as u32, 0);
        }
        Ok(())
    }

    /// Frames that may be sent now.
    #[inline]
    pub fn room(&mut self) -> usize {
        while let Some(head) = self.transmit.used(&self.memory) {
            self.free.push(head);
        }
        self.free.len()
    }

    /// Sends at most so many frames; how many there was room for.
    #[inline]
    pub fn send(&mut self, most: usize, stream: &mut Stream) -> usize {
        let count = self.room().min(most);
        for _ in 0..count {
            let Some(slot) = self.free.pop() else { break };
            let piece = self.transmit.patches[usize::from(slot)];
            self.memory.store(piece, stream.next());
            self.transmit.offer(&self.memory, slot);
        }
        if count > 0 {
            self.transmit.show();
        }
        count
    }

    /// Takes at most so many frames of those that have come.
    #[inline]
    pub fn receive(&mut self, most: usize, mut each: impl FnMut(&Patch)) -> usize {
        let mut count = 0;
        while count < most {
            let Some(head) = self.receive.used(&self.memory) else {
                break;
            };
            each(&self.memory.load(self.receive.patches[usize::from(head)]));
            self.receive.offer(&self.memory, head);
            count += 1;
        }
        if count > 0 {
            self.receive.show();
        }
        count
    }
}

fn buffers(ring: usize, buffer: u64) -> u64 {
    BUFFERS + ring as u64 * u64::from(SIZE) * buffer
}

impl Ring {
    fn new(memory: &Memory, index: usize, buffer: u64) -> Result<Self> {
        let base = GUEST + index as u64 * RING;
        let piece = |at: u64, bytes: u32| memory.guest(at, bytes).context("in memory");
        let word = |at: u64| {
            let word = memory.word(piece(base + at, 2)?);
            word.map_err(|refused| anyhow!(refused.0))
        };
        let each = |at: u64, step: u64, bytes: u32| -> Result<Vec<Piece>> {
            let slots = 0..u64::from(SIZE);
            slots.map(|slot| piece(at + slot * step, bytes)).collect()
        };
        let buffers = buffers(index, buffer);
        let patch = GUEST + buffers + (HEADER + PATCH_AT) as u64;
        Ok(Self {
            index,
            buffers,
            available_flags: word(AVAILABLE)?,
            available_index: word(AVAILABLE + 2)?,
            used_flags: word(USED)?,
            used_index: word(USED + 2)?,
            available: each(base + AVAILABLE + 4, 2, 2)?,
            used: each(base + USED + 4, 8, 8)?,
            patches: each(patch, buffer, PATCH as u32)?,
            next_available: 0,
            next_used: 0,
            kick: EventFd::new(EFD_NONBLOCK)?,
            call: EventFd::new(EFD_NONBLOCK)?,
        })
    }

    #[inline]
    fn offer(&mut self, memory: &Memory, head: u16) {
        let entry = usize::from(self.next_available % SIZE);
        memory.store(self.available[entry], head.to_le_bytes());
        self.next_available = self.next_available.wrapping_add(1);
    }

    /// Shows the switch what was offered, and kicks it if it sleeps.
    #[inline]
    fn show(&self) {
        self.available_index.store(self.next_available);
        fence(Ordering::SeqCst);
        if self.used_flags.load() & POLLS == 0 {
            // A kick that is there already is enough.
            let _ = self.kick.write(1);
        }
    }

    #[inline]
    fn used(&mut self, memory: &Memory) -> Option<u16> {
        if self.used_index.load() == self.next_used {
            return None;
        }
        let entry = self.used[usize::from(self.next_used % SIZE)];
        let bytes: [u8; 8] = memory.load(entry);
        self.next_used = self.next_used.wrapping_add(1);
        Some(u16::from_le_bytes([bytes[0], bytes[1]]) % SIZE)
    }
}
