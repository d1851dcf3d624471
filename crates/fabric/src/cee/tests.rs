//! The machine against a small world of hosts that send and sinks that take.

mod world;

use proptest::prelude::*;

use super::*;
use world::{Flow, LINK, Link, MTU, World};

const ALL: u8 = 0xff;

fn ideal() -> CeeConfig {
    CeeConfig {
        pfc: Some(PfcConfig::default()),
        ..CeeConfig::default()
    }
}

fn wire(headroom_bytes: Option<u64>) -> CeeConfig {
    CeeConfig {
        pfc: Some(PfcConfig {
            pause: Pause::Wire {
                response_ps: 600_000,
                headroom_bytes,
            },
            ..PfcConfig::default()
        }),
        ..CeeConfig::default()
    }
}

/// Everybody of a star sends to host 0.
fn many_to_one(hosts: u16, frames: u32) -> Vec<Flow> {
    let flow = |source| Flow::new(source, 0, frames);
    (1..hosts).map(flow).collect()
}

#[test]
fn a_frame_alone_takes_what_its_path_takes() {
    let mut world = World::star(ideal(), 2);
    world.send(Flow::new(1, 0, 1));
    world.run(1_000_000_000);
    // Two links of 1 us; the header at the switch after 100 ns more, the last bit at the host after
    // 500 ns more.
    let serialization_ps = u64::from(MTU) * 800;
    let expected_ps = 1_000_000 + 100_000 + serialization_ps + 1_000_000 + 500_000;
    assert_eq!(world.received, [(expected_ps, 1, 0, 0)]);
}

#[test]
fn where_frames_are_stored_the_last_bit_counts_twice() {
    let config = CeeConfig {
        cut_through: false,
        ..ideal()
    };
    let mut world = World::star(config, 2);
    world.send(Flow::new(1, 0, 1));
    world.run(1_000_000_000);
    let serialization_ps = u64::from(MTU) * 800;
    let expected_ps = 2 * serialization_ps + 2 * 1_000_000 + 600_000;
    assert_eq!(world.received[0].0, expected_ps);
}

#[test]
fn without_flow_control_overload_is_dropped_and_with_it_nothing_is() {
    for (config, lossless) in [(CeeConfig::default(), false), (ideal(), true)] {
        let mut world = World::star(config, 9);
        world.send_all(many_to_one(9, 2_000));
        world.run(u64::MAX);
        world.check();
        assert_eq!(world.drops() == 0, lossless);
        assert_eq!(world.received.len() as u64 + world.drops(), 8 * 2_000);
        assert!(
            !lossless || world.cee.stats(PortId::of_link(1, true)).pauses > 0,
            "a port was paused"
        );
    }
}

#[test]
fn pauses_share_a_sink_between_inputs() {
    let mut world = World::star(ideal(), 9);
    world.send_all(many_to_one(9, 4_000));
    world.run(10_000_000_000);
    for source in 1..9u16 {
        let frames = world
            .received
            .iter()
            .filter(|seen| seen.1 == source)
            .count();
        let fair = world.received.len() / 8;
        assert!(
            frames.abs_diff(fair) < fair / 10,
            "{source}: {frames} of {fair}"
        );
    }
}

/// Drops, and the most that an input held, where pauses come again and again at all phases: also
/// when the sender has just begun a frame, and so has the receiver on the way back.
fn overflow(mut config: CeeConfig, link: Link) -> (u64, u64) {
    let pfc = config.pfc.as_mut().unwrap();
    (pfc.xoff_bytes, pfc.xon_bytes) = (LOW_XOFF_BYTES, 10_000);
    let mut world = World::new(config, world::star(9), &[link]);
    world.send_all(many_to_one(9, 3_000));
    // The sink sends full frames to all: on the way back pause frames find the link busy.
    world.send_all((1..9).map(|host| Flow::new(0, host, 3_000)));
    // Shorter ones shift the phases.
    world.send_all((1..9).map(|host| Flow {
        bytes: 200 + 131 * u32::from(host),
        at_ps: 1_234_567 * u64::from(host),
        ..Flow::new(0, host, 3_000)
    }));
    world.send_all((1..9).map(|host| Flow::new(host, host % 8 + 1, 2_000)));
    world.run(u64::MAX);
    world.check();
    let highest = world
        .ports()
        .map(|port| world.cee.stats(port).ingress_max_bytes);
    (world.drops(), highest.max().unwrap())
}

