//! Priorities (IEEE 802.1Q, 6.9): which one a frame has, and which of them are lossless.
//!
//! Where a switch tells priorities apart, each port has an exit for each of them. Frames of a
//! higher one leave first, and a full exit of one holds up no other.

use serde::{Deserialize, Serialize};
use sluicegate_vswitch::Side;

/// Priorities of a tag.
pub const PRIORITIES: u8 = 8;

/// Which priority the frames of a port have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// 0. Tags pass as they are.
    #[default]
    Unknown,
    /// This one, 0..=7. Their tags get it.
    Of(u8),
    /// That of their tag; 0 without one.
    Tag,
}

impl Priority {
    /// The lane of a frame with this tag.
    #[inline]
    pub fn lane(self, tag: Option<u16>) -> Lane {
        match self {
            Self::Unknown => Lane::default(),
            Self::Of(number) => Lane {
                number,
                is_set: true,
            },
            Self::Tag => Lane {
                number: tag.map_or(0, |tag| (tag >> 13) as u8),
                is_set: false,
            },
        }
    }
}

/// The priority of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// 0..=7.
    pub number: u8,
    /// Its tag gets this priority.
    pub is_set: bool,
}

impl Lane {
    /// The upper four bits of a tag's first byte: priority, and whether the frame may be dropped
    /// first; `before`: of the frame's own tag.
    #[inline]
    pub fn bits(self, before: u8) -> u8 {
        if self.is_set {
            self.number << 5 | before & 0x10
        } else {
            before & 0xf0
        }
    }
}

/// The priorities that a switch tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// 1 or 8 are 2 to the power of this.
    bits: u8,
    /// Bit p: priority p is lossless.
    lossless: u8,
}

impl Lanes {
    /// One for all frames; lossless.
    pub const LOSSLESS: Self = Self {
        bits: 0,
        lossless: u8::MAX,
    };

    /// One for all frames, which are dropped where they do not fit.
    pub const LOSSY: Self = Self {
        bits: 0,
        lossless: 0,
    };

    /// All eight. Bit p of `lossless`: priority p.
    pub fn each(lossless: u8) -> Self {
        Self { bits: 3, lossless }
    }

    /// Bit p: priority p is lossless.
    pub fn lossless(self) -> u8 {
        self.lossless
    }

    /// Whether frames of a priority wait for a full exit.
    #[inline]
    pub fn is_lossless(self, priority: u8) -> bool {
        self.lossless >> priority & 1 != 0
    }

    /// The lossless priorities, from the lowest.
    pub fn listed(self) -> impl Iterator<Item = u8> {
        (0..PRIORITIES).filter(move |&priority| self.is_lossless(priority))
    }

    /// How many there are.
    pub fn count(self) -> u8 {
        1 << self.bits
    }

    /// The priorities, from the highest.
    #[inline]
    pub fn highest_first(self) -> impl Iterator<Item = u8> {
        (0..self.count()).rev()
    }

    /// What a port is to the switch, for frames of a priority.
    #[inline]
    pub fn side(self, port: u16, priority: u8) -> Side {
        Side::Vnic(self.vnic(port, priority))
    }

    /// The number of this side.
    #[inline]
    pub fn vnic(self, port: u16, priority: u8) -> u16 {
        let lane = u16::from(priority & (self.count() - 1));
        port << self.bits | lane
    }

    /// The port of a vNIC of the switch.
    pub fn port(self, vnic: u16) -> u16 {
        vnic >> self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_its_priority_only_where_the_port_says_so() {
        let tag = Some(5 << 13 | 1 << 12 | 10);
        assert_eq!(Priority::Unknown.lane(tag).number, 0);
        assert_eq!(Priority::Unknown.lane(tag).bits(0xb0), 0xb0);
        assert_eq!(Priority::Of(3).lane(tag).number, 3);
        assert_eq!(Priority::Of(3).lane(tag).bits(0xb0), 0x70);
        assert_eq!(Priority::Tag.lane(tag).number, 5);
        assert_eq!(Priority::Tag.lane(tag).bits(0xb0), 0xb0);
        assert_eq!(Priority::Tag.lane(None), Lane::default());
    }

    #[test]
    fn ports_and_priorities_have_sides_of_their_own() {
        for lanes in [Lanes::LOSSLESS, Lanes::LOSSY, Lanes::each(8)] {
            let mut seen = Vec::new();
            for port in 0..4 {
                for priority in lanes.highest_first() {
                    let Side::Vnic(vnic) = lanes.side(port, priority) else {
                        panic!("a vNIC");
                    };
                    assert!(!seen.contains(&vnic));
                    assert_eq!(lanes.port(vnic), port);
                    seen.push(vnic);
                }
            }
            assert_eq!(lanes.side(2, 7), lanes.side(2, lanes.count() - 1));
        }
        assert!(Lanes::each(8).is_lossless(3) && !Lanes::each(8).is_lossless(4));
    }
}
