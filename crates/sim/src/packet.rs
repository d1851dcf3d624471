//! What travels between hosts: a tenant's segment and what hosts add to it.

use sluicegate_core::segment::{self as core, edit, option as found};
use sluicegate_fabric::{
    Frame,
    cee::{CONTROL_BYTES, CeeFrame, Feedback, Notification},
};
use sluicegate_tcp::segment::{Block, SACK_BLOCKS, Segment, ecn, flags};

/// Ethernet header, as queues count it.
pub const ETHERNET_BYTES: u32 = 14;

/// Length of each option of ours (`SG_OPTION_LEN`).
const OPTION_BYTES: u32 = 8;

/// TCP header of a FACK: feedback and our mark.
const FACK_HEADER_BYTES: u32 = 20 + 2 * OPTION_BYTES;

/// [`Packet::sack_count`] of a datagram: no segment has so many.
const DATAGRAM: u8 = u8::MAX;

/// [`Packet::ours`]: the feedback option, with counters.
const FEEDBACK: u32 = 1 << 24;
/// The option by which hosts recognise each other.
const PEER: u32 = 1 << 25;
/// The same with the FACK bit.
const FACK: u32 = 1 << 26;
/// It is no segment but a congestion notification: `seq` has Fb and what goes with it, `ack` the destination and priority
/// that are congested.
const NOTIFICATION: u32 = 1 << 27;
/// Counters are 24 bits.
const COUNTER: u32 = (1 << 24) - 1;

/// SACK blocks of a segment, or a SYN's MSS and window scale.
pub type Blocks = [Block; SACK_BLOCKS];

/// What few packets have, kept apart from what every hop touches: blocks, and of a SYN or a datagram who sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside {
    /// The options' contents.
    pub blocks: Blocks,
    /// Of a SYN or a datagram: the sender's tenant, and the receiver's.
    pub tenants: [u32; 2],
    /// Of a SYN or a datagram: their ports.
    pub ports: [u16; 2],
    /// Of a SYN or a datagram: what the sender calls its end.
    pub from: u32,
}

/// Of a packet that has none.
pub const NOTHING_ASIDE: Aside = Aside {
    blocks: [Block { left: 0, right: 0 }; SACK_BLOCKS],
    tenants: [0; 2],
    ports: [0; 2],
    from: NO_END,
};

/// [`Packet::to`] of a SYN: the receiver's end has yet to be found or made.
pub const NO_END: u32 = u32::MAX;

/// From one end of a connection to the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Way {
    /// The tenant here.
    pub tenant: u32,
    /// The tenant there.
    pub peer_tenant: u32,
    /// What the peer's part calls the other end; [`NO_END`] until it has said so.
    pub peer: u32,
    /// Hash of the connection as its packets carry it from here.
    pub path: u32,
    /// The port here.
    pub port: u16,
    /// The port there.
    pub peer_port: u16,
    /// The host where the other end lives.
    pub peer_host: u16,
}

impl Way {
    /// What a packet of the end `from` has aside.
    pub fn aside(&self, from: u32, segment: &Segment) -> Aside {
        Aside {
            blocks: segment.sack,
            tenants: [self.tenant, self.peer_tenant],
            ports: [self.port, self.peer_port],
            from,
        }
    }
}

/// UDP header (RFC 768).
pub const UDP_HEADER_BYTES: u32 = 8;

/// A tenant's datagram: a UDP header and so much payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// A packet without its [`Aside`]: with what a port keeps of it, one cache line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    seq: u32,
    ack: u32,
    ts_val: u32,
    ts_ecr: u32,
    payload: u16,
    window: u16,
    flags: u8,
    ecn: u8,
    options: u8,
    sack_count: u8,
    /// Which of our options it carries, and EE0B.
    ours: u32,
    ceb: u32,
    /// The connection's end that it is for, or [`NO_END`].
    pub to: u32,
    /// Hash of its connection and direction, for switches that choose paths by it.
    pub path: u32,
    /// The host where that end lives.
    pub host: u16,
    /// Length of IP packet and Ethernet header.
    bytes: u16,
}

const _: () = assert!(size_of::<Packet>() == 44);

