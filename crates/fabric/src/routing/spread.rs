//! Schemes that spread packets over the ports that are equally near to their destination.

use sluicegate_core::number::{low_8, low_half, narrow};

use super::{
    Passing, Query,
    adaptive::{AdaptiveRules, Congestion, Snooped},
    conga::{Header, Leaves, Tables},
    near::{AtOnce, Near, Numbered, Set, SetId},
    paths::Links,
};
use crate::{
    cee::PRIORITIES,
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
    /// CONGA, with such a gap between flowlets, ps.
    Conga { gap_ps: u64, leaves: Leaves },
}

/// The sets of equal ports, and the rule.
#[derive(Clone, Debug)]
pub struct Spread {
    near: Near,
    rule: Rule,
}

/// The state of a part's switches.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By number of a set. It grows with their use.
    sets: Vec<SetState>,
    conga: Tables,
    /// Of priorities that have routes of their own; empty until one is asked for.
    own: Vec<State>,
}

/// Half a cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
struct SetState {
    draws: u64,
    /// By hash of the connection; `None` until it is used.
    flowlets: Option<Box<[Flowlet; FLOWLETS]>>,
    /// `None` until a notification has told of some.
    congestion: Option<Box<Congestion>>,
    /// The index of the port that was best at the last choice.
    best: u32,
}

