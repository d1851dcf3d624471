//! How the two sides agree: three messages of 128 bytes.
//!
//! ```text
//!  client ── hello: version, what it takes, pauses ──▶ server
//!  client ◀── offer: the same, sizes; memfd ────────── server
//!  client ── ready ──────────────────────────────────▶ server     (each side may refuse instead)
//! ```
//!
//! | bytes | |
//! |---|---|
//! | 0 to 7 | `sgcable` and a zero |
//! | 8 to 11 | version, little endian as all numbers |
//! | 12 to 15 | 1 hello, 2 offer, 3 ready, 4 refusal |
//! | 16 to 19 | buffers of a direction |
//! | 20 to 23 | bytes of a buffer |
//! | 24 to 27 | work that its sender takes: 1 checksums, 2 and 4 TCP over IPv4 and IPv6, 8 CWR |
//! | 28 to 31 | pauses of its sender: bit p = priority p is lossless by them; 256 a switch, 512 a program |
//! | 32 to 127 | of a refusal, why: UTF-8, filled with zeros |
//!
//! The first 16 bytes stay so in any version. Before they said anything of pauses, sides sent a
//! zero there.

use std::{
    fs::File,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use super::{cable::Agreed, layout::Layout};
use crate::{lanes::Lanes, offload::Takes, vhost::session::Mode};

/// What both sides must have.
pub const VERSION: u32 = 1;

/// All of the handshake takes at most so long.
pub const PATIENCE: Duration = Duration::from_secs(2);

const BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"sgcable\0";
const REASON_AT: usize = 32;

/// Kinds of messages.
const HELLO: u32 = 1;
const OFFER: u32 = 2;
const READY: u32 = 3;
const REFUSAL: u32 = 4;

/// Why there is no cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The peer closed the socket before it said anything, as a probe of the socket does.
    Silently,
    /// This is wrong.
    Because(String),
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self::Because(reason)
    }
}

fn because(reason: impl ToString) -> Failed {
    Failed::Because(reason.to_string())
}

/// Which side sends and obeys pauses of single priorities (PFC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pauses {
    /// A switch does, for its lossless priorities: bit p for priority p; none without `pfc`.
    Switch(u8),
    /// A program, which knows itself what it does with the frames of pauses.
    Program,
    /// A side of an older version does not say.
    Unsaid,
}

impl Pauses {
    const SWITCH: u32 = 1 << 8;
    const PROGRAM: u32 = 1 << 9;

    fn to_bits(self) -> u32 {
        match self {
            Self::Switch(lossless) => Self::SWITCH | u32::from(lossless),
            Self::Program => Self::PROGRAM,
            Self::Unsaid => 0,
        }
    }

    fn from_bits(bits: u32) -> Self {
        match (bits & Self::SWITCH, bits & Self::PROGRAM) {
            (0, 0) => Self::Unsaid,
            (0, _) => Self::Program,
            _ => Self::Switch(bits as u8),
        }
    }

    /// Two switches pause for the same priorities, or the frames of one side are lost.
    fn check(server: Self, client: Self) -> Result<(), Failed> {
        let told = |lossless: u8| {
            let numbers = Lanes::each(lossless).listed();
            let numbers: Vec<_> = numbers.map(|number| number.to_string()).collect();
            match numbers.is_empty() {
                true => "none".to_owned(),
                false => numbers.join(" "),
            }
        };
        match (server, client) {
            (Self::Switch(server), Self::Switch(client)) if server != client => {
                // It fits into a refusal.
                Err(because(format!(
                    "pfc differs: priorities {} where it listens, {} where it connects",
                    told(server),
                    told(client)
                )))
            }
            (Self::Switch(1..), Self::Unsaid) | (Self::Unsaid, Self::Switch(1..)) => Err(because(
                "pfc on one side alone: the other, of an older version, does not say for which priorities",
            )),
            _ => Ok(()),
        }
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    kind: u32,
    slots: u32,
    buffer: u32,
    takes: u32,
    pauses: u32,
}

impl Message {
    fn new(kind: u32, layout: Option<Layout>, side: Side) -> Self {
        Self {
            kind,
            slots: layout.map_or(0, |layout| layout.slots.into()),
            buffer: layout.map_or(0, |layout| layout.buffer),
            takes: side.takes.to_bits(),
            pauses: side.pauses.to_bits(),
        }
    }

    fn bytes(&self, reason: &str) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = [
            VERSION,
            self.kind,
            self.slots,
            self.buffer,
            self.takes,
            self.pauses,
        ];
        for (to, word) in bytes[8..].chunks_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        for (to, from) in bytes[REASON_AT..].iter_mut().zip(reason.bytes()) {
            *to = from;
        }
        bytes
    }

