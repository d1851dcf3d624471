//! Packets lost where the experiment is not about: between namespaces and in interfaces.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};

use super::queues;
use crate::net::{Network, counters};

/// Counters of the whole machine and of every namespace of the run. Only differences mean anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Packets dropped because a CPU's backlog was full.
    softnet_dropped: u64,
    /// Packets dropped by interfaces, by `namespace/interface`.
    interfaces: BTreeMap<String, u64>,
    /// Packets dropped by the queues of shared uplinks, by `namespace/interface`.
    uplinks: BTreeMap<String, u64>,
}

impl Outside {
    /// Reads all of them.
    ///
    /// # Errors
    /// /proc cannot be read, a namespace is gone.
    pub fn read(network: &Network) -> Result<Self> {
        let softnet =
            fs::read_to_string("/proc/net/softnet_stat").context("/proc/net/softnet_stat")?;
        let mut interfaces = BTreeMap::new();
        for (netns, _) in &network.layout.namespaces {
            for (interface, counters) in Network::within(netns, counters::read)? {
                let name = format!("{netns}/{interface}");
                interfaces.insert(name, counters.receive_drops + counters.send_drops);
            }
        }
        // What is lost between guests and their hosts' switches is in the results.
        for guest in &network.layout.guests {
            interfaces.remove(&format!("{}/{}", guest.netns, guest.interface));
        }
        Ok(Self {
            softnet_dropped: softnet_drops(&softnet),
            interfaces,
            uplinks: uplink_drops(network)?,
        })
    }

    /// Packets lost after `earlier`: `softnet_dropped`, `interface_dropped`, `uplink_dropped`, all
    /// always present, and a line for people on each interface that dropped.
    pub fn since(&self, earlier: &Self) -> (BTreeMap<String, u64>, Vec<String>) {
        let mut notes = Vec::new();
        let interfaces = growth(&self.interfaces, &earlier.interfaces, &mut notes);
        let uplinks = growth(&self.uplinks, &earlier.uplinks, &mut notes);
        let softnet = self.softnet_dropped.saturating_sub(earlier.softnet_dropped);
        let counters = BTreeMap::from([
            ("softnet_dropped".to_owned(), softnet),
            ("interface_dropped".to_owned(), interfaces),
            ("uplink_dropped".to_owned(), uplinks),
        ]);
        (counters, notes)
    }
}

/// Sum of what grew, with a line for each.
fn growth(
    now: &BTreeMap<String, u64>,
    earlier: &BTreeMap<String, u64>,
    notes: &mut Vec<String>,
) -> u64 {
    let mut sum = 0;
    for (name, count) in now {
        let drops = count.saturating_sub(earlier.get(name).copied().unwrap_or(0));
        if drops > 0 {
            sum += drops;
            notes.push(format!("{name} dropped {drops} packets"));
        }
    }
    sum
}

/// Drops of the token buckets of shared uplinks.
fn uplink_drops(network: &Network) -> Result<BTreeMap<String, u64>> {
    let mut drops = BTreeMap::new();
    for (netns, interface) in &network.layout.uplinks {
        let bucket = queues::token_buckets(netns)?.remove(interface);
        let bucket = bucket.with_context(|| format!("{netns}/{interface}: no token bucket"))?;
        drops.insert(format!("{netns}/{interface}"), bucket.drops);
    }
    Ok(drops)
}

/// Second column of each CPU's line, hexadecimal.
fn softnet_drops(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_drops_are_hexadecimal_and_summed_over_cpus() {
        assert_eq!(
            softnet_drops("00000001 0000000a 0\n00000001 00000001 0\n"),
            11
        );
    }
}
