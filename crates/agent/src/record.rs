//! One flow as people and programs read it.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use serde::Serialize;
use sluicegate_core::{
    abi::{
        Addr, FLOW_ACKED_AHEAD, FLOW_LENIENT, FLOW_ODD_OPTIONS, FLOW_SIGNS, FLOW_STRANGERS,
        FLOW_UNMARKED, Flow, FlowKey, MODE_NAMES, MODE_WATCH, REASON_NAMES, Rule,
    },
    cc::Algorithm,
};

/// Names of `enum sg_rule_mode`, in its order.
pub const RULE_MODES: [&str; 3] = ["off", "observe", "enforce"];

/// Words for bits of [`Flow::marks`] that report odd packets, whatever the mode of the flow.
pub const NOTICES: [(u16, &str); 5] = [
    (FLOW_SIGNS, "signs"),
    (FLOW_ACKED_AHEAD, "acks-ahead"),
    (FLOW_ODD_OPTIONS, "odd-options"),
    (FLOW_LENIENT, "lenient"),
    (FLOW_STRANGERS, "strangers"),
];

/// Reason where two hosts enforce, but the path drops packets and never marked one: the rule's
/// fallback governs.
const NO_CE: &str = "no-ce";

/// Reason where the rule, not the flow, forbids edits.
pub const OBSERVE: &str = "observe";

/// A flow without packets for longer is not active, in ms.
pub const ACTIVE_MS: u64 = 10_000;

/// Names for the kernel's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Interfaces by index.
    pub interfaces: BTreeMap<u32, String>,
    /// Tenants of interfaces, by index; an interface that is not in it is its own tenant.
    pub tenants: BTreeMap<u32, String>,
    /// Rules by position in the policy in force.
    pub rules: Vec<String>,
}

impl Names {
    /// Name of an interface and of its tenant.
    pub fn of(&self, ifindex: u32) -> (String, String) {
        let interface = interface(ifindex, &self.interfaces);
        let tenant = self.tenants.get(&ifindex).unwrap_or(&interface).clone();
        (interface, tenant)
    }
}

/// The record of one flow, from the point of view of the local tenant as sender.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRecord {
    /// The tenant's interface; `#N` if its name is not known any more.
    pub interface: String,
    /// The tenant of the interface: its label, else its name.
    pub tenant: String,
    /// Index of it.
    pub ifindex: u32,
    /// VLAN tag, if any.
    pub vlan: Option<u16>,
    /// The tenant's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The mode that the rule demands: `off`, `observe`, `enforce`.
    pub rule_mode: &'static str,
    /// Position of the rule in the policy, from 0; `None` = no rule.
    pub rule: Option<u32>,
    /// Name of the rule, or `rule N`; `None` = no rule.
    pub rule_name: Option<String>,
    /// `watch`, `one-sided`, `two-sided` or `tenant-ecn`.
    pub mode: &'static str,
    /// Why it is not enforced, or not from both sides: a name of
    /// [`REASON_NAMES`], `observe` or `no-ce`; `None` if it is.
    pub reason: Option<&'static str>,
    /// Odd packets of the tenant, of its peer or of strangers: words of [`NOTICES`].
    pub noticed: Vec<&'static str>,
    /// The packets of this flow are edited when the algorithm says so.
    pub enforced: bool,
    /// Congestion control in force; `None` without a rule.
    pub algorithm: Option<&'static str>,
    /// Its window in bytes.
    pub cwnd_bytes: u32,
    /// Its slow-start threshold in bytes; `None` = not found yet.
    pub ssthresh_bytes: Option<u32>,
    /// The receive window that the algorithm's comes to, in bytes, never above the peer's: what the
    /// tenant is shown next, or with `observe` would be; `None` where nothing is computed.
    pub allowed_window_bytes: Option<u64>,
    /// The receive window that the tenant was last shown, in bytes.
    pub enforced_window_bytes: u64,
    /// The receive window that the peer last advertised, in bytes.
    pub advertised_window_bytes: u64,
    /// Moving average of the fraction marked (or late), 0..=1; `None` where the algorithm has none.
    pub alpha: Option<f64>,
    /// Smoothed RTT in µs; `None` = no sample yet.
    pub srtt_us: Option<f64>,
    /// Smallest RTT in µs.
    pub min_rtt_us: Option<f64>,
    /// Largest segment that the peer takes, in bytes of payload.
    pub mss_bytes: u16,
    /// Sent and not yet acknowledged, in bytes.
    pub flight_bytes: u32,
    /// Payload of the tenant that was acknowledged.
    pub acked_bytes: u64,
    /// Of it, what met congestion marks, as the peer's host reports.
    pub marked_bytes: u64,
    /// Payload towards the tenant.
    pub received_bytes: u64,
    /// Losses inferred from duplicate ACKs.
    pub losses: u32,
    /// Losses inferred from silence.
    pub timeouts: u32,
    /// Segments dropped because they lay beyond every window that the tenant was shown.
    pub policed: u32,
    /// Time since its last packet, in ms.
    pub idle_ms: u64,
}

