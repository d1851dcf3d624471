//! A rule's MSS: what a tenant reads, and where its handshake is left alone.

use sluicegate_core::{
    abi::{MODE_ONE_SIDED, MODE_TWO_SIDED, MODE_WATCH, Params, PolicyTable, RULE_OBSERVE},
    host::{Host, edit, tcp},
};

use crate::net::{A, B, Packet, Pair, Route, Solo, opt, params, policy, policy_of};

const MSS: u16 = 1460;

fn clamping() -> PolicyTable {
    policy_of(Params {
        mss: MSS,
        ..params()
    })
}

/// The values of the MSS options of a packet, in their order.
fn values(packet: &Packet) -> Vec<u16> {
    let options = opt::readable(&packet.options).into_iter();
    let mss = options.filter(|(kind, bytes)| *kind == 2 && bytes.len() == 4);
    mss.map(|(_, bytes)| u16::from_be_bytes([bytes[2], bytes[3]]))
        .collect()
}

/// The MSS options of the first packet that a tenant has read.
fn read(pair: &Pair, side: usize) -> Vec<u16> {
    values(&pair.sides[side].tenant.seen[0])
}

#[test]
fn a_tenant_reads_the_rules_mss_as_client_and_as_server() {
    let mut pair = Pair::new(&clamping());
    for side in [A, B] {
        pair.tenant(side).offers.mss = 8960;
    }
    pair.connect();
    for side in [A, B] {
        assert_eq!(read(&pair, side), [MSS]);
        assert_eq!(pair.flow(side).mode, MODE_TWO_SIDED);
        assert_eq!(pair.flow(side).mss, MSS);
        assert_eq!(pair.flow(side).cc.mss, u32::from(MSS));
        assert_eq!(pair.counter(side, "mss_clamped"), 1);
    }
    // On the wire it is the tenant's own: each host lowers what its own tenant reads.
    assert!(pair.log[..2].iter().all(|it| values(&it.packet) == [8960]));
    pair.transfer(A, 500_000);
    pair.transfer(B, 500_000);
}

#[test]
fn windows_have_steps_of_the_lowered_mss() {
    let floor = |params: Params| {
        let mut solo = Solo::two_sided(&policy_of(params), 8960, 0);
        let mut at = 0;
        for _ in 0..40 {
            at = solo.round(at, 1460, true, 60_000);
        }
        solo.flow().cc.cwnd
    };
    let lowered = Params {
        mss: MSS,
        ..params()
    };
    assert_eq!(floor(lowered), 2 * 1460);
    let one = Params {
        floor_mss: 1,
        ..lowered
    };
    assert_eq!(floor(one), 1460 + 64);
}

#[test]
fn the_mss_is_never_raised_and_never_added() {
    for offered in [None, Some(MSS), Some(1000), Some(88)] {
        let mut solo = Solo::new(&clamping());
        let syn = solo.syn(&[&opt::mss(8960)]);
        let (sent, _) = solo.send(&syn);
        assert_eq!(
            values(&sent),
            [8960],
            "what the tenant announces is its own"
        );
        let option = offered.map_or_else(Vec::new, opt::mss);
        let answer = solo.syn_ack(&[&option, &opt::wscale(7), &opt::peer(0)]);
        let (shown, outcome) = solo.arrive(&answer);
        assert_eq!(values(&shown), Vec::from_iter(offered));
        assert_eq!(outcome.edits & edit::MSS, 0);
        assert_eq!(solo.flow().mss, offered.unwrap_or(536));
        assert_eq!(solo.counter("mss_clamped"), 0);
    }
}

#[test]
fn the_option_may_be_anywhere_and_hosts_need_not_be_two() {
    for (family, nops) in (0..8).flat_map(|nops| [(4, nops), (6, nops)]) {
        let mut solo = Solo::new(&clamping());
        if family == 6 {
            solo.route = Route::new("[fd00::1]:40000", "[fd00::2]:5001");
        }
        let syn = solo.syn(&[&opt::mss(8960)]);
        solo.send(&syn);
        let before = vec![opt::NOP; nops];
        let answer = solo.syn_ack(&[&before, &opt::mss(0xffff), &opt::wscale(7)]);
        // The invariants of every packet that passes have checksums among them.
        let (shown, _) = solo.arrive(&answer);
        assert_eq!(values(&shown), [MSS], "behind {nops} NOPs");
        assert_eq!(shown.options.len(), answer.options.len());
        assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
        assert_eq!(solo.flow().mss, MSS);
    }
}

