//! `from`, `to` and `pairs`: the senders and receivers of traffic.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sluicegate_config::{
    problem::Complaint,
    table::{Item, Table},
};

use super::{network::Network, select};
use crate::{
    bounds,
    experiment::{Node, SwitchId, Tenant},
};

/// How senders and receivers are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairing {
    /// The i-th sender to the i-th receiver.
    OneToOne,
    /// Every sender to the one receiver.
    AllToOne,
    /// Every sender to every receiver.
    AllToAll,
    /// Sender i to receivers i+low..=i+high, round the list.
    Stride(usize, usize),
    /// Every sender to one other receiver by lot, each receiver at most once more than any other.
    Random,
}

/// Reads the pairs of one traffic table as tenant ids.
pub fn read(
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    all_to_all: bool,
    seed: u64,
) -> Vec<(usize, usize)> {
    let from = side(table, "from", network.senders, network, tenants);
    let to = side(table, "to", network.receivers, network, tenants);
    let pairing = table.parse("pairs", parse_pairing);
    let connections = table
        .within("connections", &bounds::CONNECTIONS)
        .unwrap_or(1);
    if from.is_empty() || to.is_empty() {
        return Vec::new();
    }
    let default = if all_to_all {
        Some(Pairing::AllToAll)
    } else {
        usual(&from, &to)
    };
    let Some(pairing) = pairing.or(default) else {
        table.item().complain(
            format!(
                "{} senders and {} receivers pair in more than one way",
                from.len(),
                to.len()
            ),
            PAIRING_ADVICE,
        );
        return Vec::new();
    };
    let pairs = pair(pairing, &from, &to, seed).unwrap_or_else(|complaint| {
        table.item().complain(complaint.reason, complaint.advice);
        Vec::new()
    });
    let repeated = pairs
        .iter()
        .flat_map(|pair| std::iter::repeat_n(*pair, connections as usize));
    repeated.collect()
}

/// The tenants that `key` names, or those that fit `default`.
pub fn side(
    table: &Table<'_>,
    key: &'static str,
    default: &str,
    network: &Network,
    tenants: &[Tenant],
) -> Vec<usize> {
    let names: Vec<_> = tenants.iter().map(|t| t.name.as_str()).collect();
    match table.get(key) {
        Some(item) if names_switch(&item, network) => Vec::new(),
        Some(item) => select(&item, &names, "tenant"),
        None => (0..names.len())
            .filter(|at| super::matches(default, names[*at]))
            .collect(),
    }
}

/// The rack of each tenant, by id: the switch that its host is linked to.
pub fn racks(network: &Network, tenants: &[Tenant]) -> Vec<SwitchId> {
    let mut switches = vec![SwitchId(0); network.hosts.len()];
    for link in &network.links {
        if let (Node::Switch(switch), Node::Host(host)) | (Node::Host(host), Node::Switch(switch)) =
            (link.a, link.b)
        {
            switches[host.index()] = switch;
        }
    }
    let rack = |tenant: &Tenant| switches[tenant.host.index()];
    tenants.iter().map(rack).collect()
}

/// Whether a switch is named, which is reported. In a graph that may be what was meant to be a
/// host.
fn names_switch(item: &Item<'_>, network: &Network) -> bool {
    let mut any = false;
    for pattern in item.one_or_more() {
        let name = pattern.text().unwrap_or_default();
        if network.switches.iter().any(|switch| switch.name == name) {
            let advice = "name a host; in a graph, that is a node with one link";
            pattern.complain(format!("\"{name}\" is a switch"), advice);
            any = true;
        }
    }
    any
}

const PAIRING_ADVICE: &str =
    "set `pairs` to one-to-one, all-to-one, all-to-all, stride:N, stride:A-B or random";

fn parse_pairing(text: &str) -> Result<Pairing, Complaint> {
    let unknown = || Complaint::new(format!("\"{text}\" is no pairing"), PAIRING_ADVICE);
    Ok(match text {
        "one-to-one" => Pairing::OneToOne,
        "all-to-one" => Pairing::AllToOne,
        "all-to-all" => Pairing::AllToAll,
        "random" => Pairing::Random,
        _ => {
            let range = text.strip_prefix("stride:").ok_or_else(unknown)?;
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let low: usize = low.parse().map_err(|_| unknown())?;
            let high: usize = high.parse().map_err(|_| unknown())?;
            if low == 0 || low > high {
                return Err(unknown());
            }
            Pairing::Stride(low, high)
        }
    })
}

/// The default pairing for so many senders and receivers.
fn usual(from: &[usize], to: &[usize]) -> Option<Pairing> {
    match (from.len(), to.len()) {
        (_, 1) => Some(Pairing::AllToOne),
        (1, _) => Some(Pairing::AllToAll),
        (senders, receivers) if senders == receivers && from != to => Some(Pairing::OneToOne),
        _ => None,
    }
}

fn pair(
    pairing: Pairing,
    from: &[usize],
    to: &[usize],
    seed: u64,
) -> Result<Vec<(usize, usize)>, Complaint> {
    let pairs = match pairing {
        Pairing::OneToOne => one_to_one(from, to)?,
        Pairing::AllToOne if to.len() != 1 => {
            return Err(Complaint::new(
                format!("all-to-one needs one receiver, not {}", to.len()),
                "name it with `to`",
            ));
        }
        Pairing::AllToOne | Pairing::AllToAll => all_to_all(from, to),
        Pairing::Stride(_, high) if high >= to.len() => {
            return Err(Complaint::new(
                format!(
                    "a stride of {high} comes back to the sender among {} receivers",
                    to.len()
                ),
                "use a smaller stride or more hosts",
            ));
        }
        Pairing::Stride(low, high) => stride(from, to, low, high),
        Pairing::Random => random(from, to, seed),
    };
    if pairs.is_empty() {
        return Err(Complaint::new(
            "no tenant sends to another",
            "check `from` and `to`",
        ));
    }
    Ok(pairs)
}

