//! Routing: the port by which a packet leaves a switch.
//!
//! A [`Scheme`] chooses it. [`Routes`] is the scheme of a network; what it holds follows from the
//! graph and from the [`Routing`] of the scenario. All of its ports lie on shortest paths, and
//! hosts do not forward.

mod adaptive;
mod conga;
mod divisor;
mod near;
mod own;
mod paths;
mod plb;
mod recycle;
mod source;
mod spread;
mod table;
mod tree;

pub use self::{
    adaptive::{AdaptiveRules, Snooped, Split},
    plb::{Plb, PlbRules, Sending},
    recycle::Recycled,
    source::{DropPath, LimitPaths, PathRules, SelectPath},
    spread::State,
};
use self::{
    conga::Leaves,
    paths::Links,
    spread::{Rule, Spread},
    table::Table,
    tree::Tree,
};
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
    /// The time.
    pub now_ps: u64,
}

/// A packet at a switch that rewrites path values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// The packet and the switch.
    pub query: Query,
    /// It comes from a host.
    pub from_host: bool,
    /// Its length.
    pub bytes: u32,
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

/// How packets are spread over paths that are equally short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// By the destination's number: (d / D) mod k for k equal ports, where D is the number of
    /// choices made below (Zahavi 2010).
    #[default]
    DModK,
    /// By the source's number: (s / D) mod k.
    SModK,
    /// By a hash of the connection's addresses and of the switch's number, as ECMP does
    /// (RFC 2992).
    FlowHash,
    /// By a hash of the packet's addresses and numbers (sequence, acknowledgement, datagram) and of
    /// the switch's number.
    PacketHash,
    /// Each switch draws a port for each packet, so each packet has a random nearest common
    /// ancestor (Valiant 1982, among shortest paths).
    Random,
    /// Senders draw a path value for each packet, also for one that is sent again; switches hash
    /// it.
    Spray,
    /// Senders use the path values of unmarked acknowledgements again, and draw others
    /// ([`Recycled`]); switches hash them.
    Reps,
    /// Senders keep a path value until congestion lasts, and then draw another ([`Plb`]); switches
    /// hash it.
    Plb(PlbRules),
    /// Of two random ports and the best one of the last choice, the one with the shortest queue:
    /// DRILL(2, 1) (Ghorbani et al., SIGCOMM 2017).
    Drill,
    /// A random port for each flowlet: packets of a connection with no gap as long as this between
    /// them (Vanini et al., LetFlow, NSDI 2017).
    Flowlet {
        /// The gap, ps.
        gap_ps: u64,
    },
    /// The first switch gives each flowlet the uplink whose way has the least congestion, as the
    /// last switch tells it; further switches hash ([`Passing`]). In a graph that does not fit
    /// ([`fits_conga`]) all hash.
    Conga {
        /// The gap between flowlets, ps.
        gap_ps: u64,
    },
    /// D-mod-k, but for ports behind which snooped congestion notifications tell of congestion.
    /// Notifications take random ports. Only in converged Ethernet.
    SwitchAdaptive(AdaptiveRules),
    /// Sources use more paths in reaction to congestion notifications (Crisan's thesis, algorithm
    /// 2.1). Only in converged Ethernet.
    R2c2(PathRules),
    /// The same with a rate limiter for each path in use (algorithm 2.2).
    R3c2(PathRules),
}

/// What senders put into the path values of their packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathValues {
    /// A hash of the connection's addresses.
    Connection,
    /// The number of the sender's host.
    Host,
    /// The number of the receiver's host; adapters replace it with that of another path.
    Destination,
    /// A hash of the packet's addresses and numbers.
    Header,
    /// A random number for each packet.
    Random,
    /// Values that acknowledgements bring back, and random ones. An acknowledgement without data
    /// has the value of the packet with data that came last.
    Recycled,
    /// One value until congestion lasts.
    Protected(PlbRules),
}

impl PathValues {
    /// Packets of one connection have several.
    #[inline]
    pub fn differ_by_packet(self) -> bool {
        matches!(
            self,
            Self::Header | Self::Random | Self::Recycled | Self::Protected(_)
        )
    }

    /// They depend on what arrives at the sender.
    #[inline]
    pub fn follow_arrivals(self) -> bool {
        matches!(self, Self::Recycled | Self::Protected(_))
    }
}

/// The gap of [`Routing::Flowlet`] and [`Routing::Conga`] unless a scenario sets it: 500 us, as in
/// CONGA (Alizadeh et al., SIGCOMM 2014).
const FLOWLET_GAP_PS: u64 = 500_000_000;

