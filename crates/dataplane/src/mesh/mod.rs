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
pub mod ring;

use std::{os::fd::OwnedFd, sync::Arc};

use anyhow::Context;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

use self::{
    inbox::Inbox,
    ring::{Consumer, Place, Producer, Word},
};
use crate::{
    frame::{Frame, FrameId},
    memory::Memory,
};

/// Frames of a thread that are on their way to an exit of another thread or wait there, of each
/// priority.
pub const CREDIT_FRAMES: u16 = 256;

/// Their bytes; one frame is always let go.
pub const CREDIT_BYTES: u32 = 1 << 20;

/// Parcels that are on their way from a thread to another.
const PARCELS: u16 = 1024;

/// Parcels that are not home yet, of each pair of threads.
const AWAY_MAX: usize = 8192;

/// Room for all of them, and for answers to recalls.
const HOMES: u16 = 16_384;

/// Of what comes home: the frames of a port, its number in the lower half.
const RECALLED: u32 = 1 << 16;

/// What a thread tells another one.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The frame; its token is the parcel's number.
    pub frame: Frame,
    /// The port to which it goes.
    pub exit: u16,
    /// Where the ledger has its sender's chain; 0 = it has none.
    pub chain: usize,
    /// The memory of its sender, if that is another one than before.
    pub memory: Option<Arc<Memory>>,
    /// There is no frame: all frames of this port are to come home.
    pub recalls: Option<u16>,
}

/// What has come home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// A frame.
    Frame(FrameId),
    /// All frames of a port, which were recalled.
    All(u16),
}

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

/// A parcel that is not home.
#[derive(Clone, Copy, Debug)]
struct Away {
    id: FrameId,
    exit: u16,
    bytes: u32,
}

/// What of an exit's credit is used.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    frames: u16,
    bytes: u32,
}

/// A thread, as another one has it.
#[derive(Debug)]
pub struct Link {
    bell: Bell,
    parcels: Producer<Place<Parcel>, Word>,
    arrivals: Consumer<Place<Parcel>, Word>,
    homes: Producer<Place<u32>, Word>,
    returns: Consumer<Place<u32>, Word>,
    /// By number, parcels that are not home.
    away: Vec<Option<Away>>,
    free: Vec<u16>,
    /// By exit and priority.
    used: Vec<Credit>,
    /// By port of this thread, the memory that the other one knows.
    known: Vec<Arc<Memory>>,
    /// Recalls that found no room yet.
    recalls: Vec<u16>,
    /// By number of a parcel of the other thread, its chain in the ledger.
    chains: Vec<usize>,
    /// Ports whose frames went home, to be told.
    recalled: Vec<u16>,
}

impl Link {
    /// Whether a frame of so many bytes may go to an exit.
    #[inline]
    pub fn has_credit(&self, exit: u16, bytes: u32) -> bool {
        let used = self.used.get(usize::from(exit)).copied();
        let used = used.unwrap_or_default();
        let fits = used.bytes.saturating_add(bytes) <= CREDIT_BYTES || used.frames == 0;
        fits && used.frames < CREDIT_FRAMES && self.away.len() - self.free.len() < AWAY_MAX
    }

    /// Sends a frame to an exit for which there is credit; `exit` counts priorities apart. False:
    /// the ring is full for now.
    #[inline]
    pub fn send(
        &mut self,
        (id, frame): (FrameId, &Frame),
        (to, exit): (u16, u16),
        chain: usize,
        memory: &Arc<Memory>,
    ) -> bool {
        if self.free.is_empty() {
            self.free.push(self.away.len() as u16);
            self.away.push(None);
        }
        let Some(&number) = self.free.last() else {
            return false;
        };
        let from = usize::from(frame.from);
        if self.known.len() <= from {
            self.known.resize_with(from + 1, Arc::default);
        }
        let is_known = frame.is_own() || Arc::ptr_eq(&self.known[from], memory);
        let sent = self.parcels.put(|parcel: &mut Parcel| {
            parcel.frame.describe(frame);
            parcel.frame.token = Some(number);
            (parcel.exit, parcel.chain, parcel.recalls) = (to, chain, None);
            parcel.memory = (!is_known).then(|| Arc::clone(memory));
        });
        if !sent {
            return false;
        }
        if !is_known {
            self.known[from] = Arc::clone(memory);
        }
        self.free.pop();
        let bytes = frame.bytes;
        self.away[usize::from(number)] = Some(Away { id, exit, bytes });
        let index = usize::from(exit);
        if self.used.len() <= index {
            self.used.resize(index + 1, Credit::default());
        }
        self.used[index].frames += 1;
        self.used[index].bytes += bytes;
        true
    }