/// Whole frames fill an input just up to it.
const LOW_XOFF_BYTES: u64 = 13 * MTU as u64;

/// Slow and short, fast and long.
const LINKS: [Link; 6] = [
    (1_000_000_000, 100_000),
    (1_000_000_000, 10_000_000),
    LINK,
    (25_000_000_000, 300_000),
    (40_000_000_000, 100_000),
    (40_000_000_000, 10_000_000),
];

#[test]
fn headroom_is_what_crosses_the_link_and_the_frames_that_are_being_sent() {
    let world = World::star(wire(None), 3);
    // 2 x 1.1 us and 600 ns at 10 Gb/s, two frames, a pause frame.
    let needed = 2_500 + 125 + 750 + 64 + 2 * u64::from(MTU);
    assert_eq!(world.cee.headroom_bytes(PortId::of_link(0, true)), needed);
}

#[test]
fn headroom_as_computed_is_enough_and_less_is_not() {
    for (link, cut_through) in LINKS
        .into_iter()
        .flat_map(|link| [(link, true), (link, false)])
    {
        let config = |headroom_bytes| CeeConfig {
            cut_through,
            ..wire(headroom_bytes)
        };
        let world = World::new(config(None), world::star(3), &[link]);
        let needed = world.cee.headroom_bytes(PortId::of_link(0, true));
        // Whole frames do not always meet the worst of all phases.
        let less = u64::from(if link == LINK { MTU } else { MTU * 3 / 2 });
        let (drops, highest) = overflow(config(None), link);
        assert_eq!(drops, 0, "{link:?} {cut_through}");
        assert!(highest <= LOW_XOFF_BYTES + needed);
        let (drops, _) = overflow(config(Some(needed - less)), link);
        assert!(
            drops > 0,
            "less is too little: {link:?} {cut_through} {needed} {highest}"
        );
    }
}

#[test]
fn a_pause_at_once_needs_room_for_the_wire_and_one_frame_less_is_too_little() {
    for (link, cut_through) in LINKS
        .into_iter()
        .flat_map(|link| [(link, true), (link, false)])
    {
        let config = |bytes| CeeConfig {
            cut_through,
            buffer: Buffer::Input { bytes },
            ..ideal()
        };
        let world = World::new(config(0), world::star(3), &[link]);
        let needed = LOW_XOFF_BYTES + ideal_headroom_bytes(&world.cee, PortId::of_link(0, true));
        let (drops, highest) = overflow(config(needed), link);
        assert_eq!(drops, 0, "{link:?} {cut_through}");
        let (drops, _) = overflow(config(needed - u64::from(MTU)), link);
        assert!(
            drops > 0,
            "one frame less is too little: {link:?} {cut_through} {needed} {highest}"
        );
    }
}

#[test]
fn a_pause_on_the_wire_is_renewed_as_long_as_it_is_needed() {
    let mut world = World::star(wire(None), 3);
    world.send_all(many_to_one(3, 400));
    // The sink pauses its link for 20 ms: six times as long as a pause holds.
    world.storm(0, ALL);
    world.run(20_000_000_000);
    assert_eq!(world.received.len(), 0);
    assert_ne!(
        world.cee.paused(PortId::of_link(1, true)),
        0,
        "senders wait"
    );
    world.storm(0, 0);
    world.run(u64::MAX);
    world.check();
    assert_eq!((world.received.len(), world.drops()), (800, 0));
}

#[test]
fn a_host_without_room_pauses_its_link_until_it_has_some() {
    let mut world = World::star(ideal(), 3);
    world.send_all(many_to_one(3, 400));
    world.pause_for_host(0, ALL);
    world.run(20_000_000_000);
    assert_eq!(world.received.len(), 0);
    let pauses = |world: &World| {
        let ports = [true, false].map(|forward| PortId::of_link(0, forward));
        ports.map(|port| world.cee.stats(port).pauses).iter().sum()
    };
    let seen: u64 = pauses(&world);
    assert_eq!(seen, 8, "one of each priority");
    world.pause_for_host(0, ALL);
    // A storm that ends meanwhile lets nothing go on.
    world.storm(0, ALL);
    world.storm(0, 0);
    world.run(21_000_000_000);
    assert_eq!((world.received.len(), pauses(&world)), (0, 8));
    world.pause_for_host(0, 0);
    world.run(u64::MAX);
    world.check();
    assert_eq!((world.received.len(), world.drops()), (800, 0));
}

