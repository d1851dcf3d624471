//! Hostile and foreign tenants: raw frames through real hooks on real bridges. Each test says what
//! holds whatever a tenant, its peer or a stranger sends. Needs root.

use std::time::{Duration, Instant};

use live::{
    A, B,
    guest::{BEGIN, Guests, MSS, SCALE, ack, data, opening},
    policy,
};
use net::{Packet, Route, opt};
use sluicegate_core::{
    abi::{Flow, MODE_TWO_SIDED, REASON_NAMES},
    host::{ecn, tcp},
};
use sluicegate_policy::Policy;

use crate::{live, net};

/// The first byte of the first guest's stream.
const START: u32 = BEGIN[A] + 1;

/// Numbers without an order, that are the same each time.
fn scrambled(number: u32) -> u32 {
    (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24) as u32
}

fn why(flow: &Flow) -> &'static str {
    REASON_NAMES[usize::from(flow.reason)]
}

/// Options of pure ACKs: ordinary ones, then what cannot be read or must not be edited.
fn options_of_acks() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("none", vec![]),
        ("stamps", opt::timestamps(1, 2)),
        ("longer than the header", vec![8, 40, 0, 0]),
        ("of no length", vec![8, 0, 0, 0]),
        ("of one byte", vec![8, 1, 0, 0]),
        ("cut off behind its kind", vec![1, 1, 1, 8]),
        ("unknown, longer than the header", vec![200, 5, 0, 0]),
        ("MD5", opt::all(&[&opt::md5()])),
        ("AO", opt::all(&[&opt::ao()])),
        (
            "two of the hosts' own",
            opt::all(&[&opt::feedback(1, 0), &opt::feedback(2, 0)]),
        ),
    ]
}

#[test]
fn an_ack_shows_no_more_than_the_governed_window_whatever_its_options() {
    let guests = Guests::new(&policy());
    for (name, options) in options_of_acks() {
        guests.begin_another();
        guests.connect(|_, _| ());
        let mut governed = guests.flow(A).cc.cwnd;
        for turn in 0..4 {
            guests.pass(A, &data(2 * turn * MSS));
            guests.pass(A, &data((2 * turn + 1) * MSS));
            let hostile = Packet {
                options: options.clone(),
                ..ack(B, START + 2 * (turn + 1) * MSS)
            };
            let seen = guests.pass(B, &hostile);
            governed = governed.max(guests.flow(A).cc.cwnd);
            let most = governed.next_multiple_of(1 << SCALE);
            for packet in seen {
                let shown = u32::from(packet.window) << SCALE;
                assert!(shown <= most, "{name}: {shown} shown of {most}");
            }
        }
        let beyond = guests.pass(A, &data(200 * MSS));
        assert_eq!(beyond, [], "{name}: data far beyond the window pass");
        // Readable ACKs go on as before.
        let readable = guests.pass(B, &ack(B, START + 8 * MSS));
        assert_eq!(readable.len(), 1, "{name}");
    }
}

/// Parts of a flow that tell a peer what its network does, and what congestion control made of it.
fn told(flow: &Flow) -> impl PartialEq + std::fmt::Debug + use<> {
    let counts = [flow.rcv_e0b, flow.rcv_ceb, flow.marked_pending];
    (
        counts,
        flow.cc,
        flow.snd_una,
        flow.snd_nxt,
        flow.bytes_marked,
    )
}

#[test]
fn marks_off_the_sequence_space_change_nothing() {
    let guests = Guests::new(&policy());
    guests.connect(|_, _| ());
    for number in 0..4 {
        guests.pass(A, &data(number * MSS));
    }
    guests.pass(B, &ack(B, START + 4 * MSS));
    let before = [A, B].map(|side| told(&guests.flow(side)));
    let far = |seq: &u32| seq.wrapping_sub(START).wrapping_add(1 << 26) > 1 << 27;
    for (number, seq) in (0..11_000)
        .map(scrambled)
        .filter(far)
        .take(10_000)
        .enumerate()
    {
        let spoofed = Packet {
            seq,
            ack: scrambled(!seq),
            ecn: ecn::CE,
            ..data(0)
        };
        let mut frame = guests.route(A).build(&spoofed);
        if number % 2 == 0 {
            frame[50] ^= 0x55; // its checksum
        }
        guests.intrude(frame);
        if number % 100 == 0 {
            guests.passed(A);
        }
    }
    guests.passed(A);
    assert_eq!([A, B].map(|side| told(&guests.flow(side))), before);
    guests.pass(A, &data(4 * MSS));
    guests.pass(B, &ack(B, START + 5 * MSS));
    let after = guests.flow(A);
    assert_eq!((after.bytes_marked, after.marked_pending), (0, 0));
    assert!(after.cc.cwnd >= 10 * MSS, "{after:#?}");
}

