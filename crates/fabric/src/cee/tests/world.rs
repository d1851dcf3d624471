//! Hosts that send frames, and what is driven by time.

use std::{cmp::Reverse, collections::BinaryHeap, collections::HashMap};

use crate::{
    Graph, Pool,
    cee::{
        CONTROL_BYTES, Cee, CeeConfig, CeeFrame, CeeStats, Departure, Notification, OwnEffect,
        PRIORITIES, PortSpec, QueueKey,
    },
    contract::{Effect, Timer},
    graph::{HostId, Node, PortId, SwitchId},
    pool::Handle,
    port::{Drop, Frame},
    random::draw,
    routing::{Query, Routes, Scheme},
};

/// The longest frame.
pub const MTU: u32 = 1_514;
/// A link of the thesis: bits per second, and its length in ps.
pub const LINK: Link = (10_000_000_000, 1_000_000);

pub type Link = (u64, u64);

fn id(host: u16) -> HostId {
    HostId(host.into())
}

/// Frames from one host to another.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub source: u16,
    pub destination: u16,
    pub frames: u32,
    pub priority: u8,
    /// Of its adapter's queue.
    pub path: u32,
    pub bytes: u32,
    pub at_ps: u64,
}

impl Flow {
    pub fn new(source: u16, destination: u16, frames: u32) -> Self {
        Self {
            source,
            destination,
            frames,
            priority: 0,
            path: 0,
            bytes: MTU,
            at_ps: 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TestFrame {
    source: u16,
    destination: u16,
    priority: u8,
    path: u32,
    bytes: u32,
    number: u32,
    notified: Option<(QueueKey, u8)>,
}

impl Frame for TestFrame {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn is_ect(&self) -> bool {
        false
    }
    fn mark(&mut self) {}
}

impl CeeFrame for TestFrame {
    fn destination(&self) -> HostId {
        id(self.destination)
    }

    fn queue_path(&self) -> u32 {
        self.path
    }

    fn notification(sampled: &Self, notification: &Notification) -> Self {
        Self {
            source: sampled.destination,
            destination: notification.source.0 as u16,
            bytes: CONTROL_BYTES,
            notified: Some((notification.queue, notification.feedback.fb)),
            ..*sampled
        }
    }

    fn notice(&self) -> Option<(QueueKey, u8)> {
        self.notified
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    // Hosts come first: what ports decide at one time they decide after what has come then.
    Begin(usize),
    /// In the order in which frames were sent.
    Submit(u64, u16, Handle),
    Arrive(PortId),
    Transmit(PortId),
    Control(PortId),
}

/// An observation of a frame that left a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// A frame of this source, destination and number, or a notification.
    Sent(u16, u16, u32),
    /// A pause frame for these priorities, of which these have to wait.
    Pause(u8, u8),
    /// A frame, counted.
    Left(u16, u16, u32),
}

/// A network and its senders.
pub struct World {
    pub cee: Cee,
    pub pool: Pool<TestFrame>,
    graph: Graph,
    routes: Routes,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    flows: Vec<Flow>,
    /// By host: flows that have frames left, in turn.
    waiting: Vec<Vec<usize>>,
    numbers: HashMap<(u16, u16, u8), u32>,
    /// By host: what a frame takes from the host to its adapter, if that is anything, and bytes on
    /// their way.
    stacks: Vec<(Option<u64>, u64)>,
    in_stacks: u64,
    /// By link: how many failures it has now.
    failures: Vec<u32>,
    /// Bit p: a notification was made that has priority p.
    pub notified: u8,
    /// (time, source, priority, destination).
    pub received: Vec<(u64, u16, u8, u16)>,
    expected: HashMap<(u16, u16, u8), u32>,
    disorder: bool,
    sent: u64,
    /// By source and priority: frames that no host has received.
    missing: Vec<[u64; PRIORITIES]>,
    /// Observations at ports that are watched and adapters that are counted: (time, port or host,
    /// frame).
    pub told: Vec<(u64, u32, Told)>,
    pub now_ps: u64,
}

impl World {
    pub fn star(config: CeeConfig, hosts: u32) -> Self {
        Self::new(config, star(hosts), &[LINK])
    }

    /// Two levels, four hosts to a switch, two roots.
    pub fn tree(config: CeeConfig) -> Self {
        Self::new(config, tree(), &[LINK])
    }

    /// A host at each switch of a ring.
    pub fn ring(config: CeeConfig, count: u32) -> Self {
        let mut graph = Graph::new(count, count);
        for at in 0..count {
            graph.join(HostId(at), SwitchId(at));
        }
        for at in 0..count {
            graph.join(SwitchId(at), SwitchId((at + 1) % count));
        }
        Self::new(config, graph, &[LINK])
    }

    /// The links of a graph are like these, in turn.
    pub fn new(config: CeeConfig, graph: Graph, links: &[Link]) -> Self {
        let hosts = graph.hosts();
        let mut specs = Vec::new();
        for (&(a, b), &(rate_bps, propagation_ps)) in graph.links().iter().zip(links.iter().cycle())
        {
            for (near, far) in [(a, b), (b, a)] {
                specs.push(PortSpec {
                    near: graph.node(near),
                    far: graph.node(far),
                    rate_bps,
                    propagation_ps,
                    processing_ps: match graph.node(far) {
                        Node::Host(_) => config.adapter_delay_ps,
                        Node::Switch(_) => config.switch_delay_ps,
                    },
                    aqm: Default::default(),
                    frame_bytes: MTU,
                });
            }
        }
        let switches = graph.switches() as usize;
        Self {
            cee: Cee::new(config, specs, hosts as usize, switches, 1),
            pool: Pool::default(),
            routes: Routes::new(&graph),
            stacks: vec![(None, 0); hosts as usize],
            in_stacks: 0,
            failures: vec![0; graph.links().len()],
            missing: vec![[0; PRIORITIES]; hosts as usize],
            told: Vec::new(),
            graph,
            events: BinaryHeap::new(),
            flows: Vec::new(),
            waiting: vec![Vec::new(); hosts as usize],
            numbers: HashMap::new(),
            notified: 0,
            received: Vec::new(),
            expected: HashMap::new(),
            disorder: false,
            sent: 0,
            now_ps: 0,
        }
    }

    pub fn send(&mut self, flow: Flow) {
        self.flows.push(flow);
        let at_ps = flow.at_ps.max(self.now_ps);
        self.events
            .push(Reverse((at_ps, Event::Begin(self.flows.len() - 1))));
    }

    pub fn send_all(&mut self, flows: impl IntoIterator<Item = Flow>) {
        flows.into_iter().for_each(|flow| self.send(flow));
    }

    /// Handles events up to a time.
    pub fn run(&mut self, until_ps: u64) {
        while let Some(&Reverse((at_ps, event))) = self.events.peek() {
            if at_ps > until_ps {
                break;
            }
            self.events.pop();
            self.now_ps = at_ps;
            match event {
                Event::Begin(flow) => {
                    let host = self.flows[flow].source;
                    self.waiting[usize::from(host)].push(flow);
                    self.fill(host);
                }
                Event::Submit(_, host, handle) => {
                    self.stacks[usize::from(host)].1 -= u64::from(self.pool[handle].bytes);
                    self.in_stacks -= 1;
                    self.cee.submit(&mut self.pool, handle, at_ps);
                }
                Event::Transmit(port) => self.cee.transmit(&mut self.pool, port, at_ps),
                Event::Control(port) => self.cee.control(&mut self.pool, port, at_ps),
                Event::Arrive(port) => {
                    let (frame, next_ps) = self.cee.arrive(&mut self.pool, port, at_ps);
                    if let Some(next_ps) = next_ps {
                        self.events.push(Reverse((next_ps, event)));
                    }
                    if let Some(handle) = frame {
                        self.arrived(port, handle);
                    }
                }
            }
            self.carry_out();
        }
        if until_ps != u64::MAX {
            self.now_ps = until_ps;
        }
    }

    fn arrived(&mut self, port: PortId, handle: Handle) {
        let frame = self.pool[handle];
        let host = match self.cee.spec(port).far {
            Node::Host(host) => host,
            Node::Switch(switch) => return self.forward(switch, port, handle),
        };
        self.pool.release(handle);
        if let Some((queue, fb)) = frame.notified {
            let (pool, now_ps) = (&mut self.pool, self.now_ps);
            return self.cee.notified(pool, host, queue, fb, now_ps);
        }
        assert_eq!(host, id(frame.destination));
        let key = (frame.source, frame.destination, frame.priority);
        let expected = self.expected.entry(key).or_default();
        self.disorder |= frame.number < *expected;
        *expected = frame.number + 1;
        self.missing[usize::from(frame.source)][usize::from(frame.priority)] -= 1;
        self.received
            .push((self.now_ps, frame.source, frame.priority, frame.destination));
    }

    /// The port by which a frame leaves a switch.
    fn choose(&self, switch: SwitchId, handle: Handle) -> PortId {
        let query = Query {
            switch,
            host: id(self.pool[handle].destination),
            path: 0,
            now_ps: self.now_ps,
        };
        self.routes.peek(query).unwrap()
    }

    fn forward(&mut self, switch: SwitchId, from: PortId, handle: Handle) {
        let out = self.choose(switch, handle);
        self.cee
            .forward(&mut self.pool, [from, out], handle, self.now_ps);
    }

    fn carry_out(&mut self) {
        for (port, at_ps) in std::mem::take(&mut self.cee.requests.arrivals)
            .into_iter()
            .flatten()
        {
            self.events.push(Reverse((at_ps, Event::Arrive(port))));
        }
        let mut at = 0;
        while let Some(&effect) = self.cee.requests.effects.get(at) {
            at += 1;
            match effect {
                Effect::Timer(timer, at_ps) => {
                    let event = match timer {
                        Timer::Arrival(port) => Event::Arrive(port),
                        Timer::Transmit(port) => Event::Transmit(port),
                        Timer::Control(port) => Event::Control(port),
                        Timer::Resequence(_) => unreachable!("these hosts do that themselves"),
                    };
                    self.events.push(Reverse((at_ps, event)));
                }
                Effect::Own(OwnEffect::Notify(switch, handle)) => {
                    self.notified |= 1 << self.cee.priority(&self.pool, handle);
                    let out = self.choose(switch, handle);
                    let (pool, now_ps) = (&mut self.pool, self.now_ps);
                    self.cee
                        .forward(pool, [out.opposite(), out], handle, now_ps);
                }
                Effect::Room(host, _) => self.fill(host.0 as u16),
                Effect::Lost(_, _, handle) => self.pool.release(handle),
                Effect::Sent(port, handle, at_ps) => {
                    let (source, destination, number) = self.named(handle);
                    let told = Told::Sent(source, destination, number);
                    self.told.push((at_ps, port.0, told));
                }
                Effect::Own(OwnEffect::PauseSent(port, frame, at_ps)) => {
                    let told = Told::Pause(frame.priorities, frame.xoff);
                    self.told.push((at_ps, port.0, told));
                }
                Effect::Own(OwnEffect::Absorbed(..)) => {
                    unreachable!("these hosts do that themselves")
                }
                Effect::Own(
                    OwnEffect::Away(..) | OwnEffect::Forget(_) | OwnEffect::PauseAway(..),
                ) => unreachable!("this world has one part"),
                Effect::Left(host, _, handle) => {
                    let (source, destination, number) = self.named(handle);
                    let told = Told::Left(source, destination, number);
                    self.told.push((self.now_ps, host.0, told));
                }
            }
        }
        self.cee.requests.effects.clear();
    }

    fn named(&self, handle: Handle) -> (u16, u16, u32) {
        let frame = self.pool[handle];
        (frame.source, frame.destination, frame.number)
    }

    /// A host gives its adapter what there is room for, its flows by turns.
    fn fill(&mut self, host: u16) {
        let at = usize::from(host);
        loop {
            let (flows, cee, pool) = (&self.flows, &mut self.cee, &mut self.pool);
            let may = |index: &usize| {
                let priority = flows[*index].priority;
                cee.has_room(pool, (id(host), priority), MTU, self.now_ps)
            };
            let Some(position) = self.waiting[at].iter().position(may) else {
                return;
            };
            let index = self.waiting[at].remove(position);
            let flow = &mut self.flows[index];
            flow.frames -= 1;
            if flow.frames > 0 {
                self.waiting[at].push(index);
            }
            let flow = *flow;
            self.give(flow);
        }
    }

    /// A host's next frame of a flow goes to its adapter.
    fn give(&mut self, flow: Flow) {
        let Flow {
            source,
            destination,
            priority,
            path,
            bytes,
            ..
        } = flow;
        let number = self
            .numbers
            .entry((source, destination, priority))
            .or_default();
        *number += 1;
        let handle = self.pool.insert(TestFrame {
            source,
            destination,
            priority,
            path,
            bytes,
            number: *number - 1,
            notified: None,
        });
        self.sent += 1;
        self.missing[usize::from(source)][usize::from(priority)] += 1;
        let key = QueueKey {
            destination: id(destination),
            priority,
            path,
        };
        let departure = Departure {
            source: id(source),
            queue: self.cee.queue_to(id(source), key),
            priority,
            sender: 0,
        };
        let (stack_ps, in_stack) = &mut self.stacks[usize::from(source)];
        let Some(stack_ps) = *stack_ps else {
            return self
                .cee
                .send(&mut self.pool, handle, departure, self.now_ps);
        };
        *in_stack += u64::from(bytes);
        self.in_stacks += 1;
        self.cee.reserve(&self.pool, handle, departure);
        let event = Event::Submit(self.sent, source, handle);
        self.events.push(Reverse((self.now_ps + stack_ps, event)));
    }

    /// From now on frames take so long from a host to its adapter.
    pub fn set_stack(&mut self, host: u16, stack_ps: u64) {
        self.stacks[usize::from(host)].0 = Some(stack_ps);
    }

    pub fn count_departures(&mut self, host: u16) {
        self.cee
            .count_departures(&mut self.pool, id(host), self.now_ps);
        self.carry_out();
    }

    /// A host pauses its link, or no longer.
    pub fn storm(&mut self, host: u16, priorities: u8) {
        let port = self.graph.adapter(id(host)).unwrap().opposite();
        self.cee
            .storm(&mut self.pool, port, priorities, self.now_ps);
        self.carry_out();
    }

    /// A host has no room for these priorities.
    pub fn pause_for_host(&mut self, host: u16, priorities: u8) {
        let port = self.graph.adapter(id(host)).unwrap().opposite();
        self.cee
            .pause_for_host(&mut self.pool, port, priorities, self.now_ps);
        self.carry_out();
    }

    pub fn storm_priority(&mut self, host: u16, priority: u8) {
        self.storm(host, 1 << priority);
    }

    pub fn babble(&mut self, host: u16, babbles: bool) {
        self.cee
            .set_babbling(&mut self.pool, id(host), babbles, self.now_ps);
        self.carry_out();
    }

    /// A link fails once more, or has one failure less.
    pub fn fail(&mut self, link: u32, fails: bool) {
        let failures = &mut self.failures[link as usize];
        let before = std::mem::replace(failures, if fails { *failures + 1 } else { *failures - 1 });
        if before == u32::from(!fails) {
            self.set_link(link, !fails);
        }
    }

    pub fn links(&self) -> u32 {
        self.graph.links().len() as u32
    }

    /// Both directions of all links.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        self.graph.ports()
    }

    pub fn set_link(&mut self, link: u32, up: bool) {
        for port in PortId::both_of(link as usize) {
            self.cee.set_up(&mut self.pool, port, up, self.now_ps);
        }
        self.carry_out();
    }

    pub fn drops(&self) -> u64 {
        self.cee.drops()
    }

    pub fn cause(&self, cause: Drop) -> u64 {
        let ports = self.ports();
        ports
            .map(|port| self.cee.stats(port).drops[cause as usize])
            .sum()
    }

    /// The counters of all ports.
    pub fn stats(&self) -> Vec<CeeStats> {
        let ports = self.ports();
        ports.map(|port| self.cee.stats(port)).collect()
    }

    pub fn in_order(&self) -> bool {
        !self.disorder
    }

    /// Frames of some priorities that some hosts have sent and no host has received.
    pub fn missing(&self, priorities: u8, of: impl Fn(u16) -> bool) -> u64 {
        let hosts = (0..).zip(&self.missing).filter(|(host, _)| of(*host));
        let of_host = |missing: &[u64; PRIORITIES]| -> u64 {
            let of = (0..PRIORITIES).filter(|priority| priorities & 1 << priority != 0);
            of.map(|priority| missing[priority]).sum()
        };
        hosts.map(|(_, missing)| of_host(missing)).sum()
    }

    /// The books are right, and no frame is missing.
    pub fn check(&self) {
        assert_eq!(
            self.cee
                .audit(&self.pool, |host| self.stacks[host.index()].1),
            Ok(())
        );
        let underway = self.cee.underway(&self.pool);
        let underway = underway + self.in_stacks;
        assert_eq!(underway, self.pool.len() as u64);
        let (made, taken) = self.cee.notifications();
        let found = self.received.len() as u64 + self.cee.drops() + underway;
        assert_eq!(self.sent + made, found + taken);
    }
}

pub fn star(hosts: u32) -> Graph {
    let mut graph = Graph::new(hosts, 1);
    for host in HostId::first(hosts as usize) {
        graph.join(host, SwitchId(0));
    }
    graph
}

/// Two levels, four hosts to a switch, two roots.
pub fn tree() -> Graph {
    Graph::xgft(&[4, 4], &[1, 2]).unwrap()
}

/// Hosts at the switches of a random tree: there is one way only, and so no deadlock.
pub fn random(hosts: u32, mut seed: u64) -> Graph {
    let switches = 2 + (draw(&mut seed) % 5) as u32;
    let mut graph = Graph::new(hosts, switches);
    let mut below = |count: u32| SwitchId((draw(&mut seed) % u64::from(count)) as u32);
    for host in HostId::first(hosts as usize) {
        graph.join(host, below(switches));
    }
    for switch in 1..switches {
        graph.join(SwitchId(switch), below(switch));
    }
    graph
}
