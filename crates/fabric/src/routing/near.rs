//! The ports of each switch that are equally near to a host.
//!
//! Each set of equal ports is kept once, and a switch finds its set by the number of the host. In a
//! fat tree that is a division ([`Row`]). In another graph it is a search among the runs of hosts
//! for which the switch has one set ([`Runs`]).

use std::collections::HashMap;

use sluicegate_core::number::{low_half, narrow};

use super::{
    divisor::Divisor,
    paths::{self, Links},
};
use crate::graph::{HostId, PortId, SwitchId};

/// The number of the set without ports: no path leads to the host.
const EMPTY: u32 = 0;

/// The number of a set of equal ports. All its ports belong to one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetId(pub u32);

/// A set of equal ports, in the order of their numbers. In a fat tree the numbers are equally far
/// apart, and the set needs no list of them.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// The first port; with [`Set::LISTED`] where in [`Near::listed`] the ports begin.
    first: u32,
    /// From one port to the next, or [`Set::LISTED`].
    step: u32,
    count: u32,
}

impl Set {
    /// No step between ports.
    const LISTED: u32 = 0;

    const EMPTY: Self = Self {
        first: 0,
        step: 1,
        count: 0,
    };

    /// The only port of a set.
    #[inline(always)]
    fn of(first: u32) -> Self {
        Self {
            first,
            step: 1,
            count: 1,
        }
    }

    /// How many ports it has.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.count as usize
    }

    /// The port of a set that has no other; `None` if it has none or several.
    #[inline(always)]
    pub fn only(self) -> Option<PortId> {
        (self.count == 1).then_some(PortId(self.first))
    }
}

/// A set, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// The set.
    pub set: Set,
    /// Its number.
    pub number: SetId,
}

/// What a switch of a fat tree knows without a search.
pub enum AtOnce<'a> {
    /// The only port.
    Only(PortId),
    /// The set of hosts that are not below the switch: none, one or several ports.
    Up(&'a Numbered),
    /// [`Near::find`] must be asked.
    Ask,
}

/// The sets of all switches.
#[derive(Clone, Debug)]
pub struct Near {
    index: Index,
    /// By number.
    sets: Vec<Set>,
    /// The ports of sets that need a list.
    listed: Vec<PortId>,
}

/// By switch and host: a set.
#[derive(Clone, Debug)]
enum Index {
    Formula(Vec<Row>),
    Runs(Runs),
}

impl Near {
    /// The sets of a graph.
    pub fn new(links: Links<'_>) -> Self {
        let graph = links.graph;
        let mut switches = vec![Found::default(); graph.switches() as usize];
        paths::shortest(links, |switch, host, nearest| {
            switches[switch.index()].add(host.0, nearest);
        });
        for switch in &mut switches {
            switch.end(graph.hosts());
        }
        let mut near = Self {
            index: Index::Formula(Vec::new()),
            sets: Vec::new(),
            listed: Vec::new(),
        };
        near.add(&[]);
        let shapes: Option<Vec<Shape>> = switches.iter().map(Shape::fit).collect();
        near.index = match shapes {
            Some(shapes) if graph.hosts() <= Divisor::END => Index::Formula(
                switches
                    .iter()
                    .zip(&shapes)
                    .map(|(switch, shape)| near.row(switch, shape))
                    .collect(),
            ),
            _ => Index::Runs(near.runs(&switches)),
        };
        near
    }

