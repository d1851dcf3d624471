//! A scenario after resolution: names are ids, defaults are filled in, every variant is complete.
//!
//! This is all that a world sees. Hosts, switches and ports have the ids of [`Variant::graph`], all
//! of which index the vectors of the same [`Variant`], as do the numbers of tenants and of links.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use sluicegate_core::{
    aqm::Aqm,
    cc::{Algorithm, Stack},
};
pub use sluicegate_fabric::graph::{HostId, Node, PortId, SwitchId};
use sluicegate_fabric::{Graph, Impairment, Routing, SharedMemory, cee::CeeConfig};
use sluicegate_program::Program;
pub use sluicegate_tcp::config::{CacheWindow, Recovery};

pub use crate::host_switch::{GuestKernel, LabFabric, LabSwitch, Steering};
use crate::{
    host_switch::HostSwitch, hotspot::Hotspot, places::Places, workload::plan::Connections,
};

/// A resolved scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Short name, `[a-z0-9-]+`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// The published figure that this mirrors, if any.
    pub mirrors: Option<String>,
    /// Where the file was read, for messages.
    pub file: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Runs of each variant.
    pub repeats: u32,
    /// Variants in the order of the file.
    pub variants: Vec<Variant>,
    /// Expectations of the results.
    pub expectations: Vec<crate::expect::Expectation>,
    /// Published figures to be shown beside ours.
    pub published: Vec<crate::published::Publication>,
    /// The file as it is run, as TOML: inherited files, short form and seed are merged in.
    pub as_run: String,
    /// Observations beyond the results; no part of the file.
    pub inspect: crate::inspect::Inspect,
}

/// One complete set-up: a network, its tenants, their traffic and its enforcement.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Name of the variant, `[a-z0-9-]+`.
    pub name: String,
    /// One line for tables and reports.
    pub title: String,
    /// Time before measurements count.
    pub warmup: Duration,
    /// Measured time after the warm-up.
    pub duration: Duration,
    /// Internet protocol version of every tenant: 4 or 6.
    pub ip_version: u8,
    /// MTU of every interface in bytes.
    pub mtu_bytes: u32,
    /// Hosts by [`HostId`].
    pub hosts: Vec<Host>,
    /// Tenants (one virtual NIC each); the index is the tenant id.
    pub tenants: Vec<Tenant>,
    /// Physical switches by [`SwitchId`].
    pub switches: Vec<Switch>,
    /// The network is the ideal one to compare with, `topology = "crossbar"`.
    pub is_crossbar: bool,
    /// Full-duplex links; the index is the link id.
    pub links: Vec<Link>,
    /// How switches choose among equal paths.
    pub routing: Routing,
    /// Priorities of converged Ethernet whose frames have another scheme, bit p for priority p.
    pub routings: Vec<(u8, Routing)>,
    /// How long after a link has failed, or works again, switches change their routes; `None` =
    /// they never do.
    pub reroute_delay: Option<Duration>,
    /// Memory that the ports of each switch share; `None` = each has its own.
    pub shared_memory: Option<SharedMemory>,
    /// Switches and adapters are of converged Ethernet; `None` = plain ones, which drop.
    pub cee: Option<CeeConfig>,
    /// Each vNIC of a host has a queue of so many bytes, from which the adapter takes by turns;
    /// `None` = all go into the adapter's queue.
    pub vnic_queue_bytes: Option<u64>,
    /// The switches of hosts have queues and take time; `None` = packets pass through them at once.
    pub host_switch: Option<HostSwitch>,
    /// Traffic in the order of the file; flows are already paired.
    pub traffic: Vec<Traffic>,
    /// Enforcement on hosts, if any.
    pub enforcement: Option<Enforcement>,
    /// Things done to the network or to enforcement while the run goes on.
    pub events: Vec<Event>,
    /// Parts of the run over which goodput is measured by itself.
    pub intervals: Vec<Interval>,
    /// Options that only the lab reads.
    pub lab: LabOptions,
    /// Options that only the simulator reads.
    pub sim: SimOptions,
    /// Where all this is said.
    pub places: Places,
}

/// A server with a virtual switch and one uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Name, unique among hosts.
    pub name: String,
}

