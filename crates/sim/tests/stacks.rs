//! Tenants' stacks as a scenario asks for them.

use std::path::Path;

use sluicegate_scenario::{
    experiment::Experiment,
    file::{self, Options},
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::Sim;

fn run(text: &str) -> Vec<VariantResult> {
    let experiment: Experiment = file::parse(Path::new("t.toml"), text, &Options::default())
        .unwrap_or_else(|p| panic!("{p}"));
    let variants = experiment.variants.iter();
    let outcome = |variant| {
        Sim::default()
            .run(&experiment, variant, 1, &mut Unobserved)
            .expect("runs")
    };
    variants.map(|variant| outcome(variant).result).collect()
}

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
    let timeouts =
        |result: &VariantResult| result.flows.iter().map(|flow| flow.timeouts).sum::<u64>();
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
        freebsd.goodput_bps.jain > 0.999,
        "{:?}",
        freebsd.goodput_bps
    );
    assert!(freebsd.goodput_bps.sum > 90e6);
    assert_eq!(
        freebsd
            .flows
            .iter()
            .map(|flow| flow.retransmits)
            .sum::<u64>(),
        0
    );
    // A message waits for its turn, not behind what the others have written.
    assert!(freebsd.rtt_us.p50 < 1_000.0, "{}", freebsd.rtt_us.p50);
    assert!(linux.rtt_us.p50 > 10_000.0, "{}", linux.rtt_us.p50);
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
