//! Ctrl-C, SIGTERM and SIGHUP: the first asks to stop and clean up, the second exits at once.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use sluicegate_agent::log;

use crate::output;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler.
///
/// # Errors
/// The handler cannot be installed.
pub fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            output::say("stopped at once; `sluicegate lab clean` removes what is left");
            log::flush();
            std::process::exit(130);
        }
        output::say("stopping and cleaning up (once more: stop at once)");
    })
    .context("cannot handle signals")
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
