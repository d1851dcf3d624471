//! GOAL as text. The grammar is that of LogGOPSim's `txt2bin` (github.com/spcl/LogGOPSim,
//! `txt2bin.re`):
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 100 cpu 0
//! l2: send 8b to 1 tag 5 cpu 0 nic 0
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 8b from 0 tag 5
//! }
//! ```
//! Labels are optional; `requires` waits for the end, `irequires` for the begin. A receive may say
//! `from -1` (any rank) and `tag -1` (any tag). `//` comments a line, `/* */` anything. Here ranks
//! may stand in any order, labels may be used before they are defined, and `nic` means nothing: a
//! rank has one. Tags count modulo 2^32 and CPUs modulo 256, as `txt2bin` stores them. The first
//! operation of a rank with a label keeps it, as there; later ones have none, which is noted.
//!
//! A line `// phase NAME` in a rank is a comment to others. Here the rank's operations behind it
//! are of the part NAME of the program, up to the next such line or to `// phase`.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::{self, BufRead, Write},
    mem,
    sync::Arc,
};

use super::{Fault, Place, labels::Labels, unreadable};
use crate::{
    ANY_SOURCE, ANY_TAG, Kind, NO_PHASE, OPERATIONS_MAX, Operation, Places, Program, RANKS_MAX,
    RankBuilder,
};

/// Begins a line that says to which part of the program operations belong.
const PHASE: &str = "// phase";

/// Longest line in bytes.
const LINE_MAX: usize = 1 << 16;

/// Reads a text.
///
/// # Errors
/// The first fault, with its line.
pub fn read(mut file: impl BufRead) -> Result<Program, Fault> {
    let mut reader = Reader {
        phase: NO_PHASE,
        ..Reader::default()
    };
    let mut line = Vec::new();
    loop {
        reader.line += 1;
        line.clear();
        let mut limited = std::io::Read::take(&mut file, LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut line);
        let bytes = read.map_err(|error| reader.fault(unreadable(&error)))?;
        if bytes == 0 {
            break;
        }
        if bytes > LINE_MAX {
            return Err(reader.fault(format!("the line is longer than {LINE_MAX} bytes")));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|_| reader.fault("the line is no text (UTF-8)".to_owned()))?;
        reader.read_line(text)?;
    }
    reader.finish()
}

/// Writes a program; each line of `head` becomes a comment before it.
///
/// # Errors
/// The file cannot be written.
pub fn write(program: &Program, head: &[String], file: &mut impl Write) -> io::Result<()> {
    for line in head {
        writeln!(file, "// {}", line.replace(['\n', '\r'], " "))?;
    }
    writeln!(file, "num_ranks {}", program.ranks.len())?;
    for (number, rank) in program.ranks.iter().enumerate() {
        writeln!(file, "rank {number} {{")?;
        write_rank(rank, &program.phases, file)?;
        writeln!(file, "}}")?;
    }
    Ok(())
}

fn write_rank(rank: &crate::Rank, phases: &[String], file: &mut impl Write) -> io::Result<()> {
    // (the one that waits, the one waited for, whether for its begin)
    let mut requirements = Vec::new();
    for before in 0..rank.operations().len() as u32 {
        let waiting = rank.dependents(before);
        requirements.extend(waiting.map(|one| (one.operation, before, one.of_begin)));
    }
    requirements.sort_unstable();
    let mut requirements = requirements.into_iter().peekable();
    let any = |number: u32| match number {
        u32::MAX => "-1".to_owned(),
        number => number.to_string(),
    };
    let mut phase = None;
    for (number, op) in (0u32..).zip(rank.operations()) {
        let own = phases.get(usize::from(op.phase));
        if own != phase {
            let name = own.map_or(String::new(), |name| format!(" {name}"));
            writeln!(file, "{PHASE}{name}")?;
            phase = own;
        }
        write!(file, "l{number}: ")?;
        match op.kind {
            Kind::Compute => write!(file, "calc {}", op.size)?,
            Kind::Send => write!(file, "send {}b to {} tag {}", op.size, op.peer, op.tag)?,
            Kind::Receive => {
                let (from, tag) = (any(op.peer), any(op.tag));
                write!(file, "recv {}b from {from} tag {tag}", op.size)?;
            }
        }
        match op.cpu {
            0 => writeln!(file)?,
            cpu => writeln!(file, " cpu {cpu}")?,
        }
        while let Some((_, before, of_begin)) = requirements.next_if(|one| one.0 == number) {
            let word = if of_begin { "irequires" } else { "requires" };
            writeln!(file, "l{number} {word} l{before}")?;
        }
    }
    Ok(())
}