    /// What has come home next.
    #[inline]
    pub fn come_home(&mut self) -> Option<Home> {
        let word = self.returns.take(|word: &mut u32| *word)?;
        if word & RECALLED != 0 {
            return Some(Home::All(word as u16));
        }
        let number = word as u16;
        let away = self.away.get_mut(usize::from(number));
        let away = away.and_then(Option::take)?;
        self.free.push(number);
        let used = &mut self.used[usize::from(away.exit)];
        used.frames -= 1;
        used.bytes -= away.bytes;
        Some(Home::Frame(away.id))
    }

    /// All frames of a port are to come home.
    pub fn recall(&mut self, port: u16) {
        self.recalls.push(port);
        if let Some(known) = self.known.get_mut(usize::from(port)) {
            *known = Arc::default();
        }
        self.send_recalls();
    }

    /// Whether the other thread has the memory of a port.
    pub fn knows(&self, port: u16) -> bool {
        let known = self.known.get(usize::from(port));
        known.is_some_and(|known| !known.regions().is_empty())
    }

    fn send_recalls(&mut self) {
        while let Some(&port) = self.recalls.last() {
            let recall = |parcel: &mut Parcel| parcel.recalls = Some(port);
            if !self.parcels.put(recall) {
                return;
            }
            self.recalls.pop();
        }
    }

    /// Takes the next parcel of the other thread: what `open` makes of it.
    #[inline]
    pub fn receive<R>(&mut self, open: impl FnOnce(&mut Parcel) -> R) -> Option<R> {
        let chains = &mut self.chains;
        self.arrivals.take(|parcel: &mut Parcel| {
            if let Some(number) = parcel.frame.token.filter(|_| parcel.recalls.is_none()) {
                let index = usize::from(number);
                if chains.len() <= index {
                    chains.resize(index + 1, 0);
                }
                chains[index] = parcel.chain;
            }
            open(parcel)
        })
    }

    /// The ledger's chain of a parcel of the other thread; 0 = none.
    #[inline]
    pub fn chain(&self, number: u16) -> usize {
        self.chains[usize::from(number)]
    }

    /// A parcel of the other thread goes home.
    #[inline]
    pub fn send_home(&mut self, number: u16) {
        let sent = self.homes.put(|word| *word = u32::from(number));
        debug_assert!(sent, "there is room for all parcels");
    }

    /// All frames of a port of the other thread have gone home.
    pub fn answer_recall(&mut self, port: u16) {
        let sent = self.homes.put(|word| *word = RECALLED | u32::from(port));
        if !sent {
            self.recalled.push(port);
        }
    }

    /// Shows the other thread everything.
    #[inline]
    pub fn publish(&mut self) {
        if !self.recalls.is_empty() {
            self.send_recalls();
        }
        if let Some(port) = self.recalled.pop() {
            self.answer_recall(port);
        }
        // Each is to be shown, whether or not another one wakes.
        let wakes = [
            self.parcels.show(),
            self.homes.show(),
            self.arrivals.show(),
            self.returns.show(),
        ];
        if wakes.contains(&true) {
            self.bell.ring();
        }
    }

    /// Asks for a wake-up. Whether there is work already.
    pub fn arm(&mut self) -> bool {
        let work = [
            self.arrivals.arm(),
            self.returns.arm(),
            self.parcels.arm(),
            self.homes.arm(),
        ];
        work.contains(&true)
    }

    /// The thread is awake.
    pub fn disarm(&mut self) {
        self.arrivals.disarm();
        self.returns.disarm();
        self.parcels.disarm();
        self.homes.disarm();
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
    /// Rings when another thread has something.
    pub bell: Bell,
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
            bell: bells[me].clone(),
            away: Vec::new(),
            recalls: Vec::new(),
        })
        .collect();
    for one in 0..threads {
        for other in 0..one {
            let (parcels, arrivals) = (ring::ring(PARCELS), ring::ring(PARCELS));
            let (homes, returns) = (ring::ring(HOMES), ring::ring(HOMES));
            let link = |bell: &Bell, parcels, arrivals, homes, returns| Link {
                bell: bell.clone(),
                parcels,
                arrivals,
                homes,
                returns,
                away: Vec::new(),
                free: Vec::new(),
                used: Vec::new(),
                known: Vec::new(),
                recalls: Vec::new(),
                chains: Vec::new(),
                recalled: Vec::new(),
            };
            meshes[one].links[other] = Some(link(
                &bells[other],
                parcels.0,
                arrivals.1,
                homes.0,
                returns.1,
            ));
            meshes[other].links[one] =
                Some(link(&bells[one], arrivals.0, parcels.1, returns.0, homes.1));
        }
    }
    Ok(meshes)
}
