//! The instructions of a tenant ([`Plan`]) and its observations ([`Report`]).
//!
//! Both travel as JSON between the lab and a tenant's process (pipes) or guest (files), so they
//! hold nothing that only one side understands: times are nanoseconds after the start of the run
//! (which the lab gives separately, as CLOCK_REALTIME, once everybody is ready), sizes are bytes,
//! flows are ids that [`super::flows`] explains.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sluicegate_core::number::index;
use sluicegate_fabric::Routing;
use sluicegate_program::Rank;

/// Everything that one tenant needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the tenant in the scenario.
    pub tenant: String,
    /// Its own address.
    pub address: std::net::IpAddr,
    /// Bits of the prefix that spans all tenants.
    pub prefix_length: u8,
    /// MTU of its interface in bytes (a guest sets it itself).
    pub mtu_bytes: u32,
    /// Kernel parameters of its network namespace: name with dots, value.
    pub sysctls: Vec<(String, String)>,
    /// Receive buffer of its UDP sockets in bytes (the kernel doubles it for what it keeps beside
    /// payload); `None` leaves the world's default. The simulator's sockets take what comes.
    #[serde(default)]
    pub datagram_buffer_bytes: Option<u64>,
    /// Congestion control of every socket, by the name that the tenant's kernel knows.
    pub congestion_control: String,
    /// Send a known pattern and compare every byte on arrival (costs CPU; off in measurements).
    pub verify: bool,
    /// Start of the measured window, ns after the start of the run.
    pub measure_begin_ns: u64,
    /// End of the measured window, ns after the start of the run.
    pub measure_end_ns: u64,
    /// Tenants stop here, ns after the start of the run.
    pub stop_ns: u64,
    /// Width of a bin of the goodput series in ns.
    pub series_interval_ns: u64,
    /// Time between samples of the congestion window in ns.
    pub cwnd_interval_ns: u64,
    /// The roles that it plays, all at once.
    pub roles: Vec<Role>,
    /// IEEE 802.1Q priority of each role's frames, 0..=7, by its place in `roles`; 0 for those
    /// behind the last.
    #[serde(default)]
    pub priorities: Vec<u8>,
    /// By the same place, the routing scheme of each role's frames as its place in
    /// [`Routing::NAMES`]; `None` = the network's.
    #[serde(default)]
    pub routings: Vec<Option<u8>>,
}

impl Plan {
    /// Whether something begun at this time counts.
    pub fn measures(&self, at_ns: u64) -> bool {
        (self.measure_begin_ns..self.measure_end_ns).contains(&at_ns)
    }

    /// Priority of the frames of `roles[role]`, 0..=7.
    pub fn priority(&self, role: usize) -> u8 {
        self.priorities.get(role).copied().unwrap_or(0)
    }

    /// The scheme that chooses the paths of the frames of `roles[role]`; `None` = the network's.
    pub fn routing(&self, role: usize) -> Option<Routing> {
        let place = self.routings.get(role).copied().flatten()?;
        let named = Routing::NAMES.get(usize::from(place));
        named.map(|&(_, routing)| routing)
    }

    /// When a congestion window sampled now is sampled next; one sample falls on the begin of the
    /// measured window.
    pub fn next_sample_ns(&self, now_ns: u64) -> u64 {
        let next_ns = now_ns + self.cwnd_interval_ns;
        if now_ns < self.measure_begin_ns {
            next_ns.min(self.measure_begin_ns)
        } else {
            next_ns
        }
    }
}

/// Active time of a role, ns after the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Nothing is connected or sent before.
    pub begin_ns: u64,
    /// Nothing is sent after.
    pub end_ns: u64,
}

