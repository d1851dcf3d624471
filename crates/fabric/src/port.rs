//! The transmit side of one direction of a link: a queue and the wire behind it.
//!
//! A first-in first-out queue needs no event of its own: when a frame arrives one knows when the last of its
//! bits will leave and when they will be at the other end. Frames wait in one list from their arrival here
//! to their arrival there, and only the first needs a timer. A queue that can be paused or that serves
//! several classes cannot know this and will be another kind of port.

use sluicegate_core::aqm::{AqmParams, Arrival, Arriving, Red};

use crate::pool::{Handle, NIL, Pool};

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
    /// Frames dropped: tail, not ECN-capable, RED, link down.
    pub drops: [u64; 4],
}

/// What ports alike share.
struct Class {
    config: PortConfig,
    /// Time per byte, in 2^-16 ps.
    ps_per_byte_q16: u64,
}

/// What every frame touches: one cache line.
#[repr(C, align(64))]
struct Hot {
    /// First frame that has not arrived at the other end, and the last one.
    first: Handle,
    last: Handle,
    /// First frame that has not left.
    leaving: Handle,
    backlog_bytes: u32,
    free_ps: u64,
    accepted: u64,
    accepted_bytes: u64,
    marks: u64,
    random: u64,
    underway: u32,
    class: u16,
    up: bool,
    away: bool,
}

#[derive(Default)]
struct Cold {
    red: Red,
    drops: [u64; 4],
}

/// Ports and the frames under way at them.
pub struct Ports<F> {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    classes: Vec<Class>,
    /// The frames.
    pub pool: Pool<F>,
}

impl<F> Default for Ports<F> {
    fn default() -> Self {
        Self {
            hot: Vec::new(),
            cold: Vec::new(),
            classes: Vec::new(),
            pool: Pool::default(),
        }
    }
}

impl<F: Frame> Ports<F> {
    /// Adds an idle port; returns its number. `seed` makes RED's choices and jitter.
    pub fn add(&mut self, config: PortConfig, seed: u64) -> usize {
        let known = self.classes.iter().position(|class| class.config == config);
        let class = known.unwrap_or_else(|| {
            let rate_bps = u128::from(config.rate_bps.max(1));
            let ps_per_byte = (u128::from(8 * PS_PER_S) << 16) / rate_bps;
            self.classes.push(Class {
                config,
                ps_per_byte_q16: u64::try_from(ps_per_byte).unwrap_or(u64::MAX),
            });
            self.classes.len() - 1
        });
        self.hot.push(Hot {
            first: NIL,
            last: NIL,
            leaving: NIL,
            backlog_bytes: 0,
            free_ps: 0,
            accepted: 0,
            accepted_bytes: 0,
            marks: 0,
            random: seed,
            underway: 0,
            class: class as u16,
            up: true,
            away: false,
        });
        self.cold.push(Cold::default());
        self.hot.len() - 1
    }

    /// Somebody else looks after this port's far end and is handed every frame ([`Offer::Away`],
    /// [`Ports::deliver`]): here frames are kept only as long as they count as backlog.
    pub fn set_away(&mut self, port: usize) {
        self.hot[port].away = true;
    }

    /// A frame of a port whose near end somebody else looks after arrives at a time that is not before the last
    /// one's. True if it is the only one: that needs a timer.
    pub fn deliver(&mut self, port: usize, frame: Handle, arrival_ps: u64) -> bool {
        let hot = &mut self.hot[port];
        self.pool.sent(frame, arrival_ps);
        hot.underway += 1;
        let before = std::mem::replace(&mut hot.last, frame);
        if hot.first == NIL {
            hot.first = frame;
            return true;
        }
        self.pool.follow(before, frame);
        false
    }

