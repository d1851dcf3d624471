//! The files of results.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::Context;
use sluicegate_agent::file;
use sluicegate_scenario::{experiment::Experiment, results::Results};

use crate::output::Failure;

/// Directory of captures, within the directory of results.
pub const CAPTURES: &str = "pcap";

/// Files that only some runs write.
const MADE_ON_DEMAND: [&str; 4] = [
    "samples.csv.gz",
    "traces.parquet",
    "traces.csv.gz",
    "film.parquet",
];

/// Writes `results.json`, `scenario.toml`, `samples.parquet`, `report.html` and, if there are any,
/// `traces.parquet` and `film.parquet`; with `csv` also `samples.csv.gz` and `traces.csv.gz`.
///
/// # Errors
/// A file that cannot be written.
pub fn write(
    out: &Path,
    experiment: &Experiment,
    results: &Results,
    csv: bool,
) -> Result<(), Failure> {
    // A file of an earlier run would be taken for this run's.
    for name in MADE_ON_DEMAND {
        remove(&out.join(name))?;
    }
    let json = serde_json::to_string_pretty(results).context("results cannot become JSON")?;
    put(out, "results.json", format!("{json}\n").as_bytes())?;
    put(out, "scenario.toml", experiment.as_run.as_bytes())?;
    put_made(out, "samples.parquet", |file| {
        sluicegate_report::samples_parquet(results, file)
    })?;
    if csv {
        put_made(out, "samples.csv.gz", |file| {
            sluicegate_report::samples_csv(results, file)
        })?;
    }
    write_traces(out, results, csv)?;
    write_films(out, results)?;
    write_report(out, &[results])
}

fn write_traces(out: &Path, results: &Results, csv: bool) -> Result<(), Failure> {
    let mut variants = results.variants.iter();
    if variants.all(|variant| variant.samples.traces.is_empty()) {
        return Ok(());
    }
    put_made(out, "traces.parquet", |file| {
        sluicegate_report::traces_parquet(results, file)
    })?;
    if csv {
        put_made(out, "traces.csv.gz", |file| {
            sluicegate_report::traces_csv(results, file)
        })?;
    }
    Ok(())
}

fn write_films(out: &Path, results: &Results) -> Result<(), Failure> {
    let mut variants = results.variants.iter();
    if variants.all(|variant| variant.samples.films.is_empty()) {
        return Ok(());
    }
    put_made(out, "film.parquet", |file| {
        sluicegate_report::film_parquet(results, file)
    })
}

/// Removes the captures of an earlier run, since a new one may not overwrite all of them. Other
/// files stay.
///
/// # Errors
/// A capture that cannot be removed.
pub fn remove_captures(out: &Path) -> Result<(), Failure> {
    let captures = out.join(CAPTURES);
    for variant in entries(&captures) {
        for file in entries(&variant) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".pcapng") || name.ends_with(".pcapng.new") {
                remove(&file)?;
            }
        }
        // Directories that are not empty stay.
        let _ = fs::remove_dir(&variant);
    }
    let _ = fs::remove_dir(&captures);
    Ok(())
}

/// The entries of a directory; none if it does not exist or is no directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

fn remove(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let what = format!(
                "{}: left by a former run, cannot be removed",
                file.display()
            );
            Err(anyhow::Error::new(error).context(what).into())
        }
        _ => Ok(()),
    }
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

/// Writes a file in one step: a reader finds the old content or the whole new one.
///
/// # Errors
/// The file cannot be written.
pub fn put(out: &Path, name: &str, content: &[u8]) -> Result<(), Failure> {
    let path = out.join(name);
    file::replace(&path, content)
        .with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(())
}
