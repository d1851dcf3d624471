//! `network.routing` and what belongs to one scheme.

use std::time::Duration;

use sluicegate_config::{bound::Bound, table::Table};
use sluicegate_fabric::{
    Routing,
    cee::CeeConfig,
    routing::{DropPath, LimitPaths, SelectPath, Split},
};

use super::ps;
use crate::{
    bounds,
    experiment::{Traffic, Variant},
};

const SELECT: [(&str, SelectPath); 2] =
    [("next", SelectPath::Next), ("random", SelectPath::Random)];

const DROP: [(&str, DropPath); 2] = [("slowest", DropPath::Slowest), ("newest", DropPath::Newest)];

const LIMIT: [(&str, LimitPaths); 2] = [
    ("notified", LimitPaths::Notified),
    ("exhausted", LimitPaths::Exhausted),
];

const SPLITS: [(&str, Split); 2] = [("binary", Split::Binary), ("fractional", Split::Fractional)];

/// Reads the scheme of `[network]`.
pub fn read(table: &Table<'_>) -> Routing {
    let mut routing = table.choice("routing", &Routing::NAMES).unwrap_or_default();
    match &mut routing {
        Routing::Flowlet { gap_ps } | Routing::Conga { gap_ps } => {
            time(table, "flowlet_gap", &bounds::GAP, gap_ps)
        }
        Routing::Plb(rules) => {
            rounds(
                table,
                "rehash_rounds",
                &bounds::REHASH_ROUNDS,
                &mut rules.rounds,
            );
            rounds(
                table,
                "idle_rehash_rounds",
                &bounds::IDLE_REHASH_ROUNDS,
                &mut rules.idle_rounds,
            );
        }
        Routing::SwitchAdaptive(rules) => {
            rules.split = table.choice("split", &SPLITS).unwrap_or(rules.split);
            time(
                table,
                "congestion_timeout",
                &bounds::GAP,
                &mut rules.timeout_ps,
            );
        }
        Routing::R2c2(rules) | Routing::R3c2(rules) => {
            rules.select = table.choice("select_path", &SELECT).unwrap_or(rules.select);
            rules.drop = table.choice("drop_path", &DROP).unwrap_or(rules.drop);
            time(
                table,
                "path_timer",
                &bounds::PATH_TIMER,
                &mut rules.timer_ps,
            );
        }
        _ => {}
    }
    if let Routing::R3c2(rules) = &mut routing {
        rules.limit = table.choice("limit_paths", &LIMIT).unwrap_or(rules.limit);
    }
    refuse(table, routing);
    routing
}

/// Reads `routings` of `[network.cee]`: priorities, bit p for priority p, and their scheme.
pub fn read_of_priorities(network: &Table<'_>) -> Vec<(u8, Routing)> {
    let Some(cee) = network.table("cee") else {
        return Vec::new();
    };
    let mut taken = 0;
    let mut read_one = |own: Table<'_>| {
        let priorities = own.get("priorities").map_or(0, |item| {
            let priorities = item.priorities();
            if item.one_or_more().is_empty() {
                item.complain("must not be empty", "for example priorities = [3]");
            }
            let twice = priorities & taken;
            if twice != 0 {
                let reason = format!("priority {} has a scheme already", twice.trailing_zeros());
                item.complain(reason, "a priority has one scheme");
            }
            priorities
        });
        if priorities == 0 && own.get("priorities").is_none() {
            own.require("priorities", "for example priorities = [3]");
        }
        if own.get("routing").is_none() {
            own.require("routing", "for example routing = \"spray\"");
        }
        taken |= priorities;
        let routing = read(&own);
        own.close();
        (priorities, routing)
    };
    let tables = cee.tables("routings").into_iter();
    tables.map(&mut read_one).collect()
}

/// [`check`] for each of them.
pub fn check_of_priorities(network: &Table<'_>, all: &[(u8, Routing)], cee: Option<&CeeConfig>) {
    let tables = network.table("cee").map(|cee| cee.tables("routings"));
    for (own, &(_, routing)) in tables.iter().flatten().zip(all) {
        check(own, routing, cee);
    }
}

