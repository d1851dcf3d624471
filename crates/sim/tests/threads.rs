//! The same bytes out on one thread and on several.

use sluicegate_scenario::{experiment::Experiment, runner, world::Unobserved};
use sluicegate_sim::{Sim, Threads, build, net::Plain};
use support::experiment;

use crate::support;

/// Results as JSON.
fn results(experiment: &Experiment, threads: Threads) -> String {
    let mut world = Sim { threads };
    let results = runner::run(experiment, &mut world, &mut Unobserved).expect("it runs");
    serde_json::to_string(&results).expect("results are JSON")
}

/// A fat tree: bulk flows across it, messages on connections of their own, enforcement that ends at
/// one host.
const TREE: &str = r#"
seed = 7
warmup = "1ms"
duration = "3ms"
[network]
topology = "fat-tree"
children = [4, 4]
parents = [1, 2]
rate = "1Gbit"
mtu = 1500
queue = "90KB"
[sim]
link_delay = "2us"
transmit_delay = "3us"
receive_delay = "3us"
jitter = "1us"
[traffic.bulk]
kind = "bulk"
pairs = "stride:5-7"
[traffic.mice]
kind = "messages"
pairs = "stride:9"
bytes = "8KB"
interval = "1ms"
[traffic.search]
kind = "trace"
sizes = "websearch"
max_bytes = "100KB"
load = "200Mbit"
classes = { mice = "10KB", large = "rest" }
[[event]]
at = "2500us"
detach = ["h3"]
[variant.native]
[variant.red]
network.marking = { kind = "red", min = "10KB", max = "40KB", p_max = 0.1, weight = 0.1 }
tenant.default = { congestion_control = "dctcp", ecn = true }
[variant.enforced]
network.marking = { kind = "threshold", k = "20KB" }
enforcement = { hosts = "all", policy = { rule = [{ algorithm = "dctcp", mode = "enforce" }] } }
[variant.lossy-hosts]
network.host_switch = { rate = "500Mbit", uplink_queue = "20KB", receive_ring = "20KB" }
[variant.lossless-hosts]
network.host_switch = { rate = "500Mbit", uplink_queue = "20KB", receive_ring = "20KB", lossless = true }
[variant.drill]
network.routing = "drill"
[variant.flowlet]
network.routing = "flowlet"
[variant.packets]
network.routing = "packet-hash"
[variant.spray]
network.routing = "spray"
[variant.reps]
network.routing = "reps"
network.marking = { kind = "threshold", k = "20KB" }
tenant.default = { congestion_control = "dctcp", ecn = true }
"#;

#[test]
fn a_tree_gives_the_same_results_on_one_thread_and_on_several() {
    let experiment = experiment(TREE);
    let alone = results(&experiment, Threads::Exactly(1));
    for threads in [Threads::Exactly(2), Threads::Exactly(3), Threads::UpTo(3)] {
        assert!(alone == results(&experiment, threads), "{threads:?}");
    }
}

const CONVERGED: &str = r#"
seed = 5
warmup = "200us"
duration = "400us"
[network]
topology = "fat-tree"
children = [4, 4, 2]
parents = [1, 2, 2]
rate = "10Gbit"
delay = "100ns"
[network.cee]
pfc = { pause = "wire", priorities = [0, 3], xoff = "60KB", xon = "50KB" }
[traffic.up]
kind = "bulk"
from = "h1*"
to = ["h2*", "h3*"]
pairs = "random"
priority = 3
[traffic.incast]
kind = "bulk"
from = ["h2*", "h5", "h6"]
to = "h1"
[traffic.lossy]
kind = "datagrams"
from = ["h7", "h8", "h9"]
to = ["h30", "h31", "h32"]
rate = "6Gbit"
bytes = "1472B"
priority = 1
[variant.lossless]
[variant.qcn]
network.cee.qcn = { set_point = "20KB" }
[variant.lossy]
network.cee.pfc = false
[variant.shared]
network.cee.switch = "shared"
network.cee.memory = "2MB"
[variant.random]
network.routing = "random"
network.cee.qcn = { set_point = "20KB" }
[variant.lossy-hosts]
network.host_switch = { rate = "5Gbit", uplink_queue = "20KB", receive_ring = "20KB" }
[variant.r2c2]
network.routing = "r2c2"
network.cee.qcn = { set_point = "20KB" }
[variant.r3c2]
network.routing = "r3c2"
network.cee.qcn = { set_point = "20KB" }
[variant.adaptive]
network.routing = "switch-adaptive"
network.cee.qcn = { set_point = "20KB" }
[variant.stored]
network.cee.forwarding = "store-and-forward"
[variant.stacks]
network.cee.qcn = { set_point = "66KB" }
sim = { transmit_delay = "9500ns", receive_delay = "24us", jitter = "1us" }
network.marking = { kind = "threshold", k = "20KB" }
enforcement = { hosts = "all", policy = { rule = [{ algorithm = "dctcp", mode = "enforce" }] } }
"#;

/// Pauses on the wire, notifications and resequencing cross the borders of parts.
#[test]
fn converged_ethernet_gives_the_same_results_on_one_thread_and_on_several() {
    let experiment = experiment(CONVERGED);
    let alone = results(&experiment, Threads::Exactly(1));
    let pauses = alone.matches("\"pauses\":").count();
    assert!(
        pauses > alone.matches("\"pauses\":0").count(),
        "no port was paused"
    );
    for threads in [Threads::Exactly(2), Threads::UpTo(3)] {
        assert!(alone == results(&experiment, threads), "{threads:?}");
    }
}

/// Four pings in ten seconds, between parts.
const IDLE: &str = r#"
warmup = "0s"
duration = "10s"
[network]
topology = "star"
hosts = 64
rate = "10Gbit"
[traffic.p]
kind = "ping-pong"
from = "h1"
to = "h64"
interval = "2500ms"
"#;

#[test]
fn idle_time_costs_nothing_on_several_threads() {
    let experiment = experiment(IDLE);
    for is_measured in [true, false] {
        let variant = &experiment.variants[0];
        let mut engine = build::engine::<Plain>(variant, 1, 2).expect("it is built");
        assert_eq!(engine.nets().count(), 2);
        if is_measured {
            engine.choose_drive();
        }
        engine.begin();
        // As a run stops for its samples.
        for sample in 1..=500 {
            let until_ps = sample * 20_000_000_000;
            engine
                .run_until(until_ps, &mut |_, _| Ok(()))
                .expect("it runs");
            assert_eq!(engine.now_ps(), until_ps);
        }
        let (slices, events) = (engine.slices(), engine.handled());
        assert!((40..1_000).contains(&events), "{events}");
        assert!(slices <= events, "{slices} slices for {events} events");
    }
}

#[test]
fn idle_time_gives_the_same_results_on_several_threads() {
    let experiment = experiment(IDLE);
    let alone = results(&experiment, Threads::Exactly(1));
    for threads in [Threads::Auto, Threads::UpTo(2), Threads::Exactly(3)] {
        assert!(alone == results(&experiment, threads), "{threads:?}");
    }
}
