//! The one deliberate drop: data beyond every edge that the tenant was shown.

use std::cell::RefCell;

use proptest::prelude::*;
use sluicegate_core::{
    abi::{MODE_WATCH, Params, RULE_OBSERVE},
    cc::Algorithm,
    host::{Action, tcp},
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, params, policy, policy_of};

const WIDE: u16 = u16::MAX;
const MSS: u32 = 1460;

/// With a window of ten segments, of which 3/32 are less than one.
fn small() -> Params {
    Params {
        window_cap: 10 * MSS,
        ..params()
    }
}

/// A flow that has shown its tenant an edge, as an offset.
fn with_edge(params: Params) -> (Solo, u32) {
    let mut solo = Solo::with(params);
    let at = solo.round(0, MSS, false, WIDE);
    let shown = u32::from(solo.ack(at, WIDE)) << 10;
    (solo, at + shown)
}

#[test]
fn data_beyond_the_edge_and_a_segment_is_dropped() {
    let (mut solo, edge) = with_edge(small());
    assert_eq!(solo.data(edge - 100, 100).action, Action::Pass);
    // A window probe of any stack.
    assert_eq!(solo.data(edge, MSS as usize).action, Action::Pass);
    let outcome = solo.data(edge + MSS / 2, MSS as usize);
    assert_eq!((outcome.action, outcome.edits), (Action::Drop, 0));
    assert_eq!(solo.flow().policed, 1);
    assert_eq!(solo.counter("policed"), 1);
}

#[test]
fn an_ack_of_another_connection_moves_no_edge() {
    let (mut solo, edge) = with_edge(params());
    let una = edge - solo.flow().edge.wrapping_sub(solo.flow().snd_una);
    // Behind all that was sent, and so far that its edge looks ahead of the one that was shown.
    let stale = solo.peers(una.wrapping_add((1 << 31) + 100), WIDE);
    assert_eq!(solo.arrive(&stale).1.action, Action::Pass);
    assert_eq!(solo.data(una, MSS as usize).action, Action::Pass);
}

#[test]
fn what_was_policed_was_not_sent() {
    let (mut solo, edge) = with_edge(params());
    let before = *solo.flow();
    solo.data(edge + 10_000, 1000);
    // Data that it skipped within its window it may still send: they are not sent, and no hole.
    assert_eq!(solo.flow().snd_nxt, before.snd_nxt);
    assert_eq!(solo.flow().hole_bytes(), 0);
    // Once the window is full, all that lies ahead is one.
    let start = before.snd_nxt.wrapping_sub(solo.start);
    solo.data(start, (edge - start) as usize);
    solo.data(edge + 10_000, 1000);
    assert_eq!(solo.flow().hole_bytes(), 11_000 / 16 * 16);
    // Data more than eight windows ahead leave no hole.
    let nxt = solo.flow().snd_nxt;
    let window = solo.flow().edge.wrapping_sub(solo.flow().snd_una);
    let far = edge + 8 * window;
    assert!(
        far - edge < 1 << 19,
        "{window} bytes: not so many that the count of holes is full"
    );
    assert_eq!(solo.data(far, 1000).action, Action::Drop);
    assert_eq!(solo.flow().snd_nxt, nxt);
}

#[test]
fn every_edge_ever_shown_counts() {
    let (mut solo, edge) = with_edge(params());
    // The peer shrinks its window; a segment under way earlier may still come.
    let at = edge - (u32::from(solo.flow().wire_window) << 10);
    solo.data(at, MSS as usize);
    solo.e0b += MSS;
    assert_eq!(solo.ack(at + MSS, 1), 1);
    assert_eq!(solo.data(edge - MSS, MSS as usize).action, Action::Pass);
}

#[test]
fn an_old_ack_shows_no_more_than_has_been_shown() {
    // On two CPUs the tenant may get it before the ACK that made it old, and believe it.
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, WIDE);
    for i in 0..4 {
        solo.data(at + i * MSS, MSS as usize);
    }
    solo.e0b += 4 * MSS;
    let edge = at + 4 * MSS + (u32::from(solo.ack(at + 4 * MSS, WIDE)) << 10);
    let old = solo.peers(at + MSS, WIDE);
    let shown = u32::from(solo.arrive(&old).0.window) << 10;
    assert!(at + MSS + shown < edge + 1024, "{shown}");
    let last = at + MSS + shown - MSS;
    assert_eq!(solo.data(last, MSS as usize).action, Action::Pass);
    // Closed is closed, and never by us.
    let closed = solo.peers(at + MSS, 0);
    assert_eq!(solo.arrive(&closed).0.window, 0);
}

