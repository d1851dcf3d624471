//! Problems with a file: the error, its place, and advice.

use std::{cell::RefCell, collections::BTreeSet, fmt, path::Path};

use crate::document::Place;

/// One error in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// File as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Dotted path of the key, such as `rule[1].beta`; empty for syntax errors.
    pub key: String,
    /// The error.
    pub reason: String,
    /// Advice; may be empty where the reason implies it.
    pub advice: String,
}

impl Problem {
    /// A problem of a file as a whole: its line and column are 1, its key is empty.
    pub fn of_file(path: &Path, complaint: Complaint) -> Self {
        Self {
            file: path.display().to_string(),
            line: 1,
            column: 1,
            ..Self::of_key("", complaint)
        }
    }

    /// A problem of a key that no file has: without a file, its line and column are 0.
    pub fn of_key(key: &str, complaint: Complaint) -> Self {
        Self {
            file: String::new(),
            line: 0,
            column: 0,
            key: key.to_owned(),
            reason: complaint.reason,
            advice: complaint.advice,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.reason)?;
        if !self.advice.is_empty() {
            write!(f, "; {}", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Every error found in a file; never empty when returned as an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

/// The reason and advice of a problem whose place is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The error.
    pub reason: String,
    /// Advice.
    pub advice: String,
}

impl Complaint {
    /// From both parts.
    pub fn new(reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.advice)
    }
}

impl std::error::Error for Complaint {}

/// Collects errors while a file is being read.
#[derive(Debug, Default)]
pub struct Sink {
    problems: RefCell<Vec<Problem>>,
    words: Option<RefCell<BTreeSet<String>>>,
}

impl Sink {
    /// One that also lists the language, as far as it is read: [`Sink::words`].
    pub fn listing() -> Self {
        Self {
            words: Some(RefCell::default()),
            ..Self::default()
        }
    }

    /// The dotted path of every key that a reader asked for, and `KEY = "WORD"` for every word that
    /// it would have understood; empty unless this is [`Sink::listing`].
    pub fn words(&self) -> BTreeSet<String> {
        let words = self.words.as_ref();
        words.map_or_else(BTreeSet::new, |words| words.borrow().clone())
    }

    /// Lists a word of the language, if words are listed.
    pub(crate) fn list(&self, word: impl FnOnce() -> String) {
        if let Some(words) = &self.words {
            words.borrow_mut().insert(word());
        }
    }

    /// Records an error of the value at `place`, known as `key`.
    pub fn report(&self, place: &Place, key: &str, complaint: Complaint) {
        let problem = place.problem(key, complaint);
        self.problems.borrow_mut().push(problem);
    }

    /// Adds errors that were found elsewhere, such as in a file that this one names.
    pub fn extend(&self, problems: Problems) {
        self.problems.borrow_mut().extend(problems.0);
    }

    /// `value` if nothing was reported, else every error in the order of the file.
    pub fn finish<T>(self, value: T) -> Result<T, Problems> {
        let mut problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(value);
        }
        problems.sort();
        problems.dedup();
        Err(Problems(problems))
    }
}
