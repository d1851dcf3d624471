//! Forwarding by address: learning with ageing, VLANs, flooding.
//!
//! ```text
//!  ingress rules ──▶ (VLAN, source) is learned ──▶ (VLAN, destination) is looked up
//!                                                    known: its port · group, unknown: all members
//! ```
//!
//! A frame never leaves by the port it came by. The table is bounded for each port, so that a
//! tenant that invents addresses takes no room from others; its hash has a key.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
};

use sluicegate_core::number::{low_64, narrow};

use crate::reserved;

/// An Ethernet address; its first byte is the most significant of the six.
pub type Mac = [u8; 6];

/// VLANs are 0..=4094; 0 is that of ports without a VLAN.
pub const VLANS: u16 = 4095;

/// The VLANs of a port (IEEE 802.1Q, 6.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Frames have no tag here, and belong to this VLAN.
    Access(u16),
    /// Frames of these VLANs have tags. Those without a tag belong to `native`, if there is one.
    Trunk {
        /// The VLANs, in ascending order.
        tagged: Vec<u16>,
        /// The VLAN of frames without a tag.
        native: Option<u16>,
    },
}

impl Default for Membership {
    fn default() -> Self {
        Self::Access(0)
    }
}

impl Membership {
    /// The VLAN of a frame that came in with this tag, whose number 0 means only a priority.
    pub fn classify(&self, tag: Option<u16>) -> Option<u16> {
        match (self, tag.filter(|&number| number != 0)) {
            (Self::Access(vlan), None) => Some(*vlan),
            (Self::Access(_), Some(_)) => None,
            (Self::Trunk { native, .. }, None) => *native,
            (Self::Trunk { tagged, .. }, Some(number)) => {
                tagged.binary_search(&number).is_ok().then_some(number)
            }
        }
    }

    /// Whether frames of a VLAN leave by this port, and with a tag.
    pub fn egress(&self, vlan: u16) -> Option<Tagging> {
        match self {
            Self::Access(own) => (*own == vlan).then_some(Tagging::None),
            Self::Trunk { native, .. } if *native == Some(vlan) => Some(Tagging::None),
            Self::Trunk { tagged, .. } => {
                let member = tagged.binary_search(&vlan).is_ok();
                member.then_some(Tagging::Tag)
            }
        }
    }
}

/// Whether frames leave with a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// Without.
    None,
    /// With their VLAN's number.
    Tag,
}

/// The exits of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One port.
    To(u16),
    /// All ports of its VLAN but its own.
    Flood,
    /// None: the destination is behind the port that it came by.
    Back,
}

#[derive(Clone, Copy, Debug)]
struct Learned {
    port: u16,
    seen_ns: u64,
    /// When it was among the changes last.
    told_ns: u64,
}

/// The bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearningLimits {
    /// An address that was silent for so long is forgotten (IEEE 802.1Q: 300 s).
    pub ageing_ns: u64,
    /// Addresses that are learned at one port.
    pub per_port: u32,
}

impl Default for LearningLimits {
    fn default() -> Self {
        Self {
            ageing_ns: 300_000_000_000,
            per_port: 4096,
        }
    }
}

/// A hash with a key, of a number of 64 bits.
#[derive(Clone, Copy, Debug)]
struct Keyed([u64; 2]);

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher {
            key: *self,
            hash: 0,
        }
    }
}

struct KeyedHasher {
    key: Keyed,
    hash: u64,
}

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    /// Both halves of a product, so that every bit of the number moves every bit of the hash.
    fn write_u64(&mut self, number: u64) {
        let [mask, factor] = self.key.0;
        let product = u128::from(number ^ mask ^ self.hash) * u128::from(factor | 1);
        self.hash = low_64(product) ^ (product >> 64) as u64;
    }
}

/// What the switch knows of addresses.
#[derive(Debug)]
pub struct Learning {
    limits: LearningLimits,
    members: Vec<Option<Membership>>,
    table: HashMap<u64, Learned, Keyed>,
    /// By port, the addresses learned there.
    learned: Vec<u32>,
    /// By port, the source that it had last, and when the table was told of it.
    last: Vec<(u64, u64)>,
    swept_ns: u64,
    /// Addresses that were not learned since their port had too many.
    refused: u64,
    /// Addresses that were learned or have moved, by key and port, if somebody keeps them.
    changes: Vec<(u64, u16)>,
    watched: bool,
    /// After so long an address that is seen is among the changes again, ns.
    retell_ns: u64,
}

/// An address is looked up in the table at most once in so long while its port sends for it alone.
const REFRESH_NS: u64 = 1_000_000_000;

