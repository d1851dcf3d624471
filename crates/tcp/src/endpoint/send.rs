//! The sending half: what may leave now, and how it looks.
//!
//! [`Endpoint::next`] decides without changing anything; [`Endpoint::transmit`] does what it says.
//! So [`Endpoint::has_output`] cannot be wrong.

use sluicegate_core::{cc::SSTHRESH_UNKNOWN, number::narrow};

use super::{
    Endpoint, FULL, Phase, State, Timer, acknowledge::saturated, scoreboard, sequence::wire,
};
use crate::{
    Segment,
    config::Recovery,
    segment::{ecn, flags},
};

/// The next segment to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Rst,
    Syn,
    /// An ACK that was held back when CE changed: its number and ECE.
    Changed(u64, bool),
    Ack,
    /// So much of a record again.
    Again {
        index: usize,
        len: u32,
    },
    Data {
        len: u32,
        fin: bool,
    },
    /// A window probe without data.
    Probe,
}

/// Segments at the beginning that are not paced.
const UNPACED_SEGMENTS: u64 = 10;

impl Endpoint {
    /// [`Endpoint::transmit`], whatever leaves. Public for tests, which compare the two.
    #[doc(hidden)]
    pub fn transmit_any(&mut self, now_ns: u64) -> Option<Segment> {
        if self.rests(now_ns) {
            self.cc.on_idle(&self.config.params);
            self.data_sent_ns = now_ns;
        }
        let output = self.next(now_ns)?;
        self.counts.segments_sent += 1;
        if let (Output::Data { len, .. }, true) = (output, self.config.small_queues) {
            self.take_of_super_packet(now_ns, len);
        }
        let mut segment = match output {
            Output::Rst => self.send_rst(now_ns),
            Output::Syn => self.send_syn(now_ns),
            Output::Changed(ack, ece) => self.send_changed_ack(now_ns, ack, ece),
            Output::Ack if self.repeats_fin() => self.send_fin_again(now_ns),
            Output::Ack => self.send_ack(now_ns),
            Output::Again { index, len } => self.send_again(now_ns, index, len),
            Output::Data { len, fin } => self.send_data(now_ns, len, fin),
            Output::Probe => self.send_probe(now_ns),
        };
        if self.options.accurate && !segment.has(flags::SYN) {
            self.tell(now_ns, &mut segment);
        }
        if self.config.small_queues {
            self.waits_below(segment.payload);
        }
        Some(segment)
    }

    /// Whether [`Endpoint::transmit`] would give a segment.
    pub fn has_output(&self, now_ns: u64) -> bool {
        self.next(now_ns).is_some()
    }

    fn next(&self, now_ns: u64) -> Option<Output> {
        match self.state {
            State::Closed => return self.flags.rst_pending.then_some(Output::Rst),
            State::SynSent | State::SynReceived if self.flags.syn_pending => {
                return Some(Output::Syn);
            }
            State::SynReceived if self.rare.opened_fast => (),
            State::SynReceived if self.receiver.ack_first => return Some(Output::Ack),
            State::SynSent | State::SynReceived => return None,
            _ => (),
        }
        if let Some((ack, ece)) = self.receiver.changed {
            return Some(Output::Changed(ack, ece));
        }
        if self.receiver.ack_first {
            return Some(Output::Ack);
        }
        if self.wants_to_send() && !self.waits_for_others(now_ns) {
            if let Some(output) = self.next_data(now_ns) {
                return Some(output);
            }
        }
        self.receiver.ack_now.then_some(Output::Ack)
    }

    /// Something could be sent if windows allow.
    pub(super) fn wants_to_send(&self) -> bool {
        self.unsent() > 0
            || self.board.waiting() > 0
            || self.flags.probe_pending
            || self.rack.probe_pending
            || self.phase == Phase::Recovery
    }

