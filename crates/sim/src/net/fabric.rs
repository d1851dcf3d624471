//! The network as the driver of its fabric: timers, effects, and packets to and from hosts.

use std::sync::Arc;

use sluicegate_fabric::{
    Fabric, Handle, Routes,
    cee::PauseFrame,
    contract::{Driven, Driver, Effect, Lane, OwnOf, Timer, Timers},
    graph::{HostId, PortId},
};
use sluicegate_vswitch::Side;

use super::{CONTROL, EndId, Net, PORT, RESEQUENCE, TRANSMIT, source};
use crate::{capture, packet::Packet, wheel::Wheel};

/// A fabric that carries simulated packets.
pub trait PacketFabric: Fabric<Frame = Packet> + Send {
    /// Carries out an effect that only this kind of fabric has.
    fn carry_out(net: &mut Net<Self>, effect: Self::Own);

    /// A pause frame from another part takes effect at a port at this time.
    fn hear(net: &mut Net<Self>, port: PortId, frame: PauseFrame, at_ps: u64);

    /// The adapter of a host pauses these priorities of its link, and no others.
    fn pause_link(_net: &mut Net<Self>, _host: HostId, _priorities: u8) {}

    /// Switches change their routes, which sources may have to know.
    fn reroute(_net: &mut Net<Self>, _routes: &Arc<Routes>) {}
}

/// Plain Ethernet.
pub type Plain = sluicegate_fabric::Plain<Packet>;

impl PacketFabric for Plain {
    fn carry_out(_net: &mut Net<Self>, effect: Self::Own) {
        match effect {}
    }

    fn hear(_net: &mut Net<Self>, _port: PortId, _frame: PauseFrame, _at_ps: u64) {
        unreachable!("plain Ethernet has no pauses");
    }
}

impl Timers for Wheel {
    #[inline(always)]
    fn set(&mut self, timer: Timer, at_ps: u64) {
        let source = match timer {
            Timer::Arrival(port) => source(PORT, port.0),
            Timer::Transmit(port) => source(TRANSMIT, port.0),
            Timer::Control(port) => source(CONTROL, port.0),
            Timer::Resequence(host) => source(RESEQUENCE, host.0),
        };
        self.push(at_ps, source);
    }
}

impl<F: PacketFabric> Driver for Net<F> {
    type Fabric = F;
    type Timers = Wheel;

    #[inline(always)]
    fn driven(&mut self) -> (&mut Driven<F>, &mut Wheel, u64) {
        (&mut self.fabric, &mut self.clock.wheel, self.clock.now_ps)
    }

    fn carry_out(&mut self, effect: Effect<OwnOf<Self>>) {
        match effect {
            Effect::Timer(timer, at_ps) => self.clock.wheel.set(timer, at_ps),
            Effect::Sent(port, packet, leaves_ps) => {
                self.show_at(port, capture::Side::Sent, packet, leaves_ps);
            }
            Effect::Left(host, end, packet) => self.has_left(host, end, packet),
            Effect::Lost(host, end, packet) => {
                self.has_left(host, end, packet);
                self.fabric.pool_mut().release(packet);
            }
            Effect::Room(host, priority) => self.serve_lane(host, exit(priority)),
            Effect::Own(effect) => F::carry_out(self, effect),
        }
    }
}

/// The exit of a host's switch that leads to a lane of its adapter.
fn exit(lane: u8) -> Side {
    match lane {
        0 => Side::Uplink,
        _ => Side::Lane(lane),
    }
}

/// The lane of an adapter behind an exit of its host's switch.
fn lane((host, port): (HostId, PortId), exit: Side) -> Lane {
    Lane {
        host,
        port,
        number: exit.lane(),
    }
}

/// Timers and effects.
impl<F: PacketFabric> Net<F> {
    /// A timer of the fabric is due.
    pub(super) fn fabric_timer(&mut self, timer: Timer) {
        self.on_fabric(|fabric, timers, now_ps| fabric.timer(timers, timer, now_ps));
    }

    /// A packet has left its host, or the adapter has lost it. The stack or socket that has sent it
    /// no longer counts its payload, and a stack that waited for this departure may send.
    fn has_left(&mut self, host: HostId, end: EndId, packet: Handle) {
        if !self.hosts[host.index()].counts_departures {
            return;
        }
        let payload = self.fabric.ports().pool[packet].payload();
        self.left(end, payload);
        if std::mem::take(&mut self.sockets.ends[end as usize].throttled) {
            self.unthrottle(host);
            self.serve_end(end);
        }
    }
}

