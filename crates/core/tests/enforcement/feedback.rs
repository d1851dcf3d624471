//! The messages of hosts to each other: counts on ACKs, FACKs, and when they stop.

use std::{cell::Cell, rc::Rc};

use sluicegate_core::{
    abi::{MODE_ONE_SIDED, MODE_TWO_SIDED, REASON_NAMES},
    host::{Action, Outcome, ecn, edit, tcp},
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, params, policy};

const WIDE: u16 = u16::MAX;

fn reason(pair: &Pair, side: usize) -> &'static str {
    REASON_NAMES[usize::from(pair.flow(side).reason)]
}

/// Marks every `nth` data packet of A, from the first on, and counts the bytes.
fn mark_every(pair: &mut Pair, nth: u64) -> Rc<Cell<u64>> {
    let marked = Rc::new(Cell::new(0));
    let (count, mut seen) = (Rc::clone(&marked), 0_u64);
    pair.set_fate(move |crossing| {
        let bytes = u64::from(crossing.packet.len());
        if crossing.from == B || bytes == 0 {
            return Fate::Deliver;
        }
        seen += 1;
        if seen % nth != 1 {
            return Fate::Deliver;
        }
        count.set(count.get() + bytes);
        Fate::Mark
    });
    marked
}

#[test]
fn counts_follow_the_marks_over_the_wrap_of_their_24_bits() {
    let mut pair = Pair::new(&policy());
    pair.tenant(A).segment = 6 * 1460;
    pair.connect();
    let marked = mark_every(&mut pair, 2);
    pair.transfer(A, 40_000_000);
    assert_eq!(pair.flow(A).bytes_marked, marked.get());
    assert!(
        marked.get() > 17_000_000,
        "the CE counter wrapped: {}",
        marked.get()
    );
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
    let alpha = pair.flow(A).cc.alpha();
    assert!(alpha > 0.1 && alpha < 0.9, "{alpha}");
    assert_eq!(pair.flow(B).bytes_received, 40_000_000);
}

#[test]
fn marks_make_the_window_smaller_and_only_marks() {
    let bulk = |nth| {
        let mut pair = Pair::new(&policy());
        pair.connect();
        mark_every(&mut pair, nth);
        pair.transfer(A, 3_000_000);
        pair.flow(A).cc.cwnd
    };
    assert!(bulk(2) < bulk(40) && bulk(40) < bulk(u64::MAX));
}

#[test]
fn feedback_is_of_the_standards_layout_and_start() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    mark_every(&mut pair, 4);
    let first = pair.log.len();
    pair.send(A, 14_480);
    pair.run();
    let (mut e0b, mut ceb) = (1, 0);
    let side = |side| {
        pair.log[first..]
            .iter()
            .filter(move |crossing| crossing.from == side)
    };
    let mut reported = 0;
    for (n, (sent, answered)) in side(A).zip(side(B)).enumerate() {
        match n % 4 {
            0 => ceb += sent.packet.len(),
            _ => e0b += sent.packet.len(),
        }
        let options = &answered.packet.options;
        // Marks at once, everything else by turns: 0, 2, 4, 6 and so on.
        assert_eq!(
            opt::feedback_of(options),
            (n % 2 == 0).then_some((e0b, ceb))
        );
        if n % 2 == 0 {
            reported += 1;
            assert_eq!(
                options[options.len() - 8],
                opt::FEEDBACK,
                "appended, word-aligned"
            );
        }
    }
    assert!(reported >= 3);
}

/// The options' feedback of the tenant's pure ACK number `at`.
fn acked(solo: &mut Solo, at: u32) -> Option<(u32, u32)> {
    let ack = Packet {
        ack: solo.peer_start.wrapping_add(at),
        ..solo.own(0, 0)
    };
    opt::feedback_of(&solo.send(&ack).0.options)
}

