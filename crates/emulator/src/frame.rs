//! Ethernet frames in memory, as far as a network looks at them, and what stands for one in the
//! fabric.

use sluicegate_fabric::{
    Frame,
    cee::{CONTROL_BYTES, CeeFrame, Notification, QueueKey},
    graph::HostId,
    random::mix,
};

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// Destination, source, type.
const ETHERNET_BYTES: usize = 14;
const MAC_BYTES: usize = 6;
const TAG_BYTES: usize = 4;
/// Tags before the type of the payload: a provider's and a customer's.
const TAGS_MAX: usize = 2;

const TAG: u16 = 0x8100;
const PROVIDER_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Headers of IPv6 and TCP.
const HEADERS_BYTES: usize = 60;

/// Codepoint CE of RFC 3168.
const CE: u8 = 3;

/// What a network reads of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Where it goes.
    pub destination: Mac,
    /// The priority of its outermost tag.
    pub priority: Option<u8>,
    /// Its length without tags.
    pub untagged_bytes: u32,
    /// Its ECN codepoint; 0 where it is no IP.
    pub ecn: u8,
}

impl Headers {
    /// Reads the headers of a frame; `None`: it has none. Whatever is wrong with its IP header, it
    /// is then a frame without ECN.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let destination = bytes.get(..6)?.try_into().ok()?;
        let mut kind = half(bytes, ETHERNET_BYTES - 2)?;
        let (mut priority, mut tags) = (None, 0);
        while matches!(kind, TAG | PROVIDER_TAG) && tags < TAGS_MAX {
            let tag = ETHERNET_BYTES + tags * TAG_BYTES;
            priority = priority.or(Some((half(bytes, tag)? >> 13) as u8));
            kind = half(bytes, tag + 2)?;
            tags += 1;
        }
        let ip = bytes.get(ETHERNET_BYTES + tags * TAG_BYTES..)?;
        Some(Self {
            destination,
            priority,
            untagged_bytes: u32::try_from(bytes.len() - tags * TAG_BYTES).ok()?,
            ecn: Ip::of(kind, ip).map_or(0, |it| it.ecn(ip)),
        })
    }

    /// Whether a frame goes to several hosts.
    pub fn is_group(&self) -> bool {
        self.destination[0] & 1 != 0
    }
}

/// A hash of the addresses, the protocol and the ports of a frame's connection. All fragments of a
/// datagram have one; of a frame that is no IP it is that of its Ethernet addresses.
pub fn connection(bytes: &[u8]) -> u32 {
    let (kind, ip) = payload(bytes);
    let version = Ip::of(kind, ip);
    let Some(version) = version else {
        return hash([bytes.get(..2 * MAC_BYTES).unwrap_or(bytes)]);
    };
    let (addresses, protocol, transport) = version.ends(ip);
    let has_ports = matches!(protocol, TCP | UDP) && !version.is_fragment(ip);
    let ports = ip.get(transport..transport + 4).filter(|_| has_ports);
    hash([addresses, &[protocol], ports.unwrap_or_default()])
}

/// A hash of a frame's headers, which tells packets of one connection apart.
pub fn header(bytes: &[u8]) -> u32 {
    let (_, packet) = payload(bytes);
    hash([&packet[..packet.len().min(HEADERS_BYTES)]])
}

fn hash<const N: usize>(parts: [&[u8]; N]) -> u32 {
    let words = parts.into_iter().flat_map(|part| part.chunks(8));
    let all = words.fold(0, |sum, word| {
        let mut eight = [0; 8];
        eight[..word.len()].copy_from_slice(word);
        mix(sum ^ mix(u64::from_be_bytes(eight)))
    });
    (all >> 32) as u32
}

/// The type of what is behind a frame's tags, and what is there.
fn payload(bytes: &[u8]) -> (u16, &[u8]) {
    let (kind, at) = behind_tags(bytes);
    (kind, bytes.get(at..).unwrap_or_default())
}

/// The type of what is behind a frame's tags, and where that begins.
fn behind_tags(bytes: &[u8]) -> (u16, usize) {
    let mut at = ETHERNET_BYTES;
    let mut kind = half(bytes, at - 2);
    while matches!(kind, Some(TAG | PROVIDER_TAG)) && at < ETHERNET_BYTES + TAGS_MAX * TAG_BYTES {
        kind = half(bytes, at + 2);
        at += TAG_BYTES;
    }
    (kind.unwrap_or(0), at)
}

