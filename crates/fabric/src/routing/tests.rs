use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::random::{draw, mix};

fn query(switch: SwitchId, host: HostId, path: u32) -> Query {
    Query {
        switch,
        host,
        path,
        now_ps: 0,
    }
}

/// The port of a switch by a scheme without state.
fn peek(routes: &Routes, switch: SwitchId, host: u32, path: u32) -> Option<PortId> {
    let host = HostId(host);
    routes.peek(query(switch, host, path))
}

/// The ports from one host to another, each switch asked once: what `ask` answers.
fn walk(
    graph: &Graph,
    [from, to]: [HostId; 2],
    mut ask: impl FnMut(SwitchId) -> Option<PortId>,
) -> Vec<PortId> {
    let mut ports = vec![graph.adapter(from).unwrap()];
    loop {
        let switch = match graph.node(graph.far(ports[ports.len() - 1])) {
            Node::Host(host) if host == to => return ports,
            Node::Host(_) => panic!("a host forwards"),
            Node::Switch(switch) => switch,
        };
        assert!(ports.len() < graph.nodes() as usize, "a loop: {ports:?}");
        ports.push(ask(switch).expect("a path"));
    }
}

fn path(graph: &Graph, routes: &Routes, from: u32, to: u32) -> Vec<PortId> {
    let ends = [from, to].map(HostId);
    walk(graph, ends, |switch| peek(routes, switch, to, 0))
}

/// Switches in a random tree with further links, some of them parallel; a host hangs at one switch.
pub fn random(hosts: u32, switches: u32, further: u32, mut seed: u64) -> Graph {
    let mut below = |count: u32| SwitchId((draw(&mut seed) % u64::from(count)) as u32);
    let mut graph = Graph::new(hosts, switches);
    for host in HostId::first(hosts as usize) {
        graph.join(host, below(switches));
    }
    for switch in 1..switches {
        graph.join(SwitchId(switch), below(switch));
    }
    for _ in 0..further {
        let (a, b) = (below(switches), below(switches));
        if a != b {
            graph.join(a, b);
        }
    }
    graph
}

proptest! {
    /// The prefetched port, if there is one, is the chosen port, and every path value leads to the
    /// destination by a shortest path.
    #[test]
    fn peek_is_choose_and_every_path_value_arrives(
        hosts in 2u32..8,
        switches in 1u32..8,
        further in 0u32..12,
        seed: u64,
        path: u32,
    ) {
        let graph = random(hosts, switches, further, seed);
        for (_, routing) in Routing::NAMES {
            let routes = Routes::with(&graph, routing);
            let mut state = State::default();
            let all = HostId::first(hosts as usize);
            for (from, to) in all.clone().flat_map(|a| all.clone().map(move |b| (a, b))) {
                if from == to {
                    continue;
                }
                let hops = routes.hops(&graph, from, to);
                prop_assert_eq!(routes.leads(&graph, from, to), !hops.is_empty());
                let sole = hops.iter().filter(|ports| ports.len() == 1).flatten();
                let sole: Vec<PortId> = sole.copied().collect();
                prop_assert_eq!(routes.sole_hops(&graph, from, to), sole);
                let ports = walk(&graph, [from, to], |switch| {
                    let query = query(switch, to, path);
                    let peeked = routes.peek(query);
                    let load = |port: PortId| u64::from(port.0 % 3);
                    let chosen = routes.choose(query, load, &mut state);
                    assert!(peeked.is_none() || peeked == chosen);
                    chosen
                });
                prop_assert_eq!(ports.len(), hops.len());
                prop_assert!(ports.iter().zip(&hops).all(|(port, hop)| hop.contains(port)));
            }
        }
    }
}

/// The equal port with the smallest backlog, and of several the one whose turn it is: a scheme with
/// state.
struct LeastLoaded(Routes);

impl Scheme for LeastLoaded {
    /// By switch: choices so far.
    type State = HashMap<SwitchId, usize>;

