//! The receiving half, segment by segment: each test is one rule.

use harness::{
    MS, US,
    peer::{PEER_ISN, Peer, blocks, received},
};
use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{
    Config, Error, Events, Segment,
    config::{Buffer, Ecn},
    segment::{ecn, flags, option},
};

use crate::harness;

/// Segments of 1000 bytes, an ACK for every second.
fn config() -> Config {
    let mut config = Config::linux(1000);
    config.timestamps = false;
    config.delayed_ack.quick = 0;
    config.receive_buffer = Buffer {
        initial_bytes: 32_768,
        max_bytes: 32_768,
    };
    config
}

/// The endpoint knows the size of full segments, and owes no ACK.
fn warm(config: Config) -> Peer {
    let until_read = config.delayed_ack.until_read;
    let mut peer = Peer::new(config, 100 * US);
    peer.give(&peer.data(0, 1000, 0));
    peer.give(&peer.data(1000, 1000, 0));
    peer.sent = 2000;
    peer.out();
    assert_eq!(peer.tcp.read(u64::MAX), 2000);
    // An ACK that waited for the application leaves now.
    assert!(peer.out().is_empty() || until_read);
    peer
}

#[test]
fn every_second_segment_is_acknowledged_the_odd_one_by_timer() {
    let mut peer = warm(config());
    assert!(
        peer.give(&peer.data(2000, 1000, 0))
            .contains(Events::READABLE)
    );
    assert_eq!(peer.out(), []);
    peer.give(&peer.data(3000, 1000, 0));
    assert_eq!(received(peer.one().ack), 4000);
    peer.give(&peer.data(4000, 1000, 0));
    assert_eq!(peer.out(), []);
    assert_eq!(peer.until_deadline(), 40 * MS);
    assert_eq!(received(peer.one().ack), 5000);
    assert_eq!(peer.tcp.deadline_ns(), u64::MAX);
    assert_eq!(peer.tcp.readable(), 3000);
}

#[test]
fn a_segment_and_some_is_acknowledged_at_once() {
    let mut peer = warm(config());
    peer.give(&peer.data(2000, 1000, 0));
    peer.give(&peer.data(3000, 64, 0));
    assert_eq!(received(peer.one().ack), 3064);
}

/// Windows have a scale, so that they can move by bytes, and ACKs wait for the application.
fn until_read() -> Config {
    let mut config = config();
    config.receive_buffer = Buffer {
        initial_bytes: 100_000,
        max_bytes: 100_000,
    };
    config.delayed_ack.until_read = true;
    config
}

#[test]
fn what_was_not_read_is_acknowledged_when_it_is() {
    let mut peer = warm(until_read());
    // An ACK with nothing unread offers all of the buffer.
    peer.give(&peer.data(2000, 100, 0));
    peer.tcp.read(u64::MAX);
    assert_eq!(received(peer.one().ack), 2100);
    peer.give(&peer.data(2100, 1000, 0));
    peer.give(&peer.data(3100, 1000, 0));
    peer.give(&peer.data(4100, 100, 0));
    assert_eq!(peer.out(), [], "the window cannot move on");
    peer.tcp.read(u64::MAX);
    assert_eq!(received(peer.one().ack), 4200, "one for all");
    assert_eq!(peer.out(), []);
}

#[test]
fn a_small_segment_is_acknowledged_when_it_is_read_a_full_one_is_not() {
    let mut peer = warm(until_read());
    peer.give(&peer.data(2000, 1000, 0));
    peer.tcp.read(u64::MAX);
    assert_eq!(peer.out(), []);
    peer.give(&peer.data(3000, 100, 0));
    peer.tcp.read(u64::MAX);
    assert_eq!(received(peer.one().ack), 3100);
    peer.give(&peer.data(3100, 100, 0));
    assert_eq!(peer.out(), []);
    peer.tcp.read(50);
    assert_eq!(peer.out(), [], "some is left");
    peer.tcp.read(u64::MAX);
    assert_eq!(received(peer.one().ack), 3200);
}

