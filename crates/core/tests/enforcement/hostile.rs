//! Ways around enforcement that were once open, and the rule that closes each.
//!
//! The window: whatever the options of an ACK, and whatever passed unseen, what a tenant has out is
//! within the operator's window, or is charged. The receiving half: what is not of the flow's
//! sequence space, or not on its way to the tenant yet, counts for nothing. Hosts' words: no option
//! of theirs leaves a tenant's host unless the host wrote it.

use sluicegate_core::{
    abi::{
        FLOW_ACKED_AHEAD, FLOW_LENIENT, FLOW_ODD_OPTIONS, FLOW_STRANGERS, Flow, MODE_ONE_SIDED,
        MODE_TWO_SIDED, Params, REASON_NAMES, Remembered, WINDOW_MAX,
    },
    cc::Algorithm,
    host::{Action, Direction, Host, ecn, edit, tcp},
};

use crate::{
    enforcement::restraint::malformed,
    net::{A, B, Packet, Route, Solo, opt, params, policy, policy_of, wire},
};

pub(crate) const MSS: u32 = 1460;
pub(crate) const WIDE: u16 = u16::MAX;

/// Options that an ACK of an unsigned connection has no reason to carry.
fn odd_options() -> Vec<Vec<u8>> {
    let mut odd = malformed();
    odd.extend([opt::all(&[&opt::md5()]), opt::all(&[&opt::ao()])]);
    odd
}

fn shown_bytes(solo: &Solo, packet: &Packet) -> u32 {
    u32::from(packet.window) << solo.flow().wscale
}

#[test]
fn no_option_of_an_ack_opens_its_window() {
    for enforcing in [true, false] {
        for options in odd_options() {
            let mut solo = match enforcing {
                true => Solo::two_sided(&policy(), 1460, 10),
                false => Solo::one_sided(&policy(), 1460, 10),
            };
            let mut at = 0;
            for _ in 0..20 {
                solo.data(at, 1460);
                at += MSS;
                let ack = Packet {
                    options: options.clone(),
                    ..solo.peers(at, WIDE)
                };
                let (after, _) = solo.arrive(&ack);
                let allowed = solo.flow().cc.cwnd + (1 << 10);
                assert!(shown_bytes(&solo, &after) <= allowed, "{options:?}");
                assert_eq!(after.options, options, "they are the peer's");
            }
            assert_eq!(solo.counter("odd_options"), 20);
            assert_ne!(solo.flow().marks & FLOW_ODD_OPTIONS, 0);
            let beyond = at + 2 * solo.flow().cc.cwnd + 64_000;
            assert_eq!(solo.data(beyond, 1460).action, Action::Drop);
        }
    }
}

#[test]
fn a_receiver_with_odd_options_reports_all_the_same() {
    for options in odd_options() {
        let mut solo = Solo::with(params());
        let (mut reports, mut count) = (0, 0);
        for i in 0..20 {
            let data = Packet {
                seq: solo.peer_start.wrapping_add(i * MSS),
                ecn: ecn::CE,
                payload: vec![1; MSS as usize],
                ..solo.peers(0, WIDE)
            };
            solo.arrive(&data);
            count += MSS;
            let ack = Packet {
                options: options.clone(),
                ack: solo.peer_start.wrapping_add((i + 1) * MSS),
                ..solo.own(0, 0)
            };
            let (after, outcome) = solo.send(&ack);
            let fack = outcome.fack.map(|fack| wire::read(&fack).1);
            for packet in [Some(after), fack].into_iter().flatten() {
                if let Some((e0b, ceb)) = opt::feedback_of(&packet.options) {
                    assert_eq!((e0b, ceb), (1, count), "{options:?}");
                    reports += 1;
                }
            }
        }
        assert!(reports >= 19, "{options:?}: {reports}");
        assert_eq!(solo.counter("odd_options"), 20, "{options:?}");
    }
}

/// A second feedback option would be believed once the first is gone.
#[test]
fn of_two_forged_reports_none_leaves() {
    let mut solo = Solo::with(params());
    let twice = [opt::feedback(999, 0), opt::feedback(998, 0)].concat();
    for _ in 0..3 {
        let forged = Packet {
            options: twice.clone(),
            ..solo.own(0, 0)
        };
        let (after, _) = solo.send(&forged);
        assert!(matches!(
            opt::feedback_of(&after.options),
            None | Some((1, 0))
        ));
    }
    assert_eq!(solo.counter("forged"), 3);
}

