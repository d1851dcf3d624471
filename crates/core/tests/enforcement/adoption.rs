//! Connections whose handshake was not seen, or of which only one direction is.

use sluicegate_core::{
    abi::{
        FLOW_LENIENT, FLOW_SCALE_BOUND, MODE_ONE_SIDED, MODE_TWO_SIDED, MODE_WATCH, REASON_NAMES,
        Remembered,
    },
    host::Action,
};

use crate::net::{Packet, Solo, opt, params, policy};

const MSS: u32 = 1460;

fn reason(solo: &Solo) -> &'static str {
    REASON_NAMES[usize::from(solo.flow().reason)]
}

/// The tenant sends `count` segments from offset `at`, all of which are acknowledged with `window`.
/// Returns the offset reached and the window last shown.
fn burst(solo: &mut Solo, at: u32, count: u32, window: u16) -> (u32, u16) {
    for i in 0..count {
        assert_eq!(solo.data(at + i * MSS, MSS as usize).action, Action::Pass);
    }
    solo.now_ns += 200_000;
    let mut shown = 0;
    for i in 1..=count {
        let ack = solo.peers(at + i * MSS, window);
        shown = solo.arrive(&ack).0.window;
    }
    (at + count * MSS, shown)
}

#[test]
fn it_is_watched_until_something_seen_is_acknowledged() {
    let mut solo = Solo::new(&policy());
    solo.data(50_000, MSS as usize);
    assert_eq!((solo.flow().mode, reason(&solo)), (MODE_WATCH, "midstream"));
    assert_eq!(solo.counter("flow_midstream"), 1);
    // The first packet only shows that there is a flow.
    solo.data(50_000 + MSS, MSS as usize);
    // Of data that left before.
    for at in [1_000, 50_000] {
        let ack = solo.peers(at, 500);
        let (after, outcome) = solo.arrive(&ack);
        assert_eq!((after, outcome.edits), (ack, 0));
    }
    // On data, whose options are not read.
    let data = Packet {
        payload: vec![1; 100],
        ..solo.peers(50_000 + 2 * MSS, 500)
    };
    assert_eq!(solo.arrive(&data).0, data);
    assert_eq!(solo.flow().mode, MODE_WATCH);
    solo.data(50_000 + 2 * MSS, MSS as usize);
    let ack = solo.peers(50_000 + 3 * MSS, 500);
    solo.arrive(&ack);
    assert_eq!(
        (solo.flow().mode, reason(&solo)),
        (MODE_ONE_SIDED, "midstream")
    );
    assert_eq!(solo.counter("flow_adopted"), 1);
}

/// A host that has forgotten a connection, and remembers its MSS and the shift of its windows.
fn with_known_scale(mss: u16, wscale: u8) -> Solo {
    let mut solo = Solo::new(&policy());
    solo.host.set_known(Remembered {
        mss,
        wscale,
        scale: 1,
        ..Remembered::default()
    });
    solo
}

#[test]
fn with_a_known_scale_it_is_held_to_its_window() {
    let mut solo = with_known_scale(1000, 7);
    let (at, shown) = burst(&mut solo, 0, 20, 60_000);
    let flow = *solo.flow();
    assert_eq!((flow.wscale, flow.mss), (7, 1000));
    assert_eq!(flow.marks & FLOW_SCALE_BOUND, 0);
    let bytes = u32::from(shown) << 7;
    assert!((flow.cc.cwnd..flow.cc.cwnd + 128).contains(&bytes));
    // It may use what it was shown before the programs came: the largest window.
    let largest = at + (0xffff << 7);
    assert_eq!(solo.data(largest, 1000).action, Action::Pass);
    let beyond = largest + (0xffff << 7) + 5_000;
    assert_eq!(solo.data(beyond, 1000).action, Action::Drop);
}

#[test]
fn what_is_in_flight_bounds_the_scale_from_below() {
    let mut solo = Solo::new(&policy());
    // The peer advertises 2000 << 5 bytes, all of which the tenant uses once it is adopted.
    let (mut at, _) = burst(&mut solo, 0, 2, 2_000);
    assert_eq!(solo.flow().wscale, 0);
    let scale_of = |solo: &Solo| solo.flow().wscale;
    let mut seen = vec![scale_of(&solo)];
    for segments in [5, 10, 20, 40, 43] {
        at = burst(&mut solo, at, segments, 2_000).0;
        seen.push(scale_of(&solo));
    }
    assert!(seen.is_sorted(), "{seen:?}");
    // 43 segments are 62 780 bytes: 2000 << 4 is too little, 2000 << 5 is not.
    assert_eq!(scale_of(&solo), 5);
    assert_ne!(solo.flow().marks & FLOW_SCALE_BOUND, 0);
    for again in 0..20 {
        at = burst(&mut solo, at, 43, 2_000).0;
        assert_eq!(scale_of(&solo), 5, "round {again}");
    }
}

