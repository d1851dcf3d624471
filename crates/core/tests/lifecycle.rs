//! The life of a flow (`c/sluice/lifecycle.h`): each branch of what becomes of a packet, of a flow
//! after a reload, of a flow that is silent.

use sluicegate_core::{
    abi::{
        COUNTER_NAMES, FLOW_ADOPTED, FLOW_CLOSED, FLOW_HEARD, FLOW_SCALE_BOUND, FLOW_SENT, Flow,
        HalfOpen, MODE_ONE_SIDED, MODE_TWO_SIDED, MODE_WATCH, Params, REASON_NAMES, RULE_ENFORCE,
        RULE_NONE, RULE_OBSERVE, Remembered,
    },
    life::{self, Fate, Opener, Rematch, Silence},
    path::Path,
    segment::{Direction, Segment, Verdict, edit, option, tcp},
};

const NOW_NS: u64 = 5_000_000_000;
const ISN: u32 = 1_000;
const RULE: u8 = 3;

/// `enum sg_flow_flags`.
const FIN_SENT: u8 = 1 << 3;
const FIN_SEEN: u8 = 1 << 4;
/// `SG_FLOW_RCV_KNOWN`.
const RCV_KNOWN: u16 = 1 << 15;

fn params() -> Params {
    Params {
        mode: RULE_ENFORCE,
        floor_mss: 2,
        init_segments: 10,
        window_cap: 1 << 20,
        ..Params::default()
    }
}

fn segment(direction: Direction, tcp_flags: u8) -> Segment {
    Segment {
        direction: direction as u8,
        tcp_flags,
        header_len: 20,
        ..Segment::default()
    }
}

fn data(direction: Direction, seq: u32) -> Segment {
    Segment {
        seq,
        payload: 100,
        ..segment(direction, tcp::ACK)
    }
}

fn syn(direction: Direction) -> Segment {
    Segment {
        seq: ISN,
        ..segment(direction, tcp::SYN)
    }
}

fn synack(direction: Direction) -> Segment {
    Segment {
        seq: 9_000,
        ack: ISN + 1,
        options: option::MSS | option::WSCALE,
        mss: 1_400,
        wscale: 7,
        window: 0xffff,
        ..segment(direction, tcp::SYN | tcp::ACK)
    }
}

/// The half-open connection that a SYN of the tenant leaves.
fn half() -> HalfOpen {
    let mut half = HalfOpen::default();
    life::syn(
        &mut half,
        &syn(Direction::FromTenant),
        NOW_NS,
        (RULE, false, 2),
        &params(),
    );
    half
}

#[test]
fn a_syn_is_noted_where_a_rule_covers_it() {
    for rule in [RULE, 0] {
        assert_eq!(life::of_syn(Some(rule)), (Fate::Note, Verdict::default()));
    }
    let (fate, verdict) = life::of_syn(None);
    let counted = Verdict {
        count: verdict.count,
        ..Verdict::default()
    };
    assert_eq!((fate, verdict), (Fate::Pass, counted));
    assert_eq!(COUNTER_NAMES[usize::from(verdict.count)], "no_rule");
    let half = half();
    assert_eq!((half.rule, half.isn, half.time_ns), (RULE, ISN, NOW_NS));
}

#[test]
fn a_syn_ack_belongs_to_whom_it_answers() {
    use Direction::{FromTenant, ToTenant};
    assert_eq!(life::opener(&syn(FromTenant)), Opener::Tenant);
    assert_eq!(life::opener(&synack(ToTenant)), Opener::Tenant);
    assert_eq!(life::opener(&syn(ToTenant)), Opener::Remote);
    assert_eq!(life::opener(&synack(FromTenant)), Opener::Remote);
}

