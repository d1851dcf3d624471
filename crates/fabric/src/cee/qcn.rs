//! Quantized congestion notification: the feedback of a switch's queue (802.1Q-2018 clause 30.2.1)
//! and the reaction of a sender's rate limiter (clause 30.2.2), with the changes of the thesis,
//! section 2.2.2.2.

use sluicegate_core::number::{self, at_most, whole};

use super::{QcnParams, Sampling};
use crate::random::draw;

/// Greatest quantised feedback: 6 bits.
pub const MAX_FEEDBACK: u8 = 63;

/// Bytes in a unit of a notification's Qoff and Qdelta.
const UNIT_BYTES: i64 = 64;

/// At the greatest feedback samples are so many times as frequent as without feedback (the thesis,
/// Fig. 2.3: 10 % to 1 %).
const MOST_OFTEN: u64 = 10;

/// A target that exceeds the rate by this factor after a cycle of recovery is outdated, and is
/// lowered.
const STALE_TARGET: u64 = 10;
/// Divisor of such a target.
const STALE_DIVISOR: u64 = 8;

/// The feedback of a congestion point to the source of a sampled frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// |Fb|, quantised: 1..=63; 63 is Qeq · (2w + 1) and more.
    pub fb: u8,
    /// Q − Qeq in units of 64 bytes, saturating.
    pub q_off: i16,
    /// Q − Qold in units of 64 bytes, saturating.
    pub q_delta: i16,
}

/// The congestion point of one output queue, for one priority.
#[derive(Clone, Copy, Debug, Default)]
pub struct CongestionPoint {
    /// Bytes until the next sample; 0 before the first frame.
    left: u32,
    /// Bytes that were queued at the last sample.
    queue_old: u32,
}

impl CongestionPoint {
    /// The congestion point of an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a frame of so many bytes if it is not to be sampled; else returns false, and nothing
    /// changes.
    #[inline]
    pub(super) fn skips(&mut self, frame_bytes: u32) -> bool {
        let skips = self.left > frame_bytes;
        self.left -= if skips { frame_bytes } else { 0 };
        skips
    }

    /// Whether the next sample is no further away than it is without congestion.
    pub(super) fn is_within(&self, params: &QcnParams) -> bool {
        let spread = u128::from(params.interval_bytes) * 30 / 100;
        u128::from(self.left) <= (u128::from(params.interval_bytes) + spread).max(1)
    }

    /// A frame of `frame_bytes` has joined the queue, which holds `queue_bytes` with it. Returns
    /// the feedback to its source if the frame is sampled and there is congestion. `queue_bytes` is
    /// called only for sampled frames; `random` is the state of [`draw`].
    pub fn arrival(
        &mut self,
        params: &QcnParams,
        queue_bytes: impl FnOnce() -> u64,
        frame_bytes: u32,
        random: &mut u64,
    ) -> Option<Feedback> {
        if self.left == 0 {
            self.left = narrow(about(params.interval_bytes, random));
        }
        if self.skips(frame_bytes) {
            return None;
        }
        let queue_bytes = queue_bytes();
        let q_off = difference(queue_bytes, params.set_point_bytes);
        let q_delta = difference(queue_bytes, self.queue_old.into());
        let fb = quantised(params, q_off, q_delta);
        self.queue_old = narrow(queue_bytes);
        self.left = narrow(about(interval_bytes(params, fb), random));
        // Feedback that is quantised to 0 would lower no rate.
        (fb > 0).then(|| Feedback {
            fb,
            q_off: units(q_off),
            q_delta: units(q_delta),
        })
    }
}

/// The value as u32, saturating.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The size of Fb in 6 bits, rounded down; 0 if Fb ≥ 0. Fb = −(Qoff + w·Qdelta), and its scale is
/// Qeq · (2w + 1).
fn quantised(params: &QcnParams, q_off: i64, q_delta: i64) -> u8 {
    let congestion = q_off as f64 + params.weight * q_delta as f64;
    let most = params.set_point_bytes as f64 * (2.0 * params.weight + 1.0);
    if congestion <= 0.0 {
        return 0;
    }
    // A float becomes an integer with saturation; most = 0 makes the quotient infinite.
    at_most::<u8>(whole(congestion * f64::from(MAX_FEEDBACK) / most)).min(MAX_FEEDBACK)
}

/// Mean bytes from a sample with this feedback to the next.
fn interval_bytes(params: &QcnParams, fb: u8) -> u64 {
    let most = u64::from(MAX_FEEDBACK);
    match params.sampling {
        Sampling::Linear => {
            let often = most + (MOST_OFTEN - 1) * u64::from(fb);
            params.interval_bytes.saturating_mul(most) / often
        }
        Sampling::Steps => params.interval_bytes / (u64::from(fb / 8) + 1),
    }
}

fn difference(to: u64, from: u64) -> i64 {
    i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(i64::MAX)
}

fn units(bytes: i64) -> i16 {
    number::narrow((bytes / UNIT_BYTES).clamp(i16::MIN.into(), i16::MAX.into()))
}

/// Within 15 % of `mean`, uniformly, and at least 1: intervals and cycles are drawn so that sources
/// do not keep step.
fn about(mean: u64, random: &mut u64) -> u64 {
    let spread = u128::from(mean) * 30 / 100;
    let drawn = (u128::from(draw(random)) * (spread + 1)) >> 64;
    let least = u128::from(mean) - spread / 2;
    u64::try_from(least + drawn).unwrap_or(u64::MAX).max(1)
}

