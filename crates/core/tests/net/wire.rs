//! TCP in Ethernet frames, built and read with `etherparse`.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, NetSlice,
    SingleVlanHeader, SlicedPacket, TcpHeader, TransportSlice, VlanId, ether_type,
};
use sluicegate_core::host::tcp;

/// A TCP segment and the fields of IP that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    pub seq: u32,
    pub ack: u32,
    /// FIN … CWR.
    pub flags: u8,
    /// The ninth flag: AE (RFC 9768 3.1.1), once NS.
    pub ae: bool,
    pub window: u16,
    /// Whole words, with padding.
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    pub ecn: u8,
    pub dscp: u8,
    pub urgent: u16,
}

impl Packet {
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    pub fn len(&self) -> u32 {
        self.payload.len() as u32
    }

    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len())
    }

    /// No data, no SYN, FIN or RST.
    pub fn is_pure_ack(&self) -> bool {
        self.payload.is_empty() && self.flags & (tcp::SYN | tcp::FIN | tcp::RST) == 0
    }
}

/// Where packets come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub vlan: Option<u16>,
}

impl Route {
    pub fn new(from: &str, to: &str) -> Self {
        Self {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            vlan: None,
        }
    }

    pub fn reversed(&self) -> Self {
        Self {
            from: self.to,
            to: self.from,
            vlan: self.vlan,
        }
    }

    /// A frame with right checksums and lengths.
    pub fn build(&self, packet: &Packet) -> Vec<u8> {
        let mut header = tcp_header(self, packet);
        let l4_len = header.header_len() + packet.payload.len();
        let mut bytes = self.link();
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = Ipv4Header {
                    dscp: IpDscp::try_new(packet.dscp).unwrap(),
                    ecn: IpEcn::try_new(packet.ecn).unwrap(),
                    // BIG TCP: a super-packet's length doesn't fit and is 0.
                    total_len: u16::try_from(20 + l4_len).unwrap_or(0),
                    identification: 0x1234,
                    time_to_live: 64,
                    protocol: IpNumber::TCP,
                    source: from.octets(),
                    destination: to.octets(),
                    ..Ipv4Header::default()
                };
                ip.header_checksum = ip.calc_header_checksum();
                header.checksum = header
                    .calc_checksum_ipv4(&ip, &packet.payload)
                    .unwrap_or(0xbeef);
                ip.write(&mut bytes).unwrap();
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let ip = Ipv6Header {
                    traffic_class: packet.dscp << 2 | packet.ecn,
                    flow_label: Ipv6FlowLabel::try_new(0x12345).unwrap(),
                    payload_length: u16::try_from(l4_len).unwrap_or(0),
                    next_header: IpNumber::TCP,
                    hop_limit: 64,
                    source: from.octets(),
                    destination: to.octets(),
                };
                header.checksum = header.calc_checksum_ipv6(&ip, &packet.payload).unwrap();
                ip.write(&mut bytes).unwrap();
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        header.write(&mut bytes).unwrap();
        bytes.extend(&packet.payload);
        bytes
    }

    fn link(&self) -> Vec<u8> {
        let inner = match self.from {
            SocketAddr::V4(_) => ether_type::IPV4,
            SocketAddr::V6(_) => ether_type::IPV6,
        };
        let mut bytes = Vec::new();
        let ethernet = Ethernet2Header {
            source: [2; 6],
            destination: [4; 6],
            ether_type: self.vlan.map_or(inner, |_| ether_type::VLAN_TAGGED_FRAME),
        };
        ethernet.write(&mut bytes).unwrap();
        if let Some(id) = self.vlan {
            let tag = SingleVlanHeader {
                vlan_id: VlanId::try_new(id).unwrap(),
                ether_type: inner,
                ..SingleVlanHeader::default()
            };
            tag.write(&mut bytes).unwrap();
        }
        bytes
    }
}

