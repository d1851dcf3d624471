//! A hostile frontend says whatever it likes, in whole messages, in halves and in none, with any
//! descriptors. What must hold beside what [`crate::guest`] checks:
//!
//! - a connection that is refused leaves its port closed with a reason;
//! - no descriptor stays, and so no mapping, which has one;
//! - a frontend that keeps the rules can connect afterwards, and its guest sends and receives.
//!
//! A successor may hear again what was said, and leaves nothing either.

use std::{
    fs::{File, OpenOptions},
    io::{IoSlice, Read},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, net::UnixStream},
    },
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{Dir, Mode, OFlags, SealFlags, SeekFrom, fcntl_add_seals, ftruncate, open, seek, tell},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    pipe::{PipeFlags, pipe_with},
};
use sluicegate_dataplane::{
    engine::Engine,
    vhost::{
        Change, Offer, Owner, feature,
        link::Link,
        notify::{Call, Writers},
        relay::{Ended, Relay},
        session::{Backend, Requests},
    },
};

use crate::{
    guest::{Friends, Plan, mac, memfd},
    input::Input,
};

const PORT: u16 = 2;
/// Length of a header, and of the longest body that is read.
const HEADER: usize = 12;
const BODY_MAX: usize = 0x2000;
/// Messages of an input, so that no answer fills a socket.
const MESSAGES_MAX: usize = 100;
/// A file in memory has so many bytes, and is the guest's memory.
const BYTES: u64 = 0x4000;
const USER: u64 = 0x7e00_0000_0000;
const GUEST: u64 = 0x1_0000;
/// Where the rings' parts are, and the buffers.
const RING: u64 = 0x1000;
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const BUFFERS: u64 = 0x2000;
const SIZE: u16 = 4;

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// The switch, of which the session is told.
struct Switch(Mutex<Engine>);

impl Switch {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().expect("a switch")
    }
}

