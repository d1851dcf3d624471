//! Helpers of several tests that work on a scenario's text.

#![allow(dead_code, reason = "the test of allocations uses a part")]

use std::path::Path;

use sluicegate_scenario::{
    experiment::Experiment,
    file::{self, Options},
    results::VariantResult,
    world::{Unobserved, World},
};
use sluicegate_sim::{Sim, Threads};

/// The experiment that a scenario describes.
pub fn experiment(text: &str) -> Experiment {
    let parsed = file::parse(Path::new("t.toml"), text, &Options::default());
    parsed.unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Its variants, each run once with seed 1 on so many threads.
pub fn run_on(threads: Threads, text: &str) -> Vec<VariantResult> {
    let experiment = experiment(text);
    let mut sim = Sim { threads };
    let outcome = |variant| sim.run(&experiment, variant, 1, &mut Unobserved);
    let outcomes = experiment.variants.iter().map(outcome);
    outcomes
        .map(|outcome| outcome.expect("it runs").result)
        .collect()
}

/// The same on as many threads as the simulator chooses.
pub fn run(text: &str) -> Vec<VariantResult> {
    run_on(Threads::Auto, text)
}
