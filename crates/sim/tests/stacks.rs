//! Tenants' stacks as a scenario asks for them.

use sluicegate_scenario::results::VariantResult;
use support::run;

use crate::support;

/// Seven send to one over a queue that drops everything above RED's upper threshold.
const INCAST: &str = "warmup = '0s'
duration = '500ms'
[network]
topology = 'star'
hosts = 8
rate = '1Gbit'
queue = '60KB'
[traffic.incast]
kind = 'bulk'
from = 'h*'
to = 'h1'
";

#[test]
fn timeouts_are_as_short_as_the_scenario_says() {
    let results = run(&format!(
        "{INCAST}
[variant.long]
tenant.default = {{ recovery = 'newreno' }}
[variant.short]
tenant.default = {{ recovery = 'newreno', rto_min = '2ms', rto_initial = '10ms' }}
"
    ));
    let timeouts = |result: &VariantResult| {
        let counts = result.flows.iter().map(|flow| flow.timeouts);
        counts.sum::<Option<u64>>().expect("flows of TCP")
    };
    let [long, short] = &results[..] else {
        panic!("two variants");
    };
    assert!(timeouts(long) > 0);
    assert!(
        timeouts(short) > 3 * timeouts(long),
        "{} {}",
        timeouts(short),
        timeouts(long)
    );
}

/// Two connections leave one host, whose adapter is the bottleneck.
#[test]
fn freebsd_s_sockets_wait_for_the_adapter_and_take_turns() {
    let results = run("warmup = '100ms'
duration = '400ms'
[network]
topology = 'star'
hosts = 3
rate = '1Gbit'
access_rate = '100Mbit'
[traffic.a]
kind = 'bulk'
from = 'h1'
to = ['h2', 'h3']
[traffic.probe]
kind = 'ping-pong'
from = 'h1'
to = 'h2'
[variant.linux]
tenant.default.receive_buffer = '256KB'
sim.sockets = 'unlimited'
[variant.freebsd]
tenant.default.profile = 'freebsd9'
");
    let [linux, freebsd] = &results[..] else {
        panic!("two variants");
    };
    assert!(
        freebsd.goodput_bps.jain > Some(0.999),
        "{:?}",
        freebsd.goodput_bps
    );
    assert!(freebsd.goodput_bps.sum > 90e6);
    assert_eq!(
        freebsd
            .flows
            .iter()
            .map(|flow| flow.retransmits)
            .sum::<Option<u64>>(),
        Some(0)
    );
    // A message waits for its turn, not behind what the others have written.
    let p50 = |result: &VariantResult| result.rtt_us.p50.expect("a probe");
    assert!(p50(freebsd) < 1_000.0, "{}", p50(freebsd));
    assert!(p50(linux) > 10_000.0, "{}", p50(linux));
}

/// Two connections, one after the other, over a bottleneck whose queue a slow start fills.
#[test]
fn a_connection_begins_with_what_the_one_before_has_learnt() {
    let results = run("warmup = '0s'
duration = '1s'
[network]
topology = 'dumbbell'
pairs = 1
rate = '100Mbit'
access_rate = '1Gbit'
queue = '60KB'
[traffic.first]
kind = 'bulk'
stop = '300ms'
[traffic.second]
kind = 'bulk'
start = '500ms'
stop = '800ms'
[variant.fresh]
tenant.default = { profile = 'freebsd9', connection_cache = false }
[variant.kept]
tenant.default.profile = 'freebsd9'
[variant.linux]
[variant.linux-kept]
tenant.default.connection_cache = true
");
    let drops = |result: &VariantResult| {
        let links = result.links.iter();
        links.flat_map(|link| link.drops.values()).sum::<u64>()
    };
    let [fresh, kept, linux, linux_kept] = [0, 1, 2, 3].map(|n| drops(&results[n]));
    // The first overshoots as it did; the second knows where to stop.
    assert!(fresh > 20, "{fresh}");
    assert!(kept * 3 < fresh * 2, "{kept} against {fresh}");
    // Linux keeps no threshold: its second one overshoots, too.
    assert!(linux_kept * 3 > linux * 2, "{linux_kept} against {linux}");
}

/// A message at a time over a link ten times slower than the sender's, milliseconds away.
const MESSAGES: &str = "warmup = '0s'
duration = '500ms'
[network]
topology = 'dumbbell'
pairs = 1
rate = '100Mbit'
access_rate = '1Gbit'
delay = '1ms'
[traffic.messages]
kind = 'messages'
bytes = '40KB'
interval = '20ms'
";

#[test]
fn pacing_spreads_what_a_window_allows() {
    let results = run(&format!(
        "{MESSAGES}\n[variant.at-once]\n[variant.paced]\ntenant.default.pacing = true\n"
    ));
    let [at_once, paced] = &results[..] else {
        panic!("two variants");
    };
    let fullest = |result: &VariantResult| {
        let bottleneck = result.links.iter().find(|link| link.bottleneck);
        let queue = &bottleneck.expect("left>right").queue_bytes;
        queue.max.expect("packets")
    };
    let (of_burst, of_paced) = (fullest(at_once), fullest(paced));
    assert!(of_burst > 20_000.0, "{of_burst}");
    assert!(of_paced < 0.6 * of_burst, "{of_paced} {of_burst}");
    // It costs no more than the time over which it spreads.
    let p50 = |result: &VariantResult| result.fct_us["messages"].p50.expect("messages");
    assert!(p50(paced) > p50(at_once) && p50(paced) < 2.0 * p50(at_once));
}

#[test]
fn offload_carries_segments_in_one_packet() {
    let results = run("warmup = '100ms'
duration = '400ms'
[network]
topology = 'dumbbell'
pairs = 1
rate = '1Gbit'
[traffic.bulk]
kind = 'bulk'
[variant.wire]
[variant.offload]
tenant.default.offload_segments = 8
");
    let [wire, offload] = &results[..] else {
        panic!("two variants");
    };
    let packet_bytes = |result: &VariantResult| {
        let link = result.links.iter().find(|link| link.bottleneck);
        let link = link.expect("left>right");
        link.sent_bytes as f64 / link.sent as f64
    };
    assert!(packet_bytes(wire) <= 1514.0);
    assert!(
        packet_bytes(offload) > 6.0 * 1514.0,
        "{}",
        packet_bytes(offload)
    );
    let gain = offload.goodput_bps.sum / wire.goodput_bps.sum;
    assert!((1.0..1.08).contains(&gain), "as much less headers: {gain}");
}
