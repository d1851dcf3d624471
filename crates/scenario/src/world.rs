//! The one interface behind which every world stands.

use std::{fmt, time::Duration};

use crate::{
    experiment::{Experiment, Variant},
    results::{Conditions, VariantResult},
};

/// What a world cannot do of what a file says, wherever it runs: the file is to be changed. One line each, with
/// file and line where they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub Vec<String>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Refused {}

/// Runs resolved variants. Implementations refuse what they cannot do before they do anything.
pub trait World {
    /// Name as given to `--world`.
    fn name(&self) -> &'static str;

    /// Says, naming the file and what is missing, why this experiment cannot run here; as [`Refused`] where that
    /// does not depend on the machine.
    fn check(&mut self, experiment: &Experiment) -> anyhow::Result<()>;

    /// Runs one variant once with this seed and measures it.
    fn run(
        &mut self,
        experiment: &Experiment,
        variant: &Variant,
        seed: u64,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Outcome>;
}

/// What one run of one variant leaves.
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

/// An observer for runs at which nobody looks.
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
