//! Adaptive routing in converged Ethernet, with TCP over paths of different rates and delays.

use sluicegate_scenario::{
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

use crate::support;

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
    let counts = result.flows.iter().map(|flow| flow.retransmits);
    counts.sum::<Option<u64>>().expect("flows of TCP")
}

fn timeouts(result: &VariantResult) -> u64 {
    let counts = result.flows.iter().map(|flow| flow.timeouts);
    counts.sum::<Option<u64>>().expect("flows of TCP")
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

/// The flows of the traffic in a priority, as JSON.
fn flows(priority: u8, threads: Threads, network: &str, cee: &str) -> String {
    let paths = PATHS.replace("'bulk'", &format!("'bulk'\npriority = {priority}"));
    let text = format!(
        "{paths}{network}[network.cee]\nport_buffer = '400KB'\n\
         qcn = {{ set_point = '20KB', rate_limiters = true }}\n{cee}"
    );
    let experiment = experiment(&text);
    let mut sim = Sim { threads };
    let outcome = sim.run(&experiment, &experiment.variants[0], 1, &mut Unobserved);
    serde_json::to_string(&outcome.expect("it runs").result.flows).unwrap()
}

/// `routings` of one scheme. Notifications have priority 7.
fn of_priorities(routing: &str, keys: &str) -> String {
    let keys = keys.replace('\n', ", ");
    format!("routings = [{{ {keys}priorities = [3, 7], routing = '{routing}' }}]\n")
}

#[test]
fn a_priority_with_a_scheme_of_its_own_is_as_in_a_network_of_that_scheme() {
    let fixed = flows(3, Threads::Auto, "", "");
    for routing in [
        "flow-hash",
        "packet-hash",
        "random",
        "spray",
        "reps",
        "plb",
        "drill",
        "flowlet",
        "switch-adaptive",
        "r2c2",
        "r3c2",
    ] {
        // Flowlets of 500 us are whole flows, which may have the same paths by lot.
        let keys = match routing {
            "flowlet" => "flowlet_gap = '1us'\n",
            _ => "",
        };
        let network = format!("routing = '{routing}'\n{keys}");
        let own = flows(3, Threads::Auto, "", &of_priorities(routing, keys));
        assert_eq!(own, flows(3, Threads::Auto, &network, ""), "{routing}");
        assert_ne!(own, fixed, "{routing}");
    }
}

#[test]
fn other_priorities_keep_the_scheme_of_the_network() {
    let fixed = flows(0, Threads::Auto, "", "");
    for routing in ["random", "spray", "switch-adaptive", "r3c2"] {
        let beside = format!("routings = [{{ priorities = 3, routing = '{routing}' }}]\n");
        let own = flows(0, Threads::Auto, "", &beside);
        assert_eq!(own, fixed, "{routing}");
    }
}

#[test]
fn priorities_with_schemes_of_their_own_are_the_same_on_two_threads() {
    let beside = "routings = [{ priorities = 3, routing = 'switch-adaptive' }, \
        { priorities = 7, routing = 'random' }, { priorities = [4, 5], routing = 'r3c2' }]\n\
        [traffic.random]\nkind = 'bulk'\nfrom = 'h3'\nto = 'h5'\npriority = 7\n\
        [traffic.sources]\nkind = 'bulk'\nfrom = 'h4'\nto = 'h6'\npriority = 5\n";
    let [one, two] = [1, 2].map(|threads| flows(3, Threads::Exactly(threads), "", beside));
    assert_eq!(one, two);
}
