//! A hostile peer at the other end of a cable: it keeps the rules for a while, and writes whatever
//! it likes into the shared memory and the socket between any two steps of the switch. It goes and
//! comes back. What must hold beside what [`crate::guest`] checks:
//!
//! - the port is closed with a reason only;
//! - the switch comes to rest, and holds nothing some time after the peer has gone;
//! - what a peer sends that keeps the rules all the time arrives as it was, once and in order, also
//!   if it goes after that; and all of it arrives where nothing may be dropped.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use sluicegate_dataplane::{
    engine::Engine,
    frame::Frame,
    memory::Memory,
    offload::{Takes, Work},
    port::{Delivery, Intake, Outgoing, Port},
    shm::{
        cable::{Agreed, Cable, Plug},
        layout::{Layout, Words},
    },
    vhost::{Change, session::Mode},
};

use crate::{
    guest::{Friends, Plan, mac},
    input::Input,
};

const PORT: u16 = 2;
const SLOTS: u32 = 64;
const BUFFER: u32 = 2048;
/// Longer than frames wait for a peer that has gone.
const AWAY_NS: u64 = 1 << 40;
/// Time that an input may take of a CPU.
const LONGEST: Duration = Duration::from_secs(5);

/// The two directions: to the peer, and to the switch, which is the server.
const DIRECTIONS: usize = 2;

/// The other end.
struct Peer {
    layout: Layout,
    memory: Arc<Memory>,
    words: [Words; DIRECTIONS],
    /// What keeps the rules, and the socket for what does not. `None`: it has gone.
    end: Option<(Plug, UnixStream)>,
    /// Frames that it has taken and not returned.
    tokens: Vec<u16>,
    frame: Frame,
}

impl Peer {
    fn new() -> Self {
        let layout = Layout::new(SLOTS, BUFFER).expect("a layout");
        let file = layout.make().expect("a file");
        let memory = layout.map(&file).expect("a memory");
        let words = [0, 1].map(|direction| layout.words(&memory, direction).expect("words"));
        Self {
            layout,
            memory,
            words,
            end: None,
            tokens: Vec::new(),
            frame: Frame::default(),
        }
    }

    /// The words of the memory are zero; what is in its buffers does not matter.
    fn clear(&mut self) {
        self.gone();
        for direction in &self.words {
            let words = [
                &direction.offered,
                &direction.returned,
                &direction.receiver_asks,
                &direction.sender_asks,
            ];
            words.into_iter().for_each(|word| word.store(0));
        }
    }

    fn gone(&mut self) {
        self.end = None;
        self.tokens.clear();
    }

    fn agreed(&self, mode: Mode, takes: Takes) -> Agreed {
        Agreed {
            mode,
            layout: self.layout,
            takes,
            memory: Arc::clone(&self.memory),
        }
    }

    fn connect(&mut self, engine: &mut Engine, takes: Takes) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let hostile = theirs.try_clone().expect("a copy");
        hostile.set_nonblocking(true).expect("it is a socket");
        let plug = Plug::new(self.agreed(Mode::Server, takes), ours, None).expect("a plug");
        let end = Plug::new(self.agreed(Mode::Client, Takes::default()), theirs, None);
        self.end = Some((end.expect("a plug"), hostile));
        // A port that was closed refuses it.
        let _ = engine.apply(PORT, Change::Plug(Box::new(plug)));
    }

    /// Sends a frame by the rules, unless they were broken. Whether there was room.
    fn send(&mut self, bytes: &[u8], work: Work) -> bool {
        let memory = Memory::default();
        let Some((end, _)) = &mut self.end else {
            return false;
        };
        let sent = end.deliver(&Outgoing::whole(bytes, work, &memory)) == Ok(Delivery::Done);
        if sent {
            end.publish(false);
        }
        sent
    }

    fn take(&mut self) {
        let Some((end, _)) = &mut self.end else {
            return;
        };
        if end.take(&mut self.frame) != Ok(Intake::Empty) {
            self.tokens.extend(self.frame.token.take());
        }
    }

    fn release(&mut self, which: u8) {
        if self.tokens.is_empty() {
            return;
        }
        let token = self
            .tokens
            .swap_remove(usize::from(which) % self.tokens.len());
        if let Some((end, _)) = &mut self.end {
            end.release(token);
            end.publish(true);
        }
    }

    /// Writes an entry of a frame, and shows it.
    fn offer(&self, entry: u64) {
        let (places, word) = (self.layout.places(1), &self.words[1].offered);
        let index = word.load();
        let at = places.entry(&self.memory, index);
        self.memory.store(at, entry.to_le_bytes());
        word.store(index.wrapping_add(1));
    }

    /// Returns a buffer, whether or not it has it.
    fn give_back(&self, number: u16) {
        let (places, word) = (self.layout.places(0), &self.words[0].returned);
        let index = word.load();
        let at = places.returned(&self.memory, index);
        self.memory.store(at, number.to_le_bytes());
        word.store(index.wrapping_add(1));
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        if let Some(piece) = self.memory.guest(address, bytes.len() as u32) {
            self.memory.write(piece, bytes);
        }
    }
}

