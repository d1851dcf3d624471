//! Opening: RFC 9293 3.5 and 3.10.7.3, options of RFC 7323 and RFC 2018, ECN of RFC 3168 6.1.1.

use super::{Endpoint, Error, Events, State, receiver::Receiver, sequence};
use crate::{
    Segment,
    segment::{flags, option},
};
use sluicegate_core::{cc::Cc, number::low_half};

/// The MSS of a peer that gives none (RFC 9293 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Options of every data segment.
const TIMESTAMPS_LEN: u32 = 12;

/// Payload of the largest segment: what an IPv4 packet has beside its header, TCP's with all
/// options, and 16 bytes of options of hosts.
const BURST_MAX: u32 = 0xffff - 20 - 60 - 16;

/// Payload bytes of the largest segment, which offload may cut into parts of `mss`.
pub(super) fn burst(mss: u32, segments: u8) -> u32 {
    mss * u32::from(segments).clamp(1, (BURST_MAX / mss).max(1))
}

impl Endpoint {
    /// SYN, or SYN-ACK.
    pub(super) fn send_syn(&mut self, now_ns: u64) -> Segment {
        let mut segment = Segment::new(sequence::wire(self.snd_una), 0, flags::SYN);
        segment.window = self.receiver.window_of_syn();
        let answers = self.state == State::SynReceived;
        if answers {
            segment.flags |= flags::ACK;
            segment.ack = sequence::wire(self.receiver.next);
            if self.options.ecn {
                segment.flags |= flags::ECE;
            }
        } else {
            self.offer_ecn(&mut segment);
        }
        let own = self.rare.simultaneous && !self.config.freebsd;
        self.add_syn_options(now_ns, &mut segment, answers && !own);
        if answers && self.options.accurate {
            self.answer_accurately(&mut segment);
        }
        self.receiver.told();
        self.flags.syn_pending = false;
        self.add_syn_data(now_ns, &mut segment);
        if segment.payload > 0 {
            self.data_sent_ns = now_ns;
        } else if self.snd_nxt == self.snd_una {
            self.snd_nxt += 1;
            self.data_sent_ns = now_ns;
        }
        if !self.flags.syn_repeated {
            self.rare.syn_sent_ns = now_ns;
        }
        self.restart_timer(now_ns);
        segment
    }

    /// An answer has only what the peer offered, except that Linux, where both ends open, repeats
    /// its own SYN's options (seen on 6.18).
    fn add_syn_options(&mut self, now_ns: u64, segment: &mut Segment, answers: bool) {
        segment.set_mss(self.config.mss);
        if self.config.window_scaling && (!answers || self.options.wscale) {
            segment.set_wscale(Receiver::shift(&self.config));
        }
        if self.config.sack && (!answers || self.options.sack) {
            segment.options |= option::SACK_PERMITTED;
        }
        if self.config.timestamps && (!answers || self.options.timestamps) {
            segment.options |= option::TIMESTAMPS;
            segment.ts_val = self.ts_clock(now_ns);
            segment.ts_ecr = self.receiver.ts_recent;
        }
    }

    /// The peer may not answer because of the options: later SYNs have none of them, and none of
    /// them is understood any more.
    #[cold]
    pub(super) fn offer_nothing(&mut self) {
        let config = self.config_mut();
        config.timestamps = false;
        config.window_scaling = false;
        config.sack = false;
    }

    /// Takes over the contents of the peer's SYN or SYN-ACK: options, window, sequence number.
    pub(super) fn learn_syn(&mut self, syn: &Segment, now_ns: u64) {
        let config = self.config.clone();
        self.receiver.begin(sequence::first(syn.seq) + 1);
        self.options.timestamps = config.timestamps && syn.options & option::TIMESTAMPS != 0;
        self.options.sack = config.sack && syn.options & option::SACK_PERMITTED != 0;
        self.options.wscale = config.window_scaling && syn.wscale().is_some();
        if self.options.wscale {
            self.options.snd_wscale = syn.wscale().unwrap_or(0).min(14);
        } else {
            self.receiver.no_wscale();
        }
        if self.options.timestamps {
            self.receiver.set_ts_recent(syn.ts_val, now_ns);
        }
        self.agree_on_ecn(syn);
        self.options.predictable = self.options.timestamps && !self.options.accurate;
        let taken = syn.mss().unwrap_or(DEFAULT_MSS).min(config.mss);
        let options = if self.options.timestamps {
            TIMESTAMPS_LEN
        } else {
            0
        };
        self.receiver.round_up(taken.into());
        let options = options + self.reserved_for_option();
        self.mss = u32::from(taken).saturating_sub(options).max(1);
        self.burst = burst(self.mss, config.burst_segments);
        self.cc = Cc::new(&config.params, config.algorithm, self.mss);
        // Never scaled in a SYN (RFC 7323 2.2).
        self.snd_wnd = self.offered(syn, 0);
        self.max_wnd = self.snd_wnd;
        self.snd_wl1 = self.receiver.next - 1;
        self.send_buffer = self.send_buffer.min(
            config
                .send_buffer
                .max_bytes
                .max(config.send_buffer.initial_bytes),
        );
    }

