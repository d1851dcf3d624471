//! AccECN in a header (RFC 9768): the field ACE, and the option with counters of bytes.

use sluicegate_core::number::{low_8, low_half, narrow};

use super::{BLOCKS_SHIFT, FIELDS_SHIFT, FOUR_BLOCKS, Segment, flags, option};

/// Fields that the option has at most.
const MOST: usize = 3;
/// The block in whose place they lie; where it is in use, they have the timestamps'.
const LAST: usize = 2;
/// Counters have 24 bits on the wire.
const COUNTER: u32 = (1 << 24) - 1;

/// What a counter of the option counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// EE1B: bytes with ECT(1).
    Ect1,
    /// ECEB: bytes with CE.
    Ce,
    /// EE0B: bytes with ECT(0).
    Ect0,
}

/// The AccECN option (RFC 9768 3.2.3) as on the wire: up to three counters of 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounters {
    fields: [u32; MOST],
    count: u8,
    ect1_first: bool,
}

impl ByteCounters {
    /// The first of `fields`, three at most: ECT(1), CE, ECT(0) if `ect1_first` (kind 174), else
    /// ECT(0), CE, ECT(1) (kind 172). Of each the low 24 bits count.
    pub fn new(ect1_first: bool, fields: &[u32]) -> Self {
        let mut counters = Self {
            ect1_first,
            ..Self::default()
        };
        for (place, value) in counters.fields.iter_mut().zip(fields) {
            *place = value & COUNTER;
            counters.count += 1;
        }
        counters
    }

    /// Whether ECT(1) comes first.
    pub fn ect1_first(&self) -> bool {
        self.ect1_first
    }

    /// The fields that it has, in their order.
    pub fn values(&self) -> &[u32] {
        &self.fields[..usize::from(self.count)]
    }

    /// The same with what each counts.
    pub fn iter(&self) -> impl Iterator<Item = (Field, u32)> + '_ {
        let order = match self.ect1_first {
            true => [Field::Ect1, Field::Ce, Field::Ect0],
            false => [Field::Ect0, Field::Ce, Field::Ect1],
        };
        order.into_iter().zip(self.values().iter().copied())
    }

    /// The fields in 64 bits and a rest of eight.
    fn packed(&self) -> (u64, u8) {
        let [first, second, third] = self.fields.map(u64::from);
        (first << 40 | second << 16 | third >> 8, low_8(third))
    }

    fn unpacked(&mut self, most: u64, rest: u8) {
        let third = low_half(most << 8 | u64::from(rest));
        let fields = [(most >> 40) as u32, low_half(most >> 16), third];
        self.fields = fields.map(|field| field & COUNTER);
        self.fields[usize::from(self.count)..].fill(0);
    }
}

impl Segment {
    /// AE, CWR and ECE as the number that RFC 9768 3.2 makes of them.
    pub fn ace(&self) -> u8 {
        let bit = |on: bool, value: u8| if on { value } else { 0 };
        bit(self.options & option::AE != 0, 4)
            | bit(self.has(flags::CWR), 2)
            | bit(self.has(flags::ECE), 1)
    }

    /// Sets AE, CWR and ECE by the low three bits of `ace`.
    pub fn set_ace(&mut self, ace: u8) {
        self.options &= !option::AE;
        self.flags &= !(flags::CWR | flags::ECE);
        if ace & 4 != 0 {
            self.options |= option::AE;
        }
        if ace & 2 != 0 {
            self.flags |= flags::CWR;
        }
        if ace & 1 != 0 {
            self.flags |= flags::ECE;
        }
    }

    /// How many fields the AccECN option has; `None`: there is none.
    fn fields(&self) -> Option<u8> {
        if self.has(flags::SYN) {
            return Some(self.options >> BLOCKS_SHIFT).filter(|count| *count > 0);
        }
        let fields = (self.options & option::FIELDS) >> FIELDS_SHIFT;
        fields
            .checked_sub(FOUR_BLOCKS)
            .unwrap_or(fields)
            .checked_sub(1)
    }

