//! The rings of a port, in the hands of the worker.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use super::{Change, PAIRS_MAX, Setup, feature};
use crate::{
    frame::Frame,
    memory::{Memory, Piece, Refused},
    offload::{HEADER, Takes, Work},
    port::{Delivery, Intake, Outgoing},
    ring::{Addresses, Broken, Ring},
};

/// Length of the header before a frame of a driver that knows neither Virtio 1 nor buffers that
/// merge: without `num_buffers`.
const LEGACY_HEADER: usize = 10;

/// A frame takes at most so many receive buffers.
const BUFFERS_MAX: usize = 1024;

/// So many receive buffers are fetched into the cache at a time.
const FETCHED: u16 = 32;

/// The longest frame: a segment of 64 KB with its headers and a tag.
const FRAME_MAX: u32 = 65_535 + 18;
const FRAME_MIN: u32 = 14;

/// A ring with its notifications.
#[derive(Debug)]
struct Queue {
    ring: Ring,
    size: u32,
    at: Addresses,
    kick: Option<File>,
    call: Option<File>,
    /// Of a receive ring: buffers that the cache has.
    fetched: u16,
    /// Of a receive ring: what was known of it when a frame did not fit.
    full_at: Option<u16>,
}

/// The rings of a port: 2n is the receive ring of queue pair n, 2n + 1 its transmit ring, as the
/// guest names them.
#[derive(Debug)]
pub struct Device {
    features: u64,
    memory: Arc<Memory>,
    queues: Vec<Option<Queue>>,
    enabled: [bool; 2 * PAIRS_MAX],
    /// The pair whose turn it is to send.
    turn: usize,
    /// The pairs that have both rings.
    pairs: Vec<usize>,
    /// No ring has this number or a higher one.
    used: usize,
    heads: Vec<(u16, u32)>,
    pieces: Vec<Piece>,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            features: 0,
            memory: Arc::default(),
            queues: (0..2 * PAIRS_MAX).map(|_| None).collect(),
            enabled: [false; 2 * PAIRS_MAX],
            turn: 0,
            pairs: Vec::new(),
            used: 0,
            heads: Vec::new(),
            pieces: Vec::new(),
        }
    }
}

fn transmit(pair: usize) -> usize {
    2 * pair + 1
}

fn receive(pair: usize) -> usize {
    2 * pair
}

