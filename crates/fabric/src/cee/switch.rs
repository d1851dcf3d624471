//! A switch: what it takes into its buffer, what it drops, and whom it pauses.

use sluicegate_core::aqm::{Arrival, Arriving};

use super::{
    Buffer, Cee, CeeFrame, Effect, Label, Notification, PRIORITIES, Pause, Place, QueueKey,
    config::Span,
};
use crate::{
    graph::PortId,
    pool::{Handle, Pool},
    port::{Drop, PS_PER_NS},
    random::draw,
};

/// The shared memory of a switch, or how much its inputs may hold.
pub(super) struct Memory {
    /// Bytes that anybody may have.
    shared_bytes: u64,
    /// Bytes that somebody has, headroom not counted.
    used_bytes: u64,
}

/// Highest of the priorities: what notifications travel with.
const CONTROL_PRIORITY: u8 = 7;

pub(super) fn memories(cee: &Cee, switches: usize) -> Vec<Memory> {
    let mut memories: Vec<Memory> = (0..switches)
        .map(|_| Memory {
            shared_bytes: match cee.config.buffer {
                Buffer::Input { .. } => u64::MAX,
                Buffer::Shared { bytes, .. } => bytes,
            },
            used_bytes: 0,
        })
        .collect();
    for (port, spec) in cee.specs.iter().enumerate() {
        if let (Place::Switch(switch), Buffer::Shared { .. }) = (spec.far, cee.config.buffer) {
            let headroom = cee.headroom_bytes(port as PortId);
            let reserved = headroom * u64::from(cee.lossless.count_ones());
            let memory = &mut memories[switch as usize];
            memory.shared_bytes = memory.shared_bytes.saturating_sub(reserved);
        }
    }
    memories
}

/// The buffer of one input, and what its switch has said about it.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Input {
    /// By priority.
    pub bytes: [u32; PRIORITIES],
    /// Most of one priority so far.
    pub most_bytes: u32,
    /// Room above XOFF.
    pub headroom_bytes: u32,
    /// Room of a lossless priority in a buffer that inputs do not share.
    pub lossless_bytes: u32,
    /// A priority may hold so much, and nobody need hear of it: see [`Cee::set_quiet_bytes`].
    quiet_bytes: u32,
    /// Bit p: who sends there has been asked to pause priority p.
    pub sent: u8,
}

impl Cee {
    /// Room of each lossless priority above XOFF in the buffer at a port's far end.
    pub fn headroom_bytes(&self, port: PortId) -> u64 {
        self.inputs[port as usize].headroom_bytes.into()
    }

    pub(super) fn compute_headroom_bytes(&self, port: PortId) -> u64 {
        let Some(pfc) = &self.config.pfc else {
            return 0;
        };
        match (pfc.pause, self.config.buffer) {
            (Pause::Ideal, Buffer::Input { bytes }) => bytes.saturating_sub(pfc.xoff_bytes),
            (Pause::Ideal, Buffer::Shared { .. }) => self.needed_headroom_bytes(port, None),
            (
                Pause::Wire {
                    headroom_bytes: Some(bytes),
                    ..
                },
                _,
            ) => bytes,
            (Pause::Wire { response_ps, .. }, _) => {
                self.needed_headroom_bytes(port, Some(response_ps))
            }
        }
    }

    /// What may still come over a port after its far end has passed XOFF; `response_ps` is that of a pause on the
    /// wire.
    pub fn needed_headroom_bytes(&self, port: PortId, response_ps: Option<u64>) -> u64 {
        let (there, back) = (&self.specs[port as usize], &self.specs[port as usize ^ 1]);
        let span = Span {
            rate_bps: there.rate_bps,
            there_ps: there.propagation_ps + there.processing_ps,
            back_ps: if response_ps.is_some() {
                back.propagation_ps
            } else {
                0
            },
            frame_bytes: there.frame_bytes.max(back.frame_bytes),
        };
        span.headroom_bytes(self.is_cut(port), response_ps.unwrap_or(0))
    }

