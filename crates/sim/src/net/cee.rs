//! Hosts and switches of converged Ethernet: what the simulator does for the fabric's machine.
//!
//! A packet goes down its host's stack, which takes a constant time, to the adapter's queue of its destination; the
//! adapter has kept room for it. From there to the receiving adapter the fabric has it.

use std::collections::HashMap;

use sluicegate_fabric::{
    Handle, Offer,
    cee::{Cee, CeeStats, Deadlock, Departure, Effect, PauseFrame, Place, Resequencer, Verdict},
    graph::PortId,
};

use sluicegate_vswitch::Side;

use super::{CONTROL, EndId, Net, PORT, RESEQUENCE, TRANSMIT, source};
use crate::{capture, frame};

/// How long a receiving adapter waits for a frame that others have overtaken, where frames may be lost: more than any
/// path is longer than another.
const PATIENCE_PS: u64 = 1_000_000_000;

/// An end that has not sent anything yet has no queue in its adapter.
pub(super) const NO_QUEUE: u32 = u32::MAX;

/// Of one host, by source and priority.
type Resequencers = HashMap<(u16, u8), Resequencer<Handle>>;

/// A network of converged Ethernet, and what the simulator adds to it.
pub struct Converged {
    /// The fabric.
    pub fabric: Cee,
    /// Its ports are those below this number; the ports of the stacks begin at `stacks`, one for each host; `None` = what
    /// goes down a stack is at the adapter at once.
    pub ports: u32,
    /// See `ports`.
    pub stacks: Option<u32>,
    /// Priorities that are used are below this.
    pub lanes: u8,
    /// The longest frame.
    frame_bytes: u32,
    /// Effects are being carried out.
    carries_out: bool,
    /// By receiving host; `None` = nothing can overtake.
    resequencers: Option<Vec<Resequencers>>,
}

impl Converged {
    /// Of a fabric whose stacks' ports begin at `stacks`. Frames that have overtaken others wait for them in the
    /// receiving adapter, if `reorders`.
    pub fn new(fabric: Cee, ports: u32, stacks: Option<u32>, hosts: usize, reorders: bool) -> Self {
        let mut fabric = fabric;
        if reorders || stacks.is_some() {
            fabric.number_frames();
        }
        let specs = (0..ports).map(|port| fabric.spec(port).frame_bytes);
        Self {
            frame_bytes: specs.max().unwrap_or(0),
            fabric,
            ports,
            stacks,
            carries_out: false,
            lanes: 1,
            resequencers: reorders.then(|| vec![HashMap::new(); hosts]),
        }
    }

    /// So many priorities are used.
    #[must_use]
    pub fn with_lanes(self, lanes: u8) -> Self {
        Self { lanes, ..self }
    }

    /// Frames that wait in receiving adapters for others.
    pub fn kept(&self) -> u64 {
        let all = self.resequencers.iter().flatten().flat_map(HashMap::values);
        all.map(|resequencer| resequencer.kept() as u64).sum()
    }
}

impl Net {
    /// Makes the network one of converged Ethernet.
    pub fn converge(&mut self, converged: Converged) {
        self.converged_ports = converged.ports;
        self.converged = Some(Box::new(converged));
        for host in 0..self.hosts.len() as u16 {
            if self.hosts[usize::from(host)].counts_departures {
                self.count_departures(host);
            }
        }
    }

    /// Sockets of a host hear of what has left it.
    pub(super) fn count_departures(&mut self, host: u16) {
        self.hosts[usize::from(host)].counts_departures = true;
        self.on_fabric(|fabric, pool, now_ps| fabric.count_departures(pool, host, now_ps));
    }

    /// What a port of the fabric counted.
    pub fn fabric_stats(&self, port: PortId) -> Option<CeeStats> {
        let converged = self.converged.as_ref()?;
        (port < converged.ports).then(|| converged.fabric.stats(port))
    }

    /// How many priorities the scenario has.
    pub(super) fn lanes(&self) -> u8 {
        self.converged
            .as_ref()
            .map_or(1, |converged| converged.lanes)
    }

    /// The exit of a host's switch for a priority.
    pub(super) fn lane(&self, priority: u8) -> Side {
        match priority {
            0 => Side::Uplink,
            _ => Side::Lane(priority),
        }
    }

    /// Tells a host's switch for which priorities its adapter has room. The adapter says when that may have changed.
    pub(super) fn look_at_lanes(&mut self, host: u16) {
        for priority in 0..self.lanes() {
            self.look_at_lane(host, self.lane(priority));
        }
    }

