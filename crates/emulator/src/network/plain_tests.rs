use sluicegate_fabric::{Graph, Routing, SharedMemory, cee::PortSpec};

use super::{
    tests::{FIRST, LAST, LONGEST, PS_PER_MS, RATE_BPS, SECOND},
    tests::{all_drops, frame, incast, mac, missing, plan, take},
    *,
};

fn queues(ports: usize, limit_bytes: u64) -> Queues {
    Queues {
        limits_bytes: vec![limit_bytes; ports],
        shared: None,
    }
}

fn network(limit_bytes: u64) -> Network<Plain<Descriptor>> {
    Network::plain(plan(), &queues(8, limit_bytes)).expect("a network")
}

/// What the switch's port to the last host counts.
fn bottleneck(network: &mut Network<Plain<Descriptor>>) -> PortCounts {
    network.counts().ports[7].clone()
}

#[test]
fn a_switch_sends_a_frame_on_when_all_of_it_has_come() {
    let mut network = network(100_000);
    let sent = frame(FIRST, SECOND, 7, 1000);
    assert_eq!(network.offer(FIRST, &sent), Offer::Taken);
    // 80 us for each link and 1 us for its length.
    network.advance(161_999_999);
    assert_eq!(network.ready(SECOND), None);
    network.advance(162_000_000);
    assert_eq!(take(&mut network, SECOND), [sent]);
    assert_eq!((network.next_ps(), network.audit()), (None, Ok(())));
}

#[test]
fn a_full_queue_drops_the_tail_and_marks_above_its_threshold() {
    let mut network = network(60_000);
    let arrived = incast(&mut network, 200);
    let port = bottleneck(&mut network);
    let tail = port.stats.drops[sluicegate_fabric::port::Drop::Tail as usize];
    assert_eq!(all_drops(&network.counts()), tail);
    assert!(tail > 2000, "{tail}");
    // The link is full: 8.26 frames of 1514 bytes each ms.
    assert!((1600..=1652).contains(&arrived.len()), "{}", arrived.len());
    let marked = arrived.iter().filter(|frame| frame[15] & 3 == 3).count() as u64;
    assert!(marked > 1000 && port.stats.marks >= marked);
    assert_eq!(network.counts().hosts[LAST.index()].marked, marked);
    assert!(port.control.is_none() && port.backlogs.quantile(1.0).unwrap() <= 60_000.0 * 1.04);
}

#[test]
fn what_does_not_fit_into_an_adapter_waits_and_its_link_stays_full() {
    let mut plan = plan();
    // More on the way than the adapter holds.
    for spec in &mut plan.ports {
        spec.propagation_ps = 20 * PS_PER_MS;
    }
    let mut network = Network::plain(plan, &queues(8, 1 << 20)).expect("a network");
    let (mut number, mut arrived) = (0, Vec::new());
    let mut looks = 0;
    while network.now_ps < 300 * PS_PER_MS {
        while network.offer(FIRST, &frame(FIRST, LAST, number, 1514)) == Offer::Taken {
            number += 1;
        }
        looks += 1;
        arrived.extend(take(&mut network, LAST));
        let next_ps = network.next_ps().expect("it tells when there is room");
        assert!(next_ps > network.now_ps);
        network.advance(next_ps);
    }
    assert_eq!((missing(&arrived), all_drops(&network.counts())), (0, 0));
    // 260 ms of the link but for the way there: the cable is looked at in time.
    assert!((2130..=2147).contains(&arrived.len()), "{}", arrived.len());
    // Two frames arrive for each that is sent, and every half adapter a look.
    assert!(looks < 3 * number, "{looks} for {number}");
}

#[test]
fn ports_share_the_memory_of_their_switch() {
    let mut queues = queues(8, 1 << 20);
    queues.shared = Some(SharedMemory {
        limit_bytes: 40_000,
        alpha: None,
    });
    let mut network = Network::plain(plan(), &queues).expect("a network");
    incast(&mut network, 50);
    let port = bottleneck(&mut network);
    let full = port.stats.drops[sluicegate_fabric::port::Drop::Buffer as usize];
    assert!(full > 100 && port.backlogs.quantile(1.0).unwrap() <= 40_000.0 * 1.04);
}

