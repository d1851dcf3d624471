//! A world in memory for tests: every application is a tenant of its own, bytes take a constant
//! time, and the unread bytes of a stream are bounded, so that writes are taken in part.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Range,
};

use sluicegate_scenario::workload::{
    Plan, Report,
    plan::{Role, Span},
};

use crate::{
    Actor, App,
    io::{Datagram, Io, MessageHeader, Seized, SenderState, SocketId},
};

/// From one tenant to another.
pub const DELAY_NS: u64 = 1_000_000;

/// Bytes that may be written and not read.
const BUFFER_BYTES: u64 = 10_000;

pub const SECOND_NS: u64 = 1_000_000_000;

/// The whole run of the tests.
pub const SPAN: Span = Span {
    begin_ns: 0,
    end_ns: SECOND_NS,
};

/// Address of application `index` and this port.
pub fn at(index: u8, port: u16) -> SocketAddr {
    SocketAddr::new(address(index.into()), port)
}

fn address(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, index as u8).into()
}

#[derive(Default)]
struct Socket {
    app: usize,
    key: u64,
    peer: Option<usize>,
    /// Written to it and not read; arrived and not read.
    held_bytes: u64,
    arrived_bytes: u64,
    headers: VecDeque<MessageHeader>,
    finished: bool,
    broken: bool,
    wants_write: bool,
    /// Of datagrams: their receiver, and what it has taken.
    to: Option<SocketAddr>,
    limit_bytes: u64,
    taken: (u64, u64),
    datagrams: VecDeque<Datagram>,
}

enum Event {
    Timer(usize, u64),
    Connected(usize),
    Bytes(usize, u64, Option<MessageHeader>),
    Finished(usize),
    Writable(usize),
    Datagram(usize, Datagram),
}

/// Everything but the applications.
pub struct World {
    pub now_ns: u64,
    plans: Vec<Plan>,
    sockets: Vec<Socket>,
    /// (application, port, whether of datagrams): key, and socket if of datagrams.
    listeners: BTreeMap<(usize, u16, bool), (u64, usize)>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub notes: Vec<String>,
    /// Sequence numbers of forged segments, and acknowledgements that wait.
    pub forged: Vec<u32>,
    pub acks: VecDeque<u32>,
    pub room_for_forged: usize,
}

/// Applications and their world.
pub struct Run {
    pub world: World,
    apps: Vec<App>,
}

impl Run {
    /// From one role per tenant; time 0.
    pub fn new(roles: &[Role]) -> Self {
        let world = World {
            now_ns: 0,
            plans: (0..roles.len()).map(plan).collect(),
            sockets: Vec::new(),
            listeners: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            notes: Vec::new(),
            forged: Vec::new(),
            acks: VecDeque::new(),
            room_for_forged: usize::MAX,
        };
        let apps = roles.iter().map(App::from).collect();
        let mut run = Self { world, apps };
        run.each(|app, io| app.prepare(io));
        run.each(|app, io| app.begin(io));
        run
    }

