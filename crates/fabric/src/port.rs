//! The transmit side of one direction of a link: a queue and the wire behind it.
//!
//! A first-in first-out queue needs no event of its own: when a frame arrives one knows when the last of its
//! bits will leave and when they will be at the other end. Frames wait in one list from their arrival here
//! to their arrival there, and only the first needs a timer. A queue that can be paused or that serves
//! several classes cannot know this and will be another kind of port.

use sluicegate_core::aqm::{AqmParams, Arrival, Arriving, Red};

use crate::{
    impair::{Fate, Impaired, Impairment},
    memory::{Memory, MemoryId, SharedMemory},
    pool::{Handle, NIL, Pool},
    random::{draw, exponential},
};

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

/// What a port needs to know of what it carries.
pub trait Frame {
    /// Length in bytes, Ethernet header included.
    fn bytes(&self) -> u32;
    /// Whether it may be marked.
    fn is_ect(&self) -> bool;
    /// Sets CE.
    fn mark(&mut self);
}

/// What distinguishes one port from another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortConfig {
    /// Bits per second, > 0.
    pub rate_bps: u64,
    /// From the last bit's departure to its arrival, everything that takes a constant time.
    pub delay_ps: u64,
    /// Bytes that the queue may hold, the frame on its way out included.
    pub limit_bytes: u64,
    /// Marking and early dropping.
    pub aqm: AqmParams,
    /// A frame that finds the port idle leaves up to this much later: a CPU is never quite on time, and
    /// without it flows of equal period keep in step for ever (Floyd & Jacobson, "On Traffic Phase Effects in
    /// Packet-Switched Gateways", 1992).
    pub jitter_ps: u64,
    /// And later still, by a time drawn from an exponential distribution with this mean: most wake-ups come soon,
    /// few come late.
    pub jitter_mean_ps: u64,
    /// A port that was idle may send as many bytes as its rate allows in this time at once, as a token bucket does;
    /// 0 = a wire, which sends one after another.
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
    /// A bit of it was wrong.
    Corrupt,
    /// The memory that the switch's ports share had no room for this one.
    Buffer,
}

impl Drop {
    /// Names of the causes, in their order.
    pub const NAMES: [&str; 6] = ["tail", "not_ect", "red", "down", "corrupt", "buffer"];
}

/// What became of an offered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is the only one underway: it arrives at this time, which needs a timer.
    First(u64),
    /// It follows others.
    Queued,
    /// It leaves for a far end that somebody else looks after ([`Ports::set_away`]), where it arrives at this
    /// time.
    Away(u64),
    /// It is gone.
    Dropped(Drop),
}

/// What a port counted.
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
/// Its far end is somebody else's.
const AWAY: u8 = 8;

/// What ports alike share.
struct Class {
    config: PortConfig,
    /// Time per byte, in 2^-16 ps.
    ps_per_byte_q16: u64,
    /// A frame that makes the backlog no larger than this is neither dropped nor marked.
    harmless_bytes: u64,
}

/// What every frame touches: one cache line.
#[repr(C, align(64))]
struct Hot {
    /// First frame that has not arrived at the other end, and the last one.
    first: Handle,
    last: Handle,
    /// First frame that had not left when somebody last looked, and the bytes from there on.
    leaving: Handle,
    backlog_bytes: u32,
    /// When the first one arrives.
    first_ps: u64,
    free_ps: u64,
    accepted: u64,
    accepted_bytes: u64,
    class: u16,
    /// What an ordinary port needs not care about; 0 = it is one.
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
    pub fn add(&mut self, config: PortConfig, seed: u64) -> usize {
        let known = self.classes.iter().position(|class| class.config == config);
        let class = known.unwrap_or_else(|| {
            let rate_bps = u128::from(config.rate_bps.max(1));
            let ps_per_byte = (u128::from(8 * PS_PER_S) << 16) / rate_bps;
            self.classes.push(Class {
                config,
                ps_per_byte_q16: u64::try_from(ps_per_byte).unwrap_or(u64::MAX),
                harmless_bytes: config.limit_bytes.min(config.aqm.harmless_bytes()),
            });
            self.classes.len() - 1
        });
        self.hot.push(Hot {
            first: NIL,
            last: NIL,
            leaving: NIL,
            backlog_bytes: 0,
            first_ps: 0,
            free_ps: 0,
            accepted: 0,
            accepted_bytes: 0,
            class: class as u16,
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
            impaired: None,
        });
        self.hot.len() - 1
    }

