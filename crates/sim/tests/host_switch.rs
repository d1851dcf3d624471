//! Switches of hosts that take time: what they drop, and what they hold back.

mod support;

use sluicegate_scenario::results::VariantResult;
use sluicegate_sim::Threads;
use support::run_on;

fn run(text: &str) -> Vec<VariantResult> {
    run_on(Threads::Exactly(1), text)
}

/// Drops with this cause, of all links.
fn drops(result: &VariantResult, cause: &str) -> u64 {
    let counts = result.links.iter().filter_map(|link| link.drops.get(cause));
    counts.sum()
}

fn all_drops(result: &VariantResult) -> u64 {
    let counts = result.links.iter().flat_map(|link| link.drops.values());
    counts.sum()
}

/// Three VMs on one host send to a fourth VM there, and VMs of two other hosts send to the first
/// host, more than switches, VMs and links carry. `{traffic}` is the kind of the flows.
fn scenario(traffic: &str, load: &str, variants: &str) -> String {
    format!(
        "warmup = '5ms'
duration = '60ms'
[network]
topology = 'star'
hosts = 3
tenants_per_host = 4
rate = '1Gbit'
[network.cee]
port_buffer = '150KB'
[network.host_switch]
{load}
[tenant.default]
kind = 'guest'
[sim]
jitter = '0us'
receive_delay = '1us'
transmit_delay = '1us'
[traffic.local]
{traffic}
from = ['h1-1', 'h1-2', 'h1-3']
to = 'h1-4'
[traffic.remote]
{traffic}
from = ['h2-*', 'h3-*']
to = 'h1-1'
pairs = 'all-to-one'
[variant.ll]
[variant.lz]
network.cee.pfc = {{}}
[variant.zl]
network.host_switch.lossless = true
[variant.zz]
network.host_switch.lossless = true
network.cee.pfc = {{}}
{variants}"
    )
}

const DATAGRAMS: &str = "kind = 'datagrams'\nrate = '400Mbit'";
const BULK: &str = "kind = 'bulk'";

/// Small rings, so that queues are full often.
const LOADS: [&str; 4] = [
    "rate = '300Mbit'\ntransmit_ring = '20KB'\nreceive_ring = '20KB'\nuplink_queue = '20KB'\narrival_ring = '40KB'",
    "rate = '10Gbit'\nreceive_rate = '200Mbit'\ntransmit_ring = '4KB'\nreceive_ring = '9KB'\nuplink_queue = '9KB'\narrival_ring = '30KB'",
    "frame_time = '9us'\ntransmit_ring = '10KB'\nreceive_ring = '10KB'\nuplink_queue = '10KB'\narrival_ring = '30KB'",
    "receive_rate = '50Mbit'\ntransmit_ring = '10KB'\nreceive_ring = '10KB'\nuplink_queue = '10KB'\narrival_ring = '30KB'",
];

#[test]
fn a_lossless_switch_behind_a_lossless_network_drops_nothing_at_any_load() {
    for traffic in [DATAGRAMS, BULK] {
        for load in LOADS {
            let results = run(&scenario(traffic, load, ""));
            let [ll, lz, zl, zz] = &results[..] else {
                panic!("four variants");
            };
            assert_eq!(all_drops(zz), 0, "{traffic} {load}: {:?}", zz.links);
            let lossy = "a lossy switch drops at its VMs";
            assert!(drops(ll, "vnic_receive") > 0, "{lossy}: {traffic} {load}");
            assert!(drops(lz, "vnic_receive") > 0, "{lossy}: {traffic} {load}");
            let held_back = "vnic_transmit vnic_receive uplink";
            for place in held_back.split(' ') {
                assert_eq!(drops(zl, place), 0, "{place}: {traffic} {load}");
            }
        }
    }
}

