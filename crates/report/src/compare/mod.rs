//! Results of two or more directories side by side: other worlds, seeds, versions, policies.
//!
//! The first directory, A, is the reference. [`compare`] matches scenarios and variants by name and
//! makes a [`Comparison`], which is also the JSON; [`text`], [`html()`] and [`agreement()`] show
//! it.

mod agreement;
mod check;
mod contest;
mod grids;
mod model;
mod page;
mod scenario_file;
mod text;
mod tolerance;

use sluicegate_scenario::results::Results;

pub use agreement::agreement;
pub use contest::{Contest, Pair};
pub use model::{
    Comparison, Difference, Measured, Origin, SCHEMA, Scenario, SideName, Unmatched, Variant,
    compare,
};
pub use page::html;
pub use text::text;
pub use tolerance::{Tolerance, Tolerances};

/// The contents of one directory.
#[derive(Clone, Debug)]
pub struct Side {
    /// The directory as the user named it.
    pub directory: String,
    /// One entry per scenario.
    pub runs: Vec<Run>,
}

/// A scenario's results and the file that was run.
#[derive(Clone, Debug)]
pub struct Run {
    /// As `results.json` has them; with samples where CDFs are to be drawn.
    pub results: Results,
    /// The text of `scenario.toml`, if it is there.
    pub as_run: Option<String>,
}
