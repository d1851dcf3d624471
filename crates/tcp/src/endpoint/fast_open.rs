//! Fast open (RFC 7413): data in a SYN. The endpoint's owner makes and checks cookies.

use std::sync::Arc;

use sluicegate_core::number::narrow;

use super::{Endpoint, scoreboard, sequence};
use crate::{Config, Segment, segment::flags};

/// Options that a SYN may have beside its data.
const SYN_OPTIONS: u32 = 40;

impl Endpoint {
    /// A passive open by a peer whose cookie is good: the data of `syn` is taken, and ours may
    /// leave before the handshake is over.
    pub fn accept_fast(config: Arc<Config>, isn: u32, syn: &Segment, now_ns: u64) -> Self {
        let mut endpoint = Self::accept(config, isn, syn, now_ns);
        endpoint.rare.opened_fast = true;
        endpoint.flags.unusual = true;
        let room = endpoint.receiver.limit() - endpoint.receiver.next;
        let taken = u64::from(syn.payload).min(room);
        endpoint.receiver.take_syn_data(taken);
        endpoint.counts.received_bytes += taken;
        // The window begins behind our SYN, which nothing has acknowledged.
        endpoint.snd_wnd += 1;
        endpoint
    }

    /// An active open whose SYN takes along what fits of `bytes`; returns how many were taken into
    /// the send buffer as well.
    pub fn connect_fast(config: Arc<Config>, isn: u32, bytes: u64) -> (Self, u64) {
        let mut endpoint = Self::connect(config, isn);
        endpoint.rare.syn_data = true;
        let taken = endpoint.write(bytes);
        (endpoint, taken)
    }

    /// The first SYN takes data along.
    pub(super) fn add_syn_data(&mut self, now_ns: u64, segment: &mut Segment) {
        if !self.rare.syn_data || self.snd_nxt != self.snd_una {
            return;
        }
        let most = self.mss.saturating_sub(SYN_OPTIONS);
        let waits = self.snd_end - self.snd_una - 1;
        let len = narrow::<u32>(waits.min(most.into()));
        if len == 0 {
            return;
        }
        segment.payload = narrow::<u16>(len);
        self.snd_nxt += 1 + u64::from(len);
        self.board.push(scoreboard::Sent {
            end: self.snd_nxt,
            sent_ns: now_ns,
            len,
            flags: 0,
        });
    }

    /// The path takes no packets as large as a SYN with data, but segments of `mss` bytes: the SYN
    /// leaves again at once, without the data (Linux's `tcp_simple_retransmit`).
    pub fn open_smaller(&mut self, mss: u16) {
        if self.state == super::State::SynSent && !self.board.is_empty() {
            let config = self.config_mut();
            config.mss = config.mss.min(mss);
            self.flags.syn_pending = true;
            self.flags.syn_repeated = true;
        }
    }

    /// An application waits to write when the SYN-ACK comes: what it writes takes the ACK along,
    /// and data flows both ways by turns from then on.
    pub fn answer_with_data(&mut self, now_ns: u64) {
        self.receiver.data_ns = now_ns.max(1);
        self.receiver.interactive = true;
    }

    /// The SYN-ACK has come: what it does not acknowledge of the SYN's data leaves again.
    pub(super) fn settle_syn_data(&mut self, segment: &Segment) {
        if self.board.is_empty() || !segment.has(flags::SYN) {
            return;
        }
        let ack = sequence::unwrap(segment.ack, self.snd_una);
        let acked = ack.saturating_sub(self.snd_una);
        self.board.acknowledge(ack, |_| ());
        self.snd_una += acked;
        self.counts.acked_bytes += acked;
        self.board.lose_all();
    }

    /// Whether a segment has a valid ACK while the connection opens: of the SYN, or of data beside
    /// it.
    pub(super) fn acks_syn(&self, segment: &Segment) -> bool {
        let ack = sequence::unwrap(segment.ack, self.snd_una);
        segment.has(flags::ACK) && ack > self.snd_una && ack <= self.snd_nxt
    }

    /// Data came with the SYN, or may leave before the handshake's end.
    pub fn is_opened_fast(&self) -> bool {
        self.rare.opened_fast
    }
}
