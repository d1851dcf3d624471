//! Enforcement on the hosts of the lab: programs of the kernel at each interface, or the host's
//! switch. Hosts share nothing with each other.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use sluicegate_agent::Instance;
use sluicegate_core::abi::{Flow, FlowKey};
use sluicegate_labkit::pool::Pool;
use sluicegate_scenario::experiment::{HostId, LabSwitch, Variant};

use crate::{host_switch::HostSwitches, net::Network};

/// Loaded programs between runs: the verifier takes half a second of CPU for each instance.
static POOL: Mutex<Pool> = Mutex::new(Pool::new());

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Instances by host.
#[derive(Debug, Default)]
pub struct Enforcers {
    /// By the kernel's programs.
    hosts: BTreeMap<HostId, Instance>,
    /// By their switches, which have had the policy from their start.
    switches: Vec<HostId>,
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
    /// Attaches to the host side of every tenant's interface on every enforcing host, unless
    /// switches of hosts enforce.
    ///
    /// # Errors
    /// The kernel refuses the programs.
    pub fn attach(variant: &Variant, network: &Network) -> Result<Self> {
        let mut enforcers = Self::default();
        let Some(enforcement) = &variant.enforcement else {
            return Ok(enforcers);
        };
        if variant.lab.switch != LabSwitch::Bridge {
            enforcers.switches.clone_from(&enforcement.hosts);
            return Ok(enforcers);
        }
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
        self.hosts.is_empty() && self.switches.is_empty()
    }

    /// Takes the programs of these hosts away, as when an agent is removed, or the policy of their
    /// switches.
    ///
    /// # Errors
    /// The kernel refuses; a switch does not answer.
    pub fn detach(&mut self, hosts: &[HostId], switches: &HostSwitches) -> Result<()> {
        for host in hosts {
            if let Some(at) = self.switches.iter().position(|it| it == host) {
                self.switches.remove(at);
                let report = switches.enforcement(*host)?;
                add(
                    &mut self.counted,
                    report.map_or_else(BTreeMap::new, |it| it.counters),
                );
                switches.detach(*host)?;
            }
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
    /// The kernel refuses; a switch does not answer.
    pub fn flows(&self, switches: &HostSwitches) -> Result<Vec<(FlowKey, Flow)>> {
        let mut flows = Vec::new();
        for instance in self.hosts.values() {
            flows.extend(instance.raw_flows()?);
        }
        for &host in &self.switches {
            let report = switches.enforcement(host)?;
            flows.extend(
                report
                    .into_iter()
                    .flat_map(|it| it.keys.into_iter().zip(it.flows)),
            );
        }
        Ok(flows)
    }

    /// Counters summed over all hosts since they were attached.
    ///
    /// # Errors
    /// As [`Enforcers::flows`].
    pub fn counters(&self, switches: &HostSwitches) -> Result<BTreeMap<String, u64>> {
        let mut sum = self.counted.clone();
        for instance in self.hosts.values() {
            add(&mut sum, instance.counters()?);
        }
        for &host in &self.switches {
            let report = switches.enforcement(host)?;
            add(
                &mut sum,
                report.map_or_else(BTreeMap::new, |it| it.counters),
            );
        }
        Ok(sum)
    }
}

fn add(sum: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name).or_default() += count;
    }
}