/// How a tenant is realised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TenantKind {
    /// A network namespace on the lab's kernel.
    Namespace,
    /// A guest kernel with its own TCP (User-Mode Linux in the lab).
    Guest,
}

/// The operating system whose TCP a tenant runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Linux 6.
    #[default]
    Linux,
    /// FreeBSD 9 with the parameters of the zOVN thesis (Table 2.1).
    Freebsd9,
}

/// The settings of a tenant's TCP beside its congestion control; `None` leaves the profile's value.
/// Only the simulator has more than the default, but for `recovery`, which guests have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Where all other values come from.
    pub profile: Profile,
    /// Repair of losses.
    pub recovery: Option<Recovery>,
    /// An ACK that tells of a further loss gains no segment while PRR reduces a window.
    pub prr_safe: Option<bool>,
    /// Retransmission timeout before the first RTT sample.
    pub rto_initial: Option<Duration>,
    /// Least retransmission timeout.
    pub rto_min: Option<Duration>,
    /// Added to every computed timeout.
    pub rto_slop: Option<Duration>,
    /// Longest delay of an ACK; zero: every segment is acknowledged at once.
    pub delayed_ack: Option<Duration>,
    /// Experience of connections with a peer is kept for the next ones.
    pub connection_cache: Option<bool>,
    /// Connections begin with a window that earlier ones to the same peer had; needs the cache.
    pub connection_cache_window: Option<CacheWindow>,
    /// A window is spread over the RTT instead of sent at once.
    pub pacing: Option<bool>,
    /// Most segments that cross the network as one packet (segmentation offload); 1 = none.
    pub offload_segments: Option<u8>,
}

/// A congestion control that Linux has and core has not.
const FOREIGN: &str = "bbr";

/// Congestion controls that a tenant may have; a world may lack some.
pub fn congestion_controls() -> Vec<&'static str> {
    let stacks = Algorithm::stacks(&[Stack::Linux, Stack::Module, Stack::Ours]);
    stacks.map(Algorithm::name).chain([FOREIGN]).collect()
}

/// The ECN that a tenant offers on connect. It accepts what it offers, and classic ECN always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnOffer {
    /// None.
    #[default]
    None,
    /// RFC 3168.
    Classic,
    /// RFC 9768; a peer without it takes this for classic ECN.
    Accurate,
}

/// A tenant's virtual machine or container.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Name, unique among tenants.
    pub name: String,
    /// Where it lives.
    pub host: HostId,
    /// Address, unique; one prefix of [`Variant::prefix_length`] bits spans all tenants.
    pub address: std::net::IpAddr,
    /// Congestion control of its sockets, one of [`congestion_controls`].
    pub congestion_control: String,
    /// ECN offered on connect.
    pub ecn: EcnOffer,
    /// Namespace or guest.
    pub kind: TenantKind,
    /// Largest receive buffer in bytes; `None` leaves the stack's default.
    pub receive_buffer_bytes: Option<u64>,
    /// Its TCP.
    pub tcp: TcpOptions,
    /// The rate at which its applications read at most, all connections together, in bits per
    /// second; `None` = at once.
    pub read_rate_bps: Option<u64>,
    /// It cheats: whatever windows peers offer, its TCP believes in the largest that sixteen bits
    /// can say.
    pub ignore_window: bool,
}

/// A physical switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    /// Name, unique among switches and hosts.
    pub name: String,
}

/// A full-duplex link. Queue and marking describe the transmit side at each switch end.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name such as `left-right`, unique.
    pub name: String,
    /// One end.
    pub a: Node,
    /// Other end.
    pub b: Node,
    /// Rate in bits per second.
    pub rate_bps: u64,
    /// Bytes a transmit queue may hold before it drops.
    pub queue_bytes: u64,
    /// Marking at the transmit queues.
    pub marking: Aqm,
    /// From the last bit sent to its arrival; `None` = as the world has it.
    pub delay: Option<Duration>,
    /// The impairment of frames on the link, in both directions.
    pub impairment: Impairment,
    /// The experiment is about the queue of this link, in the direction a → b.
    pub bottleneck: bool,
}