fn tcp_header(route: &Route, packet: &Packet) -> TcpHeader {
    let mut header = TcpHeader::new(
        route.from.port(),
        route.to.port(),
        packet.seq,
        packet.window,
    );
    header.acknowledgment_number = packet.ack;
    header.fin = packet.has(tcp::FIN);
    header.syn = packet.has(tcp::SYN);
    header.rst = packet.has(tcp::RST);
    header.psh = packet.has(tcp::PSH);
    header.ack = packet.has(tcp::ACK);
    header.urg = packet.has(tcp::URG);
    header.ece = packet.has(tcp::ECE);
    header.cwr = packet.has(tcp::CWR);
    header.ns = packet.ae;
    header.urgent_pointer = packet.urgent;
    header.set_options_raw(&packet.options).unwrap();
    assert_eq!(packet.options.len() % 4, 0, "whole words");
    header
}

fn flags_of(header: &TcpHeader) -> u8 {
    [
        (header.fin, tcp::FIN),
        (header.syn, tcp::SYN),
        (header.rst, tcp::RST),
        (header.psh, tcp::PSH),
        (header.ack, tcp::ACK),
        (header.urg, tcp::URG),
        (header.ece, tcp::ECE),
        (header.cwr, tcp::CWR),
    ]
    .into_iter()
    .filter_map(|(set, bit)| set.then_some(bit))
    .sum()
}

/// The verdict of a TCP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    Right,
    /// That of the pseudo-header alone: a device is to sum the rest (CHECKSUM_PARTIAL).
    Partial,
    Wrong,
}

/// Reads a frame. Panics unless it is TCP with right lengths and checksums.
pub fn read(frame: &[u8]) -> (Route, Packet) {
    let (route, packet, sum) = look(frame).expect("TCP");
    assert_eq!(sum, Sum::Right, "TCP checksum");
    (route, packet)
}

/// Reads a frame; `None` if it isn't TCP. Panics unless its lengths and its IP checksum are right.
pub fn look(frame: &[u8]) -> Option<(Route, Packet, Sum)> {
    let sliced = SlicedPacket::from_ethernet(frame).expect("a well-formed frame");
    let vlan = match sliced.vlan_ids().as_slice() {
        [] => None,
        [id] => Some(id.value()),
        more => panic!("{} VLAN tags", more.len()),
    };
    let Some(TransportSlice::Tcp(segment)) = &sliced.transport else {
        return None;
    };
    let header = segment.to_header();
    let payload = segment.payload();
    let l4_len = (header.header_len() + payload.len()) as u32;
    let (from, to, class, full): (IpAddr, IpAddr, u8, u16) = match &sliced.net {
        Some(NetSlice::Ipv4(ip)) => {
            let ip = ip.header().to_header();
            assert_eq!(
                ip.header_checksum,
                ip.calc_header_checksum(),
                "IPv4 checksum"
            );
            let class = ip.dscp.value() << 2 | ip.ecn.value();
            let full = header.calc_checksum_ipv4(&ip, payload).unwrap();
            (ip.source.into(), ip.destination.into(), class, full)
        }
        Some(NetSlice::Ipv6(ip)) => {
            let ip = ip.header().to_header();
            let full = header.calc_checksum_ipv6(&ip, payload).unwrap();
            (
                ip.source.into(),
                ip.destination.into(),
                ip.traffic_class,
                full,
            )
        }
        _ => return None,
    };
    let sum = match header.checksum {
        // Both are zero in one's complement. Linux' skb_checksum_help() writes 0xffff for 0x0000.
        0xffff if full == 0 => Sum::Right,
        sum if sum == full => Sum::Right,
        sum if sum == pseudo_sum(from, to, l4_len) => Sum::Partial,
        _ => Sum::Wrong,
    };
    let route = Route {
        from: SocketAddr::new(from, header.source_port),
        to: SocketAddr::new(to, header.destination_port),
        vlan,
    };
    let packet = Packet {
        seq: header.sequence_number,
        ack: header.acknowledgment_number,
        flags: flags_of(&header),
        ae: header.ns,
        window: header.window_size,
        options: header.options.as_slice().to_vec(),
        payload: payload.to_vec(),
        ecn: class & 3,
        dscp: class >> 2,
        urgent: header.urgent_pointer,
    };
    Some((route, packet, sum))
}

/// Sum of the pseudo-header, not complemented.
fn pseudo_sum(from: IpAddr, to: IpAddr, l4_len: u32) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let mut sum: u32 = [octets(from), octets(to)]
        .concat()
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    sum += 6 + (l4_len & 0xffff) + (l4_len >> 16);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