    fn choose(
        &self,
        query: Query,
        mut load: impl FnMut(PortId) -> u64,
        state: &mut Self::State,
    ) -> Option<PortId> {
        let mut ports = self.0.choices(query.switch, query.host);
        let turn = state.entry(query.switch).or_default();
        let first = *turn % ports.len().max(1);
        *turn += 1;
        ports.rotate_left(first);
        ports.into_iter().min_by_key(|&port| load(port))
    }

    fn peek(&self, query: Query) -> Option<PortId> {
        self.0.peek(query)
    }
}

#[test]
fn a_scheme_may_have_state_and_ask_for_the_load() {
    let graph = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
    let scheme = LeastLoaded(Routes::with(&graph, Routing::FlowHash));
    let mut state = HashMap::new();
    let mut sent: HashMap<PortId, u64> = HashMap::new();
    for _ in 0..160 {
        let ports = walk(&graph, [0, 63].map(HostId), |switch| {
            let load = |port| sent.get(&port).copied().unwrap_or(0);
            let query = query(switch, HostId(63), 7);
            assert_eq!(scheme.peek(query), scheme.peek(query), "it changes nothing");
            scheme.choose(query, load, &mut state)
        });
        for port in ports {
            *sent.entry(port).or_default() += 1;
        }
    }
    // All packets have one path value, and yet each of the 16 paths takes as many of them.
    let hops = scheme.0.hops(&graph, HostId(0), HostId(63));
    for (hop, share) in hops.iter().zip([160, 40, 10, 10, 40, 160]) {
        assert!(hop.iter().all(|port| sent[port] == share), "{hop:?}");
    }
    // Five switches on each path.
    assert_eq!(state.values().sum::<usize>(), 5 * 160);
}

#[test]
fn a_fat_tree_of_256_servers_has_full_bisection() {
    let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
    assert_eq!(graph.hosts(), 256);
    assert_eq!(graph.switches(), 32 + 32 + 64);
    let routes = Routes::new(&graph);
    assert_eq!(path(&graph, &routes, 0, 1).len(), 2);
    assert_eq!(path(&graph, &routes, 0, 8).len(), 4);
    assert_eq!(path(&graph, &routes, 0, 64).len(), 6);
}

/// In a shift by a quarter of the tree every flow crosses the top; none shares a port with another.
fn check_that_a_shift_shares_no_port(routing: Routing) {
    let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
    let routes = Routes::with(&graph, routing);
    let mut used = HashMap::new();
    for from in 0..256 {
        let to = (from + 64) % 256;
        let ports = walk(&graph, [from, to].map(HostId), |switch| {
            peek(&routes, switch, to, from)
        });
        for port in ports {
            *used.entry(port).or_insert(0) += 1;
        }
    }
    assert!(used.values().all(|&count| count == 1));
}

#[test]
fn d_mod_k_lets_destinations_share_no_port_on_the_way_down() {
    check_that_a_shift_shares_no_port(Routing::DModK);
}

#[test]
fn s_mod_k_gives_sources_ports_of_their_own() {
    check_that_a_shift_shares_no_port(Routing::SModK);
}

#[test]
fn hosts_do_not_forward() {
    // h0 - s0 - h1 - s1 - h2
    let mut graph = Graph::new(3, 2);
    for (host, switch) in [(0, 0), (1, 0), (1, 1), (2, 1)] {
        graph.join(HostId(host), SwitchId(switch));
    }
    for (_, routing) in Routing::NAMES {
        let routes = Routes::with(&graph, routing);
        let choose = |host| {
            let query = query(SwitchId(0), HostId(host), 0);
            routes.choose(query, |_| 0, &mut State::default())
        };
        assert_eq!(choose(2), None);
        assert!(choose(1).is_some());
        assert!(routes.hops(&graph, HostId(0), HostId(2)).is_empty());
        assert!(!routes.leads(&graph, HostId(0), HostId(2)));
        assert!(routes.sole_hops(&graph, HostId(0), HostId(2)).is_empty());
    }
}

