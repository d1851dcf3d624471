//! `sluicegate sensitivity`.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZero,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use anyhow::{Context, anyhow};
use sluicegate_config::Problems;
use sluicegate_scenario::{
    experiment::{Experiment, Variant},
    file,
    parameters::{self, Change, Seen, Sensitivity, Study, Subject},
    runner,
    sweep::{self, Measured, Set},
    world::{Observer, Outcome, Problem, Refused, Unobserved, World},
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
  sluicegate sensitivity scenarios/cee/commercial.toml --short --only tcp=reno --only cm=base,red

Every [[parameter]] of a scenario is halved and doubled, one at a time, and the scenario simulated
with it. The table says which figures of [published] move and which expectations break; of a sweep,
which left sides of its [sweep.expect] move. See docs/scenarios.md. Files without a [[parameter]]
are left out. With --out, DIR gets sensitivity.md and sensitivity.json.";

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
    /// Of sweeps that have this axis, leave out what has none of these values
    #[arg(long, value_name = "AXIS=VALUE,...", num_args = 1..)]
    only: Vec<Set>,
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
        all.push(sensitivity(study, args, jobs)?);
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
    let options = sweep::Options {
        file: file::Options {
            short: args.short,
            ..file::Options::default()
        },
        repeat: args.repeat,
        only: args.only.clone(),
        ..sweep::Options::default()
    };
    let mut studies = Vec::new();
    for path in &args.files {
        let study = parameters::load(path, &options)?;
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
fn sensitivity(study: &Study, args: &Args, jobs: usize) -> Result<Sensitivity, Failure> {
    let mut cases = vec![Ok(Case::of(study.base.clone()).map_err(refusal)?)];
    for parameter in &study.parameters {
        cases.extend(Change::ALL.map(|change| {
            let subject = study.subject(parameter, change);
            let case = subject.map_err(Refused).map_err(Into::into);
            let case = case.and_then(Case::of);
            case.map_err(|error| format!("{error:#}"))
        }));
    }
    let (name, title) = study.base.names();
    let experiments = cases.iter().flatten().flat_map(|case| &case.experiments);
    let mut recorded = Recorded {
        runs: simulate(name, experiments, jobs)?,
    };
    let mut seen = Vec::new();
    for case in cases {
        seen.push(match case {
            Ok(case) => Ok(case.judge(&mut recorded)?),
            Err(refused) => Err(refused),
        });
    }
    let mut seen = seen.into_iter();
    let missing = || Failure::Failed(anyhow!("a run is missing"));
    let base = seen.next().and_then(Result::ok).ok_or_else(missing)?;
    let mut rows = Vec::new();
    for parameter in &study.parameters {
        let half = seen.next().ok_or_else(missing)?;
        let double = seen.next().ok_or_else(missing)?;
        rows.push(parameter.row(&base, [half, double]));
    }
    let (seed, repeats, only) = match &study.base {
        Subject::Single(experiment) => (experiment.seed, experiment.repeats, Vec::new()),
        Subject::Sweep(plan) => {
            let only = args.only.iter().filter(|set| plan.has_axis(&set.name));
            let only = only.map(ToString::to_string).collect();
            (plan.seeds[0], plan.seeds.len() as u32, only)
        }
    };
    let [figures, expectations] = base.counts();
    Ok(Sensitivity {
        scenario: name.to_owned(),
        title: title.to_owned(),
        seed,
        repeats,
        short: args.short,
        only,
        figures,
        empty: base.empty(),
        expectations,
        rows,
    })
}

/// What is run with one value of a parameter.
struct Case {
    subject: Subject,
    /// The scenario; or each cell of a sweep with each seed, in the order of cells.
    experiments: Vec<Experiment>,
}

impl Case {
    fn of(subject: Subject) -> anyhow::Result<Self> {
        let experiments = match &subject {
            Subject::Single(experiment) => vec![experiment.as_ref().clone()],
            Subject::Sweep(plan) => {
                let runs = plan.runs();
                let experiment = |(cell, seed)| plan.experiment(&plan.cells[cell], seed);
                let all: Result<_, Problems> = runs.map(experiment).collect();
                all.map_err(Refused)?
            }
        };
        for experiment in &experiments {
            Sim::default().check(experiment)?;
        }
        Ok(Self {
            subject,
            experiments,
        })
    }

    /// What its runs say, which are all recorded.
    fn judge(&self, recorded: &mut Recorded) -> Result<Seen, Failure> {
        // Tells the results of all runs from others.
        let mut hasher = DefaultHasher::new();
        let mut results = self.experiments.iter().map(|experiment| {
            let results = runner::run(experiment, recorded, &mut Unobserved);
            let results = results.map_err(Failure::Failed)?;
            let json = serde_json::to_string(&results.variants);
            json.context("results cannot become JSON")?
                .hash(&mut hasher);
            Ok::<_, Failure>(results)
        });
        let missing = || Failure::Failed(anyhow!("a result is missing"));
        let plan = match &self.subject {
            Subject::Single(_) => {
                let seen = Seen::from(&results.next().ok_or_else(missing)??);
                drop(results);
                return Ok(seen.of_runs(hasher.finish()));
            }
            Subject::Sweep(plan) => plan,
        };
        let mut measured = Vec::new();
        for ((cell, seed), results) in plan.runs().zip(results) {
            let results = results?;
            let result = results.variants.first().ok_or_else(missing)?;
            measured.push(Measured {
                cell,
                seed,
                figures: Ok(plan.figures_of(result)),
                outside: results.conditions.outside,
            });
        }
        let outcome = plan.outcome(measured, env!("CARGO_PKG_VERSION"), keys::BUILD);
        Ok(Seen::from(&outcome).of_runs(hasher.finish()))
    }
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
fn simulate<'a>(
    name: &str,
    experiments: impl Iterator<Item = &'a Experiment>,
    jobs: usize,
) -> Result<HashMap<Key, Outcome>, Failure> {
    let mut runs: HashMap<Key, Run<'_>> = HashMap::new();
    for experiment in experiments {
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
