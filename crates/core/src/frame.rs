//! Frames in memory, read and edited: the safe face of `c/sluice/frame.h`.
//!
//! ```text
//!  frame ──Packet::parse──▶ key, segment ──a table, the step──▶ verdict ──Packet::apply──▶ frame
//! ```
//!
//! Headers are enough where the payload stays elsewhere; [`Packet::wants_all`] says when not.

#![allow(unsafe_code)]

use std::{
    marker::PhantomData,
    mem::{offset_of, size_of},
};

use crate::{
    abi::FlowKey,
    host::OPTION_BYTES,
    number::narrow,
    segment::{Direction, Segment, Verdict, ecn, edit, option, tcp},
};

/// Room for the longest FACK: Ethernet, a tag, IPv6, TCP with two options of ours.
pub const FACK_BYTES: usize = 128;

/// The longest headers that are read: Ethernet, a tag, IPv6, TCP with all options.
pub const HEADERS_BYTES: usize = 118;

unsafe extern "C" {
    fn sluice_frame_parse(packet: &mut Packet, frame: &Frame<'_>, direction: u32) -> u32;
    fn sluice_frame_wants_all(packet: &Packet, frame: &Frame<'_>) -> u32;
    fn sluice_frame_trim(packet: &Packet, frame: &mut Frame<'_>);
    fn sluice_frame_apply(packet: &mut Packet, frame: &mut Frame<'_>, verdict: &Verdict);
    fn sluice_frame_fack(
        packet: &Packet,
        frame: &Frame<'_>,
        verdict: &Verdict,
        to: *mut u8,
        capacity: u32,
    ) -> u32;
}

/// An Ethernet frame, or its beginning (`struct sg_frame`).
#[repr(C)]
#[derive(Debug)]
pub struct Frame<'a> {
    data: *mut u8,
    bytes: u32,
    capacity: u32,
    reach: u32,
    partial: u32,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Frame<'a> {
    /// A frame of `bytes` bytes. `data` begins with it: with all of it, or with
    /// [`HEADERS_BYTES`] at least. What is behind the frame in `data` is room for an option.
    /// `is_partial`: its TCP checksum is that of the pseudo-header, and another sums the rest.
    pub fn new(data: &'a mut [u8], bytes: u32, is_partial: bool) -> Self {
        let capacity = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self {
            data: data.as_mut_ptr(),
            bytes,
            capacity,
            reach: bytes.min(capacity),
            partial: is_partial.into(),
            borrowed: PhantomData,
        }
    }

    /// Its length in bytes, after edits that changed it.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// A TCP segment in a frame (`struct sg_packet`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    key: FlowKey,
    segment: Segment,
    l3_at: u16,
    l4_at: u16,
    l4_bytes: u32,
    ipv6: u16,
    trim: u16,
}

impl Packet {
    /// Reads the headers of a frame at a tenant's interface.
    ///
    /// # Errors
    /// The counter, an index of [`crate::abi::COUNTER_NAMES`], that says why this is no TCP segment
    /// that can be tracked.
    #[inline]
    pub fn parse(frame: &Frame<'_>, direction: Direction, ifindex: u32) -> Result<Self, usize> {
        let mut packet = Self::default();
        packet.read(frame, direction, ifindex).map(|()| packet)
    }

    /// As [`Packet::parse`], in place of what it was.
    ///
    /// # Errors
    /// As [`Packet::parse`].
    #[inline]
    pub fn read(
        &mut self,
        frame: &Frame<'_>,
        direction: Direction,
        ifindex: u32,
    ) -> Result<(), usize> {
        *self = Self::default();
        self.key.ifindex = ifindex;
        // SAFETY: mirrors of the C structures; `reach` bytes at most are read, which `data` has.
        match unsafe { sluice_frame_parse(self, frame, direction as u32) } {
            0 => Ok(()),
            why => Err(why as usize),
        }
    }

    /// It is a super-packet, of segments with so much payload each.
    #[inline]
    pub fn set_segment_bytes(&mut self, bytes: u16) {
        self.segment.set_segment_bytes(bytes);
    }

    /// Whether it has to be parsed again from the whole frame: a SYN with data, which an option
    /// moves, or a marked segment, whose checksum decides whether the mark counts.
    #[inline]
    pub fn wants_all(&self, frame: &Frame<'_>) -> bool {
        let seg = &self.segment;
        let may = seg.payload != 0 && (seg.tcp_flags & tcp::SYN != 0 || seg.ecn == ecn::CE);
        // SAFETY: as in `parse`.
        may && unsafe { sluice_frame_wants_all(self, frame) != 0 }
    }

    /// Whether [`Packet::turn`] can tell what these edits make of it.
    #[inline]
    pub fn turns(&self, verdict: &Verdict) -> bool {
        const NO_OTHERS: u16 =
            edit::ECN | edit::ADD_FEEDBACK | edit::WANT_FACK | edit::WOULD_LOWER | edit::UNHELD;
        let seg = &self.segment;
        let ecn = match verdict.edits & edit::ECN {
            0 => seg.ecn,
            _ => verdict.ecn,
        };
        let adds = verdict.edits & edit::ADD_FEEDBACK != 0;
        let has_room = seg.payload == 0 && seg.options & option::FEEDBACK == 0;
        // Whether a marked one is damaged is for the receiver's side to find out.
        verdict.edits & !NO_OTHERS == 0 && ecn != ecn::CE && (!adds || has_room)
    }

    /// Becomes what [`Packet::parse`] would read at the interface with this number of the tenant
    /// that receives the frame, after it was parsed at that of its sender, and were the edits of
    /// this verdict applied, which [`Packet::turns`] allows.
    #[inline]
    pub fn turn(&mut self, verdict: &Verdict, ifindex: u32) {
        self.exchange(Direction::ToTenant, ifindex);
        let seg = &mut self.segment;
        if verdict.edits & edit::ECN != 0 {
            seg.ecn = verdict.ecn;
        }
        seg.peer_trusted = 0;
        self.trim = 0;
        if verdict.edits & edit::ADD_FEEDBACK != 0 {
            seg.set_feedback(verdict);
            seg.feedback_at = seg.header_len;
            self.lengthen(narrow::<i8>(OPTION_BYTES));
        }
    }

    /// Undoes [`Packet::turn`], for the edits to be applied at the sender's interface, which has
    /// this number.
    pub fn turn_back(&mut self, verdict: &Verdict, ifindex: u32) {
        self.exchange(Direction::FromTenant, ifindex);
        self.take_back(verdict);
    }

    /// After [`Packet::turn`]: the option that was to be added is not, since the receiver's side
    /// would remove it.
    #[inline]
    pub fn take_back(&mut self, verdict: &Verdict) {
        if verdict.edits & edit::ADD_FEEDBACK != 0 {
            self.segment.options &= !option::FEEDBACK;
            self.lengthen(-narrow::<i8>(OPTION_BYTES));
        }
    }

    fn exchange(&mut self, direction: Direction, ifindex: u32) {
        let key = &mut self.key;
        std::mem::swap(&mut key.local, &mut key.remote);
        std::mem::swap(&mut key.local_port, &mut key.remote_port);
        key.ifindex = ifindex;
        self.segment.direction = direction as u8;
    }

    fn lengthen(&mut self, bytes: i8) {
        let seg = &mut self.segment;
        seg.header_len = seg.header_len.wrapping_add_signed(bytes);
        self.l4_bytes = self.l4_bytes.wrapping_add_signed(bytes.into());
    }

    /// Whether a tenant has put bytes behind its IP packet, which have to go where a rule enforces.
    pub fn needs_trim(&self) -> bool {
        self.trim != 0
    }

    /// Cuts the frame to its IP packet.
    pub fn trim(&self, frame: &mut Frame<'_>) {
        if self.fits(frame) {
            // SAFETY: it only makes the frame shorter.
            unsafe { sluice_frame_trim(self, frame) };
        }
    }

    /// The ends of its connection.
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The VLAN in which the tenant has this frame; 0 = untagged.
    pub fn set_vlan(&mut self, vlan: u16) {
        self.key.vlan = vlan;
    }

    /// The segment as it came.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The same, for the step to fill in what it knows.
    pub fn segment_mut(&mut self) -> &mut Segment {
        &mut self.segment
    }

    /// Offset of the IP header in the frame.
    pub fn ip_at(&self) -> u16 {
        self.l3_at
    }

    /// Whether that is one of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6 != 0
    }

    /// Offset of the TCP header in the frame.
    pub fn tcp_at(&self) -> u16 {
        self.l4_at
    }

    /// Applies the edits of a verdict that passes. `false`: the frame is not the one that was
    /// parsed, and nothing was done.
    #[inline]
    pub fn apply(&mut self, frame: &mut Frame<'_>, verdict: &Verdict) -> bool {
        if !self.fits(frame) || !self.has_places(verdict.edits) {
            return false;
        }
        // SAFETY: the header is within `data`, the places of options are within the header, and
        // an option that is added is checked against the capacity.
        unsafe { sluice_frame_apply(self, frame, verdict) };
        true
    }

    /// Feedback in a packet of its own, after the edits; its checksums are complete.
    pub fn fack(&self, frame: &Frame<'_>, verdict: &Verdict) -> Option<Vec<u8>> {
        let mut fack = vec![0; FACK_BYTES];
        if !self.fits(frame) {
            return None;
        }
        let to = fack.as_mut_ptr();
        // SAFETY: the headers are within `data`; the buffer is as long as the call is told.
        let bytes =
            unsafe { sluice_frame_fack(self, frame, verdict, to, narrow::<u32>(FACK_BYTES)) };
        fack.truncate(bytes as usize);
        (!fack.is_empty()).then_some(fack)
    }

    fn header_end(&self) -> u32 {
        u32::from(self.l4_at) + u32::from(self.segment.header_len)
    }

    fn fits(&self, frame: &Frame<'_>) -> bool {
        let ends = u32::from(self.l4_at) + self.l4_bytes;
        self.l4_at >= 34 && self.header_end() <= frame.reach && ends <= frame.bytes
    }

    /// Whether the places of what is edited are within the header.
    fn has_places(&self, edits: u16) -> bool {
        let seg = &self.segment;
        let ends = [
            (
                edit::STRIP_FEEDBACK,
                seg.feedback_at,
                narrow::<u8>(OPTION_BYTES),
            ),
            (edit::STRIP_PEER, seg.peer_at, narrow::<u8>(OPTION_BYTES)),
            (edit::HIDE_MPTCP, seg.mptcp_at, seg.mptcp_len),
            (edit::MSS, seg.mss_at, 4),
            (edit::BLANK_REST, seg.end_at, 0),
        ];
        let header = 20..=60;
        header.contains(&seg.header_len)
            && u64::from(seg.header_len) + u64::from(seg.payload) == u64::from(self.l4_bytes)
            && ends.iter().all(|&(bit, at, length)| {
                edits & bit == 0 || u16::from(at) + u16::from(length) <= seg.header_len.into()
            })
    }
}

const _: () = {
    assert!(size_of::<Packet>() == 112);
    assert!(offset_of!(Packet, segment) == 44);
    assert!(offset_of!(Packet, l4_bytes) == 104);
    assert!(size_of::<Frame<'_>>() == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of IPv4 or IPv6 with these flags, codepoint and payload, and with padding.
    fn frame(is_ipv6: bool, flags: u8, ecn: u8, payload: u16) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        let length = 20 + payload;
        if is_ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, ecn << 4, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([6, 64]);
            bytes.extend((0..32).map(|at| 0x20 + at));
        } else {
            bytes.extend([8, 0, 0x45, ecn]);
            bytes.extend((20 + length).to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        bytes.extend([0x0b, 0xb8, 0x1f, 0x90, 0, 0, 1, 0, 0, 0, 2, 0]);
        bytes.extend([0x50, flags, 0xff, 0, 0, 0, 0, 0]);
        bytes.extend(vec![7; usize::from(payload)]);
        bytes.resize(bytes.len().max(60), 0);
        bytes
    }

    #[test]
    fn a_packet_that_turns_is_what_its_receiver_side_would_read() {
        let mut turned = 0;
        for is_ipv6 in [false, true] {
            for (flags, payload) in [(tcp::ACK, 0), (tcp::ACK, 10), (tcp::ACK | tcp::FIN, 1400)] {
                for edits in [0, edit::ECN, edit::UNHELD, edit::ADD_FEEDBACK, edit::SEQ] {
                    let mut bytes = frame(is_ipv6, flags, ecn::NOT_ECT, payload);
                    let length = bytes.len() as u32;
                    bytes.resize(bytes.len() + OPTION_BYTES, 0);
                    let mut view = Frame::new(&mut bytes, length, false);
                    let sent = Direction::FromTenant;
                    let packet = Packet::parse(&view, sent, 3).expect("a segment");
                    let verdict = Verdict {
                        edits,
                        ecn: ecn::ECT0,
                        e0b: 0x12_3456,
                        ceb: 7,
                        ..Verdict::default()
                    };
                    let mut ahead = packet;
                    let mut made = packet;
                    assert!(made.apply(&mut view, &verdict));
                    if !packet.turns(&verdict) {
                        assert!(edits == edit::SEQ || edits == edit::ADD_FEEDBACK && payload > 0);
                        continue;
                    }
                    ahead.turn(&verdict, 4);
                    let read = Packet::parse(&view, Direction::ToTenant, 4);
                    assert_eq!(read, Ok(ahead), "{edits:#x} {flags:#x} {payload}");
                    let mut back = ahead;
                    back.turn_back(&verdict, 3);
                    assert_eq!((back.key(), back.l4_bytes), (packet.key(), packet.l4_bytes));
                    turned += 1;
                }
            }
        }
        assert_eq!(turned, 2 * (3 * 3 + 1));
        let mut bytes = frame(false, tcp::ACK, ecn::CE, 10);
        let length = bytes.len() as u32;
        let view = Frame::new(&mut bytes, length, false);
        let packet = Packet::parse(&view, Direction::FromTenant, 3).expect("a segment");
        assert!(!packet.turns(&Verdict::default()), "its checksum counts");
    }
}