    fn parse(bytes: &[u8; BYTES]) -> Result<Self, Failed> {
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(four)
        };
        if bytes[..8] != MAGIC {
            return Err(because("the peer speaks of something else"));
        }
        if word(12) == REFUSAL {
            let text = bytes[REASON_AT..].split(|&byte| byte == 0).next();
            let text = String::from_utf8_lossy(text.unwrap_or_default());
            let text: String = text.chars().filter(|c| !c.is_control()).collect();
            return Err(because(format!("the peer refuses: {text}")));
        }
        if word(8) != VERSION {
            let version = word(8);
            return Err(because(format!(
                "the peer has version {version} of the cable, and this side {VERSION}"
            )));
        }
        Ok(Self {
            kind: word(12),
            slots: word(16),
            buffer: word(20),
            takes: word(24),
            pauses: word(28),
        })
    }

    fn of(self, kind: u32) -> Result<Self, Failed> {
        match self.kind == kind {
            true => Ok(self),
            false => Err(because("a message that is out of turn")),
        }
    }
}

/// What a side tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The work that it takes.
    pub takes: Takes,
    /// What it does with pauses.
    pub pauses: Pauses,
}

/// Agrees with the peer of a connection; the file is the memory's. A server decides the sizes.
///
/// # Errors
/// What is wrong; the peer has been told.
pub fn agree(
    stream: &UnixStream,
    mode: Mode,
    layout: Layout,
    side: Side,
) -> Result<(Agreed, File), Failed> {
    let until = Instant::now() + PATIENCE;
    let agreed = match mode {
        Mode::Server => offer(stream, layout, side, until),
        Mode::Client => accept(stream, side, until),
    };
    if let Err(Failed::Because(reason)) = &agreed {
        let refusal = Message::new(REFUSAL, None, side);
        // It may have gone.
        let _ = tell(stream, &refusal.bytes(reason), None);
    }
    agreed
}

fn offer(
    stream: &UnixStream,
    layout: Layout,
    side: Side,
    until: Instant,
) -> Result<(Agreed, File), Failed> {
    let (hello, _) = hear(stream, until)?;
    let hello = hello.of(HELLO)?;
    Pauses::check(side.pauses, Pauses::from_bits(hello.pauses))?;
    let file = layout.make();
    let file = file.map_err(|error| because(format!("no shared memory: {error}")))?;
    let memory = layout.map(&file)?;
    let offer = Message::new(OFFER, Some(layout), side).bytes("");
    tell(stream, &offer, Some(&file))?;
    hear(stream, until)?.0.of(READY)?;
    let agreed = Agreed {
        mode: Mode::Server,
        layout,
        takes: Takes::from_bits(hello.takes),
        memory,
    };
    Ok((agreed, file))
}

fn accept(stream: &UnixStream, side: Side, until: Instant) -> Result<(Agreed, File), Failed> {
    tell(stream, &Message::new(HELLO, None, side).bytes(""), None)?;
    let (offer, file) = hear(stream, until)?;
    let offer = offer.of(OFFER)?;
    Pauses::check(Pauses::from_bits(offer.pauses), side.pauses)?;
    let layout = Layout::new(offer.slots, offer.buffer)?;
    let file = file.ok_or_else(|| because("the peer passes no memory"))?;
    let file = File::from(file);
    let memory = layout.map(&file)?;
    tell(stream, &Message::new(READY, None, side).bytes(""), None)?;
    let agreed = Agreed {
        mode: Mode::Client,
        layout,
        takes: Takes::from_bits(offer.takes),
        memory,
    };
    Ok((agreed, file))
}

/// Sends a message. A peer that does not read is not waited for: three messages always fit.
fn tell(stream: &UnixStream, bytes: &[u8; BYTES], file: Option<&File>) -> Result<(), Failed> {
    let descriptors: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if file.is_some() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(because("no room for a descriptor"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, flags) {
        Ok(BYTES) => Ok(()),
        Ok(_) | Err(Errno::AGAIN) => Err(because("the peer does not read")),
        Err(error) => Err(because(format!("the peer went: {error}"))),
    }
}

/// Reads a message, and the only descriptor that came with it.
fn hear(stream: &UnixStream, until: Instant) -> Result<(Message, Option<OwnedFd>), Failed> {
    let (mut bytes, mut at, mut descriptors) = ([0; BYTES], 0, Vec::new());
    while at < BYTES {
        let left = until.saturating_duration_since(Instant::now());
        let patience = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut ready = [PollFd::new(stream, PollFlags::IN)];
        match poll(&mut ready, Some(&patience)) {
            Ok(0) => return Err(because("the peer says nothing")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(because(error)),
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(&mut bytes[at..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let count = match recvmsg(stream, &mut part, &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(error) => return Err(because(format!("the peer went: {error}"))),
        };
        for with in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = with {
                descriptors.extend(some);
            }
        }
        match (count, at) {
            (0, 0) => return Err(Failed::Silently),
            (0, _) => return Err(because("the peer went within a message")),
            _ => at += count,
        }
    }
    let message = Message::parse(&bytes)?;
    Ok((
        message,
        descriptors.pop().filter(|_| descriptors.is_empty()),
    ))
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