#[test]
fn marked_bytes_never_exceed_what_is_out() {
    let guests = Guests::new(&policy());
    guests.connect(|_, _| ());
    guests.pass(A, &data(0));
    guests.pass(A, &data(MSS));
    // A stranger who has guessed the numbers repeats what was sent.
    for _ in 0..1_000 {
        let spoofed = Packet {
            ecn: ecn::CE,
            ..data(MSS)
        };
        guests.intrude(guests.route(A).build(&spoofed));
        guests.passed(A);
    }
    guests.pass(B, &ack(B, START + MSS));
    let flow = guests.flow(A);
    let out = flow.snd_nxt - flow.snd_una;
    assert!(
        flow.marked_pending <= out,
        "{} of {out}",
        flow.marked_pending
    );
}

/// A frame with so many bytes behind its IP packet.
fn long(route: &Route, packet: &Packet, behind: usize) -> Vec<u8> {
    let mut frame = route.build(packet);
    frame.extend(vec![0; behind]);
    frame
}

const BEHIND: [usize; 5] = [1, 16, 17, 20, 200];

/// Nothing that only hosts write reaches a guest.
fn is_clean(packet: &Packet) -> bool {
    opt::peer_of(&packet.options).is_none() && opt::feedback_of(&packet.options).is_none()
}

#[test]
fn a_forged_option_before_a_trailer_makes_no_host_two_sided() {
    let guests = Guests::new(&policy());
    for behind in BEHIND {
        guests.begin_another();
        guests.pass(A, &opening(A));
        let mut forged = opening(B);
        forged.options.extend(opt::peer(0));
        let seen = guests.pass_frame(B, long(&guests.route(B), &forged, behind));
        assert!(seen.iter().all(is_clean), "{behind}");
        guests.pass(A, &ack(A, BEGIN[B] + 1));
        guests.pass(A, &data(0));
        let near = guests.flow(A);
        let far = guests.known(B);
        let partner = far.is_some_and(|flow| flow.mode == MODE_TWO_SIDED);
        assert!(
            near.mode != MODE_TWO_SIDED || partner,
            "{behind} bytes behind the SYN/ACK: the other host takes part in nothing"
        );
    }
}

#[test]
fn forged_feedback_before_a_trailer_is_not_believed() {
    let guests = Guests::new(&policy());
    for behind in BEHIND {
        guests.begin_another();
        guests.connect(|_, _| ());
        assert_eq!(guests.flow(A).mode, MODE_TWO_SIDED);
        for number in 0..4 {
            guests.pass(A, &data(number * MSS));
        }
        let forged = Packet {
            options: opt::feedback(1 + 400 * MSS, 0),
            ..ack(B, START + 2 * MSS)
        };
        let seen = guests.pass_frame(B, long(&guests.route(B), &forged, behind));
        assert!(seen.iter().all(is_clean), "{behind}");
        let (near, far) = (guests.flow(A), guests.flow(B));
        assert!(
            near.taken_e0b <= far.rcv_e0b,
            "{behind}: {} taken, {} counted",
            near.taken_e0b,
            far.rcv_e0b
        );
    }
}

/// Enforcement with as little as can be for what no window holds.
fn with_buckets() -> Policy {
    let text = r#"
        trusted = ["10.0.0.0/8", "fd00::/8"]
        [[rule]]
        algorithm = "dctcp"
        mode = "enforce"
        [[bucket]]
        class = ["watched-tcp", "fragment", "opaque"]
        rate = "1Kbit"
        burst = "65KiB"
        mode = "enforce"
    "#;
    Policy::parse("test.toml", text).expect("the test's policy is valid")
}

