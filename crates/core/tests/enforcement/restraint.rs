//! When in doubt, hands off.

use sluicegate_core::{
    abi::{
        Flow, MODE_ONE_SIDED, MODE_TWO_SIDED, MODE_WATCH, Params, REASON_NAMES, RULE_OBSERVE,
        RULE_POLICE, RULE_STRIP_MPTCP,
    },
    host::{Action, ecn, edit, tcp},
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, params, policy, policy_of};

const WIDE: u16 = u16::MAX;

fn why(solo: &Solo) -> &'static str {
    REASON_NAMES[usize::from(solo.flow().reason)]
}

/// Nothing that passes is edited, either way, data or not.
fn untouched(solo: &mut Solo) {
    for i in 0..20_u32 {
        let data = Packet {
            ecn: ecn::ECT1,
            ..solo.own(i * 1000, 1000)
        };
        let (after, outcome) = solo.send(&data);
        assert_eq!((after, outcome.unheld), (data, true), "and it is charged");
        let early = Packet {
            ack: solo.peer_start.wrapping_add(1 << 20),
            ..solo.own((i + 1) * 1000, 0)
        };
        assert_eq!(solo.send(&early).0, early);
        let ack = Packet {
            ecn: ecn::CE,
            flags: tcp::ACK | tcp::ECE,
            options: opt::feedback(i, i),
            ..solo.peers((i + 1) * 1000, WIDE)
        };
        let (after, outcome) = solo.arrive(&ack);
        assert_eq!((after, outcome.action), (ack, Action::Pass));
    }
}

fn connect(policy: &sluicegate_core::abi::PolicyTable, syn: &[&[u8]], syn_ack: &[&[u8]]) -> Solo {
    let mut solo = Solo::new(policy);
    let packet = solo.syn(syn);
    solo.send(&packet);
    let packet = solo.syn_ack(syn_ack);
    solo.arrive(&packet);
    solo
}

#[test]
fn mptcp_passes() {
    let options: [&[u8]; 2] = [&opt::mss(1460), &opt::mptcp()];
    let mut solo = connect(&policy(), &options, &options);
    assert_eq!((solo.flow().mode, why(&solo)), (MODE_WATCH, "mptcp"));
    assert_eq!(solo.counter("flow_mptcp"), 1);
    untouched(&mut solo);
}

#[test]
fn mptcp_that_only_one_end_speaks_is_plain_tcp() {
    let solo = connect(
        &policy(),
        &[&opt::mss(1460), &opt::mptcp()],
        &[&opt::mss(1460), &opt::peer(0)],
    );
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn mptcp_is_stripped_where_the_policy_says_so() {
    let strip = policy_of(Params {
        flags: RULE_POLICE | RULE_STRIP_MPTCP,
        ..params()
    });
    let mut solo = Solo::new(&strip);
    // At an odd offset, to make the checksum's halves matter.
    let odd: Vec<u8> = [&[opt::NOP][..], &opt::mptcp()].concat();
    let syn = solo.syn(&[&opt::mss(1460), &odd]);
    let (after, outcome) = solo.send(&syn);
    assert_ne!(outcome.edits & edit::HIDE_MPTCP, 0);
    assert!(opt::find(&after.options, opt::MPTCP).is_none());
    assert_eq!(after.options[..4], syn.options[..4]);
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)]);
    solo.arrive(&answer);
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn mptcp_is_stripped_towards_the_tenant_too() {
    let strip = policy_of(Params {
        flags: RULE_POLICE | RULE_STRIP_MPTCP,
        ..params()
    });
    let mut pair = Pair::new(&strip);
    pair.tenant(A).offers.more = opt::mptcp();
    let mut plain = policy();
    plain.slots[0].params.mode = RULE_OBSERVE;
    pair.sides[A].enforcer = Some(sluicegate_core::host::Host::new(&plain));
    pair.connect();
    assert!(
        pair.log[0]
            .packet
            .options
            .windows(4)
            .any(|bytes| bytes == opt::mptcp())
    );
    assert!(opt::find(&pair.sides[B].tenant.seen[0].options, opt::MPTCP).is_none());
}

#[test]
fn signed_flows_are_never_edited() {
    for signature in [opt::md5(), opt::ao()] {
        for (syn, answer) in [(true, true), (false, true), (true, false)] {
            let with = |signed: bool| {
                if signed {
                    signature.clone()
                } else {
                    Vec::new()
                }
            };
            let mut solo = Solo::new(&policy());
            let packet = solo.syn(&[&opt::mss(1460), &with(syn)]);
            let (after, outcome) = solo.send(&packet);
            if syn {
                assert_eq!((after, outcome.edits), (packet, 0));
            }
            let packet = solo.syn_ack(&[&opt::mss(1460), &with(answer), &opt::peer(0)]);
            let (after, outcome) = solo.arrive(&packet);
            assert_eq!((after, outcome.edits), (packet, 0));
            assert_eq!((solo.flow().mode, why(&solo)), (MODE_WATCH, "signed"));
            assert_eq!(solo.counter("flow_signed"), 1);
            untouched(&mut solo);
        }
    }
}

