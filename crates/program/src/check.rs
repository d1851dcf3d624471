//! What is wrong with a program before it runs: ranks that do not exist, messages without a
//! partner, operations that wait for one another.

use std::collections::{BTreeMap, VecDeque};

use crate::{ANY_SOURCE, Kind, Matcher, Message, Operation, Program, Progress, Rank, open};

/// A fault of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The rank, if it is one's.
    pub rank: Option<u32>,
    /// What is wrong, with its place.
    pub reason: String,
    /// What to do about it.
    pub advice: &'static str,
}

const OF_RANKS: &str = "name another rank of the program";
const OF_CYCLES: &str = "leave out one of these requirements";
pub(crate) const OF_PARTNERS: &str = "sends and receives match by ranks and tags";
const OF_DEADLOCKS: &str = "change their order, or raise `eager` if long messages wait";

/// Links of a chain of waiting operations that are told.
const CHAIN_MAX: usize = 8;

/// Checks a program whose messages of more than `eager_bytes` wait for their receives.
///
/// # Errors
/// The first fault.
pub fn check(program: &Program, eager_bytes: u64) -> Result<(), Fault> {
    let ranks = program.ranks.len() as u32;
    for (me, rank) in (0..).zip(&program.ranks) {
        peers(me, rank, ranks)?;
        cycles(me, rank)?;
    }
    let open: Vec<bool> = program
        .ranks
        .iter()
        .map(|rank| rank.has_wildcards())
        .collect();
    if open.contains(&true) {
        open::check(program, &open)?;
    }
    match deadlocks(program, &open, eager_bytes) {
        Ok(true) => Ok(()),
        // A missing partner says more than what waits for it.
        ended => partners(program, &open).and(ended.map(|_| ())),
    }
}

pub(crate) fn fault(rank: u32, reason: String, advice: &'static str) -> Fault {
    Fault {
        rank: Some(rank),
        reason,
        advice,
    }
}

fn peers(me: u32, rank: &Rank, ranks: u32) -> Result<(), Fault> {
    for (number, op) in (0..).zip(rank.operations()) {
        let any = op.kind == Kind::Receive && op.peer == ANY_SOURCE;
        if op.kind == Kind::Compute || any {
            continue;
        }
        if op.peer >= ranks {
            let what = rank.describe(number);
            let reason = format!("{what}: the program has ranks 0 to {}", ranks - 1);
            return Err(fault(me, reason, OF_RANKS));
        }
    }
    Ok(())
}

/// Operations that require each other.
fn cycles(me: u32, rank: &Rank) -> Result<(), Fault> {
    let count = rank.operations().len() as u32;
    let waits_for_earlier = |at: u32| rank.dependents(at).all(|other| other.operation > at);
    if (0..count).all(waits_for_earlier) {
        return Ok(()); // as nearly all programs are written
    }
    let mut progress = Progress::new(rank);
    let mut ended = vec![false; rank.operations().len()];
    while let Some(operation) = progress.take() {
        ended[operation as usize] = true;
        progress.begun(rank, operation, |_| {});
        progress.ended(rank, operation, |_| {});
    }
    if progress.left() == 0 {
        return Ok(());
    }
    let cycle = cycle(rank, &ended);
    let told = cycle.iter().take(CHAIN_MAX);
    let mut chain: Vec<String> = told.map(|operation| rank.describe(*operation)).collect();
    if let (Some(first), Some(left)) = (cycle.first(), cycle.len().checked_sub(CHAIN_MAX + 1)) {
        let further = format!(
            "one that goes back through {left} further ones to {}",
            rank.describe(*first)
        );
        chain.push(further);
    }
    let reason = format!(
        "operations require each other: {}",
        chain.join(" requires ")
    );
    Err(fault(me, reason, OF_CYCLES))
}

/// A cycle among those that never end, each requiring the next.
fn cycle(rank: &Rank, ended: &[bool]) -> Vec<u32> {
    // One that each requires and that never ends.
    let mut before = vec![u32::MAX; ended.len()];
    let stuck = (0..ended.len() as u32).filter(|at| !ended[*at as usize]);
    for operation in stuck {
        for dependent in rank.dependents(operation) {
            before[dependent.operation as usize] = operation;
        }
    }
    let mut seen = vec![false; ended.len()];
    let Some(mut at) = ended.iter().position(|ended| !ended) else {
        return Vec::new();
    };
    while !seen[at] && before[at] != u32::MAX {
        seen[at] = true;
        at = before[at] as usize;
    }
    let first = at as u32;
    let mut cycle = vec![first];
    let mut next = before[at];
    while next != first && next != u32::MAX {
        cycle.push(next);
        next = before[next as usize];
    }
    cycle.push(first);
    cycle
}

