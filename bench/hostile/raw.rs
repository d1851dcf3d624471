//! A sender and a receiver of TCP that no kernel has written: what they do not do is as good as
//! what they do.

use std::time::{Duration, Instant};

use crate::{
    frame::{self, ACK, End, NOP, PSH, RST, SYN, Segment, Tcp},
    tap::Tap,
    worker::Ending,
};

pub const MSS: u32 = 1460;
/// Their first sequence number.
const BEGIN: u32 = 1_000_000;
/// MSS, window scale; both ends of a connection need to have said the second.
const OPTIONS: [u8; 8] = [2, 4, 0x05, 0xb4, 1, 3, 3, 9];
const PATIENCE: Duration = Duration::from_millis(200);

/// Whether `a` lies behind `b` in sequence space.
pub fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The sending end of a connection.
pub struct Sender<'a> {
    tap: &'a Tap,
    near: End,
    far: End,
    una: u32,
    next: u32,
    /// Right edge that the peer shows.
    edge: u32,
    scale: u8,
    acknowledges: u32,
    repeated_acks: u32,
    /// The number that is to be acknowledged before another loss is one.
    recover: u32,
    progress: Instant,
}

impl<'a> Sender<'a> {
    /// Opens a connection by a SYN that `change` has changed.
    pub fn open(
        tap: &'a Tap,
        near: End,
        far: End,
        ending: &Ending,
        change: impl Fn(&mut Vec<u8>),
    ) -> Option<Self> {
        let mut syn = frame::build(
            &near,
            &far,
            &Segment {
                seq: BEGIN,
                flags: SYN,
                window: 64_000,
                options: &OPTIONS,
                ..Segment::default()
            },
        );
        change(&mut syn);
        let mut heard = Vec::new();
        while !ending.is_near() {
            tap.send(&syn);
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                tap.wait(PATIENCE);
                while tap.receive(&mut heard) {
                    if let Some(answer) = answer_to(&heard, &near, &far) {
                        return Some(Self::opened(tap, near, far, &heard, &answer));
                    }
                }
            }
        }
        None
    }

    fn opened(tap: &'a Tap, near: End, far: End, heard: &[u8], answer: &Tcp) -> Self {
        let scale = frame::split(answer.options(heard))
            .iter()
            .find_map(|option| (option[0] == 3).then(|| option[2]));
        let this = Self {
            tap,
            near,
            far,
            una: BEGIN + 1,
            next: BEGIN + 1,
            edge: BEGIN + 1 + u32::from(answer.window(heard)),
            scale: scale.unwrap_or(0),
            acknowledges: answer.seq(heard) + 1,
            repeated_acks: 0,
            recover: BEGIN + 1,
            progress: Instant::now(),
        };
        this.send(this.next, ACK, &[]);
        this
    }

    fn send(&self, seq: u32, flags: u8, payload: &[u8]) {
        let segment = Segment {
            seq,
            ack: self.acknowledges,
            flags,
            window: 64_000,
            payload,
            ..Segment::default()
        };
        self.tap
            .send(&frame::build(&self.near, &self.far, &segment));
    }

    fn send_data(&self, seq: u32) {
        self.send(seq, ACK | PSH, &[0x5a; MSS as usize]);
    }

    /// Sends so many segments, and waits until they are acknowledged.
    pub fn begin(&mut self, segments: u32, ending: &Ending) {
        for _ in 0..segments {
            self.send_data(self.next);
            self.next = self.next.wrapping_add(MSS);
        }
        let mut heard = Vec::new();
        while self.una != self.next && !ending.is_near() {
            if !self.tap.wait(PATIENCE) {
                self.send_data(self.una);
            }
            self.hear(&mut heard);
        }
    }

    /// Sends so many bytes, soon `most` of them at a time whatever the peer's window, and repairs
    /// what is lost.
    pub fn blast(&mut self, bytes: u32, most: u32, ending: &Ending) {
        let begin = self.next;
        let end = begin.wrapping_add(bytes);
        let mut heard = Vec::new();
        while after(end, self.una) && !ending.is_near() {
            // The receiver's buffer has to grow as well.
            let flight = most.min(64_000 + self.una.wrapping_sub(begin));
            while after(end, self.next) && self.next.wrapping_sub(self.una) < flight {
                self.send_data(self.next);
                self.next = self.next.wrapping_add(MSS);
            }
            self.tap.wait(Duration::from_millis(5));
            self.hear(&mut heard);
            if self.progress.elapsed() > Duration::from_millis(30) {
                self.next = self.una;
                self.recover = self.una;
                self.progress = Instant::now();
            }
        }
    }

    /// Sends what its peer's windows allow, until told to end.
    pub fn obey(&mut self, ending: &Ending) {
        let mut heard = Vec::new();
        while !ending.is_near() {
            while !after(self.next.wrapping_add(MSS), self.edge) {
                self.send_data(self.next);
                self.next = self.next.wrapping_add(MSS);
            }
            if !self.tap.wait(Duration::from_millis(50)) && self.una != self.next {
                self.send_data(self.una);
            }
            self.hear(&mut heard);
        }
    }

    /// Forgets the connection, and tells the peer.
    pub fn reset(self) {
        self.send(self.next, RST | ACK, &[]);
    }

    fn hear(&mut self, heard: &mut Vec<u8>) {
        while self.tap.receive(heard) {
            let Some(at) = Tcp::find(heard) else { continue };
            if frame::ends(heard) != Some((self.far, self.near)) || at.is_syn(heard) {
                continue;
            }
            let ack = at.ack(heard);
            let edge = ack.wrapping_add(u32::from(at.window(heard)) << self.scale);
            if after(edge, self.edge) {
                self.edge = edge;
            }
            if after(ack, self.una) {
                self.advance(ack);
            } else if ack == self.una && self.una != self.next {
                self.repeated_acks += 1;
                if self.repeated_acks == 3 && !after(self.recover, self.una) {
                    self.recover = self.next;
                    self.send_data(self.una);
                }
            }
        }
    }

    fn advance(&mut self, ack: u32) {
        self.una = ack;
        self.repeated_acks = 0;
        self.progress = Instant::now();
        if after(ack, self.next) {
            self.next = ack;
        }
        // The next hole of the same flight.
        if after(self.recover, ack) {
            self.send_data(ack);
        }
    }
}

