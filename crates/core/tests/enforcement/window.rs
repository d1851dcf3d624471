//! The value that is written into the window field.

use sluicegate_core::{
    abi::{Params, RULE_ENFORCE, RULE_OBSERVE, WINDOW_MAX},
    cc::Algorithm,
    host::{edit, tcp},
};

use crate::net::{A, B, Fate, Packet, Pair, Solo, opt, params, policy, policy_of};

const MSS: u32 = 1460;

/// A peer's window that never binds.
const WIDE: u16 = u16::MAX;

/// Bytes, rounded up to the scale's unit.
fn wire(bytes: u32, wscale: u8) -> u16 {
    bytes.div_ceil(1 << wscale).min(0xffff) as u16
}

#[test]
fn the_tenant_is_shown_the_enforced_window() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..6 {
        at = solo.round(at, 1460, false, WIDE);
        let shown = solo.ack(at, WIDE);
        assert_eq!(shown, wire(solo.flow().cc.cwnd, 10));
    }
    assert!(
        solo.flow().cc.cwnd > 50_000,
        "it grew: {}",
        solo.flow().cc.cwnd
    );
}

#[test]
fn the_peers_smaller_window_stays() {
    let mut solo = Solo::with(params());
    solo.data(0, 1460);
    let packet = Packet {
        options: opt::feedback(1461, 0),
        ..solo.peers(1460, 5)
    };
    let (after, outcome) = solo.arrive(&packet);
    assert_eq!(after.window, 5);
    assert_eq!(outcome.edits & edit::WINDOW, 0);
}

#[test]
fn the_window_of_a_syn_ack_is_lowered_unscaled() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460), &opt::wscale(10)]);
    solo.send(&syn);
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10), &opt::peer(0)]);
    assert_eq!(solo.arrive(&answer).0.window, 14_600);
}

#[test]
fn scaling_counts_only_when_both_ends_offer_it() {
    let mut solo = Solo::new(&policy());
    let syn = solo.syn(&[&opt::mss(1460)]);
    solo.send(&syn);
    let answer = solo.syn_ack(&[&opt::mss(1460), &opt::wscale(10)]);
    solo.arrive(&answer);
    assert_eq!(solo.flow().wscale, 0);
    solo.data(0, 1460);
    let ack = solo.peers(1460, WIDE);
    assert_eq!(u32::from(solo.arrive(&ack).0.window), solo.flow().cc.cwnd);
}

#[test]
fn never_raised_on_duplicate_acks() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    for i in 0..10 {
        solo.data(at + i * 1460, 1460);
    }
    let shown = solo.ack(at, WIDE);
    // A loss in the network: nine duplicates, whatever the algorithm makes of them.
    for i in 1..10 {
        let block = (at + 1460, at + (i + 1) * 1460);
        assert_eq!(solo.duplicate(at, WIDE, &[block]), shown);
    }
    assert_eq!(solo.flow().losses, 1);
}

/// The policy's rate held the window, and does so no longer: the next ACK that advances shows more.
#[test]
fn never_raised_on_duplicate_acks_though_the_policy_allows_more() {
    let slow = Params {
        rate_cap: 1,
        ..params()
    };
    let mut solo = Solo::with(slow);
    let at = solo.round(0, 1460, false, WIDE);
    for i in 0..2 {
        solo.data(at + i * 1460, 1460);
    }
    let shown = solo.ack(at, WIDE);
    assert_eq!(shown, wire(2 * 1460, 10));
    solo.host.set_policy(&policy());
    for i in 1..3 {
        let block = (at + 1460, at + 1460 + i * 100);
        assert_eq!(solo.duplicate(at, WIDE, &[block]), shown);
    }
    solo.e0b += 2 * 1460;
    assert!(solo.ack(at + 2 * 1460, WIDE) > shown);
}

#[test]
fn a_stack_without_sack_still_retransmits_fast() {
    let mut pair = Pair::new(&policy());
    for side in [A, B] {
        pair.tenant(side).offers.sack = false;
    }
    pair.connect();
    pair.transfer(A, 200_000);
    let lost = pair.log.len() as u64 + 20;
    pair.set_fate(
        move |crossing| match crossing.packet.len() > 0 && crossing.index == lost {
            true => Fate::Drop,
            false => Fate::Deliver,
        },
    );
    pair.send(A, 400_000);
    pair.run();
    assert_eq!(pair.tenant(B).received, 600_000, "no timeout was needed");
    assert_eq!(pair.tenant(A).fast_retransmits, 1);
    assert_eq!(pair.flow(A).losses, 1);
}

