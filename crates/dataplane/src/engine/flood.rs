//! Broadcasts and frames to unknown addresses.

use std::mem;

use super::{Engine, FLOODED_MAX, direct::takes};
use crate::{
    count::Drop,
    frame::FrameId,
    port::{Delivery, Port},
};

impl Engine {
    /// Offers a frame to all exits of its VLAN. An exit without room gets a copy, so
    /// that a broadcast does not hold up the ring of its sender. A governed exit gets one as well,
    /// since it edits the frame.
    pub(super) fn offer_all(&mut self, id: FrameId, from: u16, vlan: u16) {
        let mut exits = mem::take(&mut self.flood);
        exits.extend(self.learning.flood(vlan, from).map(|(port, _)| port));
        for &exit in &exits {
            let govern = self.govern.as_ref();
            let is_edited = govern.is_some_and(|govern| govern.governs(exit));
            if is_edited || !self.flood_now(id, exit) {
                self.offer_copy(id, exit);
            }
        }
        exits.clear();
        self.flood = exits;
    }

    /// Delivers a flooded frame if its exit takes it as it is and at once. So the buffers of its
    /// sender are free when this poll ends.
    pub(super) fn flood_now(&mut self, id: FrameId, exit: u16) -> bool {
        let Some(Some(bay)) = self.bays.get(usize::from(exit)) else {
            return true;
        };
        // A thread would wait for another one's exit with the ring of the sender.
        let is_here = !matches!(bay.port, Port::Remote(_));
        let takes = is_here && bay.port.is_up() && takes(bay.port.takes(), self.frames.get(id));
        let lane = self.frames.get(id).lane.number;
        let to = self.choice.lanes.side(exit, lane);
        if !takes || !self.switch.lets_through(to) {
            return false;
        }
        match self.deliver(id, exit) {
            Delivery::NoRoom | Delivery::Later => {
                self.block(exit);
                false
            }
            Delivery::Held => {
                self.stop_lanes(exit);
                false
            }
            _ => true,
        }
    }

    pub(super) fn offer_copy(&mut self, id: FrameId, exit: u16) {
        let Some(Some(bay)) = self.bays.get_mut(usize::from(exit)) else {
            return;
        };
        if !bay.port.is_up() && bay.awaited_ns.is_none() {
            return self.drop_at(id, exit, Drop::NoReceiver);
        }
        if bay.flooded >= FLOODED_MAX {
            return self.drop_at(id, exit, Drop::Flooded);
        }
        bay.flooded += 1;
        let frame = self.frames.get(id);
        let (from, pair, vlan, work) = (frame.from, frame.pair, frame.vlan, frame.work);
        let (lane, parts) = (frame.lane, frame.parts);
        let whole = frame.whole(&self.memories[usize::from(from)]);
        let copy = self.frames.take();
        let frame = self.frames.get_mut(copy);
        frame.set_own(&whole);
        (frame.from, frame.pair, frame.vlan, frame.work) = (from, pair, vlan, work);
        (frame.token, frame.pending) = (None, 1);
        (frame.flooded, frame.parts, frame.lane) = (Some(exit), parts, lane);
        self.offer(copy, exit);
        self.release(copy);
    }
}
