//! A port for each switch and destination: D-mod-k in a graph that is no fat tree.

use sluicegate_core::number::index;

use super::paths::{self, Links};
use crate::graph::{HostId, PortId, SwitchId};

/// No path.
const NONE: PortId = PortId(u32::MAX);

/// By switch and destination.
#[derive(Clone, Debug)]
pub struct Table {
    hosts: usize,
    /// [`NONE`] where no path leads.
    ports: Vec<PortId>,
}

impl Table {
    /// `divisors` are the numbers of choices made below each switch.
    pub fn d_mod_k(links: Links<'_>, divisors: &[u64]) -> Self {
        let hosts = links.graph.hosts() as usize;
        let mut ports = vec![NONE; divisors.len() * hosts];
        paths::shortest(links, |switch, host, nearest| {
            let choice = u64::from(host.0) / divisors[switch.index()] % nearest.len() as u64;
            ports[switch.index() * hosts + host.index()] = nearest[index(choice)];
        });
        Self { hosts, ports }
    }

    /// The port of a switch towards a host.
    #[inline]
    pub fn port(&self, switch: SwitchId, host: HostId) -> Option<PortId> {
        let port = self.ports[switch.index() * self.hosts + host.index()];
        (port != NONE).then_some(port)
    }
}
