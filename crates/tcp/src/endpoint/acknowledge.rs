//! The processing of an arriving ACK: RFC 9293 3.10.7.4 (fifth), SACK, RTT, congestion control.

use sluicegate_core::{
    cc::{Ack, CC_CUT},
    number::narrow,
};

use super::{
    Endpoint, Events, FULL, Phase, State,
    scoreboard::{RETRANSMITTED, SACKED, Sent},
    sequence,
};
use crate::{Segment, segment::flags};

/// The news that one ACK has brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct News {
    /// Bytes by which snd_una advances.
    pub acked: u64,
    /// Bytes that have newly left the network.
    pub delivered: u64,
    /// First and last departure of what is acknowledged and left only once; 0 = none.
    first_sent_ns: u64,
    last_sent_ns: u64,
    /// Something that was retransmitted is acknowledged.
    pub retransmitted: bool,
    /// End of the first segment that has newly arrived and left only once; 0 = none.
    pub original_end: u64,
    /// SACK blocks say something new.
    pub sacked: bool,
    /// Segments that have newly left the network.
    pub records: u32,
    /// A D-SACK block is present.
    pub duplicate: bool,
    /// By RFC 5681: repeats the last ACK and nothing else.
    pub repeats: bool,
}

impl News {
    fn note(&mut self, record: &Sent) {
        if record.is(RETRANSMITTED) {
            self.retransmitted = true;
        } else if !record.is(SACKED) {
            if self.first_sent_ns == 0 {
                self.first_sent_ns = record.sent_ns.max(1);
                self.original_end = record.end;
            }
            self.last_sent_ns = record.sent_ns;
        }
    }
}

impl Endpoint {
    /// The acknowledgement `ack`, snd_nxt at most.
    pub(super) fn acknowledged(
        &mut self,
        now_ns: u64,
        segment: &Segment,
        seq: u64,
        ack: u64,
    ) -> Events {
        if ack < self.snd_una {
            self.note_late_sack(now_ns, segment, ack);
            return Events::EMPTY;
        }
        self.flags.more = false;
        let flight = self.pipe();
        let left = self.left_network();
        let window_changed = self.update_window(now_ns, segment, seq, ack);
        let mut news = News {
            acked: ack - self.snd_una,
            repeats: ack == self.snd_una
                && segment.length() == 0
                && !window_changed
                && self.snd_nxt > self.snd_una,
            ..News::default()
        };
        let high = self.rack.high();
        if !segment.sack().is_empty() && self.options.sack {
            self.note_sack(now_ns, segment, ack, &mut news);
        }
        if news.acked > 0 {
            // Data that this ACK itself SACKs has not overtaken the data that it acknowledges.
            let sacked = self.rack.compare_with(high);
            self.advance(now_ns, segment, ack, &mut news);
            let high = self.rack.high().max(sacked);
            self.rack.compare_with(high);
        } else if self.snd_una == self.snd_nxt && !news.duplicate {
            if self.options.accurate {
                self.hear(segment, &news);
            }
            return Events::EMPTY;
        }
        let was = self.phase;
        if was != Phase::Open || news.duplicate {
            self.judge_reduction(now_ns, segment, &news);
        }
        self.leave_recovery();
        self.count_duplicates(&news);
        news.delivered = self.left_network().saturating_sub(left);
        if segment.has(flags::ECE) && self.options.ecn {
            self.note_marked(news.delivered);
            self.counts.ece_received += u64::from(news.acked > 0);
        } else if self.options.accurate {
            self.hear(segment, &news);
        }
        if news.acked > 0 {
            self.grow(now_ns, &news, flight);
        }
        let waiting = self.board.waiting();
        let eventful = news.repeats || news.sacked || news.duplicate;
        if eventful || was != Phase::Open || !self.board.is_plain() || self.rack.probe_is_out() {
            self.repair_losses(now_ns, was, &news);
        } else if news.acked > 0 {
            self.restart_timer(now_ns);
        }
        if self.flags.reducing {
            let safe = !self.config.prr_safe || self.board.waiting() <= waiting;
            self.reduce_proportionally(news.delivered, news.acked > 0 && safe);
        }
        if news.acked == 0 {
            return Events::EMPTY;
        }
        self.after_ack(now_ns)
    }

    /// An ACK that others have overtaken: its SACK blocks may still say something new (Linux).
    fn note_late_sack(&mut self, now_ns: u64, segment: &Segment, ack: u64) {
        if segment.sack().is_empty() || !self.options.sack || self.board.is_empty() {
            return;
        }
        let left = self.left_network();
        let mut news = News::default();
        self.note_sack(now_ns, segment, ack, &mut news);
        news.delivered = self.left_network().saturating_sub(left);
        if news.sacked || news.duplicate {
            self.repair_losses(now_ns, self.phase, &news);
        }
        if self.flags.reducing {
            self.reduce_proportionally(news.delivered, false);
        }
    }

