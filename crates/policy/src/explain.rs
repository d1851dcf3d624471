//! Which rule decides a flow, and why not the ones before it.

use std::{fmt, net::IpAddr};

use crate::rule::{Mode, Policy, Ports, Rule};

/// What a policy makes of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Position and rule that decides; `None` = the flow is not tracked.
    pub rule: Option<(usize, &'a Rule)>,
    /// Position of each earlier rule and the first condition that did not hold.
    pub passed_over: Vec<(usize, String)>,
    /// The peer's option is believed, so that both ends may enforce.
    pub trusted: bool,
}

impl Policy {
    /// Explains what happens to data from `source` to `destination`.
    pub fn explain(
        &self,
        source: IpAddr,
        destination: IpAddr,
        source_port: u16,
        destination_port: u16,
    ) -> Explanation<'_> {
        let mut passed_over = Vec::new();
        let mut decided = None;
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.mismatch(source, destination, source_port, destination_port) {
                Some(reason) => passed_over.push((index, reason)),
                None => {
                    decided = Some((index, rule));
                    break;
                }
            }
        }
        Explanation {
            rule: decided,
            passed_over,
            trusted: self.trusts(destination),
        }
    }
}

impl Rule {
    /// The first condition that does not hold, or `None` when the rule matches.
    fn mismatch(
        &self,
        source: IpAddr,
        destination: IpAddr,
        source_port: u16,
        destination_port: u16,
    ) -> Option<String> {
        if let Some(prefix) = self.source.filter(|prefix| !prefix.contains(&source)) {
            return Some(format!("source {source} is not in {prefix}"));
        }
        if let Some(prefix) = self.destination.filter(|p| !p.contains(&destination)) {
            return Some(format!("destination {destination} is not in {prefix}"));
        }
        self.ports.mismatch(source_port, destination_port)
    }

    /// Name, or position, for people.
    pub fn label(&self, index: usize) -> String {
        match &self.name {
            Some(name) => format!("rule {} \"{name}\"", index + 1),
            None => format!("rule {}", index + 1),
        }
    }
}

impl Ports {
    fn mismatch(&self, source: u16, destination: u16) -> Option<String> {
        match self {
            Self::Either(range) if !range.contains(source) && !range.contains(destination) => Some(
                format!("neither port {source} nor {destination} is {range}"),
            ),
            Self::Both(range, _) if !range.contains(source) => {
                Some(format!("source port {source} is not {range}"))
            }
            Self::Both(_, range) if !range.contains(destination) => {
                Some(format!("destination port {destination} is not {range}"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Explanation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in &self.passed_over {
            writeln!(f, "rule {} does not match: {reason}", index + 1)?;
        }
        let Some((index, rule)) = self.rule else {
            return write!(f, "no rule matches: the flow is not tracked");
        };
        write!(f, "{} decides: mode {}, ", rule.label(index), rule.mode)?;
        if rule.mode == Mode::Off {
            return write!(f, "the flow is not tracked");
        }
        if self.trusted {
            write!(
                f,
                "{} if the peer enforces (its prefix is trusted), else {}",
                rule.algorithm, rule.one_sided
            )
        } else {
            write!(f, "{} (the peer's prefix is not trusted)", rule.one_sided)
        }
    }
}
