//! Whatever goes wrong, every stream arrives whole or its connection reports an error, every packet
//! is accounted for, nothing hangs, and the same seed gives the same run.

use std::{net::Ipv4Addr, sync::Arc};

use proptest::prelude::*;
use sluicegate_core::aqm::AqmParams;
use sluicegate_fabric::{
    Graph, Impairment, PortConfig, Ports, Routes, Routing, SharedMemory,
    graph::{HostId, PortId, SwitchId},
};
use sluicegate_sim::net::{EndId, Host, Net, Notice, Owner, Parts, Plain, Tenant};
use sluicegate_tcp::{Config, Events, config::Buffer};
use sluicegate_vswitch::{WhenFull, switch};

const PORT: u16 = 5000;
/// Actors: who opens a connection, and who accepts it.
const SOURCE: u32 = 0;
const SINK: u32 = 1;

fn owner(actor: u32, key: u64) -> Owner {
    Owner {
        actor,
        key,
        priority: 0,
        path_values: None,
    }
}
const MS: u64 = 1_000_000_000;
/// Longer than Linux tries: 15 retransmissions, the last ones two minutes apart.
const BOUND_PS: u64 = 3 * 3600 * 1000 * MS;
/// More events than any of these runs needs.
const EVENTS_MAX: u64 = 20_000_000;

/// A connected network.
#[derive(Clone, Debug)]
struct Shape {
    /// The switch of each host.
    hosts: Vec<usize>,
    /// To which earlier switch each switch but the first is linked.
    tree: Vec<usize>,
    /// More links between switches.
    extra: Vec<(usize, usize)>,
    rate_bps: u64,
    delay_ps: u64,
    limit_bytes: u64,
    jitter_ps: u64,
    shared: Option<SharedMemory>,
    routing: Routing,
    switch: switch::Config,
    small_queues: bool,
    impairment: Impairment,
    receive_buffer: Option<u64>,
}

/// Something that goes wrong at a time, in ms, for so long.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    at_ms: u64,
    for_ms: u64,
    kind: Kind,
    /// Which link, host or tenant.
    whom: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    LinkDown,
    /// It stays down.
    LinkCut,
    Pause,
    /// Reads with this many kbit/s.
    Slow(u64),
    Corrupt,
}

/// A stream from one host to another.
#[derive(Clone, Copy, Debug)]
struct Flow {
    from: usize,
    to: usize,
    bytes: u64,
}

fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + host as u32)
}

impl Shape {
    /// Two hosts at one switch.
    fn pair() -> Self {
        Self {
            hosts: vec![0, 0],
            tree: Vec::new(),
            extra: Vec::new(),
            rate_bps: 1_000_000_000,
            delay_ps: 10_000_000,
            limit_bytes: 1 << 20,
            jitter_ps: 0,
            shared: None,
            routing: Routing::DModK,
            switch: switch::Config::straight(),
            small_queues: false,
            impairment: Impairment::default(),
            receive_buffer: None,
        }
    }

    fn graph(&self) -> Graph {
        let (hosts, switches) = (self.hosts.len(), self.tree.len() + 1);
        let mut graph = Graph::new(hosts as u32, switches as u32);
        let switch = |number: usize| SwitchId::at(number % switches);
        for (host, &at) in HostId::enumerate(&self.hosts) {
            graph.join(host, switch(at));
        }
        for (number, &parent) in self.tree.iter().enumerate() {
            graph.join(switch(number + 1), switch(parent % (number + 1)));
        }
        for &(a, b) in &self.extra {
            if switch(a) != switch(b) {
                graph.join(switch(a), switch(b));
            }
        }
        graph
    }

    fn ports(&self, graph: &Graph, seed: u64) -> Ports<sluicegate_sim::packet::Packet> {
        let mut ports = Ports::default();
        let memories: Vec<_> = (0..=self.tree.len())
            .filter_map(|_| self.shared.map(|shape| ports.add_memory(shape)))
            .collect();
        for &(a, b) in graph.links() {
            for from in [a, b] {
                let switch = graph.node(from).switch();
                let config = PortConfig {
                    rate_bps: self.rate_bps,
                    delay_ps: self.delay_ps,
                    limit_bytes: self.limit_bytes,
                    aqm: AqmParams::default(),
                    jitter_ps: if switch.is_some() { 0 } else { self.jitter_ps },
                    jitter_mean_ps: 0,
                    burst_ps: 0,
                    overhead_bytes: 0,
                };
                let port = ports.add(config, seed ^ ports.len() as u64);
                if let (Some(switch), false) = (switch, memories.is_empty()) {
                    ports.share(port, memories[switch.index()]);
                }
                ports.set_impairment(port, self.impairment);
            }
        }
        ports
    }

