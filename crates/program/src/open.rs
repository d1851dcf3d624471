//! What can be said before a run of ranks with receives from any rank or tag. Which messages such a
//! receive takes depends on times; whether there are enough of either does not.

use rustc_hash::FxHashMap;

use crate::{
    ANY_SOURCE, ANY_TAG, Kind, Program, Rank,
    check::{Fault, OF_PARTNERS, fault, missing},
};

/// A source and a tag, each of which may be any.
type Key = (u32, u32);

/// A message: the rank that sends it, and its operation.
type Send = (u32, u32);

/// Receives that a key covers.
#[derive(Default)]
struct Asked {
    /// Their number.
    receives: u64,
    /// The last of them.
    last: u32,
    /// Messages that the key covers.
    messages: u64,
}

/// What a source and a tag are covered by, themselves first. Each once.
fn covers((source, tag): Key) -> impl Iterator<Item = Key> {
    let all = [
        (source, tag),
        (source, ANY_TAG),
        (ANY_SOURCE, tag),
        (ANY_SOURCE, ANY_TAG),
    ];
    (0..all.len()).filter_map(move |at| (!all[..at].contains(&all[at])).then_some(all[at]))
}

/// Checks the ranks that are `open`: they receive as many messages as are sent to them; of each
/// source and of each tag, and of both, they ask for no more than are sent; and there are receives
/// for each message. This finds most, but not all programs in which something is left over.
///
/// # Errors
/// The first fault.
pub(crate) fn check(program: &Program, open: &[bool]) -> Result<(), Fault> {
    let mut sent: Vec<Vec<Send>> = vec![Vec::new(); open.len()];
    for (me, rank) in (0..).zip(&program.ranks) {
        let sends = (0..).zip(rank.operations());
        for (number, op) in sends.filter(|(_, op)| op.kind == Kind::Send && open[op.peer as usize])
        {
            sent[op.peer as usize].push((me, number));
        }
    }
    for (me, sends) in (0..).zip(&sent) {
        if open[me as usize] {
            let rank = &program.ranks[me as usize];
            counts(program, me, rank, sends)?;
            keys(program, me, rank, sends)?;
        }
    }
    Ok(())
}

fn receives(rank: &Rank) -> impl Iterator<Item = (u32, Key)> + '_ {
    let operations = (0..).zip(rank.operations());
    let receives = operations.filter(|(_, op)| op.kind == Kind::Receive);
    receives.map(|(number, op)| (number, (op.peer, op.tag)))
}

fn counts(program: &Program, me: u32, rank: &Rank, sends: &[Send]) -> Result<(), Fault> {
    let (count, last) = receives(rank).fold((0, 0), |(count, _), (at, _)| (count + 1, at));
    if sends.len() == count {
        return Ok(());
    }
    let what = match sends.last().filter(|_| sends.len() > count) {
        Some((from, number)) => {
            let send = program.ranks[*from as usize].describe(*number);
            format!("the last of them is of rank {from}: {send}")
        }
        None => format!("the last receive is: {}", rank.describe(last)),
    };
    let count_of_sends = sends.len();
    let reason = format!("{count} receives, and {count_of_sends} messages are sent to it; {what}");
    Err(fault(me, reason, OF_PARTNERS))
}

