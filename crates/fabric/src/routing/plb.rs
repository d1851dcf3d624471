//! When a connection changes its path: PLB (Qureshi et al., "PLB: Congestion Signals are Simple and
//! Effective for Network Load Balancing", SIGCOMM 2022). The rule and its constants are those of
//! Linux, `net/ipv4/tcp_plb.c` since 6.2.
//!
//! A round ends when all data that was under way at its begin is acknowledged. It is congested if
//! half of what it has delivered was marked. After so many congested rounds in a row the connection
//! draws another path value; after fewer if nothing is under way, so that nothing is overtaken. A
//! retransmission timeout draws one at once. For a while after it congestion draws none, because
//! the path before may have failed.

use crate::random::draw;

/// The parameters of PLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlbRules {
    /// Congested rounds in a row after which the path changes, 1..=31 (`tcp_plb_rehash_rounds`).
    pub rounds: u8,
    /// The same while nothing is under way, 0..=31; 0 = never
    /// (`tcp_plb_idle_rehash_rounds`).
    pub idle_rounds: u8,
    /// How long congestion changes no path after a timeout, ps, and at most twice as long
    /// (`tcp_plb_suspend_rto_sec`).
    pub suspend_ps: u64,
}

impl PlbRules {
    /// Linux's.
    pub const DEFAULT: Self = Self {
        rounds: 12,
        idle_rounds: 3,
        suspend_ps: 60_000_000_000_000,
    };
}

/// What a round has to deliver marked to be congested: one part of two (`tcp_plb_cong_thresh`, 128
/// of 256).
const CONGESTED: u64 = 2;

/// The state of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// The first byte that is not acknowledged, and the next one to be sent.
    pub una: u64,
    /// See `una`.
    pub nxt: u64,
    /// Bytes that the receiver has told of so far.
    pub delivered: u64,
    /// Of those, bytes that were marked.
    pub marked: u64,
    /// Expired retransmission timers so far.
    pub timeouts: u64,
    /// The connection is being opened.
    pub opening: bool,
}

impl Sending {
    fn is_idle(&self) -> bool {
        self.una == self.nxt
    }
}

/// The path of a connection.
#[derive(Clone, Debug)]
pub struct Plb {
    path: u32,
    draws: u64,
    changes: u32,
    /// Congested rounds in a row.
    congested: u8,
    /// Where the round ends, and what was delivered and marked when it began.
    round_end: u64,
    delivered: u64,
    marked: u64,
    timeouts: u64,
    suspended_until_ps: u64,
}

impl Plb {
    /// Its first path value, and the state of its sender.
    pub fn new(path: u32, sending: Sending) -> Self {
        Self {
            path,
            draws: path.into(),
            changes: 0,
            congested: 0,
            round_end: sending.nxt,
            delivered: sending.delivered,
            marked: sending.marked,
            timeouts: sending.timeouts,
            suspended_until_ps: 0,
        }
    }

    /// The path value of its packets.
    pub fn path(&self) -> u32 {
        self.path
    }

    /// How often it has changed.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The sender is in this state. It must be told after each acknowledgement, before new data
    /// leaves.
    pub fn look(&mut self, rules: PlbRules, sending: Sending, now_ps: u64) {
        if std::mem::replace(&mut self.timeouts, sending.timeouts) < sending.timeouts {
            self.timed_out(rules, sending.opening, now_ps);
        }
        if sending.una >= self.round_end {
            self.end_round(rules, sending, now_ps);
        }
    }

    /// New data is about to leave.
    pub fn sends(&mut self, rules: PlbRules, sending: Sending, now_ps: u64) {
        if sending.is_idle() {
            self.change_if_due(rules, true, now_ps);
        }
    }

    fn end_round(&mut self, rules: PlbRules, sending: Sending, now_ps: u64) {
        let delivered = sending.delivered.saturating_sub(self.delivered);
        let marked = sending.marked - self.marked;
        if delivered > 0 {
            self.congested = match marked * CONGESTED >= delivered {
                true => (self.congested + 1).min(rules.rounds),
                false => 0,
            };
            self.change_if_due(rules, sending.is_idle(), now_ps);
        }
        self.round_end = sending.nxt;
        self.delivered = sending.delivered;
        self.marked = sending.marked;
    }

