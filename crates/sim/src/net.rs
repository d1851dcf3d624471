//! The simulated machines and network, or one part of them: the state, and the handling of an
//! event.
//!
//! The actions of a host or a switch depend only on its own events, in the order (time, source).
//! Sources of one host are numbered in the order in which that host made them. The other hosts of a
//! part therefore have no influence, and a run gives the same results in one part and in several.

mod ahead;
mod clock;
mod counts;
mod datagrams;
mod end;
mod exchange;
mod fabric;
mod forwarder;
mod host;
mod inspect;
mod life;
mod process;
mod route;
mod sockets;
mod table;

pub(crate) use sockets::EPHEMERAL_PORT;

use std::sync::Arc;

use sluicegate_core::{
    abi::{FlowKey, HashKey},
    hash::flow_hash,
    number::narrow,
    segment::{Action, Direction, edit},
};
use sluicegate_fabric::{
    Graph, Handle, Pool, Routes,
    contract::{Accepted, Driven, Driver, Sender, Timer},
    graph::{HostId, Node, PortId},
    routing::PathValues,
};
use sluicegate_tcp::{
    Endpoint, Taker,
    segment::{Segment, flags},
};

pub(crate) use self::clock::{LATE, READER, source};
use self::life::Life;
pub use self::{
    clock::Clock,
    datagrams::Datagrams,
    end::ConnectionEnd,
    fabric::{PacketFabric, Plain},
    forwarder::{Forwarder, LinkPauses, Speed},
    host::Host,
    inspect::Known,
    process::Processes,
    table::{Notice, Owner, Sockets},
};
use self::{
    clock::{
        ADAPTER, ALARM, CONTROL, END, FORWARD, KIND_BITS, OVER, PORT, RESEQUENCE, TRANSMIT, WAKE,
    },
    counts::Counts,
    table::Ends,
};
pub use crate::layout::Tenant;
use crate::{
    capture::{self, Capture, Seen},
    exports::Post,
    frame::Route,
    layout::{Layout, Partition},
    measure::Backlogs,
    packet::{Addressing, Body, ColdFields, NO_COLD_FIELDS, NO_END, Packet, TcpHeader},
    wheel::Source,
};

/// The number of an end of a connection in the part of its host.
pub type EndId = u32;

/// Events between audits in debug builds.
const AUDIT_EVENTS: u64 = 4096;

/// The state of a part, without its actors.
pub struct Net<F = Plain> {
    pub(crate) clock: Clock,
    pub(crate) layout: Arc<Layout>,
    /// The number of this part, and its exports to other parts.
    pub(crate) post: Post,
    /// Links, switches and the sending sides of hosts.
    pub fabric: Driven<F>,
    /// Fields that few packets have, by handle.
    cold_fields: Vec<ColdFields>,
    /// Servers. The servers of other parts stay idle.
    pub hosts: Vec<Host>,
    /// The sockets and alarms of actors.
    pub sockets: Sockets,
    path_key: HashKey,
    /// Of ends that have none of their own.
    path_values: PathValues,
    /// Some ends' packets have path values of their own, and of some these depend on arrivals.
    own_paths: bool,
    noted_paths: bool,
    /// Ways through switches.
    routes: Arc<Routes>,
    /// The state of the routing scheme at the switches of this part.
    routing: route::State,
    /// Switches clear the ECN field.
    pub bleach: bool,
    /// Switches learn from what passes them ([`Routes::snoop`], [`Routes::pass`]), or some
    /// priorities have schemes of their own.
    pub(crate) snoops: bool,
    /// Switches rewrite path values ([`Routes::pass`]).
    rewrites: bool,
    /// See [`ahead::MANY_ENDS`].
    has_many_ends: bool,
    /// One of the two: switches do more with a packet than to forward it.
    looks: bool,
    /// Captures and measurements of packets under way.
    pub observers: Observers,
    /// Scratch memory of [`Net::fetch`].
    ahead: ahead::Ahead,
    counts: Counts,
}

