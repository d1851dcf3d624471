//! Two endpoints and a network between them, in virtual time.

pub mod peer;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use sluicegate_tcp::{
    Config, Endpoint, Events, Segment, State, Taker,
    segment::{ecn, flags},
};

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// Small, fast, seeded (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound.max(1)
    }

    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

/// Takes a segment as it is.
struct Whole;

impl Taker for Whole {
    type Taken = Segment;

    fn take(self, segment: &Segment) -> Segment {
        *segment
    }
}

/// One direction of the network.
#[derive(Clone, Debug)]
pub struct Path {
    pub delay_ns: u64,
    /// Serialisation; 0 = infinitely fast.
    pub ns_per_byte: u64,
    /// Longest queue in bytes.
    pub queue_bytes: u64,
    /// ECN-capable segments that meet a longer queue are marked.
    pub mark_bytes: u64,
    /// In permille.
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    /// Delay of reordered segments beyond the others', at most.
    pub late_ns: u64,
    /// When the link is free again.
    pub free_ns: u64,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            delay_ns: 50 * US,
            ns_per_byte: 1,
            queue_bytes: u64::MAX,
            mark_bytes: u64::MAX,
            loss: 0,
            duplication: 0,
            reordering: 0,
            late_ns: 200 * US,
            free_ns: 0,
        }
    }
}

impl Path {
    /// When `segment` arrives; `None` = it is dropped. May mark it.
    fn carry(&mut self, now_ns: u64, segment: &mut Segment, random: &mut Random) -> Option<u64> {
        let bytes = u64::from(segment.header_len()) + u64::from(segment.payload) + 38;
        let waiting_ns = self.free_ns.saturating_sub(now_ns);
        if let Some(queue) = waiting_ns.checked_div(self.ns_per_byte) {
            if queue + bytes > self.queue_bytes {
                return None;
            }
            if queue > self.mark_bytes && segment.ecn != ecn::NOT_ECT {
                segment.ecn = ecn::CE;
            }
        }
        if random.chance(self.loss) {
            return None;
        }
        self.free_ns = now_ns + waiting_ns + bytes * self.ns_per_byte;
        let late = if random.chance(self.reordering) {
            random.below(self.late_ns)
        } else {
            0
        };
        Some(self.free_ns + self.delay_ns + late)
    }
}

/// One end: what its application does, and what a test may want to know.
pub struct End {
    pub tcp: Endpoint,
    /// Bytes still to be written.
    pub to_write: u64,
    /// Close when all is written.
    pub closes: bool,
    /// The application reads.
    pub reads: bool,
    pub received: u64,
    pub seen: Events,
    pub at_end_ns: Option<u64>,
    /// Largest right edge offered, as the peer sees it.
    edge: Option<u32>,
    syn_seen: bool,
    wscale: u8,
    peer_wscale: u8,
    highest: u32,
}

impl End {
    fn new(tcp: Endpoint) -> Self {
        Self {
            tcp,
            to_write: 0,
            closes: true,
            reads: true,
            received: 0,
            seen: Events::EMPTY,
            at_end_ns: None,
            edge: None,
            syn_seen: false,
            wscale: 0,
            peer_wscale: 0,
            highest: 0,
        }
    }

    fn application(&mut self, now_ns: u64) {
        if self.to_write > 0 {
            self.to_write -= self.tcp.write(self.to_write);
        }
        if self.to_write == 0 && self.closes {
            self.tcp.close();
        }
        if self.reads {
            self.received += self.tcp.read(u64::MAX);
        }
        if self.tcp.at_end() && self.at_end_ns.is_none() {
            self.at_end_ns = Some(now_ns);
        }
    }

