//! The host under test: virtual time, sockets, one connection, and what it has sent.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use sluicegate_tcp::{Config, Endpoint, Error, Events, Segment, State, segment::flags};

use crate::{
    Step, Stop,
    calls::Blocked,
    machine::Machine,
    packet::{LOCAL_ISN, Packet},
};

/// Steps without progress after which an endpoint is given up: it would go on for ever.
const MOST_STEPS: usize = 200_000;
/// How long the machine has been up when a script begins.
const BOOT_NS: u64 = 1_000_000_000;
/// As late as a script's clock goes.
const END_OF_TIME_NS: u64 = 1 << 60;

/// A segment that has left.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at_ns: u64,
    pub packet: Packet,
}

/// What a file descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A socket that neither listens nor connects.
    Fresh,
    Listener,
    /// The connection of this number.
    Connection(u32),
}

#[derive(Clone, Debug)]
pub struct Socket {
    pub role: Role,
    pub nonblocking: bool,
    /// `close` resets (`SO_LINGER` with no time).
    pub resets: bool,
    /// `shutdown` for reading.
    pub deaf: bool,
}

#[derive(Clone, Debug)]
pub struct Connection {
    pub endpoint: Endpoint,
    pub number: u32,
    pub passive: bool,
    /// An application has it: by `connect`, or by `accept`.
    pub owned: bool,
    pub established: bool,
    /// The application has closed it.
    pub orphan: bool,
    /// The send buffer has enough space again since a write found none.
    pub writable: bool,
    /// What the next call on it returns.
    pub error: Option<&'static str>,
    /// First sequence number that is not acknowledged, and the first that has not left; relative.
    pub una: u32,
    pub nxt: u32,
}

/// Script's TSval against the endpoint's.
#[derive(Clone, Debug, Default)]
struct Timestamps {
    pairs: Vec<(u32, u32)>,
}

pub struct Host {
    pub config: Config,
    pub now_ns: u64,
    /// Line of the event that is running.
    pub line: usize,
    pub sockets: BTreeMap<i64, Socket>,
    pub connection: Option<Connection>,
    pub sent: VecDeque<Sent>,
    pub blocked: Option<Blocked>,
    /// An application has written.
    pub wrote: bool,
    connections: u32,
    timestamps: Timestamps,
}

impl Host {
    pub fn new(machine: &Machine) -> Self {
        Self {
            config: machine.config,
            now_ns: 0,
            line: 0,
            sockets: BTreeMap::new(),
            connection: None,
            sent: VecDeque::new(),
            blocked: None,
            wrote: false,
            connections: 0,
            timestamps: Timestamps::default(),
        }
    }

    /// A new connection takes the place of the last one.
    pub fn begin(&mut self, endpoint: Endpoint, passive: bool) -> u32 {
        self.connections += 1;
        self.timestamps = Timestamps::default();
        self.connection = Some(Connection {
            endpoint,
            number: self.connections,
            passive,
            owned: !passive,
            established: false,
            orphan: false,
            writable: true,
            error: None,
            una: 0,
            nxt: 0,
        });
        self.connections
    }

    /// An active open.
    pub fn connect(&mut self) -> u32 {
        let endpoint = Endpoint::connect(Arc::new(self.config), LOCAL_ISN);
        self.begin(endpoint, false)
    }

    fn listens(&self) -> bool {
        self.sockets
            .values()
            .any(|socket| socket.role == Role::Listener)
    }

    /// A segment arrives.
    pub fn arrive(&mut self, packet: &Packet) -> Step {
        let mut packet = packet.clone();
        if let Some((_, ecr)) = &mut packet.options.timestamps {
            *ecr = self.timestamps.live(*ecr);
        }
        let segment = match packet.to_segment() {
            Ok(segment) => segment,
            Err(reason) => return Stop::unsupported(self.line, reason),
        };
        match &mut self.connection {
            Some(connection) if connection.endpoint.state() != State::Closed => {
                if connection.refuses(&packet) {
                    self.send(packet.reset());
                } else {
                    self.deliver(&packet, &segment);
                }
            }
            _ => self.arrive_unknown(&packet, &segment),
        }
        self.pump()
    }

    /// A segment of no connection.
    fn arrive_unknown(&mut self, packet: &Packet, segment: &Segment) {
        let opens = packet.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN;
        if opens && self.listens() {
            let config = Arc::new(self.config);
            let endpoint = Endpoint::accept(config, LOCAL_ISN, segment, self.clock());
            self.begin(endpoint, true);
        } else if !packet.has(flags::RST) {
            self.send(packet.reset());
        }
    }

