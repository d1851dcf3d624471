//! The network, sans-I/O: frames in, time, frames out.
//!
//! A frame's bytes are kept at the number of its place in the fabric's pool, so that a place that
//! the fabric frees takes its bytes along: the memory is bounded by what adapters and switches
//! hold, and by [`RECEIVE_BYTES`] of each host.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;
use sluicegate_fabric::{
    Converged, Frame, Handle, Plain, Routes,
    cee::{CeeConfig, CeeFrame, PRIORITIES, PortSpec},
    contract::{Driven, Driver, Effect, Lane, OwnOf, Sender, Timer, Timers},
    graph::{HostId, Node, PortId, SwitchId},
    histogram::Histogram,
    port::PortStats,
    random::draw,
    routing::{Passing, PathValues, Query, Scheme},
};

use crate::{
    clock::Lag,
    ethernet::{self, Control, Emulated, Queues},
    frame::{self, Descriptor, Headers, Mac},
};

/// Bytes that wait for the cable of a host. Beyond half of it the host pauses its link; what still
/// comes of a priority that may be dropped is dropped beyond all of it.
pub const RECEIVE_BYTES: u64 = 128 << 10;

/// The network that is to be emulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The ports, two for each link.
    pub ports: Vec<PortSpec>,
    /// The number of hosts, each of which has a link.
    pub hosts: usize,
    /// The number of switches.
    pub switches: usize,
    /// How switches forward.
    pub routes: Arc<Routes>,
    /// The priority of frames without a tag, 0 to 7.
    pub priority: u8,
    /// Where addresses are. Frames to others, and to groups, go to all hosts.
    pub addresses: Vec<(Mac, HostId)>,
    /// Of all random choices.
    pub seed: u64,
}

/// Why a host's frame did not enter the network, or did not leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Shorter than its headers.
    Malformed,
    /// Longer than a frame of the network.
    TooLong,
    /// Its destination is where it came from.
    Back,
    /// A copy of a flooded frame found the adapter full.
    Flooded,
    /// Of a priority that may be dropped: too much waited for the host's cable.
    Host,
}

impl Drop {
    /// Names in their order.
    pub const NAMES: [&str; 5] = ["malformed", "too_long", "back", "flooded", "host"];
}

/// The fate of a frame that a host offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is under way.
    Taken,
    /// The adapter has no room for its priority. It is to be offered again.
    NoRoom,
    /// It is counted, and gone.
    Dropped(Drop),
}

/// Frames at a host's cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Frames that entered the network, each copy of a flooded one.
    pub taken: u64,
    /// Frames that came out of it.
    pub given: u64,
    /// Of these, marked on the way.
    pub marked: u64,
    /// Frames to an address that no host has, or to a group.
    pub flooded: u64,
    /// By [`Drop`].
    pub drops: [u64; Drop::NAMES.len()],
}

/// The counters of a port.
#[derive(Clone, Debug, Default)]
pub struct PortCounts {
    /// Those of any fabric.
    pub stats: PortStats,
    /// Those of converged Ethernet alone.
    pub control: Option<Control>,
    /// Of a switch: the backlogs that arriving frames met, in bytes.
    pub backlogs: Histogram,
    /// Its backlog now.
    pub backlog_bytes: u64,
}

/// The counters of a network.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By port.
    pub ports: Vec<PortCounts>,
    /// By host.
    pub hosts: Vec<HostCounts>,
    /// How late events were handled.
    pub lag: Lag,
}

/// What the fabric asked for, in order of time.
#[derive(Debug, Default)]
pub struct Agenda(BTreeSet<(u64, Timer)>);

impl Timers for Agenda {
    fn set(&mut self, timer: Timer, at_ps: u64) {
        self.0.insert((at_ps, timer));
    }
}

/// A host's end of the network.
#[derive(Debug)]
struct Host {
    adapter: PortId,
    /// Frames that wait for its cable.
    ready: VecDeque<Handle>,
    ready_bytes: u64,
    pauses: bool,
    counts: HostCounts,
}

