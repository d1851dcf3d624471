//! The sending half, segment by segment: each test is one rule.

use harness::{
    MS, US,
    peer::{M, Peer, plain as config, position, ten_out},
};
use sluicegate_core::cc::{Algorithm, SSTHRESH_UNKNOWN};
use sluicegate_tcp::{
    Error, Events,
    config::{Ecn, Recovery},
    segment::{ecn, flags},
};

use crate::harness;

#[test]
fn slow_start_sends_two_for_one_and_avoidance_one_per_window() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out().len(), 2);
    assert_eq!(peer.tcp.cwnd(), 11_000);
    assert_eq!(peer.tcp.in_flight(), 11_000);
    assert_eq!(peer.tcp.ssthresh(), SSTHRESH_UNKNOWN);
}

#[test]
fn three_duplicates_start_new_reno_and_partial_acks_go_on() {
    let mut peer = ten_out(config(Recovery::NewReno));
    let ack = peer.ack(0);
    // Limited transmit: one new segment for each of the first two.
    peer.give(&ack);
    assert_eq!(peer.data_out(), [(10 * M, 1000)]);
    peer.give(&ack);
    assert_eq!(peer.data_out(), [(11 * M, 1000)]);
    peer.give(&ack);
    assert_eq!(peer.data_out(), [(0, 1000)]);
    assert_eq!(peer.tcp.cwnd(), 5_000);
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
    // Inflation: 12 out, cwnd 5 + duplicates. The eighth makes room for one.
    for _ in 0..4 {
        peer.give(&ack);
        assert_eq!(peer.data_out(), []);
    }
    peer.give(&ack);
    assert_eq!(peer.data_out(), [(12 * M, 1000)]);
    // Partial ACK: the next hole at once.
    peer.give(&peer.ack(4 * M));
    let out = peer.data_out();
    assert_eq!(out[0], (4 * M, 1000));
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
    // Full ACK: of all 12 that were out.
    peer.give(&peer.ack(12 * M));
    assert_eq!(peer.tcp.cwnd(), 5_000);
    assert_eq!(peer.tcp.stats().retransmits, 2);
    assert!(peer.tcp.in_flight() <= 5_000);
    // Duplicates of the full ACK may come from what was sent twice: no new recovery (RFC 6582).
    peer.out();
    for _ in 0..4 {
        peer.give(&peer.ack(12 * M));
        peer.out();
    }
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
    peer.give(&peer.ack(13 * M));
    peer.out();
    for _ in 0..3 {
        peer.give(&peer.ack(13 * M));
        peer.out();
    }
    assert_eq!(peer.tcp.stats().fast_recoveries, 2);
}

#[test]
fn only_the_first_partial_ack_restarts_the_timer() {
    let mut peer = ten_out(config(Recovery::NewReno));
    for _ in 0..3 {
        peer.give(&peer.ack(0));
        peer.out();
    }
    peer.pass(MS);
    peer.give(&peer.ack(2 * M));
    peer.out();
    let deadline = peer.tcp.deadline_ns();
    assert_eq!(deadline, peer.now_ns + peer.tcp.rto_ns());
    peer.pass(MS);
    peer.give(&peer.ack(4 * M));
    peer.out();
    assert_eq!(peer.tcp.deadline_ns(), deadline);
}

#[test]
fn two_duplicates_do_nothing_without_limited_transmit() {
    for recovery in [Recovery::NewReno, Recovery::Sack] {
        let mut config = config(recovery);
        config.limited_transmit = false;
        let mut peer = ten_out(config);
        for right in [2, 3] {
            peer.give(&peer.sack(0, &[(M, right * M)]));
            assert_eq!(peer.data_out(), []);
        }
        assert_eq!(peer.tcp.stats().fast_recoveries, 0);
    }
}

#[test]
fn a_window_update_is_no_duplicate() {
    let mut peer = ten_out(config(Recovery::NewReno));
    for _ in 0..5 {
        peer.window += 128;
        peer.give(&peer.ack(0));
    }
    assert_eq!(peer.data_out(), []);
    assert_eq!(peer.tcp.stats().duplicate_acks, 0);
    assert_eq!(peer.tcp.snd_wnd(), (1 << 20) + 5 * 128);
    // Data is no duplicate ACK either.
    for index in 0..5 {
        peer.give(&peer.data(index * 10, 10, 0));
    }
    assert_eq!(peer.tcp.stats().duplicate_acks, 0);
}