#[test]
fn a_window_update_of_the_peer_is_no_duplicate() {
    let mut solo = Solo::with(params());
    for i in 0..10 {
        solo.data(i * 1460, 1460);
    }
    solo.e0b += 1460;
    let first = solo.ack(1460, 20_000);
    assert!(u32::from(first) < 20_000, "ours binds");
    // Its application reads: thrice a larger window, nothing else.
    let mut last = first;
    for window in [21_000, 22_000, 23_000] {
        let shown = solo.ack(1460, window);
        assert_ne!(shown, last, "the tenant would count a duplicate");
        assert!(shown - last <= 1, "nor is it given more than one unit");
        last = shown;
    }
    assert_eq!(solo.flow().losses, 0);
}

#[test]
fn a_zero_window_passes_untouched_and_reopening_works() {
    let mut pair = Pair::new(&policy());
    pair.connect();
    pair.transfer(A, 100_000);
    pair.tenant(B).window = 0;
    let ack = pair.tenant(B).ack();
    pair.transmit(B, &ack);
    pair.run();
    // A's tenant keeps sending what fits, then is shut out.
    pair.send(A, 300_000);
    pair.run();
    assert_eq!(pair.sides[A].tenant.seen.last().unwrap().window, 0);
    let stalled = pair.tenant(A).queued;
    assert!(stalled > 0);
    for _ in 0..3 {
        pair.wait(500_000_000);
        let probe = pair.tenant(A).window_probe();
        pair.transmit(A, &probe);
        pair.run();
    }
    assert_eq!(pair.counter(A, "policed"), 0);
    pair.tenant(B).window = 1 << 20;
    let update = pair.tenant(B).ack();
    pair.transmit(B, &update);
    pair.finish();
    assert_eq!(pair.tenant(A).queued, 0);
    assert_eq!(pair.tenant(A).flight(), 0);
}

#[test]
fn a_closed_window_probed_for_long_is_no_congestion() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    let before = solo.flow().cc.cwnd;
    solo.ack(at, 0);
    for _ in 0..5 {
        solo.now_ns += 1_000_000_000;
        solo.data(at, 1);
        solo.ack(at, 0);
    }
    assert_eq!(solo.flow().timeouts, 0);
    assert!(
        solo.flow().cc.cwnd >= before.min(14_600),
        "{}",
        solo.flow().cc.cwnd
    );
}

#[test]
fn data_that_the_peer_sends_opens_a_closed_window() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    assert_eq!(solo.ack(at, 0), 0);
    let data = Packet {
        payload: vec![1; 100],
        ..solo.peers(at, WIDE)
    };
    assert_eq!(solo.arrive(&data).0.window, wire(solo.flow().cc.cwnd, 10));
}

/// Cuts the window down as far as it goes and returns what was shown on the way, in bytes.
fn shown_under_pressure(params: Params, mss: u16, wscale: u8) -> Vec<u32> {
    let mut solo = Solo::two_sided(&policy_of(params), mss, wscale);
    let (mut at, mut shown) = (0, Vec::new());
    for _ in 0..12 {
        let next = solo.round(at, u32::from(mss), true, WIDE);
        shown.push(u32::from(solo.ack(next, WIDE)) << wscale);
        at = next;
        // And a timeout.
        solo.data(at, mss.into());
        solo.now_ns += 1_000_000_000;
        solo.data(at, mss.into());
        at += u32::from(mss);
        solo.e0b += u32::from(mss);
        shown.push(u32::from(solo.ack(at, WIDE)) << wscale);
    }
    assert!(solo.flow().timeouts > 0);
    shown
}

#[test]
fn the_floor_is_two_segments_for_every_mss_and_scale() {
    for mss in [536, 1460, 8960] {
        for wscale in 0..=14 {
            let shown = shown_under_pressure(params(), mss, wscale);
            let floor = (2 * u32::from(mss)).next_multiple_of(1 << wscale);
            let smallest = *shown.iter().min().unwrap();
            assert_eq!(smallest, floor, "MSS {mss}, scale {wscale}: {shown:?}");
        }
    }
}

#[test]
fn a_floor_of_one_segment_is_a_little_more_than_one() {
    let one = Params {
        floor_mss: 1,
        ..params()
    };
    for mss in [536, 1460, 8960] {
        for wscale in 0..=14 {
            let shown = shown_under_pressure(one, mss, wscale);
            let floor = (u32::from(mss) + 64).next_multiple_of(1 << wscale);
            let smallest = *shown.iter().min().unwrap();
            assert_eq!(smallest, floor, "MSS {mss}, scale {wscale}: {shown:?}");
        }
    }
}

