//! Flows that two interfaces show as their tenant's: one of them carries the other's packets.
//!
//! Between two tenants of one host a flow is seen twice as well, but each interface shows its own
//! end as the local one. Where two show the same end as local, one of them is on the way (a cable
//! between bridges, an interface whose directions are the wrong way round), or a guest has a bond
//! of both, or the tenant of one sends with the other's addresses. One packet is enough for that,
//! so nothing but words may follow from it: an interface that were let go of would be free of
//! enforcement because a tenant wanted it, or a neighbour's.
//!
//! Tenants on networks of their own may have the same addresses. Their connections are other ones,
//! which begin with other sequence numbers.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
};

use sluicegate_core::abi::{Flow, FlowKey};

/// Where no first number is known, two flows whose next numbers are nearer than this are taken for
/// one: the two are read one after the other.
const NEAR_BYTES: u32 = 1 << 24;

/// Where a flow is, and its place in the sequence space.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ifindex: u32,
    /// 0 = not known.
    first: u32,
    next: u32,
}

impl Seen {
    fn is_same(self, other: Self) -> bool {
        if self.first != 0 && other.first != 0 {
            return self.first == other.first;
        }
        let ahead = self.next.wrapping_sub(other.next);
        ahead.min(ahead.wrapping_neg()) < NEAR_BYTES
    }
}

/// Finds pairs of interfaces that show the same flow with the same end as local. Of each flow it
/// keeps 20 bytes: tables hold millions. That two flows have the same hash of 64 bits, by a key
/// that no tenant knows, would cost a needless word.
#[derive(Debug, Default)]
pub(super) struct Twice {
    seed: RandomState,
    at: HashMap<u64, Seen>,
    pairs: BTreeSet<(u32, u32)>,
}

impl Twice {
    /// Takes a flow in.
    pub(super) fn see(&mut self, key: &FlowKey, flow: &Flow) {
        let ends = (
            key.local.octets(),
            key.local_port,
            key.remote.octets(),
            key.remote_port,
            key.vlan,
        );
        let seen = Seen {
            ifindex: key.ifindex,
            first: flow.first_own,
            next: flow.snd_nxt,
        };
        let first = *self.at.entry(self.seed.hash_one(ends)).or_insert(seen);
        if first.ifindex != seen.ifindex && first.is_same(seen) {
            let low = first.ifindex.min(seen.ifindex);
            self.pairs.insert((low, first.ifindex.max(seen.ifindex)));
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
        let flow = Flow {
            first_own: 7,
            ..Flow::default()
        };
        flows.iter().for_each(|key| twice.see(key, &flow));
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

    #[test]
    fn tenants_with_the_same_addresses_on_networks_of_their_own_share_nothing() {
        let pairs = |first: [u32; 2], next: [u32; 2]| {
            let mut twice = Twice::default();
            for at in 0..2 {
                let key = flow(1 + at as u32, "10.0.0.1", "10.9.0.1");
                let flow = Flow {
                    first_own: first[at],
                    snd_nxt: next[at],
                    ..Flow::default()
                };
                twice.see(&key, &flow);
            }
            twice.pairs().len()
        };
        assert_eq!(pairs([1 << 20, 1 << 21], [9, 9]), 0);
        assert_eq!(pairs([5, 5], [9, 1 << 30]), 1);
        // Met in midstream.
        assert_eq!(pairs([0, 5], [u32::MAX, 1000]), 1);
        assert_eq!(pairs([0, 0], [1 << 30, 1000]), 0);
    }
}
