//! Files in GOAL, the Group Operation Assembly Language: as text ([`text`]) and in the binary form
//! that LogGOPSim's `txt2bin` makes of it ([`binary`]).
//!
//! Both are read once from front to back; nothing but the program itself is kept.

pub mod binary;
mod labels;
pub mod text;

use std::{
    fmt,
    io::{self, BufRead},
};

use crate::Program;

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Line of a text, from 1.
    Line(u32),
    /// Offset in bytes.
    Offset(u64),
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// The rank whose part of the file it is, if any.
    pub rank: Option<u32>,
    /// What.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line(line) => write!(f, "{line}: ")?,
            Place::Offset(offset) => write!(f, "offset {offset}: ")?,
        }
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}: ")?;
        }
        write!(f, "{}", self.reason)
    }
}

/// Reads a file in either form; the binary one begins with a number that no text begins with.
///
/// # Errors
/// The first fault.
pub fn read(mut file: impl BufRead) -> Result<Program, Fault> {
    let begin = file.fill_buf().map_err(|error| Fault {
        place: Place::Offset(0),
        rank: None,
        reason: unreadable(&error),
    })?;
    let is_binary = begin.starts_with(&binary::COOKIE.to_le_bytes()[..2])
        || begin.starts_with(&binary::INVALID_COOKIE.to_le_bytes());
    match is_binary {
        true => binary::read(file),
        false => text::read(file),
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}