/// One application of a tenant. A role with a `port` listens; a role with a peer connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum Role {
    /// Sends as much as it can, or `rate_bps`, on one connection.
    Source {
        /// Flow id.
        flow: u32,
        /// The sink.
        peer: SocketAddr,
        /// Application's limit in bit/s.
        rate_bps: Option<u64>,
        /// When.
        span: Span,
    },
    /// Offers what its phases say on one connection; sends later what cannot be written at once,
    /// and closes when all is sent.
    PhasedSource {
        /// Flow id.
        flow: u32,
        /// The sink; a message sink if there is a `class`.
        peer: SocketAddr,
        /// In order.
        phases: Vec<Phase>,
        /// FCT class of the whole as one message.
        class: Option<String>,
        /// When it offers.
        span: Span,
    },
    /// Sends bursts of datagrams (UDP).
    DatagramSource {
        /// Flow id.
        flow: u32,
        /// The sink.
        peer: SocketAddr,
        /// Payload of a full datagram.
        bytes: u16,
        /// When it sends how much.
        bursts: Bursts,
        /// Most data that waits for the adapter, in bytes of payload.
        socket_buffer_bytes: u64,
        /// When.
        span: Span,
    },
    /// Receives datagrams and counts.
    DatagramSink {
        /// Flow id.
        flow: u32,
        /// UDP port.
        port: u16,
    },
    /// Begins queries: asks servers, each of which asks others before it answers.
    Aggregator {
        /// Flow id that stands for all of its connections.
        flow: u32,
        /// The servers.
        servers: Vec<SocketAddr>,
        /// The queries and their servers, in order of time.
        queries: Vec<Query>,
        /// Sizes of messages.
        sizes: QuerySizes,
        /// How connections are chosen.
        connections: Connections,
    },
    /// Answers: another server at once, an aggregator when all other servers of the rack have
    /// answered.
    QueryServer {
        /// Flow id that stands for all connections that it opens.
        flow: u32,
        /// TCP port.
        port: u16,
        /// The other servers of its rack.
        others: Vec<SocketAddr>,
        /// Sizes of messages.
        sizes: QuerySizes,
        /// How connections are chosen.
        connections: Connections,
    },
    /// Connects, then sends segments of its own making through a raw socket, at `rate_bps` of
    /// payload.
    Blaster {
        /// Flow id.
        flow: u32,
        /// The sink.
        peer: SocketAddr,
        /// Payload in bit/s.
        rate_bps: u64,
        /// Sequence numbers from the oldest not acknowledged on that it sends over and over.
        span_bytes: u64,
        /// When.
        span: Span,
    },
    /// Receives and counts.
    Sink {
        /// Flow id.
        flow: u32,
        /// TCP port.
        port: u16,
    },
    /// Sends `bytes`, waits for `bytes`, pauses, over and over on one connection.
    PingClient {
        /// Flow id.
        flow: u32,
        /// The echo server.
        peer: SocketAddr,
        /// Bytes each way, ≥ 1.
        bytes: u64,
        /// Pause after an answer in ns; 0 = none.
        interval_ns: u64,
        /// When.
        span: Span,
    },
    /// Returns what it receives once `bytes` are there.
    Echo {
        /// Flow id.
        flow: u32,
        /// TCP port.
        port: u16,
        /// Bytes each way, ≥ 1.
        bytes: u64,
    },
    /// Waits for its responders to connect, asks all of them for `bytes` at once, waits for all,
    /// pauses.
    IncastRequester {
        /// Flow id and port of each responder.
        responders: Vec<(u32, u16)>,
        /// Bytes per answer.
        bytes: u64,
        /// Pause after a round in ns.
        interval_ns: u64,
        /// When.
        span: Span,
    },
    /// Connects to the requester and answers its requests.
    IncastResponder {
        /// Flow id.
        flow: u32,
        /// The requester.
        peer: SocketAddr,
        /// Bytes per answer.
        bytes: u64,
        /// When.
        span: Span,
    },
    /// Sends messages at given times, each to one peer, over persistent connections.
    MessageSource {
        /// Flow id and address of each peer.
        peers: Vec<(u32, SocketAddr)>,
        /// The messages to send, in order of time.
        schedule: Schedule,
        /// How connections are chosen.
        connections: Connections,
        /// Names of classes that [`Arrival::class`] indexes.
        classes: Vec<String>,
        /// When.
        span: Span,
    },
    /// Receives messages on any number of connections, acknowledges each, and keeps their
    /// completion times.
    MessageSink {
        /// Flow id.
        flow: u32,
        /// TCP port.
        port: u16,
        /// Names of classes, as at the source.
        classes: Vec<String>,
    },
    /// A rank of a parallel program. Of a pair the lower rank connects.
    Rank {
        /// Index of its traffic.
        traffic: u32,
        /// Its number in the program.
        rank: u32,
        /// TCP port.
        port: u16,
        /// The ranks that it exchanges messages with, in order.
        partners: Vec<Partner>,
        /// Messages are datagrams of so many bytes of payload at most, and it listens on `port` + i
        /// for rank i; `None` = a connection with each partner.
        #[serde(default)]
        datagram_bytes: Option<u16>,
        /// Longer messages wait until their receives are posted.
        eager_bytes: u64,
        /// What it does.
        #[serde(with = "shared")]
        operations: Arc<Rank>,
        /// Which messages it receives depends on times, and so whether its receives have room.
        #[serde(default)]
        checks_sizes: bool,
        /// When it begins.
        span: Span,
        /// Not before the connections of all ranks stand, in a world that knows that.
        #[serde(default)]
        begins_together: bool,
    },
}

