//! Devices that drop what hosts add to packets: handshakes go on without it.

use sluicegate_core::{
    abi::{MODE_ONE_SIDED, MODE_TWO_SIDED, Params, REASON_NAMES, RULE_OBSERVE},
    host::{ecn, edit, tcp},
};

use crate::net::{
    A, B, Fate, Packet, Pair, Route, Solo, Tenant, opt, pair::Crossing, params, policy, policy_of,
};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;

fn reason(pair: &Pair, side: usize) -> &'static str {
    REASON_NAMES[usize::from(pair.flow(side).reason)]
}

fn has_option(packet: &Packet) -> bool {
    opt::find(&packet.options, opt::EXPERIMENT).is_some()
}

fn is_syn(packet: &Packet) -> bool {
    packet.has(tcp::SYN) && !packet.has(tcp::ACK)
}

fn is_syn_ack(packet: &Packet) -> bool {
    packet.has(tcp::SYN) && packet.has(tcp::ACK)
}

/// A network that drops what `hit` selects.
fn dropping(hit: impl Fn(&Packet) -> bool + 'static) -> Pair {
    let mut pair = Pair::new(&policy());
    drop_all(&mut pair, hit);
    pair
}

fn drop_all(pair: &mut Pair, hit: impl Fn(&Packet) -> bool + 'static) {
    pair.set_fate(move |crossing: &Crossing| match hit(&crossing.packet) {
        true => Fate::Drop,
        false => Fate::Deliver,
    });
}

/// SYNs at the times of Linux until one is answered; how many it took.
fn connect(pair: &mut Pair) -> usize {
    let begun = |pair: &Pair| pair.counter(A, "flow_one_sided") + pair.counter(A, "flow_two_sided");
    let before = begun(pair);
    for tries in 1..=9 {
        let syn = pair.tenant(A).syn();
        pair.transmit(A, &syn);
        pair.run();
        if begun(pair) > before {
            return tries;
        }
        pair.wait(SECOND_NS << (tries - 1));
    }
    panic!("it never connects");
}

/// Another connection of the same two tenants.
fn again(pair: &mut Pair, port: u16) -> usize {
    pair.set_route(Route::new(&format!("10.1.0.1:{port}"), "10.2.0.1:5001"));
    for side in [A, B] {
        let iss = pair.tenant(side).iss.wrapping_add(1_000_000);
        *pair.tenant(side) = Tenant::new(iss);
    }
    pair.log.clear();
    connect(pair)
}

#[test]
fn the_third_syn_leaves_as_the_tenant_wrote_it() {
    for hit in [
        |packet: &Packet| is_syn(packet) && has_option(packet),
        |packet: &Packet| is_syn(packet) && packet.ecn != ecn::NOT_ECT,
    ] {
        let mut pair = dropping(hit);
        let plain = pair.tenant(A).syn();
        assert_eq!(connect(&mut pair), 3);
        let third = pair.sent(A).filter(|packet| is_syn(packet)).nth(2).unwrap();
        assert_eq!((third, third.ecn), (&plain, ecn::NOT_ECT));
        assert_eq!(pair.flow(A).mode, MODE_ONE_SIDED);
        assert_eq!(reason(&pair, A), "option-dropped");
        assert_eq!(pair.counter(A, "syn_fallback"), 1);
        assert_eq!(pair.counter(A, "option_dropped"), 1);
        pair.transfer(A, 300_000);
        pair.transfer(B, 300_000);
    }
}