impl Routing {
    /// Every one with its name in scenarios.
    pub const NAMES: [(&'static str, Self); 14] = [
        ("d-mod-k", Self::DModK),
        ("s-mod-k", Self::SModK),
        ("flow-hash", Self::FlowHash),
        ("packet-hash", Self::PacketHash),
        ("random", Self::Random),
        ("spray", Self::Spray),
        ("reps", Self::Reps),
        ("plb", Self::Plb(PlbRules::DEFAULT)),
        ("drill", Self::Drill),
        (
            "flowlet",
            Self::Flowlet {
                gap_ps: FLOWLET_GAP_PS,
            },
        ),
        (
            "conga",
            Self::Conga {
                gap_ps: FLOWLET_GAP_PS,
            },
        ),
        (
            "switch-adaptive",
            Self::SwitchAdaptive(AdaptiveRules::DEFAULT),
        ),
        ("r2c2", Self::R2c2(PathRules::DEFAULT)),
        ("r3c2", Self::R3c2(PathRules::DEFAULT)),
    ];

    /// Whether it reacts to the notifications of converged Ethernet.
    pub fn needs_notifications(self) -> bool {
        matches!(
            self,
            Self::SwitchAdaptive(_) | Self::R2c2(_) | Self::R3c2(_)
        )
    }

    /// Whether frames of one flow may overtake each other.
    pub fn reorders(self) -> bool {
        !matches!(self, Self::DModK | Self::SModK | Self::FlowHash)
    }

    /// Whether senders choose the path value and switches do no more than hash it: such schemes
    /// can stand side by side in one network.
    pub fn is_hashed(self) -> bool {
        matches!(
            self,
            Self::FlowHash | Self::PacketHash | Self::Spray | Self::Reps | Self::Plb(_)
        )
    }

    /// What senders put into path values.
    pub fn path_values(self) -> PathValues {
        match self {
            Self::SModK => PathValues::Host,
            Self::R2c2(_) | Self::R3c2(_) => PathValues::Destination,
            Self::PacketHash => PathValues::Header,
            Self::Spray => PathValues::Random,
            Self::Reps => PathValues::Recycled,
            Self::Plb(rules) => PathValues::Protected(rules),
            Self::DModK
            | Self::FlowHash
            | Self::Random
            | Self::Drill
            | Self::Flowlet { .. }
            | Self::Conga { .. }
            | Self::SwitchAdaptive(_) => PathValues::Connection,
        }
    }
}

/// The scheme of a network.
#[derive(Clone, Debug)]
pub struct Routes {
    kind: Kind,
    path_values: PathValues,
    /// Those of priorities that have their own.
    own: Option<Box<own::Own>>,
}

#[derive(Clone, Debug)]
enum Kind {
    /// D-mod-k in a fat tree.
    Tree(Tree),
    /// D-mod-k in another graph.
    Table(Table),
    /// Every other scheme.
    Spread(Box<Spread>),
}

impl Scheme for Routes {
    type State = State;

    #[inline(always)]
    fn choose(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        match &self.kind {
            Kind::Tree(tree) => Some(tree.port(query.switch, query.host)),
            _ => self.choose_among(query, load, state),
        }
    }

