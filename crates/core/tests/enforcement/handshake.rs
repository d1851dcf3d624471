//! How hosts find each other, and what a SYN may and may not do.

use sluicegate_core::{
    abi::{MODE_ONE_SIDED, MODE_TWO_SIDED, REASON_NAMES},
    host::{Host, ecn, edit, option, tcp},
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, policy, tenant::Tenant};

fn reason(pair: &Pair, side: usize) -> &'static str {
    REASON_NAMES[usize::from(pair.flow(side).reason)]
}

fn modes(pair: &Pair) -> [u8; 2] {
    [pair.flow(A).mode, pair.flow(B).mode]
}

#[test]
fn two_hosts_recognise_each_other() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
    for side in [A, B] {
        assert_eq!(pair.counter(side, "flow_two_sided"), 1);
        assert_eq!(pair.counter(side, "edit_failed"), 0);
    }
    assert_eq!(pair.counter(A, "peer_offered"), 1);
    assert_eq!(pair.counter(B, "peer_accepted"), 1);
    let shown: Vec<_> = pair
        .log
        .iter()
        .map(|crossing| opt::peer_of(&crossing.packet.options))
        .collect();
    assert_eq!(shown, [Some(0), Some(0), None]);
}

#[test]
fn tenants_see_nothing_of_it() {
    let mut pair = Pair::new(&policy());
    pair.set_fate(|crossing| {
        if crossing.packet.len() > 0 {
            Fate::Mark
        } else {
            Fate::Deliver
        }
    });
    pair.connect();
    pair.transfer(A, 500_000);
    pair.transfer(B, 500_000);
    for side in &pair.sides {
        for packet in &side.tenant.seen {
            assert_eq!(packet.ecn, ecn::NOT_ECT);
            assert!(opt::find(&packet.options, opt::EXPERIMENT).is_none());
            assert!(opt::find(&packet.options, opt::FEEDBACK).is_none());
        }
    }
    assert!(
        pair.sent(A)
            .chain(pair.sent(B))
            .all(|packet| packet.ecn == ecn::ECT0)
    );
}

#[test]
fn an_untrusted_prefix_is_not_believed() {
    let mut pair = Pair::new(&policy());
    let mut careful = policy();
    careful.trusted_count = 0;
    pair.sides[B].enforcer = Some(Host::new(&careful));
    pair.connect();
    assert_eq!(modes(&pair), [MODE_ONE_SIDED; 2]);
    assert_eq!(
        [reason(&pair, A), reason(&pair, B)],
        ["peer-silent", "peer-untrusted"]
    );
    assert_eq!(pair.counter(B, "peer_untrusted"), 1);
    assert!(
        pair.sent(B)
            .all(|packet| opt::peer_of(&packet.options).is_none())
    );
}

#[test]
fn nothing_is_offered_outside_the_trusted_prefixes() {
    let mut alone = policy();
    alone.trusted_count = 0;
    let mut pair = Pair::new(&policy());
    pair.sides[A].enforcer = Some(Host::new(&alone));
    pair.connect();
    assert_eq!(modes(&pair), [MODE_ONE_SIDED; 2]);
    assert_eq!([reason(&pair, A), reason(&pair, B)], ["peer-silent"; 2]);
    assert!(pair.sent(A).all(|packet| packet.ecn == ecn::NOT_ECT));
}

#[test]
fn a_syn_without_room_for_our_option_passes_as_it_is() {
    let mut pair = Pair::new(&policy());
    pair.tenant(A).offers.more = vec![opt::NOP; 20];
    pair.connect();
    assert_eq!(modes(&pair), [MODE_ONE_SIDED; 2]);
    assert_eq!(
        [reason(&pair, A), reason(&pair, B)],
        ["no-room", "peer-silent"]
    );
    pair.transfer(A, 100_000);
}

#[test]
fn a_syn_ack_without_room_for_our_option_passes_as_it_is() {
    let mut pair = Pair::new(&policy());
    pair.tenant(B).offers.more = vec![opt::NOP; 20];
    pair.connect();
    assert_eq!(modes(&pair), [MODE_ONE_SIDED; 2]);
    assert_eq!(
        [reason(&pair, A), reason(&pair, B)],
        ["peer-silent", "no-room"]
    );
}

