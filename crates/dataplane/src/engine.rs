//! The switch of one thread: its ports around the sans-I/O switch. Ports of other threads are exits
//! as well ([`crate::mesh`]).
//!
//! ```text
//!  port ─take─▶ frame ─filter, VLAN, vNIC, address, vNIC─▶ Switch::offer ─┬─ through ─▶ deliver
//!                                           taken: waits in its sender's ring ─┤
//!                                            dropped, where drops are allowed ─┘
//!  a receiver has buffers again ─▶ Switch::take ──────────────────────────▶ deliver
//! ```
//!
//! It reads no clock and never sleeps: [`Engine::poll`] does what can be done now.

mod abroad;
pub mod alarm;
mod cables;
mod cuts;
mod direct;
mod exits;
mod flood;
#[cfg(test)]
mod killed;
mod leave;
mod pauses;
mod restore;
#[cfg(test)]
mod resumed;
#[cfg(test)]
mod shared;
mod shares;
mod tags;
mod taps;
#[cfg(test)]
mod turns;
pub mod waits;
mod xdp;

use std::sync::Arc;

use sluicegate_core::segment::Direction;
use sluicegate_vswitch::{
    Bound, Config, Handover, Point, Switch, WhenFull,
    filter::{Filter, Forged},
    learning::{Learning, LearningLimits, Membership, Route},
    reserved::{self, Reserved},
};

pub use self::restore::RETURN_NS;
use self::{
    alarm::Alarm,
    leave::Leaving,
    shares::Shares,
    tags::{ONE_TAG, addresses, is_control, is_tagged, retag, seen_vlan},
};
use crate::{
    capture::{self, Seen, Taps},
    count::{Counters, Drop},
    frame::{FrameId, START, Store},
    govern::{Fate, Govern},
    lanes::{Lanes, Priority},
    ledger::{ALL_PARTS, Ledger},
    memory::Memory,
    mesh::Mesh,
    offload::Work,
    port::{Delivery, Intake, Outgoing, Port},
    ring::Broken,
    vhost::Change,
};

/// Frames that a port may send before the next one has its turn.
const BURST: usize = 32;

/// Work of a port's turn in bytes that are copied, after which the next port has its turn. It is
/// a few times that of [`BURST`] frames of an Ethernet link.
const TURN: u64 = 256 << 10;

/// The work of a frame that is cut from a segment, beside its bytes.
const PART: u64 = 1 << 10;

/// Flooded frames that wait for a port which has no room.
const FLOODED_MAX: u32 = 64;

/// The reason for which a port is closed whose frontend shrinks its memory.
const SHRUNK: &str = "its memory has shrunk";

/// What the operator chose for the whole switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Of which priorities frames for a full exit wait in the ring of their sender. Others are
    /// dropped.
    pub lanes: Lanes,
    /// Frames that wait in front of each exit of a switch that may drop.
    pub queue: usize,
    /// A receiver that takes nothing for so long loses the frames that wait for it. `None`: they
    /// wait as long as it takes.
    pub stall_limit_ns: Option<u64>,
    /// Bounds of the table of addresses.
    pub learning: LearningLimits,
    /// Which frames for the neighbour on a link are relayed.
    pub reserved: Reserved,
}

/// A port with what the operator said of it.
#[derive(Debug)]
pub struct Bay {
    /// Its name.
    pub name: String,
    /// Its rings, or its interface.
    pub port: Port,
    /// The addresses that it may use.
    pub filter: Filter,
    /// The priority of its frames.
    pub priority: Priority,
    /// What passed and what did not.
    pub counters: Counters,
    /// Why it was closed: what its guest did.
    pub closed: Option<String>,
    /// Its connection is to end, and says nothing more.
    pub ends: bool,
    /// Nothing is taken of it until its frames at other threads have come home.
    is_recalled: bool,
    /// Since when its receiver has no room, ns.
    blocked_ns: Option<u64>,
    /// It has taken nothing for longer than the operator allows, and no frame waits for it any
    /// more.
    is_stalled: bool,
    /// Its turn ended while it had room; it goes on at the next one.
    goes_on: bool,
    /// What its exits have of its entries, if many senders have these in common.
    shares: Option<Box<Shares>>,
    /// Copies of flooded frames that wait for it.
    flooded: u32,
    /// The guest that a predecessor had is to come back; frames wait for it until then, ns.
    awaited_ns: Option<u64>,
}

