//! Messages on their way between a frontend and their reader.
//!
//! The reader (rust-vmm's `vhost`) refuses two things that frontends do. So messages pass through
//! here, one after the other, where these are mended, and everything else is left alone:
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
    event::{PollFd, PollFlags, Timespec, poll},
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

/// Why no further message passes: what was wrong, or `None` if the frontend has gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended(pub Option<String>);

impl From<Errno> for Ended {
    fn from(_: Errno) -> Self {
        Self(None)
    }
}

/// Who reads what passes: at the other end of the relay's second socket.
pub trait Reader {
    /// Reads one message, which is there as a whole, does what it says, and answers if it asks for
    /// that.
    ///
    /// # Errors
    /// What is wrong with the message.
    fn read(&mut self) -> Result<(), String>;
}

/// Passes the messages of a frontend to their reader, and its answers back.
pub struct Relay<'a, R> {
    frontend: &'a UnixStream,
    /// The reader has its other end.
    inward: UnixStream,
    reader: R,
    link: &'a Link,
    kept: Kept,
    has_features: bool,
}

impl<'a, R: Reader> Relay<'a, R> {
    /// Between a frontend and a reader; the reader has the other end of `inward`.
    pub fn new(frontend: &'a UnixStream, inward: UnixStream, reader: R, link: &'a Link) -> Self {
        Self {
            frontend,
            inward,
            reader,
            link,
            kept: Kept::default(),
            has_features: false,
        }
    }

    /// Passes messages on until the frontend has gone, or says what cannot be done; returns what
    /// that was. `said` is what another process has heard on this connection, and the reader hears
    /// first.
    pub fn run(mut self, said: Vec<Message>) -> Option<String> {
        let mut passed = said
            .into_iter()
            .try_for_each(|message| self.hear(message, false));
        self.link.begun();
        while passed.is_ok() {
            passed = self.pass();
        }
        if !self.link.is_borrowed() {
            // The frontend may have closed it already.
            let _ = self.frontend.shutdown(Shutdown::Both);
        }
        passed.err().and_then(|Ended(reason)| reason)
    }

