//! CONGA (Alizadeh et al., "CONGA: Distributed Congestion-Aware Load Balancing for Datacenters",
//! SIGCOMM 2014).
//!
//! A leaf is a switch with hosts. The first leaf of a packet chooses its uplink, and writes the tag
//! of the uplink into the packet. Each switch on the way raises the packet's congestion to that of
//! the link by which it leaves, so that the last leaf learns how congested each uplink of the first
//! leaf was. It tells so, for one uplink at a time, in packets that go back. A new flowlet takes
//! the uplink for which the greater of the own congestion and the one that was told is least. The
//! paper has two tiers. With more, switches above the leaves hash, and the congestion of an uplink
//! is that of the paths that its packets took.
//!
//! All that a packet carries is in its path value ([`Header`]), which the first leaf rewrites.

use sluicegate_core::number::{low_8, low_16, narrow};

use crate::{
    graph::{Graph, HostId, Node, NodeId, PortId, SwitchId},
    port::PS_PER_S,
};

/// The most leaves, and the most links of a leaf to other switches: what a header has bits for.
pub const LEAVES: usize = 1 << 10;
/// See [`LEAVES`].
pub const UPLINKS: usize = 1 << 5;

/// The estimator of a link's rate: each period it loses 1/8, so that it stands for the last 160 us,
/// as in the paper.
const PERIOD_PS: u64 = 20_000_000;
const DECAY: u32 = 3;
const WINDOW_PS: u64 = PERIOD_PS << DECAY;

/// Congestion has three bits (Q of the paper).
const MOST: u64 = 7;

/// A congestion that nothing has confirmed for so long decays: 10 ms, as in the paper. How, the
/// paper leaves open: by one for each further millisecond.
const AGE_PS: u64 = 10_000_000_000;
const STEP_PS: u64 = 1_000_000_000;

/// The path value of a packet behind its first leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The greatest congestion of a link on its way.
    pub congestion: u8,
    /// The first leaf, and the tag of its uplink.
    pub leaf: u16,
    /// See `leaf`.
    pub tag: u8,
    /// Feedback for the leaf at the other end: the tag of one of its uplinks, and its congestion.
    pub told_tag: u8,
    /// See `told_tag`.
    pub told: u8,
    /// A part of the hash of its connection.
    pub hash: u8,
}

impl Header {
    /// What switches that hash may use.
    pub const HASHED: u32 = 0xffff;

    /// Where the congestion is in a path value.
    const CONGESTION_SHIFT: u32 = 29;

    /// A path value whose congestion is this one, if it was less.
    #[inline(always)]
    pub fn raised(value: u32, congestion: u8) -> u32 {
        let rest = value & ((1 << Self::CONGESTION_SHIFT) - 1);
        let most = (value >> Self::CONGESTION_SHIFT).max(congestion.into());
        rest | most << Self::CONGESTION_SHIFT
    }

    /// As a path value.
    #[inline]
    pub fn value(self) -> u32 {
        u32::from(self.congestion) << Self::CONGESTION_SHIFT
            | u32::from(self.told) << 26
            | u32::from(self.tag) << 21
            | u32::from(self.told_tag) << 16
            | u32::from(self.leaf) << 6
            | u32::from(self.hash & 0x3f)
    }

    /// Of a path value.
    #[inline]
    pub fn of(value: u32) -> Self {
        Self {
            congestion: (value >> Self::CONGESTION_SHIFT) as u8,
            told: (value >> 26) as u8 & 7,
            tag: low_8((value >> 21).into()) & 0x1f,
            told_tag: low_8((value >> 16).into()) & 0x1f,
            leaf: low_16((value >> 6).into()) & 0x3ff,
            hash: low_8(value.into()) & 0x3f,
        }
    }
}

/// The leaves of a graph, numbered.
#[derive(Clone, Debug)]
pub struct Leaves {
    by_host: Vec<u16>,
    by_switch: Vec<Option<u16>>,
    /// By port; 0 of ports that are no uplinks.
    tags: Vec<u8>,
}