#[test]
fn every_segment_or_every_third() {
    for (segments, expected) in [(1, 6), (2, 3), (3, 2)] {
        let mut config = config();
        config.delayed_ack.segments = segments;
        let mut peer = Peer::new(config, 100 * US);
        let acks: usize = (0..6)
            .map(|index| {
                peer.give(&peer.data(index * 1000, 1000, 0));
                peer.out().len()
            })
            .sum();
        assert_eq!(acks, expected);
    }
}

/// Linux counts bytes, FreeBSD segments.
#[test]
fn small_segments_count_like_full_ones_only_with_freebsd() {
    let acks = |mut config: Config, segments: u8| -> Vec<u32> {
        (config.timestamps, config.delayed_ack.quick) = (false, 0);
        config.delayed_ack.segments = segments;
        let mut peer = Peer::new(config, 100 * US);
        let sizes = [1, 2, 1, 1, 1, 1];
        let ack = |peer: &mut Peer, len: u16| {
            peer.give(&peer.data(peer.sent, len, 0));
            peer.sent += u32::from(len);
            (peer.out().first()).map_or(0, |ack| received(ack.ack))
        };
        sizes.map(|len| ack(&mut peer, len)).to_vec()
    };
    assert_eq!(acks(Config::linux(1000), 2), [0; 6]);
    assert_eq!(acks(Config::freebsd9(1000), 2), [0, 3, 0, 5, 0, 7]);
    assert_eq!(acks(Config::freebsd9(1000), 3), [0, 0, 4, 0, 0, 7]);
}

/// What FreeBSD holds back for a second segment leaves by the timer, and the count begins anew.
#[test]
fn the_timer_ends_the_count_of_small_segments() {
    let mut config = config();
    config.delayed_ack.any_size = true;
    let mut peer = Peer::new(config, 100 * US);
    peer.give(&peer.data(0, 10, 0));
    assert_eq!(peer.out(), []);
    assert_eq!(peer.until_deadline(), 40 * MS);
    assert_eq!(received(peer.one().ack), 10);
    peer.give(&peer.data(10, 10, 0));
    assert_eq!(peer.out(), []);
    peer.give(&peer.data(20, 10, 0));
    assert_eq!(received(peer.one().ack), 30);
}

#[test]
fn the_first_segments_are_acknowledged_quickly_and_again_after_idleness() {
    let mut config = config();
    config.delayed_ack.quick = 4;
    let mut peer = Peer::new(config, 100 * US);
    let count = |peer: &mut Peer| -> Vec<usize> {
        (0..8)
            .map(|_| {
                peer.give(&peer.data(peer.sent, 1000, 0));
                peer.sent += 1000;
                peer.tcp.read(u64::MAX);
                peer.out().len()
            })
            .collect()
    };
    assert_eq!(count(&mut peer), [1, 1, 1, 1, 0, 1, 0, 1]);
    peer.pass(peer.tcp.rto_ns() + 1);
    assert_eq!(count(&mut peer), [1, 1, 1, 1, 0, 1, 0, 1]);
}

#[test]
fn data_carries_the_ack() {
    let mut peer = warm(config());
    peer.give(&peer.data(2000, 1000, 0));
    peer.tcp.write(10);
    let data = peer.one();
    assert_eq!((data.payload, received(data.ack)), (10, 3000));
    assert_ne!(peer.tcp.deadline_ns(), u64::MAX, "its own RTO or probe");
}

