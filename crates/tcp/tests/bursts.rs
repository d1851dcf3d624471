//! When Linux waits for more to send at once, and when its slow start ends by itself.

use harness::{
    MS, US,
    peer::{M, Peer, SHIFT, plain, ten_out},
};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{Config, config::Recovery};

use crate::harness;

fn defers() -> Config {
    Config {
        super_packets: true,
        ..plain(Recovery::Rack)
    }
}

#[test]
fn less_than_a_third_of_the_window_waits_for_the_next_ack() {
    let mut peer = ten_out(defers());
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out(), [], "two of eleven");
    peer.give(&peer.ack(2 * M));
    assert_eq!(peer.data_out().len(), 4, "of twelve");

    let mut peer = ten_out(plain(Recovery::Rack));
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out().len(), 2);
}

#[test]
fn nothing_waits_after_a_pause_or_for_an_ack_that_is_far() {
    let mut peer = ten_out(defers());
    peer.pass(MS);
    peer.give(&peer.ack(M));
    assert_eq!(
        peer.data_out().len(),
        2,
        "nothing has left for a millisecond"
    );

    let mut peer = Peer::new(defers(), 900 * US);
    peer.tcp.write(100_000);
    assert_eq!(peer.data_out().len(), 10);
    peer.pass(400 * US);
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out().len(), 2, "the oldest has left just now");
}

#[test]
fn the_rest_of_a_window_follows_whatever_is_out_without_nagle() {
    for (nagle, rest) in [(true, None), (false, Some((5 * M + 432, 512)))] {
        let mut config = plain(Recovery::Sack);
        config.super_packets = true;
        config.nagle = nagle;
        let mut peer = Peer::new(config, 100 * US);
        peer.tcp.write(1000);
        peer.data_out();
        peer.window = 19 << SHIFT;
        peer.give(&peer.ack(M));
        peer.tcp.write(10_000);
        assert_eq!(peer.data_out(), [(M, 1000), (2 * M, 1000), (3 * M, 432)]);
        peer.pass(100 * US);
        peer.window = 23 << SHIFT;
        peer.give(&peer.ack(3 * M));
        let whole = [(3 * M + 432, 1000), (4 * M + 432, 1000)];
        let expected: Vec<_> = whole.into_iter().chain(rest).collect();
        assert_eq!(peer.data_out(), expected);
    }
}

fn twenty_out() -> Peer {
    let mut peer = ten_out(Config {
        hystart: true,
        algorithm: Algorithm::Cubic,
        ..plain(Recovery::Rack)
    });
    peer.tcp.write(900_000);
    for segments in 1..=10 {
        peer.give(&peer.ack(segments * M));
    }
    assert_eq!(peer.data_out().len(), 20);
    assert_eq!(peer.tcp.ssthresh(), u32::MAX);
    peer
}

/// Acknowledges one segment after the other until slow start has ended; after how many.
fn slow_start_ends(peer: &mut Peer, apart_ns: u64) -> Option<u32> {
    (11..=30).find(|segments| {
        peer.give(&peer.ack(segments * M));
        peer.pass(apart_ns);
        peer.tcp.ssthresh() != u32::MAX
    })
}

#[test]
fn a_long_train_of_acks_ends_slow_start() {
    // Half of the least RTT and of a millisecond, which four super-packets take at least: 0.55 ms.
    let mut peer = twenty_out();
    peer.pass(100 * US);
    assert_eq!(slow_start_ends(&mut peer, 100 * US), Some(17));
    assert_eq!(peer.tcp.ssthresh(), 26 * M);
    for segments in 18..=57 {
        peer.data_out();
        peer.give(&peer.ack(segments * M));
    }
    let grown = 41 * M / 20;
    assert_eq!(peer.tcp.cwnd(), 26 * M + grown, "of what is acknowledged");

    let mut peer = twenty_out();
    peer.pass(100 * US);
    assert_eq!(slow_start_ends(&mut peer, 10 * US), None, "a short one");
}

#[test]
fn a_round_trip_that_has_grown_ends_slow_start() {
    let mut peer = twenty_out();
    peer.pass(5 * MS);
    assert_eq!(slow_start_ends(&mut peer, 0), Some(19), "the ninth sample");

    let mut peer = twenty_out();
    peer.pass(4 * MS);
    assert_eq!(slow_start_ends(&mut peer, 0), None, "by less than 4 ms");
}
