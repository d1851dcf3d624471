//! Packets: a segment or a datagram of a tenant, or a notification of a switch.
//!
//! Switches read the common part of a [`Packet`]: its destination, path value and length. Its
//! [`Body`] is one of the three kinds. A header that only some packets carry and that no switch
//! reads (of a tunnel, say) belongs to [`ColdFields`]; a frame of hypervisors among themselves is
//! another variant of the body.

use std::mem::offset_of;

use sluicegate_core::{
    number::{high_half, narrow},
    segment::{self as core, edit, option as found},
};
use sluicegate_fabric::{
    Frame,
    cee::{CONTROL_BYTES, CeeFrame, Feedback, Notification, QueueKey},
    graph::{HostId, PortId},
    random::mix,
};
use sluicegate_tcp::segment::{Block, SACK_BLOCKS_BESIDE_TIMESTAMPS, Segment, ecn, flags, option};

/// Ethernet header, as queues count it.
pub const ETHERNET_BYTES: u32 = 14;

/// Length of each option of ours (`SG_OPTION_LEN`).
const OPTION_BYTES: u32 = 8;

/// [`TcpHeader::ours`]: the feedback option, with counters.
const FEEDBACK: u32 = 1 << 24;
/// The option by which hosts recognise each other.
const PEER: u32 = 1 << 25;
/// The same with the FACK bit.
const FACK: u32 = 1 << 26;
/// Counters are 24 bits.
const COUNTER: u32 = (1 << 24) - 1;

/// SACK blocks of a segment but for a fourth, or a SYN's MSS and window scale.
pub type Blocks = [Block; SACK_BLOCKS_BESIDE_TIMESTAMPS];

/// Fields that few packets have, kept apart from those that every hop reads: blocks, and the sender
/// of a SYN or a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColdFields {
    /// The options' contents.
    pub blocks: Blocks,
    /// Of a SYN or a datagram: the sender's tenant, and the receiver's.
    pub tenants: [u32; 2],
    /// Of a SYN or a datagram: their ports.
    pub ports: [u16; 2],
    /// Of a SYN or a datagram: the number of the sender's end.
    pub from: u32,
}

impl ColdFields {
    /// Makes the edits of a verdict on a SYN's options.
    pub fn apply(&mut self, verdict: &core::Verdict) {
        if verdict.edits & edit::MSS != 0 {
            self.blocks[0].left = verdict.seq_or_mss;
        }
    }
}

/// The fields of a packet that has none.
pub const NO_COLD_FIELDS: ColdFields = ColdFields {
    blocks: [Block { left: 0, right: 0 }; SACK_BLOCKS_BESIDE_TIMESTAMPS],
    tenants: [0; 2],
    ports: [0; 2],
    from: NO_END,
};

/// [`Packet::to`] of a SYN: the receiver's end has yet to be found or made.
pub const NO_END: u32 = u32::MAX;

/// Where the packets of one end of a connection go, and from where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addressing {
    /// The tenant here.
    pub tenant: u32,
    /// The tenant there.
    pub peer_tenant: u32,
    /// The number of the other end in the peer's part; [`NO_END`] until it is known.
    pub peer: u32,
    /// Hash of the connection as its packets carry it from here.
    pub path: u32,
    /// The port here.
    pub port: u16,
    /// The port there.
    pub peer_port: u16,
    /// The host where the other end lives.
    pub peer_host: HostId,
}

impl Addressing {
    /// The cold fields of a packet of the end `from`.
    pub fn cold_fields(&self, from: u32, segment: &Segment) -> ColdFields {
        ColdFields {
            blocks: segment.sack,
            tenants: [self.tenant, self.peer_tenant],
            ports: [self.port, self.peer_port],
            from,
        }
    }
}

/// UDP header (RFC 768).
pub const UDP_HEADER_BYTES: u32 = 8;

/// A tenant's datagram: a UDP header and so much payload. Packed, so that it does not make packets
/// longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Datagram {
    /// Its number among those of its socket, from 0.
    pub number: u32,
    /// Bytes of payload of its socket up to its end.
    pub end_bytes: u64,
    /// When its application sent it, ns.
    pub sent_ns: u64,
    /// Bytes of payload.
    pub payload: u16,
}