#[test]
fn a_syn_ack_that_answers_makes_a_flow_once() {
    let (mut half, answer) = (half(), synack(Direction::ToTenant));
    let fate =
        |half: &HalfOpen, has_flow| life::of_synack(Some(half), &answer, Some(RULE), has_flow);
    assert_eq!(fate(&half, false), Fate::Make);
    assert_eq!(fate(&half, true), Fate::Make, "of an earlier life");
    // Another policy is in force since the SYN.
    let (flow, _) = life::synack(
        &mut half,
        &answer,
        NOW_NS,
        (RULE + 1, life::partner(None, 0)),
        &params(),
    );
    assert_eq!((flow.rule, half.rule), (RULE + 1, RULE + 1));
    assert_eq!((flow.snd_una, flow.seen_ns), (ISN + 1, NOW_NS));
    assert_eq!(flow.mode, MODE_ONE_SIDED);
    assert_eq!(fate(&half, true), Fate::Repeat);
    // A flow that there was no room for has not begun.
    let mut verdict = Verdict {
        edits: edit::WINDOW | edit::STRIP_PEER,
        ..Verdict::default()
    };
    life::unkept(Some(&mut half), &answer, &mut verdict);
    assert_eq!(verdict.edits, 0);
    assert_eq!(fate(&half, false), Fate::Make);
    verdict.edits = edit::ADD_PEER | edit::STRIP_PEER;
    life::unkept(None, &syn(Direction::FromTenant), &mut verdict);
    assert_eq!(verdict.edits, edit::STRIP_PEER, "what was forged goes");
}

#[test]
fn a_syn_ack_alone_is_noted() {
    let answer = synack(Direction::ToTenant);
    let stray = Segment {
        ack: ISN + 2,
        ..answer
    };
    for has_flow in [false, true] {
        for (half, answer) in [
            (None, &answer),
            (Some(&HalfOpen::default()), &answer),
            (Some(&half()), &stray),
        ] {
            let fate = life::of_synack(half, answer, Some(RULE), has_flow);
            assert_eq!(fate, Fate::Note);
        }
        for half in [None, Some(&half())] {
            assert_eq!(life::of_synack(half, &answer, None, has_flow), Fate::Pass);
        }
    }
}

/// Its flow was forgotten: nothing differs from a connection of which nothing was noted.
#[test]
fn a_spent_half_open_connection_is_as_if_absent() {
    let (unanswered, answer) = (half(), synack(Direction::ToTenant));
    let mut spent = unanswered;
    let _ = life::synack(
        &mut spent,
        &answer,
        NOW_NS,
        (RULE, life::partner(None, 0)),
        &params(),
    );
    let cases = [(unanswered, false), (unanswered, true), (spent, true)];
    for (half, has_flow) in cases {
        assert!(!life::is_spent(&half, has_flow));
    }
    assert!(life::is_spent(&spent, false));
    let fate = |half: Option<&HalfOpen>| life::of_synack(half, &answer, Some(RULE), false);
    assert_eq!(fate(Some(&spent)), fate(None));
    // The same SYN again is repeated while the flow is there, and begins another one after it.
    let again = |has_flow| {
        let (mut half, first) = (spent, syn(Direction::FromTenant));
        life::syn(
            &mut half,
            &first,
            NOW_NS + 1,
            (RULE, has_flow, 2),
            &params(),
        );
        life::of_synack(Some(&half), &answer, Some(RULE), has_flow)
    };
    assert_eq!((again(true), again(false)), (Fate::Repeat, Fate::Make));
    // Data of a connection that is met in midstream.
    let first = data(Direction::FromTenant, ISN + 1);
    let known = |of_tenant| {
        let mut known = Remembered::default();
        life::know(&mut known, &first, None, of_tenant, None);
        known
    };
    assert_eq!(known(Some(&spent)), known(None));
}

