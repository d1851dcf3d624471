//! The enforcement step natively and in the kernel: the same frames at the same times give the same
//! bytes, the same decisions, the same flows and the same counters.
//!
//! Needs root. Partial checksums cannot be made this way; `live_edit.rs` has them.

mod random;
mod table;

use std::rc::Rc;

use kernel::{IFINDEX, Kernel};
use net::{
    A, B, Fate, Packet, Pair, Route, Tenant, opt, pair::Enforcer, params, policy, policy_of,
    tenant::State,
};
use random::Random;
use sluicegate_core::{
    abi::{
        COUNTER_NAMES, FLOW_SCALE_BOUND, FlowKey, Interface, MODE_ONE_SIDED, MODE_TWO_SIDED,
        MODE_WATCH, Params, PolicyTable, RULE_OBSERVE, RULE_POLICE, RULE_STRIP_MPTCP, Remembered,
        WINDOW_MAX,
    },
    cc::Algorithm,
    frame::{self, Frame},
    host::{Action, Direction, Host, Outcome, tcp},
    life::Opener,
};
use table::{count, opening};

use crate::{kernel, net};

/// A host on frames with the kernel's programs at its side: both get every frame.
struct Shadowed {
    host: Host,
    kernel: Rc<Kernel>,
    /// Runs of the programs that made FACKs.
    facks: u64,
}

impl Shadowed {
    fn new(policy: &PolicyTable, kernel: &Rc<Kernel>) -> Self {
        Self {
            host: Host::new(policy),
            kernel: Rc::clone(kernel),
            facks: 0,
        }
    }

    fn key(&self) -> FlowKey {
        FlowKey {
            ifindex: IFINDEX,
            ..*self.host.key()
        }
    }

    fn compare_state(&self, context: impl Fn() -> String) {
        let key = self.key();
        assert_eq!(
            self.kernel.flow(&key),
            self.host.flow().copied(),
            "{}",
            context()
        );
        for (opener, direction) in [(1, Direction::FromTenant), (2, Direction::ToTenant)] {
            assert_eq!(
                self.kernel.half_open(&FlowKey { opener, ..key }),
                self.host.half_open(direction).copied(),
                "{}",
                context()
            );
        }
        assert_eq!(
            self.kernel.half_open(&FlowKey { opener: 3, ..key }),
            self.host.answer().copied(),
            "{}",
            context()
        );
    }
}

impl Enforcer for Shadowed {
    fn frame(&mut self, frame: &mut Vec<u8>, direction: Direction, now_ns: u64) -> Outcome {
        let before = frame.clone();
        let key = self.key();
        self.host.set_path(self.kernel.path(&key));
        // The kernel knows what other conversations have found out about the peer.
        let mut bytes = frame.clone();
        let view = Frame::new(&mut bytes, frame.len().try_into().unwrap(), false);
        let parsed = frame::Packet::parse(&view, direction, IFINDEX);
        if let Ok(packet) = &parsed {
            self.host.set_blackhole(self.kernel.blackhole(packet.key()));
        }
        let made = self.kernel.frame(frame, direction, now_ns);
        let outcome = self.host.frame(frame, direction, now_ns);
        let context = || format!("{direction:?} {before:02x?}: {outcome:?}");
        assert_eq!(made.passes, outcome.action == Action::Pass, "{}", context());
        assert_eq!(made.frame, *frame, "{}", context());
        self.compare_state(context);
        if self.key() == key {
            assert_eq!(self.kernel.path(&key), self.host.path(), "{}", context());
        }
        if let Ok(packet) = &parsed {
            let known = self.kernel.blackhole(packet.key());
            assert_eq!(known, *self.host.blackhole(), "{}", context());
        }
        if let Some(fack) = &outcome.fack {
            let made = self.kernel.fack(frame, now_ns);
            assert!(made.passes, "{}", context());
            assert_eq!(made.frame, *fack, "{}", context());
            self.facks += 1;
        }
        outcome
    }

