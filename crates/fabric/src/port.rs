//! The transmit side of one direction of a link: a queue and the wire behind it.
//!
//! A first-in first-out queue needs no event of its own: when a frame arrives one knows when the last of its
//! bits will leave and when they will be at the other end. Frames wait in one ring from their arrival here
//! to their arrival there, and only the ring's head needs a timer. A queue that can be paused or that serves
//! several classes cannot know this and will be another kind of port.

use std::collections::VecDeque;

use sluicegate_core::aqm::{AqmParams, Arrival, Arriving, Red};

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
    /// Frames that arrived at the other end.
    pub delivered: u64,
    /// Frames marked.
    pub marks: u64,
    /// Frames dropped: tail, not ECN-capable, RED, link down.
    pub drops: [u64; 4],
}

struct Underway<F> {
    arrival_ps: u64,
    frame: F,
}

/// A port. `F` is stored by value.
pub struct Port<F> {
    config: PortConfig,
    /// Time per byte, in 2^-16 ps.
    ps_per_byte_q16: u64,
    ring: VecDeque<Underway<F>>,
    /// So many at the ring's front have left the queue.
    departed: usize,
    backlog_bytes: u64,
    free_ps: u64,
    red: Red,
    random: u64,
    up: bool,
    stats: PortStats,
}

impl<F: Frame> Port<F> {
    /// An idle port. `seed` makes RED's choices.
    pub fn new(config: PortConfig, seed: u64) -> Self {
        Self {
            config,
            ps_per_byte_q16: u64::try_from(
                (u128::from(8 * PS_PER_S) << 16) / u128::from(config.rate_bps.max(1)),
            )
            .unwrap_or(u64::MAX),
            ring: VecDeque::new(),
            departed: 0,
            backlog_bytes: 0,
            free_ps: 0,
            red: Red::default(),
            random: seed,
            up: true,
            stats: PortStats::default(),
        }
    }

    /// How long `bytes` take to leave.
    pub fn serialization_ps(&self, bytes: u32) -> u64 {
        let bytes = u64::from(bytes + self.config.overhead_bytes);
        ((u128::from(bytes) * u128::from(self.ps_per_byte_q16)) >> 16) as u64
    }

    /// When the last frame accepted so far will have left.
    pub fn free_ps(&self) -> u64 {
        self.free_ps
    }

    /// Bytes in the queue, the frame on its way out included.
    pub fn backlog_bytes(&mut self, now_ps: u64) -> u64 {
        let departed_by = now_ps.saturating_add(self.config.delay_ps);
        while let Some(underway) = self.ring.get(self.departed) {
            if underway.arrival_ps > departed_by {
                break;
            }
            self.backlog_bytes -= u64::from(underway.frame.bytes());
            self.departed += 1;
        }
        self.backlog_bytes
    }

    /// A frame wants to leave. Returns the backlog that it met and what became of it.
    pub fn offer(&mut self, now_ps: u64, mut frame: F) -> (u64, Offer) {
        let backlog = self.backlog_bytes(now_ps);
        let bytes = frame.bytes();
        if let Some(cause) = self.refuses(now_ps, backlog, &mut frame) {
            self.stats.drops[cause as usize] += 1;
            return (backlog, Offer::Dropped(cause));
        }
        let late_ps = if self.config.jitter_ps > 0 && self.free_ps < now_ps {
            (u64::from(self.draw()) * self.config.jitter_ps) >> 32
        } else {
            0
        };
        let departure_ps = self.free_ps.max(now_ps) + late_ps + self.serialization_ps(bytes);
        let arrival_ps = departure_ps + self.config.delay_ps;
        self.free_ps = departure_ps;
        self.backlog_bytes += u64::from(bytes);
        self.stats.accepted += 1;
        self.stats.accepted_bytes += u64::from(bytes);
        let first = self.ring.is_empty();
        self.ring.push_back(Underway { arrival_ps, frame });
        (
            backlog,
            if first {
                Offer::First(arrival_ps)
            } else {
                Offer::Queued
            },
        )
    }