    /// The AccECN option.
    pub fn counters(&self) -> Option<ByteCounters> {
        let mut counters = ByteCounters {
            count: self.fields()?.min(narrow::<u8>(MOST)),
            ect1_first: self.options & option::ECT1_FIRST != 0,
            ..ByteCounters::default()
        };
        if counters.count > 0 {
            let (high, low) = match self.blocks() > LAST {
                true => (self.ts_val, self.ts_ecr),
                false => (self.sack[LAST].left, self.sack[LAST].right),
            };
            counters.unpacked(u64::from(high) << 32 | u64::from(low), self.counters_end);
        }
        Some(counters)
    }

    /// Adds the AccECN option when all others are there. False where it has no place: with fields
    /// beside four blocks, or three and timestamps; without any in a SYN.
    pub fn set_counters(&mut self, counters: &ByteCounters) -> bool {
        let (syn, full) = (self.has(flags::SYN), self.blocks() > LAST);
        let timestamps = self.options & option::TIMESTAMPS != 0;
        let four = !syn && self.has_four_blocks();
        let taken = full && (timestamps || four);
        if (taken && counters.count > 0) || (syn && counters.count == 0) {
            return false;
        }
        if syn {
            self.options |= counters.count << BLOCKS_SHIFT;
        } else {
            self.options &= !option::FIELDS;
            let blocks = if four { FOUR_BLOCKS } else { 0 };
            self.options |= (blocks + counters.count + 1) << FIELDS_SHIFT;
        }
        if counters.ect1_first {
            self.options |= option::ECT1_FIRST;
        }
        if counters.count == 0 {
            return true;
        }
        let (most, rest) = counters.packed();
        let halves = ((most >> 32) as u32, low_half(most));
        match full {
            true => (self.ts_val, self.ts_ecr) = halves,
            false => (self.sack[LAST].left, self.sack[LAST].right) = halves,
        }
        self.counters_end = rest;
        true
    }

    /// Bytes by which the AccECN option makes the header longer: it may take the place of the two
    /// NOPs before SACK blocks.
    pub(super) fn counters_len(&self) -> u32 {
        self.fields()
            .map_or(0, |fields| counters_len(fields.into(), self.blocks() > 0))
    }
}