    fn host(&self) -> &Host {
        &self.host
    }
}

/// Both counted the same, but for the runs that only make FACKs.
fn compare_counters<'a>(kernel: &Kernel, hosts: impl Iterator<Item = &'a Shadowed>) {
    let mut native = [0; COUNTER_NAMES.len()];
    for shadowed in hosts {
        for (sum, value) in native.iter_mut().zip(shadowed.host.counters()) {
            *sum += value;
        }
        native[COUNTER_NAMES
            .iter()
            .position(|name| *name == "packets")
            .unwrap()] += shadowed.facks;
    }
    for ((name, native), kernel) in COUNTER_NAMES.iter().zip(native).zip(kernel.counters()) {
        assert_eq!(native, kernel, "{name}");
    }
}

/// Two hosts without any flow.
fn pair(kernel: &Rc<Kernel>, policy: &PolicyTable) -> Pair<Shadowed> {
    kernel.reset(policy);
    Pair::of([(); 2].map(|()| Shadowed::new(policy, kernel)))
}

fn kernel() -> Rc<Kernel> {
    Rc::new(Kernel::load(&policy()))
}

/// A conversation with losses, marks, reordering, idleness, both ways.
fn converse(pair: &mut Pair<Shadowed>, route: Route) {
    pair.set_route(route);
    pair.connect();
    pair.set_fate(|crossing| match crossing.index % 37 {
        5 | 17 => Fate::Mark,
        11 => Fate::Drop,
        23 => Fate::Delay(40_000),
        _ => Fate::Deliver,
    });
    pair.transfer(A, 700_000);
    pair.wait(3_000_000_000);
    pair.transfer(B, 400_000);
    pair.send(A, 100_000);
    pair.send(B, 100_000);
    pair.finish();
}

#[test]
fn conversations_are_the_same() {
    let routes = [
        Route::new("10.1.0.1:40000", "10.2.0.1:5001"),
        Route::new("[fd00::1]:40000", "[fd00::2]:5001"),
        Route {
            vlan: Some(7),
            ..Route::new("10.1.0.1:40001", "10.2.0.1:5001")
        },
    ];
    let kernel = kernel();
    // Some handshakes have data (RFC 7413), the last ones more than frames of 1500 bytes hold.
    for (route, data) in routes.into_iter().zip([0, 700, 2_900]) {
        let mut pair = pair(&kernel, &policy());
        for side in [A, B] {
            pair.tenant(side).offers.data = data;
            pair.tenant(side).offers.mss = if data > 1460 { 8_960 } else { 1460 };
        }
        converse(&mut pair, route);
        assert_eq!(pair.flow(A).mode, MODE_TWO_SIDED);
        assert!(pair.flow(A).losses > 0 && pair.flow(A).bytes_marked > 0);
        let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
        compare_counters(&kernel, sides);
    }
}

/// Behind each number of NOPs, so at even places and odd ones, in a SYN and in a SYN/ACK.
#[test]
fn an_mss_that_is_lowered_is_the_same() {
    let kernel = kernel();
    let policy = policy_of(Params {
        mss: 1460,
        ..params()
    });
    for (ends, nops) in (0..8).flat_map(|nops| {
        [
            (("10.1.0.1:40000", "10.2.0.1:5001"), nops),
            (("[fd00::1]:40000", "[fd00::2]:5001"), nops),
        ]
    }) {
        let mut pair = pair(&kernel, &policy);
        for side in [A, B] {
            pair.tenant(side).offers.mss = 8960;
            pair.tenant(side).offers.leading = vec![opt::NOP; nops];
        }
        pair.set_route(Route::new(ends.0, ends.1));
        pair.connect();
        pair.transfer(A, 200_000);
        for side in [A, B] {
            assert_eq!(pair.flow(side).mss, 1460);
            assert_eq!(pair.flow(side).mode, MODE_TWO_SIDED);
        }
        assert_eq!(count(&kernel, "mss_clamped"), 2);
        let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
        compare_counters(&kernel, sides);
    }
}