    /// Pacing, or what has not yet left the host, holds back what the windows allow.
    fn waits_for_others(&self, now_ns: u64) -> bool {
        self.config.pacing && now_ns < self.pace_next_ns
            || self.below_bytes > 0 && self.is_full_below(now_ns)
    }

    /// Only pacing holds back what would leave.
    pub(super) fn waits_for_pace(&self) -> bool {
        let later_ns = self.pace_next_ns.max(self.data_sent_ns + 1);
        self.synchronized() && self.wants_to_send() && self.next_data(later_ns).is_some()
    }

    /// Sequence numbers that have never left: data and FIN.
    pub(super) fn unsent(&self) -> u64 {
        (self.snd_end + u64::from(self.flags.fin_queued)).saturating_sub(self.snd_nxt)
    }

    /// Data in the order of RFC 6675's NextSeg: what is lost, what is new, what may be lost.
    pub(super) fn next_data(&self, now_ns: u64) -> Option<Output> {
        let mut room = self.window().saturating_sub(self.pipe_as_counted());
        if self.board.waiting() > 0 && self.flags.new_first {
            return self.next_new(now_ns, room);
        }
        if self.board.waiting() > 0 {
            if self.flags.force {
                room = room.max(self.mss.into());
            }
            return self.next_lost(room);
        }
        if self.rack.probe_pending {
            return self.next_tail_probe();
        }
        if self.flags.probe_pending {
            return Some(self.next_window_probe());
        }
        if let Some(output) = self.next_new(now_ns, room) {
            return Some(output);
        }
        if self.phase == Phase::Recovery && self.repair() == Recovery::Sack {
            return self.next_guess(room);
        }
        None
    }

    /// The bytes that congestion control allows in flight: cwnd, during a reduction what PRR
    /// allows, after a timeout one segment.
    pub fn window(&self) -> u64 {
        if self.flags.one_segment {
            return self.mss.into();
        }
        if self.flags.reducing {
            return self.reduction.window.into();
        }
        // Our SYN is out beside the data of a fast open.
        u64::from(self.cc.cwnd) + u64::from(self.state == State::SynReceived)
    }

    /// The bytes in flight as far as they hold back new data. Before recovery limited transmit
    /// allows two segments beyond cwnd (RFC 3042); RACK's reordering window may be longer than
    /// that.
    fn pipe_as_counted(&self) -> u64 {
        let pipe = self.pipe();
        if pipe == self.outstanding()
            || self.phase != Phase::Open
            || self.repair() == Recovery::Rack
        {
            return pipe;
        }
        let beyond = if self.config.limited_transmit { 2 } else { 0 };
        pipe.max(
            self.outstanding()
                .saturating_sub(beyond * u64::from(self.mss)),
        )
    }

    /// `len` cut to what `room` holds in whole segments; `None` when that is nothing.
    fn cut(&self, len: u64, room: u64) -> Option<u64> {
        let len = len.min(self.burst.into());
        if len <= room {
            return Some(len);
        }
        let whole = room - room % u64::from(self.mss);
        (whole > 0).then_some(whole.min(len))
    }

    fn next_lost(&self, room: u64) -> Option<Output> {
        if room == 0 {
            return None;
        }
        let index = self.board.next_waiting()?;
        self.again(index, room)
    }

    /// A record again, or its beginning. A window that was shrunk below it holds it back unless it
    /// is the first: that one serves as the probe.
    fn again(&self, index: usize, room: u64) -> Option<Output> {
        let record = self.board.get(index);
        let edge = self.snd_una + self.snd_wnd;
        let mut len = self.cut(record.len.into(), room)?;
        if record.start() == self.snd_una {
            let least = self.snd_wnd.max(self.mss.into());
            len = len.min(least);
        } else {
            len = len.min(edge.saturating_sub(record.start()));
        }
        let len = narrow::<u32>(len);
        (len > 0).then_some(Output::Again { index, len })
    }

