//! A host with room for one connection: the safe face of `c/sluice/host.h`.
//!
//! ```text
//!  tenant ──frame(FromTenant)──▶ ┌──────┐ ──▶ network      half_open(), flow(), counters()
//!  tenant ◀──frame(ToTenant)──── │ Host │ ◀── network      say what it knows
//!                                └──────┘
//! ```
//!
//! Sans-I/O: frames go in and come out edited, time is an argument. It is the enforcement step with
//! everything around it but a table of flows; the kernel programs do the same to the same frames.

#![allow(unsafe_code)]

use std::mem::{offset_of, size_of};

use crate::abi::{COUNTER_NAMES, Flow, FlowKey, HalfOpen, PolicyTable};

/// An edit makes a frame at most this much longer (`SG_OPTION_LEN`).
pub const OPTION_BYTES: usize = 8;
/// Room for the longest FACK: Ethernet, VLAN tag, IPv6, TCP with two options of ours.
const FACK_BYTES: usize = 128;

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

/// `enum sg_edit_bits`: [`Outcome::edits`].
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
}

/// `enum sg_direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Direction {
    /// What the tenant sends.
    FromTenant = 0,
    /// What the tenant receives.
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
}

/// `struct sg_verdict`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Verdict {
    edits: u16,
    action: u8,
    ecn: u8,
    window: u16,
    clear_flags: u8,
    count: u8,
    e0b: u32,
    ceb: u32,
}

/// `struct sg_host_result`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FrameResult {
    seg: Segment,
    out: Verdict,
    frame_len: u32,
    fack_len: u32,
}

/// `struct sg_host`.
#[repr(C)]
#[derive(Clone)]
struct State {
    policy: PolicyTable,
    counters: [u64; COUNTER_NAMES.len()],
    key: FlowKey,
    half: [HalfOpen; 2],
    flow: Flow,
    flow_exists: u32,
    pad: u32,
}

unsafe extern "C" {
    fn sluice_host_frame(
        host: *mut State,
        data: *mut u8,
        len: u32,
        capacity: u32,
        direction: u32,
        now_ns: u64,
        fack: *mut u8,
        fack_capacity: u32,
        result: *mut FrameResult,
    ) -> u32;
}

/// What a host made of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it goes on.
    pub action: Action,
    /// What was changed in it: bits of [`edit`].
    pub edits: u16,
    /// The window written, as on the wire, if one was.
    pub window: Option<u16>,
    /// The segment as it came.
    pub segment: Segment,
    /// A frame to be sent after this one: feedback in a packet of its own.
    pub fack: Option<Vec<u8>>,
}

/// Enforcement of one policy on one connection.
#[derive(Clone)]
pub struct Host(Box<State>);

impl Host {
    /// A host that has seen nothing yet.
    pub fn new(policy: &PolicyTable) -> Self {
        Self(Box::new(State {
            policy: *policy,
            counters: [0; COUNTER_NAMES.len()],
            key: FlowKey::default(),
            half: <[HalfOpen; 2]>::default(),
            flow: Flow::default(),
            flow_exists: 0,
            pad: 0,
        }))
    }

    /// Passes one Ethernet frame through the host and edits it in place. Anything may be in it;
    /// what cannot be understood passes untouched.
    ///
    /// The caller drops the frame unless [`Outcome::action`] says `Pass`, and sends
    /// [`Outcome::fack`] after it. Frames of more than 2^32 - 9 bytes pass unseen.
    pub fn frame(&mut self, frame: &mut Vec<u8>, direction: Direction, now_ns: u64) -> Outcome {
        let mut result = FrameResult::default();
        let mut fack = [0; FACK_BYTES];
        let length = frame.len();
        let Ok(capacity) = u32::try_from(length + OPTION_BYTES) else {
            return Outcome::new(&result, None);
        };
        frame.resize(length + OPTION_BYTES, 0);
        // SAFETY: mirrors of the C structures, exclusively borrowed; both buffers are as long as
        // the call is told.
        unsafe {
            sluice_host_frame(
                &mut *self.0,
                frame.as_mut_ptr(),
                capacity - OPTION_BYTES as u32,
                capacity,
                direction as u32,
                now_ns,
                fack.as_mut_ptr(),
                FACK_BYTES as u32,
                &mut result,
            );
        }
        frame.truncate(result.frame_len as usize);
        let fack = fack.get(..result.fack_len as usize);
        Outcome::new(&result, fack.filter(|fack| !fack.is_empty()))
    }

    /// The flow, once a handshake or a packet from the middle of a connection made one.
    pub fn flow(&self) -> Option<&Flow> {
        (self.0.flow_exists != 0).then_some(&self.0.flow)
    }

    /// What the last SYN of this direction is remembered by; `None` before any.
    pub fn half_open(&self, direction: Direction) -> Option<&HalfOpen> {
        let half = &self.0.half[direction as usize];
        (half.time_ns != 0).then_some(half)
    }

    /// Key of the flow, or of the last SYN.
    pub fn key(&self) -> &FlowKey {
        &self.0.key
    }

    /// Counters in the order of [`COUNTER_NAMES`].
    pub fn counters(&self) -> &[u64; COUNTER_NAMES.len()] {
        &self.0.counters
    }

    /// The counter called `name` in [`COUNTER_NAMES`]; `None` if there is no such counter.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let index = COUNTER_NAMES.iter().position(|known| *known == name)?;
        Some(self.0.counters[index])
    }

    /// Replaces the policy: parameters reach the flow at its next packet.
    pub fn set_policy(&mut self, policy: &PolicyTable) {
        self.0.policy = *policy;
    }
}

impl Outcome {
    fn new(result: &FrameResult, fack: Option<&[u8]>) -> Self {
        Self {
            action: match result.out.action {
                0 => Action::Pass,
                1 => Action::Drop,
                _ => Action::Consume,
            },
            edits: result.out.edits,
            window: (result.out.edits & edit::WINDOW != 0).then_some(result.out.window),
            segment: result.seg,
            fack: fack.map(<[u8]>::to_vec),
        }
    }
}

const _: () = {
    assert!(size_of::<Segment>() == 52);
    assert!(offset_of!(Segment, header_len) == 17);
    assert!(offset_of!(Segment, mss) == 22);
    assert!(offset_of!(Segment, e0b) == 28);
    assert!(offset_of!(Segment, sack2_right) == 48);
    assert!(size_of::<Verdict>() == 16);
    assert!(offset_of!(Verdict, window) == 4);
    assert!(offset_of!(Verdict, count) == 7);
    assert!(offset_of!(Verdict, e0b) == 8);
    assert!(size_of::<FrameResult>() == 76);
    assert!(offset_of!(FrameResult, out) == 52);
    assert!(offset_of!(FrameResult, frame_len) == 68);
    assert!(size_of::<State>() == 10_400);
    assert!(offset_of!(State, counters) == 9_736);
    assert!(offset_of!(State, key) == 10_048);
    assert!(offset_of!(State, half) == 10_096);
    assert!(offset_of!(State, flow) == 10_144);
    assert!(offset_of!(State, flow_exists) == 10_392);
};
