//! The receiving half: sequence checks, reassembly, the window, and when to acknowledge.

use super::{Endpoint, Error, Events, NEVER, Range, Reassembly, State, Timer, sequence};
use crate::{
    Config, Segment,
    segment::{Block, ecn, flags, option},
};

/// Challenge ACKs and answers to what lies outside the window: no more often (RFC 5961 section 7).
const CHALLENGE_NS: u64 = 500_000_000;
/// An old timestamp is not believed for longer (RFC 7323 5.5): 24 days of millisecond ticks.
const TS_TICKS: u64 = 1 << 31;
/// What segments are thought to carry before the first full one.
const FIRST_GUESS: u32 = 536;

/// State of the receiving half. Offsets of `sequence`.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// rcv_nxt.
    pub next: u64,
    /// Right edge of the window that the peer has been offered. Never moves left.
    pub edge: u64,
    /// The last acknowledgement number sent.
    pub acked: u64,
    /// The first byte of the stream that the application has not taken.
    taken: u64,
    /// Where the FIN is; `NEVER` = not known.
    fin: u64,
    /// The FIN has been reached.
    pub finished: bool,
    /// Buffer size now, and its largest, in bytes.
    buffer: u64,
    buffer_max: u64,
    wscale: u8,
    /// Payload bytes of the peer's full segments.
    mss: u32,
    /// The MSS that we announced.
    announced: u32,
    queue: Box<Reassembly>,

    /// An ACK is due, with data or without.
    pub ack_now: bool,
    /// An ACK is due that must be a pure one: a duplicate, a challenge.
    pub ack_first: bool,
    /// When a delayed ACK leaves.
    pub delayed_ns: u64,
    /// So many more ACKs are not delayed.
    quick: u8,
    /// Data flows both ways by turns: ACKs travel with it.
    interactive: bool,
    data_ns: u64,
    challenge_ns: u64,

    /// ECE is set on ACKs.
    pub ece: bool,
    /// An ACK as it would have been before CE changed (RFC 8257 3.2): its number and ECE.
    pub changed: Option<(u64, bool)>,

    pub ts_recent: u32,
    pub ts_offset: u32,
    ts_recent_ns: u64,

    /// `None` when the buffer does not grow.
    tuning: Option<Box<Tuning>>,
}

/// Dynamic right-sizing: how much the application takes in a round trip.
#[derive(Clone, Debug, Default)]
struct Tuning {
    /// Round trip as the receiver sees it; 0 = unknown.
    rtt_ns: u64,
    /// The present measurement of it without timestamps: until this offset, since then.
    rtt_until: u64,
    rtt_since_ns: u64,
    /// The last echo used for it.
    ts_ecr: u32,
    /// Bytes taken in the best round trip so far.
    space: u64,
    /// Where and when the present round trip began.
    from: u64,
    since_ns: u64,
}

impl Receiver {
    pub fn new(config: &Config, isn: u32) -> Self {
        let max = config
            .receive_buffer
            .max_bytes
            .max(config.receive_buffer.initial_bytes);
        let mut wscale = 0;
        while config.window_scaling && wscale < 14 && max >> wscale > 0xffff {
            wscale += 1;
        }
        Self {
            next: 0,
            edge: 0,
            acked: 0,
            taken: 0,
            fin: NEVER,
            finished: false,
            buffer: config.receive_buffer.initial_bytes,
            buffer_max: max,
            wscale,
            mss: FIRST_GUESS.min(u32::from(config.mss)),
            announced: u32::from(config.mss),
            queue: Box::default(),
            ack_now: false,
            ack_first: false,
            delayed_ns: NEVER,
            quick: 0,
            interactive: false,
            data_ns: 0,
            challenge_ns: 0,
            ece: false,
            changed: None,
            ts_recent: 0,
            // Any number will do; one that wraps soon where sequence numbers do.
            ts_offset: isn,
            ts_recent_ns: 0,
            tuning: (max > config.receive_buffer.initial_bytes).then(Box::default),
        }
    }

