//! `sluicegate metrics`: what Prometheus reads, without an agent that serves it.

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::Result;
use sluicegate_agent::{
    bpffs::Pins,
    file, interfaces,
    meter::{
        Snapshot,
        exposition::Exposition,
        pinned_programs,
        serve::{Meter, PERIOD},
    },
    netns::NetNs,
    state,
};

use crate::{
    flows::Place,
    output::{self, Failure},
    source,
};

/// Print metrics in Prometheus' text format.
///
/// Reads the kernel's pinned state, so it also works while no agent runs and enforcement goes on;
/// with --switch, the userspace switch's instead. For
/// node_exporter's textfile collector; where the agent can be scraped, `sluicegate agent --metrics
/// ADDRESS:PORT` is simpler.
///
/// Sums over flows that come and go (`sluicegate_tenant_…`) and distributions need repeated
/// readings of the table: only --follow has them.
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

    #[command(flatten)]
    place: Place,
}

/// Prints or writes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let place = &args.place;
    if let Some(socket) = &place.switch {
        return of_switch(args, socket.clone());
    }
    if let (true, Some(output)) = (args.follow, &args.output) {
        let (netns, pins) = place.select()?;
        enter(place, &netns)?;
        return Ok(rewrite_periodically(
            pins,
            netns.name(),
            &place.run_dir,
            output,
        )?);
    }
    write(args.output.as_deref(), &once(place)?)
}

/// The userspace switch's.
fn of_switch(args: &Args, socket: PathBuf) -> Result<(), Failure> {
    let look = move || source::snapshot(&source::switch(&socket)?);
    match &args.output {
        Some(path) if args.follow => Ok(rewrite(&mut Meter::of("switch", look), path)?),
        output => {
            let snapshot = look()?;
            let exposition = Exposition {
                netns: "switch",
                snapshot: Some(&snapshot),
                ledger: None,
                programs: &[],
                health: None,
            };
            write(output.as_deref(), &exposition.text()?)
        }
    }
}

fn write(output: Option<&Path>, text: &str) -> Result<(), Failure> {
    match output {
        Some(path) => Ok(file::replace(path, text.as_bytes())?),
        None => output::print(text),
    }
}

/// Interfaces are those of the thread's network namespace.
fn enter(place: &Place, netns: &NetNs) -> Result<()> {
    match place.netns {
        Some(_) => netns.enter(),
        None => Ok(()),
    }
}

fn once(place: &Place) -> Result<String> {
    let (netns, pins) = place.find()?;
    enter(place, &netns)?;
    let state = state::read(&place.run_dir, netns.name())?.unwrap_or_default();
    let snapshot = Snapshot::read(&pins, &state.names(interfaces::names()?))?;
    let exposition = Exposition {
        netns: netns.name(),
        snapshot: Some(&snapshot),
        ledger: None,
        programs: &pinned_programs(&pins),
        health: None,
    };
    exposition.text()
}

fn rewrite_periodically(pins: Pins, netns: &str, run_dir: &Path, path: &Path) -> Result<()> {
    let programs = {
        let pins = pins.clone();
        Box::new(move || pinned_programs(&pins))
    };
    rewrite(
        &mut Meter::new(pins, netns.to_owned(), programs).with_names(run_dir),
        path,
    )
}

/// Writes the file anew every [`PERIOD`].
fn rewrite(meter: &mut Meter, path: &Path) -> Result<()> {
    loop {
        meter.look();
        file::replace(path, meter.text()?.as_bytes())?;
        thread::sleep(PERIOD);
    }
}
