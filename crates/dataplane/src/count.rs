//! Counters of a port.

use serde::{Deserialize, Serialize};

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// The exit was full, in a switch that drops.
    Full,
    /// The exit has as many flooded frames waiting as it may.
    Flooded,
    /// Its sender has gone, and left more than the switch keeps.
    Left,
    /// The receiver took nothing for longer than the operator allows.
    Stalled,
    /// No guest is connected at the exit, or its interface is down.
    NoReceiver,
    /// The receiver has no buffer for a frame of this length.
    TooLong,
    /// The kernel refused to take it.
    Refused,
    /// The sender's port may not use this VLAN, or the exit's.
    Vlan,
    /// The sender used an address that is not its own.
    Forged,
    /// The destination is behind the port that the frame came by.
    Back,
    /// No frame, or one whose header lies.
    Malformed,
    /// Enforcement: data beyond what the tenant may send, or repeated too fast.
    Policed,
    /// Enforcement: beyond the rate of a bucket.
    Rate,
    /// The peer of a cable went before it had read it.
    Unread,
    /// The exit has its share of the entries of an interface by which frames for many come.
    Share,
    /// The sender's filters cannot read it: LLC, SNAP or ARP that are not what they say.
    Hidden,
    /// The sender's port may not send this type of Ethernet.
    Type,
    /// It is for the neighbour on the link, and no bridge relays it (IEEE 802.1Q, 8.6.3).
    Reserved,
    /// A frame of MAC control, which no bridge forwards (IEEE 802.1Q, 8.6.3).
    Control,
}

impl Drop {
    /// Names, in their order.
    pub const NAMES: [&str; 19] = [
        "full",
        "flooded",
        "left",
        "stalled",
        "no_receiver",
        "too_long",
        "refused",
        "vlan",
        "forged",
        "back",
        "malformed",
        "policed",
        "rate",
        "unread",
        "share",
        "hidden",
        "ethertype",
        "reserved",
        "control",
    ];
}

/// What passed a port, and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames that came by this port.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that were delivered to it.
    pub delivered_frames: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames dropped here, in the order of [`Drop::NAMES`]: `full`, `flooded`, `share`, `stalled`,
    /// `no_receiver`, `too_long`, `refused` and `unread` on their way to the port, the others on
    /// their way from it (`vlan` and `policed` on either).
    pub drops: [u64; Drop::NAMES.len()],
}

impl Counters {
    #[inline]
    pub(crate) fn received(&mut self, bytes: u32) {
        self.received_frames += 1;
        self.received_bytes += u64::from(bytes);
    }

    #[inline]
    pub(crate) fn delivered(&mut self, bytes: u32) {
        self.delivered_frames += 1;
        self.delivered_bytes += u64::from(bytes);
    }

    pub(crate) fn drop(&mut self, reason: Drop) {
        self.drops[reason as usize] += 1;
    }

    pub(crate) fn drop_many(&mut self, reason: Drop, frames: u64) {
        self.drops[reason as usize] += frames;
    }

    /// Adds what another thread has counted of the same port.
    pub(crate) fn add(&mut self, other: &Self) {
        self.received_frames += other.received_frames;
        self.received_bytes += other.received_bytes;
        self.delivered_frames += other.delivered_frames;
        self.delivered_bytes += other.delivered_bytes;
        for (sum, drops) in self.drops.iter_mut().zip(other.drops) {
            *sum += drops;
        }
    }

    /// Frames dropped here for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }
}