/// Of any MSS that either end announces, and of segments that become smaller and larger.
#[test]
fn sizes_of_segments_are_the_same() {
    let kernel = kernel();
    // The kernel runs programs on frames of less than a page only.
    for (own, peers) in [(8960, 8960), (1460, 65_495), (65_495, 65_495), (536, 1460)] {
        let mut pair = pair(&kernel, &policy());
        pair.tenant(A).offers.mss = own;
        pair.tenant(B).offers.mss = peers;
        pair.set_fate(|crossing| match crossing.index % 3 {
            0 => Fate::Mark,
            _ => Fate::Deliver,
        });
        pair.connect();
        for mss in [1460, 3400, 1000, 2900] {
            pair.tenant(A).segment = mss;
            pair.transfer(A, 300_000);
        }
        let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
        compare_counters(&kernel, sides);
    }
}

/// Devices that drop SYNs, SYN/ACKs or data for what hosts add to them; further connections.
#[test]
fn what_paths_drop_is_the_same() {
    let kernel = kernel();
    let is_dropped = [
        |packet: &Packet| packet.flags & (tcp::SYN | tcp::ACK) == tcp::SYN && packet.ecn != 0,
        |packet: &Packet| packet.has(tcp::SYN | tcp::ACK) && packet.ecn != 0,
        |packet: &Packet| packet.len() > 0 && packet.ecn != 0,
    ];
    for hit in is_dropped {
        let mut pair = pair(&kernel, &policy());
        pair.set_fate(move |crossing| match hit(&crossing.packet) {
            true => Fate::Drop,
            false => Fate::Deliver,
        });
        // The native host has one flow: the tuple is used again.
        for isn in [40_000_000, 50_000_000] {
            for side in [A, B] {
                *pair.tenant(side) = Tenant::new(isn);
            }
            for _ in 0..3 {
                if pair.tenant(A).state != State::Open {
                    let syn = pair.tenant(A).syn();
                    pair.transmit(A, &syn);
                    pair.run();
                }
                pair.wait(1_000_000_000);
            }
            pair.transfer(A, 20_000);
            assert_eq!(pair.flow(A).mode, MODE_ONE_SIDED);
        }
        let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
        compare_counters(&kernel, sides);
    }
    assert_eq!(count(&kernel, "option_dropped"), 1);
}

#[test]
fn every_algorithm_is_the_same() {
    let kernel = kernel();
    for algorithm in Algorithm::ALL {
        let policy = policy_of(Params {
            algorithm: algorithm.number(),
            one_sided: algorithm.number(),
            ..params()
        });
        let mut pair = pair(&kernel, &policy);
        converse(&mut pair, Route::new("10.1.0.1:40000", "10.2.0.1:5001"));
        let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
        compare_counters(&kernel, sides);
    }
}

#[test]
fn facks_and_fallbacks_are_the_same() {
    let kernel = kernel();
    let mut pair = pair(&kernel, &policy());
    pair.connect();
    pair.transfer(A, 1_000_000);
    let first = pair.log.len() as u64;
    pair.set_fate(move |crossing| match crossing.index - first {
        10 | 13 | 16 | 19 | 22 => Fate::Drop,
        _ => Fate::Deliver,
    });
    pair.transfer(A, 1_000_000);
    let facks: u64 = pair
        .sides
        .iter()
        .map(|side| side.enforcer.as_ref().unwrap().facks)
        .sum();
    assert!(facks > 0);
    pair.set_fate(|_| Fate::Bleach);
    pair.transfer(A, 8_000_000);
    assert_ne!(pair.flow(A).mode, MODE_TWO_SIDED);
    let sides = pair.sides.iter().filter_map(|side| side.enforcer.as_ref());
    compare_counters(&kernel, sides);
}

