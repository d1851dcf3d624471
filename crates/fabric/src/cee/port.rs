//! The sending side of links: each port's queues, its transmission selection and its wire.

mod fifo;
mod state;

use std::ops::{Index, IndexMut};

use prefetch_index::prefetch_index;
use sluicegate_core::{
    aqm::{Arrival, Arriving, Red},
    number::narrow,
};

use super::{
    CeeConfig, CeeFrame, CeeStats, CongestionPoints, Ets, Feedback, OwnEffect, PRIORITIES,
    PortSpec, Requests, ps_per_byte_q16, time_ps,
};
use crate::{
    graph::{Node, PortId, SwitchId},
    pool::{Handle, NIL, Pool},
    port::{Drop, PS_PER_NS},
    random::draw,
};

use self::fifo::Queues;
pub(super) use self::{
    fifo::Fifo,
    state::{NEVER, Port, Waiting},
};

/// The properties that ports of the same kind share.
#[derive(Clone, Copy, PartialEq)]
struct Class {
    /// From a frame's first bit, or its last, to its arrival.
    delay_ps: u64,
    ps_per_byte_q16: u64,
    /// A frame whose queue is no longer than this with it is neither marked nor dropped early, and
    /// changes no state of the AQM.
    harmless_bytes: u64,
    /// Cut-through: a frame arrives at the far end with its header, not with its last bit.
    cut: bool,
}

/// Idle ports, and their classes. Frames arrive with their header (cut-through) if no port of the
/// switch is faster than their link. A faster port would run out of bits that have not arrived yet.
fn ports(config: &CeeConfig, specs: &[PortSpec], switches: usize) -> (Vec<Port>, Vec<Class>) {
    let mut fastest_bps = vec![0; switches];
    for spec in specs {
        if let Node::Switch(switch) = spec.near {
            let fastest_bps: &mut u64 = &mut fastest_bps[switch.index()];
            *fastest_bps = spec.rate_bps.max(*fastest_bps);
        }
    }
    let class = |spec: &PortSpec| Class {
        delay_ps: spec.propagation_ps + spec.processing_ps,
        ps_per_byte_q16: ps_per_byte_q16(spec.rate_bps),
        harmless_bytes: spec.aqm.harmless_bytes(),
        cut: match spec.far {
            Node::Host(_) => false,
            Node::Switch(switch) => {
                config.cut_through && spec.rate_bps >= fastest_bps[switch.index()]
            }
        },
    };
    let mut classes: Vec<Class> = Vec::new();
    let mut ports = Vec::with_capacity(specs.len());
    for spec in specs {
        let class = class(spec);
        let known = classes.iter().position(|known| *known == class);
        let class = known.unwrap_or_else(|| {
            classes.push(class);
            classes.len() - 1
        });
        ports.push(Port::new(narrow::<u16>(class), spec));
    }
    (ports, classes)
}

/// By switch, its output ports.
fn outputs(specs: &[PortSpec], switches: usize) -> Vec<Vec<PortId>> {
    let mut outputs = vec![Vec::new(); switches];
    for (port, spec) in PortId::enumerate(specs) {
        if let Node::Switch(switch) = spec.near {
            outputs[switch.index()].push(port);
        }
    }
    outputs
}

/// The sending sides of all links: their queues, transmission selections and wires. A [`Port`] is
/// reached by its number; its methods are the only way to change it from outside.
pub(super) struct OutputPorts {
    ports: Vec<Port>,
    classes: Vec<Class>,
    queues: Vec<Queues>,
    selections: Vec<Ets>,
    reds: Vec<Red>,
    stats: Vec<CeeStats>,
    /// By port, the random state of its AQM and congestion points.
    random: Vec<u64>,
    /// By switch, its output ports.
    of_switch: Vec<Vec<PortId>>,
    /// Ports may be lazy: see [`super::Cee::catch_up`].
    may_be_late: bool,
    /// How many ports, in the order of their numbers, have decided for the present time.
    decided: usize,
    /// Ports that may be able to send now: see [`super::Cee::serve_kicked_ports`].
    kicks: Vec<PortId>,
}

