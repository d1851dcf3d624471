//! Hosts that send frames, and what is driven by time.

use std::{cmp::Reverse, collections::BinaryHeap, collections::HashMap};

use crate::{
    Graph, Pool, Routes,
    cee::{
        CONTROL_BYTES, Cee, CeeConfig, CeeFrame, CeeStats, Departure, Effect, Notification, Place,
        PortSpec,
    },
    graph::PortId,
    pool::Handle,
    port::{Drop, Frame},
    random::draw,
};

/// The longest frame.
pub const MTU: u32 = 1_514;
const RATE_BPS: u64 = 10_000_000_000;

/// Frames from one host to another.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub source: u16,
    pub destination: u16,
    pub frames: u32,
    pub priority: u8,
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
    bytes: u32,
    number: u32,
    notified: Option<(u16, u8, u8)>,
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
    fn destination(&self) -> u16 {
        self.destination
    }

    fn notification(sampled: &Self, notification: &Notification) -> Self {
        let Notification {
            source,
            destination,
            priority,
            feedback,
            ..
        } = *notification;
        Self {
            source: sampled.destination,
            destination: source,
            bytes: CONTROL_BYTES,
            notified: Some((destination, priority, feedback.fb)),
            ..*sampled
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(PortId),
    Transmit(PortId),
    Control(PortId),
    Begin(usize),
}

/// A network, and who sends.
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
    /// (time, source, priority, destination).
    pub received: Vec<(u64, u16, u8, u16)>,
    expected: HashMap<(u16, u16, u8), u32>,
    disorder: bool,
    sent: u64,
    pub now_ps: u64,
}

impl World {
    pub fn star(config: CeeConfig, hosts: u32) -> Self {
        let mut graph = Graph::new(hosts, 1);
        for host in 0..hosts {
            graph.link(host, hosts);
        }
        Self::of(config, graph, hosts)
    }

    /// Two levels, four hosts to a switch, two roots.
    pub fn tree(config: CeeConfig) -> Self {
        let graph = Graph::xgft(&[4, 4], &[1, 2]).unwrap();
        Self::of(config, graph, 16)
    }

    /// A host at each switch of a ring.
    pub fn ring(config: CeeConfig, count: u32) -> Self {
        let mut graph = Graph::new(count, count);
        for host in 0..count {
            graph.link(host, count + host);
        }
        for at in 0..count {
            graph.link(count + at, count + (at + 1) % count);
        }
        Self::of(config, graph, count)
    }

    /// Hosts at the switches of a random tree: there is one way only, and so no deadlock.
    pub fn random(config: CeeConfig, hosts: u32, mut seed: u64) -> Self {
        let switches = 2 + (draw(&mut seed) % 5) as u32;
        let mut graph = Graph::new(hosts, switches);
        for host in 0..hosts {
            graph.link(host, hosts + (draw(&mut seed) % u64::from(switches)) as u32);
        }
        for switch in 1..switches {
            let other = (draw(&mut seed) % u64::from(switch)) as u32;
            graph.link(hosts + switch, hosts + other);
        }
        Self::of(config, graph, hosts)
    }