#[test]
fn a_hash_spreads_flows_over_all_equal_paths_at_every_stage() {
    let graph = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
    let routes = Routes::with(&graph, Routing::FlowHash);
    let hops = routes.hops(&graph, HostId(0), HostId(63));
    let sizes: Vec<usize> = hops.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 4, 16, 16, 4, 1], "every shortest path, once");
    // 1600 flows between two hosts: 100 on each of the 16 paths to the top, whatever was chosen
    // below.
    let mut used = HashMap::new();
    for flow in 0..1_600u32 {
        let hash = mix(flow.into()) as u32;
        let edge = peek(&routes, SwitchId(0), 63, hash).unwrap();
        let Node::Switch(aggregation) = graph.node(graph.far(edge)) else {
            panic!("a host above the edge");
        };
        let top = peek(&routes, aggregation, 63, hash).unwrap();
        *used.entry(top).or_insert(0) += 1;
    }
    assert_eq!(used.len(), 16);
    // Five standard deviations of a binomial.
    assert!(
        used.values().all(|count| (52..=148).contains(count)),
        "{used:?}"
    );
}

#[test]
fn d_mod_k_has_one_path_between_two_hosts() {
    let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).unwrap();
    let routes = Routes::new(&graph);
    let hops = routes.hops(&graph, HostId(3), HostId(200));
    assert_eq!(hops.concat(), path(&graph, &routes, 3, 200));
    assert!(routes.hops(&graph, HostId(3), HostId(3)).is_empty());
}

#[test]
fn trees_have_a_formula_and_other_graphs_a_table() {
    for (m, w) in [
        (&[4u32, 4, 4][..], &[1u32, 4, 4][..]),
        (&[8, 8, 4], &[1, 8, 8]),
        (&[5, 3], &[1, 2]),
        (&[17], &[1]),
    ] {
        let graph = Graph::xgft(m, w).unwrap();
        let routes = Routes::new(&graph);
        assert!(matches!(routes.kind, Kind::Tree(_)), "{m:?} {w:?}");
    }
    let mut ring = Graph::new(3, 3);
    for at in 0..3 {
        ring.join(HostId(at), SwitchId(at));
        ring.join(SwitchId(at), SwitchId((at + 1) % 3));
    }
    assert!(matches!(Routes::new(&ring).kind, Kind::Table(_)));
}

/// How often each of the ports up was chosen at the first switch of a fat tree with four of them,
/// by what `path` and `load` say of packet n; packets are `apart_ps` apart.
fn uses(
    routing: Routing,
    apart_ps: u64,
    path: impl Fn(u32) -> u32,
    load: impl Fn(PortId, &HashMap<PortId, u32>) -> u64,
) -> Vec<u32> {
    let graph = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
    let routes = Routes::with(&graph, routing);
    let (mut state, mut used) = (State::default(), HashMap::new());
    for packet in 0..1_600 {
        let query = Query {
            now_ps: u64::from(packet) * apart_ps,
            ..query(SwitchId(0), HostId(63), path(packet))
        };
        let port = routes.choose(query, |port| load(port, &used), &mut state);
        *used.entry(port.unwrap()).or_insert(0) += 1;
    }
    let mut counts: Vec<u32> = used.into_values().collect();
    counts.sort_unstable();
    counts
}

/// Five standard deviations of a binomial of 1600 draws, one in four.
const QUARTER: std::ops::RangeInclusive<u32> = 313..=487;

#[test]
fn random_spreads_the_packets_of_one_connection() {
    let counts = uses(Routing::Random, 0, |_| 7, |_, _| 0);
    assert_eq!(counts.len(), 4);
    assert!(
        counts.iter().all(|count| QUARTER.contains(count)),
        "{counts:?}"
    );
    // Another connection, of a run with another seed, draws others.
    assert_ne!(counts, uses(Routing::Random, 0, |_| 8, |_, _| 0));
}

