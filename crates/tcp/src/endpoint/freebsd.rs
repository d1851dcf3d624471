//! RST and SYN on a connection by FreeBSD's rules (`tcp_do_segment`).

use super::{Endpoint, Error, Events, State};
use crate::{Segment, segment::flags};

impl Endpoint {
    /// FreeBSD's ACKs repeat a FIN that is not acknowledged (`tcp_output`); challenges do not.
    pub(super) fn repeats_fin(&self) -> bool {
        self.config.freebsd
            && self.fin_sent()
            && self.snd_una < self.snd_nxt
            && !self.receiver.ack_first
            && self.synchronized()
    }

    pub(super) fn send_fin_again(&mut self, now_ns: u64) -> Segment {
        let mut segment = self.header(now_ns, self.snd_nxt - 1);
        segment.flags |= flags::FIN;
        segment
    }

    /// The window is the receive buffer, whatever of it was offered. An RST is good where the next
    /// byte is expected, with `insecure_rst` anywhere in the window; what else lies there is
    /// challenged (RFC 5961), and beyond it is ignored. A SYN is challenged wherever it lies, or
    /// resets with `insecure_syn`.
    pub(super) fn reset_or_syn_freebsd(
        &mut self,
        now_ns: u64,
        segment: &Segment,
        seq: u64,
    ) -> Events {
        let (acked, config) = (self.receiver.acked, &self.config);
        let end = acked + self.receiver.free().max(1);
        let inside = seq >= acked && seq < end;
        if self.state == State::TimeWait {
            // Nothing ends this state early (RFC 1337); a SYN is answered.
            return match segment.has(flags::RST) {
                true => Events::EMPTY,
                false => self.challenge(now_ns),
            };
        }
        if segment.has(flags::RST) {
            let good = seq == acked || config.insecure_rst;
            return match (inside || seq + 1 == acked, good) {
                (true, true) => self.fail(Error::Reset),
                (true, false) => self.challenge(now_ns),
                (false, _) => Events::EMPTY,
            };
        }
        if config.insecure_syn && inside {
            self.flags.rst_pending = true;
            return self.fail(Error::Reset);
        }
        self.challenge(now_ns)
    }
}
