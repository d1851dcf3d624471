//! Both ends of a bound are taken, and what is outside is told with both, the value and the reason.

use std::path::Path;

use sluicegate_scenario::file::{self, Options};

fn problems(text: &str) -> String {
    match file::parse(Path::new("t.toml"), text, &Options::default()) {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}

/// A star of three hosts with keys of its network, then a table of traffic.
fn network(keys: &str) -> String {
    format!(
        "[network]\ntopology = 'star'\nhosts = 3\n{keys}\n[traffic.t]\nkind = 'bulk'\nfrom = 'h2*'\nto = 'h3*'\n"
    )
}

fn traffic(keys: &str) -> String {
    format!("[network]\ntopology = 'star'\nhosts = 3\n[traffic.t]\n{keys}\n")
}

#[test]
fn both_ends_are_taken() {
    for keys in [
        "tenants_per_host = 254",
        "shared_buffer = '1MB'\nalpha = 2.5e-10",
        "shared_buffer = '1MB'\nalpha = 4e9",
        "queue = '102B'",
        "queue = '4GB'",
        "rate = '100Kbit'",
        "rate = '10Tbit'",
        "mtu = 88",
        "mtu = 16000",
        "ip = 6\nmtu = 1280",
        "cee = { qcn = { weight = 4e9, fast_recovery = 4294967295, timer = '10s' } }",
        "cee = { qcn = { weight = 0, fast_recovery = 1, timer = '1us' } }",
    ] {
        assert_eq!(problems(&network(keys)), "", "{keys}");
    }
    for keys in [
        "kind = 'shuffle'\nbytes = '1B'\nparallel = 4294967295",
        "kind = 'shuffle'\nbytes = '1000GB'\nparallel = 1",
        "kind = 'trace'\nsizes = 'websearch'\nconcurrent = 4294967295",
        "kind = 'bulk'\nfrom = 'h2'\nto = 'h1'\nconnections = 31744",
        "kind = 'blast'\nfrom = 'h2'\nto = 'h1'\nrate = '1Mbit'\nspan = '1GiB'",
        "kind = 'datagrams'\nfrom = 'h2'\nto = 'h1'\nrate = '1Mbit'\nsocket_buffer = '16KB'",
    ] {
        assert_eq!(problems(&traffic(keys)), "", "{keys}");
    }
    let runs = |count: &str| format!("repeats = {count}\n{}", network(""));
    assert_eq!(problems(&runs("10000")), "");
}

#[test]
fn what_is_outside_is_told_with_both_ends_and_the_reason() {
    let cases = [
        (
            network("tenants_per_host = 255"),
            "t.toml:4:20: network.tenants_per_host: must lie between 1 and 254, not 255; the last byte",
        ),
        (
            network("shared_buffer = '1MB'\nalpha = 0"),
            "network.alpha: must lie between 2.5e-10 and 4e9, not 0; beyond,",
        ),
        (
            network("queue = '101B'"),
            "network.queue: must lie between 102B and 4GB, not 101B; a frame of the least MTU",
        ),
        (
            network("cee = { qcn = { fast_recovery = 0 } }"),
            "fast_recovery: must lie between 1 and 4294967295, not 0; a rate recovers",
        ),
        (
            network("cee = { qcn = { timer = '11s' } }"),
            "timer: must lie between 1us and 10s, not 11s; an event of each source",
        ),
        (
            network("cee = { pfc = { priorities = 8 } }"),
            "priorities: must lie between 0 and 7, not 8; a tag of IEEE 802.1Q",
        ),
        (
            traffic("kind = 'shuffle'\nbytes = '1B'\nparallel = 0"),
            "traffic.t.parallel: must lie between 1 and 4294967295, not 0; 32 bits",
        ),
        (
            traffic("kind = 'trace'\nsizes = 'websearch'\nconcurrent = 0"),
            "traffic.t.concurrent: must lie between 1 and 4294967295, not 0; 32 bits",
        ),
        (
            traffic("kind = 'bulk'\nfrom = 'h2'\nto = 'h1'\nconnections = 31745"),
            "traffic.t.connections: must lie between 1 and 31744, not 31745; each has a port",
        ),
        (
            traffic("kind = 'shuffle'\nbytes = '0B'"),
            "traffic.t.bytes: must lie between 1B and 1000GB, not 0B; nothing is sent in 0",
        ),
        (
            format!("repeats = 10001\n{}", network("")),
            "t.toml:1:11: repeats: must lie between 1 and 10000, not 10001; the results",
        ),
    ];
    for (text, expected) in cases {
        let told = problems(&text);
        assert!(told.contains(expected), "{told}\nagainst {expected}");
    }
}

/// Many micro-batches are bounded by the operations that they make, of which other keys decide.
#[test]
fn a_step_may_have_more_micro_batches_than_a_hundred_thousand() {
    let step = |batches: u64| {
        traffic(&format!(
            "kind = 'program'\ntraining = {{ parameters = 1e9, layers = 1, hidden = 8, tokens = 8, \
             flops = 2e33, micro_batches = {batches} }}"
        ))
    };
    assert_eq!(problems(&step(100_001)), "");
    let told = problems(&step(100_000_000));
    assert!(told.contains("operations, above 100000000"), "{told}");
    let told = problems(&step(100_000_001));
    let expected = "micro_batches: must lie between 1 and 100000000, not 100000001; each is";
    assert!(told.contains(expected), "{told}");
}
