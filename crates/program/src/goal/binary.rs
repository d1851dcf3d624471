//! GOAL in the binary form of LogGOPSim (github.com/spcl/LogGOPSim, `Parser.hpp`), which ATLAHS
//! uses as well. All numbers are little-endian and unaligned.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | the number 4223 |
//! | 8 | 4, 1, 1 | number of ranks, highest CPU, highest NIC |
//! | 14 | 16 for each rank | begin and end of its part, counted from byte 8 |
//!
//! The part of a rank:
//!
//! | bytes | |
//! |---|---|
//! | 4, 4 | number of operations, number of those that wait for none |
//! | 4 for each of the latter | its index |
//! | 39 for each operation | how many it waits for (4), kind (1: 1 send, 2 receive, 3 computation), peer (4), size (8), tag (4), CPU (1), NIC (1), number and first index of those that wait for its end (4, 4), and of those that wait for its begin (4, 4) |
//! | 4 for each of these | its index |
//!
//! Behind the last part a program with phases has what follows, which other readers do not look at:
//!
//! | bytes | |
//! |---|---|
//! | 8 | `phases`, and two bytes that are 0 |
//! | 4 | number of names |
//! | 2, and so many, for each name | its length, and itself in UTF-8 |
//! | 4 for each rank, and 4, 2 for each of so many runs | number of runs; of a run, how many operations in a row, and the index of their name, 65535 if they have none |
//!
//! The reader takes parts in the order in which they stand and looks back at nothing.

use std::{
    io::{self, BufRead, ErrorKind},
    sync::Arc,
};

use super::{Fault, Place, unreadable};
use crate::{
    ANY_SOURCE, ANY_TAG, Kind, NO_PHASE, OPERATIONS_MAX, Operation, Places, Program, RANKS_MAX,
    RankBuilder,
};

/// What a file begins with.
pub const COOKIE: u64 = 4223;

/// Bytes of an operation.
pub const OPERATION_BYTES: u64 = 39;

/// What LogGOPSim with `--save-mem` leaves at the begin of a file that it has used up.
pub const INVALID_COOKIE: u64 = 2342;

/// What phases begin with.
const PHASES: [u8; 8] = *b"phases\0\0";

/// Offsets in the table of ranks count from here.
const BASE: u64 = 8;

/// Bytes up to the table of ranks.
const HEADER_BYTES: u64 = 14;

/// Reads a binary file.
///
/// # Errors
/// The first fault, with its offset.
pub fn read(file: impl BufRead) -> Result<Program, Fault> {
    let mut reader = Reader {
        file,
        offset: 0,
        rank: None,
    };
    let cookie = reader.u64()?;
    if cookie == INVALID_COOKIE {
        let reason = "LogGOPSim has used this file up (`--save-mem`); make it again from its text";
        return Err(reader.fault_at(0, reason.to_owned()));
    }
    if cookie != COOKIE {
        return Err(reader.fault_at(0, format!("begins with {cookie}, not with {COOKIE}")));
    }
    let ranks = reader.u32()?;
    if !(1..=RANKS_MAX).contains(&ranks) {
        let reason = format!("{ranks} ranks; there may be 1 to {RANKS_MAX}");
        return Err(reader.fault_at(BASE, reason));
    }
    reader.bytes::<2>()?;
    // (begin, end, rank)
    let mut parts = Vec::new();
    for rank in 0..ranks {
        let (begin, end) = (reader.u64()?, reader.u64()?);
        parts.push((begin.saturating_add(BASE), end.saturating_add(BASE), rank));
    }
    parts.sort_unstable();
    let mut all = vec![Arc::default(); ranks as usize];
    for (begin, end, rank) in parts {
        reader.rank = Some(rank);
        reader.skip_to(begin)?;
        all[rank as usize] = Arc::new(reader.part(end)?);
        reader.has_ended(end)?;
    }
    reader.rank = None;
    let phases = reader.phases(&mut all)?;
    Ok(Program {
        ranks: all,
        phases,
        notes: Vec::new(),
    })
}

struct Reader<R> {
    file: R,
    offset: u64,
    rank: Option<u32>,
}

/// How many wait for the end and for the begin of an operation.
struct Waiting {
    ends: (u32, u32),
    begins: (u32, u32),
}

