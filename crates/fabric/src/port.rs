//! The transmit side of one direction of a link: a queue and the wire behind it.
//!
//! A first-in first-out queue needs no event of its own. When a frame arrives, the times are known
//! at which its last bit leaves and reaches the far end. Frames are in one list from their arrival
//! at the port to their arrival at the far end, and only the first one needs a timer. These times
//! are not known for a queue that can be paused or that serves several classes: see [`crate::cee`].

use prefetch_index::prefetch_index;
use sluicegate_core::{
    aqm::{AqmParams, Arrival, Arriving, Red},
    number::{at_most, narrow},
};

use crate::{
    carried::{Period, Sent},
    graph::PortId,
    impair::{Fate, Impaired, Impairment},
    memory::{Memory, MemoryId, SharedMemory},
    pool::{Handle, NIL, Pool},
    random::{draw, exponential},
};

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

/// A frame as a port sees it.
pub trait Frame {
    /// Length in bytes, Ethernet header included.
    fn bytes(&self) -> u32;
    /// Whether it may be marked.
    fn is_ect(&self) -> bool;
    /// Sets CE.
    fn mark(&mut self);
}

/// The configuration of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortConfig {
    /// Bits per second, > 0.
    pub rate_bps: u64,
    /// From the last bit's departure to its arrival: the sum of all constant delays.
    pub delay_ps: u64,
    /// Bytes that the queue may hold, the frame that is being sent included.
    pub limit_bytes: u64,
    /// Marking and early dropping.
    pub aqm: AqmParams,
    /// A frame that finds the port idle leaves up to this much later: a CPU is never quite on time,
    /// and without it flows of equal period keep in step for ever (Floyd & Jacobson, "On Traffic
    /// Phase Effects in Packet-Switched Gateways", 1992).
    pub jitter_ps: u64,
    /// Mean of a further delay, drawn from an exponential distribution: most wake-ups come soon,
    /// few come late.
    pub jitter_mean_ps: u64,
    /// A port that was idle may send as many bytes as its rate allows in this time at once, as a
    /// token bucket does; 0 = a wire, which sends one after another.
    pub burst_ps: u64,
    /// Bytes on the wire beyond [`Frame::bytes`] (preamble, FCS, gap).
    pub overhead_bytes: u32,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The queue was full.
    Tail,
    /// Above the threshold and not ECN-capable.
    NotEct,
    /// Random early detection.
    Red,
    /// The link is down.
    Down,
    /// A bit error damaged the frame.
    Corrupt,
    /// The memory that the switch's ports share, or the buffer of its input, had no room.
    Buffer,
    /// The headroom of a lossless priority was too small.
    Headroom,
}

impl Drop {
    /// Names of the causes, in their order.
    pub const NAMES: [&str; 7] = [
        "tail", "not_ect", "red", "down", "corrupt", "buffer", "headroom",
    ];
}

/// The fate of an offered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is the only frame under way: it arrives at this time, which needs a timer.
    First(u64),
    /// It follows other frames.
    Queued,
    /// It leaves for a far end in another part of the run ([`Ports::set_away`]), where it arrives
    /// at this time.
    Away(u64),
    /// It is dropped.
    Dropped(Drop),
}

/// The counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames that were accepted.
    pub accepted: u64,
    /// Their bytes.
    pub accepted_bytes: u64,
    /// Frames marked.
    pub marks: u64,
    /// Frames dropped, by cause.
    pub drops: [u64; Drop::NAMES.len()],
    /// Frames that an impaired link has added.
    pub duplicates: u64,
}

/// [`Hot::unusual`]: the link is down.
const DOWN: u8 = 1;
/// It is impaired.
const IMPAIRED: u8 = 2;
/// The queue lies in a memory that others share.
const SHARED: u8 = 4;
/// Its far end belongs to another part of the run.
const AWAY: u8 = 8;

