//! A rank of a parallel program.
//!
//! Each pair of ranks that exchange messages has a connection, which the lower rank opens and which
//! lasts. A rank begins its operations when all its connections stand, or, if its world knows all
//! ranks and holds it, when those of all ranks do. A message of up to so many
//! bytes is sent at once (eager): its send ends when the socket has taken it. A longer one is
//! announced first (rendezvous): its data leave when the receiver has posted the receive and has
//! granted them. A message of a rank to itself needs neither: it is there at once, and a long one
//! waits for its receive.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use prefetch_index::prefetch_index;
use sluicegate_core::number::{index, low_half, narrow};
use sluicegate_program::{self as program, Kind, Matcher, Message, Progress};
use sluicegate_scenario::workload::{
    Report,
    plan::{OperationTimes, Partner, RankReport, Span},
    programs::UNTAKEN_MAX,
};

use crate::{
    Actor,
    io::{HEADER_BYTES, Io, MessageHeader, SocketId},
};

/// Key of accepted connections whose rank is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// Key of the timer that opens connections; others are the number of a CPU.
const OPEN: u64 = u64::MAX;

/// Operations behind one that begins whose state is fetched from memory, and among which the next
/// sends are looked for.
const AHEAD: usize = 4;

/// Partners from which on the state of one is in no near cache when its turn comes.
const MANY: usize = 64;

/// No receive.
const NONE: u32 = u32::MAX;

/// What a message is: [`MessageHeader::class`].
mod class {
    /// The first on a connection: `tag` is the rank that opened it.
    pub const HELLO: u16 = 0;
    /// A whole message: `tag` is its own above the number of the send.
    pub const EAGER: u16 = 1;
    /// The announcement of a message; `tag` as of `EAGER`.
    pub const REQUEST: u16 = 2;
    /// The data of a send may come: `tag` is its number, below that of the receive if the send has
    /// waited for it, else below [`super::NONE`].
    pub const GRANT: u16 = 3;
    /// The data of the send `tag`.
    pub const DATA: u16 = 4;
}

/// A message that is not completely written.
struct Outgoing {
    header: MessageHeader,
    written: u64,
    /// The send that ends with it.
    ends: Option<u32>,
}

/// The connection to a partner: what its messages touch, in one cache line. A rank may have
/// thousands of partners, and turns to each now and then only.
#[repr(align(64))]
struct Line {
    rank: u32,
    socket: Option<SocketId>,
    queue: VecDeque<Outgoing>,
    /// Bytes of messages that are not complete.
    received: u64,
}

const _: () = assert!(size_of::<Line>() == 64);

/// The datagrams of a partner.
#[derive(Default)]
struct Datagrams {
    /// Those that have arrived without a gap.
    in_order: u64,
    /// Those behind a gap, by number: their bytes.
    ahead: BTreeMap<u64, u64>,
    /// A datagram was missing when a later one arrived.
    has_gap: bool,
}

/// How messages reach a partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over a connection.
    Connection,
    /// As datagrams of so many bytes of payload at most, none of which is lost.
    Datagrams(u16),
}

/// A CPU of the rank: what it computes, and what waits for it.
#[derive(Default)]
struct Cpu {
    computes: Option<u32>,
    waiting: VecDeque<u32>,
}

/// The state machine.
pub struct Rank {
    traffic: u32,
    me: u32,
    port: u16,
    way: Way,
    eager_bytes: u64,
    operations: Arc<program::Rank>,
    /// Sizes of messages and receives were not compared before the run.
    checks_sizes: bool,
    /// A message was larger than its receive.
    has_truncated: bool,
    span: Span,
    partners: Vec<Partner>,
    /// Of each partner.
    lines: Vec<Line>,
    /// Likewise, receives whose data were granted: the partner's send, and the receive.
    granted: Vec<VecDeque<(u32, u32)>>,
    /// Likewise, where messages are datagrams.
    datagrams: Vec<Datagrams>,
    /// Bytes read from connections whose rank is not known yet.
    strangers: BTreeMap<SocketId, u64>,
    missing_lines: usize,
    /// It is to begin together with the other ranks.
    is_held: bool,
    begin_ns: Option<u64>,
    progress: Progress,
    matcher: Matcher,
    cpus: Vec<Cpu>,
    times: Vec<OperationTimes>,
}