    /// Forgets what has left for a far end elsewhere.
    fn forget_left(&mut self, port: usize, now_ps: u64) {
        let hot = &self.hot[port];
        let delay_ps = self.classes[usize::from(hot.class)].config.delay_ps;
        let left_by = now_ps.saturating_add(delay_ps);
        while self.hot[port].first != NIL
            && self.pool.arrival_ps(self.hot[port].first) <= left_by
            && let Some((frame, _)) = self.arrive(port)
        {
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

    /// A frame wants to leave. Returns the backlog that it met and what became of it; a dropped one is still in
    /// the pool.
    #[inline]
    pub fn offer(&mut self, port: usize, now_ps: u64, frame: Handle) -> (u64, Offer) {
        if self.hot[port].away {
            self.forget_left(port, now_ps);
        }
        let hot = &mut self.hot[port];
        let class = &self.classes[usize::from(hot.class)];
        let backlog = hot.drain(&self.pool, now_ps, class.config.delay_ps);
        let offered = &mut self.pool[frame];
        let bytes = offered.bytes();
        let cold = &mut self.cold[port];
        if let Some(cause) = hot.judge(cold, class, now_ps, bytes, offered) {
            cold.drops[cause as usize] += 1;
            return (backlog.into(), Offer::Dropped(cause));
        }
        let on_wire = u64::from(bytes + class.config.overhead_bytes);
        let serialization_ps = (on_wire * class.ps_per_byte_q16) >> 16;
        let begin_ps = hot.free_ps.max(now_ps) + hot.late_ps(class, now_ps);
        hot.free_ps = begin_ps + serialization_ps;
        let arrival_ps = hot.free_ps + class.config.delay_ps;
        self.pool.sent(frame, arrival_ps);
        hot.backlog_bytes += bytes;
        hot.accepted += 1;
        hot.accepted_bytes += u64::from(bytes);
        hot.underway += u32::from(!hot.away);
        if hot.leaving == NIL {
            hot.leaving = frame;
        }
        let before = std::mem::replace(&mut hot.last, frame);
        let is_first = hot.first == NIL;
        if is_first {
            hot.first = frame;
        } else {
            self.pool.follow(before, frame);
        }
        let offer = match (hot.away, is_first) {
            (true, _) => Offer::Away(arrival_ps),
            (false, true) => Offer::First(arrival_ps),
            (false, false) => Offer::Queued,
        };
        (backlog.into(), offer)
    }

    /// The first frame under way is at the other end. Returns it, and when the next one will be.
    #[inline]
    pub fn arrive(&mut self, port: usize) -> Option<(Handle, Option<u64>)> {
        let hot = &mut self.hot[port];
        if hot.first == NIL {
            return None;
        }
        let frame = hot.first;
        if hot.leaving == frame {
            hot.backlog_bytes -= self.pool[frame].bytes();
            hot.leaving = self.pool.next(frame);
        }
        hot.first = self.pool.next(frame);
        hot.underway -= u32::from(!hot.away);
        let next = (hot.first != NIL).then(|| self.pool.arrival_ps(hot.first));
        Some((frame, next))
    }

    /// The link goes down: what is queued or on the wire is lost, and so is everything until it is up again.
    pub fn set_up(&mut self, port: usize, up: bool, now_ps: u64) {
        self.hot[port].up = up;
        if up {
            return;
        }
        // Who looks after the far end counts what was under way to it.
        let lost = u64::from(!self.hot[port].away);
        while let Some((frame, _)) = self.arrive(port) {
            self.cold[port].drops[Drop::Down as usize] += lost;
            self.pool.release(frame);
        }
        self.hot[port].free_ps = now_ps;
    }

    /// What a port counted.
    pub fn stats(&self, port: usize) -> PortStats {
        let hot = &self.hot[port];
        PortStats {
            accepted: hot.accepted,
            accepted_bytes: hot.accepted_bytes,
            marks: hot.marks,
            drops: self.cold[port].drops,
        }
    }

    /// Frames between a port and its other end.
    pub fn underway(&self, port: usize) -> u64 {
        self.hot[port].underway.into()
    }
}

impl Hot {
    /// Forgets what has left the queue; returns the bytes that have not.
    #[inline]
    fn drain<F: Frame>(&mut self, pool: &Pool<F>, now_ps: u64, delay_ps: u64) -> u32 {
        if self.free_ps <= now_ps {
            self.leaving = NIL;
            self.backlog_bytes = 0;
            return 0;
        }
        let left_by = now_ps.saturating_add(delay_ps);
        while self.leaving != NIL && pool.arrival_ps(self.leaving) <= left_by {
            self.backlog_bytes -= pool[self.leaving].bytes();
            self.leaving = pool.next(self.leaving);
        }
        self.backlog_bytes
    }

    /// Why an arriving frame is dropped, if it is; marks it otherwise where that is due.
    #[inline]
    fn judge<F: Frame>(
        &mut self,
        cold: &mut Cold,
        class: &Class,
        now_ps: u64,
        bytes: u32,
        frame: &mut F,
    ) -> Option<Drop> {
        if !self.up {
            return Some(Drop::Down);
        }
        if u64::from(self.backlog_bytes) + u64::from(bytes) > class.config.limit_bytes {
            return Some(Drop::Tail);
        }
        let aqm = &class.config.aqm;
        if aqm.kind == 0 {
            return None;
        }
        let random = if aqm.kind == 1 { 0 } else { self.draw() };
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            backlog_bytes: self.backlog_bytes,
            bytes,
            ect: frame.is_ect(),
            random,
        };
        match aqm.arrival(&mut cold.red, arriving) {
            Arrival::Pass => None,
            Arrival::Mark => {
                frame.mark();
                self.marks += 1;
                None
            }
            Arrival::Drop if aqm.kind == 1 => Some(Drop::NotEct),
            Arrival::Drop => Some(Drop::Red),
        }
    }

    /// How much later than it could a frame that finds the port idle leaves.
    #[inline]
    fn late_ps(&mut self, class: &Class, now_ps: u64) -> u64 {
        if class.config.jitter_ps == 0 || self.free_ps >= now_ps {
            return 0;
        }
        (u64::from(self.draw()) * class.config.jitter_ps) >> 32
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): small state, and nobody else draws from it.
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
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

    impl Link {
        fn new(limit_bytes: u64, aqm: AqmParams) -> Self {
            let config = PortConfig {
                rate_bps: 10_000_000_000,
                delay_ps: 1_000_000,
                limit_bytes,
                aqm,
                jitter_ps: 0,
                overhead_bytes: 0,
            };
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
            let offer = self.0.offer(0, now_ps, frame);
            if let Offer::Dropped(_) = offer.1 {
                self.0.pool.release(frame);
            }
            offer
        }

        fn arrive(&mut self) -> Option<(Plain, Option<u64>)> {
            let (frame, next) = self.0.arrive(0)?;
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
        assert_eq!(link.0.stats(0).drops, [1, 0, 0, 0]);
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
}
