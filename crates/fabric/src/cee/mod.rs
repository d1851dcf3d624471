//! Converged Enhanced Ethernet: eight priorities, flow control, congestion notification, transmission selection.
//!
//! [`Cee`] holds the ports of links, the buffers behind them and the adapters of hosts. A port is one direction of
//! a link: the queues at its near end, the wire, and the buffer at its far end that flow control guards. Who owns
//! it says what happens and when, and carries out the [`Effect`]s; frames stay in the owner's [`Pool`]. A hop is
//! one event, and one more where the frame has to wait while somebody is paused ([`Cee::catch_up`]).

mod adapter;
mod audit;
mod config;
mod deadlock;
mod ets;
mod pause;
mod port;
mod qcn;
mod resequence;
mod switch;

use prefetch_index::prefetch_index;
use sluicegate_core::aqm::{AqmParams, Red};

use crate::{
    graph::PortId,
    pool::{Handle, NIL, Pool},
    port::{Drop, Frame, PS_PER_S},
};

use self::{
    adapter::Adapter,
    pause::Pauses,
    port::{Class, Points, Port, Queues},
    switch::{Input, Memory},
};
pub use self::{
    adapter::{Departure, QueueKey},
    config::{
        Buffer, CONTROL_BYTES, CeeConfig, EtsClass, EtsConfig, PRIORITIES, Pause, PfcConfig,
        QcnConfig, QcnParams, Span,
    },
    deadlock::{Deadlock, Stuck},
    ets::Ets,
    pause::PauseFrame,
    qcn::{CongestionPoint, Feedback, ReactionPoint},
    resequence::{Resequencer, Verdict},
};

/// A node at an end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host by number.
    Host(u16),
    /// A switch by number.
    Switch(u32),
}

/// What a direction of a link is like. Port 2 l and port 2 l + 1 are the two directions of link l.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortSpec {
    /// Who sends.
    pub near: Place,
    /// Who receives.
    pub far: Place,
    /// Bits per second, > 0.
    pub rate_bps: u64,
    /// Along the link.
    pub propagation_ps: u64,
    /// And then to a place in a queue, or to the host's stack.
    pub processing_ps: u64,
    /// Marking and early dropping in each priority's queue.
    pub aqm: AqmParams,
    /// The longest frame.
    pub frame_bytes: u32,
}

/// What tells an adapter that a destination is behind a congested queue (802.1Q clause 33.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The adapter that it is for.
    pub source: u16,
    /// The adapter's queue from which the sampled frame came.
    pub queue: QueueKey,
    /// The port where it was sampled.
    pub port: PortId,
    /// How bad it is there.
    pub feedback: Feedback,
}

/// What a frame must be able to.
pub trait CeeFrame: Frame + Copy {
    /// The host that it is for.
    fn destination(&self) -> u16;

    /// The path of its adapter's queue ([`QueueKey::path`]); 0 where one queue serves all paths.
    fn queue_path(&self) -> u32 {
        0
    }

    /// A notification, to travel back; `sampled` is the frame that gave rise to it.
    fn notification(sampled: &Self, notification: &Notification) -> Self;
}

/// What the owner has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call [`Cee::transmit`] for this port then.
    Transmit(PortId, u64),
    /// Call [`Cee::arrive`] for this port then, beside when that itself has said.
    Arrive(PortId, u64),
    /// Call [`Cee::control`] for this port then.
    Control(PortId, u64),
    /// A switch has made a notification that wants to leave: find its port and call [`Cee::forward`].
    Notify(u32, Handle),
    /// A frame begins to leave a port; its last bit does so then. Only from ports that are watched.
    Sent(PortId, Handle, u64),
    /// A pause frame leaves a port; its last bit does so then. Only from ports that are watched.
    PauseSent(PortId, PauseFrame, u64),
    /// A frame has left a host's adapter for the wire. Only where that is counted ([`Cee::count_departures`]).
    Left(u16, Handle),
    /// A frame is lost in a host's adapter, whose link has failed: it is the owner's to release.
    Lost(u16, Handle),
    /// A priority of a host's adapter has room again, for which somebody waits.
    Room(u16, u8),
}