#[test]
fn a_raised_window_beside_sack_is_not_lost() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.window += 1280;
    peer.give(&peer.sack(0, &[(M, 2 * M)]));
    assert_eq!(peer.tcp.snd_wnd(), (1 << 20) + 1280);
    assert_eq!(peer.tcp.stats().duplicate_acks, 1);
}

#[test]
fn sack_finds_what_is_lost_and_fills_the_pipe() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.give(&peer.sack(0, &[(M, 2 * M)]));
    assert_eq!(peer.data_out(), [(10 * M, 1000)]);
    peer.give(&peer.sack(0, &[(M, 3 * M)]));
    assert_eq!(peer.data_out(), [(11 * M, 1000)]);
    // 4 to 6 as well: 0 is lost (3 × SMSS above), 3 is not yet.
    peer.give(&peer.sack(0, &[(4 * M, 5 * M), (M, 3 * M)]));
    assert_eq!(peer.data_out(), [(0, 1000)]);
    assert_eq!(peer.tcp.cwnd(), 5_000);
    // pipe: 12 - 3 sacked - 1 lost + 1 again = 9.
    assert_eq!(peer.tcp.in_flight(), 9_000);
    peer.give(&peer.sack(0, &[(4 * M, 7 * M), (M, 3 * M)]));
    // 3 is lost now, pipe = 12 - 5 - 2 + 1 = 6 ≥ cwnd.
    assert_eq!(peer.tcp.in_flight(), 6_000);
    assert_eq!(peer.data_out(), []);
    peer.give(&peer.sack(0, &[(4 * M, 9 * M), (M, 3 * M)]));
    assert_eq!(peer.data_out(), [(3 * M, 1000)]);
    assert_eq!(peer.tcp.in_flight(), 5_000);
    // The first hole is filled, the second is on its way.
    peer.give(&peer.sack(3 * M, &[(4 * M, 9 * M)]));
    assert_eq!(peer.data_out(), [(12 * M, 1000)]);
    peer.give(&peer.ack(12 * M));
    assert_eq!(peer.tcp.stats().retransmits, 2);
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
}

#[test]
fn next_seg_rules_three_and_four() {
    let mut config = config(Recovery::Sack);
    config.params.init_segments = 6;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(6_000);
    assert_eq!(peer.data_out().len(), 6);
    peer.pass(100 * US);
    // 0 is lost; 4 is SACKed beyond 3, of which too little is known; 5 is last.
    peer.give(&peer.sack(0, &[(M, 3 * M)]));
    peer.give(&peer.sack(0, &[(4 * M, 5 * M), (M, 3 * M)]));
    // No new data: after the lost one, 3 (rule 3), then 5 (rule 4) as far as pipe allows.
    let first = peer.data_out();
    assert_eq!(first, [(0, 1000)]);
    peer.give(&peer.sack(3 * M, &[(4 * M, 5 * M)]));
    let more = peer.data_out();
    assert_eq!(more, [(3 * M, 1000)]);
    peer.give(&peer.ack(5 * M));
    assert_eq!(peer.data_out(), [(5 * M, 1000)], "the rescue");
    assert_eq!(peer.tcp.stats().timeouts, 0);
}

#[test]
fn proportional_rate_reduction_sends_in_proportion() {
    let mut config = config(Recovery::Sack);
    config.prr = true;
    config.params.init_segments = 20;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    assert_eq!(peer.data_out().len(), 20);
    peer.pass(100 * US);
    let mut sent = 0;
    for right in 2..=20 {
        peer.give(&peer.sack(0, &[(M, right * M)]));
        sent += peer.data_out().len();
    }
    // 20 out, target 10: half of the 19 delivered, one retransmission included, and what limited
    // transmit gave.
    assert_eq!(peer.tcp.cwnd(), 10_000);
    assert!((9..=12).contains(&sent), "{sent}");
    assert!(peer.tcp.in_flight() <= 11_000, "{}", peer.tcp.in_flight());
}

#[test]
fn an_immediate_cut_waits_for_half_a_window() {
    let mut config = config(Recovery::Sack);
    config.params.init_segments = 20;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    peer.data_out();
    peer.pass(100 * US);
    let sent: Vec<_> = (2..=20)
        .map(|right| {
            peer.give(&peer.sack(0, &[(M, right * M)]));
            peer.data_out().len()
        })
        .collect();
    // Two by limited transmit, the lost one, silence, then one for each.
    assert_eq!(sent[..3], [1, 1, 1]);
    assert!(sent[3..11].iter().all(|&count| count == 0), "{sent:?}");
    assert_eq!(sent[18], 1, "{sent:?}");
}

