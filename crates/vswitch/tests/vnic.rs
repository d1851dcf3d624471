//! The vNIC stage's tables: what they forget, what they refuse, what another policy makes of them.

use std::{net::Ipv4Addr, sync::Arc, time::Instant};

use sluicegate_core::{
    abi::{
        Addr, COUNTER_NAMES, FlowKey, HashKey, MODE_ONE_SIDED, MODE_TWO_SIDED, MODE_WATCH, Params,
        PolicyTable, Prefix, REASON_NAMES, RULE_ENFORCE, RULE_POLICE, Rule, Scope,
    },
    segment::{Direction, Segment, Verdict, edit, option, tcp},
};
use sluicegate_vswitch::{Limits, Policy, Vnics};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The interface that tests attach.
const VNIC: u32 = 7;

const LIMITS: Limits = Limits {
    flows: 100,
    half_open: 100,
    remembered: 100,
    blackholes: 100,
    idle_ns: 100 * SECOND,
    closed_ns: 10 * SECOND,
};

fn rule() -> Rule {
    Rule {
        source_port_high: u16::MAX,
        destination_port_high: u16::MAX,
        params: Params {
            mode: RULE_ENFORCE,
            flags: RULE_POLICE,
            floor_mss: 2,
            init_segments: 10,
            g_shift: 4,
            beta_q10: 1024,
            window_cap: 1 << 20,
            rto_min_us: 200_000,
            ..Params::default()
        },
        ..Rule::default()
    }
}

/// Rules, by the slot of each.
fn policy(rules: &[(usize, Rule)]) -> Policy {
    let mut table = PolicyTable::default();
    rules
        .iter()
        .for_each(|(slot, rule)| table.add(*slot, *rule));
    Arc::new(table)
}

/// One rule, and hosts everywhere are trusted.
fn trusting() -> Policy {
    let mut table = PolicyTable::clone(&policy(&[(0, rule())]));
    table.trusted_count = 1;
    table.trusted[0] = Prefix::default();
    Arc::new(table)
}