    /// The same for one of them.
    pub(super) fn look_at_lane(&mut self, host: u16, side: Side) {
        let Some(converged) = &mut self.converged else {
            return;
        };
        let (at, bytes) = ((host, side.lane()), converged.frame_bytes);
        let (pool, now_ps) = (&mut self.ports.pool, self.now_ps);
        let has_room = converged.fabric.has_room(pool, at, bytes, now_ps);
        let switch = &mut self.hosts[usize::from(host)].switch;
        switch.set_ready(side, has_room);
        self.carry_out();
    }

    /// Whether the adapter has no room for another frame of a priority, as far as is known.
    #[inline]
    pub(super) fn is_lane_full(&self, host: u16, side: Side) -> bool {
        let is_full = |converged: &Converged| {
            let (at, bytes) = ((host, side.lane()), converged.frame_bytes);
            !converged.fabric.fits(at, bytes)
        };
        self.converged.as_deref().is_some_and(is_full)
    }

    /// A packet of an end goes down its host's stack.
    pub(super) fn descend(&mut self, host: u16, end: EndId, packet: Handle) {
        let Some(converged) = &mut self.converged else {
            return;
        };
        let state = &mut self.ends[end as usize];
        if state.queue == NO_QUEUE {
            let fabric = &mut converged.fabric;
            state.queue = fabric.queue_to(host, state.way.peer_host, state.priority);
        }
        let departure = Departure {
            source: host,
            queue: state.queue,
            priority: state.priority,
            sender: end,
        };
        let (fabric, pool) = (&mut converged.fabric, &mut self.ports.pool);
        if converged.stacks.is_none() {
            self.hops += 1;
            fabric.send(pool, packet, departure, self.now_ps);
            return self.carry_out();
        }
        self.descend_slowly(packet, departure);
    }

    /// The same where the way takes time.
    #[inline(never)]
    fn descend_slowly(&mut self, packet: Handle, departure: Departure) {
        let Some(converged) = &mut self.converged else {
            return;
        };
        let Some(first) = converged.stacks else {
            return;
        };
        (converged.fabric).reserve(&self.ports.pool, packet, departure);
        let stack = first + u32::from(departure.source);
        match self.ports.offer(stack as usize, self.now_ps, packet) {
            Offer::First(at_ps) => self.wheel.push(at_ps, source(PORT, stack)),
            Offer::Queued => {}
            Offer::Away(_) | Offer::Dropped(_) => unreachable!("a stack is here and has room"),
        }
    }

    /// A packet is at its host's adapter.
    pub(super) fn submit(&mut self, packet: Handle) {
        if let Some(converged) = &mut self.converged {
            self.hops += 1;
            converged
                .fabric
                .submit(&mut self.ports.pool, packet, self.now_ps);
            self.carry_out();
        }
    }

    /// A packet, or its header, is at a switch, and leaves it by `to`.
    #[inline(always)]
    pub(super) fn forward(&mut self, ports: [PortId; 2], packet: Handle) {
        if let Some(converged) = &mut self.converged {
            self.hops += 1;
            let fabric = &mut converged.fabric;
            if let Some(backlogs) = &mut self.backlogs {
                fabric.catch_up(&mut self.ports.pool, ports[1], self.now_ps);
                backlogs.met(ports[1], || fabric.backlog_bytes(ports[1]));
            }
            fabric.forward(&mut self.ports.pool, ports, packet, self.now_ps);
            self.carry_out();
        }
    }

    /// Something has come to the far end of a port.
    #[inline]
    pub(super) fn arrive_converged(&mut self, port: PortId) {
        let Some(converged) = &mut self.converged else {
            return;
        };
        let fabric = &mut converged.fabric;
        let (arrived, next_ps) = fabric.arrive(&mut self.ports.pool, port, self.now_ps);
        if let Some(next_ps) = next_ps {
            self.wheel.push(next_ps, source(PORT, port));
        }
        match arrived {
            None => self.carry_out(),
            Some(packet) if self.may_impair && self.ports.is_impaired(port as usize) => {
                self.carry_out();
                self.arrive_impaired(port, packet);
            }
            // What has followed is carried out there.
            Some(packet) => self.hand_over(port, packet),
        }
    }

    /// A port may send.
    pub(super) fn transmit_converged(&mut self, port: PortId) {
        if let Some(converged) = &mut self.converged {
            let fabric = &mut converged.fabric;
            fabric.transmit(&mut self.ports.pool, port, self.now_ps);
            self.carry_out();
        }
    }

    /// A pause takes effect, or has to be renewed.
    pub(super) fn control_converged(&mut self, port: PortId) {
        if let Some(converged) = &mut self.converged {
            let fabric = &mut converged.fabric;
            fabric.control(&mut self.ports.pool, port, self.now_ps);
            self.carry_out();
        }
    }

