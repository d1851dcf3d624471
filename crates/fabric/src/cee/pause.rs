//! Priority flow control: who is paused, how he learns of it, and for how long.
//!
//! Pauses on the wire are MAC control frames (802.1Q clause 36, 802.3 annex 31D): they leave behind the frame that is
//! being sent, hold for a time, and are renewed before it is over as long as the buffer is full.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{Buffer, CONTROL_BYTES, Cee, CeeFrame, Effect, PRIORITIES, Pause, Place};
use crate::{graph::PortId, pool::Pool, port::PS_PER_S};

/// The longest pause that a frame can ask for, in quanta of 512 bit times (802.3 annex 31D).
const QUANTA: u64 = 0xffff;
const QUANTUM_BITS: u64 = 512;

/// What a pause frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PauseFrame {
    /// Bit p: it speaks of priority p.
    pub priorities: u8,
    /// Bit p: priority p must wait; else it may go on.
    pub xoff: u8,
}

impl PauseFrame {
    /// These priorities must wait.
    fn stop(priorities: u8) -> Self {
        Self {
            priorities,
            xoff: priorities,
        }
    }

    /// These priorities may go on.
    fn go_on(priorities: u8) -> Self {
        Self {
            priorities,
            xoff: 0,
        }
    }

    /// Times in quanta, by priority, as the frame carries them.
    pub fn quanta(&self) -> [Option<u16>; PRIORITIES] {
        std::array::from_fn(|priority| {
            let bit = 1 << priority;
            let time = if self.xoff & bit == 0 {
                0
            } else {
                QUANTA as u16
            };
            (self.priorities & bit != 0).then_some(time)
        })
    }
}

/// What is to happen to a port's pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A pause frame has taken effect.
    Obey(PauseFrame),
    /// The far end says once more what is still full.
    Renew,
    /// A pause is over by itself.
    Expire(u8),
}

/// Pauses of one port.
#[derive(Default)]
pub(super) struct Pauses {
    /// What comes, the earliest first.
    steps: BinaryHeap<Reverse<(u64, Step)>>,
    /// When pauses that are obeyed end by themselves.
    until_ps: [u64; PRIORITIES],
    /// Since when some priority has been paused; `None` = none is.
    since_ps: Option<u64>,
    /// How long some priority was.
    total_ps: u64,
    /// Since when each priority has been paused.
    pub began_ps: [u64; PRIORITIES],
    renews: bool,
    /// Bit p: the far end has paused priority p.
    paused: u8,
    /// The far end babbles: it pauses these whatever it has room for.
    stormed: u8,
    /// It obeys none.
    deaf: bool,
    /// When the owner calls [`Cee::control`] next.
    armed_ps: Option<u64>,
}

