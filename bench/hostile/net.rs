//! Two hosts with four tenants each, and a bottleneck between them.
//!
//! ```text
//! [s1] TAP     t1 = TAP                                   t1 = TAP     TAP [r1]
//! [s2] eth0 ─── t2 │                                       │ t2 ─── eth0 [r2]
//! [s3] eth0 ─── t3 ├─ [ha] up ── l0 [sw] l1 ── up [hb] ────┤ t3 ─── eth0 [r3]
//! [s4] eth0 ─── t4 │                                       │ t4 ─── eth0 [r4]
//! [s5] eth0 ─── t5 │          s5 and r5: the probe         │ t5 ─── eth0 [r5]
//!      TAP = x ────┘          x: a stranger whom nobody holds
//! ```
//!
//! The first pair is the hostile one: all that its tenants send and hear goes through this process.

use std::{fs, os::fd::AsFd, process::Command};

use anyhow::{Context, Result, ensure};
use sluicegate_agent::{
    interfaces,
    netns::{self, NetNs},
};
use sluicegate_core::aqm::Aqm;
use sluicegate_labkit::{
    bridges,
    port::{PortConfig, SwitchPorts},
};

use crate::{frame::End, tap::Tap};

/// Pairs that load the bottleneck; the first is hostile.
pub const PAIRS: usize = 4;
/// The pair behind them, which says little and listens.
pub const PROBE: usize = 5;
pub const MTU: usize = 1500;

const MARK_ABOVE_BYTES: u32 = 30_000;
const QUEUE_BYTES: u32 = 400_000;
/// The burst of a token bucket, for timers that fire late, in parts of a second.
const BURST: u64 = 10_000;
/// Namespaces of this benchmark, of any run.
const PREFIX: &str = "sgh-";

/// Which end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Sender,
    Receiver,
}

