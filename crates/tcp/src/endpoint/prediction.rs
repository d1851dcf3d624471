//! Header prediction (Jacobson, "4BSD TCP Header Prediction", 1990; Linux's fast path): nearly
//! every segment of a connection without losses is the next data, or acknowledges new data and says
//! nothing else. It takes a short way here to where the long one ends as well, which a test
//! compares after every segment.

use std::{mem::offset_of, slice::from_ref};

use prefetch_index::prefetch_index;

use super::{Endpoint, Events, NEVER, Phase, State, acknowledge::saturated, sequence::wire};
use crate::{
    Segment,
    segment::{flags, option},
};

/// The flags that an expected segment may have beside ACK.
const HARMLESS: u8 = flags::PSH | flags::ECE | flags::CWR;

/// The next segment to leave, where nothing is out of the ordinary; `more` = something may follow.
enum Ordinary {
    Nothing,
    Ack {
        more: bool,
    },
    /// A full segment of new data that is not the last one.
    Full {
        more: bool,
    },
}

/// Makes a packet of a segment that leaves. Inlined, so that in the common cases the segment is
/// never stored in memory as a whole.
pub trait Taker {
    /// The packet that it makes of the segment.
    type Taken;
    /// Takes it.
    fn take(self, segment: &Segment) -> Self::Taken;
}

/// Takes the segment as it is.
struct Whole;

impl Taker for Whole {
    type Taken = Segment;

    fn take(self, segment: &Segment) -> Segment {
        *segment
    }
}

impl Endpoint {
    /// A segment arrives.
    #[inline]
    pub fn segment(&mut self, now_ns: u64, segment: &Segment) -> Events {
        match self.predicted(now_ns, segment) {
            Some(events) => {
                self.counts.segments_received += 1;
                events
            }
            None => self.segment_any(now_ns, segment),
        }
    }

    /// The next segment that may leave now. To be called until it gives none.
    #[inline]
    pub fn transmit(&mut self, now_ns: u64) -> Option<Segment> {
        self.transmit_to(now_ns, Whole).map(|(segment, _)| segment)
    }

    /// The same, handed to `taker` where it is made. Says as well whether another segment may
    /// follow now; none does if not.
    #[inline(always)]
    pub fn transmit_to<T: Taker>(&mut self, now_ns: u64, taker: T) -> Option<(T::Taken, bool)> {
        Some(match self.ordinary() {
            Some(Ordinary::Nothing) => return None,
            Some(Ordinary::Ack { more }) => {
                self.counts.segments_sent += 1;
                (taker.take(&self.send_ack(now_ns)), more)
            }
            Some(Ordinary::Full { more }) => {
                self.counts.segments_sent += 1;
                (taker.take(&self.send_data(now_ns, self.mss, false)), more)
            }
            None => (taker.take(&self.transmit_any(now_ns)?), true),
        })
    }

    /// Prefetches what [`Endpoint::segment`] needs, by reading a little of each part, for a caller
    /// that knows early that a segment arrives; the number has no meaning.
    pub fn prefetch(&self) -> u64 {
        let receiver = &self.receiver;
        let first = self.board.front().map_or(0, |record| record.end);
        let sender = self.snd_una ^ self.timer_ns ^ self.counts.segments_received ^ self.rtt.srtt();
        sender ^ first ^ receiver.next ^ receiver.ts_recent_ns ^ u64::from(self.cc.cwnd)
    }

    /// Prefetches all of it, without reading anything: for a caller that knows earlier still.
    #[inline]
    pub fn fetch(&self) {
        const LINE_BYTES: usize = 64;
        const WORD_BYTES: usize = size_of::<u64>();
        let words_before = offset_of!(Self, snd_una) / WORD_BYTES;
        for line in 0..=size_of::<Self>() / LINE_BYTES {
            let word = line * LINE_BYTES / WORD_BYTES;
            prefetch_index(from_ref(&self.snd_una), word.wrapping_sub(words_before));
        }
    }

