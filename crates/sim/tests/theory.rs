//! What must come out whatever the details: ideal completion, fair shares, window-limited throughput.

use std::{net::Ipv4Addr, sync::Arc};

use sluicegate_core::aqm::{Aqm, AqmParams};
use sluicegate_fabric::{Graph, PortConfig, Ports, Routes};
use sluicegate_sim::net::{Far, Host, Net, Notice, Parts, Queueing, Tenant};
use sluicegate_tcp::{Config, Events, config::Buffer};

const RATE_BPS: u64 = 1_000_000_000;
const DELAY_PS: u64 = 10_000_000;
const PORT: u16 = 5000;
/// Actors of a test.
const SOURCE: u32 = 0;
const SINK: u32 = 1;

/// Hosts around one switch, whose ports mark at 30 KB.
fn star(hosts: u32, stack: &Config) -> Net {
    let mut graph = Graph::new(hosts, 1);
    for host in 0..hosts {
        graph.link(host, hosts);
    }
    let aqm = Aqm::Threshold {
        k_bytes: 30_000,
        drop_not_ect: false,
    };
    let config = |is_switch| PortConfig {
        rate_bps: RATE_BPS,
        delay_ps: DELAY_PS,
        limit_bytes: 1 << 20,
        aqm: if is_switch {
            AqmParams::new(aqm, RATE_BPS, 1514).unwrap()
        } else {
            AqmParams::default()
        },
        jitter_ps: if is_switch { 0 } else { 2_000_000 },
        overhead_bytes: 0,
    };
    let mut ports = Ports::default();
    for port in 0..2 * hosts {
        ports.add(config(port % 2 == 1), port.into());
    }
    let stack = Arc::new(*stack);
    let tenant = |host| Tenant {
        host: host as u16,
        address: address(host).into(),
        stack: Arc::clone(&stack),
    };
    Net::new(Parts {
        ports,
        far: Far::of(&graph),
        routes: Routes::new(&graph),
        hosts: (0..hosts)
            .map(|host| Host::new(2 * host, 2 * host, Queueing::Drop, None))
            .collect(),
        tenants: (0..hosts).map(tenant).collect(),
        ip_bytes: 20,
        seed: 1,
    })
}

fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + host)
}

/// Each of `senders` sends `bytes` to host 0. Returns what had arrived of each by `until_ps`, and when the last
/// byte did.
fn send(net: &mut Net, senders: u32, bytes: u64, until_ps: u64) -> (Vec<u64>, u64) {
    for sender in 1..=senders {
        let (port, flow) = (PORT + sender as u16, u64::from(sender) - 1);
        net.accept(0, port, SINK, flow);
        net.connect(sender, address(0).into(), port, SOURCE, flow);
    }
    let mut left = vec![bytes; senders as usize];
    let mut arrived = vec![0; senders as usize];
    let mut last_ps = 0;
    while net.step_before(until_ps) {
        while let Some(notice) = net.notices.pop_front() {
            let Notice::Socket(end, events) = notice else {
                continue;
            };
            let state = &net.ends[end as usize];
            let (role, flow) = (state.actor, state.key as usize);
            let may_write = events.contains(Events::CONNECTED) || events.contains(Events::WRITABLE);
            if role == SOURCE && may_write {
                left[flow] -= net.write(end, left[flow]);
            } else if role == SINK && events.contains(Events::READABLE) {
                arrived[flow] += net.read(end, u64::MAX);
                last_ps = net.now_ps();
            }
        }
    }
    net.account().unwrap();
    (arrived, last_ps)
}

#[test]
fn an_uncontended_flow_takes_as_long_as_its_bytes() {
    let bytes = 50_000_000;
    let mut net = star(
        2,
        &Config::linux(1460).with(sluicegate_core::cc::Algorithm::Dctcp),
    );
    let (arrived, last_ps) = send(&mut net, 1, bytes, 10_000_000_000_000);
    assert_eq!(arrived, [bytes]);
    // Every 1448 bytes of payload are 1514 on the wire.
    let ideal_ps = bytes as f64 / 1448.0 * 1514.0 * 8e12 / RATE_BPS as f64;
    assert!(
        last_ps as f64 <= 1.02 * ideal_ps,
        "{last_ps} against {ideal_ps}"
    );
    assert!(last_ps as f64 >= ideal_ps, "faster than the link");
}

#[test]
fn flows_through_one_port_share_it() {
    let stack = Config::linux(1460).with(sluicegate_core::cc::Algorithm::Dctcp);
    let mut net = star(5, &stack);
    let (arrived, _) = send(&mut net, 4, 1 << 40, 4_000_000_000_000);
    let sum: u64 = arrived.iter().sum();
    let capacity = RATE_BPS as f64 * 4.0 / 8.0 * 1448.0 / 1514.0;
    assert!(
        sum as f64 >= 0.98 * capacity && sum as f64 <= capacity,
        "{sum} of {capacity}"
    );
    for share in arrived {
        let ratio = share as f64 / (sum as f64 / 4.0);
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }
}

#[test]
fn a_small_receive_buffer_limits_throughput_to_window_over_rtt() {
    let window = 32_768;
    let mut stack = Config::linux(1460);
    stack.receive_buffer = Buffer {
        initial_bytes: window,
        max_bytes: window,
    };
    stack.delayed_ack.segments = 1;
    let mut net = star(2, &stack);
    let (arrived, _) = send(&mut net, 1, 1 << 40, 1_000_000_000_000);
    // There and back: two links each, serialization of a segment twice and of an ACK twice, half the jitter.
    let serialization_ps = 2 * (1514 + 66) * 8_000;
    let rtt_s = (4 * DELAY_PS + serialization_ps + 2_000_000) as f64 / 1e12;
    let expected = f64::from(window as u32) / rtt_s;
    let capacity = RATE_BPS as f64 / 8.0 * 1448.0 / 1514.0;
    let got = arrived[0] as f64;
    assert!(
        got <= 1.02 * expected.min(capacity),
        "{got} against {expected}"
    );
    assert!(
        got >= 0.98 * expected.min(capacity),
        "{got} against {expected}"
    );
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        let mut net = star(9, &Config::linux(1460));
        let (arrived, last_ps) = send(&mut net, 8, 3_000_000, 2_000_000_000_000);
        (arrived, last_ps, net.hops(), net.events())
    };
    assert_eq!(run(), run());
}
