//! One end of one connection.

mod accecn;
mod acknowledge;
mod counted;
mod experience;
mod fast_open;
mod freebsd;
mod handshake;
mod hystart;
mod info;
mod prediction;
mod rack;
mod reassembly;
mod receive;
mod receiver;
mod records;
mod recovery;
mod reduction;
mod rtt;
mod scoreboard;
mod send;
mod sequence;
mod small_queues;
mod timers;

use std::{ops::BitOr, sync::Arc};

use sluicegate_core::cc::Cc;

use crate::{Config, Segment, segment::flags};
use rack::Rack;
use receiver::Receiver;
use records::Rare;
use reduction::Reduction;
use rtt::Estimator;
use scoreboard::Scoreboard;
use timers::Timer;

pub use accecn::{AccurateInfo, OptionSeen, failure};
pub use counted::Drops;
pub use info::{Congestion, Info, Progress};
pub use prediction::Taker;

/// No time: what [`Endpoint::deadline_ns`] says when nothing is waited for.
const NEVER: u64 = u64::MAX;

/// [`Endpoint::peak`]: no further segment had room in the window.
const FULL: u32 = u32::MAX;

/// The events that an input led to: a set of the constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u8);

impl Events {
    /// Nothing that the application would notice.
    pub const EMPTY: Self = Self(0);
    /// The handshake is complete.
    pub const CONNECTED: Self = Self(1);
    /// New bytes in order, or the peer's FIN.
    pub const READABLE: Self = Self(1 << 1);
    /// The send buffer was full and has space again.
    pub const WRITABLE: Self = Self(1 << 2);
    /// Both directions have ended in good order. Comes once, on the way into TIME_WAIT or CLOSED;
    /// the endpoint goes on answering the peer until [`State::Closed`].
    pub const CLOSED: Self = Self(1 << 3);
    /// The connection has failed: [`Endpoint::error`].
    pub const FAILED: Self = Self(1 << 4);

    /// True if all of `events` are in the set.
    pub fn contains(self, events: Self) -> bool {
        self.0 & events.0 == events.0
    }

    /// The set less `events`.
    #[must_use]
    pub fn without(self, events: Self) -> Self {
        Self(self.0 & !events.0)
    }

    /// True for [`Events::EMPTY`].
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// States of RFC 9293 3.3.2. LISTEN is missing: a listener is no endpoint yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of RFC 9293")]
pub enum State {
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

/// Why a connection has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An RST in answer to the SYN.
    Refused,
    /// An RST later.
    Reset,
    /// Too many retransmissions without an answer.
    TimedOut,
    /// The network said so: [`Endpoint::cut_off`].
    Unreachable,
}

/// Counters since the endpoint was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Segments of all kinds that left.
    pub segments_sent: u64,
    /// Segments of all kinds that arrived.
    pub segments_received: u64,
    /// Of those sent, the ones with data or FIN that had left before.
    pub retransmits: u64,
    /// Bytes in them.
    pub retransmitted_bytes: u64,
    /// Expired retransmission timers.
    pub timeouts: u64,
    /// Entries into fast recovery.
    pub fast_recoveries: u64,
    /// Reductions taken back because nothing had been lost.
    pub undone: u64,
    /// Probes of RFC 8985 section 7.
    pub tail_loss_probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// ACKs with a D-SACK block (RFC 2883) that arrived.
    pub dsack_received: u64,
    /// Duplicate ACKs that arrived.
    pub duplicate_acks: u64,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Bytes that have arrived in order.
    pub received_bytes: u64,
    /// Segments with data that met CE.
    pub ce_received: u64,
    /// ACKs of new data with ECE.
    pub ece_received: u64,
}

/// How the sender answers to losses now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None is known.
    Open,
    /// Fast recovery, until snd_una reaches `recover`.
    Recovery,
    /// After a timeout, until snd_una reaches `recover`.
    Loss,
}