fn answer_to(heard: &[u8], near: &End, far: &End) -> Option<Tcp> {
    let at = Tcp::find(heard)?;
    let fits = frame::ends(heard)? == (*far, *near) && at.flags(heard) & (SYN | ACK) == SYN | ACK;
    (fits && at.ack(heard) == BEGIN + 1).then_some(at)
}

/// Without data for so long, the optimist has been ahead of its sender, who hears nothing of it
/// then.
const SILENCE: Duration = Duration::from_millis(3);

/// So many ACKs may come late, one after another.
const LATE_MAX: u32 = 16;

/// A receiver that acknowledges two segments every so often, whether they have come or not.
pub struct Optimist<'a> {
    pub tap: &'a Tap,
    pub near: End,
    pub every: Duration,
}

impl Optimist<'_> {
    /// Takes one connection; `arrived` hears of each segment's bytes.
    pub fn run(&self, ending: &Ending, mut arrived: impl FnMut(u64)) {
        let mut heard = Vec::new();
        let mut talk: Option<Talk> = None;
        while !ending.is_near() {
            while self.tap.receive(&mut heard) {
                let Some(at) = Tcp::find(&heard) else {
                    continue;
                };
                let Some((far, near)) = frame::ends(&heard) else {
                    continue;
                };
                if near != self.near {
                    continue;
                }
                if at.is_syn(&heard) {
                    talk = Some(self.answer(far, at.seq(&heard)));
                } else if let Some(talk) = talk.as_mut() {
                    talk.hear(&at, &heard);
                    arrived(at.bytes() as u64);
                }
            }
            match talk.as_mut() {
                Some(talk) if talk.begun => self.acknowledge(talk),
                _ => _ = self.tap.wait(Duration::from_millis(5)),
            }
        }
    }

    fn answer(&self, far: End, seq: u32) -> Talk {
        self.send(&far, BEGIN, seq.wrapping_add(1), SYN | ACK, &OPTIONS);
        Talk {
            far,
            begun: false,
            highest: seq.wrapping_add(1),
            acknowledged: seq.wrapping_add(1),
            due: Instant::now(),
            news: Instant::now(),
            padded: false,
        }
    }

    fn send(&self, far: &End, seq: u32, ack: u32, flags: u8, options: &[u8]) {
        let segment = Segment {
            seq,
            ack,
            flags,
            window: u16::MAX,
            options,
            ..Segment::default()
        };
        self.tap.send(&frame::build(&self.near, far, &segment));
    }

    /// The ACKs that are due. After a silence the first is an honest one: the sender had nothing to
    /// answer.
    fn acknowledge(&self, talk: &mut Talk) {
        let now = Instant::now();
        talk.due = talk.due.max(now - LATE_MAX * self.every);
        while talk.due <= now {
            if talk.news.elapsed() > SILENCE {
                talk.acknowledged = talk.highest;
                talk.news = now;
            } else {
                talk.acknowledged = talk.acknowledged.wrapping_add(2 * MSS);
            }
            // Linux joins equal ACKs that wait for a socket, and would drop what is ahead of it.
            talk.padded = !talk.padded;
            let options: &[u8] = if talk.padded { &[NOP; 4] } else { &[] };
            self.send(&talk.far, BEGIN + 1, talk.acknowledged, ACK, options);
            talk.due += self.every;
        }
        std::thread::sleep(talk.due - now);
    }
}

/// The optimist's knowledge of its connection.
struct Talk {
    far: End,
    begun: bool,
    highest: u32,
    acknowledged: u32,
    due: Instant,
    news: Instant,
    padded: bool,
}

impl Talk {
    fn hear(&mut self, at: &Tcp, frame: &[u8]) {
        let end = at.seq(frame).wrapping_add(at.bytes() as u32);
        if at.bytes() > 0 && after(end, self.highest) {
            self.highest = end;
            self.begun = true;
            self.news = Instant::now();
        }
    }
}
