//! A host's switch that forwards packets in time (`[network.host_switch]`).
//!
//! One processor takes packets from the queues in front of the switch's exits, by turns, and passes
//! each to the exit's receiver: a VM, or the adapter. Packets of VMs and packets from the link wait
//! for it alike. So a switch that is offered more than its rate fills its queues, and the switch's
//! [`Config`](sluicegate_vswitch::switch::Config) says whether full queues drop or hold back. Where
//! the link has flow control, an adapter whose receive ring fills pauses the link.

use std::collections::VecDeque;

use sluicegate_core::number::narrow;
use sluicegate_fabric::{
    Frame, Handle,
    contract::{Driver, Lane},
    graph::{HostId, PortId},
    port::PS_PER_S,
};
use sluicegate_vswitch::{Handover, Side};

use super::{FORWARD, Net, PacketFabric, host::Waiting, source};
use crate::packet::{Body, NO_END};

/// When a host's adapter pauses its link.
#[derive(Clone, Copy, Debug)]
pub struct LinkPauses {
    /// It pauses a priority of which more than so many bytes wait in its receive ring.
    pub xoff_bytes: u64,
    /// It lets a priority go on of which at most so many bytes wait.
    pub xon_bytes: u64,
}

/// How fast a host's switch forwards.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Bits per second that the processor forwards; `None` = it takes no time for bytes.
    pub rate_bps: Option<u64>,
    /// And its time for each packet, in ps.
    pub frame_ps: u64,
    /// Bits per second that each VM takes from its vNIC; `None` = it takes packets at once.
    pub receive_rate_bps: Option<u64>,
}

impl Speed {
    /// The processor's time for a packet, in ps.
    fn forwarding_ps(&self, bytes: u32) -> u64 {
        self.frame_ps + self.rate_bps.map_or(0, |rate| time_ps(bytes, rate))
    }
}

fn time_ps(bytes: u32, rate_bps: u64) -> u64 {
    let bit_ps = u128::from(bytes) * 8 * u128::from(PS_PER_S);
    narrow::<u64>(bit_ps / u128::from(rate_bps.max(1)))
}

/// The processor of a host's switch.
pub struct Forwarder {
    speed: Speed,
    pauses: Option<LinkPauses>,
    /// Priorities for which each vNIC has rings of its own.
    priorities: u8,
    /// Exits for which packets wait, each once, in the order of their turns.
    waiting: VecDeque<Side>,
    /// The exit whose first packet is being forwarded, and when it will have been.
    serving: Option<(Side, u64)>,
    /// By vNIC, when its VM takes the next packet.
    busy_ps: Vec<u64>,
    /// The first time for which an event is in the queue; `u64::MAX` = none is.
    armed_ps: u64,
    /// Bit p: the adapter pauses priority p of its link.
    paused: u8,
    /// [`Net::drive_switch`] runs, and has to look at the exits again.
    driving: bool,
    again: bool,
}

impl Forwarder {
    /// An idle processor.
    pub fn new(speed: Speed, pauses: Option<LinkPauses>, priorities: u8, vnics: usize) -> Self {
        Self {
            speed,
            pauses,
            priorities: priorities.max(1),
            waiting: VecDeque::new(),
            serving: None,
            busy_ps: vec![0; vnics],
            armed_ps: u64::MAX,
            paused: 0,
            driving: false,
            again: false,
        }
    }

    /// Priorities for which each vNIC has rings of its own.
    pub(super) fn priorities(&self) -> u8 {
        self.priorities
    }

    /// The side of a vNIC for packets of a priority.
    pub(super) fn vnic(&self, vnic: u16, priority: u8) -> Side {
        let priority = priority.min(self.priorities - 1);
        Side::Vnic(vnic * u16::from(self.priorities) + u16::from(priority))
    }

    /// Every side of the switch.
    pub(super) fn sides(&self) -> impl Iterator<Item = Side> + use<> {
        let vnics = narrow::<u16>(self.busy_ps.len()) * u16::from(self.priorities);
        let lanes = (1..self.priorities).map(Side::Lane);
        let sides = std::iter::once(Side::Uplink).chain(lanes);
        sides.chain((0..vnics).map(Side::Vnic))
    }

    /// The VM behind an exit, if one is, is busy with a packet.
    fn occupy_receiver(&mut self, to: Side, bytes: u32, now_ps: u64) {
        if let (Some(vnic), Some(rate)) = (self.vnic_of(to), self.speed.receive_rate_bps) {
            self.busy_ps[vnic] = now_ps + time_ps(bytes, rate);
        }
    }