impl Rank {
    pub fn new(
        (traffic, me, port): (u32, u32, u16),
        partners: Vec<Partner>,
        way: Way,
        eager_bytes: u64,
        (operations, checks_sizes): (Arc<program::Rank>, bool),
        span: Span,
    ) -> Self {
        let cpus = operations.operations().iter().map(|op| usize::from(op.cpu));
        let cpus = cpus.max().map_or(0, |last| last + 1);
        let lines = partners.iter().map(|partner| Line {
            rank: partner.rank,
            socket: None,
            queue: VecDeque::new(),
            received: 0,
        });
        let lines: Vec<Line> = lines.collect();
        let datagrams = match way {
            Way::Connection => 0,
            Way::Datagrams(_) => lines.len(),
        };
        Self {
            traffic,
            me,
            port,
            way,
            eager_bytes,
            checks_sizes,
            has_truncated: false,
            span,
            missing_lines: lines.len(),
            is_held: false,
            granted: vec![VecDeque::new(); lines.len()],
            datagrams: (0..datagrams).map(|_| Datagrams::default()).collect(),
            lines,
            partners,
            strangers: BTreeMap::new(),
            begin_ns: None,
            progress: Progress::new(&operations),
            matcher: Matcher::default(),
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            times: vec![OperationTimes::default(); operations.operations().len()],
            operations,
        }
    }

    /// Lets it begin at [`Actor::set_off`], not when its own connections stand.
    pub fn hold(&mut self) {
        self.is_held = self.way == Way::Connection;
    }

    /// Whether its connections stand and its time has come.
    fn is_ready(&self, now_ns: u64) -> bool {
        self.missing_lines == 0 && now_ns >= self.span.begin_ns
    }

    /// The line to a rank; none to [`program::ANY_SOURCE`]. Where nearly all ranks are partners, it
    /// is where it would be among all of them, or one before.
    #[inline]
    fn line(&self, rank: u32) -> Option<usize> {
        let guess = (rank - u32::from(rank > self.me)) as usize;
        if self.lines.get(guess).is_some_and(|line| line.rank == rank) {
            return Some(guess);
        }
        let found = (self.partners).binary_search_by_key(&rank, |partner| partner.rank);
        found.ok()
    }

    /// A connection stands.
    fn joined<I: Io>(&mut self, io: &mut I, index: usize, socket: SocketId) {
        self.lines[index].socket = Some(socket);
        self.missing_lines -= 1;
        self.start(io);
    }

    /// Begins the program, if everything is there for it.
    fn start<I: Io>(&mut self, io: &mut I) {
        let now_ns = io.now_ns();
        let due = self.is_ready(now_ns) && !self.is_held;
        if due && self.begin_ns.is_none() {
            self.begin_ns = Some(now_ns);
            self.go_on(io);
        }
    }

    /// Begins all operations that may.
    fn go_on<I: Io>(&mut self, io: &mut I) {
        if self.begin_ns.is_none() {
            return;
        }
        while let Some(number) = self.progress.take() {
            let operation = self.operations.operations()[number as usize];
            let ahead = number as usize + AHEAD;
            prefetch_index(self.operations.operations(), ahead);
            prefetch_index(&self.times, ahead);
            if self.lines.len() >= MANY {
                self.progress.fetch_behind(&self.operations, number);
            }
            match operation.kind {
                Kind::Compute => self.compute(io, number),
                Kind::Send => {
                    self.begun(io, number);
                    self.send(io, number, &operation);
                    self.fetch_next(io, number);
                }
                Kind::Receive => {
                    self.begun(io, number);
                    self.receive(io, number, &operation);
                }
            }
        }
    }

    fn begun<I: Io>(&mut self, io: &I, number: u32) {
        self.times[number as usize].begin_ns = io.now_ns();
        let times = &mut self.times;
        self.progress.begun(&self.operations, number, |freed| {
            times[freed as usize].after = number
        });
    }

    fn ended<I: Io>(&mut self, io: &I, number: u32) {
        self.times[number as usize].end_ns = io.now_ns();
        let times = &mut self.times;
        self.progress.ended(&self.operations, number, |freed| {
            times[freed as usize].after = number
        });
    }

    fn compute<I: Io>(&mut self, io: &mut I, number: u32) {
        let operation = self.operations.operations()[number as usize];
        let cpu = &mut self.cpus[usize::from(operation.cpu)];
        if cpu.computes.is_some() {
            return cpu.waiting.push_back(number);
        }
        self.begun(io, number);
        if operation.size == 0 {
            return self.ended(io, number);
        }
        self.cpus[usize::from(operation.cpu)].computes = Some(number);
        let end_ns = io.now_ns().saturating_add(operation.size);
        io.timer(end_ns, operation.cpu.into());
    }

