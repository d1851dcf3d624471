//! `results.json`, schema 2: the same from every world.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluicegate_config::table::nearest;

/// Version of the schema, first field of the file.
pub const SCHEMA: u32 = 2;

/// The whole of `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// One line for people.
    pub title: String,
    /// Published figure that it mirrors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<String>,
    /// World that ran it.
    pub world: String,
    /// Seed of the run.
    pub seed: u64,
    /// Circumstances of the run.
    pub conditions: Conditions,
    /// One entry per variant, in the order of the file.
    pub variants: Vec<VariantResult>,
    /// The results of the lines of `[expect]`.
    pub expectations: Vec<ExpectationResult>,
    /// Published figures of `[published]`, ours beside them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedResult>,
}

/// Circumstances that a reader must know to trust or to repeat a figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Kernel release (lab) or simulator version (sim).
    pub kernel: String,
    /// CPUs online; absent where time is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Smallest idle fraction over one-second windows of measured time, 0..=1; absent where time is
    /// simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_idle_min: Option<f64>,
    /// Largest fraction of one CPU's time that the hypervisor took in such a window, 0..=1; absent
    /// where time is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_stolen_max: Option<f64>,
    /// Largest lag of an emulated fabric behind the clock in measured time, in us; absent without
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_lag_max_us: Option<f64>,
    /// Its 99th percentile over the events of the fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_lag_p99_us: Option<f64>,
    /// The CPU, not the network, limited a variant: also where an emulated fabric fell behind its
    /// clock.
    pub cpu_bound: bool,
    /// The scenario accepts that (`[lab] accept_cpu_bound`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepts_cpu_bound: bool,
    /// Factor applied to all link rates because the CPU was the limit; 1 = as written.
    pub rate_scale: f64,
    /// Segmentation offloads in tenants.
    pub offloads: bool,
    /// Lost or reordered packets in places that the experiment is not about, by counter; all zero
    /// in a clean run.
    pub outside: BTreeMap<String, u64>,
    /// Anything else worth a line.
    pub notes: Vec<String>,
    /// Version of sluicegate.
    pub version: String,
    /// Wall-clock start, RFC 3339 UTC.
    pub started: String,
}

impl Conditions {
    /// A larger [`Self::cpu_stolen_max`] is worth a note: packets and timers of that CPU may have
    /// waited for 50 ms and more.
    pub const CPU_STOLEN_ABOVE: f64 = 0.05;

    /// Whether the hypervisor took so much of a CPU that delays may be the machine's.
    pub fn is_cpu_stolen(&self) -> bool {
        self.cpu_stolen_max > Some(Self::CPU_STOLEN_ABOVE)
    }
}

/// Measurements of one variant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VariantResult {
    /// Name of the variant.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Goodput over bulk flows.
    pub goodput_bps: Goodput,
    /// Every bulk flow.
    pub flows: Vec<FlowResult>,
    /// Application RTT of the ping-pong probes.
    pub rtt_us: Quantiles,
    /// Flow completion times by class.
    pub fct_us: BTreeMap<String, FctQuantiles>,
    /// Every direction of every switch-side link queue.
    pub links: Vec<LinkResult>,
    /// Guests' adapters and the ports of their hosts' switches; simulated where hosts have switches
    /// (`[network.host_switch]`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnics: Vec<VnicResult>,
    /// Counters of enforcement, summed over hosts.
    pub enforcement: BTreeMap<String, u64>,
    /// Smallest idle fraction during this variant; absent where time is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_idle_min: Option<f64>,
    /// Derived figures that a scenario asks for by name (tracking error, correlation, …).
    pub derived: BTreeMap<String, f64>,
    /// Goodput of the bulk flows that were active throughout each `[interval.NAME]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, Goodput>,
    /// Cycles of pauses, at most one for each repeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Deadlock>,
    /// Parallel programs, by traffic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, ProgramResult>,
    /// Series and raw samples for report and export; not part of `results.json`.
    #[serde(skip)]
    pub samples: Samples,
}

/// Goodput of the bulk flows of a variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Goodput {
    /// Sum in bit/s.
    pub sum: f64,
    /// Mean per flow in bit/s; `None` without flows.
    pub mean: Option<f64>,
    /// Jain's fairness index, (0, 1]; `None` if no flow received anything.
    pub jain: Option<f64>,
    /// Of the flow that has most, in bit/s; `None` without flows.
    pub max: Option<f64>,
}

