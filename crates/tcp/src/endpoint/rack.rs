//! RACK-TLP (RFC 8985): losses by time, and a probe of the tail.

use sluicegate_core::number::low_half;

use super::{
    Endpoint, Phase, Timer,
    acknowledge::{News, saturated},
    scoreboard::{RETRANSMITTED, Sent},
};
use crate::{Segment, config::Recovery, segment::option};

/// PTO before the first RTT sample (RFC 8985 7.2).
const FIRST_PTO_NS: u64 = 1_000_000_000;
/// A wider reordering window is kept for so many recoveries without D-SACK.
const PERSIST: u8 = 16;
const DUPLICATES: u64 = 3;

/// The echo in an ACK's timestamp: the ACK does not answer departures later than this.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    ts_ecr: u32,
    offset: u32,
    tick_ns: u64,
}

impl Echo {
    /// The retransmission of `record` is not what the ACK answers: it left later.
    fn precedes(&self, record: &Sent) -> bool {
        let sent = low_half(record.sent_ns / self.tick_ns).wrapping_add(self.offset);
        (self.ts_ecr.wrapping_sub(sent) as i32) < 0
    }
}

/// State of RFC 8985 5.3 and 7.1.
#[derive(Clone, Debug, PartialEq)]
pub struct Rack {
    /// Of all delivered segments the one that left last: when, its end, its RTT.
    sent_ns: u64,
    end: u64,
    rtt_ns: u64,
    /// Highest sequence number delivered.
    fack: u64,
    /// snd_nxt when D-SACK last widened the window; 0 = none.
    dsack_round: u64,
    /// snd_nxt when the probe left; 0 = none is out.
    probe_end: u64,
    /// Quarters of the smallest RTT.
    widened: u8,
    persist: u8,
    /// Farthest that a segment was overtaken by others, in bytes.
    pub reordered: u32,
    pub reordering: bool,
    /// The probe was a retransmission.
    probe_again: bool,
    pub probe_pending: bool,
    /// Recovery has just ended.
    left: bool,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            sent_ns: 0,
            end: 0,
            rtt_ns: 0,
            fack: 0,
            dsack_round: 0,
            probe_end: 0,
            widened: 1,
            persist: PERSIST,
            reordered: 0,
            reordering: false,
            probe_again: false,
            probe_pending: false,
            left: false,
        }
    }
}

impl Rack {
    /// A segment is newly acknowledged or SACKed (RFC 8985 6.2 steps 1 to 3). Of one that left more
    /// than once the last departure counts, unless `echo` or a too short RTT tells that it was
    /// an earlier one.
    pub fn deliver(&mut self, record: &Sent, now_ns: u64, min_ns: u64, echo: Option<Echo>) {
        if !record.is(RETRANSMITTED) {
            return self.deliver_once(record, now_ns);
        }
        self.fack = self.fack.max(record.end);
        let rtt_ns = now_ns.saturating_sub(record.sent_ns);
        if rtt_ns >= min_ns && !echo.is_some_and(|echo| echo.precedes(record)) {
            self.note_latest(record, rtt_ns);
        }
    }

    /// The same of a segment that left once.
    #[inline(always)]
    pub fn deliver_once(&mut self, record: &Sent, now_ns: u64) {
        if record.end > self.fack {
            self.fack = record.end;
        } else {
            self.reordering = true;
            self.reordered = self.reordered.max(saturated(self.fack - record.start()));
        }
        self.note_latest(record, now_ns.saturating_sub(record.sent_ns));
    }

    fn note_latest(&mut self, record: &Sent, rtt_ns: u64) {
        self.rtt_ns = rtt_ns;
        if (record.sent_ns, record.end) > (self.sent_ns, self.end) {
            self.sent_ns = record.sent_ns;
            self.end = record.end;
        }
    }

    /// The highest sequence number delivered.
    pub fn high(&self) -> u64 {
        self.fack
    }

    /// Compares the next delivery with `high`; returns the value that it was compared with before.
    pub fn compare_with(&mut self, high: u64) -> u64 {
        std::mem::replace(&mut self.fack, high)
    }

    /// Fast recovery, or that after a timeout, is over.
    pub fn left_recovery(&mut self) {
        self.left = true;
    }