#[test]
fn a_segment_uses_its_flow() {
    for direction in [Direction::FromTenant, Direction::ToTenant] {
        let flow = Flow::default();
        let fate = life::of_segment(&data(direction, 1), Some(&flow), false);
        assert_eq!(fate, Fate::Use);
    }
    let mut half = half();
    let (mut flow, _) = life::synack(
        &mut half,
        &synack(Direction::ToTenant),
        NOW_NS,
        (RULE, life::partner(None, 0)),
        &params(),
    );
    let first = data(Direction::FromTenant, ISN + 1);
    let mut path = Path::default();
    let flow_now = Some(&mut flow);
    let (fate, verdict) = life::segment(flow_now, false, &first, NOW_NS, &params(), &mut path);
    assert_eq!((fate, verdict.action), (Fate::Use, 0));
    assert_eq!(flow.snd_nxt, ISN + 101, "it was stepped");
    let (fate, verdict) = life::segment(None, false, &first, NOW_NS, &params(), &mut path);
    assert_eq!((fate, verdict), (Fate::Make, Verdict::default()));
}

#[test]
fn only_data_of_the_tenant_begin_a_flow() {
    let fate = |segment: &Segment| life::of_segment(segment, None, false);
    assert_eq!(fate(&data(Direction::FromTenant, 1)), Fate::Make);
    assert_eq!(fate(&data(Direction::ToTenant, 1)), Fate::Pass);
    assert_eq!(fate(&segment(Direction::FromTenant, tcp::ACK)), Fate::Pass);
    let reset = Segment {
        tcp_flags: tcp::RST | tcp::ACK,
        ..data(Direction::FromTenant, 1)
    };
    assert_eq!(fate(&reset), Fate::Pass);
}

/// A flow of another life, far from the numbers of `synack()`.
fn earlier_life() -> Flow {
    Flow {
        snd_una: 50_000_000,
        snd_nxt: 50_000_100,
        rcv_nxt: 900_000_000,
        rcv_high: 900_000_000,
        marks: RCV_KNOWN,
        ..Flow::default()
    }
}

#[test]
fn data_behind_a_peers_syn_ack_alone_begin_another_life() {
    let (flow, soon) = (earlier_life(), NOW_NS + 1);
    let first = data(Direction::FromTenant, ISN + 1);
    assert_eq!(life::of_segment(&first, Some(&flow), true), Fate::Recall);
    for familiar in [
        data(Direction::FromTenant, flow.snd_nxt),
        data(Direction::FromTenant, flow.snd_una - 1),
    ] {
        let familiar = Segment {
            ack: flow.rcv_nxt,
            ..familiar
        };
        assert_eq!(life::of_segment(&familiar, Some(&flow), true), Fate::Use);
    }
    let note = life::note(&synack(Direction::ToTenant), NOW_NS);
    let recalled = |segment: &Segment, now_ns| life::recalled(Some(&note), &flow, segment, now_ns);
    assert_eq!(recalled(&first, soon), Fate::Make);
    let elsewhere = data(Direction::FromTenant, ISN + 2);
    assert_eq!(recalled(&elsewhere, soon), Fate::Recall);
    // Soon it is of no interest any more.
    assert_eq!(recalled(&first, NOW_NS + 10_000_000_000), Fate::Use);
    assert_eq!(life::recalled(None, &flow, &first, soon), Fate::Use);
    // A segment that goes on where the flow is begins nothing.
    let here = Flow {
        snd_una: ISN + 1,
        snd_nxt: ISN + 1,
        ..flow
    };
    assert_eq!(
        life::recalled(Some(&note), &here, &first, soon),
        Fate::Recall
    );
}

#[test]
fn a_tenants_own_syn_ack_is_believed_late() {
    let flow = earlier_life();
    let answer = synack(Direction::FromTenant);
    let note = life::note(&answer, NOW_NS);
    let first = data(Direction::FromTenant, answer.seq + 1);
    let after = |pause_ns| life::recalled(Some(&note), &flow, &first, NOW_NS + pause_ns);
    assert_eq!(after(1), Fate::Recall);
    assert_eq!(after(1_000_000_000), Fate::Make);
}

