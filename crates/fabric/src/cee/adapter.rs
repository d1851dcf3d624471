//! An adapter: a queue for each destination and priority, and a rate limiter for those that are congested.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{
    Cee, CeeFrame, Effect, Label, PRIORITIES, Place, QcnParams, ReactionPoint, Tag, port::Queue,
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
    /// The receiving one.
    pub destination: u16,
    /// 0..=7.
    pub priority: u8,
    /// What the owner calls the sender.
    pub sender: u32,
}

pub(super) struct Adapter {
    port: PortId,
    /// Queues, in the order of their first frames.
    queues: Vec<Voq>,
    /// Number of a destination's queue, by priority and destination.
    numbers: Vec<Vec<u32>>,
    /// By priority: queues that may send, in turn.
    ready: [VecDeque<u32>; PRIORITIES],
    /// Bit p: `ready[p]` has one.
    waiting: u8,
    /// Queues that wait for their rate.
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bytes of each priority that have been given room, those on their way down the stack included.
    reserved_bytes: [u64; PRIORITIES],
    queued_bytes: u64,
    /// Somebody waits for room.
    wanted: bool,
    /// It does not obey pauses and rates.
    babbles: bool,
    seed: u64,
}

/// A virtual output queue.
struct Voq {
    frames: Queue,
    limiter: Option<Box<ReactionPoint>>,
    /// The last frame's first bit left then, and it was so long.
    last_ps: u64,
    last_bytes: u32,
    priority: u8,
    destination: u16,
    /// In a list of those that may send, or that wait.
    listed: bool,
    number: u32,
}

pub(super) fn adapters(cee: &Cee, hosts: usize, seed: u64) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = (0..hosts)
        .map(|host| Adapter {
            port: PortId::MAX,
            queues: Vec::new(),
            numbers: vec![Vec::new(); PRIORITIES],
            ready: Default::default(),
            waiting: 0,
            delayed: BinaryHeap::new(),
            reserved_bytes: [0; PRIORITIES],
            queued_bytes: 0,
            wanted: false,
            babbles: false,
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

    fn queue(&mut self, destination: u16, priority: u8) -> u32 {
        let numbers = &mut self.numbers[usize::from(priority)];
        let at = usize::from(destination);
        if numbers.len() <= at {
            numbers.resize(at + 1, NONE);
        }
        if numbers[at] == NONE {
            numbers[at] = self.queues.len() as u32;
            self.queues.push(Voq {
                frames: Queue::default(),
                limiter: None,
                last_ps: 0,
                last_bytes: 0,
                priority,
                destination,
                listed: false,
                number: 0,
            });
        }
        numbers[at]
    }

    /// A queue that has frames joins those that may send, or those that wait.
    fn list(&mut self, queue: u32, now_ps: u64, params: Option<&QcnParams>) {
        let voq = &mut self.queues[queue as usize];
        voq.listed = true;
        let at_ps = match (params, self.babbles) {
            (Some(params), false) => voq.next_ps(params, now_ps),
            _ => 0,
        };
        if at_ps > now_ps {
            self.delayed.push(Reverse((at_ps, queue)));
        } else {
            self.ready[usize::from(voq.priority)].push_back(queue);
            self.waiting |= 1 << voq.priority;
        }
    }

    /// Queues that have waited long enough may send.
    fn release_delayed(&mut self, now_ps: u64, params: Option<&QcnParams>) {
        while let Some(&Reverse((at_ps, queue))) = self.delayed.peek() {
            if at_ps > now_ps {
                return;
            }
            self.delayed.pop();
            self.list(queue, now_ps, params);
        }
    }

    /// The next queue of a priority that may send.
    fn next(&mut self, priority: usize) -> Option<u32> {
        let ready = &mut self.ready[priority];
        let queue = ready.pop_front();
        if ready.is_empty() {
            self.waiting &= !(1 << priority);
        }
        queue
    }
}

impl Voq {
    /// When the limiter lets the next frame go, or has to be looked at again.
    fn next_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        let Some(limiter) = &mut self.limiter else {
            return 0;
        };
        while limiter.next_timer_ps() <= now_ps {
            limiter.timer(params, now_ps);
        }
        if limiter.is_done() {
            self.limiter = None;
            return 0;
        }
        let bits = u128::from(self.last_bytes) * 8 * u128::from(PS_PER_S);
        let gap_ps = (bits / u128::from(limiter.rate_bps().max(1))) as u64;
        match self.last_ps.saturating_add(gap_ps) {
            at_ps if at_ps <= now_ps => 0,
            at_ps => at_ps.min(limiter.next_timer_ps()),
        }
    }
}

