//! Converged Enhanced Ethernet: eight priorities, flow control, congestion notification and
//! transmission selection.
//!
//! [`Cee`] holds the ports of links, the buffers behind them and the adapters of hosts. A port is
//! one direction of a link: the queues at its near end, the wire, and the buffer at its far end
//! that flow control guards. The owner of a [`Cee`] calls it for each event and carries out the
//! [`Effect`](crate::contract::Effect)s; frames stay in the owner's [`Pool`]. A hop takes one
//! event, and one more at a punctual port where the frame waits ([`Cee::catch_up`]).

mod adapter;
mod audit;
mod buffer;
mod config;
mod deadlock;
mod departure;
mod ets;
mod flow_control;
mod paths;
mod pause;
mod points;
mod port;
mod qcn;
mod requests;
mod resequence;
mod switch;
mod transmit;

use sluicegate_core::{
    aqm::AqmParams,
    number::{low_8, low_64, low_half},
};

use crate::{
    carried::Period,
    contract::Luggage,
    graph::{HostId, Node, PortId, SwitchId},
    pool::{Handle, Pool},
    port::{Drop, Frame, PS_PER_S},
};

use self::{
    adapter::Adapters, buffer::InputBuffers, paths::SourceRouting, pause::Pauses,
    points::CongestionPoints, port::OutputPorts, requests::Requests,
};
pub use sluicegate_pfc::{CONTROL_BYTES, PRIORITIES, Span};

pub use self::{
    adapter::{Departure, QueueKey},
    config::{
        Buffer, CeeConfig, EtsClass, EtsConfig, Pause, PfcConfig, QcnConfig, QcnParams, Sampling,
    },
    deadlock::{Deadlock, Stuck, Wait},
    ets::Ets,
    pause::PauseFrame,
    qcn::{CongestionPoint, Feedback, ReactionPoint},
    requests::OwnEffect,
    resequence::{Resequencer, Verdict},
};

/// The properties of a port, one direction of a link. Ports 2 l and 2 l + 1 are those of link l.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortSpec {
    /// The node that sends.
    pub near: Node,
    /// The node that receives.
    pub far: Node,
    /// Bits per second, > 0.
    pub rate_bps: u64,
    /// Propagation delay of the link.
    pub propagation_ps: u64,
    /// Delay from the end of the link to the place in a queue, or to the host's stack.
    pub processing_ps: u64,
    /// Marking and early dropping in each priority's queue.
    pub aqm: AqmParams,
    /// The longest frame.
    pub frame_bytes: u32,
}

/// A message to an adapter: a queue on the path of one of its queues is congested (802.1Q clause
/// 33.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The host whose adapter receives the notification.
    pub source: HostId,
    /// The adapter's queue from which the sampled frame came.
    pub queue: QueueKey,
    /// The port at whose queue the frame was sampled.
    pub port: PortId,
    /// The degree of congestion.
    pub feedback: Feedback,
}

/// A frame that converged Ethernet can carry.
pub trait CeeFrame: Frame + Copy {
    /// The destination host.
    fn destination(&self) -> HostId;

    /// The path of its adapter's queue ([`QueueKey::path`]); 0 where one queue serves all paths.
    fn queue_path(&self) -> u32 {
        0
    }

    /// Its path value, by which switches choose ports.
    fn path(&self) -> u32 {
        0
    }

    /// Gives it another path value.
    fn set_path(&mut self, _path: u32) {}

    /// Makes the frame of a notification, addressed to the source of the frame `sampled`.
    fn notification(sampled: &Self, notification: &Notification) -> Self;

    /// Of a notification: the adapter's queue whose rate is to fall, and |Fb|. `None` for other
    /// frames.
    fn notice(&self) -> Option<(QueueKey, u8)>;
}

/// The fields of a frame that every hop reads, stored beside the frame in its place of the pool.
#[derive(Clone, Copy, Debug)]
struct Label {
    /// The port by which a buffered frame has arrived; of a frame in an adapter, the adapter's
    /// port.
    ingress: PortId,
    source: HostId,
    priority: u8,
    /// The frame takes room in the buffer of its input.
    buffered: bool,
    /// It is a notification.
    control: bool,
}

/// Bits of a host's number in the label of a frame. A network with more hosts cannot be made.
pub const HOST_BITS: u32 = 24;

impl Label {
    const HOST_SHIFT: u32 = u32::BITS;
    const HOST: u32 = (1 << HOST_BITS) - 1;
    const PRIORITY_SHIFT: u32 = Self::HOST_SHIFT + HOST_BITS;
    const PRIORITY: u8 = 7;
    const BUFFERED: u64 = 1 << (Self::PRIORITY_SHIFT + 3);
    const CONTROL: u64 = Self::BUFFERED << 1;