/// A network under the control of a clock.
pub struct Network<F> {
    fabric: Driven<F>,
    agenda: Agenda,
    /// When an adapter that had no room has some, where the fabric does not tell.
    room_ps: Option<u64>,
    now_ps: u64,
    routes: Arc<Routes>,
    routing: <Routes as Scheme>::State,
    specs: Vec<PortSpec>,
    /// By handle.
    bytes: Vec<Vec<u8>>,
    addresses: FxHashMap<Mac, HostId>,
    priority: u8,
    /// Of path values that are drawn.
    random: u64,
    hosts: Vec<Host>,
    backlogs: Vec<Histogram>,
    lossless: u8,
    lag: Lag,
}

impl<F: Emulated> Driver for Network<F> {
    type Fabric = F;
    type Timers = Agenda;

    fn driven(&mut self) -> (&mut Driven<F>, &mut Agenda, u64) {
        (&mut self.fabric, &mut self.agenda, self.now_ps)
    }

    fn carry_out(&mut self, effect: Effect<OwnOf<Self>>) {
        match effect {
            Effect::Timer(timer, at_ps) => self.agenda.set(timer, at_ps),
            Effect::Own(effect) => F::carry_out(self, effect),
            Effect::Lost(_, _, frame) => self.release(frame),
            // Nothing observes ports or counts departures.
            Effect::Sent(..) | Effect::Left(..) | Effect::Room(..) => {}
        }
    }
}

impl Network<Plain<Descriptor>> {
    /// An idle network of plain Ethernet at time 0.
    ///
    /// # Errors
    /// A host has no link; there is no way from a switch to a host; senders choose paths by what
    /// they hear of them.
    pub fn plain(plan: Plan, queues: &Queues) -> Result<Self> {
        let fabric = ethernet::plain(&plan, queues);
        Self::new(plan, fabric, 0)
    }
}

impl Network<Converged<Descriptor>> {
    /// An idle network of converged Ethernet at time 0.
    ///
    /// # Errors
    /// As [`Network::plain`].
    pub fn converged(plan: Plan, config: CeeConfig) -> Result<Self> {
        let lossless = config.pfc.map_or(0, |pfc| pfc.priorities);
        let fabric = ethernet::converged(&plan, config);
        Self::new(plan, fabric, lossless)
    }
}

impl<F: Emulated> Network<F> {
    fn new(plan: Plan, fabric: F, lossless: u8) -> Result<Self> {
        let hosts = hosts(&plan)?;
        if plan.routes.path_values().follow_arrivals() {
            bail!("the senders of this network do not know what becomes of their paths");
        }
        for switch in SwitchId::first(plan.switches) {
            for host in HostId::first(plan.hosts) {
                if plan.routes.choices(switch, host).is_empty() {
                    bail!("no way from switch {} to host {}", switch.0, host.0);
                }
            }
        }
        let backlogs = plan.ports.iter().map(|_| Histogram::default());
        Ok(Self {
            backlogs: backlogs.collect(),
            lossless,
            specs: plan.ports,
            fabric: Driven::new(fabric),
            agenda: Agenda::default(),
            room_ps: None,
            now_ps: 0,
            routes: plan.routes,
            routing: Default::default(),
            bytes: Vec::new(),
            addresses: plan.addresses.into_iter().collect(),
            priority: plan.priority,
            random: plan.seed,
            hosts,
            lag: Lag::default(),
        })
    }

    /// When the next event is due; `None`: nothing happens until a frame is offered.
    pub fn next_ps(&self) -> Option<u64> {
        let event_ps = self.agenda.0.first().map(|&(at_ps, _)| at_ps);
        event_ps.into_iter().chain(self.room_ps).min()
    }