/// The switch of a thread.
pub struct Engine {
    bays: Vec<Option<Bay>>,
    /// By port, the memory of its guest.
    memories: Vec<Arc<Memory>>,
    frames: Store,
    switch: Switch<FrameId, u32>,
    learning: Learning,
    choice: Choice,
    /// Any port has, or had, flow control by priority.
    has_flow: bool,
    now_ns: u64,
    /// The work of this turn; see [`TURN`].
    spent: u64,
    flood: Vec<u16>,
    /// Room for a part of a frame that is cut.
    part: Vec<u8>,
    /// Ports whose frames are copied out.
    leaving: Vec<Leaving>,
    ledger: Option<Arc<Ledger>>,
    /// Something was written into the ledger of other threads' chains.
    has_marked: bool,
    /// Captures that run, if any.
    taps: Option<Box<Taps>>,
    alarm: Alarm,
    /// Enforcement at its ports.
    pub govern: Option<Govern>,
    /// The other threads.
    mesh: Option<Box<Mesh>>,
}

/// What a frame that a source filter refuses is counted as.
fn refused(forged: Forged) -> Drop {
    match forged {
        Forged::Type => Drop::Type,
        Forged::Unreadable | Forged::Hidden => Drop::Hidden,
        _ => Drop::Forged,
    }
}

/// The places of the switch. A ring of a guest bounds what waits in it, so the entrances need no
/// bound of their own.
fn places(choice: &Choice) -> Config {
    let entrance = Bound {
        packets: usize::MAX,
        bytes: u64::MAX,
    };
    let waiting = match choice.lanes.lossless() {
        u8::MAX => 0,
        _ => choice.queue,
    };
    let exit = Point {
        bound: Bound {
            packets: waiting,
            bytes: u64::MAX,
        },
        when_full: match choice.lanes.lossless() {
            0 => WhenFull::Drop,
            _ => WhenFull::HoldBack,
        },
    };
    let entrance = Point {
        bound: entrance,
        when_full: exit.when_full,
    };
    Config {
        transmit: entrance,
        uplink: exit,
        arrival: entrance,
        receive: exit,
    }
}

impl Engine {
    /// A switch without ports. `hash_key` is a secret.
    pub fn new(choice: Choice, hash_key: [u64; 2]) -> Self {
        Self {
            bays: Vec::new(),
            memories: Vec::new(),
            frames: Store::default(),
            switch: Switch::new(0, places(&choice), None)
                .with_priorities(choice.lanes.count(), !choice.lanes.lossless()),
            learning: Learning::new(choice.learning, hash_key),
            choice,
            has_flow: false,
            now_ns: 0,
            spent: 0,
            flood: Vec::new(),
            part: Vec::new(),
            leaving: Vec::new(),
            ledger: None,
            has_marked: false,
            taps: None,
            alarm: Alarm::default(),
            govern: None,
            mesh: None,
        }
    }

    /// Adds a port under a number that is free.
    pub fn add(
        &mut self,
        number: u16,
        name: String,
        port: Port,
        member: Membership,
        filter: Filter,
    ) {
        let index = usize::from(number);
        if self.bays.len() <= index {
            self.bays.resize_with(index + 1, || None);
            self.memories.resize_with(index + 1, Arc::default);
        }
        self.has_flow |= port.flow().is_some();
        self.bays[index] = Some(Bay {
            name,
            shares: Shares::of(&port),
            port,
            filter,
            priority: Priority::default(),
            counters: Counters::default(),
            closed: None,
            ends: false,
            is_recalled: false,
            blocked_ns: None,
            is_stalled: false,
            goes_on: false,
            flooded: 0,
            awaited_ns: None,
        });
        self.learning.set_port(number, Some(member));
        self.await_guest(number);
    }

