//! The receiving half by itself: what has come, what is offered, what is owed.

use std::mem::replace;

use super::{
    NEVER,
    counted::Memory,
    reassembly::{Range, Reassembly},
    sequence,
};
use crate::{Config, Segment, config::DelayedAck, segment::Block};

/// The assumed payload of segments before the first full one.
const FIRST_GUESS: u32 = 536;

/// State of the receiving half. Offsets of `sequence`.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// rcv_nxt.
    pub next: u64,
    /// Right edge of the window that the peer has been offered. Never moves left.
    pub edge: u64,
    /// The last acknowledgement number sent.
    pub acked: u64,
    /// The first byte of the stream that the application has not taken.
    pub(super) taken: u64,
    /// Where the FIN is; `NEVER` = not known.
    pub fin: u64,
    /// The FIN has been reached.
    pub finished: bool,
    /// Buffer size now, in bytes.
    buffer: u64,
    wscale: u8,
    /// Payload bytes of the peer's full segments.
    pub(super) mss: u32,
    /// The MSS that we announced.
    announced: u32,
    /// Packets count with the memory that they take. `edge` is not in use then.
    pub(super) memory: Option<Box<Memory>>,
    /// They do, or all that is free is offered at once ([`Config::freebsd`]).
    unusual: bool,
    /// ACKs may wait for the application ([`DelayedAck::until_read`]).
    until_read: bool,
    /// Boxed: only disorder touches it.
    queue: Box<Reassembly>,
    /// The queue holds something, or has a duplicate to report.
    pub disorder: bool,

    /// An ACK is due, with data or without.
    pub ack_now: bool,
    /// An ACK is due that must be a pure one: a duplicate, a challenge.
    pub ack_first: bool,
    /// When a delayed ACK leaves.
    pub delayed_ns: u64,
    /// Segments for which it waits.
    waiting: u8,
    /// So many more ACKs are not delayed.
    pub quick: u8,
    /// A small segment has come since the last ACK.
    pushed: bool,
    /// Data flows both ways by turns: ACKs travel with it.
    pub(super) interactive: bool,
    pub(super) data_ns: u64,

    /// ECE is set on ACKs.
    pub ece: bool,
    /// An ACK as it would have been before CE changed (RFC 8257 3.2): its number and ECE.
    pub changed: Option<(u64, bool)>,

    pub ts_recent: u32,
    pub ts_offset: u32,
    pub ts_recent_ns: u64,

    /// The last echo used for the receiver's RTT.
    echo: u32,
    /// Where the present measurement of the RTT by a window of data ends.
    rtt_until: u64,
    /// When [`Receiver::tune`] has something to do.
    tune_ns: u64,
    /// `None` when the buffer does not grow. Boxed: touched once per RTT.
    tuning: Option<Box<Tuning>>,
}

/// Segments' worth of data that a first round trip is taken to bring (`tcp_init_buffer_space`).
const FIRST_SEGMENTS: u64 = 10;

/// Dynamic right-sizing: how much the application takes in a round trip (`tcp_rcv_space_adjust` of
/// Linux 6.18).
#[derive(Clone, Debug, Default, PartialEq)]
struct Tuning {
    /// Largest buffer in bytes.
    most: u64,
    /// Round trip as the receiver sees it; 0 = unknown.
    rtt_ns: u64,
    /// When the present measurement of it by a window of data began ([`Receiver::rtt_until`]).
    rtt_since_ns: u64,
    /// Bytes taken in the best round trip so far.
    space: u64,
    /// Where and when the present round trip began.
    from: u64,
    since_ns: u64,
}

impl Tuning {
    fn boxed(most: u64) -> Box<Self> {
        Box::new(Self {
            most,
            ..Self::default()
        })
    }

    /// When the present round trip ends.
    fn due_ns(&self) -> u64 {
        match self.rtt_ns {
            0 => NEVER,
            rtt_ns => self.since_ns + rtt_ns,
        }
    }
}

impl Receiver {
    pub fn new(config: &Config, isn: u32) -> Self {
        let buffer = &config.receive_buffer;
        let max = buffer.max_bytes.max(buffer.initial_bytes);
        Self {
            next: 0,
            edge: 0,
            acked: 0,
            taken: 0,
            fin: NEVER,
            finished: false,
            buffer: config.receive_buffer.initial_bytes,
            wscale: Self::shift(config),
            mss: FIRST_GUESS.min(u32::from(config.mss)),
            announced: u32::from(config.mss),
            memory: Memory::boxed(config),
            unusual: config.freebsd || config.counted.is_some(),
            until_read: config.delayed_ack.until_read,
            queue: Box::default(),
            disorder: false,
            ack_now: false,
            ack_first: false,
            delayed_ns: NEVER,
            waiting: 0,
            quick: 0,
            pushed: false,
            interactive: false,
            data_ns: 0,
            ece: false,
            changed: None,
            ts_recent: 0,
            // Any number will do; one that wraps soon where sequence numbers do.
            ts_offset: isn,
            ts_recent_ns: 0,
            echo: 0,
            rtt_until: NEVER,
            tune_ns: NEVER,
            tuning: (max > config.receive_buffer.initial_bytes).then(|| Tuning::boxed(max)),
        }
    }

