//! The adapters of hosts. An adapter has a queue for each destination, priority and path, and a
//! rate limiter for each queue that was notified of congestion.

use std::{cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;

use super::{
    CeeConfig, CeeFrame, PRIORITIES, PortSpec, QcnParams, ReactionPoint,
    port::{Fifo, NEVER},
};
use crate::{
    graph::{HostId, Node, PortId},
    pool::{Handle, NIL, Pool},
    port::PS_PER_S,
};

/// No queue yet.
const NONE: u32 = u32::MAX;

/// The way of a frame from its host to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The sending host.
    pub source: HostId,
    /// The number of its adapter's queue: see [`super::Cee::queue_to`].
    pub queue: u32,
    /// 0..=7.
    pub priority: u8,
    /// The owner's number for the sender.
    pub sender: u32,
}

/// The key of an adapter's queue. Each queue has a rate limiter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// The receiving host.
    pub destination: HostId,
    /// 0..=7.
    pub priority: u8,
    /// The path value of its frames; 0 where one queue serves all paths.
    pub path: u32,
}

pub(super) struct Adapter {
    pub port: PortId,
    /// Queues, in the order in which they were made.
    pub queues: Vec<Voq>,
    /// Numbers of queues.
    numbers: FxHashMap<QueueKey, u32>,
    /// By priority: the queues that may send, which take turns.
    pub ready: [Ring; PRIORITIES],
    /// Queues that wait for their rate limiter, by time.
    pub delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bytes of each priority for which room is taken, those on their way down the stack included.
    pub reserved_bytes: [u64; PRIORITIES],
    pub queued_bytes: u64,
    /// Bit p: the host's switch waits for room in priority p.
    pub wanted: u8,
    /// The adapter ignores pauses and rates.
    pub babbles: bool,
    /// Departures are reported ([`super::Cee::count_departures`]).
    pub counted: bool,
    pub seed: u64,
}

/// A ring of queues: each one has the number of the next.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub first: u32,
    last: u32,
}

pub(super) const EMPTY: Ring = Ring {
    first: NONE,
    last: NONE,
};

/// A virtual output queue.
pub(super) struct Voq {
    pub frames: Fifo,
    /// The next queue in its [`Ring`].
    next: u32,
    pub limiter: Option<Box<ReactionPoint>>,
    /// When the first bit of the last frame left, and the length of that frame.
    pub last_ps: u64,
    pub last_bytes: u32,
    /// The number of the next frame.
    number: u32,
    pub key: QueueKey,
    /// The queue is in `ready` or in `delayed`.
    pub listed: bool,
}

const _: () = assert!(size_of::<Voq>() <= 64);

fn adapters(specs: &[PortSpec], hosts: usize, seed: u64) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = (0..hosts)
        .map(|host| Adapter {
            port: PortId::NONE,
            queues: Vec::new(),
            numbers: FxHashMap::default(),
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
    for (port, spec) in PortId::enumerate(specs) {
        if let Node::Host(host) = spec.near {
            adapters[host.index()].port = port;
        }
    }
    adapters
}

/// Fields of a frame beside its [`super::Label`]. They are kept only where frames are numbered,
/// departures are counted, or a host's stack takes time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    /// Its number among the frames of its adapter's queue.
    pub number: u32,
    /// The owner's number for its sender.
    pub sender: u32,
    /// The number of its queue in its source's adapter.
    pub queue: u32,
    pub source: HostId,
}

/// The adapters of all hosts.
pub(super) struct Adapters {
    pub adapters: Vec<Adapter>,
    /// The tags of frames, by handle.
    pub tags: Vec<Tag>,
    /// Tags are kept.
    pub numbers: bool,
    /// The constants of rate limiters; `None` without QCN.
    pub params: Option<QcnParams>,
    /// Room of each priority.
    room_bytes: u64,
    /// Notifications taken so far.
    pub taken: u64,
}

impl Adapters {
    /// Idle adapters. All random choices follow from `seed`.
    pub fn new(config: &CeeConfig, specs: &[PortSpec], hosts: usize, seed: u64) -> Self {
        Self {
            adapters: adapters(specs, hosts, seed),
            tags: Vec::new(),
            numbers: false,
            params: config.qcn.map(|qcn| qcn.params),
            room_bytes: config.adapter_bytes,
            taken: 0,
        }
    }

    /// The port of a host's adapter; [`PortId::NONE`] if it has no link.
    #[inline]
    pub fn port(&self, host: HostId) -> PortId {
        self.adapters[host.index()].port
    }

    /// The number of a frame's sender; 0 if tags are not kept.
    pub fn sender(&self, handle: Handle) -> u32 {
        let tag = self.tags.get(handle as usize);
        tag.map_or(0, |tag| tag.sender)
    }

    /// The tag of a frame.
    pub fn tag(&self, handle: Handle) -> Tag {
        self.tags[handle as usize]
    }

