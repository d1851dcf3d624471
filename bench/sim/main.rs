//! How fast the simulator is: `make bench-sim`. One line per case, on one core; the unit is packet
//! transmissions on a link per second of wall time.
//!
//! - **incast**: 16 senders to 1 receiver through one switch, 10 Gb/s, 1 µs per link, 1500 B packets, 10 MB
//!   each, an ACK per packet, DCTCP, K = 65 packets, buffer 250 packets.
//! - **permutation**: XGFT(3; 8,8,4; 1,8,8), 256 servers, full bisection, a fixed permutation, 4 MB per flow,
//!   D-mod-k routing, DCTCP likewise.

#![allow(clippy::print_stdout)]

use std::{fs, sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use sluicegate_core::{
    aqm::{Aqm, AqmParams},
    cc::Algorithm,
};
use sluicegate_fabric::{Graph, PortConfig, Ports, Routes};
use sluicegate_sim::net::{Far, Host, Net, Notice, Parts, Queueing, Tenant};
use sluicegate_tcp::{Config, Events};

const RATE_BPS: u64 = 10_000_000_000;
const LINK_DELAY_PS: u64 = 1_000_000;
const PACKET_BYTES: u32 = 1500;
const THRESHOLD_PACKETS: u32 = 65;
const BUFFER_PACKETS: u64 = 250;
const PORT: u16 = 5000;

fn main() -> Result<()> {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    if wanted("incast") {
        measure("incast", incast()?)?;
    }
    if wanted("permutation") {
        measure("permutation", permutation()?)?;
    }
    Ok(())
}

/// A network and who sends how much to whom.
struct Case {
    net: Net,
    pairs: Vec<(u32, u32)>,
    bytes: u64,
}

fn incast() -> Result<Case> {
    let mut graph = Graph::new(17, 1);
    for host in 0..17 {
        graph.link(host, 17);
    }
    Ok(Case {
        net: net(&graph)?,
        pairs: (1..17).map(|host| (host, 0)).collect(),
        bytes: 10_000_000,
    })
}

fn permutation() -> Result<Case> {
    let graph = Graph::xgft(&[8, 8, 4], &[1, 8, 8]).map_err(anyhow::Error::msg)?;
    Ok(Case {
        net: net(&graph)?,
        pairs: (0..256)
            .zip(shuffled(256))
            .filter(|(from, to)| from != to)
            .collect(),
        bytes: 4_000_000,
    })
}

/// A fixed permutation: Fisher and Yates with a linear congruential generator (Knuth's MMIX).
fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut state = 1u64;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, ((state >> 33) % (last as u64 + 1)) as usize);
    }
    order
}

fn net(graph: &Graph) -> Result<Net> {
    let aqm = Aqm::Threshold {
        k_bytes: THRESHOLD_PACKETS * PACKET_BYTES,
        drop_not_ect: false,
    };
    let aqm = AqmParams::new(aqm, RATE_BPS, PACKET_BYTES).map_err(anyhow::Error::msg)?;
    let config = PortConfig {
        rate_bps: RATE_BPS,
        delay_ps: LINK_DELAY_PS,
        limit_bytes: BUFFER_PACKETS * u64::from(PACKET_BYTES),
        aqm,
        jitter_ps: 0,
        overhead_bytes: 0,
    };
    let adapter = PortConfig {
        limit_bytes: 1 << 40,
        aqm: AqmParams::default(),
        ..config
    };
    let hosts = graph.hosts();
    let from = |port: u32| {
        let (a, b) = graph.links()[port as usize / 2];
        if port % 2 == 0 { a } else { b }
    };
    let count = 2 * graph.links().len() as u32;
    let mut ports = Ports::default();
    for port in 0..count {
        ports.add(
            if from(port) < hosts { adapter } else { config },
            port.into(),
        );
    }
    let machine = |host| {
        Host::new(
            graph.adjacent(host)[0].0,
            graph.adjacent(host)[0].0,
            Queueing::Drop,
            None,
        )
    };
    let stack = Arc::new(stack());
    let tenant = |host| Tenant {
        host: host as u16,
        address: std::net::Ipv4Addr::from(0x0a00_0001 + host).into(),
        stack: Arc::clone(&stack),
    };
    Ok(Net::new(Parts {
        ports,
        far: Far::of(graph),
        routes: Routes::new(graph),
        hosts: (0..hosts).map(machine).collect(),
        tenants: (0..hosts).map(tenant).collect(),
        ip_bytes: 20,
        seed: 1,
    }))
}

/// DCTCP on Linux; frames of 1500 B, Ethernet header included; an ACK per packet.
fn stack() -> Config {
    let mut stack = Config::linux((PACKET_BYTES - 14 - 40) as u16).with(Algorithm::Dctcp);
    stack.delayed_ack.segments = 1;
    stack
}

fn measure(name: &str, mut case: Case) -> Result<()> {
    let net = &mut case.net;
    let mut left = Vec::new();
    for &(_, to) in &case.pairs {
        net.accept(to, PORT, 0, 0);
    }
    for &(from, to) in &case.pairs {
        let address = std::net::Ipv4Addr::from(0x0a00_0001 + to).into();
        net.connect(from, address, PORT, 0, 0);
        left.push(case.bytes);
    }
    let mut open = case.pairs.len();
    let mut arrived = vec![0; case.pairs.len()];
    let start = Instant::now();
    while open > 0 {
        let happened = net.step_before(u64::MAX);
        ensure!(
            happened,
            "{name}: nothing happens but {open} flows are not complete"
        );
        while let Some(notice) = net.notices.pop_front() {
            let Notice::Socket(end, events) = notice else {
                continue;
            };
            let flow = end as usize / 2;
            if end % 2 == 0
                && (events.contains(Events::CONNECTED) || events.contains(Events::WRITABLE))
            {
                left[flow] -= net.write(end, left[flow]);
            }
            if end % 2 == 1 && events.contains(Events::READABLE) {
                arrived[flow] += net.read(end, u64::MAX);
                open -= usize::from(arrived[flow] == case.bytes);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    net.account().map_err(anyhow::Error::msg)?;
    let hops = net.hops() as f64;
    println!(
        "{name}: {:.1} M packet-hops/s, {:.0} ns/hop, {} MB",
        hops / seconds / 1e6,
        seconds * 1e9 / hops,
        resident_mb()?
    );
    println!(
        "  {:.1} ms simulated, {:.2} M hops, {:.2} M events, {} drops",
        net.now_ps() as f64 / 1e9,
        hops / 1e6,
        net.events() as f64 / 1e6,
        (0..net.ports.len())
            .map(|port| net.ports.stats(port).drops.iter().sum::<u64>())
            .sum::<u64>()
    );
    Ok(())
}

/// Resident memory of this process in MB.
fn resident_mb() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .context("/proc/self/statm")?
        .parse()?;
    Ok(pages * 4096 / 1_000_000)
}
