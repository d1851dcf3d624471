//! Source-based adaptive routing in adapters: R2C2 and R3C2 (Crisan's thesis, algorithms 2.1 and
//! 2.2).
//!
//! A queue of an adapter holds the frames to one destination. Without congestion they take the
//! default path, and the queue has no [`Paths`]. A notification makes them. From then on a path in
//! use takes the next frame of the queue whenever its rate limiter, if it has one, lets it. Paths
//! that are ready at the same time take turns.
//!
//! With R3C2 each available path has a rate limiter from its first notification until the limiter
//! has recovered, whether the path is in use or not: a path that is given up and taken again comes
//! with its limiter. When only the default path is in use and no path has a limiter, the memory is
//! given back.

use std::{collections::VecDeque, sync::Arc};

use sluicegate_core::number::narrow;

use super::{QcnParams, ReactionPoint};
use crate::{
    port::PS_PER_S,
    random::draw,
    routing::{DropPath, LimitPaths, PathRules, Routes, SelectPath},
};

/// The scheme of all sources.
pub(super) struct SourceRouting {
    pub rules: PathRules,
    /// Each path in use has a rate limiter (R3C2).
    pub limits_each: bool,
    /// Sources have rate limiters: with R2C2 one for all paths of a queue.
    pub has_limiters: bool,
    pub routes: Arc<Routes>,
}

/// The last frame of a queue or path: when its first bit left, and its length.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(4))]
pub(super) struct Pace {
    last_ps: u64,
    last_bytes: u32,
}

impl Pace {
    /// A frame leaves.
    #[inline(always)]
    pub fn of(last_bytes: u32, last_ps: u64) -> Self {
        Self {
            last_ps,
            last_bytes,
        }
    }

    /// When the limiter lets the next frame go, or has to be looked at again: 0 = at once. `None`:
    /// the limiter has no effect any more.
    pub fn next_ps(
        self,
        limiter: &mut ReactionPoint,
        params: &QcnParams,
        now_ps: u64,
    ) -> Option<u64> {
        limiter.timer(params, now_ps);
        if limiter.is_done() {
            return None;
        }
        // Exact for frames of up to 2 MB.
        let bit_ps = u64::from(self.last_bytes).saturating_mul(8 * PS_PER_S);
        let gap_ps = bit_ps / limiter.rate_bps().max(1);
        Some(match { self.last_ps }.saturating_add(gap_ps) {
            at_ps if at_ps <= now_ps => 0,
            at_ps => at_ps.min(limiter.next_timer_ps()),
        })
    }
}

/// A path that is in use or has a limiter, or all of them together.
#[derive(Clone, Copy, Debug)]
struct Way {
    value: u32,
    last: Pace,
    limiter: Option<ReactionPoint>,
}

impl Way {
    fn new(value: u32) -> Self {
        Self {
            value,
            last: Pace::default(),
            limiter: None,
        }
    }

    /// See [`Pace::next_ps`]; 0 without a limiter.
    fn next_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        let Some(limiter) = &mut self.limiter else {
            return 0;
        };
        let next_ps = self.last.next_ps(limiter, params, now_ps);
        if next_ps.is_none() {
            self.limiter = None;
        }
        next_ps.unwrap_or(0)
    }

    /// Whether it has a limiter that has not recovered by now.
    fn is_limited(&mut self, params: &QcnParams, now_ps: u64) -> bool {
        self.next_ps(params, now_ps);
        self.limiter.is_some()
    }

    fn sent(&mut self, params: &QcnParams, bytes: u32, now_ps: u64) {
        self.last = Pace::of(bytes, now_ps);
        if let Some(limiter) = &mut self.limiter {
            limiter.timer(params, now_ps);
            limiter.sent(params, bytes);
        }
    }

    fn notified(&mut self, params: &QcnParams, fb: u8, (line_bps, seed): (u64, u64), now_ps: u64) {
        // What has recovered by now is no limiter.
        self.next_ps(params, now_ps);
        let new = || ReactionPoint::new(params, line_bps, now_ps, seed);
        let limiter = self.limiter.get_or_insert_with(new);
        limiter.notified(params, fb, now_ps);
    }

    /// Bits per second; without a limiter more than any has.
    fn rate_bps(&self) -> u64 {
        self.limiter.map_or(u64::MAX, |limiter| limiter.rate_bps())
    }
}

/// Of [`Paths::waits_ps`]: the path stays ready until it takes a frame or is notified.
const READY: u64 = 0;

/// Of [`Paths::waits_ps`]: the path has to be looked at.
const UNKNOWN: u64 = 1;

