//! Two tenants behind two hosts with a network between them, on a virtual clock and without I/O.
//!
//! ```text
//!  Tenant ─▶ Host ─▶ network: Fate ─▶ Host ─▶ Tenant        one side = tenant, host, interface
//! ```
//!
//! Frames are built and read by `etherparse`, so that the code under test doesn't judge itself.
//! Whatever passes a host is checked by [`invariants`], in every test.

// Each crate that has this uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod invariants;
pub mod opt;
pub mod pair;
pub mod policy;
pub mod solo;
pub mod tenant;
pub mod wire;

pub use pair::{A, B, Fate, Pair};
pub use policy::{params, policy, policy_of};
pub use solo::Solo;
pub use tenant::Tenant;
pub use wire::{Packet, Route};