/// Enforcement: which policy on which hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Enforcement {
    /// Those that enforce.
    pub hosts: Vec<HostId>,
    /// The policy, already compiled.
    pub policy: sluicegate_policy::Policy,
    /// The same as the text of a policy's file, for what reads one.
    pub policy_text: String,
}

/// Traffic of one `[traffic.NAME]` table.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Name of the table.
    pub name: String,
    /// The kind of traffic.
    pub kind: TrafficKind,
    /// (from tenant id, to tenant id), one per flow or, for request traffic, per client–server
    /// pair.
    pub pairs: Vec<(usize, usize)>,
    /// Start relative to the start of the run (warm-up included).
    pub start: Duration,
    /// End relative to the start of the run; `None` = the end of the run.
    pub stop: Option<Duration>,
    /// First TCP port of the receivers; pair i listens on `port + i`, unless they share ports.
    pub port: u16,
    /// There are more pairs than ports: see [`Traffic::port_numbers`].
    pub shares_ports: bool,
    /// The deadline, which a transfer that takes longer has missed; kinds with completion times
    /// only.
    pub deadline: Option<Duration>,
    /// IEEE 802.1Q priority of its frames, in both directions: 0..=7.
    pub priority: u8,
    /// The scheme that chooses its paths, one whose path values are hashed; `None` = the network's.
    pub routing: Option<Routing>,
    /// The hotspot that it makes, of `kind = "hotspot"`.
    pub hotspot: Option<Hotspot>,
}

/// Kinds of traffic, common to all worlds.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// Each pair sends as much as it can.
    Bulk {
        /// Application's rate limit in bits per second; `None` = none.
        rate_bps: Option<u64>,
    },
    /// Each pair offers a rate that changes with time. What cannot be written at once is sent
    /// later.
    Phased {
        /// In order; none is empty.
        phases: Vec<Phase>,
        /// FCT class of the time until all that was offered has arrived; `None` = it is not
        /// reported.
        class: Option<String>,
    },
    /// A cheat: each pair opens a connection, on which the sender then sends segments of its own
    /// making, as if there were neither windows nor congestion control.
    Blast {
        /// Payload that leaves the tenant, in bits per second.
        rate_bps: u64,
        /// Its sequence numbers: so many bytes from the oldest not acknowledged on, over and over.
        span_bytes: u64,
    },
    /// Each pair's sender sends datagrams (UDP), whatever becomes of them.
    Datagrams {
        /// Payload of a full one.
        bytes: u16,
        /// When they are sent.
        pace: Pace,
        /// Most data that waits at a sender for its adapter, in bytes of payload; its socket drops
        /// the rest.
        socket_buffer_bytes: u64,
    },
    /// A request of `bytes`, an echo of `bytes`, on one connection, over and over: the RTT probe.
    PingPong {
        /// Bytes each way.
        bytes: u64,
        /// Pause between exchanges.
        interval: Duration,
    },
    /// Every pair answers at once: `to` asks all of its `from`s for `bytes`, waits for all, again.
    Incast {
        /// Bytes per answer.
        bytes: u64,
        /// Pause between rounds.
        interval: Duration,
    },
    /// Messages of `bytes` every `interval` from each `from`, sizes fixed: the mice of stride and
    /// shuffle.
    Messages {
        /// Bytes per message.
        bytes: u64,
        /// Time between starts.
        interval: Duration,
        /// FCT class of the results.
        class: String,
    },
    /// Each `from` sends `bytes` to each of its `to`s in random order, `parallel` at a time
    /// (shuffle).
    Shuffle {
        /// Bytes per transfer.
        bytes: u64,
        /// Transfers at a time per sender.
        parallel: u32,
        /// FCT class of the results.
        class: String,
    },
    /// Partition/aggregate: each `from` (an aggregator) asks one server of each rack by lot, which
    /// asks all others of its rack, waits for their answers, and answers then.
    Queries {
        /// Bytes of every answer.
        bytes: u64,
        /// Bytes of every request.
        request_bytes: u64,
        /// So many begin, of all aggregators together; `None` = until the end.
        queries: Option<u64>,
        /// When each aggregator begins one.
        arrivals: Arrivals,
        /// Which connection a request and its answer take.
        connections: Connections,
        /// Tenant ids of the servers, by rack.
        racks: Vec<Vec<usize>>,
        /// By rack, those whom a server asks instead of the other servers; empty = it asks them.
        workers: Vec<Vec<usize>>,
    },
    /// Messages with sizes from a distribution, each to a peer by lot.
    Trace {
        /// Flow sizes.
        sizes: crate::cdf::Cdf,
        /// How much each sender sends.
        load: Load,
        /// Upper bounds in bytes and names of FCT classes, ascending; the last is open.
        classes: Vec<(u64, String)>,
        /// How many go to peers of the sender's rack; `None` = as many as its peers are.
        intra_rack: Option<IntraRack>,
    },
    /// A parallel program. Each pair of ranks that exchange messages has a connection.
    Program {
        /// What its ranks do.
        program: Arc<Program>,
        /// Name of the GOAL file that it was read from.
        file: Option<String>,
        /// Tenant ids by rank.
        tenants: Vec<usize>,
        /// Longer messages wait at their senders until their receives are posted.
        eager_bytes: u64,
        /// Messages are datagrams with so many bytes of payload at most; `None` = connections.
        datagram_bytes: Option<u16>,
        /// No rank begins before the connections of all stand, where a world knows that.
        begins_together: bool,
    },
}