    #[inline]
    fn of<F>(pool: &Pool<F>, handle: Handle) -> Self {
        let note = pool.note(handle);
        Self {
            ingress: PortId(low_half(note)),
            source: HostId(low_half(note >> Self::HOST_SHIFT) & Self::HOST),
            priority: low_8(note >> Self::PRIORITY_SHIFT) & Self::PRIORITY,
            buffered: note & Self::BUFFERED != 0,
            control: note & Self::CONTROL != 0,
        }
    }

    /// Whether the frame is a notification that leaves, by this port, the switch that has made it.
    /// No frame leaves a switch by the link over which it has arrived, so the input of a
    /// notification that was just made is that of its own output's link.
    fn is_made_at(self, port: PortId) -> bool {
        self.control && self.ingress.opposite() == port
    }

    /// The frame takes room in the buffer of this input.
    #[inline(always)]
    fn set_buffered<F>(pool: &mut Pool<F>, handle: Handle, ingress: PortId) {
        let rest = pool.note(handle) & !u64::from(u32::MAX);
        pool.set_note(handle, rest | Self::BUFFERED | u64::from(ingress.0));
    }

    /// The frame gives its room back.
    #[inline(always)]
    fn clear_buffered<F>(pool: &mut Pool<F>, handle: Handle) {
        pool.set_note(handle, pool.note(handle) & !Self::BUFFERED);
    }

    #[inline]
    fn put<F>(self, pool: &mut Pool<F>, handle: Handle) {
        let bit = |is: bool, bit| if is { bit } else { 0 };
        let note = u64::from(self.ingress.0)
            | u64::from(self.source.0) << Self::HOST_SHIFT
            | u64::from(self.priority) << Self::PRIORITY_SHIFT
            | bit(self.buffered, Self::BUFFERED)
            | bit(self.control, Self::CONTROL);
        pool.set_note(handle, note);
    }
}

/// The counters of a port.
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
    /// Pauses: each priority that the far end has paused counts.
    pub pauses: u64,
    /// Notifications that its congestion points have made.
    pub notifications: u64,
    /// The most bytes of one priority that the buffer at its far end has ever held.
    pub ingress_max_bytes: u64,
}

/// A network of converged Ethernet: wires the owners of the parts of a hop together.
pub struct Cee {
    config: CeeConfig,
    specs: Vec<PortSpec>,
    /// The output ports: queues, transmission selection and wires.
    out: OutputPorts,
    /// The buffers at the far ends of the wires.
    buffers: InputBuffers,
    /// By port.
    pauses: Vec<Pauses>,
    /// The congestion points that sample the queues.
    points: CongestionPoints,
    /// The adapters of hosts.
    adapters: Adapters,
    /// How sources choose paths, if they do, by priority.
    sources: [Option<Box<SourceRouting>>; PRIORITIES],
    /// By port, since its rate was set last, or its link failed or worked again.
    periods: Vec<Period>,
    /// The first port and period with more bytes than the rate allows.
    excess: Option<String>,
    /// Requests to the owner.
    pub(crate) requests: Requests,
}

impl Cee {
    /// An idle network. `specs` are its ports, two for each link, in the order of links; `hosts`
    /// and `switches` are their numbers. All random choices follow from `seed`.
    pub fn new(
        config: CeeConfig,
        specs: Vec<PortSpec>,
        hosts: usize,
        switches: usize,
        seed: u64,
    ) -> Self {
        assert!(
            hosts <= 1 << HOST_BITS,
            "labels have no number for {hosts} hosts"
        );
        let out = OutputPorts::new(&config, &specs, switches, seed);
        let mut cee = Self {
            buffers: InputBuffers::new(&config, &specs, &out, switches),
            out,
            pauses: specs.iter().map(|_| Pauses::default()).collect(),
            points: CongestionPoints::new(config.qcn.as_ref(), specs.len()),
            adapters: Adapters::new(&config, &specs, hosts, seed),
            sources: Default::default(),
            periods: specs
                .iter()
                .map(|spec| Period::new(spec.rate_bps))
                .collect(),
            excess: None,
            requests: Requests::default(),
            specs,
            config,
        };
        cee.set_all_patience(switches, hosts);
        cee
    }

    fn set_all_patience(&mut self, switches: usize, hosts: usize) {
        (SwitchId::first(switches)).for_each(|switch| self.set_patience(switch));
        (HostId::first(hosts)).for_each(|host| self.set_adapter_patience(host));
    }

    /// Decides which ports of a switch are punctual. They have caught up before.
    fn set_patience(&mut self, switch: SwitchId) {
        let pausing = self.buffers.pausing(switch);
        self.out.set_patience(&mut self.requests, switch, pausing);
    }

    /// The configuration.
    pub fn config(&self) -> &CeeConfig {
        &self.config
    }

    /// The number of ports.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// Whether there are no ports.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The properties of a port.
    pub fn spec(&self, port: PortId) -> &PortSpec {
        &self.specs[port.index()]
    }

    /// The counters of a port.
    pub fn stats(&self, port: PortId) -> CeeStats {
        CeeStats {
            ingress_max_bytes: self.buffers.most_bytes(port),
            ..self.out.stats(port)
        }
    }

