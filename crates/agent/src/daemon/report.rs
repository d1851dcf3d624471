//! Reports of the agent: facts that it collects and publishes.

use anyhow::Context;
use sluicegate_core::abi::{Flow, MODE_TWO_SIDED};
use tracing::warn;

use super::{Agent, twice::Twice};
use crate::{
    interfaces::Interface,
    log,
    state::{self, Place},
};

/// Losses without a single mark from which on a path is called one that does not mark.
const LOSSES_WITHOUT_MARKS: u64 = 10;

/// Pairs of interfaces with the same flows that are worth a line each: more of them say nothing
/// more.
const TWICE_MOST: usize = 16;

/// What fails where the state cannot be written.
const STATE_FILE: &str = "the state file";

impl Agent<'_> {
    pub(super) fn name_place(&mut self, interface: &Interface, tenant: &str, from: &str) {
        let place = Place {
            name: interface.name.clone(),
            tenant: tenant.to_owned(),
            tenant_from: from.to_owned(),
        };
        self.state.interfaces.insert(interface.index, place);
    }

    /// Looks at the flows for what an operator should know, and writes it down.
    pub(super) fn look_around(&mut self) {
        let (mut marks, mut twice) = (Marks::default(), Twice::default());
        let shown = self.instance.each_flow(|key, flow| {
            marks.see(flow);
            twice.see(key, flow);
        });
        match shown {
            Ok(()) => {
                let mut notes = Vec::from_iter(marks.note());
                notes.extend(self.seen_twice(twice));
                for note in &notes {
                    if !self.state.notes.contains(note) {
                        warn!("{note}");
                    }
                }
                self.state.notes = notes;
            }
            Err(error) => warn!("looking at flows: {error:#}"),
        }
        self.write_state();
    }

    fn seen_twice(&self, twice: Twice) -> Vec<String> {
        let names = self.instance.interfaces();
        let pairs = twice.pairs().into_iter();
        let notes = pairs.filter_map(|(one, other)| {
            let (one, other) = (names.get(&one)?, names.get(&other)?);
            Some(format!(
                "{one} and {other} show the same flows as their tenant's: where one of them is no tenant's \
                 interface but on the way of the other's packets, --exclude keeps that one out; a guest with a bond of \
                 both is no fault; else the tenant of one sends with the other's addresses"
            ))
        });
        notes.take(TWICE_MOST).collect()
    }

    /// Writes down what changed since it was last written.
    pub(super) fn write_state(&mut self) {
        self.state.left_out = self.refused.values().cloned().collect();
        let failed = self.failed.iter().filter_map(|it| self.refused.get(it));
        self.state.failed = failed.map(|(name, _)| name.clone()).collect();
        self.state.log_lines_lost = log::lost_lines();
        if self.written.as_ref() == Some(&self.state) {
            return;
        }
        let written = state::write(&self.config.run_dir, &self.state)
            .context("others cannot see tenants' names or which policy is in force");
        self.troubles.hear(STATE_FILE, written);
        // Each change is tried once; what could not be written, again with the next round.
        self.written = Some(self.state.clone());
    }

    /// Writes down again what could not be written.
    pub(super) fn retry_state(&mut self) {
        if self.troubles.has(STATE_FILE) {
            self.written = None;
        }
    }
}

/// Whether two-sided flows meet losses and not one mark: then switches do not mark.
#[derive(Debug, Default)]
struct Marks {
    flows: u64,
    losses: u64,
    bytes_marked: u64,
}

impl Marks {
    fn see(&mut self, flow: &Flow) {
        if flow.mode == MODE_TWO_SIDED {
            self.flows += 1;
            self.losses += u64::from(flow.losses);
            self.bytes_marked += flow.bytes_marked;
        }
    }

    fn note(&self) -> Option<String> {
        let Self { flows, losses, .. } = self;
        (*losses >= LOSSES_WITHOUT_MARKS && self.bytes_marked == 0).then(|| {
            format!(
                "no CE seen: {flows} two-sided flows lost packets {losses} times and not one byte was marked; do the \
                 switches mark ECT(0)? Until they do, each rule's `fallback` governs"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(mode: u8, losses: u8, bytes_marked: u64) -> Flow {
        Flow {
            mode,
            losses: losses.into(),
            bytes_marked,
            ..Flow::default()
        }
    }

    fn no_marks(flows: &[Flow]) -> Option<String> {
        let mut marks = Marks::default();
        flows.iter().for_each(|flow| marks.see(flow));
        marks.note()
    }

    #[test]
    fn losses_without_any_mark_are_worth_a_word() {
        let lossy = flow(MODE_TWO_SIDED, 5, 0);
        assert!(no_marks(&[lossy, lossy]).unwrap().contains("no CE seen"));
        assert_eq!(no_marks(&[lossy]), None);
        assert_eq!(no_marks(&[lossy, lossy, flow(MODE_TWO_SIDED, 0, 1)]), None);
        assert_eq!(no_marks(&[flow(MODE_TWO_SIDED - 1, 50, 0)]), None);
    }
}