    /// Does something to the fabric, if there is one, and what follows from it.
    pub(crate) fn on_fabric(
        &mut self,
        act: impl FnOnce(&mut Cee, &mut sluicegate_fabric::Pool<crate::packet::Packet>, u64),
    ) {
        if let Some(converged) = &mut self.converged {
            act(&mut converged.fabric, &mut self.ports.pool, self.now_ps);
            self.carry_out();
        }
    }

    /// What the fabric has asked for, if it has.
    #[inline(always)]
    pub(super) fn carry_out(&mut self) {
        let Some(converged) = &mut self.converged else {
            return;
        };
        let [first, second] = &mut converged.fabric.requests.arrivals;
        if let Some((port, at_ps)) = first.take() {
            self.wheel.push(at_ps, source(PORT, port));
            if let Some((port, at_ps)) = second.take() {
                self.wheel.push(at_ps, source(PORT, port));
            }
        }
        if !converged.fabric.requests.effects.is_empty() {
            self.carry_out_all();
        }
    }

    /// Nothing is left of what the fabric has asked for.
    pub(super) fn is_carried_out(&self) -> bool {
        let fabric = self.converged.as_ref().map(|converged| &converged.fabric);
        fabric.is_none_or(|fabric| fabric.requests.is_empty())
    }

    #[inline(never)]
    fn carry_out_all(&mut self) {
        // Who does so already comes to what has been added.
        match &mut self.converged {
            Some(converged) if !converged.carries_out => converged.carries_out = true,
            _ => return,
        }
        let mut at = 0;
        while let Some(converged) = &mut self.converged {
            let Some(&effect) = converged.fabric.requests.effects.get(at) else {
                converged.fabric.requests.effects.clear();
                converged.carries_out = false;
                return;
            };
            at += 1;
            match effect {
                Effect::Transmit(port, at_ps) => self.wheel.push(at_ps, source(TRANSMIT, port)),
                Effect::Arrive(port, at_ps) => self.wheel.push(at_ps, source(PORT, port)),
                Effect::Control(port, at_ps) => self.wheel.push(at_ps, source(CONTROL, port)),
                Effect::Notify(switch, packet) => self.notify(switch, packet),
                Effect::Sent(port, packet, leaves_ps) => {
                    self.show_at(port, capture::Side::Sent, packet, leaves_ps);
                }
                Effect::PauseSent(port, frame, leaves_ps) => {
                    self.show_pause(port, frame, leaves_ps);
                }
                Effect::Left(host, packet) => self.has_left(host, packet),
                Effect::Lost(host, packet) => {
                    self.has_left(host, packet);
                    self.ports.pool.release(packet);
                }
                Effect::Room(host, priority) => self.serve_lane(host, self.lane(priority)),
            }
        }
    }

    /// A switch sends a notification back to where the sampled packet came from.
    fn notify(&mut self, switch: u32, notification: Handle) {
        let (host, path) = {
            let packet = &self.ports.pool[notification];
            (usize::from(packet.host), packet.path)
        };
        let out = self.layout.routes.next(switch as usize, host, path);
        let (Some(out), Some(converged)) = (out, &mut self.converged) else {
            unreachable!("where a packet came from there is a way back");
        };
        self.hops += 1;
        let fabric = &mut converged.fabric;
        fabric.forward(
            &mut self.ports.pool,
            [out ^ 1, out],
            notification,
            self.now_ps,
        );
    }

    /// A packet is on the wire, or lost before: a stack with small queues hears of it, and a socket that counts what is on its way.
    fn has_left(&mut self, host: u16, packet: Handle) {
        if !self.hosts[usize::from(host)].counts_departures {
            return;
        }
        let Some(converged) = &self.converged else {
            return;
        };
        let end = converged.fabric.sender(packet);
        let payload = self.ports.pool[packet].payload();
        self.left(end, payload);
        if std::mem::take(&mut self.ends[end as usize].throttled) {
            self.unthrottle(host);
            self.attend(end);
        }
    }

    /// A packet has come to a host's adapter.
    #[inline]
    pub(super) fn ascend(&mut self, port: PortId, host: u16, packet: Handle) {
        self.carry_out();
        if let Some((destination, priority, fb)) = self.ports.pool[packet].notified() {
            self.show(port, capture::Side::Arrived, packet);
            self.ports.pool.release(packet);
            return self.on_fabric(|fabric, pool, now_ps| {
                fabric.notified(pool, host, (destination, priority), fb, now_ps);
            });
        }
        let Some(converged) = &mut self.converged else {
            return;
        };
        let Some(resequencers) = &mut converged.resequencers else {
            self.show(port, capture::Side::Arrived, packet);
            return self.receive(host, packet);
        };
        let fabric = &converged.fabric;
        let pool = &self.ports.pool;
        let from = (fabric.source(pool, packet), fabric.priority(pool, packet));
        let number = fabric.number(packet);
        let resequencer = resequencers[usize::from(host)].entry(from).or_default();
        match resequencer.arrive(number, packet, self.now_ps, PATIENCE_PS) {
            Verdict::Kept(None) => {}
            Verdict::Kept(Some(until_ps)) => {
                self.wheel.push(until_ps, source(RESEQUENCE, host.into()));
            }
            Verdict::Late => self.take(port, host, packet),
            Verdict::Next => {
                self.take(port, host, packet);
                self.take_following(port, host, from);
            }
        }
    }

