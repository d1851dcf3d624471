//! A variant's converged Ethernet.

use anyhow::Result;
use sluicegate_fabric::cee::{Buffer, Cee, CeeConfig, Place, PortSpec};
use sluicegate_scenario::experiment::{Action, Link, Node, Variant};

use super::{aqm, ps};
use crate::{net::Converged, packet::ETHERNET_BYTES};

/// The fabric of a variant; the ports of its hosts' stacks begin at `stacks`.
pub(super) fn converged(
    variant: &Variant,
    config: &CeeConfig,
    stacks: Option<u32>,
    seed: u64,
) -> Result<Converged> {
    let mut specs = Vec::with_capacity(2 * variant.links.len());
    for link in &variant.links {
        for (from, to) in [(link.a, link.b), (link.b, link.a)] {
            specs.push(spec(variant, config, link, (from, to))?);
        }
    }
    let (ports, hosts) = (specs.len() as u32, variant.hosts.len());
    let fabric = Cee::new(config.clone(), specs, hosts, variant.switches.len(), seed);
    let converged = Converged::new(fabric, ports, stacks, hosts, reorders(variant));
    Ok(converged.with_lanes(lanes(variant)))
}

/// Bytes that a queue of a node may hold: a switch's those of all its inputs, an adapter's those of all priorities that
/// are used; `None` = whatever comes.
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
fn lanes(variant: &Variant) -> u8 {
    let highest = variant.traffic.iter().map(|traffic| traffic.priority).max();
    1 + highest.unwrap_or(0)
}

fn spec(
    variant: &Variant,
    config: &CeeConfig,
    link: &Link,
    (from, to): (Node, Node),
) -> Result<PortSpec> {
    Ok(PortSpec {
        near: place(from),
        far: place(to),
        rate_bps: link.rate_bps,
        propagation_ps: ps(link.delay.unwrap_or(variant.sim.link_delay)),
        processing_ps: match to {
            Node::Host(_) => config.adapter_delay_ps + ps(variant.sim.receive_delay),
            Node::Switch(_) => config.switch_delay_ps,
        },
        aqm: aqm(variant, link, from)?,
        frame_bytes: variant.mtu_bytes + ETHERNET_BYTES,
    })
}

fn place(node: Node) -> Place {
    match node {
        Node::Host(host) => Place::Host(host as u16),
        Node::Switch(switch) => Place::Switch(switch as u32),
    }
}

/// Whether frames may overtake each other at any time.
fn reorders(variant: &Variant) -> bool {
    let by_link = |link: &Link| link.impairment.reorder_rate > 0.0;
    let by_event = variant.events.iter().any(|event| match &event.action {
        Action::Impair { change, .. } => change.reorder_rate.is_some_and(|rate| rate > 0.0),
        _ => false,
    });
    by_event || variant.links.iter().any(by_link)
}
