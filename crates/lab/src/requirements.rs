//! The lab's requirements of this machine, checked before anything is touched.

#![allow(unsafe_code)] // unshare: a namespace for a moment

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use sluicegate_agent::interfaces;
use sluicegate_core::aqm::Aqm;
use sluicegate_labkit::{
    ovs::{self, Datapath, Dpdk, OpenVswitch},
    port::{PortConfig, SwitchPorts},
};
use sluicegate_scenario::experiment::{Experiment, GuestKernel, LabSwitch, Tenant, TenantKind};

use crate::guest;

/// The first kernel with all that the programs need.
const KERNEL_MIN: (u32, u32) = (6, 12);

/// Says everything that this machine lacks for an experiment within the lab's limits.
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
    need(root());
    need(kernel());
    for tool in ["ip", "tc", "bridge"] {
        need(tool_runs(tool));
    }
    if rustix::process::geteuid().is_root() {
        need(programs());
    }
    let is_guest = |tenant: &Tenant| tenant.kind == TenantKind::Guest;
    let variants = experiment.variants.iter();
    let with_guests = variants.filter(|variant| variant.tenants.iter().any(is_guest));
    let kernels: Vec<_> = with_guests
        .map(|variant| variant.lab.guest_kernel)
        .collect();
    for (_, kernel) in GuestKernel::NAMED {
        if kernels.contains(&kernel) {
            need(guest::check(kernel));
        }
    }
    for (switch, datapath) in [
        (LabSwitch::Ovs, Datapath::Sockets),
        (LabSwitch::OvsDpdk, DPDK),
    ] {
        let mut variants = experiment.variants.iter();
        if variants.any(|variant| variant.lab.switch == switch) {
            need(open_vswitch(datapath));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{}: the lab cannot run this here:\n  {}",
        experiment.file,
        missing.join("\n  ")
    )
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

/// Attaching to the loopback of a namespace of its own is the one proof that namespaces, BPF and
/// TCX are there and allowed.
fn programs() -> Result<()> {
    apart("BPF and TCX", || {
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
    })
}

/// What a trial switch with DPDK has: a port takes none of it before a guest connects.
const DPDK: Datapath = Datapath::Dpdk(Dpdk {
    cpu: 0,
    memory_mb: 128,
    large_pages: false,
});

/// A switch that runs for a moment is the one proof that all its parts are there.
fn open_vswitch(datapath: Datapath) -> Result<()> {
    if let Some(advice) = ovs::missing() {
        bail!("{advice}");
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(()); // already said
    }
    apart("Open vSwitch", move || OpenVswitch::try_out(datapath))
}

/// Runs a check in a network namespace of its own.
fn apart(what: &str, check: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let in_namespace = move || {
        // SAFETY: a new network namespace for this thread alone; no descriptor becomes invalid.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .context("a network namespace cannot be made (CONFIG_NET_NS, CAP_SYS_ADMIN)")?;
        check()
    };
    let checked = thread::spawn(in_namespace).join();
    checked.map_err(|_| anyhow!("the check of {what} panicked"))?
}