    /// RFC 6675 NextSeg, rules 3 and 4.
    fn next_guess(&self, room: u64) -> Option<Output> {
        if room < self.mss.into() {
            return None;
        }
        if let Some(index) = self.board.next_hole() {
            return self.again(index, room);
        }
        // FreeBSD had no rescue before its version 13.
        if self.flags.rescued || self.config.freebsd {
            return None;
        }
        let index = self.board.last_unsacked()?;
        let record = self.board.get(index);
        if record.is(scoreboard::AGAIN) {
            return None;
        }
        self.again(index, room)
    }

    /// Bytes that the peer's window allows beyond snd_nxt.
    pub(super) fn usable(&self) -> u64 {
        (self.snd_una + self.snd_wnd).saturating_sub(self.snd_nxt)
    }

    /// Nothing is in flight: does the peer's window allow what waits? (RFC 9293 3.8.6.2.1)
    pub(super) fn fits_window(&self) -> bool {
        let usable = self.usable();
        usable >= self.unsent().min(self.mss.into()) || (usable > 0 && usable >= self.max_wnd / 2)
    }

    /// New data, or FIN.
    fn next_new(&self, now_ns: u64, room: u64) -> Option<Output> {
        let waits = self.unsent();
        let usable = self.usable();
        if waits == 0 || usable == 0 {
            return None;
        }
        let rest = self.snd_end.saturating_sub(self.snd_nxt);
        if rest == 0 {
            return Some(Output::Data { len: 0, fin: true });
        }
        let data = self.record_end().saturating_sub(self.snd_nxt);
        let mss = u64::from(self.mss);
        let allowed = data.min(usable);
        // The common case: more than one segment waits.
        if allowed > mss && self.burst == self.mss {
            let (len, fin) = (self.mss, false);
            let leaves = room >= mss && !self.defers(now_ns, room.min(usable));
            return leaves.then_some(Output::Data { len, fin });
        }
        let mut len = self.cut(allowed, room)?;
        if data > mss && self.defers(now_ns, room.min(usable)) {
            return None;
        }
        // A super-packet takes its last partial segment along unless an earlier one is out (Linux's
        // tcp_mss_split_point()).
        if len > mss && self.config.nagle && self.small_end > self.snd_una {
            len -= len % mss;
        }
        let fin = waits > rest && len == rest && len < usable;
        // A segment that ends a record with others behind it is as good as full.
        let whole = len == data && data < rest;
        let leaves = len >= mss || fin || whole || self.small_may_leave(now_ns, len, data, usable);
        let len = narrow::<u32>(len);
        leaves.then_some(Output::Data { len, fin })
    }

    /// Whether new data could leave now.
    pub(super) fn new_data_fits(&self, now_ns: u64) -> bool {
        let room = self.window().saturating_sub(self.pipe());
        self.next_new(now_ns, room).is_some()
    }

    /// Less than a full segment: Nagle's algorithm when it is the end of the data, silly window
    /// avoidance when the window ends there.
    fn small_may_leave(&self, now_ns: u64, len: u64, data: u64, usable: u64) -> bool {
        let alone = self.snd_una == self.snd_nxt;
        if len == data {
            if self.flags.more || self.flags.corked {
                return false;
            }
            let first = alone || (self.config.minshall && self.small_end <= self.snd_una);
            return first || !self.config.nagle;
        }
        if len < usable {
            return false; // cwnd ends here
        }
        // Behind whole segments of the same instant, as Linux does; half of the largest window.
        let goes_along = self.config.super_packets && !self.config.nagle;
        let follows = self.config.minshall
            && !self.begins_record()
            && !alone
            && self.data_sent_ns == now_ns
            && (goes_along || self.small_end <= self.snd_una);
        follows || len >= self.max_wnd / 2
    }

    /// RFC 9293 3.8.6.1: what fits, or no data at all, which an ACK answers as well.
    fn next_window_probe(&self) -> Output {
        let data = self.snd_end.saturating_sub(self.snd_nxt);
        let len = data.min(self.usable()).min(self.mss.into());
        if len == 0 {
            return Output::Probe;
        }
        let len = narrow::<u32>(len);
        Output::Data { len, fin: false }
    }