/// One bulk flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowResult {
    /// Number within the variant.
    pub id: u32,
    /// Traffic table that it belongs to.
    pub traffic: String,
    /// Sending tenant.
    pub tenant: String,
    /// Sending host.
    pub from: String,
    /// Receiving host.
    pub to: String,
    /// The tenant's own congestion control.
    pub tenant_cc: String,
    /// The protocol that it is sent over.
    #[serde(default, skip_serializing_if = "Protocol::is_tcp")]
    pub protocol: Protocol,
    /// Payload received per second of measured time.
    pub goodput_bps: f64,
    /// Segments retransmitted, from the sender's TCP_INFO; `None` of datagrams, and of a connection
    /// that never stood.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts taken; `None` also where the kernel does not count them.
    pub timeouts: Option<u64>,
    /// Smoothed RTT at the end, from the sender; `None` if it has none.
    pub srtt_us: Option<f64>,
    /// Longest time of the measured window from an arrival to the next or, of bulk flows, to the
    /// end of what they offer or of the run; a multiple of the series' interval, rounded down.
    /// `None` if nothing arrived.
    pub stalled_us: Option<f64>,
    /// Largest congestion window seen over the whole run; `None` if none was.
    pub cwnd_max_bytes: Option<u64>,
    /// Times that the congestion window, looked at now and then, had fallen by a quarter or more;
    /// `None` if none was seen.
    pub cwnd_cuts: Option<u64>,
    /// The fate of datagrams; absent of TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
}

/// The protocol that a flow is sent over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Whether it is TCP, which results leave unsaid.
    pub fn is_tcp(&self) -> bool {
        *self == Self::Tcp
    }
}

/// Datagrams of a flow that were sent in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// Taken by the sender's socket.
    pub sent: u64,
    /// Their payload in bytes.
    pub sent_bytes: u64,
    /// Received.
    pub received: u64,
    /// Their payload in bytes.
    pub received_bytes: u64,
    /// Not received, though a later one was.
    pub lost: u64,
    /// Their payload in bytes.
    pub lost_bytes: u64,
    /// Under way when the run ended; absent where nobody knows (lab).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underway: Option<u64>,
    /// Dropped by the sender's socket, which was full; neither sent nor lost.
    pub socket_drops: u64,
    /// Their payload in bytes.
    pub socket_dropped_bytes: u64,
}

/// Quantiles of a sample in microseconds; `None` without samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Samples.
    pub count: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// Completion times of one class in microseconds; `None` if nothing was complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FctQuantiles {
    /// Flows completed.
    pub count: u64,
    /// Flows begun in measured time that were not complete at the end of the run: no time below
    /// is theirs.
    pub unfinished: u64,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Fraction that missed its deadline, 0..=1, of those that were complete or past it when
    /// measuring ended or whose connection broke; absent without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<f64>,
}

/// One direction of a link, seen at the transmit queue of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkResult {
    /// `from>to`.
    pub id: String,
    /// The experiment is about this queue.
    pub bottleneck: bool,
    /// Rate in bit/s at which the link was run.
    #[serde(default)]
    pub rate_bps: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets dropped, by cause (`tail`, `not_ect`, `red`; where they happened also `down`,
    /// `corrupt`, `buffer`, `headroom`, and those of a host's switch).
    pub drops: BTreeMap<String, u64>,
    /// Packets marked CE.
    pub marks: u64,
    /// Backlog met by arriving packets.
    pub queue_bytes: QueueQuantiles,
    /// Of converged Ethernet: pauses and notifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cee: Option<LinkCee>,
}

/// A guest's adapter and its port of the host's switch: frames in measured time, where they pass
/// from one to the other. What applications sent and received is in [`FlowResult::datagrams`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicResult {
    /// The tenant.
    pub tenant: String,
    /// Sent by its adapter.
    pub sent: u64,
    /// Of these, come to the switch.
    pub into_switch: u64,
    /// Put by the switch where the adapter finds them.
    pub out_of_switch: u64,
    /// Taken by the adapter.
    pub received: u64,
    /// Dropped, by place: `vnic_transmit` and `vnic_receive` by the adapter, `socket` for a full
    /// socket (datagrams, over the whole run), and what the port of the switch counts. Simulated
    /// ones have `vnic_transmit` and, for a full receive ring, `full`.
    pub drops: BTreeMap<String, u64>,
}

/// Counters that converged Ethernet adds to a direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkCee {
    /// Times that its far end has paused a priority of it.
    pub pauses: u64,
    /// Time in which some priority was paused.
    pub paused_us: f64,
    /// Congestion notifications that its queues gave rise to.
    pub notifications: u64,
    /// Most bytes of one priority in the buffer at its far end, over the whole run.
    pub ingress_max_bytes: u64,
}