#[test]
fn out_of_order_is_answered_at_once_with_the_newest_block_first() {
    let mut peer = warm(config());
    peer.give(&peer.data(3000, 1000, 0));
    let ack = peer.one();
    assert_eq!(
        (received(ack.ack), blocks(&ack)),
        (2000, vec![(3000, 4000)])
    );
    peer.give(&peer.data(6000, 1000, 0));
    assert_eq!(blocks(&peer.one()), [(6000, 7000), (3000, 4000)]);
    peer.give(&peer.data(4000, 1000, 0));
    assert_eq!(blocks(&peer.one()), [(3000, 5000), (6000, 7000)]);
    // A pure ACK even when there is data to send: data would be no duplicate ACK.
    peer.tcp.write(10);
    peer.give(&peer.data(8000, 1000, 0));
    let out = peer.out();
    assert_eq!((out[0].payload, out[1].payload), (0, 10));
    assert_eq!(blocks(&out[0])[0], (8000, 9000));
    // The hole is filled in part: at once.
    peer.give(&peer.data(2000, 1000, 0));
    let ack = peer.one();
    assert_eq!(received(ack.ack), 5000);
    assert_eq!(blocks(&ack), [(8000, 9000), (6000, 7000)]);
    assert_eq!(peer.tcp.readable(), 3000);
    peer.give(&peer.data(5000, 1000, 0));
    assert_eq!(received(peer.one().ack), 7000);
}

#[test]
fn duplicates_are_reported_as_d_sack() {
    let mut peer = warm(config());
    // Below the ACK.
    peer.give(&peer.data(1000, 1000, 0));
    let ack = peer.one();
    assert_eq!(
        (received(ack.ack), blocks(&ack)),
        (2000, vec![(1000, 2000)])
    );
    // Above it, with the block that holds it second.
    peer.give(&peer.data(4000, 1000, 0));
    peer.give(&peer.data(5000, 1000, 0));
    peer.out();
    peer.give(&peer.data(4000, 1000, 0));
    assert_eq!(blocks(&peer.one()), [(4000, 5000), (4000, 6000)]);
    // Reported once.
    peer.give(&peer.data(7000, 1000, 0));
    assert_eq!(blocks(&peer.one()), [(7000, 8000), (4000, 6000)]);
    // Partly old.
    peer.give(&peer.data(1500, 1000, 0));
    let ack = peer.one();
    assert_eq!(received(ack.ack), 2500);
    assert_eq!(blocks(&ack)[0], (1500, 2000));
}

#[test]
fn a_part_that_has_come_twice_is_reported() {
    // Above a hole: the first stretch of it, before the range that holds it (RFC 2883 4.2).
    let mut peer = warm(config());
    for from in [4000, 7000] {
        peer.give(&peer.data(from, 1000, 0));
        peer.out();
    }
    peer.give(&peer.data(4500, 1000, 0));
    let blocks_now = blocks(&peer.one());
    assert_eq!(blocks_now, [(4500, 5000), (4000, 5500), (7000, 8000)]);
    // Two stretches: only the first is told of.
    peer.give(&peer.data(5000, 2500, 0));
    assert_eq!(blocks(&peer.one()), [(5000, 5500), (4000, 8000)]);
    // At the hole: what lies in order reaches into what had come.
    peer.give(&peer.data(2000, 2100, 0));
    let ack = peer.one();
    assert_eq!(received(ack.ack), 8000);
    assert_eq!(blocks(&ack), [(4000, 4100)]);
}

/// RFC 2018 section 3: four blocks fit, beside timestamps three.
#[test]
fn there_are_as_many_blocks_as_options_have_room_for() {
    for (timestamps, most) in [(false, 4), (true, 3)] {
        let mut config = config();
        config.timestamps = timestamps;
        let mut peer = Peer::new(config, 100 * US);
        let range = |number: u32| (number * 1000, number * 1000 + 500);
        for number in 1..=6 {
            peer.give(&peer.data(range(number).0, 500, 0));
            let newest_first: Vec<_> = (1..=number).rev().take(most).map(range).collect();
            let ack = peer.one();
            assert_eq!(blocks(&ack), newest_first);
            assert_eq!(ack.options & option::TIMESTAMPS != 0, timestamps);
            assert!(ack.header_len() <= 60);
            assert!(!timestamps || ack.ts_ecr == peer.ts_val);
        }
        // A duplicate takes the place of the oldest.
        peer.give(&peer.data(4000, 500, 0));
        let told = [4, 4, 6, 5].map(range);
        assert_eq!(blocks(&peer.one()), told[..most]);
    }
}

