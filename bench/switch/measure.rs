//! What is measured at each switch.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use sluicegate_dataplane::offload::HEADER;

use crate::{
    driver::{Driver, SIZE},
    stream::{Clock, Flags, Patch, Stream, ack, number, segment, sent_ns, seq, window},
    tap::TapGuest,
};

/// Frames that a guest sends in a row.
const BURST: usize = 32;
/// Most bytes of a connection that are not acknowledged.
const WINDOW: u64 = 64 * 1460;
/// And before an ACK has shown a window (RFC 6928).
const FIRST_WINDOW: u64 = 10 * 1460;

/// A frame that arrives later is lost: others may have the switch's CPU for a while.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A guest at any switch.
pub enum Guest {
    /// With an adapter of Virtio.
    Vhost(Box<Driver>),
    /// At an interface of the kernel.
    Tap(TapGuest),
}

impl Guest {
    /// Has this frame sent from now on.
    pub fn load(&mut self, header: [u8; HEADER], frame: &[u8]) -> Result<()> {
        match self {
            Self::Vhost(driver) => driver.load(header, frame),
            Self::Tap(tap) => {
                tap.load(header, frame);
                Ok(())
            }
        }
    }

    /// Sends at most so many frames; how many there was room for.
    #[inline]
    pub fn send(&mut self, most: usize, stream: &mut Stream) -> usize {
        match self {
            Self::Vhost(driver) => driver.send(most, stream),
            Self::Tap(tap) => tap.send(most, stream),
        }
    }

    /// Takes all frames that have come; how many.
    #[inline]
    pub fn receive(&mut self, each: impl FnMut(&Patch)) -> usize {
        self.receive_some(usize::from(SIZE), each)
    }

    #[inline]
    fn receive_some(&mut self, most: usize, each: impl FnMut(&Patch)) -> usize {
        match self {
            Self::Vhost(driver) => driver.receive(most, each),
            Self::Tap(tap) => tap.receive(most, each),
        }
    }

    /// Whether the switch has all that was sent, or its receivers. The kernel has it at once.
    fn is_taken(&mut self) -> bool {
        match self {
            Self::Vhost(driver) => driver.room() == usize::from(SIZE),
            Self::Tap(_) => true,
        }
    }

    fn wait_until_taken(&mut self) -> Result<()> {
        let begin = Instant::now();
        while !self.is_taken() {
            ensure!(begin.elapsed() < PATIENCE, "the switch takes no frame");
        }
        Ok(())
    }

    fn drain(&mut self, clock: Clock) -> u64 {
        let (mut count, mut last_ns) = (0, clock.now_ns());
        while clock.now_ns() - last_ns < 50_000_000 {
            let now = self.receive(|_| {});
            if now > 0 {
                count += now as u64;
                last_ns = clock.now_ns();
            }
        }
        count
    }
}

/// A rate with its loss.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Frames that arrived per second.
    pub frames_per_s: f64,
    /// Share of frames that the switch took and that did not arrive.
    pub lost: f64,
}

/// Lets every guest be heard, so that no frame is flooded.
pub fn introduce(guests: &mut [Guest], clock: Clock) -> Result<()> {
    for at in 0..guests.len() {
        let to = (at + 1) % guests.len();
        let mut stream = Stream::numbered(at as u8, to as u8, 64)?;
        guests[at].load([0; HEADER], stream.frame())?;
        guests[at].send(1, &mut stream);
        guests[at].wait_until_taken()?;
        guests.iter_mut().for_each(|guest| {
            guest.drain(clock);
        });
    }
    Ok(())
}

/// How long, and by which clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The clock.
    pub clock: Clock,
    /// Of each measurement.
    pub lasts: Duration,
}

/// Frames of `bytes` from the first `senders` guests to the last one, which takes a burst while
/// each of them sends one.
pub fn throughput(guests: &mut [Guest], senders: usize, bytes: usize, span: Span) -> Result<Rate> {
    let last = guests.len() - 1;
    let mut streams = (0..senders)
        .map(|from| Stream::numbered(from as u8, last as u8, bytes))
        .collect::<Result<Vec<_>>>()?;
    for (guest, stream) in guests.iter_mut().zip(&streams) {
        guest.load([0; HEADER], stream.frame())?;
    }
    saturate(guests, &mut streams, span)
}

