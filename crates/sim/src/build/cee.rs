//! A variant's converged Ethernet.

use anyhow::{Context, Result};
use sluicegate_fabric::{
    Ports, Routing,
    cee::{Buffer, CONTROL_BYTES, Cee, CeeConfig, Pause, PortSpec},
    graph::{HostId, PortId},
    port::PS_PER_S,
};
use sluicegate_scenario::experiment::{Action, Link, Node, Traffic, Variant};

use super::{FabricOf, stack_port};
use crate::{converged::Converged, layout::Layout, net::Net, packet::Packet};

impl FabricOf for Converged {
    fn of(variant: &Variant, mut ports: Ports<Packet>, layout: &Layout, seed: u64) -> Result<Self> {
        let map = layout.ports;
        let config = variant.cee.as_ref();
        let config = config.context("a variant of converged Ethernet")?;
        let specs = variant.ports().map(|port| spec(variant, config, port));
        let specs = specs.collect::<Result<_>>()?;
        let hosts = variant.hosts.len();
        let stack = stack_port(variant, config);
        let takes_time = stack.delay_ps | stack.jitter_ps | stack.jitter_mean_ps > 0;
        if takes_time {
            for host in HostId::first(hosts) {
                let added = ports.add(stack, seed ^ !u64::from(host.0));
                debug_assert_eq!(added, map.stack(host));
            }
        }
        let cee = Cee::new(config.clone(), specs, hosts, variant.switches.len(), seed)
            .with_routing(|priority| variant.routing_of(priority), &layout.routes);
        let mut fabric = Self::new(cee, ports, map).with_lanes(lanes(variant));
        if takes_time {
            fabric = fabric.with_stacks();
        }
        if reorders(variant) {
            fabric = fabric.with_resequencers(hosts);
        }
        Ok(fabric)
    }

    fn converged(net: &mut Net<Self>) -> Option<&mut Net<Converged>> {
        Some(net)
    }
}

/// Bytes that a queue of a node may hold: a switch's those of all its inputs, an adapter's those of
/// all priorities that are used; `None` = whatever comes.
pub(super) fn limit_bytes(variant: &Variant, config: &CeeConfig, from: Node) -> Option<u64> {
    Some(match (from, &config.buffer) {
        (Node::Host(_), _) if config.adapter_bytes == CeeConfig::UNLIMITED => return None,
        (Node::Host(_), _) => config.adapter_bytes * u64::from(lanes(variant)),
        (Node::Switch(_), Buffer::Shared { bytes, .. }) => *bytes,
        (Node::Switch(_), Buffer::Input { bytes }) => {
            let has = |link: &&Link| link.a == from || link.b == from;
            let inputs = variant.links.iter().filter(has).count() as u64;
            bytes * inputs * u64::from(lanes(variant))
        }
    })
}

/// How many priorities are used.
pub(super) fn lanes(variant: &Variant) -> u8 {
    let highest = variant.traffic.iter().map(|traffic| traffic.priority).max();
    1 + highest.unwrap_or(0)
}

fn spec(variant: &Variant, config: &CeeConfig, port: PortId) -> Result<PortSpec> {
    let spec = variant.cee_port(config, port, variant.sim.receive_delay);
    spec.map_err(anyhow::Error::msg)
}

/// Whether several parts can simulate a variant's fabric. An ideal pause acts on a neighbour at
/// once. A link that fails or a defective adapter changes both ends of a link at once.
pub(super) fn is_divisible(variant: &Variant) -> bool {
    let pfc = variant.cee.as_ref().and_then(|config| config.pfc.as_ref());
    let is_ideal = pfc.is_some_and(|pfc| pfc.pause == Pause::Ideal);
    let changes_links = variant.events.iter().any(|event| match event.action {
        Action::Detach(_) | Action::BleachEcn | Action::ReadRate { .. } => false,
        Action::Pause(_) | Action::Resume(_) => false,
        Action::LinkDown(_) | Action::LinkUp(_) | Action::LinkRate { .. } => true,
        Action::Impair { .. } | Action::PauseStorm(_) | Action::EndPauseStorm(_) => true,
        Action::Babble(_) | Action::EndBabble(_) => true,
    });
    !is_ideal && !changes_links
}

/// The time after which a frame that a port sends, or a pause frame of its near end, acts on the
/// far end at the earliest.
pub(super) fn lookahead_ps(variant: &Variant, config: &CeeConfig, port: PortId) -> Result<u64> {
    let spec = spec(variant, config, port)?;
    let frame_ps = spec.propagation_ps + spec.processing_ps;
    Ok(match config.pfc.as_ref().map(|pfc| pfc.pause) {
        Some(Pause::Wire { response_ps, .. }) => {
            let bits = u64::from(CONTROL_BYTES) * 8;
            let serialization_ps = bits * (PS_PER_S / spec.rate_bps.max(1));
            frame_ps.min(serialization_ps + spec.propagation_ps + response_ps)
        }
        Some(Pause::Ideal) | None => frame_ps,
    })
}

/// Whether frames may overtake each other at any time.
fn reorders(variant: &Variant) -> bool {
    let by_link = |link: &Link| link.impairment.reorder_rate > 0.0;
    let by_event = variant.events.iter().any(|event| match &event.action {
        Action::Impair { change, .. } => change.reorder_rate.is_some_and(|rate| rate > 0.0),
        _ => false,
    });
    let by_traffic = |traffic: &Traffic| traffic.routing.is_some_and(Routing::reorders);
    let by_priority = variant.routings.iter().any(|(_, own)| own.reorders());
    let by_scheme = variant.routing.reorders() || variant.traffic.iter().any(by_traffic);
    by_event || by_scheme || by_priority || variant.links.iter().any(by_link)
}