/// The flow as far as what arrives changes it.
fn receiving(solo: &Solo) -> Flow {
    Flow {
        seen_ns: 0,
        marks: solo.flow().marks & !FLOW_STRANGERS,
        ..*solo.flow()
    }
}

#[test]
fn strangers_data_count_for_nothing() {
    let mut solo = Solo::with(params());
    for i in 0..10 {
        let data = Packet {
            seq: solo.peer_start.wrapping_add(i * MSS),
            ecn: ecn::ECT0,
            payload: vec![1; MSS as usize],
            ..solo.peers(0, WIDE)
        };
        solo.arrive(&data);
        let ack = Packet {
            ack: solo.peer_start.wrapping_add((i + 1) * MSS),
            ..solo.own(0, 0)
        };
        solo.send(&ack);
    }
    let before = receiving(&solo);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut strangers = 0;
    for turn in 0..30_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (mut seq, mut ack) = (random as u32, (random >> 32) as u32);
        // One number may be right: either check is enough.
        match turn % 3 {
            0 => seq = solo.flow().rcv_nxt.wrapping_add(seq % (64 << 10)),
            1 => ack = solo.flow().snd_una,
            _ => {}
        }
        let near = seq.wrapping_sub(solo.flow().rcv_nxt).wrapping_add(17 << 20) < 34 << 20;
        let plausible = solo.flow().snd_nxt.wrapping_sub(ack).wrapping_add(64_000) < 128_000;
        if (turn % 3 != 0 && near) || (turn % 3 != 1 && plausible) {
            continue;
        }
        let spoofed = Packet {
            seq,
            ack,
            flags: tcp::ACK,
            window: WIDE,
            ecn: ecn::CE,
            payload: vec![7; MSS as usize],
            ..Packet::default()
        };
        assert_eq!(solo.arrive(&spoofed).0.ecn, ecn::NOT_ECT);
        strangers += 1;
    }
    assert_eq!(
        (receiving(&solo).rcv_ceb, receiving(&solo).rcv_e0b),
        (before.rcv_ceb, before.rcv_e0b)
    );
    assert_eq!(receiving(&solo).bytes_received, before.bytes_received);
    assert_eq!(receiving(&solo).rcv_high, before.rcv_high);
    assert_eq!(receiving(&solo).not_ect_run, before.not_ect_run);
    // Some are near enough to count as ACKs of what was never sent.
    assert!(solo.counter("stranger") + solo.counter("ack_beyond") >= strangers);
    assert_ne!(solo.flow().marks & FLOW_STRANGERS, 0);
}

#[test]
fn marks_on_what_no_receiver_takes_are_no_marks() {
    let mut solo = Solo::with(params());
    let data = |solo: &Solo, at: u32| Packet {
        seq: solo.peer_start.wrapping_add(at),
        ecn: ecn::CE,
        payload: vec![1; 1000],
        ..solo.peers(0, WIDE)
    };
    // Behind what was acknowledged, and beyond the window of 500 KiB.
    for at in [0_u32.wrapping_sub(1000), 500 << 10, 1 << 20] {
        let packet = data(&solo, at);
        solo.arrive(&packet);
        assert_eq!(solo.flow().rcv_ceb, 0, "{at}");
    }
    // A wrong checksum.
    let mut frame = solo.route.reversed().build(&data(&solo, 0));
    *frame.last_mut().unwrap() ^= 1;
    solo.host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    assert_eq!((solo.flow().rcv_ceb, solo.counter("stranger")), (0, 1));
    let packet = data(&solo, 0);
    solo.arrive(&packet);
    assert_eq!(solo.flow().rcv_ceb, 1000);
}

#[test]
fn no_more_marks_are_pending_than_bytes_are_out() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..50 {
        solo.data(at, 1460);
        solo.data(at + MSS, 1460);
        solo.ceb += 1 << 20;
        solo.ack(at + MSS, WIDE);
        let flow = solo.flow();
        let out = flow.snd_nxt.wrapping_sub(flow.snd_una);
        assert!(flow.marked_pending <= out, "{}", flow.marked_pending);
        at += 2 * MSS;
        solo.ack(at, WIDE);
        assert_eq!(solo.flow().marked_pending, 0);
    }
}

