//! `kind = "queries"`.

use std::{collections::HashMap, net::SocketAddr};

use rand::RngExt;
use sluicegate_config::problem::Complaint;

use super::{MAX_ARRIVALS, Planner, Role, arrivals};
use crate::{
    experiment::TrafficKind,
    workload::plan::{Query, QuerySizes},
};

impl Planner<'_> {
    pub(super) fn queries(&mut self) -> Result<(), Complaint> {
        let traffic = self.traffic;
        let TrafficKind::Queries {
            bytes,
            request_bytes,
            queries,
            connections,
            racks,
            workers,
            ..
        } = &traffic.kind
        else {
            return Ok(());
        };
        let sizes = QuerySizes {
            request_bytes: (*request_bytes).max(1),
            answer_bytes: (*bytes).max(1),
        };
        let connections = *connections;
        let mut flows = HashMap::new();
        for flow in self.flows {
            flows.entry(flow.from).or_insert(flow.id);
        }
        let variant = self.variant;
        let address =
            |tenant: &usize| SocketAddr::new(variant.tenants[*tenant].address, traffic.port);
        for (at, rack) in racks.iter().enumerate() {
            let asked = workers.get(at).unwrap_or(rack);
            for server in rack {
                let others = asked.iter().filter(|other| *other != server);
                let role = Role::QueryServer {
                    flow: flows.get(server).copied().unwrap_or(0),
                    port: traffic.port,
                    others: others.map(address).collect(),
                    sizes,
                    connections,
                };
                self.give(*server, role);
            }
        }
        for worker in workers.iter().flatten() {
            let role = Role::QueryServer {
                flow: 0,
                port: traffic.port,
                others: Vec::new(),
                sizes,
                connections,
            };
            self.give(*worker, role);
        }
        let servers: Vec<SocketAddr> = racks.iter().flatten().map(address).collect();
        for (aggregator, queries) in self.drawn_queries(*queries)? {
            let role = Role::Aggregator {
                flow: flows.get(&aggregator).copied().unwrap_or(0),
                servers: servers.clone(),
                queries,
                sizes,
                connections,
            };
            self.give(aggregator, role);
        }
        Ok(())
    }

    /// Of each aggregator those that are among the first `most` of all.
    fn drawn_queries(&mut self, most: Option<u64>) -> Result<Vec<(usize, Vec<Query>)>, Complaint> {
        let TrafficKind::Queries {
            arrivals: intervals,
            racks,
            ..
        } = &self.traffic.kind
        else {
            return Ok(Vec::new());
        };
        // Servers ask as well; but racks have no aggregators.
        let is_server = |tenant: usize| racks.iter().any(|rack| rack.contains(&tenant));
        let senders: Vec<usize> = self.by_sender.iter().map(|(sender, _)| *sender).collect();
        let mut all: Vec<(usize, Vec<Query>)> = Vec::new();
        for aggregator in senders.into_iter().filter(|tenant| !is_server(*tenant)) {
            let times_ns = arrivals::times_ns(intervals, self.span(), &mut self.rng)?;
            let mut query = |at_ns: f64| {
                let mut first = 0;
                let servers = racks.iter().map(|rack| {
                    let server = first + self.rng.random_range(0..rack.len() as u32);
                    first += rack.len() as u32;
                    server
                });
                Query {
                    servers: servers.collect(),
                    at_ns: at_ns as u64,
                }
            };
            all.push((aggregator, times_ns.into_iter().map(&mut query).collect()));
        }
        if let Some(last_ns) = last_ns(&all, most) {
            for (_, queries) in &mut all {
                queries.retain(|query| query.at_ns <= last_ns);
            }
        }
        let count: usize = all.iter().map(|(_, queries)| queries.len()).sum();
        if count as f64 > MAX_ARRIVALS {
            let reason = format!("{count} queries; {MAX_ARRIVALS:.0} can be run at most");
            return Err(Complaint::new(reason, "choose longer intervals"));
        }
        Ok(all)
    }
}

/// When the last of the first `most` begins; `None` if there are no more.
fn last_ns(all: &[(usize, Vec<Query>)], most: Option<u64>) -> Option<u64> {
    let mut times_ns: Vec<u64> = (all.iter())
        .flat_map(|(_, queries)| queries.iter().map(|query| query.at_ns))
        .collect();
    times_ns.sort_unstable();
    let last = usize::try_from(most?).ok()?.checked_sub(1)?;
    times_ns.get(last).copied()
}