    fn with(&mut self, app: usize, act: impl FnOnce(&mut App, &mut Fake<'_>)) {
        let world = &mut self.world;
        act(&mut self.apps[app], &mut Fake { world, app });
    }

    fn each(&mut self, mut act: impl FnMut(&mut App, &mut Fake<'_>)) {
        (0..self.apps.len()).for_each(|app| self.with(app, &mut act));
    }

    /// Handles what happens before this time.
    pub fn until(&mut self, until_ns: u64) {
        while let Some(first) = self.world.events.first_entry() {
            let at_ns = first.key().0;
            if at_ns >= until_ns {
                break;
            }
            let event = first.remove();
            self.world.now_ns = at_ns;
            self.handle(event);
        }
        self.world.now_ns = until_ns;
    }

    fn handle(&mut self, event: Event) {
        let sockets = &mut self.world.sockets;
        let socket = match event {
            Event::Timer(app, key) => return self.with(app, |app, io| app.timer(io, key)),
            Event::Connected(index) => {
                let (app, key) = (sockets[index].app, sockets[index].key);
                return self.with(app, |app, io| app.connected(io, id(index), key));
            }
            Event::Writable(index) => {
                let (app, key) = (sockets[index].app, sockets[index].key);
                return self.with(app, |app, io| app.writable(io, id(index), key));
            }
            Event::Bytes(index, bytes, header) => {
                sockets[index].arrived_bytes += bytes;
                sockets[index].headers.extend(header);
                index
            }
            Event::Finished(index) => {
                sockets[index].finished = true;
                index
            }
            Event::Datagram(index, datagram) => {
                sockets[index].datagrams.push_back(datagram);
                index
            }
        };
        let (app, key, broken) = {
            let socket = &sockets[socket];
            (socket.app, socket.key, socket.broken)
        };
        if !broken {
            self.with(app, |app, io| app.readable(io, id(socket), key));
        }
    }

    /// All connections of an application fail without a word.
    pub fn break_all(&mut self, app: usize) {
        let sockets = self.world.sockets.iter_mut();
        sockets
            .filter(|socket| socket.app == app)
            .for_each(|socket| socket.broken = true);
    }

    /// The peers of all connections of an application close them.
    pub fn hang_up(&mut self, app: usize) {
        for index in 0..self.world.sockets.len() {
            if self.world.sockets[index].app == app {
                self.world.after(0, Event::Finished(index));
            }
        }
    }

    /// Whether each role that decides how long a run lasts has done all.
    pub fn is_complete(&self) -> bool {
        self.apps
            .iter()
            .all(|app| app.is_complete().unwrap_or(true))
    }

    /// The reports of all applications, as one.
    pub fn finish(&mut self) -> Report {
        let mut report = Report::default();
        self.each(|app, io| app.finish(io, &mut report));
        report
    }
}

/// Measures from 0.1 s to 0.9 s.
fn plan(index: usize) -> Plan {
    Plan {
        tenant: index.to_string(),
        address: address(index),
        prefix_length: 24,
        mtu_bytes: 1500,
        sysctls: Vec::new(),
        datagram_buffer_bytes: None,
        congestion_control: String::new(),
        verify: false,
        measure_begin_ns: SECOND_NS / 10,
        measure_end_ns: SECOND_NS / 10 * 9,
        stop_ns: SECOND_NS,
        series_interval_ns: SECOND_NS / 10,
        cwnd_interval_ns: SECOND_NS / 100,
        roles: Vec::new(),
        priorities: Vec::new(),
        routings: Vec::new(),
    }
}

fn id(index: usize) -> SocketId {
    SocketId(index as u64)
}

impl World {
    fn after(&mut self, delay_ns: u64, event: Event) {
        self.sequence += 1;
        let at_ns = self.now_ns + delay_ns;
        self.events.insert((at_ns, self.sequence), event);
    }

    fn app_at(&self, address: IpAddr) -> usize {
        let found = self.plans.iter().position(|plan| plan.address == address);
        found.expect("an application with this address")
    }

    fn add(&mut self, socket: Socket) -> usize {
        self.sockets.push(socket);
        self.sockets.len() - 1
    }
}

/// The actions of an application.
struct Fake<'a> {
    world: &'a mut World,
    app: usize,
}

impl Fake<'_> {
    fn socket(&mut self, socket: SocketId) -> &mut Socket {
        &mut self.world.sockets[socket.0 as usize]
    }

    fn put(&mut self, socket: SocketId, bytes: u64, header: Option<MessageHeader>) -> u64 {
        let own = self.socket(socket);
        let Some(peer) = own.peer.filter(|_| !own.broken) else {
            return 0;
        };
        let room = BUFFER_BYTES - self.world.sockets[peer].held_bytes;
        let taken = bytes.min(room);
        self.socket(socket).wants_write = taken < bytes;
        self.world.sockets[peer].held_bytes += taken;
        if taken > 0 {
            self.world
                .after(DELAY_NS, Event::Bytes(peer, taken, header));
        }
        taken
    }
}

