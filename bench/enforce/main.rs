//! The cost of enforcement: `make bench-enforce`. Needs root and an otherwise idle machine.
//!
//! Three measurements: what enforced flows bring and cost beside unenforced ones that take turns
//! with them, and beside ones that meet programs which do nothing, which show what the hooks alone
//! cost; the time that the kernel accounts to the programs under that load; and each path through
//! the programs beside an empty one.

#![allow(clippy::print_stdout)]

mod arms;
mod frames;
mod paired;
mod programs;
#[path = "../shared/mod.rs"]
mod shared;
mod traffic;

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use arms::{Arm, Paths};
use paired::{Measure, Median, Pair};
use serde_json::{Value, json};
use shared::{results, statistics::Statistics};
use sluicegate_agent::inventory::ProgramInfo;

/// Numbers of flows that are tried.
const FLOWS: [usize; 2] = [1, 64];

struct Settings {
    pairs: usize,
    measured: Duration,
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let settings = settings()?;
    let paths = Paths::build().context("building the paths; this benchmark needs root")?;
    println!("paths through the programs (median ns of one run):");
    let costs = paths.unenforced().within("ha", programs::costs)?;
    for cost in &costs {
        println!("  {:<34} {:>5}", cost.name, cost.median_ns);
    }
    let mut loads = Vec::new();
    for flows in FLOWS {
        loads.push(load(&paths, flows, &settings)?);
    }
    let measured = json!({
        "pairs": settings.pairs,
        "seconds": settings.measured.as_secs_f64(),
        "paths_ns": costs.iter().map(|cost| json!({"path": cost.name, "median": cost.median_ns})).collect::<Value>(),
        "loads": loads,
    });
    results::write(settings.out.as_deref(), measured)
}

fn settings() -> Result<Settings> {
    let mut settings = Settings {
        pairs: 15,
        measured: Duration::from_secs(2),
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
            "--pairs" => settings.pairs = value()?.parse().context("--pairs")?,
            "--seconds" => {
                settings.measured =
                    Duration::try_from_secs_f64(value()?.parse().context("--seconds")?)?;
            }
            "--out" => settings.out = Some(value()?.into()),
            _ => bail!("unknown argument {argument}; use --pairs N, --seconds S, --out DIR"),
        }
    }
    anyhow::ensure!(settings.pairs > 0, "--pairs must be at least 1");
    Ok(settings)
}

/// Measures at one number of flows: pairs of turns, and the programs' own time.
fn load(paths: &Paths, flows: usize, settings: &Settings) -> Result<Value> {
    println!("{flows} flows, {} pairs:", settings.pairs);
    let mut pairs = Vec::new();
    for _ in 0..settings.pairs {
        let pair = Pair::measure(&mut paths.arms()?, flows, settings.measured)?;
        println!("{pair}");
        pairs.push(pair);
    }
    let mut result = serde_json::Map::from_iter([("flows".to_owned(), json!(flows))]);
    for (of, over) in RATIOS {
        for measure in Measure::ALL {
            let ratio = |pair: &Pair| measure.of(pair.cost(of)) / measure.of(pair.cost(over));
            let median = Median::of(&pairs.iter().map(ratio).collect::<Vec<_>>());
            println!(
                "  {:<39} {median}",
                format!("{}, {of}/{over}", measure.name())
            );
            result.insert(
                format!("{}_{}_over_{}", measure.key(), of.key(), over.key()),
                median.json(),
            );
        }
    }
    let programs = accounted(paths, flows, settings.measured)?;
    for program in &programs {
        println!("  {program}");
    }
    let average_ns = average_ns(
        programs
            .iter()
            .filter(|program| program.arm == Arm::Enforced),
    );
    println!("  {:<35} {average_ns:>4.0} ns average", "all that enforce");
    result.extend([
        ("average_ns".to_owned(), json!(average_ns)),
        (
            "programs".to_owned(),
            programs.iter().map(Accounted::json).collect(),
        ),
        ("runs".to_owned(), pairs.iter().map(Pair::json).collect()),
    ]);
    Ok(Value::Object(result))
}

/// The figures that are compared within each pair.
const RATIOS: [(Arm, Arm); 3] = [
    (Arm::Enforced, Arm::Unenforced),
    (Arm::Empty, Arm::Unenforced),
    (Arm::Enforced, Arm::Empty),
];

/// The kernel's account of one program under load.
struct Accounted {
    arm: Arm,
    side: &'static str,
    program: ProgramInfo,
}

impl Accounted {
    fn average_ns(&self) -> f64 {
        average_ns(std::iter::once(self))
    }

    fn json(&self) -> Value {
        json!({"name": self.program.name, "host": self.side, "runs": self.program.runs,
               "average_ns": self.average_ns(),
               "verified_instructions": self.program.verified_instructions})
    }
}

impl fmt::Display for Accounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<35} {:>4.0} ns average of {} runs, {} instructions verified",
            format!("{}, {}", self.program.name, self.side),
            self.average_ns(),
            self.program.runs,
            self.program.verified_instructions
        )
    }
}

/// Mean time of a run over all runs of `programs`.
fn average_ns<'a>(programs: impl Iterator<Item = &'a Accounted>) -> f64 {
    let (runs, time_ns) = programs.fold((0, 0), |(runs, time_ns), accounted| {
        let program = &accounted.program;
        (runs + program.runs, time_ns + program.run_time_ns)
    });
    time_ns as f64 / runs.max(1) as f64
}

/// One more pair with the kernel's statistics on, which cost time of their own.
fn accounted(paths: &Paths, flows: usize, measured: Duration) -> Result<Vec<Accounted>> {
    let _statistics = Statistics::on()?;
    let mut arms = paths.arms()?;
    Pair::measure(&mut arms, flows, measured)?;
    let mut accounted = Vec::new();
    for attached in &arms {
        for (side, program) in attached.programs()? {
            accounted.push(Accounted {
                arm: attached.arm,
                side,
                program,
            });
        }
    }
    Ok(accounted)
}
