//! Frames between threads: parcels that leave, arrive and come home.
//!
//! Exactly once, across kills: a sender's thread puts in force that it has a frame before it shows
//! the parcel. The receiver's thread puts in force at once that its guest has the frame and that
//! the frame is done ([`crate::ledger::Ledger::mark`]), and then sends the parcel home. A successor
//! that finds a frame done gives its buffers back and sends it nowhere.

use std::{mem, sync::Arc};

use super::{Engine, TURN};
use crate::{
    frame::FrameId,
    ledger::ALL_PARTS,
    memory::Memory,
    mesh::{Home, Link, Mesh},
    port::{Delivery, Port},
    vhost::Change,
};

/// Parcels that are opened of each thread before ports have their turn, or fewer with more work
/// than that of a turn.
const PARCELS_PER_POLL: usize = 64;

/// What was in a parcel.
enum Opened {
    Frame(u16, Option<Arc<Memory>>),
    Recall(u16),
}

impl Engine {
    /// Makes it one of several threads.
    pub fn join(&mut self, mesh: Mesh) {
        self.learning.watch_for_others();
        self.mesh = Some(Box::new(mesh));
    }

    /// What it has of other threads.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.mesh.as_deref()
    }

    fn link(&mut self, thread: usize) -> Option<&mut Link> {
        self.mesh.as_mut()?.links.get_mut(thread)?.as_mut()
    }

    /// Whether a port is there and of this thread.
    #[inline]
    pub fn is_own(&self, number: u16) -> bool {
        let bay = self.bays.get(usize::from(number));
        matches!(bay, Some(Some(bay)) if !matches!(bay.port, Port::Remote(_)))
    }

    /// The thread of an exit that has another one.
    #[inline]
    pub(super) fn elsewhere(&self, exit: u16) -> Option<usize> {
        match &self.bays.get(usize::from(exit))?.as_ref()?.port {
            Port::Remote(thread) => Some(*thread),
            _ => None,
        }
    }

    /// Hands a frame over to the thread of its exit, if that has credit.
    #[inline(never)]
    pub(super) fn hand_over(&mut self, id: FrameId, exit: u16, thread: usize) -> Delivery {
        let frame = self.frames.get(id);
        let from = usize::from(frame.from);
        let bay = self.bays.get(from).and_then(Option::as_ref);
        let chain = match (bay.map(|bay| &bay.port), frame.token) {
            (Some(Port::Vhost(device)), Some(token)) => device.chain(frame.pair, token),
            _ => 0,
        };
        let vnic = self.choice.lanes.vnic(exit, frame.lane.number);
        let Some(mesh) = &mut self.mesh else {
            return Delivery::Down;
        };
        let Some(Some(link)) = mesh.links.get_mut(thread) else {
            return Delivery::Down;
        };
        let memory = &self.memories[from];
        if !link.has_credit(vnic, frame.bytes)
            || !link.send((id, frame), (exit, vnic), chain, memory)
        {
            return Delivery::NoRoom;
        }
        if mesh.away.len() <= from {
            mesh.away.resize(from + 1, 0);
        }
        mesh.away[from] += 1;
        self.frames.get_mut(id).pending += 1;
        self.take_share(id, exit);
        Delivery::Done
    }

    /// Takes what other threads have sent, and what has come home. How many parcels.
    pub(super) fn meet(&mut self) -> usize {
        self.hear();
        let threads = self.mesh.as_ref().map_or(0, |mesh| mesh.threads());
        let mut moved = 0;
        for thread in 0..threads {
            while let Some(home) = self.link(thread).and_then(Link::come_home) {
                moved += 1;
                match home {
                    Home::Frame(id) => self.welcome(id),
                    Home::All(port) => self.note_recalled(port),
                }
            }
            self.spent = 0;
            let opened =
                (0..PARCELS_PER_POLL).take_while(|_| self.spent < TURN && self.open(thread));
            moved += opened.count();
        }
        moved
    }

    /// Takes everything that is on its way between threads, for a successor.
    pub fn finish_parcels(&mut self) {
        while self.meet() > 0 {}
        self.settle();
    }

    fn welcome(&mut self, id: FrameId) {
        let from = usize::from(self.frames.get(id).from);
        if let Some(away) = self.mesh.as_mut().and_then(|it| it.away.get_mut(from)) {
            *away -= 1;
        }
        self.release(id);
    }

    /// Opens a parcel of another thread. Whether there was one.
    #[inline(never)]
    fn open(&mut self, thread: usize) -> bool {
        let id = self.frames.take();
        let frame = self.frames.get_mut(id);
        let link = self.mesh.as_mut().and_then(|it| it.links[thread].as_mut());
        let opened = link.and_then(|link| {
            link.receive(|parcel| {
                if let Some(port) = parcel.recalls.take() {
                    return Opened::Recall(port);
                }
                mem::swap(&mut parcel.frame, frame);
                Opened::Frame(parcel.exit, parcel.memory.take())
            })
        });
        let (exit, memory) = match opened {
            None => {
                self.frames.put(id);
                return false;
            }
            Some(Opened::Recall(port)) => {
                self.frames.put(id);
                self.leave_home(thread, port);
                return true;
            }
            Some(Opened::Frame(exit, memory)) => (exit, memory),
        };
        let from = usize::from(self.frames.get(id).from);
        if self.memories.len() <= from {
            self.memories.resize_with(from + 1, Arc::default);
        }
        if let Some(memory) = memory {
            self.memories[from] = memory;
        }
        let frame = self.frames.get_mut(id);
        frame.pending = 1;
        if !matches!(self.bays.get(from), Some(Some(_))) {
            // Its port was removed meanwhile.
            if let Some(token) = frame.token.take() {
                self.send_home(thread, token);
            }
            self.frames.get_mut(id).flooded = None;
            self.release(id);
            return true;
        }
        if frame.flooded.is_some() {
            frame.flooded = Some(exit);
            if let Some(bay) = self.bay_mut(exit) {
                bay.flooded += 1;
            }
        }
        if !self.deliver_at_once(id, exit) {
            self.offer(id, exit);
        }
        self.release(id);
        true
    }

    /// A parcel goes home: its frame is delivered, dropped or copied.
    #[inline(never)]
    pub(super) fn send_home(&mut self, thread: usize, token: u16) {
        self.mark(thread, token, ALL_PARTS);
        if let Some(link) = self.link(thread) {
            link.send_home(token);
        }
    }

    /// So many parts of another thread's frame are delivered.
    pub(super) fn mark(&mut self, thread: usize, token: u16, parts: u16) {
        let chain = self.chain(thread, token);
        let me = self.thread();
        if let Some(ledger) = self.ledger.as_ref().filter(|_| chain != 0) {
            ledger.mark(me, chain, parts);
            self.has_marked = true;
        }
    }

    /// Where the ledger has the chain of a parcel that came from a thread; 0 = nowhere.
    pub(super) fn chain(&self, thread: usize, token: u16) -> usize {
        let mesh = self.mesh.as_ref();
        let link = mesh.and_then(|mesh| mesh.links.get(thread)?.as_ref());
        link.map_or(0, |link| link.chain(token))
    }

    /// The frames of another thread's port are copied out, and their parcels have gone home.
    pub(super) fn has_come_home(&mut self, thread: usize, port: u16) {
        if let Some(memory) = self.memories.get_mut(usize::from(port)) {
            *memory = Arc::default();
        }
        if let Some(link) = self.link(thread) {
            link.answer_recall(port);
        }
    }

    fn note_recalled(&mut self, port: u16) {
        let mesh = self.mesh.as_mut();
        if let Some(left) = mesh.and_then(|mesh| mesh.recalls.get_mut(usize::from(port))) {
            *left = left.saturating_sub(1);
        }
    }

    /// Whether a change of a port can be applied: no other thread has frames of it that the change
    /// is about. If some has, they are recalled, and the change is to be tried again.
    pub fn may_apply(&mut self, number: u16, change: &Change) -> bool {
        match change {
            Change::Memory(_) | Change::Stop(_) | Change::Gone(_) | Change::Plug(_) => {
                self.bring_home(number)
            }
            _ => !self.is_recalled(number) || self.bring_home(number),
        }
    }

    pub(super) fn is_recalled(&self, number: u16) -> bool {
        let bay = self.bays.get(usize::from(number));
        matches!(bay, Some(Some(bay)) if bay.is_recalled)
    }

    /// Whether all frames of a port have come home and are copied out, and no other thread has its
    /// memory. If not, that is done in the next polls, and the port sends nothing meanwhile.
    pub fn bring_home(&mut self, number: u16) -> bool {
        let is_home = self.call_home(number) && self.has_left(number);
        if let Some(bay) = self.bay_mut(number) {
            bay.is_recalled = !is_home;
        }
        is_home
    }

    /// Whether all frames of a port have come home, and no other thread has its memory. If not,
    /// they are recalled, and the port sends nothing meanwhile.
    pub(super) fn call_home(&mut self, number: u16) -> bool {
        let index = usize::from(number);
        let Some(mesh) = &mut self.mesh else {
            return true;
        };
        let away = mesh.away.get(index).copied().unwrap_or(0);
        let recalls = mesh.recalls.get(index).copied().unwrap_or(0);
        let is_known = mesh.others().any(|link| link.knows(number));
        let is_home = away == 0 && recalls == 0 && !is_known;
        if let Some(bay) = self.bay_mut(number) {
            bay.is_recalled = !is_home;
        }
        if !is_home && recalls == 0 {
            self.recall(number);
        }
        is_home
    }

    fn recall(&mut self, number: u16) {
        let Some(mesh) = &mut self.mesh else { return };
        let index = usize::from(number);
        if mesh.recalls.len() <= index {
            mesh.recalls.resize(index + 1, 0);
        }
        let mut asked = 0;
        for link in mesh.others() {
            link.recall(number);
            asked += 1;
        }
        // The next poll shows it.
        mesh.recalls[index] = asked;
    }

    /// Tells the other threads of addresses that this one has learned.
    pub(super) fn tell_addresses(&mut self) {
        if self.learning.changes().is_empty() {
            return;
        }
        let changes = mem::take(self.learning.changes());
        let now_ns = self.now_ns;
        let own = changes.iter().filter(|&&(_, port)| self.is_own(port));
        let own: Vec<_> = own.map(|&(key, port)| (key, port, now_ns)).collect();
        if let Some(mesh) = self.mesh.as_ref().filter(|_| !own.is_empty()) {
            let inboxes = mesh.inboxes.iter().enumerate();
            for (_, inbox) in inboxes.filter(|&(thread, _)| thread != mesh.me) {
                inbox.tell(own.iter().copied());
            }
        }
        if self.ledger.is_some() {
            *self.learning.changes() = changes;
        }
    }

    fn hear(&mut self) {
        let Some(mesh) = &self.mesh else { return };
        let Some((forgotten, seen)) = mesh.inboxes[mesh.me].read() else {
            return;
        };
        forgotten
            .into_iter()
            .for_each(|port| self.learning.forget(port));
        for (key, port, seen_ns) in seen {
            self.learning.hear(key, port, seen_ns);
        }
    }

    /// The addresses of a port are forgotten by the other threads, too.
    pub(super) fn close_abroad(&mut self, number: u16) {
        let Some(mesh) = &self.mesh else { return };
        let inboxes = mesh.inboxes.iter().enumerate();
        for (_, inbox) in inboxes.filter(|&(thread, _)| thread != mesh.me) {
            inbox.forget(number);
        }
    }
}