impl Packet {
    /// A segment on its way; `ip_bytes` is the length of the IP header.
    #[inline]
    pub fn new(segment: &Segment, way: &Way, ip_bytes: u32) -> Self {
        let length = ETHERNET_BYTES + ip_bytes + segment.header_len() + u32::from(segment.payload);
        Self {
            seq: segment.seq,
            ack: segment.ack,
            ts_val: segment.ts_val,
            ts_ecr: segment.ts_ecr,
            payload: segment.payload,
            window: segment.window,
            flags: segment.flags,
            ecn: segment.ecn,
            options: segment.options,
            sack_count: segment.sack_count,
            ours: 0,
            ceb: 0,
            to: way.peer,
            path: way.path,
            host: way.peer_host,
            bytes: length as u16,
        }
    }

    /// A datagram on its way. Its numbers are where a segment has its own.
    pub fn of_datagram(datagram: &Datagram, way: &Way, ip_bytes: u32) -> Self {
        let length = ETHERNET_BYTES + ip_bytes + UDP_HEADER_BYTES + u32::from(datagram.payload);
        Self {
            seq: datagram.number,
            ack: (datagram.end_bytes >> 32) as u32,
            ceb: datagram.end_bytes as u32,
            ts_val: (datagram.sent_ns >> 32) as u32,
            ts_ecr: datagram.sent_ns as u32,
            payload: datagram.payload,
            sack_count: DATAGRAM,
            ecn: ecn::NOT_ECT,
            to: NO_END,
            path: way.path,
            host: way.peer_host,
            bytes: length as u16,
            ..Self::default()
        }
    }

    /// Whether it is a datagram and no segment.
    pub fn is_datagram(&self) -> bool {
        self.sack_count == DATAGRAM
    }

    /// The tenant's datagram again.
    pub fn datagram(&self) -> Datagram {
        let long = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Datagram {
            number: self.seq,
            end_bytes: long(self.ack, self.ceb),
            sent_ns: long(self.ts_val, self.ts_ecr),
            payload: self.payload,
        }
    }

    /// Whether it needs an [`Aside`].
    pub fn has_aside(&self) -> bool {
        self.sack_count > 0 || self.flags & flags::SYN != 0
    }

    /// Whether it opens a connection or answers such a one.
    pub fn is_syn(&self) -> bool {
        self.flags & flags::SYN != 0
    }

    /// What a congestion notification says.
    pub fn cnm(&self) -> Option<Notification> {
        let is_one = self.ours & NOTIFICATION != 0;
        is_one.then_some(Notification {
            source: self.host,
            destination: self.ack as u16,
            priority: (self.ack >> 16) as u8,
            port: self.ts_ecr,
            feedback: Feedback {
                fb: self.seq as u8,
                q_off: self.ts_val as u16 as i16,
                q_delta: (self.ts_val >> 16) as u16 as i16,
            },
        })
    }

    /// Bytes of data.
    pub fn payload(&self) -> u16 {
        self.payload
    }

    /// The tenant's segment again.
    pub fn segment(&self, blocks: &Blocks) -> Segment {
        Segment {
            seq: self.seq,
            ack: self.ack,
            ts_val: self.ts_val,
            ts_ecr: self.ts_ecr,
            payload: self.payload,
            window: self.window,
            flags: self.flags,
            ecn: self.ecn,
            options: self.options,
            sack_count: self.sack_count,
            sack: *blocks,
        }
    }

    /// Clears the ECN field.
    pub fn bleach(&mut self) {
        self.ecn = ecn::NOT_ECT;
    }

    /// Bytes of the TCP header with our options.
    fn tcp_header_len(&self) -> u32 {
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
            ecn: self.ecn,
            direction: direction as u8,
            header_len: self.tcp_header_len() as u8,
            ..core::Segment::default()
        };
        if self.has_aside() {
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
            view.ceb = self.ceb;
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
        if edits & edit::ECN != 0 {
            self.ecn = verdict.ecn;
        }
        if edits & edit::CLEAR_FLAGS != 0 {
            self.flags &= !verdict.clear_flags;
        }
        if edits & edit::STRIP_FEEDBACK != 0 {
            self.strip(FEEDBACK);
        }
        if edits & edit::STRIP_PEER != 0 {
            self.strip(PEER);
        }
        if edits & edit::ADD_FEEDBACK != 0 {
            self.ours = (self.ours & !COUNTER) | (verdict.e0b & COUNTER);
            self.ceb = verdict.ceb & COUNTER;
            self.add(FEEDBACK);
        }
        if edits & edit::ADD_PEER != 0 {
            self.add(PEER);
        }
    }