#[test]
fn what_an_ack_showed_that_could_not_be_judged_is_allowed() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, WIDE);
    let cwnd = solo.flow().cc.cwnd;
    // Data has passed unseen.
    let ack = solo.peers(at + cwnd, WIDE);
    let shown = u32::from(solo.arrive(&ack).0.window) << 10;
    assert!((cwnd..cwnd + 1024).contains(&shown));
    // Nor is it a way to a larger window.
    let again = solo.ack(at, WIDE);
    assert!(u32::from(again) << 10 <= solo.flow().cc.cwnd + 1024);
    let outcome = solo.data(at + cwnd + shown - MSS, MSS as usize);
    assert_eq!(outcome.action, Action::Pass);
}

#[test]
fn an_ack_of_far_more_than_a_window_opens_nothing() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, WIDE);
    let edge = solo.flow().edge;
    let una = solo.flow().snd_una;
    let window = edge.wrapping_sub(una).max(solo.flow().cc.cwnd);
    for (n, ahead) in [(1, 200_000_000), (2, window + 2 * MSS)] {
        let ack = solo.peers(at + ahead, WIDE);
        let (after, outcome) = solo.arrive(&ack);
        assert_eq!((after, outcome.edits), (ack, 0));
        assert_eq!((solo.flow().edge, solo.counter("ack_beyond")), (edge, n));
    }
    assert_eq!(solo.data(at + 1_000_000, MSS as usize).action, Action::Drop);
}

/// The bytes that the host lets pass of a tenant that sends all that it may, with each ACK that
/// acknowledges one packet.
#[test]
fn room_beyond_the_edge_does_not_add_up() {
    let (mut solo, edge) = with_edge(params());
    let window = edge - (solo.flow().snd_una.wrapping_sub(solo.start));
    // Small segments first, so that there are many packets, and many ACKs, of one window.
    let (mut sent, mut out) = (edge - window, std::collections::VecDeque::new());
    while solo.data(sent, 100).action == Action::Pass {
        sent += 100;
        out.push_back(sent);
    }
    let mut rounds = 0;
    for _ in 0..5_000 {
        let Some(end) = out.pop_front() else { break };
        solo.now_ns += 10_000;
        solo.e0b += 100;
        solo.ack(end, WIDE);
        while out.len() < 3_000 && solo.data(sent, MSS as usize).action == Action::Pass {
            sent += MSS;
            out.push_back(sent);
        }
        rounds += u32::from(end > edge);
        let allowed = solo.flow().cc.cwnd / 32 * 35 + 1024 + 2 * MSS;
        assert!(sent - end <= allowed, "{} of {allowed}", sent - end);
    }
    assert!(rounds > 100, "{rounds}");
}

/// How much of a window that is repeated again and again passes, after so many windows at once.
fn repeats_after(windows: u32) -> (u32, u32) {
    let (mut solo, edge) = with_edge(params());
    let una = solo.flow().snd_una.wrapping_sub(solo.start);
    let segments = (edge - una) / MSS;
    for i in 0..windows * segments {
        solo.data(una + i * MSS, MSS as usize);
    }
    let holes = solo.flow().hole_bytes();
    let mut passed = 0;
    for i in 0..40 * segments {
        let outcome = solo.data(una + i % segments * MSS, MSS as usize);
        passed += u32::from(outcome.action == Action::Pass);
    }
    (holes / (edge - una), passed)
}

/// Holes are no excuse: what was dropped far ahead does not count as in flight for what is
/// repeated.
#[test]
fn holes_do_not_enlarge_what_may_be_repeated() {
    let (honest, cheating) = (repeats_after(1), repeats_after(6));
    assert_eq!((honest.0, cheating.0), (0, 4));
    assert!(cheating.1 <= honest.1 * 9 / 8, "{cheating:?}, {honest:?}");
}

