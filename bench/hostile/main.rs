//! The earnings of hostile and foreign tenants: `make bench-hostile`. Needs root and an otherwise
//! idle machine.
//!
//! Two hosts that enforce, four pairs of tenants, 300 Mb/s between them. One pair is hostile, the
//! others are honest. Before and after each attack all are honest for a run; with all of these
//! runs attacks are compared.

#![allow(clippy::print_stdout)]

mod attacks;
mod frame;
mod mangle;
mod measure;
mod net;
mod raw;
#[path = "../shared/results.rs"]
mod results;
mod tap;
mod traffic;
mod worker;

use std::{path::PathBuf, sync::atomic::Ordering, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use attacks::Attack;
use measure::{INTERRUPTED, Outcome, Scene, pause};
use net::{Net, PAIRS, PROBE, Side};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};
use sluicegate_agent::{Instance, Options};
use sluicegate_policy::Policy;
use traffic::{Bulk, Probe};

const POLICY: &str = r#"
trusted = ["10.9.0.0/16", "fd09::/64"]
[[rule]]
algorithm = "dctcp"
mode = "enforce"
[[bucket]]
class = "watched-tcp"
rate = "20Mbit"
mode = "enforce"
[[bucket]]
class = "non-tcp"
rate = "20Mbit"
mode = "enforce"
[[bucket]]
class = "bare-tcp"
rate = "5Mbit"
mode = "enforce"
"#;

const WARM_UP: Duration = Duration::from_secs(3);

/// The arguments.
struct Settings {
    seconds: u64,
    /// Runs of each attack, of which the mean counts.
    repeats: usize,
    rate_bps: u64,
    /// A bound that is not kept is an error.
    check: bool,
    attacks: Vec<&'static Attack>,
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let settings = settings()?;
    end_on_signals()?;
    net::remove_stale();
    println!("{HEAD}");
    let mut runs = Numbered {
        settings: &settings,
        next: 0,
    };
    let mut honest = vec![runs.run(&attacks::HONEST)?];
    print_row(&attacks::HONEST, &honest[0], &honest[0]);
    let mut found = Vec::new();
    for &attack in &settings.attacks {
        match runs.between_honest(attack, &mut honest) {
            Ok(outcome) => {
                // So far; what counts is all honest runs.
                print_row(attack, &outcome, &Outcome::mean_of(honest.clone())?);
                found.push((attack, Ok(outcome)));
            }
            Err(error) if INTERRUPTED.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                println!("| {} | failed: {error:#} |", attack.name);
                found.push((attack, Err(error)));
            }
        }
    }
    let (rows, missed) = judge(found, Outcome::mean_of(honest)?);
    let measured = json!({
        "seconds": settings.seconds,
        "repeats": settings.repeats,
        "rate_bps": settings.rate_bps,
        "attacks": rows,
    });
    results::write(settings.out.as_deref(), measured)?;
    report(&missed, settings.check)
}

/// Prints all attacks against the mean of all honest runs. Returns what `results.json` says of
/// each, and the bounds that were missed.
fn judge(
    found: Vec<(&Attack, Result<Outcome>)>,
    baseline: Outcome,
) -> (serde_json::Map<String, Value>, Vec<String>) {
    println!("\nagainst all honest runs:\n{HEAD}");
    print_row(&attacks::HONEST, &baseline, &baseline);
    let mut rows = serde_json::Map::new();
    rows.insert(
        attacks::HONEST.name.into(),
        baseline.json(attacks::HONEST.kind, &baseline),
    );
    let mut missed = Vec::new();
    for (attack, outcome) in found {
        let row = match outcome {
            Ok(outcome) => {
                print_row(attack, &outcome, &baseline);
                let misses = outcome.misses(attack.kind, &baseline);
                missed.extend(misses.iter().map(|miss| format!("{}: {miss}", attack.name)));
                outcome.json(attack.kind, &baseline)
            }
            Err(error) => {
                missed.push(format!("{}: {error:#}", attack.name));
                json!({ "failed": format!("{error:#}") })
            }
        };
        rows.insert(attack.name.into(), row);
    }
    (rows, missed)
}

/// Says which bounds were missed.
fn report(missed: &[String], check: bool) -> Result<()> {
    match missed {
        [] => println!("all bounds are kept"),
        _ => println!("bounds missed:\n  {}", missed.join("\n  ")),
    }
    ensure!(
        !check || missed.is_empty(),
        "{} bounds are missed",
        missed.len()
    );
    Ok(())
}

/// Runs, each with a number of its own, from which names of its namespaces follow.
struct Numbered<'a> {
    settings: &'a Settings,
    next: usize,
}

impl Numbered<'_> {
    fn run(&mut self, attack: &Attack) -> Result<Outcome> {
        self.next += 1;
        run(self.next, attack, self.settings)
    }

    /// The mean of an attack's runs, each of which an honest run follows.
    fn between_honest(&mut self, attack: &Attack, honest: &mut Vec<Outcome>) -> Result<Outcome> {
        let mut attacked = Vec::new();
        for _ in 0..self.settings.repeats {
            attacked.push(self.run(attack)?);
            honest.push(self.run(&attacks::HONEST)?);
        }
        Outcome::mean_of(attacked)
    }
}