/// A receiver whose SYN/ACK and ACKs have bytes behind the IP packet, in which its host's options
/// would be.
#[test]
fn nothing_behind_a_packet_keeps_a_forged_option() {
    let (sender, receiver) = (policy(), policy());
    let mut hosts = [Host::new(&sender), Host::new(&receiver)];
    let route = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
    // The peer's host is alone in knowing the handshake: as if the receiver's could not read it.
    let syn = Packet {
        seq: 99,
        flags: tcp::SYN,
        window: 64_000,
        options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
        ..Packet::default()
    };
    let mut frame = route.build(&syn);
    hosts[A].frame(&mut frame, Direction::FromTenant, 1_000);
    hosts[B].frame(&mut frame, Direction::ToTenant, 2_000);
    let answer = Packet {
        seq: 7,
        ack: 100,
        flags: tcp::SYN | tcp::ACK,
        window: 64_000,
        options: opt::all(&[&opt::mss(1460), &opt::wscale(7), &opt::peer(0)]),
        ..Packet::default()
    };
    let mut frame = route.reversed().build(&answer);
    frame.extend([0; 40]);
    hosts[B].frame(&mut frame, Direction::FromTenant, 3_000);
    assert_eq!(hosts[B].counter("trimmed"), Some(1));
    assert_eq!(hosts[B].counter("forged"), Some(1));
    assert_eq!(
        opt::peer_of(&wire::read(&frame).1.options),
        Some(0),
        "its host's own"
    );
    let ack = Packet {
        seq: 8,
        ack: 100,
        flags: tcp::ACK,
        window: 500,
        options: opt::feedback(1_000_000, 0),
        ..Packet::default()
    };
    let mut frame = route.reversed().build(&ack);
    let whole = frame.len();
    frame.extend([0; 40]);
    hosts[B].frame(&mut frame, Direction::FromTenant, 4_000);
    assert_eq!(frame.len(), whole);
    assert_eq!(opt::feedback_of(&wire::read(&frame).1.options), None);
}

/// A SYN/ACK whose SYN was forgotten, and ACKs without a flow: the peer's host may know both.
#[test]
fn claims_are_removed_though_the_flow_is_not_known() {
    let mut solo = Solo::new(&policy());
    let answer = Packet {
        seq: 7,
        ack: 100,
        flags: tcp::SYN | tcp::ACK,
        options: opt::all(&[&opt::mss(1460), &opt::peer(0)]),
        ..Packet::default()
    };
    let (after, _) = solo.send(&answer);
    assert_eq!(opt::peer_of(&after.options), None);
    let ack = Packet {
        options: opt::feedback(77, 0),
        ..solo.own(0, 0)
    };
    let (after, _) = solo.send(&ack);
    assert_eq!(opt::feedback_of(&after.options), None);
    // Nor where the flow was met from the middle.
    solo.data(0, 1460);
    solo.data(MSS, 1460);
    let (after, _) = solo.send(&ack);
    assert_eq!(opt::feedback_of(&after.options), None);
    assert_eq!(solo.counter("forged"), 3);
    // A peer outside the trusted prefixes has its own AccECN.
    let mut solo = Solo::new(&policy());
    solo.route = Route::new("10.1.0.1:40000", "192.0.2.7:443");
    let (after, _) = solo.send(&ack);
    assert_eq!(opt::feedback_of(&after.options), Some((77, 0)));
}

/// Before a connection whose SYN its own host could not read, with the scale known from the
/// SYN/ACK.
fn unread() -> Solo {
    let mut solo = Solo::new(&policy());
    solo.host.set_known(Remembered {
        mss: 1460,
        wscale: 9,
        scale: 1,
        ..Remembered::default()
    });
    solo
}

/// Such a connection, once it is governed.
fn adopted() -> Solo {
    let mut solo = unread();
    for i in 0..10 {
        assert!(solo.data(i * MSS, 1460).unheld, "{i}: watched, so charged");
    }
    let ack = solo.peers(5 * MSS, WIDE);
    solo.arrive(&ack);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    solo
}

