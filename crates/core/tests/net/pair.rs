//! Two sides and the network between them.

use std::collections::BTreeMap;

use sluicegate_core::{
    abi::{Flow, PolicyTable},
    host::{Action, Direction, Host, Outcome, ecn},
};

use super::{Packet, Route, Tenant, invariants, opt, tenant::State, wire};

/// The side that connects.
pub const A: usize = 0;
/// The side that listens.
pub const B: usize = 1;

/// Something that enforces: a [`Host`], or a host that is compared with another one.
pub trait Enforcer {
    fn frame(&mut self, frame: &mut Vec<u8>, direction: Direction, now_ns: u64) -> Outcome;
    fn host(&self) -> &Host;
}

impl Enforcer for Host {
    fn frame(&mut self, frame: &mut Vec<u8>, direction: Direction, now_ns: u64) -> Outcome {
        Host::frame(self, frame, direction, now_ns)
    }

    fn host(&self) -> &Host {
        self
    }
}

/// The fate of a packet in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Deliver,
    /// Congestion: CE, if the packet is ECN-capable.
    Mark,
    /// A box on the way clears the ECN field.
    Bleach,
    /// It removes the hosts' option from a handshake, too.
    Strip,
    Drop,
    /// Comes so many ns late.
    Delay(u64),
}

/// A packet between the hosts.
#[derive(Clone, Debug)]
pub struct Crossing {
    pub from: usize,
    /// Counts packets of both sides, from 0.
    pub index: u64,
    pub sent_ns: u64,
    pub packet: Packet,
}

pub struct Side<E> {
    pub tenant: Tenant,
    /// `None` = this host doesn't enforce.
    pub enforcer: Option<E>,
    /// From this side to the other.
    pub route: Route,
    /// The decisions of its host, packet by packet.
    pub outcomes: Vec<Outcome>,
}

pub struct Pair<E = Host> {
    pub sides: [Side<E>; 2],
    pub now_ns: u64,
    pub latency_ns: u64,
    /// Time that a packet takes to leave.
    pub gap_ns: u64,
    pub fate: Box<dyn FnMut(&Crossing) -> Fate>,
    /// Everything that left a host.
    pub log: Vec<Crossing>,
    in_flight: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    busy_until_ns: [u64; 2],
}

impl Pair<Host> {
    /// Both hosts enforce `policy`. IPv4, a latency of 50 µs, an empty network.
    pub fn new(policy: &PolicyTable) -> Self {
        Self::of([Host::new(policy), Host::new(policy)])
    }
}

impl<E: Enforcer> Pair<E> {
    pub fn of(enforcers: [E; 2]) -> Self {
        let route = Route::new("10.1.0.1:40000", "10.2.0.1:5001");
        let [near, far] = enforcers;
        let side = |enforcer, iss, route| Side {
            tenant: Tenant::new(iss),
            enforcer: Some(enforcer),
            route,
            outcomes: Vec::new(),
        };
        Self {
            // Both sequence spaces wrap soon.
            sides: [
                side(near, u32::MAX - 30_000, route),
                side(far, u32::MAX - 70_000, route.reversed()),
            ],
            now_ns: 1_000_000_000,
            latency_ns: 50_000,
            gap_ns: 1_000,
            fate: Box::new(|_| Fate::Deliver),
            log: Vec::new(),
            in_flight: BTreeMap::new(),
            busy_until_ns: [0; 2],
        }
    }

    pub fn set_route(&mut self, route: Route) {
        self.sides[A].route = route;
        self.sides[B].route = route.reversed();
    }

    pub fn set_fate(&mut self, fate: impl FnMut(&Crossing) -> Fate + 'static) {
        self.fate = Box::new(fate);
    }

    pub fn tenant(&mut self, side: usize) -> &mut Tenant {
        &mut self.sides[side].tenant
    }

    /// The host of a side that enforces.
    pub fn host(&self, side: usize) -> &Host {
        self.sides[side].enforcer.as_ref().expect("enforces").host()
    }

    /// The flow at a side.
    pub fn flow(&self, side: usize) -> &Flow {
        self.host(side).flow().expect("there is a flow")
    }

    /// A counter of a side's host.
    pub fn counter(&self, side: usize, name: &str) -> u64 {
        self.host(side).counter(name).expect("a counter's name")
    }

    /// Packets that side `from` sent into the network.
    pub fn sent(&self, from: usize) -> impl Iterator<Item = &Packet> {
        self.log
            .iter()
            .filter(move |crossing| crossing.from == from)
            .map(|crossing| &crossing.packet)
    }

