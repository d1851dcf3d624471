//! Warnings: policies that are allowed and probably not meant.

use std::fmt;

use sluicegate_config::Problem;

/// A part of a policy that is allowed and probably not meant, or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// How much it matters.
    pub weight: Weight,
    /// The warning and its place.
    pub problem: Problem,
    /// Lines to add to the file; may be empty.
    pub snippet: String,
}

impl Warning {
    /// As people read it: `warning: ` or `note: `, what it is, and below it what to add.
    pub fn text(&self) -> String {
        let weight = match self.weight {
            Weight::Warning => "warning",
            Weight::Note => "note",
        };
        let lines = self.snippet.lines().map(|line| format!("    {line}\n"));
        format!("{weight}: {}\n{}", self.problem, lines.collect::<String>())
    }
}

/// One line, without what to add.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)
    }
}

/// How much a [`Warning`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The policy probably does not do what it is for.
    Warning,
    /// The policy does what it says, and that leaves something open.
    Note,
}
