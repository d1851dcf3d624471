//! Adaptive routing in converged Ethernet, with TCP over paths of different rates and delays.

mod support;

use sluicegate_scenario::{
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

/// Four senders below one switch, with four paths to four receivers, of which three are slower.
const PATHS: &str = "warmup = '10ms'
duration = '60ms'
[tenant.default]
congestion_control = 'reno'
profile = 'freebsd9'
[traffic.load]
kind = 'bulk'
from = ['h1', 'h2']
to = ['h7', 'h8']
[network]
topology = 'k-ary-n-tree'
k = 2
n = 3
rate = '10Gbit'
delay = '100ns'
link.c1-a3.rate = '5Gbit'
link.c2-a4 = { rate = '2Gbit', delay = '20us' }
link.c3-a3 = { rate = '1Gbit', delay = '5us' }
link.c4-a4 = { rate = '2500Mbit', delay = '50us' }
";

fn run(network: &str, cee: &str) -> VariantResult {
    let text = format!(
        "{PATHS}{network}[network.cee]\n{cee}port_buffer = '400KB'\npfc = {{ xoff = '97KB', xon = '80KB' }}\n"
    );
    let experiment = experiment(&text);
    let mut sim = Sim {
        threads: Threads::Auto,
    };
    let outcome = sim.run(&experiment, &experiment.variants[0], 1, &mut Unobserved);
    outcome.expect("it runs").result
}

fn retransmits(result: &VariantResult) -> u64 {
    result.flows.iter().map(|flow| flow.retransmits).sum()
}

fn timeouts(result: &VariantResult) -> u64 {
    result.flows.iter().map(|flow| flow.timeouts).sum()
}

fn drops(result: &VariantResult) -> u64 {
    let links = result.links.iter();
    links.flat_map(|link| link.drops.values()).sum()
}

#[test]
fn frames_of_several_paths_arrive_in_order_and_none_is_lost() {
    let fixed = run("", "");
    assert_eq!(fixed.derived.get("resequence_overflows"), None);
    for routing in ["random", "switch-adaptive", "r2c2", "r3c2"] {
        let network = format!("routing = '{routing}'\n");
        let limiters = routing == "r3c2";
        let qcn = format!("qcn = {{ set_point = '20KB', rate_limiters = {limiters} }}\n");
        let result = run(&network, &qcn);
        let sum = result.goodput_bps.sum;
        assert_eq!(drops(&result), 0, "{routing}");
        // A path with a limiter may be so slow that a timer of TCP expires: that is no disorder.
        let disorder = retransmits(&result) > 0 && !(limiters && timeouts(&result) > 0);
        assert!(!disorder, "{routing}");
        assert_eq!(result.derived["resequence_overflows"], 0.0, "{routing}");
        assert!(
            sum > fixed.goodput_bps.sum,
            "{routing}: {sum} of {}",
            fixed.goodput_bps.sum
        );
    }
}

#[test]
fn a_full_buffer_of_late_frames_is_counted_and_loses_none() {
    let result = run("routing = 'random'\n", "resequence_buffer = '3KB'\n");
    assert!(result.derived["resequence_overflows"] > 100.0);
    assert_eq!(drops(&result), 0);
    assert!(retransmits(&result) > 0, "TCP takes late frames for lost");
}