/// Pauses that wait for each other in a cycle and never end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deadlock {
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// The priority that stands still.
    pub priority: u8,
    /// When the last link of the cycle was paused, in seconds after the start of the run.
    pub since_s: f64,
    /// `from>to` of the cycle's links: each waits for the next, the last for the first.
    pub links: Vec<String>,
    /// Bytes in the buffers of the cycle.
    pub bytes: u64,
    /// Other links that wait for the cycle.
    pub behind: u64,
}

/// Backlog in bytes; `None` if no packet arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueQuantiles {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// A parallel program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Number of ranks.
    pub ranks: u64,
    /// The network is `topology = "crossbar"`.
    #[serde(default)]
    pub on_crossbar: bool,
    /// Rate of hosts' links in bits per second, of the fastest if they differ; 0 in files of
    /// earlier versions.
    #[serde(default)]
    pub host_rate_bps: u64,
    /// Name of the GOAL file that it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Hash of all operations in hexadecimal: equal programs have equal ones. Empty in files of
    /// earlier versions.
    #[serde(default)]
    pub digest: String,
    /// Operations of all ranks.
    pub operations: u64,
    /// Those of them that have ended.
    pub ended: u64,
    /// Messages that had arrived and that no receive had taken when the run was over.
    #[serde(default)]
    pub unreceived: u64,
    /// From the begin of the first rank, when the connections of all stand, to the end of the last
    /// operation; absent if one has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_s: Option<f64>,
    /// From the first begin to the last end of each part that a generated program has, if it has
    /// ended.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases_s: BTreeMap<String, f64>,
    /// Time in which a rank computes, mean over ranks; so far, if an operation has not ended.
    pub computing_s: f64,
    /// Time from the begin of a rank to the end of its last operation in which it does not
    /// compute, mean over ranks; so far, if an operation has not ended.
    pub waiting_s: f64,
    /// The same of the rank that waits longest.
    pub waiting_max_s: f64,
    /// The same of each.
    pub waiting_by_rank_s: Vec<f64>,
    /// Absent if an operation has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_path: Option<CriticalPath>,
    /// Operations that waited when the run was over, first those for which most others wait; empty
    /// if all have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Some of the messages that are `unreceived`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untaken: Vec<String>,
}

impl ProgramResult {
    /// Whether every operation has ended.
    pub fn has_ended(&self) -> bool {
        self.ended == self.operations
    }

    /// How many operations have not ended and how many messages were not received, in words; `None`
    /// if there are none.
    pub fn unfinished(&self) -> Option<String> {
        let left = self.operations.saturating_sub(self.ended);
        let all = self.operations;
        let mut words = Vec::new();
        if left > 0 {
            words.push(format!("{left} of {all} operations have not ended"));
        }
        match self.unreceived {
            0 => {}
            1 => words.push("one message has arrived that no receive took".to_owned()),
            more => words.push(format!("{more} messages have arrived that no receive took")),
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// The chain of operations, each of which let the next begin or end last, from the begin of a
/// program to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// Time of its computations.
    pub computing_s: f64,
    /// Time of its messages.
    pub network_s: f64,
    /// Number of its computations.
    pub computations: u64,
    /// Number of its messages.
    pub messages: u64,
    /// Its longest steps, at most ten, the longest first.
    #[serde(default)]
    pub longest: Vec<CriticalStep>,
}

/// A step of a critical path: a computation, or a message with what it waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticalStep {
    /// The rank whose operation ended with it.
    pub rank: u64,
    /// The operation in words, with its line or offset in the file if it has one.
    pub operation: String,
    /// When it began, after the begin of the program; a message with its send.
    pub begin_s: f64,
    /// How long it took.
    pub took_s: f64,
}

/// The result of one line of `[expect]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// Key in the file.
    pub name: String,
    /// The expression as written.
    pub expression: String,
    /// Value of the left side, `None` when a value it names was not measured; or the share of runs
    /// in which the line held, if it is about that.
    pub left: Option<f64>,
    /// Bounds of the left side's mean over runs at 95 %, by Student's t, of a line that compares
    /// intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_interval: Option<[f64; 2]>,
    /// Value of the right side; or the least share of runs.
    pub right: Option<f64>,
    /// Bounds of the right side's mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_interval: Option<[f64; 2]>,
    /// The largest share of runs, of a line that is about a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Whether it held.
    pub held: bool,
}

