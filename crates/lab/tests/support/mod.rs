//! A tiny world for tests: two network namespaces over a veth.

#![allow(dead_code)] // each of its programs uses its part

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use sluicegate_lab::tenant::{Plan, Report, TenantProcess, unix_ns};
use sluicegate_scenario::experiment::{
    EcnOffer, Host, HostId, LabOptions, SimOptions, TcpOptions, Tenant, TenantKind, Traffic,
    TrafficKind, Variant,
};

/// Longest time that anything in these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces, `10.9.0.1` and `10.9.0.2`, removed on drop.
pub struct TwoNamespaces {
    names: [String; 2],
    files: [File; 2],
}

impl TwoNamespaces {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("sgt-{}-{number}{end}", std::process::id()));
        for name in &names {
            ip(&["netns", "add", name]);
        }
        let [a, b] = &names;
        ip(&[
            "link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b,
        ]);
        for (name, address) in names.iter().zip(["10.9.0.1/24", "10.9.0.2/24"]) {
            ip(&["-n", name, "address", "add", address, "dev", "eth0"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
            ip(&["-n", name, "link", "set", "eth0", "up"]);
        }
        let files =
            [0, 1].map(|end| File::open(format!("/run/netns/{}", names[end])).expect("namespace"));
        Self { names, files }
    }

    /// Namespace 0 or 1.
    pub fn fd(&self, end: usize) -> BorrowedFd<'_> {
        self.files[end].as_fd()
    }

    /// Name of namespace 0 or 1.
    pub fn name(&self, end: usize) -> &str {
        &self.names[end]
    }
}

impl Drop for TwoNamespaces {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "delete", name]);
        }
    }
}

pub fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().expect("ip");
    assert!(status.success(), "ip {arguments:?}");
}

/// Two tenants, `a` at 10.9.0.1 and `b` at 10.9.0.2, and this traffic.
pub fn variant(congestion_control: &str, traffic: Vec<Traffic>) -> Variant {
    let tenant = |name: &str, host, address: &str| Tenant {
        name: name.into(),
        host: HostId(host),
        address: address.parse().expect("address"),
        congestion_control: congestion_control.into(),
        ecn: EcnOffer::None,
        kind: TenantKind::Namespace,
        receive_buffer_bytes: None,
        tcp: TcpOptions::default(),
        read_rate_bps: None,
        ignore_window: false,
    };
    Variant {
        name: "test".into(),
        title: "test".into(),
        warmup: Duration::from_millis(200),
        duration: Duration::from_millis(600),
        ip_version: 4,
        mtu_bytes: 1500,
        is_crossbar: false,
        hosts: ["left", "right"]
            .map(|name| Host { name: name.into() })
            .into(),
        tenants: vec![tenant("a", 0, "10.9.0.1"), tenant("b", 1, "10.9.0.2")],
        switches: Vec::new(),
        links: Vec::new(),
        routing: Default::default(),
        routings: Vec::new(),
        reroute_delay: None,
        host_switch: None,
        shared_memory: None,
        cee: None,
        vnic_queue_bytes: None,
        traffic,
        enforcement: None,
        events: Vec::new(),
        intervals: Vec::new(),
        lab: LabOptions::default(),
        sim: SimOptions::default(),
        places: Default::default(),
    }
}

pub fn traffic(kind: TrafficKind, pairs: &[(usize, usize)], port: u16) -> Traffic {
    Traffic {
        name: "test".into(),
        kind,
        pairs: pairs.to_vec(),
        start: Duration::ZERO,
        stop: None,
        port,
        shares_ports: false,
        deadline: None,
        priority: 0,
        routing: None,
        hotspot: None,
    }
}

/// Starts everybody together and gathers reports.
pub fn run_all(mut tenants: Vec<TenantProcess>) -> Vec<Report> {
    for tenant in &mut tenants {
        tenant.wait_ready(PATIENCE).expect("ready");
    }
    let start_unix_ns = unix_ns() + 100_000_000;
    for tenant in &mut tenants {
        tenant.set_start(start_unix_ns).expect("start");
    }
    tenants
        .iter_mut()
        .map(|tenant| tenant.wait_report(PATIENCE).expect("report"))
        .collect()
}

/// Asks for payload verification everywhere.
pub fn verified(mut plans: Vec<Plan>) -> Vec<Plan> {
    plans.iter_mut().for_each(|plan| plan.verify = true);
    plans
}
