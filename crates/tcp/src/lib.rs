//! A sans-I/O TCP endpoint: a tenant's stack in the simulator.
//!
//! ```text
//!  application ──write, read, close──▶ ┌──────────┐ ──transmit()──▶ network
//!  application ◀──Events────────────── │ Endpoint │ ◀──segment()─── network
//!                                      └──────────┘ ◀──timeout()─── the caller's clock
//! ```
//!
//! One [`Endpoint`] is one end of one connection. It reads no clock, sends nothing by itself and
//! knows no addresses: time is an argument in nanoseconds, a stream is a number of bytes (their
//! values play no part in what TCP does), and a [`Segment`] is what travels. Congestion control is
//! core's.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod cache;
pub mod config;
pub mod endpoint;
pub mod segment;

pub use cache::Cache;
pub use config::Config;
pub use endpoint::{
    AccurateInfo, Congestion, Drops, Endpoint, Error, Events, Info, OptionSeen, Progress, State,
    Stats, Taker,
};
pub use segment::Segment;