#[test]
fn without_sack_there_are_no_blocks() {
    let mut config = config();
    config.sack = false;
    let mut peer = warm(config);
    peer.give(&peer.data(3000, 1000, 0));
    let ack = peer.one();
    assert_eq!((received(ack.ack), ack.sack().len()), (2000, 0));
}

#[test]
fn the_window_shrinks_with_what_is_not_read_and_reopens_in_one_step() {
    let mut peer = warm(config());
    let mut offered = Vec::new();
    for index in 0..32 {
        peer.give(&peer.data(2000 + index * 1000, 1000, 0));
        offered.extend(peer.out().iter().map(|ack| ack.window));
    }
    assert_eq!(offered[0], 32_768 - 2000);
    assert!(
        offered.windows(2).all(|pair| pair[1] < pair[0]),
        "{offered:?}"
    );
    assert_eq!(*offered.last().unwrap(), 768);
    // Data beyond the window are cut and answered.
    peer.give(&peer.data(34_000, 1000, 0));
    let ack = peer.one();
    assert_eq!((received(ack.ack), ack.window), (34_768, 0));
    peer.give(&peer.data(34_768, 100, 0));
    assert_eq!(received(peer.one().ack), 34_768, "a probe");
    // A little space is not worth a word, a segment is.
    peer.tcp.read(900);
    assert_eq!(peer.out(), []);
    peer.give(&peer.data(34_768, 100, 0));
    assert_eq!(peer.one().window, 0, "a silly window even when asked for");
    peer.tcp.read(100);
    assert_eq!(peer.one().window, 1000);
    peer.tcp.read(900);
    assert_eq!(peer.out(), []);
    peer.tcp.read(20_000);
    assert_eq!(peer.one().window, 21_900);
}

#[test]
fn a_zero_window_probe_without_data_is_answered() {
    let mut peer = warm(config());
    for _ in 0..3 {
        let mut probe = peer.ack(0);
        probe.seq = probe.seq.wrapping_sub(1);
        peer.give(&probe);
        assert_eq!(received(peer.one().ack), 2000);
    }
}

/// The window after so many round trips of 30 KB, 90 us each, which the application takes at once.
fn window_after(round_trips: u32, timestamps: bool) -> u64 {
    let mut config = config();
    config.receive_buffer.max_bytes = 1 << 20;
    config.timestamps = timestamps;
    let mut peer = Peer::new(config, 100 * US);
    let (mut window, mut echo) = (0, 0);
    for _ in 0..round_trips {
        for _ in 0..30 {
            let mut segment = peer.data(peer.sent, 1000, 0);
            segment.ts_ecr = echo;
            peer.give(&segment);
            peer.sent += 1000;
            peer.tcp.read(u64::MAX);
            peer.pass(3 * US);
            for ack in peer.out() {
                window = u64::from(ack.window) << 5;
                echo = ack.ts_val;
            }
        }
    }
    window
}

/// Some 34 KB in each round trip: twice that, and room for what grows as it did from the first ten
/// segments to here.
#[test]
fn the_buffer_grows_with_what_the_application_takes() {
    let window = window_after(200, false);
    assert!((60_000..450_000).contains(&window), "{window}");
}

/// A window of data tells of round trips that are shorter than the tick of timestamps.
#[test]
fn a_tick_of_timestamps_is_no_round_trip() {
    for round_trips in [8, 200] {
        let window = window_after(round_trips, true);
        assert!(
            (60_000..450_000).contains(&window),
            "{round_trips}: {window}"
        );
    }
}