/// A line `a requires b`. Of a rank they are kept up to its end, since `b` may be defined below.
struct Requirement {
    line: u32,
    /// The label that waits.
    waiting: u32,
    /// Twice the label that is waited for, plus one if for its begin.
    before: u32,
}

#[derive(Default)]
struct Reader {
    line: u32,
    in_comment: bool,
    /// Where the last comment in `/*` begins.
    comment_line: u32,
    phases: Vec<String>,
    phase_numbers: HashMap<String, u16>,
    /// Of the operations that follow.
    phase: u16,
    ranks: Vec<Option<Arc<crate::Rank>>>,
    rank: Option<u32>,
    own: RankBuilder,
    lines: Vec<u32>,
    labels: Labels,
    requirements: Vec<Requirement>,
    /// Labels that another operation of their rank had already, and the first of them with its
    /// place.
    repeated: u64,
    first_repeated: String,
}

/// What is left of a line: words, numbers (an 8 of `8b` is a word of its own) and signs.
#[derive(Clone)]
struct Words<'a>(&'a str);

/// 1 = of a number, 2 = of a word.
fn kind(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' | b'-' => 1,
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => 2,
        _ => 0,
    }
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.0.as_bytes();
        let begin = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let first = kind(bytes[begin]);
        let joins = |byte: u8| match first {
            1 => kind(byte) == 1,
            2 => kind(byte) == 2 || byte.is_ascii_digit(),
            // A sign that is not ASCII is taken as a whole, and with those behind it.
            _ => !byte.is_ascii(),
        };
        let rest = bytes[begin + 1..].iter();
        let length = 1 + rest.take_while(|byte| joins(**byte)).count();
        let (word, rest) = self.0[begin..].split_at(length);
        self.0 = rest;
        Some(word)
    }

    fn peek(&self) -> Option<&'a str> {
        self.clone().next()
    }

    fn skip(&mut self, word: &str) -> bool {
        let mut rest = self.clone();
        let there = rest.next() == Some(word);
        if there {
            *self = rest;
        }
        there
    }
}

impl Reader {
    fn fault(&self, reason: String) -> Fault {
        Fault {
            place: Place::Line(self.line),
            rank: self.rank,
            reason,
        }
    }

    fn expected(&self, what: &str, found: Option<&str>) -> Fault {
        let found = found.map_or("the end of the line".to_owned(), |word| format!("`{word}`"));
        self.fault(format!("expected {what}, found {found}"))
    }

