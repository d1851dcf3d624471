//! An adapter: a queue for each destination, priority and path, and a rate limiter for those that are congested.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use super::{
    Cee, CeeFrame, Effect, Label, PRIORITIES, Place, QcnParams, ReactionPoint, Tag,
    port::{Fifo, NEVER},
};
use crate::{
    graph::PortId,
    pool::{Handle, NIL, Pool},
    port::{Drop, PS_PER_S},
};

/// No queue yet.
const NONE: u32 = u32::MAX;

/// Where a frame goes, and by which priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The sending host.
    pub source: u16,
    /// Its queue for the receiving one: see [`Cee::queue_to`].
    pub queue: u32,
    /// 0..=7.
    pub priority: u8,
    /// What the owner calls the sender.
    pub sender: u32,
}

/// What a queue of an adapter is for; it has a rate limiter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// The receiving host.
    pub destination: u16,
    /// 0..=7.
    pub priority: u8,
    /// The path value of its frames; 0 where one queue serves all paths.
    pub path: u32,
}

pub(super) struct Adapter {
    port: PortId,
    /// Queues, in the order of their first frames.
    queues: Vec<Voq>,
    /// Numbers of queues.
    numbers: HashMap<QueueKey, u32>,
    /// By priority: queues that may send, in turn.
    ready: [Ring; PRIORITIES],
    /// Queues that wait for their rate.
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bytes of each priority that have been given room, those on their way down the stack included.
    reserved_bytes: [u64; PRIORITIES],
    queued_bytes: u64,
    /// Bit p: somebody waits for room in priority p.
    wanted: u8,
    /// It does not obey pauses and rates.
    babbles: bool,
    /// The owner wants to know when frames leave.
    counted: bool,
    seed: u64,
}

/// Queues in a row, each of which names the next.
#[derive(Clone, Copy)]
struct Ring {
    first: u32,
    last: u32,
}

const EMPTY: Ring = Ring {
    first: NONE,
    last: NONE,
};

/// A virtual output queue.
struct Voq {
    frames: Fifo,
    /// Behind it in its [`Ring`].
    next: u32,
    limiter: Option<Box<ReactionPoint>>,
    /// The last frame's first bit left then, and it was so long.
    last_ps: u64,
    last_bytes: u32,
    /// Of the next frame.
    number: u32,
    key: QueueKey,
    /// In a list of those that may send, or that wait.
    listed: bool,
}

const _: () = assert!(size_of::<Voq>() <= 64);

pub(super) fn adapters(cee: &Cee, hosts: usize, seed: u64) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = (0..hosts)
        .map(|host| Adapter {
            port: PortId::MAX,
            queues: Vec::new(),
            numbers: HashMap::new(),
            ready: [EMPTY; PRIORITIES],
            delayed: BinaryHeap::new(),
            reserved_bytes: [0; PRIORITIES],
            queued_bytes: 0,
            wanted: 0,
            babbles: false,
            counted: false,
            seed: seed ^ (host as u64).wrapping_mul(0xd134_2543_de82_ef95),
        })
        .collect();
    for (port, spec) in (0..).zip(&cee.specs) {
        if let Place::Host(host) = spec.near {
            adapters[usize::from(host)].port = port;
        }
    }
    adapters
}

impl Adapter {
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    pub fn reserved_bytes(&self) -> &[u64; PRIORITIES] {
        &self.reserved_bytes
    }

