//! The error queue of a socket: what has become of data that was sent without a copy, and when data
//! left and was acknowledged.

use std::collections::VecDeque;

/// Something that `recvmsg(MSG_ERRQUEUE)` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The buffers of the calls from the first to the last number are free again.
    Copied { first: u32, last: u32 },
    /// The byte `key` passed a stage at this time.
    Stamp { stage: Stage, key: u32, at_ns: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Scheduled,
    Sent,
    Acked,
}

impl Stage {
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "SCM_TSTAMP_SCHED",
            Self::Sent => "SCM_TSTAMP_SND",
            Self::Acked => "SCM_TSTAMP_ACK",
        }
    }
}

/// A notice that waits for a sequence number; relative ones, where the number behind the last byte
/// counts.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Free { id: u32 },
    Stamp { stage: Stage, key: u32 },
}

/// One connection's.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    queue: VecDeque<Notice>,
    waiting: Vec<(u32, Wanted)>,
    calls: u32,
    /// The sequence number from which keys are counted.
    base: u32,
}

impl Notices {
    /// Keys count from `seq` on.
    pub fn count_from(&mut self, seq: u32) {
        self.base = seq;
    }

    /// Data up to `end` was sent without a copy.
    pub fn lent(&mut self, end: u32) {
        let id = self.calls;
        self.calls += 1;
        self.waiting.push((end, Wanted::Free { id }));
    }

    /// Data up to `end` is to be stamped at `stage`.
    pub fn stamp(&mut self, end: u32, stage: Stage) {
        let key = end.wrapping_sub(self.base).wrapping_sub(1);
        self.waiting.push((end, Wanted::Stamp { stage, key }));
    }

    /// Data up to `nxt` has left, and up to `una` is acknowledged. True if there is news.
    pub fn update(&mut self, una: u32, nxt: u32, at_ns: u64) -> bool {
        let before = self.waiting.len();
        let reached = |end: u32, seq: u32| seq.wrapping_sub(end) as i32 >= 0;
        let waiting = std::mem::take(&mut self.waiting);
        for (end, wanted) in waiting {
            match wanted {
                Wanted::Free { id } if reached(end, una) => self.free(id),
                Wanted::Stamp {
                    stage: Stage::Acked,
                    key,
                } if reached(end, una) => self.push(Stage::Acked, key, at_ns),
                Wanted::Stamp { stage, key } if stage != Stage::Acked && reached(end, nxt) => {
                    self.push(stage, key, at_ns);
                }
                _ => self.waiting.push((end, wanted)),
            }
        }
        before != self.waiting.len()
    }

    fn push(&mut self, stage: Stage, key: u32, at_ns: u64) {
        self.queue.push_back(Notice::Stamp { stage, key, at_ns });
    }

    /// Neighbours become one notice.
    fn free(&mut self, id: u32) {
        if let Some(Notice::Copied { last, .. }) = self.queue.back_mut() {
            if *last + 1 == id {
                *last = id;
                return;
            }
        }
        let (first, last) = (id, id);
        self.queue.push_back(Notice::Copied { first, last });
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn take(&mut self) -> Option<Notice> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_and_stamps_keep_their_order() {
        let mut notices = Notices::default();
        notices.count_from(1);
        notices.lent(101);
        notices.lent(201);
        notices.stamp(201, Stage::Scheduled);
        notices.stamp(201, Stage::Acked);
        assert!(!notices.update(1, 101, 5));
        assert!(notices.update(1, 201, 6));
        let stage = Stage::Scheduled;
        let key = 199;
        assert_eq!(
            notices.take(),
            Some(Notice::Stamp {
                stage,
                key,
                at_ns: 6
            })
        );
        assert!(notices.update(201, 201, 7));
        let (first, last) = (0, 1);
        assert_eq!(notices.take(), Some(Notice::Copied { first, last }));
        let stage = Stage::Acked;
        assert_eq!(
            notices.take(),
            Some(Notice::Stamp {
                stage,
                key,
                at_ns: 7
            })
        );
        assert!(notices.is_empty());
    }
}