#[test]
fn the_largest_syn_that_still_has_room_is_used() {
    let mut pair = Pair::new(&policy());
    let used = pair.tenant(A).syn().options.len();
    pair.tenant(A).offers.more = vec![opt::NOP; 32 - used];
    pair.connect();
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
    assert_eq!(pair.log[0].packet.options.len(), 40);
}

#[test]
fn a_lost_syn_is_repeated() {
    let mut pair = Pair::new(&policy());
    pair.set_fate(|crossing| {
        if crossing.index == 0 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    pair.wait(1_000_000_000);
    pair.connect();
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
}

#[test]
fn a_lost_syn_ack_is_repeated() {
    let mut pair = Pair::new(&policy());
    pair.set_fate(|crossing| {
        if crossing.index == 1 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    pair.run();
    pair.wait(1_000_000_000);
    let again = pair.tenant(B).syn_ack();
    pair.transmit(B, &again);
    pair.run();
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
    assert_eq!(
        opt::peer_of(&pair.log[2].packet.options),
        Some(0),
        "offered again"
    );
    assert_eq!(
        pair.counter(B, "flow_two_sided"),
        1,
        "one flow, however often it is answered"
    );
    pair.transfer(A, 100_000);
}

#[test]
fn a_syn_ack_that_comes_again_does_not_reset_the_flow() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 200_000);
    let (near, far) = (*pair.flow(A), *pair.flow(B));
    let again = Packet {
        ack: pair.tenant(A).iss.wrapping_add(1),
        ..pair.tenant(B).syn_ack()
    };
    pair.transmit(B, &again);
    pair.step();
    for (side, before) in [(A, near), (B, far)] {
        assert_eq!(pair.flow(side).snd_una, before.snd_una);
        assert_eq!(pair.flow(side).bytes_received, before.bytes_received);
    }
}

#[test]
fn our_option_goes_before_the_data_of_a_syn() {
    let mut solo = Solo::new(&policy());
    let syn = Packet {
        payload: (0..100).collect(),
        ..solo.syn(&[&opt::mss(1460)])
    };
    let (after, outcome) = solo.send(&syn);
    assert_eq!(outcome.edits, edit::ADD_PEER | edit::ECN);
    assert_eq!(
        after.options,
        opt::all(&[&opt::mss(1460), &opt::peer(0)]),
        "the last option"
    );
    assert_eq!(after.payload, syn.payload);
    solo.arrive(&solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)]));
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn a_syn_whose_data_fill_its_path_is_left_alone() {
    // 20 + 4 of options + 8 of ours + data, of a packet that has MSS + 20 behind its IP header.
    for (data, room) in [(1448, true), (1449, false)] {
        let mut solo = Solo::new(&policy());
        let syn = Packet {
            payload: vec![1; data],
            ..solo.syn(&[&opt::mss(1460)])
        };
        let (after, outcome) = solo.send(&syn);
        assert_eq!(after.payload, syn.payload);
        assert_eq!(outcome.edits & edit::ADD_PEER != 0, room);
        if room {
            continue;
        }
        assert_eq!((after, outcome.edits), (syn, 0));
        assert_eq!(solo.counter("syn_with_data"), 1);
        solo.arrive(&solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)]));
        assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
        assert_eq!(
            REASON_NAMES[usize::from(solo.flow().reason)],
            "syn-with-data"
        );
    }
}

#[test]
fn more_data_than_a_jumbo_frame_has_are_not_moved() {
    let mut solo = Solo::new(&policy());
    let syn = Packet {
        payload: vec![1; 9_001],
        ..solo.syn(&[&opt::mss(20_000)])
    };
    let (after, outcome) = solo.send(&syn);
    assert_eq!((after, outcome.edits), (syn, 0));
}