const NO_KEY: u64 = u64::MAX;

#[inline(always)]
fn key(vlan: u16, mac: Mac) -> u64 {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&vlan.to_be_bytes());
    bytes[2..].copy_from_slice(&mac);
    u64::from_be_bytes(bytes)
}

impl Learning {
    /// An empty table. Tenants must not know `hash_key`.
    pub fn new(limits: LearningLimits, hash_key: [u64; 2]) -> Self {
        Self {
            limits,
            members: Vec::new(),
            table: HashMap::with_hasher(Keyed(hash_key)),
            learned: Vec::new(),
            last: Vec::new(),
            swept_ns: 0,
            refused: 0,
            changes: Vec::new(),
            watched: false,
            retell_ns: u64::MAX,
        }
    }

    /// From now on [`Learning::changes`] grows with each address that is learned or moves.
    pub fn watch(&mut self) {
        self.watched = true;
    }

    /// As [`Learning::watch`]; and an address that goes on sending is among the changes again after
    /// an eighth of the time after which it ages, for tables that hear of it ([`Learning::hear`]).
    pub fn watch_for_others(&mut self) {
        self.watched = true;
        self.retell_ns = self.limits.ageing_ns / 8;
    }

    /// Another part of the switch has seen an address at one of its ports. What is known better
    /// stays; at the same time the higher port has it, so that all tables come to the same.
    pub fn hear(&mut self, key: u64, port: u16, seen_ns: u64) {
        let known = self.table.get(&key);
        let is_older = known.is_some_and(|known| (known.seen_ns, known.port) > (seen_ns, port));
        if !is_older {
            self.restore(key, port, seen_ns);
        }
    }

    /// Addresses that were learned or have moved, by key and port, for the caller to take away.
    #[inline]
    pub fn changes(&mut self) -> &mut Vec<(u64, u16)> {
        &mut self.changes
    }

    /// All addresses, by key and port.
    pub fn keys(&self) -> impl Iterator<Item = (u64, u16)> {
        self.table.iter().map(|(&key, learned)| (key, learned.port))
    }

    /// Learns an address by its key, if its port is there and has its VLAN.
    pub fn restore(&mut self, key: u64, port: u16, now_ns: u64) {
        let vlan = (key >> 48) as u16;
        let member = self.membership(port);
        if member.is_some_and(|member| member.egress(vlan).is_some()) {
            self.learn_anew(key, port, now_ns);
        }
    }

    /// Adds a port, or changes its VLANs; `None` removes it. Its addresses are forgotten.
    pub fn set_port(&mut self, port: u16, membership: Option<Membership>) {
        let index = usize::from(port);
        if self.members.len() <= index {
            self.members.resize(index + 1, None);
            self.learned.resize(index + 1, 0);
            self.last.resize(index + 1, (NO_KEY, 0));
        }
        self.members[index] = membership;
        self.forget(port);
    }

    /// Forgets the addresses of a port.
    pub fn forget(&mut self, port: u16) {
        self.table.retain(|_, learned| learned.port != port);
        self.learned[usize::from(port)] = 0;
        self.last.fill((NO_KEY, 0));
    }

    /// The VLANs of a port.
    pub fn membership(&self, port: u16) -> Option<&Membership> {
        self.members.get(usize::from(port))?.as_ref()
    }

    /// The ports by which a flooded frame leaves, with their tagging.
    pub fn flood(&self, vlan: u16, from: u16) -> impl Iterator<Item = (u16, Tagging)> {
        let members = self.members.iter().enumerate();
        members.filter_map(move |(index, member)| {
            let port = narrow::<u16>(index);
            let tagging = member.as_ref()?.egress(vlan)?;
            (port != from).then_some((port, tagging))
        })
    }

    /// Learns a frame's source and says where it goes.
    #[inline]
    pub fn route(&mut self, vlan: u16, from: u16, source: Mac, to: Mac, now_ns: u64) -> Route {
        if reserved::may_send(source) {
            self.learn(key(vlan, source), from, now_ns);
        }
        if to[0] & 1 != 0 {
            return Route::Flood;
        }
        match self.table.get(&key(vlan, to)) {
            Some(learned) if now_ns.saturating_sub(learned.seen_ns) > self.limits.ageing_ns => {
                Route::Flood
            }
            Some(learned) if learned.port == from => Route::Back,
            Some(learned) => Route::To(learned.port),
            None => Route::Flood,
        }
    }

