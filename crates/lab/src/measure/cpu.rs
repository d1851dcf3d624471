//! How idle the machine was: the CPU must not be what an experiment measures.

use std::{fs, time::Instant};

use anyhow::{Context, Result, bail};

/// A run whose idlest-to-busiest second leaves less than this fraction of all CPUs idle is CPU-bound: on
/// the two cores of a small machine one tick in ten is 5 %, below it packets wait for a CPU rather than
/// for a link.
const BOUND_BELOW: f64 = 0.05;

/// Shortest window that counts, in seconds.
const WINDOW_S: f64 = 1.0;

/// One CPU with less than this fraction idle for a second makes a run CPU-bound, too: all of them may still be half
/// idle, but whose packets meet on that one wait for it.
pub const ONE_BUSY_BELOW: f64 = 0.02;

/// Clock ticks of a CPU, or of all, since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    total: u64,
}

/// Smallest idle fractions of any one-second window, 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleMin {
    /// Of all CPUs together.
    pub all: f64,
    /// Of the busiest one.
    pub one: f64,
}

impl IdleMin {
    /// Whether CPUs, not the network, limited the run.
    pub fn is_bound(self) -> bool {
        self.all < BOUND_BELOW || self.one < ONE_BUSY_BELOW
    }
}

/// Follows /proc/stat and keeps the smallest idle fraction of any one-second window.
#[derive(Debug)]
pub struct Idle {
    window_start: Instant,
    at_start: Vec<Ticks>,
    smallest: Option<IdleMin>,
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
        self.take(&now);
        self.at_start = now;
        self.window_start = Instant::now();
        Ok(())
    }

    fn take(&mut self, now: &[Ticks]) {
        let mut fractions = self.at_start.iter().zip(now).map(fraction);
        let Some(all) = fractions.next().flatten() else {
            return;
        };
        let one = fractions.flatten().fold(all, f64::min);
        let before = self.smallest.unwrap_or(IdleMin { all, one });
        self.smallest = Some(IdleMin {
            all: before.all.min(all),
            one: before.one.min(one),
        });
    }

    /// A run shorter than a second counts as one window.
    ///
    /// # Errors
    /// /proc/stat cannot be read.
    pub fn finish(mut self) -> Result<IdleMin> {
        if self.smallest.is_none() {
            let now = read()?;
            self.take(&now);
        }
        Ok(self.smallest.unwrap_or(IdleMin { all: 1.0, one: 1.0 }))
    }
}

fn fraction((from, to): (&Ticks, &Ticks)) -> Option<f64> {
    let total = to.total.saturating_sub(from.total);
    (total > 0).then(|| to.idle.saturating_sub(from.idle) as f64 / total as f64)
}

fn read() -> Result<Vec<Ticks>> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    parse(&text)
}

/// All CPUs together, then each: the first lines of proc(5)'s /proc/stat.
fn parse(text: &str) -> Result<Vec<Ticks>> {
    let cpus = text.lines().take_while(|line| line.starts_with("cpu"));
    let ticks: Vec<Ticks> = cpus.map(parse_line).collect::<Result<_>>()?;
    if ticks.is_empty() {
        bail!("/proc/stat does not begin with CPUs");
    }
    Ok(ticks)
}

/// user nice system idle iowait irq softirq steal guest guest_nice, the last two being part of user and nice.
fn parse_line(line: &str) -> Result<Ticks> {
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
        let ticks = parse("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 1 1 1 0\nintr 5\n").unwrap();
        let all = Ticks {
            idle: 84,
            total: 100,
        };
        assert_eq!(ticks, [all, Ticks { idle: 1, total: 4 }]);
        assert!(parse("intr 5").is_err());
        assert!(parse("cpu 1 2 3").is_err());
    }

    #[test]
    fn the_busiest_window_and_the_busiest_cpu_count() {
        let at = |all, one, other| {
            [(all, 200), (one, 100), (other, 100)].map(|(idle, total)| Ticks { idle, total })
        };
        let mut idle = Idle {
            window_start: Instant::now(),
            at_start: at(0, 0, 0).map(|_| Ticks { idle: 0, total: 0 }).to_vec(),
            smallest: None,
        };
        idle.take(&at(180, 90, 90));
        idle.take(&at(80, 1, 79));
        idle.take(&at(140, 70, 70));
        let least = idle.finish().unwrap();
        let expected = IdleMin {
            all: 0.4,
            one: 0.01,
        };
        assert_eq!(least, expected);
        assert!(least.is_bound(), "one of two is saturated");
    }

    #[test]
    fn all_or_one_without_rest_bound_a_run() {
        let bound = |all, one| IdleMin { all, one }.is_bound();
        assert!(bound(0.04, 0.04) && bound(0.4, 0.01));
        assert!(!bound(0.06, 0.03));
    }
}
