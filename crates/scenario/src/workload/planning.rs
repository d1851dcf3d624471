//! Turns a variant into one [`Plan`] per tenant. Every random choice is made here, from the seed,
//! so that tenants only follow a schedule.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

mod arrivals;
mod datagrams;
mod programs;
mod queries;
mod trace;

use super::plan::{self, Connections, Plan, Role, Schedule, Span, Transfer};
use crate::experiment::{EcnOffer, Phase, Tenant, Traffic, TrafficKind, Variant};
use rand::{RngExt, seq::SliceRandom};
use rand_pcg::Pcg64;
use sluicegate_config::{Problem, problem::Complaint};
use sluicegate_fabric::Routing;

/// Largest number of arrivals that one sender of a trace may have; a plan stays below about 100 MB.
const MAX_ARRIVALS: f64 = 2e6;

/// Keys of traffic that say how often something arrives.
const ARRIVAL_KEYS: [&str; 3] = ["arrivals", "interval", "load"];

/// Largest width of a bin of the goodput series; a short run has at least so many.
const SERIES_INTERVAL: Duration = Duration::from_millis(50);
const SERIES_BINS: u32 = 100;

/// Longest time between samples of the congestion window; a short run has at least so many.
const CWND_INTERVAL: Duration = Duration::from_millis(16);
const CWND_SAMPLES: u32 = 400;

/// One connection (or client–server pair) of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Number within the variant; the index in [`flows`].
    pub id: u32,
    /// Index in [`Variant::traffic`].
    pub traffic: usize,
    /// Tenant id of the sender of payload (the client of a ping-pong).
    pub from: usize,
    /// Tenant id of the receiver, which listens.
    pub to: usize,
    /// TCP port at the receiver.
    pub port: u16,
}

/// All flows of a variant, in the order of its traffic and pairs.
pub fn flows(variant: &Variant) -> Vec<Flow> {
    let traffic = variant.traffic.iter().enumerate();
    let pairs = traffic.flat_map(|(index, traffic)| {
        let ports = traffic.port_numbers().into_iter();
        let ports = ports.map(|number| u16::try_from(number).unwrap_or(u16::MAX));
        let ports = ports.map(|number| traffic.port.wrapping_add(number));
        let pairs = traffic.pairs.iter().zip(ports);
        pairs.map(move |(pair, port)| (index, *pair, port))
    });
    (0..)
        .zip(pairs)
        .map(|(id, (traffic, (from, to), port))| Flow {
            id,
            traffic,
            from,
            to,
            port,
        })
        .collect()
}

/// One plan per tenant, in the order of [`Variant::tenants`].
///
/// [`Plan::congestion_control`] is the scenario's name. A world that provides the stack under
/// another name of the kernel (struct_ops) replaces it.
///
/// # Errors
/// More than two million messages per sender or ports beyond 65535.
pub fn plans(variant: &Variant, seed: u64) -> Result<Vec<Plan>, Problem> {
    let mut plans: Vec<Plan> = variant
        .tenants
        .iter()
        .map(|tenant| empty_plan(variant, tenant))
        .collect();
    let flows = flows(variant);
    for (index, traffic) in variant.traffic.iter().enumerate() {
        let own: Vec<&Flow> = flows.iter().filter(|flow| flow.traffic == index).collect();
        if traffic.port_range().end > 65_536 {
            let path = format!("traffic.{}.port", traffic.name);
            let (port, ports) = (traffic.port, traffic.ports());
            let reason = format!("port {port} + {ports} ports passes 65535");
            return Err(variant.places.problem(&path, &reason, "lower the port"));
        }
        let mut planner = Planner {
            variant,
            traffic,
            flows: &own,
            by_sender: grouped(&own, |flow| flow.from),
            plans: &mut plans,
            rng: rng(seed, index),
        };
        planner.add().map_err(|complaint| {
            let table = format!("traffic.{}", traffic.name);
            let path = variant.places.first_of(&table, &ARRIVAL_KEYS);
            let places = &variant.places;
            places.problem(&path, &complaint.reason, &complaint.advice)
        })?;
    }
    Ok(plans)
}

/// An own stream per traffic table, so that adding one does not change the others.
fn rng(seed: u64, traffic: usize) -> Pcg64 {
    Pcg64::new(u128::from(seed), traffic as u128)
}