/// The result for a packet of a connection. It passes.
fn passes_as(
    shadowed: &mut Shadowed,
    route: Route,
    packet: &net::Packet,
    direction: Direction,
    now_ns: u64,
) -> net::Packet {
    let mut frame = match direction {
        Direction::FromTenant => route.build(packet),
        Direction::ToTenant => route.reversed().build(packet),
    };
    let outcome = shadowed.frame(&mut frame, direction, now_ns);
    assert_eq!(outcome.action, Action::Pass);
    net::wire::read(&frame).1
}

/// A tuple begins a new life of which not all was read, at each end and with near numbers and far
/// ones: what goes on of it leaves as it is, natively and in the kernel.
#[test]
fn lives_that_begin_anew_are_the_same() {
    let kernel = kernel();
    let route = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
    let ahead = [2_500_u32, 70_000, 16 << 20, 900_000_000];
    for (ahead, is_client) in ahead.into_iter().flat_map(|by| [(by, true), (by, false)]) {
        // The first SYN/ACK is lost, or an old connection is known and the SYN is not read.
        for syns in [2, 1] {
            kernel.reset(&policy());
            let mut shadowed = Shadowed::new(&policy(), &kernel);
            let (way, back) = match is_client {
                true => (Direction::FromTenant, Direction::ToTenant),
                false => (Direction::ToTenant, Direction::FromTenant),
            };
            let mut now_ns = 1_000_000_000;
            let mut pass = |packet: &net::Packet, direction| {
                now_ns += 20_000_000;
                passes_as(&mut shadowed, route, packet, direction, now_ns)
            };
            let (client, servers) = (5_000_u32, [7_000, 7_000 + ahead]);
            let clients = [client, if syns == 1 { client + ahead } else { client }];
            for life in 0..2 {
                let (syn, mut answer) = opening(clients[life] - 1);
                answer.seq = servers[life] - 1;
                if life < syns {
                    pass(&syn, way);
                }
                pass(&answer, back);
                if life < 1 && syns == 2 {
                    continue;
                }
                for i in 0..20 {
                    let of_client = net::Packet {
                        seq: clients[life],
                        ack: servers[life] + 100 * i,
                        flags: tcp::ACK,
                        window: 500,
                        ..net::Packet::default()
                    };
                    let of_server = net::Packet {
                        seq: of_client.ack,
                        ack: of_client.seq,
                        payload: vec![1; 100],
                        ..of_client.clone()
                    };
                    assert_eq!(pass(&of_client, way).ack, of_client.ack, "{ahead} {i}");
                    assert_eq!(pass(&of_server, back).ack, of_server.ack, "{ahead} {i}");
                }
                // Copies of the handshake come late.
                pass(&answer, back);
                let first = net::Packet {
                    seq: clients[life],
                    ack: servers[life],
                    flags: tcp::ACK,
                    window: 500,
                    ..net::Packet::default()
                };
                assert_eq!(pass(&first, way).ack, first.ack, "{ahead}");
            }
            compare_counters(&kernel, std::iter::once(&shadowed));
        }
    }
}