impl Leaves {
    /// `None` if there are more than [`LEAVES`], or one has more than [`UPLINKS`].
    pub fn of(graph: &Graph) -> Option<Self> {
        let mut leaves = Self {
            by_host: vec![0; graph.hosts() as usize],
            by_switch: vec![None; graph.switches() as usize],
            tags: vec![0; graph.ports().count()],
        };
        let is_host = |far: &NodeId| matches!(graph.node(*far), Node::Host(_));
        let mut count = 0;
        for switch in SwitchId::first(graph.switches() as usize) {
            let adjacent = graph.adjacent(graph.number(switch));
            // Spines may have any number of links: what is written here is of leaves.
            if !adjacent.iter().any(|(_, far)| is_host(far)) {
                continue;
            }
            let uplinks = adjacent.iter().filter(|(_, far)| !is_host(far)).count();
            if count == LEAVES || uplinks > UPLINKS {
                return None;
            }
            let leaf = narrow::<u16>(count);
            leaves.by_switch[switch.index()] = Some(leaf);
            count += 1;
            let mut tag = 0;
            for &(port, far) in adjacent {
                match graph.node(far) {
                    Node::Host(host) => leaves.by_host[host.index()] = leaf,
                    Node::Switch(_) => {
                        leaves.tags[port.index()] = tag;
                        tag += 1;
                    }
                }
            }
        }
        Some(leaves)
    }

    /// The leaf of a host.
    #[inline]
    pub fn of_host(&self, host: HostId) -> u16 {
        self.by_host[host.index()]
    }

    /// The number of a switch as a leaf.
    #[inline]
    pub fn number(&self, switch: SwitchId) -> Option<u16> {
        self.by_switch[switch.index()]
    }

    /// The tag of a leaf's uplink.
    #[inline]
    pub fn tag(&self, port: PortId) -> u8 {
        self.tags[port.index()]
    }
}

/// The rate of a link, estimated (DRE of the paper): bytes of late.
#[derive(Clone, Copy, Debug, Default)]
struct Estimator {
    bytes: u64,
    period: u64,
    /// The link's rate at the last look, in bits per second, and the bytes that it carries in
    /// [`WINDOW_PS`].
    rate_bps: u64,
    whole_bytes: u64,
}

impl Estimator {
    #[inline(always)]
    fn decay(&mut self, now_ps: u64) {
        let period = now_ps / PERIOD_PS;
        if period != self.period {
            self.decay_until(period);
        }
    }

    fn decay_until(&mut self, period: u64) {
        // After so many periods nothing is left of any rate.
        if period - self.period > 256 {
            self.bytes = 0;
        }
        for _ in self.period..period {
            if self.bytes == 0 {
                break;
            }
            self.bytes -= self.bytes.div_ceil(1 << DECAY);
        }
        self.period = period;
    }

    /// How much of the link's rate is used: 0..=7 eighths of it, or more.
    #[inline(always)]
    fn congestion(&mut self, rate_bps: u64) -> u8 {
        if self.rate_bps != rate_bps {
            self.set_rate(rate_bps);
        }
        match 8 * self.bytes {
            least if least < self.whole_bytes => 0,
            bytes => self.part_of_whole(bytes),
        }
    }

    #[inline(never)]
    fn part_of_whole(&self, bytes: u64) -> u8 {
        let part = bytes.checked_div(self.whole_bytes);
        narrow::<u8>(part.map_or(MOST, |part| part.min(MOST)))
    }

    #[cold]
    fn set_rate(&mut self, rate_bps: u64) {
        let whole = u128::from(rate_bps) * u128::from(WINDOW_PS) / u128::from(8 * PS_PER_S);
        self.whole_bytes = u64::try_from(whole).unwrap_or(u64::MAX).max(1);
        self.rate_bps = rate_bps;
    }
}

/// A congestion and when it was last confirmed.
#[derive(Clone, Copy, Debug, Default)]
struct Metric {
    value: u8,
    at_ps: u64,
}

impl Metric {
    fn set(&mut self, value: u8, now_ps: u64) {
        (self.value, self.at_ps) = (value, now_ps);
    }

    #[inline]
    fn aged(self, now_ps: u64) -> u8 {
        if self.value == 0 {
            return 0;
        }
        let late_ps = (now_ps - self.at_ps).saturating_sub(AGE_PS);
        self.value
            .saturating_sub(late_ps.div_ceil(STEP_PS).min(MOST) as u8)
    }
}

/// What a leaf knows of another one.
#[derive(Clone, Debug)]
struct Peer {
    /// By own uplink: the congestion on the way to the peer (the to-leaf table).
    to: [Metric; UPLINKS],
    /// By uplink of the peer: that on the way from it (the from-leaf table).
    from: [Metric; UPLINKS],
    /// Bits of `from` that have changed since they were told.
    changed: u32,
    /// How many uplinks of the peer are known.
    known: u8,
    /// The one that is told next, unless another has changed.
    next: u8,
}

