//! The adapters of hosts. An adapter has a queue for each destination, priority and path, and a
//! rate limiter for each queue that was notified of congestion.

use std::{cmp::Reverse, collections::BinaryHeap};

use rustc_hash::FxHashMap;

use sluicegate_core::number::narrow;

use super::{
    CeeConfig, CeeFrame, Label, PRIORITIES, PortSpec, QcnParams, ReactionPoint,
    paths::{Pace, Paths, SourceRouting},
    port::{Fifo, NEVER, Waiting},
};
use crate::{
    graph::{HostId, Node, PortId},
    pool::{Handle, Pool},
};

/// No queue yet.
const NONE: u32 = u32::MAX;

/// Of a number in [`Adapter::delayed`]: the timer of the queue's paths is due, not its next frame.
const PATH_TIMER: u32 = 1 << 31;

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

/// The adapter of a host.
pub(super) struct Adapter {
    /// [`PortId::NONE`] if the host has no link.
    port: PortId,
    /// Queues, in the order in which they were made.
    queues: Vec<Voq>,
    /// Numbers of queues.
    numbers: FxHashMap<QueueKey, u32>,
    /// By priority: the queues that may send, which take turns.
    ready: [Ring; PRIORITIES],
    /// Queues that wait for their rate limiter, by time; and timers of paths ([`PATH_TIMER`]).
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    room: Room,
    /// Bit p: the host's switch waits for room in priority p.
    wanted: u8,
    /// The adapter ignores pauses and rates.
    babbles: bool,
    /// Departures are reported ([`super::Cee::count_departures`]).
    counted: bool,
    seed: u64,
}

/// The room that an adapter's frames take. Each queued frame has reserved its bytes before.
#[derive(Default)]
pub(super) struct Room {
    /// Bytes of each priority for which room is taken, those on their way down the stack included.
    reserved_bytes: [u64; PRIORITIES],
    queued_bytes: u64,
}

impl Room {
    /// A frame is on its way to the adapter.
    #[inline(always)]
    fn reserve(&mut self, priority: u8, bytes: u32) {
        self.reserved_bytes[usize::from(priority)] += u64::from(bytes);
    }

    /// Whether no frame is queued.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.queued_bytes == 0
    }

    /// A frame that has reserved its bytes is queued.
    #[inline(always)]
    pub fn join(&mut self, bytes: u32) {
        self.queued_bytes += u64::from(bytes);
        debug_assert!(self.queued_bytes <= self.reserved_bytes.iter().sum::<u64>());
    }

    /// A frame that was not queued leaves or is lost.
    #[inline(always)]
    pub fn give_back(&mut self, priority: usize, bytes: u32) {
        self.reserved_bytes[priority] -= u64::from(bytes);
    }

    /// A frame that was queued leaves.
    #[inline(always)]
    fn leave(&mut self, priority: usize, bytes: u32) {
        self.queued_bytes -= u64::from(bytes);
        self.give_back(priority, bytes);
    }
}

/// A ring of queues: each one has the number of the next.
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
pub(super) struct Voq {
    frames: Fifo,
    /// The next queue in its [`Ring`].
    next: u32,
    limits: Option<Box<Limits>>,
    /// When the first bit of the last frame left, and the length of that frame.
    last: Pace,
    /// The number of the next frame.
    number: u32,
    key: QueueKey,
    /// The queue is in `ready` or in `delayed`.
    listed: bool,
}

const _: () = assert!(size_of::<Voq>() <= 64);

/// What limits a queue.
enum Limits {
    /// Its rate limiter.
    Rate(ReactionPoint),
    /// The paths of a source that has been notified. They have rate limiters of their own.
    Paths(Box<Paths>),
}