/// One line of `[published]`, or of `[sweep.published]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishedResult {
    /// Key in the file.
    pub name: String,
    /// As written: our figure, `~`, the published value.
    pub expression: String,
    /// The published value, in the unit of our figure.
    pub published: f64,
    /// The value measured here, of several seeds their mean; `None` when a figure that it names was
    /// not measured.
    pub ours: Option<f64>,
    /// Bounds of that mean at 95 %, by Student's t; `None` of one seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// How far ours agrees; `None` in files of earlier versions, and if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// An earlier line with the same value for another variant whose run was the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// How far each of several seeds agrees by itself; empty of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_seed: Vec<Option<Verdict>>,
    /// Why it does not agree, or what it rests on, as the scenario says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What of the set-up follows from the published figure, as the scenario says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted: Option<String>,
    /// What would give the published figure in any case, as the scenario says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacuous: Option<String>,
}

impl PublishedResult {
    /// `cause`, `fitted` and `vacuous`. Earlier versions wrote the text of `fitted` into `cause`
    /// where the verdict was fitted.
    pub fn reasons(&self) -> [Option<&String>; 3] {
        match (&self.cause, &self.fitted, self.verdict) {
            (cause, None, Some(Verdict::Fitted)) => [None, cause.as_ref(), None],
            (cause, fitted, _) => [cause.as_ref(), fitted.as_ref(), self.vacuous.as_ref()],
        }
    }
}

/// How far a figure agrees with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within 20 %, see [`crate::published::TOLERANCE`].
    Agrees,
    /// Within 20 %, but the set-up was chosen after this figure: that shows nothing.
    Fitted,
    /// Within 20 %, but something else would give this value in any case: that shows nothing.
    Vacuous,
    /// Not within 20 % but within twice or half, and in the same order as the other published
    /// figures of its kind.
    OrderingOnly,
    /// In that order, but beyond twice or half.
    DiffersInSize,
    /// Neither.
    Differs,
    /// The interval of several seeds lies within 20 % in part only.
    Undecided,
}

impl Verdict {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Fitted => "fitted",
            Self::Vacuous => "shows nothing",
            Self::OrderingOnly => "ordering only",
            Self::DiffersInSize => "differs in size",
            Self::Differs => "differs",
            Self::Undecided => "undecided",
        }
    }
}

/// Raw material of plots, kept beside the results.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Every RTT sample in microseconds.
    pub rtt_us: Vec<f64>,
    /// For how long requests had waited that had no answer when the run ended, in microseconds.
    pub rtt_outstanding_us: Vec<f64>,
    /// How late the process was that answered a probe, in microseconds, for every request; empty
    /// where time is simulated.
    pub wake_us: Vec<f64>,
    /// Every completion time in microseconds, by class.
    pub fct_us: BTreeMap<String, Vec<f64>>,
    /// How many were begun and not complete, by class; no zeros.
    pub unfinished: BTreeMap<String, u64>,
    /// Named series over time.
    pub series: Vec<Series>,
    /// Series that were asked for ([`crate::inspect::Traces`]), of every repeat.
    pub traces: Vec<Trace>,
    /// Ranks of parallel programs over time, of the first repeat.
    pub timelines: Vec<Timeline>,
    /// The network over time, if it was asked for ([`crate::inspect::Films`]), of every repeat.
    pub films: Vec<Film>,
}

/// The ranks of a parallel program over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Name of the traffic.
    pub name: String,
    /// Begin of the first column, in seconds since the start of the run.
    pub begin_s: f64,
    /// Width of a column in seconds.
    pub column_s: f64,
    /// Number of each rank and its tenant.
    pub ranks: Vec<String>,
    /// By rank, the part of each column in which it computes, 0..=1.
    pub computing: Vec<Vec<f64>>,
    /// By rank, the end of its last operation in seconds since the start of the run.
    pub ended_s: Vec<f64>,
}

/// The quantity that a [`Series`] shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
    /// Goodput of a bulk flow, bit/s.
    GoodputBps,
    /// Backlog of a queue, bytes.
    QueueBytes,
    /// Window that enforcement computes, bytes.
    EnforcedWindowBytes,
    /// Window that the tenant's own stack computes (cwnd from TCP_INFO), bytes.
    TenantCwndBytes,
    /// DCTCP's alpha as enforcement sees it, 0..=1.
    Alpha,
}

/// A quantity over time.
#[derive(Clone, Debug)]
pub struct Series {
    /// Flow or link, as in the tables.
    pub name: String,
    /// The quantity that it shows.
    pub kind: SeriesKind,
    /// (seconds since the start of the run, value).
    pub points: Vec<(f64, f64)>,
}

