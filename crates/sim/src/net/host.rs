//! A host between its tenants' stacks and its adapter: the switch, and the packets and senders that
//! wait for the adapter.
//!
//! The adapter is a port of the fabric. If its queue has no bound, no sender waits, and a packet
//! costs only the offer to its port. Otherwise a sender that waits learns of room and departures in
//! two ways. Where the fabric knows them beforehand, the adapter has a source in the event queue
//! while a sender waits. Otherwise the fabric reports them by effects.

use std::{collections::VecDeque, slice::from_ref};

use prefetch_index::prefetch_index;
use sluicegate_fabric::{
    Frame, Handle,
    contract::Accepted,
    graph::{HostId, PortId},
};
use sluicegate_vswitch::{Handover, Side, Switch, Vnics, switch::Config};

use super::{ADAPTER, ConnectionEnd, EPHEMERAL_PORT, EndId, Forwarder, Net, PacketFabric, source};
use crate::{failures::Troubles, packet::NO_END};

/// The most bytes that headers take, with all options and the option of enforcement.
const HEADERS_BYTES: u32 = 14 + 40 + 60 + 16;

/// A packet that waits in a switch, and the end that has sent it.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub(super) packet: Handle,
    /// [`NO_END`] of a packet from the link.
    pub(super) end: EndId,
}

impl Waiting {
    /// A packet that has come over the link.
    pub(super) fn of_link(packet: Handle) -> Self {
        let end = NO_END;
        Self { packet, end }
    }
}

/// A server.
pub struct Host {
    /// The port of its adapter.
    pub adapter: PortId,
    /// The port between its tenants.
    pub local: PortId,
    /// The switch between its vNICs and its adapter, with enforcement.
    pub switch: Switch<Waiting, EndId>,
    /// Its processor, if forwarding takes time.
    pub(super) forwarder: Option<Box<Forwarder>>,
    below: Below,
    /// The source of the adapter is in the event queue.
    armed: bool,
    /// A sender of this host may have to wait for the adapter.
    pub(super) has_waiters: bool,
    /// Some sockets of this host count the data that the adapter has not sent yet.
    pub(super) counts_departures: bool,
    /// The state of the generator of initial sequence numbers.
    pub(super) isn: u32,
    /// The state of the generator of path values.
    pub(super) paths: u64,
    /// Connections opened so far, from which the next TCP or UDP port follows.
    opened: u32,
    /// The numbers of expired alarms, for reuse.
    pub(super) free_alarms: Vec<u32>,
    /// Payload of all packets that have come to stacks and sockets of this host.
    pub(crate) received_bytes: u64,
    pub(crate) troubles: Troubles,
}

/// Data that the adapter has not sent yet, and the ends that wait for their departure.
#[derive(Default)]
struct Below {
    /// By packet: the time at which the adapter will have sent it, the end that has sent it, and
    /// its payload in bytes.
    leaving: VecDeque<(u64, EndId, u16)>,
    /// The number of ends that wait until some of their data leave.
    throttled: u32,
    /// Ends that waited and whose data have left since.
    released: VecDeque<EndId>,
}

impl Host {
    /// Prefetches what each packet reads that arrives or leaves.
    #[inline]
    pub(super) fn fetch(&self) {
        prefetch_index(from_ref(&self.adapter), 0);
        prefetch_index(from_ref(&self.switch.vnics), 0);
        prefetch_index(from_ref(&self.troubles.diverts), 0);
    }

    /// Reads the memory that a packet needs to leave by this exit, on a host whose senders may have
    /// to wait. The result has no meaning; it keeps the reads from being removed.
    #[inline]
    pub fn prefetch(&self, to: Side) -> u64 {
        if !self.has_waiters {
            return 0;
        }
        u64::from(self.troubles.paused) ^ self.switch.prefetch(to)
    }

    /// An idle host.
    pub fn new(
        number: HostId,
        [adapter, local]: [PortId; 2],
        config: Config,
        vnics: Option<Vnics<EndId>>,
    ) -> Self {
        Self {
            adapter,
            local,
            switch: Switch::new(number.0, config, vnics),
            forwarder: None,
            below: Below::default(),
            armed: false,
            has_waiters: config.waits_for_adapter(),
            counts_departures: false,
            isn: adapter.0.wrapping_mul(0x9e37_79b9),
            paths: u64::from(adapter.0) << 32,
            opened: 0,
            free_alarms: Vec::new(),
            received_bytes: 0,
            troubles: Troubles::default(),
        }
    }

    /// Some stacks of this host have small queues ([`sluicegate_tcp::Config::small_queues`]).
    pub fn with_small_queues(&mut self) {
        (self.has_waiters, self.counts_departures) = (true, true);
    }