#[test]
fn of_several_options_the_last_counts_and_zero_is_none() {
    for (options, shown, mss) in [
        ([1000, 8960], [1000, MSS], MSS),
        ([8960, 1000], [8960, 1000], 1000),
        ([8960, 0], [MSS, 0], MSS),
        ([0, 0], [0, 0], 536),
    ] {
        let mut solo = Solo::new(&clamping());
        let syn = solo.syn(&[&opt::mss(8960)]);
        solo.send(&syn);
        let answer = solo.syn_ack(&[&opt::mss(options[0]), &opt::mss(options[1])]);
        assert_eq!(values(&solo.arrive(&answer).0), shown);
        assert_eq!(solo.flow().mss, mss);
    }
}

#[test]
fn a_handshake_that_is_repeated_is_edited_like_the_first() {
    let mut solo = Solo::new(&clamping());
    let syn = solo.syn(&[&opt::mss(8960)]);
    let answer = solo.syn_ack(&[&opt::mss(8960), &opt::peer(0)]);
    solo.send(&syn);
    for count in 1..4 {
        assert_eq!(values(&solo.arrive(&answer).0), [MSS]);
        assert_eq!(solo.counter("mss_clamped"), count);
    }
    assert_eq!(solo.flow().mss, MSS);
}

#[test]
fn handshakes_that_may_not_be_edited_keep_their_mss() {
    let malformed = vec![254, 40];
    for odd in [opt::md5(), opt::ao(), malformed] {
        let mut solo = Solo::new(&clamping());
        let syn = solo.syn(&[&opt::mss(8960)]);
        solo.send(&syn);
        let answer = solo.syn_ack(&[&opt::mss(8960), &odd]);
        let (shown, outcome) = solo.arrive(&answer);
        assert_eq!((shown, outcome.edits), (answer, 0));
        assert_eq!((solo.flow().mode, solo.flow().mss), (MODE_WATCH, 8960));
    }
}

#[test]
fn observers_lower_no_mss() {
    let mut observing = clamping();
    observing.slots[0].params.mode = RULE_OBSERVE;
    let mut pair = Pair::new(&observing);
    for side in [A, B] {
        pair.tenant(side).offers.mss = 8960;
    }
    pair.connect();
    for side in [A, B] {
        assert_eq!(read(&pair, side), [8960]);
        assert_eq!(pair.flow(side).mss, 8960);
    }
}

#[test]
fn each_host_decides_for_its_own_tenant() {
    let mut pair = Pair::new(&policy());
    pair.sides[B].enforcer = Some(Host::new(&clamping()));
    for side in [A, B] {
        pair.tenant(side).offers.mss = 8960;
    }
    pair.connect();
    assert_eq!((read(&pair, A), read(&pair, B)), (vec![8960], vec![MSS]));
    assert_eq!((pair.flow(A).mss, pair.flow(B).mss), (8960, MSS));
}

/// The SYN was not read: the flow is met from the middle, and its tenant has read the peer's MSS.
#[test]
fn a_connection_met_from_the_middle_keeps_its_mss() {
    let mut solo = Solo::new(&clamping());
    let answer = solo.syn_ack(&[&opt::mss(8960), &opt::wscale(7)]);
    assert_eq!(values(&solo.arrive(&answer).0), [8960]);
    let ack = solo.own(0, 0);
    solo.send(&ack);
    solo.data(0, 8000);
    assert_eq!(solo.flow().mss, 8960);
    solo.data(8000, 8000);
    solo.ack(16_000, 500);
    assert_eq!(solo.flow().mode, MODE_ONE_SIDED);
    assert_eq!((solo.flow().mss, solo.flow().cc.mss), (8960, 8960));
    assert_eq!(solo.counter("mss_clamped"), 0);
}

/// A SYN with data keeps them, and what the tenant answers fits the option that it has read.
#[test]
fn a_syn_with_data_is_lowered_all_the_same() {
    let mut pair = Pair::new(&clamping());
    for side in [A, B] {
        pair.tenant(side).offers.mss = 8960;
        pair.tenant(side).offers.data = 701;
    }
    pair.connect();
    for side in [A, B] {
        let packet = &pair.sides[side].tenant.seen[0];
        assert!(packet.has(tcp::SYN) && packet.payload.len() == 701);
        assert_eq!(read(&pair, side), [MSS]);
        assert_eq!(pair.flow(side).mss, MSS);
    }
}

