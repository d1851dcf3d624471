//! Data that waits in a host: below sockets, and in its switch.

use sluicegate_scenario::results::VariantResult;
use sluicegate_sim::Threads;
use support::run_on;

use crate::support;

fn run(text: &str) -> Vec<VariantResult> {
    run_on(Threads::Exactly(1), text)
}

fn drops(result: &VariantResult, link: &str, cause: &str) -> u64 {
    let found = result.links.iter().find(|found| found.id == link);
    let drops = found.and_then(|link| link.drops.get(cause));
    drops.copied().unwrap_or(0)
}

/// Two flows of one host, whose adapter is the bottleneck, and a message beside them.
const SENDER: &str = "warmup = '500ms'
duration = '1s'
[network]
topology = 'star'
hosts = 3
rate = '1Gbit'
access_rate = '100Mbit'
[tenant.default]
receive_buffer = '512KB'
[traffic.a]
kind = 'bulk'
from = 'h1'
to = ['h2', 'h3']
[traffic.probe]
kind = 'ping-pong'
from = 'h1'
to = 'h2'
";

#[test]
fn small_queues_leave_room_for_others_of_the_same_host() {
    let delay = "[variant.unlimited]
sim.sockets = 'unlimited'
network.delay = '1ms'
[variant.small]
network.delay = '1ms'
";
    let results = run(&format!("{SENDER}{delay}"));
    let [unlimited, small] = &results[..] else {
        panic!("two variants");
    };
    // Windows of 512 KB are 80 ms of the adapter's time. Small queues hold what cwnd / SRTT makes
    // in a millisecond, which is more than the adapter sends in it.
    let (unlimited, p50) = (unlimited.rtt_us.p50.unwrap(), small.rtt_us.p50.unwrap());
    assert!(unlimited > 60_000.0, "{unlimited}");
    assert!(p50 < unlimited / 4.0, "{p50} against {unlimited}");
    assert!(small.goodput_bps.sum > 94e6, "{:?}", small.goodput_bps);
}

/// Two tenants on the host that sends: one with many connections, one with messages.
const NEIGHBOURS: &str = "warmup = '500ms'
duration = '1s'
[network]
topology = 'star'
hosts = 2
tenants_per_host = 2
rate = '100Mbit'
[tenant.default]
receive_buffer = '512KB'
[sim]
sockets = 'unlimited'
[traffic.greedy]
kind = 'bulk'
from = 'h1-1'
to = 'h2-1'
connections = 8
[traffic.other]
kind = 'bulk'
from = 'h1-2'
to = 'h2-2'
[traffic.probe]
kind = 'ping-pong'
from = 'h1-2'
to = 'h2-1'
[variant.shared]
[variant.rings]
network.vnic_queue = '100KB'
";

fn goodput(result: &VariantResult, tenant: &str) -> f64 {
    let flows = result.flows.iter().filter(|flow| flow.tenant == tenant);
    flows.map(|flow| flow.goodput_bps).sum()
}

#[test]
fn a_queue_of_ones_own_is_a_share_of_ones_own() {
    let results = run(NEIGHBOURS);
    let [shared, rings] = &results[..] else {
        panic!("two variants");
    };
    assert!(goodput(shared, "h1-1") > 3.0 * goodput(shared, "h1-2"));
    let (greedy, other) = (goodput(rings, "h1-1"), goodput(rings, "h1-2"));
    assert!(greedy < 1.15 * other, "{greedy} {other}");
    assert!(greedy + other > 90e6, "{greedy} {other}");
    assert!(drops(rings, "h1>switch", "vnic_transmit") > 0);
    assert_eq!(drops(rings, "h1>switch", "tail"), 0);
    assert_eq!(drops(shared, "h1>switch", "vnic_transmit"), 0);
}

#[test]
fn what_a_full_adapter_drops_is_in_the_results() {
    let small = NEIGHBOURS.replace("'512KB'", "'4MB'");
    let shared = &run(&small)[0];
    assert!(drops(shared, "h1>switch", "tail") > 0);
}

/// Sockets that wait for the ring of their vNIC lose nothing.
#[test]
fn a_ring_that_holds_back_drops_nothing() {
    let held = NEIGHBOURS.replace("'unlimited'", "'turns'");
    for result in run(&held) {
        let total: u64 = result
            .links
            .iter()
            .flat_map(|link| link.drops.values())
            .sum();
        assert_eq!(total, 0);
        assert!(result.goodput_bps.sum > 90e6, "{:?}", result.goodput_bps);
    }
}

#[test]
fn two_threads_give_the_same() {
    for sockets in ["small-queues", "turns", "unlimited"] {
        let text = NEIGHBOURS.replace("unlimited", sockets);
        let text = text.replace("hosts = 2", "hosts = 2\nvnic_queue = '20KB'");
        let text = text.replace("500ms", "50ms").replace("1s", "100ms");
        let bytes = |threads| {
            serde_json::to_string(&run_on(Threads::Exactly(threads), &text)).expect("JSON")
        };
        assert_eq!(bytes(1), bytes(2), "{sockets}");
    }
}
