//! Nodes and the links between them.
//!
//! A [`Node`] is a host or a switch; its number in a [`Graph`] is a [`NodeId`]. A link joins two
//! nodes and is two ports ([`PortId`]), one for each direction.

use std::{collections::VecDeque, fmt};

use sluicegate_core::number::ordinal;

/// A node's number in its graph: hosts come first, in their order, then switches. Only [`Graph`]
/// knows which of them it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// A host's number, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A switch's number, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// A node of the graph: a host or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A host.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

impl Node {
    /// The switch, if it is one.
    pub const fn switch(self) -> Option<SwitchId> {
        match self {
            Self::Host(_) => None,
            Self::Switch(switch) => Some(switch),
        }
    }
}

impl From<HostId> for Node {
    fn from(host: HostId) -> Self {
        Self::Host(host)
    }
}

impl From<SwitchId> for Node {
    fn from(switch: SwitchId) -> Self {
        Self::Switch(switch)
    }
}

impl NodeId {
    /// The node with this index.
    pub const fn at(index: usize) -> Self {
        Self(ordinal(index))
    }

    /// The index of this node in a list of all nodes.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Numbers as indices of lists, the same for hosts and for switches.
macro_rules! indices {
    ($id:ident, $one:literal, $all:literal) => {
        impl $id {
            #[doc = concat!("The ", $one, " with this index.")]
            pub const fn at(index: usize) -> Self {
                Self(ordinal(index))
            }

            #[doc = concat!("The first `count` ", $all, ", in order.")]
            pub fn first(count: usize) -> impl ExactSizeIterator<Item = Self> + Clone {
                (0..ordinal(count)).map(Self)
            }

            #[doc = concat!("The items of a list of all ", $all, ", each with its ", $one, ".")]
            pub fn enumerate<I: IntoIterator>(items: I) -> impl Iterator<Item = (Self, I::Item)> {
                (0..).map(Self).zip(items)
            }

            #[doc = concat!("The index of this ", $one, " in a list of all ", $all, ".")]
            #[inline(always)]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

indices!(HostId, "host", "hosts");
indices!(SwitchId, "switch", "switches");

/// A port's number: one direction of a link, or a port within a host ([`PortMap`]).
///
/// The ports of link l are 2 l, which transmits from the link's first node, and 2 l + 1, which
/// transmits from its second. Only this type knows that.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

impl PortId {
    /// No port, in an adapter of converged Ethernet without a link.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The port of a link that transmits from its first node (`forward`) or from its second.
    #[inline]
    pub const fn of_link(link: usize, forward: bool) -> Self {
        Self(2 * ordinal(link) + !forward as u32)
    }

    /// The two ports of a link: from its first node, and from its second.
    #[inline]
    pub const fn both_of(link: usize) -> [Self; 2] {
        [Self::of_link(link, true), Self::of_link(link, false)]
    }

    /// The ports of the first `links` links, in order.
    pub fn of_links(links: usize) -> impl ExactSizeIterator<Item = Self> {
        Self::first(2 * links)
    }

    /// The first `count` ports, in order.
    pub fn first(count: usize) -> impl ExactSizeIterator<Item = Self> {
        (0..ordinal(count)).map(Self)
    }

    /// The items of a list of all ports, each with its port.
    pub fn enumerate<I: IntoIterator>(by_port: I) -> impl Iterator<Item = (Self, I::Item)> {
        (0..).map(Self).zip(by_port)
    }

    /// The index of this port in a list of all ports.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The port of the other direction of the link.
    #[inline(always)]
    pub const fn opposite(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The link.
    #[inline]
    pub const fn link(self) -> usize {
        self.index() / 2
    }

    /// Whether the port transmits from the first node of its link.
    #[inline]
    pub const fn is_forward(self) -> bool {
        self.0 & 1 == 0
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A direction of a link.
    Link,
    /// Between the tenants of a host.
    Local,
    /// The stack of a host, which leads to its adapter.
    Stack,
}

/// The numbers of a network's ports: those of links, then the local port of each host, then the
/// stack of each host where stacks have ports. Only this type knows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMap {
    /// The local port of the first host.
    local: PortId,
    /// The stack of the first host.
    stack: PortId,
}

impl PortMap {
    /// Of a network with so many links and hosts.
    pub const fn new(links: usize, hosts: usize) -> Self {
        // As of the link after the last.
        let local = PortId::of_link(links, true);
        Self {
            local,
            stack: PortId(local.0 + ordinal(hosts)),
        }
    }

    /// The port between the tenants of a host.
    #[inline]
    pub const fn local(self, host: HostId) -> PortId {
        PortId(self.local.0 + host.0)
    }

    /// The port of a host's stack.
    #[inline]
    pub const fn stack(self, host: HostId) -> PortId {
        PortId(self.stack.0 + host.0)
    }

    /// The kind of a port.
    #[inline(always)]
    pub const fn kind(self, port: PortId) -> PortKind {
        if port.0 < self.local.0 {
            PortKind::Link
        } else if port.0 < self.stack.0 {
            PortKind::Local
        } else {
            PortKind::Stack
        }
    }
}

/// Most nodes of a generated tree.
const NODES_MAX: u32 = 1 << 20;

/// Nodes and links.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    hosts: u32,
    nodes: u32,
    links: Vec<(NodeId, NodeId)>,
    /// (port, neighbour) of each node, in the order of links.
    adjacent: Vec<Vec<(PortId, NodeId)>>,
}

impl Graph {
    /// `hosts` hosts and `switches` switches without links.
    pub fn new(hosts: u32, switches: u32) -> Self {
        let nodes = hosts + switches;
        Self {
            hosts,
            nodes,
            links: Vec::new(),
            adjacent: vec![Vec::new(); nodes as usize],
        }
    }

    /// Joins two nodes; returns the link's number.
    pub fn join(&mut self, a: impl Into<Node>, b: impl Into<Node>) -> usize {
        self.link(self.number(a), self.number(b))
    }

    /// [`Graph::join`] by number.
    pub fn link(&mut self, a: NodeId, b: NodeId) -> usize {
        let link = self.links.len();
        self.links.push((a, b));
        let [from_a, from_b] = PortId::both_of(link);
        self.adjacent[a.index()].push((from_a, b));
        self.adjacent[b.index()].push((from_b, a));
        link
    }

    /// Hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Switches.
    pub fn switches(&self) -> u32 {
        self.nodes - self.hosts
    }

    /// Hosts and switches.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Links.
    pub fn links(&self) -> &[(NodeId, NodeId)] {
        &self.links
    }

    /// The ports of all links, in order.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = PortId> + use<> {
        PortId::of_links(self.links.len())
    }

    /// The host or the switch that a node is.
    pub fn node(&self, NodeId(node): NodeId) -> Node {
        match node.checked_sub(self.hosts) {
            None => Node::Host(HostId(node)),
            Some(switch) => Node::Switch(SwitchId(switch)),
        }
    }

    /// Whether a node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        matches!(self.node(node), Node::Host(_))
    }

    /// The number of a node: the inverse of [`Graph::node`].
    pub fn number(&self, node: impl Into<Node>) -> NodeId {
        NodeId(match node.into() {
            Node::Host(host) => host.0,
            Node::Switch(switch) => self.hosts + switch.0,
        })
    }

    /// The numbers of all nodes, in order.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes).map(NodeId)
    }

    /// All nodes in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = Node> {
        self.numbers().map(|node| self.node(node))
    }