#[test]
fn an_application_that_takes_nothing_gets_no_more_buffer() {
    let mut config = config();
    config.receive_buffer.max_bytes = 1 << 20;
    let mut window = 0;
    let mut peer = Peer::new(config, 100 * US);
    for _ in 0..30 {
        peer.give(&peer.data(peer.sent, 1000, 0));
        peer.sent += 1000;
        peer.pass(30 * US);
        for ack in peer.out() {
            window = u64::from(ack.window) << 5;
        }
    }
    // Each of 15 ACKs may round its window up to a unit.
    assert!(window <= 32_768 - 30_000 + 15 * 32, "{window}");
}

#[test]
fn paws_drops_what_is_old_and_the_echo_follows_the_last_ack() {
    let mut config = config();
    config.timestamps = true;
    let mut peer = Peer::new(config, 100 * US);
    let stamped = |peer: &Peer, from: u32, ts_val: u32| -> Segment {
        let mut segment = peer.data(from, 988, 0);
        segment.ts_val = ts_val;
        segment
    };
    let base = u32::MAX - 10;
    peer.give(&stamped(&peer, 0, base + 5));
    peer.give(&stamped(&peer, 988, base.wrapping_add(15)));
    // Of two segments that one ACK answers the first counts (RFC 7323 4.3).
    let ack = peer.one();
    assert_eq!(ack.options, option::TIMESTAMPS);
    assert_eq!(ack.ts_ecr, base + 5);
    // A hole: the echo stays with the last in order.
    peer.give(&stamped(&peer, 3 * 988, base.wrapping_add(30)));
    assert_eq!(peer.one().ts_ecr, base + 5);
    peer.give(&stamped(&peer, 2 * 988, base.wrapping_add(20)));
    let ack = peer.one();
    assert_eq!(received(ack.ack), 4 * 988);
    assert_eq!(ack.ts_ecr, base.wrapping_add(20));
    // Old by the timestamp, new by the sequence number: dropped and answered.
    peer.give(&stamped(&peer, 4 * 988, base.wrapping_add(10)));
    let ack = peer.one();
    assert_eq!(received(ack.ack), 4 * 988);
    assert_eq!(peer.tcp.readable(), 4 * 988);
    // After 24 days nothing is known any more.
    peer.pass(25 * 24 * 3600 * 1000 * MS);
    peer.give(&stamped(&peer, 4 * 988, base.wrapping_add(10)));
    assert_eq!(peer.tcp.readable(), 5 * 988);
}

#[test]
fn an_rst_resets_only_exactly_in_order() {
    let rst = |peer: &Peer, beyond: u32| {
        let seq = PEER_ISN.wrapping_add(1 + peer.sent).wrapping_add(beyond);
        Segment::new(seq, 0, flags::RST)
    };
    let mut peer = warm(config());
    assert!(peer.give(&rst(&peer, 500)).is_empty());
    let challenge = peer.one();
    assert_eq!(received(challenge.ack), 2000);
    assert!(peer.give(&rst(&peer, 600)).is_empty());
    assert_eq!(peer.out(), [], "not too often");
    assert!(peer.give(&rst(&peer, 500_000)).is_empty());
    assert!(peer.give(&rst(&peer, u32::MAX)).is_empty());
    assert_eq!(peer.out(), []);
    assert!(peer.give(&rst(&peer, 0)).contains(Events::FAILED));
    assert_eq!(peer.tcp.error(), Some(Error::Reset));
    assert_eq!(peer.out(), []);
}

#[test]
fn a_syn_in_the_middle_is_challenged() {
    let mut peer = warm(config());
    let syn = Segment::new(PEER_ISN.wrapping_add(12_345), 0, flags::SYN);
    assert!(peer.give(&syn).is_empty());
    let challenge = peer.one();
    assert!(challenge.flags == flags::ACK && received(challenge.ack) == 2000);
    assert_eq!(peer.tcp.error(), None);
}

/// CE, ECE and CWR of one stream, with ACKs as (bytes, ECE).
fn echoes(peer: &mut Peer, marks: &[(bool, bool)]) -> Vec<(u32, bool)> {
    let mut acks = Vec::new();
    for &(marked, reduced) in marks {
        let mut segment = peer.data(peer.sent, 1000, 0);
        segment.ecn = if marked { ecn::CE } else { ecn::ECT0 };
        segment.flags |= if reduced { flags::CWR } else { 0 };
        peer.give(&segment);
        peer.sent += 1000;
        for ack in peer.out() {
            acks.push(((received(ack.ack) - 2000) / 1000, ack.has(flags::ECE)));
        }
    }
    acks
}

