//! From the times of ranks to the results of parallel programs.

use std::{cmp::Reverse, collections::BTreeMap};

use sluicegate_program::{ANY_SOURCE, Kind, Program};

use super::{
    Report,
    plan::{OperationTimes, RankReport},
};
use crate::{
    experiment::{Experiment, Node, TrafficKind, Variant},
    results::{CriticalPath, CriticalStep, ProgramResult, Timeline},
    stats,
};

/// Operations that wait when a run is over, of those that are named.
const WAITS_MAX: usize = 10;

/// Steps of a critical path that are kept, the longest ones.
const STEPS_MAX: usize = 10;

/// Messages that were not taken and are named, of a rank and of all.
pub const UNTAKEN_MAX: usize = 5;

/// Columns of a timeline.
const COLUMNS: usize = 240;

/// Not yet.
const NEVER: u64 = u64::MAX;

/// Results and timelines of all programs, by traffic.
pub fn results(
    variant: &Variant,
    reports: &[Report],
) -> (BTreeMap<String, ProgramResult>, Vec<Timeline>) {
    let (mut results, mut timelines) = (BTreeMap::new(), Vec::new());
    for (index, traffic) in (0..).zip(&variant.traffic) {
        let TrafficKind::Program {
            program,
            tenants,
            file,
            ..
        } = &traffic.kind
        else {
            continue;
        };
        let all = reports.iter().flat_map(|report| &report.ranks);
        let mut own: Vec<&RankReport> = all.filter(|report| report.traffic == index).collect();
        own.sort_by_key(|report| report.rank);
        if own.len() != program.ranks.len() {
            continue; // a tenant's report is missing, which is an error of its own
        }
        let run = Run {
            program,
            reports: &own,
        };
        let result = ProgramResult {
            on_crossbar: variant.is_crossbar,
            host_rate_bps: host_rate_bps(variant),
            file: file.clone(),
            ..run.result()
        };
        results.insert(traffic.name.clone(), result);
        let names = tenants.iter().zip(0..);
        let names = names.map(|(tenant, rank)| format!("{rank} {}", variant.tenants[*tenant].name));
        timelines.extend(run.timeline(&traffic.name, names.collect()));
    }
    (results, timelines)
}

/// The rate of the fastest link of a host.
fn host_rate_bps(variant: &Variant) -> u64 {
    let is_host = |node: &Node| matches!(node, Node::Host(_));
    let links = variant.links.iter();
    let own = links.filter(|link| is_host(&link.a) || is_host(&link.b));
    own.map(|link| link.rate_bps).max().unwrap_or(0)
}

/// Lines for people on files that may mean something else than was read, each once.
pub fn notes_of_files(experiment: &Experiment) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let traffic = experiment.variants.iter().flat_map(|one| &one.traffic);
    for traffic in traffic {
        let TrafficKind::Program { program, file, .. } = &traffic.kind else {
            continue;
        };
        let file = file.as_deref().unwrap_or_default();
        for note in &program.notes {
            let line = format!("program {} ({file}): {note}", traffic.name);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

/// Lines for people on operations of a variant that waited at the end of the run, and on messages
/// that nothing took.
pub fn notes(variant: &str, results: &BTreeMap<String, ProgramResult>) -> Vec<String> {
    let lines = results.iter().flat_map(|(name, one)| {
        let unfinished = one.unfinished();
        let waits = unfinished
            .iter()
            .flat_map(|_| one.waits.iter().chain(&one.untaken).cloned());
        let lines: Vec<String> = unfinished.iter().cloned().chain(waits).collect();
        let file = one.file.as_ref();
        let file = file.map_or(String::new(), |file| format!(" ({file})"));
        lines
            .into_iter()
            .map(move |line| format!("{variant}: program {name}{file}: {line}"))
    });
    lines.collect()
}

struct Run<'a> {
    program: &'a Program,
    /// By rank.
    reports: &'a [&'a RankReport],
}

