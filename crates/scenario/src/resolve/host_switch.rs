//! `[network.host_switch]`: the switch of every host, between its tenants and its adapter.

use std::time::Duration;

use sluicegate_config::{bound::Rate, document::Value, table::Table};

use super::{
    ETHERNET_BYTES, duration,
    network::{read_rate, read_size},
};
use crate::{
    bounds,
    experiment::{HostId, Node, Variant},
    host_switch::{HostSwitch, headroom_bytes},
};

/// A virtio queue of 256 descriptors, as Qemu has them, full of frames of Ethernet's MTU.
const RING_BYTES: u64 = 256 * 1514;

/// Reads `[network.host_switch]`.
pub fn read(network: &Table<'_>) -> Option<HostSwitch> {
    let table = network.table("host_switch")?;
    network.refuse(
        "vnic_queue",
        "with [network.host_switch], whose `transmit_ring` each vNIC has",
    );
    let size = |key| read_size(&table, key).unwrap_or(RING_BYTES);
    let queue_bytes = read_size(&table, "queue");
    let queue = |key| {
        let own = read_size(&table, key);
        own.unwrap_or(queue_bytes.unwrap_or(RING_BYTES))
    };
    let switch = HostSwitch {
        lossless: read_lossless(&table).unwrap_or(0),
        queue_bytes,
        transmit_ring_bytes: size("transmit_ring"),
        receive_ring_bytes: queue("receive_ring"),
        arrival_ring_bytes: size("arrival_ring"),
        uplink_queue_bytes: queue("uplink_queue"),
        rate_bps: read_forwarding(&table),
        frame_time: duration(&table, "frame_time").unwrap_or(Duration::ZERO),
        receive_rate_bps: read_rate(&table, "receive_rate"),
    };
    table.close();
    Some(switch)
}

/// Like other rates, but a processor may also be faster than any link.
fn read_forwarding(table: &Table<'_>) -> Option<u64> {
    let Rate(rate_bps) = table.within("rate", &bounds::FORWARDING)?;
    Some(rate_bps)
}

/// Bit p: priority p is lossless.
fn read_lossless(table: &Table<'_>) -> Option<u8> {
    let item = table.get("lossless")?;
    let lossless = match &item.node().value {
        Value::Boolean(true) => u8::MAX,
        Value::Boolean(false) => 0,
        Value::List(listed) if listed.is_empty() => {
            item.complain("must not be empty", "give false, or leave it out");
            0
        }
        Value::Integer(_) | Value::List(_) => item.priorities(),
        _ => {
            let advice = "give true, false, a priority or a list of priorities";
            item.complain("says neither whether nor which", advice);
            0
        }
    };
    Some(lossless)
}

/// Checks that what may arrive after a pause fits into the adapters' receive rings, and that the
/// lossless priorities exist.
pub fn check(table: &Table<'_>, variant: &Variant) {
    let Some(switch) = &variant.host_switch else {
        return;
    };
    let own = table
        .table("network")
        .and_then(|it| it.table("host_switch"));
    let Some(own) = own else { return };
    if variant.cee.is_none() && ![0, u8::MAX].contains(&switch.lossless) {
        let reason = "needs [network.cee]: plain Ethernet has no priorities";
        complain(&own, "lossless", reason, "give true or false");
    }
    let pauses = (variant.cee.as_ref()).is_some_and(|cee| cee.pfc.is_some());
    if !pauses || switch.lossless == 0 {
        return;
    }
    let hosts = (0..variant.hosts.len()).map(|host| Node::Host(HostId::at(host)));
    let headroom = hosts.map(|host| headroom_bytes(variant, host)).max();
    let frame_bytes = u64::from(variant.mtu_bytes + ETHERNET_BYTES);
    let needed = headroom.unwrap_or(0) + frame_bytes;
    if switch.arrival_ring_bytes < needed {
        let reason = format!(
            "of {} bytes cannot keep what arrives after a pause: {needed} bytes with the frame that pauses",
            switch.arrival_ring_bytes
        );
        let advice = "make `arrival_ring` larger, or the delays of [sim] shorter";
        complain(&own, "arrival_ring", &reason, advice);
    }
}

/// Of a key, or of the table where the key has its default.
fn complain(table: &Table<'_>, key: &'static str, reason: &str, advice: &str) {
    match table.get(key) {
        Some(item) => item.complain(reason, advice),
        None => table.item().complain(format!("`{key}` {reason}"), advice),
    }
}