    /// The port of a host's adapter, if the host has a link.
    pub fn adapter(&self, host: HostId) -> Option<PortId> {
        let ports = self.adjacent(self.number(host));
        ports.first().map(|&(port, _)| port)
    }

    /// The node at the far end of a port.
    pub fn far(&self, port: PortId) -> NodeId {
        let (a, b) = self.links[port.link()];
        if port.is_forward() { b } else { a }
    }

    /// The node at the near end of a port, which transmits.
    pub fn near(&self, port: PortId) -> NodeId {
        self.far(port.opposite())
    }

    /// The ports of links and within hosts.
    pub fn port_map(&self) -> PortMap {
        PortMap::new(self.links.len(), self.hosts as usize)
    }

    /// By port, the node at its far end: ports of links and local ports of hosts.
    pub fn next_hops(&self) -> Vec<Node> {
        let far = |port| self.node(self.far(port));
        let hosts = HostId::first(self.hosts as usize).map(Node::Host);
        self.ports().map(far).chain(hosts).collect()
    }

    /// Ports of a node with their neighbours.
    pub fn adjacent(&self, node: NodeId) -> &[(PortId, NodeId)] {
        &self.adjacent[node.index()]
    }

    /// The distance of each node from the nearest host in links, `None` where no host is reached;
    /// and the nodes that are reached, by that distance.
    pub fn levels(&self) -> (Vec<Option<u32>>, Vec<NodeId>) {
        let (hosts, switches) = (self.hosts as usize, self.switches() as usize);
        let mut level = [vec![Some(0); hosts], vec![None; switches]].concat();
        let mut queue: VecDeque<NodeId> = self.numbers().take(hosts).collect();
        let mut order = Vec::new();
        while let Some(node) = queue.pop_front() {
            order.push(node);
            for &(_, far) in self.adjacent(node) {
                if level[far.index()].is_none() {
                    level[far.index()] = level[node.index()].map(|level| level + 1);
                    queue.push_back(far);
                }
            }
        }
        (level, order)
    }

