//! The vNIC stage: a host's table of flows around core's enforcement step.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use sluicegate_core::{
    abi::{COUNTER_NAMES, Flow, FlowKey, HalfOpen, PolicyTable, Remembered},
    segment::{Direction, Segment, Verdict, tcp},
    step::{self, Counters},
};

/// A compiled policy, shared by the hosts that follow it.
pub type Policy = Arc<PolicyTable>;

/// One host's virtual NICs: half-open connections, flows, counters. `K` tells connections of this host's
/// tenants apart; whoever calls chooses what is quickest to hash.
pub struct Vnics<K> {
    policy: Policy,
    half_open: HashMap<(K, Direction), HalfOpen>,
    flows: HashMap<K, Flow>,
    counters: Counters,
    missing: Missing,
}

/// Numbers of counters that the table moves by itself.
#[derive(Clone, Copy)]
struct Missing {
    no_rule: u8,
    midstream: usize,
    packets: usize,
    not_tcp: usize,
}

impl<K: Copy + Eq + Hash> Vnics<K> {
    /// A host that has seen nothing yet.
    pub fn new(policy: Policy) -> Self {
        let number = |name| COUNTER_NAMES.iter().position(|known| *known == name);
        Self {
            policy,
            half_open: HashMap::new(),
            flows: HashMap::new(),
            counters: Counters::default(),
            missing: Missing {
                no_rule: number("no_rule").unwrap_or(0) as u8,
                midstream: number("flow_midstream").unwrap_or(0),
                packets: number("packets").unwrap_or(0),
                not_tcp: number("not_tcp").unwrap_or(0),
            },
        }
    }

    /// One segment passes the tenant's virtual NIC in the direction that it says. `ends` is asked for when a
    /// connection is new; `segment.peer_trusted` is filled in then.
    pub fn segment(
        &mut self,
        connection: K,
        segment: &mut Segment,
        now_ns: u64,
        ends: impl FnOnce() -> FlowKey,
    ) -> Verdict {
        let verdict = if segment.tcp_flags & tcp::SYN != 0 {
            self.handshake(connection, segment, now_ns, &ends())
        } else if let Some(flow) = self.flows.get_mut(&connection) {
            let params = &self.policy.slots[usize::from(flow.rule)].params;
            step::segment(flow, segment, now_ns, params)
        } else {
            self.midstream(connection, segment, now_ns, &ends())
        };
        self.counters.packet(segment, &verdict);
        verdict
    }

    fn handshake(
        &mut self,
        connection: K,
        segment: &mut Segment,
        now_ns: u64,
        ends: &FlowKey,
    ) -> Verdict {
        segment.peer_trusted = self.policy.trusts(&ends.remote).into();
        let answers = segment.tcp_flags & tcp::ACK != 0;
        let from_tenant = (segment.direction == Direction::FromTenant as u8) != answers;
        let opener = if from_tenant {
            Direction::FromTenant
        } else {
            Direction::ToTenant
        };
        if answers {
            return self.synack(connection, opener, segment, now_ns);
        }
        let Some(rule) = self.policy.rule_for(&self.policy.anywhere, ends) else {
            return Verdict {
                count: self.missing.no_rule,
                ..Verdict::default()
            };
        };
        let half = self.half_open.entry((connection, opener)).or_default();
        half.rule = rule;
        let params = &self.policy.slots[usize::from(rule)].params;
        step::syn(half, segment, now_ns, params)
    }

    fn synack(
        &mut self,
        connection: K,
        opener: Direction,
        segment: &Segment,
        now_ns: u64,
    ) -> Verdict {
        let Some(half) = self.half_open.get_mut(&(connection, opener)) else {
            return Verdict::default();
        };
        let params = &self.policy.slots[usize::from(half.rule)].params;
        let (made, verdict) = step::synack(half, segment, now_ns, params);
        if let Some(flow) = made {
            self.flows.insert(connection, flow);
        }
        verdict
    }

    /// A packet passes that is not TCP.
    pub fn not_tcp(&mut self) {
        self.counters.one(self.missing.packets);
        self.counters.one(self.missing.not_tcp);
    }

    /// Whether a SYN is remembered that no SYN/ACK has answered here.
    fn half_seen(&self, connection: K) -> bool {
        [Direction::FromTenant, Direction::ToTenant]
            .iter()
            .filter_map(|direction| self.half_open.get(&(connection, *direction)))
            .any(HalfOpen::is_unanswered)
    }

    /// A flow whose beginning was missed is shown, if a rule covers it, and governed once enough is known.
    fn midstream(
        &mut self,
        connection: K,
        segment: &Segment,
        now_ns: u64,
        ends: &FlowKey,
    ) -> Verdict {
        let says_something = segment.payload > 0
            && segment.direction == Direction::FromTenant as u8
            && segment.tcp_flags & tcp::RST == 0;
        let rule = self
            .policy
            .rule_for(&self.policy.anywhere, ends)
            .filter(|_| says_something);
        if let Some(rule) = rule {
            let params = &self.policy.slots[usize::from(rule)].params;
            let known = Remembered {
                one_way: self.half_seen(connection).into(),
                ..Remembered::default()
            };
            let mut flow = step::midstream(segment, now_ns, params, &known);
            flow.rule = rule;
            self.flows.insert(connection, flow);
            self.counters.one(self.missing.midstream);
        }
        Verdict::default()
    }

    /// What is known of a connection.
    pub fn flow(&self, connection: K) -> Option<&Flow> {
        self.flows.get(&connection)
    }

    /// Every flow.
    pub fn flows(&self) -> impl Iterator<Item = (&K, &Flow)> {
        self.flows.iter()
    }

    /// Forgets a connection that is over.
    pub fn forget(&mut self, connection: K) {
        self.flows.remove(&connection);
        self.half_open.remove(&(connection, Direction::FromTenant));
        self.half_open.remove(&(connection, Direction::ToTenant));
    }

    /// Counters in the order of [`COUNTER_NAMES`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
