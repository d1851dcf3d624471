//! The sans-I/O host switch.
//!
//! ```text
//!  VM ──▶ vNIC stage ──▶ forward ──▶ uplink stage ──▶ adapter
//!  VM ◀── vNIC stage ◀── forward ◀── uplink stage ◀── adapter
//! ```
//!
//! The vNIC stage runs core's enforcement step on every segment that passes a tenant's virtual NIC,
//! as the kernel programs do at a tenant's interface ([`Vnics`]). The owner of the packets parses
//! them into segments and applies the verdicts. [`Switch`] has the stages, the queues between them,
//! and the senders that wait. [`learning`] says where a frame goes by its addresses, and [`filter`]
//! which addresses a port may use.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod filter;
pub mod learning;
pub mod passed;
pub mod point;
pub mod reserved;
pub mod switch;
pub mod table;
pub mod vnic;

pub use passed::Passed;
pub use point::{Bound, Point, WhenFull};
pub use switch::{Config, Handover, Place, Side, Switch};
pub use table::Connection;
pub use vnic::{Limits, Policy, Vnics};