    /// The exit of a frame whose [`Learning::route`] is [`Route::To`] and changes nothing here.
    #[inline]
    pub fn settled(&self, vlan: u16, from: u16, source: Mac, to: Mac, now_ns: u64) -> Option<u16> {
        let (last, told_ns) = self.last[usize::from(from)];
        let is_known = last == key(vlan, source) && now_ns.saturating_sub(told_ns) <= REFRESH_NS;
        if !is_known || to[0] & 1 != 0 {
            return None;
        }
        let learned = self.table.get(&key(vlan, to))?;
        let is_fresh = now_ns.saturating_sub(learned.seen_ns) <= self.limits.ageing_ns;
        (is_fresh && learned.port != from).then_some(learned.port)
    }

    #[inline]
    fn learn(&mut self, key: u64, port: u16, now_ns: u64) {
        let (last, told_ns) = self.last[usize::from(port)];
        if last != key || now_ns.saturating_sub(told_ns) > REFRESH_NS {
            self.learn_anew(key, port, now_ns);
        }
    }

    fn learn_anew(&mut self, key: u64, port: u16, now_ns: u64) {
        let count = &mut self.learned[usize::from(port)];
        let known = self.table.get_mut(&key);
        let moved = match known {
            Some(learned) if learned.port == port => {
                learned.seen_ns = now_ns;
                if now_ns.saturating_sub(learned.told_ns) > self.retell_ns {
                    learned.told_ns = now_ns;
                    self.changes.push((key, port));
                }
                None
            }
            _ if *count >= self.limits.per_port => {
                self.refused += 1;
                return;
            }
            _ => {
                *count += 1;
                if self.watched {
                    self.changes.push((key, port));
                }
                let learned = Learned {
                    port,
                    seen_ns: now_ns,
                    told_ns: now_ns,
                };
                self.table.insert(key, learned)
            }
        };
        if let Some(before) = moved {
            let index = usize::from(before.port);
            self.learned[index] -= 1;
            // The port that had the address must tell the table when it sends for it again.
            self.last[index] = (NO_KEY, 0);
        }
        self.last[usize::from(port)] = (key, now_ns);
    }