    /// Changes what the operator says of a port.
    pub fn change(&mut self, number: u16, member: Membership, filter: Filter) {
        self.learning.set_port(number, Some(member));
        if let Some(bay) = self.bay_mut(number) {
            bay.filter = filter;
        }
    }

    /// Removes a port. What it has sent is delivered, what waits for it is dropped.
    pub fn remove(&mut self, number: u16) {
        self.detach(number);
        self.settle();
        if let Some(Port::Vhost(device)) = self.bay_mut(number).map(|bay| &mut bay.port) {
            device.reset();
        }
        self.unplug(number);
        self.discard(number, Drop::NoReceiver);
        self.learning.set_port(number, None);
        if let Some(govern) = &mut self.govern {
            govern.detach(number);
        }
        if let Some(taps) = &mut self.taps {
            taps.forget(number);
        }
        self.bays[usize::from(number)] = None;
        self.memories[usize::from(number)] = Arc::default();
    }

    /// The ports, with their numbers.
    pub fn bays(&self) -> impl Iterator<Item = (u16, &Bay)> {
        let bays = self.bays.iter().enumerate();
        bays.filter_map(|(number, bay)| Some((number as u16, bay.as_ref()?)))
    }

    /// A port.
    pub fn bay_mut(&mut self, number: u16) -> Option<&mut Bay> {
        self.bays.get_mut(usize::from(number))?.as_mut()
    }

    /// The memory of a port's guest, if it has one.
    pub fn memory(&self, number: u16) -> Option<Arc<Memory>> {
        self.memories.get(usize::from(number)).cloned()
    }

    /// The addresses.
    pub fn learning(&self) -> &Learning {
        &self.learning
    }

    /// Frames that the switch holds.
    pub fn held(&self) -> usize {
        self.frames.used()
    }

    /// What the operator chose.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Applies what the session of a port says. Frames of this port that wait are copied out first,
    /// since their descriptors or their memory may go.
    ///
    /// # Errors
    /// What is wrong with the change; the session ends.
    pub fn apply(&mut self, number: u16, change: Change) -> Result<u16, String> {
        let index = usize::from(number);
        if matches!(self.bay_mut(number), Some(bay) if matches!(bay.port, Port::Shm(_))) {
            return self.apply_to_cable(number, change);
        }
        if matches!(
            change,
            Change::Memory(_) | Change::Stop(_) | Change::Gone(_)
        ) {
            self.detach(number);
            self.settle();
        }
        let (starts, gone) = match &change {
            Change::Start(..) => (true, None),
            Change::Gone(reason) => (false, Some(reason.clone())),
            _ => (false, None),
        };
        let is_gone = gone.is_some();
        let Some(Some(bay)) = self.bays.get_mut(index) else {
            return Err("the port was removed".to_owned());
        };
        if bay.ends && !is_gone {
            return Err("the port is closed".to_owned());
        }
        let Port::Vhost(device) = &mut bay.port else {
            return Err("the port has no rings".to_owned());
        };
        let had_rings = device.has_rings();
        let base = device.apply(change).map_err(|refused| refused.0);
        self.memories[index] = Arc::clone(device.memory());
        if starts && base.is_ok() {
            bay.closed = None;
        }
        if let Some(Some(reason)) = gone.filter(|_| !bay.ends) {
            bay.closed = Some(reason);
        }
        bay.ends &= !is_gone;
        self.note_pairs(number, is_gone && had_rings);
        base
    }

    /// Drops all frames that wait for a port, which has room again.
    fn discard(&mut self, number: u16, reason: Drop) {
        self.drop_waiting(number, reason);
        self.unblock(number);
    }

    /// Drops all frames that wait for a port.
    fn drop_waiting(&mut self, number: u16, reason: Drop) {
        let lanes = self.choice.lanes;
        for priority in lanes.highest_first() {
            while let Some(id) = self.switch.take(lanes.side(number, priority)) {
                self.drop_at(id, number, reason);
                self.release(id);
            }
        }
    }

