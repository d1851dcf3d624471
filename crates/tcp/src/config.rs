//! The configuration of an endpoint: the differences between stacks.

use sluicegate_core::{
    abi::Params,
    cc::{self, Algorithm, Needs},
};

const MS: u64 = 1_000_000;

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Three duplicate ACKs and partial ACKs (RFC 6582).
    NewReno,
    /// SACK with DupThresh (RFC 6675).
    Sack,
    /// Time-based with tail loss probes (RFC 8985).
    Rack,
}

/// Explicit congestion notification: classic (RFC 3168) or accurate (RFC 9768). An end that accepts
/// the accurate one accepts the classic one of older peers as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Neither offered nor accepted.
    Off,
    /// Classic: accepted when offered (Linux's default).
    Accept,
    /// Classic: offered and accepted.
    Offer,
    /// Accurate: accepted when offered.
    AcceptAccurate,
    /// Accurate: accepted when offered; classic: offered.
    AcceptAccurateOfferClassic,
    /// Accurate: offered and accepted.
    OfferAccurate,
}

impl Ecn {
    /// A SYN of ours offers classic ECN.
    pub fn offers_classic(self) -> bool {
        matches!(self, Self::Offer | Self::AcceptAccurateOfferClassic)
    }

    /// A SYN of ours offers accurate ECN, which a peer may take for a classic offer.
    pub fn offers_accurate(self) -> bool {
        self == Self::OfferAccurate
    }

    /// The peer's offer of classic ECN is accepted.
    pub fn accepts_classic(self) -> bool {
        self != Self::Off
    }

    /// The peer's offer of accurate ECN is accepted.
    pub fn accepts_accurate(self) -> bool {
        matches!(
            self,
            Self::AcceptAccurate | Self::AcceptAccurateOfferClassic | Self::OfferAccurate
        )
    }
}

/// When segments of an AccECN connection have the option with counters of bytes (RFC 9768 3.2.3;
/// Linux's `tcp_ecn_option`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionUse {
    /// Never.
    Never,
    /// After changes, and [`AccurateEcn::beacon`] times in a round trip.
    Sparing,
    /// Wherever it fits, until the path seems to drop such segments.
    Always,
    /// Wherever it fits.
    Persistent,
}

/// How accurate ECN is done, once it is agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccurateEcn {
    /// The option.
    pub option: OptionUse,
    /// With [`OptionUse::Sparing`]: options in a round trip at least; 0 = no such rule.
    pub beacon: u8,
    /// Handshakes that have no answer go on without ECN, and feedback that cannot be right ends the
    /// use of ECT (Linux's `tcp_ecn_fallback`).
    pub fallback: bool,
}

/// Retransmission timeout (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rto {
    /// Before the first sample.
    pub initial_ns: u64,
    /// Least value.
    pub min_ns: u64,
    /// Largest value.
    pub max_ns: u64,
    /// Least value of 4·RTTVAR (Linux: as much as the least RTO).
    pub variation_min_ns: u64,
    /// Added to every computed value (FreeBSD's `rexmit_slop`).
    pub slop_ns: u64,
    /// G of RFC 6298: what 4·RTTVAR is at least, and what times are rounded up to.
    pub granularity_ns: u64,
    /// So many repetitions of a SYN have the timeout of the first; that of later ones doubles
    /// (FreeBSD's `tcp_syn_backoff`, 4; Linux's `tcp_syn_linear_timeouts`).
    pub linear_syns: u8,
    /// The same for a SYN-ACK (FreeBSD).
    pub linear_answers: bool,
    /// `slop_ns` is added to the timeout of a SYN that is repeated as well, though not to that of a
    /// SYN-ACK (FreeBSD's syncache).
    pub syn_slop: bool,
}

/// Delayed acknowledgements (RFC 9293 3.8.6.3, RFC 5681 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// An ACK at least for every so many full segments; 1 = every one.
    pub segments: u8,
    /// What finds an ACK delayed is acknowledged at once whatever its size, as FreeBSD does
    /// (`DELAY_ACK`), so that small segments count like full ones. False = bytes count, as in Linux
    /// (`__tcp_ack_snd_check`).
    pub any_size: bool,
    /// Longest delay.
    pub timeout_ns: u64,
    /// Segments at the beginning (and after idleness) that are acknowledged at once, as Linux does.
    pub quick: u8,
    /// A FIN is acknowledged like data, as Linux does, not at once. No profile has this:
    /// conformance suites do.
    pub fin: bool,
    /// Linux's rule for data that the application has not read: they are acknowledged at once only
    /// where the window can move on, else when it has read (`__tcp_ack_snd_check`,
    /// `tcp_cleanup_rbuf`). A small segment is acknowledged when it is read. False = as if the
    /// application read at once, and small segments were like others.
    pub until_read: bool,
}

