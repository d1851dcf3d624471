//! The sending side of a link: queues, transmission selection, the wire.

use super::{
    Cee, CeeConfig, CeeFrame, CongestionPoint, Effect, PRIORITIES, Place, PortSpec,
    ps_per_byte_q16, time_ps,
};
use crate::{
    graph::PortId,
    pool::{Handle, NIL, Pool},
    port::Drop,
};

/// No event pending.
pub(super) const NEVER: u64 = u64::MAX;

/// What every frame touches.
#[repr(C, align(64))]
pub(super) struct Port {
    /// First and last frame whose header, or last bit, is on its way to the far end.
    pub first: Handle,
    pub last: Handle,
    pub first_ps: u64,
    /// When the last bit sent so far leaves.
    pub free_ps: u64,
    /// When this port is asked to transmit.
    pub armed_ps: u64,
    pub accepted: u64,
    pub accepted_bytes: u64,
    pub queued_bytes: u32,
    class: u16,
    /// Bit p: frames of priority p wait, in an adapter for nothing but their turn.
    pub waiting: u8,
    /// Bit p: it obeys a pause of priority p.
    pub shut: u8,
    pub down: bool,
    pub watched: bool,
    /// Bit p: frames of priority p leave in time: see [`Cee::catch_up`].
    pub punctual: u8,
    /// The owner will ask when a frame arrives that begins as soon as the port is free.
    pub expected: bool,
    /// The same for a frame that begins at `armed_ps`, of an adapter that may be late.
    pub foreseen: bool,
    /// It sends for a host.
    pub is_adapter: bool,
    /// It averages its queue: a frame that finds it empty may be dropped or marked all the same.
    pub averages: bool,
    /// It is up, nobody watches it, and it averages nothing: a frame that meets nobody is just sent.
    pub plain: bool,
}

const _: () = assert!(size_of::<Port>() == 64);

/// What ports alike share.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Class {
    /// From a frame's first bit, or its last, to its arrival.
    delay_ps: u64,
    ps_per_byte_q16: u64,
    /// A frame that makes its queue no longer is neither marked nor dropped early, and leaves no trace.
    harmless_bytes: u64,
    /// Frames arrive with their header.
    cut: bool,
}

/// Frames in a row.
#[derive(Clone, Copy)]
pub(super) struct Fifo {
    pub head: Handle,
    pub tail: Handle,
    pub bytes: u32,
    /// Of the first, so that who only compares need not look there.
    pub head_bytes: u32,
}

impl Default for Fifo {
    fn default() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            bytes: 0,
            head_bytes: 0,
        }
    }
}

impl Fifo {
    #[inline]
    pub fn push<F: CeeFrame>(&mut self, pool: &mut Pool<F>, handle: Handle) {
        let bytes = pool[handle].bytes();
        pool.end(handle);
        match self.tail {
            NIL => (self.head, self.head_bytes) = (handle, bytes),
            last => pool.follow(last, handle, bytes.into()),
        }
        self.tail = handle;
        // Who lets an adapter keep whatever comes reads no bytes of its queues.
        self.bytes = self.bytes.wrapping_add(bytes);
    }

    #[inline]
    pub fn pop<F: CeeFrame>(&mut self, pool: &Pool<F>) -> Option<Handle> {
        let handle = self.head;
        if handle == NIL {
            return None;
        }
        let (_, next, next_bytes) = pool.look(handle);
        self.bytes = self.bytes.wrapping_sub(self.head_bytes);
        (self.head, self.head_bytes) = (next, next_bytes as u32);
        if next == NIL {
            self.tail = NIL;
        }
        // It has waited for long.
        pool.fetch(next);
        Some(handle)
    }
}

/// By priority, the frames that wait at a port.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Queues(pub [Fifo; PRIORITIES]);

/// By priority, what congestion points keep of them: apart, since frames that do not wait touch it too.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Points(pub [CongestionPoint; PRIORITIES]);

const _: () = assert!(size_of::<Queues>() == 128 && size_of::<Points>() == 64);