/// The paths of a source to a destination.
pub(super) struct Paths {
    rules: PathRules,
    line_bps: u64,
    random: u64,
    /// `PathsInUse`: the default path, and others in the order in which they were taken.
    used: Vec<Way>,
    /// By path in use: until then nothing changes, as no frame may go and no timer of its limiter
    /// expires. [`READY`]: it may take a frame. What is past has to be looked at.
    waits_ps: Vec<u64>,
    /// No path in use may take a frame before.
    first_ps: u64,
    /// The other available paths.
    unused: VecDeque<u32>,
    /// Those of them that have a limiter.
    resting: Vec<Way>,
    /// The limiter of all paths together: R2C2 with rate limiters.
    all: Way,
    /// The index of the path that is asked first for the next frame.
    turn: usize,
    /// When the timer expires, and when its event is due, which may be earlier.
    expires_ps: u64,
    armed_ps: u64,
    /// R2C2: bytes of the present period and of the one before it.
    sent_bytes: [u64; 2],
    limits_each: bool,
}

impl Paths {
    /// Of a source that is notified for the first time: it uses the default path, the first of
    /// `values`. `line` is the line's rate in bits per second, and a seed.
    pub fn new(
        routing: &SourceRouting,
        values: Vec<u32>,
        (line_bps, seed): (u64, u64),
        now_ps: u64,
    ) -> Self {
        let rules = routing.rules;
        let mut unused = VecDeque::from(values);
        let default = unused.pop_front().unwrap_or(0);
        Self {
            rules,
            line_bps,
            random: seed,
            used: vec![Way::new(default)],
            waits_ps: vec![READY],
            first_ps: 0,
            unused,
            resting: Vec::new(),
            all: Way::new(default),
            turn: 0,
            expires_ps: now_ps.saturating_add(rules.timer_ps),
            armed_ps: u64::MAX,
            sent_bytes: [0; 2],
            limits_each: routing.limits_each,
        }
    }

    /// A notification comes from a path: `on congestion notification arrival`. Returns whether
    /// another path is used, which may take the next frame earlier than was foreseen.
    pub fn notified(
        &mut self,
        routing: &SourceRouting,
        params: &QcnParams,
        (value, fb): (u32, u8),
        now_ps: u64,
    ) -> bool {
        let limited = (self.line_bps, draw(&mut self.random));
        if self.limits_each {
            // The time-out counts from the last notification.
            self.expires_ps = now_ps.saturating_add(self.rules.timer_ps);
            let at_once = self.rules.limit == LimitPaths::Notified;
            if at_once || self.unused.is_empty() {
                if let Some(way) = self.way_mut(value) {
                    way.notified(params, fb, limited, now_ps);
                }
            }
            self.look_again();
            if at_once && !self.are_all_limited(params, now_ps) {
                return false;
            }
        } else if self.unused.is_empty() && routing.has_limiters {
            self.all.notified(params, fb, limited, now_ps);
        }
        let Some(value) = self.select() else {
            return false;
        };
        let resting = self.resting.iter().position(|way| way.value == value);
        let way = resting.map_or(Way::new(value), |at| self.resting.remove(at));
        self.used.push(way);
        self.look_again();
        true
    }

    /// Switches have new routes, whose paths have `values`, the default path's first. A path whose
    /// value stays keeps its limiter. Others are given up. A queue whose only ready path is given
    /// up sends one more frame by the default path.
    pub fn reroute(&mut self, values: &[u32]) {
        let stays = |value: u32| values.contains(&value);
        self.used.retain(|way| stays(way.value));
        self.resting.retain(|way| stays(way.value));
        self.unused.retain(|&value| stays(value));
        for &value in values {
            if self.used.is_empty() {
                self.used.push(Way::new(value));
            } else if !self.is_available(value) {
                self.unused.push_back(value);
            }
        }
        self.look_again();
    }

    fn is_available(&self, value: u32) -> bool {
        self.used.iter().any(|way| way.value == value) || self.unused.contains(&value)
    }

    /// The paths in use, or their limiters, have changed.
    fn look_again(&mut self) {
        self.waits_ps.clear();
        self.waits_ps.resize(self.used.len(), UNKNOWN);
        self.first_ps = 0;
        self.turn %= self.used.len();
    }

    /// An available path, in use or not; `None` if there is no such path.
    fn way_mut(&mut self, value: u32) -> Option<&mut Way> {
        if let Some(at) = self.used.iter().position(|way| way.value == value) {
            return Some(&mut self.used[at]);
        }
        if let Some(at) = self.resting.iter().position(|way| way.value == value) {
            return Some(&mut self.resting[at]);
        }
        if !self.unused.contains(&value) {
            return None;
        }
        self.resting.push(Way::new(value));
        self.resting.last_mut()
    }

    /// Whether each path in use has a limiter that has not recovered yet.
    fn are_all_limited(&mut self, params: &QcnParams, now_ps: u64) -> bool {
        let mut used = self.used.iter_mut();
        used.all(|way| way.is_limited(params, now_ps))
    }

    /// `SelectPath`.
    fn select(&mut self) -> Option<u32> {
        match self.rules.select {
            SelectPath::Next => self.unused.pop_front(),
            SelectPath::Random => {
                let count = self.unused.len() as u64;
                let drawn = (u128::from(draw(&mut self.random)) * u128::from(count)) >> 64;
                self.unused.remove(narrow::<usize>(drawn))
            }
        }
    }