#[test]
fn what_is_in_flight_stays_inside_the_window() {
    let mut solo = Solo::with(params());
    let mut at = 0;
    for _ in 0..4 {
        at = solo.round(at, 1460, false, WIDE);
    }
    let count = solo.flow().cc.cwnd / 1460;
    for i in 0..count {
        solo.data(at + i * 1460, 1460);
    }
    let end = at + count * 1460;
    // The first ACK of the window brings a mark: cwnd shrinks, the right edge doesn't move left
    // over what has been sent.
    solo.ceb += 1460;
    let shown = u32::from(solo.ack(at + 1460, WIDE)) << 10;
    assert!(solo.flow().cc.cwnd < count * 1460 * 3 / 4, "it was cut");
    assert!(at + 1460 + shown >= end && at + 1460 + shown < end + 1024);
}

#[test]
fn a_cap_is_never_exceeded() {
    let capped = Params {
        window_cap: 100_000,
        ..params()
    };
    let mut pair = Pair::new(&policy_of(capped));
    pair.connect();
    pair.transfer(A, 5_000_000);
    let highest = pair.sides[A]
        .tenant
        .seen
        .iter()
        .skip(1)
        .map(|packet| u32::from(packet.window) << 10)
        .max()
        .unwrap();
    assert_eq!(highest, 100_000_u32.next_multiple_of(1024));
}

#[test]
fn the_window_never_exceeds_what_a_counter_can_tell_apart() {
    let fixed = Params {
        algorithm: Algorithm::Fixed.number(),
        fixed_bytes: u32::MAX,
        ..params()
    };
    let mut solo = Solo::two_sided(&policy_of(fixed), 1460, 14);
    solo.round(0, 60_000, false, WIDE);
    assert!(solo.flow().cc.cwnd <= WINDOW_MAX);
}

#[test]
fn window_updates_without_end_earn_no_window() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, 1_000);
    let shown = solo.ack(at, 1_000);
    let mut last = shown;
    for more in 1..200 {
        last = solo.ack(at, 1_000 + more);
    }
    assert!(last > shown, "updates are no duplicates");
    assert!(last <= shown + 8, "{shown} became {last}");
}

/// The peer chooses the unit: 8 KiB of small ones, one of the largest, which is 16 KiB.
#[test]
fn window_updates_in_large_units_earn_few_of_them() {
    for (wscale, units) in [(0, 8), (10, 8), (11, 4), (13, 1), (14, 1)] {
        let mut solo = Solo::two_sided(&policy(), 1460, wscale);
        let at = solo.round(0, 1460, false, 0xf000);
        let shown = solo.ack(at, 0xf000);
        let mut last = shown;
        for more in 1..200 {
            last = solo.ack(at, 0xf000 + more);
        }
        assert_eq!(last - shown, units, "units of 1 << {wscale}");
    }
}

/// The number of a pure ACK at `at` on the way out, in bytes from the connection's first.
fn number_of_ack(solo: &mut Solo, at: u32) -> u32 {
    let (after, outcome) = solo.send(&solo.own(at, 0));
    assert_eq!(
        outcome.edits & edit::SEQ != 0,
        after.seq != solo.start.wrapping_add(at)
    );
    after.seq.wrapping_sub(solo.start)
}

/// Five segments have left from `.1` on; the peer has acknowledged three, to the host's knowledge.
fn three_of_five_are_acknowledged(mut solo: Solo, window: u16) -> (Solo, u32) {
    let at = solo.round(0, MSS, false, WIDE);
    for i in 0..5 {
        solo.data(at + i * MSS, MSS as usize);
    }
    solo.ack(at + 3 * MSS, window);
    (solo, at)
}

#[test]
fn an_ack_that_a_moved_edge_numbers_gets_the_number_of_the_next_byte() {
    let (mut solo, at) = three_of_five_are_acknowledged(Solo::with(params()), WIDE);
    let (una, next) = (at + 3 * MSS, at + 5 * MSS);
    for number in [at, at + 1, at + MSS, una - 2, next - (8 << 20)] {
        assert_eq!(number_of_ack(&mut solo, number), next);
    }
    assert_eq!(solo.counter("seq_restored"), 5);
    // A keepalive; ACKs that data or another CPU has overtaken; one of data still to be seen.
    for number in [una - 1, una, una + 1, next - 1, next, next + MSS] {
        assert_eq!(number_of_ack(&mut solo, number), number);
    }
    // Not of this place in the sequence space.
    for number in [next - (8 << 20) - 1, next + (1 << 31)] {
        assert_eq!(number_of_ack(&mut solo, number), number);
    }
    let old = |back: u32, flags| Packet {
        ack: solo.peer_start.wrapping_sub(back),
        flags,
        ..solo.own(at, 0)
    };
    // The tenant's window is 500 KiB. An urgent pointer counts from the number.
    let left = [
        old((500 << 10) + 1, tcp::ACK),
        old(0, tcp::ACK | tcp::URG),
        old(0, tcp::RST),
    ];
    let moved = old(500 << 10, tcp::ACK);
    for packet in left {
        assert_eq!(solo.send(&packet).0.seq, packet.seq);
    }
    assert_eq!(solo.counter("seq_restored"), 5);
    assert_eq!(solo.send(&moved).0.seq, solo.start.wrapping_add(next));
}

