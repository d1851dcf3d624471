//! What happened in a run of a script, by line, so that two runs can be compared.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{Problem, host::Sent, model::Expected, time::seconds};

/// What leaves so shortly before the last event belongs to it, on a machine that others use.
const LAST_EVENT_NS: u64 = 30_000_000;

/// What happened at one line.
#[derive(Clone, Debug)]
pub enum What {
    /// The segment that left where the script has one; `None`: none did in time.
    Left {
        sent: Option<Box<Sent>>,
        expected: Box<Expected>,
        /// How long after the last event.
        after_ns: u64,
    },
    /// A call: what it returned, and after how long; `None`: it did not.
    Returned {
        name: String,
        returned: Option<(String, u64)>,
    },
    /// Code is true.
    Holds,
    /// Code is not true, a command failed, or a call gave something else back.
    Wrong(String),
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    lines: BTreeMap<usize, What>,
    /// Segments that left before the last event and that no line expects.
    extra: Vec<Sent>,
    /// The run ended before this line, because a call did not return.
    pub ended: Option<usize>,
}

impl What {
    pub fn left(sent: Option<Sent>, expected: &Expected, since_ns: u64) -> Self {
        let after_ns = sent
            .as_ref()
            .map_or(0, |sent| sent.at_ns.saturating_sub(since_ns));
        Self::Left {
            sent: sent.map(Box::new),
            expected: Box::new(expected.clone()),
            after_ns,
        }
    }

    /// In words.
    fn told(&self) -> String {
        match self {
            Self::Left { sent: None, .. } => "nothing".to_owned(),
            Self::Left {
                sent: Some(sent),
                after_ns,
                expected,
            } => {
                let packet = sent.packet.shown(expected.window.is_some());
                format!("> {packet} after {}", seconds(*after_ns))
            }
            Self::Returned { name, returned } => match returned {
                None => format!("{name} does not return"),
                Some((answer, took_ns)) => format!("{name} = {answer} after {}", seconds(*took_ns)),
            },
            Self::Holds => "as asserted".to_owned(),
            Self::Wrong(text) => text.clone(),
        }
    }

    /// What of `self` is not so in `other`, as far as the script cares; empty: nothing.
    fn differences(&self, other: &Self, slack: impl Fn(u64) -> u64) -> Vec<&'static str> {
        let timed = |left: u64, right: u64| left.abs_diff(right) > slack(left.max(right));
        match (self, other) {
            (
                Self::Left {
                    sent: left,
                    expected,
                    after_ns: first_ns,
                },
                Self::Left {
                    sent: right,
                    after_ns: second_ns,
                    ..
                },
            ) => match (left, right) {
                (None, None) => Vec::new(),
                (Some(left), Some(right)) => {
                    let mut wrong = expected.unlike(left, right);
                    if timed(*first_ns, *second_ns) {
                        wrong.push("time");
                    }
                    wrong
                }
                _ => vec!["one left"],
            },
            (
                Self::Returned { returned: left, .. },
                Self::Returned {
                    returned: right, ..
                },
            ) => match (left, right) {
                (None, None) => Vec::new(),
                (Some((left, _)), Some((right, _))) if left != right => vec!["result"],
                (Some((_, left)), Some((_, right))) if !timed(*left, *right) => Vec::new(),
                (Some(_), Some(_)) => vec!["time"],
                _ => vec!["one returned"],
            },
            (Self::Holds, Self::Holds) => Vec::new(),
            (Self::Wrong(left), Self::Wrong(right)) if left == right => Vec::new(),
            _ => vec!["result"],
        }
    }
}

impl Record {
    pub fn note(&mut self, line: usize, what: What) {
        self.lines.insert(line, what);
    }

    /// A segment that no line expects; one that left with the last event, or later, belongs to what
    /// the script does not look at.
    pub fn note_extra(&mut self, sent: Sent, last_ns: u64) {
        if sent.at_ns.saturating_add(LAST_EVENT_NS) < last_ns {
            self.extra.push(sent);
        }
    }

    /// The first line at which `self`, ours, is not like the `kernel`'s. `slack` is how far a time
    /// may be off, after how long.
    pub fn first_difference(
        &self,
        kernel: &Self,
        slack: impl Fn(u64) -> u64 + Copy,
    ) -> Option<Problem> {
        let lines: Vec<usize> = self
            .lines
            .keys()
            .chain(kernel.lines.keys())
            .copied()
            .collect();
        let lines = lines.into_iter().collect::<std::collections::BTreeSet<_>>();
        for line in lines {
            let (ours, theirs) = (self.lines.get(&line), kernel.lines.get(&line));
            if kernel.ended.is_some_and(|end| line >= end) {
                return None;
            }
            let wrong = match (ours, theirs) {
                (Some(ours), Some(theirs)) => theirs.differences(ours, slack),
                _ => vec!["result"],
            };
            if wrong.is_empty() {
                continue;
            }
            let told = |what: Option<&What>| what.map_or("nothing wrong".to_owned(), What::told);
            let mut text = format!(
                "kernel: {}; ours: {} ({})",
                told(theirs),
                told(ours),
                wrong.join(", ")
            );
            if let Some(What::Left { expected, .. }) = theirs.or(ours) {
                let _ = write!(text, "; the script: > {}", expected.describe());
            }
            return Some(Problem { line, text });
        }
        self.difference_of_extra(kernel)
    }

    /// Bytes of data that no line expects, and segments without data. How segmentation offload cuts
    /// data does not matter.
    fn extent_of_extra(&self) -> (u64, usize) {
        let lens = || self.extra.iter().map(|sent| u64::from(sent.packet.len));
        (lens().sum(), lens().filter(|len| *len == 0).count())
    }