    fn of(config: CeeConfig, graph: Graph, hosts: u32) -> Self {
        let place = |node: u32| match node.checked_sub(hosts) {
            None => Place::Host(node as u16),
            Some(switch) => Place::Switch(switch),
        };
        let mut specs = Vec::new();
        for &(a, b) in graph.links() {
            for (near, far) in [(a, b), (b, a)] {
                specs.push(PortSpec {
                    near: place(near),
                    far: place(far),
                    rate_bps: RATE_BPS,
                    propagation_ps: 1_000_000,
                    processing_ps: match place(far) {
                        Place::Host(_) => config.adapter_delay_ps,
                        Place::Switch(_) => config.switch_delay_ps,
                    },
                    aqm: Default::default(),
                    frame_bytes: MTU,
                });
            }
        }
        let switches = (graph.nodes() - hosts) as usize;
        Self {
            cee: Cee::new(config, specs, hosts as usize, switches, 1),
            pool: Pool::default(),
            routes: Routes::new(&graph),
            graph,
            events: BinaryHeap::new(),
            flows: Vec::new(),
            waiting: vec![Vec::new(); hosts as usize],
            numbers: HashMap::new(),
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
        let (host, switch) = match self.cee.spec(port).far {
            Place::Host(host) => (host, None),
            Place::Switch(switch) => (0, Some(switch)),
        };
        if let Some(switch) = switch {
            return self.forward(switch, port, handle);
        }
        self.pool.release(handle);
        if let Some((destination, priority, fb)) = frame.notified {
            let at = (destination, priority);
            return self.cee.notified(&mut self.pool, host, at, fb, self.now_ps);
        }
        assert_eq!(host, frame.destination);
        let key = (frame.source, frame.destination, frame.priority);
        let expected = self.expected.entry(key).or_default();
        self.disorder |= frame.number < *expected;
        *expected = frame.number + 1;
        self.received
            .push((self.now_ps, frame.source, frame.priority, host));
    }

    fn forward(&mut self, switch: u32, from: PortId, handle: Handle) {
        let to = usize::from(self.pool[handle].destination);
        let out = self.routes.next(switch as usize, to, 0).unwrap();
        self.cee
            .forward(&mut self.pool, [from, out], handle, self.now_ps);
    }

    fn carry_out(&mut self) {
        let mut at = 0;
        while let Some(&effect) = self.cee.effects.get(at) {
            at += 1;
            match effect {
                Effect::Transmit(port, at_ps) => {
                    self.events.push(Reverse((at_ps, Event::Transmit(port))));
                }
                Effect::Arrive(port, at_ps) => {
                    self.events.push(Reverse((at_ps, Event::Arrive(port))));
                }
                Effect::Control(port, at_ps) => {
                    self.events.push(Reverse((at_ps, Event::Control(port))));
                }
                Effect::Notify(switch, handle) => {
                    let to = usize::from(self.pool[handle].destination);
                    let out = self.routes.next(switch as usize, to, 0).unwrap();
                    self.forward(switch, out ^ 1, handle);
                }
                Effect::Room(host, _) => self.fill(host),
                Effect::Lost(_, handle) => self.pool.release(handle),
                Effect::Sent(..) | Effect::PauseSent(..) | Effect::Left(..) => {}
            }
        }
        self.cee.effects.clear();
    }

    /// A host gives its adapter what there is room for, its flows by turns.
    fn fill(&mut self, host: u16) {
        let at = usize::from(host);
        loop {
            let (flows, cee, pool) = (&self.flows, &mut self.cee, &mut self.pool);
            let may = |index: &usize| {
                let priority = flows[*index].priority;
                cee.has_room(pool, (host, priority), MTU, self.now_ps)
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
            let key = (flow.source, flow.destination, flow.priority);
            let number = self.numbers.entry(key).or_default();
            *number += 1;
            let handle = self.pool.insert(TestFrame {
                source: host,
                destination: flow.destination,
                priority: flow.priority,
                bytes: flow.bytes,
                number: *number - 1,
                notified: None,
            });
            self.sent += 1;
            let departure = Departure {
                source: host,
                queue: self.cee.queue_to(host, flow.destination, flow.priority),
                priority: flow.priority,
                sender: 0,
            };
            self.cee
                .send(&mut self.pool, handle, departure, self.now_ps);
        }
    }

    /// A host pauses its link, or no longer.
    pub fn storm(&mut self, host: u16, priorities: u8) {
        let port = self.graph.adjacent(host.into())[0].0 ^ 1;
        self.cee
            .storm(&mut self.pool, port, priorities, self.now_ps);
        self.carry_out();
    }

    pub fn storm_priority(&mut self, host: u16, priority: u8) {
        self.storm(host, 1 << priority);
    }

    pub fn babble(&mut self, host: u16) {
        self.cee
            .set_babbling(&mut self.pool, host, true, self.now_ps);
    }

    pub fn set_link(&mut self, link: u32, up: bool) {
        for port in [2 * link, 2 * link + 1] {
            self.cee.set_up(&mut self.pool, port, up, self.now_ps);
        }
        self.carry_out();
    }

    pub fn drops(&self) -> u64 {
        self.cee.drops()
    }

    pub fn cause(&self, cause: Drop) -> u64 {
        let ports = 0..2 * self.graph.links().len() as PortId;
        ports
            .map(|port| self.cee.stats(port).drops[cause as usize])
            .sum()
    }

    /// What all ports counted.
    pub fn stats(&self) -> Vec<CeeStats> {
        let ports = 0..2 * self.graph.links().len() as PortId;
        ports.map(|port| self.cee.stats(port)).collect()
    }

    pub fn in_order(&self) -> bool {
        !self.disorder
    }

    /// The books are right, and no frame is missing.
    pub fn check(&self) {
        assert_eq!(self.cee.audit(&self.pool, |_| 0), Ok(()));
        let underway = self.cee.underway(&self.pool);
        assert_eq!(underway, self.pool.len() as u64);
        let (made, taken) = self.cee.notifications();
        let found = self.received.len() as u64 + self.cee.drops() + underway;
        assert_eq!(self.sent + made, found + taken);
    }
}
