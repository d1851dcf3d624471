//! Single flows: ideal completion, window over RTT; and that a run depends on nothing but its seed.

use sluicegate_core::cc::Algorithm;
use sluicegate_tcp::{Config, config::Buffer};

use super::{
    near,
    network::{Flows, Network},
};

const RATE_BPS: u64 = 1_000_000_000;
const DELAY_PS: u64 = 10_000_000;

fn star(hosts: u32, stack: &Config) -> Network {
    Network::star(hosts, stack, RATE_BPS, DELAY_PS)
}

#[test]
fn an_uncontended_flow_takes_as_long_as_its_bytes() {
    let bytes = 50_000_000;
    let stack = Config::linux(1460).with(Algorithm::Dctcp);
    let mut flows = Flows::start(star(2, &stack).build(), &[(1, 0)], bytes);
    flows.run_until(10_000_000_000_000);
    flows.net.account().unwrap();
    assert_eq!(flows.arrived, [bytes]);
    // Every 1448 bytes of payload are 1514 on the wire.
    let ideal_ps = bytes as f64 / 1448.0 * 1514.0 * 8e12 / RATE_BPS as f64;
    let took_ps = flows.last_ps as f64;
    assert!(took_ps >= ideal_ps, "faster than the link");
    assert!(near(took_ps, ideal_ps), "{took_ps} against {ideal_ps}");
}

#[test]
fn a_small_receive_buffer_limits_throughput_to_window_over_rtt() {
    // Less than what the link carries in one round trip: the window is the limit, not the link.
    let (window, delay_ps) = (22 * 1460, 100_000_000);
    let mut stack = Config::linux(1460);
    // A segment is an MSS: a window opens by no less (RFC 9293 3.8.6.2.2).
    stack.timestamps = false;
    // An ACK leaves before its segment is read, which therefore is not part of what it offers.
    stack.receive_buffer = Buffer {
        initial_bytes: window + 1460,
        max_bytes: window + 1460,
    };
    stack.delayed_ack.segments = 1;
    let net = Network::star(2, &stack, RATE_BPS, delay_ps).build();
    let mut flows = Flows::start(net, &[(1, 0)], 1 << 40);
    let got = flows.goodputs_bps(100_000_000_000, 1_100_000_000_000)[0];
    // There and back: two links each, serialization of a segment twice and of an ACK twice, half
    // the jitter twice.
    let serialization_ps = 2 * (1514 + 54) * 8_000;
    let rtt_s = (4 * delay_ps + serialization_ps + 2_000_000) as f64 / 1e12;
    let expected = window as f64 * 8.0 / rtt_s;
    assert!(expected < 0.95 * RATE_BPS as f64);
    assert!(near(got, expected), "{got} against {expected}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        let pairs: Vec<_> = (1..9).map(|sender| (sender, 0)).collect();
        let net = star(9, &Config::linux(1460)).build();
        let mut flows = Flows::start(net, &pairs, 3_000_000);
        flows.run_until(2_000_000_000_000);
        let (hops, events) = (flows.net.hops(), flows.net.events());
        (flows.arrived, flows.last_ps, hops, events)
    };
    assert_eq!(run(), run());
}
