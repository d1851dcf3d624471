//! Rules that name no threshold are harmless where nothing is known of the path: a CUBIC flow alone
//! has nine tenths of its goodput without enforcement, whatever the RTT, the jitter and the losses.

use std::fmt::Write;

use sluicegate_scenario::{
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

use crate::support;

const RTTS_US: [u32; 5] = [100, 1_000, 10_000, 60_000, 200_000];
const JITTERS_US: [u32; 3] = [0, 200, 2_000];
/// No loss, and 0.1 % of full frames.
const BIT_ERROR_RATES: [f64; 2] = [0.0, 8.26e-8];

/// Hosts that enforce, and the rule.
const RULES: [(&str, &str); 10] = [
    ("['h2']", "algorithm = 'dctcp'"),
    ("'all'", "algorithm = 'dctcp'"),
    ("['h2']", "algorithm = 'dctcp', one_sided = 'dcvegas'"),
    ("'all'", "algorithm = 'dcvegas'"),
    ("['h2']", "algorithm = 'vegas'"),
    ("['h2']", "algorithm = 'swift'"),
    ("['h2']", "algorithm = 'reno'"),
    ("['h2']", "algorithm = 'cubic'"),
    ("['h2']", "algorithm = 'illinois'"),
    ("['h2']", "algorithm = 'highspeed'"),
];

/// One flow from h2 to h1 as it is, and under each rule.
fn scenario(rtt_us: u32, jitter_us: u32, bit_error_rate: f64) -> String {
    // What hosts add is 30 us; the path has four links there and back.
    let link_delay_ns = (rtt_us - 30) * 1000 / 4;
    // Long enough for some losses.
    let (warmup_s, duration_s) = match rtt_us {
        ..=10_000 => (1, 4),
        10_001..=60_000 => (5, 15),
        _ if bit_error_rate == 0.0 => (10, 5),
        _ => (10, 60),
    };
    let mut text = format!(
        "warmup = '{warmup_s}s'\nduration = '{duration_s}s'\n\
         [network]\ntopology = 'star'\nhosts = 2\nrate = '100Mbit'\nqueue = '400KB'\n\
         bit_error_rate = {bit_error_rate:e}\n\
         [sim]\nlink_delay = '{link_delay_ns}ns'\njitter = '{jitter_us}us'\n\
         [traffic.far]\nkind = 'bulk'\nfrom = 'h2'\nto = 'h1'\n[variant.unenforced]\n"
    );
    for (index, (hosts, rule)) in RULES.iter().enumerate() {
        let _ = write!(
            text,
            "[variant.rule{index}]\nenforcement.hosts = {hosts}\n\
             enforcement.policy.rule = [{{ mode = 'enforce', {rule} }}]\n"
        );
    }
    text
}

fn goodput_bps(result: &VariantResult) -> f64 {
    result.flows.iter().map(|flow| flow.goodput_bps).sum()
}

/// Mean goodput of each variant, the unenforced one first.
fn means(text: &str, seeds: u64) -> Vec<f64> {
    let experiment = experiment(text);
    let mut sim = Sim {
        threads: Threads::Auto,
    };
    let mut mean = |variant| {
        let mut one = |seed| sim.run(&experiment, variant, seed, &mut Unobserved);
        let all = (1..=seeds).map(|seed| goodput_bps(&one(seed).expect("it runs").result));
        all.collect::<Vec<_>>().iter().sum::<f64>() / seeds as f64
    };
    experiment.variants.iter().map(&mut mean).collect()
}

/// Every cell of the matrix; a line for each that has less than `least`.
fn matrix(seeds: u64, least: f64) {
    let mut short = String::new();
    for rtt_us in RTTS_US {
        for jitter_us in JITTERS_US {
            for bit_error_rate in BIT_ERROR_RATES {
                let found = means(&scenario(rtt_us, jitter_us, bit_error_rate), seeds);
                let place =
                    format!("RTT {rtt_us} us, jitter {jitter_us} us, BER {bit_error_rate:e}");
                let parts = found[1..].iter().map(|bps| bps / found[0]);
                let parts: Vec<f64> = parts.collect();
                println!("{place}: {:.1} Mb/s, {parts:.2?}", found[0] / 1e6);
                for (part, (_, rule)) in parts.iter().zip(RULES) {
                    if *part < least {
                        let _ = writeln!(short, "{place}: {rule} has {part:.2}");
                    }
                }
            }
        }
    }
    assert!(short.is_empty(), "{short}");
}

/// One seed: losses are few at 200 ms, so that cells vary by some hundredths.
#[test]
fn no_rule_without_a_threshold_takes_more_than_a_tenth() {
    matrix(1, 0.87);
}

/// In `make experiments`, which prints every cell.
#[test]
#[ignore = "ten seeds take ten minutes"]
fn no_rule_without_a_threshold_takes_more_than_a_tenth_with_ten_seeds() {
    matrix(10, 0.9);
}

/// A link that becomes slower takes longer for a segment than any delay of a fast network.
#[test]
fn a_failover_to_a_slower_link_leaves_the_flow_its_rate() {
    let mut text = "warmup = '1s'\nduration = '5s'\n\
         [network]\ntopology = 'star'\nhosts = 2\nrate = '1Gbit'\nqueue = '400KB'\n\
         [traffic.far]\nkind = 'bulk'\nfrom = 'h2'\nto = 'h1'\n\
         [[event]]\nat = '500ms'\nslow_link = { links = ['*'], rate = '100Mbit' }\n\
         [variant.unenforced]\n"
        .to_owned();
    for (index, rule) in ["dcvegas", "vegas", "swift"].iter().enumerate() {
        let _ = write!(
            text,
            "[variant.rule{index}]\nenforcement.hosts = ['h2']\n\
             enforcement.policy.rule = [{{ mode = 'enforce', algorithm = '{rule}' }}]\n"
        );
    }
    let found = means(&text, 1);
    for bps in &found[1..] {
        assert!(*bps >= 0.9 * found[0], "{found:?}");
    }
}