/// Reads the scheme of traffic that has its own; its priority has this one.
pub fn read_own(traffic: &Table<'_>, common: Routing) -> Option<Routing> {
    let named = Routing::NAMES.into_iter();
    let hashed: Vec<_> = named.filter(|(_, scheme)| scheme.is_hashed()).collect();
    let item = traffic.get("routing")?;
    let own = traffic.choice("routing", &hashed)?;
    if common.is_hashed() {
        // The common one has its keys.
        let is_the_same = std::mem::discriminant(&own) == std::mem::discriminant(&common);
        return (!is_the_same).then_some(own);
    }
    let names: Vec<_> = hashed
        .iter()
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    item.complain(
        "needs switches that hash path values",
        format!(
            "set `network.routing`, or that of its priority, to one of {}",
            names.join(", ")
        ),
    );
    None
}

/// A number of rounds.
fn rounds(table: &Table<'_>, key: &'static str, bound: &Bound<i64>, rounds: &mut u8) {
    if let Some(own) = table.within(key, bound) {
        *rounds = own as u8;
    }
}

/// A time of the scheme, ps.
fn time(table: &Table<'_>, key: &'static str, bound: &Bound<Duration>, time_ps: &mut u64) {
    if let Some(own) = table.within(key, bound) {
        *time_ps = ps(own);
    }
}

/// Keys of schemes that are not chosen.
fn refuse(table: &Table<'_>, routing: Routing) {
    if !matches!(routing, Routing::Flowlet { .. } | Routing::Conga { .. }) {
        table.refuse("flowlet_gap", "needs `routing = \"flowlet\"` or \"conga\"");
    }
    if !matches!(routing, Routing::Plb(_)) {
        for key in ["rehash_rounds", "idle_rehash_rounds"] {
            table.refuse(key, "needs `routing = \"plb\"`");
        }
    }
    if !matches!(routing, Routing::SwitchAdaptive(_)) {
        for key in ["split", "congestion_timeout"] {
            table.refuse(key, "needs `routing = \"switch-adaptive\"`");
        }
    }
    if !matches!(routing, Routing::R2c2(_) | Routing::R3c2(_)) {
        for key in ["select_path", "drop_path", "path_timer"] {
            table.refuse(key, "needs `routing = \"r2c2\"` or \"r3c2\"");
        }
    }
    if !matches!(routing, Routing::R3c2(_)) {
        table.refuse("limit_paths", "needs `routing = \"r3c2\"`");
    }
}

/// Whether the network has what its scheme reacts to.
pub fn check(table: &Table<'_>, routing: Routing, cee: Option<&CeeConfig>) {
    let has_notifications = cee.is_some_and(|cee| cee.qcn.is_some());
    let Some(item) = table.get("routing") else {
        return;
    };
    if routing.needs_notifications() && !has_notifications {
        let advice = "add [network.cee.qcn]; with `rate_limiters = false` it serves routing alone";
        item.complain("reacts to the notifications of converged Ethernet", advice);
    }
    if matches!(routing, Routing::Conga { .. }) && cee.is_some() {
        let reason = "measures links of plain Ethernet";
        item.complain(reason, "leave out [network.cee], or choose another scheme");
    }
}

/// Whether switches notify the sources of traffic whose scheme reacts to notifications.
pub fn check_notified(root: &Table<'_>, variant: &Variant) {
    let qcn = variant.cee.as_ref().and_then(|cee| cee.qcn.as_ref());
    let (Some(qcn), Some(network)) = (qcn, root.table("network")) else {
        return;
    };
    let is_deaf = |traffic: &&Traffic| {
        let reacts = variant.routing_of(traffic.priority).needs_notifications();
        reacts && qcn.priorities >> traffic.priority & 1 == 0
    };
    let Some(traffic) = variant.traffic.iter().find(is_deaf) else {
        return;
    };
    let priority = traffic.priority;
    let own = (variant.routings.iter()).position(|(of, _)| of >> priority & 1 != 0);
    let tables = network.table("cee").map(|cee| cee.tables("routings"));
    let own = own.and_then(|at| tables?.into_iter().nth(at));
    let table = own.unwrap_or(network);
    let item = table.get("routing");
    item.as_ref().unwrap_or(table.item()).complain(
        format!(
            "reacts to notifications, and priority {priority}, that of traffic {}, has none",
            traffic.name
        ),
        format!("add {priority} to `priorities` of [network.cee.qcn], or choose another scheme"),
    );
}
