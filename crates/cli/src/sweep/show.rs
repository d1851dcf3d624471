//! Progress on standard error: a bar for all runs and a line for each that goes on; plain lines
//! elsewhere.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use sluicegate_scenario::world::Observer;

use crate::{interrupt, output};

const ALL: &str = "{spinner} {prefix} [{bar:24}] {pos}/{len}, {eta} left";
const ONE: &str = "  {percent:>3}% {wide_msg}";

/// Shows the progress of all runs.
pub struct Progress {
    bars: Option<(MultiProgress, ProgressBar)>,
    total: usize,
    ended: AtomicUsize,
}

/// Shows the progress of one run.
pub struct RunProgress {
    bar: Option<ProgressBar>,
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constant and tested; the default is a fair second.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl Progress {
    /// Starts showing `total` runs.
    pub fn new(scenario: &str, total: usize) -> Self {
        let shown = std::io::stderr().is_terminal() && total > 0;
        let bars = shown.then(|| {
            let bars = MultiProgress::new();
            let all = bars.add(ProgressBar::new(total as u64).with_style(style(ALL)));
            all.set_prefix(scenario.to_owned());
            all.enable_steady_tick(Duration::from_millis(200));
            (bars, all)
        });
        Self {
            bars,
            total,
            ended: AtomicUsize::new(0),
        }
    }

    /// A run begins.
    pub fn begin(&self, label: &str) -> RunProgress {
        let bar = self.bars.as_ref().map(|(bars, _)| {
            let bar = bars.add(ProgressBar::new(1).with_style(style(ONE)));
            bar.set_message(label.to_owned());
            bar
        });
        RunProgress { bar }
    }

    /// A run ends; `error` says why it has no result.
    pub fn end(&self, run: RunProgress, label: &str, error: Option<&String>) {
        self.drop(run);
        let number = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let count = format!("{number}/{}", self.total);
        match (&self.bars, error) {
            (Some((bars, all)), error) => {
                all.inc(1);
                if let Some(error) = error {
                    bars.suspend(|| output::say(&format!("failed: {label}: {error}")));
                }
            }
            (None, None) => output::say(&format!("{count} {label}")),
            (None, Some(error)) => output::say(&format!("{count} failed: {label}: {error}")),
        }
    }

    /// A run is not shown any more.
    pub fn drop(&self, run: RunProgress) {
        if let (Some((bars, _)), Some(bar)) = (&self.bars, run.bar) {
            bar.finish_and_clear();
            bars.remove(&bar);
        }
    }

    /// Clears all bars.
    pub fn finish(&self) {
        if let Some((_, all)) = &self.bars {
            all.finish_and_clear();
        }
    }
}

impl Observer for RunProgress {
    fn phase(&mut self, _: &str) {}

    fn progress(&mut self, done: Duration, total: Duration, _: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.as_millis() as u64);
            bar.set_position(done.as_millis() as u64);
        }
    }

    /// Drops notes: `sluicegate run` shows them, but a sweep has hundreds of runs.
    fn note(&mut self, _: &str) {}

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [ALL, ONE] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