impl FlowRecord {
    /// From the kernel's state. `rules` is indexed by rule slot;
    /// `now_ns` is CLOCK_MONOTONIC.
    pub fn new(key: &FlowKey, flow: &Flow, rules: &[Rule], names: &Names, now_ns: u64) -> Self {
        let rule = rules.get(usize::from(flow.rule)).map(|rule| &rule.params);
        let mode = name(&MODE_NAMES, flow.mode);
        let rule_mode = rule.map_or(RULE_MODES[0], |rule| name(&RULE_MODES, rule.mode));
        let enforced = rule_mode == "enforce" && flow.mode != MODE_WATCH;
        let algorithm = rule.and_then(|rule| flow.algorithm(rule));
        let (interface, tenant) = names.of(key.ifindex);
        let allowed = rule
            .filter(|_| flow.mode != MODE_WATCH)
            .map(|params| flow.allowed_window_bytes(params, now_ns));
        Self {
            tenant,
            interface,
            ifindex: key.ifindex,
            vlan: (key.vlan != 0).then_some(key.vlan),
            local: socket(&key.local, key.local_port),
            remote: socket(&key.remote, key.remote_port),
            rule_mode,
            rule: rule.map(|rule| rule.rule_id.into()),
            rule_name: rule.map(|rule| rule_name(rule.rule_id.into(), &names.rules)),
            mode,
            reason: reason(flow, rule_mode),
            noticed: noticed(flow.marks),
            enforced,
            algorithm: algorithm.map(Algorithm::name),
            cwnd_bytes: flow.cc.cwnd,
            ssthresh_bytes: (flow.cc.ssthresh != u32::MAX).then_some(flow.cc.ssthresh),
            allowed_window_bytes: allowed.map(u64::from),
            enforced_window_bytes: flow.shown_window_bytes(),
            advertised_window_bytes: flow.peer_window_bytes(),
            alpha: algorithm
                .filter(|algorithm| algorithm.has_alpha())
                .map(|_| flow.cc.alpha()),
            srtt_us: microseconds(flow.srtt_ns),
            min_rtt_us: microseconds(flow.min_rtt_ns),
            mss_bytes: flow.mss,
            flight_bytes: flow.snd_nxt.wrapping_sub(flow.snd_una),
            acked_bytes: flow.bytes_acked,
            marked_bytes: flow.bytes_marked,
            received_bytes: flow.bytes_received,
            losses: flow.losses.into(),
            timeouts: flow.timeouts.into(),
            policed: u32::from(flow.policed),
            idle_ms: now_ns.saturating_sub(flow.seen_ns) / 1_000_000,
        }
    }

    /// Enforcement holds the tenant to less than its peer offers, or with `observe` would.
    pub fn is_limited(&self) -> bool {
        self.allowed_window_bytes
            .is_some_and(|allowed| allowed < self.advertised_window_bytes)
    }

    /// It had packets lately; others are pooled, forgotten, or ended by an RST that need not have
    /// been believed.
    pub fn is_active(&self) -> bool {
        self.idle_ms < ACTIVE_MS
    }

