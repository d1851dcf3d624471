//! What the lab needs of this machine, checked before anything is touched.

#![allow(unsafe_code)] // unshare: a namespace for a moment

use std::{
    fs,
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sluicegate_agent::interfaces;
use sluicegate_core::aqm::Aqm;
use sluicegate_labkit::port::{PortConfig, SwitchPorts};
use sluicegate_scenario::experiment::{Experiment, TcpOptions, TenantKind, Variant};

use crate::{
    guest, limits,
    net::{layout::Layout, names::Names},
};

/// The first kernel with all that the programs need.
const KERNEL_MIN: (u32, u32) = (6, 12);

/// Says everything that keeps this experiment from running here.
///
/// # Errors
/// One line for each thing missing, with the way to get it.
pub fn check(experiment: &Experiment) -> Result<()> {
    let mut missing: Vec<String> = Vec::new();
    let mut need = |found: Result<()>| {
        if let Err(error) = found {
            missing.push(format!("{error:#}"));
        }
    };
    need(nothing_to_inspect(experiment));
    need(root());
    need(kernel());
    for tool in ["ip", "tc", "bridge"] {
        need(tool_runs(tool));
    }
    if rustix::process::geteuid().is_root() {
        need(programs());
    }
    let tenants = experiment
        .variants
        .iter()
        .flat_map(|variant| &variant.tenants);
    if tenants
        .clone()
        .any(|tenant| tenant.kind == TenantKind::Guest)
    {
        need(guest::check());
    }
    for variant in &experiment.variants {
        let limits = limits::of(variant);
        // What is asked for is not laid out where it cannot be had.
        need(if limits.is_empty() {
            variant_fits(variant)
        } else {
            Err(anyhow!("{}", limits.join("\n  ")))
        });
    }
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{}: the lab cannot run this here:\n  {}",
        experiment.file,
        missing.join("\n  ")
    )
}

fn nothing_to_inspect(experiment: &Experiment) -> Result<()> {
    if !experiment.inspect.is_nothing() {
        bail!(
            "captures, traces and films are the simulator's: leave out --pcap, --trace and --film, and run tcpdump in the \
             namespaces that `ip netns` lists"
        );
    }
    Ok(())
}

fn root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("it needs root for network namespaces and BPF: run it with sudo, or as root");
    }
    Ok(())
}

fn kernel() -> Result<()> {
    let release = release()?;
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = KERNEL_MIN;
    if version < KERNEL_MIN {
        bail!(
            "it needs Linux {major}.{minor} or newer, this is {release}: boot a newer kernel (Debian 12: bookworm-backports)"
        );
    }
    for (path, option) in [
        ("/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"),
        (
            "/proc/sys/net/core/rps_default_mask",
            "CONFIG_RPS and CONFIG_SYSCTL",
        ),
    ] {
        if !Path::new(path).exists() {
            bail!("{path} is missing: the kernel must be built with {option}");
        }
    }
    Ok(())
}

/// Release of the running kernel.
///
/// # Errors
/// /proc is not mounted.
pub fn release() -> Result<String> {
    let path = "/proc/sys/kernel/osrelease";
    Ok(fs::read_to_string(path)
        .with_context(|| format!("{path}: cannot be read"))?
        .trim()
        .to_owned())
}

fn tool_runs(tool: &str) -> Result<()> {
    Command::new(tool)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("{tool}: cannot be run (Debian: apt-get install iproute2)"))?;
    Ok(())
}

/// Attaching to the loopback of a namespace of its own is the one proof that namespaces, BPF and TCX are
/// there and allowed.
fn programs() -> Result<()> {
    let attach = || {
        // SAFETY: a new network namespace for this thread alone; no descriptor becomes invalid.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .context("a network namespace cannot be made (CONFIG_NET_NS, CAP_SYS_ADMIN)")?;
        let loopback = interfaces::find("lo")?;
        let port = PortConfig {
            aqm: Aqm::None,
            rate_bps: 1_000_000,
            frame_bytes: 1514,
        };
        SwitchPorts::load()
            .and_then(|mut ports| ports.attach(loopback.index, &port))
            .context("the kernel refuses BPF programs at TCX; `sluicegate doctor` says more")?;
        Ok(())
    };
    thread::spawn(attach)
        .join()
        .map_err(|_| anyhow!("the check of BPF and TCX panicked"))?
}

fn variant_fits(variant: &Variant) -> Result<()> {
    Layout::new(variant, &Names::new())?;
    for tenant in &variant.tenants {
        if tenant.tcp != TcpOptions::default() {
            bail!(
                "variant {}: tenant {}: the lab's tenants run their kernel's TCP as it is; leave out profile, \
                 recovery, rto_initial, rto_min, rto_slop, delayed_ack, connection_cache, pacing and offload_segments \
                 ([lab] offloads = true has the kernel's), or simulate it (--world sim)",
                variant.name,
                tenant.name
            );
        }
        let version = match tenant.address {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 6,
        };
        if version != variant.ip_version {
            bail!(
                "variant {}: tenant {} has an IPv{version} address, the variant is IPv{}",
                variant.name,
                tenant.name,
                variant.ip_version
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sluicegate_scenario::file::{self, Options};

    use super::*;

    #[test]
    fn a_stack_that_this_kernel_is_not_is_refused() {
        let fits = |key: &str| {
            let text = format!(
                "[network]\ntopology = 'dumbbell'\n[tenant.r1]\n{key}\n[traffic.b]\nkind = 'bulk'\n"
            );
            let experiment =
                file::parse(Path::new("t.toml"), &text, &Options::default()).expect("is good");
            variant_fits(&experiment.variants[0])
        };
        assert!(fits("profile = 'linux'").is_ok());
        for key in [
            "profile = 'freebsd9'",
            "recovery = 'sack'",
            "rto_min = '10ms'",
            "delayed_ack = '1ms'",
            "pacing = true",
            "offload_segments = 8",
        ] {
            let refusal = format!("{:#}", fits(key).expect_err(key));
            assert!(
                refusal.contains("tenant r1") && refusal.contains("--world sim"),
                "{refusal}"
            );
        }
    }
}
