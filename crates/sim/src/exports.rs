//! The exports of one part of a run to another: packets that cross, and the headers and ends of
//! their streams.

use sluicegate_apps::MessageHeader;
use sluicegate_fabric::{cee::PauseFrame, contract::Luggage, graph::PortId};

use crate::{
    net::EndId,
    packet::{ColdFields, Packet},
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
    /// Its cold fields.
    pub cold: ColdFields,
    /// What the fabric keeps beside it.
    pub luggage: Luggage,
}

/// The exports of one part to another.
#[derive(Default)]
pub struct Exports {
    /// Packets, each port's in the order of their arrival.
    pub packets: Vec<ExportedPacket>,
    /// Pause frames that take effect at ports of the receiving part, and when (ps).
    pub pauses: Vec<(PortId, PauseFrame, u64)>,
    /// Headers of messages for ends of the receiving part, of bytes that arrive later.
    pub headers: Vec<(EndId, MessageHeader)>,
    /// Headers of messages of datagrams that arrive later, for a port of a tenant.
    pub datagram_headers: Vec<((u32, u16), MessageHeader)>,
    /// Ends of the receiving part whose peers' stacks are gone, and since when (ps).
    pub over: Vec<(EndId, u64)>,
}

impl Exports {
    /// There is nothing to import.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
            && self.pauses.is_empty()
            && self.headers.is_empty()
            && self.datagram_headers.is_empty()
            && self.over.is_empty()
    }
}

/// The exports of a part to all others.
pub struct Post {
    /// Which part it is.
    pub(crate) part: usize,
    /// By part.
    pub(crate) outgoing: Vec<Exports>,
}

impl Post {
    /// For this part of `parts`.
    pub fn new(part: usize, parts: usize) -> Self {
        Self {
            part,
            outgoing: std::iter::repeat_with(Exports::default)
                .take(parts)
                .collect(),
        }
    }

    /// The exports to a part; `None` for this part itself.
    pub fn exports_to(&mut self, part: usize) -> Option<&mut Exports> {
        (part != self.part).then(|| &mut self.outgoing[part])
    }

    /// When the first packet or pause for another part arrives there; `u64::MAX` = there is none.
    pub fn next_ps(&self) -> u64 {
        let packets = self.outgoing.iter().flat_map(|exports| &exports.packets);
        let pauses = self.outgoing.iter().flat_map(|exports| &exports.pauses);
        let packets = packets.map(|exported| exported.arrival_ps);
        let first = packets.chain(pauses.map(|&(.., at_ps)| at_ps)).min();
        first.unwrap_or(u64::MAX)
    }
}
