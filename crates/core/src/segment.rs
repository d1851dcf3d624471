//! One TCP segment as the enforcement step sees it, and what the step wants done to it:
//! `c/sluice/segment.h`.

use std::mem::{offset_of, size_of};

/// The counters of feedback have so many bits (`SG_COUNTER_MASK`).
const COUNTER_MASK: u32 = 0xff_ffff;

/// `enum sg_tcp_flags`.
pub mod tcp {
    #![allow(missing_docs, reason = "the names of RFC 9293 and RFC 3168")]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

/// `enum sg_ecn`: codepoints of RFC 3168.
pub mod ecn {
    #![allow(missing_docs, reason = "the names of RFC 3168")]
    pub const NOT_ECT: u8 = 0;
    pub const ECT1: u8 = 1;
    pub const ECT0: u8 = 2;
    pub const CE: u8 = 3;
}

/// `enum sg_option_bits`: [`Segment::options`].
pub mod option {
    #![allow(missing_docs, reason = "described in c/sluice/segment.h")]
    pub const MSS: u16 = 1 << 0;
    pub const WSCALE: u16 = 1 << 1;
    pub const SACK: u16 = 1 << 2;
    pub const FEEDBACK: u16 = 1 << 3;
    pub const PEER: u16 = 1 << 4;
    pub const FACK: u16 = 1 << 5;
    pub const MPTCP: u16 = 1 << 6;
    pub const SIGNED: u16 = 1 << 7;
    pub const MALFORMED: u16 = 1 << 8;
}

/// `enum sg_edit_bits`: [`Verdict::edits`].
pub mod edit {
    #![allow(missing_docs, reason = "described in c/sluice/segment.h")]
    pub const WINDOW: u16 = 1 << 0;
    pub const ECN: u16 = 1 << 1;
    pub const CLEAR_FLAGS: u16 = 1 << 2;
    pub const ADD_FEEDBACK: u16 = 1 << 3;
    pub const STRIP_FEEDBACK: u16 = 1 << 4;
    pub const ADD_PEER: u16 = 1 << 5;
    pub const STRIP_PEER: u16 = 1 << 6;
    pub const HIDE_MPTCP: u16 = 1 << 7;
    pub const WANT_FACK: u16 = 1 << 8;
    /// No edit: observing, the window would have been lowered.
    pub const WOULD_LOWER: u16 = 1 << 9;
    pub const ACK: u16 = 1 << 10;
    pub const BLANK_REST: u16 = 1 << 11;
    /// No edit: data that no window holds.
    pub const UNHELD: u16 = 1 << 12;
    pub const SEQ: u16 = 1 << 13;
    pub const MSS: u16 = 1 << 14;
}

/// `enum sg_direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Direction {
    /// A packet that the tenant sends.
    FromTenant = 0,
    /// A packet that the tenant receives.
    ToTenant = 1,
}

/// `enum sg_action`: what becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes on, with its edits.
    Pass,
    /// Policed.
    Drop,
    /// A FACK: it was for this host.
    Consume,
}

/// `struct sg_segment`: a TCP segment as the step saw it, in host byte order. Fields as in
/// `segment.h`; all zero for a frame that is no TCP of ours.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is described in c/sluice/segment.h")]
pub struct Segment {
    pub seq: u32,
    pub ack: u32,
    pub payload: u32,
    pub window: u16,
    pub tcp_flags: u8,
    pub ecn: u8,
    pub direction: u8,
    pub header_len: u8,
    pub options: u16,
    pub peer_trusted: u8,
    pub wscale: u8,
    pub mss: u16,
    pub feedback_at: u8,
    pub peer_at: u8,
    pub mptcp_at: u8,
    pub mptcp_len: u8,
    pub e0b: u32,
    pub ceb: u32,
    pub sack_left: u32,
    pub sack_right: u32,
    pub sack2_left: u32,
    pub sack2_right: u32,
    pub end_at: u8,
    pub damaged: u8,
    pub mss_at: u8,
    pub segment_units: u8,
}

/// Unit of the size of a super-packet's segments (`SG_SEGMENT_UNIT`).
const SEGMENT_UNIT: u16 = 256;

impl Segment {
    /// It is a super-packet, of segments with so much payload each.
    #[inline]
    pub fn set_segment_bytes(&mut self, bytes: u16) {
        let units = bytes.div_ceil(SEGMENT_UNIT);
        self.segment_units = u8::try_from(units).unwrap_or(u8::MAX);
    }

    /// Brings the feedback that this verdict on it has added, or none.
    #[inline]
    pub fn set_feedback(&mut self, verdict: &Verdict) {
        self.options &= !option::FEEDBACK;
        if verdict.edits & edit::ADD_FEEDBACK != 0 {
            self.options |= option::FEEDBACK;
            (self.e0b, self.ceb) = (verdict.e0b & COUNTER_MASK, verdict.ceb & COUNTER_MASK);
        }
    }
}

/// `struct sg_verdict`: what the step wants done to a segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Bits of [`edit`].
    pub edits: u16,
    /// `enum sg_action`; see [`Verdict::action`].
    pub action: u8,
    /// With [`edit::ECN`].
    pub ecn: u8,
    /// With [`edit::WINDOW`], as on the wire.
    pub window: u16,
    /// With [`edit::CLEAR_FLAGS`].
    pub clear_flags: u8,
    /// Number of the counter that moves ([`crate::abi::COUNTER_NAMES`]); 0 = none.
    pub count: u8,
    /// With [`edit::ADD_FEEDBACK`] or [`edit::WANT_FACK`].
    pub e0b: u32,
    /// With [`edit::ADD_FEEDBACK`] or [`edit::WANT_FACK`].
    pub ceb: u32,
    /// With [`edit::ACK`].
    pub ack: u32,
    /// With [`edit::SEQ`] the sequence number, with [`edit::MSS`] the value of the option.
    pub seq_or_mss: u32,
}

impl Verdict {
    /// The fate of the packet.
    pub fn action(&self) -> Action {
        match self.action {
            0 => Action::Pass,
            1 => Action::Drop,
            _ => Action::Consume,
        }
    }
}

const _: () = {
    assert!(size_of::<Segment>() == 56);
    assert!(offset_of!(Segment, header_len) == 17);
    assert!(offset_of!(Segment, mss) == 22);
    assert!(offset_of!(Segment, e0b) == 28);
    assert!(offset_of!(Segment, sack2_right) == 48);
    assert!(size_of::<Verdict>() == 24);
    assert!(offset_of!(Verdict, window) == 4);
    assert!(offset_of!(Verdict, count) == 7);
    assert!(offset_of!(Verdict, e0b) == 8);
};
