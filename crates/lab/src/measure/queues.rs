//! The transmit queues of the switches.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sluicegate_agent::interfaces;
use sluicegate_emulator::{Emulation, Lag, PortCounts};
use sluicegate_labkit::port::{PortConfig, PortStats, Slot, SwitchPorts};
use sluicegate_scenario::{
    experiment::{PortId, Variant},
    results::{LinkResult, QueueQuantiles},
};

use crate::{
    emulated,
    net::{
        Network,
        layout::{ETHERNET_HEADER_BYTES, SwitchPort},
    },
};

/// The counts of one queue.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    port: PortStats,
    qdisc: QdiscStats,
}

/// Counters of all queues at one moment.
#[derive(Clone, Debug)]
pub enum Snapshot {
    /// Of the lab's own switches.
    Kernel(Vec<Counts>),
    /// Of an emulated fabric.
    Fabric(Box<sluicegate_emulator::Counts>),
}

/// One queue: its name and how to read it.
#[derive(Debug)]
struct Queue {
    slot: Slot,
    interface: String,
    name: String,
    bottleneck: bool,
}

/// All transmit queues of all switches.
#[derive(Debug)]
pub enum Queues<'a> {
    /// Of the lab's own switches.
    Kernel(Kernel),
    /// Of an emulated fabric.
    Fabric(&'a Variant, Emulation),
}

impl<'a> Queues<'a> {
    /// Attaches to every switch port of the network, unless a fabric is emulated.
    ///
    /// # Errors
    /// The kernel refuses the program; a marking that a port cannot do.
    pub fn attach(
        variant: &'a Variant,
        network: &Network,
        emulation: Option<Emulation>,
    ) -> Result<Self> {
        Ok(match emulation {
            Some(emulation) => Self::Fabric(variant, emulation),
            None => Self::Kernel(Kernel::attach(variant, network)?),
        })
    }

    /// From here on every port clears ECN codepoints.
    ///
    /// # Errors
    /// A map cannot be written; an emulated fabric does not do that.
    pub fn bleach(&mut self) -> Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.bleach(),
            Self::Fabric(..) => bail!("an emulated fabric does not clear ECN codepoints"),
        }
    }

    /// (name of the queue, bytes in it now) of each bottleneck.
    ///
    /// # Errors
    /// A map cannot be read; the emulated fabric has ended.
    pub fn backlogs(&self) -> Result<Vec<(String, u64)>> {
        match self {
            Self::Kernel(kernel) => kernel.backlogs(),
            Self::Fabric(variant, emulation) => {
                let counts = emulation.counts()?;
                let ports = PortId::enumerate(&counts.ports);
                let ports = ports.filter(|&(port, _)| emulated::is_bottleneck(variant, port));
                let backlog = |(port, counts): (_, &PortCounts)| {
                    (variant.port_name(port), counts.backlog_bytes)
                };
                Ok(ports.map(backlog).collect())
            }
        }
    }

    /// Bytes that arrived at all bottlenecks since the network was built.
    ///
    /// # Errors
    /// As [`Queues::backlogs`].
    pub fn bottleneck_bytes(&self) -> Result<u64> {
        match self {
            Self::Kernel(kernel) => kernel.bottleneck_bytes(),
            Self::Fabric(variant, emulation) => {
                let counts = emulation.counts()?;
                let ports = PortId::enumerate(&counts.ports);
                let ports = ports.filter(|&(port, _)| emulated::is_bottleneck(variant, port));
                Ok(ports.map(|(_, counts)| counts.stats.accepted_bytes).sum())
            }
        }
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// As [`Queues::backlogs`]; `tc` fails.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(match self {
            Self::Kernel(kernel) => Snapshot::Kernel(kernel.snapshot()?),
            Self::Fabric(_, emulation) => Snapshot::Fabric(Box::new(emulation.counts()?)),
        })
    }

    /// The differences between two snapshots, one entry per queue.
    pub fn results(&self, from: &Snapshot, to: &Snapshot) -> Vec<LinkResult> {
        match (self, from, to) {
            (Self::Kernel(kernel), Snapshot::Kernel(from), Snapshot::Kernel(to)) => {
                kernel.results(from, to)
            }
            (Self::Fabric(variant, _), Snapshot::Fabric(from), Snapshot::Fabric(to)) => {
                emulated::results(variant, from, to)
            }
            _ => unreachable!("the queues of a run are of one kind"),
        }
    }
}

impl Snapshot {
    /// Between hosts and an emulated fabric: how late it was since `from`, and what was lost there.
    /// `None` where nothing is emulated.
    pub fn emulated_since(&self, from: &Self) -> Option<(Lag, u64)> {
        match (from, self) {
            (Self::Fabric(from), Self::Fabric(to)) => {
                Some((to.lag.since(&from.lag), emulated::lost(from, to)))
            }
            _ => None,
        }
    }
}

/// The queues of the lab's own switches, marked and counted by `ecn_switch`.
#[derive(Debug)]
pub struct Kernel {
    netns: String,
    ports: Option<SwitchPorts>,
    queues: Vec<Queue>,
}