/// Of each source, destination and tag there are as many sends as receives, where no receive takes
/// any rank or tag (`open`).
fn partners(program: &Program, open: &[bool]) -> Result<(), Fault> {
    // Balance, and the last operation of each side: (rank, operation).
    type Sides = (i64, Option<(u32, u32)>, Option<(u32, u32)>);
    let mut found: BTreeMap<(u32, u32, u32), Sides> = BTreeMap::new();
    for (me, rank) in (0..).zip(&program.ranks) {
        for (number, op) in (0..).zip(rank.operations()) {
            match op.kind {
                Kind::Send if open[op.peer as usize] => {}
                Kind::Receive if open[me as usize] => {}
                Kind::Send => {
                    let sides = found.entry((me, op.peer, op.tag)).or_default();
                    (sides.0, sides.1) = (sides.0 + 1, Some((me, number)));
                }
                Kind::Receive => {
                    let sides = found.entry((op.peer, me, op.tag)).or_default();
                    (sides.0, sides.2) = (sides.0 - 1, Some((me, number)));
                }
                Kind::Compute => {}
            }
        }
    }
    let unequal = found.values().find(|sides| sides.0 != 0);
    let Some((balance, send, receive)) = unequal else {
        return Ok(());
    };
    let (last, other) = match *balance > 0 {
        true => (send, "receive"),
        false => (receive, "send"),
    };
    let (me, number) = last.unwrap_or_default();
    let reason = missing(
        &program.ranks[me as usize],
        number,
        balance.unsigned_abs(),
        other,
    );
    Err(fault(me, reason, OF_PARTNERS))
}

/// That so many messages or receives (`other`) are missing for an operation and those like it.
pub(crate) fn missing(rank: &Rank, number: u32, count: u64, other: &str) -> String {
    let what = rank.describe(number);
    match count {
        1 => format!("{what} has no partner: one {other} is missing"),
        _ => format!("{what} and those like it: {count} {other}s are missing"),
    }
}

/// A rank of a run without time.
struct Untimed<'a> {
    rank: &'a Rank,
    progress: Progress,
    matcher: Matcher,
    /// Messages and receives that could not end when they began, in this order.
    waiting: Vec<u32>,
    /// By operation.
    ended: Vec<bool>,
    /// Some of its receives take any rank or tag.
    open: bool,
}

impl Untimed<'_> {
    fn end(&mut self, operation: u32) {
        self.ended[operation as usize] = true;
        self.progress.ended(self.rank, operation, |_| {});
    }

    /// The first of those that still wait.
    fn first_waiting(&self) -> Option<u32> {
        let mut waiting = self.waiting.iter().copied();
        waiting.find(|operation| !self.ended[*operation as usize])
    }
}

/// Runs the program without time: messages up to `eager_bytes` leave at once, longer ones when
/// their receives are posted. Without wildcards the order changes nothing. Messages for ranks that
/// are `open` are taken to be there when they are asked for, and to be asked for when they are
/// sent: what stands still even so does in every order. Returns whether each other message was
/// received.
fn deadlocks(program: &Program, open: &[bool], eager_bytes: u64) -> Result<bool, Fault> {
    let mut ranks: Vec<Untimed<'_>> = (program.ranks.iter().zip(open))
        .map(|(rank, open)| Untimed {
            open: *open,
            rank,
            progress: Progress::new(rank),
            matcher: Matcher::default(),
            waiting: Vec::new(),
            ended: vec![false; rank.operations().len()],
        })
        .collect();
    let mut active: VecDeque<u32> = (0..ranks.len() as u32).collect();
    while let Some(me) = active.pop_front() {
        while let Some(operation) = ranks[me as usize].progress.take() {
            let own = &mut ranks[me as usize];
            own.progress.begun(own.rank, operation, |_| {});
            let op = own.rank.operations()[operation as usize];
            if let Some(woken) = step(&mut ranks, me, operation, &op, eager_bytes)? {
                active.push_back(woken);
            }
        }
    }
    match ranks.iter().position(|rank| rank.progress.left() > 0) {
        None => Ok((ranks.iter()).all(|rank| rank.matcher.unexpected().next().is_none())),
        Some(first) => Err(stuck(&ranks, first)),
    }
}