/// A rank that another exchanges messages with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partner {
    /// Its number in the program.
    pub rank: u32,
    /// Flow id of the pair.
    pub flow: u32,
    /// Where it listens.
    pub address: SocketAddr,
}

/// What roles share is written as their own.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        shared: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (**shared).serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// A time during which an application offers a constant rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Its end, ns after the start of the run.
    pub until_ns: u64,
    /// In bit/s.
    pub rate_bps: u64,
}

/// Bytes of the messages of queries, ≥ 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuerySizes {
    /// A request's.
    pub request_bytes: u64,
    /// An answer's.
    pub answer_bytes: u64,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// When it begins, ns after the start of the run.
    pub at_ns: u64,
    /// Whom it asks, of each rack one: indices of servers.
    pub servers: Vec<u32>,
}

/// When a sender of datagrams sends how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pace", rename_all = "kebab-case")]
pub enum Bursts {
    /// A datagram after the other.
    Rate {
        /// Payload in bit/s.
        rate_bps: u64,
        /// Time of the first after the begin of the span.
        phase_ns: u64,
    },
    /// These.
    Listed {
        /// (ns after the start of the run, bytes of payload), in order of time.
        bursts: Vec<(u64, u64)>,
    },
}

impl Bursts {
    /// Burst `number` of a sender whose full datagrams hold `bytes`: (ns after the start of the
    /// run, bytes of payload); `None` at its end.
    pub fn burst(&self, number: u64, bytes: u16, span: Span) -> Option<(u64, u64)> {
        let burst = match self {
            Self::Rate { rate_bps, phase_ns } => {
                let bit_ns = u128::from(number) * u128::from(bytes) * 8_000_000_000;
                let after_ns = u64::try_from(bit_ns / u128::from((*rate_bps).max(1)));
                let at_ns = (span.begin_ns + phase_ns).saturating_add(after_ns.unwrap_or(u64::MAX));
                (at_ns, bytes.into())
            }
            Self::Listed { bursts } => *bursts.get(number as usize)?,
        };
        Some(burst).filter(|(at_ns, _)| *at_ns < span.end_ns)
    }
}

/// When messages start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schedule", rename_all = "kebab-case")]
pub enum Schedule {
    /// Open loop: `bytes` every `interval_ns` to each peer in turn, the first after `phase_ns`.
    Periodic {
        /// Bytes per message.
        bytes: u64,
        /// Time between starts.
        interval_ns: u64,
        /// Time of the first after the begin of the span.
        phase_ns: u64,
    },
    /// Open loop: these arrivals.
    Open {
        /// In order of time.
        arrivals: Vec<Arrival>,
    },
    /// Closed loop: these in this order, at most `parallel` at a time, then again.
    Closed {
        /// The messages and their receivers.
        transfers: Vec<Transfer>,
        /// Transfers at a time.
        parallel: u32,
    },
}

