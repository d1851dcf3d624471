//! The measurements of a run, and their comparison with one in which all are honest.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluicegate_agent::{FlowRecord, Instance};

use crate::{
    attacks::{Hostile, Kind},
    net::{Net, PAIRS, Side},
    traffic::{Bulk, Probe},
};

/// The part of its honest share that the hostile pair may have.
const SHARE_MAX: f64 = 1.15;
/// The part of their goodput that others, or a stranger's victim, may lose.
const LOSS_MAX: f64 = 0.10;
/// By what factor the probe's p99 may grow.
const PING_MAX: f64 = 1.3;
/// The part of its share that an honest tenant with odd packets has, at least.
const HONEST_MIN: f64 = 0.6;

/// Below this fraction of idle time a CPU is what tenants share, not the network.
const IDLE_MIN: f64 = 0.05;

/// Whether a signal has asked for the end of the run.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Waits, unless interrupted.
pub fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        sleep((end - Instant::now()).min(Duration::from_millis(50)));
    }
    Ok(())
}

/// All that is under way in one run.
pub struct Scene<'a> {
    pub net: &'a Net,
    pub instances: &'a [Instance; 2],
    pub hostile: &'a Hostile,
    pub honest: &'a [Bulk],
    pub probe: &'a Probe,
}

/// Readings at one time, in bytes.
#[derive(Clone)]
struct Reading {
    at: Instant,
    /// That applications read.
    useful: [u64; PAIRS],
    /// That the receivers' host passed to them.
    crossed: [u64; PAIRS],
    /// That the senders' host was given.
    offered: [u64; PAIRS],
    counters: [BTreeMap<String, u64>; 2],
    /// Idle time and all time of each CPU.
    cpus: Vec<[u64; 2]>,
}

/// Figures of one run; rates in Mb/s.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub useful: [f64; PAIRS],
    pub crossed: [f64; PAIRS],
    pub offered: [f64; PAIRS],
    pub ping_p50_us: u64,
    pub ping_p99_us: u64,
    pub counters: [BTreeMap<String, u64>; 2],
    pub flows: Vec<String>,
    /// Fraction of the busiest CPU's time.
    pub idle: f64,
    pub series: Vec<[f64; PAIRS]>,
}

impl Scene<'_> {
    /// Measures for so many seconds.
    pub fn measure(&self, seconds: u64) -> Result<Outcome> {
        self.probe.take();
        let begin = self.read()?;
        let mut last = begin.clone();
        let mut series = Vec::new();
        for _ in 0..seconds {
            pause(Duration::from_secs(1))?;
            let now = self.read()?;
            series.push(rates(&last.useful, &now.useful, now.at - last.at));
            last = now;
        }
        let time = last.at - begin.at;
        let mut pings = self.probe.take();
        ensure!(!pings.is_empty(), "the probe measured nothing");
        pings.sort_unstable();
        let quantile = |q: f64| pings[((pings.len() - 1) as f64 * q) as usize];
        Ok(Outcome {
            useful: rates(&begin.useful, &last.useful, time),
            crossed: rates(&begin.crossed, &last.crossed, time),
            offered: rates(&begin.offered, &last.offered, time),
            ping_p50_us: quantile(0.5),
            ping_p99_us: quantile(0.99),
            counters: [0, 1].map(|host| moved(&begin.counters[host], &last.counters[host])),
            flows: self.flows()?,
            idle: least_idle(&begin.cpus, &last.cpus),
            series,
        })
    }

    fn read(&self) -> Result<Reading> {
        let mut useful = [self.hostile.useful.load(Ordering::Relaxed); PAIRS];
        for (bytes, bulk) in useful[1..].iter_mut().zip(self.honest) {
            *bytes = bulk.received.load(Ordering::Relaxed);
        }
        let counters = [self.instances[0].counters()?, self.instances[1].counters()?];
        Ok(Reading {
            at: Instant::now(),
            useful,
            crossed: self.interface_bytes(Side::Receiver, SENT)?,
            offered: self.interface_bytes(Side::Sender, RECEIVED)?,
            counters,
            cpus: cpu_times()?,
        })
    }

    fn interface_bytes(&self, side: Side, column: usize) -> Result<[u64; PAIRS]> {
        let text = self.net.within(side.host(), || {
            fs::read_to_string("/proc/thread-self/net/dev").context("/proc/net/dev")
        })?;
        let mut found = [0; PAIRS];
        for (pair, bytes) in (1..).zip(&mut found) {
            let prefix = format!("t{pair}:");
            let line = text
                .lines()
                .find_map(|line| line.trim_start().strip_prefix(&prefix));
            let word = line.and_then(|line| line.split_whitespace().nth(column));
            *bytes = word.context("an interface's counters")?.parse()?;
        }
        Ok(found)
    }

    /// The busiest flows of the hostile pair, at both hosts, and the first honest one.
    fn flows(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (instance, host) in self.instances.iter().zip(["ha", "hb"]) {
            let mut flows = instance.flows()?;
            flows.retain(|flow| flow.interface == "t1" || flow.interface == "t2");
            flows.sort_by_key(|flow| {
                let bytes = flow.acked_bytes.max(flow.received_bytes);
                (flow.interface.clone(), std::cmp::Reverse(bytes))
            });
            flows.dedup_by_key(|flow| flow.interface.clone());
            found.extend(flows.iter().map(|flow| describe(host, flow)));
        }
        Ok(found)
    }
}

