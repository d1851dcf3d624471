//! How hosts find each other, and what a SYN may and may not do.

use crate::net::{A, B, Packet, Pair, opt, policy};
use sluicegate_core::abi::MODE_TWO_SIDED;

#[test]
fn two_hosts_recognise_each_other() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    for side in [A, B] {
        assert_eq!(pair.flow(side).mode, MODE_TWO_SIDED);
        assert_eq!(pair.counter(side, "flow_two_sided"), 1);
    }
    let offered: Vec<&Packet> = pair.log.iter().map(|crossing| &crossing.packet).collect();
    assert_eq!(opt::peer_of(&offered[0].options), Some(0));
    assert_eq!(opt::peer_of(&offered[1].options), Some(0));
    assert_eq!(opt::peer_of(&offered[2].options), None);
    for side in [A, B] {
        assert!(
            pair.sides[side]
                .tenant
                .seen
                .iter()
                .all(|packet| { opt::peer_of(&packet.options).is_none() && packet.ecn == 0 })
        );
    }
}

#[test]
fn a_transfer_arrives_whole() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 3_000_000);
    pair.transfer(B, 3_000_000);
    assert_eq!(pair.tenant(A).retransmits + pair.tenant(B).retransmits, 0);
}