#[test]
fn a_lower_bound_never_polices_and_never_shows_less_than_a_segment() {
    let mut solo = Solo::new(&policy());
    let (at, shown) = burst(&mut solo, 0, 3, 40_000);
    assert!(u32::from(shown) >= 2 * MSS);
    for far in [0, 100_000, 10_000_000] {
        let outcome = solo.data(at + far, MSS as usize);
        assert_eq!((outcome.action, outcome.unheld), (Action::Pass, true));
    }
    assert_eq!(solo.counter("policed"), 0);
}

#[test]
fn one_that_is_signed_or_multipath_is_left_alone_for_good() {
    let malformed = vec![8, 10, 0, 0];
    for (options, why) in [
        (opt::md5(), "signed"),
        (opt::mptcp(), "mptcp"),
        (malformed, "malformed-option"),
    ] {
        let mut solo = Solo::new(&policy());
        solo.data(0, MSS as usize);
        solo.data(MSS, MSS as usize);
        let ack = Packet {
            options: opt::all(&[&options]),
            ..solo.peers(2 * MSS, 500)
        };
        assert_eq!(solo.arrive(&ack).1.edits, 0);
        assert_eq!((solo.flow().mode, reason(&solo)), (MODE_WATCH, why));
        burst(&mut solo, 2 * MSS, 3, 500);
        assert_eq!(solo.flow().mode, MODE_WATCH);
    }
}

#[test]
fn a_handshake_of_which_half_was_seen_is_one_direction() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460), &opt::wscale(10)]);
    solo.send(&syn);
    solo.data(0, MSS as usize);
    assert_eq!(
        (solo.flow().mode, reason(&solo)),
        (MODE_WATCH, "one-direction")
    );
    for i in 0..200 {
        assert_eq!(solo.data(i * MSS, MSS as usize).action, Action::Pass);
    }
}

/// The first data behind a SYN/ACK alone begin the flow; the same data again are its own.
#[test]
fn a_syn_ack_alone_begins_one_flow() {
    let mut solo = Solo::new(&policy());
    let answer = solo.syn_ack(&[&opt::mss(1300), &opt::wscale(9)]);
    solo.arrive(&answer);
    for _ in 0..3 {
        solo.data(0, MSS as usize);
        assert_eq!((solo.flow().wscale, solo.flow().mss), (9, 1300));
    }
    assert_eq!(solo.counter("flow_midstream"), 1);
    assert_eq!(solo.flow().snd_nxt, solo.start.wrapping_add(MSS));
}

#[test]
fn acks_that_take_another_path_end_policing_and_begin_again() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, u16::MAX);
    let shown = u32::from(solo.ack(at, u16::MAX)) << 10;
    for i in 0..shown / MSS {
        assert_eq!(solo.data(at + i * MSS, MSS as usize).action, Action::Pass);
    }
    solo.data(at + shown / MSS * MSS, (shown % MSS) as usize);
    // Its ACKs come another way; it goes on. At first this looks like a cheater.
    let beyond = at + shown + 3 * MSS;
    assert_eq!(solo.data(beyond, MSS as usize).action, Action::Drop);
    solo.now_ns += 300_000_000;
    for i in 0..2 {
        assert_eq!(
            solo.data(beyond + i * MSS, MSS as usize).action,
            Action::Pass
        );
    }
    assert_eq!(
        (solo.flow().mode, reason(&solo)),
        (MODE_WATCH, "one-direction")
    );
    assert_eq!(solo.counter("flow_one_direction"), 1);
    // The other host may still take it for two-sided.
    let forged = Packet {
        options: opt::feedback(77, 0),
        ..solo.own(beyond, 0)
    };
    assert_eq!(opt::feedback_of(&solo.send(&forged).0.options), None);
    for i in 2..600 {
        let at = beyond + i * MSS;
        assert_eq!(solo.data(at, MSS as usize).action, Action::Pass);
    }
    // They are back.
    let ack = solo.peers(beyond + MSS, u16::MAX);
    solo.arrive(&ack);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
}

#[test]
fn who_blasts_at_a_peer_that_answers_does_not_pass_for_one() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, u16::MAX);
    let shown = u32::from(solo.ack(at, u16::MAX)) << 10;
    for i in 0..shown / MSS {
        solo.data(at + i * MSS, MSS as usize);
    }
    let reached = at + shown / MSS * MSS;
    solo.e0b += shown / MSS * MSS;
    solo.ack(reached, u16::MAX);
    // All that was within the window is acknowledged; what is far beyond never arrives.
    for i in 0..1000 {
        solo.now_ns += 5_000_000;
        let outcome = solo.data(reached + 5_000_000 + i * MSS, MSS as usize);
        assert_eq!(outcome.action, Action::Drop, "{i}");
    }
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