const _: () = assert!(size_of::<SetState>() == 32);

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
    pub fn equal(&self, switch: SwitchId, host: HostId) -> impl Iterator<Item = PortId> {
        let (_, set) = self.near.find(switch, host);
        self.near.ports(set)
    }

    /// The port of a packet, if the rule needs no state for it.
    #[inline(always)]
    pub fn peek(&self, query: Query) -> Option<PortId> {
        let (_, set) = self.near.find(query.switch, query.host);
        if set.len() < 2 {
            return set.only();
        }
        Some(self.near.port(set, self.without_state(query, set)?))
    }

    /// The port of a packet.
    #[inline(always)]
    pub fn choose(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        match self.near.at_once(query.switch, query.host) {
            AtOnce::Only(port) => Some(port),
            AtOnce::Up(up) => self.choose_of(up, query, load, state),
            AtOnce::Ask => self.search_and_choose(query, load, state),
        }
    }

    /// [`Spread::choose`] where a switch has to search for the set.
    #[inline(never)]
    fn search_and_choose(
        &self,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        let (number, set) = self.near.find(query.switch, query.host);
        self.choose_of(&Numbered { set, number }, query, load, state)
    }

    /// The port of a packet in a set.
    #[inline(always)]
    fn choose_of(
        &self,
        of: &Numbered,
        query: Query,
        load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        if of.set.len() < 2 {
            return of.set.only();
        }
        match self.without_state(query, of.set) {
            Some(index) => Some(self.near.port(of.set, index)),
            None => self.with_state(of, query, load, state),
        }
    }

    /// The port of a packet among several, by a rule that needs the state of the switch. It is the
    /// last call of [`Spread::choose`], so that other rules, and ports without a choice, save no
    /// registers for it.
    #[inline(never)]
    fn with_state(
        &self,
        of: &Numbered,
        query: Query,
        mut load: impl FnMut(PortId) -> u64,
        state: &mut State,
    ) -> Option<PortId> {
        let Numbered { set, number } = *of;
        let index = match &self.rule {
            Rule::Random => state.of(number).draw(query.path, set.len()),
            Rule::Drill => {
                let load = |index| load(self.near.port(set, index));
                state.of(number).drill(query.path, set.len(), load)
            }
            Rule::Flowlet { gap_ps } => state.of(number).flowlet(query, set.len(), *gap_ps),
            Rule::Adaptive(rules, divisors) => {
                let default = modulo(query.host.0, divisors[query.switch.index()], set.len());
                let congestion = state.of(number).congestion.as_mut();
                let around = congestion.and_then(|congestion| {
                    congestion.choose(rules.split, query.host, default, query.now_ps)
                });
                around.unwrap_or(default)
            }
            // Of a packet that is no tenant's: see [`Spread::pass`].
            Rule::Conga { .. } => hashed(query.path, query.switch, set.len()),
            Rule::Value(_) | Rule::Hash => unreachable!("they need no state"),
        };
        Some(self.near.port(set, index))
    }

    /// Whether switches rewrite path values.
    pub fn rewrites(&self) -> bool {
        matches!(self.rule, Rule::Conga { .. })
    }

    /// See [`super::Routes::pass`].
    #[inline(always)]
    pub fn pass(
        &self,
        passing: Passing,
        rate: impl Fn(PortId) -> u64,
        state: &mut State,
    ) -> Option<(PortId, u32)> {
        let query = passing.query;
        let Rule::Conga { gap_ps, leaves } = &self.rule else {
            return self.peek(query).map(|port| (port, query.path));
        };
        let (number, set) = self.near.find(query.switch, query.host);
        let found = Numbered { set, number };
        let set = found.set;
        let (port, path) = match leaves.number(query.switch) {
            Some(leaf) if leaf == leaves.of_host(query.host) => {
                if !passing.from_host {
                    let header = Header::of(query.path);
                    state.conga.arrived(leaf, header, query.now_ps);
                }
                let port = self.near.ports(set).next();
                return port.map(|port| (port, query.path));
            }
            _ if set.len() == 0 => return None,
            Some(leaf) if passing.from_host => {
                let from = (leaf, &found);
                self.enter((*gap_ps, leaves), query, from, &rate, state)
            }
            _ => match set.only() {
                Some(port) => (port, query.path),
                None => {
                    let hash = query.path & Header::HASHED;
                    let index = hashed(hash, query.switch, set.len());
                    (self.near.port(set, index), query.path)
                }
            },
        };
        let tables = &mut state.conga;
        let congestion = tables.sent(port, passing.bytes, rate(port), query.now_ps);
        Some((port, Header::raised(path, congestion)))
    }

    /// A packet comes from a host to its first leaf, with CONGA: its uplink, and its path value
    /// from here on.
    #[inline(always)]
    fn enter(
        &self,
        (gap_ps, leaves): (u64, &Leaves),
        query: Query,
        (leaf, found): (u16, &Numbered),
        rate: &impl Fn(PortId) -> u64,
        state: &mut State,
    ) -> (PortId, u32) {
        let there = leaves.of_host(query.host);
        let Numbered { set, number } = *found;
        let uplink = |tables: &mut Tables, index: usize| {
            let port = self.near.port(set, index);
            let uplink = (port, leaves.tag(port));
            tables.of_uplink((leaf, there), uplink, rate(port), query.now_ps)
        };
        let index = state.conga_flowlet(number, query, (set.len(), gap_ps), uplink);
        let port = self.near.port(set, index);
        let (told_tag, told) = state.conga.tell(leaf, there, query.now_ps);
        let header = Header {
            congestion: 0,
            leaf,
            tag: leaves.tag(port),
            told_tag,
            told,
            hash: low_8(query.path.into()),
        };
        (port, header.value())
    }

    /// The index of a packet's port in a set of several, if the rule needs no state for it.
    #[inline(always)]
    fn without_state(&self, query: Query, set: Set) -> Option<usize> {
        match &self.rule {
            Rule::Value(divisors) => Some(modulo(
                query.path,
                divisors[query.switch.index()],
                set.len(),
            )),
            Rule::Hash => Some(hashed(query.path, query.switch, set.len())),
            Rule::Random
            | Rule::Drill
            | Rule::Flowlet { .. }
            | Rule::Conga { .. }
            | Rule::Adaptive(..) => None,
        }
    }

    /// Whether switches learn from the notifications that pass them.
    pub fn snoops(&self) -> bool {
        matches!(self.rule, Rule::Adaptive(..))
    }

    /// See [`super::Routes::snoop`].
    pub fn snoop(&self, query: Query, snooped: Snooped, state: &mut State) -> Option<PortId> {
        let Rule::Adaptive(rules, divisors) = &self.rule else {
            return None;
        };
        let (number, set) = self.near.find(query.switch, snooped.host);
        let index = self.near.ports(set).position(|port| port == snooped.port);
        if let (Some(index), 2..) = (index, set.len()) {
            let default = modulo(snooped.host.0, divisors[query.switch.index()], set.len());
            let at = (index, set.len(), default);
            let congestion = state.of(number).congestion.get_or_insert_default();
            congestion.note(*rules, at, snooped, query.now_ps);
        }
        let (number, set) = self.near.find(query.switch, query.host);
        match set.len() {
            0 | 1 => set.only(),
            count => {
                let index = state.of(number).draw(query.path, count);
                Some(self.near.port(set, index))
            }
        }
    }
}

/// An index below `count` by a hash of the path value and the switch.
#[inline]
fn hashed(path: u32, switch: SwitchId, count: usize) -> usize {
    part_of(mix(u64::from(path) << 32 | u64::from(switch.0)), count)
}

/// (number / divisor) mod `count`.
#[inline]
fn modulo(number: u32, divisor: u32, count: usize) -> usize {
    (number / divisor % low_half(count as u64)) as usize
}