    /// A CPU has done what it computed.
    fn computed<I: Io>(&mut self, io: &mut I, cpu: usize) {
        let Some(number) = self.cpus[cpu].computes.take() else {
            return;
        };
        self.ended(io, number);
        while self.cpus[cpu].computes.is_none() {
            let Some(next) = self.cpus[cpu].waiting.pop_front() else {
                break;
            };
            self.times[next as usize].after = number;
            self.compute(io, next);
        }
        self.go_on(io);
    }

    fn send<I: Io>(&mut self, io: &mut I, number: u32, operation: &program::Operation) {
        if operation.peer == self.me {
            return self.send_to_itself(io, number, operation);
        }
        let Some(index) = self.line(operation.peer) else {
            return;
        };
        let eager = operation.size <= self.eager_bytes;
        let header = MessageHeader {
            bytes: HEADER_BYTES + if eager { operation.size } else { 0 },
            tag: u64::from(operation.tag) << 32 | u64::from(number),
            class: if eager { class::EAGER } else { class::REQUEST },
        };
        self.post(io, index, header, eager.then_some(number));
    }

    /// A copy within the host, which takes no time here.
    fn send_to_itself<I: Io>(&mut self, io: &mut I, number: u32, operation: &program::Operation) {
        let message = Message {
            source: self.me,
            tag: operation.tag,
            operation: number,
            bytes: operation.size,
            waits: operation.size > self.eager_bytes,
        };
        let receive = self.matcher.arrive(message);
        if !message.waits || receive.is_some() {
            self.ended(io, number);
        }
        if let Some(receive) = receive {
            self.times[receive as usize].partner = Some((self.me, number));
            self.received(io, receive, self.me, message.bytes);
        }
    }

    /// Takes a message of the rank to itself that is there.
    fn take_own<I: Io>(&mut self, io: &mut I, number: u32, message: &Message) {
        if message.waits {
            self.times[message.operation as usize].partner = Some((self.me, number));
            self.ended(io, message.operation);
        }
        self.received(io, number, self.me, message.bytes);
    }

    /// Fetches the state of the partners of the sends that follow in the program.
    fn fetch_next<I: Io>(&self, io: &I, number: u32) {
        if self.lines.len() < MANY {
            return;
        }
        let behind = self.operations.operations().iter();
        let behind = behind.skip(number as usize + 1).take(AHEAD);
        let sends = behind.filter(|operation| operation.kind == Kind::Send);
        let mut lines = sends.filter_map(|operation| self.line(operation.peer));
        if let Some(socket) = lines.next().and_then(|next| self.lines[next].socket) {
            io.fetch(socket);
        }
        if let Some(next) = lines.next() {
            prefetch_index(&self.lines, next);
        }
    }

    fn receive<I: Io>(&mut self, io: &mut I, number: u32, operation: &program::Operation) {
        let taken = self.matcher.post(operation.peer, operation.tag, number);
        match taken {
            Some(message) if message.source == self.me => self.take_own(io, number, &message),
            Some(message) if message.waits => self.grant(io, &message, number, number),
            Some(message) => self.received(io, number, message.source, message.bytes),
            None if self.lines.len() >= MANY => {
                let index = self.line(operation.peer).unwrap_or(0);
                prefetch_index(&self.lines, index);
            }
            None => {}
        }
    }

    /// A receive has its message. It ends, unless the message is larger than it is: MPI calls that
    /// truncation and ends the program.
    fn received<I: Io>(&mut self, io: &mut I, receive: u32, source: u32, bytes: u64) {
        let room = || self.operations.operations()[receive as usize].size;
        if !self.checks_sizes || bytes <= room() {
            return self.ended(io, receive);
        }
        if !std::mem::replace(&mut self.has_truncated, true) {
            let (me, what) = (self.me, self.operations.describe(receive));
            io.note(format!(
                "rank {me}: {what} is smaller than its message of {bytes} B from rank {source}, so \
                 that it does not end"
            ));
        }
    }

    /// Lets the data of an announced message come, for this receive. `awaited` is the receive, or
    /// [`NONE`] if it was there before the announcement.
    fn grant<I: Io>(&mut self, io: &mut I, message: &Message, receive: u32, awaited: u32) {
        let Some(index) = self.line(message.source) else {
            return;
        };
        self.granted[index].push_back((message.operation, receive));
        let header = MessageHeader {
            bytes: HEADER_BYTES,
            tag: u64::from(awaited) << 32 | u64::from(message.operation),
            class: class::GRANT,
        };
        self.post(io, index, header, None);
    }

