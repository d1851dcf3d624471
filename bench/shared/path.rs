//! Two hosts with a tenant each, on an unshaped path with every offload.
//!
//! ```text
//! [a] eth0 ── tenant [ha] wire ── wire [hb] tenant ── eth0 [b]
//!                    bridge            bridge
//! ```

use std::{os::fd::AsFd, process::Command};

use anyhow::{Context, Result, ensure};
use sluicegate_agent::netns::{self, NetNs};

use super::sides::Side;

/// Address of the receiving tenant; the sender's is 10.9.0.1.
pub const RECEIVER: &str = "10.9.0.2";

/// Namespaces of the path; gone when dropped.
pub struct Path {
    prefix: String,
}

impl Path {
    /// Builds it. Needs root, and a name that no other path of this process has.
    pub fn build(name: &str) -> Result<Self> {
        let path = Self {
            prefix: format!("sgb-{}-{name}", std::process::id()),
        };
        for part in ["a", "ha", "hb", "b"] {
            ip(&["netns", "add", &path.name(part)])?;
        }
        let (ha, hb) = (path.name("ha"), path.name("hb"));
        path.cable(&ha, "wire", &hb, "wire")?;
        path.tenant("a", &ha, "10.9.0.1")?;
        path.tenant("b", &hb, RECEIVER)?;
        for host in [&ha, &hb] {
            ip(&["-n", host, "link", "add", "bridge", "type", "bridge"])?;
            for port in ["wire", "tenant"] {
                ip(&["-n", host, "link", "set", port, "master", "bridge"])?;
            }
            ip(&["-n", host, "link", "set", "bridge", "up"])?;
        }
        Ok(path)
    }

    /// Name of the namespace of `a`, `ha`, `hb` or `b`.
    pub fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    /// Runs `work` in the namespace of `a`, `ha`, `hb` or `b`.
    pub fn within<T: Send>(
        &self,
        part: &str,
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let netns = NetNs::named(&self.name(part))?;
        netns::within(netns.as_fd(), work)
    }

    fn tenant(&self, part: &str, host: &str, address: &str) -> Result<()> {
        let tenant = self.name(part);
        self.cable(&tenant, "eth0", host, "tenant")?;
        let address = format!("{address}/24");
        ip(&["-n", &tenant, "addr", "add", &address, "dev", "eth0"])
    }

    /// A veth pair between two namespaces, up. Each end's packets are received by the CPUs of its
    /// side, so that the segments of one flow stay in order whichever CPU sends them.
    fn cable(&self, from: &str, from_name: &str, to: &str, to_name: &str) -> Result<()> {
        ip(&[
            "-n", from, "link", "add", from_name, "type", "veth", "peer", "name", to_name, "netns",
            to,
        ])?;
        for (netns, name) in [(from, from_name), (to, to_name)] {
            ip(&["-n", netns, "link", "set", name, "up"])?;
            let cpus = side(netns).mask()?;
            let steering = format!("echo {cpus} > /sys/class/net/{name}/queues/rx-0/rps_cpus");
            ip(&["netns", "exec", netns, "sh", "-c", &steering])?;
        }
        Ok(())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for part in ["a", "ha", "hb", "b"] {
            let _ = ip(&["netns", "del", &self.name(part)]);
        }
    }
}

/// Namespaces of the sending side end in `a`, those of the receiving side in `b`.
fn side(netns: &str) -> Side {
    if netns.ends_with('a') {
        Side::Sending
    } else {
        Side::Receiving
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("ip is missing; install iproute2")?;
    ensure!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