/// Some routers switch signatures on in the middle of a connection. Its own tenant says so, too.
#[test]
fn a_tenant_that_begins_to_sign_keeps_its_headers() {
    for signature in [opt::md5(), opt::ao()] {
        let mut solo = Solo::with(params());
        let at = solo.round(0, 1460, false, WIDE);
        solo.data(at, 1460);
        let own = Packet {
            options: opt::all(&[&signature]),
            ..solo.own(at + 1460, 0)
        };
        let (after, _) = solo.send(&own);
        assert_eq!(
            Packet {
                ecn: own.ecn,
                ..after
            },
            own,
            "at most its codepoint is another"
        );
        let ack = Packet {
            options: opt::all(&[&signature]),
            ..solo.peers(at + 1460, WIDE)
        };
        assert_eq!(solo.arrive(&ack).0, ack);
        assert_eq!(solo.counter("odd_options"), 2);
        // Unsigned segments keep their headers as well, and feedback has a packet of its own.
        let plain = Packet {
            flags: tcp::ACK | tcp::ECE,
            options: opt::feedback(1 + at + 1460, 0),
            ..solo.peers(at + 1460, WIDE)
        };
        assert_eq!(solo.arrive(&plain).0, plain);
        let data = Packet {
            ecn: ecn::CE,
            payload: vec![1; 1460],
            ..solo.peers(at + 1460, WIDE)
        };
        solo.arrive(&data);
        let (after, outcome) = solo.send(&solo.own(at + 1460, 0));
        assert!(after.options.is_empty() && outcome.fack.is_some());
        // Nothing holds such data: a bucket is charged with them.
        assert!(solo.data(at + 1460, 1460).unheld);
    }
}

/// Options whose lengths do not add up.
pub fn malformed() -> Vec<Vec<u8>> {
    vec![
        vec![2, 0, 0, 0],
        vec![2, 1, 5, 6],
        vec![8, 10, 0, 0],
        vec![1, 1, 1, 5],
        vec![253, 200, 0x53, 0x47, 1, 0, 0, 0],
        vec![172, 9, 0, 0, 0, 0, 0, 0],
    ]
}

#[test]
fn malformed_options_of_a_handshake_are_never_edited() {
    for options in malformed() {
        let mut solo = Solo::new(&policy());
        let syn = solo.syn(&[&options]);
        let (after, outcome) = solo.send(&syn);
        assert_eq!((after, outcome.edits), (syn, 0));
        let answer = solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)]);
        solo.arrive(&answer);
        assert_eq!(
            (solo.flow().mode, why(&solo)),
            (MODE_WATCH, "malformed-option")
        );
        assert_eq!(solo.counter("malformed_option"), 1);
        untouched(&mut solo);
    }
}

#[test]
fn unknown_options_are_nobodys_business() {
    let unknown = [opt::NOP, opt::NOP, 77, 6, 1, 2, 3, 4];
    let mut pair = Pair::new(&policy());
    pair.tenant(A).offers.more = unknown.to_vec();
    pair.connect();
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
    assert_eq!(
        opt::find(&pair.sides[B].tenant.seen[0].options, 77),
        Some(vec![1, 2, 3, 4])
    );
}

#[test]
fn observers_edit_nothing_and_compute_everything() {
    let observe = policy_of(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let mut pair = Pair::new(&observe);
    pair.connect();
    pair.set_fate(|crossing| match crossing.index % 60 {
        20 => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.transfer(A, 1_000_000);
    pair.transfer(B, 1_000_000);
    for side in [A, B] {
        assert!(pair.sides[side].outcomes.iter().all(|outcome| {
            outcome.edits == 0 && outcome.action == Action::Pass && outcome.fack.is_none()
        }));
        let flow = pair.flow(side);
        assert_eq!(flow.mode, MODE_ONE_SIDED);
        assert!(flow.srtt_ns > 0 && flow.losses > 0 && flow.bytes_acked >= 1_000_000);
        assert!(flow.cc.cwnd > 0);
    }
}

#[test]
fn observers_say_what_enforcement_would_show() {
    let observe = policy_of(Params {
        mode: RULE_OBSERVE,
        window_cap: 20_000,
        ..params()
    });
    let mut solo = Solo::one_sided(&observe, 1460, 10);
    solo.send(&solo.own(0, 1000));
    let (after, _) = solo.arrive(&solo.peers(1000, WIDE));
    assert_eq!(after.window, WIDE);
    assert_eq!(solo.counter("window_would_lower"), 1);
    // 14 600 bytes are 15 units of the scale.
    let flow = solo.flow();
    let params = observe.rules().next().unwrap().params;
    assert_eq!(flow.allowed_window_bytes(&params, solo.now_ns), 15 << 10);
    assert_eq!(flow.shown_window_bytes(), u64::from(WIDE) << 10);
    // The peer's own window is the smaller one; an ACK that repeats says nothing either way.
    solo.send(&solo.own(1000, 1000));
    solo.arrive(&solo.peers(2000, 5));
    solo.arrive(&solo.peers(2000, 5));
    assert_eq!(solo.counter("window_would_lower"), 1);
    assert_eq!(
        solo.flow().allowed_window_bytes(&params, solo.now_ns),
        5 << 10
    );
}

#[test]
fn observers_take_what_the_tenants_echo_for_marks() {
    let observe = policy_of(Params {
        mode: RULE_OBSERVE,
        ..params()
    });
    let mut solo = Solo::new(&observe);
    let syn = Packet {
        flags: tcp::SYN | tcp::ECE | tcp::CWR,
        ..solo.syn(&[&opt::mss(1460), &opt::wscale(10)])
    };
    solo.send(&syn);
    let answer = Packet {
        flags: tcp::SYN | tcp::ACK | tcp::ECE,
        ..solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10)])
    };
    solo.arrive(&answer);
    for (at, echo) in [(0, 0), (1000, tcp::ECE), (2000, 0)] {
        solo.send(&solo.own(at, 1000));
        let ack = Packet {
            flags: tcp::ACK | echo,
            ..solo.peers(at + 1000, WIDE)
        };
        solo.arrive(&ack);
    }
    let flow = solo.flow();
    assert_eq!((flow.bytes_acked, flow.bytes_marked), (3000, 1000));
}

