//! `sluicegate metrics`: what Prometheus reads, without an agent that serves it.

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::Result;
use sluicegate_agent::{
    file,
    inventory::ProgramInfo,
    meter::{
        Snapshot,
        exposition::Exposition,
        pinned_programs,
        ports::SwitchUse,
        serve::{Meter, PERIOD},
    },
};
use sluicegate_dataplane::{config, control};

use crate::{
    flows::Place,
    output::{self, Failure},
    source::{self, Source},
};

/// Print metrics in Prometheus' text format.
///
/// Reads the kernel's pinned state, so it also works while no agent runs and enforcement goes on,
/// and asks the userspace switch, if it runs: sums are those of both, and its ports are told
/// whether it has a policy or not. With --switch it asks the switch alone. For node_exporter's
/// textfile collector; where the agent can be scraped, `sluicegate agent --metrics ADDRESS:PORT`
/// is simpler.
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
    if let (true, Some(output)) = (args.follow, &args.output) {
        return Ok(rewrite(&mut meter(place)?, output)?);
    }
    write(args.output.as_deref(), &once(place)?)
}

/// The switch's socket, where the arguments do not speak of another namespace.
fn socket(place: &Place) -> Option<PathBuf> {
    let default = place.netns.is_none().then(|| PathBuf::from(config::SOCKET));
    place.switch.clone().or(default)
}

/// The ports of the switch, if one answers.
fn ports(place: &Place) -> Option<SwitchUse> {
    let socket = socket(place)?;
    source::ports(|question| control::ask(&socket, question)).ok()
}

fn write(output: Option<&Path>, text: &str) -> Result<(), Failure> {
    match output {
        Some(path) => Ok(file::replace(path, text.as_bytes())?),
        None => output::print(text),
    }
}

/// What enforces now, with the kernel's account of its programs.
fn look(place: &Place) -> Result<(Source, Snapshot, Vec<ProgramInfo>)> {
    let source = Source::find(place)?;
    let snapshot = source.look()?;
    let programs = source.pins().map(pinned_programs).unwrap_or_default();
    Ok((source, snapshot, programs))
}

fn once(place: &Place) -> Result<String> {
    let (found, switch) = (look(place), ports(place));
    let found = match found {
        // A switch without a policy has ports all the same.
        Err(_) if switch.is_some() => None,
        found => Some(found?),
    };
    let exposition = Exposition {
        netns: found
            .as_ref()
            .map_or("switch", |(source, ..)| source.name()),
        snapshot: found.as_ref().map(|(_, snapshot, _)| snapshot),
        switch: switch.as_ref(),
        ledger: None,
        programs: found.as_ref().map_or(&[], |(.., programs)| programs),
        health: None,
    };
    exposition.text()
}

/// Looks again and again at what enforces then: agents and switches come and go.
fn meter(place: &Place) -> Result<Meter> {
    let name = match Source::find(place) {
        Ok(source) => source.name().to_owned(),
        Err(_) => place.select()?.0.name().to_owned(),
    };
    let [looks, asks, pins] = [(); 3].map(|()| place.clone());
    let mut meter = Meter::of(&name, move || match look(&looks) {
        Ok((_, snapshot, _)) => Ok(Some(snapshot)),
        Err(_) if ports(&looks).is_some() => Ok(None),
        Err(error) => Err(error),
    });
    meter.switch = Box::new(move || ports(&asks));
    meter.programs = Box::new(move || {
        let found = pins.switch.is_none().then(|| pins.find().ok()).flatten();
        found
            .map(|(_, pins)| pinned_programs(&pins))
            .unwrap_or_default()
    });
    Ok(meter)
}

/// Writes the file anew every [`PERIOD`]. Once it was written, a failure is said and tried again:
/// a disk that was full would end the sums.
fn rewrite(meter: &mut Meter, path: &Path) -> Result<()> {
    let mut replace = || {
        meter.look();
        file::replace(path, meter.text()?.as_bytes())
    };
    replace()?;
    let mut said = None;
    loop {
        thread::sleep(PERIOD);
        let failed = replace().err().map(|error| format!("{error:#}"));
        if let Some(error) = failed.as_ref().filter(|_| failed != said) {
            output::say(&format!("{error}; it is tried again"));
        }
        said = failed;
    }
}
