//! Loaded instances kept for the next use.
//!
//! The verifier takes a good part of a second for the programs of one instance, and a lab has one
//! per host and variant. A pool loads those that it lacks on all CPUs and resets those that it has.

use std::thread;

use anyhow::{Context, Result, anyhow};
use sluicegate_agent::{Instance, Options};
use sluicegate_policy::Policy;

/// Instances that are not in use now. They share nothing with each other.
#[derive(Debug, Default)]
pub struct Pool {
    spare: Vec<Instance>,
}

impl Pool {
    /// An empty one.
    pub const fn new() -> Self {
        Self { spare: Vec::new() }
    }

    /// `count` instances with `policy`, as if just loaded with default [`Options`].
    ///
    /// # Errors
    /// As [`Instance::load`].
    pub fn take(&mut self, count: usize, policy: &Policy) -> Result<Vec<Instance>> {
        let reused = self.spare.len().min(count);
        let mut instances = self.spare.split_off(self.spare.len() - reused);
        for instance in &mut instances {
            instance
                .reset(policy)
                .context("reusing enforcement programs")?;
        }
        instances.extend(load(count - reused, policy)?);
        Ok(instances)
    }

    /// Takes instances back; they are detached at once.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn give(&mut self, instances: impl IntoIterator<Item = Instance>) -> Result<()> {
        for mut instance in instances {
            instance.reset(&Policy::default())?;
            self.spare.push(instance);
        }
        Ok(())
    }
}

/// Loads `count` instances, as many at a time as there are CPUs.
fn load(count: usize, policy: &Policy) -> Result<Vec<Instance>> {
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(count);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let share = count / threads + usize::from(worker < count % threads);
                scope.spawn(move || {
                    (0..share)
                        .map(|_| Instance::load(policy, &Options::default()))
                        .collect::<Result<Vec<Instance>>>()
                })
            })
            .collect();
        let mut instances = Vec::with_capacity(count);
        for worker in workers {
            instances.extend(worker.join().map_err(|_| anyhow!("a loader panicked"))??);
        }
        Ok(instances)
    })
}
