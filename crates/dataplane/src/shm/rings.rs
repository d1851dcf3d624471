//! The two halves of a direction: who sends, and who receives.
//!
//! The other side may write anything into the memory at any time. So each half keeps for itself
//! which buffers it has, copies each entry before it looks at it, and trusts no number in it.

use serde::{Deserialize, Serialize};

use super::{
    lane::{Reader, Shared, Writer},
    layout::{Layout, Places},
    shares::{CONTROL, Shares},
};
use crate::{
    fill::Filler,
    frame::{FRAME_MAX, FRAME_MIN, Frame},
    memory::{Memory, Piece, Refused, Word, full_fence},
    offload::{HEADER, Work},
    port::{Delivery, Intake, Outgoing},
    ring::Broken,
};

/// The frame goes on in the next entry.
const NEXT: u16 = 1;

impl Shared for Word {
    fn load(&self) -> u16 {
        Self::load(self)
    }
    fn store(&self, value: u16) {
        Self::store(self, value);
    }
    fn replace(&self, from: u16, to: u16) -> bool {
        Self::replace(self, from, to)
    }
    fn fence(&self) {
        full_fence();
    }
}

/// Where a sender is, for another process that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderState {
    offered: u16,
    returned: u16,
    /// Buffers that the receiver has, whether a frame begins there, and its priority.
    away: Vec<(u16, bool, u8)>,
}

/// Where a buffer of the sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    Free,
    /// The receiver has it, and a frame begins in it.
    First,
    /// The receiver has it.
    Further,
}

/// The half that sends.
#[derive(Debug)]
pub struct Sender {
    places: Places,
    offered: Writer<Word>,
    returned: Reader<Word>,
    buffers: Vec<Buffer>,
    /// Of each buffer that the receiver has, the priority of its frame, or [`CONTROL`].
    lanes: Vec<u8>,
    free: Vec<u16>,
    shares: Shares,
    /// Frames that have not come back.
    unread: u64,
    /// A frame did not fit.
    is_full: bool,
    pieces: Vec<Piece>,
}

impl Sender {
    /// Goes on where it was.
    ///
    /// # Errors
    /// The memory is too short, or the state contradicts itself.
    pub fn new(
        memory: &Memory,
        layout: Layout,
        direction: usize,
        state: &SenderState,
    ) -> Result<Self, Refused> {
        let words = layout.words(memory, direction)?;
        let mut buffers = vec![Buffer::Free; usize::from(layout.slots)];
        let mut lanes = vec![0; usize::from(layout.slots)];
        let mut shares = Shares::default();
        for &(number, is_first, lane) in &state.away {
            let buffer = buffers.get_mut(usize::from(number));
            let buffer = buffer.filter(|buffer| **buffer == Buffer::Free);
            *buffer.ok_or_else(|| Refused("a buffer that is none".to_owned()))? = match is_first {
                true => Buffer::First,
                false => Buffer::Further,
            };
            lanes[usize::from(number)] = lane;
            shares.take(lane, 1);
        }
        // The first ones are used first.
        let numbers = (0..layout.slots).rev();
        let is_free = |number: &u16| buffers[usize::from(*number)] == Buffer::Free;
        Ok(Self {
            places: layout.places(direction),
            offered: Writer::new(words.offered, words.receiver_asks, state.offered),
            returned: Reader::new(
                words.returned,
                words.sender_asks,
                layout.slots,
                state.returned,
            ),
            free: numbers.filter(is_free).collect(),
            unread: state
                .away
                .iter()
                .filter(|it| it.1 && it.2 != CONTROL)
                .count() as u64,
            buffers,
            lanes,
            shares,
            is_full: false,
            pieces: Vec::new(),
        })
    }

    /// Where it is now.
    pub fn state(&self) -> SenderState {
        let away = (0..).zip(&self.buffers);
        let away = away.filter(|(_, buffer)| **buffer != Buffer::Free);
        SenderState {
            offered: self.offered.next(),
            returned: self.returned.next(),
            away: away
                .map(|(number, &buffer)| {
                    let lane = self.lanes[usize::from(number)];
                    (number, buffer == Buffer::First, lane)
                })
                .collect(),
        }
    }

    /// Frames that the receiver has not given back.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Takes back what the receiver has returned. Whether that was anything.
    ///
    /// # Errors
    /// The receiver breaks the rules.
    pub fn collect(&mut self, memory: &Memory) -> Result<bool, Broken> {
        let count = self.returned.look()?;
        for _ in 0..count {
            let at = self.places.returned(memory, self.returned.next());
            let number = u16::from_le_bytes(memory.load(at));
            self.returned.advance();
            let buffer = self.buffers.get_mut(usize::from(number));
            let Some(buffer) = buffer.filter(|buffer| **buffer != Buffer::Free) else {
                return Err(Broken("a buffer comes back that was not sent"));
            };
            let lane = self.lanes[usize::from(number)];
            self.unread -= u64::from(*buffer == Buffer::First && lane != CONTROL);
            *buffer = Buffer::Free;
            self.free.push(number);
            self.shares.give_back(lane);
        }
        self.is_full &= count == 0;
        Ok(count > 0)
    }

