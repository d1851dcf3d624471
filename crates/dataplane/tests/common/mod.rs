//! A guest with the driver of a network adapter, and the switch that it is tested with.

#![allow(dead_code)] // tests of `cli` and a benchmark use a part

pub mod cables;
pub mod others;
pub mod process;
pub mod spaces;

use std::{
    fs::File,
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, ftruncate, memfd_create},
};
use sluicegate_dataplane::{
    config::Config,
    memory::{Memory, Piece, Region, Word},
    offload::{Family, HEADER, Work},
    service::Service,
    vhost::feature,
};
use vhost::{
    VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures},
};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Entries of a ring.
pub const SIZE: u16 = 256;
/// A guest's memory starts here, in the guest and in its frontend.
pub const GUEST: u64 = 0x10_0000;
pub const USER: u64 = 0x7f00_0000_0000;

/// Bytes of a buffer: a frame of 1514 bytes with its header fits.
pub const BUFFER: u64 = 2048;
const RING: u64 = 0x8000;
const BUFFERS: u64 = 0x10_0000;
const BYTES: u64 = 2 * BUFFERS + 2 * SIZE as u64 * BUFFER;

/// A limit for what never takes so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The features of a driver of a Linux guest.
pub const LINUX: u64 = feature::OFFERED & !feature::INDIRECT & !feature::LOG_ALL;
/// Those of one that leaves no work and takes none.
pub const PLAIN: u64 = feature::VERSION_1 | feature::MERGEABLE | feature::PROTOCOL;

/// A key of `[switch]`: a guest that is silent for hours is not forgotten. Frames to an unknown
/// address are flooded, and those that find no room then are dropped.
pub const REMEMBERS: &str = "ageing = \"100000s\"";

/// A key of `[switch]`: frames for a receiver that takes nothing are kept however slow a test is.
pub const WAITS: &str = "stall_limit = \"never\"\n";

/// The table `[switch]` with these keys, and [`WAITS`] where they say nothing of it.
pub fn switch_table(keys: &str) -> String {
    let waits = if keys.contains("stall_limit") {
        ""
    } else {
        WAITS
    };
    format!("[switch]\n{keys}\n{waits}")
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Does something while a switch's first thread does nothing.
pub fn halted(service: &Service, what: impl FnOnce()) {
    let (halts, halted) = channel();
    let (go_on, goes_on) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stands = service.handle().call(move |_| {
                halts.send(()).expect("a test");
                // An error means that the test is over.
                let _ = goes_on.recv();
            });
            stands.expect("it runs");
        });
        halted.recv().expect("a switch");
        what();
        drop(go_on);
    });
}

/// A running switch with its directory.
pub struct Bench {
    pub service: Arc<Service>,
    pub directory: PathBuf,
    text: String,
}

