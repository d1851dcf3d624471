//! Proportional rate reduction below cwnd.

use harness::{
    US,
    peer::{M, Peer, plain},
};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config,
    config::{Ecn, Recovery},
    segment::flags,
};

use crate::harness;

/// A sender with 20 segments out, whose receiver has all of them before it.
fn of_twenty(prr_safe: bool) -> Peer {
    let mut config = Config {
        prr: true,
        prr_safe,
        ..plain(Recovery::Sack)
    };
    config.params.init_segments = 20;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    peer.data_out();
    peer.pass(100 * US);
    peer
}

#[test]
fn proportional_rate_reduction_grows_back_as_slow_start_does() {
    let mut peer = of_twenty(false);
    // 17 are lost: nothing is in flight, and cwnd is 10.
    peer.give(&peer.sack(0, &[(17 * M, 20 * M)]));
    assert_eq!(peer.tcp.in_flight(), 0);
    assert_eq!(peer.data_out().len(), 3, "what was delivered");
    peer.give(&peer.sack(M, &[(17 * M, 20 * M)]));
    assert_eq!(peer.data_out().len(), 2, "one more, since the ACK advances");
    peer.give(&peer.sack(2 * M, &[(17 * M, 20 * M)]));
    assert_eq!(peer.data_out().len(), 2);
}

/// What leaves for an ACK that advances and tells of three more losses.
fn after_further_losses(prr_safe: bool) -> usize {
    let mut peer = of_twenty(prr_safe);
    // 8 are lost; of the 9 above those that have arrived too little is known.
    peer.give(&peer.sack(0, &[(8 * M, 11 * M)]));
    assert_eq!(peer.data_out().len(), 1, "9 are in flight, and cwnd is 10");
    peer.give(&peer.sack(M, &[(14 * M, 17 * M), (8 * M, 11 * M)]));
    assert_eq!(peer.tcp.in_flight(), 3_000);
    peer.data_out().len()
}

#[test]
fn an_ack_that_tells_of_further_losses_gains_a_segment_unless_gains_are_safe() {
    assert_eq!(after_further_losses(true), 6, "7 delivered, 1 sent");
    assert_eq!(after_further_losses(false), 7);
}

/// A sender that counts duplicates although its peer selects, in a recovery that was needless: the
/// ACK that ends it says so, and tells of a mark.
#[test]
fn a_mark_on_the_ack_that_takes_a_recovery_back_stops_nothing() {
    let mut config = Config {
        prr: true,
        sack: true,
        undo: true,
        ..plain(Recovery::NewReno)
    };
    config.algorithm = Algorithm::Dctcp;
    config.ecn = Ecn::Offer;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(12_000);
    assert_eq!(peer.data_out().len(), 10);
    peer.pass(100 * US);
    for upto in 2..=10 {
        peer.give(&peer.sack(0, &[(M, upto * M)]));
    }
    let out: Vec<_> = peer.data_out().iter().map(|&(from, _)| from).collect();
    assert_eq!(out, [0, 10 * M, 11 * M]);
    peer.pass(100 * US);
    let mut duplicate = peer.sack(0, &[(M, 12 * M)]);
    duplicate.flags |= flags::ECE;
    peer.give(&duplicate);
    let mut ack = peer.sack(12 * M, &[(0, M)]);
    ack.flags |= flags::ECE;
    peer.give(&ack);
    assert_eq!(peer.tcp.stats().undone, 1);
    peer.tcp.write(10_000);
    let out = peer.data_out();
    assert!(
        !out.is_empty(),
        "nothing is in flight, and the window is open"
    );
}
