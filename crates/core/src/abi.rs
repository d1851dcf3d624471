//! `repr(C)` mirrors of core's C structs. `c/native.c` asserts the same sizes and offsets.

use std::mem::{offset_of, size_of};

/// Most rules in one compiled policy.
pub const RULES_MAX: usize = 64;
/// Most trusted prefixes in one compiled policy.
pub const TRUSTED_MAX: usize = 32;
/// Largest enforced window in bytes: a 24-bit byte counter cannot wrap within one.
pub const WINDOW_MAX: u32 = 8 << 20;
/// 1.0 in fractions of 2^20.
pub const ONE_Q20: u32 = 1 << 20;
/// 1.0 in fractions of 1024.
pub const ONE_Q10: u32 = 1024;

/// [`Params::mode`]: not tracked.
pub const RULE_OFF: u8 = 0;
/// [`Params::mode`]: everything computed, nothing edited.
pub const RULE_OBSERVE: u8 = 1;
/// [`Params::mode`]: enforced.
pub const RULE_ENFORCE: u8 = 2;

/// [`Params::flags`]: drop data beyond the enforced edge.
pub const RULE_POLICE: u8 = 1;
/// [`Params::flags`]: hide MPTCP from the peer instead of passing the flow by.
pub const RULE_STRIP_MPTCP: u8 = 2;

/// `struct sg_params`: the constants that govern one flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Algorithm when both ends enforce (`enum sg_algorithm`).
    pub algorithm: u8,
    /// Algorithm when the peer does not enforce.
    pub one_sided: u8,
    /// [`RULE_OFF`], [`RULE_OBSERVE`] or [`RULE_ENFORCE`].
    pub mode: u8,
    /// [`RULE_POLICE`] | [`RULE_STRIP_MPTCP`].
    pub flags: u8,
    /// Smallest window in the peer's segments, 1 or 2.
    pub floor_mss: u8,
    /// Initial window in segments, 1..=64.
    pub init_segments: u8,
    /// Gain of alpha: g = 2^-g_shift, 1..=10.
    pub g_shift: u8,
    /// Zero.
    pub pad0: u8,
    /// DCTCP priority, 0..=1024.
    pub beta_q10: u32,
    /// Largest window in bytes, at most [`WINDOW_MAX`].
    pub window_cap: u32,
    /// `fixed`: the window in bytes.
    pub fixed_bytes: u32,
    /// `dcvegas`: queue threshold in bytes; 0 = from `k_delay_ns`.
    pub k_bytes: u32,
    /// `dcvegas`: threshold as queueing delay in ns.
    pub k_delay_ns: u32,
    /// `vegas`: lower backlog in segments.
    pub vegas_alpha: u8,
    /// `vegas`: upper backlog in segments.
    pub vegas_beta: u8,
    /// Zero.
    pub pad1: [u8; 2],
    /// Silence with data outstanding that counts as a timeout, at least, in µs.
    pub rto_min_us: u32,
    /// Position of the rule in the policy file, for reports.
    pub rule_id: u32,
    /// Zero.
    pub pad2: [u32; 6],
}

/// `struct sg_addr`: 128 bits in network order; IPv4 as `::ffff:a.b.c.d`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addr {
    /// Four words, each in network byte order in memory.
    pub word: [u32; 4],
}

impl From<std::net::IpAddr> for Addr {
    fn from(address: std::net::IpAddr) -> Self {
        let octets = match address {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        Self::from_octets(octets)
    }
}

impl Addr {
    /// From sixteen octets in network order.
    pub fn from_octets(octets: [u8; 16]) -> Self {
        let mut word = [0; 4];
        for (word, bytes) in word.iter_mut().zip(octets.chunks_exact(4)) {
            *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Self { word }
    }

    /// Sixteen octets in network order.
    pub fn octets(&self) -> [u8; 16] {
        let mut octets = [0; 16];
        for (word, bytes) in self.word.iter().zip(octets.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }

    /// The address as people write it; mapped IPv4 becomes IPv4 again.
    pub fn to_ip(&self) -> std::net::IpAddr {
        let v6 = std::net::Ipv6Addr::from(self.octets());
        match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => v6.into(),
        }
    }
}

/// `struct sg_rule`: the first whose four conditions all hold decides a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Prefix of the data sender (this host's tenant).
    pub source: Addr,
    /// Ones over the prefix.
    pub source_mask: Addr,
    /// Prefix of the data receiver.
    pub destination: Addr,
    /// Ones over the prefix.
    pub destination_mask: Addr,
    /// Inclusive, host order.
    pub source_port_low: u16,
    /// Inclusive, host order.
    pub source_port_high: u16,
    /// Inclusive, host order.
    pub destination_port_low: u16,
    /// Inclusive, host order.
    pub destination_port_high: u16,
    /// What governs the flow.
    pub params: Params,
}

/// `struct sg_prefix`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Address with all bits beyond the mask zero.
    pub address: Addr,
    /// Ones over the prefix.
    pub mask: Addr,
}

/// `struct sg_policy`: the whole of a policy as the data plane reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTable {
    /// Rules in use.
    pub rules_count: u32,
    /// Trusted prefixes in use.
    pub trusted_count: u32,
    /// Prefixes whose hosts also enforce.
    pub trusted: [Prefix; TRUSTED_MAX],
    /// Ordered rules.
    pub rules: [Rule; RULES_MAX],
}

impl Default for PolicyTable {
    fn default() -> Self {
        Self {
            rules_count: 0,
            trusted_count: 0,
            trusted: [Prefix::default(); TRUSTED_MAX],
            rules: [Rule::default(); RULES_MAX],
        }
    }
}

const _: () = {
    assert!(size_of::<Params>() == 64);
    assert!(offset_of!(Params, beta_q10) == 8);
    assert!(offset_of!(Params, vegas_alpha) == 28);
    assert!(offset_of!(Params, rto_min_us) == 32);
    assert!(offset_of!(Params, rule_id) == 36);
    assert!(size_of::<Rule>() == 136);
    assert!(size_of::<Prefix>() == 32);
    assert!(size_of::<PolicyTable>() == 8 + 32 * TRUSTED_MAX + 136 * RULES_MAX);
};