/// A pair whose tenants write these MSS options.
fn announcing(own: u16, peers: u16) -> Pair {
    let mut pair = Pair::new(&policy());
    pair.tenant(A).offers.mss = own;
    pair.tenant(B).offers.mss = peers;
    pair.connect();
    pair
}

/// The windows of A's flow when every packet of some rounds with segments of `mss` is marked.
fn floor_of(announced: u16, mss: u32, params: Params) -> u32 {
    let mut solo = Solo::two_sided(&policy_of(params), announced, 0);
    let mut at = 0;
    for _ in 0..40 {
        at = solo.round(at, mss, true, 60_000);
    }
    solo.flow().cc.cwnd
}

#[test]
fn a_peer_that_announces_more_than_the_tenant_can_send_gains_nothing() {
    let honest = *announcing(1460, 1460).flow(A);
    for peers in [8960, 65_495, u16::MAX] {
        let flow = *announcing(1460, peers).flow(A);
        assert_eq!((flow.mss, flow.cc), (1460, honest.cc));
        // Nor where it is the client.
        let flow = *announcing(peers, 1460).flow(B);
        assert_eq!(
            (flow.mss, flow.cc.mss, flow.cc.cwnd),
            (1460, 1460, honest.cc.cwnd)
        );
    }
}

#[test]
fn jumbo_frames_at_both_ends_have_their_segments() {
    let pair = announcing(8960, 8960);
    for side in [A, B] {
        assert_eq!(pair.flow(side).mss, 8960);
        assert_eq!(pair.flow(side).cc.cwnd, 10 * 8960);
    }
    assert_eq!(floor_of(8960, 8948, params()), 2 * 8960);
}

/// A number in a block of a SYN's SACK option is no MTU of the tenant's interface.
#[test]
fn no_option_of_a_syn_says_what_the_path_carries() {
    for left in [1, u32::MAX] {
        let mut pair = Pair::new(&policy());
        for side in [A, B] {
            pair.tenant(side).offers.mss = 65_495;
            pair.tenant(side).offers.more = opt::sack(&[(left, left)]);
        }
        pair.connect();
        assert_eq!([pair.flow(A).mss, pair.flow(B).mss], [8960; 2]);
    }
}

/// A tenant may say of a super-packet that its segments are of any size.
#[test]
fn segments_beyond_jumbo_frames_raise_nothing() {
    for bytes in [10_000, 14_000] {
        assert_eq!(floor_of(1460, bytes, params()), 2 * 8960);
    }
}

/// Both ends may announce what they like: what the tenant sends decides.
#[test]
fn segments_that_are_sent_bound_the_smallest_window() {
    for announced in [8960, 65_495] {
        assert_eq!(floor_of(announced, 1448, params()), 2 * 1460);
        let one = Params {
            floor_mss: 1,
            ..params()
        };
        assert_eq!(floor_of(announced, 1448, one), 1460 + 64);
    }
}

#[test]
fn segments_that_become_smaller_do_as_well() {
    let mut solo = Solo::two_sided(&policy(), 8960, 0);
    let mut at = 0;
    for mss in [8948, 1448, 4000] {
        for _ in 0..40 {
            at = solo.round(at, mss, true, 60_000);
        }
        let known = [1460, 4096, 8960];
        let expected = known.into_iter().find(|known| u32::from(*known) >= mss);
        assert_eq!(Some(solo.flow().mss), expected);
    }
    assert_eq!(solo.flow().cc.cwnd, 2 * 4096);
}

/// A tenant whose own option is small, for it is short of memory or its routes say so, sends
/// whole segments all the same.
#[test]
fn a_tenant_that_receives_small_segments_may_send_larger_ones() {
    let pair = announcing(536, 1460);
    assert_eq!(pair.flow(A).mss, 1460);
    assert_eq!(pair.flow(B).mss, 536);
}

/// A segment that is repeated may have been one that the path does not carry.
#[test]
fn segments_that_are_repeated_say_nothing() {
    let mut solo = Solo::two_sided(&policy(), 8960, 0);
    let mut at = 0;
    for _ in 0..10 {
        at = solo.round(at, 1448, false, 60_000);
    }
    assert_eq!(solo.flow().mss, 1460);
    for _ in 0..20 {
        solo.data(at, 8960);
        solo.data(at, 1448);
        at = solo.round(at, 1448, false, 60_000);
    }
    assert_eq!(solo.flow().mss, 1460);
}