    /// Sends a frame. The receiver sees it after [`Sender::show`].
    ///
    /// # Errors
    /// The receiver breaks the rules.
    pub fn put(&mut self, memory: &Memory, frame: &Outgoing<'_>) -> Result<Delivery, Broken> {
        let (bytes, buffer) = (HEADER as u32 + frame.bytes(), self.places.layout.buffer);
        let wanted = bytes.div_ceil(buffer) as usize;
        if frame.bytes() > FRAME_MAX || wanted > self.buffers.len() {
            return Ok(Delivery::TooLong);
        }
        let least = wanted + self.shares.kept(frame.lane);
        if self.free.len() < least || !self.shares.fits(frame.lane, wanted) {
            self.collect(memory)?;
        }
        self.is_full = self.free.len() < least;
        if self.is_full {
            return Ok(Delivery::NoRoom);
        }
        if !self.shares.fits(frame.lane, wanted) {
            self.shares.note_full(frame.lane);
            return Ok(Delivery::Held);
        }
        let numbers = self.free.split_off(self.free.len() - wanted);
        self.pieces.clear();
        let pieces = numbers.iter();
        let pieces = pieces.map(|&number| self.places.buffer(memory, number, buffer));
        self.pieces.extend(pieces);
        let mut out = Filler::new(memory, &self.pieces);
        out.bytes(&frame.work.header(frame.headers()));
        out.frame(frame);
        self.shares.take(frame.lane, wanted);
        self.offer(memory, &numbers, bytes, frame.lane);
        Ok(Delivery::Done)
    }

    /// Writes the entries of a frame in these buffers.
    fn offer(&mut self, memory: &Memory, numbers: &[u16], mut bytes: u32, lane: u8) {
        for (at, &number) in numbers.iter().enumerate() {
            let used = bytes.min(self.places.layout.buffer);
            bytes -= used;
            let flags = if bytes > 0 { NEXT } else { 0 };
            let entry = u64::from(number) | u64::from(flags) << 16 | u64::from(used) << 32;
            let place = self.places.entry(memory, self.offered.next());
            memory.store(place, entry.to_le_bytes());
            self.offered.advance();
            self.buffers[usize::from(number)] = match at {
                0 => Buffer::First,
                _ => Buffer::Further,
            };
            self.lanes[usize::from(number)] = lane;
        }
        self.unread += u64::from(lane != CONTROL);
    }

    /// Shows the receiver what was sent. Whether it is to be kicked.
    #[inline]
    pub fn show(&mut self) -> bool {
        self.offered.show()
    }

    /// Whether there are more buffers than when a frame did not fit.
    ///
    /// # Errors
    /// The receiver breaks the rules.
    pub fn has_new_room(&mut self, memory: &Memory) -> Result<bool, Broken> {
        if self.is_full {
            self.collect(memory)?;
        }
        Ok(!self.is_full)
    }

    /// Shares the buffers among priorities.
    pub fn share(&mut self, lossless: u8, limit: u16) {
        self.shares.set(lossless, limit);
    }

    /// Priorities whose share has no more buffers than when a frame did not fit, bit p.
    ///
    /// # Errors
    /// The receiver breaks the rules.
    #[inline]
    pub fn full_lanes(&mut self, memory: &Memory) -> Result<u8, Broken> {
        if self.shares.full() != 0 {
            self.collect(memory)?;
        }
        Ok(self.shares.full())
    }

    /// No frame waits any more.
    pub fn unblock(&mut self) {
        self.is_full = false;
    }

    /// Asks for a kick if a frame waits: whether it asked, and whether there is room already.
    ///
    /// # Errors
    /// The receiver breaks the rules.
    pub fn arm(&mut self) -> Result<(bool, bool), Broken> {
        Ok(match self.is_full || self.shares.full() != 0 {
            true => (true, self.returned.arm()? > 0),
            false => (false, false),
        })
    }

    /// Wants no kick. Whether it had asked, and none will come.
    pub fn disarm(&mut self) -> bool {
        self.returned.disarm()
    }
}

/// Where a receiver is, for another process that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverState {
    offered: u16,
    returned: u16,
    /// Buffers of frames that were taken and not released; they are returned first.
    held: Vec<u16>,
}

/// Of a buffer: it is the sender's.
const ELSEWHERE: u16 = u16::MAX;
/// Of a buffer that is here: the frame has no further one.
const LAST: u16 = u16::MAX - 1;

/// The half that receives.
#[derive(Debug)]
pub struct Receiver {
    places: Places,
    offered: Reader<Word>,
    returned: Writer<Word>,
    /// Of each buffer, the next one of its frame.
    held: Vec<u16>,
}