/// Sets CE in the IP header of a frame. A frame without ECN stays as it is.
pub fn mark(bytes: &mut [u8]) {
    let (kind, at) = behind_tags(bytes);
    let Some(ip) = bytes.get_mut(at..) else {
        return;
    };
    let Some(version) = Ip::of(kind, ip) else {
        return;
    };
    if version.ecn(ip) != 0 {
        version.mark(ip);
    }
}

/// The version of a header that is long enough for what is done with it.
#[derive(Clone, Copy)]
enum Ip {
    V4,
    V6,
}

impl Ip {
    fn of(kind: u16, ip: &[u8]) -> Option<Self> {
        let version = ip.first()? >> 4;
        match (kind, version) {
            (IPV4, 4) if ip.len() >= 20 => Some(Self::V4),
            (IPV6, 6) if ip.len() >= 40 => Some(Self::V6),
            _ => None,
        }
    }

    fn ecn(self, ip: &[u8]) -> u8 {
        match self {
            Self::V4 => ip[1] & 3,
            Self::V6 => ip[1] >> 4 & 3,
        }
    }

    /// Addresses, protocol, and where the header of that begins.
    fn ends(self, ip: &[u8]) -> (&[u8], u8, usize) {
        match self {
            Self::V4 => (&ip[12..20], ip[9], usize::from(ip[0] & 15) * 4),
            Self::V6 => (&ip[8..40], ip[6], 40),
        }
    }

    /// Whether it is a part of a datagram; of IPv6 the header says another protocol then.
    fn is_fragment(self, ip: &[u8]) -> bool {
        const MORE_AND_OFFSET: u16 = 0x3fff;
        match self {
            Self::V4 => u16::from_be_bytes([ip[6], ip[7]]) & MORE_AND_OFFSET != 0,
            Self::V6 => false,
        }
    }

    fn mark(self, ip: &mut [u8]) {
        match self {
            Self::V6 => ip[1] |= CE << 4,
            Self::V4 => {
                let old = u16::from_be_bytes([ip[0], ip[1]]);
                ip[1] |= CE;
                let new = u16::from_be_bytes([ip[0], ip[1]]);
                let sum = u16::from_be_bytes([ip[10], ip[11]]);
                ip[10..12].copy_from_slice(&updated(sum, old, new).to_be_bytes());
            }
        }
    }
}

/// RFC 1624, equation 3.
fn updated(sum: u16, old: u16, new: u16) -> u16 {
    let total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}

/// What stands for a frame in the fabric.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    destination: HostId,
    path: u32,
    bytes: u32,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A frame whose bytes are kept at its place of the pool.
    Frame {
        is_ect: bool,
        marked: bool,
    },
    Notification(QueueKey, u8),
}

impl Descriptor {
    /// Of a frame with these headers, on its way to a host, with a path value.
    pub fn of(headers: &Headers, destination: HostId, path: u32) -> Self {
        let kind = Kind::Frame {
            is_ect: headers.ecn != 0,
            marked: false,
        };
        Self {
            destination,
            path,
            bytes: headers.untagged_bytes,
            kind,
        }
    }

    /// What switches hash, among others.
    pub fn path(&self) -> u32 {
        self.path
    }

    /// A switch rewrites it.
    pub fn set_path(&mut self, path: u32) {
        self.path = path;
    }

    /// A switch has marked it.
    pub fn is_marked(&self) -> bool {
        matches!(self.kind, Kind::Frame { marked: true, .. })
    }
}

impl Frame for Descriptor {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn is_ect(&self) -> bool {
        matches!(self.kind, Kind::Frame { is_ect: true, .. })
    }

    fn mark(&mut self) {
        if let Kind::Frame { marked, .. } = &mut self.kind {
            *marked = true;
        }
    }
}

impl CeeFrame for Descriptor {
    fn destination(&self) -> HostId {
        self.destination
    }

    fn notification(sampled: &Self, notification: &Notification) -> Self {
        Self {
            destination: notification.source,
            path: sampled.path,
            bytes: CONTROL_BYTES,
            kind: Kind::Notification(notification.queue, notification.feedback.fb),
        }
    }

