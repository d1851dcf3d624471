//! Links, queues, physical switches, topologies, routing: pure state machines.
//!
//! Time is an argument in picoseconds. A [`Port`] is the transmit side of one direction of a link, queue and
//! wire in one; a [`Graph`] says who is connected to whom and [`Routes`] which port leads where.

pub mod graph;
pub mod port;

pub use graph::{Graph, Routes};
pub use port::{Frame, Offer, Port, PortConfig};