/// What every hop of a frame needs beside the frame; it lies in the frame's place.
#[derive(Clone, Copy, Debug)]
struct Label {
    /// While it is `buffered`, the port that it came by; of one in an adapter, the adapter's.
    ingress: PortId,
    source: u16,
    priority: u8,
    /// It is at a switch that has taken it into its buffer.
    buffered: bool,
    /// It is a notification.
    control: bool,
}

impl Label {
    const BUFFERED: u64 = 1 << 56;
    const CONTROL: u64 = 1 << 57;

    #[inline]
    fn of<F>(pool: &Pool<F>, handle: Handle) -> Self {
        let note = pool.note(handle);
        Self {
            ingress: note as PortId,
            source: (note >> 32) as u16,
            priority: (note >> 48) as u8 % PRIORITIES as u8,
            buffered: note & Self::BUFFERED != 0,
            control: note & Self::CONTROL != 0,
        }
    }

    /// A notification leaves the switch that has made it by this port. What travels comes by no port that it leaves by.
    fn is_made_at(self, port: PortId) -> bool {
        self.control && self.ingress ^ 1 == port
    }

    #[inline]
    fn put<F>(self, pool: &mut Pool<F>, handle: Handle) {
        let bit = |is: bool, bit| if is { bit } else { 0 };
        let note = u64::from(self.ingress)
            | u64::from(self.source) << 32
            | u64::from(self.priority) << 48
            | bit(self.buffered, Self::BUFFERED)
            | bit(self.control, Self::CONTROL);
        pool.set_note(handle, note);
    }
}

/// What the fabric keeps of a frame beside that, where somebody asks for it or it has a way to its adapter.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    /// Number among the frames of its source to its destination, in its priority.
    number: u32,
    /// What the owner calls its sender.
    sender: u32,
    /// Where it waits, or waited, in its source's adapter.
    queue: u32,
    source: u16,
}

/// What a port counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CeeStats {
    /// Frames accepted, and their bytes.
    pub accepted: u64,
    /// See `accepted`.
    pub accepted_bytes: u64,
    /// Frames marked.
    pub marks: u64,
    /// Frames dropped, by cause.
    pub drops: [u64; Drop::NAMES.len()],
    /// Times that its far end has paused it.
    pub pauses: u64,
    /// Notifications that its queues gave rise to.
    pub notifications: u64,
    /// Most bytes of one priority in the buffer at its far end.
    pub ingress_max_bytes: u64,
}

/// A network of converged Ethernet.
pub struct Cee {
    config: CeeConfig,
    ports: Vec<Port>,
    classes: Vec<Class>,
    queues: Vec<Queues>,
    points: Vec<Points>,
    reds: Vec<Red>,
    selections: Vec<Ets>,
    specs: Vec<PortSpec>,
    /// By port, the buffer at its far end.
    inputs: Vec<Input>,
    /// By port, bytes there that lie in the headroom of a shared memory.
    headroom_used: Vec<[u32; PRIORITIES]>,
    pauses: Vec<Pauses>,
    stats: Vec<CeeStats>,
    memories: Vec<Memory>,
    adapters: Vec<Adapter>,
    tags: Vec<Tag>,
    random: Vec<u64>,
    /// By switch, the ports that it sends by.
    outputs: Vec<Vec<PortId>>,
    /// By switch and priority, how many of its inputs it has asked to pause.
    pausing: Vec<[u16; PRIORITIES]>,
    /// Ports may decide late: see [`Cee::catch_up`].
    may_be_late: bool,
    /// At the present time ports below this have decided what they send.
    turn: PortId,
    /// Ports that may be able to send now.
    kicks: Vec<PortId>,
    /// For the owner, before `effects`: [`Effect::Arrive`], which most often is all. The first is taken first.
    pub arrivals: [Option<(PortId, u64)>; 2],
    /// For the owner, in order.
    pub effects: Vec<Effect>,
    /// Frames have numbers.
    numbers: bool,
    lossless: u8,
    notified: u8,
    notifications: u64,
    absorbed: u64,
}

