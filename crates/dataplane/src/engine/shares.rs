//! Shares of an entrance that many senders have in common: an interface of the kernel.
//!
//! Its entries are few. A frame that waits keeps one, so one exit that takes nothing would soon
//! have all of them, and no frame for any other exit could come in. So an eighth of the entries is
//! kept in equal parts, one for each exit at least, and of the others an exit may have at most as
//! many as are left free when it has one more (dynamic threshold; Choudhury and Hahne, 1998): half
//! of them if it is the only one, and a third if there are two. Whatever frames for stalled exits
//! do, each exit has its part. Frames beyond a share are dropped at their exit ([`Drop::Share`]):
//! such an entrance is lossy anyway.
//!
//! A guest's ring and a cable hold frames back instead, so all of their entries may wait for one
//! exit. There the time is bounded: an exit that takes nothing for longer than `stall_limit` loses
//! what waits for it, and what comes until it takes frames again ([`Drop::Stalled`]).

use super::Engine;
use crate::{count::Drop, frame::FrameId, port::Port};

/// What of an entrance's entries is in use, by exit.
#[derive(Debug)]
pub(super) struct Shares {
    /// Entries of each queue of the entrance.
    entries: u16,
    /// Exits among which they are shared.
    exits: u16,
    /// Entries that are kept for each exit: none where exits are more than half of the entries.
    part: u16,
    /// Entries that are kept for no exit.
    common: u16,
    queues: Vec<Queue>,
}

/// A queue of an entrance. Its entries are no other queue's.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// Of the entries that are in use, those beyond the parts of their exits.
    beyond: u16,
    /// By exit and priority, as the switch numbers them.
    by_exit: Vec<u16>,
}

impl Shares {
    /// Of a port, if it has entries in common and may drop frames.
    pub(super) fn of(port: &Port) -> Option<Box<Self>> {
        let entries = match port {
            Port::Tap(tap) if !tap.holds_back() => tap.entries(),
            Port::Xdp(xdp) => xdp.entries(),
            Port::Tap(_) | Port::Vhost(_) | Port::Shm(_) | Port::Remote(_) => return None,
        };
        Some(Box::new(Self::new(entries)))
    }

    fn new(entries: u16) -> Self {
        let mut shares = Self {
            entries,
            exits: 0,
            part: 0,
            common: entries,
            queues: Vec::new(),
        };
        shares.set_exits(1);
        shares
    }

    /// So many exits have shares from now on.
    fn set_exits(&mut self, exits: u16) {
        if exits == self.exits {
            return;
        }
        self.exits = exits;
        self.part = match exits {
            1.. if exits <= self.entries / 2 => (self.entries / 8 / exits).max(1),
            _ => 0,
        };
        // At most half of the entries, or an eighth.
        self.common = self.entries - self.part * exits;
        for queue in &mut self.queues {
            let beyond = queue
                .by_exit
                .iter()
                .map(|own| own.saturating_sub(self.part));
            queue.beyond = beyond.sum();
        }
    }

    /// Whether an exit may have one entry more: of its part, or at least as many of the others as
    /// it has then are left.
    fn has_room(&self, queue: u16, exit: u16) -> bool {
        let queue = self.queues.get(usize::from(queue));
        let own = queue.and_then(|queue| queue.by_exit.get(usize::from(exit)));
        let own = own.copied().unwrap_or(0);
        let beyond = queue.map_or(0, |queue| queue.beyond);
        let left = self.common.saturating_sub(beyond);
        own < self.part || u32::from(own - self.part) + 2 <= u32::from(left)
    }

    fn take(&mut self, queue: u16, exit: u16) {
        let (queue, exit) = (usize::from(queue), usize::from(exit));
        if self.queues.len() <= queue {
            self.queues.resize(queue + 1, Queue::default());
        }
        let queue = &mut self.queues[queue];
        if queue.by_exit.len() <= exit {
            queue.by_exit.resize(exit + 1, 0);
        }
        queue.beyond += u16::from(queue.by_exit[exit] >= self.part);
        queue.by_exit[exit] += 1;
    }

    fn give_back(&mut self, queue: u16, exit: u16) {
        let Some(queue) = self.queues.get_mut(usize::from(queue)) else {
            return;
        };
        if let Some(own) = queue.by_exit.get_mut(usize::from(exit)) {
            queue.beyond = queue.beyond.saturating_sub(u16::from(*own > self.part));
            *own = own.saturating_sub(1);
        }
    }
}

