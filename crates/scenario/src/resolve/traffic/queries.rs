//! `kind = "queries"`.

use std::{collections::BTreeMap, path::Path};

use sluicegate_config::{bound::Bytes, table::Table};

use super::{
    Network, arrivals,
    pairs::{racks, side},
    read_bytes,
};
use crate::{
    bounds,
    experiment::{Tenant, TrafficKind},
    workload::plan::Connections,
};

const CONNECTIONS: [(&str, Connections); 3] = [
    ("one", Connections::One),
    ("pool", Connections::Pool),
    ("per-message", Connections::PerMessage),
];

const SIDES_ADVICE: &str = "`from` names aggregators, `to` (by default all others) the servers";

/// Of the rack of some server, or of all.
const WORKERS_ADVICE: &str = "name tenants on hosts of each rack, beside the servers";

/// The queries, and the servers of each: an aggregator asks all servers, a server the workers of
/// its rack, by default the other servers.
pub fn read(
    table: &Table<'_>,
    directory: &Path,
    network: &Network,
    tenants: &[Tenant],
) -> (Option<TrafficKind>, Vec<(usize, usize)>) {
    for key in ["pairs", "interval", "load"] {
        table.refuse(key, "does not belong to queries");
    }
    let (aggregators, racks) = read_sides(table, network, tenants);
    let workers = read_workers(table, network, tenants, &racks);
    let pairs = pairs(&aggregators, &racks, &workers);
    (read_kind(table, directory, racks, workers), pairs)
}

fn read_kind(
    table: &Table<'_>,
    directory: &Path,
    racks: Vec<Vec<usize>>,
    workers: Vec<Vec<usize>>,
) -> Option<TrafficKind> {
    let bytes = read_bytes(table, None);
    let request_bytes = match table.get("request") {
        Some(item) => item.within(&bounds::BYTES).map(|Bytes(bytes)| bytes),
        None => bytes,
    };
    let queries = table.within("queries", &bounds::QUERIES);
    let connections = table.choice("connections", &CONNECTIONS);
    let said = table.get("arrivals");
    if said.is_none() {
        table.require("arrivals", arrivals::ADVICE);
    }
    Some(TrafficKind::Queries {
        bytes: bytes?,
        request_bytes: request_bytes?,
        queries: queries.map(|count| count as u64),
        arrivals: arrivals::read(&said?, directory)?,
        connections: connections.unwrap_or(Connections::PerMessage),
        racks,
        workers,
    })
}

/// Aggregators, and servers by the switch that their hosts are linked to.
fn read_sides(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
) -> (Vec<usize>, Vec<Vec<usize>>) {
    if table.get("from").is_none() {
        table.require("from", SIDES_ADVICE);
        table.get("to");
        table.get("workers");
        return (Vec::new(), Vec::new());
    }
    let aggregators = side(table, "from", network.senders, network, tenants);
    let servers = side(table, "to", network.receivers, network, tenants);
    let is_server = |tenant: &usize| !aggregators.contains(tenant);
    let mut by_switch: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let racks = racks(network, tenants);
    for server in servers.into_iter().filter(is_server) {
        by_switch.entry(racks[server]).or_default().push(server);
    }
    if by_switch.is_empty() && !aggregators.is_empty() {
        table
            .item()
            .complain("no server is left for the queries", SIDES_ADVICE);
    }
    (aggregators, by_switch.into_values().collect())
}

/// `workers`, by the racks of the servers.
fn read_workers(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    servers: &[Vec<usize>],
) -> Vec<Vec<usize>> {
    let Some(item) = table.get("workers") else {
        return Vec::new();
    };
    let all = side(table, "workers", network.receivers, network, tenants);
    if servers.iter().flatten().any(|server| all.contains(server)) {
        item.complain("one of them is a server", WORKERS_ADVICE);
    }
    let racks = racks(network, tenants);
    let of_rack = |rack: &Vec<usize>| {
        let here = |worker: &&usize| racks[**worker] == racks[rack[0]];
        all.iter().filter(here).copied().collect()
    };
    let workers: Vec<Vec<usize>> = servers.iter().map(of_rack).collect();
    if workers.iter().any(Vec::is_empty) && !all.is_empty() {
        item.complain("a rack of the servers has none", WORKERS_ADVICE);
    }
    workers
}

fn pairs(
    aggregators: &[usize],
    racks: &[Vec<usize>],
    workers: &[Vec<usize>],
) -> Vec<(usize, usize)> {
    let servers = racks.iter().flatten();
    let from_above = aggregators
        .iter()
        .flat_map(|from| servers.clone().map(move |to| (*from, *to)));
    let within = racks.iter().enumerate().flat_map(|(at, rack)| {
        let asked = workers.get(at).unwrap_or(rack);
        let pairs = rack
            .iter()
            .flat_map(move |from| asked.iter().map(move |to| (*from, *to)));
        pairs.filter(|(from, to)| from != to)
    });
    from_above.chain(within).collect()
}