fn ends(connection: u32) -> FlowKey {
    let address = |last| Addr::from(std::net::IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
    FlowKey {
        local: address(1),
        remote: address(2),
        local_port: (connection as u16).to_be(),
        remote_port: 80_u16.to_be(),
        ifindex: VNIC,
        ..FlowKey::default()
    }
}

/// A host, the time, and segments of tenants' connections, which begin at 1000 (tenant) and 5000
/// (peer).
struct Host {
    vnics: Vnics<u32>,
    now_ns: u64,
    packets: u64,
}

const FROM: Direction = Direction::FromTenant;
const TO: Direction = Direction::ToTenant;

impl Host {
    fn new(policy: Policy, limits: Limits) -> Self {
        Self {
            vnics: Vnics::with(policy, limits, HashKey::FIXED),
            now_ns: SECOND,
            packets: 0,
        }
    }

    fn count(&self, name: &str) -> u64 {
        let number = COUNTER_NAMES.iter().position(|known| *known == name);
        self.vnics.counters().0[number.unwrap()]
    }

    fn pass(&mut self, connection: u32, mut segment: Segment) -> Verdict {
        self.packets += 1;
        self.vnics
            .segment(connection, &mut segment, self.now_ns, || ends(connection))
    }

    fn segment(&self, direction: Direction, tcp_flags: u8) -> Segment {
        Segment {
            seq: if direction == FROM { 1001 } else { 5001 },
            ack: if direction == FROM { 5001 } else { 1001 },
            window: 0xffff,
            tcp_flags,
            direction: direction as u8,
            header_len: 20,
            ..Segment::default()
        }
    }

    /// A SYN of the tenant, or the SYN/ACK that answers it.
    fn shake(&mut self, connection: u32, flags: u8) -> Verdict {
        let direction = if flags & tcp::ACK == 0 { FROM } else { TO };
        let segment = Segment {
            seq: if direction == FROM { 1000 } else { 5000 },
            options: option::MSS | option::WSCALE,
            mss: 1460,
            wscale: 7,
            ..self.segment(direction, flags)
        };
        self.pass(connection, segment)
    }

    fn syn(&mut self, connection: u32) -> Verdict {
        self.shake(connection, tcp::SYN)
    }

    fn synack(&mut self, connection: u32) -> Verdict {
        self.shake(connection, tcp::SYN | tcp::ACK)
    }

    fn open(&mut self, connection: u32) {
        self.syn(connection);
        self.synack(connection);
    }

    fn data(&mut self, connection: u32) -> Verdict {
        let segment = Segment {
            payload: 1000,
            ..self.segment(FROM, tcp::ACK)
        };
        self.pass(connection, segment)
    }

    /// A message of 1000 bytes, acknowledged, and the end: FINs both ways and their ACKs.
    fn speak_and_close(&mut self, connection: u32) {
        self.data(connection);
        let mut answer = self.segment(TO, tcp::ACK | tcp::FIN);
        answer.ack += 1000;
        self.pass(connection, answer);
        let mut fin = self.segment(FROM, tcp::ACK | tcp::FIN);
        (fin.seq, fin.ack) = (fin.seq + 1000, fin.ack + 1);
        self.pass(connection, fin);
        let mut last = self.segment(TO, tcp::ACK);
        (last.seq, last.ack) = (last.seq + 1, last.ack + 1001);
        self.pass(connection, last);
    }

    /// Time passes, during which another connection's packets let the host look at its flows.
    fn wait(&mut self, ns: u64) {
        for _ in 0..2 {
            self.now_ns += ns / 2;
            let stray = self.segment(TO, tcp::ACK);
            self.pass(u32::MAX, stray);
        }
    }
}

#[test]
fn a_flow_that_is_over_is_forgotten_soon_and_an_open_one_late() {
    let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
    host.open(1);
    host.open(2);
    host.speak_and_close(2);
    assert_eq!(host.vnics.entries(), [2, 2, 0]);
    host.wait(9 * SECOND);
    assert_eq!(host.vnics.entries(), [2, 2, 0]);
    host.wait(2 * SECOND);
    assert_eq!(host.vnics.entries(), [1, 1, 0], "its SYN was answered");
    assert!(host.vnics.flow(1).is_some() && host.vnics.flow(2).is_none());
    host.wait(100 * SECOND);
    // Its peer's window scale is remembered, because it could not be found out again.
    assert_eq!(host.vnics.entries(), [0, 0, 1]);
    assert_eq!(host.count("flow_expired"), 2);
    host.data(1);
    let flow = *host.vnics.flow(1).unwrap();
    assert_eq!((flow.mode, flow.wscale, flow.mss), (MODE_WATCH, 7, 1460));
    assert_eq!(host.vnics.entries(), [1, 0, 0]);
}

/// A later handshake of the tuple, under way when the flow is forgotten, is not lost with it.
#[test]
fn what_nothing_has_answered_outlives_the_flow() {
    let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
    host.open(1);
    host.speak_and_close(1);
    host.wait(9 * SECOND);
    let later = Segment {
        seq: 70_000,
        options: option::MSS,
        mss: 1000,
        ..host.segment(FROM, tcp::SYN)
    };
    host.pass(1, later);
    host.wait(2 * SECOND);
    assert_eq!(host.vnics.entries(), [0, 1, 0]);
    let answer = Segment {
        seq: 5000,
        ack: later.seq + 1,
        ..host.segment(TO, tcp::SYN | tcp::ACK)
    };
    host.pass(1, answer);
    assert_eq!(host.vnics.flow(1).unwrap().snd_una, later.seq + 1);
    // A policy without a rule for it makes the host forget the flow; the SYN/ACK comes again.
    host.vnics.set_policy(policy(&[]));
    host.vnics.set_policy(policy(&[(0, rule())]));
    assert_eq!(host.pass(1, answer).edits, 0, "noted, not repeated");
    assert_eq!(
        (host.vnics.flow(1), host.count("flow_one_sided")),
        (None, 2)
    );
}

#[test]
fn what_a_reset_may_have_ended_stays_while_there_is_room() {
    for (others, stays) in [(40, true), (60, false)] {
        let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
        host.open(1);
        let reset = host.segment(TO, tcp::RST | tcp::ACK);
        host.pass(1, reset);
        (2..2 + others).for_each(|connection| host.open(connection));
        host.wait(20 * SECOND);
        assert_eq!(host.vnics.flow(1).is_some(), stays, "beside {others}");
        assert!(host.vnics.flow(2).is_some());
    }
}

#[test]
fn tables_are_bounded() {
    let mut host = Host::new(trusting(), LIMITS);
    for connection in 0..150 {
        host.open(connection);
    }
    assert_eq!(host.vnics.entries(), [100, 100, 0]);
    assert_eq!(host.count("table_full"), 50);
    assert_eq!(host.count("flow_one_sided"), 150, "tried again each time");
    // Those without room pass untouched, and their SYN/ACKs as well.
    let again = host.synack(149);
    assert_eq!(again.edits, 0);
    assert_eq!(host.data(149).edits & !edit::UNHELD, 0);
    assert!(host.data(3).edits & edit::UNHELD == 0, "held by its window");
    // A flow that is forgotten makes room.
    host.vnics.forget(3);
    host.synack(149);
    assert!(host.vnics.flow(149).is_some());
    // Met from the middle.
    host.data(1_000);
    assert_eq!(
        (host.count("table_full"), host.count("flow_midstream")),
        (53, 0)
    );
}

#[test]
fn an_interface_has_a_quota_and_a_share() {
    let mut host = Host::new(policy(&[(0, rule())]), Limits::default());
    host.vnics.attach(VNIC, Scope::ALL, 10);
    (0..20).for_each(|connection| host.open(connection));
    assert_eq!(host.count("quota"), 10);
    host.vnics.forget(0);
    host.open(50);
    assert_eq!((host.count("quota"), host.vnics.entries()[0]), (10, 10));
    // Far more unanswered SYNs than a share: they are kept in the table for such interfaces.
    for connection in 100..5_000 {
        host.syn(connection);
    }
    let noted = host.vnics.entries()[1];
    assert!(noted > 4_900, "{noted}");
    host.vnics.attach(VNIC, Scope::ALL, 0);
    host.synack(4_999);
    assert!(host.vnics.flow(4_999).is_some(), "kept among its like");
}

#[test]
fn a_reload_decides_flows_anew() {
    let named = |first: u16, last: u16| Rule {
        source_port_low: first,
        source_port_high: last,
        ..rule()
    };
    let mut host = Host::new(policy(&[(0, named(1, 9)), (1, rule())]), LIMITS);
    let ends = [1, 5, 20];
    ends.into_iter()
        .for_each(|connection| host.open(connection));
    let rules = |host: &Host| ends.map(|c| host.vnics.flow(c).map(|flow| flow.rule));
    assert_eq!(rules(&host), [Some(0), Some(0), Some(1)]);
    // The same rules: nothing happens.
    host.vnics
        .set_policy(policy(&[(0, named(1, 9)), (1, rule())]));
    assert_eq!(host.count("rule_changed"), 0);
    // An earlier rule covers one, the last rule is gone.
    host.vnics
        .set_policy(policy(&[(2, named(4, 6)), (0, named(1, 9))]));
    assert_eq!(rules(&host), [Some(0), Some(2), None]);
    assert_eq!(host.count("rule_changed"), 2);
    assert_eq!(host.data(5).edits & edit::UNHELD, 0, "its window goes on");
    // A SYN from before the reload makes a flow of the rule in force.
    host.syn(8);
    host.vnics.set_policy(policy(&[(5, rule())]));
    host.synack(8);
    assert_eq!(host.vnics.flow(8).unwrap().rule, 5);
}

#[test]
fn a_scope_says_which_rules_hold_at_an_interface() {
    let scoped = Rule {
        scope_id: 1,
        ..rule()
    };
    let mut here = Scope::default();
    here.insert(3);
    let mut host = Host::new(policy(&[(3, scoped)]), LIMITS);
    host.open(1);
    assert_eq!((host.count("no_rule"), host.vnics.entries()[0]), (1, 0));
    host.vnics.attach(VNIC, here, 0);
    host.open(1);
    assert_eq!(host.vnics.flow(1).unwrap().rule, 3);
    host.data(2);
    assert_eq!(host.vnics.flow(2).unwrap().rule, 3);
    // It no longer holds there.
    host.vnics.attach(VNIC, Scope::default(), 0);
    host.vnics.set_policy(policy(&[(3, scoped)]));
    assert_eq!(
        (host.count("rule_changed"), host.vnics.entries()[0]),
        (2, 0)
    );
}

#[test]
fn a_syn_ack_alone_says_what_the_peers_window_scale_is() {
    let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
    host.synack(1);
    assert_eq!(host.vnics.entries(), [0, 1, 0]);
    host.data(1);
    let flow = *host.vnics.flow(1).unwrap();
    assert_eq!((flow.mode, flow.wscale), (MODE_WATCH, 7));
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "midstream");
    assert_eq!(host.count("flow_midstream"), 1);
}

