//! Schemes that spread packets over the ports that are equally near to their destination.

use super::{
    Query,
    adaptive::{AdaptiveRules, Congestion, Snooped},
    near::{Near, SetId},
    paths::Links,
};
use crate::{
    graph::{HostId, PortId, SwitchId},
    random::{draw, mix},
};

/// Flowlets that a set of ports tells apart. Connections whose hash is the same share one.
const FLOWLETS: usize = 1024;

/// How a switch chooses among equal ports.
#[derive(Clone, Debug)]
pub enum Rule {
    /// (v / D) mod k, where v is the path value: with S-mod-k the number of the source. By switch:
    /// D, the number of choices made below it.
    Value(Vec<u32>),
    /// Likewise with the number of the destination, and around congestion.
    Adaptive(AdaptiveRules, Vec<u32>),
    /// A hash of the path value and of the switch's number.
    Hash,
    /// A random one for each packet.
    Random,
    /// DRILL(2, 1): of two random ones and the one that was best at the last choice, the one with
    /// the shortest queue (Ghorbani et al., SIGCOMM 2017).
    Drill,
    /// A random one for each flowlet: packets of a connection with no gap as long as this between
    /// them, ps (Vanini et al., LetFlow, NSDI 2017).
    Flowlet { gap_ps: u64 },
}

/// The sets of equal ports, and the rule.
#[derive(Clone, Debug)]
pub struct Spread {
    near: Near,
    rule: Rule,
}

/// The state of the sets of a part's switches, by number. It grows with their use.
#[derive(Clone, Debug, Default)]
pub struct State(Vec<SetState>);

#[derive(Clone, Debug, Default)]
struct SetState {
    draws: u64,
    /// The index of the port that was best at the last choice.
    best: u32,
    /// By hash of the connection; empty until it is used.
    flowlets: Box<[Flowlet]>,
    congestion: Congestion,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flowlet {
    /// When its last packet passed.
    last_ps: u64,
    /// The index of its port plus one; 0 = none yet.
    port: u32,
}

impl Spread {
    /// The sets of a graph, and the rule.
    pub fn new(links: Links<'_>, rule: Rule) -> Self {
        let near = Near::new(links);
        Self { near, rule }
    }

    /// The ports of a switch that are equally near to a host.
    pub fn equal(&self, switch: SwitchId, host: HostId) -> &[PortId] {
        self.near.ports(self.near.set(switch, host))
    }

    /// The port of a packet, if the rule needs no state for it.
    #[inline]
    pub fn peek(&self, query: Query) -> Option<PortId> {
        self.without_state(query, self.equal(query.switch, query.host))
    }

    /// The port of a packet.
    #[inline]
    pub fn choose(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        let set = self.near.set(query.switch, query.host);
        let ports = self.near.ports(set);
        if ports.len() < 2 {
            return ports.first().copied();
        }
        let index = match &self.rule {
            Rule::Value(_) | Rule::Hash => return self.without_state(query, ports),
            Rule::Adaptive(rules, divisors) => {
                let default = modulo(query.host.0, divisors[query.switch.index()], ports.len());
                let congestion = &mut state.of(set).congestion;
                let around = congestion.choose(rules.split, query.host, default, query.now_ps);
                around.unwrap_or(default)
            }
            Rule::Random => state.of(set).draw(query.path, ports.len()),
            Rule::Drill => state.of(set).drill(query.path, ports, load),
            Rule::Flowlet { gap_ps } => state.of(set).flowlet(query, ports.len(), *gap_ps),
        };
        Some(ports[index])
    }

    /// The port of a packet among `ports`, which are all that are equally near, if the rule needs
    /// no state for it.
    #[inline]
    fn without_state(&self, query: Query, ports: &[PortId]) -> Option<PortId> {
        if ports.len() < 2 {
            return ports.first().copied();
        }
        let index = match &self.rule {
            Rule::Value(divisors) => {
                modulo(query.path, divisors[query.switch.index()], ports.len())
            }
            Rule::Hash => {
                let hash = mix(u64::from(query.path) << 32 | u64::from(query.switch.0));
                part_of(hash, ports.len())
            }
            Rule::Random | Rule::Drill | Rule::Flowlet { .. } | Rule::Adaptive(..) => return None,
        };
        Some(ports[index])
    }

    /// Whether switches learn from the notifications that pass them.
    pub fn snoops(&self) -> bool {
        matches!(self.rule, Rule::Adaptive(..))
    }

    /// See [`super::Routes::snoop`].
    pub fn snoop(&self, query: Query, snooped: Snooped, state: &mut State) -> Option<PortId> {
        let Rule::Adaptive(rules, divisors) = &self.rule else {
            return self.peek(query);
        };
        let set = self.near.set(query.switch, snooped.host);
        let ports = self.near.ports(set);
        let index = ports.iter().position(|&port| port == snooped.port);
        if let (Some(index), 2..) = (index, ports.len()) {
            let default = modulo(snooped.host.0, divisors[query.switch.index()], ports.len());
            let at = (index, ports.len(), default);
            let congestion = &mut state.of(set).congestion;
            congestion.note(*rules, at, snooped, query.now_ps);
        }
        let set = self.near.set(query.switch, query.host);
        let ports = self.near.ports(set);
        match ports.len() {
            0 | 1 => ports.first().copied(),
            count => Some(ports[state.of(set).draw(query.path, count)]),
        }
    }
}

/// (number / divisor) mod `count`.
#[inline]
fn modulo(number: u32, divisor: u32, count: usize) -> usize {
    (number / divisor % count as u32) as usize
}

impl State {
    #[inline]
    fn of(&mut self, SetId(set): SetId) -> &mut SetState {
        let at = set as usize;
        if at >= self.0.len() {
            self.grow(at);
        }
        &mut self.0[at]
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        let first = self.0.len();
        let sets = (first..=at).map(|set| SetState {
            draws: mix(set as u64),
            ..SetState::default()
        });
        self.0.extend(sets);
    }
}

impl SetState {
    /// A random index below `count`. The path value, which the run's seed has part in, makes runs
    /// with different seeds differ.
    #[inline]
    fn draw(&mut self, path: u32, count: usize) -> usize {
        part_of(mix(draw(&mut self.draws) ^ u64::from(path)), count)
    }

    fn drill(&mut self, path: u32, ports: &[PortId], mut load: impl FnMut(PortId) -> u64) -> usize {
        let candidates = [
            self.best as usize,
            self.draw(path, ports.len()),
            self.draw(path, ports.len()),
        ];
        let loads = candidates.map(|at| (load(ports[at]), at));
        // Of equal ones a random one: the last would otherwise be kept while all queues are empty.
        let [last, first, second] = loads;
        let drawn = if second.0 < first.0 { second } else { first };
        let best = if last.0 < drawn.0 { last } else { drawn };
        self.best = best.1 as u32;
        best.1
    }

    fn flowlet(&mut self, query: Query, count: usize, gap_ps: u64) -> usize {
        if self.flowlets.is_empty() {
            self.flowlets = vec![Flowlet::default(); FLOWLETS].into();
        }
        let at = part_of(mix(query.path.into()), FLOWLETS);
        let Flowlet { last_ps, port } = self.flowlets[at];
        let index = match port {
            1.. if query.now_ps - last_ps < gap_ps => port as usize - 1,
            _ => self.draw(query.path, count),
        };
        self.flowlets[at] = Flowlet {
            last_ps: query.now_ps,
            port: index as u32 + 1,
        };
        index
    }
}

/// The upper half of a hash as an index below `count`.
#[inline]
fn part_of(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}
