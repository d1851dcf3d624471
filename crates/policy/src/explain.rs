//! Which rule decides a flow, and why not the ones before it; and what becomes of the other
//! direction.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::{
    bucket::Class,
    place::{Where, covers},
    rule::{Mode, Policy, PortRange, Ports, Rule},
};

/// The flow that is to be explained: data from `source` to `destination`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Sender of the data.
    pub source: IpAddr,
    /// Receiver of the data.
    pub destination: IpAddr,
    /// Its port; 0 is one that only rules for any port cover.
    pub source_port: u16,
    /// Its port.
    pub destination_port: u16,
    /// Name of the sender's interface; `None` = not told.
    pub interface: Option<&'a str>,
    /// The tenant of the interface; `None` = not told.
    pub tenant: Option<&'a str>,
    /// VLAN id of its packets, 0 = untagged; `None` = not told.
    pub vlan: Option<u16>,
}

impl<'a> Asked<'a> {
    /// Only the ends are told.
    pub fn ends(ends: (IpAddr, IpAddr), ports: (u16, u16)) -> Self {
        Self {
            source: ends.0,
            destination: ends.1,
            source_port: ports.0,
            destination_port: ports.1,
            interface: None,
            tenant: None,
            vlan: None,
        }
    }

    fn tuple(&self) -> Tuple {
        Tuple {
            addresses: (self.source, self.destination),
            ports: (self.source_port, self.destination_port),
        }
    }
}

/// The effect of a policy on one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation<'a> {
    /// Position and rule that decides; `None` = the flow is not tracked.
    pub rule: Option<(usize, &'a Rule)>,
    /// Position of each earlier rule and the first condition that did not hold.
    pub passed_over: Vec<(usize, String)>,
    /// Position of each earlier rule that decides instead if a condition holds of which nothing was
    /// told, and that condition.
    pub undecided: Vec<(usize, String)>,
    /// The peer's option is believed, so that both ends may enforce.
    pub trusted: bool,
    /// Position and rule that decides data the other way, which is what the peer's host looks up;
    /// whether its conditions on interface and tenant hold there is not known.
    pub reverse: Option<(usize, &'a Rule)>,
    /// A peer with the same policy believes this end.
    pub trusted_by_peer: bool,
}

/// Addresses and ports of data, source before destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub addresses: (IpAddr, IpAddr),
    pub ports: (u16, u16),
}