#[test]
fn one_priority_does_not_stop_another() {
    let mut world = World::star(ideal(), 4);
    world.storm_priority(0, 3);
    world.send(Flow {
        priority: 3,
        ..Flow::new(1, 0, 500)
    });
    world.send(Flow {
        priority: 4,
        ..Flow::new(1, 0, 500)
    });
    world.run(50_000_000_000);
    let of = |priority| {
        world
            .received
            .iter()
            .filter(|seen| seen.2 == priority)
            .count()
    };
    assert_eq!((of(3), of(4)), (0, 500));
}

#[test]
fn the_audit_finds_a_port_that_sends_more_than_its_rate() {
    let mut world = World::star(ideal(), 3);
    world.send_all(many_to_one(3, 400));
    world.run(u64::MAX);
    world.check();
    let to_sink = PortId::of_link(0, false);
    let rate_bps = world.cee.spec(to_sink).rate_bps;
    world.cee.periods[to_sink.index()] = Period::new(rate_bps / 2);
    let error = world.cee.audit(&world.pool, |_| 0).unwrap_err();
    assert!(error.contains("has sent"), "{error}");
}

/// A ring of switches in which all flows go the same way round by two links.
fn ring(config: CeeConfig) -> World {
    let mut world = World::ring(config, 5);
    world.send_all((0..5).map(|host| Flow::new(host, (host + 2) % 5, 5_000)));
    world
}

#[test]
fn a_cycle_of_pauses_is_named_link_by_link() {
    let mut world = ring(ideal());
    let mut found = None;
    for step in 1..200 {
        world.run(step * 500_000_000);
        found = world.cee.deadlock(&world.pool);
        if found.is_some() {
            break;
        }
    }
    let deadlock = found.expect("flows of a ring end in a deadlock");
    assert_eq!(deadlock.cycle.len(), 5);
    for (stuck, next) in deadlock
        .cycle
        .iter()
        .zip(deadlock.cycle.iter().cycle().skip(1))
    {
        let (from, to) = (world.cee.spec(stuck.port), world.cee.spec(next.port));
        assert_eq!(from.far, to.near, "each waits for the next");
        assert_eq!(stuck.priority, 0);
    }
    assert!(deadlock.bytes > 5 * 80_000);
    // It is one: nothing arrives any more, and nothing is lost.
    let before = world.received.len();
    world.run(u64::MAX);
    world.check();
    assert_eq!((world.received.len(), world.drops()), (before, 0));
}

#[test]
fn a_tree_has_no_deadlock() {
    let mut world = World::tree(ideal());
    world.send_all(many_to_one(16, 1_000));
    for step in 1..40 {
        world.run(step * 500_000_000);
        assert_eq!(world.cee.deadlock(&world.pool), None);
    }
    world.run(u64::MAX);
    assert_eq!(world.received.len(), 15 * 1_000);
}

#[test]
fn a_link_that_fails_while_it_is_paused_lets_others_go_on() {
    for config in [ideal(), wire(None)] {
        let mut world = World::tree(config);
        world.send_all(many_to_one(16, 2_000));
        for flap in 0..10 {
            world.run(1_000_000_000 + flap * 700_000_000);
            let link = 16 + flap as u32 % 8;
            world.set_link(link, false);
            world.run(1_000_000_000 + flap * 700_000_000 + 200_000_000);
            world.set_link(link, true);
            world.check();
        }
        world.run(u64::MAX);
        world.check();
        let all = world.received.len() as u64 + world.drops();
        assert_eq!(all, 15 * 2_000, "nothing hangs");
        assert!(world.cause(Drop::Down) > 0);
        assert_eq!(world.cause(Drop::Headroom), 0);
    }
}

#[test]
fn who_obeys_nothing_is_dropped_at_the_first_switch() {
    let mut world = World::star(ideal(), 4);
    world.babble(1, true);
    world.send_all([Flow::new(1, 0, 3_000), Flow::new(2, 0, 3_000)]);
    world.run(u64::MAX);
    world.check();
    assert!(world.cause(Drop::Headroom) > 0);
    let honest = world.received.iter().filter(|seen| seen.1 == 2).count();
    assert_eq!(honest, 3_000, "an adapter that obeys pauses loses nothing");
}