    /// Somebody else looks after this port's far end and is handed every frame ([`Offer::Away`],
    /// [`Ports::deliver`]): here frames are kept only as long as they count as backlog.
    pub fn set_away(&mut self, port: usize) {
        self.set_unusual(port, AWAY, true);
    }

    /// A frame of a port whose near end somebody else looks after arrives at a time that is not before the last
    /// one's. True if it is the only one: that needs a timer.
    pub fn deliver(&mut self, port: usize, frame: Handle, arrival_ps: u64) -> bool {
        let hot = &mut self.hot[port];
        self.pool.sent(frame, arrival_ps);
        hot.append(&mut self.pool, frame, arrival_ps)
    }

    /// Forgets what has left for a far end elsewhere.
    fn forget_left(&mut self, port: usize, now_ps: u64) {
        let hot = &self.hot[port];
        let delay_ps = self.classes[usize::from(hot.class)].config.delay_ps;
        let left_by = now_ps.saturating_add(delay_ps);
        while self.hot[port].first != NIL && self.hot[port].first_ps <= left_by {
            let Some((frame, _)) = self.arrive(port, u64::MAX) else {
                return;
            };
            self.pool.release(frame);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hot.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.hot.is_empty()
    }

    /// Reads what [`Ports::arrive`] is about to need, and gives the frame; the number says nothing.
    #[inline]
    pub fn touch_arrival(&self, port: usize) -> Option<(&F, u64)> {
        let first = self.hot[port].first;
        if first == NIL {
            return None;
        }
        let (frame, _, next_ps) = self.pool.look(first);
        Some((frame, next_ps))
    }

    /// Reads what [`Ports::offer`] is about to need; the number says nothing.
    #[inline]
    pub fn touch_offer(&self, port: usize) -> u64 {
        let hot = &self.hot[port];
        self.pool.touch(hot.last)
    }

    /// When the last frame accepted so far will have left.
    #[inline]
    pub fn free_ps(&self, port: usize) -> u64 {
        self.hot[port].free_ps
    }

    /// Bytes in the queue, the frame on its way out included.
    pub fn backlog_bytes(&mut self, port: usize, now_ps: u64) -> u64 {
        let delay_ps = self.classes[usize::from(self.hot[port].class)]
            .config
            .delay_ps;
        self.hot[port].drain(&self.pool, now_ps, delay_ps).into()
    }

    /// A frame wants to leave. Returns what became of it; a dropped one is still in the pool.
    #[inline]
    pub fn offer(&mut self, port: usize, now_ps: u64, frame: Handle) -> Offer {
        if self.hot[port].unusual != 0 {
            if let Some(cause) = self.prepare(port, now_ps, frame) {
                self.cold[port].drops[cause as usize] += 1;
                return Offer::Dropped(cause);
            }
        }
        let hot = &mut self.hot[port];
        let class = &self.classes[usize::from(hot.class)];
        if hot.free_ps <= now_ps {
            (hot.leaving, hot.backlog_bytes) = (NIL, 0);
        }
        let bytes = self.pool[frame].bytes();
        // Where even what may have left since would do no harm, nobody need look.
        if u64::from(hot.backlog_bytes) + u64::from(bytes) > class.harmless_bytes {
            if let Some(cause) = self.judge(port, now_ps, frame) {
                self.cold[port].drops[cause as usize] += 1;
                return Offer::Dropped(cause);
            }
        }
        let hot = &mut self.hot[port];
        let class = &self.classes[usize::from(hot.class)];
        let on_wire = u64::from(bytes + class.config.overhead_bytes);
        let serialization_ps = (on_wire * class.ps_per_byte_q16) >> 16;
        let PortConfig {
            jitter_ps,
            jitter_mean_ps,
            burst_ps,
            ..
        } = class.config;
        let mut ready_ps = now_ps;
        if jitter_ps | jitter_mean_ps != 0 && hot.free_ps < now_ps {
            ready_ps += self.cold[port].late_ps(jitter_ps, jitter_mean_ps);
        }
        hot.free_ps = hot.free_ps.max(ready_ps.saturating_sub(burst_ps)) + serialization_ps;
        let mut arrival_ps = hot.free_ps.max(ready_ps) + class.config.delay_ps;
        if burst_ps != 0 && hot.first != NIL {
            // A late one holds up those behind it.
            arrival_ps = arrival_ps.max(self.pool.arrival_ps(hot.last));
        }
        self.pool.sent(frame, arrival_ps);
        hot.backlog_bytes += bytes;
        hot.accepted += 1;
        hot.accepted_bytes += u64::from(bytes);
        if hot.leaving == NIL {
            hot.leaving = frame;
        }
        let is_first = hot.append(&mut self.pool, frame, arrival_ps);
        match (hot.is_away(), is_first) {
            (true, _) => Offer::Away(arrival_ps),
            (false, true) => Offer::First(arrival_ps),
            (false, false) => Offer::Queued,
        }
    }

    /// The first frame under way is at the other end. Returns it, and when the next one will be; `None` if
    /// none is there by now: the timer was set before the link went down.
    #[inline]
    pub fn arrive(&mut self, port: usize, now_ps: u64) -> Option<(Handle, Option<u64>)> {
        let hot = &mut self.hot[port];
        let frame = hot.first;
        if frame == NIL || hot.first_ps > now_ps {
            return None;
        }
        let (content, next, next_ps) = self.pool.look(frame);
        if hot.leaving == frame {
            hot.backlog_bytes -= content.bytes();
            hot.leaving = next;
        }
        (hot.first, hot.first_ps) = (next, next_ps);
        Some((frame, (next != NIL).then_some(next_ps)))
    }

    /// The link goes down: what is queued or on the wire is lost, and so is everything until it is up again.
    pub fn set_up(&mut self, port: usize, up: bool, now_ps: u64) {
        self.set_unusual(port, DOWN, !up);
        if up {
            return;
        }
        // Who looks after the far end counts what was under way to it.
        let lost = u64::from(!self.hot[port].is_away());
        while let Some((frame, _)) = self.arrive(port, u64::MAX) {
            self.cold[port].drops[Drop::Down as usize] += lost;
            self.pool.release(frame);
        }
        while let Some(frame) = self.late(port, u64::MAX) {
            self.lose(port, frame, Drop::Down);
        }
        self.hot[port].free_ps = now_ps;
    }

    fn set_unusual(&mut self, port: usize, bit: u8, set: bool) {
        let unusual = &mut self.hot[port].unusual;
        *unusual = if set { *unusual | bit } else { *unusual & !bit };
    }

    fn lose(&mut self, port: usize, frame: Handle, cause: Drop) {
        self.cold[port].drops[cause as usize] += 1;
        self.pool.release(frame);
    }

    /// A memory for ports of one switch to share.
    pub fn add_memory(&mut self, shape: SharedMemory) -> MemoryId {
        self.memories.push(Memory::new(shape));
        (self.memories.len() - 1) as MemoryId
    }

    /// From now on what this idle port queues lies in that memory.
    pub fn share(&mut self, port: usize, memory: MemoryId) {
        self.cold[port].memory = memory;
        self.set_unusual(port, SHARED, true);
    }

    /// What an unusual port does before it takes a frame; the cause if it does not.
    #[cold]
    fn prepare(&mut self, port: usize, now_ps: u64, frame: Handle) -> Option<Drop> {
        let unusual = self.hot[port].unusual;
        if unusual & AWAY != 0 {
            self.forget_left(port, now_ps);
        }
        if unusual & DOWN != 0 {
            return Some(Drop::Down);
        }
        let full = unusual & SHARED != 0 && !self.fits_memory(port, now_ps, frame);
        full.then_some(Drop::Buffer)
    }

    /// Why an arriving frame is dropped, if it is; marks it otherwise where that is due.
    fn judge(&mut self, port: usize, now_ps: u64, frame: Handle) -> Option<Drop> {
        let (hot, cold) = (&mut self.hot[port], &mut self.cold[port]);
        let class = &self.classes[usize::from(hot.class)];
        let backlog_bytes = hot.drain(&self.pool, now_ps, class.config.delay_ps);
        let frame = &mut self.pool[frame];
        let bytes = frame.bytes();
        if u64::from(backlog_bytes) + u64::from(bytes) > class.config.limit_bytes {
            return Some(Drop::Tail);
        }
        let aqm = &class.config.aqm;
        if aqm.kind == 0 {
            return None;
        }
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            backlog_bytes,
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

    /// Whether the memory that the port shares has room for a frame.
    fn fits_memory(&mut self, port: usize, now_ps: u64, frame: Handle) -> bool {
        let (hot, classes, pool) = (&mut self.hot, &self.classes, &self.pool);
        let memory = &mut self.memories[usize::from(self.cold[port].memory)];
        let mut used = 0;
        memory.busy.retain(|&busy| {
            let delay_ps = classes[usize::from(hot[busy].class)].config.delay_ps;
            let backlog = hot[busy].drain(pool, now_ps, delay_ps);
            used += u64::from(backlog);
            backlog > 0
        });
        let limit = classes[usize::from(hot[port].class)].config.limit_bytes;
        let delay_ps = classes[usize::from(hot[port].class)].config.delay_ps;
        let backlog = u64::from(hot[port].drain(pool, now_ps, delay_ps));
        let bytes = pool[frame].bytes().into();
        // Where the queue's own limit is reached, that is the cause.
        let fits = backlog + bytes > limit || memory.admits(used, backlog, bytes);
        if fits && backlog == 0 {
            memory.busy.push(port);
        }
        fits
    }

    /// From now on the link does this to what arrives over it.
    pub fn set_impairment(&mut self, port: usize, impairment: Impairment) {
        let cold = &mut self.cold[port];
        let seed = cold.seed;
        let impaired = cold
            .impaired
            .get_or_insert_with(|| Box::new(Impaired::new(seed)));
        impaired.impairment = impairment;
        self.set_unusual(port, IMPAIRED, !impairment.is_none());
    }

    /// What the link does to what arrives over it.
    pub fn impairment(&self, port: usize) -> Impairment {
        let impaired = self.cold[port].impaired.as_ref();
        impaired.map_or_else(Impairment::default, |impaired| impaired.impairment)
    }

    /// Whether [`Ports::fate`] must be asked for what arrives over this port's link.
    #[inline]
    pub fn is_impaired(&self, port: usize) -> bool {
        self.hot[port].unusual & IMPAIRED != 0
    }

    /// What becomes of a frame that has crossed an impaired link. One that is late stays with the port, see
    /// [`Ports::late`]; one that is damaged is gone.
    pub fn fate(&mut self, port: usize, now_ps: u64, frame: Handle) -> Fate {
        let bytes = self.pool[frame].bytes();
        let cold = &mut self.cold[port];
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
    pub fn late(&mut self, port: usize, now_ps: u64) -> Option<Handle> {
        self.cold[port].impaired.as_mut()?.due(now_ps)
    }

    /// What a port counted.
    pub fn stats(&self, port: usize) -> PortStats {
        let hot = &self.hot[port];
        PortStats {
            accepted: hot.accepted,
            accepted_bytes: hot.accepted_bytes,
            marks: self.cold[port].marks,
            drops: self.cold[port].drops,
            duplicates: self.cold[port].duplicates,
        }
    }

    /// Frames between a port and its other end, late ones included.
    pub fn underway(&self, port: usize) -> u64 {
        let hot = &self.hot[port];
        if hot.is_away() {
            return 0;
        }
        let late = self.cold[port].impaired.as_ref();
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
            pool.follow(before, frame, arrival_ps);
        }
        is_first
    }

    /// Forgets what has left the queue; returns the bytes that have not.
    fn drain<F: Frame>(&mut self, pool: &Pool<F>, now_ps: u64, delay_ps: u64) -> u32 {
        if self.free_ps <= now_ps {
            self.leaving = NIL;
            self.backlog_bytes = 0;
            return 0;
        }
        let left_by = now_ps.saturating_add(delay_ps);
        while self.leaving != NIL && pool.arrival_ps(self.leaving) <= left_by {
            let (frame, next, _) = pool.look(self.leaving);
            self.backlog_bytes -= frame.bytes();
            self.leaving = next;
        }
        self.backlog_bytes
    }
}

impl Cold {
    /// How much later than it could a frame that finds the port idle leaves.
    fn late_ps(&mut self, jitter_ps: u64, jitter_mean_ps: u64) -> u64 {
        let uniform_ps = (u64::from(self.draw()) * jitter_ps) >> 32;
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
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Plain {
        bytes: u32,
        ect: bool,
        ce: bool,
    }

    impl Frame for Plain {
        fn bytes(&self) -> u32 {
            self.bytes
        }
        fn is_ect(&self) -> bool {
            self.ect
        }
        fn mark(&mut self) {
            self.ce = true;
        }
    }

    struct Link(Ports<Plain>);

    fn config(limit_bytes: u64, aqm: AqmParams) -> PortConfig {
        PortConfig {
            rate_bps: 10_000_000_000,
            delay_ps: 1_000_000,
            limit_bytes,
            aqm,
            jitter_ps: 0,
            jitter_mean_ps: 0,
            burst_ps: 0,
            overhead_bytes: 0,
        }
    }

    impl Link {
        fn new(limit_bytes: u64, aqm: AqmParams) -> Self {
            Self::of(config(limit_bytes, aqm))
        }

        fn of(config: PortConfig) -> Self {
            let mut ports = Ports::default();
            ports.add(config, 1);
            Self(ports)
        }

        fn offer(&mut self, now_ps: u64, bytes: u32) -> (u64, Offer) {
            let frame = self.0.pool.insert(Plain {
                bytes,
                ect: true,
                ce: false,
            });
            let backlog = self.backlog(now_ps);
            let offer = self.0.offer(0, now_ps, frame);
            if let Offer::Dropped(_) = offer {
                self.0.pool.release(frame);
            }
            (backlog, offer)
        }

        fn arrive(&mut self) -> Option<(Plain, Option<u64>)> {
            self.arrive_by(u64::MAX)
        }

        fn arrive_by(&mut self, now_ps: u64) -> Option<(Plain, Option<u64>)> {
            let (frame, next) = self.0.arrive(0, now_ps)?;
            let plain = self.0.pool[frame];
            self.0.pool.release(frame);
            Some((plain, next))
        }

        fn backlog(&mut self, now_ps: u64) -> u64 {
            self.0.backlog_bytes(0, now_ps)
        }
    }

    #[test]
    fn frames_leave_one_after_the_other_and_arrive_a_delay_later() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        assert_eq!(link.offer(0, 1250), (0, Offer::First(2_000_000)));
        assert_eq!(link.offer(0, 1250), (1250, Offer::Queued));
        assert_eq!(link.0.free_ps(0), 2_000_000);
        assert_eq!(link.arrive().unwrap().1, Some(3_000_000));
        assert_eq!(link.arrive().unwrap().1, None);
        assert!(link.arrive().is_none());
        assert!(link.0.pool.is_empty());
    }

    #[test]
    fn the_backlog_falls_as_frames_leave_not_as_they_arrive() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        link.offer(0, 1250);
        link.offer(0, 1250);
        assert_eq!(link.backlog(999_999), 2500);
        assert_eq!(link.backlog(1_000_000), 1250);
        assert_eq!(link.backlog(2_000_000), 0);
        assert_eq!(link.0.underway(0), 2);
        link.arrive();
        assert_eq!(link.offer(2_000_000, 1250), (0, Offer::Queued));
        link.arrive();
        link.arrive();
        assert_eq!(link.backlog(9_000_000), 0);
    }

    #[test]
    fn a_full_queue_drops_and_a_threshold_marks_what_it_can() {
        let threshold = sluicegate_core::aqm::Aqm::Threshold {
            k_bytes: 1000,
            drop_not_ect: false,
        };
        let aqm = AqmParams::new(threshold, 10_000_000_000, 1500).unwrap();
        let mut link = Link::new(3000, aqm);
        link.offer(0, 1400);
        link.offer(0, 1400);
        assert_eq!(link.offer(0, 1400).1, Offer::Dropped(Drop::Tail));
        assert!(!link.arrive().unwrap().0.ce, "met an empty queue");
        assert!(link.arrive().unwrap().0.ce, "met 1400 bytes");
        assert_eq!(link.0.stats(0).marks, 1);
        assert_eq!(link.0.stats(0).drops, [1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_a_token_bucket_has_saved_leaves_at_once_and_in_order() {
        let mut link = Link::of(PortConfig {
            // Three frames of 1250 bytes.
            burst_ps: 3_000_000,
            ..config(1 << 20, AqmParams::default())
        });
        let at = 10_000_000;
        assert_eq!(link.offer(at, 1250), (0, Offer::First(at + 1_000_000)));
        for waiting in [0, 0, 0, 1250] {
            assert_eq!(link.offer(at, 1250), (waiting, Offer::Queued));
        }
        let nexts: Vec<_> = std::iter::from_fn(|| link.arrive().map(|(_, next)| next)).collect();
        assert_eq!(nexts[..4], [1, 1, 2, 3].map(|us| Some(at + us * 1_000_000)));
    }

    #[test]
    fn late_frames_of_a_token_bucket_keep_their_order() {
        let mut link = Link::of(PortConfig {
            burst_ps: 100_000_000,
            jitter_mean_ps: 5_000_000,
            ..config(1 << 20, AqmParams::default())
        });
        for n in 0..1000 {
            link.offer(n * 2_000_000, 125);
        }
        let mut before = 0;
        while let Some((_, next)) = link.arrive() {
            assert!(next.is_none_or(|next| next >= before));
            before = next.unwrap_or(before);
        }
        assert!(before > 2_000_000_000, "{before}");
    }

    #[test]
    fn a_link_that_goes_down_loses_what_is_underway() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        link.offer(0, 1250);
        link.0.set_up(0, false, 500_000);
        assert_eq!(link.offer(600_000, 100).1, Offer::Dropped(Drop::Down));
        assert!(link.arrive().is_none());
        link.0.set_up(0, true, 700_000);
        assert_eq!(link.offer(700_000, 1250), (0, Offer::First(2_700_000)));
        assert_eq!(link.0.stats(0).drops[Drop::Down as usize], 2);
    }

    #[test]
    fn two_halves_of_a_link_do_what_one_does() {
        let aqm = AqmParams::default();
        let (mut whole, mut near, mut far) = (
            Link::new(4000, aqm),
            Link::new(4000, aqm),
            Link::new(4000, aqm),
        );
        near.0.set_away(0);
        let mut first = None;
        for (now_ps, bytes) in [
            (0, 1250),
            (10, 1250),
            (20, 1250),
            (30, 1250),
            (1_000_001, 900),
        ] {
            let (backlog, offer) = whole.offer(now_ps, bytes);
            let (same, away) = near.offer(now_ps, bytes);
            assert_eq!(backlog, same);
            match away {
                Offer::Away(arrival_ps) => {
                    let frame = far.0.pool.insert(Plain {
                        bytes,
                        ect: true,
                        ce: false,
                    });
                    let is_first = far.0.deliver(0, frame, arrival_ps);
                    first = first.or(is_first.then_some(arrival_ps));
                    assert_eq!(is_first, matches!(offer, Offer::First(_)));
                }
                other => assert_eq!(other, offer),
            }
        }
        assert_eq!(first, Some(2_000_000));
        assert_eq!(near.0.pool.len(), 3, "what has left is forgotten");
        assert_eq!((near.0.underway(0), far.0.underway(0)), (0, 4));
        while let Some(arrived) = whole.arrive() {
            assert_eq!(far.arrive(), Some(arrived));
        }
        assert_eq!(far.arrive(), None);
    }

    #[test]
    fn what_is_lost_between_two_halves_is_counted_once() {
        let aqm = AqmParams::default();
        let (mut near, mut far) = (Link::new(4000, aqm), Link::new(4000, aqm));
        near.0.set_away(0);
        let (_, Offer::Away(arrival_ps)) = near.offer(0, 1250) else {
            panic!("it leaves");
        };
        let frame = far.0.pool.insert(Plain {
            bytes: 1250,
            ect: true,
            ce: false,
        });
        far.0.deliver(0, frame, arrival_ps);
        near.0.set_up(0, false, 100);
        far.0.set_up(0, false, 100);
        let down = |link: &Link| link.0.stats(0).drops[Drop::Down as usize];
        assert_eq!((down(&near), down(&far)), (0, 1));
        assert!(near.0.pool.is_empty() && far.0.pool.is_empty());
    }

    #[test]
    fn a_timer_from_before_the_link_went_down_finds_nothing() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        assert_eq!(link.offer(0, 1250).1, Offer::First(2_000_000));
        link.0.set_up(0, false, 300_000);
        link.0.set_up(0, true, 400_000);
        // Down and up within the time of flight of what was lost; the timer for 2 000 000 is still set.
        assert_eq!(link.offer(500_000, 1250).1, Offer::First(2_500_000));
        assert!(link.arrive_by(2_000_000).is_none());
        assert!(link.arrive_by(2_500_000).is_some());
        assert!(link.0.pool.is_empty());
    }

    #[test]
    fn a_late_frame_is_under_way_until_it_is_due_or_the_link_goes_down() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        link.0.set_impairment(
            0,
            Impairment {
                reorder_rate: 1.0,
                reorder_delay_ps: 1_000_000,
                ..Impairment::default()
            },
        );
        for _ in 0..2 {
            link.offer(0, 1250);
            let (frame, _) = link.0.arrive(0, u64::MAX).unwrap();
            let fate = link.0.fate(0, 3_000_000, frame);
            assert!(matches!(
                fate,
                Fate::Arrives {
                    late_ps: Some(_),
                    ..
                }
            ));
        }
        assert_eq!(link.0.underway(0), 2);
        let frame = link.0.late(0, 4_000_000).unwrap();
        link.0.pool.release(frame);
        link.0.set_up(0, false, 4_000_000);
        assert_eq!(link.0.underway(0), 0);
        assert_eq!(link.0.stats(0).drops[Drop::Down as usize], 1);
        assert!(link.0.pool.is_empty());
    }

    #[test]
    fn ports_that_share_a_memory_leave_one_another_room() {
        let mut link = Link::new(1 << 20, AqmParams::default());
        let config = link.0.classes[0].config;
        link.0.add(config, 2);
        let memory = link.0.add_memory(SharedMemory {
            limit_bytes: 9_000,
            alpha: Some(2.0),
        });
        link.0.share(0, memory);
        link.0.share(1, memory);
        let mut offers = |port, now_ps, count| {
            let taken = |_: &i32| {
                let frame = link.0.pool.insert(Plain {
                    bytes: 1_000,
                    ect: true,
                    ce: false,
                });
                link.0.offer(port, now_ps, frame) != Offer::Dropped(Drop::Buffer)
            };
            (0..count).filter(taken).count()
        };
        assert_eq!(offers(0, 0, 20), 6, "α / (1 + α) of the memory");
        assert_eq!(offers(1, 0, 20), 2, "α times the rest");
        // At 10 Gb/s a frame takes 800 ns: both have sent one, 3000 bytes are free.
        assert_eq!(offers(1, 800_000, 20), 2);
    }
}
