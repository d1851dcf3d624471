//! A TCP segment as it travels: what a header says, in host byte order, and how many bytes follow.

use sluicegate_core::number::{low_8, low_16, narrow};

mod counters;

pub(crate) use counters::counters_len;
pub use counters::{ByteCounters, Field};
pub use sluicegate_core::segment::{ecn, tcp as flags};

/// [`Segment::options`]: which options the header has, and AccECN's flag.
pub mod option {
    /// Timestamps (RFC 7323): [`super::Segment::ts_val`] and `ts_ecr` count.
    pub const TIMESTAMPS: u8 = 1 << 0;
    /// Largest segment, SYN only: [`super::Segment::mss`].
    pub const MSS: u8 = 1 << 1;
    /// Window scale, SYN only: [`super::Segment::wscale`].
    pub const WSCALE: u8 = 1 << 2;
    /// SACK permitted, SYN only.
    pub const SACK_PERMITTED: u8 = 1 << 3;
    /// No option: the flag AE beside CWR and ECE (RFC 9768 3.1), see [`super::Segment::ace`].
    pub const AE: u8 = 1 << 4;
    /// The AccECN option begins with ECT(1): [`super::Segment::counters`].
    pub(super) const ECT1_FIRST: u8 = 1 << 5;
    /// How many SACK blocks there are; in a SYN, how many fields of the AccECN option, 0 = it has
    /// none.
    pub(super) const BLOCKS: u8 = 3 << 6;
    /// Except in a SYN, whose options have this place: fields of the AccECN option and one more,
    /// 0 = it has none; beside four SACK blocks [`super::FOUR_BLOCKS`] more than that.
    pub(super) const FIELDS: u8 = 7 << 1;
    /// Any of these: [`super::Segment::sack`] holds something.
    pub const CONTENTS: u8 = BLOCKS | FIELDS;
}

/// The shift of [`option::BLOCKS`].
const BLOCKS_SHIFT: u32 = 6;

/// The shift of [`option::FIELDS`].
const FIELDS_SHIFT: u32 = 1;
/// In [`option::FIELDS`]: there are four SACK blocks, and so many less is what else it says.
const FOUR_BLOCKS: u8 = 5;

/// Most SACK blocks in a segment: what 40 bytes of options hold (RFC 2018 section 3).
pub const SACK_BLOCKS: usize = 4;

/// Most SACK blocks beside timestamps (RFC 2018 section 3). So many have a place of their own; the
/// fourth lies where the timestamps would.
pub const SACK_BLOCKS_BESIDE_TIMESTAMPS: usize = 3;

/// A SACK block: sequence numbers from `left` up to, not including, `right` (RFC 2018).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// First.
    pub left: u32,
    /// One past the last.
    pub right: u32,
}

/// The SACK blocks of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    all: [Block; SACK_BLOCKS],
    count: usize,
}

impl std::ops::Deref for Blocks {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        &self.all[..self.count]
    }
}

/// A segment. 48 bytes: a SYN has no SACK blocks, so that its MSS and window scale share their
/// place. A fourth block lies where the timestamps would. The counters of the AccECN option lie
/// where the third block would, or the timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte, or of SYN or FIN.
    pub seq: u32,
    /// Acknowledgement number, with ACK.
    pub ack: u32,
    /// TSval, with [`option::TIMESTAMPS`]; else part of a block or of [`Segment::counters`].
    pub ts_val: u32,
    /// TSecr, likewise.
    pub ts_ecr: u32,
    /// Bytes of data.
    pub payload: u16,
    /// As on the wire, unscaled.
    pub window: u16,
    /// [`flags`].
    pub flags: u8,
    /// [`ecn`].
    pub ecn: u8,
    /// [`option`].
    pub options: u8,
    /// Part of [`Segment::counters`].
    pub counters_end: u8,
    /// Blocks, a SYN's MSS and window scale, part of [`Segment::counters`].
    pub sack: [Block; SACK_BLOCKS_BESIDE_TIMESTAMPS],
}

impl Segment {
    /// A segment with nothing but these.
    #[inline]
    pub fn new(seq: u32, ack: u32, flags: u8) -> Self {
        Self {
            seq,
            ack,
            flags,
            ..Self::default()
        }
    }