    /// A packet leaves a tenant.
    pub fn transmit(&mut self, from: usize, packet: &Packet) {
        let mut frame = self.sides[from].route.build(packet);
        let Some(outcome) = self.pass(from, &mut frame, Direction::FromTenant) else {
            self.enter_network(from, frame);
            return;
        };
        if outcome.action == Action::Pass {
            self.enter_network(from, frame);
        }
        if let Some(fack) = outcome.fack {
            self.enter_network(from, fack);
        }
    }

    fn pass(&mut self, side: usize, frame: &mut Vec<u8>, direction: Direction) -> Option<Outcome> {
        let side = &mut self.sides[side];
        let before = frame.clone();
        let outcome = side.enforcer.as_mut()?.frame(frame, direction, self.now_ns);
        invariants::check(&before, frame, direction, &outcome);
        side.outcomes.push(outcome.clone());
        Some(outcome)
    }

    fn enter_network(&mut self, from: usize, frame: Vec<u8>) {
        let crossing = Crossing {
            from,
            index: self.log.len() as u64,
            sent_ns: self.now_ns,
            packet: wire::read(&frame).1,
        };
        let mut packet = crossing.packet.clone();
        let leaves_ns = self.busy_until_ns[from].max(self.now_ns) + self.gap_ns;
        self.busy_until_ns[from] = leaves_ns;
        let mut at_ns = leaves_ns + self.latency_ns;
        match (self.fate)(&crossing) {
            Fate::Drop => {
                self.log.push(crossing);
                return;
            }
            Fate::Deliver => {}
            Fate::Mark if packet.ecn == ecn::NOT_ECT => {}
            Fate::Mark => packet.ecn = ecn::CE,
            Fate::Bleach => packet.ecn = ecn::NOT_ECT,
            Fate::Strip => {
                packet.ecn = ecn::NOT_ECT;
                opt::blank(&mut packet.options, opt::EXPERIMENT);
            }
            Fate::Delay(ns) => at_ns += ns,
        }
        let frame = if packet == crossing.packet {
            frame
        } else {
            self.sides[from].route.build(&packet)
        };
        self.in_flight
            .insert((at_ns, crossing.index), (from, frame));
        self.log.push(crossing);
    }

    /// The next packet arrives. `false` when none is under way.
    pub fn step(&mut self) -> bool {
        let Some(((at_ns, _), (from, mut frame))) = self.in_flight.pop_first() else {
            return false;
        };
        self.now_ns = self.now_ns.max(at_ns);
        let to = 1 - from;
        let outcome = self.pass(to, &mut frame, Direction::ToTenant);
        if outcome.is_none_or(|outcome| outcome.action == Action::Pass) {
            let packet = wire::read(&frame).1;
            for answer in self.sides[to].tenant.take(&packet) {
                self.transmit(to, &answer);
            }
        }
        true
    }

    /// Until nothing is under way.
    pub fn run(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the packets never come to rest");
    }

    /// Runs, and lets retransmission timers fire, until everything that was sent is acknowledged.
    pub fn finish(&mut self) {
        for _ in 0..10_000 {
            self.run();
            let stuck: Vec<usize> = [A, B]
                .into_iter()
                .filter(|side| self.sides[*side].tenant.flight() > 0)
                .collect();
            if stuck.is_empty() {
                return;
            }
            self.wait(250_000_000);
            for side in stuck {
                for packet in self.tenant(side).time_out() {
                    self.transmit(side, &packet);
                }
            }
        }
        panic!("the transfer never ends");
    }

    /// Time passes in which nothing happens.
    pub fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// A connects, B accepts.
    pub fn connect(&mut self) {
        let syn = self.tenant(A).syn();
        self.transmit(A, &syn);
        self.run();
        for side in [A, B] {
            assert_eq!(self.sides[side].tenant.state, State::Open);
        }
    }

    /// The application of a side writes.
    pub fn send(&mut self, from: usize, bytes: u64) {
        for packet in self.tenant(from).send(bytes) {
            self.transmit(from, &packet);
        }
    }

    /// Sends and lets everything arrive, whatever is lost on the way.
    pub fn transfer(&mut self, from: usize, bytes: u64) {
        let before = self.sides[1 - from].tenant.received;
        self.send(from, bytes);
        self.finish();
        assert_eq!(
            self.sides[1 - from].tenant.received - before,
            bytes,
            "every byte arrives"
        );
    }
}