/// The properties that ports of the same kind share.
struct Class {
    config: PortConfig,
    /// Time per byte, in 2^-16 ps.
    ps_per_byte_q16: u64,
    /// A frame that makes the backlog no larger than this is neither dropped nor marked.
    harmless_bytes: u64,
    /// Frames leave one after the other and never late.
    is_wire: bool,
}

/// The state of a port that every frame reads and writes: one cache line.
#[repr(C, align(64))]
struct Hot {
    /// First frame that has not arrived at the other end, and the last one.
    first: Handle,
    last: Handle,
    /// First frame that had not left when the backlog was last computed, and the bytes from there
    /// on.
    leaving: Handle,
    backlog_bytes: u64,
    /// When the first one arrives.
    first_ps: u64,
    free_ps: u64,
    accepted: u64,
    accepted_bytes: u64,
    class: u32,
    /// Flags of the rare cases; 0 = an ordinary port.
    unusual: u8,
}

struct Cold {
    red: Red,
    random: u64,
    marks: u64,
    drops: [u64; Drop::NAMES.len()],
    duplicates: u64,
    seed: u64,
    memory: MemoryId,
    /// Since the rate was set last, or the link failed.
    period: Period,
    /// The first period in which the port has sent more than its rate allows.
    excess: Option<String>,
    impaired: Option<Box<Impaired>>,
}

/// Ports and the frames under way at them.
pub struct Ports<F> {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    classes: Vec<Class>,
    memories: Vec<Memory>,
    /// The frames.
    pub pool: Pool<F>,
}

impl<F> Default for Ports<F> {
    fn default() -> Self {
        Self {
            hot: Vec::new(),
            cold: Vec::new(),
            classes: Vec::new(),
            memories: Vec::new(),
            pool: Pool::default(),
        }
    }
}

impl<F: Frame> Ports<F> {
    /// Adds an idle port; returns its number. `seed` makes RED's choices, jitter and impairments.
    pub fn add(&mut self, config: PortConfig, seed: u64) -> PortId {
        let class = self.class(config);
        self.hot.push(Hot {
            first: NIL,
            last: NIL,
            leaving: NIL,
            backlog_bytes: 0,
            first_ps: 0,
            free_ps: 0,
            accepted: 0,
            accepted_bytes: 0,
            class,
            unusual: 0,
        });
        self.cold.push(Cold {
            red: Red::default(),
            random: seed,
            marks: 0,
            drops: [0; Drop::NAMES.len()],
            duplicates: 0,
            seed,
            memory: 0,
            period: Period::new(config.rate_bps),
            excess: None,
            impaired: None,
        });
        PortId(narrow::<u32>(self.hot.len()) - 1)
    }

    /// The number of ports made like this one.
    fn class(&mut self, config: PortConfig) -> u32 {
        let known = self.classes.iter().position(|class| class.config == config);
        let class = known.unwrap_or_else(|| {
            let rate_bps = u128::from(config.rate_bps.max(1));
            let ps_per_byte = (u128::from(8 * PS_PER_S) << 16) / rate_bps;
            self.classes.push(Class {
                config,
                ps_per_byte_q16: u64::try_from(ps_per_byte).unwrap_or(u64::MAX),
                is_wire: config.jitter_ps | config.jitter_mean_ps | config.burst_ps == 0,
                harmless_bytes: config.limit_bytes.min(config.aqm.harmless_bytes()),
            });
            self.classes.len() - 1
        });
        narrow(class)
    }

    /// The rate of frames offered now, in bits per second.
    pub fn rate_bps(&self, port: PortId) -> u64 {
        let class = self.hot[port.index()].class;
        self.classes[class as usize].config.rate_bps
    }