    fn refuses(&mut self, now_ps: u64, backlog: u64, frame: &mut F) -> Option<Drop> {
        if !self.up {
            return Some(Drop::Down);
        }
        if backlog + u64::from(frame.bytes()) > self.config.limit_bytes {
            return Some(Drop::Tail);
        }
        if self.config.aqm.kind == 0 {
            return None;
        }
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            backlog_bytes: u32::try_from(backlog).unwrap_or(u32::MAX),
            bytes: frame.bytes(),
            ect: frame.is_ect(),
            random: self.draw(),
        };
        match self.config.aqm.arrival(&mut self.red, arriving) {
            Arrival::Pass => None,
            Arrival::Mark => {
                frame.mark();
                self.stats.marks += 1;
                None
            }
            Arrival::Drop if self.config.aqm.kind == 1 => Some(Drop::NotEct),
            Arrival::Drop => Some(Drop::Red),
        }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): small state, and nobody else draws from it.
    fn draw(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// The ring's head is at the other end. Returns it, and when the next one will be.
    pub fn arrive(&mut self) -> Option<(F, Option<u64>)> {
        let head = self.ring.pop_front()?;
        if self.departed > 0 {
            self.departed -= 1;
        } else {
            self.backlog_bytes -= u64::from(head.frame.bytes());
        }
        self.stats.delivered += 1;
        Some((head.frame, self.ring.front().map(|next| next.arrival_ps)))
    }

    /// The link goes down: what is queued or on the wire is lost, and so is everything until it is up again.
    pub fn set_up(&mut self, up: bool, now_ps: u64) {
        self.up = up;
        if !up {
            self.stats.drops[Drop::Down as usize] += self.ring.len() as u64;
            self.ring.clear();
            self.departed = 0;
            self.backlog_bytes = 0;
            self.free_ps = now_ps;
        }
    }

    /// What was counted.
    pub fn stats(&self) -> &PortStats {
        &self.stats
    }

    /// Frames between here and the other end.
    pub fn underway(&self) -> usize {
        self.ring.len()
    }

    /// Changes the queue management from here on.
    pub fn set_aqm(&mut self, aqm: AqmParams) {
        self.config.aqm = aqm;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Plain(u32, bool, bool);

    impl Frame for Plain {
        fn bytes(&self) -> u32 {
            self.0
        }
        fn is_ect(&self) -> bool {
            self.1
        }
        fn mark(&mut self) {
            self.2 = true;
        }
    }

    fn port(limit_bytes: u64, aqm: AqmParams) -> Port<Plain> {
        let config = PortConfig {
            rate_bps: 10_000_000_000,
            delay_ps: 1_000_000,
            limit_bytes,
            aqm,
            jitter_ps: 0,
            overhead_bytes: 0,
        };
        Port::new(config, 1)
    }

    #[test]
    fn frames_leave_one_after_the_other_and_arrive_a_delay_later() {
        let mut port = port(1 << 20, AqmParams::default());
        assert_eq!(
            port.offer(0, Plain(1250, false, false)),
            (0, Offer::First(2_000_000))
        );
        assert_eq!(
            port.offer(0, Plain(1250, false, false)),
            (1250, Offer::Queued)
        );
        assert_eq!(port.free_ps(), 2_000_000);
        let (_, next) = port.arrive().unwrap();
        assert_eq!(next, Some(3_000_000));
        assert_eq!(port.arrive().unwrap().1, None);
        assert!(port.arrive().is_none());
    }

    #[test]
    fn the_backlog_falls_as_frames_leave_not_as_they_arrive() {
        let mut port = port(1 << 20, AqmParams::default());
        port.offer(0, Plain(1250, false, false));
        port.offer(0, Plain(1250, false, false));
        assert_eq!(port.backlog_bytes(999_999), 2500);
        assert_eq!(port.backlog_bytes(1_000_000), 1250);
        assert_eq!(port.backlog_bytes(2_000_000), 0);
        assert_eq!(port.underway(), 2);
        port.arrive();
        port.arrive();
        assert_eq!(port.backlog_bytes(9_000_000), 0);
    }

    #[test]
    fn a_full_queue_drops_and_a_threshold_marks_what_it_can() {
        let aqm = AqmParams::new(
            sluicegate_core::aqm::Aqm::Threshold {
                k_bytes: 1000,
                drop_not_ect: false,
            },
            10_000_000_000,
            1500,
        );
        let mut port = port(3000, aqm.unwrap());
        port.offer(0, Plain(1400, true, false));
        port.offer(0, Plain(1400, true, false));
        assert_eq!(
            port.offer(0, Plain(1400, true, false)).1,
            Offer::Dropped(Drop::Tail)
        );
        assert!(!port.arrive().unwrap().0.2, "met an empty queue");
        assert!(port.arrive().unwrap().0.2, "met 1400 bytes");
        assert_eq!(port.stats().marks, 1);
        assert_eq!(port.stats().drops, [1, 0, 0, 0]);
    }

    #[test]
    fn a_link_that_goes_down_loses_what_is_underway() {
        let mut port = port(1 << 20, AqmParams::default());
        port.offer(0, Plain(1250, false, false));
        port.set_up(false, 500_000);
        assert_eq!(
            port.offer(600_000, Plain(100, false, false)).1,
            Offer::Dropped(Drop::Down)
        );
        assert!(port.arrive().is_none());
        port.set_up(true, 700_000);
        assert_eq!(
            port.offer(700_000, Plain(1250, false, false)),
            (0, Offer::First(2_700_000))
        );
        assert_eq!(port.stats().drops[Drop::Down as usize], 2);
    }
}
