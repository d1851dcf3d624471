//! Priority-based flow control (IEEE 802.1Qbb, now IEEE 802.1Q clause 36), without I/O.
//!
//! ```text
//!  sender ── frames of eight priorities ──▶ receiver, with a buffer of each lossless priority
//!  Gate   ◀── PFC frame: pause, resume ──── Demand
//! ```
//!
//! [`Demand`] says when a receiver asks its sender to pause a priority, and [`Gate`] what a sender
//! may send. Their callers pass the time and carry the frames ([`PfcFrame`]). [`Span`] says how
//! much may still come after a receiver has asked ([`headroom`]).
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod demand;
pub mod frame;
pub mod gate;
pub mod headroom;

pub use demand::{Demand, Thresholds};
pub use frame::{Malformed, PfcFrame};
pub use gate::Gate;
pub use headroom::Span;

/// Priorities of IEEE 802.1Q.
pub const PRIORITIES: usize = 8;

/// A MAC control frame, in bytes, its checksum included: the shortest of Ethernet (IEEE 802.3,
/// 31.4).
pub const CONTROL_BYTES: u32 = 64;

/// Bit times of a quantum, the unit of pauses (IEEE 802.3, annexes 31B and 31D).
pub const QUANTUM_BITS: u64 = 512;

/// The length of so many quanta in ns, rounded up.
pub fn quanta_ns(quanta: u16, rate_bps: u64) -> u64 {
    let bits = u128::from(quanta) * u128::from(QUANTUM_BITS) * 1_000_000_000;
    u64::try_from(bits.div_ceil(u128::from(rate_bps.max(1)))).unwrap_or(u64::MAX)
}