impl Bench {
    /// With this `[switch]` table and a port for each name, with further keys. `SG_THREADS` says of
    /// how many threads, where the table does not.
    pub fn new(switch: &str, ports: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("sg-switch-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let socket = directory.join("switch.sock");
        let mut text = switch_table(&format!("socket = \"{}\"\n{switch}", socket.display()));
        let threads = std::env::var("SG_THREADS").ok();
        if let Some(threads) = threads.filter(|_| !switch.contains("threads =")) {
            text += &format!("threads = {threads}\n");
        }
        for (name, keys) in ports {
            let socket = directory.join(format!("{name}.sock"));
            let socket = socket.display();
            text += &format!("[[port]]\nname = \"{name}\"\nvhost_user = \"{socket}\"\n{keys}\n");
        }
        let config = Config::parse("test", &text).expect("a configuration");
        let service = Arc::new(Service::start(config).expect("a switch"));
        Self {
            service,
            directory,
            text,
        }
    }

    /// Its configuration.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A guest at a port.
    pub fn guest(&self, port: &str, features: u64) -> Guest {
        Guest::connect(&self.directory.join(format!("{port}.sock")), features)
    }

    /// Asks the worker of a port, by its number.
    pub fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut sluicegate_dataplane::worker::Worker) -> T + Send + 'static,
    ) -> T {
        self.service.handle().call(order).expect("it runs")
    }

    /// Who has frames that wait for a port, and since when it has no room, ns; of all threads.
    pub fn waiting(&self, port: u16) -> (Vec<(u16, usize)>, Option<u64>) {
        let each = self.service.each(|worker| worker.engine.waits());
        let waits = each.expect("it runs").concat();
        let waits = waits.into_iter().filter(|it| it.to == port);
        let whole = waits.reduce(|mut sum, it| {
            sum.add(&it);
            sum
        });
        whole.map_or((Vec::new(), None), |it| (it.from, Some(it.since_ns)))
    }

    /// Frames that the switch holds.
    pub fn held(&self) -> usize {
        let each = self.service.each(|worker| worker.engine.held_here());
        each.expect("it runs").iter().sum()
    }

    /// Frames dropped at any port.
    pub fn dropped(&self) -> u64 {
        let each = self.service.each(|worker| {
            let ports = worker.engine.bays();
            ports.map(|(_, bay)| bay.counters.dropped()).sum::<u64>()
        });
        each.expect("it runs").iter().sum()
    }

    /// Frames dropped at a port for a reason.
    pub fn drops(&self, port: u16, reason: sluicegate_dataplane::count::Drop) -> u64 {
        let each = self.service.each(move |worker| {
            let bay = worker.engine.bay_mut(port).expect("a port");
            bay.counters.drops[reason as usize]
        });
        each.expect("it runs").iter().sum()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.service.end();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A driver's side of a ring.
pub struct DriverRing {
    index: usize,
    pub available_index: Word,
    pub used_index: Word,
    base: u64,
    pub next_available: u16,
    next_used: u16,
    free: Vec<u16>,
    pub kick: EventFd,
    pub call: EventFd,
}

fn half(value: u16) -> [u8; 2] {
    value.to_le_bytes()
}

/// A guest.
pub struct Guest {
    pub memory: Memory,
    pub file: File,
    pub frontend: Frontend,
    /// Its connection, once it has connected again.
    stream: Option<UnixStream>,
    pub transmit: DriverRing,
    pub receive: DriverRing,
    /// Rings of another queue pair: for sending, and for receiving.
    others: Option<(DriverRing, DriverRing)>,
    header: usize,
}

impl Guest {
    /// Starts a second queue pair, which is the one in use from now on.
    pub fn add_pair(&mut self, features: u64) {
        let rings = (Self::ring(&self.memory, 3), Self::ring(&self.memory, 2));
        self.others = Some(rings);
        self.change_pair();
        self.start(features, [0, 0]).expect("rings");
        for slot in 0..SIZE {
            self.give(slot);
        }
    }

    /// Uses the other queue pair.
    pub fn change_pair(&mut self) {
        if let Some((transmit, receive)) = &mut self.others {
            std::mem::swap(&mut self.transmit, transmit);
            std::mem::swap(&mut self.receive, receive);
        }
    }
}

impl Guest {
    /// Connects to a port with these features, of those that it offers.
    pub fn connect(path: &std::path::Path, features: u64) -> Self {
        until("a connection", || UnixStream::connect(path).is_ok());
        // The connection above was one too, and must end first.
        thread::sleep(Duration::from_millis(1));
        let frontend = Frontend::connect(path, 4).expect("the port");
        Self::over(frontend, features)
    }

    fn over(mut frontend: Frontend, features: u64) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd"));
        ftruncate(&file, BYTES).expect("its length");
        let region = Region::map(GUEST, USER, BYTES, file.try_clone().expect("a copy"), 0);
        let memory = Memory::new(vec![Arc::new(region.expect("a region"))]).expect("a memory");
        let features = Self::negotiate(&mut frontend, features).expect("features");
        frontend
            .set_mem_table(&[Self::region(&file)])
            .expect("memory");
        let merges = features & (feature::MERGEABLE | feature::VERSION_1) != 0;
        let mut guest = Self {
            receive: Self::ring(&memory, 0),
            transmit: Self::ring(&memory, 1),
            memory,
            file,
            frontend,
            stream: None,
            others: None,
            header: if merges { HEADER } else { 10 },
        };
        guest.start(features, [0, 0]).expect("rings");
        for slot in 0..SIZE {
            guest.give(slot);
        }
        guest
    }

    /// Connects again, as QEMU does when it has lost the switch: from the entries that are used.
    /// None if the switch ends meanwhile.
    pub fn reconnect(&mut self, path: &std::path::Path, features: u64) -> Option<()> {
        let stream = UnixStream::connect(path).ok()?;
        self.stream = stream.try_clone().ok();
        self.frontend = Frontend::from_stream(stream, 4);
        let bases = [&self.receive, &self.transmit].map(|ring| ring.used_index.load());
        let features = Self::negotiate(&mut self.frontend, features).ok()?;
        let region = Self::region(&self.file);
        self.frontend.set_mem_table(&[region]).ok()?;
        self.start(features, bases).ok()
    }

    /// Whether the switch has gone.
    pub fn is_alone(&self) -> bool {
        let Some(stream) = &self.stream else {
            return true;
        };
        let mut ready = [PollFd::new(stream, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0)
    }

    fn negotiate(frontend: &mut Frontend, features: u64) -> vhost::Result<u64> {
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        let features = features & offered;
        if features & feature::PROTOCOL != 0 {
            let protocol = frontend.get_protocol_features()?;
            let wanted = VhostUserProtocolFeatures::REPLY_ACK
                | VhostUserProtocolFeatures::LOG_SHMFD
                | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
            frontend.set_protocol_features(protocol & wanted)?;
        }
        frontend.set_features(features)?;
        Ok(features)
    }

    /// The region of this memory, for its frontend.
    pub fn region(file: &File) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST,
            memory_size: BYTES,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: file.as_raw_fd(),
        }
    }

    fn ring(memory: &Memory, index: usize) -> DriverRing {
        let base = index as u64 * RING;
        let word = |offset: u64| {
            let piece = memory.guest(GUEST + base + offset, 2).expect("in memory");
            memory.word(piece).expect("aligned")
        };
        DriverRing {
            index,
            available_index: word(0x4000 + 2),
            used_index: word(0x6000 + 2),
            base,
            next_available: 0,
            next_used: 0,
            free: (0..SIZE).collect(),
            kick: EventFd::new(EFD_NONBLOCK).expect("eventfd"),
            call: EventFd::new(EFD_NONBLOCK).expect("eventfd"),
        }
    }

    fn start(&mut self, features: u64, bases: [u16; 2]) -> vhost::Result<()> {
        for (ring, base_index) in [&self.receive, &self.transmit].into_iter().zip(bases) {
            let (index, base) = (ring.index, USER + ring.base);
            let frontend = &mut self.frontend;
            frontend.set_vring_num(index, SIZE)?;
            let config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: base,
                used_ring_addr: base + 0x6000,
                avail_ring_addr: base + 0x4000,
                log_addr: None,
            };
            frontend.set_vring_addr(index, &config)?;
            frontend.set_vring_base(index, base_index)?;
            frontend.set_vring_call(index, &ring.call)?;
            frontend.set_vring_kick(index, &ring.kick)?;
            if features & feature::PROTOCOL != 0 {
                frontend.set_vring_enable(index, true)?;
            }
        }
        // A frontend without acknowledgements knows by an answer that all was done.
        self.frontend.get_features()?;
        Ok(())
    }

    /// Logs what is written, as a frontend does while its guest migrates.
    pub fn log(&mut self, features: u64, log: &File) {
        let region = VhostUserDirtyLogRegion {
            mmap_size: log.metadata().expect("its length").len(),
            mmap_offset: 0,
            mmap_handle: log.as_raw_fd(),
        };
        let frontend = &mut self.frontend;
        frontend.set_log_base(0, Some(region)).expect("a log");
        let features = features | feature::LOG_ALL;
        frontend.set_features(features).expect("features");
        for ring in [&self.receive, &self.transmit] {
            let base = USER + ring.base;
            let config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 1,
                desc_table_addr: base,
                used_ring_addr: base + 0x6000,
                avail_ring_addr: base + 0x4000,
                log_addr: Some(GUEST + ring.base + 0x6000),
            };
            frontend.set_vring_addr(ring.index, &config).expect("addr");
        }
        self.frontend.get_features().expect("all was done");
    }

    /// Starts the ring by which it sends once more, with so many entries.
    pub fn restart_transmit(&mut self, size: u16, base_index: u16) {
        let (index, base) = (self.transmit.index, USER + self.transmit.base);
        let config = VringConfigData {
            queue_max_size: SIZE,
            queue_size: size,
            flags: 0,
            desc_table_addr: base,
            used_ring_addr: base + 0x6000,
            avail_ring_addr: base + 0x4000,
            log_addr: None,
        };
        let frontend = &mut self.frontend;
        frontend.set_vring_num(index, size).expect("size");
        frontend.set_vring_addr(index, &config).expect("addresses");
        frontend.set_vring_base(index, base_index).expect("base");
        frontend
            .set_vring_kick(index, &self.transmit.kick)
            .expect("kick");
        frontend.set_vring_enable(index, true).expect("enabled");
    }

    /// The index of the chains that came back to it.
    pub fn transmit_used(&self) -> u16 {
        self.transmit.used_index.load()
    }

    fn at(&self, offset: u64, bytes: u32) -> Piece {
        self.memory.guest(GUEST + offset, bytes).expect("in memory")
    }

    /// Where a buffer of a ring is, from the beginning of the memory.
    pub fn buffer(&self, ring: usize, slot: u16) -> u64 {
        BUFFERS + (ring as u64 * u64::from(SIZE) + u64::from(slot)) * BUFFER
    }

    /// Writes a descriptor of a ring.
    pub fn describe(&self, ring: usize, slot: u16, at: u64, bytes: u32, flags: u16, next: u16) {
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&at.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&half(flags));
        descriptor[14..].copy_from_slice(&half(next));
        let base = ring as u64 * RING + 16 * u64::from(slot);
        self.memory.write(self.at(base, 16), &descriptor);
    }

    fn offer(memory: &Memory, ring: &mut DriverRing, head: u16) {
        let entry = u64::from(ring.next_available % SIZE) * 2;
        let piece = memory.guest(GUEST + ring.base + 0x4004 + entry, 2);
        memory.write(piece.expect("in memory"), &half(head));
        ring.next_available = ring.next_available.wrapping_add(1);
        ring.available_index.store(ring.next_available);
    }

    /// Makes a head available in the ring by which it sends, whatever its descriptors are.
    pub fn offer_head(&mut self, head: u16) {
        Self::offer(&self.memory, &mut self.transmit, head);
        self.transmit.kick.write(1).expect("kick");
    }

    /// Sends a frame by its first buffer, which is free, and kicks nobody.
    pub fn send_quietly(&mut self, frame: &[u8]) {
        let offset = self.buffer(1, 0);
        let bytes = (self.header + frame.len()) as u32;
        let whole = self.at(offset, bytes);
        self.memory.write(whole, &vec![0; self.header]);
        let mut body = whole;
        body.skip(self.header as u32);
        self.memory.write(body, frame);
        self.describe(1, 0, GUEST + offset, bytes, 0, 0);
        Self::offer(&self.memory, &mut self.transmit, 0);
    }

    /// Writes any index of available chains.
    pub fn jump(&mut self, index: u16) {
        self.transmit.available_index.store(index);
        self.transmit.kick.write(1).expect("kick");
    }

    fn give(&mut self, slot: u16) {
        let ring = self.receive.index;
        let at = GUEST + self.buffer(ring, slot);
        self.describe(ring, slot, at, BUFFER as u32, 2, 0);
        Self::offer(&self.memory, &mut self.receive, slot);
    }

    /// Takes back the chains of frames that were sent.
    pub fn reclaim(&mut self) {
        while let Some((head, _)) = Self::used(&self.memory, &mut self.transmit) {
            // The heads of longer frames stand for their first descriptor; see `send_long`.
            self.transmit.free.push(head);
        }
    }

    fn used(memory: &Memory, ring: &mut DriverRing) -> Option<(u16, u32)> {
        if ring.used_index.load() == ring.next_used {
            return None;
        }
        let entry = u64::from(ring.next_used % SIZE) * 8;
        let piece = memory.guest(GUEST + ring.base + 0x6004 + entry, 8);
        let mut bytes = [0; 8];
        memory.read(piece.expect("in memory"), &mut bytes);
        ring.next_used = ring.next_used.wrapping_add(1);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        Some((word(0) as u16, word(4)))
    }

    /// Frames that may be sent now.
    pub fn room(&mut self) -> usize {
        self.reclaim();
        self.transmit.free.len()
    }

    /// Forgets a head that was reclaimed without having been taken from the free ones.
    pub fn transmit_free_last(&mut self) {
        self.transmit.free.pop();
    }

    /// Sends a frame; false if the ring is full.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.send_with([0; HEADER], frame)
    }

    /// Sends a frame with this header before it.
    pub fn send_with(&mut self, header: [u8; HEADER], frame: &[u8]) -> bool {
        if self.transmit.free.is_empty() {
            self.reclaim();
        }
        let Some(slot) = self.transmit.free.pop() else {
            return false;
        };
        let ring = self.transmit.index;
        let offset = self.buffer(ring, slot);
        let bytes = (self.header + frame.len()) as u32;
        let whole = self.at(offset, bytes);
        self.memory.write(whole, &header[..self.header]);
        let mut body = whole;
        body.skip(self.header as u32);
        self.memory.write(body, frame);
        self.describe(ring, slot, GUEST + offset, bytes, 0, 0);
        self.offer_head(slot);
        true
    }

    /// Sends a frame longer than a buffer, in as many as it takes; all of the ring is free before,
    /// and is again when this returns.
    pub fn send_long(&mut self, header: [u8; HEADER], frame: &[u8]) {
        until("a free ring", || self.room() == usize::from(SIZE));
        let mut bytes = header[..self.header].to_vec();
        bytes.extend_from_slice(frame);
        let parts: Vec<_> = bytes.chunks(BUFFER as usize).collect();
        let last = parts.len() as u16 - 1;
        for (slot, part) in parts.iter().enumerate() {
            let slot = slot as u16;
            let offset = self.buffer(1, slot);
            self.memory.write(self.at(offset, part.len() as u32), part);
            let flags = u16::from(slot != last);
            self.describe(1, slot, GUEST + offset, part.len() as u32, flags, slot + 1);
        }
        self.transmit.free.retain(|&slot| slot != 0);
        self.offer_head(0);
    }

    /// The next frame with its header; its buffers are given back at once.
    pub fn receive(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (head, written) = Self::used(&self.memory, &mut self.receive)?;
        let mut bytes = self.take(head, written);
        let buffers = u16::from_le_bytes([bytes[10], bytes[11]]);
        for _ in 1..if self.header == HEADER { buffers } else { 1 } {
            // All buffers of a frame become visible at once.
            let (head, written) = Self::used(&self.memory, &mut self.receive).expect("a part");
            bytes.extend(self.take(head, written));
        }
        let frame = bytes.split_off(self.header);
        self.receive.kick.write(1).expect("kick");
        Some((bytes, frame))
    }

    fn take(&mut self, head: u16, written: u32) -> Vec<u8> {
        let offset = self.buffer(self.receive.index, head);
        let mut bytes = vec![0; written as usize];
        self.memory.read(self.at(offset, written), &mut bytes);
        self.give(head);
        bytes
    }

    /// The next frame, if one comes.
    pub fn expect(&mut self) -> Vec<u8> {
        let mut frame = None;
        until("a frame", || {
            frame = self.receive();
            frame.is_some()
        });
        frame.expect("a frame").1
    }

    /// Takes frames until none comes for a while.
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(100) {
            match self.receive() {
                Some((_, frame)) => {
                    frames.push(frame);
                    last = Instant::now();
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        frames
    }

    /// Stops a ring, as a frontend does before its guest migrates.
    pub fn stop(&mut self, ring: usize) -> u32 {
        self.frontend.get_vring_base(ring).expect("base")
    }
}

/// An address of a guest.
pub fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A frame of so many bytes with a number in it.
pub fn frame(to: [u8; 6], from: [u8; 6], number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(bytes);
    frame.extend(to);
    frame.extend(from);
    frame.extend([0x88, 0xb5]); // for experiments (IEEE 802)
    frame.extend(number.to_be_bytes());
    frame.resize(bytes.max(frame.len()), number as u8);
    frame
}

/// The number in a frame, and who sent it.
pub fn number(frame: &[u8]) -> (u8, u64) {
    let number = u64::from_be_bytes(frame[14..22].try_into().expect("eight bytes"));
    assert!(
        frame[22..].iter().all(|&byte| byte == number as u8),
        "its payload: {number} of {}, {frame:?}",
        frame[11]
    );
    (frame[11], number)
}

/// Lets every guest be heard, so that no frame is flooded.
pub fn introduce(guests: &mut [(&mut Guest, u8)]) {
    for at in 0..guests.len() {
        let from = mac(guests[at].1);
        assert!(guests[at].0.send(&frame([0xff; 6], from, 0, 60)));
        for other in 0..guests.len() {
            if other != at {
                assert_eq!(number(&guests[other].0.expect()), (guests[at].1, 0));
            }
        }
    }
}

/// A segment of TCP over IPv4 with so much payload, without its checksum.
pub fn segment(to: [u8; 6], from: [u8; 6], payload: usize) -> (Vec<u8>, [u8; HEADER]) {
    let mut bytes = Vec::new();
    bytes.extend(to);
    bytes.extend(from);
    bytes.extend([
        8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    bytes.extend([
        4,
        0,
        5,
        0,
        0,
        0,
        0,
        100,
        0,
        0,
        0,
        1,
        5 << 4,
        0x18,
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend((0..payload).map(|at| at as u8));
    let work = Work {
        checksum: Some((34, 16)),
        segment: Some((Family::Tcp4, 1400, false)),
    };
    (bytes, work.header(54))
}