    fn net(&self, seed: u64) -> Net {
        let graph = self.graph();
        let mut stack = Config::linux(1460);
        if let Some(bytes) = self.receive_buffer {
            stack.receive_buffer = Buffer {
                initial_bytes: bytes,
                max_bytes: bytes,
            };
        }
        stack.small_queues = self.small_queues;
        let stack = Arc::new(stack);
        let tenant = |host| Tenant {
            host: HostId(host as u32),
            address: address(host).into(),
            stack: Arc::clone(&stack),
        };
        let machine = |host: usize| {
            let adapter = PortId::of_link(host, true);
            let mut machine = Host::new(HostId(host as u32), [adapter; 2], self.switch, None);
            if self.small_queues {
                machine.with_small_queues();
            }
            machine
        };
        Net::new(Parts {
            fabric: Plain::new(self.ports(&graph, seed)),
            routes: Routes::with(&graph, self.routing),
            hosts: (0..self.hosts.len()).map(machine).collect(),
            tenants: (0..self.hosts.len()).map(tenant).collect(),
            ip_bytes: 20,
            seed,
            graph,
        })
    }
}

/// The fate of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stream {
    unwritten: u64,
    arrived: u64,
    /// The receiver has seen the end.
    ended: bool,
    failed: bool,
    last_ps: u64,
}

struct Run {
    net: Net,
    streams: Vec<Stream>,
    links: usize,
}

impl Run {
    fn new(shape: &Shape, flows: &[Flow], seed: u64) -> Self {
        let mut net = shape.net(seed);
        for (number, flow) in flows.iter().enumerate() {
            let (port, key) = (PORT + number as u16, number as u64);
            net.accept(flow.to as u32, port, owner(SINK, key));
            net.connect(
                flow.from as u32,
                address(flow.to).into(),
                port,
                owner(SOURCE, key),
            );
        }
        let stream = |flow: &Flow| Stream {
            unwritten: flow.bytes,
            ..Stream::default()
        };
        Self {
            net,
            streams: flows.iter().map(stream).collect(),
            links: shape.graph().links().len(),
        }
    }

    fn until(&mut self, until_ps: u64) {
        self.hear();
        while self.net.step_before(until_ps) {
            self.hear();
            assert!(self.net.events() < EVENTS_MAX, "it goes round in circles");
        }
        self.net.pass(until_ps);
        assert_eq!(self.net.account(), Ok(()));
    }

    fn hear(&mut self) {
        while let Some(notice) = self.net.sockets.next_notice() {
            if let Notice::Socket(end, events) = notice {
                self.socket(end, events);
            }
        }
    }

    fn socket(&mut self, end: EndId, events: Events) {
        let net = &mut self.net;
        let Owner { actor, key, .. } = net.sockets.owner(end);
        let stream = &mut self.streams[key as usize];
        stream.failed |= events.contains(Events::FAILED);
        if actor == SOURCE {
            let ready = events.contains(Events::CONNECTED) || events.contains(Events::WRITABLE);
            if ready && stream.unwritten > 0 {
                stream.unwritten -= net.write(end, stream.unwritten);
                if stream.unwritten == 0 {
                    net.close(end);
                }
            }
        } else if events.contains(Events::READABLE) {
            let bytes = net.read(end, u64::MAX);
            stream.arrived += bytes;
            if bytes > 0 {
                stream.last_ps = net.now_ps();
            }
            let tcp = net.sockets.tcp(end);
            if tcp.is_some_and(|tcp| tcp.at_end()) {
                stream.ended = true;
                net.close(end);
            }
        }
    }

    /// Begins or ends a trouble.
    fn change(&mut self, trouble: &Trouble, begins: bool) {
        let net = &mut self.net;
        let (link, host) = (trouble.whom % self.links, trouble.whom % net.hosts.len());
        match trouble.kind {
            Kind::LinkDown | Kind::LinkCut => net.set_link(link, !begins),
            Kind::Pause if begins => net.pause(HostId(host as u32)),
            Kind::Pause => net.resume(HostId(host as u32)),
            Kind::Slow(kbps) => net.set_read_rate(host as u32, begins.then_some(kbps * 1000)),
            Kind::Corrupt => net.impair(link, |before| Impairment {
                bit_error_rate: if begins { 1e-5 } else { 0.0 },
                ..*before
            }),
        }
    }

