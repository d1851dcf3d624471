//! Reductions of the window: how a cut is spread over a round trip (PRR, RFC 6937), and how one
//! that was needless is taken back: Eifel (RFC 3522, RFC 4015), D-SACK as Linux does it, and F-RTO
//! (RFC 5682), which also keeps a spurious timeout from sending everything again.

use sluicegate_core::number::at_most;

use super::{
    Endpoint, Phase,
    acknowledge::{News, saturated},
};
use crate::{Segment, segment::option};

/// The last reduction. Boxed: only losses and marks touch it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reduction {
    /// PRR: what may be in flight, what was delivered and sent since it began, what was out then.
    pub window: u32,
    delivered: u32,
    pub sent: u32,
    flight: u32,
    /// snd_una when the reduction began; 0 = there is none to take back.
    marker: u64,
    /// The window and the threshold before it, in bytes.
    cwnd: u32,
    ssthresh: u32,
    /// Bytes sent again since then of which no D-SACK has told.
    unexplained: u32,
    /// TSval of the first segment sent again since then.
    stamp: Option<u32>,
    /// F-RTO watches this timeout.
    watched: bool,
}

impl Reduction {
    /// Marks have cut the window: that is no mistake.
    pub fn forget(&mut self) {
        self.marker = 0;
    }

    /// Fast recovery has begun, or ended.
    pub fn stop_watching(&mut self) {
        self.watched = false;
    }

    /// `bytes` have left again, stamped `ts_val`.
    pub fn sent_again(&mut self, bytes: u32, ts_val: u32) {
        self.unexplained = self.unexplained.saturating_add(bytes);
        self.stamp.get_or_insert(ts_val);
    }

    /// The peer has had `left..right` twice.
    pub fn duplicate(&mut self, left: u64, right: u64) {
        if right > self.marker {
            let bytes = at_most(right.saturating_sub(left));
            self.unexplained = self.unexplained.saturating_sub(bytes);
        }
    }

    /// Everything that was sent again has arrived twice.
    fn explained(&self) -> bool {
        self.stamp.is_some() && self.unexplained == 0
    }
}

impl Endpoint {
    /// From here on PRR spreads the cut over the `flight` bytes that are out; not without it. Where
    /// nothing is out any more no ACK would open the window, so a segment may leave.
    pub(super) fn begin_reduction(&mut self, flight: u32) {
        self.flags.reducing = self.config.prr;
        let least = if self.outstanding() == 0 { self.mss } else { 0 };
        let window = saturated(self.pipe()).max(least);
        let reduction = &mut self.reduction;
        (reduction.window, reduction.flight) = (window, flight.max(1));
        (reduction.delivered, reduction.sent) = (0, 0);
    }

    /// RFC 6937: for what has been delivered, so much may leave that cwnd is reached when the
    /// window has gone round once. Below cwnd slow start brings it back (PRR-SSRB), but only by an
    /// ACK that is `good`: it advances and, with `prr_safe`, tells of no further loss. Segments are
    /// sent whole, hence shares are rounded up to them, and the first one does not wait (both as
    /// Linux).
    pub(super) fn reduce_proportionally(&mut self, delivered: u64, good: bool) {
        if delivered == 0 {
            return;
        }
        let (pipe, mss) = (self.pipe(), u64::from(self.mss));
        let target = u64::from(self.cc.cwnd);
        let reduction = &mut self.reduction;
        reduction.delivered = reduction.delivered.saturating_add(saturated(delivered));
        let (all, sent) = (u64::from(reduction.delivered), u64::from(reduction.sent));
        let owed = if pipe > target {
            let share = (all * target).div_ceil(reduction.flight.into());
            share.next_multiple_of(mss).saturating_sub(sent)
        } else {
            let more = if good { mss } else { 0 };
            let limit = delivered.max(all.saturating_sub(sent)) + more;
            limit.min(target - pipe)
        };
        let least = if sent == 0 { mss } else { 0 };
        reduction.window = saturated(pipe + owed.max(least));
    }

    /// A loss is about to reduce the window: what it was, and a threshold that finds 3/4 of it
    /// again (Linux). In a window that marks have cut this is what the marks left.
    pub(super) fn remember(&mut self) {
        if !self.config.undo {
            return;
        }
        let cwnd = self.cc.cwnd;
        *self.reduction = Reduction {
            marker: self.snd_una,
            cwnd,
            ssthresh: self.cc.ssthresh.max(cwnd - cwnd / 4),
            // A tail loss probe may come back as a duplicate, too.
            unexplained: self.rack.probed_again() * self.mss,
            ..Reduction::default()
        };
    }

    /// A timeout has begun: F-RTO watches the first one, and those that follow it without an ACK.
    pub(super) fn watch(&mut self, first: bool) {
        self.reduction.watched =
            self.config.undo && self.config.frto && (first || self.retries > 1);
        self.flags.new_first = false;
    }

    /// Takes the last reduction back if this ACK says that nothing was lost.
    pub(super) fn judge_reduction(&mut self, now_ns: u64, segment: &Segment, news: &News) {
        if self.reduction.marker == 0 {
            return;
        }
        let advanced = news.acked > 0;
        let explained = self.reduction.explained();
        let late = advanced && self.answers_the_original(segment);
        let spurious = match self.phase {
            Phase::Open => news.duplicate && explained,
            // Between: only when no other segment is thought to be missing and on its way again.
            Phase::Recovery => {
                let between = self.snd_una < self.recover && self.board.again() > 0;
                explained || (late && !between)
            }
            Phase::Loss => (advanced && (explained || late)) || self.original_arrived(news),
        };
        if spurious {
            self.take_back(now_ns);
        }
    }

    /// Eifel: the echo is older than the first retransmission (RFC 3522 3.2 step 5).
    fn answers_the_original(&self, segment: &Segment) -> bool {
        let older = |stamp: u32| (segment.ts_ecr.wrapping_sub(stamp) as i32) < 0;
        self.options.timestamps
            && segment.options & option::TIMESTAMPS != 0
            && self.reduction.stamp.is_some_and(older)
    }

    /// F-RTO: of what was out at the timeout something has arrived that was never sent again (RFC
    /// 5682 3.1 step 3b). Without SACK it may have arrived before the timeout, behind a hole that
    /// the retransmission has filled.
    fn original_arrived(&self, news: &News) -> bool {
        let arrived = news.original_end != 0 && news.original_end <= self.recover;
        self.reduction.watched && arrived && (self.options.sack || !news.retransmitted)
    }

    fn take_back(&mut self, now_ns: u64) {
        self.board.forgive();
        self.cc
            .restore(self.reduction.cwnd, self.reduction.ssthresh);
        self.reduction.marker = 0;
        self.recovered();
        self.flags.cwr_pending = false;
        self.retries = 0;
        self.rare.undone += 1;
        self.restart_timer(now_ns);
    }

    /// F-RTO after an ACK that has not decided: new data first, whose ACKs will tell (RFC 5682 3.1
    /// steps 2 and 3). Where there is none, or duplicates come back, what is lost is sent again.
    pub(super) fn probe_timeout_was_spurious(&mut self, now_ns: u64, news: &News) {
        if self.phase != Phase::Loss || !self.reduction.watched {
            return;
        }
        if self.snd_nxt > self.recover {
            self.reduction.watched = !(news.sacked || news.repeats);
        } else if news.acked > 0 {
            self.reduction.watched = self.new_data_fits(now_ns);
            self.flags.new_first = true;
        }
        self.flags.new_first &= self.reduction.watched;
    }
}