    /// The number of a queue, which is made when it is first asked for.
    fn queue(&mut self, key: QueueKey) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.queues.push(Voq::new(key));
            self.queues.len() as u32 - 1
        })
    }

    /// A queue may send when all of its priority have had a turn that may do so already. `waiting`, here and below, is
    /// the port's: bit p: `ready[p]` has a queue.
    fn push_ready(&mut self, waiting: &mut u8, queue: u32) {
        let voq = &mut self.queues[queue as usize];
        voq.next = NONE;
        let priority = usize::from(voq.key.priority);
        let ring = &mut self.ready[priority];
        let before = std::mem::replace(&mut ring.last, queue);
        match before {
            NONE => ring.first = queue,
            before => self.queues[before as usize].next = queue,
        }
        *waiting |= 1 << priority;
    }

    /// A queue that has frames joins those that may send, or those that wait.
    fn list(&mut self, waiting: &mut u8, queue: u32, now_ps: u64, params: Option<&QcnParams>) {
        let voq = &mut self.queues[queue as usize];
        voq.listed = true;
        let at_ps = match (params, self.babbles) {
            (Some(params), false) => voq.next_ps(params, now_ps),
            _ => 0,
        };
        if at_ps > now_ps {
            self.delayed.push(Reverse((at_ps, queue)));
        } else {
            self.push_ready(waiting, queue);
        }
    }

    /// Queues that have waited long enough may send.
    #[inline(never)]
    fn release_delayed(&mut self, waiting: &mut u8, now_ps: u64, params: Option<&QcnParams>) {
        while self.is_due(now_ps) {
            if let Some(Reverse((_, queue))) = self.delayed.pop() {
                self.list(waiting, queue, now_ps, params);
            }
        }
    }

    /// Whether one of them has waited long enough.
    #[inline]
    fn is_due(&self, now_ps: u64) -> bool {
        self.next_delayed_ps() <= now_ps
    }

    /// When the next of them has; [`NEVER`] if none waits.
    fn next_delayed_ps(&self) -> u64 {
        let next = self.delayed.peek();
        next.map_or(NEVER, |&Reverse((at_ps, _))| at_ps)
    }

    /// The next queue of a priority that may send.
    fn next(&mut self, waiting: &mut u8, priority: usize) -> Option<u32> {
        let ring = &mut self.ready[priority];
        let queue = ring.first;
        if queue == NONE {
            return None;
        }
        ring.first = self.queues[queue as usize].next;
        if ring.first == NONE {
            ring.last = NONE;
            *waiting &= !(1 << priority);
        }
        Some(queue)
    }

    /// The first queue of a priority becomes the last.
    #[inline]
    fn rotate(&mut self, priority: usize) {
        let ring = &mut self.ready[priority];
        let Ring { first, last } = *ring;
        if first == last {
            return;
        }
        let next = std::mem::replace(&mut self.queues[first as usize].next, NONE);
        (ring.first, ring.last) = (next, first);
        self.queues[last as usize].next = first;
    }
}

impl Voq {
    fn new(key: QueueKey) -> Self {
        Self {
            frames: Fifo::default(),
            next: NONE,
            limiter: None,
            last_ps: 0,
            last_bytes: 0,
            number: 0,
            key,
            listed: false,
        }
    }

    /// When the limiter lets the next frame go, or has to be looked at again.
    #[inline]
    fn next_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        match &self.limiter {
            None => 0,
            Some(_) => self.limited_ps(params, now_ps),
        }
    }

    fn limited_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        let Some(limiter) = &mut self.limiter else {
            return 0;
        };
        limiter.timer(params, now_ps);
        if limiter.is_done() {
            self.limiter = None;
            return 0;
        }
        // Of frames up to 2 MB.
        let bit_ps = u64::from(self.last_bytes).saturating_mul(8 * PS_PER_S);
        let gap_ps = bit_ps / limiter.rate_bps().max(1);
        match self.last_ps.saturating_add(gap_ps) {
            at_ps if at_ps <= now_ps => 0,
            at_ps => at_ps.min(limiter.next_timer_ps()),
        }
    }
}

impl Cee {
    /// The number of a queue of a host's adapter, which is made when it is first asked for.
    pub fn queue_to(&mut self, source: u16, key: QueueKey) -> u32 {
        self.adapters[usize::from(source)].queue(key)
    }