#[test]
fn rto_backs_off_and_sends_one_segment_until_the_first_ack() {
    let mut peer = ten_out(config(Recovery::Sack));
    let rto = peer.tcp.rto_ns();
    assert_eq!(rto, 200 * MS);
    // Sent 100 µs ago.
    assert_eq!(peer.until_deadline(), rto - 100 * US);
    assert_eq!(peer.data_out(), [(0, 1000)]);
    assert_eq!(peer.tcp.rto_ns(), 2 * rto);
    assert_eq!(peer.tcp.cwnd(), 2_000, "core's floor");
    assert_eq!(peer.tcp.ssthresh(), 5_000);
    assert_eq!(peer.until_deadline(), 2 * rto);
    assert_eq!(peer.data_out(), [(0, 1000)]);
    assert_eq!(peer.tcp.ssthresh(), 5_000, "once per loss");
    // The ACK of a retransmission is no RTT sample: backoff stays (Karn).
    peer.pass(100 * US);
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out(), [(M, 1000), (2 * M, 1000)]);
    assert_eq!(peer.tcp.rto_ns(), 4 * rto);
    assert_eq!(peer.tcp.stats().timeouts, 2);
    // The ACK that arrives shows that the rest was never lost.
    peer.give(&peer.ack(10 * M));
    let out = peer.data_out();
    assert_eq!(out[0], (10 * M, 1000), "new data");
    peer.pass(100 * US);
    peer.give(&peer.ack(11 * M));
    assert_eq!(peer.tcp.rto_ns(), rto);
}

#[test]
fn duplicates_of_what_a_timeout_repeated_start_no_recovery() {
    for recovery in [Recovery::NewReno, Recovery::Sack] {
        let mut peer = ten_out(config(recovery));
        peer.until_deadline();
        peer.out();
        peer.give(&peer.ack(M));
        peer.out();
        for right in 3..8 {
            peer.give(&peer.sack(M, &[(2 * M, right * M)]));
            peer.out();
        }
        assert_eq!(peer.tcp.stats().fast_recoveries, 0);
    }
}

#[test]
fn sacked_data_is_not_sent_again_after_a_timeout_unless_taken_back() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.give(&peer.sack(0, &[(M, 2 * M)]));
    peer.out();
    peer.until_deadline();
    assert_eq!(peer.data_out(), [(0, 1000)]);
    peer.give(&peer.sack(M, &[(M, 2 * M)]));
    assert_eq!(peer.data_out(), [(2 * M, 1000), (3 * M, 1000)]);

    // 1 was SACKed, and is the first now: the receiver has reneged.
    let mut peer = ten_out(config(Recovery::Sack));
    peer.give(&peer.sack(0, &[(M, 2 * M)]));
    peer.out();
    peer.give(&peer.ack(M));
    peer.out();
    peer.until_deadline();
    assert_eq!(peer.data_out(), [(M, 1000)]);
}

#[test]
fn too_many_timeouts_end_the_connection() {
    // By count, as in FreeBSD; or when the first three of Linux's would be over, 0.2 s each twice
    // the last, after what left again first: at 31 times 0.2 s, because at 15 only 14 have passed.
    for (timed, again, end_ms) in [(false, 3, 3_000), (true, 4, 6_200)] {
        let mut config = config(Recovery::Sack);
        (config.retries, config.timed_retries) = (3, timed);
        let mut peer = ten_out(config);
        let sent_ns = peer.now_ns - 100 * US;
        for _ in 0..again {
            peer.until_deadline();
            assert_eq!(peer.out().len(), 1);
        }
        assert_eq!(peer.tcp.error(), None);
        peer.until_deadline();
        assert!(peer.events.contains(Events::FAILED));
        assert_eq!(peer.tcp.error(), Some(Error::TimedOut));
        assert_eq!((peer.now_ns - sent_ns) / MS, end_ms);
        assert!(peer.out().is_empty());
        assert_eq!(peer.tcp.deadline_ns(), u64::MAX);
    }
}