impl Run<'_> {
    fn times(&self, rank: u32, operation: u32) -> OperationTimes {
        let report = &self.reports[rank as usize];
        report
            .times
            .get(operation as usize)
            .copied()
            .unwrap_or_default()
    }

    /// When the first rank began.
    fn begin_ns(&self) -> u64 {
        let begins = self.reports.iter().filter_map(|report| report.begin_ns);
        begins.min().unwrap_or(0)
    }

    /// The operation that ended last, and when; `None` if there is none or one has not ended.
    fn last(&self) -> Option<(u64, u32, u32)> {
        let all = self.reports.iter().flat_map(|report| {
            let times = (0..).zip(&report.times);
            times.map(|(operation, times)| (times.end_ns, report.rank, operation))
        });
        // Of those that ended at once the first: the order is that of ranks and operations.
        let last = all.max_by_key(|(end_ns, rank, operation)| (*end_ns, !rank, !operation));
        last.filter(|(end_ns, ..)| *end_ns != NEVER)
    }

    fn result(&self) -> ProgramResult {
        let begin_ns = self.begin_ns();
        let ended = |report: &&&RankReport| -> u64 {
            let times = report.times.iter();
            times.filter(|times| times.end_ns != NEVER).count() as u64
        };
        let computing_s: Vec<f64> = (0..self.reports.len())
            .map(|rank| self.computing_ns(rank) as f64 / 1e9)
            .collect();
        let waiting_s: Vec<f64> = (self.reports.iter().zip(&computing_s))
            .map(|(report, computing_s)| {
                let own = report.begin_ns.unwrap_or(begin_ns);
                let ends = report.times.iter().map(|times| times.end_ns);
                let end_ns = ends.filter(|end| *end != NEVER).max().unwrap_or(own);
                (end_ns.saturating_sub(own) as f64 / 1e9 - computing_s).max(0.0)
            })
            .collect();
        let last = self.last();
        ProgramResult {
            ranks: self.reports.len() as u64,
            on_crossbar: false,
            host_rate_bps: 0,
            file: None,
            digest: format!("{:016x}", self.program.digest()),
            unreceived: self.reports.iter().map(|report| report.unreceived).sum(),
            operations: self.program.operations(),
            ended: self.reports.iter().map(|report| ended(&report)).sum(),
            completion_s: last.map(|(end_ns, ..)| (end_ns - begin_ns) as f64 / 1e9),
            phases_s: self.phases(),
            computing_s: stats::mean(&computing_s).unwrap_or(0.0),
            waiting_s: stats::mean(&waiting_s).unwrap_or(0.0),
            waiting_max_s: waiting_s.iter().copied().fold(0.0, f64::max),
            waiting_by_rank_s: waiting_s,
            critical_path: last.map(|(_, rank, operation)| self.critical(rank, operation)),
            waits: self.waits(),
            untaken: self.untaken(),
        }
    }

    /// Some of the messages that no receive has taken.
    fn untaken(&self) -> Vec<String> {
        let all = self.reports.iter().flat_map(|report| {
            let own = report.untaken.iter();
            own.map(|(source, operation)| (report.rank, *source, *operation))
        });
        let lines = all
            .take(UNTAKEN_MAX)
            .filter_map(|(rank, source, operation)| {
                let sender = self.program.ranks.get(source as usize)?;
                let what = sender.describe(operation);
                Some(format!("rank {rank} has not taken rank {source}'s {what}"))
            });
        lines.collect()
    }

    /// Time in which some CPU of a rank computed.
    fn computing_ns(&self, rank: usize) -> u64 {
        let operations = self.program.ranks[rank].operations().iter();
        let times = operations.zip(&self.reports[rank].times);
        let computed =
            times.filter(|(op, times)| op.kind == Kind::Compute && times.end_ns != NEVER);
        let mut spans: Vec<(u64, u64)> = computed
            .map(|(_, times)| (times.begin_ns, times.end_ns))
            .collect();
        spans.sort_unstable();
        let (mut sum, mut upto) = (0, 0);
        for (begin, end) in spans {
            sum += end.saturating_sub(begin.max(upto));
            upto = upto.max(end);
        }
        sum
    }

    /// From the first begin to the last end of each phase that has ended.
    fn phases(&self) -> BTreeMap<String, f64> {
        let mut spans = vec![(u64::MAX, 0); self.program.phases.len()];
        for (rank, report) in self.program.ranks.iter().zip(self.reports) {
            for (operation, times) in rank.operations().iter().zip(&report.times) {
                if let Some(span) = spans.get_mut(usize::from(operation.phase)) {
                    *span = (span.0.min(times.begin_ns), span.1.max(times.end_ns));
                }
            }
        }
        let named = self.program.phases.iter().zip(spans);
        let ended = named.filter(|(_, (begin, end))| *end != NEVER && begin <= end);
        let seconds = ended.map(|(name, (begin, end))| (name.clone(), (end - begin) as f64 / 1e9));
        seconds.collect()
    }

    /// Back from an operation to what it waited for last, to the begin of the program.
    fn critical(&self, mut rank: u32, mut operation: u32) -> CriticalPath {
        let mut path = CriticalPath::default();
        let (mut computing_ns, mut network_ns) = (0, 0);
        let mut longest = Longest::default();
        // When the one that waited for this operation began.
        let mut until_ns = u64::MAX;
        // Each step goes back in time or along a requirement: there are no more than operations.
        for _ in 0..=self.program.operations() {
            let times = self.times(rank, operation);
            let kind = self.program.ranks[rank as usize].operations()[operation as usize].kind;
            let (mut begin_ns, own) = (times.begin_ns, (rank, operation));
            // Otherwise only its begin was awaited, as `irequires` says.
            if times.end_ns <= until_ns {
                // A receive waited for its message, or a long message for its receive.
                if let Some((other, awaited)) = times.partner {
                    begin_ns = self.times(other, awaited).begin_ns;
                    (rank, operation) = (other, awaited);
                }
                let took_ns = times.end_ns.saturating_sub(begin_ns);
                longest.add(took_ns, begin_ns, own);
                if kind == Kind::Compute {
                    computing_ns += took_ns;
                    path.computations += 1;
                } else {
                    network_ns += took_ns;
                    path.messages += 1;
                }
            }
            until_ns = begin_ns;
            match self.times(rank, operation).after {
                u32::MAX => break,
                before => operation = before,
            }
        }
        path.computing_s = computing_ns as f64 / 1e9;
        path.network_s = network_ns as f64 / 1e9;
        path.longest = longest.0.iter().map(|step| self.step(*step)).collect();
        path
    }

    /// A step in words.
    fn step(&self, (Reverse(took_ns), begin_ns, (rank, operation)): Step) -> CriticalStep {
        CriticalStep {
            rank: rank.into(),
            operation: self.program.ranks[rank as usize].describe(operation),
            begin_s: begin_ns.saturating_sub(self.begin_ns()) as f64 / 1e9,
            took_s: took_ns as f64 / 1e9,
        }
    }

    /// Operations of a rank that have begun and wait.
    fn waiting(&self, rank: usize) -> impl Iterator<Item = u32> {
        let times = (0..).zip(&self.reports[rank].times);
        let waits = |times: &OperationTimes| times.begin_ns != NEVER && times.end_ns == NEVER;
        times
            .filter(move |(_, times)| waits(times))
            .map(|(number, _)| number)
    }

    /// The rank that the first waiting operation of each waits for, if it is one.
    fn awaited(&self) -> Vec<Option<usize>> {
        let of = |rank: usize| {
            let operations = self.program.ranks[rank].operations();
            let first = &operations[self.waiting(rank).next()? as usize];
            let peer = first.peer as usize;
            (first.kind != Kind::Compute && peer < self.reports.len()).then_some(peer)
        };
        (0..self.reports.len()).map(of).collect()
    }

    /// Operations that have begun and wait, or why a rank has not begun: first those of ranks at
    /// which most others wait, one behind the other.
    fn waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let weights = waiting_behind(&self.awaited());
        let mut order: Vec<usize> = (0..self.reports.len()).collect();
        order.sort_by_key(|rank| Reverse(weights[*rank]));
        for at in order {
            let (rank, report) = (&self.program.ranks[at], self.reports[at]);
            if report.begin_ns.is_none() && !report.is_connected && lines.len() < WAITS_MAX {
                lines.push(format!(
                    "rank {}: its connections do not all stand",
                    report.rank
                ));
            }
            for number in self.waiting(at) {
                if lines.len() >= WAITS_MAX {
                    lines.push("other operations wait as well".to_owned());
                    return lines;
                }
                let what = rank.describe(number);
                let operation = rank.operations()[number as usize];
                let state = match operation.kind {
                    Kind::Compute => {
                        let begin_ns = report.times[number as usize].begin_ns;
                        let until_ns = begin_ns.saturating_add(operation.size);
                        format!("computes until {} s of the run", until_ns as f64 / 1e9)
                    }
                    _ if operation.peer == ANY_SOURCE => "waits for any rank".to_owned(),
                    _ => format!("waits for rank {}", operation.peer),
                };
                lines.push(format!("rank {}: {what} {state}", report.rank));
            }
        }
        lines
    }

    /// How much of each column a rank computed.
    fn timeline(&self, name: &str, ranks: Vec<String>) -> Option<Timeline> {
        let begin_ns = self.begin_ns();
        let ends = self.reports.iter().flat_map(|report| &report.times);
        let end_ns = ends
            .map(|times| times.end_ns)
            .filter(|end| *end != NEVER)
            .max()?;
        let width_ns = ((end_ns - begin_ns) / COLUMNS as u64).max(1);
        let rows = self
            .program
            .ranks
            .iter()
            .zip(self.reports)
            .map(|(rank, report)| {
                let mut row = vec![0u64; COLUMNS];
                for (operation, times) in rank.operations().iter().zip(&report.times) {
                    if operation.kind == Kind::Compute && times.end_ns != NEVER {
                        fill(
                            &mut row,
                            (times.begin_ns - begin_ns, times.end_ns - begin_ns),
                            width_ns,
                        );
                    }
                }
                let part = |ns: u64| (ns as f64 / width_ns as f64).min(1.0);
                row.into_iter().map(part).collect()
            });
        Some(Timeline {
            name: name.to_owned(),
            begin_s: begin_ns as f64 / 1e9,
            column_s: width_ns as f64 / 1e9,
            computing: rows.collect(),
            ended_s: (self.reports.iter())
                .map(|report| {
                    let ends = report.times.iter().map(|times| times.end_ns);
                    ends.filter(|end| *end != NEVER).max().unwrap_or(begin_ns) as f64 / 1e9
                })
                .collect(),
            ranks,
        })
    }
}