    /// Data of this end is under way or may be.
    fn is_open(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::CloseWait | State::FinWait1
        )
    }

    /// No loss is known, and no ACK has come twice.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.phase == Phase::Open && self.board.is_plain() && self.duplicate_bytes == 0
    }

    /// The common cases of [`Endpoint::next`]: `None` if it must be asked.
    #[inline(always)]
    fn ordinary(&self) -> Option<Ordinary> {
        // One test of all of them.
        let special = self.flags.unusual
            | self.flags.probe_pending
            | self.rack.probe_pending
            | self.receiver.ack_first
            | self.receiver.changed.is_some();
        if !self.is_open() || special || !self.is_calm() {
            return None;
        }
        if self.flags.fin_queued && self.config.freebsd {
            return None;
        }
        let ack = |more| match self.receiver.ack_now {
            true => Ordinary::Ack { more },
            false => Ordinary::Nothing,
        };
        if self.unsent() == 0 {
            return Some(ack(false));
        }
        let (out, mss) = (self.outstanding(), u64::from(self.mss));
        let (end, window) = (self.snd_end.min(self.snd_una + self.snd_wnd), self.window());
        let plenty = end > self.snd_nxt + mss;
        let held = self.config.pacing || self.config.small_queues || self.config.super_packets;
        if !plenty || out == 0 || self.burst != self.mss || held {
            return None;
        }
        if out + mss > window {
            return Some(ack(false));
        }
        let more = out + 2 * mss <= window || end <= self.snd_nxt + 2 * mss;
        Some(Ordinary::Full { more })
    }

    /// `None` if this is not what is expected.
    #[inline(always)]
    fn predicted(&mut self, now_ns: u64, segment: &Segment) -> Option<Events> {
        let receiver = &self.receiver;
        let next = segment.flags & !HARMLESS == flags::ACK
            && segment.seq == wire(receiver.next)
            && segment.options == option::TIMESTAMPS
            && self.options.predictable
            && segment.ts_val.wrapping_sub(receiver.ts_recent) as i32 >= 0;
        if !next || !self.is_open() {
            return None;
        }
        match segment.payload {
            0 => self.predicted_ack(now_ns, segment),
            _ => self.predicted_data(now_ns, segment),
        }
    }

    /// An ACK of whole segments that left once, while nothing is lost.
    #[inline(always)]
    fn predicted_ack(&mut self, now_ns: u64, segment: &Segment) -> Option<Events> {
        let (una, flight) = (self.snd_una, self.outstanding());
        let advance = u64::from(segment.ack.wrapping_sub(wire(una)));
        let calm = self.is_calm() && !(self.flags.unusual | self.rack.probe_is_out());
        if !calm || advance == 0 || advance > flight {
            return None;
        }
        let (seq, ack) = (self.receiver.next, una + advance);
        let records = self.board.plain_up_to(ack)?;
        self.note_timestamp(now_ns, segment, seq);
        self.update_window(now_ns, segment, seq, ack);
        let (first_ns, last_ns) = self.retire(now_ns, records);
        self.snd_una = ack;
        self.retries = 0;
        self.duplicate_acks = 0;
        self.counts.acked_bytes += advance - u64::from(ack > self.snd_end);
        let rtt_ns = now_ns.saturating_sub(first_ns.max(1));
        self.rtt.sample(rtt_ns, &self.config.rto);
        self.flags.reducing &= ack <= self.mark_recover;
        if segment.flags & flags::ECE != 0 && self.options.ecn {
            self.note_marked(advance);
            self.counts.ece_received += 1;
        }
        let rtt_ns = saturated(now_ns.saturating_sub(last_ns)).max(1);
        self.feed(now_ns, saturated(advance), rtt_ns, flight);
        self.restart_timer(now_ns);
        if self.flags.reducing {
            self.reduce_proportionally(advance, true);
        }
        Some(self.after_ack(now_ns))
    }

    /// The first so many records are acknowledged. Returns when the first and the last of them
    /// left.
    #[inline(always)]
    fn retire(&mut self, now_ns: u64, records: usize) -> (u64, u64) {
        let Some(first) = self.board.pop() else {
            return (now_ns, now_ns);
        };
        self.rack.deliver_once(&first, now_ns);
        let last_ns = match records {
            1 => first.sent_ns,
            _ => self.retire_further(now_ns, records - 1),
        };
        (first.sent_ns, last_ns)
    }

    #[inline(never)]
    fn retire_further(&mut self, now_ns: u64, records: usize) -> u64 {
        let mut last_ns = now_ns;
        for _ in 0..records {
            let Some(record) = self.board.pop() else {
                break;
            };
            self.rack.deliver_once(&record, now_ns);
            last_ns = record.sent_ns;
        }
        last_ns
    }

    /// The next data for an end that has none under way itself.
    #[inline(always)]
    fn predicted_data(&mut self, now_ns: u64, segment: &Segment) -> Option<Events> {
        let receiver = &self.receiver;
        let (seq, end) = (receiver.next, receiver.next + u64::from(segment.payload));
        let calm = self.state == State::Established
            && self.snd_una == self.snd_nxt
            && segment.ack == wire(self.snd_una)
            && end <= receiver.edge
            && receiver.fin == NEVER;
        if !calm {
            return None;
        }
        self.note_timestamp(now_ns, segment, seq);
        self.update_window(now_ns, segment, seq, self.snd_una);
        self.note_congestion(segment);
        let options_len = self.options_len();
        self.receiver.measure(segment.payload.into(), options_len);
        Some(self.in_order(now_ns, segment, end))
    }
}
