//! `sluicegate flows`: what the running agent knows of each flow.

use std::{collections::BTreeMap, os::fd::AsFd, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sluicegate_agent::{
    FlowRecord,
    bpffs::{self, Pins},
    instance, interfaces,
    netns::{self, NetNs},
};

use crate::{
    columns::{Align, bytes, table},
    output::{self, Failure},
};

/// Show the flows that the agent of a network namespace knows.
///
/// Reads pinned state, so it also works while no agent runs and enforcement goes on.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One JSON document: `flows` and `counters`
    #[arg(long)]
    json: bool,

    /// Network namespace, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,

    /// Where the bpffs is
    #[arg(long, value_name = "DIR", default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,
}

/// Prints the flows.
pub fn run(args: &Args) -> Result<(), Failure> {
    output::print(&shown(args)?)
}

fn shown(args: &Args) -> Result<String> {
    let netns = NetNs::select(args.netns.as_deref())?;
    let pins = Pins::new(&args.bpffs, netns.name());
    ensure!(
        pins.exist(),
        "nothing is enforced in network namespace {}: no pins at {} (is the agent running there, with this \
         --bpffs, and are you root?)",
        netns.name(),
        pins.root().display()
    );
    let names: BTreeMap<u32, String> = netns::within(netns.as_fd(), interfaces::list)?
        .into_iter()
        .map(|interface| (interface.index, interface.name))
        .collect();
    let flows = instance::pinned_flows(&pins, &names)?;
    if !args.json {
        return Ok(text(&flows));
    }
    let counters = instance::pinned_counters(&pins)?;
    let document = json!({ "netns": netns.name(), "flows": flows, "counters": counters });
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .context("writing JSON")
}

fn text(flows: &[FlowRecord]) -> String {
    let head = [
        ("interface", Align::Left),
        ("tenant", Align::Left),
        ("peer", Align::Left),
        ("mode", Align::Left),
        ("why", Align::Left),
        ("algorithm", Align::Left),
        ("window", Align::Right),
        ("shown", Align::Right),
        ("peer's", Align::Right),
        ("alpha", Align::Right),
        ("srtt us", Align::Right),
        ("min us", Align::Right),
        ("acked", Align::Right),
        ("marked", Align::Right),
        ("losses", Align::Right),
        ("policed", Align::Right),
    ];
    let rows: Vec<Vec<String>> = flows.iter().map(row).collect();
    format!("{}{} flows\n", table(&head, &rows), flows.len())
}

fn row(flow: &FlowRecord) -> Vec<String> {
    let interface = match flow.vlan {
        Some(vlan) => format!("{}.{vlan}", flow.interface),
        None => flow.interface.clone(),
    };
    vec![
        interface,
        flow.local.to_string(),
        flow.remote.to_string(),
        flow.mode.to_owned(),
        flow.reason.unwrap_or("-").to_owned(),
        flow.algorithm.unwrap_or("-").to_owned(),
        bytes(flow.cwnd_bytes.into()),
        bytes(flow.enforced_window_bytes),
        bytes(flow.advertised_window_bytes),
        number(flow.alpha, 3),
        number(flow.srtt_us, 0),
        number(flow.min_rtt_us, 0),
        bytes(flow.acked_bytes),
        bytes(flow.marked_bytes),
        (flow.losses + flow.timeouts).to_string(),
        flow.policed.to_string(),
    ]
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}
