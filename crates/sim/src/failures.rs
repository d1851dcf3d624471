//! Failures of a scenario: links that fail or damage frames, hosts that stand still, applications
//! that read slowly. Each belongs to one host or one port.

use std::collections::{HashMap, VecDeque};

use sluicegate_core::number::narrow;
use sluicegate_fabric::{
    Fate, Handle, Impairment,
    contract::Driver,
    graph::{HostId, PortId},
};
use sluicegate_tcp::Events;

use crate::net::{EndId, LATE, Net, Notice, PacketFabric, READER, source};

/// The bytes that a slow application reads at once before it waits.
const READ_BYTES: u64 = 16 << 10;

/// A host's troubles.
#[derive(Default)]
pub(crate) struct Troubles {
    /// It stands still.
    pub(crate) paused: bool,
    /// Arriving packets do not pass to the stacks at once: it stands still, or its switch takes
    /// time.
    pub(crate) diverts: bool,
    /// The packets that have arrived meanwhile and the ports that they came by, in order.
    inbox: VecDeque<(PortId, Handle)>,
    /// Tenants that read slowly.
    readers: HashMap<u32, Reader>,
}

impl Troubles {
    /// Packets that wait for the host to go on.
    pub(crate) fn waiting(&self) -> u64 {
        self.inbox.len() as u64
    }

    /// Keeps a packet for later.
    pub(crate) fn keep(&mut self, port: PortId, packet: Handle) {
        self.inbox.push_back((port, packet));
    }
}

/// An application that reads with a rate: so much at once, then it is busy with it.
struct Reader {
    rate_bps: u64,
    /// When it may read again.
    free_ns: u64,
    /// Connections with something to read, each once; they take turns.
    waiting: VecDeque<EndId>,
    /// Its next turn is in the event queue.
    armed: bool,
}

/// Links.
impl<F: PacketFabric> Net<F> {
    /// A link fails, or works again.
    pub fn set_link(&mut self, link: usize, up: bool) {
        for port in PortId::both_of(link) {
            self.on_fabric(|fabric, _, now_ps| fabric.set_up(port, up, now_ps));
            let now_ps = self.now_ps();
            if let (Some(capture), false) = (&mut self.observers.capture, up) {
                capture.cut(port, now_ps);
            }
        }
    }

    /// From now on a link does this to frames, in both directions.
    pub fn impair(&mut self, link: usize, change: impl Fn(&Impairment) -> Impairment) {
        for port in PortId::both_of(link) {
            let impairment = change(&self.fabric.ports().impairment(port));
            self.on_fabric(|fabric, _, _| fabric.set_impairment(port, impairment));
        }
    }

    /// Sets the rate of a link, in both directions, for frames that come to it from now on.
    pub fn set_rate(&mut self, link: usize, rate_bps: u64) {
        for port in PortId::both_of(link) {
            self.on_fabric(|fabric, _, now_ps| fabric.set_rate(port, rate_bps, now_ps));
        }
    }

    /// A packet has crossed an impaired link.
    pub(crate) fn arrive_impaired(&mut self, port: PortId, packet: Handle) {
        let fate =
            self.on_fabric(|fabric, _, now_ps| (fabric.ports_mut()).fate(port, now_ps, packet));
        let Fate::Arrives { twice, late_ps } = fate else {
            return;
        };
        if twice {
            let copy = self.copy(packet);
            self.hand_over(port, copy);
        }
        match late_ps {
            None => self.hand_over(port, packet),
            Some(at_ps) => self.clock.wheel.push(at_ps, source(LATE, port.0)),
        }
    }

    /// A packet that others have overtaken arrives.
    pub(crate) fn arrive_late(&mut self, port: PortId) {
        let late = self.on_fabric(|fabric, _, now_ps| fabric.ports_mut().late(port, now_ps));
        if let Some(packet) = late {
            self.hand_over(port, packet);
        }
    }
}

/// Hosts.
impl<F: PacketFabric> Net<F> {
    /// A host stands still: its stacks send nothing and their timers wait, and so does what
    /// arrives. What its adapter has been given leaves all the same.
    pub fn pause(&mut self, host: HostId) {
        let troubles = &mut self.hosts[host.index()].troubles;
        (troubles.paused, troubles.diverts) = (true, true);
    }

