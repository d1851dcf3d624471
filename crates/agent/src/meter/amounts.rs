//! Amounts that are counted of a flow, and their growth since an earlier look.

use std::{net::SocketAddr, ops::AddAssign};

use serde::Serialize;

use crate::FlowRecord;

/// Which flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// Index of the tenant's interface.
    pub ifindex: u32,
    /// VLAN tag, if any.
    pub vlan: Option<u16>,
    /// The tenant's end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

impl FlowId {
    /// Of this record.
    pub fn of(flow: &FlowRecord) -> Self {
        Self {
            ifindex: flow.ifindex,
            vlan: flow.vlan,
            local: flow.local,
            remote: flow.remote,
        }
    }
}

/// The counts that only grow while a flow lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amounts {
    /// Payload of the tenant that was acknowledged.
    pub acked_bytes: u64,
    /// Of it, what met congestion marks.
    pub marked_bytes: u64,
    /// Payload towards the tenant.
    pub received_bytes: u64,
    /// Losses inferred from duplicate ACKs.
    pub losses: u64,
    /// Losses inferred from silence.
    pub timeouts: u64,
    /// Segments dropped by policing.
    pub policed: u64,
}

impl Amounts {
    /// Of a flow since it began.
    pub fn of(flow: &FlowRecord) -> Self {
        Self {
            acked_bytes: flow.acked_bytes,
            marked_bytes: flow.marked_bytes,
            received_bytes: flow.received_bytes,
            losses: flow.losses.into(),
            timeouts: flow.timeouts.into(),
            policed: flow.policed.into(),
        }
    }

    /// The growth after `before`. Where a count is less than before, a new flow has begun between
    /// the same ends, and all of it is new.
    pub fn since(self, before: Self) -> Self {
        self.checked_sub(before).unwrap_or(self)
    }

    fn checked_sub(self, before: Self) -> Option<Self> {
        Some(Self {
            acked_bytes: self.acked_bytes.checked_sub(before.acked_bytes)?,
            marked_bytes: self.marked_bytes.checked_sub(before.marked_bytes)?,
            received_bytes: self.received_bytes.checked_sub(before.received_bytes)?,
            losses: self.losses.checked_sub(before.losses)?,
            timeouts: self.timeouts.checked_sub(before.timeouts)?,
            policed: self.policed.checked_sub(before.policed)?,
        })
    }
}

impl AddAssign for Amounts {
    fn add_assign(&mut self, more: Self) {
        self.acked_bytes += more.acked_bytes;
        self.marked_bytes += more.marked_bytes;
        self.received_bytes += more.received_bytes;
        self.losses += more.losses;
        self.timeouts += more.timeouts;
        self.policed += more.policed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_the_difference_or_all_of_a_new_life() {
        let before = Amounts {
            acked_bytes: 100,
            losses: 2,
            ..Amounts::default()
        };
        let later = Amounts {
            acked_bytes: 150,
            losses: 2,
            ..Amounts::default()
        };
        assert_eq!(later.since(before).acked_bytes, 50);
        assert_eq!(later.since(before).losses, 0);
        // More bytes, but fewer losses: not the same flow any more.
        let reborn = Amounts {
            acked_bytes: 170,
            losses: 1,
            ..Amounts::default()
        };
        assert_eq!(reborn.since(before), reborn);
    }
}
