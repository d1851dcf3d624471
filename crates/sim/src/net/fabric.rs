//! The network as the driver of its fabric: timers, effects, and packets to and from hosts.

use sluicegate_fabric::{
    Fabric, Handle,
    cee::{CeeFrame, Deadlock, Departure, PauseFrame, Place, QueueKey},
    contract::{Driven, Driver, Effect, Received, Timer, Timers},
    graph::{PortId, SwitchId},
};
use sluicegate_vswitch::Side;

use super::{CONTROL, EndId, Net, PORT, RESEQUENCE, TRANSMIT, source};
use crate::{capture, frame, packet::Packet, wheel::Wheel};

/// A fabric that carries simulated packets.
pub trait PacketFabric: Fabric<Frame = Packet> + Send {}

impl<F: Fabric<Frame = Packet> + Send> PacketFabric for F {}

/// Plain Ethernet.
pub type Plain = sluicegate_fabric::Plain<Packet>;
/// Converged Ethernet.
pub type Converged = sluicegate_fabric::Converged<Packet>;

/// The queue of an end that has not sent a packet yet.
pub(super) const NO_QUEUE: u32 = u32::MAX;

impl Timers for Wheel {
    #[inline(always)]
    fn set(&mut self, timer: Timer, index: u32, at_ps: u64) {
        let kind = match timer {
            Timer::Arrival => PORT,
            Timer::Transmit => TRANSMIT,
            Timer::Control => CONTROL,
            Timer::Resequence => RESEQUENCE,
        };
        self.push(at_ps, source(kind, index));
    }
}

impl<F: PacketFabric> Driver for Net<F> {
    type Fabric = F;
    type Timers = Wheel;

    #[inline(always)]
    fn driven(&mut self) -> (&mut Driven<F>, &mut Wheel, u64) {
        (&mut self.fabric, &mut self.clock.wheel, self.clock.now_ps)
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Timer(timer, index, at_ps) => self.clock.wheel.set(timer, index, at_ps),
            Effect::Notify(switch, packet) => self.notify(switch, packet),
            Effect::Sent(port, packet, leaves_ps) => {
                self.show_at(port, capture::Side::Sent, packet, leaves_ps);
            }
            Effect::PauseSent(port, frame, leaves_ps) => self.show_pause(port, frame, leaves_ps),
            Effect::Left(host, packet) => self.has_left(host, packet),
            Effect::Lost(host, packet) => {
                self.has_left(host, packet);
                self.fabric.pool_mut().release(packet);
            }
            Effect::Room(host, priority) => self.serve_lane(host, lane(priority)),
        }
    }
}

/// The exit of a host's switch for a priority.
fn lane(priority: u8) -> Side {
    match priority {
        0 => Side::Uplink,
        _ => Side::Lane(priority),
    }
}

/// Timers and effects.
impl<F: PacketFabric> Net<F> {
    /// A timer of the fabric is due.
    pub(super) fn fabric_timer(&mut self, timer: Timer, port: PortId) {
        self.on_fabric(|fabric, _, now_ps| fabric.timer(timer, port, now_ps));
    }

    /// A switch sends a notification back to the source of the sampled packet.
    fn notify(&mut self, switch: u32, notification: Handle) {
        let Some(out) = self.choose(SwitchId(switch), notification) else {
            unreachable!("where a packet came from there is a way back");
        };
        self.on_fabric(|fabric, _, now_ps| fabric.send_notification(out, notification, now_ps));
    }

    /// A packet has left its host, or the adapter has lost it. The stack or socket that has sent it
    /// no longer counts its payload, and a stack that waited for this departure may send.
    fn has_left(&mut self, host: u16, packet: Handle) {
        if !self.hosts[usize::from(host)].counts_departures {
            return;
        }
        let end = self.fabric.sender(packet);
        let payload = self.fabric.ports().pool[packet].payload();
        self.left(end, payload);
        if std::mem::take(&mut self.sockets.ends[end as usize].throttled) {
            self.unthrottle(host);
            self.serve_end(end);
        }
    }

    /// Shows a pause frame to captures at this port.
    #[cold]
    fn show_pause(&mut self, port: PortId, frame: PauseFrame, leaves_ps: u64) {
        let (Some(capture), Some(spec)) = (&mut self.observers.capture, self.fabric.spec(port))
        else {
            return;
        };
        let source = match spec.near {
            Place::Host(host) => frame::mac(host),
            Place::Switch(_) => frame::port_mac(port),
        };
        let arrives_ps = leaves_ps + spec.propagation_ps + spec.processing_ps;
        for (side, at_ps) in [
            (capture::Side::Sent, leaves_ps),
            (capture::Side::Arrived, arrives_ps),
        ] {
            let seen = capture::Seen {
                port,
                side,
                now_ps: self.clock.now_ps,
                at_ps,
                priority: None,
            };
            capture.pfc(seen, source, frame.quanta());
        }
    }
}