/// Columns of /proc/net/dev.
const RECEIVED: usize = 0;
const SENT: usize = 8;

fn describe(host: &str, flow: &FlowRecord) -> String {
    format!(
        "{host}/{} {} {} cwnd {} shown {} peer's {} alpha {:.3} srtt {:.0} us policed {} losses {}",
        flow.interface,
        flow.mode,
        flow.reason.unwrap_or("-"),
        flow.cwnd_bytes,
        flow.enforced_window_bytes,
        flow.advertised_window_bytes,
        flow.alpha.unwrap_or(0.0),
        flow.srtt_us.unwrap_or(0.0),
        flow.policed,
        flow.losses,
    )
}

fn rates(before: &[u64; PAIRS], after: &[u64; PAIRS], time: Duration) -> [f64; PAIRS] {
    std::array::from_fn(|pair| {
        after[pair].saturating_sub(before[pair]) as f64 * 8e-6 / time.as_secs_f64()
    })
}

fn moved(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = after.iter().map(|(name, value)| {
        let earlier = before.get(name).copied().unwrap_or(0);
        (name.clone(), value - earlier)
    });
    grown.filter(|(_, by)| *by > 0).collect()
}

/// Idle time and all time of each CPU.
fn cpu_times() -> Result<Vec<[u64; 2]>> {
    let text = fs::read_to_string("/proc/stat")?;
    let cpus = text.lines().filter(|line| {
        let number = line.strip_prefix("cpu").unwrap_or_default();
        number.starts_with(|first: char| first.is_ascii_digit())
    });
    let cpus: Vec<[u64; 2]> = cpus
        .map(|line| {
            let words = line.split_whitespace().skip(1);
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            [times[3], times[..8].iter().sum()]
        })
        .collect();
    ensure!(!cpus.is_empty(), "/proc/stat has no line for a CPU");
    Ok(cpus)
}