fn empty_plan(variant: &Variant, tenant: &Tenant) -> Plan {
    let end = variant.warmup + variant.duration;
    Plan {
        tenant: tenant.name.clone(),
        address: tenant.address,
        prefix_length: variant.prefix_length(),
        mtu_bytes: variant.mtu_bytes,
        sysctls: sysctls(tenant),
        datagram_buffer_bytes: tenant.receive_buffer_bytes,
        congestion_control: tenant.congestion_control.clone(),
        verify: false,
        measure_begin_ns: ns(variant.warmup),
        measure_end_ns: ns(end),
        stop_ns: ns(end),
        series_interval_ns: ns(SERIES_INTERVAL.min(end / SERIES_BINS)),
        cwnd_interval_ns: ns(CWND_INTERVAL.min(end / CWND_SAMPLES)),
        roles: Vec::new(),
        priorities: Vec::new(),
        routings: Vec::new(),
    }
}

/// Parameters of the tenant's stack. `tcp_ecn` 1 offers ECN, 2 (Linux's default) only accepts it, 3
/// offers AccECN (Linux 6.18); DCTCP offers by itself. Metrics of earlier runs must not leak into
/// this one.
fn sysctls(tenant: &Tenant) -> Vec<(String, String)> {
    let mut list = vec![
        (
            "net.ipv4.tcp_ecn".into(),
            match tenant.ecn {
                EcnOffer::None => "2",
                EcnOffer::Classic => "1",
                EcnOffer::Accurate => "3",
            }
            .into(),
        ),
        ("net.ipv4.tcp_no_metrics_save".into(), "1".into()),
    ];
    if let Some(bytes) = tenant.receive_buffer_bytes {
        let default = bytes.min(131_072);
        list.push((
            "net.ipv4.tcp_rmem".into(),
            format!("4096 {default} {}", bytes.max(4096)),
        ));
    }
    list
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Distributes the roles of one traffic table.
struct Planner<'a> {
    variant: &'a Variant,
    traffic: &'a Traffic,
    flows: &'a [&'a Flow],
    /// Those of each sender, in the order in which senders first appear.
    by_sender: Vec<(usize, Vec<&'a Flow>)>,
    plans: &'a mut [Plan],
    rng: Pcg64,
}

