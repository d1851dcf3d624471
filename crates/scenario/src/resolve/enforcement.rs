//! `[enforcement]`.

use ipnet::IpNet;
use sluicegate_config::table::{Item, Table};
use sluicegate_core::cc::Algorithm;
use sluicegate_policy::Policy;

use super::{network::Network, select};
use crate::experiment::{Enforcement, HostId};

/// Reads `[enforcement]`; `None` when no host enforces.
pub fn read(root: &Table<'_>, network: &Network) -> Option<Enforcement> {
    let table = root.table("enforcement")?;
    let hosts = table.get("hosts").map(|item| read_hosts(&item, network));
    let trusted = tenants_prefix(network.ip_version);
    let (policy, policy_text) = match table.table("policy") {
        Some(policy_table) => {
            refuse_places(&policy_table);
            let says_whom = policy_table.get("trusted").is_some();
            let mut text = policy_table.item().node().to_text().unwrap_or_default();
            let mut policy = Policy::from_table(policy_table);
            if !says_whom {
                // In a scenario every host belongs to the operator.
                policy.trusted = vec![trusted];
                text = format!("{}{text}", trusts(trusted));
            }
            (policy, text)
        }
        None => {
            let policy = Policy::enforce_all(Algorithm::Dctcp, trusted);
            let rule = "[[rule]]\nmode = \"enforce\"\nalgorithm = \"dctcp\"\n";
            (policy, format!("{}{rule}", trusts(trusted)))
        }
    };
    if let Some(item) = table.get("policy_file") {
        // A name was replaced by its content when the file was read.
        item.complain("must be a file name", "");
    }
    table.close();
    let hosts = hosts.filter(|hosts| !hosts.is_empty())?;
    Some(Enforcement {
        hosts,
        policy,
        policy_text,
    })
}

fn trusts(prefix: IpNet) -> String {
    format!("trusted = [\"{prefix}\"]\n")
}

/// Names of interfaces differ from world to world, and so do the tenants without a flow.
fn refuse_places(policy: &Table<'_>) {
    for rule in policy.tables("rule") {
        for key in ["interface", "tenant", "vlan"] {
            rule.refuse(
                key,
                "is for live hosts: in a scenario every world names its interfaces in its own way",
            );
        }
    }
    policy.refuse(
        "bucket",
        "is for live hosts: what a scenario's tenants send has a flow",
    );
}

/// The prefix that spans all tenants.
fn tenants_prefix(ip_version: u8) -> IpNet {
    if ip_version == 4 {
        return ipnet::Ipv4Net::new_assert([10, 0, 0, 0].into(), 8).into();
    }
    ipnet::Ipv6Net::new_assert([0xfd00, 0, 0, 0, 0, 0, 0, 0].into(), 64).into()
}

/// `"all"`, `"none"`, or names and patterns.
pub fn read_hosts(item: &Item<'_>, network: &Network) -> Vec<HostId> {
    let word = if item.is_text() { item.text() } else { None };
    match word {
        Some("all") => HostId::first(network.hosts.len()).collect(),
        Some("none") => Vec::new(),
        _ => {
            let names: Vec<_> = network.hosts.iter().map(|h| h.name.as_str()).collect();
            let selected = select(item, &names, "host").into_iter();
            selected.map(HostId::at).collect()
        }
    }
}