/// A pure ACK that a moved edge numbers leaves with the number of the next byte, beside feedback
/// and without it.
#[test]
fn numbers_of_acks_that_are_restored_are_the_same() {
    let kernel = kernel();
    for (ends, with_peer) in [
        (("10.1.0.1:40000", "10.2.0.1:5001"), true),
        (("10.1.0.1:40000", "10.2.0.1:5001"), false),
        (("[fd00::1]:40000", "[fd00::2]:5001"), true),
    ] {
        kernel.reset(&policy());
        let mut shadowed = Shadowed::new(&policy(), &kernel);
        let route = Route::new(ends.0, ends.1);
        let mut now_ns = 1_000_000_000;
        let mut pass = |packet: &net::Packet, direction| {
            now_ns += 1_000_000;
            passes_as(&mut shadowed, route, packet, direction, now_ns)
        };
        let (syn, mut answer) = opening(u32::MAX - 5000);
        if with_peer {
            answer.options.extend(opt::peer(0));
        }
        pass(&syn, Direction::FromTenant);
        pass(&answer, Direction::ToTenant);
        let own = net::Packet {
            seq: syn.seq.wrapping_add(1),
            ack: answer.seq.wrapping_add(1),
            flags: tcp::ACK,
            window: 500,
            ..net::Packet::default()
        };
        let at = |bytes: u32| own.seq.wrapping_add(bytes);
        for i in 0..8 {
            let data = net::Packet {
                seq: at(i * 1000),
                payload: vec![1; 1000],
                ..own.clone()
            };
            assert_eq!(pass(&data, Direction::FromTenant).seq, data.seq);
        }
        let acks = net::Packet {
            seq: own.ack,
            ack: at(3000),
            window: 60_000,
            ..own.clone()
        };
        pass(&acks, Direction::ToTenant);
        for (number, becomes) in [
            (0, 8000),
            (1000, 8000),
            (2998, 8000),
            (2999, 2999),
            (3000, 3000),
        ] {
            let seq = at(number);
            let ack = net::Packet { seq, ..own.clone() };
            assert_eq!(pass(&ack, Direction::FromTenant).seq, at(becomes));
        }
        compare_counters(&kernel, std::iter::once(&shadowed));
        assert_eq!(count(&kernel, "seq_restored"), 3);
    }
}

/// One connection of several that random frames belong to.
struct Connection {
    shadowed: Shadowed,
    route: Route,
    start: u32,
    peer_start: u32,
}

fn routes() -> Vec<Route> {
    let plain = [
        ("10.1.0.1:4000", "10.2.0.1:5001"),
        ("10.1.0.1:4001", "10.2.0.1:5001"),
        ("[fd00::1]:4000", "[fd00::2]:5001"),
        ("[fd00::1]:4001", "[fd00::2]:80"),
        ("10.1.0.1:4000", "192.0.2.1:443"), // not trusted
    ]
    .map(|(from, to)| Route::new(from, to));
    let tagged = plain.map(|route| Route {
        vlan: Some(100),
        ..route
    });
    [plain, tagged].concat()
}

impl Connection {
    /// Passes a packet of the tenant or of the peer; `None` if the kernel would not run on it.
    fn pass(
        &mut self,
        random: &mut Random,
        direction: Direction,
        packet: &net::Packet,
        now_ns: u64,
    ) -> Option<Outcome> {
        let route = match direction {
            Direction::FromTenant => self.route,
            Direction::ToTenant => self.route.reversed(),
        };
        let mut frame = route.build(packet);
        random.damage(&mut frame, route);
        kernel::runs_on(&frame).then(|| self.shadowed.frame(&mut frame, direction, now_ns))
    }

    /// A connection begins, by the tenant or by the peer.
    fn begin(&mut self, random: &mut Random, now_ns: u64) {
        self.start = random.next() as u32;
        self.peer_start = random.next() as u32;
        let (mut out, mut back) = (Direction::FromTenant, Direction::ToTenant);
        let (mut first, mut second) = (self.start, self.peer_start);
        if random.one_in(2) {
            (out, back, first, second) = (back, out, second, first);
        }
        let syn = random.handshake(first.wrapping_sub(1), None);
        self.pass(random, out, &syn, now_ns);
        let answer = random.handshake(second.wrapping_sub(1), Some(first));
        self.pass(random, back, &answer, now_ns);
    }

    /// Something that means something to the flow, or nearly does.
    fn go_on(&mut self, random: &mut Random, now_ns: u64) -> Option<Outcome> {
        let direction = match random.below(2) {
            0 => Direction::FromTenant,
            _ => Direction::ToTenant,
        };
        let own = self
            .shadowed
            .host
            .flow()
            .map_or(self.start, |flow| flow.snd_nxt);
        let packet = random.packet(direction, own, self.peer_start);
        let outcome = self.pass(random, direction, &packet, now_ns)?;
        if direction == Direction::ToTenant && packet.seq == self.peer_start {
            self.peer_start = packet.end();
        }
        Some(outcome)
    }
}

