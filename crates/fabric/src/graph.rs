//! Who is connected to whom, and which port leads where.
//!
//! Nodes are numbered, hosts first. A link joins two nodes and is two ports: port 2 l transmits from its first
//! node, port 2 l + 1 from its second.

use std::collections::HashMap;

use crate::{random::mix, tree::Tree};

/// A port's number in its graph.
pub type PortId = u32;

/// A node's number in its graph.
pub type NodeId = u32;

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
    pub fn link(&mut self, a: NodeId, b: NodeId) -> usize {
        let link = self.links.len();
        self.links.push((a, b));
        self.adjacent[a as usize].push((2 * link as PortId, b));
        self.adjacent[b as usize].push((2 * link as PortId + 1, a));
        link
    }

    /// Hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Hosts and switches.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Links.
    pub fn links(&self) -> &[(NodeId, NodeId)] {
        &self.links
    }

    /// The node at the far end of a port.
    pub fn far(&self, port: PortId) -> NodeId {
        let (a, b) = self.links[port as usize / 2];
        if port % 2 == 0 { b } else { a }
    }

    /// Ports of a node with their neighbours.
    pub fn adjacent(&self, node: NodeId) -> &[(PortId, NodeId)] {
        &self.adjacent[node as usize]
    }

    /// Nodes of a level of an XGFT: Π_{j>i} m_j × Π_{j≤i} w_j. `level` is at most the height.
    pub fn xgft_level(m: &[u32], w: &[u32], level: usize) -> u32 {
        u32::try_from(Self::xgft_nodes(m, w, level)).unwrap_or(u32::MAX)
    }

    fn xgft_nodes(m: &[u32], w: &[u32], level: usize) -> u64 {
        let factors = m[level..].iter().chain(&w[..level]);
        factors.fold(1, |nodes: u64, &n| nodes.saturating_mul(n.into()))
    }

    /// An extended generalised fat tree XGFT(h; m1..mh; w1..wh) (Öhring et al. 1995): each node of level i has
    /// `m[i-1]` children and `w[i]` parents. Hosts are level 0.
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
            // A node of level i is (x, y): x which subtree of height i, y which of its Π w tops. Its parents are
            // those of subtree x / m whose y' = y + Πw × k.
            let tops: u32 = w[..level].iter().product();
            let parent_tops = tops * w[level];
            for node in 0..size(level) {
                let (subtree, top) = (node / tops, node % tops);
                for k in 0..w[level] {
                    let parent = subtree / m[level] * parent_tops + top + tops * k;
                    graph.link(first[level] + node, first[level + 1] + parent);
                }
            }
        }
        Ok(graph)
    }
}

/// How a switch chooses among ports that are equally near to the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By the destination's number: (d / D) mod k for k equal ports, where D is the number of choices made
    /// below (Zahavi 2010).
    #[default]
    DModK,
    /// By a hash of the flow and of the switch's number, as ECMP does (RFC 2992).
    FlowHash,
}

/// Shortest paths: at each switch the ports that lead to each host, and how one of them is chosen.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: usize,
    /// By switch and destination: a port or, with a hash, the number of a set; `u32::MAX` = no path. Empty if
    /// `tree` says it.
    next: Vec<u32>,
    /// The same in a formula.
    tree: Option<Tree>,
    /// With a hash: where in `equal` each set of ports begins, and the end of the last one.
    sets: Vec<u32>,
    equal: Vec<PortId>,
}

/// No path.
const NONE: u32 = u32::MAX;

impl Routes {
    /// D-mod-k in a graph whose hosts do not forward.
    pub fn new(graph: &Graph) -> Self {
        Self::with(graph, Routing::DModK)
    }

    /// In a graph whose hosts do not forward.
    pub fn with(graph: &Graph, routing: Routing) -> Self {
        let hosts = graph.hosts as usize;
        let switches = (graph.nodes - graph.hosts) as usize;
        let divisors = divisors(graph);
        let mut next = vec![NONE; switches * hosts];
        let mut sets = Sets::default();
        let mut distance = vec![u32::MAX; graph.nodes as usize];
        for destination in 0..graph.hosts {
            distances(graph, destination, &mut distance);
            for switch in 0..switches {
                let node = graph.hosts + switch as NodeId;
                let nearer = |&&(_, far): &&(PortId, NodeId)| {
                    let (here, there) = (distance[node as usize], distance[far as usize]);
                    there < here && (far >= graph.hosts || far == destination)
                };
                let choices: Vec<PortId> = graph
                    .adjacent(node)
                    .iter()
                    .filter(nearer)
                    .map(|&(port, _)| port)
                    .collect();
                if !choices.is_empty() {
                    let pick = u64::from(destination) / divisors[switch] % choices.len() as u64;
                    next[switch * hosts + destination as usize] = match routing {
                        Routing::DModK => choices[pick as usize],
                        Routing::FlowHash => sets.number(choices),
                    };
                }
            }
        }
        let mut routes = Self {
            hosts,
            next,
            tree: None,
            sets: sets.begins,
            equal: sets.ports,
        };
        if routing == Routing::DModK {
            routes.tree = Tree::fit(graph, &routes, &divisors);
        }
        if routes.tree.is_some() {
            routes.next = Vec::new();
        }
        routes
    }

