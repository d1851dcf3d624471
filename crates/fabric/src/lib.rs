//! Links, queues, physical switches, topologies, routing: pure state machines.
//!
//! Time is an argument in picoseconds. A port is the transmit side of one direction of a link, queue and
//! wire in one ([`Ports`]); a [`Graph`] says who is connected to whom and [`Routes`] which port leads where. Who drives
//! a network does so by the [`contract`], whether it is [`Plain`] or [`Converged`].

pub mod cee;
pub mod contract;
mod converged;
pub mod graph;
mod impair;
mod memory;
mod plain;
pub mod pool;
pub mod port;
pub mod random;
mod tree;

pub use contract::Fabric;
pub use converged::Converged;
pub use graph::{Graph, Routes, Routing};
pub use impair::{Fate, Impairment};
pub use memory::{MemoryId, SharedMemory};
pub use plain::Plain;
pub use pool::{Handle, Pool};
pub use port::{Frame, Offer, PortConfig, Ports};