    /// Sets the rate of frames offered from now on, in bits per second. Frames that wait already
    /// keep the departure times that they have.
    pub fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64) {
        self.begin_period(port, now_ps, rate_bps);
        let config = self.classes[self.hot[port.index()].class as usize].config;
        self.hot[port.index()].class = self.class(PortConfig { rate_bps, ..config });
    }

    /// Checks the period that ends now, or with the last frame that waits; a further one begins.
    fn begin_period(&mut self, port: PortId, now_ps: u64, rate_bps: u64) {
        let checked = self.check_rate(port);
        let mut sent = self.sent(port);
        sent.until_ps = sent.until_ps.max(now_ps);
        let cold = &mut self.cold[port.index()];
        cold.excess = cold.excess.take().or(checked.err());
        cold.period = Period::after(sent, rate_bps);
    }

    /// What the port has sent when all frames that it has accepted have left.
    fn sent(&self, port: PortId) -> Sent {
        let hot = &self.hot[port.index()];
        let overhead = self.classes[hot.class as usize].config.overhead_bytes;
        Sent {
            frames: hot.accepted,
            bytes: hot.accepted_bytes + hot.accepted * u64::from(overhead),
            until_ps: hot.free_ps,
        }
    }

    /// Checks that the port has sent no more than its rate allows.
    fn check_rate(&self, port: PortId) -> Result<(), String> {
        let class = &self.classes[self.hot[port.index()].class as usize];
        let cold = &self.cold[port.index()];
        cold.period.check(self.sent(port), class.config.burst_ps)
    }

    /// The far end of this port belongs to another part of the run, which is handed every frame
    /// ([`Offer::Away`], [`Ports::deliver`]): here frames are kept only while they count as
    /// backlog.
    pub fn set_away(&mut self, port: PortId) {
        self.set_unusual(port, AWAY, true);
    }

    /// Takes a frame of a port whose near end belongs to another part of the run. It arrives no
    /// earlier than the last one. True if it is the only one: that needs a timer.
    pub fn deliver(&mut self, port: PortId, frame: Handle, arrival_ps: u64) -> bool {
        let hot = &mut self.hot[port.index()];
        self.pool.sent(frame, arrival_ps);
        hot.append(&mut self.pool, frame, arrival_ps)
    }

    /// Releases the frames that have left for a far end in another part.
    fn forget_left(&mut self, port: PortId, now_ps: u64) {
        let hot = &self.hot[port.index()];
        let delay_ps = self.classes[hot.class as usize].config.delay_ps;
        let left_by = now_ps.saturating_add(delay_ps);
        while self.hot[port.index()].first != NIL && self.hot[port.index()].first_ps <= left_by {
            let Some((frame, _)) = self.arrive(port, u64::MAX) else {
                return;
            };
            self.pool.release(frame);
        }
    }

    /// The ports, in order.
    pub fn ids(&self) -> impl Iterator<Item = PortId> + use<F> {
        PortId::first(self.len())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    /// Prefetches the state of a port.
    #[inline]
    pub fn fetch_port(&self, port: PortId) {
        prefetch_index(&self.hot, port.index());
    }

    /// Prefetches the first frame under way.
    #[inline]
    pub fn fetch_first(&self, port: PortId) {
        self.pool.fetch(self.hot[port.index()].first);
    }

    /// Prefetches the last frame under way.
    #[inline]
    pub fn fetch_last(&self, port: PortId) {
        self.pool.fetch(self.hot[port.index()].last);
    }

    /// The first frame under way.
    #[inline]
    pub fn first(&self, port: PortId) -> Option<&F> {
        let first = self.hot[port.index()].first;
        (first != NIL).then(|| self.pool.look(first).0)
    }

    /// When the last frame accepted so far will have left.
    #[inline]
    pub fn free_ps(&self, port: PortId) -> u64 {
        self.hot[port.index()].free_ps
    }

    /// Bytes in the queue, the frame on its way out included.
    #[inline]
    pub fn backlog_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        match self.hot[port.index()].free_ps <= now_ps {
            true => 0,
            false => self.waiting_bytes(port, now_ps),
        }
    }

    /// [`Ports::backlog_bytes`] of a busy port.
    #[inline(never)]
    fn waiting_bytes(&mut self, port: PortId, now_ps: u64) -> u64 {
        let delay_ps = self.classes[self.hot[port.index()].class as usize]
            .config
            .delay_ps;
        self.hot[port.index()].drain(&self.pool, now_ps, delay_ps)
    }

    /// Offers a frame to a port. Returns its fate; a dropped frame is still in the pool.
    #[inline]
    pub fn offer(&mut self, port: PortId, now_ps: u64, frame: Handle) -> Offer {
        if self.hot[port.index()].unusual != 0 {
            if let Some(cause) = self.prepare(port, now_ps, frame) {
                self.cold[port.index()].drops[cause as usize] += 1;
                return Offer::Dropped(cause);
            }
        }
        let Self {
            hot,
            cold,
            classes,
            pool,
            ..
        } = self;
        let (hot, at) = (&mut hot[port.index()], port.index());
        let class = &classes[hot.class as usize];
        if hot.free_ps <= now_ps {
            (hot.leaving, hot.backlog_bytes) = (NIL, 0);
        }
        let bytes = pool[frame].bytes();
        // Below this backlog a frame is neither dropped nor marked, even if frames that have left
        // since are counted: no need to compute the exact backlog.
        if hot.backlog_bytes + u64::from(bytes) > class.harmless_bytes {
            let cold = &mut cold[at];
            if let Some(cause) = hot.judge((cold, class), pool, now_ps, frame) {
                cold.drops[cause as usize] += 1;
                return Offer::Dropped(cause);
            }
        }
        let on_wire = u64::from(bytes + class.config.overhead_bytes);
        let serialization_ps = (on_wire * class.ps_per_byte_q16) >> 16;
        let arrival_ps = if class.is_wire {
            hot.free_ps = hot.free_ps.max(now_ps) + serialization_ps;
            hot.free_ps + class.config.delay_ps
        } else {
            hot.depart((&mut cold[at], class), pool, now_ps, serialization_ps)
        };
        pool.sent(frame, arrival_ps);
        hot.backlog_bytes += u64::from(bytes);
        hot.accepted += 1;
        hot.accepted_bytes += u64::from(bytes);
        if hot.leaving == NIL {
            hot.leaving = frame;
        }
        let is_first = hot.append(pool, frame, arrival_ps);
        match (hot.is_away(), is_first) {
            (true, _) => Offer::Away(arrival_ps),
            (false, true) => Offer::First(arrival_ps),
            (false, false) => Offer::Queued,
        }
    }

    /// The first frame under way is at the other end. Returns it, and when the next one will be;
    /// `None` if none is there by now: the timer was set before the link went down.
    #[inline]
    pub fn arrive(&mut self, port: PortId, now_ps: u64) -> Option<(Handle, Option<u64>)> {
        let hot = &mut self.hot[port.index()];
        let frame = hot.first;
        if frame == NIL || hot.first_ps > now_ps {
            return None;
        }
        let (content, next, next_ps) = self.pool.look(frame);
        if hot.leaving == frame {
            hot.backlog_bytes -= u64::from(content.bytes());
            hot.leaving = next;
        }
        (hot.first, hot.first_ps) = (next, next_ps);
        // The next frame may have waited for long and be in no cache.
        self.pool.fetch(next);
        Some((frame, (next != NIL).then_some(next_ps)))
    }

    /// The link goes down: frames in the queue and on the wire are lost, and so are all frames
    /// until it is up again.
    pub fn set_up(&mut self, port: PortId, up: bool, now_ps: u64) {
        self.set_unusual(port, DOWN, !up);
        if up {
            return;
        }
        self.begin_period(port, now_ps, self.cold[port.index()].period.rate_bps());
        // The part that has the far end counts the frames that were under way to it.
        let lost = u64::from(!self.hot[port.index()].is_away());
        while let Some((frame, _)) = self.arrive(port, u64::MAX) {
            self.cold[port.index()].drops[Drop::Down as usize] += lost;
            self.pool.release(frame);
        }
        while let Some(frame) = self.late(port, u64::MAX) {
            self.lose(port, frame, Drop::Down);
        }
        self.hot[port.index()].free_ps = now_ps;
        let sent = self.sent(port);
        let cold = &mut self.cold[port.index()];
        cold.period = Period::after(sent, cold.period.rate_bps());
    }

    fn set_unusual(&mut self, port: PortId, bit: u8, set: bool) {
        let unusual = &mut self.hot[port.index()].unusual;
        *unusual = if set { *unusual | bit } else { *unusual & !bit };
    }

    fn lose(&mut self, port: PortId, frame: Handle, cause: Drop) {
        self.cold[port.index()].drops[cause as usize] += 1;
        self.pool.release(frame);
    }

    /// A memory for ports of one switch to share.
    pub fn add_memory(&mut self, shape: SharedMemory) -> MemoryId {
        self.memories.push(Memory::new(shape));
        narrow::<MemoryId>(self.memories.len() - 1)
    }

    /// From now on the queue of this idle port is in that memory.
    pub fn share(&mut self, port: PortId, memory: MemoryId) {
        self.cold[port.index()].memory = memory;
        self.set_unusual(port, SHARED, true);
    }

    /// The checks of a port that is not ordinary; the cause if it drops the frame.
    #[cold]
    fn prepare(&mut self, port: PortId, now_ps: u64, frame: Handle) -> Option<Drop> {
        let unusual = self.hot[port.index()].unusual;
        if unusual & AWAY != 0 {
            self.forget_left(port, now_ps);
        }
        if unusual & DOWN != 0 {
            return Some(Drop::Down);
        }
        let full = unusual & SHARED != 0 && !self.fits_memory(port, now_ps, frame);
        full.then_some(Drop::Buffer)
    }

    /// Whether the memory that the port shares has room for a frame.
    fn fits_memory(&mut self, port: PortId, now_ps: u64, frame: Handle) -> bool {
        let (hot, classes, pool) = (&mut self.hot, &self.classes, &self.pool);
        let memory = &mut self.memories[self.cold[port.index()].memory as usize];
        let mut used = 0;
        memory.busy.retain(|&busy| {
            let delay_ps = classes[hot[busy.index()].class as usize].config.delay_ps;
            let backlog = hot[busy.index()].drain(pool, now_ps, delay_ps);
            used += backlog;
            backlog > 0
        });
        let limit = classes[hot[port.index()].class as usize].config.limit_bytes;
        let delay_ps = classes[hot[port.index()].class as usize].config.delay_ps;
        let backlog = hot[port.index()].drain(pool, now_ps, delay_ps);
        let bytes = pool[frame].bytes().into();
        // Where the queue's own limit is reached, that is the cause.
        let fits = backlog + bytes > limit || memory.admits(used, backlog, bytes);
        if fits && backlog == 0 {
            memory.busy.push(port);
        }
        fits
    }

    /// Sets the impairment of the frames that arrive over the link from now on.
    pub fn set_impairment(&mut self, port: PortId, impairment: Impairment) {
        let cold = &mut self.cold[port.index()];
        let seed = cold.seed;
        let impaired = cold
            .impaired
            .get_or_insert_with(|| Box::new(Impaired::new(seed)));
        impaired.impairment = impairment;
        self.set_unusual(port, IMPAIRED, !impairment.is_none());
    }

    /// The impairment of the link.
    pub fn impairment(&self, port: PortId) -> Impairment {
        let impaired = self.cold[port.index()].impaired.as_ref();
        impaired.map_or_else(Impairment::default, |impaired| impaired.impairment)
    }

    /// Whether frames that arrive over this port's link have to pass [`Ports::fate`].
    #[inline]
    pub fn is_impaired(&self, port: PortId) -> bool {
        self.hot[port.index()].unusual & IMPAIRED != 0
    }

    /// The fate of a frame that has crossed an impaired link. A late frame stays with the port, see
    /// [`Ports::late`]; a damaged one is dropped.
    pub fn fate(&mut self, port: PortId, now_ps: u64, frame: Handle) -> Fate {
        let bytes = self.pool[frame].bytes();
        let cold = &mut self.cold[port.index()];
        let fate = match &mut cold.impaired {
            Some(impaired) => impaired.decide(now_ps, frame, bytes),
            None => Fate::Arrives {
                twice: false,
                late_ps: None,
            },
        };
        match fate {
            Fate::Corrupt => self.lose(port, frame, Drop::Corrupt),
            Fate::Arrives { twice, .. } => cold.duplicates += u64::from(twice),
        }
        fate
    }

    /// The next late frame, if it is due by now.
    pub fn late(&mut self, port: PortId, now_ps: u64) -> Option<Handle> {
        self.cold[port.index()].impaired.as_mut()?.due(now_ps)
    }

    /// The counters of a port.
    pub fn stats(&self, port: PortId) -> PortStats {
        let hot = &self.hot[port.index()];
        PortStats {
            accepted: hot.accepted,
            accepted_bytes: hot.accepted_bytes,
            marks: self.cold[port.index()].marks,
            drops: self.cold[port.index()].drops,
            duplicates: self.cold[port.index()].duplicates,
        }
    }

    /// Checks that frames under way are in the order of their arrival, and that the backlog is
    /// that of the frames that had not left when it was last computed; also that the port has sent
    /// no more than its rate allows.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn audit(&self, port: PortId) -> Result<(), String> {
        let excess = self.cold[port.index()].excess.clone();
        let rate = excess.map_or_else(|| self.check_rate(port), Err);
        rate.map_err(|what| format!("port {port} {what}"))?;
        let hot = &self.hot[port.index()];
        let (mut frame, mut last, mut arrival_ps) = (hot.first, NIL, 0);
        let (mut backlog_bytes, mut is_leaving) = (0, false);
        while frame != NIL {
            if self.pool.arrival_ps(frame) < arrival_ps {
                return Err(format!("frames of port {port} overtake each other"));
            }
            is_leaving |= frame == hot.leaving;
            backlog_bytes += u64::from(is_leaving) * u64::from(self.pool[frame].bytes());
            arrival_ps = self.pool.arrival_ps(frame);
            (last, frame) = (frame, self.pool.next(frame));
        }
        if hot.first != NIL && last != hot.last {
            return Err(format!("port {port} does not know its last frame"));
        }
        match backlog_bytes == hot.backlog_bytes {
            true => Ok(()),
            false => Err(format!(
                "the queue of port {port} holds {backlog_bytes} bytes but counts {}",
                hot.backlog_bytes
            )),
        }
    }

    /// Bytes between a port and its other end.
    pub fn underway_bytes(&self, port: PortId) -> u64 {
        self.pool.bytes(self.hot[port.index()].first)
    }

    /// Frames between a port and its other end, late ones included.
    pub fn underway(&self, port: PortId) -> u64 {
        let hot = &self.hot[port.index()];
        if hot.is_away() {
            return 0;
        }
        let late = self.cold[port.index()].impaired.as_ref();
        self.pool.count(hot.first) + late.map_or(0, |impaired| impaired.late() as u64)
    }
}