    #[inline(always)]
    fn peek(&self, query: Query) -> Option<PortId> {
        match &self.kind {
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

    /// By this scheme.
    pub fn with(graph: &Graph, routing: Routing) -> Self {
        Self::around(graph, routing, &[])
    }

    /// By this scheme, without the links that have failed: `failed` says it by link, and links
    /// beyond its end work. Where every path has failed, packets go to a link that has.
    pub fn around(graph: &Graph, routing: Routing, failed: &[bool]) -> Self {
        let links = Links { graph, failed };
        let rule = match routing {
            Routing::DModK => None,
            Routing::SModK | Routing::R2c2(_) | Routing::R3c2(_) => {
                Some(Rule::Value(narrow(paths::divisors(graph))))
            }
            Routing::SwitchAdaptive(rules) => {
                Some(Rule::Adaptive(rules, narrow(paths::divisors(graph))))
            }
            Routing::FlowHash
            | Routing::PacketHash
            | Routing::Spray
            | Routing::Reps
            | Routing::Plb(_) => Some(Rule::Hash),
            Routing::Random => Some(Rule::Random),
            Routing::Drill => Some(Rule::Drill),
            Routing::Flowlet { gap_ps } => Some(Rule::Flowlet { gap_ps }),
            Routing::Conga { gap_ps } => Leaves::of(graph).map_or(Some(Rule::Hash), |leaves| {
                Some(Rule::Conga { gap_ps, leaves })
            }),
        };
        let spread = |rule| Kind::Spread(Spread::new(links, rule).into());
        Self {
            kind: rule.map_or_else(|| Self::d_mod_k(links), spread),
            path_values: routing.path_values(),
            own: None,
        }
    }

    /// Whether switches are told of the notifications that pass them ([`Routes::snoop`]).
    pub fn snoops(&self) -> bool {
        matches!(&self.kind, Kind::Spread(spread) if spread.snoops())
    }

    /// Whether switches rewrite the path values of packets that pass them ([`Routes::pass`]).
    pub fn rewrites(&self) -> bool {
        matches!(&self.kind, Kind::Spread(spread) if spread.rewrites())
    }

    /// [`Scheme::choose`] where switches rewrite path values: also the packet's new one. `rate`
    /// gives the rate of a port in bits per second.
    pub fn pass(
        &self,
        passing: Passing,
        rate: impl Fn(PortId) -> u64,
        state: &mut State,
    ) -> Option<(PortId, u32)> {
        match &self.kind {
            Kind::Spread(spread) => spread.pass(passing, rate, state),
            Kind::Tree(_) | Kind::Table(_) => {
                let port = self.look_up(passing.query)?;
                Some((port, passing.query.path))
            }
        }
    }

    /// A notification passes a switch, or a port of the switch has made it. Returns the port by
    /// which the notification continues to its host; `None` if these routes learn nothing from
    /// notifications, which then take the port of any other packet.
    pub fn snoop(&self, query: Query, snooped: Snooped, state: &mut State) -> Option<PortId> {
        let (kind, state) = match self.own_of(snooped.priority) {
            Some(own) => (&own.kind, state.of_priority(snooped.priority)),
            None => (&self.kind, state),
        };
        match kind {
            Kind::Spread(spread) => spread.snoop(query, snooped, state),
            Kind::Tree(_) | Kind::Table(_) => None,
        }
    }

    /// What senders put into the path values of their packets.
    pub fn path_values(&self) -> PathValues {
        self.path_values
    }

    fn d_mod_k(links: Links<'_>) -> Kind {
        let divisors = paths::divisors(links.graph);
        let table = Table::d_mod_k(links, &divisors);
        match Tree::fit(links.graph, &table, &divisors) {
            Some(tree) => Kind::Tree(tree),
            None => Kind::Table(table),
        }
    }

    /// [`Scheme::peek`] for every kind. It is not inlined: only the formula of a tree is worth
    /// that.
    #[inline(never)]
    fn look_up(&self, query: Query) -> Option<PortId> {
        match &self.kind {
            Kind::Tree(tree) => Some(tree.port(query.switch, query.host)),
            Kind::Table(table) => table.port(query.switch, query.host),
            Kind::Spread(spread) => spread.peek(query),
        }
    }

    /// [`Scheme::choose`] for every kind, not inlined for the same reason.
    #[inline(never)]
    fn choose_among(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        match &self.kind {
            Kind::Spread(spread) => spread.choose(query, load, state),
            _ => self.look_up(query),
        }
    }

    /// Every port that a switch may choose towards a host, for any path value; none without a path.
    pub fn choices(&self, switch: SwitchId, host: HostId) -> Vec<PortId> {
        match &self.kind {
            Kind::Tree(tree) => vec![tree.port(switch, host)],
            Kind::Table(table) => table.port(switch, host).into_iter().collect(),
            Kind::Spread(spread) => spread.equal(switch, host).collect(),
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

    /// Whether [`Routes::hops`] are any, or none is needed. Ports of switches lie on shortest
    /// paths, so that the first switch knows.
    pub fn leads(&self, graph: &Graph, from: HostId, to: HostId) -> bool {
        let Some(adapter) = graph.adapter(from).filter(|_| from != to) else {
            return from == to;
        };
        match (graph.node(graph.far(adapter)), &self.kind) {
            (Node::Host(host), _) => host == to,
            (Node::Switch(_), Kind::Tree(_)) => true,
            (Node::Switch(switch), Kind::Table(table)) => table.port(switch, to).is_some(),
            (Node::Switch(switch), Kind::Spread(spread)) => {
                spread.equal(switch, to).next().is_some()
            }
        }
    }

    /// Of [`Routes::hops`] those that have one port, in order: what every packet takes.
    pub fn sole_hops(&self, graph: &Graph, from: HostId, to: HostId) -> Vec<PortId> {
        if let Kind::Spread(_) = self.kind {
            let hops = self.hops(graph, from, to).into_iter();
            return hops
                .filter(|ports| ports.len() == 1)
                .map(|ports| ports[0])
                .collect();
        }
        let mut ports = Vec::new();
        let mut next = graph.adapter(from).filter(|_| from != to);
        while let Some(port) = next {
            ports.push(port);
            next = match graph.node(graph.far(port)) {
                Node::Switch(switch) => self.look_up(Query {
                    switch,
                    host: to,
                    path: 0,
                    now_ps: 0,
                }),
                Node::Host(host) if host == to => return ports,
                Node::Host(_) => None,
            };
        }
        Vec::new()
    }
}

/// What [`Routing::Conga`] cannot do in a graph.
///
/// # Errors
/// The reason.
pub fn fits_conga(graph: &Graph) -> Result<(), String> {
    match Leaves::of(graph) {
        Some(_) => Ok(()),
        None => Err(format!(
            "its header has room for {} switches with hosts, and {} links of one to others",
            conga::LEAVES,
            conga::UPLINKS
        )),
    }
}

/// Divisors of numbers of 32 bits, saturating.
fn narrow(divisors: Vec<u64>) -> Vec<u32> {
    let narrow = |divisor| u32::try_from(divisor).unwrap_or(u32::MAX);
    divisors.into_iter().map(narrow).collect()
}

#[cfg(test)]
mod tests;