fn adapters(specs: &[PortSpec], hosts: usize, seed: u64) -> Vec<Adapter> {
    let mut adapters: Vec<Adapter> = (0..hosts)
        .map(|host| Adapter {
            port: PortId::NONE,
            queues: Vec::new(),
            numbers: FxHashMap::default(),
            ready: [EMPTY; PRIORITIES],
            delayed: BinaryHeap::new(),
            room: Room::default(),
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

/// The tags of frames, by handle.
#[derive(Default)]
pub(super) struct Tags {
    tags: Vec<Tag>,
    are_kept: bool,
}

impl Tags {
    /// Whether tags are kept.
    #[inline(always)]
    pub fn are_kept(&self) -> bool {
        self.are_kept
    }

    /// Numbers a frame that has a tag.
    #[inline]
    pub fn number(&mut self, handle: Handle, number: u32) {
        self.tags[handle as usize].number = number;
    }

    /// Stores the tag of a frame.
    fn set(&mut self, handle: Handle, tag: Tag) {
        let at = handle as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, Tag::default());
        }
        self.tags[at] = tag;
    }
}

/// The adapters of all hosts.
pub(super) struct Adapters {
    adapters: Vec<Adapter>,
    tags: Tags,
    /// The constants of rate limiters; `None` without QCN.
    params: Option<QcnParams>,
    /// Room of each priority.
    room_bytes: u64,
    /// Notifications taken so far.
    taken: u64,
}

impl Adapters {
    /// Idle adapters. All random choices follow from `seed`.
    pub fn new(config: &CeeConfig, specs: &[PortSpec], hosts: usize, seed: u64) -> Self {
        Self {
            adapters: adapters(specs, hosts, seed),
            tags: Tags::default(),
            params: config.qcn.map(|qcn| qcn.params),
            room_bytes: config.adapter_bytes,
            taken: 0,
        }
    }

    /// The number of hosts.
    #[cfg(test)]
    pub fn hosts(&self) -> usize {
        self.adapters.len()
    }

    /// The adapter of a host.
    #[inline(always)]
    pub fn of(&self, host: HostId) -> &Adapter {
        &self.adapters[host.index()]
    }

    /// Switches have new routes: `values` gives the paths of a queue of the adapter at a port.
    pub fn reroute(&mut self, values: impl Fn(PortId, QueueKey) -> Vec<u32>) {
        for adapter in &mut self.adapters {
            for voq in &mut adapter.queues {
                if let Some(Limits::Paths(paths)) = voq.limits.as_deref_mut() {
                    paths.reroute(&values(adapter.port, voq.key));
                }
            }
        }
    }

    /// See [`Adapters::of`].
    #[inline(always)]
    pub fn of_mut(&mut self, host: HostId) -> &mut Adapter {
        &mut self.adapters[host.index()]
    }

    /// The adapter of a host, the tags of frames, and the constants of rate limiters.
    #[inline(always)]
    pub fn parts(&mut self, host: HostId) -> (&mut Adapter, &mut Tags, Option<&QcnParams>) {
        let adapter = &mut self.adapters[host.index()];
        (adapter, &mut self.tags, self.params.as_ref())
    }

    /// Prefetches the adapter of a host.
    #[inline]
    pub fn fetch(&self, host: HostId) {
        prefetch_index::prefetch_index(&self.adapters, host.index());
    }

    /// The port of a host's adapter, which has a link.
    #[inline]
    pub fn port(&self, host: HostId) -> PortId {
        self.of(host).port()
    }

    /// From now on the tags of frames are kept.
    pub fn keep_tags(&mut self) {
        self.tags.are_kept = true;
    }

    /// Whether they are.
    #[inline(always)]
    pub fn keeps_tags(&self) -> bool {
        self.tags.are_kept
    }

    /// Counts a notification that an adapter has taken.
    pub fn count_taken(&mut self) {
        self.taken += 1;
    }

    /// Notifications taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Rates of a host's limiters in bits per second, by queue.
    pub fn limits(&self, host: HostId, now_ps: u64) -> impl Iterator<Item = (QueueKey, u64)> {
        self.of(host).queues.iter().flat_map(move |voq| {
            let limiters = match voq.limits.as_deref() {
                None => Vec::new(),
                Some(Limits::Rate(limiter)) => vec![(voq.key.path, *limiter)],
                Some(Limits::Paths(paths)) => paths.limiters().collect(),
            };
            limiters.into_iter().filter_map(move |(path, mut limiter)| {
                // A limiter's timer advances only when its queue sends; here a copy is brought up
                // to date.
                limiter.timer(self.params.as_ref()?, now_ps);
                Some((QueueKey { path, ..voq.key }, limiter.rate_bps()))
            })
        })
    }

    /// The path values that a host uses in a queue, if the queue's source was notified and has not
    /// returned to the default path alone.
    #[cfg(test)]
    fn paths(&self, host: HostId, key: QueueKey) -> Option<Vec<u32>> {
        let adapter = self.of(host);
        let queue = *adapter.numbers.get(&key)?;
        match adapter.queues[queue as usize].limits.as_deref() {
            Some(Limits::Paths(paths)) => Some(paths.in_use().collect()),
            _ => None,
        }
    }

    /// The number of a frame's sender; 0 if tags are not kept.
    pub fn sender(&self, handle: Handle) -> u32 {
        self.known_tag(handle).sender
    }

    /// The tag of a frame.
    pub fn tag(&self, handle: Handle) -> Tag {
        self.tags.tags[handle as usize]
    }

    /// Gives the copy `to` of a frame the tag of the frame `from`.
    pub fn copied(&mut self, from: Handle, to: Handle) {
        if self.tags.are_kept {
            self.tags.set(to, self.tag(from));
        }
    }

    /// Whether a host's adapter has room for so many bytes of a priority, as far as is known.
    #[inline]
    pub fn fits(&self, (host, priority): (HostId, u8), bytes: u32) -> bool {
        let adapter = &self.adapters[host.index()];
        let reserved_bytes = adapter.room.reserved_bytes[usize::from(priority)];
        reserved_bytes + u64::from(bytes) <= self.room_bytes
    }

    /// Takes room for a frame.
    pub fn keep_room(&mut self, departure: Departure, bytes: u32) {
        let adapter = &mut self.adapters[departure.source.index()];
        adapter.room.reserve(departure.priority, bytes);
    }

    /// Stores the way of a frame in its tag.
    pub fn tag_departure(&mut self, handle: Handle, departure: Departure) {
        let tag = Tag {
            source: departure.source,
            queue: departure.queue,
            sender: departure.sender,
            ..Tag::default()
        };
        self.tags.set(handle, tag);
    }

    /// The tag of a frame; all 0 if tags are not kept, or for frames without one, as
    /// notifications.
    pub fn known_tag(&self, handle: Handle) -> Tag {
        let tag = self.tags.tags.get(handle as usize);
        tag.copied().unwrap_or_default()
    }

    /// Gives a frame of another part's adapter its number.
    pub fn tag_foreign(&mut self, handle: Handle, number: u32) {
        let tag = Tag {
            number,
            ..Tag::default()
        };
        self.tags.set(handle, tag);
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
        let frames = queues
            .clone()
            .map(|voq| pool.count(voq.frames.head()))
            .sum();
        let bytes = queues.map(|voq| pool.bytes(voq.frames.head())).sum();
        (frames, bytes)
    }

    fn audit<F: CeeFrame>(
        &self,
        pool: &Pool<F>,
        in_stack: u64,
        room_bytes: u64,
    ) -> Result<(), String> {
        let (_, bytes) = self.count(pool);
        let Room {
            reserved_bytes,
            queued_bytes,
        } = self.room;
        let counted: u64 = reserved_bytes.iter().sum();
        if bytes != queued_bytes || bytes + in_stack != counted {
            return Err(format!(
                "holds {bytes} bytes and {in_stack} are on their way to it, but it counts {queued_bytes} and {counted}"
            ));
        }
        let most = reserved_bytes.iter().max();
        if let Some(most) = most.filter(|&&most| most > room_bytes) {
            return Err(format!(
                "holds {most} bytes of a priority, of at most {room_bytes}"
            ));
        }
        for voq in &self.queues {
            if let Some(Limits::Paths(paths)) = voq.limits.as_deref() {
                paths.audit()?;
            }
        }
        let forgotten = |voq: &&Voq| voq.frames.is_empty() == voq.listed;
        match self.queues.iter().find(forgotten) {
            None => Ok(()),
            Some(voq) => Err(format!(
                "does not know whether frames to host {} wait in priority {}",
                voq.key.destination.0, voq.key.priority
            )),
        }
    }

    /// The port. Only for a host with a link.
    #[inline(always)]
    pub fn port(&self) -> PortId {
        debug_assert!(self.port != PortId::NONE, "the host has a link");
        self.port
    }

    /// The port, if the host has a link.
    pub fn link(&self) -> Option<PortId> {
        (self.port != PortId::NONE).then_some(self.port)
    }

    /// Bytes of the frames in its queues.
    pub fn queued_bytes(&self) -> u64 {
        self.room.queued_bytes
    }

    /// A sender waits for room in a priority.
    pub fn want(&mut self, priority: u8) {
        self.wanted |= 1 << priority;
    }

    /// A priority has more room: whether a sender has waited for it, which it does no more.
    pub fn ends_wait(&mut self, priority: usize) -> bool {
        let before = self.wanted;
        self.wanted &= !(1 << priority);
        before != self.wanted
    }

    /// From now on departures are reported.
    pub fn count_departures(&mut self) {
        self.counted = true;
    }

    /// Whether departures are reported.
    pub fn is_counted(&self) -> bool {
        self.counted
    }

    /// Whether departures, or the room that they give back, are reported.
    #[inline(always)]
    pub fn is_watched(&self) -> bool {
        self.counted || self.wanted != 0
    }

    /// Whether the adapter ignores pauses and rates from now on.
    pub fn set_babbling(&mut self, babbles: bool) {
        self.babbles = babbles;
    }

    /// Whether the adapter has to act in time: a sender waits for room in it, its departures are
    /// counted, or it babbles.
    pub fn hurries(&self) -> bool {
        self.wanted != 0 || self.counted || self.babbles
    }

    /// A queue, and the room that the adapter's frames take.
    #[inline(always)]
    pub fn queue_and_room(&mut self, queue: u32) -> (&mut Voq, &mut Room) {
        (&mut self.queues[queue as usize], &mut self.room)
    }

    /// The next queue of a priority, of which one may send.
    #[inline(always)]
    pub fn first_mut(&mut self, priority: usize) -> &mut Voq {
        let queue = self.ready[priority].first;
        &mut self.queues[queue as usize]
    }

    /// The length of the next frame of a priority in which a queue may send.
    #[inline(always)]
    pub fn head_bytes(&self, priority: usize) -> u32 {
        let queue = self.ready[priority].first;
        self.queues[queue as usize].frames.head_bytes()
    }

    /// A frame that was queued leaves.
    #[inline(always)]
    pub fn leave(&mut self, priority: usize, bytes: u32) {
        self.room.leave(priority, bytes);
    }

    /// The link has failed: takes all frames out of the queues.
    pub fn empty<F: CeeFrame>(&mut self, pool: &Pool<F>, waiting: &mut Waiting) -> Vec<Handle> {
        let mut lost = Vec::new();
        for voq in &mut self.queues {
            while let Some(handle) = voq.frames.pop(pool) {
                lost.push(handle);
            }
            voq.listed = false;
            // Their timer is among what is cleared below.
            voq.forget_paths();
        }
        self.ready = [EMPTY; PRIORITIES];
        waiting.clear();
        self.delayed.clear();
        for &handle in &lost {
            let priority = Label::of(pool, handle).priority;
            self.room.leave(priority.into(), pool[handle].bytes());
        }
        debug_assert!(self.room.is_empty(), "all that was queued is lost");
        lost
    }

    /// A notification lowers the rate of a queue.
    pub fn notified(
        &mut self,
        params: &QcnParams,
        (key, fb): (QueueKey, u8),
        line_bps: u64,
        now_ps: u64,
    ) {
        let number = self.queue(key);
        let seed = self.seed ^ u64::from(number) << 32;
        let limits = self.queues[number as usize].limits.get_or_insert_with(|| {
            let limiter = ReactionPoint::new(params, line_bps, now_ps, seed);
            Box::new(Limits::Rate(limiter))
        });
        if let Limits::Rate(limiter) = &mut **limits {
            limiter.notified(params, fb, now_ps);
        }
    }

    /// A notification tells a source of congestion on the path `key.path`. `values` gives the paths
    /// to its destination ([`crate::Routes::path_values_to`]).
    pub fn notified_of_path(
        &mut self,
        waiting: &mut Waiting,
        (routing, params): (&SourceRouting, &QcnParams),
        (key, fb): (QueueKey, u8),
        line_bps: u64,
        now_ps: u64,
        values: impl FnOnce() -> Vec<u32>,
    ) {
        let number = self.queue(QueueKey { path: 0, ..key });
        let seed = self.seed ^ u64::from(number) << 32;
        let voq = &mut self.queues[number as usize];
        let limits = voq.limits.get_or_insert_with(|| {
            let paths = Paths::new(routing, values(), (line_bps, seed), now_ps);
            Box::new(Limits::Paths(Box::new(paths)))
        });
        let Limits::Paths(paths) = &mut **limits else {
            return;
        };
        let is_more = paths.notified(routing, params, (key.path, fb), now_ps);
        if let Some(at_ps) = paths.arm() {
            self.delayed.push(Reverse((at_ps, number | PATH_TIMER)));
        }
        if is_more {
            self.wake(waiting, number, now_ps, params);
        }
    }

    /// A queue that waits for its paths' limiters is listed anew: a path that was added may take
    /// the next frame earlier.
    fn wake(&mut self, waiting: &mut Waiting, queue: u32, now_ps: u64, params: &QcnParams) {
        let before = self.delayed.len();
        self.delayed.retain(|&Reverse((_, number))| number != queue);
        if self.delayed.len() < before {
            self.list(waiting, queue, now_ps, Some(params));
        }
    }

    /// A timer of a queue's paths that was set for `at_ps` is due.
    fn path_timer(&mut self, queue: u32, at_ps: u64, params: Option<&QcnParams>) {
        let voq = &mut self.queues[queue as usize];
        let (Some(Limits::Paths(paths)), Some(params)) = (voq.limits.as_deref_mut(), params) else {
            return;
        };
        paths.timer(params, at_ps);
        if paths.is_done() {
            voq.limits = None;
        } else if let Some(at_ps) = paths.arm() {
            self.delayed.push(Reverse((at_ps, queue | PATH_TIMER)));
        }
    }

    /// The number of a queue. The queue is made at the first call for its key.
    pub fn queue(&mut self, key: QueueKey) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.queues.push(Voq::new(key));
            narrow::<u32>(self.queues.len()) - 1
        })
    }

    /// Appends a queue to the ring of the queues of its priority that may send. `waiting`, here and
    /// below, is the port's; bit p: `ready[p]` has a queue.
    fn push_ready(&mut self, waiting: &mut Waiting, queue: u32) {
        let voq = &mut self.queues[queue as usize];
        voq.next = NONE;
        let priority = usize::from(voq.key.priority);
        let ring = &mut self.ready[priority];
        let before = std::mem::replace(&mut ring.last, queue);
        match before {
            NONE => ring.first = queue,
            before => self.queues[before as usize].next = queue,
        }
        waiting.add(priority);
    }

    /// Adds a queue with frames to the queues that may send, or to those that wait for their
    /// limiter.
    pub fn list(
        &mut self,
        waiting: &mut Waiting,
        queue: u32,
        now_ps: u64,
        params: Option<&QcnParams>,
    ) {
        let params = self.obeyed(params);
        let voq = &mut self.queues[queue as usize];
        voq.listed = true;
        let at_ps = voq.next_ps(params, now_ps);
        if at_ps > now_ps {
            self.delayed.push(Reverse((at_ps, queue)));
        } else {
            self.push_ready(waiting, queue);
        }
    }

    /// Moves queues whose limiter lets the next frame go to those that may send.
    #[inline(never)]
    pub fn release_delayed(
        &mut self,
        waiting: &mut Waiting,
        now_ps: u64,
        params: Option<&QcnParams>,
    ) {
        while self.is_due(now_ps) {
            match self.delayed.pop() {
                Some(Reverse((at_ps, queue))) if queue & PATH_TIMER != 0 => {
                    self.path_timer(queue & !PATH_TIMER, at_ps, params);
                }
                Some(Reverse((_, queue))) => self.list(waiting, queue, now_ps, params),
                None => {}
            }
        }
    }

    /// The constants of rate limiters, unless the adapter ignores rates.
    #[inline(always)]
    pub fn obeyed<'a>(&self, params: Option<&'a QcnParams>) -> Option<&'a QcnParams> {
        if self.babbles { None } else { params }
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
    pub fn next(&mut self, waiting: &mut Waiting, priority: usize) -> Option<u32> {
        let ring = &mut self.ready[priority];
        let queue = ring.first;
        if queue == NONE {
            return None;
        }
        let voq = &mut self.queues[queue as usize];
        voq.listed = false;
        ring.first = voq.next;
        if ring.first == NONE {
            ring.last = NONE;
            waiting.remove(priority);
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
            limits: None,
            last: Pace::default(),
            number: 0,
            key,
            listed: false,
        }
    }

    /// The priority of its frames.
    #[inline(always)]
    pub fn priority(&self) -> u8 {
        self.key.priority
    }

    /// Whether it has a rate limiter, or several paths.
    #[inline(always)]
    pub fn is_limited(&self) -> bool {
        self.limits.is_some()
    }

    /// The link has failed: the source knows nothing of its paths any more.
    fn forget_paths(&mut self) {
        if let Some(Limits::Paths(_)) = self.limits.as_deref() {
            self.limits = None;
        }
    }

    /// Whether it is among the queues that may send, or those that wait for their limiter.
    #[inline(always)]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether no frame waits in it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// A frame joins the queue.
    #[inline(always)]
    pub fn push<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle) {
        self.frames.push(pool, handle);
    }

    /// Takes the first frame, which leaves now. Returns its length, too.
    #[inline(always)]
    pub fn depart<F: CeeFrame>(&mut self, pool: &Pool<F>, now_ps: u64) -> Option<(Handle, u32)> {
        let bytes = self.frames.head_bytes();
        let handle = self.frames.pop(pool)?;
        self.passed(bytes, now_ps);
        Some((handle, bytes))
    }

    /// The first bit of a frame of the queue leaves now.
    #[inline(always)]
    pub fn passed(&mut self, bytes: u32, now_ps: u64) {
        self.last = Pace::of(bytes, now_ps);
    }

    /// What limits the queue counts a frame that leaves. Returns the frame's path value, if the
    /// source has several paths.
    #[inline]
    pub fn limit(&mut self, params: &QcnParams, bytes: u32, now_ps: u64) -> Option<u32> {
        match self.limits.as_deref_mut()? {
            Limits::Rate(limiter) => {
                limiter.sent(params, bytes);
                None
            }
            Limits::Paths(paths) => Some(paths.take(params, bytes, now_ps)),
        }
    }

    /// The number for a frame that joins the queue.
    pub fn next_number(&mut self) -> u32 {
        let next = self.number.wrapping_add(1);
        std::mem::replace(&mut self.number, next)
    }

    /// When the limiter lets the next frame go, or has to be looked at again; 0 if nothing limits
    /// the queue.
    #[inline]
    pub fn next_ps(&mut self, params: Option<&QcnParams>, now_ps: u64) -> u64 {
        match (params, &self.limits) {
            (Some(params), Some(_)) => self.limited_ps(params, now_ps),
            _ => 0,
        }
    }

    fn limited_ps(&mut self, params: &QcnParams, now_ps: u64) -> u64 {
        let next_ps = match self.limits.as_deref_mut() {
            None => return 0,
            Some(Limits::Rate(limiter)) => self.last.next_ps(limiter, params, now_ps),
            Some(Limits::Paths(paths)) => return paths.next_ps(params, now_ps),
        };
        if next_ps.is_none() {
            self.limits = None;
        }
        next_ps.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