impl TrafficKind {
    /// Whether it is measured by its goodput.
    pub fn is_bulk(&self) -> bool {
        matches!(
            self,
            Self::Bulk { .. } | Self::Phased { .. } | Self::Blast { .. }
        )
    }

    /// Whether it is sent over UDP.
    pub fn is_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams { .. })
    }

    /// Whether it is a parallel program.
    pub fn is_program(&self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// FCT classes that this traffic reports.
    pub fn classes(&self) -> Vec<String> {
        match self {
            Self::Bulk { .. }
            | Self::Blast { .. }
            | Self::PingPong { .. }
            | Self::Program { .. }
            | Self::Datagrams { .. } => Vec::new(),
            Self::Phased { class, .. } => class.iter().cloned().collect(),
            // One answer of one server, and a whole round of all of them.
            Self::Incast { .. } => vec!["answer".to_owned(), "round".to_owned()],
            // A whole query, and one answer of one server to another.
            Self::Queries { .. } => vec!["query".to_owned(), "answer".to_owned()],
            Self::Messages { class, .. } | Self::Shuffle { class, .. } => vec![class.clone()],
            Self::Trace { classes, .. } => classes.iter().map(|(_, name)| name.clone()).collect(),
        }
    }
}

/// When datagrams are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// One after the other at so many bits of payload per second.
    Rate(u64),
    /// Bursts, each at once.
    Bursts {
        /// Bytes of payload of each.
        sizes: Sizes,
        /// When they begin.
        arrivals: Arrivals,
    },
}

/// How large something is each time.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Always so many bytes.
    Fixed(u64),
    /// Drawn.
    Drawn(crate::cdf::Cdf),
}

impl Sizes {
    /// Mean in bytes.
    pub fn mean_bytes(&self) -> f64 {
        match self {
            Self::Fixed(bytes) => *bytes as f64,
            Self::Drawn(cdf) => cdf.mean_bytes(),
        }
    }
}

/// Times from the begin of one thing to the begin of the next.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Always the same; the first within one of them after the start.
    Fixed {
        /// In seconds.
        interval_s: f64,
    },
    /// A Poisson process.
    Exponential {
        /// Mean in seconds.
        mean_s: f64,
    },
    /// Log-normal: ln of a time is normal.
    Lognormal {
        /// Median in seconds.
        median_s: f64,
        /// Standard deviation of ln of a time.
        sigma: f64,
    },
    /// From a distribution of times in ns.
    Drawn {
        /// The distribution.
        cdf: crate::cdf::Cdf,
        /// Times are so much longer.
        factor: f64,
    },
}

impl Arrivals {
    /// Mean in seconds.
    pub fn mean_s(&self) -> f64 {
        match self {
            Self::Fixed { interval_s } => *interval_s,
            Self::Exponential { mean_s } => *mean_s,
            Self::Lognormal { median_s, sigma } => median_s * f64::exp(sigma * sigma / 2.0),
            Self::Drawn { cdf, factor } => cdf.mean_bytes() / 1e9 * factor,
        }
    }

