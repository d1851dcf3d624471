//! Messages on their way between a frontend and their reader.
//!
//! The reader (rust-vmm's `vhost`) refuses two things that frontends do. So messages pass through
//! here, where these are mended, and everything else is left alone:
//! - UML's tables of memory regions have room for two regions, whatever their count. They are cut
//!   to it.
//! - QEMU enables rings before it sets features. The feature that allows this message is set before
//!   the first of them.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

use super::{
    feature,
    kept::{Kept, request},
    link::{Connection, Link},
};

/// Length of a message's header: request, flags, length of the body (vhost-user, "Header").
const HEADER: usize = 12;

/// The longest body that is read: a configuration space.
const BODY_MAX: usize = 0x2000;

/// Descriptors of one message.
const DESCRIPTORS_MAX: usize = 32;

/// The version in a header's flags.
const VERSION: u32 = 1;
/// Of a table: count and padding, then each region.
const TABLE_HEAD: usize = 8;
const TABLE_REGION: usize = 32;

/// A message with its descriptors.
#[derive(Debug)]
pub struct Message {
    /// Header and body.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Why no further message passes.
struct Ended;

impl From<Errno> for Ended {
    fn from(_: Errno) -> Self {
        Self
    }
}

/// Passes messages on until one side closes its connection; then both are closed. `said` is what
/// another process has heard on this connection, and the reader hears first.
pub fn relay(frontend: &UnixStream, reader: &UnixStream, said: Vec<Message>, link: &Link) {
    let mut relay = Relay {
        frontend,
        reader,
        link,
        kept: Kept::default(),
        has_features: false,
        asked: 0,
    };
    let begins = relay.begin(said);
    link.begun();
    if begins.is_ok() {
        while relay.pass().is_ok() {}
    }
    // The other side may have closed it already.
    let _ = reader.shutdown(Shutdown::Both);
    if !link.is_borrowed() {
        let _ = frontend.shutdown(Shutdown::Both);
    }
}

struct Relay<'a> {
    frontend: &'a UnixStream,
    reader: &'a UnixStream,
    link: &'a Link,
    kept: Kept,
    has_features: bool,
    /// Answers about features that the frontend is to have.
    asked: u32,
}

impl Relay<'_> {
    fn pass(&mut self) -> Result<(), Ended> {
        let mut ready = [
            PollFd::new(self.frontend, PollFlags::IN),
            PollFd::new(self.reader, PollFlags::IN),
            PollFd::from_borrowed_fd(self.link.wake(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => return Ok(()),
            result => result?,
        };
        let [from_frontend, from_reader, stops] = ready.map(|side| !side.revents().is_empty());
        if stops {
            return self.stop();
        }
        if from_frontend {
            let mut message = read(self.frontend.as_fd())?;
            cut(&mut message.bytes);
            self.asked += u32::from(word(&message.bytes, 0) == request::GET_FEATURES);
            self.hear(message)?;
        }
        if from_reader {
            let answer = read(self.reader.as_fd())?;
            self.asked -=
                u32::from(word(&answer.bytes, 0) == request::GET_FEATURES).min(self.asked);
            self.answer(&answer)?;
        }
        Ok(())
    }

    /// The reader hears a message of the frontend.
    fn hear(&mut self, message: Message) -> Result<(), Ended> {
        let request = word(&message.bytes, 0);
        if request == request::SET_VRING_ENABLE && !self.has_features {
            write(self.reader.as_fd(), &allow_enable())?;
        }
        self.has_features |= matches!(request, request::SET_FEATURES | request::SET_VRING_ENABLE);
        write(self.reader.as_fd(), &message)?;
        self.kept.keep(message);
        Ok(())
    }

    fn answer(&mut self, answer: &Message) -> Result<(), Ended> {
        self.kept.answered(answer);
        write(self.frontend.as_fd(), answer)
    }

    /// Waits until the reader has done everything that it has heard. Answers before that one go to
    /// the frontend, if it is to have them.
    fn drain(&mut self, passes: bool) -> Result<(), Ended> {
        write(self.reader.as_fd(), &ask_features())?;
        loop {
            let answer = read(self.reader.as_fd())?;
            if word(&answer.bytes, 0) == request::GET_FEATURES {
                if self.asked == 0 {
                    return Ok(());
                }
                self.asked -= 1;
            }
            if passes {
                self.answer(&answer)?;
            }
        }
    }

    /// The reader hears what another process has heard.
    fn begin(&mut self, said: Vec<Message>) -> Result<(), Ended> {
        if said.is_empty() {
            return Ok(());
        }
        self.drain(false)?;
        for message in said {
            self.hear(message)?;
        }
        self.drain(false)
    }

    /// Stops between two messages until it goes on, unless another process does instead.
    fn stop(&mut self) -> Result<(), Ended> {
        self.drain(true)?;
        let connection = self.kept.copies().and_then(|said| {
            let stream = self.frontend.try_clone()?;
            Ok(Connection { stream, said })
        });
        self.link.stopped(connection);
        Ok(())
    }
}

fn ask_features() -> Message {
    let bytes = [request::GET_FEATURES, VERSION, 0].map(u32::to_le_bytes);
    Message {
        bytes: bytes.concat(),
        descriptors: Vec::new(),
    }
}

fn read(from: BorrowedFd<'_>) -> Result<Message, Ended> {
    let mut message = Message {
        bytes: vec![0; HEADER],
        descriptors: Vec::new(),
    };
    fill(from, &mut message, 0)?;
    let length = word(&message.bytes, 8) as usize;
    if length > BODY_MAX {
        return Err(Ended);
    }
    message.bytes.resize(HEADER + length, 0);
    fill(from, &mut message, HEADER)?;
    Ok(message)
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    u32::from_le_bytes(four.unwrap_or_default())
}

/// Reads a message's bytes from `at` to its end.
fn fill(from: BorrowedFd<'_>, message: &mut Message, mut at: usize) -> Result<(), Ended> {
    while at < message.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(&mut message.bytes[at..])];
        let received = match recvmsg(from, &mut part, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        if received.bytes == 0 {
            return Err(Ended);
        }
        at += received.bytes;
        for with in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = with {
                message.descriptors.extend(descriptors);
            }
        }
        if message.descriptors.len() > DESCRIPTORS_MAX {
            return Err(Ended);
        }
    }
    Ok(())
}

