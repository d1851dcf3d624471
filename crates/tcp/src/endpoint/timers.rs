//! Time: one timer for what is sent, one for delayed ACKs, one for a closed window.

use super::{Endpoint, Error, Events, NEVER, Phase, State};
use crate::config::Rto;

/// The first of the timeouts that Linux imagines (`TCP_RTO_MIN`).
const IMAGINED_NS: u64 = 200_000_000;

/// The meaning of the sender's timer when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    Off,
    /// Retransmission timeout (RFC 6298).
    Rto,
    /// Tail loss probe (RFC 8985 section 7).
    Probe,
    /// RACK's reordering window (RFC 8985 section 6).
    Reorder,
    TimeWait,
}

impl Endpoint {
    /// When [`Endpoint::timeout`] wants to be called, in ns; `u64::MAX` = never. Pacing is
    /// included. May lie in the past.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        let mut deadline = self.timer_ns.min(self.receiver.delayed_ns);
        if self.window_closed() {
            deadline = deadline.min(self.persist_deadline());
        }
        let paces = self.config.pacing && self.pace_next_ns > self.data_sent_ns;
        if paces && self.waits_for_pace() {
            deadline = deadline.min(self.pace_next_ns);
        }
        deadline
    }

    /// Time has passed. Harmless when nothing is due.
    pub fn timeout(&mut self, now_ns: u64) -> Events {
        if now_ns >= self.receiver.delayed_ns {
            self.receiver.delayed_ns = NEVER;
            self.receiver.ack_now = true;
        }
        if self.window_closed() && now_ns >= self.persist_deadline() {
            if self.gives_up(now_ns, true) {
                return self.fail(Error::TimedOut);
            }
            self.flags.probe_pending = true;
            self.persist_ns = now_ns;
            self.persist_backoff = self.persist_backoff.saturating_add(1);
        }
        if now_ns < self.timer_ns {
            return Events::EMPTY;
        }
        match self.timer {
            Timer::Off => (),
            Timer::Rto => return self.retransmission_timeout(now_ns),
            Timer::Probe => self.probe_tail(now_ns),
            Timer::Reorder => self.reordering_timeout(now_ns),
            Timer::TimeWait => self.finish(),
        }
        Events::EMPTY
    }

    pub(super) fn set_timer(&mut self, timer: Timer, at_ns: u64) {
        self.timer = timer;
        self.timer_ns = at_ns;
    }

    /// Starts the retransmission timer anew, or that of a tail loss probe; none when all is
    /// acknowledged.
    #[inline]
    pub(super) fn restart_timer(&mut self, now_ns: u64) {
        if self.state == State::TimeWait {
            return;
        }
        if self.snd_una == self.snd_nxt {
            return self.set_timer(Timer::Off, NEVER);
        }
        let rto = match self.config.user_timeout_ns {
            0 => self.rtt.rto(),
            _ => (self.rtt.rto()).min(self.patience_ends_ns().saturating_sub(now_ns)),
        };
        match self.probe_timeout() {
            // Also in place of an RTO that comes earlier (RFC 8985 7.2).
            Some(pto) => self.set_timer(Timer::Probe, now_ns.saturating_add(pto.min(rto))),
            None => self.set_timer(Timer::Rto, now_ns.saturating_add(rto)),
        }
    }

    /// Data waits, nothing is in flight, and the peer's window forbids to send.
    #[inline]
    fn window_closed(&self) -> bool {
        self.snd_una == self.snd_nxt
            && self.unsent() > 0
            && !self.flags.probe_pending
            && self.synchronized()
            && (!self.fits_window() || self.is_corked())
    }

    fn persist_deadline(&self) -> u64 {
        let wait = self.rtt.after(self.persist_backoff, &self.config.rto);
        let deadline_ns = self.persist_ns.saturating_add(wait);
        deadline_ns.min(self.patience_ends_ns())
    }

    /// Neither opening nor over.
    pub(super) fn synchronized(&self) -> bool {
        !matches!(
            self.state,
            State::Closed | State::SynSent | State::SynReceived | State::TimeWait
        )
    }

    /// One more timeout without an answer: too many, or for too long? `probes`: of a closed window,
    /// which are counted at any rate.
    fn gives_up(&mut self, now_ns: u64, probes: bool) -> bool {
        let before = self.retries;
        self.retries = before.saturating_add(1);
        let config = &self.config;
        let timed = config.timed_retries && !probes;
        let rto = &config.rto;
        let (longest_ns, most) = match self.state {
            State::SynSent => (
                imagined_ns(config.syn_retries, rto.initial_ns, rto),
                config.syn_retries.saturating_add(rto.linear_syns),
            ),
            State::SynReceived => (NEVER, config.answer_retries),
            _ => (
                imagined_ns(config.retries, IMAGINED_NS, rto),
                if timed { u8::MAX } else { config.retries },
            ),
        };
        if before == 0 {
            // Linux's clock of this begins with what is sent again first, but of a SYN.
            self.rare.stalled_ns = match self.state {
                State::SynSent => self.data_sent_ns,
                _ => now_ns,
            };
        }
        let limit_ns = match config.user_timeout_ns {
            0 if timed => longest_ns,
            0 => NEVER,
            given_ns => given_ns,
        };
        let stalled_ns = now_ns.saturating_sub(self.rare.stalled_ns);
        before >= most || (before > 0 && stalled_ns >= limit_ns)
    }

    /// Until when an answer is waited for, by the user timeout.
    fn patience_ends_ns(&self) -> u64 {
        match self.config.user_timeout_ns {
            0 => NEVER,
            _ if self.retries == 0 => NEVER,
            given_ns => self.rare.stalled_ns.saturating_add(given_ns),
        }
    }

    fn retransmission_timeout(&mut self, now_ns: u64) -> Events {
        if self.gives_up(now_ns, false) {
            return self.fail(Error::TimedOut);
        }
        self.rare.timeouts += 1;
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        if opening {
            let answers = self.state == State::SynReceived;
            self.rtt.back_off_syn(answers, &self.config.rto);
            self.flags.syn_pending = true;
            self.flags.syn_repeated = true;
            let offers = self.config.syns_with_options;
            if !answers && offers > 0 && self.retries == offers {
                self.offer_nothing();
            }
        } else {
            self.rtt.back_off(&self.config.rto);
            self.enter_loss(now_ns);
        }
        self.restart_timer(now_ns);
        Events::EMPTY
    }

    /// After a timeout: all is lost that is not SACKed, one segment leaves, slow start follows.
    fn enter_loss(&mut self, now_ns: u64) {
        // The receiver has taken back what it had SACKed if it did not acknowledge it.
        if self
            .board
            .front()
            .is_some_and(|front| front.is(super::scoreboard::SACKED))
        {
            self.board.forget_sacked();
        }
        let first = self.phase == Phase::Open;
        // Another timeout in the same recovery, or without an ACK since the last, is the same
        // reduction.
        if first || self.snd_una >= self.recover || (self.phase == Phase::Loss && self.retries == 1)
        {
            self.remember();
        }
        let state = self.cc_state(now_ns);
        let config = &self.config;
        self.cc.on_timeout(&config.params, config.algorithm, &state);
        self.board.lose_all();
        self.phase = Phase::Loss;
        self.forget_slow_start();
        self.recover = self.snd_nxt;
        self.duplicate_acks = 0;
        self.duplicate_bytes = 0;
        self.rack.forget_probe();
        self.watch(first);
        self.flags.reducing = false;
        self.flags.one_segment = true;
        self.flags.force = true;
        self.flags.cwr_pending = self.options.ecn;
    }
}

/// How long `count` timeouts take, and the one before them, that begin with `first_ns` and double
/// up to the longest (Linux's `tcp_model_timeout`).
fn imagined_ns(count: u8, first_ns: u64, rto: &Rto) -> u64 {
    let first_ns = first_ns.max(1);
    let doublings = u64::from((rto.max_ns / first_ns).max(1).ilog2());
    let doubled = doublings.min(count.into());
    let rest = u64::from(count) - doubled;
    let whole = ((2 << doubled.min(62)) - 1_u64).saturating_mul(first_ns);
    whole.saturating_add(rest.saturating_mul(rto.max_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn imagined_timeouts_are_those_of_linuxs_documents() {
        let rto = Config::linux(1460).rto;
        // ip-sysctl: tcp_retries2 = 15 is 924.6 s, tcp_syn_retries = 6 is 127 s.
        assert_eq!(imagined_ns(15, IMAGINED_NS, &rto), 924_600_000_000);
        assert_eq!(imagined_ns(6, rto.initial_ns, &rto), 127_000_000_000);
        assert_eq!(imagined_ns(1, rto.initial_ns, &rto), 3_000_000_000);
        assert!(imagined_ns(u8::MAX, 1, &rto) > 120 * 200_000_000_000);
    }
}