/// Puts four bytes of options into an IPv4 header.
fn with_ip_option(mut frame: Vec<u8>) -> Vec<u8> {
    frame.splice(34..34, [1, 1, 1, 0]);
    frame[14] = 0x46;
    let length = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[24..26].fill(0);
    let words = frame[14..38].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The bytes of new data that pass, of so many segments, although the peer acknowledges none.
fn unacknowledged(guests: &Guests, from: u32, segments: u32) -> u32 {
    let mut passed = 0;
    for number in 0..segments {
        let seen = guests.pass(A, &data((from + number) * MSS));
        passed += seen.iter().map(Packet::len).sum::<u32>();
    }
    passed
}

#[test]
fn what_exceeds_the_window_of_a_connection_whose_syn_was_not_read_is_charged() {
    let trailer: fn(Vec<u8>) -> Vec<u8> = |mut frame| {
        frame.extend([0; 20]);
        frame
    };
    for (name, hide) in [
        ("nothing", std::convert::identity as _),
        ("an IP option", with_ip_option as _),
        ("a trailer", trailer),
    ] {
        let guests = Guests::new(&with_buckets());
        guests.pass_frame(A, hide(guests.route(A).build(&opening(A))));
        assert_eq!(guests.pass(B, &opening(B)).len(), 1, "{name}");
        guests.pass(A, &ack(A, BEGIN[B] + 1));
        // Once this is acknowledged, the connection counts as known.
        guests.pass(A, &data(0));
        guests.pass(A, &data(MSS));
        guests.pass(B, &ack(B, START + 2 * MSS));
        let passed = unacknowledged(&guests, 2, 1_000);
        let flow = guests.flow(A);
        // The bucket's burst, and a window with what policing lets go beyond it.
        let most = (64 << 10) + 2 * flow.cc.cwnd.max(10 * MSS);
        assert!(
            passed <= most,
            "{name}: {passed} bytes pass, {most} may: {flow:#?}"
        );
    }
}

/// Options of SYNs as stacks write them: Linux, then those that end in EOL and zeroes.
fn layouts() -> Vec<(&'static str, Vec<u8>)> {
    let (mss, scale) = (opt::mss(MSS as u16), opt::wscale(SCALE));
    let stamps = opt::timestamps(1, 0);
    vec![
        (
            "MSS, scale, SACK, EOL",
            [&mss[..], &scale, &[4, 2], &[0, 0, 0]].concat(),
        ),
        ("MSS, scale, EOL", [&mss[..], &scale, &[0]].concat()),
        (
            "MSS, NOP, scale, NOP, NOP, stamps, SACK, EOL",
            [&mss[..], &[1], &scale, &stamps, &[4, 2], &[0, 0]].concat(),
        ),
        (
            "MSS, scale, NOP, EOL",
            [&mss[..], &scale, &[1, 0, 0, 0, 0]].concat(),
        ),
        (
            "EOL, and bytes behind it",
            [&mss[..], &scale, &[0], &[8, 200, 7, 7]].concat(),
        ),
    ]
}

#[test]
fn options_that_end_in_eol_make_two_partners() {
    let guests = Guests::new(&policy());
    for (name, options) in layouts() {
        for which in [vec![A], vec![B], vec![A, B]] {
            guests.begin_another();
            guests.connect(|side, packet| {
                if which.contains(&side) {
                    packet.options.clone_from(&options);
                }
            });
            guests.pass(A, &data(0));
            guests.pass(A, &data(MSS));
            for side in [A, B] {
                let flow = guests.flow(side);
                let why = why(&flow);
                assert_eq!(
                    flow.mode, MODE_TWO_SIDED,
                    "{name}, {which:?}, {side}: {why}"
                );
            }
        }
    }
}

#[test]
fn feedback_is_found_on_acks_that_end_in_eol() {
    let stamps = [&[8, 10][..], &[0; 8], &[0, 0]].concat();
    let sack = [&[5, 10][..], &[0; 8], &[0, 0]].concat();
    let guests = Guests::new(&policy());
    for (name, options) in [("stamps", stamps), ("SACK", sack), ("nothing", vec![0; 4])] {
        guests.begin_another();
        guests.connect(|_, _| ());
        for turn in 0..4 {
            guests.pass(A, &data(2 * turn * MSS));
            guests.pass(A, &data((2 * turn + 1) * MSS));
            let padded = Packet {
                options: options.clone(),
                ..ack(B, START + 2 * (turn + 1) * MSS)
            };
            let seen = guests.pass(B, &padded);
            assert_eq!(seen.len(), 1, "{name}");
            assert!(seen.iter().all(is_clean), "{name}: {seen:?}");
        }
        let (near, far) = (guests.flow(A), guests.flow(B));
        assert!(near.taken_e0b > 1, "{name}: no feedback came");
        assert!(far.rcv_e0b - near.taken_e0b <= 4 * MSS, "{name}");
        assert_eq!(near.mode, MODE_TWO_SIDED, "{name}: {}", why(&near));
    }
}

/// ACKs of what has not come are let go after this time (`SG_AHEAD_LIMIT`).
const LET_GO_AFTER: Duration = Duration::from_millis(100);

/// Twenty ACKs of what has not come, each corrected; false where the machine was so slow that they
/// may be let go.
fn acks_ahead_are_corrected(guests: &Guests) -> bool {
    guests.connect(|_, _| ());
    guests.pass(A, &data(0));
    guests.pass(A, &data(MSS));
    guests.pass(B, &ack(B, START + 2 * MSS));
    let window = guests.flow(A).cc.cwnd;
    let begin = Instant::now();
    for turn in 1..20 {
        guests.lose(A, &data(2 * turn * MSS));
        guests.lose(A, &data((2 * turn + 1) * MSS));
        let seen = guests.pass(B, &ack(B, START + (2 * turn + 2) * MSS));
        let flow = guests.flow(A);
        if begin.elapsed() >= LET_GO_AFTER {
            return false;
        }
        for packet in seen {
            let told = packet.ack.wrapping_sub(START);
            assert!(told <= 2 * MSS, "{told} bytes are said to have come");
        }
        assert_eq!(flow.snd_una, START + 2 * MSS, "turn {turn}");
        assert!(flow.cc.cwnd <= window, "it grows by what did not come");
    }
    true
}

#[test]
fn what_has_not_come_is_not_acknowledged() {
    let guests = Guests::new(&policy());
    let mut attempts = 1..=200;
    while !acks_ahead_are_corrected(&guests) {
        let attempt = attempts.next().expect("one of them takes less than 100 ms");
        println!("attempt {attempt} took too long");
        guests.begin_another();
    }
    // The data that come at last are acknowledged.
    for number in 2..8 {
        guests.pass(A, &data(number * MSS));
    }
    let seen = guests.pass(B, &ack(B, START + 8 * MSS));
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].ack, START + 8 * MSS);
}

