//! `sluicegate compare`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use sluicegate_report::{
    compare::{self, Run, Side, Tolerance, Tolerances},
    read_samples_csv, read_samples_parquet,
};
use sluicegate_scenario::results::{Results, SCHEMA};

use crate::{
    output::{self, Failure},
    run::files,
};

const EXAMPLES: &str = "\
Examples:
  sluicegate compare out/lab out/sim
  sluicegate compare out/lab out/sim --check --rtt-p50 30% --out out/lab-and-sim
  sluicegate compare out/before out/after --json

A DIR holds the results.json of one scenario, or directories that do. Scenarios and variants
are matched by name; what only one side has is listed. With --out, DIR gets compare.html and
compare.json.

--check exits with 3 when a side was limited by the CPU, has nothing in common with the first,
or is further from it than the tolerances: in goodput and RTT of a variant, in the ratio of two
variants (goodput, Jain, RTT, FCT), or when another one of two variants is the better one. A
tolerance is written 20% or 2x.";

/// Compare results: of other worlds, seeds, versions or policies
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with results; the first is the reference
    #[arg(required = true, num_args = 2..=26, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Directory for compare.html and compare.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the comparison as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Print one Markdown table instead: every variant's figures over the reference's, bold where
    /// outside
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Exit with 3 when something lies outside the tolerances
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    tolerances: Limits,
}

/// The tolerances of `--check`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Tolerances")]
struct Limits {
    /// Of the goodput of a variant
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().goodput)]
    goodput: Tolerance,
    /// Of its median RTT
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().rtt_p50)]
    rtt_p50: Tolerance,
    /// Of its RTT p99
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().rtt_p99)]
    rtt_p99: Tolerance,
    /// Of the ratio of two variants: goodput, Jain, median RTT and FCT
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().ratio)]
    ratio: Tolerance,
    /// Of the ratio of two variants: RTT and FCT p99
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().ratio_p99)]
    ratio_p99: Tolerance,
    /// Variants no further apart are equally good
    #[arg(long, value_name = "TOLERANCE", default_value_t = Tolerances::default().tie)]
    tie: Tolerance,
}

impl Limits {
    fn tolerances(&self) -> Tolerances {
        Tolerances {
            goodput: self.goodput,
            rtt_p50: self.rtt_p50,
            rtt_p99: self.rtt_p99,
            ratio: self.ratio,
            ratio_p99: self.ratio_p99,
            tie: self.tie,
        }
    }
}

/// Runs `sluicegate compare`.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Samples are long; only the page draws them.
    let with_samples = args.out.is_some();
    let sides: Result<Vec<Side>, Failure> = args
        .directories
        .iter()
        .map(|directory| side(directory, with_samples))
        .collect();
    let sides = sides?;
    let comparison = compare::compare(&sides, args.tolerances.tolerances());
    let json = serde_json::to_string_pretty(&comparison).context("no JSON can be made of it")?;
    let json = format!("{json}\n");
    if let Some(out) = &args.out {
        files::make(out)?;
        let page = compare::html(&comparison, &sides);
        files::put(out, "compare.html", page.as_bytes())?;
        files::put(out, "compare.json", json.as_bytes())?;
        output::say(&format!("comparison in {}", out.display()));
    }
    match (args.json, args.markdown) {
        (true, _) => output::print(&json)?,
        (_, true) => output::print(&compare::agreement(&comparison))?,
        _ => output::print(&compare::text(&comparison, output::style()))?,
    }
    match args.check && !comparison.outside.is_empty() {
        true => Err(Failure::NotHeld(comparison.outside)),
        false => Ok(()),
    }
}

/// All results of a directory.
fn side(directory: &Path, with_samples: bool) -> Result<Side, Failure> {
    let mut runs: Vec<(PathBuf, Run)> = Vec::new();
    for place in places(directory, &[RESULTS])? {
        let run = load(&place, with_samples)?;
        let name = &run.results.scenario;
        if let Some((other, _)) = runs.iter().find(|(_, r)| r.results.scenario == *name) {
            return Err(Failure::BadInput(format!(
                "{}: scenario \"{name}\" is also in {}; name one of the two directories",
                place.display(),
                other.display()
            )));
        }
        runs.push((place, run));
    }
    Ok(Side {
        directory: directory.display().to_string(),
        runs: runs.into_iter().map(|(_, run)| run).collect(),
    })
}

/// The directory itself, or those in it that hold results, by name.
pub fn places(directory: &Path, files: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let bad = |why: String| Failure::BadInput(format!("{}: {why}", directory.display()));
    let has_results = |place: &Path| files.iter().any(|file| place.join(file).is_file());
    if has_results(directory) {
        return Ok(vec![directory.to_owned()]);
    }
    let advice = "name the directory that `sluicegate run --out` wrote";
    let entries = fs::read_dir(directory).map_err(|error| bad(format!("{error}; {advice}")))?;
    let mut places = Vec::new();
    for entry in entries {
        let place = entry.map_err(|error| bad(error.to_string()))?.path();
        if has_results(&place) {
            places.push(place);
        }
    }
    if places.is_empty() {
        return Err(bad(format!(
            "there is no {}, nor in a directory below; {advice}",
            files.join(" or ")
        )));
    }
    places.sort();
    Ok(places)
}

/// File with the figures of a scenario.
pub const RESULTS: &str = "results.json";

/// Reads what a run has left in a directory.
pub fn load(place: &Path, with_samples: bool) -> Result<Run, Failure> {
    let file = place.join(RESULTS);
    let bad = |why: String| Failure::BadInput(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(&file).map_err(|error| bad(error.to_string()))?;
    let mut results = parse(&text).map_err(bad)?;
    if with_samples {
        samples(place, &mut results)?;
    }
    Ok(Run {
        results,
        as_run: fs::read_to_string(place.join("scenario.toml")).ok(),
    })
}

/// Results of this program's schema, or what to do.
fn parse(text: &str) -> Result<Results, String> {
    let again = "run the scenario again";
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}; {again}"))?;
    match value["schema"].as_u64() {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(format!(
                "has schema {schema}, this sluicegate reads {SCHEMA}; {again} with this version, or compare with that one"
            ));
        }
        None => return Err(format!("has no schema: these are no results; {again}")),
    }
    serde_json::from_value(value).map_err(|error| format!("is not complete: {error}; {again}"))
}

/// Reads what lies beside the results for CDFs; without a file there are none.
fn samples(place: &Path, results: &mut Results) -> Result<(), Failure> {
    let files = ["samples.parquet", "samples.csv.gz"].map(|name| place.join(name));
    let Some(path) = files.into_iter().find(|path| path.exists()) else {
        return Ok(());
    };
    let file = fs::File::open(&path).map_err(anyhow::Error::from);
    let read = file.and_then(|file| match path.extension() {
        Some(end) if end == "parquet" => read_samples_parquet(results, file),
        _ => read_samples_csv(results, file),
    });
    read.map_err(|error| {
        let path = path.display();
        Failure::BadInput(format!(
            "{path}: {error:#}; remove it to compare without CDFs"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_schemas_and_other_files_are_refused_with_advice() {
        for (text, why) in [
            ("{", "is no JSON"),
            ("{}", "has no schema"),
            ("{\"schema\": 1}", "has schema 1, this sluicegate reads 2"),
            ("{\"schema\": 2}", "is not complete: missing field"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
            assert!(error.contains("again"), "{error}");
        }
    }
}
