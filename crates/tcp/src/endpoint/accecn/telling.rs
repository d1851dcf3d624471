//! The receiving half of AccECN: what has come, and when and how the peer is told.

use sluicegate_core::number::narrow;

use super::{index, initial};
use crate::{
    Segment,
    segment::{ByteCounters, Field, SACK_BLOCKS, counters_len, ecn, option},
};

/// ACE of a connection without marks (RFC 9768 3.2.1).
const ACE_INITIAL: u32 = 5;
/// Marks that wait in a delayed ACK at most (RFC 9768 3.2.2.5.1: fewer than 7).
const MOST_UNTOLD: u32 = 6;
/// An option leaves at least whenever a counter has grown by so many bytes (RFC 9768 3.2.3.3).
const OPTION_EVERY_SHIFT: u32 = 22;
/// Bytes of options in a header.
const OPTION_SPACE: u32 = 40;

/// Counters of what has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Segments with CE, with data or without.
    pub received_ce: u32,
    /// Of those, the ones that no ACE has told of.
    untold: u32,
    /// Bytes of data by [`index`].
    pub bytes: [u32; 3],
    /// Fields that the next option has at least, for the counters that have changed.
    least: usize,
    /// So many more segments have the option at any rate.
    demanded: u8,
    /// The codepoint of the last segment.
    pub codepoint: u8,
    /// When the option left last.
    told_ns: u64,
    /// The D-SACK block that left with the last option.
    pub told_beside: Option<(u32, u32)>,
}

impl Counts {
    /// The next `segments` at least have the option.
    pub fn demand(&mut self, segments: u8) {
        self.demanded = self.demanded.max(segments);
    }

    /// So many segments have come with CE.
    pub fn meet_ce(&mut self, packets: u32) {
        self.received_ce = self.received_ce.wrapping_add(packets);
        self.untold = self.untold.saturating_add(packets);
    }

    /// An acceptable segment of so many `packets`. True if the peer is to be told at once: of
    /// another codepoint than the last one, or of many marks.
    pub fn meet(&mut self, segment: &Segment, packets: u32) -> bool {
        let marked = segment.ecn == ecn::CE;
        if marked {
            self.meet_ce(packets);
        }
        if let (Some(field), true) = (field_of(segment.ecn), segment.payload > 0) {
            self.add(field, segment.payload.into());
        }
        let changed = segment.ecn != self.codepoint;
        self.codepoint = segment.ecn;
        if changed || marked {
            self.demand(2);
        }
        changed || self.untold >= MOST_UNTOLD
    }

    fn add(&mut self, field: Field, bytes: u32) {
        let counter = &mut self.bytes[index(field)];
        let before = *counter;
        *counter = before.wrapping_add(bytes);
        if (before ^ *counter) >> OPTION_EVERY_SHIFT != 0 {
            self.demand(1);
        }
        self.least = self.least.max(index(field) + 1);
    }

    /// ACE now; all marks are told of.
    pub fn ace(&mut self) -> u8 {
        self.untold = 0;
        (self.received_ce.wrapping_add(ACE_INITIAL) & 7) as u8
    }

    /// The option with so many fields.
    pub fn option(&self, fields: usize) -> ByteCounters {
        let all = [Field::Ect1, Field::Ce, Field::Ect0];
        let values = all.map(|field| self.bytes[index(field)].wrapping_add(initial(field)));
        ByteCounters::new(true, &values[..fields])
    }

    /// An option that is sent sparingly is due: for a change, or `beacon` times in a round trip.
    pub fn is_due(&self, now_ns: u64, srtt_ns: u64, beacon: u8) -> bool {
        let since_ns = now_ns.saturating_sub(self.told_ns);
        self.demanded > 0 || (beacon > 0 && since_ns.saturating_mul(beacon.into()) >= srtt_ns)
    }

    /// Adds the option if it fits, if need be in place of a SACK block.
    pub fn add_option(&mut self, now_ns: u64, segment: &mut Segment) {
        let (timestamps, blocks) = (
            segment.options & option::TIMESTAMPS != 0,
            segment.sack().len(),
        );
        let Some((fields, left)) = fit(timestamps, blocks, self.least) else {
            return;
        };
        let duplicate = duplicate_of(segment);
        for _ in left..blocks {
            segment.pop_sack();
        }
        if segment.set_counters(&self.option(fields)) {
            self.least = 0;
            self.told_ns = now_ns;
            self.told_beside = duplicate;
            self.demanded = self.demanded.saturating_sub(1);
        }
    }
}

/// The counter of a codepoint.
fn field_of(codepoint: u8) -> Option<Field> {
    match codepoint {
        ecn::ECT1 => Some(Field::Ect1),
        ecn::CE => Some(Field::Ce),
        ecn::ECT0 => Some(Field::Ect0),
        _ => None,
    }
}

/// The D-SACK block of a segment (RFC 2883): below its acknowledgement, or inside the next block.
fn duplicate_of(segment: &Segment) -> Option<(u32, u32)> {
    let reaches = |from: u32, to: u32| to.wrapping_sub(from) as i32 >= 0;
    let blocks = segment.sack();
    let [first, rest @ ..] = &*blocks else {
        return None;
    };
    let inside = rest
        .first()
        .is_some_and(|next| reaches(next.left, first.left) && reaches(first.right, next.right));
    (reaches(first.right, segment.ack) || inside).then_some((first.left, first.right))
}