/// Packets from stacks and to them.
impl<F: PacketFabric> Net<F> {
    /// A packet of an end enters the stack of its host, on the way to an adapter with a queue for
    /// each destination.
    pub(super) fn enter_stack(&mut self, host: u16, end: EndId, packet: Handle) {
        let state = &self.sockets.ends[end as usize];
        let (priority, to) = (state.priority, state.addressing.peer_host);
        let mut queue = state.queue;
        if queue == NO_QUEUE {
            let key = QueueKey {
                destination: to,
                priority,
                path: self.fabric.ports().pool[packet].queue_path(),
            };
            queue = self.on_fabric(|fabric, _, _| fabric.queue_to(host, key));
            self.sockets.ends[end as usize].queue = queue;
        }
        let departure = Departure {
            source: host,
            queue,
            priority,
            sender: end,
        };
        let port = self.hosts[usize::from(host)].adapter;
        self.on_fabric(|fabric, timers, now_ps| {
            fabric.send(timers, port, packet, departure, now_ps)
        });
    }

    /// A packet reaches a host over a port.
    #[inline(always)]
    pub(super) fn reach_host(&mut self, port: PortId, host: u16, packet: Handle) {
        let received = self.on_fabric(|fabric, timers, now_ps| {
            fabric.receive(timers, (port, host), packet, now_ps)
        });
        match received {
            Received::Frame => self.enter_host(port, host, packet),
            Received::FrameAndFollowing(from) => {
                self.enter_host(port, host, packet);
                while let Some(next) =
                    self.on_fabric(|fabric, _, _| fabric.next_in_order(host, from))
                {
                    self.enter_host(port, host, next);
                }
            }
            Received::Kept => {}
            Received::Notification => {
                self.show(port, capture::Side::Arrived, packet);
                self.on_fabric(|fabric, _, now_ps| fabric.absorb(host, packet, now_ps));
            }
        }
    }

    /// A packet that is next in order passes from the receiving adapter to its host.
    #[inline(always)]
    fn enter_host(&mut self, port: PortId, host: u16, packet: Handle) {
        self.show(port, capture::Side::Arrived, packet);
        self.receive(host, packet);
    }

    /// The adapter of a host stops waiting for missing packets and passes on those that have
    /// overtaken them.
    pub(super) fn give_up(&mut self, host: u16) {
        let port = self.hosts[usize::from(host)].adapter.opposite();
        let taken = self.on_fabric(|fabric, timers, now_ps| fabric.give_up(timers, host, now_ps));
        for packet in taken {
            self.enter_host(port, host, packet);
        }
    }
}

/// The room in adapters.
impl<F: PacketFabric> Net<F> {
    /// From now on the sockets of a host learn which of their packets have left it.
    pub(super) fn count_departures(&mut self, host: u16) {
        self.hosts[usize::from(host)].counts_departures = true;
        self.on_fabric(|fabric, _, now_ps| fabric.count_departures(host, now_ps));
    }

    /// The exits of a host's switch to its adapter, one for each priority.
    pub(super) fn lanes(&self) -> impl Iterator<Item = Side> + use<F> {
        (0..self.fabric.lanes()).map(lane)
    }

    /// Tells a host's switch for which priorities its adapter has room. The adapter reports when
    /// room appears.
    pub(super) fn update_lanes_readiness(&mut self, host: u16) {
        for side in self.lanes() {
            self.update_lane_readiness(host, side);
        }
    }

    /// Tells a host's switch whether its adapter has room in one priority.
    pub(super) fn update_lane_readiness(&mut self, host: u16, side: Side) {
        let at = (host, side.lane());
        let has_room = self.on_fabric(|fabric, _, now_ps| fabric.has_room(at, now_ps));
        let switch = &mut self.hosts[usize::from(host)].switch;
        switch.set_ready(side, has_room);
    }

    /// Whether the adapter has no room for another frame of a priority, as far as its present state
    /// tells. A lazy adapter may have room that it does not know of yet.
    #[inline]
    pub(super) fn is_lane_full(&self, host: u16, side: Side) -> bool {
        !self.fabric.fits((host, side.lane()))
    }
}

/// Failures and observations of a fabric.
impl<F: PacketFabric> Net<F> {
    /// From now on captures see the frames that leave the ports that they follow, and pause frames
    /// that arrive.
    pub(crate) fn watch_captured(&mut self) {
        for port in self.fabric.ports().ids() {
            let capture = self.observers.capture.as_ref();
            let follows = |side| capture.is_some_and(|capture| capture.follows(port, side));
            if follows(capture::Side::Sent) || follows(capture::Side::Arrived) {
                self.on_fabric(|fabric, _, _| fabric.watch(port));
            }
        }
    }

    /// A cycle of pauses that cannot end, if there is one.
    pub fn deadlock(&self) -> Option<Deadlock> {
        self.fabric.deadlock()
    }

    /// The adapter of a host begins to pause its link although it has room, or stops doing so.
    pub fn storm(&mut self, host: usize, storms: bool) {
        let port = self.hosts[host].adapter.opposite();
        let priorities = if storms { u8::MAX } else { 0 };
        self.on_fabric(|fabric, _, now_ps| fabric.storm(port, priorities, now_ps));
    }

    /// The adapter of a host begins to ignore pauses and notifications, or obeys them again.
    pub fn babble(&mut self, host: usize, babbles: bool) {
        let host = host as u16;
        self.on_fabric(|fabric, _, now_ps| fabric.set_babbling(host, babbles, now_ps));
    }
}
