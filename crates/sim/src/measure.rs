//! Measurements of queues: the backlogs that arriving packets met, and the counters of ports
//! between two times.

use std::collections::BTreeMap;

use sluicegate_apps::App;
use sluicegate_fabric::{
    cee,
    graph::{HostId, PortId},
    histogram::Histogram,
    port::{Drop, PortStats},
};
use sluicegate_scenario::{
    experiment::{Node, Variant},
    results::{Deadlock, LinkCee, LinkResult, QueueQuantiles},
};

use sluicegate_vswitch::Place;

use crate::{build::FabricOf, converged::Converged, engine::Engine, net::Net};

/// Histograms of backlogs by port.
pub struct Backlogs(Vec<Option<Histogram>>);

impl Backlogs {
    /// For this many ports, none of which is measured yet.
    pub fn new(ports: usize) -> Self {
        let mut histograms = Vec::new();
        histograms.resize_with(ports, || None);
        Self(histograms)
    }

    /// From now on the backlogs of this port are measured.
    pub fn track(&mut self, port: PortId) {
        self.0[port.index()] = Some(Histogram::default());
    }

    /// Whether the backlogs of this port are measured.
    #[inline]
    pub fn follows(&self, port: PortId) -> bool {
        self.0[port.index()].is_some()
    }

    /// A packet meets this backlog.
    pub fn met(&mut self, port: PortId, bytes: u64) {
        if let Some(histogram) = &mut self.0[port.index()] {
            histogram.add(bytes);
        }
    }

    /// Of the backlogs that a port's packets met.
    fn quantiles(&self, port: PortId) -> QueueQuantiles {
        let Some(histogram) = &self.0[port.index()] else {
            return QueueQuantiles::default();
        };
        QueueQuantiles {
            p50: histogram.quantile(0.5),
            p99: histogram.quantile(0.99),
            max: histogram.quantile(1.0),
        }
    }
}

/// Causes of drops that any switch has; others are spoken of where they happened.
const EVERYWHERE: [&str; 3] = ["tail", "not_ect", "red"];

/// A transmit queue that results speak of.
pub struct Queue {
    port: PortId,
    /// `from>to`.
    pub name: String,
    /// The experiment is about it.
    pub bottleneck: bool,
    rate_bps: u64,
    /// The host whose switch feeds it.
    host: Option<HostId>,
}

/// The counters of a queue.
pub struct Counts {
    port: PortStats,
    places: [u64; Place::NAMES.len()],
    cee: Option<CeeCounts>,
}

/// The counters of a queue of converged Ethernet.
#[derive(Clone, Copy)]
struct CeeCounts {
    pauses: u64,
    paused_ps: u64,
    notifications: u64,
    ingress_max_bytes: u64,
}

impl CeeCounts {
    fn of(port: PortId, net: &Net<Converged>) -> Option<Self> {
        let stats = net.cee_stats(port)?;
        Some(Self {
            pauses: stats.pauses,
            paused_ps: net.paused_ps(port),
            notifications: stats.notifications,
            ingress_max_bytes: stats.ingress_max_bytes,
        })
    }

    /// The counters of a port whose ends two parts simulate.
    fn with(self, other: Self) -> Self {
        Self {
            pauses: self.pauses + other.pauses,
            paused_ps: self.paused_ps + other.paused_ps,
            notifications: self.notifications + other.notifications,
            ingress_max_bytes: self.ingress_max_bytes.max(other.ingress_max_bytes),
        }
    }

    fn since(&self, from: &Self) -> LinkCee {
        LinkCee {
            pauses: self.pauses - from.pauses,
            paused_us: (self.paused_ps - from.paused_ps) as f64 / 1e6,
            notifications: self.notifications - from.notifications,
            ingress_max_bytes: self.ingress_max_bytes,
        }
    }
}

/// The transmit queues of the switches and of hosts at links that fail, in the order of links.
pub fn queues(variant: &Variant) -> Vec<Queue> {
    let ports = variant.ports();
    let ports = ports.filter(|&port| has_own_result(variant, port));
    ports.map(|port| Queue::new(variant, port)).collect()
}

