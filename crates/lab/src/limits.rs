//! What a scenario may ask for and the lab cannot do.

use std::collections::BTreeSet;

use sluicegate_apps::HEADER_BYTES;
use sluicegate_scenario::{
    experiment::{Action, Link, TenantKind, Traffic, TrafficKind, Variant},
    hotspot::HotspotType,
};

/// One line for each, with where it is said and what to do.
pub fn of(variant: &Variant) -> Vec<String> {
    let mut found = Vec::new();
    let mut cannot = |there: bool, table: &str, key: &str, why: &str| {
        if there {
            let place = variant.places.find(table, key);
            found.push(format!("{place}: {why}; simulate it (--world sim)"));
        }
    };
    // Connected without a cycle: one link less than nodes.
    let cyclic = variant.links.len() >= variant.hosts.len() + variant.switches.len();
    let why = "the lab's bridges know one path between two hosts only";
    cannot(cyclic, "network", "topology", why);
    let why = "each port of the lab's switches has memory of its own";
    cannot(
        variant.shared_memory.is_some(),
        "network",
        "shared_buffer",
        why,
    );
    let why = "the lab's hosts have one queue at their uplink";
    cannot(
        variant.vnic_queue_bytes.is_some(),
        "network",
        "vnic_queue",
        why,
    );
    let why = "the lab's links drop what they cannot take, and its switches notify nobody";
    cannot(variant.cee.is_some(), "network", "cee", why);
    let links = &variant.links;
    let delayed = links.iter().any(|link| link.delay.is_some());
    cannot(delayed, "network", "delay", "the lab's links have no delay");
    let impaired = |rate: fn(&Link) -> f64| links.iter().any(|link| rate(link) > 0.0);
    let why = "the lab's links do nothing to frames";
    let damaged = impaired(|link| link.impairment.bit_error_rate);
    cannot(damaged, "network", "bit_error_rate", why);
    let repeated = impaired(|link| link.impairment.duplicate_rate);
    cannot(repeated, "network", "duplicate_rate", why);
    let reordered = impaired(|link| link.impairment.reorder_rate);
    cannot(reordered, "network", "reorder_rate", why);
    let slow = variant
        .tenants
        .iter()
        .any(|tenant| tenant.read_rate_bps.is_some());
    cannot(
        slow,
        "tenant",
        "read_rate",
        "the lab's tenants read at once",
    );
    let cheat_in_guest = variant
        .tenants
        .iter()
        .any(|tenant| tenant.ignore_window && tenant.kind == TenantKind::Guest);
    let why = "the lab's program that ignores windows runs in namespaces, not in guests";
    cannot(cheat_in_guest, "tenant", "ignore_window", why);
    let events = variant.events.iter();
    let mut simulated: BTreeSet<_> = events
        .filter_map(|event| simulated(&event.action))
        .collect();
    if simulated.contains("link_down") {
        simulated.remove("link_up"); // which may be its end
    }
    if variant.traffic.iter().any(slows_a_link) {
        simulated.remove("slow_link"); // of a hotspot, which is refused below
    }
    for key in simulated {
        cannot(true, "event", key, "the lab has no such event");
    }
    found.extend(variant.traffic.iter().flat_map(|traffic| {
        let limits = of_traffic(traffic).into_iter();
        limits.map(|(key, why)| {
            let place = variant
                .places
                .at(&format!("traffic.{}.{key}", traffic.name));
            format!("{place}: {why}; simulate it (--world sim)")
        })
    }));
    found
}

/// Keys of traffic that the lab cannot do, and why.
fn of_traffic(traffic: &Traffic) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut cannot = |there: bool, key, why| found.extend(there.then_some((key, why)));
    let why = "the lab's frames have no priority";
    cannot(traffic.priority != 0, "priority", why);
    let why = "the lab's links keep their rate";
    cannot(slows_a_link(traffic), "type", why);
    if let TrafficKind::Queries {
        bytes,
        request_bytes,
        ..
    } = &traffic.kind
    {
        let why = "the lab's messages have 32 bytes at least";
        cannot(*bytes < HEADER_BYTES, "bytes", why);
        let own = *request_bytes < HEADER_BYTES && request_bytes != bytes;
        cannot(own, "request", why);
    }
    found
}

/// Whether it is a hotspot because a link serves less.
fn slows_a_link(traffic: &Traffic) -> bool {
    let hotspot = traffic.hotspot.as_ref();
    hotspot.is_some_and(|hotspot| hotspot.kind == HotspotType::Output)
}

