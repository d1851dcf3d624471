//! The userspace switch beside others: `make bench-switch`. Linux, two CPUs: the guests' on one,
//! the switch on the other. Root, for other switches, interfaces of the kernel and large pages.
//! `--switch PROGRAM` has another build of ours take part, which is called with a file,
//! `--sluicegate PROGRAM` that of the command.
//!
//! - **64 B, 1518 B**: datagrams from one guest to another, as many as the switch takes.
//! - **overload**: datagrams of 64 bytes from two guests to one, which takes half of them; and
//!   what is lost.
//! - **connection**: segments of a connection, and an ACK for every second one; **bursts**: one for
//!   what a poll brings, as receivers send that put segments together first (GRO).
//! - **64 KB**: segments that are to be cut later, where the switch passes them on as they are.
//! - **delay**: at half of the rate that the same switch has carried just before.
//! - **idle**: the switch's share of its CPU while nothing is sent.
//! - **wake-up**: how long a frame takes to which nothing has happened for 2 ms, so that a switch
//!   that sleeps does. `eventfd` is how long a thread takes on this machine that an eventfd wakes.
//! - **pairs**: datagrams of 64 bytes between two pairs of guests, both at the same time, whose
//!   drivers have a CPU each. With one thread of ours, and with two; four CPUs.
//! - **circulating**: frames of 64 bytes that `testpmd`, a client of others, sends by one adapter
//!   to its other one and back, 32 each way: each way, in the mean of a second.
//!
//! Frames are 4 bytes shorter here than on a wire, which has their FCS. The switches take turns.
//! Others on a shared machine halve the speed of all switches for seconds, so the table has the
//! best of the rounds, and `results.json` all of them. A guest's driver here is the same for all
//! switches, and does not look at frames. The kernel's bridge works in the guests' own system
//! calls.

#![allow(clippy::print_stdout)]

mod arms;
mod driver;
mod foreign;
mod measure;
#[path = "../shared/results.rs"]
mod results;
mod stream;
mod tap;
mod wake;

use std::{collections::BTreeMap, path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};

use self::{
    arms::{Arm, Program, Running},
    driver::{Driver, LONG, PLAIN, SEGMENTS, SHORT},
    measure::{Acks, Guest, Span},
    stream::Clock,
};

/// The CPU of the guests.
const GUESTS_CPU: usize = 0;
/// That of the second pair, where each has one.
const SECOND_CPU: usize = 2;

/// What is measured, with its unit and digits behind the point.
const FIGURES: [(&str, &str, usize); 15] = [
    ("64B", "Mframes/s", 2),
    ("1518B", "Mframes/s", 2),
    ("overload", "Mframes/s", 2),
    ("overload-lost", "%", 1),
    ("connection-64B", "Mframes/s", 2),
    ("connection-1514B", "Mframes/s", 2),
    ("bursts-1514B", "Mframes/s", 2),
    ("64KB", "Gb/s", 1),
    ("delay-p50", "us", 1),
    ("delay-p99", "us", 1),
    ("idle", "% of a CPU", 2),
    ("wake-up-p50", "us", 1),
    ("wake-up-p99", "us", 1),
    ("pairs", "Mframes/s", 2),
    ("circulating", "Mframes/s", 2),
];

const USAGE: &str = "--out DIR --rounds N --seconds S --arms NAMES --switch PROGRAM --sluicegate \
                     PROGRAM";

struct Options {
    out: Option<PathBuf>,
    rounds: u16,
    seconds: f64,
    arms: Vec<Arm>,
    program: Option<Program>,
}

impl Options {
    fn parse() -> Result<Self> {
        let mut options = Self {
            out: None,
            rounds: 5,
            seconds: 1.0,
            arms: Arm::ALL.to_vec(),
            program: None,
        };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} what?"));
            match word.as_str() {
                "--out" => options.out = Some(value()?.into()),
                "--rounds" => options.rounds = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--arms" => options.arms = arms(&value()?)?,
                "--switch" => options.program = Some(Program::Switch(value()?.into())),
                "--sluicegate" => options.program = Some(Program::Command(value()?.into())),
                _ => bail!("{word}? {USAGE}"),
            }
        }
        ensure!(
            options.rounds > 0 && options.seconds > 0.0,
            "nothing to measure"
        );
        Ok(options)
    }
}

fn arms(names: &str) -> Result<Vec<Arm>> {
    let each = names.split([',', ' ']).filter(|name| !name.is_empty());
    let arms = each.map(|name| {
        let all = || Arm::ALL.map(Arm::name).join(", ");
        let mut known = Arm::ALL.into_iter();
        let arm = known.find(|arm| arm.name() == name);
        arm.with_context(|| format!("no switch '{name}'; there are {}", all()))
    });
    arms.collect()
}

/// By switch and figure, the values of all rounds.
type Values = BTreeMap<(&'static str, &'static str), Vec<f64>>;

