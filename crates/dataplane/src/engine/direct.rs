//! Frames that pass from guest to guest at once, as most do: none waits before them, and neither
//! tag nor filter nor capture wants to see them. A guest of another thread gets them from that one.
//!
//! What happens to a frame here is what happens to it in [`Engine::forward`]. A frame for which
//! more is to be done goes that way, from the place at which this is known.

use sluicegate_core::segment::Direction;
use sluicegate_pfc::frame::MAC_CONTROL;
use sluicegate_vswitch::{
    filter::is_tag,
    learning::{Mac, Membership, Tagging},
};

use super::{BURST, Engine, TURN};
use crate::{
    count::Drop,
    frame::{Frame, FrameId},
    govern::Fate,
    lanes::{Lane, Priority},
    offload::Takes,
    port::{Delivery, Port},
    ring::Broken,
};

/// Bytes of two addresses.
const ADDRESSES: usize = 12;

/// What holds for all frames of a burst.
#[derive(Clone, Copy)]
struct Way {
    number: u16,
    vlan: u16,
    is_governed: bool,
    /// Destination and source of the frame before, and its exit: a frame with the same ones that
    /// comes next has the same exit.
    before: Option<([u8; ADDRESSES], u16)>,
}

/// What became of a frame.
#[derive(PartialEq, Eq)]
enum Step {
    /// Its receiver has it, and its sender has its buffers back. Its number is free.
    Passed,
    /// Another thread has it.
    Sent,
    /// It went the other way.
    Kept,
    /// Nothing was taken: there is none, or none of this kind.
    None,
}

impl Engine {
    /// Takes frames of a guest, and hands those over that pass at once. Returns how many it took;
    /// if less than [`BURST`], its turn has had its work, or the next one is not of this kind, or
    /// there is none.
    pub(super) fn take_direct(&mut self, number: u16) -> usize {
        let Some(mut way) = self.way_of(number) else {
            return 0;
        };
        let mut id = self.frames.take();
        let mut taken = 0;
        while taken < BURST && self.spent < TURN {
            match self.take_at_once(id, &mut way) {
                Step::Passed => {}
                Step::Sent => id = self.frames.take(),
                Step::Kept => {
                    // What the frame before said of the exit may hold no longer.
                    way.before = None;
                    self.settle_governed();
                    id = self.frames.take();
                }
                Step::None => break,
            }
            taken += 1;
        }
        self.frames.put(id);
        self.settle_governed();
        taken
    }

    #[inline]
    fn settle_governed(&mut self) {
        if let Some(govern) = &mut self.govern {
            govern.settle();
        }
    }

    fn way_of(&self, number: u16) -> Option<Way> {
        let bay = self.bays.get(usize::from(number))?.as_ref()?;
        let Some(&Membership::Access(vlan)) = self.learning.membership(number) else {
            return None;
        };
        let is_plain = matches!(bay.port, Port::Vhost(_))
            && bay.filter.is_open()
            && bay.priority == Priority::Unknown
            && self.taps.is_none();
        let govern = self.govern.as_ref();
        is_plain.then(|| Way {
            number,
            vlan,
            is_governed: govern.is_some_and(|govern| govern.governs(number)),
            before: None,
        })
    }

    #[inline]
    fn take_at_once(&mut self, id: FrameId, way: &mut Way) -> Step {
        let frame = self.frames.get_mut(id);
        let bay = self.bays.get_mut(usize::from(way.number));
        let Some(Some(bay)) = bay else {
            return Step::None;
        };
        let Port::Vhost(device) = &mut bay.port else {
            return Step::None;
        };
        match device.take_ahead(frame) {
            Ok(true) => {}
            Ok(false) => return Step::None,
            Err(Broken(reason)) => {
                self.close(way.number, reason);
                return Step::None;
            }
        }
        (frame.from, frame.pending) = (way.number, 1);
        self.spent += u64::from(frame.bytes);
        let govern = self.govern.as_mut();
        let passed = govern.and_then(|govern| govern.follows(way.number, frame));
        let Some(exit) = passed.or_else(|| self.exit_at_once(id, way)) else {
            self.forward(way.number, id);
            self.release(id);
            return Step::Kept;
        };
        let frame = self.frames.get_mut(id);
        (frame.vlan, frame.lane) = (way.vlan, Lane::default());
        if let Some(Some(bay)) = self.bays.get_mut(usize::from(way.number)) {
            bay.counters.received(frame.bytes);
        }
        if passed.is_none() && !self.passes(id, way.number, exit) {
            return Step::Kept;
        }
        self.hand_over_at_once(id, way.number, exit)
    }

    /// The exit of a frame, if it is that of a guest to which it may pass at once.
    #[inline]
    fn exit_at_once(&mut self, id: FrameId, way: &mut Way) -> Option<u16> {
        let frame = self.frames.get(id);
        // A frame has at least so many bytes.
        let kind = [frame.start[ADDRESSES], frame.start[ADDRESSES + 1]];
        let is_odd = is_tag(u16::from_be_bytes(kind)) || kind == MAC_CONTROL;
        if is_odd || way.is_governed && !frame.work.spares_headers(frame.start()) {
            return None;
        }
        let mut addresses = [0; ADDRESSES];
        addresses.copy_from_slice(&frame.start[..ADDRESSES]);
        if let Some((_, exit)) = way.before.filter(|(before, _)| *before == addresses) {
            return Some(exit);
        }
        let exit = self.settled_exit(&addresses, way)?;
        way.before = Some((addresses, exit));
        Some(exit)
    }