/// Its receiver goes on with both of its numbers.
#[test]
fn a_syn_ack_that_both_ends_confirm_begins_another_life() {
    let flow = earlier_life();
    for (of, by) in [
        (Direction::ToTenant, Direction::FromTenant),
        (Direction::FromTenant, Direction::ToTenant),
    ] {
        let answer = synack(of);
        let note = life::note(&answer, NOW_NS);
        let ack = Segment {
            seq: answer.ack,
            ack: answer.seq + 1,
            ..segment(by, tcp::ACK)
        };
        let recalled = |segment: &Segment| life::recalled(Some(&note), &flow, segment, NOW_NS + 1);
        assert_eq!(life::of_segment(&ack, Some(&flow), true), Fate::Recall);
        assert_eq!(recalled(&ack), Fate::Make, "{of:?}");
        for other in [
            Segment {
                seq: ack.seq + 1,
                ..ack
            },
            Segment {
                ack: ack.ack + 1,
                ..ack
            },
            Segment {
                direction: of as u8,
                ..ack
            },
        ] {
            assert_eq!(recalled(&other), Fate::Recall, "{of:?}");
        }
        let mut known = Remembered::default();
        life::know(&mut known, &ack, Some(&note), None, None);
        assert_eq!(known.confirmed, 1);
        let made = life::midstream(&ack, NOW_NS, RULE, &params(), &known, Some(&flow));
        let (own, remote) = match by {
            Direction::FromTenant => (ack.seq, ack.ack),
            Direction::ToTenant => (ack.ack, ack.seq),
        };
        assert_eq!((made.snd_una, made.snd_nxt), (own, own), "{of:?}");
        assert_eq!((made.rcv_nxt, made.rcv_high), (remote, remote), "{of:?}");
        assert_eq!(made.marks & RCV_KNOWN, RCV_KNOWN);
    }
}

#[test]
fn what_is_met_knows_what_was_noted() {
    let first = data(Direction::FromTenant, ISN + 1);
    let earlier = Remembered {
        mss: 500,
        wscale: 2,
        scale: 1,
        ..Remembered::default()
    };
    let note = life::note(&synack(Direction::ToTenant), NOW_NS);
    let mut known = earlier;
    life::know(&mut known, &first, Some(&note), None, None);
    assert_eq!((known.mss, known.wscale, known.scale), (1_400, 7, 1));
    let flow = life::midstream(&first, NOW_NS, RULE, &params(), &known, None);
    assert_eq!((flow.mss, flow.wscale, flow.rule), (1_400, 7, RULE));
    assert_eq!((flow.mode, flow.marks), (MODE_WATCH, FLOW_ADOPTED));
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "midstream");
    // A note that the data do not follow says nothing.
    known = earlier;
    let elsewhere = data(Direction::FromTenant, ISN + 2);
    life::know(&mut known, &elsewhere, Some(&note), None, None);
    assert_eq!(known, earlier);
    // A SYN that nothing has answered, of either end.
    for [of_tenant, of_remote] in [[Some(half()), None], [None, Some(half())]] {
        let mut known = Remembered::default();
        life::know(
            &mut known,
            &first,
            None,
            of_tenant.as_ref(),
            of_remote.as_ref(),
        );
        let flow = life::midstream(&first, NOW_NS, RULE, &params(), &known, None);
        assert_eq!(REASON_NAMES[usize::from(flow.reason)], "one-direction");
        assert_eq!(flow.marks, FLOW_ADOPTED | FLOW_SCALE_BOUND);
    }
    // One that was answered.
    let mut answered = half();
    let _ = life::synack(
        &mut answered,
        &synack(Direction::ToTenant),
        NOW_NS,
        (RULE, life::partner(None, 0)),
        &params(),
    );
    let mut known = Remembered::default();
    life::know(&mut known, &first, None, Some(&answered), None);
    assert_eq!(known.one_way, 0);
}