/// With which congestion window a connection begins whose peer is known ([`Config::cache`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheWindow {
    /// The initial window, as everywhere today.
    #[default]
    Unused,
    /// Half of a mean in which each connection counts half as much as the one after it (older
    /// sources of FreeBSD, `TCP_METRICS_CWND`).
    Half,
    /// The window with which the last connection ended.
    Whole,
}

/// A socket buffer that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// At the beginning, in bytes.
    pub initial_bytes: u64,
    /// With autotuning, in bytes; equal to `initial_bytes` = none.
    pub max_bytes: u64,
}

/// A receive buffer of memory instead of data, as Linux has it: [`Config::counted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Arrivals with more data than this are bursts of segments of so many bytes, put together
    /// before they came.
    pub offload_bytes: u16,
    /// The application has set the size: the buffer does not grow.
    pub locked: bool,
    /// The window may shrink to what memory allows (`tcp_shrink_window`).
    pub shrinks: bool,
}

/// Everything that one stack decides by itself. A profile ([`Config::linux`], [`Config::freebsd9`])
/// is a starting point; fields may be changed before the endpoint is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Congestion control, which is core's.
    pub algorithm: Algorithm,
    /// Its constants: initial window, gains, K.
    pub params: Params,
    /// MSS that is announced, in bytes: MTU less IP and TCP headers without options.
    pub mss: u16,
    /// Timestamps offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// Window scaling offered and accepted (RFC 7323); its shift follows from the receive buffer.
    pub window_scaling: bool,
    /// SACK offered and accepted (RFC 2018). Without it recovery is New Reno's.
    pub sack: bool,
    /// Repair of losses.
    pub recovery: Recovery,
    /// With RACK, a probe when the tail of a flight stays without an answer (RFC 8985 section 7);
    /// Linux has none with `tcp_early_retrans = 0`.
    pub tail_probe: bool,
    /// Proportional rate reduction (RFC 6937) instead of an immediate cut of what may be in flight,
    /// after losses and after marks (Linux's CWR state).
    pub prr: bool,
    /// Of PRR's slow start below cwnd: an ACK gains a segment only if it tells of no further loss
    /// (RFC 9937 6, Linux), and not each ACK that advances.
    pub prr_safe: bool,
    /// Reductions are taken back when D-SACK or timestamps show that nothing was lost (RFC 3522,
    /// RFC 4015).
    pub undo: bool,
    /// With `undo`: F-RTO finds spurious timeouts (RFC 5682).
    pub frto: bool,
    /// Limited transmit (RFC 3042).
    pub limited_transmit: bool,
    /// ECN.
    pub ecn: Ecn,
    /// Accurate ECN.
    pub accurate: AccurateEcn,
    /// ECE answers each segment's own CE (RFC 8257 3.2) instead of being held until CWR.
    pub dctcp_receiver: bool,
    /// Duplicate ACKs do not count while a mark's cut is not yet acknowledged (FreeBSD 9).
    pub ignore_duplicates_after_mark: bool,
    /// Acknowledgements.
    pub delayed_ack: DelayedAck,
    /// Nagle's algorithm (RFC 9293 3.7.4).
    pub nagle: bool,
    /// Nagle's algorithm looks at unacknowledged small segments only, as Linux does (Minshall's
    /// variant). So is the rest of a window behind whole segments sent at once.
    pub minshall: bool,
    /// The connection is given up when data has had no answer for so long after its first timeout
    /// (Linux's `TCP_USER_TIMEOUT`; RFC 5482), in ns; 0 = after `retries`.
    pub user_timeout_ns: u64,
    /// Timeout.
    pub rto: Rto,
    /// Retransmissions of data, or probes of a window, without an answer before the connection is
    /// given up.
    pub retries: u8,
    /// The same of a SYN, beside those of [`Rto::linear_syns`], which are not counted.
    pub syn_retries: u8,
    /// The same of a SYN-ACK.
    pub answer_retries: u8,
    /// `retries` and `syn_retries` say for how long an answer is waited for, and the former nothing
    /// else: as long as so many timeouts take that begin with 200 ms, or of a SYN with
    /// [`Rto::initial_ns`], and double (Linux's `retransmits_timed_out`).
    pub timed_retries: bool,
    /// So many SYNs offer timestamps, scaling and SACK, and those after them only the MSS
    /// (FreeBSD's `rexmit_drop_options`, which FreeBSD 9 has without a switch); 0 = all.
    pub syns_with_options: u8,
    /// Most segments that wait for one that is missing; more are dropped, as if they were lost.
    pub reassembly_segments: u32,
    /// Receive buffer.
    pub receive_buffer: Buffer,
    /// Packets count against the receive buffer with the memory that they take in Linux, the
    /// window opens by Linux's rules, and a segment that begins in it is taken as a whole. `None`,
    /// as in all profiles: the window is the free space of the buffer. Conformance suites have it.
    pub counted: Option<Counted>,
    /// Send buffer.
    pub send_buffer: Buffer,
    /// Most segments that one [`crate::Segment`] may carry (segmentation offload); 1 = none.
    pub burst_segments: u8,
    /// Spread over the RTT, but for the first ten segments: 1.2 × cwnd / SRTT, 2 × in slow start
    /// (Linux's `tcp_pacing_*_ratio`).
    pub pacing: bool,
    /// Data waits in the socket while as much of the connection as fits into about a millisecond
    /// has not left its host (Linux's TCP small queues). The endpoint's owner reports departures by
    /// [`crate::Endpoint::left`].
    pub small_queues: bool,
    /// Super-packets as Linux makes them: data waits for more while an ACK is near
    /// (`tcp_tso_should_defer`), and without Nagle's algorithm the rest of a window goes along
    /// whatever is out (`tcp_mss_split_point`).
    pub super_packets: bool,
    /// Slow start ends by Linux's HyStart, before a loss.
    pub hystart: bool,
    /// cwnd starts anew after an idle RTO (RFC 5681 4.1).
    pub restart_after_idle: bool,
    /// cwnd grows as long as it is no larger than the peer's window, however little of it is used
    /// (FreeBSD 9, `cc_ack_received`); else growth is earned by a window in use (RFC 7661).
    pub grows_unused: bool,
    /// Connections keep their experience with a peer for the next ones: see [`crate::Cache`].
    pub cache: bool,
    /// The threshold is kept as well (Linux: `tcp_no_ssthresh_metrics_save = 0`, not its default).
    pub cache_ssthresh: bool,
    /// The use of the congestion windows of earlier connections.
    pub cache_window: CacheWindow,
    /// The receive buffer is rounded up to whole segments, every ACK offers all that is free in it,
    /// resets are judged by it, and ACKs repeat a FIN that is not acknowledged, as FreeBSD does. No
    /// profile has this: conformance suites do.
    pub freebsd: bool,
    /// With `freebsd`: an RST anywhere in the window resets (`net.inet.tcp.insecure_rst`).
    pub insecure_rst: bool,
    /// With `freebsd`: a SYN anywhere in the window resets (`net.inet.tcp.insecure_syn`).
    pub insecure_syn: bool,
    /// Challenge ACKs and answers to what lies outside the window leave no more often (RFC 5961
    /// section 7), in ns.
    pub challenge_ns: u64,
    /// A cheat: whatever window arrives, it is taken for the largest that sixteen bits can say.
    pub ignore_window: bool,
    /// TIME_WAIT.
    pub time_wait_ns: u64,
}