#[test]
fn drill_evens_queues_out_and_avoids_a_slow_port() {
    // Queues that never drain: the difference stays within a few packets of one another.
    let grows = |port, used: &HashMap<PortId, u32>| used.get(&port).copied().unwrap_or(0).into();
    let counts = uses(Routing::Drill, 0, |_| 7, grows);
    assert!(counts[3] - counts[0] <= 4, "{counts:?}");
    // One port whose queue is always long takes next to nothing.
    let slow = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
    let slow = Routes::with(&slow, Routing::Drill).choices(SwitchId(0), HostId(63))[2];
    let long = move |port, used: &HashMap<PortId, u32>| {
        grows(port, used) + if port == slow { 1_000_000 } else { 0 }
    };
    let counts = uses(Routing::Drill, 0, |_| 7, long);
    assert!(counts.len() == 3 || counts[0] < 8, "{counts:?}");
}

#[test]
fn a_flowlet_keeps_its_port_until_a_gap() {
    let routing = Routing::Flowlet { gap_ps: 1_000 };
    assert_eq!(uses(routing, 999, |_| 7, |_, _| 0), [1_600]);
    let counts = uses(routing, 1_000, |_| 7, |_, _| 0);
    assert!(
        counts.iter().all(|count| QUARTER.contains(count)),
        "{counts:?}"
    );
    // Eight connections one after another: each has a gap of eight packets.
    assert_eq!(
        uses(routing, 124, |packet| packet % 8, |_, _| 0)
            .iter()
            .sum::<u32>(),
        1_600
    );
    assert!(
        uses(routing, 124, |packet| packet % 8, |_, _| 0)
            .iter()
            .all(|uses| uses % 200 == 0)
    );
}

proptest! {
    /// Around failed links every scheme takes a shortest path of working links, if there is one.
    #[test]
    fn routes_avoid_failed_links(
        hosts in 2u32..7,
        switches in 1u32..8,
        further in 0u32..12,
        seed: u64,
        failed in proptest::collection::vec(proptest::bool::weighted(0.2), 30),
    ) {
        let graph = random(hosts, switches, further, seed);
        for (_, routing) in Routing::NAMES {
            let routes = Routes::around(&graph, routing, &failed);
            for (from, to) in (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b))) {
                if from == to {
                    continue;
                }
                // What `walk` asserts: no loop, whatever has failed.
                let ends = [from, to].map(HostId);
                let mut state = State::default();
                let ports = walk(&graph, ends, |switch| {
                    routes.choose(query(switch, ends[1], from), |_| 0, &mut state)
                });
                let fails = |port: &PortId| failed.get(port.link()) == Some(&true);
                let reachable = reaches(&graph, ends, &failed);
                prop_assert_eq!(!ports.iter().any(fails), reachable);
            }
        }
    }
}

/// Whether a path of working links leads from one host to another, found without routes.
fn reaches(graph: &Graph, [from, to]: [HostId; 2], failed: &[bool]) -> bool {
    let works = |port: PortId| failed.get(port.link()) != Some(&true);
    let (mut seen, mut next) = (
        vec![false; graph.nodes() as usize],
        vec![graph.number(from)],
    );
    while let Some(node) = next.pop() {
        if graph.is_host(node) && node != graph.number(from) {
            continue;
        }
        for &(port, far) in graph.adjacent(node) {
            if works(port) && !std::mem::replace(&mut seen[far.index()], true) {
                next.push(far);
            }
        }
    }
    seen[graph.number(to).index()]
}