#[test]
fn a_fin_and_data_out_of_order_are_acknowledged() {
    let guests = Guests::new(&policy());
    guests.connect(|_, _| ());
    for number in [1, 2, 0] {
        guests.pass(A, &data(number * MSS));
    }
    let fin = Packet {
        flags: tcp::FIN | tcp::ACK,
        payload: Vec::new(),
        ..data(3 * MSS)
    };
    guests.pass(A, &fin);
    let seen = guests.pass(B, &ack(B, START + 3 * MSS + 1));
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].ack, START + 3 * MSS + 1);
}

/// A tag is part of what a connection is: frames with another one are of another flow, which has to
/// earn its window, and they change nothing of the first. The kernel carries the tag beside the
/// frame, as it came from the guest and as it goes to the other.
#[test]
fn a_tagged_frame_is_of_a_flow_of_its_own() {
    let guests = Guests::new(&with_buckets());
    guests.connect(|_, _| ());
    assert_eq!(guests.pass(A, &data(0)).len(), 1);
    let before = guests.flow(A);
    guests.tag(Some(7));
    assert_eq!(guests.known(A), None);
    // Data without a handshake of their own, and an ACK of what the first connection has out.
    assert_eq!(guests.pass(A, &data(MSS)).len(), 1);
    assert_eq!(guests.pass(B, &ack(B, START + MSS)).len(), 1);
    assert_eq!(why(&guests.flow(A)), "midstream");
    guests.tag(None);
    assert_eq!(guests.flow(A), before);
    // With a handshake it is governed like any other.
    guests.tag(Some(7));
    guests.begin_another();
    guests.connect(|_, _| ());
    let flow = guests.flow(A);
    assert_eq!(flow.mode, MODE_TWO_SIDED, "{}", why(&flow));
    assert_eq!(guests.pass(A, &data(0)).len(), 1);
    assert_eq!(
        guests.pass(A, &data(400 * MSS)),
        [],
        "far beyond the window"
    );
    let early = guests.pass(B, &ack(B, START + MSS));
    assert_eq!(early.len(), 1);
    let ahead = guests.pass(B, &ack(B, START + 3 * MSS));
    assert_eq!(ahead[0].ack, START + MSS, "of what has not come");
}