    /// Everything takes so much longer.
    fn stretch(&mut self, factor: f64) {
        match self {
            Self::Fixed { interval_s: time_s }
            | Self::Exponential { mean_s: time_s }
            | Self::Lognormal {
                median_s: time_s, ..
            }
            | Self::Drawn { factor: time_s, .. } => *time_s *= factor,
        }
    }
}

/// A time during which an application offers a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its end, relative to the start of the run; `None` = the end of the traffic.
    pub until: Option<Duration>,
    /// The offered rate, in bits per second.
    pub rate_bps: u64,
}

/// The rule that decides when the next message of a trace begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Open loop: Poisson arrivals that offer so many bits per second.
    Offered(u64),
    /// Open loop: arrivals of each sender.
    Arrivals(Arrivals),
    /// Closed loop: so many at a time, the next when one is complete.
    Concurrent(u32),
}

/// How much of a trace stays in its rack.
#[derive(Clone, Debug, PartialEq)]
pub struct IntraRack {
    /// Fraction of messages, 0..=1.
    pub fraction: f64,
    /// The rack of each tenant, by id: the switch that its host is linked to.
    pub racks: Vec<SwitchId>,
}

/// A part of a run, relative to its start (warm-up included).
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Name of the table.
    pub name: String,
    /// Its begin.
    pub start: Duration,
    /// Its end.
    pub stop: Duration,
}

/// A change while the run goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Relative to the start of the run.
    pub at: Duration,
    /// The action of the event.
    pub action: Action,
}

/// The action of an [`Event`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Enforcement leaves these hosts (programs detached).
    Detach(Vec<HostId>),
    /// The switches clear ECN codepoints from here on.
    BleachEcn,
    /// These links lose what is on them, and carry nothing any more.
    LinkDown(Vec<usize>),
    /// They carry frames again.
    LinkUp(Vec<usize>),
    /// These links do more, or less, to frames.
    Impair {
        /// Link ids.
        links: Vec<usize>,
        /// The change.
        change: ImpairmentChange,
    },
    /// These links send at another rate, in both directions.
    LinkRate {
        /// Link ids.
        links: Vec<usize>,
        /// In bits per second.
        rate_bps: u64,
    },
    /// These hosts stand still: they send nothing, and what arrives waits.
    Pause(Vec<HostId>),
    /// They go on, with what has arrived first.
    Resume(Vec<HostId>),
    /// The adapters of these hosts pause their links, all priorities, whatever they have room for.
    PauseStorm(Vec<HostId>),
    /// They do so no more.
    EndPauseStorm(Vec<HostId>),
    /// The adapters of these hosts obey neither pauses nor congestion notifications.
    Babble(Vec<HostId>),
    /// They obey again.
    EndBabble(Vec<HostId>),
    /// These tenants' applications read at most this much, in bits per second; `None` = at once.
    ReadRate {
        /// Tenant ids.
        tenants: Vec<usize>,
        /// Each tenant's.
        rate_bps: Option<u64>,
    },
}

/// Changes of an [`Impairment`]; `None` leaves the value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImpairmentChange {
    /// [`Impairment::bit_error_rate`].
    pub bit_error_rate: Option<f64>,
    /// [`Impairment::duplicate_rate`].
    pub duplicate_rate: Option<f64>,
    /// [`Impairment::reorder_rate`].
    pub reorder_rate: Option<f64>,
    /// [`Impairment::reorder_delay_ps`].
    pub reorder_delay_ps: Option<u64>,
}

impl ImpairmentChange {
    /// After the change.
    pub fn of(&self, before: &Impairment) -> Impairment {
        Impairment {
            bit_error_rate: self.bit_error_rate.unwrap_or(before.bit_error_rate),
            duplicate_rate: self.duplicate_rate.unwrap_or(before.duplicate_rate),
            reorder_rate: self.reorder_rate.unwrap_or(before.reorder_rate),
            reorder_delay_ps: self.reorder_delay_ps.unwrap_or(before.reorder_delay_ps),
        }
    }

