//! What enforcement costs: `make bench-enforce`. Needs root and an otherwise idle machine.
//!
//! Three measurements: unenforced and enforced runs over an unshaped path, interleaved, and between
//! them runs with programs that do nothing, which show what the hooks alone cost; the time that the
//! kernel accounts to the programs under that load; and each path through the programs beside an
//! empty one.

#![allow(clippy::print_stdout)]

mod frames;
mod paired;
mod path;
mod policy;
mod programs;
mod traffic;

use std::{fs, os::fd::AsFd, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use libbpf_rs::Object;
use paired::Median;
use path::Path;
use serde_json::{Value, json};
use sluicegate_agent::{
    Instance, Options, include_object, interfaces,
    inventory::ProgramInfo,
    object,
    tcx::{Direction, TcxLink},
};
use traffic::Run;

/// Numbers of flows that are tried.
const FLOWS: [usize; 2] = [1, 64];

struct Settings {
    pairs: usize,
    measured: Duration,
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    let settings = settings()?;
    let path = Path::build().context("building the path; this benchmark needs root")?;
    println!("paths through the programs (median ns of one run):");
    let costs = path.within("ha", programs::costs)?;
    for cost in &costs {
        println!("  {:<34} {:>5}", cost.name, cost.median_ns);
    }
    let mut loads = Vec::new();
    for flows in FLOWS {
        loads.push(load(&path, flows, &settings)?);
    }
    let results = json!({
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        "cpus": std::thread::available_parallelism()?.get(),
        "pairs": settings.pairs,
        "seconds": settings.measured.as_secs_f64(),
        "paths_ns": costs.iter().map(|cost| json!({"path": cost.name, "median": cost.median_ns})).collect::<Value>(),
        "loads": loads,
    });
    if let Some(out) = &settings.out {
        fs::create_dir_all(out)?;
        let file = out.join("results.json");
        fs::write(&file, serde_json::to_string_pretty(&results)?)?;
        println!("written to {}", file.display());
    }
    Ok(())
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

/// Both hosts' instances, attached while this lives.
struct Enforcement([Instance; 2]);

impl Enforcement {
    fn attach(path: &Path) -> Result<Self> {
        let on = |host| {
            path.within(host, || {
                let mut instance = Instance::load(&*policy::table()?, &Options::default())?;
                instance.attach("tenant")?;
                Ok(instance)
            })
        };
        Ok(Self([on("ha")?, on("hb")?]))
    }

    fn programs(&self) -> Result<Vec<ProgramInfo>> {
        let [sending, receiving] = &self.0;
        Ok([sending.programs()?, receiving.programs()?].concat())
    }

    /// The flows must have been what the run claims to have measured.
    fn check(&self, flows: usize) -> Result<()> {
        let records = self.0[0].raw_flows()?;
        let enforced = records.iter().filter(|(_, flow)| flow.mode == 2).count();
        anyhow::ensure!(
            enforced >= flows,
            "{enforced} of {flows} flows were enforced from both sides"
        );
        Ok(())
    }
}

/// Programs that do nothing, and where enforcement would be.
const EMPTY: [(&str, Direction); 2] = [
    ("probe_empty", Direction::Ingress),
    ("probe_empty_egress", Direction::Egress),
];

/// [`EMPTY`] on both hosts, attached while this lives.
struct Hooks {
    _links: Vec<TcxLink>,
    object: Object,
}

impl Hooks {
    fn attach(path: &Path) -> Result<Self> {
        let object = object::load(object::open("empty", include_object!("doctor"))?, "doctor")?;
        let mut links = Vec::new();
        for host in ["ha", "hb"] {
            links.extend(path.within(host, || {
                let index = interfaces::find("tenant")?.index;
                EMPTY
                    .into_iter()
                    .map(|(name, direction)| {
                        TcxLink::attach(&object::program(&object, name)?, index, direction)
                    })
                    .collect::<Result<Vec<_>>>()
            })?);
        }
        Ok(Self {
            _links: links,
            object,
        })
    }

    fn programs(&self) -> Result<Vec<ProgramInfo>> {
        EMPTY
            .iter()
            .map(|(name, _)| ProgramInfo::of(object::program(&self.object, name)?.as_fd()))
            .collect()
    }
}

/// Runs that followed each other, so that one may be divided by another.
struct Round {
    plain: Run,
    hooks: Run,
    enforced: Run,
}

impl Round {
    /// Enforced and unenforced take turns in being first.
    fn run(path: &Path, flows: usize, measured: Duration, enforced_first: bool) -> Result<Self> {
        let plain = || traffic::run(path, flows, measured);
        let enforced = || {
            let enforcement = Enforcement::attach(path)?;
            let run = traffic::run(path, flows, measured)?;
            enforcement.check(flows)?;
            anyhow::Ok(run)
        };
        let first = if enforced_first {
            enforced()?
        } else {
            plain()?
        };
        let hooks = {
            let _hooks = Hooks::attach(path)?;
            traffic::run(path, flows, measured)?
        };
        let last = if enforced_first {
            plain()?
        } else {
            enforced()?
        };
        let (plain, enforced) = if enforced_first {
            (last, first)
        } else {
            (first, last)
        };
        Ok(Self {
            plain,
            hooks,
            enforced,
        })
    }

    fn json(&self) -> Value {
        json!({
            "unenforced_bps": self.plain.goodput_bps,
            "hooks_bps": self.hooks.goodput_bps,
            "enforced_bps": self.enforced.goodput_bps,
            "unenforced_cpu_ns_per_byte": self.plain.cpu_ns_per_byte,
            "hooks_cpu_ns_per_byte": self.hooks.cpu_ns_per_byte,
            "enforced_cpu_ns_per_byte": self.enforced.cpu_ns_per_byte,
        })
    }
}

/// Rounds at one number of flows, and the programs' own time.
fn load(path: &Path, flows: usize, settings: &Settings) -> Result<Value> {
    let mut rounds = Vec::new();
    println!("{flows} flows, {} pairs:", settings.pairs);
    for pair in 0..settings.pairs {
        let round = Round::run(path, flows, settings.measured, pair % 2 == 1)?;
        println!(
            "  {:>5.2} Gb/s unenforced, {:>5.2} Gb/s with empty programs, {:>5.2} Gb/s enforced",
            round.plain.goodput_bps / 1e9,
            round.hooks.goodput_bps / 1e9,
            round.enforced.goodput_bps / 1e9
        );
        rounds.push(round);
    }
    let programs = accounted(path, flows, settings.measured)?;
    let mut result = serde_json::Map::new();
    for (name, key, of) in RATIOS {
        let median = Median::of(&rounds.iter().map(of).collect::<Vec<_>>());
        println!("  {name:<39} {}", show(median));
        result.insert(key.to_owned(), ratio(median));
    }
    for program in &programs {
        println!("  {program}");
    }
    let ours = programs.iter().filter(|p| !p.name.starts_with("probe"));
    let (runs, time) = ours.fold((0, 0.0), |(runs, time), p| {
        (runs + p.runs, time + p.average_ns * p.runs as f64)
    });
    let average_ns = time / runs.max(1) as f64;
    println!("  all                        {average_ns:>4.0} ns average");
    result.extend([
        ("flows".to_owned(), json!(flows)),
        ("average_ns".to_owned(), json!(average_ns)),
        (
            "programs".to_owned(),
            programs.iter().map(Accounted::json).collect(),
        ),
        ("runs".to_owned(), rounds.iter().map(Round::json).collect()),
    ]);
    Ok(Value::Object(result))
}

/// A comparison within each round: its name for people and in the results, and of what.
type Ratio = (&'static str, &'static str, fn(&Round) -> f64);

/// Every comparison.
const RATIOS: [Ratio; 6] = [
    ("goodput, enforced/unenforced", "goodput_ratio", |r| {
        r.enforced.goodput_bps / r.plain.goodput_bps
    }),
    (
        "CPU per byte, enforced/unenforced",
        "cpu_per_byte_ratio",
        |r| r.enforced.cpu_ns_per_byte / r.plain.cpu_ns_per_byte,
    ),
    (
        "goodput, empty programs/unenforced",
        "hooks_goodput_ratio",
        |r| r.hooks.goodput_bps / r.plain.goodput_bps,
    ),
    (
        "CPU per byte, empty programs/unenforced",
        "hooks_cpu_per_byte_ratio",
        |r| r.hooks.cpu_ns_per_byte / r.plain.cpu_ns_per_byte,
    ),
    (
        "goodput, enforced/empty programs",
        "over_hooks_goodput_ratio",
        |r| r.enforced.goodput_bps / r.hooks.goodput_bps,
    ),
    (
        "CPU per byte, enforced/empty programs",
        "over_hooks_cpu_per_byte_ratio",
        |r| r.enforced.cpu_ns_per_byte / r.hooks.cpu_ns_per_byte,
    ),
];

/// What the kernel accounts to one program under load.
struct Accounted {
    name: String,
    runs: u64,
    average_ns: f64,
    verified_instructions: u32,
}

impl Accounted {
    fn json(&self) -> Value {
        json!({"name": self.name, "runs": self.runs, "average_ns": self.average_ns,
               "verified_instructions": self.verified_instructions})
    }
}

impl std::fmt::Display for Accounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<26} {:>4.0} ns average of {} runs, {} instructions verified",
            self.name, self.average_ns, self.runs, self.verified_instructions
        )
    }
}

