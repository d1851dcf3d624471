//! Runs on all CPUs, one thread each.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, HashSet},
    panic::{self, AssertUnwindSafe},
    sync::Mutex,
};

use anyhow::anyhow;
use sluicegate_config::Problems;
use sluicegate_scenario::{
    results::VariantResult,
    runner,
    sweep::Plan,
    world::{Observer, Refused, World},
};
use sluicegate_sim::{Sim, Threads};

use super::{
    keys::{self, Run},
    show::Progress,
    store::{Known, Store},
};
use crate::{interrupt, output::Failure};

/// Checks that the simulator can run the cell of each of these runs, before the first one begins.
///
/// # Errors
/// The problems of all cells that the simulator refuses.
pub fn check(plan: &Plan, runs: &[Run], jobs: usize) -> Result<(), Failure> {
    let mut cells = HashSet::new();
    let firsts: Vec<&Run> = runs.iter().filter(|run| cells.insert(run.cell)).collect();
    let outcomes: Vec<Mutex<anyhow::Result<()>>> =
        firsts.iter().map(|_| Mutex::new(Ok(()))).collect();
    keys::each(jobs, firsts.len(), |index| {
        if !interrupt::requested() {
            let outcome = check_one(plan, firsts[index]);
            *outcomes[index].lock().unwrap_or_else(|e| e.into_inner()) = outcome;
        }
    });
    let mut problems = Vec::new();
    for outcome in outcomes {
        if let Err(error) = outcome.into_inner().unwrap_or_else(|e| e.into_inner()) {
            let Refused(Problems(refused)) = error.downcast()?;
            problems.extend(refused);
        }
    }
    problems.sort();
    problems.dedup();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Problems(problems).into()),
    }
}

fn check_one(plan: &Plan, run: &Run) -> anyhow::Result<()> {
    let experiment = plan.experiment(&plan.cells[run.cell], run.seed);
    let experiment = experiment.map_err(Refused)?;
    Sim::default().check(&experiment)
}

/// Runs these and keeps their results, by key. A run that fails does not stop the others; an
/// interruption does.
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
    use std::{env, fs, process};

    use sluicegate_scenario::sweep;

    use super::*;

    /// Two cells, the second of which the simulator refuses.
    const SCENARIO: &str = "warmup = '0s'\nduration = '10ms'\n[network]\ntopology = 'dumbbell'\n\
        pairs = 1\nrate = '20Mbit'\n[traffic.bulk]\nkind = 'bulk'\n[[sweep.axis]]\n\
        path = 'tenant.default.congestion_control'\nvalues = ['cubic', 'bbr']\n";

    #[test]
    fn a_run_that_fails_has_an_error_and_the_others_have_results() {
        let root = env::temp_dir().join(format!("sluicegate-work-{}", process::id()));
        fs::create_dir_all(&root).unwrap();
        let file = root.join("two.toml");
        fs::write(&file, SCENARIO).unwrap();
        let plan = sweep::load(&file, &sweep::Options::default());
        let plan = plan.unwrap_or_else(|problems| panic!("{problems}"));
        let store = Store::open(&root.join("out")).unwrap_or_else(|_| panic!("a directory"));
        let runs = keys::runs(&plan, 1).unwrap_or_else(|_| panic!("keys"));
        assert!(check(&plan, &runs[..1], 1).is_ok());
        let Err(Failure::BadInput(text)) = check(&plan, &runs, 2) else {
            panic!("a refused value is accepted");
        };
        assert!(text.contains("no \"bbr\""), "{text}");
        // Without the check.
        let done = run_all(&plan, &runs, &store, 2).unwrap_or_else(|_| panic!("results"));
        assert!(done[&runs[0].key].figures.is_ok());
        let error = done[&runs[1].key].figures.as_ref().unwrap_err();
        assert!(error.contains("no \"bbr\""), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }

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
