//! Connections that begin with the experience of earlier ones.

use harness::{MS, US, peer::Peer};
use sluicegate_core::cc::SSTHRESH_UNKNOWN;
use sluicegate_tcp::{Cache, Config, Events, config::CacheWindow};

use crate::harness;

fn config() -> Config {
    let mut config = Config::freebsd9(1000);
    config.timestamps = false;
    config
}

/// A connection with a round trip of `rtt_ns` that loses something and goes on until congestion
/// avoidance.
fn experienced(config: Config, rtt_ns: u64) -> Peer {
    let mut peer = Peer::new(config, rtt_ns);
    peer.tcp.write(100_000);
    peer.out();
    peer.pass(rtt_ns);
    for _ in 0..3 {
        peer.give(&peer.ack(0));
        peer.out();
    }
    peer.pass(rtt_ns);
    peer.give(&peer.ack(5_000));
    peer
}

fn end(peer: &mut Peer) -> Events {
    peer.tcp.abort();
    Events::FAILED
}

#[test]
fn the_next_connection_begins_with_what_the_last_one_learnt() {
    let mut cache = Cache::default();
    let mut first = experienced(config(), 3 * MS);
    let ssthresh = first.tcp.ssthresh();
    assert_ne!(ssthresh, SSTHRESH_UNKNOWN);
    let events = end(&mut first);
    cache.on_events(7, &mut first.tcp, events);
    let known = *cache.get(&7).expect("is kept");
    assert_eq!((known.rtt_ns, known.ssthresh), (3 * MS, ssthresh));

    let mut next = Peer::new(config(), 100 * US);
    cache.on_events(7, &mut next.tcp, Events::CONNECTED);
    assert_eq!(next.tcp.ssthresh(), ssthresh);
    // 3 ms and twice as much for its variation, and FreeBSD's slop.
    assert_eq!(next.tcp.rto_ns(), 29 * MS);
    // Until there is a sample of data.
    next.tcp.write(1_000);
    next.out();
    next.pass(100 * US);
    next.give(&next.ack(1_000));
    assert!(next.tcp.rto_ns() < 23 * MS, "{}", next.tcp.rto_ns());

    let mut other = Peer::new(config(), 100 * US);
    cache.on_events(8, &mut other.tcp, Events::CONNECTED);
    assert_eq!(other.tcp.ssthresh(), SSTHRESH_UNKNOWN);
}

#[test]
fn a_longer_round_trip_counts_at_once_and_a_shorter_one_slowly() {
    let mut cache = Cache::default();
    for (rtt_ns, kept_ns) in [
        (800 * US, 800 * US),
        (3 * MS, 3 * MS),
        (600 * US, 2_700 * US),
    ] {
        let mut peer = Peer::new(config(), rtt_ns);
        let events = end(&mut peer);
        cache.on_events(1, &mut peer.tcp, events);
        assert_eq!(cache.get(&1).map(|known| known.rtt_ns), Some(kept_ns));
    }
}

#[test]
fn a_connection_that_fails_for_want_of_answers_forgets_the_round_trip() {
    let mut cache = Cache::default();
    let mut peer = Peer::new(config(), MS);
    let events = end(&mut peer);
    cache.on_events(1, &mut peer.tcp, events);
    let mut config = config();
    config.retries = 2;
    let mut silent = Peer::new(config, MS);
    silent.tcp.write(1_000);
    while !silent.events.contains(Events::FAILED) {
        silent.out();
        silent.until_deadline();
    }
    cache.on_events(1, &mut silent.tcp, silent.events);
    assert_eq!(cache.get(&1).map(|known| known.rtt_ns), Some(0));
}

#[test]
fn linux_keeps_no_threshold_and_nothing_is_kept_where_the_cache_is_off() {
    let mut cache = Cache::default();
    let mut linux = Config::linux(1000);
    linux.timestamps = false;
    linux.sack = false;
    let mut peer = experienced(linux, MS);
    assert_ne!(peer.tcp.ssthresh(), SSTHRESH_UNKNOWN);
    let events = end(&mut peer);
    cache.on_events(1, &mut peer.tcp, events);
    assert_eq!(
        cache.get(&1).map(|known| (known.rtt_ns, known.ssthresh)),
        Some((MS, 0))
    );

    let mut off = config();
    off.cache = false;
    let mut peer = experienced(off, MS);
    let events = end(&mut peer);
    cache.on_events(2, &mut peer.tcp, events);
    assert!(cache.get(&2).is_none());
}

/// Ends a connection with a window of `segments`, and says with how many the next one begins.
fn inherited(config: Config, cache: &mut Cache<u8>, segments: u32) -> u32 {
    let mut peer = Peer::new(config, MS);
    let mut sent = 0;
    while peer.tcp.cwnd() < segments * 1000 {
        peer.tcp.write(1_000_000);
        sent += peer
            .data_out()
            .iter()
            .map(|data| u32::from(data.1))
            .sum::<u32>();
        peer.pass(MS);
        peer.give(&peer.ack(sent));
    }
    let events = end(&mut peer);
    cache.on_events(1, &mut peer.tcp, events);
    let mut next = Peer::new(config, MS);
    cache.on_events(1, &mut next.tcp, Events::CONNECTED);
    next.tcp.write(1_000_000);
    let out = next.data_out().len() as u32;
    assert_eq!(out, next.tcp.cwnd() / 1000);
    out
}

#[test]
fn a_window_is_inherited_in_whole_by_half_or_not() {
    for (cache_window, first, second) in [
        (CacheWindow::Unused, 3, 3),
        (CacheWindow::Whole, 24, 12),
        // (24 + 12) / 2 / 2.
        (CacheWindow::Half, 12, 9),
    ] {
        let mut config = config();
        config.cache_window = cache_window;
        let mut cache = Cache::default();
        assert_eq!(inherited(config, &mut cache, 24), first);
        assert_eq!(inherited(config, &mut cache, 12), second);
    }
}

#[test]
fn an_inherited_window_is_no_larger_than_buffer_and_peer_allow() {
    let mut config = config();
    config.cache_window = CacheWindow::Whole;
    config.send_buffer.initial_bytes = 20_000;
    assert_eq!(inherited(config, &mut Cache::default(), 24), 20);
}
