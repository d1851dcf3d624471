//! Paths that sources choose: R2C2 and R3C2 (Crisan's thesis, section 2.4).
//!
//! A source gives each packet a path value. On the way up a switch takes port (value / D) mod k of
//! k equal ones, where D is the number of choices made below it. The destination's number as value
//! is the path of D-mod-k, the default path. The numbers after it are the other paths.

use std::collections::HashSet;

use sluicegate_core::number::narrow;

use super::{Query, Routes, Scheme};
use crate::graph::{HostId, Node, PortId};

/// The most paths that a source uses to one host.
const MOST_PATHS: usize = 256;

/// The most path values that a source tries to find them.
const MOST_VALUES: u32 = 1024;

/// What the thesis leaves open in R2C2 and R3C2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// The period of the timer that reduces the number of paths, ps, > 0.
    pub timer_ps: u64,
    /// The path that `SelectPath` takes.
    pub select: SelectPath,
    /// The path that is no longer used when there are to be fewer.
    pub drop: DropPath,
    /// R3C2: when a path is limited.
    pub limit: LimitPaths,
}

impl PathRules {
    /// The choices of this project.
    pub const DEFAULT: Self = Self {
        timer_ps: 15_000_000_000,
        select: SelectPath::Next,
        drop: DropPath::Slowest,
        limit: LimitPaths::Notified,
    };
}

/// `SelectPath` of the algorithms: which path is used next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectPath {
    /// The one that has not been used for the longest time, at first in the order of path values.
    Next,
    /// A random one.
    Random,
}

/// Which path is no longer used. The default path stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPath {
    /// The one with the lowest rate; of equal ones the newest.
    Slowest,
    /// The one that was taken last.
    Newest,
}

/// When R3C2 limits a path. The thesis says both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitPaths {
    /// When it is notified; another path is used once all in use are limited (algorithm 2.2).
    Notified,
    /// When it is notified and all available paths are in use; up to then each notification adds a
    /// path ("when all the paths are exhausted", section 2.4.1).
    Exhausted,
}

impl Routes {
    /// The values of different paths from a host, which sends by the port `adapter`, to another,
    /// the default path first. `far` gives the node at the far end of a port.
    pub fn path_values_to(
        &self,
        adapter: PortId,
        to: HostId,
        far: impl Fn(PortId) -> Node,
    ) -> Vec<u32> {
        let (mut values, mut walks) = (Vec::new(), HashSet::new());
        let (mut tried, mut bound) = (0, 1);
        while tried < bound && values.len() < MOST_PATHS {
            let value = to.0.wrapping_add(tried);
            let (walk, choices) = self.walk((adapter, to), value, &far);
            bound = bound.max(choices).min(MOST_VALUES);
            if walks.insert(walk) {
                values.push(value);
            }
            tried += 1;
        }
        values
    }

    /// The ports of switches on a path, and the product of the numbers of equal ports there.
    fn walk(
        &self,
        (adapter, to): (PortId, HostId),
        value: u32,
        far: impl Fn(PortId) -> Node,
    ) -> (Vec<PortId>, u32) {
        let (mut ports, mut choices) = (Vec::new(), 1u32);
        let mut node = far(adapter);
        while let Node::Switch(switch) = node {
            let query = Query {
                switch,
                host: to,
                path: value,
                now_ps: 0,
            };
            let Some(port) = self.peek(query) else {
                break;
            };
            choices = choices.saturating_mul(narrow::<u32>(self.choices(switch, to).len()));
            ports.push(port);
            node = far(port);
        }
        (ports, choices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, routing::Routing};

    fn values(graph: &Graph, from: u32, to: u32) -> Vec<u32> {
        let routes = Routes::with(graph, Routing::R3c2(PathRules::DEFAULT));
        let adapter = graph.adapter(HostId(from)).unwrap();
        routes.path_values_to(adapter, HostId(to), |port| graph.node(graph.far(port)))
    }

    #[test]
    fn a_tree_has_as_many_paths_as_common_ancestors() {
        let graph = Graph::xgft(&[2; 5], &[1, 2, 2, 2, 2]).unwrap();
        for (to, count) in [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (31, 16)] {
            let found = values(&graph, 0, to);
            let expected: Vec<u32> = (to..to + count).collect();
            assert_eq!(found, expected, "to {to}");
        }
    }

    #[test]
    fn the_default_path_is_that_of_d_mod_k() {
        let graph = Graph::xgft(&[3, 3, 3], &[1, 3, 3]).unwrap();
        let source = Routes::with(&graph, Routing::R2c2(PathRules::DEFAULT));
        let fixed = Routes::new(&graph);
        let far = |port| graph.node(graph.far(port));
        for (from, to) in [(0, 26), (5, 13), (20, 1), (3, 5)] {
            let adapter = graph.adapter(HostId(from)).unwrap();
            let (ports, _) = source.walk((adapter, HostId(to)), to, far);
            let (expected, _) = fixed.walk((adapter, HostId(to)), 0, far);
            assert_eq!(ports, expected, "{from} to {to}");
        }
    }

    #[test]
    fn another_graph_has_its_paths_too() {
        // Two switches joined by three links, then one switch, then one by two links.
        let mut graph = Graph::new(2, 3);
        graph.join(HostId(0), crate::graph::SwitchId(0));
        graph.join(HostId(1), crate::graph::SwitchId(2));
        let ends = [(0, 1); 3].into_iter().chain([(1, 2); 2]);
        for (a, b) in ends {
            graph.join(crate::graph::SwitchId(a), crate::graph::SwitchId(b));
        }
        let found = values(&graph, 0, 1);
        assert!(found.len() >= 3, "{found:?}");
        let back = values(&graph, 1, 0);
        assert!(back.len() >= 3, "{back:?}");
    }
}
