//! What holds of any packet in any state. [`crate::net::invariants`] judges every single one: the
//! window is never enlarged and never closed, payload and DSCP stay, checksums are right.

use proptest::prelude::*;
use sluicegate_core::{
    abi::{FLOW_SIGNS, MODE_WATCH, PolicyTable, RULE_OBSERVE, RULE_STRIP_MPTCP, WINDOW_MAX},
    host::tcp,
};

use crate::net::{Packet, Route, Solo, opt, params, policy_of};

fn options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(vec![opt::NOP]),
        any::<u16>().prop_map(opt::mss),
        (0..20_u8).prop_map(opt::wscale),
        Just(opt::timestamps(1, 2)),
        prop::collection::vec(any::<(u32, u32)>(), 1..4).prop_map(|blocks| opt::sack(&blocks)),
        any::<(u32, u32)>().prop_map(|(e0b, ceb)| opt::feedback(e0b & 0xff_ffff, ceb & 0xff_ffff)),
        (0..2_u8).prop_map(opt::peer),
        Just(opt::mptcp()),
        Just(opt::md5()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(one, 0..5).prop_map(|parts| {
        let mut bytes = parts.concat();
        bytes.truncate(40);
        bytes.resize(bytes.len().next_multiple_of(4), opt::NOP);
        bytes
    })
}

/// Offsets near the flow's own, so that packets mean something to it.
fn near() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..50_000_u32, 1 => any::<u32>()]
}

fn packet() -> impl Strategy<Value = Packet> {
    let flags = prop_oneof![
        6 => Just(tcp::ACK),
        1 => Just(tcp::SYN),
        1 => Just(tcp::SYN | tcp::ACK),
        1 => any::<u8>(),
    ];
    (
        (near(), near(), flags, any::<u16>()),
        (
            options(),
            prop_oneof![Just(0), 0..1460_usize],
            0..4_u8,
            0..64_u8,
        ),
    )
        .prop_map(
            |((seq, ack, flags, window), (options, len, ecn, dscp))| Packet {
                seq,
                ack,
                flags,
                window,
                options,
                payload: vec![0xa5; len],
                ecn,
                dscp,
                ..Packet::default()
            },
        )
}

fn table() -> impl Strategy<Value = PolicyTable> {
    (
        0..8_u8,
        0..8_u8,
        any::<bool>(),
        1..3_u8,
        any::<bool>(),
        0..WINDOW_MAX,
    )
        .prop_map(|(algorithm, one_sided, strip, floor_mss, trusts, cap)| {
            let mut params = params();
            params.algorithm = algorithm;
            params.one_sided = one_sided;
            params.floor_mss = floor_mss;
            params.window_cap = cap;
            if strip {
                params.flags |= RULE_STRIP_MPTCP;
            }
            let mut table = policy_of(params);
            table.trusted_count *= u32::from(trusts);
            table
        })
}

fn route() -> impl Strategy<Value = Route> {
    (any::<bool>(), prop::option::of(0..4096_u16)).prop_map(|(v6, vlan)| Route {
        vlan,
        ..match v6 {
            true => Route::new("[fd00::1]:40000", "[fd00::2]:5001"),
            false => Route::new("10.1.0.1:40000", "10.2.0.1:5001"),
        }
    })
}

/// Passes packets whose numbers count from the flow's own; returns the host afterwards.
fn play(table: &PolicyTable, route: Route, packets: &[(bool, u64, Packet)]) -> Solo {
    let mut solo = Solo::new(table);
    solo.route = route;
    solo.handshake(&[&opt::mss(1460), &opt::wscale(7), &opt::peer(0)]);
    for (out, pause_ns, packet) in packets {
        solo.now_ns += pause_ns;
        let mut packet = packet.clone();
        if *out {
            packet.seq = packet.seq.wrapping_add(solo.start);
            packet.ack = packet.ack.wrapping_add(solo.peer_start);
            solo.send(&packet);
        } else {
            packet.seq = packet.seq.wrapping_add(solo.peer_start);
            packet.ack = packet.ack.wrapping_add(solo.start);
            solo.arrive(&packet);
        }
    }
    solo
}

fn packets() -> impl Strategy<Value = Vec<(bool, u64, Packet)>> {
    let pause = prop_oneof![4 => 0..100_000_u64, 1 => 0..10_000_000_000_u64];
    prop::collection::vec((any::<bool>(), pause, packet()), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_edit_leaves_the_tenants_packet_intact(
        table in table(), route in route(), packets in packets()
    ) {
        let solo = play(&table, route, &packets);
        let flow = solo.flow();
        prop_assert!(flow.cc.cwnd > 0);
        // No tenant can pretend to have sent what no window allowed; only its peer can.
        let window = flow.edge.wrapping_sub(flow.snd_una) as i32;
        let ahead = flow.snd_nxt.wrapping_sub(flow.snd_una);
        let unseen = ["ack_beyond", "flow_one_direction", "flow_adopted"].map(|name| solo.counter(name));
        let judged = flow.mode != MODE_WATCH && flow.marks & FLOW_SIGNS == 0 && unseen == [0; 3];
        prop_assert!(!judged || window <= 0xffff << 7, "{}", window);
        prop_assert!(!judged || ahead <= 10 * (0xffff << 7), "{}", ahead);
    }

    #[test]
    fn observing_edits_nothing(
        table in table(), route in route(), packets in packets()
    ) {
        let mut observing = table;
        observing.slots[0].params.mode = RULE_OBSERVE;
        let solo = play(&observing, route, &packets);
        let edited: u64 = [
            "window_lowered", "ect_set", "ecn_hidden", "feedback_sent", "feedback_taken",
            "peer_offered", "peer_accepted", "fack_sent", "fack_taken", "policed",
        ]
        .iter()
        .map(|name| solo.counter(name))
        .sum();
        prop_assert_eq!(edited, 0);
    }

    #[test]
    fn any_bytes_pass(
        bytes in prop::collection::vec(any::<u8>(), 0..200), ipv6 in any::<bool>()
    ) {
        let mut frame = bytes.clone();
        if frame.len() > 14 {
            let kind: [u8; 2] = if ipv6 { [0x86, 0xdd] } else { [8, 0] };
            frame[12..14].copy_from_slice(&kind);
            frame[14] = if ipv6 { 0x60 } else { 0x45 };
        }
        if frame.len() > 23 {
            frame[if ipv6 { 20 } else { 23 }] = 6;
        }
        let before = frame.clone();
        let mut solo = Solo::with(params());
        let outcome = solo.host.frame(&mut frame, sluicegate_core::host::Direction::ToTenant, 1);
        if outcome.edits == 0 {
            prop_assert_eq!(before, frame);
        }
    }
}
