//! Shortest paths through switches, from which tables are made.

use std::collections::VecDeque;

use crate::graph::{Graph, HostId, Node, NodeId, PortId, SwitchId};

/// Calls `each` with every switch, every destination host and the ports of the switch that are
/// nearest to it, where there are any: first all switches of the first destination.
pub fn shortest(graph: &Graph, mut each: impl FnMut(SwitchId, HostId, Vec<PortId>)) {
    let hosts = graph.hosts();
    let mut distance = vec![u32::MAX; graph.nodes() as usize];
    for destination in 0..hosts {
        distances(graph, destination, &mut distance);
        for switch in (0..graph.nodes() - hosts).map(SwitchId) {
            let node = graph.node_of(switch);
            let here = distance[node as usize];
            let is_nearer =
                |far: NodeId| distance[far as usize] < here && (far >= hosts || far == destination);
            let ports = graph.adjacent(node).iter();
            let nearest: Vec<PortId> = ports
                .filter(|&&(_, far)| is_nearer(far))
                .map(|&(port, _)| port)
                .collect();
            if !nearest.is_empty() {
                each(switch, HostId(destination), nearest);
            }
        }
    }
}

/// Hops from everywhere to `destination`, through switches only.
fn distances(graph: &Graph, destination: NodeId, distance: &mut [u32]) {
    distance.fill(u32::MAX);
    distance[destination as usize] = 0;
    let mut queue = VecDeque::from([destination]);
    while let Some(node) = queue.pop_front() {
        if matches!(graph.node(node), Node::Host(_)) && node != destination {
            continue;
        }
        for &(_, far) in graph.adjacent(node) {
            if distance[far as usize] == u32::MAX {
                distance[far as usize] = distance[node as usize] + 1;
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
        let is_above = |far: NodeId| level[far as usize] > level[node as usize];
        let up = graph.adjacent(node).iter();
        let up = up.filter(|&&(_, far)| is_above(far));
        let choices = up.clone().count().max(1) as u64;
        for &(_, far) in up {
            divisor[far as usize] = divisor[far as usize].max(divisor[node as usize] * choices);
        }
    }
    divisor.split_off(graph.hosts() as usize)
}