#[test]
fn the_third_try_of_a_syn_ack_leaves_as_the_tenant_wrote_it() {
    for hit in [
        |packet: &Packet| is_syn_ack(packet) && has_option(packet),
        |packet: &Packet| is_syn_ack(packet) && packet.ecn != ecn::NOT_ECT,
    ] {
        let mut pair = dropping(hit);
        let syn = pair.tenant(A).syn();
        pair.transmit(A, &syn);
        pair.run();
        for _ in 0..2 {
            assert_eq!(pair.flow(B).mode, MODE_TWO_SIDED);
            pair.wait(SECOND_NS);
            let again = pair.tenant(B).syn_ack();
            pair.transmit(B, &again);
            pair.run();
        }
        assert!(pair.sent(B).take(2).all(has_option));
        assert!(!has_option(pair.sent(B).nth(2).unwrap()));
        assert_eq!([pair.flow(A).mode, pair.flow(B).mode], [MODE_ONE_SIDED; 2]);
        assert_eq!(
            [reason(&pair, A), reason(&pair, B)],
            ["peer-silent", "option-dropped"]
        );
        assert_eq!(pair.counter(B, "option_dropped"), 1, "its ACK has come");
        pair.transfer(A, 300_000);
        pair.transfer(B, 300_000);
    }
}

#[test]
fn what_the_first_syn_ack_showed_stands_when_the_third_begins_the_flow_anew() {
    let mut pair = Pair::new(&policy());
    let syn = pair.tenant(A).syn();
    pair.set_fate(
        |crossing| match crossing.from == A && !crossing.packet.has(tcp::SYN) {
            true => Fate::Drop,
            false => Fate::Deliver,
        },
    );
    pair.transmit(A, &syn);
    pair.run();
    pair.send(A, 100_000);
    pair.run();
    let before = *pair.flow(A);
    assert_eq!(before.mode, MODE_TWO_SIDED);
    assert!(before.snd_nxt > before.snd_una + 10_000);
    pair.tenant(B).window = 3000;
    for _ in 0..2 {
        pair.wait(SECOND_NS);
        let again = pair.tenant(B).syn_ack();
        pair.transmit(B, &again);
        pair.run();
    }
    let after = pair.flow(A);
    assert_eq!(after.mode, MODE_ONE_SIDED);
    assert_eq!(
        after.edge, before.edge,
        "the tenant goes by what it was shown"
    );
    assert_eq!(after.snd_nxt, before.snd_nxt);
    pair.set_fate(|_| Fate::Deliver);
    pair.finish();
    assert_eq!(pair.counter(A, "policed"), 0);
    assert_eq!(pair.tenant(B).received, 100_000);
}

#[test]
fn further_connections_begin_without_it_and_then_try_again() {
    let mut pair = dropping(|packet| is_syn(packet) && has_option(packet));
    assert_eq!(connect(&mut pair), 3);
    for port in 41_000..41_003 {
        assert_eq!(again(&mut pair, port), 1);
        assert_eq!(reason(&pair, A), "option-dropped");
        assert!(!pair.sent(A).any(has_option));
    }
    assert_eq!(pair.counter(A, "option_dropped"), 1, "that is no news");
    // Lost again, it is remembered for twice as long.
    pair.wait(MINUTE_NS);
    assert_eq!(again(&mut pair, 42_000), 3);
    pair.wait(MINUTE_NS + 30 * SECOND_NS);
    assert_eq!(again(&mut pair, 42_001), 1);
    pair.wait(MINUTE_NS);
    // The device has gone.
    drop_all(&mut pair, |_| false);
    assert_eq!(again(&mut pair, 42_002), 1);
    assert_eq!([pair.flow(A).mode, pair.flow(B).mode], [MODE_TWO_SIDED; 2]);
    // What was is forgotten: a single lost SYN is repeated with the option.
    let first = std::cell::Cell::new(true);
    pair.set_fate(
        move |crossing| match is_syn(&crossing.packet) && first.take() {
            true => Fate::Drop,
            false => Fate::Deliver,
        },
    );
    assert_eq!(again(&mut pair, 42_003), 2);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
}

