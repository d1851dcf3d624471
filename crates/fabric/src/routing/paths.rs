//! Shortest paths through switches, from which tables are made.

use std::collections::VecDeque;

use crate::graph::{Graph, HostId, NodeId, PortId, SwitchId};

/// Calls `each` with every switch, every destination host and the ports of the switch that are
/// nearest to it, where there are any: first all switches of the first destination.
pub fn shortest(graph: &Graph, mut each: impl FnMut(SwitchId, HostId, Vec<PortId>)) {
    let mut distance = vec![u32::MAX; graph.nodes() as usize];
    for host in HostId::first(graph.hosts() as usize) {
        let destination = graph.number(host);
        distances(graph, destination, &mut distance);
        for switch in SwitchId::first(graph.switches() as usize) {
            let node = graph.number(switch);
            let here = distance[node.index()];
            let is_nearer = |far: NodeId| {
                distance[far.index()] < here && (far == destination || !graph.is_host(far))
            };
            let ports = graph.adjacent(node).iter();
            let nearest: Vec<PortId> = ports
                .filter(|&&(_, far)| is_nearer(far))
                .map(|&(port, _)| port)
                .collect();
            if !nearest.is_empty() {
                each(switch, host, nearest);
            }
        }
    }
}

/// Hops from everywhere to `destination`, through switches only.
fn distances(graph: &Graph, destination: NodeId, distance: &mut [u32]) {
    distance.fill(u32::MAX);
    distance[destination.index()] = 0;
    let mut queue = VecDeque::from([destination]);
    while let Some(node) = queue.pop_front() {
        if graph.is_host(node) && node != destination {
            continue;
        }
        for &(_, far) in graph.adjacent(node) {
            if distance[far.index()] == u32::MAX {
                distance[far.index()] = distance[node.index()] + 1;
                queue.push_back(far);
            }
        }
    }
}

/// For each switch the number of choices that were made on the way up to it.
pub fn divisors(graph: &Graph) -> Vec<u64> {
    let (level, order) = graph.levels();
    let mut divisor = vec![1u64; graph.nodes() as usize];
    for node in order {
        let is_above = |far: NodeId| level[far.index()] > level[node.index()];
        let up = graph.adjacent(node).iter();
        let up = up.filter(|&&(_, far)| is_above(far));
        let choices = up.clone().count().max(1) as u64;
        for &(_, far) in up {
            divisor[far.index()] = divisor[far.index()].max(divisor[node.index()] * choices);
        }
    }
    let switches = SwitchId::first(graph.switches() as usize);
    switches
        .map(|switch| divisor[graph.number(switch).index()])
        .collect()
}
