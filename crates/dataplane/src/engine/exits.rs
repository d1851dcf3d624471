//! Exits: ports that have no room, and frames that wait for them.

use sluicegate_vswitch::Side;

use super::{Engine, TURN};
use crate::{count::Drop, frame::FrameId, port::Delivery, ring::Broken};

impl Engine {
    /// A port has room again.
    pub(super) fn unblock(&mut self, number: u16) {
        self.set_ready(number, true);
        if let Some(bay) = self.bay_mut(number) {
            if bay.is_stalled {
                tracing::info!(port = bay.name, "a port takes frames again");
            }
            (bay.blocked_ns, bay.goes_on, bay.is_stalled) = (None, false, false);
            bay.port.unblock();
        }
    }

    /// Whether a port takes frames, of priorities that are not stopped.
    pub(super) fn set_ready(&mut self, number: u16, ready: bool) {
        let (lanes, stopped) = (self.choice.lanes, self.stopped(number));
        for priority in lanes.highest_first() {
            let ready = ready && stopped >> priority & 1 == 0;
            self.switch.set_ready(lanes.side(number, priority), ready);
        }
    }

    /// A port has no room.
    pub(super) fn block(&mut self, exit: u16) {
        self.set_ready(exit, false);
        let now_ns = self.now_ns;
        if let Some(bay) = self.bay_mut(exit) {
            bay.blocked_ns.get_or_insert(now_ns);
        }
    }

    /// Delivers frames to a receiver that has buffers again, or drops them if it took none for
    /// longer than the operator allows.
    pub(super) fn serve_blocked(&mut self, exit: u16) -> usize {
        let Some(Some(bay)) = self.bays.get_mut(usize::from(exit)) else {
            return 0;
        };
        let Some(since_ns) = bay.blocked_ns.filter(|_| bay.awaited_ns.is_none()) else {
            return 0;
        };
        let (goes_on, was_stalled) = (std::mem::take(&mut bay.goes_on), bay.is_stalled);
        let moved = match bay.port.has_new_room().map(|has_room| has_room || goes_on) {
            Ok(true) => self.deliver_waiting(exit),
            Ok(false) => 0,
            Err(Broken(reason)) => {
                self.close(exit, reason);
                return 0;
            }
        };
        let is_blocked = self
            .bay_mut(exit)
            .is_some_and(|bay| bay.blocked_ns.is_some());
        let waited_ns = self.now_ns.saturating_sub(since_ns);
        let limit_ns = self.choice.stall_limit_ns;
        if moved == 0
            && is_blocked
            && !was_stalled
            && limit_ns.is_some_and(|limit_ns| waited_ns > limit_ns)
        {
            self.give_up(exit);
        }
        moved
    }

    /// Drops what waits for a receiver that takes nothing, and what comes until it takes frames
    /// again: otherwise it would fill the entries of its senders over and over.
    #[cold]
    fn give_up(&mut self, exit: u16) {
        if self.elsewhere(exit).is_some() {
            // Its own thread knows whether it takes frames.
            return self.discard(exit, Drop::Stalled);
        }
        self.drop_waiting(exit, Drop::Stalled);
        if let Some(bay) = self.bay_mut(exit) {
            bay.is_stalled = true;
            tracing::warn!(
                port = bay.name,
                "a port has taken nothing for `stall_limit`: what waited for it is dropped, and what \
                 comes until it takes frames again"
            );
        }
    }

    /// The frame that a port gets next, of those that wait for it, its priority and its side. None
    /// of the priorities of `without` (bit p).
    fn first(&self, exit: u16, without: u8) -> Option<(u8, Side, FrameId)> {
        let (lanes, stopped) = (self.choice.lanes, self.stopped(exit) | without);
        let goes = move |lane: &u8| stopped >> lane & 1 == 0;
        let sides = lanes.highest_first().filter(goes);
        let mut sides = sides.map(|lane| (lane, lanes.side(exit, lane)));
        sides.find_map(|(lane, to)| Some((lane, to, *self.switch.first(to)?)))
    }

    /// Ends the turn of an exit that may have more room: it goes on at the next one.
    #[inline(never)]
    pub(super) fn go_on_later(&mut self, exit: u16) {
        self.set_ready(exit, false);
        let now_ns = self.now_ns;
        if let Some(bay) = self.bay_mut(exit) {
            (bay.blocked_ns, bay.goes_on) = (Some(now_ns), true);
        }
    }

    /// Delivers what waits for an exit that has room, or as much of it as is done in a turn.
    /// Returns how many frames moved; of one that is cut and has not gone yet, how many of its
    /// parts.
    pub(super) fn deliver_waiting(&mut self, exit: u16) -> usize {
        // Another thread gives credit to each priority apart.
        let is_elsewhere = self.elsewhere(exit).is_some();
        let (mut moved, mut without) = (0, 0);
        self.spent = 0;
        while let Some((lane, to, id)) = self.first(exit, without) {
            if self.spent >= TURN {
                self.go_on_later(exit);
                return moved;
            }
            let before = self.frames.get(id).parts;
            let delivered = self.deliver(id, exit);
            if matches!(
                delivered,
                Delivery::NoRoom | Delivery::Held | Delivery::Later
            ) {
                moved += usize::from(self.frames.get(id).parts - before);
            }
            if delivered == Delivery::Later {
                self.go_on_later(exit);
                return moved;
            }
            if delivered == Delivery::Held {
                self.stop_lanes(exit);
                continue;
            }
            if delivered == Delivery::NoRoom && is_elsewhere {
                without |= 1 << lane;
                continue;
            }
            if delivered == Delivery::NoRoom {
                let now_ns = self.now_ns;
                if let Some(bay) = self.bay_mut(exit).filter(|_| moved > 0) {
                    bay.blocked_ns = Some(now_ns);
                }
                return moved;
            }
            // A port that was closed meanwhile has no frames any more.
            if self.switch.take(to).is_some() {
                self.release(id);
            }
            moved += 1;
        }
        if without == 0 {
            self.unblock(exit);
        } else if moved > 0 {
            let now_ns = self.now_ns;
            if let Some(bay) = self.bay_mut(exit) {
                bay.blocked_ns = Some(now_ns);
            }
        }
        moved
    }
}
