//! `[enforcement]` and `[[event]]`.

use std::time::Duration;

use ipnet::IpNet;
use sluicegate_policy::{
    Algorithm, Policy,
    table::{Item, Table},
};

use super::{duration, network::Network, select};
use crate::experiment::{Action, Enforcement, Event};

/// Reads `[enforcement]`; `None` when no host enforces.
pub fn read(root: &Table<'_>, network: &Network) -> Option<Enforcement> {
    let table = root.table("enforcement")?;
    let hosts = table.get("hosts").map(|item| read_hosts(&item, network));
    let trusted = tenants_prefix(network.ip_version);
    let policy = match table.table("policy") {
        Some(policy_table) => {
            let says_whom = policy_table.get("trusted").is_some();
            let mut policy = Policy::from_table(policy_table);
            if !says_whom {
                // In a scenario every host belongs to the operator.
                policy.trusted = vec![trusted];
            }
            policy
        }
        None => Policy::enforce_all(Algorithm::Dctcp, trusted),
    };
    if let Some(item) = table.get("policy_file") {
        // A name was replaced by its content when the file was read.
        item.complain("must be a file name", "");
    }
    table.close();
    let hosts = hosts.filter(|hosts| !hosts.is_empty())?;
    Some(Enforcement { hosts, policy })
}

/// The prefix that spans all tenants.
fn tenants_prefix(ip_version: u8) -> IpNet {
    if ip_version == 4 {
        return ipnet::Ipv4Net::new_assert([10, 0, 0, 0].into(), 8).into();
    }
    ipnet::Ipv6Net::new_assert([0xfd00, 0, 0, 0, 0, 0, 0, 0].into(), 64).into()
}

fn read_hosts(item: &Item<'_>, network: &Network) -> Vec<usize> {
    let word = if item.is_text() { item.text() } else { None };
    match word {
        Some("all") => (0..network.hosts.len()).collect(),
        Some("none") => Vec::new(),
        _ => {
            let names: Vec<_> = network.hosts.iter().map(|h| h.name.as_str()).collect();
            select(item, &names, "host")
        }
    }
}

/// Reads `[[event]]`, ordered by time.
pub fn read_events(root: &Table<'_>, network: &Network, end: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    for table in root.tables("event") {
        events.extend(read_event(&table, network, end));
        table.close();
    }
    events.sort_by_key(|event| event.at);
    events
}

fn read_event(table: &Table<'_>, network: &Network, end: Duration) -> Option<Event> {
    let at = duration(table, "at");
    if at.is_none() && table.get("at").is_none() {
        table.require(
            "at",
            "give the time since the start of the run, warm-up included",
        );
    }
    if at.is_some_and(|at| at >= end) {
        table
            .item()
            .complain("happens after the run has ended", "choose an earlier `at`");
    }
    let detach = table.get("detach").map(|item| read_hosts(&item, network));
    let bleach = table.boolean("bleach_ecn").unwrap_or(false);
    let action = match (detach, bleach) {
        (Some(hosts), false) => Action::Detach(hosts),
        (None, true) => Action::BleachEcn,
        _ => {
            let advice = "give either `detach = [\"r1\"]` or `bleach_ecn = true`";
            table.item().complain("an event does one thing", advice);
            return None;
        }
    };
    at.map(|at| Event { at, action })
}