/// Frames of 64 bytes from the first guest to the second and from the third to the fourth, at the
/// same time; each pair's driver has a thread, on the CPU of its number. Together, per second.
pub fn pairs(guests: Vec<Guest>, cpus: [usize; 2], span: Span) -> Result<f64> {
    ensure!(guests.len() == 4, "two pairs");
    let mut guests = guests.into_iter();
    let mut pair = || {
        [guests.next(), guests.next()]
            .into_iter()
            .flatten()
            .collect()
    };
    let pairs: [Vec<Guest>; 2] = [pair(), pair()];
    let begin = Barrier::new(2);
    let drive = |number: usize, mut guests: Vec<Guest>| -> Result<f64> {
        crate::stay(cpus[number])?;
        let (from, to) = (2 * number as u8, 2 * number as u8 + 1);
        let mut streams = [Stream::numbered(from, to, 60)?];
        guests[0].load([0; HEADER], streams[0].frame())?;
        begin.wait();
        let rate = saturate(&mut guests, &mut streams, span)?;
        ensure!(rate.lost == 0.0, "frames of a pair are lost");
        Ok(rate.frames_per_s)
    };
    let [first, second] = pairs;
    thread::scope(|scope| {
        let other = scope.spawn(|| drive(1, second));
        let rate = drive(0, first)?;
        let other = other.join();
        other.map_or_else(|_| anyhow::bail!("a pair panicked"), |it| Ok(rate + it?))
    })
}

/// Segments of 64 KB to be cut later, in bits per second.
pub fn segments(guests: &mut [Guest], span: Span) -> Result<f64> {
    const PAYLOAD: usize = 65_000;
    let last = guests.len() - 1;
    let mut streams = [Stream::data(0, last as u8, PAYLOAD, 0)?];
    let mut header = [0; HEADER];
    // Checksum from 34 on, 16 bytes into it; TCP over IPv4, 54 bytes of headers, 1460 each.
    (header[0], header[1]) = (1, 1);
    for (at, value) in [(2, 54_u16), (4, 1460), (6, 34), (8, 16)] {
        header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    guests[0].load(header, streams[0].frame())?;
    let rate = saturate(guests, &mut streams, span)?;
    ensure!(rate.frames_per_s > 0.0, "no segment arrived");
    Ok(rate.frames_per_s * PAYLOAD as f64 * 8.0)
}

fn saturate(guests: &mut [Guest], streams: &mut [Stream], span: Span) -> Result<Rate> {
    let clock = span.clock;
    let (senders, receiver) = guests.split_at_mut(guests.len() - 1);
    let receiver = &mut receiver[0];
    for sender in &mut *senders {
        sender.wait_until_taken()?;
    }
    receiver.drain(clock);
    let mut sent = 0;
    let mut received = 0;
    let begin_ns = clock.now_ns();
    let warm_ns = begin_ns + 100_000_000;
    let end_ns = warm_ns + span.lasts.as_nanos() as u64;
    let mut now_ns = begin_ns;
    let mut warm = None;
    while now_ns < end_ns {
        for _ in 0..8 {
            for (guest, stream) in senders.iter_mut().zip(&mut *streams) {
                sent += guest.send(BURST, stream) as u64;
            }
            received += receiver.receive_some(BURST, |_| {}) as u64;
        }
        now_ns = clock.now_ns();
        if warm.is_none() && now_ns >= warm_ns {
            warm = Some((now_ns, received));
        }
    }
    let (from_ns, before) = warm.unwrap_or((begin_ns, 0));
    let seconds = (now_ns - from_ns) as f64 / 1e9;
    let frames_per_s = (received - before) as f64 / seconds;
    let end = Instant::now();
    while end.elapsed() < PATIENCE {
        received += receiver.drain(clock);
        if senders.iter_mut().all(Guest::is_taken) {
            break;
        }
    }
    ensure!(received <= sent, "{received} of {sent} frames arrived");
    Ok(Rate {
        frames_per_s,
        lost: (sent - received) as f64 / (sent as f64).max(1.0),
    })
}

/// What a receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Every second segment (RFC 5681, 4.2).
    Second,
    /// What a poll brings, as stacks do that put segments together first (GRO).
    Burst,
}