#[test]
fn a_congested_queue_slows_its_culprits_down() {
    let mut config = ideal();
    config.qcn = Some(QcnConfig {
        priorities: 1,
        notification_priority: 7,
        rate_limiters: true,
        params: QcnParams::thesis(20_000),
    });
    let mut world = World::star(config, 5);
    world.send_all(many_to_one(5, 8_000));
    world.run(20_000_000_000);
    let limits: Vec<u64> = (1..5)
        .flat_map(|host| world.cee.limits(HostId(host), world.now_ps))
        .map(|limit| limit.1)
        .collect();
    assert_eq!(limits.len(), 4, "one limiter at each source");
    assert!(limits.iter().all(|&bps| bps < 10_000_000_000));
    assert!(world.cee.notifications().0 > 10);
    assert_eq!(world.drops(), 0);
    world.run(u64::MAX);
    world.check();
    assert_eq!(world.received.len(), 4 * 8_000);
}

#[test]
fn notifications_have_the_priority_that_is_set() {
    for notification_priority in [7, 6] {
        let mut config = ideal();
        config.qcn = Some(QcnConfig {
            priorities: 1,
            notification_priority,
            rate_limiters: true,
            params: QcnParams::standard(),
        });
        let mut world = World::star(config, 5);
        world.send_all(many_to_one(5, 2_000));
        world.run(u64::MAX);
        world.check();
        assert_eq!(world.notified, 1 << notification_priority);
    }
}

#[test]
fn other_destinations_of_a_culprit_are_not_slowed_down() {
    let mut config = ideal();
    config.qcn = Some(QcnConfig {
        priorities: 1,
        notification_priority: 7,
        rate_limiters: true,
        params: QcnParams::thesis(20_000),
    });
    let mut world = World::star(config, 6);
    // The frames that wait for the congested destination fit into the adapter: sockets' windows see
    // to that.
    world
        .send_all((1..5).map(|source| Flow::new(source, 0, if source == 1 { 300 } else { 6_000 })));
    world.send(Flow::new(1, 5, 6_000));
    world.run(7_000_000_000);
    let to = |host| {
        let received = world.received.iter();
        received
            .filter(|seen| seen.1 == 1 && seen.3 == host)
            .count()
    };
    let limited = (1..5).flat_map(|host| world.cee.limits(HostId(host), world.now_ps));
    let limited: Vec<u32> = limited.map(|limit| limit.0.destination.0).collect();
    assert!(limited.contains(&0) && !limited.contains(&5), "{limited:?}");
    // The line takes 5779 frames in 7 ms.
    assert!(to(5) + to(0) > 5_600, "{} to the cold", to(5));
}

#[test]
fn a_path_has_a_queue_and_a_limiter_of_its_own() {
    let mut config = ideal();
    config.qcn = Some(QcnConfig {
        priorities: 1,
        notification_priority: 7,
        rate_limiters: true,
        params: QcnParams::thesis(20_000),
    });
    let mut world = World::star(config, 5);
    world.send_all(
        many_to_one(5, 8_000)
            .into_iter()
            .map(|flow| Flow { path: 9, ..flow }),
    );
    // A flow of host 1 by another path, which has sent all before the queue is congested.
    world.send(Flow {
        path: 4,
        ..Flow::new(1, 0, 1)
    });
    world.run(20_000_000_000);
    let limited = (1..5).flat_map(|host| world.cee.limits(HostId(host), world.now_ps));
    let paths: Vec<u32> = limited.map(|limit| limit.0.path).collect();
    assert_eq!(paths, [9; 4]);
    let mut queue = |path| {
        let key = QueueKey {
            destination: HostId(0),
            priority: 0,
            path,
        };
        world.cee.queue_to(HostId(1), key)
    };
    assert_eq!([queue(9), queue(4), queue(0)], [0, 1, 2]);
    world.run(u64::MAX);
    world.check();
    assert_eq!(world.received.len(), 4 * 8_000 + 1);
}

/// The same flows with ports that decide when they are looked at, and with ports that are asked
/// whenever they are free.
fn both_ways(world: impl Fn() -> World, act: impl Fn(&mut World)) {
    let seen = [true, false].map(|patient| {
        let mut world = world();
        if !patient {
            world.cee.never_be_late();
        }
        act(&mut world);
        world.check();
        (world.received.clone(), world.stats())
    });
    assert!(seen[0] == seen[1]);
}