#[test]
fn pure_acks_report_by_turns_and_marks_at_once() {
    let mut solo = Solo::with(params());
    let (mut e0b, mut ceb, mut at) = (1, 0, 0);
    let mut turn = 0;
    for n in 0..40_u32 {
        let marked = n % 7 == 3;
        arrives(
            &mut solo,
            at,
            1460,
            if marked { ecn::CE } else { ecn::ECT0 },
        );
        *(if marked { &mut ceb } else { &mut e0b }) += 1460;
        at += 1460;
        turn += 1;
        let due = marked || turn == 2;
        assert_eq!(acked(&mut solo, at), due.then_some((e0b, ceb)), "{n}");
        if due {
            turn = 0;
        }
    }
}

#[test]
fn a_tenant_that_sends_data_reports_with_every_pure_ack() {
    let mut solo = Solo::with(params());
    let mut own = 0;
    for n in 1..20_u32 {
        arrives(&mut solo, (n - 1) * 1000, 1000, ecn::ECT0);
        solo.data(own, 500);
        own += 500;
        assert_eq!(acked(&mut solo, n * 1000), Some((1 + n * 1000, 0)));
    }
}

#[test]
fn lost_reports_at_the_smallest_window_end_nothing() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    // Every segment is marked, so that the window is at its floor; then none, and reports are by
    // turns, of which most are lost.
    let lost = std::cell::Cell::new(0_u32);
    pair.set_fate(move |crossing| match crossing.from {
        A if crossing.packet.len() > 0 && crossing.index < 600 => Fate::Mark,
        B if crossing.index >= 300 && opt::feedback_of(&crossing.packet.options).is_some() => {
            lost.set(lost.get() + 1);
            match lost.get() % 3 {
                0 => Fate::Deliver,
                _ => Fate::Drop,
            }
        }
        _ => Fate::Deliver,
    });
    pair.transfer(A, 3_000_000);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
}

#[test]
fn acks_before_any_data_carry_no_feedback() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    assert!(
        pair.log
            .iter()
            .all(|crossing| { opt::find(&crossing.packet.options, opt::FEEDBACK).is_none() })
    );
}

#[test]
fn a_lost_ack_loses_no_counts() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.set_fate(|crossing| match (crossing.from, crossing.index % 5) {
        (A, 0) if crossing.packet.len() > 0 => Fate::Mark,
        (B, 1..=3) => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.transfer(A, 3_000_000);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
    assert_eq!(pair.flow(A).taken_ceb, pair.flow(B).rcv_ceb);
}

#[test]
fn counters_that_go_backwards_are_ignored() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    solo.data(at, 1460);
    solo.data(at + 1460, 1460);
    let (e0b, ceb) = (solo.e0b, 500);
    for options in [opt::feedback(e0b + 1460, ceb), opt::feedback(e0b, 0)] {
        let packet = Packet {
            options,
            ..solo.peers(at + 1460, WIDE)
        };
        solo.arrive(&packet);
    }
    assert_eq!(solo.flow().bytes_marked, 500);
    assert_eq!(solo.flow().taken_ceb, 500);
    assert_eq!(solo.counter("feedback_stale"), 1);
}

/// Data of `len` bytes comes in from the peer.
fn arrives(solo: &mut Solo, at: u32, len: usize, ecn: u8) -> Outcome {
    let packet = Packet {
        seq: solo.peer_start.wrapping_add(at),
        ecn,
        payload: vec![1; len],
        ..solo.peers(0, WIDE)
    };
    solo.arrive(&packet).1
}