    /// A segment of the connection.
    fn deliver(&mut self, packet: &Packet, segment: &Segment) {
        let now_ns = self.clock();
        let Some(connection) = &mut self.connection else {
            return;
        };
        if packet.has(flags::ACK) && (packet.ack.wrapping_sub(connection.una) as i32) > 0 {
            let beyond = packet.ack.wrapping_sub(connection.nxt) as i32;
            connection.una = if beyond > 0 {
                connection.una
            } else {
                packet.ack
            };
        }
        let events = connection.endpoint.segment(now_ns, segment);
        connection.note(events);
        if connection.orphan && connection.endpoint.readable() > 0 {
            // The data can never be read (RFC 9293 3.6.1, RFC 2525 2.17).
            self.connection = None;
            self.send(packet.reset());
        }
    }

    pub fn send(&mut self, packet: Packet) {
        let at_ns = self.now_ns;
        self.sent.push_back(Sent { at_ns, packet });
    }

    /// Everything that may leave now leaves, and a call that waits is looked at again.
    pub fn pump(&mut self) -> Step {
        for _ in 0..MOST_STEPS {
            self.transmit()?;
            if !self.resume()? {
                return Ok(());
            }
        }
        Stop::fail(self.line, "a call goes on for ever")
    }

    fn transmit(&mut self) -> Step {
        let now_ns = self.clock();
        for _ in 0..MOST_STEPS {
            let Some(connection) = &mut self.connection else {
                return Ok(());
            };
            let Some(segment) = connection.endpoint.transmit(now_ns) else {
                return Ok(());
            };
            let packet = Packet::from_segment(&segment);
            if (packet.end().wrapping_sub(connection.nxt) as i32) > 0 {
                connection.nxt = packet.end();
            }
            self.send(packet);
        }
        Stop::fail(self.line, "the endpoint sends for ever")
    }

    /// The endpoint's clock.
    fn clock(&self) -> u64 {
        self.now_ns + BOOT_NS
    }

    /// When something is due by itself; `u64::MAX`: never.
    pub fn deadline(&self) -> u64 {
        match self
            .connection
            .as_ref()
            .map(|open| open.endpoint.deadline_ns())
        {
            None | Some(u64::MAX) => u64::MAX,
            Some(deadline) => deadline.saturating_sub(BOOT_NS),
        }
    }

    /// Time passes until just before `until_ns`, or to the first segment that leaves if `first`.
    /// What is due at that very moment comes after the event there.
    pub fn advance(&mut self, until_ns: u64, first: bool) -> Step {
        for _ in 0..MOST_STEPS {
            if first && !self.sent.is_empty() {
                return Ok(());
            }
            let deadline = self.deadline();
            let due = if first {
                deadline <= until_ns
            } else {
                deadline < until_ns
            };
            if !due {
                self.now_ns = self.now_ns.max(until_ns.min(END_OF_TIME_NS));
                return Ok(());
            }
            self.now_ns = self.now_ns.max(deadline);
            let now_ns = self.clock();
            if let Some(connection) = &mut self.connection {
                let events = connection.endpoint.timeout(now_ns);
                connection.note(events);
            }
            self.pump()?;
        }
        Stop::fail(self.line, "the endpoint's timer never stops")
    }

    /// The endpoint's TSval `live` left where the script has `script`; returns it by the script's
    /// clock, which began with the first one.
    pub fn learn_timestamp(&mut self, script: u32, live: u32) -> u32 {
        let (began, first) = *self.timestamps.pairs.first().unwrap_or(&(script, live));
        self.timestamps.pairs.push((script, live));
        began.wrapping_add(live.wrapping_sub(first))
    }
}

impl Connection {
    /// What the endpoint leaves to its host: an ACK of nothing that was sent, before there is a
    /// connection (RFC 9293 3.10.7.3 and 3.10.7.4).
    fn refuses(&self, packet: &Packet) -> bool {
        matches!(self.endpoint.state(), State::SynSent | State::SynReceived)
            && packet.has(flags::ACK)
            && !packet.has(flags::RST)
            && packet.ack != 1
    }

    pub fn note(&mut self, events: Events) {
        self.established |= events.contains(Events::CONNECTED);
        self.writable |= events.contains(Events::WRITABLE);
        if events.contains(Events::FAILED) {
            self.error = match self.endpoint.error() {
                Some(Error::Refused) => Some("ECONNREFUSED"),
                Some(Error::TimedOut) => Some("ETIMEDOUT"),
                Some(Error::Reset) | None => Some("ECONNRESET"),
            };
        }
    }
}

impl Timestamps {
    /// The endpoint's TSval for the one that a script echoes.
    fn live(&self, script: u32) -> u32 {
        if let Some((_, live)) = self.pairs.iter().rev().find(|(known, _)| *known == script) {
            return *live;
        }
        match self.pairs.last() {
            Some((known, live)) if script != 0 => live.wrapping_add(script.wrapping_sub(*known)),
            _ => script,
        }
    }
}