    #[inline(never)]
    fn settled_exit(&self, addresses: &[u8; ADDRESSES], way: &Way) -> Option<u16> {
        let mac = |at: usize| -> Mac {
            let mut mac = Mac::default();
            mac.copy_from_slice(&addresses[at..at + 6]);
            mac
        };
        let (to, source) = (mac(0), mac(6));
        let learning = &self.learning;
        let exit = learning.settled(way.vlan, way.number, source, to, self.now_ns)?;
        let member = learning.membership(exit)?;
        let is_untagged = member.egress(way.vlan) == Some(Tagging::None);
        let bay = self.bays.get(usize::from(exit))?.as_ref()?;
        let is_up = match &bay.port {
            Port::Vhost(device) => device.is_up(),
            Port::Remote(_) => true,
            Port::Tap(_) | Port::Shm(_) | Port::Xdp(_) => false,
        };
        (is_untagged && is_up).then_some(exit)
    }

    /// Whether a frame passes the vNICs of its sender and of its receiver; if not, it has gone the
    /// other way.
    #[inline]
    fn passes(&mut self, id: FrameId, number: u16, exit: u16) -> bool {
        let Some(govern) = &mut self.govern else {
            return true;
        };
        let memory = &self.memories[usize::from(number)];
        let frame = self.frames.get_mut(id);
        match govern.pass_between((number, exit), frame, memory, self.now_ns) {
            (_, Fate::Pass) | (Direction::ToTenant, Fate::PassWith(_)) => return true,
            (Direction::FromTenant, fate) => self.send_on(number, id, fate),
            (Direction::ToTenant, Fate::Drop(reason)) => self.drop_at(id, exit, reason),
            (Direction::ToTenant, Fate::Consumed) => {}
        }
        self.release(id);
        false
    }

    /// Hands a frame over that has passed all there is before its receiver's ring.
    #[inline]
    fn hand_over_at_once(&mut self, id: FrameId, number: u16, exit: u16) -> Step {
        let to = self.choice.lanes.side(exit, 0);
        let frame = self.frames.get_mut(id);
        let is_through = self.switch.lets_through(to) && !frame.is_own();
        let bay = self.bays.get_mut(usize::from(exit));
        if let Some(Some(bay)) = bay.filter(|_| is_through) {
            let delivered = match &mut bay.port {
                Port::Remote(thread) => {
                    let thread = *thread;
                    return self.send_at_once(id, exit, thread);
                }
                Port::Vhost(device) if takes(device.takes(), frame) => {
                    device.deliver_ahead(frame, &self.memories[usize::from(number)])
                }
                _ => Ok(false),
            };
            match delivered {
                Ok(true) => {
                    bay.counters.delivered(frame.bytes);
                    let (pair, token) = (frame.pair, frame.token.take());
                    if let Some(token) = token {
                        self.give_back(usize::from(number), pair, token);
                    }
                    return Step::Passed;
                }
                Ok(false) => {}
                Err(Broken(reason)) => {
                    self.close(exit, reason);
                    self.drop_at(id, exit, Drop::NoReceiver);
                    self.release(id);
                    return Step::Kept;
                }
            }
        }
        self.offer_edited(id, exit);
        self.release(id);
        Step::Kept
    }
}

impl Engine {
    /// Hands a frame over to the thread of its exit.
    #[inline]
    fn send_at_once(&mut self, id: FrameId, exit: u16, thread: usize) -> Step {
        let step = match self.hand_over(id, exit, thread) {
            Delivery::Done => Step::Sent,
            _ => {
                self.offer_edited(id, exit);
                Step::Kept
            }
        };
        self.release(id);
        step
    }

    /// Delivers a frame of another thread, if its exit takes it at once and as it is. Whether it
    /// is done with.
    #[inline]
    pub(super) fn deliver_at_once(&mut self, id: FrameId, exit: u16) -> bool {
        let frame = self.frames.get(id);
        let kind = [frame.start[ADDRESSES], frame.start[ADDRESSES + 1]];
        let is_plain = !is_tag(u16::from_be_bytes(kind))
            && !frame.is_own()
            && frame.flooded.is_none()
            && self.taps.is_none()
            && self.govern.is_none()
            && self
                .switch
                .lets_through(self.choice.lanes.side(exit, frame.lane.number));
        let member = self.learning.membership(exit).filter(|_| is_plain);
        if member.and_then(|member| member.egress(frame.vlan)) != Some(Tagging::None) {
            return false;
        }
        let Some(Some(bay)) = self.bays.get_mut(usize::from(exit)) else {
            return false;
        };
        let Port::Vhost(device) = &mut bay.port else {
            return false;
        };
        if !takes(device.takes(), frame) {
            return false;
        }
        match device.deliver_ahead(frame, &self.memories[usize::from(frame.from)]) {
            Ok(true) => {
                bay.counters.delivered(frame.bytes);
                true
            }
            Ok(false) => false,
            Err(Broken(reason)) => {
                self.close(exit, reason);
                self.drop_at(id, exit, Drop::NoReceiver);
                true
            }
        }
    }
}

/// Whether a frame goes as it is to a port that takes this.
#[inline]
pub(super) fn takes(takes: Takes, frame: &Frame) -> bool {
    frame.work.is_none() || takes.takes(frame.work) && frame.parts == 0
}
