//! A connection that begins anew with the ports of one that is known: its ACKs are never given the
//! numbers of the old one.

use sluicegate_core::{
    abi::MODE_ONE_SIDED,
    host::{Action, edit, tcp},
};

use crate::{
    enforcement::hostile::{MSS, WIDE, acknowledges, arrives},
    net::{Packet, Solo, opt, params, policy},
};

/// A connection whose tuple begins a new life, its numbers so far beyond those of the old one.
/// Its SYN was not read.
fn anew(own: u32, peers: u32) -> Solo {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 1460);
    acknowledges(&mut solo, MSS);
    solo.data(0, 1460);
    solo.e0b += MSS;
    solo.ack(MSS, WIDE);
    solo.now_ns += 1_000_000_000;
    solo.start = solo.start.wrapping_add(own);
    solo.peer_start = solo.peer_start.wrapping_add(peers);
    solo
}

/// How far ahead of an old life's numbers those of a new one may be: clocks make them.
const ANEW: [u32; 6] = [2_000, 70_000, 16 << 20, 900_000_000, 1 << 31, 4_000_000_000];

/// Data go both ways, as in any connection: whatever the tenant sends leaves as it is.
fn goes_on(solo: &mut Solo, what: &str) {
    let mut at = 0;
    for i in 0..200 {
        let data = Packet {
            ack: solo.peer_start.wrapping_add(i * MSS),
            ..solo.own(at, 1460)
        };
        let (after, outcome) = solo.send(&data);
        assert_eq!(
            (after.ack, outcome.action),
            (data.ack, Action::Pass),
            "{what}"
        );
        at += MSS;
        arrives(solo, i * MSS, 1460);
        let (_, edits) = acknowledges(solo, (i + 1) * MSS);
        assert_eq!(edits & edit::ACK, 0, "{what}: {i}");
        let ack = Packet {
            seq: solo.peer_start.wrapping_add((i + 1) * MSS),
            ..solo.peers(at, WIDE)
        };
        solo.arrive(&ack);
        assert_eq!(
            solo.flow().snd_una,
            solo.start.wrapping_add(at),
            "{what}: {i}"
        );
    }
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED, "{what}");
    assert_eq!(solo.counter("stranger"), 0, "{what}");
    // It is held to what comes, as the old life was.
    let early = Packet {
        ack: solo.peer_start.wrapping_add(1_000 * MSS),
        ..solo.own(at, 0)
    };
    let (after, _) = solo.send(&early);
    assert_eq!(after.ack, solo.peer_start.wrapping_add(200 * MSS), "{what}");
}

/// Of a client: its first ACK leaves as it is, or its peer would reset the connection.
#[test]
fn a_new_life_of_a_client_may_acknowledge_what_comes() {
    for (own, peers) in ANEW.iter().flat_map(|own| ANEW.map(|peers| (*own, peers))) {
        let mut solo = anew(own, peers);
        let answer = solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10)]);
        solo.arrive(&answer);
        // The old life's packets may still be on their way.
        let late = Packet {
            seq: answer.seq.wrapping_sub(peers),
            ..solo.peers(0_u32.wrapping_sub(own), WIDE)
        };
        solo.arrive(&late);
        let (after, edits) = acknowledges(&mut solo, 0);
        assert_eq!(
            (after.ack, edits & edit::ACK),
            (solo.peer_start, 0),
            "{own} {peers}"
        );
        goes_on(&mut solo, &format!("{own} {peers}"));
    }
}

/// Of a server, and of one that must wait for its client's first data.
#[test]
fn a_new_life_of_a_server_may_acknowledge_what_comes() {
    for (own, peers) in ANEW.iter().flat_map(|own| ANEW.map(|peers| (*own, peers))) {
        let mut solo = anew(own, peers);
        let answer = Packet {
            flags: tcp::SYN | tcp::ACK,
            seq: solo.start.wrapping_sub(1),
            options: opt::all(&[&opt::mss(1460), &opt::wscale(10)]),
            ..solo.own(0, 0)
        };
        solo.send(&answer);
        let ack = solo.peers(0, WIDE);
        solo.arrive(&ack);
        goes_on(&mut solo, &format!("{own} {peers}"));
    }
}