#[test]
fn syn_acks_to_such_a_peer_begin_without_it() {
    let mut pair = dropping(|packet| is_syn_ack(packet) && has_option(packet));
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    pair.run();
    for _ in 0..2 {
        pair.wait(SECOND_NS);
        let again = pair.tenant(B).syn_ack();
        pair.transmit(B, &again);
        pair.run();
    }
    assert_eq!(again(&mut pair, 41_000), 1);
    assert_eq!(reason(&pair, B), "option-dropped");
    // Its tenant may still agree on ECN with its peer: the offer was not hidden from it.
    pair.tenant(A).offers.ecn = true;
    let (mut syn, route) = (pair.tenant(A).syn(), pair.sides[B].route);
    syn.seq = syn.seq.wrapping_add(77);
    pair.set_route(route.reversed());
    pair.transmit(A, &syn);
    pair.step();
    assert!(pair.tenant(B).seen.last().unwrap().has(tcp::ECE | tcp::CWR));
}

/// Clients may give up after the second SYN; the next connection then needs no third one.
#[test]
fn clients_that_give_up_early_connect_as_well() {
    let mut pair = dropping(|packet| is_syn(packet) && has_option(packet));
    for _ in 0..2 {
        let syn = pair.tenant(A).syn();
        pair.transmit(A, &syn);
        pair.wait(SECOND_NS);
    }
    assert_eq!(again(&mut pair, 41_000), 2);
    assert_eq!(reason(&pair, A), "option-dropped");
    assert_eq!(again(&mut pair, 41_001), 1);
}

#[test]
fn a_peer_that_is_down_is_not_taken_for_such_a_path() {
    let mut pair = dropping(|_| true);
    for _ in 0..5 {
        let syn = pair.tenant(A).syn();
        pair.transmit(A, &syn);
        pair.wait(SECOND_NS);
    }
    assert_eq!(pair.counter(A, "option_dropped"), 0);
    drop_all(&mut pair, |_| false);
    assert_eq!(again(&mut pair, 41_000), 1);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
}

/// A listener without room for one more connection repeats its SYN/ACK to a peer that has it.
#[test]
fn a_peer_that_has_answered_keeps_its_partner() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    for _ in 0..4 {
        let again = Packet {
            ack: pair.tenant(A).iss.wrapping_add(1),
            ..pair.tenant(B).syn_ack()
        };
        pair.transmit(B, &again);
        pair.run();
    }
    assert_eq!([pair.flow(A).mode, pair.flow(B).mode], [MODE_TWO_SIDED; 2]);
    assert!(
        pair.sent(B)
            .filter(|packet| is_syn_ack(packet))
            .all(has_option)
    );
    pair.transfer(A, 300_000);
}

/// Another number is another connection: its tuple is used again, with as many tries.
#[test]
fn a_tuple_that_is_used_again_has_its_own_tries() {
    let mut pair = dropping(|_| true);
    for number in 0..6 {
        let mut syn = pair.tenant(A).syn();
        syn.seq = syn.seq.wrapping_add(number * 1000);
        pair.transmit(A, &syn);
        pair.wait(SECOND_NS);
    }
    assert!(pair.sent(A).all(has_option));
}

#[test]
fn a_repeated_syn_without_the_data_of_the_first_counts_as_one() {
    let mut solo = Solo::new(&policy());
    let with_data = Packet {
        payload: vec![7; 100],
        ..solo.syn(&[&opt::mss(1460)])
    };
    let without = solo.syn(&[&opt::mss(1460)]);
    let sent = [&with_data, &without, &without].map(|syn| {
        solo.now_ns += SECOND_NS;
        has_option(&solo.send(syn).0)
    });
    assert_eq!(sent, [true, true, false]);
}