/// Linux's `TCP_USER_TIMEOUT`: its clock begins with the first retransmission by timeout, and
/// bounds the timeouts after it; a window probe begins it as well.
#[test]
fn the_user_timeout_begins_with_the_first_retransmission() {
    let mut config = config(Recovery::Sack);
    config.user_timeout_ns = 100 * MS;
    let mut peer = ten_out(config);
    let sent_ns = peer.now_ns - 100 * US;
    peer.until_deadline();
    assert_eq!(peer.out().len(), 1);
    assert_eq!((peer.now_ns - sent_ns) / MS, 200);
    peer.until_deadline();
    assert_eq!((peer.now_ns - sent_ns) / MS, 300);
    assert_eq!(peer.tcp.error(), Some(Error::TimedOut));

    let mut peer = Peer::new(config, 100 * US);
    peer.window = 0;
    peer.give(&peer.ack(0));
    peer.tcp.write(5000);
    let probed_ms = peer.until_deadline() / MS;
    peer.one();
    assert_eq!(probed_ms, 200);
    assert_eq!(peer.until_deadline(), 100 * MS);
    assert_eq!(peer.tcp.error(), Some(Error::TimedOut));
}

#[test]
fn timestamps_time_even_retransmissions() {
    let mut config = config(Recovery::Sack);
    config.timestamps = true;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(988);
    assert_eq!(peer.data_out(), [(0, 988)]);
    peer.until_deadline();
    assert_eq!(peer.data_out(), [(0, 988)]);
    let srtt = peer.tcp.srtt_ns();
    peer.pass(80 * MS);
    peer.give(&peer.ack(988));
    assert_eq!(peer.tcp.srtt_ns(), srtt - srtt / 8 + 10 * MS);
    assert_eq!(peer.tcp.mss(), 988);
}

#[test]
fn nagle_holds_a_small_segment_while_data_is_out() {
    let mut config = config(Recovery::Sack);
    config.minshall = false;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(1500);
    assert_eq!(peer.data_out(), [(0, 1000)]);
    peer.tcp.write(400);
    assert_eq!(peer.data_out(), []);
    peer.tcp.write(200);
    assert_eq!(peer.data_out(), [(M, 1000)]);
    peer.give(&peer.ack(M));
    assert_eq!(peer.data_out(), []);
    peer.give(&peer.ack(2 * M));
    assert_eq!(peer.data_out(), [(2 * M, 100)]);

    config.nagle = false;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(1500);
    assert_eq!(peer.data_out(), [(0, 1000), (M, 500)]);
}

#[test]
fn minshall_holds_only_behind_another_small_segment() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    peer.tcp.write(1500);
    assert_eq!(peer.data_out(), [(0, 1000), (M, 500)]);
    peer.tcp.write(300);
    assert_eq!(peer.data_out(), []);
    peer.give(&peer.ack(1500));
    assert_eq!(peer.data_out(), [(1500, 300)]);
}

#[test]
fn a_fin_is_not_held_back() {
    let mut config = config(Recovery::Sack);
    config.minshall = false;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(1500);
    peer.data_out();
    peer.tcp.close();
    let last = peer.one();
    assert!(last.has(flags::FIN | flags::PSH));
    assert_eq!((position(last.seq), last.payload), (M, 500));
}

#[test]
fn a_small_window_is_waited_for_then_probed() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    peer.tcp.write(2000);
    peer.data_out();
    peer.pass(100 * US);
    peer.window = 640;
    peer.give(&peer.ack(2000));
    peer.tcp.write(5000);
    assert_eq!(peer.data_out(), [], "silly window");
    assert_eq!(peer.until_deadline(), 200 * MS);
    assert_eq!(peer.data_out(), [(2000, 640)]);
    assert_eq!(peer.tcp.stats().window_probes, 1);
}

#[test]
fn a_closed_window_is_probed_with_backoff_until_it_opens() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    peer.tcp.write(2000);
    peer.data_out();
    peer.pass(100 * US);
    peer.window = 0;
    peer.give(&peer.ack(2000));
    peer.tcp.write(5000);
    assert_eq!(peer.data_out(), []);
    for wait in [200 * MS, 400 * MS, 800 * MS] {
        assert_eq!(peer.until_deadline(), wait);
        let probe = peer.one();
        assert_eq!((position(probe.seq), probe.length()), (1999, 0));
        let answer = peer.ack(2000);
        peer.give(&answer);
    }
    peer.window = 3000;
    peer.give(&peer.ack(2000));
    // 23 units of 128 bytes; the rest of the window leaves behind whole segments.
    assert_eq!(peer.data_out(), [(2000, 1000), (3000, 1000), (4000, 944)]);
    assert_eq!(peer.tcp.stats().timeouts, 0);
    assert_eq!(peer.tcp.error(), None);
}

