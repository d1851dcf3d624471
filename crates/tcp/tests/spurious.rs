//! Reductions that were needless: Eifel, D-SACK, F-RTO.

use harness::{
    US,
    peer::{M, Peer, plain, ten_out},
};
use sluicegate_core::cc::SSTHRESH_UNKNOWN;
use sluicegate_tcp::{
    Config,
    config::{Ecn, Recovery},
    segment::flags,
};

use crate::harness;

/// Reductions are taken back, and timeouts watched.
fn forgiving(recovery: Recovery) -> Config {
    let mut config = plain(recovery);
    config.undo = true;
    config
}

#[test]
fn f_rto_takes_back_a_timeout_whose_segments_were_only_late() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        let mut config = forgiving(recovery);
        config.limited_transmit = false;
        let mut peer = ten_out(config);
        while peer.tcp.stats().timeouts == 0 {
            peer.until_deadline();
            peer.out(); // RACK has a tail loss probe first
        }
        let again = peer.tcp.stats().retransmits;
        peer.give(&peer.ack(M));
        let new = peer.data_out();
        assert_eq!(new.len(), 2, "{recovery:?} {new:?}");
        assert!(new[0].0 >= 10 * M, "new data, {new:?}");
        peer.give(&peer.ack(2 * M));
        assert_eq!(peer.tcp.stats().undone, 1, "{recovery:?}");
        assert!(peer.tcp.cwnd() >= 10_000);
        assert_eq!(peer.tcp.ssthresh(), SSTHRESH_UNKNOWN);
        assert!(peer.data_out().iter().all(|&(from, _)| from >= 10 * M));
        assert_eq!(peer.tcp.stats().retransmits, again);
    }
}

#[test]
fn f_rto_sends_again_what_was_lost_when_new_data_brings_duplicates() {
    for recovery in [Recovery::NewReno, Recovery::Sack] {
        let mut peer = ten_out(forgiving(recovery));
        peer.until_deadline();
        assert_eq!(peer.data_out(), [(0, 1000)]);
        peer.give(&peer.ack(M));
        assert_eq!(peer.data_out(), [(10 * M, 1000), (11 * M, 1000)]);
        peer.give(&peer.sack(M, &[(10 * M, 11 * M)]));
        assert_eq!(peer.data_out(), [(M, 1000)]);
        peer.give(&peer.sack(M, &[(10 * M, 12 * M)]));
        assert_eq!(peer.data_out(), [(2 * M, 1000)]);
        peer.give(&peer.sack(3 * M, &[(10 * M, 12 * M)]));
        assert_eq!(peer.tcp.stats().undone, 0);
        assert_eq!(peer.tcp.ssthresh(), 5_000);
    }
}

#[test]
fn f_rto_without_sack_believes_no_ack_that_a_retransmission_explains() {
    let mut peer = ten_out(forgiving(Recovery::NewReno));
    peer.until_deadline();
    peer.out();
    // The first was lost, the others were waiting for it.
    peer.give(&peer.ack(5 * M));
    assert_eq!(peer.tcp.stats().undone, 0);
}

#[test]
fn f_rto_has_no_new_data_to_send_and_repairs() {
    let mut peer = Peer::new(forgiving(Recovery::Sack), 100 * US);
    peer.tcp.write(5_000);
    peer.out();
    peer.until_deadline();
    peer.out();
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out(), [(M, 1000), (2 * M, 1000)]);
}

#[test]
fn an_echo_older_than_the_retransmission_takes_a_timeout_back() {
    let mut config = forgiving(Recovery::Sack);
    config.frto = false;
    config.timestamps = true;
    for late in [true, false] {
        let mut peer = Peer::new(config, 100 * US);
        peer.tcp.write(100_000);
        assert_eq!(peer.data_out().len(), 10);
        let original = peer.ts_ecr;
        peer.until_deadline();
        assert_eq!(peer.data_out(), [(0, 988)]);
        if late {
            peer.ts_ecr = original;
        }
        peer.give(&peer.ack(988));
        assert_eq!(peer.tcp.stats().undone, u64::from(late));
        assert_eq!(peer.tcp.ssthresh() == SSTHRESH_UNKNOWN, late);
        let first = peer.data_out()[0].0;
        assert_eq!(first, if late { 9_880 } else { 988 });
    }
}

#[test]
fn d_sack_of_all_that_was_sent_again_takes_a_recovery_back() {
    let mut peer = ten_out(forgiving(Recovery::Sack));
    peer.give(&peer.sack(0, &[(M, 6 * M)]));
    assert_eq!(peer.data_out()[0], (0, 1000));
    assert_eq!(peer.tcp.cwnd(), 5_000);
    // The first one was late; then its copy arrives.
    peer.give(&peer.ack(10 * M));
    peer.out();
    assert_eq!((peer.tcp.cwnd(), peer.tcp.stats().undone), (5_000, 0));
    peer.give(&peer.sack(10 * M, &[(0, M)]));
    assert_eq!(peer.tcp.stats().undone, 1);
    assert_eq!(peer.tcp.cwnd(), 10_000);
    assert_eq!(peer.tcp.ssthresh(), SSTHRESH_UNKNOWN);
}

#[test]
fn d_sack_of_a_part_of_what_was_sent_again_takes_nothing_back() {
    let mut peer = ten_out(forgiving(Recovery::Sack));
    peer.give(&peer.sack(0, &[(2 * M, 10 * M)]));
    assert_eq!(peer.data_out()[..2], [(0, 1000), (M, 1000)]);
    peer.give(&peer.ack(10 * M));
    peer.out();
    peer.give(&peer.sack(10 * M, &[(0, M)]));
    assert_eq!((peer.tcp.cwnd(), peer.tcp.stats().undone), (5_000, 0));
    peer.give(&peer.sack(10 * M, &[(M, 2 * M)]));
    assert_eq!((peer.tcp.cwnd(), peer.tcp.stats().undone), (10_000, 1));
}

#[test]
fn a_cut_by_marks_is_not_taken_back() {
    let mut config = forgiving(Recovery::Sack);
    config.ecn = Ecn::Offer;
    let mut peer = ten_out(config);
    peer.give(&peer.sack(0, &[(M, 6 * M)]));
    peer.out();
    peer.give(&peer.ack(10 * M));
    peer.out();
    let mut marked = peer.ack(11 * M);
    marked.flags |= flags::ECE;
    peer.give(&marked);
    let cwnd = peer.tcp.cwnd();
    peer.give(&peer.sack(11 * M, &[(0, M)]));
    assert_eq!((peer.tcp.cwnd(), peer.tcp.stats().undone), (cwnd, 0));
}