/// Packets to stacks.
impl<F: PacketFabric> Net<F> {
    /// A packet reaches a host over a port.
    #[inline(always)]
    pub(super) fn reach_host(&mut self, port: PortId, host: HostId, packet: Handle) {
        let at = (port, host);
        let received =
            self.on_fabric(|fabric, timers, now_ps| fabric.receive(timers, at, packet, now_ps));
        if let Some(packet) = received {
            self.enter_host(port, host, packet);
            self.receive_following(port, host);
        }
    }

    /// The adapter of a host stops waiting for missing packets and passes on those that have
    /// overtaken them.
    pub(super) fn give_up(&mut self, host: HostId) {
        self.fabric_timer(Timer::Resequence(host));
        let port = self.hosts[host.index()].adapter.opposite();
        self.receive_following(port, host);
    }

    /// The host receives the packets that follow another one.
    #[inline(always)]
    fn receive_following(&mut self, port: PortId, host: HostId) {
        while let Some(packet) = self.on_fabric(|fabric, _, _| fabric.next_received()) {
            self.enter_host(port, host, packet);
        }
    }

    /// A packet that is next in order passes from the receiving adapter to its host.
    #[inline(always)]
    fn enter_host(&mut self, port: PortId, host: HostId, packet: Handle) {
        self.show(port, capture::Side::Arrived, packet);
        self.receive(port, host, packet);
    }
}

/// The room in adapters.
impl<F: PacketFabric> Net<F> {
    /// From now on the sockets of a host learn which of their packets have left it.
    pub(super) fn count_departures(&mut self, host: HostId) {
        self.hosts[host.index()].counts_departures = true;
        self.on_fabric(|fabric, _, now_ps| fabric.count_departures(host, now_ps));
    }

    /// The exit of a host's switch for packets of this priority that leave the host.
    pub(super) fn exit(&self, priority: u8) -> Side {
        exit(priority.min(self.fabric.lanes() - 1))
    }

    /// The exits of a host's switch to its adapter.
    pub(super) fn exits(&self) -> impl Iterator<Item = Side> + use<F> {
        (0..self.fabric.lanes()).map(exit)
    }

    /// The lanes of a host's adapter, and the exits of its switch that lead to them.
    #[inline(always)]
    fn lanes(&self, host: HostId) -> impl Iterator<Item = (Side, Lane)> + use<F> {
        let port = self.hosts[host.index()].adapter;
        self.exits()
            .map(move |exit| (exit, lane((host, port), exit)))
    }

    /// Tells a host's switch whether its adapter has room in a lane.
    pub(super) fn update_readiness(&mut self, host: HostId, exit: Side) {
        let machine = &self.hosts[host.index()];
        if machine.waits_for_adapter() {
            let lane = lane((host, machine.adapter), exit);
            let has_room = self.on_fabric(|fabric, _, now_ps| fabric.has_room(lane, now_ps));
            self.hosts[host.index()].switch.set_ready(exit, has_room);
        }
    }

    /// Tells a host's switch for which lanes its adapter has room.
    pub(super) fn update_all_readiness(&mut self, host: HostId) {
        for exit in self.exits() {
            self.update_readiness(host, exit);
        }
    }

    /// Tells a host's switch which lanes have room because time has passed. An effect reports room
    /// that appears otherwise.
    #[inline]
    pub(super) fn note_room(&mut self, host: HostId) {
        for (exit, lane) in self.lanes(host) {
            let room_ps = self.fabric.room_ps(lane);
            if room_ps.is_some_and(|room_ps| room_ps <= self.clock.now_ps) {
                self.hosts[host.index()].note_room(exit);
            }
        }
    }

    /// When the adapter of a host has room in any lane; `None` where an effect reports it.
    #[inline]
    pub(super) fn room_ps(&self, host: HostId) -> Option<u64> {
        let lanes = self.lanes(host);
        lanes
            .filter_map(|(_, lane)| self.fabric.room_ps(lane))
            .min()
    }

    /// From now on captures see the frames that leave the ports that they follow.
    pub(crate) fn watch_captured(&mut self) {
        for port in self.fabric.ports().ids() {
            let capture = self.observers.capture.as_ref();
            let follows = |side| capture.is_some_and(|capture| capture.follows(port, side));
            if follows(capture::Side::Sent) || follows(capture::Side::Arrived) {
                self.on_fabric(|fabric, _, _| fabric.watch(port));
            }
        }
    }
}
