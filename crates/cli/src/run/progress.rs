//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::{
    io::IsTerminal,
    path::Path,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_scenario::{experiment::Experiment, world::Observer};

use super::pace::{self, Pace};
use crate::{interrupt, output};

/// Time between plain lines of one phase.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Template of the bar; the end of a line that is too long is cut off.
const TEMPLATE: &str = "{spinner} {prefix} [{bar:16}] {wide_msg}";

/// Shows the progress of a world.
pub struct Progress {
    scenario: String,
    run: String,
    bar: Option<ProgressBar>,
    last_plain: Option<Instant>,
    began: Instant,
    pace: Pace,
}

impl Progress {
    /// Starts showing.
    pub fn new(experiment: &Experiment) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = terminal.then(|| ProgressBar::new(1).with_style(style()));
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self {
            scenario: experiment.name.clone(),
            run: String::new(),
            bar,
            last_plain: None,
            began: Instant::now(),
            pace: Pace::default(),
        }
    }

    /// All runs have ended; their results are being written to `out`.
    pub fn writing(&mut self, out: &Path) {
        self.run.clone_from(&self.scenario);
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.run.clone());
        }
        self.phase(&format!("writing to {}", out.display()));
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::say(text)),
            None => output::say(text),
        }
    }
}

fn style() -> ProgressStyle {
    // The template is constant and tested; the default is a fair second.
    ProgressStyle::with_template(TEMPLATE)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl Observer for Progress {
    fn begins(&mut self, variant: &str, number: usize, total: usize) {
        self.pace.begins(self.began.elapsed(), number, total);
        self.run = format!("{}: {variant} ({number} of {total})", self.scenario);
        if let Some(bar) = &self.bar {
            bar.set_prefix(self.run.clone());
        }
    }

    fn phase(&mut self, phase: &str) {
        self.last_plain = None;
        self.pace.phase(self.began.elapsed());
        match &self.bar {
            Some(bar) => {
                bar.set_position(0);
                bar.set_message(phase.to_owned());
            }
            None => output::say(&format!("{}: {phase}", self.run)),
        }
    }

    fn progress(&mut self, done: Duration, total: Duration, live: &str) {
        let left = self.pace.left(self.began.elapsed(), done, total);
        let left = left.map_or(String::new(), |left| format!(", {left}"));
        let text = format!("{}{left}  {live}", pace::part(done, total));
        if let Some(bar) = &self.bar {
            bar.set_length(total.as_millis() as u64);
            bar.set_position(done.as_millis() as u64);
            bar.set_message(text);
            return;
        }
        let now = Instant::now();
        let due = self
            .last_plain
            .is_none_or(|last| now - last >= PLAIN_INTERVAL);
        if due {
            self.last_plain = Some(now);
            output::say(&format!("{}: {text}", self.run));
        }
    }

    fn note(&mut self, line: &str) {
        self.line(&format!("{}: {line}", self.scenario));
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