#[test]
fn data_in_the_handshake_leave_both_ends_two_sided() {
    for (with_syn, with_answer) in [(700, 0), (0, 900), (700, 900)] {
        let mut pair = Pair::new(&policy());
        pair.tenant(A).offers.data = with_syn;
        pair.tenant(B).offers.data = with_answer;
        pair.set_fate(|crossing| match crossing.index % 7 {
            0 if crossing.packet.len() > 0 => Fate::Mark,
            _ => Fate::Deliver,
        });
        pair.connect();
        assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
        for (from, bytes) in [(A, with_syn), (B, with_answer)] {
            assert_eq!(pair.tenant(1 - from).received, u64::from(bytes));
            let start = pair.tenant(from).iss.wrapping_add(1 + bytes);
            assert_eq!(pair.flow(from).snd_una, start);
            assert_eq!(pair.flow(1 - from).rcv_nxt, start);
        }
        pair.transfer(A, 500_000);
        pair.transfer(B, 500_000);
        assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
        for side in [A, B] {
            for odd in [
                "ack_beyond",
                "ack_ahead",
                "data_unseen",
                "policed",
                "stranger",
            ] {
                assert_eq!(pair.counter(side, odd), 0, "{odd}");
            }
            assert!(pair.flow(side).bytes_marked > 0);
        }
    }
}

#[test]
fn data_with_a_syn_may_be_acknowledged_though_its_repetition_has_none() {
    let mut solo = Solo::new(&policy());
    let repeated = solo.syn(&[&opt::mss(1460)]);
    let syn = Packet {
        payload: vec![1; 100],
        ..repeated.clone()
    };
    solo.send(&syn);
    solo.send(&repeated);
    let answer = Packet {
        ack: solo.start.wrapping_add(100),
        ..solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)])
    };
    solo.arrive(&answer);
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn no_more_than_came_with_the_syn_is_acknowledged_with_it() {
    for (acknowledged, answers) in [(0, true), (100, true), (101, false)] {
        let mut solo = Solo::new(&policy());
        let syn = Packet {
            payload: vec![1; 100],
            ..solo.syn(&[&opt::mss(1460)])
        };
        solo.send(&syn);
        let answer = Packet {
            ack: solo.start.wrapping_add(acknowledged),
            ..solo.syn_ack(&[&opt::mss(1460)])
        };
        solo.arrive(&answer);
        let una = solo.host.flow().map(|flow| flow.snd_una);
        assert_eq!(una, answers.then(|| solo.start.wrapping_add(acknowledged)));
    }
}

#[test]
fn a_server_cannot_acknowledge_more_than_the_data_of_a_syn() {
    let mut solo = Solo::new(&policy());
    let syn = Packet {
        seq: solo.peer_start.wrapping_sub(1),
        ack: 0,
        flags: tcp::SYN,
        payload: vec![1; 1_460],
        ..solo.syn_ack(&[&opt::mss(1460)])
    };
    solo.arrive(&syn);
    let came = solo.peer_start.wrapping_add(1_460);
    let answer = Packet {
        ack: came,
        flags: tcp::SYN | tcp::ACK,
        ..solo.syn(&[&opt::mss(1460)])
    };
    solo.send(&answer);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    let ack = Packet {
        ack: came.wrapping_add(30_000),
        ..solo.own(0, 0)
    };
    let (after, outcome) = solo.send(&ack);
    assert_eq!((after.ack, outcome.edits & edit::ACK), (came, edit::ACK));
}

#[test]
fn port_reuse_replaces_a_flow_only_on_the_syn_ack() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    let old = *pair.flow(A);
    for (side, iss) in [(A, 5_000), (B, 900_000)] {
        *pair.tenant(side) = Tenant::new(iss);
    }
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    assert_eq!(pair.flow(A).snd_una, old.snd_una, "a SYN replaces nothing");
    pair.run();
    for side in [A, B] {
        assert_eq!(pair.flow(side).mode, MODE_TWO_SIDED);
        assert_eq!(pair.counter(side, "flow_two_sided"), 2);
    }
    assert_eq!(pair.flow(A).snd_una, 5_001);
    pair.transfer(A, 100_000);
    pair.transfer(B, 100_000);
    assert_eq!(pair.counter(A, "policed") + pair.counter(B, "policed"), 0);
}

