//! Frames with work that their exits do not do: checksums, and segments that are cut.
//!
//! Such a frame waits as it is, with its sender's buffers, as any other. It is cut when its exit
//! takes it, part by part: as many parts as the exit has room for, and as are done in a turn. The
//! parts that were delivered are counted in the frame, and in the ledger, which puts the count in
//! force together with the parts: a successor goes on behind them. Its sender has its buffers back
//! when its last part is delivered.

use std::mem;

use super::{Engine, PART, TURN, direct::takes};
use crate::{
    count::Drop,
    frame::FrameId,
    ledger::ALL_PARTS,
    offload::{Cut, Work},
    port::{Delivery, Port},
};

impl Engine {
    /// Delivers a frame that has work, or of which parts are delivered.
    #[inline(never)]
    pub(super) fn deliver_worked(&mut self, id: FrameId, exit: u16) -> Delivery {
        let frame = self.frames.get(id);
        if frame.parts == ALL_PARTS {
            return Delivery::Refused;
        }
        let bay = self.bays.get(usize::from(exit)).and_then(Option::as_ref);
        let takes = bay.is_none_or(|bay| match &bay.port {
            // Its own thread does what is left to do.
            Port::Remote(_) => true,
            port => takes(port.takes(), frame),
        });
        if takes {
            return self.deliver_as_it_is(id, exit);
        }
        match Cut::new(frame.start(), frame.bytes, frame.work) {
            Ok(cut) => self.deliver_cut(id, exit, &cut),
            Err(_) => {
                self.drop_at(id, self.frames.get(id).from, Drop::Malformed);
                Delivery::Refused
            }
        }
    }

    /// Delivers parts of a frame, from the first that its exit does not have: at least one, if the
    /// exit has room for it.
    fn deliver_cut(&mut self, id: FrameId, exit: u16, cut: &Cut) -> Delivery {
        let first = self.frames.get(id).parts;
        let mut place = self.frames.get(id).place(cut.payload(first).start);
        let (part, mut bytes) = (self.frames.take(), mem::take(&mut self.part));
        let mut number = first;
        let delivered = loop {
            if number >= cut.parts() {
                break Delivery::Done;
            }
            if number > first && self.spent >= TURN {
                break Delivery::Later;
            }
            let frame = self.frames.get(id);
            let memory = &self.memories[usize::from(frame.from)];
            frame.part(memory, cut, number, &mut place, &mut bytes);
            let (from, pair, vlan, lane) = (frame.from, frame.pair, frame.vlan, frame.lane);
            self.spent += PART + bytes.len() as u64;
            let frame = self.frames.get_mut(part);
            frame.set_own(&bytes);
            (frame.from, frame.pair, frame.vlan, frame.lane) = (from, pair, vlan, lane);
            (frame.token, frame.pending, frame.work) = (None, 0, Work::default());
            match self.deliver_as_it_is(part, exit) {
                // Each of them was counted.
                Delivery::Done | Delivery::TooLong | Delivery::Refused => number += 1,
                other => break other,
            }
        };
        self.frames.put(part);
        self.part = bytes;
        // If the exit was closed meanwhile, the frame has gone.
        if number > first && delivered != Delivery::Down {
            self.note_parts(id, number);
        }
        delivered
    }

    /// So many parts of a frame are delivered.
    fn note_parts(&mut self, id: FrameId, parts: u16) {
        let frame = self.frames.get_mut(id);
        frame.parts = parts;
        let (from, pair) = (usize::from(frame.from), frame.pair);
        if let (Some(token), Some(Some(bay))) = (frame.token, self.bays.get_mut(from)) {
            match &bay.port {
                Port::Remote(thread) => {
                    let thread = *thread;
                    self.mark(thread, token, parts);
                }
                _ => bay.port.deliver_parts(pair, token, parts),
            }
        }
    }
}

#[cfg(test)]
impl Engine {
    /// Bytes of frames that the switch has copied out of their senders' memory.
    pub(super) fn kept_bytes(&self) -> usize {
        let kept = self
            .frames
            .iter()
            .filter(|frame| frame.pending > 0 && frame.is_own());
        kept.map(|frame| frame.own.len()).sum()
    }
}
