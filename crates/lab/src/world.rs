//! The lab as a [`World`].

use anyhow::{Context, Result};
use sluicegate_scenario::{
    experiment::{Experiment, Variant},
    world::{Observer, Outcome, World},
};

use crate::{
    clean::{self, CleanReport},
    journal::Lock,
    requirements,
    run::Run,
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

    fn check(&mut self, experiment: &Experiment) -> Result<()> {
        requirements::check(experiment)
    }

    fn run(
        &mut self,
        _experiment: &Experiment,
        variant: &Variant,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> Result<Outcome> {
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
        Run::build(variant, seed, observer)?.measure(observer)
    }
}