    fn notice(&self) -> Option<(QueueKey, u8)> {
        match self.kind {
            Kind::Notification(queue, fb) => Some((queue, fb)),
            Kind::Frame { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn ethernet() -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
    }

    fn ipv4(ecn: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2);
        builder.write(&mut bytes, b"hello").expect("room");
        bytes[15] |= ecn;
        let mut header = etherparse::Ipv4Header::from_slice(&bytes[14..])
            .expect("IP")
            .0;
        header.header_checksum = header.calc_header_checksum();
        bytes[14..34].copy_from_slice(&header.to_bytes());
        bytes
    }

    fn tagged(bytes: &[u8], priority: u8) -> Vec<u8> {
        let tag = [0x81, 0, priority << 5, 7];
        [&bytes[..12], &tag, &bytes[12..]].concat()
    }

    #[test]
    fn a_mark_is_ce_with_a_checksum_that_fits() {
        for frame in [ipv4(1), ipv4(2), ipv4(3), tagged(&ipv4(2), 5)] {
            let mut marked = frame.clone();
            mark(&mut marked);
            let at = frame.len() - 33;
            let (header, _) = etherparse::Ipv4Header::from_slice(&marked[at..]).expect("IP");
            assert_eq!(header.ecn.value(), CE);
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(Headers::read(&marked).map(|it| it.ecn), Some(CE));
        }
    }

    #[test]
    fn the_traffic_class_of_ipv6_is_marked() {
        let mut frame = Vec::new();
        let builder = ethernet().ipv6([1; 16], [2; 16], 64).udp(1, 2);
        builder.write(&mut frame, &[]).expect("room");
        frame[15] |= 2 << 4;
        mark(&mut frame);
        let (header, _) = etherparse::Ipv6Header::from_slice(&frame[14..]).expect("IP");
        assert_eq!(header.traffic_class & 3, CE);
    }

    #[test]
    fn a_frame_without_ecn_is_never_marked() {
        let mut arp = vec![0xff; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        for frame in [ipv4(0), arp] {
            let mut marked = frame.clone();
            mark(&mut marked);
            assert_eq!(marked, frame);
        }
    }

    #[test]
    fn priority_and_length_are_those_of_the_tag_and_without_it() {
        let plain = Headers::read(&ipv4(2)).expect("a frame");
        let tagged = Headers::read(&tagged(&ipv4(2), 5)).expect("a frame");
        assert_eq!((plain.priority, tagged.priority), (None, Some(5)));
        assert_eq!(plain.untagged_bytes, tagged.untagged_bytes);
        assert_eq!((plain.ecn, tagged.ecn), (2, 2));
    }

    fn tcp(ports: (u16, u16), seq: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let builder = builder.tcp(ports.0, ports.1, seq, 100);
        builder.write(&mut bytes, b"hello").expect("room");
        bytes
    }

    #[test]
    fn packets_of_a_connection_have_one_hash_and_other_connections_others() {
        let first = tcp((1000, 80), 1);
        let next = tcp((1000, 80), 900);
        assert_eq!(connection(&first), connection(&next));
        assert_eq!(connection(&first), connection(&tagged(&first, 3)));
        assert_ne!(header(&first), header(&next));
        for other in [tcp((1001, 80), 1), tcp((1000, 81), 1), ipv4(0)] {
            assert_ne!(connection(&first), connection(&other));
        }
        let mut version6 = Vec::new();
        let builder = ethernet().ipv6([1; 16], [2; 16], 64).tcp(1000, 80, 1, 100);
        builder.write(&mut version6, &[]).expect("room");
        let one = connection(&version6);
        version6[14 + 40 + 1] ^= 1; // its source port
        assert_ne!(connection(&version6), one);
    }

    #[test]
    fn all_fragments_of_a_datagram_have_one_hash() {
        let mut first = ipv4(0);
        first[20] = 0x20; // more follow
        let mut next = first.clone();
        next[20..22].copy_from_slice(&[0, 1]);
        next[34..38].copy_from_slice(&[9; 4]);
        assert_eq!(connection(&first), connection(&next));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_marked(mut bytes in prop::collection::vec(any::<u8>(), 0..80),
                                         kind in prop::sample::select(vec![TAG, PROVIDER_TAG, IPV4, IPV6])) {
            if bytes.len() >= 14 {
                bytes[12..14].copy_from_slice(&kind.to_be_bytes());
            }
            let length = bytes.len();
            let read = Headers::read(&bytes);
            prop_assert!(read.is_some() || length < 14 + TAGS_MAX * TAG_BYTES);
            let before = bytes.clone();
            let _hashes = (connection(&bytes), header(&bytes));
            mark(&mut bytes);
            let is_ect = read.is_some_and(|it| it.ecn != 0);
            prop_assert!(is_ect || bytes == before);
        }
    }
}