impl Peer {
    fn new() -> Self {
        Self {
            to: [Metric::default(); UPLINKS],
            from: [Metric::default(); UPLINKS],
            changed: 0,
            known: 0,
            next: 0,
        }
    }

    /// A packet has arrived from the peer.
    fn arrived(&mut self, header: Header, now_ps: u64) {
        let from = &mut self.from[usize::from(header.tag)];
        if from.value != header.congestion {
            self.changed |= 1 << header.tag;
        }
        from.set(header.congestion, now_ps);
        self.known = self.known.max(header.tag + 1);
        self.to[usize::from(header.told_tag)].set(header.told, now_ps);
    }

    /// The feedback of the next packet to the peer: its uplinks take turns, those that have changed
    /// first.
    fn tell(&mut self, now_ps: u64) -> (u8, u8) {
        if self.known == 0 {
            return (0, 0);
        }
        // Only known ones have changed. Those from the next one on come before those in front.
        let behind = self.changed >> self.next << self.next;
        let tag = match (behind, self.changed) {
            (0, 0) => self.next,
            (0, before) => narrow::<u8>(before.trailing_zeros()),
            (behind, _) => narrow::<u8>(behind.trailing_zeros()),
        };
        self.changed &= !(1 << tag);
        self.next = if tag + 1 == self.known { 0 } else { tag + 1 };
        (tag, self.from[usize::from(tag)].aged(now_ps))
    }
}

/// The state of a part's switches.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// By port.
    links: Vec<Estimator>,
    /// By leaf and by the other leaf. They grow with their use.
    peers: Vec<Vec<Option<Box<Peer>>>>,
}

impl Tables {
    #[inline(always)]
    fn link(&mut self, port: PortId, now_ps: u64) -> &mut Estimator {
        if port.index() >= self.links.len() {
            self.grow(port);
        }
        let link = &mut self.links[port.index()];
        link.decay(now_ps);
        link
    }

    #[cold]
    fn grow(&mut self, port: PortId) {
        self.links.resize(port.index() + 1, Estimator::default());
    }

    #[inline]
    fn peer(&mut self, leaf: u16, other: u16) -> &mut Peer {
        let [leaf, other] = [leaf, other].map(usize::from);
        let known = self.peers.get(leaf).and_then(|peers| peers.get(other));
        match known {
            Some(Some(_)) => {}
            _ => self.meet(leaf, other),
        }
        match &mut self.peers[leaf][other] {
            Some(peer) => peer,
            None => unreachable!("it has been met"),
        }
    }

    #[cold]
    fn meet(&mut self, leaf: usize, other: usize) {
        if self.peers.len() <= leaf {
            self.peers.resize_with(leaf + 1, Vec::new);
        }
        let peers = &mut self.peers[leaf];
        if peers.len() <= other {
            peers.resize_with(other + 1, || None);
        }
        peers[other] = Some(Box::new(Peer::new()));
    }

    /// A packet arrives at its last leaf.
    #[inline]
    pub fn arrived(&mut self, leaf: u16, header: Header, now_ps: u64) {
        self.peer(leaf, header.leaf).arrived(header, now_ps);
    }

    /// The congestion of an uplink of a leaf for packets to another: the greater of what it
    /// measures and what the other has told.
    pub fn of_uplink(
        &mut self,
        (leaf, other): (u16, u16),
        (port, tag): (PortId, u8),
        rate_bps: u64,
        now_ps: u64,
    ) -> u8 {
        let own = self.link(port, now_ps).congestion(rate_bps);
        own.max(self.peer(leaf, other).to[usize::from(tag)].aged(now_ps))
    }

    /// The feedback of the next packet from one leaf to another: a tag and a congestion.
    #[inline]
    pub fn tell(&mut self, leaf: u16, other: u16, now_ps: u64) -> (u8, u8) {
        self.peer(leaf, other).tell(now_ps)
    }

