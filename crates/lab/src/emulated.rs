//! The network between the hosts as an emulated fabric, of plain or converged Ethernet.
//!
//! ```text
//!   guest ─ sluicegate switch ══ cable ══ fabric ══ cable ══ sluicegate switch ─ guest
//!           (namespace of the host)       (a thread of the lab)
//! ```

#![allow(unsafe_code)] // sched_setscheduler

use std::{io, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use sluicegate_emulator::{
    Counts, Drop as AtHost, Emulation, Ethernet, Plan, PortCounts, Queues, Uplink,
};
use sluicegate_fabric::{Routing, cee::PortSpec, port::Drop};
use sluicegate_scenario::{
    experiment::{HostId, LabFabric, Node, PortId, Variant},
    results::{LinkCee, LinkResult, QueueQuantiles},
};

use crate::{
    host_switch::HostSwitches,
    net::{layout::ETHERNET_HEADER_BYTES, names},
};

/// The highest rate of a link, in bits per second. A bound against mistakes, not a measurement: 100
/// Mb/s take 0.7 of two CPUs, guests included, and a run that falls behind says so.
pub const RATE_MAX_BPS: u64 = 500_000_000;

/// The most guests beside an emulated fabric: 20 are up after 5 to 8 s on two busy CPUs, 80 after
/// 52 s, and then a run of 3 s has not ended after 50 s.
pub const GUESTS_MAX: usize = 32;

/// "Local experimental": no stack takes it.
const ANNOUNCEMENT: [u8; 2] = [0x88, 0xb5];

/// Causes of drops that any switch has; others are spoken of where they happened.
const EVERYWHERE: [&str; 3] = ["tail", "not_ect", "red"];

/// Whether the lab emulates the network of a variant, instead of making it of the kernel's bridges.
pub fn is_emulated(variant: &Variant) -> bool {
    variant.cee.is_some() || variant.lab.fabric == LabFabric::Emulated
}

/// Whether the emulated fabric can spread frames like this over equal paths. It does not know what
/// becomes of the frames of a sender, has no adapters that put frames in order, and reads nothing
/// from notifications.
pub fn spreads(variant: &Variant) -> bool {
    match variant.routing {
        Routing::DModK | Routing::SModK | Routing::FlowHash => true,
        Routing::PacketHash
        | Routing::Random
        | Routing::Spray
        | Routing::Drill
        | Routing::Flowlet { .. }
        | Routing::Conga { .. } => variant.cee.is_none(),
        Routing::Reps
        | Routing::Plb(_)
        | Routing::SwitchAdaptive(_)
        | Routing::R2c2(_)
        | Routing::R3c2(_) => false,
    }
}

/// Starts the network of a variant between the switches of its hosts. `None`: it is not emulated.
///
/// # Errors
/// A host has no switch; a switch does not listen. If the kernel refuses the priority, the first
/// look at the counters says so.
pub fn start(variant: &Variant, switches: &HostSwitches, seed: u64) -> Result<Option<Emulation>> {
    if !is_emulated(variant) {
        return Ok(None);
    }
    let plan = plan(variant, seed)?;
    let uplinks = HostId::first(variant.hosts.len()).map(|host| Uplink {
        path: switches.cable(host),
        announcements: announcements(variant, host),
    });
    let uplinks: Vec<_> = uplinks.collect();
    let emulation = Emulation::start(plan, ethernet(variant), &uplinks, take_priority);
    Ok(Some(emulation.context("starting the emulated fabric")?))
}

fn plan(variant: &Variant, seed: u64) -> Result<Plan> {
    let ports = variant.ports().map(|port| spec(variant, port));
    let tenants = variant.tenants.iter().enumerate();
    Ok(Plan {
        ports: ports
            .collect::<Result<_, _>>()
            .map_err(anyhow::Error::msg)?,
        hosts: variant.hosts.len(),
        switches: variant.switches.len(),
        routes: Arc::new(variant.routes(&variant.graph())),
        priority: (variant.traffic.first()).map_or(0, |traffic| traffic.priority),
        addresses: tenants
            .map(|(id, tenant)| (names::mac(id), tenant.host))
            .collect(),
        seed,
    })
}

/// A port of a link. The stacks of hosts are real, and so are their delays.
fn spec(variant: &Variant, port: PortId) -> Result<PortSpec, String> {
    if let Some(config) = &variant.cee {
        return variant.cee_port(config, port, Duration::ZERO);
    }
    let link = &variant.links[port.link()];
    let (near, far) = variant.ends(port);
    let delay = link.delay.unwrap_or(variant.sim.link_delay);
    Ok(PortSpec {
        near,
        far,
        rate_bps: link.rate_bps,
        propagation_ps: u64::try_from(delay.as_nanos() * 1000).unwrap_or(u64::MAX),
        processing_ps: 0,
        aqm: variant.aqm(link, near)?,
        frame_bytes: variant.mtu_bytes + ETHERNET_HEADER_BYTES,
    })
}

fn ethernet(variant: &Variant) -> Ethernet {
    if let Some(config) = &variant.cee {
        return Ethernet::Converged(config.clone());
    }
    let links = variant.ports().map(|port| &variant.links[port.link()]);
    Ethernet::Plain(Queues {
        limits_bytes: links.map(|link| link.queue_bytes).collect(),
        shared: variant.shared_memory,
    })
}

/// A broadcast from each tenant of another host, so that the host's switch knows who is behind its
/// uplink.
fn announcements(variant: &Variant, host: HostId) -> Vec<Vec<u8>> {
    let tenants = variant.tenants.iter().enumerate();
    let remote = tenants.filter(|(_, tenant)| tenant.host != host);
    let frame = |(id, _)| {
        let mut frame = vec![0; 60];
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&names::mac(id));
        frame[12..14].copy_from_slice(&ANNOUNCEMENT);
        frame
    };
    remote.map(frame).collect()
}