    /// The change that restores everything that this one changes.
    pub fn undone(&self, before: &Impairment) -> Self {
        Self {
            bit_error_rate: self.bit_error_rate.map(|_| before.bit_error_rate),
            duplicate_rate: self.duplicate_rate.map(|_| before.duplicate_rate),
            reorder_rate: self.reorder_rate.map(|_| before.reorder_rate),
            reorder_delay_ps: self.reorder_delay_ps.map(|_| before.reorder_delay_ps),
        }
    }
}

/// Realisation in the lab, never what the experiment is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabOptions {
    /// Segmentation offloads in tenants (off by default: queues then hold packets, not
    /// super-packets).
    pub offloads: bool,
    /// What connects the tenants of a host.
    pub switch: LabSwitch,
    /// What the network between hosts is.
    pub fabric: LabFabric,
    /// What guests boot.
    pub guest_kernel: GuestKernel,
    /// Which CPUs carry packets.
    pub steering: Steering,
    /// The CPU may be what limits a run: it is neither repeated nor slowed down.
    pub accept_cpu_bound: bool,
}

/// Realisation in the simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// From the last bit sent on a link to its arrival.
    pub link_delay: Duration,
    /// From a tenant's stack to its host's adapter.
    pub transmit_delay: Duration,
    /// From the adapter to the tenant's stack.
    pub receive_delay: Duration,
    /// A packet that finds its host's adapter idle leaves up to this much later, drawn uniformly.
    pub jitter: Duration,
    /// And later still, drawn from an exponential distribution with this mean.
    pub jitter_mean: Duration,
    /// The burst that a link sends at once after it was idle, in time of its rate (two full frames
    /// at least), as the lab's token buckets do; zero = a wire, which sends frame after frame.
    pub burst: Duration,
    /// Bulk flows connect up to this much after their time, drawn uniformly: processes that wake at
    /// once do not run at once.
    pub start_spread: Duration,
    /// Time from data at a socket until the process that sleeps there reads them: evenly spaced
    /// quantiles of its distribution, smallest first; empty = it reads at once.
    pub wake: Vec<Duration>,
    /// The amount of data that sockets hand to their host; `None` = as much as the lab's of that
    /// kind of tenant.
    pub sockets: Option<Sockets>,
}

/// How much a socket gives to its host while the adapter is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// As much as Linux's TCP small queues allow each.
    SmallQueues,
    /// Nothing: they wait and take turns.
    Turns,
    /// Whatever its windows allow, as through a virtual NIC that tells it nothing.
    Unlimited,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            link_delay: Duration::from_micros(1),
            transmit_delay: Duration::from_micros(5),
            receive_delay: Duration::from_micros(10),
            jitter: Duration::from_micros(4),
            jitter_mean: Duration::ZERO,
            burst: Duration::ZERO,
            start_spread: Duration::ZERO,
            wake: Vec::new(),
            sockets: None,
        }
    }
}

/// The name of one of these hosts and switches.
pub(crate) fn node_name<'a>(hosts: &'a [Host], switches: &'a [Switch], node: Node) -> &'a str {
    match node {
        Node::Host(host) => &hosts[host.index()].name,
        Node::Switch(switch) => &switches[switch.index()].name,
    }
}

impl Experiment {
    /// Keeps the named variants only, in the order of the file, and the expectations that need no
    /// other. Returns the names of the expectations that were dropped.
    ///
    /// # Errors
    /// The first name that no variant has.
    pub fn select(&mut self, names: &[String]) -> Result<Vec<String>, String> {
        let known = |name: &String| self.variants.iter().any(|variant| variant.name == *name);
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(unknown.clone());
        }
        self.variants
            .retain(|variant| names.contains(&variant.name));
        let measured = |figures: Vec<&crate::figures::Figure>| {
            figures.iter().all(|figure| names.contains(&figure.variant))
        };
        let (kept, dropped) = std::mem::take(&mut self.expectations)
            .into_iter()
            .partition(|e| measured(e.figures()));
        self.expectations = kept;
        self.published.retain(|p| measured(p.figures()));
        let dropped: Vec<crate::expect::Expectation> = dropped;
        Ok(dropped
            .into_iter()
            .map(|expectation| expectation.name)
            .collect())
    }

    /// The same experiment with every rate of links and of traffic multiplied by `factor`.
    /// Thresholds, queue limits and windows stay.
    pub fn scaled(&self, factor: f64) -> Self {
        let mut scaled = self.clone();
        for variant in &mut scaled.variants {
            variant.scale(factor);
        }
        scaled
    }
}

