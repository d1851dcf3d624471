//! Frames of a port whose rings or memory are to go: they are copied out before.
//!
//! That may be much: a ring full of segments. So it is done in turns of the port, between those of
//! others, while the port sends nothing. Whoever wants to change the port asks until it is done
//! ([`Engine::bring_home`]).

use super::{BURST, Engine, TURN};
use crate::{
    count::Drop,
    frame::{Frame, FrameId},
    ledger::ALL_PARTS,
};

/// Bytes that the switch keeps of frames whose sender has gone or has stopped its ring.
const LEFT_MAX: usize = 16 << 20;

/// Bytes that are copied out in a turn. Each is written to memory that is new to the process, which
/// takes several times as long as a copy to a guest.
const COPIED: usize = 64 << 10;

/// Frames that are looked at in a turn.
const LOOKS: usize = 4096;

/// A port whose frames are copied out.
#[derive(Debug)]
pub(super) struct Leaving {
    port: u16,
    /// The thread that has the port, if it is another one.
    thread: Option<usize>,
    /// Frames of the store before this one have been looked at.
    at: usize,
    /// Those from this one on are no frames of the port. `None`: it still takes what a predecessor
    /// had taken.
    end: Option<usize>,
    /// Bytes that are kept.
    bytes: usize,
    /// Some frames are dropped, and wait still.
    has_dropped: bool,
    /// Dropped frames, which wait no more.
    dropped: Vec<FrameId>,
    is_done: bool,
}

impl Leaving {
    fn of(port: u16, thread: Option<usize>) -> Self {
        Self {
            port,
            thread,
            at: 0,
            end: None,
            bytes: 0,
            has_dropped: false,
            dropped: Vec::new(),
            is_done: false,
        }
    }
}

impl Engine {
    /// Whether all frames of a port that wait here are copied out; if not, some more of them are,
    /// and others with each poll.
    pub(super) fn has_left(&mut self, port: u16) -> bool {
        let is_it = |leaving: &Leaving| leaving.port == port && leaving.thread.is_none();
        let at = self.leaving.iter().position(is_it);
        let known = at.map(|at| self.leaving.swap_remove(at));
        let mut leaving = known.unwrap_or_else(|| Leaving::of(port, None));
        if !leaving.is_done {
            self.leave_some(&mut leaving);
        }
        let is_done = leaving.is_done;
        self.leaving.push(leaving);
        is_done
    }

    /// Copies out the frames of another thread's port in the next polls, and then sends word.
    pub(super) fn leave_home(&mut self, thread: usize, port: u16) {
        self.leaving.push(Leaving::of(port, Some(thread)));
    }

    /// A turn of each port whose frames are copied out. How many turns.
    #[cold]
    pub(super) fn leave_in_turns(&mut self) -> usize {
        let mut turns = 0;
        // Ports may be closed meanwhile, which copies out at once.
        let mut all = std::mem::take(&mut self.leaving);
        all.retain_mut(|leaving| {
            if leaving.is_done {
                // Otherwise it may have sent something since.
                return self.is_recalled(leaving.port);
            }
            turns += 1;
            self.leave_some(leaving);
            if let (true, Some(thread)) = (leaving.is_done, leaving.thread) {
                self.has_come_home(thread, leaving.port);
                return false;
            }
            true
        });
        all.append(&mut self.leaving);
        self.leaving = all;
        turns
    }

    /// Whether a port's frames are to be copied out.
    pub(super) fn leaves(&self) -> bool {
        self.leaving.iter().any(|leaving| !leaving.is_done)
    }

    /// Copies out the frames of a port that wait, and gives it its buffers back, at once: what is
    /// left of them.
    #[inline(never)]
    pub(super) fn detach(&mut self, port: u16) {
        let mut has_left = false;
        self.leaving.retain(|leaving| {
            let is_it = leaving.port == port && leaving.thread.is_none();
            has_left |= is_it && leaving.is_done;
            !is_it
        });
        if has_left {
            return;
        }
        let mut leaving = Leaving::of(port, None);
        while !leaving.is_done {
            self.leave_some(&mut leaving);
        }
    }

    /// Copies some frames of a port out, and gives it their buffers back. Beyond a bound they are
    /// dropped, so that a guest that resets its rings over and over fills no memory.
    #[inline(never)]
    fn leave_some(&mut self, leaving: &mut Leaving) {
        let end = match leaving.end {
            Some(end) => end,
            None if self.takes_again(leaving.port) => return,
            None => *leaving.end.insert(self.frames.iter().len()),
        };
        let (mut copied, last) = (0, end.min(leaving.at + LOOKS));
        while leaving.at < last && copied < COPIED {
            let id = self.frames.id(leaving.at);
            leaving.at += 1;
            let frame = self.frames.get(id);
            if frame.from != leaving.port || frame.pending == 0 || frame.parts == ALL_PARTS {
                continue;
            }
            leaving.bytes += size_of::<Frame>() + frame.bytes as usize;
            if leaving.bytes > LEFT_MAX {
                self.leave_out(id, leaving.port);
                leaving.has_dropped = true;
            } else {
                let is_here = frame.is_own();
                copied += if is_here { 0 } else { frame.bytes as usize };
                self.keep_copy(id);
            }
        }
        if leaving.at < end {
            return;
        }
        if std::mem::take(&mut leaving.has_dropped) {
            let frames = &self.frames;
            let waits = |id: &FrameId| frames.get(*id).parts != ALL_PARTS;
            leaving.dropped = self.switch.remove(waits);
            return;
        }
        let rest = leaving.dropped.len().saturating_sub(LOOKS);
        for id in leaving.dropped.drain(rest..) {
            self.release(id);
        }
        leaving.is_done = leaving.dropped.is_empty();
    }

    /// Takes some frames of a port that a predecessor had taken. Whether there may be more.
    fn takes_again(&mut self, port: u16) -> bool {
        self.spent = 0;
        (0..BURST).all(|_| self.spent >= TURN || self.take_one(port, true) == Some(true))
    }

    /// Drops a frame that waits, and gives its sender its buffers back. It leaves its place when
    /// its turn comes, or all of them together.
    fn leave_out(&mut self, id: FrameId, port: u16) {
        self.drop_at(id, port, Drop::Left);
        let frame = self.frames.get_mut(id);
        frame.empty();
        frame.parts = ALL_PARTS;
        let (from, pair) = (usize::from(frame.from), frame.pair);
        if let Some(token) = frame.token.take() {
            self.leave_share(id);
            self.give_back(from, pair, token);
        }
    }
}