/// A frame: to whom, from whom, and with what work.
fn frame(input: &mut Input<'_>) -> (Vec<u8>, Work) {
    let how = input.byte();
    let to = match how & 7 {
        0 => mac(0),
        1 => mac(1),
        2 => [0xff; 6],
        _ => mac(40),
    };
    let from = if how & 8 == 0 { mac(PORT) } else { mac(0) };
    let mut bytes = [to, from].concat();
    if how & 0x10 != 0 {
        bytes.extend([0x81, 0, input.byte() << 5, input.byte() % 8]);
    }
    bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 1, 0, 0, 64, 6, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let most = if how & 0x20 == 0 { 256 } else { 9000 };
    let length = usize::from(input.half()) % most + 60;
    bytes.resize(length, input.byte());
    let work = match how >> 6 {
        0 | 1 => Work::default(),
        _ => Work {
            checksum: Some((input.byte().into(), input.byte().into())),
            ..Work::default()
        },
    };
    (bytes, work)
}

/// A frame to the first guest that follows from its number.
fn numbered(number: u64) -> Vec<u8> {
    let mut bytes = [mac(0), mac(PORT)].concat();
    bytes.extend([0x88, 0xb5]); // for experiments (IEEE 802)
    bytes.extend(number.to_be_bytes());
    bytes.resize(60 + (number % 5) as usize * 1000, number as u8);
    bytes
}

/// What outlives an input, for its mappings cost more than that.
pub struct World {
    friends: Friends,
    peer: Peer,
    /// The peer keeps the rules in this input.
    is_honest: bool,
    /// Numbered frames that it has sent, how many of them arrived, and the number after the last of
    /// these.
    sent: u64,
    arrived: u64,
    next: u64,
}

impl World {
    /// With all its memory.
    pub fn new() -> Self {
        Self {
            friends: Friends::new(),
            peer: Peer::new(),
            is_honest: false,
            sent: 0,
            arrived: 0,
            next: 0,
        }
    }

    /// The frames of an honest peer are what it has sent.
    fn check_arrived(&mut self) {
        let heard = self.friends.heard();
        for frame in heard.iter().filter(|_| self.is_honest) {
            if frame[12..14] == [0x88, 0xb5] {
                let found = (self.next..self.sent).find(|&number| numbered(number) == *frame);
                let number = found.expect("broken: a frame that was not sent so");
                self.next = number + 1;
                self.arrived += 1;
            }
        }
    }

