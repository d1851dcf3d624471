//! Frames that the switch holds.
//!
//! A frame stays where its sender put it until all its exits have it: the descriptors of a guest
//! stay in use, so the sender's own ring is the queue. Only its beginning is copied out, once:
//! what was checked there is what is sent. If its port goes away, the rest is copied out as well.

use crate::{
    lanes::Lane,
    memory::{Memory, Piece},
    offload::{Cut, Work},
};

/// Bytes that are copied out of every frame: Ethernet, a tag, and the longest headers of IPv4 and
/// TCP, or what a source filter looks at.
pub const START: usize = 138;

/// The longest frame in bytes: a segment of 64 KB with its headers and a tag.
pub const FRAME_MAX: u32 = 65_535 + 18;

/// The shortest frame in bytes.
pub const FRAME_MIN: u32 = 14;

/// The number of a frame in its [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameId(u32);

/// The place of a frame's bytes behind its start.
#[derive(Debug, Default)]
pub enum Rest {
    /// In the memory of the guest that sent it.
    #[default]
    Guest,
    /// Here.
    Own,
}

/// A place in a frame's bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Bytes before it.
    bytes: usize,
    /// In the sender's memory: the piece in which it is, and the bytes of that before it.
    piece: usize,
    skipped: u32,
}

/// Bytes of a frame that lie together.
enum Chunk<'a> {
    Here(&'a [u8]),
    Guest(Piece),
}

/// A frame.
#[derive(Debug)]
pub struct Frame {
    /// The port by which it came.
    pub from: u16,
    /// The queue pair of that port.
    pub pair: u16,
    /// What the port calls it; `None` if the port has its buffers back.
    pub token: Option<u16>,
    /// VLAN.
    pub vlan: u16,
    /// Priority.
    pub lane: Lane,
    /// Exits that do not have it yet.
    pub pending: u32,
    /// Length in bytes.
    pub bytes: u32,
    /// The work that its sender left to do.
    pub work: Work,
    /// The exit for which this is a copy of a flooded frame.
    pub flooded: Option<u16>,
    /// The exit, with its priority, of whose share of the entrance its entry is.
    pub shares_with: Option<u16>,
    /// Of a frame that is cut ([`crate::offload::Cut`]): its parts that were delivered. With
    /// [`crate::ledger::ALL_PARTS`] nothing of it is to be delivered.
    pub parts: u16,
    /// The first bytes.
    pub start: [u8; START],
    /// Where the others are.
    pub rest: Rest,
    /// In the sender's memory.
    pub pieces: Vec<Piece>,
    /// Copied out.
    pub own: Vec<u8>,
}

impl Default for Frame {
    fn default() -> Self {
        Self {
            from: 0,
            pair: 0,
            token: None,
            vlan: 0,
            lane: Lane::default(),
            pending: 0,
            bytes: 0,
            work: Work::default(),
            flooded: None,
            shares_with: None,
            parts: 0,
            start: [0; START],
            rest: Rest::default(),
            pieces: Vec::new(),
            own: Vec::new(),
        }
    }
}

impl Frame {
    /// The bytes that were copied out.
    #[inline]
    pub fn start(&self) -> &[u8] {
        &self.start[..START.min(self.bytes as usize)]
    }

    /// Whether the switch has all of its bytes.
    pub fn is_own(&self) -> bool {
        matches!(self.rest, Rest::Own)
    }

    /// Its bytes, whose number it has, are in this piece of its sender's memory.
    #[inline]
    pub fn read_piece(&mut self, memory: &Memory, mut piece: Piece) {
        let start = START.min(piece.len as usize);
        memory.read(piece, &mut self.start[..start]);
        self.pieces.clear();
        self.rest = Rest::Guest;
        if piece.len as usize > START {
            piece.skip(START as u32);
            self.pieces.push(piece);
        }
    }

    /// Takes the first bytes out of the pieces of the sender.
    #[inline]
    pub fn read_start(&mut self, memory: &Memory) {
        let wanted = START.min(self.bytes as usize);
        memory.take(&mut self.pieces, &mut self.start[..wanted]);
        self.rest = Rest::Guest;
    }

    /// Fills it with bytes of the switch.
    pub fn set_own(&mut self, bytes: &[u8]) {
        let start = START.min(bytes.len());
        self.start[..start].copy_from_slice(&bytes[..start]);
        self.own.clear();
        self.own.extend_from_slice(&bytes[start..]);
        self.bytes = bytes.len() as u32;
        self.rest = Rest::Own;
    }

    /// Copies the rest out of the sender's memory.
    pub fn leave(&mut self, memory: &Memory) {
        if self.is_own() {
            return;
        }
        self.own.clear();
        self.own
            .reserve_exact(self.bytes as usize - self.start().len());
        memory.append(&self.pieces, &mut self.own);
        self.pieces.clear();
        self.rest = Rest::Own;
    }

