//! Hotspots, classified as in the CEE thesis (Crisan, 2.7.1): by type, severity and degree.

use std::time::Duration;

use crate::experiment::{Experiment, Traffic, Variant};

/// The cause of a hotspot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotspotType {
    /// Sources offer more than a link carries.
    Input,
    /// A link serves less than it did.
    Output,
}

/// The hotspot that the datagrams of `kind = "hotspot"` make.
#[derive(Clone, Debug, PartialEq)]
pub struct Hotspot {
    /// Type.
    pub kind: HotspotType,
    /// Id of the link that cannot serve what it is offered.
    pub link: usize,
    /// The rate that all sources together offer in frames, in bits per second.
    pub offered_bps: f64,
    /// The rate that the link serves meanwhile, in bits per second.
    pub drain_bps: u64,
    /// Offered by drained, above 1.
    pub severity: f64,
    /// Hosts with a source.
    pub hot_hosts: usize,
    /// All hosts that may send, hot or not.
    pub hosts: usize,
    /// Its begin, relative to the start of the run.
    pub start: Duration,
    /// Its end; `None` = that of the run.
    pub stop: Option<Duration>,
}

impl Hotspot {
    /// Part of all hosts that is hot, 0..=1.
    pub fn degree(&self) -> f64 {
        self.hot_hosts as f64 / self.hosts as f64
    }

    /// Whether both last at some time.
    pub fn meets(&self, other: &Self) -> bool {
        let ends_before = |a: &Self, b: &Self| a.stop.is_some_and(|stop| stop <= b.start);
        !ends_before(self, other) && !ends_before(other, self)
    }
}

/// `mild` below 2, `moderate` to 10, `severe` above.
pub fn severity_class(severity: f64) -> &'static str {
    match severity {
        ..2.0 => "mild",
        ..=10.0 => "moderate",
        _ => "severe",
    }
}

/// The class of a degree of 0..=1. The thesis has `small` below 10 %, `medium` from 20 to 60 %,
/// `large` above 90 %; what lies between is of the nearer class, as its own small hotspot of 4 of
/// 32 hosts.
pub fn degree_class(degree: f64) -> &'static str {
    match degree {
        ..0.15 => "small",
        ..0.75 => "medium",
        _ => "large",
    }
}

/// A line for people for each hotspot, with the variants that have it unless all do.
pub fn notes(experiment: &Experiment) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for variant in &experiment.variants {
        for line in variant.traffic.iter().filter_map(|t| describe(variant, t)) {
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, names)) => names.push(&variant.name),
                None => lines.push((line, vec![&variant.name])),
            }
        }
    }
    let said = lines.into_iter().map(|(line, names)| {
        if names.len() == experiment.variants.len() {
            return line;
        }
        format!("{}: {line}", names.join(", "))
    });
    said.collect()
}

fn describe(variant: &Variant, traffic: &Traffic) -> Option<String> {
    let hotspot = traffic.hotspot.as_ref()?;
    let kind = match hotspot.kind {
        HotspotType::Input => "input",
        HotspotType::Output => "output",
    };
    Some(format!(
        "traffic.{} is an {kind}-generated hotspot at {}: {:.1} Mb/s are offered, {:.1} Mb/s served, severity {:.2} ({}), \
         degree {:.1} % ({}: {} of {} hosts)",
        traffic.name,
        variant.links[hotspot.link].name,
        hotspot.offered_bps / 1e6,
        hotspot.drain_bps as f64 / 1e6,
        hotspot.severity,
        severity_class(hotspot.severity),
        hotspot.degree() * 100.0,
        degree_class(hotspot.degree()),
        hotspot.hot_hosts,
        hotspot.hosts,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_thesis() {
        let severities = [1.1, 1.99, 2.0, 10.0, 10.1].map(severity_class);
        assert_eq!(
            severities,
            ["mild", "mild", "moderate", "moderate", "severe"]
        );
        let degrees = [0.09, 0.125, 0.2, 0.5, 0.6, 0.9, 1.0].map(degree_class);
        let expected = [
            "small", "small", "medium", "medium", "medium", "large", "large",
        ];
        assert_eq!(degrees, expected);
    }
}