/// Captures and measurements of packets under way.
#[derive(Default)]
pub struct Observers {
    /// The backlogs that arriving packets met; `None` while they are not measured.
    pub backlogs: Option<Backlogs>,
    /// The capture of packets, if there is one.
    pub capture: Option<Box<Capture>>,
}

/// The arguments of [`Net::new`].
pub struct Parts<F = Plain> {
    /// The fabric, at time 0.
    pub fabric: F,
    /// Its nodes and links.
    pub graph: Graph,
    /// The routing scheme of the switches.
    pub routes: Routes,
    /// Servers.
    pub hosts: Vec<Host>,
    /// Tenants.
    pub tenants: Vec<Tenant>,
    /// Length of the IP header.
    pub ip_bytes: u32,
    /// The seed of initial sequence numbers.
    pub seed: u64,
}

impl<F: PacketFabric> Net<F> {
    /// A network in one part, at time 0.
    pub fn new(parts: Parts<F>) -> Self {
        let layout = Layout::new(
            &parts.graph,
            parts.routes,
            parts.tenants,
            parts.ip_bytes,
            Partition::whole(),
        );
        Self::part(Arc::new(layout), 0, parts.fabric, parts.hosts, parts.seed)
    }

    /// One part, at time 0. It takes the whole fabric and all hosts, and uses only its own.
    pub fn part(
        layout: Arc<Layout>,
        part: usize,
        mut fabric: F,
        mut hosts: Vec<Host>,
        seed: u64,
    ) -> Self {
        let parts = layout.partition.parts();
        if parts > 1 {
            for port in PortId::first(layout.next_hops.len()) {
                if layout.part_of_port(port) == part && layout.part_beyond(port) != part {
                    fabric.set_away(port);
                }
            }
        }
        for host in &mut hosts {
            host.isn ^= (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        }
        let mut net = Self {
            clock: Clock::default(),
            post: Post::new(part, parts),
            path_values: layout.routes.path_values(),
            own_paths: layout.routes.path_values().differ_by_packet(),
            noted_paths: layout.routes.path_values().follow_arrivals(),
            snoops: route::snoops(&layout.routes),
            rewrites: layout.routes.rewrites(),
            has_many_ends: false,
            looks: route::snoops(&layout.routes),
            routes: Arc::clone(&layout.routes),
            layout,
            fabric: Driven::new(fabric),
            cold_fields: Vec::new(),
            hosts,
            sockets: Sockets::default(),
            path_key: path_key(seed),
            routing: route::State::default(),
            bleach: false,
            observers: Observers::default(),
            ahead: ahead::Ahead::default(),
            counts: Counts::default(),
        };
        for host in HostId::first(net.hosts.len()) {
            if net.hosts[host.index()].counts_departures {
                net.count_departures(host);
            }
        }
        net
    }

    /// Simulated time.
    pub fn now_ps(&self) -> u64 {
        self.clock.now_ps
    }

    /// Simulated time in the unit of stacks.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Bytes queued at a port.
    pub fn backlog_bytes(&mut self, port: PortId) -> u64 {
        self.on_fabric(|fabric, _, now_ps| fabric.backlog_bytes(port, now_ps))
    }

    /// Packets transmitted on links so far.
    pub fn hops(&self) -> u64 {
        self.fabric.hops()
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.clock.events
    }

    /// Advances the time to `until_ps` without an event.
    pub fn pass(&mut self, until_ps: u64) {
        self.clock.pass(until_ps);
    }

    /// Handles the next event if it comes before `until_ps`; false if there is none.
    #[inline(always)]
    pub fn step_before(&mut self, until_ps: u64) -> bool {
        let Some((time_ps, source)) = self.clock.wheel.pop_before(until_ps) else {
            return false;
        };
        if self.clock.wheel.is_fresh() {
            self.fetch();
        }
        self.handle(time_ps, source);
        if cfg!(debug_assertions) && self.clock.events % AUDIT_EVENTS == 0 {
            assert_eq!(self.account(), Ok(()), "at {} ps", self.clock.now_ps);
        }
        true
    }

    #[inline(always)]
    fn handle(&mut self, time_ps: u64, source: Source) {
        self.clock.begin_event(time_ps);
        // By far the most frequent kind.
        match source >> KIND_BITS {
            PORT => self.arrive(PortId(source & ((1 << KIND_BITS) - 1))),
            _ => self.handle_other(time_ps, source),
        }
    }

    #[inline(never)]
    fn handle_other(&mut self, time_ps: u64, source: Source) {
        let index = source & ((1 << KIND_BITS) - 1);
        match source >> KIND_BITS {
            ADAPTER => self.adapter_is_free(HostId(index)),
            END => self.end_timer(index, time_ps),
            LATE => self.arrive_late(PortId(index)),
            READER => self.reader_turn(index),
            TRANSMIT => self.fabric_timer(Timer::Transmit(PortId(index))),
            CONTROL => self.fabric_timer(Timer::Control(PortId(index))),
            RESEQUENCE => self.give_up(HostId(index)),
            OVER => self.forget(index),
            WAKE => self.wake(index),
            FORWARD => self.forwarder_is_due(HostId(index), time_ps),
            _ => self.alarm(index),
        }
    }

    /// The first packet under way on a port reaches the far end.
    #[inline(always)]
    fn arrive(&mut self, port: PortId) {
        let Some(packet) = self.arrive_on_fabric(port) else {
            return;
        };
        if self.fabric.is_impaired(port) {
            self.arrive_impaired(port, packet);
        } else {
            self.hand_over(port, packet);
        }
    }

    /// Hands a packet at the far end of a port to the next hop.
    #[inline(always)]
    pub(crate) fn hand_over(&mut self, port: PortId, packet: Handle) {
        match self.layout.next_hops[port.index()] {
            Node::Host(host) => self.reach_host(port, host, packet),
            Node::Switch(switch) => {
                if self.bleach {
                    self.fabric.pool_mut()[packet].bleach();
                }
                let out = match self.looks {
                    false => self.choose(switch, packet),
                    true => self.look_and_choose(port, switch, packet),
                };
                if let Some(out) = out {
                    self.forward([port, out], packet);
                }
            }
        }
    }

    /// A packet that has arrived over the first port leaves its switch by the second.
    #[inline(always)]
    fn forward(&mut self, ports: [PortId; 2], packet: Handle) {
        self.note_backlog(ports[1]);
        let accepted = self.forward_on_fabric(ports, packet);
        self.after_offer(ports[1], packet, accepted);
    }

    /// Offers a packet to a port of its host.
    #[inline]
    fn offer(&mut self, port: PortId, packet: Handle, sender: Sender) -> Accepted {
        self.note_backlog(port);
        let accepted = self
            .on_fabric(|fabric, timers, now_ps| fabric.offer(timers, port, packet, sender, now_ps));
        self.after_offer(port, packet, accepted);
        accepted
    }

    /// Completes the offer of a packet to a port.
    #[inline(always)]
    fn after_offer(&mut self, port: PortId, packet: Handle, accepted: Accepted) {
        match accepted {
            Accepted::Leaves => {}
            Accepted::Away(arrival_ps) => self.export(port, packet, arrival_ps),
            Accepted::Waits | Accepted::Dropped => return,
        }
        self.show(port, capture::Side::Sent, packet);
    }

    /// Counts the backlog that a packet meets, if the backlogs of the port are measured.
    #[inline(always)]
    fn note_backlog(&mut self, port: PortId) {
        let backlogs = self.observers.backlogs.as_ref();
        if backlogs.is_some_and(|backlogs| backlogs.follows(port)) {
            let bytes = self.backlog_bytes(port);
            if let Some(backlogs) = &mut self.observers.backlogs {
                backlogs.met(port, bytes);
            }
        }
    }

    /// Shows a packet to captures at this port.
    #[inline(always)]
    pub(crate) fn show(&mut self, port: PortId, side: capture::Side, packet: Handle) {
        let capture = self.observers.capture.as_ref();
        if capture.is_some_and(|capture| capture.follows(port, side)) {
            self.show_now(port, side, packet);
        }
    }

    #[cold]
    fn show_now(&mut self, port: PortId, side: capture::Side, packet: Handle) {
        let now_ps = self.clock.now_ps;
        let at_ps = match side {
            // A token bucket may have sent the frame in the past.
            capture::Side::Sent => now_ps.max(self.fabric.ports().free_ps(port)),
            capture::Side::Arrived => now_ps,
        };
        self.show_at(port, side, packet, at_ps);
    }

    #[cold]
    fn show_at(&mut self, port: PortId, side: capture::Side, handle: Handle, at_ps: u64) {
        let Some(capture) = &mut self.observers.capture else {
            return;
        };
        let packet = &self.fabric.ports().pool[handle];
        let seen = Seen {
            port,
            side,
            now_ps: self.clock.now_ps,
            at_ps,
            priority: self.fabric.priority(handle),
        };
        if let Some(notification) = packet.notification() {
            return capture.cnm(seen, &notification);
        }
        let cold = cold_of(&self.cold_fields, handle, packet);
        let ends = match self.sockets.ends.get(packet.to as usize) {
            Some(end) => (
                [end.addressing.peer_tenant, end.addressing.tenant],
                [end.addressing.peer_port, end.addressing.port],
            ),
            None => (cold.tenants, cold.ports),
        };
        let route = route(&self.layout.tenants, ends);
        capture.packet(seen, packet, &cold.blocks, &route);
    }

    /// Puts a packet into the pool.
    #[inline]
    fn keep(&mut self, packet: Packet, cold: &ColdFields) -> Handle {
        let handle = self.fabric.pool_mut().insert(packet);
        self.keep_cold(handle, &packet, cold);
        handle
    }

    /// Stores the cold fields of a packet in the pool, if it has any.
    #[inline]
    fn keep_cold(&mut self, handle: Handle, packet: &Packet, cold: &ColdFields) {
        if packet.has_cold_fields() {
            store_cold(&mut self.cold_fields, handle, *cold);
        }
    }

    /// Makes a copy of a packet.
    pub(crate) fn copy(&mut self, handle: Handle) -> Handle {
        let packet = self.fabric.ports().pool[handle];
        let cold = *cold_of(&self.cold_fields, handle, &packet);
        let copy = self.on_fabric(|fabric, _, _| fabric.copy(handle));
        self.keep_cold(copy, &packet, &cold);
        copy
    }

    /// A packet arrives at the host of its receiver.
    #[inline(never)]
    pub(crate) fn receive(&mut self, port: PortId, host: HostId, handle: Handle) {
        if self.hosts[host.index()].troubles.diverts {
            return self.divert(port, host, handle);
        }
        self.hand_to_stack(host, handle);
    }

    /// A packet arrives at a host that stands still, or whose switch takes time.
    #[inline(never)]
    fn divert(&mut self, port: PortId, host: HostId, handle: Handle) {
        let machine = &mut self.hosts[host.index()];
        // The ring of the adapter fills while the host stands still.
        let has_ring = machine.forwards_in_time() && port != machine.local;
        match machine.troubles.paused && !has_ring {
            true => machine.troubles.keep(port, handle),
            false => self.arrive_at_switch(port, host, handle),
        }
    }

    /// A packet that has arrived passes to the stack or the socket of its receiver.
    #[inline(always)]
    fn hand_to_stack(&mut self, host: HostId, handle: Handle) {
        self.note_path(handle);
        let packet = &self.fabric.ports().pool[handle];
        self.hosts[host.index()].received_bytes += u64::from(packet.payload());
        let header = match &packet.body {
            Body::Segment(header) if !header.has_cold_fields() => header,
            _ => return self.receive_with_cold_fields(host, handle),
        };
        let end = packet.to;
        if self.hosts[host.index()].switch.vnics.is_some() {
            let header = *header;
            self.fabric.pool_mut().release(handle);
            return self.pass_up(host, end, header, &mut { NO_COLD_FIELDS });
        }
        // The stack is part of this function, so that the segment is never stored as a whole.
        let segment = header.segment(&NO_COLD_FIELDS.blocks);
        self.fabric.pool_mut().release(handle);
        self.counts.handed += 1;
        if end != NO_END {
            self.deliver(end, &segment);
        }
    }

    fn receive_with_cold_fields(&mut self, host: HostId, handle: Handle) {
        let Packet { to, body, .. } = self.fabric.ports().pool[handle];
        self.fabric.pool_mut().release(handle);
        let mut cold = self.cold_fields[handle as usize];
        match body {
            Body::Segment(header) if header.is_syn() => {
                let end = self.find_receiver(to, &cold);
                self.pass_up(host, end, header, &mut cold);
            }
            Body::Segment(header) => self.pass_up(host, to, header, &mut cold),
            Body::Datagram(datagram) => self.deliver_datagram(host, datagram, &cold),
            Body::Notification(_) => unreachable!("an adapter takes it"),
        }
    }

    /// A packet passes from the adapter through the vNIC stage to the stack.
    #[inline(never)]
    fn pass_up(&mut self, host: HostId, end: EndId, mut header: TcpHeader, cold: &mut ColdFields) {
        if end != NO_END && self.hosts[host.index()].switch.vnics.is_some() {
            let (action, _) = self.enforce(host, end, Direction::ToTenant, &mut header, cold);
            if action != Action::Pass {
                self.counts.consumed += 1;
                return;
            }
        }
        self.hand_up(end, &header.segment(&cold.blocks));
    }

    /// A segment passes to the stack of its receiver, if it has one.
    #[inline]
    fn hand_up(&mut self, end: EndId, segment: &Segment) {
        self.counts.handed += 1;
        if end != NO_END {
            self.deliver(end, segment);
        }
    }

    /// Finds the receiver of a SYN. The SYN carries the number of its sender's end. The first SYN
    /// of a connection makes an end at this host, if an application listens.
    fn find_receiver(&mut self, to: EndId, cold: &ColdFields) -> EndId {
        let ([peer_tenant, tenant], [peer_port, port]) = (cold.tenants, cold.ports);
        let mut end = to;
        if end == NO_END {
            let ends = (tenant, port, peer_tenant, peer_port);
            let known = self.sockets.accepted_from(ends, cold.from);
            end = match known.or_else(|| self.open_for(ends)) {
                Some(end) => end,
                None => return NO_END,
            };
        }
        self.sockets.ends[end as usize].addressing.peer = cold.from;
        end
    }

    fn open_for(&mut self, ends: Ends) -> Option<EndId> {
        let owner = self.sockets.listener(ends)?;
        let id = self.end(ends, owner);
        self.sockets.accepted.insert(ends, id);
        Some(id)
    }

    /// Makes an end without a stack or a socket.
    fn end(&mut self, (tenant, port, peer_tenant, peer_port): Ends, owner: Owner) -> EndId {
        let (id, tenants) = (
            narrow::<EndId>(self.sockets.ends.len()),
            &self.layout.tenants,
        );
        let addressing = Addressing {
            tenant,
            peer_tenant,
            peer: NO_END,
            path: 0,
            port,
            peer_port,
            peer_host: tenants[peer_tenant as usize].host,
        };
        let mut end = ConnectionEnd::new(addressing, tenants[tenant as usize].host, owner);
        let flow_hash = flow_hash(&key(&end, tenants), &self.path_key);
        end.addressing.path = self.path_of_end(&end, flow_hash);
        end.sides = self.sides(&end);
        end.set_straight_to(self.straight_to(&end));
        self.sockets.ends.push(end);
        self.has_many_ends = self.sockets.ends.len() >= ahead::MANY_ENDS;
        self.looks |= self.has_many_ends;
        id
    }

    /// Passes a segment through a host's vNIC stage. Returns the action of the stage, and a FACK
    /// that follows the segment.
    fn enforce(
        &mut self,
        host: HostId,
        end: EndId,
        direction: Direction,
        header: &mut TcpHeader,
        cold: &mut ColdFields,
    ) -> (Action, Option<TcpHeader>) {
        // In core, time 0 stands for "never".
        let now_ns = self.now_ns() + 1;
        let Some(vnics) = &mut self.hosts[host.index()].switch.vnics else {
            return (Action::Pass, None);
        };
        let (ends, tenants) = (&self.sockets.ends, &self.layout.tenants);
        let mut view = header.view(&cold.blocks, direction);
        let sender = &tenants[ends[end as usize].addressing.tenant as usize].stack;
        if direction == Direction::FromTenant && header.payload() > sender.mss {
            view.set_segment_bytes(sender.mss);
        }
        let verdict = vnics.segment(end, &mut view, now_ns, || key(&ends[end as usize], tenants));
        if verdict.action() != Action::Pass {
            return (verdict.action(), None);
        }
        header.apply(&verdict);
        cold.apply(&verdict);
        let fack = (verdict.edits & edit::WANT_FACK != 0).then(|| header.fack(&verdict));
        (Action::Pass, fack)
    }

    #[inline(always)]
    fn deliver(&mut self, end: EndId, segment: &Segment) {
        let now_ns = self.now_ns();
        if let Some(tcp) = &mut self.sockets.ends[end as usize].tcp {
            let events = tcp.segment(now_ns, segment);
            let events = self.until_awake(end, events);
            self.sockets.note_events(end, events);
        } else if self.sockets.ends[end as usize].may_listen()
            && segment.flags & (flags::SYN | flags::ACK) == flags::SYN
        {
            self.listen(end, segment);
        }
        self.serve_end_inlined(end);
    }

    /// A SYN makes the stack of an end that has none yet.
    fn listen(&mut self, end: EndId, syn: &Segment) {
        let now_ns = self.now_ns();
        let state = &mut self.sockets.ends[end as usize];
        let stack = Arc::clone(&self.layout.tenants[state.addressing.tenant as usize].stack);
        let isn = self.hosts[state.host.index()].isn();
        state.tcp = Some(Box::new(Endpoint::accept(stack, isn, syn, now_ns)));
    }

    /// Sends the pending packets of an end and sets its timer. It is called after each event at an
    /// end.
    #[inline(never)]
    pub(crate) fn serve_end(&mut self, end: EndId) {
        self.serve_end_inlined(end);
    }

    #[inline(always)]
    fn serve_end_inlined(&mut self, end: EndId) {
        let state = &self.sockets.ends[end as usize];
        if state.tcp.is_none() && state.datagrams.is_none() && state.may_listen() {
            return;
        }
        let (host, in_turn) = (state.host, state.straight_to().is_none());
        if self.hosts[host.index()].troubles.paused {
            return;
        }
        if in_turn {
            self.serve_end_in_turn(host, end);
        } else {
            while self.transmit(host, end) == Some(true) {}
        }
        self.set_timer(end);
        if self.sockets.ends[end as usize].life == Life::Released {
            self.end_if_finished(end);
        }
    }

    /// Sets the timer of an end. A timer that is set already stays if it fires earlier than the
    /// stack needs; the end sets it again when it fires.
    #[inline(always)]
    fn set_timer(&mut self, end: EndId) {
        let state = &mut self.sockets.ends[end as usize];
        let Some(tcp) = &state.tcp else { return };
        let deadline_ps = tcp.deadline_ns().saturating_mul(1_000);
        state.awaits_nothing = deadline_ps == u64::MAX;
        if deadline_ps < state.timer_ps {
            self.advance_timer(end, deadline_ps);
        }
    }

    #[inline(never)]
    fn advance_timer(&mut self, end: EndId, deadline_ps: u64) {
        let state = &mut self.sockets.ends[end as usize];
        state.timer_ps = deadline_ps.max(self.clock.now_ps);
        self.clock.wheel.push(state.timer_ps, source(END, end));
    }

    fn end_timer(&mut self, end: EndId, time_ps: u64) {
        let now_ns = self.now_ns();
        let state = &mut self.sockets.ends[end as usize];
        if state.timer_ps != time_ps {
            return; // an earlier timer has taken the place of this one
        }
        state.timer_ps = u64::MAX;
        if self.hosts[state.host.index()].troubles.paused {
            return; // the timer is set again when the host resumes
        }
        if state.awaits_nothing {
            let wakes_ns = || state.tcp.as_deref().map_or(u64::MAX, Endpoint::deadline_ns);
            debug_assert_eq!(wakes_ns(), u64::MAX, "it was served since its last input");
            return;
        }
        if let Some(tcp) = &mut state.tcp {
            if tcp.deadline_ns() > now_ns {
                return self.set_timer(end); // nothing has changed since the end was served
            }
            let events = tcp.timeout(now_ns);
            self.sockets.note_events(end, events);
        }
        self.serve_end(end);
    }

    /// Sends one segment of an end towards the adapter. Returns whether another segment may follow;
    /// `None` if the end has none to send.
    #[inline]
    fn transmit(&mut self, host: HostId, end: EndId) -> Option<bool> {
        if self.hosts[host.index()].switch.vnics.is_some() {
            return self.transmit_enforced(host, end);
        }
        let (now_ns, ip_bytes) = (self.now_ns(), self.layout.ip_bytes);
        let ConnectionEnd {
            tcp, addressing, ..
        } = &mut self.sockets.ends[end as usize];
        let Some(tcp) = tcp.as_mut() else {
            return self.transmit_datagram(host, end);
        };
        let departure = Send {
            pool: self.fabric.pool_mut(),
            cold_fields: &mut self.cold_fields,
            addressing,
            end,
            ip_bytes,
        };
        let (handle, more) = tcp.transmit_to(now_ns, departure)?;
        self.counts.sent += 1;
        self.send(host, end, handle);
        Some(more)
    }

    /// [`Net::transmit`] through the vNIC stage.
    fn transmit_enforced(&mut self, host: HostId, end: EndId) -> Option<bool> {
        let now_ns = self.now_ns();
        let state = &mut self.sockets.ends[end as usize];
        let Some(tcp) = state.tcp.as_mut() else {
            return self.transmit_datagram(host, end);
        };
        let segment = tcp.transmit(now_ns)?;
        self.counts.sent += 1;
        let header = TcpHeader::of(&segment);
        let mut cold = match header.has_cold_fields() {
            true => state.addressing.cold_fields(end, &segment),
            false => NO_COLD_FIELDS,
        };
        self.send_enforced(host, end, header, &mut cold);
        Some(true)
    }

    /// A segment passes through the vNIC stage to the adapter.
    fn send_enforced(
        &mut self,
        host: HostId,
        end: EndId,
        mut header: TcpHeader,
        cold: &mut ColdFields,
    ) {
        let (action, fack) = self.enforce(host, end, Direction::FromTenant, &mut header, cold);
        match action {
            Action::Pass => {
                let packet = self.packet(end, header);
                let handle = self.keep(packet, cold);
                self.send(host, end, handle);
            }
            _ => {
                self.counts.policed += 1;
                self.left(end, header.payload());
            }
        }
        if let Some(fack) = fack {
            self.counts.facks += 1;
            let packet = self.packet(end, fack);
            let handle = self.fabric.pool_mut().insert(packet);
            self.give_path(host, end, handle);
            self.send_after(host, end, handle);
        }
    }

    /// The packet of a segment of an end.
    fn packet(&self, end: EndId, header: TcpHeader) -> Packet {
        Packet::new(
            header,
            &self.sockets.ends[end as usize].addressing,
            self.layout.ip_bytes,
        )
    }

    /// A packet continues behind the vNIC stage: to the switch of its host, or to a port at once.
    #[inline]
    fn send(&mut self, host: HostId, end: EndId, packet: Handle) {
        self.give_path(host, end, packet);
        let state = &self.sockets.ends[end as usize];
        let sender = state.sender(end);
        let Some(port) = state.straight_to() else {
            return self.send_in_turn(host, end, packet);
        };
        self.offer(port, packet, sender);
    }

    fn alarm(&mut self, index: u32) {
        let host = self.sockets.ring(index);
        self.hosts[host.index()].free_alarms.push(index);
    }
}

/// Puts segments of an end into the pool.
struct Send<'a> {
    pool: &'a mut Pool<Packet>,
    cold_fields: &'a mut Vec<ColdFields>,
    addressing: &'a Addressing,
    end: EndId,
    ip_bytes: u32,
}

