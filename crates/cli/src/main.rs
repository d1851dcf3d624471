//! The sluicegate command.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | it ran |
//! | 1 | it failed |
//! | 2 | wrong usage, a file with errors, or one that the world cannot run on any machine |
//! | 3 | it ran, and `--check` found an expectation that did not hold, a run that cannot be trusted, or results too far apart |
//! | 4 | a running switch can only be restarted |
//! | 130 | interrupted |

mod agent;
mod columns;
mod compare;
mod descriptors;
mod detach;
mod doctor;
mod flows;
mod flowtable;
mod interrupt;
mod lab;
mod log;
mod manual;
mod metrics;
mod output;
mod policy;
mod published;
mod run;
mod sensitivity;
mod source;
mod sweep;
mod switch;
mod top;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sluicegate_agent::file;

/// Congestion control that belongs to the operator.
#[derive(Debug, Parser)]
#[command(
    name = "sluicegate",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 it ran, 1 it failed, 2 wrong usage or a file with errors, 3 a check did not hold, 4 a running switch can only be restarted, 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario and compare its variants
    Run(run::Args),
    Sweep(sweep::Args),
    Compare(compare::Args),
    Published(published::Args),
    Sensitivity(sensitivity::Args),
    Trace(trace::Args),
    /// Check or explain a policy file
    #[command(subcommand)]
    Policy(policy::Command),
    /// Look after the lab world
    #[command(subcommand)]
    Lab(lab::Command),
    /// Run the userspace switch, or ask one that runs
    #[command(subcommand)]
    Switch(switch::Command),
    Agent(agent::Args),
    Flows(flows::Args),
    Top(top::Args),
    Metrics(metrics::Args),
    Detach(detach::Args),
    Doctor(doctor::Args),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example: sluicegate completions bash > /etc/bash_completion.d/sluicegate"
    )]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    Man(manual::Args),
}

fn main() -> ExitCode {
    file::outlive_size_limit();
    sluicegate_lab::tenant::maybe_run_tenant();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    let result = match &cli.command {
        Command::Run(args) => run::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Published(args) => published::run(args),
        Command::Sensitivity(args) => sensitivity::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Policy(command) => policy::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Switch(command) => switch::run(command),
        Command::Agent(args) => agent::run(args),
        Command::Flows(args) => flows::run(args),
        Command::Top(args) => top::run(args),
        Command::Metrics(args) => metrics::run(args),
        Command::Detach(args) => detach::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions { shell } => manual::completions(*shell, Cli::command()),
        Command::Man(args) => manual::run(args, Cli::command()),
    };
    output::finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
