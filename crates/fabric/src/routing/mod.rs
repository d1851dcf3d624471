//! Routing: the port by which a packet leaves a switch.
//!
//! A [`Scheme`] chooses it. [`Routes`] is the scheme of a network; what it holds follows from the
//! graph and from the [`Routing`] of the scenario. All of its ports lie on shortest paths, and
//! hosts do not forward.

mod hash;
mod paths;
mod table;
mod tree;

use self::{hash::Hash, table::Table, tree::Tree};
use crate::graph::{Graph, HostId, Node, PortId, SwitchId};

/// The inputs of a scheme for a packet at a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The switch.
    pub switch: SwitchId,
    /// The destination host.
    pub host: HostId,
    /// The packet's path value. Packets with one value between two hosts take one path, unless the
    /// scheme is adaptive. A sender that gives all packets of a connection one value pins the
    /// connection to a path, so the value also stands for the flow.
    pub path: u32,
}

/// How switches choose among ports.
pub trait Scheme {
    /// The state that switches keep between packets. Each part of a run has its own: it asks for
    /// the switches that it looks after, and for no others.
    type State: Default;

    /// The port by which a packet leaves a switch; `None` if no path leads to its destination. It
    /// is called once for each packet and switch. `load` gives the backlog of a candidate port in
    /// bytes; a scheme that does not call it does not pay for it.
    fn choose(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut Self::State,
    ) -> Option<PortId>;

    /// The port that [`Scheme::choose`] will probably answer, for a prefetch. It changes nothing.
    fn peek(&self, query: Query) -> Option<PortId>;
}

/// How a switch chooses among ports that are equally near to the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By the destination's number: (d / D) mod k for k equal ports, where D is the number of
    /// choices made below (Zahavi 2010).
    #[default]
    DModK,
    /// By a hash of the path value and of the switch's number, as ECMP does (RFC 2992).
    FlowHash,
}

impl Routing {
    /// Every one with its name in scenarios.
    pub const NAMES: [(&'static str, Self); 2] =
        [("d-mod-k", Self::DModK), ("flow-hash", Self::FlowHash)];
}

/// The scheme of a network.
#[derive(Clone, Debug)]
pub struct Routes(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// D-mod-k in a fat tree.
    Tree(Tree),
    /// D-mod-k in another graph.
    Table(Table),
    /// A hash of the path value.
    Hash(Hash),
}

impl Scheme for Routes {
    type State = ();

    #[inline(always)]
    fn choose(
        &self,
        query: Query,
        _load: impl FnMut(PortId) -> u64,
        _state: &mut (),
    ) -> Option<PortId> {
        self.peek(query)
    }

    #[inline(always)]
    fn peek(&self, query: Query) -> Option<PortId> {
        match &self.0 {
            Kind::Tree(tree) => Some(tree.port(query.switch, query.host)),
            _ => self.look_up(query),
        }
    }
}

impl Routes {
    /// D-mod-k.
    pub fn new(graph: &Graph) -> Self {
        Self::with(graph, Routing::DModK)
    }

    /// By this choice among equal ports.
    pub fn with(graph: &Graph, routing: Routing) -> Self {
        let kind = match routing {
            Routing::FlowHash => Kind::Hash(Hash::new(graph)),
            Routing::DModK => {
                let divisors = paths::divisors(graph);
                let table = Table::d_mod_k(graph, &divisors);
                match Tree::fit(graph, &table, &divisors) {
                    Some(tree) => Kind::Tree(tree),
                    None => Kind::Table(table),
                }
            }
        };
        Self(kind)
    }

    /// [`Scheme::peek`] for every kind. It is not inlined: only the formula of a tree is worth
    /// that.
    #[inline(never)]
    fn look_up(&self, query: Query) -> Option<PortId> {
        let Query { switch, host, path } = query;
        match &self.0 {
            Kind::Tree(tree) => Some(tree.port(switch, host)),
            Kind::Table(table) => table.port(switch, host),
            Kind::Hash(hash) => hash.port(switch, host, path),
        }
    }

    /// Every port that a switch may choose towards a host, for any path value; none without a path.
    pub fn choices(&self, switch: SwitchId, host: HostId) -> Vec<PortId> {
        match &self.0 {
            Kind::Tree(tree) => vec![tree.port(switch, host)],
            Kind::Table(table) => table.port(switch, host).into_iter().collect(),
            Kind::Hash(hash) => hash.equal(switch, host).to_vec(),
        }
    }

    /// The ports that a packet from one host to another may take, hop by hop; empty if no path
    /// leads there, or none is needed.
    pub fn hops(&self, graph: &Graph, from: HostId, to: HostId) -> Vec<Vec<PortId>> {
        let mut hops: Vec<Vec<PortId>> = Vec::new();
        let mut nodes = vec![graph.number(from)];
        while nodes != [graph.number(to)] {
            let mut ports = Vec::new();
            for &node in &nodes {
                match graph.node(node) {
                    Node::Switch(switch) => ports.extend(self.choices(switch, to)),
                    Node::Host(from) if hops.is_empty() => ports.extend(graph.adapter(from)),
                    Node::Host(_) => return Vec::new(),
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

#[cfg(test)]
mod tests;