    /// The vNIC of a side that is one.
    fn vnic_of(&self, side: Side) -> Option<usize> {
        match side {
            Side::Vnic(number) => Some(usize::from(number / u16::from(self.priorities))),
            Side::Uplink | Side::Lane(_) => None,
        }
    }
}

impl<F: PacketFabric> Net<F> {
    /// A packet that was sent by a tenant of a host waits for this exit.
    #[inline(never)]
    pub(super) fn forward_later(&mut self, host: HostId, to: Side) {
        self.list_exit(host, to);
        self.drive_switch(host);
    }

    fn list_exit(&mut self, host: HostId, to: Side) {
        let forwarder = self.hosts[host.index()].forwarder.as_mut();
        if let Some(forwarder) = forwarder.filter(|it| !it.waiting.contains(&to)) {
            forwarder.waiting.push_back(to);
        }
    }

    /// A packet reaches a host with such a switch, over its link or from one of its own tenants.
    pub(super) fn arrive_at_switch(&mut self, port: PortId, host: HostId, packet: Handle) {
        let machine = &self.hosts[host.index()];
        if port == machine.local {
            return self.hand_to_stack(host, packet);
        }
        let priority = self.fabric.priority(packet).unwrap_or(0);
        let (from, to) = (self.exit(priority), self.vnic_for(host, priority, packet));
        let bytes = self.fabric.ports().pool[packet].bytes();
        let waiting = Waiting::of_link(packet);
        let switch = &mut self.hosts[host.index()].switch;
        match switch.arrive(from, to, waiting, bytes) {
            Handover::Dropped(_) => self.fabric.pool_mut().release(packet),
            _ => self.list_exit(host, to),
        }
        self.drive_switch(host);
    }

    /// The side of the vNIC that a packet is for.
    fn vnic_for(&self, host: HostId, priority: u8, handle: Handle) -> Side {
        let packet = &self.fabric.ports().pool[handle];
        let known = match &packet.body {
            Body::Segment(header) if !header.has_cold_fields() => {
                let end = self.sockets.ends.get(packet.to as usize);
                end.filter(|end| end.host == host)
                    .map(|end| end.addressing.tenant)
            }
            _ => Some(self.cold_fields[handle as usize].tenants[1]),
        };
        // A packet of a connection that is over, which no stack takes.
        let vnic = known.map_or(0, |tenant| self.layout.vnic(tenant));
        let forwarder = self.hosts[host.index()].forwarder.as_ref();
        forwarder.map_or(Side::Vnic(vnic), |it| it.vnic(vnic, priority))
    }

    /// The event of a host's switch: its processor has forwarded a packet, or a receiver that was
    /// not ready is.
    pub(super) fn forwarder_is_due(&mut self, host: HostId, time_ps: u64) {
        let (now_ps, machine) = (self.clock.now_ps, &mut self.hosts[host.index()]);
        let Some(forwarder) = &mut machine.forwarder else {
            return;
        };
        if forwarder.armed_ps != time_ps {
            return; // an earlier event has taken its place
        }
        forwarder.armed_ps = u64::MAX;
        if machine.troubles.paused {
            forwarder.serving = None;
            return;
        }
        match forwarder.serving {
            Some((to, done_ps)) if done_ps <= now_ps => {
                forwarder.serving = None;
                self.forwarded(host, to);
            }
            Some((_, done_ps)) => self.arm_forwarder(host, done_ps),
            None => {}
        }
        self.drive_switch(host);
    }

    fn arm_forwarder(&mut self, host: HostId, at_ps: u64) {
        let forwarder = self.hosts[host.index()].forwarder.as_mut();
        if let Some(forwarder) = forwarder.filter(|it| at_ps < it.armed_ps) {
            forwarder.armed_ps = at_ps;
            self.clock.wheel.push(at_ps, source(FORWARD, host.0));
        }
    }

    /// The switch forwards as long as it has a packet and a receiver that takes no time.
    pub(super) fn drive_switch(&mut self, host: HostId) {
        let machine = &mut self.hosts[host.index()];
        let Some(forwarder) = &mut machine.forwarder else {
            return;
        };
        forwarder.again = true;
        if machine.troubles.paused {
            return self.pause_link_if_full(host);
        }
        if std::mem::replace(&mut forwarder.driving, true) {
            return;
        }
        while self.is_wanted_again(host) {
            while self.forward_next(host) || self.resume_one_sender(host) {}
        }
        if let Some(forwarder) = &mut self.hosts[host.index()].forwarder {
            forwarder.driving = false;
        }
        self.pause_link_if_full(host);
        self.arm_adapter(host);
    }

    fn is_wanted_again(&mut self, host: HostId) -> bool {
        let forwarder = self.hosts[host.index()].forwarder.as_mut();
        forwarder.is_some_and(|it| std::mem::take(&mut it.again))
    }