    /// Stores the tag of a frame.
    fn set_tag(&mut self, handle: Handle, tag: Tag) {
        let at = handle as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, Tag::default());
        }
        self.tags[at] = tag;
    }

    /// Gives the copy `to` of a frame the tag of the frame `from`.
    pub fn copied(&mut self, from: Handle, to: Handle) {
        if self.numbers {
            self.set_tag(to, self.tags[from as usize]);
        }
    }

    /// Whether a host's adapter has room for so many bytes of a priority, as far as is known.
    #[inline]
    pub fn fits(&self, (host, priority): (HostId, u8), bytes: u32) -> bool {
        let adapter = &self.adapters[host.index()];
        let reserved_bytes = adapter.reserved_bytes[usize::from(priority)];
        reserved_bytes + u64::from(bytes) <= self.room_bytes
    }

    /// Takes room for a frame.
    pub fn keep_room(&mut self, departure: Departure, bytes: u32) {
        let adapter = &mut self.adapters[departure.source.index()];
        adapter.reserved_bytes[usize::from(departure.priority)] += u64::from(bytes);
    }

    /// Stores the way of a frame in its tag.
    pub fn tag_departure(&mut self, handle: Handle, departure: Departure) {
        let tag = Tag {
            source: departure.source,
            queue: departure.queue,
            sender: departure.sender,
            ..Tag::default()
        };
        self.set_tag(handle, tag);
    }

    /// Frames in all adapters, counted one by one.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        let adapters = self.adapters.iter();
        adapters.map(|adapter| adapter.count(pool).0).sum()
    }

    /// Checks that each adapter counts the bytes that it holds, and holds no more than its room.
    /// `in_stacks` gives the bytes on their way down the stack to each adapter.
    pub fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stacks: impl Fn(HostId) -> u64,
    ) -> Result<(), String> {
        for (host, adapter) in HostId::enumerate(&self.adapters) {
            let in_stack = in_stacks(host);
            let audit = adapter.audit(pool, in_stack, self.room_bytes);
            audit.map_err(|what| format!("the adapter of host {} {what}", host.0))?;
        }
        Ok(())
    }
}

impl Adapter {
    /// Frames and bytes that it holds, counted one by one.
    fn count<F: CeeFrame>(&self, pool: &Pool<F>) -> (u64, u64) {
        let queues = self.queues.iter();
        let frames = queues.clone().map(|voq| pool.count(voq.frames.head)).sum();
        let bytes = queues.map(|voq| pool.bytes(voq.frames.head)).sum();
        (frames, bytes)
    }

    fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stack: u64,
        room_bytes: u64,
    ) -> Result<(), String> {
        let (_, bytes) = self.count(pool);
        let counted: u64 = self.reserved_bytes.iter().sum();
        if bytes != self.queued_bytes || bytes + in_stack != counted {
            return Err(format!(
                "holds {bytes} bytes and {in_stack} are on their way to it, but it counts {} and {counted}",
                self.queued_bytes
            ));
        }
        let most = self.reserved_bytes.iter().max();
        if let Some(most) = most.filter(|&&most| most > room_bytes) {
            return Err(format!(
                "holds {most} bytes of a priority, of at most {room_bytes}"
            ));
        }
        let forgotten = |voq: &&Voq| (voq.frames.head != NIL) != voq.listed;
        match self.queues.iter().find(forgotten) {
            None => Ok(()),
            Some(voq) => Err(format!(
                "does not know whether frames to host {} wait in priority {}",
                voq.key.destination.0, voq.key.priority
            )),
        }
    }

    /// The number of a queue. The queue is made at the first call for its key.
    pub fn queue(&mut self, key: QueueKey) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.queues.push(Voq::new(key));
            self.queues.len() as u32 - 1
        })
    }

    /// Appends a queue to the ring of the queues of its priority that may send. `waiting`, here and
    /// below, is the port's; bit p: `ready[p]` has a queue.
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

    /// Adds a queue with frames to the queues that may send, or to those that wait for their
    /// limiter.
    pub fn list(&mut self, waiting: &mut u8, queue: u32, now_ps: u64, params: Option<&QcnParams>) {
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

    /// Moves queues whose limiter lets the next frame go to those that may send.
    #[inline(never)]
    pub fn release_delayed(&mut self, waiting: &mut u8, now_ps: u64, params: Option<&QcnParams>) {
        while self.is_due(now_ps) {
            if let Some(Reverse((_, queue))) = self.delayed.pop() {
                self.list(waiting, queue, now_ps, params);
            }
        }
    }

    /// Whether a waiting queue's limiter lets the next frame go by now.
    #[inline]
    pub fn is_due(&self, now_ps: u64) -> bool {
        self.next_delayed_ps() <= now_ps
    }

    /// When the first waiting queue's limiter lets its frame go; [`NEVER`] if no queue waits.
    pub fn next_delayed_ps(&self) -> u64 {
        let next = self.delayed.peek();
        next.map_or(NEVER, |&Reverse((at_ps, _))| at_ps)
    }

    /// Takes the next queue of a priority that may send.
    pub fn next(&mut self, waiting: &mut u8, priority: usize) -> Option<u32> {
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
    pub fn rotate(&mut self, priority: usize) {
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

    /// The number for a frame that joins the queue.
    pub fn next_number(&mut self) -> u32 {
        let next = self.number.wrapping_add(1);
        std::mem::replace(&mut self.number, next)
    }

    /// When the limiter lets the next frame go, or has to be looked at again.
    #[inline]
    pub fn next_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
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
        // Exact for frames of up to 2 MB.
        let bit_ps = u64::from(self.last_bytes).saturating_mul(8 * PS_PER_S);
        let gap_ps = bit_ps / limiter.rate_bps().max(1);
        match self.last_ps.saturating_add(gap_ps) {
            at_ps if at_ps <= now_ps => 0,
            at_ps => at_ps.min(limiter.next_timer_ps()),
        }
    }
}

#[cfg(test)]
mod tests;