#[test]
fn an_ack_full_of_sack_blocks_is_followed_by_a_fack() {
    let mut solo = Solo::with(params());
    for i in 0..4 {
        arrives(&mut solo, 20_000 + i * 1460, 1460, ecn::ECT0);
    }
    let blocks = [(27_000, 28_000), (24_000, 25_000), (21_000, 22_000)];
    let ack = Packet {
        options: opt::all(&[&opt::timestamps(1, 1), &opt::sack(&blocks)]),
        ..solo.own(0, 0)
    };
    assert_eq!(ack.options.len(), 40);
    let (after, outcome) = solo.send(&ack);
    assert_eq!(after.options, ack.options);
    let (_, fack) = crate::net::wire::read(&outcome.fack.expect("a FACK"));
    assert_eq!(opt::feedback_of(&fack.options), Some((1 + 4 * 1460, 0)));
    assert_eq!(opt::peer_of(&fack.options), Some(1));
    assert_eq!(
        (fack.seq, fack.ack, fack.flags),
        (ack.seq, ack.ack, tcp::ACK)
    );
    assert_eq!((fack.ecn, fack.len()), (ecn::ECT0, 0));
    assert_eq!(solo.counter("no_room"), 1);
}

#[test]
fn two_sack_blocks_leave_room() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 20_000, 1460, ecn::ECT0);
    let ack = Packet {
        options: opt::all(&[
            &opt::timestamps(1, 1),
            &opt::sack(&[(27_000, 28_000), (20_000, 21_460)]),
        ]),
        ..solo.own(0, 0)
    };
    let (after, outcome) = solo.send(&ack);
    assert_eq!((after.options.len(), outcome.fack), (40, None));
    assert_eq!(opt::feedback_of(&after.options), Some((1461, 0)));
}

#[test]
fn data_both_ways_gives_at_most_one_fack_per_window() {
    let mut solo = Solo::with(params());
    let window = 10;
    let mut facks = Vec::new();
    for round in 0..20_u32 {
        for i in 0..window {
            let at = (round * window + i) * 1460;
            let segment = Packet {
                seq: solo.peer_start.wrapping_add(at),
                ecn: if i == 3 { ecn::CE } else { ecn::ECT0 },
                payload: vec![1; 1460],
                ..solo.peers(round * window * 1460, WIDE)
            };
            solo.arrive(&segment);
            let outcome = solo.data(at, 1460);
            assert_eq!(
                outcome.edits & edit::ADD_FEEDBACK,
                0,
                "data's options are not touched"
            );
            facks.extend(outcome.fack.map(|_| round));
        }
        solo.e0b += window * 1460;
        solo.ack((round + 1) * window * 1460, WIDE);
    }
    let mut once = facks.clone();
    once.dedup();
    assert_eq!(facks, once, "one per window");
    assert!(facks.len() >= 18, "and one in each: {facks:?}");
}

/// The peer's host learns from missing ECN codepoints that this one only observes now. Until then
/// its FACKs would be duplicate ACKs to the tenant.
#[test]
fn a_fack_stops_at_a_host_whose_rule_only_observes_now() {
    let mut solo = Solo::two_sided(&policy(), 1460, 10);
    solo.data(0, 1460);
    let mut observing = policy();
    observing.slots[0].params.mode = sluicegate_core::abi::RULE_OBSERVE;
    solo.host.set_policy(&observing);
    let fack = Packet {
        options: opt::all(&[&opt::feedback(1, 0), &opt::peer(1)]),
        ..solo.peers(0, WIDE)
    };
    assert_eq!(solo.arrive(&fack).1.action, Action::Consume);
}

#[test]
fn a_trickle_without_congestion_needs_no_fack() {
    let mut solo = Solo::with(params());
    for i in 0..10 {
        arrives(&mut solo, i * 100, 100, ecn::ECT0);
        assert_eq!(solo.data(i * 100, 100).fack, None);
        solo.ack((i + 1) * 100, WIDE);
    }
    arrives(&mut solo, 1000, 100, ecn::CE);
    assert_eq!(solo.data(1000, 100).fack, None, "nor one that met some");
    arrives(&mut solo, 1100, 400, ecn::CE);
    assert!(
        solo.data(1100, 400).fack.is_some(),
        "a segment's worth does"
    );
}