impl Schedule {
    /// Message `number` of an open loop to `peers` peers; `None` at its end.
    pub fn arrival(&self, number: u64, span: Span, peers: usize) -> Option<Arrival> {
        match self {
            Self::Open { arrivals } => arrivals.get(number as usize).copied(),
            Self::Periodic {
                bytes,
                interval_ns,
                phase_ns,
            } => Some(Arrival {
                at_ns: span.begin_ns + phase_ns + number * interval_ns,
                peer: (number % peers.max(1) as u64) as u32,
                bytes: *bytes,
                class: 0,
            }),
            Self::Closed { .. } => None,
        }
        .filter(|arrival| arrival.at_ns < span.end_ns)
    }

    /// Transfer `number` of a closed loop, begun now; the order repeats until the end.
    pub fn transfer(&self, number: u64, span: Span, now_ns: u64) -> Option<Arrival> {
        let Self::Closed { transfers, .. } = self else {
            return None;
        };
        if now_ns >= span.end_ns || transfers.is_empty() {
            return None;
        }
        let transfer = transfers[(number % transfers.len() as u64) as usize];
        Some(Arrival {
            at_ns: now_ns,
            peer: transfer.peer,
            bytes: transfer.bytes,
            class: transfer.class,
        })
    }
}

/// One message of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Index of the peer.
    pub peer: u32,
    /// Size.
    pub bytes: u64,
    /// Index of the class.
    pub class: u16,
}

/// One message of an open-loop schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// ns after the start of the run.
    pub at_ns: u64,
    /// Index of the peer.
    pub peer: u32,
    /// Size.
    pub bytes: u64,
    /// Index of the class.
    pub class: u16,
}

/// Which connection a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connections {
    /// One per peer for the whole run; a message waits behind the one before it.
    One,
    /// An idle one to that peer, or a new one when all are busy.
    Pool,
    /// A new one for each message, closed afterwards.
    PerMessage,
}

/// The observations of a tenant. Absent parts are empty, never invented.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the tenant.
    pub tenant: String,
    /// Kernel release that it ran on.
    pub kernel: String,
    /// Everything that went wrong, one line each; empty in a clean run.
    pub errors: Vec<String>,
    /// Connections that sent in bulk or in answers, seen from their sender.
    pub senders: Vec<SenderReport>,
    /// Payload counted by receivers.
    pub receivers: Vec<ReceiverReport>,
    /// Ping-pong probes.
    pub rtts: Vec<RttReport>,
    /// How late the process was at each request of a probe that it answered, in us: from the
    /// request's arrival at the tenant's interface until it was read.
    #[serde(default)]
    pub wakes_us: Vec<f64>,
    /// Completion times: classes of the scenario, and `answer` and `round` of incasts.
    pub completions: Vec<CompletionReport>,
    /// Ranks of parallel programs.
    #[serde(default)]
    pub ranks: Vec<RankReport>,
    /// Counters of senders of datagrams.
    #[serde(default)]
    pub datagrams_sent: Vec<DatagramsSent>,
    /// Counters of receivers of datagrams.
    #[serde(default)]
    pub datagrams_received: Vec<DatagramsReceived>,
    /// Ports whose socket was full over the run, and for how many datagrams.
    #[serde(default)]
    pub overruns: Vec<(u16, u64)>,
    /// Change of the kernel's `Tcp:` and `TcpExt:` counters over the measured window; zeros left
    /// out.
    pub netstat: BTreeMap<String, u64>,
    /// CPU time of the tenant's process over the whole run in µs.
    pub cpu_us: u64,
    /// A guest's realtime clock minus the lab's in ns (already taken into account); `None` in
    /// namespaces.
    pub clock_offset_ns: Option<i64>,
}