#[test]
fn classic_ece_holds_until_cwr() {
    let mut config = config();
    config.ecn = Ecn::Offer;
    let mut peer = warm(config);
    let (plain, ce, cwr) = ((false, false), (true, false), (false, true));
    let acks = echoes(&mut peer, &[plain, plain, plain, ce]);
    assert_eq!(acks, [(2, false), (4, true)]);
    let acks = echoes(&mut peer, &[plain, plain, plain, plain]);
    assert!(acks.iter().all(|&(_, ece)| ece));
    let acks = echoes(&mut peer, &[cwr, plain, plain]);
    assert_eq!(acks.len(), 2);
    assert!(acks.iter().all(|&(_, ece)| !ece));
    let acks = echoes(&mut peer, &[(true, true), plain]);
    assert!(acks[0].1, "a CE beside CWR begins anew");
    assert_eq!(peer.tcp.stats().ce_received, 2);
}

#[test]
fn dctcp_s_receiver_acknowledges_each_change_of_ce() {
    let mut peer = warm(config().with(Algorithm::Dctcp));
    let (plain, ce) = ((false, false), (true, false));
    // One unmarked held back when the mark comes: its own ACK first, then one for the mark.
    assert_eq!(echoes(&mut peer, &[plain, ce]), [(1, false), (2, true)]);
    // No change: two by two.
    assert_eq!(echoes(&mut peer, &[ce, ce]), [(4, true)]);
    assert_eq!(echoes(&mut peer, &[ce, plain]), [(5, true), (6, false)]);
    // Nothing held back: only the one for the change.
    assert_eq!(echoes(&mut peer, &[ce]), [(7, true)]);
    assert_eq!(echoes(&mut peer, &[plain]), [(8, false)]);
}

#[test]
fn cwr_is_acknowledged_at_once_by_dctcp_s_receiver_too() {
    let mut peer = warm(config().with(Algorithm::Dctcp));
    let (ce, reduced) = ((true, false), (true, true));
    echoes(&mut peer, &[ce]);
    assert_eq!(echoes(&mut peer, &[reduced]), [(2, true)]);
    // Nothing is held back for it.
    assert_eq!(echoes(&mut peer, &[ce, ce]), [(4, true)]);
    assert_eq!(echoes(&mut peer, &[ce, reduced]), [(6, true)]);
}

#[test]
fn without_ecn_marks_are_only_counted() {
    let mut config = config();
    config.ecn = Ecn::Off;
    let mut peer = warm(config);
    let acks = echoes(&mut peer, &[(true, false), (true, false)]);
    assert_eq!(acks, [(2, false)]);
}

/// FreeBSD's reassembly queue (the thesis, Table 2.1: 200 segments): what finds it full is lost.
#[test]
fn a_full_reassembly_queue_drops_what_does_not_fill_the_gap() {
    let mut config = config();
    config.reassembly_segments = 3;
    let mut peer = warm(config);
    for (segment, from) in [3000, 4000, 6000, 7000].into_iter().enumerate() {
        peer.give(&peer.data(from, 1000, 0));
        let told = peer.one();
        assert_eq!(received(told.ack), 2000, "each is answered at once");
        let last = blocks(&told)[0];
        // The fourth is not kept.
        assert_eq!(last.1, if segment == 3 { 7000 } else { from + 1000 });
    }
    // The missing one is taken, and makes room.
    peer.give(&peer.data(2000, 1000, 0));
    assert_eq!(received(peer.one().ack), 5000);
    peer.give(&peer.data(7000, 1000, 0));
    assert_eq!(blocks(&peer.one()), [(6000, 8000)]);
}
