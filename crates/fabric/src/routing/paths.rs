//! Shortest paths through switches, from which tables are made.

use std::collections::VecDeque;

use crate::graph::{Graph, HostId, NodeId, PortId, SwitchId};

/// A graph in which some links are known to have failed.
#[derive(Clone, Copy)]
pub struct Links<'a> {
    pub graph: &'a Graph,
    /// By link, whether it has failed; links beyond the end work.
    pub failed: &'a [bool],
}

impl Links<'_> {
    fn works(self, port: PortId) -> bool {
        !self.failed.get(port.link()).is_some_and(|&failed| failed)
    }

    /// Hops from everywhere to `destination`, through switches only and by links that are
    /// `usable`.
    fn distances(self, destination: NodeId, usable: impl Fn(PortId) -> bool, distance: &mut [u32]) {
        let graph = self.graph;
        distance.fill(u32::MAX);
        distance[destination.index()] = 0;
        let mut queue = VecDeque::from([destination]);
        while let Some(node) = queue.pop_front() {
            if graph.is_host(node) && node != destination {
                continue;
            }
            for &(port, far) in graph.adjacent(node) {
                if distance[far.index()] == u32::MAX && usable(port) {
                    distance[far.index()] = distance[node.index()] + 1;
                    queue.push_back(far);
                }
            }
        }
    }

    /// The ports of a switch that are usable and lead to nodes nearer to `destination`.
    fn nearest(
        self,
        [node, destination]: [NodeId; 2],
        usable: impl Fn(PortId) -> bool,
        distance: &[u32],
    ) -> Vec<PortId> {
        let here = distance[node.index()];
        let is_nearer = |far: NodeId| {
            distance[far.index()] < here && (far == destination || !self.graph.is_host(far))
        };
        let ports = self.graph.adjacent(node).iter();
        ports
            .filter(|&&(port, far)| usable(port) && is_nearer(far))
            .map(|&(port, _)| port)
            .collect()
    }
}

/// Calls `each` with every switch, every destination host and the ports of the switch that are
/// nearest to it, where there are any: first all switches of the first destination. A switch from
/// which no path of working links leads to a host has the ports that it would have if all links
/// worked: what it sends there is lost at a link that has failed.
pub fn shortest(links: Links<'_>, mut each: impl FnMut(SwitchId, HostId, Vec<PortId>)) {
    let graph = links.graph;
    let mut around = vec![u32::MAX; graph.nodes() as usize];
    let mut whole = around.clone();
    let any_failed = links.failed.contains(&true);
    for host in HostId::first(graph.hosts() as usize) {
        let destination = graph.number(host);
        links.distances(destination, |port| links.works(port), &mut around);
        if any_failed {
            links.distances(destination, |_| true, &mut whole);
        }
        for switch in SwitchId::first(graph.switches() as usize) {
            let ends = [graph.number(switch), destination];
            let mut nearest = links.nearest(ends, |port| links.works(port), &around);
            if nearest.is_empty() && any_failed {
                nearest = links.nearest(ends, |_| true, &whole);
            }
            if !nearest.is_empty() {
                each(switch, host, nearest);
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