    pub fn probe_is_out(&self) -> bool {
        self.probe_end != 0
    }

    /// Probes under way that were retransmissions.
    pub fn probed_again(&self) -> u32 {
        (self.probe_end != 0 && self.probe_again).into()
    }

    pub fn forget_probe(&mut self) {
        self.probe_end = 0;
        self.probe_pending = false;
    }

    /// RFC 8985 6.2 step 4: how D-SACK widens the reordering window, and time narrows it.
    fn adapt(&mut self, duplicate: bool, snd_una: u64, snd_nxt: u64) {
        if self.dsack_round != 0 && snd_una >= self.dsack_round {
            self.dsack_round = 0;
        }
        if self.dsack_round == 0 && duplicate {
            self.dsack_round = snd_nxt;
            self.widened = self.widened.saturating_add(1);
            self.persist = PERSIST;
        } else if self.left {
            self.persist = self.persist.saturating_sub(1);
            if self.persist == 0 {
                self.widened = 1;
            }
        }
        self.left = false;
    }
}

impl Endpoint {
    /// The echo of an ACK, for [`Rack::deliver`].
    pub(super) fn echo(&self, segment: &Segment) -> Option<Echo> {
        (self.options.timestamps && segment.options & option::TIMESTAMPS != 0).then(|| Echo {
            ts_ecr: segment.ts_ecr,
            offset: self.receiver.ts_offset,
            tick_ns: self.config.rto.granularity_ns.max(1),
        })
    }

    /// The reordering window in ns.
    fn reordering_window(&self) -> u64 {
        if !self.rack.reordering {
            let many = self.board.sacked() >= DUPLICATES * u64::from(self.mss);
            if self.phase != Phase::Open || many {
                return 0;
            }
        }
        let quarters = u64::from(self.rack.widened) * self.rtt.min() / 4;
        quarters.min(self.rtt.srtt())
    }

    /// Deems lost what is late; returns how long to wait for the rest, 0 = there is none.
    pub(super) fn find_by_time(&mut self, now_ns: u64, news: &News) -> u64 {
        self.rack.adapt(news.duplicate, self.snd_una, self.snd_nxt);
        self.judge_probe(now_ns, news);
        self.find_late(now_ns)
    }

    fn find_late(&mut self, now_ns: u64) -> u64 {
        if self.rack.sent_ns == 0 && self.rack.end == 0 {
            return 0;
        }
        let patience = self.rack.rtt_ns + self.reordering_window();
        let (sent_ns, end) = (self.rack.sent_ns, self.rack.end);
        self.board.lose_late(sent_ns, end, patience, now_ns)
    }

    /// The reordering window has passed.
    pub(super) fn reordering_timeout(&mut self, now_ns: u64) {
        let wait_ns = self.find_late(now_ns);
        if self.phase == Phase::Open && self.board.waiting() > 0 {
            self.enter_recovery(now_ns);
        } else {
            self.restart_timer(now_ns);
        }
        if wait_ns > 0 {
            self.set_timer(Timer::Reorder, now_ns + wait_ns);
        }
    }

    /// PTO (RFC 8985 7.2); `None` when no probe is due.
    #[inline]
    pub(super) fn probe_timeout(&self) -> Option<u64> {
        if self.repair() != Recovery::Rack
            || !self.config.tail_probe
            || self.phase != Phase::Open
            || self.rack.probe_end != 0
            || self.board.sacked() > 0
            || self.board.is_empty()
        {
            return None;
        }
        let srtt = self.rtt.srtt();
        if srtt == 0 {
            return Some(FIRST_PTO_NS);
        }
        // A lone segment may meet a delayed ACK; two ticks otherwise, as Linux has it.
        let alone = self.outstanding() <= u64::from(self.mss);
        let more = if alone {
            self.config.rto.min_ns
        } else {
            2 * self.config.rto.granularity_ns
        };
        Some(2 * srtt + more)
    }

