//! D-mod-k in a fat tree without a table: the port down follows from the destination's number by a
//! division, the port up by another. A large network would wait most for cache misses in a table
//! for each switch and host.

use sluicegate_core::number::narrow;

use super::{divisor::Divisor, table::Table};
use crate::graph::{Graph, HostId, PortId, SwitchId};

/// Ports whose numbers are equally far apart.
#[derive(Clone, Copy, Debug)]
struct Series {
    first: PortId,
    step: u32,
}

impl Series {
    fn of(ports: &[PortId]) -> Self {
        let first = ports.first().copied().unwrap_or(PortId(0));
        let second = ports.get(1).copied().unwrap_or(first);
        Self {
            first,
            step: second.0.wrapping_sub(first.0),
        }
    }

    fn port(self, index: u32) -> PortId {
        PortId(self.first.0.wrapping_add(self.step.wrapping_mul(index)))
    }
}

/// One switch, in a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Row {
    /// Hosts below it: the first, and how many.
    first: u32,
    below: u32,
    /// Its ports down, and how many hosts each leads to.
    down: Series,
    stride: Divisor,
    /// Its ports up, the number of choices made below them, and how many there are.
    up: Series,
    choices: Divisor,
    count: Divisor,
    ups: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

/// All switches of a tree.
#[derive(Clone, Debug)]
pub struct Tree(Vec<Row>);

impl Tree {
    /// The formula of a table, if there is one; `divisors` are the numbers of choices made below
    /// each switch.
    pub fn fit(graph: &Graph, table: &Table, divisors: &[u64]) -> Option<Self> {
        if graph.hosts() > Divisor::END {
            return None;
        }
        let (levels, _) = graph.levels();
        let row = |(switch, divisor): (SwitchId, &u64)| {
            let divisor = u32::try_from(*divisor).ok()?;
            let row = Row::suppose(graph, &levels, table, (switch, divisor))?;
            let right = |host| table.port(switch, host) == Some(row.port(host));
            let mut hosts = HostId::first(graph.hosts() as usize);
            hosts.all(right).then_some(row)
        };
        let rows: Option<_> = SwitchId::enumerate(divisors).map(row).collect();
        rows.map(Self)
    }

    /// The port of a switch towards a host.
    #[inline]
    pub fn port(&self, switch: SwitchId, host: HostId) -> PortId {
        self.0[switch.index()].port(host)
    }
}

impl Row {
    /// A candidate for the row of a switch, to be checked against `table`. A port leads up if the
    /// node there is at a higher level, and down otherwise.
    fn suppose(
        graph: &Graph,
        levels: &[Option<u32>],
        table: &Table,
        (switch, divisor): (SwitchId, u32),
    ) -> Option<Self> {
        let node = graph.number(switch);
        let leads_up = |port: &PortId| levels[graph.far(*port).index()] > levels[node.index()];
        let port_to = |host: &u32| table.port(switch, HostId(*host));
        let is_below = |host: &u32| port_to(host).is_some_and(|port| !leads_up(&port));
        let first = (0..graph.hosts()).find(is_below)?;
        let below = narrow::<u32>((first..graph.hosts()).take_while(is_below).count());
        let alike = |host: &u32| port_to(host) == port_to(&first);
        let stride = (first..first + below).take_while(alike).count();
        let children = (first..first + below).step_by(stride);
        let down: Vec<PortId> = children.filter_map(|host| port_to(&host)).collect();
        let ports = graph.adjacent(node).iter().map(|&(port, _)| port);
        let up: Vec<PortId> = ports.filter(leads_up).collect();
        Some(Self {
            first,
            below,
            down: Series::of(&down),
            stride: Divisor::by(narrow::<u32>(stride)),
            up: Series::of(&up),
            choices: Divisor::by(divisor),
            count: Divisor::by(narrow::<u32>(up.len())),
            ups: narrow::<u32>(up.len()),
        })
    }

    #[inline]
    fn port(&self, HostId(host): HostId) -> PortId {
        let offset = host.wrapping_sub(self.first);
        if offset < self.below {
            return self.down.port(self.stride.divide(offset));
        }
        let choice = self.choices.divide(host);
        self.up.port(choice - self.count.divide(choice) * self.ups)
    }
}