#[test]
fn what_an_unread_handshake_may_have_shown_is_charged() {
    let mut solo = adopted();
    let window = solo.flow().cc.cwnd;
    assert!(window <= 20 * MSS);
    let mut held = 0;
    for i in 10..10_000 {
        let outcome = solo.data(i * MSS, 1460);
        let end = (i + 1) * MSS;
        if !outcome.unheld {
            held = end;
        }
        assert!(
            outcome.unheld || end <= 5 * MSS + window + 2 * MSS,
            "{end} bytes, of which {window} are its window"
        );
    }
    assert!(
        held >= 5 * MSS + window - 2 * MSS,
        "{held} {window}: its window is free of charge"
    );
    assert_ne!(solo.flow().marks & FLOW_LENIENT, 0);
    assert!(solo.counter("beyond_held") > 9_000);
    // Data sent beyond the window earn nothing: no larger window comes with the next ACK.
    let ack = solo.peers(6 * MSS, WIDE);
    let (after, _) = solo.arrive(&ack);
    let shown = shown_bytes(&solo, &after);
    assert!(shown <= window + 4 * MSS);
    // Nor is more of it free of charge than that window, when it is sent again.
    for i in 6..200 {
        let end = (i + 1) * MSS;
        let outcome = solo.data(i * MSS, 1460);
        assert!(
            outcome.action == Action::Drop || outcome.unheld || end <= 6 * MSS + shown + 2 * MSS,
            "{end} bytes, of which {shown} are its window"
        );
    }
}

#[test]
fn one_segment_far_ahead_is_no_window_to_begin_with() {
    let mut solo = Solo::new(&policy());
    solo.data(0, 1460);
    solo.data(MSS, 1460);
    solo.data(8_000_000, 1460);
    let ack = solo.peers(8_000_000 + MSS, WIDE);
    solo.arrive(&ack);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    assert!(solo.flow().cc.cwnd <= 10 * MSS, "{}", solo.flow().cc.cwnd);
}

/// One after the other, each within the window of what was opened before.
#[test]
fn acks_of_what_was_never_seen_open_nothing_for_free() {
    let mut solo = Solo::one_sided(&policy(), 1460, 9);
    let ack = solo.peers(0, WIDE);
    solo.arrive(&ack);
    let mut at = 0;
    for _ in 0..40 {
        at += 10 * MSS;
        let ack = solo.peers(at, WIDE);
        solo.arrive(&ack);
    }
    let mut free = 0;
    for i in 0..400 {
        let outcome = solo.data(i * MSS, 1460);
        free += u32::from(outcome.action == Action::Pass && !outcome.unheld) * MSS;
    }
    assert!(free <= 12 * MSS, "{free}");
}

#[test]
fn a_server_is_charged_for_more_than_its_first_window_before_any_ack() {
    let mut solo = Solo::new(&policy());
    let syn = Packet {
        seq: solo.peer_start.wrapping_sub(1),
        ..solo.syn(&[&opt::mss(1460), &opt::wscale(7)])
    };
    solo.arrive(&syn);
    let answer = Packet {
        seq: solo.start.wrapping_sub(1),
        ack: solo.peer_start,
        flags: tcp::SYN | tcp::ACK,
        ..syn
    };
    solo.send(&answer);
    for i in 0..40 {
        let outcome = solo.data(i * MSS, 1460);
        assert_eq!(outcome.unheld, i > 10, "segment {i}");
    }
}

/// A segment arrives for the tenant, `len` bytes at offset `at` of the peer's.
pub(crate) fn arrives(solo: &mut Solo, at: u32, len: usize) {
    let data = Packet {
        seq: solo.peer_start.wrapping_add(at),
        ecn: ecn::ECT0,
        payload: vec![1; len],
        ..solo.peers(0, WIDE)
    };
    solo.arrive(&data);
}

pub(crate) fn acknowledges(solo: &mut Solo, at: u32) -> (Packet, u16) {
    let ack = Packet {
        ack: solo.peer_start.wrapping_add(at),
        ..solo.own(0, 0)
    };
    let (after, outcome) = solo.send(&ack);
    (after, outcome.edits)
}