    fn take(&mut self, port: PortId, host: u16, packet: Handle) {
        self.show(port, capture::Side::Arrived, packet);
        self.receive(host, packet);
    }

    /// Packets that have waited for the one before them.
    fn take_following(&mut self, port: PortId, host: u16, from: (u16, u8)) {
        loop {
            let Some(packet) = self
                .resequencer(host, from)
                .and_then(Resequencer::take_next)
            else {
                return;
            };
            self.take(port, host, packet);
        }
    }

    fn resequencer(&mut self, host: u16, from: (u16, u8)) -> Option<&mut Resequencer<Handle>> {
        let resequencers = self.converged.as_mut()?.resequencers.as_mut()?;
        resequencers[usize::from(host)].get_mut(&from)
    }

    /// A host's adapter waits no longer for what has not come.
    pub(super) fn give_up(&mut self, host: u16) {
        let port = self.hosts[usize::from(host)].adapter ^ 1;
        let Some(converged) = &self.converged else {
            return;
        };
        let all = converged.resequencers.iter().flatten();
        let mut waiting: Vec<(u16, u8)> = all
            .skip(usize::from(host))
            .take(1)
            .flat_map(|here| here.iter().filter(|(_, kept)| kept.kept() > 0))
            .map(|(&from, _)| from)
            .collect();
        waiting.sort_unstable();
        let mut next_ps = None;
        for from in waiting {
            let now_ps = self.now_ps;
            let until_ps = self
                .resequencer(host, from)
                .and_then(|kept| kept.give_up(now_ps, PATIENCE_PS));
            self.take_following(port, host, from);
            let is_kept = self
                .resequencer(host, from)
                .is_some_and(|kept| kept.kept() > 0);
            next_ps = next_ps
                .into_iter()
                .chain(until_ps.filter(|_| is_kept))
                .min();
        }
        if let Some(at_ps) = next_ps {
            self.wheel.push(at_ps, source(RESEQUENCE, host.into()));
        }
    }

    /// Asserts that the fabric's books are right.
    pub(super) fn audit_fabric(&self) -> Result<(), String> {
        let Some(converged) = &self.converged else {
            return Ok(());
        };
        let in_stack = |host| {
            let stack = converged.stacks.map(|first| first as usize + host);
            stack.map_or(0, |stack| self.ports.underway_bytes(stack))
        };
        converged.fabric.audit(&self.ports.pool, in_stack)
    }

    /// Shows a pause frame to those who capture there.
    #[cold]
    fn show_pause(&mut self, port: PortId, frame: PauseFrame, leaves_ps: u64) {
        let (Some(capture), Some(converged)) = (&mut self.capture, &self.converged) else {
            return;
        };
        let spec = converged.fabric.spec(port);
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
                now_ps: self.now_ps,
                at_ps,
                priority: None,
            };
            capture.pfc(seen, source, frame.quanta());
        }
    }

    /// Lets those who capture see what leaves the ports that they follow, and pause frames where they arrive.
    pub(crate) fn watch_captured(&mut self) {
        let (Some(capture), Some(converged)) = (&self.capture, &mut self.converged) else {
            return;
        };
        for port in 0..converged.ports {
            let follows = |side| capture.follows(port, side);
            if follows(capture::Side::Sent) || follows(capture::Side::Arrived) {
                converged.fabric.watch(port);
            }
        }
    }

    /// A cycle of pauses that cannot end, if there is one.
    pub fn deadlock(&self) -> Option<Deadlock> {
        let fabric = &self.converged.as_ref()?.fabric;
        fabric.deadlock(&self.ports.pool)
    }

    /// The adapter of a host pauses its link, whatever it has room for, or does so no more.
    pub fn storm(&mut self, host: usize, storms: bool) {
        let port = self.hosts[host].adapter ^ 1;
        let priorities = if storms { u8::MAX } else { 0 };
        self.on_fabric(|fabric, pool, now_ps| fabric.storm(pool, port, priorities, now_ps));
    }

    /// The adapter of a host obeys neither pauses nor notifications, or does so again.
    pub fn babble(&mut self, host: usize, babbles: bool) {
        let host = host as u16;
        self.on_fabric(|fabric, pool, now_ps| fabric.set_babbling(pool, host, babbles, now_ps));
    }
}