impl Variant {
    fn scale(&mut self, factor: f64) {
        let scale = |rate: &mut u64| *rate = ((*rate as f64 * factor) as u64).max(1);
        for link in &mut self.links {
            scale(&mut link.rate_bps);
        }
        for event in &mut self.events {
            if let Action::LinkRate { rate_bps, .. } = &mut event.action {
                scale(rate_bps);
            }
        }
        for traffic in &mut self.traffic {
            // At half the rate everything takes twice as long.
            traffic.deadline = traffic.deadline.map(|deadline| deadline.div_f64(factor));
            match &mut traffic.kind {
                TrafficKind::Bulk {
                    rate_bps: Some(rate),
                }
                | TrafficKind::Blast { rate_bps: rate, .. }
                | TrafficKind::Trace {
                    load: Load::Offered(rate),
                    ..
                } => scale(rate),
                TrafficKind::Phased { phases, .. } => {
                    phases
                        .iter_mut()
                        .for_each(|p| p.rate_bps = (p.rate_bps as f64 * factor) as u64);
                }
                TrafficKind::Datagrams { pace, .. } => match pace {
                    Pace::Rate(rate_bps) => scale(rate_bps),
                    Pace::Bursts { arrivals, .. } => arrivals.stretch(1.0 / factor),
                },
                TrafficKind::Queries { arrivals, .. } => arrivals.stretch(1.0 / factor),
                TrafficKind::Trace {
                    load: Load::Arrivals(arrivals),
                    ..
                } => arrivals.stretch(1.0 / factor),
                TrafficKind::Messages { interval, .. } => *interval = interval.div_f64(factor),
                // They have no rate of their own. Pauses between exchanges or rounds stay as they
                // are.
                TrafficKind::Bulk { rate_bps: None }
                | TrafficKind::PingPong { .. }
                | TrafficKind::Incast { .. }
                | TrafficKind::Shuffle { .. }
                | TrafficKind::Program { .. }
                | TrafficKind::Trace {
                    load: Load::Concurrent(_),
                    ..
                } => {}
            }
        }
    }

    /// Hosts, switches and links. The first port of a link transmits from `a`, the second from `b`.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.hosts.len() as u32, self.switches.len() as u32);
        for link in &self.links {
            graph.join(link.a, link.b);
        }
        graph
    }

    /// The ports of all links, in the order of links.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = PortId> + use<> {
        PortId::of_links(self.links.len())
    }

    /// The node that transmits at a port of a link, and the node at the far end.
    pub fn ends(&self, port: PortId) -> (Node, Node) {
        let link = &self.links[port.link()];
        match port.is_forward() {
            true => (link.a, link.b),
            false => (link.b, link.a),
        }
    }

    /// The name of one direction of a link: `from>to`.
    pub fn port_name(&self, port: PortId) -> String {
        let (from, to) = self.ends(port);
        format!("{}>{}", self.node_name(from), self.node_name(to))
    }

    /// Whether a link loses or changes frames at any time.
    pub fn fails(&self, link: usize) -> bool {
        let meant = |event: &Event| match &event.action {
            Action::LinkDown(links) | Action::Impair { links, .. } => links.contains(&link),
            _ => false,
        };
        !self.links[link].impairment.is_none() || self.events.iter().any(meant)
    }

    /// Whether a tenant does what a standards-following stack never does.
    pub fn has_cheats(&self) -> bool {
        let blasts = |traffic: &Traffic| matches!(traffic.kind, TrafficKind::Blast { .. });
        self.tenants.iter().any(|tenant| tenant.ignore_window) || self.traffic.iter().any(blasts)
    }

    /// Name of an end of a link.
    pub fn node_name(&self, node: Node) -> &str {
        node_name(&self.hosts, &self.switches, node)
    }

    /// Name of a host.
    pub fn host_name(&self, host: HostId) -> &str {
        self.node_name(Node::Host(host))
    }

    /// Bits of the prefix that spans all tenants.
    pub fn prefix_length(&self) -> u8 {
        if self.ip_version == 4 { 8 } else { 64 }
    }
}
