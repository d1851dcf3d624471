//! Data that has arrived out of order, and the SACK blocks that report it (RFC 2018, RFC 2883).

use sluicegate_core::number::narrow;

/// Sequence space from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    fn touches(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn covers(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// Blocks that are remembered by age; one more than fit beside timestamps and a D-SACK block.
const RECENT: usize = 4;

/// Disjoint ranges above rcv_nxt that do not touch, in order, and the most recent of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reassembly {
    ranges: Vec<Range>,
    /// Segments that each range consists of.
    segments: Vec<u32>,
    recent: [Range; RECENT],
    recent_count: u8,
    /// To be reported as D-SACK (RFC 2883).
    pub duplicate: Option<Range>,
}

impl Reassembly {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Where the last range ends; 0 without any.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// Segments that wait.
    pub fn segments(&self) -> u32 {
        self.segments.iter().sum()
    }

    /// The range that holds the newest arrival first.
    pub fn recent(&self) -> &[Range] {
        &self.recent[..usize::from(self.recent_count)]
    }

    /// The first stretch of `new` that is here already (RFC 2883 4.2: a block tells of one
    /// stretch).
    pub fn known(&self, new: Range) -> Option<Range> {
        let at = self.ranges.partition_point(|range| range.end <= new.start);
        let range = self.ranges.get(at)?;
        let (start, end) = (range.start.max(new.start), range.end.min(new.end));
        (start < end).then_some(Range { start, end })
    }

    /// Adds an arrival.
    pub fn insert(&mut self, new: Range) {
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let mut to = from;
        let mut merged = new;
        let mut covered = false;
        while let Some(range) = self.ranges.get(to) {
            if !range.touches(&merged) {
                break;
            }
            covered |= range.covers(&new);
            merged.start = merged.start.min(range.start);
            merged.end = merged.end.max(range.end);
            to += 1;
        }
        // Of a segment that is here already nothing is kept.
        let joined: u32 = self.segments[from..to].iter().sum();
        let segments = joined + u32::from(!covered);
        self.ranges.splice(from..to, [merged]);
        self.segments.splice(from..to, [segments]);
        self.remember(merged);
    }

    fn remember(&mut self, merged: Range) {
        let mut kept = [Range::default(); RECENT];
        kept[0] = merged;
        let mut count = 1;
        for range in self.recent() {
            if count < RECENT && !merged.covers(range) {
                kept[count] = *range;
                count += 1;
            }
        }
        self.recent = kept;
        self.recent_count = narrow::<u8>(count);
    }

    /// In-order data has come up to `next`: how far it is in order now.
    pub fn advance(&mut self, next: u64) -> u64 {
        let mut next = next;
        let mut gone = 0;
        for range in &self.ranges {
            if range.start > next {
                break;
            }
            next = next.max(range.end);
            gone += 1;
        }
        if gone > 0 {
            self.ranges.drain(..gone);
            self.segments.drain(..gone);
            let mut count = 0;
            for index in 0..usize::from(self.recent_count) {
                if self.recent[index].end > next {
                    self.recent[count] = self.recent[index];
                    count += 1;
                }
            }
            self.recent_count = narrow::<u8>(count);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn the_most_recent_block_comes_first_and_merges() {
        let mut queue = Reassembly::default();
        queue.insert(range(20, 30));
        queue.insert(range(40, 50));
        queue.insert(range(60, 70));
        assert_eq!(
            queue.recent(),
            [range(60, 70), range(40, 50), range(20, 30)]
        );
        queue.insert(range(30, 40));
        assert_eq!(queue.recent(), [range(20, 50), range(60, 70)]);
        queue.insert(range(25, 28));
        assert_eq!(queue.recent()[0], range(20, 50));
        assert_eq!(queue.known(range(22, 50)), Some(range(22, 50)));
        assert_eq!(queue.known(range(10, 70)), Some(range(20, 50)));
        assert_eq!(queue.known(range(45, 61)), Some(range(45, 50)));
        assert_eq!(queue.known(range(50, 60)), None);
        assert_eq!(queue.known(range(70, 80)), None);
    }

    #[test]
    fn advance_joins_what_has_become_contiguous() {
        let mut queue = Reassembly::default();
        queue.insert(range(20, 30));
        queue.insert(range(40, 50));
        assert_eq!(queue.advance(10), 10);
        assert_eq!(queue.advance(25), 30);
        assert_eq!(queue.recent(), [range(40, 50)]);
        assert_eq!(queue.advance(60), 60);
        assert!(queue.is_empty() && queue.recent().is_empty());
    }

    #[test]
    fn segments_are_counted_while_they_wait() {
        let mut queue = Reassembly::default();
        for start in [20, 30, 50, 30, 55] {
            queue.insert(range(start, start + 10));
        }
        // The second at 30 is here already, that at 55 only in part.
        assert_eq!(queue.ranges, [range(20, 40), range(50, 65)]);
        assert_eq!(queue.segments(), 4);
        queue.advance(20);
        assert_eq!(queue.segments(), 2);
        queue.advance(50);
        assert_eq!(queue.segments(), 0);
    }

    #[test]
    fn one_insert_may_bridge_many_ranges() {
        let mut queue = Reassembly::default();
        for start in [10, 30, 50, 70, 90] {
            queue.insert(range(start, start + 10));
        }
        queue.insert(range(15, 75));
        assert_eq!(queue.ranges, [range(10, 80), range(90, 100)]);
        assert_eq!(queue.recent(), [range(10, 80), range(90, 100)]);
    }
}
