//! From [`Policy`] to the table that the data plane reads.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use sluicegate_core::abi::{self, Addr, Params, PolicyTable, Prefix};

use crate::rule::{Mode, Mptcp, Policy, PortRange, Ports, Rule, Threshold};

impl Policy {
    /// Compiles for the data plane. Total: reading has checked every bound; a policy built by hand
    /// with more rules or prefixes than the table holds loses the last ones.
    pub fn compile(&self) -> Box<PolicyTable> {
        let mut table = Box::<PolicyTable>::default();
        for (slot, prefix) in table.trusted.iter_mut().zip(&self.trusted) {
            *slot = compile_prefix(*prefix);
            table.trusted_count += 1;
        }
        let rules = self.rules.iter().zip(0..);
        let compiled = rules.flat_map(|(rule, id)| rule.compile(id));
        for (slot, rule) in table.rules.iter_mut().zip(compiled) {
            *slot = rule;
            table.rules_count += 1;
        }
        table
    }
}

impl Rule {
    /// How many rules of the data plane this one becomes.
    pub fn compiled_rules(&self) -> usize {
        match self.ports {
            Ports::Either(_) => 2,
            Ports::Both(..) => 1,
        }
    }

    /// The data plane matches both ends at once, so `port` at either end takes two of its rules.
    fn compile(&self, rule_id: u32) -> Vec<abi::Rule> {
        let params = self.params(rule_id);
        match self.ports {
            Ports::Both(source, destination) => vec![self.one(source, destination, params)],
            Ports::Either(range) => vec![
                self.one(range, PortRange::ANY, params),
                self.one(PortRange::ANY, range, params),
            ],
        }
    }

    fn one(
        &self,
        source_ports: PortRange,
        destination_ports: PortRange,
        params: Params,
    ) -> abi::Rule {
        let source = self.source.map(compile_prefix).unwrap_or_default();
        let destination = self.destination.map(compile_prefix).unwrap_or_default();
        abi::Rule {
            source: source.address,
            source_mask: source.mask,
            destination: destination.address,
            destination_mask: destination.mask,
            source_port_low: source_ports.low,
            source_port_high: source_ports.high,
            destination_port_low: destination_ports.low,
            destination_port_high: destination_ports.high,
            params,
        }
    }

    fn params(&self, rule_id: u32) -> Params {
        let (k_bytes, k_delay_ns) = match self.k {
            Threshold::Bytes(bytes) => (bytes, 0),
            Threshold::Delay(delay) => (0, saturate(delay.as_nanos())),
        };
        Params {
            algorithm: self.algorithm as u8,
            one_sided: self.one_sided as u8,
            mode: match self.mode {
                Mode::Off => abi::RULE_OFF,
                Mode::Observe => abi::RULE_OBSERVE,
                Mode::Enforce => abi::RULE_ENFORCE,
            },
            flags: self.flags(),
            floor_mss: self.floor_mss,
            init_segments: self.initial_window_segments,
            g_shift: self.gain_shift,
            beta_q10: (self.beta * f64::from(abi::ONE_Q10)).round() as u32,
            window_cap: self.window_cap_bytes,
            fixed_bytes: self.window_bytes.unwrap_or(0),
            k_bytes,
            k_delay_ns,
            vegas_alpha: self.vegas_backlog.0,
            vegas_beta: self.vegas_backlog.1,
            rto_min_us: saturate(self.rto_min.as_micros()),
            rule_id,
            ..Params::default()
        }
    }

    fn flags(&self) -> u8 {
        let police = if self.police { abi::RULE_POLICE } else { 0 };
        let strip = match self.mptcp {
            Mptcp::Strip => abi::RULE_STRIP_MPTCP,
            Mptcp::Pass => 0,
        };
        police | strip
    }
}

fn saturate(value: u128) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// IPv4 lies under `::ffff:0:0/96` (RFC 4291 section 2.5.5.2), so its masks start with 96 ones.
fn compile_prefix(prefix: IpNet) -> Prefix {
    let mapped_bits = if prefix.addr().is_ipv4() { 96 } else { 0 };
    let length = u32::from(prefix.prefix_len()) + mapped_bits;
    let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
    Prefix {
        address: prefix.network().into(),
        mask: Addr::from(IpAddr::V6(Ipv6Addr::from(mask))),
    }
}