#[test]
fn what_fills_holes_is_no_loss_and_what_is_repeated_beyond_is() {
    let (mut solo, edge) = with_edge(small());
    let at = solo.flow().snd_una.wrapping_sub(solo.start);
    for i in 0..(edge - at) / MSS {
        solo.data(at + i * MSS, MSS as usize);
    }
    let top = solo.flow().snd_nxt.wrapping_sub(solo.start);
    solo.data(top, MSS as usize); // a segment beyond passes
    let hole = top + MSS;
    assert_eq!(solo.data(hole, MSS as usize).action, Action::Drop);
    solo.e0b += hole - at;
    solo.ack(at + 2 * MSS, WIDE);
    // Its stack goes on beyond the hole, and learns of it by what arrives there.
    assert_eq!(solo.data(hole + MSS, MSS as usize).action, Action::Pass);
    solo.ack(hole, WIDE);
    let cwnd = solo.flow().cc.cwnd;
    for i in 1..=3 {
        solo.duplicate(hole, WIDE, &[(hole + MSS, hole + MSS + i * 100)]);
    }
    assert_eq!((solo.flow().losses, solo.flow().cc.cwnd), (0, cwnd));
    assert_eq!(solo.data(hole, MSS as usize).action, Action::Pass);
    assert_eq!((solo.flow().losses, solo.flow().hole_bytes()), (0, 0));
    solo.data(hole, MSS as usize);
    assert_eq!(solo.flow().losses, 1, "that was lost in the network");
}

/// Nor are they data in flight, by which growth is earned.
#[test]
fn holes_earn_no_growth() {
    let grown = |holes: u32| {
        let (mut solo, edge) = with_edge(params());
        let una = solo.flow().snd_una.wrapping_sub(solo.start);
        let segments = (edge - una) / MSS;
        for i in 0..segments {
            solo.data(una + i * MSS, MSS as usize);
        }
        let end = una + segments * MSS;
        solo.data(end, (edge - end) as usize);
        for i in 0..holes {
            solo.data(edge + (i + 2) * MSS, MSS as usize);
        }
        for i in 1..=segments {
            solo.e0b += MSS;
            solo.ack(una + i * MSS, WIDE);
        }
        (solo.flow().hole_bytes(), solo.flow().cc.cwnd)
    };
    let (honest, cheating) = (grown(0), grown(10));
    assert!(cheating.0 > 8 * MSS, "{cheating:?}");
    // Holes are counted in 16 bytes: the rest may seem to be beyond the window.
    assert!(cheating.1 <= honest.1 + MSS, "{cheating:?}, {honest:?}");
}

/// A segment far ahead makes no hole of what was skipped within the window: both would pass.
#[test]
fn what_was_skipped_within_the_window_is_no_hole() {
    let (mut solo, edge) = with_edge(params());
    let una = solo.flow().snd_una.wrapping_sub(solo.start);
    let window = edge - una;
    assert_eq!(solo.data(una + 2 * window - MSS, 1460).action, Action::Drop);
    let mut passed = 0;
    for from in [una + 2 * window, una] {
        for i in 0..window / MSS {
            let outcome = solo.data(from + i * MSS, MSS as usize);
            passed += if outcome.action == Action::Pass {
                MSS
            } else {
                0
            };
        }
    }
    assert!(passed <= window / 32 * 35 + MSS, "{passed} of {window}");
}

/// Bytes of each of [`five_holes`]: a multiple of what holes are counted in.
const STEP: u32 = 1440;

/// A flow of whose data every other segment beyond its window is dropped, and where: four holes are
/// known, and the fifth is not.
fn five_holes() -> (Solo, Vec<u32>) {
    let (mut solo, edge) = with_edge(params());
    let una = solo.flow().snd_una.wrapping_sub(solo.start);
    for i in 0..(edge - una) / MSS {
        solo.data(una + i * MSS, MSS as usize);
    }
    let mut at = solo.flow().snd_nxt.wrapping_sub(solo.start);
    while solo.data(at, STEP as usize).action == Action::Pass {
        at += STEP;
    }
    let mut starts = vec![at];
    for number in 2..=5 {
        at += STEP;
        // The movement of the edge by an ACK makes room for one segment, and the one behind it is
        // dropped.
        while solo.data(at, STEP as usize).action == Action::Drop {
            let una = solo.flow().snd_una.wrapping_sub(solo.start);
            solo.e0b += STEP;
            solo.ack(una + STEP, WIDE);
        }
        loop {
            at += STEP;
            if solo.data(at, STEP as usize).action == Action::Drop {
                break;
            }
        }
        starts.push(at);
        let known = solo.flow().hole_bytes() / STEP;
        assert_eq!(known, number.min(4), "{number}: {:?}", solo.flow().hole);
    }
    (solo, starts)
}