/// A SYN that B did not send reaches A's host.
fn forge_syn_to_a(pair: &mut Pair) {
    let forged = Packet {
        seq: 0x1234_5678,
        flags: tcp::SYN,
        window: 1,
        options: opt::all(&[&opt::mss(100), &opt::wscale(0)]),
        ..Packet::default()
    };
    let mut frame = pair.sides[B].route.build(&forged);
    let now_ns = pair.now_ns;
    let host = pair.sides[A].enforcer.as_mut().unwrap();
    host.frame(
        &mut frame,
        sluicegate_core::host::Direction::ToTenant,
        now_ns,
    );
}

#[test]
fn a_forged_syn_leaves_a_live_flow_alone() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    let before = *pair.flow(A);
    forge_syn_to_a(&mut pair);
    assert_eq!(pair.flow(A), &before);
    pair.transfer(A, 100_000);
    pair.transfer(B, 100_000);
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
}

/// A forged SYN against the direction of a port's reuse must not leave the old flow's edges in
/// force: the new connection would be policed by them.
#[test]
fn a_forged_syn_the_other_way_does_not_mask_port_reuse() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    for (side, iss) in [(A, 0x9000_0000), (B, 900_000)] {
        *pair.tenant(side) = Tenant::new(iss);
    }
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    forge_syn_to_a(&mut pair);
    pair.run();
    assert_eq!(pair.flow(A).snd_una, 0x9000_0001);
    assert_eq!(modes(&pair), [MODE_TWO_SIDED; 2]);
    pair.transfer(A, 100_000);
    assert_eq!(pair.counter(A, "policed"), 0);
}

#[test]
fn a_syn_ack_that_answers_no_syn_makes_nothing() {
    let mut solo = Solo::new(&policy());
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)]);
    assert_eq!(solo.arrive(&answer).1.edits, 0);
    let syn = solo.syn(&[&opt::mss(1460)]);
    solo.send(&syn);
    let wrong = Packet {
        ack: answer.ack.wrapping_add(1),
        ..answer.clone()
    };
    assert_eq!(solo.arrive(&wrong).1.edits, 0);
    assert!(solo.host.flow().is_none());
    solo.arrive(&answer);
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
}

#[test]
fn a_tenants_ecn_offer_ends_at_an_enforcing_host() {
    let mut pair = Pair::new(&policy());
    pair.tenant(A).offers.ecn = true;
    pair.connect();
    let sent = &pair.log[0].packet;
    assert!(
        sent.has(tcp::ECE | tcp::CWR),
        "a host that doesn't enforce would want it"
    );
    assert_eq!(sent.ecn, ecn::NOT_ECT, "RFC 3168 6.1.1");
    let seen = &pair.sides[B].tenant.seen[0];
    assert_eq!(seen.flags, tcp::SYN);
}

#[test]
fn an_offer_of_accurate_ecn_ends_there_as_a_whole() {
    let mut solo = Solo::new(&policy());
    let offer = Packet {
        ack: 0,
        flags: tcp::SYN | tcp::ECE | tcp::CWR,
        ae: true,
        ..solo.syn_ack(&[&opt::mss(1460), &opt::peer(0)])
    };
    let (after, _) = solo.arrive(&offer);
    assert_eq!((after.flags, after.ae), (tcp::SYN, false));
    // A host that doesn't enforce gets all of it.
    let sent = Packet {
        flags: tcp::SYN | tcp::ECE | tcp::CWR,
        ae: true,
        ..solo.syn(&[&opt::mss(1460)])
    };
    let (after, _) = solo.send(&sent);
    assert_eq!((after.flags, after.ae), (sent.flags, true));
}

#[test]
fn a_tenants_ecn_offer_reaches_a_host_that_does_not_enforce() {
    let mut pair = Pair::new(&policy());
    pair.sides[B].enforcer = None;
    pair.tenant(A).offers.ecn = true;
    pair.connect();
    assert!(pair.sides[B].tenant.seen[0].has(tcp::ECE | tcp::CWR));
    assert_eq!(pair.flow(A).mode, MODE_ONE_SIDED);
    pair.transfer(A, 100_000);
    assert!(
        pair.sent(A)
            .skip(1)
            .all(|packet| packet.ecn == ecn::NOT_ECT)
    );
}

