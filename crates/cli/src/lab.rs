//! `sluicegate lab`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use sluicegate_scenario::{
    calibration::{self, Calibration},
    results::Results,
    runner,
};

use crate::{
    interrupt,
    output::{self, Failure},
    run::{files, progress::Progress, untrusted},
};

const CALIBRATE_EXAMPLES: &str = "\
Example: sluicegate lab calibrate --out scenarios/lab/calibration.toml

An idle ping-pong over two links and over three, and one beside a bulk flow; takes about a minute, root, and a machine
that does nothing else. Scenarios that say `extends = \"…/calibration.toml\"` are simulated with these delays.";

/// Looking after the lab world.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Remove whatever a crashed run left: processes, namespaces, changed kernel parameters
    Clean,
    /// Measure what hosts and links take here, for the simulator
    #[command(after_help = CALIBRATE_EXAMPLES)]
    Calibrate {
        /// File for the `[sim]` table instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Runs `sluicegate lab …`.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Clean => clean(),
        Command::Calibrate { out } => calibrate(out.as_deref()),
    }
}

fn calibrate(out: Option<&Path>) -> Result<(), Failure> {
    let results = measure()?;
    let faults = untrusted(&results);
    if !faults.is_empty() {
        return Err(Failure::NotHeld(faults));
    }
    let calibration = Calibration::of(&results).map_err(|reason| anyhow!(reason))?;
    let text = calibration.to_toml();
    let Some(out) = out else {
        return output::print(&text);
    };
    let name = out.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{}: is no name of a file", out.display()))?;
    files::put(out.parent().unwrap_or(Path::new("")), name, text.as_bytes())?;
    output::say(&format!("delays in {}", out.display()));
    Ok(())
}

fn measure() -> Result<Results, Failure> {
    let experiment = calibration::experiment()?;
    interrupt::install()?;
    let mut world = sluicegate_lab::Lab::new()?;
    let mut observer = Progress::new(&experiment);
    let result = runner::run(&experiment, &mut world, &mut observer);
    observer.finish();
    result.map_err(|error| match interrupt::requested() {
        true => Failure::Interrupted,
        false => Failure::Failed(error),
    })
}

fn clean() -> Result<(), Failure> {
    let report = sluicegate_lab::clean()?;
    let mut text = String::new();
    for line in &report.done {
        text += &format!("{line}\n");
    }
    if report.runs == 0 {
        text += "nothing to clean\n";
    }
    output::print(&text)?;
    if report.failed.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "could not remove everything:\n  {}",
        report.failed.join("\n  ")
    )
    .into())
}