/// A sender's view of one flow (`TCP_INFO`). Counters cover the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SenderReport {
    /// Flow id.
    pub flow: u32,
    /// Local port of the connection.
    pub local_port: u16,
    /// Congestion control that the kernel reports for the socket.
    pub congestion_control: String,
    /// Classic ECN was negotiated.
    pub ecn: bool,
    /// Sender's segment size in bytes.
    pub mss_bytes: u32,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Retransmission timeouts; `None` on kernels before 6.7, which do not count them per socket.
    pub timeouts: Option<u64>,
    /// D-SACKs received.
    pub dsack_duplicates: u64,
    /// Reordering events seen.
    pub reordering: u64,
    /// Segments that the peer reported as CE-marked.
    pub delivered_ce: u64,
    /// Payload acknowledged in bytes.
    pub acked_bytes: u64,
    /// Smoothed RTT at the end in µs.
    pub srtt_us: u64,
    /// Minimum RTT in µs.
    pub min_rtt_us: u64,
    /// Time limited by the peer's window in µs.
    pub rwnd_limited_us: u64,
    /// (seconds after the start of the run, congestion window in bytes), over the whole run.
    pub cwnd: Vec<(f64, u64)>,
    /// (seconds after the start of the run, window in bytes that the peer, or enforcement, last
    /// granted).
    pub peer_window: Vec<(f64, u64)>,
}

/// A receiver's view of one flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Flow id.
    pub flow: u32,
    /// Payload received over the whole run.
    pub total_bytes: u64,
    /// Payload received in the measured window.
    pub measured_bytes: u64,
    /// (seconds after the start of the run at the bin's end, bytes in the bin), over the whole run.
    pub series: Vec<(f64, u64)>,
    /// Payload compared with the pattern and found equal; 0 without [`Plan::verify`].
    pub verified_bytes: u64,
    /// Longest time in ns within the measured window in which nothing arrived.
    #[serde(default)]
    pub longest_gap_ns: u64,
}

/// A sender's view of datagrams, of those sent in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramsSent {
    /// Flow id.
    pub flow: u32,
    /// (datagrams, bytes of payload) that its socket had taken before the measured window.
    pub before: (u64, u64),
    /// (datagrams, bytes of payload) that its socket took in it.
    pub sent: (u64, u64),
    /// (datagrams, bytes of payload) that found its socket full.
    pub socket_drops: (u64, u64),
    /// (datagrams, bytes of payload) of those sent that were under way when the run ended, in its
    /// socket or behind it; `None` where nobody knows.
    #[serde(default)]
    pub underway: Option<(u64, u64)>,
}

/// A receiver's view of datagrams, of those sent in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramsReceived {
    /// Flow id.
    pub flow: u32,
    /// (datagrams, bytes of payload) received.
    pub received: (u64, u64),
    /// (datagrams, bytes of payload) of its socket up to the latest of them that was received;
    /// `None` = none was.
    pub latest: Option<(u64, u64)>,
    /// Those of its socket that were received, whenever sent; it stays in the process.
    #[serde(skip)]
    pub arrived: Numbers,
}

/// Words of [`Numbers`] that one number adds at most: 8 MB, 67 million numbers.
const FAR: usize = 1 << 20;

/// A set of numbers that come nearly in order from 0 on. After the first one out of order each has
/// a bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// All below are there.
    upto: u64,
    near: Vec<u64>,
    /// Those that were too far ahead to have a bit.
    far: BTreeSet<u64>,
}

impl Numbers {
    /// Adds a number; false if it was there.
    #[inline]
    pub fn add(&mut self, number: u64) -> bool {
        if number == self.upto && self.near.is_empty() && self.far.is_empty() {
            self.upto += 1;
            return true;
        }
        number >= self.upto && self.add_out_of_order(number)
    }

    #[cold]
    fn add_out_of_order(&mut self, number: u64) -> bool {
        if self.far.contains(&number) {
            return false;
        }
        let word = index(number / 64);
        if word >= self.near.len() {
            if word - self.near.len() >= FAR {
                return self.far.insert(number);
            }
            self.near.resize(word + 1, 0);
        }
        let bit = 1 << (number % 64);
        let is_new = self.near[word] & bit == 0;
        self.near[word] |= bit;
        is_new
    }