/// An ECN codepoint (RFC 3168). A byte has more values than these four: in them the compiler keeps
/// which [`Body`] a packet has, so that it takes no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Codepoint {
    #[default]
    NotEct = ecn::NOT_ECT,
    Ect1 = ecn::ECT1,
    Ect0 = ecn::ECT0,
    Ce = ecn::CE,
}

impl Codepoint {
    /// The two bits of an ECN field.
    #[inline]
    fn of(bits: u8) -> Self {
        match bits & ecn::CE {
            ecn::NOT_ECT => Self::NotEct,
            ecn::ECT1 => Self::Ect1,
            ecn::ECT0 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// The TCP header of a tenant's segment, the length of its payload, its ECN codepoint, and the
/// options that hosts have added. The contents of a tenant's SACK and SYN options are in the
/// [`ColdFields`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TcpHeader {
    seq: u32,
    ack: u32,
    ts_val: u32,
    ts_ecr: u32,
    /// Which of our options it carries, and EE0B.
    ours: u32,
    payload: u16,
    window: u16,
    flags: u8,
    options: u8,
    counters_end: u8,
    /// CEB, least significant byte first.
    ceb: [u8; 3],
    ecn: Codepoint,
}

/// A switch's congestion notification message. Its source is the packet's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Notice {
    queue: QueueKey,
    port: PortId,
    unused: u32,
    payload: u16,
    feedback: Feedback,
}

/// Where each body has the bytes of its payload, so that the length of a packet, which ports read
/// several times, does not depend on its kind.
const PAYLOAD_AT: usize = 20;
const _: () = assert!(offset_of!(TcpHeader, payload) == PAYLOAD_AT);
const _: () = assert!(offset_of!(Datagram, payload) == PAYLOAD_AT);
const _: () = assert!(offset_of!(Notice, payload) == PAYLOAD_AT);

/// The kind of a packet, and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A tenant's TCP segment.
    Segment(TcpHeader),
    /// A tenant's datagram. It is Not-ECT.
    Datagram(Datagram),
    /// A switch's congestion notification message, without payload.
    Notification(Notice),
}

/// The most hosts, by the bits of their numbers here and in frames' labels of converged Ethernet.
pub const HOSTS_MAX: usize = 1 << HostAndHeaders::HOST_BITS;

const _: () = assert!(HostAndHeaders::HOST_BITS <= sluicegate_fabric::cee::HOST_BITS);

/// The longest headers, in bytes: Ethernet, IPv6, TCP with full options, and two options of ours.
const HEADERS_MAX: u32 = ETHERNET_BYTES + 40 + 60 + 2 * OPTION_BYTES;

/// The number of a host, and the bytes of all headers. A packet's length is that and its payload: a
/// super-packet's does not fit beside a host's number.
#[derive(Clone, Copy, Debug)]
struct HostAndHeaders(u32);

impl HostAndHeaders {
    const HEADERS_BITS: u32 = 8;
    const HOST_BITS: u32 = u32::BITS - Self::HEADERS_BITS;

    /// `headers` is bounded by [`HEADERS_MAX`], `host` where a scenario is read
    /// ([`crate::limits`]).
    #[inline(always)]
    fn new(host: HostId, headers: u8) -> Self {
        Self(host.0 << Self::HEADERS_BITS | u32::from(headers))
    }

    #[inline(always)]
    fn host(self) -> HostId {
        HostId(self.0 >> Self::HEADERS_BITS)
    }

    #[inline(always)]
    fn headers(self) -> u32 {
        self.0 & ((1 << Self::HEADERS_BITS) - 1)
    }
}

const _: () = assert!(HEADERS_MAX < 1 << HostAndHeaders::HEADERS_BITS);

/// A notification is all header.
const NOTIFICATION_BYTES: u8 = CONTROL_BYTES.to_le_bytes()[0];
const _: () = assert!(NOTIFICATION_BYTES as u32 == CONTROL_BYTES);

/// A packet without its [`ColdFields`]. With the fields that a port keeps of it, it fills one cache
/// line.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// The connection's end that it is for, or [`NO_END`].
    pub to: u32,
    /// Hash of its connection and direction, for switches that choose paths by it.
    pub path: u32,
    /// See [`Packet::host`], and the bytes before the payload.
    host_and_headers: HostAndHeaders,
    /// Its kind and content.
    pub body: Body,
}

