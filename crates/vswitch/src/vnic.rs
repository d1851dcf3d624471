//! The vNIC stage: a host's tables around core's life of a flow and its enforcement step.
//!
//! Core decides the fate of a packet (`c/sluice/lifecycle.h`); this file has the tables in which
//! flows are looked up and kept. The tables are bounded, and flows that are silent for long are
//! forgotten, by the same rules and with the same counters as in the kernel (`agent/bpf/table.h`,
//! `known.h`).

use std::{collections::BTreeMap, sync::Arc};

use sluicegate_core::{
    abi::{
        Blackhole, BlackholeKey, COUNTER_NAMES, Config, FLOW_HEARD, Flow, FlowKey, HalfOpen,
        HashKey, Params, PolicyTable, Remembered, Scope,
    },
    life::{self, Fate, News, Opener, Rematch, Silence},
    number::narrow,
    path::Paths,
    segment::{Segment, Verdict, edit, tcp},
    step::Counters,
};

use crate::table::{Connection, Full, Table};

/// A compiled policy, shared by the hosts that follow it.
pub type Policy = Arc<PolicyTable>;

/// The bounds of a host's tables, and how long a silent flow stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Flows; one more passes untouched.
    pub flows: usize,
    /// Half-open connections, and as many of interfaces that have used up their share; one more
    /// evicts the oldest.
    pub half_open: usize,
    /// Connections whose flow was forgotten for its silence.
    pub remembered: usize,
    /// Peers that hosts' options do not reach.
    pub blackholes: usize,
    /// [`Config::idle_ns`].
    pub idle_ns: u64,
    /// [`Config::closed_ns`].
    pub closed_ns: u64,
}

impl Default for Limits {
    /// The kernel's.
    fn default() -> Self {
        let config = Config::default();
        Self {
            flows: 65_536,
            half_open: 16_384,
            remembered: 65_536,
            blackholes: 65_536,
            idle_ns: config.idle_ns,
            closed_ns: config.closed_ns,
        }
    }
}

/// The counters that the tables increment.
const PACKETS: usize = number("packets");
const NOT_TCP: usize = number("not_tcp");
const FLOW_MIDSTREAM: usize = number("flow_midstream");
const TABLE_FULL: usize = number("table_full");
const QUOTA: usize = number("quota");
const FLOW_EXPIRED: usize = number("flow_expired");
const RULE_CHANGED: usize = number("rule_changed");
const OPTION_DROPPED: usize = number("option_dropped");
const ECT_DROPPED: usize = number("ect_dropped");

