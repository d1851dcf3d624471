//! Packets as bytes: the Ethernet frame that a card would see. Payload is zeros.

use std::net::{IpAddr, SocketAddr};

use sluicegate_core::{
    number::{low_16, narrow},
    segment::{self as core, option as found},
    wire,
};
use sluicegate_fabric::{
    cee::{Notification, PRIORITIES},
    graph::{HostId, PortId},
};
use sluicegate_tcp::segment::{ByteCounters, Segment, ecn, flags, option};

use crate::packet::{Blocks, Body, Datagram, Packet, TcpHeader, UDP_HEADER_BYTES};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;
/// As the IEEE assigned it to congestion notification messages; 22-E9 is their tag's.
const ETHERTYPE_CNM: u16 = 0x22e7;
const TPID: u16 = 0x8100;
/// MAC control frames go to the neighbour: bridges do not forward this address (802.1Q table 8-1).
const MAC_CONTROL: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x01];
const OPCODE_PFC: u16 = 0x0101;
/// The shortest frame, without its check sequence, which captures do not have.
const LEAST_BYTES: usize = 60;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// Initial TTL and hop limit of Linux; switches forward frames, so that nothing lowers it.
const HOP_LIMIT: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;
const NOP: u8 = 1;

/// The sender and the receiver of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The sending tenant's address and port.
    pub from: SocketAddr,
    /// The receiving tenant's.
    pub to: SocketAddr,
    /// The hosts where they live.
    pub hosts: [HostId; 2],
}

/// A host's card: locally administered, with its number at the end.
pub fn mac(host: HostId) -> [u8; 6] {
    let [_, block, high, low] = host.0.to_be_bytes();
    [0x02, b'S', b'G', block, high, low]
}

/// Writes the frame into `out`, in place of what was there.
pub fn write(out: &mut Vec<u8>, packet: &Packet, blocks: &Blocks, route: &Route) {
    match &packet.body {
        Body::Segment(header) => write_segment(out, header, blocks, route),
        Body::Datagram(datagram) => write_datagram(out, datagram, route),
        Body::Notification(_) => packet.notification().iter().for_each(|it| cnm(out, it)),
    }
}

fn write_segment(out: &mut Vec<u8>, header: &TcpHeader, blocks: &Blocks, route: &Route) {
    let segment = header.segment(blocks);
    let view = header.view(blocks, core::Direction::FromTenant);
    let tcp_bytes = usize::from(view.header_len) + usize::from(segment.payload);
    ethernet(out, route);
    match (route.from.ip(), route.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ends = [from.octets(), to.octets()];
            let ip = ipv4(PROTOCOL_TCP, segment.ecn, ends, tcp_bytes);
            out.extend(ETHERTYPE_IPV4.to_be_bytes());
            out.extend(ip);
            tcp(out, &segment, &view, route, tcp_bytes, |tcp| {
                wire::tcp_checksum_v4(&ip, tcp)
            });
        }
        (from, to) => {
            let ends = [octets(from), octets(to)];
            let ip = ipv6(PROTOCOL_TCP, segment.ecn, ends, tcp_bytes);
            out.extend(ETHERTYPE_IPV6.to_be_bytes());
            out.extend(ip);
            tcp(out, &segment, &view, route, tcp_bytes, |tcp| {
                wire::tcp_checksum_v6(&ip, tcp)
            });
        }
    }
}

/// A switch's or a host's end of a link: locally administered, with its number at the end.
pub fn port_mac(port: PortId) -> [u8; 6] {
    let [_, high, middle, low] = port.0.to_be_bytes();
    [0x02, b'S', b'P', high, middle, low]
}

/// Gives a frame a tag with this priority and no VLAN (802.1Q clause 9.6: a priority tag).
pub fn tag(frame: &mut Vec<u8>, priority: u8) {
    let [high, low] = TPID.to_be_bytes();
    let addresses = 2 * mac(HostId(0)).len();
    frame.splice(addresses..addresses, [high, low, priority << 5, 0]);
}

