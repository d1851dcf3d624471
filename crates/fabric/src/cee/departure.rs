//! Departures from adapters: which frame leaves next, and when.

use super::{
    Cee, CeeFrame, Departure, Label, PRIORITIES, QueueKey, ReactionPoint, adapter::EMPTY,
    port::NEVER,
};
use crate::{
    graph::{HostId, Node, PortId},
    pool::{Handle, NIL, Pool},
    port::Drop,
};

impl Cee {
    /// The number of a queue of a host's adapter. The queue is made at the first call for its key.
    pub fn queue_to(&mut self, source: HostId, key: QueueKey) -> u32 {
        self.adapters.adapters[source.index()].queue(key)
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
        self.adapters.adapters[host.index()].wanted |= u8::from(!fits) << priority;
        self.set_adapter_patience(host);
        fits
    }

    /// From now on [`Effect::Left`](crate::contract::Effect) reports each frame that leaves the
    /// adapter of a host.
    pub fn count_departures<F: CeeFrame>(&mut self, pool: &mut Pool<F>, host: HostId, now_ps: u64) {
        self.catch_up(pool, self.adapters.port(host), now_ps);
        self.adapters.adapters[host.index()].counted = true;
        self.adapters.numbers = true;
        self.set_adapter_patience(host);
    }

