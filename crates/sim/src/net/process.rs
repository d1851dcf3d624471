//! Processes that read late: a tenant's process sleeps until data arrive at one of its sockets, and
//! then runs after a time that is drawn from a measured distribution. It reads everything that has
//! arrived by then, at all of its sockets.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sluicegate_core::number::{low_64, narrow};
use sluicegate_fabric::random::draw;
use sluicegate_tcp::Events;

use super::{
    EndId, Life, Net, Notice, PacketFabric,
    clock::{WAKE, source},
};

/// The sleeping processes of a part. The draws of a tenant depend on nothing but the seed and its
/// number.
pub struct Processes {
    /// Quantiles of the time from data to the process that reads them, in ns: evenly spaced,
    /// smallest first, at least one.
    lateness_ns: Arc<[u64]>,
    seed: u64,
    sleeping: FxHashMap<u32, Process>,
}

/// One tenant's process.
struct Process {
    random: u64,
    /// Connections with something to read, each once. Not empty = the process is about to run.
    waiting: Vec<EndId>,
}

impl Processes {
    /// All processes sleep.
    pub fn new(lateness_ns: Arc<[u64]>, seed: u64) -> Self {
        Self {
            lateness_ns,
            seed,
            sleeping: FxHashMap::default(),
        }
    }

    /// Data have arrived at an end of a tenant. Returns after how many ns its process runs, if that
    /// was not certain before.
    fn data(&mut self, tenant: u32, end: EndId) -> Option<u64> {
        let seed = self.seed;
        let process = self.sleeping.entry(tenant).or_insert_with(|| Process {
            random: seed ^ u64::from(tenant).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            waiting: Vec::new(),
        });
        let was_asleep = process.waiting.is_empty();
        if !process.waiting.contains(&end) {
            process.waiting.push(end);
        }
        was_asleep.then(|| quantile(&self.lateness_ns, draw(&mut process.random)))
    }
}

/// The quantile at a draw of 64 bits, between two given ones by a straight line.
fn quantile(evenly_spaced: &[u64], drawn: u64) -> u64 {
    let steps = evenly_spaced.len().saturating_sub(1) as u128;
    let at = u128::from(drawn) * steps;
    let (below, part) = (narrow::<usize>(at >> 64), low_64(at) >> 32);
    let low = evenly_spaced[below];
    let high = evenly_spaced.get(below + 1).copied().unwrap_or(low);
    low + narrow::<u64>((u128::from(high.saturating_sub(low)) * u128::from(part)) >> 32)
}

impl<F: PacketFabric> Net<F> {
    /// Events at an end, without those of which its owner hears when its process runs.
    #[inline(always)]
    pub(super) fn until_awake(&mut self, end: EndId, events: Events) -> Events {
        if self.sockets.processes.is_none() || !events.contains(Events::READABLE) {
            return events;
        }
        self.wake_late(end);
        events.without(Events::READABLE)
    }

    fn wake_late(&mut self, end: EndId) {
        let tenant = self.sockets.ends[end as usize].addressing.tenant;
        let processes = self.sockets.processes.as_mut();
        if let Some(late_ns) = processes.and_then(|processes| processes.data(tenant, end)) {
            let at_ps = self.clock.now_ps + late_ns.saturating_mul(1_000);
            self.clock.wheel.push(at_ps, source(WAKE, tenant));
        }
    }

    /// A tenant's process runs: it hears of all sockets with something to read.
    pub(super) fn wake(&mut self, tenant: u32) {
        let processes = self.sockets.processes.as_mut();
        let Some(process) = processes.and_then(|all| all.sleeping.get_mut(&tenant)) else {
            return;
        };
        for end in process.waiting.drain(..) {
            if self.sockets.ends[end as usize].life == Life::Used {
                let notice = Notice::Socket(end, Events::READABLE);
                self.sockets.notices.push_back(notice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_quantiles() {
        let quantiles = [10, 20, 100];
        assert_eq!(quantile(&quantiles, 0), 10);
        assert_eq!(quantile(&quantiles, u64::MAX / 4), 14);
        assert_eq!(quantile(&quantiles, 1 << 63), 20);
        assert_eq!(quantile(&quantiles, u64::MAX), 99);
        assert_eq!(quantile(&[7], u64::MAX), 7);
    }

    #[test]
    fn one_wake_up_serves_all_that_arrives_before_it() {
        let mut processes = Processes::new(vec![5, 5].into(), 1);
        assert_eq!(processes.data(3, 8), Some(5));
        assert_eq!(processes.data(3, 9), None);
        assert_eq!(processes.data(3, 8), None);
        assert_eq!(processes.data(4, 10), Some(5), "another process");
        assert_eq!(processes.sleeping[&3].waiting, [8, 9]);
    }
}
