//! How idle the machine was: the CPU must not be what an experiment measures.

use std::{fs, time::Instant};

use anyhow::{Context, Result, bail};

/// A run whose idlest-to-busiest second leaves less than this fraction of all CPUs idle is CPU-bound: on
/// the two cores of a small machine one tick in ten is 5 %, below it packets wait for a CPU rather than
/// for a link.
pub const BOUND_BELOW: f64 = 0.05;

/// Shortest window that counts, in seconds.
const WINDOW_S: f64 = 1.0;

/// Clock ticks since boot, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    total: u64,
}

/// Follows /proc/stat and keeps the smallest idle fraction of any one-second window.
#[derive(Debug)]
pub struct Idle {
    window_start: Instant,
    at_start: Ticks,
    smallest: Option<f64>,
}

impl Idle {
    /// Starts a window now.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn start() -> Result<Self> {
        Ok(Self {
            window_start: Instant::now(),
            at_start: read()?,
            smallest: None,
        })
    }

    /// Call at least several times a second.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn sample(&mut self) -> Result<()> {
        if self.window_start.elapsed().as_secs_f64() < WINDOW_S {
            return Ok(());
        }
        let now = read()?;
        self.take(now);
        self.at_start = now;
        self.window_start = Instant::now();
        Ok(())
    }

    fn take(&mut self, now: Ticks) {
        if let Some(idle) = fraction(self.at_start, now) {
            self.smallest = Some(self.smallest.map_or(idle, |before| before.min(idle)));
        }
    }

    /// Smallest idle fraction, 0..=1. A run shorter than a second counts as one window.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn finish(mut self) -> Result<f64> {
        if self.smallest.is_none() {
            let now = read()?;
            self.take(now);
        }
        Ok(self.smallest.unwrap_or(1.0))
    }
}

fn fraction(from: Ticks, to: Ticks) -> Option<f64> {
    let total = to.total.saturating_sub(from.total);
    (total > 0).then(|| to.idle.saturating_sub(from.idle) as f64 / total as f64)
}

fn read() -> Result<Ticks> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    parse(&text)
}

/// First line of proc(5)'s /proc/stat: user nice system idle iowait irq softirq steal guest guest_nice, the
/// last two being part of user and nice.
fn parse(text: &str) -> Result<Ticks> {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .with_context(|| format!("/proc/stat: `{line}`"))?;
    if fields.len() < 5 {
        bail!("/proc/stat: `{line}` has fewer than five numbers");
    }
    Ok(Ticks {
        idle: fields[3] + fields[4],
        total: fields.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_disks_is_idle_and_guests_are_not_counted_twice() {
        let ticks = parse("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!(
            ticks,
            Ticks {
                idle: 84,
                total: 100
            }
        );
        assert!(parse("intr 5").is_err());
    }

    #[test]
    fn the_busiest_window_counts() {
        let zero = Ticks { idle: 0, total: 0 };
        let mut idle = Idle {
            window_start: Instant::now(),
            at_start: zero,
            smallest: None,
        };
        idle.take(Ticks {
            idle: 90,
            total: 100,
        });
        idle.take(Ticks {
            idle: 40,
            total: 100,
        });
        idle.take(Ticks {
            idle: 70,
            total: 100,
        });
        assert_eq!(idle.finish().unwrap(), 0.4);
    }
}