    /// A frame that has come by `from` leaves a switch by `to`, now or when its turn comes; or it is dropped.
    #[inline(always)]
    pub fn forward<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ports: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        if !self.pass_through(pool, ports[1], handle, now_ps) {
            self.queue(pool, ports, handle, now_ps);
        }
    }

    /// Most frames meet nobody at a port, where nothing is to be said of them: then they leave, and that is all. False if
    /// not, and nothing has changed.
    #[inline(always)]
    fn pass_through<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let may_pass = self.may_pass(pool, to, handle, now_ps);
        if may_pass {
            self.start_here(pool, to, handle, now_ps);
        }
        may_pass
    }

    /// Whether a frame meets nobody; then it is accepted.
    #[inline(always)]
    fn may_pass<F: CeeFrame>(
        &mut self,
        pool: &Pool<F>,
        to: PortId,
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let (bytes, label) = (pool[handle].bytes(), Label::of(pool, handle));
        let bit = 1u8 << label.priority;
        let state = &mut self.ports[to as usize];
        let is_free = state.waiting | state.shut & bit == 0 && state.is_idle(now_ps);
        if !is_free || !state.plain {
            return false;
        }
        if self.notified & bit != 0 && !label.control {
            let point = &mut self.points[to as usize].0[usize::from(label.priority)];
            if !point.skips(bytes) {
                return false;
            }
        }
        state.accept(bytes);
        true
    }

    #[inline(never)]
    fn queue<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        ports: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        self.catch_up(pool, ports[1], now_ps);
        let is_done =
            self.join(pool, ports, handle, now_ps) || self.follow(pool, ports[1], handle, now_ps);
        if !is_done {
            self.consider(pool, ports, handle, now_ps);
        }
    }

    /// What was before it has left meanwhile: then it leaves, as in [`Cee::pass_through`]. False if not, and nothing has
    /// changed.
    #[inline(always)]
    fn follow<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let may_leave = self.may_pass(pool, to, handle, now_ps);
        if may_leave {
            self.start(pool, to, handle, now_ps);
        }
        may_leave
    }

    /// Most of the others find a short queue behind a frame that is being sent, and an input that has held more before:
    /// then they join it, and that is all. False if not, and nothing has changed.
    #[inline(always)]
    fn join<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        [from, to]: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) -> bool {
        let (bytes, tag) = (pool[handle].bytes(), Label::of(pool, handle));
        let (priority, bit) = (usize::from(tag.priority), 1u8 << tag.priority);
        let state = &mut self.ports[to as usize];
        if !state.plain || state.is_idle(now_ps) || tag.control {
            return false;
        }
        let queue = &mut self.queues[to as usize].0[priority];
        let input = &mut self.inputs[from as usize];
        let held_bytes = input.bytes[priority] + bytes;
        let is_harmless =
            u64::from(queue.bytes) + u64::from(bytes) <= state.harmless_bytes(&self.classes);
        if !is_harmless || held_bytes > input.quiet_bytes {
            return false;
        }
        if self.notified & bit != 0 {
            let point = &mut self.points[to as usize].0[priority];
            if !point.skips(bytes) {
                return false;
            }
        }
        input.bytes[priority] = held_bytes;
        let tag = Label {
            ingress: from,
            buffered: true,
            ..tag
        };
        tag.put(pool, handle);
        state.accept(bytes);
        state.queued_bytes += bytes;
        state.waiting |= bit;
        queue.push(pool, handle);
        if state.has_eligible() {
            self.await_free(to);
        }
        self.settle(pool, now_ps);
        true
    }

    /// What a frame gives rise to that finds more than that.
    #[inline(never)]
    fn consider<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        [from, to]: [PortId; 2],
        handle: Handle,
        now_ps: u64,
    ) {
        let bytes = pool[handle].bytes();
        // Where it came from is kept only of a frame that takes room.
        let tag = Label {
            ingress: from,
            buffered: false,
            ..Label::of(pool, handle)
        };
        let bit = 1u8 << tag.priority;
        let state = &self.ports[to as usize];
        let goes_through = state.waiting & (bit | state.open()) == 0
            && state.open() & bit != 0
            && state.is_idle(now_ps)
            && !state.down;
        // What goes through takes no room, and finds no queue.
        if !goes_through || state.averages {
            if let Some(cause) = self.refuses(pool, to, handle, tag, now_ps) {
                return self.lose(pool, to, handle, cause);
            }
        }
        self.ports[to as usize].accept(bytes);
        if goes_through {
            self.start(pool, to, handle, now_ps);
        } else {
            self.enqueue(pool, to, handle, tag, now_ps);
        }
        if self.notified & bit != 0 && !tag.control {
            self.sample(pool, to, handle, tag, bytes);
        }
        self.settle(pool, now_ps);
    }

    /// Why a frame is dropped on arrival, if it is; else it is marked where that is due.
    #[inline]
    fn refuses<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) -> Option<Drop> {
        if self.ports[to as usize].down {
            return Some(Drop::Down);
        }
        let bytes = pool[handle].bytes();
        if self.has_no_room(to, tag, bytes).is_some() {
            self.catch_up_neighbours(pool, to, now_ps);
            if let Some(cause) = self.has_no_room(to, tag, bytes) {
                return Some(cause);
            }
        }
        let queued = &self.queues[to as usize].0[usize::from(tag.priority)];
        if u64::from(queued.bytes) + u64::from(bytes) <= self.harmless_bytes(to) {
            return None;
        }
        self.judge(pool, to, handle, tag, now_ps)
    }

    fn judge<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) -> Option<Drop> {
        let (at, priority) = (to as usize, usize::from(tag.priority));
        let aqm = &self.specs[at].aqm;
        let frame = &mut pool[handle];
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            backlog_bytes: self.queues[at].0[priority].bytes,
            bytes: frame.bytes(),
            ect: frame.is_ect(),
            random: match aqm.kind {
                1 => 0, // nothing is drawn
                _ => (draw(&mut self.random[at]) >> 32) as u32,
            },
        };
        match aqm.arrival(&mut self.reds[at * PRIORITIES + priority], arriving) {
            Arrival::Pass => None,
            Arrival::Mark => {
                frame.mark();
                self.stats[at].marks += 1;
                None
            }
            Arrival::Drop if aqm.kind == 1 => Some(Drop::NotEct),
            Arrival::Drop => Some(Drop::Red),
        }
    }

    /// Why the buffer has no room for a frame.
    #[inline]
    fn has_no_room(&self, to: PortId, tag: Label, bytes: u32) -> Option<Drop> {
        if tag.is_made_at(to) {
            return None;
        }
        let (from, priority) = (tag.ingress as usize, usize::from(tag.priority));
        let held = u64::from(self.inputs[from].bytes[priority]);
        let after = held + u64::from(bytes);
        let lossless = self.lossless & 1 << priority != 0;
        let over = match self.config.buffer {
            Buffer::Input { .. } if lossless => after > u64::from(self.inputs[from].lossless_bytes),
            Buffer::Input { bytes: limit } => after > limit,
            Buffer::Shared { .. } if lossless => {
                !self.fits_below_xoff(tag, bytes)
                    && u64::from(self.headroom_used[from][priority] + bytes)
                        > self.headroom_bytes(tag.ingress)
            }
            Buffer::Shared { alpha, .. } => {
                let free = self.free_bytes(to);
                let queue = u64::from(self.queues[to as usize].0[priority].bytes);
                u64::from(bytes) > free || queue as f64 >= alpha * free as f64
            }
        };
        over.then_some(if lossless {
            Drop::Headroom
        } else {
            Drop::Buffer
        })
    }

    /// Whether a lossless frame needs no headroom of a shared memory.
    fn fits_below_xoff(&self, tag: Label, bytes: u32) -> bool {
        let (from, priority) = (tag.ingress, usize::from(tag.priority));
        let held = u64::from(self.inputs[from as usize].bytes[priority]);
        let bytes = u64::from(bytes);
        let (xoff, _) = self.thresholds(from);
        held + bytes <= xoff && bytes <= self.free_bytes(from ^ 1)
    }

    /// How much of a lossless priority an input may hold, where inputs do not share.
    pub(super) fn lossless_bytes(&self, port: PortId) -> u64 {
        match (self.config.buffer, &self.config.pfc) {
            (Buffer::Input { .. }, Some(pfc)) if matches!(pfc.pause, Pause::Wire { .. }) => {
                pfc.xoff_bytes + self.headroom_bytes(port)
            }
            (Buffer::Input { bytes }, _) => bytes,
            (Buffer::Shared { .. }, _) => 0,
        }
    }

    /// How much of a switch's memory anybody may have.
    pub(super) fn shared_bytes(&self, switch: u32) -> u64 {
        self.memories[switch as usize].shared_bytes
    }

    /// What of a shared memory is free, at the switch that sends by `port`.
    fn free_bytes(&self, port: PortId) -> u64 {
        let Place::Switch(switch) = self.specs[port as usize].near else {
            return u64::MAX;
        };
        let memory = &self.memories[switch as usize];
        memory.shared_bytes.saturating_sub(memory.used_bytes)
    }

    /// A frame waits in its input's buffer and in its output's queue.
    fn enqueue<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) {
        let (priority, bytes) = (usize::from(tag.priority), pool[handle].bytes());
        self.queues[to as usize].0[priority].push(pool, handle);
        let state = &mut self.ports[to as usize];
        state.queued_bytes += bytes;
        state.waiting |= 1 << priority;
        if !tag.is_made_at(to) {
            self.hold(pool, to, handle, tag, now_ps);
        }
        // A frame that may not leave itself may make others punctual.
        let state = &self.ports[to as usize];
        if !state.has_eligible() {
            return;
        }
        if state.free_ps > now_ps {
            self.await_free(to);
        } else {
            self.kicks.push(to);
        }
    }

    /// A frame takes room in the buffer of its input.
    #[inline]
    fn hold<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        now_ps: u64,
    ) {
        let (priority, bytes) = (usize::from(tag.priority), pool[handle].bytes());
        let buffered = true;
        Label { buffered, ..tag }.put(pool, handle);
        self.use_memory(tag, bytes);
        let input = &mut self.inputs[tag.ingress as usize];
        input.bytes[priority] += bytes;
        if input.bytes[priority] > input.most_bytes {
            self.note_most(pool, to, tag, now_ps);
        }
        if self.lossless & 1 << priority != 0 {
            self.pause_if_full(pool, tag.ingress, priority, now_ps);
        }
    }

    /// Keeps the most that an input has held.
    #[cold]
    fn note_most<F: CeeFrame>(&mut self, pool: &mut Pool<F>, to: PortId, tag: Label, now_ps: u64) {
        self.catch_up_neighbours(pool, to, now_ps);
        let input = &mut self.inputs[tag.ingress as usize];
        let held = input.bytes[usize::from(tag.priority)];
        input.most_bytes = input.most_bytes.max(held);
        self.set_quiet_bytes(tag.ingress);
    }

    /// An input pauses nobody, refuses nothing and has held as much before, as long as no priority of it holds more than
    /// this. In a shared memory others matter, too.
    fn set_quiet_bytes(&mut self, ingress: PortId) {
        let limit_bytes = match self.config.buffer {
            Buffer::Input { bytes } => bytes.min(self.lossless_bytes(ingress)),
            Buffer::Shared { .. } => 0,
        };
        let (xoff_bytes, _) = self.thresholds(ingress);
        let input = &mut self.inputs[ingress as usize];
        let quiet_bytes = limit_bytes.min(xoff_bytes).min(input.most_bytes.into());
        input.quiet_bytes = quiet_bytes as u32;
    }

    /// All ports of the switch that sends by `port` catch up.
    pub(super) fn catch_up_neighbours<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) {
        if let Place::Switch(switch) = self.specs[port as usize].near {
            self.catch_up_switch(pool, switch, now_ps);
        }
    }

    /// The switch that an input shares memory with others of.
    #[inline]
    fn shares(&self, ingress: PortId) -> Option<u32> {
        let Buffer::Shared { .. } = self.config.buffer else {
            return None;
        };
        match self.specs[ingress as usize].far {
            Place::Switch(switch) => Some(switch),
            Place::Host(_) => None,
        }
    }

    /// A frame is about to join the buffer of its input: in a shared memory, the part that all share or headroom.
    fn use_memory(&mut self, tag: Label, bytes: u32) {
        let Some(switch) = self.shares(tag.ingress) else {
            return;
        };
        let lossless = self.lossless & 1 << tag.priority != 0;
        if lossless && !self.fits_below_xoff(tag, bytes) {
            self.headroom_used[tag.ingress as usize][usize::from(tag.priority)] += bytes;
        } else {
            self.memories[switch as usize].used_bytes += u64::from(bytes);
        }
    }

    /// It has left; headroom is the first to be free again.
    fn free_memory(&mut self, tag: Label, bytes: u32) {
        let Some(switch) = self.shares(tag.ingress) else {
            return;
        };
        let headroom = &mut self.headroom_used[tag.ingress as usize][usize::from(tag.priority)];
        let of_headroom = bytes.min(*headroom);
        *headroom -= of_headroom;
        self.memories[switch as usize].used_bytes -= u64::from(bytes - of_headroom);
    }

    /// A frame that leaves a switch leaves its input's buffer.
    #[inline]
    pub(super) fn release<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        handle: Handle,
        bytes: u32,
        now_ps: u64,
    ) {
        let tag = Label::of(pool, handle);
        if !tag.buffered {
            return;
        }
        let buffered = false;
        Label { buffered, ..tag }.put(pool, handle);
        let (ingress, priority) = (tag.ingress, usize::from(tag.priority));
        let input = &mut self.inputs[ingress as usize];
        input.bytes[priority] -= bytes;
        let is_paused = input.sent & 1 << priority != 0;
        if let Buffer::Shared { .. } = self.config.buffer {
            self.free_memory(tag, bytes);
        }
        if is_paused {
            self.resume_if_empty(pool, ingress, priority, now_ps);
        }
        if let Some(switch) = self.shares(ingress) {
            self.share_again(pool, switch, now_ps);
        }
    }

    /// A shared memory has room again: what lies in the headroom of paused inputs moves there, and who is empty enough
    /// by now goes on, since its own frames may be waiting for somebody else.
    fn share_again<F: CeeFrame>(&mut self, pool: &mut Pool<F>, switch: u32, now_ps: u64) {
        if self.pausing[switch as usize] == [0; PRIORITIES] {
            return;
        }
        for at in 0..self.outputs[switch as usize].len() {
            let input = self.outputs[switch as usize][at] ^ 1;
            let paused = self.inputs[input as usize].sent;
            for priority in (0..PRIORITIES).filter(|priority| paused & 1 << priority != 0) {
                let free_bytes = self.free_bytes(input ^ 1);
                let headroom = &mut self.headroom_used[input as usize][priority];
                let moved = u64::from(*headroom).min(free_bytes) as u32;
                *headroom -= moved;
                self.memories[switch as usize].used_bytes += u64::from(moved);
                self.resume_if_empty(pool, input, priority, now_ps);
            }
        }
    }

    /// Occupancy above which an input is paused, and below which it goes on.
    pub(super) fn thresholds(&self, ingress: PortId) -> (u64, u64) {
        // The opposite direction of the link is sent by the same switch.
        self.thresholds_with(|| self.free_bytes(ingress ^ 1))
    }

    /// The same if so much of a shared memory were free.
    pub(super) fn thresholds_with(&self, free_bytes: impl Fn() -> u64) -> (u64, u64) {
        let Some(pfc) = &self.config.pfc else {
            return (u64::MAX, u64::MAX);
        };
        match self.config.buffer {
            Buffer::Input { .. } => (pfc.xoff_bytes, pfc.xon_bytes),
            Buffer::Shared { alpha, .. } => {
                let xoff = pfc.xoff_bytes.min((free_bytes() as f64 * alpha) as u64);
                let gap = pfc.xoff_bytes - pfc.xon_bytes.min(pfc.xoff_bytes);
                // An input that has drained must go on even while others hold all memory.
                (xoff, xoff.saturating_sub(gap).max(1))
            }
        }
    }

    /// The congestion point of an output queue sees a frame.
    fn sample<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        to: PortId,
        handle: Handle,
        tag: Label,
        bytes: u32,
    ) {
        let Some(qcn) = &self.config.qcn else { return };
        let (at, priority) = (to as usize, usize::from(tag.priority));
        let queue_bytes = || self.queues[at].0[priority].bytes.into();
        let point = &mut self.points[at].0[priority];
        let found = point.arrival(&qcn.params, queue_bytes, bytes, &mut self.random[at]);
        let (Some(feedback), Place::Switch(switch)) = (found, self.specs[to as usize].near) else {
            return;
        };
        let destination = pool[handle].destination();
        let queue = QueueKey {
            destination,
            priority: tag.priority,
            path: pool[handle].queue_path(),
        };
        let notification = Notification {
            source: tag.source,
            queue,
            port: to,
            feedback,
        };
        let frame = F::notification(&pool[handle], &notification);
        let notice = pool.insert(frame);
        // It takes no room of an input: see [`Label::is_made_at`].
        let label = Label {
            ingress: to ^ 1,
            source: destination,
            priority: CONTROL_PRIORITY,
            buffered: false,
            control: true,
        };
        label.put(pool, notice);
        self.stats[to as usize].notifications += 1;
        self.notifications += 1;
        self.effects.push(Effect::Notify(switch, notice));
    }
}

impl Memory {
    /// Asserts that so many bytes are what it counts.
    pub(super) fn audit(&self, switch: usize, held_bytes: u64) -> Result<(), String> {
        let Self {
            shared_bytes,
            used_bytes,
        } = *self;
        if shared_bytes == u64::MAX {
            return Ok(());
        }
        match held_bytes == used_bytes && used_bytes <= shared_bytes {
            true => Ok(()),
            false => Err(format!(
                "the memory of switch {switch} holds {held_bytes} bytes of {shared_bytes} but counts {used_bytes}"
            )),
        }
    }
}