impl Taker for Send<'_> {
    type Taken = Handle;

    #[inline(always)]
    fn take(self, segment: &Segment) -> Handle {
        let packet = Packet::new(TcpHeader::of(segment), self.addressing, self.ip_bytes);
        let handle = self.pool.insert(packet);
        if packet.has_cold_fields() {
            store_cold(
                self.cold_fields,
                handle,
                self.addressing.cold_fields(self.end, segment),
            );
        }
        handle
    }
}

/// Stores the cold fields of a packet in the pool.
#[cold]
fn store_cold(cold_fields: &mut Vec<ColdFields>, handle: Handle, cold: ColdFields) {
    if cold_fields.len() <= handle as usize {
        cold_fields.resize(handle as usize + 1, ColdFields::default());
    }
    cold_fields[handle as usize] = cold;
}

/// The cold fields of a packet in the pool.
fn cold_of<'a>(cold_fields: &'a [ColdFields], handle: Handle, packet: &Packet) -> &'a ColdFields {
    match packet.has_cold_fields() {
        true => &cold_fields[handle as usize],
        false => &NO_COLD_FIELDS,
    }
}

/// The key with which switches hash connections.
fn path_key(seed: u64) -> HashKey {
    let mut state = seed;
    let mut next = || {
        // Knuth's MMIX generator; its high bits are good.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    HashKey {
        spread: u64::from(next()) << 32 | u64::from(next()) | 1,
        word: std::array::from_fn(|_| next()),
    }
}

/// The number of a tenant's interface.
pub fn interface_of(tenant: u32) -> u32 {
    tenant + 1
}

/// The key of a connection at the host of an end.
fn key(end: &ConnectionEnd, tenants: &[Tenant]) -> FlowKey {
    FlowKey {
        local: tenants[end.addressing.tenant as usize].address.into(),
        remote: tenants[end.addressing.peer_tenant as usize].address.into(),
        local_port: end.addressing.port.to_be(),
        remote_port: end.addressing.peer_port.to_be(),
        ifindex: interface_of(end.addressing.tenant),
        ..FlowKey::default()
    }
}

/// The route between two tenants and their TCP or UDP ports, sender first.
fn route(tenants: &[Tenant], ([from, to], ports): ([u32; 2], [u16; 2])) -> Route {
    let (from, to) = (&tenants[from as usize], &tenants[to as usize]);
    Route {
        from: (from.address, ports[0]).into(),
        to: (to.address, ports[1]).into(),
        hosts: [from.host, to.host],
    }
}