    /// A guest broke the rules: its port is closed, and others go on. Another guest's frame may be
    /// on its way meanwhile, so rings are shown later. What it has sent stays in its memory until
    /// its connection has ended, or is delivered before.
    fn close(&mut self, number: u16, reason: &str) {
        // Zeros in place of its ring break the rules as well.
        let has_shrunk = self.memories[usize::from(number)].is_broken();
        let reason = if has_shrunk { SHRUNK } else { reason };
        tracing::warn!(port = number, reason, "the port is closed");
        let bay = self.bay_mut(number);
        let is_guest = bay.is_some_and(|bay| matches!(bay.port, Port::Vhost(_)));
        if !is_guest {
            self.detach(number);
        }
        if let Some(bay) = self.bay_mut(number) {
            bay.closed = Some(reason.to_owned());
            bay.ends = true;
            if let Port::Vhost(device) = &mut bay.port {
                device.reset();
                device.record_pairs();
            }
            bay.awaited_ns = None;
        }
        self.unplug(number);
        if !is_guest {
            self.memories[usize::from(number)] = Arc::default();
        }
        self.learning.forget(number);
        self.close_abroad(number);
        self.call_home(number);
        self.discard(number, Drop::NoReceiver);
    }

    /// Does what can be done now, and returns how many frames moved.
    pub fn poll(&mut self, now_ns: u64) -> usize {
        self.now_ns = now_ns;
        let mut moved = match self.mesh {
            Some(_) => self.meet(),
            None => 0,
        };
        for number in 0..self.bays.len() as u16 {
            moved += self.serve_blocked(number);
            moved += self.serve_lanes(number);
            moved += self.take_burst(number);
        }
        self.say_pauses();
        if !self.leaving.is_empty() {
            moved += self.leave_in_turns();
        }
        self.settle();
        moved
    }

    /// Asks all ports for a wake-up. Whether there is work already.
    pub fn arm(&mut self) -> bool {
        let mut work = self.leaves();
        for number in 0..self.bays.len() as u16 {
            let Some(bay) = self.bay_mut(number) else {
                continue;
            };
            let goes_on = bay.goes_on && bay.awaited_ns.is_none();
            match bay.port.arm() {
                Ok(found) => work |= found || goes_on,
                Err(Broken(reason)) => {
                    self.close(number, reason);
                    work = true;
                }
            }
        }
        let mesh = self.mesh.iter_mut().flat_map(|mesh| mesh.others());
        mesh.fold(work, |work, link| link.arm() | work)
    }

    /// The thread polls again.
    pub fn disarm(&mut self) {
        for bay in self.bays.iter_mut().flatten() {
            bay.port.disarm();
        }
        if let Some(mesh) = &mut self.mesh {
            mesh.others().for_each(|link| link.disarm());
        }
    }

    /// What is done only now and then: ageing, and guests whose memory has gone.
    pub fn housekeep(&mut self) {
        self.learning.sweep(self.now_ns);
        for number in 0..self.memories.len() as u16 {
            let has_shrunk = self.memories[usize::from(number)].is_broken();
            let ends = self.bay_mut(number).is_some_and(|bay| bay.ends);
            if has_shrunk && !ends && self.is_own(number) {
                self.close(number, SHRUNK);
            }
        }
        self.give_up_waiting();
        self.warn_of_pauses();
        self.warn_of_waits();
        self.settle();
    }

    fn take_burst(&mut self, number: u16) -> usize {
        if let Some(Some(bay)) = self.bays.get_mut(usize::from(number)) {
            if matches!(bay.port, Port::Remote(_)) || bay.is_recalled {
                return 0;
            }
            if let Port::Vhost(device) = &mut bay.port {
                if let Err(Broken(reason)) = device.begin_turn() {
                    self.close(number, reason);
                    return 0;
                }
            }
        }
        self.spent = 0;
        for taken in self.take_direct(number)..BURST {
            if self.spent >= TURN || self.take_one(number, false) != Some(true) {
                return taken;
            }
        }
        BURST
    }

