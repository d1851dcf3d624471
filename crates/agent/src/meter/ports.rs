//! Ports of the userspace switch, whether it enforces or not.

use super::families::{Families, Family};

/// What a switch tells of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchUse {
    /// Its ports.
    pub ports: Vec<PortUse>,
    /// Ports without room for frames of others that wait.
    pub waited_for: u64,
    /// Those that have taken nothing for a second.
    pub stalled: u64,
    /// Circles of such ports, each of which waits for another of its circle.
    pub circles: u64,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortUse {
    /// Its name.
    pub name: String,
    /// What is behind it: `vhost-user`, `tap`, `xdp` or `shm`.
    pub kind: String,
    /// A guest, a peer or an interface uses the port.
    pub is_up: bool,
    /// Frames that came from it, and their bytes.
    pub received: (u64, u64),
    /// Frames that were delivered to it, and their bytes.
    pub delivered: (u64, u64),
    /// Drops by place, the kernel's included; what is not known is missing.
    pub drops: Vec<(String, u64)>,
}

pub(super) fn expose(all: &mut Families, switch: &SwitchUse) {
    let mut family = all.gauge(
        "switch_port_up",
        "1 if somebody sends and receives at a port of the userspace switch, else 0.",
    );
    for port in &switch.ports {
        let labels = [("port", &port.name[..]), ("kind", &port.kind)];
        family.value(&labels, f64::from(u8::from(port.is_up)));
    }
    drop(family);
    type Count = fn(&PortUse) -> u64;
    let counts: [(&str, &str, Count); 4] = [
        ("received_frames", "Frames that came from a port.", |it| {
            it.received.0
        }),
        (
            "received_bytes",
            "Bytes of frames that came from a port.",
            |it| it.received.1,
        ),
        (
            "delivered_frames",
            "Frames that were delivered to a port.",
            |it| it.delivered.0,
        ),
        (
            "delivered_bytes",
            "Bytes of frames that were delivered to a port.",
            |it| it.delivered.1,
        ),
    ];
    for (name, help, count) in counts {
        let mut family = all.counter(&format!("switch_port_{name}"), help);
        for port in &switch.ports {
            family.value(&[("port", &port.name)], count(port) as f64);
        }
    }
    drops(
        all.counter(
            "switch_port_drops",
            "Frames dropped at a port, by place, those of the kernel included.",
        ),
        switch,
    );
    let gauges = [
        (
            "waited_for",
            "Ports without room for which frames wait.",
            switch.waited_for,
        ),
        (
            "stalled",
            "Ports that have taken nothing for a second while frames waited for them.",
            switch.stalled,
        ),
        (
            "circles",
            "Circles of stalled ports that wait for each other.",
            switch.circles,
        ),
    ];
    for (name, help, value) in gauges {
        all.gauge(&format!("switch_ports_{name}"), help)
            .value(&[], value as f64);
    }
}

fn drops(mut family: Family<'_>, switch: &SwitchUse) {
    for port in &switch.ports {
        for (place, count) in &port.drops {
            family.value(&[("port", &port.name), ("place", place)], *count as f64);
        }
    }
}