#[test]
fn a_closed_window_that_nobody_answers_for_ends_the_connection() {
    let mut config = config(Recovery::Sack);
    config.retries = 3;
    let mut peer = Peer::new(config, 100 * US);
    peer.window = 0;
    peer.give(&peer.ack(0));
    peer.tcp.write(5000);
    for _ in 0..5 {
        peer.until_deadline();
        peer.one();
        peer.give(&peer.ack(0));
    }
    for _ in 0..3 {
        peer.until_deadline();
        peer.one();
    }
    assert_eq!(peer.tcp.error(), None);
    peer.until_deadline();
    assert_eq!(peer.tcp.error(), Some(Error::TimedOut));
}

#[test]
fn a_shrunk_window_stops_new_data_only() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.window = 2048;
    peer.give(&peer.ack(M));
    assert_eq!(peer.tcp.snd_wnd(), 2048);
    assert_eq!(peer.data_out(), []);
    for upto in 2..=8 {
        peer.give(&peer.ack(upto * M));
        assert_eq!(peer.data_out(), [], "{upto}");
    }
    // 48 bytes would be silly, and nothing left at this instant that they could follow.
    peer.give(&peer.ack(9 * M));
    assert_eq!(peer.data_out(), [(10 * M, 1000), (11 * M, 48)][..]);
    assert_eq!(peer.tcp.stats().timeouts, 0);
}

#[test]
fn a_window_that_shrinks_below_what_is_lost_holds_it_back_but_for_the_first() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.window = 2048;
    peer.give(&peer.sack(M, &[(4 * M, 10 * M)]));
    assert_eq!(peer.data_out(), [(M, 1000), (2 * M, 1000), (3 * M, 48)]);
    peer.give(&peer.sack(2 * M, &[(4 * M, 10 * M)]));
    assert_eq!(peer.data_out(), [(3 * M + 48, 952)]);

    let mut peer = ten_out(config(Recovery::Sack));
    peer.window = 0;
    peer.give(&peer.sack(M, &[(4 * M, 10 * M)]));
    assert_eq!(peer.data_out(), [(M, 1000)], "serves as the probe");
}

#[test]
fn a_window_of_one_segment_and_some_works() {
    let mut peer = Peer::new(config(Recovery::Rack), 100 * US);
    peer.window = 1000 + 128;
    peer.give(&peer.ack(0));
    peer.tcp.write(20_000);
    let mut acked = 0;
    let mut rounds = 0;
    while acked < 20_000 {
        let out = peer.data_out();
        assert!(!out.is_empty(), "stuck at {acked}");
        let (from, len) = out[out.len() - 1];
        acked = from + u32::from(len);
        peer.pass(100 * US);
        peer.give(&peer.ack(acked));
        rounds += 1;
    }
    assert!(rounds <= 20, "{rounds}");
}

#[test]
fn idle_restart_begins_with_the_initial_window() {
    for restarts in [true, false] {
        let mut config = config(Recovery::Sack);
        config.restart_after_idle = restarts;
        let mut peer = ten_out(config);
        for upto in 1..=20 {
            peer.give(&peer.ack(upto * M));
            peer.out();
        }
        assert_eq!(peer.tcp.cwnd(), 30_000);
        peer.give(&peer.ack(50 * M));
        peer.out();
        peer.give(&peer.ack(100 * M));
        assert_eq!(peer.tcp.in_flight(), 0);
        let cwnd = peer.tcp.cwnd();
        peer.pass(201 * MS);
        peer.tcp.write(200_000);
        let expected = if restarts { 10 } else { (cwnd / M) as usize };
        assert_eq!(peer.data_out().len(), expected);
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    for round in 0..20 {
        peer.tcp.write(2000);
        assert_eq!(peer.data_out().len(), 2);
        peer.pass(100 * US);
        peer.give(&peer.ack((round + 1) * 2000));
    }
    assert_eq!(peer.tcp.cwnd(), 10_000);
}

#[test]
fn pacing_spreads_a_window() {
    let mut config = config(Recovery::Sack);
    config.pacing = true;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(30_000);
    assert_eq!(peer.data_out().len(), 10); // the first window is not paced
    peer.pass(100 * US);
    peer.give(&peer.ack(10_000));
    let mut times = Vec::new();
    for _ in 0..20 {
        assert_eq!(peer.data_out().len(), 1);
        times.push(peer.now_ns);
        if times.len() < 20 {
            assert!(!peer.tcp.has_output(peer.now_ns));
            peer.until_deadline();
        }
    }
    // Slow start: the window twice in an RTT, so one segment in 2.5 µs, and the one after a late
    // one in half of that.
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps[0], 1_250);
    assert!(gaps[1..].iter().all(|&gap| gap == 2_500), "{gaps:?}");
}