/// A SYN/ACK is lost on its way to the client, whose SYN is answered again with another number.
#[test]
fn another_answer_to_the_same_syn_breaks_nothing() {
    for peers in ANEW {
        let mut solo = Solo::new(&policy());
        let options: [&[u8]; 3] = [&opt::mss(1460), &opt::wscale(10), &opt::peer(0)];
        for again in [0, peers] {
            solo.now_ns += 1_000_000_000;
            solo.peer_start = solo.peer_start.wrapping_add(again);
            let syn = solo.syn(&[&opt::mss(1460), &opt::wscale(10)]);
            solo.send(&syn);
            let answer = solo.syn_ack(&options);
            solo.arrive(&answer);
        }
        let (after, edits) = acknowledges(&mut solo, 0);
        assert_eq!(
            (after.ack, edits & edit::ACK),
            (solo.peer_start, 0),
            "{peers}"
        );
        goes_on(&mut solo, &format!("{peers}"));
    }
}

/// The same at the server's host.
#[test]
fn another_answer_of_a_server_breaks_nothing() {
    for own in ANEW {
        let mut solo = Solo::new(&policy());
        let syn = Packet {
            seq: solo.peer_start.wrapping_sub(1),
            flags: tcp::SYN,
            options: opt::all(&[&opt::mss(1460), &opt::wscale(10), &opt::peer(0)]),
            ..solo.peers(0, WIDE)
        };
        for again in [0, own] {
            solo.now_ns += 1_000_000_000;
            solo.start = solo.start.wrapping_add(again);
            solo.arrive(&syn);
            let answer = Packet {
                seq: solo.start.wrapping_sub(1),
                flags: tcp::SYN | tcp::ACK,
                options: opt::all(&[&opt::mss(1460), &opt::wscale(10)]),
                ..solo.own(0, 0)
            };
            solo.send(&answer);
        }
        let ack = solo.peers(0, WIDE);
        solo.arrive(&ack);
        goes_on(&mut solo, &format!("{own}"));
    }
}

/// Nothing of a handshake was read: ACKs with another life's numbers wait, and are never corrected.
#[test]
fn acks_of_an_unread_life_are_never_corrected() {
    for (own, peers) in ANEW.iter().flat_map(|own| ANEW.map(|peers| (*own, peers))) {
        let mut solo = anew(own, peers);
        let mut passed = 0;
        for _ in 0..3 {
            let ack = solo.own(0, 0);
            let (after, outcome) = solo.send(&ack);
            assert_eq!(after.ack, ack.ack, "{own} {peers}");
            passed += u32::from(outcome.action == Action::Pass);
            solo.now_ns += 1_000_000_000;
        }
        assert!(passed >= 2, "{own} {peers}: only the first may wait");
    }
}

/// A receiver lets its host believe that the connection has begun anew, again and again.
#[test]
fn a_forged_new_life_frees_no_acks() {
    // Where the tenant is, and as far ahead as its peer would still take a segment.
    for skip in [0, 1_000] {
        let mut solo = Solo::with(params());
        for i in 0..4 {
            arrives(&mut solo, i * MSS, 1460);
        }
        acknowledges(&mut solo, 4 * MSS);
        let mut ahead = 0;
        for i in 4..100 {
            let forged = Packet {
                flags: tcp::SYN | tcp::ACK,
                seq: solo.start.wrapping_add(skip).wrapping_sub(1),
                ack: 12_345,
                ..solo.own(0, 0)
            };
            solo.send(&forged);
            let early = solo.peer_start.wrapping_add((i + 50) * MSS);
            let byte = Packet {
                ack: early,
                ..solo.own(skip, 1)
            };
            let (after, outcome) = solo.send(&byte);
            ahead += u32::from(outcome.action == Action::Pass && after.ack == early);
            arrives(&mut solo, i * MSS, 1460);
            let (after, edits) = acknowledges(&mut solo, (i + 50) * MSS);
            assert_ne!(edits & edit::ACK, 0, "{i}");
            assert_eq!(after.ack, solo.peer_start.wrapping_add((i + 1) * MSS));
        }
        assert_eq!(ahead, 0, "{skip}");
    }
}

