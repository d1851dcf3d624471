//! Two hosts with a tenant each, and a look at every wire.
//!
//! ```text
//! [ta] eth0 ── t ┐ bridge ┌ up ──── up ┐ bridge ┌ t ── eth0 [tb]
//!                └─ [ha] ─┘            └─ [hb] ─┘
//! ```
//!
//! All links are veth, so checksums stay partial wherever stacks leave them so.

#![allow(dead_code, unsafe_code)]

pub mod capture;
pub mod guest;
pub mod relay;
pub mod socket;

use std::{
    fs,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use sluicegate_agent::{
    Instance, Options,
    netns::{self, NetNs},
};
use sluicegate_core::abi::Flow;
use sluicegate_policy::Policy;

use crate::common::until_bridges_forward;

/// Addresses of the tenants, by family.
pub const ADDRESSES: [[&str; 2]; 2] = [["10.77.0.1", "10.77.0.2"], ["fd77::1", "fd77::2"]];

/// Which of two: host, tenant, address.
pub const A: usize = 0;
pub const B: usize = 1;

/// The two hosts; gone when dropped.
pub struct Hosts {
    prefix: String,
}

impl Hosts {
    /// Builds them. Needs root.
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hosts = Self {
            prefix: format!("sgv-{}-{number}", std::process::id()),
        };
        for part in ["ha", "hb", "ta", "tb"] {
            run("ip", &["netns", "add", &hosts.name(part)]);
            hosts.ip(part, "link set lo up");
        }
        for side in [A, B] {
            hosts.build(side);
        }
        let far = hosts.name("hb");
        hosts.ip(
            "ha",
            &format!("link add name up type veth peer name up netns {far}"),
        );
        for part in ["ha", "hb"] {
            hosts.ip(part, "link set dev up master bridge up");
        }
        for part in HOSTS {
            until_bridges_forward(&hosts.name(part));
        }
        hosts
    }

    fn build(&self, side: usize) {
        let (host, tenant) = (HOSTS[side], TENANTS[side]);
        self.ip(host, "link add name bridge type bridge");
        self.ip(host, "link set bridge up");
        let inner = self.name(tenant);
        self.ip(
            host,
            &format!("link add name t type veth peer name eth0 netns {inner}"),
        );
        self.ip(host, "link set dev t master bridge up");
        for (addresses, length) in ADDRESSES.iter().zip(["24", "64 nodad"]) {
            let address = addresses[side];
            self.ip(tenant, &format!("addr add {address}/{length} dev eth0"));
        }
        self.ip(tenant, "link set eth0 up");
    }

    pub fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    /// Runs `ip` inside a namespace; `arguments` are separated by spaces.
    pub fn ip(&self, part: &str, arguments: &str) {
        let name = self.name(part);
        let arguments: Vec<&str> = arguments.split(' ').collect();
        run("ip", &[&["-n", &name][..], &arguments].concat());
    }

    /// Runs `work` inside a namespace.
    pub fn within<T: Send>(&self, part: &str, work: impl FnOnce() -> T + Send) -> T {
        let netns = NetNs::named(&self.name(part)).expect("the namespace exists");
        netns::within(netns.as_fd(), || Ok(work())).expect("the namespace can be entered")
    }

    /// Programs on the host side of a tenant's interface.
    pub fn enforce(&self, side: usize, policy: &Policy) -> Instance {
        self.enforce_with(side, policy, &Options::default())
    }

    pub fn enforce_with(&self, side: usize, policy: &Policy, options: &Options) -> Instance {
        self.within(HOSTS[side], || {
            let mut instance = Instance::load(policy, options).expect("the programs load");
            instance.attach("t").expect("they attach");
            instance
        })
    }

    /// Tenants sum their segments themselves, so that no checksum is partial.
    pub fn without_checksum_offload(&self) {
        for tenant in TENANTS {
            self.within(tenant, || run("ethtool", &["-K", "eth0", "tx", "off"]));
        }
    }

    /// The link from host a to host b has `rate` and drops what exceeds a queue of `limit` bytes.
    pub fn narrow(&self, rate: &str, limit: u32) {
        let limit = limit.to_string();
        self.within("ha", || {
            let shaped = [
                "qdisc", "add", "dev", "up", "root", "tbf", "rate", rate, "burst", "20kb",
            ];
            run("tc", &[&shaped[..], &["limit", &limit]].concat());
        });
    }

    /// A counter of a tenant's TCP, as in /proc/net/snmp.
    pub fn tcp_counter(&self, tenant: usize, name: &str) -> u64 {
        let text = self.within(TENANTS[tenant], || {
            fs::read_to_string("/proc/thread-self/net/snmp").expect("/proc is mounted")
        });
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut pairs = names.split(' ').zip(values.split(' '));
        let (_, value) = pairs.find(|(key, _)| *key == name).expect("the counter");
        value.parse().unwrap()
    }
}

/// One rule that enforces everything between hosts that trust each other.
pub fn policy() -> Policy {
    let text = r#"
        trusted = ["10.0.0.0/8", "fd00::/8"]
        [[rule]]
        algorithm = "dctcp"
        one_sided = "cubic"
        mode = "enforce"
        rto_min = "10ms"
    "#;
    Policy::parse("test.toml", text).expect("the test's policy is valid")
}

const HOSTS: [&str; 2] = ["ha", "hb"];
pub const TENANTS: [&str; 2] = ["ta", "tb"];

impl Drop for Hosts {
    fn drop(&mut self) {
        for part in ["ha", "hb", "ta", "tb"] {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.name(part)])
                .status();
        }
    }
}

/// Runs a command, which must succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}: is it installed?"));
    assert!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The only flow that an instance knows to be more than a handshake.
pub fn only_flow(instance: &Instance) -> Flow {
    let flows = instance.raw_flows().expect("the kernel tells");
    assert_eq!(flows.len(), 1, "{flows:#?}");
    flows[0].1
}

pub fn counter(instance: &Instance, name: &str) -> u64 {
    instance.counters().expect("the kernel tells")[name]
}