    /// The processor turns to the next exit with a packet and a ready receiver. True if it has
    /// forwarded the packet at once.
    fn forward_next(&mut self, host: HostId) -> bool {
        let Some((to, bytes)) = self.next_exit(host) else {
            return false;
        };
        let now_ps = self.clock.now_ps;
        let Some(forwarder) = &mut self.hosts[host.index()].forwarder else {
            return false;
        };
        let takes_ps = forwarder.speed.forwarding_ps(bytes);
        if takes_ps == 0 {
            self.forwarded(host, to);
            return true;
        }
        forwarder.serving = Some((to, now_ps + takes_ps));
        self.arm_forwarder(host, now_ps + takes_ps);
        false
    }

    /// The next exit by turns whose receiver is ready, and the length of its first packet. It goes
    /// to the end of the line. `None` while a packet is being forwarded, and if no exit is ready.
    fn next_exit(&mut self, host: HostId) -> Option<(Side, u32)> {
        let at = host.index();
        let mut turn = 0;
        loop {
            let machine = &mut self.hosts[at];
            let forwarder = machine.forwarder.as_mut()?;
            if forwarder.serving.is_some() {
                return None;
            }
            let to = *forwarder.waiting.get(turn)?;
            let Some(bytes) = machine.switch.first_bytes(to) else {
                forwarder.waiting.remove(turn);
                continue;
            };
            if self.is_receiver_ready(host, to, bytes) {
                let forwarder = self.hosts[at].forwarder.as_mut()?;
                forwarder.waiting.remove(turn);
                forwarder.waiting.push_back(to);
                return Some((to, bytes));
            }
            turn += 1;
        }
    }

    /// Whether the receiver behind an exit takes a packet of this length once it is forwarded. If
    /// not, an event follows when it does.
    fn is_receiver_ready(&mut self, host: HostId, to: Side, bytes: u32) -> bool {
        let (now_ps, machine) = (self.clock.now_ps, &self.hosts[host.index()]);
        let Some(forwarder) = &machine.forwarder else {
            return false;
        };
        let takes_ps = forwarder.speed.forwarding_ps(bytes);
        let ready_ps = match forwarder.vnic_of(to) {
            Some(vnic) => Some(forwarder.busy_ps[vnic].saturating_sub(takes_ps)),
            None => {
                let lane = Lane {
                    host,
                    port: machine.adapter,
                    number: to.lane(),
                };
                // Where room is not known beforehand, an effect reports it.
                let room_ps = self.fabric.room_ps(lane).or_else(|| {
                    let has_room =
                        self.on_fabric(|fabric, _, now_ps| fabric.has_room(lane, now_ps));
                    has_room.then_some(now_ps)
                });
                room_ps.map(|room_ps| room_ps.saturating_sub(takes_ps))
            }
        };
        match ready_ps {
            Some(ready_ps) if ready_ps <= now_ps => true,
            Some(ready_ps) => {
                self.arm_forwarder(host, ready_ps);
                false
            }
            None => false,
        }
    }

    /// A packet has been forwarded: its receiver has it.
    fn forwarded(&mut self, host: HostId, to: Side) {
        let now_ps = self.clock.now_ps;
        let machine = &mut self.hosts[host.index()];
        let Some(waiting) = machine.switch.take(to) else {
            return;
        };
        let bytes = self.fabric.ports().pool[waiting.packet].bytes();
        if let Some(forwarder) = &mut self.hosts[host.index()].forwarder {
            forwarder.occupy_receiver(to, bytes, now_ps);
        }
        match waiting.end {
            NO_END => self.hand_to_stack(host, waiting.packet),
            _ => self.pass_on(host, to, waiting),
        }
    }

    /// The adapter pauses the priorities of its link in which its receive ring fills, and lets
    /// those go on in which it has emptied.
    fn pause_link_if_full(&mut self, host: HostId) {
        let machine = &mut self.hosts[host.index()];
        let Some(forwarder) = &mut machine.forwarder else {
            return;
        };
        let Some(pauses) = forwarder.pauses else {
            return;
        };
        let mut paused = forwarder.paused;
        for priority in 0..forwarder.priorities {
            let side = match priority {
                0 => Side::Uplink,
                _ => Side::Lane(priority),
            };
            let held_bytes = machine.switch.entrance_load(side).bytes;
            if held_bytes > pauses.xoff_bytes {
                paused |= 1 << priority;
            } else if held_bytes <= pauses.xon_bytes {
                paused &= !(1 << priority);
            }
        }
        if std::mem::replace(&mut forwarder.paused, paused) != paused {
            F::pause_link(self, host, paused);
        }
    }
}