impl Cee {
    /// An input has taken a frame: pauses who sends to it, if it is too full.
    #[inline]
    pub(super) fn pause_if_full<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ingress: PortId,
        priority: usize,
        now_ps: u64,
    ) {
        let at = ingress as usize;
        let bit = 1 << priority;
        if self.inputs[at].sent & bit != 0 || !self.is_too_full(ingress, priority) {
            return;
        }
        // The opposite direction of the link is sent by the same switch.
        self.catch_up_neighbours(pool, ingress ^ 1, now_ps);
        if self.is_too_full(ingress, priority) {
            self.set_sent(ingress, self.inputs[at].sent | bit);
            self.say(pool, ingress, PauseFrame::stop(bit), now_ps);
        }
    }

    /// An input has asked to pause these priorities, and no others. The ports of its switch have caught up.
    fn set_sent(&mut self, ingress: PortId, priorities: u8) {
        let before = std::mem::replace(&mut self.inputs[ingress as usize].sent, priorities);
        let Place::Switch(switch) = self.specs[ingress as usize].far else {
            return;
        };
        let pausing = &mut self.pausing[switch as usize];
        for priority in
            (0..PRIORITIES).filter(|priority| (before ^ priorities) & 1 << priority != 0)
        {
            let is_paused = priorities & 1 << priority != 0;
            let inputs = &mut pausing[priority];
            *inputs = if is_paused { *inputs + 1 } else { *inputs - 1 };
        }
        self.set_patience(switch);
    }

    /// Whether an input is above XOFF.
    #[inline]
    fn is_too_full(&self, ingress: PortId, priority: usize) -> bool {
        let (xoff, _) = self.thresholds(ingress);
        let held = u64::from(self.inputs[ingress as usize].bytes[priority]);
        held > xoff || self.is_in_headroom(ingress, priority)
    }

    /// Whether an input needs headroom of a shared memory.
    #[inline]
    fn is_in_headroom(&self, ingress: PortId, priority: usize) -> bool {
        matches!(self.config.buffer, Buffer::Shared { .. })
            && self.headroom_used[ingress as usize][priority] > 0
    }

    /// A frame has left a paused input: lets its sender go on, if it is empty enough.
    pub(super) fn resume_if_empty<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ingress: PortId,
        priority: usize,
        now_ps: u64,
    ) {
        let at = ingress as usize;
        let (_, xon) = self.thresholds(ingress);
        let held = u64::from(self.inputs[at].bytes[priority]);
        if held < xon && !self.is_in_headroom(ingress, priority) {
            let bit = 1 << priority;
            self.say(pool, ingress, PauseFrame::go_on(bit), now_ps);
            self.set_sent(ingress, self.inputs[at].sent & !bit);
        }
    }

    /// The far end of a port tells its near end to stop or to go on.
    fn say<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        now_ps: u64,
    ) {
        let Some(pfc) = &self.config.pfc else { return };
        match pfc.pause {
            Pause::Ideal => self.obey(pool, port, frame, now_ps),
            Pause::Wire { response_ps, .. } => {
                self.say_on_wire(pool, port, frame, response_ps, now_ps);
            }
        }
    }

    /// A pause frame goes before all that waits, behind what is being sent.
    fn say_on_wire<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        response_ps: u64,
        now_ps: u64,
    ) {
        let back = port ^ 1;
        self.catch_up(pool, back, now_ps);
        let serialization_ps = self.serialization_ps(back, CONTROL_BYTES);
        let state = &mut self.ports[back as usize];
        if state.down {
            return;
        }
        let leaves_ps = state.free_ps.max(now_ps) + serialization_ps;
        state.free_ps = leaves_ps;
        // What was expected next comes later.
        state.expected = false;
        self.kicks.push(back);
        if self.ports[back as usize].watched {
            self.effects.push(Effect::PauseSent(back, frame, leaves_ps));
        }
        let arrival_ps = leaves_ps + self.specs[back as usize].propagation_ps;
        let step = Step::Obey(frame);
        self.plan(port, arrival_ps + response_ps, step);
        if frame.xoff != 0 && !std::mem::replace(&mut self.pauses[port as usize].renews, true) {
            let half_ps = self.pause_ps(port) / 2;
            self.plan(port, now_ps + half_ps, Step::Renew);
        }
    }

    /// How long a pause holds.
    fn pause_ps(&self, port: PortId) -> u64 {
        let bits = u128::from(QUANTA * QUANTUM_BITS) * u128::from(PS_PER_S);
        (bits / u128::from(self.specs[port as usize].rate_bps)) as u64
    }

    fn plan(&mut self, port: PortId, at_ps: u64, step: Step) {
        self.pauses[port as usize]
            .steps
            .push(Reverse((at_ps, step)));
        self.arm_control(port);
    }

    /// The owner is asked to call [`Cee::control`] in time for the next step, unless it will do so earlier.
    fn arm_control(&mut self, port: PortId) {
        let pauses = &mut self.pauses[port as usize];
        let Some(&Reverse((at_ps, _))) = pauses.steps.peek() else {
            return;
        };
        if pauses.armed_ps.is_none_or(|armed_ps| at_ps < armed_ps) {
            pauses.armed_ps = Some(at_ps);
            self.effects.push(Effect::Control(port, at_ps));
        }
    }

    /// A time has come for which [`Effect::Control`] has asked.
    pub fn control<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        let at = port as usize;
        if self.pauses[at].armed_ps != Some(now_ps) {
            return; // an earlier one took its place, and has come
        }
        self.pauses[at].armed_ps = None;
        // What ports have to decide now comes first.
        self.turn = PortId::MAX;
        while let Some(&Reverse((at_ps, step))) = self.pauses[at].steps.peek() {
            if at_ps > now_ps {
                break;
            }
            self.pauses[at].steps.pop();
            match step {
                Step::Obey(frame) => self.obey_for_a_time(pool, port, frame, now_ps),
                Step::Renew => self.renew(pool, port, now_ps),
                Step::Expire(priority) => self.expire(pool, port, priority, now_ps),
            }
        }
        self.arm_control(port);
        self.settle(pool, now_ps);
        self.turn = 0;
    }

    fn obey_for_a_time<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        now_ps: u64,
    ) {
        let until_ps = now_ps + self.pause_ps(port);
        for priority in 0..PRIORITIES as u8 {
            if frame.priorities & frame.xoff & 1 << priority != 0 {
                self.pauses[port as usize].until_ps[usize::from(priority)] = until_ps;
                self.plan(port, until_ps, Step::Expire(priority));
            }
        }
        self.obey(pool, port, frame, now_ps);
    }

    fn renew<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        let pauses = &mut self.pauses[port as usize];
        pauses.renews = false;
        let sent = self.inputs[port as usize].sent;
        if sent != 0 {
            self.say(pool, port, PauseFrame::stop(sent), now_ps);
        }
    }

    fn expire<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, priority: u8, now_ps: u64) {
        if self.pauses[port as usize].until_ps[usize::from(priority)] <= now_ps {
            self.obey(pool, port, PauseFrame::go_on(1 << priority), now_ps);
        }
    }

    /// From now on a port sends these priorities or does not.
    fn obey<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        now_ps: u64,
    ) {
        self.catch_up(pool, port, now_ps);
        let pauses = &mut self.pauses[port as usize];
        let before = pauses.paused;
        let after = before & !frame.priorities | frame.priorities & frame.xoff;
        pauses.paused = after;
        self.stats[port as usize].pauses += u64::from((after & !before).count_ones());
        for priority in 0..PRIORITIES {
            if after & !before & 1 << priority != 0 {
                pauses.began_ps[priority] = now_ps;
            }
        }
        self.note_pause(port, now_ps);
        if before != after {
            self.reopen(port, now_ps);
        }
    }

    /// Tells a port what it may send, and keeps the time that it is paused.
    fn note_pause(&mut self, port: PortId, now_ps: u64) {
        let pauses = &mut self.pauses[port as usize];
        let paused = pauses.paused | pauses.stormed;
        self.ports[port as usize].shut = if pauses.deaf { 0 } else { paused };
        match (pauses.since_ps, paused != 0) {
            (None, true) => pauses.since_ps = Some(now_ps),
            (Some(since_ps), false) => {
                pauses.total_ps += now_ps - since_ps;
                pauses.since_ps = None;
            }
            _ => {}
        }
    }

    /// How long some priority of a port has been paused, all in all.
    pub fn paused_ps(&self, port: PortId, now_ps: u64) -> u64 {
        let pauses = &self.pauses[port as usize];
        pauses.total_ps + pauses.since_ps.map_or(0, |since_ps| now_ps - since_ps)
    }

    /// Priorities that the far end of a port has paused.
    pub fn paused(&self, port: PortId) -> u8 {
        let pauses = &self.pauses[port as usize];
        pauses.paused | pauses.stormed
    }

    /// A port obeys no pauses, or does so again.
    pub(super) fn set_deaf(&mut self, port: PortId, deaf: bool, now_ps: u64) {
        self.pauses[port as usize].deaf = deaf;
        self.note_pause(port, now_ps);
    }

    /// The far end of a port pauses these priorities whatever it has room for (a defective adapter), or stops that. Who
    /// has no flow control in a priority does not obey (802.1Q, 36.1.3).
    pub fn storm<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        priorities: u8,
        now_ps: u64,
    ) {
        self.catch_up(pool, port, now_ps);
        self.pauses[port as usize].stormed = priorities & self.lossless;
        self.note_pause(port, now_ps);
        self.reopen(port, now_ps);
        self.settle(pool, now_ps);
    }

    /// A link is up again, and with it the two ends have told each other what is still too full.
    pub(super) fn pause_again<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        let (_, xon) = self.thresholds(port);
        let lossless = self.lossless;
        for priority in (0..PRIORITIES).filter(|priority| lossless & 1 << priority != 0) {
            let held = u64::from(self.inputs[port as usize].bytes[priority]);
            if held >= xon && held > 0 {
                let bit = 1 << priority;
                self.set_sent(port, self.inputs[port as usize].sent | bit);
                self.obey(pool, port, PauseFrame::stop(bit), now_ps);
            }
        }
    }

    /// A link has failed or is up again: pauses of it are void.
    pub(super) fn forget_pauses(&mut self, port: PortId, now_ps: u64) {
        self.set_sent(port, 0);
        let pauses = &mut self.pauses[port as usize];
        pauses.steps.clear();
        pauses.renews = false;
        pauses.paused = 0;
        self.note_pause(port, now_ps);
    }
}
