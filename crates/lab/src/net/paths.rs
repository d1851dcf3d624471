//! Shortest paths: which port of each bridge leads to each tenant.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use sluicegate_scenario::experiment::{Node, Variant};

use super::names;

/// `next_hop(...)[node]` for every node, hosts first, then switches.
fn index(variant: &Variant, node: Node) -> usize {
    match node {
        Node::Host(id) => id,
        Node::Switch(id) => variant.hosts.len() + id,
    }
}

/// For each node the link end through which `host` is reached, nearest first by number of
/// links, then by link id; `None` at the host itself and where there is no way.
fn towards(variant: &Variant, host: usize) -> Vec<Option<(usize, bool)>> {
    let count = variant.hosts.len() + variant.switches.len();
    let mut exits = vec![None; count];
    let mut seen = vec![false; count];
    seen[host] = true;
    let mut queue = VecDeque::from([host]);
    while let Some(near) = queue.pop_front() {
        for (id, link) in variant.links.iter().enumerate() {
            let (a, b) = (index(variant, link.a), index(variant, link.b));
            for (far, here, far_is_b) in [(a, b, false), (b, a, true)] {
                // Hosts do not forward for others.
                let forwards = near == host || near >= variant.hosts.len();
                if here == near && forwards && !seen[far] {
                    seen[far] = true;
                    exits[far] = Some((id, far_is_b));
                    queue.push_back(far);
                }
            }
        }
    }
    exits
}

/// Where a node's bridge sends frames for a tenant: the port's name. One list per node, hosts
/// first, then switches; entries are (tenant id, port).
///
/// # Errors
/// Names two hosts between which there is no path.
pub fn forwarding(variant: &Variant) -> Result<Vec<Vec<(usize, String)>>> {
    let count = variant.hosts.len() + variant.switches.len();
    let mut tables = vec![Vec::new(); count];
    let exits: Vec<_> = (0..variant.hosts.len())
        .map(|host| towards(variant, host))
        .collect();
    for (tenant, place) in variant.tenants.iter().enumerate() {
        for (node, table) in tables.iter_mut().enumerate() {
            match exits[place.host][node] {
                _ if node == place.host => table.push((tenant, names::vnic(tenant))),
                Some((link, b)) => table.push((tenant, names::port(link, b))),
                None if node >= variant.hosts.len() => {}
                None => bail!(
                    "variant {}: no path from host {} to host {}: add a link",
                    variant.name,
                    variant.hosts[node].name,
                    variant.hosts[place.host].name
                ),
            }
        }
    }
    Ok(tables)
}