const _: () = assert!(size_of::<Packet>() == 44);

impl Packet {
    /// A segment on its way; `ip_bytes` is the length of the IP header.
    #[inline]
    pub fn new(header: TcpHeader, addressing: &Addressing, ip_bytes: u32) -> Self {
        let headers = narrow(ETHERNET_BYTES + ip_bytes + header.len());
        Self {
            to: addressing.peer,
            path: addressing.path,
            host_and_headers: HostAndHeaders::new(addressing.peer_host, headers),
            body: Body::Segment(header),
        }
    }

    /// A datagram on its way.
    pub fn of_datagram(datagram: Datagram, addressing: &Addressing, ip_bytes: u32) -> Self {
        let headers = narrow(ETHERNET_BYTES + ip_bytes + UDP_HEADER_BYTES);
        Self {
            to: NO_END,
            path: addressing.path,
            host_and_headers: HostAndHeaders::new(addressing.peer_host, headers),
            body: Body::Datagram(datagram),
        }
    }

    /// The host that it is for.
    #[inline]
    pub fn host(&self) -> HostId {
        self.host_and_headers.host()
    }

    /// Whether it has [`ColdFields`].
    #[inline]
    pub fn has_cold_fields(&self) -> bool {
        match &self.body {
            Body::Segment(header) => header.has_cold_fields(),
            Body::Datagram(_) => true,
            Body::Notification(_) => false,
        }
    }

    /// Bytes of a tenant's data.
    #[inline]
    pub fn payload(&self) -> u16 {
        match &self.body {
            Body::Segment(header) => header.payload,
            Body::Datagram(datagram) => datagram.payload,
            Body::Notification(notice) => notice.payload,
        }
    }

    /// The message if it is a notification.
    pub fn notification(&self) -> Option<Notification> {
        let Body::Notification(notice) = &self.body else {
            return None;
        };
        Some(Notification {
            source: self.host(),
            queue: notice.queue,
            port: notice.port,
            feedback: notice.feedback,
        })
    }

    /// A hash of its connection and of the numbers in its header.
    pub fn header_hash(&self) -> u32 {
        let numbers = match &self.body {
            Body::Segment(header) => u64::from(header.seq) << 32 | u64::from(header.ack),
            Body::Datagram(datagram) => datagram.number.into(),
            Body::Notification(_) => 0,
        };
        high_half(mix(numbers ^ mix(self.path.into())))
    }

    /// Clears the ECN field.
    pub fn bleach(&mut self) {
        if let Body::Segment(header) = &mut self.body {
            header.ecn = Codepoint::NotEct;
        }
    }
}

impl TcpHeader {
    /// As a tenant sends it.
    #[inline]
    pub fn of(segment: &Segment) -> Self {
        Self {
            seq: segment.seq,
            ack: segment.ack,
            ts_val: segment.ts_val,
            ts_ecr: segment.ts_ecr,
            payload: segment.payload,
            window: segment.window,
            flags: segment.flags,
            ecn: Codepoint::of(segment.ecn),
            options: segment.options,
            counters_end: segment.counters_end,
            ours: 0,
            ceb: [0; 3],
        }
    }

    /// Whether its packet has [`ColdFields`].
    #[inline]
    pub fn has_cold_fields(&self) -> bool {
        self.options & option::CONTENTS != 0 || self.is_syn()
    }

    /// Whether it is a SYN or a SYN/ACK.
    pub fn is_syn(&self) -> bool {
        self.flags & flags::SYN != 0
    }

    /// Whether it tells the sender of data of congestion.
    pub fn echoes_ce(&self) -> bool {
        self.flags & flags::ECE != 0
    }

    /// Bytes of the tenant's data.
    pub fn payload(&self) -> u16 {
        self.payload
    }

