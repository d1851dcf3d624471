//! Policies of one rule that covers everything.

use sluicegate_core::{
    abi::{
        Addr, ONE_Q10, Params, PolicyTable, Prefix, RULE_ENFORCE, RULE_POLICE, Rule, WINDOW_MAX,
    },
    cc::Algorithm,
};

/// The compiled defaults of a policy, with enforcement and policing.
pub fn params() -> Params {
    Params {
        algorithm: Algorithm::Dctcp.number(),
        one_sided: Algorithm::Cubic.number(),
        mode: RULE_ENFORCE,
        flags: RULE_POLICE,
        floor_mss: 2,
        init_segments: 10,
        g_shift: 4,
        fallback: Algorithm::Dctcp.number(),
        beta_q10: ONE_Q10,
        window_cap: WINDOW_MAX,
        fixed_bytes: 100_000,
        k_delay_ns: 25_000,
        vegas_alpha: 2,
        vegas_beta: 4,
        rto_min_us: 10_000,
        ..Params::default()
    }
}

/// One rule for everything; 10.0.0.0/8 and fd00::/8 are trusted.
pub fn policy() -> PolicyTable {
    policy_of(params())
}

/// As [`policy`], with these parameters.
pub fn policy_of(params: Params) -> PolicyTable {
    let mut table = PolicyTable {
        trusted_count: 2,
        ..PolicyTable::default()
    };
    let rule = Rule {
        source_port_high: u16::MAX,
        destination_port_high: u16::MAX,
        params,
        ..Rule::default()
    };
    table.add(0, rule);
    table.trusted[0] = prefix("10.0.0.0", 96 + 8);
    table.trusted[1] = prefix("fd00::", 8);
    table
}

/// `bits` count from the start of the 128-bit form.
pub fn prefix(address: &str, bits: u32) -> Prefix {
    let mask = u128::MAX << (128 - bits);
    Prefix {
        address: Addr::from(address.parse::<std::net::IpAddr>().unwrap()),
        mask: Addr::from_octets(mask.to_be_bytes()),
    }
}
