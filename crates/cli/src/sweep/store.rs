//! Results of finished runs, on the disk.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sluicegate_agent::file;
use sluicegate_scenario::{
    results::VariantResult,
    sweep::{Measured, Plan},
};

use super::keys::{BUILD, Run};
use crate::{output, output::Failure, run::files};

/// Version of the files in `runs/`.
const SCHEMA: u32 = 2;

/// Where results of runs are kept: `DIR/runs/KEY.json`.
pub struct Store {
    directory: PathBuf,
}

/// A file in `runs/`.
#[derive(Serialize, Deserialize)]
struct Record {
    schema: u32,
    key: String,
    version: String,
    build: String,
    scenario: String,
    /// The label of the first cell that was run with this input.
    cell: String,
    seed: u64,
    outside: BTreeMap<String, u64>,
    result: VariantResult,
}

/// The result of the run with a key.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its figures, or the error for which there are none.
    pub figures: Result<BTreeMap<String, f64>, String>,
    /// [`Measured::outside`].
    pub outside: BTreeMap<String, u64>,
}

impl Default for Known {
    fn default() -> Self {
        Self::failed("it was not run".to_owned())
    }
}

impl Known {
    /// The entry of a run that failed.
    pub fn failed(error: String) -> Self {
        Self {
            figures: Err(error),
            outside: BTreeMap::new(),
        }
    }

    /// As the result of `run`.
    pub fn of(self, run: &Run) -> Measured {
        Measured {
            cell: run.cell,
            seed: run.seed,
            figures: self.figures,
            outside: self.outside,
        }
    }
}

impl Store {
    /// Makes `out` and the directory for runs, and removes incomplete files of killed processes.
    ///
    /// # Errors
    /// It cannot be made, or not be written.
    pub fn open(out: &Path) -> Result<Self, Failure> {
        let directory = out.join("runs");
        files::make(&directory)?;
        // A directory that cannot be written fails here, not after the first run.
        let probe = directory.join(".writable");
        let written = fs::write(&probe, "").and_then(|()| fs::remove_file(&probe));
        written.with_context(|| format!("{}: cannot be written", directory.display()))?;
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if is_orphan(&path) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(Self { directory })
    }

    /// The directory of runs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.json"))
    }

    /// Reads the stored results of these runs, by key. A run whose file cannot be read runs again.
    pub fn read(&self, plan: &Plan, runs: &[Run]) -> HashMap<String, Known> {
        let mut known = HashMap::new();
        for run in runs {
            if known.contains_key(&run.key) {
                continue;
            }
            match self.load(&run.key) {
                Ok(None) => {}
                Ok(Some(record)) => {
                    let figures = Ok(plan.figures_of(&record.result));
                    let outside = record.outside;
                    known.insert(run.key.clone(), Known { figures, outside });
                }
                Err(why) => {
                    let path = self.path(&run.key);
                    output::say(&format!("{}: {why}; it is run again", path.display()));
                }
            }
        }
        known
    }

    fn load(&self, key: &str) -> Result<Option<Record>, String> {
        let text = match fs::read_to_string(self.path(key)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let record: Record =
            serde_json::from_str(&text).map_err(|error| format!("is no result: {error}"))?;
        match record.schema == SCHEMA && record.key == key {
            true => Ok(Some(record)),
            false => Err("is the result of something else".to_owned()),
        }
    }

    /// Stores a result: the file is complete and on the disk, or there is none.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(
        &self,
        plan: &Plan,
        run: &Run,
        outside: &BTreeMap<String, u64>,
        result: &VariantResult,
    ) -> anyhow::Result<()> {
        let record = Record {
            schema: SCHEMA,
            key: run.key.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: BUILD.to_owned(),
            scenario: plan.name.clone(),
            cell: plan.label(&plan.cells[run.cell]),
            seed: run.seed,
            outside: outside.clone(),
            result: result.clone(),
        };
        let text = serde_json::to_string(&record).context("a result cannot become JSON")?;
        file::replace_durably(&self.path(&run.key), text.as_bytes())
    }
}

/// Whether this is an incomplete result, `.KEY.json.new.PID`, of this process or of one that has
/// ended.
fn is_orphan(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, pid)) = name.rsplit_once(".json.new.") else {
        return false;
    };
    let pid: Option<u32> = pid.parse().ok();
    name.starts_with('.')
        && pid
            .is_some_and(|pid| pid == process::id() || !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_ended_processes_are_orphans() {
        let own = format!("/d/.ab.json.new.{}", process::id());
        assert!(is_orphan(Path::new(&own)));
        // Beyond the largest that Linux gives.
        assert!(is_orphan(Path::new("/d/.ab.json.new.99999999")));
        assert!(!is_orphan(Path::new("/d/.ab.json.new.1")));
        assert!(!is_orphan(Path::new("/d/ab.json")));
        assert!(!is_orphan(Path::new("/d/.ab.json.new.x")));
    }
}