impl Planner<'_> {
    fn add(&mut self) -> Result<(), Complaint> {
        match &self.traffic.kind {
            TrafficKind::Bulk { rate_bps } => self.bulk(*rate_bps),
            TrafficKind::Phased { phases, class } => self.phased(phases, class.as_deref()),
            TrafficKind::Datagrams {
                bytes,
                pace,
                socket_buffer_bytes,
            } => return self.datagrams(*bytes, pace, *socket_buffer_bytes),
            TrafficKind::Queries { .. } => return self.queries(),
            TrafficKind::Blast {
                rate_bps,
                span_bytes,
            } => self.blast(*rate_bps, *span_bytes),
            TrafficKind::PingPong { bytes, interval } => self.ping_pong(*bytes, ns(*interval)),
            TrafficKind::Incast { bytes, interval } => self.incast(*bytes, ns(*interval)),
            TrafficKind::Messages {
                bytes,
                interval,
                class,
            } => return self.messages(*bytes, ns(*interval), class),
            TrafficKind::Shuffle {
                bytes,
                parallel,
                class,
            } => self.shuffle(*bytes, *parallel, class),
            TrafficKind::Trace { .. } => return self.trace(),
            TrafficKind::Program { .. } => self.program(),
        }
        Ok(())
    }

    fn span(&self) -> Span {
        let end = ns(self.variant.warmup + self.variant.duration);
        let stop = self.traffic.stop.map_or(end, |stop| ns(stop).min(end));
        Span {
            begin_ns: ns(self.traffic.start),
            end_ns: stop,
        }
    }

    fn peer(&self, flow: &Flow) -> SocketAddr {
        SocketAddr::new(self.variant.tenants[flow.to].address, flow.port)
    }

    fn give(&mut self, tenant: usize, role: Role) {
        self.plans[tenant].roles.push(role);
        self.plans[tenant].priorities.push(self.traffic.priority);
        let place = |routing| {
            Routing::NAMES
                .iter()
                .position(|&(_, named)| named == routing)
        };
        let routing = self.traffic.routing.and_then(place);
        self.plans[tenant]
            .routings
            .push(routing.map(|place| place as u8));
    }

    fn sink(&mut self, flow: &Flow) {
        let (flow, port, to) = (flow.id, flow.port, flow.to);
        self.give(to, Role::Sink { flow, port });
    }

    fn blast(&mut self, rate_bps: u64, span_bytes: u64) {
        for flow in self.flows {
            let role = Role::Blaster {
                flow: flow.id,
                peer: self.peer(flow),
                rate_bps,
                span_bytes,
                span: self.span(),
            };
            self.sink(flow);
            self.give(flow.from, role);
        }
    }

    fn bulk(&mut self, rate_bps: Option<u64>) {
        for flow in self.flows {
            let (peer, span) = (self.peer(flow), self.span());
            self.sink(flow);
            self.give(
                flow.from,
                Role::Source {
                    flow: flow.id,
                    peer,
                    rate_bps,
                    span,
                },
            );
        }
    }

    fn phased(&mut self, phases: &[Phase], class: Option<&str>) {
        let span = self.span();
        let phases: Vec<plan::Phase> = (phases.iter())
            .map(|phase| plan::Phase {
                until_ns: phase.until.map_or(span.end_ns, ns),
                rate_bps: phase.rate_bps,
            })
            .collect();
        for flow in self.flows {
            let role = Role::PhasedSource {
                flow: flow.id,
                peer: self.peer(flow),
                phases: phases.clone(),
                class: class.map(str::to_owned),
                span,
            };
            self.give(flow.from, role);
        }
        match class {
            Some(class) => self.message_sinks(&[class.to_owned()]),
            None => self.flows.iter().for_each(|flow| self.sink(flow)),
        }
    }

    fn ping_pong(&mut self, bytes: u64, interval_ns: u64) {
        for flow in self.flows {
            let (peer, span) = (self.peer(flow), self.span());
            self.give(
                flow.to,
                Role::Echo {
                    flow: flow.id,
                    port: flow.port,
                    bytes,
                },
            );
            self.give(
                flow.from,
                Role::PingClient {
                    flow: flow.id,
                    peer,
                    bytes,
                    interval_ns,
                    span,
                },
            );
        }
    }

    fn incast(&mut self, bytes: u64, interval_ns: u64) {
        let span = self.span();
        for (requester, own) in grouped(self.flows, |flow| flow.to) {
            let responders = own.iter().map(|flow| (flow.id, flow.port)).collect();
            self.give(
                requester,
                Role::IncastRequester {
                    responders,
                    bytes,
                    interval_ns,
                    span,
                },
            );
            for flow in own {
                let peer = self.peer(flow);
                self.give(
                    flow.from,
                    Role::IncastResponder {
                        flow: flow.id,
                        peer,
                        bytes,
                        span,
                    },
                );
            }
        }
    }

    /// Each sender starts at its own phase within one interval: mice of different servers do not
    /// march in step, as independent applications do not.
    fn messages(&mut self, bytes: u64, interval_ns: u64, class: &str) -> Result<(), Complaint> {
        let span = self.span();
        let expected = span.end_ns.saturating_sub(span.begin_ns) as f64 / interval_ns as f64;
        if expected.is_nan() || expected > MAX_ARRIVALS {
            return Err(arrivals::too_many(expected));
        }
        let classes = vec![class.to_owned()];
        for (sender, own) in self.by_sender.clone() {
            let phase_ns = self.rng.random_range(0..interval_ns);
            let schedule = Schedule::Periodic {
                bytes,
                interval_ns,
                phase_ns,
            };
            self.message_source((sender, &own), schedule, Connections::One, &classes);
        }
        self.message_sinks(&classes);
        Ok(())
    }

    fn shuffle(&mut self, bytes: u64, parallel: u32, class: &str) {
        let classes = vec![class.to_owned()];
        for (sender, own) in self.by_sender.clone() {
            let mut order: Vec<u32> = (0..).take(own.len()).collect();
            order.shuffle(&mut self.rng);
            let transfers = order.into_iter().map(|peer| Transfer {
                peer,
                bytes,
                class: 0,
            });
            let schedule = Schedule::Closed {
                transfers: transfers.collect(),
                parallel: parallel.max(1),
            };
            self.message_source((sender, &own), schedule, Connections::PerMessage, &classes);
        }
        self.message_sinks(&classes);
    }

    fn message_source(
        &mut self,
        (sender, own): (usize, &[&Flow]),
        schedule: Schedule,
        connections: Connections,
        classes: &[String],
    ) {
        let own = own.iter();
        let peers = own.map(|flow| (flow.id, self.peer(flow))).collect();
        let (classes, span) = (classes.to_vec(), self.span());
        self.give(
            sender,
            Role::MessageSource {
                peers,
                schedule,
                connections,
                classes,
                span,
            },
        );
    }

    fn message_sinks(&mut self, classes: &[String]) {
        for flow in self.flows {
            self.give(
                flow.to,
                Role::MessageSink {
                    flow: flow.id,
                    port: flow.port,
                    classes: classes.to_vec(),
                },
            );
        }
    }
}

/// Flows by an end, in the order in which ends first appear; of one end in their own order.
fn grouped<'a>(flows: &[&'a Flow], end: impl Fn(&Flow) -> usize) -> Vec<(usize, Vec<&'a Flow>)> {
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut groups: Vec<(usize, Vec<&Flow>)> = Vec::new();
    for flow in flows {
        let end = end(flow);
        let place = *places.entry(end).or_insert_with(|| {
            groups.push((end, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(flow);
    }
    groups
}

#[cfg(test)]
mod tests;