impl Device {
    /// The guest's memory.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether the guest sends and receives.
    pub fn is_up(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Negotiated features.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// What its driver takes.
    pub fn takes(&self) -> Takes {
        let has = |feature| self.features & feature != 0;
        Takes {
            checksum: has(feature::GUEST_CHECKSUM),
            tcp4: has(feature::GUEST_TSO4),
            tcp6: has(feature::GUEST_TSO6),
            ecn: has(feature::GUEST_ECN),
        }
    }

    fn is_mergeable(&self) -> bool {
        self.features & feature::MERGEABLE != 0
    }

    fn header_bytes(&self) -> usize {
        if self.features & (feature::MERGEABLE | feature::VERSION_1) != 0 {
            HEADER
        } else {
            LEGACY_HEADER
        }
    }

    /// Applies a change. The caller has copied out all frames of this port before its memory
    /// changes and before a ring stops. Returns the next entry of a ring that stops.
    ///
    /// # Errors
    /// A ring that is not in the guest's memory, or malformed.
    pub fn apply(&mut self, change: Change) -> Result<u16, Refused> {
        let mut base = 0;
        match change {
            Change::Features(features) => self.features = features,
            Change::Memory(memory) => self.change_memory(memory)?,
            Change::Start(index, setup) => self.start(index, setup)?,
            Change::Stop(index) => {
                let stopped = self.queues[index].take();
                base = stopped.map_or(0, |queue| queue.ring.base());
            }
            Change::Enable(index, enabled) => self.enabled[index] = enabled,
            Change::Call(index, call) => {
                if let Some(queue) = &mut self.queues[index] {
                    queue.call = call;
                }
            }
            Change::Gone => *self = Self::default(),
        }
        self.update_pairs();
        Ok(base)
    }

    fn start(&mut self, index: usize, setup: Setup) -> Result<(), Refused> {
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let Setup {
            size,
            at,
            base,
            kick,
            call,
        } = setup;
        let mut ring = Ring::new(&self.memory, size, at, base, event_index)?;
        ring.want_no_kick();
        self.queues[index] = Some(Queue {
            ring,
            size,
            at,
            kick,
            call,
            fetched: 0,
            full_at: None,
        });
        Ok(())
    }

    /// Rings of a guest whose memory grows or shrinks go on where they are. If one of them is not
    /// in the new memory, nothing changes.
    fn change_memory(&mut self, memory: Arc<Memory>) -> Result<(), Refused> {
        let event_index = self.features & feature::EVENT_INDEX != 0;
        let moved = self.queues.iter().map(|queue| {
            let Some(queue) = queue else { return Ok(None) };
            let base = queue.ring.base();
            Ring::new(&memory, queue.size, queue.at, base, event_index).map(Some)
        });
        let moved: Vec<_> = moved.collect::<Result<_, _>>()?;
        for (queue, ring) in self.queues.iter_mut().zip(moved) {
            if let (Some(queue), Some(ring)) = (queue, ring) {
                (queue.ring, queue.full_at, queue.fetched) = (ring, None, 0);
            }
        }
        self.memory = memory;
        Ok(())
    }

    fn update_pairs(&mut self) {
        let works = |index: usize| self.enabled[index] && self.queues[index].is_some();
        let pairs = 0..PAIRS_MAX;
        self.pairs = pairs
            .filter(|&pair| works(receive(pair)) && works(transmit(pair)))
            .collect();
        let last = self.queues.iter().rposition(Option::is_some);
        self.used = last.map_or(0, |last| last + 1);
        self.turn = 0;
    }

    /// The descriptors of its kicks, with the numbers of their rings.
    pub fn kicks(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let queues = self.queues.iter().enumerate();
        queues.filter_map(|(index, queue)| Some((index, queue.as_ref()?.kick.as_ref()?.as_fd())))
    }

    /// Empties the descriptor of a kick.
    pub fn kicked(&mut self, index: usize) {
        let queue = self.queues.get_mut(index).and_then(Option::as_mut);
        if let Some(kick) = queue.and_then(|queue| queue.kick.as_mut()) {
            // Eventfds have 8 bytes, pipes one for each kick. An error means that it is empty.
            let _ = kick.read(&mut [0; 64]);
        }
    }

    /// Starts to fetch what the guest sends next, so that the frames of a burst do not wait for the
    /// memory of another CPU one after the other.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn prefetch(&mut self, frames: u16) -> Result<(), Broken> {
        let Some(&pair) = self.pairs.get(self.turn) else {
            return Ok(());
        };
        let Some(queue) = &mut self.queues[transmit(pair)] else {
            return Ok(());
        };
        fetch(&mut queue.ring, &self.memory, frames)?;
        Ok(())
    }