/// Holes are known by their numbers: four of them, each filled from the left, passed in part or as
/// a whole.
#[test]
fn four_holes_are_known_and_a_fifth_counts_as_in_flight() {
    let (mut solo, starts) = five_holes();
    // Filled from its left, a hole is smaller; filled to its end, it is none.
    assert_eq!(solo.data(starts[1], 480).action, Action::Pass);
    assert_eq!(solo.flow().hole_bytes(), 4 * 1440 - 480);
    assert_eq!(solo.data(starts[1] + 480, 960).action, Action::Pass);
    assert_eq!(solo.flow().hole_bytes(), 3 * 1440);
    // Where a hole was is none: what is repeated across it was not dropped.
    let losses = solo.flow().losses;
    solo.data(starts[1] + 700, 1440);
    solo.data(starts[1] + 700, 1440);
    assert!(solo.flow().losses > losses);
    assert_eq!(solo.flow().hole_bytes(), 3 * 1440);
    // An ACK ends the holes that it passes, and cuts the one in which it ends.
    solo.ack(starts[2] + 480, WIDE);
    assert_eq!(solo.flow().hole_bytes(), 2 * 1440 - 480);
}

/// What was dropped and is not known as a hole was not sent, whatever else the tenant tries ahead
/// of it: its stack sends it again, and nothing is lost.
#[test]
fn what_was_dropped_unknown_is_new_when_it_comes_again() {
    let (mut solo, starts) = five_holes();
    let next = starts[4];
    assert_eq!(solo.flow().snd_nxt.wrapping_sub(solo.start), next);
    for i in 1..20 {
        assert_eq!(
            solo.data(next + i * STEP, STEP as usize).action,
            Action::Drop
        );
    }
    // ACKs open the window beyond it; the first hole is filled, so that there is room for another.
    solo.e0b += 10 * STEP;
    solo.ack(
        solo.flow().snd_una.wrapping_sub(solo.start) + 10 * STEP,
        WIDE,
    );
    assert_eq!(solo.data(starts[0], STEP as usize).action, Action::Pass);
    assert_eq!(
        solo.data(next + 40 * STEP, STEP as usize).action,
        Action::Drop
    );
    assert_eq!(solo.flow().snd_nxt.wrapping_sub(solo.start), next);
    for i in 0..5 {
        assert_eq!(
            solo.data(next + i * STEP, STEP as usize).action,
            Action::Pass
        );
    }
    assert_eq!((solo.flow().losses, solo.counter("loss")), (0, 0));
}

/// What a stack sends into a hole may be dropped, too, and it goes on behind that.
#[test]
fn a_hole_that_is_filled_in_its_middle_is_two() {
    let (mut solo, edge) = with_edge(params());
    let una = solo.flow().snd_una.wrapping_sub(solo.start);
    solo.data(una, (edge - una) as usize);
    for i in 0..10 {
        solo.data(edge + i * STEP, STEP as usize);
    }
    let known = solo.flow().hole_bytes();
    let hole = solo.flow().hole[0].start.wrapping_sub(solo.start);
    assert!(known >= 5 * STEP, "{known}");
    solo.e0b += 8 * STEP;
    solo.ack(una + 8 * STEP, WIDE);
    assert_eq!(solo.data(hole + STEP, STEP as usize).action, Action::Pass);
    assert_eq!(solo.flow().hole_bytes(), known - STEP);
    for i in [2, 0, 3] {
        assert_eq!(
            solo.data(hole + i * STEP, STEP as usize).action,
            Action::Pass
        );
    }
    assert_eq!(solo.flow().hole_bytes(), known - 4 * STEP);
    assert_eq!(solo.flow().losses, 0);
    solo.data(hole + STEP, STEP as usize);
    assert_eq!(solo.flow().losses, 1, "that was lost in the network");
}

#[test]
fn a_rule_may_leave_policing_off() {
    let (mut solo, edge) = with_edge(Params {
        flags: 0,
        ..params()
    });
    assert_eq!(solo.data(edge + 100_000, 1000).action, Action::Pass);
    assert_eq!(solo.counter("would_police"), 0);
}