#[test]
fn a_burst_is_one_segment_of_many() {
    let mut config = config(Recovery::Sack);
    config.burst_segments = 4;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    assert_eq!(peer.data_out(), [(0, 4000), (4 * M, 4000), (8 * M, 2000)]);
    peer.pass(100 * US);
    // A hole inside a burst: only it is sent again.
    peer.give(&peer.sack(M, &[(2 * M, 5 * M)]));
    let out = peer.data_out();
    assert_eq!(out[0], (M, 1000));
    assert_eq!(peer.tcp.stats().retransmits, 1);
}

#[test]
fn classic_ecn_cuts_once_per_window_and_says_so() {
    let mut config = config(Recovery::Sack);
    config.ecn = Ecn::Offer;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    let out = peer.out();
    assert!(out.iter().all(|segment| segment.ecn == ecn::ECT0));
    peer.pass(100 * US);
    let echo = |peer: &Peer, upto: u32| {
        let mut ack = peer.ack(upto);
        ack.flags |= flags::ECE;
        ack
    };
    peer.give(&echo(&peer, M));
    assert_eq!(peer.tcp.cwnd(), 5_000);
    for upto in 2..6 {
        peer.give(&echo(&peer, upto * M));
        assert_eq!(peer.tcp.cwnd(), 5_000, "once per window");
        assert_eq!(peer.out(), []);
    }
    peer.give(&echo(&peer, 6 * M));
    let next = peer.one();
    assert!(next.has(flags::CWR), "on the first new data");
    peer.give(&peer.ack(7 * M));
    assert!(!peer.one().has(flags::CWR));
}

#[test]
fn retransmissions_and_pure_acks_are_not_ecn_capable() {
    let mut config = config(Recovery::Sack);
    config.ecn = Ecn::Offer;
    let mut peer = ten_out(config);
    peer.until_deadline();
    let again = peer.one();
    assert_eq!((again.payload, again.ecn), (1000, ecn::NOT_ECT));
    peer.give(&peer.data(0, 1000, 0));
    peer.give(&peer.data(1000, 1000, 0));
    let ack = peer.one();
    assert_eq!((ack.payload, ack.ecn), (0, ecn::NOT_ECT));
}

#[test]
fn a_dctcp_sender_takes_the_fraction() {
    let config = config(Recovery::Sack).with(Algorithm::Dctcp);
    let mut peer = Peer::new(config, 100 * US);
    assert_eq!(peer.tcp.alpha(), 1.0);
    peer.tcp.write(500_000);
    peer.out();
    let mut upto = 0;
    let mut first = true;
    for index in 0..200 {
        peer.pass(10 * US);
        upto += M;
        let mut ack = peer.ack(upto);
        if index % 4 == 0 {
            ack.flags |= flags::ECE;
        }
        peer.give(&ack);
        if first {
            assert_eq!(peer.tcp.cwnd(), 5_000, "α begins at 1");
            first = false;
        }
        let out = peer.out();
        assert!(out.iter().all(|segment| segment.ecn == ecn::ECT0));
    }
    let alpha = peer.tcp.alpha();
    assert!((0.2..0.5).contains(&alpha), "{alpha}");
}

#[test]
fn freebsd_9_counts_no_duplicates_after_a_mark() {
    for ignores in [true, false] {
        let mut config = config(Recovery::NewReno);
        config.ecn = Ecn::Offer;
        config.ignore_duplicates_after_mark = ignores;
        let mut peer = ten_out(config);
        let mut ack = peer.ack(M);
        ack.flags |= flags::ECE;
        peer.give(&ack);
        peer.out();
        for _ in 0..4 {
            peer.give(&peer.ack(M));
            peer.out();
        }
        let recoveries = peer.tcp.stats().fast_recoveries;
        assert_eq!(recoveries, u64::from(!ignores));
    }
}