    /// Becomes the same as another frame: its start and its own bytes are copied, what is in its
    /// sender's memory stays there. Its exits and its token are none.
    pub fn describe(&mut self, frame: &Self) {
        (self.from, self.pair, self.vlan, self.lane) =
            (frame.from, frame.pair, frame.vlan, frame.lane);
        (self.bytes, self.work, self.parts) = (frame.bytes, frame.work, frame.parts);
        (self.token, self.pending) = (None, 0);
        (self.flooded, self.shares_with) = (frame.flooded, None);
        let start = frame.start();
        self.start[..start.len()].copy_from_slice(start);
        self.pieces.clear();
        self.own.clear();
        if frame.is_own() {
            self.own.extend_from_slice(&frame.own);
            self.rest = Rest::Own;
        } else {
            self.pieces.extend_from_slice(&frame.pieces);
            self.rest = Rest::Guest;
        }
    }

    /// Forgets its bytes: nothing of it is delivered any more.
    pub fn empty(&mut self) {
        self.bytes = self.bytes.min(START as u32);
        (self.own, self.rest) = (Vec::new(), Rest::Own);
        self.pieces.clear();
    }

    /// The place behind so many of its bytes, for [`Frame::part`].
    pub fn place(&self, bytes: u32) -> Place {
        let mut place = Place::default();
        self.walk(&mut place, bytes, |_| ());
        place
    }

    /// Appends so many bytes from a place, which moves on by as many.
    fn append_from(&self, memory: &Memory, place: &mut Place, bytes: u32, to: &mut Vec<u8>) {
        self.walk(place, bytes, |chunk| match chunk {
            Chunk::Here(bytes) => to.extend_from_slice(bytes),
            Chunk::Guest(piece) => memory.append(&[piece], to),
        });
    }

    /// Makes a part of it in place of what `to` held: a whole frame without work. `place` is where
    /// the part's payload begins, and moves on behind it.
    pub fn part(
        &self,
        memory: &Memory,
        cut: &Cut,
        number: u16,
        place: &mut Place,
        to: &mut Vec<u8>,
    ) {
        to.clear();
        to.extend_from_slice(&self.start()[..cut.headers()]);
        self.append_from(memory, place, cut.payload(number).len() as u32, to);
        cut.finish(to, number);
    }

    /// Goes through so many bytes from a place, or through all that follow.
    fn walk(&self, place: &mut Place, bytes: u32, mut each: impl FnMut(Chunk<'_>)) {
        let mut left = bytes as usize;
        let start = self.start();
        let parts = match self.rest {
            Rest::Own => [start, &self.own],
            Rest::Guest => [start, &[]],
        };
        let mut before = 0;
        for part in parts {
            let at = place.bytes.saturating_sub(before).min(part.len());
            let now = left.min(part.len() - at);
            each(Chunk::Here(&part[at..at + now]));
            (place.bytes, left) = (place.bytes + now, left - now);
            before += part.len();
        }
        while left > 0 && !self.is_own() {
            let Some(&(mut piece)) = self.pieces.get(place.piece) else {
                return;
            };
            piece.skip(place.skipped);
            let now = left.min(piece.len as usize);
            each(Chunk::Guest(piece.first(now as u32)));
            (place.bytes, left) = (place.bytes + now, left - now);
            place.skipped += now as u32;
            if now == piece.len as usize {
                (place.piece, place.skipped) = (place.piece + 1, 0);
            }
        }
    }

    /// The whole frame.
    pub fn whole(&self, memory: &Memory) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes as usize);
        self.whole_into(memory, &mut bytes);
        bytes
    }

    /// The whole frame, in place of what `bytes` held.
    pub fn whole_into(&self, memory: &Memory, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(self.start());
        match self.rest {
            Rest::Own => bytes.extend_from_slice(&self.own),
            Rest::Guest => memory.append(&self.pieces, bytes),
        }
    }

    /// Gives it another length: what is behind goes, and what it grows by is in its start already.
    pub fn resize(&mut self, bytes: u32) {
        let mut rest = (bytes as usize).saturating_sub(START);
        self.own.truncate(rest);
        self.pieces.retain_mut(|piece| {
            *piece = piece.first(piece.len.min(rest as u32));
            rest -= piece.len as usize;
            piece.len > 0
        });
        self.bytes = bytes;
    }
}

/// Room that an unused frame keeps, in bytes and in pieces: that of ordinary frames.
const OWN_KEPT: usize = 2048;
const PIECES_KEPT: usize = 32;

/// All frames of a thread.
#[derive(Debug, Default)]
pub struct Store {
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Store {
    /// An unused frame; its contents are those of an earlier one.
    #[inline]
    pub fn take(&mut self) -> FrameId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Frame::default());
            self.frames.len() as u32 - 1
        });
        FrameId(number)
    }

    /// Gives a frame back.
    #[inline]
    pub fn put(&mut self, id: FrameId) {
        let frame = self.get_mut(id);
        (frame.parts, frame.pending) = (0, 0);
        if frame.own.capacity() > OWN_KEPT {
            frame.own = Vec::new();
        }
        if frame.pieces.capacity() > PIECES_KEPT {
            frame.pieces = Vec::new();
        }
        self.free.push(id.0);
    }

    /// A frame.
    #[inline]
    pub fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// A frame.
    #[inline]
    pub fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id.0 as usize]
    }

    /// Frames in use.
    pub fn used(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// All frames, those without exits included, in the order of [`Store::id`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// The frame at a place from 0, below the number of all frames.
    pub fn id(&self, place: usize) -> FrameId {
        FrameId(place as u32)
    }
}