    /// Fills `frame` with the next one that the guest sends.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn take(&mut self, frame: &mut Frame) -> Result<Intake, Broken> {
        for _ in 0..self.pairs.len() {
            let pair = self.pairs[self.turn];
            let Some(queue) = &mut self.queues[transmit(pair)] else {
                continue;
            };
            if queue.ring.available()? > 0 {
                return self.take_from(pair, frame);
            }
            self.turn = (self.turn + 1) % self.pairs.len();
        }
        Ok(Intake::Empty)
    }

    fn take_from(&mut self, pair: usize, frame: &mut Frame) -> Result<Intake, Broken> {
        let header_bytes = self.header_bytes();
        let Some(queue) = &mut self.queues[transmit(pair)] else {
            return Ok(Intake::Empty);
        };
        let head = queue.ring.head(&self.memory, 0)?;
        frame.pieces.clear();
        queue
            .ring
            .chain(&self.memory, head, false, &mut frame.pieces)?;
        queue.ring.advance(1);
        (frame.pair, frame.token) = (pair as u16, Some(head));
        let total: u64 = frame.pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let bytes = total.saturating_sub(header_bytes as u64);
        if bytes < u64::from(FRAME_MIN) || bytes > u64::from(FRAME_MAX) {
            return Ok(Intake::Malformed);
        }
        frame.bytes = bytes as u32;
        let mut header = [0; HEADER];
        self.memory
            .take(&mut frame.pieces, &mut header[..header_bytes]);
        frame.read_start(&self.memory);
        let Ok(work) = Work::parse(&header, frame.bytes) else {
            return Ok(Intake::Malformed);
        };
        frame.work = work;
        Ok(Intake::Frame)
    }

    /// All exits have a frame: its sender may use its buffers again.
    #[inline]
    pub fn release(&mut self, pair: u16, head: u16) {
        if let Some(queue) = &mut self.queues[transmit(usize::from(pair))] {
            queue.ring.complete(&self.memory, head, 0);
        }
    }

    /// Delivers a frame to the guest.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    #[inline]
    pub fn deliver(&mut self, frame: &Outgoing<'_>) -> Result<Delivery, Broken> {
        let Some(&pair) = self
            .pairs
            .get(usize::from(frame.pair) % self.pairs.len().max(1))
        else {
            return Ok(Delivery::Down);
        };
        let (header_bytes, mergeable) = (self.header_bytes(), self.is_mergeable());
        let wanted = header_bytes as u32 + frame.bytes();
        let Some(queue) = &mut self.queues[receive(pair)] else {
            return Ok(Delivery::Down);
        };
        if queue.fetched == 0 {
            queue.fetched = fetch(&mut queue.ring, &self.memory, FETCHED)?;
        }
        let fits = gather(
            &mut queue.ring,
            &self.memory,
            wanted,
            mergeable,
            &mut self.pieces,
            &mut self.heads,
        )?;
        queue.full_at = (fits == Delivery::NoRoom).then(|| queue.ring.known());
        if fits != Delivery::Done {
            return Ok(fits);
        }
        let mut header = frame.work.header(frame.headers());
        header[10..12].copy_from_slice(&(self.heads.len() as u16).to_le_bytes());
        let mut out = Filler {
            memory: &self.memory,
            pieces: &self.pieces,
            room: self.pieces[0],
            at: 0,
        };
        out.bytes(&header[..header_bytes]);
        out.bytes(frame.start);
        match frame.own {
            Some(own) => out.bytes(own),
            None => {
                for &piece in frame.pieces {
                    out.piece(frame.memory, piece);
                }
            }
        }
        for &(head, written) in &self.heads {
            queue.ring.complete(&self.memory, head, written);
        }
        queue.ring.advance(self.heads.len() as u16);
        queue.fetched = queue.fetched.saturating_sub(self.heads.len() as u16);
        Ok(Delivery::Done)
    }

    /// Whether a ring in which a frame did not fit has more buffers now.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn has_new_room(&mut self) -> Result<bool, Broken> {
        let mut is_full = false;
        for &pair in &self.pairs {
            let Some(queue) = &mut self.queues[receive(pair)] else {
                continue;
            };
            let Some(known) = queue.full_at else { continue };
            is_full = true;
            if queue.ring.look()? != known {
                queue.full_at = None;
                return Ok(true);
            }
        }
        // The ring that was full has been replaced or disabled meanwhile.
        Ok(!is_full)
    }

    /// No frame waits for room any more.
    pub fn unblock(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.full_at = None;
        }
    }

    /// Shows the driver what it has received (`sent = false`), or which buffers it may use again
    /// (`sent = true`), and calls it if it wants that.
    pub fn publish(&mut self, sent: bool) {
        let first = if sent { transmit(0) } else { receive(0) };
        for queue in self.queues[..self.used].iter_mut().skip(first).step_by(2) {
            let Some(queue) = queue else { continue };
            let wants = queue.ring.publish();
            if let Some(call) = queue.call.as_mut().filter(|_| wants) {
                // A pipe that is full has a call in it already.
                let _ = call.write(&1u64.to_ne_bytes());
            }
        }
    }

    /// Asks for kicks before the worker sleeps. Whether there is work already.
    ///
    /// # Errors
    /// A ring that breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        let mut work = false;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let Some(queue) = queue else { continue };
            let sends = index % 2 == 1;
            if !self.pairs.contains(&(index / 2)) {
                continue;
            }
            if !sends && queue.full_at.is_none() {
                continue;
            }
            queue.ring.look()?;
            queue.ring.want_kick();
            let known = queue.ring.look()?;
            work |= match queue.full_at {
                Some(full_at) => known != full_at,
                None => known > 0,
            };
        }
        Ok(work)
    }

    /// The worker polls again.
    pub fn disarm(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.ring.want_no_kick();
        }
    }
}

