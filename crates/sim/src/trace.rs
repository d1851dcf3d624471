//! Traces: samples of queues and senders, in equal intervals.

use std::{collections::HashMap, net::IpAddr};

use sluicegate_apps::App;
use sluicegate_core::{cc::Algorithm, number::narrow};
use sluicegate_fabric::graph::{HostId, PortId};
use sluicegate_scenario::{
    experiment::Variant,
    inspect,
    results::{Trace, TraceKind},
    workload::{Flow, collect::flow_name},
};
use sluicegate_tcp::endpoint::{Endpoint, State};

use crate::{
    engine::Engine,
    measure::Queue,
    net::{EndId, Known, PacketFabric},
};

/// Points of a series.
type Points = Vec<(f64, f64)>;

/// (sender's address, receiver's address, receiver's port) of a flow.
type Ends = (IpAddr, IpAddr, u16);

/// The series of a run while they grow.
pub struct Traces {
    kinds: Vec<TraceKind>,
    flows: Vec<Followed>,
    by_ends: HashMap<Ends, usize>,
    queues: Vec<(PortId, String, Points)>,
    /// By part: how many ends of connections have been examined.
    seen: Vec<usize>,
    last_s: f64,
}

/// A flow of the scenario.
struct Followed {
    name: String,
    /// Its tenant's stack is DCTCP.
    has_alpha: bool,
    /// The sender's.
    host: HostId,
    /// The sending ends of connections that are not over, the newest last, with what their peers
    /// had received.
    open: Vec<(EndId, u64)>,
    /// One per kind that flows have, in the order of [`Traces::kinds`].
    series: Vec<Points>,
}

impl Traces {
    /// Series that have no points yet.
    pub fn new(
        asked: &inspect::Traces,
        variant: &Variant,
        flows: &[Flow],
        queues: &[Queue],
    ) -> Self {
        let mut kinds = asked.kinds.clone();
        kinds.sort_unstable();
        kinds.dedup();
        let queues = traced_queues(&kinds, queues);
        kinds.retain(|kind| !matches!(kind, TraceKind::Queue | TraceKind::AllQueues));
        let ends = |flow: &Flow| {
            let address = |tenant: usize| variant.tenants[tenant].address;
            (address(flow.from), address(flow.to), flow.port)
        };
        let series = vec![Points::new(); kinds.len()];
        let follow = |flow: &Flow| Followed {
            name: flow_name(variant, flow),
            has_alpha: (variant.tenants[flow.from].congestion_control.parse())
                .is_ok_and(Algorithm::has_alpha),
            host: variant.tenants[flow.from].host,
            open: Vec::new(),
            series: series.clone(),
        };
        Self {
            by_ends: flows.iter().map(ends).zip(0..).collect(),
            flows: flows.iter().map(follow).collect(),
            kinds,
            queues,
            seen: Vec::new(),
            last_s: 0.0,
        }
    }

    /// Takes one sample of everything.
    pub fn sample<F: PacketFabric>(&mut self, engine: &mut Engine<App, F>) {
        let now_s = engine.now_ps() as f64 / 1e12;
        for (port, _, points) in &mut self.queues {
            let backlog = engine.net_of_port(*port).backlog_bytes(*port);
            points.push((now_s, backlog as f64));
        }
        if !self.kinds.is_empty() {
            self.find_connections(engine);
            let since_s = now_s - self.last_s;
            for flow in &mut self.flows {
                flow.sample(&self.kinds, engine, now_s, since_s);
            }
        }
        self.last_s = now_s;
    }

    /// Gives connections that are new to their flows. A flow's sender opens them; at its host they
    /// are in order.
    fn find_connections<F: PacketFabric>(&mut self, engine: &mut Engine<App, F>) {
        for (part, net) in engine.nets().enumerate() {
            if self.seen.len() <= part {
                self.seen.push(0);
            }
            for end in self.seen[part]..net.sockets.len() {
                let key = net.known(narrow::<EndId>(end)).key;
                let ends = (
                    key.local.to_ip(),
                    key.remote.to_ip(),
                    u16::from_be(key.remote_port),
                );
                if let Some(&flow) = self.by_ends.get(&ends) {
                    self.flows[flow].open.push((narrow::<EndId>(end), 0));
                }
            }
            self.seen[part] = net.sockets.len();
        }
    }

