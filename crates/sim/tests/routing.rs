//! Every routing scheme on a graph from links: two leaves, four spines, rates that differ.

use std::collections::BTreeMap;

use sluicegate_fabric::Routing;
use sluicegate_scenario::results::VariantResult;
use sluicegate_sim::Threads;
use support::run_on;

use crate::support;

/// The third spine has a quarter of the rate of the first two, the fourth twice that rate. The
/// hosts of a leaf together have 4 Gb/s, the spines 8.5.
const GRAPH: &str = "warmup = '20ms'
duration = '220ms'
[tenant.default]
congestion_control = 'dctcp'
ecn = true
[traffic.load]
kind = 'bulk'
from = ['h1', 'h2', 'h3', 'h4']
to = ['h5', 'h6', 'h7', 'h8']
pairs = 'one-to-one'
connections = 8
[network]
topology = 'graph'
rate = '1Gbit'
queue = '400KB'
marking = { kind = 'threshold', k = '65KB' }
bottleneck = ['leaf1-spine*']
links = [
    { a = 'leaf1', b = 'spine1', rate = '2Gbit' },
    { a = 'leaf1', b = 'spine2', rate = '2Gbit' },
    { a = 'leaf1', b = 'spine3', rate = '500Mbit' },
    { a = 'leaf1', b = 'spine4', rate = '4Gbit' },
    { a = 'leaf2', b = 'spine1', rate = '2Gbit' },
    { a = 'leaf2', b = 'spine2', rate = '2Gbit' },
    { a = 'leaf2', b = 'spine3', rate = '500Mbit' },
    { a = 'leaf2', b = 'spine4', rate = '4Gbit' },
    { a = 'leaf1', b = 'h1' }, { a = 'leaf1', b = 'h2' }, { a = 'leaf1', b = 'h3' }, { a = 'leaf1', b = 'h4' },
    { a = 'leaf2', b = 'h5' }, { a = 'leaf2', b = 'h6' }, { a = 'leaf2', b = 'h7' }, { a = 'leaf2', b = 'h8' },
]
";

/// The scenario with a scheme.
fn text(routing: &str, more: &str) -> String {
    let mut text = format!("{GRAPH}routing = '{routing}'\n");
    let scheme = Routing::NAMES.iter().find(|(name, _)| *name == routing);
    if scheme.is_some_and(|(_, scheme)| scheme.needs_notifications()) {
        for plain in [
            "queue = '400KB'\n",
            "marking = { kind = 'threshold', k = '65KB' }\n",
        ] {
            text = text.replace(plain, "");
        }
        text.push_str(
            "[network.cee]\nport_buffer = '120KB'\npfc = { xoff = '97KB', xon = '80KB' }\n",
        );
        text.push_str("qcn = { set_point = '20KB' }\n");
    }
    text.push_str(more);
    text
}

/// The result of a scheme, and the share of each spine in the packets of the first leaf.
fn of(routing: &str, more: &str) -> (VariantResult, [f64; 4]) {
    let result = run_on(Threads::Auto, &text(routing, more)).remove(0);
    let sent = [1, 2, 3, 4].map(|spine| {
        let name = format!("leaf1>spine{spine}");
        let link = result.links.iter().find(|link| link.id == name);
        link.unwrap_or_else(|| panic!("{name}")).sent as f64
    });
    let all: f64 = sent.iter().sum();
    (result, sent.map(|sent| sent / all))
}

#[test]
fn each_scheme_delivers_on_a_graph_and_loads_links_as_it_says() {
    let mut shares = BTreeMap::new();
    for (routing, _) in Routing::NAMES {
        let (result, share) = of(routing, "");
        println!("{routing}: {share:.3?}, {:.2e} b/s", result.goodput_bps.sum);
        assert_eq!(result.flows.len(), 32, "{routing}");
        assert!(
            result.flows.iter().all(|flow| flow.goodput_bps > 100_000.0),
            "{routing}: each connection delivers"
        );
        assert!(
            share.iter().all(|&share| share > 0.0),
            "{routing}: {share:?}"
        );
        shares.insert(routing, share);
    }
    // A spine for each host, or as many connections as the hash gives it. The third has at most
    // its rate: half a gigabit of 3.5.
    for routing in ["d-mod-k", "s-mod-k", "switch-adaptive"] {
        let [first, second, slow, fast] = shares[routing];
        let alike = (first - second).abs() < 0.01 && (first - fast).abs() < 0.01;
        assert!(alike && (slow - 1.0 / 7.0).abs() < 0.01, "{routing}");
    }
    // Connections that meet marks for several rounds leave the slow spine.
    assert!(shares["plb"][2] < 0.9 * shares["flow-hash"][2]);
    // Each packet by lot, whatever links carry.
    for routing in ["random", "spray"] {
        let even = shares[routing]
            .iter()
            .all(|share| (share - 0.25).abs() < 0.01);
        assert!(even, "{routing}: {:?}", shares[routing]);
    }
    // What is lost on the slow link is hashed to it again.
    let [first, second, slow, fast] = shares["packet-hash"];
    assert!(slow > 0.3 && (first - second).abs() < 0.02 && (first - fast).abs() < 0.02);
    // By queues, by marks, by gaps and by notifications of congestion.
    for (routing, most) in [
        ("drill", 0.15),
        ("reps", 0.17),
        ("flowlet", 0.17),
        ("r2c2", 0.1),
        ("r3c2", 0.1),
        ("conga", 0.05),
    ] {
        assert!(
            shares[routing][2] < most,
            "{routing}: {:?}",
            shares[routing]
        );
    }
    // By the part of its rate that a link carries.
    assert!(shares["conga"][3] > 0.45);
    assert!(shares["drill"][3] > shares["drill"][0]);
}