#[test]
fn losslessness_of_one_network_moves_the_drops_to_the_other() {
    let results = run(&scenario(DATAGRAMS, LOADS[0], ""));
    let [ll, lz, zl, zz] = &results[..] else {
        panic!("four variants");
    };
    // Only the network is lossless: its switch drops nothing, so that the hosts' switches do.
    assert_eq!(drops(lz, "buffer") + drops(lz, "headroom"), 0);
    assert!(drops(lz, "vnic_receive") >= drops(ll, "vnic_receive"));
    // Only the hosts' switches are: what they leave in the adapter's ring finds no room there.
    assert!(drops(zl, "arrival") > 1_000, "{:?}", zl.links);
    assert_eq!(drops(ll, "arrival") + drops(lz, "arrival"), 0);
    // The whole way is: adapters pause their links, and senders wait.
    let pauses = zz.links.iter().filter_map(|link| link.cee);
    assert!(
        pauses.map(|cee| cee.pauses).sum::<u64>() > 0,
        "{:?}",
        zz.links
    );
}

#[test]
fn a_switch_forwards_at_its_rate() {
    // One VM to another of its host: 300 of 400 Mb/s in frames, and the payload in them.
    let text = "warmup = '20ms'\nduration = '100ms'\n[network]\ntopology = 'star'\ntenants_per_host = 2\n\
        [network.host_switch]\nrate = '300Mbit'\n[tenant.default]\nkind = 'guest'\n\
        [sim]\njitter = '0us'\n[traffic.u]\nkind = 'datagrams'\nrate = '400Mbit'\nfrom = 'h1-1'\nto = '<to>'\n\
        [variant.lossy]\n[variant.lossless]\nnetwork.host_switch.lossless = true\n";
    for to in ["h1-2", "h2-1"] {
        for result in run(&text.replace("<to>", to)) {
            let goodput = result.flows[0].goodput_bps;
            let expected = 300e6 * 1472.0 / 1514.0;
            let differs = (goodput / expected - 1.0).abs();
            assert!(differs < 0.01, "to {to}: {goodput}, not {expected}");
        }
    }
}

#[test]
fn a_switch_without_limits_changes_no_completion() {
    let text = "warmup = '0s'\nduration = '50ms'\n[network]\ntopology = 'star'\nhosts = 5\n[sim]\njitter = '0us'\n\
        [tenant.default]\nkind = 'guest'\n[traffic.i]\nkind = 'incast'\nbytes = '3KB'\ninterval = '1ms'\n\
        from = ['h2', 'h3', 'h4', 'h5']\nto = 'h1'\n[variant.without]\n\
        [variant.with]\nnetwork.host_switch = { lossless = true }\n";
    let results = run(text);
    let means: Vec<f64> = (results.iter())
        .map(|result| result.fct_us["round"].mean)
        .collect();
    assert_eq!(means[0], means[1]);
}

#[test]
fn a_lossless_priority_beside_a_lossy_one() {
    let variants = "[variant.mixed]\nnetwork.host_switch.lossless = 0\nnetwork.cee.pfc.priorities = 0\n\
        traffic.remote.priority = 1\n";
    let results = run(&scenario(DATAGRAMS, LOADS[0], variants));
    let mixed = &results[4];
    let lost = |name: &str| {
        let flows = mixed.flows.iter().filter(|flow| flow.traffic == name);
        flows
            .filter_map(|flow| flow.datagrams)
            .map(|it| it.lost)
            .sum::<u64>()
    };
    assert_eq!(lost("local"), 0, "of the lossless priority");
    assert!(
        lost("remote") > 1_000,
        "of the lossy one: {}",
        lost("remote")
    );
}

/// Stacks that wait until their data have left the host go on when the switch has passed them on.
#[test]
fn stacks_with_small_queues_keep_a_switch_busy() {
    let text = "warmup = '50ms'\nduration = '200ms'\n[network]\ntopology = 'star'\ntenants_per_host = 2\n\
        rate = '1Gbit'\n[network.host_switch]\nrate = '300Mbit'\nlossless = true\n\
        [sim]\nsockets = 'small-queues'\n\
        [traffic.b]\nkind = 'bulk'\nfrom = 'h1-1'\nto = '<to>'\n";
    for to in ["h1-2", "h2-1"] {
        let result = run(&text.replace("<to>", to)).remove(0);
        let goodput_mbps = result.goodput_bps.sum / 1e6;
        assert!(goodput_mbps > 250.0, "{to}: {goodput_mbps}");
    }
}
