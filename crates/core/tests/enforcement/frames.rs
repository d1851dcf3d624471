//! Frames of every shape: families, tags, padding, lengths.

use sluicegate_core::{
    abi::{MODE_TWO_SIDED, MODE_WATCH, RULE_OBSERVE},
    host::{Action, Direction, Host, ecn, tcp},
};

use crate::net::{A, B, Packet, Pair, Route, Solo, opt, params, policy, wire};

const WIDE: u16 = u16::MAX;

fn whole_transfer(route: Route) {
    let mut pair = Pair::new(&policy());
    pair.set_route(route);
    pair.connect();
    pair.transfer(A, 1_000_000);
    pair.transfer(B, 1_000_000);
    for side in [A, B] {
        assert_eq!(pair.flow(side).mode, MODE_TWO_SIDED);
        assert!(pair.counter(side, "window_lowered") > 0);
        assert!(pair.counter(side, "feedback_taken") > 0);
    }
    assert!(pair.sent(A).all(|packet| packet.ecn == ecn::ECT0));
}

#[test]
fn ipv4() {
    whole_transfer(Route::new("10.1.0.1:40000", "10.2.0.1:5001"));
}

#[test]
fn ipv6() {
    whole_transfer(Route::new("[fd00::1]:40000", "[fd00::2]:5001"));
}

