//! Reads the files that a scenario file refers to, and writes the whole as one text.
//!
//! A name of a file is relative to the file in which it stands, also if another file extends that
//! one.

use std::path::Path;

use sluicegate_config::{
    Problem, Problems,
    document::{self, Node, Value},
    problem::Complaint,
};

use crate::{bounds, cdf::Cdf};

/// Longest chain of `extends`.
const CHAIN_MAX: usize = bounds::CHAIN.most as usize;

/// Brings in what `tree`, read from `path`, takes from other files: policies, graphs, size
/// distributions and the file that it extends.
///
/// # Errors
/// Those of the other files.
pub fn inherit(tree: Node, path: &Path) -> Result<Node, Problems> {
    inherit_within(tree, path, 0)
}

fn inherit_within(mut tree: Node, path: &Path, depth: usize) -> Result<Node, Problems> {
    anchor(&mut tree, path)?;
    if let Some(short) = tree.get_mut("short") {
        anchor(short, path)?;
    }
    if let Some(Value::Table(variants)) = tree.get_mut("variant").map(|node| &mut node.value) {
        for variant in variants {
            anchor(&mut variant.node, path)?;
        }
    }
    anchor_sweep(&mut tree, path)?;
    let Some(extended) = tree.remove("extends") else {
        return Ok(tree);
    };
    let Value::Text(name) = &extended.value else {
        let complaint = Complaint::new("must be the name of a file", "");
        return Err(extended.place.problem("extends", complaint).into());
    };
    if depth >= CHAIN_MAX {
        let complaint = Complaint::new(
            format!("more than {CHAIN_MAX} files extend one another"),
            "does a file extend itself?",
        );
        return Err(extended.place.problem("extends", complaint).into());
    }
    let base_path = path.with_file_name(name);
    let mut base = inherit_within(document::read(&base_path)?, &base_path, depth + 1)?;
    base.remove("name");
    base.overlay(&tree);
    Ok(base)
}

/// Placements of ranks that are no files.
const PLACEMENTS: [&str; 2] = ["linear", "random"];

/// Makes a table of the base or of a variant independent of where `path` is.
fn anchor(tree: &mut Node, path: &Path) -> Result<(), Problems> {
    if let Some(enforcement) = tree.get_mut("enforcement") {
        include_policy(enforcement, path)?;
    }
    if let Some(network) = tree.get_mut("network") {
        include_graph(network, path)?;
    }
    if let Some(Value::Table(tables)) = tree.get_mut("traffic").map(|node| &mut node.value) {
        for traffic in tables {
            anchor_files(&mut traffic.node, path);
        }
    }
    Ok(())
}

/// The same of what the axes of a sweep set.
fn anchor_sweep(tree: &mut Node, path: &Path) -> Result<(), Problems> {
    let axes = tree
        .get_mut("sweep")
        .and_then(|sweep| sweep.get_mut("axis"));
    let Some(Value::List(axes)) = axes.map(|node| &mut node.value) else {
        return Ok(());
    };
    for axis in axes {
        if let Some(Value::Table(values)) = axis.get_mut("values").map(|node| &mut node.value) {
            for value in values {
                anchor(&mut value.node, path)?;
            }
        }
    }
    Ok(())
}

/// Puts the content of `policy_file` where `policy` stands.
fn include_policy(enforcement: &mut Node, path: &Path) -> Result<(), Problems> {
    let Some(Value::Text(name)) = enforcement.get("policy_file").map(|node| &node.value) else {
        return Ok(());
    };
    let mut policy = document::read(&path.with_file_name(name))?;
    if policy.get("trusted").is_none() {
        // A policy file without `trusted` trusts no prefix, as on a host.
        let (place, value) = (policy.place.clone(), Value::List(Vec::new()));
        policy.set("trusted", Node { place, value });
    }
    enforcement.remove("policy_file");
    enforcement.set("policy", policy);
    Ok(())
}

/// Puts the `links` of `file`, and its `switches` if it has any, where those of a graph stand.
fn include_graph(network: &mut Node, path: &Path) -> Result<(), Problems> {
    let Some(Value::Text(name)) = network.get("file").map(|node| &node.value) else {
        return Ok(());
    };
    if let Some(links) = network.get("links") {
        let complaint = Complaint::new("`file` has links, too", "leave out one of them");
        return Err(links.place.problem("network.links", complaint).into());
    }
    let graph_path = path.with_file_name(name);
    let mut graph = document::read(&graph_path)?;
    let Some(links) = graph.remove("links") else {
        let advice = "list them, as in links = [{ a = \"h1\", b = \"s1\" }, …]";
        let complaint = Complaint::new("it has no `links`", advice);
        return Err(Problem::of_file(&graph_path, complaint).into());
    };
    if let Some(switches) = graph.remove("switches") {
        if let Some(own) = network.get("switches") {
            let complaint = Complaint::new("`file` has switches, too", "leave out one of them");
            return Err(own.place.problem("network.switches", complaint).into());
        }
        network.set("switches", switches);
    }
    if let Some(extra) = graph.entries().first() {
        let complaint = Complaint::new("unknown key", "a graph has `links` and `switches` only");
        return Err(extra.place.problem(&extra.key, complaint).into());
    }
    network.remove("file");
    network.set("links", links);
    Ok(())
}

/// Turns the paths of files that traffic names into ones that hold everywhere.
fn anchor_files(traffic: &mut Node, path: &Path) {
    let is_word = |key: &str, name: &str| match key {
        "sizes" => Cdf::built_in_names().any(|known| known == name),
        "placement" => PLACEMENTS.contains(&name),
        _ => false,
    };
    for key in ["sizes", "goal", "placement"] {
        let Some(Value::Text(name)) = traffic.get_mut(key).map(|node| &mut node.value) else {
            continue;
        };
        if !is_word(key, name) {
            let beside = path.with_file_name(&*name);
            // Without a current directory the relative path is as good as any.
            let absolute = std::path::absolute(&beside).unwrap_or(beside);
            *name = absolute.display().to_string();
        }
    }
}

/// The tree as TOML text, to be run again.
///
/// # Errors
/// The tree holds what TOML cannot, which no parsed file does.
pub fn to_text(tree: &Node, path: &Path) -> Result<String, Problems> {
    let text = tree
        .to_text()
        .map_err(|complaint| Problem::of_file(path, complaint))?;
    Ok(format!(
        "# As run: everything that it takes from other files is merged in.\n{text}"
    ))
}
