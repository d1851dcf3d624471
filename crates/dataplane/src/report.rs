//! What a switch that governs tells of its enforcement: what the kernel's programs leave in pinned
//! maps, for processes of the same build.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use sluicegate_core::abi::{ABI_VERSION, Bucket, COUNTER_NAMES, Flow, FlowKey, PolicyTable};

use crate::govern::Govern;

/// Everything at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`ABI_VERSION`]: the layout of what is hexadecimal.
    pub layout: u32,
    /// When, in ns of the switch's clock, which times in flows are of.
    pub at_ns: u64,
    /// The policy's file.
    pub policy: PathBuf,
    /// That of the text in force.
    pub fingerprint: String,
    /// Names of its rules.
    pub rules: Vec<String>,
    /// The policy in force.
    #[serde(with = "hex")]
    pub table: Vec<PolicyTable>,
    /// Keys of flows, and the flows in the same order.
    #[serde(with = "hex")]
    pub keys: Vec<FlowKey>,
    /// See `keys`.
    #[serde(with = "hex")]
    pub flows: Vec<Flow>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// The governed ports.
    pub ports: Vec<PortReport>,
    /// Most flows.
    pub flows_max: u32,
}

/// A governed port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortReport {
    /// The number by which flows refer to it.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// Flows that it has.
    pub flows: u32,
    /// Most that it may have; 0 = no limit.
    pub quota: u32,
    /// Its buckets, in the order of the policy.
    #[serde(with = "hex")]
    pub buckets: Vec<Bucket>,
}

impl Report {
    /// Of this enforcement.
    pub fn new(govern: &Govern, at_ns: u64) -> Self {
        let vnics = govern.vnics();
        let (keys, flows) = vnics.flows().unzip();
        let counters = COUNTER_NAMES.iter().zip(vnics.counters().0).skip(1);
        let ports = govern.places().map(|(_, place)| {
            let (flows, quota) = vnics.used(place.ifindex).unwrap_or_default();
            PortReport {
                ifindex: place.ifindex,
                name: place.name.clone(),
                tenant: place.tenant.clone(),
                flows,
                quota,
                buckets: place.buckets.clone(),
            }
        });
        Self {
            layout: ABI_VERSION,
            at_ns,
            policy: govern.governing.path.clone(),
            fingerprint: govern.governing.fingerprint.clone(),
            rules: govern.governing.policy.rule_names(),
            table: vec![**vnics.policy()],
            keys,
            flows,
            counters: counters
                .map(|(&name, value)| (name.to_owned(), value))
                .collect(),
            ports: ports.collect(),
            flows_max: vnics.limits().flows as u32,
        }
    }
}

impl Report {
    /// Of all threads of a switch as one; `None`: there is none.
    pub fn merge(mut reports: impl Iterator<Item = Self>) -> Option<Self> {
        let first = reports.next()?;
        Some(reports.fold(first, |mut sum, report| {
            sum.at_ns = sum.at_ns.max(report.at_ns);
            sum.keys.extend(report.keys);
            sum.flows.extend(report.flows);
            for (name, count) in report.counters {
                *sum.counters.entry(name).or_default() += count;
            }
            sum.ports.extend(report.ports);
            sum.flows_max += report.flows_max;
            sum
        }))
    }
}

/// Structures, one after the other, as hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use sluicegate_core::plain::{self, Plain};

    pub(super) fn serialize<T: Plain, S: Serializer>(
        values: &[T],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let bytes = values.iter().flat_map(plain::bytes);
        let digits = bytes.flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String = digits
            .map(|digit| char::from(DIGITS[usize::from(digit)]))
            .collect();
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, T: Plain, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<T>, D::Error> {
        let text = String::deserialize(from)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let bytes = text.as_bytes().chunks(2).map(|pair| match *pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        let bytes = bytes.ok_or_else(|| D::Error::custom("no hexadecimal digits"))?;
        let values = bytes.chunks(size_of::<T>()).map(plain::value);
        let values: Option<Vec<T>> = values.collect();
        values.ok_or_else(|| D::Error::custom("structures of another build"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sluicegate_core::abi::HashKey;
    use sluicegate_policy::{Policy, PolicyFile};

    use super::*;
    use crate::govern::Governing;

    #[test]
    fn a_report_survives_the_way_through_a_socket() {
        let text = "[[rule]]\nname = \"bulk\"\nalgorithm = \"dctcp\"\n";
        let file = PolicyFile {
            path: PathBuf::from("policy.toml"),
            text: text.to_owned(),
        };
        let policy = Policy::parse("policy.toml", text).expect("a policy");
        let mut govern = Govern::new(Governing::new(&file, policy), HashKey::FIXED);
        govern.attach(4, "vm", "red");
        let mut report = Report::new(&govern, 5);
        report.keys.push(FlowKey {
            ifindex: 5,
            ..FlowKey::default()
        });
        report.flows.push(Flow {
            bytes_acked: 99,
            ..Flow::default()
        });
        let text = serde_json::to_string(&report).expect("JSON");
        let again: Report = serde_json::from_str(&text).expect("the same");
        assert_eq!((&again.keys, &again.flows), (&report.keys, &report.flows));
        assert!(again.table == report.table && again.rules == ["bulk"]);
        assert_eq!(
            (again.ports[0].ifindex, again.ports[0].tenant.as_str()),
            (1, "red")
        );
        let cut = text.replacen("00", "0", 1);
        assert!(serde_json::from_str::<Report>(&cut).is_err());
    }
}
