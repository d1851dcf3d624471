//! `sluicegate sensitivity`.

use std::{
    collections::HashMap,
    num::NonZero,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use anyhow::{Context, anyhow};
use sluicegate_scenario::{
    experiment::{Experiment, Variant},
    file::Options,
    parameters::{self, Change, Sensitivity, Study},
    results::Results,
    runner, sweep,
    world::{Observer, Outcome, Problem, Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};

use crate::{
    interrupt,
    output::{self, Failure},
    run::{files, refusal},
    sweep::{keys, show::Progress},
};

const EXAMPLES: &str = "\
Examples:
  sluicegate sensitivity scenarios/acdc/incast-16.toml --short --repeat 3
  sluicegate sensitivity scenarios/*/*.toml --short --out out/sensitivity

Every [[parameter]] of a scenario is halved and doubled, one at a time, and the scenario simulated
with it. The table says which figures of [published] move and which expectations break: see
docs/scenarios.md. Files without a [[parameter]] are left out. With --out, DIR gets sensitivity.md
and sensitivity.json.";

/// Show what half and double of each parameter change
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenario files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Seeds of each figure, from the scenario's on [default: the scenario's repeats]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// Runs at a time, each on one thread [default: one per CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// The scenario's short form, for a quick look
    #[arg(long)]
    short: bool,
    /// Directory for sensitivity.md and sensitivity.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// Runs `sluicegate sensitivity`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let studies = studies(args)?;
    interrupt::install()?;
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    let jobs = jobs.map_or(1, NonZero::get);
    let mut all = Vec::new();
    for study in &studies {
        all.push(sensitivity(study, jobs)?);
    }
    let page = sluicegate_report::sensitivity(&all);
    let json = serde_json::to_string_pretty(&all).context("the tables cannot become JSON")?;
    let json = format!("{json}\n");
    if let Some(out) = &args.out {
        write(out, &page, &json)?;
    }
    output::print(if args.json { &json } else { &page })
}

fn write(out: &Path, page: &str, json: &str) -> Result<(), Failure> {
    files::make(out)?;
    files::put(out, "sensitivity.md", page.as_bytes())?;
    files::put(out, "sensitivity.json", json.as_bytes())?;
    output::say(&format!("tables in {}", out.display()));
    Ok(())
}

fn studies(args: &Args) -> Result<Vec<Study>, Failure> {
    let options = Options {
        short: args.short,
        ..Options::default()
    };
    let mut studies = Vec::new();
    for path in &args.files {
        let mut study = parameters::load(path, &options)?;
        study.repeats(args.repeat);
        if !study.parameters.is_empty() {
            studies.push(study);
        }
    }
    match studies.is_empty() {
        true => Err(Failure::BadInput(format!(
            "{}: there is no [[parameter]] to be changed; docs/scenarios.md says how to write one",
            args.files[0].display()
        ))),
        false => Ok(studies),
    }
}

/// Runs the scenario as it is, and with every change that the simulator accepts.
fn sensitivity(study: &Study, jobs: usize) -> Result<Sensitivity, Failure> {
    let base = study.base.clone();
    Sim::default().check(&base).map_err(refusal)?;
    let mut experiments = vec![Ok(base)];
    for parameter in &study.parameters {
        experiments.extend(Change::ALL.map(|change| {
            let experiment = study.experiment(parameter, change);
            let experiment = experiment.map_err(|problems| problems.to_string())?;
            let accepted = Sim::default().check(&experiment);
            accepted.map_err(|error| format!("{error:#}"))?;
            Ok(experiment)
        }));
    }
    let mut recorded = Recorded {
        runs: simulate(&study.base.name, &experiments, jobs)?,
    };
    let mut results = Vec::new();
    for experiment in experiments {
        results.push(match experiment {
            Ok(experiment) => Ok(judge(&experiment, &mut recorded)?),
            Err(refused) => Err(refused),
        });
    }
    let mut results = results.into_iter();
    let missing = || Failure::Failed(anyhow!("a run is missing"));
    let base = results.next().and_then(Result::ok).ok_or_else(missing)?;
    let mut rows = Vec::new();
    for parameter in &study.parameters {
        let half = results.next().ok_or_else(missing)?;
        let double = results.next().ok_or_else(missing)?;
        rows.push(parameter.row(&base, [half, double]));
    }
    Ok(Sensitivity {
        scenario: study.base.name.clone(),
        title: study.base.title.clone(),
        seed: study.base.seed,
        repeats: study.base.repeats,
        rows,
    })
}

/// Inputs of a run: everything of the variant that decides its result, and the seed.
type Key = (String, u64);

/// A variant of one of the experiments, with one seed.
struct Run<'a> {
    key: Key,
    experiment: &'a Experiment,
    variant: &'a Variant,
}

/// All runs, each once although most variants do not depend on most parameters.
fn simulate(
    name: &str,
    experiments: &[Result<Experiment, String>],
    jobs: usize,
) -> Result<HashMap<Key, Outcome>, Failure> {
    let mut runs: HashMap<Key, Run<'_>> = HashMap::new();
    for experiment in experiments.iter().flatten() {
        for variant in &experiment.variants {
            for repeat in 0..experiment.repeats {
                let seed = experiment.seed.wrapping_add(repeat.into());
                let key = (sweep::input(variant), seed);
                runs.entry(key.clone()).or_insert(Run {
                    key,
                    experiment,
                    variant,
                });
            }
        }
    }
    let mut runs: Vec<Run<'_>> = runs.into_values().collect();
    runs.sort_by(|a, b| (&a.variant.name, &a.key).cmp(&(&b.variant.name, &b.key)));
    let progress = Progress::new(name, runs.len());
    let done: Mutex<Vec<(Key, anyhow::Result<Outcome>)>> = Mutex::default();
    keys::each(jobs, runs.len(), |index| {
        if interrupt::requested() {
            return;
        }
        let run = &runs[index];
        let label = format!("{name} {} seed={}", run.variant.name, run.key.1);
        let mut observer = progress.begin(&label);
        let outcome = run_one(run, &mut observer);
        let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
        progress.end(observer, &label, error.as_ref());
        let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
        done.push((run.key.clone(), outcome));
    });
    progress.finish();
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    let done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    let outcomes = done.into_iter().map(|(key, outcome)| Ok((key, outcome?)));
    outcomes
        .collect::<anyhow::Result<_>>()
        .map_err(Failure::Failed)
}

fn run_one(run: &Run<'_>, observer: &mut dyn Observer) -> anyhow::Result<Outcome> {
    let mut world = Sim {
        threads: Threads::Exactly(1),
    };
    let outcome = world.run(run.experiment, run.variant, run.key.1, observer);
    let mut outcome = outcome.with_context(|| format!("variant \"{}\"", run.variant.name))?;
    // Hundreds of runs are kept, and only figures are needed of them.
    outcome.result.samples = Default::default();
    Ok(outcome)
}

fn judge(experiment: &Experiment, recorded: &mut Recorded) -> Result<Results, Failure> {
    runner::run(experiment, recorded, &mut Unobserved).map_err(Failure::Failed)
}

/// A world that has run everything before.
struct Recorded {
    runs: HashMap<Key, Outcome>,
}

impl World for Recorded {
    fn name(&self) -> &'static str {
        Sim::default().name()
    }

    fn limits(&self, _: &Experiment) -> Vec<Problem> {
        Vec::new()
    }

    fn run(
        &mut self,
        _: &Experiment,
        variant: &Variant,
        seed: u64,
        _: &mut dyn Observer,
    ) -> anyhow::Result<Outcome> {
        let key = (sweep::input(variant), seed);
        let recorded = self.runs.get(&key).cloned();
        let mut outcome = recorded.ok_or_else(|| anyhow!("this run is not recorded"))?;
        outcome.result.name.clone_from(&variant.name);
        outcome.result.title.clone_from(&variant.title);
        Ok(outcome)
    }
}
