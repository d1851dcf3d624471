//! The machine's CPUs, split between the two ends of the path as if each were a machine of its own.
//! One flow's speed depends by a factor of three on which CPUs its ends and its packets happen to
//! share; so they do not happen to, they are placed.

use anyhow::{Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Which end of the path.
#[derive(Clone, Copy)]
pub enum Side {
    /// The sending tenant and its host.
    Sending,
    /// The receiving tenant and its host.
    Receiving,
}

impl Side {
    /// CPUs of this side: half of those that the process may use. At least two are needed.
    fn cpus(self) -> Result<Vec<usize>> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .collect();
        ensure!(
            cpus.len() > 1,
            "the benchmark needs two CPUs, one for each end; it may use {}",
            cpus.len()
        );
        let receiving = cpus.split_off(cpus.len() / 2);
        Ok(match self {
            Self::Sending => cpus,
            Self::Receiving => receiving,
        })
    }

    /// This side's CPUs as `rps_cpus` reads them: words of 32 bits in hex, the highest first.
    pub fn mask(self) -> Result<String> {
        let mut words = [0u32; CpuSet::MAX_CPU / 32];
        for cpu in self.cpus()? {
            words[cpu / 32] |= 1 << (cpu % 32);
        }
        let words = words.iter().rev().skip_while(|&&word| word == 0);
        let words: Vec<String> = words.map(|word| format!("{word:08x}")).collect();
        Ok(words.join(","))
    }

    /// Keeps the calling thread on this side.
    pub fn stay(self) -> Result<()> {
        let mut set = CpuSet::new();
        for cpu in self.cpus()? {
            set.set(cpu);
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}
