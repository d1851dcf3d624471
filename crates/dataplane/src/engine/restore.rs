//! What a switch leaves to its successor, and what it goes on with.

use std::sync::Arc;

use super::Engine;
use crate::{
    count::Drop,
    frame::Frame,
    handover::Copy,
    ledger::{ALL_PARTS, Ledger},
    memory::Memory,
    offload::{Cut, Work},
    port::Port,
};

/// A guest that was there when a predecessor ended has so long to come back, ns; frames wait for it
/// meanwhile.
pub const RETURN_NS: u64 = 5_000_000_000;

impl Engine {
    /// Records in this file what is handed over. To be called before ports are added.
    pub fn keep(&mut self, ledger: Arc<Ledger>) {
        self.learning.watch();
        self.ledger = Some(ledger);
    }

    /// The number of its thread.
    pub(super) fn thread(&self) -> usize {
        self.mesh.as_ref().map_or(0, |mesh| mesh.me)
    }

    /// Learns the addresses that a predecessor had learned, of ports that are there.
    pub fn remember(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        for (key, port) in ledger.addresses() {
            self.learning.restore(key, port, self.now_ns);
        }
        if self.thread() == 0 {
            ledger.rewrite(self.learning.keys());
        }
        self.learning.changes().clear();
    }

    /// Puts in force what the rings are now, and shows it to their drivers: receivers see their
    /// frames before senders are told that they have them.
    pub fn settle(&mut self) {
        let thread = self.thread();
        if let Some(ledger) = &self.ledger {
            let mut changed = std::mem::take(&mut self.has_marked);
            for bay in self.bays.iter_mut().flatten() {
                if let Port::Vhost(device) = &mut bay.port {
                    changed |= device.prepare();
                }
            }
            if changed {
                ledger.commit(thread, ledger.epoch(thread) + 1);
            }
        }
        if self.mesh.is_some() {
            self.tell_addresses();
        }
        for sent in [false, true] {
            for bay in self.bays.iter_mut().flatten() {
                bay.port.publish(sent);
            }
        }
        // What is in parcels is in the ledger before the other thread has it.
        if let Some(mesh) = &mut self.mesh {
            mesh.publish();
        }
        self.record_addresses();
    }

    fn record_addresses(&mut self) {
        let Some(ledger) = &self.ledger else { return };
        if self.learning.changes().is_empty() {
            return;
        }
        if self.mesh.as_ref().is_some_and(|mesh| mesh.me != 0) {
            // The first thread hears of all addresses, and records them.
            return self.learning.changes().clear();
        }
        let has_room = {
            let mut changes = self.learning.changes().drain(..);
            changes.all(|(key, port)| ledger.learn(key, port))
        };
        if !has_room {
            ledger.rewrite(self.learning.keys());
        }
    }

    /// Frames for a guest that a predecessor had wait until it has come back.
    pub(super) fn await_guest(&mut self, number: u16) {
        let now_ns = self.now_ns;
        self.share_memory(number);
        let Some(bay) = self.bay_mut(number) else {
            return;
        };
        let was_up = match &bay.port {
            Port::Vhost(device) => device.pairs_before() > 0,
            Port::Shm(cable) => cable.was_up(),
            Port::Tap(_) | Port::Xdp(_) | Port::Remote(_) => false,
        };
        if was_up {
            bay.awaited_ns = Some(now_ns + RETURN_NS);
            self.block(number);
        }
    }

    /// The guest of a port has come, changed or gone.
    pub(super) fn note_pairs(&mut self, number: u16, is_gone: bool) {
        let Some(bay) = self.bay_mut(number) else {
            return;
        };
        let Port::Vhost(device) = &bay.port else {
            return;
        };
        let is_back = device.pairs() >= device.pairs_before();
        if bay.awaited_ns.is_some() && !is_gone && !is_back {
            return;
        }
        // What waited is served with the next poll.
        bay.awaited_ns = None;
        device.record_pairs();
        if !device.is_up() {
            self.discard(number, Drop::NoReceiver);
        }
    }

