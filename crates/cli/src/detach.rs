//! `sluicegate detach`: end enforcement and leave nothing behind.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use sluicegate_agent::{
    bpffs,
    detach::{self, Report},
    inventory::Inventory,
    state,
};

use crate::output::{self, Failure};

/// End enforcement in every network namespace: links, programs, maps and pins are removed.
///
/// For what a killed agent left running. Stop a running one first: it attaches again within 10
/// seconds. Exits with 1 if anything of it still exists afterwards, or could not be looked into.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Everything pinned, in every namespace
    #[arg(long, required = true)]
    all: bool,

    /// Where the bpffs is
    #[arg(long, value_name = "DIR", default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,

    /// Where agents say what they do
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,

    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Detaches, verifies and reports.
pub fn run(args: &Args) -> Result<(), Failure> {
    let agents = state::all(&args.run_dir);
    for failure in &agents.failures {
        output::say(&format!(
            "warning: an agent may run and will attach again then, which cannot be told: {failure}"
        ));
    }
    for agent in agents.states {
        if agent.is_running() && agent.bpffs == args.bpffs {
            let (pid, netns) = (agent.pid, &agent.netns);
            output::say(&format!(
                "warning: the agent of network namespace {netns} runs (process {pid}) and will attach again: stop it first \
                 (systemctl stop sluicegate, or kill {pid})"
            ));
        }
    }
    let report = detach::all(&args.bpffs, &args.run_dir)?;
    if args.json {
        let document = serde_json::to_string_pretty(&report).context("writing JSON")?;
        output::print(&(document + "\n"))?;
    } else {
        output::print(&text(&report))?;
    }
    if !report.remaining.is_empty() {
        return Err(anyhow!("{} are still there", amounts(&report.remaining)).into());
    }
    match report.failures.as_slice() {
        [] => Ok(()),
        failures => {
            Err(anyhow!("{} of the pins were in the way, see above", failures.len()).into())
        }
    }
}

fn text(report: &Report) -> String {
    let mut text = if report.netns.is_empty() {
        "nothing was pinned\n".to_owned()
    } else {
        format!(
            "removed {} of network namespace {}\n",
            amounts(&report.removed),
            report.netns.join(", ")
        )
    };
    for failure in &report.failures {
        text.push_str(&format!("failed: {failure}\n"));
    }
    if report.remaining.is_empty() {
        text.push_str("nothing of it is left\n");
    } else {
        text.push_str(&format!("still there: {}\n", amounts(&report.remaining)));
        for (pid, command) in &report.holders {
            text.push_str(&format!(
                "  process {pid} ({command}) holds some of it: stop it (kill {pid})\n"
            ));
        }
    }
    if !report.foreign.is_empty() {
        text.push_str(&format!(
            "not ours to remove: {} held open by other processes, such as a lab run in progress\n",
            amounts(&report.foreign)
        ));
    }
    text
}

fn amounts(inventory: &Inventory) -> String {
    format!(
        "{} programs, {} maps, {} links",
        inventory.programs.len(),
        inventory.maps.len(),
        inventory.links.len()
    )
}
