//! No stack that follows the standards is policed: real stacks over a network that loses, repeats
//! and reorders, with receivers that close and shrink their windows, silent connections and a
//! policy that changes all the time. Needs root.
//!
//! `SG_COMPLIANT_PACKETS` says how many packets the hosts must have seen, by default enough for
//! each adversity. All segmentation offloads are off: a packet is a segment.

#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    os::fd::AsRawFd,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use live::{
    A, B, Hosts, TENANTS, counter,
    relay::Relay,
    run,
    socket::{Connection, STALLED},
};
use sluicegate_agent::Instance;
use sluicegate_policy::Policy;

use crate::live;

/// Without [`PACKETS`] in the environment.
const PACKETS_SHORT: u64 = 60_000;
const PACKETS: &str = "SG_COMPLIANT_PACKETS";

/// Policies that take turns: every algorithm, windows that shrink, both floors, and observing.
const RULES: [&str; 8] = [
    "algorithm = 'dctcp'\nmode = 'enforce'",
    "algorithm = 'cubic'\nmode = 'enforce'\nwindow_cap = '30KB'",
    "algorithm = 'dcvegas'\nmode = 'enforce'\nfloor_mss = 1",
    "algorithm = 'reno'\nmode = 'enforce'\ninitial_window = 2",
    "algorithm = 'fixed'\nwindow = '6KB'\nmode = 'enforce'",
    "algorithm = 'fixed'\nwindow = '1MiB'\nmode = 'enforce'",
    "algorithm = 'dctcp'\nmode = 'observe'",
    "algorithm = 'vegas'\nmode = 'enforce'\nmptcp = 'strip'",
];

/// Growth of these counters of both tenants' kernels shows that an adversity was there.
const ADVERSITIES: [&str; 7] = [
    "TcpExtTCPSackRecovery",
    "TcpExtTCPLossProbes",
    "TcpExtTCPDSACKRecv",
    "TcpExtTCPOFOQueue",
    "TcpExtTCPToZeroWindowAdv",
    "TcpExtTCPWinProbe",
    "TcpExtTCPKeepAlive",
];

fn policy(turn: usize) -> Policy {
    let rule = RULES[turn % RULES.len()];
    let text =
        format!("trusted = ['10.0.0.0/8', 'fd00::/8']\n[[rule]]\nrto_min = '200ms'\n{rule}\n");
    Policy::parse("test.toml", &text).unwrap_or_else(|problems| panic!("{text}: {problems}"))
}

/// The counters of `/proc/net/netstat` in a tenant, by the names of `nstat`.
fn netstat(hosts: &Hosts, tenant: usize) -> BTreeMap<String, u64> {
    let text = hosts.within(TENANTS[tenant], || {
        fs::read_to_string("/proc/thread-self/net/netstat").expect("/proc is mounted")
    });
    let lines: Vec<&str> = text.lines().collect();
    let mut counters = BTreeMap::new();
    for pair in lines.chunks_exact(2) {
        let (names, values) = (pair[0].split(' '), pair[1].split(' '));
        let prefix = names
            .clone()
            .next()
            .unwrap_or("")
            .trim_end_matches(':')
            .to_owned();
        for (name, value) in names.zip(values).skip(1) {
            counters.insert(format!("{prefix}{name}"), value.parse().unwrap_or(0));
        }
    }
    counters
}

/// A network that does to packets what networks do, in both directions.
fn build() -> (Hosts, Relay) {
    let hosts = Hosts::new();
    for (host, tenant) in ["ha", "hb"].into_iter().zip(TENANTS) {
        for (part, interface) in [(tenant, "eth0"), (host, "t")] {
            let off = ["-K", interface, "tso", "off", "gso", "off", "gro", "off"];
            hosts.within(part, || run("ethtool", &off));
        }
        hosts.within(tenant, || {
            // Receivers take back what they have offered.
            fs::write("/proc/sys/net/ipv4/tcp_shrink_window", "1").expect("Linux 6.6");
        });
    }
    let relay = Relay::between(&hosts);
    (hosts, relay)
}

fn option(socket: &TcpStream, level: i32, name: i32, value: i32) {
    // SAFETY: the kernel reads an int.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

/// Long transfers both ways, and again on a new connection.
fn bulk(hosts: &Hosts, family: usize, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let mut connection = Connection::open(hosts, family);
        connection.transfer(A, 3_000_000);
        connection.exchange(1_500_000);
        connection.transfer(B, 3_000_000);
    }
}

/// A receiver that lets its window close, waits, and makes its buffer smaller while data is under
/// way.
fn slow_reader(hosts: &Hosts, family: usize, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        let mut connection = Connection::open(hosts, family);
        for (turn, buffer) in [60_000, 20_000, 120_000, 8_000].into_iter().enumerate() {
            let from = if turn % 2 == 0 { A } else { B };
            option(
                &connection.ends[1 - from],
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                buffer,
            );
            connection.transfer_paused(from, 400_000, Duration::from_millis(300));
        }
    }
}