impl<R: BufRead> Reader<R> {
    fn fault_at(&self, offset: u64, reason: String) -> Fault {
        Fault {
            place: Place::Offset(offset),
            rank: self.rank,
            reason,
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        match self.file.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let reason = "the file ends here or a little later: it is truncated".to_owned();
                return Err(self.fault_at(self.offset, reason));
            }
            Err(error) => return Err(self.fault_at(self.offset, unreadable(&error))),
        }
        self.offset += N as u64;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Fault> {
        Ok(u8::from_le_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn skip_to(&mut self, offset: u64) -> Result<(), Fault> {
        if offset < self.offset {
            let reason = format!(
                "its part begins at offset {offset}, within what stands before it (up to {})",
                self.offset
            );
            return Err(self.fault_at(offset, reason));
        }
        let wanted = offset - self.offset;
        let mut gap = io::Read::take(&mut self.file, wanted);
        let skipped = io::copy(&mut gap, &mut io::sink());
        let skipped = skipped.map_err(|error| self.fault_at(self.offset, unreadable(&error)))?;
        if skipped < wanted {
            let end = self.offset + skipped;
            let reason = format!("the file ends at offset {end}: its part is missing");
            return Err(self.fault_at(offset, reason));
        }
        self.offset = offset;
        Ok(())
    }

    /// A part has ended where the table says.
    fn has_ended(&self, end: u64) -> Result<(), Fault> {
        if self.offset == end {
            return Ok(());
        }
        let at = self.offset;
        let reason = format!("its part ends here, and the table says that it ends at offset {end}");
        Err(self.fault_at(at, reason))
    }

    fn is_at_end(&mut self) -> Result<bool, Fault> {
        let left = self.file.fill_buf().map(<[u8]>::is_empty);
        left.map_err(|error| self.fault_at(self.offset, unreadable(&error)))
    }

    /// The names of phases, if the file has some; the operations get theirs.
    fn phases(&mut self, ranks: &mut [Arc<crate::Rank>]) -> Result<Vec<String>, Fault> {
        if self.is_at_end()? {
            return Ok(Vec::new());
        }
        let at = self.offset;
        if self.bytes().ok() != Some(PHASES) {
            return Err(self.fault_at(at, "bytes follow behind the last part".to_owned()));
        }
        let names = self.phase_names()?;
        for (number, rank) in (0..).zip(ranks) {
            self.rank = Some(number);
            self.runs(Arc::make_mut(rank), names.len())?;
        }
        self.rank = None;
        match self.is_at_end()? {
            true => Ok(names),
            false => {
                let reason = "bytes follow behind the phases".to_owned();
                Err(self.fault_at(self.offset, reason))
            }
        }
    }

    fn phase_names(&mut self) -> Result<Vec<String>, Fault> {
        let at = self.offset;
        let count = self.u32()?;
        if count > u32::from(NO_PHASE) {
            return Err(self.fault_at(at, format!("{count} phases, above {NO_PHASE}")));
        }
        let mut names = Vec::new();
        for _ in 0..count {
            let at = self.offset;
            let length = u16::from_le_bytes(self.bytes()?);
            let mut name = Vec::new();
            for _ in 0..length {
                name.push(self.u8()?);
            }
            let word = String::from_utf8(name).ok();
            let word = word.filter(|name| !name.is_empty() && !name.contains(char::is_whitespace));
            names.push(word.ok_or_else(|| self.fault_at(at, "a phase is one word".to_owned()))?);
        }
        Ok(names)
    }

    /// The phases of a rank's operations.
    fn runs(&mut self, rank: &mut crate::Rank, names: usize) -> Result<(), Fault> {
        let (at, count) = (self.offset, self.u32()?);
        let mut left = rank.operations.iter_mut();
        for _ in 0..count {
            let at = self.offset;
            let (length, phase) = (self.u32()? as usize, u16::from_le_bytes(self.bytes()?));
            if length == 0 || length > left.len() {
                let reason = format!(
                    "a phase of {length} operations, of {} that follow",
                    left.len()
                );
                return Err(self.fault_at(at, reason));
            }
            if phase != NO_PHASE && usize::from(phase) >= names {
                return Err(self.fault_at(at + 4, format!("phase {phase} of {names}")));
            }
            left.by_ref().take(length).for_each(|own| own.phase = phase);
        }
        match left.len() {
            0 => Ok(()),
            more => Err(self.fault_at(at, format!("{more} operations without a phase"))),
        }
    }

    /// The part of a rank, which ends before `end`.
    fn part(&mut self, end: u64) -> Result<crate::Rank, Fault> {
        let begin = self.offset;
        let (count, free) = (self.u32()?, self.u32()?);
        let least = u64::from(count) * OPERATION_BYTES + u64::from(free) * 4;
        if count as usize > OPERATIONS_MAX || least > end.saturating_sub(begin) {
            let reason = format!(
                "{count} operations, {free} of them free, do not fit into its part up to offset {end}"
            );
            return Err(self.fault_at(begin, reason));
        }
        for _ in 0..free {
            self.u32()?;
        }
        let mut own = RankBuilder::default();
        own.set_places(Places::Offset(self.offset));
        let first = self.offset;
        let (mut waiting, mut required) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let at = self.offset;
            let (operation, others) = self.operation()?;
            for (number, start) in [others.ends, others.begins] {
                let last = u64::from(start) + u64::from(number);
                if number > 0 && last * 4 > end.saturating_sub(begin) {
                    let reason = format!(
                        "those that wait for it do not fit into its part up to offset {end}"
                    );
                    return Err(self.fault_at(at, reason));
                }
            }
            required.push(operation.requires);
            own.add(operation);
            waiting.push(others);
        }
        let all = waiting.iter().flat_map(|one| [one.ends, one.begins]);
        let used = all.filter(|(number, _)| *number > 0);
        let ends = used
            .clone()
            .map(|(number, start)| u64::from(number) + u64::from(start));
        let length = ends.max().unwrap_or(0);
        let appendix_at = self.offset;
        if used.map(|(number, _)| u64::from(number)).sum::<u64>() > length {
            let reason = "two operations claim the same dependents".to_owned();
            return Err(self.fault_at(appendix_at, reason));
        }
        let mut appendix = Vec::new();
        for _ in 0..length {
            appendix.push(self.u32()?);
        }
        for (before, others) in (0..).zip(&waiting) {
            for ((number, start), of_begin) in [(others.ends, false), (others.begins, true)] {
                for at in u64::from(start)..u64::from(start) + u64::from(number) {
                    let index = appendix[at as usize];
                    if index >= count {
                        let offset = appendix_at + 4 * at;
                        let reason = format!("operation {index} of {count} waits: there is none");
                        return Err(self.fault_at(offset, reason));
                    }
                    own.require(index, before, of_begin);
                }
            }
        }
        let rank = own.finish();
        let wrong = required.iter().zip(rank.operations());
        let wrong = wrong
            .enumerate()
            .find(|(_, (said, own))| **said != own.requires);
        if let Some((at, (said, own))) = wrong {
            let reason = format!(
                "operation {at} says that it waits for {said} others, of which {} name it",
                own.requires
            );
            return Err(self.fault_at(first + at as u64 * OPERATION_BYTES, reason));
        }
        Ok(rank)
    }

    fn operation(&mut self) -> Result<(Operation, Waiting), Fault> {
        let at = self.offset;
        let requires = self.u32()?;
        let kind = match self.u8()? {
            1 => Kind::Send,
            2 => Kind::Receive,
            3 => Kind::Compute,
            other => {
                let reason = format!("{other} is no kind of operation (1, 2 or 3)");
                return Err(self.fault_at(at + 4, reason));
            }
        };
        let (peer, size, tag) = (self.u32()?, self.u64()?, self.u32()?);
        let cpu = self.u8()?;
        self.u8()?;
        if kind == Kind::Send && (peer == ANY_SOURCE || tag == ANY_TAG) {
            let reason = "a send names its receiver and tag".to_owned();
            return Err(self.fault_at(at, reason));
        }
        if size > i64::MAX as u64 {
            return Err(self.fault_at(at + 9, format!("{size} is above {}", i64::MAX)));
        }
        let operation = Operation {
            size,
            peer,
            tag,
            requires,
            phase: NO_PHASE,
            cpu,
            kind,
        };
        let waiting = Waiting {
            ends: (self.u32()?, self.u32()?),
            begins: (self.u32()?, self.u32()?),
        };
        Ok((operation, waiting))
    }
}

/// The bytes of a program in this form: as `txt2bin` writes them, and its phases behind them.
pub fn write(program: &Program) -> Vec<u8> {
    let cpus = program.ranks.iter().flat_map(|rank| rank.operations());
    let highest = cpus.map(|operation| operation.cpu).max().unwrap_or(0);
    let mut file = COOKIE.to_le_bytes().to_vec();
    file.extend((program.ranks.len() as u32).to_le_bytes());
    file.extend([highest, 0]);
    let table = file.len();
    file.resize(HEADER_BYTES as usize + 16 * program.ranks.len(), 0);
    for (number, rank) in program.ranks.iter().enumerate() {
        let begin = file.len() as u64 - BASE;
        write_part(&mut file, rank);
        let end = file.len() as u64 - BASE;
        let at = table + 16 * number;
        file[at..at + 8].copy_from_slice(&begin.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&end.to_le_bytes());
    }
    if !program.phases.is_empty() {
        write_phases(&mut file, program);
    }
    file
}

fn write_phases(file: &mut Vec<u8>, program: &Program) {
    file.extend(PHASES);
    file.extend((program.phases.len() as u32).to_le_bytes());
    for name in &program.phases {
        let length = name.len().min(usize::from(u16::MAX));
        file.extend((length as u16).to_le_bytes());
        file.extend(&name.as_bytes()[..length]);
    }
    for rank in &program.ranks {
        let runs = || {
            rank.operations()
                .chunk_by(|one, next| one.phase == next.phase)
        };
        file.extend((runs().count() as u32).to_le_bytes());
        for run in runs() {
            file.extend((run.len() as u32).to_le_bytes());
            file.extend(run[0].phase.to_le_bytes());
        }
    }
}

fn write_part(file: &mut Vec<u8>, rank: &crate::Rank) {
    let operations = rank.operations();
    let free = (0u32..).zip(operations).filter(|(_, op)| op.requires == 0);
    let free: Vec<u32> = free.map(|(number, _)| number).collect();
    file.extend((operations.len() as u32).to_le_bytes());
    file.extend((free.len() as u32).to_le_bytes());
    free.iter()
        .for_each(|number| file.extend(number.to_le_bytes()));
    let mut appendix: Vec<u32> = Vec::new();
    for (number, op) in (0..).zip(operations) {
        file.extend(op.requires.to_le_bytes());
        file.push(match op.kind {
            Kind::Send => 1,
            Kind::Receive => 2,
            Kind::Compute => 3,
        });
        file.extend(op.peer.to_le_bytes());
        file.extend(op.size.to_le_bytes());
        file.extend(op.tag.to_le_bytes());
        file.extend([op.cpu, 0]);
        for of_begin in [false, true] {
            let first = appendix.len() as u32;
            let dependents = rank
                .dependents(number)
                .filter(|one| one.of_begin == of_begin);
            appendix.extend(dependents.map(|one| one.operation));
            file.extend((appendix.len() as u32 - first).to_le_bytes());
            file.extend(first.to_le_bytes());
        }
    }
    appendix
        .iter()
        .for_each(|number| file.extend(number.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::goal::{self, text};

    const TEXT: &str = "num_ranks 2\nrank 0 {\na: calc 100 cpu 2\nb: send 8b to 1 tag 5\nb requires a\n\
        c: calc 3\nc irequires b\n}\nrank 1 {\na: recv 8b from -1 tag -1\n}\n";

    /// All but the places.
    fn same(a: &Program, b: &Program) -> bool {
        let bare = |rank: &Arc<crate::Rank>| crate::Rank {
            places: Places::None,
            ..(**rank).clone()
        };
        let all = |program: &Program| program.ranks.iter().map(bare).collect::<Vec<_>>();
        all(a) == all(b)
    }

    #[test]
    fn what_is_written_is_read() {
        let program = text::read(TEXT.as_bytes()).unwrap();
        let bytes = write(&program);
        // 14 + 2 ranks of 16, parts of 8 + 4 + 3 × 39 + 2 × 4 and of 8 + 4 + 39.
        assert_eq!(bytes.len(), 14 + 32 + 137 + 51);
        let read = goal::read(&bytes[..]).unwrap();
        assert!(same(&program, &read), "{read:?}");
        let place = read.ranks[0].describe(1);
        assert_eq!(place, "send of 8 B to rank 1, tag 5 at offset 97");
    }

    #[test]
    fn every_truncation_is_found() {
        let bytes = write(&text::read(TEXT.as_bytes()).unwrap());
        for length in 8..bytes.len() {
            let fault = read(&bytes[..length]).unwrap_err();
            let Place::Offset(offset) = fault.place else {
                panic!("{fault}");
            };
            assert!(offset <= bytes.len() as u64, "{length}: {fault}");
        }
    }

    #[test]
    fn wrong_numbers_are_named() {
        let bytes = write(&text::read(TEXT.as_bytes()).unwrap());
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            read(&bytes[..]).unwrap_err().to_string()
        };
        assert_eq!(with(8, 0), "offset 8: 0 ranks; there may be 1 to 65536");
        // The first operation is at 46 + 8 + 4.
        assert_eq!(
            with(58 + 4, 9),
            "offset 62: rank 0: 9 is no kind of operation (1, 2 or 3)"
        );
        assert_eq!(
            with(58, 7),
            "offset 58: rank 0: operation 0 says that it waits for 7 others, of which 0 name it"
        );
    }

    #[test]
    fn a_part_ends_where_the_table_says_and_nothing_follows() {
        let mut bytes = write(&text::read(TEXT.as_bytes()).unwrap());
        let length = bytes.len();
        bytes.push(0);
        assert_eq!(
            read(&bytes[..]).unwrap_err().to_string(),
            format!("offset {length}: bytes follow behind the last part")
        );
        // The end of the second part, which is behind its begin in the table.
        bytes[HEADER_BYTES as usize + 24] += 1;
        assert_eq!(
            read(&bytes[..]).unwrap_err().to_string(),
            format!(
                "offset {length}: rank 1: its part ends here, and the table says that it ends at \
                 offset {}",
                length + 1
            )
        );
    }

    /// As [`TEXT`], with two phases.
    fn with_phases() -> Program {
        let text = TEXT.replace("b: send", "// phase é-1\nb: send");
        let text = text
            .replace("c: calc", "// phase\nc: calc")
            .replace("a: recv", "// phase two\na: recv");
        text::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn phases_are_written_and_read() {
        let program = with_phases();
        let bytes = write(&program);
        let plain = write(&text::read(TEXT.as_bytes()).unwrap());
        assert_eq!(bytes[..plain.len()], plain);
        let read = goal::read(&bytes[..]).unwrap();
        assert_eq!(read.phases, ["é-1", "two"]);
        assert!(same(&program, &read), "{read:?}");
        for length in plain.len() + 1..bytes.len() {
            let fault = super::read(&bytes[..length]).unwrap_err();
            assert!(matches!(fault.place, Place::Offset(_)), "{length}: {fault}");
        }
    }

    #[test]
    fn faults_of_phases_have_their_place() {
        let bytes = write(&with_phases());
        let plain = write(&text::read(TEXT.as_bytes()).unwrap()).len();
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[plain + at] = value;
            read(&bytes[..]).unwrap_err().to_string()
        };
        // The mark, the number of names, `é-1` and `two`; then three runs of rank 0, one of rank 1.
        for (at, value, expected) in [
            (0, b'P', "offset 234: bytes follow behind the last part"),
            (10, 1, "offset 242: 65538 phases, above 65535"),
            (14, b' ', "offset 246: a phase is one word"),
            (14, 0xff, "offset 246: a phase is one word"),
            (
                27,
                0,
                "offset 261: rank 0: a phase of 0 operations, of 3 that follow",
            ),
            (
                27,
                4,
                "offset 261: rank 0: a phase of 4 operations, of 3 that follow",
            ),
            (37, 2, "offset 271: rank 0: phase 2 of 2"),
            (23, 2, "offset 257: rank 0: 1 operations without a phase"),
        ] {
            assert_eq!(with(at, value), expected);
        }
        let more = [&bytes[..], &[0]].concat();
        let found = read(&more[..]).unwrap_err().to_string();
        assert_eq!(
            found,
            format!("offset {}: bytes follow behind the phases", bytes.len())
        );
    }

    #[test]
    fn a_file_that_loggopsim_has_used_up_is_told() {
        let mut bytes = write(&text::read(TEXT.as_bytes()).unwrap());
        bytes[..8].copy_from_slice(&INVALID_COOKIE.to_le_bytes());
        let found = goal::read(&bytes[..]).unwrap_err().to_string();
        assert!(
            found.starts_with("offset 0: LogGOPSim has used this file up"),
            "{found}"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_readers(
            noise in prop::collection::vec((0usize..286, any::<u8>()), 0..6),
            cut in 0usize..350,
        ) {
            let mut bytes = write(&with_phases());
            for (at, value) in noise {
                bytes[at] = value;
            }
            bytes.truncate(cut);
            if let Ok(program) = goal::read(&bytes[..]) {
                let _ = crate::check::check(&program, 0);
            }
        }

        #[test]
        fn no_text_breaks_the_reader(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "num_ranks", "rank", "{", "}", "0", "1", "-1", "a", "b", ":", "send", "recv",
                    "calc", "requires", "irequires", "to", "from", "tag", "cpu", "nic", "\n", "//",
                    "/*", "*/", "é", "8b",
                ]),
                0..60,
            ),
        ) {
            let text = words.join(" ");
            if let Ok(program) = goal::read(text.as_bytes()) {
                let _ = crate::check::check(&program, 0);
            }
        }
    }
}
