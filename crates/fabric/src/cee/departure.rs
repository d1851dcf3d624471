//! Departures from adapters: which frame leaves next, and when.

use std::sync::Arc;

use sluicegate_core::number::narrow;

use super::{Cee, CeeFrame, Departure, Label, QueueKey, paths::SourceRouting, port::NEVER};
use crate::{
    graph::{HostId, Node, PortId},
    pool::{Handle, Pool},
    port::Drop,
    routing::{Routes, Routing},
};

impl Cee {
    /// The number of a queue of a host's adapter. The queue is made at the first call for its key.
    pub fn queue_to(&mut self, source: HostId, key: QueueKey) -> u32 {
        self.adapters.of_mut(source).queue(key)
    }

    /// Whether a host's adapter has room for so many bytes of a priority. If not,
    /// [`Effect::Room`](crate::contract::Effect) follows when it has.
    #[inline]
    pub fn has_room<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        at: (HostId, u8),
        bytes: u32,
        now_ps: u64,
    ) -> bool {
        self.fits(at, bytes) || self.has_late_room(pool, at, bytes, now_ps)
    }

    /// A lower bound of [`Cee::has_room`]: a lazy adapter may have more room than it knows.
    #[inline]
    pub fn fits(&self, at: (HostId, u8), bytes: u32) -> bool {
        self.adapters.fits(at, bytes)
    }

    /// Whether there is room once a lazy adapter has caught up. If not, the adapter notes that a
    /// sender waits for room, and becomes punctual.
    #[inline(never)]
    fn has_late_room<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        (host, priority): (HostId, u8),
        bytes: u32,
        now_ps: u64,
    ) -> bool {
        let port = self.adapters.port(host);
        self.catch_up(pool, port, now_ps);
        let fits = self.fits((host, priority), bytes);
        if !fits {
            self.adapters.of_mut(host).want(priority);
        }
        self.set_adapter_patience(host);
        fits
    }

    /// From now on [`Effect::Left`](crate::contract::Effect) reports each frame that leaves the
    /// adapter of a host.
    pub fn count_departures<F: CeeFrame>(&mut self, pool: &mut Pool<F>, host: HostId, now_ps: u64) {
        self.catch_up(pool, self.adapters.port(host), now_ps);
        self.adapters.of_mut(host).count_departures();
        self.adapters.keep_tags();
        self.set_adapter_patience(host);
    }

    /// Decides whether an adapter is lazy. The caller makes it catch up before it becomes punctual.
    pub(super) fn set_adapter_patience(&mut self, host: HostId) {
        let adapter = self.adapters.of(host);
        if let Some(port) = adapter.link() {
            let hurries = adapter.hurries();
            (self.out).set_adapter_patience(&mut self.requests, port, hurries);
        }
    }

    /// Makes a lazy adapter send the frames that were due before now, each at the time at which it
    /// was due: see [`Cee::catch_up`].
    #[inline]
    pub(super) fn catch_up_adapter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        let until_ps = self.out.until_ps(port, now_ps);
        let state = &self.out[port];
        let at_ps = state.due_ps().min(state.armed_ps());
        if !state.is_lazy() || at_ps >= until_ps {
            return;
        }
        self.drive(pool, port, at_ps, until_ps);
    }

    /// A frame begins its way down the stack. The adapter reserves room for it until it arrives
    /// ([`Cee::submit`]).
    pub fn reserve<F: CeeFrame>(&mut self, pool: &Pool<F>, handle: Handle, departure: Departure) {
        self.adapters.keep_room(departure, pool[handle].bytes());
        self.adapters.tag_departure(handle, departure);
    }

    /// A frame for which room is reserved has come down the stack to its adapter.
    pub fn submit<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle, now_ps: u64) {
        let tag = self.adapters.tag(handle);
        self.enter(pool, handle, (tag.source, tag.queue), now_ps);
    }

    /// A frame for which there is room comes to its adapter at once, on a host whose stack takes no
    /// time.
    pub fn send<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        departure: Departure,
        now_ps: u64,
    ) {
        if self.adapters.keeps_tags() {
            self.adapters.tag_departure(handle, departure);
        }
        self.adapters.keep_room(departure, pool[handle].bytes());
        self.enter(pool, handle, (departure.source, departure.queue), now_ps);
    }

    /// A frame joins its queue in the adapter, leaves at once, or is lost because the link is down.
    fn enter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        (host, queue): (HostId, u32),
        now_ps: u64,
    ) {
        let port = self.adapters.port(host);
        if self.out.may_be_behind(port, now_ps) {
            self.catch_up_adapter(pool, port, now_ps);
        }
        let (adapter, tags, params) = self.adapters.parts(host);
        let (voq, room) = adapter.queue_and_room(queue);
        let (bytes, priority) = (pool[handle].bytes(), voq.priority());
        let state = &mut self.out[port];
        if state.is_down() {
            room.give_back(priority.into(), bytes);
            return self.lose_unsent(host, priority, handle);
        }
        if tags.are_kept() {
            tags.number(handle, voq.next_number());
        }
        let label = Label {
            ingress: port,
            source: host,
            priority,
            buffered: false,
            control: false,
        };
        label.put(pool, handle);
        state.accept(bytes);
        let may_leave = state.open() & 1 << priority != 0 && state.is_idle(now_ps);
        state.send_nothing_before(now_ps);
        if may_leave && room.is_empty() && !voq.is_limited() {
            return self.pass(pool, handle, (host, queue), now_ps);
        }
        voq.push(pool, handle);
        room.join(bytes);
        if !voq.is_listed() {
            adapter.list(state.waiting_mut(), queue, now_ps, params);
        }
        if state.is_idle(now_ps) || adapter.is_due(now_ps) {
            self.kick_adapter(pool, port, now_ps);
        } else {
            self.await_turn(port, host);
        }
    }

    /// Requests the event at which a busy adapter sends again: when its port is free, or when a
    /// rate limiter lets the next frame go.
    fn await_turn(&mut self, port: PortId, host: HostId) {
        if self.out[port].has_eligible() {
            self.out.await_free(&mut self.requests, port);
        } else {
            self.arm_delayed(port, host);
        }
    }

    /// A frame whose adapter is empty leaves at once.
    fn pass<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        (host, queue): (HostId, u32),
        now_ps: u64,
    ) {
        let adapter = self.adapters.of_mut(host);
        let (port, bytes) = (adapter.port(), pool[handle].bytes());
        let (voq, room) = adapter.queue_and_room(queue);
        voq.passed(bytes, now_ps);
        let priority = usize::from(voq.priority());
        room.give_back(priority, bytes);
        self.start(pool, port, handle, now_ps);
        self.report_departure(host, priority, handle);
    }

    /// An adapter sends a frame now, if it has one that may leave.
    #[inline]
    pub(super) fn kick_adapter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        self.drive(pool, port, now_ps, 0);
    }

    /// An adapter sends at `at_ps`, if it has a frame that may leave, and then each frame that may
    /// leave before `until_ps`. With `until_ps` 0 it sends at `at_ps` only.
    #[inline(never)]
    fn drive<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        mut at_ps: u64,
        until_ps: u64,
    ) {
        let Node::Host(host) = self.specs[port.index()].near else {
            return;
        };
        if self.out[port].is_down() {
            return;
        }
        loop {
            let state = &mut self.out[port];
            let was_expected = state.is_expected();
            if until_ps != 0 {
                state.disarm_at(at_ps);
            }
            while !self.send_at(pool, port, host, at_ps) {}
            let state = &mut self.out[port];
            // A frame that left has used the expected event; if none left, the event is still
            // expected.
            state.expect_only_if(was_expected);
            let may_send = state.has_eligible();
            let due_ps = if may_send {
                state.free_ps()
            } else {
                let delayed_ps = self.adapters.of(host).next_delayed_ps();
                delayed_ps.max(state.free_ps())
            };
            at_ps = due_ps.min(state.armed_ps());
            if at_ps >= until_ps {
                break;
            }
            if !may_send {
                state.expect_nothing();
                if due_ps < state.armed_ps() {
                    state.set_armed(NEVER);
                }
            }
        }
        self.await_turn(port, host);
    }

    /// Sends one frame, if one may leave at this time. False if the chosen queue has to wait for
    /// its rate limiter: then another queue may be able to send, and the caller tries again.
    #[inline(always)]
    fn send_at<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: HostId,
        now_ps: u64,
    ) -> bool {
        let state = &mut self.out[port];
        let (adapter, _, params) = self.adapters.parts(host);
        if adapter.is_due(now_ps) {
            adapter.release_delayed(state.waiting_mut(), now_ps, params);
        }
        let eligible = state.eligible();
        if eligible == 0 || !state.is_idle(now_ps) {
            return true;
        }
        let head_bytes = |priority: usize| adapter.head_bytes(priority);
        let chosen = self.out.choose(port, eligible, head_bytes);
        chosen.is_none_or(|priority| self.depart(pool, port, host, priority, now_ps))
    }

    /// The next queue of a priority sends a frame; false if it has to wait for its rate limiter.
    #[inline(always)]
    fn depart<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: HostId,
        priority: usize,
        now_ps: u64,
    ) -> bool {
        let adapter = self.adapters.of_mut(host);
        let voq = adapter.first_mut(priority);
        if voq.is_limited() {
            return self.depart_at_rate(pool, port, host, priority, now_ps);
        }
        let Some((handle, bytes)) = voq.depart(pool, now_ps) else {
            return true;
        };
        let waiting = self.out[port].waiting_mut();
        if voq.is_empty() {
            adapter.next(waiting, priority);
        } else {
            adapter.rotate(priority);
        }
        self.leave(pool, port, (host, priority), handle, bytes, now_ps);
        true
    }

    /// [`Cee::depart`] for a queue with a rate limiter.
    #[inline(never)]
    fn depart_at_rate<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: HostId,
        priority: usize,
        now_ps: u64,
    ) -> bool {
        let (adapter, _, params) = self.adapters.parts(host);
        let waiting = self.out[port].waiting_mut();
        let Some(queue) = adapter.next(waiting, priority) else {
            return true;
        };
        let obeyed = adapter.obeyed(params);
        let (voq, _) = adapter.queue_and_room(queue);
        // A notification may have lowered the rate since the queue was listed as ready.
        if voq.next_ps(obeyed, now_ps) > now_ps {
            adapter.list(waiting, queue, now_ps, params);
            return false;
        }
        let Some((handle, bytes)) = voq.depart(pool, now_ps) else {
            return true;
        };
        let path = params.and_then(|params| voq.limit(params, bytes, now_ps));
        if let Some(path) = path {
            pool[handle].set_path(path);
        }
        if !voq.is_empty() {
            adapter.list(waiting, queue, now_ps, params);
        }
        self.leave(pool, port, (host, priority), handle, bytes, now_ps);
        true
    }

    /// A frame that has waited leaves an adapter.
    #[inline(always)]
    fn leave<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        (host, priority): (HostId, usize),
        handle: Handle,
        bytes: u32,
        now_ps: u64,
    ) {
        self.adapters.of_mut(host).leave(priority, bytes);
        self.start(pool, port, handle, now_ps);
        self.report_departure(host, priority, handle);
    }

    /// Reports a departure if departures are counted, and room if a sender waits for it.
    #[inline]
    fn report_departure(&mut self, host: HostId, priority: usize, handle: Handle) {
        if self.adapters.of(host).is_watched() {
            self.report_all(host, priority, handle);
        }
    }

    #[inline(never)]
    fn report_all(&mut self, host: HostId, priority: usize, handle: Handle) {
        if self.adapters.of(host).is_counted() {
            let sender = self.adapters.sender(handle);
            self.requests.left(host, sender, handle);
        }
        self.report_room(host, priority);
    }

    /// A priority of an adapter has more room, which is reported if a sender waits for it.
    fn report_room(&mut self, host: HostId, priority: usize) {
        if self.adapters.of_mut(host).ends_wait(priority) {
            self.requests.room(host, narrow::<u8>(priority));
            self.set_adapter_patience(host);
        }
    }

    /// Requests an event at the time when a rate limiter lets the next frame go.
    fn arm_delayed(&mut self, port: PortId, host: HostId) {
        let delayed_ps = self.adapters.of(host).next_delayed_ps();
        let state = &mut self.out[port];
        // The frame for which an event was expected is no longer the next one.
        state.expect_nothing();
        if delayed_ps == NEVER {
            return;
        }
        let at_ps = delayed_ps.max(state.free_ps());
        if !state.is_lazy() {
            return self.out.arm(&mut self.requests, port, at_ps);
        }
        if at_ps < state.armed_ps() {
            state.set_armed(at_ps);
        }
        // A frame on the wire makes the adapter catch up when it arrives.
        if state.is_wire_empty() {
            self.out.foresee(&mut self.requests, port);
        }
    }

    /// A notification has come to a host's adapter. It lowers the rate of a queue, or its source
    /// takes another path.
    pub fn notified<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: HostId,
        queue: QueueKey,
        fb: u8,
        now_ps: u64,
    ) {
        self.adapters.count_taken();
        let port = self.adapters.port(host);
        self.catch_up(pool, port, now_ps);
        let (adapter, _, Some(params)) = self.adapters.parts(host) else {
            return;
        };
        let line_bps = self.specs[port.index()].rate_bps;
        let has_limiters = self.config.qcn.is_some_and(|qcn| qcn.rate_limiters);
        let notice = (queue, fb);
        match &self.sources[usize::from(queue.priority)] {
            Some(routing) => {
                let (specs, to) = (&self.specs, queue.destination);
                let far = |port: PortId| specs[port.index()].far;
                let values = || {
                    routing
                        .routes
                        .of(queue.priority)
                        .path_values_to(port, to, far)
                };
                let waiting = self.out[port].waiting_mut();
                let rules = (&**routing, params);
                adapter.notified_of_path(waiting, rules, notice, line_bps, now_ps, values);
            }
            None if has_limiters => adapter.notified(params, notice, line_bps, now_ps),
            None => return,
        }
        self.out.kick(port);
        self.serve_kicked_ports(pool, now_ps);
    }

    /// Sources choose the paths of those priorities whose scheme is one of theirs: R2C2 or R3C2.
    /// `routes` are the network's.
    #[must_use]
    pub fn with_routing(mut self, routing: impl Fn(u8) -> Routing, routes: &Arc<Routes>) -> Self {
        for (priority, sources) in (0..).zip(&mut self.sources) {
            let (rules, limits_each) = match routing(priority) {
                Routing::R2c2(rules) => (rules, false),
                Routing::R3c2(rules) => (rules, true),
                _ => continue,
            };
            *sources = Some(Box::new(SourceRouting {
                rules,
                limits_each,
                has_limiters: self.config.qcn.is_some_and(|qcn| qcn.rate_limiters),
                routes: Arc::clone(routes),
            }));
        }
        self
    }

    /// Switches change their routes, and sources the paths that they choose from.
    pub(crate) fn reroute(&mut self, routes: &Arc<Routes>) {
        for sources in self.sources.iter_mut().flatten() {
            sources.routes = Arc::clone(routes);
        }
        let far = |port: PortId| self.specs[port.index()].far;
        self.adapters.reroute(|adapter, queue| {
            let routes = routes.of(queue.priority);
            routes.path_values_to(adapter, queue.destination, far)
        });
    }

    /// Rates of a host's limiters in bits per second, by queue.
    pub fn limits(&self, host: HostId, now_ps: u64) -> impl Iterator<Item = (QueueKey, u64)> {
        self.adapters.limits(host, now_ps)
    }

    /// Whether a host's adapter ignores pauses and rates from now on, as a defective one does.
    pub fn set_babbling<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: HostId,
        babbles: bool,
        now_ps: u64,
    ) {
        let port = self.adapters.port(host);
        self.catch_up(pool, port, now_ps);
        self.adapters.of_mut(host).set_babbling(babbles);
        self.set_deaf(port, babbles, now_ps);
        self.set_adapter_patience(host);
        self.out.reopen(port, now_ps);
        self.serve_kicked_ports(pool, now_ps);
    }

    /// The link of an adapter has failed: the adapter loses its frames.
    pub(super) fn empty_adapter<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId) {
        let Node::Host(host) = self.specs[port.index()].near else {
            return;
        };
        let waiting = self.out[port].waiting_mut();
        for handle in self.adapters.of_mut(host).empty(pool, waiting) {
            let priority = Label::of(pool, handle).priority;
            self.lose_unsent(host, priority, handle);
        }
    }

    /// Counts and reports a frame that is lost before it has left its adapter, and the room that it
    /// gives back.
    fn lose_unsent(&mut self, host: HostId, priority: u8, handle: Handle) {
        let port = self.adapters.port(host);
        self.out.count_drop(port, Drop::Down);
        let sender = self.adapters.sender(handle);
        self.requests.lost(host, sender, handle);
        self.report_room(host, priority.into());
    }
}