/// The key of an event that only the simulator knows.
fn simulated(action: &Action) -> Option<&'static str> {
    match action {
        Action::Detach(_) | Action::BleachEcn => None,
        Action::LinkDown(_) => Some("link_down"),
        Action::LinkUp(_) => Some("link_up"),
        Action::Impair { .. } => Some("impair"),
        Action::LinkRate { .. } => Some("slow_link"),
        Action::Pause(_) | Action::Resume(_) => Some("pause_host"),
        Action::PauseStorm(_) | Action::EndPauseStorm(_) => Some("pause_storm"),
        Action::Babble(_) | Action::EndBabble(_) => Some("babble"),
        Action::ReadRate { .. } => Some("slow_receiver"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluicegate_scenario::file;

    use super::*;

    fn limits(network: &str, rest: &str) -> Vec<String> {
        let text = format!("[network]\n{network}[traffic.b]\nkind = 'bulk'\n{rest}");
        let parsed = file::parse(Path::new("t.toml"), &text, &file::Options::default());
        of(&parsed
            .unwrap_or_else(|problems| panic!("{problems}"))
            .variants[0])
    }

    #[test]
    fn what_only_the_simulator_does_is_refused_where_it_is_said() {
        let found = limits(
            "topology = 'dumbbell'\nshared_buffer = '1MB'\nvnic_queue = '1MB'\nlink.left-right.bit_error_rate = 1e-9\n",
            "[[event]]\nat = '3s'\nlink_down = 'left-right'\nfor = '1s'\n[tenant.r1]\nread_rate = '1Mbit'\n",
        );
        let expected = [
            "t.toml:3:17: network.shared_buffer: ",
            "t.toml:4:14: network.vnic_queue: ",
            "t.toml:5:34: network.link.left-right.bit_error_rate: ",
            "t.toml:13:13: tenant.r1.read_rate: ",
            "t.toml:10:13: event[0].link_down: ",
        ];
        assert_eq!(
            found.len(),
            expected.len(),
            "an event and its end are one: {found:#?}"
        );
        for (line, place) in found.iter().zip(expected) {
            assert!(line.starts_with(place), "{line} against {place}");
        }
        assert!(
            found
                .iter()
                .all(|line| line.ends_with("simulate it (--world sim)"))
        );
    }

    #[test]
    fn a_guest_that_ignores_windows_is_refused_and_a_namespace_is_not() {
        let pair = "topology = 'dumbbell'\npairs = 1\n";
        let found = limits(
            pair,
            "[tenant.s1]\nignore_window = true\n[tenant.r1]\nkind = 'guest'\n",
        );
        assert!(found.is_empty(), "{found:#?}");
        let found = limits(pair, "[tenant.s1]\nignore_window = true\nkind = 'guest'\n");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("t.toml:7:17: tenant.s1.ignore_window: "),
            "{}",
            found[0]
        );
    }

    #[test]
    fn what_only_the_simulator_does_of_traffic_is_refused_where_it_is_said() {
        let found = limits(
            "topology = 'dumbbell'\n",
            "[traffic.c]\nkind = 'bulk'\nphases = [{ rate = '1Mbit' }]\n\
            [traffic.d]\nkind = 'datagrams'\nrate = '1Mbit'\n\
            [traffic.e]\nkind = 'hotspot'\ntype = 'output'\nfrom = 's1'\nto = 'r1'\nrate = '1Mbit'\nseverity = 2\n\
            [traffic.f]\nkind = 'queries'\nfrom = 's1'\nrequest = '31B'\nbytes = '32B'\n\
            arrivals = { kind = 'fixed', interval = '1ms' }\n",
        );
        let expected = [
            "t.toml:13:8: traffic.e.type: ",
            "t.toml:21:11: traffic.f.request: ",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (line, place) in found.iter().zip(expected) {
            assert!(line.starts_with(place), "{line} against {place}");
        }
    }

    #[test]
    fn converged_ethernet_is_refused_where_it_is_said() {
        for text in [
            "cee = {}\n",
            "cee.pfc.priorities = [3]\n",
            "[network.cee.qcn]\n",
        ] {
            let found = limits(&format!("topology = 'dumbbell'\n{text}"), "");
            assert_eq!(found.len(), 1, "{found:#?}");
            let place = found[0].split_once(": ").map(|(place, _)| place);
            assert!(
                place.is_some_and(|place| place.starts_with("t.toml:3:")),
                "{found:#?}"
            );
            assert!(
                found[0].contains("network.cee: the lab's links drop"),
                "{found:#?}"
            );
        }
    }

    #[test]
    fn several_paths_are_refused_and_one_is_not() {
        assert!(limits("topology = 'dumbbell'\nrouting = 'flow-hash'\n", "").is_empty());
        let found = limits(
            "topology = 'k-ary-n-tree'\nk = 2\nn = 2\n",
            "pairs = 'stride:1'\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("t.toml:2:12: network.topology: the lab's bridges"));
    }
}