impl Config {
    /// Linux 6: CUBIC, SACK with RACK-TLP, PRR, timestamps, RTO ≥ 200 ms, a delayed ACK of 40 ms.
    /// `mss` is the MTU less 40 bytes (IPv4) or 60 (IPv6).
    pub fn linux(mss: u16) -> Self {
        Self {
            algorithm: Algorithm::Cubic,
            params: params(10),
            mss,
            timestamps: true,
            window_scaling: true,
            sack: true,
            recovery: Recovery::Rack,
            tail_probe: true,
            prr: true,
            prr_safe: false,
            undo: true,
            frto: true,
            limited_transmit: true,
            ecn: Ecn::Accept,
            accurate: AccurateEcn {
                option: OptionUse::Always,
                beacon: 3,
                fallback: true,
            },
            dctcp_receiver: false,
            ignore_duplicates_after_mark: false,
            delayed_ack: DelayedAck {
                segments: 2,
                any_size: false,
                timeout_ns: 40 * MS,
                quick: 16,
                fin: false,
                until_read: false,
            },
            nagle: true,
            minshall: true,
            user_timeout_ns: 0,
            rto: Rto {
                initial_ns: 1_000 * MS,
                min_ns: 200 * MS,
                max_ns: 120_000 * MS,
                variation_min_ns: 200 * MS,
                slop_ns: 0,
                granularity_ns: MS,
                linear_syns: 0,
                linear_answers: false,
                syn_slop: false,
            },
            retries: 15,
            syn_retries: 6,
            answer_retries: 5,
            timed_retries: true,
            syns_with_options: 0,
            reassembly_segments: u32::MAX,
            receive_buffer: Buffer {
                initial_bytes: 131_072,
                max_bytes: 6 << 20,
            },
            counted: None,
            send_buffer: Buffer {
                initial_bytes: 16_384,
                max_bytes: 4 << 20,
            },
            burst_segments: 1,
            pacing: false,
            small_queues: false,
            super_packets: false,
            hystart: false,
            restart_after_idle: true,
            grows_unused: false,
            cache: true,
            cache_ssthresh: false,
            cache_window: CacheWindow::Unused,
            freebsd: false,
            insecure_rst: false,
            insecure_syn: false,
            challenge_ns: 500 * MS,
            ignore_window: false,
            time_wait_ns: 60_000 * MS,
        }
    }