/// One more enforced run, and one with empty programs, with the kernel's statistics on, which cost
/// time of their own.
fn accounted(path: &Path, flows: usize, measured: Duration) -> Result<Vec<Accounted>> {
    let statistics = Statistics::on()?;
    let enforcement = Enforcement::attach(path)?;
    traffic::run(path, flows, measured)?;
    let mut programs = enforcement.programs()?;
    drop(enforcement);
    let hooks = Hooks::attach(path)?;
    traffic::run(path, flows, measured)?;
    programs.extend(hooks.programs()?);
    drop(statistics);
    let hosts = [
        "sending host",
        "sending host",
        "receiving host",
        "receiving host",
        "both hosts",
        "both hosts",
    ];
    Ok(programs
        .into_iter()
        .zip(hosts)
        .map(|(program, host)| Accounted {
            name: format!("{} {host}", program.name),
            runs: program.runs,
            average_ns: program.run_time_ns as f64 / program.runs.max(1) as f64,
            verified_instructions: program.verified_instructions,
        })
        .collect())
}

/// `/proc/sys/kernel/bpf_stats_enabled`, put back when dropped.
struct Statistics(String);

impl Statistics {
    const FILE: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn on() -> Result<Self> {
        let before = fs::read_to_string(Self::FILE).context(Self::FILE)?;
        fs::write(Self::FILE, "1").context(Self::FILE)?;
        Ok(Self(before))
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _ = fs::write(Self::FILE, self.0.trim());
    }
}

fn show(median: Median) -> String {
    format!(
        "{:.3}  [{:.3}, {:.3}]",
        median.value, median.low, median.high
    )
}

fn ratio(median: Median) -> Value {
    json!({"median": median.value, "low": median.low, "high": median.high})
}
