//! `sluicegate lab`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use sluicegate_scenario::{
    calibration::{self, Measured},
    experiment::Experiment,
    results::Results,
    runner,
    world::World,
};

use crate::{
    interrupt,
    output::{self, Failure},
    run::{files, progress::Progress, untrusted},
};

const CALIBRATE_EXAMPLES: &str = "\
Example: sluicegate lab calibrate --out here.toml
         sluicegate run scenarios/incast-1500.toml --calibration here.toml

An idle ping-pong over two links and over three, and one beside a bulk flow; takes about two minutes, root, and a
machine that does nothing else. The same is then simulated with the delays that came out; exit code 3 says that idle
round trips were not within 10 % of those measured.";

/// The largest ratio of idle percentiles that are simulated with the delays made from them.
const IDLE_RATIO_MAX: f64 = 1.1;

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
    let experiment = calibration::experiment()?;
    interrupt::install()?;
    let results = measure(&experiment, 1.0, &mut sluicegate_lab::Lab::new()?)?;
    let faults = untrusted(&results);
    if !faults.is_empty() {
        return Err(Failure::NotHeld(faults));
    }
    let lab = Measured::of(&results).map_err(|reason| anyhow!(reason))?;
    let sim = simulate(experiment, &lab, results.conditions.rate_scale)?;
    let text = calibration::to_toml(&machine(&results), &lab, &sim);
    match out {
        None => output::print(&text)?,
        Some(out) => save(out, &text)?,
    }
    let ratio = sim.idle_ratio(&lab);
    if ratio > IDLE_RATIO_MAX {
        return Err(Failure::NotHeld(vec![format!(
            "idle round trips simulated with these delays differ by a factor of {ratio:.2} from those measured"
        )]));
    }
    Ok(())
}

/// The same in simulated time, with the delays made from what was measured.
fn simulate(mut experiment: Experiment, lab: &Measured, scale: f64) -> Result<Measured, Failure> {
    for variant in &mut experiment.variants {
        variant.sim = lab.delays_of(&variant.name);
    }
    let threads = sluicegate_sim::Threads::Auto;
    let results = measure(&experiment, scale, &mut sluicegate_sim::Sim { threads })?;
    Ok(Measured::of(&results).map_err(|reason| anyhow!(reason))?)
}

fn save(out: &Path, text: &str) -> Result<(), Failure> {
    let name = out.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{}: is no name of a file", out.display()))?;
    files::put(out.parent().unwrap_or(Path::new("")), name, text.as_bytes())?;
    output::say(&format!("delays in {}", out.display()));
    Ok(())
}

/// When and where the lab ran.
fn machine(results: &Results) -> String {
    let conditions = &results.conditions;
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut models = cpuinfo.lines().filter_map(|line| {
        let (key, model) = line.split_once(':')?;
        (key.trim() == "model name").then(|| model.trim())
    });
    format!(
        "{}, {} CPUs ({}), Linux {}, rates x {}",
        conditions.started,
        conditions
            .cpus
            .map_or_else(|| "?".to_owned(), |cpus| cpus.to_string()),
        models.next().unwrap_or("of an unknown kind"),
        conditions.kernel,
        conditions.rate_scale
    )
}

fn measure(
    experiment: &Experiment,
    rate_scale: f64,
    world: &mut dyn World,
) -> Result<Results, Failure> {
    let mut observer = Progress::new(experiment);
    let result = runner::run_at(rate_scale, experiment, world, &mut observer);
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