#[test]
fn one_vlan_tag() {
    for ends in [("10.1.0.1:1", "10.2.0.1:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
        whole_transfer(Route {
            vlan: Some(42),
            ..Route::new(ends.0, ends.1)
        });
    }
}

#[test]
fn the_tag_is_part_of_the_key() {
    let mut host = Host::new(&policy());
    let solo = Solo::new(&policy());
    let route = Route {
        vlan: Some(0xabc),
        ..solo.route
    };
    let mut frame = route.build(&solo.syn(&[&opt::mss(1460)]));
    host.frame(&mut frame, Direction::FromTenant, 1);
    assert_eq!(host.key().vlan, 0xabc);
    assert_eq!(host.key().local_port, 40_000_u16.to_be());
    assert_eq!(host.key().local.to_ip(), solo.route.from.ip());
}

#[test]
fn ethernet_padding_is_not_part_of_a_segment() {
    let mut solo = Solo::with(params());
    solo.round(0, 1460, false, WIDE);
    // 40 bytes of IP are padded to 46, here with rubbish.
    let pure = solo.own(20_000, 0);
    let mut frame = solo.route.build(&pure);
    frame.extend([0xaa; 6]);
    let outcome = solo
        .host
        .frame(&mut frame, Direction::FromTenant, solo.now_ns);
    assert_eq!(outcome.segment.payload, 0);
    assert_eq!(wire::read(&frame).1.ecn, ecn::ECT0);

    let data = Packet {
        payload: vec![9; 3],
        ecn: ecn::CE,
        ..solo.peers(0, WIDE)
    };
    let mut frame = solo.route.reversed().build(&data);
    frame.extend([0xaa; 3]);
    let outcome = solo
        .host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    assert_eq!(outcome.segment.payload, 3);
    assert_eq!(solo.flow().rcv_ceb, 3);

    // Now the ACK carries feedback, in the padding's place.
    let mut frame = solo.route.build(&pure);
    frame.extend([0xaa; 6]);
    solo.host
        .frame(&mut frame, Direction::FromTenant, solo.now_ns);
    assert_eq!(frame.len(), 14 + 20 + 20 + 8);
    assert_eq!(
        opt::feedback_of(&wire::read(&frame).1.options),
        Some((1, 3))
    );
}

/// Whether a frame with so much behind its packet is cut to its packet.
fn is_trimmed(route: Route, payload: usize, behind: usize, direction: Direction) -> bool {
    let mut host = Host::new(&policy());
    let packet = Packet {
        flags: tcp::ACK,
        payload: vec![1; payload],
        ..Packet::default()
    };
    let alone = route.build(&packet);
    let mut frame = alone.clone();
    frame.extend(vec![0xaa; behind]);
    let before = frame.clone();
    let outcome = host.frame(&mut frame, direction, 1);
    assert_eq!(outcome.action, Action::Pass);
    assert_eq!(outcome.segment.payload as usize, payload);
    let trimmed = host.counter("trimmed") == Some(1);
    assert_eq!(frame, if trimmed { alone } else { before });
    trimmed
}

#[test]
fn a_trailer_is_left_alone_and_more_behind_a_packet_is_cut_off() {
    let four = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
    let six = Route::new("[fd00::1]:40000", "[fd00::2]:5001");
    for (route, vlan) in [(four, None), (four, Some(7)), (six, None), (six, Some(7))] {
        let route = Route { vlan, ..route };
        for payload in [0, 3, 1460] {
            let trimmed = |behind, direction| is_trimmed(route, payload, behind, direction);
            assert!(!trimmed(16, Direction::FromTenant));
            assert!(trimmed(17, Direction::FromTenant));
            assert!(trimmed(1400, Direction::FromTenant));
            // Packets to a tenant are the business of the host that they left.
            assert!(!trimmed(1400, Direction::ToTenant));
        }
    }
}

#[test]
fn a_frame_with_more_behind_its_packet_is_not_read_where_no_rule_enforces() {
    let mut observing = policy();
    observing.slots[0].params.mode = RULE_OBSERVE;
    let mut none = policy();
    none.rules_count = 0;
    let solo = Solo::new(&policy());
    for (table, read) in [(observing, true), (none, false)] {
        for (behind, long) in [(16, false), (17, true)] {
            let mut host = Host::new(&table);
            let mut frame = solo.route.build(&solo.own(0, 100));
            frame.extend(vec![0xaa; behind]);
            let before = frame.clone();
            let outcome = host.frame(&mut frame, Direction::FromTenant, 1);
            assert_eq!((frame, outcome.edits), (before, 0));
            assert_eq!(host.counter("malformed"), Some(u64::from(long)));
            assert_eq!(host.counter("trimmed"), Some(0));
            assert_eq!(host.flow().is_some(), read && !long);
        }
    }
}

#[test]
fn feedback_before_padding_is_blanked_not_cut() {
    let mut solo = Solo::with(params());
    solo.data(0, 1460);
    let ack = Packet {
        options: opt::feedback(1461, 0),
        ..solo.peers(1460, WIDE)
    };
    let mut frame = solo.route.reversed().build(&ack);
    let length = frame.len() + 4;
    frame.extend([0xaa; 4]);
    solo.host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    assert_eq!(frame.len(), length);
    assert_eq!(wire::read(&frame).1.options, vec![opt::NOP; 8]);
}

#[test]
fn options_at_odd_offsets_are_found_and_removed() {
    for before in 0..8_usize {
        let mut solo = Solo::with(params());
        solo.data(0, 1460);
        let options = [vec![opt::NOP; before], opt::feedback(1461, 0)].concat();
        let ack = Packet {
            options: opt::all(&[&options]),
            ..solo.peers(1460, WIDE)
        };
        let (after, _) = solo.arrive(&ack);
        assert!(opt::feedback_of(&after.options).is_none());
        assert_eq!(solo.flow().taken_e0b, 1461);
        let cut = if before.is_multiple_of(4) { 8 } else { 0 };
        assert_eq!(after.options.len(), ack.options.len() - cut);
    }
}

#[test]
fn super_packets_beyond_64_kilobytes_count_in_full() {
    // BIG TCP: the length field is 0.
    let mut solo = Solo::with(params());
    let data = Packet {
        payload: vec![1; 150_000],
        ecn: ecn::CE,
        ..solo.peers(0, WIDE)
    };
    let mut frame = solo.route.reversed().build(&data);
    assert_eq!(frame[16..18], [0, 0]);
    let outcome = solo
        .host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    assert_eq!(outcome.segment.payload, 150_000);
    assert_eq!(
        (solo.flow().bytes_received, solo.flow().rcv_ceb),
        (150_000, 150_000)
    );
}

#[test]
fn the_dscp_stays() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    let packet = Packet {
        dscp: 46,
        ..pair.tenant(A).ack()
    };
    pair.transmit(A, &packet);
    pair.step();
    assert_eq!(pair.log.last().unwrap().packet.dscp, 46);
    assert_eq!(pair.sides[B].tenant.seen.last().unwrap().dscp, 46);
}

/// A frame that is no plain TCP passes, and a counter says why.
fn passes(frame: &[u8], counter: &str) {
    for direction in [Direction::FromTenant, Direction::ToTenant] {
        let mut host = Host::new(&policy());
        let mut after = frame.to_vec();
        let outcome = host.frame(&mut after, direction, 1);
        assert_eq!(
            (after, outcome.action, outcome.edits),
            (frame.to_vec(), Action::Pass, 0)
        );
        assert_eq!(host.counter(counter), Some(1), "{counter}");
        assert!(host.flow().is_none() && host.half_open(direction).is_none());
    }
}

fn syn_frame(route: Route) -> Vec<u8> {
    route.build(&Solo::new(&policy()).syn(&[&opt::mss(1460)]))
}

const V4: usize = 14;

