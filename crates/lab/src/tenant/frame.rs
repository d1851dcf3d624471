//! How messages and datagrams say on the wire what their receiver needs to know.
//!
//! ```text
//!  0      4       6       8              16              24              32
//!  | SGM1 | class | zero  | tag          | bytes        | zero          | pattern …      a message of a stream
//!  | SGD1 | zero          | number       | end          | sent, ns      | pattern …      a datagram
//! ```
//! All fields big endian. `bytes` is the length of the whole message. What is shorter than its
//! header is sent as the header.

use std::collections::VecDeque;

use sluicegate_apps::{Datagram, HEADER_BYTES, MessageHeader};

/// Length of a header.
pub const LENGTH: usize = HEADER_BYTES as usize;

/// First four bytes: a receiver that lost its place in the stream says so.
const MESSAGE: u32 = 0x5347_4d31;
const DATAGRAM: u32 = 0x5347_4431;

/// A header.
pub type Header = [u8; LENGTH];

fn put(header: &mut Header, at: usize, value: u64) {
    header[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

fn get(header: &Header, at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| header[at + i]))
}

/// The header of a message.
pub fn of_message(message: &MessageHeader) -> Header {
    let mut header = [0; LENGTH];
    header[..4].copy_from_slice(&MESSAGE.to_be_bytes());
    header[4..6].copy_from_slice(&message.class.to_be_bytes());
    put(&mut header, 8, message.tag);
    put(&mut header, 16, message.bytes);
    header
}

/// A message by its header; `None` if this is none.
pub fn message(header: &Header) -> Option<MessageHeader> {
    let message = MessageHeader {
        class: u16::from_be_bytes([header[4], header[5]]),
        tag: get(header, 8),
        bytes: get(header, 16),
    };
    let is_one = header[..4] == MESSAGE.to_be_bytes()
        && header[6..8] == [0; 2]
        && header[24..] == [0; 8]
        && message.bytes >= HEADER_BYTES;
    is_one.then_some(message)
}

/// The header of a datagram.
pub fn of_datagram(datagram: &Datagram) -> Header {
    let mut header = [0; LENGTH];
    header[..4].copy_from_slice(&DATAGRAM.to_be_bytes());
    put(&mut header, 8, datagram.number);
    put(&mut header, 16, datagram.end_bytes);
    put(&mut header, 24, datagram.sent_ns);
    header
}

/// A datagram of so many bytes by its header; `None` if this is none.
pub fn datagram(header: &Header, bytes: u64) -> Option<Datagram> {
    let is_one = header[..4] == DATAGRAM.to_be_bytes() && bytes >= HEADER_BYTES;
    is_one.then(|| Datagram {
        number: get(header, 8),
        end_bytes: get(header, 16),
        sent_ns: get(header, 24),
        bytes,
    })
}

/// The part of a stream of messages that has arrived.
#[derive(Debug, Default)]
pub struct Incoming {
    header: Header,
    /// Bytes of the present message.
    received: u64,
    /// The present message, once its header is complete.
    present: Option<MessageHeader>,
    /// Of the messages whose header has arrived, those that the application has not taken.
    pub headers: VecDeque<MessageHeader>,
}

impl Incoming {
    /// Where the next bytes of a header go; `None` while payload comes.
    pub fn header(&mut self) -> Option<&mut [u8]> {
        let missing = &mut self.header[(self.received as usize).min(LENGTH)..];
        (!missing.is_empty()).then_some(missing)
    }

    /// (offset, bytes) of the payload that comes next.
    pub fn payload(&self) -> (u64, u64) {
        let bytes = self.present.map_or(0, |message| message.bytes);
        (
            self.received.saturating_sub(HEADER_BYTES),
            bytes.saturating_sub(self.received),
        )
    }

    /// So many bytes of what was asked for have come. False: this is no stream of messages.
    pub fn came(&mut self, bytes: u64) -> bool {
        self.received += bytes;
        if self.present.is_none() && self.received == HEADER_BYTES {
            self.present = message(&self.header);
            self.headers.extend(self.present);
            if self.present.is_none() {
                return false;
            }
        }
        if self
            .present
            .is_some_and(|message| message.bytes == self.received)
        {
            (self.present, self.received) = (None, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(bytes: u64) -> MessageHeader {
        MessageHeader {
            class: 7,
            tag: 1_234_567_890_123,
            bytes,
        }
    }

    #[test]
    fn headers_survive_the_wire_and_noise_does_not_pass() {
        let sent = of_message(&sized(16_384));
        assert_eq!(message(&sent), Some(sized(16_384)));
        assert_eq!(
            message(&of_message(&sized(31))),
            None,
            "shorter than a header"
        );
        let datagram_sent = Datagram {
            number: 3,
            end_bytes: 4_000,
            sent_ns: 5,
            bytes: 1_000,
        };
        let header = of_datagram(&datagram_sent);
        assert_eq!(datagram(&header, 1_000), Some(datagram_sent));
        assert_eq!((message(&header), datagram(&sent, 1_000)), (None, None));
        let mut shifted = sent;
        shifted.rotate_left(1);
        assert_eq!(message(&shifted), None);
    }

    #[test]
    fn a_stream_comes_apart_into_its_messages_however_it_arrives() {
        let sizes = [32, 33, 1_000, 32, 5_000];
        for step in [1, 7, 31, 32, 33, 4_096] {
            let mut incoming = Incoming::default();
            for bytes in sizes {
                let mut left = bytes;
                while left > 0 {
                    let at = (bytes - left) as usize;
                    let count = match incoming.header() {
                        Some(free) => {
                            let count = free.len().min(step);
                            free[..count]
                                .copy_from_slice(&of_message(&sized(bytes))[at..at + count]);
                            count as u64
                        }
                        None => {
                            let (offset, most) = incoming.payload();
                            assert_eq!((offset, most), (at as u64 - HEADER_BYTES, left));
                            most.min(step as u64)
                        }
                    };
                    assert!(incoming.came(count));
                    left -= count;
                }
            }
            assert!(
                incoming
                    .headers
                    .iter()
                    .map(|message| message.bytes)
                    .eq(sizes)
            );
        }
        let mut noise = Incoming::default();
        assert!(!noise.came(HEADER_BYTES));
    }
}
