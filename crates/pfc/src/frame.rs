//! The frame of PFC (IEEE 802.3, annex 31D; IEEE 802.1Q, 36.1.3).
//!
//! | octets | | clause |
//! |---|---|---|
//! | 0 to 5 | destination 01-80-C2-00-00-01 | IEEE 802.3, annex 31D |
//! | 6 to 11 | source: the address of the station | IEEE 802.3, 31.4 |
//! | 12, 13 | EtherType 0x8808, MAC control | IEEE 802.3, 31.4 |
//! | 14, 15 | opcode 0x0101 | IEEE 802.3, table 31A-1 |
//! | 16, 17 | class-enable vector: bit p of the second octet is priority p, the first is 0 | IEEE 802.1Q, 36.1.3 |
//! | 18 to 33 | time of priority 0 to 7, in quanta of 512 bit times; 0 resumes | IEEE 802.1Q, 36.1.3 |
//! | 34 to 59 | zeros, up to the shortest frame; its checksum is the MAC's | IEEE 802.3, 31.4 |

use serde::{Deserialize, Serialize};

use crate::PRIORITIES;

/// The destination of pauses: it reaches the neighbour and is never forwarded (IEEE 802.1Q,
/// table 8-1).
pub const DESTINATION: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];

/// The EtherType of MAC control frames.
pub const MAC_CONTROL: [u8; 2] = [0x88, 0x08];

/// The opcode of PFC.
pub const OPCODE: [u8; 2] = [1, 1];

/// Bytes of a frame without its checksum.
pub const FRAME_BYTES: usize = 60;

/// Bytes of a frame without its checksum and its padding.
const MEANING_BYTES: usize = 18 + 2 * PRIORITIES;

/// What a frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PfcFrame {
    /// Bit p: the frame says something of priority p.
    pub enabled: u8,
    /// By priority, for how many quanta it is paused; 0 resumes it. Without meaning where the
    /// priority is not enabled.
    pub quanta: [u16; PRIORITIES],
}

/// Why a MAC control frame is no frame of PFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends before its last time.
    Short,
    /// It has another destination than the neighbour.
    Destination,
    /// Another opcode, such as the PAUSE of all priorities.
    Opcode,
    /// The reserved octet of the class-enable vector is not 0.
    Reserved,
}

/// Whether a frame is one of MAC control, for the port by which it comes and never forwarded.
#[inline]
pub fn is_mac_control(frame: &[u8]) -> bool {
    frame.len() >= 14 && frame[12..14] == MAC_CONTROL
}

impl PfcFrame {
    /// The frame of a station, without its checksum.
    pub fn bytes(&self, source: [u8; 6]) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..6].copy_from_slice(&DESTINATION);
        bytes[6..12].copy_from_slice(&source);
        bytes[12..14].copy_from_slice(&MAC_CONTROL);
        bytes[14..16].copy_from_slice(&OPCODE);
        bytes[17] = self.enabled;
        for (to, quanta) in bytes[18..].chunks_exact_mut(2).zip(self.quanta) {
            to.copy_from_slice(&quanta.to_be_bytes());
        }
        bytes
    }

    /// Reads a frame of MAC control. Octets behind the times are padding, whatever they are.
    ///
    /// # Errors
    /// It is none of PFC.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        if frame.len() < MEANING_BYTES {
            return Err(Malformed::Short);
        }
        if frame[..6] != DESTINATION {
            return Err(Malformed::Destination);
        }
        if frame[12..14] != MAC_CONTROL || frame[14..16] != OPCODE {
            return Err(Malformed::Opcode);
        }
        if frame[16] != 0 {
            return Err(Malformed::Reserved);
        }
        let mut parsed = Self {
            enabled: frame[17],
            ..Self::default()
        };
        let times = frame[18..MEANING_BYTES].chunks_exact(2);
        for (to, time) in parsed.quanta.iter_mut().zip(times) {
            *to = u16::from_be_bytes([time[0], time[1]]);
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause of priority 3 for 0xffff quanta, and the end of one of priority 4.
    const VECTOR: [u8; FRAME_BYTES] = [
        0x01, 0x80, 0xc2, 0x00, 0x00, 0x01, // 802.3 annex 31D: the neighbour
        0x02, 0x53, 0x47, 0x00, 0x00, 0x07, // 802.3 31.4: the station
        0x88, 0x08, // 802.3 31.4: MAC control
        0x01, 0x01, // 802.3 table 31A-1: PFC
        0x00, 0x18, // 802.1Q 36.1.3: class-enable vector, priorities 3 and 4
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // priorities 0, 1, 2
        0xff, 0xff, // 3: 65535 quanta
        0x00, 0x00, // 4: resume
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 5, 6, 7
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 802.3 31.4: up to the shortest frame
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn frame() -> PfcFrame {
        PfcFrame {
            enabled: 1 << 3 | 1 << 4,
            quanta: [0, 0, 0, 0xffff, 0, 0, 0, 0],
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        assert_eq!(frame().bytes([2, 0x53, 0x47, 0, 0, 7]), VECTOR);
        assert_eq!(PfcFrame::parse(&VECTOR), Ok(frame()));
        assert!(is_mac_control(&VECTOR));
    }

    #[test]
    fn what_is_malformed_says_nothing() {
        let changed = |at: usize, to: u8| {
            let mut bytes = VECTOR;
            bytes[at] = to;
            PfcFrame::parse(&bytes)
        };
        assert_eq!(PfcFrame::parse(&VECTOR[..33]), Err(Malformed::Short));
        assert_eq!(PfcFrame::parse(&VECTOR[..34]), Ok(frame()));
        assert_eq!(changed(0, 0x02), Err(Malformed::Destination));
        // The PAUSE of IEEE 802.3, annex 31B.
        assert_eq!(changed(14, 0), Err(Malformed::Opcode));
        assert_eq!(changed(12, 8), Err(Malformed::Opcode));
        assert_eq!(changed(16, 1), Err(Malformed::Reserved));
        // Padding is not looked at.
        assert_eq!(changed(59, 9), Ok(frame()));
    }
}
