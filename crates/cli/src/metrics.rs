//! `sluicegate metrics`: what Prometheus reads, without an agent that serves it.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, ensure};
use sluicegate_agent::{
    bpffs::{self, Pins},
    meter::{
        Snapshot,
        exposition::Exposition,
        pinned_programs,
        serve::{Meter, PERIOD, interface_names},
    },
    netns::NetNs,
    state,
};

use crate::output::{self, Failure};

/// Print metrics in Prometheus' text format.
///
/// Reads pinned state, so it also works while no agent runs and enforcement goes on. For node_exporter's textfile
/// collector; where the agent can be scraped, `sluicegate agent --metrics ADDRESS:PORT` is simpler.
///
/// Sums over flows that come and go (`sluicegate_tenant_…`) and distributions need one who looks again and again:
/// they are there with --follow only.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: sluicegate metrics --follow --output /var/lib/prometheus/node-exporter/sluicegate.prom"
)]
pub struct Args {
    /// Replace this file at once instead of printing
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Again every 5 seconds, until stopped
    #[arg(long, requires = "output")]
    follow: bool,

    /// Network namespace, as `ip netns` names it [default: the current one]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,

    /// Where the bpffs is
    #[arg(long, value_name = "DIR", default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,

    /// Where the agent says what interfaces and rules are called
    #[arg(long, value_name = "DIR", default_value = state::RUN_DIR)]
    run_dir: PathBuf,
}

/// Prints or writes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let netns = NetNs::select(args.netns.as_deref())?;
    if args.netns.is_some() {
        netns.enter()?;
    }
    let pins = Pins::new(&args.bpffs, netns.name());
    if let (true, Some(output)) = (args.follow, &args.output) {
        return Ok(follow(pins, netns.name(), &args.run_dir, output)?);
    }
    let text = once(&pins, netns.name(), &args.run_dir)?;
    match &args.output {
        Some(path) => Ok(replace(path, &text)?),
        None => output::print(&text),
    }
}

fn once(pins: &Pins, netns: &str, run_dir: &Path) -> Result<String> {
    ensure!(
        pins.exist(),
        "nothing is enforced in network namespace {netns}: no pins at {} (is the agent running there, with this \
         --bpffs, and are you root?)",
        pins.root().display()
    );
    let state = state::read(run_dir, netns)?.unwrap_or_default();
    let snapshot = Snapshot::read(pins, &state.names(interface_names()?))?;
    let exposition = Exposition {
        netns,
        snapshot: Some(&snapshot),
        ledger: None,
        programs: &pinned_programs(pins),
        health: None,
    };
    exposition.text()
}

fn follow(pins: Pins, netns: &str, run_dir: &Path, path: &Path) -> Result<()> {
    let programs = {
        let pins = pins.clone();
        Box::new(move || pinned_programs(&pins))
    };
    let mut meter = Meter::new(pins, netns.to_owned(), programs).with_names(run_dir);
    loop {
        meter.look();
        replace(path, &meter.text()?)?;
        thread::sleep(PERIOD);
    }
}

/// Whoever reads `path` sees the old text or the new one, never a part.
fn replace(path: &Path, text: &str) -> Result<()> {
    // Readers of a directory of metrics pass files by that do not end in .prom.
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("replacing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let directory = std::env::temp_dir().join(format!("sg-metrics-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.prom");
        for text in ["one\n", "two\n"] {
            replace(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
        let error = replace(&path, "three\n").unwrap_err();
        assert!(format!("{error:#}").contains("a.prom.new"));
    }
}