    /// The window scale that lets the largest buffer be offered.
    pub fn shift(config: &Config) -> u8 {
        let buffer = &config.receive_buffer;
        let max = buffer.max_bytes.max(buffer.initial_bytes);
        if let Some(rules) = config.counted {
            return Memory::shift(rules, max, config.window_scaling);
        }
        let mut shift = 0;
        while config.window_scaling && shift < 14 && max >> shift > 0xffff {
            shift += 1;
        }
        shift
    }

    /// The peer's SYN is known: its stream begins at `first`.
    pub fn begin(&mut self, first: u64) {
        self.next = first;
        self.acked = first;
        self.taken = first;
        self.edge = first + u64::from(self.window_of_syn());
        self.count_from_here();
    }

    /// Where memory is counted, no edge but that of [`Memory`] holds, which takes no short way.
    fn count_from_here(&mut self) {
        let window = self.window_of_syn().into();
        if let Some(memory) = &mut self.memory {
            memory.begin(self.next, window);
            self.edge = 0;
        }
    }

    /// The right edge of the window that the peer has been offered.
    pub fn limit(&self) -> u64 {
        let counted = self.memory.as_ref().map(|memory| memory.limit(self.next));
        counted.unwrap_or(self.edge)
    }

    /// The handshake is complete.
    pub fn established(&mut self, now_ns: u64) {
        if let Some(memory) = &mut self.memory {
            memory.established(self.announced.into(), self.wscale > 0);
        }
        let window = self.limit() - self.acked;
        let first = FIRST_SEGMENTS * u64::from(self.announced);
        if let Some(tuning) = &mut self.tuning {
            tuning.since_ns = now_ns;
            tuning.from = self.taken;
            tuning.space = window.min(first);
            self.rtt_until = 0;
        }
    }

    /// The window field of a SYN is not scaled.
    pub fn window_of_syn(&self) -> u16 {
        match &self.memory {
            Some(memory) => memory.first_window(self.announced.into()),
            None => self.buffer.min(0xffff) as u16,
        }
    }

    /// The MSS that we announced.
    pub fn announced(&self) -> u32 {
        self.announced
    }

    /// Data came with the peer's SYN: the window begins behind it, as the SYN-ACK offers it.
    pub fn take_syn_data(&mut self, bytes: u64) {
        self.next += bytes;
        self.edge = self.next + u64::from(self.window_of_syn());
        self.count_from_here();
    }

    /// The handshake's end finds the window as large as it can be, without an ACK for that.
    pub fn open_window(&mut self) {
        if self.memory.is_some() {
            return;
        }
        let possible = if self.unusual {
            self.all_free()
        } else {
            self.possible()
        };
        self.edge = self.edge.max(self.next + possible);
    }

    /// The shift that our SYN announces.
    pub fn wscale(&self) -> u8 {
        self.wscale
    }

    /// Payload bytes of the peer's full segments, as far as is known.
    pub fn mss(&self) -> u32 {
        self.mss
    }

    /// Size of the buffer in bytes.
    pub fn buffer(&self) -> u64 {
        self.memory
            .as_ref()
            .map_or(self.buffer, |memory| memory.buffer())
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
        self.waiting = 0;
        self.pushed = false;
        self.quick = self.quick.saturating_sub(1);
    }

    /// Data of ours follows data of the peer's closely.
    pub fn answered(&mut self, now_ns: u64, within_ns: u64) {
        self.interactive |= self.data_ns != 0 && now_ns.saturating_sub(self.data_ns) < within_ns;
    }

    pub fn readable(&self) -> u64 {
        self.next - u64::from(self.finished) - self.taken
    }

