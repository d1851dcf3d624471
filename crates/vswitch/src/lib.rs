//! The sans-I/O host switch.
//!
//! ```text
//!  VM ──▶ vNIC stage ──▶ forward ──▶ uplink stage ──▶ adapter
//!  VM ◀── vNIC stage ◀── forward ◀── uplink stage ◀── adapter
//! ```
//!
//! The vNIC stage runs core's enforcement step on every segment that passes a tenant's virtual NIC, as the
//! kernel programs do at a tenant's interface. Whoever owns packets parses them into segments and applies
//! the verdicts.

pub mod vnic;

pub use vnic::{Policy, Vnics};
