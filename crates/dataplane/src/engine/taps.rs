//! Captures of frames at the points of ports.

use std::sync::{Arc, atomic::AtomicBool};

use rtrb::Producer;
use sluicegate_pcapng::Direction;

use super::Engine;
use crate::{
    capture::{Asked, Point, Seen, Tap},
    count::Drop,
    frame::FrameId,
    port::Outgoing,
};

impl Engine {
    /// Begins a capture that writes into a ring. Returns what says that it is complete, by which it
    /// is ended.
    ///
    /// # Errors
    /// What is asked for makes no sense, or there are as many captures as may be.
    pub fn begin_capture(
        &mut self,
        asked: &Asked,
        ring: Producer<u8>,
    ) -> anyhow::Result<Arc<AtomicBool>> {
        let ports = self.bays().map(|(number, bay)| (number, &bay.name[..]));
        let tap = Tap::new(asked, ports, ring)?;
        let is_complete = Arc::clone(tap.is_complete());
        self.taps.get_or_insert_default().add(tap)?;
        Ok(is_complete)
    }

    /// Ends a capture.
    pub fn end_capture(&mut self, is_complete: &Arc<AtomicBool>) -> Option<Tap> {
        let (tap, others_run) = self.taps.as_mut()?.remove(is_complete);
        if !others_run {
            self.taps = None;
        }
        tap
    }

    /// Whether any capture runs.
    pub fn is_captured(&self) -> bool {
        self.taps.is_some()
    }

    /// Shows captures a frame as the switch has it.
    #[cold]
    pub(super) fn show(&mut self, id: FrameId, number: u16, point: Point, reason: Option<Drop>) {
        let Some(taps) = &mut self.taps else { return };
        let frame = self.frames.get(id);
        let memory = &self.memories[usize::from(frame.from)];
        let seen = Seen {
            point,
            direction: match frame.from == number {
                true => Direction::Inbound,
                false => Direction::Outbound,
            },
            reason,
            frame: Outgoing::new(frame, frame.start(), 0, memory),
        };
        taps.see(number, &seen);
    }
}