#[test]
fn the_number_of_an_ack_stays_within_the_window_of_the_peer() {
    // The peer has taken back what it had offered beyond two units of 1024 bytes.
    let (mut solo, at) = three_of_five_are_acknowledged(Solo::with(params()), 2);
    assert_eq!(number_of_ack(&mut solo, at), at + 3 * MSS + 2048);
}

/// A stack that numbers its ACKs as Linux does, behind its host. In bytes from its first.
struct Stack {
    solo: Solo,
    una: u32,
    next: u32,
    edge: u32,
    received: u32,
}

impl Stack {
    fn new(start: u32, peer_start: u32) -> Self {
        let mut solo = Solo::new(&policy());
        (solo.start, solo.peer_start) = (start, peer_start);
        solo.handshake(&[&opt::mss(1460), &opt::wscale(10), &opt::peer(0)]);
        let (una, next, edge, received) = (0, 0, 4 * MSS, 0);
        Self {
            solo,
            una,
            next,
            edge,
            received,
        }
    }

    fn segment(&self, at: u32, len: usize) -> Packet {
        Packet {
            ack: self.solo.peer_start.wrapping_add(self.received),
            ..self.solo.own(at, len)
        }
    }

    /// Through this stack's host. The stack discards an ACK with an old number (RFC 9293 3.10.7.4).
    fn receives(&mut self, packet: &Packet) {
        let (packet, _) = self.solo.arrive(packet);
        let at = packet.seq.wrapping_sub(self.solo.peer_start);
        if packet.len() == 0 && at < self.received {
            return;
        }
        self.received = self.received.max(at + packet.len());
        self.una = packet.ack.wrapping_sub(self.solo.start);
        self.edge = self.una + (u32::from(packet.window) << 10);
    }
}

#[test]
fn edges_that_moved_on_both_sides_stall_no_connection() {
    let mut stacks = [Stack::new(5_000, 900_000), Stack::new(900_000, 5_000)];
    // All that either sends leaves before its first ACK, and arrives.
    let mut leaving = [Vec::new(), Vec::new()];
    for (stack, leaving) in stacks.iter_mut().zip(&mut leaving) {
        for i in 0..10 {
            let data = stack.segment(i * MSS, MSS as usize);
            leaving.push(stack.solo.send(&data).0);
        }
        stack.next = 10 * MSS;
    }
    for (stack, arriving) in stacks.iter_mut().zip(leaving.iter().rev()) {
        arriving.iter().for_each(|packet| stack.receives(packet));
        // The ACKs of some data came before the host had seen the others.
        (stack.una, stack.edge) = (0, 4 * MSS);
    }
    for turn in 0..6 {
        let from = turn % 2;
        let ack = stacks[from].segment(stacks[from].edge.min(stacks[from].next), 0);
        stacks[from].solo.now_ns += 1_000_000;
        let (ack, _) = stacks[from].solo.send(&ack);
        stacks[1 - from].receives(&ack);
    }
    for stack in &stacks {
        assert_eq!((stack.una, stack.received), (stack.next, stack.next));
    }
}

#[test]
fn who_may_not_edit_leaves_the_number_of_an_ack() {
    for observes in [true, false] {
        let mut solo = Solo::with(Params {
            mode: if observes { RULE_OBSERVE } else { RULE_ENFORCE },
            ..params()
        });
        if !observes {
            solo = Solo::new(&policy());
        }
        solo.data(0, 14_600);
        solo.ack(7300, WIDE);
        assert_eq!(number_of_ack(&mut solo, 1460), 1460, "{observes}");
    }
}

#[test]
fn a_late_ack_shows_no_less_than_the_floor() {
    let mut solo = Solo::with(params());
    let at = solo.round(0, 1460, false, WIDE);
    solo.data(at, 1460);
    // The peer's own window is less than a segment now; an older ACK comes after it.
    assert_eq!(solo.ack(at + 1460, 1), 1);
    let late = solo.peers(at, WIDE);
    let (after, outcome) = solo.arrive(&late);
    assert_eq!(outcome.edits & edit::WINDOW, edit::WINDOW);
    assert!(u32::from(after.window) << 10 > 1460, "{}", after.window);
}