    /// New data has left: PTO counts from here (RFC 8985 7.2), the RTO does not.
    #[inline]
    pub(super) fn postpone_probe(&mut self, now_ns: u64) {
        if !matches!(self.timer, Timer::Probe | Timer::Rto) {
            return;
        }
        let Some(pto) = self.probe_timeout() else {
            return;
        };
        if self.timer == Timer::Probe || now_ns + pto < self.timer_ns {
            self.set_timer(Timer::Probe, now_ns + pto.min(self.rtt.rto()));
        }
    }

    /// PTO has passed: the probe leaves with the next transmission, and the RTO begins.
    pub(super) fn probe_tail(&mut self, now_ns: u64) {
        self.rack.probe_pending = true;
        self.rack.probe_end = self.snd_nxt;
        self.restart_timer(now_ns);
    }

    /// The last `len` of the record, which may be a burst, as a record of its own.
    pub(super) fn cut_tail(&mut self, index: usize, len: u32) -> usize {
        let record = *self.board.get(index);
        if record.len <= len {
            return index;
        }
        self.board
            .split(index, record.end - u64::from(self.mss.min(len)));
        index + 1
    }

    /// The probe has left.
    pub(super) fn tail_probe_left(&mut self, again: bool) {
        self.rack.probe_pending = false;
        self.rack.probe_end = self.snd_nxt;
        self.rack.probe_again = again;
        self.rare.tail_loss_probes += 1;
    }

    /// RFC 8985 7.4: whether the probe has repaired a loss, which deserves a cut.
    fn judge_probe(&mut self, now_ns: u64, news: &News) {
        let end = self.rack.probe_end;
        if end == 0 || self.snd_una < end {
            return;
        }
        if !self.rack.probe_again || news.duplicate {
            self.rack.probe_end = 0;
        } else if self.snd_una > end {
            self.rack.probe_end = 0;
            let state = self.cc_state(now_ns);
            let config = &self.config;
            self.cc.on_loss(&config.params, config.algorithm, &state);
            self.note_cut();
            self.flags.cwr_pending = self.options.ecn;
        } else if news.repeats && !news.sacked {
            self.rack.probe_end = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(end: u64, sent_ns: u64, flags: u8) -> Sent {
        Sent {
            end,
            sent_ns,
            len: 100,
            flags,
        }
    }

    #[test]
    fn d_sack_widens_once_per_round_and_sixteen_recoveries_narrow() {
        let mut rack = Rack::default();
        rack.adapt(true, 10, 100);
        rack.adapt(true, 50, 100);
        assert_eq!(rack.widened, 2, "once per round");
        rack.adapt(true, 100, 200);
        assert_eq!(rack.widened, 3);
        rack.adapt(false, 200, 300);
        for _ in 0..15 {
            rack.left_recovery();
            rack.adapt(false, 300, 400);
            rack.adapt(false, 300, 400);
        }
        assert_eq!(rack.widened, 3);
        rack.left_recovery();
        rack.adapt(false, 300, 400);
        assert_eq!(rack.widened, 1);
    }

    #[test]
    fn only_what_left_once_tells_of_reordering() {
        let mut rack = Rack::default();
        rack.deliver(&record(300, 3, 0), 100, 50, None);
        rack.deliver(&record(200, 90, RETRANSMITTED), 150, 50, None);
        assert!(!rack.reordering);
        assert_eq!((rack.sent_ns, rack.end, rack.rtt_ns), (90, 200, 60));
        rack.deliver(&record(100, 1, 0), 150, 50, None);
        assert!(rack.reordering);
    }

    #[test]
    fn a_retransmission_that_cannot_be_meant_is_not_believed() {
        let mut rack = Rack::default();
        rack.deliver(&record(100, 1_000, RETRANSMITTED), 1_040, 50, None);
        assert_eq!(rack.sent_ns, 0, "faster than any round trip");
        let echo = |ts_ecr| {
            Some(Echo {
                ts_ecr,
                offset: u32::MAX,
                tick_ns: 100,
            })
        };
        // Sent in tick 10 + offset = 9.
        rack.deliver(&record(100, 1_000, RETRANSMITTED), 1_100, 50, echo(8));
        assert_eq!(rack.sent_ns, 0, "the echo is older");
        rack.deliver(&record(100, 1_000, RETRANSMITTED), 1_100, 50, echo(9));
        assert_eq!(rack.sent_ns, 1_000);
    }
}