impl Owner for Switch {
    fn change(&self, port: u16, change: Change) -> Result<u16, String> {
        self.engine().apply(port, change)
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A message with what comes with it.
struct Said {
    bytes: Vec<u8>,
    /// Numbers of descriptors.
    with: Vec<usize>,
}

fn message(request: u32, flags: u32, body: &[u8], with: Vec<usize>) -> Said {
    let head = [request, flags, body.len() as u32].map(u32::to_le_bytes);
    let bytes = [&head.concat(), body].concat();
    Said { bytes, with }
}

/// What a frontend says that keeps the rules.
fn proper() -> Vec<Said> {
    let region = [GUEST, BYTES, USER, 0];
    let say = |request, words: &[u64], with: &[usize]| {
        message(request, 1, &bytes_of(words), with.to_vec())
    };
    let wanted = feature::VERSION_1 | feature::MERGEABLE | feature::PROTOCOL;
    let mut all = vec![
        say(GET_FEATURES, &[], &[]),
        say(SET_FEATURES, &[wanted], &[]),
        // Acknowledgements, the log's file, regions one by one.
        say(SET_PROTOCOL_FEATURES, &[1 << 1 | 1 << 3 | 1 << 15], &[]),
        say(SET_MEM_TABLE, &[&[1][..], &region].concat(), &[MEMORY]),
    ];
    for index in 0..2 {
        let at = USER + u64::from(index) * RING;
        let places = [halves(index, 0), at, at + USED, at + AVAILABLE, 0];
        all.push(say(SET_VRING_NUM, &[halves(index, SIZE.into())], &[]));
        all.push(say(SET_VRING_ADDR, &places, &[]));
        all.push(say(SET_VRING_BASE, &[halves(index, 0)], &[]));
        all.push(say(SET_VRING_CALL, &[index.into()], &[EVENT]));
        all.push(say(SET_VRING_KICK, &[index.into()], &[EVENT]));
        all.push(say(SET_VRING_ENABLE, &[halves(index, 1)], &[]));
    }
    all
}

/// The requests that have a body of which something is known.
const REQUESTS: [u32; 27] = [
    GET_FEATURES,
    SET_FEATURES,
    3,
    4,
    SET_MEM_TABLE,
    SET_LOG_BASE,
    SET_VRING_NUM,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    11,
    SET_VRING_KICK,
    SET_VRING_CALL,
    14,
    15,
    SET_PROTOCOL_FEATURES,
    17,
    SET_VRING_ENABLE,
    21,
    24,
    25,
    31,
    32,
    34,
    36,
    ADD_MEM_REG,
    REM_MEM_REG,
    42,
];

/// The numbers of descriptors: the guest's memory, an eventfd, and of a file that shrinks.
const MEMORY: usize = 0;
const EVENT: usize = 1;
const SHRINKS: usize = 2;

/// Descriptors of all kinds, right and wrong.
fn pool() -> Vec<OwnedFd> {
    let sealed = memfd(BYTES);
    fcntl_add_seals(
        &sealed,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )
    .expect("seals");
    let pipe = || pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    let ((reads, writes), (_, broken)) = (pipe(), pipe());
    let (one, other) = UnixStream::pair().expect("a pair");
    let path = |path: &str| File::open(path).expect("it is there");
    let memory = memfd(BYTES);
    let again = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let both = OpenOptions::new().read(true).write(true).open("/dev/zero");
    vec![
        memory.into(),
        event,
        memfd(BYTES).into(),
        path(&again).into(),
        memfd(4096).into(),
        memfd(100).into(),
        memfd(0).into(),
        memfd(1 << 40).into(),
        sealed.into(),
        path("/dev/null").into(),
        both.expect("/dev/zero").into(),
        open("/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("a directory"),
        reads,
        writes,
        broken,
        one.into(),
        other.into(),
    ]
}

/// Open descriptors of this process.
fn open_descriptors() -> usize {
    let dir = open(
        "/proc/self/fd",
        OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY,
        Mode::empty(),
    );
    Dir::new(dir.expect("/proc")).expect("a directory").count()
}

/// What outlives an input.
pub struct World {
    friends: Friends,
    pool: Vec<OwnedFd>,
    memory: File,
    proper: Vec<Said>,
}

/// A connection, and what was sent on it and not read yet.
struct Connection<'a> {
    frontend: UnixStream,
    relay: Relay<'a, Requests<Switch>>,
    unread: Vec<u8>,
    ended: Option<Ended>,
}

impl Connection<'_> {
    /// Sends a message in one piece, or in two with its descriptors beside the second.
    fn send(&mut self, pool: &[OwnedFd], said: &Said, cut_at: usize) {
        let with: Vec<_> = said
            .with
            .iter()
            .map(|&number| pool[number].as_fd())
            .collect();
        let (first, second) = said.bytes.split_at(cut_at.min(said.bytes.len()));
        let of_first = if second.is_empty() { &with[..] } else { &[] };
        let of_second = if second.is_empty() { &[][..] } else { &with };
        for (part, with) in [(first, of_first), (second, of_second)] {
            if !part.is_empty() && self.ended.is_none() {
                let sent = send(self.frontend.as_fd(), part, with);
                self.unread.extend_from_slice(&part[..sent]);
            }
        }
    }

    /// Whether the relay reads without waiting.
    fn has_message(&self) -> bool {
        let length = self
            .unread
            .get(8..HEADER)
            .map(|four| u32::from_le_bytes(four.try_into().expect("four")) as usize);
        length.is_some_and(|length| length > BODY_MAX || self.unread.len() >= HEADER + length)
    }

    /// The session reads what is there.
    fn pass(&mut self) {
        while self.ended.is_none() && self.has_message() {
            let length = u32::from_le_bytes(self.unread[8..HEADER].try_into().expect("four"));
            self.ended = self.relay.pass().err();
            let read = (HEADER + length as usize).min(self.unread.len());
            self.unread.drain(..read);
            let mut answers = [0; 4096];
            while self
                .frontend
                .read(&mut answers)
                .is_ok_and(|bytes| bytes > 0)
            {}
        }
    }
}

/// Sends as much as the socket has room for: a message that waits for its end is not read.
fn send(to: BorrowedFd<'_>, bytes: &[u8], with: &[BorrowedFd<'_>]) -> usize {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(with));
    }
    sendmsg(
        to,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .unwrap_or(0)
}

impl World {
    /// With all its files.
    pub fn new() -> Self {
        let pool = pool();
        // What all calls share is opened once.
        let event = File::from(pool[EVENT].try_clone().expect("a copy"));
        drop(Call::new(event, &Writers::default()).expect("an eventfd"));
        let memory = File::from(pool[MEMORY].try_clone().expect("a copy"));
        Self {
            friends: Friends::new(),
            pool,
            memory,
            proper: proper(),
        }
    }