    /// Prefetches the state of a port.
    #[inline]
    pub fn fetch_port(&self, port: PortId) {
        self.out.fetch(port);
        self.points.fetch(port);
    }

    /// Prefetches the first frame under way on a port, and the state that chooses the next one.
    #[inline]
    pub fn fetch_first<F>(&self, pool: &Pool<F>, port: PortId) {
        self.out.fetch_first(pool, port);
    }

    /// Prefetches the memory that a frame needs when it joins a port.
    #[inline]
    pub fn fetch_queue<F>(&self, pool: &Pool<F>, port: PortId) {
        let is_adapter = self.out.fetch_last(pool, port);
        if is_adapter {
            if let Node::Host(host) = self.specs[port.index()].near {
                self.adapters.fetch(host);
            }
        }
    }

    /// The first frame under way.
    #[inline]
    pub fn first<'a, F>(&self, pool: &'a Pool<F>, port: PortId) -> Option<&'a F> {
        self.out.first(pool, port)
    }

    /// Whether frames wait at a switch's port, as far as it has caught up.
    #[inline(always)]
    pub fn has_waiting(&self, port: PortId) -> bool {
        self.out[port].has_waiting()
    }

    /// Bytes queued at a port, all priorities together.
    pub fn backlog_bytes(&self, port: PortId) -> u64 {
        if !self.out[port].is_adapter() {
            return self.out.queued_bytes(port);
        }
        match self.specs[port.index()].near {
            Node::Host(host) => self.adapters.of(host).queued_bytes(),
            Node::Switch(_) => 0,
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

    /// (Notifications made so far, notifications that adapters have taken.)
    pub fn notifications(&self) -> (u64, u64) {
        (self.points.made(), self.adapters.taken())
    }

    /// From now on [`Effect::Sent`](crate::contract::Effect) and [`OwnEffect::PauseSent`] report
    /// the frames that a port sends.
    pub fn watch(&mut self, port: PortId) {
        self.out[port].watch();
        self.set_patience_near(port);
    }

    /// Decides which ports of the node at a port's near end are punctual.
    fn set_patience_near(&mut self, port: PortId) {
        match self.specs[port.index()].near {
            Node::Switch(switch) => self.set_patience(switch),
            Node::Host(host) => self.set_adapter_patience(host),
        }
    }

    /// The far end of a port belongs to another part of the run: [`OwnEffect::Away`] reports each
    /// frame that the port sends, when its first bit leaves.
    pub fn set_away(&mut self, port: PortId) {
        self.out[port].set_away();
        self.set_patience_near(port);
    }

    /// The label and number of a frame, for another part of the run.
    pub fn luggage<F>(&self, pool: &Pool<F>, handle: Handle) -> Luggage {
        Luggage {
            note: pool.note(handle),
            number: self.adapters.known_tag(handle).number,
        }
    }

    /// Takes a frame that another part of the run has sent over a port. True if it is the only one
    /// on the wire, so that its arrival needs a timer.
    pub fn deliver<F: CeeFrame>(
        &mut self,
        pool: &mut Pool<F>,
        port: PortId,
        (handle, luggage): (Handle, Luggage),
        arrival_ps: u64,
    ) -> bool {
        pool.set_note(handle, luggage.note);
        if self.adapters.keeps_tags() {
            self.adapters.tag_foreign(handle, luggage.number);
        }
        self.out.deliver(pool, port, handle, arrival_ps)
    }

    /// From now on the numbers and senders of frames are kept: see [`Cee::number`] and
    /// [`Cee::sender`].
    pub fn number_frames(&mut self) {
        self.adapters.keep_tags();
    }

    /// Makes all ports punctual.
    #[cfg(test)]
    fn never_be_late(&mut self) {
        self.out.never_be_late();
        let (switches, hosts) = (self.out.switches(), self.adapters.hosts());
        self.set_all_patience(switches, hosts);
    }

    /// A frame's priority; meaningful from its adapter to its receiver.
    pub fn priority<F>(&self, pool: &Pool<F>, handle: Handle) -> u8 {
        Label::of(pool, handle).priority
    }

    /// The host that a frame comes from; likewise.
    pub fn source<F>(&self, pool: &Pool<F>, handle: Handle) -> HostId {
        Label::of(pool, handle).source
    }

    /// A frame's [`Departure::sender`], if [`Cee::number_frames`] was called.
    pub fn sender(&self, handle: Handle) -> u32 {
        self.adapters.tag(handle).sender
    }

    /// A frame's number among those of its adapter's queue ([`QueueKey`]), if
    /// [`Cee::number_frames`] was called.
    pub fn number(&self, handle: Handle) -> u32 {
        self.adapters.tag(handle).number
    }

    /// Gives the copy `to` of a frame the label and tag of the frame `from`.
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
    low_64((u128::from(bytes) * u128::from(ps_per_byte_q16)) >> 16)
}

#[cfg(test)]
mod tests;