    /// Everything that happens until nothing does.
    fn finish(mut self, troubles: &[Trouble]) -> (Vec<Stream>, u64, u64) {
        let mut changes: Vec<(u64, bool, &Trouble)> = Vec::new();
        for trouble in troubles {
            changes.push((trouble.at_ms * MS, true, trouble));
            if trouble.kind != Kind::LinkCut {
                changes.push(((trouble.at_ms + trouble.for_ms) * MS, false, trouble));
            }
        }
        changes.sort_by_key(|&(at_ps, begins, _)| (at_ps, begins));
        for (at_ps, begins, trouble) in changes {
            self.until(at_ps);
            self.change(trouble, begins);
            assert_eq!(self.net.account(), Ok(()));
        }
        self.until(BOUND_PS);
        assert!(
            !self.net.step_before(u64::MAX),
            "something goes on for ever"
        );
        (self.streams, self.net.hops(), self.net.events())
    }
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(0.0), 1 => 0.0..0.05f64]
}

fn impairments() -> impl Strategy<Value = Impairment> {
    let errors = prop_oneof![2 => Just(0.0), 1 => 0.0..4e-6f64];
    (errors, rate(), rate(), 0..500_000_000u64).prop_map(
        |(bit_error_rate, duplicate_rate, reorder_rate, reorder_delay_ps)| Impairment {
            bit_error_rate,
            duplicate_rate,
            reorder_rate,
            reorder_delay_ps,
        },
    )
}

fn memories() -> impl Strategy<Value = Option<SharedMemory>> {
    let alpha = prop::option::of(0.1..8.0f64);
    let memory = (10_000..200_000u64, alpha)
        .prop_map(|(limit_bytes, alpha)| SharedMemory { limit_bytes, alpha });
    prop::option::of(memory)
}

fn switches() -> impl Strategy<Value = switch::Config> {
    let ring = |when_full| {
        (3_000u64..60_000).prop_map(move |bytes| switch::Config::rings(bytes, when_full))
    };
    prop_oneof![
        Just(switch::Config::straight()),
        Just(switch::Config::turns()),
        ring(WhenFull::Drop),
        ring(WhenFull::HoldBack),
    ]
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sites = (
        prop::collection::vec(0..5usize, 2..6),
        prop::collection::vec(0..5usize, 0..5),
        prop::collection::vec((0..5usize, 0..5usize), 0..4),
    );
    let speeds = (20u64..1000, 1u64..30, 8_000u64..200_000, 0u64..3);
    let buffer = prop::option::of(4_000..60_000u64);
    let ways = (any::<bool>(), switches(), any::<bool>(), buffer);
    (sites, speeds, ways, impairments(), memories()).prop_map(
        |(
            (hosts, tree, extra),
            (mbps, delay, limit_bytes, jitter),
            (hash, switch, small_queues, buffer),
            impairment,
            shared,
        )| {
            Shape {
                hosts,
                tree,
                extra,
                rate_bps: mbps * 1_000_000,
                delay_ps: delay * 1_000_000,
                limit_bytes,
                jitter_ps: jitter * 1_000_000,
                shared,
                routing: if hash {
                    Routing::FlowHash
                } else {
                    Routing::DModK
                },
                switch,
                small_queues,
                impairment,
                receive_buffer: buffer,
            }
        },
    )
}

fn troubles() -> impl Strategy<Value = Vec<Trouble>> {
    let kind = prop_oneof![
        4 => Just(Kind::LinkDown),
        1 => Just(Kind::LinkCut),
        3 => Just(Kind::Pause),
        2 => (100u64..20_000).prop_map(Kind::Slow),
        2 => Just(Kind::Corrupt),
    ];
    let trouble =
        (0u64..400, 1u64..700, kind, 0usize..20).prop_map(|(at_ms, for_ms, kind, whom)| Trouble {
            at_ms,
            for_ms,
            kind,
            whom,
        });
    prop::collection::vec(trouble, 0..6)
}

fn flows() -> impl Strategy<Value = Vec<(usize, usize, u64)>> {
    prop::collection::vec((0usize..6, 1usize..6, 1u64..300_000), 1..6)
}

