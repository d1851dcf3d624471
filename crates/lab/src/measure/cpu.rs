//! How idle the machine was: the CPU must not be what an experiment measures.

use std::{fs, time::Instant};

use anyhow::{Context, Result, bail};

/// A run whose idlest-to-busiest second leaves less than this fraction of all CPUs idle is
/// CPU-bound: on the two cores of a small machine one tick in ten is 5 %, below it packets wait for
/// a CPU rather than for a link.
const BOUND_BELOW: f64 = 0.05;

/// Shortest window that counts, in seconds.
const WINDOW_S: f64 = 1.0;

/// One CPU that spends more than this fraction of a second on interrupts makes a run CPU-bound,
/// too: all of them may still be half idle, but whose packets meet on that one wait for it. What
/// processes do there does not count: packets go first.
const ONE_BUSY_ABOVE: f64 = 0.95;

/// One CPU with less than this fraction idle for a second is worth a note.
pub const ONE_BUSY_BELOW: f64 = 0.02;

/// Clock ticks of a CPU, or of all, since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    /// In interrupts, where packets are handled.
    interrupts: u64,
    /// Taken by the hypervisor for others.
    stolen: u64,
    total: u64,
}

/// Of the busiest one-second windows, as fractions, 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleMin {
    /// Least idle time of all CPUs together.
    pub all: f64,
    /// Of the busiest one.
    pub one: f64,
    /// Most time that one CPU spent in interrupts.
    pub interrupts: f64,
    /// Most time that the hypervisor took of one CPU.
    pub stolen: f64,
}

impl Default for IdleMin {
    /// Nothing happened.
    fn default() -> Self {
        Self {
            all: 1.0,
            one: 1.0,
            interrupts: 0.0,
            stolen: 0.0,
        }
    }
}

impl IdleMin {
    /// Whether CPUs, not the network, limited the run.
    pub fn is_bound(self) -> bool {
        self.all < BOUND_BELOW || self.interrupts > ONE_BUSY_ABOVE
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
        let mut windows = self.at_start.iter().zip(now).map(window);
        let Some(Window { idle: all, .. }) = windows.next().flatten() else {
            return;
        };
        let before = self.smallest.unwrap_or_default();
        let mut busiest = IdleMin {
            all: before.all.min(all),
            one: before.one.min(all),
            ..before
        };
        for one in windows.flatten() {
            busiest.one = busiest.one.min(one.idle);
            busiest.interrupts = busiest.interrupts.max(one.interrupts);
            busiest.stolen = busiest.stolen.max(one.stolen);
        }
        self.smallest = Some(busiest);
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
        Ok(self.smallest.unwrap_or_default())
    }
}

/// What a CPU did, as fractions of a window.
struct Window {
    idle: f64,
    interrupts: f64,
    stolen: f64,
}

fn window((from, to): (&Ticks, &Ticks)) -> Option<Window> {
    let total = to.total.saturating_sub(from.total);
    let fraction = |from: u64, to: u64| to.saturating_sub(from) as f64 / total as f64;
    (total > 0).then(|| Window {
        idle: fraction(from.idle, to.idle),
        interrupts: fraction(from.interrupts, to.interrupts),
        stolen: fraction(from.stolen, to.stolen),
    })
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

/// user nice system idle iowait irq softirq steal guest guest_nice, the last two being part of user
/// and nice.
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
        interrupts: fields.iter().skip(5).take(2).sum(),
        stolen: fields.get(7).copied().unwrap_or_default(),
        total: fields.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(idle: u64, interrupts: u64, total: u64) -> Ticks {
        Ticks {
            idle,
            interrupts,
            stolen: 0,
            total,
        }
    }

    #[test]
    fn waiting_for_disks_is_idle_and_guests_are_not_counted_twice() {
        let read = parse("cpu  10 1 5 80 4 0 0 0 7 0\ncpu0 1 1 1 1 0\nintr 5\n").unwrap();
        assert_eq!(read, [ticks(84, 0, 100), ticks(1, 0, 4)]);
        let read = parse("cpu 1 2 3 4 5 6 7 8 0 0\n").unwrap();
        let mut expected = ticks(9, 13, 36);
        expected.stolen = 8;
        assert_eq!(read, [expected]);
        assert!(parse("intr 5").is_err());
        assert!(parse("cpu 1 2 3").is_err());
    }

    #[test]
    fn the_busiest_window_and_the_busiest_cpu_count() {
        // All, and one of two, whose time is that of interrupts where it is not idle.
        let at = |all, one, total| [ticks(all, 0, 2 * total), ticks(one, total - one, total)];
        let mut idle = Idle {
            window_start: Instant::now(),
            at_start: at(0, 0, 0).to_vec(),
            smallest: None,
        };
        for (all, one) in [(180, 90), (80, 1), (140, 70)] {
            idle.take(&at(all, one, 100));
        }
        let least = idle.finish().unwrap();
        let expected = IdleMin {
            all: 0.4,
            one: 0.01,
            interrupts: 0.99,
            stolen: 0.0,
        };
        assert_eq!(least, expected);
        assert!(least.is_bound(), "packets wait for one of two");
    }

    #[test]
    fn what_the_hypervisor_takes_of_one_cpu_counts() {
        let at = |stolen, total| Ticks {
            stolen,
            ..ticks(0, 0, total)
        };
        let mut idle = Idle {
            window_start: Instant::now(),
            at_start: vec![at(0, 0), at(0, 0), at(0, 0)],
            smallest: None,
        };
        idle.take(&[at(30, 200), at(10, 100), at(20, 100)]);
        idle.take(&[at(30, 400), at(10, 200), at(20, 200)]);
        assert_eq!(idle.finish().unwrap().stolen, 0.2);
    }

    #[test]
    fn what_processes_take_of_one_cpu_does_not_bind() {
        let bound = |all, one, interrupts| {
            let least = IdleMin {
                all,
                one,
                interrupts,
                stolen: 0.0,
            };
            least.is_bound()
        };
        assert!(bound(0.04, 0.04, 0.1) && bound(0.4, 0.0, 0.96));
        assert!(!bound(0.06, 0.0, 0.9));
    }
}
