//! A variant's switches of hosts (`[network.host_switch]`).

use sluicegate_fabric::graph::HostId;
use sluicegate_scenario::{
    experiment::{Node, Variant},
    host_switch::{HostSwitch, headroom_bytes},
};
use sluicegate_vswitch::{
    WhenFull,
    point::{Bound, Point},
    switch,
};

use super::{cee, on_host, ps};
use crate::net::{Forwarder, Host, LinkPauses, Speed};

/// The places of such a switch.
pub(super) fn config(switch: &HostSwitch) -> switch::Config {
    let place = |bytes| Point {
        bound: Bound::bytes(bytes),
        when_full: match switch.lossless {
            0 => WhenFull::Drop,
            _ => WhenFull::HoldBack,
        },
    };
    switch::Config {
        transmit: place(switch.transmit_ring_bytes),
        uplink: place(switch.uplink_queue_bytes),
        arrival: place(switch.arrival_ring_bytes),
        receive: place(switch.receive_ring_bytes),
    }
}

/// Whether adapters pause their links.
pub(super) fn pauses_links(variant: &Variant) -> bool {
    let lossless = variant.host_switch.is_some_and(|it| it.lossless != 0);
    lossless && variant.cee.as_ref().is_some_and(|cee| cee.pfc.is_some())
}

/// Gives a host the processor of its switch, if the variant has such switches.
pub(super) fn equip(variant: &Variant, host: HostId, machine: Host) -> Host {
    let Some(switch) = &variant.host_switch else {
        return machine;
    };
    let priorities = match variant.cee {
        Some(_) => cee::lanes(variant),
        None => 1,
    };
    let speed = Speed {
        rate_bps: switch.rate_bps,
        frame_ps: ps(switch.frame_time),
        receive_rate_bps: switch.receive_rate_bps,
    };
    let pauses = pauses_links(variant).then(|| pauses(variant, switch, host));
    let vnics = on_host(variant, host).count();
    let forwarder = Forwarder::new(speed, pauses, priorities, vnics);
    machine.with_forwarder(forwarder, !switch.lossless)
}

/// What may still arrive after a pause has room above XOFF. XON is two thirds of it.
fn pauses(variant: &Variant, switch: &HostSwitch, host: HostId) -> LinkPauses {
    let headroom = headroom_bytes(variant, Node::Host(host));
    let xoff_bytes = switch.arrival_ring_bytes.saturating_sub(headroom);
    LinkPauses {
        xoff_bytes,
        xon_bytes: xoff_bytes / 3 * 2,
    }
}
