//! How messages travel on a connection: a header, then the pattern; one byte comes back per message.
//!
//! ```text
//!  0      4       6       8              16              24              32
//!  | magic | class | zero  | begin, ns    | bytes        | number       | pattern …
//! ```
//! All fields big endian. `begin` is the time at which the message was due, after the start of the run;
//! `bytes` the length of the whole frame. A message shorter than a header is sent as a header.

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 32;

/// First four bytes: a receiver that lost its place in the stream says so.
const MAGIC: u32 = 0x5347_4d31;

/// Header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Index of the FCT class.
    pub class: u16,
    /// When it was due, ns after the start of the run.
    pub begin_ns: u64,
    /// Length of the frame, ≥ [`HEADER_BYTES`].
    pub bytes: u64,
    /// Number at this sender.
    pub number: u64,
}

impl Header {
    /// As sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.class.to_be_bytes());
        out[8..16].copy_from_slice(&self.begin_ns.to_be_bytes());
        out[16..24].copy_from_slice(&self.bytes.to_be_bytes());
        out[24..32].copy_from_slice(&self.number.to_be_bytes());
        out
    }

    /// As received; `None` if this is no header.
    pub fn decode(data: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| data[at + i]));
        let header = Self {
            class: u16::from_be_bytes([data[4], data[5]]),
            begin_ns: word(8),
            bytes: word(16),
            number: word(24),
        };
        let valid = data[..4] == MAGIC.to_be_bytes()
            && data[6..8] == [0, 0]
            && header.bytes >= HEADER_BYTES as u64;
        valid.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_the_wire_and_noise_does_not_pass() {
        let header = Header {
            class: 7,
            begin_ns: 1_234_567_890_123,
            bytes: 16_384,
            number: u64::MAX,
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
        let mut shifted = header.encode();
        shifted.rotate_left(1);
        assert_eq!(Header::decode(&shifted), None);
    }
}