    fn post<I: Io>(&mut self, io: &mut I, index: usize, header: MessageHeader, ends: Option<u32>) {
        let line = &mut self.lines[index];
        let mut message = Outgoing {
            header,
            written: 0,
            ends,
        };
        // Most messages fit at once.
        if let (Way::Connection, Some(socket), true) =
            (self.way, line.socket, line.queue.is_empty())
        {
            message.written = io.write_message(socket, &header, 0..header.bytes);
            if message.written == header.bytes {
                return ends.into_iter().for_each(|number| self.ended(io, number));
            }
            return line.queue.push_back(message); // `writable` comes
        }
        line.queue.push_back(message);
        if line.queue.len() == 1 {
            self.write(io, index);
        }
    }

    /// Writes what fits; sends that end with it end.
    fn write<I: Io>(&mut self, io: &mut I, index: usize) {
        if let Way::Datagrams(payload) = self.way {
            return self.write_datagrams(io, index, payload);
        }
        while let Some(socket) = self.lines[index].socket {
            let Some(message) = self.lines[index].queue.front_mut() else {
                return;
            };
            let (header, written) = (&message.header, message.written);
            message.written += io.write_message(socket, header, written..header.bytes);
            if message.written < message.header.bytes {
                return; // `writable` comes
            }
            let ends = message.ends;
            self.lines[index].queue.pop_front();
            if let Some(number) = ends {
                self.ended(io, number);
            }
        }
    }

    /// Sends all that waits; a send ends at once.
    fn write_datagrams<I: Io>(&mut self, io: &mut I, index: usize, payload: u16) {
        let Some(socket) = self.lines[index].socket else {
            return;
        };
        while let Some(message) = self.lines[index].queue.pop_front() {
            if let Err(why) = io.send_message_datagrams(socket, &message.header, payload) {
                io.note(why);
            }
            if let Some(number) = message.ends {
                self.ended(io, number);
            }
        }
    }

    /// Takes what has arrived from a partner, up to a datagram that is missing. What follows waits
    /// for it, for ever if it was lost.
    fn read_datagrams<I: Io>(&mut self, io: &mut I, socket: SocketId, index: usize) {
        let (line, datagrams) = (&mut self.lines[index], &mut self.datagrams[index]);
        while let Some(datagram) = io.receive_datagram(socket) {
            if datagram.number != datagrams.in_order {
                if !datagrams.has_gap {
                    let rank = line.rank;
                    io.note(format!("a datagram from rank {rank} was lost or overtaken"));
                }
                datagrams.has_gap = true;
                datagrams.ahead.insert(datagram.number, datagram.bytes);
                continue;
            }
            datagrams.in_order += 1;
            line.received += datagram.bytes;
            while let Some(bytes) = datagrams.ahead.remove(&datagrams.in_order) {
                datagrams.in_order += 1;
                line.received += bytes;
            }
        }
    }

    /// Opens sockets for datagrams to all partners. A rank listens for each on a port of its own.
    fn open_datagrams<I: Io>(&mut self, io: &mut I) {
        let port = self.port + narrow::<u16>(self.me);
        for index in 0..self.lines.len() {
            let address = self.partners[index].address.ip();
            let socket = io.open_datagrams((address, port).into(), u64::MAX);
            self.lines[index].socket = Some(socket);
        }
        self.missing_lines = 0;
    }

    fn message<I: Io>(&mut self, io: &mut I, index: usize, header: MessageHeader) {
        let source = self.lines[index].rank;
        match header.class {
            class::EAGER | class::REQUEST => {
                let message = Message {
                    source,
                    tag: (header.tag >> 32) as u32,
                    operation: low_half(header.tag),
                    bytes: header.bytes.saturating_sub(HEADER_BYTES),
                    waits: header.class == class::REQUEST,
                };
                let Some(receive) = self.matcher.arrive(message) else {
                    return;
                };
                self.times[receive as usize].partner = Some((source, message.operation));
                match message.waits {
                    true => self.grant(io, &message, receive, NONE),
                    false => self.received(io, receive, source, message.bytes),
                }
            }
            class::GRANT => {
                let (send, awaited) = (low_half(header.tag), (header.tag >> 32) as u32);
                if let Some(times) = self
                    .times
                    .get_mut(send as usize)
                    .filter(|_| awaited != NONE)
                {
                    times.partner = Some((source, awaited));
                }
                self.granted(io, index, send);
            }
            class::DATA => {
                let granted = &mut self.granted[index];
                let send = low_half(header.tag);
                let at = granted.iter().position(|(of, _)| *of == send);
                if let Some((_, receive)) = at.and_then(|at| granted.remove(at)) {
                    let bytes = header.bytes.saturating_sub(HEADER_BYTES);
                    self.received(io, receive, source, bytes);
                }
            }
            _ => io.note(format!("rank {source}: an unknown message")),
        }
    }