impl Io for Fake<'_> {
    fn plan(&self) -> &Plan {
        &self.world.plans[self.app]
    }

    fn now_ns(&self) -> u64 {
        self.world.now_ns
    }

    fn timer(&mut self, at_ns: u64, key: u64) {
        let delay_ns = at_ns.saturating_sub(self.world.now_ns);
        self.world.after(delay_ns, Event::Timer(self.app, key));
    }

    fn note(&mut self, line: String) {
        self.world.notes.push(line);
    }

    fn listen(&mut self, port: u16, key: u64) {
        self.world
            .listeners
            .insert((self.app, port, false), (key, 0));
    }

    fn connect(&mut self, peer: SocketAddr, key: u64) -> SocketId {
        let app = self.app;
        let own = self.world.add(Socket {
            app,
            key,
            ..Socket::default()
        });
        let app = self.world.app_at(peer.ip());
        if let Some(&(key, _)) = self.world.listeners.get(&(app, peer.port(), false)) {
            let accepted = self.world.add(Socket {
                app,
                key,
                peer: Some(own),
                ..Socket::default()
            });
            self.world.sockets[own].peer = Some(accepted);
            self.world.after(DELAY_NS, Event::Connected(accepted));
            self.world.after(2 * DELAY_NS, Event::Connected(own));
        }
        id(own)
    }

    fn set_key(&mut self, socket: SocketId, key: u64) {
        self.socket(socket).key = key;
    }

    fn write(&mut self, socket: SocketId, bytes: u64) -> u64 {
        self.put(socket, bytes, None)
    }

    fn write_message(&mut self, socket: SocketId, header: &MessageHeader, part: Range<u64>) -> u64 {
        let first = (part.start == 0).then_some(*header);
        self.put(socket, part.end - part.start, first)
    }

    fn read(&mut self, socket: SocketId, most: u64) -> u64 {
        let own = self.socket(socket);
        let bytes = own.arrived_bytes.min(most);
        own.arrived_bytes -= bytes;
        own.held_bytes -= bytes;
        let again = own.arrived_bytes > 0 && bytes > 0;
        if let Some(peer) = own.peer.filter(|_| bytes > 0) {
            if std::mem::take(&mut self.world.sockets[peer].wants_write) {
                self.world.after(DELAY_NS, Event::Writable(peer));
            }
        }
        if again {
            self.world
                .after(0, Event::Bytes(socket.0 as usize, 0, None));
        }
        bytes
    }

    fn read_messages(&mut self, socket: SocketId) -> u64 {
        self.read(socket, u64::MAX)
    }

    fn message_header(&self, socket: SocketId) -> Option<MessageHeader> {
        self.world.sockets[socket.0 as usize]
            .headers
            .front()
            .copied()
    }

    fn take_message_header(&mut self, socket: SocketId) -> Option<MessageHeader> {
        self.socket(socket).headers.pop_front()
    }

    fn at_end(&self, socket: SocketId) -> bool {
        let socket = &self.world.sockets[socket.0 as usize];
        socket.finished && socket.arrived_bytes == 0
    }

    fn close(&mut self, socket: SocketId) {
        if let Some(peer) = self.socket(socket).peer {
            self.world.after(DELAY_NS, Event::Finished(peer));
        }
    }

    fn release(&mut self, socket: SocketId) {
        self.close(socket);
    }

    fn is_broken(&self, socket: SocketId) -> bool {
        self.world.sockets[socket.0 as usize].broken
    }

    fn sender(&self, socket: SocketId) -> Option<SenderState> {
        let own = &self.world.sockets[socket.0 as usize];
        let unread_bytes = self.world.sockets[own.peer?].held_bytes;
        (!own.broken).then_some(SenderState {
            cwnd_bytes: BUFFER_BYTES - unread_bytes,
            mss_bytes: 1000,
            timeouts: Some(self.world.now_ns / DELAY_NS),
            ..SenderState::default()
        })
    }

    fn open_datagrams(&mut self, peer: SocketAddr, limit_bytes: u64) -> SocketId {
        let app = self.app;
        id(self.world.add(Socket {
            app,
            to: Some(peer),
            limit_bytes,
            ..Socket::default()
        }))
    }

    fn bind_datagrams(&mut self, port: u16) {
        let app = self.app;
        let socket = self.world.add(Socket {
            app,
            ..Socket::default()
        });
        self.world.listeners.insert((app, port, true), (0, socket));
    }

    /// The socket takes as much of a burst as it may hold.
    fn send_datagrams(&mut self, socket: SocketId, mut bytes: u64, payload: u16) -> (u64, u64) {
        let to = self.socket(socket).to.expect("it has a peer");
        let there = self.world.app_at(to.ip());
        let sink = self.world.listeners.get(&(there, to.port(), true)).copied();
        let (mut held_bytes, mut dropped) = (0, (0, 0));
        while bytes > 0 {
            let next = bytes.min(payload.into());
            bytes -= next;
            let sent_ns = self.world.now_ns;
            let own = self.socket(socket);
            if held_bytes + next > own.limit_bytes {
                dropped = (dropped.0 + 1, dropped.1 + next);
                continue;
            }
            held_bytes += next;
            own.taken = (own.taken.0 + 1, own.taken.1 + next);
            let datagram = Datagram {
                number: own.taken.0 - 1,
                end_bytes: own.taken.1,
                sent_ns,
                bytes: next,
            };
            if let Some((_, sink)) = sink {
                self.world.after(DELAY_NS, Event::Datagram(sink, datagram));
            }
        }
        dropped
    }

    fn datagrams_taken(&self, socket: SocketId) -> (u64, u64) {
        self.world.sockets[socket.0 as usize].taken
    }

    fn receive_datagram(&mut self, socket: SocketId) -> Option<Datagram> {
        self.socket(socket).datagrams.pop_front()
    }

    fn seize(&mut self, _: SocketId) -> Result<Seized, String> {
        Ok(Seized {
            seq: 1_000,
            mss_bytes: 100,
            local_port: 7,
        })
    }

    fn forge(&mut self, _: SocketId, seq: u32, _: u32) -> Result<bool, String> {
        let has_room = self.world.forged.len() < self.world.room_for_forged;
        self.world.forged.extend(has_room.then_some(seq));
        Ok(has_room)
    }

    fn acknowledged(&mut self, _: SocketId) -> Result<Option<u32>, String> {
        Ok(self.world.acks.pop_front())
    }
}
