//! `sluicegate sweep`.

pub mod keys;
pub mod show;
mod store;
mod work;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, anyhow};
use sluicegate_scenario::{
    file,
    sweep::{self, Measured, Outcome, Plan, REPEATS_MAX, Set},
};

use self::{keys::Run, store::Store};
use crate::{
    interrupt,
    output::{self, Failure},
    run::{files, memory},
};

const EXAMPLES: &str = "\
Examples:
  sluicegate sweep scenarios/incast-1500.toml --set network.rate=1Gbit,10Gbit --repeat 10
  sluicegate sweep scenarios/five-stacks.toml --set tenant.default.ecn=true,false --set network.queue=60KB,400KB --out out/ecn
  sluicegate sweep scenarios/five-stacks.toml --set network.queue=60KB,400KB --only variant=enforced,dctcp
  sluicegate sweep scenario.toml --check --json

PATH is a dotted path into the scenario, such as tenant.default.congestion_control,
variant.*.network.rate (* is every table) or variant.enforced.enforcement.policy.rule.0.mss (0 is a
position in an array); values are TOML scalars, bare words are strings. The scenario's [sweep] may
hold axes, also such that set several keys, the number of seeds, the figures of tables and what is
expected of them: see docs/sweep.md.

A run that has finished is kept in DIR/runs and not repeated, as long as its resolved input, its
seed and the program are the same: after an interruption, the same command goes on. DIR gets
sweep.parquet, runs.parquet, sweep.json and index.html.

Exit codes: 1 some run failed, 3 --check and an expectation did not hold, 130 interrupted.";

/// Run a scenario for all combinations of some values, simulated, with several seeds
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenario file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// An axis and its values; or other values of an axis that the scenario has
    #[arg(long, value_name = "PATH=VALUE,...")]
    set: Vec<Set>,
    /// Seeds of each combination, from the scenario's on [default: the scenario's repeat, else
    /// repeats]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REPEATS_MAX)))]
    repeat: Option<u32>,
    /// First seed, instead of the scenario's
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64 / 2))]
    seed: Option<u64>,
    /// Runs at a time, each on one thread [default: one per CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Directory for runs and tables [default: NAME.sweep]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Leave out what has none of these values of an axis, or is none of these variants
    #[arg(long, value_name = "AXIS=VALUE,...", num_args = 1..)]
    only: Vec<Set>,
    /// Print sweep.json instead of a table
    #[arg(long)]
    json: bool,
    /// Exit with 3 when an expectation of [sweep.expect] does not hold
    #[arg(long)]
    check: bool,
    /// The scenario's short form, for a quick look
    #[arg(long)]
    short: bool,
    /// Simulate with the delays in FILE, as `sluicegate lab calibrate` writes it
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
}

/// Runs `sluicegate sweep`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    memory::ask_for_huge_pages(plan.hosts, [args.file.as_path()]);
    interrupt::install()?;
    let out = (args.out.clone()).unwrap_or_else(|| PathBuf::from(format!("{}.sweep", plan.name)));
    let store = Store::open(&out)?;
    for note in &plan.notes {
        output::say(&format!("note: {note}"));
    }
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    let jobs = jobs.map_or(1, NonZero::get);
    let runs = keys::runs(&plan, jobs)?;
    let measured = measure(&plan, &runs, &store, jobs)?;
    let outcome = plan.outcome(measured, env!("CARGO_PKG_VERSION"), keys::BUILD);
    finish(args, &outcome, &out)
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let options = sweep::Options {
        file: file::Options {
            short: args.short,
            seed: args.seed,
            calibration: args.calibration.clone(),
        },
        sets: args.set.clone(),
        repeat: args.repeat,
        only: args.only.clone(),
    };
    let plan = sweep::load(&args.file, &options)?;
    match plan.cells.is_empty() {
        true => Err(Failure::BadInput(format!(
            "{}: --only leaves nothing to be run; name values of one cell at least",
            args.file.display()
        ))),
        false => Ok(plan),
    }
}

/// Runs what is not there yet, and reads what is.
fn measure(
    plan: &Plan,
    runs: &[Run],
    store: &Store,
    jobs: usize,
) -> Result<Vec<Measured>, Failure> {
    let mut known = store.read(plan, runs);
    let missing = keys::distinct(runs, |key| !known.contains_key(key));
    let kept = keys::distinct(runs, |key| known.contains_key(key)).len();
    work::check(plan, &missing, jobs)?;
    output::say(&format!(
        "{}: {} cells with {} seeds: {} runs, {kept} are there, {} to do",
        plan.name,
        plan.cells.len(),
        plan.seeds.len(),
        kept + missing.len(),
        missing.len()
    ));
    let done = work::run_all(plan, &missing, store, jobs)?;
    if interrupt::requested() {
        let finished = kept
            + done
                .values()
                .filter(|result| result.figures.is_ok())
                .count();
        output::say(&format!(
            "{finished} of {} runs are in {}; the same command goes on from there",
            kept + missing.len(),
            store.directory().display()
        ));
        return Err(Failure::Interrupted);
    }
    known.extend(done);
    let measured = runs.iter().map(|run| {
        let result = known.get(&run.key).cloned();
        result.unwrap_or_default().of(run)
    });
    Ok(measured.collect())
}

/// Writes and shows what came out.
fn finish(args: &Args, outcome: &Outcome, out: &Path) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(outcome).context("the sweep cannot become JSON")?;
    let json = format!("{json}\n");
    let mut table = Vec::new();
    sluicegate_report::sweep::parquet(outcome, &mut table)?;
    files::put(out, "sweep.parquet", &table)?;
    table.clear();
    sluicegate_report::sweep::runs_parquet(outcome, &mut table)?;
    files::put(out, "runs.parquet", &table)?;
    files::put(out, "sweep.json", json.as_bytes())?;
    let page = sluicegate_report::sweep::html(outcome);
    files::put(out, "index.html", page.as_bytes())?;
    match args.json {
        true => output::print(&json)?,
        false => output::print(&sluicegate_report::sweep::text(outcome, output::style()))?,
    }
    output::say(&format!("tables in {}", out.display()));
    if !outcome.failed.is_empty() {
        let (failed, all) = (
            outcome.failed.len(),
            outcome.failed.len() + outcome.succeeded(),
        );
        return Err(Failure::Failed(anyhow!(
            "{failed} of {all} runs gave no result, see above; the same command tries them again"
        )));
    }
    let mut faults = sluicegate_report::sweep::expectations(outcome);
    faults.extend(outcome.outside.iter().map(|(counter, count)| {
        let scenario = &outcome.scenario;
        format!("{scenario}: {counter} = {count} where the experiment is not about it")
    }));
    match args.check && !faults.is_empty() {
        true => Err(Failure::NotHeld(faults)),
        false => Ok(()),
    }
}
