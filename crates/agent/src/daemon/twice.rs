//! Flows that two interfaces show as their tenant's: one of them carries the other's packets.
//!
//! Between two tenants of one host a flow is seen twice as well, but each interface shows its own end as the
//! local one. Where two show the same end as local, one of them is on the way (a cable between bridges, an
//! interface whose directions are the wrong way round), or the tenant of one sends with the other's addresses.
//! One packet is enough for that, so nothing but words may follow from it: an interface that were let go of
//! would be free of enforcement because a tenant wanted it, or a neighbour's.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_core::abi::{Addr, FlowKey};

/// Both ends of a flow, the tenant's first, and its VLAN.
type Ends = ([u8; 16], u16, [u8; 16], u16, u16);

/// Pairs of interfaces that show the same flow with the same end as local.
pub(super) fn sharing(flows: &[FlowKey]) -> BTreeSet<(u32, u32)> {
    let mut at: BTreeMap<Ends, u32> = BTreeMap::new();
    let mut pairs = BTreeSet::new();
    for flow in flows {
        match at.get(&ends(flow)) {
            Some(other) if *other != flow.ifindex => {
                pairs.insert(((*other).min(flow.ifindex), (*other).max(flow.ifindex)));
            }
            Some(_) => {}
            None => {
                at.insert(ends(flow), flow.ifindex);
            }
        }
    }
    pairs
}

fn ends(flow: &FlowKey) -> Ends {
    let octets = |address: &Addr| address.octets();
    (
        octets(&flow.local),
        flow.local_port,
        octets(&flow.remote),
        flow.remote_port,
        flow.vlan,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

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