#[test]
fn observers_drop_nothing() {
    let (mut solo, edge) = with_edge(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    assert_eq!(
        solo.data(edge.wrapping_add(100_000_000), 1000).action,
        Action::Pass
    );
}

#[test]
fn a_server_is_held_to_the_window_of_the_syn_before_its_first_ack() {
    let mut solo = Solo::new(&policy());
    let (tenant, peer) = (solo.start, solo.peer_start);
    // The tenant is the server here.
    let syn = Packet {
        ack: 0,
        flags: tcp::SYN,
        ..solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)])
    };
    solo.arrive(&syn);
    let answer = Packet {
        ack: peer,
        flags: tcp::SYN | tcp::ACK,
        ..solo.syn(&[&opt::mss(1460)])
    };
    solo.send(&answer);
    assert_eq!(solo.flow().snd_una, tenant);
    assert_eq!(
        solo.data(64_000, 1000).action,
        Action::Pass,
        "TCP Fast Open may"
    );
    // No SYN shows more than 65 535 bytes; a window probe goes one segment beyond.
    assert_eq!(solo.data(65_996, 1000).action, Action::Drop);
    assert_eq!(solo.data(1 << 30, 1000).action, Action::Drop);
    // Else the window would have to cover that flight.
    let ack = solo.peers(0, WIDE);
    assert!(u32::from(solo.arrive(&ack).0.window) <= 65_000);
}

#[test]
fn a_fin_far_ahead_is_policed_whatever_its_options() {
    let (mut solo, edge) = with_edge(params());
    let before = *solo.flow();
    let fin = Packet {
        flags: tcp::FIN | tcp::ACK,
        options: vec![2, 0, 0, 0],
        ..solo.own(edge + 5_000_000, 0)
    };
    assert_eq!(solo.send(&fin).1.action, Action::Drop);
    assert_eq!(
        solo.flow().snd_nxt,
        before.snd_nxt,
        "the window need not cover it"
    );
}

#[test]
fn mptcp_shares_a_send_window_and_is_never_policed() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460), &opt::mptcp()]);
    solo.send(&syn);
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::mptcp(), &opt::peer(0)]);
    solo.arrive(&answer);
    assert_eq!(solo.flow().mode, MODE_WATCH);
    let outcome = solo.data(403_000, 1000);
    assert_eq!((outcome.action, outcome.unheld), (Action::Pass, true));
}

#[test]
fn a_stack_that_ignores_the_window_is_held_to_it() {
    let capped = Params {
        window_cap: 50_000,
        ..params()
    };
    let mut pair = Pair::new(&policy_of(capped));
    pair.connect();
    pair.transfer(A, 200_000);
    // From now on the tenant believes in a window of a megabyte.
    let real = pair.tenant(A).edge;
    pair.tenant(A).edge = real.wrapping_add(1_000_000);
    let from = pair.log.len();
    pair.send(A, 1_000_000);
    assert!(pair.flow(A).policed > 500);
    let left = pair.sent(A).skip(1).last().unwrap().end();
    assert!(left.wrapping_sub(real) as i32 <= 50_000 / 32 * 3);
    assert!(pair.log.len() - from < 60);
}

/// A network and a tenant that do whatever these numbers say.
#[derive(Clone, Debug)]
struct Weather {
    fates: Vec<u8>,
    windows: Vec<u32>,
    segment: u32,
    mss: u16,
    wscale: Option<u8>,
    sack: bool,
    floor_mss: u8,
    cap: u32,
}

fn weather() -> impl Strategy<Value = Weather> {
    (
        prop::collection::vec(any::<u8>(), 64..512),
        prop::collection::vec(prop_oneof![Just(0), 1..4000_u32, 0..300_000_u32], 3..12),
        prop_oneof![Just(1448_u32), 100..1448_u32, 3000..30_000_u32],
        prop_oneof![Just(1460_u16), Just(536), Just(8960)],
        prop::option::of(0..=14_u8),
        any::<bool>(),
        1..=2_u8,
        prop_oneof![Just(8_u32 << 20), 3000..100_000_u32],
    )
        .prop_map(
            |(fates, windows, segment, mss, wscale, sack, floor_mss, cap)| Weather {
                fates,
                windows,
                segment,
                mss,
                wscale,
                sack,
                floor_mss,
                cap,
            },
        )
}