/// The rate limiter of one queue. It is at line rate, and without effect, until it is notified.
#[derive(Clone, Copy, Debug)]
pub struct ReactionPoint {
    line_bps: u64,
    rate_bps: u64,
    /// The target rate of recovery; may exceed the line's rate.
    target_bps: u64,
    /// Cycles of the byte counter since the last notification.
    byte_stage: u32,
    /// Bytes until it expires.
    bytes_left: u64,
    /// Cycles of the timer since the last notification.
    time_stage: u32,
    /// When it expires.
    expires_ps: u64,
    random: u64,
}

impl ReactionPoint {
    /// For a line of `line_bps` bits per second (at least 1); `seed` draws its cycles.
    pub fn new(params: &QcnParams, line_bps: u64, now_ps: u64, seed: u64) -> Self {
        let line_bps = line_bps.max(1);
        let mut random = seed;
        Self {
            line_bps,
            rate_bps: line_bps,
            target_bps: line_bps,
            byte_stage: 0,
            bytes_left: about(params.byte_limit, &mut random),
            time_stage: 0,
            expires_ps: now_ps.saturating_add(about(params.timer_ps, &mut random)),
            random,
        }
    }

    /// A notification with this |Fb|, 0..=63 (63 is assumed above): the rate falls to 1 − gain ·
    /// |Fb| and recovery begins anew. 0 changes nothing.
    pub fn notified(&mut self, params: &QcnParams, fb: u8, now_ps: u64) {
        if fb == 0 {
            return;
        }
        self.timer(params, now_ps);
        // In the first cycle the rate has not recovered yet; its target is still what was good
        // before.
        if !params.extra_fast_recovery || self.byte_stage != 0 || self.is_done() {
            self.target_bps = self.rate_bps;
            self.byte_stage = 0;
            self.bytes_left = about(params.byte_limit, &mut self.random);
        }
        let cut = 1.0 - params.gain * f64::from(fb.min(MAX_FEEDBACK));
        let rate = self.rate_bps as f64 * cut.max(params.min_decrease);
        self.set_rate(params, whole(rate));
        self.time_stage = 0;
        self.expires_ps = now_ps.saturating_add(about(params.timer_ps, &mut self.random));
    }

    /// A frame of so many bytes has left through the limiter.
    pub fn sent(&mut self, params: &QcnParams, bytes: u32) {
        if self.is_done() {
            return;
        }
        if self.bytes_left > u64::from(bytes) {
            self.bytes_left -= u64::from(bytes);
            return;
        }
        self.byte_stage = self.byte_stage.saturating_add(1);
        let limit = cycle(params, params.byte_limit, self.byte_stage);
        self.bytes_left = about(limit, &mut self.random);
        self.increase(params, self.byte_stage);
    }

    /// Applies the timer's cycles up to now: the timer runs whether frames leave or not.
    pub fn timer(&mut self, params: &QcnParams, now_ps: u64) {
        while !self.is_done() && self.expires_ps <= now_ps {
            self.time_stage = self.time_stage.saturating_add(1);
            let period_ps = cycle(params, params.timer_ps, self.time_stage);
            let drawn_ps = about(period_ps, &mut self.random);
            self.expires_ps = self.expires_ps.saturating_add(drawn_ps);
            self.increase(params, self.time_stage);
        }
    }

    /// Bits per second: min_rate (or the line's rate, if that is less) ..= the line's rate.
    pub fn rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// When the timer's present cycle ends; `u64::MAX` = never.
    pub fn next_timer_ps(&self) -> u64 {
        if self.is_done() {
            u64::MAX
        } else {
            self.expires_ps
        }
    }

    /// The rate is the line's: the limiter has no effect and may be dropped once its queue is
    /// empty.
    pub fn is_done(&self) -> bool {
        self.rate_bps == self.line_bps
    }

    /// A cycle has ended, the `ended`th of its counter: fast recovery, then active increase once
    /// one counter is through it, hyper-active increase once both are.
    fn increase(&mut self, params: &QcnParams, ended: u32) {
        let [fewer, more] = {
            let (bytes, time) = (self.byte_stage, self.time_stage);
            [bytes.min(time), bytes.max(time)]
        };
        let step_bps = match (fewer.checked_sub(params.fast_recovery), more) {
            (Some(beyond @ 1..), _) => params.hyper_increase_bps.saturating_mul(u64::from(beyond)),
            (_, more) if more > params.fast_recovery => params.active_increase_bps,
            _ => 0,
        };
        let stale = self.rate_bps.saturating_mul(STALE_TARGET);
        if ended == 1 && self.target_bps > stale {
            self.target_bps /= STALE_DIVISOR;
        } else {
            self.target_bps = self.target_bps.saturating_add(step_bps);
        }
        // Rounded up: otherwise the line's rate would stay one bit per second away.
        let sum = u128::from(self.rate_bps) + u128::from(self.target_bps);
        self.set_rate(params, number::narrow(sum.div_ceil(2)));
    }

    fn set_rate(&mut self, params: &QcnParams, bps: u64) {
        self.rate_bps = bps.max(params.min_rate_bps).clamp(1, self.line_bps);
    }
}

/// Mean length of the cycle that follows the `stage`th: half as long once fast recovery is over.
fn cycle(params: &QcnParams, length: u64, stage: u32) -> u64 {
    if stage < params.fast_recovery {
        length
    } else {
        length / 2
    }
}

#[cfg(test)]
mod tests;