/// A tenant that repeats itself before an answer is due does not choose to be governed alone.
#[test]
fn tries_of_the_same_moment_are_one() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460)]);
    for _ in 0..9 {
        assert!(has_option(&solo.send(&syn).0));
        solo.now_ns += 1_000_000;
    }
    solo.now_ns += SECOND_NS;
    assert!(has_option(&solo.send(&syn).0), "the second try");
    let mut pair = Pair::new(&policy());
    pair.set_fate(|crossing| match is_syn_ack(&crossing.packet) {
        true => Fate::Drop,
        false => Fate::Deliver,
    });
    let syn = pair.tenant(A).syn();
    pair.transmit(A, &syn);
    pair.run();
    pair.wait(SECOND_NS);
    // A timer and the peer's repeated SYN bring two each time.
    for _ in 0..3 {
        let again = pair.tenant(B).syn_ack();
        pair.transmit(B, &again);
        pair.run();
    }
    assert!(pair.sent(B).all(has_option));
    assert_eq!(pair.flow(B).mode, MODE_TWO_SIDED);
}

/// A pool of connections that meets one outage learns one thing of the path.
#[test]
fn what_connections_of_the_same_moment_lose_counts_once() {
    let mut pair = dropping(|packet| is_syn(packet) && has_option(packet));
    // All have begun before the first of them falls back.
    let syns: Vec<Packet> = (0..6)
        .map(|number| {
            let mut syn = pair.tenant(A).syn();
            syn.seq = syn.seq.wrapping_add(number * 1_000_000);
            syn
        })
        .collect();
    let route =
        |number: usize| Route::new(&format!("10.1.0.1:{}", 41_000 + number), "10.2.0.1:5001");
    for _ in 0..2 {
        for (number, syn) in syns.iter().enumerate() {
            pair.set_route(route(number));
            pair.transmit(A, syn);
        }
        pair.wait(SECOND_NS);
    }
    for (number, syn) in syns.iter().enumerate() {
        pair.set_route(route(number));
        for side in [A, B] {
            *pair.tenant(side) = Tenant::new(syn.seq);
        }
        pair.transmit(A, syn);
        pair.run();
    }
    drop_all(&mut pair, |_| false);
    pair.wait(MINUTE_NS + SECOND_NS);
    assert_eq!(again(&mut pair, 42_000), 1);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED, "after a minute");
}

/// Both open at once: each side's SYNs and SYN/ACKs have tries of their own.
#[test]
fn simultaneous_opens_count_both() {
    let mut solo = Solo::new(&policy());
    let own = solo.syn(&[&opt::mss(1460)]);
    assert!(has_option(&solo.send(&own).0));
    let theirs = Packet {
        seq: solo.peers(0, 0).seq.wrapping_sub(1),
        flags: tcp::SYN,
        ack: 0,
        options: opt::all(&[&opt::mss(1460), &opt::peer(0)]),
        ..Packet::default()
    };
    let (shown, _) = solo.arrive(&theirs);
    assert!(!has_option(&shown));
    let answer = Packet {
        flags: tcp::SYN | tcp::ACK,
        ack: theirs.seq.wrapping_add(1),
        ..own
    };
    let sent = [0; 3].map(|_| {
        solo.now_ns += SECOND_NS;
        has_option(&solo.send(&answer).0)
    });
    assert_eq!(sent, [true, true, false]);
}

/// A device that removes the option and the codepoint lets the handshake pass.
#[test]
fn an_option_that_is_removed_is_no_fallback() {
    for hit in [|packet: &Packet| packet.has(tcp::SYN), is_syn, is_syn_ack] {
        let mut pair = Pair::new(&policy());
        pair.set_fate(move |crossing| match hit(&crossing.packet) {
            true => Fate::Strip,
            false => Fate::Deliver,
        });
        for port in [40_000, 41_000] {
            assert_eq!(again(&mut pair, port), 1);
            assert!(has_option(pair.sent(A).next().unwrap()), "it is offered");
            assert_eq!(reason(&pair, A), "peer-silent");
            pair.transfer(A, 300_000);
            pair.transfer(B, 300_000);
        }
        assert_eq!(pair.counter(A, "option_dropped"), 0);
        assert_eq!(pair.counter(B, "option_dropped"), 0);
    }
}