    /// Whether a host's adapter has room for so many bytes of a priority. If not, [`Effect::Room`] tells when to ask
    /// again.
    #[inline]
    pub fn has_room<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        at: (u16, u8),
        bytes: u32,
        now_ps: u64,
    ) -> bool {
        self.fits(at, bytes) || self.has_late_room(pool, at, bytes, now_ps)
    }

    /// The same as far as is known; there may be more.
    #[inline]
    pub fn fits(&self, (host, priority): (u16, u8), bytes: u32) -> bool {
        let adapter = &self.adapters[usize::from(host)];
        let reserved_bytes = adapter.reserved_bytes[usize::from(priority)];
        reserved_bytes + u64::from(bytes) <= self.config.adapter_bytes
    }

    /// Whether there is room when what should have left has.
    #[inline(never)]
    fn has_late_room<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        (host, priority): (u16, u8),
        bytes: u32,
        now_ps: u64,
    ) -> bool {
        let port = self.adapters[usize::from(host)].port;
        self.catch_up(pool, port, now_ps);
        let fits = self.fits((host, priority), bytes);
        self.adapters[usize::from(host)].wanted |= u8::from(!fits) << priority;
        self.set_adapter_patience(host);
        fits
    }

    /// From now on [`Effect::Left`] tells of each frame that leaves a host.
    pub fn count_departures<F: CeeFrame>(&mut self, pool: &mut Pool<F>, host: u16, now_ps: u64) {
        self.catch_up(pool, self.adapters[usize::from(host)].port, now_ps);
        self.adapters[usize::from(host)].counted = true;
        self.numbers = true;
        self.set_adapter_patience(host);
    }

    /// An adapter may be late as long as nobody waits for room in it or for what leaves it. Before it no longer may, it
    /// has to catch up.
    pub(super) fn set_adapter_patience(&mut self, host: u16) {
        let adapter = &self.adapters[usize::from(host)];
        let port = adapter.port;
        if port == PortId::MAX {
            return; // a host without a link
        }
        let hurries = adapter.wanted != 0 || adapter.counted || adapter.babbles;
        let hurries = hurries || !self.may_be_late || !self.is_cut(port);
        let state = &mut self.ports[port as usize];
        let punctual = match hurries || state.watched {
            true => u8::MAX,
            false => 0,
        };
        let before = std::mem::replace(&mut state.punctual, punctual);
        if before < punctual {
            state.expected = false;
            // Nobody has been asked to call for that.
            let armed_ps = std::mem::replace(&mut state.armed_ps, NEVER);
            if state.has_eligible() {
                let free_ps = state.free_ps;
                self.arm(port, free_ps);
            }
            self.arm(port, armed_ps);
        }
    }

    /// What should have left an adapter before now does so, at the time at which it should have: see
    /// [`Cee::catch_up`].
    #[inline]
    pub(super) fn catch_up_adapter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        let until_ps = now_ps + u64::from(port < self.turn);
        let state = &mut self.ports[port as usize];
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

    /// A frame is on its way to its adapter, which keeps room for it until it is there ([`Cee::submit`]).
    pub fn reserve<F: CeeFrame>(&mut self, pool: &Pool<F>, handle: Handle, departure: Departure) {
        self.keep_room(pool, handle, departure);
        self.tag_departure(handle, departure);
    }

    fn keep_room<F: CeeFrame>(&mut self, pool: &Pool<F>, handle: Handle, departure: Departure) {
        let adapter = &mut self.adapters[usize::from(departure.source)];
        let reserved = &mut adapter.reserved_bytes[usize::from(departure.priority)];
        *reserved += u64::from(pool[handle].bytes());
    }

    fn tag_departure(&mut self, handle: Handle, departure: Departure) {
        let tag = Tag {
            source: departure.source,
            queue: departure.queue,
            sender: departure.sender,
            ..Tag::default()
        };
        self.tag(handle, tag);
    }

    /// A frame for which room is kept is at its adapter.
    pub fn submit<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle, now_ps: u64) {
        let tag = self.tags[handle as usize];
        self.enter(pool, handle, (tag.source, tag.queue), now_ps);
    }

    /// A frame for which there is room comes to its adapter without a way there.
    pub fn send<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        departure: Departure,
        now_ps: u64,
    ) {
        if self.numbers {
            self.tag_departure(handle, departure);
        }
        self.keep_room(pool, handle, departure);
        self.enter(pool, handle, (departure.source, departure.queue), now_ps);
    }

    /// A frame joins its queue, or leaves at once.
    fn enter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        (host, queue): (u16, u32),
        now_ps: u64,
    ) {
        let port = self.adapters[usize::from(host)].port;
        if self.may_be_behind(port, now_ps) {
            self.catch_up_adapter(pool, port, now_ps);
        }
        let adapter = &mut self.adapters[usize::from(host)];
        let voq = &mut adapter.queues[queue as usize];
        let (bytes, priority) = (pool[handle].bytes(), voq.key.priority);
        let state = &mut self.ports[port as usize];
        if state.down {
            adapter.reserved_bytes[usize::from(priority)] -= u64::from(bytes);
            return self.lose_unsent(host, priority, handle);
        }
        if self.numbers {
            self.tags[handle as usize].number = voq.number;
            voq.number = voq.number.wrapping_add(1);
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
        // It cannot leave before it has come.
        state.free_ps = state.free_ps.max(now_ps);
        if may_leave && adapter.queued_bytes == 0 && voq.limiter.is_none() {
            return self.pass(pool, handle, (host, queue), now_ps);
        }
        voq.frames.push(pool, handle);
        adapter.queued_bytes += u64::from(bytes);
        if !voq.listed {
            let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
            adapter.list(&mut state.waiting, queue, now_ps, params);
        }
        if state.is_idle(now_ps) || adapter.is_due(now_ps) {
            self.kick_adapter(pool, port, now_ps);
        } else {
            self.await_turn(port, host);
        }
    }

    /// A busy adapter will send again when it is free, or when a rate allows it.
    fn await_turn(&mut self, port: PortId, host: u16) {
        if self.ports[port as usize].has_eligible() {
            self.await_free(port);
        } else {
            self.arm_delayed(port, host);
        }
    }

    /// A frame meets nobody in its adapter and leaves it.
    fn pass<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        (host, queue): (u16, u32),
        now_ps: u64,
    ) {
        let adapter = &mut self.adapters[usize::from(host)];
        let (port, bytes) = (adapter.port, pool[handle].bytes());
        let voq = &mut adapter.queues[queue as usize];
        (voq.last_ps, voq.last_bytes) = (now_ps, bytes);
        let priority = usize::from(voq.key.priority);
        adapter.reserved_bytes[priority] -= u64::from(bytes);
        self.start(pool, port, handle, now_ps);
        self.tell_of_departure(host, priority, handle);
    }

    /// An adapter sends if it can.
    #[inline]
    pub(super) fn kick_adapter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        self.drive(pool, port, now_ps, 0);
    }

    /// An adapter sends if it can at `at_ps`, and whenever it can after that, but before `until_ps` (0: once).
    #[inline(never)]
    fn drive<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        mut at_ps: u64,
        until_ps: u64,
    ) {
        let Place::Host(host) = self.specs[port as usize].near else {
            return;
        };
        if self.ports[port as usize].down {
            return;
        }
        loop {
            let state = &mut self.ports[port as usize];
            let was_expected = state.expected;
            if at_ps == state.armed_ps && until_ps != 0 {
                state.armed_ps = NEVER;
                state.expected |= std::mem::take(&mut state.foreseen);
            }
            while !self.send_at(pool, port, host, at_ps) {}
            let state = &mut self.ports[port as usize];
            // Whoever left has taken it; if nobody did, it is as before.
            state.expected &= was_expected;
            let may_send = state.has_eligible();
            let due_ps = if may_send {
                state.free_ps
            } else {
                let delayed_ps = self.adapters[usize::from(host)].next_delayed_ps();
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

    /// A frame leaves an adapter, if one can at this time; false if it had to wait for its rate, and another may.
    #[inline(always)]
    fn send_at<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: u16,
        now_ps: u64,
    ) -> bool {
        let state = &mut self.ports[port as usize];
        let adapter = &mut self.adapters[usize::from(host)];
        if adapter.is_due(now_ps) {
            let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
            adapter.release_delayed(&mut state.waiting, now_ps, params);
        }
        let eligible = state.waiting & state.open();
        if eligible == 0 || !state.is_idle(now_ps) {
            return true;
        }
        let adapter = &self.adapters[usize::from(host)];
        let head_bytes = |priority: usize| {
            let queue = adapter.ready[priority].first;
            adapter.queues[queue as usize].frames.head_bytes
        };
        let selection = &mut self.selections[port as usize];
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

    /// The next queue of a priority sends a frame; false if it has to wait for its rate.
    #[inline(always)]
    fn depart<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: u16,
        priority: usize,
        now_ps: u64,
    ) -> bool {
        let adapter = &mut self.adapters[usize::from(host)];
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
        let waiting = &mut self.ports[port as usize].waiting;
        if voq.listed {
            adapter.rotate(priority);
        } else {
            adapter.next(waiting, priority);
        }
        self.leave(pool, port, (host, priority), handle, bytes, now_ps);
        true
    }

    /// The same of a queue with a limiter.
    #[inline(never)]
    fn depart_at_rate<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: u16,
        priority: usize,
        now_ps: u64,
    ) -> bool {
        let adapter = &mut self.adapters[usize::from(host)];
        let waiting = &mut self.ports[port as usize].waiting;
        let Some(queue) = adapter.next(waiting, priority) else {
            return true;
        };
        let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
        let voq = &mut adapter.queues[queue as usize];
        voq.listed = false;
        // A notification may have come since it was found that it may send.
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
        (host, priority): (u16, usize),
        handle: Handle,
        bytes: u32,
        now_ps: u64,
    ) {
        let adapter = &mut self.adapters[usize::from(host)];
        adapter.queued_bytes -= u64::from(bytes);
        adapter.reserved_bytes[priority] -= u64::from(bytes);
        self.start(pool, port, handle, now_ps);
        self.tell_of_departure(host, priority, handle);
    }

    /// Those who count what leaves a host, or wait for room in its adapter, hear of it.
    #[inline]
    fn tell_of_departure(&mut self, host: u16, priority: usize, handle: Handle) {
        let adapter = &self.adapters[usize::from(host)];
        if adapter.counted || adapter.wanted != 0 {
            self.tell_all(host, priority, handle);
        }
    }

    #[inline(never)]
    fn tell_all(&mut self, host: u16, priority: usize, handle: Handle) {
        if self.adapters[usize::from(host)].counted {
            self.effects.push(Effect::Left(host, handle));
        }
        self.tell_of_room(host, priority);
    }

    /// A priority of an adapter has more room: who waits for that hears of it.
    fn tell_of_room(&mut self, host: u16, priority: usize) {
        let adapter = &mut self.adapters[usize::from(host)];
        if adapter.wanted & 1 << priority != 0 {
            adapter.wanted &= !(1 << priority);
            self.effects.push(Effect::Room(host, priority as u8));
            self.set_adapter_patience(host);
        }
    }

    /// An adapter is asked again when a rate allows the next frame.
    fn arm_delayed(&mut self, port: PortId, host: u16) {
        let delayed_ps = self.adapters[usize::from(host)].next_delayed_ps();
        let state = &mut self.ports[port as usize];
        // Whoever had its turn next has lost it.
        state.expected = false;
        if delayed_ps == NEVER {
            return;
        }
        let at_ps = delayed_ps.max(state.free_ps);
        if state.punctual != 0 {
            return self.arm(port, at_ps);
        }
        if at_ps < state.armed_ps {
            state.set_armed(at_ps);
        }
        // What is on the wire leads to that when it has come.
        if state.first == NIL {
            self.foresee(port);
        }
    }

    /// A notification has come to a host's adapter: a queue of it becomes slower.
    pub fn notified<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: u16,
        queue: QueueKey,
        fb: u8,
        now_ps: u64,
    ) {
        self.absorbed += 1;
        self.catch_up(pool, self.adapters[usize::from(host)].port, now_ps);
        let Some(qcn) = &self.config.qcn else { return };
        let adapter = &mut self.adapters[usize::from(host)];
        let number = adapter.queue(queue);
        let line_bps = self.specs[adapter.port as usize].rate_bps;
        let seed = adapter.seed ^ u64::from(number) << 32;
        let voq = &mut adapter.queues[number as usize];
        let limiter = voq.limiter.get_or_insert_with(|| {
            Box::new(ReactionPoint::new(&qcn.params, line_bps, now_ps, seed))
        });
        limiter.notified(&qcn.params, fb, now_ps);
        let port = adapter.port;
        self.kicks.push(port);
        self.settle(pool, now_ps);
    }

    /// Rates of a host's limiters in bits per second, by queue.
    pub fn limits(&self, host: u16, now_ps: u64) -> impl Iterator<Item = (QueueKey, u64)> {
        let queues = &self.adapters[usize::from(host)].queues;
        queues.iter().filter_map(move |voq| {
            // Timers of those that send nothing are looked at when they do.
            let mut limiter = *voq.limiter.as_deref()?;
            limiter.timer(&self.config.qcn.as_ref()?.params, now_ps);
            Some((voq.key, limiter.rate_bps()))
        })
    }

    /// A host's adapter obeys neither pauses nor rates (it is defective), or does so again.
    pub fn set_babbling<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: u16,
        babbles: bool,
        now_ps: u64,
    ) {
        let port = self.adapters[usize::from(host)].port;
        self.catch_up(pool, port, now_ps);
        self.adapters[usize::from(host)].babbles = babbles;
        self.set_deaf(port, babbles, now_ps);
        self.set_adapter_patience(host);
        self.reopen(port, now_ps);
        self.settle(pool, now_ps);
    }

    /// What an adapter holds is lost with its link.
    pub(super) fn empty_adapter<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId) {
        let Place::Host(host) = self.specs[port as usize].near else {
            return;
        };
        let mut lost = Vec::new();
        let adapter = &mut self.adapters[usize::from(host)];
        for voq in &mut adapter.queues {
            while let Some(handle) = voq.frames.pop(pool) {
                lost.push(handle);
            }
            voq.listed = false;
        }
        adapter.ready = [EMPTY; PRIORITIES];
        self.ports[port as usize].waiting = 0;
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

    /// A frame is lost before it has left its adapter, which has room again: its sender hears of both.
    fn lose_unsent(&mut self, host: u16, priority: u8, handle: Handle) {
        let adapter = &self.adapters[usize::from(host)];
        self.stats[adapter.port as usize].drops[Drop::Down as usize] += 1;
        self.effects.push(Effect::Lost(host, handle));
        self.tell_of_room(host, priority.into());
    }

    /// Frames and bytes that an adapter holds, counted one by one.
    pub(super) fn count_adapter<F: CeeFrame>(&self, pool: &Pool<F>, host: usize) -> (u64, u64) {
        let queues = &self.adapters[host].queues;
        let frames = queues.iter().map(|voq| pool.count(voq.frames.head)).sum();
        let bytes = queues.iter().map(|voq| pool.bytes(voq.frames.head)).sum();
        (frames, bytes)
    }
}
