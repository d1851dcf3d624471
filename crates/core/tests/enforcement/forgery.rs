//! Forgeries of tenants and outsiders: options of hosts, resets, handshakes. None of them changes a
//! flow; a counter tells of it.

use sluicegate_core::{
    abi::{FLOW_CLOSED, Flow, MODE_ONE_SIDED, MODE_TWO_SIDED},
    host::{Action, ecn, tcp},
};

use crate::net::{Packet, Route, Solo, opt, policy};

const WIDE: u16 = u16::MAX;

/// The flow but for when it was seen last.
fn state(solo: &Solo) -> Flow {
    Flow {
        seen_ns: 0,
        ..*solo.flow()
    }
}

/// After some rounds, with data out: offset of the next byte.
fn in_the_middle(mut solo: Solo) -> (Solo, u32) {
    let mut at = 0;
    for _ in 0..3 {
        at = solo.round(at, 1460, false, WIDE);
    }
    solo.data(at, 1460);
    solo.data(at + 1460, 1460);
    (solo, at + 2920)
}

fn two_sided() -> (Solo, u32) {
    let (solo, at) = in_the_middle(Solo::two_sided(&policy(), 1460, 10));
    assert_eq!(solo.flow().mode, MODE_TWO_SIDED);
    (solo, at)
}

/// A flow with a peer outside the trusted prefixes, that offered itself as a host.
fn with_an_outsider() -> (Solo, u32) {
    let mut solo = Solo::new(&policy());
    solo.route = Route::new("10.1.0.1:40000", "192.0.2.7:443");
    solo.handshake(&[&opt::mss(1460), &opt::wscale(10), &opt::peer(0)]);
    let (solo, at) = in_the_middle(solo);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    (solo, at)
}

/// Counters as an attacker would choose them.
const WILD: [(u32, u32); 6] = [
    (0, 0),
    (1, 0xff_ffff),
    (0xff_ffff, 0),
    (0xff_ffff, 0xff_ffff),
    (0x80_0000, 0x80_0000),
    (0x7f_ffff, 1),
];

/// All that a tenant could write where hosts write.
fn claims() -> Vec<Vec<u8>> {
    let mut claims: Vec<Vec<u8>> = WILD
        .iter()
        .map(|(e0b, ceb)| opt::feedback(*e0b, *ceb))
        .collect();
    for flags in [0, 1, 0xff] {
        claims.push(opt::peer(flags));
        claims.push([opt::feedback(0xff_ffff, 0xff_ffff), opt::peer(flags)].concat());
    }
    claims
}

/// Passes `forged` to a copy of the flow and `honest` to another; both are the same afterwards.
fn means_the_same(solo: &Solo, forged: &Packet, honest: &Packet, out: bool) -> (Packet, Solo) {
    let (mut deceived, mut plain) = (solo.clone(), solo.clone());
    let (sent, outcome) = match out {
        true => deceived.send(forged),
        false => deceived.arrive(forged),
    };
    assert_eq!(outcome.action, Action::Pass, "{forged:?}");
    match out {
        true => plain.send(honest),
        false => plain.arrive(honest),
    };
    assert_eq!(state(&deceived), state(&plain), "{forged:?}");
    (sent, deceived)
}

#[test]
fn what_a_tenant_claims_to_be_a_hosts_is_not_believed() {
    let (solo, at) = two_sided();
    for claim in claims() {
        let honest = solo.own(at, 0);
        let forged = Packet {
            options: claim.clone(),
            ..honest.clone()
        };
        let (sent, after) = means_the_same(&solo, &forged, &honest, true);
        let Some(claimed) = opt::feedback_of(&claim) else {
            continue;
        };
        assert_eq!(after.counter("forged"), solo.counter("forged") + 1);
        assert_eq!(
            after.counter("feedback_taken"),
            solo.counter("feedback_taken")
        );
        let told = opt::feedback_of(&sent.options);
        assert!(
            told.is_none() || told == Some((1, 0)),
            "{claimed:?}: {told:?}"
        );
    }
}

#[test]
fn a_tenant_does_not_answer_for_a_host_that_fell_back() {
    let mut solo = Solo::two_sided(&policy(), 1460, 10);
    let mut at = 0;
    while solo.flow().mode == MODE_TWO_SIDED {
        solo.data(at, 1460);
        at += 1460;
        let ack = solo.peers(at, WIDE);
        solo.arrive(&ack);
    }
    for claim in claims() {
        let honest = solo.own(at, 0);
        let forged = Packet {
            options: claim.clone(),
            ..honest.clone()
        };
        let (sent, after) = means_the_same(&solo, &forged, &honest, true);
        assert_eq!(opt::feedback_of(&sent.options), None);
        let found = u64::from(opt::feedback_of(&claim).is_some());
        assert_eq!(after.counter("forged"), solo.counter("forged") + found);
    }
}

#[test]
fn what_comes_from_outside_the_trusted_prefixes_is_not_believed() {
    let (solo, at) = with_an_outsider();
    assert_eq!(
        (solo.flow().bytes_marked, solo.counter("feedback_taken")),
        (0, 0)
    );
    for claim in claims() {
        for ack in [at - 2920, at] {
            let honest = solo.peers(ack, 60_000);
            let forged = Packet {
                options: claim.clone(),
                ecn: ecn::CE,
                ..honest.clone()
            };
            means_the_same(&solo, &forged, &honest, false);
        }
    }
}

