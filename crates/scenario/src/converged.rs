//! The ports of a variant's converged Ethernet, for the worlds that build it.

use std::time::Duration;

use sluicegate_core::aqm::AqmParams;
use sluicegate_fabric::{
    cee::{CeeConfig, PortSpec},
    graph::{Node, PortId},
    port::PS_PER_NS,
};

use crate::experiment::{Link, Variant};

/// Bytes of an Ethernet header: the length of a frame beyond the MTU.
const ETHERNET_BYTES: u32 = 14;

impl Variant {
    /// A port of a link. `receive_delay` passes between the adapter of a host and its stack.
    ///
    /// # Errors
    /// A marking that the port cannot do.
    pub fn cee_port(
        &self,
        config: &CeeConfig,
        port: PortId,
        receive_delay: Duration,
    ) -> Result<PortSpec, String> {
        let link = &self.links[port.link()];
        let (from, to) = self.ends(port);
        Ok(PortSpec {
            near: from,
            far: to,
            rate_bps: link.rate_bps,
            propagation_ps: ps(link.delay.unwrap_or(self.sim.link_delay)),
            processing_ps: match to {
                Node::Host(_) => config.adapter_delay_ps + ps(receive_delay),
                Node::Switch(_) => config.switch_delay_ps,
            },
            aqm: self.aqm(link, from)?,
            frame_bytes: self.mtu_bytes + ETHERNET_BYTES,
        })
    }

    /// Queue management of a link's sender: of a switch, not of a host.
    ///
    /// # Errors
    /// A marking that the link cannot have.
    pub fn aqm(&self, link: &Link, from: Node) -> Result<AqmParams, String> {
        if matches!(from, Node::Host(_)) {
            return Ok(AqmParams::default());
        }
        let frame_bytes = self.mtu_bytes + ETHERNET_BYTES;
        AqmParams::new(link.marking, link.rate_bps, frame_bytes)
            .map_err(|problem| format!("link {}: {problem}", link.name))
    }
}

fn ps(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_mul(PS_PER_NS)
}
