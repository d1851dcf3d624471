//! Builds a variant's network out of namespaces, veth pairs, bridges and token buckets.
//!
//! ```text
//!   tenant ns      host ns                switches' ns (one bridge per switch)
//!   eth0 ─────── t0 ─ br ─ l0a ─────── l0b ─ sw0 ─ l1a ─────── l1b ─ br ─ t1 ─────── eth0
//!                │                      │           │
//!            enforcement          ecn_switch + token bucket at each switch's transmit side
//! ```
//!
//! A tenant alone on its host sends through a token bucket of its own at the link's rate (in its
//! namespace, where its sockets feel the queue as they feel an adapter's); a shared uplink has one
//! in the host instead.
//!
//! Layer 2 all the way: forwarding tables and neighbours are static, nothing floods, learns or
//! resolves.

pub(crate) mod counters;
pub mod layout;
pub mod names;
pub(crate) mod offloads;
pub(crate) mod paths;
mod steering;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use sluicegate_agent::{interfaces, netns::NetNs};
use sluicegate_labkit::bridges;
use sluicegate_scenario::experiment::Variant;

use crate::journal::{Entry, Journal};
use layout::{Batch, Layout};
use names::Names;

/// Packets per CPU that may wait between two namespaces; the default of 1000 is a drop point that
/// the scenario knows nothing of.
const BACKLOG_PACKETS: u32 = 100_000;

/// A network that exists. Its end is the journal's business.
#[derive(Debug)]
pub struct Network {
    /// Names of the namespaces.
    pub names: Names,
    /// The layout that was built.
    pub layout: Layout,
}

impl Network {
    /// Builds the network of a variant.
    ///
    /// # Errors
    /// A variant that the lab cannot lay out; a refusal of the kernel or of iproute2, with the
    /// command.
    pub fn build(variant: &Variant, names: Names, journal: &mut Journal) -> Result<Self> {
        let layout = Layout::new(variant, &names)?;
        let backlog = Path::new("/proc/sys/net/core/netdev_max_backlog");
        journal.set_sysctl(backlog, &BACKLOG_PACKETS.to_string())?;
        add_namespaces(&layout, variant, journal)?;
        batch("ip", None, &layout.links)?;
        for (netns, commands) in &layout.inside {
            configure(netns, commands, variant.lab.offloads)?;
        }
        Ok(Self { names, layout })
    }

    /// Waits until the ports of all bridges forward; frames before would be dropped.
    ///
    /// # Errors
    /// See [`bridges::until_forwarding`].
    pub fn until_forwarding(&self) -> Result<()> {
        let inside = self.layout.inside.iter();
        let mut bridged = inside.filter(|(_, commands)| commands.ip.contains("type bridge"));
        bridged.try_for_each(|(netns, _)| bridges::until_forwarding(Some(netns)))
    }

    /// Runs `work` on a thread inside a namespace of this network.
    ///
    /// # Errors
    /// The namespace is gone, or `work` fails.
    pub fn within<T: Send>(netns: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let netns = NetNs::named(netns)?;
        sluicegate_agent::netns::within(std::os::fd::AsFd::as_fd(&netns), work)
    }
}

fn add_namespaces(layout: &Layout, variant: &Variant, journal: &mut Journal) -> Result<()> {
    let mut commands = String::new();
    for (name, _) in &layout.namespaces {
        journal.add(&Entry::Netns { name: name.clone() })?;
        commands.push_str(&format!("netns add {name}\n"));
    }
    batch("ip", None, &commands)?;
    for (name, station) in &layout.namespaces {
        let tenant = variant.ip_version == 6 && !layout.inside[name].ip.contains("type bridge");
        let mask = steering::mask(*station, variant.lab.steering)?;
        Network::within(name, || set_sysctls(mask, tenant))
            .with_context(|| format!("namespace {name}"))?;
    }
    Ok(())
}

/// Before any interface exists: IPv6 only where it is used and silent there, every receive queue
/// steered to these CPUs, no netfilter on bridges.
fn set_sysctls(cpus: String, ipv6: bool) -> Result<()> {
    let off = if ipv6 { "0" } else { "1" };
    let mut list = vec![
        ("net/core/rps_default_mask", cpus),
        ("net/ipv6/conf/all/disable_ipv6", off.into()),
        ("net/ipv6/conf/default/disable_ipv6", off.into()),
        ("net/ipv6/conf/default/accept_dad", "0".into()),
        ("net/ipv6/conf/default/accept_ra", "0".into()),
        ("net/ipv6/conf/default/router_solicitations", "0".into()),
        ("net/ipv6/conf/default/addr_gen_mode", "1".into()),
    ];
    for name in [
        "net/bridge/bridge-nf-call-iptables",
        "net/bridge/bridge-nf-call-ip6tables",
        "net/bridge/bridge-nf-call-arptables",
    ] {
        list.push((name, "0".into()));
    }
    for (name, value) in list {
        let path = Path::new("/proc/sys").join(name);
        // Without the file the kernel has no IPv6 or br_netfilter, and there is nothing to turn
        // off.
        if path.exists() {
            fs::write(&path, &value)
                .with_context(|| format!("{}: cannot be set to {value}", path.display()))?;
        }
    }
    Ok(())
}

fn configure(netns: &str, commands: &Batch, offloads: bool) -> Result<()> {
    batch("ip", Some(netns), &commands.ip)?;
    batch("bridge", Some(netns), &commands.bridge)?;
    if !offloads {
        Network::within(netns, disable_segmentation)
            .with_context(|| format!("namespace {netns}"))?;
    }
    batch("tc", Some(netns), &commands.tc)
}

fn disable_segmentation() -> Result<()> {
    for interface in interfaces::list()? {
        if interface.kind == "veth" || interface.kind == "tun" {
            offloads::disable_segmentation(&interface.name)?;
        }
    }
    Ok(())
}

/// Feeds commands to `tool -batch -`, in a namespace or outside.
fn batch(tool: &str, netns: Option<&str>, commands: &str) -> Result<()> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(tool);
    if let Some(netns) = netns {
        command.args(["-n", netns]);
    }
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{tool}: cannot be run (Debian: apt-get install iproute2)"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A failure to write shows in what the tool says about its early end.
        let _ = stdin.write_all(commands.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{tool} -batch in {}: {}{}",
            netns.unwrap_or("the lab's own namespace"),
            String::from_utf8_lossy(&output.stderr).trim(),
            blamed(commands, &String::from_utf8_lossy(&output.stderr))
        );
    }
    Ok(())
}

/// The command that iproute2 blames as `Command failed -:LINE`.
fn blamed(commands: &str, message: &str) -> String {
    message
        .split("Command failed -:")
        .nth(1)
        .and_then(|rest| rest.trim().parse::<usize>().ok())
        .and_then(|number| commands.lines().nth(number.checked_sub(1)?))
        .map_or_else(String::new, |line| format!(" ({line})"))
}