    /// Whether a number is there.
    pub fn has(&self, number: u64) -> bool {
        let bits = self.near.get(index(number / 64));
        let is_near = bits.is_some_and(|bits| bits & 1 << (number % 64) != 0);
        number < self.upto || is_near || self.far.contains(&number)
    }
}

/// The times of a rank of a parallel program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Index of its traffic.
    pub traffic: u32,
    /// Its number in the program.
    pub rank: u32,
    /// All its connections stand.
    #[serde(default)]
    pub is_connected: bool,
    /// When it began; `None` = not yet.
    pub begin_ns: Option<u64>,
    /// By operation.
    pub times: Vec<OperationTimes>,
    /// Messages that have arrived and that no receive has taken.
    #[serde(default)]
    pub unreceived: u64,
    /// The first few of them: the rank that sent it, and its operation.
    #[serde(default)]
    pub untaken: Vec<(u32, u32)>,
}

/// When an operation began and ended, in ns after the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationTimes {
    /// [`u64::MAX`] = not yet.
    pub begin_ns: u64,
    /// [`u64::MAX`] = not yet.
    pub end_ns: u64,
    /// The operation of the same rank that let it begin last; [`u32::MAX`] = none.
    pub after: u32,
    /// The other end of its message, rank and operation, if it waited for that: of a receive that
    /// was there before its message the send, of a long send whose receive came late the receive.
    pub partner: Option<(u32, u32)>,
}

impl Default for OperationTimes {
    fn default() -> Self {
        Self {
            begin_ns: u64::MAX,
            end_ns: u64::MAX,
            after: u32::MAX,
            partner: None,
        }
    }
}

/// Samples of one ping-pong probe, exchanges begun in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttReport {
    /// Flow id.
    pub flow: u32,
    /// RTT of each exchange in µs.
    pub samples_us: Vec<f64>,
    /// Age in µs of the exchange that was still open at the end: a lower bound of its RTT.
    pub outstanding_us: Option<f64>,
}

/// Completion times of one class on one flow, messages begun in the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionReport {
    /// Flow id; for incast rounds the first responder's.
    pub flow: u32,
    /// Class of the results.
    pub class: String,
    /// How many were begun, as their sender counts them; 0 from a receiver.
    pub begun: u64,
    /// Time of each that is complete, in µs.
    pub samples_us: Vec<f64>,
    /// How long each has taken that was not complete at the end of the run, in µs, as far as its
    /// sender knows; [`NEVER_US`] on a connection that broke.
    pub open_us: Vec<f64>,
}

/// Time in µs of what will never be complete. Finite, so that JSON has it.
pub const NEVER_US: f64 = f64::MAX;

/// For [`CompletionReport::open_us`]: time in µs of what was begun and is open now, perhaps for
/// ever.
pub fn open_us(begin_ns: u64, now_ns: u64, broken: bool) -> f64 {
    if broken {
        return NEVER_US;
    }
    now_ns.saturating_sub(begin_ns) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once_however_far_it_is() {
        let mut numbers = Numbers::default();
        let far = 64 * FAR as u64;
        let order = [
            0,
            1,
            0,
            3,
            2,
            2,
            64,
            63,
            far + 200,
            u64::MAX,
            far,
            far + 200,
            3,
        ];
        let new = order.map(|number| numbers.add(number));
        let not_new: Vec<usize> = (0..order.len()).filter(|at| !new[*at]).collect();
        assert_eq!(not_new, [2, 5, 11, 12]);
        assert!(order.iter().all(|number| numbers.has(*number)));
        let others = [4, 5, 65, far + 1, far + 201, u64::MAX - 1];
        assert!(others.iter().all(|number| !numbers.has(*number)));
        assert_eq!(numbers.far.len(), 2);
    }
}
