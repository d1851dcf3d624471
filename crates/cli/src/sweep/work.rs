//! Runs on all CPUs, one thread each.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    panic::{self, AssertUnwindSafe},
    sync::Mutex,
};

use anyhow::anyhow;
use sluicegate_scenario::{results::VariantResult, runner, sweep::Plan, world::Observer};
use sluicegate_sim::{Sim, Threads};

use super::{
    keys::{self, Run},
    show::Progress,
    store::{Known, Store},
};
use crate::{interrupt, output::Failure};

/// Runs these and keeps their results, by key. A run that fails does not stop the others; an interruption does.
///
/// # Errors
/// A result that cannot be kept.
pub fn run_all(
    plan: &Plan,
    runs: &[Run],
    store: &Store,
    jobs: usize,
) -> Result<HashMap<String, Known>, Failure> {
    let progress = Progress::new(&plan.name, runs.len());
    let done: Mutex<HashMap<String, Known>> = Mutex::default();
    let unkept: Mutex<Option<anyhow::Error>> = Mutex::default();
    keys::each(jobs, runs.len(), |index| {
        let stopped = unkept.lock().is_ok_and(|unkept| unkept.is_some());
        if stopped || interrupt::requested() {
            return;
        }
        let run = &runs[index];
        let label = format!("{} seed={}", plan.label(&plan.cells[run.cell]), run.seed);
        let mut observer = progress.begin(&label);
        let result = run_one(plan, run, &mut observer);
        if result.is_err() && interrupt::requested() {
            return progress.drop(observer);
        }
        let known = match result {
            Ok((outside, result)) => {
                if let Err(error) = store.keep(plan, run, &outside, &result) {
                    if let Ok(mut unkept) = unkept.lock() {
                        *unkept = Some(error);
                    }
                    return progress.drop(observer);
                }
                let figures = Ok(plan.figures_of(&result));
                Known { figures, outside }
            }
            Err(error) => Known::failed(error),
        };
        progress.end(observer, &label, known.figures.as_ref().err());
        if let Ok(mut done) = done.lock() {
            done.insert(run.key.clone(), known);
        }
    });
    progress.finish();
    if let Ok(Some(error)) = unkept.into_inner() {
        let advice = "make room; what was kept before is not run again";
        return Err(Failure::Failed(error.context(advice)));
    }
    Ok(done.into_inner().unwrap_or_default())
}

/// Runs `work`; a panic becomes an error of this run.
fn run_one(
    plan: &Plan,
    run: &Run,
    observer: &mut dyn Observer,
) -> Result<(BTreeMap<String, u64>, VariantResult), String> {
    let attempt = panic::catch_unwind(AssertUnwindSafe(|| simulate(plan, run, observer)));
    match attempt {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(payload) => Err(format!("a panic: {}", panic_text(payload.as_ref()))),
    }
}

fn simulate(
    plan: &Plan,
    run: &Run,
    observer: &mut dyn Observer,
) -> anyhow::Result<(BTreeMap<String, u64>, VariantResult)> {
    let experiment = plan.experiment(&plan.cells[run.cell], run.seed)?;
    let mut world = Sim {
        threads: Threads::Exactly(1),
    };
    let mut results = runner::run(&experiment, &mut world, observer)?;
    let result = results.variants.pop();
    let result = result.ok_or_else(|| anyhow!("the variant is not there any more"))?;
    Ok((results.conditions.outside, result))
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_told() {
        let text = |work: fn()| {
            let payload = panic::catch_unwind(work).unwrap_err();
            panic_text(payload.as_ref()).to_owned()
        };
        assert_eq!(text(|| panic!("plain")), "plain");
        assert_eq!(text(|| panic!("{} packets", 3)), "3 packets");
    }
}
