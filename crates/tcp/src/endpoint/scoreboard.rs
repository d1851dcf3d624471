//! Segments that have been sent and are not yet cumulatively acknowledged, one record for each.
//!
//! Each record is in flight, SACKed, or lost; a lost one may have been sent again. The sums that
//! the sender asks for at every step are kept up to date with each change.

use std::collections::VecDeque;

use sluicegate_core::number::narrow;

/// [`Sent::flags`]: the receiver has it, out of order.
pub const SACKED: u8 = 1;
/// [`Sent::flags`]: deemed lost. Stays when it is sent again.
pub const LOST: u8 = 2;
/// [`Sent::flags`]: a retransmission of it is in flight.
pub const AGAIN: u8 = 4;
/// [`Sent::flags`]: was retransmitted at some time (Karn's rule).
pub const RETRANSMITTED: u8 = 8;
/// [`Sent::flags`]: its last sequence number is the FIN's.
pub const FIN: u8 = 16;

/// A stretch of sequence space that left as one segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sent {
    /// One past the last sequence number.
    pub end: u64,
    /// When it left last, in ns.
    pub sent_ns: u64,
    /// Sequence numbers in it, the FIN's included.
    pub len: u32,
    pub flags: u8,
}

const _: () = assert!(size_of::<Sent>() <= 32);

impl Sent {
    pub fn start(&self) -> u64 {
        self.end - u64::from(self.len)
    }

    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Bytes of data.
    pub fn payload(&self) -> u32 {
        self.len - u32::from(self.is(FIN))
    }

    fn waits(&self) -> bool {
        self.flags & (SACKED | LOST | AGAIN) == LOST
    }
}

/// The records in the order of sequence numbers, without gaps, and their sums in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scoreboard {
    records: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    again: u32,
    waiting: u32,
    /// Nothing below waits for retransmission.
    hint: u64,
    /// One past the highest sequence number ever SACKed.
    high_sacked: u64,
    /// Records that end at or below this have been judged by [`Scoreboard::lose_below_sacked`].
    judged: u64,
}

impl Scoreboard {
    pub fn sacked(&self) -> u64 {
        self.sacked.into()
    }

    /// Bytes that are lost, sent again or not.
    pub fn lost(&self) -> u64 {
        self.lost.into()
    }

    /// Bytes that are lost and not yet sent again.
    pub fn waiting(&self) -> u64 {
        self.waiting.into()
    }

    /// Bytes whose retransmission is in flight.
    pub fn again(&self) -> u64 {
        self.again.into()
    }

    /// Bytes that have left the network, or were never in it: what `pipe` (RFC 6675) is short of
    /// snd_nxt - snd_una. Negative when data is in flight twice.
    pub fn absent(&self) -> i64 {
        i64::from(self.sacked) + i64::from(self.lost) - i64::from(self.again)
    }