    /// Parts of the graph that no link joins, hosts without a link among them.
    pub fn islands(&self) -> usize {
        let mut reached = vec![false; self.nodes as usize];
        let mut islands = 0;
        for first in self.numbers() {
            islands += usize::from(!reached[first.index()]);
            let mut waiting = vec![first];
            while let Some(node) = waiting.pop() {
                if !std::mem::replace(&mut reached[node.index()], true) {
                    waiting.extend(self.adjacent(node).iter().map(|&(_, far)| far));
                }
            }
        }
        islands
    }

    /// Nodes of a level of an XGFT: Π_{j>i} m_j × Π_{j≤i} w_j. `level` is at most the height.
    pub fn xgft_level(m: &[u32], w: &[u32], level: usize) -> u32 {
        u32::try_from(Self::xgft_nodes(m, w, level)).unwrap_or(u32::MAX)
    }

    fn xgft_nodes(m: &[u32], w: &[u32], level: usize) -> u64 {
        let factors = m[level..].iter().chain(&w[..level]);
        factors.fold(1, |nodes: u64, &n| nodes.saturating_mul(n.into()))
    }

    /// An extended generalised fat tree XGFT(h; m1..mh; w1..wh) (Öhring et al. 1995): each node of
    /// level i has `m[i-1]` children and `w[i]` parents. Hosts are level 0.
    ///
    /// # Errors
    /// `m` and `w` of different length or with a zero; more than a million nodes.
    pub fn xgft(m: &[u32], w: &[u32]) -> Result<Self, String> {
        if m.is_empty() || m.len() != w.len() || m.iter().chain(w).any(|&n| n == 0) {
            return Err("an XGFT needs as many m as w, all above 0".to_owned());
        }
        let height = m.len();
        let nodes = (0..=m.len()).map(|level| Self::xgft_nodes(m, w, level));
        if nodes.sum::<u64>() > u64::from(NODES_MAX) {
            return Err(format!("this XGFT has more than {NODES_MAX} nodes"));
        }
        let size = |level: usize| Self::xgft_level(m, w, level);
        let mut first = vec![0; height + 2];
        for level in 0..=height {
            first[level + 1] = first[level] + size(level);
        }
        let mut graph = Self::new(size(0), first[height + 1] - size(0));
        for level in 0..height {
            // A node of level i is (x, y): x which subtree of height i, y which of its Π w tops.
            // Its parents are those of subtree x / m whose y' = y + Πw × k.
            let tops: u32 = w[..level].iter().product();
            let parent_tops = tops * w[level];
            for node in 0..size(level) {
                let (subtree, top) = (node / tops, node % tops);
                for k in 0..w[level] {
                    let parent = subtree / m[level] * parent_tops + top + tops * k;
                    let [node, parent] = [first[level] + node, first[level + 1] + parent];
                    graph.link(NodeId(node), NodeId(parent));
                }
            }
        }
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ports_of_a_link_transmit_from_its_two_nodes() {
        let mut graph = Graph::new(3, 1);
        let links: Vec<usize> = HostId::first(3)
            .map(|host| graph.join(host, SwitchId(0)))
            .collect();
        let mut ports = graph.ports();
        for link in links {
            let [forward, backward] = PortId::both_of(link);
            assert_eq!(
                [ports.next(), ports.next()],
                [Some(forward), Some(backward)]
            );
            assert_eq!([forward.link(), backward.link()], [link; 2]);
            assert!(forward.is_forward() && !backward.is_forward());
            assert_eq!(
                [forward.opposite(), backward.opposite()],
                [backward, forward]
            );
            let (host, switch) = graph.links()[link];
            assert_eq!((graph.near(forward), graph.far(forward)), (host, switch));
            assert_eq!((graph.near(backward), graph.far(backward)), (switch, host));
            assert_eq!(graph.adjacent(host), [(forward, switch)]);
        }
        assert_eq!(ports.next(), None);
    }

    #[test]
    fn ports_of_links_come_first_then_those_within_hosts() {
        let mut graph = Graph::new(2, 1);
        let hosts = HostId::first(2);
        for host in hosts.clone() {
            graph.join(host, SwitchId(0));
        }
        let map = graph.port_map();
        let local = hosts.clone().map(|host| map.local(host));
        let stacks = hosts.map(|host| map.stack(host));
        let all = graph.ports().chain(local).chain(stacks);
        assert!(all.eq(PortId::first(8)));
        let kinds: Vec<PortKind> = PortId::first(8).map(|port| map.kind(port)).collect();
        let within = [[PortKind::Local; 2], [PortKind::Stack; 2]].concat();
        assert_eq!(kinds, [vec![PortKind::Link; 4], within].concat());
        let next: Vec<Node> = PortId::first(6)
            .zip(graph.next_hops())
            .filter(|&(port, _)| map.kind(port) == PortKind::Local)
            .map(|(_, hop)| hop)
            .collect();
        assert_eq!(next, [0, 1].map(|host| Node::Host(HostId(host))));
    }

    #[test]
    fn numbers_and_nodes_are_of_each_other() {
        let graph = Graph::new(3, 2);
        let hosts = HostId::first(3).map(Node::Host);
        let nodes: Vec<Node> = hosts
            .chain((0..2).map(SwitchId).map(Node::Switch))
            .collect();
        assert_eq!(graph.all().collect::<Vec<_>>(), nodes);
        let numbers = nodes.iter().map(|&node| graph.number(node));
        assert!(numbers.eq(graph.numbers()));
        let hosts = graph.numbers().filter(|&node| graph.is_host(node));
        assert!(hosts.eq(HostId::first(3).map(|host| graph.number(host))));
    }

    #[test]
    fn what_no_link_joins_is_an_island() {
        let mut graph = Graph::new(4, 3);
        assert_eq!(graph.islands(), 7);
        // Two hosts at a switch, two switches in a row; the other hosts have no link.
        let (host, switch) = (|n| Node::Host(HostId(n)), |n| Node::Switch(SwitchId(n)));
        for (a, b, islands) in [
            (switch(0), host(0), 6),
            (switch(0), host(1), 5),
            (switch(1), switch(2), 4),
            (switch(2), switch(1), 4),
        ] {
            graph.join(a, b);
            assert_eq!(graph.islands(), islands, "{a:?} {b:?}");
        }
        graph.join(SwitchId(0), SwitchId(2));
        assert_eq!(graph.islands(), 3);
    }

    #[test]
    fn levels_are_links_to_the_nearest_host() {
        let graph = Graph::xgft(&[2, 2], &[1, 2]).unwrap();
        let (levels, order) = graph.levels();
        assert_eq!(levels, [0, 0, 0, 0, 1, 1, 2, 2].map(Some));
        assert!(order.into_iter().eq(graph.numbers()));
        let mut lonely = Graph::new(1, 2);
        lonely.join(HostId(0), SwitchId(1));
        let order = vec![NodeId(0), NodeId(2)];
        assert_eq!(lonely.levels(), (vec![Some(0), None, Some(1)], order));
    }

    #[test]
    fn a_tree_with_zeros_is_refused() {
        assert!(Graph::xgft(&[4, 0], &[1, 2]).is_err());
        assert!(Graph::xgft(&[4], &[1, 2]).is_err());
    }
}
