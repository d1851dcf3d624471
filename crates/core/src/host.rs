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

pub use crate::segment::{Action, Direction, Segment, Verdict, ecn, edit, option, tcp};

use crate::{
    abi::{Blackhole, COUNTER_NAMES, Flow, FlowKey, HalfOpen, PolicyTable, Remembered, Scope},
    number::narrow,
    path::Path,
};

/// An edit makes a frame at most this much longer (`SG_OPTION_LEN`).
pub const OPTION_BYTES: usize = 8;
/// Room for the longest FACK: Ethernet, VLAN tag, IPv6, TCP with two options of ours.
const FACK_BYTES: usize = 128;

/// `struct sg_host_result`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FrameResult {
    seg: Segment,
    out: Verdict,
    frame_len: u32,
    fack_len: u32,
    unheld: u32,
}

/// `struct sg_host`.
#[repr(C)]
#[derive(Clone)]
struct State {
    policy: PolicyTable,
    scope: Scope,
    counters: [u64; COUNTER_NAMES.len()],
    key: FlowKey,
    half: [HalfOpen; 2],
    answer: HalfOpen,
    flow: Flow,
    known: Remembered,
    blackhole: Blackhole,
    flow_exists: u32,
    answered: u32,
    path: Path,
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

/// The result of a host for one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it goes on.
    pub action: Action,
    /// The edits made: bits of [`edit`].
    pub edits: u16,
    /// The window written, as on the wire, if one was.
    pub window: Option<u16>,
    /// The segment as it came.
    pub segment: Segment,
    /// A frame to be sent after this one: feedback in a packet of its own.
    pub fack: Option<Vec<u8>>,
    /// Data of the tenant that no window holds: a bucket is to be charged with it.
    pub unheld: bool,
}

/// Enforcement of one policy on one connection.
#[derive(Clone)]
pub struct Host(Box<State>);

impl Host {
    /// A host that has seen nothing yet.
    pub fn new(policy: &PolicyTable) -> Self {
        Self(Box::new(State {
            policy: *policy,
            scope: Scope::ALL,
            counters: [0; COUNTER_NAMES.len()],
            key: FlowKey::default(),
            half: <[HalfOpen; 2]>::default(),
            answer: HalfOpen::default(),
            flow: Flow::default(),
            known: Remembered::default(),
            blackhole: Blackhole::default(),
            flow_exists: 0,
            answered: 0,
            path: Path::default(),
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
                capacity - narrow::<u32>(OPTION_BYTES),
                capacity,
                direction as u32,
                now_ns,
                fack.as_mut_ptr(),
                narrow::<u32>(FACK_BYTES),
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

    /// The half-open connection of the last SYN of this direction; `None` before any.
    pub fn half_open(&self, direction: Direction) -> Option<&HalfOpen> {
        let half = &self.0.half[direction as usize];
        (half.time_ns != 0).then_some(half)
    }

    /// The note of a handshake of which only the SYN/ACK was read.
    pub fn answer(&self) -> Option<&HalfOpen> {
        (self.0.answer.time_ns != 0).then_some(&self.0.answer)
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

    /// Sets the facts about a connection that will be met in midstream.
    pub fn set_known(&mut self, known: Remembered) {
        self.0.known = known;
    }

    /// What the flows to its flow's peer have met.
    pub fn path(&self) -> Path {
        self.0.path
    }

    /// Other flows to that peer have met something, too.
    pub fn set_path(&mut self, path: Path) {
        self.0.path = path;
    }

    /// What is at its last peer's place of those that hosts' options do not reach.
    pub fn blackhole(&self) -> &Blackhole {
        &self.0.blackhole
    }

    /// Other connections have found out about that peer, or about one with the same place.
    pub fn set_blackhole(&mut self, known: Blackhole) {
        self.0.blackhole = known;
    }

    /// Replaces the policy: parameters reach the flow at its next packet.
    pub fn set_policy(&mut self, policy: &PolicyTable) {
        self.0.policy = *policy;
    }
}

impl Outcome {
    fn new(result: &FrameResult, fack: Option<&[u8]>) -> Self {
        Self {
            action: result.out.action(),
            edits: result.out.edits & !(edit::WOULD_LOWER | edit::UNHELD),
            window: (result.out.edits & edit::WINDOW != 0).then_some(result.out.window),
            segment: result.seg,
            fack: fack.map(<[u8]>::to_vec),
            unheld: result.unheld != 0,
        }
    }
}

const _: () = {
    assert!(size_of::<FrameResult>() == 92);
    assert!(offset_of!(FrameResult, out) == 56);
    assert!(offset_of!(FrameResult, frame_len) == 80);
    assert!(offset_of!(State, counters) == size_of::<PolicyTable>() + size_of::<Scope>());
    assert!(size_of::<State>() == 20_568);
    assert!(offset_of!(State, flow_exists) == 20_552);
};