    /// So many bytes were delivered under CE.
    #[inline]
    pub(super) fn note_marked(&mut self, bytes: u64) {
        self.marked_bytes = saturated(u64::from(self.marked_bytes) + bytes);
        self.rare.marked_bytes += bytes;
    }

    /// Bytes that have left the network. Only differences are meaningful.
    pub(super) fn left_network(&self) -> u64 {
        self.snd_una + self.board.sacked() + u64::from(self.duplicate_bytes)
    }

    /// The window that a segment offers, or what a cheat takes it for.
    #[inline]
    pub(super) fn offered(&self, segment: &Segment, shift: u8) -> u64 {
        let field = match self.config.ignore_window {
            true => u16::MAX,
            false => segment.window,
        };
        u64::from(field) << shift
    }

    /// SND.WND (RFC 9293 3.10.7.4), by Linux's rule: of two ACKs that differ in nothing else the
    /// larger window is the later one, unless it is closed. True if the window is another one now.
    #[inline(always)]
    pub(super) fn update_window(
        &mut self,
        now_ns: u64,
        segment: &Segment,
        seq: u64,
        ack: u64,
    ) -> bool {
        let window = self.offered(segment, self.options.snd_wscale);
        self.persist_ns = now_ns;
        // A peer that keeps its window closed but answers is waited for (RFC 9293 3.8.6.1).
        if window == 0 || self.snd_una == self.snd_nxt {
            self.retries = 0;
        }
        let newer = ack > self.snd_una
            || seq > self.snd_wl1
            || (seq == self.snd_wl1 && (window > self.snd_wnd || window == 0));
        if !newer {
            return window != self.snd_wnd;
        }
        self.snd_wl1 = seq;
        if window == self.snd_wnd {
            return false;
        }
        if window > self.snd_wnd {
            self.persist_backoff = 0;
        }
        self.snd_wnd = window;
        self.max_wnd = self.max_wnd.max(window);
        true
    }

    fn note_sack(&mut self, now_ns: u64, segment: &Segment, ack: u64, news: &mut News) {
        let blocks = segment.sack();
        let near = self.snd_una;
        let range = |index: usize| {
            let left = sequence::unwrap(blocks[index].left, near);
            let right = sequence::unwrap(blocks[index].right, near);
            (left, right)
        };
        let (rack, min_ns, mss) = (&mut self.rack, self.rtt.min(), self.mss);
        let (left, right) = range(0);
        // RFC 2883: a first block below the ACK, or inside the second.
        let inside = |(outer_left, outer_right)| outer_left <= left && right <= outer_right;
        if right <= ack || (blocks.len() > 1 && inside(range(1))) {
            news.duplicate = true;
            self.rare.dsack_received += 1;
            self.reduction.duplicate(left, right);
        }
        for index in 0..blocks.len() {
            let (left, right) = range(index);
            let left = left.max(ack);
            if left >= right || right > self.snd_nxt || (index == 0 && news.duplicate) {
                continue;
            }
            self.board.sack(left, right, mss, |record| {
                news.sacked = true;
                news.records += 1;
                if !record.is(RETRANSMITTED) && news.original_end == 0 {
                    news.original_end = record.end;
                }
                // The echo is that of the last segment in order (RFC 7323 4.3), not of this one.
                rack.deliver(record, now_ns, min_ns, None);
            });
        }
    }

