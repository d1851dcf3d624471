//! `topology = "graph"`: the links as they are listed.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_config::table::Table;

use super::{
    NAME_ADVICE, is_name,
    network::{Builder, read_link},
    select,
};
use crate::experiment::{Node, SwitchId};

/// An end of a link that has none.
const UNPLACED: Node = Node::Switch(SwitchId(0));

/// Reads `links`. A node with one link is a host unless it is one of the `switches`, any other a
/// switch; both are numbered in the order of the list.
pub fn read(table: &Table<'_>, builder: &mut Builder<'_>) {
    if let Some(item) = table.get("file") {
        // A name was replaced by its content when the file was read.
        item.complain("must be a file name", "");
    }
    let entries = table.tables("links");
    if entries.is_empty() {
        let advice = "list them, as in links = [{ a = \"h1\", b = \"s1\" }, …], or name the `file` that does";
        table.require("links", advice);
    }
    let mut wrong = BTreeSet::new();
    let ends: Vec<Ends<'_>> = (entries.iter())
        .map(|entry| read_ends(entry, &mut wrong))
        .collect();
    let is_complete = ends.iter().all(Option::is_some);
    let declared = read_switches(table, &ends);
    let nodes = add_nodes(ends.iter().flatten().copied(), &declared, builder);
    let is_plain = refuse_dual_homed(&entries, &ends, &declared, &nodes);
    if !entries.is_empty() && is_complete && is_plain && builder.network.hosts.len() < 2 {
        let advice = "a host is a node that stands in one entry of `links` only";
        table.item().complain("fewer than two hosts", advice);
    }
    let (total, converged) = (builder.defaults.total, builder.network.cee.is_some());
    let mut known = BTreeSet::new();
    for (entry, ends) in entries.into_iter().zip(ends) {
        // What an entry without ends has of its own is read all the same.
        let Some((a, b)) = ends else {
            let mut link = builder.new_link(String::new(), UNPLACED, UNPLACED);
            read_link(&entry, &mut link, total, converged);
            entry.close();
            continue;
        };
        // As everywhere: the switch before the host.
        let (first, second) = match (nodes[a], nodes[b]) {
            (host @ Node::Host(_), switch @ Node::Switch(_)) => (switch, host),
            as_listed => as_listed,
        };
        builder.link(first, second);
        if let Some(link) = builder.network.links.last_mut() {
            read_link(&entry, link, total, converged);
            // Results speak of both directions.
            if !(known.insert(format!("{a}-{b}")) && known.insert(format!("{b}-{a}"))) {
                let reason = format!("there is a link {} already", link.name);
                let advice = "raise its rate, or put a switch between";
                entry.item().complain(reason, advice);
            }
        }
        entry.close();
    }
    if !(is_complete && is_plain) {
        builder.network.forget_nodes();
    }
}

/// The ends of an entry. A name that is `wrong` is reported where it is met first, and is a node
/// like any other, so that nothing else is found wrong because of it.
fn read_ends<'a>(entry: &Table<'a>, wrong: &mut BTreeSet<&'a str>) -> Ends<'a> {
    let mut end = |key| {
        let Some(item) = entry.get(key) else {
            entry.require(key, "a link joins two nodes, a and b");
            return None;
        };
        let name = item.text()?;
        if !is_name(name) && wrong.insert(name) {
            item.complain(format!("\"{name}\" is no name"), NAME_ADVICE);
        }
        Some(name)
    };
    let (a, b) = (end("a"), end("b"));
    if a.is_some() && a == b {
        let reason = "a link joins two different nodes";
        entry.item().complain(reason, "");
        return None;
    }
    Some((a?, b?))
}

/// The two nodes of an entry, if it has them.
type Ends<'a> = Option<(&'a str, &'a str)>;

/// The nodes that `switches` declares.
fn read_switches<'a>(table: &Table<'_>, ends: &[Ends<'a>]) -> BTreeSet<&'a str> {
    let Some(item) = table.get("switches") else {
        return BTreeSet::new();
    };
    let names: BTreeSet<&str> = ends.iter().flatten().flat_map(|(a, b)| [*a, *b]).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let declared = select(&item, &names, "node").into_iter();
    declared.map(|at| names[at]).collect()
}

/// Adds every node once.
fn add_nodes<'a>(
    ends: impl Iterator<Item = (&'a str, &'a str)>,
    declared: &BTreeSet<&str>,
    builder: &mut Builder<'_>,
) -> BTreeMap<&'a str, Node> {
    let names: Vec<&str> = ends.flat_map(|(a, b)| [a, b]).collect();
    let mut links: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &names {
        *links.entry(name).or_default() += 1;
    }
    let mut nodes = BTreeMap::new();
    for name in names {
        nodes.entry(name).or_insert_with(|| {
            if links[name] > 1 || declared.contains(name) {
                return Node::Switch(builder.switch(name));
            }
            Node::Host(builder.lone_host(name.to_owned()))
        });
    }
    nodes
}

/// A name with its numbers left out: h1 and h20 are alike, h is another.
fn shape(name: &str) -> String {
    let mut shape = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if shape.ends_with('0') => (),
            true => shape.push('0'),
            false => shape.push(c),
        }
    }
    shape
}

/// Reports nodes with several neighbours that are named like hosts, such as h2 beside h1: hosts
/// with two adapters are no switches, and would carry the traffic of others as such. False if there
/// are any.
fn refuse_dual_homed<'a>(
    entries: &[Table<'a>],
    ends: &[Ends<'a>],
    declared: &BTreeSet<&str>,
    nodes: &BTreeMap<&str, Node>,
) -> bool {
    let hosts = nodes
        .iter()
        .filter(|(_, node)| matches!(node, Node::Host(_)));
    let hosts: BTreeMap<String, &str> = hosts.map(|(name, _)| (shape(name), *name)).collect();
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut refused = BTreeSet::new();
    for (entry, (a, b)) in entries
        .iter()
        .zip(ends)
        .filter_map(|(e, ends)| Some((e, (*ends)?)))
    {
        for (key, name, other) in [("a", a, b), ("b", b, a)] {
            let one = *first.entry(name).or_insert(other);
            let is_alone = one == other || !matches!(nodes[name], Node::Switch(_));
            let like = hosts.get(&shape(name)).filter(|like| **like != name);
            if let (Some(like), Some(item), false) = (like, entry.get(key), is_alone) {
                if declared.contains(name) || !refused.insert(name) {
                    continue;
                }
                let reason = format!(
                    "\"{name}\" has several links and is named like the host {like}, but only \
                     switches have several: it would carry the traffic of others"
                );
                let advice =
                    format!("give a host one link; if it is a switch, add switches = [\"{name}\"]");
                item.complain(reason, advice);
            }
        }
    }
    refused.is_empty()
}