#[test]
fn patience_makes_no_difference_where_frames_are_lost() {
    for cut_through in [true, false] {
        let config = CeeConfig {
            cut_through,
            qcn: Some(QcnConfig {
                priorities: ALL,
                notification_priority: 7,
                rate_limiters: true,
                params: QcnParams::thesis(66_000),
            }),
            ..CeeConfig::default()
        };
        both_ways(
            || World::tree(config.clone()),
            |world| {
                world.send_all(many_to_one(16, 900));
                world.send_all((1..16).map(|host| Flow {
                    priority: (host % 8) as u8,
                    bytes: 64 + 90 * u32::from(host),
                    ..Flow::new(0, host, 700)
                }));
                world.run(u64::MAX);
                assert!(world.drops() > 0);
            },
        );
    }
}

#[test]
fn patience_makes_no_difference_where_links_fail_and_hosts_storm() {
    for config in [ideal(), wire(None)] {
        both_ways(
            || World::tree(config.clone()),
            |world| {
                world.send_all((0..16).map(|host| Flow::new(host, (host + 5) % 16, 3_000)));
                world.run(700_000_000);
                world.storm(3, ALL);
                world.run(1_500_000_000);
                world.set_link(17, false);
                world.storm(3, 0);
                world.run(2_000_000_000);
                world.set_link(17, true);
                world.run(u64::MAX);
            },
        );
    }
}

/// Networks and hosts of all kinds.
#[derive(Clone, Debug)]
struct Case {
    shape: u8,
    seed: u64,
    /// Pauses are frames.
    on_wire: bool,
    /// Of a memory that all inputs share beside their headroom; `None` = each has its own buffer.
    shared_bytes: Option<u64>,
    cut_through: bool,
    xoff_bytes: u64,
    lossless: u8,
    classes: Vec<EtsClass>,
    set_point_bytes: Option<u64>,
    links: Vec<Link>,
    /// By host, and so are bits of what follows.
    stacks_ps: Vec<Option<u64>>,
    counted: u16,
    /// Bit l: the first port of link l, where (l mod 64) is a link's number.
    watched: u64,
}

fn classes() -> impl Strategy<Value = Vec<EtsClass>> {
    let one = (any::<u8>(), prop::option::weighted(0.7, 1u32..=100));
    let one = one.prop_map(|(priorities, share)| EtsClass { priorities, share });
    prop_oneof![
        Just(EtsConfig::default().classes),
        prop::collection::vec(one, 1..6)
    ]
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let rate =
        || prop::sample::select(vec![1u64, 10, 25, 40]).prop_map(|gbps| gbps * 1_000_000_000);
    let delay = || 100_000u64..10_000_000;
    prop_oneof![
        Just(vec![LINK]),
        // Alike but for their lengths, so that frames are sent on with their headers.
        (rate(), prop::collection::vec(delay(), 1..8))
            .prop_map(|(rate, delays)| delays.into_iter().map(|delay| (rate, delay)).collect()),
        prop::collection::vec((rate(), delay()), 1..8),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let lossless = prop_oneof![Just(ALL), any::<u8>()];
    let stack = prop::option::weighted(0.3, 1_000u64..5_000_000);
    let network = (
        0u8..3,
        any::<u64>(),
        any::<bool>(),
        prop::option::weighted(0.3, 0u64..1_000_000),
    );
    let buffers = (any::<bool>(), 10_000u64..100_000, lossless);
    let qcn = prop::option::of(3_000u64..100_000);
    let hosts = (
        prop::collection::vec(stack, 16),
        few(),
        few().prop_map(u64::from),
    );
    (network, buffers, classes(), qcn, links(), hosts).prop_map(
        |(network, buffers, classes, set_point_bytes, links, hosts)| Case {
            shape: network.0,
            seed: network.1,
            on_wire: network.2,
            shared_bytes: network.3,
            cut_through: buffers.0,
            xoff_bytes: buffers.1,
            lossless: buffers.2,
            classes,
            set_point_bytes,
            links,
            stacks_ps: hosts.0,
            counted: hosts.1,
            watched: hosts.2,
        },
    )
}

/// Few of sixteen, mostly none.
fn few() -> impl Strategy<Value = u16> {
    let bits = any::<[u16; 3]>().prop_map(|[a, b, c]| a & b & c);
    prop_oneof![Just(0), bits]
}

fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let one = (
        0u16..16,
        1u16..16,
        1u32..400,
        0u8..8,
        64u32..=MTU,
        0u64..3_000_000_000,
    );
    let one = one.prop_map(|(source, distance, frames, priority, bytes, at_ps)| Flow {
        source,
        destination: (source + distance) % 16,
        frames,
        priority,
        path: 0,
        bytes,
        at_ps,
    });
    prop::collection::vec(one, 1..40)
}