/// The quantity that a [`Trace`] shows; of flows that of the newest connection's sender, where
/// nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceKind {
    /// Backlog of the bottleneck queues, or of all if the scenario has no bottleneck; bytes.
    Queue,
    /// Backlog of every switch's transmit queue; bytes.
    AllQueues,
    /// Congestion window of the tenant's stack; bytes.
    Cwnd,
    /// Receive window that the tenant's stack goes by: what the peer, or enforcement, lets it see;
    /// bytes.
    Rwnd,
    /// Window that enforcement computes; bytes.
    Enforced,
    /// Slow start threshold of the tenant's stack, from the first cut on; bytes.
    Ssthresh,
    /// Smoothed RTT of the tenant's stack; us.
    Srtt,
    /// Fraction of marked bytes (DCTCP): enforcement's, else that of a tenant with DCTCP; 0..=1.
    Alpha,
    /// Bytes in the network as far as the tenant's stack knows.
    InFlight,
    /// Payload that arrived in order, all connections of the flow together; bit/s.
    Goodput,
}

impl TraceKind {
    /// Every kind with its name on the command line and its name in files and plots.
    pub const ALL: [(Self, &str, &str); 10] = [
        (Self::Queue, "queue", "queue_bytes"),
        (Self::AllQueues, "all_queues", "queue_bytes"),
        (Self::Cwnd, "cwnd", "cwnd_bytes"),
        (Self::Rwnd, "rwnd", "rwnd_bytes"),
        (Self::Enforced, "enforced", "enforced_window_bytes"),
        (Self::Ssthresh, "ssthresh", "ssthresh_bytes"),
        (Self::Srtt, "srtt", "srtt_us"),
        (Self::Alpha, "alpha", "alpha"),
        (Self::InFlight, "in_flight", "in_flight_bytes"),
        (Self::Goodput, "goodput", "goodput_bps"),
    ];

    /// Name in files, with the unit.
    pub fn quantity(self) -> &'static str {
        let known = Self::ALL.iter().find(|(kind, ..)| *kind == self);
        known.map_or("", |(_, _, quantity)| quantity)
    }
}

impl std::str::FromStr for TraceKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, known, _)| *known == name);
        known.map(|(kind, ..)| *kind).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("known: {}{}", names.join(", "), nearest(name, &names))
        })
    }
}

/// A quantity over time, of one run.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// The quantity that it shows.
    pub kind: TraceKind,
    /// Flow or link, as in the tables.
    pub name: String,
    /// (seconds since the start of the run, value in the unit of the kind).
    pub points: Vec<(f64, f64)>,
}

/// Every direction of every link over time, of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Film {
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// Hosts, then switches.
    pub nodes: Vec<FilmNode>,
    /// Both directions of each link, in the order of links.
    pub directions: Vec<FilmDirection>,
    /// Time between frames in ps; the first frame is of that time too.
    pub interval_ps: u64,
    /// Frame by frame, a cell per direction.
    pub cells: Vec<FilmCell>,
}

/// A host or a switch of a [`Film`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilmNode {
    /// Its name.
    pub name: String,
    /// It is a host.
    pub is_host: bool,
}

/// One direction of a link, with the queue that feeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilmDirection {
    /// Name of the link.
    pub link: String,
    /// The node that sends, by its place in [`Film::nodes`].
    pub from: usize,
    /// The node that receives.
    pub to: usize,
    /// Rate in bit/s.
    pub rate_bps: u64,
    /// Bytes that the queue may hold; `None` = a host whose sockets keep it short, or whose adapter
    /// takes whatever comes.
    pub limit_bytes: Option<u64>,
}

/// The activity of one direction between two frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilmCell {
    /// Bytes that left the queue.
    pub sent_bytes: u64,
    /// Bytes in the queue at the end, the packet on its way out included.
    pub queue_bytes: u64,
    /// Time for which a PAUSE (IEEE 802.1Qbb, clause 36) stopped it, in ps.
    pub paused_ps: u64,
    /// Packets dropped by the queue, the link or, at a host, its switch.
    pub drops: u64,
}

impl Film {
    /// Frames, each with its end in seconds since the start of the run.
    pub fn frames(&self) -> impl Iterator<Item = (f64, &[FilmCell])> {
        let frames = self.cells.chunks_exact(self.directions.len().max(1));
        let end_s = |number: usize| number as f64 * self.interval_ps as f64 / 1e12;
        (1..).map(end_s).zip(frames)
    }

    /// `from>to`, as in the tables.
    pub fn direction_name(&self, direction: &FilmDirection) -> String {
        let name = |node: usize| self.nodes.get(node).map_or("?", |node| &node.name);
        format!("{}>{}", name(direction.from), name(direction.to))
    }
}