    /// The port of switch number `switch` (from 0) towards host `destination` for a flow with this hash.
    #[inline]
    pub fn next(&self, switch: usize, destination: usize, hash: u32) -> Option<PortId> {
        if let Some(tree) = &self.tree {
            return Some(tree.next(switch, destination as u32));
        }
        let next = self.next[switch * self.hosts + destination];
        if next == NONE {
            return None;
        }
        if self.sets.is_empty() {
            return Some(next);
        }
        let equal = self.set(next);
        let spread = mix(u64::from(hash) << 32 | switch as u64) >> 32;
        Some(equal[((spread * equal.len() as u64) >> 32) as usize])
    }

    /// Whether no table is needed.
    #[cfg(test)]
    pub(crate) fn is_formula(&self) -> bool {
        self.tree.is_some()
    }

    fn set(&self, number: u32) -> &[PortId] {
        let bound = |number: u32| self.sets[number as usize] as usize;
        &self.equal[bound(number)..bound(number + 1)]
    }

    /// Every port that switch number `switch` may choose towards host `destination`, whatever the flow.
    fn choices(&self, switch: usize, destination: usize) -> Vec<PortId> {
        if self.sets.is_empty() {
            return self.next(switch, destination, 0).into_iter().collect();
        }
        match self.next[switch * self.hosts + destination] {
            NONE => Vec::new(),
            set => self.set(set).to_vec(),
        }
    }

