//! Addresses whose frames no bridge relays (IEEE 802.1Q, 8.6.3), and sources that are none.
//!
//! What is sent to 01-80-C2-00-00-00 to -0F is for the neighbour on the link and no one behind it:
//! spanning tree, pauses, link aggregation, 802.1X, LLDP. A guest's BPDU that a switch relayed
//! would make a physical switch shut the host's port.

use crate::learning::Mac;

/// The block, but for its last byte, which is below 16.
pub const BLOCK: [u8; 5] = [0x01, 0x80, 0xc2, 0, 0];

/// The number in the block of frames of MAC control, which no switch relays in any case.
pub const PAUSE: u8 = 1;

/// The addresses of the block by their usual names.
pub const NAMES: [(&str, u8); 5] = [
    ("stp", 0),
    ("lacp", 2),
    ("802.1x", 3),
    ("mvrp", 13),
    ("lldp", 14),
];

/// Which frames to the block are relayed all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Bit n: those to address n.
    relayed: u16,
}

impl Reserved {
    /// All but pauses are relayed.
    pub const RELAYED: Self = Self {
        relayed: !(1 << PAUSE),
    };

    /// Frames to an address of the block, by its number, are relayed as well. Not those of pauses.
    #[must_use]
    pub fn relaying(mut self, number: u8) -> Self {
        if number != PAUSE && number < 16 {
            self.relayed |= 1 << number;
        }
        self
    }

    /// Bit n: frames to address n of the block are relayed.
    pub fn relayed(self) -> u16 {
        self.relayed
    }

    /// Whether frames to this address are not relayed.
    #[inline]
    pub fn stops(self, to: Mac) -> bool {
        number(to).is_some_and(|number| self.relayed >> number & 1 == 0)
    }
}

/// The number of an address in the block, if it is one.
#[inline]
pub fn number(to: Mac) -> Option<u8> {
    let is_reserved = to[..5] == BLOCK && to[5] < 16;
    is_reserved.then_some(to[5])
}

/// Whether an address may be that of a sender: one adapter's (IEEE 802.1Q, 8.7), and not all zeros.
#[inline]
pub fn may_send(source: Mac) -> bool {
    source[0] & 1 == 0 && source != [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_as_a_whole_is_stopped_and_nothing_else() {
        let to = |last: u8| [1, 0x80, 0xc2, 0, 0, last];
        let stopped = (0..=255).filter(|&last| Reserved::default().stops(to(last)));
        assert!(stopped.eq(0..16));
        for other in [
            [1, 0x80, 0xc2, 0, 1, 0],
            [0xff; 6],
            [0x33, 0x33, 0, 0, 0, 1],
        ] {
            assert!(!Reserved::default().stops(other));
        }
    }

    #[test]
    fn what_is_named_is_relayed_and_pauses_never_are() {
        let some = Reserved::default().relaying(14).relaying(PAUSE);
        let stopped = (0..16).filter(|&last| some.stops([1, 0x80, 0xc2, 0, 0, last]));
        assert!(stopped.eq((0..16).filter(|&last| last != 14)));
        assert!(Reserved::RELAYED.stops([1, 0x80, 0xc2, 0, 0, PAUSE]));
        assert_eq!(Reserved::RELAYED.relayed().count_ones(), 15);
    }

    #[test]
    fn groups_and_zeros_send_nothing() {
        assert!(may_send([2, 0, 0, 0, 0, 1]));
        assert!(!may_send([0; 6]) && !may_send([1, 0, 0x5e, 0, 0, 1]) && !may_send([0xff; 6]));
    }
}
