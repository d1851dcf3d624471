//! Priority flow control: when an input pauses its sender, how the pause reaches the sender, and
//! when the sender goes on.

use sluicegate_core::number::narrow;

use super::{
    CONTROL_BYTES, Cee, CeeFrame, OwnEffect, PRIORITIES, Pause, PauseFrame,
    pause::{Step, duration_ps},
};
use crate::{graph::PortId, pool::Pool};

impl Cee {
    /// An input has taken a frame: pauses its sender if it is too full.
    #[inline]
    pub(super) fn pause_if_full<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ingress: PortId,
        priority: usize,
        now_ps: u64,
    ) {
        let is_told = self.buffers.has_paused(ingress, priority);
        if is_told || !self.buffers.is_too_full(ingress, priority) {
            return;
        }
        // The opposite direction of the link is sent by the same switch.
        self.catch_up_neighbours(pool, ingress.opposite(), now_ps);
        if self.buffers.is_too_full(ingress, priority) {
            let bit = 1 << priority;
            self.set_sent(ingress, self.buffers.sent(ingress) | bit);
            self.say(pool, ingress, PauseFrame::stop(bit), now_ps);
        }
    }

    /// An input has asked its sender to pause these priorities, and no others. The ports of its
    /// switch have caught up before.
    fn set_sent(&mut self, ingress: PortId, priorities: u8) {
        if let Some((switch, pausing)) = self.buffers.set_sent(ingress, priorities) {
            self.out.set_patience(&mut self.requests, switch, pausing);
        }
    }

    /// A frame has left a paused input: lets its sender go on, if it is empty enough.
    pub(super) fn resume_if_empty<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ingress: PortId,
        priority: usize,
        now_ps: u64,
    ) {
        if self.buffers.is_empty_enough(ingress, priority) {
            let bit = 1 << priority;
            self.say(pool, ingress, PauseFrame::go_on(bit), now_ps);
            self.set_sent(ingress, self.buffers.sent(ingress) & !bit);
        }
    }

    /// The far end of a port pauses or resumes its near end.
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

    /// Sends a pause frame, behind the frame that is being sent and before all frames that wait.
    fn say_on_wire<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        response_ps: u64,
        now_ps: u64,
    ) {
        let back = port.opposite();
        self.catch_up(pool, back, now_ps);
        let serialization_ps = self.out.serialization_ps(back, CONTROL_BYTES);
        if self.out[back].is_down() {
            return;
        }
        let leaves_ps = self.out.send_pause(back, serialization_ps, now_ps);
        if self.out[back].is_watched() {
            let effect = OwnEffect::PauseSent(back, frame, leaves_ps);
            self.requests.own(effect);
        }
        let arrival_ps = leaves_ps + self.specs[back.index()].propagation_ps;
        if self.out[back].is_away() {
            let effect = OwnEffect::PauseAway(port, frame, arrival_ps + response_ps);
            self.requests.own(effect);
        } else {
            self.hear(port, frame, arrival_ps + response_ps);
        }
        if frame.xoff != 0 && self.pauses[port.index()].renews_now() {
            let half_ps = self.pause_ps(port) / 2;
            self.plan(port, now_ps + half_ps, Step::Renew);
        }
    }

    /// How long a pause lasts unless it is renewed.
    fn pause_ps(&self, port: PortId) -> u64 {
        duration_ps(self.specs[port.index()].rate_bps)
    }

    /// A pause frame takes effect at a port at this time.
    pub fn hear(&mut self, port: PortId, frame: PauseFrame, at_ps: u64) {
        self.plan(port, at_ps, Step::Obey(frame));
    }

    fn plan(&mut self, port: PortId, at_ps: u64, step: Step) {
        if let Some(at_ps) = self.pauses[port.index()].plan(at_ps, step) {
            self.requests.control(port, at_ps);
        }
    }

    /// A [`Timer::Control`](crate::contract::Timer) of a port is due.
    pub fn control<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        let at = port.index();
        if !self.pauses[at].disarm(now_ps) {
            return; // an earlier one took its place, and has come
        }
        // Ports that decide at this time do so before the pause takes effect.
        self.out.end_turns();
        while let Some(step) = self.pauses[at].next_step(now_ps) {
            match step {
                Step::Obey(frame) => self.obey_for_a_time(pool, port, frame, now_ps),
                Step::Renew => self.renew(pool, port, now_ps),
                Step::Expire(priority) => self.expire(pool, port, priority, now_ps),
            }
        }
        if let Some(at_ps) = self.pauses[at].arm() {
            self.requests.control(port, at_ps);
        }
        self.serve_kicked_ports(pool, now_ps);
        self.out.reset_turns();
    }

    fn obey_for_a_time<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        now_ps: u64,
    ) {
        let until_ps = now_ps + self.pause_ps(port);
        for priority in 0..narrow::<u8>(PRIORITIES) {
            if frame.priorities & frame.xoff & 1 << priority != 0 {
                self.pauses[port.index()].set_until(priority, until_ps);
                self.plan(port, until_ps, Step::Expire(priority));
            }
        }
        self.obey(pool, port, frame, now_ps);
    }

    fn renew<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.pauses[port.index()].renewed();
        let sent = self.buffers.sent(port);
        if sent != 0 {
            self.say(pool, port, PauseFrame::stop(sent), now_ps);
        }
    }

    fn expire<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, priority: u8, now_ps: u64) {
        if self.pauses[port.index()].has_expired(priority, now_ps) {
            self.obey(pool, port, PauseFrame::go_on(1 << priority), now_ps);
        }
    }

    /// Updates the priorities that pauses stop at a port.
    fn obey<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        frame: PauseFrame,
        now_ps: u64,
    ) {
        self.catch_up(pool, port, now_ps);
        let (new, is_news) = self.pauses[port.index()].heard(frame, now_ps);
        self.out.count_pauses(port, new.count_ones());
        self.shut(port);
        if is_news {
            self.out.reopen(port, now_ps);
        }
    }

    /// Copies the paused priorities of a port from its pauses to its state.
    fn shut(&mut self, port: PortId) {
        let shut = self.pauses[port.index()].shut();
        self.out[port].set_shut(shut);
    }

    /// The total time for which at least one priority of a port has been paused.
    pub fn paused_ps(&self, port: PortId, now_ps: u64) -> u64 {
        self.pauses[port.index()].paused_ps(now_ps)
    }

    /// Priorities that the far end of a port has paused.
    pub fn paused(&self, port: PortId) -> u8 {
        self.pauses[port.index()].paused()
    }

    /// Whether a port ignores pauses from now on.
    pub(super) fn set_deaf(&mut self, port: PortId, deaf: bool, now_ps: u64) {
        self.pauses[port.index()].set_deaf(deaf, now_ps);
        self.shut(port);
    }

    /// From now on the far end of a port, a defective adapter, pauses these priorities whether it
    /// has room or not. A port without flow control in a priority does not obey (802.1Q, 36.1.3).
    pub fn storm<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        priorities: u8,
        now_ps: u64,
    ) {
        self.catch_up(pool, port, now_ps);
        let stormed = priorities & self.buffers.lossless();
        self.pauses[port.index()].set_stormed(stormed, now_ps);
        self.reopen(pool, port, now_ps);
    }

    /// From now on the host at the far end of a port pauses these priorities, because it has no
    /// room, and no others. The pause acts at once.
    pub fn pause_for_host<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        priorities: u8,
        now_ps: u64,
    ) {
        self.catch_up(pool, port, now_ps);
        let held = priorities & self.buffers.lossless();
        let new = self.pauses[port.index()].set_held(held, now_ps);
        self.out.count_pauses(port, new.count_ones());
        self.reopen(pool, port, now_ps);
    }

    /// The paused priorities of a port have changed.
    fn reopen<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.shut(port);
        self.out.reopen(port, now_ps);
        self.serve_kicked_ports(pool, now_ps);
    }

    /// A link is up again: each end pauses the priorities in which its buffer is still too full.
    pub(super) fn pause_again<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        let (_, xon) = self.buffers.thresholds(port);
        let lossless = self.buffers.lossless();
        for priority in (0..PRIORITIES).filter(|priority| lossless & 1 << priority != 0) {
            let held = self.buffers.held_bytes(port, priority);
            if held >= xon && held > 0 {
                let bit = 1 << priority;
                self.set_sent(port, self.buffers.sent(port) | bit);
                self.obey(pool, port, PauseFrame::stop(bit), now_ps);
            }
        }
    }

    /// A link has failed or is up again: its pauses end.
    pub(super) fn forget_pauses(&mut self, port: PortId, now_ps: u64) {
        self.set_sent(port, 0);
        self.pauses[port.index()].forget(now_ps);
        self.shut(port);
    }
}