    /// The sequence number after its payload.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload.into())
    }

    /// The tenant's segment again.
    #[inline]
    pub fn segment(&self, blocks: &Blocks) -> Segment {
        Segment {
            seq: self.seq,
            ack: self.ack,
            ts_val: self.ts_val,
            ts_ecr: self.ts_ecr,
            payload: self.payload,
            window: self.window,
            flags: self.flags,
            ecn: self.ecn as u8,
            options: self.options,
            counters_end: self.counters_end,
            sack: *blocks,
        }
    }

    /// Its bytes, our options included.
    #[inline]
    fn len(&self) -> u32 {
        let option = |bits| {
            if self.ours & bits != 0 {
                OPTION_BYTES
            } else {
                0
            }
        };
        self.segment(&Blocks::default()).header_len() + option(FEEDBACK) + option(PEER | FACK)
    }

    /// As the enforcement step sees it.
    pub fn view(&self, blocks: &Blocks, direction: core::Direction) -> core::Segment {
        let mut view = core::Segment {
            seq: self.seq,
            ack: self.ack,
            payload: self.payload.into(),
            window: self.window,
            tcp_flags: self.flags,
            ecn: self.ecn as u8,
            direction: direction as u8,
            header_len: narrow(self.len()),
            ..core::Segment::default()
        };
        if self.has_cold_fields() {
            view_options(&self.segment(blocks), &mut view);
        }
        if self.ours != 0 {
            self.view_ours(&mut view);
        }
        view
    }

    fn view_ours(&self, view: &mut core::Segment) {
        if self.ours & FEEDBACK != 0 {
            view.options |= found::FEEDBACK;
            view.e0b = self.ours & COUNTER;
            let [low, middle, high] = self.ceb;
            view.ceb = u32::from_le_bytes([low, middle, high, 0]);
        }
        if self.ours & PEER != 0 {
            view.options |= found::PEER;
        }
        if self.ours & FACK != 0 {
            view.options |= found::FACK;
        }
    }

    /// Makes the edits of a verdict.
    pub fn apply(&mut self, verdict: &core::Verdict) {
        let edits = verdict.edits;
        if edits & edit::WINDOW != 0 {
            self.window = verdict.window;
        }
        if edits & edit::ACK != 0 {
            self.ack = verdict.ack;
        }
        if edits & edit::SEQ != 0 {
            self.seq = verdict.seq_or_mss;
        }
        if edits & edit::ECN != 0 {
            self.ecn = Codepoint::of(verdict.ecn);
        }
        if edits & edit::CLEAR_FLAGS != 0 {
            self.flags &= !verdict.clear_flags;
            // AccECN's third flag belongs to the same offer, as in `sg_frame_fields`.
            if verdict.clear_flags & flags::CWR != 0 {
                self.options &= !option::AE;
            }
        }
        if edits & edit::STRIP_FEEDBACK != 0 {
            self.ours &= !FEEDBACK;
        }
        if edits & edit::STRIP_PEER != 0 {
            self.ours &= !PEER;
        }
        if edits & edit::ADD_FEEDBACK != 0 {
            self.report(verdict);
        }
        if edits & edit::ADD_PEER != 0 {
            self.ours |= PEER;
        }
    }

    /// Adds the feedback option with a verdict's counters.
    fn report(&mut self, verdict: &core::Verdict) {
        let [low, middle, high, _] = verdict.ceb.to_le_bytes();
        self.ours = (self.ours & !COUNTER) | (verdict.e0b & COUNTER) | FEEDBACK;
        self.ceb = [low, middle, high];
    }

    /// A copy of the header alone, with feedback (`sg_fack_header`).
    pub fn fack(&self, verdict: &core::Verdict) -> Self {
        let mut fack = Self {
            payload: 0,
            flags: flags::ACK,
            ecn: Codepoint::Ect0,
            options: 0,
            counters_end: 0,
            ours: FACK,
            ..*self
        };
        fack.report(verdict);
        fack
    }
}

/// MSS and window scale of a SYN, or SACK blocks.
fn view_options(segment: &Segment, view: &mut core::Segment) {
    if segment.flags & flags::SYN != 0 {
        if let Some(mss) = segment.mss() {
            view.options |= found::MSS;
            view.mss = mss;
        }
        if let Some(shift) = segment.wscale() {
            view.options |= found::WSCALE;
            view.wscale = shift;
        }
    } else if let [first, rest @ ..] = &*segment.sack() {
        view.options |= found::SACK;
        (view.sack_left, view.sack_right) = (first.left, first.right);
        if let [Block { left, right }, ..] = rest {
            (view.sack2_left, view.sack2_right) = (*left, *right);
        }
    }
}