/// One end of one connection. See [`crate`] for how it is driven.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    config: Arc<Config>,
    state: State,
    phase: Phase,
    error: Option<Error>,
    /// Payload bytes of a full segment.
    mss: u32,
    /// Of a segment as large as offload allows.
    burst: u32,
    options: Options,

    // The sending half. Offsets of `sequence`. Neighbours would be loaded as one word of 16 bytes,
    // which stalls the processor where one of them has just been stored.
    snd_una: u64,
    /// One past the last byte that the application has written.
    snd_end: u64,
    snd_nxt: u64,
    /// The peer's window, its largest, and which segment it came from (RFC 9293 3.4).
    snd_wnd: u64,
    max_wnd: u64,
    snd_wl1: u64,
    /// End of the last segment that was smaller than full (Minshall).
    small_end: u64,
    send_buffer: u64,
    /// When data left last, for idleness and runts.
    data_sent_ns: u64,
    pace_next_ns: u64,
    /// The host's memory that departed data occupies until the adapter has sent it.
    below_bytes: u32,
    /// Of the super-packet that is leaving, what has not yet left.
    super_packet_bytes: u32,
    cc: Cc,
    rtt: Estimator,
    board: Scoreboard,

    // Losses.
    /// snd_nxt when the last recovery began.
    recover: u64,
    /// snd_nxt at the last cut that marks have made.
    mark_recover: u64,
    /// Bytes that duplicate ACKs without SACK stand for.
    duplicate_bytes: u32,
    duplicate_acks: u32,
    /// Bytes delivered under ECE that congestion control has not been told of.
    marked_bytes: u32,
    /// Most bytes that were out at once in this round, [`FULL`] = the window was full, and where
    /// the round ends.
    peak: u32,
    peak_end: u32,
    rack: Rack,
    reduction: Box<Reduction>,

    receiver: Receiver,

    // Time.
    timer: Timer,
    timer_ns: u64,
    /// From when a closed window is waited for.
    persist_ns: u64,
    persist_backoff: u8,
    /// Timeouts in a row.
    retries: u8,
    /// The timestamp clock.
    ticks: u32,
    tick_began_ns: u64,

    flags: Flags,
    counts: Counts,
    /// The rest of [`Stats`], and what few applications ask for. Boxed: seldom touched.
    rare: Box<Rare>,
}

/// Of [`Stats`] what every segment touches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    segments_sent: u64,
    segments_received: u64,
    acked_bytes: u64,
    received_bytes: u64,
    ce_received: u64,
    ece_received: u64,
}

/// The options that the handshake has agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Options {
    timestamps: bool,
    sack: bool,
    /// Classic ECN.
    ecn: bool,
    /// Accurate ECN.
    accurate: bool,
    /// Timestamps without accurate ECN: the short ways of `prediction.rs`.
    predictable: bool,
    snd_wscale: u8,
    /// Window scaling is on.
    wscale: bool,
}

/// One bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flags {
    syn_pending: bool,
    rst_pending: bool,
    fin_queued: bool,
    /// The application has seen the send buffer full.
    write_blocked: bool,
    /// The next retransmission leaves whatever the window says.
    force: bool,
    /// After a timeout: one segment until the first ACK.
    one_segment: bool,
    /// The next new data carries CWR.
    cwr_pending: bool,
    /// A closed window is probed.
    probe_pending: bool,
    /// Proportional rate reduction decides what may leave: in fast recovery, or after marks.
    reducing: bool,
    /// F-RTO: new data goes before what is lost.
    new_first: bool,
    /// RFC 6675's rescue retransmission has been used.
    rescued: bool,
    /// New Reno: the first partial ACK has restarted the timer.
    partial_seen: bool,
    /// SYN or SYN-ACK was sent more than once: no RTT sample.
    syn_repeated: bool,
    /// [`Events::CLOSED`] was given.
    closed_told: bool,
    /// The application has said that more follows: less than a full segment waits for it.
    more: bool,
    /// The same until further notice.
    corked: bool,
    /// The application has done one of the things of `records.rs`: no short ways.
    unusual: bool,
}

impl Endpoint {
    /// An active open; the first [`Endpoint::transmit`] gives the SYN.
    pub fn connect(config: Arc<Config>, isn: u32) -> Self {
        Self::new(config, isn, State::SynSent)
    }

    /// A passive open: `syn` has arrived at a listener.
    pub fn accept(config: Arc<Config>, isn: u32, syn: &Segment, now_ns: u64) -> Self {
        let mut endpoint = Self::new(config, isn, State::SynReceived);
        endpoint.counts.segments_received = 1;
        endpoint.learn_syn(syn, now_ns);
        endpoint
    }