/// A SYN/ACK that was lost or late comes again with the same numbers: no later copy of the segment
/// that acknowledged it begins anything.
#[test]
fn a_syn_ack_again_is_no_new_life_of_a_client() {
    let mut solo = Solo::with(params());
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10), &opt::peer(0)]);
    solo.arrive(&answer);
    for i in 0..4 {
        solo.data(i * MSS, 1460);
    }
    solo.e0b += 4 * MSS;
    solo.ack(4 * MSS, WIDE);
    let before = *solo.flow();
    // The tenant repeats before the ACK, which has passed its host, has reached it.
    for acknowledged in [0, MSS] {
        let again = Packet {
            ack: solo.peer_start.wrapping_add(acknowledged),
            ..solo.own(0, 1460)
        };
        arrives(&mut solo, 0, 1460);
        solo.send(&again);
        let after = solo.flow();
        assert_eq!(after.mode, before.mode, "{acknowledged}");
        assert_eq!(
            (after.snd_una, after.snd_nxt),
            (before.snd_una, before.snd_nxt)
        );
    }
}

/// The same of a server: the network delivers a copy of its client's first segment late.
#[test]
fn a_syn_ack_again_is_no_new_life_of_a_server() {
    for read in [true, false] {
        let mut solo = Solo::new(&policy());
        let options: [&[u8]; 3] = [&opt::mss(1460), &opt::wscale(10), &opt::peer(0)];
        let syn = Packet {
            seq: solo.peer_start.wrapping_sub(1),
            flags: tcp::SYN,
            options: opt::all(&options),
            ..solo.peers(0, WIDE)
        };
        let answer = Packet {
            seq: solo.start.wrapping_sub(1),
            flags: tcp::SYN | tcp::ACK,
            options: opt::all(&options[..2]),
            ..solo.own(0, 0)
        };
        let first = Packet {
            payload: vec![1; 1460],
            ..solo.peers(0, WIDE)
        };
        if !read {
            // An earlier life of the tuple is known, and of this one only the SYN/ACK.
            solo = anew(70_000, 900_000_000);
            solo.start = answer.seq.wrapping_add(1);
            solo.peer_start = first.seq;
        } else {
            solo.arrive(&syn);
        }
        solo.send(&answer);
        solo.arrive(&first);
        solo.now_ns += 1_000_000_000;
        solo.send(&answer);
        acknowledges(&mut solo, MSS);
        for i in 0..4 {
            let data = Packet {
                ack: solo.peer_start.wrapping_add(MSS),
                ..solo.own(i * MSS, 1460)
            };
            solo.send(&data);
        }
        let ack = Packet {
            seq: solo.peer_start.wrapping_add(MSS),
            ..solo.peers(4 * MSS, WIDE)
        };
        solo.arrive(&ack);
        let before = *solo.flow();
        assert_eq!(before.snd_una, solo.start.wrapping_add(4 * MSS), "{read}");
        solo.arrive(&first);
        let after = solo.flow();
        assert_eq!(after.mode, before.mode, "{read}");
        assert_eq!(
            (after.snd_una, after.snd_nxt),
            (before.snd_una, before.snd_nxt)
        );
        assert_eq!(after.rcv_nxt, before.rcv_nxt, "{read}");
    }
}

/// Nothing of a handshake was read, and the new numbers lie within the old windows: data that were
/// dropped for their ACK were not sent, and those behind them are not taken for the old life's.
#[test]
fn data_of_an_unread_life_are_never_corrected() {
    for (own, peers) in ANEW.iter().flat_map(|own| ANEW.map(|peers| (*own, peers))) {
        let mut solo = anew(own, peers);
        let before = solo.flow().snd_nxt;
        for i in 0..4 {
            let (data, held) = (solo.own(i * MSS, 1460), solo.counter("ack_ahead"));
            let (after, outcome) = solo.send(&data);
            if outcome.action == Action::Pass {
                assert_eq!(after.ack, data.ack, "{own} {peers}: {i}");
            } else if solo.counter("ack_ahead") > held {
                assert_eq!(solo.flow().snd_nxt, before, "{own} {peers}: {i}");
            }
        }
    }
}

/// The clock of ACKs that were let go has 32 bits of about a microsecond.
#[test]
fn acks_that_were_let_go_long_ago_are_still_let_go() {
    let mut solo = Solo::with(params());
    arrives(&mut solo, 0, 1460);
    acknowledges(&mut solo, 2 * MSS);
    solo.now_ns += 200_000_000;
    for i in 3..20 {
        let (_, edits) = acknowledges(&mut solo, i * MSS);
        assert_eq!(edits & edit::ACK, 0, "{i}");
        solo.now_ns += (1u64 << 42) / 2;
    }
}
