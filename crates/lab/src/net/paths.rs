//! Which port of each bridge leads to each tenant, by the fabric's routes.

use anyhow::{Result, bail};
use sluicegate_fabric::{Graph, Routes};
use sluicegate_scenario::experiment::{HostId, Node, PortId, Variant};

use super::names;

/// Where a bridge sends frames for each tenant that it knows a way to: (tenant id, port's name).
pub type Table = Vec<(usize, String)>;

/// The table of each node's bridge, in the order of [`Graph::all`].
///
/// # Errors
/// Names two hosts between which there is no path.
pub fn forwarding(variant: &Variant) -> Result<Vec<(Node, Table)>> {
    let graph = variant.graph();
    // A bridge knows one port for an address; in what the lab can do there is no other.
    let routes = Routes::new(&graph);
    let table = |node| {
        let hosts = HostId::first(variant.hosts.len());
        let exits: Vec<_> = hosts.map(|to| exit(&graph, &routes, node, to)).collect();
        let mut table = Table::new();
        for (tenant, place) in variant.tenants.iter().enumerate() {
            match exits[place.host.index()] {
                _ if node == Node::Host(place.host) => table.push((tenant, names::vnic(tenant))),
                Some(port) => table.push((tenant, names::port(port))),
                None if matches!(node, Node::Switch(_)) => {}
                None => bail!(
                    "variant {}: no path from host {} to host {}: add a link",
                    variant.name,
                    variant.node_name(node),
                    variant.host_name(place.host)
                ),
            }
        }
        Ok((node, table))
    };
    graph.all().map(table).collect()
}

/// The port by which a node sends towards a host, if a path leads there.
fn exit(graph: &Graph, routes: &Routes, node: Node, to: HostId) -> Option<PortId> {
    match node {
        Node::Switch(switch) => routes.choices(switch, to).first().copied(),
        Node::Host(from) => routes.hops(graph, from, to).concat().first().copied(),
    }
}
