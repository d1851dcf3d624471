//! From the tree of one variant to [`Variant`].

mod cee;
mod enforcement;
mod events;
mod graph;
mod host_switch;
mod network;
mod pairs;
mod routing;
mod tenants;
mod traffic;

use std::{collections::HashSet, path::Path, time::Duration};

use sluicegate_config::{
    table::{Item, Table, nearest},
    units::parse_duration,
};

use sluicegate_fabric::{Graph, Routes};

use crate::{
    bounds,
    experiment::{
        Action, GuestKernel, Interval, LabFabric, LabOptions, LabSwitch, SimOptions, Sockets,
        Steering, Variant,
    },
    places::Places,
};

/// Advice on the form of names.
pub const NAME_ADVICE: &str = "use small letters, digits and `-`, starting with a letter";

/// Whether a name fits file names, figures and interfaces alike.
pub fn is_name(name: &str) -> bool {
    let rest_fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(rest_fits)
        && !name.ends_with('-')
        && !name.contains("--")
        && name.len() <= 40
}

/// The inputs of resolution beside the tree.
pub struct Checks<'a> {
    /// Where files that the scenario names are looked for.
    pub directory: &'a Path,
    /// Seed of random choices.
    pub seed: u64,
}

/// A frame's header; it counts on links and in buffers.
const ETHERNET_BYTES: u32 = 14;

/// Advice on times of a scenario.
const TIMES_ADVICE: &str = "times count from the start of the run, warm-up included";

/// Resolves one variant; errors go to the table's sink.
pub fn variant(name: &str, table: &Table<'_>, checks: &Checks<'_>) -> Variant {
    let warmup = duration(table, "warmup").unwrap_or(Duration::from_secs(2));
    let measured = duration(table, "duration").unwrap_or(Duration::from_secs(10));
    let total = warmup + measured;
    if measured.is_zero() {
        complain_of(table, "duration", "must not be zero");
    }
    let network = network::read(table, total);
    let tenants = tenants::read(table, &network);
    let traffic = traffic::read(table, &network, &tenants, checks, total);
    let mut variant = Variant {
        name: name.to_owned(),
        title: table.text("title").unwrap_or(name).to_owned(),
        warmup,
        duration: measured,
        ip_version: network.ip_version,
        mtu_bytes: network.mtu_bytes,
        enforcement: enforcement::read(table, &network),
        events: events::read(table, &network, &tenants, &traffic, total),
        intervals: read_intervals(table, total),
        lab: read_lab(table),
        sim: read_sim(table, total),
        places: Places::of(table),
        routing: network.routing,
        routings: network.routings.clone(),
        reroute_delay: network.reroute_delay,
        shared_memory: network.shared_memory,
        cee: network.cee.clone(),
        vnic_queue_bytes: network.vnic_queue_bytes,
        host_switch: network.host_switch,
        hosts: network.hosts.clone(),
        switches: network.switches.clone(),
        is_crossbar: network.is_crossbar,
        links: network.links.clone(),
        tenants,
        traffic,
    };
    let graph = variant.graph();
    let routes = variant.routes(&graph);
    check_paths(table, &variant, &graph, &routes);
    cee::check(table, &variant);
    routing::check_notified(table, &variant);
    host_switch::check(table, &variant);
    check_reroutes(table, &variant);
    traffic::check_hotspots(table, &variant, &graph, &routes);
    network::mark_bottlenecks(&mut variant, &network, &graph, &routes);
    variant
}

/// Routes change only when a link fails or comes back.
fn check_reroutes(root: &Table<'_>, variant: &Variant) {
    let of_links = |action: &Action| matches!(action, Action::LinkDown(_) | Action::LinkUp(_));
    let mut events = variant.events.iter();
    if events.any(|event| of_links(&event.action)) {
        return;
    }
    let item = root
        .table("network")
        .and_then(|own| own.get("reroute_delay"));
    if let Some(item) = item {
        let advice = "add an [[event]] with `link_down` or `link_up`, or leave it out";
        item.complain("no link fails or comes back", advice);
    }
}

/// `[interval.NAME]`: parts of a run that takes `total`.
fn read_intervals(table: &Table<'_>, total: Duration) -> Vec<Interval> {
    let Some(intervals) = table.table("interval") else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, item) in intervals.named() {
        if !is_name(name) {
            item.complain(format!("\"{name}\" is no name"), NAME_ADVICE);
        }
        let Some(own) = item.table() else {
            continue;
        };
        let start = duration(&own, "start").unwrap_or(Duration::ZERO);
        let stop = duration(&own, "stop").unwrap_or(total);
        own.close();
        if stop <= start || stop > total {
            item.complain(
                format!("must end after its `start` and before the run's end at {total:?}"),
                TIMES_ADVICE,
            );
        }
        all.push(Interval {
            name: name.to_owned(),
            start,
            stop,
        });
    }
    all
}

/// Checks that there is a path from each sender to its receivers, and back.
fn check_paths(table: &Table<'_>, variant: &Variant, graph: &Graph, routes: &Routes) {
    let tables = table.table("traffic").map(|traffic| traffic.named());
    let tables = tables.unwrap_or_default();
    let mut checked = HashSet::new();
    for traffic in &variant.traffic {
        let hosts = |&(from, to): &(usize, usize)| {
            let (from, to) = (variant.tenants[from].host, variant.tenants[to].host);
            [(from, to), (to, from)]
        };
        let mut ways = traffic.pairs.iter().flat_map(hosts);
        let unreachable = ways.find(|&(from, to)| {
            from != to && checked.insert((from, to)) && !routes.leads(graph, from, to)
        });
        let item = tables.iter().find(|(name, _)| *name == traffic.name);
        if let (Some((from, to)), Some((_, item))) = (unreachable, item) {
            let (from, to) = (variant.host_name(from), variant.host_name(to));
            let reason = format!("no path leads from {from} to {to}");
            item.complain(reason, "join them by a link between switches");
        }
    }
}

