//! Several threads of one switch: each has its own ports, and frames go from each to each other.
//!
//! ```text
//!  thread of the sender: route ─▶ credit of the exit? ══ parcels ══▶ thread of the receiver: exit
//!                                                     ◀═ homes ═════  it is delivered or dropped
//!        addresses that are new ──▶ inbox of each other thread
//! ```
//!
//! A frame is routed where it came in, so a thread knows the addresses of all. A parcel says where
//! its frame is: the bytes behind its start stay in the memory of the guest that sent it, and the
//! receiver's thread copies them from there ([`ring`] carries no payload). The sender's descriptors
//! stay in use until the parcel has come home, so a stalled receiver holds its senders back as
//! within one thread.
//!
//! Each exit has credit of its own for what is on its way to it or waits there, by priority. Frames
//! beyond it wait at their own thread, and others pass them (Algorithm 4.1). The other thread takes
//! every parcel at once, since it has a place for each: a stalled exit holds up no other one.

pub mod inbox;
pub mod link;
pub mod ring;

use std::{os::fd::OwnedFd, sync::Arc};

use anyhow::Context;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

pub use self::link::{CREDIT_BYTES, CREDIT_FRAMES, Home, Link, Parcel, Sizes};
use self::{inbox::Inbox, ring::Word};

/// Wakes a thread that sleeps.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    fn new() -> anyhow::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags).context("no eventfd")?)))
    }

    /// Rings it.
    pub fn ring(&self) {
        // One that is full rings already.
        let _ = write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Ends its ringing.
    pub fn hush(&self) {
        let _ = read(&*self.0, &mut [0; 8]);
    }

    /// Readable while it rings.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

/// The other threads, as one has them.
#[derive(Debug)]
pub struct Mesh {
    /// Number of this thread.
    pub me: usize,
    /// By number of a thread; none for this one.
    pub links: Vec<Option<Link>>,
    /// By number of a thread, what it is told of addresses.
    pub inboxes: Vec<Arc<Inbox>>,
    /// By number of a thread, what wakes it when another one has something for it.
    pub bells: Vec<Bell>,
    /// By port of this thread, its parcels that are not home.
    pub away: Vec<u32>,
    /// By port of this thread, answers to a recall that have not come.
    pub recalls: Vec<u16>,
}

impl Mesh {
    /// Threads.
    pub fn threads(&self) -> usize {
        self.links.len()
    }

    /// What wakes this thread.
    pub fn bell(&self) -> &Bell {
        &self.bells[self.me]
    }

    /// Shows the others everything, and wakes those that asked for it.
    #[inline]
    pub fn publish(&mut self) {
        for (link, bell) in self.links.iter_mut().zip(&self.bells) {
            if link.as_mut().is_some_and(Link::publish) {
                bell.ring();
            }
        }
    }

    /// The links to the others.
    pub fn others(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.iter_mut().flatten()
    }
}

/// So many threads, each of which can reach each other.
///
/// # Errors
/// The kernel gives no eventfd.
pub fn connect(threads: usize) -> anyhow::Result<Vec<Mesh>> {
    let inboxes: Vec<Arc<Inbox>> = (0..threads).map(|_| Arc::default()).collect();
    let bells = (0..threads).map(|_| Bell::new());
    let bells = bells.collect::<anyhow::Result<Vec<_>>>()?;
    let mut meshes: Vec<Mesh> = (0..threads)
        .map(|me| Mesh {
            me,
            links: (0..threads).map(|_| None).collect(),
            inboxes: inboxes.clone(),
            bells: bells.clone(),
            away: Vec::new(),
            recalls: Vec::new(),
        })
        .collect();
    for one in 0..threads {
        for other in 0..one {
            let (here, there) = link::pair(Sizes::default(), Word::default);
            meshes[one].links[other] = Some(here);
            meshes[other].links[one] = Some(there);
        }
    }
    Ok(meshes)
}
