//! `kind = "trace"`.

use std::{collections::BTreeMap, path::Path};

use sluicegate_config::{
    table::Table,
    units::{parse_bytes, parse_rate},
};

use super::{Network, arrivals, is_name, pairs::racks, read_sizes, sizes_advice};
use crate::{
    bounds,
    experiment::{IntraRack, Load, Tenant, TrafficKind},
    resolve::NAME_ADVICE,
};

pub fn read(
    table: &Table<'_>,
    directory: &Path,
    network: &Network,
    tenants: &[Tenant],
    pairs: &[(usize, usize)],
) -> Option<TrafficKind> {
    let sizes = table.get("sizes");
    if sizes.is_none() {
        table.require("sizes", &sizes_advice());
    }
    let sizes = sizes.and_then(|item| read_sizes(&item, directory));
    let max_bytes = table.parse("max_bytes", parse_bytes);
    let load = read_load(table, directory);
    let intra_rack = read_intra_rack(table, network, tenants, pairs);
    let classes = read_classes(table);
    let sizes = match (sizes?, max_bytes) {
        (sizes, Some(max)) => sizes.capped(max.max(1)),
        (sizes, None) => sizes,
    };
    Some(TrafficKind::Trace {
        sizes,
        load: load?,
        classes,
        intra_rack,
    })
}

/// `load`, `arrivals` or `concurrent`.
fn read_load(table: &Table<'_>, directory: &Path) -> Option<Load> {
    let concurrent = table.within("concurrent", &bounds::PARALLEL);
    if table.get("concurrent").is_some() {
        table.refuse("load", "with `concurrent` the network decides");
        table.refuse("arrivals", "with `concurrent` the network decides");
        return concurrent.map(|count| Load::Concurrent(count as u32));
    }
    if let Some(item) = table.get("arrivals") {
        table.refuse("load", "`arrivals` and `sizes` say it");
        return Some(Load::Arrivals(arrivals::read(&item, directory)?));
    }
    let load_bps = table.parse("load", parse_rate);
    if load_bps.is_none() && table.get("load").is_none() {
        let advice = "give what each sender offers, for example load = \"50Mbit\", \
            or how many messages it has under way, for example concurrent = 5";
        table.require("load", advice);
    }
    Some(Load::Offered(load_bps?.max(1)))
}

/// `intra_rack`: checks that every sender has a receiver to draw, within its rack and outside.
fn read_intra_rack(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    pairs: &[(usize, usize)],
) -> Option<IntraRack> {
    let item = table.get("intra_rack")?;
    let fraction = item.within(&bounds::INTRA_RACK)?;
    let racks = racks(network, tenants);
    let mut peers: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for (from, to) in pairs {
        let (near, far) = peers.entry(*from).or_default();
        *near |= racks[*from] == racks[*to];
        *far |= racks[*from] != racks[*to];
    }
    for (from, has) in peers {
        let missing = match has {
            (false, _) if fraction > 0.0 => "its own rack",
            (_, false) if fraction < 1.0 => "another rack",
            _ => continue,
        };
        let reason = format!("{} has no peer in {missing}", tenants[from].name);
        item.complain(reason, "add some to `to`, or leave this out");
        return None;
    }
    Some(IntraRack { fraction, racks })
}

/// `classes = { mice = "10KB", elephants = "rest" }`; by default those of the published figures.
fn read_classes(table: &Table<'_>) -> Vec<(u64, String)> {
    let Some(classes) = table.table("classes") else {
        let usual = [(10_000, "small"), (100_000, "medium"), (u64::MAX, "large")];
        return usual.map(|(bound, name)| (bound, name.to_owned())).into();
    };
    let mut bounds = Vec::new();
    for (name, item) in classes.named() {
        if !is_name(name) {
            item.complain(format!("\"{name}\" is no name"), NAME_ADVICE);
        }
        let bound = item.parse(|text| match text {
            "rest" => Ok(u64::MAX),
            bytes => parse_bytes(bytes),
        });
        bounds.extend(bound.map(|bound| (bound, name.to_owned())));
    }
    bounds.sort();
    if bounds.last().is_none_or(|(bound, _)| *bound != u64::MAX) {
        let advice = "end with one for all larger flows, such as large = \"rest\"";
        classes
            .item()
            .complain("the largest flows have no class", advice);
    }
    bounds
}