    /// Guests that did not come back are gone.
    pub(super) fn give_up_waiting(&mut self) {
        let now_ns = self.now_ns;
        for number in 0..self.bays.len() as u16 {
            let bay = self.bay_mut(number);
            let awaited_ns = bay.and_then(|bay| bay.awaited_ns);
            if awaited_ns.is_some_and(|until_ns| now_ns > until_ns) {
                match self.bay_mut(number).map(|bay| &bay.port) {
                    Some(Port::Shm(_)) => self.give_up_peer(number),
                    _ => self.note_pairs(number, true),
                }
            }
        }
    }

    /// Whether a frame is in its sender's ring, where a successor finds it.
    fn is_in_ring(&self, frame: &Frame) -> bool {
        let bay = self.bays.get(usize::from(frame.from));
        frame.token.is_some_and(|token| match bay {
            Some(Some(bay)) => match &bay.port {
                Port::Vhost(device) => device.holds(frame.pair, token),
                Port::Remote(thread) => self.chain(*thread, token) != 0,
                _ => false,
            },
            _ => false,
        })
    }

    /// Copies of the frames that a successor finds in no ring, in the order in which they wait.
    pub fn copies(&self) -> Vec<(Copy, Vec<u8>)> {
        let mut copies = Vec::new();
        let lanes = self.choice.lanes;
        for (exit, _) in self.bays() {
            let sides = lanes.highest_first().map(|it| lanes.side(exit, it));
            for &id in sides.flat_map(|side| self.switch.waiting_packets(side)) {
                let frame = self.frames.get(id);
                if self.is_in_ring(frame) || frame.parts == ALL_PARTS {
                    continue;
                }
                for (work, bytes) in self.rest_of(frame) {
                    let copy = Copy {
                        from: frame.from,
                        pair: frame.pair,
                        exit,
                        vlan: frame.vlan,
                        lane: frame.lane,
                        work,
                        is_flooded: frame.flooded.is_some(),
                        bytes: bytes.len() as u32,
                    };
                    copies.push((copy, bytes));
                }
            }
        }
        copies
    }

    /// A frame with its work, or of one that is cut the parts that were not delivered.
    fn rest_of(&self, frame: &Frame) -> Vec<(Work, Vec<u8>)> {
        let memory = &self.memories[usize::from(frame.from)];
        if frame.parts == 0 {
            return vec![(frame.work, frame.whole(memory))];
        }
        let Ok(cut) = Cut::new(frame.start(), frame.bytes, frame.work) else {
            return Vec::new();
        };
        let part = |number| {
            let mut bytes = Vec::new();
            let mut place = frame.place(cut.payload(number).start);
            frame.part(memory, &cut, number, &mut place, &mut bytes);
            (Work::default(), bytes)
        };
        (frame.parts..cut.parts()).map(part).collect()
    }

    /// Takes a frame that a predecessor had, and that has passed both vNICs there.
    pub fn take_copy(&mut self, copy: &Copy, bytes: &[u8]) {
        let most = self.memories.len().max(usize::from(copy.from) + 1);
        self.memories.resize_with(most, Arc::<Memory>::default);
        let Some(bay) = self.bay_mut(copy.exit) else {
            return;
        };
        if !bay.port.is_up() && bay.awaited_ns.is_none() {
            return bay.counters.drop(Drop::NoReceiver);
        }
        bay.flooded += u32::from(copy.is_flooded);
        let id = self.frames.take();
        let frame = self.frames.get_mut(id);
        frame.set_own(bytes);
        (frame.from, frame.pair, frame.vlan, frame.work) =
            (copy.from, copy.pair, copy.vlan, copy.work);
        (frame.token, frame.pending) = (None, 1);
        frame.flooded = copy.is_flooded.then_some(copy.exit);
        frame.lane = copy.lane;
        self.offer_edited(id, copy.exit);
        self.release(id);
    }
}
