//! Names and addresses of what the lab makes: short, unique within a run, recognisable as ours.

use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_scenario::experiment::{HostId, PortId, SwitchId};

/// Every namespace of the lab starts with this.
pub const PREFIX: &str = "sgl-";

/// Names of one run's namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    run: String,
}

impl Names {
    /// Names that no other run of this boot has while this process lives.
    pub fn new() -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        Self {
            run: format!("{:x}.{number}", std::process::id()),
        }
    }

    /// Identifies the run in names and in the journal.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Namespace of a tenant.
    pub fn tenant(&self, id: usize) -> String {
        format!("{PREFIX}{}-t{id}", self.run)
    }

    /// Namespace of a host.
    pub fn host(&self, id: HostId) -> String {
        format!("{PREFIX}{}-h{}", self.run, id.0)
    }

    /// The one namespace of all switches.
    pub fn switches(&self) -> String {
        format!("{PREFIX}{}-sw", self.run)
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

/// Host side of a tenant's interface, in the host's namespace.
pub fn vnic(tenant: usize) -> String {
    format!("t{tenant}")
}

/// The end of a link that a port transmits from: `l0a` and `l0b` are those of the first link.
pub fn port(port: PortId) -> String {
    let end = if port.is_forward() { 'a' } else { 'b' };
    format!("l{}{end}", port.link())
}

/// A switch's bridge.
pub fn switch_bridge(switch: SwitchId) -> String {
    format!("sw{}", switch.0)
}

/// A host's bridge.
pub const HOST_BRIDGE: &str = "br";

/// The interface between a host's bridge and `sluicegate switch`.
pub const UPLINK_TAP: &str = "uplink";

/// A tenant's own interface.
pub const TENANT_INTERFACE: &str = "eth0";

/// MAC address of a tenant's interface: locally administered, the id in the last two bytes.
pub fn mac(tenant: usize) -> [u8; 6] {
    let [high, low] = (tenant as u16).to_be_bytes();
    [0x02, 0x73, 0x67, 0x00, high, low]
}

/// The same as iproute2 writes it.
pub fn tenant_mac(tenant: usize) -> String {
    let bytes = mac(tenant).map(|byte| format!("{byte:02x}"));
    bytes.join(":")
}