#[test]
fn other_protocols_pass() {
    let v4 = Route::new("10.0.0.1:1", "10.0.0.2:2");
    let v6 = Route::new("[fd00::1]:1", "[fd00::2]:2");
    let changed = |route, at: usize, value: u8| {
        let mut frame = syn_frame(route);
        frame[at] = value;
        frame
    };
    passes(&changed(v4, V4 + 9, 17), "not_tcp");
    passes(&changed(v6, V4 + 6, 58), "not_tcp");
    passes(&changed(v4, 13, 6), "not_tcp"); // ARP
    passes(&changed(v4, V4 + 6, 0x20), "fragment"); // more fragments
    passes(&changed(v4, V4 + 7, 1), "fragment"); // an offset
    passes(&changed(v6, V4 + 6, 44), "fragment");
    passes(&changed(v4, V4, 0x46), "ip_options");
    for extension in [0, 43, 60, 51, 135] {
        passes(&changed(v6, V4 + 6, extension), "ip_options");
    }
    passes(&changed(v4, V4, 0x65), "malformed");
    passes(&changed(v6, V4, 0x40), "malformed");
    for bytes in [39, 20, 19, 5] {
        passes(&changed(v4, V4 + 3, bytes), "malformed"); // shorter than its headers
    }
    passes(&changed(v4, V4 + 2, 5), "malformed"); // longer than the frame
    passes(&changed(v4, V4 + 20 + 12, 0x40), "malformed"); // data offset 4
    passes(&changed(v4, V4 + 20 + 12, 0xf0), "malformed"); // beyond the packet
    let mut double = syn_frame(Route {
        vlan: Some(1),
        ..v4
    });
    double.splice(12..12, [0x88, 0xa8, 0, 1]);
    passes(&double, "double_tag");
}

#[test]
fn frames_cut_anywhere_pass() {
    for route in [
        Route::new("10.0.0.1:1", "10.0.0.2:2"),
        Route {
            vlan: Some(3),
            ..Route::new("[fd00::1]:1", "[fd00::2]:2")
        },
    ] {
        let frame = syn_frame(route);
        for length in 0..frame.len() {
            let mut host = Host::new(&policy());
            let mut cut = frame[..length].to_vec();
            let outcome = host.frame(&mut cut, Direction::FromTenant, 1);
            assert_eq!(cut, frame[..length]);
            assert_eq!((outcome.action, outcome.edits), (Action::Pass, 0));
            let counted: u64 = ["not_tcp", "malformed"]
                .iter()
                .map(|name| host.counter(name).unwrap())
                .sum();
            assert_eq!(counted, 1, "cut to {length}");
        }
    }
}

#[test]
fn wrong_checksums_stay_as_wrong_as_they_were() {
    let mut solo = Solo::with(params());
    solo.data(0, 1460);
    let ack = Packet {
        options: opt::feedback(1461, 0),
        ..solo.peers(1460, WIDE)
    };
    let mut frame = solo.route.reversed().build(&ack);
    frame[14 + 20 + 16] ^= 0x40;
    solo.host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    frame[14 + 20 + 16] ^= 0x40;
    assert!(
        std::panic::catch_unwind(|| wire::read(&frame)).is_ok() || {
            // A carry may have crossed the flipped bit; then it is still wrong by that bit.
            frame[14 + 20 + 16] ^= 0x40;
            std::panic::catch_unwind(|| wire::read(&frame)).is_err()
        }
    );
}

#[test]
fn both_zeros_of_a_checksum_are_right_and_edits_start_from_either() {
    let mut solo = Solo::with(params());
    solo.data(0, 1460);
    let route = solo.route.reversed();
    let checksum = V4 + 20 + 16;
    let mut ack = Packet {
        options: opt::feedback(1461, 0),
        ..solo.peers(1460, WIDE)
    };
    let frame = route.build(&ack);
    ack.urgent = u16::from_be_bytes([frame[checksum], frame[checksum + 1]]);
    let mut frame = route.build(&ack);
    assert_eq!(frame[checksum..checksum + 2], [0, 0]);
    frame[checksum..checksum + 2].fill(0xff);
    assert_eq!(wire::read(&frame).1, ack);
    solo.host
        .frame(&mut frame, Direction::ToTenant, solo.now_ns);
    assert_eq!(opt::feedback_of(&wire::read(&frame).1.options), None);
}

#[test]
fn another_connection_is_met_midway() {
    let mut solo = Solo::new(&policy());
    solo.route = Route::new("[fd00::1]:40000", "[fd00::2]:5001");
    solo.data(0, 100);
    assert_eq!(solo.flow().mode, MODE_WATCH);
}
