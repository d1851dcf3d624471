//! The layout that all parts of a run share: tenants and their hosts, routes, the part of each
//! node.

use std::{net::IpAddr, sync::Arc};

use rustc_hash::FxHashMap;
use sluicegate_core::number::narrow;
use sluicegate_fabric::{
    Graph, Routes,
    graph::{HostId, Node, PortId, PortKind, PortMap, SwitchId},
};
use sluicegate_tcp::Config;

/// A tenant: an address on a host with a stack.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its host.
    pub host: HostId,
    /// Its address.
    pub address: IpAddr,
    /// Its stack.
    pub stack: Arc<Config>,
}

/// The part of a switch that has none yet: parts have smaller numbers.
const UNDECIDED: u8 = u8::MAX;

/// The part of a run that simulates each node.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    /// Parts, at least 1.
    parts: usize,
    /// The part of each host; empty if there is one part.
    hosts: Vec<u8>,
    /// The part of each switch; likewise.
    switches: Vec<u8>,
}

impl Partition {
    /// Everything in one part.
    pub fn whole() -> Self {
        Self {
            parts: 1,
            hosts: Vec::new(),
            switches: Vec::new(),
        }
    }

    /// Divides hosts into `parts` ranges of equal length. A switch joins the part of most of its
    /// neighbours, which keeps subtrees together; of several such parts, the one with the fewest
    /// links.
    pub fn new(graph: &Graph, parts: usize) -> Self {
        let hosts = graph.hosts() as usize;
        let parts = parts.clamp(1, hosts.clamp(1, usize::from(UNDECIDED)));
        if parts == 1 {
            return Self::whole();
        }
        let part = |host: HostId| narrow::<u8>(host.index() * parts / hosts);
        let mut partition = Self {
            parts,
            hosts: HostId::first(hosts).map(part).collect(),
            switches: vec![UNDECIDED; graph.switches() as usize],
        };
        let mut links = vec![0; parts];
        for switch in outwards(graph) {
            let adjacent = graph.adjacent(graph.number(switch));
            let mut votes = vec![0usize; parts];
            for &(_, near) in adjacent {
                if let Some(votes) = votes.get_mut(partition.of(graph.node(near))) {
                    *votes += 1;
                }
            }
            let best = (0..parts).min_by_key(|&part| (usize::MAX - votes[part], links[part]));
            let best = best.unwrap_or(0);
            partition.switches[switch.index()] = narrow::<u8>(best);
            links[best] += adjacent.len();
        }
        partition
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// The part that looks after a node.
    pub fn of(&self, node: Node) -> usize {
        let part = match node {
            Node::Host(host) => self.hosts.get(host.index()),
            Node::Switch(switch) => self.switches.get(switch.index()),
        };
        part.map_or(0, |&part| part.into())
    }
}

/// The switches of a graph, those next to hosts first.
fn outwards(graph: &Graph) -> impl Iterator<Item = SwitchId> {
    let (levels, reached) = graph.levels();
    let unreached = graph.numbers();
    let unreached = unreached.filter(move |node| levels[node.index()].is_none());
    let nodes = reached.into_iter().chain(unreached);
    nodes.filter_map(move |node| graph.node(node).switch())
}

/// Shared by the parts of a run.
pub struct Layout {
    /// The ports of links and within hosts.
    pub ports: PortMap,
    /// The next hop of each port; stacks have none.
    pub next_hops: Vec<Node>,
    /// Ways through switches while all links work.
    pub routes: Arc<Routes>,
    /// Tenants.
    pub tenants: Vec<Tenant>,
    /// Length of the IP header.
    pub ip_bytes: u32,
    /// The part of each node.
    pub partition: Partition,
    by_address: FxHashMap<IpAddr, u32>,
    /// Number of each tenant's vNIC within its host.
    vnics: Vec<u16>,
}

impl Layout {
    /// The layout of a network with this graph.
    pub fn new(
        graph: &Graph,
        routes: Routes,
        tenants: Vec<Tenant>,
        ip_bytes: u32,
        partition: Partition,
    ) -> Self {
        let addresses = tenants.iter().enumerate();
        let by_address = addresses
            .map(|(id, tenant)| (tenant.address, narrow::<u32>(id)))
            .collect();
        let mut counts = vec![0; graph.hosts() as usize];
        let vnics = tenants.iter().map(|tenant| {
            let count: &mut u16 = &mut counts[tenant.host.index()];
            *count += 1;
            *count - 1
        });
        let vnics = vnics.collect();
        Self {
            ports: graph.port_map(),
            next_hops: graph.next_hops(),
            routes: Arc::new(routes),
            tenants,
            ip_bytes,
            partition,
            by_address,
            vnics,
        }
    }

    /// The tenant that has this address.
    pub fn tenant_at(&self, address: IpAddr) -> Option<u32> {
        self.by_address.get(&address).copied()
    }

    /// Number of a tenant's vNIC within its host.
    pub fn vnic(&self, tenant: u32) -> u16 {
        self.vnics[tenant as usize]
    }

    /// The part that looks after a host.
    pub fn part_of_host(&self, host: HostId) -> usize {
        self.partition.of(Node::Host(host))
    }

    /// The part that looks after the far end of a port.
    pub fn part_beyond(&self, port: PortId) -> usize {
        self.partition.of(self.next_hops[port.index()])
    }

    /// The part that looks after a port: its near end's. A port within a host has two ends there.
    pub fn part_of_port(&self, port: PortId) -> usize {
        match self.ports.kind(port) {
            PortKind::Link => self.part_beyond(port.opposite()),
            PortKind::Local | PortKind::Stack => self.part_beyond(port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_of_a_fat_tree_stay_together() {
        let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
        let partition = Partition::new(&graph, 2);
        let part = |node| partition.of(graph.node(node));
        let crossing = graph
            .links()
            .iter()
            .filter(|&&(a, b)| part(a) != part(b))
            .count();
        // Only links to the top cross, and half of those.
        assert_eq!(crossing, 4 * 64 / 2);
        let tops = (64..128).map(|top| Node::Switch(SwitchId(top)));
        assert_eq!(tops.filter(|&top| partition.of(top) == 0).count(), 32);
    }

    #[test]
    fn there_are_no_more_parts_than_hosts() {
        let mut graph = Graph::new(2, 1);
        for host in HostId::first(2) {
            graph.join(host, SwitchId(0));
        }
        assert_eq!(Partition::new(&graph, 9).parts(), 2);
        assert_eq!(Partition::new(&graph, 1).parts(), 1);
        assert_eq!(Partition::whole().of(Node::Switch(SwitchId(0))), 0);
    }
}