    fn new(config: Arc<Config>, isn: u32, state: State) -> Self {
        let first = sequence::first(isn);
        let mss = u32::from(config.mss);
        Self {
            state,
            phase: Phase::Open,
            error: None,
            mss,
            burst: mss,
            options: Options::default(),
            snd_una: first,
            snd_nxt: first,
            snd_end: first + 1,
            snd_wnd: 0,
            max_wnd: 0,
            snd_wl1: 0,
            small_end: 0,
            send_buffer: config.send_buffer.initial_bytes,
            data_sent_ns: 0,
            pace_next_ns: 0,
            below_bytes: 0,
            super_packet_bytes: 0,
            cc: Cc::new(&config.params, config.algorithm, mss),
            rtt: Estimator::new(&config.rto),
            board: Scoreboard::default(),
            recover: first,
            mark_recover: 0,
            duplicate_bytes: 0,
            duplicate_acks: 0,
            marked_bytes: 0,
            peak: 0,
            peak_end: 0,
            rack: Rack::default(),
            reduction: Box::default(),
            receiver: Receiver::new(&config, isn),
            timer: Timer::Off,
            timer_ns: NEVER,
            persist_ns: 0,
            persist_backoff: 0,
            retries: 0,
            ticks: 0,
            tick_began_ns: 0,
            flags: Flags {
                syn_pending: true,
                ..Flags::default()
            },
            counts: Counts::default(),
            rare: Box::default(),
            config,
        }
    }

    /// [`Endpoint::segment`], whatever has arrived. Public for tests, which compare the two.
    #[doc(hidden)]
    pub fn segment_any(&mut self, now_ns: u64, segment: &Segment) -> Events {
        self.counts.segments_received += 1;
        match self.state {
            State::Closed => Events::EMPTY,
            State::SynSent => self.segment_in_syn_sent(now_ns, segment),
            State::SynReceived => self.segment_in_syn_received(now_ns, segment),
            State::TimeWait if self.config.freebsd => {
                self.segment_in_time_wait_freebsd(now_ns, segment)
            }
            _ => self.segment_when_synchronized(now_ns, segment),
        }
    }

    /// RFC 9293 3.10.7.4 from the check of sequence numbers on.
    fn segment_when_synchronized(&mut self, now_ns: u64, segment: &Segment) -> Events {
        let seq = sequence::unwrap(segment.seq, self.receiver.next);
        let control = segment.flags & (flags::RST | flags::SYN) != 0;
        if control && self.config.freebsd {
            return self.reset_or_syn_freebsd(now_ns, segment, seq);
        }
        if !self.timestamp_fits(now_ns, segment, seq) || !self.sequence_fits(now_ns, segment, seq) {
            return Events::EMPTY;
        }
        if control {
            return self.reset_or_syn(now_ns, segment, seq);
        }
        if !segment.has(flags::ACK) {
            return Events::EMPTY;
        }
        let ack = sequence::unwrap(segment.ack, self.snd_una);
        // RFC 5961 5.2: an ACK of what was never sent, or from long ago, is answered.
        let known = self.max_wnd.min(self.counts.acked_bytes + 1);
        if ack > self.snd_nxt || ack + known < self.snd_una {
            self.challenge(now_ns);
            return Events::EMPTY;
        }
        if self.options.accurate {
            self.meet(segment, seq);
        }
        self.note_timestamp(now_ns, segment, seq);
        let mut events = self.acknowledged(now_ns, segment, seq, ack);
        if segment.payload > 0 || segment.has(flags::FIN) {
            events = events | self.data(now_ns, segment, seq);
        }
        events
    }

    /// The application writes `bytes`; returns how many fit into the send buffer.
    pub fn write(&mut self, bytes: u64) -> u64 {
        self.flags.more = false;
        if self.flags.fin_queued || !self.may_send() {
            return 0;
        }
        let used = self.snd_end - self.snd_una.max(self.first_byte());
        let taken = bytes.min(self.send_buffer.saturating_sub(used));
        self.flags.write_blocked |= taken < bytes;
        self.snd_end += taken;
        taken
    }