impl Side {
    pub fn host(self) -> &'static str {
        match self {
            Self::Sender => "ha",
            Self::Receiver => "hb",
        }
    }

    /// Name of the tenant's namespace.
    pub fn tenant(self, pair: usize) -> String {
        match self {
            Self::Sender => format!("s{pair}"),
            Self::Receiver => format!("r{pair}"),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Sender => 1,
            Self::Receiver => 2,
        }
    }

    pub fn address(self, pair: usize) -> [u8; 4] {
        [10, 9, self.number(), pair as u8]
    }

    pub fn address6(self, pair: usize) -> String {
        format!("fd09::{}:{pair}", self.number())
    }

    pub fn mac(self, pair: usize) -> [u8; 6] {
        [2, 0, 0, 0, self.number(), pair as u8]
    }

    pub fn end(self, pair: usize, port: u16) -> End {
        End {
            mac: self.mac(pair),
            address: self.address(pair),
            port,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

const SIDES: [Side; 2] = [Side::Sender, Side::Receiver];

/// Frames in and out of the first pair's tenants.
pub struct Wires {
    /// The interface in the tenant's namespace.
    pub tenant: Tap,
    /// The host's.
    pub host: Tap,
}

/// The network; gone when dropped.
pub struct Net {
    prefix: String,
    pub sender: Wires,
    pub receiver: Wires,
    /// A tenant on the senders' host without a stack.
    pub stranger: Tap,
    /// Marks as long as it is here.
    _ports: SwitchPorts,
}

impl Net {
    /// Builds it. Needs root.
    pub fn build(number: usize, rate_bps: u64) -> Result<Self> {
        let names = Names(format!("{PREFIX}{}-{number}", std::process::id()));
        for part in parts() {
            ip(&format!("netns add {}", names.of(&part)))?;
            names.within(&part, || set_sysctls(part == "sw"))?;
        }
        for host in ["ha", "hb"] {
            names.ip(host, "link add bridge type bridge")?;
            names.ip(host, "link set bridge up")?;
        }
        let ports = names.switch(rate_bps)?;
        for pair in 2..=PROBE {
            for side in SIDES {
                names.cable(side, pair)?;
            }
        }
        let sender = names.wires(Side::Sender)?;
        let receiver = names.wires(Side::Receiver)?;
        let stranger = names.within("ha", || Tap::open("x"))?;
        names.ip("ha", "link set x master bridge up")?;
        for part in ["ha", "hb", "sw"] {
            bridges::until_forwarding(Some(&names.of(part)))?;
        }
        Ok(Self {
            prefix: names.keep(),
            sender,
            receiver,
            stranger,
            _ports: ports,
        })
    }

    /// Runs `work` in a namespace.
    pub fn within<T: Send>(
        &self,
        part: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        within(&format!("{}-{part}", self.prefix), work)
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, part: &str, arguments: &str) -> Result<()> {
        ip(&format!("-n {}-{part} {arguments}", self.prefix))
    }

    /// Sets a kernel parameter of a namespace.
    pub fn sysctl(&self, part: &str, name: &str, value: &str) -> Result<()> {
        self.within(part, || sysctl(name, value))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        remove(&self.prefix);
    }
}

/// Removes what runs left that are no more.
pub fn remove_stale() {
    let Ok(list) = fs::read_dir("/run/netns") else {
        return;
    };
    for entry in list.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(true)) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn remove(prefix: &str) {
    for part in parts() {
        let _ = ip(&format!("netns del {prefix}-{part}"));
    }
}

fn parts() -> Vec<String> {
    let mut parts: Vec<String> = ["ha", "hb", "sw"].map(String::from).into();
    for side in SIDES {
        parts.extend((1..=PROBE).map(|pair| side.tenant(pair)));
    }
    parts
}

/// Namespaces while the network is being built; they go when that fails.
struct Names(String);

impl Names {
    fn of(&self, part: &str) -> String {
        format!("{}-{part}", self.0)
    }

    fn keep(mut self) -> String {
        std::mem::take(&mut self.0)
    }

    fn within<T: Send>(&self, part: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        within(&self.of(part), work)
    }

    fn ip(&self, part: &str, arguments: &str) -> Result<()> {
        ip(&format!("-n {} {arguments}", self.of(part)))
    }

    /// The switch between the hosts, with a marking port each way.
    fn switch(&self, rate_bps: u64) -> Result<SwitchPorts> {
        self.ip("sw", "link add bridge type bridge")?;
        self.ip("sw", "link set bridge up")?;
        let burst = (rate_bps / 8 / BURST).max(2 * (MTU as u64 + 14));
        for (host, port) in [("ha", "l0"), ("hb", "l1")] {
            let netns = self.of(host);
            self.ip(
                "sw",
                &format!("link add {port} type veth peer name up netns {netns}"),
            )?;
            self.ip("sw", &format!("link set {port} master bridge up"))?;
            self.ip(host, "link set dev up master bridge up")?;
            let bucket = format!("tbf rate {rate_bps}bit burst {burst}b limit {QUEUE_BYTES}b");
            let netns = self.of("sw");
            run(
                "tc",
                &format!("-n {netns} qdisc add dev {port} root {bucket}"),
            )?;
        }
        let config = PortConfig {
            aqm: Aqm::Threshold {
                k_bytes: MARK_ABOVE_BYTES,
                drop_not_ect: false,
            },
            rate_bps,
            frame_bytes: MTU as u32 + 14,
        };
        self.within("sw", || {
            let mut ports = SwitchPorts::load()?;
            for port in ["l0", "l1"] {
                ports.attach(interfaces::find(port)?.index, &config)?;
            }
            Ok(ports)
        })
    }

    /// A tenant of the kernel at a cable.
    fn cable(&self, side: Side, pair: usize) -> Result<()> {
        let netns = self.of(&side.tenant(pair));
        self.ip(
            side.host(),
            &format!("link add t{pair} type veth peer name eth0 netns {netns}"),
        )?;
        self.ip(side.host(), &format!("link set t{pair} master bridge up"))?;
        run(
            "ip",
            &format!("netns exec {netns} ethtool -K eth0 tso off gso off gro off"),
        )?;
        self.address(side, pair)
    }

    /// A tenant of the kernel whose frames are ours to carry.
    fn wires(&self, side: Side) -> Result<Wires> {
        let tenant = self.within(&side.tenant(1), || Tap::open("eth0"))?;
        let host = self.within(side.host(), || Tap::open("t1"))?;
        self.ip(side.host(), "link set t1 master bridge up")?;
        self.address(side, 1)?;
        Ok(Wires { tenant, host })
    }

    /// Addresses, and the other end of the pair as a neighbour: nobody has to ask.
    fn address(&self, side: Side, pair: usize) -> Result<()> {
        let part = side.tenant(pair);
        let [address, peer] =
            [side, side.other()].map(|side| std::net::Ipv4Addr::from(side.address(pair)));
        let [address6, peer6] = [side, side.other()].map(|side| side.address6(pair));
        let [mac, far] = [side, side.other()].map(|side| colons(side.mac(pair)));
        for command in [
            format!("link set eth0 address {mac}"),
            format!("addr add {address}/16 dev eth0"),
            format!("addr add {address6}/64 dev eth0 nodad"),
            "link set eth0 up".to_owned(),
            format!("neigh add {peer} lladdr {far} dev eth0 nud permanent"),
            format!("neigh add {peer6} lladdr {far} dev eth0 nud permanent"),
        ] {
            self.ip(&part, &command)?;
        }
        Ok(())
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            remove(&self.0);
        }
    }
}

/// Before any interface exists: the switch's packets have a CPU of their own, and all others share
/// one. Steered by flow, flows of different CPUs would meet the marking port's queue at different
/// phases, and have different shares.
fn set_sysctls(is_switch: bool) -> Result<()> {
    let alone = std::thread::available_parallelism()?.get() == 1;
    let mask = if is_switch && !alone { "2" } else { "1" };
    sysctl("net/core/rps_default_mask", mask)?;
    for (name, value) in [
        ("net/ipv4/tcp_no_metrics_save", "1"),
        ("net/ipv6/conf/default/accept_ra", "0"),
        ("net/ipv6/conf/default/router_solicitations", "0"),
    ] {
        sysctl(name, value)?;
    }
    Ok(())
}

fn sysctl(name: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/{name}"), value).with_context(|| format!("{name} = {value}"))
}

fn within<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let netns = NetNs::named(name)?;
    netns::within(netns.as_fd(), work)
}

fn colons(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn ip(arguments: &str) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &str) -> Result<()> {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .with_context(|| format!("{program} is missing"))?;
    ensure!(
        output.status.success(),
        "{program} {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