#[test]
fn rack_waits_for_a_quarter_of_the_rtt_once_reordering_is_seen() {
    let mut peer = ten_out(config(Recovery::Rack));
    // 1 before 0: reordering, and 0 comes within the window.
    peer.give(&peer.sack(0, &[(M, 2 * M)]));
    peer.out();
    assert_eq!(peer.tcp.stats().fast_recoveries, 0);
    let due = peer.tcp.deadline_ns();
    assert_eq!(due, peer.now_ns + 25 * US);
    peer.pass(10 * US);
    peer.give(&peer.ack(2 * M));
    peer.out();
    // Now 2 is missing, 3 to 9 come: three SACKed segments are no proof any more.
    peer.pass(10 * US);
    peer.give(&peer.sack(2 * M, &[(3 * M, 9 * M)]));
    peer.out();
    assert_eq!(peer.tcp.stats().fast_recoveries, 0);
    let waited = peer.until_deadline();
    assert!((1..=30 * US).contains(&waited), "{waited}");
    assert_eq!(peer.data_out()[0], (2 * M, 1000));
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
}

#[test]
fn rack_needs_no_window_without_reordering() {
    let mut peer = ten_out(config(Recovery::Rack));
    peer.give(&peer.sack(0, &[(M, 4 * M)]));
    assert_eq!(peer.data_out()[0], (0, 1000));
    assert_eq!(peer.tcp.stats().fast_recoveries, 1);
}

#[test]
fn rack_finds_a_lost_retransmission() {
    let mut peer = ten_out(config(Recovery::Rack));
    peer.give(&peer.sack(0, &[(M, 4 * M)]));
    assert_eq!(peer.data_out()[0], (0, 1000));
    peer.pass(100 * US);
    // Those sent after the retransmission arrive, it doesn't.
    peer.give(&peer.sack(0, &[(M, 10 * M)]));
    let out = peer.data_out();
    assert!(!out.is_empty());
    peer.pass(150 * US);
    let (last, len) = out[out.len() - 1];
    peer.give(&peer.sack(0, &[(M, last + u32::from(len))]));
    assert_eq!(peer.data_out()[0], (0, 1000), "again");
    assert_eq!(peer.tcp.stats().timeouts, 0);
}

#[test]
fn a_tail_loss_is_probed_after_two_rtts() {
    let mut config = config(Recovery::Rack);
    config.rto.granularity_ns = 1;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(3000);
    peer.data_out();
    assert_eq!(peer.until_deadline(), 2 * peer.tcp.srtt_ns() + 2);
    assert_eq!(peer.data_out(), [(2 * M, 1000)], "the last one");
    assert_eq!(peer.tcp.stats().tail_loss_probes, 1);
    // One probe only; then the RTO.
    assert_eq!(peer.until_deadline(), peer.tcp.rto_ns() / 2);
    assert_eq!(peer.tcp.stats().timeouts, 1);
}

#[test]
fn a_probe_that_repaired_a_loss_costs_a_cut_and_a_needless_one_does_not() {
    for repaired in [true, false] {
        let mut config = config(Recovery::Rack);
        config.rto.granularity_ns = 1;
        let mut peer = Peer::new(config, 100 * US);
        peer.tcp.write(3000);
        peer.data_out();
        peer.until_deadline();
        peer.out();
        peer.pass(100 * US);
        peer.give(&peer.ack(3000));
        if !repaired {
            peer.give(&peer.sack(3000, &[(2000, 3000)]));
            assert_eq!(peer.tcp.stats().dsack_received, 1);
        }
        assert_eq!(peer.tcp.ssthresh(), SSTHRESH_UNKNOWN);
        peer.tcp.write(1000);
        peer.out();
        peer.pass(100 * US);
        peer.give(&peer.ack(4000));
        let cut = peer.tcp.ssthresh() != SSTHRESH_UNKNOWN;
        assert_eq!(cut, repaired);
    }
}

#[test]
fn a_probe_sends_new_data_when_there_is_some() {
    let mut config = config(Recovery::Rack);
    config.params.init_segments = 3;
    config.rto.granularity_ns = 1;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(10_000);
    assert_eq!(peer.data_out().len(), 3);
    peer.until_deadline();
    assert_eq!(peer.data_out(), [(3 * M, 1000)]);
    assert_eq!(peer.tcp.stats().tail_loss_probes, 1);
    assert_eq!(peer.tcp.stats().retransmits, 0);
}

#[test]
fn an_ack_of_what_was_never_sent_is_answered_and_ignored() {
    let mut peer = ten_out(config(Recovery::Sack));
    peer.give(&peer.ack(50_000));
    assert_eq!(peer.tcp.in_flight(), 10_000);
    let answer = peer.one();
    assert_eq!(answer.payload, 0);
}

