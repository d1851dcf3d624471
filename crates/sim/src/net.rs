//! The simulated machines and network: state, and what one event does to it.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use sluicegate_core::{
    abi::{Flow, FlowKey},
    segment::{Action, Direction, edit},
};
use sluicegate_fabric::{Graph, Handle, Offer, Ports, Routes, graph::PortId};
use sluicegate_tcp::{
    Config, Endpoint, Events,
    segment::{Segment, flags},
};
use sluicegate_vswitch::Vnics;

use crate::{
    letters::Letters,
    measure::Backlogs,
    packet::{Blocks, Packet},
    wheel::{Source, Wheel},
};

/// A connection's end: ends 2 c and 2 c + 1 belong together, the even one opened.
pub type EndId = u32;

/// Sources by kind, in the order in which they act at the same time.
const KIND_BITS: u32 = 29;
const PORT: u32 = 0;
const ADAPTER: u32 = 1;
const END: u32 = 2;
const ALARM: u32 = 3;

fn source(kind: u32, index: u32) -> Source {
    kind << KIND_BITS | index
}

/// Where a port leads.
#[derive(Clone, Copy, Debug)]
pub enum Far {
    /// To a host.
    Host(u16),
    /// To a switch.
    Switch(u32),
}

impl Far {
    /// Where each port of a graph leads, by number.
    pub fn of(graph: &Graph) -> Vec<Self> {
        let hosts = graph.hosts();
        (0..2 * graph.links().len() as PortId)
            .map(|port| match graph.far(port) {
                host if host < hosts => Self::Host(host as u16),
                switch => Self::Switch(switch - hosts),
            })
            .collect()
    }
}

/// How tenants' packets get to their host's adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// They go into the adapter's queue at once, which drops them when it is full: what a virtual NIC and a
    /// host's switch without back-pressure do.
    Drop,
    /// Sockets wait for the adapter and take turns.
    Wait,
}

/// A server.
pub struct Host {
    /// Its adapter's port.
    pub adapter: PortId,
    /// Between its tenants.
    pub local: PortId,
    /// Ends that have something to send, each once; they take turns.
    ready: VecDeque<EndId>,
    /// The adapter will ask for more by itself.
    waiting: bool,
    /// What happens when the adapter is busy.
    queueing: Queueing,
    /// Enforcement.
    pub vnics: Option<Vnics<EndId>>,
}

impl Host {
    /// An idle host.
    pub fn new(
        adapter: PortId,
        local: PortId,
        queueing: Queueing,
        vnics: Option<Vnics<EndId>>,
    ) -> Self {
        Self {
            adapter,
            local,
            ready: VecDeque::new(),
            waiting: false,
            queueing,
            vnics,
        }
    }
}

/// A tenant: an address on a host with a stack.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its host.
    pub host: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its stack.
    pub stack: Arc<Config>,
}

/// One end of a connection.
pub struct End {
    /// The stack's part; `None` until a SYN arrives or after all is over.
    pub tcp: Option<Endpoint>,
    /// The tenant.
    pub tenant: u32,
    port: u16,
    host: u16,
    peer_host: u16,
    ready: bool,
    /// When its timer will fire; `u64::MAX` = it has none.
    timer_ps: u64,
    /// Whose socket it is, and what the actor calls it.
    pub actor: u32,
    /// What the actor calls it.
    pub key: u64,
}

/// What an actor is told.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// Of one of its sockets.
    Socket(EndId, Events),
    /// A timer of its own: actor, key.
    Alarm(u32, u64),
}

#[derive(Clone, Copy)]
struct Alarm {
    actor: u32,
    key: u64,
}

/// Everything but the actors.
pub struct Net {
    now_ps: u64,
    wheel: Wheel,
    /// Transmit sides: those of links, then one within each host.
    pub ports: Ports<Packet>,
    /// Blocks of those that have any, by handle.
    blocks: Vec<Blocks>,
    far: Vec<Far>,
    routes: Routes,
    /// Servers.
    pub hosts: Vec<Host>,
    tenants: Vec<Tenant>,
    by_address: HashMap<IpAddr, u32>,
    listeners: HashMap<(u32, u16), (u32, u64)>,
    /// Ends of connections.
    pub ends: Vec<End>,
    alarms: Vec<Alarm>,
    free_alarms: Vec<u32>,
    /// For the actors, in order.
    pub notices: VecDeque<Notice>,
    /// What streams say.
    pub letters: Letters,
    ip_bytes: u32,
    isn: u32,
    /// Switches clear the ECN field.
    pub bleach: bool,
    /// Backlogs that arriving packets met, while measuring.
    pub backlogs: Option<Backlogs>,
    events: u64,
    hops: u64,
    policed: u64,
    consumed: u64,
    sent: u64,
    facks: u64,
    handed: u64,
}

