//! Ctrl-C and SIGTERM: the run under way is taken down in order.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use sluicegate_scenario::world::Observer;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler.
///
/// # Errors
/// The handler cannot be installed.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| REQUESTED.store(true, Ordering::SeqCst)).context("cannot handle signals")
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Asks the lab to stop after a signal.
pub struct Stopping;

impl Observer for Stopping {
    fn phase(&mut self, _: &str) {}
    fn progress(&mut self, _: Duration, _: Duration, _: &str) {}
    fn note(&mut self, line: &str) {
        println!("    {line}");
    }
    fn cancelled(&self) -> bool {
        requested()
    }
}
