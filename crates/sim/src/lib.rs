//! The `sim` world: scenarios in simulated time.
//!
//! ```text
//!  roles (crates/apps) ─── Sockets ──▶ ends (tcp) ──▶ vNIC stage ──▶ adapter ──▶ ports, switches
//!                                         ◀──────────────── vNIC stage ◀──────────────┘
//! ```
//!
//! [`net::Net`] owns the state and handles one event of the [`wheel`] at a time; [`actors`] puts
//! the roles of a plan on its sockets; [`engine::Engine`] runs one or several parts of a network,
//! each with its own thread; [`world::Sim`] builds them from a variant and measures. Time is in
//! picoseconds; events are ordered by (time, source), so that a run is a function of the scenario
//! and its seed, whatever the number of threads.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod actors;
pub mod build;
pub mod capture;
pub mod converged;
mod drive;
pub mod engine;
pub mod exports;
mod failures;
mod film;
pub mod frame;
pub mod layout;
mod limits;
mod measure;
pub mod message_headers;
pub mod net;
pub mod packet;
mod trace;
mod vnics;
pub mod wheel;
pub mod world;

pub use world::{Sim, Threads};