impl Receiver {
    /// Goes on where it was.
    ///
    /// # Errors
    /// The memory is too short.
    pub fn new(
        memory: &Memory,
        layout: Layout,
        direction: usize,
        state: &ReceiverState,
    ) -> Result<Self, Refused> {
        let words = layout.words(memory, direction)?;
        let mut receiver = Self {
            places: layout.places(direction),
            offered: Reader::new(
                words.offered,
                words.receiver_asks,
                layout.slots,
                state.offered,
            ),
            returned: Writer::new(words.returned, words.sender_asks, state.returned),
            held: vec![ELSEWHERE; usize::from(layout.slots)],
        };
        for &number in &state.held {
            receiver.give_back(memory, number);
        }
        Ok(receiver)
    }

    /// Where it is now, with everything shown.
    pub fn state(&self) -> ReceiverState {
        let held = (0..).zip(&self.held);
        let held = held.filter(|(_, next)| **next != ELSEWHERE);
        ReceiverState {
            offered: self.offered.next(),
            returned: self.returned.next(),
            held: held.map(|(number, _)| number).collect(),
        }
    }

    /// Fills `frame` with the next one; its token is for [`Receiver::release`].
    ///
    /// # Errors
    /// The sender breaks the rules.
    #[inline]
    pub fn take(&mut self, memory: &Memory, frame: &mut Frame) -> Result<Intake, Broken> {
        if self.offered.known() == 0 && self.offered.look()? == 0 {
            return Ok(Intake::Empty);
        }
        frame.pieces.clear();
        let (first, total) = self.chain(memory, &mut frame.pieces)?;
        (frame.pair, frame.token) = (0, Some(first));
        let bytes = total.saturating_sub(HEADER as u64);
        if bytes < u64::from(FRAME_MIN) {
            return Ok(Intake::Malformed);
        }
        frame.bytes = bytes as u32;
        let mut header = [0; HEADER];
        memory.take(&mut frame.pieces, &mut header);
        frame.read_start(memory);
        let Ok(work) = Work::parse(&header, frame.bytes) else {
            return Ok(Intake::Malformed);
        };
        frame.work = work;
        Ok(Intake::Frame)
    }

    /// Takes the entries of a frame: its first buffer, and the bytes of all.
    fn chain(&mut self, memory: &Memory, pieces: &mut Vec<Piece>) -> Result<(u16, u64), Broken> {
        let (mut first, mut before, mut total) = (None, None, 0);
        loop {
            if self.offered.known() == 0 && self.offered.look()? == 0 {
                return Err(Broken("a frame has no end"));
            }
            let place = self.places.entry(memory, self.offered.next());
            // What is looked at from here on is this copy.
            let entry = u64::from_le_bytes(memory.load(place));
            self.offered.advance();
            let (number, flags, used) = (entry as u16, (entry >> 16) as u16, (entry >> 32) as u32);
            if self.held.get(usize::from(number)) != Some(&ELSEWHERE) {
                return Err(Broken("a buffer is sent that is none, or is here already"));
            }
            if used == 0 || used > self.places.layout.buffer {
                return Err(Broken("a length beyond its buffer"));
            }
            let goes_on = flags & NEXT != 0;
            if goes_on && used < self.places.layout.buffer {
                // Many short pieces would take time from others.
                return Err(Broken("a frame goes on behind a buffer that is not full"));
            }
            self.held[usize::from(number)] = LAST;
            if let Some(before) = before.replace(number) {
                self.held[usize::from(before)] = number;
            }
            pieces.push(self.places.buffer(memory, number, used));
            total += u64::from(used);
            let first = *first.get_or_insert(number);
            if total > (HEADER as u64) + u64::from(FRAME_MAX) {
                return Err(Broken("a frame is too long"));
            }
            if !goes_on {
                return Ok((first, total));
            }
        }
    }

    /// All exits have a frame: its buffers go back. The sender sees that after [`Receiver::show`].
    #[inline]
    pub fn release(&mut self, memory: &Memory, token: u16) {
        let mut number = token;
        while let Some(next) = self.held.get_mut(usize::from(number)) {
            let next = std::mem::replace(next, ELSEWHERE);
            if next == ELSEWHERE {
                return;
            }
            self.give_back(memory, number);
            number = next;
        }
    }

    fn give_back(&mut self, memory: &Memory, number: u16) {
        let place = self.places.returned(memory, self.returned.next());
        memory.store(place, number.to_le_bytes());
        self.returned.advance();
    }

    /// Shows the sender what came back. Whether it is to be kicked.
    #[inline]
    pub fn show(&mut self) -> bool {
        self.returned.show()
    }

    /// Asks for a kick before the worker sleeps. Whether there are frames already.
    ///
    /// # Errors
    /// The sender breaks the rules.
    pub fn arm(&mut self) -> Result<bool, Broken> {
        Ok(self.offered.arm()? > 0)
    }

    /// Wants no kick. Whether it had asked, and none will come.
    pub fn disarm(&mut self) -> bool {
        self.offered.disarm()
    }
}

#[cfg(test)]
#[path = "rings_tests.rs"]
mod tests;