/// Small messages with pauses longer than a retransmission timeout, kept alive by the kernel.
fn quiet(hosts: &Hosts, family: usize, done: &AtomicBool) {
    let mut connection = Connection::open(hosts, family);
    for end in &connection.ends {
        option(end, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
        option(end, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1);
        option(end, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1);
    }
    let mut round = 0;
    while !done.load(Ordering::Relaxed) {
        connection.ping_pong([1, 100, 5000, 60_000][round % 4], 3);
        thread::sleep(Duration::from_millis([5, 250, 1500][round % 3]));
        round += 1;
    }
}

/// New connections with little to say.
fn short_ones(hosts: &Hosts, family: usize, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        Connection::open(hosts, family).transfer(A, 20_000);
        Connection::open(hosts, family).ping_pong(3000, 2);
    }
}

fn seen(instances: &[Instance; 2]) -> u64 {
    instances
        .iter()
        .map(|instance| counter(instance, "packets"))
        .sum()
}

#[test]
fn nobody_who_follows_the_standards_is_policed() {
    let target = std::env::var(PACKETS).map_or(PACKETS_SHORT, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{PACKETS}: no number: {text}"))
    });
    let (hosts, _relay) = build();
    let mut instances = [A, B].map(|side| hosts.enforce(side, &policy(0)));
    let done = AtomicBool::new(false);
    let grown = thread::scope(|scope| {
        for family in [0, 1] {
            for work in [bulk, bulk, slow_reader, quiet, short_ones] {
                let (hosts, done) = (&hosts, &done);
                scope.spawn(move || work(hosts, family, done));
            }
        }
        // Whatever happens here, the others must hear of the end.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            change_policies(&hosts, &mut instances, target)
        }));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    eprintln!("{} packets; {grown:?}", seen(&instances));
    for instance in &instances {
        let counters = instance.counters().expect("the kernel tells");
        eprintln!(
            "{:?}",
            counters.iter().filter(|(_, n)| **n > 0).collect::<Vec<_>>()
        );
        nobody_is_dropped(instance, "the last");
        for none in ["edit_failed", "malformed", "malformed_option"] {
            assert_eq!(counters[none], 0, "{none}");
        }
    }
    for side in [A, B] {
        assert_eq!(hosts.tcp_counter(side, "InCsumErrors"), 0);
    }
}

/// Each packet that policing drops is one of a stack that follows the standards.
fn nobody_is_dropped(instance: &Instance, rule: &str) {
    let dropped = counter(instance, "policed") + counter(instance, "repeated");
    if dropped > 0 {
        let mut flows = instance.raw_flows().expect("the kernel tells");
        flows.retain(|(_, flow)| flow.policed > 0);
        panic!("{dropped} dropped under the rule {rule}: {flows:#?}");
    }
}

/// Prints what both kernels and both agents know of connections, and ends the test.
fn report_stall(hosts: &Hosts, instances: &[Instance; 2]) -> ! {
    for side in [A, B] {
        eprintln!("tenant {side}:");
        hosts.within(TENANTS[side], || {
            let shown = Command::new("ss").args(["-tinoemO"]).output();
            let shown = shown.expect("ss of iproute2 runs");
            eprintln!("{}", String::from_utf8_lossy(&shown.stdout));
        });
        for (key, flow) in instances[side].raw_flows().expect("the kernel tells") {
            eprintln!("{key:?} {flow:?}");
        }
    }
    panic!("a connection stalls");
}

/// Until enough packets have passed, every adversity was there and every policy had its turn. Ends
/// at the first drop.
fn change_policies(
    hosts: &Hosts,
    instances: &mut [Instance; 2],
    target: u64,
) -> BTreeMap<&'static str, u64> {
    for turn in 1.. {
        thread::sleep(Duration::from_millis(150));
        if STALLED.load(Ordering::Relaxed) {
            report_stall(hosts, instances);
        }
        for instance in instances.iter_mut() {
            instance
                .reload(&policy(turn))
                .expect("a policy replaces another");
            nobody_is_dropped(instance, RULES[(turn - 1) % RULES.len()]);
        }
        let both = [A, B].map(|side| netstat(hosts, side));
        let grown: BTreeMap<_, _> = ADVERSITIES
            .into_iter()
            .map(|name| (name, both[A][name] + both[B][name]))
            .collect();
        if seen(instances) >= target && turn >= RULES.len() && grown.values().all(|n| *n > 0) {
            return grown;
        }
    }
    unreachable!("the loop has no end of its own")
}