/// Bytes by which an AccECN option of so many fields makes a header longer that has SACK blocks or
/// has none.
pub(crate) fn counters_len(fields: u32, blocks: bool) -> u32 {
    let bytes = 2 + 3 * fields;
    match blocks && bytes % 4 <= 2 {
        true => bytes / 4 * 4,
        false => bytes.next_multiple_of(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Block;

    const FIELDS: [u32; 3] = [0x00ab_cdef, 0x0012_3456, 0x00fe_dcba];

    fn block(number: u32) -> Block {
        Block {
            left: number,
            right: number + 1,
        }
    }

    #[test]
    fn counters_have_a_place_beside_every_other_option_that_leaves_them_one() {
        for (timestamps, blocks) in [(true, 0), (true, 1), (true, 2), (false, 2), (false, 3)] {
            for count in 0..=3 {
                for ect1_first in [false, true] {
                    let mut segment = Segment::new(1, 2, flags::ACK);
                    if timestamps {
                        segment.options |= option::TIMESTAMPS;
                        (segment.ts_val, segment.ts_ecr) = (7, 8);
                    }
                    (0..blocks).for_each(|number| segment.push_sack(block(number)));
                    let counters = ByteCounters::new(ect1_first, &FIELDS[..count]);
                    assert!(segment.set_counters(&counters));
                    assert_eq!(segment.counters(), Some(counters));
                    let kept: Vec<_> = (0..blocks).map(block).collect();
                    assert_eq!(*segment.sack(), kept);
                    assert_eq!(segment.options & option::TIMESTAMPS != 0, timestamps);
                    assert!(!timestamps || (segment.ts_val, segment.ts_ecr) == (7, 8));
                    assert_eq!((segment.mss(), segment.wscale()), (None, None));
                }
            }
        }
    }

    #[test]
    fn three_blocks_and_timestamps_leave_room_for_no_field() {
        let mut segment = Segment::new(1, 2, flags::ACK);
        segment.options |= option::TIMESTAMPS;
        (0..3).for_each(|number| segment.push_sack(block(number)));
        assert!(!segment.set_counters(&ByteCounters::new(true, &FIELDS[..1])));
        assert_eq!(segment.counters(), None);
        assert!(segment.set_counters(&ByteCounters::new(true, &[])));
        assert_eq!(
            segment.counters().map(|known| known.values().len()),
            Some(0)
        );
    }

    #[test]
    fn four_blocks_leave_room_for_no_field() {
        let mut segment = Segment::new(1, 2, flags::ACK);
        (0..5).for_each(|number| segment.push_sack(block(number)));
        let all = [0, 1, 2, 3].map(block);
        assert_eq!(*segment.sack(), all);
        assert_eq!((segment.counters(), segment.header_len()), (None, 20 + 36));
        assert!(!segment.set_counters(&ByteCounters::new(true, &FIELDS[..1])));
        assert_eq!((segment.counters(), *segment.sack() == all), (None, true));
        let none = ByteCounters::new(false, &[]);
        assert!(segment.set_counters(&none));
        assert_eq!(segment.counters(), Some(none));
        assert_eq!((*segment.sack() == all, segment.header_len()), (true, 56));
    }

    #[test]
    fn a_block_that_is_taken_back_makes_room_for_fields() {
        let mut segment = Segment::new(1, 2, flags::ACK);
        (0..4).for_each(|number| segment.push_sack(block(number)));
        segment.pop_sack();
        assert_eq!(*segment.sack(), [0, 1, 2].map(block));
        assert_eq!(segment.counters(), None);
        let counters = ByteCounters::new(true, &FIELDS);
        assert!(segment.set_counters(&counters));
        assert_eq!(segment.counters(), Some(counters));
        assert_eq!(segment.header_len(), 20 + 28 + 12);
    }

    #[test]
    fn a_syn_keeps_its_options_beside_the_counters() {
        let mut syn = Segment::new(1, 2, flags::SYN | flags::ACK);
        syn.set_mss(1460);
        syn.set_wscale(7);
        syn.options |= option::SACK_PERMITTED;
        assert_eq!(syn.counters(), None);
        assert!(!syn.set_counters(&ByteCounters::new(true, &[])));
        let len = syn.header_len();
        let counters = ByteCounters::new(true, &FIELDS);
        assert!(syn.set_counters(&counters));
        syn.set_ace(5);
        assert_eq!(syn.counters(), Some(counters));
        assert_eq!((syn.mss(), syn.wscale()), (Some(1460), Some(7)));
        assert!(syn.is_option_of_syn(option::SACK_PERMITTED));
        assert_eq!(syn.header_len(), len + 12);
        assert_eq!(syn.ace(), 5);
    }

    #[test]
    fn the_option_takes_the_place_of_padding_where_it_can() {
        let added = |fields, blocks| counters_len(fields, blocks);
        assert_eq!(
            [0, 1, 2, 3].map(|fields| added(fields, false)),
            [4, 8, 8, 12]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|fields| added(fields, true)),
            [0, 4, 8, 12]
        );
    }

    #[test]
    fn ace_is_made_of_three_flags() {
        for ace in 0..8 {
            let mut segment = Segment::new(1, 2, flags::ACK);
            segment.set_ace(7);
            segment.set_ace(ace);
            assert_eq!(segment.ace(), ace);
            assert!(segment.has(flags::ACK));
        }
    }
}