/// How long it took in ns, when it began, and its rank and operation.
type Step = (Reverse<u64>, u64, (u32, u32));

/// The longest steps so far, the longest and of equal ones the first in front.
#[derive(Default)]
struct Longest(Vec<Step>);

impl Longest {
    fn add(&mut self, took_ns: u64, begin_ns: u64, operation: (u32, u32)) {
        let step = (Reverse(took_ns), begin_ns, operation);
        let at = self.0.partition_point(|other| *other < step);
        if at < STEPS_MAX {
            self.0.truncate(STEPS_MAX - 1);
            self.0.insert(at, step);
        }
    }
}

/// Of each rank, how many wait for it, directly or through others, where each waits for one at
/// most. Of those that wait for one another in a circle each has what all of them have.
fn waiting_behind(awaited: &[Option<usize>]) -> Vec<usize> {
    let mut weights = vec![0; awaited.len()];
    let mut direct = vec![0; awaited.len()];
    for peer in awaited.iter().flatten() {
        direct[*peer] += 1;
    }
    // From the ends of chains on, each rank once.
    let mut ends: Vec<usize> = (0..awaited.len())
        .filter(|rank| direct[*rank] == 0)
        .collect();
    while let Some(rank) = ends.pop() {
        if let Some(peer) = awaited[rank] {
            weights[peer] += weights[rank] + 1;
            direct[peer] -= 1;
            if direct[peer] == 0 {
                ends.push(peer);
            }
        }
    }
    // What is left are circles.
    for first in 0..awaited.len() {
        let mut circle = Vec::new();
        let mut at = first;
        while let (Some(peer), true) = (awaited[at], direct[at] > 0) {
            direct[at] = 0;
            circle.push(at);
            at = peer;
        }
        let all: usize = circle.iter().map(|rank| weights[*rank] + 1).sum();
        circle.iter().for_each(|rank| weights[*rank] = all);
    }
    weights
}