    /// The ports that a packet from one host to another may take, hop by hop; empty if no path leads there, or
    /// none is needed.
    pub fn hops(&self, graph: &Graph, from: usize, to: usize) -> Vec<Vec<PortId>> {
        let mut hops: Vec<Vec<PortId>> = Vec::new();
        let mut nodes = vec![from as NodeId];
        while nodes != [to as NodeId] {
            let mut ports = Vec::new();
            for &node in &nodes {
                match (node as usize).checked_sub(self.hosts) {
                    Some(switch) => ports.extend(self.choices(switch, to)),
                    None if hops.is_empty() => {
                        ports.extend(graph.adjacent(node).first().map(|&(port, _)| port));
                    }
                    None => return Vec::new(),
                }
            }
            if ports.is_empty() {
                return Vec::new();
            }
            nodes = ports.iter().map(|&port| graph.far(port)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            hops.push(ports);
        }
        hops
    }
}

/// Sets of ports, each kept once.
#[derive(Default)]
struct Sets {
    known: HashMap<Vec<PortId>, u32>,
    begins: Vec<u32>,
    ports: Vec<PortId>,
}

impl Sets {
    fn number(&mut self, set: Vec<PortId>) -> u32 {
        if let Some(&number) = self.known.get(&set) {
            return number;
        }
        if self.begins.is_empty() {
            self.begins.push(0);
        }
        let number = self.known.len() as u32;
        self.ports.extend_from_slice(&set);
        self.begins.push(self.ports.len() as u32);
        self.known.insert(set, number);
        number
    }
}

/// Hops from everywhere to `destination`, through switches only.
fn distances(graph: &Graph, destination: NodeId, distance: &mut [u32]) {
    distance.fill(u32::MAX);
    distance[destination as usize] = 0;
    let mut queue = std::collections::VecDeque::from([destination]);
    while let Some(node) = queue.pop_front() {
        if node < graph.hosts && node != destination {
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
fn divisors(graph: &Graph) -> Vec<u64> {
    let mut level = vec![u32::MAX; graph.nodes as usize];
    let mut queue: std::collections::VecDeque<NodeId> = (0..graph.hosts).collect();
    for host in 0..graph.hosts {
        level[host as usize] = 0;
    }
    let mut order = Vec::new();
    while let Some(node) = queue.pop_front() {
        order.push(node);
        for &(_, far) in graph.adjacent(node) {
            if level[far as usize] == u32::MAX {
                level[far as usize] = level[node as usize] + 1;
                queue.push_back(far);
            }
        }
    }
    let mut divisor = vec![1u64; graph.nodes as usize];
    for node in order {
        let above = |far: NodeId| level[far as usize] > level[node as usize];
        let ups = graph
            .adjacent(node)
            .iter()
            .filter(|&&(_, far)| above(far))
            .count()
            .max(1) as u64;
        for &(_, far) in graph.adjacent(node) {
            if above(far) {
                divisor[far as usize] = divisor[far as usize].max(divisor[node as usize] * ups);
            }
        }
    }
    divisor.split_off(graph.hosts as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports from one host to another.
    fn path(graph: &Graph, routes: &Routes, from: NodeId, to: NodeId) -> Vec<PortId> {
        let mut ports = vec![graph.adjacent(from)[0].0];
        loop {
            let node = graph.far(ports[ports.len() - 1]);
            if node == to {
                return ports;
            }
            assert!(node >= graph.hosts(), "a host forwards");
            ports.push(
                routes
                    .next((node - graph.hosts()) as usize, to as usize, 0)
                    .unwrap(),
            );
        }
    }

    #[test]
    fn a_fat_tree_of_256_servers_has_full_bisection() {
        let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
        assert_eq!(graph.hosts(), 256);
        assert_eq!(graph.nodes - graph.hosts, 32 + 32 + 64);
        let routes = Routes::new(&graph);
        assert_eq!(path(&graph, &routes, 0, 1).len(), 2);
        assert_eq!(path(&graph, &routes, 0, 8).len(), 4);
        assert_eq!(path(&graph, &routes, 0, 64).len(), 6);
    }

    #[test]
    fn d_mod_k_lets_destinations_share_no_port_on_the_way_down() {
        let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
        let routes = Routes::new(&graph);
        // A shift by a quarter of the tree: every flow crosses the top, none shares a port with another.
        let mut used = std::collections::HashMap::new();
        for from in 0..256 {
            for port in path(&graph, &routes, from, (from + 64) % 256) {
                *used.entry(port).or_insert(0) += 1;
            }
        }
        assert!(used.values().all(|&count| count == 1));
    }

    #[test]
    fn hosts_do_not_forward() {
        // h0 - s0 - h1 - s1 - h2
        let mut graph = Graph::new(3, 2);
        for (a, b) in [(0, 3), (1, 3), (1, 4), (2, 4)] {
            graph.link(a, b);
        }
        let routes = Routes::new(&graph);
        assert_eq!(routes.next(0, 2, 0), None);
        assert!(routes.next(0, 1, 0).is_some());
        assert!(routes.hops(&graph, 0, 2).is_empty());
    }

    #[test]
    fn a_tree_with_zeros_is_refused() {
        assert!(Graph::xgft(&[4, 0], &[1, 2]).is_err());
        assert!(Graph::xgft(&[4], &[1, 2]).is_err());
    }

    #[test]
    fn a_hash_spreads_flows_over_all_equal_paths_at_every_stage() {
        let graph = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
        let routes = Routes::with(&graph, Routing::FlowHash);
        let hops = routes.hops(&graph, 0, 63);
        let sizes: Vec<usize> = hops.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 4, 16, 16, 4, 1], "every shortest path, once");
        // 1600 flows between two hosts: 100 on each of the 16 ways to the top, whatever was chosen below.
        let mut used = HashMap::new();
        for flow in 0..1_600u32 {
            let hash = mix(flow.into()) as u32;
            let edge = routes.next(0, 63, hash).unwrap();
            let aggregation = graph.far(edge) - graph.hosts();
            let top = routes.next(aggregation as usize, 63, hash).unwrap();
            assert_eq!(
                routes.next(0, 63, hash),
                Some(edge),
                "a flow keeps to its path"
            );
            *used.entry(top).or_insert(0) += 1;
        }
        assert_eq!(used.len(), 16);
        // Five standard deviations of a binomial.
        assert!(
            used.values().all(|count| (52..=148).contains(count)),
            "{used:?}"
        );
    }

    #[test]
    fn d_mod_k_has_one_way_for_each_hop() {
        let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
        let routes = Routes::new(&graph);
        let hops = routes.hops(&graph, 3, 200);
        assert_eq!(hops.concat(), path(&graph, &routes, 3, 200));
        assert!(routes.hops(&graph, 3, 3).is_empty());
    }
}
