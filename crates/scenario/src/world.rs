//! The one interface behind which every world stands.

use std::{fmt, time::Duration};

pub use sluicegate_config::{Problem, Problems, problem::Complaint};

use crate::{
    experiment::{Experiment, Variant},
    results::{Conditions, VariantResult},
    workload,
};

/// The problems of a file that a world cannot run, on any machine: the file is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Problems);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// Runs resolved variants. Implementations refuse what they cannot do before they do anything.
pub trait World {
    /// Name as given to `--world`.
    fn name(&self) -> &'static str;

    /// The parts of an experiment that this world cannot run, on any machine; empty = it can run
    /// everything. Needs no privileges.
    fn limits(&self, experiment: &Experiment) -> Vec<Problem>;

    /// Checks that this machine has all that an experiment within the limits needs.
    ///
    /// # Errors
    /// All that is missing, and how to get it.
    fn machine(&mut self, _experiment: &Experiment) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether this experiment can run here. In every world a file that it cannot run anywhere is
    /// refused first.
    ///
    /// # Errors
    /// [`Refused`], with the place of each key and what to do; without one, what [`World::machine`]
    /// says.
    fn check(&mut self, experiment: &Experiment) -> anyhow::Result<()> {
        let mut problems = self.limits(experiment);
        problems.extend(
            (experiment.variants.iter())
                .filter_map(|variant| workload::plans(variant, experiment.seed).err()),
        );
        problems.sort();
        problems.dedup();
        if !problems.is_empty() {
            return Err(Refused(Problems(problems)).into());
        }
        self.machine(experiment)
    }

    /// Runs one variant once with this seed and measures it.
    fn run(
        &mut self,
        experiment: &Experiment,
        variant: &Variant,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Outcome>;
}

/// The outcome of one run of one variant.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Measurements.
    pub result: VariantResult,
    /// Circumstances of this run.
    pub conditions: Conditions,
}

/// Told of progress; may ask to stop.
pub trait Observer {
    /// A run begins: variant, its number from 1 of so many runs in all.
    fn begins(&mut self, _variant: &str, _number: usize, _total: usize) {}
    /// A new phase ("building the network", "running", …).
    fn phase(&mut self, phase: &str);
    /// Progress within the run and a line of live figures.
    fn progress(&mut self, done: Duration, total: Duration, live: &str);
    /// Something a user should know.
    fn note(&mut self, line: &str);
    /// True once the user asked to stop; the world then cleans up and returns an error.
    fn cancelled(&self) -> bool;
}

/// An observer that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn phase(&mut self, _: &str) {}
    fn progress(&mut self, _: Duration, _: Duration, _: &str) {}
    fn note(&mut self, _: &str) {}
    fn cancelled(&self) -> bool {
        false
    }
}