/// A connection from the first guest to the last, by its number, another one each time: its
/// segments have `payload` bytes. Its sender keeps to the windows that the ACKs show, as stacks do.
/// Segments and ACKs per second.
pub fn connection(
    guests: &mut [Guest],
    (payload, ack_of): (usize, Acks),
    number: u16,
    span: Span,
) -> Result<f64> {
    let last = guests.len() - 1;
    let (from, to) = (0, last as u8);
    let (senders, receiver) = guests.split_at_mut(last);
    let (sender, receiver) = (&mut senders[0], &mut receiver[0]);
    let clock = span.clock;
    handshake(sender, receiver, (from, to, number))?;
    let mut data = Stream::data(from, to, payload, number)?;
    let mut acks = Stream::acks(to, from, number)?;
    sender.load([0; HEADER], data.frame())?;
    receiver.load([0; HEADER], acks.frame())?;
    let most = WINDOW.max(128 * payload as u64);
    let mut shown = FIRST_WINDOW;
    let (mut acknowledged, mut passed) = (1_u64, 0_u64);
    let (mut newest, mut answered) = (1_u64, 1_u64);
    let begin_ns = clock.now_ns();
    let end_ns = begin_ns + span.lasts.as_nanos() as u64;
    let mut now_ns = begin_ns;
    while now_ns < end_ns {
        for _ in 0..8 {
            let out = data.position() - acknowledged;
            let room = shown.min(most).saturating_sub(out) / payload as u64;
            sender.send(BURST.min(room as usize), &mut data);
            passed += receiver.receive(|patch| {
                let ahead = seq(patch).wrapping_sub(newest as u32);
                newest += u64::from(ahead) + payload as u64;
            }) as u64;
            let pair = 2 * payload as u64;
            while newest - answered >= pair {
                let next = match ack_of {
                    Acks::Second => answered + pair,
                    Acks::Burst => newest,
                };
                acks.acknowledge(next);
                if receiver.send(1, &mut acks) == 0 {
                    break;
                }
                answered = next;
            }
            let mut latest = acknowledged as u32;
            passed += sender.receive(|patch| (latest, shown) = (ack(patch), window(patch))) as u64;
            acknowledged += u64::from(latest.wrapping_sub(acknowledged as u32));
        }
        now_ns = clock.now_ns();
    }
    sender.drain(clock);
    receiver.drain(clock);
    ensure!(acknowledged > 1, "the connection stands still");
    Ok(passed as f64 / ((now_ns - begin_ns) as f64 / 1e9))
}

fn handshake(one: &mut Guest, other: &mut Guest, at: (u8, u8, u16)) -> Result<()> {
    let (from, to, number) = at;
    let steps = [
        (true, Flags::Syn),
        (false, Flags::SynAck),
        (true, Flags::Ack),
    ];
    for (forth, flags) in steps {
        let (from, to) = if forth { (from, to) } else { (to, from) };
        let (sender, receiver) = if forth {
            (&mut *one, &mut *other)
        } else {
            (&mut *other, &mut *one)
        };
        let mut frame = segment(from, to, &[], (flags, number))?;
        frame.resize(frame.len().max(60), 0);
        sender.load([0; HEADER], &frame)?;
        sender.send(1, &mut Stream::whole(&frame));
        let begin = Instant::now();
        while receiver.receive(|_| {}) == 0 {
            ensure!(begin.elapsed() < PATIENCE, "no frame arrived for {flags:?}");
        }
    }
    Ok(())
}

/// Frames of 64 bytes at this rate: the times that they take, in ns, ascending.
pub fn latency(guests: &mut [Guest], frames_per_s: f64, span: Span) -> Result<Vec<u64>> {
    let clock = span.clock;
    let last = guests.len() - 1;
    let mut stream = Stream::numbered(0, last as u8, 64)?;
    let (senders, receiver) = guests.split_at_mut(last);
    let (sender, receiver) = (&mut senders[0], &mut receiver[0]);
    sender.load([0; HEADER], stream.frame())?;
    let mut times = Vec::new();
    let begin_ns = clock.now_ns();
    let end_ns = begin_ns + span.lasts.as_nanos() as u64;
    let (mut now_ns, mut sent) = (begin_ns, 0);
    let mut expected = 1;
    while now_ns < end_ns {
        let due = ((now_ns - begin_ns) as f64 * frames_per_s / 1e9) as usize;
        stream.now_ns = now_ns;
        sent += sender.send(due.saturating_sub(sent).min(BURST), &mut stream);
        now_ns = clock.now_ns();
        receiver.receive(|patch| {
            if number(patch) == expected {
                times.push(now_ns - sent_ns(patch));
            }
            expected = number(patch) + 1;
        });
    }
    receiver.drain(clock);
    ensure!(times.len() > 100, "{} frames arrived", times.len());
    times.sort_unstable();
    Ok(times)
}