/// Between two different hosts.
fn between(hosts: usize, flows: &[(usize, usize, u64)]) -> Vec<Flow> {
    let flow = |&(from, step, bytes): &(usize, usize, u64)| Flow {
        from: from % hosts,
        to: (from % hosts + 1 + step % (hosts - 1)) % hosts,
        bytes,
    };
    flows.iter().map(flow).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_arrive_whole_or_their_connections_report_errors(
        shape in shapes(),
        flows in flows(),
        troubles in troubles(),
        seed in any::<u64>(),
    ) {
        let flows = between(shape.hosts.len(), &flows);
        let run = || Run::new(&shape, &flows, seed).finish(&troubles);
        let (streams, hops, events) = run();
        let cut = troubles.iter().any(|trouble| trouble.kind == Kind::LinkCut);
        for (flow, stream) in flows.iter().zip(&streams) {
            prop_assert!(stream.arrived <= flow.bytes, "{stream:?} of {flow:?}");
            let whole = stream.ended && stream.arrived == flow.bytes;
            prop_assert!(whole || stream.failed, "{stream:?} of {flow:?}");
            // A failure that ends in time is no reason to give up.
            prop_assert!(whole || cut, "{stream:?} of {flow:?}");
        }
        prop_assert_eq!(run(), (streams, hops, events));
    }
}

const ONE: [Flow; 1] = [Flow {
    from: 0,
    to: 1,
    bytes: 1_000_000,
}];

fn one(shape: &Shape, trouble: Trouble) -> Stream {
    Run::new(shape, &ONE, 1).finish(&[trouble]).0[0]
}

/// When the last byte of a megabyte arrives if nothing goes wrong.
fn undisturbed_ps(shape: &Shape) -> u64 {
    Run::new(shape, &ONE, 1).finish(&[]).0[0].last_ps
}

#[test]
fn a_host_that_stands_still_says_nothing_and_loses_nothing() {
    let shape = Shape::pair();
    let mut run = Run::new(&shape, &ONE, 1);
    run.until(3 * MS);
    run.net.pause(HostId(1));
    let before = run.streams[0].arrived;
    run.until(90 * MS);
    assert_eq!(run.streams[0].arrived, before, "nothing is handed over");
    run.net.resume(HostId(1));
    run.hear();
    let after = run.streams[0].arrived;
    assert!(after > before + 10_000, "what had arrived is: {after}");
    run.until(BOUND_PS);
    assert_eq!(run.streams[0].arrived, ONE[0].bytes);
    let stats = run.net.sockets.tcp(0).unwrap().stats();
    assert_eq!(stats.timeouts, 0, "less than an RTO");
}

#[test]
fn a_link_that_comes_back_delays_by_its_absence_and_a_timeout() {
    let shape = Shape::pair();
    let stream = one(
        &shape,
        Trouble {
            at_ms: 3,
            for_ms: 500,
            kind: Kind::LinkDown,
            whom: 1,
        },
    );
    assert!(!stream.failed && stream.arrived == ONE[0].bytes);
    // Retransmissions double their distance from 200 ms on: those at 0.2 and 0.6 s after the loss.
    let late_ms = (stream.last_ps - undisturbed_ps(&shape)) / MS;
    assert!((550..700).contains(&late_ms), "{late_ms} ms");
}

#[test]
fn a_cut_link_is_reported() {
    let stream = one(
        &Shape::pair(),
        Trouble {
            at_ms: 3,
            for_ms: 0,
            kind: Kind::LinkCut,
            whom: 0,
        },
    );
    assert!(stream.failed && stream.arrived < ONE[0].bytes);
}

#[test]
fn a_slow_reader_sets_the_pace_and_its_closed_window_is_probed() {
    let shape = Shape {
        receive_buffer: Some(20_000),
        ..Shape::pair()
    };
    let mut run = Run::new(&shape, &ONE, 1);
    run.net.set_read_rate(1, Some(200_000));
    run.until(20_000 * MS);
    // 16 KiB each 0.66 s: 200 kbit/s.
    let arrived = run.streams[0].arrived;
    assert!((480_000..=516_000).contains(&arrived), "{arrived}");
    let stats = run.net.sockets.tcp(0).unwrap().stats();
    assert!(stats.window_probes > 10, "{}", stats.window_probes);
    run.net.set_read_rate(1, None);
    run.until(BOUND_PS);
    assert!(run.streams[0].ended && run.streams[0].arrived == ONE[0].bytes);
}

#[test]
fn overtaken_and_doubled_packets_change_no_stream() {
    let shape = Shape {
        impairment: Impairment {
            duplicate_rate: 0.1,
            reorder_rate: 0.1,
            reorder_delay_ps: 100_000_000,
            ..Impairment::default()
        },
        ..Shape::pair()
    };
    let run = Run::new(&shape, &ONE, 1);
    let (streams, hops, _) = run.finish(&[]);
    assert!(streams[0].ended && streams[0].arrived == ONE[0].bytes);
    let plain = Run::new(&Shape::pair(), &ONE, 1).finish(&[]);
    assert!(
        hops > plain.1 + 100,
        "copies travel too: {hops}, {}",
        plain.1
    );
}
