//! The ports that receivers of traffic listen on.

use std::{collections::HashMap, ops::Range};

use crate::experiment::{Traffic, TrafficKind};

/// Lowest port of traffic: lower ones belong to services of a system.
pub const FIRST_PORT: u32 = 1024;

/// Highest port of traffic: Linux hands out those above it to clients.
pub const LAST_PORT: u32 = 32_767;

impl Traffic {
    /// TCP or UDP ports that its receivers listen on, from [`Traffic::port`] on.
    pub fn ports(&self) -> u32 {
        let count = match self.kind {
            // A server has one port for all aggregators.
            TrafficKind::Queries { .. } => 1,
            // So has a rank, or one for each other.
            TrafficKind::Program {
                datagram_bytes: None,
                ..
            } => 1,
            TrafficKind::Program { ref tenants, .. } => tenants.len(),
            _ if self.shares_ports => {
                let last = self.port_numbers().into_iter().max();
                return last.map_or(0, |last| last + 1);
            }
            _ => self.pairs.len(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// By pair, the port that it listens on, counted from [`Traffic::port`]. Each pair has one of
    /// its own, in their order. Where pairs share ports, each receiver counts for itself, so that
    /// only its address and the port tell the pair.
    pub fn port_numbers(&self) -> Vec<u32> {
        let has_one = match self.kind {
            TrafficKind::Queries { .. } => true,
            TrafficKind::Program { datagram_bytes, .. } => datagram_bytes.is_none(),
            _ => false,
        };
        if has_one {
            return vec![0; self.pairs.len()];
        }
        if !self.shares_ports {
            return (0..).take(self.pairs.len()).collect();
        }
        let mut next: HashMap<usize, u32> = HashMap::new();
        let numbers = self.pairs.iter().map(|(_, to)| {
            let next = next.entry(*to).or_default();
            *next += 1;
            *next - 1
        });
        numbers.collect()
    }

    /// All its ports.
    pub fn port_range(&self) -> Range<u32> {
        let first = u32::from(self.port);
        first..first.saturating_add(self.ports())
    }

    /// Whether its ports do not go beyond [`LAST_PORT`].
    pub fn has_ports(&self) -> bool {
        self.port_range().end <= LAST_PORT + 1
    }
}

/// The lowest port from which on `count` ports are free among those of other traffic.
pub fn free(count: u32, others: &[Traffic]) -> Option<u16> {
    let mut taken: Vec<Range<u32>> = others.iter().map(Traffic::port_range).collect();
    taken.sort_unstable_by_key(|range| range.start);
    let mut first = FIRST_PORT;
    for range in taken {
        if first.saturating_add(count) <= range.start {
            break;
        }
        first = first.max(range.end);
    }
    let fits = first.saturating_add(count) <= LAST_PORT + 1;
    fits.then(|| u16::try_from(first).ok()).flatten()
}
