//! Tenants with a kernel of their own: User-Mode Linux guests.
//!
//! ```text
//!   lab ── pipes ──► keeper (host's network namespace, new PID namespace)
//!                      │  linux.uml as process 1 of that PID namespace: whatever kills it, or the keeper,
//!                      │  or the lab, makes the kernel kill all of the guest
//!                      │     guest's init: this executable again, from the host's root, read-only
//!                      └── job directory (hostfs): plan.json, ready, start, report.json, error
//! ```
//! A guest attaches to a TAP that exists in the host's namespace; UML opens it itself, no helper
//! program is needed. Or it connects to the socket of a switch (vhost-user). To the lab a guest is
//! a [`TenantProcess`] like any other.
//!
//! Needs Debian's package `user-mode-linux` (kernel and modules) and `iproute2`, or the kernel that
//! `scripts/guest-kernel.sh` builds, which has no modules.

mod init;
mod job;
mod keeper;
mod stamp;

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsRawFd, BorrowedFd},
    path::{Path, PathBuf},
};

use anyhow::bail;
use serde::{Deserialize, Serialize};
use sluicegate_scenario::experiment::{GuestKernel, Recovery};

use crate::tenant::{Plan, TenantProcess};

/// The guest's kernel, from Debian's package `user-mode-linux`.
pub const KERNEL: &str = "/usr/bin/linux.uml";

/// The patched kernel, which `scripts/guest-kernel.sh` builds; the link follows its last run.
pub const PATCHED: &str = "/var/cache/sluicegate/guest-kernel/linux";

/// Longer than a busy machine lets a reader wait. A socket that is not read for so long loses its
/// datagrams, and others get theirs.
const UDP_HOLD_MS: u32 = 5_000;

/// Hidden argument of a keeper; an [`Attachment`] as JSON follows.
const KEEPER: &str = "lab-guest-keeper";

/// Hidden argument of a guest's init; the job directory follows.
const INIT: &str = "lab-guest-init";

/// What a guest's interface is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// An existing TAP in the host's namespace. Its queue length is the room on the way to the
    /// guest.
    Tap(String),
    /// A switch that listens at this socket.
    VhostUser(PathBuf),
}

/// How a guest attaches to the network of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// What its interface is connected to.
    pub port: Port,
    /// MAC address of the guest's interface, `02:…`.
    pub mac: String,
    /// Lines for `ip -batch` inside the guest, whose interface is `eth0`: addresses, neighbours.
    pub commands: String,
    /// Segmentation offloads, and receive offload, of the guest's interface.
    pub offloads: bool,
    /// What it boots.
    pub kernel: Kernel,
}

/// The kernel of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its file.
    pub path: PathBuf,
    /// How long reception waits for room in a UDP socket, in ms; zero: such datagrams are dropped.
    pub udp_hold_ms: u32,
    /// Parameters that it has beside those of every guest: files below `/proc/sys`, and values.
    pub parameters: Vec<(String, String)>,
}

/// Without them nothing but SACK tells of losses, and a timeout of lost tails (RFC 6675).
const WITHOUT_RACK: [(&str, &str); 2] = [
    ("net/ipv4/tcp_recovery", "0"),
    ("net/ipv4/tcp_early_retrans", "0"),
];
const WITHOUT_SACK: (&str, &str) = ("net/ipv4/tcp_sack", "0");

impl Kernel {
    /// This kernel, whose TCP repairs losses so. `None` leaves it as it is: RACK-TLP (RFC 8985).
    pub fn with_recovery(mut self, recovery: Option<Recovery>) -> Self {
        let without: &[_] = match recovery {
            None | Some(Recovery::Rack) => &[],
            Some(Recovery::Sack) => &WITHOUT_RACK,
            Some(Recovery::NewReno) => &[WITHOUT_RACK[0], WITHOUT_RACK[1], WITHOUT_SACK],
        };
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.parameters.extend(without.iter().map(owned));
        self
    }
}

impl From<GuestKernel> for Kernel {
    fn from(kernel: GuestKernel) -> Self {
        let path = match kernel {
            GuestKernel::Packaged => KERNEL,
            GuestKernel::Patched | GuestKernel::Holding => PATCHED,
        };
        let holds = kernel == GuestKernel::Holding;
        Self {
            path: path.into(),
            udp_hold_ms: if holds { UDP_HOLD_MS } else { 0 },
            parameters: Vec::new(),
        }
    }
}

/// Says what is missing for guests on this machine, if anything.
///
/// # Errors
/// Names the missing file and the package that has it.
pub fn check(kernel: GuestKernel) -> anyhow::Result<()> {
    let install = "apt-get install user-mode-linux";
    let needed: &[_] = match kernel {
        GuestKernel::Packaged => &[
            (KERNEL, install),
            (init::MODULES, install),
            ("/dev/net/tun", "modprobe tun"),
        ],
        GuestKernel::Patched | GuestKernel::Holding => {
            &[(PATCHED, "scripts/guest-kernel.sh builds it")]
        }
    };
    for (file, advice) in needed {
        if !Path::new(file).exists() {
            bail!("guests need {file}, which is missing: {advice}");
        }
    }
    Ok(())
}

/// Boots a guest. Returns at once; [`TenantProcess::wait_ready`] waits for it.
///
/// # Errors
/// As [`crate::tenant::spawn`].
pub fn spawn(
    plan: &Plan,
    netns: BorrowedFd<'_>,
    attachment: &Attachment,
) -> anyhow::Result<TenantProcess> {
    let netns = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    let attachment = serde_json::to_string(attachment)?;
    TenantProcess::start(&[KEEPER.into(), netns.into(), attachment.into()], plan)
}

/// Runs a keeper or a guest's init if the arguments say so; then the process ends.
pub(crate) fn maybe_run(
    first: &OsStr,
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<anyhow::Result<()>> {
    if first == INIT {
        init::run(&arguments.next().map(PathBuf::from).unwrap_or_default());
    }
    (first == KEEPER).then(|| keeper::run(arguments.next(), arguments.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_leaves_what_its_recovery_does_without() {
        let without = |recovery| -> Vec<String> {
            let kernel = Kernel::from(GuestKernel::Packaged).with_recovery(recovery);
            assert!(kernel.parameters.iter().all(|(_, value)| value == "0"));
            let names = kernel.parameters.into_iter().map(|(name, _)| name);
            names.collect()
        };
        assert!(without(None).is_empty() && without(Some(Recovery::Rack)).is_empty());
        let rack = ["net/ipv4/tcp_recovery", "net/ipv4/tcp_early_retrans"];
        assert_eq!(without(Some(Recovery::Sack)), rack);
        let sack = [rack[0], rack[1], "net/ipv4/tcp_sack"];
        assert_eq!(without(Some(Recovery::NewReno)), sack);
    }
}
