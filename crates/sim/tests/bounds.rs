//! Numbers at the bounds of the language. They hold in release builds, whose arithmetic wraps.

use proptest::prelude::*;

use crate::support::run;

/// Four senders to one host over links of this rate, for the time of so many bits. All of the run
/// is measured: what waits for a lost segment at the end of a warm-up would count as received
/// later.
fn incast(rate: u64, bits: u64, mtu: u32, segments: u32, ip: u32) -> String {
    let duration_ns = bits * 1_000_000 / (rate / 1_000);
    format!(
        "warmup = '0s'
duration = '{duration_ns}ns'
[network]
topology = 'star'
hosts = 5
rate = '{rate}bit'
mtu = {mtu}
ip = {ip}
queue = '4MB'
marking = {{ kind = 'threshold', k = '200KB' }}
[tenant.default]
offload_segments = {segments}
[traffic.m]
kind = 'bulk'
from = ['h1', 'h2', 'h3', 'h4']
to = 'h5'
"
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The run's own account of links would fail it, too.
    #[test]
    fn super_packets_carry_no_more_than_the_link(
        rate_bps in prop_oneof![
            Just(100_000_u64), Just(10_000_000_000), Just(1_000_000_000_000)
        ],
        mtu in prop_oneof![Just(1280_u32), Just(1500), Just(1508), Just(9000), Just(16_000)],
        segments in prop_oneof![Just(1_u32), Just(2), Just(6), Just(12), Just(43), Just(44)],
        ip in prop_oneof![Just(4_u32), Just(6)],
    ) {
        let results = run(&incast(rate_bps, 60_000_000, mtu, segments, ip));
        let bps = results[0].goodput_bps.sum;
        prop_assert!(bps <= rate_bps as f64, "{bps}");
    }
}

#[test]
fn super_packets_of_64_kb_fill_a_link() {
    for (mtu, segments) in [(1500, 44), (9000, 44), (9000, 6), (16_000, 44)] {
        let results = run(&incast(10_000_000_000, 600_000_000, mtu, segments, 4));
        let bps = results[0].goodput_bps.sum;
        assert!((8.5e9..=10e9).contains(&bps), "{bps} at {mtu}, {segments}");
    }
}