    /// The set of a switch towards a host, if no search is needed. It calls nothing, so that
    /// callers that call nothing else save no registers.
    #[inline(always)]
    pub fn at_once(&self, switch: SwitchId, host: HostId) -> AtOnce<'_> {
        match &self.index {
            Index::Formula(rows) => rows[switch.index()].at_once(host),
            Index::Runs(_) => AtOnce::Ask,
        }
    }

    /// The set of a switch towards a host, and its number.
    #[inline(always)]
    pub fn find(&self, switch: SwitchId, host: HostId) -> (SetId, Set) {
        match &self.index {
            Index::Formula(rows) => rows[switch.index()].find(host, &self.sets),
            Index::Runs(runs) => {
                let set = runs.set(switch, host);
                (SetId(set), self.sets[set as usize])
            }
        }
    }

    /// The port of a set with this index, below [`Set::len`].
    #[inline(always)]
    pub fn port(&self, set: Set, index: usize) -> PortId {
        debug_assert!(index < set.len(), "{index} of {}", set.count);
        match set.step {
            Set::LISTED => self.listed[set.first as usize + index],
            // The index is less than a `u32`, and each hop comes by here.
            step => PortId(
                set.first
                    .wrapping_add(step.wrapping_mul(low_half(index as u64))),
            ),
        }
    }

    /// All ports of a set.
    pub fn ports(&self, set: Set) -> impl Iterator<Item = PortId> {
        (0..set.len()).map(move |index| self.port(set, index))
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Adds a set and returns its number.
    fn add(&mut self, ports: &[PortId]) -> u32 {
        let step = match ports {
            [first, second, ..] => second.0.wrapping_sub(first.0),
            _ => 1,
        };
        let is_series = |pair: &[PortId]| pair[1].0.wrapping_sub(pair[0].0) == step;
        let set = match ports.first() {
            None => Set::EMPTY,
            Some(first) if ports.windows(2).all(is_series) => Set {
                first: first.0,
                step,
                count: narrow::<u32>(ports.len()),
            },
            Some(_) => {
                self.listed.extend_from_slice(ports);
                Set {
                    first: narrow::<u32>(self.listed.len() - ports.len()),
                    step: Set::LISTED,
                    count: narrow::<u32>(ports.len()),
                }
            }
        };
        self.sets.push(set);
        narrow::<u32>(self.sets.len()) - 1
    }

    fn row(&mut self, switch: &Found, shape: &Shape) -> Row {
        let number = narrow::<u32>(self.sets());
        for &(_, run) in &switch.runs[shape.children.clone()] {
            self.add(&switch.sets[run as usize]);
        }
        let up_number = match shape.up {
            Some(run) => self.add(&switch.sets[run as usize]),
            None => EMPTY,
        };
        let children = &self.sets[number as usize..][..shape.children.len()];
        Row {
            first: shape.first,
            below: shape.below,
            stride: Divisor::by(shape.stride),
            down: Down::of(children),
            number,
            up: Numbered {
                set: self.sets[up_number as usize],
                number: SetId(up_number),
            },
        }
    }

    fn runs(&mut self, switches: &[Found]) -> Runs {
        let mut runs = Runs::default();
        for switch in switches {
            runs.begins.push(narrow::<u32>(runs.hosts.len()));
            let sets: Vec<u32> = switch.sets.iter().map(|set| self.add(set)).collect();
            for &(host, set) in &switch.runs {
                runs.hosts.push(host);
                runs.sets.push(sets[set as usize]);
            }
        }
        runs.begins.push(narrow::<u32>(runs.hosts.len()));
        runs
    }
}

/// What is known of a switch: its sets, and for which hosts it has them.
#[derive(Clone, Debug, Default)]
struct Found {
    sets: Vec<Vec<PortId>>,
    numbers: HashMap<Vec<PortId>, u32>,
    /// The first host of each run, and its set.
    runs: Vec<(u32, u32)>,
    /// The host after the last one that was added.
    next: u32,
}

impl Found {
    /// Hosts come in the order of their numbers.
    fn add(&mut self, host: u32, ports: &[PortId]) {
        self.end(host);
        self.run(host, ports);
        self.next = host + 1;
    }

    /// No path leads to the hosts up to this one that have not been added.
    fn end(&mut self, host: u32) {
        if self.next < host {
            self.run(self.next, &[]);
            self.next = host;
        }
    }

