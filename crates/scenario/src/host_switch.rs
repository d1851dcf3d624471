//! The switches of hosts, as a scenario describes them.

use std::time::Duration;

use crate::experiment::{Node, Variant};

/// A frame's header; it counts on links and in buffers.
const ETHERNET_BYTES: u32 = 14;

/// The switch of each host (`[network.host_switch]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSwitch {
    /// Bit p: full queues of priority p hold back their senders instead of dropping packets.
    pub lossless: u8,
    /// What waits for each port, in bytes, if the file says it for all of them. The simulator has
    /// it in the sizes of receive rings and of the queue in front of the adapter, the lab where its
    /// switch drops.
    pub queue_bytes: Option<u64>,
    /// Transmit ring of each vNIC, in bytes.
    pub transmit_ring_bytes: u64,
    /// Receive ring of each vNIC, in bytes.
    pub receive_ring_bytes: u64,
    /// Receive ring of the adapter, in bytes.
    pub arrival_ring_bytes: u64,
    /// Queue in front of the adapter, in bytes.
    pub uplink_queue_bytes: u64,
    /// Bits per second that it forwards, all ports together; `None` = it takes no time for bytes.
    pub rate_bps: Option<u64>,
    /// And its time for each frame.
    pub frame_time: Duration,
    /// Bits per second that each VM takes from its receive ring; `None` = as they come.
    pub receive_rate_bps: Option<u64>,
}

/// What connects the tenants of a host in the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabSwitch {
    /// A bridge of the kernel.
    #[default]
    Bridge,
    /// `sluicegate switch`, with guests behind vhost-user.
    Sluicegate,
    /// Open vSwitch in userspace, with TAP interfaces.
    Ovs,
    /// Open vSwitch with DPDK, with guests behind vhost-user.
    OvsDpdk,
}

impl LabSwitch {
    /// By their names in files.
    pub const NAMED: [(&str, Self); 4] = [
        ("bridge", Self::Bridge),
        ("sluicegate", Self::Sluicegate),
        ("ovs", Self::Ovs),
        ("ovs-dpdk", Self::OvsDpdk),
    ];

    /// Whether it is Open vSwitch.
    pub fn is_open_vswitch(self) -> bool {
        matches!(self, Self::Ovs | Self::OvsDpdk)
    }

    /// Whether guests are connected to sockets of it (vhost-user), not to TAP interfaces.
    pub fn has_sockets(self) -> bool {
        matches!(self, Self::Sluicegate | Self::OvsDpdk)
    }
}

/// What the network between hosts is in the lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabFabric {
    /// Bridges, queues and links of the kernel.
    #[default]
    Kernel,
    /// The simulator's own fabric by the machine's clock; converged Ethernet always is.
    Emulated,
}

impl LabFabric {
    /// By their names in files.
    pub const NAMED: [(&str, Self); 2] = [("kernel", Self::Kernel), ("emulated", Self::Emulated)];
}

/// The kernel that guests of the lab boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestKernel {
    /// Debian's package.
    #[default]
    Packaged,
    /// Built from Debian's source with `kernel/guest/udp-hold.patch`, which is switched off.
    Patched,
    /// The same, switched on: reception waits while a UDP socket is full.
    Holding,
}

impl GuestKernel {
    /// By their names in files.
    pub const NAMED: [(&str, Self); 3] = [
        ("packaged", Self::Packaged),
        ("patched", Self::Patched),
        ("holding", Self::Holding),
    ];
}

/// Which CPUs carry the packets of the lab's namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Steering {
    /// One CPU for each namespace: switches have one, hosts and their tenants the others.
    #[default]
    Namespace,
    /// All of them, chosen by flow, as hosts with receive packet steering do.
    Flow,
}

impl Steering {
    /// By their names in files.
    pub const NAMED: [(&str, Self); 2] = [("namespace", Self::Namespace), ("flow", Self::Flow)];
}

/// Bytes that may arrive at a host's adapter after it has paused its link: what is on the wire and
/// in the adapter, the frame that is being sent and the one that has made it pause.
pub fn headroom_bytes(variant: &Variant, host: Node) -> u64 {
    let Some(cee) = &variant.cee else { return 0 };
    let links = variant.links.iter();
    let mut own = links.filter(|link| link.a == host || link.b == host);
    let Some(link) = own.next() else { return 0 };
    let delay = link.delay.unwrap_or(variant.sim.link_delay) + variant.sim.receive_delay;
    let delay_ps = delay.as_nanos() * 1_000 + u128::from(cee.adapter_delay_ps);
    let bits = delay_ps * u128::from(link.rate_bps) / 1_000_000_000_000;
    let frame_bytes = u64::from(variant.mtu_bytes + ETHERNET_BYTES);
    (bits.div_ceil(8) as u64).saturating_add(2 * frame_bytes)
}