#[test]
fn a_fat_tree_keeps_all_other_paths_when_a_link_fails() {
    let graph = Graph::xgft(&[4, 4, 4], &[1, 4, 4]).unwrap();
    let whole = Routes::with(&graph, Routing::Random);
    let lost = whole.choices(SwitchId(0), HostId(63))[1];
    let mut failed = vec![false; lost.link() + 1];
    failed[lost.link()] = true;
    let around = Routes::around(&graph, Routing::Random, &failed);
    let hops = around.hops(&graph, HostId(0), HostId(63));
    let sizes: Vec<usize> = hops.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 3, 12, 12, 3, 1]);
    assert_eq!(
        around.choices(SwitchId(0), HostId(1)),
        whole.choices(SwitchId(0), HostId(1))
    );
}

/// Two leaves with two hosts each and two spines between them, and the state of all switches. Links
/// have 1 Gb/s, but the one from the first spine to the second leaf.
struct LeafSpine {
    graph: Graph,
    routes: Routes,
    state: State,
    slow_bps: u64,
    now_ps: u64,
}

impl LeafSpine {
    fn new(slow_bps: u64) -> Self {
        let graph = Graph::xgft(&[2, 2], &[1, 2]).unwrap();
        let gap_ps = 500_000_000;
        Self {
            routes: Routes::with(&graph, Routing::Conga { gap_ps }),
            graph,
            state: State::default(),
            slow_bps,
            now_ps: 0,
        }
    }

    fn spine(&self, port: PortId) -> usize {
        let Node::Switch(switch) = self.graph.node(self.graph.far(port)) else {
            panic!("a link to a spine");
        };
        switch.index() - 2
    }

    /// Which spine a packet of 1000 bytes takes.
    fn send(&mut self, [from, to]: [u32; 2], connection: u32) -> usize {
        let (graph, routes, state) = (&self.graph, &self.routes, &mut self.state);
        let slow = |port: PortId| {
            let ends = [graph.near(port), graph.far(port)].map(|node| graph.node(node));
            ends == [SwitchId(2), SwitchId(1)].map(Node::Switch)
        };
        let rate = |port| {
            if slow(port) {
                self.slow_bps
            } else {
                1_000_000_000
            }
        };
        let (mut path, mut from_host) = (connection, true);
        let ports = walk(graph, [from, to].map(HostId), |switch| {
            let query = Query {
                now_ps: self.now_ps,
                ..query(switch, HostId(to), path)
            };
            let passing = Passing {
                query,
                from_host,
                bytes: 1_000,
            };
            from_host = false;
            let (port, value) = routes.pass(passing, rate, state)?;
            path = value;
            Some(port)
        });
        self.spine(ports[1])
    }
}

#[test]
fn conga_gives_flowlets_the_least_congested_uplink() {
    let mut net = LeafSpine::new(1_000_000_000);
    // A connection fills its link. Others take the other one, as long as that is emptier.
    let first = net.send([0, 2], 1);
    for _ in 0..40 {
        net.now_ps += 10_000_000;
        assert_eq!(net.send([0, 2], 1), first, "one flowlet");
    }
    for connection in 2..10 {
        assert_ne!(net.send([1, 3], connection), first);
    }
    // After a gap it stays where it is, because no link is better.
    for _ in 0..20 {
        net.now_ps += 600_000_000;
        assert_eq!(net.send([0, 2], 1), first);
    }
}

#[test]
fn conga_avoids_what_the_other_leaf_tells_of() {
    // The link from the first spine down has a fifth of the rate. Only the feedback tells so.
    for feedback in [false, true] {
        let mut net = LeafSpine::new(200_000_000);
        let mut taken = [0u32; 2];
        for connection in 0..400 {
            net.now_ps += 50_000_000;
            taken[net.send([0, 2], connection)] += 1;
            if feedback {
                net.send([2, 0], 9_999);
            }
        }
        match feedback {
            false => assert!(taken[0].abs_diff(taken[1]) < 80, "{taken:?}"),
            true => assert!(4 * taken[0] < taken[1], "{taken:?}"),
        }
    }
}
