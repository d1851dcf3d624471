//! D-mod-k in a fat tree without a table: which way leads down follows from the destination's number by a
//! division, which of the ways up by another. A table for each switch and host, in which packets look at random,
//! is what large networks would wait for most.

use crate::graph::{Graph, NodeId, PortId, Routes};

/// Division of numbers below 2^16 by a constant: a product.
#[derive(Clone, Copy, Debug)]
struct Divisor(u64);

impl Divisor {
    /// By `divisor`, 1..=2^16.
    fn by(divisor: u32) -> Self {
        Self((1u64 << 32).div_ceil(u64::from(divisor.max(1))))
    }

    fn divide(self, number: u32) -> u32 {
        ((u64::from(number) * self.0) >> 32) as u32
    }
}

/// Ports whose numbers are equally far apart.
#[derive(Clone, Copy, Debug, Default)]
struct Series {
    first: PortId,
    step: u32,
}

impl Series {
    fn of(ports: &[PortId]) -> Self {
        let first = ports.first().copied().unwrap_or(0);
        let second = ports.get(1).copied().unwrap_or(first);
        Self {
            first,
            step: second.wrapping_sub(first),
        }
    }

    fn port(self, index: u32) -> PortId {
        self.first.wrapping_add(self.step.wrapping_mul(index))
    }
}

/// One switch, in a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Row {
    /// Hosts below it: the first, and how many.
    first: u32,
    below: u32,
    /// Its ways down, and how many hosts each leads to.
    down: Series,
    stride: Divisor,
    /// Its ways up, the number of choices made below them, and how many there are.
    up: Series,
    choices: Divisor,
    count: Divisor,
    ups: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

/// All switches of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree(Vec<Row>);

impl Tree {
    /// The formula of `routes`, a table, if there is one; `divisors` are the numbers of choices made below each
    /// switch.
    pub fn fit(graph: &Graph, routes: &Routes, divisors: &[u64]) -> Option<Self> {
        if graph.hosts() > 1 << 16 {
            return None;
        }
        let row = |(switch, divisor): (usize, &u64)| {
            let row = Row::suppose(graph, routes, switch, u32::try_from(*divisor).ok()?)?;
            let right = |host: u32| routes.next(switch, host as usize, 0) == Some(row.next(host));
            (0..graph.hosts()).all(right).then_some(row)
        };
        let rows: Option<_> = divisors.iter().enumerate().map(row).collect();
        rows.map(Self)
    }

    /// The port of a switch towards a host.
    #[inline]
    pub fn next(&self, switch: usize, host: u32) -> PortId {
        self.0[switch].next(host)
    }
}

impl Row {
    /// What the row of a switch may be.
    fn suppose(graph: &Graph, routes: &Routes, switch: usize, divisor: u32) -> Option<Self> {
        let node = graph.hosts() + switch as NodeId;
        // Parents have the larger numbers.
        let leads_up = |port: &PortId| graph.far(*port) > node;
        let way = |host: &u32| routes.next(switch, *host as usize, 0);
        let is_below = |host: &u32| way(host).is_some_and(|port| !leads_up(&port));
        let first = (0..graph.hosts()).find(is_below)?;
        let below = (first..graph.hosts()).take_while(is_below).count() as u32;
        let alike = |host: &u32| way(host) == way(&first);
        let stride = (first..first + below).take_while(alike).count();
        let children = (first..first + below).step_by(stride);
        let down: Vec<PortId> = children.filter_map(|host| way(&host)).collect();
        let ports = graph.adjacent(node).iter().map(|&(port, _)| port);
        let up: Vec<PortId> = ports.filter(leads_up).collect();
        Some(Self {
            first,
            below,
            down: Series::of(&down),
            stride: Divisor::by(stride as u32),
            up: Series::of(&up),
            choices: Divisor::by(divisor),
            count: Divisor::by(up.len() as u32),
            ups: up.len() as u32,
        })
    }

    #[inline]
    fn next(&self, host: u32) -> PortId {
        let offset = host.wrapping_sub(self.first);
        if offset < self.below {
            return self.down.port(self.stride.divide(offset));
        }
        let choice = self.choices.divide(host);
        self.up.port(choice - self.count.divide(choice) * self.ups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_divides_exactly() {
        for divisor in (1..300).chain([1_000, 4_096, 65_535, 65_536]) {
            let product = Divisor::by(divisor);
            for number in 0..1 << 16 {
                assert_eq!(
                    product.divide(number),
                    number / divisor,
                    "{number} / {divisor}"
                );
            }
        }
    }

    #[test]
    fn trees_have_a_formula_and_other_graphs_a_table() {
        for (m, w) in [
            (&[4u32, 4, 4][..], &[1u32, 4, 4][..]),
            (&[8, 8, 4], &[1, 8, 8]),
            (&[5, 3], &[1, 2]),
            (&[17], &[1]),
        ] {
            let graph = Graph::xgft(m, w).unwrap();
            assert!(Routes::new(&graph).is_formula(), "{m:?} {w:?}");
        }
        let mut ring = Graph::new(3, 3);
        for host in 0..3 {
            ring.link(host, 3 + host);
            ring.link(3 + host, 3 + (host + 1) % 3);
        }
        assert!(!Routes::new(&ring).is_formula());
    }
}