impl Engine {
    /// Why a frame may not wait for an exit, if so.
    pub(super) fn may_not_wait(&self, id: FrameId, exit: u16) -> Option<Drop> {
        let bay = self.bays.get(usize::from(exit))?.as_ref()?;
        if bay.is_stalled {
            return Some(Drop::Stalled);
        }
        let frame = self.frames.get(id);
        let from = self.bays.get(usize::from(frame.from))?.as_ref()?;
        let shares = from.shares.as_ref().filter(|_| frame.token.is_some())?;
        let vnic = self.choice.lanes.vnic(exit, frame.lane.number);
        let has_room = frame.shares_with.is_some() || shares.has_room(frame.pair, vnic);
        (!has_room).then_some(Drop::Share)
    }

    /// A frame waits for an exit, or is on its way to the thread of one: its entry is of this
    /// exit's share until its sender has it back.
    pub(super) fn take_share(&mut self, id: FrameId, exit: u16) {
        let frame = self.frames.get_mut(id);
        if frame.token.is_none() || frame.shares_with.is_some() {
            return;
        }
        // Ports are 256 at most, and priorities 8.
        let exits = self.bays.len() * usize::from(self.choice.lanes.count());
        let exits = u16::try_from(exits).unwrap_or(u16::MAX);
        let Some(Some(bay)) = self.bays.get_mut(usize::from(frame.from)) else {
            return;
        };
        if let Some(shares) = &mut bay.shares {
            shares.set_exits(exits);
            let vnic = self.choice.lanes.vnic(exit, frame.lane.number);
            shares.take(frame.pair, vnic);
            frame.shares_with = Some(vnic);
        }
    }

    /// The sender of a frame gets its entry back.
    pub(super) fn leave_share(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id);
        let Some(vnic) = frame.shares_with.take() else {
            return;
        };
        let (from, queue) = (usize::from(frame.from), frame.pair);
        if let Some(Some(bay)) = self.bays.get_mut(from) {
            if let Some(shares) = &mut bay.shares {
                shares.give_back(queue, vnic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that an exit may have; how much that is.
    fn fill(shares: &mut Shares, queue: u16, exit: u16) -> u16 {
        let mut taken = 0;
        while shares.has_room(queue, exit) {
            shares.take(queue, exit);
            taken += 1;
        }
        taken
    }

    #[test]
    fn however_many_exits_stall_each_other_one_has_its_part() {
        for entries in [64, 256, 512, 16_384] {
            for exits in [1_u16, 2, 10, 20, 32] {
                let mut shares = Shares::new(entries);
                shares.set_exits(exits);
                let part = (entries / (8 * exits)).max(1);
                let mut used = 0;
                for exit in 0..exits {
                    let own = fill(&mut shares, 0, exit);
                    assert!(own >= part, "{own} of {entries}, exit {exit} of {exits}");
                    used += own;
                }
                assert!(used <= entries, "{used} of {entries} by {exits} exits");
            }
        }
    }

    #[test]
    fn an_exit_has_half_and_later_ones_have_their_shares_of_the_rest() {
        let mut shares = Shares::new(512);
        shares.set_exits(16);
        assert_eq!(fill(&mut shares, 0, 7), 4 + 224);
        assert_eq!(fill(&mut shares, 0, 8), 4 + 112);
        // What one gives back others may have.
        (0..228).for_each(|_| shares.give_back(0, 7));
        assert!(fill(&mut shares, 0, 9) > 112);
        // Another queue has entries of its own.
        assert_eq!(fill(&mut shares, 1, 8), 4 + 224);
    }

    #[test]
    fn parts_follow_the_number_of_exits() {
        let mut shares = Shares::new(512);
        shares.set_exits(2);
        assert_eq!(fill(&mut shares, 0, 0), 32 + 224);
        shares.set_exits(64);
        for exit in 1..64 {
            assert!(fill(&mut shares, 0, exit) >= 1, "{exit}");
        }
        // Counts are those of the new parts.
        (0..256).for_each(|_| shares.give_back(0, 0));
        assert!(shares.queues[0].beyond <= shares.common);
        assert_eq!(shares.queues[0].by_exit[0], 0);
    }
}
