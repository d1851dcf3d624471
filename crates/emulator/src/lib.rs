//! A fabric by the real clock: the physical network of a laboratory.
//!
//! ```text
//!   guests ─ switch of a host ══ cable ══╗          ╔══ cable ══ switch of a host ─ guests
//!                                        ║          ║
//!                             adapter ─ link ─ switch ─ link      the simulator's fabric
//! ```
//!
//! [`Network`] is sans-I/O. It takes whole Ethernet frames, and a [`Descriptor`] of each moves
//! through the fabric; the bytes stay where they are until it arrives. [`Emulation`] calls it by
//! the clock of the machine, and moves frames between it and the cables of hosts.

mod clock;
mod ethernet;
mod frame;
mod network;
mod run;

pub use clock::{LAG_BOUND, Lag};
pub use ethernet::{ADAPTER_BYTES, Control, Emulated, Ethernet, Queues};
pub use frame::Descriptor;
pub use network::{Counts, Drop, HostCounts, Network, Offer, Plan, PortCounts};
pub use run::{Emulation, Uplink};