    /// A host resumes. It handles the packets that have arrived in the meantime first.
    pub fn resume(&mut self, host: HostId) {
        let machine = &mut self.hosts[host.index()];
        let diverts = machine.forwards_in_time();
        let troubles = &mut machine.troubles;
        (troubles.paused, troubles.diverts) = (false, diverts);
        let inbox = std::mem::take(&mut troubles.inbox);
        for (port, packet) in inbox {
            self.receive(port, host, packet);
        }
        for end in 0..narrow::<EndId>(self.sockets.ends.len()) {
            if self.sockets.ends[end as usize].host == host {
                self.serve_end(end);
            }
        }
        self.serve(host);
    }
}

/// Applications.
impl<F: PacketFabric> Net<F> {
    /// A tenant's applications read at most this much from now on; `None` = at once.
    pub fn set_read_rate(&mut self, tenant: u32, rate_bps: Option<u64>) {
        let now_ns = self.now_ns();
        let host = self.layout.tenants[tenant as usize].host.index();
        let readers = &mut self.hosts[host].troubles.readers;
        let Some(rate_bps) = rate_bps else {
            let reader = readers.remove(&tenant);
            for end in reader.into_iter().flat_map(|reader| reader.waiting) {
                self.sockets
                    .notices
                    .push_back(Notice::Socket(end, Events::READABLE));
            }
            return;
        };
        let reader = readers.entry(tenant).or_insert_with(|| Reader {
            rate_bps,
            free_ns: now_ns,
            waiting: VecDeque::new(),
            armed: false,
        });
        reader.rate_bps = rate_bps;
    }

    /// How much of `bytes` an application may read from a connection now. If that is less than
    /// there is, it is told that there is something to read when its turn comes.
    pub(crate) fn may_read(&mut self, end: EndId, bytes: u64) -> u64 {
        let now_ns = self.now_ns();
        let state = &self.sockets.ends[end as usize];
        let readers = &mut self.hosts[state.host.index()].troubles.readers;
        let Some(reader) = readers.get_mut(&state.addressing.tenant) else {
            return bytes;
        };
        let there = state.tcp.as_ref().map_or(0, |tcp| tcp.readable());
        let taken = if now_ns >= reader.free_ns {
            bytes.min(there).min(READ_BYTES)
        } else {
            0
        };
        if taken > 0 {
            let busy_ns = u128::from(taken) * 8_000_000_000 / u128::from(reader.rate_bps.max(1));
            reader.free_ns = now_ns.saturating_add(narrow::<u64>(busy_ns));
        }
        if taken < bytes.min(there) {
            if !reader.waiting.contains(&end) {
                reader.waiting.push_back(end);
            }
            self.arm(end);
        }
        taken
    }

    /// Sets the timer of a reader for which a connection waits.
    fn arm(&mut self, end: EndId) {
        let state = &self.sockets.ends[end as usize];
        let readers = &mut self.hosts[state.host.index()].troubles.readers;
        if let Some(reader) = readers
            .get_mut(&state.addressing.tenant)
            .filter(|reader| !reader.armed)
        {
            reader.armed = true;
            let at_ps = reader.free_ns.saturating_mul(1_000);
            self.clock
                .wheel
                .push(at_ps, source(READER, state.addressing.tenant));
        }
    }

    /// A slow application turns to the next connection.
    pub(crate) fn reader_turn(&mut self, tenant: u32) {
        let now_ns = self.now_ns();
        let host = self.layout.tenants[tenant as usize].host.index();
        let Some(reader) = self.hosts[host].troubles.readers.get_mut(&tenant) else {
            return;
        };
        reader.armed = false;
        let is_free = now_ns >= reader.free_ns;
        if let Some(end) = is_free.then(|| reader.waiting.pop_front()).flatten() {
            self.sockets
                .notices
                .push_back(Notice::Socket(end, Events::READABLE));
        }
        if let Some(&next) = self.hosts[host]
            .troubles
            .readers
            .get(&tenant)
            .and_then(|reader| reader.waiting.front())
        {
            self.arm(next);
        }
    }
}
