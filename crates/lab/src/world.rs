//! The lab as a [`World`].

use anyhow::{Context, Result};
use sluicegate_scenario::{
    experiment::{Experiment, Variant},
    world::{Observer, Outcome, Problem, World},
};

use crate::{
    clean::{self, CleanReport},
    foreign::Options,
    journal::Lock,
    limits, requirements,
    run::Run,
    tenant::Report,
};

/// Runs scenarios on this machine's kernel.
#[derive(Debug, Default)]
pub struct Lab {
    /// Held from the first check or run to the end of the process's lab.
    lock: Option<Lock>,
}

impl Lab {
    /// A lab that has touched nothing yet.
    ///
    /// # Errors
    /// None today; what a machine lacks is said by [`World::check`].
    pub fn new() -> Result<Self> {
        Ok(Self::default())
    }

    /// Runs a variant some of whose tenants are programs of other makes, and returns what every
    /// tenant saw, too.
    ///
    /// # Errors
    /// As [`World::run`]; a program cannot be run or does not answer.
    pub fn run_foreign(
        &mut self,
        variant: &Variant,
        seed: u64,
        options: &Options,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, Vec<Report>)> {
        let cleaned = self.claim()?;
        if cleaned.runs > 0 {
            observer.note(&format!(
                "removed what {} earlier runs had left",
                cleaned.runs
            ));
        }
        for failure in &cleaned.failed {
            observer.note(failure);
        }
        Run::build(variant, seed, options, observer)?.measure(observer)
    }

    /// Becomes the only lab of the machine and removes what crashed ones left.
    fn claim(&mut self) -> Result<CleanReport> {
        if self.lock.is_some() {
            return Ok(CleanReport::default());
        }
        let lock = self.lock.insert(Lock::take()?);
        clean::clean_holding(lock).context("cleaning up after an earlier run")
    }
}

impl World for Lab {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn limits(&self, experiment: &Experiment) -> Vec<Problem> {
        limits::of(experiment)
    }

    fn machine(&mut self, experiment: &Experiment) -> Result<()> {
        requirements::check(experiment)
    }

    fn run(
        &mut self,
        _experiment: &Experiment,
        variant: &Variant,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
        let (outcome, _) = self.run_foreign(variant, seed, &Options::default(), observer)?;
        Ok(outcome)
    }
}
