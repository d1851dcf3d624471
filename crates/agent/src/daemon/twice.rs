//! Flows that two interfaces show as their tenant's: one of them carries the other's packets.
//!
//! Between two tenants of one host a flow is seen twice as well, but each interface shows its own
//! end as the local one. Where two show the same end as local, one of them is on the way (a cable
//! between bridges, an interface whose directions are the wrong way round), or the tenant of one
//! sends with the other's addresses. One packet is enough for that, so nothing but words may follow
//! from it: an interface that were let go of would be free of enforcement because a tenant wanted
//! it, or a neighbour's.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
};

use sluicegate_core::abi::FlowKey;

/// Finds pairs of interfaces that show the same flow with the same end as local. Of each flow it
/// keeps 12 bytes: tables hold millions. That two flows have the same hash of 64 bits, by a key
/// that no tenant knows, would cost a needless word.
#[derive(Debug, Default)]
pub(super) struct Twice {
    seed: RandomState,
    at: HashMap<u64, u32>,
    pairs: BTreeSet<(u32, u32)>,
}

impl Twice {
    /// Takes a flow in.
    pub(super) fn see(&mut self, flow: &FlowKey) {
        let ends = (
            flow.local.octets(),
            flow.local_port,
            flow.remote.octets(),
            flow.remote_port,
            flow.vlan,
        );
        let first = *self
            .at
            .entry(self.seed.hash_one(ends))
            .or_insert(flow.ifindex);
        if first != flow.ifindex {
            let (low, high) = (first.min(flow.ifindex), first.max(flow.ifindex));
            self.pairs.insert((low, high));
        }
    }

    /// The pairs that were found, the lower index first.
    pub(super) fn pairs(self) -> BTreeSet<(u32, u32)> {
        self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn sharing(flows: &[FlowKey]) -> BTreeSet<(u32, u32)> {
        let mut twice = Twice::default();
        flows.iter().for_each(|flow| twice.see(flow));
        twice.pairs()
    }

    fn flow(ifindex: u32, local: &str, remote: &str) -> FlowKey {
        let address = |text: &str| text.parse::<IpAddr>().unwrap().into();
        FlowKey {
            local: address(local),
            remote: address(remote),
            local_port: 1,
            remote_port: 2,
            ifindex,
            ..FlowKey::default()
        }
    }

    #[test]
    fn two_tenants_of_one_host_are_no_transit() {
        let flows = [
            flow(1, "10.0.0.1", "10.0.0.2"),
            flow(2, "10.0.0.2", "10.0.0.1"),
        ];
        assert!(sharing(&flows).is_empty());
    }

    #[test]
    fn an_interface_on_the_way_shares_flows_with_each_tenants() {
        let flows = [
            flow(1, "10.0.0.1", "10.9.0.1"),
            flow(2, "10.0.0.2", "10.9.0.1"),
            flow(7, "10.0.0.1", "10.9.0.1"),
            flow(7, "10.0.0.2", "10.9.0.1"),
        ];
        assert_eq!(sharing(&flows), BTreeSet::from([(1, 7), (2, 7)]));
    }
}