    fn run(&mut self, host: u32, ports: &[PortId]) {
        let set = self.number(ports);
        if self.runs.last().is_none_or(|&(_, last)| last != set) {
            self.runs.push((host, set));
        }
    }

    /// The number of a set, which is that of the last host most often.
    fn number(&mut self, ports: &[PortId]) -> u32 {
        if let Some(&(_, last)) = self.runs.last() {
            if self.sets[last as usize] == ports {
                return last;
            }
        }
        if let Some(&number) = self.numbers.get(ports) {
            return number;
        }
        let number = narrow::<u32>(self.sets.len());
        self.sets.push(ports.to_vec());
        self.numbers.insert(ports.to_vec(), number);
        number
    }

    /// How many hosts a run has.
    fn length(&self, run: usize) -> u32 {
        let end = self.runs.get(run + 1).map_or(self.next, |&(host, _)| host);
        end - self.runs[run].0
    }
}

/// A switch of a fat tree: `children` are runs of `stride` hosts each, and all other hosts have the
/// set `up`.
struct Shape {
    children: std::ops::Range<usize>,
    first: u32,
    below: u32,
    stride: u32,
    up: Option<u32>,
}

impl Shape {
    /// The shape of a switch, if it has one. The first run, the last, both or none are the hosts
    /// that are not below it.
    fn fit(switch: &Found) -> Option<Self> {
        let count = switch.runs.len();
        [
            (0, count),
            (0, count.max(1) - 1),
            (1, count),
            (1, count.max(1) - 1),
        ]
        .into_iter()
        .find_map(|(begin, end)| Self::try_children(switch, begin..end))
    }

    fn try_children(switch: &Found, children: std::ops::Range<usize>) -> Option<Self> {
        let stride = switch.length(children.clone().next()?);
        if !children.clone().all(|run| switch.length(run) == stride) {
            return None;
        }
        let others = (0..switch.runs.len()).filter(|run| !children.contains(run));
        let mut ups = others.map(|run| switch.runs[run].1);
        let up = ups.next();
        ups.all(|set| Some(set) == up).then(|| Self {
            first: switch.runs[children.start].0,
            below: stride * narrow::<u32>(children.len()),
            stride,
            children,
            up,
        })
    }
}

/// The ports of a switch to its children, if each child has one, and their numbers are equally far
/// apart.
#[derive(Clone, Copy, Debug)]
struct Down {
    first: u32,
    step: u32,
    /// It is not so: see [`Near::sets`].
    differs: bool,
}

impl Down {
    fn of(children: &[Set]) -> Self {
        let port = |child: usize| children.get(child).copied().and_then(Set::only);
        let first = port(0).map_or(0, |port| port.0);
        let step = port(1).map_or(0, |port| port.0.wrapping_sub(first));
        let expected = |child: usize| first.wrapping_add(step.wrapping_mul(narrow::<u32>(child)));
        let as_expected = |child: usize| port(child) == Some(PortId(expected(child)));
        Self {
            first,
            step,
            differs: !(0..children.len()).all(as_expected),
        }
    }
}

/// A switch of a fat tree, in a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Row {
    /// Hosts below it: the first, and how many.
    first: u32,
    below: u32,
    /// How many hosts each child has.
    stride: Divisor,
    down: Down,
    /// The number of the set of the first child. Those of the others follow.
    number: u32,
    /// The set of all hosts that are not below it, and its number.
    up: Numbered,
}

const _: () = assert!(size_of::<Row>() == 64);