impl Index<PortId> for OutputPorts {
    type Output = Port;

    #[inline(always)]
    fn index(&self, port: PortId) -> &Port {
        &self.ports[port.index()]
    }
}

impl IndexMut<PortId> for OutputPorts {
    #[inline(always)]
    fn index_mut(&mut self, port: PortId) -> &mut Port {
        &mut self.ports[port.index()]
    }
}

impl OutputPorts {
    /// Idle ports. All random choices follow from `seed`.
    pub fn new(config: &CeeConfig, specs: &[PortSpec], switches: usize, seed: u64) -> Self {
        let count = specs.len();
        let (ports, classes) = ports(config, specs, switches);
        let frame_bytes = specs.iter().map(|spec| spec.frame_bytes);
        let random = |port: usize| seed ^ (port as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            ports,
            classes,
            queues: vec![Queues::default(); count],
            selections: Ets::for_ports(&config.ets, frame_bytes),
            reds: vec![Red::default(); count * PRIORITIES],
            stats: vec![CeeStats::default(); count],
            random: (0..count).map(random).collect(),
            of_switch: outputs(specs, switches),
            may_be_late: config.may_be_late(),
            decided: 0,
            kicks: Vec::new(),
        }
    }

    /// The number of switches.
    pub fn switches(&self) -> usize {
        self.of_switch.len()
    }

    /// The output ports of a switch.
    #[inline]
    pub fn of_switch(&self, switch: SwitchId) -> &[PortId] {
        &self.of_switch[switch.index()]
    }

    /// A port's queue of a priority.
    #[inline(always)]
    pub fn queue(&self, port: PortId, priority: usize) -> &Fifo {
        &self.queues[port.index()].0[priority]
    }

    /// No port may be late.
    #[cfg(test)]
    pub fn never_be_late(&mut self) {
        self.may_be_late = false;
    }

    /// A port decides for the present time. Those with lower numbers have decided.
    #[inline(always)]
    pub fn begin_turn(&mut self, port: PortId) {
        self.decided = port.index();
    }

    /// All ports have decided for the present time.
    pub fn end_turns(&mut self) {
        self.decided = self.ports.len();
    }

    /// No port has decided for the present time.
    #[inline(always)]
    pub fn reset_turns(&mut self) {
        self.decided = 0;
    }

    /// A port has decided all that was due before this time; what is due now is included if the
    /// port has had its turn. At the same time, ports act in the order of their numbers.
    #[inline(always)]
    pub fn until_ps(&self, port: PortId, now_ps: u64) -> u64 {
        now_ps + u64::from(port.index() < self.decided)
    }

    /// A port may be able to send now.
    #[inline]
    pub fn kick(&mut self, port: PortId) {
        self.kicks.push(port);
    }

    /// Takes a port that may be able to send now.
    #[inline]
    pub fn next_kicked(&mut self) -> Option<PortId> {
        self.kicks.pop()
    }

    /// Prefetches the state of a port.
    #[inline(always)]
    pub fn fetch(&self, port: PortId) {
        prefetch_index(&self.ports, port.index());
    }

    /// Prefetches the first frame under way on a port, and the state that chooses the next one.
    #[inline(always)]
    pub fn fetch_first<F>(&self, pool: &Pool<F>, port: PortId) {
        let state = &self.ports[port.index()];
        pool.fetch(state.first);
        if state.waiting.0 != 0 {
            prefetch_index(&self.selections, port.index());
        }
    }

    /// Prefetches the last frame on a port's wire, and the port's queues if frames wait in them.
    /// Returns whether the port is an adapter's, which has queues of its own.
    #[inline(always)]
    pub fn fetch_last<F>(&self, pool: &Pool<F>, port: PortId) -> bool {
        let state = &self.ports[port.index()];
        pool.fetch(state.last);
        if !state.is_adapter && state.waiting.0 != 0 {
            prefetch_index(&self.queues, port.index());
        }
        state.is_adapter
    }

