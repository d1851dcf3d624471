//! A ring of a port with its notifications, and the chains of it that the switch has.

use std::collections::VecDeque;

use super::notify::{Call, Kick};
use crate::{
    ledger::{ALL_PARTS, RingRecord},
    memory::Log,
    ring::{Addresses, Broken, Ring},
};

/// A ring with its notifications.
#[derive(Debug)]
pub(super) struct Queue {
    pub ring: Ring,
    pub size: u32,
    pub at: Addresses,
    /// Where its used ring is in the log.
    pub log: Option<u64>,
    pub kick: Option<Kick>,
    pub call: Option<Call>,
    /// Of a receive ring: what was known of it when a frame did not fit.
    pub full_at: Option<u16>,
    /// Chains that were taken so far.
    pub taken: u64,
    /// What the record has: chains taken, and the used index.
    pub recorded: (u64, u16),
    pub record: Option<RingRecord>,
    /// Of a transmit ring: the state of each chain.
    pub holds: Vec<Hold>,
    /// Chains whose state the record lacks.
    pub unrecorded: Vec<u16>,
    /// Chains that a predecessor took, with the parts that it had delivered.
    pub again: VecDeque<(u16, u16)>,
    /// Of a transmit ring whose chains go back in their order: those that were taken, the oldest
    /// first.
    pub in_order: Option<VecDeque<u16>>,
}

/// A chain of a transmit ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    /// Chains that were taken before it, and 1; 0 if the driver has it.
    pub order: u64,
    /// Parts of its frame that are delivered.
    pub parts: u16,
    pub is_recorded: bool,
    pub is_listed: bool,
}

impl Queue {
    /// The switch has a chain from now on.
    #[inline]
    pub fn hold(&mut self, head: u16) -> Result<(), Broken> {
        let hold = &mut self.holds[usize::from(head)];
        if hold.order != 0 {
            return Err(Broken("a chain is available twice"));
        }
        self.taken += 1;
        *hold = Hold {
            order: self.taken,
            is_listed: true,
            ..Hold::default()
        };
        self.unrecorded.push(head);
        if let Some(taken) = &mut self.in_order {
            taken.push_back(head);
        }
        Ok(())
    }

    /// Its used ring has been written.
    pub fn mark(&self, log: Option<&Log>) {
        if let (Some(log), Some(address)) = (log, self.log) {
            log.mark(address, 6 + 8 * u64::from(self.size));
        }
    }

    /// All exits have the frame of a chain.
    #[inline]
    pub fn release(&mut self, head: u16) {
        let hold = self.holds.get_mut(usize::from(head));
        let Some(hold) = hold.filter(|hold| hold.order != 0) else {
            return;
        };
        if self.in_order.is_none() {
            return self.give_back(head);
        }
        hold.parts = ALL_PARTS;
        if !std::mem::replace(&mut hold.is_listed, true) {
            self.unrecorded.push(head);
        }
        self.give_back_first();
    }

    /// Gives the chains back whose frames all exits have, up to the first one that is held.
    pub fn give_back_first(&mut self) {
        let is_done = |hold: &Hold| hold.order != 0 && hold.parts == ALL_PARTS;
        while let Some(&head) = self.in_order.as_ref().and_then(VecDeque::front) {
            if !is_done(&self.holds[usize::from(head)]) {
                return;
            }
            self.in_order.as_mut().and_then(VecDeque::pop_front);
            self.give_back(head);
        }
    }

    #[inline]
    pub fn give_back(&mut self, head: u16) {
        let hold = &mut self.holds[usize::from(head)];
        if let Some(record) = self.record.as_ref().filter(|_| hold.is_recorded) {
            record.release(head);
        }
        (hold.order, hold.is_recorded) = (0, false);
        self.ring.complete(head, 0);
    }

    /// Prepares what the ring is now, and says whether anything changed.
    pub fn prepare(&mut self) -> bool {
        let now = (self.taken, self.ring.next_used());
        if now == self.recorded && self.unrecorded.is_empty() {
            return false;
        }
        self.recorded = now;
        for head in self.unrecorded.drain(..) {
            let hold = &mut self.holds[usize::from(head)];
            hold.is_listed = false;
            let Some(record) = &self.record else { continue };
            match (hold.order, hold.is_recorded) {
                (0, _) => {}
                (_, true) => record.deliver(head, hold.parts),
                (order, false) => {
                    record.hold(head, order - 1, hold.parts);
                    hold.is_recorded = true;
                }
            }
        }
        if let Some(record) = &mut self.record {
            record.prepare(now.0, now.1);
        }
        true
    }
}
