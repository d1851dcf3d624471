//! Equal-cost multi-path: a hash of the path value chooses among the ports that are equally near.

use std::collections::HashMap;

use super::paths;
use crate::{
    graph::{Graph, HostId, PortId, SwitchId},
    random::mix,
};

/// No path.
const NONE: u32 = u32::MAX;

/// The sets of equal ports of all switches, each kept once.
#[derive(Clone, Debug)]
pub struct Hash {
    hosts: usize,
    /// By switch and destination: the number of a set.
    set: Vec<u32>,
    /// Where in `ports` each set begins, and the end of the last one.
    begins: Vec<u32>,
    ports: Vec<PortId>,
}

impl Hash {
    pub fn new(graph: &Graph) -> Self {
        let (hosts, switches) = (graph.hosts() as usize, graph.switches() as usize);
        let mut hash = Self {
            hosts,
            set: vec![NONE; switches * hosts],
            begins: vec![0],
            ports: Vec::new(),
        };
        let mut known = HashMap::new();
        paths::shortest(graph, |switch, host, nearest| {
            hash.set[switch.index() * hosts + host.index()] = match known.get(&nearest) {
                Some(&set) => set,
                None => {
                    let set = hash.add(&nearest);
                    known.insert(nearest, set);
                    set
                }
            };
        });
        hash
    }

    fn add(&mut self, ports: &[PortId]) -> u32 {
        self.ports.extend_from_slice(ports);
        self.begins.push(self.ports.len() as u32);
        self.begins.len() as u32 - 2
    }

    /// The ports of a switch that are equally near to a host.
    #[inline]
    pub fn equal(&self, switch: SwitchId, host: HostId) -> &[PortId] {
        let set = self.set[switch.index() * self.hosts + host.index()];
        if set == NONE {
            return &[];
        }
        let bound = |set: u32| self.begins[set as usize] as usize;
        &self.ports[bound(set)..bound(set + 1)]
    }

    /// The port of a switch towards a host for a path value.
    #[inline]
    pub fn port(&self, switch: SwitchId, host: HostId, path: u32) -> Option<PortId> {
        let equal = self.equal(switch, host);
        let spread = mix(u64::from(path) << 32 | u64::from(switch.0)) >> 32;
        // Below the number of ports; of none, nothing is found.
        equal
            .get(((spread * equal.len() as u64) >> 32) as usize)
            .copied()
    }
}
