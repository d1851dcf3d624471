//! HyStart as Linux's CUBIC has it (`hystart_update` of `tcp_cubic.c`): slow start ends at 16
//! segments or more when the ACKs of a round come in one train that is longer than the path's delay
//! explains, or when the least RTT of a round has grown by an eighth, 4 to 16 ms. From there to
//! the first loss the window grows by at least a twentieth in a round trip (`bictcp_update`).

use super::{Endpoint, Phase};

/// Slow start goes on below so many segments (`hystart_low_window`).
const LOW_WINDOW_SEGMENTS: u64 = 16;

/// ACKs further apart are no train (`hystart_ack_delta_us`).
const TRAIN_NS: u64 = 2_000_000;

/// RTT samples of a round before it is judged (`HYSTART_MIN_SAMPLES`).
const SAMPLES: u8 = 8;

/// By how much the least RTT may grow (`HYSTART_DELAY_MIN`, `HYSTART_DELAY_MAX`).
const GROWTH_NS: (u64, u64) = (4_000_000, 16_000_000);

/// A train may be longer by what four of the largest super-packets take at the pacing rate, but no
/// more than a millisecond (`hystart_ack_delay`).
const SUPER_PACKETS_BYTES: u64 = 4 * 65_536;
const DELAY_MAX_NS: u64 = 1_000_000;

/// Until a loss has shown how much there is, so many acknowledged bytes add one.
const GROWTH_DIVISOR: u32 = 20;

/// What is known of the path and of the present round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HyStart {
    found: bool,
    /// Least RTT of the connection; 0 = unknown.
    least_ns: u64,
    /// Of this round.
    round_least_ns: u64,
    samples: u8,
    round_began_ns: u64,
    /// The last ACK of the train.
    train_ns: u64,
    /// The round ends when more than this is acknowledged.
    round_end: u64,
    /// The window has been cut since this slow start began, be it taken back or not.
    cut: bool,
    /// Acknowledged bytes that have not yet added one.
    credit: u32,
}

impl HyStart {
    fn begin_round(&mut self, now_ns: u64, end: u64) {
        self.round_began_ns = now_ns;
        self.train_ns = now_ns;
        self.round_end = end;
        self.round_least_ns = u64::MAX;
        self.samples = 0;
    }
}

impl Endpoint {
    /// An ACK of data that took `rtt_ns` (0 = unknown) has come.
    pub(super) fn watch_slow_start(&mut self, now_ns: u64, rtt_ns: u64) {
        if rtt_ns == 0 {
            return;
        }
        let mut watch = self.rare.hystart;
        if watch.least_ns == 0 || rtt_ns < watch.least_ns {
            watch.least_ns = rtt_ns;
        }
        if !watch.found && self.cc.cwnd < self.cc.ssthresh {
            if self.snd_una > watch.round_end {
                watch.begin_round(now_ns, self.snd_nxt);
            }
            let low = LOW_WINDOW_SEGMENTS * u64::from(self.mss);
            if u64::from(self.cc.cwnd) >= low {
                // Both are asked: each keeps its own account.
                let train = self.train_is_long(&mut watch, now_ns);
                let delay = delay_has_grown(&mut watch, rtt_ns);
                watch.found = train || delay;
            }
            if watch.found {
                self.cc.ssthresh = self.cc.cwnd;
            }
        }
        self.rare.hystart = watch;
    }

    /// A timeout: nothing is known of the path, and slow start begins anew (`bictcp_reset`).
    pub(super) fn forget_slow_start(&mut self) {
        self.rare.hystart = HyStart::default();
    }

    /// A loss or marks cut the window (`last_max_cwnd` of Linux's CUBIC is set).
    pub(super) fn note_cut(&mut self) {
        self.rare.hystart.cut = true;
    }

    /// `acked` bytes filled a window of `before` bytes.
    pub(super) fn grow_until_loss(&mut self, before: u32, acked: u32) {
        let watch = &mut self.rare.hystart;
        if before < self.cc.ssthresh || watch.cut || self.phase != Phase::Open {
            return;
        }
        let credit = watch.credit.saturating_add(acked);
        watch.credit = credit % GROWTH_DIVISOR;
        let least = before.saturating_add(credit / GROWTH_DIVISOR);
        self.cc.cwnd = self.cc.cwnd.max(least);
    }

    fn train_is_long(&self, watch: &mut HyStart, now_ns: u64) -> bool {
        if now_ns.saturating_sub(watch.train_ns) > TRAIN_NS {
            return false;
        }
        watch.train_ns = now_ns;
        let share = u64::from(self.cc.cwnd) * self.pacing_percent() / 100;
        let delay_ns = SUPER_PACKETS_BYTES.saturating_mul(self.rtt.srtt()) / share.max(1);
        let mut longest_ns = watch.least_ns + delay_ns.min(DELAY_MAX_NS);
        if !self.config.pacing {
            longest_ns /= 2;
        }
        now_ns.saturating_sub(watch.round_began_ns) > longest_ns
    }
}

fn delay_has_grown(watch: &mut HyStart, rtt_ns: u64) -> bool {
    watch.round_least_ns = watch.round_least_ns.min(rtt_ns);
    if watch.samples < SAMPLES {
        watch.samples += 1;
        return false;
    }
    let growth_ns = (watch.least_ns / 8).clamp(GROWTH_NS.0, GROWTH_NS.1);
    watch.round_least_ns > watch.least_ns + growth_ns
}