#[test]
fn what_is_not_governed_has_no_window_of_ours() {
    assert_eq!(Flow::default().allowed_window_bytes(&params(), 0), 0);
}

#[test]
fn one_sided_flows_keep_their_own_ecn() {
    let mut solo = Solo::one_sided(&policy(), 1460, 10);
    for (i, codepoint) in [ecn::NOT_ECT, ecn::ECT0, ecn::ECT1, ecn::CE]
        .into_iter()
        .enumerate()
    {
        let at = i as u32 * 1000;
        let data = Packet {
            ecn: codepoint,
            flags: tcp::ACK | tcp::CWR,
            ..solo.own(at, 1000)
        };
        assert_eq!(solo.send(&data).0, data);
        let ack = Packet {
            ecn: codepoint,
            flags: tcp::ACK | tcp::ECE,
            ..solo.peers(at + 1000, WIDE)
        };
        let after = solo.arrive(&ack).0;
        assert_eq!((after.ecn, after.flags), (ack.ecn, ack.flags));
        assert!(after.window < WIDE, "the window is ours");
    }
}

#[test]
fn two_sided_flows_have_the_operators_ecn() {
    let mut solo = Solo::with(params());
    for (i, codepoint) in [ecn::NOT_ECT, ecn::ECT0, ecn::ECT1, ecn::CE]
        .into_iter()
        .enumerate()
    {
        let at = i as u32 * 1000;
        let data = Packet {
            ecn: codepoint,
            dscp: 46,
            ..solo.own(at, 1000)
        };
        let after = solo.send(&data).0;
        assert_eq!((after.ecn, after.dscp), (ecn::ECT0, 46));
        let ack = Packet {
            ecn: codepoint,
            dscp: 10,
            flags: tcp::ACK | tcp::ECE,
            ..solo.peers(at + 1000, WIDE)
        };
        let after = solo.arrive(&ack).0;
        assert_eq!(
            (after.ecn, after.dscp, after.flags),
            (ecn::NOT_ECT, 10, tcp::ACK)
        );
    }
}

#[test]
fn resets_pass_as_they_are() {
    for mode in ["two-sided", "one-sided"] {
        let mut solo = match mode {
            "two-sided" => Solo::two_sided(&policy(), 1460, 10),
            _ => Solo::one_sided(&policy(), 1460, 10),
        };
        let at = solo.round(0, 1460, false, WIDE);
        for flags in [tcp::RST, tcp::RST | tcp::ACK] {
            let rst = Packet {
                flags,
                ..solo.own(at, 0)
            };
            assert_eq!(solo.send(&rst).0, rst);
            let rst = Packet {
                flags,
                ..solo.peers(at, WIDE)
            };
            assert_eq!(solo.arrive(&rst).0, rst);
        }
    }
}

#[test]
fn strange_flags_pass() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    for flags in 0..=255_u8 {
        if flags & tcp::SYN == 0 {
            let odd = Packet {
                flags,
                urgent: 7,
                ..solo.own(at, 0)
            };
            assert_eq!(solo.send(&odd).0.flags, flags);
        }
        let odd = Packet {
            flags,
            urgent: 7,
            ..solo.peers(at, WIDE)
        };
        let after = solo.arrive(&odd).0;
        assert_eq!(
            after.flags | tcp::ECE | tcp::CWR,
            flags | tcp::ECE | tcp::CWR
        );
    }
}

#[test]
fn an_honest_transfer_moves_no_counter_of_attacks() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    pair.finish();
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
    for side in [A, B] {
        for none in [
            "ack_ahead",
            "stranger",
            "odd_options",
            "trimmed",
            "beyond_held",
        ] {
            assert_eq!(pair.counter(side, none), 0, "{none}");
        }
    }
}