    /// Handles what is due at this time, which does not go back.
    pub fn advance(&mut self, now_ps: u64) {
        let now_ps = now_ps.max(self.now_ps);
        while let Some(&(at_ps, timer)) = self.agenda.0.first() {
            if at_ps > now_ps {
                break;
            }
            self.agenda.0.pop_first();
            self.now_ps = at_ps.max(self.now_ps);
            self.lag.note(now_ps - self.now_ps);
            self.fire(timer);
        }
        self.now_ps = now_ps;
        // Hosts that wait for room offer their frames again.
        self.room_ps = self.room_ps.filter(|&room_ps| room_ps > now_ps);
    }

    /// A host sends a frame now.
    pub fn offer(&mut self, host: HostId, frame: &[u8]) -> Offer {
        let headers = match self.check(host, frame) {
            Ok(headers) => headers,
            Err(reason) => return self.dropped(host, reason),
        };
        let known = self.addresses.get(&headers.destination).copied();
        match known.filter(|_| !headers.is_group()) {
            Some(to) if to == host => self.dropped(host, Drop::Back),
            Some(to) => match self.send(host, to, &headers, frame) {
                true => Offer::Taken,
                false => Offer::NoRoom,
            },
            None => self.flood(host, &headers, frame),
        }
    }

    /// The next frame that waits for a host's cable.
    pub fn ready(&self, host: HostId) -> Option<&[u8]> {
        let first = self.hosts[host.index()].ready.front()?;
        Some(&self.bytes[*first as usize])
    }

    /// The host's cable has taken the frame of [`Network::ready`].
    pub fn given(&mut self, host: HostId) {
        let at = &mut self.hosts[host.index()];
        let Some(frame) = at.ready.pop_front() else {
            return;
        };
        at.ready_bytes -= self.bytes[frame as usize].len() as u64;
        at.counts.given += 1;
        self.fabric.pool_mut().release(frame);
        let is_low = self.hosts[host.index()].ready_bytes < RECEIVE_BYTES / 4;
        if is_low && self.hosts[host.index()].pauses {
            self.pause(host, false);
        }
    }

    /// All counters.
    pub fn counts(&mut self) -> Counts {
        let ports = PortId::first(self.specs.len());
        let ports = ports.map(|port| PortCounts {
            backlog_bytes: self.backlog_bytes(port),
            stats: self.fabric.stats(port),
            control: self.fabric.control(port, self.now_ps),
            backlogs: self.backlogs[port.index()].clone(),
        });
        Counts {
            ports: ports.collect(),
            hosts: self.hosts.iter().map(|host| host.counts).collect(),
            lag: self.lag.clone(),
        }
    }

    /// Checks that no frame is lost without a count.
    ///
    /// # Errors
    /// The first difference.
    pub fn audit(&self) -> Result<(), String> {
        self.fabric.audit()?;
        let sum = |of: fn(&HostCounts) -> u64| -> u64 {
            self.hosts.iter().map(|host| of(&host.counts)).sum()
        };
        let (taken, given) = (sum(|it| it.taken), sum(|it| it.given));
        let dropped = sum(|it| it.drops[Drop::Host as usize]);
        let waiting: u64 = self.hosts.iter().map(|host| host.ready.len() as u64).sum();
        let books = self.fabric.books();
        let came = taken + books.made;
        let went = given + dropped + waiting + books.dropped + books.underway + books.absorbed;
        match came == went {
            true => Ok(()),
            false => Err(format!("{came} frames came and {went} are accounted for")),
        }
    }

    fn check(&self, host: HostId, frame: &[u8]) -> Result<Headers, Drop> {
        let headers = Headers::read(frame).ok_or(Drop::Malformed)?;
        let longest_bytes = self.specs[self.adapter(host).index()].frame_bytes;
        match headers.untagged_bytes > longest_bytes {
            true => Err(Drop::TooLong),
            false => Ok(headers),
        }
    }

    fn dropped(&mut self, host: HostId, reason: Drop) -> Offer {
        self.hosts[host.index()].counts.drops[reason as usize] += 1;
        Offer::Dropped(reason)
    }