    /// The data of a send may leave.
    fn granted<I: Io>(&mut self, io: &mut I, index: usize, send: u32) {
        let Some(operation) = self.operations.operations().get(send as usize) else {
            return;
        };
        let header = MessageHeader {
            bytes: HEADER_BYTES + operation.size,
            tag: send.into(),
            class: class::DATA,
        };
        self.post(io, index, header, Some(send));
    }

    /// The first message on an accepted connection says whose it is.
    fn introduce<I: Io>(&mut self, io: &mut I, socket: SocketId) -> Option<usize> {
        let received = self.strangers.entry(socket).or_default();
        *received += io.read_messages(socket);
        let hello = io.take_message(socket, received)?;
        let received = self.strangers.remove(&socket)?;
        let index = self.line(low_half(hello.tag))?;
        io.set_key(socket, index as u64);
        self.lines[index].received = received;
        self.joined(io, index, socket);
        Some(index)
    }
}

impl Actor for Rank {
    fn prepare<I: Io>(&mut self, io: &mut I) {
        if self.way == Way::Connection {
            return io.listen(self.port, UNKNOWN);
        }
        for index in 0..self.lines.len() {
            let port = self.port + narrow::<u16>(self.partners[index].rank);
            if let Err(why) = io.bind_message_datagrams(port, index as u64) {
                io.note(why);
            }
        }
    }

    fn begin<I: Io>(&mut self, io: &mut I) {
        io.timer(self.span.begin_ns, OPEN);
    }

    fn connected<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        if key == UNKNOWN {
            return; // its first message is awaited
        }
        let index = index(key);
        self.lines[index].queue.push_front(Outgoing {
            header: MessageHeader {
                bytes: HEADER_BYTES,
                tag: self.me.into(),
                class: class::HELLO,
            },
            written: 0,
            ends: None,
        });
        self.lines[index].socket = Some(socket);
        self.write(io, index);
        self.joined(io, index, socket);
    }

    fn readable<I: Io>(&mut self, io: &mut I, socket: SocketId, key: u64) {
        let index = match key {
            UNKNOWN => match self.introduce(io, socket) {
                Some(index) => index,
                None => return,
            },
            key if self.way != Way::Connection => {
                self.read_datagrams(io, socket, index(key));
                index(key)
            }
            key => {
                let bytes = io.read_messages(socket);
                self.lines[index(key)].received += bytes;
                index(key)
            }
        };
        while let Some(header) = io.take_message(socket, &mut self.lines[index].received) {
            self.message(io, index, header);
        }
        self.go_on(io);
    }

    fn writable<I: Io>(&mut self, io: &mut I, _: SocketId, key: u64) {
        if key != UNKNOWN {
            self.write(io, index(key));
            self.go_on(io);
        }
    }

    fn timer<I: Io>(&mut self, io: &mut I, key: u64) {
        if key != OPEN {
            return self.computed(io, index(key));
        }
        if self.way != Way::Connection {
            self.open_datagrams(io);
        }
        for index in 0..self.lines.len() {
            let partner = self.partners[index];
            if partner.rank > self.me && self.way == Way::Connection {
                io.connect(partner.address, index as u64);
            }
        }
        self.start(io);
    }

    fn is_complete(&self) -> Option<bool> {
        Some(self.progress.left() == 0)
    }

    fn held(&self, now_ns: u64) -> Option<(u32, bool)> {
        self.is_held.then(|| (self.traffic, self.is_ready(now_ns)))
    }

    fn set_off<I: Io>(&mut self, io: &mut I) {
        self.is_held = false;
        self.start(io);
    }

    fn finish<I: Io>(&mut self, _: &mut I, report: &mut Report) {
        let left = self.matcher.unexpected();
        let mut left: Vec<(u32, u32)> = left.map(|one| (one.source, one.operation)).collect();
        left.sort_unstable();
        report.ranks.push(RankReport {
            traffic: self.traffic,
            rank: self.me,
            is_connected: self.missing_lines == 0,
            begin_ns: self.begin_ns,
            times: std::mem::take(&mut self.times),
            unreceived: left.len() as u64,
            untaken: left.into_iter().take(UNTAKEN_MAX).collect(),
        });
    }
}
