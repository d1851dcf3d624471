//! Segments of a script as packets of IP, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluicegate_tcp::segment::{ByteCounters, flags};

use crate::packet::{FastOpen, Options, Packet};

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Bytes of options that a TCP header has room for.
const OPTIONS_MAX: usize = 40;
/// What precedes a cookie in the experimental option (RFC 6994, RFC 7413).
const EXPERIMENT: u16 = 0xf989;
const HOPS: u8 = 255;
const NOP: u8 = 1;

/// The two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
}

impl Ends {
    pub fn turned(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

/// A packet that was read.
#[derive(Clone, Debug)]
pub struct Read {
    pub ends: Ends,
    /// With the numbers on the wire.
    pub packet: Packet,
    pub ttl: u8,
    pub tos: u8,
}

/// A TCP segment in a packet of IP, with zeros for data; `None`: its options have no room.
pub fn write(ends: &Ends, packet: &Packet) -> Option<Vec<u8>> {
    let options = options(&packet.options, packet.has(flags::SYN))?;
    let length = 20 + options.len();
    let mut tcp = Vec::with_capacity(length + usize::from(packet.len));
    tcp.extend(ends.from.1.to_be_bytes());
    tcp.extend(ends.to.1.to_be_bytes());
    tcp.extend(packet.seq.to_be_bytes());
    tcp.extend(packet.ack.to_be_bytes());
    tcp.extend([(length as u8) << 2 | u8::from(packet.ae), packet.flags]);
    tcp.extend(packet.window.to_be_bytes());
    tcp.extend([0; 2]);
    tcp.extend(packet.urgent.to_be_bytes());
    tcp.extend(options);
    tcp.resize(length + usize::from(packet.len), 0);
    let sum = checksum(&[&pseudo_header(ends, TCP, tcp.len()), &tcp]);
    tcp[16..18].copy_from_slice(&sum);
    Some(in_ip(ends, TCP, packet.ecn, &tcp))
}

/// An ICMP message that quotes the beginning of a segment of `quoted`'s; `rest` is what its header
/// says beside type and code.
pub fn write_icmp(quoted: &Ends, kind: u8, code: u8, rest: u32, seq: u32) -> Vec<u8> {
    let mut inner = Vec::new();
    inner.extend(quoted.from.1.to_be_bytes());
    inner.extend(quoted.to.1.to_be_bytes());
    inner.extend(seq.to_be_bytes());
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest.to_be_bytes());
    message.extend(in_ip(quoted, TCP, 0, &inner));
    let ends = quoted.turned();
    let protocol = if ends.from.0.is_ipv4() { ICMP } else { ICMPV6 };
    let sum = match ends.from.0 {
        IpAddr::V4(_) => checksum(&[&message]),
        IpAddr::V6(_) => checksum(&[&pseudo_header(&ends, ICMPV6, message.len()), &message]),
    };
    message[2..4].copy_from_slice(&sum);
    in_ip(&ends, protocol, 0, &message)
}

fn in_ip(ends: &Ends, protocol: u8, tos: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(40 + payload.len());
    match (ends.from.0, ends.to.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = (20 + payload.len()).min(0xffff) as u16;
            bytes.extend([0x45, tos]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            let sum = checksum(&[&bytes]);
            bytes[10..12].copy_from_slice(&sum);
        }
        (from, to) => {
            let length = payload.len().min(0xffff) as u16;
            bytes.extend([0x60 | tos >> 4, tos << 4, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([protocol, HOPS]);
            bytes.extend(of_v6(from));
            bytes.extend(of_v6(to));
        }
    }
    bytes.extend(payload);
    bytes
}

fn of_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// What a checksum covers beside the segment (RFC 9293 3.1, RFC 8200 8.1).
fn pseudo_header(ends: &Ends, protocol: u8, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for address in [ends.from.0, ends.to.0] {
        match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    bytes.extend((length as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    bytes
}

/// The Internet checksum (RFC 1071) of parts that have an even length but for the last.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    (!(sum as u16)).to_be_bytes()
}

/// The options of a segment as Linux lays them out, or without padding between them if they have no
/// room otherwise.
fn options(options: &Options, syn: bool) -> Option<Vec<u8>> {
    let parts = parts(options, syn);
    let padded: Vec<u8> = parts.iter().flat_map(|part| pad(part)).collect();
    if padded.len() <= OPTIONS_MAX {
        return Some(padded);
    }
    let packed = pad(&parts.concat());
    (packed.len() <= OPTIONS_MAX).then_some(packed)
}

/// NOPs before what is no multiple of four long.
fn pad(part: &[u8]) -> Vec<u8> {
    let rest = part.len().next_multiple_of(4) - part.len();
    let mut padded = vec![NOP; rest];
    padded.extend(part);
    padded
}

fn parts(options: &Options, syn: bool) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    if let Some(mss) = options.mss {
        parts.push([&[2, 4], &mss.to_be_bytes()[..]].concat());
    }
    if options.signed {
        parts.push([&[19, 18], &[0; 16][..]].concat());
    }
    let mut times = Vec::new();
    if options.sack_ok && syn {
        times.extend([4, 2]);
    }
    if let Some((val, ecr)) = options.timestamps {
        times.extend([8, 10]);
        times.extend(val.to_be_bytes());
        times.extend(ecr.to_be_bytes());
    }
    if !times.is_empty() {
        parts.push(times);
    }
    if let Some(shift) = options.wscale {
        parts.push(vec![3, 3, shift]);
    }
    if let Some(counters) = &options.counters {
        let kind = if counters.ect1_first() { 174 } else { 172 };
        let fields = counters
            .values()
            .iter()
            .flat_map(|value| value.to_be_bytes()[1..].to_vec());
        parts.push(with_length(kind, &fields.collect::<Vec<_>>()));
    }
    if let Some(FastOpen {
        cookie,
        experimental,
    }) = &options.fast_open
    {
        parts.push(match experimental {
            true => with_length(254, &[&EXPERIMENT.to_be_bytes()[..], cookie].concat()),
            false => with_length(34, cookie),
        });
    }
    if !options.sack.is_empty() {
        let block = |(left, right): &(u32, u32)| [left.to_be_bytes(), right.to_be_bytes()].concat();
        let blocks: Vec<u8> = options.sack.iter().flat_map(block).collect();
        parts.push(with_length(5, &blocks));
    }
    parts
}

fn with_length(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = (value.len() + 2).min(255) as u8;
    [&[kind, length], value].concat()
}

/// The TCP segment in a packet; `None` for anything else, or one that is cut off.
pub fn read(bytes: &[u8]) -> Option<Read> {
    let (from, to, ttl, tos, tcp) = match bytes.first()? >> 4 {
        4 if *bytes.get(9)? == TCP => {
            let header = usize::from(bytes[0] & 15) * 4;
            let address = |at: usize| {
                Some(Ipv4Addr::from(
                    <[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?,
                ))
            };
            let length = usize::from(word(bytes, 2)?);
            let tcp = bytes.get(header..length.max(header).min(bytes.len()))?;
            let (from, to) = (IpAddr::V4(address(12)?), IpAddr::V4(address(16)?));
            (from, to, bytes[8], bytes[1], tcp)
        }
        6 if *bytes.get(6)? == TCP => {
            let address = |at: usize| {
                Some(Ipv6Addr::from(
                    <[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?,
                ))
            };
            let tos = bytes[0] << 4 | bytes[1] >> 4;
            let (from, to) = (IpAddr::V6(address(8)?), IpAddr::V6(address(24)?));
            (from, to, bytes[7], tos, bytes.get(40..)?)
        }
        _ => return None,
    };
    let header = usize::from(tcp.get(..20)?[12] >> 4) * 4;
    let mut packet = Packet {
        flags: tcp[13],
        ae: tcp[12] & 1 != 0,
        seq: long(tcp, 4)?,
        len: u16::try_from(tcp.len().checked_sub(header)?).ok()?,
        ack: long(tcp, 8)?,
        window: word(tcp, 14)?,
        urgent: 0,
        ecn: tos & 3,
        options: read_options(tcp.get(20..header)?)?,
        udp: None,
    };
    if packet.has(flags::URG) {
        packet.urgent = word(tcp, 18)?;
    }
    let ends = Ends {
        from: (from, word(tcp, 0)?),
        to: (to, word(tcp, 2)?),
    };
    Some(Read {
        ends,
        packet,
        ttl,
        tos,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn read_options(mut rest: &[u8]) -> Option<Options> {
    let mut options = Options::default();
    while let [kind, more @ ..] = rest {
        match kind {
            0 => break,
            1 => {
                rest = more;
                continue;
            }
            _ => (),
        }
        let length = usize::from(*more.first()?);
        let value = rest.get(2..length)?;
        match kind {
            2 => options.mss = word(value, 0),
            3 => options.wscale = value.first().copied(),
            4 => options.sack_ok = true,
            5 => {
                let block = |bytes: &[u8]| Some((long(bytes, 0)?, long(bytes, 4)?));
                options.sack = value.chunks_exact(8).filter_map(block).collect();
            }
            8 => options.timestamps = Some((long(value, 0)?, long(value, 4)?)),
            19 => options.signed = true,
            34 => options.fast_open = Some(cookie(value, false)),
            254 if word(value, 0) == Some(EXPERIMENT) => {
                options.fast_open = Some(cookie(&value[2..], true));
            }
            172 | 174 => options.counters = Some(counters(*kind == 174, value)),
            _ => (),
        }
        rest = rest.get(length..)?;
    }
    Some(options)
}

fn cookie(bytes: &[u8], experimental: bool) -> FastOpen {
    FastOpen {
        cookie: bytes.to_vec(),
        experimental,
    }
}

fn counters(ect1_first: bool, value: &[u8]) -> ByteCounters {
    let field = |bytes: &[u8]| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    let fields: Vec<u32> = value.chunks_exact(3).map(field).collect();
    ByteCounters::new(ect1_first, &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(v6: bool) -> Ends {
        let address = |last: u8| match v6 {
            false => IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)),
            true => IpAddr::V6(Ipv6Addr::new(0xfd3d, 0, 0, 0, 0, 0, 0, last.into())),
        };
        Ends {
            from: (address(1), 40_000),
            to: (address(2), 8_080),
        }
    }

    /// One's complement sum of a packet's pseudo header and segment: all ones if it is right.
    fn holds(ends: &Ends, tcp: &[u8]) -> bool {
        checksum(&[&pseudo_header(ends, TCP, tcp.len()), tcp]) == [0, 0]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let packets = [
            Packet {
                flags: flags::SYN,
                window: 65_535,
                options: Options {
                    mss: Some(1460),
                    wscale: Some(7),
                    sack_ok: true,
                    timestamps: Some((7, 0)),
                    fast_open: Some(cookie(&[1, 2, 3, 4], false)),
                    ..Options::default()
                },
                ..Packet::default()
            },
            Packet {
                flags: flags::ACK | flags::PSH,
                ae: true,
                seq: u32::MAX,
                ack: 5,
                len: 1_001,
                window: 3,
                ecn: 2,
                options: Options {
                    sack: vec![(1, 2), (3, 4), (5, 6)],
                    timestamps: Some((7, 8)),
                    ..Options::default()
                },
                ..Packet::default()
            },
            Packet {
                flags: flags::ACK | flags::URG,
                urgent: 9,
                options: Options {
                    sack: vec![(1, 2)],
                    counters: Some(ByteCounters::new(true, &[1, 2, 3])),
                    fast_open: Some(cookie(&[5; 8], true)),
                    ..Options::default()
                },
                ..Packet::default()
            },
        ];
        for v6 in [false, true] {
            for packet in &packets {
                let bytes = write(&ends(v6), packet).expect("has room");
                let found = read(&bytes).expect("is TCP");
                assert_eq!((found.ends, &found.packet), (ends(v6), packet));
                assert_eq!((found.ttl, found.tos), (HOPS, packet.ecn));
                let header = if v6 { 40 } else { 20 };
                assert!(holds(&ends(v6), &bytes[header..]));
                assert!(v6 || checksum(&[&bytes[..20]]) == [0, 0]);
                for cut in 0..bytes.len() - usize::from(packet.len) {
                    assert!(read(&bytes[..cut]).is_none(), "{cut}");
                }
            }
        }
        let mut full = packets[1].clone();
        full.options.sack.push((7, 8));
        assert_eq!(write(&ends(false), &full), None);
    }

    #[test]
    fn icmp_quotes_the_segment_that_it_answers() {
        for (v6, protocol, header) in [(false, ICMP, 20), (true, ICMPV6, 40)] {
            let bytes = write_icmp(&ends(v6), 3, 4, 1_200, 0x0102_0304);
            let at = if v6 { 6 } else { 9 };
            assert_eq!(bytes[at], protocol);
            assert_eq!(bytes[header..header + 2], [3, 4]);
            assert_eq!(long(&bytes, header + 4), Some(1_200));
            let quoted = &bytes[header + 8 + header..];
            assert_eq!(quoted.len(), 8);
            assert_eq!(
                (word(quoted, 0), long(quoted, 4)),
                (Some(40_000), Some(0x0102_0304))
            );
        }
    }

    #[test]
    fn rubbish_is_no_segment() {
        assert!(read(&[]).is_none());
        assert!(read(&[0x45; 30]).is_none());
        assert!(read(&[0x60; 80]).is_none());
        assert!(read_options(&[8, 0]).is_none());
        assert!(read_options(&[8, 40, 1]).is_none());
        assert_eq!(read_options(&[1, 1, 0, 8]), Some(Options::default()));
    }
}