/// The counter of this name, an index of [`COUNTER_NAMES`]; a constant of a name that there is not
/// does not compile.
pub const fn number(name: &str) -> usize {
    let mut index = 0;
    while !same(COUNTER_NAMES[index].as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

/// A virtual NIC, by the number of its interface. An unattached interface has the unconditional
/// rules, no quota and no share.
#[derive(Clone, Copy, Debug)]
struct Interface {
    scope: Scope,
    flows: u32,
    quota: u32,
    unanswered: u32,
}

/// A flow, its addresses and ports, and whether a SYN/ACK has come since it began.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    flow: Flow,
    ends: FlowKey,
    /// The place of its path.
    path: u16,
    /// A SYN/ACK that answers nothing known has come.
    answered: bool,
}

/// One host's virtual NICs: half-open connections, flows, counters. `K` identifies a connection
/// of this host's tenants; the caller chooses a type that is quick to hash.
pub struct Vnics<K> {
    policy: Policy,
    limits: Limits,
    interfaces: BTreeMap<u32, Interface>,
    flows: Table<K, Tracked>,
    half_open: Table<(K, Opener), HalfOpen>,
    /// Half-open connections of interfaces that have used up their share of `half_open`.
    crowd: Table<(K, Opener), HalfOpen>,
    remembered: Table<K, Remembered>,
    /// What flows to each peer have met.
    paths: Paths,
    blackholes: Table<BlackholeKey, Blackhole>,
    /// The time of the next sweep, and the place at which it begins.
    sweep_ns: u64,
    sweep_from: usize,
    counters: Counters,
    /// `snd_una` of the last segment's flow before its step.
    una: u32,
}

impl<K: Connection> Vnics<K> {
    /// A host that has seen nothing yet, with the kernel's limits, in a network where no tenant
    /// chooses connections by their hash.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, Limits::default(), HashKey::FIXED)
    }

    /// The same with other limits, and a key that is random where tenants choose what `K` is.
    pub fn with(policy: Policy, limits: Limits, hash_key: HashKey) -> Self {
        Self {
            policy,
            limits,
            interfaces: BTreeMap::new(),
            flows: Table::new(limits.flows, hash_key),
            half_open: Table::new(limits.half_open, hash_key),
            crowd: Table::new(limits.half_open, hash_key),
            remembered: Table::new(limits.remembered, hash_key),
            paths: Paths::new(hash_key),
            blackholes: Table::new(limits.blackholes, hash_key),
            sweep_ns: 0,
            sweep_from: 0,
            counters: Counters::default(),
            una: 0,
        }
    }

    /// Attaches the interface with this number, or changes what holds there: the rules in its scope
    /// and most flows (0 = no quota). Flows that it has keep their rules until
    /// [`Vnics::set_policy`].
    pub fn attach(&mut self, ifindex: u32, scope: Scope, quota: u32) {
        let before = self.interfaces.get(&ifindex).copied();
        let of_it = |tracked: &&Tracked| tracked.ends.ifindex == ifindex;
        let flows = || {
            narrow::<u32>(
                self.flows
                    .iter()
                    .map(|(_, tracked)| tracked)
                    .filter(of_it)
                    .count(),
            )
        };
        let interface = Interface {
            scope,
            flows: before.map_or_else(flows, |before| before.flows),
            quota,
            unanswered: before.map_or(0, |before| before.unanswered),
        };
        self.interfaces.insert(ifindex, interface);
    }

    /// Lets go of an interface: its flows are forgotten.
    pub fn detach(&mut self, ifindex: u32) {
        for place in 0..self.flows.places() {
            let Some((&connection, tracked)) = self.flows.at(place) else {
                continue;
            };
            if tracked.ends.ifindex == ifindex {
                self.forget(connection);
            }
        }
        self.interfaces.remove(&ifindex);
    }

    /// Puts another policy in force. Flows that another rule covers now are decided anew, those
    /// that none covers are forgotten. Scopes are those of the policy before until
    /// [`Vnics::attach`] is told others: first attach, so that rules of both hold, then put in
    /// force, then attach again.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        for place in 0..self.flows.places() {
            let Some((&connection, tracked)) = self.flows.at(place) else {
                continue;
            };
            let rule = self.rule_for(&tracked.ends);
            let change = life::rematch(&mut self.flows.value(place).flow, rule);
            if change != Rematch::Same {
                self.counters.one(RULE_CHANGED);
            }
            if change == Rematch::None {
                self.drop_flow(connection);
            }
        }
    }

    /// One segment passes the tenant's virtual NIC in the direction that it says. `ends` is asked
    /// for when a connection is new; `segment.peer_trusted` is filled in then.
    #[inline]
    pub fn segment(
        &mut self,
        connection: K,
        segment: &mut Segment,
        now_ns: u64,
        ends: impl FnOnce() -> FlowKey,
    ) -> Verdict {
        if now_ns >= self.sweep_ns {
            self.sweep(now_ns);
        }
        let verdict = match segment.tcp_flags & (tcp::SYN | tcp::ACK) {
            tcp::SYN => self.syn(connection, segment, now_ns, &ends()),
            flags if flags & tcp::SYN != 0 => self.synack(connection, segment, now_ns, &ends()),
            _ => self.other(connection, segment, now_ns, ends),
        };
        self.counters.packet(segment, &verdict);
        verdict
    }

    /// Bytes that may follow the last segment, whose verdict this was, as a run
    /// ([`life::run_room`]): segments that pass before anything else does. They have the same
    /// verdict, and their step is [`Vnics::run`].
    #[inline]
    pub fn run_room(&mut self, connection: &K, segment: &Segment, verdict: &Verdict) -> u32 {
        let (una, place) = (self.una, self.flows.find_again(connection));
        let tracked = place.map(|place| self.flows.value(place));
        // What a SYN/ACK has said since is for each segment to confirm.
        let tracked = tracked.filter(|tracked| !tracked.answered);
        tracked.map_or(0, |it| life::run_room(&it.flow, una, segment, verdict))
    }

    /// The step of the segments of a run, for which this one stands ([`life::run_step`]); `reports`
    /// of them bring feedback. Returns the last verdict, and how many add feedback.
    pub fn run(
        &mut self,
        connection: &K,
        segment: &Segment,
        (packets, reports): (u32, u32),
        now_ns: u64,
    ) -> (Verdict, u32) {
        let Some(place) = self.flows.find_again(connection) else {
            return Default::default();
        };
        let tracked = self.flows.value(place);
        let params = params(&self.policy, tracked.flow.rule);
        let path = self.paths.at(tracked.path);
        let flow = &mut tracked.flow;
        let (verdict, adds) = life::run_step(flow, segment, packets, now_ns, params, path);
        let reports = reports + adds;
        self.counters
            .run(segment, &verdict, packets.into(), reports.into());
        (verdict, adds)
    }

    /// The slot of the rule for what the tenant of `ends` sends.
    pub fn rule_for(&self, ends: &FlowKey) -> Option<u8> {
        let interface = self.interfaces.get(&ends.ifindex);
        let scope = interface.map_or(&self.policy.anywhere, |interface| &interface.scope);
        self.policy.rule_for(scope, ends)
    }

    fn syn(
        &mut self,
        connection: K,
        segment: &mut Segment,
        now_ns: u64,
        ends: &FlowKey,
    ) -> Verdict {
        let rule = self.rule_for(ends);
        let (fate, verdict) = life::of_syn(rule);
        let (Fate::Note, Some(rule)) = (fate, rule) else {
            return verdict;
        };
        segment.peer_trusted = self.policy.trusts(&ends.remote).into();
        let key = (connection, life::opener(segment));
        let counted = self.half_open.get(&key).copied();
        let before = counted.or_else(|| self.crowd.get(&key).copied());
        let mut half = before.unwrap_or_default();
        let has_flow = self.flows.find(&connection).is_some();
        let params = params(&self.policy, rule);
        let known = self.blackholes.get(&life::blackhole_key(ends));
        let facts = (rule, has_flow, life::offers_to(known, ends, now_ns));
        let (verdict, news) = life::syn(&mut half, segment, now_ns, facts, params);
        self.note(news, ends, now_ns);
        if counted.is_some() {
            self.half_open.keep(key, half);
        } else {
            self.keep_half(key, half, now_ns, ends.ifindex);
        }
        verdict
    }

    /// Keeps news of offers to a peer.
    fn note(&mut self, news: News, ends: &FlowKey, now_ns: u64) {
        if news == News::None {
            return;
        }
        let place = life::blackhole_key(ends);
        let mut known = self.blackholes.get(&place).copied().unwrap_or_default();
        if life::note_news(&mut known, ends, news, now_ns) {
            self.blackholes.keep(place, known);
            if news == News::Lost {
                self.counters.one(OPTION_DROPPED);
            }
        }
    }

    /// Keeps what a SYN said, or a SYN/ACK alone, that was not known.
    fn keep_half(&mut self, key: (K, Opener), half: HalfOpen, now_ns: u64, ifindex: u32) {
        let interface = self.interfaces.get_mut(&ifindex);
        match interface.is_none_or(|it| life::unanswered_add(&mut it.unanswered, now_ns)) {
            true => {
                self.crowd.remove(&key);
                self.half_open.keep(key, half);
            }
            false => self.crowd.keep(key, half),
        }
    }

    fn half(&self, connection: K, opener: Opener) -> Option<&HalfOpen> {
        let key = (connection, opener);
        self.half_open.get(&key).or_else(|| self.crowd.get(&key))
    }

    fn synack(
        &mut self,
        connection: K,
        segment: &mut Segment,
        now_ns: u64,
        ends: &FlowKey,
    ) -> Verdict {
        let (rule, key) = (self.rule_for(ends), (connection, life::opener(segment)));
        let counted = self.half_open.find(&key).is_some();
        let half = self.half(connection, key.1).copied();
        let has_flow = self.flows.find(&connection).is_some();
        let fate = life::of_synack(half.as_ref(), segment, rule, has_flow);
        let (Some(rule), false) = (rule, fate == Fate::Pass) else {
            return Verdict::default();
        };
        segment.peer_trusted = self.policy.trusts(&ends.remote).into();
        let params = params(&self.policy, rule);
        let (Some(mut half), false) = (half, fate == Fate::Note) else {
            let mut verdict = Verdict::default();
            life::refuse(segment, segment.peer_trusted != 0, params, &mut verdict);
            self.keep_answer(connection, segment, now_ns, ends);
            return verdict;
        };
        let news = life::synack_news(&half, segment);
        let partner = life::partner(self.flows.get(&connection).map(|it| &it.flow), now_ns);
        let facts = (rule, partner);
        let (mut flow, mut verdict) = life::synack(&mut half, segment, now_ns, facts, params);
        self.note(news, ends, now_ns);
        let present = self.flows.get_mut(&connection).map(|it| &mut it.flow);
        if fate == Fate::Make || life::gives_up(present, &mut flow) {
            if counted && fate == Fate::Make {
                self.half_answered(ends.ifindex, now_ns);
            }
            if self.store(connection, flow, ends).is_err() {
                life::unkept(Some(&mut half), segment, &mut verdict);
            }
        }
        let table = if counted {
            &mut self.half_open
        } else {
            &mut self.crowd
        };
        table.keep(key, half);
        if fate == Fate::Repeat {
            self.keep_answer(connection, segment, now_ns, ends);
        }
        verdict
    }

    /// A SYN/ACK that answers no SYN that was read, or one that has been answered. One that the
    /// flow began with says nothing new.
    fn keep_answer(&mut self, connection: K, segment: &Segment, now_ns: u64, ends: &FlowKey) {
        if let Some(tracked) = self.flows.get_mut(&connection) {
            if !life::answers_anew(&tracked.flow, segment) {
                return;
            }
            tracked.answered = true;
        }
        let note = life::note(segment, now_ns);
        let key = (connection, Opener::Unseen);
        match self.half_open.find(&key).is_some() {
            true => self.half_open.keep(key, note),
            false => self.keep_half(key, note, now_ns, ends.ifindex),
        }
    }

    fn half_answered(&mut self, ifindex: u32, now_ns: u64) {
        if let Some(interface) = self.interfaces.get_mut(&ifindex) {
            life::unanswered_sub(&mut interface.unanswered, now_ns);
        }
    }

    /// Any segment but those of a handshake.
    fn other(
        &mut self,
        connection: K,
        segment: &Segment,
        now_ns: u64,
        ends: impl FnOnce() -> FlowKey,
    ) -> Verdict {
        let Some(place) = self.flows.find_again(&connection) else {
            let fate = life::of_segment(segment, None, false);
            return self.stray(connection, fate, segment, now_ns, ends);
        };
        let tracked = self.flows.value(place);
        self.una = tracked.flow.snd_una;
        if tracked.flow.marks & FLOW_HEARD == 0 && life::awaits_peer(&tracked.flow, segment) {
            let (flow, ends) = (tracked.flow, tracked.ends);
            let half = self.half(connection, Opener::Remote);
            let news = life::peer_news(&flow, half, segment);
            self.note(news, &ends, now_ns);
        }
        let tracked = self.flows.value(place);
        let params = params(&self.policy, tracked.flow.rule);
        let (flow, answered) = (Some(&mut tracked.flow), tracked.answered);
        let path = self.paths.at(tracked.path);
        let (mut fate, verdict) = life::segment(flow, answered, segment, now_ns, params, path);
        if fate == Fate::Use {
            if usize::from(verdict.count) == ECT_DROPPED {
                let ends = tracked.ends;
                self.note(News::Lost, &ends, now_ns);
            }
            return verdict;
        }
        let flow = tracked.flow;
        let note = self.half(connection, Opener::Unseen);
        fate = life::recalled(note, &flow, segment, now_ns);
        let tracked = self.flows.value(place);
        tracked.answered = fate == Fate::Recall;
        if fate != Fate::Make {
            let path = self.paths.at(tracked.path);
            return life::step(&mut tracked.flow, segment, now_ns, params, path);
        }
        self.stray(connection, fate, segment, now_ns, ends)
    }

    /// Nothing is known of the connection, or of its new life.
    fn stray(
        &mut self,
        connection: K,
        fate: Fate,
        segment: &Segment,
        now_ns: u64,
        ends: impl FnOnce() -> FlowKey,
    ) -> Verdict {
        let mut verdict = Verdict {
            edits: edit::UNHELD,
            ..Verdict::default()
        };
        // Without claims there is nothing to look up.
        if fate != Fate::Make && !life::has_claims(segment) {
            return verdict;
        }
        let ends = ends();
        let Some(rule) = self.rule_for(&ends) else {
            return verdict;
        };
        let params = params(&self.policy, rule);
        let trusted = self.policy.trusts(&ends.remote);
        life::refuse(segment, trusted, params, &mut verdict);
        if fate == Fate::Make {
            let known = self.known(connection, segment);
            let before = self.flows.get(&connection).map(|tracked| &tracked.flow);
            let flow = life::midstream(segment, now_ns, rule, params, &known, before);
            // Without room it is found out again when there is.
            if self.store(connection, flow, &ends).is_ok() {
                self.remembered.remove(&connection);
                self.counters.one(FLOW_MIDSTREAM);
            }
        }
        verdict
    }

    /// The known facts about a connection that is met in midstream.
    fn known(&self, connection: K, segment: &Segment) -> Remembered {
        let mut known = self.remembered.get(&connection).copied();
        let known = known.get_or_insert_default();
        let half = |opener| self.half(connection, opener);
        let [answer, of_tenant, of_remote] =
            [Opener::Unseen, Opener::Tenant, Opener::Remote].map(half);
        life::know(known, segment, answer, of_tenant, of_remote);
        *known
    }

    /// Puts a flow into the table, within the interface's quota.
    fn store(&mut self, connection: K, flow: Flow, ends: &FlowKey) -> Result<(), Full> {
        let tracked = Tracked {
            flow,
            ends: *ends,
            path: self.paths.place(ends),
            answered: false,
        };
        if let Some(place) = self.flows.find(&connection) {
            *self.flows.value(place) = tracked;
            return Ok(());
        }
        let interface = self.interfaces.get_mut(&ends.ifindex);
        if interface
            .as_ref()
            .is_some_and(|it| !life::has_room(it.flows, it.quota))
        {
            self.counters.one(QUOTA);
            return Err(Full);
        }
        let kept = self.flows.insert(connection, tracked);
        match kept {
            Ok(()) => interface.into_iter().for_each(|it| it.flows += 1),
            Err(Full) => self.counters.one(TABLE_FULL),
        }
        kept
    }

    fn drop_flow(&mut self, connection: K) {
        let Some(tracked) = self.flows.remove(&connection) else {
            return;
        };
        if let Some(interface) = self.interfaces.get_mut(&tracked.ends.ifindex) {
            interface.flows = interface.flows.saturating_sub(1);
        }
    }

    /// Frees the half-open connections of a tuple that `goes` selects. Core takes spent ones for
    /// absent, so that it makes no difference that the kernel leaves them to its maps.
    fn drop_halves(&mut self, connection: K, goes: impl Fn(&HalfOpen) -> bool) {
        for opener in [Opener::Tenant, Opener::Remote, Opener::Unseen] {
            let key = (connection, opener);
            for table in [&mut self.half_open, &mut self.crowd] {
                if table.get(&key).is_some_and(&goes) {
                    table.remove(&key);
                }
            }
        }
    }

    /// Forgets some of the flows that have been silent for too long.
    #[cold]
    fn sweep(&mut self, now_ns: u64) {
        self.sweep_ns = now_ns + life::sweep_period_ns();
        let places = self.flows.places();
        for _ in 0..places.min(life::sweep_slots() as usize) {
            let place = self.sweep_from % places;
            self.sweep_from = place + 1;
            let Some((&connection, tracked)) = self.flows.at(place) else {
                continue;
            };
            let silent_ns = now_ns.saturating_sub(tracked.flow.seen_ns);
            if silent_ns >= self.patience_ns(tracked) {
                let what = life::remember(&tracked.flow);
                self.drop_flow(connection);
                self.drop_halves(connection, |half| life::is_spent(half, false));
                what.into_iter()
                    .for_each(|what| self.remembered.keep(connection, what));
                self.counters.one(FLOW_EXPIRED);
            }
        }
    }

    /// How long a flow may be silent.
    fn patience_ns(&self, tracked: &Tracked) -> u64 {
        let Limits {
            idle_ns, closed_ns, ..
        } = self.limits;
        let silence = life::silence(&tracked.flow);
        let is_short = silence == Silence::ByRoom && self.room_is_short(tracked);
        life::patience_ns(silence, is_short, idle_ns, closed_ns)
    }

    /// Whether others need the room of this flow.
    fn room_is_short(&self, tracked: &Tracked) -> bool {
        let interface = self.interfaces.get(&tracked.ends.ifindex);
        life::is_short(
            narrow::<u32>(self.flows.len()),
            narrow::<u32>(self.flows.most()),
        ) || interface.is_some_and(|it| life::is_short(it.flows, it.quota))
    }

    /// A packet passes that is not TCP.
    pub fn not_tcp(&mut self) {
        self.unread(NOT_TCP, 1);
    }

    /// So many packets are not read, for the reason that this counter says, an index of
    /// [`COUNTER_NAMES`].
    pub fn unread(&mut self, why: usize, packets: u64) {
        self.counters.0[PACKETS] += packets;
        self.counters.0[why] += packets;
    }

    /// Counts what its caller does with a packet: an index of [`COUNTER_NAMES`].
    pub fn count(&mut self, which: usize) {
        self.counters.one(which);
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The bounds of its tables.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Flows of an interface, and most that it may have (0 = no quota).
    pub fn used(&self, ifindex: u32) -> Option<(u32, u32)> {
        let interface = self.interfaces.get(&ifindex)?;
        Some((interface.flows, interface.quota))
    }

    /// The flow of a connection.
    pub fn flow(&self, connection: K) -> Option<&Flow> {
        self.flows.get(&connection).map(|tracked| &tracked.flow)
    }

    /// Every flow, with its addresses and ports.
    pub fn flows(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        let tracked = self.flows.iter().map(|(_, tracked)| tracked);
        tracked.map(|tracked| (&tracked.ends, &tracked.flow))
    }

    /// Flows, half-open connections and forgotten ones that are remembered.
    pub fn entries(&self) -> [usize; 3] {
        let half_open = self.half_open.len() + self.crowd.len();
        [self.flows.len(), half_open, self.remembered.len()]
    }

    /// Memory of its tables.
    pub fn bytes(&self) -> usize {
        let half_open = self.half_open.bytes() + self.crowd.bytes();
        self.flows.bytes() + half_open + self.remembered.bytes() + self.blackholes.bytes()
    }

    /// Forgets a connection that is known to be over: nothing of it comes any more.
    pub fn forget(&mut self, connection: K) {
        self.drop_flow(connection);
        self.drop_halves(connection, |_| true);
        self.remembered.remove(&connection);
    }

    /// Counters in the order of [`COUNTER_NAMES`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The parameters of the rule in this slot.
fn params(policy: &PolicyTable, rule: u8) -> &Params {
    &policy.slots[usize::from(rule) % policy.slots.len()].params
}