/// Starts to fetch the next chains and their first buffers, at most so many; how many there are.
fn fetch(ring: &mut Ring, memory: &Memory, most: u16) -> Result<u16, Broken> {
    let known = ring.look()?.min(most);
    for ahead in 0..known {
        ring.prefetch_descriptor(memory, ahead);
    }
    for ahead in 0..known {
        ring.prefetch_buffer(memory, ahead);
    }
    Ok(known)
}

/// Finds buffers for so many bytes: their pieces, and for each chain its head and what will be
/// written into it.
fn gather(
    ring: &mut Ring,
    memory: &Memory,
    wanted: u32,
    mergeable: bool,
    pieces: &mut Vec<Piece>,
    heads: &mut Vec<(u16, u32)>,
) -> Result<Delivery, Broken> {
    pieces.clear();
    heads.clear();
    let mut found = 0;
    while found < wanted {
        let ahead = heads.len() as u16;
        if heads.len() >= BUFFERS_MAX {
            return Ok(Delivery::TooLong);
        }
        if ahead >= ring.known() && ring.look()? <= ahead {
            return Ok(if ahead >= ring.size() {
                Delivery::TooLong
            } else {
                Delivery::NoRoom
            });
        }
        let (head, before) = (ring.head(memory, ahead)?, pieces.len());
        ring.chain(memory, head, true, pieces)?;
        let room = pieces[before..].iter().map(|piece| u64::from(piece.len));
        let room = room.sum::<u64>().min(u64::from(wanted)) as u32;
        if room == 0 {
            return Err(Broken("a receive buffer has no room"));
        }
        if !mergeable && room < wanted {
            return Ok(Delivery::TooLong);
        }
        heads.push((head, room.min(wanted - found)));
        found += room;
    }
    Ok(Delivery::Done)
}

/// Fills the pieces of receive buffers, which hold all that will be written.
struct Filler<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    /// What is left of the piece that is being filled.
    room: Piece,
    at: usize,
}

impl Filler<'_> {
    fn skip(&mut self, bytes: u32) {
        self.room.skip(bytes);
        if self.room.len == 0 {
            self.at += 1;
            self.room = self.pieces.get(self.at).copied().unwrap_or_default();
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(self.room.len as usize);
            self.memory.write(self.room, &bytes[..now]);
            self.skip(now as u32);
            bytes = &bytes[now..];
        }
    }

    fn piece(&mut self, from: &Memory, mut source: Piece) {
        while source.len > 0 {
            let now = source.len.min(self.room.len);
            self.memory.copy(self.room, from, source.first(now));
            self.skip(now);
            source.skip(now);
        }
    }
}