/// What [`Net::new`] is given.
pub struct Parts {
    /// Transmit sides.
    pub ports: Ports<Packet>,
    /// Where each leads.
    pub far: Vec<Far>,
    /// Ways through switches.
    pub routes: Routes,
    /// Servers.
    pub hosts: Vec<Host>,
    /// Tenants.
    pub tenants: Vec<Tenant>,
    /// Length of the IP header.
    pub ip_bytes: u32,
    /// Makes initial sequence numbers.
    pub seed: u64,
}

impl Net {
    /// At time 0.
    pub fn new(parts: Parts) -> Self {
        let addresses = parts.tenants.iter().enumerate();
        let by_address = addresses
            .map(|(id, tenant)| (tenant.address, id as u32))
            .collect();
        Self {
            now_ps: 0,
            wheel: Wheel::default(),
            ports: parts.ports,
            blocks: Vec::new(),
            far: parts.far,
            routes: parts.routes,
            hosts: parts.hosts,
            tenants: parts.tenants,
            by_address,
            listeners: HashMap::new(),
            ends: Vec::new(),
            alarms: Vec::new(),
            free_alarms: Vec::new(),
            notices: VecDeque::new(),
            letters: Letters::default(),
            ip_bytes: parts.ip_bytes,
            isn: (parts.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
            bleach: false,
            backlogs: None,
            events: 0,
            hops: 0,
            policed: 0,
            consumed: 0,
            sent: 0,
            facks: 0,
            handed: 0,
        }
    }

    /// Simulated time.
    pub fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// Simulated time as stacks see it.
    pub fn now_ns(&self) -> u64 {
        self.now_ps / 1_000
    }

    /// Bytes queued at a port.
    pub fn backlog_bytes(&mut self, port: PortId) -> u64 {
        self.ports.backlog_bytes(port as usize, self.now_ps)
    }

    /// Packets transmitted on links so far.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Lets time pass to `until_ps` without an event.
    pub fn pass(&mut self, until_ps: u64) {
        self.now_ps = self.now_ps.max(until_ps);
    }

    /// Handles the next event if it comes before `until_ps`; false if there is none.
    #[inline]
    pub fn step_before(&mut self, until_ps: u64) -> bool {
        let Some((time_ps, source)) = self.wheel.pop_before(until_ps) else {
            return false;
        };
        self.handle(time_ps, source);
        true
    }

    fn handle(&mut self, time_ps: u64, source: Source) {
        self.now_ps = self.now_ps.max(time_ps);
        self.events += 1;
        let index = source & ((1 << KIND_BITS) - 1);
        match source >> KIND_BITS {
            PORT => self.arrive(index),
            ADAPTER => {
                self.hosts[index as usize].waiting = false;
                self.pull(index as u16);
            }
            END => self.end_timer(index, time_ps),
            _ => self.alarm(index),
        }
    }

    /// The first packet under way on a port is at the other end.
    fn arrive(&mut self, port: PortId) {
        let Some((packet, next)) = self.ports.arrive(port as usize) else {
            return;
        };
        if let Some(next_ps) = next {
            self.wheel.push(next_ps, source(PORT, port));
        }
        match self.far[port as usize] {
            Far::Host(host) => self.receive(host, packet),
            Far::Switch(switch) => {
                if self.bleach {
                    self.ports.pool[packet].bleach();
                }
                let host = self.ports.pool[packet].host;
                if let Some(out) = self.routes.next(switch as usize, host.into()) {
                    self.offer(out, packet);
                }
            }
        }
    }

    fn offer(&mut self, port: PortId, packet: Handle) {
        let (backlog, offer) = self.ports.offer(port as usize, self.now_ps, packet);
        self.hops += 1;
        if let Some(backlogs) = &mut self.backlogs {
            backlogs.met(port, backlog);
        }
        match offer {
            Offer::First(at_ps) => self.wheel.push(at_ps, source(PORT, port)),
            Offer::Queued => {}
            Offer::Dropped(_) => self.ports.pool.release(packet),
        }
    }

    /// Puts a packet into the pool.
    fn keep(&mut self, packet: Packet, blocks: &Blocks) -> Handle {
        let handle = self.ports.pool.insert(packet);
        if packet.has_blocks() {
            if self.blocks.len() <= handle as usize {
                self.blocks.resize(handle as usize + 1, Blocks::default());
            }
            self.blocks[handle as usize] = *blocks;
        }
        handle
    }

    /// A packet arrives at the host where its end lives.
    fn receive(&mut self, host: u16, handle: Handle) {
        let mut packet = self.ports.pool[handle];
        let blocks = if packet.has_blocks() {
            self.blocks[handle as usize]
        } else {
            Blocks::default()
        };
        self.ports.pool.release(handle);
        if self.hosts[usize::from(host)].vnics.is_some() {
            let (action, _) =
                self.enforce(host, packet.to, Direction::ToTenant, &mut packet, &blocks);
            if action != Action::Pass {
                self.consumed += 1;
                return;
            }
        }
        self.handed += 1;
        self.deliver(packet.to, &packet.segment(&blocks));
    }

    /// A host's vNIC stage. Returns what becomes of the packet, and a FACK to be sent after it.
    fn enforce(
        &mut self,
        host: u16,
        end: EndId,
        direction: Direction,
        packet: &mut Packet,
        blocks: &Blocks,
    ) -> (Action, Option<Packet>) {
        // To core, time 0 is never.
        let now_ns = self.now_ns() + 1;
        let Some(vnics) = &mut self.hosts[usize::from(host)].vnics else {
            return (Action::Pass, None);
        };
        let (ends, tenants) = (&self.ends, &self.tenants);
        let mut view = packet.view(blocks, direction);
        let verdict = vnics.segment(end, &mut view, now_ns, || key(ends, tenants, end));
        if verdict.action() != Action::Pass {
            return (verdict.action(), None);
        }
        packet.apply(&verdict);
        let fack = (verdict.edits & edit::WANT_FACK != 0).then(|| packet.fack(&verdict));
        (Action::Pass, fack)
    }

    fn deliver(&mut self, end: EndId, segment: &Segment) {
        let now_ns = self.now_ns();
        let at = end as usize;
        if self.ends[at].tcp.is_none() && segment.flags & (flags::SYN | flags::ACK) == flags::SYN {
            self.listen(end, segment);
        } else if let Some(tcp) = &mut self.ends[at].tcp {
            let events = tcp.segment(now_ns, segment);
            self.tell(end, events);
        }
        self.attend(end);
    }

    /// A SYN for an end that has no stack yet: does anybody listen there?
    fn listen(&mut self, end: EndId, syn: &Segment) {
        let (tenant, port) = (self.ends[end as usize].tenant, self.ends[end as usize].port);
        let Some(&(actor, key)) = self.listeners.get(&(tenant, port)) else {
            return;
        };
        let (isn, stack) = (self.isn(), Arc::clone(&self.tenants[tenant as usize].stack));
        let accepted = Endpoint::accept(stack, isn, syn, self.now_ps / 1_000);
        let end = &mut self.ends[end as usize];
        end.tcp = Some(accepted);
        (end.actor, end.key) = (actor, key);
    }

    fn isn(&mut self) -> u32 {
        self.isn = self.isn.wrapping_mul(0x915f_77f5).wrapping_add(0x9e37_79b9);
        self.isn
    }

    fn tell(&mut self, end: EndId, events: Events) {
        if !events.is_empty() {
            self.notices.push_back(Notice::Socket(end, events));
        }
    }

    /// After anything happened to an end: what it has to send, and its timer.
    fn attend(&mut self, end: EndId) {
        let state = &self.ends[end as usize];
        let Some(tcp) = &state.tcp else { return };
        let host = state.host;
        if self.hosts[usize::from(host)].queueing == Queueing::Drop {
            while self.transmit(host, end) {}
        } else if !state.ready && tcp.has_output(self.now_ns()) {
            self.ends[end as usize].ready = true;
            self.hosts[usize::from(host)].ready.push_back(end);
            self.pull(host);
        }
        self.set_timer(end);
    }

    /// An end's timer may come later than its stack wants it, but not earlier: it is pushed on when it fires.
    #[inline]
    fn set_timer(&mut self, end: EndId) {
        let state = &mut self.ends[end as usize];
        let Some(tcp) = &state.tcp else { return };
        let deadline_ps = tcp.deadline_ns().saturating_mul(1_000);
        if deadline_ps < state.timer_ps {
            state.timer_ps = deadline_ps.max(self.now_ps);
            self.wheel.push(state.timer_ps, source(END, end));
        }
    }

    fn end_timer(&mut self, end: EndId, time_ps: u64) {
        let now_ns = self.now_ns();
        let state = &mut self.ends[end as usize];
        if state.timer_ps != time_ps {
            return; // an earlier one took its place
        }
        state.timer_ps = u64::MAX;
        if let Some(tcp) = &mut state.tcp
            && tcp.deadline_ns() <= now_ns
        {
            let events = tcp.timeout(now_ns);
            self.tell(end, events);
        }
        self.attend(end);
    }

    /// The adapter takes packets while it is free; ends with something to send take turns.
    fn pull(&mut self, host: u16) {
        let at = usize::from(host);
        if self.hosts[at].waiting {
            return;
        }
        let adapter = self.hosts[at].adapter;
        loop {
            let free_ps = self.ports.free_ps(adapter as usize);
            if free_ps > self.now_ps {
                if !self.hosts[at].ready.is_empty() {
                    self.hosts[at].waiting = true;
                    self.wheel.push(free_ps, source(ADAPTER, host.into()));
                }
                return;
            }
            let Some(end) = self.hosts[at].ready.pop_front() else {
                return;
            };
            let now_ns = self.now_ns();
            let sent = self.transmit(host, end);
            let state = &mut self.ends[end as usize];
            state.ready = sent && state.tcp.as_ref().is_some_and(|tcp| tcp.has_output(now_ns));
            if state.ready {
                self.hosts[at].ready.push_back(end);
            }
            self.set_timer(end);
        }
    }

    /// One segment of an end; false if it has none.
    #[inline]
    fn transmit(&mut self, host: u16, end: EndId) -> bool {
        let now_ns = self.now_ns();
        let state = &mut self.ends[end as usize];
        let Some(segment) = state.tcp.as_mut().and_then(|tcp| tcp.transmit(now_ns)) else {
            return false;
        };
        let packet = Packet::new(&segment, end ^ 1, state.peer_host, self.ip_bytes);
        self.sent += 1;
        if self.hosts[usize::from(host)].vnics.is_some() {
            self.send_enforced(host, end, packet, &segment.sack);
        } else {
            let handle = self.keep(packet, &segment.sack);
            self.send(host, handle);
        }
        true
    }

    /// Through the vNIC stage to the adapter.
    fn send_enforced(&mut self, host: u16, end: EndId, mut packet: Packet, blocks: &Blocks) {
        let (action, fack) = self.enforce(host, end, Direction::FromTenant, &mut packet, blocks);
        match action {
            Action::Pass => {
                let handle = self.keep(packet, blocks);
                self.send(host, handle);
            }
            _ => self.policed += 1,
        }
        if let Some(fack) = fack {
            self.facks += 1;
            let handle = self.ports.pool.insert(fack);
            self.send(host, handle);
        }
    }

    fn send(&mut self, host: u16, packet: Handle) {
        let from = &self.hosts[usize::from(host)];
        let port = if self.ports.pool[packet].host == host {
            from.local
        } else {
            from.adapter
        };
        self.offer(port, packet);
    }

    fn alarm(&mut self, index: u32) {
        let Alarm { actor, key } = self.alarms[index as usize];
        self.free_alarms.push(index);
        self.notices.push_back(Notice::Alarm(actor, key));
    }

    /// Every flow that a vNIC stage knows.
    pub fn tracked(&self) -> Vec<(FlowKey, Flow)> {
        let stages = self.hosts.iter().filter_map(|host| host.vnics.as_ref());
        let flows = stages.flat_map(Vnics::flows);
        flows
            .map(|(&end, flow)| (key(&self.ends, &self.tenants, end), *flow))
            .collect()
    }

    /// Asserts that no packet got lost without a cause: sent = handed over + dropped + underway.
    ///
    /// # Errors
    /// The balance, if it is not zero.
    pub fn account(&self) -> Result<(), String> {
        let ports = 0..self.ports.len();
        let drops = |port| self.ports.stats(port).drops.iter().sum::<u64>();
        let dropped: u64 = ports.clone().map(drops).sum();
        let underway: u64 = ports.map(|port| self.ports.underway(port)).sum();
        let made = self.sent + self.facks;
        let found = self.handed + self.consumed + self.policed + dropped + underway;
        if made == found {
            return Ok(());
        }
        Err(format!(
            "{made} packets were sent but {found} are accounted for: {} delivered, {} consumed, {} policed, \
             {dropped} dropped, {underway} underway",
            self.handed, self.consumed, self.policed
        ))
    }
}

/// What actors may do.
impl Net {
    /// Opens a connection from a tenant; the peer must listen by the time that the SYN arrives.
    pub fn connect(
        &mut self,
        tenant: u32,
        address: IpAddr,
        port: u16,
        actor: u32,
        key: u64,
    ) -> EndId {
        let even = self.ends.len() as EndId;
        let peer = self.by_address.get(&address).copied().unwrap_or(tenant);
        let (host, peer_host) = (
            self.tenants[tenant as usize].host,
            self.tenants[peer as usize].host,
        );
        let (isn, stack) = (self.isn(), Arc::clone(&self.tenants[tenant as usize].stack));
        let local_port = 32_768 + (even / 2 % 28_232) as u16;
        let end = |tcp, tenant, port, host, peer_host| End {
            tcp,
            tenant,
            port,
            host,
            peer_host,
            ready: false,
            timer_ps: u64::MAX,
            actor,
            key,
        };
        let opener = Endpoint::connect(stack, isn);
        self.ends
            .push(end(Some(opener), tenant, local_port, host, peer_host));
        self.ends.push(end(None, peer, port, peer_host, host));
        self.attend(even);
        even
    }