    /// Packets pass through the switch by this processor. `lossy` are the priorities whose packets
    /// full places drop.
    #[must_use]
    pub fn with_forwarder(mut self, forwarder: Forwarder, lossy: u8) -> Self {
        let switch = self.switch.with_priorities(forwarder.priorities(), lossy);
        self.switch = switch.with_counts();
        for side in forwarder.sides() {
            self.switch.set_ready(side, false);
        }
        self.forwarder = Some(Box::new(forwarder));
        (self.has_waiters, self.troubles.diverts) = (true, true);
        self
    }

    /// Its switch has a processor.
    pub(crate) fn forwards_in_time(&self) -> bool {
        self.forwarder.is_some()
    }

    /// The adapter has room in the lane behind an exit, because time has passed.
    #[inline]
    pub(super) fn note_room(&mut self, exit: Side) {
        if self.forwarder.is_none() {
            self.switch.set_ready(exit, true);
        }
    }

    /// The TCP or UDP port from which a tenant of this host opens the next connection.
    pub(super) fn ephemeral_port(&mut self) -> u16 {
        let port = EPHEMERAL_PORT + (self.opened % 28_232) as u16;
        self.opened += 1;
        port
    }

    pub(super) fn isn(&mut self) -> u32 {
        self.isn = self.isn.wrapping_mul(0x915f_77f5).wrapping_add(0x9e37_79b9);
        self.isn
    }

    /// The adapter is given a packet only when it has room.
    #[inline]
    pub(super) fn waits_for_adapter(&self) -> bool {
        self.switch.config().waits_for_adapter()
    }

    /// The port behind an exit of the switch.
    fn port(&self, to: Side) -> PortId {
        match to {
            Side::Uplink | Side::Lane(_) => self.adapter,
            Side::Vnic(_) => self.local,
        }
    }
}

impl<F: PacketFabric> Net<F> {
    /// The value of [`ConnectionEnd::sides`].
    pub(super) fn sides(&self, end: &ConnectionEnd) -> (Side, Side) {
        let ConnectionEnd {
            addressing,
            host,
            priority,
            ..
        } = end;
        let machine = &self.hosts[host.index()];
        let side = |vnic| match &machine.forwarder {
            Some(forwarder) => forwarder.vnic(vnic, *priority),
            None => Side::Vnic(vnic),
        };
        let from = side(self.layout.vnic(addressing.tenant));
        let number = |side| match side {
            Side::Vnic(number) => number,
            Side::Uplink | Side::Lane(_) => 0,
        };
        let peer_vnic = || number(side(self.layout.vnic(addressing.peer_tenant)));
        match machine.switch.forward(addressing.peer_host.0, peer_vnic) {
            Side::Uplink => (from, self.exit(*priority)),
            to => (from, to),
        }
    }

    /// The value of [`ConnectionEnd::straight_to`].
    pub(super) fn straight_to(&self, end: &ConnectionEnd) -> Option<PortId> {
        let host = &self.hosts[end.host.index()];
        (!host.has_waiters).then(|| host.port(end.sides.1))
    }

    /// Sends the pending packets of an end as far as its turn allows, on a host whose senders may
    /// have to wait.
    pub(super) fn serve_end_in_turn(&mut self, host: HostId, end: EndId) {
        self.drain_departures(host);
        self.note_room(host);
        if !self.sockets.ends[end as usize].held {
            while self.may_send(host, end) && self.transmit(host, end) == Some(true) {}
        }
        self.throttle(host, end);
        self.arm_adapter(host);
    }

    /// Whether the next packet of an end has its turn. If the end has no packet, the answer does
    /// not matter.
    #[inline]
    fn may_send(&mut self, host: HostId, end: EndId) -> bool {
        self.hosts[host.index()].switch.is_calm() || self.has_turn(host, end)
    }

    #[inline(never)]
    fn has_turn(&mut self, host: HostId, end: EndId) -> bool {
        let now_ns = self.now_ns();
        let state = &self.sockets.ends[end as usize];
        let switch = &self.hosts[host.index()].switch;
        if !switch.config().waits_for_adapter() || switch.lets_through(state.sides.1) {
            return true;
        }
        let of_stack = state.tcp.as_ref().filter(|tcp| tcp.has_output(now_ns));
        let next_bytes = match &state.datagrams {
            None => of_stack.map(|tcp| tcp.mss()),
            Some(datagrams) => datagrams.next_bytes(),
        };
        let Some(next_bytes) = next_bytes else {
            return false;
        };
        let bytes = next_bytes + HEADERS_BYTES;
        let (from, to) = self.sockets.ends[end as usize].sides;
        let switch = &mut self.hosts[host.index()].switch;
        let may = switch.may_send(from, end, to, bytes);
        self.sockets.ends[end as usize].held = !may;
        may
    }

