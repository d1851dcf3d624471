//! A policy after reading: ordered rules, and trusted prefixes.

use std::{fmt, net::IpAddr, ops::RangeInclusive, time::Duration};

use ipnet::IpNet;
use sluicegate_core::{abi, cc::Algorithm};

use crate::{bucket::Bucket, place::Where};

/// The operator's demands on flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Prefixes whose hosts also enforce; only from there is the enforcement option believed.
    pub trusted: Vec<IpNet>,
    /// The first rule that matches a flow decides; a flow that none matches is not tracked.
    pub rules: Vec<Rule>,
    /// Rates of what has no flow; of each class of packets the first bucket that has it, at each
    /// interface.
    pub buckets: Vec<Bucket>,
}

/// [`Rule::mss_bytes`]: from what every stack takes (RFC 9293 section 3.7.1) to a full IPv4 packet.
pub const MSS_RANGE: RangeInclusive<u16> = 536..=65495;

impl Policy {
    /// Names of its rules in order, `rule N` for those without.
    pub fn rule_names(&self) -> Vec<String> {
        let rules = self.rules.iter().zip(1..);
        let name = |(rule, number): (&Rule, u32)| {
            let name = rule.name.clone();
            name.unwrap_or_else(|| format!("rule {number}"))
        };
        rules.map(name).collect()
    }
}

/// One `[[rule]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name, for reports.
    pub name: Option<String>,
    /// Where the data comes from (this host's tenant); `None` = anywhere.
    pub source: Option<IpNet>,
    /// Where the data goes; `None` = anywhere.
    pub destination: Option<IpNet>,
    /// Which ports.
    pub ports: Ports,
    /// At which of the host's interfaces, and of which tenants.
    pub place: Where,
    /// With which VLAN id, 0 = untagged; `None` = any.
    pub vlan: Option<u16>,
    /// Whether flows are edited.
    pub mode: Mode,
    /// Algorithm between two enforcing hosts.
    pub algorithm: Algorithm,
    /// Algorithm when only this end enforces.
    pub one_sided: Algorithm,
    /// Algorithm where the path shows that the rule's does not suit it: it is far or noisy, or
    /// drops packets and never marks one.
    pub fallback: Algorithm,
    /// DCTCP priority, 0..=1; 1 is DCTCP.
    pub beta: f64,
    /// Whether `beta` also scales the growth of dctcp (ours), not the cut alone (the paper's).
    pub beta_growth: bool,
    /// Gain of alpha: g = 2^-gain_shift, 1..=10.
    pub gain_shift: u8,
    /// Largest window in bytes, 1..=[`abi::WINDOW_MAX`].
    pub window_cap_bytes: u32,
    /// Rate of one flow in bits per second, held by its window: window / RTT; `None` = no cap.
    pub rate_cap_bps: Option<u64>,
    /// Window of `fixed` in bytes.
    pub window_bytes: Option<u32>,
    /// Queueing that `dcvegas` takes for congestion; `None` = as much as the path itself has.
    pub k: Option<Threshold>,
    /// Lower and upper backlog of `vegas` in segments.
    pub vegas_backlog: (u8, u8),
    /// Constants of `swift`.
    pub swift: Swift,
    /// Largest MSS option in bytes that the tenant reads, [`MSS_RANGE`]; `None` = any. It bounds
    /// the segments that the tenant sends.
    pub mss_bytes: Option<u16>,
    /// Smallest window, 1 or 2, in segments of the MSS that the tenant reads.
    pub floor_mss: u8,
    /// Initial window in segments, 1..=64.
    pub initial_window_segments: u8,
    /// Silence with data outstanding that counts as a timeout, at least.
    pub rto_min: Duration,
    /// Drop data beyond the enforced edge.
    pub police: bool,
    /// The treatment of MPTCP.
    pub mptcp: Mptcp,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            name: None,
            source: None,
            destination: None,
            ports: Ports::default(),
            place: Where::default(),
            vlan: None,
            mode: Mode::Observe,
            algorithm: Algorithm::Dctcp,
            one_sided: Algorithm::Cubic,
            fallback: Algorithm::Cubic,
            beta: 1.0,
            beta_growth: true,
            gain_shift: 4,
            window_cap_bytes: abi::WINDOW_MAX,
            rate_cap_bps: None,
            window_bytes: None,
            // Tenants' own stacks have theirs in core's stack.h.
            k: None,
            vegas_backlog: (2, 4),
            swift: Swift::default(),
            mss_bytes: None,
            floor_mss: 2,
            initial_window_segments: 10,
            rto_min: Duration::from_millis(200),
            police: true,
            mptcp: Mptcp::Pass,
        }
    }
}