const ENFORCED: &str = "[enforcement]
hosts = 'all'
policy = { rule = [{ algorithm = 'dctcp', mode = 'enforce' }] }
";

/// Enforcing hosts keep the marks from their tenants, so that PLB has nothing to act upon.
#[test]
fn plb_moves_connections_unless_enforcement_hides_the_marks() {
    // Fewer rounds than Linux's, since the run is short.
    let rounds = "rehash_rounds = 2\nidle_rehash_rounds = 0\n";
    let (_, hashed) = of("flow-hash", "");
    let (_, moved) = of("plb", rounds);
    assert_ne!(moved, hashed);
    let (_, hashed) = of("flow-hash", ENFORCED);
    let (enforced, kept) = of("plb", &format!("{rounds}{ENFORCED}"));
    assert!(enforced.goodput_bps.sum > 1e9);
    assert_eq!(kept, hashed);
}

/// What a connection or a switch remembers of paths crosses no border of parts but in packets.
#[test]
fn plb_and_conga_give_the_same_results_on_one_thread_and_on_several() {
    for routing in ["plb", "conga"] {
        let more = match routing {
            "plb" => "rehash_rounds = 2\n",
            _ => "flowlet_gap = '200us'\n",
        };
        let text = text(routing, more).replace("'220ms'", "'20ms'");
        let results = |threads| format!("{:?}", run_on(threads, &text));
        let alone = results(Threads::Exactly(1));
        assert!(alone == results(Threads::Exactly(2)), "{routing}");
    }
}

/// The link to the fastest spine fails three times for 20 ms. Routes follow at once, after each
/// failure is over, or never.
#[test]
fn a_link_that_flaps_loses_packets_until_routes_converge() {
    let flaps: String = [60, 100, 140]
        .map(|at| format!("[[event]]\nat = '{at}ms'\nlink_down = ['leaf1-spine4']\nfor = '20ms'\n"))
        .concat();
    for routing in ["flow-hash", "drill", "spray", "conga"] {
        let delays = ["reroute_delay = '100us'\n", "reroute_delay = '25ms'\n", ""];
        let runs = delays.map(|delay| of(routing, &format!("{delay}{flaps}")).0);
        let down = |run: &VariantResult| -> u64 {
            let links = run.links.iter();
            links.filter_map(|link| link.drops.get("down")).sum()
        };
        let lost = [0, 1, 2].map(|run| down(&runs[run]));
        let sum = [0, 1, 2].map(|run| runs[run].goodput_bps.sum / 1e6);
        let least = [0, 1, 2].map(|run: usize| {
            let flows = runs[run].flows.iter();
            flows
                .map(|flow| flow.goodput_bps / 1e6)
                .fold(f64::MAX, f64::min)
        });
        println!("{routing}: lost {lost:?}, {sum:.0?} Mb/s, least {least:.1?}");
        assert!(
            lost[0] > 0 && 5 * lost[0] <= lost[1].min(lost[2]),
            "{lost:?}"
        );
        assert!(sum[0] >= sum[1].max(sum[2]), "{routing}: {sum:?}");
        assert!(least.iter().all(|&mbps| mbps > 2.0), "{routing}: {least:?}");
    }
}

/// Results as JSON, without the names of the traffic.
fn json(text: &str) -> String {
    serde_json::to_string(&run_on(Threads::Auto, text)).unwrap()
}

/// The scenario in a network of connections' hashes, with a scheme of the traffic's own.
fn own(routing: &str) -> String {
    text("flow-hash", "").replace(
        "kind = 'bulk'",
        &format!("kind = 'bulk'\nrouting = '{routing}'"),
    )
}

#[test]
fn traffic_with_a_scheme_of_its_own_is_as_in_a_network_of_that_scheme() {
    for routing in ["packet-hash", "spray", "reps", "plb"] {
        let as_network = json(&text(routing, ""));
        assert_eq!(json(&own(routing)), as_network, "{routing}");
    }
    assert_ne!(json(&own("spray")), json(&text("flow-hash", "")));
}

/// One of two kinds of traffic is sprayed and arrives in disorder, the other one keeps its paths.
#[test]
fn two_schemes_stand_side_by_side() {
    let beside = "[traffic.beside]\nkind = 'bulk'\nfrom = ['h1', 'h2']\nto = ['h5', 'h6']\n\
        pairs = 'one-to-one'\nconnections = 2\n[network]";
    let two = own("spray").replace("[network]", beside);
    let two = two.replace("duration = '220ms'", "duration = '30ms'");
    let results = [1, 2].map(|threads| run_on(Threads::Exactly(threads), &two).remove(0));
    let [alone, several] = results
        .each_ref()
        .map(|result| serde_json::to_string(result).unwrap());
    assert_eq!(alone, several);
    let again = |label: &str| -> Vec<u64> {
        let flows = results[0].flows.iter();
        let of_it = flows.filter(|flow| flow.traffic == label);
        of_it.filter_map(|flow| flow.retransmits).collect()
    };
    assert!(again("load").iter().sum::<u64>() > 100);
    assert_eq!(again("beside"), [0; 4]);
}