    /// Takes a frame of a port, or only one that a predecessor had taken; whether there was one.
    #[inline]
    fn take_one(&mut self, number: u16, only_again: bool) -> Option<bool> {
        let id = self.frames.take();
        let Some(Some(bay)) = self.bays.get_mut(usize::from(number)) else {
            self.frames.put(id);
            return None;
        };
        let frame = self.frames.get_mut(id);
        let taken = match only_again {
            true => bay.port.take_again(frame),
            false => bay.port.take(frame),
        };
        self.spent += u64::from(bay.port.descriptors());
        match taken {
            Ok(Intake::Frame) => {
                (frame.from, frame.pending) = (number, 1);
                self.spent += u64::from(frame.bytes);
                // Another thread of a predecessor may have delivered it.
                if frame.parts != ALL_PARTS {
                    self.forward(number, id);
                }
                self.release(id);
            }
            Ok(Intake::Malformed) => {
                (frame.from, frame.pending) = (number, 1);
                bay.counters.drop(Drop::Malformed);
                self.release(id);
            }
            Ok(Intake::Empty) => {
                self.frames.put(id);
                return Some(false);
            }
            Err(Broken(reason)) => {
                self.frames.put(id);
                self.close(number, reason);
                return None;
            }
        }
        Some(true)
    }

    /// Finds the exits of a frame and offers it to each.
    #[inline(always)]
    fn forward(&mut self, number: u16, id: FrameId) {
        if self.taps.is_some() {
            self.show(id, number, capture::Point::In, None);
        }
        let frame = self.frames.get_mut(id);
        let (to, source, tag, kind_at) = addresses(frame.start());
        let Some(bay) = self.bays[usize::from(number)].as_mut() else {
            return;
        };
        if is_control(frame.start(), kind_at) {
            return self.take_control(number, id);
        }
        bay.counters.received(frame.bytes);
        let is_governed = self
            .govern
            .as_ref()
            .is_some_and(|govern| govern.governs(number));
        let is_checked = is_governed || !bay.filter.is_open();
        if is_checked && !frame.work.spares_headers(frame.start()) {
            return self.drop_at(id, number, Drop::Malformed);
        }
        if self.choice.reserved.stops(to) {
            return self.drop_at(id, number, Drop::Reserved);
        }
        if !reserved::may_send(source) {
            return self.drop_at(id, number, Drop::Malformed);
        }
        if !bay.filter.is_open() {
            let checked = bay
                .filter
                .check(frame.start(), kind_at, frame.bytes as usize);
            if let Err(forged) = checked {
                return self.drop_at(id, number, refused(forged));
            }
        }
        let member = self.learning.membership(number);
        // A port without a trunk has no tags of any kind: behind a native VLAN, or at a receiver
        // that takes off tags of VLAN 0, one would choose another VLAN. And enforcement would not
        // know a flow by what other switches take for its tag.
        let nested = is_tagged(frame.start(), kind_at);
        let has_trunk = matches!(member, Some(Membership::Trunk { .. }));
        let is_stacked = nested || kind_at > ONE_TAG;
        if nested && !has_trunk || is_stacked && is_governed {
            return self.drop_at(id, number, Drop::Vlan);
        }
        let lane = bay.priority.lane(tag);
        let tag = tag.map(|tag| tag & 0xfff);
        let Some(vlan) = member.and_then(|member| member.classify(tag)) else {
            return self.drop_at(id, number, Drop::Vlan);
        };
        (frame.vlan, frame.lane) = (vlan, lane);
        bay.port.charge(frame.token, lane.number, frame.bytes);
        let fate = match self.govern.as_mut().filter(|_| is_governed) {
            None => Fate::Pass,
            Some(govern) => {
                let memory = &self.memories[usize::from(number)];
                let sent = (Direction::FromTenant, seen_vlan(member, vlan));
                govern.pass(number, frame, memory, sent, self.now_ns)
            }
        };
        self.send_on(number, id, fate);
    }