    /// Nothing is SACKed, lost or sent again.
    pub fn is_plain(&self) -> bool {
        self.sacked | self.lost | self.again == 0
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn get(&self, index: usize) -> &Sent {
        &self.records[index]
    }

    pub fn front(&self) -> Option<&Sent> {
        self.records.front()
    }

    #[inline]
    pub fn push(&mut self, record: Sent) {
        self.records.push_back(record);
    }

    /// Moves a record's bytes between the sums.
    fn account(&mut self, len: u32, from: u8, to: u8) {
        let waits = |flags: u8| flags & (SACKED | LOST | AGAIN) == LOST;
        for (sum, was, is) in [
            (&mut self.sacked, from & SACKED != 0, to & SACKED != 0),
            (&mut self.lost, from & LOST != 0, to & LOST != 0),
            (&mut self.again, from & AGAIN != 0, to & AGAIN != 0),
            (&mut self.waiting, waits(from), waits(to)),
        ] {
            match (was, is) {
                (true, false) => *sum -= len,
                (false, true) => *sum += len,
                _ => (),
            }
        }
    }

    fn set(&mut self, index: usize, flags: u8) {
        let record = self.records[index];
        self.account(record.len, record.flags, flags);
        self.records[index].flags = flags;
    }

    /// Index of the record that holds `seq`, or the number of records.
    pub fn find(&self, seq: u64) -> usize {
        match self.records.front() {
            None => 0,
            Some(front) if seq < front.end => 0,
            _ => self.records.partition_point(|record| record.end <= seq),
        }
    }

    /// Cuts a record in two at `at`, which lies inside it.
    pub fn split(&mut self, index: usize, at: u64) {
        let whole = self.records[index];
        debug_assert!(whole.start() < at && at < whole.end);
        let right = Sent {
            len: narrow::<u32>(whole.end - at),
            ..whole
        };
        self.records[index] = Sent {
            end: at,
            len: whole.len - right.len,
            flags: whole.flags & !FIN,
            ..whole
        };
        self.records.insert(index + 1, right);
    }

    /// How many records end where `una` does or before, if one ends there and each of them left
    /// once and was never SACKed or lost.
    #[inline(always)]
    pub fn plain_up_to(&self, una: u64) -> Option<usize> {
        let first = self.records.front()?;
        match first.end == una {
            true => (!first.is(!FIN)).then_some(1),
            false => self.plain_beyond_first(una),
        }
    }

    #[inline(never)]
    fn plain_beyond_first(&self, una: u64) -> Option<usize> {
        let plain = |record: &Sent| !record.is(!FIN) && record.end <= una;
        let count = self
            .records
            .iter()
            .take_while(|record| plain(record))
            .count();
        let last = self.records.get(count.wrapping_sub(1))?;
        (last.end == una).then_some(count)
    }

    /// Takes the first record away.
    #[inline]
    pub fn pop(&mut self) -> Option<Sent> {
        self.records.pop_front()
    }

    /// Removes what lies below `una` and shows each removed record, whole or in part.
    pub fn acknowledge(&mut self, una: u64, mut removed: impl FnMut(&Sent)) {
        while let Some(front) = self.records.front_mut() {
            if front.end > una {
                let gone = narrow::<u32>(una.saturating_sub(front.start()));
                if gone > 0 {
                    let part = Sent {
                        end: una,
                        len: gone,
                        flags: front.flags & !FIN,
                        ..*front
                    };
                    front.len -= gone;
                    if part.flags != 0 {
                        self.account(gone, part.flags, 0);
                    }
                    removed(&part);
                }
                return;
            }
            let record = *front;
            if record.flags & (SACKED | LOST | AGAIN) != 0 {
                self.account(record.len, record.flags, 0);
            }
            self.records.pop_front();
            removed(&record);
        }
    }

    /// Marks `left..right` as SACKed and shows each record that was not so before. As in Linux a
    /// segment counts as a whole, `mss` bytes or its end: a part of one says nothing.
    pub fn sack(&mut self, left: u64, right: u64, mss: u32, mut newly: impl FnMut(&Sent)) {
        let mss = u64::from(mss.max(1));
        let mut index = self.find(left);
        while index < self.records.len() {
            let record = self.records[index];
            if record.start() >= right {
                break;
            }
            if record.is(SACKED) {
                index += 1;
                continue;
            }
            if record.start() < left {
                let at = record.start() + (left - record.start()).next_multiple_of(mss);
                if at < record.end {
                    self.split(index, at);
                }
                index += 1;
                continue;
            }
            if record.end > right {
                let whole = (right - record.start()) / mss * mss;
                if whole == 0 {
                    break;
                }
                self.split(index, record.start() + whole);
            }
            let record = self.records[index];
            newly(&record);
            self.set(index, record.flags & !(LOST | AGAIN) | SACKED);
            index += 1;
        }
        self.high_sacked = self.high_sacked.max(right);
    }

    /// Forgets what was SACKed: the receiver took it back (RFC 2018 section 8).
    pub fn forget_sacked(&mut self) {
        for index in 0..self.records.len() {
            self.set(index, self.records[index].flags & !SACKED);
        }
        self.high_sacked = 0;
        self.judged = 0;
    }

    /// Deems a record lost; a retransmission of it as well.
    pub fn lose(&mut self, index: usize) {
        let record = self.records[index];
        self.set(index, record.flags & !AGAIN | LOST);
        self.hint = self.hint.min(record.start());
    }

    /// Nothing is lost after all: what was deemed so is in flight.
    pub fn forgive(&mut self) {
        for index in 0..self.records.len() {
            self.set(index, self.records[index].flags & !LOST);
        }
        self.judged = 0;
    }

    /// Everything that is not SACKed is lost.
    pub fn lose_all(&mut self) {
        for index in 0..self.records.len() {
            if !self.records[index].is(SACKED) {
                self.lose(index);
            }
        }
    }

    /// Deems lost what left as one segment of more than `bytes`.
    pub fn lose_larger(&mut self, bytes: u32) {
        for index in 0..self.records.len() {
            let record = self.records[index];
            if record.payload() > bytes && !record.is(SACKED) {
                self.lose(index);
            }
        }
    }

    /// Deems the first `bytes` lost unless they are SACKed, lost or sent again already.
    pub fn lose_first(&mut self, bytes: u32) {
        let Some(front) = self.records.front().copied() else {
            return;
        };
        if front.is(SACKED | LOST | AGAIN) {
            return;
        }
        if front.len > bytes {
            self.split(0, front.start() + u64::from(bytes));
        }
        self.lose(0);
    }

    /// RFC 6675's IsLost for every record at once: deems lost what has `threshold` or more bytes
    /// SACKed above it, or three SACKed stretches. Records already sent again stay as they are.
    pub fn lose_below_sacked(&mut self, threshold: u64) {
        let mut index = self.find(self.high_sacked);
        let (mut bytes, mut stretches, mut inside) = (0, 0, false);
        let mut verdict = None;
        while index > 0 {
            index -= 1;
            let record = self.records[index];
            if record.is(SACKED) {
                bytes += u64::from(record.len);
                stretches += u32::from(!inside);
                inside = true;
                continue;
            }
            inside = false;
            if bytes < threshold && stretches < 3 {
                continue;
            }
            // Records below an older verdict have been judged.
            if record.end <= self.judged {
                break;
            }
            verdict = verdict.or(Some(record.end));
            if !record.is(LOST | AGAIN) {
                self.lose(index);
            }
        }
        self.judged = self.judged.max(verdict.unwrap_or(0));
    }

    /// RACK's verdict (RFC 8985 6.2 step 5): what was sent before the segment `(sent_ns, end)`,
    /// which has been delivered, is lost when it is older than `patience`. Returns how long to wait
    /// for the youngest of the others, 0 = no other.
    pub fn lose_late(&mut self, sent_ns: u64, end: u64, patience: u64, now_ns: u64) -> u64 {
        let mut wait = 0;
        for index in 0..self.records.len() {
            let record = self.records[index];
            let before = (record.sent_ns, record.end) < (sent_ns, end);
            if !before && !record.is(RETRANSMITTED) {
                break; // the rest first left later still
            }
            if !before || record.is(SACKED) || record.waits() {
                continue;
            }
            let due = record.sent_ns + patience;
            if due <= now_ns {
                self.lose(index);
            } else {
                wait = wait.max(due - now_ns);
            }
        }
        wait
    }

    /// The first record that waits for retransmission.
    pub fn next_waiting(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let from = self.find(self.hint);
        (from..self.records.len()).find(|&index| self.records[index].waits())
    }

    /// The first record below the highest SACKed one that is neither SACKed nor sent again
    /// (RFC 6675 NextSeg rule 3).
    pub fn next_hole(&self) -> Option<usize> {
        let end = self.find(self.high_sacked);
        (0..end).find(|&index| !self.records[index].is(SACKED | AGAIN))
    }

    /// The last record that is not SACKed (RFC 6675 rescue, RFC 8985 tail loss probe).
    pub fn last_unsacked(&self) -> Option<usize> {
        self.records.iter().rposition(|record| !record.is(SACKED))
    }

    /// A record leaves again.
    pub fn sent_again(&mut self, index: usize, now_ns: u64) {
        let record = self.records[index];
        self.set(index, record.flags | AGAIN | RETRANSMITTED);
        self.records[index].sent_ns = now_ns;
        if record.waits() {
            self.hint = record.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M: u64 = 100;

    /// `count` segments of 100 bytes from offset 0, sent one per ns.
    fn board(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for index in 0..count {
            board.push(Sent {
                end: (index + 1) * M,
                sent_ns: index,
                len: M as u32,
                flags: 0,
            });
        }
        board
    }

    /// Offsets of the records that have all of `flags`.
    fn with(board: &Scoreboard, flags: u8) -> Vec<u64> {
        board
            .records
            .iter()
            .filter(|record| record.flags & flags == flags)
            .map(Sent::start)
            .collect()
    }

    fn check(board: &Scoreboard) {
        let sum = |test: fn(&Sent) -> bool| -> u32 {
            let of = |record: &&Sent| test(record);
            let records = board.records.iter().filter(of);
            records.map(|record| record.len).sum()
        };
        assert_eq!(board.sacked, sum(|record| record.is(SACKED)));
        assert_eq!(board.lost, sum(|record| record.is(LOST)));
        assert_eq!(board.again, sum(|record| record.is(AGAIN)));
        assert_eq!(board.waiting, sum(Sent::waits));
        let waiting = board.records.iter().position(Sent::waits);
        assert_eq!(board.next_waiting(), waiting);
        for pair in board.records.iter().collect::<Vec<_>>().windows(2) {
            assert_eq!(pair[0].end, pair[1].start());
        }
        assert!(board.records.iter().all(|record| record.len > 0));
        assert!(
            board
                .records
                .iter()
                .all(|record| record.flags & (SACKED | LOST) != SACKED | LOST)
        );
    }

    #[test]
    fn the_threshold_is_more_than_two_segments_or_three_stretches() {
        let mut above = board(10);
        above.sack(2 * M, 4 * M, 1, |_| ());
        above.lose_below_sacked(2 * M + 1);
        assert_eq!(with(&above, LOST), []);
        above.sack(4 * M, 4 * M + 1, 1, |_| ());
        above.lose_below_sacked(2 * M + 1);
        assert_eq!(with(&above, LOST), [0, M]);
        check(&above);

        let mut stretches = board(10);
        for left in [2, 4, 6] {
            stretches.sack(left * M, left * M + 10, 1, |_| ());
        }
        stretches.lose_below_sacked(1000);
        assert_eq!(with(&stretches, LOST), [0, M]);
        check(&stretches);
    }

    #[test]
    fn the_verdict_of_time_spares_what_left_later() {
        let mut board = board(6);
        board.sack(3 * M, 4 * M, 1, |_| ());
        // Segment 3 left at 3 and is delivered; patience 10.
        assert_eq!(board.lose_late(3, 4 * M, 10, 11), 1, "2 is due at 12");
        assert_eq!(with(&board, LOST), [0, M]);
        board.sent_again(0, 20);
        assert_eq!(board.lose_late(3, 4 * M, 10, 12), 0);
        assert_eq!(with(&board, LOST), [0, M, 2 * M]);
        // The retransmission at 20 is overtaken by one at 21.
        board.sent_again(1, 21);
        assert_eq!(board.lose_late(21, 2 * M, 10, 29), 1);
        assert_eq!(with(&board, LOST | AGAIN), [0, M]);
        assert_eq!(with(&board, LOST), [0, M, 2 * M, 4 * M, 5 * M]);
        assert_eq!(board.lose_late(21, 2 * M, 10, 30), 0);
        assert_eq!(board.get(0).flags & (LOST | AGAIN), LOST);
        check(&board);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Acknowledge(u64),
        Sack(u64, u64),
        Lose(u64),
        LoseFirst(u64),
        LoseAll,
        LoseBelow,
        LoseLate(u64),
        Again,
        Forget,
        Forgive,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1..500_u64).prop_map(Step::Push),
            2 => (0..400_u64).prop_map(Step::Acknowledge),
            4 => (0..3000_u64, 1..500_u64).prop_map(|(left, len)| Step::Sack(left, len)),
            1 => (0..30_u64).prop_map(Step::Lose),
            1 => (1..300_u64).prop_map(Step::LoseFirst),
            1 => Just(Step::LoseAll),
            3 => Just(Step::LoseBelow),
            2 => (0..60_u64).prop_map(Step::LoseLate),
            6 => Just(Step::Again),
            1 => Just(Step::Forget),
            1 => Just(Step::Forgive),
        ]
    }

    /// RFC 6675 IsLost for one record, by its words.
    fn is_lost(board: &Scoreboard, index: usize, threshold: u64) -> bool {
        let above = board.records.iter().skip(index + 1);
        let bytes: u64 = above
            .clone()
            .filter(|record| record.is(SACKED))
            .map(|record| u64::from(record.len))
            .sum();
        let flags: Vec<bool> = above.map(|record| record.is(SACKED)).collect();
        let stretches = (0..flags.len())
            .filter(|&at| flags[at] && (at == 0 || !flags[at - 1]))
            .count();
        bytes >= threshold || stretches >= 3
    }

    proptest! {
        #[test]
        fn sums_hold_and_verdicts_are_those_of_the_rfc(steps in prop::collection::vec(step(), 1..80)) {
            let mut board = Scoreboard::default();
            let (mut una, mut nxt, mut now) = (1 << 32, 1_u64 << 32, 0);
            for step in steps {
                now += 1;
                match step {
                    Step::Push(len) => {
                        nxt += len;
                        board.push(Sent { end: nxt, sent_ns: now, len: len as u32, flags: 0 });
                    }
                    Step::Acknowledge(bytes) => {
                        una = (una + bytes).min(nxt);
                        let mut gone = 0;
                        board.acknowledge(una, |record| gone += u64::from(record.len));
                        prop_assert!(gone <= bytes);
                    }
                    Step::Sack(left, len) => {
                        let left = una + left;
                        let right = (left + len).min(nxt);
                        if left < right {
                            let before = board.sacked();
                            let mut newly = 0;
                            board.sack(left, right, 1, |record| newly += u64::from(record.len));
                            prop_assert_eq!(board.sacked(), before + newly);
                        }
                    }
                    Step::Lose(index) => {
                        let index = index as usize;
                        if index < board.records.len() && !board.get(index).is(SACKED) {
                            board.lose(index);
                        }
                    }
                    Step::LoseFirst(bytes) => board.lose_first(bytes as u32),
                    Step::LoseAll => board.lose_all(),
                    Step::LoseBelow => {
                        board.lose_below_sacked(201);
                        for index in 0..board.records.len() {
                            let record = *board.get(index);
                            if !record.is(SACKED | LOST | AGAIN) {
                                prop_assert!(!is_lost(&board, index, 201));
                            }
                        }
                    }
                    Step::LoseLate(patience) => {
                        board.lose_late(now - 1, nxt, patience, now);
                    }
                    Step::Again => {
                        if let Some(index) = board.next_waiting() {
                            board.sent_again(index, now);
                        }
                    }
                    Step::Forget => board.forget_sacked(),
                    Step::Forgive => {
                        board.forgive();
                        prop_assert_eq!((board.lost, board.waiting()), (0, 0));
                    }
                }
                check(&board);
                prop_assert_eq!(board.front().map_or(nxt, Sent::start), una);
            }
        }
    }
}
