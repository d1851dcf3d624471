//! Switches of hosts that take time: what they drop, and what they hold back.

use sluicegate_scenario::results::{VariantResult, VnicResult};
use sluicegate_sim::Threads;
use support::run_on;

use crate::support;

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

/// Of the vNICs of a host, or of all whose names begin so.
fn at_vnics(result: &VariantResult, host: &str, of: fn(&VnicResult) -> u64) -> u64 {
    let vnics = result.vnics.iter();
    let those = vnics.filter(|vnic| vnic.tenant.starts_with(host));
    those.map(of).sum()
}

fn dropped(vnic: &VnicResult, cause: &str) -> u64 {
    vnic.drops.get(cause).copied().unwrap_or(0)
}

/// No frame is on its way when measured time begins or ends, so that what has passed a point has
/// passed the next one, or was dropped between them.
fn assert_no_frame_is_missing(result: &VariantResult, case: &str) {
    for vnic in &result.vnics {
        let lost = dropped(vnic, "vnic_transmit");
        assert_eq!(vnic.sent, vnic.into_switch + lost, "{case}: {vnic:?}");
        assert_eq!(vnic.out_of_switch, vnic.received, "{case}: {vnic:?}");
    }
    let all = |of| at_vnics(result, "h", of);
    let full = all(|vnic| dropped(vnic, "full"));
    assert_eq!(full, drops(result, "vnic_receive"), "{case}");
    let transmit = all(|vnic| dropped(vnic, "vnic_transmit"));
    assert_eq!(transmit, drops(result, "vnic_transmit"), "{case}");
    // Between 3 and 4 are the switches of two hosts, and the network where they are not the same.
    let lost = all_drops(result) - transmit;
    let (entered, put) = (all(|vnic| vnic.into_switch), all(|vnic| vnic.out_of_switch));
    assert_eq!(entered, put + lost, "{case}: {:?}", result.links);
    // At the first host, to which all others send.
    let link = |id| result.links.iter().find(|link| link.id == id);
    let came = link("switch>h1").map_or(0, |link| link.sent);
    let left = link("h1>switch").map_or(0, |link| link.sent);
    let arrival = link("h1>switch").and_then(|link| link.drops.get("arrival"));
    let entered = at_vnics(result, "h1", |vnic| vnic.into_switch);
    let put = at_vnics(result, "h1", |vnic| vnic.out_of_switch);
    let full = at_vnics(result, "h1", |vnic| dropped(vnic, "full"));
    // What acknowledges leaves; results have the adapter's count only where something is dropped.
    if left > 0 || result.flows[0].datagrams.is_some() {
        let uplink = link("h1>switch").and_then(|link| link.drops.get("uplink"));
        let gone = left + uplink.unwrap_or(&0) + arrival.unwrap_or(&0);
        assert_eq!(entered + came, put + full + gone, "{case}");
    }
}

/// What sockets have taken comes to vNICs, and what vNICs have received to sockets.
fn assert_applications_are_behind_vnics(result: &VariantResult, case: &str) {
    for vnic in &result.vnics {
        let (host, number) = vnic.tenant.split_once('-').unwrap();
        let flows = result
            .flows
            .iter()
            .filter(|flow| flow.tenant == vnic.tenant);
        let sent: u64 = flows.map(|flow| flow.datagrams.unwrap().sent).sum();
        assert_eq!(vnic.sent, sent, "{case}: {vnic:?}");
        let traffic = match (host, number) {
            ("h1", "4") => "local",
            ("h1", "1") => "remote",
            _ => "",
        };
        let flows = result.flows.iter().filter(|flow| flow.traffic == traffic);
        let received: u64 = flows.map(|flow| flow.datagrams.unwrap().received).sum();
        assert_eq!(vnic.received, received, "{case}: {vnic:?}");
    }
}

#[test]
fn each_frame_passes_the_next_point_or_is_dropped_before() {
    let enforced = "[variant.enforced]\nenforcement = { hosts = 'all', policy = { rule = [\
        { algorithm = 'dctcp', mode = 'enforce' }] } }\n";
    for traffic in [DATAGRAMS, BULK] {
        for load in LOADS {
            let buffer = match traffic {
                BULK => "",
                _ => "\nsocket_buffer = '20KB'",
            };
            let timed = format!("{traffic}{buffer}\nstart = '6ms'\nstop = '30ms'");
            let text = scenario(&timed, load, enforced).replace("'60ms'", "'400ms'");
            let results = run(&text);
            assert_eq!(results.len(), 5);
            for result in &results {
                let case = format!("{} {traffic} {load}", result.name);
                assert_eq!(result.vnics.len(), 12, "{case}");
                assert!(
                    at_vnics(result, "h1-4", |vnic| vnic.received) > 100,
                    "{case}"
                );
                assert_no_frame_is_missing(result, &case);
                if traffic == DATAGRAMS {
                    assert_applications_are_behind_vnics(result, &case);
                }
            }
            let full = |of: usize| at_vnics(&results[of], "h1", |vnic| dropped(vnic, "full"));
            assert!(full(0) > 0 && full(1) > 0, "lossy: {traffic} {load}");
            assert_eq!((full(2), full(3)), (0, 0), "lossless: {traffic} {load}");
        }
    }
}

#[test]
fn without_such_switches_no_vnic_is_counted() {
    let text = "duration = '5ms'\n[network]\ntopology = 'star'\n[traffic.b]\nkind = 'bulk'\npairs = 'stride:1'\n";
    assert!(run(text)[0].vnics.is_empty());
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
        .map(|result| result.fct_us["round"].mean.expect("rounds"))
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