/// In a window of the tenant's own data, of which nothing is acknowledged meanwhile.
#[test]
fn a_fack_is_worth_two_segments_and_then_64_kilobytes() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 1460, ecn::ECT0);
    assert_eq!(solo.data(0, 10).fack, None, "one segment");
    arrives(&mut solo, 1460, 1460, ecn::ECT0);
    assert!(solo.data(10, 10).fack.is_some(), "two segments");
    let mut facks = Vec::new();
    for n in 1..=100 {
        arrives(&mut solo, (1 + n) * 1460, 1460, ecn::ECT0);
        if solo.data(10 + n * 10, 10).fack.is_some() {
            facks.push(n);
        }
    }
    assert_eq!(facks, [45, 90], "of 1460 bytes each");
}

#[test]
fn only_ect0_and_ce_are_counted() {
    let mut solo = Solo::with(params());
    for (i, codepoint) in [ecn::NOT_ECT, ecn::ECT1, ecn::ECT0, ecn::CE]
        .into_iter()
        .enumerate()
    {
        arrives(&mut solo, i as u32 * 1000, 1000, codepoint);
    }
    assert_eq!((solo.flow().rcv_e0b, solo.flow().rcv_ceb), (1001, 1000));
}

#[test]
fn facks_are_consumed() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 1_000_000);
    // Five holes in one window: three SACK blocks leave no room for feedback.
    let first = pair.log.len() as u64;
    pair.set_fate(move |crossing| match crossing.index - first {
        10 | 13 | 16 | 19 | 22 => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.transfer(A, 1_000_000);
    let sent = pair.counter(B, "fack_sent");
    assert!(sent > 0);
    assert_eq!(pair.counter(A, "fack_taken"), sent);
    let consumed = |outcome: &&Outcome| outcome.action == Action::Consume;
    assert_eq!(
        pair.sides[A].outcomes.iter().filter(consumed).count() as u64,
        sent
    );
    assert!(
        pair.sides[A]
            .tenant
            .seen
            .iter()
            .all(|packet| { opt::peer_of(&packet.options).is_none() })
    );
}

/// Its own host leaves the mark of a FACK on it. The other host takes the ACK for its partner's,
/// and consumes it.
#[test]
fn a_tenant_that_writes_a_fack_loses_its_own_ack() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    let acknowledged = pair.flow(A).snd_una;
    // B's next ACK would acknowledge this.
    pair.set_fate(|crossing| match crossing.from {
        B if opt::peer_of(&crossing.packet.options).is_none() => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.send(A, 1_000);
    pair.run();
    let mut forged = pair.tenant(B).ack();
    forged.options = opt::all(&[&opt::feedback(9, 9), &opt::peer(1)]);
    let seen = pair.sides[A].tenant.seen.len();
    pair.transmit(B, &forged);
    pair.run();
    let left = &pair.log.last().unwrap().packet;
    assert_eq!(opt::peer_of(&left.options), Some(1));
    assert_ne!(opt::feedback_of(&left.options), Some((9, 9)));
    assert_eq!(pair.counter(B, "fack_sent"), 0);
    assert_eq!(pair.counter(A, "fack_taken"), 1);
    assert_eq!(
        pair.sides[A].tenant.seen.len(),
        seen,
        "A's tenant gets nothing"
    );
    assert_eq!(pair.flow(A).snd_una, acknowledged, "nor is it acknowledged");
}

#[test]
fn a_fack_is_consumed_after_a_fallback_too() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    while solo.flow().mode == MODE_TWO_SIDED {
        solo.data(at, 1460);
        at += 1460;
        let ack = solo.peers(at, WIDE);
        solo.arrive(&ack);
        assert!(at < 1_000_000);
    }
    let late = Packet {
        options: opt::all(&[&opt::feedback(100, 0), &opt::peer(1)]),
        ..solo.peers(at, WIDE)
    };
    assert_eq!(solo.arrive(&late).1.action, Action::Consume);
}

#[test]
fn losses_do_not_end_the_partnership() {
    for every in [7, 30, 100] {
        let mut pair = Pair::new(&policy());
        pair.connect();
        pair.set_fate(move |crossing| match crossing.index % every {
            3 => Fate::Drop,
            _ => Fate::Deliver,
        });
        pair.transfer(A, 4_000_000);
        assert_eq!(
            pair.flow(A).mode,
            MODE_TWO_SIDED,
            "1 of {every}: {}",
            reason(&pair, A)
        );
    }
}

#[test]
fn counts_that_ran_ahead_before_idleness_are_no_silence_after_it() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..6 {
        at = solo.round(at, 1460, false, WIDE);
    }
    let count = solo.flow().cc.cwnd / 1460;
    for i in 0..count {
        solo.data(at + i * 1460, 1460);
    }
    // The peer's host has counted the window before its tenant acknowledges any of it, and then
    // the tenant does so on data, which has no room for feedback.
    solo.e0b += count * 1460;
    solo.ack(at, WIDE);
    at += count * 1460;
    arrives_with(&mut solo, at);
    // The bytes counted ahead cover it.
    assert_eq!(solo.flow().uncounted, 0);
    // Idleness makes the window small again.
    solo.now_ns += 5_000_000_000;
    solo.data(at, 1400);
    assert_eq!(solo.flow().cc.cwnd, 14_600);
    arrives_with(&mut solo, at + 1400);
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn data_that_acknowledges_may_be_a_fack_behind() {
    let mut solo = Solo::with(params());
    solo.round(0, 1460, false, WIDE);
    let (begin, step) = (solo.flow().snd_una, 2 * 1460);
    let mut behind = 0;
    while solo.flow().mode == MODE_TWO_SIDED && behind < 1_000_000 {
        solo.data(begin + behind, 1460);
        solo.data(begin + behind + 1460, 1460);
        behind += step;
        arrives_with(&mut solo, begin + behind);
    }
    // 64 KB received are worth a FACK, however small the window is of which they are many; then
    // none comes.
    assert!(behind > 65_535 + 2 * 14_600, "{behind}");
    assert!(behind < 2 * 65_535 + 4 * 14_600, "{behind}");
    assert_eq!(
        REASON_NAMES[usize::from(solo.flow().reason)],
        "feedback-stopped"
    );
}

/// Data of the peer that acknowledges up to `at`.
fn arrives_with(solo: &mut Solo, at: u32) {
    let packet = Packet {
        ecn: ecn::ECT0,
        payload: vec![1; 100],
        ..solo.peers(at, WIDE)
    };
    solo.arrive(&packet);
}

/// Bytes that A's peer acknowledged between `change` and A's fallback, in windows of that time.
fn windows_until_fallback(change: impl FnOnce(&mut Pair)) -> (f64, &'static str) {
    let mut pair = Pair::new(&policy());
    pair.connect();
    mark_every(&mut pair, 20);
    pair.transfer(A, 3_000_000);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
    change(&mut pair);
    let before = pair.flow(A).bytes_acked;
    let window = f64::from(pair.flow(A).cc.cwnd + 2 * 1460);
    pair.send(A, 3_000_000);
    while pair.flow(A).mode == MODE_TWO_SIDED {
        assert!(pair.step(), "A never falls back");
    }
    let acked = pair.flow(A).bytes_acked - before;
    pair.finish();
    assert_eq!(pair.tenant(B).received, 6_000_000, "the transfer goes on");
    let why = reason(&pair, A);
    assert_eq!(pair.counter(A, &why.replace('-', "_")), 1);
    (acked as f64 / window, why)
}

#[test]
fn feedback_that_stops_is_noticed_within_two_windows() {
    let (windows, why) = windows_until_fallback(|pair| pair.sides[B].enforcer = None);
    assert_eq!(why, "feedback-stopped");
    assert!(windows > 1.0 && windows < 3.0, "{windows}");
}

#[test]
fn bleached_ecn_is_noticed_within_two_windows() {
    let (windows, why) = windows_until_fallback(|pair| pair.set_fate(|_| Fate::Bleach));
    assert!(why.starts_with("feedback-"), "{why}");
    assert!(windows > 1.0 && windows < 3.0, "{windows}");
}

/// A partner that counts a part of what its tenant acknowledges.
#[test]
fn counts_of_less_than_a_quarter_are_a_mismatch() {
    for (part, mode) in [(3, MODE_TWO_SIDED), (5, MODE_ONE_SIDED)] {
        let mut solo = Solo::with(params());
        for i in 0..200 {
            solo.data(i * 1460, 1460);
            solo.e0b += 1460 / part;
            solo.ack((i + 1) * 1460, WIDE);
        }
        assert_eq!(solo.flow().mode, mode, "one of {part}");
        let fell_back = u64::from(mode == MODE_ONE_SIDED);
        assert_eq!(solo.counter("feedback_mismatch"), fell_back);
    }
}

#[test]
fn sixteen_segments_without_ecn_end_what_is_reported() {
    let mut solo = Solo::with(params());
    for n in 1..40 {
        arrives(&mut solo, (n - 1) * 100, 100, ecn::NOT_ECT);
        // Without marks every second ACK reports.
        let told = [(); 2].map(|()| acked(&mut solo, n * 100).is_some());
        assert_eq!(told.contains(&true), n < 16, "{n}");
    }
}

#[test]
fn after_a_fallback_the_other_algorithm_goes_on_from_the_same_window() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    mark_every(&mut pair, 20);
    pair.transfer(A, 3_000_000);
    pair.sides[B].enforcer = None;
    pair.send(A, 3_000_000);
    let mut before = pair.flow(A).cc.cwnd;
    while pair.flow(A).mode == MODE_TWO_SIDED {
        before = pair.flow(A).cc.cwnd;
        assert!(pair.step());
    }
    let flow = pair.flow(A);
    assert_eq!(flow.mode, MODE_ONE_SIDED);
    assert!(flow.cc.cwnd >= before && flow.cc.cwnd <= before + 2 * 1460);
    assert_eq!(flow.cc.ssthresh, flow.cc.cwnd);
}

