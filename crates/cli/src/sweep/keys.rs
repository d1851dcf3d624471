//! The key of a run: a hash of everything that decides its result.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use sha2::{Digest, Sha256};
use sluicegate_config::Problems;
use sluicegate_scenario::sweep::{self, Plan};

use crate::output::Failure;

/// The build of the algorithms and the simulator, see `build.rs`.
pub const BUILD: &str = env!("SLUICEGATE_BUILD");

/// A cell with a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Position in [`Plan::cells`].
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// Hash of all inputs, as 32 hexadecimal digits; runs with the same key have the same result.
    pub key: String,
}

/// All runs of a sweep. Runs with the first seed come first, so that a sweep that ends early has
/// results of every cell.
///
/// # Errors
/// A file that the scenario names has changed since the plan was made, so that a cell is refused.
pub fn runs(plan: &Plan, jobs: usize) -> Result<Vec<Run>, Failure> {
    let cells = plan.cells.len();
    let all = cells * plan.seeds.len();
    let slots: Vec<Mutex<Option<Result<Run, Problems>>>> =
        (0..all).map(|_| Mutex::new(None)).collect();
    each(jobs, all, |index| {
        let (cell, seed) = (index % cells, plan.seeds[index / cells]);
        let run = key(plan, cell, seed).map(|key| Run { cell, seed, key });
        *slots[index].lock().unwrap_or_else(|e| e.into_inner()) = Some(run);
    });
    let runs = slots
        .into_iter()
        .filter_map(|slot| slot.into_inner().ok().flatten());
    Ok(runs.collect::<Result<Vec<Run>, Problems>>()?)
}

/// Calls `work` with every number below `count`, on so many threads, the least first.
pub fn each(jobs: usize, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        index if index < count => work(index),
                        _ => return,
                    }
                }
            });
        }
    });
}

fn key(plan: &Plan, cell: usize, seed: u64) -> Result<String, Problems> {
    let experiment = plan.experiment(&plan.cells[cell], seed)?;
    let mut hash = Sha256::new();
    hash.update(format!(
        "sluicegate {} {BUILD}\nseed {seed}\n",
        env!("CARGO_PKG_VERSION")
    ));
    for variant in &experiment.variants {
        hash.update(sweep::input(variant));
    }
    let hash = hash.finalize();
    Ok(hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The runs whose key is `wanted`, each key once.
pub fn distinct(runs: &[Run], wanted: impl Fn(&str) -> bool) -> Vec<Run> {
    let mut seen = HashSet::new();
    let chosen = runs
        .iter()
        .filter(|run| wanted(&run.key) && seen.insert(run.key.as_str()));
    chosen.cloned().collect()
}
