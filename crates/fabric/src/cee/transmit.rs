//! When ports send: at once, punctually or late; and the events that an arrival requests next.

use super::{Cee, CeeFrame, PRIORITIES, port::NEVER};
use crate::{
    carried::Period,
    graph::{PortId, SwitchId},
    pool::{Handle, Pool},
    port::Drop,
};

impl Cee {
    /// Whether frames arrive at the far end with their header.
    #[cfg(test)]
    pub(super) fn is_cut(&self, port: PortId) -> bool {
        self.out.is_cut(port)
    }

    /// Sets a port's rate from now on, in bits per second. The rate with which the port was made is
    /// the limit, since headroom is computed from it. Not for cut-through switches.
    pub fn set_rate(&mut self, port: PortId, rate_bps: u64, now_ps: u64) {
        debug_assert!(
            !self.config.cut_through,
            "a header would come before its frame"
        );
        let most_bps = self.specs[port.index()].rate_bps;
        let rate_bps = rate_bps.min(most_bps);
        self.begin_period(port, now_ps, rate_bps);
        self.out.set_rate(port, rate_bps);
    }

    /// A [`Timer::Transmit`](crate::contract::Timer) of a port is due.
    #[inline]
    pub fn transmit<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.catch_up(pool, port, now_ps);
        let state = &mut self.out[port];
        if state.armed_ps() > now_ps {
            return; // an earlier timer has taken the place of this one
        }
        state.set_armed(NEVER);
        self.out.begin_turn(port);
        self.kick(pool, port, now_ps);
        self.serve_kicked_ports(pool, now_ps);
        self.out.reset_turns();
    }

    /// A port sends the next frame that it may send now; a busy port requests an event for it.
    #[inline]
    pub(super) fn kick<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.catch_up(pool, port, now_ps);
        let state = &self.out[port];
        if state.is_adapter() {
            return self.kick_adapter(pool, port, now_ps);
        }
        if !state.has_eligible() || state.is_down() {
            return;
        }
        if !state.is_idle(now_ps) {
            return self.out.await_free(&mut self.requests, port);
        }
        self.send_next(pool, port, now_ps);
        if self.out[port].has_eligible() {
            self.out.await_free(&mut self.requests, port);
        }
    }

    /// Makes a lazy port send the frames that were due before now, each at the time at which it was
    /// due.
    ///
    /// While no frame of a priority that its switch has paused waits at a port, the next frame
    /// depends only on the port's queues, and no buffer depends on the time at which that frame
    /// leaves. So the port needs no event when it becomes free. It must catch up before its state
    /// is read or changed, and before its next frame arrives.
    #[inline(always)]
    pub fn catch_up<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        if self.out.may_be_behind(port, now_ps) {
            self.send_late(pool, port, now_ps);
        }
    }

    #[inline(never)]
    fn send_late<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        if self.out[port].is_adapter() {
            return self.catch_up_adapter(pool, port, now_ps);
        }
        while self.out.is_behind(port, now_ps) {
            self.send_next(pool, port, self.out[port].free_ps());
        }
    }

    /// All ports of a switch catch up.
    #[cold]
    pub(super) fn catch_up_switch<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        switch: SwitchId,
        now_ps: u64,
    ) {
        for at in 0..self.out.of_switch(switch).len() {
            self.catch_up(pool, self.out.of_switch(switch)[at], now_ps);
        }
    }

    /// A switch's port begins to send the frame that transmission selection chooses.
    #[inline(always)]
    fn send_next<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        if let Some((handle, bytes)) = self.out.select(pool, port) {
            self.out
                .start(&mut self.requests, pool, port, handle, now_ps);
            self.release(pool, handle, bytes, now_ps);
        }
    }

    /// The first bit of a frame leaves an idle port.
    #[inline(never)]
    pub(super) fn start<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        now_ps: u64,
    ) {
        self.out
            .start(&mut self.requests, pool, port, handle, now_ps);
    }

    /// A [`Timer::Arrival`](crate::contract::Timer) of a port is due. Returns the frame that has
    /// reached the far end, unless the link has failed in between, and the time of the next call.
    /// At a switch the caller passes the frame to [`Cee::forward`]; at a host to the stack, or to
    /// [`Cee::notified`] if it is a notification.
    #[inline(always)]
    pub fn arrive<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) -> (Option<Handle>, Option<u64>) {
        self.catch_up(pool, port, now_ps);
        let Some((handle, next_ps)) = self.out.take_arrived(pool, port, now_ps) else {
            return (None, None);
        };
        if next_ps.is_some() {
            return (Some(handle), next_ps);
        }
        let state = &self.out[port];
        if state.has_eligible() && state.is_patient() {
            self.out.expect(&mut self.requests, port);
        } else if state.armed_ps() != NEVER && state.is_adapter() && state.is_lazy() {
            self.out.foresee(&mut self.requests, port);
        }
        (Some(handle), None)
    }

    /// Serves the ports that have become able to send.
    #[inline]
    pub(super) fn serve_kicked_ports<F: CeeFrame>(&mut self, pool: &mut Pool<F>, now_ps: u64) {
        while let Some(port) = self.out.next_kicked() {
            self.kick(pool, port, now_ps);
        }
    }

    /// A direction of a link fails, and loses the frames that wait for it or are on the wire; or it
    /// works again.
    pub fn set_up<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, up: bool, now_ps: u64) {
        self.catch_up_neighbours(pool, port, now_ps);
        self.catch_up_neighbours(pool, port.opposite(), now_ps);
        self.catch_up(pool, port, now_ps);
        let rate_bps = self.periods[port.index()].rate_bps();
        self.begin_period(port, now_ps, rate_bps);
        self.out[port].set_down(!up);
        self.forget_pauses(port, now_ps);
        if up {
            self.pause_again(pool, port, now_ps);
            self.out.kick(port);
            return self.serve_kicked_ports(pool, now_ps);
        }
        while let Some((handle, _)) = self.out.take_arrived(pool, port, u64::MAX) {
            self.lose(pool, port, handle, Drop::Down);
        }
        if self.out[port].is_adapter() {
            self.empty_adapter(pool, port);
        }
        for priority in 0..PRIORITIES {
            while let Some((handle, bytes)) = self.out.take_lost(pool, port, priority) {
                self.release(pool, handle, bytes, now_ps);
                self.lose(pool, port, handle, Drop::Down);
            }
        }
        self.out.emptied(port, now_ps);
        // What was lost has not been sent.
        self.periods[port.index()] = Period::after(self.sent(port), rate_bps);
        self.serve_kicked_ports(pool, now_ps);
    }

    /// Drops a frame: counts it by its cause and releases it.
    pub(super) fn lose<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        cause: Drop,
    ) {
        self.out.count_drop(port, cause);
        pool.release(handle);
    }
}
