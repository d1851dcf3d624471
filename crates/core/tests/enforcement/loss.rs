//! Loss and timeouts, inferred from what passes by.

use sluicegate_core::{
    abi::{FLOW_RECOVERY, Params},
    cc::Algorithm,
    host::tcp,
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, params, policy, policy_of};

const WIDE: u16 = u16::MAX;
const MSS: u32 = 1460;

/// Ten segments are out from the offset returned, the first of them lost.
fn ten_out(solo: &mut Solo) -> u32 {
    let at = solo.round(0, MSS, false, WIDE);
    solo.ack(at, WIDE);
    for i in 0..10 {
        solo.data(at + i * MSS, MSS as usize);
    }
    at
}

#[test]
fn the_third_duplicate_is_a_loss() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let before = solo.flow().cc.cwnd;
    for i in 1..=2 {
        solo.duplicate(at, WIDE, &[(at + MSS, at + (i + 1) * MSS)]);
    }
    assert_eq!((solo.flow().losses, solo.flow().cc.cwnd), (0, before));
    solo.duplicate(at, WIDE, &[(at + MSS, at + 4 * MSS)]);
    assert_eq!(solo.flow().losses, 1);
    assert_eq!(solo.flow().cc.cwnd, before / 2);
    assert_eq!(solo.counter("loss"), 1);
}

#[test]
fn one_loss_per_window() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    for i in 1..10 {
        solo.duplicate(at, WIDE, &[(at + MSS, at + (i + 1) * MSS)]);
    }
    // A partial ACK, then duplicates for the next hole of the same window.
    solo.ack(at + 2 * MSS, WIDE);
    assert_ne!(solo.flow().flags & FLOW_RECOVERY, 0);
    for i in 3..7 {
        solo.duplicate(at + 2 * MSS, WIDE, &[(at + 3 * MSS, at + (i + 1) * MSS)]);
    }
    assert_eq!(solo.flow().losses, 1);
    solo.ack(at + 10 * MSS, WIDE);
    assert_eq!(solo.flow().flags & FLOW_RECOVERY, 0);
}

#[test]
fn duplicates_count_without_sack_too() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    for _ in 0..3 {
        solo.duplicate(at, WIDE, &[]);
    }
    assert_eq!(solo.flow().losses, 1);
}

/// Sends `packets` at a flow with ten segments out, and expects that none counts.
fn nothing_counts(packets: impl Fn(&Solo, u32) -> Vec<Packet>) {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    // From now on a duplicate ACK brings a block.
    solo.duplicate(at, WIDE, &[(at + MSS, at + 2 * MSS)]);
    assert_eq!(solo.flow().dupacks, 1);
    for packet in packets(&solo, at) {
        solo.arrive(&packet);
    }
    assert_eq!((solo.flow().dupacks, solo.flow().losses), (1, 0));
}

fn block(solo: &Solo, left: u32, right: u32) -> (u32, u32) {
    (
        solo.start.wrapping_add(left),
        solo.start.wrapping_add(right),
    )
}

#[test]
fn a_window_update_is_no_duplicate() {
    nothing_counts(|solo, at| {
        let update = |i: u16| Packet {
            options: opt::sack(&[block(solo, at + MSS, at + (u32::from(i) + 2) * MSS)]),
            ..solo.peers(at, WIDE - i)
        };
        (1..6).map(update).collect()
    });
}

#[test]
fn a_block_seen_before_is_no_duplicate() {
    nothing_counts(|solo, at| {
        let same = Packet {
            options: opt::sack(&[block(solo, at + MSS, at + 2 * MSS)]),
            ..solo.peers(at, WIDE)
        };
        vec![same; 5]
    });
}

#[test]
fn a_duplicate_sack_is_no_duplicate_ack() {
    nothing_counts(|solo, at| {
        // RFC 2883: below the ACK, or within the second block.
        let below = |i| block(solo, at - (i + 1) * MSS, at - i * MSS);
        let inside = |i| block(solo, at + (3 + i) * MSS, at + (4 + i) * MSS);
        let around = block(solo, at + 2 * MSS, at + 9 * MSS);
        (0..4)
            .flat_map(|i| [opt::sack(&[below(i)]), opt::sack(&[inside(i), around])])
            .map(|options| Packet {
                options,
                ..solo.peers(at, WIDE)
            })
            .collect()
    });
}

#[test]
fn the_answer_to_a_keepalive_is_no_duplicate() {
    nothing_counts(|solo, at| vec![solo.peers(at, WIDE); 5]);
}