/// So many frames of several connections.
fn storm(kernel: &Rc<Kernel>, seed: u64, policy: &PolicyTable, frames: u32) {
    kernel.reset(policy);
    let mut random = Random(seed);
    let connection = |route| Connection {
        shadowed: Shadowed::new(policy, kernel),
        route,
        start: 0,
        peer_start: 0,
    };
    let mut connections: Vec<Connection> = routes().into_iter().map(connection).collect();
    let mut now_ns = 1_000_000_000;
    let (mut edited, mut stopped) = (0, 0);
    for _ in 0..frames {
        now_ns += random.pause_ns();
        let at = random.below(connections.len() as u64) as usize;
        let connection = &mut connections[at];
        if random.one_in(60) {
            connection.begin(&mut random, now_ns);
        }
        if let Some(outcome) = connection.go_on(&mut random, now_ns) {
            edited += u32::from(outcome.edits != 0);
            stopped += u32::from(outcome.action != Action::Pass);
        }
    }
    let all = connections.iter().map(|connection| &connection.shadowed);
    compare_counters(kernel, all);
    if policy.slots[0].params.mode == RULE_OBSERVE {
        assert_eq!((edited, stopped), (0, 0));
    } else {
        assert!(edited > frames / 8, "{edited} of {frames} were edited");
        assert!(stopped > 0, "none was policed or consumed");
    }
}

/// Frames of a storm: 6000, or as the environment says for machines on which each takes long.
fn frames() -> u32 {
    std::env::var("SLUICEGATE_VECTOR_FRAMES").map_or(6_000, |text| {
        text.parse()
            .expect("SLUICEGATE_VECTOR_FRAMES: not a number")
    })
}

#[test]
fn random_frames_are_the_same() {
    let kernel = kernel();
    for seed in 1..=4 {
        storm(&kernel, seed, &policy(), frames());
    }
}

#[test]
fn random_frames_are_the_same_under_random_policies() {
    let kernel = kernel();
    let mut random = Random(99);
    for seed in 100..106 {
        let mut flags = RULE_POLICE;
        if random.below(2) == 0 {
            flags |= RULE_STRIP_MPTCP;
        }
        let policy = policy_of(Params {
            algorithm: random.below(8) as u8,
            one_sided: random.below(8) as u8,
            flags,
            floor_mss: 1 + random.below(2) as u8,
            init_segments: 1 + random.below(64) as u8,
            window_cap: random.below(u64::from(WINDOW_MAX)) as u32,
            mss: [0, 536, 1460, 4000][random.below(4) as usize],
            ..params()
        });
        storm(&kernel, seed, &policy, frames() / 2);
    }
}

#[test]
fn observers_are_the_same() {
    storm(
        &kernel(),
        7,
        &policy_of(Params {
            mode: RULE_OBSERVE,
            ..params()
        }),
        frames() / 2,
    );
}

#[test]
fn frames_cut_anywhere_are_the_same() {
    let kernel = kernel();
    let mut shadowed = Shadowed::new(&policy(), &kernel);
    for route in routes() {
        let syn = net::Packet {
            seq: 5,
            flags: tcp::SYN,
            window: 1000,
            options: opt::all(&[&opt::mss(1460), &opt::wscale(7)]),
            ..net::Packet::default()
        };
        let frame = route.build(&syn);
        let cuts = (0..frame.len()).map(|length| frame[..length].to_vec());
        let cuts: Vec<_> = cuts.filter(|cut| kernel::runs_on(cut)).collect();
        assert!(cuts.len() >= 28, "{}", cuts.len());
        for mut cut in cuts {
            shadowed.frame(&mut cut, Direction::FromTenant, 1);
        }
    }
    compare_counters(&kernel, std::iter::once(&shadowed));
}