    /// Removes addresses that were silent for too long. To be called now and then.
    pub fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) < self.limits.ageing_ns / 8 {
            return;
        }
        self.swept_ns = now_ns;
        let (ageing_ns, counts) = (self.limits.ageing_ns, &mut self.learned);
        self.table.retain(|_, learned| {
            let keep = now_ns.saturating_sub(learned.seen_ns) <= ageing_ns;
            counts[usize::from(learned.port)] -= u32::from(!keep);
            keep
        });
    }

    /// Every address with its VLAN, port and the time of its last frame, in no order.
    pub fn addresses(&self) -> impl Iterator<Item = (u16, Mac, u16, u64)> {
        self.table.iter().map(|(&key, learned)| {
            let bytes = key.to_be_bytes();
            let mac = [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]];
            let vlan = u16::from_be_bytes([bytes[0], bytes[1]]);
            (vlan, mac, learned.port, learned.seen_ns)
        })
    }

    /// Addresses that were not learned since their port had too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];
    const ALL: Mac = [0xff; 6];
    const SECOND: u64 = 1_000_000_000;

    fn table(ports: u16, per_port: u32) -> Learning {
        let limits = LearningLimits {
            per_port,
            ..LearningLimits::default()
        };
        let mut table = Learning::new(limits, [11, 0x9e37_79b9_7f4a_7c15]);
        for port in 0..ports {
            table.set_port(port, Some(Membership::default()));
        }
        table
    }

    #[test]
    fn an_address_is_found_where_it_was_seen_last() {
        let mut table = table(3, 100);
        assert_eq!(table.route(0, 0, A, B, 0), Route::Flood);
        assert_eq!(table.route(0, 1, B, A, 1), Route::To(0));
        assert_eq!(table.route(0, 2, A, B, 2), Route::To(1));
        assert_eq!(table.route(0, 1, B, A, 3), Route::To(2));
        assert_eq!(table.route(0, 0, A, B, 4), Route::To(1));
        assert_eq!(table.route(0, 1, B, A, 5), Route::To(0));
    }

    #[test]
    fn a_frame_is_settled_that_changes_nothing() {
        let mut table = table(3, 100);
        assert_eq!(table.settled(0, 0, A, B, 0), None, "both are unknown");
        table.route(0, 0, A, B, 0);
        assert_eq!(table.settled(0, 0, A, B, 0), None, "flooded");
        table.route(0, 1, B, A, 0);
        assert_eq!(table.settled(0, 0, A, B, SECOND), Some(1));
        assert_eq!(table.settled(0, 2, A, B, 0), None, "A would move");
        assert_eq!(table.settled(0, 0, A, ALL, 0), None);
        assert_eq!(
            table.settled(0, 0, A, B, 2 * SECOND),
            None,
            "A is to be refreshed"
        );
        table.route(0, 0, A, ALL, 400 * SECOND);
        assert_eq!(
            table.settled(0, 0, A, B, 400 * SECOND),
            None,
            "B is too old"
        );
        table.route(0, 0, B, ALL, 400 * SECOND);
        assert_eq!(table.settled(0, 0, B, B, 400 * SECOND), None, "back");
    }

    #[test]
    fn no_frame_leaves_by_the_port_it_came_by() {
        let mut table = table(3, 100);
        table.route(0, 0, A, ALL, 0);
        assert_eq!(table.route(0, 0, B, A, 1), Route::Back);
        let exits: Vec<_> = table.flood(0, 0).map(|(port, _)| port).collect();
        assert_eq!(exits, [1, 2]);
    }

    #[test]
    fn silent_addresses_are_forgotten() {
        let mut table = table(2, 100);
        table.route(0, 0, A, ALL, 0);
        assert_eq!(table.route(0, 1, B, A, 300 * SECOND), Route::To(0));
        assert_eq!(table.route(0, 1, B, A, 301 * SECOND), Route::Flood);
        table.sweep(340 * SECOND);
        assert_eq!(table.addresses().count(), 1);
    }

    #[test]
    fn a_port_that_invents_addresses_takes_no_room_from_others() {
        let mut table = table(2, 8);
        for number in 0..100 {
            table.route(0, 0, [2, 9, 0, 0, 0, number], ALL, 0);
        }
        assert_eq!(table.addresses().count(), 8);
        assert_eq!(table.refused(), 92);
        table.route(0, 1, B, ALL, 0);
        assert_eq!(table.route(0, 0, A, B, 0), Route::To(1));
    }

    #[test]
    fn tables_that_hear_of_each_other_come_to_the_same() {
        let (mut one, mut other) = (table(2, 100), table(2, 100));
        one.watch_for_others();
        other.watch_for_others();
        // An address moves back and forth, and both tables hear late.
        one.route(0, 0, A, ALL, 10);
        other.route(0, 1, A, ALL, 20);
        let (first, then) = (one.changes()[0], other.changes()[0]);
        one.hear(then.0, then.1, 20);
        other.hear(first.0, first.1, 10);
        for table in [&mut one, &mut other] {
            let port = table.addresses().map(|it| it.2).collect::<Vec<_>>();
            assert_eq!(port, [1]);
            table.changes().clear();
        }
        // An address that goes on sending is told again, and not more often.
        for seconds in 1..=80 {
            other.route(0, 1, A, ALL, seconds * SECOND);
        }
        assert_eq!(other.changes().len(), 2, "at 38 s and 76 s");
        // Ports of other VLANs hear nothing.
        one.set_port(1, Some(Membership::Access(7)));
        one.hear(then.0, then.1, 90 * SECOND);
        assert_eq!(one.addresses().count(), 0);
    }

    #[test]
    fn vlans_are_apart() {
        let mut table = table(0, 100);
        let trunk = Membership::Trunk {
            tagged: vec![10, 20],
            native: None,
        };
        table.set_port(0, Some(Membership::Access(10)));
        table.set_port(1, Some(Membership::Access(20)));
        table.set_port(2, Some(trunk.clone()));
        assert_eq!(trunk.classify(Some(10)), Some(10));
        assert_eq!(trunk.classify(Some(30)), None);
        assert_eq!(trunk.classify(None), None);
        assert_eq!(Membership::Access(10).classify(Some(0)), Some(10));
        assert_eq!(Membership::Access(10).classify(Some(10)), None);
        let exits: Vec<_> = table.flood(10, 0).collect();
        assert_eq!(exits, [(2, Tagging::Tag)]);
        table.route(10, 0, A, ALL, 0);
        assert_eq!(table.route(20, 1, B, A, 0), Route::Flood);
        assert_eq!(table.route(10, 2, B, A, 0), Route::To(0));
    }

    #[test]
    fn a_port_that_goes_takes_its_addresses_along() {
        let mut table = table(2, 100);
        table.route(0, 0, A, ALL, 0);
        table.set_port(0, None);
        assert_eq!(table.route(0, 1, B, A, 0), Route::Flood);
        assert_eq!(table.flood(0, 1).count(), 0);
    }
}