impl CeeFrame for Packet {
    fn destination(&self) -> HostId {
        self.host()
    }

    fn notification(sampled: &Self, notification: &Notification) -> Self {
        Self {
            to: NO_END,
            path: sampled.path,
            host_and_headers: HostAndHeaders::new(notification.source, NOTIFICATION_BYTES),
            body: Body::Notification(Notice {
                queue: notification.queue,
                port: notification.port,
                unused: 0,
                payload: 0,
                feedback: notification.feedback,
            }),
        }
    }

    fn path(&self) -> u32 {
        self.path
    }

    fn set_path(&mut self, path: u32) {
        self.path = path;
    }

    fn notice(&self) -> Option<(QueueKey, u8)> {
        match &self.body {
            Body::Notification(notice) => Some((notice.queue, notice.feedback.fb)),
            Body::Segment(_) | Body::Datagram(_) => None,
        }
    }
}

impl Frame for Packet {
    #[inline]
    fn bytes(&self) -> u32 {
        self.host_and_headers.headers() + u32::from(self.payload())
    }

    #[inline]
    fn is_ect(&self) -> bool {
        matches!(&self.body, Body::Segment(header) if header.ecn != Codepoint::NotEct)
    }

    #[inline]
    fn mark(&mut self) {
        if let Body::Segment(header) = &mut self.body {
            header.ecn = Codepoint::Ce;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_tcp::segment::SACK_BLOCKS;

    use super::*;

    #[test]
    fn lengths_follow_options() {
        let addressing = Addressing::default();
        let segment = Segment {
            payload: 1448,
            options: option::TIMESTAMPS,
            flags: flags::ACK,
            ..Segment::default()
        };
        let mut header = TcpHeader::of(&segment);
        assert_eq!(Packet::new(header, &addressing, 20).bytes(), 1514);
        let mut verdict = core::Verdict {
            edits: edit::ADD_FEEDBACK,
            e0b: 0x0112_3456,
            ceb: 7,
            ..core::Verdict::default()
        };
        header.payload = 0;
        header.apply(&verdict);
        assert_eq!(Packet::new(header, &addressing, 20).bytes(), 74);
        let view = header.view(&Blocks::default(), core::Direction::ToTenant);
        assert_eq!((view.e0b, view.ceb, view.header_len), (0x12_3456, 7, 40));
        assert_eq!(view.options, found::FEEDBACK);
        verdict.edits = edit::STRIP_FEEDBACK;
        header.apply(&verdict);
        assert_eq!(Packet::new(header, &addressing, 20).bytes(), 66);
        let view = header.view(&Blocks::default(), core::Direction::ToTenant);
        assert_eq!(view.options, 0);
    }

    #[test]
    fn an_mss_is_lowered_and_the_rest_of_a_syn_stays() {
        let mut syn = Segment::new(7, 0, flags::SYN);
        syn.set_mss(8960);
        syn.set_wscale(9);
        let mut cold = Addressing::default().cold_fields(3, &syn);
        cold.apply(&core::Verdict {
            edits: edit::MSS,
            seq_or_mss: 1460,
            ..core::Verdict::default()
        });
        let read = TcpHeader::of(&syn).segment(&cold.blocks);
        assert_eq!(
            (read.mss(), read.wscale(), read.seq),
            (Some(1460), Some(9), 7)
        );
        cold.apply(&core::Verdict {
            edits: edit::SEQ,
            seq_or_mss: 5,
            ..core::Verdict::default()
        });
        assert_eq!(cold.blocks[0].left, 1460);
    }

    #[test]
    fn all_blocks_travel_and_are_seen() {
        let addressing = Addressing::default();
        for count in 0..=SACK_BLOCKS as u32 {
            let mut segment = Segment::new(1, 2, flags::ACK);
            let block = |number: u32| Block {
                left: 10 * number,
                right: 10 * number + 5,
            };
            (1..=count).for_each(|number| segment.push_sack(block(number)));
            let header = TcpHeader::of(&segment);
            let cold = addressing.cold_fields(3, &segment);
            assert_eq!(header.has_cold_fields(), count > 0);
            assert_eq!(header.segment(&cold.blocks), segment);
            let options = if count > 0 { 4 + 8 * count } else { 0 };
            assert_eq!(Packet::new(header, &addressing, 20).bytes(), 54 + options);
            let view = header.view(&cold.blocks, core::Direction::ToTenant);
            assert_eq!(view.options & found::SACK != 0, count > 0);
            let second = if count > 1 { 20 } else { 0 };
            assert_eq!(
                (view.sack2_left, view.header_len),
                (second, 20 + options as u8)
            );
        }
    }

    #[test]
    fn a_fack_is_a_header_with_feedback_and_our_mark() {
        let segment = Segment {
            payload: 8948,
            options: option::TIMESTAMPS,
            flags: flags::ACK | flags::PSH,
            seq: 7,
            ..Segment::default()
        };
        let fack = TcpHeader::of(&segment).fack(&core::Verdict {
            e0b: 9,
            ceb: 0x0112_3456,
            ..core::Verdict::default()
        });
        assert_eq!(
            Packet::new(fack, &Addressing::default(), 40).bytes(),
            14 + 40 + 36
        );
        let view = fack.view(&Blocks::default(), core::Direction::ToTenant);
        assert_eq!(view.options, found::FEEDBACK | found::FACK);
        assert_eq!((view.seq, view.payload), (7, 0));
        assert_eq!((view.e0b, view.ceb), (9, 0x12_3456));
    }

    proptest! {
        /// Whatever the language allows: any host, the largest super-packet, all options.
        #[test]
        fn hosts_and_lengths_come_back(
            host in prop_oneof![Just(0), Just(HOSTS_MAX - 1), 0..HOSTS_MAX],
            payload in prop_oneof![Just(u16::MAX), Just(16_383), Just(16_384), 0..=u16::MAX],
            is_six in any::<bool>(),
            is_ours in any::<bool>(),
            blocks in 0_u32..=SACK_BLOCKS as u32,
        ) {
            let addressing = Addressing {
                peer_host: HostId::at(host),
                ..Addressing::default()
            };
            let mut segment = Segment {
                payload,
                flags: flags::ACK,
                ..Segment::default()
            };
            (0..blocks).for_each(|at| segment.push_sack(Block { left: at, right: at + 1 }));
            let mut header = TcpHeader::of(&segment);
            if is_ours {
                header.apply(&core::Verdict {
                    edits: edit::ADD_FEEDBACK | edit::ADD_PEER,
                    ..core::Verdict::default()
                });
            }
            let ip_bytes = if is_six { 40 } else { 20 };
            let options = if blocks > 0 { 4 + 8 * blocks } else { 0 } + if is_ours { 16 } else { 0 };
            let packet = Packet::new(header, &addressing, ip_bytes);
            prop_assert_eq!(packet.host().index(), host);
            let bytes = 14 + ip_bytes + 20 + options + u32::from(payload);
            prop_assert_eq!((packet.bytes(), packet.payload()), (bytes, payload));
            let datagram = Datagram { payload, ..Datagram::default() };
            let packet = Packet::of_datagram(datagram, &addressing, ip_bytes);
            let bytes = 14 + ip_bytes + 8 + u32::from(payload);
            prop_assert_eq!((packet.host().index(), packet.bytes()), (host, bytes));
        }
    }

    #[test]
    fn only_segments_are_marked() {
        let datagram = Datagram {
            number: 3,
            end_bytes: 1 << 40,
            sent_ns: 1 << 50,
            payload: 1000,
        };
        let mut packet = Packet::of_datagram(datagram, &Addressing::default(), 20);
        assert_eq!(
            (packet.bytes(), packet.payload()),
            (14 + 20 + 8 + 1000, 1000)
        );
        packet.mark();
        assert!(!packet.is_ect());
        assert_eq!(packet.body, Body::Datagram(datagram));
        let segment = Segment {
            ecn: ecn::ECT0,
            ..Segment::default()
        };
        let mut packet = Packet::new(TcpHeader::of(&segment), &Addressing::default(), 20);
        packet.mark();
        assert!(packet.is_ect());
        packet.bleach();
        assert!(!packet.is_ect());
    }
}
