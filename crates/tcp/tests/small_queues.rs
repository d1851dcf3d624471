//! Packets that wait below the socket.

use harness::{
    MS, US,
    peer::{M, Peer, plain},
};
use sluicegate_tcp::{Config, config::Recovery};

use crate::harness;

fn small_queues() -> Config {
    Config {
        small_queues: true,
        ..plain(Recovery::Rack)
    }
}

/// Segments that leave.
fn count(peer: &mut Peer) -> usize {
    peer.data_out().len()
}

#[test]
fn a_far_peer_finds_two_super_packets_of_two_segments_below() {
    let mut peer = Peer::new(small_queues(), 20 * MS);
    peer.tcp.write(100_000);
    assert!(!peer.tcp.is_held_back(peer.now_ns));
    assert_eq!(count(&mut peer), 4, "of the ten that cwnd allows");
    assert!(peer.tcp.is_held_back(peer.now_ns));
    peer.pass(MS);
    peer.tcp.left(1000);
    assert_eq!(count(&mut peer), 2, "the next two, as one");
    peer.pass(MS);
    peer.tcp.left(1000);
    assert_eq!(count(&mut peer), 0);
    // Whatever is acknowledged: only what leaves makes room.
    peer.pass(20 * MS);
    peer.give(&peer.ack(2 * M));
    assert_eq!(count(&mut peer), 0);
}

#[test]
fn a_near_peer_finds_what_windows_allow() {
    let mut peer = Peer::new(small_queues(), 100 * US);
    peer.tcp.write(100_000);
    assert_eq!(count(&mut peer), 10);
    assert!(
        !peer.tcp.is_held_back(peer.now_ns),
        "the window is what holds it back"
    );
}

#[test]
fn acknowledgements_pass() {
    let mut peer = Peer::new(small_queues(), 20 * MS);
    peer.tcp.write(100_000);
    assert_eq!(count(&mut peer), 4);
    peer.give(&peer.data(0, 500, 0));
    let segment = peer.one();
    assert_eq!(segment.payload, 0);
}

#[test]
fn all_leaves_when_what_is_below_does() {
    let mut peer = Peer::new(small_queues(), 20 * MS);
    peer.tcp.write(5_500);
    let mut below = std::collections::VecDeque::new();
    let mut sent = 0;
    for _ in 0..20 {
        let out = peer.data_out();
        sent += out
            .iter()
            .map(|&(_, length)| u32::from(length))
            .sum::<u32>();
        below.extend(out);
        peer.pass(MS);
        if let Some((_, length)) = below.pop_front() {
            peer.tcp.left(length);
        }
    }
    assert_eq!(sent, 5_500);
}