/// Begins an operation; returns a rank that may go on.
///
/// # Errors
/// A message that is larger than its receive.
fn step(
    ranks: &mut [Untimed<'_>],
    me: u32,
    operation: u32,
    op: &Operation,
    eager_bytes: u64,
) -> Result<Option<u32>, Fault> {
    let end = |ranks: &mut [Untimed<'_>], rank: u32, operation: u32| {
        ranks[rank as usize].end(operation);
    };
    match op.kind {
        Kind::Compute => {
            end(ranks, me, operation);
            Ok(None)
        }
        Kind::Send if ranks[op.peer as usize].open => {
            end(ranks, me, operation);
            Ok(None)
        }
        Kind::Receive if ranks[me as usize].open => {
            end(ranks, me, operation);
            Ok(None)
        }
        Kind::Send => {
            let message = Message {
                source: me,
                tag: op.tag,
                operation,
                bytes: op.size,
                waits: op.size > eager_bytes,
            };
            let receive = ranks[op.peer as usize].matcher.arrive(message);
            if let Some(receive) = receive {
                has_room(ranks, (op.peer, receive), &message)?;
            }
            if !message.waits || receive.is_some() {
                end(ranks, me, operation);
            } else {
                ranks[me as usize].waiting.push(operation);
            }
            let Some(receive) = receive else {
                return Ok(None);
            };
            end(ranks, op.peer, receive);
            Ok(Some(op.peer))
        }
        Kind::Receive => {
            let own = &mut ranks[me as usize];
            let Some(message) = own.matcher.post(op.peer, op.tag, operation) else {
                own.waiting.push(operation);
                return Ok(None);
            };
            has_room(ranks, (me, operation), &message)?;
            end(ranks, me, operation);
            if !message.waits {
                return Ok(None);
            }
            end(ranks, message.source, message.operation);
            Ok(Some(message.source))
        }
    }
}

/// That a receive has room for its message; what has not, MPI calls truncation, an error.
fn has_room(
    ranks: &[Untimed<'_>],
    (me, receive): (u32, u32),
    message: &Message,
) -> Result<(), Fault> {
    let own = ranks[me as usize].rank;
    if message.bytes <= own.operations()[receive as usize].size {
        return Ok(());
    }
    let source = message.source;
    let sent = ranks[source as usize].rank.describe(message.operation);
    let reason = format!(
        "{} is smaller than its message: rank {source}: {sent}",
        own.describe(receive)
    );
    Err(fault(me, reason, OF_PARTNERS))
}

/// The fault of a program that stands still: the ranks that wait for each other, in order, from the
/// rank `first` until one repeats.
fn stuck(ranks: &[Untimed<'_>], first: usize) -> Fault {
    let mut seen = vec![false; ranks.len()];
    let (mut at, mut chain) = (first, Vec::new());
    while !seen[at] {
        seen[at] = true;
        let own = &ranks[at];
        let Some(operation) = own.first_waiting() else {
            break;
        };
        chain.push(format!("rank {at}: {}", own.rank.describe(operation)));
        at = own.rank.operations()[operation as usize].peer as usize;
    }
    let end = match seen[at] && ranks[at].first_waiting().is_some() {
        true => format!("rank {at}"),
        false => format!("rank {at}, which has ended"),
    };
    let left = chain.len().saturating_sub(CHAIN_MAX);
    chain.truncate(CHAIN_MAX);
    chain.push(match left {
        0 => end,
        _ => format!("{left} further ranks in a row, the last of which waits for {end}"),
    });
    let left: usize = ranks.iter().map(|rank| rank.progress.left()).sum();
    let reason = format!(
        "{left} operations wait for ever: {}",
        chain.join(" waits for ")
    );
    fault(first as u32, reason, OF_DEADLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::text;

    fn of(text: &str, eager_bytes: u64) -> Result<(), Fault> {
        check(&text::read(text.as_bytes()).unwrap(), eager_bytes)
    }

    fn reason(text: &str, eager_bytes: u64) -> String {
        of(text, eager_bytes).unwrap_err().reason
    }

    #[test]
    fn ranks_and_partners_are_checked() {
        let wrong = reason("num_ranks 2\nrank 0 {\nsend 8b to 2\n}\nrank 1 {\n}\n", 0);
        assert_eq!(
            wrong,
            "send of 8 B to rank 2, tag 0 at line 3: the program has ranks 0 to 1"
        );
        let missing =
            "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 4\n}\nrank 1 {\nrecv 8b from 0 tag 5\n}\n";
        assert_eq!(
            reason(missing, 0),
            "send of 8 B to rank 1, tag 4 at line 3 has no partner: one receive is missing"
        );
    }

    /// Whichever of both is there first, eager or not; a larger receive is fine.
    #[test]
    fn a_message_larger_than_its_receive_is_refused() {
        for (late, eager_bytes) in [(0, 0), (0, 1000), (1, 0), (1, 1000)] {
            let wait = |rank| if late == rank { "b requires a\n" } else { "" };
            let of_size = |received: u32| {
                format!(
                    "num_ranks 2\nrank 0 {{\na: calc 5\nb: send 100b to 1 tag 4\n{}}}\n\
                     rank 1 {{\na: calc 5\nb: recv {received}b from 0 tag 4\n{}}}\n",
                    wait(0),
                    wait(1)
                )
            };
            let fault = of(&of_size(99), eager_bytes).unwrap_err();
            assert_eq!(fault.rank, Some(1));
            let told = fault.reason.starts_with("receive of 99 B from rank 0, tag 4 at line ")
                && (fault.reason).ends_with(
                    " is smaller than its message: rank 0: send of 100 B to rank 1, tag 4 at line 4",
                );
            assert!(told, "{}", fault.reason);
            assert_eq!(of(&of_size(100), eager_bytes), Ok(()));
            assert_eq!(of(&of_size(101), eager_bytes), Ok(()));
        }
    }

    /// A receive from any rank leaves the checks of all other ranks as they are.
    #[test]
    fn a_wildcard_hides_no_fault_of_other_ranks() {
        let with = |first: &str, third: &str| {
            format!(
                "num_ranks 3\nrank 0 {{\nrecv 8b from -1\n{first}}}\n\
                 rank 1 {{\nsend 8b to 0\n}}\nrank 2 {{\n{third}}}\n"
            )
        };
        assert_eq!(
            reason(&with("send 8b to 2 tag 9\n", ""), 8),
            "send of 8 B to rank 2, tag 9 at line 4 has no partner: one receive is missing"
        );
        assert_eq!(
            of(&with("send 8b to 2 tag 9\n", "recv 8b from 0 tag 9\n"), 0),
            Ok(())
        );
        let small = reason(&with("send 9b to 2 tag 9\n", "recv 8b from 0 tag 9\n"), 0);
        assert!(small.contains("is smaller than its message"), "{small}");
        let text = with("", "a: recv 8b from 1\nb: send 8b to 1\nb requires a\n");
        let dead = text.replace(
            "send 8b to 0\n",
            "send 8b to 0\na: recv 8b from 2\nb: send 8b to 2\nb requires a\n",
        );
        assert_eq!(
            reason(&dead, 8),
            "4 operations wait for ever: rank 1: receive of 8 B from rank 2, tag 0 at line 7 \
             waits for rank 2: receive of 8 B from rank 1, tag 0 at line 12 waits for rank 1"
        );
    }

    #[test]
    fn a_rank_with_wildcards_receives_as_often_as_others_send_to_it() {
        let with = |receives: &str| {
            format!(
                "num_ranks 2\nrank 0 {{\n{receives}}}\n\
                 rank 1 {{\nsend 8b to 0\nsend 8b to 0 tag 4\n}}\n"
            )
        };
        let one = "recv 8b from -1 tag -1\n";
        assert_eq!(of(&with(&one.repeat(2)), 8), Ok(()));
        assert_eq!(
            reason(&with(one), 8),
            "1 receives, and 2 messages are sent to it; the last of them is of rank 1: \
             send of 8 B to rank 0, tag 4 at line 7"
        );
        assert_eq!(
            reason(&with(&one.repeat(3)), 8),
            "3 receives, and 2 messages are sent to it; the last receive is: \
             receive of 8 B from any rank, any tag at line 5"
        );
    }

    #[test]
    fn a_cycle_of_requirements_is_named() {
        let cycle = "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\nc: calc 3\nb requires a\na requires c\nc irequires b\n}\n";
        let reason = reason(cycle, 0);
        assert!(
            reason.starts_with("operations require each other: "),
            "{reason}"
        );
        assert!(reason.contains("computation of 3 ns at line 5"), "{reason}");
    }

    #[test]
    fn a_long_chain_says_what_it_leaves_out() {
        let rank = |me: u32| {
            let (next, before) = ((me + 1) % 16, (me + 15) % 16);
            format!(
                "rank {me} {{\na: send 100b to {next}\nb: recv 100b from {before}\nb requires a\n}}\n"
            )
        };
        let ranks: String = (0..16).map(rank).collect();
        let reason = reason(&format!("num_ranks 16\n{ranks}"), 8);
        assert!(
            reason.ends_with(
                " waits for rank 7: send of 100 B to rank 8, tag 0 at line 38 \
                 waits for 8 further ranks in a row, the last of which waits for rank 0"
            ),
            "{reason}"
        );
    }

    /// The time of the check is proportional to the operations, not to their square.
    #[test]
    fn many_receives_may_wait_at_once() {
        let many = 500_000;
        let rank = |kind, peer| {
            let mut own = crate::RankBuilder::default();
            for _ in 0..many {
                own.add(Operation {
                    size: 8,
                    peer,
                    tag: 0,
                    requires: 0,
                    phase: 0,
                    cpu: 0,
                    kind,
                });
            }
            own
        };
        let mut ranks = [rank(Kind::Receive, 1), rank(Kind::Send, 0)];
        let program = |ranks: [crate::RankBuilder; 2]| Program {
            ranks: ranks.map(|rank| rank.finish().into()).into(),
            ..Program::default()
        };
        assert_eq!(check(&program(ranks), 0), Ok(()));
        ranks = [rank(Kind::Receive, 1), rank(Kind::Send, 0)];
        ranks[1].add(Operation {
            tag: 1,
            ..rank(Kind::Send, 0).finish().operations()[0]
        });
        let reason = check(&program(ranks), 8).unwrap_err().reason;
        assert!(
            reason.ends_with("no partner: one receive is missing"),
            "{reason}"
        );
    }

    #[test]
    fn messages_of_a_rank_to_itself_are_checked_like_others() {
        let with = |body: &str| format!("num_ranks 1\nrank 0 {{\n{body}}}\n");
        let both = with("a: send 8b to 0 tag 1\nb: recv 8b from 0 tag 1\n");
        for eager_bytes in [0, 8] {
            assert_eq!(of(&both, eager_bytes), Ok(()));
        }
        let bytes = crate::goal::binary::write(&text::read(both.as_bytes()).unwrap());
        assert_eq!(check(&crate::goal::read(&bytes[..]).unwrap(), 0), Ok(()));
        assert_eq!(
            reason(&with("a: send 8b to 0 tag 1\nb: recv 8b from 0 tag 2\n"), 8),
            "send of 8 B to rank 0, tag 1 at line 3 has no partner: one receive is missing"
        );
        assert_eq!(
            reason(&with("recv 8b from -1\n"), 8),
            "1 receives, and 0 messages are sent to it; the last receive is: receive of 8 B from \
             any rank, tag 0 at line 3"
        );
        let small = reason(&with("send 9b to 0\nrecv 8b from 0\n"), 9);
        assert!(small.contains("is smaller than its message"), "{small}");
        // A long message waits for a receive behind it.
        let one = with("a: send 9b to 0\nb: recv 9b from 0\nb requires a\n");
        assert_eq!(of(&one, 9), Ok(()));
        assert_eq!(
            reason(&one, 8),
            "2 operations wait for ever: rank 0: send of 9 B to rank 0, tag 0 at line 3 waits for \
             rank 0"
        );
    }

    #[test]
    fn a_deadlock_of_long_messages_is_none_of_short_ones() {
        let both_send_first = "num_ranks 2\n\
            rank 0 {\na: send 100b to 1\nb: recv 100b from 1\nb requires a\n}\n\
            rank 1 {\na: send 100b to 0\nb: recv 100b from 0\nb requires a\n}\n";
        assert_eq!(of(both_send_first, 100), Ok(()));
        assert_eq!(
            reason(both_send_first, 99),
            "4 operations wait for ever: rank 0: send of 100 B to rank 1, tag 0 at line 3 \
             waits for rank 1: send of 100 B to rank 0, tag 0 at line 8 waits for rank 0"
        );
    }
}