/// It leaves out its oldest segment, so that no ACK advances; but duplicate ACKs do come.
#[test]
fn who_leaves_out_a_segment_does_not_pass_for_one() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, u16::MAX);
    let shown = u32::from(solo.ack(at, u16::MAX)) << 10;
    for i in 1..shown / MSS {
        assert_eq!(solo.data(at + i * MSS, MSS as usize).action, Action::Pass);
    }
    for i in 2..5 {
        solo.duplicate(at, u16::MAX, &[(at + MSS, at + i * MSS)]);
    }
    for i in 0..1000 {
        solo.now_ns += 5_000_000;
        let outcome = solo.data(at + 5_000_000 + i * MSS, MSS as usize);
        assert_eq!(outcome.action, Action::Drop, "{i}");
    }
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

/// Data in flight when a flow is adopted need not have arrived: the window is earned by what is
/// acknowledged.
#[test]
fn what_was_sent_while_watched_is_no_window_until_it_is_acknowledged() {
    let mut solo = with_known_scale(1460, 10);
    for i in 0..4_000 {
        solo.data(i * MSS, MSS as usize);
    }
    solo.ack(2 * MSS, u16::MAX);
    let adopted = *solo.flow();
    assert_eq!(adopted.mode, MODE_ONE_SIDED);
    assert!(adopted.cc.cwnd <= 20 * MSS, "{}", adopted.cc.cwnd);
    // The first packet only showed that there is a flow.
    assert_eq!(
        adopted.cc.ssthresh,
        3_999 * MSS,
        "slow start to what is out"
    );
    // An honest one has its window back after some round trips, however large.
    let (mut at, mut rounds) = (2 * MSS, 0);
    while solo.flow().cc.cwnd < 1_000 * MSS {
        at = (at + solo.flow().cc.cwnd).min(4_000 * MSS);
        solo.now_ns += 1_000_000;
        solo.ack(at, u16::MAX);
        rounds += 1;
    }
    assert!(rounds <= 9, "{rounds}");
}

/// Holes of where a flow was are none where it goes on: they would make its flight wrap, and that
/// the window.
#[test]
fn holes_of_another_place_make_no_window() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, MSS, false, u16::MAX);
    let shown = u32::from(solo.ack(at, u16::MAX)) << 10;
    solo.data(at, shown as usize);
    let gap = 4 * shown;
    assert_eq!(solo.data(at + gap - 1460, 1460).action, Action::Drop);
    assert!(solo.flow().hole_bytes() > 0);
    solo.now_ns += 1_000_000_000;
    // Beyond the edge again, with nothing heard for so long: its ACKs seem to take another path.
    let far = at + 12 * shown;
    assert_eq!(solo.data(far, 1460).action, Action::Pass);
    assert_eq!(reason(&solo), "one-direction");
    assert_eq!(solo.flow().hole_bytes(), 0);
    let ack = |solo: &mut Solo, to: u32| {
        let ack = solo.peers(to, u16::MAX);
        solo.arrive(&ack);
    };
    ack(&mut solo, far);
    solo.data(far, 1460);
    ack(&mut solo, far + 1460);
    assert!(solo.flow().cc.cwnd <= 40 * MSS, "{}", solo.flow().cc.cwnd);
}

/// While it is only watched, a tenant shows itself a window far ahead, and goes back.
#[test]
fn an_edge_of_another_place_holds_nothing_here() {
    let mut solo = with_known_scale(1460, 9);
    let elsewhere = 24 << 20;
    for i in 0..4 {
        assert!(solo.data(elsewhere + i * MSS, MSS as usize).unheld);
    }
    let ack = solo.peers(elsewhere, u16::MAX);
    solo.arrive(&ack);
    for i in 0..4 {
        assert!(
            solo.data(i * MSS, MSS as usize).unheld,
            "watched, so charged"
        );
    }
    let ack = solo.peers(2 * MSS, u16::MAX);
    solo.arrive(&ack);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    let window = solo.flow().cc.cwnd;
    for i in 4..10_000 {
        let end = (i + 1) * MSS;
        let outcome = solo.data(i * MSS, MSS as usize);
        assert!(
            outcome.action == Action::Drop || outcome.unheld || end <= 2 * MSS + 2 * window,
            "{end} bytes, of which {window} are its window"
        );
    }
}

/// Before it was met, its peer may have shown it the largest window.
#[test]
fn what_it_may_have_been_shown_is_charged_until_its_own_edge_has_caught_up() {
    let mut solo = with_known_scale(1460, 0);
    solo.data(0, MSS as usize);
    solo.data(MSS, MSS as usize);
    solo.ack(2 * MSS, u16::MAX);
    let mut at = 2 * MSS;
    let is_lenient = |solo: &Solo| solo.flow().marks & FLOW_LENIENT != 0;
    solo.data(at, MSS as usize);
    assert!(is_lenient(&solo));
    assert!(solo.data(at + 30 * MSS, MSS as usize).unheld);
    at += 31 * MSS;
    for _ in 0..60 {
        solo.now_ns += 1_000_000;
        solo.ack(at, u16::MAX);
        solo.data(at, MSS as usize);
        at += MSS;
    }
    assert!(!is_lenient(&solo));
    assert!(!solo.data(at, MSS as usize).unheld);
}
