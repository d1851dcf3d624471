//! `kind = "hotspot"`: datagrams to one receiver, and for type `output` a link that is slow for a
//! time.

mod numbers;
mod sources;

use std::{collections::BTreeSet, time::Duration};

use sluicegate_config::table::{Item, Table};
use sluicegate_fabric::{Graph, Routes};

use self::{numbers::Place, sources::Sources};
use super::{
    super::{
        abbreviated, events, matches,
        network::{Network, read_rate},
        pairs, select,
    },
    datagrams::{self, Frames},
};
use crate::{
    experiment::{HostId, Node, Pace, Tenant, TrafficKind, Variant},
    hotspot::{Hotspot, HotspotType},
};

/// The traffic that a table stands for, and its hotspot.
pub struct Hot {
    pub kind: TrafficKind,
    pub pairs: Vec<(usize, usize)>,
    pub hotspot: Hotspot,
}

pub fn read(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    start: Duration,
    stop: Option<Duration>,
) -> Option<Hot> {
    for key in ["pairs", "connections"] {
        table.refuse(key, "every source sends to the one receiver");
    }
    let kind = read_type(table, network);
    let to = read_to(table, network, tenants);
    let link = read_link(table, network, to.map(|to| tenants[to].host));
    let sources = sources::read(table, network, tenants, to);
    let frames = datagrams::read_frames(table, network.mtu_bytes, network.ip_version);
    let numbers = numbers::read(table, kind);
    let to = to?;
    let place = Place {
        network,
        tenants,
        kind: kind?,
        link: link?,
        sources: sources?,
        frames: frames?,
    };
    let solved = place.solve(table, &numbers?)?;
    let Place {
        sources, frames, ..
    } = &place;
    Some(Hot {
        pairs: sources.tenants.iter().map(|&from| (from, to)).collect(),
        hotspot: Hotspot {
            kind: place.kind,
            link: place.link,
            offered_bps: place.offered_bps(solved.rate_bps),
            drain_bps: solved.drain_bps,
            severity: solved.severity,
            hot_hosts: sources.hot_hosts,
            hosts: sources.hosts,
            start,
            stop,
        },
        kind: frames.at(Pace::Rate(solved.rate_bps)),
    })
}

fn read_type(table: &Table<'_>, network: &Network) -> Option<HotspotType> {
    let types = [
        ("input", HotspotType::Input),
        ("output", HotspotType::Output),
    ];
    let Some(item) = table.get("type") else {
        let advice = "give \"input\" (sources offer too much) or \"output\" (a link is slow)";
        table.require("type", advice);
        return None;
    };
    let kind = item.choice(&types)?;
    if kind == HotspotType::Output {
        events::refuse_cut_through(&item, network);
    }
    Some(kind)
}

fn read_to(table: &Table<'_>, network: &Network, tenants: &[Tenant]) -> Option<usize> {
    let to = pairs::side(table, "to", network.receivers, network, tenants);
    match (to.as_slice(), table.get("to")) {
        ([to], _) => return Some(*to),
        ([], _) => {}
        (_, None) => table.require("to", "name the one receiver, for example to = \"h1\""),
        (several, Some(item)) => {
            let reason = format!("a hotspot has one receiver, not {}", several.len());
            item.complain(reason, "make a table for each");
        }
    }
    None
}

/// The link that is hot: that of the receiver, unless another is named.
fn read_link(table: &Table<'_>, network: &Network, to: Option<HostId>) -> Option<usize> {
    let Some(item) = table.get("link") else {
        return access_link(network, to?);
    };
    let names: Vec<_> = network.links.iter().map(|l| l.name.as_str()).collect();
    match select(&item, &names, "link").as_slice() {
        [link] => return Some(*link),
        [] => {}
        several => {
            let reason = format!("a hotspot is at one link, not {}", several.len());
            item.complain(reason, "make a table for each");
        }
    }
    None
}

/// A host has one.
fn access_link(network: &Network, host: HostId) -> Option<usize> {
    let host = Node::Host(host);
    let mut links = network.links.iter();
    links.position(|link| link.a == host || link.b == host)
}

/// All hot flows must cross the link that is said to be hot, and it is one hotspot's only.
pub fn check(table: &Table<'_>, variant: &Variant, graph: &Graph, routes: &Routes) {
    let Some(tables) = table.table("traffic") else {
        return;
    };
    for (name, item) in tables.named() {
        let traffic = variant.traffic.iter().position(|t| t.name == name);
        let Some((at, hotspot)) =
            traffic.and_then(|at| Some((at, variant.traffic[at].hotspot.as_ref()?)))
        else {
            continue;
        };
        let earlier = variant.traffic[..at].iter().find(|other| {
            let other = other.hotspot.as_ref();
            other.is_some_and(|other| other.link == hotspot.link && other.meets(hotspot))
        });
        if let Some(other) = earlier {
            let reason = format!(
                "traffic.{} makes a hotspot of the same link at that time",
                other.name
            );
            item.complain(
                reason,
                "make one of both, or let one end before the other begins",
            );
        }
        let routes = routes.of(variant.traffic[at].priority);
        check_link(&item, variant, at, hotspot.link, |pair| {
            always_crossed(variant, graph, routes, pair)
        });
    }
}

/// Links on every way of a pair; `None` where there is no way, which is reported elsewhere.
fn always_crossed(
    variant: &Variant,
    graph: &Graph,
    routes: &Routes,
    (from, to): (usize, usize),
) -> Option<BTreeSet<usize>> {
    let hops = routes.hops(graph, variant.tenants[from].host, variant.tenants[to].host);
    let only = hops.iter().filter(|ports| ports.len() == 1);
    let links: BTreeSet<usize> = only.map(|ports| ports[0].link()).collect();
    (!links.is_empty()).then_some(links)
}

fn check_link(
    item: &Item<'_>,
    variant: &Variant,
    traffic: usize,
    link: usize,
    crossed: impl Fn((usize, usize)) -> Option<BTreeSet<usize>>,
) {
    let Some(item) = item.table().and_then(|own| own.get("link")) else {
        return;
    };
    let pairs = &variant.traffic[traffic].pairs;
    let ways: Vec<_> = pairs
        .iter()
        .filter_map(|&pair| Some((pair, crossed(pair)?)))
        .collect();
    let Some(((from, to), _)) = ways.iter().find(|(_, links)| !links.contains(&link)) else {
        return;
    };
    let common = ways.iter().map(|(_, links)| links.clone());
    let common = common.reduce(|a, b| &a & &b).unwrap_or_default();
    let names: Vec<&str> = common
        .iter()
        .map(|&l| variant.links[l].name.as_str())
        .collect();
    let reason = format!(
        "not all that {} sends to {} crosses it",
        variant.tenants[*from].name, variant.tenants[*to].name
    );
    let advice = format!("all sources always cross {}", abbreviated(&names));
    item.complain(reason, advice);
}