    /// All files are as they were.
    fn clear(&mut self) {
        for (number, bytes) in [
            (MEMORY, BYTES),
            (SHRINKS, BYTES),
            (4, 4096),
            (5, 100),
            (6, 0),
        ] {
            // Who calls a driver there moves its position.
            let is_written = tell(&self.pool[number]) != Ok(0);
            if is_written || number < 4 {
                ftruncate(&self.pool[number], 0).expect("its length");
                ftruncate(&self.pool[number], bytes).expect("its length");
                seek(&self.pool[number], SeekFrom::Start(0)).expect("its beginning");
            }
        }
        let _ = rustix::io::read(&self.pool[EVENT], &mut [0; 8]);
        while rustix::io::read(&self.pool[12], &mut [0; 4096]).is_ok() {}
    }

    /// One input.
    pub fn run(&mut self, mut input: Input<'_>) {
        self.clear();
        let before = open_descriptors();
        let plan = Plan::of(input.byte());
        let mut engine = plan.engine(1);
        self.friends.begin(plan, &mut engine);
        let switch = Arc::new(Switch(Mutex::new(engine)));
        let how = input.byte();
        self.converse(&switch, how, &mut input);
        // It takes longer than everything else.
        if how & 0x30 == 0 {
            self.behaves(&switch, plan);
        }
        let mut engine = switch.engine();
        self.friends.end(&mut engine, 1);
        drop(engine);
        drop(switch);
        // Threads that call drivers end on their own.
        let start = Instant::now();
        while open_descriptors() != before && start.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        assert_eq!(before, open_descriptors(), "broken: descriptors that stay");
    }

    /// The hostile conversation.
    fn converse(&mut self, switch: &Arc<Switch>, how: u8, input: &mut Input<'_>) {
        let offer = Offer {
            pairs: if how & 1 == 0 { 1 } else { 8 },
            mac: (how & 2 == 0).then_some(mac(PORT)),
            in_order: how & 4 == 0,
        };
        let link = Link::new(false).expect("a link");
        let (frontend, outer) = UnixStream::pair().expect("a pair");
        frontend.set_nonblocking(true).expect("a socket");
        let backend = Backend::new(PORT, offer, Arc::clone(switch), Writers::default());
        let mut connection = Connection {
            frontend,
            relay: backend.hear(&outer, &link).expect("sockets"),
            unread: Vec::new(),
            ended: None,
        };
        for _ in 0..MESSAGES_MAX {
            if !input.has_more() || connection.ended.is_some() {
                break;
            }
            self.step(switch, &mut connection, input);
        }
        if how & 4 != 0 && connection.ended.is_none() && connection.unread.is_empty() {
            self.succeed(switch, &mut connection, offer, &link);
        }
        // Half of a message is left, or nothing.
        connection.frontend.shutdown(Shutdown::Write).expect("shut");
        let ended = connection.ended.take();
        let reason = ended.map_or_else(|| connection.relay.run(Vec::new()), |Ended(why)| why);
        let mut engine = switch.engine();
        let was_closed = closed(&mut engine);
        let _ = engine.apply(PORT, Change::Gone(reason.clone()));
        self.friends.poll(&mut engine, 1);
        assert_eq!(
            closed(&mut engine),
            was_closed.or(reason),
            "broken: reasons"
        );
    }

    /// A successor hears what was said, on the same connection.
    fn succeed(
        &mut self,
        switch: &Arc<Switch>,
        connection: &mut Connection<'_>,
        offer: Offer,
        link: &Link,
    ) {
        link.connect(|| Some(()));
        link.stop();
        link.go_on();
        connection.ended = connection.relay.pass().err();
        let Ok(Some(taken)) = link.connection(Instant::now()) else {
            panic!("broken: it cannot be handed over");
        };
        let mut engine = switch.engine();
        let _ = engine.apply(PORT, Change::Gone(None));
        drop(engine);
        let (other, _end) = UnixStream::pair().expect("a pair");
        drop(_end);
        let link = Link::new(true).expect("a link");
        let backend = Backend::new(PORT, offer, Arc::clone(switch), Writers::default());
        let relay = backend.hear(&other, &link).expect("sockets");
        // It may refuse: what is kept of the messages is what holds, not their order, and one that
        // came too late for its ring holds for the successor's.
        let _ = relay.run(taken.said);
    }

