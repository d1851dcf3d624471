//! Which rule decides a flow, and why not the ones before it; and what becomes of the other direction.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::rule::{Mode, Policy, PortRange, Ports, Rule};

/// What a policy makes of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Position and rule that decides; `None` = the flow is not tracked.
    pub rule: Option<(usize, &'a Rule)>,
    /// Position of each earlier rule and the first condition that did not hold.
    pub passed_over: Vec<(usize, String)>,
    /// The peer's option is believed, so that both ends may enforce.
    pub trusted: bool,
    /// Position and rule that decides data the other way, which is what the peer's host looks up.
    pub reverse: Option<(usize, &'a Rule)>,
    /// A peer with the same policy believes this end.
    pub trusted_by_peer: bool,
}

/// Addresses and ports of data, source before destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub addresses: (IpAddr, IpAddr),
    pub ports: (u16, u16),
}

impl Way {
    /// The other direction of the same connection.
    pub(crate) fn back(self) -> Self {
        Self {
            addresses: (self.addresses.1, self.addresses.0),
            ports: (self.ports.1, self.ports.0),
        }
    }
}

/// The first condition of a rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mismatch {
    Source(IpNet),
    Destination(IpNet),
    NeitherPort(PortRange),
    SourcePort(PortRange),
    DestinationPort(PortRange),
}

impl Mismatch {
    fn reason(self, way: Way) -> String {
        let ((source, destination), ports) = (way.addresses, way.ports);
        match self {
            Self::Source(prefix) => format!("source {source} is not in {prefix}"),
            Self::Destination(prefix) => format!("destination {destination} is not in {prefix}"),
            Self::NeitherPort(range) => {
                format!("neither port {} nor {} is {range}", ports.0, ports.1)
            }
            Self::SourcePort(range) => format!("source port {} is not {range}", ports.0),
            Self::DestinationPort(range) => format!("destination port {} is not {range}", ports.1),
        }
    }
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
        let way = Way {
            addresses: (source, destination),
            ports: (source_port, destination_port),
        };
        let rule = self.decides(way);
        let before = rule.map_or(self.rules.len(), |(index, _)| index);
        let passed_over = self.rules.iter().take(before).enumerate();
        Explanation {
            rule,
            passed_over: passed_over
                .filter_map(|(index, rule)| Some((index, rule.mismatch(way)?.reason(way))))
                .collect(),
            trusted: self.trusts(destination),
            reverse: self.decides(way.back()),
            trusted_by_peer: self.trusts(source),
        }
    }

    /// Position and rule that decides data going this way.
    pub(crate) fn decides(&self, way: Way) -> Option<(usize, &Rule)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| rule.mismatch(way).is_none())
    }
}

impl Rule {
    /// The first condition that does not hold, or `None` when the rule matches.
    fn mismatch(&self, way: Way) -> Option<Mismatch> {
        let (source, destination) = way.addresses;
        if let Some(prefix) = self.source.filter(|prefix| !prefix.contains(&source)) {
            return Some(Mismatch::Source(prefix));
        }
        if let Some(prefix) = self.destination.filter(|p| !p.contains(&destination)) {
            return Some(Mismatch::Destination(prefix));
        }
        self.ports.mismatch(way.ports.0, way.ports.1)
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
    fn mismatch(&self, source: u16, destination: u16) -> Option<Mismatch> {
        match *self {
            Self::Either(range) if !range.contains(source) && !range.contains(destination) => {
                Some(Mismatch::NeitherPort(range))
            }
            Self::Both(range, _) if !range.contains(source) => Some(Mismatch::SourcePort(range)),
            Self::Both(_, range) if !range.contains(destination) => {
                Some(Mismatch::DestinationPort(range))
            }
            _ => None,
        }
    }
}

impl Explanation<'_> {
    /// What a peer's host with the same policy does.
    fn other_way(&self) -> String {
        match self.reverse {
            _ if !self.trusted_by_peer => {
                "a peer with this policy does not trust this source, and does not answer".to_owned()
            }
            None => "no rule matches the other way: with this policy the peer does not enforce"
                .to_owned(),
            Some((index, rule)) if rule.mode == Mode::Enforce => format!(
                "{} decides the other way: with this policy the peer enforces",
                rule.label(index)
            ),
            Some((index, rule)) => format!(
                "{} decides the other way: mode {}: with this policy the peer does not enforce",
                rule.label(index),
                rule.mode
            ),
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
                "{} if the peer enforces (its prefix is trusted), else {}\n{}",
                rule.algorithm,
                rule.one_sided,
                self.other_way()
            )
        } else {
            write!(f, "{} (the peer's prefix is not trusted)", rule.one_sided)
        }
    }
}