    /// Decides whether an adapter is lazy. An adapter is punctual if a sender waits for room in it,
    /// if its departures are counted, if it babbles or is watched, if its switch stores and
    /// forwards, and where no port may be late. The caller makes it catch up before it becomes
    /// punctual.
    pub(super) fn set_adapter_patience(&mut self, host: HostId) {
        let adapter = &self.adapters.adapters[host.index()];
        let port = adapter.port;
        if port == PortId::NONE {
            return; // a host without a link
        }
        let hurries = adapter.wanted != 0 || adapter.counted || adapter.babbles;
        let hurries = hurries || !self.out.may_be_late || !self.out.is_cut(port);
        let state = &mut self.out.ports[port.index()];
        let punctual = match hurries || state.watched {
            true => u8::MAX,
            false => 0,
        };
        let before = std::mem::replace(&mut state.punctual, punctual);
        if before < punctual {
            state.expected = false;
            // A lazy adapter has not requested a timer for this time.
            let armed_ps = std::mem::replace(&mut state.armed_ps, NEVER);
            if state.has_eligible() {
                let free_ps = state.free_ps;
                self.out.arm(&mut self.requests, port, free_ps);
            }
            self.out.arm(&mut self.requests, port, armed_ps);
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
        let until_ps = now_ps + u64::from(port < self.out.turn);
        let state = &mut self.out.ports[port.index()];
        let due_ps = if state.has_eligible() {
            state.free_ps
        } else {
            NEVER
        };
        let at_ps = due_ps.min(state.armed_ps);
        if state.punctual != 0 || at_ps >= until_ps {
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
        if self.adapters.numbers {
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
        let adapter = &mut self.adapters.adapters[host.index()];
        let voq = &mut adapter.queues[queue as usize];
        let (bytes, priority) = (pool[handle].bytes(), voq.key.priority);
        let state = &mut self.out.ports[port.index()];
        if state.down {
            adapter.reserved_bytes[usize::from(priority)] -= u64::from(bytes);
            return self.lose_unsent(host, priority, handle);
        }
        if self.adapters.numbers {
            self.adapters.tags[handle as usize].number = voq.next_number();
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
        // A late decision must not send the frame before its arrival.
        state.free_ps = state.free_ps.max(now_ps);
        if may_leave && adapter.queued_bytes == 0 && voq.limiter.is_none() {
            return self.pass(pool, handle, (host, queue), now_ps);
        }
        voq.frames.push(pool, handle);
        adapter.queued_bytes += u64::from(bytes);
        if !voq.listed {
            let params = self.adapters.params.as_ref();
            adapter.list(&mut state.waiting, queue, now_ps, params);
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
        if self.out.ports[port.index()].has_eligible() {
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
        let adapter = &mut self.adapters.adapters[host.index()];
        let (port, bytes) = (adapter.port, pool[handle].bytes());
        let voq = &mut adapter.queues[queue as usize];
        (voq.last_ps, voq.last_bytes) = (now_ps, bytes);
        let priority = usize::from(voq.key.priority);
        adapter.reserved_bytes[priority] -= u64::from(bytes);
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
        if self.out.ports[port.index()].down {
            return;
        }
        loop {
            let state = &mut self.out.ports[port.index()];
            let was_expected = state.expected;
            if at_ps == state.armed_ps && until_ps != 0 {
                state.armed_ps = NEVER;
                state.expected |= std::mem::take(&mut state.foreseen);
            }
            while !self.send_at(pool, port, host, at_ps) {}
            let state = &mut self.out.ports[port.index()];
            // A frame that left has used the expected event; if none left, the event is still
            // expected.
            state.expected &= was_expected;
            let may_send = state.has_eligible();
            let due_ps = if may_send {
                state.free_ps
            } else {
                let delayed_ps = self.adapters.adapters[host.index()].next_delayed_ps();
                delayed_ps.max(state.free_ps)
            };
            at_ps = due_ps.min(state.armed_ps);
            if at_ps >= until_ps {
                break;
            }
            if !may_send {
                state.expected = false;
                if due_ps < state.armed_ps {
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
        let state = &mut self.out.ports[port.index()];
        let adapter = &mut self.adapters.adapters[host.index()];
        if adapter.is_due(now_ps) {
            let params = self.adapters.params.as_ref();
            adapter.release_delayed(&mut state.waiting, now_ps, params);
        }
        let eligible = state.waiting & state.open();
        if eligible == 0 || !state.is_idle(now_ps) {
            return true;
        }
        let adapter = &self.adapters.adapters[host.index()];
        let head_bytes = |priority: usize| {
            let queue = adapter.ready[priority].first;
            adapter.queues[queue as usize].frames.head_bytes
        };
        let selection = &mut self.out.selections[port.index()];
        let chosen = match eligible & (eligible - 1) {
            0 => {
                let priority = eligible.trailing_zeros() as usize % PRIORITIES;
                selection.choose_alone(priority, head_bytes(priority));
                Some(priority)
            }
            _ => selection.choose(eligible, &head_bytes),
        };
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
        let adapter = &mut self.adapters.adapters[host.index()];
        let queue = adapter.ready[priority].first;
        let voq = &mut adapter.queues[queue as usize];
        if voq.limiter.is_some() {
            return self.depart_at_rate(pool, port, host, priority, now_ps);
        }
        let bytes = voq.frames.head_bytes;
        let Some(handle) = voq.frames.pop(pool) else {
            return true;
        };
        (voq.last_ps, voq.last_bytes) = (now_ps, bytes);
        voq.listed = voq.frames.head != NIL;
        let waiting = &mut self.out.ports[port.index()].waiting;
        if voq.listed {
            adapter.rotate(priority);
        } else {
            adapter.next(waiting, priority);
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
        let adapter = &mut self.adapters.adapters[host.index()];
        let waiting = &mut self.out.ports[port.index()].waiting;
        let Some(queue) = adapter.next(waiting, priority) else {
            return true;
        };
        let params = self.adapters.params.as_ref();
        let voq = &mut adapter.queues[queue as usize];
        voq.listed = false;
        // A notification may have lowered the rate since the queue was listed as ready.
        if let (Some(params), false) = (params, adapter.babbles) {
            if voq.next_ps(params, now_ps) > now_ps {
                adapter.list(waiting, queue, now_ps, Some(params));
                return false;
            }
        }
        let bytes = voq.frames.head_bytes;
        let Some(handle) = voq.frames.pop(pool) else {
            return true;
        };
        (voq.last_ps, voq.last_bytes) = (now_ps, bytes);
        if let (Some(params), Some(limiter)) = (params, &mut voq.limiter) {
            limiter.sent(params, bytes);
        }
        if voq.frames.head != NIL {
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
        let adapter = &mut self.adapters.adapters[host.index()];
        adapter.queued_bytes -= u64::from(bytes);
        adapter.reserved_bytes[priority] -= u64::from(bytes);
        self.start(pool, port, handle, now_ps);
        self.report_departure(host, priority, handle);
    }

    /// Reports a departure if departures are counted, and room if a sender waits for it.
    #[inline]
    fn report_departure(&mut self, host: HostId, priority: usize, handle: Handle) {
        let adapter = &self.adapters.adapters[host.index()];
        if adapter.counted || adapter.wanted != 0 {
            self.report_all(host, priority, handle);
        }
    }

    #[inline(never)]
    fn report_all(&mut self, host: HostId, priority: usize, handle: Handle) {
        if self.adapters.adapters[host.index()].counted {
            let sender = self.adapters.sender(handle);
            self.requests.left(host, sender, handle);
        }
        self.report_room(host, priority);
    }

    /// A priority of an adapter has more room, which is reported if a sender waits for it.
    fn report_room(&mut self, host: HostId, priority: usize) {
        let adapter = &mut self.adapters.adapters[host.index()];
        if adapter.wanted & 1 << priority != 0 {
            adapter.wanted &= !(1 << priority);
            self.requests.room(host, priority as u8);
            self.set_adapter_patience(host);
        }
    }

    /// Requests an event at the time when a rate limiter lets the next frame go.
    fn arm_delayed(&mut self, port: PortId, host: HostId) {
        let delayed_ps = self.adapters.adapters[host.index()].next_delayed_ps();
        let state = &mut self.out.ports[port.index()];
        // The frame for which an event was expected is no longer the next one.
        state.expected = false;
        if delayed_ps == NEVER {
            return;
        }
        let at_ps = delayed_ps.max(state.free_ps);
        if state.punctual != 0 {
            return self.out.arm(&mut self.requests, port, at_ps);
        }
        if at_ps < state.armed_ps {
            state.set_armed(at_ps);
        }
        // A frame on the wire makes the adapter catch up when it arrives.
        if state.first == NIL {
            self.out.foresee(&mut self.requests, port);
        }
    }

    /// A notification has come to a host's adapter and lowers the rate of a queue.
    pub fn notified<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: HostId,
        queue: QueueKey,
        fb: u8,
        now_ps: u64,
    ) {
        self.adapters.taken += 1;
        self.catch_up(pool, self.adapters.port(host), now_ps);
        let Some(params) = &self.adapters.params else {
            return;
        };
        let adapter = &mut self.adapters.adapters[host.index()];
        let number = adapter.queue(queue);
        let line_bps = self.specs[adapter.port.index()].rate_bps;
        let seed = adapter.seed ^ u64::from(number) << 32;
        let voq = &mut adapter.queues[number as usize];
        let limiter = voq
            .limiter
            .get_or_insert_with(|| Box::new(ReactionPoint::new(params, line_bps, now_ps, seed)));
        limiter.notified(params, fb, now_ps);
        let port = adapter.port;
        self.out.kicks.push(port);
        self.serve_kicked_ports(pool, now_ps);
    }

    /// Rates of a host's limiters in bits per second, by queue.
    pub fn limits(&self, host: HostId, now_ps: u64) -> impl Iterator<Item = (QueueKey, u64)> {
        let queues = &self.adapters.adapters[host.index()].queues;
        queues.iter().filter_map(move |voq| {
            // A limiter's timer advances only when its queue sends; here a copy is brought up to
            // date.
            let mut limiter = *voq.limiter.as_deref()?;
            limiter.timer(self.adapters.params.as_ref()?, now_ps);
            Some((voq.key, limiter.rate_bps()))
        })
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
        self.adapters.adapters[host.index()].babbles = babbles;
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
        let mut lost = Vec::new();
        let adapter = &mut self.adapters.adapters[host.index()];
        for voq in &mut adapter.queues {
            while let Some(handle) = voq.frames.pop(pool) {
                lost.push(handle);
            }
            voq.listed = false;
        }
        adapter.ready = [EMPTY; PRIORITIES];
        self.out.ports[port.index()].waiting = 0;
        adapter.delayed.clear();
        adapter.queued_bytes = 0;
        for &handle in &lost {
            let priority = Label::of(pool, handle).priority;
            adapter.reserved_bytes[usize::from(priority)] -= u64::from(pool[handle].bytes());
        }
        for handle in lost {
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