impl Tuple {
    /// The other direction of the same connection.
    pub(crate) fn reversed(self) -> Self {
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
    fn reason(self, tuple: Tuple) -> String {
        let ((source, destination), ports) = (tuple.addresses, tuple.ports);
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

/// The answer to a condition on a fact that may not have been told.
enum Place {
    Holds,
    Fails(String),
    Unknown(String),
}

impl Policy {
    /// Explains what happens to a flow.
    pub fn explain(&self, asked: &Asked<'_>) -> Explanation<'_> {
        let tuple = asked.tuple();
        let mut explanation = Explanation {
            rule: None,
            passed_over: Vec::new(),
            undecided: Vec::new(),
            trusted: self.trusts(asked.destination),
            reverse: self.decides(tuple.reversed()),
            trusted_by_peer: self.trusts(asked.source),
        };
        for (index, rule) in self.rules.iter().enumerate() {
            if let Some(mismatch) = rule.mismatch(tuple) {
                explanation
                    .passed_over
                    .push((index, mismatch.reason(tuple)));
                continue;
            }
            match rule.place_of(asked) {
                Place::Fails(reason) => explanation.passed_over.push((index, reason)),
                Place::Unknown(condition) => explanation.undecided.push((index, condition)),
                Place::Holds => {
                    explanation.rule = Some((index, rule));
                    break;
                }
            }
        }
        explanation
    }

    /// Explains what happens to a packet of this class, which has no flow to be governed by.
    pub fn explain_class(&self, class: Class, asked: (Option<&str>, Option<&str>)) -> String {
        let mut lines = Vec::new();
        for (index, bucket) in self.buckets.iter().enumerate() {
            let label = bucket.label(index);
            if !bucket.classes.contains(&class) {
                lines.push(format!("{label} does not have class {}", class.name()));
                continue;
            }
            match place(&bucket.place, asked) {
                Place::Fails(reason) => lines.push(format!("{label} does not hold: {reason}")),
                Place::Unknown(condition) => {
                    lines.push(format!("{label} has it {condition}; else:"))
                }
                Place::Holds => {
                    lines.push(format!("{label} has it: {}", bucket.describe()));
                    return lines.join("\n");
                }
            }
        }
        let way_out = self.way_out_of(class).map(|(index, rule)| {
            format!(
                ", a way out of what {} enforces: `sluicegate policy check` says what it is worth",
                rule.label(index)
            )
        });
        lines.push(format!(
            "no bucket has class {}: such packets pass and are counted{}",
            class.name(),
            way_out.unwrap_or_default()
        ));
        lines.join("\n")
    }

    /// Position and rule that decides data going this way, if conditions on interface, tenant and
    /// VLAN hold.
    pub(crate) fn decides(&self, tuple: Tuple) -> Option<(usize, &Rule)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| rule.mismatch(tuple).is_none())
    }
}

impl Rule {
    /// The first condition on the ends that does not hold, or `None` when all do.
    fn mismatch(&self, tuple: Tuple) -> Option<Mismatch> {
        let (source, destination) = tuple.addresses;
        if let Some(prefix) = self.source.filter(|prefix| !prefix.contains(&source)) {
            return Some(Mismatch::Source(prefix));
        }
        if let Some(prefix) = self.destination.filter(|p| !p.contains(&destination)) {
            return Some(Mismatch::Destination(prefix));
        }
        self.ports.mismatch(tuple.ports.0, tuple.ports.1)
    }

    fn place_of(&self, asked: &Asked<'_>) -> Place {
        let vlan = match (self.vlan, asked.vlan) {
            (Some(vlan), None) => Place::Unknown(format!("only with {}", tag(vlan))),
            (Some(vlan), Some(told)) if vlan != told => {
                Place::Fails(format!("{} is not {}", tag(told), tag(vlan)))
            }
            _ => Place::Holds,
        };
        match (vlan, place(&self.place, (asked.interface, asked.tenant))) {
            (Place::Fails(reason), _) | (_, Place::Fails(reason)) => Place::Fails(reason),
            (Place::Unknown(a), Place::Unknown(b)) => Place::Unknown(format!("{a} and {b}")),
            (Place::Unknown(one), _) | (_, Place::Unknown(one)) => Place::Unknown(one),
            _ => Place::Holds,
        }
    }

    /// Name, or position, for people.
    pub fn label(&self, index: usize) -> String {
        match &self.name {
            Some(name) => format!("rule {} \"{name}\"", index + 1),
            None => format!("rule {}", index + 1),
        }
    }
}

fn tag(vlan: u16) -> String {
    match vlan {
        0 => "no VLAN tag".to_owned(),
        vlan => format!("VLAN {vlan}"),
    }
}

/// Whether conditions hold at this interface of this tenant, as far as they were told.
fn place(conditions: &Where, (interface, tenant): (Option<&str>, Option<&str>)) -> Place {
    let both = [
        (&conditions.interfaces, interface, "interface"),
        (&conditions.tenants, tenant, "tenant"),
    ];
    let mut unknown = Vec::new();
    for (patterns, told, what) in both {
        let Some(told) = told else {
            if !patterns.is_empty() {
                unknown.push(format!("only at {what} {}", any_of(patterns)));
            }
            continue;
        };
        if !covers(patterns, told) {
            return Place::Fails(format!("{what} {told} is not {}", any_of(patterns)));
        }
    }
    if unknown.is_empty() {
        return Place::Holds;
    }
    Place::Unknown(unknown.join(" and "))
}

/// Patterns as people read them: `veth*`, or `veth* or tap0`.
pub(crate) fn any_of(patterns: &[glob::Pattern]) -> String {
    let texts: Vec<&str> = patterns.iter().map(glob::Pattern::as_str).collect();
    texts.join(" or ")
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
    /// The part of a peer's host with the same policy.
    fn other_way(&self) -> String {
        match self.reverse {
            _ if !self.trusted_by_peer => {
                "a peer with this policy does not trust this source, and does not answer".to_owned()
            }
            None => "no rule matches the other way: with this policy the peer does not enforce"
                .to_owned(),
            Some((index, rule)) if rule.mode == Mode::Enforce => format!(
                "{} decides the other way: with this policy the peer enforces{}",
                rule.label(index),
                if rule.place.is_anywhere() && rule.vlan.is_none() {
                    ""
                } else {
                    " (if its interface, tenant and VLAN are as the rule asks)"
                }
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
        for (index, condition) in &self.undecided {
            writeln!(
                f,
                "rule {} matches {condition}, and decides there; say where the flow is to know",
                index + 1
            )?;
        }
        if !self.undecided.is_empty() {
            write!(f, "elsewhere ")?;
        }
        let Some((index, rule)) = self.rule else {
            return write!(f, "no rule matches: the flow is not tracked");
        };
        write!(f, "{} decides: mode {}, ", rule.label(index), rule.mode)?;
        if rule.mode == Mode::Off {
            return write!(f, "the flow is not tracked");
        }
        if rule.mode == Mode::Observe {
            write!(f, "which edits nothing and computes {}", rule.algorithm)?;
            if rule.algorithm != rule.one_sided {
                write!(f, " if the tenants agree on ECN, else {}", rule.one_sided)?;
            }
            write!(f, "\nwith mode enforce: ")?;
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