#[test]
fn a_host_stops_reporting_to_one_that_no_longer_enforces() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 500_000);
    pair.sides[A].enforcer = None;
    let from = pair.log.len();
    pair.transfer(A, 500_000);
    let reports = pair.log[from..]
        .iter()
        .filter(|crossing| opt::find(&crossing.packet.options, opt::FEEDBACK).is_some());
    assert!(reports.count() <= 16);
    assert!(pair.sides[A].tenant.seen.len() > 300);
}

#[test]
fn a_tenants_own_feedback_is_a_forgery() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 1460, ecn::CE);
    let forged = Packet {
        options: opt::feedback(0x123456, 0),
        ..solo.own(0, 0)
    };
    let (after, _) = solo.send(&forged);
    let found: Vec<_> = opt::split(&after.options).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(opt::feedback_of(&after.options), Some((1, 1460)));
    // Twice, with no room for the truth: not believed by the host that it reaches.
    let twice = Packet {
        options: opt::all(&[&opt::feedback(9, 9), &opt::feedback(9, 9), &[opt::NOP; 24]]),
        ..solo.own(0, 0)
    };
    let (after, _) = solo.send(&twice);
    let mut far = Solo::with(params());
    far.data(0, 1460);
    let arrived = Packet {
        options: after.options,
        ..far.peers(1460, WIDE)
    };
    far.arrive(&arrived);
    assert_eq!((far.flow().taken_e0b, far.flow().bytes_marked), (1, 0));
}

#[test]
fn marks_on_what_was_counted_twice_do_not_exceed_what_is_acknowledged() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.set_fate(|crossing| match (crossing.from, crossing.index % 11) {
        (A, 3) => Fate::Mark,
        (A, 5) => Fate::Delay(400_000),
        (B, 4 | 5) => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.transfer(A, 2_000_000);
    assert!(pair.flow(A).marked_pending <= 2_000_000);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
}