#[test]
fn data_behind_a_syn_ack_alone_begin_another_life() {
    let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
    host.open(1);
    host.data(1);
    assert_eq!(host.vnics.flow(1).unwrap().mode, MODE_ONE_SIDED);
    // Of another connection of the same tuple, whose SYN was not read.
    let answer = |host: &Host, ack| Segment {
        seq: 900_000,
        ack,
        options: option::MSS,
        mss: 1000,
        ..host.segment(TO, tcp::SYN | tcp::ACK)
    };
    let stray = answer(&host, 77_001);
    host.pass(1, stray);
    let next = |host: &Host, seq| Segment {
        seq,
        payload: 500,
        ..host.segment(FROM, tcp::ACK)
    };
    // Data that do not follow it: it was a stranger's.
    let segment = next(&host, 2001);
    assert_eq!(host.pass(1, segment).edits & edit::UNHELD, 0);
    assert_eq!(host.vnics.flow(1).unwrap().snd_nxt, 2501);
    let stray = answer(&host, 77_001);
    host.pass(1, stray);
    let segment = next(&host, 77_001);
    assert_ne!(host.pass(1, segment).edits & edit::UNHELD, 0);
    let flow = *host.vnics.flow(1).unwrap();
    assert_eq!(
        (flow.mode, flow.mss, flow.snd_una),
        (MODE_WATCH, 1000, 77_001)
    );
}