    /// The time of the event that has to be set for the timer, if none is set.
    pub fn arm(&mut self) -> Option<u64> {
        if self.armed_ps != u64::MAX {
            return None;
        }
        self.armed_ps = self.expires_ps;
        Some(self.armed_ps)
    }

    /// The event of the timer that was set for `at_ps`: `on timer`.
    pub fn timer(&mut self, params: &QcnParams, at_ps: u64) {
        if at_ps != self.armed_ps {
            return; // it was set for paths that are no longer
        }
        self.armed_ps = u64::MAX;
        if self.expires_ps > at_ps {
            return;
        }
        self.expires_ps = at_ps.saturating_add(self.rules.timer_ps);
        for way in self.used.iter_mut().chain([&mut self.all]) {
            way.next_ps(params, at_ps);
        }
        self.resting.retain_mut(|way| way.is_limited(params, at_ps));
        let [current, old] = self.sent_bytes;
        self.sent_bytes = [0, current];
        if self.limits_each || current < old || current == 0 {
            self.reduce();
        }
    }

    /// `reduce number of paths`.
    fn reduce(&mut self) {
        let others = 1..self.used.len();
        let dropped = match self.rules.drop {
            DropPath::Newest => others.last(),
            DropPath::Slowest => others.rev().min_by_key(|&at| self.used[at].rate_bps()),
        };
        let Some(at) = dropped else {
            return;
        };
        let way = self.used.remove(at);
        self.unused.push_back(way.value);
        if way.limiter.is_some() {
            self.resting.push(way);
        }
        self.look_again();
    }

    /// Whether only the default path is used, and no limiter is left.
    pub fn is_done(&self) -> bool {
        self.used.len() == 1 && self.limiters().next().is_none()
    }

    /// When a path may take the next frame, or a limiter has to be looked at again; 0 = at once.
    pub fn next_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        let first_ps = self.first_ready(params, now_ps).err().unwrap_or(0);
        first_ps.max(self.all.next_ps(params, now_ps))
    }

    /// The first path in turn that may take a frame now; else when one may, or has to be looked at
    /// again.
    fn first_ready(&mut self, params: &QcnParams, now_ps: u64) -> Result<usize, u64> {
        if self.first_ps > now_ps {
            return Err(self.first_ps);
        }
        let mut first_ps = u64::MAX;
        for at in (self.turn..self.used.len()).chain(0..self.turn) {
            let waits_ps = &mut self.waits_ps[at];
            if *waits_ps != READY && *waits_ps <= now_ps.max(UNKNOWN) {
                *waits_ps = self.used[at].next_ps(params, now_ps);
            }
            if *waits_ps == READY {
                return Ok(at);
            }
            first_ps = first_ps.min(*waits_ps);
        }
        self.first_ps = first_ps;
        Err(first_ps)
    }

    /// A path takes the next frame, of so many bytes. Returns the path's value.
    pub fn take(&mut self, params: &QcnParams, bytes: u32, now_ps: u64) -> u32 {
        let at = self.first_ready(params, now_ps).unwrap_or(0);
        self.turn = if at + 1 < self.used.len() { at + 1 } else { 0 };
        self.sent_bytes[0] += u64::from(bytes);
        self.all.sent(params, bytes, now_ps);
        let way = &mut self.used[at];
        way.sent(params, bytes, now_ps);
        self.waits_ps[at] = way.next_ps(params, now_ps);
        way.value
    }

    /// Checks what must hold at any time.
    pub fn audit(&self) -> Result<(), String> {
        let values = self.used.iter().map(|way| way.value);
        let mut available: Vec<u32> = values.chain(self.unused.iter().copied()).collect();
        let count = available.len();
        available.sort_unstable();
        available.dedup();
        let rests = |way: &Way| way.limiter.is_some() && self.unused.contains(&way.value);
        let what = if self.used.is_empty() || self.waits_ps.len() != self.used.len() {
            "does not know its paths in use"
        } else if self.turn >= self.used.len() {
            "has lost the turn of its paths"
        } else if available.len() != count {
            "has a path twice"
        } else if !self.resting.iter().all(rests) {
            "keeps an unused path without a limiter, or a used one twice"
        } else {
            return Ok(());
        };
        Err(what.into())
    }

    /// The values of the paths in use.
    #[cfg(test)]
    pub fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        self.used.iter().map(|way| way.value)
    }

    /// The limiters, and the values of their paths; of all paths together that of the default path.
    pub fn limiters(&self) -> impl Iterator<Item = (u32, ReactionPoint)> + '_ {
        let ways = self.used.iter().chain(&self.resting).chain([&self.all]);
        ways.filter_map(|way| Some((way.value, way.limiter?)))
    }
}

#[cfg(test)]
mod tests;
