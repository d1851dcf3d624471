//! The ports of each switch that are equally near to a host.
//!
//! Each set of equal ports is kept once, and a switch finds its set by the number of the host. In a
//! fat tree that is a division ([`Row`]). In another graph it is a search among the runs of hosts
//! for which the switch has one set ([`Runs`]).

use std::collections::HashMap;

use super::{
    divisor::Divisor,
    paths::{self, Links},
};
use crate::graph::{HostId, PortId, SwitchId};

/// The set without ports: no path leads to the host.
const EMPTY: u32 = 0;

/// The number of a set of equal ports. All its ports belong to one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetId(pub u32);

/// The sets of all switches.
#[derive(Clone, Debug)]
pub struct Near {
    index: Index,
    /// Where in `ports` each set begins, and the end of the last one.
    begins: Vec<u32>,
    ports: Vec<PortId>,
}

/// By switch and host: the number of a set.
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
            begins: vec![0],
            ports: Vec::new(),
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

    /// The set of a switch towards a host.
    #[inline]
    pub fn set(&self, switch: SwitchId, host: HostId) -> SetId {
        SetId(match &self.index {
            Index::Formula(rows) => rows[switch.index()].set(host),
            Index::Runs(runs) => runs.set(switch, host),
        })
    }

    /// The ports of a set, in the order of their numbers.
    #[inline]
    pub fn ports(&self, SetId(set): SetId) -> &[PortId] {
        let bound = |set: u32| self.begins[set as usize] as usize;
        &self.ports[bound(set)..bound(set + 1)]
    }

    /// How many sets there are.
    pub fn sets(&self) -> usize {
        self.begins.len() - 1
    }

    fn add(&mut self, ports: &[PortId]) -> u32 {
        self.ports.extend_from_slice(ports);
        self.begins.push(self.ports.len() as u32);
        self.begins.len() as u32 - 2
    }

    fn row(&mut self, switch: &Found, shape: &Shape) -> Row {
        let set = self.sets() as u32;
        for &(_, run) in &switch.runs[shape.children.clone()] {
            self.add(&switch.sets[run as usize]);
        }
        let up = match shape.up {
            Some(run) => self.add(&switch.sets[run as usize]),
            None => EMPTY,
        };
        Row {
            first: shape.first,
            below: shape.below,
            stride: Divisor::by(shape.stride),
            set,
            up,
        }
    }

    fn runs(&mut self, switches: &[Found]) -> Runs {
        let mut runs = Runs::default();
        for switch in switches {
            runs.begins.push(runs.hosts.len() as u32);
            let sets: Vec<u32> = switch.sets.iter().map(|set| self.add(set)).collect();
            for &(host, set) in &switch.runs {
                runs.hosts.push(host);
                runs.sets.push(sets[set as usize]);
            }
        }
        runs.begins.push(runs.hosts.len() as u32);
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
    fn add(&mut self, host: u32, ports: Vec<PortId>) {
        self.end(host);
        self.run(host, ports);
        self.next = host + 1;
    }

    /// No path leads to the hosts up to this one that have not been added.
    fn end(&mut self, host: u32) {
        if self.next < host {
            self.run(self.next, Vec::new());
            self.next = host;
        }
    }

    fn run(&mut self, host: u32, ports: Vec<PortId>) {
        let sets = &mut self.sets;
        let set = *self.numbers.entry(ports).or_insert_with_key(|ports| {
            sets.push(ports.clone());
            sets.len() as u32 - 1
        });
        if self.runs.last().is_none_or(|&(_, last)| last != set) {
            self.runs.push((host, set));
        }
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
            below: stride * children.len() as u32,
            stride,
            children,
            up,
        })
    }
}

/// A switch of a fat tree.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Hosts below it: the first, and how many.
    first: u32,
    below: u32,
    /// How many hosts each child has.
    stride: Divisor,
    /// The set of the first child. Those of the others follow.
    set: u32,
    /// The set of all hosts that are not below it.
    up: u32,
}

impl Row {
    #[inline]
    fn set(&self, HostId(host): HostId) -> u32 {
        let offset = host.wrapping_sub(self.first);
        if offset < self.below {
            return self.set + self.stride.divide(offset);
        }
        self.up
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
            found.insert((switch, host), nearest);
        });
        for switch in SwitchId::first(graph.switches() as usize) {
            for host in HostId::first(graph.hosts() as usize) {
                let expected = found.get(&(switch, host)).map_or(&[][..], Vec::as_slice);
                assert_eq!(near.ports(near.set(switch, host)), expected);
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
            assert!(matches!(near.index, Index::Formula(_)), "{m:?} {w:?}");
        }
    }
}
