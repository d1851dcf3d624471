//! TCP small queues: how much of one connection may wait below its socket, in its host's queues.
//!
//! Linux 6 (`tcp_small_queue_check`) lets a connection have there what it would send in 2^-10 s at
//! its pacing rate, or as much as two super-packets of the size of the next one. The rest stays in
//! the socket, so that the host's other senders wait for less of it. A super-packet is what the
//! windows allow, up to 64 KB if the least RTT is below half a millisecond (`tcp_tso_autosize`):
//! near peers find more below than far ones.
//!
//! Segments leave one by one here; those of a super-packet leave together or wait together.

use sluicegate_core::number::narrow;

use super::{Endpoint, Phase};

/// The memory of a segment beside its data: Linux's `SKB_TRUESIZE` of the headers, as `ss -tm`
/// shows on 6.18.
const OVERHEAD_BYTES: u32 = 832;

/// The time: 2^-10 s (`sk_pacing_shift`).
const SHARE_NS: u64 = 1_000_000_000 >> 10;

/// The most (`tcp_limit_output_bytes`).
const LIMIT_BYTES: u64 = 4 << 20;

/// Segments that a super-packet may have at least (`tcp_min_tso_segs`).
const LEAST_SEGMENTS: u64 = 2;

/// The largest super-packet (`gso_max_size`).
const SUPER_PACKET_BYTES: u64 = 65_536;

/// A part of the window that is not worth waiting for more (`tcp_tso_win_divisor`).
const WINDOW_DIVISOR: u64 = 3;

/// After a longer pause nothing waits.
const RECENT_NS: u64 = 1_000_000;

/// It is halved for each 2^9 us of the least RTT (`tcp_tso_rtt_log`).
const HALVING_NS: u64 = 512_000;

impl Endpoint {
    /// A segment with so much data has left the host, or was dropped there.
    pub fn left(&mut self, payload: u16) {
        let bytes = u32::from(payload) + OVERHEAD_BYTES;
        self.below_bytes = self.below_bytes.saturating_sub(bytes);
    }

    /// Whether data waits for [`Endpoint::left`] and for nothing else.
    pub fn is_held_back(&self, now_ns: u64) -> bool {
        self.below_bytes > 0
            && self.is_full_below(now_ns)
            && self.synchronized()
            && self.wants_to_send()
            && self.next_data(now_ns).is_some()
    }

    /// A segment with so much data is on its way to the adapter; one without takes next to nothing.
    pub(super) fn waits_below(&mut self, payload: u16) {
        if payload > 0 {
            self.below_bytes += u32::from(payload) + OVERHEAD_BYTES;
        }
    }

    /// New data leaves: it begins a super-packet, or belongs to the one that is leaving.
    pub(super) fn take_of_super_packet(&mut self, now_ns: u64, len: u32) {
        if !self.is_leaving(now_ns) {
            self.super_packet_bytes = narrow::<u32>(self.super_packet());
        }
        self.super_packet_bytes = self.super_packet_bytes.saturating_sub(len);
    }

    /// Some of a super-packet has just left and the rest follows.
    fn is_leaving(&self, now_ns: u64) -> bool {
        self.super_packet_bytes > 0 && self.data_sent_ns == now_ns
    }

    /// No more data may leave. What is sent again has twice the room, and a segment alone may
    /// always leave.
    pub(super) fn is_full_below(&self, now_ns: u64) -> bool {
        let several = self.outstanding() > u64::from(self.mss);
        several && !self.is_leaving(now_ns) && u64::from(self.below_bytes) >= self.limit_below()
    }

    fn limit_below(&self) -> u64 {
        let overhead = u64::from(OVERHEAD_BYTES);
        if self.board.waiting() > 0 {
            return (4 * (u64::from(self.mss) + overhead))
                .max(2 * self.share())
                .min(LIMIT_BYTES);
        }
        let two = 2 * (self.super_packet() + overhead);
        two.max(self.share()).min(LIMIT_BYTES)
    }

    /// Bytes that leave in 2^-10 s at the pacing rate.
    fn share(&self) -> u64 {
        let window = u64::from(self.cc.cwnd).max(self.outstanding());
        window * self.pacing_percent() / 100 * SHARE_NS / self.rtt.srtt().max(1)
    }

    /// With so much room in both windows, more than one segment waits for a larger super-packet
    /// (`tcp_tso_should_defer`): if that is less than a third of the window and not all that one
    /// takes, if data left within the last millisecond, and if the oldest segment out is at least
    /// half an RTT old, so that its ACK is near.
    #[inline]
    pub(super) fn defers(&self, now_ns: u64, room: u64) -> bool {
        if !self.config.super_packets || self.is_leaving(now_ns) || self.data_sent_ns == now_ns {
            return false;
        }
        let Some(oldest) = self.board.front() else {
            return false;
        };
        let window = u64::from(self.cc.cwnd).min(self.snd_wnd);
        room < window / WINDOW_DIVISOR
            && self.phase == Phase::Open
            && now_ns.saturating_sub(self.data_sent_ns) <= RECENT_NS
            && now_ns.saturating_sub(oldest.sent_ns) >= self.rtt.srtt() / 2
            && room < self.largest_super_packet()
    }

    /// Bytes of data that a super-packet takes at most, in whole segments.
    fn largest_super_packet(&self) -> u64 {
        let mss = u64::from(self.mss);
        let near = SUPER_PACKET_BYTES
            .checked_shr((self.rtt.min() / HALVING_NS).min(64) as u32)
            .unwrap_or(0);
        let goal = (self.share() + near).min(SUPER_PACKET_BYTES);
        (goal / mss).max(LEAST_SEGMENTS) * mss
    }

    /// Bytes of data in the next super-packet: what waits and both windows allow, in whole
    /// segments.
    fn super_packet(&self) -> u64 {
        let mss = u64::from(self.mss);
        let room = self.window().saturating_sub(self.pipe());
        let data = self.snd_end.saturating_sub(self.snd_nxt);
        let allowed = room.min(self.usable()).min(self.largest_super_packet());
        (allowed - allowed % mss).clamp(mss.min(data), data.max(1))
    }
}
