//! `[network.host_switch]`: what it means, and what it refuses.

use std::{path::Path, time::Duration};

use sluicegate_scenario::{
    file::{self, Options},
    host_switch::HostSwitch,
};

const NETWORK: &str = "[traffic.bulk]\nkind = 'bulk'\n\
    [network]\ntopology = 'dumbbell'\nrate = '10Gbit'\n";

fn read(text: &str) -> Option<HostSwitch> {
    let text = format!("{NETWORK}{text}");
    let parsed = file::parse(Path::new("t.toml"), &text, &Options::default());
    let mut experiment = parsed.unwrap_or_else(|problems| panic!("{problems}"));
    experiment.variants.remove(0).host_switch
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let text = format!("{NETWORK}{text}");
    let parsed = file::parse(Path::new("t.toml"), &text, &Options::default());
    let told = parsed.expect_err(&text).to_string();
    for part in expected {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
}

#[test]
fn without_the_table_there_is_none_and_an_empty_one_has_the_defaults() {
    assert_eq!(read(""), None);
    let defaults = HostSwitch {
        lossless: 0,
        queue_bytes: None,
        transmit_ring_bytes: 387_584,
        receive_ring_bytes: 387_584,
        arrival_ring_bytes: 387_584,
        uplink_queue_bytes: 387_584,
        rate_bps: None,
        frame_time: Duration::ZERO,
        receive_rate_bps: None,
    };
    assert_eq!(read("[network.host_switch]\n"), Some(defaults));
}

#[test]
fn one_size_of_queue_is_that_of_all_ports_but_where_another_is_given() {
    let text = "[network.host_switch]\nqueue = '24KB'\nuplink_queue = '48KB'\n";
    let switch = read(text).expect("a switch");
    assert_eq!(switch.queue_bytes, Some(24_000));
    assert_eq!(switch.receive_ring_bytes, 24_000);
    assert_eq!(switch.uplink_queue_bytes, 48_000);
    assert_eq!(switch.transmit_ring_bytes, 387_584);
}

#[test]
fn priorities_are_lossless_by_list_or_all_or_none() {
    let lossless = |value: &str, cee: &str| {
        let text = format!("[network.host_switch]\nlossless = {value}\n{cee}");
        read(&text).expect("a switch").lossless
    };
    assert_eq!(lossless("true", ""), 0xff);
    assert_eq!(lossless("false", ""), 0);
    assert_eq!(lossless("3", "[network.cee]\n"), 0b1000);
    assert_eq!(lossless("[0, 3]", "[network.cee]\n"), 0b1001);
}

#[test]
fn what_a_switch_cannot_be_is_refused() {
    let table = "[network.host_switch]\n";
    let refusals = [
        ("lossless = 3\n", "needs [network.cee]"),
        ("lossless = []\n[network.cee]\n", "must not be empty"),
        ("lossless = [3, 3]\n[network.cee]\n", "here twice"),
        (
            "lossless = 8\n[network.cee]\n",
            "network.host_switch.lossless",
        ),
        ("lossless = 'all'\n", "give true, false"),
        ("rate = '1Kbit'\n", "leave it out for no limit"),
        ("queues = '1MB'\n", "unknown key"),
        (
            "lossless = true\narrival_ring = '13KB'\n[network.cee.pfc]\n",
            "cannot keep what arrives after a pause",
        ),
    ];
    for (text, expected) in refusals {
        refused(&format!("{table}{text}"), &[expected]);
    }
    refused(
        "vnic_queue = '1MB'\n[network.host_switch]\n",
        &["transmit_ring"],
    );
    // 10 us to the tenant, 0.5 in the adapter and 1 on the wire at 10 Gb/s, and three frames.
    let needed = 11_500 * 10 / 8 + 3 * 1514;
    let ring = |bytes: u32| {
        format!("{table}lossless = true\narrival_ring = '{bytes}B'\n[network.cee.pfc]\n")
    };
    assert!(read(&ring(needed)).is_some());
    refused(&ring(needed - 1), &["arrival_ring", &needed.to_string()]);
}