/// Of a flow without SACK, whose pure ACKs would count.
#[test]
fn data_is_no_duplicate() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let data = Packet {
        payload: vec![7; 100],
        ..solo.peers(at, WIDE)
    };
    for _ in 0..5 {
        solo.arrive(&data);
    }
    assert_eq!((solo.flow().dupacks, solo.flow().losses), (0, 0));
}

#[test]
fn a_stale_ack_is_no_duplicate() {
    nothing_counts(|solo, at| vec![solo.peers(at - MSS, WIDE); 5]);
}

#[test]
fn with_nothing_outstanding_nothing_is_lost() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, WIDE);
    for _ in 0..5 {
        solo.duplicate(at, WIDE, &[]);
    }
    assert_eq!(solo.flow().losses, 0);
}

#[test]
fn a_repeated_head_after_silence_is_a_timeout() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    solo.now_ns += 50_000_000;
    solo.data(at, MSS as usize);
    assert_eq!(solo.flow().timeouts, 1);
    assert_eq!(solo.flow().cc.cwnd, 2 * MSS, "slow start from the floor");
    assert_eq!(solo.counter("timeout"), 1);
    // The next of the same data is no second one.
    solo.now_ns += 1_000;
    solo.data(at + MSS, MSS as usize);
    solo.data(at, MSS as usize);
    assert_eq!((solo.flow().timeouts, solo.flow().losses), (1, 0));
}

#[test]
fn a_repeated_head_without_silence_is_no_timeout() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let before = solo.flow().cc.cwnd;
    solo.data(at, MSS as usize);
    assert_eq!((solo.flow().timeouts, solo.flow().losses), (0, 0));
    assert_eq!(solo.flow().cc.cwnd, before);
}

#[test]
fn no_silence_shorter_than_the_rules_smallest_is_a_timeout() {
    for (ms, timeouts) in [(9, 0), (11, 1)] {
        let mut solo = Solo::with(params());
        let at = ten_out(&mut solo);
        assert!(solo.flow().srtt_ns < 1_000_000);
        solo.now_ns += ms * 1_000_000;
        solo.data(at, MSS as usize);
        assert_eq!(solo.flow().timeouts, timeouts, "{ms} ms, of 10");
    }
}

#[test]
fn an_early_retransmission_after_one_duplicate_is_a_loss() {
    // RFC 8985: a stack with RACK doesn't wait for three.
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let before = solo.flow().cc.cwnd;
    solo.duplicate(at, WIDE, &[(at + MSS, at + 2 * MSS)]);
    solo.data(at, MSS as usize);
    assert_eq!(solo.flow().losses, 1);
    assert_eq!(solo.flow().cc.cwnd, before / 2);
}

#[test]
fn a_keepalive_is_no_retransmission() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, WIDE);
    let before = *solo.flow();
    solo.now_ns += 60_000_000_000;
    let probe = Packet {
        payload: vec![0; 1],
        ..solo.own(at - 1, 0)
    };
    solo.send(&probe);
    assert_eq!(solo.flow().timeouts, 0);
    assert_eq!(solo.flow().snd_nxt, before.snd_nxt);
    assert_eq!(solo.flow().cc, before.cc);
}

/// A flow after six rounds of slow start, where its data ends, and its window.
fn six_rounds() -> (Solo, u32, u32) {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..6 {
        at = solo.round(at, MSS, false, WIDE);
    }
    let grown = solo.flow().cc.cwnd;
    (solo, at, grown)
}

#[test]
fn after_idleness_a_flow_restarts_from_its_initial_window() {
    let (mut solo, at, grown) = six_rounds();
    assert!(grown > 30 * MSS);
    solo.now_ns += 5_000_000_000;
    solo.data(at, MSS as usize);
    assert_eq!(solo.flow().cc.cwnd, 10 * MSS);
    assert!(solo.flow().cc.ssthresh >= grown - grown / 4);
}

#[test]
fn a_pause_shorter_than_an_rto_is_no_idleness() {
    let (mut solo, at, grown) = six_rounds();
    solo.now_ns += 5_000_000;
    solo.data(at, MSS as usize);
    assert_eq!(solo.flow().cc.cwnd, grown);
}

