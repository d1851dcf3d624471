//! The `sim` world: scenarios in simulated time.
//!
//! ```text
//!  actors (what tenants do) ── Io ──▶ ends (tcp) ──▶ vNIC stage ──▶ adapter ──▶ ports, switches
//!                                         ◀──────────────── vNIC stage ◀──────────────┘
//! ```
//!
//! [`net::Net`] owns the state and handles one event of the [`wheel`] at a time; [`actors`] are the roles of
//! a plan; [`world::Sim`] builds both from a variant and measures. Time is in picoseconds; events are ordered
//! by (time, source), so that a run is a function of the scenario and its seed.

pub mod actors;
mod build;
pub mod letters;
mod measure;
pub mod net;
pub mod packet;
pub mod wheel;
pub mod world;

pub use world::Sim;
