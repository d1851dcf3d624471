//! What a run leaves in its directory.

use std::{fs, path::Path};

use anyhow::Context;
use sluicegate_scenario::{experiment::Experiment, results::Results};

use crate::output::Failure;

/// Writes `results.json`, `scenario.toml`, `samples.csv.gz`, `report.html` and, if there are any, `traces.csv.gz`; with
/// the feature `parquet` also `samples.parquet` and `traces.parquet`.
///
/// # Errors
/// A file that cannot be written.
pub fn write(out: &Path, experiment: &Experiment, results: &Results) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(results).context("results cannot become JSON")?;
    put(out, "results.json", format!("{json}\n").as_bytes())?;
    put(out, "scenario.toml", experiment.as_run.as_bytes())?;
    put_made(out, "samples.csv.gz", |file| {
        sluicegate_report::samples_csv(results, file)
    })?;
    #[cfg(feature = "parquet")]
    put_made(out, "samples.parquet", |file| {
        sluicegate_report::samples_parquet(results, file)
    })?;
    write_traces(out, results)?;
    write_report(out, &[results])
}

fn write_traces(out: &Path, results: &Results) -> Result<(), Failure> {
    let mut variants = results.variants.iter();
    if variants.all(|variant| variant.samples.traces.is_empty()) {
        return Ok(());
    }
    #[cfg(feature = "parquet")]
    put_made(out, "traces.parquet", |file| {
        sluicegate_report::traces_parquet(results, file)
    })?;
    #[cfg(not(feature = "parquet"))]
    crate::output::say("traces are CSV; for traces.parquet build with --features parquet");
    put_made(out, "traces.csv.gz", |file| {
        sluicegate_report::traces_csv(results, file)
    })
}

/// Writes what `make` puts into a buffer.
fn put_made(
    out: &Path,
    name: &str,
    make: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let mut content = Vec::new();
    make(&mut content)?;
    put(out, name, &content)
}

/// Writes `report.html` over one or several scenarios.
///
/// # Errors
/// The file cannot be written.
pub fn write_report(out: &Path, results: &[&Results]) -> Result<(), Failure> {
    put(
        out,
        "report.html",
        sluicegate_report::html(results).as_bytes(),
    )
}

/// Makes a directory for results, if it is not there.
///
/// # Errors
/// It cannot be made.
pub fn make(out: &Path) -> Result<(), Failure> {
    fs::create_dir_all(out).with_context(|| format!("{}: cannot be made", out.display()))?;
    Ok(())
}

/// Writes through a neighbour and a rename, so that no reader finds half a file.
///
/// # Errors
/// The file cannot be written.
pub fn put(out: &Path, name: &str, content: &[u8]) -> Result<(), Failure> {
    let path = out.join(name);
    let half = out.join(format!(".{name}.new"));
    fs::write(&half, content)
        .and_then(|()| fs::rename(&half, &path))
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(())
}