#[test]
fn what_has_not_come_cannot_be_acknowledged() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 2 * 1460);
    for ahead in [MSS, 100 * MSS, 1 << 30] {
        let (after, edits) = acknowledges(&mut solo, 2 * MSS + ahead);
        assert_eq!(after.ack, solo.peer_start.wrapping_add(2 * MSS), "{ahead}");
        assert_ne!(edits & edit::ACK, 0);
    }
    assert_eq!(solo.counter("ack_ahead"), 3);
    assert_ne!(solo.flow().marks & FLOW_ACKED_AHEAD, 0);
    arrives(&mut solo, 2 * MSS, 1460);
    let (after, edits) = acknowledges(&mut solo, 3 * MSS);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(3 * MSS));
    assert_eq!(edits & edit::ACK, 0);
    // With data, too.
    let data = Packet {
        ack: solo.peer_start.wrapping_add(9 * MSS),
        ..solo.own(0, 100)
    };
    let (after, _) = solo.send(&data);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(3 * MSS));
}

/// Data may take another path than ACKs: nothing is held for ever.
#[test]
fn acks_of_data_that_never_come_by_are_let_go() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 1460);
    let mut corrected = 0;
    for i in 1..100 {
        solo.now_ns += 10_000_000;
        let (after, edits) = acknowledges(&mut solo, (1 + i) * MSS);
        if edits & edit::ACK == 0 {
            assert_eq!(after.ack, solo.peer_start.wrapping_add((1 + i) * MSS));
            break;
        }
        corrected += 1;
    }
    assert!((8..14).contains(&corrected), "{corrected}");
    assert_eq!(solo.counter("data_unseen"), 1);
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
    // Something comes again: who acknowledged early is held as before.
    arrives(&mut solo, MSS, 1460);
    let (after, edits) = acknowledges(&mut solo, 90 * MSS);
    assert_ne!(edits & edit::ACK, 0);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(2 * MSS));
}

/// A receiver may refuse its host's option. Its host is there all the same.
#[test]
fn alone_a_receivers_host_holds_its_acks_as_well() {
    let mut solo = Solo::one_sided(&policy(), 1460, 10);
    arrives(&mut solo, 0, 1460);
    let (after, edits) = acknowledges(&mut solo, 50 * MSS);
    assert_ne!(edits & edit::ACK, 0);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(MSS));
    // A server that leaves no room for the option.
    let mut solo = Solo::new(&policy());
    let syn = Packet {
        seq: solo.peer_start.wrapping_sub(1),
        ..solo.syn(&[&opt::mss(1460), &opt::peer(0)])
    };
    solo.arrive(&syn);
    let answer = Packet {
        ack: solo.peer_start,
        flags: tcp::SYN | tcp::ACK,
        ..solo.syn(&[&opt::mss(1460), &[opt::NOP; 36]])
    };
    solo.send(&answer);
    assert_eq!(REASON_NAMES[usize::from(solo.flow().reason)], "no-room");
    arrives(&mut solo, 0, 1460);
    let (after, _) = acknowledges(&mut solo, 50 * MSS);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(MSS));
}

/// One signed ACK is no licence for the unsigned ones after it, nor is its own feedback believed.
#[test]
fn a_signature_covers_no_forged_report() {
    let mut solo = Solo::with(params());
    let signed = Packet {
        options: opt::all(&[&opt::md5(), &opt::feedback(999, 0)]),
        ..solo.own(0, 0)
    };
    let (after, _) = solo.send(&signed);
    assert_eq!(after.options, signed.options, "what is signed stays");
    let forged = Packet {
        options: opt::feedback(998, 0),
        ..solo.own(0, 0)
    };
    let (after, _) = solo.send(&forged);
    assert_eq!(opt::feedback_of(&after.options), None);
    let mut solo = Solo::with(params());
    solo.data(0, 1460);
    let believed = solo.flow().taken_e0b;
    let ack = Packet {
        options: opt::all(&[&opt::md5(), &opt::feedback(1461, 0)]),
        ..solo.peers(MSS, WIDE)
    };
    solo.arrive(&ack);
    assert_eq!(solo.flow().taken_e0b, believed);
}

