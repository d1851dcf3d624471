//! Rules that enforce one way only.
//!
//! A connection has two hosts, and each looks up the data of its own tenants. A rule whose data
//! goes one way enforces at one end; with the same file on the other host nothing there answers for
//! the connection, unless a rule enforces the data that would go back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use sluicegate_config::problem::Complaint;

use crate::{
    explain::Tuple,
    rule::{Mode, Policy, Ports, Rule},
};

/// Larger policies are not searched: a warning is not worth seconds of an agent's start.
const TRIALS_MAX: usize = 50_000_000;

impl Policy {
    /// Position of each rule that enforces one way only, and what is wrong with it.
    pub(crate) fn one_way_rules(&self) -> Vec<(usize, Complaint)> {
        let points = Points::of(self);
        if points.trials(self.rules.len()) > TRIALS_MAX {
            return Vec::new();
        }
        let rules = self.rules.iter().enumerate();
        rules
            .filter(|(_, rule)| rule.needs_feedback())
            .filter_map(|(index, rule)| {
                let tuple = points.unanswered(self, index, rule)?;
                Some((index, self.complaint(rule, tuple)))
            })
            .collect()
    }

    fn complaint(&self, rule: &Rule, tuple: Tuple) -> Complaint {
        let back = tuple.reversed();
        let ports = match back.ports {
            (0, 0) => String::new(),
            (source, destination) => format!(", ports {source} to {destination}"),
        };
        let found = match self.decides(back) {
            None => "no rule matches".to_owned(),
            Some((index, other)) => format!("{} has mode {}", other.label(index), other.mode),
        };
        Complaint::new(
            format!(
                "enforces one way only: of data from {} back to {}{ports} {found}; with this file on both hosts {} \
                 governs, not {}",
                back.addresses.0, back.addresses.1, rule.one_sided, rule.algorithm
            ),
            "add a rule with mode = \"enforce\" for the other direction",
        )
    }

    /// Whether the rule at `index` decides data that goes this way, and none enforces what comes
    /// back.
    fn is_unanswered(&self, index: usize, tuple: Tuple) -> bool {
        let enforces = |(_, rule): (usize, &Rule)| rule.mode == Mode::Enforce;
        self.decides(tuple).is_some_and(|(first, _)| first == index)
            && !self.decides(tuple.reversed()).is_some_and(enforces)
    }
}

impl Rule {
    /// Whether it governs otherwise when the peer's host enforces as well.
    fn needs_feedback(&self) -> bool {
        self.mode == Mode::Enforce && self.algorithm != self.one_sided
    }
}

/// Addresses and ports that stand for their neighbours: between two of these addresses no prefix of
/// the policy begins or ends.
struct Points {
    addresses: Vec<IpAddr>,
    ports: Vec<(u16, u16)>,
}

impl Points {
    fn of(policy: &Policy) -> Self {
        let rules = policy.rules.iter();
        let prefixes = rules.flat_map(|rule| rule.source.into_iter().chain(rule.destination));
        let prefixes = prefixes.chain(policy.trusted.iter().copied());
        let mut addresses: Vec<IpAddr> = prefixes.flat_map(ends).collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Port 0 is one that only rules for any port are about.
        let mut ports = vec![(0, 0)];
        for rule in &policy.rules {
            match rule.ports {
                Ports::Either(range) => ports.extend([(range.low, 0), (0, range.low)]),
                Ports::Both(source, destination) => {
                    let (source, destination) = (source.low, destination.low);
                    ports.extend([(source, destination), (destination, source)]);
                }
            }
        }
        ports.sort_unstable();
        ports.dedup();
        Self { addresses, ports }
    }

    /// Comparisons of a tuple with a rule, at most.
    fn trials(&self, rules: usize) -> usize {
        let factors = [self.addresses.len(), self.addresses.len(), self.ports.len()];
        factors
            .into_iter()
            .fold(rules.saturating_mul(rules), usize::saturating_mul)
    }

    fn within(&self, prefix: Option<IpNet>) -> impl Iterator<Item = IpAddr> {
        let addresses = self.addresses.iter().copied();
        addresses.filter(move |address| prefix.is_none_or(|net| net.contains(address)))
    }

    /// Data to a trusted prefix that the rule at `index` decides and whose other direction no rule
    /// enforces.
    fn unanswered(&self, policy: &Policy, index: usize, rule: &Rule) -> Option<Tuple> {
        self.within(rule.destination)
            .filter(|destination| policy.trusts(*destination))
            .find_map(|destination| {
                let senders = self.senders(policy, rule, destination);
                let mut tuples = senders.into_iter().flat_map(|source| {
                    self.ports.iter().map(move |ports| Tuple {
                        addresses: (source, destination),
                        ports: *ports,
                    })
                });
                tuples.find(|tuple| policy.is_unanswered(index, *tuple))
            })
    }

    /// The senders of data to this destination under this rule. Hosts believe only trusted
    /// prefixes, so the senders are taken from those of this file; without any, the hosts of
    /// senders have another file.
    fn senders(&self, policy: &Policy, rule: &Rule, destination: IpAddr) -> Vec<IpAddr> {
        let others = self
            .within(rule.source)
            .filter(|source| *source != destination && source.is_ipv4() == destination.is_ipv4());
        let (trusted, others): (Vec<_>, Vec<_>) = others.partition(|source| policy.trusts(*source));
        if trusted.is_empty() { others } else { trusted }
    }
}

/// First and last address of a prefix, and the one behind.
fn ends(prefix: IpNet) -> impl Iterator<Item = IpAddr> {
    let last = prefix.broadcast();
    let behind = match last {
        IpAddr::V4(address) => u32::from(address)
            .checked_add(1)
            .map(|next| IpAddr::V4(Ipv4Addr::from(next))),
        IpAddr::V6(address) => u128::from(address)
            .checked_add(1)
            .map(|next| IpAddr::V6(Ipv6Addr::from(next))),
    };
    [prefix.network(), last].into_iter().chain(behind)
}
