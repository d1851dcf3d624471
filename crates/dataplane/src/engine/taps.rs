//! Captures of frames at the points of ports.

use std::sync::{Arc, Mutex};

use sluicegate_pcapng::Direction;

use super::Engine;
use crate::{
    capture::{Point, Seen, Tap},
    count::Drop,
    frame::FrameId,
    port::Outgoing,
};

impl Engine {
    /// Shows a capture frames from now on.
    ///
    /// # Errors
    /// There are as many captures as may be.
    pub fn begin_capture(&mut self, tap: &Arc<Mutex<Tap>>) -> anyhow::Result<()> {
        self.taps.get_or_insert_default().add(tap)
    }

    /// Shows a capture no further frame.
    pub fn end_capture(&mut self, tap: &Arc<Mutex<Tap>>) {
        if self.taps.as_mut().is_some_and(|taps| !taps.remove(tap)) {
            self.taps = None;
        }
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
