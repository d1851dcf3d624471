//! Enforcement on the hosts of the lab: one instance per host, which shares nothing with the
//! others.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use sluicegate_agent::Instance;
use sluicegate_core::abi::{Flow, FlowKey};
use sluicegate_labkit::pool::Pool;
use sluicegate_scenario::experiment::{HostId, Variant};

use crate::net::Network;

/// Loaded programs between runs: the verifier takes half a second of CPU for each instance.
static POOL: Mutex<Pool> = Mutex::new(Pool::new());

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Instances by host.
#[derive(Debug, Default)]
pub struct Enforcers {
    hosts: BTreeMap<HostId, Instance>,
    /// Counters of those already detached.
    counted: BTreeMap<String, u64>,
}

impl Drop for Enforcers {
    fn drop(&mut self) {
        let instances = std::mem::take(&mut self.hosts).into_values();
        // An instance that cannot be reset is dropped, which detaches it as well.
        let _ = pool().give(instances);
    }
}

impl Enforcers {
    /// Attaches to the host side of every tenant's interface on every enforcing host.
    ///
    /// # Errors
    /// The kernel refuses the programs.
    pub fn attach(variant: &Variant, network: &Network) -> Result<Self> {
        let mut enforcers = Self::default();
        let Some(enforcement) = &variant.enforcement else {
            return Ok(enforcers);
        };
        let instances = pool()
            .take(enforcement.hosts.len(), &enforcement.policy)
            .context("loading enforcement")?;
        for (&host, mut instance) in enforcement.hosts.iter().zip(instances) {
            let name = variant.host_name(host);
            let netns = network.names.host(host);
            let vnics = network
                .layout
                .vnics
                .iter()
                .filter(|vnic| vnic.netns == netns);
            let vnics: Vec<&str> = vnics.map(|vnic| vnic.interface.as_str()).collect();
            Network::within(&netns, || {
                vnics.iter().try_for_each(|vnic| instance.attach(vnic))
            })
            .with_context(|| format!("enforcement on host {name}"))?;
            enforcers.hosts.insert(host, instance);
        }
        Ok(enforcers)
    }

    /// No host enforces.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Takes the programs of these hosts away, as when an agent is removed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&mut self, hosts: &[HostId]) -> Result<()> {
        for host in hosts {
            if let Some(instance) = self.hosts.remove(host) {
                add(&mut self.counted, instance.counters()?);
                instance.end()?;
            }
        }
        Ok(())
    }

    /// Every flow that any host tracks.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn flows(&self) -> Result<Vec<(FlowKey, Flow)>> {
        let mut flows = Vec::new();
        for instance in self.hosts.values() {
            flows.extend(instance.raw_flows()?);
        }
        Ok(flows)
    }

    /// Counters summed over all hosts since they were attached.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let mut sum = self.counted.clone();
        for instance in self.hosts.values() {
            add(&mut sum, instance.counters()?);
        }
        Ok(sum)
    }
}

fn add(sum: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name).or_default() += count;
    }
}