fn one_to_one(from: &[usize], to: &[usize]) -> Result<Vec<(usize, usize)>, Complaint> {
    if from.len() != to.len() {
        return Err(Complaint::new(
            format!(
                "one-to-one needs as many senders as receivers, not {} and {}",
                from.len(),
                to.len()
            ),
            "narrow `from` or `to`",
        ));
    }
    let pairs: Vec<_> = from.iter().copied().zip(to.iter().copied()).collect();
    if pairs.iter().any(|(from, to)| from == to) {
        return Err(Complaint::new(
            "one-to-one pairs a tenant with itself",
            "give `from` and `to`, or use stride:1",
        ));
    }
    Ok(pairs)
}

fn all_to_all(from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
    let pairs = from
        .iter()
        .flat_map(|from| to.iter().map(move |to| (*from, *to)));
    pairs.filter(|(from, to)| from != to).collect()
}

fn stride(from: &[usize], to: &[usize], low: usize, high: usize) -> Vec<(usize, usize)> {
    let strides = from.iter().enumerate().flat_map(|(at, from)| {
        (low..=high).map(move |stride| (*from, to[(at + stride) % to.len()]))
    });
    strides.filter(|(from, to)| from != to).collect()
}

fn random(from: &[usize], to: &[usize], seed: u64) -> Vec<(usize, usize)> {
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let mut receivers = to.to_vec();
    shuffle(&mut receivers, &mut generator);
    let mut pairs: Vec<(usize, usize)> = from
        .iter()
        .copied()
        .zip(receivers.iter().copied().cycle())
        .collect();
    // A tenant that drew itself swaps with its neighbour, which cannot have drawn the tenant, too.
    for at in 0..pairs.len() {
        let next = (at + 1) % pairs.len();
        if pairs[at].0 == pairs[at].1 && pairs[next].0 != pairs[at].1 {
            (pairs[at].1, pairs[next].1) = (pairs[next].1, pairs[at].1);
        }
    }
    // One that could not swap takes a receiver that no sender drew.
    let mut undrawn = receivers.iter().copied().skip(from.len());
    for pair in pairs.iter_mut().filter(|(from, to)| from == to) {
        pair.1 = undrawn.next().unwrap_or(pair.1);
    }
    pairs.retain(|(from, to)| from != to);
    pairs
}

/// Fisher and Yates.
fn shuffle(items: &mut [usize], generator: &mut impl Rng) {
    for at in (1..items.len()).rev() {
        let other = (generator.next_u64() % (at as u64 + 1)) as usize;
        items.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn complaint(pairing: Pairing, from: &[usize], to: &[usize]) -> String {
        pair(pairing, from, to, 1).unwrap_err().to_string()
    }

    #[test]
    fn a_lone_sender_that_draws_itself_takes_another_receiver() {
        for seed in 0..50 {
            let pairs = pair(Pairing::Random, &[2], &[0, 1, 2, 3], seed).unwrap();
            assert!(pairs.len() == 1 && pairs[0].1 != 2, "{seed}: {pairs:?}");
        }
    }

    #[test]
    fn a_stride_goes_round() {
        let pairs = pair(Pairing::Stride(1, 2), &[0, 1, 2, 3], &[0, 1, 2, 3], 1).unwrap();
        assert_eq!(
            pairs,
            [
                (0, 1),
                (0, 2),
                (1, 2),
                (1, 3),
                (2, 3),
                (2, 0),
                (3, 0),
                (3, 1)
            ]
        );
    }

    #[test]
    fn the_receiver_of_all_is_no_sender() {
        let pairs = pair(Pairing::AllToOne, &[0, 1, 2], &[1], 1).unwrap();
        assert_eq!(pairs, [(0, 1), (2, 1)]);
    }

    #[test]
    fn pairings_that_make_no_sense_are_refused() {
        assert!(complaint(Pairing::OneToOne, &[0, 1], &[0, 1]).contains("with itself"));
        assert!(complaint(Pairing::OneToOne, &[0, 1], &[2]).contains("as many"));
        assert!(complaint(Pairing::AllToOne, &[0], &[1, 2]).contains("one receiver"));
        assert!(complaint(Pairing::AllToAll, &[0], &[0]).contains("no tenant sends"));
        assert!(complaint(Pairing::Stride(4, 4), &[0, 1], &[0, 1]).contains("comes back"));
        for text in ["stride:", "stride:0", "stride:3-1", "stride", "some"] {
            assert!(parse_pairing(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_random_pairing_repeats_with_its_seed_and_pairs_nobody_with_himself(
            hosts in 2usize..40, seed: u64,
        ) {
            let all: Vec<_> = (0..hosts).collect();
            let pairs = pair(Pairing::Random, &all, &all, seed).unwrap();
            prop_assert_eq!(&pairs, &pair(Pairing::Random, &all, &all, seed).unwrap());
            prop_assert_eq!(pairs.len(), hosts);
            prop_assert!(pairs.iter().all(|(from, to)| from != to));
            let mut receivers: Vec<_> = pairs.iter().map(|(_, to)| *to).collect();
            receivers.sort_unstable();
            prop_assert_eq!(receivers, all);
        }
    }
}
