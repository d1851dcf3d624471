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

use super::feature;

/// Length of a message's header: request, flags, length of the body (vhost-user, "Header").
const HEADER: usize = 12;

/// The longest body that is read: a configuration space.
const BODY_MAX: usize = 0x2000;

/// Descriptors of one message.
const DESCRIPTORS_MAX: usize = 32;

const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_ENABLE: u32 = 18;
/// The version in a header's flags.
const VERSION: u32 = 1;
/// Of a table: count and padding, then each region.
const TABLE_HEAD: usize = 8;
const TABLE_REGION: usize = 32;

/// A message with its descriptors.
struct Message {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Why no further message passes.
struct Ended;

impl From<Errno> for Ended {
    fn from(_: Errno) -> Self {
        Self
    }
}

/// Passes messages on until one side closes its connection; then both are closed.
pub fn relay(frontend: &UnixStream, reader: &UnixStream) {
    let mut has_features = false;
    while pass(frontend, reader, &mut has_features).is_ok() {}
    for stream in [frontend, reader] {
        // The other side may have closed it already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn pass(frontend: &UnixStream, reader: &UnixStream, has_features: &mut bool) -> Result<(), Ended> {
    let mut ready = [frontend, reader].map(|stream| PollFd::new(stream, PollFlags::IN));
    match poll(&mut ready, None) {
        Err(Errno::INTR) => return Ok(()),
        result => result?,
    };
    let [from_frontend, from_reader] = ready.map(|side| !side.revents().is_empty());
    if from_frontend {
        let mut message = read(frontend.as_fd())?;
        cut(&mut message.bytes);
        let request = word(&message.bytes, 0);
        if request == SET_VRING_ENABLE && !*has_features {
            write(reader.as_fd(), &allow_enable())?;
        }
        *has_features |= matches!(request, SET_FEATURES | SET_VRING_ENABLE);
        write(reader.as_fd(), &message)?;
    }
    if from_reader {
        write(frontend.as_fd(), &read(reader.as_fd())?)?;
    }
    Ok(())
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

fn word(bytes: &[u8], at: usize) -> u32 {
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
    for word in [SET_FEATURES, VERSION, 8] {
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
    if word(bytes, 0) == SET_MEM_TABLE && length < bytes.len() - HEADER {
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

    use super::*;

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
        let relay = thread::spawn(move || relay(&outer, &inner));
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