/// Idle ports, and their classes. A switch hears of a frame by its header if no port of the switch is faster than the
/// link that it comes by: else it would have to send what is not there yet.
pub(super) fn ports(
    config: &CeeConfig,
    specs: &[PortSpec],
    switches: usize,
) -> (Vec<Port>, Vec<Class>) {
    let mut fastest_bps = vec![0; switches];
    for spec in specs {
        if let Place::Switch(switch) = spec.near {
            let fastest_bps: &mut u64 = &mut fastest_bps[switch as usize];
            *fastest_bps = spec.rate_bps.max(*fastest_bps);
        }
    }
    let class = |spec: &PortSpec| Class {
        delay_ps: spec.propagation_ps + spec.processing_ps,
        ps_per_byte_q16: ps_per_byte_q16(spec.rate_bps),
        harmless_bytes: spec.aqm.harmless_bytes(),
        cut: match spec.far {
            Place::Host(_) => false,
            Place::Switch(switch) => {
                config.cut_through && spec.rate_bps >= fastest_bps[switch as usize]
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
        ports.push(Port::new(class as u16, spec));
    }
    (ports, classes)
}

/// The ports that each switch sends by.
pub(super) fn outputs(specs: &[PortSpec], switches: usize) -> Vec<Vec<PortId>> {
    let mut outputs = vec![Vec::new(); switches];
    for (port, spec) in (0..).zip(specs) {
        if let Place::Switch(switch) = spec.near {
            outputs[switch as usize].push(port);
        }
    }
    outputs
}

impl Port {
    fn new(class: u16, spec: &PortSpec) -> Self {
        let averages = spec.aqm.harmless_bytes() == 0;
        Self {
            first: NIL,
            last: NIL,
            first_ps: 0,
            free_ps: 0,
            armed_ps: NEVER,
            accepted: 0,
            accepted_bytes: 0,
            queued_bytes: 0,
            class,
            waiting: 0,
            shut: 0,
            down: false,
            watched: false,
            punctual: u8::MAX,
            expected: false,
            foreseen: false,
            is_adapter: matches!(spec.near, Place::Host(_)),
            averages,
            plain: !averages,
        }
    }

    /// Its link fails or works, or it is watched.
    pub fn set(&mut self, down: bool, watched: bool) {
        (self.down, self.watched) = (down, watched);
        self.plain = !down && !watched && !self.averages;
    }

    /// It is to be asked at this time; nobody has been told to.
    pub fn set_armed(&mut self, at_ps: u64) {
        (self.armed_ps, self.foreseen) = (at_ps, false);
    }

    /// A frame joins what it sends.
    #[inline]
    pub fn accept(&mut self, bytes: u32) {
        self.accepted += 1;
        self.accepted_bytes += u64::from(bytes);
    }

    /// A frame that makes its queue no longer is left alone.
    #[inline]
    pub fn harmless_bytes(&self, classes: &[Class]) -> u64 {
        classes[usize::from(self.class)].harmless_bytes
    }

    /// Bit p: priority p may be sent.
    pub fn open(&self) -> u8 {
        !self.shut
    }

    pub fn is_idle(&self, now_ps: u64) -> bool {
        self.free_ps <= now_ps
    }

    /// Something waits that may be sent.
    pub fn has_eligible(&self) -> bool {
        self.waiting & self.open() != 0
    }

    /// It may decide late what it sends.
    pub fn is_patient(&self) -> bool {
        self.waiting & self.punctual == 0
    }
}

impl Cee {
    /// Whether frames arrive at the far end with their header.
    pub(super) fn is_cut(&self, port: PortId) -> bool {
        self.classes[usize::from(self.ports[port as usize].class)].cut
    }

    /// Up to which length of its queue a port leaves frames alone.
    #[inline]
    pub(super) fn harmless_bytes(&self, port: PortId) -> u64 {
        self.ports[port as usize].harmless_bytes(&self.classes)
    }

    /// What so many bytes take on a port's line.
    #[inline]
    pub(super) fn serialization_ps(&self, port: PortId, bytes: u32) -> u64 {
        let class = &self.classes[usize::from(self.ports[port as usize].class)];
        time_ps(bytes, class.ps_per_byte_q16)
    }

    /// What a port sends from now on it sends at this rate, in bits per second; no faster than what it was made with, of
    /// which the room for what comes after a pause is made. Not where frames are forwarded before their end is there.
    pub fn set_rate(&mut self, port: PortId, rate_bps: u64) {
        debug_assert!(
            !self.config.cut_through,
            "a header would come before its frame"
        );
        let class = Class {
            ps_per_byte_q16: ps_per_byte_q16(rate_bps.min(self.specs[port as usize].rate_bps)),
            ..self.classes[usize::from(self.ports[port as usize].class)]
        };
        let known = self.classes.iter().position(|known| *known == class);
        let class = known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        self.ports[port as usize].class = class as u16;
    }

    /// The owner is asked to call [`Cee::transmit`] at this time, unless it will do so earlier.
    #[inline]
    pub(super) fn arm(&mut self, port: PortId, at_ps: u64) {
        let state = &mut self.ports[port as usize];
        if at_ps < state.armed_ps {
            state.set_armed(at_ps);
            self.effects.push(Effect::Transmit(port, at_ps));
        }
    }

    /// A time has come for which [`Effect::Transmit`] has asked.
    #[inline]
    pub fn transmit<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.catch_up(pool, port, now_ps);
        let state = &mut self.ports[port as usize];
        if state.armed_ps > now_ps {
            return; // an earlier one took its place, and has come
        }
        state.set_armed(NEVER);
        self.turn = port;
        self.kick(pool, port, now_ps);
        self.settle(pool, now_ps);
        self.turn = 0;
    }

    /// A port sends if it can; later, if it is busy.
    #[inline]
    pub(super) fn kick<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        self.catch_up(pool, port, now_ps);
        if self.ports[port as usize].is_adapter {
            return self.kick_adapter(pool, port, now_ps);
        }
        let state = &self.ports[port as usize];
        if !state.has_eligible() || state.down {
            return;
        }
        if !state.is_idle(now_ps) {
            return self.await_free(port);
        }
        self.send_next(pool, port, now_ps);
        let state = &self.ports[port as usize];
        if state.has_eligible() {
            self.await_free(port);
        }
    }

    /// Whether frames should have left a switch's port since it was looked at last: see [`Cee::catch_up`].
    #[inline]
    fn is_behind(&self, port: PortId, now_ps: u64) -> bool {
        let state = &self.ports[port as usize];
        // What happens at the same time happens in the order of ports.
        let until_ps = now_ps + u64::from(port < self.turn);
        state.has_eligible() && state.is_patient() && state.free_ps < until_ps
    }

    /// As long as a switch has paused nobody, which frame follows on one of its ports depends on nothing but what
    /// waits there, and nobody waits for its leaving; and so it is as long as no frame waits there of a priority that
    /// the switch has paused. So nobody need ask when the port is free, as long as it is asked before anything happens
    /// to it, and before the frame arrives: what should have left before now does so here, at the time at which it
    /// should have.
    #[inline(always)]
    pub fn catch_up<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        if self.may_be_behind(port, now_ps) {
            self.send_late(pool, port, now_ps);
        }
    }

    /// Whether that is worth a look.
    #[inline(always)]
    pub(super) fn may_be_behind(&self, port: PortId, now_ps: u64) -> bool {
        let state = &self.ports[port as usize];
        state.waiting != 0 && state.free_ps <= now_ps || state.armed_ps <= now_ps
    }

    #[inline(never)]
    fn send_late<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        if self.ports[port as usize].is_adapter {
            return self.catch_up_adapter(pool, port, now_ps);
        }
        while self.is_behind(port, now_ps) {
            self.send_next(pool, port, self.ports[port as usize].free_ps);
        }
    }

    /// All ports of a switch catch up.
    #[cold]
    pub(super) fn catch_up_switch<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        switch: u32,
        now_ps: u64,
    ) {
        for at in 0..self.outputs[switch as usize].len() {
            self.catch_up(pool, self.outputs[switch as usize][at], now_ps);
        }
    }

    /// A switch pauses other priorities than before, or somebody watches. Its ports have caught up.
    pub(super) fn set_patience(&mut self, switch: u32) {
        let pausing = self.pausing[switch as usize].iter().enumerate();
        let bit = |(priority, &inputs): (usize, &u16)| u8::from(inputs > 0) << priority;
        let punctual = pausing.map(bit).sum();
        for at in 0..self.outputs[switch as usize].len() {
            let port = self.outputs[switch as usize][at];
            let state = &mut self.ports[port as usize];
            let always = state.watched || !self.may_be_late;
            let was_patient = state.is_patient();
            state.punctual = if always { u8::MAX } else { punctual };
            if was_patient && !state.is_patient() && state.has_eligible() {
                let free_ps = state.free_ps;
                self.arm(port, free_ps);
            }
        }
    }

    /// Which priorities a port may send has changed, after it has caught up: if it may send again, it does so now, not
    /// when it had been free.
    pub(super) fn reopen(&mut self, port: PortId, now_ps: u64) {
        let state = &mut self.ports[port as usize];
        state.free_ps = state.free_ps.max(now_ps);
        state.expected = false;
        self.kicks.push(port);
    }

    /// A busy port has more to send.
    #[inline]
    pub(super) fn await_free(&mut self, port: PortId) {
        let state = &self.ports[port as usize];
        if !state.is_patient() {
            return self.arm(port, state.free_ps);
        }
        if state.first == NIL {
            self.expect(port);
        }
    }

    /// Nothing of a busy port is on the wire, where something would be asked for: the next one will be.
    #[inline]
    pub(super) fn expect(&mut self, port: PortId) {
        let state = &mut self.ports[port as usize];
        let class = &self.classes[usize::from(state.class)];
        if !class.cut {
            return self.arm(port, self.ports[port as usize].free_ps);
        }
        if !std::mem::replace(&mut state.expected, true) {
            let arrival_ps = state.free_ps + class.delay_ps;
            self.await_arrival(port, arrival_ps);
        }
    }

    /// An adapter that may be late has a frame whose rate lets it go at `armed_ps`, and nothing on the wire: it is asked
    /// for when that frame arrives.
    #[inline]
    pub(super) fn foresee(&mut self, port: PortId) {
        let state = &mut self.ports[port as usize];
        if !std::mem::replace(&mut state.foreseen, true) {
            let class = &self.classes[usize::from(state.class)];
            let arrival_ps = state.armed_ps + class.delay_ps;
            self.await_arrival(port, arrival_ps);
        }
    }

    #[inline]
    fn await_arrival(&mut self, port: PortId, arrival_ps: u64) {
        match &mut self.arrivals {
            // Who carries out effects looks at no others.
            [arrival @ None, _] | [_, arrival @ None] if self.effects.is_empty() => {
                *arrival = Some((port, arrival_ps));
            }
            _ => self.effects.push(Effect::Arrive(port, arrival_ps)),
        }
    }

    /// The frame whose turn it is begins to leave a switch.
    #[inline(always)]
    fn send_next<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, now_ps: u64) {
        let state = &self.ports[port as usize];
        let eligible = state.waiting & state.open();
        let queues = &mut self.queues[port as usize].0;
        let head_bytes = |priority: usize| queues[priority].head_bytes;
        let Some(priority) = self.selections[port as usize].choose(eligible, &head_bytes) else {
            return;
        };
        let frames = &mut queues[priority];
        let bytes = frames.head_bytes;
        let Some(handle) = frames.pop(pool) else {
            return;
        };
        let is_empty = frames.head == NIL;
        let state = &mut self.ports[port as usize];
        state.queued_bytes -= bytes;
        state.waiting &= !(u8::from(is_empty) << priority);
        self.start(pool, port, handle, now_ps);
        self.release(pool, handle, bytes, now_ps);
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
        self.start_here(pool, port, handle, now_ps);
    }

    /// The same for who cannot wait for a call.
    #[inline(always)]
    pub(super) fn start_here<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        now_ps: u64,
    ) {
        let state = &mut self.ports[port as usize];
        let class = &self.classes[usize::from(state.class)];
        state.free_ps = now_ps + time_ps(pool[handle].bytes(), class.ps_per_byte_q16);
        let from_ps = if class.cut { now_ps } else { state.free_ps };
        let arrival_ps = from_ps + class.delay_ps;
        pool.end(handle);
        let before = std::mem::replace(&mut state.last, handle);
        let is_first = state.first == NIL;
        if is_first {
            (state.first, state.first_ps) = (handle, arrival_ps);
        } else {
            pool.follow(before, handle, arrival_ps);
        }
        // What follows is asked for when what is before it has come.
        let is_news = is_first && !std::mem::take(&mut state.expected);
        if state.watched {
            let leaves_ps = state.free_ps;
            self.effects.push(Effect::Sent(port, handle, leaves_ps));
        }
        if is_news {
            self.await_arrival(port, arrival_ps);
        }
    }

    /// A time has come for which [`Effect::Arrive`] has asked. Returns the frame that is at the far end, if the link
    /// has not failed since: of a host, for its stack or, if it is a notification, for [`Cee::notified`]; of a
    /// switch, for [`Cee::forward`]. And when this has to be called again.
    #[inline]
    pub fn arrive<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        now_ps: u64,
    ) -> (Option<Handle>, Option<u64>) {
        self.catch_up(pool, port, now_ps);
        let state = &mut self.ports[port as usize];
        let handle = state.first;
        if handle == NIL || state.first_ps > now_ps {
            return (None, None);
        }
        let (_, next, next_ps) = pool.look(handle);
        (state.first, state.first_ps) = (next, next_ps);
        if next != NIL {
            return (Some(handle), Some(next_ps));
        }
        if state.has_eligible() && state.is_patient() {
            self.expect(port);
        } else if state.armed_ps != NEVER && state.is_adapter && state.punctual == 0 {
            self.foresee(port);
        }
        (Some(handle), None)
    }

    /// Whatever was found able to send does.
    #[inline]
    pub(super) fn settle<F: CeeFrame>(&mut self, pool: &mut Pool<F>, now_ps: u64) {
        while let Some(port) = self.kicks.pop() {
            self.kick(pool, port, now_ps);
        }
    }

    /// A direction of a link fails: what waits for it or is on it is lost. Or it works again.
    pub fn set_up<F: CeeFrame>(&mut self, pool: &mut Pool<F>, port: PortId, up: bool, now_ps: u64) {
        let at = port as usize;
        self.catch_up_neighbours(pool, port, now_ps);
        self.catch_up_neighbours(pool, port ^ 1, now_ps);
        self.catch_up(pool, port, now_ps);
        let state = &mut self.ports[at];
        state.set(!up, state.watched);
        self.forget_pauses(port, now_ps);
        if up {
            self.pause_again(pool, port, now_ps);
            self.kicks.push(port);
            return self.settle(pool, now_ps);
        }
        while self.ports[at].first != NIL {
            let handle = self.ports[at].first;
            (self.ports[at].first, self.ports[at].first_ps) = {
                let (_, next, next_ps) = pool.look(handle);
                (next, next_ps)
            };
            self.lose(pool, port, handle, Drop::Down);
        }
        if self.ports[at].is_adapter {
            self.empty_adapter(pool, port);
        }
        for priority in 0..PRIORITIES {
            while let Some(handle) = self.queues[at].0[priority].pop(pool) {
                let bytes = pool[handle].bytes();
                self.ports[at].queued_bytes -= bytes;
                self.release(pool, handle, bytes, now_ps);
                self.lose(pool, port, handle, Drop::Down);
            }
        }
        let state = &mut self.ports[at];
        state.waiting = 0;
        state.free_ps = now_ps;
        state.expected = false;
        state.set_armed(NEVER);
        self.settle(pool, now_ps);
    }

    /// A frame is gone for this cause.
    pub(super) fn lose<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        handle: Handle,
        cause: Drop,
    ) {
        self.stats[port as usize].drops[cause as usize] += 1;
        pool.release(handle);
    }
}