impl Row {
    #[inline(always)]
    fn at_once(&self, HostId(host): HostId) -> AtOnce<'_> {
        let offset = host.wrapping_sub(self.first);
        if offset >= self.below {
            return AtOnce::Up(&self.up);
        }
        if self.down.differs {
            return AtOnce::Ask;
        }
        let steps = self.down.step.wrapping_mul(self.stride.divide(offset));
        AtOnce::Only(PortId(self.down.first.wrapping_add(steps)))
    }

    #[inline(always)]
    fn find(&self, HostId(host): HostId, sets: &[Set]) -> (SetId, Set) {
        let offset = host.wrapping_sub(self.first);
        if offset >= self.below {
            return (self.up.number, self.up.set);
        }
        let child = self.stride.divide(offset);
        let number = self.number + child;
        let set = match self.down.differs {
            true => sets[number as usize],
            false => Set::of(
                self.down
                    .first
                    .wrapping_add(self.down.step.wrapping_mul(child)),
            ),
        };
        (SetId(number), set)
    }
}

/// Runs of hosts for which a switch has one set.
#[derive(Clone, Debug, Default)]
struct Runs {
    /// By switch: where its runs begin; and the end of the last one.
    begins: Vec<u32>,
    /// By run: its first host.
    hosts: Vec<u32>,
    /// By run: its set.
    sets: Vec<u32>,
}

impl Runs {
    #[inline]
    fn set(&self, switch: SwitchId, HostId(host): HostId) -> u32 {
        let begin = self.begins[switch.index()] as usize;
        let end = self.begins[switch.index() + 1] as usize;
        let after = self.hosts[begin..end].partition_point(|&first| first <= host);
        self.sets[begin + after - 1]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{graph::Graph, routing::tests::random};

    /// Every set is what the search for shortest paths finds.
    fn check(graph: &Graph, failed: &[bool]) -> Near {
        let links = Links { graph, failed };
        let near = Near::new(links);
        let mut found = HashMap::new();
        paths::shortest(links, |switch, host, nearest| {
            found.insert((switch, host), nearest.to_vec());
        });
        for switch in SwitchId::first(graph.switches() as usize) {
            for host in HostId::first(graph.hosts() as usize) {
                let expected = found.get(&(switch, host)).map_or(&[][..], Vec::as_slice);
                let (number, set) = near.find(switch, host);
                assert_eq!(near.ports(set).collect::<Vec<_>>(), expected);
                let kept = near.sets[number.0 as usize];
                assert_eq!(near.ports(kept).collect::<Vec<_>>(), expected);
                assert_eq!(set.only(), (expected.len() == 1).then(|| expected[0]));
            }
        }
        near
    }

    proptest! {
        #[test]
        fn sets_are_those_of_shortest_paths(
            hosts in 1u32..9,
            switches in 1u32..9,
            further in 0u32..12,
            seed: u64,
            failed in proptest::collection::vec(any::<bool>(), 0..12),
        ) {
            check(&random(hosts, switches, further, seed), &failed);
        }
    }

    #[test]
    fn fat_trees_have_a_formula() {
        for (m, w) in [
            (&[4u32, 4, 4][..], &[1u32, 4, 4][..]),
            (&[16, 4], &[1, 2]),
            (&[5, 3], &[1, 2]),
            (&[2, 2, 2, 2, 2], &[1, 2, 2, 2, 2]),
            (&[17], &[1]),
        ] {
            let near = check(&Graph::xgft(m, w).unwrap(), &[]);
            let Index::Formula(rows) = &near.index else {
                panic!("{m:?} {w:?}");
            };
            assert!(near.listed.is_empty(), "{m:?} {w:?}: ports in a list");
            assert!(rows.iter().all(|row| !row.down.differs), "{m:?} {w:?}");
        }
    }

    #[test]
    fn ports_that_are_no_series_have_a_list() {
        // Two switches with two hosts each; three links between them, the second and third with a
        // link to a third switch between their numbers.
        let mut graph = Graph::new(4, 3);
        for (host, switch) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            graph.join(HostId(host), SwitchId(switch));
        }
        for (a, b) in [(0, 1), (0, 1), (0, 2), (0, 1)] {
            graph.join(SwitchId(a), SwitchId(b));
        }
        let near = check(&graph, &[]);
        assert!(!near.listed.is_empty());
    }
}