#[test]
fn a_handshake_of_which_half_was_seen_is_one_direction() {
    let mut host = Host::new(policy(&[(0, rule())]), LIMITS);
    host.syn(1);
    host.data(1);
    let flow = host.vnics.flow(1).unwrap();
    assert_eq!(REASON_NAMES[usize::from(flow.reason)], "one-direction");
}

#[test]
fn a_tenants_claims_are_refused_where_nothing_is_known() {
    let mut host = Host::new(trusting(), LIMITS);
    let forged = Segment {
        options: option::FEEDBACK,
        ..host.segment(FROM, tcp::ACK)
    };
    assert_ne!(host.pass(1, forged).edits & edit::STRIP_FEEDBACK, 0);
    let forged = Segment {
        options: option::PEER,
        ..host.segment(FROM, tcp::SYN | tcp::ACK)
    };
    assert_ne!(host.pass(2, forged).edits & edit::STRIP_PEER, 0);
    assert_eq!(host.count("forged"), 2);
    let from_peer = Segment {
        options: option::FEEDBACK,
        ..host.segment(TO, tcp::ACK)
    };
    assert_eq!(host.pass(1, from_peer).edits & edit::STRIP_FEEDBACK, 0);
}

#[test]
fn two_hosts_become_partners_through_their_tables() {
    let mut host = Host::new(trusting(), LIMITS);
    assert_ne!(host.syn(1).edits & edit::ADD_PEER, 0);
    let answer = Segment {
        seq: 5000,
        options: option::PEER,
        ..host.segment(TO, tcp::SYN | tcp::ACK)
    };
    host.pass(1, answer);
    assert_eq!(host.vnics.flow(1).unwrap().mode, MODE_TWO_SIDED);
    // Repeated, it is edited again and its flow goes on.
    host.data(1);
    assert_ne!(host.pass(1, answer).edits & edit::STRIP_PEER, 0);
    assert_eq!(host.vnics.flow(1).unwrap().snd_nxt, 2001);
    assert_eq!(host.count("flow_two_sided"), 1);
}

/// (entries, bytes of tables) after so many connections one after another, and the time per packet.
fn one_after_another(connections: u32) -> ([usize; 3], usize, f64) {
    let mut host = Host::new(policy(&[(0, rule())]), Limits::default());
    let begin = Instant::now();
    for connection in 0..connections {
        host.open(connection);
        host.speak_and_close(connection);
        host.now_ns += 50 * MS;
    }
    let packet_ns = begin.elapsed().as_nanos() as f64 / host.packets as f64;
    assert_eq!(host.count("flow_one_sided"), u64::from(connections));
    assert_eq!(host.count("table_full"), 0);
    (host.vnics.entries(), host.vnics.bytes(), packet_ns)
}