#[test]
fn the_send_buffer_grows_with_the_window() {
    let mut config = config(Recovery::Sack);
    config.send_buffer.initial_bytes = 16_000;
    config.send_buffer.max_bytes = 50_000;
    let mut peer = Peer::new(config, 100 * US);
    assert_eq!(peer.tcp.write(100_000), 16_000);
    assert_eq!(peer.data_out().len(), 10);
    let events = peer.give(&peer.ack(10 * M));
    assert!(events.contains(Events::WRITABLE));
    assert_eq!(peer.tcp.cwnd(), 20_000);
    assert_eq!(peer.tcp.write(100_000), 40_000 - 6_000);
    for upto in 11..=40 {
        peer.out();
        peer.give(&peer.ack(upto * M));
    }
    peer.tcp.write(1 << 30);
    assert_eq!(peer.tcp.unacknowledged(), 50_000);
}

#[test]
fn a_window_that_was_full_at_some_time_in_the_round_grows() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    peer.tcp.write(10_000);
    assert_eq!(peer.data_out().len(), 10);
    // Nothing more to send: the last ACKs find little in flight.
    for upto in 1..=10 {
        peer.give(&peer.ack(upto * M));
    }
    assert_eq!(peer.tcp.cwnd(), 20_000);
    // The next round fills a quarter, which earns nothing.
    peer.tcp.write(5_000);
    assert_eq!(peer.data_out().len(), 5);
    for upto in 11..=15 {
        peer.give(&peer.ack(upto * M));
    }
    assert_eq!(peer.tcp.cwnd(), 20_000);
}

#[test]
fn slow_start_counts_a_byte_when_it_leaves_the_network() {
    let mut config = config(Recovery::Sack);
    config.params.init_segments = 20;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    peer.out();
    peer.give(&peer.sack(0, &[(5 * M, 7 * M)]));
    peer.out();
    peer.until_deadline();
    peer.out();
    for (upto, cwnd) in [(1, 2_000), (2, 3_000), (3, 4_000)] {
        peer.give(&peer.ack(upto * M));
        peer.out();
        assert_eq!(peer.tcp.cwnd(), cwnd);
    }
    // 3 and 4 have arrived; 5 and 6 had been SACKed before the timeout.
    peer.give(&peer.ack(7 * M));
    assert_eq!(peer.tcp.cwnd(), 6_000);
}

#[test]
fn without_sack_an_ack_after_a_timeout_counts_for_one_segment() {
    let mut peer = ten_out(config(Recovery::NewReno));
    peer.until_deadline();
    peer.out();
    peer.give(&peer.ack(M));
    peer.out();
    // The second segment has filled a hole.
    peer.give(&peer.ack(4 * M));
    assert_eq!(peer.tcp.cwnd(), 3_000);
}

#[test]
fn a_fin_alone_is_not_pushed() {
    let mut peer = Peer::new(config(Recovery::Sack), 100 * US);
    peer.tcp.write(500);
    assert!(peer.one().has(flags::PSH));
    peer.tcp.close();
    let fin = peer.one();
    assert!(fin.has(flags::FIN) && !fin.has(flags::PSH));
    peer.give(&peer.ack(500));
    peer.until_deadline();
    let again = peer.one();
    assert!(again.has(flags::FIN) && !again.has(flags::PSH));
}

#[test]
fn marks_reduce_in_proportion() {
    let mut config = config(Recovery::Sack);
    config.prr = true;
    config.ecn = Ecn::Offer;
    config.params.init_segments = 20;
    let mut peer = Peer::new(config, 100 * US);
    peer.tcp.write(100_000);
    assert_eq!(peer.data_out().len(), 20);
    peer.pass(100 * US);
    // One for two, the first at once; the threshold is reached with the 18th.
    let parts = [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1];
    for upto in 1..=20 {
        let mut ack = peer.ack(upto * M);
        ack.flags |= flags::ECE;
        peer.give(&ack);
        assert_eq!(peer.tcp.cwnd(), 10_000);
        let out = peer.out();
        assert_eq!(out.len() as u32, parts[upto as usize - 1], "for {upto}");
        assert!(upto > 1 || out[0].has(flags::CWR));
    }
    // CWR has arrived and there are no more marks: PRR ends.
    assert_eq!(peer.tcp.in_flight(), 10_000);
    peer.give(&peer.ack(21 * M));
    assert_eq!((peer.data_out().len(), peer.tcp.window()), (1, 10_000));
}