#[test]
fn another_life_keeps_what_the_tenant_has_received() {
    let first = data(Direction::FromTenant, ISN + 1);
    let mut half = half();
    let (before, _) = life::synack(
        &mut half,
        &synack(Direction::ToTenant),
        NOW_NS,
        (RULE, life::partner(None, 0)),
        &params(),
    );
    let known = Remembered::default();
    let met = |before| life::midstream(&first, NOW_NS, RULE, &params(), &known, before);
    let again = met(Some(&before));
    assert_eq!(again.rcv_nxt, before.rcv_nxt);
    assert_ne!(again.marks & RCV_KNOWN, 0);
    assert_eq!(met(None).marks & RCV_KNOWN, 0);
}

#[test]
fn only_claims_of_hosts_are_refused() {
    let claims = |mut segment: Segment, options| {
        segment.options = options;
        assert_eq!(
            life::has_claims(&segment),
            segment.direction == 0 && options != 0
        );
        let mut verdict = Verdict::default();
        life::refuse(&segment, false, &params(), &mut verdict);
        assert_eq!(verdict.edits, 0, "its peer is not trusted");
        life::refuse(&segment, true, &params(), &mut verdict);
        verdict.edits
    };
    let ack = |direction| segment(direction, tcp::ACK);
    assert_eq!(
        claims(ack(Direction::FromTenant), option::FEEDBACK),
        edit::STRIP_FEEDBACK
    );
    assert_eq!(
        claims(synack(Direction::FromTenant), option::PEER),
        edit::STRIP_PEER
    );
    assert_eq!(claims(ack(Direction::FromTenant), 0), 0);
    assert_eq!(claims(ack(Direction::ToTenant), option::FEEDBACK), 0);
    let observed = Params {
        mode: RULE_OBSERVE,
        ..params()
    };
    let mut verdict = Verdict::default();
    let forged = Segment {
        options: option::FEEDBACK,
        ..ack(Direction::FromTenant)
    };
    life::refuse(&forged, true, &observed, &mut verdict);
    assert_eq!(verdict.edits, 0, "observers edit nothing");
}

#[test]
fn a_reload_decides_anew() {
    let mut flow = Flow {
        rule: RULE,
        ..Flow::default()
    };
    assert_eq!(life::rematch(&mut flow, Some(RULE)), Rematch::Same);
    assert_eq!(life::rematch(&mut flow, Some(7)), Rematch::Other);
    assert_eq!(flow.rule, 7);
    assert_eq!(life::rematch(&mut flow, None), Rematch::None);
    assert_eq!(flow.rule, RULE_NONE);
}

#[test]
fn silence_is_judged_by_what_is_known() {
    let open = Flow {
        mode: MODE_TWO_SIDED,
        ..Flow::default()
    };
    let over = Flow {
        flags: FLOW_CLOSED | FIN_SENT | FIN_SEEN,
        ..open
    };
    let cases = [
        (open, Silence::Idle),
        (over, Silence::Closed),
        // The tenant's FIN is not acknowledged.
        (Flow { snd_nxt: 1, ..over }, Silence::ByRoom),
        // An RST, which need not have been believed.
        (
            Flow {
                flags: FLOW_CLOSED,
                ..open
            },
            Silence::ByRoom,
        ),
        // Only one end has spoken.
        (
            Flow {
                marks: FLOW_ADOPTED | FLOW_SENT,
                ..Flow::default()
            },
            Silence::Closed,
        ),
        // Both have, but nothing was acknowledged.
        (
            Flow {
                marks: FLOW_ADOPTED | FLOW_SENT | FLOW_HEARD,
                ..Flow::default()
            },
            Silence::ByRoom,
        ),
        (
            Flow {
                marks: FLOW_ADOPTED | FLOW_SENT | FLOW_HEARD,
                bytes_acked: 1,
                ..Flow::default()
            },
            Silence::Idle,
        ),
        // Watched from its handshake on.
        (Flow::default(), Silence::Idle),
    ];
    for (flow, silence) in cases {
        assert_eq!(life::silence(&flow), silence, "{flow:?}");
    }
}

