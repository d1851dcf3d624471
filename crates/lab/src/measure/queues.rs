//! The transmit queues of the switches.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sluicegate_agent::interfaces;
use sluicegate_labkit::port::{PortConfig, PortStats, Slot, SwitchPorts};
use sluicegate_scenario::{
    experiment::Variant,
    results::{LinkResult, QueueQuantiles},
};

use crate::net::{
    Network,
    layout::{ETHERNET_HEADER_BYTES, SwitchPort},
};

/// The counts of one queue.
#[derive(Clone, Debug, Default)]
struct Counts {
    port: PortStats,
    qdisc: QdiscStats,
}

/// Counters of all queues at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(Vec<Counts>);

/// One queue: its name and how to read it.
#[derive(Debug)]
struct Queue {
    slot: Slot,
    interface: String,
    name: String,
    bottleneck: bool,
}

/// All transmit queues of all switches, marked and counted by `ecn_switch`.
#[derive(Debug)]
pub struct Queues {
    netns: String,
    ports: Option<SwitchPorts>,
    queues: Vec<Queue>,
}

impl Queues {
    /// Attaches to every switch port of the network.
    ///
    /// # Errors
    /// The kernel refuses the program; a marking that a port cannot do.
    pub fn attach(variant: &Variant, network: &Network) -> Result<Self> {
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

    /// From here on every port clears ECN codepoints.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn bleach(&mut self) -> Result<()> {
        let Some(ports) = &mut self.ports else {
            return Ok(());
        };
        for queue in &self.queues {
            ports.set_bleach(queue.slot, true)?;
        }
        Ok(())
    }

    /// (name of the queue, bytes in it now) of each bottleneck.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn backlogs(&self) -> Result<Vec<(&str, u64)>> {
        let Some(ports) = &self.ports else {
            return Ok(Vec::new());
        };
        let bottlenecks = self.queues.iter().filter(|queue| queue.bottleneck);
        bottlenecks
            .map(|queue| Ok((queue.name.as_str(), ports.backlog_bytes(queue.slot)?)))
            .collect()
    }

    /// Bytes that arrived at all bottlenecks since the network was built.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn bottleneck_bytes(&self) -> Result<u64> {
        let Some(ports) = &self.ports else {
            return Ok(0);
        };
        let bottlenecks = self.queues.iter().filter(|queue| queue.bottleneck);
        bottlenecks
            .map(|queue| Ok(ports.stats(queue.slot)?.bytes))
            .sum()
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// A map cannot be read, `tc` fails.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let Some(ports) = &self.ports else {
            return Ok(Snapshot(Vec::new()));
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
        Ok(Snapshot(counts.collect::<Result<_>>()?))
    }

    /// The differences between two snapshots, one entry per queue.
    pub fn results(&self, from: &Snapshot, to: &Snapshot) -> Vec<LinkResult> {
        let pairs = from.0.iter().zip(&to.0);
        self.queues
            .iter()
            .zip(pairs)
            .map(|(queue, (from, to))| result(queue, from, to))
            .collect()
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