/// Two hosts, and as many switches between their own.
fn two_paths(routing: Routing) -> Network<Plain<Descriptor>> {
    let mut graph = Graph::new(2, 4);
    let mut ports = Vec::new();
    let switch = |id| Node::Switch(SwitchId(id));
    let links = [
        (Node::Host(FIRST), switch(0)),
        (Node::Host(SECOND), switch(1)),
        (switch(0), switch(2)),
        (switch(0), switch(3)),
        (switch(1), switch(2)),
        (switch(1), switch(3)),
    ];
    for (a, b) in links {
        graph.join(a, b);
        ports.extend([(a, b), (b, a)].map(|(near, far)| PortSpec {
            near,
            far,
            rate_bps: RATE_BPS,
            propagation_ps: 0,
            processing_ps: 0,
            aqm: Default::default(),
            frame_bytes: LONGEST,
        }));
    }
    let plan = Plan {
        ports,
        hosts: 2,
        switches: 4,
        routes: Arc::new(Routes::with(&graph, routing)),
        priority: 0,
        addresses: [FIRST, SECOND].map(|host| (mac(host), host)).to_vec(),
        seed: 1,
    };
    Network::plain(plan, &queues(12, 1 << 20)).expect("a network")
}

/// A segment of one of 64 connections.
fn segment(connection: u32, number: u32) -> Vec<u8> {
    let mut bytes = frame(FIRST, SECOND, number, 500);
    bytes[23] = 6;
    bytes[34..38].copy_from_slice(&(connection | 80 << 16).to_be_bytes());
    bytes[38..42].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Frames by the upper path, by connection, of 64 connections with eight segments each.
fn by_upper_path(routing: Routing) -> Vec<u64> {
    let mut network = two_paths(routing);
    let mut counts = Vec::new();
    for connection in 0..64 {
        let before = network.counts().ports[4].stats.accepted;
        for number in 0..8 {
            assert_eq!(
                network.offer(FIRST, &segment(connection, number)),
                Offer::Taken
            );
            network.advance(network.now_ps + PS_PER_MS);
        }
        counts.push(network.counts().ports[4].stats.accepted - before);
        assert_eq!(take(&mut network, SECOND).len(), 8);
        assert_eq!(network.audit(), Ok(()));
    }
    counts
}

#[test]
fn a_flow_keeps_its_path_by_hash_and_packets_spread_by_others() {
    let one = by_upper_path(Routing::DModK);
    assert!(one.iter().all(|&count| count == one[0]), "{one:?}");
    let hashed = by_upper_path(Routing::FlowHash);
    assert!(
        hashed.iter().all(|&count| count == 0 || count == 8),
        "{hashed:?}"
    );
    let upper = hashed.iter().filter(|&&count| count == 8).count();
    assert!((16..=48).contains(&upper), "{upper}");
    for routing in [
        Routing::PacketHash,
        Routing::Spray,
        Routing::Random,
        Routing::Drill,
        Routing::Flowlet { gap_ps: 1 },
    ] {
        let spread = by_upper_path(routing);
        let both = spread
            .iter()
            .filter(|count| (1..8).contains(*count))
            .count();
        assert!(both > 40, "{routing:?}: {spread:?}");
    }
    // Without congestion a flowlet takes the way of the last one.
    let conga = by_upper_path(Routing::Conga { gap_ps: 1 });
    let upper: u64 = conga.iter().sum();
    assert!((128..=384).contains(&upper), "{conga:?}");
}

#[test]
fn senders_that_would_have_to_know_their_paths_are_refused() {
    let mut plan = plan();
    let mut graph = Graph::new(4, 1);
    HostId::first(4).for_each(|host| {
        graph.join(host, SwitchId(0));
    });
    plan.routes = Arc::new(Routes::with(&graph, Routing::Reps));
    let error = Network::plain(plan, &queues(8, 1))
        .err()
        .expect("it refuses");
    assert!(error.to_string().contains("do not know"), "{error}");
}
