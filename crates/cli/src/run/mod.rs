//! `sluicegate run`.

pub mod files;
mod inspect;
pub mod memory;
mod pace;
pub mod progress;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use sluicegate_scenario::{
    experiment::Experiment,
    file::{self, Options},
    results::{ExpectationResult, Results},
    runner,
    world::{Refused, World},
};
use sluicegate_sim::{Sim, Threads};

use crate::{
    descriptors, interrupt,
    output::{self, Failure},
};

const EXAMPLES: &str = "\
Examples:
  sluicegate run scenarios/five-stacks.toml
  sluicegate run scenarios/incast-1500.toml --variant enforced dctcp --out out/incast
  sluicegate run scenarios/*.toml --short --check --out out
  sluicegate run scenarios/incast-1500.toml --out out --pcap h1 switch-h1
  sluicegate run scenarios/incast-1500.toml --out out --trace queue,cwnd,rwnd,alpha
  sluicegate run scenarios/fabric/routing.toml --out out --film
  sluicegate run scenarios/incast-1500.toml --calibration calibrations/two-cpu-vm.toml

With --out, DIR gets results.json, scenario.toml (as run), samples.parquet and report.html; with
--trace also traces.parquet, and plots in report.html; with --film also film.parquet, and the network
over time in report.html. Only the simulator captures, traces and films.
With several files, each has a directory of its own in DIR, and DIR/report.html shows all.";

/// Arguments of `sluicegate run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenario files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// World that runs them
    #[arg(long, value_enum, default_value_t = WorldName::Sim)]
    world: WorldName,
    /// Run only these variants
    #[arg(long, value_name = "NAME", num_args = 1..)]
    variant: Vec<String>,
    /// Seed of every random choice, instead of the scenario's
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    seed: Option<u64>,
    /// Directory for results
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Samples and traces as gzipped CSV too
    #[arg(long, requires = "out")]
    csv: bool,
    /// Print results as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Exit with 3 when an expectation does not hold or the run cannot be trusted
    #[arg(long)]
    check: bool,
    /// The scenario's short form, for a quick look
    #[arg(long)]
    short: bool,
    /// At most so many threads of a simulation, for the same results: by itself one, or all CPUs
    /// from 64 hosts on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    threads: Option<u8>,
    /// Multiply every rate, as the lab does where the CPU is the limit: predicts such a run
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = rate_scale)]
    rate_scale: f64,
    /// Simulate with the delays in FILE, as `sluicegate lab calibrate` writes it; what a scenario
    /// says itself stays
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    inspect: inspect::Args,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum WorldName {
    /// Simulated time: no privileges, any size
    Sim,
    /// Linux kernels in network namespaces and guests on this machine (root)
    Lab,
}

fn rate_scale(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=1000.0).contains(&factor) {
        return Ok(factor);
    }
    Err("must be from 0.001 to 1000, for example 0.25".to_owned())
}

impl WorldName {
    fn open(self, threads: Option<u8>) -> anyhow::Result<Box<dyn World>> {
        match self {
            Self::Sim => Ok(Box::new(Sim {
                threads: threads.map_or(Threads::Auto, |count| Threads::UpTo(count.into())),
            })),
            Self::Lab => {
                descriptors::raise_limit();
                Ok(Box::new(sluicegate_lab::Lab::new()?))
            }
        }
    }
}

/// A resolved scenario, and the directory of its results.
struct Job {
    path: PathBuf,
    experiment: Experiment,
    out: Option<PathBuf>,
}

/// Runs `sluicegate run`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let jobs = jobs(args)?;
    if matches!(args.world, WorldName::Sim) {
        let variants = jobs.iter().flat_map(|job| &job.experiment.variants);
        let hosts = variants.map(|variant| variant.hosts.len()).max();
        let files = args.files.iter().map(PathBuf::as_path);
        memory::ask_for_huge_pages(hosts.unwrap_or(0), files);
    }
    if args.inspect.captures() && args.threads.is_some_and(|threads| threads > 1) {
        output::say("captures have packets from all over the network, in order: one thread runs");
    }
    interrupt::install()?;
    let mut world = args.world.open(args.threads)?;
    for job in &jobs {
        // All scenarios are checked before the first one runs.
        world.check(&job.experiment).map_err(refusal)?;
    }
    let mut all = Vec::new();
    let ended: Result<(), Failure> = jobs.iter().try_for_each(|job| {
        all.push(run_job(job, args, world.as_mut())?);
        Ok(())
    });
    // Results of completed scenarios are shown even if a later scenario has failed. Its error is
    // returned before one of `show`.
    let shown = show(args, &all);
    ended?;
    shown?;
    let faults: Vec<_> = all.iter().flat_map(untrusted).collect();
    if args.check && !faults.is_empty() {
        return Err(Failure::NotHeld(faults));
    }
    Ok(())
}

/// The failure for an error of [`World::check`]. A scenario that this world cannot run on any
/// machine counts as bad input, as one with a syntax error does.
pub fn refusal(error: anyhow::Error) -> Failure {
    match error.downcast::<Refused>() {
        Ok(refused) => Failure::BadInput(refused.to_string()),
        Err(error) => Failure::Failed(error),
    }
}

/// The comparison, or JSON; over several scenarios also a report.
fn show(args: &Args, all: &[Results]) -> Result<(), Failure> {
    if all.is_empty() {
        return Ok(());
    }
    let several = args.files.len() > 1;
    let scenarios: Vec<_> = all.iter().collect();
    if let (Some(out), true) = (&args.out, several) {
        files::write_report(out, &scenarios)?;
    }
    if args.json {
        return print_json(all, several);
    }
    output::print(&format!(
        "{}\n",
        sluicegate_report::table(&scenarios, output::style())
    ))
}

fn jobs(args: &Args) -> Result<Vec<Job>, Failure> {
    let several = args.files.len() > 1;
    let jobs: Result<Vec<Job>, Failure> = args
        .files
        .iter()
        .map(|path| job(args, path, several))
        .collect();
    let jobs = jobs?;
    for (index, job) in jobs.iter().enumerate() {
        if jobs[..index]
            .iter()
            .any(|other| other.experiment.name == job.experiment.name)
        {
            return Err(Failure::BadInput(format!(
                "{}: another scenario of this run is also named \"{}\"; run them one by one",
                job.path.display(),
                job.experiment.name
            )));
        }
    }
    Ok(jobs)
}

fn job(args: &Args, path: &Path, several: bool) -> Result<Job, Failure> {
    let options = Options {
        short: args.short,
        seed: args.seed,
        calibration: args.calibration.clone(),
    };
    let mut experiment = file::load(path, &options)?;
    if !args.variant.is_empty() {
        let dropped = experiment.select(&args.variant).map_err(|unknown| {
            let known: Vec<_> = experiment
                .variants
                .iter()
                .map(|v| v.name.as_str())
                .collect();
            Failure::BadInput(format!(
                "{}: there is no variant \"{unknown}\"; it has {}",
                path.display(),
                known.join(", ")
            ))
        })?;
        if !dropped.is_empty() {
            output::say(&format!(
                "not checked without the other variants: {}",
                dropped.join(", ")
            ));
        }
    }
    let out = args.out.as_ref().map(|out| match several {
        true => out.join(&experiment.name),
        false => out.clone(),
    });
    experiment.inspect = args.inspect.inspect(out.as_deref());
    experiment.check_inspect().map_err(Failure::BadInput)?;
    Ok(Job {
        path: path.to_owned(),
        experiment,
        out,
    })
}

fn run_job(job: &Job, args: &Args, world: &mut dyn World) -> Result<Results, Failure> {
    if let Some(out) = &job.out {
        // A directory that cannot be written fails here, not after the run.
        files::make(out)?;
        files::remove_captures(out)?;
    }
    let mut observer = progress::Progress::new(&job.experiment);
    let result = runner::run_at(args.rate_scale, &job.experiment, world, &mut observer);
    let written = result.map(|results| {
        let written = job.out.as_ref().map_or(Ok(()), |out| {
            observer.writing(out);
            files::write(out, &job.experiment, &results, args.csv)
        });
        written.map(|()| results)
    });
    observer.finish();
    let results = written.map_err(|error| match interrupt::requested() {
        true => Failure::Interrupted,
        false => Failure::Failed(error),
    })??;
    if let Some(out) = &job.out {
        output::say(&format!("results in {}", out.display()));
    }
    Ok(results)
}

/// The reasons for which `--check` does not accept these results.
pub fn untrusted(results: &Results) -> Vec<String> {
    let scenario = &results.scenario;
    let mut faults = Vec::new();
    let failed = results.expectations.iter().filter(|e| !e.held);
    faults.extend(failed.map(|e| {
        let values = values(e);
        format!("{scenario}: {}: {} ({values})", e.name, e.expression)
    }));
    if results.conditions.cpu_bound && !results.conditions.accepts_cpu_bound {
        faults.push(format!(
            "{scenario}: the CPU was the bottleneck even at {} of the rates",
            results.conditions.rate_scale
        ));
    }
    // Who expects something of `ended` has decided what it should be.
    let decided = |e: &ExpectationResult| e.expression.contains(".ended");
    if !results.expectations.iter().any(decided) {
        let variants = results.variants.iter();
        let programs = variants.flat_map(|one| one.programs.iter().map(move |it| (&one.name, it)));
        faults.extend(programs.filter_map(|(variant, (name, program))| {
            let unfinished = program.unfinished()?;
            Some(format!(
                "{scenario}: {variant}: program {name}: {unfinished}"
            ))
        }));
    }
    let lost = results
        .conditions
        .outside
        .iter()
        .filter(|(_, count)| **count > 0);
    faults.extend(lost.map(|(counter, count)| {
        format!("{scenario}: {counter} = {count} where the experiment is not about it")
    }));
    faults
}

/// Both sides of an expectation in full.
fn values(e: &ExpectationResult) -> String {
    let side = |value: Option<f64>, interval: Option<[f64; 2]>| match (value, interval) {
        (None, _) => "not measured".to_owned(),
        (Some(value), Some([low, high])) => format!("{value} in [{low}, {high}]"),
        (Some(value), None) => value.to_string(),
    };
    let left = side(e.left, e.left_interval);
    let right = side(e.right, e.right_interval);
    match e.upper {
        Some(upper) => format!("{left} of runs against {right} to {upper}"),
        None => format!("{left} against {right}"),
    }
}

/// One object for one scenario, an array for several.
fn print_json(all: &[Results], several: bool) -> Result<(), Failure> {
    let text = match all {
        [one] if !several => serde_json::to_string_pretty(one),
        list => serde_json::to_string_pretty(list),
    };
    let text = text.context("results cannot be written as JSON")?;
    output::print(&format!("{text}\n"))
}
