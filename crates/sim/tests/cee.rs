//! Tenants on converged Ethernet.

use sluicegate_fabric::cee::{Buffer, CeeConfig, PfcConfig, QcnConfig, QcnParams};
use sluicegate_scenario::{
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};
use support::experiment;

use crate::support;

/// Seven senders, one receiver, FreeBSD 9 as in the thesis (Table 2.1).
const MANY_TO_ONE: &str = "warmup = '20ms'
duration = '200ms'
[network]
topology = 'star'
hosts = 8
rate = '10Gbit'
delay = '100ns'
[sim]
transmit_delay = '9500ns'
receive_delay = '24us'
jitter = '1us'
[tenant.default]
congestion_control = 'reno'
profile = 'freebsd9'
[traffic.load]
kind = 'bulk'
from = ['h2', 'h3', 'h4', 'h5', 'h6', 'h7', 'h8']
to = 'h1'
";

fn run(text: &str, cee: CeeConfig) -> VariantResult {
    let mut experiment = experiment(text);
    let mut sim = Sim {
        threads: Threads::Auto,
    };
    experiment.variants[0].cee = Some(cee);
    let variant = &experiment.variants[0];
    let outcome = sim.run(&experiment, variant, 1, &mut Unobserved);
    outcome.expect("it runs").result
}

fn drops(result: &VariantResult) -> u64 {
    let links = result.links.iter();
    links.flat_map(|link| link.drops.values()).sum()
}

fn lossless() -> CeeConfig {
    CeeConfig {
        pfc: Some(PfcConfig::default()),
        ..CeeConfig::default()
    }
}

#[test]
fn flow_control_spares_tcp_its_losses() {
    let lossy = run(MANY_TO_ONE, CeeConfig::default());
    let paused = run(MANY_TO_ONE, lossless());
    assert!(drops(&lossy) > 100, "{}", drops(&lossy));
    assert_eq!(drops(&paused), 0);
    for result in [&lossy, &paused] {
        assert!(result.goodput_bps.sum > 8.5e9, "{:?}", result.goodput_bps);
    }
    let retransmits = |result: &VariantResult| {
        let counts = result.flows.iter().map(|flow| flow.retransmits);
        counts.sum::<Option<u64>>().expect("flows of TCP")
    };
    assert!(retransmits(&lossy) > 0);
    assert_eq!(retransmits(&paused), 0);
}

/// The losses of seven hosts that send datagrams of two sizes to the eighth as fast as they can,
/// pauses being ideal: with so much headroom, and with a frame less than that.
fn overload_drops(rate: &str, delay: &str, forwarding: &str, headroom_bytes: u64) -> [u64; 2] {
    let bytes = 97_000 + headroom_bytes;
    let text = format!(
        "warmup = '1ms'\nduration = '4ms'\n[network]\ntopology = 'star'\nhosts = 8\nrate = '{rate}'\ndelay = '{delay}'\n\
        [network.cee]\nforwarding = '{forwarding}'\nport_buffer = '{bytes}B'\n[network.cee.pfc]\n\
        [traffic.long]\nkind = 'datagrams'\nfrom = ['h2', 'h3', 'h4', 'h5', 'h6', 'h7', 'h8']\nto = 'h1'\nrate = '{rate}'\n\
        [traffic.short]\nkind = 'datagrams'\nfrom = ['h2', 'h3', 'h4', 'h5']\nto = 'h1'\nrate = '1Gbit'\nbytes = '300B'\n"
    );
    let mut accepted = experiment(&text);
    let cee = accepted.variants[0].cee.take().expect("written above");
    [bytes, bytes - 1_514].map(|bytes| {
        let buffer = Buffer::Input { bytes };
        drops(&run(
            &text,
            CeeConfig {
                buffer,
                ..cee.clone()
            },
        ))
    })
}

#[test]
fn headroom_that_is_accepted_is_enough_and_one_frame_less_is_not() {
    for (rate, delay, forwarding, headroom_bytes) in [
        ("10Gbit", "1us", "cut-through", 2_889),
        ("10Gbit", "3us", "cut-through", 5_389),
        ("10Gbit", "3us", "store-and-forward", 6_903),
        ("25Gbit", "1us", "cut-through", 4_952),
        ("100Gbit", "5us", "store-and-forward", 66_778),
    ] {
        let [enough, less] = overload_drops(rate, delay, forwarding, headroom_bytes);
        assert_eq!(enough, 0, "{rate} {delay} {forwarding}");
        assert!(
            less > 0,
            "{rate} {delay} {forwarding}: one frame less is too little"
        );
    }
}

#[test]
fn notifications_keep_a_queue_short() {
    let queue = |result: &VariantResult| {
        let link = result.links.iter().find(|link| link.id == "switch>h1");
        let queue = &link.expect("the link to the sink").queue_bytes;
        queue.p50.expect("frames")
    };
    let paused = run(MANY_TO_ONE, lossless());
    let notified = CeeConfig {
        qcn: Some(QcnConfig {
            priorities: 0xff,
            notification_priority: 7,
            rate_limiters: true,
            params: QcnParams::thesis(66_000),
        }),
        ..lossless()
    };
    let notified = run(MANY_TO_ONE, notified);
    assert!(
        queue(&notified) < queue(&paused) / 2.0,
        "{} and {}",
        queue(&notified),
        queue(&paused)
    );
    assert_eq!(drops(&notified), 0);
}

#[test]
fn a_socket_hears_of_what_its_adapter_loses_with_the_link() {
    let overload = "warmup = '4ms'
duration = '4ms'
[network]
topology = 'star'
hosts = 3
rate = '10Gbit'
delay = '100ns'
[traffic.load]
kind = 'datagrams'
from = ['h2', 'h3']
to = 'h1'
rate = '9Gbit'
[[event]]
at = '2ms'
for = '1ms'
link_down = ['switch-h2']
";
    // h2's link fails while it is paused and its socket is full: both are as new when it comes
    // back.
    let result = run(overload, lossless());
    for flow in &result.flows {
        assert!(flow.goodput_bps > 4.5e9, "{flow:?}");
    }
    let link = result.links.iter().find(|link| link.id == "h2>switch");
    let paused_us = link.and_then(|link| link.cee).map(|cee| cee.paused_us);
    assert!(paused_us.is_some_and(|us| us < 3_000.0), "{paused_us:?}");
}

#[test]
fn an_adapter_that_keeps_whatever_comes_is_one_that_is_never_full() {
    // Of FreeBSD's sockets each waits for its turn in any case.
    let text = MANY_TO_ONE.replace("[sim]", "[sim]\nsockets = 'unlimited'");
    let text = text.replace("profile = 'freebsd9'", "profile = 'linux'");
    let with = |adapter_bytes| {
        let config = CeeConfig {
            adapter_bytes,
            ..lossless()
        };
        format!("{:?}", run(&text, config))
    };
    let never_full = with(1 << 40);
    assert_eq!(never_full, with(CeeConfig::UNLIMITED));
    assert_ne!(never_full, with(100_000), "sockets wait for room");
}