    /// One input.
    pub fn run(&mut self, mut input: Input<'_>) {
        let begin = clock_gettime(ClockId::ThreadCPUTime);
        let plan = Plan::of(input.byte());
        let mut engine = plan.engine_of(1, || Port::Shm(Box::new(Cable::new(None))));
        let mut now_ns = 1;
        self.friends.begin(plan, &mut engine);
        self.peer.clear();
        let how = input.byte();
        self.is_honest = how & 0x80 != 0;
        (self.sent, self.arrived, self.next) = (0, 0, 0);
        self.peer
            .connect(&mut engine, Takes::from_bits((how & 0xf).into()));
        while input.has_more() {
            self.step(&mut engine, &mut input, &mut now_ns);
        }
        self.friends.send(None);
        self.friends.rest(&mut engine, now_ns);
        self.friends.account(&engine);
        let _ = engine.apply(PORT, Change::Gone(None));
        now_ns += AWAY_NS;
        self.friends.poll(&mut engine, now_ns);
        engine.housekeep();
        self.friends.end(&mut engine, now_ns);
        self.check_arrived();
        let may_drop = !plan.lossless || !plan.filters || plan.governs || plan.stalls;
        assert!(
            !self.is_honest || may_drop || self.arrived == self.sent,
            "broken: {} of {} frames arrived",
            self.arrived,
            self.sent
        );
        let took = clock_gettime(ClockId::ThreadCPUTime) - begin;
        let took = Duration::try_from(took).unwrap_or_default();
        assert!(took < LONGEST, "broken: it takes {took:?} of a CPU");
    }

    fn step(&mut self, engine: &mut Engine, input: &mut Input<'_>, now_ns: &mut u64) {
        let mut operation = input.byte();
        if self.is_honest && (15..=23).contains(&(operation & 31)) {
            operation = 5; // nothing that breaks the rules
        }
        let direction = usize::from(operation >> 5 & 1);
        let words = &self.peer.words[direction];
        let word = match operation >> 6 {
            0 => &words.offered,
            1 => &words.returned,
            2 => &words.receiver_asks,
            _ => &words.sender_asks,
        };
        match operation & 31 {
            0..=3 => drop(self.friends.poll(engine, *now_ns)),
            4 => {
                *now_ns += 1 << (input.byte() % 40);
                self.friends.poll(engine, *now_ns);
            }
            5..=7 => {
                if self.peer.send(&numbered(self.sent), Work::default()) {
                    self.sent += 1;
                }
            }
            8 | 9 => {
                let (bytes, work) = frame(input);
                let _ = self.peer.send(&bytes, work);
            }
            10..=12 => self.peer.take(),
            13 | 14 => self.peer.release(input.byte()),
            15 => word.store(input.half()),
            16 => word.store(
                word.load()
                    .wrapping_add(i16::from(input.byte() as i8) as u16),
            ),
            17 | 18 => {
                let number = u64::from(input.byte() % (SLOTS as u8 + 2));
                let flags = u64::from(input.byte() & 3) << 16;
                let bytes = u64::from(input.half() % (BUFFER as u16 + 2)) << 32;
                self.peer.offer(number | flags | bytes);
            }
            19 => self.peer.offer(input.word()),
            20 => self
                .peer
                .give_back(u16::from(input.byte()) % (SLOTS as u16 + 2)),
            21 => {
                let at = input.word() % self.peer.layout.bytes();
                let count = usize::from(input.byte() % 33);
                self.peer.write(at, input.bytes(count));
            }
            22 => {
                if let Some((_, socket)) = &mut self.peer.end {
                    let _ = socket.write(&[0; 8][..usize::from(operation >> 5)]);
                }
            }
            23 => {
                if let Some((_, socket)) = &mut self.peer.end {
                    let _ = socket.read(&mut [0; 8]);
                }
            }
            24 => engine.kicked(PORT, 0),
            25 => {
                engine.arm();
                engine.disarm();
            }
            26 => engine.housekeep(),
            27..=29 => {
                let others = [None, Some(mac(40)), Some(mac(2)), Some([0xff; 6])];
                self.friends.send(others[usize::from(operation >> 6)]);
                self.friends.poll(engine, *now_ns);
            }
            30 => self.peer.gone(),
            _ => {
                let reason = (direction == 1 && !self.is_honest).then(|| "it went".to_owned());
                let _ = engine.apply(PORT, Change::Gone(reason));
                self.peer.clear();
                self.peer
                    .connect(engine, Takes::from_bits(input.byte().into()));
            }
        }
    }
}
