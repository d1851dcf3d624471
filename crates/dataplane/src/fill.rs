//! Copying a frame into the buffers of a receiver.

use crate::{
    memory::{Memory, Piece},
    port::Outgoing,
};

/// Fills the pieces of receive buffers, which hold all that will be written.
#[derive(Debug)]
pub struct Filler<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    /// What is left of the piece that is being filled.
    room: Piece,
    at: usize,
}

impl<'a> Filler<'a> {
    /// Begins with the first of these pieces of this memory.
    pub fn new(memory: &'a Memory, pieces: &'a [Piece]) -> Self {
        Self {
            memory,
            pieces,
            room: pieces.first().copied().unwrap_or_default(),
            at: 0,
        }
    }

    fn skip(&mut self, bytes: u32) {
        self.room.skip(bytes);
        if self.room.len == 0 {
            self.at += 1;
            self.room = self.pieces.get(self.at).copied().unwrap_or_default();
        }
    }

    /// Appends bytes of the switch.
    pub fn bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(self.room.len as usize);
            self.memory.write(self.room, &bytes[..now]);
            self.skip(now as u32);
            bytes = &bytes[now..];
        }
    }

    /// Appends a frame.
    pub fn frame(&mut self, frame: &Outgoing<'_>) {
        self.bytes(frame.start);
        match frame.own {
            Some(own) => self.bytes(own),
            None => {
                for &piece in frame.pieces {
                    self.piece(frame.memory, piece);
                }
            }
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
