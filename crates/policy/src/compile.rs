//! From [`Policy`] to the table that the data plane reads.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use sluicegate_core::abi::{self, Addr, Params, PolicyTable, Prefix, Scope};

use crate::bucket::Class;
use crate::rule::{Mode, Mptcp, Policy, PortRange, Ports, Rule, Threshold};

impl Policy {
    /// Compiles for the data plane. Total: reading has checked every bound; a policy built by hand
    /// with more rules or prefixes than the table holds loses the last ones.
    pub fn compile(&self) -> Box<PolicyTable> {
        self.compile_after(&PolicyTable::default()).0
    }

    /// Compiles for a data plane that has `previous` in force, and says what became of its rules. A
    /// rule with the same conditions keeps its slot, so that flows which refer to it need not be
    /// touched; a rule that is gone keeps its slot unused, for the flows that still refer to it,
    /// until the policy after this one.
    pub fn compile_after(&self, previous: &PolicyTable) -> (Box<PolicyTable>, Vec<Change>) {
        let mut table = Box::<PolicyTable>::default();
        for (slot, prefix) in table.trusted.iter_mut().zip(&self.trusted) {
            *slot = compile_prefix(*prefix);
            table.trusted_count += 1;
        }
        let mut slots = Slots::of(previous);
        let rules = self.rules.iter().zip(0..);
        let compiled = rules.flat_map(|(rule, id)| rule.compile(id));
        let mut changes = Vec::new();
        for rule in compiled.take(abi::RULES_MAX) {
            let kept = slots.keep(&rule);
            let Some(slot) = kept.or_else(|| slots.take()) else {
                break;
            };
            changes.extend(Change::of(kept.map(|slot| &previous.slots[slot]), &rule));
            table.add(slot, rule);
        }
        for slot in slots.left {
            changes.push(Change::Removed(previous.slots[slot].params.rule_id.into()));
            table.slots[slot] = previous.slots[slot];
        }
        (table, changes)
    }

    /// The rules of a table compiled from this policy that hold at the interface called
    /// `interface`, behind which `tenant` is.
    pub fn scope(&self, table: &PolicyTable, interface: &str, tenant: &str) -> Scope {
        let mut scope = table.anywhere;
        for slot in table.order() {
            let rule = self
                .rules
                .get(usize::from(table.slots[slot].params.rule_id));
            if rule.is_some_and(|rule| rule.place.holds(interface, tenant)) {
                scope.insert(slot);
            }
        }
        scope
    }

    /// Whether a bucket is for packets of this class.
    pub fn charges(&self, class: Class) -> bool {
        let mut buckets = self.buckets.iter();
        buckets.any(|bucket| bucket.classes.contains(&class))
    }

    /// The bucket of each class of packets at such an interface: position in the policy, or
    /// [`abi::BUCKET_NONE`].
    pub fn buckets_at(&self, interface: &str, tenant: &str) -> [u8; abi::CLASS_NAMES.len()] {
        let mut found = [abi::BUCKET_NONE; abi::CLASS_NAMES.len()];
        for (index, bucket) in (0..).zip(&self.buckets) {
            if !bucket.place.holds(interface, tenant) {
                continue;
            }
            for class in &bucket.classes {
                let class = &mut found[*class as usize];
                if *class == abi::BUCKET_NONE {
                    *class = index;
                }
            }
        }
        found
    }
}

/// The fate of one rule of the data plane when a policy took another's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// New conditions: position of the rule in the file.
    Added(u32),
    /// The same conditions, other parameters: they reach its flows with their next packets.
    Altered(u32),
    /// No rule has these conditions any more: its flows are decided anew. Position in the policy
    /// before.
    Removed(u32),
}

impl Change {
    fn of(previous: Option<&abi::Rule>, rule: &abi::Rule) -> Option<Self> {
        let position = rule.params.rule_id.into();
        match previous {
            None => Some(Self::Added(position)),
            Some(previous) if governs_alike(&previous.params, &rule.params) => None,
            Some(_) => Some(Self::Altered(position)),
        }
    }
}

/// The position in the file is for reports only.
fn governs_alike(a: &Params, b: &Params) -> bool {
    let rule_id = a.rule_id;
    *a == Params { rule_id, ..*b }
}