    pub fn is_over(&self) -> bool {
        matches!(self.tcp.state(), State::Closed | State::TimeWait)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Traced {
    pub at_ns: u64,
    pub from: usize,
    pub segment: Segment,
}

/// The treatment of a segment on its way; `false` drops it.
pub type Tamper = Box<dyn FnMut(u64, usize, &mut Segment) -> bool>;

/// Both ends. 0 opens actively, 1 passively.
pub struct Net {
    pub now_ns: u64,
    pub end: Vec<End>,
    pub path: [Path; 2],
    pub trace: Vec<Traced>,
    pub keep_trace: bool,
    pub tamper: Option<Tamper>,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    arriving: Vec<Option<Segment>>,
    server: (Arc<Config>, u32),
    /// Applied to the passive end when it comes into being.
    pub server_writes: u64,
    pub server_closes: bool,
    pub server_reads: bool,
    sequence: u64,
    /// Bytes beyond min(cwnd, window) that were ever in flight, new data only.
    pub worst_excess: u64,
}

impl Net {
    pub fn new(client: Config, server: Config, isn: [u32; 2], path: Path, seed: u64) -> Self {
        Self {
            now_ns: 0,
            end: vec![End::new(Endpoint::connect(Arc::new(client), isn[0]))],
            path: [path.clone(), path],
            trace: Vec::new(),
            keep_trace: false,
            tamper: None,
            random: Random::new(seed),
            events: BinaryHeap::new(),
            arriving: Vec::new(),
            server: (Arc::new(server), isn[1]),
            server_writes: 0,
            server_closes: true,
            server_reads: true,
            sequence: 0,
            worst_excess: 0,
        }
    }

    pub fn client(&mut self) -> &mut End {
        &mut self.end[0]
    }

    pub fn server(&mut self) -> &mut End {
        &mut self.end[1]
    }

    fn send(&mut self, from: usize, mut segment: Segment) {
        let kept = match &mut self.tamper {
            Some(tamper) => tamper(self.now_ns, from, &mut segment),
            None => true,
        };
        let copies = 1 + u64::from(self.random.chance(self.path[from].duplication));
        for _ in 0..copies {
            if !kept {
                break;
            }
            let mut copy = segment;
            let at = self.path[from].carry(self.now_ns, &mut copy, &mut self.random);
            if let Some(at) = at {
                self.sequence += 1;
                self.arriving.push(Some(copy));
                let index = self.arriving.len() - 1;
                self.events
                    .push(Reverse((at, self.sequence, index * 2 + (1 - from))));
            }
        }
        if self.keep_trace {
            self.trace.push(Traced {
                at_ns: self.now_ns,
                from,
                segment,
            });
        }
    }

    /// The right edge never moves left.
    fn check_edge(end: &mut End, segment: &Segment) {
        if segment.has(flags::SYN) {
            end.wscale = segment.wscale().unwrap_or(0);
            return;
        }
        if !segment.has(flags::ACK) || segment.has(flags::RST) {
            return;
        }
        let scale = if end.syn_seen {
            end.wscale.min(end.peer_wscale.max(end.wscale))
        } else {
            0
        };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
        if let Some(old) = end.edge {
            let moved = edge.wrapping_sub(old) as i32;
            assert!(moved >= 0, "the right edge moved left by {}", -moved);
        }
        end.edge = Some(edge);
    }

    /// Lets an end say all it has to say.
    fn drain(&mut self, who: usize) {
        loop {
            let now_ns = self.now_ns;
            let end = &mut self.end[who];
            end.application(now_ns);
            let has = end.tcp.has_output(now_ns);
            let limit = end.tcp.window().min(end.tcp.snd_wnd());
            let probes = end.tcp.stats().tail_loss_probes + end.tcp.stats().window_probes;
            let mut long = end.tcp.clone();
            let sent = end.tcp.transmit_to(now_ns, Whole);
            let (segment, more) =
                sent.map_or((None, false), |(segment, more)| (Some(segment), more));
            assert!(more || !end.tcp.has_output(now_ns), "none follows");
            assert_eq!(segment, long.transmit_any(now_ns), "by prediction or not");
            assert_eq!(end.tcp, long, "by prediction or not");
            assert_eq!(has, segment.is_some(), "has_output is exact");
            let Some(segment) = segment else {
                return;
            };
            let new = segment.seq.wrapping_sub(end.highest) as i32 >= 0;
            if segment.length() > 0 && new {
                end.highest = segment.end();
                let probed = end.tcp.stats().tail_loss_probes + end.tcp.stats().window_probes;
                if !segment.has(flags::SYN) && probes == probed {
                    let excess = end.tcp.in_flight().saturating_sub(limit);
                    self.worst_excess = self.worst_excess.max(excess);
                }
            }
            Self::check_edge(end, &segment);
            self.send(who, segment);
        }
    }

    fn deliver(&mut self, to: usize, segment: &Segment) {
        if to == 1 && self.end.len() == 1 {
            if segment.has(flags::SYN) && !segment.has(flags::ACK) {
                let (config, isn) = self.server.clone();
                let mut end = End::new(Endpoint::accept(config, isn, segment, self.now_ns));
                end.syn_seen = segment.wscale().is_some();
                end.to_write = self.server_writes;
                end.closes = self.server_closes;
                end.reads = self.server_reads;
                self.end.push(end);
            }
            return;
        }
        let end = &mut self.end[to];
        if segment.has(flags::SYN) {
            end.syn_seen = segment.wscale().is_some();
        }
        let mut long = end.tcp.clone();
        let events = end.tcp.segment(self.now_ns, segment);
        let same = long.segment_any(self.now_ns, segment);
        assert_eq!(events, same, "by prediction or not: {segment:?}");
        assert_eq!(end.tcp, long, "by prediction or not: {segment:?}");
        end.seen = end.seen | events;
    }

    /// When something happens next.
    pub fn next_ns(&self) -> u64 {
        let arrival = self.events.peek().map_or(u64::MAX, |event| event.0.0);
        let timers = self.end.iter().map(|end| end.tcp.deadline_ns());
        timers.fold(arrival, u64::min)
    }

    /// One instant. False when nothing will ever happen.
    pub fn step(&mut self) -> bool {
        for who in 0..self.end.len() {
            self.drain(who);
        }
        let next_ns = self.next_ns();
        if next_ns == u64::MAX {
            return false;
        }
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(&Reverse((at, _, key))) = self.events.peek() {
            if at > self.now_ns {
                break;
            }
            self.events.pop();
            let segment = self.arriving[key / 2].take().expect("arrives once");
            self.deliver(key % 2, &segment);
            if key % 2 < self.end.len() {
                self.drain(key % 2);
            }
        }
        if self.events.is_empty() {
            self.arriving.clear();
        }
        for end in &mut self.end {
            if end.tcp.deadline_ns() <= self.now_ns {
                let events = end.tcp.timeout(self.now_ns);
                end.seen = end.seen | events;
            }
        }
        true
    }

    /// Until `done` or `limit_ns`; true if `done`.
    pub fn run(&mut self, limit_ns: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let mut still = 0;
        loop {
            if done(self) {
                return true;
            }
            let before = self.now_ns;
            if self.now_ns > limit_ns || !self.step() {
                return done(self);
            }
            still = if self.now_ns == before { still + 1 } else { 0 };
            assert!(still < 10_000, "time stands still at {} ns", self.now_ns);
        }
    }

    /// Until `at_ns`.
    pub fn run_until(&mut self, at_ns: u64) {
        for who in 0..self.end.len() {
            self.drain(who);
        }
        let mut steps = 0;
        while self.next_ns() <= at_ns {
            self.step();
            steps += 1;
            assert!(
                steps < 10_000_000,
                "time stands still at {} ns",
                self.now_ns
            );
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Both ends have closed in good order.
    pub fn finished(&mut self) -> bool {
        self.end.len() == 2 && self.end.iter().all(End::is_over)
    }
}