impl Cee {
    /// Whether a host's adapter has room for so many bytes of a priority. If not, [`Effect::Room`] tells when to ask
    /// again.
    pub fn has_room(&mut self, host: u16, priority: u8, bytes: u32) -> bool {
        let adapter = &mut self.adapters[usize::from(host)];
        let reserved = adapter.reserved_bytes[usize::from(priority)];
        let fits = reserved + u64::from(bytes) <= self.config.adapter_bytes;
        adapter.wanted |= !fits;
        fits
    }

    /// A frame is on its way to its adapter, which keeps room for it.
    pub fn reserve<F: CeeFrame>(&mut self, pool: &Pool<F>, handle: Handle, departure: Departure) {
        let adapter = &mut self.adapters[usize::from(departure.source)];
        let reserved = &mut adapter.reserved_bytes[usize::from(departure.priority)];
        *reserved += u64::from(pool[handle].bytes());
        let tag = Tag {
            source: departure.source,
            destination: departure.destination,
            priority: departure.priority,
            sender: departure.sender,
            ..Tag::default()
        };
        self.tag(handle, tag);
    }

    /// A frame for which there is room is at its adapter.
    pub fn submit<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle, now_ps: u64) {
        let tag = &mut self.tags[handle as usize];
        let adapter = &mut self.adapters[usize::from(tag.source)];
        let bytes = u64::from(pool[handle].bytes());
        if self.ports[adapter.port as usize].down {
            let host = tag.source;
            adapter.reserved_bytes[usize::from(tag.priority)] -= bytes;
            return self.lose_unsent(host, handle);
        }
        let number = adapter.queue(tag.destination, tag.priority);
        let voq = &mut adapter.queues[number as usize];
        tag.number = voq.number;
        voq.number = voq.number.wrapping_add(1);
        let label = Label {
            ingress: adapter.port,
            source: tag.source,
            priority: tag.priority,
            buffered: false,
            control: false,
        };
        label.put(pool, handle);
        voq.frames.push(pool, handle);
        adapter.queued_bytes += bytes;
        self.ports[adapter.port as usize].accept(bytes as u32);
        if !voq.listed {
            let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
            adapter.list(number, now_ps, params);
        }
        let port = adapter.port;
        self.kick(pool, port, now_ps);
        self.settle(pool, now_ps);
    }

    /// An adapter sends if it can.
    pub(super) fn kick_adapter<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        let Place::Host(host) = self.specs[port as usize].near else {
            return;
        };
        let state = &self.ports[port as usize];
        if state.down {
            return;
        }
        let adapter = &mut self.adapters[usize::from(host)];
        let open = if adapter.babbles {
            u8::MAX
        } else {
            state.open()
        };
        let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
        adapter.release_delayed(now_ps, params);
        let eligible = adapter.waiting & open;
        if eligible == 0 {
            return self.arm_delayed(port, host);
        }
        if !state.is_idle(now_ps) {
            return self.arm(port, state.free_ps);
        }
        let head_bytes = |priority: usize| {
            let queue = adapter.ready[priority].front();
            queue.map_or(0, |&queue| {
                pool[adapter.queues[queue as usize].frames.head].bytes()
            })
        };
        let chosen = self.selections[port as usize].choose(eligible, head_bytes);
        if let Some(priority) = chosen {
            self.depart(pool, port, host, priority, now_ps);
        }
    }

    /// The next queue of a priority sends a frame.
    fn depart<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        host: u16,
        priority: usize,
        now_ps: u64,
    ) {
        let adapter = &mut self.adapters[usize::from(host)];
        let Some(queue) = adapter.next(priority) else {
            return;
        };
        let params = self.config.qcn.as_ref().map(|qcn| &qcn.params);
        let voq = &mut adapter.queues[queue as usize];
        voq.listed = false;
        // A notification may have come since it was found that it may send.
        if let (Some(params), false) = (params, adapter.babbles) {
            if voq.next_ps(params, now_ps) > now_ps {
                adapter.list(queue, now_ps, Some(params));
                return self.kicks.push(port);
            }
        }
        let Some(handle) = voq.frames.pop(pool) else {
            return;
        };
        let bytes = pool[handle].bytes();
        (voq.last_ps, voq.last_bytes) = (now_ps, bytes);
        if let (Some(params), Some(limiter)) = (params, &mut voq.limiter) {
            limiter.sent(params, bytes);
        }
        if voq.frames.head != NIL {
            adapter.list(queue, now_ps, params);
        }
        adapter.queued_bytes -= u64::from(bytes);
        adapter.reserved_bytes[priority] -= u64::from(bytes);
        let wanted = std::mem::take(&mut adapter.wanted);
        self.start(pool, port, handle, now_ps);
        self.effects.push(Effect::Left(host, handle));
        if wanted {
            self.effects.push(Effect::Room(host));
        }
        let state = &self.ports[port as usize];
        let (free_ps, open) = (state.free_ps, state.open());
        let adapter = &self.adapters[usize::from(host)];
        let open = if adapter.babbles { u8::MAX } else { open };
        if adapter.waiting & open != 0 {
            self.arm(port, free_ps);
        } else {
            self.arm_delayed(port, host);
        }
    }

    /// An adapter is asked again when a rate allows the next frame.
    fn arm_delayed(&mut self, port: PortId, host: u16) {
        let next = self.adapters[usize::from(host)].delayed.peek();
        if let Some(&Reverse((at_ps, _))) = next {
            let free_ps = self.ports[port as usize].free_ps;
            self.arm(port, at_ps.max(free_ps));
        }
    }

    /// A notification has come to a host's adapter: what it sends to that destination becomes slower.
    pub fn notified<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        host: u16,
        (destination, priority): (u16, u8),
        fb: u8,
        now_ps: u64,
    ) {
        self.absorbed += 1;
        let Some(qcn) = &self.config.qcn else { return };
        let adapter = &mut self.adapters[usize::from(host)];
        let number = adapter.queue(destination, priority);
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

    /// Rates of a host's limiters in bits per second, by destination and priority.
    pub fn limits(&self, host: u16) -> impl Iterator<Item = (u16, u8, u64)> {
        let queues = &self.adapters[usize::from(host)].queues;
        queues.iter().filter_map(|voq| {
            let limiter = voq.limiter.as_ref()?;
            Some((voq.destination, voq.priority, limiter.rate_bps()))
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
        let adapter = &mut self.adapters[usize::from(host)];
        adapter.babbles = babbles;
        self.kicks.push(adapter.port);
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
        adapter.ready.iter_mut().for_each(VecDeque::clear);
        adapter.waiting = 0;
        adapter.delayed.clear();
        adapter.queued_bytes = 0;
        for &handle in &lost {
            let priority = self.tags[handle as usize].priority;
            adapter.reserved_bytes[usize::from(priority)] -= u64::from(pool[handle].bytes());
        }
        for handle in lost {
            self.lose_unsent(host, handle);
        }
    }

    /// A frame is lost before it has left its adapter, which has room again: its sender hears of both.
    fn lose_unsent(&mut self, host: u16, handle: Handle) {
        let adapter = &mut self.adapters[usize::from(host)];
        let wanted = std::mem::take(&mut adapter.wanted);
        self.stats[adapter.port as usize].drops[Drop::Down as usize] += 1;
        self.effects.push(Effect::Lost(host, handle));
        if wanted {
            self.effects.push(Effect::Room(host));
        }
    }

    /// Frames and bytes that an adapter holds, counted one by one.
    pub(super) fn count_adapter<F: CeeFrame>(&self, pool: &Pool<F>, host: usize) -> (u64, u64) {
        let queues = &self.adapters[host].queues;
        let frames = queues.iter().map(|voq| pool.count(voq.frames.head)).sum();
        let bytes = queues.iter().map(|voq| u64::from(voq.frames.bytes)).sum();
        (frames, bytes)
    }
}
