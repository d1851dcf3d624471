//! The senders of a hotspot: `from` or `degree`.

use std::collections::{BTreeSet, HashSet};

use sluicegate_config::{
    problem::Complaint,
    table::{Item, Table},
};

use crate::bounds;

use super::{Network, Tenant, matches, pairs};

/// The senders.
pub struct Sources {
    /// Tenant ids.
    pub tenants: Vec<usize>,
    pub hot_hosts: usize,
    /// All that may send.
    pub hosts: usize,
}

pub fn read(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    to: Option<usize>,
) -> Option<Sources> {
    let all = senders(network, tenants);
    let hot = match (table.get("from"), table.get("degree")) {
        (Some(item), degree) => {
            let named = named(table, &item, network, tenants, to);
            if degree.is_some() {
                table.refuse("degree", "`from` says it");
                return None;
            }
            named
        }
        (None, Some(item)) => to.and_then(|to| drawn(&item, &all, tenants, to)),
        (None, None) => {
            let advice = "say how many of all sources are hot, for example degree = \"25%\", or name them with `from`";
            table.require("degree", advice);
            None
        }
    }?;
    let host = |&tenant: &usize| tenants[tenant].host;
    let hot_hosts: BTreeSet<_> = hot.iter().map(host).collect();
    let all: BTreeSet<_> = all.iter().map(host).collect();
    Some(Sources {
        hot_hosts: hot_hosts.len(),
        hosts: all.union(&hot_hosts).count(),
        tenants: hot,
    })
}

/// The first tenant of each host that sends where nothing else is said.
fn senders(network: &Network, tenants: &[Tenant]) -> Vec<usize> {
    let mut hosts = HashSet::new();
    let mut sends =
        |tenant: &Tenant| matches(network.senders, &tenant.name) && hosts.insert(tenant.host);
    (0..tenants.len())
        .filter(|&at| sends(&tenants[at]))
        .collect()
}

/// Those of `from` but the receiver.
fn named(
    table: &Table<'_>,
    item: &Item<'_>,
    network: &Network,
    tenants: &[Tenant],
    to: Option<usize>,
) -> Option<Vec<usize>> {
    let mut hot = pairs::side(table, "from", network.senders, network, tenants);
    let to = to?;
    if hot.is_empty() {
        return None;
    }
    hot.retain(|from| *from != to);
    if let Some(from) = hot
        .iter()
        .find(|&&from| tenants[from].host == tenants[to].host)
    {
        let (from, to) = (&tenants[*from].name, &tenants[to].name);
        let reason = format!("{from} lives on the host of {to}: what it sends crosses no link");
        item.complain(reason, "leave it out");
        return None;
    }
    if hot.is_empty() {
        item.complain(
            "no tenant sends to another",
            "name a tenant other than the receiver",
        );
        return None;
    }
    Some(hot)
}

/// As many as `degree` says, evenly spread over all from the one behind the receiver on.
fn drawn(item: &Item<'_>, all: &[usize], tenants: &[Tenant], to: usize) -> Option<Vec<usize>> {
    let degree = item.parse(parse_degree)?;
    let at = all
        .iter()
        .position(|&t| tenants[t].host == tenants[to].host);
    let most = all.len() - usize::from(at.is_some());
    let count = ((degree * all.len() as f64).round() as usize).min(most);
    if count == 0 {
        let reason = format!("that is none of {} hosts", all.len());
        item.complain(reason, format!("one of them is {}", percent(1, all.len())));
        return None;
    }
    let first = at.map_or(0, |at| at + 1);
    // The receiver is last, and the last one is taken only with all others.
    let spread = (0..count).map(|i| all[(first + i * all.len() / count) % all.len()]);
    Some(spread.collect())
}

/// A part of all, 0..=1.
fn parse_degree(text: &str) -> Result<f64, Complaint> {
    let number = text.trim().strip_suffix('%').map(str::trim);
    let percent = number.and_then(|number| number.parse::<f64>().ok());
    match percent.filter(|percent| *percent > 0.0 && bounds::HOT_DEGREE.allows(*percent)) {
        Some(percent) => Ok(percent / 100.0),
        None => Err(Complaint::new(
            format!("\"{text}\" is no part of all sources"),
            "write for example \"12.5%\", up to \"100%\": all but the receiver",
        )),
    }
}

/// The least percentage with one decimal that makes `count` of `all`.
pub fn percent(count: usize, all: usize) -> String {
    format!("\"{}%\"", (count * 1000).div_ceil(all.max(1)) as f64 / 10.0)
}