fn main() -> Result<()> {
    let mut options = Options::parse()?;
    if let Some(arm) = options.arms.iter().find(|arm| arm.needs_root()) {
        ensure!(
            rustix::process::geteuid().is_root(),
            "{} needs root, for interfaces of the kernel or large pages",
            arm.name()
        );
    }
    let cpus = arms::cpus();
    ensure!(
        cpus >= 2,
        "this benchmark needs two CPUs, and may use {cpus}"
    );
    options.arms.retain(|arm| match arm.missing() {
        Some(what) => {
            eprintln!("{} is left out: there is {what}", arm.name());
            false
        }
        None => true,
    });
    let mut values = Values::new();
    for round in 0..options.rounds {
        for &arm in &options.arms {
            eprintln!("round {} of {}: {}", round + 1, options.rounds, arm.name());
            let seconds = options.seconds;
            // A thread of its own, since it stays on a CPU and may enter a namespace.
            let program = options.program.clone();
            let measured = thread::spawn(move || measure(arm, round, seconds, program.as_ref()));
            let measured = measured.join();
            let Ok(measured) = measured else {
                bail!("{}: its measurement panicked", arm.name());
            };
            for (figure, value) in measured.with_context(|| arm.name())? {
                values.entry((arm.name(), figure)).or_default().push(value);
            }
        }
    }
    print(&options.arms, &values);
    results::write(options.out.as_deref(), document(&options, &values))
}