    /// RFC 8985 7.3: new data if the peer's window allows, else the last segment again.
    fn next_tail_probe(&self) -> Option<Output> {
        let mss = u64::from(self.mss);
        let data = self.snd_end.saturating_sub(self.snd_nxt);
        let len = data.min(mss);
        if len > 0 && len <= self.usable() {
            let len = narrow::<u32>(len);
            return Some(Output::Data { len, fin: false });
        }
        let index = self.board.last_unsacked()?;
        let len = self.board.get(index).len.min(self.mss + 1);
        Some(Output::Again { index, len })
    }

    /// Data waits after idleness of an RTO (RFC 5681 4.1).
    fn rests(&self, now_ns: u64) -> bool {
        self.snd_una == self.snd_nxt
            && self.unsent() > 0
            && self.fits_window()
            && self.config.restart_after_idle
            && self.synchronized()
            && now_ns.saturating_sub(self.data_sent_ns) > self.rtt.rto()
    }

    /// With timestamps, which RFC 7323 3.2 wants on an RST as well.
    fn send_rst(&mut self, now_ns: u64) -> Segment {
        self.flags.rst_pending = false;
        let mut segment = self.bare(now_ns, self.snd_nxt);
        segment.ack = wire(self.receiver.next);
        segment.flags |= flags::RST;
        if !self.config.freebsd {
            segment.window = self.receiver.offer();
        }
        segment
    }

    #[inline(always)]
    pub(super) fn send_ack(&mut self, now_ns: u64) -> Segment {
        let mut segment = self.header(now_ns, self.snd_nxt);
        if self.options.sack && self.receiver.disorder {
            self.receiver.add_sack(&mut segment);
        }
        segment
    }

    fn send_probe(&mut self, now_ns: u64) -> Segment {
        self.flags.probe_pending = false;
        self.rare.window_probes += 1;
        self.header(now_ns, self.snd_una - 1)
    }

    #[inline(always)]
    pub(super) fn send_data(&mut self, now_ns: u64, len: u32, fin: bool) -> Segment {
        let mut segment = self.header(now_ns, self.snd_nxt);
        let length = len + u32::from(fin);
        segment.payload = narrow::<u16>(len);
        self.snd_nxt += u64::from(length);
        if self.snd_nxt >= self.snd_end && len > 0 {
            segment.flags |= flags::PSH;
        }
        if fin {
            segment.flags |= flags::FIN;
        }
        if self.options.ecn && len > 0 {
            segment.ecn = ecn::ECT0;
            if self.flags.cwr_pending {
                self.flags.cwr_pending = false;
                segment.flags |= flags::CWR;
            }
        }
        if len != self.mss && (len == 0 || len % self.mss != 0) {
            self.small_end = self.snd_nxt;
        }
        if self.flags.probe_pending {
            self.flags.probe_pending = false;
            self.rare.window_probes += 1;
        }
        self.board.push(scoreboard::Sent {
            end: self.snd_nxt,
            sent_ns: now_ns,
            len: length,
            flags: if fin { scoreboard::FIN } else { 0 },
        });
        self.note_peak();
        self.data_left(now_ns, length, false);
        segment
    }

    /// How full the window is, for [`Endpoint::window_used`]: by Linux's rule the fullest time of a
    /// round counts, and one at which it was full begins the round anew.
    #[inline]
    fn note_peak(&mut self) {
        let full = self.pipe() + u64::from(self.mss) > self.window();
        let peak = if full {
            FULL
        } else {
            saturated(self.outstanding())
        };
        let ended = wire(self.snd_una).wrapping_sub(self.peak_end) as i32 >= 0;
        if full || ended || peak > self.peak {
            self.peak = peak;
            self.peak_end = wire(self.snd_nxt);
        }
    }