#[test]
fn a_million_connections_one_after_another_need_no_more_than_a_thousand() {
    let (few, small, first_ns) = one_after_another(1_000);
    let (many, large, then_ns) = one_after_another(1_000_000);
    println!(
        "1000 connections: {few:?} entries, {small} bytes, {first_ns:.0} ns a packet; \
         1000000: {many:?} entries, {large} bytes, {then_ns:.0} ns a packet"
    );
    // Ten seconds' worth.
    assert!(few[0] > 150, "{few:?}");
    assert!(many[0] <= few[0] && many[1] <= few[1], "{few:?}, {many:?}");
    assert_eq!(large, small, "bytes of tables");
}

/// A flood has used up the interface's share: a SYN/ACK of another life is not hidden behind an
/// older one of the same tuple.
#[test]
fn a_flood_hides_no_later_answer() {
    let limits = Limits {
        half_open: 5_000,
        ..LIMITS
    };
    let mut host = Host::new(policy(&[(0, rule())]), limits);
    host.vnics.attach(VNIC, Scope::ALL, 0);
    host.open(1);
    let life = |begin: u32| {
        let answer = Segment {
            seq: begin + 5000,
            ack: begin + 1001,
            options: option::MSS,
            mss: 1460,
            ..host.segment(TO, tcp::SYN | tcp::ACK)
        };
        let first = Segment {
            seq: begin + 1001,
            ack: begin + 5001,
            ..host.segment(FROM, tcp::ACK)
        };
        (answer, first)
    };
    let (stray, _) = life(100_000);
    let (answer, first) = life(200_000);
    host.pass(1, stray);
    host.wait(5 * SECOND);
    (2..2_000).for_each(|connection| {
        host.syn(connection);
    });
    host.pass(1, answer);
    host.pass(1, first);
    assert_eq!(host.count("flow_midstream"), 1);
    assert_eq!(host.vnics.flow(1).unwrap().snd_una, first.seq);
}

/// Connections of some interfaces to some peers, all of which are trusted.
struct Handshakes {
    vnics: Vnics<FlowKey>,
    now_ns: u64,
    ports: u16,
}

impl Handshakes {
    fn new() -> Self {
        let limits = Limits {
            blackholes: 1024,
            flows: 5000,
            ..LIMITS
        };
        Self {
            vnics: Vnics::with(trusting(), limits, HashKey::FIXED),
            now_ns: SECOND,
            ports: 1000,
        }
    }

    /// A connection whose SYNs do not arrive while they have an option of the host. How many SYNs
    /// it takes.
    fn connect(&mut self, ifindex: u32, peer: u32) -> usize {
        self.ports += 1;
        let key = FlowKey {
            remote: Addr::from(std::net::IpAddr::from(Ipv4Addr::from_bits(peer))),
            ifindex,
            ..ends(u32::from(self.ports))
        };
        let segment = |direction: Direction, tcp_flags| Segment {
            seq: 1000,
            ack: 1001,
            tcp_flags,
            direction: direction as u8,
            header_len: 20,
            window: 1000,
            ..Segment::default()
        };
        for tries in 1.. {
            self.now_ns += SECOND;
            let mut syn = segment(FROM, tcp::SYN);
            let verdict = self.vnics.segment(key, &mut syn, self.now_ns, || key);
            if verdict.edits & edit::ADD_PEER == 0 {
                let mut answer = segment(TO, tcp::SYN | tcp::ACK);
                self.vnics.segment(key, &mut answer, self.now_ns, || key);
                return tries;
            }
        }
        unreachable!()
    }
}

#[test]
fn a_peer_is_out_of_reach_of_one_interface_only() {
    let mut host = Handshakes::new();
    let peer = u32::from_be_bytes([10, 0, 0, 2]);
    assert_eq!([host.connect(7, peer), host.connect(7, peer)], [3, 1]);
    assert_eq!(host.connect(7, peer + 1), 3);
    assert_eq!(host.connect(8, peer), 3);
}

/// One tenant has peers without end; another one's peer stays known.
#[test]
fn an_interface_has_its_own_memory_of_such_peers() {
    let mut host = Handshakes::new();
    let peer = u32::from_be_bytes([10, 0, 0, 2]);
    assert_eq!(host.connect(8, peer), 3);
    host.now_ns = SECOND;
    for number in 0..3000 {
        host.connect(7, peer + 7 * number);
        host.now_ns = 2 * SECOND;
    }
    assert_eq!(host.connect(8, peer), 1);
}