/// A receiver that takes its window back does not unsee what was on its way.
#[test]
fn a_window_that_shrinks_hides_no_marks() {
    let mut solo = Solo::with(params());
    let wide = Packet {
        window: 100,
        ..solo.own(0, 0)
    };
    solo.send(&wide);
    let closed = Packet {
        window: 0,
        ..wide.clone()
    };
    solo.send(&closed);
    let data = Packet {
        seq: solo.peer_start,
        ecn: ecn::CE,
        payload: vec![1; 1460],
        ..solo.peers(0, WIDE)
    };
    solo.arrive(&data);
    assert_eq!(solo.flow().rcv_ceb, MSS);
}

/// One ACK for all that is out, and the counts behind it, in a packet of their own.
#[test]
fn marks_that_come_behind_their_ack_are_not_forgotten() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..50 {
        solo.data(at, 1460);
        solo.data(at + MSS, 1460);
        at += 2 * MSS;
        let bare = solo.peers(at, WIDE);
        solo.arrive(&bare);
        solo.ceb += 2 * MSS;
        let counts = opt::feedback(solo.e0b, solo.ceb & 0xff_ffff);
        let fack = Packet {
            options: opt::all(&[&counts, &opt::peer(1)]),
            ..solo.peers(at, WIDE)
        };
        assert_eq!(solo.arrive(&fack).1.action, Action::Consume);
    }
    let cwnd = solo.flow().cc.cwnd;
    assert_eq!(cwnd, 2 * MSS, "the floor, after marks alone");
}

/// The tenant's data may have passed unseen; the answer is no stranger's.
#[test]
fn an_answer_to_what_passed_unseen_counts() {
    let mut solo = Solo::with(params());
    let answer = Packet {
        seq: solo.peer_start,
        ecn: ecn::ECT0,
        payload: vec![1; 1460],
        ..solo.peers(300, WIDE)
    };
    solo.arrive(&answer);
    assert_eq!(solo.flow().bytes_received, 1460);
    let (after, edits) = acknowledges(&mut solo, MSS);
    assert_eq!(edits & edit::ACK, 0);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(MSS));
}

/// A watched flow is not led astray by one blind ACK.
#[test]
fn an_ack_out_of_nowhere_does_not_keep_a_flow_watched() {
    let mut solo = Solo::new(&policy());
    solo.data(0, 1460);
    solo.data(MSS, 1460);
    for far in [1 << 30, 15 << 20, 3 * MSS] {
        let mut solo = solo.clone();
        let before = *solo.flow();
        let blind = solo.peers(far, WIDE);
        solo.arrive(&blind);
        let after = *solo.flow();
        assert_eq!(
            (after.edge, after.held),
            (before.edge, before.held),
            "{far}"
        );
        assert_eq!(
            (after.snd_una, after.snd_nxt),
            (before.snd_una, before.snd_nxt)
        );
        assert_eq!(solo.counter("ack_beyond"), 0);
        for i in 2..10 {
            solo.data(i * MSS, 1460);
            let ack = solo.peers((i + 1) * MSS, WIDE);
            solo.arrive(&ack);
        }
        assert_eq!(solo.flow().mode, MODE_ONE_SIDED, "{far}");
    }
}

/// A FIN takes a number of its own. What came out of order may be acknowledged once the rest has
/// come.
#[test]
fn a_fin_that_came_may_be_acknowledged() {
    for last in [0, 100] {
        let mut solo = Solo::with(params());
        for i in [1, 2, 0] {
            arrives(&mut solo, i * MSS, 1460);
        }
        let fin = Packet {
            seq: solo.peer_start.wrapping_add(3 * MSS),
            flags: tcp::FIN | tcp::ACK,
            payload: vec![1; last],
            ..solo.peers(0, WIDE)
        };
        solo.arrive(&fin);
        let end = 3 * MSS + last as u32 + 1;
        for (number, told) in [(3 * MSS, 3 * MSS), (end, end), (end + 1, end)] {
            let (after, _) = acknowledges(&mut solo, number);
            assert_eq!(after.ack, solo.peer_start.wrapping_add(told), "{number}");
        }
        assert_eq!(solo.counter("ack_ahead"), 1);
    }
}

