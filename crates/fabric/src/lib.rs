//! Links, queues, physical switches, topologies, routing: pure state machines.
//!
//! Time is an argument in picoseconds. A port is the transmit side of one direction of a link,
//! queue and wire in one ([`Ports`]); a [`Graph`] has nodes and links, [`Routes`] choose a packet's
//! port at each switch. The driver of a network uses the same [`contract`] for [`Plain`] and
//! [`Converged`].
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod carried;
pub mod cee;
pub mod contract;
mod converged;
pub mod graph;
pub mod histogram;
mod impair;
mod memory;
mod plain;
pub mod pool;
pub mod port;
pub mod random;
pub mod routing;

pub use contract::Fabric;
pub use converged::Converged;
pub use graph::Graph;
pub use impair::{Fate, Impairment};
pub use memory::{MemoryId, SharedMemory};
pub use plain::Plain;
pub use pool::{Handle, Pool};
pub use port::{Frame, Offer, PortConfig, Ports};
pub use routing::{Routes, Routing};