/// The thread of the fabric goes before all processes: it is the network.
fn take_priority() -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` is valid for the call, which reads it; 0 is the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("the priority of the fabric's thread"),
    }
}

/// Frames that hosts and network lost between each other, from one time to another, where a
/// scenario is not about them.
pub fn lost(from: &Counts, to: &Counts) -> u64 {
    let sum = |counts: &Counts| -> u64 {
        let hosts = counts.hosts.iter();
        // What a guest sends to itself, or what is no frame, is its own affair.
        let lost = [AtHost::TooLong, AtHost::Flooded, AtHost::Host];
        hosts
            .map(|host| {
                lost.map(|reason| host.drops[reason as usize])
                    .iter()
                    .sum::<u64>()
            })
            .sum()
    };
    sum(to).saturating_sub(sum(from))
}

/// The queues of switches, and of hosts where they dropped something or were paused.
pub fn results(variant: &Variant, from: &Counts, to: &Counts) -> Vec<LinkResult> {
    let both = from.ports.iter().zip(&to.ports);
    let all = PortId::enumerate(both).map(|(port, (from, to))| result(variant, port, from, to));
    let is_told = |(port, result): &(PortId, LinkResult)| {
        let is_switch = matches!(variant.ends(*port).0, Node::Switch(_));
        let is_paused = result.cee.is_some_and(|counts| counts.pauses > 0);
        is_switch || is_paused || result.drops.values().any(|&count| count > 0)
    };
    let all = variant.ports().zip(all).filter(is_told);
    all.map(|(_, result)| result).collect()
}

/// Whether a port is a bottleneck of the experiment.
pub fn is_bottleneck(variant: &Variant, port: PortId) -> bool {
    variant.links[port.link()].bottleneck && port.is_forward()
}

fn result(variant: &Variant, port: PortId, from: &PortCounts, to: &PortCounts) -> LinkResult {
    let (before, after) = (&from.stats, &to.stats);
    let dropped = after.drops.iter().zip(before.drops);
    let dropped = Drop::NAMES
        .into_iter()
        .zip(dropped.map(|(after, before)| after - before));
    let dropped = dropped.filter(|(name, count)| EVERYWHERE.contains(name) || *count > 0);
    let backlogs = to.backlogs.since(&from.backlogs);
    LinkResult {
        id: variant.port_name(port),
        bottleneck: is_bottleneck(variant, port),
        rate_bps: variant.links[port.link()].rate_bps,
        sent: after.accepted - before.accepted,
        sent_bytes: after.accepted_bytes - before.accepted_bytes,
        drops: dropped
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        marks: after.marks - before.marks,
        queue_bytes: QueueQuantiles {
            p50: backlogs.quantile(0.5),
            p99: backlogs.quantile(0.99),
            max: backlogs.quantile(1.0),
        },
        cee: control(from, to),
    }
}

fn control(from: &PortCounts, to: &PortCounts) -> Option<LinkCee> {
    let (before, after) = (from.control?, to.control?);
    Some(LinkCee {
        pauses: after.pauses - before.pauses,
        paused_us: (after.paused_ps - before.paused_ps) as f64 / 1e6,
        notifications: after.notifications - before.notifications,
        ingress_max_bytes: after.ingress_max_bytes,
    })
}