/// Writes a PFC frame (802.3 annex 31D) into `out`, in place of what was there: `times` are pauses
/// by priority in quanta of 512 bit times, 0 = go on; `None`: it does not speak of that priority.
pub fn pfc(out: &mut Vec<u8>, source: [u8; 6], times: [Option<u16>; PRIORITIES]) {
    out.clear();
    out.extend(MAC_CONTROL);
    out.extend(source);
    out.extend(ETHERTYPE_MAC_CONTROL.to_be_bytes());
    out.extend(OPCODE_PFC.to_be_bytes());
    let bit = |priority: usize| u16::from(times[priority].is_some()) << priority;
    let enabled: u16 = (0..PRIORITIES).map(bit).sum();
    out.extend(enabled.to_be_bytes());
    for time in times {
        out.extend(time.unwrap_or(0).to_be_bytes());
    }
    out.resize(LEAST_BYTES, 0);
}

/// Writes a congestion notification message (802.1Q clause 33.4) into `out`, in place of what was
/// there. The standard's Qoffset is Qeq − Q. Nothing of the sampled frame is in it but its priority
/// and destination.
pub fn cnm(out: &mut Vec<u8>, notification: &Notification) {
    let feedback = notification.feedback;
    let switch = port_mac(notification.port);
    out.clear();
    out.extend(mac(notification.source));
    out.extend(switch);
    out.extend(ETHERTYPE_CNM.to_be_bytes());
    // Version 0 in four bits, six that are reserved, six of Fb.
    out.extend(u16::from(feedback.fb).to_be_bytes());
    // The congestion point's name, eight bytes that no other has.
    out.extend(switch);
    out.extend([0, notification.queue.priority]);
    out.extend(feedback.q_off.saturating_neg().to_be_bytes());
    out.extend(feedback.q_delta.to_be_bytes());
    out.extend((u16::from(notification.queue.priority) << 13).to_be_bytes());
    out.extend(mac(notification.queue.destination));
    out.extend([0, 0]); // length of what follows of the frame
    out.resize(LEAST_BYTES, 0);
}

/// In place of what was there.
fn ethernet(out: &mut Vec<u8>, route: &Route) {
    out.clear();
    out.extend(mac(route.hosts[1]));
    out.extend(mac(route.hosts[0]));
}

fn write_datagram(out: &mut Vec<u8>, datagram: &Datagram, route: &Route) {
    let bytes = narrow::<u16>(UDP_HEADER_BYTES) + datagram.payload;
    ethernet(out, route);
    let addresses = match (route.from.ip(), route.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ends = [from.octets(), to.octets()];
            out.extend(ETHERTYPE_IPV4.to_be_bytes());
            out.extend(ipv4(PROTOCOL_UDP, ecn::NOT_ECT, ends, bytes.into()));
            ends.concat()
        }
        (from, to) => {
            let ends = [octets(from), octets(to)];
            out.extend(ETHERTYPE_IPV6.to_be_bytes());
            out.extend(ipv6(PROTOCOL_UDP, ecn::NOT_ECT, ends, bytes.into()));
            ends.concat()
        }
    };
    let start = out.len();
    let (from, to) = (route.from.port(), route.to.port());
    out.extend(
        [from, to, bytes, 0]
            .iter()
            .flat_map(|field| field.to_be_bytes()),
    );
    let checksum = udp_checksum(&addresses, &out[start..], bytes);
    out[start + 6..].copy_from_slice(&checksum);
    out.resize(start + usize::from(bytes), 0);
}

