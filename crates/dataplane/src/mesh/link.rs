//! A thread, as another one has it: parcels that go, credit, and what comes home.

use std::sync::Arc;

use super::ring::{self, Consumer, Place, Producer, Word};
use crate::{
    frame::{Frame, FrameId},
    memory::Memory,
    shm::lane::Shared,
};

/// Frames of a thread that are on their way to an exit of another thread or wait there, of each
/// priority.
pub const CREDIT_FRAMES: u16 = 256;

/// Their bytes; one frame is always let go.
pub const CREDIT_BYTES: u32 = 1 << 20;

/// Bounds of a link.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Parcels that are on their way, a power of two.
    pub parcels: u16,
    /// Parcels that are not home yet.
    pub away: u16,
    /// Room for what comes home, a power of two: all parcels, and answers to recalls.
    pub homes: u16,
    /// Frames that are on their way to an exit or wait there, of each priority.
    pub credit_frames: u16,
    /// Their bytes; one frame is always let go.
    pub credit_bytes: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            parcels: 1024,
            away: 8192,
            homes: 16_384,
            credit_frames: CREDIT_FRAMES,
            credit_bytes: CREDIT_BYTES,
        }
    }
}

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
pub struct Link<W = Word> {
    sizes: Sizes,
    parcels: Producer<Place<Parcel>, W>,
    arrivals: Consumer<Place<Parcel>, W>,
    homes: Producer<Place<u32>, W>,
    returns: Consumer<Place<u32>, W>,
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

/// Both ends of a link.
pub fn pair<W: Shared + Clone>(sizes: Sizes, word: impl Fn() -> W) -> (Link<W>, Link<W>) {
    let (parcels, arrivals) = (
        ring::over(sizes.parcels, &word),
        ring::over(sizes.parcels, &word),
    );
    let (homes, returns) = (
        ring::over(sizes.homes, &word),
        ring::over(sizes.homes, &word),
    );
    let one = Link::new(sizes, parcels.0, arrivals.1, homes.0, returns.1);
    (
        one,
        Link::new(sizes, arrivals.0, parcels.1, returns.0, homes.1),
    )
}

impl<W: Shared> Link<W> {
    fn new(
        sizes: Sizes,
        parcels: Producer<Place<Parcel>, W>,
        arrivals: Consumer<Place<Parcel>, W>,
        homes: Producer<Place<u32>, W>,
        returns: Consumer<Place<u32>, W>,
    ) -> Self {
        Self {
            sizes,
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
        }
    }

    /// Whether a frame of so many bytes may go to an exit. However many exits stall, parcels are
    /// left for others: an exit has no more than are left when it has one more.
    #[inline]
    pub fn has_credit(&self, exit: u16, bytes: u32) -> bool {
        let used = self.used.get(usize::from(exit)).copied();
        let used = used.unwrap_or_default();
        let sizes = &self.sizes;
        let fits = used.bytes.saturating_add(bytes) <= sizes.credit_bytes || used.frames == 0;
        let away = self.away.len() - self.free.len();
        let left = usize::from(sizes.away).saturating_sub(away);
        fits && used.frames < sizes.credit_frames && usize::from(used.frames) + 2 <= left
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

    /// Shows the other thread everything. Whether it is to be woken.
    #[inline]
    pub fn publish(&mut self) -> bool {
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
        wakes.contains(&true)
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

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