impl Cee {
    /// An idle network. `specs` are its ports, two for each link, in the order of links; `hosts` and `switches`
    /// how many there are. `seed` makes what is drawn by lot.
    pub fn new(
        config: CeeConfig,
        specs: Vec<PortSpec>,
        hosts: usize,
        switches: usize,
        seed: u64,
    ) -> Self {
        let count = specs.len();
        let lossless = config.pfc.map_or(0, |pfc| pfc.priorities);
        let notified = config.qcn.map_or(0, |qcn| qcn.priorities);
        let random = |port: usize| seed ^ (port as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (ports, classes) = port::ports(&config, &specs, switches);
        let frame_bytes = specs.iter().map(|spec| spec.frame_bytes);
        let selections = Ets::for_ports(&config.ets, frame_bytes);
        let mut cee = Self {
            ports,
            classes,
            queues: vec![Queues::default(); count],
            points: vec![Points::default(); count],
            reds: vec![Red::default(); count * PRIORITIES],
            selections,
            inputs: vec![Input::default(); count],
            headroom_used: vec![[0; PRIORITIES]; count],
            pauses: specs.iter().map(|_| Pauses::default()).collect(),
            stats: vec![CeeStats::default(); count],
            memories: Vec::new(),
            adapters: Vec::new(),
            tags: Vec::new(),
            random: (0..count).map(random).collect(),
            outputs: port::outputs(&specs, switches),
            pausing: vec![[0; PRIORITIES]; switches],
            may_be_late: matches!(config.buffer, Buffer::Input { .. }),
            turn: 0,
            kicks: Vec::new(),
            arrivals: [None; 2],
            effects: Vec::new(),
            numbers: false,
            lossless,
            notified,
            notifications: 0,
            absorbed: 0,
            specs,
            config,
        };
        for port in 0..count {
            let bytes = cee.compute_headroom_bytes(port as PortId);
            cee.inputs[port].headroom_bytes = bytes as u32;
            let bytes = cee.lossless_bytes(port as PortId);
            cee.inputs[port].lossless_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        }
        cee.memories = switch::memories(&cee, switches);
        for switch in 0..switches as u32 {
            cee.set_patience(switch);
        }
        cee.adapters = adapter::adapters(&cee, hosts, seed);
        for host in 0..hosts as u16 {
            cee.set_adapter_patience(host);
        }
        cee
    }

    /// What it is made of.
    pub fn config(&self) -> &CeeConfig {
        &self.config
    }

    /// A port's.
    pub fn spec(&self, port: PortId) -> &PortSpec {
        &self.specs[port as usize]
    }

    /// What a port counted.
    pub fn stats(&self, port: PortId) -> CeeStats {
        let state = &self.ports[port as usize];
        CeeStats {
            accepted: state.accepted,
            accepted_bytes: state.accepted_bytes,
            ingress_max_bytes: self.inputs[port as usize].most_bytes.into(),
            ..self.stats[port as usize]
        }
    }

    /// A port is about to be needed: it is sent for.
    #[inline]
    pub fn fetch_port(&self, port: PortId) {
        prefetch_index(&self.ports, port as usize);
        prefetch_index(&self.points, port as usize);
    }

    /// The same for the first frame under way, and for what chooses the next one.
    #[inline]
    pub fn fetch_first<F>(&self, pool: &Pool<F>, port: PortId) {
        let state = &self.ports[port as usize];
        pool.fetch(state.first);
        if state.waiting != 0 {
            prefetch_index(&self.selections, port as usize);
        }
    }

    /// The same for what a frame that comes to a port needs there.
    #[inline]
    pub fn fetch_queue<F>(&self, pool: &Pool<F>, port: PortId) {
        let state = &self.ports[port as usize];
        pool.fetch(state.last);
        if state.is_adapter {
            if let Place::Host(host) = self.specs[port as usize].near {
                prefetch_index(&self.adapters, usize::from(host));
            }
        } else if state.waiting != 0 {
            prefetch_index(&self.queues, port as usize);
        }
    }

    /// The first frame under way.
    #[inline]
    pub fn first<'a, F>(&self, pool: &'a Pool<F>, port: PortId) -> Option<&'a F> {
        let first = self.ports[port as usize].first;
        (first != NIL).then(|| pool.look(first).0)
    }

    /// Bytes queued at a port, all priorities together.
    pub fn backlog_bytes(&self, port: PortId) -> u64 {
        match self.specs[port as usize].near {
            Place::Host(host) => self.adapters[usize::from(host)].queued_bytes(),
            Place::Switch(_) => self.ports[port as usize].queued_bytes.into(),
        }
    }

    /// Bytes of a priority in the buffer at a port's far end.
    pub fn ingress_bytes(&self, port: PortId, priority: usize) -> u64 {
        self.inputs[port as usize].bytes[priority].into()
    }

    /// Frames dropped so far, all ports and causes together.
    pub fn drops(&self) -> u64 {
        self.stats.iter().flat_map(|stats| stats.drops).sum()
    }

    /// Notifications made so far, and those that adapters have taken.
    pub fn notifications(&self) -> (u64, u64) {
        (self.notifications, self.absorbed)
    }

    /// What leaves a port is told from now on.
    pub fn watch(&mut self, port: PortId) {
        let state = &mut self.ports[port as usize];
        state.set(state.down, true);
        match self.specs[port as usize].near {
            Place::Switch(switch) => self.set_patience(switch),
            Place::Host(host) => self.set_adapter_patience(host),
        }
    }

    /// Frames have numbers and senders from now on: see [`Cee::number`] and [`Cee::sender`].
    pub fn number_frames(&mut self) {
        self.numbers = true;
    }

    /// Ports decide when they are free from now on.
    #[cfg(test)]
    fn never_be_late(&mut self) {
        self.may_be_late = false;
        for switch in 0..self.pausing.len() as u32 {
            self.set_patience(switch);
        }
        for host in 0..self.adapters.len() as u16 {
            self.set_adapter_patience(host);
        }
    }

    /// Keeps what the fabric needs to know of a frame.
    fn tag(&mut self, handle: Handle, tag: Tag) {
        let at = handle as usize;
        if self.tags.len() <= at {
            self.tags.resize(at + 1, Tag::default());
        }
        self.tags[at] = tag;
    }

    /// A frame's priority; meaningful from its adapter to its receiver.
    pub fn priority<F>(&self, pool: &Pool<F>, handle: Handle) -> u8 {
        Label::of(pool, handle).priority
    }

    /// The host that a frame comes from; likewise.
    pub fn source<F>(&self, pool: &Pool<F>, handle: Handle) -> u16 {
        Label::of(pool, handle).source
    }

    /// What its owner calls a frame's sender; where [`Cee::number_frames`] was called.
    pub fn sender(&self, handle: Handle) -> u32 {
        self.tags[handle as usize].sender
    }

    /// A frame's number among those of its source to its destination in its priority; where [`Cee::number_frames`] was
    /// called.
    pub fn number(&self, handle: Handle) -> u32 {
        self.tags[handle as usize].number
    }

    /// The copy of a frame has what that has.
    pub fn copied<F>(&mut self, pool: &mut Pool<F>, from: Handle, to: Handle) {
        if self.numbers {
            self.tag(to, self.tags[from as usize]);
        }
        pool.set_note(to, pool.note(from));
    }
}

/// Time of a byte in 2^-16 ps.
fn ps_per_byte_q16(rate_bps: u64) -> u64 {
    let ps = (u128::from(8 * PS_PER_S) << 16) / u128::from(rate_bps.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Time of so many bytes.
fn time_ps(bytes: u32, ps_per_byte_q16: u64) -> u64 {
    ((u128::from(bytes) * u128::from(ps_per_byte_q16)) >> 16) as u64
}

#[cfg(test)]
mod tests;