fn stay(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

fn measure(
    arm: Arm,
    round: u16,
    seconds: f64,
    program: Option<&Program>,
) -> Result<Vec<(&'static str, f64)>> {
    stay(GUESTS_CPU)?;
    let span = Span {
        clock: Clock::new(),
        lasts: Duration::from_secs_f64(seconds),
    };
    match arm {
        Arm::Threads => return Ok(vec![("pairs", pairs(arm, program, span)?)]),
        Arm::Eventfd => return Ok(wake_up_figures(&wake::bare(arms::SWITCH_CPU, span)?).to_vec()),
        _ if arm.is_foreign() => {
            let running = Running::start(arm, arm.ports(), program)?;
            let rate = foreign::circulate(&running, span.lasts)?;
            return Ok(vec![("circulating", rate / 1e6)]);
        }
        _ => {}
    }
    // Interfaces are there before the switch that has them, and go after it; and those that Open
    // vSwitch makes for itself are in no namespace of others.
    if arm.needs_root() {
        tap::enter_namespace()?;
    }
    let known = interfaces(arm)?;
    let running = Running::start(arm, arm.ports(), program)?;
    let mut guests = match known {
        Some(guests) => {
            running.wait_for_control()?;
            guests
        }
        None => self::guests(&running, arm.ports(), PLAIN, SHORT)?,
    };
    let mut found = at_one_switch(&mut guests, arm, round, span)?;
    if let Some(share) = idle(&running, span.lasts)? {
        found.push(("idle", share * 100.0));
    }
    drop((guests, running));
    if arm.takes_segments() {
        let running = Running::start(arm, arm.ports(), program)?;
        let mut guests = self::guests(&running, arm.ports(), SEGMENTS, LONG)?;
        measure::introduce(&mut guests, span.clock)?;
        let bps = measure::segments(&mut guests, span)?;
        found.push(("64KB", bps / 1e9));
    }
    if arm == Arm::Lossless && Arm::Threads.missing().is_none() {
        found.push(("pairs", pairs(arm, program, span)?));
    }
    Ok(found)
}

/// Frames between two pairs of guests.
fn pairs(arm: Arm, program: Option<&Program>, span: Span) -> Result<f64> {
    let running = Running::start(arm, Arm::Threads.ports(), program)?;
    let mut guests = guests(&running, Arm::Threads.ports(), PLAIN, SHORT)?;
    measure::introduce(&mut guests, span.clock)?;
    let cpus = [GUESTS_CPU, SECOND_CPU % arms::cpus()];
    Ok(measure::pairs(guests, cpus, span)? / 1e6)
}

fn at_one_switch(
    guests: &mut [Guest],
    arm: Arm,
    round: u16,
    span: Span,
) -> Result<Vec<(&'static str, f64)>> {
    measure::introduce(guests, span.clock)?;
    let mut found = Vec::new();
    let short = measure::throughput(guests, 1, 60, span)?;
    found.push(("64B", short.frames_per_s / 1e6));
    let times = measure::latency(guests, short.frames_per_s / 2.0, span)?;
    found.push(("delay-p50", quantile_us(&times, 0.5)));
    found.push(("delay-p99", quantile_us(&times, 0.99)));
    found.extend(wake_up_figures(&wake::of_guests(guests, span)?));
    let long = measure::throughput(guests, 1, 1514, span)?;
    found.push(("1518B", long.frames_per_s / 1e6));
    let connections = [
        ("connection-64B", (10, Acks::Second)),
        ("connection-1514B", (1460, Acks::Second)),
        ("bursts-1514B", (1460, Acks::Burst)),
    ];
    for (at, (figure, kind)) in (0..).zip(connections) {
        let rate = measure::connection(guests, kind, 3 * round + at, span)?;
        found.push((figure, rate / 1e6));
    }
    if arm.ports() > 2 {
        let rate = measure::throughput(guests, 2, 60, span)?;
        found.push(("overload", rate.frames_per_s / 1e6));
        found.push(("overload-lost", rate.lost * 100.0));
    }
    Ok(found)
}

/// A quantile of times in ns, which ascend.
fn quantile_us(times_ns: &[u64], share: f64) -> f64 {
    times_ns[((times_ns.len() - 1) as f64 * share) as usize] as f64 / 1e3
}

fn wake_up_figures(times_ns: &[u64]) -> [(&'static str, f64); 2] {
    [("wake-up-p50", 0.5), ("wake-up-p99", 0.99)]
        .map(|(figure, share)| (figure, quantile_us(times_ns, share)))
}

/// The guests of a switch whose ports are interfaces of the kernel.
fn interfaces(arm: Arm) -> Result<Option<Vec<Guest>>> {
    let taps = match arm {
        Arm::Bridge => tap::bridge()?,
        Arm::Xdp => tap::pairs()?,
        _ => return Ok(None),
    };
    Ok(Some(taps.into_iter().map(Guest::Tap).collect()))
}

fn guests(running: &Running, ports: usize, features: u64, buffer: u64) -> Result<Vec<Guest>> {
    let guests = (0..ports).map(|port| {
        let driver = Driver::connect(&running.socket(port), features, buffer)?;
        Ok(Guest::Vhost(Box::new(driver)))
    });
    guests.collect()
}

/// The share of a CPU that a switch takes while nothing is sent.
fn idle(running: &Running, lasts: Duration) -> Result<Option<f64>> {
    thread::sleep(Duration::from_millis(200));
    let Some(before_ns) = running.used_ns()? else {
        return Ok(None);
    };
    thread::sleep(lasts);
    let after_ns = running.used_ns()?.unwrap_or(before_ns);
    let used = Duration::from_nanos(after_ns - before_ns);
    Ok(Some(used.as_secs_f64() / lasts.as_secs_f64()))
}

/// The best of a figure's rounds.
fn best(figure: &str, rounds: &[f64]) -> f64 {
    let least = ["delay", "idle", "wake-up"];
    let least = least.iter().any(|start| figure.starts_with(start));
    let better = if least { f64::min } else { f64::max };
    // Of what is lost the worst round counts.
    rounds.iter().copied().reduce(better).unwrap_or(f64::NAN)
}

fn print(arms: &[Arm], values: &Values) {
    print!("{:28}", "");
    arms.iter().for_each(|arm| print!("{:>14}", arm.name()));
    println!();
    for (figure, unit, digits) in FIGURES {
        print!("{:28}", format!("{figure}, {unit}"));
        for arm in arms {
            match values.get(&(arm.name(), figure)) {
                Some(rounds) => print!("{:>14.digits$}", best(figure, rounds)),
                None => print!("{:>14}", "-"),
            }
        }
        println!();
    }
    ratios(values);
}

/// The best rounds of two switches, one over the other, and the same of their medians.
fn ratios(values: &Values) {
    let pairs = [
        ("sluicegate", "ovs-dpdk", "64B"),
        ("sluicegate", "ovs-dpdk", "overload"),
        ("sluicegate", "testpmd-io", "64B"),
        ("sluicegate", "bridge", "64B"),
        ("af-xdp", "bridge", "64B"),
        ("two-threads", "sluicegate", "pairs"),
        ("macs", "sluicegate", "64B"),
        ("macs", "sluicegate", "1518B"),
        ("macs", "ovs-dpdk", "64B"),
        ("macs", "ovs-dpdk", "1518B"),
        ("foreign", "foreign-ovs", "circulating"),
        ("foreign-macs", "foreign-ovs", "circulating"),
        ("enforcing", "sluicegate", "64B"),
        ("enforcing", "sluicegate", "1518B"),
        ("enforcing", "sluicegate", "connection-64B"),
        ("enforcing", "sluicegate", "connection-1514B"),
        ("enforcing", "sluicegate", "bursts-1514B"),
        ("enforcing", "sluicegate", "64KB"),
    ];
    for (one, other, figure) in pairs {
        let (Some(of), Some(over)) = (values.get(&(one, figure)), values.get(&(other, figure)))
        else {
            continue;
        };
        let of_best = best(figure, of) / best(figure, over);
        let of_medians = median(of) / median(over);
        println!("{one} / {other}, {figure}: {of_best:.2}; of the medians {of_medians:.2}");
    }
}

fn median(rounds: &[f64]) -> f64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn document(options: &Options, values: &Values) -> Value {
    let mut switches = json!({});
    for (&(arm, figure), rounds) in values {
        switches[arm][figure] = json!({ "best": best(figure, rounds), "rounds": rounds });
    }
    let units = FIGURES.map(|(figure, unit, _)| (figure.to_owned(), json!(unit)));
    json!({
        "rounds": options.rounds,
        "seconds": options.seconds,
        "units": serde_json::Map::from_iter(units),
        "switches": switches,
    })
}