    fn change_if_due(&mut self, rules: PlbRules, idle: bool, now_ps: u64) {
        let may_when_idle = idle && rules.idle_rounds > 0 && self.congested >= rules.idle_rounds;
        let due = may_when_idle || self.congested >= rules.rounds;
        if due && now_ps >= self.suspended_until_ps {
            self.change();
        }
    }

    fn timed_out(&mut self, rules: PlbRules, opening: bool, now_ps: u64) {
        self.change();
        if !opening {
            let further_ps = draw(&mut self.draws) % rules.suspend_ps.max(1);
            self.suspended_until_ps = now_ps + rules.suspend_ps + further_ps;
        }
    }

    fn change(&mut self) {
        self.path = (draw(&mut self.draws) >> 32) as u32;
        self.changes += 1;
        self.congested = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: PlbRules = PlbRules::DEFAULT;

    /// A sender with a window of 100 bytes.
    struct Sender {
        plb: Plb,
        sending: Sending,
        now_ps: u64,
    }

    impl Sender {
        fn new() -> Self {
            let sending = Sending {
                nxt: 100,
                ..Sending::default()
            };
            Self {
                plb: Plb::new(7, sending),
                sending,
                now_ps: 0,
            }
        }

        fn send(&mut self, bytes: u64) {
            self.plb.look(RULES, self.sending, self.now_ps);
            self.plb.sends(RULES, self.sending, self.now_ps);
            self.sending.nxt += bytes;
        }

        fn acknowledge(&mut self, bytes: u64, marked: u64) {
            self.sending.una += bytes;
            self.sending.delivered += bytes;
            self.sending.marked += marked;
            self.plb.look(RULES, self.sending, self.now_ps);
        }

        /// Windows of which each byte is acknowledged apart, and so many are marked.
        fn rounds(&mut self, count: u32, marked: u64) {
            for _ in 0..count {
                for byte in 0..100 {
                    self.acknowledge(1, u64::from(byte < marked));
                    self.send(1);
                }
            }
        }
    }

    #[test]
    fn twelve_congested_rounds_in_a_row_change_the_path() {
        let mut sender = Sender::new();
        sender.rounds(11, 50);
        assert_eq!((sender.plb.changes(), sender.plb.path()), (0, 7));
        sender.rounds(1, 50);
        assert_eq!(sender.plb.changes(), 1);
        assert_ne!(sender.plb.path(), 7);
        sender.rounds(11, 50);
        assert_eq!(sender.plb.changes(), 1, "rounds are counted anew");
        sender.rounds(1, 50);
        assert_eq!(sender.plb.changes(), 2);
    }

    #[test]
    fn a_round_with_fewer_marks_begins_the_count_anew() {
        let mut sender = Sender::new();
        sender.rounds(11, 50);
        sender.rounds(1, 48);
        sender.rounds(11, 50);
        assert_eq!(sender.plb.changes(), 0);
        sender.rounds(1, 50);
        assert_eq!(sender.plb.changes(), 1);
    }

    #[test]
    fn after_three_rounds_it_changes_when_nothing_is_under_way() {
        for (rounds, changes) in [(1, 0), (2, 1)] {
            let mut sender = Sender::new();
            sender.rounds(rounds, 50);
            assert_eq!(sender.plb.changes(), 0);
            sender.acknowledge(100, 100);
            assert_eq!(sender.plb.changes(), changes);
        }
    }

    #[test]
    fn a_timeout_changes_the_path_and_suspends() {
        let mut sender = Sender::new();
        sender.rounds(11, 50);
        sender.sending.timeouts = 1;
        sender.rounds(30, 50);
        assert_eq!(sender.plb.changes(), 1, "only the timeout did");
        sender.now_ps = RULES.suspend_ps - 1;
        sender.acknowledge(100, 100);
        sender.send(100);
        assert_eq!(sender.plb.changes(), 1);
        sender.acknowledge(100, 100);
        sender.now_ps = 2 * RULES.suspend_ps;
        sender.send(100);
        assert_eq!(sender.plb.changes(), 2, "nothing is under way");
    }

    #[test]
    fn a_repeated_syn_takes_another_path_and_suspends_nothing() {
        let mut sender = Sender::new();
        sender.sending.timeouts = 1;
        sender.sending.opening = true;
        sender.send(0);
        sender.sending.opening = false;
        assert_eq!(sender.plb.changes(), 1);
        sender.rounds(12, 50);
        assert_eq!(sender.plb.changes(), 2);
    }
}