    /// True if all of `flags` are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Sequence numbers that it takes up: data, SYN, FIN.
    pub fn length(&self) -> u32 {
        let control = (self.flags & flags::SYN != 0) as u32 + (self.flags & flags::FIN != 0) as u32;
        u32::from(self.payload) + control
    }

    /// One past its last sequence number.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.length())
    }

    /// SACK blocks, the most recent first.
    #[inline]
    pub fn sack(&self) -> Blocks {
        let [first, second, third] = self.sack;
        let fourth = Block {
            left: self.ts_val,
            right: self.ts_ecr,
        };
        Blocks {
            all: [first, second, third, fourth],
            count: self.blocks(),
        }
    }

    fn blocks(&self) -> usize {
        if self.has(flags::SYN) {
            0
        } else if self.has_four_blocks() {
            SACK_BLOCKS
        } else {
            usize::from(self.options >> BLOCKS_SHIFT)
        }
    }

    /// Not for a SYN.
    fn has_four_blocks(&self) -> bool {
        (self.options & option::FIELDS) >> FIELDS_SHIFT >= FOUR_BLOCKS
    }

    /// Adds a block while there is room beside timestamps, which come first. Not for a SYN, nor
    /// behind [`Segment::set_counters`].
    pub fn push_sack(&mut self, block: Block) {
        debug_assert!(!self.has(flags::SYN), "a SYN has no SACK blocks");
        let blocks = self.blocks();
        if let Some(free) = self.sack.get_mut(blocks) {
            *free = block;
            self.options += 1 << BLOCKS_SHIFT;
        } else if blocks < SACK_BLOCKS && self.options & option::TIMESTAMPS == 0 {
            (self.ts_val, self.ts_ecr) = (block.left, block.right);
            self.options |= FOUR_BLOCKS << FIELDS_SHIFT;
        }
    }

    /// The last block is taken back. Not behind [`Segment::set_counters`].
    pub fn pop_sack(&mut self) {
        match self.blocks() {
            0 => (),
            SACK_BLOCKS => {
                self.options &= !option::FIELDS;
                (self.ts_val, self.ts_ecr) = (0, 0);
            }
            _ => self.options -= 1 << BLOCKS_SHIFT,
        }
    }

    /// An option of a SYN.
    pub fn is_option_of_syn(&self, bit: u8) -> bool {
        self.has(flags::SYN) && self.options & bit != 0
    }

    /// The MSS option of a SYN.
    pub fn mss(&self) -> Option<u16> {
        self.is_option_of_syn(option::MSS)
            .then_some(low_16(self.sack[0].left.into()))
    }

    /// Sets the MSS option. For a SYN.
    pub fn set_mss(&mut self, mss: u16) {
        self.options |= option::MSS;
        self.sack[0].left = u32::from(mss);
    }

    /// The window scale option of a SYN.
    pub fn wscale(&self) -> Option<u8> {
        self.is_option_of_syn(option::WSCALE)
            .then_some(low_8(self.sack[0].right.into()))
    }

    /// Sets the window scale option, 0..=14. For a SYN.
    pub fn set_wscale(&mut self, shift: u8) {
        self.options |= option::WSCALE;
        self.sack[0].right = u32::from(shift.min(14));
    }

    /// Bytes of the TCP header as Linux lays it out: 20 and the options, each padded to four.
    #[inline]
    pub fn header_len(&self) -> u32 {
        let given = |bit, length| if self.options & bit != 0 { length } else { 0 };
        let timestamps = given(option::TIMESTAMPS, 12);
        if self.options & option::CONTENTS == 0 {
            return 20 + timestamps;
        }
        let counters = self.counters_len();
        if self.has(flags::SYN) {
            // SACK permitted takes the place of the timestamps' padding.
            let sack = if timestamps == 0 { 4 } else { 0 };
            return 20
                + timestamps
                + given(option::MSS, 4)
                + given(option::WSCALE, 4)
                + given(option::SACK_PERMITTED, sack)
                + counters;
        }
        let blocks = narrow::<u32>(self.blocks());
        20 + timestamps + counters + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }
}

const _: () = assert!(size_of::<Segment>() == 48);