#[test]
fn the_time_of_silence_follows_from_its_kind_and_the_room() {
    let time = |silence, is_short| life::patience_ns(silence, is_short, 100, 10);
    for (silence, [roomy, short]) in [
        (Silence::Idle, [100, 100]),
        (Silence::Closed, [10, 10]),
        (Silence::ByRoom, [100, 10]),
    ] {
        let times = [time(silence, false), time(silence, true)];
        assert_eq!(times, [roomy, short], "{silence:?}");
    }
}

#[test]
fn a_quota_leaves_room_for_so_many_flows() {
    assert!(life::has_room(0, 1) && life::has_room(9, 10));
    assert!(
        !life::has_room(10, 10) && !life::has_room(11, 10),
        "lowered"
    );
    assert!(life::has_room(u32::MAX, 0), "no quota");
}

#[test]
fn room_is_short_beyond_half_of_it() {
    assert!(!life::is_short(5, 10) && life::is_short(6, 10));
    assert!(!life::is_short(u32::MAX, 0), "no quota");
}

#[test]
fn a_silent_flow_is_remembered_for_what_cannot_be_found_out() {
    let open = Flow {
        mode: MODE_ONE_SIDED,
        mss: 1_300,
        wscale: 5,
        ..Flow::default()
    };
    let what = Remembered {
        mss: 1_300,
        wscale: 5,
        scale: 1,
        ..Remembered::default()
    };
    let watched = Flow {
        mode: MODE_WATCH,
        ..open
    };
    let adopted = Flow {
        marks: FLOW_ADOPTED,
        ..watched
    };
    let guessed = Flow {
        marks: FLOW_SCALE_BOUND,
        ..open
    };
    let over = Flow {
        flags: FIN_SENT | FIN_SEEN,
        ..open
    };
    assert_eq!(life::remember(&open), Some(what));
    assert_eq!(life::remember(&adopted), Some(what));
    for flow in [watched, guessed, over] {
        assert_eq!(life::remember(&flow), None, "{flow:?}");
    }
}

#[test]
fn unanswered_syns_have_a_share_and_fade() {
    let mut until = 0;
    let taken = (0..2_000)
        .filter(|_| life::unanswered_add(&mut until, NOW_NS))
        .count();
    assert_eq!(taken, 1_024);
    assert_eq!(life::unanswered(until, NOW_NS), 1_024);
    assert!(!life::unanswered_add(&mut until, NOW_NS));
    let tick_ns = 1 << 20;
    assert_eq!(life::unanswered(until, NOW_NS + 24 * tick_ns), 1_000);
    assert!(life::unanswered_add(&mut until, NOW_NS + 24 * tick_ns));
    assert_eq!(life::unanswered(until, NOW_NS + 5_000 * tick_ns), 0);
}

#[test]
fn an_answer_gives_back_what_its_syn_took() {
    let mut until = 0;
    let count = |until| life::unanswered(until, NOW_NS);
    for _ in 0..2 {
        assert!(life::unanswered_add(&mut until, NOW_NS));
    }
    life::unanswered_sub(&mut until, NOW_NS);
    assert_eq!(count(until), 1);
    life::unanswered_sub(&mut until, NOW_NS);
    let none = until;
    life::unanswered_sub(&mut until, NOW_NS);
    assert_eq!((count(until), until), (0, none), "no more than was taken");
    // Of those that have faded nothing is left to give back.
    assert!(life::unanswered_add(&mut until, NOW_NS));
    let faded = until;
    life::unanswered_sub(&mut until, NOW_NS + (1 << 30));
    assert_eq!(until, faded);
    // The clock's ticks wrap.
    let mut until = u32::MAX;
    let wrap_ns = u64::from(u32::MAX) << 20;
    assert!(life::unanswered_add(&mut until, wrap_ns));
    assert_eq!((until, life::unanswered(until, wrap_ns)), (0, 1));
    life::unanswered_sub(&mut until, wrap_ns);
    assert_eq!((until, life::unanswered(until, wrap_ns)), (u32::MAX, 0));
}