    /// A tenant accepts connections on a port for this actor, which calls them `key` at first.
    pub fn accept(&mut self, tenant: u32, port: u16, actor: u32, key: u64) {
        self.listeners.insert((tenant, port), (actor, key));
    }

    /// Writes; returns how many bytes fitted.
    pub fn write(&mut self, end: EndId, bytes: u64) -> u64 {
        let Some(tcp) = &mut self.ends[end as usize].tcp else {
            return 0;
        };
        let taken = tcp.write(bytes);
        self.attend(end);
        taken
    }

    /// Reads; returns how many bytes there were, at most `bytes`.
    pub fn read(&mut self, end: EndId, bytes: u64) -> u64 {
        let Some(tcp) = &mut self.ends[end as usize].tcp else {
            return 0;
        };
        let taken = tcp.read(bytes);
        if taken > 0 {
            self.attend(end);
        }
        taken
    }

    /// No more will be written.
    pub fn close(&mut self, end: EndId) {
        if let Some(tcp) = &mut self.ends[end as usize].tcp {
            tcp.close();
            self.attend(end);
        }
    }

    /// Wakes an actor at a time (ns), now at the earliest.
    pub fn wake_at(&mut self, at_ns: u64, actor: u32, key: u64) {
        let alarm = Alarm { actor, key };
        let index = match self.free_alarms.pop() {
            Some(index) => {
                self.alarms[index as usize] = alarm;
                index
            }
            None => {
                self.alarms.push(alarm);
                self.alarms.len() as u32 - 1
            }
        };
        let at_ps = at_ns.saturating_mul(1_000).max(self.now_ps);
        self.wheel.push(at_ps, source(ALARM, index));
    }
}

/// The connection as the host of `end` sees it.
fn key(ends: &[End], tenants: &[Tenant], end: EndId) -> FlowKey {
    let (local, remote) = (&ends[end as usize], &ends[(end ^ 1) as usize]);
    FlowKey {
        local: tenants[local.tenant as usize].address.into(),
        remote: tenants[remote.tenant as usize].address.into(),
        local_port: local.port.to_be(),
        remote_port: remote.port.to_be(),
        ifindex: local.tenant + 1,
        ..FlowKey::default()
    }
}
