//! `sluicegate published`.

use std::path::{Path, PathBuf};

use crate::{
    compare,
    output::{self, Failure},
    run::files,
};

const EXAMPLES: &str = "\
Examples:
  sluicegate published out/experiments/sim --out out/experiments
  sluicegate published out/incast out/stacks

A DIR holds the results.json of one scenario, or directories that do. What a scenario says of
its published figures is in its [published]: see docs/scenarios.md.";

/// Lay published figures beside ours: one page with a verdict and a cause for each
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with results
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Directory for published.md, instead of standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs `sluicegate published`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut all = Vec::new();
    for directory in &args.directories {
        for place in compare::places(directory)? {
            all.push(compare::load(&place, false)?.results);
        }
    }
    let page = sluicegate_report::published(&all.iter().collect::<Vec<_>>());
    match &args.out {
        None => output::print(&page),
        Some(out) => write(out, &page),
    }
}

fn write(out: &Path, page: &str) -> Result<(), Failure> {
    files::make(out)?;
    files::put(out, "published.md", page.as_bytes())?;
    output::say(&format!(
        "published figures in {}",
        out.join("published.md").display()
    ));
    Ok(())
}