    /// The series; those without a point are left out.
    pub fn finish(self) -> Vec<Trace> {
        let trace = |kind, name: String, points| Trace {
            repeat: 1,
            kind,
            name,
            points,
        };
        let queues = self.queues.into_iter();
        let mut all: Vec<Trace> = queues
            .map(|(_, name, points)| trace(TraceKind::Queue, name, points))
            .collect();
        for (at, kind) in self.kinds.into_iter().enumerate() {
            let flows = self.flows.iter();
            all.extend(flows.map(|flow| trace(kind, flow.name.clone(), flow.series[at].clone())));
        }
        all.retain(|trace| !trace.points.is_empty());
        all
    }
}

/// The queues to trace: bottlenecks; all queues if there is no bottleneck, or if `kinds` says so.
fn traced_queues(kinds: &[TraceKind], queues: &[Queue]) -> Vec<(PortId, String, Points)> {
    let some = kinds.contains(&TraceKind::Queue);
    let none_special = !queues.iter().any(|queue| queue.bottleneck);
    let all = kinds.contains(&TraceKind::AllQueues) || some && none_special;
    let followed = queues
        .iter()
        .filter(|queue| all || some && queue.bottleneck);
    followed
        .map(|queue| (queue.port(), queue.name.clone(), Points::new()))
        .collect()
}

impl Followed {
    fn sample<F: PacketFabric>(
        &mut self,
        kinds: &[TraceKind],
        engine: &mut Engine<App, F>,
        now_s: f64,
        since_s: f64,
    ) {
        let received_bytes = self.received(engine);
        let net = engine.net_of_host(self.host);
        let newest = self.open.last().map(|&(end, _)| net.known(end));
        for (kind, points) in kinds.iter().zip(&mut self.series) {
            let value = match (kind, &newest) {
                (TraceKind::Goodput, _) if since_s > 0.0 => {
                    Some(received_bytes as f64 * 8.0 / since_s)
                }
                (_, Some(known)) => value(*kind, known, self.has_alpha),
                _ => None,
            };
            points.extend(value.map(|value| (now_s, value)));
        }
        // After both FINs nothing more arrives.
        self.open.retain(|&(end, _)| {
            let state = net.known(end).tcp.map(Endpoint::state);
            !matches!(state, Some(State::TimeWait | State::Closed))
        });
    }

    /// Bytes that arrived since the last sample.
    fn received<F: PacketFabric>(&mut self, engine: &mut Engine<App, F>) -> u64 {
        let mut bytes = 0;
        for (end, before) in &mut self.open {
            let Some((host, peer)) = engine.net_of_host(self.host).known(*end).peer else {
                continue;
            };
            let tcp = engine.net_of_host(host).known(peer).tcp;
            let received = tcp.map_or(0, |tcp| tcp.stats().received_bytes);
            bytes += received - *before;
            *before = received;
        }
        bytes
    }
}

/// The state of a sender at present.
fn value(kind: TraceKind, known: &Known<'_>, has_alpha: bool) -> Option<f64> {
    let Known { tcp, enforced, .. } = known;
    let of_tcp = |value: fn(&Endpoint) -> u64| tcp.map(|tcp| value(tcp) as f64);
    match kind {
        TraceKind::Cwnd => of_tcp(|tcp| tcp.cwnd().into()),
        TraceKind::Rwnd => of_tcp(Endpoint::snd_wnd),
        TraceKind::InFlight => of_tcp(Endpoint::in_flight),
        TraceKind::Ssthresh => {
            of_tcp(|tcp| tcp.ssthresh().into()).filter(|&bytes| bytes < f64::from(u32::MAX))
        }
        TraceKind::Srtt => of_tcp(Endpoint::srtt_ns)
            .filter(|&ns| ns > 0.0)
            .map(|ns| ns / 1e3),
        TraceKind::Enforced => enforced.map(|flow| flow.enforced_window().into()),
        TraceKind::Alpha => match enforced {
            Some(flow) => Some(flow.cc.alpha()),
            None => tcp.filter(|_| has_alpha).map(Endpoint::alpha),
        },
        TraceKind::Queue | TraceKind::AllQueues | TraceKind::Goodput => None,
    }
}
