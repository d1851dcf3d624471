//! Measurements of queues: the backlogs that arriving packets met, and the counters of ports
//! between two times.

use std::collections::BTreeMap;

use sluicegate_apps::App;
use sluicegate_fabric::{
    cee,
    graph::{HostId, PortId},
    port::{Drop, PortStats},
};
use sluicegate_scenario::{
    experiment::{Node, Variant},
    results::{Deadlock, LinkCee, LinkResult, QueueQuantiles},
};

use sluicegate_vswitch::Place;

use crate::{build::FabricOf, converged::Converged, engine::Engine, net::Net};

/// log2 of the bins per power of two.
const SUB_BITS: u32 = 5;
const BINS: usize = ((48 - SUB_BITS) << SUB_BITS) as usize;

/// Histograms of backlogs by port: exact below 64 bytes, to 3 % above.
pub struct Backlogs(Vec<Option<Box<[u32; BINS]>>>);

impl Backlogs {
    /// For this many ports, none of which is measured yet.
    pub fn new(ports: usize) -> Self {
        let mut histograms = Vec::new();
        histograms.resize_with(ports, || None);
        Self(histograms)
    }

    /// From now on the backlogs of this port are measured.
    pub fn track(&mut self, port: PortId) {
        self.0[port.index()] = Some(Box::new([0; BINS]));
    }

    /// Whether the backlogs of this port are measured.
    #[inline]
    pub fn follows(&self, port: PortId) -> bool {
        self.0[port.index()].is_some()
    }

    /// A packet meets this backlog.
    pub fn met(&mut self, port: PortId, bytes: u64) {
        if let Some(histogram) = &mut self.0[port.index()] {
            histogram[bin(bytes)] += 1;
        }
    }

    /// Of the backlogs that a port's packets met.
    fn quantiles(&self, port: PortId) -> QueueQuantiles {
        let Some(histogram) = &self.0[port.index()] else {
            return QueueQuantiles::default();
        };
        let total: u64 = histogram.iter().map(|&count| u64::from(count)).sum();
        let quantile = |q: f64| {
            let rank = ((q * total as f64).ceil() as u64).max(1);
            let mut seen = 0;
            histogram
                .iter()
                .position(|&count| {
                    seen += u64::from(count);
                    seen >= rank
                })
                .map_or(0.0, |bin| middle(bin) as f64)
        };
        QueueQuantiles {
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: quantile(1.0),
        }
    }
}

fn bin(bytes: u64) -> usize {
    let high = 63 - (bytes | 1).leading_zeros();
    if high <= SUB_BITS {
        return bytes as usize;
    }
    let shift = high - SUB_BITS;
    let bin = (u64::from(shift) << SUB_BITS) + (bytes >> shift);
    (bin as usize).min(BINS - 1)
}

/// The middle of a bin.
fn middle(bin: usize) -> u64 {
    let shift = (bin >> SUB_BITS).saturating_sub(1) as u32;
    if shift == 0 {
        return bin as u64;
    }
    let low = ((bin as u64) - (u64::from(shift) << SUB_BITS)) << shift;
    low + (1 << shift) / 2
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_ascend_and_lie_within_three_percent() {
        let mut last = 0;
        for bytes in (0..2000).chain((11..44).map(|bits| (1u64 << bits) + 12_345)) {
            let bin = bin(bytes);
            assert!(bin >= last, "{bytes}");
            last = bin;
            let error = middle(bin).abs_diff(bytes) as f64;
            assert!(error <= 0.032 * bytes as f64, "{bytes}: {}", middle(bin));
        }
    }
}