impl Kernel {
    fn attach(variant: &Variant, network: &Network) -> Result<Self> {
        let netns = network.names.switches();
        let mut queues = Vec::new();
        if network.layout.ports.is_empty() {
            return Ok(Self {
                netns,
                ports: None,
                queues,
            });
        }
        let mut ports = SwitchPorts::load()?;
        Network::within(&netns, || {
            for port in &network.layout.ports {
                queues.push(attach(variant, port, &mut ports)?);
            }
            Ok(())
        })?;
        Ok(Self {
            netns,
            ports: Some(ports),
            queues,
        })
    }

    fn bleach(&mut self) -> Result<()> {
        let Some(ports) = &mut self.ports else {
            return Ok(());
        };
        for queue in &self.queues {
            ports.set_bleach(queue.slot, true)?;
        }
        Ok(())
    }

    fn backlogs(&self) -> Result<Vec<(String, u64)>> {
        let Some(ports) = &self.ports else {
            return Ok(Vec::new());
        };
        let bottlenecks = self.queues.iter().filter(|queue| queue.bottleneck);
        bottlenecks
            .map(|queue| Ok((queue.name.clone(), ports.backlog_bytes(queue.slot)?)))
            .collect()
    }

    fn bottleneck_bytes(&self) -> Result<u64> {
        let Some(ports) = &self.ports else {
            return Ok(0);
        };
        let bottlenecks = self.queues.iter().filter(|queue| queue.bottleneck);
        bottlenecks
            .map(|queue| Ok(ports.stats(queue.slot)?.bytes))
            .sum()
    }

    fn snapshot(&self) -> Result<Vec<Counts>> {
        let Some(ports) = &self.ports else {
            return Ok(Vec::new());
        };
        let qdiscs = token_buckets(&self.netns)?;
        let counts = self.queues.iter().map(|queue| {
            let qdisc = qdiscs.get(&queue.interface);
            Ok(Counts {
                port: ports.stats(queue.slot)?,
                qdisc: qdisc
                    .cloned()
                    .with_context(|| format!("{}: the token bucket is gone", queue.name))?,
            })
        });
        counts.collect()
    }

    fn results(&self, from: &[Counts], to: &[Counts]) -> Vec<LinkResult> {
        let pairs = from.iter().zip(to);
        let results = self.queues.iter().zip(pairs);
        let results = results.map(|(queue, (from, to))| result(queue, from, to));
        results.collect()
    }
}

fn attach(variant: &Variant, port: &SwitchPort, ports: &mut SwitchPorts) -> Result<Queue> {
    let link = &variant.links[port.id.link()];
    let name = variant.port_name(port.id);
    let config = PortConfig {
        aqm: link.marking,
        rate_bps: link.rate_bps,
        frame_bytes: variant.mtu_bytes + ETHERNET_HEADER_BYTES,
    };
    let interface = interfaces::find(&port.interface)?;
    let slot = ports
        .attach(interface.index, &config)
        .with_context(|| format!("switch port {name}"))?;
    Ok(Queue {
        slot,
        interface: port.interface.clone(),
        name,
        bottleneck: link.bottleneck && port.id.is_forward(),
    })
}

fn result(queue: &Queue, from: &Counts, to: &Counts) -> LinkResult {
    let port = to.port.since(&from.port);
    let tail = to.qdisc.drops.saturating_sub(from.qdisc.drops);
    let drops = [
        ("tail", tail),
        ("not_ect", port.drops_not_ect),
        ("red", port.drops_red),
    ];
    LinkResult {
        id: queue.name.clone(),
        bottleneck: queue.bottleneck,
        sent: to.qdisc.packets.saturating_sub(from.qdisc.packets),
        sent_bytes: to.qdisc.bytes.saturating_sub(from.qdisc.bytes),
        drops: drops
            .into_iter()
            .map(|(cause, count)| (cause.to_owned(), count))
            .collect(),
        marks: port.marks,
        queue_bytes: QueueQuantiles {
            p50: port.backlog.quantile(0.5),
            p99: port.backlog.quantile(0.99),
            max: port.backlog.quantile(1.0),
        },
        ..LinkResult::default()
    }
}

/// The answer of `tc -s -j qdisc show` for one queue.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct QdiscStats {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    dev: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    pub(super) drops: u64,
}

/// The token buckets of a namespace by interface.
pub(super) fn token_buckets(netns: &str) -> Result<BTreeMap<String, QdiscStats>> {
    let output = Command::new("tc")
        .args(["-n", netns, "-s", "-j", "qdisc", "show"])
        .output()
        .context("tc: cannot be run (Debian: apt-get install iproute2)")?;
    if !output.status.success() {
        bail!(
            "tc -s qdisc show in {netns}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let list: Vec<QdiscStats> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("tc -s -j qdisc show in {netns}"))?;
    let buckets = list.into_iter().filter(|qdisc| qdisc.kind == "tbf");
    Ok(buckets.map(|qdisc| (qdisc.dev.clone(), qdisc)).collect())
}
