//! Long-term goodputs against the max-min fair allocation.
//!
//! DCTCP is max-min fair where each flow has one bottleneck and flows of one bottleneck have one
//! RTT. A flow that is marked at two full links gets less than its share, as with any control that
//! adds up its path's marks (Kelly, Maulloo, Tan 1998); that is checked, too.

use std::sync::Arc;

use sluicegate_core::{abi::PolicyTable, cc::Algorithm};
use sluicegate_policy::Policy;
use sluicegate_tcp::Config;

use super::{
    near,
    network::{Flows, Link, Network, host, switch},
};

const GBIT: u64 = 1_000_000_000;
const MSS: f64 = 1448.0;
const FRAME_BYTES: f64 = 1514.0;
/// Convergence is over, and long enough for the oscillation's chance to cancel out.
const FROM_PS: u64 = 1_000_000_000_000;
const TO_PS: u64 = 61_000_000_000_000;

/// Max-min fair rates: all grow alike until a link is full, whose flows then stay (Bertsekas &
/// Gallager, Data Networks, 6.5.2). `paths` are the links of each flow.
fn max_min(capacities: &[f64], paths: &[Vec<usize>]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; paths.len()];
    loop {
        let share = |link: usize| {
            let (mut left, mut open) = (capacities[link], 0.0);
            for (path, rate) in paths.iter().zip(&rates) {
                match (path.contains(&link), rate) {
                    (true, Some(rate)) => left -= rate,
                    (true, None) => open += 1.0,
                    _ => {}
                }
            }
            (open > 0.0).then_some((left / open, link))
        };
        let shares = (0..capacities.len()).filter_map(share);
        let Some((rate, full)) = shares.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            return rates.into_iter().flatten().collect();
        };
        for (path, slot) in paths.iter().zip(&mut rates) {
            if slot.is_none() && path.contains(&full) {
                *slot = Some(rate);
            }
        }
    }
}

/// Flows over a tree of switches. Senders' links make up for the links that their flows pass less,
/// so that all RTTs are the same.
struct Tree {
    /// Links between switches and their rates.
    links: Vec<(u32, u32, u64)>,
    /// Of each flow: the switches where it enters and leaves, the rate of its receiver's link.
    flows: Vec<(u32, u32, u64)>,
}

const LINK_DELAY_PS: u64 = 10_000_000;
const LINKS_MAX: usize = 4;

impl Tree {
    /// The links from one switch to another; one link leads on from each.
    fn path(&self, from: u32, to: u32) -> Vec<usize> {
        let mut at = from;
        let mut path = Vec::new();
        while at != to {
            let leads_on = |link: &(u32, u32, u64)| link.0 == at;
            let link = self.links.iter().position(leads_on).unwrap();
            path.push(link);
            at = self.links[link].1;
        }
        path
    }

    fn network(&self, stack: &Config, policy: Option<Arc<PolicyTable>>) -> Network {
        let hosts = 2 * self.flows.len() as u32;
        let link = |nodes, rate_bps, delay_ps| Link {
            nodes,
            rate_bps,
            delay_ps,
            k_bytes: 30_000,
        };
        let between = self.links.iter();
        let mut links: Vec<_> = between
            .map(|&(a, b, rate_bps)| link((switch(a), switch(b)), rate_bps, LINK_DELAY_PS))
            .collect();
        for (sender, &(enters, leaves, rate_bps)) in (0..).step_by(2).zip(&self.flows) {
            let missing = LINKS_MAX - self.path(enters, leaves).len();
            let delay_ps = missing as u64 * LINK_DELAY_PS;
            links.push(link((host(sender), switch(enters)), GBIT, delay_ps));
            links.push(link(
                (switch(leaves), host(sender + 1)),
                rate_bps,
                LINK_DELAY_PS,
            ));
        }
        Network {
            hosts,
            switches: self.links.len() as u32 + 1,
            links,
            policy,
            // A packet's time on the slowest link, so that no flow's packets always come before
            // another's (Floyd & Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways",
            // 1992).
            jitter_ps: 24_000_000,
            ..Network::star(0, stack, GBIT, LINK_DELAY_PS)
        }
    }