    /// snd_una moves to `ack`.
    fn advance(&mut self, now_ns: u64, segment: &Segment, ack: u64, news: &mut News) {
        let echo = self.echo(segment);
        let min_ns = self.rtt.min();
        let rack = &mut self.rack;
        self.board.acknowledge(ack, |record| {
            news.note(record);
            if !record.is(SACKED) {
                news.records += 1;
                rack.deliver(record, now_ns, min_ns, echo);
            }
        });
        self.snd_una = ack;
        self.retries = 0;
        self.duplicate_acks = 0;
        self.forget_records();
        self.discount_duplicates(news.acked);
        self.counts.acked_bytes += news.acked - u64::from(ack > self.snd_end);
        // Karn: nothing that may answer two departures is timed, but timestamps tell them apart.
        let rtt = match news.first_sent_ns != 0 && !news.retransmitted {
            true => Some(now_ns.saturating_sub(news.first_sent_ns)),
            false => self.rtt_by_timestamp(now_ns, segment),
        };
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt, &self.config.rto);
        }
    }

    /// The state of the connection as congestion control sees it.
    #[inline]
    pub(super) fn cc_state(&self, now_ns: u64) -> Ack {
        Ack {
            now_ns,
            min_rtt_ns: self.rtt.data_min(),
            snd_una: sequence::wire(self.snd_una),
            snd_nxt: sequence::wire(self.snd_nxt),
            flight: saturated(self.outstanding()),
            ..Ack::default()
        }
    }

    /// New data is acknowledged: congestion control. As in Linux a byte counts when it has left the
    /// network, so that a cumulative ACK says nothing new of what was SACKed before; without SACK,
    /// after a timeout, an ACK counts for a segment at most (RFC 3465 2.3).
    fn grow(&mut self, now_ns: u64, news: &News, flight: u64) {
        let most = match self.phase {
            Phase::Loss if !self.options.sack => self.mss.into(),
            _ => u64::MAX,
        };
        let acked = saturated(news.delivered.clamp(1, most));
        let sample = news.first_sent_ns != 0 && !news.retransmitted;
        let rtt_ns = if sample {
            saturated(now_ns.saturating_sub(news.last_sent_ns)).max(1)
        } else {
            0
        };
        self.feed(now_ns, acked, rtt_ns, flight);
    }

    /// Congestion control is told of `acked` bytes that took `rtt_ns` (0 = not known) while
    /// `flight` were out.
    #[inline(always)]
    pub(super) fn feed(&mut self, now_ns: u64, acked: u32, rtt_ns: u32, flight: u64) {
        self.rtt.data(rtt_ns);
        if self.config.hystart {
            self.watch_slow_start(now_ns, rtt_ns.into());
        }
        let marked = std::mem::take(&mut self.marked_bytes).min(acked);
        let first_after_timeout = std::mem::take(&mut self.flags.one_segment);
        let ack = Ack {
            acked,
            marked,
            rtt_ns,
            flight: saturated(flight),
            window_used: (self.window_used() && !first_after_timeout).into(),
            in_recovery: (self.phase == Phase::Recovery).into(),
            ..self.cc_state(now_ns)
        };
        let (cwnd, before) = (self.cc.cwnd, (self.cc.flags & CC_CUT, self.cc.cut_end));
        let config = &self.config;
        self.cc.on_ack(&config.params, config.algorithm, &ack);
        if marked > 0 && self.cc.flags & CC_CUT != 0 && before != (CC_CUT, self.cc.cut_end) {
            self.marks_have_cut();
        }
        if self.config.hystart && ack.window_used != 0 {
            self.grow_until_loss(cwnd, acked);
        }
        self.grow_send_buffer();
    }

    fn marks_have_cut(&mut self) {
        self.note_cut();
        self.flags.cwr_pending = self.options.ecn;
        self.mark_recover = self.snd_nxt;
        if self.phase == Phase::Open {
            self.reduction.forget();
            self.begin_reduction(self.cc.prior);
        }
    }

    /// Growth is earned by a window in use (RFC 7661; the test is Linux's): it was full at some
    /// time in this round, or in slow start more than half full.
    fn window_used(&self) -> bool {
        if self.config.grows_unused {
            return u64::from(self.cc.cwnd) <= self.snd_wnd();
        }
        let slow_start = self.cc.cwnd < self.cc.ssthresh;
        self.peak == FULL || (slow_start && self.cc.cwnd / 2 < self.peak)
    }

    /// Twice the congestion window, up to the maximum, as Linux does.
    fn grow_send_buffer(&mut self) {
        let limit = self.config.send_buffer.max_bytes;
        if self.send_buffer < limit {
            let wanted = 2 * u64::from(self.cc.cwnd);
            self.send_buffer = self.send_buffer.max(wanted.min(limit));
        }
    }

    /// The application, and our FIN.
    #[inline]
    pub(super) fn after_ack(&mut self, now_ns: u64) -> Events {
        let mut events = Events::EMPTY;
        if self.flags.write_blocked && self.may_send() {
            let free = self.send_buffer.saturating_sub(self.unacknowledged());
            if free >= self.send_buffer / 3 {
                self.flags.write_blocked = false;
                events = Events::WRITABLE;
            }
        }
        if !(self.flags.fin_queued && self.fin_sent() && self.snd_una == self.snd_nxt) {
            return events;
        }
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => events = events | self.enter_time_wait(now_ns),
            State::LastAck => {
                self.finish();
                events = events | self.closed();
            }
            _ => (),
        }
        events
    }
}

/// Into 32 bits, as core counts.
#[inline]
pub fn saturated(value: u64) -> u32 {
    narrow::<u32>(value.min(u32::MAX.into()))
}