impl Hot {
    fn is_away(&self) -> bool {
        self.unusual & AWAY != 0
    }

    /// A frame joins those under way; true if it is the only one.
    #[inline]
    fn append<F: Frame>(&mut self, pool: &mut Pool<F>, frame: Handle, arrival_ps: u64) -> bool {
        let before = std::mem::replace(&mut self.last, frame);
        let is_first = self.first == NIL;
        if is_first {
            (self.first, self.first_ps) = (frame, arrival_ps);
        } else {
            pool.link_after(before, frame, arrival_ps);
        }
        is_first
    }

    /// The cause for which an arriving frame is dropped; `None` if it is accepted, and marked if
    /// AQM says so.
    #[inline(never)]
    fn judge<F: Frame>(
        &mut self,
        (cold, class): (&mut Cold, &Class),
        pool: &mut Pool<F>,
        now_ps: u64,
        frame: Handle,
    ) -> Option<Drop> {
        let backlog_bytes = self.drain(pool, now_ps, class.config.delay_ps);
        let frame = &mut pool[frame];
        let bytes = frame.bytes();
        if backlog_bytes + u64::from(bytes) > class.config.limit_bytes {
            return Some(Drop::Tail);
        }
        let aqm = &class.config.aqm;
        if aqm.kind == 0 {
            return None;
        }
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            // What core compares it with has 32 bits.
            backlog_bytes: at_most(backlog_bytes),
            bytes,
            ect: frame.is_ect(),
            random: if aqm.kind == 1 { 0 } else { cold.draw() },
        };
        match aqm.arrival(&mut cold.red, arriving) {
            Arrival::Pass => None,
            Arrival::Mark => {
                frame.mark();
                cold.marks += 1;
                None
            }
            Arrival::Drop if aqm.kind == 1 => Some(Drop::NotEct),
            Arrival::Drop => Some(Drop::Red),
        }
    }

    /// When a frame arrives whose port is no plain wire: a host's, whose CPU may be late, or a
    /// token bucket.
    fn depart<F>(
        &mut self,
        (cold, class): (&mut Cold, &Class),
        pool: &Pool<F>,
        now_ps: u64,
        serialization_ps: u64,
    ) -> u64 {
        let config = &class.config;
        let mut ready_ps = now_ps;
        if self.free_ps < now_ps {
            ready_ps += cold.late_ps(config.jitter_ps, config.jitter_mean_ps);
        }
        let saved_ps = ready_ps.saturating_sub(config.burst_ps);
        self.free_ps = self.free_ps.max(saved_ps) + serialization_ps;
        let arrival_ps = self.free_ps.max(ready_ps) + config.delay_ps;
        if self.first == NIL {
            return arrival_ps;
        }
        // A late frame delays those behind it.
        arrival_ps.max(pool.arrival_ps(self.last))
    }

    /// Updates the backlog by the frames that have left the queue; returns the bytes that have not.
    fn drain<F: Frame>(&mut self, pool: &Pool<F>, now_ps: u64, delay_ps: u64) -> u64 {
        if self.free_ps <= now_ps {
            self.leaving = NIL;
            self.backlog_bytes = 0;
            return 0;
        }
        let left_by = now_ps.saturating_add(delay_ps);
        while self.leaving != NIL && pool.arrival_ps(self.leaving) <= left_by {
            let (frame, next, _) = pool.look(self.leaving);
            self.backlog_bytes -= u64::from(frame.bytes());
            self.leaving = next;
        }
        self.backlog_bytes
    }
}

impl Cold {
    /// The delay with which a frame that meets an idle port leaves.
    fn late_ps(&mut self, jitter_ps: u64, jitter_mean_ps: u64) -> u64 {
        let uniform_ps = match jitter_ps {
            0 => 0,
            most_ps => (u64::from(self.draw()) * most_ps) >> 32,
        };
        match jitter_mean_ps {
            0 => uniform_ps,
            mean_ps => uniform_ps + exponential(&mut self.random, mean_ps),
        }
    }

    fn draw(&mut self) -> u32 {
        (draw(&mut self.random) >> 32) as u32
    }
}

const _: () = assert!(size_of::<Hot>() == 64);

#[cfg(test)]
mod tests;