    /// The peer's SYN is known: its stream begins at `first`.
    pub fn begin(&mut self, first: u64) {
        self.next = first;
        self.acked = first;
        self.taken = first;
        self.edge = first + u64::from(self.window_of_syn());
    }

    /// The handshake is complete.
    pub fn established(&mut self, now_ns: u64, srtt_ns: u64) {
        if let Some(tuning) = &mut self.tuning {
            tuning.rtt_ns = srtt_ns;
            tuning.since_ns = now_ns;
            tuning.from = self.taken;
            tuning.space = self.buffer / 2;
        }
    }

    /// The window field of a SYN is not scaled.
    pub fn window_of_syn(&self) -> u16 {
        self.buffer.min(0xffff) as u16
    }

    /// The shift that our SYN announces.
    pub fn wscale(&self) -> u8 {
        self.wscale
    }

    /// The peer does not scale.
    pub fn no_wscale(&mut self) {
        self.wscale = 0;
    }

    pub fn set_ts_recent(&mut self, ts_val: u32, now_ns: u64) {
        self.ts_recent = ts_val;
        self.ts_recent_ns = now_ns;
    }

    /// The stream is over: nothing is owed to the peer any more.
    pub fn quiet(&mut self) {
        self.delayed_ns = NEVER;
        self.ack_now = false;
        self.ack_first = false;
        self.changed = None;
    }

    /// An ACK of everything has left.
    pub fn told(&mut self) {
        self.acked = self.next;
        self.ack_now = false;
        self.ack_first = false;
        self.delayed_ns = NEVER;
        self.quick = self.quick.saturating_sub(1);
    }

    /// Data of ours follows data of the peer's closely.
    pub fn answered(&mut self, now_ns: u64, within_ns: u64) {
        self.interactive |= self.data_ns != 0 && now_ns - self.data_ns < within_ns;
    }

    pub fn readable(&self) -> u64 {
        self.next - u64::from(self.finished) - self.taken
    }