/// Inclusive range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// Lowest.
    pub low: u16,
    /// Highest, not below `low`.
    pub high: u16,
}

impl PortRange {
    /// Every port.
    pub const ANY: Self = Self {
        low: 0,
        high: u16::MAX,
    };

    /// Whether `port` lies within.
    pub fn contains(&self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (0, u16::MAX) => write!(f, "any"),
            (low, high) if low == high => write!(f, "{low}"),
            (low, high) => write!(f, "{low}-{high}"),
        }
    }
}

/// Which ports a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// `port`: at either end.
    Either(PortRange),
    /// `source_port` and `destination_port`: both must match.
    Both(PortRange, PortRange),
}

impl Default for Ports {
    fn default() -> Self {
        Self::Both(PortRange::ANY, PortRange::ANY)
    }
}

/// `mode` of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not tracked.
    Off,
    /// Everything computed and reported, nothing edited.
    Observe,
    /// Enforced.
    Enforce,
}

impl Mode {
    /// Names in the language.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("observe", Self::Observe),
        ("enforce", Self::Enforce),
        ("off", Self::Off),
    ];
}

/// `mptcp` of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mptcp {
    /// Flows that negotiate MPTCP are left alone and counted.
    Pass,
    /// The option is hidden from the peer, so that the flow falls back to TCP.
    Strip,
}

/// `k` of `dcvegas`: how much queueing is congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes of this flow in queues.
    Bytes(u32),
    /// The same in segments of the flow's MSS, 1..=255.
    Segments(u8),
    /// Queueing delay, below 4 s.
    Delay(Duration),
}

/// Constants of `swift`, by the paper's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Swift {
    /// Base target: the RTT at which the largest windows neither grow nor shrink, below 4 s;
    /// `None` = from the path's own RTT.
    pub target: Option<Duration>,
    /// fs_range: how much longer an RTT the smallest windows have, below 4 s.
    pub range: Duration,
    /// Segments that are added per RTT, above 0 to 16.
    pub ai: f64,
    /// How much of the relative excess of delay is given up, 0..=1.
    pub beta: f64,
    /// The largest part of a window that is given up at once, 0..=1.
    pub max_mdf: f64,
}

impl Default for Swift {
    fn default() -> Self {
        Self {
            target: None,
            range: Duration::from_micros(100),
            ai: 1.0,
            beta: 0.8,
            max_mdf: 0.5,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, value)| value == self);
        f.write_str(name.map_or("unknown", |(name, _)| name))
    }
}

impl Policy {
    /// One rule for every flow: `algorithm`, enforced, with every host trusted. What a scenario
    /// means by "enforced" when it says no more.
    pub fn enforce_all(algorithm: Algorithm, trusted: IpNet) -> Self {
        let rule = Rule {
            mode: Mode::Enforce,
            algorithm,
            ..Rule::default()
        };
        Self {
            trusted: vec![trusted],
            rules: vec![rule],
            buckets: Vec::new(),
        }
    }

    /// Whether `address` lies in a trusted prefix.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|prefix| prefix.contains(&address))
    }
}
