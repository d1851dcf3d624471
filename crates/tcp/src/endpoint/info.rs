//! The state that a connection reports beside [`super::Stats`]: the rest of Linux's `tcp_info`.

use super::{Endpoint, Phase, accecn::AccurateInfo};

/// How the sender answers to losses and marks now (Linux's `tcp_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// Nothing is out of order.
    Open,
    /// Duplicate ACKs or SACK blocks, but no loss yet.
    Disorder,
    /// The window is being reduced because of marks.
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// See [`Endpoint::info`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "switches that are called as their options are")]
pub struct Info {
    pub congestion: Congestion,
    /// Bytes deemed lost, sent again or not.
    pub lost_bytes: u64,
    /// Bytes that SACK blocks have told of.
    pub sacked_bytes: u64,
    /// Bytes whose retransmission is in flight.
    pub again_bytes: u64,
    /// Sequence numbers that have never left.
    pub unsent: u64,
    /// How far segments have overtaken each other, in bytes; 0 = never.
    pub reordered_bytes: u32,
    /// Timeouts without an answer.
    pub timeouts: u8,
    /// Probes of a closed window without an answer.
    pub probes: u8,
    /// Shifts of the two windows.
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub timestamps: bool,
    pub sack: bool,
    pub wscale: bool,
    pub ecn: bool,
    /// Of a connection with accurate ECN.
    pub accurate: Option<AccurateInfo>,
    /// Payload bytes of the peer's full segments.
    pub receive_mss: u32,
    /// Receive buffer in bytes.
    pub receive_buffer: u64,
    /// The largest window that the peer has offered, in bytes.
    pub max_window: u64,
    /// The peer's window holds new data back.
    pub window_limited: bool,
    /// The congestion window holds new data back.
    pub cwnd_limited: bool,
}

/// How far the sender is: see [`Endpoint::progress`]. Positions are offsets whose lower 32 bits are
/// sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first byte that is not acknowledged.
    pub una: u64,
    /// The next byte to be sent.
    pub nxt: u64,
    /// Bytes that acknowledgements or SACK blocks have told of. Only differences are meaningful; it
    /// goes back when the peer has taken back SACK blocks.
    pub delivered: u64,
    /// Of those, bytes delivered under CE. With classic ECN these are all between the first ECE and
    /// the answer to CWR, unless the receiver echoes each mark as for DCTCP.
    pub marked: u64,
    /// Expired retransmission timers.
    pub timeouts: u64,
}

impl Endpoint {
    /// How far the sender is, for whoever chooses paths by that.
    pub fn progress(&self) -> Progress {
        Progress {
            una: self.snd_una,
            nxt: self.snd_nxt,
            delivered: self.left_network(),
            marked: self.rare.marked_bytes,
            timeouts: self.rare.stats.timeouts,
        }
    }

    /// The state of the connection, for tests and tools.
    pub fn info(&self) -> Info {
        let mss = u64::from(self.mss);
        Info {
            congestion: self.congestion(),
            lost_bytes: self.board.lost(),
            sacked_bytes: self.board.sacked() + u64::from(self.duplicate_bytes),
            again_bytes: self.board.again(),
            unsent: self.unsent(),
            reordered_bytes: self.rack.reordered,
            timeouts: self.retries,
            probes: self.persist_backoff,
            snd_wscale: self.options.snd_wscale,
            rcv_wscale: self.receiver.wscale(),
            timestamps: self.options.timestamps,
            sack: self.options.sack,
            wscale: self.options.wscale,
            ecn: self.options.ecn || self.options.accurate,
            accurate: self.accurate_info(),
            receive_mss: self.receiver.mss(),
            receive_buffer: self.receiver.buffer(),
            max_window: self.max_wnd,
            window_limited: self.unsent() > 0 && self.usable() < self.unsent().min(mss),
            cwnd_limited: self.pipe() + mss > self.window(),
        }
    }

    fn congestion(&self) -> Congestion {
        match self.phase {
            Phase::Recovery => Congestion::Recovery,
            Phase::Loss => Congestion::Loss,
            Phase::Open if self.flags.reducing => Congestion::Reduced,
            Phase::Open if self.board.sacked() > 0 || self.duplicate_acks > 0 => {
                Congestion::Disorder
            }
            Phase::Open => Congestion::Open,
        }
    }
}
