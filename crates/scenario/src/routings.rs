//! The routing schemes of a variant.

use sluicegate_fabric::{Graph, Routes, Routing};

use crate::experiment::Variant;

impl Variant {
    /// The scheme of a priority, 0..=7.
    pub fn routing_of(&self, priority: u8) -> Routing {
        of(self.routing, &self.routings, priority)
    }

    /// Ways through the switches of its graph.
    pub fn routes(&self, graph: &Graph) -> Routes {
        self.routes_around(graph, &[])
    }

    /// The same without the links that have failed ([`Routes::around`]).
    pub fn routes_around(&self, graph: &Graph, failed: &[bool]) -> Routes {
        let around = |routing| Routes::around(graph, routing, failed);
        let own = self.routings.iter();
        let own = own.map(|&(priorities, routing)| (priorities, around(routing)));
        around(self.routing).with_own(own)
    }
}

/// The scheme of a priority in a network with this one, where some have their own (bit p for
/// priority p).
pub(crate) fn of(network: Routing, own: &[(u8, Routing)], priority: u8) -> Routing {
    let mut own = own.iter();
    let found = own.find(|(priorities, _)| priorities >> priority & 1 != 0);
    found.map_or(network, |&(_, routing)| routing)
}
