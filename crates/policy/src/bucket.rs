//! `[[bucket]]`: rates of packets that have no flow to be governed by.

use sluicegate_config::units::{format_bytes, format_rate};
use sluicegate_core::abi;

use crate::place::Where;

/// One `[[bucket]]`: each interface where it holds has one of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Name, for reports.
    pub name: Option<String>,
    /// At which of the host's interfaces, and of which tenants.
    pub place: Where,
    /// The classes of packets that are charged to it.
    pub classes: Vec<Class>,
    /// Rate in bits per second of whole frames, at least 1000.
    pub rate_bps: u64,
    /// Bytes that may come at once.
    pub burst_bytes: u64,
    /// Drop what is beyond the rate, rather than only count it.
    pub enforce: bool,
}

/// A class of packets without a governed flow; the value is core's `enum sg_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// UDP.
    Udp = 0,
    /// ICMP, and ICMPv6 but neighbour discovery.
    Icmp = 1,
    /// ARP and IPv6 neighbour discovery.
    Neighbour = 2,
    /// Fragments of IP packets.
    Fragment = 3,
    /// IP options, extension headers, double tags, lengths that contradict each other.
    Opaque = 4,
    /// Data of TCP that no window holds: only watched, covered by no rule, on a SYN or an RST.
    WatchedTcp = 5,
    /// Every other protocol.
    Other = 6,
    /// TCP without data: ACKs, SYNs, FINs and RSTs, of governed flows, too.
    BareTcp = 7,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Udp,
        Self::Icmp,
        Self::Neighbour,
        Self::Fragment,
        Self::Opaque,
        Self::WatchedTcp,
        Self::Other,
        Self::BareTcp,
    ];

    /// `non-tcp`: all classes but those of TCP and neighbour discovery, without which no host
    /// reaches another.
    pub const NON_TCP: [Self; 5] = [
        Self::Udp,
        Self::Icmp,
        Self::Fragment,
        Self::Opaque,
        Self::Other,
    ];

    /// Name in the language.
    pub fn name(self) -> &'static str {
        abi::CLASS_NAMES[self as usize]
    }
}

impl Bucket {
    /// Name, or position, for people.
    pub fn label(&self, index: usize) -> String {
        match &self.name {
            Some(name) => format!("bucket {} \"{name}\"", index + 1),
            None => format!("bucket {}", index + 1),
        }
    }

    /// Rate, burst and what becomes of the rest, for people.
    pub fn describe(&self) -> String {
        let rest = if self.enforce {
            "what is beyond is dropped"
        } else {
            "what is beyond is only counted"
        };
        format!(
            "{} with bursts of {}, {rest}",
            format_rate(self.rate_bps),
            format_bytes(self.burst_bytes)
        )
    }

    /// The bucket as the data plane has it, full.
    pub fn compile(&self) -> abi::Bucket {
        let ps_per_byte = (8_000_000_000_000 / self.rate_bps.max(1)).max(1);
        abi::Bucket {
            ps_per_byte,
            burst_ns: self.burst_bytes.saturating_mul(ps_per_byte) / 1000,
            mode: if self.enforce {
                abi::BUCKET_ENFORCE
            } else {
                abi::BUCKET_OBSERVE
            },
            ..abi::Bucket::default()
        }
    }
}
