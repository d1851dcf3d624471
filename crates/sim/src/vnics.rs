//! Frames at tenants' vNICs, where hosts have switches of `[network.host_switch]`.

use std::collections::BTreeMap;

use sluicegate_apps::App;
use sluicegate_scenario::{experiment::Variant, results::VnicResult};
use sluicegate_vswitch::Passed;

use crate::{build::FabricOf, engine::Engine};

/// What has passed the vNIC of each tenant up to now; nothing where hosts have no such switches.
pub fn passed<F: FabricOf>(engine: &mut Engine<App, F>, variant: &Variant) -> Vec<Passed> {
    let tenants = (0..).zip(&variant.tenants);
    let passed = tenants.filter_map(|(id, tenant)| engine.net_of_host(tenant.host).passed(id));
    passed.collect()
}

/// The vNICs of tenants between two times, at which they had passed so much.
pub fn results(variant: &Variant, before: &[Passed], after: &[Passed]) -> Vec<VnicResult> {
    let counted = before.iter().zip(after);
    let tenants = variant.tenants.iter().zip(counted);
    tenants
        .map(|(tenant, (before, after))| result(&tenant.name, after.since(*before)))
        .collect()
}

/// The causes have the lab's names: a frame for which the ring of its receiver has no room is the
/// switch's drop.
fn result(tenant: &str, passed: Passed) -> VnicResult {
    let drops = [
        ("vnic_transmit", passed.refused),
        ("full", passed.overflowed),
    ];
    let drops = drops.into_iter().filter(|(_, count)| *count > 0);
    VnicResult {
        tenant: tenant.to_owned(),
        sent: passed.offered,
        into_switch: passed.entered,
        out_of_switch: passed.put,
        received: passed.taken,
        drops: drops
            .map(|(cause, count)| (cause.to_owned(), count))
            .collect::<BTreeMap<_, _>>(),
    }
}