#[test]
fn a_tenant_cannot_pose_as_a_host() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460), &opt::peer(0)]);
    let (after, _) = solo.send(&syn);
    let ours = opt::split(&after.options)
        .unwrap()
        .into_iter()
        .filter(|(kind, _)| *kind == opt::EXPERIMENT)
        .count();
    assert_eq!(
        ours, 1,
        "the tenant's own became NOPs, the host's was added"
    );
    assert_eq!(solo.counter("forged"), 1);
    // Twice the same option would hide one of them.
    let twice = solo.syn(&[&opt::peer(0), &opt::peer(0)]);
    let (after, outcome) = solo.send(&twice);
    assert_eq!((after, outcome.edits), (twice, 0));
    assert_ne!(outcome.segment.options & option::MALFORMED, 0);
}

#[test]
fn a_flow_that_no_rule_covers_is_not_tracked() {
    let mut none = policy();
    none.rules_count = 0;
    let mut pair = Pair::new(&none);
    pair.connect();
    pair.transfer(A, 100_000);
    for side in [A, B] {
        assert!(pair.host(side).flow().is_none());
        assert!(pair.counter(side, "no_rule") > 0);
        assert!(
            pair.sides[side]
                .outcomes
                .iter()
                .all(|outcome| outcome.edits == 0)
        );
    }
}

#[test]
fn a_syn_is_marked_capable_where_both_may_enforce() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460)]);
    let (after, outcome) = solo.send(&syn);
    assert_eq!(after.ecn, ecn::ECT0);
    assert_eq!(outcome.edits, edit::ADD_PEER | edit::ECN);
}

#[test]
fn rst_and_fin_both_ways_close_a_flow() {
    use sluicegate_core::abi::FLOW_CLOSED;
    let mut solo = Solo::two_sided(&policy(), 1460, 10);
    let fin = Packet {
        flags: tcp::FIN | tcp::ACK,
        ..solo.own(0, 0)
    };
    solo.send(&fin);
    assert_eq!(solo.flow().flags & FLOW_CLOSED, 0, "half-closed");
    let fin = Packet {
        flags: tcp::FIN | tcp::ACK,
        ..solo.peers(1, 500)
    };
    solo.arrive(&fin);
    assert_ne!(solo.flow().flags & FLOW_CLOSED, 0);

    let mut solo = Solo::two_sided(&policy(), 1460, 10);
    let rst = Packet {
        flags: tcp::RST,
        window: 0,
        ..solo.peers(0, 0)
    };
    let (after, outcome) = solo.arrive(&rst);
    assert_eq!((after, outcome.edits), (rst, 0));
    assert_ne!(solo.flow().flags & FLOW_CLOSED, 0);
}

/// RFC 5961: a receiver answers an RST that does not fit exactly and stays open. So does the flow,
/// or a tenant could have it forgotten and go on without enforcement.
#[test]
fn an_rst_that_is_not_believed_leaves_the_flow_open() {
    use sluicegate_core::abi::FLOW_CLOSED;
    let mut solo = Solo::two_sided(&policy(), 1460, 10);
    let closed = |solo: &Solo| solo.flow().flags & FLOW_CLOSED != 0;
    let rst = Packet {
        flags: tcp::RST,
        ..solo.own(5_000, 0)
    };
    solo.send(&rst);
    assert!(!closed(&solo), "beyond what was sent");
    let rst = Packet {
        flags: tcp::RST,
        ..solo.own(0, 0)
    };
    solo.send(&rst);
    assert!(closed(&solo), "this one fits");
    solo.data(0, 1460);
    assert!(!closed(&solo), "the tenant goes on");
    // The tenant's window is 500 KiB.
    for (ahead, ends) in [(513_000, false), (500_000, true)] {
        let rst = Packet {
            flags: tcp::RST,
            seq: solo.peer_start.wrapping_add(ahead),
            ..solo.peers(0, 0)
        };
        solo.arrive(&rst);
        assert_eq!(closed(&solo), ends, "{ahead}");
    }
}
