//! Warnings about thresholds of the delay that hold on paths of which nothing is known.

use std::time::Duration;

use sluicegate_config::{problem::Complaint, units::format_duration};
use sluicegate_core::cc::Algorithm;

use crate::rule::{Mode, Policy, Rule, Threshold};

/// What a path outside a datacenter needs: more than its jitter (docs/congestion-control.md).
const JITTER: Duration = Duration::from_millis(10);

impl Policy {
    /// Rules that name a delay as the threshold and govern destinations that are not trusted, by
    /// position.
    pub(crate) fn absolute_thresholds(&self) -> Vec<(usize, Complaint)> {
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(_, rule)| rule.mode != Mode::Off && !self.reaches_only_trusted(rule))
            .filter_map(|(index, rule)| Some((index, rule.absolute_threshold()?)))
            .collect()
    }

    fn reaches_only_trusted(&self, rule: &Rule) -> bool {
        rule.destination
            .is_some_and(|prefix| self.trusted.iter().any(|trusted| trusted.contains(&prefix)))
    }
}

impl Rule {
    fn absolute_threshold(&self) -> Option<Complaint> {
        let (key, named) = self.short_threshold()?;
        (self.fallback != Algorithm::Cubic).then(|| {
            Complaint::new(
                format!(
                    "{named} holds towards destinations that are not trusted, too: where the \
                     RTT varies by more, or a link takes longer for a segment, flows get next to \
                     nothing"
                ),
                format!(
                    "leave {key} out, name the destinations in the datacenter, or give \
                     fallback = \"cubic\""
                ),
            )
        })
    }

    /// The key of a threshold that the jitter of a far path exceeds, and what it says.
    fn short_threshold(&self) -> Option<(&'static str, String)> {
        let uses = |algorithm| self.one_sided == algorithm || self.algorithm == algorithm;
        let short = |key, delay: Duration| {
            (delay < JITTER).then(|| (key, format!("{key} = {}", format_duration(delay))))
        };
        let (alpha, beta) = self.vegas_backlog;
        match (self.k, self.swift.target) {
            (Some(Threshold::Delay(delay)), _) if uses(Algorithm::Dcvegas) => short("k", delay),
            (Some(Threshold::Bytes(bytes)), _) if uses(Algorithm::Dcvegas) => {
                Some(("k", format!("k = {bytes} bytes")))
            }
            (Some(Threshold::Segments(count)), _) if uses(Algorithm::Dcvegas) => {
                Some(("k", format!("k = {count} segments")))
            }
            (_, Some(target)) if uses(Algorithm::Swift) => short("swift_target", target),
            // Its own fallback: a backlog was named.
            _ if uses(Algorithm::Vegas) && self.fallback == Algorithm::Vegas => Some((
                "vegas_alpha and vegas_beta",
                format!("a backlog of {alpha} to {beta} segments"),
            )),
            _ => None,
        }
    }
}