/// Adds a span of time to the columns that it covers.
fn fill(row: &mut [u64], (begin, end): (u64, u64), width: u64) {
    let last = row.len() - 1;
    let first = (begin / width) as usize;
    for (at, column) in row.iter_mut().enumerate().skip(first.min(last)) {
        let (from, to) = (at as u64 * width, (at as u64 + 1) * width);
        if from >= end {
            break;
        }
        *column += end.min(to).saturating_sub(begin.max(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_program::goal;

    fn times(
        begin_ns: u64,
        end_ns: u64,
        after: u32,
        partner: Option<(u32, u32)>,
    ) -> OperationTimes {
        OperationTimes {
            begin_ns,
            end_ns,
            after,
            partner,
        }
    }

    fn report(rank: u32, times: Vec<OperationTimes>) -> RankReport {
        RankReport {
            traffic: 0,
            rank,
            begin_ns: Some(100),
            is_connected: true,
            times,
            unreceived: 0,
            untaken: Vec::new(),
        }
    }

    const TEXT: &str = "num_ranks 2\nrank 0 {\na: calc 50\nb: send 8b to 1\nb requires a\n}\n\
        rank 1 {\nc: recv 8b from 0\nd: calc 30\nd requires c\n}\n";

    #[test]
    fn the_critical_path_crosses_ranks() {
        let program = goal::read(TEXT.as_bytes()).unwrap();
        const NONE: u32 = u32::MAX;
        let (first, second) = (
            report(
                0,
                vec![times(100, 150, NONE, None), times(150, 151, 0, None)],
            ),
            report(
                1,
                vec![
                    times(100, 170, NONE, Some((0, 1))),
                    times(170, 200, 0, None),
                ],
            ),
        );
        let run = Run {
            program: &program,
            reports: &[&first, &second],
        };
        let result = run.result();
        assert_eq!(result.completion_s, Some(100e-9));
        assert_eq!((result.operations, result.ended), (4, 4));
        let path = result.critical_path.unwrap();
        assert_eq!((path.messages, path.computations), (1, 2));
        assert_eq!((path.computing_s, path.network_s), (80e-9, 20e-9));
        let steps = path.longest.iter().map(|step| {
            let ns = |seconds: f64| (seconds * 1e9).round() as u64;
            (
                step.rank,
                &*step.operation,
                ns(step.begin_s),
                ns(step.took_s),
            )
        });
        assert_eq!(
            steps.collect::<Vec<_>>(),
            [
                (0, "computation of 50 ns at line 3", 0, 50),
                (1, "computation of 30 ns at line 9", 70, 30),
                (1, "receive of 8 B from rank 0, tag 0 at line 8", 50, 20),
            ]
        );
        assert!((result.waiting_by_rank_s[0] - 1e-9).abs() < 1e-15);
        assert!((result.waiting_by_rank_s[1] - 70e-9).abs() < 1e-15);
        assert!(result.waits.is_empty());
    }

    #[test]
    fn the_critical_path_of_a_long_message_leads_to_a_late_receive() {
        let text = "num_ranks 2\nrank 0 {\na: send 9000b to 1\nb: calc 10\nb requires a\n}\n\
            rank 1 {\nc: calc 100\nd: recv 9000b from 0\nd requires c\n}\n";
        let program = goal::read(text.as_bytes()).unwrap();
        const NONE: u32 = u32::MAX;
        let first = vec![
            times(100, 204, NONE, Some((1, 1))),
            times(204, 214, 0, None),
        ];
        let second = vec![times(100, 200, NONE, None), times(200, 206, 0, None)];
        let (first, second) = (report(0, first), report(1, second));
        let run = Run {
            program: &program,
            reports: &[&first, &second],
        };
        let path = run.result().critical_path.unwrap();
        assert_eq!((path.messages, path.computations), (1, 2));
        assert_eq!((path.computing_s, path.network_s), (110e-9, 4e-9));
    }

    #[test]
    fn what_waits_at_the_end_is_named() {
        let program = goal::read(TEXT.as_bytes()).unwrap();
        const NONE: u32 = u32::MAX;
        let first = report(
            0,
            vec![times(100, NEVER, NONE, None), OperationTimes::default()],
        );
        let second = report(
            1,
            vec![times(100, NEVER, NONE, None), OperationTimes::default()],
        );
        let run = Run {
            program: &program,
            reports: &[&first, &second],
        };
        let results = BTreeMap::from([("p".to_owned(), run.result())]);
        assert_eq!(results["p"].completion_s, None);
        assert_eq!(
            notes("base", &results),
            [
                "base: program p: 4 of 4 operations have not ended",
                "base: program p: rank 0: computation of 50 ns at line 3 computes until 0.00000015 s of the run",
                "base: program p: rank 1: receive of 8 B from rank 0, tag 0 at line 8 waits for rank 0",
            ]
        );
    }

    /// All operations have ended, and yet the program is not what it was meant to be.
    #[test]
    fn messages_that_nobody_took_are_noted() {
        let program = goal::read(TEXT.as_bytes()).unwrap();
        let done = |rank| report(rank, vec![times(100, 200, u32::MAX, None); 2]);
        let (first, mut second) = (done(0), done(1));
        second.unreceived = 2;
        second.untaken = vec![(0, 1)];
        let run = Run {
            program: &program,
            reports: &[&first, &second],
        };
        let result = ProgramResult {
            file: Some("all.goal".to_owned()),
            ..run.result()
        };
        assert_eq!(
            notes("tree", &BTreeMap::from([("p".to_owned(), result)])),
            [
                "tree: program p (all.goal): 2 messages have arrived that no receive took",
                "tree: program p (all.goal): rank 1 has not taken rank 0's send of 8 B to rank 1, \
                 tag 0 at line 4",
            ]
        );
    }

    #[test]
    fn ranks_at_which_most_wait_are_known() {
        // 0 → 1 → 2, 3 → 2, which waits for nobody.
        let chain = [Some(1), Some(2), None, Some(2)];
        assert_eq!(waiting_behind(&chain), [0, 1, 3, 0]);
        // 0 → 1 → 2 → 1, and 3 → 0; 4 by itself.
        let circle = [Some(1), Some(2), Some(1), Some(0), None];
        assert_eq!(waiting_behind(&circle), [1, 4, 4, 0, 0]);
        assert_eq!(waiting_behind(&[]), [0; 0]);
    }

    /// Of a hundred ranks that wait one behind the other the last one is to blame.
    #[test]
    fn those_that_others_wait_for_are_named_first() {
        let rank = |me: u32| format!("rank {me} {{\nrecv 8b from {}\n}}\n", me + 1);
        let ranks: String = (0..99).map(rank).collect();
        let text = format!("num_ranks 100\n{ranks}rank 99 {{\nrecv 8b from -1\n}}\n");
        let program = goal::read(text.as_bytes()).unwrap();
        let waits = |me| report(me, vec![times(100, NEVER, u32::MAX, None)]);
        let reports: Vec<RankReport> = (0..100).map(waits).collect();
        let reports: Vec<&RankReport> = reports.iter().collect();
        let run = Run {
            program: &program,
            reports: &reports,
        };
        let lines = run.waits();
        assert_eq!(lines.len(), WAITS_MAX + 1);
        assert!(lines[0].starts_with("rank 99: receive of 8 B from any rank"));
        assert!(lines[1].starts_with("rank 98: receive of 8 B from rank 99"));
        assert_eq!(lines[WAITS_MAX], "other operations wait as well");
    }

    #[test]
    fn the_longest_steps_are_kept() {
        let mut longest = Longest::default();
        for at in 0..30 {
            longest.add(at % 15, 100 - at, (0, at as u32));
        }
        let kept: Vec<u32> = longest.0.iter().map(|(.., (_, at))| *at).collect();
        assert_eq!(kept, [29, 14, 28, 13, 27, 12, 26, 11, 25, 10]);
    }

    #[test]
    fn columns_are_filled_in_part() {
        let mut row = vec![0; 4];
        fill(&mut row, (5, 25), 10);
        fill(&mut row, (38, 45), 10);
        assert_eq!(row, [5, 10, 5, 2]);
    }
}