    /// Finds the exits of a frame with this fate at its sender's vNIC, and offers it to each.
    #[inline]
    fn send_on(&mut self, number: u16, id: FrameId, fate: Fate) {
        let fack = match fate {
            Fate::Pass => None,
            Fate::PassWith(fack) => Some(fack),
            Fate::Drop(reason) => return self.drop_at(id, number, reason),
            Fate::Consumed => return,
        };
        let frame = self.frames.get(id);
        let (vlan, (to, source, ..)) = (frame.vlan, addresses(frame.start()));
        match self.learning.route(vlan, number, source, to, self.now_ns) {
            Route::To(exit) => self.offer(id, exit),
            Route::Flood => self.offer_all(id, number, vlan),
            Route::Back => self.drop_at(id, number, Drop::Back),
        }
        if let Some(fack) = fack {
            self.follow(id, &fack);
        }
    }

    /// Sends a frame of the switch's own on the way of one that has just passed.
    fn follow(&mut self, before: FrameId, bytes: &[u8]) {
        let frame = self.frames.get(before);
        let (number, pair, vlan, lane) = (frame.from, frame.pair, frame.vlan, frame.lane);
        let id = self.frames.take();
        let frame = self.frames.get_mut(id);
        frame.set_own(bytes);
        (frame.from, frame.pair, frame.vlan, frame.lane) = (number, pair, vlan, lane);
        (frame.token, frame.pending) = (None, 1);
        frame.work = Work::default();
        let (to, source, ..) = addresses(frame.start());
        match self.learning.route(vlan, number, source, to, self.now_ns) {
            Route::To(exit) => self.offer(id, exit),
            Route::Flood => self.offer_all(id, number, vlan),
            Route::Back => {}
        }
        self.release(id);
    }

    /// Offers a frame to an exit.
    #[inline]
    fn offer(&mut self, id: FrameId, exit: u16) {
        let Some(Some(bay)) = self.bays.get_mut(usize::from(exit)) else {
            return;
        };
        if !bay.port.is_up() && bay.awaited_ns.is_none() {
            self.drop_at(id, exit, Drop::NoReceiver);
        } else if self.reaches(id, exit) {
            self.offer_edited(id, exit);
        }
    }

    /// Whether the vNIC of a governed exit lets a frame pass, which it edits.
    #[inline]
    fn reaches(&mut self, id: FrameId, exit: u16) -> bool {
        let govern = self.govern.as_mut();
        let Some(govern) = govern.filter(|govern| govern.governs(exit)) else {
            return true;
        };
        let frame = self.frames.get_mut(id);
        let vlan = seen_vlan(self.learning.membership(exit), frame.vlan);
        let memory = &self.memories[usize::from(frame.from)];
        match govern.pass(
            exit,
            frame,
            memory,
            (Direction::ToTenant, vlan),
            self.now_ns,
        ) {
            Fate::Pass | Fate::PassWith(_) => true,
            Fate::Drop(reason) => {
                self.drop_at(id, exit, reason);
                false
            }
            Fate::Consumed => false,
        }
    }

    /// Offers a frame that has passed the vNIC of its exit. Work that the exit does not do is done
    /// when the frame is delivered.
    #[inline(never)]
    fn offer_edited(&mut self, id: FrameId, exit: u16) {
        let frame = self.frames.get_mut(id);
        frame.pending += 1;
        let (port, priority, bytes) = (frame.from, frame.lane.number, frame.bytes);
        let lanes = self.choice.lanes;
        let (from, to) = (lanes.side(port, priority), lanes.side(exit, priority));
        let is_elsewhere = self.mesh.is_some() && self.elsewhere(exit).is_some();
        loop {
            if is_elsewhere || !self.switch.lets_through(to) {
                if let Some(reason) = self.may_not_wait(id, exit) {
                    self.drop_at(id, exit, reason);
                    return self.release(id);
                }
            }
            match self.switch.offer(from, u32::from(port), to, id, bytes) {
                Handover::Through => match self.deliver(id, exit) {
                    Delivery::NoRoom => self.block(exit),
                    Delivery::Later => self.go_on_later(exit),
                    Delivery::Held => self.stop_lanes(exit),
                    _ => return self.release(id),
                },
                Handover::Taken if lanes.is_lossless(priority) => {
                    return self.take_share(id, exit);
                }
                Handover::Taken => return self.keep_copy(id),
                Handover::Dropped(_) | Handover::Held => {
                    self.drop_at(id, exit, Drop::Full);
                    return self.release(id);
                }
            }
        }
    }

