//! Flows that two interfaces show as their tenant's: one of them carries the other's packets.
//!
//! Between two tenants of one host a flow is seen twice as well, but each interface shows its own end as the
//! local one. Where two show the same end as local, one of them is on the way: a cable between bridges, or an
//! interface whose directions are the wrong way round.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_core::abi::{Addr, FlowKey};

/// Both ends of a flow, the tenant's first, and its VLAN.
type Ends = ([u8; 16], u16, [u8; 16], u16, u16);

/// Interfaces that share flows with others and carry more tenants' than these: index, and one that it shares
/// flows with.
pub(super) fn on_the_way(flows: &[FlowKey]) -> BTreeMap<u32, u32> {
    let locals = locals(flows);
    let mut found = BTreeMap::new();
    for (one, other) in sharing(flows) {
        let amount = |index| locals.get(&index).map_or(0, BTreeSet::len);
        match amount(one).cmp(&amount(other)) {
            std::cmp::Ordering::Less => found.insert(other, one),
            std::cmp::Ordering::Greater => found.insert(one, other),
            std::cmp::Ordering::Equal => None,
        };
    }
    found
}

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

/// Local addresses that each interface shows.
fn locals(flows: &[FlowKey]) -> BTreeMap<u32, BTreeSet<[u8; 16]>> {
    let mut found: BTreeMap<u32, BTreeSet<[u8; 16]>> = BTreeMap::new();
    for flow in flows {
        found
            .entry(flow.ifindex)
            .or_default()
            .insert(flow.local.octets());
    }
    found
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
        assert!(sharing(&flows).is_empty() && on_the_way(&flows).is_empty());
    }

    #[test]
    fn the_interface_that_carries_more_tenants_is_on_the_way() {
        let flows = [
            flow(1, "10.0.0.1", "10.9.0.1"),
            flow(2, "10.0.0.2", "10.9.0.1"),
            flow(7, "10.0.0.1", "10.9.0.1"),
            flow(7, "10.0.0.2", "10.9.0.1"),
        ];
        assert_eq!(sharing(&flows), BTreeSet::from([(1, 7), (2, 7)]));
        assert_eq!(on_the_way(&flows).into_keys().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn where_both_carry_the_same_nothing_is_decided() {
        let flows = [
            flow(1, "10.0.0.1", "10.9.0.1"),
            flow(2, "10.0.0.1", "10.9.0.1"),
        ];
        assert_eq!(sharing(&flows).len(), 1);
        assert!(on_the_way(&flows).is_empty());
    }
}
