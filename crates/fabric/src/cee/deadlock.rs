//! Deadlocks: pauses that wait for each other in a cycle, so that none of them ever ends.

use sluicegate_core::number::narrow;

use super::{Cee, CeeFrame, Label, PRIORITIES};
use crate::{
    graph::{Node, PortId, SwitchId},
    pool::{NIL, Pool},
};

/// A paused priority of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stuck {
    /// The port that may not send.
    pub port: PortId,
    /// The priority.
    pub priority: u8,
    /// Since when.
    pub since_ps: u64,
}

/// A cycle of pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// Each waits for the next, the last for the first.
    pub cycle: Vec<Stuck>,
    /// When the last of them was paused.
    pub since_ps: u64,
    /// Bytes that wait in the buffers of the cycle.
    pub bytes: u64,
    /// Paused ports outside the cycle that wait for it.
    pub behind: usize,
}

/// Whom the frames in a buffer wait for.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The pause of those who send into the buffer.
    pub stuck: Stuck,
    /// (port, bytes), in the priority of `stuck`.
    behind: Vec<(PortId, u64)>,
    held_bytes: u64,
    /// The switch that the buffer belongs to.
    switch: SwitchId,
}

impl Cee {
    /// A cycle of pauses that cannot end any more, if there is one.
    ///
    /// A pause ends when the buffer behind it falls below XON. What leaves that buffer goes by
    /// ports that are not paused, or whose pause ends; so starting from all paused ports those are
    /// struck out whose buffer can fall, until nothing changes (a greatest fixed point). What is
    /// left never ends, and has a cycle.
    pub fn deadlock<F: CeeFrame>(&self, pool: &Pool<F>) -> Option<Deadlock> {
        self.deadlock_among(self.waits(pool))
    }

    /// [`Cee::deadlock`] among the waits of all parts of a run, in the order of ports and
    /// priorities.
    pub fn deadlock_among(&self, mut waits: Vec<Wait>) -> Option<Deadlock> {
        loop {
            let stuck: Vec<(PortId, u8)> = waits
                .iter()
                .map(|wait| (wait.stuck.port, wait.stuck.priority))
                .collect();
            let before = waits.len();
            let xon_bytes = self.xon_bytes(&waits, &stuck);
            waits.retain(|wait| wait.never_ends(&stuck, xon_bytes(wait.switch)));
            if waits.len() == before {
                break;
            }
        }
        self.cycle(&waits)
    }

    /// XON of a switch's inputs once all frames that do not wait for a stuck port have left its
    /// memory.
    fn xon_bytes(
        &self,
        waits: &[Wait],
        stuck: &[(PortId, u8)],
    ) -> impl Fn(SwitchId) -> u64 + use<'_> {
        let mut stays = vec![0; self.out.switches()];
        for wait in waits {
            stays[wait.switch.index()] += wait.stays_bytes(stuck);
        }
        move |switch| {
            let free = || (self.buffers.shared_bytes(switch)).saturating_sub(stays[switch.index()]);
            self.buffers.thresholds_with(free).1
        }
    }

    /// Paused priorities whose frames would come into a switch's buffer. Where another part of the
    /// run simulates the paused port, it knows since when ([`Cee::paused_since_ps`]).
    pub fn waits<F: CeeFrame>(&self, pool: &Pool<F>) -> Vec<Wait> {
        let mut waits = Vec::new();
        for port in PortId::first(self.specs.len()) {
            let sent = self.buffers.sent(port);
            let Node::Switch(switch) = self.specs[port.index()].far else {
                continue;
            };
            for priority in (0..PRIORITIES).filter(|priority| sent & 1 << priority != 0) {
                waits.push(Wait {
                    stuck: Stuck {
                        port,
                        priority: narrow::<u8>(priority),
                        since_ps: self.paused_since_ps(port, priority),
                    },
                    behind: self.behind(pool, switch, port, priority),
                    held_bytes: self.ingress_bytes(port, priority),
                    switch,
                });
            }
        }
        waits
    }

    /// Since when a priority of a port is paused; meaningful while it is.
    pub fn paused_since_ps(&self, port: PortId, priority: usize) -> u64 {
        self.pauses[port.index()].began_ps(priority)
    }

    /// Where the frames of a buffer of a switch wait, and how many bytes of them.
    fn behind<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        switch: SwitchId,
        ingress: PortId,
        priority: usize,
    ) -> Vec<(PortId, u64)> {
        let mut behind = Vec::new();
        for (out, spec) in PortId::enumerate(&self.specs) {
            if spec.near != Node::Switch(switch) {
                continue;
            }
            let mut bytes = 0;
            let mut handle = self.out.queue(out, priority).head();
            while handle != NIL {
                let label = Label::of(pool, handle);
                if label.buffered && label.ingress == ingress {
                    bytes += u64::from(pool[handle].bytes());
                }
                handle = pool.next(handle);
            }
            if bytes > 0 {
                behind.push((out, bytes));
            }
        }
        behind
    }

    /// A cycle among pauses of which each waits for at least one other.
    fn cycle(&self, waits: &[Wait]) -> Option<Deadlock> {
        let mut path: Vec<usize> = vec![0];
        waits.first()?;
        let next = |at: usize| {
            let priority = waits[at].stuck.priority;
            let (ports, of) = (waits[at].behind.iter(), |port: PortId| {
                waits
                    .iter()
                    .position(|wait| wait.stuck.port == port && wait.stuck.priority == priority)
            });
            ports.filter_map(|&(port, _)| of(port)).next()
        };
        let from = loop {
            let at = next(*path.last()?)?;
            if let Some(from) = path.iter().position(|&seen| seen == at) {
                break from;
            }
            path.push(at);
        };
        let cycle: Vec<Stuck> = path[from..].iter().map(|&at| waits[at].stuck).collect();
        Some(Deadlock {
            since_ps: cycle.iter().map(|stuck| stuck.since_ps).max()?,
            bytes: path[from..].iter().map(|&at| waits[at].held_bytes).sum(),
            behind: waits.len() - cycle.len(),
            cycle,
        })
    }
}

impl Wait {
    /// Whether the buffer stays above XON even if all that does not wait for `stuck` leaves it.
    fn never_ends(&self, stuck: &[(PortId, u8)], xon_bytes: u64) -> bool {
        self.stays_bytes(stuck) >= xon_bytes.max(1)
    }

    fn stays_bytes(&self, stuck: &[(PortId, u8)]) -> u64 {
        let waits_for = |port: PortId| stuck.contains(&(port, self.stuck.priority));
        let stays = self.behind.iter().filter(|&&(port, _)| waits_for(port));
        stays.map(|&(_, bytes)| bytes).sum()
    }
}