    fn step(
        &mut self,
        switch: &Arc<Switch>,
        connection: &mut Connection<'_>,
        input: &mut Input<'_>,
    ) {
        let operation = input.byte();
        match operation % 16 {
            0 => {
                let count = usize::from(input.byte() % 65);
                let said = Said {
                    bytes: input.bytes(count).to_vec(),
                    with: self.with(input),
                };
                connection.send(&self.pool, &said, usize::MAX);
            }
            1..=5 => {
                let said = self.said(input);
                let cut_at = if operation & 0x10 == 0 {
                    usize::MAX
                } else {
                    input.byte().into()
                };
                connection.send(&self.pool, &said, cut_at);
            }
            6..=9 => {
                // Some of what a frontend says that keeps the rules.
                let first = usize::from(input.byte()) % self.proper.len();
                let last = (first + usize::from(operation >> 4)).min(self.proper.len() - 1);
                for number in first..=last {
                    connection.send(&self.pool, &self.proper[number], usize::MAX);
                    connection.pass();
                }
            }
            10 => {
                self.friends
                    .send((operation & 0x10 != 0).then_some(mac(PORT)));
                self.friends.poll(&mut switch.engine(), 1);
            }
            11 => drop(self.friends.poll(&mut switch.engine(), 1)),
            12 => {
                let at = u64::from(input.half()) % BYTES;
                let count = usize::from(input.byte() % 33);
                let bytes = input.bytes(count);
                self.memory.write_all_at(bytes, at).expect("written");
            }
            13 => self.offer(usize::from(operation >> 4 & 1), 0),
            14 => {
                let length = u64::from(input.byte() % 4) * 4096;
                ftruncate(&self.pool[SHRINKS], length).expect("it shrinks");
            }
            _ => {
                let mut engine = switch.engine();
                engine.arm();
                engine.kicked(PORT, usize::from(operation >> 4));
                engine.disarm();
                engine.housekeep();
            }
        }
        connection.pass();
        if connection.ended.is_none() {
            self.friends.poll(&mut switch.engine(), 1);
        }
    }

    /// Numbers of descriptors: none, some, or too many.
    fn with(&self, input: &mut Input<'_>) -> Vec<usize> {
        let how = input.byte();
        let count = match how & 7 {
            0..=2 => 0,
            3..=5 => 1,
            6 => usize::from(how >> 3 & 7),
            _ => 28 + usize::from(how >> 3),
        };
        let first = usize::from(input.byte());
        let numbers = (first..first + count).map(|number| number % self.pool.len());
        numbers.collect()
    }

    /// A message of a known kind, with values that are near the right ones.
    fn said(&self, input: &mut Input<'_>) -> Said {
        let request = REQUESTS[usize::from(input.byte()) % REQUESTS.len()];
        let index = u32::from(input.byte() % 20);
        let (words, with) = self.body(request, index, input);
        let mut body = bytes_of(&words);
        let how = input.byte();
        let flags = if how & 1 == 0 { 9 } else { 1 };
        let flags = if how & 0x1e == 0x1e {
            input.byte().into()
        } else {
            flags
        };
        if how & 0x60 == 0x60 {
            body.resize(usize::from(input.half()) % (BODY_MAX + 2), 0);
        }
        let mut said = message(request, flags, &body, with);
        if how & 0x80 != 0 {
            said.bytes[8..HEADER].copy_from_slice(&(input.word() as u32).to_le_bytes());
        }
        said
    }