    /// A record again, or the first `len` of its sequence numbers.
    fn send_again(&mut self, now_ns: u64, index: usize, len: u32) -> Segment {
        let (mut index, mut len) = (index, len);
        let probes = self.rack.probe_pending;
        if probes {
            index = self.cut_tail(index, len);
        } else if len < self.board.get(index).len {
            let at = self.board.get(index).start() + u64::from(len);
            self.board.split(index, at);
        }
        if !probes && !self.board.get(index).is(scoreboard::LOST) {
            // A guess: the last one is the rescue.
            self.flags.rescued |= self.board.next_hole() != Some(index);
        }
        let record = *self.board.get(index);
        len = record.len;
        self.board.sent_again(index, now_ns);
        let mut segment = self.header(now_ns, record.start());
        segment.payload = narrow::<u16>(record.payload());
        if record.is(scoreboard::FIN) {
            segment.flags |= flags::FIN;
        }
        if record.end >= self.snd_end && record.payload() > 0 {
            segment.flags |= flags::PSH;
        }
        // FreeBSD tells of its cut with whatever leaves first.
        if self.config.freebsd && self.flags.cwr_pending {
            self.flags.cwr_pending = false;
            segment.flags |= flags::CWR;
        }
        // RFC 3168 6.1.5; DCTCP's peers rely on marks instead of drops.
        if self.options.ecn && self.config.dctcp_receiver && record.payload() > 0 {
            segment.ecn = ecn::ECT0;
        }
        self.flags.force = false;
        if !probes {
            let ts_val = self.ts_clock(now_ns);
            self.reduction.sent_again(len, ts_val);
        }
        self.rare.retransmits += u64::from(len.div_ceil(self.mss).max(1));
        self.rare.retransmitted_bytes += u64::from(record.payload());
        self.data_left(now_ns, len, true);
        segment
    }

    /// Data has left: timers, pacing, counts.
    #[inline(always)]
    fn data_left(&mut self, now_ns: u64, len: u32, again: bool) {
        self.data_sent_ns = now_ns;
        let within_ns = self.config.delayed_ack.timeout_ns;
        self.receiver.answered(now_ns, within_ns);
        if self.flags.reducing {
            self.reduction.sent = self.reduction.sent.saturating_add(len);
        }
        if self.rack.probe_pending {
            self.tail_probe_left(again);
        }
        if self.timer == Timer::Off {
            self.restart_timer(now_ns);
        } else if !again {
            self.postpone_probe(now_ns);
        }
        if self.config.pacing {
            self.pace(now_ns, len);
        }
    }

    /// The next segment leaves when this one has had its share of the RTT: 1.2 × cwnd / SRTT, in
    /// slow start 2 × (Linux). The first window is not paced, and a segment that has left late has
    /// the next one follow earlier by up to half (`tcp_update_skb_after_send`).
    fn pace(&mut self, now_ns: u64, len: u32) {
        let sent = self.counts.acked_bytes + self.snd_nxt - self.snd_una;
        if sent < UNPACED_SEGMENTS * u64::from(self.mss) {
            return;
        }
        let cwnd = u64::from(self.cc.cwnd).max(1);
        let percent = self.pacing_percent();
        let share_ns = u64::from(len) * self.rtt.srtt() / (cwnd * percent) * 100;
        let late_ns = now_ns.saturating_sub(self.pace_next_ns);
        self.pace_next_ns = self.pace_next_ns.max(now_ns) + share_ns - late_ns.min(share_ns / 2);
    }

    /// How much faster than cwnd / SRTT data may leave.
    pub(super) fn pacing_percent(&self) -> u64 {
        let (cwnd, ssthresh) = (self.cc.cwnd, self.cc.ssthresh);
        let slow_start = ssthresh == SSTHRESH_UNKNOWN || cwnd < ssthresh / 2;
        if slow_start { 200 } else { 120 }
    }
}
