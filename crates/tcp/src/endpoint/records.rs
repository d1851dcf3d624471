//! Requests of an application beside plain writes: ends of records, data that waits for more,
//! options that change in the middle of a connection.

use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{Endpoint, Error, Events, Stats, accecn::Accurate, hystart::HyStart};
use crate::Config;

/// Seldom touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rare {
    pub stats: Stats,
    /// Bytes delivered under CE.
    pub marked_bytes: u64,
    /// What may end slow start before a loss.
    pub(super) hystart: HyStart,
    /// Offsets at which a record of the application ends; no segment goes beyond one.
    ends: VecDeque<u64>,
    /// When our SYN left first.
    pub syn_sent_ns: u64,
    /// When what has had no answer since left last before the first timeout.
    pub stalled_ns: u64,
    /// Until when no challenge leaves.
    pub challenge_ns: u64,
    /// The peer has a cookie of ours (RFC 7413): data need not wait for the handshake's end.
    pub opened_fast: bool,
    /// Both ends have opened at once.
    pub simultaneous: bool,
    /// Our SYN takes data along.
    pub syn_data: bool,
    /// With [`super::Options::accurate`].
    pub accurate: Option<Box<Accurate>>,
}

impl Deref for Rare {
    type Target = Stats;

    fn deref(&self) -> &Stats {
        &self.stats
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }
}

impl Endpoint {
    /// The data written so far ends a record (`MSG_EOR`): no segment has bytes from before and from
    /// behind.
    pub fn end_record(&mut self) {
        self.rare.ends.push_back(self.snd_end);
        self.flags.unusual = true;
    }

    /// Like [`Endpoint::write`], with the promise that more follows (`MSG_MORE`): less than a full
    /// segment waits for the next write, the next arrival, or for an RTO.
    pub fn write_more(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let taken = self.write(bytes);
        (self.flags.more, self.flags.unusual) = (true, true);
        (self.persist_ns, self.persist_backoff) = (now_ns, 0);
        taken
    }

    /// Every write is one with more to follow, until this is taken back (`TCP_CORK`).
    pub fn cork(&mut self, on: bool) {
        self.flags.corked = on;
        self.push();
    }

    /// Lets data leave that waits for more.
    pub fn push(&mut self) {
        self.flags.more = false;
    }

    /// Less than a full segment waits.
    pub(super) fn is_corked(&self) -> bool {
        let held = self.flags.more || self.flags.corked;
        held && self.unsent() < self.mss.into()
    }

    /// One past the last byte that a segment which begins at snd_nxt may have: the end of the
    /// record that is under way, or of the data.
    #[inline]
    pub(super) fn record_end(&self) -> u64 {
        if !self.flags.unusual {
            return self.snd_end;
        }
        let ends = &self.rare.ends;
        let next = ends.iter().find(|end| **end > self.snd_nxt);
        next.map_or(self.snd_end, |end| *end)
    }

    /// A record has ended where the next segment begins.
    pub(super) fn begins_record(&self) -> bool {
        self.flags.unusual && self.rare.ends.contains(&self.snd_nxt)
    }

    /// Records are given up that have been acknowledged.
    #[inline]
    pub(super) fn forget_records(&mut self) {
        if self.flags.unusual {
            let una = self.snd_una;
            self.rare.ends.retain(|end| *end > una);
        }
    }

    /// A segment without data that the peer answers leaves next (RFC 9293 3.8.4, keepalives).
    pub fn probe_peer(&mut self) {
        self.flags.probe_pending = self.synchronized() && self.snd_una == self.snd_nxt;
    }

    /// The configuration, for options that an application changes while the connection is open:
    /// `nagle`, `user_timeout_ns`. A change of others has no effect, or the effect that the
    /// code which reads them next makes of it.
    pub fn config_mut(&mut self) -> &mut Config {
        Arc::make_mut(&mut self.config)
    }

    /// Sets the size of the send buffer, in bytes.
    pub fn set_send_buffer(&mut self, bytes: u64) {
        self.send_buffer = bytes;
    }

    /// The network said that the peer cannot be reached: the connection ends without a word to it.
    pub fn cut_off(&mut self) -> Events {
        self.fail(Error::Unreachable)
    }

    /// The path takes no more than `mss` bytes of data in a segment (RFC 1191). What is out and
    /// larger is sent again in parts, which is no sign of congestion.
    pub fn shrink_segments(&mut self, mss: u32) {
        if mss == 0 || mss >= self.mss {
            return;
        }
        self.mss = mss;
        self.burst = super::handshake::burst(mss, self.config.burst_segments);
        self.board.lose_larger(mss);
        self.flags.force = self.board.waiting() > 0;
    }
}