    fn body(&self, request: u32, index: u32, input: &mut Input<'_>) -> (Vec<u64>, Vec<usize>) {
        let user = |input: &mut Input<'_>| match input.byte() {
            how @ 0..0x80 => USER + u64::from(how) * 0x200,
            _ => USER.wrapping_add(input.word()),
        };
        match request {
            SET_FEATURES | 15 => (vec![input.word()], self.with(input)),
            SET_PROTOCOL_FEATURES => (vec![input.word() | 1 << 3], self.with(input)),
            SET_MEM_TABLE => {
                let count = input.byte() % 10;
                let mut words = vec![count.into()];
                (0..count).for_each(|_| words.extend(region(input)));
                let first = usize::from(input.byte());
                let with = (0..usize::from(count)).map(|at| (first + at) % self.pool.len());
                (words, with.collect())
            }
            ADD_MEM_REG | REM_MEM_REG => {
                let words = [&[0][..], &region(input)].concat();
                (words, self.with(input))
            }
            SET_LOG_BASE => (vec![input.word(), input.word()], self.with(input)),
            SET_VRING_NUM | SET_VRING_BASE | 11 | SET_VRING_ENABLE => {
                let value = match input.byte() {
                    low @ 0..0xc0 => u32::from(low),
                    _ => input.word() as u32,
                };
                (vec![halves(index, value)], self.with(input))
            }
            SET_VRING_ADDR => {
                let flags = u32::from(input.byte() & 1);
                let places = [user(input), user(input), user(input)];
                let words = [&[halves(index, flags)][..], &places, &[input.word()]].concat();
                (words, Vec::new())
            }
            SET_VRING_KICK | SET_VRING_CALL | 14 => {
                let none = if input.byte() & 3 == 0 { 0x100 } else { 0 };
                (vec![u64::from(index) | none], self.with(input))
            }
            24 | 25 => {
                let words = vec![
                    halves(input.byte().into(), input.half().into()),
                    input.word(),
                ];
                (words, Vec::new())
            }
            _ => (Vec::new(), self.with(input)),
        }
    }

    /// The guest offers a chain: a receive buffer, or a frame for an honest guest.
    fn offer(&self, ring: usize, slot: u16) {
        let base = ring as u64 * RING;
        let at = BUFFERS + ring as u64 * RING;
        let write = |at: u64, bytes: &[u8]| self.memory.write_all_at(bytes, at).expect("written");
        let flags = if ring == 0 { 2 } else { 0 };
        let length = if ring == 0 { RING } else { 12 + 60 };
        let descriptor = bytes_of(&[GUEST + at, length | flags << 32]);
        if ring == 1 {
            write(
                at,
                &[&[0; 12][..], &mac(0), &mac(PORT), &[0x88, 0xb6], &[7; 46]].concat(),
            );
        }
        write(base + 16 * u64::from(slot), &descriptor);
        let mut index = [0; 2];
        let read = self.memory.read_exact_at(&mut index, base + AVAILABLE + 2);
        read.expect("it has an index");
        let next = u16::from_le_bytes(index);
        let entry = base + AVAILABLE + 4 + 2 * u64::from(next % SIZE);
        write(entry, &slot.to_le_bytes());
        write(base + AVAILABLE + 2, &next.wrapping_add(1).to_le_bytes());
    }

    /// A frontend that keeps the rules connects, and its guest sends and receives.
    fn behaves(&mut self, switch: &Arc<Switch>, plan: Plan) {
        self.clear();
        let link = Link::new(false).expect("a link");
        let (frontend, outer) = UnixStream::pair().expect("a pair");
        frontend.set_nonblocking(true).expect("a socket");
        let offer = Offer {
            pairs: 1,
            mac: Some(mac(PORT)),
            in_order: false,
        };
        let backend = Backend::new(PORT, offer, Arc::clone(switch), Writers::default());
        let mut connection = Connection {
            frontend,
            relay: backend.hear(&outer, &link).expect("sockets"),
            unread: Vec::new(),
            ended: None,
        };
        self.offer(0, 0);
        self.offer(1, 0);
        for said in &self.proper {
            connection.send(&self.pool, said, usize::MAX);
            connection.pass();
            assert_eq!(
                connection.ended, None,
                "broken: an honest frontend is refused"
            );
        }
        let mut engine = switch.engine();
        assert_eq!(
            closed(&mut engine),
            None,
            "broken: an honest port is closed"
        );
        self.friends.rest(&mut engine, 1);
        self.friends.send(Some(mac(PORT)));
        self.friends.rest(&mut engine, 1);
        // In a VLAN of its own nobody sends to it.
        for ring in u64::from(!plan.filters)..2 {
            let mut index = [0; 2];
            let at = ring * RING + USED + 2;
            self.memory.read_exact_at(&mut index, at).expect("read");
            assert_eq!(
                index,
                [1, 0],
                "broken: ring {ring} of an honest guest stands still"
            );
        }
        connection.frontend.shutdown(Shutdown::Both).expect("shut");
        drop(engine);
        assert_eq!(connection.relay.run(Vec::new()), None, "broken: a reason");
        let mut engine = switch.engine();
        let _ = engine.apply(PORT, Change::Gone(None));
    }
}

/// Four words: address, length, address in the frontend, offset.
fn region(input: &mut Input<'_>) -> [u64; 4] {
    match input.byte() {
        how @ 0..0x80 => {
            let at = u64::from(how & 7) * BYTES;
            let bytes = if how & 0x40 == 0 {
                BYTES
            } else {
                u64::from(how)
            };
            let offset = if how & 0x20 == 0 { 0 } else { 0x1000 };
            [GUEST + at, bytes, USER + at, offset]
        }
        _ => [input.word(), input.word(), input.word(), input.word()],
    }
}

fn closed(engine: &mut Engine) -> Option<String> {
    engine.bay_mut(PORT).expect("a port").closed.clone()
}