impl Case {
    fn config(&self, buffer: Buffer) -> CeeConfig {
        let pause = if self.on_wire {
            Pause::Wire {
                response_ps: 600_000,
                headroom_bytes: None,
            }
        } else {
            Pause::Ideal
        };
        CeeConfig {
            buffer,
            cut_through: self.cut_through,
            pfc: Some(PfcConfig {
                priorities: self.lossless,
                xoff_bytes: self.xoff_bytes,
                xon_bytes: self.xoff_bytes * 3 / 4,
                pause,
            }),
            qcn: self.set_point_bytes.map(|bytes| QcnConfig {
                priorities: ALL,
                notification_priority: 7,
                rate_limiters: true,
                params: QcnParams::thesis(bytes),
            }),
            ets: EtsConfig {
                classes: self.classes.clone(),
            },
            ..CeeConfig::default()
        }
    }

    fn with(&self, buffer: Buffer) -> World {
        let graph = match self.shape {
            0 => world::star(16),
            1 => world::tree(),
            _ => world::random(16, self.seed),
        };
        World::new(self.config(buffer), graph, &self.links)
    }

    /// With buffers just as large as they have to be.
    fn world(&self) -> World {
        let Some(shared_bytes) = self.shared_bytes else {
            let first = self.with(Buffer::Input { bytes: 0 });
            let bytes = first
                .ports()
                .map(|port| ideal_headroom_bytes(&first.cee, port));
            let bytes = self.xoff_bytes + bytes.max().unwrap();
            return self.with(Buffer::Input { bytes });
        };
        let alpha = 0.5;
        let first = self.with(Buffer::Shared { bytes: 0, alpha });
        let mut switches = vec![0; 32];
        for port in first.ports() {
            if let Node::Switch(switch) = first.cee.spec(port).far {
                switches[switch.index()] += 8 * first.cee.headroom_bytes(port);
            }
        }
        let bytes = shared_bytes + switches.into_iter().max().unwrap();
        self.with(Buffer::Shared { bytes, alpha })
    }

    /// The same with ports that decide late, and with ports that do not.
    fn both_worlds(&self, flows: &[Flow]) -> [World; 2] {
        [true, false].map(|patient| {
            let mut world = self.world();
            if !patient {
                world.cee.never_be_late();
            }
            for (host, stack_ps) in (0..).zip(&self.stacks_ps) {
                if let Some(stack_ps) = *stack_ps {
                    world.set_stack(host, stack_ps);
                }
                if self.counted & 1 << host != 0 {
                    world.count_departures(host);
                }
            }
            for link in 0..world.links() {
                if self.watched & 1 << (link % 64) != 0 {
                    world.cee.watch(PortId::of_link(link as usize, true));
                }
            }
            world.send_all(flows.iter().copied());
            world
        })
    }
}

/// Bytes that may come after XOFF if a pause takes effect at once: those on the wire and the frame
/// that is being sent; and the frame that passes XOFF, where it is heard of with its last bit.
fn ideal_headroom_bytes(cee: &Cee, port: PortId) -> u64 {
    let spec = cee.spec(port);
    let flight_ps = u128::from(spec.propagation_ps + spec.processing_ps);
    let flight = (flight_ps * u128::from(spec.rate_bps)).div_ceil(8 * 1_000_000_000_000);
    let frames = if cee.is_cut(port) { 1 } else { 2 };
    flight as u64 + frames * u64::from(MTU)
}

/// All that can be seen of a world.
fn seen(world: &mut World) -> impl PartialEq + use<> {
    // Events of several ports at one time have no order.
    world.told.sort_unstable();
    (world.received.clone(), world.stats(), world.told.clone())
}

/// A fault that begins and ends.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Fails(u32),
    Storms(u16, u8),
    Babbles(u16),
}

impl Fault {
    fn happens(self, world: &mut World, begins: bool) {
        match self {
            Self::Fails(link) => world.fail(link % world.links(), begins),
            Self::Storms(host, priorities) => {
                world.storm(host, if begins { priorities } else { 0 })
            }
            Self::Babbles(host) => world.babble(host, begins),
        }
    }
}

