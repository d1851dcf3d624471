//! What one part of a run exports to another: packets that cross, and what belongs to their streams.

use sluicegate_apps::MessageHeader;
use sluicegate_fabric::graph::PortId;

use crate::{
    net::EndId,
    packet::{Aside, Packet},
};

/// A packet on its way between two parts.
#[derive(Clone, Copy)]
pub struct ExportedPacket {
    /// The port that it left by.
    pub port: PortId,
    /// When it is at the other end.
    pub arrival_ps: u64,
    /// The packet.
    pub packet: Packet,
    /// What else it carries.
    pub aside: Aside,
}

/// All that one part exports to another.
#[derive(Default)]
pub struct Exports {
    /// Packets, each port's in the order of their arrival.
    pub packets: Vec<ExportedPacket>,
    /// Headers of messages for ends of the receiving part, of bytes that arrive later.
    pub headers: Vec<(EndId, MessageHeader)>,
    /// Ends of the receiving part whose peers are over, and since when (ps).
    pub over: Vec<(EndId, u64)>,
}

impl Exports {
    /// There is nothing to import.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.headers.is_empty() && self.over.is_empty()
    }
}