    /// Why the flow is in its mode, and what was noticed of it; empty where there is nothing to
    /// say.
    pub fn why(&self) -> String {
        let words: Vec<&str> = self
            .reason
            .into_iter()
            .chain(self.noticed.clone())
            .collect();
        words.join(",")
    }

    /// The rule only observes: what is computed shows nowhere but here.
    pub fn is_observed(&self) -> bool {
        self.reason == Some(OBSERVE)
    }

    /// Order of listings: by interface, then by ends.
    pub fn order(a: &Self, b: &Self) -> Ordering {
        (&a.interface, a.vlan, a.local, a.remote).cmp(&(&b.interface, b.vlan, b.local, b.remote))
    }
}

/// CLOCK_MONOTONIC in ns, the clock of the programs.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec, to where it is told.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn name(names: &[&'static str], index: u8) -> &'static str {
    names.get(usize::from(index)).copied().unwrap_or("unknown")
}

/// A flow that is only watched has a reason of its own; for the others the rule may be the reason.
fn reason(flow: &Flow, rule_mode: &str) -> Option<&'static str> {
    if flow.mode != MODE_WATCH && rule_mode == "observe" {
        return Some(OBSERVE);
    }
    match name(&REASON_NAMES, flow.reason) {
        "" if flow.marks & FLOW_UNMARKED != 0 => Some(NO_CE),
        "" => None,
        reason => Some(reason),
    }
}

fn noticed(marks: u16) -> Vec<&'static str> {
    let seen = |(mark, _): &&(u16, &str)| marks & mark != 0;
    NOTICES.iter().filter(seen).map(|(_, word)| *word).collect()
}

fn interface(index: u32, names: &BTreeMap<u32, String>) -> String {
    names
        .get(&index)
        .filter(|name| !name.is_empty())
        .cloned()
        .unwrap_or_else(|| format!("#{index}"))
}

fn rule_name(position: u32, names: &[String]) -> String {
    let name = names.get(position as usize).cloned();
    name.unwrap_or_else(|| format!("rule {}", u64::from(position) + 1))
}

/// Ports are kept in network order.
fn socket(address: &Addr, port: u16) -> SocketAddr {
    let address: IpAddr = address.to_ip();
    SocketAddr::new(address, u16::from_be(port))
}