    /// A packet passes from the vNIC stage to the switch, on a host whose senders may have to wait.
    pub(super) fn send_in_turn(&mut self, host: HostId, end: EndId, packet: Handle) {
        let (from, to) = self.sockets.ends[end as usize].sides;
        let waiting = Waiting { packet, end };
        let switch = &mut self.hosts[host.index()].switch;
        // The most frequent case, in which the length of the packet does not matter.
        if switch.lets_through(to) {
            return self.leave(host, to, waiting);
        }
        let bytes = self.fabric.ports().pool[packet].bytes();
        let handover = switch.offer(from, end, to, waiting, bytes);
        self.handed_over(host, to, waiting, handover);
    }

    /// A packet that the vNIC stage has made follows a packet of this end.
    pub(super) fn send_after(&mut self, host: HostId, end: EndId, packet: Handle) {
        let (from, to) = self.sockets.ends[end as usize].sides;
        let bytes = self.fabric.ports().pool[packet].bytes();
        let waiting = Waiting { packet, end };
        let machine = &mut self.hosts[host.index()];
        let handover = match machine.forwarder {
            None => machine.switch.append(from, to, waiting, bytes),
            Some(_) => machine.switch.arrive(from, to, waiting, bytes),
        };
        self.handed_over(host, to, waiting, handover);
    }

    fn handed_over(&mut self, host: HostId, to: Side, waiting: Waiting, handover: Handover) {
        match handover {
            Handover::Through => self.leave(host, to, waiting),
            Handover::Taken if self.hosts[host.index()].forwarder.is_some() => {
                self.forward_later(host, to);
            }
            Handover::Taken => self.arm_adapter(host),
            Handover::Dropped(_) | Handover::Held => {
                debug_assert_ne!(handover, Handover::Held, "who may be held back has asked");
                let Waiting { packet, end } = waiting;
                self.left(end, self.fabric.ports().pool[packet].payload());
                self.fabric.pool_mut().release(packet);
            }
        }
    }

    /// A packet leaves the switch by an exit.
    fn leave(&mut self, host: HostId, to: Side, waiting: Waiting) {
        self.pass_on(host, to, waiting);
        match to.is_uplink() {
            true => self.update_readiness(host, to),
            false => self.update_all_readiness(host),
        }
    }

    /// A packet of a tenant goes from the switch to the port behind an exit.
    #[inline]
    pub(super) fn pass_on(&mut self, host: HostId, to: Side, waiting: Waiting) {
        let Waiting { packet, end } = waiting;
        let port = self.hosts[host.index()].port(to);
        let payload = self.fabric.ports().pool[packet].payload();
        let sender = self.sockets.ends[end as usize].sender(end);
        match self.offer(port, packet, sender) {
            // An effect reports when it has left.
            Accepted::Waits => {}
            Accepted::Leaves | Accepted::Away(_) if payload > 0 && to.is_uplink() => {
                let leaves_ps = self.fabric.ports().free_ps(port);
                let below = &mut self.hosts[host.index()].below;
                below.leaving.push_back((leaves_ps, end, payload));
            }
            Accepted::Leaves | Accepted::Away(_) | Accepted::Dropped => {
                self.left(end, payload);
                if payload > 0 && self.hosts[host.index()].forwards_in_time() {
                    self.unhold(host, end);
                }
            }
        }
    }

    /// A stack that waited until its data have left the host goes on.
    fn unhold(&mut self, host: HostId, end: EndId) {
        if std::mem::take(&mut self.sockets.ends[end as usize].throttled) {
            let below = &mut self.hosts[host.index()].below;
            below.throttled -= 1;
            below.released.push_back(end);
        }
    }

    /// Counts data of an end that have left its host, in bytes.
    pub(super) fn left(&mut self, end: EndId, payload: u16) {
        if payload > 0 {
            self.sockets.ends[end as usize].left(payload);
        }
    }

    /// Counts the data that the adapter has sent by now.
    pub(super) fn drain_departures(&mut self, host: HostId) {
        let below = &mut self.hosts[host.index()].below;
        while let Some(&(leaves_ps, end, payload)) = below.leaving.front() {
            if leaves_ps > self.clock.now_ps {
                return;
            }
            below.leaving.pop_front();
            let state = &mut self.sockets.ends[end as usize];
            state.left(payload);
            if std::mem::take(&mut state.throttled) {
                below.throttled -= 1;
                below.released.push_back(end);
            }
        }
    }