/// Windows and round trips of a one-sided flow, whose path takes a millisecond.
fn one_sided_rounds(solo: &mut Solo, from: u32, rounds: u32) -> u32 {
    let mut at = from;
    for _ in 0..rounds {
        let count = (solo.flow().cc.cwnd / MSS).clamp(2, 100);
        for i in 0..count {
            solo.data(at + i * MSS, 1460);
        }
        solo.now_ns += 1_000_000;
        for i in 0..count {
            let ack = solo.peers(at + (i + 1) * MSS, WIDE);
            solo.arrive(&ack);
        }
        at += count * MSS;
    }
    at
}

/// An ACK whose sequence number is a guess would make a round trip of nothing, for good.
#[test]
fn a_strangers_ack_makes_no_round_trip_of_a_one_sided_flow() {
    for off in [1 << 20, 123_456_789, 1 << 31, u32::MAX - (1 << 20)] {
        let mut solo = Solo::one_sided(&policy(), 1460, 10);
        let at = one_sided_rounds(&mut solo, 0, 20);
        for i in 0..20 {
            solo.data(at + i * MSS, 1460);
        }
        let before = receiving(&solo);
        let blind = Packet {
            seq: solo.peer_start.wrapping_add(off),
            ..solo.peers(at + 15 * MSS, WIDE)
        };
        let (after, outcome) = solo.arrive(&blind);
        assert_eq!(outcome.action, Action::Pass, "its tenant decides");
        assert!(shown_bytes(&solo, &after) <= before.cc.cwnd + (1 << 10));
        assert_eq!(receiving(&solo), before, "{off}");
        assert_eq!(solo.counter("stranger"), 1);
        // From far away it is no duplicate either.
        let same = Packet {
            seq: solo.peer_start.wrapping_add(1 << 30),
            ..solo.peers(at, WIDE)
        };
        solo.arrive(&same);
        assert_eq!(receiving(&solo), before, "{off}");
    }
}

/// Its tenant's window is where a peer's ACKs are, whatever data they come with or behind.
#[test]
fn a_one_sided_flow_takes_what_is_within_its_window() {
    let mut solo = Solo::one_sided(&policy(), 1460, 10);
    let at = one_sided_rounds(&mut solo, 0, 5);
    solo.data(at, 1460);
    let ahead = Packet {
        seq: solo.peer_start.wrapping_add(100_000),
        ..solo.peers(at + MSS, WIDE)
    };
    solo.arrive(&ahead);
    assert_eq!(solo.flow().snd_una, solo.start.wrapping_add(at + MSS));
    assert_eq!(solo.counter("stranger"), 0);
}

/// The receiver's host would take such data for a stranger's, and would not know that they came.
#[test]
fn data_that_no_receivers_host_takes_are_charged() {
    type Odd = (&'static str, fn(&Solo) -> Packet);
    let odd: [Odd; 3] = [
        ("no ACK", |solo| Packet {
            flags: tcp::PSH,
            ..solo.own(0, 1460)
        }),
        ("an old ACK", |solo| Packet {
            ack: solo.peer_start.wrapping_sub(5 * MSS),
            ..solo.own(0, 1460)
        }),
        ("an ACK of what never came", |solo| Packet {
            ack: solo.peer_start.wrapping_add(1 << 24),
            ..solo.own(0, 1460)
        }),
    ];
    for (what, packet) in odd {
        let mut solo = Solo::with(params());
        let early = Packet {
            payload: Vec::new(),
            ..packet(&solo)
        };
        // ACKs ahead of what came are corrected before they are let go; data with them are free.
        for _ in 0..20 {
            solo.send(&early);
            solo.now_ns += 10_000_000;
        }
        let data = packet(&solo);
        assert!(solo.send(&data).1.unheld, "{what}");
        assert_eq!(solo.counter("odd_ack"), 1, "{what}");
    }
    let mut solo = Solo::with(params());
    assert!(!solo.data(0, 1460).unheld);
    let early = Packet {
        ack: solo.peer_start.wrapping_add(MSS),
        ..solo.own(MSS, 1460)
    };
    let (after, outcome) = solo.send(&early);
    assert_eq!(after.ack, solo.peer_start, "it is corrected");
    assert!(!outcome.unheld);
}

/// After a detour of many windows data come by the hook again: they are the flow's.
#[test]
fn what_comes_by_again_after_a_long_detour_counts() {
    let mut solo = Solo::with(params());
    after_a_detour(&mut solo);
    assert_eq!(solo.flow().rcv_ceb, 20 * MSS);
    // On a one-sided flow the host counts no marks, but holds the tenant to the data that have
    // come.
    after_a_detour(&mut Solo::one_sided(&policy(), 1460, 10));
}

fn after_a_detour(solo: &mut Solo) {
    arrives(solo, 0, 1460);
    acknowledges(solo, MSS);
    let mut at = MSS;
    for _ in 0..1000 {
        solo.now_ns += 10_000_000;
        at += 64 * MSS;
        acknowledges(solo, at);
    }
    assert!(at > 80 << 20);
    for i in 0..20 {
        let data = Packet {
            seq: solo.peer_start.wrapping_add(at + i * MSS),
            ecn: ecn::CE,
            payload: vec![1; 1460],
            ..solo.peers(0, WIDE)
        };
        solo.arrive(&data);
        let (_, edits) = acknowledges(solo, at + (i + 1) * MSS);
        assert_eq!(edits & edit::ACK, 0, "{i}");
    }
    assert_eq!(solo.counter("stranger"), 0);
    let (after, edits) = acknowledges(solo, at + 90 * MSS);
    assert_ne!(edits & edit::ACK, 0);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(at + 20 * MSS));
}

