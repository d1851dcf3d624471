//! What one part of a run hands to another.

use sluicegate_apps::Letter;
use sluicegate_fabric::graph::PortId;

use crate::{
    net::EndId,
    packet::{Aside, Packet},
};

/// A packet on its way between two parts.
#[derive(Clone, Copy)]
pub struct Parcel {
    /// The port that it left by.
    pub port: PortId,
    /// When it is at the other end.
    pub arrival_ps: u64,
    /// The packet.
    pub packet: Packet,
    /// What else it carries.
    pub aside: Aside,
}

/// All that one part has for another.
#[derive(Default)]
pub struct Mail {
    /// Packets, each port's in the order of their arrival.
    pub parcels: Vec<Parcel>,
    /// What streams say, for ends of the receiving part: of bytes that arrive later.
    pub letters: Vec<(EndId, Letter)>,
    /// Ends of the receiving part whose peers are over, and since when (ps).
    pub over: Vec<(EndId, u64)>,
}

impl Mail {
    /// Nothing to deliver.
    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty() && self.letters.is_empty() && self.over.is_empty()
    }
}
