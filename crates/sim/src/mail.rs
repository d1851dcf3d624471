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

/// What a part has for others.
pub struct Post {
    /// Which part it is.
    pub(crate) part: usize,
    /// By part.
    pub(crate) outgoing: Vec<Mail>,
}

impl Post {
    /// Of this one of so many parts.
    pub fn new(part: usize, parts: usize) -> Self {
        Self {
            part,
            outgoing: std::iter::repeat_with(Mail::default).take(parts).collect(),
        }
    }

    /// What goes to another part; `None` = that is this one.
    pub fn mail_to(&mut self, part: usize) -> Option<&mut Mail> {
        (part != self.part).then(|| &mut self.outgoing[part])
    }

    /// When the first packet for another part arrives there; `u64::MAX` = there is none.
    pub fn next_ps(&self) -> u64 {
        let parcels = self.outgoing.iter().flat_map(|mail| &mail.parcels);
        let first = parcels.map(|parcel| parcel.arrival_ps).min();
        first.unwrap_or(u64::MAX)
    }
}
