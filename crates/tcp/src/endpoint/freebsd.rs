//! RST and SYN on a connection, and TIME-WAIT, by FreeBSD's rules (`tcp_do_segment`,
//! `tcp_twcheck`).

use super::{Endpoint, Error, Events, State, Timer, sequence};
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

    /// TIME-WAIT (`tcp_twcheck`): nothing ends it early (RFC 1337). What has no ACK is dropped, an
    /// ACK that tells nothing new is ignored, and all else is answered.
    pub(super) fn segment_in_time_wait_freebsd(
        &mut self,
        now_ns: u64,
        segment: &Segment,
    ) -> Events {
        if segment.has(flags::RST) || !segment.has(flags::ACK) {
            return Events::EMPTY;
        }
        let seq = sequence::unwrap(segment.seq, self.receiver.next);
        let ack = sequence::unwrap(segment.ack, self.snd_una);
        let expected = seq == self.receiver.next && ack == self.snd_nxt;
        if segment.flags == flags::ACK && segment.payload == 0 && expected {
            return Events::EMPTY;
        }
        let last = seq + u64::from(segment.length()) == self.receiver.next;
        if segment.has(flags::FIN) && last {
            self.set_timer(Timer::TimeWait, now_ns + self.config.time_wait_ns);
        }
        self.receiver.ack_first = true;
        Events::EMPTY
    }

    /// A SYN that begins a new connection in place of this one, which is in TIME-WAIT: its number
    /// is above all that came (RFC 9293 3.10.7.4).
    pub fn makes_way(&self, segment: &Segment) -> bool {
        let control = flags::SYN | flags::ACK | flags::RST;
        self.state == State::TimeWait
            && segment.flags & control == flags::SYN
            && sequence::unwrap(segment.seq, self.receiver.next) > self.receiver.next
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
        if segment.has(flags::RST) {
            let good = seq == acked || config.insecure_rst;
            return match (inside, good) {
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