/// Idle fraction of the CPU that had the least idle time.
fn least_idle(before: &[[u64; 2]], after: &[[u64; 2]]) -> f64 {
    let idle = before.iter().zip(after).map(|(before, after)| {
        (after[0] - before[0]) as f64 / (after[1] - before[1]).max(1) as f64
    });
    idle.fold(1.0, f64::min)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Outcome {
    /// Mean of the honest flows' goodput.
    pub fn honest_mean(&self) -> f64 {
        mean(&self.useful[1..])
    }

    pub fn honest_min(&self) -> f64 {
        self.useful[1..].iter().copied().fold(f64::MAX, f64::min)
    }

    /// Jain's index of what crossed.
    pub fn jain(&self) -> f64 {
        let squares: f64 = self.crossed.iter().map(|rate| rate * rate).sum();
        let sum: f64 = self.crossed.iter().sum();
        sum * sum / (squares * PAIRS as f64)
    }

    /// The hostile pair's part of an even share.
    pub fn earned(&self, baseline: &Self) -> f64 {
        self.crossed[0] / mean(&baseline.crossed)
    }

    /// The same as a part of its honest share: its frames take a longer way than others'.
    pub fn gained(&self, baseline: &Self) -> f64 {
        self.crossed[0] / baseline.crossed[0]
    }

    /// The mean of several runs of the same; flows, counters and the series are those of the last.
    pub fn mean_of(runs: Vec<Self>) -> Result<Self> {
        let rates = |of: fn(&Self) -> &[f64; PAIRS]| -> [f64; PAIRS] {
            std::array::from_fn(|pair| {
                mean(&runs.iter().map(|run| of(run)[pair]).collect::<Vec<_>>())
            })
        };
        let time = |of: fn(&Self) -> u64| {
            mean(&runs.iter().map(|run| of(run) as f64).collect::<Vec<_>>()) as u64
        };
        let averaged = (
            rates(|run| &run.useful),
            rates(|run| &run.crossed),
            rates(|run| &run.offered),
            time(|run| run.ping_p50_us),
            time(|run| run.ping_p99_us),
            runs.iter().map(|run| run.idle).fold(f64::MAX, f64::min),
        );
        let last = runs.into_iter().last().context("at least one run")?;
        let (useful, crossed, offered, ping_p50_us, ping_p99_us, idle) = averaged;
        Ok(Self {
            useful,
            crossed,
            offered,
            ping_p50_us,
            ping_p99_us,
            idle,
            ..last
        })
    }

    /// The loss of a stranger's victim, as a fraction of an honest flow's goodput.
    pub fn victim_loses(&self, kind: Kind, baseline: &Self) -> Option<f64> {
        match kind {
            Kind::Against(pair) => Some(1.0 - self.useful[pair - 1] / baseline.honest_mean()),
            Kind::Hostile | Kind::Honest | Kind::TakesCpu => None,
        }
    }

    /// All tenants share this machine: one that uses up a CPU takes it from the others' stacks.
    pub fn is_cpu_bound(&self) -> bool {
        self.idle < IDLE_MIN
    }

    /// Bounds that this run does not keep, in words; none of one that only the CPUs have bounded.
    pub fn misses(&self, kind: Kind, baseline: &Self) -> Vec<String> {
        let mut missed = Vec::new();
        if kind == Kind::TakesCpu || self.is_cpu_bound() {
            return missed;
        }
        let mut at_most = |what: &str, value: f64, bound: f64| {
            if value > bound {
                missed.push(format!("{what} {value:.2}, more than {bound:.2}"));
            }
        };
        at_most("of its own", self.gained(baseline), SHARE_MAX);
        at_most("others lose", self.bystanders_lose(baseline), LOSS_MAX);
        at_most("p99 ratio", self.ping_ratio(baseline), PING_MAX);
        if let Some(loss) = self.victim_loses(kind, baseline) {
            at_most("the victim loses", loss, LOSS_MAX);
        }
        if kind == Kind::Honest && self.gained(baseline) < HONEST_MIN {
            missed.push(format!(
                "of its own {:.2}, less than {HONEST_MIN:.2}",
                self.gained(baseline)
            ));
        }
        missed
    }

    /// The loss of the others, as a fraction.
    pub fn bystanders_lose(&self, baseline: &Self) -> f64 {
        1.0 - self.honest_mean() / baseline.honest_mean()
    }

    pub fn ping_ratio(&self, baseline: &Self) -> f64 {
        self.ping_p99_us as f64 / baseline.ping_p99_us.max(1) as f64
    }

    pub fn json(&self, kind: Kind, baseline: &Self) -> Value {
        json!({
            "useful_mbps": self.useful,
            "crossed_mbps": self.crossed,
            "offered_mbps": self.offered,
            "ping_p50_us": self.ping_p50_us,
            "ping_p99_us": self.ping_p99_us,
            "earned": self.earned(baseline),
            "gained": self.gained(baseline),
            "bystanders_lose": self.bystanders_lose(baseline),
            "victim_loses": self.victim_loses(kind, baseline),
            "misses": self.misses(kind, baseline),
            "ping_ratio": self.ping_ratio(baseline),
            "jain": self.jain(),
            "counters": { "ha": self.counters[0], "hb": self.counters[1] },
            "flows": self.flows,
            "cpu_idle": self.idle,
            "cpu_bound": self.is_cpu_bound(),
            "series_mbps": self.series,
        })
    }
}
