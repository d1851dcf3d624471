//! Errors of connections, in the same words in every world.

use std::{fmt::Display, net::SocketAddr};

use super::{Plan, Report};

/// Lines kept per tenant; more of them say nothing new.
const LINES_MAX: usize = 50;

/// Lines of all tenants together that are told to people.
const NOTES_MAX: usize = 20;

/// A connection that waits longer than this (two lost SYNs) at the end of the run is an error.
const PATIENCE_NS: u64 = 4_000_000_000;

/// The errors of a tenant: lines for [`Report::errors`], each once.
#[derive(Clone, Debug, Default)]
pub struct Errors(Vec<String>);

impl Errors {
    /// Notes what went wrong.
    pub fn note(&mut self, line: String) {
        if self.0.len() < LINES_MAX && !self.0.contains(&line) {
            self.0.push(line);
        }
    }

    /// A connection broke at `now_ns` while its application did this with it; no error once the run
    /// is over.
    pub fn broken(&mut self, plan: &Plan, now_ns: u64, doing: impl Display, why: impl Display) {
        if now_ns < plan.stop_ns {
            self.note(format!("{doing}: {why}"));
        }
    }

    /// A connection was refused to the last.
    pub fn refused(&mut self, peer: SocketAddr, why: impl Display) {
        self.note(format!("no connection to {peer}: {why}"));
    }

    /// The run is over, and a connection has waited since `opened_ns`: an error if for longer than
    /// a lost SYN explains.
    pub fn unanswered(&mut self, peer: SocketAddr, opened_ns: u64, now_ns: u64) {
        if now_ns.saturating_sub(opened_ns) > PATIENCE_NS {
            self.refused(peer, "no answer");
        }
    }

    /// The lines.
    pub fn into_lines(self) -> Vec<String> {
        self.0
    }
}

/// Name of the counter in [`crate::results::Conditions::outside`].
pub const COUNTER: &str = "tenant_errors";

/// How many errors tenants had, and the first of them for people.
pub fn of_tenants(reports: &[Report]) -> (u64, Vec<String>) {
    let errors = |report: &Report| report.errors.len();
    let count: usize = reports.iter().map(errors).sum();
    let lines = reports.iter().flat_map(|report| {
        let line = |error| format!("tenant {}: {error}", report.tenant);
        report.errors.iter().map(line)
    });
    let mut notes: Vec<String> = lines.take(NOTES_MAX).collect();
    if count > NOTES_MAX {
        notes.push(format!("{} more errors of tenants", count - NOTES_MAX));
    }
    (count as u64, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kept_once_and_many_are_summed_up() {
        let mut errors = Errors::default();
        for number in (0..30).chain(0..200) {
            errors.note(format!("error {number}"));
        }
        let report = Report {
            tenant: "s1".to_owned(),
            errors: errors.into_lines(),
            ..Report::default()
        };
        assert_eq!(report.errors.len(), LINES_MAX);
        let (count, notes) = of_tenants(&[Report::default(), report]);
        assert_eq!((count, notes.len()), (50, NOTES_MAX + 1));
        assert_eq!(notes[0], "tenant s1: error 0");
        assert_eq!(notes[NOTES_MAX], "30 more errors of tenants");
    }

    #[test]
    fn who_waits_no_longer_than_lost_syns_explain_has_no_error() {
        let mut errors = Errors::default();
        let peer = SocketAddr::from(([10, 0, 1, 1], 10_000));
        errors.unanswered(peer, 1_000_000_000, 4_500_000_000);
        errors.unanswered(peer, 1_000_000_000, 6_000_000_000);
        assert_eq!(
            errors.into_lines(),
            ["no connection to 10.0.1.1:10000: no answer"]
        );
    }
}