    /// The first frame under way.
    #[inline(always)]
    pub fn first<'a, F>(&self, pool: &'a Pool<F>, port: PortId) -> Option<&'a F> {
        let first = self.ports[port.index()].first;
        (first != NIL).then(|| pool.look(first).0)
    }

    /// Bytes queued at a switch's port, all priorities together.
    pub fn queued_bytes(&self, port: PortId) -> u64 {
        self.ports[port.index()].queued_bytes.into()
    }

    /// The counters of a port that are counted here.
    pub fn stats(&self, port: PortId) -> CeeStats {
        let state = &self.ports[port.index()];
        CeeStats {
            accepted: state.accepted,
            accepted_bytes: state.accepted_bytes,
            ..self.stats[port.index()]
        }
    }

    /// Frames dropped so far, all ports and causes together.
    pub fn drops(&self) -> u64 {
        self.stats.iter().flat_map(|stats| stats.drops).sum()
    }

    /// Notifications of all ports.
    pub fn notifications(&self) -> u64 {
        self.stats.iter().map(|stats| stats.notifications).sum()
    }

    /// Counts a frame that is dropped at a port for this cause.
    pub fn count_drop(&mut self, port: PortId, cause: Drop) {
        self.stats[port.index()].drops[cause as usize] += 1;
    }

    /// Counts `count` priorities of a port that have been paused.
    pub fn count_pauses(&mut self, port: PortId, count: u32) {
        self.stats[port.index()].pauses += u64::from(count);
    }

    /// Counts a notification of a port's congestion point.
    pub fn count_notification(&mut self, port: PortId) {
        self.stats[port.index()].notifications += 1;
    }

    /// Whether frames arrive at a port's far end with their header (cut-through).
    pub fn is_cut(&self, port: PortId) -> bool {
        self.classes[usize::from(self.ports[port.index()].class)].cut
    }

    /// See [`Class::harmless_bytes`].
    #[inline]
    pub fn harmless_bytes(&self, port: PortId) -> u64 {
        self.classes[usize::from(self.ports[port.index()].class)].harmless_bytes
    }

    /// The time that so many bytes take to leave a port.
    #[inline]
    pub fn serialization_ps(&self, port: PortId, bytes: u32) -> u64 {
        let class = &self.classes[usize::from(self.ports[port.index()].class)];
        time_ps(bytes, class.ps_per_byte_q16)
    }

    /// Sets the rate of the frames that a port sends from now on, in bits per second.
    pub fn set_rate(&mut self, port: PortId, rate_bps: u64) {
        let class = Class {
            ps_per_byte_q16: ps_per_byte_q16(rate_bps),
            ..self.classes[usize::from(self.ports[port.index()].class)]
        };
        let known = self.classes.iter().position(|known| *known == class);
        let class = known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        self.ports[port.index()].class = narrow::<u16>(class);
    }

    /// Whether frames of a switch's lazy port were due to leave before now: see
    /// [`super::Cee::catch_up`].
    #[inline]
    pub fn is_behind(&self, port: PortId, now_ps: u64) -> bool {
        let state = &self.ports[port.index()];
        let until_ps = self.until_ps(port, now_ps);
        state.has_eligible() && state.is_patient() && state.free_ps < until_ps
    }

    /// A quick necessary condition for a lazy port to be behind.
    #[inline(always)]
    pub fn may_be_behind(&self, port: PortId, now_ps: u64) -> bool {
        let state = &self.ports[port.index()];
        state.waiting.0 != 0 && state.free_ps <= now_ps || state.armed_ps <= now_ps
    }

    /// Requests a [`Timer::Transmit`](crate::contract::Timer) at this time, unless an earlier one
    /// is set.
    #[inline]
    pub fn arm(&mut self, requests: &mut Requests, port: PortId, at_ps: u64) {
        let state = &mut self.ports[port.index()];
        if at_ps < state.armed_ps {
            state.set_armed(at_ps);
            requests.transmit(port, at_ps);
        }
    }

    /// Makes the ports of a switch punctual for the priorities that the switch pauses at any of its
    /// inputs (`pausing`); ports that are watched, for all. The ports have caught up before.
    pub fn set_patience(&mut self, requests: &mut Requests, switch: SwitchId, pausing: u8) {
        for at in 0..self.of_switch[switch.index()].len() {
            let port = self.of_switch[switch.index()][at];
            let state = &mut self.ports[port.index()];
            let always = state.is_followed() || !self.may_be_late;
            let was_patient = state.is_patient();
            state.punctual = if always { u8::MAX } else { pausing };
            if was_patient && !state.is_patient() && state.has_eligible() {
                let free_ps = state.free_ps;
                self.arm(requests, port, free_ps);
            }
        }
    }

    /// Decides whether an adapter's port is lazy: not if the adapter `hurries` or is watched, nor
    /// if its switch stores and forwards, nor where no port may be late. The port has caught up
    /// before it becomes punctual.
    pub fn set_adapter_patience(&mut self, requests: &mut Requests, port: PortId, hurries: bool) {
        let hurries = hurries || !self.may_be_late || !self.is_cut(port);
        let state = &mut self.ports[port.index()];
        debug_assert!(state.is_adapter, "other ports depend on their switch");
        let punctual = match hurries || state.is_followed() {
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
                self.arm(requests, port, free_ps);
            }
            self.arm(requests, port, armed_ps);
        }
    }

    /// The set of priorities that a port may send has changed, after the port has caught up. A
    /// frame that may leave again does so now at the earliest, not at the past time when the port
    /// became idle.
    pub fn reopen(&mut self, port: PortId, now_ps: u64) {
        let state = &mut self.ports[port.index()];
        state.free_ps = state.free_ps.max(now_ps);
        state.expected = false;
        self.kicks.push(port);
    }

    /// Sends a pause frame before all frames that wait. Returns when its last bit leaves.
    pub fn send_pause(&mut self, port: PortId, serialization_ps: u64, now_ps: u64) -> u64 {
        let state = &mut self.ports[port.index()];
        let leaves_ps = state.free_ps.max(now_ps) + serialization_ps;
        state.free_ps = leaves_ps;
        // The pause frame delays the frame for whose arrival an event is set.
        state.expected = false;
        self.kicks.push(port);
        leaves_ps
    }

    /// Requests the event at which a busy port with more frames decides again: a timer if it is
    /// punctual, else the arrival of its next frame.
    #[inline]
    pub fn await_free(&mut self, requests: &mut Requests, port: PortId) {
        let state = &self.ports[port.index()];
        if !state.is_patient() {
            return self.arm(requests, port, state.free_ps);
        }
        if state.first == NIL {
            self.expect(requests, port);
        }
    }

    /// Requests the arrival of the frame that begins when a busy port becomes idle, since no frame
    /// on the wire will lead to that. At a far end without cut-through a timer does.
    #[inline]
    pub fn expect(&mut self, requests: &mut Requests, port: PortId) {
        let state = &mut self.ports[port.index()];
        let class = &self.classes[usize::from(state.class)];
        if !class.cut {
            return self.arm(requests, port, self.ports[port.index()].free_ps);
        }
        if !std::mem::replace(&mut state.expected, true) {
            let arrival_ps = state.free_ps + class.delay_ps;
            requests.arrive(port, arrival_ps);
        }
    }

    /// Requests the arrival of the frame that a rate limiter lets go at `armed_ps`, for a lazy
    /// adapter without a frame on the wire.
    #[inline]
    pub fn foresee(&mut self, requests: &mut Requests, port: PortId) {
        let state = &mut self.ports[port.index()];
        if !std::mem::replace(&mut state.foreseen, true) {
            let class = &self.classes[usize::from(state.class)];
            let arrival_ps = state.armed_ps + class.delay_ps;
            requests.arrive(port, arrival_ps);
        }
    }

    /// A frame joins its priority's queue.
    #[inline]
    pub fn enqueue<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        (priority, bytes): (usize, u32),
    ) {
        self.queues[port.index()].0[priority].push(pool, handle);
        let state = &mut self.ports[port.index()];
        state.queued_bytes += bytes;
        state.waiting.add(priority);
    }

    /// Transmission selection chooses among these priorities of an adapter, which has frames in all
    /// of them. `head_bytes` is the length of a priority's next frame.
    #[inline(always)]
    pub fn choose(
        &mut self,
        port: PortId,
        eligible: u8,
        head_bytes: impl Fn(usize) -> u32,
    ) -> Option<usize> {
        let selection = &mut self.selections[port.index()];
        match eligible & (eligible - 1) {
            0 => {
                let priority = eligible.trailing_zeros() as usize % PRIORITIES;
                selection.choose_alone(priority, head_bytes(priority));
                Some(priority)
            }
            _ => selection.choose(eligible, &head_bytes),
        }
    }

    /// A failed port loses the next frame of a priority's queue. Returns it and its length. That
    /// frames wait is true until the port is [`OutputPorts::emptied`].
    pub fn take_lost<F: CeeFrame>(
        &mut self,
        pool: &Pool<F>,
        port: PortId,
        priority: usize,
    ) -> Option<(Handle, u32)> {
        let frames = &mut self.queues[port.index()].0[priority];
        let bytes = frames.head_bytes();
        let handle = frames.pop(pool)?;
        self.ports[port.index()].queued_bytes -= bytes;
        Some((handle, bytes))
    }

    /// A failed port has lost all its frames: it is idle, and waits for no event.
    pub fn emptied(&mut self, port: PortId, now_ps: u64) {
        let state = &mut self.ports[port.index()];
        debug_assert!(state.down, "only a failed port loses all its frames");
        debug_assert_eq!(state.first, NIL, "all on the wire is lost");
        debug_assert_eq!(state.queued_bytes, 0, "all that waits is lost");
        state.waiting.clear();
        state.free_ps = now_ps;
        state.expected = false;
        state.set_armed(NEVER);
    }

    /// Transmission selection chooses the next frame of a switch's port and takes it from its
    /// queue.
    #[inline(always)]
    pub fn select<F: CeeFrame>(&mut self, pool: &Pool<F>, port: PortId) -> Option<(Handle, u32)> {
        let state = &self.ports[port.index()];
        let eligible = state.eligible();
        if eligible == 0 {
            return None;
        }
        let queues = &mut self.queues[port.index()].0;
        let head_bytes = |priority: usize| queues[priority].head_bytes();
        let selection = &mut self.selections[port.index()];
        let priority = match eligible & (eligible - 1) {
            0 => {
                let priority = eligible.trailing_zeros() as usize % PRIORITIES;
                selection.choose_alone(priority, head_bytes(priority));
                priority
            }
            _ => selection.choose(eligible, &head_bytes)?,
        };
        let frames = &mut queues[priority];
        let bytes = frames.head_bytes();
        let handle = frames.pop(pool)?;
        let is_empty = frames.is_empty();
        let state = &mut self.ports[port.index()];
        state.queued_bytes -= bytes;
        state.waiting.0 &= !(u8::from(is_empty) << priority);
        Some((handle, bytes))
    }

    /// The first bit of a frame leaves an idle port.
    #[inline(always)]
    pub fn start<F: CeeFrame>(
        &mut self,
        requests: &mut Requests,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        now_ps: u64,
    ) {
        let state = &mut self.ports[port.index()];
        let class = &self.classes[usize::from(state.class)];
        debug_assert!(state.is_idle(now_ps), "one frame leaves at a time");
        state.free_ps = now_ps + time_ps(pool[handle].bytes(), class.ps_per_byte_q16);
        let from_ps = if class.cut { now_ps } else { state.free_ps };
        let arrival_ps = from_ps + class.delay_ps;
        pool.end(handle);
        let before = std::mem::replace(&mut state.last, handle);
        let is_first = state.first == NIL;
        if is_first {
            // No frame is ever on the wire of a port that leads to another part.
            if state.is_away() {
                return requests.own(OwnEffect::Away(port, handle, arrival_ps));
            }
            (state.first, state.first_ps) = (handle, arrival_ps);
        } else {
            pool.link_after(before, handle, arrival_ps);
        }
        // The arrival of a frame behind others is requested when the one before it has arrived.
        let is_news = is_first && !std::mem::take(&mut state.expected);
        if state.is_watched() {
            requests.sent(port, handle, state.free_ps);
        }
        if is_news {
            requests.arrive(port, arrival_ps);
        }
    }

    /// A frame that another part of the run has sent is on the wire. True if it is the only one.
    pub fn deliver<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        arrival_ps: u64,
    ) -> bool {
        let state = &mut self.ports[port.index()];
        pool.end(handle);
        let before = std::mem::replace(&mut state.last, handle);
        if state.first != NIL {
            pool.link_after(before, handle, arrival_ps);
            return false;
        }
        (state.first, state.first_ps) = (handle, arrival_ps);
        true
    }

    /// Takes the first frame off the wire if it has reached the far end. Returns it, and the time
    /// at which the next one arrives.
    #[inline(always)]
    pub fn take_arrived<F: CeeFrame>(
        &mut self,
        pool: &Pool<F>,
        port: PortId,
        now_ps: u64,
    ) -> Option<(Handle, Option<u64>)> {
        let state = &mut self.ports[port.index()];
        let handle = state.first;
        if handle == NIL || state.first_ps > now_ps {
            return None;
        }
        let (_, next, next_ps) = pool.look(handle);
        (state.first, state.first_ps) = (next, next_ps);
        Some((handle, (next != NIL).then_some(next_ps)))
    }

    /// A frame of `bytes` has joined a queue: its congestion point returns the feedback to the
    /// source if it samples the frame and there is congestion.
    #[inline]
    pub fn sample(
        &mut self,
        points: &mut CongestionPoints,
        (port, priority): (PortId, u8),
        bytes: u32,
    ) -> Option<Feedback> {
        let at = port.index();
        let queue_bytes = || self.queues[at].0[usize::from(priority)].bytes().into();
        points.arrival((port, priority), queue_bytes, bytes, &mut self.random[at])
    }

    /// Applies AQM to a frame that is about to join a queue: marks it, or returns the cause for
    /// which it is dropped.
    pub fn judge<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        spec: &PortSpec,
        (port, handle): (PortId, Handle),
        priority: usize,
        now_ps: u64,
    ) -> Option<Drop> {
        let at = port.index();
        let (aqm, frame) = (&spec.aqm, &mut pool[handle]);
        let arriving = Arriving {
            now_ns: now_ps / PS_PER_NS,
            backlog_bytes: self.queues[at].0[priority].bytes(),
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

    /// Frames in queues and on wires, counted one by one.
    pub fn underway<F: CeeFrame>(&self, pool: &Pool<F>) -> u64 {
        let on_wires: u64 = self.ports.iter().map(|port| pool.count(port.first)).sum();
        let queues = self.queues.iter().flat_map(|queues| queues.0);
        let waiting: u64 = queues.map(|frames| pool.count(frames.head())).sum();
        on_wires + waiting
    }

    /// Checks that the bytes and priorities that ports count are those of the frames in their
    /// queues. Returns, by port and priority, the bytes of frames in the buffer at its far end.
    pub fn audit<F: CeeFrame>(&self, pool: &Pool<F>) -> Result<Vec<[u64; PRIORITIES]>, String> {
        let mut buffered = vec![[0u64; PRIORITIES]; self.ports.len()];
        for (port, (queues, state)) in self.queues.iter().zip(&self.ports).enumerate() {
            let mut total = 0;
            for (priority, frames) in queues.0.iter().enumerate() {
                let bytes = frames.audit(pool, priority, &mut buffered);
                if bytes != u64::from(frames.bytes()) {
                    return Err(format!(
                        "the queue of port {port}, priority {priority}, holds {bytes} bytes but counts {}",
                        frames.bytes()
                    ));
                }
                let waits = state.waiting.has(priority);
                if !state.is_adapter && waits == frames.is_empty() {
                    return Err(format!(
                        "port {port} does not know whether priority {priority} waits"
                    ));
                }
                total += bytes;
            }
            if total != u64::from(state.queued_bytes) {
                return Err(format!("the queues of port {port} hold {total} bytes"));
            }
        }
        Ok(buffered)
    }
}

#[cfg(test)]
mod tests;
