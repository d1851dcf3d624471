//! Converged Enhanced Ethernet: eight priorities, flow control, congestion notification, transmission selection.
//!
//! [`Cee`] holds the ports of links, the buffers behind them and the adapters of hosts. A port is one direction of
//! a link: the queues at its near end, the wire, and the buffer at its far end that flow control
//! guards. Its owner calls it for each event and carries out the
//! [`Effect`](crate::contract::Effect)s; frames stay in the owner's [`Pool`]. A hop is one event,
//! and one more where the frame waits at a switch that has paused a sender ([`Cee::catch_up`]).

mod adapter;
mod audit;
mod buffer;
mod config;
mod deadlock;
mod departure;
mod ets;
mod flow_control;
mod pause;
mod points;
mod port;
mod qcn;
mod requests;
mod resequence;
mod switch;
mod transmit;

use prefetch_index::prefetch_index;
use sluicegate_core::aqm::AqmParams;

use crate::{
    graph::{PortId, opposite},
    pool::{Handle, NIL, Pool},
    port::{Drop, Frame, PS_PER_S},
};

use self::{
    adapter::Adapters, buffer::InputBuffers, pause::Pauses, points::CongestionPoints,
    port::OutputPorts, requests::Requests,
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
    /// The node that sends.
    pub near: Place,
    /// The node that receives.
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

    /// What a notification tells its adapter: the queue that is to become slower, and |Fb|; `None` of other frames.
    fn notice(&self) -> Option<(QueueKey, u8)>;
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
        self.control && opposite(self.ingress) == port
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

/// A network of converged Ethernet: what owns each part of a hop, wired together.
pub struct Cee {
    config: CeeConfig,
    specs: Vec<PortSpec>,
    /// Queues, transmission selection and wires.
    out: OutputPorts,
    /// What lies behind the wires, at switches.
    buffers: InputBuffers,
    /// By port.
    pauses: Vec<Pauses>,
    /// What samples the queues.
    points: CongestionPoints,
    /// What hosts send by.
    adapters: Adapters,
    /// For the owner.
    pub(crate) requests: Requests,
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
        let out = OutputPorts::new(&config, &specs, switches, seed);
        let mut cee = Self {
            buffers: InputBuffers::new(&config, &specs, &out, switches),
            out,
            pauses: specs.iter().map(|_| Pauses::default()).collect(),
            points: CongestionPoints::new(config.qcn.as_ref(), specs.len()),
            adapters: Adapters::new(&config, &specs, hosts, seed),
            requests: Requests::default(),
            specs,
            config,
        };
        cee.set_all_patience(switches, hosts);
        cee
    }

    fn set_all_patience(&mut self, switches: usize, hosts: usize) {
        for switch in 0..switches as u32 {
            self.set_patience(switch);
        }
        for host in 0..hosts as u16 {
            self.set_adapter_patience(host);
        }
    }

    /// The ports of a switch may be late, or may not. They have caught up.
    fn set_patience(&mut self, switch: u32) {
        let pausing = self.buffers.pausing(switch);
        self.out.set_patience(&mut self.requests, switch, pausing);
    }

    /// What it is made of.
    pub fn config(&self) -> &CeeConfig {
        &self.config
    }

    /// How many ports it has.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// A port's.
    pub fn spec(&self, port: PortId) -> &PortSpec {
        &self.specs[port as usize]
    }

    /// What a port counted.
    pub fn stats(&self, port: PortId) -> CeeStats {
        CeeStats {
            ingress_max_bytes: self.buffers.most_bytes(port),
            ..self.out.stats(port)
        }
    }

    /// A port is about to be needed: it is sent for.
    #[inline]
    pub fn fetch_port(&self, port: PortId) {
        prefetch_index(&self.out.ports, port as usize);
        self.points.fetch(port);
    }

    /// The same for the first frame under way, and for what chooses the next one.
    #[inline]
    pub fn fetch_first<F>(&self, pool: &Pool<F>, port: PortId) {
        let state = &self.out.ports[port as usize];
        pool.fetch(state.first);
        if state.waiting != 0 {
            prefetch_index(&self.out.selections, port as usize);
        }
    }

    /// The same for what a frame that comes to a port needs there.
    #[inline]
    pub fn fetch_queue<F>(&self, pool: &Pool<F>, port: PortId) {
        let state = &self.out.ports[port as usize];
        pool.fetch(state.last);
        if state.is_adapter {
            if let Place::Host(host) = self.specs[port as usize].near {
                prefetch_index(&self.adapters.adapters, usize::from(host));
            }
        } else if state.waiting != 0 {
            prefetch_index(&self.out.queues, port as usize);
        }
    }

    /// The first frame under way.
    #[inline]
    pub fn first<'a, F>(&self, pool: &'a Pool<F>, port: PortId) -> Option<&'a F> {
        let first = self.out.ports[port as usize].first;
        (first != NIL).then(|| pool.look(first).0)
    }

    /// Bytes queued at a port, all priorities together.
    pub fn backlog_bytes(&self, port: PortId) -> u64 {
        match self.specs[port as usize].near {
            Place::Host(host) => self.adapters.adapters[usize::from(host)].queued_bytes,
            Place::Switch(_) => self.out.ports[port as usize].queued_bytes.into(),
        }
    }

    /// Bytes of a priority in the buffer at a port's far end.
    pub fn ingress_bytes(&self, port: PortId, priority: usize) -> u64 {
        self.buffers.held_bytes(port, priority)
    }

    /// Frames dropped so far, all ports and causes together.
    pub fn drops(&self) -> u64 {
        self.out.drops()
    }

    /// Notifications made so far, and those that adapters have taken.
    pub fn notifications(&self) -> (u64, u64) {
        (self.points.made(), self.adapters.taken)
    }

    /// What leaves a port is told from now on.
    pub fn watch(&mut self, port: PortId) {
        let state = &mut self.out.ports[port as usize];
        state.set(state.down, true);
        match self.specs[port as usize].near {
            Place::Switch(switch) => self.set_patience(switch),
            Place::Host(host) => self.set_adapter_patience(host),
        }
    }

    /// Frames have numbers and senders from now on: see [`Cee::number`] and [`Cee::sender`].
    pub fn number_frames(&mut self) {
        self.adapters.numbers = true;
    }

    /// Ports decide when they are free from now on.
    #[cfg(test)]
    fn never_be_late(&mut self) {
        self.out.may_be_late = false;
        let (switches, hosts) = (self.out.of_switch.len(), self.adapters.adapters.len());
        self.set_all_patience(switches, hosts);
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
        self.adapters.tag(handle).sender
    }

    /// A frame's number among those of its source to its destination in its priority; where [`Cee::number_frames`] was
    /// called.
    pub fn number(&self, handle: Handle) -> u32 {
        self.adapters.tag(handle).number
    }

    /// The copy of a frame has what that has.
    pub fn copied<F>(&mut self, pool: &mut Pool<F>, from: Handle, to: Handle) {
        self.adapters.copied(from, to);
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
