//! The output of the command, and its exit codes.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use sluicegate_agent::log;
use sluicegate_config::Problems;
use sluicegate_report::Style;

/// Why the command does not exit with 0.
#[derive(Debug)]
pub enum Failure {
    /// It could not do its work.
    Failed(anyhow::Error),
    /// A file is wrong, or the arguments do not fit it.
    BadInput(String),
    /// It ran, but `--check` is not satisfied: one line each.
    NotHeld(Vec<String>),
    /// Only a restart of what runs does it.
    NeedsRestart(String),
    /// The user asked to stop.
    Interrupted,
    /// The reader of the output has closed it.
    PipeClosed,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Self::BadInput(problems.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            _ => Self::Failed(error.into()),
        }
    }
}

/// Prints to standard output.
///
/// # Errors
/// [`Failure::PipeClosed`] once the reader has gone.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// How tables may be drawn on standard output.
pub fn style() -> Style {
    let size = console::Term::stdout().size_checked();
    Style::of_stdout(size.map(|(_, columns)| columns.into()))
}

/// Turns the outcome of a command into its exit code, saying on standard error what went wrong.
pub fn finish(result: Result<(), Failure>) -> ExitCode {
    let code = finish_by(result);
    log::flush();
    code
}

fn finish_by(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else {
        return ExitCode::SUCCESS;
    };
    let (code, text) = match failure {
        Failure::Failed(error) => (1, format!("{}{error:#}", label("error"))),
        Failure::BadInput(text) => (2, text),
        Failure::NotHeld(lines) => (
            3,
            format!("{}{}", label("check failed"), lines.join("\n  ")),
        ),
        Failure::NeedsRestart(text) => (4, format!("{}{text}", label("error"))),
        Failure::Interrupted => (130, "interrupted".to_owned()),
        Failure::PipeClosed => return ExitCode::SUCCESS,
    };
    say(&text);
    ExitCode::from(code)
}

/// A line on standard error, where it can be written; behind those of the log, if there is one.
pub fn say(line: &str) {
    let line = format!("{line}\n");
    if log::has_begun() {
        log::add(line.as_bytes());
    } else {
        // A reader that has gone or a full disk is no reason to end.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

fn label(text: &str) -> String {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour {
        format!("\x1b[1;31m{text}:\x1b[0m ")
    } else {
        format!("{text}: ")
    }
}

/// Help and version go to standard output with code 0, wrong usage to standard error with code 2.
pub fn usage(error: &clap::Error) -> ExitCode {
    // A closed pipe behind --help is not worth a word.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