fn write(to: BorrowedFd<'_>, message: &Message) -> Result<(), Ended> {
    let descriptors: Vec<_> = message.descriptors.iter().map(AsFd::as_fd).collect();
    let mut at = 0;
    while at < message.bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if at == 0 && !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let part = [IoSlice::new(&message.bytes[at..])];
        at += match sendmsg(to, &part, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
    }
    Ok(())
}

/// Sets the one feature without which the reader refuses to enable rings.
fn allow_enable() -> Message {
    let mut bytes = Vec::with_capacity(HEADER + 8);
    for word in [request::SET_FEATURES, VERSION, 8] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(feature::PROTOCOL.to_le_bytes());
    Message {
        bytes,
        descriptors: Vec::new(),
    }
}

/// Cuts a table of memory regions to the length that its count says.
fn cut(bytes: &mut Vec<u8>) {
    let regions = word(bytes, HEADER) as usize;
    let length = TABLE_HEAD.saturating_add(regions.saturating_mul(TABLE_REGION));
    if word(bytes, 0) == request::SET_MEM_TABLE && length < bytes.len() - HEADER {
        bytes.truncate(HEADER + length);
        bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        thread,
    };

    use super::{
        request::{SET_FEATURES, SET_MEM_TABLE, SET_VRING_ENABLE},
        *,
    };

    fn message(request: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = request.to_le_bytes().to_vec();
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_table_is_cut_to_its_count_and_other_messages_are_not() {
        let table = |regions: u8, bytes: usize| {
            let mut body = vec![regions, 0, 0, 0, 0, 0, 0, 0];
            body.resize(bytes, 9);
            message(SET_MEM_TABLE, &body)
        };
        for (bytes, expected) in [
            (table(1, 72), table(1, 40)),
            (table(2, 72), table(2, 72)),
            (table(9, 72), table(9, 72)),
            (message(6, &[1; 72]), message(6, &[1; 72])),
            (message(SET_MEM_TABLE, &[]), message(SET_MEM_TABLE, &[])),
        ] {
            let mut cut_bytes = bytes;
            cut(&mut cut_bytes);
            assert_eq!(cut_bytes, expected);
        }
    }

    #[test]
    fn messages_pass_both_ways_until_a_side_closes() {
        let (mut frontend, outer) = UnixStream::pair().expect("a pair");
        let (inner, mut reader) = UnixStream::pair().expect("a pair");
        let relay = thread::spawn(move || {
            let link = Link::new(false).expect("a link");
            relay(&outer, &inner, Vec::new(), &link)
        });
        for body in [&[][..], &[1, 2, 3], &[7; 1000]] {
            let sent = message(1, body);
            let mut got = vec![0; sent.len()];
            frontend.write_all(&sent).expect("sent");
            reader.read_exact(&mut got).expect("came");
            assert_eq!(got, sent);
            reader.write_all(&sent).expect("sent");
            frontend.read_exact(&mut got).expect("came");
            assert_eq!(got, sent);
        }
        let enable = message(SET_VRING_ENABLE, &[1; 8]);
        frontend.write_all(&enable).expect("sent");
        frontend.write_all(&enable).expect("sent");
        let mut expected = message(SET_FEATURES, &feature::PROTOCOL.to_le_bytes());
        expected.extend([&enable[..], &enable].concat());
        let mut got = vec![0; expected.len()];
        reader.read_exact(&mut got).expect("came");
        assert_eq!(got, expected);
        frontend.write_all(&message(1, &[0; BODY_MAX + 1])).ok();
        assert_eq!(reader.read(&mut [0; 9]).expect("closed"), 0);
        relay.join().expect("it ended");
    }
}
