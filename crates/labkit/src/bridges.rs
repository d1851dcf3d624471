//! Bridges of the kernel whose ports forward.
//!
//! The kernel tells a bridge within a second that a port's link is up, or at once when the link is
//! queried. The port drops frames until then.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// The kernel needs a second at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until each port of a bridge whose link is up forwards: in the namespace with this name, or
/// in that of the calling thread.
///
/// # Errors
/// iproute2 cannot be run, or a port does not forward, with what `bridge link` says of it.
pub fn until_forwarding(netns: Option<&str>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ports = said("bridge", netns, &["link"])?;
        let Some(port) = silent(&ports) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            let place = netns.map_or(String::new(), |netns| format!("namespace {netns}: "));
            bail!("{place}a bridge's port does not forward: {port}");
        }
        let name = port.split([' ', '@', ':']).nth(2).unwrap_or_default();
        said("ip", netns, &["link", "show", "dev", name])?;
        thread::sleep(Duration::from_millis(1));
    }
}

/// The first port whose link is up and that does not forward yet, in what `bridge link` says.
fn silent(ports: &str) -> Option<&str> {
    let waits = |port: &&str| port.contains(",LOWER_UP") && !port.contains(" state forwarding ");
    ports.lines().find(waits)
}

fn said(tool: &str, netns: Option<&str>, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(tool);
    command.args(netns.map_or(vec![], |netns| vec!["-n", netns]));
    let output = command.args(arguments).output();
    let output = output
        .with_context(|| format!("{tool}: cannot be run (Debian: apt-get install iproute2)"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{tool} {}: {}", arguments.join(" "), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_link_is_not_waited_for() {
        let port = |flags: &str, state: &str| {
            format!("5: t@if2: <BROADCAST,{flags}> mtu 1500 master b state {state} priority 32")
        };
        let down = port("MULTICAST,UP", "disabled");
        let up = port("MULTICAST,UP,LOWER_UP", "forwarding");
        let late = port("MULTICAST,UP,LOWER_UP", "disabled");
        assert_eq!(silent(&format!("{down}\n{up}\n")), None);
        let ports = format!("{down}\n{late}\n{up}\n");
        assert_eq!(silent(&ports), Some(late.as_str()));
    }
}