    fn difference_of_extra(&self, kernel: &Self) -> Option<Problem> {
        if kernel.ended.is_some() || self.extent_of_extra() == kernel.extent_of_extra() {
            return None;
        }
        let line = self.lines.keys().next_back().copied().unwrap_or(1);
        let told = |extra: &[Sent]| match extra.first() {
            None => "none".to_owned(),
            Some(first) => format!(
                "{}, the first > {} at {}",
                extra.len(),
                first.packet,
                seconds(first.at_ns)
            ),
        };
        let (theirs, ours) = (told(&kernel.extra), told(&self.extra));
        let text =
            format!("segments that the script does not have: kernel: {theirs}; ours: {ours}");
        Some(Problem { line, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Action, packet::Packet, parser};

    fn expected(line: &str) -> Expected {
        let script = parser::parse(line, &[]).expect("parses");
        match &script.events[0].action {
            Action::Leaves(expected) => expected.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn sent(line: &str, at_ns: u64) -> Sent {
        let packet: Packet = expected(line).packet;
        Sent {
            at_ns,
            packet,
            number: 1,
            ttl: 64,
            tos: 0,
        }
    }

    fn left(script: &str, segment: &str, at_ns: u64) -> Record {
        let mut record = Record::default();
        let sent = sent(segment, at_ns);
        record.note(7, What::left(Some(sent), &expected(script), 0));
        record
    }

    fn returned(answer: &str, took_ns: u64) -> Record {
        let mut record = Record::default();
        let name = "read".to_owned();
        let returned = Some((answer.to_owned(), took_ns));
        record.note(7, What::Returned { name, returned });
        record
    }

    fn difference(ours: &Record, kernel: &Record) -> Option<String> {
        let found = ours.first_difference(kernel, |after_ns| 10 + after_ns / 8)?;
        Some(found.to_string())
    }

    #[test]
    fn segments_differ_in_what_the_script_cares_for() {
        let script = "0 > . 1:11(10) ack 1";
        let same = left(script, script, 100);
        assert_eq!(
            difference(&same, &left(script, "0 > P. 1:11(10) ack 1 win 9", 105)),
            None
        );
        let found = difference(&same, &left(script, "0 > . 1:12(11) ack 1", 100));
        let found = found.expect("another length");
        assert!(
            found.starts_with("7: kernel: > . 1:12(11) ack 1 after"),
            "{found}"
        );
        assert!(
            found.contains("(length); the script: > . 1:11(10) ack 1"),
            "{found}"
        );
        let late = difference(&same, &left(script, script, 1_000)).expect("another time");
        assert!(late.contains("(time)"), "{late}");
        let window = "0 > . 1:11(10) ack 1 win 5";
        let other = left(window, "0 > . 1:11(10) ack 1 win 6", 100);
        assert!(
            difference(&left(window, window, 100), &other).is_some_and(|it| it.contains("win"))
        );
        let mut nothing = Record::default();
        nothing.note(7, What::left(None, &expected(script), 0));
        let found = difference(&nothing, &same).expect("one left");
        assert!(found.contains("ours: nothing (one left)"), "{found}");
    }

    #[test]
    fn results_differ_and_so_do_their_times() {
        assert_eq!(difference(&returned("5", 100), &returned("5", 110)), None);
        let found = difference(&returned("5", 100), &returned("-1 EAGAIN", 100));
        assert!(found.is_some_and(|it| it.contains("kernel: read = -1 EAGAIN")));
        let found = difference(&returned("5", 100), &returned("5", 900));
        assert!(found.is_some_and(|it| it.contains("(time)")));
        let mut wrong = Record::default();
        wrong.note(7, What::Wrong("expected x".to_owned()));
        assert_eq!(difference(&wrong, &wrong), None);
        assert!(difference(&wrong, &returned("5", 1)).is_some());
        // A command that has failed on one side alone.
        let found = difference(&Record::default(), &wrong).expect("differs");
        assert!(
            found.contains("kernel: expected x; ours: nothing wrong"),
            "{found}"
        );
        // Behind the end of a run there is nothing to compare.
        wrong.ended = Some(7);
        assert_eq!(difference(&returned("5", 1), &wrong), None);
    }

    #[test]
    fn segments_that_no_line_expects_are_counted_but_for_their_size() {
        let mut kernel = Record::default();
        let late_ns = 2 * LAST_EVENT_NS;
        kernel.note_extra(sent("0 > R 1:1(0)", 5), late_ns);
        kernel.note_extra(sent("0 > R 1:1(0)", late_ns), late_ns);
        let found = difference(&Record::default(), &kernel).expect("differs");
        assert!(found.contains("kernel: 1, the first > R 1:1(0)"), "{found}");
        assert!(found.contains("ours: none"), "{found}");
        assert_eq!(difference(&kernel, &kernel), None);
        let (mut one, mut two, mut more) =
            (Record::default(), Record::default(), Record::default());
        one.note_extra(sent("0 > P. 1:2001(2000) ack 1", 5), late_ns);
        for record in [&mut two, &mut more] {
            record.note_extra(sent("0 > . 1:1001(1000) ack 1", 5), late_ns);
            record.note_extra(sent("0 > P. 1001:2001(1000) ack 1", 5), late_ns);
        }
        more.note_extra(sent("0 > P. 2001:3001(1000) ack 1", 5), late_ns);
        assert_eq!(difference(&one, &two), None);
        assert!(difference(&one, &more).is_some());
    }
}