    fn add(&mut self, option: u32) {
        self.ours |= option;
        self.bytes += OPTION_BYTES as u16;
    }

    fn strip(&mut self, option: u32) {
        if self.ours & option != 0 {
            self.ours &= !option;
            self.bytes -= OPTION_BYTES as u16;
        }
    }

    /// A header-only copy with feedback (`sg_fack_header`).
    pub fn fack(&self, verdict: &core::Verdict) -> Self {
        let carried = self.tcp_header_len() + u32::from(self.payload);
        Self {
            payload: 0,
            flags: flags::ACK,
            ecn: ecn::ECT0,
            options: 0,
            sack_count: 0,
            ours: (verdict.e0b & COUNTER) | FEEDBACK | FACK,
            ceb: verdict.ceb & COUNTER,
            bytes: (u32::from(self.bytes) - carried + FACK_HEADER_BYTES) as u16,
            ..*self
        }
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
    } else if let [first, rest @ ..] = segment.sack() {
        view.options |= found::SACK;
        (view.sack_left, view.sack_right) = (first.left, first.right);
        if let [Block { left, right }, ..] = rest {
            (view.sack2_left, view.sack2_right) = (*left, *right);
        }
    }
}

impl CeeFrame for Packet {
    fn destination(&self) -> u16 {
        self.host
    }

    fn notification(sampled: &Self, notification: &Notification) -> Self {
        let Notification {
            source,
            destination,
            priority,
            port,
            feedback,
        } = *notification;
        Self {
            seq: feedback.fb.into(),
            ack: u32::from(priority) << 16 | u32::from(destination),
            ts_val: feedback.q_off as u16 as u32 | (feedback.q_delta as u16 as u32) << 16,
            ts_ecr: port,
            ours: NOTIFICATION,
            to: NO_END,
            path: sampled.path,
            host: source,
            bytes: CONTROL_BYTES as u16,
            ..Self::default()
        }
    }

    fn notice(&self) -> Option<(u16, u8, u8)> {
        let is_one = self.ours & NOTIFICATION != 0;
        is_one.then_some((self.ack as u16, (self.ack >> 16) as u8, self.seq as u8))
    }
}

impl Frame for Packet {
    fn bytes(&self) -> u32 {
        self.bytes.into()
    }

    fn is_ect(&self) -> bool {
        self.ecn != ecn::NOT_ECT
    }

    fn mark(&mut self) {
        self.ecn = ecn::CE;
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_tcp::segment::option;

    use super::*;

    #[test]
    fn lengths_follow_options() {
        let segment = Segment {
            payload: 1448,
            options: option::TIMESTAMPS,
            flags: flags::ACK,
            ..Segment::default()
        };
        let mut packet = Packet::new(&segment, &Way::default(), 20);
        assert_eq!(packet.bytes(), 1514);
        let mut verdict = core::Verdict {
            edits: edit::ADD_FEEDBACK,
            e0b: 0x0112_3456,
            ceb: 7,
            ..core::Verdict::default()
        };
        packet.payload = 0;
        packet.bytes -= 1448;
        packet.apply(&verdict);
        assert_eq!(packet.bytes(), 74);
        let view = packet.view(&Blocks::default(), core::Direction::ToTenant);
        assert_eq!((view.e0b, view.ceb, view.header_len), (0x12_3456, 7, 40));
        assert_eq!(view.options, found::FEEDBACK);
        verdict.edits = edit::STRIP_FEEDBACK;
        packet.apply(&verdict);
        assert_eq!(packet.bytes(), 66);
        assert_eq!(
            packet
                .view(&Blocks::default(), core::Direction::ToTenant)
                .options,
            0
        );
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
        let fack = Packet::new(&segment, &Way::default(), 40).fack(&core::Verdict {
            e0b: 9,
            ..core::Verdict::default()
        });
        assert_eq!(fack.bytes(), 14 + 40 + 36);
        let view = fack.view(&Blocks::default(), core::Direction::ToTenant);
        assert_eq!(view.options, found::FEEDBACK | found::FACK);
        assert_eq!((view.seq, view.payload, view.e0b), (7, 0, 9));
    }
}
