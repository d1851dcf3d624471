//! Properties of any packet in any state. [`crate::net::invariants`] judges every single one: the
//! window is never enlarged and never closed, payload and DSCP stay, checksums are right.

use proptest::prelude::*;
use sluicegate_core::{
    abi::{
        FLOW_EDGE_KNOWN, FLOW_SCALE_BOUND, FLOW_SIGNS, FLOW_STRANGERS, Flow, MODE_TWO_SIDED,
        MODE_WATCH, PolicyTable, RULE_OBSERVE, RULE_STRIP_MPTCP, WINDOW_MAX,
    },
    cc::Algorithm,
    host::{Action, Outcome, tcp},
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
    play_seen(table, route, packets, |_, _, _, _| ())
}

/// The same. `seen` is told of each packet of the tenant, or of the peer, when it has passed.
fn play_seen(
    table: &PolicyTable,
    route: Route,
    packets: &[(bool, u64, Packet)],
    mut seen: impl FnMut(&Solo, bool, &Packet, &Outcome),
) -> Solo {
    let mut solo = Solo::new(table);
    solo.route = route;
    solo.handshake(&[&opt::mss(1460), &opt::wscale(7), &opt::peer(0)]);
    for (out, pause_ns, packet) in packets {
        solo.now_ns += pause_ns;
        let mut packet = packet.clone();
        if *out {
            packet.seq = packet.seq.wrapping_add(solo.start);
            packet.ack = packet.ack.wrapping_add(solo.peer_start);
            let (_, outcome) = solo.send(&packet);
            seen(&solo, true, &packet, &outcome);
        } else {
            packet.seq = packet.seq.wrapping_add(solo.peer_start);
            packet.ack = packet.ack.wrapping_add(solo.start);
            let (_, outcome) = solo.arrive(&packet);
            seen(&solo, false, &packet, &outcome);
        }
    }
    solo
}

const MSS: u64 = 1460;

/// `SG_FLOW_HEARD`, `SG_FLOW_AHEAD`, `SG_FLOW_RCV_KNOWN`.
const HEARD: u16 = 1 << 2;
const AHEAD: u16 = 1 << 9;
const RCV_KNOWN: u16 = 1 << 15;

/// The bytes that a governed tenant has in flight, and a window of the test's own: a new
/// connection's and the bytes acknowledged since, which New Reno and DCTCP never exceed.
#[derive(Default)]
struct Free {
    /// New data that passed and that no bucket was charged with: where they begin, how many.
    out: Vec<(u32, u32)>,
    una: u32,
    acked: u64,
    most: u64,
}

impl Free {
    fn note(&mut self, solo: &Solo, out: bool, packet: &Packet, outcome: &Outcome) {
        let (flow, len) = (solo.flow(), packet.payload.len() as u32);
        let behind = |seq: u32| seq.wrapping_sub(flow.snd_una) as i32;
        let advance = flow.snd_una.wrapping_sub(self.una);
        if advance < 1 << 31 {
            self.acked += u64::from(advance);
        }
        self.una = flow.snd_una;
        self.out
            .retain(|(seq, len)| behind(seq.wrapping_add(*len)) > 0);
        let marks = FLOW_SCALE_BOUND | FLOW_SIGNS;
        let governed = flow.mode != MODE_WATCH && flow.marks & marks == 0;
        let opens = packet.flags & (tcp::SYN | tcp::RST) != 0;
        let passes = outcome.action == Action::Pass && !outcome.unheld;
        if !out || !governed || opens || !passes || len == 0 || behind(packet.seq) < 0 {
            return;
        }
        let again = |(seq, had): &(u32, u32)| {
            packet.seq.wrapping_sub(seq.wrapping_add(*had)) as i32 <= -1
                && seq.wrapping_sub(packet.end()) as i32 <= -1
        };
        if !self.out.iter().any(again) {
            self.out.push((packet.seq, len));
        }
        let bytes = |(seq, len): &(u32, u32)| (*len).min(behind(seq.wrapping_add(*len)) as u32);
        let sum: u64 = self.out.iter().map(|part| u64::from(bytes(part))).sum();
        self.most = self.most.max(sum.saturating_sub(self.allowed(flow)));
    }

    /// Its window and the slack of policing; as much again while holes are filled.
    fn allowed(&self, flow: &Flow) -> u64 {
        let window = (10 * MSS + self.acked).min(u64::from(WINDOW_MAX)) + (9 << flow.wscale);
        2 * window + window / 10 + 2 * MSS
    }
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
        // A server that has heard no ACK has no edge yet.
        let window = if flow.flags & FLOW_EDGE_KNOWN != 0 { window } else { 0 };
        prop_assert!(!judged || window <= 0xffff << 7, "{}", window);
        prop_assert!(!judged || ahead <= 10 * (0xffff << 7), "{}", ahead);
    }

    #[test]
    fn a_governed_tenant_has_no_more_out_than_its_window_unless_it_is_charged(
        one_sided in any::<bool>(), route in route(), packets in packets()
    ) {
        let mut params = params();
        params.one_sided = Algorithm::Reno.number();
        let mut table = policy_of(params);
        table.trusted_count *= u32::from(!one_sided);
        let mut free = Free::default();
        let mut packets = packets;
        // Half of the packets are a tenant's that sends on and on, whatever window it is shown.
        let mut next = 0;
        for (out, _, packet) in packets.iter_mut().step_by(2) {
            *out = true;
            *packet = Packet {
                seq: next, flags: tcp::ACK, payload: vec![0xa5; 2920], ..Packet::default()
            };
            next += 2920;
        }
        let solo = play_seen(&table, route, &packets, |solo, out, packet, outcome| {
            if free.una == 0 {
                free.una = solo.start;
            }
            free.note(solo, out, packet, outcome);
        });
        prop_assert_eq!(free.most, 0, "{} acknowledged, {:?}", free.acked, solo.flow());
    }

    #[test]
    fn what_is_off_the_sequence_space_changes_nothing(
        table in table(), route in route(), packets in packets(), off in 0..1_u32 << 31,
        stranger in packet(),
    ) {
        let mut solo = play(&table, route, &packets);
        let before = *solo.flow();
        let stranger = Packet {
            seq: before.rcv_nxt.wrapping_add((1 << 27) + off),
            ack: before.snd_una.wrapping_sub(stranger.ack % 50_000),
            flags: stranger.flags & !tcp::SYN | tcp::ACK,
            ..stranger
        };
        let window = u32::from(before.rcv_window) << before.rcv_wscale;
        if before.mode != MODE_TWO_SIDED || before.marks & (RCV_KNOWN | AHEAD) != RCV_KNOWN
            || window >= 1 << 27
        {
            return Ok(());
        }
        let counted = solo.counter("stranger") + solo.counter("rst_outlived");
        solo.arrive(&stranger);
        prop_assert_eq!(solo.counter("stranger") + solo.counter("rst_outlived"), counted + 1);
        let told = solo.flow().marks & (HEARD | FLOW_STRANGERS);
        let before = Flow { marks: before.marks | told, ..before };
        let after = Flow { seen_ns: before.seen_ns, ..*solo.flow() };
        prop_assert_eq!(after, before);
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