/// Faults, when they begin and when they end.
fn faults() -> impl Strategy<Value = Vec<(Fault, u64, u64)>> {
    let fault = prop_oneof![
        any::<u32>().prop_map(Fault::Fails),
        (0u16..16, any::<u8>()).prop_map(|(host, priorities)| Fault::Storms(host, priorities)),
        (0u16..16).prop_map(Fault::Babbles),
    ];
    let fault = (fault, 0u64..5_000_000_000, 1u64..3_000_000_000);
    let fault = fault.prop_map(|(fault, from_ps, for_ps)| (fault, from_ps, from_ps + for_ps));
    prop::collection::vec(fault, 0..12)
}

/// So long that whatever can arrive has, even at a limiter's least rate.
const LONG_PS: u64 = 1_000_000_000_000_000;

proptest! {
    /// With flow control no lossless frame is dropped, whatever the network and the flows. All
    /// frames arrive in order, and the account is right at all times.
    #[test]
    fn nothing_lossless_is_dropped(case in case(), flows in flows()) {
        let seen = case.both_worlds(&flows).map(|mut world| {
            for step in 1..=20 {
                world.run(step * 1_000_000_000);
                world.check();
            }
            world.run(LONG_PS);
            world.check();
            assert_eq!(world.cause(Drop::Headroom), 0);
            assert_eq!(world.missing(case.lossless, |_| true), 0);
            assert!(case.lossless != ALL || world.drops() == 0);
            assert_eq!(world.drops(), world.cause(Drop::Buffer));
            assert_eq!(world.pool.len(), 0);
            assert!(world.in_order());
            seen(&mut world)
        });
        prop_assert!(seen[0] == seen[1], "patience makes no difference");
    }

    /// Links fail, adapters storm and babble for a time. Once all work again, every frame that has
    /// not been lost arrives, in order. A link that fails loses its frames; besides, only frames of
    /// babbling adapters are lost among the lossless ones.
    #[test]
    fn nothing_hangs_once_all_is_well(case in case(), flows in flows(), faults in faults()) {
        let mut moments: Vec<(u64, Fault, bool)> = Vec::new();
        for &(fault, from_ps, to_ps) in &faults {
            moments.extend([(from_ps, fault, true), (to_ps, fault, false)]);
        }
        moments.sort_by_key(|moment| moment.0);
        let babbles = |host: u16| {
            let of_host = |fault: &Fault| matches!(fault, Fault::Babbles(at) if *at == host);
            faults.iter().any(|(fault, ..)| of_host(fault))
        };
        let seen = case.both_worlds(&flows).map(|mut world| {
            for &(at_ps, fault, begins) in &moments {
                world.run(at_ps);
                fault.happens(&mut world, begins);
                world.check();
            }
            world.run(LONG_PS);
            world.check();
            assert_eq!(world.cee.deadlock(&world.pool), None);
            assert_eq!(world.pool.len(), 0);
            assert!(world.in_order());
            assert!((0..16).any(babbles) || world.cause(Drop::Headroom) == 0);
            let lost = world.missing(case.lossless, |host| !babbles(host));
            assert!(lost <= world.cause(Drop::Down));
            seen(&mut world)
        });
        prop_assert!(seen[0] == seen[1], "patience makes no difference");
    }
}

/// A lazy port becomes punctual when a frame joins it whose priority its switch has paused. If the
/// port itself is paused in that priority, too, this frame requests no event, so the port must.
#[test]
fn a_paused_frame_that_joins_does_not_stop_other_priorities() {
    for patient in [false, true] {
        let mut world = World::star(ideal(), 6);
        if !patient {
            world.cee.never_be_late();
        }
        world.storm_priority(0, 4);
        world.storm_priority(1, 4);
        let flow = |source, destination, frames, priority, at_ps| Flow {
            priority,
            at_ps,
            ..Flow::new(source, destination, frames)
        };
        // The switch pauses priority 4 of host 2; frames of priority 5 queue for host 0; then one
        // of priority 4 does.
        world.send(flow(2, 1, 200, 4, 0));
        world.send_all([3, 4].map(|source| flow(source, 0, 30, 5, 1_000_000_000)));
        world.send(flow(5, 0, 1, 4, 1_045_000_000));
        world.run(LONG_PS);
        world.check();
        assert_eq!(world.received.len(), 60, "patient: {patient}");
    }
}
