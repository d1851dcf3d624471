//! `sluicegate published`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sluicegate_report::Published;
use sluicegate_scenario::{
    results::Results,
    sweep::{self, Outcome},
};

use crate::{
    compare,
    output::{self, Failure},
    run::files,
};

const EXAMPLES: &str = "\
Examples:
  sluicegate published out/experiments/sim --out out/experiments
  sluicegate published out/seed-1 out/seed-2 out/seed-3 out/sweep

A DIR holds the results.json or the sweep.json of one scenario, or directories that do. Runs of one
scenario with different seeds go together: their means are judged. What a scenario says of its
published figures is in its [published], or [sweep.published]: see docs/scenarios.md and
docs/sweep.md.";

/// Lay published figures beside ours: one page with a verdict and a cause for each
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with results
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Directory for published.md, instead of standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs `sluicegate published`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut runs: Vec<Results> = Vec::new();
    let mut sweeps: Vec<Outcome> = Vec::new();
    for directory in &args.directories {
        for place in compare::places(directory, &[compare::RESULTS, SWEEP])? {
            match place.join(SWEEP).is_file() {
                true => sweeps.push(sweep(&place)?),
                false => runs.push(compare::load(&place, false)?.results),
            }
        }
    }
    let mut all = of_runs(&runs)?;
    all.extend(sweeps.iter().map(Published::of_sweep));
    let page = sluicegate_report::published(&all);
    match &args.out {
        None => output::print(&page),
        Some(out) => write(out, &page),
    }
}

/// Runs of one scenario in one world, with different seeds, go together.
fn of_runs(runs: &[Results]) -> Result<Vec<Published<'_>>, Failure> {
    let mut groups: Vec<Vec<&Results>> = Vec::new();
    for run in runs {
        let same = |group: &&mut Vec<&Results>| {
            let first = group[0];
            (&first.scenario, &first.world) == (&run.scenario, &run.world)
        };
        match groups.iter_mut().find(same) {
            None => groups.push(vec![run]),
            Some(group) if group.iter().all(|other| other.seed != run.seed) => group.push(run),
            Some(_) => {
                return Err(Failure::BadInput(format!(
                    "{}, {}: two runs have seed {}; name one of them",
                    run.scenario, run.world, run.seed
                )));
            }
        }
    }
    for group in &mut groups {
        group.sort_by_key(|run| run.seed);
    }
    let all = groups.iter().map(|group| Published::of_runs(group));
    let all: Result<Vec<_>, _> = all.collect();
    all.map_err(|why| Failure::BadInput(format!("{why}; run the scenarios again")))
}

/// File with the figures of a sweep.
const SWEEP: &str = "sweep.json";

fn sweep(place: &Path) -> Result<Outcome, Failure> {
    let file = place.join(SWEEP);
    let bad = |why: String| Failure::BadInput(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| bad(error.to_string()))?;
    let read: Result<Outcome, _> = serde_json::from_str(&text);
    let outcome = read.map_err(|error| bad(format!("{error}; sweep the scenario again")))?;
    match outcome.schema {
        sweep::SCHEMA => Ok(outcome),
        schema => Err(bad(format!(
            "has schema {schema}; sweep the scenario again"
        ))),
    }
}

fn write(out: &Path, page: &str) -> Result<(), Failure> {
    files::make(out)?;
    files::put(out, "published.md", page.as_bytes())?;
    output::say(&format!(
        "published figures in {}",
        out.join("published.md").display()
    ));
    Ok(())
}