    /// FreeBSD 9 with the parameters of the thesis (Table 2.1): New Reno, RTO base 10 ms, minimum 2
    /// ms, slop 20 ms, a timer of 1 µs, a reassembly queue of 200 segments, buffers of 128 to 256
    /// KB. CUBIC's β and Vegas' bounds are those of its `cc_cubic.h` and `cc_vegas.c`.
    pub fn freebsd9(mss: u16) -> Self {
        let buffer = Buffer {
            initial_bytes: 128 << 10,
            max_bytes: 256 << 10,
        };
        Self {
            algorithm: Algorithm::Reno,
            params: Params {
                cubic_keep_q10: 819, // 0.8
                vegas_alpha: 1,
                vegas_beta: 3,
                ..params(3)
            },
            recovery: Recovery::NewReno,
            tail_probe: true,
            sack: false,
            prr: false,
            prr_safe: false,
            undo: false,
            frto: false,
            minshall: false,
            ignore_duplicates_after_mark: true,
            grows_unused: true,
            cache_ssthresh: true,
            delayed_ack: DelayedAck {
                segments: 2,
                any_size: true,
                timeout_ns: 100 * MS,
                quick: 0,
                fin: false,
                until_read: false,
            },
            rto: Rto {
                initial_ns: 10 * MS,
                min_ns: 2 * MS,
                max_ns: 64_000 * MS,
                variation_min_ns: 0,
                slop_ns: 20 * MS,
                granularity_ns: 1_000,
                linear_syns: 4,
                linear_answers: true,
                syn_slop: true,
            },
            retries: 12,
            syn_retries: 12,
            // FreeBSD forgets a SYN after three, but an answer's SYN cookie opens all the same.
            answer_retries: 12,
            timed_retries: false,
            syns_with_options: 3,
            reassembly_segments: 200,
            receive_buffer: buffer,
            send_buffer: buffer,
            ..Self::linux(mss)
        }
    }

    /// The tenant's own congestion control, and what belongs to it: one that needs its peer's
    /// feedback offers ECN and answers marks one by one (RFC 8257).
    #[must_use]
    pub fn with(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        if algorithm.needs() == Needs::Peer {
            self.ecn = Ecn::Offer;
            self.dctcp_receiver = true;
        }
        self
    }
}

/// Constants of core's algorithms for a tenant's own stack, with this initial window in segments.
fn params(init_segments: u8) -> Params {
    Params {
        init_segments,
        ..cc::stack_params()
    }
}
