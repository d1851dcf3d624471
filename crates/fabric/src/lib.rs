//! Links, queues, physical switches, topologies, routing: pure state machines.
//!
//! Time is an argument in picoseconds. A port is the transmit side of one direction of a link, queue and
//! wire in one ([`Ports`]); a [`Graph`] says who is connected to whom and [`Routes`] which port leads where.

pub mod graph;
pub mod pool;
pub mod port;

pub use graph::{Graph, Routes};
pub use pool::{Handle, Pool};
pub use port::{Frame, Offer, PortConfig, Ports};