fn keys(program: &Program, me: u32, rank: &Rank, sends: &[Send]) -> Result<(), Fault> {
    // By key, what it covers; and the receives that have just this key.
    let mut asked: FxHashMap<Key, Asked> = FxHashMap::default();
    let mut own: FxHashMap<Key, u64> = FxHashMap::default();
    for (number, key) in receives(rank) {
        *own.entry(key).or_default() += 1;
        for cover in covers(key) {
            let known = asked.entry(cover).or_default();
            (known.receives, known.last) = (known.receives + 1, number);
        }
    }
    let key_of = |(from, number): Send| {
        let tag = program.ranks[from as usize].operations()[number as usize].tag;
        (from, tag)
    };
    // By source and tag, messages and the last of them.
    let mut messages: FxHashMap<Key, (u64, u32)> = FxHashMap::default();
    for send in sends {
        let key = key_of(*send);
        let known = messages.entry(key).or_default();
        *known = (known.0 + 1, send.1);
        for cover in covers(key) {
            if let Some(asked) = asked.get_mut(&cover) {
                asked.messages += 1;
            }
        }
    }
    let lacking = asked.iter().filter(|(_, one)| one.receives > one.messages);
    // The narrowest key says most, and those without wildcards are the least.
    if let Some((_, one)) = lacking.min_by_key(|(key, _)| **key) {
        let reason = missing(rank, one.last, one.receives - one.messages, "send");
        return Err(fault(me, reason, OF_PARTNERS));
    }
    let takers = |key: Key| covers(key).filter_map(|cover| own.get(&cover)).sum::<u64>();
    let left = messages
        .iter()
        .filter(|(key, (count, _))| *count > takers(**key));
    if let Some((key, (count, last))) = left.min_by_key(|(key, _)| **key) {
        let sender = &program.ranks[key.0 as usize];
        let reason = missing(sender, *last, count - takers(*key), "receive");
        return Err(fault(key.0, reason, OF_PARTNERS));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{check::check, goal};

    /// The rank and the reason of a fault of three ranks, the first of which is open.
    fn fault(first: &str, second: &str, third: &str) -> Option<(Option<u32>, String)> {
        let text = format!(
            "num_ranks 3\nrank 0 {{\n{first}}}\nrank 1 {{\n{second}}}\nrank 2 {{\n{third}}}\n"
        );
        let program = goal::read(text.as_bytes()).unwrap();
        let fault = check(&program, 0).err();
        fault.map(|fault| (fault.rank, fault.reason))
    }

    #[test]
    fn a_receive_that_no_message_can_meet_is_found() {
        let twice = "send 8b to 0 tag 3\nsend 8b to 0 tag 3\n";
        for (first, second, third, expected) in [
            (
                "recv 8b from 1 tag -1\nrecv 8b from 2 tag 3\n",
                twice,
                "",
                "receive of 8 B from rank 2, tag 3 at line 4 has no partner: one send is missing",
            ),
            (
                "recv 8b from -1 tag 4\nrecv 8b from -1 tag 3\n",
                twice,
                "",
                "receive of 8 B from any rank, tag 4 at line 3 has no partner: one send is missing",
            ),
            (
                "recv 8b from 2 tag -1\nrecv 8b from 2 tag 3\n",
                "send 8b to 0 tag 3\n",
                "send 8b to 0 tag 3\n",
                "receive of 8 B from rank 2, tag 3 at line 4 has no partner: one send is missing",
            ),
        ] {
            let found = fault(first, second, third);
            assert_eq!(found, Some((Some(0), expected.to_owned())), "{first}");
        }
    }

    #[test]
    fn a_message_that_no_receive_takes_is_found() {
        let found = fault(
            "recv 8b from 1 tag -1\nrecv 8b from -1 tag 4\n",
            "send 8b to 0 tag 4\n",
            "send 8b to 0 tag 5\n",
        );
        let expected =
            "send of 8 B to rank 0, tag 5 at line 10 has no partner: one receive is missing";
        assert_eq!(found, Some((Some(2), expected.to_owned())));
    }

    #[test]
    fn what_may_match_is_left_to_the_run() {
        let sends = ["send 8b to 0 tag 3\n", "send 8b to 0 tag 4\n"];
        for first in [
            "recv 8b from -1 tag -1\nrecv 8b from -1 tag -1\n",
            "recv 8b from 1 tag 3\nrecv 8b from -1 tag -1\n",
            "recv 8b from 1 tag -1\nrecv 8b from -1 tag 4\n",
            "recv 8b from -1 tag 3\nrecv 8b from -1 tag 4\n",
        ] {
            assert_eq!(fault(first, sends[0], sends[1]), None, "{first}");
        }
    }

    proptest! {
        /// Receives that were made of the messages, in another order, can take them all.
        #[test]
        fn what_fits_is_never_refused(
            messages in prop::collection::vec(
                (1u32..3, 0u32..4, any::<bool>(), any::<bool>(), any::<u8>()),
                1..12,
            ),
        ) {
            let mut receives = messages.clone();
            receives.sort_by_key(|message| message.4);
            let any = |any: bool, own: u32| if any { "-1".to_owned() } else { own.to_string() };
            let receives = receives.iter().map(|(from, tag, any_source, any_tag, _)| {
                let (from, tag) = (any(*any_source, *from), any(*any_tag, *tag));
                format!("recv 8b from {from} tag {tag}\n")
            });
            let sends = |rank| -> String {
                let own = messages.iter().filter(|message| message.0 == rank);
                own.map(|message| format!("send 8b to 0 tag {}\n", message.1)).collect()
            };
            // One more that is open in any case.
            let first = format!("{}recv 8b from -1 tag 9\n", receives.collect::<String>());
            let found = fault(&first, &sends(1), &format!("{}send 8b to 0 tag 9\n", sends(2)));
            prop_assert_eq!(found, None);
        }
    }
}