    /// Payload per second of each flow.
    fn goodputs_bps(&self, stack: &Config, policy: Option<Arc<PolicyTable>>) -> Vec<f64> {
        let pairs = (0..self.flows.len() as u32).map(|flow| (2 * flow, 2 * flow + 1));
        let net = self.network(stack, policy).build();
        Flows::start(net, &pairs.collect::<Vec<_>>(), 1 << 50).goodputs_bps(FROM_PS, TO_PS)
    }

    /// Its max-min fair allocation.
    fn fair_bps(&self) -> Vec<f64> {
        let between = self.links.iter().map(|link| link.2);
        let rates = between.chain(self.flows.iter().map(|flow| flow.2));
        let capacities = rates.map(|rate_bps| rate_bps as f64 * MSS / FRAME_BYTES);
        let flows = self.flows.iter().enumerate();
        let paths = flows.map(|(flow, &(enters, leaves, _))| {
            let mut path = self.path(enters, leaves);
            path.push(self.links.len() + flow);
            path
        });
        max_min(&capacities.collect::<Vec<_>>(), &paths.collect::<Vec<_>>())
    }
}

fn dctcp() -> Config {
    Config::linux(1460).with(Algorithm::Dctcp)
}

fn enforced() -> Option<Arc<PolicyTable>> {
    let everywhere = "10.0.0.0/8".parse().unwrap();
    Some(Arc::from(
        Policy::enforce_all(Algorithm::Dctcp, everywhere).compile(),
    ))
}

/// Two switches lead to a third, from which a slower link leads to a fourth. Two flows from either
/// side share that link; beside them one from either side leaves early, for a slow receiver. Each
/// flow has one full link on its way.
fn tree() -> Tree {
    let slow = GBIT / 2;
    Tree {
        links: vec![(0, 2, GBIT), (1, 2, GBIT), (2, 3, slow)],
        flows: vec![
            (0, 3, GBIT),
            (1, 3, GBIT),
            (0, 3, GBIT),
            (1, 3, GBIT),
            (0, 2, slow),
            (1, 2, slow),
        ],
    }
}

fn mbit(rates_bps: &[f64]) -> String {
    let rates = rates_bps.iter().map(|rate| format!("{:.1}", rate / 1e6));
    rates.collect::<Vec<_>>().join(" ")
}

fn check(tree: &Tree, stack: &Config, policy: Option<Arc<PolicyTable>>) {
    let (got, fair) = (tree.goodputs_bps(stack, policy), tree.fair_bps());
    println!("{} Mbit/s, max-min fair {}", mbit(&got), mbit(&fair));
    for (got, fair) in got.iter().zip(&fair) {
        assert!(near(*got, *fair), "{got} against {fair}");
    }
}

#[test]
fn filling_links_gives_the_textbook_allocation() {
    // One long flow over two links, two flows on the first, one on the second.
    let paths = [vec![0, 1], vec![0], vec![0], vec![1]];
    assert_eq!(max_min(&[3.0, 4.0], &paths), [1.0, 1.0, 1.0, 3.0]);
}

#[test]
fn dctcp_is_max_min_fair_where_each_flow_has_one_bottleneck() {
    check(&tree(), &dctcp(), None);
}

#[test]
fn enforced_cubic_is_max_min_fair_where_each_flow_has_one_bottleneck() {
    check(&tree(), &Config::linux(1460), enforced());
}

/// Both links full: the flow that is marked at both gets less than its max-min share, and nothing
/// is wasted.
#[test]
fn a_flow_with_two_bottlenecks_gets_less_than_its_max_min_share() {
    let tree = Tree {
        links: vec![(0, 1, GBIT), (1, 2, GBIT)],
        flows: vec![(0, 2, 2 * GBIT), (0, 1, 2 * GBIT), (1, 2, 2 * GBIT)],
    };
    let (got, fair) = (tree.goodputs_bps(&dctcp(), None), tree.fair_bps());
    println!("{} Mbit/s, max-min fair {}", mbit(&got), mbit(&fair));
    assert!(got[0] < 0.98 * fair[0], "{}", mbit(&got));
    for other in &got[1..] {
        let capacity = fair[0] + fair[1];
        assert!(near(got[0] + other, capacity), "{}", mbit(&got));
    }
}