/// How many fields of an option with `least` at least fit beside timestamps and `blocks` SACK
/// blocks, and how many of those stay. Two blocks always do, and all if no field is needed. Four
/// stay only without fields: Linux finds room for one, [`Segment`] does not.
fn fit(timestamps: bool, blocks: usize, least: usize) -> Option<(usize, usize)> {
    let fewest = if least > 0 { blocks.min(2) } else { blocks };
    let space = OPTION_SPACE - if timestamps { 12 } else { 0 };
    for left in (fewest..=blocks.min(SACK_BLOCKS)).rev() {
        let sack = if left > 0 {
            4 + 8 * narrow::<u32>(left)
        } else {
            0
        };
        let most = if left < SACK_BLOCKS { 3 } else { 0 };
        for fields in (least..=most).rev() {
            if sack + counters_len(narrow::<u32>(fields), left > 0) <= space {
                return Some((fields, left));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Block, flags};

    fn arrived(codepoint: u8, payload: u16) -> Segment {
        Segment {
            ecn: codepoint,
            payload,
            ..Segment::new(1, 1, flags::ACK)
        }
    }

    #[test]
    fn sack_blocks_and_fields_share_the_space() {
        // Without timestamps all fits; beside them a block or fields give way.
        assert_eq!(fit(false, 3, 3), Some((3, 3)));
        assert_eq!(fit(false, 4, 0), Some((0, 4)));
        assert_eq!(fit(false, 4, 1), Some((3, 3)));
        assert_eq!(fit(false, 4, 3), Some((3, 3)));
        assert_eq!(fit(true, 0, 0), Some((3, 0)));
        assert_eq!(fit(true, 1, 3), Some((3, 1)));
        assert_eq!(fit(true, 2, 2), Some((2, 2)));
        assert_eq!(fit(true, 3, 2), Some((2, 2)));
        assert_eq!(fit(true, 3, 1), Some((2, 2)));
        assert_eq!(fit(true, 3, 3), None);
        assert_eq!(fit(true, 3, 0), Some((0, 3)));
    }

    #[test]
    fn marks_count_as_segments_and_bytes_and_the_rest_as_bytes() {
        let mut counts = Counts::default();
        assert_eq!(counts.ace(), 5);
        counts.meet(&arrived(ecn::CE, 1000), 1);
        counts.meet(&arrived(ecn::CE, 0), 1);
        counts.meet(&arrived(ecn::ECT0, 300), 1);
        counts.meet(&arrived(ecn::ECT1, 20), 1);
        counts.meet(&arrived(ecn::NOT_ECT, 7), 1);
        assert_eq!(counts.ace(), 7);
        assert_eq!(counts.option(3).values(), [21, 1000, 301]);
        counts.meet(&arrived(ecn::CE, 1), 1);
        assert_eq!(counts.ace(), 0, "the counter wraps at 8");
    }

    #[test]
    fn another_codepoint_and_six_marks_are_told_at_once() {
        let mut counts = Counts::default();
        assert!(counts.meet(&arrived(ecn::CE, 10), 1), "changed");
        for _ in 2..6 {
            assert!(!counts.meet(&arrived(ecn::CE, 10), 1));
        }
        assert!(counts.meet(&arrived(ecn::CE, 10), 1), "the sixth");
        counts.ace();
        assert!(!counts.meet(&arrived(ecn::CE, 10), 1));
        assert!(counts.meet(&arrived(ecn::ECT0, 10), 1), "changed");
    }

    #[test]
    fn a_sparing_option_comes_for_changes_and_as_a_beacon() {
        let mut counts = Counts::default();
        assert!(!counts.is_due(100, 1000, 3));
        assert!(counts.is_due(334, 1000, 3), "a third of the round trip");
        assert!(!counts.is_due(1 << 40, 1000, 0), "no beacon");
        counts.meet(&arrived(ecn::ECT0, 10), 1);
        for _ in 0..2 {
            assert!(counts.is_due(0, 1000, 0), "two after a change");
            let mut segment = arrived(ecn::NOT_ECT, 0);
            counts.add_option(0, &mut segment);
            assert!(segment.counters().is_some());
        }
        assert!(!counts.is_due(0, 1000, 0));
        counts.meet(&arrived(ecn::ECT0, 1), 1);
        assert!(!counts.is_due(0, 1000, 0));
        counts.add(Field::Ect0, 1 << 22);
        assert!(counts.is_due(0, 1000, 0), "the counter has grown far");
    }

    #[test]
    fn the_last_duplicate_is_remembered_with_its_option() {
        let mut counts = Counts::default();
        let mut segment = Segment::new(1, 2001, flags::ACK);
        segment.push_sack(Block {
            left: 1001,
            right: 2001,
        });
        counts.add_option(0, &mut segment);
        assert_eq!(counts.told_beside, Some((1001, 2001)));
        counts.add_option(0, &mut Segment::new(1, 2001, flags::ACK));
        assert_eq!(counts.told_beside, None);
    }
}
