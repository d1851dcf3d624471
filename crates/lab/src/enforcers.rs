//! Enforcement on the hosts of the lab: one instance per host, which shares nothing with the others.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use sluicegate_agent::{Instance, Options};
use sluicegate_core::abi::{Flow, FlowKey};
use sluicegate_scenario::experiment::Variant;

use crate::net::Network;

/// Instances by host id.
#[derive(Debug, Default)]
pub struct Enforcers {
    hosts: BTreeMap<usize, Instance>,
    /// Counters of those already detached.
    counted: BTreeMap<String, u64>,
}

impl Enforcers {
    /// Attaches to the host side of every tenant's interface on every enforcing host.
    ///
    /// # Errors
    /// The kernel refuses the programs.
    pub fn attach(variant: &Variant, network: &Network) -> Result<Self> {
        let mut enforcers = Self::default();
        let Some(enforcement) = &variant.enforcement else { return Ok(enforcers) };
        let policy = enforcement.policy.compile();
        for &host in &enforcement.hosts {
            let name = &variant.hosts[host].name;
            let mut instance =
                Instance::load(&policy, &Options::default()).with_context(|| format!("enforcement on host {name}"))?;
            let netns = network.names.host(host);
            let vnics = network.layout.vnics.iter().filter(|vnic| vnic.netns == netns);
            let vnics: Vec<&str> = vnics.map(|vnic| vnic.interface.as_str()).collect();
            Network::within(&netns, || vnics.iter().try_for_each(|vnic| instance.attach(vnic)))
                .with_context(|| format!("enforcement on host {name}"))?;
            enforcers.hosts.insert(host, instance);
        }
        Ok(enforcers)
    }

    /// Nobody enforces.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Takes the programs of these hosts away, as when an agent is removed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&mut self, hosts: &[usize]) -> Result<()> {
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