    /// To all other hosts. The adapter sends each copy: the first one waits for room.
    fn flood(&mut self, from: HostId, headers: &Headers, frame: &[u8]) -> Offer {
        let others = HostId::first(self.hosts.len()).filter(|&to| to != from);
        for (at, to) in others.enumerate() {
            let sent = self.send(from, to, headers, frame);
            if !sent && at == 0 {
                return Offer::NoRoom;
            }
            if !sent {
                self.dropped(from, Drop::Flooded);
            }
        }
        self.hosts[from.index()].counts.flooded += 1;
        Offer::Taken
    }

    /// False: the adapter has no room.
    fn send(&mut self, from: HostId, to: HostId, headers: &Headers, frame: &[u8]) -> bool {
        let port = self.adapter(from);
        let priority = headers.priority.unwrap_or(self.priority);
        let lane = Lane {
            host: from,
            port,
            number: priority,
        };
        if let Err(room_ps) = self.on_fabric(|fabric, _, now_ps| fabric.room(lane, now_ps)) {
            self.room_ps = self.room_ps.into_iter().chain(room_ps).min();
            return false;
        }
        let path = self.path(from, to, frame);
        let handle = self.keep(Descriptor::of(headers, to, path), frame);
        let pairs = from.index() * self.hosts.len() + to.index();
        let sender = Sender {
            host: from,
            priority,
            number: (pairs * PRIORITIES + usize::from(priority)) as u32,
        };
        self.hosts[from.index()].counts.taken += 1;
        self.on_fabric(|fabric, timers, now_ps| fabric.offer(timers, port, handle, sender, now_ps));
        true
    }

    /// What the routing scheme has a sender put into the path value of a frame.
    fn path(&mut self, from: HostId, to: HostId, frame: &[u8]) -> u32 {
        match self.routes.path_values() {
            PathValues::Host => from.0,
            PathValues::Destination => to.0,
            PathValues::Connection => frame::connection(frame),
            PathValues::Header => frame::header(frame),
            PathValues::Random | PathValues::Recycled | PathValues::Protected(_) => {
                (draw(&mut self.random) >> 32) as u32
            }
        }
    }

    /// Finds a place for a frame and its bytes.
    fn keep(&mut self, descriptor: Descriptor, frame: &[u8]) -> Handle {
        let handle = self.fabric.pool_mut().insert(descriptor);
        let at = handle as usize;
        if self.bytes.len() <= at {
            self.bytes.resize_with(at + 1, Vec::new);
        }
        self.bytes[at].clear();
        self.bytes[at].extend_from_slice(frame);
        handle
    }

    fn adapter(&self, host: HostId) -> PortId {
        self.hosts[host.index()].adapter
    }

    fn backlog_bytes(&mut self, port: PortId) -> u64 {
        self.on_fabric(|fabric, _, now_ps| fabric.backlog_bytes(port, now_ps))
    }

    fn fire(&mut self, timer: Timer) {
        let Timer::Arrival(port) = timer else {
            return self.on_fabric(|fabric, timers, now_ps| fabric.timer(timers, timer, now_ps));
        };
        let Some(frame) = self.arrive_on_fabric(port) else {
            return;
        };
        match self.specs[port.index()].far {
            Node::Host(host) => self.reach(port, host, frame),
            Node::Switch(switch) => {
                let out = match self.routes.rewrites() {
                    true => self.pass(port, switch, frame),
                    false => self.choose(switch, frame),
                };
                let backlog_bytes = self.fabric.load_bytes(out, self.now_ps);
                self.backlogs[out.index()].add(backlog_bytes);
                self.forward_on_fabric([port, out], frame);
            }
        }
    }

    /// A switch sends a notification that it has made.
    pub(crate) fn notify(&mut self, switch: SwitchId, notification: Handle) {
        let out = self.choose(switch, notification);
        self.forward_on_fabric([out.opposite(), out], notification);
    }

