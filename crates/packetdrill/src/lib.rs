//! An interpreter for packetdrill scripts.
//!
//! ```text
//!  text ──lexer──▶ tokens ──parser──▶ Script ──runner──▶ Verdict
//!                                       │                  ▲
//!                       options, shell ─┴─▶ machine ──▶ host: sockets, one Endpoint, virtual time
//! ```
//!
//! A script says what an application does, what the network delivers, and what has to leave, and
//! when. One [`sluicegate_tcp::Endpoint`] plays the kernel's part, so that time is virtual and a
//! run takes no time at all. What a script asks for and the interpreter does not know makes the
//! script unsupported, never failed. `docs/packetdrill.md` lists what is understood.

mod assertion;
mod calls;
mod conditional;
mod expected;
mod fast_open;
mod host;
mod icmp;
mod info;
#[cfg(target_os = "linux")]
mod kernel;
mod lexer;
mod machine;
mod memory;
mod model;
mod notices;
mod packet;
mod parser;
mod record;
mod runner;
mod socket;
mod stamps;
mod time;

use std::fmt;

/// Settings of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Options as in a script, `("tolerance_usecs", "10000")`; they win over the script's own.
    pub options: Vec<(String, String)>,
    /// A script without `--ip_version` is one of IPv6 on an interface with an MTU of 1520, as for
    /// runners of the public suites: the MSS is that of IPv4 with 1500.
    pub ipv6: bool,
    /// Words that stand for something else in every script.
    pub defines: Vec<(String, String)>,
    /// The kernel that the endpoint plays, `linux` or `freebsd9`; `None`: as the script's
    /// parameters are called.
    pub stack: Option<String>,
    /// Segments that leave before the last event and that no line expects are a failure too.
    pub strict: bool,
    /// PSH is compared. It follows from how an application's writes were buffered (RFC 9293
    /// 3.9.1.2), and scripts show it as one kernel's segmentation offload leaves it.
    pub compare_psh: bool,
}

impl Settings {
    /// Refuses settings with which no script could run: an unknown option, an invalid value.
    ///
    /// # Errors
    /// In words, the first of them.
    pub fn check(&self) -> Result<(), String> {
        let known = ["linux", "freebsd9"];
        if let Some(stack) = self.stack.as_deref().filter(|it| !known.contains(it)) {
            return Err(format!("{stack:?} is no stack: linux or freebsd9"));
        }
        let nothing = model::Script::default();
        match machine::Machine::new(&nothing, self) {
            Ok(_) => Ok(()),
            Err(Stop::Fail(problem) | Stop::Unsupported(problem)) => Err(problem.text),
        }
    }
}

/// The outcome of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was as it says.
    Pass,
    /// Something was not.
    Fail(Problem),
    /// It asks for something that the interpreter, or the endpoint, does not know.
    Unsupported(Problem),
}

/// Why a script did not pass, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the script, from 1.
    pub line: usize,
    /// In words.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.text)
    }
}

/// How a step ends that does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    Fail(Problem),
    Unsupported(Problem),
}

type Step<T = ()> = Result<T, Stop>;

/// Characters of a reason at most.
const REASON_CHARS: usize = 120;

impl Stop {
    fn fail<T>(line: usize, text: impl Into<String>) -> Step<T> {
        let text = text.into();
        Err(Self::Fail(Problem { line, text }))
    }

    fn unsupported<T>(line: usize, text: impl Into<String>) -> Step<T> {
        let text = shortened(&text.into());
        Err(Self::Unsupported(Problem { line, text }))
    }
}

/// The beginning of a text in one line: text that is not understood may be pages long.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Reads the script `text`.
fn read(text: &str, settings: &Settings) -> Step<model::Script> {
    let active = conditional::resolve(text, settings)?;
    let script = parser::parse(&active, &settings.defines)?;
    if script.events.is_empty() {
        let lines = text.lines().count().max(1);
        return Stop::unsupported(lines, "there is no event in it that could pass or fail");
    }
    Ok(script)
}

/// Runs the script `text`.
pub fn check(text: &str, settings: &Settings) -> Verdict {
    let result = read(text, settings).and_then(|script| runner::run(&script, settings));
    match result {
        Ok(()) => Verdict::Pass,
        Err(Stop::Fail(problem)) => Verdict::Fail(problem),
        Err(Stop::Unsupported(problem)) => Verdict::Unsupported(problem),
    }
}

/// A script on the endpoint beside the same on this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Both did the same, as far as the script cares for it.
    Same,
    /// The first thing that they did differently, each time that it was tried.
    Differs(Problem),
    /// One of them cannot run it.
    NotRun(Problem),
}

/// How often a difference is tried again: others may have had the CPU.
#[cfg(target_os = "linux")]
const TRIES: usize = 3;
/// What a time may be off by at least, on a machine that others use, in ns.
pub const SLACK_NS: u64 = 15_000_000;

/// Runs the script `text` on the endpoint and on this kernel's TCP, which takes as long as it says;
/// its commands run in `folder`. Times may differ by the script's tolerance, and at least by
/// `slack_ns`. Needs root.
#[cfg(target_os = "linux")]
pub fn against_kernel(
    text: &str,
    settings: &Settings,
    folder: &std::path::Path,
    slack_ns: u64,
) -> Comparison {
    let script = match read(text, settings) {
        Ok(script) => script,
        Err(Stop::Fail(problem) | Stop::Unsupported(problem)) => {
            return Comparison::NotRun(problem);
        }
    };
    let (ours, machine) = match runner::observe(&script, settings) {
        Ok(run) => run,
        Err(Stop::Fail(problem) | Stop::Unsupported(problem)) => {
            let text = format!("ours: {}", problem.text);
            return Comparison::NotRun(Problem { text, ..problem });
        }
    };
    if machine.stack != machine::Stack::Linux {
        let text = "a script of another kernel".to_owned();
        return Comparison::NotRun(Problem { line: 1, text });
    }
    let mut difference = None;
    for _ in 0..TRIES {
        let kernel = match kernel::observe(&script, settings, &machine, folder) {
            Ok(record) => record,
            Err(problem) => {
                let text = format!("kernel: {}", problem.text);
                return Comparison::NotRun(Problem { text, ..problem });
            }
        };
        let slack = |after_ns| machine.tolerance(after_ns).max(slack_ns);
        match ours.first_difference(&kernel, slack) {
            None => return Comparison::Same,
            Some(problem) => difference = Some(problem),
        }
    }
    difference.map_or(Comparison::Same, Comparison::Differs)
}