    /// The application takes `bytes`, which may make the buffer grow.
    pub fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        if self.data_ns >= self.tune_ns {
            self.tune(self.data_ns);
        }
    }

    /// Free space in the buffer, in bytes.
    pub fn free(&self) -> u64 {
        self.buffer.saturating_sub(self.readable())
    }

    /// The buffer becomes whole segments before anything but a SYN has come.
    pub fn round_up(&mut self, mss: u32) {
        if self.unusual && self.memory.is_none() {
            self.buffer = self.buffer.next_multiple_of(mss.max(1).into());
            self.edge = self.next + u64::from(self.window_of_syn());
        }
    }

    /// The window that free space makes possible, in whole units of the scale.
    #[inline]
    fn possible(&self) -> u64 {
        (self.free() >> self.wscale).min(0xffff) << self.wscale
    }

    /// The right edge moves when it gains this much (RFC 9293 3.8.6.2.2).
    fn step(&self) -> u64 {
        // With scaling Linux offers what is free (`__tcp_select_window`), and by that it knows
        // whether the window can move on.
        if self.until_read && self.wscale > 0 {
            return 1;
        }
        u64::from(self.announced).min(self.buffer / 2).max(1)
    }

    /// The buffer may grow.
    pub fn tunes(&self) -> bool {
        self.tuning.is_some()
    }

    /// The window field; what it offers is remembered.
    #[inline]
    pub fn offer(&mut self) -> u16 {
        if self.unusual {
            return self.offer_unusual();
        }
        let target = self.next + self.possible();
        if target >= self.edge + self.step() {
            self.edge = target;
        }
        self.offer_at(self.next)
    }

    /// FreeBSD's: all that is free, whatever the edge gains.
    fn offer_unusual(&mut self) -> u16 {
        if self.memory.is_some() {
            return self.offer_counted();
        }
        self.edge = self.edge.max(self.next + self.all_free());
        self.offer_at(self.next)
    }

    fn all_free(&self) -> u64 {
        self.free().min(0xffff << self.wscale)
    }

    /// The window field beside acknowledgement number `ack` with the right edge where it is, or
    /// less than a unit further.
    #[inline]
    pub fn offer_at(&mut self, ack: u64) -> u16 {
        let unit = 1 << self.wscale;
        let units = ((self.edge - ack + unit - 1) >> self.wscale).min(0xffff);
        self.edge = self.edge.max(ack + (units << self.wscale));
        units as u16
    }

    /// The window field beside an older acknowledgement number.
    pub fn window_beside(&mut self, ack: u64) -> u16 {
        match &self.memory {
            Some(memory) => (memory.open(ack) >> self.wscale).min(0xffff) as u16,
            None => self.offer_at(ack),
        }
    }

    /// The application has taken data: an ACK of its own when the window doubles, as Linux does.
    pub fn update_window_if_worth_it(&mut self) {
        if self.unusual {
            return self.update_unusual_window();
        }
        let now = self.edge - self.next;
        let possible = self.possible();
        if 2 * now <= self.buffer && possible >= (2 * now).max(now + self.step()) {
            self.ack_now = true;
        }
    }

    fn update_unusual_window(&mut self) {
        if self.memory.is_some() {
            return self.update_counted_window();
        }
        let now = self.edge - self.next;
        self.ack_now |= 2 * now <= self.buffer && self.all_free() >= (2 * now).max(now + 1);
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
        self.disorder = !self.queue.is_empty();
    }

    /// Bytes that have come before: to be reported as D-SACK.
    pub fn note_duplicate(&mut self, range: Range) {
        self.queue.duplicate = Some(range);
        self.disorder = true;
    }

    /// A FIN takes the D-SACK of what came with it along, as in Linux.
    pub fn forget_duplicate(&mut self) {
        self.queue.duplicate = None;
        self.disorder = !self.queue.is_empty();
    }

    /// Data that does not follow what is here; what of it came before is reported, if the peer
    /// understands. It is dropped where `most` segments wait.
    pub fn queue(&mut self, new: Range, most: u32, sack: bool) {
        self.ack_first = true;
        if self.queue.segments() >= most {
            return;
        }
        if sack {
            let known = self.queue.known(new);
            self.queue.duplicate = known.or(self.queue.duplicate);
        }
        self.queue.insert(new);
        self.disorder = true;
    }

    /// `new` has come in order while others wait behind it: rcv_nxt moves past what it joins.
    pub fn join(&mut self, new: Range, sack: bool) {
        self.next = new.end;
        if self.queue.is_empty() {
            return;
        }
        let known = self.queue.known(new);
        if let Some(known) = known.filter(|_| sack) {
            self.queue.duplicate.get_or_insert(known);
            self.ack_first = true;
        }
        self.next = self.queue.advance(new.end);
        self.ack_now = true; // a hole is filled, in part or whole (RFC 5681 4.2)
        self.disorder = self.queue.duplicate.is_some() || !self.queue.is_empty();
    }

    /// Size of the peer's full segments. A burst says less: its parts are as large as can be.
    pub fn measure(&mut self, payload: u32, options: u32) {
        if payload > self.mss {
            self.mss = payload.min(self.announced - options.min(self.announced - 1));
        }
        self.pushed |= payload < self.mss;
    }

    /// Data has come in order: acknowledge now or later.
    #[inline]
    pub fn schedule_ack(&mut self, now_ns: u64, config: &Config, rto_ns: u64) {
        if self.data_ns == 0 || now_ns.saturating_sub(self.data_ns) > rto_ns {
            self.quick = config.delayed_ack.quick;
            self.interactive = false;
        }
        self.data_ns = now_ns.max(1);
        let held = u64::from(config.delayed_ack.segments.saturating_sub(1));
        let many = self.next - self.acked > held * u64::from(self.mss)
            || (config.delayed_ack.any_size && u64::from(self.waiting) >= held);
        if (self.quick > 0 && !self.interactive) || (many && (!self.until_read || self.can_move()))
        {
            self.ack_now = true;
            return;
        }
        self.waiting = self.waiting.saturating_add(1);
        if self.delayed_ns == NEVER {
            self.delayed_ns = now_ns + config.delayed_ack.timeout_ns;
        }
    }

    /// A FIN is acknowledged like data of an end that answers; at once if nothing came before it,
    /// as in Linux. `data`: some came with it.
    pub fn schedule_ack_of_fin(&mut self, now_ns: u64, config: &Config, data: bool) {
        let held = u64::from(config.delayed_ack.segments.saturating_sub(1));
        let many = self.next - self.acked > held * u64::from(self.mss);
        self.ack_now |= many || (self.data_ns == 0 && !data);
        if !self.ack_now && self.delayed_ns == NEVER {
            self.delayed_ns = now_ns + config.delayed_ack.timeout_ns;
        }
        self.interactive = true;
    }

    /// The window behind what has come would be no smaller than the one that was offered last.
    fn can_move(&self) -> bool {
        let unit = 1 << self.wscale;
        self.free().next_multiple_of(unit) >= self.edge - self.acked
    }

    /// The application has taken data for which an ACK may wait.
    pub fn acknowledge_what_was_read(&mut self, config: &DelayedAck) {
        if !self.until_read {
            return;
        }
        let held = u64::from(config.segments.saturating_sub(1)) * u64::from(self.mss);
        let small = self.pushed && !self.interactive && self.readable() == 0;
        self.ack_now |= self.delayed_ns != NEVER && (small || self.next - self.acked > held);
    }

    /// Whether the echo of this segment says anything new of the receiver's RTT.
    pub fn is_news(&self, ts_ecr: u32) -> bool {
        ts_ecr != self.echo
    }

    /// The receiver's RTT by a timestamp, whose echo is `age_ns` old; data before `start` have come
    /// earlier. An echo that is less than a tick old says nothing (`tcp_rcv_rtt_measure_ts`).
    pub fn measure_echo(&mut self, ts_ecr: u32, age_ns: u64, start: u64) {
        self.echo = ts_ecr;
        let all_taken = self.taken == start;
        let Some(tuning) = self.tuning.as_mut().filter(|_| age_ns > 0) else {
            return;
        };
        if tuning.rtt_ns == 0 || age_ns < tuning.rtt_ns {
            tuning.rtt_ns = age_ns;
        } else if all_taken {
            tuning.rtt_ns += age_ns / 8 - tuning.rtt_ns / 8;
        }
        self.tune_ns = tuning.due_ns();
    }

    /// The receiver's RTT by how long a window of data takes, of which the shortest counts
    /// (`tcp_rcv_rtt_measure`).
    #[inline(always)]
    pub fn measure_window(&mut self, now_ns: u64) {
        if self.next >= self.rtt_until {
            self.window_measured(now_ns);
        }
    }

    #[cold]
    fn window_measured(&mut self, now_ns: u64) {
        let window = self.limit() - self.acked;
        let Some(tuning) = &mut self.tuning else {
            return;
        };
        let took_ns = (now_ns - tuning.rtt_since_ns).max(1);
        if self.rtt_until != 0 && (tuning.rtt_ns == 0 || took_ns < tuning.rtt_ns) {
            tuning.rtt_ns = took_ns;
        }
        self.rtt_until = self.next + window.max(1);
        tuning.rtt_since_ns = now_ns;
        self.tune_ns = tuning.due_ns();
    }

    /// Once per RTT: a buffer for twice what the application took, as it comes a round trip late,
    /// and room to double again (`tcp_rcvbuf_grow`).
    #[cold]
    fn tune(&mut self, now_ns: u64) {
        let unread = self.readable();
        let beyond = self.queue.end().saturating_sub(self.next);
        let Some(tuning) = &mut self.tuning else {
            return;
        };
        let copied = (self.taken - tuning.from).saturating_sub(unread);
        if copied > tuning.space {
            let before = replace(&mut tuning.space, copied).max(1);
            match &mut self.memory {
                Some(memory) => memory.grow_buffer(copied, beyond),
                None => {
                    let growth = 2 * copied * (copied - before) / before;
                    let wanted = 2 * copied + 2 * growth + beyond;
                    self.buffer = self.buffer.max(wanted.min(tuning.most));
                }
            }
        }
        tuning.from = self.taken;
        tuning.since_ns = now_ns;
        self.tune_ns = tuning.due_ns();
    }
}