fn same_conditions(a: &abi::Rule, b: &abi::Rule) -> bool {
    let params = a.params;
    *a == abi::Rule { params, ..*b }
}

/// Slots of the policy before, and those that are free.
struct Slots<'a> {
    previous: &'a PolicyTable,
    /// In use there and not claimed by a rule of the new policy.
    left: Vec<usize>,
    free: Vec<usize>,
}

impl<'a> Slots<'a> {
    fn of(previous: &'a PolicyTable) -> Self {
        let left: Vec<usize> = previous.order().collect();
        let free = (0..abi::SLOTS_MAX).filter(|slot| !left.contains(slot));
        // Those of rules that went with the policy before come last: few flows refer to them, if
        // any.
        let (blank, gone): (Vec<usize>, Vec<usize>) =
            free.partition(|slot| previous.slots[*slot] == abi::Rule::default());
        let free = gone
            .into_iter()
            .rev()
            .chain(blank.into_iter().rev())
            .collect();
        Self {
            previous,
            left,
            free,
        }
    }

    /// The slot of a rule with the same conditions.
    fn keep(&mut self, rule: &abi::Rule) -> Option<usize> {
        let same = |slot: &usize| same_conditions(&self.previous.slots[*slot], rule);
        let at = self.left.iter().position(same)?;
        Some(self.left.remove(at))
    }

    fn take(&mut self) -> Option<usize> {
        self.free.pop()
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
    fn compile(&self, rule_id: u16) -> Vec<abi::Rule> {
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
            vlan: self.vlan.unwrap_or(abi::VLAN_ANY),
            pad: 0,
            scope_id: self.place.id(),
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

    fn params(&self, rule_id: u16) -> Params {
        let (k_bytes, k_segments, k_delay_ns) = match self.k {
            None => (0, 0, 0),
            Some(Threshold::Bytes(bytes)) => (bytes, 0, 0),
            Some(Threshold::Segments(segments)) => (0, segments, 0),
            Some(Threshold::Delay(delay)) => (0, 0, saturate(delay.as_nanos())),
        };
        Params {
            algorithm: self.algorithm as u8,
            one_sided: self.one_sided as u8,
            fallback: self.fallback as u8,
            mode: match self.mode {
                Mode::Off => abi::RULE_OFF,
                Mode::Observe => abi::RULE_OBSERVE,
                Mode::Enforce => abi::RULE_ENFORCE,
            },
            flags: self.flags(),
            floor_mss: self.floor_mss,
            init_segments: self.initial_window_segments,
            g_shift: self.gain_shift,
            beta_q10: q10(self.beta),
            window_cap: self.window_cap_bytes,
            fixed_bytes: self.window_bytes.unwrap_or(0),
            k_bytes,
            k_segments,
            k_delay_ns,
            vegas_alpha: self.vegas_backlog.0,
            vegas_beta: self.vegas_backlog.1,
            rto_min_us: saturate(self.rto_min.as_micros()),
            rule_id,
            mss: self.mss_bytes.unwrap_or(0),
            rate_cap: self.rate_cap_bps.map_or(0, |bps| (bps / 8).max(1)),
            swift_target_ns: (self.swift.target).map_or(0, |target| saturate(target.as_nanos())),
            swift_range_ns: saturate(self.swift.range.as_nanos()),
            swift_ai_q10: q10(self.swift.ai) as u16,
            swift_beta_q10: q10(self.swift.beta) as u16,
            swift_mdf_q10: q10(self.swift.max_mdf) as u16,
            ..Params::default()
        }
    }

    fn flags(&self) -> u8 {
        let police = if self.police { abi::RULE_POLICE } else { 0 };
        let strip = match self.mptcp {
            Mptcp::Strip => abi::RULE_STRIP_MPTCP,
            Mptcp::Pass => 0,
        };
        let cut_only = if self.beta_growth {
            0
        } else {
            abi::RULE_CUT_ONLY
        };
        police | strip | cut_only
    }
}

/// In 1/1024.
fn q10(value: f64) -> u32 {
    (value * f64::from(abi::ONE_Q10)).round() as u32
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