    /// The line without its comments.
    fn uncomment<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        match self.in_comment || text.contains('/') {
            true => Cow::Owned(self.without_comments(text)),
            false => Cow::Borrowed(text),
        }
    }

    fn without_comments(&mut self, mut text: &str) -> String {
        let mut bare = String::new();
        loop {
            if self.in_comment {
                let Some(end) = text.find("*/") else {
                    return bare;
                };
                text = &text[end + 2..];
                self.in_comment = false;
            }
            let (line, block) = (text.find("//"), text.find("/*"));
            match (line, block) {
                (Some(line), block) if block.is_none_or(|block| line < block) => {
                    bare.push_str(&text[..line]);
                    return bare;
                }
                (_, Some(block)) => {
                    bare.push_str(&text[..block]);
                    bare.push(' ');
                    text = &text[block + 2..];
                    self.in_comment = true;
                    self.comment_line = self.line;
                }
                _ => {
                    bare.push_str(text);
                    return bare;
                }
            }
        }
    }

    /// `// phase NAME`, where NAME is one word.
    fn read_phase(&mut self, rest: &str) -> Result<(), Fault> {
        let mut words = rest.split_ascii_whitespace();
        let (name, more) = (words.next(), words.next());
        if more.is_some() || rest.starts_with(|c: char| !c.is_ascii_whitespace()) {
            return Ok(()); // another comment
        }
        let Some(name) = name else {
            self.phase = NO_PHASE;
            return Ok(());
        };
        if let Some(known) = self.phase_numbers.get(name) {
            self.phase = *known;
            return Ok(());
        }
        let next = self.phases.len();
        if next >= usize::from(NO_PHASE) {
            return Err(self.fault(format!("more than {NO_PHASE} phases")));
        }
        self.phase = next as u16;
        self.phases.push(name.to_owned());
        self.phase_numbers.insert(name.to_owned(), self.phase);
        Ok(())
    }

    fn read_line(&mut self, text: &str) -> Result<(), Fault> {
        if text.starts_with('/') && self.rank.is_some() && !self.in_comment {
            if let Some(rest) = text.strip_prefix(PHASE) {
                return self.read_phase(rest);
            }
        }
        let bare = self.uncomment(text);
        let mut words = Words(&bare);
        while let Some(word) = words.next() {
            match word {
                "num_ranks" => self.read_ranks(&mut words)?,
                "rank" if self.rank.is_none() => self.open(&mut words)?,
                "}" if self.rank.is_some() => self.close()?,
                _ if self.rank.is_some() => {
                    self.statement(word, &mut words)?;
                    match words.peek() {
                        None | Some("}") => {}
                        more => return Err(self.expected("the end of the line", more)),
                    }
                }
                _ => return Err(self.expected("`num_ranks` or `rank`", Some(word))),
            }
        }
        Ok(())
    }

    fn read_ranks(&mut self, words: &mut Words<'_>) -> Result<(), Fault> {
        let count = self.number(words, u64::from(RANKS_MAX))?;
        if count == 0 {
            return Err(self.fault("a program has one rank at least".to_owned()));
        }
        if !self.ranks.is_empty() {
            return Err(self.fault("`num_ranks` is said twice".to_owned()));
        }
        self.ranks = vec![None; count as usize];
        Ok(())
    }

    fn open(&mut self, words: &mut Words<'_>) -> Result<(), Fault> {
        let rank = self.number(words, u64::from(u32::MAX))?;
        if self.ranks.is_empty() {
            return Err(self.fault("`num_ranks` must come before the first rank".to_owned()));
        }
        match self.ranks.get(rank as usize) {
            Some(None) => {}
            Some(Some(_)) => return Err(self.fault(format!("rank {rank} is there twice"))),
            None => {
                let last = self.ranks.len() - 1;
                let reason = format!("there is no rank {rank}: the file has ranks 0 to {last}");
                return Err(self.fault(reason));
            }
        }
        self.rank = Some(rank as u32);
        match words.next() {
            Some("{") => Ok(()),
            found => Err(self.expected("`{`", found)),
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        let line = self.line;
        for one in mem::take(&mut self.requirements) {
            self.line = one.line;
            let waiting = self.labelled(one.waiting)?;
            let before = self.labelled(one.before >> 1)?;
            self.own.require(waiting, before, one.before & 1 == 1);
        }
        self.line = line;
        self.labels = Labels::default();
        self.phase = NO_PHASE;
        let mut own = mem::take(&mut self.own);
        let mut lines = mem::take(&mut self.lines);
        lines.shrink_to_fit();
        own.set_places(Places::Lines(lines));
        if let Some(rank) = self.rank.take() {
            self.ranks[rank as usize] = Some(Arc::new(own.finish()));
        }
        Ok(())
    }

    fn labelled(&self, label: u32) -> Result<u32, Fault> {
        let known = self.labels.operation(label);
        known.ok_or_else(|| {
            let name = self.labels.name(label);
            self.fault(format!("no operation is labelled `{name}`"))
        })
    }

    fn label(&mut self, name: &str) -> Result<u32, Fault> {
        let number = self.labels.number(name);
        number.ok_or_else(|| self.fault("too many labels".to_owned()))
    }

    fn statement(&mut self, word: &str, words: &mut Words<'_>) -> Result<(), Fault> {
        if !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let known = "`send`, `recv`, `calc`, a label or `}`";
            return Err(self.expected(known, Some(word)));
        }
        match words.peek() {
            Some(":") => {
                words.next();
                let operation = words.next().unwrap_or_default();
                let number = self.operation(operation, words)?;
                let label = self.label(word)?;
                if !self.labels.define(label, number) {
                    self.repeat(word);
                }
                Ok(())
            }
            Some(requires @ ("requires" | "irequires")) => {
                words.next();
                let before = match words.next() {
                    Some(name) if name.starts_with(|c: char| c.is_ascii_alphabetic()) => name,
                    found => return Err(self.expected("a label", found)),
                };
                let (waiting, before) = (self.label(word)?, self.label(before)?);
                self.requirements.push(Requirement {
                    line: self.line,
                    waiting,
                    before: before << 1 | u32::from(requires == "irequires"),
                });
                Ok(())
            }
            found if !["send", "recv", "calc"].contains(&word) => {
                Err(self.expected("`:`, `requires` or `irequires`", found))
            }
            _ => self.operation(word, words).map(|_| ()),
        }
    }

    /// Counts a label that another operation has already.
    fn repeat(&mut self, label: &str) {
        if self.repeated == 0 {
            let rank = self.rank.unwrap_or(0);
            self.first_repeated = format!("`{label}` of rank {rank} at line {}", self.line);
        }
        self.repeated += 1;
    }

    fn operation(&mut self, word: &str, words: &mut Words<'_>) -> Result<u32, Fault> {
        let kind = match word {
            "send" => Kind::Send,
            "recv" => Kind::Receive,
            "calc" => Kind::Compute,
            found => return Err(self.expected("`send`, `recv` or `calc`", Some(found))),
        };
        let mut operation = Operation {
            size: self.number(words, i64::MAX as u64)?,
            peer: 0,
            tag: 0,
            requires: 0,
            phase: self.phase,
            cpu: 0,
            kind,
        };
        if kind != Kind::Compute {
            self.partner(words, &mut operation)?;
        }
        loop {
            if kind != Kind::Compute && words.skip("tag") {
                operation.tag = match kind == Kind::Receive && words.skip("-1") {
                    true => ANY_TAG,
                    false => self.tag(words)?,
                };
            } else if words.skip("cpu") {
                operation.cpu = self.number(words, u64::MAX)? as u8;
            } else if kind != Kind::Compute && words.skip("nic") {
                self.number(words, u64::MAX)?;
            } else {
                break;
            }
        }
        if self.own.len() >= OPERATIONS_MAX {
            return Err(self.fault(format!("more than {OPERATIONS_MAX} operations")));
        }
        self.lines.push(self.line);
        Ok(self.own.add(operation))
    }

    /// A tag modulo 2^32, which is not the one that means any.
    fn tag(&self, words: &mut Words<'_>) -> Result<u32, Fault> {
        let tag = self.number(words, u64::MAX)?;
        match tag as u32 {
            ANY_TAG => Err(self.fault(format!(
                "tag {tag} is {ANY_TAG} modulo 2^32, which means any tag"
            ))),
            own => Ok(own),
        }
    }

    /// `b to 1`, `b from 0`.
    fn partner(&self, words: &mut Words<'_>, operation: &mut Operation) -> Result<(), Fault> {
        match words.next() {
            Some("b") => {}
            found => return Err(self.expected("`b` (bytes)", found)),
        }
        let way = match operation.kind {
            Kind::Send => "to",
            _ => "from",
        };
        match words.next() {
            Some(word) if word == way => {}
            found => return Err(self.expected(&format!("`{way}`"), found)),
        }
        operation.peer = match operation.kind == Kind::Receive && words.skip("-1") {
            true => ANY_SOURCE,
            false => self.number(words, u64::from(ANY_SOURCE - 1))? as u32,
        };
        Ok(())
    }

    fn number(&self, words: &mut Words<'_>, most: u64) -> Result<u64, Fault> {
        let word = words.next();
        let digits = word.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(digits) = digits else {
            return Err(self.expected("a number", word));
        };
        let number = digits.parse().ok().filter(|number| *number <= most);
        number.ok_or_else(|| self.fault(format!("{digits} is above {most}")))
    }

    fn finish(mut self) -> Result<Program, Fault> {
        if self.in_comment {
            self.line = self.comment_line;
            return Err(self.fault("the comment that begins here does not end".to_owned()));
        }
        if self.rank.is_some() {
            return Err(self.fault("the file ends before the `}` of this rank".to_owned()));
        }
        if self.ranks.is_empty() {
            return Err(self.fault("there is no `num_ranks`".to_owned()));
        }
        let missing = self.ranks.iter().position(Option::is_none);
        if let Some(rank) = missing {
            return Err(self.fault(format!("rank {rank} is missing")));
        }
        let of_labels = (self.repeated > 0).then(|| {
            let (count, first) = (self.repeated, &self.first_repeated);
            format!(
                "labels that another operation of the rank had before: {count}, the first of them \
                 {first}; the earlier operation keeps a label, as in LogGOPSim's txt2bin"
            )
        });
        Ok(Program {
            ranks: mem::take(&mut self.ranks).into_iter().flatten().collect(),
            phases: self.phases,
            notes: of_labels.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dependent;

    fn reason(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_text_is_read() {
        let text = "/* two\nranks */ num_ranks 2 // so many\nrank 1 { recv 8 b from -1 tag -1 }\n\
            rank 0 {\r\nl2: send 8b to 1 tag 5 cpu 1 nic 2\nl2 requires l1\nl1: calc 100 cpu 3\nl1 irequires l2\n}\n";
        let program = read(text.as_bytes()).unwrap();
        let [first, second] = &program.ranks[..] else {
            panic!("{program:?}");
        };
        assert_eq!(first.describe(0), "send of 8 B to rank 1, tag 5 at line 5");
        assert_eq!(first.describe(1), "computation of 100 ns at line 7");
        assert_eq!(
            (first.operations()[0].cpu, first.operations()[1].cpu),
            (1, 3)
        );
        let dependent = |operation, of_begin| Dependent {
            operation,
            of_begin,
        };
        assert_eq!(
            first.dependents(1).collect::<Vec<_>>(),
            [dependent(0, false)]
        );
        assert_eq!(
            first.dependents(0).collect::<Vec<_>>(),
            [dependent(1, true)]
        );
        assert_eq!(
            second.describe(0),
            "receive of 8 B from any rank, any tag at line 3"
        );
    }

    /// The generator of ATLAHS for NCCL writes the index of a chunk and nine digits, and a CPU for
    /// each stream.
    #[test]
    fn tags_and_cpus_wrap_as_in_the_binary_form() {
        let text = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 17000000003 cpu 300 nic 900\n}\n\
            rank 1 {\nl1: recv 8b from 0 tag 17000000003 cpu 44\n}\n";
        let program = read(text.as_bytes()).unwrap();
        for rank in &program.ranks {
            let operation = rank.operations()[0];
            assert_eq!(operation.tag, (17_000_000_003_u64 % (1 << 32)) as u32);
            assert_eq!(operation.cpu, 44);
        }
        assert_eq!(crate::check::check(&program, 0), Ok(()));
    }

    /// As `txt2bin` has it, whose table of labels takes no second entry of a name.
    #[test]
    fn the_first_operation_with_a_label_keeps_it_and_a_note_says_so() {
        let text = "num_ranks 2\nrank 0 {\nb requires a\na: calc 5\nb: calc 6\na: calc 7\n\
            c: calc 8\nc requires a\nb: calc 9\n}\nrank 1 {\na: calc 1\nb: calc 2\n}\n";
        let program = read(text.as_bytes()).unwrap();
        let rank = &program.ranks[0];
        let waiting = |at| -> Vec<u32> { rank.dependents(at).map(|one| one.operation).collect() };
        assert_eq!(
            [0, 1, 2, 3, 4].map(waiting),
            [vec![1, 3], vec![], vec![], vec![], vec![]]
        );
        assert_eq!(
            program.notes,
            [
                "labels that another operation of the rank had before: 2, the first of them `a` of \
                 rank 0 at line 6; the earlier operation keeps a label, as in LogGOPSim's txt2bin"
            ]
        );
        let once = text
            .replace("a: calc 7", "calc 7")
            .replace("b: calc 9", "calc 9");
        let once = read(once.as_bytes()).unwrap();
        assert!(once.notes.is_empty(), "{:?}", once.notes);
        assert_eq!(once.digest(), program.digest());
    }

    #[test]
    fn phases_are_written_and_read() {
        let text = "num_ranks 2\nrank 0 {\ncalc 5\n// phase a-1\nsend 8b to 1\n// phase\ncalc 6\n}\n\
            rank 1 {\n// phases come\ncalc 1\n// phase b\ncalc 2 // phase a-1\n\
            // phase a-1 goes on\n// phase a-1\nrecv 8b from 0\n}\n";
        let program = read(text.as_bytes()).unwrap();
        let phases = |program: &Program| -> Vec<Vec<u16>> {
            let of = |rank: &Arc<crate::Rank>| {
                let operations = rank.operations().iter();
                operations.map(|op| op.phase).collect()
            };
            program.ranks.iter().map(of).collect()
        };
        assert_eq!(program.phases, ["a-1", "b"]);
        assert_eq!(
            phases(&program),
            [[NO_PHASE, 0, NO_PHASE], [NO_PHASE, 1, 0]]
        );
        let mut written = Vec::new();
        write(&program, &[], &mut written).unwrap();
        let again = read(&written[..]).unwrap();
        assert_eq!(again.phases, program.phases);
        assert_eq!(phases(&again), phases(&program));
    }

    #[test]
    fn faults_have_their_line_and_rank() {
        for (text, expected) in [
            ("", "1: there is no `num_ranks`"),
            (
                "rank 0 {\n}",
                "1: `num_ranks` must come before the first rank",
            ),
            (
                "num_ranks 1\nrank 1 {\n}",
                "2: there is no rank 1: the file has ranks 0 to 0",
            ),
            ("num_ranks 2\nrank 0 {\n}\n", "4: rank 1 is missing"),
            (
                "num_ranks 1\nrank 0 {\n",
                "3: rank 0: the file ends before the `}` of this rank",
            ),
            (
                "num_ranks 1\nrank 0 {\ncalc 5\n/* why\ncalc 6\n}\n",
                "4: rank 0: the comment that begins here does not end",
            ),
            (
                "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 8589934591\n}",
                "3: rank 0: tag 8589934591 is 4294967295 modulo 2^32, which means any tag",
            ),
            (
                "num_ranks 1\nrank 0 {\na requires b\n}",
                "3: rank 0: no operation is labelled `a`",
            ),
            (
                "num_ranks 1\nrank 0 {\nsend 8 to 1\n}",
                "3: rank 0: expected `b` (bytes), found `to`",
            ),
            (
                "num_ranks 1\nrank 0 {\nsend 8b from 1\n}",
                "3: rank 0: expected `to`, found `from`",
            ),
            (
                "num_ranks 1\nrank 0 {\ncalc -1\n}",
                "3: rank 0: expected a number, found `-1`",
            ),
            (
                "num_ranks 1\nrank 0 {\ncalc 5 6\n}",
                "3: rank 0: expected the end of the line, found `6`",
            ),
            ("num_ranks 70000\n", "1: 70000 is above 65536"),
            (
                "num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}",
                "3: rank 0: 99999999999999999999 is above 9223372036854775807",
            ),
        ] {
            assert_eq!(reason(text), expected, "{text}");
        }
    }
}
