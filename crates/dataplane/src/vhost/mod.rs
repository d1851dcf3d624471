//! Ports of vhost-user: a network adapter of a guest, whose rings and memory are the switch's.
//!
//! ```text
//!  frontend (QEMU, UML, testpmd) ══ messages ══▶ session ── changes ──▶ device
//!        its guest ◀═════════════ rings in shared memory ═════════════▶ (worker thread)
//! ```
//!
//! A thread of its own answers the messages of a port ([`session`]), so a frontend that says
//! nothing, or half of a message, stops nobody. The worker owns the rings ([`device`]) and applies
//! what the session tells it.

pub mod device;
pub mod kept;
pub mod link;
pub mod notify;
mod queue;
pub mod relay;
pub mod session;

use std::sync::Arc;

use self::notify::{Call, Kick};

use crate::{
    memory::{Log, Memory},
    ring::Addresses,
    shm::cable::Plug,
};

/// Queue pairs of a port.
pub const PAIRS_MAX: usize = 8;

/// Features of the device (Virtio 1.2, 5.1.3 and 6).
pub mod feature {
    /// The device takes frames without their checksum.
    pub const CHECKSUM: u64 = 1 << 0;
    /// The driver takes frames without their checksum.
    pub const GUEST_CHECKSUM: u64 = 1 << 1;
    /// The driver takes segments of TCP over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes segments of TCP over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The driver takes segments that begin with CWR.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// The device takes segments of TCP over IPv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// The device takes segments of TCP over IPv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// The device takes segments that begin with CWR.
    pub const HOST_ECN: u64 = 1 << 13;
    /// The device says which address its adapter has.
    pub const MAC: u64 = 1 << 5;
    /// A frame may take several receive buffers.
    pub const MERGEABLE: u64 = 1 << 15;
    /// Writes to the guest's memory are logged (vhost-user).
    pub const LOG_ALL: u64 = 1 << 26;
    /// Several queue pairs.
    pub const MULTIQUEUE: u64 = 1 << 22;
    /// Chains in tables of their own.
    pub const INDIRECT: u64 = 1 << 28;
    /// Notifications by index.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// Messages negotiate protocol features (vhost-user).
    pub const PROTOCOL: u64 = 1 << 30;
    /// Virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
    /// Chains come back in the order in which they were made available (Virtio 1.2, 2.7.9).
    pub const IN_ORDER: u64 = 1 << 35;

    /// What the switch offers at every port.
    pub const OFFERED: u64 = CHECKSUM
        | GUEST_CHECKSUM
        | GUEST_TSO4
        | GUEST_TSO6
        | GUEST_ECN
        | HOST_TSO4
        | HOST_TSO6
        | HOST_ECN
        | MERGEABLE
        | INDIRECT
        | EVENT_INDEX
        | LOG_ALL
        | PROTOCOL
        | VERSION_1;
}

/// What a port offers beside [`feature::OFFERED`]. A driver that is not told otherwise (UML) gives
/// up where queue pairs are offered that it cannot choose from, so one is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Queue pairs, 1 to [`PAIRS_MAX`].
    pub pairs: u16,
    /// The address of the adapter, if the switch knows it.
    pub mac: Option<[u8; 6]>,
    /// Whether chains may come back in their order ([`feature::IN_ORDER`]).
    pub in_order: bool,
}

impl Offer {
    /// Its features.
    pub fn features(&self) -> u64 {
        let several = if self.pairs > 1 {
            feature::MULTIQUEUE
        } else {
            0
        };
        let mac = if self.mac.is_some() { feature::MAC } else { 0 };
        let in_order = if self.in_order { feature::IN_ORDER } else { 0 };
        feature::OFFERED | several | mac | in_order
    }

    /// The configuration space of the adapter (Virtio 1.2, 5.1.4): address, status, queue pairs.
    pub fn space(&self) -> [u8; 10] {
        let mut space = [0; 10];
        space[..6].copy_from_slice(&self.mac.unwrap_or_default());
        space[6..8].copy_from_slice(&1u16.to_le_bytes());
        space[8..].copy_from_slice(&self.pairs.to_le_bytes());
        space
    }
}

/// A ring that a frontend has set up.
#[derive(Debug)]
pub struct Setup {
    /// Entries.
    pub size: u32,
    /// Addresses.
    pub at: Addresses,
    /// Where its used ring is in the log of a migration.
    pub log: Option<u64>,
    /// The first available entry to read.
    pub base: u16,
    /// Readable when the driver kicks. While a ring has none, the thread of its port polls.
    pub kick: Option<Kick>,
    /// Calls the driver; it polls if there is none.
    pub call: Option<Call>,
}

/// What a session tells the worker.
#[derive(Debug)]
pub enum Change {
    /// Features were negotiated.
    Features(u64),
    /// The guest's memory is this one now.
    Memory(Arc<Memory>),
    /// A ring starts.
    Start(usize, Setup),
    /// A ring stops; the answer is the next entry that it would have read.
    Stop(usize),
    /// A ring is enabled or disabled.
    Enable(usize, bool),
    /// Where to call the driver of a ring has changed.
    Call(usize, Option<Call>),
    /// The log of a migration.
    Log(Arc<Log>),
    /// Where the used ring of a ring is in that log, if it is logged.
    LogRing(usize, Option<u64>),
    /// The other end of a cable is there ([`crate::shm`]).
    Plug(Box<Plug>),
    /// The frontend has gone, or its connection was ended for this reason.
    Gone(Option<String>),
}

/// The owner of the rings of ports, which applies the changes that sessions ask for.
pub trait Owner: Send + Sync + 'static {
    /// Applies what the session of a port says. Of a ring that stops, returns the next entry that
    /// it would have read.
    ///
    /// # Errors
    /// What is wrong with it.
    fn change(&self, port: u16, change: Change) -> Result<u16, String>;
}