/// Two-sided, but counters that no window explains: older than what was taken, by all that is
/// known.
#[test]
fn wild_counters_of_a_trusted_host_are_no_marks() {
    let (solo, at) = two_sided();
    for (e0b, ceb) in [
        (solo.e0b, 0x80_0001),
        (solo.e0b + 0x90_0000, 0),
        (solo.e0b, 0xff_ffff),
    ] {
        let honest = solo.peers(at - 2920, 60_000);
        let forged = Packet {
            options: opt::feedback(e0b & 0xff_ffff, ceb),
            ..honest.clone()
        };
        let (_, after) = means_the_same(&solo, &forged, &honest, false);
        assert_eq!(
            after.counter("feedback_stale"),
            solo.counter("feedback_stale") + 1
        );
    }
}

/// Resets as a sender beside the path would write them: anywhere in sequence space.
fn resets(solo: &Solo, at: u32) -> Vec<Packet> {
    let fits = solo.peers(at, 0);
    let mut resets = Vec::new();
    for offset in [0, 1, 1000, 1 << 16, 1 << 30, 1 << 31, u32::MAX] {
        for flags in [tcp::RST, tcp::RST | tcp::ACK] {
            resets.push(Packet {
                flags,
                seq: fits.seq.wrapping_add(offset),
                ack: fits.ack.wrapping_add(offset),
                ..fits.clone()
            });
        }
    }
    resets
}

#[test]
fn a_reset_that_ends_nothing_changes_nothing() {
    for (solo, at) in [two_sided(), with_an_outsider()] {
        for rst in resets(&solo, at) {
            let (mut reset, mut left) = (solo.clone(), solo.clone());
            reset.arrive(&rst);
            // That the peer may have ended it is remembered until the next packet.
            let noted = Flow {
                flags: reset.flow().flags & !FLOW_CLOSED,
                ..state(&reset)
            };
            assert_eq!(noted, state(&left), "{rst:?}");
            left.now_ns = reset.now_ns;
            reset.data(at, 1460);
            left.data(at, 1460);
            assert_eq!(state(&reset), state(&left), "{rst:?}");
            let outlived = solo.counter("rst_outlived");
            assert_eq!(reset.counter("rst_outlived"), outlived + 1);
            assert_eq!(left.counter("rst_outlived"), outlived);
        }
    }
}

#[test]
fn a_tenants_reset_beyond_what_it_sent_only_counts() {
    let (mut solo, at) = two_sided();
    let before = state(&solo);
    let rst = Packet {
        flags: tcp::RST,
        ..solo.own(at + 1, 0)
    };
    solo.send(&rst);
    assert_eq!(state(&solo), before);
    assert_eq!(solo.counter("rst_outlived"), 1);
}

#[test]
fn handshakes_that_answer_nothing_leave_a_flow_alone() {
    for (mut solo, at) in [two_sided(), with_an_outsider()] {
        let before = state(&solo);
        let answer = solo.syn_ack(&[&opt::mss(100), &opt::wscale(0), &opt::peer(0)]);
        let syn = Packet {
            flags: tcp::SYN,
            ack: 0,
            ..answer.clone()
        };
        let elsewhere = Packet {
            ack: answer.ack.wrapping_add(at),
            ..answer.clone()
        };
        for forged in [syn, elsewhere, answer] {
            solo.arrive(&forged);
            assert_eq!(state(&solo), before, "{forged:?}");
        }
    }
}

/// Data with a right ACK number, so far from the data that have come.
#[test]
fn sixteen_mebibytes_or_a_window_away_is_another_connection() {
    const FAR: u32 = 16 << 20;
    let strangers = |wide: bool, away: u32| {
        let (mut solo, at) = two_sided();
        if wide {
            let own = Packet {
                window: WIDE,
                ..solo.own(at, 0)
            };
            solo.send(&own);
        }
        let data = Packet {
            seq: solo.peer_start.wrapping_add(away),
            payload: vec![1],
            ..solo.peers(at - 2920, WIDE)
        };
        solo.arrive(&data);
        solo.counter("stranger")
    };
    let before = 0_u32.wrapping_sub(FAR);
    let limits = [(before, before.wrapping_sub(1)), (FAR, FAR + 1)];
    for (near, far) in limits {
        assert_eq!((strangers(false, near), strangers(false, far)), (0, 1));
    }
    // A window of 64 MiB less one unit.
    let edge = u32::from(WIDE) << 10;
    assert_eq!((strangers(true, edge), strangers(true, edge + 1)), (0, 1));
}

/// Of the tenant's window, which is 500 KiB, or the one before.
#[test]
fn feedback_from_outside_the_window_is_not_taken() {
    for (away, taken) in [
        (510_000, true),
        (515_000, false),
        (u32::MAX - 515_000, false),
    ] {
        let (mut solo, at) = two_sided();
        let counts = (solo.e0b + 1460) & 0xff_ffff;
        let ack = Packet {
            seq: solo.peer_start.wrapping_add(away),
            options: opt::feedback(counts, 0),
            ..solo.peers(at - 2920, WIDE)
        };
        solo.arrive(&ack);
        assert_eq!(solo.flow().taken_e0b == counts, taken, "{away}");
    }
}