fn settings() -> Result<Settings> {
    let mut settings = Settings {
        seconds: 15,
        repeats: 1,
        check: false,
        rate_bps: 300_000_000,
        attacks: attacks::ALL.iter().collect(),
        out: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--bench" => {} // cargo's own
            "--seconds" => settings.seconds = value()?.parse().context("--seconds")?,
            "--repeats" => {
                let repeats: usize = value()?.parse().context("--repeats")?;
                settings.repeats = repeats.max(1);
            }
            "--check" => settings.check = true,
            "--rate" => {
                settings.rate_bps = 1_000_000 * value()?.parse::<u64>().context("--rate")?
            }
            "--attacks" => settings.attacks = named(&value()?)?,
            "--out" => settings.out = Some(value()?.into()),
            _ => bail!(
                "unknown argument {argument}; use --attacks, --seconds, --repeats, --rate (Mb/s), \
                 --check or --out"
            ),
        }
    }
    Ok(settings)
}

/// Attacks by their names, which spaces or commas separate; none = all.
fn named(names: &str) -> Result<Vec<&'static Attack>> {
    let known = || attacks::ALL.iter().map(|attack| attack.name);
    let words: Vec<&str> = names
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    for word in &words {
        if !known().any(|name| name.starts_with(word)) {
            let names: Vec<&str> = known().collect();
            bail!("no attack is called {word}; there are {}", names.join(", "));
        }
    }
    let asked = |attack: &&Attack| {
        words.is_empty() || words.iter().any(|word| attack.name.starts_with(word))
    };
    Ok(attacks::ALL.iter().filter(asked).collect())
}

/// Ends runs in order on SIGINT, SIGTERM and SIGHUP.
fn end_on_signals() -> Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Threads to come inherit it, and so do children, which end by themselves.
    signals.thread_block()?;
    std::thread::spawn(move || {
        let _ = signals.wait();
        INTERRUPTED.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn run(number: usize, attack: &Attack, settings: &Settings) -> Result<Outcome> {
    let net = Net::build(number, settings.rate_bps)?;
    let instances = [enforce(&net, Side::Sender)?, enforce(&net, Side::Receiver)?];
    let probe = Probe::start(&net)?;
    let honest: Vec<Bulk> = (2..=PAIRS)
        .map(|pair| Bulk::start(&net, pair))
        .collect::<Result<_>>()?;
    let mut hostile = (attack.start)(&net, &honest)?;
    pause(WARM_UP)?;
    if let Some(prelude) = hostile.prelude.take() {
        prelude()?;
    }
    let scene = Scene {
        net: &net,
        instances: &instances,
        hostile: &hostile,
        honest: &honest,
        probe: &probe,
    };
    scene.measure(settings.seconds)
}

fn enforce(net: &Net, side: Side) -> Result<Instance> {
    let policy =
        Policy::parse("benchmark", POLICY).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    net.within(side.host(), || {
        let mut instance = Instance::load(&policy, &Options::default())?;
        for pair in 1..=PROBE {
            instance.attach(&format!("t{pair}"))?;
        }
        Ok(instance)
    })
}

const HEAD: &str = "\
| attack | hostile Mb/s (useful) | its own | honest mean (min) | of an even share | of its own \
| others lose | victim loses | ping p50/p99 ms | p99 ratio | CPU idle |
|---|---|---|---|---|---|---|---|---|---|---|";

fn print_row(attack: &Attack, outcome: &Outcome, baseline: &Outcome) {
    let milliseconds = |us: u64| us as f64 / 1e3;
    let columns = [
        attack.name.to_owned(),
        format!("{:.1} ({:.1})", outcome.crossed[0], outcome.useful[0]),
        format!("{:.1}", baseline.crossed[0]),
        format!("{:.1} ({:.1})", outcome.honest_mean(), outcome.honest_min()),
        format!("{:.2}", outcome.earned(baseline)),
        format!("{:.2}", outcome.gained(baseline)),
        format!("{:.0} %", 100.0 * outcome.bystanders_lose(baseline)),
        outcome
            .victim_loses(attack.kind, baseline)
            .map_or("-".to_owned(), |loss| format!("{:.0} %", 100.0 * loss)),
        format!(
            "{:.2}/{:.2}",
            milliseconds(outcome.ping_p50_us),
            milliseconds(outcome.ping_p99_us)
        ),
        format!("{:.2}", outcome.ping_ratio(baseline)),
        format!(
            "{:.0} %{}",
            100.0 * outcome.idle,
            if outcome.is_cpu_bound() {
                ", CPU-bound"
            } else {
                ""
            }
        ),
    ];
    println!("| {} |", columns.join(" | "));
    for flow in &outcome.flows {
        eprintln!("    {flow}");
    }
    for (host, counters) in ["ha", "hb"].iter().zip(&outcome.counters) {
        let moved: Vec<String> = counters
            .iter()
            .filter(|(name, _)| !ORDINARY.contains(&name.as_str()))
            .map(|(name, by)| format!("{name} {by}"))
            .collect();
        eprintln!("    {host}: {}", moved.join(", "));
    }
}

/// Counters that every packet moves.
const ORDINARY: [&str; 6] = [
    "packets",
    "ect_set",
    "ecn_hidden",
    "window_lowered",
    "feedback_sent",
    "feedback_taken",
];