#[test]
fn an_application_limited_flow_does_not_grow() {
    for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp] {
        let mut solo = Solo::with(Params {
            algorithm: algorithm.number(),
            ..params()
        });
        for i in 0..400 {
            solo.data(i * 200, 200);
            solo.now_ns += 100_000;
            solo.e0b += 200;
            solo.ack((i + 1) * 200, WIDE);
        }
        assert_eq!(solo.flow().cc.cwnd, 10 * MSS, "{algorithm:?}");
    }
}

#[test]
fn no_rtt_is_taken_until_what_was_sent_twice_is_acknowledged() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let before = solo.flow().srtt_ns;
    assert!(before > 0);
    solo.now_ns += 5_000_000;
    solo.data(at, MSS as usize);
    // New data goes out behind the hole, and is acknowledged when that is filled.
    solo.data(at + 10 * MSS, MSS as usize);
    solo.now_ns += 100_000_000;
    solo.ack(at + 11 * MSS, WIDE);
    assert_eq!(solo.flow().srtt_ns, before, "Karn");
    solo.round(at + 11 * MSS, MSS, false, WIDE);
    assert_ne!(solo.flow().srtt_ns, before, "and afterwards again");
}

/// The receiver may delay the ACK of a segment that is out alone (RFC 5681 section 4.2).
#[test]
fn a_segment_alone_gives_no_rtt() {
    let mut solo = Solo::with(params());
    solo.data(0, MSS as usize);
    solo.now_ns += 40_000_000;
    solo.e0b += MSS;
    solo.ack(MSS, WIDE);
    assert_eq!(solo.flow().srtt_ns, 0);
    solo.round(MSS, MSS, false, WIDE);
    assert!((100_000..200_000).contains(&solo.flow().srtt_ns));
}

#[test]
fn rtt_is_that_of_the_path() {
    let mut pair = Pair::new(&policy());
    pair.latency_ns = 300_000;
    pair.connect();
    pair.transfer(A, 2_000_000);
    let flow = pair.flow(A);
    assert!(
        (600_000..620_000).contains(&flow.min_rtt_ns),
        "{}",
        flow.min_rtt_ns
    );
    assert!(flow.srtt_ns < 2_000_000, "{}", flow.srtt_ns);
}

#[test]
fn an_ack_of_what_was_never_sent_is_left_alone() {
    let mut solo = Solo::with(params());
    let at = ten_out(&mut solo);
    let before = *solo.flow();
    let wild = solo.peers(at + 1_000_000, WIDE);
    let (after, outcome) = solo.arrive(&wild);
    assert_eq!((after, outcome.edits), (wild, 0));
    assert_eq!(solo.counter("ack_beyond"), 1);
    assert_eq!(solo.flow().snd_una, before.snd_una);
}

#[test]
fn transfers_survive_a_lossy_network() {
    for (sack, every) in [(true, 50), (true, 13), (false, 50)] {
        let mut pair = Pair::new(&policy());
        for side in [A, B] {
            pair.tenant(side).offers.sack = sack;
        }
        pair.connect();
        pair.set_fate(move |crossing| match crossing.index % every {
            7 => Fate::Drop,
            11 => Fate::Delay(30_000),
            _ => Fate::Deliver,
        });
        pair.transfer(A, 2_000_000);
        pair.transfer(B, 2_000_000);
        for side in [A, B] {
            assert!(pair.flow(side).losses + pair.flow(side).timeouts > 0);
            assert_eq!(pair.counter(side, "policed"), 0);
        }
    }
}

#[test]
fn a_fin_takes_part_in_the_sequence_space() {
    let mut solo = Solo::two_sided(&policy_of(params()), 1460, 10);
    let fin = Packet {
        flags: tcp::FIN | tcp::ACK,
        ..solo.own(0, 100)
    };
    solo.send(&fin);
    solo.ack(101, WIDE);
    assert_eq!(solo.flow().snd_una, solo.start.wrapping_add(101));
    assert_eq!(solo.counter("ack_beyond"), 0);
}

/// Two CPUs read the clock, then wait for the flow's lock: the packet that comes second may carry
/// the earlier time.
#[test]
fn time_that_runs_backwards_is_neither_idleness_nor_a_timeout() {
    let (mut solo, at, grown) = six_rounds();
    assert!(grown > 30 * MSS);
    solo.now_ns -= 1_000;
    solo.data(at, MSS as usize);
    assert_eq!(solo.flow().cc.cwnd, grown, "no restart");
    solo.data(at, MSS as usize);
    assert_eq!((solo.flow().timeouts, solo.flow().cc.cwnd), (0, grown));
}
