//! Loss: New Reno (RFC 6582) and SACK (RFC 6675).

use super::{
    Endpoint, Phase, Timer,
    acknowledge::{News, saturated},
};
use crate::config::Recovery;

/// DupThresh.
const DUPLICATES: u32 = 3;

impl Endpoint {
    /// How losses are found on this connection.
    pub(super) fn repair(&self) -> Recovery {
        if self.options.sack {
            self.config.recovery
        } else {
            Recovery::NewReno
        }
    }

    /// Everything that was out when recovery began is acknowledged.
    pub(super) fn leave_recovery(&mut self) {
        if self.phase == Phase::Open {
            // Beyond what was out at the mark: CWR has reached the receiver.
            self.flags.reducing &= self.snd_una <= self.mark_recover;
        } else if self.snd_una >= self.recover {
            self.recovered();
        }
    }

    /// Recovery is over.
    pub(super) fn recovered(&mut self) {
        self.phase = Phase::Open;
        self.duplicate_bytes = 0;
        self.flags.force = false;
        self.flags.one_segment = false;
        self.flags.reducing = false;
        self.flags.new_first = false;
        self.reduction.stop_watching();
        self.rack.left_recovery();
    }

    /// Duplicate ACKs: without SACK each says that a segment has left the network.
    pub(super) fn count_duplicates(&mut self, news: &News) {
        let new_reno = self.repair() == Recovery::NewReno;
        let counts = if new_reno {
            news.repeats
        } else {
            news.sacked && news.acked == 0
        };
        if !counts || news.acked > 0 {
            return;
        }
        self.rare.duplicate_acks += 1;
        if self.ignores_duplicates() {
            return;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        // SACK says itself what has arrived. After a timeout only F-RTO's new data can be that.
        if new_reno
            && !self.options.sack
            && (self.phase != Phase::Loss || self.snd_nxt > self.recover)
        {
            // The first segment is missing, so that it cannot be among them.
            let most = saturated(self.outstanding()).saturating_sub(self.mss);
            self.duplicate_bytes = (self.duplicate_bytes + self.mss).min(most);
        }
    }

    /// FreeBSD 9: the window was cut for a mark, and duplicates of what it held are no news.
    fn ignores_duplicates(&self) -> bool {
        self.config.ignore_duplicates_after_mark
            && self.phase == Phase::Open
            && self.snd_una <= self.mark_recover
    }

    /// New data is acknowledged: one segment of it is the one that was missing, the others had been
    /// counted as duplicates (RFC 6582 3.2 step 3: deflation).
    pub(super) fn discount_duplicates(&mut self, acked: u64) {
        if self.duplicate_bytes == 0 {
            return;
        }
        let counted = saturated(acked).saturating_sub(self.mss);
        self.duplicate_bytes = self.duplicate_bytes.saturating_sub(counted);
        if self.phase != Phase::Recovery {
            self.duplicate_bytes = 0;
        }
        let most = saturated(self.outstanding()).saturating_sub(self.mss);
        self.duplicate_bytes = self.duplicate_bytes.min(most);
    }

    /// Everything but the common case: find losses, begin recovery, go on with it.
    pub(super) fn repair_losses(&mut self, now_ns: u64, was: Phase, news: &News) {
        let mut wait_ns = 0;
        if self.config.freebsd && was == Phase::Recovery && news.acked > 0 {
            // Partial ACKs are answered, if need be without data (`tcp_sack_partialack`).
            self.receiver.ack_now |= self.phase == was && self.repair() == Recovery::Sack;
        }
        match self.repair() {
            Recovery::NewReno => self.find_by_duplicates(was, news),
            Recovery::Sack => self.find_by_sack(news),
            Recovery::Rack => wait_ns = self.find_by_time(now_ns, news),
        }
        if self.phase == Phase::Open && self.board.waiting() > 0 {
            self.enter_recovery(now_ns);
        } else if news.acked > 0 && self.restarts_timer(was) {
            self.restart_timer(now_ns);
        }
        if wait_ns > 0 {
            self.set_timer(Timer::Reorder, now_ns + wait_ns);
        } else if self.timer == Timer::Reorder {
            self.restart_timer(now_ns);
        }
        self.probe_timeout_was_spurious(now_ns, news);
    }

    /// RFC 6582's timer rule: of the partial ACKs only the first restarts it, so that a window with
    /// many losses ends in a timeout and slow start.
    fn restarts_timer(&mut self, was: Phase) -> bool {
        if self.repair() != Recovery::NewReno || self.phase != Phase::Recovery {
            return true;
        }
        if was != Phase::Recovery {
            return true;
        }
        let first = !self.flags.partial_seen;
        self.flags.partial_seen = true;
        first || self.snd_una == self.snd_nxt
    }

    fn find_by_duplicates(&mut self, was: Phase, news: &News) {
        // RFC 6582 3.2 step 2: not for what was out when the last recovery began.
        let begins = self.phase == Phase::Open
            && self.duplicate_acks == DUPLICATES
            && self.snd_una > self.recover;
        let partial = self.phase == Phase::Recovery && was == Phase::Recovery && news.acked > 0;
        if begins || partial {
            self.board.lose_first(self.mss);
            self.flags.force |= partial;
        }
    }

    fn find_by_sack(&mut self, news: &News) {
        if self.ignores_duplicates() || (self.phase == Phase::Open && self.snd_una < self.recover) {
            return;
        }
        if news.sacked || news.acked > 0 {
            self.board.lose_below_sacked(2 * u64::from(self.mss) + 1);
        }
        if self.phase == Phase::Open && self.duplicate_acks >= DUPLICATES {
            self.board.lose_first(self.mss);
        }
    }

    /// Fast recovery begins: cut, and send the first lost segment at once.
    pub(super) fn enter_recovery(&mut self, now_ns: u64) {
        self.remember();
        let state = self.cc_state(now_ns);
        let config = &self.config;
        self.cc.on_loss(&config.params, config.algorithm, &state);
        self.note_cut();
        self.phase = Phase::Recovery;
        self.recover = self.snd_nxt;
        self.rare.fast_recoveries += 1;
        self.flags.force = true;
        self.flags.rescued = false;
        self.flags.partial_seen = false;
        self.flags.cwr_pending = self.options.ecn;
        self.begin_reduction(saturated(self.outstanding()));
        self.rack.forget_probe();
        self.restart_timer(now_ns);
    }
}