/// Both directions drop what has the option.
#[test]
fn a_device_that_drops_both_ways_delays_one_way_only() {
    let mut pair = dropping(|packet| packet.has(tcp::SYN) && has_option(packet));
    assert_eq!(connect(&mut pair), 3);
    assert_eq!([pair.flow(A).mode, pair.flow(B).mode], [MODE_ONE_SIDED; 2]);
    pair.transfer(A, 300_000);
    assert_eq!(again(&mut pair, 41_000), 1);
}

/// Tenants that agree on ECN have it: nothing of it is the host's.
#[test]
fn the_tenants_own_ecn_survives_the_fallback() {
    let mut pair = dropping(|packet| is_syn(packet) && has_option(packet));
    for side in [A, B] {
        pair.tenant(side).offers.ecn = true;
    }
    assert_eq!(connect(&mut pair), 3);
    let third = pair.sent(A).filter(|packet| is_syn(packet)).nth(2).unwrap();
    assert!(third.has(tcp::ECE | tcp::CWR) && third.ecn == ecn::NOT_ECT);
    assert!(pair.tenant(B).seen[0].has(tcp::ECE | tcp::CWR));
    pair.transfer(A, 300_000);
}

/// Of data that a path drops because they are ECN-capable, the second repetition is not.
#[test]
fn data_that_are_dropped_for_their_codepoint_are_repeated_without() {
    let mut pair = dropping(|packet| packet.len() > 0 && packet.ecn != ecn::NOT_ECT);
    pair.connect();
    assert_eq!([pair.flow(A).mode, pair.flow(B).mode], [MODE_TWO_SIDED; 2]);
    pair.transfer(A, 300_000);
    assert_eq!(reason(&pair, A), "ect-dropped");
    assert_eq!(pair.counter(A, "ect_dropped"), 1);
    assert!(pair.flow(A).timeouts <= 3, "{}", pair.flow(A).timeouts);
    assert_eq!(again(&mut pair, 41_000), 1);
    assert_eq!(reason(&pair, A), "option-dropped", "it is remembered");
}

/// A path that begins to do so in midstream: feedback counts nothing of what gets through.
#[test]
fn a_path_that_begins_to_drop_ecn_capable_data_ends_the_partnership() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 300_000);
    drop_all(&mut pair, |packet| {
        packet.len() > 0 && packet.ecn != ecn::NOT_ECT
    });
    pair.transfer(A, 300_000);
    assert_eq!(pair.flow(A).mode, MODE_ONE_SIDED);
    assert_eq!(pair.counter(A, "ect_dropped"), 0);
}

/// An outage is none of it: what was sent before has been counted.
#[test]
fn an_outage_in_midstream_keeps_the_partnership() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 300_000);
    let until_ns = pair.now_ns + 5 * SECOND_NS;
    pair.set_fate(move |crossing| match crossing.sent_ns < until_ns {
        true => Fate::Drop,
        false => Fate::Deliver,
    });
    pair.transfer(A, 300_000);
    assert!(pair.flow(A).timeouts >= 3);
    assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
}

/// The feedback of pure ACKs may be dropped: the sender's host then goes on alone.
#[test]
fn feedback_that_is_dropped_ends_the_partnership() {
    let mut pair = Pair::new(&policy_of(Params {
        window_cap: 50_000,
        ..params()
    }));
    drop_all(&mut pair, |packet| {
        opt::find(&packet.options, opt::FEEDBACK).is_some()
    });
    pair.connect();
    pair.transfer(A, 1_000_000);
    assert_eq!(reason(&pair, A), "feedback-stopped");
}

/// Under a rule that observes nothing is added, so nothing is left out.
#[test]
fn nothing_is_noted_where_nothing_is_added() {
    let mut solo = Solo::new(&policy_of(Params {
        mode: RULE_OBSERVE,
        ..params()
    }));
    for _ in 0..4 {
        let (sent, outcome) = solo.send(&solo.syn(&[&opt::mss(1460)]));
        assert!(!has_option(&sent) && outcome.edits & edit::ECN == 0);
    }
    assert_eq!(solo.counter("syn_fallback"), 0);
}