fn microseconds(ns: u32) -> Option<f64> {
    (ns != 0).then(|| f64::from(ns) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::abi::{MODE_TWO_SIDED, RULE_ENFORCE, RULE_NONE, RULE_OBSERVE};

    fn key() -> FlowKey {
        FlowKey {
            local: "10.0.0.1".parse::<IpAddr>().unwrap().into(),
            remote: "fd00::2".parse::<IpAddr>().unwrap().into(),
            local_port: 40_000u16.to_be(),
            remote_port: 443u16.to_be(),
            ifindex: 7,
            vlan: 12,
            opener: 0,
        }
    }

    fn rule(mode: u8) -> Rule {
        let mut rule = Rule::default();
        rule.params.mode = mode;
        rule.params.algorithm = Algorithm::Dctcp.number();
        rule.params.one_sided = Algorithm::Cubic.number();
        rule.params.rule_id = 3;
        rule
    }

    fn record(flow: &Flow, rules: &[Rule]) -> FlowRecord {
        let names = Names {
            interfaces: BTreeMap::from([(7, "veth7".to_owned())]),
            ..Names::default()
        };
        FlowRecord::new(&key(), flow, rules, &names, 5_000_000_000)
    }

    #[test]
    fn keys_become_addresses() {
        let record = record(&Flow::default(), &[rule(RULE_ENFORCE)]);
        assert_eq!(record.local.to_string(), "10.0.0.1:40000");
        assert_eq!(record.remote.to_string(), "[fd00::2]:443");
        assert_eq!(
            (record.interface.as_str(), record.vlan),
            ("veth7", Some(12))
        );
    }

    #[test]
    fn tenants_and_rules_have_names_where_they_are_known() {
        let flow = Flow::default();
        let plain = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(plain.tenant, "veth7");
        assert_eq!(plain.rule_name.as_deref(), Some("rule 4"));
        let names = Names {
            tenants: BTreeMap::from([(7, "blue".to_owned())]),
            rules: ["a", "b", "c", "bulk"].map(str::to_owned).to_vec(),
            ..Names::default()
        };
        let named = FlowRecord::new(&key(), &flow, &[rule(RULE_ENFORCE)], &names, 0);
        assert_eq!(
            (named.tenant.as_str(), named.interface.as_str()),
            ("blue", "#7")
        );
        assert_eq!(named.rule_name.as_deref(), Some("bulk"));
    }

    #[test]
    fn the_algorithm_depends_on_who_enforces() {
        let mut flow = Flow {
            mode: MODE_TWO_SIDED,
            ..Flow::default()
        };
        let both = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (both.algorithm, both.enforced, both.rule),
            (Some("dctcp"), true, Some(3))
        );
        assert!(both.alpha.is_some() && both.reason.is_none());
        flow.mode = sluicegate_core::abi::MODE_ONE_SIDED;
        let alone = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!((alone.algorithm, alone.alpha), (Some("cubic"), None));
    }

    #[test]
    fn what_was_noticed_stands_beside_the_reason_of_the_mode() {
        let mut flow = Flow {
            mode: sluicegate_core::abi::MODE_ONE_SIDED,
            reason: 4,
            marks: FLOW_ODD_OPTIONS | FLOW_STRANGERS,
            ..Flow::default()
        };
        let alone = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(alone.noticed, ["odd-options", "strangers"]);
        assert_eq!(alone.why(), "peer-silent,odd-options,strangers");
        flow.mode = MODE_TWO_SIDED;
        flow.reason = 0;
        flow.marks = FLOW_UNMARKED;
        let unmarked = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (unmarked.why().as_str(), unmarked.noticed),
            ("no-ce", vec![])
        );
    }

    #[test]
    fn a_flow_that_is_not_enforced_says_why() {
        let mut flow = Flow {
            mode: MODE_TWO_SIDED,
            ..Flow::default()
        };
        let observed = record(&flow, &[rule(RULE_OBSERVE)]);
        assert_eq!(
            (observed.enforced, observed.reason),
            (false, Some("observe"))
        );
        // Observing, nothing is offered to the peer, so that the flow is kept as one-sided.
        flow.mode = sluicegate_core::abi::MODE_ONE_SIDED;
        flow.reason = 4;
        let alone = record(&flow, &[rule(RULE_OBSERVE)]);
        assert_eq!((alone.enforced, alone.reason), (false, Some("observe")));
        let silent = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (silent.enforced, silent.reason),
            (true, Some("peer-silent"))
        );
        flow.mode = MODE_WATCH;
        flow.reason = 1;
        let watched = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (watched.enforced, watched.reason),
            (false, Some("midstream"))
        );
        flow.rule = RULE_NONE;
        let free = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (free.rule_mode, free.algorithm, free.rule),
            ("off", None, None)
        );
    }

    #[test]
    fn windows_are_scaled_and_times_are_relative() {
        let flow = Flow {
            peer_window: 64,
            wire_window: 32,
            wscale: 10,
            srtt_ns: 1_500,
            seen_ns: 2_000_000_000,
            snd_una: u32::MAX,
            snd_nxt: 9,
            ..Flow::default()
        };
        let record = record(&flow, &[rule(RULE_ENFORCE)]);
        assert_eq!(
            (record.advertised_window_bytes, record.enforced_window_bytes),
            (65_536, 32_768)
        );
        assert_eq!((record.srtt_us, record.min_rtt_us), (Some(1.5), None));
        assert_eq!((record.idle_ms, record.flight_bytes), (3_000, 10));
    }

    #[test]
    fn what_this_build_does_not_know_is_no_panic() {
        let flow = Flow {
            mode: 200,
            reason: 200,
            rule: 63,
            wscale: 255,
            ..Flow::default()
        };
        let mut odd = rule(200);
        odd.params.algorithm = 200;
        odd.params.one_sided = 200;
        let record = record(&flow, &[odd; 64]);
        assert_eq!((record.mode, record.rule_mode), ("unknown", "unknown"));
        assert_eq!(record.algorithm, None);
    }
}