fn read_lab(table: &Table<'_>) -> LabOptions {
    let Some(lab) = table.table("lab") else {
        return LabOptions::default();
    };
    let is_true = |key| lab.boolean(key).unwrap_or(false);
    let options = LabOptions {
        offloads: is_true("offloads"),
        switch: lab.choice("switch", &LabSwitch::NAMED).unwrap_or_default(),
        fabric: lab.choice("fabric", &LabFabric::NAMED).unwrap_or_default(),
        guest_kernel: lab
            .choice("guest_kernel", &GuestKernel::NAMED)
            .unwrap_or_default(),
        steering: lab.choice("steering", &Steering::NAMED).unwrap_or_default(),
        accept_cpu_bound: is_true("accept_cpu_bound"),
    };
    lab.close();
    options
}

const SOCKETS: [(&str, Sockets); 3] = [
    ("small-queues", Sockets::SmallQueues),
    ("turns", Sockets::Turns),
    ("unlimited", Sockets::Unlimited),
];

fn read_sim(table: &Table<'_>, total: Duration) -> SimOptions {
    let defaults = SimOptions::default();
    let Some(sim) = table.table("sim") else {
        return defaults;
    };
    let read = |key, default| delay(&sim, key, total).unwrap_or(default);
    let options = SimOptions {
        link_delay: read("link_delay", defaults.link_delay),
        transmit_delay: read("transmit_delay", defaults.transmit_delay),
        receive_delay: read("receive_delay", defaults.receive_delay),
        jitter: read("jitter", defaults.jitter),
        jitter_mean: read("jitter_mean", defaults.jitter_mean),
        burst: read("burst", defaults.burst),
        start_spread: read("start_spread", defaults.start_spread),
        wake: wake(&sim),
        sockets: sim.choice("sockets", &SOCKETS),
    };
    sim.close();
    options
}

/// Quantiles of how late processes are.
fn wake(sim: &Table<'_>) -> Vec<Duration> {
    let Some(item) = sim.get("wake") else {
        return Vec::new();
    };
    let parsed = item.list().unwrap_or_default().into_iter();
    let quantiles: Vec<Duration> = parsed
        .filter_map(|item| item.within(&bounds::DELAY))
        .collect();
    if !quantiles.is_sorted() {
        item.complain("quantiles must not fall", "write the smallest first");
    }
    quantiles
}

/// Reports what is wrong with the value of a key.
fn complain_of(table: &Table<'_>, key: &'static str, reason: &str) {
    if let Some(item) = table.get(key) {
        item.complain(reason, "");
    }
}

/// A delay on the way of packets, in a run that takes `total`.
fn delay(table: &Table<'_>, key: &'static str, total: Duration) -> Option<Duration> {
    let item = table.get(key)?;
    let delay = item.within(&bounds::DELAY)?;
    if delay >= total && !total.is_zero() {
        let reason = format!("nothing arrives before the run ends, after {total:?}");
        item.complain(reason, "choose a shorter delay, or a longer `duration`");
        return None;
    }
    Some(delay)
}

fn duration(table: &Table<'_>, key: &'static str) -> Option<Duration> {
    table.parse(key, parse_duration)
}

fn ps(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_mul(1_000)
}

/// Positions of the names that patterns such as `"s*"` or `["s1", "s2"]` select, each once, in the
/// order of the patterns.
fn select(item: &Item<'_>, names: &[&str], what: &str) -> Vec<usize> {
    let mut selected = Vec::new();
    let mut is_selected = vec![false; names.len()];
    if names.is_empty() {
        // There is no topology, which has been reported.
        return selected;
    }
    let patterns = item.one_or_more();
    if patterns.is_empty() {
        item.complain(
            "must not be empty",
            format!("name a {what}, or leave it out"),
        );
    }
    for pattern in patterns {
        let Some(text) = pattern.text() else {
            continue;
        };
        let matching: Vec<usize> = (0..names.len())
            .filter(|at| matches(text, names[*at]))
            .collect();
        if matching.is_empty() {
            pattern.complain(
                format!("no {what} is named \"{text}\""),
                format!("known: {}{}", abbreviated(names), nearest(text, names)),
            );
        }
        for at in matching {
            if !std::mem::replace(&mut is_selected[at], true) {
                selected.push(at);
            }
        }
    }
    selected
}

/// The names, or first and last of many.
pub fn abbreviated(names: &[&str]) -> String {
    match names {
        [first, second, .., last] if names.len() > 6 => format!("{first}, {second}, … {last}"),
        _ => names.join(", "),
    }
}

/// `*` stands for any characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => match name.strip_prefix(start) {
            None => false,
            Some(tail) => (0..=tail.len())
                .filter(|at| tail.is_char_boundary(*at))
                .any(|at| matches(rest, &tail[at..])),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        assert!(matches("s*", "s12"));
        assert!(matches("*", "h1"));
        assert!(matches("s*-1", "s12-1"));
        assert!(!matches("s*", "r1"));
        assert!(!matches("s1", "s12"));
    }

    #[test]
    fn names_fit_files_figures_and_interfaces() {
        for good in ["five-stacks", "n4", "a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "4n", "A", "a_b", "a.b", "a-", "a--b", "é"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