    /// The fabric is done with a frame.
    pub(crate) fn release(&mut self, frame: Handle) {
        self.fabric.pool_mut().release(frame);
    }

    fn query(&self, switch: SwitchId, frame: Handle) -> Query {
        let descriptor = &self.fabric.ports().pool[frame];
        let end = (descriptor.destination(), descriptor.path());
        query(switch, end, self.now_ps)
    }

    fn choose(&mut self, switch: SwitchId, frame: Handle) -> PortId {
        let query = self.query(switch, frame);
        let (fabric, now_ps) = (&mut self.fabric, self.now_ps);
        let load_bytes = |port| fabric.load_bytes(port, now_ps);
        let chosen = self.routes.choose(query, load_bytes, &mut self.routing);
        let Some(port) = chosen else {
            unreachable!("every switch has a way to every host");
        };
        port
    }

    /// [`Network::choose`] where switches rewrite path values.
    fn pass(&mut self, from: PortId, switch: SwitchId, frame: Handle) -> PortId {
        let passing = Passing {
            query: self.query(switch, frame),
            from_host: matches!(self.specs[from.index()].near, Node::Host(_)),
            bytes: self.fabric.ports().pool[frame].bytes(),
        };
        let rate_bps = |port: PortId| self.specs[port.index()].rate_bps;
        let passed = self.routes.pass(passing, rate_bps, &mut self.routing);
        let Some((port, path)) = passed else {
            unreachable!("every switch has a way to every host");
        };
        self.fabric.pool_mut()[frame].set_path(path);
        port
    }

    fn reach(&mut self, port: PortId, host: HostId, frame: Handle) {
        let at = (port, host);
        let received =
            self.on_fabric(|fabric, timers, now_ps| fabric.receive(timers, at, frame, now_ps));
        if let Some(frame) = received {
            self.deliver(host, frame);
        }
    }

    /// A frame waits for the cable of its host.
    fn deliver(&mut self, host: HostId, frame: Handle) {
        let priority = self.fabric.priority(frame).unwrap_or(0);
        let bytes = &mut self.bytes[frame as usize];
        let at = &mut self.hosts[host.index()];
        let may_drop = self.lossless & 1 << priority == 0;
        if may_drop && at.ready_bytes >= RECEIVE_BYTES {
            at.counts.drops[Drop::Host as usize] += 1;
            self.fabric.pool_mut().release(frame);
            return;
        }
        if self.fabric.ports().pool[frame].is_marked() {
            frame::mark(bytes);
            at.counts.marked += 1;
        }
        at.ready_bytes += bytes.len() as u64;
        at.ready.push_back(frame);
        if at.ready_bytes > RECEIVE_BYTES / 2 && !at.pauses && self.lossless != 0 {
            self.pause(host, true);
        }
    }

    /// A host pauses its link, or no longer does.
    fn pause(&mut self, host: HostId, pauses: bool) {
        self.hosts[host.index()].pauses = pauses;
        let priorities = if pauses { u8::MAX } else { 0 };
        let port = self.adapter(host).opposite();
        F::pause(self, port, priorities);
    }
}

fn hosts(plan: &Plan) -> Result<Vec<Host>> {
    let all = HostId::first(plan.hosts).map(|host| {
        let mut ports = PortId::first(plan.ports.len());
        let adapter = ports.find(|port| plan.ports[port.index()].near == Node::Host(host));
        let Some(adapter) = adapter else {
            bail!("host {} has no link", host.0);
        };
        Ok(Host {
            adapter,
            ready: VecDeque::new(),
            ready_bytes: 0,
            pauses: false,
            counts: HostCounts::default(),
        })
    });
    all.collect()
}

fn query(switch: SwitchId, (host, path): (HostId, u32), now_ps: u64) -> Query {
    Query {
        switch,
        host,
        path,
        now_ps,
    }
}

#[cfg(test)]
mod plain_tests;
#[cfg(test)]
mod tests;