/// A pair conspires: one sends in vain beyond its window, the other acknowledges what was dropped.
#[test]
fn holes_that_a_peer_acknowledges_make_no_room() {
    let mut solo = Solo::one_sided(&policy(), 1460, 10);
    let acks = |solo: &mut Solo, at: u32| {
        solo.now_ns += 100_000;
        let ack = Packet {
            seq: solo.peer_start,
            ..solo.peers(at, WIDE)
        };
        solo.arrive(&ack);
    };
    let (mut at, mut passed) = (0, Vec::new());
    let mut acknowledged = 0;
    for _ in 0..12 {
        // As much as passes, and as much again in vain.
        let mut refused = 0;
        while refused < 150 {
            let outcome = solo.data(at, 1460);
            match outcome.action {
                Action::Drop => refused += 1,
                _ => passed.push(at),
            }
            at += MSS;
        }
        passed.retain(|segment| segment + MSS > acknowledged);
        let out = passed.len() as u32 * MSS;
        let window = solo.flow().cc.cwnd;
        assert!(
            out <= window + window / 10 + 4 * MSS,
            "{out} bytes are out, the window is {window}"
        );
        acknowledged += window / 2;
        at = solo.flow().snd_nxt.wrapping_sub(solo.start);
        acks(&mut solo, acknowledged);
    }
}

/// Round trips in which a one-sided flow that delay governs opens its window to `cap`, where the
/// handshake takes `path_ns` and the receiver acknowledges all that is out `rtt_ns` after it left.
fn rounds_to(cap: u32, path_ns: u64, rtt_ns: u64) -> u32 {
    let mut solo = Solo::new(&policy_of(Params {
        one_sided: Algorithm::Dcvegas.number(),
        window_cap: cap,
        ..params()
    }));
    let syn = solo.syn(&[&opt::mss(1460), &opt::wscale(10)]);
    solo.send(&syn);
    solo.now_ns += path_ns;
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10)]);
    solo.arrive(&answer);
    let (mut at, mut rounds) = (0, 0);
    while solo.flow().cc.cwnd < cap {
        let began_ns = solo.now_ns;
        let count = solo.flow().cc.cwnd / MSS;
        for i in 0..count {
            solo.now_ns = began_ns;
            solo.data(at + i * MSS, 1460);
        }
        at += count * MSS;
        solo.now_ns = began_ns + rtt_ns;
        let ack = solo.peers(at, WIDE);
        solo.arrive(&ack);
        rounds += 1;
        assert!(rounds < 100, "{} bytes", solo.flow().cc.cwnd);
    }
    rounds
}

/// docs/enforcement.md says why no RTT is taken for too short: a receiver that hides the queue
/// alone, and pretends just the RTT of the handshake, has its window open in as few round trips as
/// any.
#[test]
fn a_floor_of_the_rtt_would_not_hold_an_optimistic_receiver() {
    let path_ns = 100_000;
    let rounds = [1, 8, 100].map(|part| rounds_to(WINDOW_MAX, path_ns, path_ns / part));
    assert_eq!(rounds, [10; 3]);
}