    /// The application takes up to `bytes` bytes; returns how many there were.
    #[inline]
    pub fn read(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.readable());
        self.receiver.take(taken);
        if taken > 0 && self.may_receive() {
            self.receiver.update_window_if_worth_it();
            (self.receiver).acknowledge_what_was_read(&self.config.delayed_ack);
        }
        taken
    }

    /// An ACK is due: after [`Endpoint::read`], that the window has opened.
    pub fn owes_ack(&self) -> bool {
        self.receiver.ack_now || self.receiver.ack_first
    }

    /// Bytes in order that the application has not taken.
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// The application has written all it will: FIN follows the data. Reading goes on. During the
    /// handshake it waits for its end.
    pub fn close(&mut self) {
        if self.flags.fin_queued {
            return;
        }
        self.flags.fin_queued = true;
        self.flags.more = false;
        self.state = match self.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            state => state,
        };
    }

    /// The application gives up: RST to a peer that knows of the connection.
    pub fn abort(&mut self) {
        let told = !matches!(self.state, State::Closed | State::SynSent | State::TimeWait);
        self.flags.rst_pending |= told;
        self.finish();
    }

    /// The peer's FIN has come and everything before it was read.
    pub fn at_end(&self) -> bool {
        self.receiver.finished && self.readable() == 0
    }

    /// State of RFC 9293.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection has failed, if it has.
    pub fn error(&self) -> Option<Error> {
        self.error
    }

    /// Nothing will leave any more and nothing that arrives will change that: the owner may put
    /// another endpoint in its place. Not so in TIME_WAIT, nor while an RST waits to leave.
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && !self.flags.rst_pending
    }

    /// Congestion window in bytes, as core has it; see [`Endpoint::window`].
    pub fn cwnd(&self) -> u32 {
        self.cc.cwnd
    }

    /// Slow start threshold in bytes; `u32::MAX` before the first cut.
    pub fn ssthresh(&self) -> u32 {
        self.cc.ssthresh
    }

    /// The peer's window in bytes.
    pub fn snd_wnd(&self) -> u64 {
        self.snd_wnd
    }

    /// Bytes in the network as far as the sender can know: `pipe` of RFC 6675.
    pub fn in_flight(&self) -> u64 {
        self.pipe()
    }

    /// Smoothed RTT; 0 = none yet.
    pub fn srtt_ns(&self) -> u64 {
        self.rtt.srtt()
    }

    /// Variation of the RTT.
    pub fn rttvar_ns(&self) -> u64 {
        self.rtt.var()
    }

    /// Retransmission timeout, backoff included.
    pub fn rto_ns(&self) -> u64 {
        self.rtt.rto()
    }

    /// DCTCP's α, 0..=1; meaningless for other algorithms.
    pub fn alpha(&self) -> f64 {
        self.cc.alpha()
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u32 {
        self.mss
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let counts = &self.counts;
        Stats {
            segments_sent: counts.segments_sent,
            segments_received: counts.segments_received,
            acked_bytes: counts.acked_bytes,
            received_bytes: counts.received_bytes,
            ce_received: counts.ce_received,
            ece_received: counts.ece_received,
            ..self.rare.stats
        }
    }

    /// Bytes that the application has written and the peer has not acknowledged.
    pub fn unacknowledged(&self) -> u64 {
        self.snd_end
            .saturating_sub(self.snd_una.max(self.first_byte()))
    }

    /// Sequence offset of the first byte of the stream, or less once that is acknowledged.
    fn first_byte(&self) -> u64 {
        match self.state {
            State::SynSent | State::SynReceived => self.snd_una + 1,
            _ => self.snd_una,
        }
    }

    /// The application may still add to the stream.
    fn may_send(&self) -> bool {
        matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        )
    }

    /// The peer may still add to its stream.
    fn may_receive(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        )
    }

    /// Sequence numbers between snd_una and snd_nxt.
    fn outstanding(&self) -> u64 {
        self.snd_nxt - self.snd_una
    }

    /// RFC 6675's pipe in bytes; without SACK each duplicate ACK stands for a segment.
    fn pipe(&self) -> u64 {
        let absent = self.board.absent() + i64::from(self.duplicate_bytes);
        self.outstanding().saturating_add_signed(-absent)
    }

    fn fin_sent(&self) -> bool {
        self.snd_nxt > self.snd_end
    }

    /// The connection is over; nothing is waited for.
    fn finish(&mut self) {
        self.state = State::Closed;
        self.set_timer(Timer::Off, NEVER);
        self.receiver.quiet();
        self.flags.syn_pending = false;
    }

    fn fail(&mut self, error: Error) -> Events {
        self.finish();
        self.error = Some(error);
        Events::FAILED
    }

    /// Both directions have ended.
    fn closed(&mut self) -> Events {
        if self.flags.closed_told {
            return Events::EMPTY;
        }
        self.flags.closed_told = true;
        Events::CLOSED
    }

    fn enter_time_wait(&mut self, now_ns: u64) -> Events {
        self.state = State::TimeWait;
        self.set_timer(Timer::TimeWait, now_ns + self.config.time_wait_ns);
        self.closed()
    }
}

const _: () = assert!(size_of::<Endpoint>() <= 672);

const fn is_plain_data<T: Clone + Send>() {}
const _: () = is_plain_data::<Endpoint>();