    /// Copies a frame out and gives its sender its buffers back.
    #[inline(never)]
    fn keep_copy(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id);
        let from = usize::from(frame.from);
        frame.leave(&self.memories[from]);
        if let Some(token) = frame.token.take() {
            let pair = frame.pair;
            self.leave_share(id);
            self.give_back(from, pair, token);
        }
    }

    /// Gives a sender its buffers back.
    #[inline]
    fn give_back(&mut self, from: usize, pair: u16, token: u16) {
        let Some(Some(bay)) = self.bays.get_mut(from) else {
            return;
        };
        if let Some(thread) = bay.port.release(pair, token) {
            self.send_home(thread, token);
        }
    }

    /// Counts that a frame is dropped at a port.
    fn drop_at(&mut self, id: FrameId, number: u16, reason: Drop) {
        if let Some(bay) = self.bay_mut(number) {
            bay.counters.drop(reason);
        }
        if self.taps.is_some() {
            self.show(id, number, capture::Point::Drop, Some(reason));
        }
    }

    /// An exit has a frame. The last one gives the sender its buffers back.
    #[inline]
    fn release(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id);
        frame.pending -= 1;
        if frame.pending > 0 {
            return;
        }
        let (from, pair, token) = (frame.from, frame.pair, frame.token.take());
        let flooded = frame.flooded.take();
        if frame.shares_with.is_some() {
            self.leave_share(id);
        }
        self.frames.put(id);
        if let Some(bay) = flooded.and_then(|exit| self.bay_mut(exit)) {
            bay.flooded = bay.flooded.saturating_sub(1);
        }
        if let Some(token) = token {
            self.give_back(usize::from(from), pair, token);
        }
    }

    /// Delivers a frame, with the work that its exit does not do, and counts it or why not.
    #[inline]
    fn deliver(&mut self, id: FrameId, exit: u16) -> Delivery {
        let frame = self.frames.get(id);
        if !frame.work.is_none() || frame.parts != 0 {
            return self.deliver_worked(id, exit);
        }
        self.deliver_as_it_is(id, exit)
    }

    /// Delivers a frame, and counts it or why not.
    #[inline]
    fn deliver_as_it_is(&mut self, id: FrameId, exit: u16) -> Delivery {
        if self.mesh.is_some() {
            if let Some(thread) = self.elsewhere(exit) {
                return self.hand_over(id, exit, thread);
            }
        }
        let frame = self.frames.get(id);
        let Some(tagging) = self
            .learning
            .membership(exit)
            .and_then(|m| m.egress(frame.vlan))
        else {
            self.drop_at(id, exit, Drop::Vlan);
            return Delivery::Refused;
        };
        let Some(Some(bay)) = self.bays.get_mut(usize::from(exit)) else {
            return Delivery::Down;
        };
        let mut edited = [0; START + 4];
        let Some((start, shift)) = retag(frame, tagging, &mut edited) else {
            self.drop_at(id, exit, Drop::Vlan);
            return Delivery::Refused;
        };
        let memory = &self.memories[usize::from(frame.from)];
        let outgoing = Outgoing::new(frame, start, shift, memory);
        let result = bay.port.deliver(&outgoing);
        self.spent += u64::from(outgoing.bytes()) + u64::from(bay.port.descriptors());
        let delivered = match result {
            Ok(delivered) => delivered,
            Err(Broken(reason)) => {
                self.close(exit, reason);
                self.drop_at(id, exit, Drop::NoReceiver);
                return Delivery::Down;
            }
        };
        let reason = match delivered {
            Delivery::Done => {
                bay.counters.delivered(outgoing.bytes());
                if let Some(taps) = &mut self.taps {
                    taps.see(exit, &Seen::delivered(outgoing));
                }
                return delivered;
            }
            Delivery::NoRoom | Delivery::Held | Delivery::Later => return delivered,
            Delivery::TooLong => Drop::TooLong,
            Delivery::Down => Drop::NoReceiver,
            Delivery::Refused => Drop::Refused,
        };
        self.drop_at(id, exit, reason);
        delivered
    }
}
