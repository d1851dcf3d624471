//! `sluicegate man` and `sluicegate completions`: what the command line says of itself, for other
//! programs.

use std::{fs, path::PathBuf};

use anyhow::Context;

use crate::output::{self, Failure};

/// Write the manual as man pages
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: sluicegate man | man -l -")]
pub struct Args {
    /// One file for the command and for each subcommand [default: the command's to standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints one page, or writes all.
pub fn run(args: &Args, command: clap::Command) -> Result<(), Failure> {
    let command = command.disable_help_subcommand(true);
    let Some(directory) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return output::print(&String::from_utf8_lossy(&page));
    };
    let context = || format!("writing man pages to {}", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    Ok(clap_mangen::generate_to(command, directory).with_context(context)?)
}

/// Prints a completion script.
pub fn completions(shell: clap_complete::Shell, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "sluicegate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