/// The transmit queues of the other hosts: results speak of them where they dropped something.
pub fn adapters(variant: &Variant) -> Vec<Queue> {
    let ports = variant.ports();
    let ports = ports.filter(|&port| !has_own_result(variant, port));
    ports.map(|port| Queue::new(variant, port)).collect()
}

/// The transmit queues of switches and hosts, both directions of each link, in the order of links.
pub fn directions(variant: &Variant) -> Vec<Queue> {
    let ports = variant.ports();
    ports.map(|port| Queue::new(variant, port)).collect()
}

/// Whether results always speak of the queue of a port.
fn has_own_result(variant: &Variant, port: PortId) -> bool {
    let (from, _) = variant.ends(port);
    matches!(from, Node::Switch(_)) || variant.fails(port.link())
}

impl Counts {
    /// Bytes that the port has accepted.
    pub fn accepted_bytes(&self) -> u64 {
        self.port.accepted_bytes
    }

    /// Packets dropped, whatever the cause.
    pub fn drops(&self) -> u64 {
        self.port.drops.iter().chain(&self.places).sum()
    }
}

/// A cycle of pauses, by name.
pub fn deadlock(variant: &Variant, found: &cee::Deadlock) -> Deadlock {
    Deadlock {
        repeat: 1,
        priority: found.cycle.first().map_or(0, |stuck| stuck.priority),
        since_s: found.since_ps as f64 / 1e12,
        links: found
            .cycle
            .iter()
            .map(|stuck| variant.port_name(stuck.port))
            .collect(),
        bytes: found.bytes,
        behind: found.behind as u64,
    }
}

impl Queue {
    fn new(variant: &Variant, port: PortId) -> Self {
        let link = &variant.links[port.link()];
        Self {
            port,
            name: variant.port_name(port),
            bottleneck: link.bottleneck && port.is_forward(),
            rate_bps: link.rate_bps,
            host: match variant.ends(port).0 {
                Node::Host(host) => Some(host),
                Node::Switch(_) => None,
            },
        }
    }

    /// The counters of the queue up to now.
    pub fn counts<F: FabricOf>(&self, engine: &mut Engine<App, F>) -> Counts {
        let places = self.host.map(|host| {
            let net = engine.net_of_host(host);
            *net.hosts[host.index()].switch.drops()
        });
        Counts {
            port: engine.stats(self.port),
            places: places.unwrap_or_default(),
            cee: (engine.nets().filter_map(F::converged))
                .filter_map(|net| CeeCounts::of(self.port, net))
                .reduce(CeeCounts::with),
        }
    }

    /// Whether an arriving packet waits for all packets that it meets in the queue. The adapters of
    /// converged Ethernet have a queue for each destination.
    pub fn is_in_order(&self, variant: &Variant) -> bool {
        self.host.is_none() || variant.cee.is_none()
    }

    /// Its port.
    pub fn port(&self) -> PortId {
        self.port
    }

    /// The figures of the queue since `from`.
    pub fn result<F: FabricOf>(&self, engine: &mut Engine<App, F>, from: &Counts) -> LinkResult {
        let Counts {
            port: to,
            places,
            cee: to_cee,
        } = self.counts(engine);
        let (before, from_cee) = (&from.places, &from.cee);
        let by_switch = (0..places.len()).map(|at| (Place::NAMES[at], places[at] - before[at]));
        let from = &from.port;
        let by_port =
            (0..to.drops.len()).map(|at| (Drop::NAMES[at], to.drops[at] - from.drops[at]));
        let drops: BTreeMap<String, u64> = by_port
            .chain(by_switch)
            .filter(|(name, count)| EVERYWHERE.contains(name) || *count > 0)
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        LinkResult {
            id: self.name.clone(),
            bottleneck: self.bottleneck,
            rate_bps: self.rate_bps,
            sent: to.accepted - from.accepted,
            sent_bytes: to.accepted_bytes - from.accepted_bytes,
            drops,
            marks: to.marks - from.marks,
            queue_bytes: engine
                .net_of_port(self.port)
                .observers
                .backlogs
                .as_ref()
                .map_or_else(QueueQuantiles::default, |backlogs| {
                    backlogs.quantiles(self.port)
                }),
            cee: to_cee
                .zip(from_cee.as_ref())
                .map(|(to, from)| to.since(from)),
        }
    }
}
