//! `sluicegate lab`.

use clap::Subcommand;

use crate::output::{self, Failure};

/// Looking after the lab world.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Remove whatever a crashed run left: processes, namespaces, changed kernel parameters
    Clean,
}

/// Runs `sluicegate lab …`.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Clean => clean(),
    }
}

fn clean() -> Result<(), Failure> {
    let report = sluicegate_lab::clean()?;
    let mut text = String::new();
    for line in &report.done {
        text += &format!("{line}\n");
    }
    if report.runs == 0 {
        text += "nothing to clean\n";
    }
    output::print(&text)?;
    if report.failed.is_empty() {
        return Ok(());
    }
    Err(anyhow::anyhow!(
        "could not remove everything:\n  {}",
        report.failed.join("\n  ")
    )
    .into())
}