impl State {
    /// That of a priority with routes of its own.
    pub(super) fn of_priority(&mut self, priority: u8) -> &mut Self {
        if self.own.is_empty() {
            self.own.resize_with(PRIORITIES, Self::default);
        }
        &mut self.own[usize::from(priority)]
    }

    #[inline]
    fn of(&mut self, SetId(set): SetId) -> &mut SetState {
        let at = set as usize;
        if at >= self.sets.len() {
            self.grow(at);
        }
        &mut self.sets[at]
    }

    #[cold]
    fn grow(&mut self, at: usize) {
        let first = self.sets.len();
        let sets = (first..=at).map(|set| SetState {
            draws: mix(set as u64),
            ..SetState::default()
        });
        self.sets.extend(sets);
    }
}

impl State {
    /// The index of the uplink for a packet at its first leaf; `congestion` gives that of each.
    fn conga_flowlet(
        &mut self,
        set: SetId,
        query: Query,
        (count, gap_ps): (usize, u64),
        congestion: impl Fn(&mut Tables, usize) -> u8,
    ) -> usize {
        let at = Flowlet::place(query.path);
        let flowlet = &mut self.of(set).flowlets()[at];
        if let Some(index) = flowlet.current(query.now_ps, gap_ps) {
            flowlet.last_ps = query.now_ps;
            return index;
        }
        let flowlet = *flowlet;
        let tables = &mut self.conga;
        let levels: Vec<u8> = (0..count).map(|index| congestion(tables, index)).collect();
        let drawn = self.of(set).draw(query.path, count);
        let index = flowlet.least(&levels, drawn);
        self.of(set).flowlets()[at] = Flowlet::at(index, query.now_ps);
        index
    }
}

impl Flowlet {
    /// Where the flowlet of the connections with this path value is kept.
    #[inline]
    fn place(path: u32) -> usize {
        part_of(mix(path.into()), FLOWLETS)
    }

    fn at(index: usize, last_ps: u64) -> Self {
        Self {
            last_ps,
            port: narrow::<u32>(index) + 1,
        }
    }

    /// The index of its port if no gap has ended it.
    #[inline]
    fn current(self, now_ps: u64, gap_ps: u64) -> Option<usize> {
        let lives = self.port > 0 && now_ps - self.last_ps < gap_ps;
        lives.then(|| self.port as usize - 1)
    }

    /// The index of the least level for the next flowlet: of equal ones that of the last flowlet,
    /// or else the first from `drawn` on.
    fn least(self, levels: &[u8], drawn: usize) -> usize {
        let least = levels.iter().min().copied().unwrap_or(0);
        let last = (self.port as usize).checked_sub(1);
        let mut from_drawn = (drawn..levels.len()).chain(0..drawn);
        let first = || from_drawn.find(|&index| levels[index] == least);
        last.filter(|&last| levels.get(last) == Some(&least))
            .or_else(first)
            .unwrap_or(drawn)
    }
}

impl SetState {
    /// A random index below `count`. The path value, which the run's seed has part in, makes runs
    /// with different seeds differ.
    #[inline]
    fn draw(&mut self, path: u32, count: usize) -> usize {
        part_of(mix(draw(&mut self.draws) ^ u64::from(path)), count)
    }

    fn drill(&mut self, path: u32, count: usize, mut load: impl FnMut(usize) -> u64) -> usize {
        let candidates = [
            self.best as usize,
            self.draw(path, count),
            self.draw(path, count),
        ];
        let loads = candidates.map(|at| (load(at), at));
        // Of equal ones a random one: the last would otherwise be kept while all queues are empty.
        let [last, first, second] = loads;
        let drawn = if second.0 < first.0 { second } else { first };
        let best = if last.0 < drawn.0 { last } else { drawn };
        self.best = narrow::<u32>(best.1);
        best.1
    }

    fn flowlet(&mut self, query: Query, count: usize, gap_ps: u64) -> usize {
        let at = Flowlet::place(query.path);
        let flowlet = &mut self.flowlets()[at];
        if let Some(index) = flowlet.current(query.now_ps, gap_ps) {
            flowlet.last_ps = query.now_ps;
            return index;
        }
        let index = self.draw(query.path, count);
        self.flowlets()[at] = Flowlet::at(index, query.now_ps);
        index
    }

    #[inline]
    fn flowlets(&mut self) -> &mut [Flowlet; FLOWLETS] {
        self.flowlets.get_or_insert_with(no_flowlets)
    }
}

/// Its 16 KB would be on the stack of the caller, each time, if that made it.
#[cold]
#[inline(never)]
fn no_flowlets() -> Box<[Flowlet; FLOWLETS]> {
    Box::new([Flowlet::default(); FLOWLETS])
}

/// The upper half of a hash as an index below `count`.
#[inline]
fn part_of(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}