    /// A packet of this length leaves by a port. Returns the congestion of the link.
    #[inline(always)]
    pub fn sent(&mut self, port: PortId, bytes: u32, rate_bps: u64, now_ps: u64) -> u8 {
        let link = self.link(port, now_ps);
        link.bytes += u64::from(bytes);
        link.congestion(rate_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    #[test]
    fn a_header_is_a_path_value() {
        let header = Header {
            congestion: 5,
            leaf: 1023,
            tag: 31,
            told_tag: 17,
            told: 3,
            hash: 42,
        };
        assert_eq!(Header::of(header.value()), header);
        assert_eq!(Header::of(0), Header::default());
        let other = Header {
            congestion: 0,
            tag: 0,
            told_tag: 0,
            told: 0,
            ..header
        };
        assert_eq!(
            header.value() & Header::HASHED,
            other.value() & Header::HASHED
        );
    }

    #[test]
    fn the_estimator_follows_the_rate_of_a_link() {
        // Packets of 1000 bytes at so many eighths of 10 Gb/s.
        for (eighths, least, most) in [(2, 1, 2), (4, 3, 4), (7, 6, 7), (16, 7, 7)] {
            let mut tables = Tables::default();
            let gap_ps = 800_000 * 8 / eighths;
            let mut congestion = 0;
            for number in 0..2_000 {
                congestion = tables.sent(PortId(3), 1_000, 10_000_000_000, number * gap_ps);
            }
            assert!(
                (least..=most).contains(&congestion),
                "{eighths}: {congestion}"
            );
            // A link of twice the rate is half as congested.
            let now_ps = 1_999 * gap_ps;
            let half = tables.link(PortId(3), now_ps).congestion(20_000_000_000);
            assert!(half <= congestion.div_ceil(2) || eighths == 16, "{half}");
            assert_eq!(
                tables
                    .link(PortId(3), now_ps + MS)
                    .congestion(10_000_000_000),
                0
            );
        }
    }

    #[test]
    fn feedback_takes_turns_and_tells_changes_first() {
        let mut peer = Peer::new();
        assert_eq!(peer.tell(0), (0, 0));
        let arrive = |peer: &mut Peer, tag, congestion| {
            let header = Header {
                tag,
                congestion,
                ..Header::default()
            };
            peer.arrived(header, 0);
        };
        arrive(&mut peer, 2, 5);
        assert_eq!(peer.tell(0), (2, 5), "it has changed");
        assert_eq!([0, 1, 2, 0].map(|_| peer.tell(0).0), [0, 1, 2, 0]);
        arrive(&mut peer, 0, 7);
        arrive(&mut peer, 2, 5);
        assert_eq!(peer.tell(0), (0, 7));
        assert_eq!(peer.tell(0), (1, 0), "the other is as it was");
    }

    #[test]
    fn congestion_is_the_greater_of_both_and_ages() {
        let mut tables = Tables::default();
        let header = Header {
            leaf: 1,
            told_tag: 4,
            told: 6,
            ..Header::default()
        };
        tables.arrived(0, header, 0);
        let mut of = |other, tag, now_ps| {
            let port = (PortId(u32::from(tag)), tag);
            tables.of_uplink((0, other), port, 1_000_000_000, now_ps)
        };
        assert_eq!([of(1, 4, 0), of(1, 3, 0), of(2, 4, 0)], [6, 0, 0]);
        assert_eq!(
            [of(1, 4, 10 * MS), of(1, 4, 10 * MS + 1), of(1, 4, 12 * MS)],
            [6, 5, 4]
        );
        assert_eq!(of(1, 4, 16 * MS), 0);
        tables.sent(PortId(4), 20_000, 1_000_000_000, 20 * MS);
        let own = tables.of_uplink((0, 1), (PortId(4), 4), 1_000_000_000, 20 * MS);
        assert_eq!(own, 7);
    }

    #[test]
    fn leaves_have_hosts() {
        let leaves = Leaves::of(&Graph::xgft(&[2, 2, 2], &[1, 2, 2]).unwrap()).unwrap();
        let found: Vec<u16> = HostId::first(8).map(|host| leaves.of_host(host)).collect();
        assert_eq!(found, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(leaves.by_switch.iter().flatten().count(), 4);
        assert!(Leaves::of(&Graph::xgft(&[1, 2], &[1, 33]).unwrap()).is_none());
        // Spines have as many links as there are leaves.
        let of_tree = |leaves| Leaves::of(&Graph::xgft(&[1, leaves], &[1, 2]).unwrap());
        let most = of_tree(1024).unwrap();
        assert_eq!(most.of_host(HostId(1023)), 1023);
        assert!(of_tree(1025).is_none() && of_tree(70_000).is_none());
    }
}