    pub fn take(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// The window that free space makes possible, in whole units of the scale.
    fn possible(&self) -> u64 {
        let free = self.buffer.saturating_sub(self.readable());
        (free >> self.wscale).min(0xffff) << self.wscale
    }

    /// The right edge moves when it gains this much (RFC 9293 3.8.6.2.2).
    fn step(&self) -> u64 {
        u64::from(self.announced).min(self.buffer / 2).max(1)
    }

    /// The window field; what it offers is remembered.
    pub fn offer(&mut self) -> u16 {
        let target = self.next + self.possible();
        if target >= self.edge + self.step() {
            self.edge = target;
        }
        self.offer_at(self.next)
    }

    /// The window field beside acknowledgement number `ack` with the right edge where it is, or less
    /// than a unit further.
    fn offer_at(&mut self, ack: u64) -> u16 {
        let units = (self.edge - ack).div_ceil(1 << self.wscale).min(0xffff);
        self.edge = self.edge.max(ack + (units << self.wscale));
        units as u16
    }

    /// The application has taken data: an ACK of its own when the window doubles, as Linux does.
    pub fn update_window_if_worth_it(&mut self) {
        let now = self.edge - self.next;
        let possible = self.possible();
        if 2 * now <= self.buffer && possible >= (2 * now).max(now + self.step()) {
            self.ack_now = true;
        }
    }

    /// SACK blocks for this ACK: the duplicate first, then the most recent.
    pub fn add_sack(&mut self, segment: &mut Segment) {
        let block = |range: &Range| Block {
            left: sequence::wire(range.start),
            right: sequence::wire(range.end),
        };
        if let Some(duplicate) = self.queue.duplicate.take() {
            segment.push_sack(block(&duplicate));
        }
        for range in self.queue.recent() {
            segment.push_sack(block(range));
        }
    }

    /// Whether [`Receiver::add_sack`] has anything to say.
    pub fn has_sack(&self) -> bool {
        self.queue.duplicate.is_some() || !self.queue.is_empty()
    }

    /// Size of the peer's full segments. A burst says less: its parts are as large as can be.
    fn measure(&mut self, payload: u32, options: u32) {
        if payload > self.mss {
            self.mss = payload.min(self.announced - options.min(self.announced - 1));
        }
    }

    /// Data has come in order: acknowledge now or later.
    fn schedule_ack(&mut self, now_ns: u64, config: &Config, rto_ns: u64) {
        if self.data_ns == 0 || now_ns - self.data_ns > rto_ns {
            self.quick = config.delayed_ack.quick;
            self.interactive = false;
        }
        self.data_ns = now_ns.max(1);
        let held = u64::from(config.delayed_ack.segments.saturating_sub(1));
        if (self.quick > 0 && !self.interactive)
            || self.next - self.acked > held * u64::from(self.mss)
        {
            self.ack_now = true;
        } else if self.delayed_ns == NEVER {
            self.delayed_ns = now_ns + config.delayed_ack.timeout_ns;
        }
    }

    /// The receiver's RTT: by timestamps, else by how long a window's worth of data takes.
    fn measure_rtt(&mut self, now_ns: u64, echo: Option<(u32, u64)>) {
        let Some(tuning) = &mut self.tuning else {
            return;
        };
        if let Some((ts_ecr, age_ns)) = echo {
            if ts_ecr != tuning.ts_ecr {
                tuning.ts_ecr = ts_ecr;
                tuning.rtt_ns = match tuning.rtt_ns {
                    0 => age_ns,
                    rtt => rtt - rtt / 8 + age_ns / 8,
                };
            }
        } else if self.next >= tuning.rtt_until {
            let took = now_ns - tuning.rtt_since_ns;
            if tuning.rtt_until != 0 && (tuning.rtt_ns == 0 || took < tuning.rtt_ns) {
                tuning.rtt_ns = took;
            }
            tuning.rtt_until = self.edge;
            tuning.rtt_since_ns = now_ns;
        }
    }

    /// Once per RTT: a buffer for twice what the application took, and room to double again.
    fn tune(&mut self, now_ns: u64) {
        let Some(tuning) = &mut self.tuning else {
            return;
        };
        if tuning.rtt_ns == 0 || now_ns - tuning.since_ns < tuning.rtt_ns {
            return;
        }
        let copied = self.taken - tuning.from;
        if copied > tuning.space {
            let growth = (copied - tuning.space) * 2 * copied / tuning.space.max(1);
            let wanted = 2 * copied + 16 * u64::from(self.announced) + growth;
            self.buffer = self.buffer.max(wanted.min(self.buffer_max));
            tuning.space = copied;
        }
        tuning.from = self.taken;
        tuning.since_ns = now_ns;
    }
}

impl Endpoint {
    /// PAWS (RFC 7323 section 5). An old segment with data is acknowledged.
    pub(super) fn timestamp_fits(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> bool {
        if !self.options.timestamps
            || segment.options & option::TIMESTAMPS == 0
            || segment.has(flags::RST)
            || segment.ts_val.wrapping_sub(self.receiver.ts_recent) as i32 >= 0
        {
            return true;
        }
        let limit = TS_TICKS * self.config.rto.granularity_ns.max(1);
        if now_ns - self.receiver.ts_recent_ns > limit {
            return true;
        }
        if segment.length() > 0 {
            self.note_duplicate(seq, seq + u64::from(segment.length()));
        }
        false
    }

    /// TS.Recent follows the segment that the next ACK answers (RFC 7323 4.3).
    pub(super) fn note_timestamp(&mut self, now_ns: u64, segment: &Segment, seq: u64) {
        if self.options.timestamps
            && segment.options & option::TIMESTAMPS != 0
            && seq <= self.receiver.acked
            && segment.ts_val.wrapping_sub(self.receiver.ts_recent) as i32 >= 0
        {
            self.receiver.set_ts_recent(segment.ts_val, now_ns);
        }
    }

    /// RFC 9293 3.4 with Linux's latitude: an ACK may lie at the right edge, or behind rcv_nxt as
    /// long as no ACK of ours has passed it.
    pub(super) fn sequence_fits(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> bool {
        let length = u64::from(segment.length());
        let fits = seq + length >= self.receiver.acked && seq <= self.receiver.edge;
        if fits {
            return true;
        }
        if segment.has(flags::RST) {
            return false;
        }
        if segment.has(flags::SYN) {
            self.challenge(now_ns);
        } else if length > 0 {
            self.note_duplicate(seq, seq + length);
            self.restart_time_wait(now_ns);
        } else if seq + 1 == self.receiver.next {
            self.receiver.ack_first = true; // a window probe, or a keepalive
        } else {
            self.challenge(now_ns);
        }
        false
    }

    /// An ACK that says what is expected, not too often (RFC 5961).
    pub(super) fn challenge(&mut self, now_ns: u64) {
        if now_ns >= self.receiver.challenge_ns {
            self.receiver.challenge_ns = now_ns + CHALLENGE_NS;
            self.receiver.ack_first = true;
        }
    }

    /// RFC 5961 sections 3 and 4: only an RST that is exactly in order resets, a SYN never does.
    pub(super) fn reset_or_syn(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> Events {
        if !segment.has(flags::RST) || seq != self.receiver.next {
            if seq >= self.receiver.next || segment.has(flags::SYN) {
                self.challenge(now_ns);
            }
            return Events::EMPTY;
        }
        match self.state {
            State::Closing | State::LastAck | State::TimeWait => {
                self.finish();
                self.closed()
            }
            _ => self.fail(Error::Reset),
        }
    }

    /// `start..end` has arrived before: the peer is told at once, with D-SACK if it understands.
    fn note_duplicate(&mut self, start: u64, end: u64) {
        self.receiver.ack_first = true;
        self.receiver.quick = self.config.delayed_ack.quick;
        if self.options.sack && end <= self.receiver.next && end > start {
            self.receiver.queue.duplicate = Some(Range { start, end });
        }
    }

    /// The peer sends its FIN again: our ACK was lost (RFC 9293 3.10.7.4).
    fn restart_time_wait(&mut self, now_ns: u64) {
        if self.state == State::TimeWait {
            self.set_timer(Timer::TimeWait, now_ns + self.config.time_wait_ns);
        }
    }

    /// Data or FIN, acceptable as far as the window goes.
    pub(super) fn data(&mut self, now_ns: u64, segment: &Segment, seq: u64) -> Events {
        let end = seq + u64::from(segment.length());
        if end <= self.receiver.next {
            self.note_congestion(segment);
            self.note_duplicate(seq, end);
            self.restart_time_wait(now_ns);
            return Events::EMPTY;
        }
        let within = end.min(self.receiver.edge);
        if !self.may_receive() || within <= self.receiver.next.max(seq) {
            self.receiver.ack_first = true; // beyond a closed window, or beyond the FIN
            return Events::EMPTY;
        }
        self.note_congestion(segment);
        if segment.has(flags::FIN) && within == end {
            self.receiver.fin = end - 1;
        }
        self.receiver
            .measure(u32::from(segment.payload), self.options_len());
        if seq > self.receiver.next {
            self.out_of_order(seq, within);
            return Events::EMPTY;
        }
        if seq < self.receiver.next {
            let known = self.receiver.next;
            self.note_duplicate(seq, known);
        }
        self.in_order(now_ns, segment, within)
    }

    /// Bytes of options in every segment.
    fn options_len(&self) -> u32 {
        if self.options.timestamps { 12 } else { 0 }
    }

    fn out_of_order(&mut self, start: u64, end: u64) {
        let receiver = &mut self.receiver;
        receiver.ack_first = true;
        let new = Range { start, end };
        if self.options.sack && receiver.queue.covering(new).is_some() {
            receiver.queue.duplicate = Some(new);
        }
        receiver.queue.insert(new);
    }

    fn in_order(&mut self, now_ns: u64, segment: &Segment, end: u64) -> Events {
        let receiver = &mut self.receiver;
        let before = receiver.next;
        receiver.next = end;
        if !receiver.queue.is_empty() {
            receiver.next = receiver.queue.advance(end);
            receiver.ack_now = true; // a hole is filled, in part or whole (RFC 5681 4.2)
        }
        let finished = receiver.next > receiver.fin;
        self.stats.received_bytes += receiver.next - before - u64::from(finished);
        if receiver.tuning.is_some() {
            let echo = self.echo_age(now_ns, segment);
            self.receiver.measure_rtt(now_ns, echo);
            self.receiver.tune(now_ns);
        }
        let rto_ns = self.rtt.rto(&self.config.rto);
        self.receiver.schedule_ack(now_ns, &self.config, rto_ns);
        if finished {
            return self.fin_reached(now_ns) | Events::READABLE;
        }
        Events::READABLE
    }

    /// How long ago what the segment echoes was sent, with the echo; at least a tick.
    fn echo_age(&self, now_ns: u64, segment: &Segment) -> Option<(u32, u64)> {
        if !self.options.timestamps || segment.options & option::TIMESTAMPS == 0 {
            return None;
        }
        let ticks = self.ts_clock(now_ns).wrapping_sub(segment.ts_ecr) as i32;
        let tick_ns = self.config.rto.granularity_ns.max(1);
        (ticks >= 0).then(|| (segment.ts_ecr, u64::from(ticks.max(1) as u32) * tick_ns))
    }

    /// RTT by timestamps, for where none was measured otherwise.
    pub(super) fn rtt_by_timestamp(&self, now_ns: u64, segment: &Segment) -> Option<u64> {
        self.echo_age(now_ns, segment).map(|(_, age_ns)| age_ns)
    }

    fn fin_reached(&mut self, now_ns: u64) -> Events {
        self.receiver.finished = true;
        self.receiver.ack_now = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => return self.enter_time_wait(now_ns),
            _ => (),
        }
        Events::EMPTY
    }

    /// CE and CWR of arriving data (RFC 3168 6.1.3, RFC 8257 3.2).
    fn note_congestion(&mut self, segment: &Segment) {
        let marked = segment.ecn == ecn::CE;
        self.stats.ce_received += u64::from(marked && segment.payload > 0);
        if !self.options.ecn || segment.payload == 0 {
            return;
        }
        let receiver = &mut self.receiver;
        if self.config.dctcp_receiver {
            if marked != receiver.ece {
                // What was held back is acknowledged as it was.
                if receiver.delayed_ns != NEVER || receiver.ack_now {
                    receiver.changed = Some((receiver.next, receiver.ece));
                }
                receiver.ece = marked;
                receiver.ack_now = true;
            }
            return;
        }
        if segment.has(flags::CWR) {
            receiver.ece = false;
            receiver.ack_now = true; // the sender's window may be one segment
        }
        if marked && !receiver.ece {
            receiver.ece = true;
            receiver.quick = receiver.quick.max(2);
        }
    }

    /// The ACK that was held back when CE changed.
    pub(super) fn send_changed_ack(&mut self, now_ns: u64, ack: u64, ece: bool) -> Segment {
        let window = self.receiver.offer_at(ack);
        let mut segment = self.bare(now_ns, self.snd_nxt);
        segment.ack = sequence::wire(ack);
        segment.window = window;
        if ece {
            segment.flags |= flags::ECE;
        }
        self.receiver.changed = None;
        self.receiver.acked = self.receiver.acked.max(ack);
        segment
    }

    /// A header with what every segment has, but neither acknowledgement nor window.
    pub(super) fn bare(&self, now_ns: u64, seq: u64) -> Segment {
        let mut segment = Segment::new(sequence::wire(seq), 0, flags::ACK);
        if self.options.timestamps {
            segment.options = option::TIMESTAMPS;
            segment.ts_val = self.ts_clock(now_ns);
            segment.ts_ecr = self.receiver.ts_recent;
        }
        segment
    }

    /// A header that acknowledges all that has come.
    pub(super) fn header(&mut self, now_ns: u64, seq: u64) -> Segment {
        let mut segment = self.bare(now_ns, seq);
        segment.ack = sequence::wire(self.receiver.next);
        segment.window = self.receiver.offer();
        if self.receiver.ece && self.options.ecn {
            segment.flags |= flags::ECE;
        }
        self.receiver.told();
        segment
    }
}
