//! Whether open loops offer more than links carry: queues then grow for as long as the run lasts.

use std::{collections::BTreeMap, time::Duration};

use sluicegate_fabric::{Graph, Routes};

use crate::experiment::{Experiment, Load, PortId, Traffic, TrafficKind, Variant};

/// A line for people for each variant whose links are offered more than they carry.
pub fn overloads(experiment: &Experiment) -> Vec<String> {
    let variants = experiment.variants.iter();
    variants.filter_map(overload).collect()
}

/// A line for people if more payload is offered to a link than it carries; none otherwise.
fn overload(variant: &Variant) -> Option<String> {
    let open: Vec<(&Traffic, f64)> = (variant.traffic.iter())
        .filter_map(|traffic| Some((traffic, sender_bps(&traffic.kind)?)))
        .collect();
    if open.is_empty() {
        return None;
    }
    let graph = variant.graph();
    let routes = variant.routes(&graph);
    // The load is highest where one begins.
    let loads = open.iter().map(|(first, _)| {
        let active = |traffic: &Traffic| is_active(traffic, first.start);
        let active = open.iter().filter(|(traffic, _)| active(traffic));
        let mut ports_bps = vec![0.0; variant.ports().len()];
        for &(traffic, sender_bps) in active {
            add(
                variant,
                traffic,
                sender_bps,
                &graph,
                &routes,
                &mut ports_bps,
            );
        }
        ports_bps
    });
    let worst = loads.filter_map(|ports_bps| worst(variant, &ports_bps));
    let (_, line) = worst.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(format!("{}: {line}", variant.name))
}

/// The rate that each sender offers in bit/s, if it does not wait for the network.
fn sender_bps(kind: &TrafficKind) -> Option<f64> {
    match kind {
        TrafficKind::Messages {
            bytes, interval, ..
        } => Some(*bytes as f64 * 8.0 / interval.as_secs_f64()),
        TrafficKind::Trace {
            load: Load::Offered(bps),
            ..
        } => Some(*bps as f64),
        TrafficKind::Trace {
            load: Load::Arrivals(arrivals),
            sizes,
            ..
        } => Some(sizes.mean_bytes() * 8.0 / arrivals.mean_s()),
        // Not counted: they are no messages, they wait for each other, or (queries) their servers
        // are chosen by lot.
        TrafficKind::Bulk { .. }
        | TrafficKind::Phased { .. }
        | TrafficKind::Blast { .. }
        | TrafficKind::Datagrams { .. }
        | TrafficKind::PingPong { .. }
        | TrafficKind::Incast { .. }
        | TrafficKind::Shuffle { .. }
        | TrafficKind::Queries { .. }
        | TrafficKind::Program { .. }
        | TrafficKind::Trace {
            load: Load::Concurrent(_),
            ..
        } => None,
    }
}

fn is_active(traffic: &Traffic, at: Duration) -> bool {
    traffic.start <= at && traffic.stop.is_none_or(|stop| at < stop)
}

/// Adds what this traffic offers to each port. A sender's peers have equal parts of it, equal paths
/// of a hop, too.
fn add(
    variant: &Variant,
    traffic: &Traffic,
    sender_bps: f64,
    graph: &Graph,
    routes: &Routes,
    ports_bps: &mut [f64],
) {
    let mut peers: BTreeMap<usize, f64> = BTreeMap::new();
    for (from, _) in &traffic.pairs {
        *peers.entry(*from).or_default() += 1.0;
    }
    for (from, to) in &traffic.pairs {
        let hosts = (variant.tenants[*from].host, variant.tenants[*to].host);
        if hosts.0 == hosts.1 {
            continue;
        }
        for ports in routes.of(traffic.priority).hops(graph, hosts.0, hosts.1) {
            let share_bps = sender_bps / peers[from] / ports.len() as f64;
            for port in ports {
                ports_bps[port.index()] += share_bps;
            }
        }
    }
}

/// The link that is offered most of what it carries, if that is too much: how much of it, and a
/// line.
fn worst(variant: &Variant, ports_bps: &[f64]) -> Option<(f64, String)> {
    let rate_bps = |port: PortId| variant.links[port.link()].rate_bps as f64;
    let parts = PortId::enumerate(ports_bps);
    let parts = parts.map(|(port, offered_bps)| (offered_bps / rate_bps(port), port));
    let too_much: Vec<(f64, PortId)> = parts.filter(|(part, _)| *part > 1.0).collect();
    let &(part, port) = (too_much.iter()).max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let others = match too_much.len() - 1 {
        0 => String::new(),
        count => format!(", and {count} more links are overloaded"),
    };
    let line = format!(
        "messages of {:.1} Mb/s are offered to {}, which carries {:.1} Mb/s{others}: \
         the backlog of messages grows for as long as the run lasts",
        ports_bps[port.index()] / 1e6,
        variant.port_name(port),
        rate_bps(port) / 1e6,
    );
    Some((part, line))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file;

    fn of(traffic: &str) -> Option<String> {
        let text = format!("[network]\ntopology = 'star'\nhosts = 4\nrate = '100Mbit'\n{traffic}");
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        overload(
            &parsed
                .unwrap_or_else(|problems| panic!("{problems}"))
                .variants[0],
        )
    }

    #[test]
    fn what_meets_at_a_link_is_added_up() {
        let trace = |from: &str, load: &str| {
            format!(
                "[traffic.t]\nkind = 'trace'\nfrom = {from}\nto = 'h1'\nsizes = 'websearch'\nload = '{load}'\n"
            )
        };
        assert_eq!(of(&trace("['h2', 'h3']", "45Mbit")), None);
        let line = of(&trace("['h2', 'h3', 'h4']", "45Mbit")).unwrap();
        assert!(
            line.starts_with(
                "base: messages of 135.0 Mb/s are offered to switch>h1, which carries 100.0 Mb/s: "
            ),
            "{line}"
        );
        let line = of(&trace("['h2', 'h3']", "150Mbit")).unwrap();
        assert!(
            line.contains("300.0 Mb/s are offered to switch>h1")
                && line.contains("and 2 more links"),
            "{line}"
        );
        assert_eq!(
            of("[traffic.b]\nkind = 'bulk'\nfrom = 'h*'\nto = 'h1'\n"),
            None
        );
    }

    #[test]
    fn what_comes_after_the_other_is_not() {
        let messages = |when: &str| {
            format!(
                "[traffic.a]\nkind = 'messages'\nfrom = 'h2'\nto = 'h1'\nbytes = '75KB'\ninterval = '10ms'\nstop = '5s'\n\
                [traffic.b]\nkind = 'messages'\nfrom = 'h3'\nto = 'h1'\nbytes = '75KB'\ninterval = '10ms'\nstart = '{when}'\n"
            )
        };
        assert_eq!(of(&messages("5s")), None);
        assert!(of(&messages("4s")).unwrap().contains("120.0 Mb/s"));
    }
}
