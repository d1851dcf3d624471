//! Arriving segments: sequence checks, data in and out of order, FIN, CE, and the headers that
//! answer.

use super::{Endpoint, Error, Events, NEVER, State, Timer, reassembly::Range, sequence};
use crate::{
    Segment,
    segment::{ecn, flags, option},
};

/// An old timestamp is not believed for longer (RFC 7323 5.5): 24 days of millisecond ticks.
const TS_TICKS: u64 = 1 << 31;

impl Endpoint {
    /// PAWS (RFC 7323 section 5). An old segment with data is acknowledged.
    pub(super) fn timestamp_fits(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> bool {
        if !self.options.timestamps
            || segment.options & option::TIMESTAMPS == 0
            || segment.has(flags::RST)
            || segment.ts_val.wrapping_sub(self.receiver.ts_recent) as i32 >= 0
        {
            return true;
        }
        let limit = TS_TICKS * self.config.rto.granularity_ns.max(1);
        if now_ns - self.receiver.ts_recent_ns > limit {
            return true;
        }
        if segment.length() > 0 {
            self.note_duplicate(seq, seq + u64::from(segment.length()));
        }
        false
    }

    /// TS.Recent follows the segment that the next ACK answers (RFC 7323 4.3).
    pub(super) fn note_timestamp(&mut self, now_ns: u64, segment: &Segment, seq: u64) {
        if self.options.timestamps
            && segment.options & option::TIMESTAMPS != 0
            && seq <= self.receiver.acked
            && segment.ts_val.wrapping_sub(self.receiver.ts_recent) as i32 >= 0
        {
            self.receiver.set_ts_recent(segment.ts_val, now_ns);
        }
    }

    /// RFC 9293 3.4 with Linux's latitude: an ACK may lie at the right edge, or behind rcv_nxt as
    /// long as no ACK of ours has passed it.
    pub(super) fn sequence_fits(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> bool {
        let length = u64::from(segment.length());
        let fits = match self.receiver.memory {
            Some(_) => self.is_in_counted_window(segment, seq),
            None => seq + length >= self.receiver.acked && seq <= self.receiver.edge,
        };
        if fits {
            return true;
        }
        if segment.has(flags::RST) {
            return false;
        }
        if segment.has(flags::SYN) {
            self.challenge_syn(now_ns, segment);
        } else if length > 0 {
            self.note_duplicate(seq, seq + length);
            self.restart_time_wait(now_ns);
        } else if seq + 1 == self.receiver.next {
            self.receiver.ack_first = true; // a window probe, or a keepalive
        } else {
            self.challenge(now_ns);
        }
        false
    }

    /// An ACK that says what is expected, not too often (RFC 5961).
    pub(super) fn challenge(&mut self, now_ns: u64) -> Events {
        if now_ns >= self.rare.challenge_ns {
            self.rare.challenge_ns = now_ns + self.config.challenge_ns;
            self.receiver.ack_first = true;
        }
        Events::EMPTY
    }

    /// RFC 5961 sections 3 and 4: only an RST that is exactly in order resets, a SYN never does.
    pub(super) fn reset_or_syn(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> Events {
        if !segment.has(flags::RST) || seq != self.receiver.next {
            if segment.has(flags::SYN) {
                self.challenge_syn(now_ns, segment);
            } else if seq >= self.receiver.next {
                self.challenge(now_ns);
            }
            return Events::EMPTY;
        }
        match self.state {
            State::Closing | State::LastAck | State::TimeWait => {
                self.finish();
                self.closed()
            }
            _ => self.fail(Error::Reset),
        }
    }

    /// `start..end` has arrived before: the peer is told at once, with D-SACK if it understands.
    pub(super) fn note_duplicate(&mut self, start: u64, end: u64) {
        self.receiver.ack_first = true;
        self.receiver.quick = self.config.delayed_ack.quick;
        if self.options.accurate {
            self.judge_duplicate(start, end);
        }
        if self.options.sack && end <= self.receiver.next && end > start {
            self.receiver.note_duplicate(Range { start, end });
        }
    }

    /// The peer sends its FIN again: our ACK was lost (RFC 9293 3.10.7.4).
    fn restart_time_wait(&mut self, now_ns: u64) {
        if self.state == State::TimeWait {
            self.set_timer(Timer::TimeWait, now_ns + self.config.time_wait_ns);
        }
    }

    /// Data or FIN, acceptable as far as the window goes.
    pub(super) fn data(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> Events {
        let end = seq + u64::from(segment.length());
        if end <= self.receiver.next {
            self.note_congestion(segment);
            self.note_duplicate(seq, end);
            self.restart_time_wait(now_ns);
            return Events::EMPTY;
        }
        if self.receiver.memory.is_some() && self.may_receive() {
            return self.data_counted(now_ns, segment, seq);
        }
        let within = end.min(self.receiver.edge);
        if !self.may_receive() || within <= self.receiver.next.max(seq) {
            self.receiver.ack_first = true; // beyond a closed window, or beyond the FIN
            return Events::EMPTY;
        }
        self.note_congestion(segment);
        if within < end {
            self.receiver.ack_now = true;
        } else if segment.has(flags::FIN) {
            self.receiver.fin = end - 1;
        }
        self.receiver
            .measure(u32::from(segment.payload), self.options_len());
        if seq > self.receiver.next {
            let (start, end) = (seq, within);
            let most = self.config.reassembly_segments;
            (self.receiver).queue(Range { start, end }, most, self.options.sack);
            return Events::EMPTY;
        }
        if seq < self.receiver.next {
            let known = self.receiver.next;
            self.note_duplicate(seq, known);
        }
        self.in_order(now_ns, segment, within)
    }

    /// Bytes of options in every segment.
    pub(super) fn options_len(&self) -> u32 {
        if self.options.timestamps { 12 } else { 0 }
    }

    #[inline(always)]
    pub(super) fn in_order(&mut self, now_ns: u64, segment: &Segment, end: u64) -> Events {
        let receiver = &mut self.receiver;
        let start = receiver.next;
        if receiver.disorder {
            receiver.join(Range { start, end }, self.options.sack);
        } else {
            receiver.next = end;
        }
        let finished = receiver.next > receiver.fin;
        self.counts.received_bytes += receiver.next - start - u64::from(finished);
        if self.receiver.tunes() {
            self.measure_receivers_rtt(now_ns, segment, start);
        }
        if finished {
            return self.fin_reached(now_ns, segment.payload > 0) | Events::READABLE;
        }
        let rto_ns = self.rtt.rto();
        self.receiver.schedule_ack(now_ns, &self.config, rto_ns);
        Events::READABLE
    }

    /// The round trip by which the receive buffer is tuned; what came before ends at `start`.
    pub(super) fn measure_receivers_rtt(&mut self, now_ns: u64, segment: &Segment, start: u64) {
        if self.options.timestamps && self.receiver.is_news(segment.ts_ecr) {
            let full = u32::from(segment.payload) >= self.receiver.mss;
            let age_ns = self.echo_age(now_ns, segment).filter(|_| full);
            let age_ns = age_ns.unwrap_or(0);
            self.receiver.measure_echo(segment.ts_ecr, age_ns, start);
        }
        self.receiver.measure_window(now_ns);
    }

    /// How long ago what the segment echoes was sent, in whole ticks.
    fn echo_age(&mut self, now_ns: u64, segment: &Segment) -> Option<u64> {
        if !self.options.timestamps || segment.options & option::TIMESTAMPS == 0 {
            return None;
        }
        let ticks = self.ts_clock(now_ns).wrapping_sub(segment.ts_ecr) as i32;
        (ticks >= 0).then(|| u64::from(ticks as u32) * self.tick_ns())
    }

    fn tick_ns(&self) -> u64 {
        self.config.rto.granularity_ns.max(1)
    }

    /// RTT by timestamps, for where none was measured otherwise; at least a tick.
    pub(super) fn rtt_by_timestamp(&mut self, now_ns: u64, segment: &Segment) -> Option<u64> {
        let age_ns = self.echo_age(now_ns, segment)?;
        Some(age_ns.max(self.tick_ns()))
    }

    /// The peer has said all it will; `data`: some with its FIN.
    pub(super) fn fin_reached(&mut self, now_ns: u64, data: bool) -> Events {
        self.receiver.finished = true;
        if self.config.delayed_ack.fin && self.state == State::Established {
            self.receiver
                .schedule_ack_of_fin(now_ns, &self.config, data);
        } else {
            self.receiver.ack_now = true;
        }
        self.receiver.forget_duplicate();
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return self.enter_time_wait(now_ns),
            _ => (),
        }
        Events::EMPTY
    }

    /// CE and CWR of arriving data (RFC 3168 6.1.3, RFC 8257 3.2).
    #[inline(always)]
    pub(super) fn note_congestion(&mut self, segment: &Segment) {
        let marked = segment.ecn == ecn::CE;
        self.counts.ce_received += u64::from(marked && segment.payload > 0);
        if !self.options.ecn || segment.payload == 0 {
            return;
        }
        let receiver = &mut self.receiver;
        let reduced = segment.has(flags::CWR);
        if self.config.dctcp_receiver {
            if marked != receiver.ece {
                // Data whose ACK was held back is acknowledged with ECE as it was before.
                if receiver.delayed_ns != NEVER || receiver.ack_now {
                    receiver.changed = Some((receiver.next, receiver.ece));
                }
                receiver.ece = marked;
                receiver.ack_now = true;
            }
        } else {
            receiver.ece &= !reduced;
            if marked && !receiver.ece {
                receiver.ece = true;
                receiver.quick = receiver.quick.max(2);
            }
        }
        receiver.ack_now |= reduced; // the sender's window may be one segment
    }

    /// The ACK that was held back when CE changed.
    pub(super) fn send_changed_ack(&mut self, now_ns: u64, ack: u64, ece: bool) -> Segment {
        let window = self.receiver.window_beside(ack);
        let mut segment = self.bare(now_ns, self.snd_nxt);
        segment.ack = sequence::wire(ack);
        segment.window = window;
        if ece {
            segment.flags |= flags::ECE;
        }
        self.receiver.changed = None;
        self.receiver.acked = self.receiver.acked.max(ack);
        segment
    }

    /// A header with what every segment has, but neither acknowledgement nor window.
    #[inline(always)]
    pub(super) fn bare(&mut self, now_ns: u64, seq: u64) -> Segment {
        let mut segment = Segment::new(sequence::wire(seq), 0, flags::ACK);
        if self.options.timestamps {
            segment.options = option::TIMESTAMPS;
            segment.ts_val = self.ts_clock(now_ns);
            segment.ts_ecr = self.receiver.ts_recent;
        }
        segment
    }

    /// A header that acknowledges all that has come.
    #[inline(always)]
    pub(super) fn header(&mut self, now_ns: u64, seq: u64) -> Segment {
        let mut segment = self.bare(now_ns, seq);
        segment.ack = sequence::wire(self.receiver.next);
        segment.window = self.receiver.offer();
        if self.receiver.ece && self.options.ecn {
            segment.flags |= flags::ECE;
        }
        self.receiver.told();
        segment
    }
}
