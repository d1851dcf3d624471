//! The features of this kernel, machine and its interfaces, and the price of each "no".
//!
//! Where it can, the doctor tries instead of asking for a version: it loads small programs and
//! attaches one inside a namespace of its own, which vanishes with it.

mod interface;
pub(crate) mod kernel;
mod machine;
mod uncovered;

use anyhow::Result;
use serde::Serialize;

pub use interface::{InterfaceReport, Offloads};
pub use uncovered::Uncovered;

use crate::interfaces::{self, Patterns};

/// The answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is there.
    Yes,
    /// It is not.
    No,
    /// It could not be tried, for lack of rights.
    Unknown,
}

/// The parts that need a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// The agent cannot enforce without.
    Enforce,
    /// The lab world cannot run some or all scenarios without.
    Lab,
    /// Nothing fails without, something is worse.
    Comfort,
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable name, `[a-z-]+`.
    pub id: &'static str,
    /// The answer.
    pub verdict: Verdict,
    /// The part that needs it.
    pub need: Need,
    /// The finding, for people.
    pub detail: String,
    /// With [`Verdict::No`] or [`Verdict::Unknown`]: what does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<&'static str>,
    /// With [`Verdict::No`] or [`Verdict::Unknown`]: how to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// A question, the price of a "no", and the way to a "yes".
#[derive(Clone, Copy, Debug)]
struct Question {
    id: &'static str,
    need: Need,
    cost: &'static str,
    remedy: &'static str,
}

impl Question {
    fn yes(self, detail: impl Into<String>) -> Finding {
        Finding {
            id: self.id,
            verdict: Verdict::Yes,
            need: self.need,
            detail: detail.into(),
            cost: None,
            remedy: None,
        }
    }

    fn no(self, detail: impl Into<String>) -> Finding {
        Finding {
            verdict: Verdict::No,
            cost: Some(self.cost),
            remedy: Some(self.remedy.to_owned()),
            ..self.yes(detail)
        }
    }

    fn unknown(self, detail: impl Into<String>) -> Finding {
        Finding {
            verdict: Verdict::Unknown,
            ..self.no(detail)
        }
    }

    /// `yes` with the value, `no` with the error.
    fn of(self, outcome: Result<String>) -> Finding {
        match outcome {
            Ok(detail) => self.yes(detail),
            Err(error) => self.no(first_line(&format!("{error:#}"))),
        }
    }
}

/// Everything that the doctor has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Kernel release.
    pub kernel: String,
    /// CPUs online.
    pub cpus: usize,
    /// True if the agent can enforce here.
    pub can_enforce: bool,
    /// Kernel and machine.
    pub findings: Vec<Finding>,
    /// Interfaces of the current network namespace that the patterns cover.
    pub interfaces: Vec<InterfaceReport>,
    /// Tenants and processes whose packets pass no hook of the agent.
    pub uncovered: Vec<Uncovered>,
}

/// The tenants and processes of the calling thread's network namespace whose packets pass no hook
/// of the agent.
///
/// # Errors
/// The kernel does not list its interfaces.
pub fn uncovered() -> Result<Vec<Uncovered>> {
    Ok(uncovered::uncovered(&interfaces::list()?))
}

/// Examines kernel, machine and the interfaces of the calling thread's network namespace.
///
/// # Errors
/// The kernel does not list its interfaces; everything else is a finding.
pub fn examine(patterns: &Patterns) -> Result<Report> {
    let mut findings = kernel::findings();
    findings.extend(machine::findings());
    let can_enforce = findings
        .iter()
        .filter(|finding| finding.need == Need::Enforce)
        .all(|finding| finding.verdict == Verdict::Yes);
    Ok(Report {
        kernel: kernel::release(),
        cpus: machine::cpus(),
        can_enforce,
        findings,
        interfaces: interface::reports(patterns)?,
        uncovered: uncovered()?,
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_cut_to_their_first_line() {
        assert_eq!(first_line("a\nb"), "a");
        assert_eq!(first_line(""), "");
    }
}