    pub(super) fn segment_in_syn_sent(&mut self, now_ns: u64, segment: &Segment) -> Events {
        let acks = segment.has(flags::ACK);
        if acks && !self.acks_syn(segment) {
            return Events::EMPTY; // from an older connection; the demultiplexer may answer with RST
        }
        if segment.has(flags::RST) {
            return if acks {
                self.fail(Error::Refused)
            } else {
                Events::EMPTY
            };
        }
        if !segment.has(flags::SYN) {
            return Events::EMPTY;
        }
        self.learn_syn(segment, now_ns);
        if acks {
            self.receiver.ack_now = true;
            let events = self.establish(now_ns, segment);
            return match self.takes_data_of(segment) {
                true => events | self.data_of_syn_ack(now_ns, segment),
                false => events,
            };
        }
        // Simultaneous open: our SYN is sent again, as SYN-ACK.
        self.state = State::SynReceived;
        self.rare.simultaneous = true;
        self.flags.syn_pending = true;
        Events::EMPTY
    }

    /// FreeBSD takes data of a SYN-ACK. Linux takes it, or a FIN, only in answer to all data of a
    /// SYN (`tcp_rcv_fastopen_synack`), and else waits until it is sent again.
    fn takes_data_of(&self, segment: &Segment) -> bool {
        let answers = self.rare.syn_data && self.board.is_empty();
        let more = segment.payload > 0 || (answers && segment.has(flags::FIN));
        more && (self.config.freebsd || answers)
    }

    fn data_of_syn_ack(&mut self, now_ns: u64, segment: &Segment) -> Events {
        let data = Segment {
            seq: segment.seq.wrapping_add(1),
            flags: segment.flags & !flags::SYN,
            ..*segment
        };
        self.data(now_ns, &data, self.receiver.next)
    }

    pub(super) fn segment_in_syn_received(&mut self, now_ns: u64, segment: &Segment) -> Events {
        let seq = sequence::unwrap(segment.seq, self.receiver.next);
        let repeated_syn = segment.has(flags::SYN) && seq + 1 == self.receiver.next;
        let in_window = seq >= self.receiver.next && seq <= self.receiver.limit();
        if segment.has(flags::RST) {
            return self.reset_while_opening(now_ns, seq);
        }
        let acks = self.acks_syn(segment);
        if repeated_syn && !acks {
            self.flags.syn_pending = true; // our SYN-ACK was lost
            self.syn_comes_again(segment);
            return Events::EMPTY;
        }
        if !acks || !(in_window || repeated_syn) || !self.timestamp_fits(now_ns, segment, seq) {
            return Events::EMPTY;
        }
        let events = self.establish(now_ns, segment);
        if repeated_syn {
            // The other half of a simultaneous open, whose SYN has been acknowledged. Linux takes
            // it for a duplicate (seen on 6.18).
            match self.config.freebsd {
                true => self.receiver.ack_now = true,
                false => {
                    self.note_timestamp(now_ns, segment, seq);
                    self.note_duplicate(seq, seq + 1);
                }
            }
            return events;
        }
        events | self.segment_when_synchronized(now_ns, segment)
    }

    /// RFC 5961 3.2 before the handshake's end: as [`Endpoint::reset_or_syn`] does.
    fn reset_while_opening(&mut self, now_ns: u64, seq: u64) -> Events {
        let end = match self.config.freebsd && self.rare.simultaneous {
            true => self.receiver.next + self.receiver.free(),
            false => self.receiver.limit(),
        };
        let inside = seq >= self.receiver.next && seq < end;
        if seq == self.receiver.next || (inside && self.config.insecure_rst) {
            return self.fail(match self.rare.opened_fast {
                true => Error::Reset,
                false => Error::Refused,
            });
        }
        if inside {
            self.challenge(now_ns);
        }
        Events::EMPTY
    }

    /// Our SYN is acknowledged and the peer's is known.
    fn establish(&mut self, now_ns: u64, segment: &Segment) -> Events {
        self.snd_una += 1;
        self.settle_syn_data(segment);
        // Which of several SYNs is answered, timestamps alone can tell.
        let round_trip = if self.flags.syn_repeated {
            self.rtt_by_timestamp(now_ns, segment)
        } else {
            Some(now_ns.saturating_sub(self.rare.syn_sent_ns))
        };
        if let Some(round_trip) = round_trip {
            self.rtt.sample(round_trip, &self.config.rto);
        }
        self.flags.syn_pending = false;
        self.retries = 0;
        self.data_sent_ns = now_ns;
        self.persist_ns = now_ns;
        self.receiver.established(now_ns);
        if self.rare.opened_fast {
            self.receiver.open_window();
        }
        self.state = if self.flags.fin_queued {
            State::FinWait1
        } else {
            State::Established
        };
        if !segment.has(flags::SYN) {
            self.snd_wnd = self.offered(segment, self.options.snd_wscale);
            self.max_wnd = self.max_wnd.max(self.snd_wnd);
        }
        if self.options.accurate {
            self.accurate_opens(segment);
        }
        self.restart_timer(now_ns);
        Events::CONNECTED
    }

    /// The timestamp clock (RFC 7323 4.1): ticks of the stack's granularity from an offset of its
    /// own.
    #[inline]
    pub(super) fn ts_clock(&mut self, now_ns: u64) -> u32 {
        let tick_ns = self.config.rto.granularity_ns.max(1);
        // A division for each tick, not for each segment.
        if now_ns.wrapping_sub(self.tick_began_ns) >= tick_ns {
            let ticks = now_ns / tick_ns;
            self.ticks = low_half(ticks);
            self.tick_began_ns = ticks * tick_ns;
        }
        self.ticks.wrapping_add(self.receiver.ts_offset)
    }
}