/// RFC 768, over the pseudo header of IPv4 or IPv6 (RFC 8200 section 8.1). Payload of zeros changes
/// nothing.
fn udp_checksum(addresses: &[u8], header: &[u8], bytes: u16) -> [u8; 2] {
    let words = [addresses, header]
        .into_iter()
        .flat_map(|part| part.chunks_exact(2));
    let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>() + u32::from(PROTOCOL_UDP) + u32::from(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Zero would say that there is none.
    match !low_16(sum.into()) {
        0 => [0xff; 2],
        checksum => checksum.to_be_bytes(),
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn ipv4(protocol: u8, ecn: u8, [from, to]: [[u8; 4]; 2], bytes: usize) -> [u8; wire::IPV4_BYTES] {
    let mut ip = [0; wire::IPV4_BYTES];
    ip[0] = 0x45;
    ip[1] = ecn;
    ip[2..4].copy_from_slice(&narrow::<u16>(wire::IPV4_BYTES + bytes).to_be_bytes());
    ip[6..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    ip[8] = HOP_LIMIT;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&from);
    ip[16..].copy_from_slice(&to);
    let checksum = wire::ipv4_checksum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    ip
}

fn ipv6(protocol: u8, ecn: u8, [from, to]: [[u8; 16]; 2], bytes: usize) -> [u8; wire::IPV6_BYTES] {
    let mut ip = [0; wire::IPV6_BYTES];
    ip[0] = 0x60;
    ip[1] = ecn << 4;
    ip[4..6].copy_from_slice(&narrow::<u16>(bytes).to_be_bytes());
    ip[6] = protocol;
    ip[7] = HOP_LIMIT;
    ip[8..24].copy_from_slice(&from);
    ip[24..].copy_from_slice(&to);
    ip
}

/// Appends a segment of `bytes` bytes.
fn tcp(
    out: &mut Vec<u8>,
    segment: &Segment,
    view: &core::Segment,
    route: &Route,
    bytes: usize,
    checksum: impl FnOnce(&[u8]) -> [u8; 2],
) {
    let start = out.len();
    out.extend(route.from.port().to_be_bytes());
    out.extend(route.to.port().to_be_bytes());
    out.extend(segment.seq.to_be_bytes());
    out.extend(segment.ack.to_be_bytes());
    let ae = u8::from(segment.options & option::AE != 0);
    out.extend([view.header_len << 2 | ae, segment.flags]);
    out.extend(segment.window.to_be_bytes());
    out.extend([0; 4]); // checksum, urgent pointer
    tenants_options(out, segment);
    our_options(out, view);
    debug_assert_eq!(out.len() - start, usize::from(view.header_len));
    out.resize(start + bytes, 0);
    let sum = checksum(&out[start..]);
    out[start + 16..start + 18].copy_from_slice(&sum);
}

/// As Linux lays them out; [`Segment::header_len`] counts on it.
fn tenants_options(out: &mut Vec<u8>, segment: &Segment) {
    let has = |bit| segment.options & bit != 0;
    if let Some(mss) = segment.mss() {
        out.extend([2, 4]);
        out.extend(mss.to_be_bytes());
    }
    let sack_permitted = has(option::SACK_PERMITTED) && segment.has(flags::SYN);
    if sack_permitted || has(option::TIMESTAMPS) {
        out.extend(if sack_permitted { [4, 2] } else { [NOP, NOP] });
    }
    if has(option::TIMESTAMPS) {
        out.extend([8, 10]);
        out.extend(segment.ts_val.to_be_bytes());
        out.extend(segment.ts_ecr.to_be_bytes());
    } else if sack_permitted {
        out.extend([NOP, NOP]);
    }
    if let Some(shift) = segment.wscale() {
        out.extend([NOP, 3, 3, shift]);
    }
    let blocks = segment.sack();
    let counters = segment.counters();
    if let Some(counters) = &counters {
        accecn_option(out, counters, !blocks.is_empty());
    } else if !blocks.is_empty() {
        out.extend([NOP, NOP]);
    }
    if !blocks.is_empty() {
        out.extend([5, 2 + 8 * narrow::<u8>(blocks.len())]);
        for block in blocks.iter() {
            out.extend(block.left.to_be_bytes());
            out.extend(block.right.to_be_bytes());
        }
    }
}

/// RFC 9768 3.2.3, padded so that SACK's kind and length fill up a word where they follow.
fn accecn_option(out: &mut Vec<u8>, counters: &ByteCounters, blocks_follow: bool) {
    let kind = if counters.ect1_first() { 174 } else { 172 };
    let bytes = 2 + 3 * counters.values().len();
    out.extend([kind, narrow::<u8>(bytes)]);
    for value in counters.values() {
        out.extend(&value.to_be_bytes()[1..]);
    }
    let rest = if blocks_follow { bytes + 2 } else { bytes };
    let padding = rest.next_multiple_of(4) - rest;
    out.extend(std::iter::repeat_n(NOP, padding));
}

/// The options that hosts have added, behind the tenant's.
fn our_options(out: &mut Vec<u8>, view: &core::Segment) {
    if view.options & found::FEEDBACK != 0 {
        out.extend(wire::feedback_option(view.e0b, view.ceb));
    }
    if view.options & (found::PEER | found::FACK) != 0 {
        out.extend(wire::peer_option(view.options & found::FACK != 0));
    }
}