    /// Waits for the next message and passes it on, or stops between two messages until the
    /// connection goes on.
    ///
    /// # Errors
    /// No further message passes.
    pub fn pass(&mut self) -> Result<(), Ended> {
        let mut ready = [
            PollFd::new(self.frontend, PollFlags::IN),
            PollFd::from_borrowed_fd(self.link.wake(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => return Ok(()),
            result => result?,
        };
        let [speaks, stops] = ready.map(|side| !side.revents().is_empty());
        if stops {
            self.stop();
        } else if speaks {
            let mut message = read(self.frontend.as_fd())?;
            cut(&mut message.bytes);
            self.hear(message, true)?;
        }
        Ok(())
    }

    /// The reader hears a message of the frontend; `answers` says whether the frontend is to have
    /// the answer.
    fn hear(&mut self, message: Message, answers: bool) -> Result<(), Ended> {
        let request = word(&message.bytes, 0);
        if request == request::SET_VRING_ENABLE && !self.has_features {
            self.tell(&allow_enable(), false)?;
        }
        self.has_features |= matches!(request, request::SET_FEATURES | request::SET_VRING_ENABLE);
        self.tell(&message, answers)?;
        self.kept.keep(message);
        Ok(())
    }

    fn tell(&mut self, message: &Message, answers: bool) -> Result<(), Ended> {
        write(self.inward.as_fd(), message)?;
        let done = self.reader.read();
        // What cannot be done has an answer, too.
        while is_readable(self.inward.as_fd())? {
            let answer = read(self.inward.as_fd())?;
            self.kept.answered(&answer);
            if answers {
                write(self.frontend.as_fd(), &answer)?;
            }
        }
        done.map_err(|reason| Ended(Some(reason)))
    }

    /// Stops until the connection goes on, unless another process goes on with it.
    fn stop(&mut self) {
        let connection = self.kept.copies().and_then(|said| {
            let stream = self.frontend.try_clone()?;
            Ok(Connection { stream, said })
        });
        self.link.stopped(connection);
    }
}

fn is_readable(socket: BorrowedFd<'_>) -> Result<bool, Ended> {
    let mut ready = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut ready, Some(&now))?;
    Ok(ready[0].revents().contains(PollFlags::IN))
}

fn read(from: BorrowedFd<'_>) -> Result<Message, Ended> {
    let mut message = Message {
        bytes: vec![0; HEADER],
        descriptors: Vec::new(),
    };
    fill(from, &mut message, 0)?;
    let length = word(&message.bytes, 8) as usize;
    if length > BODY_MAX {
        let reason = format!("a message of {length} bytes");
        return Err(Ended(Some(reason)));
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
            return Err(Ended(None));
        }
        at += received.bytes;
        for with in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = with {
                message.descriptors.extend(descriptors);
            }
        }
        if message.descriptors.len() > DESCRIPTORS_MAX {
            let reason = "a message with too many descriptors";
            return Err(Ended(Some(reason.to_owned())));
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
        request::{SET_MEM_TABLE, SET_VRING_ENABLE},
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

    /// Echoes what it reads.
    struct Echo(UnixStream);

    impl Reader for Echo {
        fn read(&mut self) -> Result<(), String> {
            let mut bytes = vec![0; HEADER];
            self.0.read_exact(&mut bytes).expect("a header");
            bytes.resize(HEADER + word(&bytes, 8) as usize, 0);
            self.0.read_exact(&mut bytes[HEADER..]).expect("a body");
            self.0.write_all(&bytes).expect("an answer");
            match word(&bytes, 0) {
                99 => Err("refused".to_owned()),
                _ => Ok(()),
            }
        }
    }

    /// What a relay says at the end of a conversation, in which a frontend does this.
    fn ends(said: impl FnOnce(&mut UnixStream)) -> Option<String> {
        let (mut frontend, outer) = UnixStream::pair().expect("a pair");
        let relay = thread::spawn(move || {
            let (inward, inner) = UnixStream::pair().expect("a pair");
            let link = Link::new(false).expect("a link");
            Relay::new(&outer, inward, Echo(inner), &link).run(Vec::new())
        });
        said(&mut frontend);
        let mut rest = Vec::new();
        frontend.shutdown(Shutdown::Write).ok();
        frontend.read_to_end(&mut rest).ok();
        relay.join().expect("it ended")
    }

    #[test]
    fn messages_pass_both_ways_until_the_frontend_closes() {
        let reason = ends(|frontend| {
            for body in [&[][..], &[1, 2, 3], &[7; 1000]] {
                let sent = message(1, body);
                let mut got = vec![0; sent.len()];
                frontend.write_all(&sent).expect("sent");
                frontend.read_exact(&mut got).expect("came");
                assert_eq!(got, sent);
            }
            // The message that allows it has no answer for the frontend.
            let enable = message(SET_VRING_ENABLE, &[1; 8]);
            frontend.write_all(&enable).expect("sent");
            frontend.write_all(&enable).expect("sent");
            let expected = [&enable[..], &enable].concat();
            let mut got = vec![0; expected.len()];
            frontend.read_exact(&mut got).expect("came");
            assert_eq!(got, expected);
            frontend.write_all(&[1, 0, 0]).expect("a part of a header");
        });
        assert_eq!(reason, None);
    }

    #[test]
    fn a_conversation_that_is_refused_ends_with_a_reason() {
        let long = ends(|frontend| {
            let header = [1, VERSION, BODY_MAX as u32 + 1].map(u32::to_le_bytes);
            frontend.write_all(&header.concat()).expect("sent");
        });
        assert_eq!(long.as_deref(), Some("a message of 8193 bytes"));
        let refused = ends(|frontend| {
            let sent = message(99, &[1; 8]);
            frontend.write_all(&sent).expect("sent");
            let mut got = vec![0; sent.len()];
            frontend.read_exact(&mut got).expect("its answer came");
            assert_eq!(got, sent);
        });
        assert_eq!(refused.as_deref(), Some("refused"));
    }
}
