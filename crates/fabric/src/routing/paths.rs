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
    ) -> impl Iterator<Item = PortId> {
        let here = distance[node.index()];
        let is_nearer = move |far: NodeId| {
            distance[far.index()] < here && (far == destination || !self.graph.is_host(far))
        };
        let ports = self.graph.adjacent(node).iter();
        ports
            .filter(move |&&(port, far)| usable(port) && is_nearer(far))
            .map(|&(port, _)| port)
    }

    /// The switch of a host that has one link, which works.
    fn sole_switch(self, host: NodeId) -> Option<NodeId> {
        match *self.graph.adjacent(host) {
            [(port, far)] if self.works(port) && !self.graph.is_host(far) => Some(far),
            _ => None,
        }
    }
}

/// The ports of all switches that are nearest to a node.
struct Search<'a> {
    links: Links<'a>,
    any_failed: bool,
    /// Hops to the destination, by working links and by all.
    around: Vec<u32>,
    whole: Vec<u32>,
    /// By switch where its ports end in `ports`.
    ends: Vec<usize>,
    ports: Vec<PortId>,
}

impl<'a> Search<'a> {
    fn new(links: Links<'a>) -> Self {
        let nodes = links.graph.nodes() as usize;
        Self {
            links,
            any_failed: links.failed.contains(&true),
            around: vec![u32::MAX; nodes],
            whole: vec![u32::MAX; nodes],
            ends: Vec::new(),
            ports: Vec::new(),
        }
    }

    fn search(&mut self, destination: NodeId) {
        let links = self.links;
        links.distances(destination, |port| links.works(port), &mut self.around);
        if self.any_failed {
            links.distances(destination, |_| true, &mut self.whole);
        }
        self.ends.clear();
        self.ports.clear();
        for switch in SwitchId::first(links.graph.switches() as usize) {
            let ends = [links.graph.number(switch), destination];
            let begin = self.ports.len();
            let around = links.nearest(ends, |port| links.works(port), &self.around);
            self.ports.extend(around);
            if self.ports.len() == begin && self.any_failed {
                let whole = links.nearest(ends, |_| true, &self.whole);
                self.ports.extend(whole);
            }
            self.ends.push(self.ports.len());
        }
    }

    /// What the last search found for a switch.
    fn of(&self, switch: SwitchId) -> &[PortId] {
        let at = switch.index();
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ports[begin..self.ends[at]]
    }
}

/// Calls `each` with every switch, every destination host and the ports of the switch that are
/// nearest to it, where there are any: first all switches of the first destination. A switch from
/// which no path of working links leads to a host has the ports that it would have if all links
/// worked: what it sends there is lost at a link that has failed.
///
/// Neighbouring hosts with a link to the same switch share one search, for that switch.
pub fn shortest(links: Links<'_>, mut each: impl FnMut(SwitchId, HostId, &[PortId])) {
    let graph = links.graph;
    let mut search = Search::new(links);
    let mut searched = None;
    for host in HostId::first(graph.hosts() as usize) {
        let host_node = graph.number(host);
        let edge = links.sole_switch(host_node);
        let destination = edge.unwrap_or(host_node);
        if searched != Some(destination) {
            search.search(destination);
            searched = Some(destination);
        }
        for switch in SwitchId::first(graph.switches() as usize) {
            if edge == Some(graph.number(switch)) {
                let links = graph.adjacent(destination).iter();
                let to_host = links.filter(|&&(_, far)| far == host_node);
                to_host.for_each(|&(port, _)| each(switch, host, &[port]));
            } else if !search.of(switch).is_empty() {
                each(switch, host, search.of(switch));
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::routing::tests::random;

    proptest! {
        /// Hosts that share a search have the ports that a search of their own finds.
        #[test]
        fn shared_searches_find_what_each_finds(
            hosts in 1u32..9,
            switches in 1u32..6,
            further in 0u32..8,
            seed: u64,
            second_links in proptest::collection::vec((0u32..9, 0u32..6), 0..3),
            failed in proptest::collection::vec(any::<bool>(), 0..12),
        ) {
            let mut graph = random(hosts, switches, further, seed);
            for (host, switch) in second_links {
                graph.join(HostId(host % hosts), SwitchId(switch % switches));
            }
            let links = Links { graph: &graph, failed: &failed };
            let mut found = Vec::new();
            shortest(links, |switch, host, ports| found.push((switch, host, ports.to_vec())));
            let mut search = Search::new(links);
            let mut expected = Vec::new();
            for host in HostId::first(hosts as usize) {
                search.search(graph.number(host));
                for switch in SwitchId::first(switches as usize) {
                    let ports = search.of(switch).to_vec();
                    expected.extend((!ports.is_empty()).then_some((switch, host, ports)));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