    /// Notes that a stack waits until data that it has sent leave the host, if it does.
    #[inline]
    fn throttle(&mut self, host: HostId, end: EndId) {
        if self.hosts[host.index()].counts_departures {
            self.throttle_if_held_back(host, end);
        }
    }

    #[inline(never)]
    fn throttle_if_held_back(&mut self, host: HostId, end: EndId) {
        let now_ns = self.now_ns();
        let state = &mut self.sockets.ends[end as usize];
        let tcp = state.tcp.as_ref().filter(|_| !state.throttled);
        if tcp.is_some_and(|tcp| tcp.is_held_back(now_ns)) {
            state.throttled = true;
            self.hosts[host.index()].below.throttled += 1;
        }
    }

    /// A stack stops waiting for its data to leave the host.
    pub(super) fn unthrottle(&mut self, host: HostId) {
        self.hosts[host.index()].below.throttled -= 1;
    }

    /// Sets the event of the adapter for its next departure, or for the time at which it has room,
    /// if a sender waits for it and no effect will report it.
    #[inline]
    pub(super) fn arm_adapter(&mut self, host: HostId) {
        if !self.hosts[host.index()].armed {
            self.arm_adapter_now(host);
        }
    }

    #[inline(never)]
    fn arm_adapter_now(&mut self, host: HostId) {
        let machine = &self.hosts[host.index()];
        let below = &machine.below;
        let first = below.leaving.front().map(|&(leaves_ps, ..)| leaves_ps);
        let leaves_ps = match (below.throttled, below.released.is_empty()) {
            (0, true) => None,
            (_, true) => first,
            (_, false) => Some(self.clock.now_ps),
        };
        let waits = machine.forwarder.is_none() && machine.switch.waits();
        let room_ps = self.room_ps(host).filter(|_| waits);
        let at_ps = leaves_ps.into_iter().chain(room_ps).min();
        if let Some(at_ps) = at_ps {
            self.hosts[host.index()].armed = true;
            let source = source(ADAPTER, host.0);
            self.clock.wheel.push(at_ps.max(self.clock.now_ps), source);
        }
    }

    /// The event of the adapter: it has sent a packet.
    pub(super) fn adapter_is_free(&mut self, host: HostId) {
        self.hosts[host.index()].armed = false;
        self.serve(host);
    }

    /// Packets and senders that wait for the adapter get their turn.
    pub(crate) fn serve(&mut self, host: HostId) {
        let at = host.index();
        if self.hosts[at].troubles.paused || !self.hosts[at].has_waiters {
            return;
        }
        self.drain_departures(host);
        if self.hosts[at].forwarder.is_some() {
            self.drive_switch(host);
        } else {
            self.update_all_readiness(host);
            for exit in self.exits() {
                self.send_queued_packets(host, exit);
            }
        }
        self.resume_waiting_senders(host);
    }

    /// Packets and senders that wait for room in a priority of the adapter get their turn.
    pub(super) fn serve_lane(&mut self, host: HostId, side: Side) {
        let machine = &self.hosts[host.index()];
        if machine.troubles.paused || !machine.has_waiters {
            return;
        }
        if machine.forwarder.is_some() {
            return self.drive_switch(host);
        }
        self.update_readiness(host, side);
        self.send_queued_packets(host, side);
        self.resume_waiting_senders(host);
    }

    /// The adapter takes packets from the switch while it has room.
    fn send_queued_packets(&mut self, host: HostId, side: Side) {
        let at = host.index();
        while self.hosts[at].switch.is_ready(side) && self.send_queued_packet(host, side) {}
    }

    fn resume_waiting_senders(&mut self, host: HostId) {
        let at = host.index();
        while self.resume_one_sender(host) {}
        while let Some(end) = self.hosts[at].below.released.pop_front() {
            self.serve_end(end);
        }
        self.arm_adapter(host);
    }

    /// The adapter takes a packet from the switch; false if no packet waits.
    fn send_queued_packet(&mut self, host: HostId, side: Side) -> bool {
        let switch = &mut self.hosts[host.index()].switch;
        let waiting = switch.take(side);
        if let Some(waiting) = waiting {
            self.leave(host, side, waiting);
        }
        waiting.is_some()
    }

    /// One sender that was held back has its turn; false if no sender has.
    pub(super) fn resume_one_sender(&mut self, host: HostId) -> bool {
        let Some(end) = self.hosts[host.index()].switch.resume() else {
            return false;
        };
        self.sockets.ends[end as usize].held = false;
        self.transmit(host, end);
        // Other senders have their turn before the rest of its packets.
        while self.may_send(host, end) && self.transmit(host, end) == Some(true) {}
        self.throttle(host, end);
        self.set_timer(end);
        true
    }
}