fn fate_of(weather: &Weather) -> impl FnMut(&crate::net::pair::Crossing) -> Fate + 'static {
    let (fates, at) = (weather.fates.clone(), RefCell::new(0));
    move |crossing| {
        // Handshakes are another test's.
        if crossing.index < 3 {
            return Fate::Deliver;
        }
        let mut at = at.borrow_mut();
        *at += 1;
        match fates[*at % fates.len()] {
            0..16 => Fate::Drop,
            16..48 => Fate::Mark,
            48..80 => Fate::Delay(u64::from(fates[*at % fates.len()]) * 3_000),
            _ => Fate::Deliver,
        }
    }
}

/// Transfers while the receiver opens and closes its window.
fn endure(weather: &Weather) -> Pair {
    let mut pair = Pair::new(&policy_of(Params {
        floor_mss: weather.floor_mss,
        window_cap: weather.cap,
        ..params()
    }));
    for side in [A, B] {
        let tenant = pair.tenant(side);
        tenant.offers.mss = weather.mss;
        tenant.offers.wscale = weather.wscale;
        tenant.offers.sack = weather.sack;
        tenant.segment = weather.segment;
    }
    pair.set_fate(fate_of(weather));
    pair.connect();
    pair.send(A, 400_000);
    for window in weather.windows.iter().chain([&200_000]) {
        pair.tenant(B).window = *window;
        let update = pair.tenant(B).ack();
        pair.transmit(B, &update);
        pair.run();
        pair.wait(300_000_000);
        let keepalive = pair.tenant(A).keepalive();
        if keepalive.seq != pair.tenant(A).iss {
            pair.transmit(A, &keepalive);
        }
        if pair.tenant(A).room() == 0 {
            let probe = pair.tenant(A).window_probe();
            pair.transmit(A, &probe);
        }
        pair.finish();
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_compliant_sender_is_never_policed(weather in weather()) {
        let pair = endure(&weather);
        for side in [A, B] {
            for none in ["policed", "repeated", "malformed"] {
                prop_assert_eq!(pair.counter(side, none), 0, "{}", none);
            }
        }
    }
}

#[test]
fn packets_of_the_proof_are_not_all_alike() {
    // The premise of the property above: its weather reaches loss, timeouts and closed windows.
    let storm = Weather {
        fates: (0..=255).collect(),
        windows: vec![0, 3000, 0, 100_000],
        segment: 1448,
        mss: 1460,
        wscale: Some(7),
        sack: true,
        floor_mss: 2,
        cap: 8 << 20,
    };
    let mut pair = endure(&storm);
    assert!(pair.flow(A).losses + pair.flow(A).timeouts > 0);
    assert!(
        pair.sides[A]
            .tenant
            .seen
            .iter()
            .any(|packet: &Packet| packet.window == 0)
    );
    assert!(pair.tenant(B).received > 100_000);
}

#[test]
fn repeating_a_window_once_in_an_rtt_is_lawful() {
    let (mut solo, edge) = with_edge(params());
    let at = edge - (u32::from(solo.flow().wire_window) << 10);
    let segments = (edge - at) / MSS;
    for i in 0..segments {
        solo.data(at + i * MSS, MSS as usize);
    }
    for round in 0..50 {
        solo.now_ns += u64::from(solo.flow().srtt_ns);
        for i in 0..segments {
            let outcome = solo.data(at + i * MSS, MSS as usize);
            assert_eq!(outcome.action, Action::Pass, "round {round}");
        }
    }
    assert_eq!(solo.counter("repeated"), 0);
}

#[test]
fn repeating_without_end_has_no_more_than_a_window_in_an_rtt() {
    let (mut solo, edge) = with_edge(params());
    let at = edge - (u32::from(solo.flow().wire_window) << 10);
    let window = edge - at;
    for i in 0..window / MSS {
        solo.data(at + i * MSS, MSS as usize);
    }
    let rtt = u64::from(solo.flow().srtt_ns);
    let start = solo.now_ns;
    let mut passed = 0;
    while solo.now_ns < start + 100 * rtt {
        passed += u64::from(solo.data(at, MSS as usize).action == Action::Pass) * u64::from(MSS);
    }
    let beside = u64::from(window) / 4 + 16 * u64::from(MSS);
    let rtos = 2 + 100 * rtt / 10_000_000;
    let limit = 101 * u64::from(window) + rtos * beside;
    assert!(passed <= limit, "{passed} bytes, not {limit}");
    assert!(solo.counter("repeated") > 1000);
}

/// All at once: a window, a quarter of it, and sixteen segments.
#[test]
fn so_much_may_be_repeated_at_once() {
    let (mut solo, edge) = with_edge(params());
    let at = edge - (u32::from(solo.flow().wire_window) << 10);
    for i in 0..(edge - at) / MSS {
        solo.data(at + i * MSS, MSS as usize);
    }
    let window = solo
        .flow()
        .cc
        .cwnd
        .max(solo.flow().snd_nxt - solo.flow().snd_una);
    let mut passed = 0;
    for _ in 0..200 {
        solo.now_ns -= 1_000;
        let outcome = solo.data(at, MSS as usize);
        passed += u32::from(outcome.action == Action::Pass);
    }
    assert_eq!(passed, (window + window / 4) / MSS + 16);
}

/// The policy takes most of a large window away, with no cut that remembers it; then all that is
/// out is lost. What is in flight shrinks while the last of it is repeated.
#[test]
fn what_a_change_of_policy_left_in_flight_may_be_repeated() {
    let fixed = |fixed_bytes| Params {
        algorithm: Algorithm::Fixed.number(),
        fixed_bytes,
        ..params()
    };
    let segments = 100;
    let mut solo = Solo::with(fixed(segments * MSS));
    let at = solo.round(0, MSS, false, WIDE);
    for i in 0..segments {
        solo.data(at + i * MSS, MSS as usize);
    }
    solo.host.set_policy(&policy_of(fixed(2 * MSS)));
    let rtt = u64::from(solo.flow().srtt_ns);
    for i in 0..segments {
        let outcome = solo.data(at + i * MSS, MSS as usize);
        assert_eq!(outcome.action, Action::Pass, "segment {i}");
        solo.now_ns += rtt / u64::from(2 * segments);
        solo.e0b += MSS;
        solo.ack(at + (i + 1) * MSS, WIDE);
    }
    assert_eq!(solo.counter("repeated"), 0);
    // Data once in flight are no leave for ever.
    let far = at + segments * MSS;
    let (rtt, start) = (u64::from(solo.flow().srtt_ns), solo.now_ns);
    let mut passed = 0;
    while solo.now_ns < start + 100 * rtt {
        passed += u64::from(solo.data(far - MSS, MSS as usize).action == Action::Pass);
    }
    assert!(passed <= 100 * 20 + 8 * 150, "{passed} segments");
}

#[test]
fn what_is_repeated_has_its_share_of_the_window() {
    let (mut solo, edge) = with_edge(params());
    let at = edge - (u32::from(solo.flow().wire_window) << 10);
    let cwnd = solo.flow().cc.cwnd;
    solo.data(at, MSS as usize);
    // A sixteenth of a window is what ordinary loss takes.
    let sixteenth = (cwnd / 16) as usize;
    assert_eq!(solo.data(0, sixteenth).action, Action::Pass);
    solo.e0b += 500;
    assert!(u32::from(solo.ack(at + 500, WIDE)) << 10 >= cwnd);
    // Half a window of what has been acknowledged long ago.
    for i in 0..cwnd / 2 / MSS {
        assert_eq!(solo.data(i * MSS, MSS as usize).action, Action::Pass);
    }
    solo.e0b += MSS - 500;
    let shown = u32::from(solo.ack(at + MSS, WIDE)) << 10;
    assert!(
        shown < cwnd * 2 / 3 && shown >= 2 * MSS,
        "{shown} of {cwnd}"
    );
    solo.now_ns += 10 * u64::from(solo.flow().srtt_ns);
    solo.data(at + MSS, MSS as usize);
    solo.e0b += MSS;
    assert!(u32::from(solo.ack(at + 2 * MSS, WIDE)) << 10 >= cwnd);
}

#[test]
fn observers_count_what_they_would_police() {
    let (mut solo, _) = with_edge(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let edge = solo.flow().edge.wrapping_sub(solo.start);
    let outcome = solo.data(edge + 10 * MSS, MSS as usize);
    assert_eq!(outcome.action, Action::Pass);
    assert_eq!(
        (solo.counter("would_police"), solo.counter("policed")),
        (1, 0)
    );
}
