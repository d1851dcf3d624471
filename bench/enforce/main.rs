//! What enforcement costs: `make bench-enforce`. Needs root and an otherwise idle machine.
//!
//! Three measurements: pairs of unenforced and enforced runs over an unshaped path, interleaved;
//! the time that the kernel accounts to the programs under that load; and each path through the
//! programs beside an empty one.

#![allow(clippy::print_stdout)]

mod frames;
mod paired;
mod path;
mod policy;
mod programs;
mod traffic;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use paired::Median;
use path::Path;
use serde_json::{Value, json};
use sluicegate_agent::{Instance, Options, inventory::ProgramInfo};
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

/// Pairs of runs at one number of flows, and the programs' own time.
fn load(path: &Path, flows: usize, settings: &Settings) -> Result<Value> {
    let mut goodput = Vec::new();
    let mut cpu = Vec::new();
    let mut runs = Vec::new();
    println!("{flows} flows, {} pairs:", settings.pairs);
    for pair in 0..settings.pairs {
        let (plain, enforced) = pair_of_runs(path, flows, settings.measured, pair % 2 == 1)?;
        goodput.push(enforced.goodput_bps / plain.goodput_bps);
        cpu.push(enforced.cpu_ns_per_byte / plain.cpu_ns_per_byte);
        runs.push(json!({
            "unenforced_bps": plain.goodput_bps, "enforced_bps": enforced.goodput_bps,
            "unenforced_cpu_ns_per_byte": plain.cpu_ns_per_byte,
            "enforced_cpu_ns_per_byte": enforced.cpu_ns_per_byte,
        }));
        println!(
            "  {:>5.2} Gb/s unenforced, {:>5.2} Gb/s enforced",
            plain.goodput_bps / 1e9,
            enforced.goodput_bps / 1e9
        );
    }
    let (goodput, cpu) = (Median::of(&goodput), Median::of(&cpu));
    let programs = accounted(path, flows, settings.measured)?;
    println!("  goodput, enforced/unenforced       {}", show(goodput));
    println!("  CPU per byte, enforced/unenforced  {}", show(cpu));
    for program in &programs {
        println!("  {program}");
    }
    Ok(json!({
        "flows": flows,
        "goodput_ratio": ratio(goodput),
        "cpu_per_byte_ratio": ratio(cpu),
        "programs": programs.iter().map(Accounted::json).collect::<Value>(),
        "runs": runs,
    }))
}

fn pair_of_runs(
    path: &Path,
    flows: usize,
    measured: Duration,
    enforced_first: bool,
) -> Result<(Run, Run)> {
    let plain = || traffic::run(path, flows, measured);
    let enforced = || {
        let enforcement = Enforcement::attach(path)?;
        let run = traffic::run(path, flows, measured)?;
        enforcement.check(flows)?;
        anyhow::Ok(run)
    };
    if enforced_first {
        let second = enforced()?;
        Ok((plain()?, second))
    } else {
        Ok((plain()?, enforced()?))
    }
}

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

/// One more enforced run with the kernel's statistics on, which cost time of their own.
fn accounted(path: &Path, flows: usize, measured: Duration) -> Result<Vec<Accounted>> {
    let statistics = Statistics::on()?;
    let enforcement = Enforcement::attach(path)?;
    traffic::run(path, flows, measured)?;
    let programs = enforcement.programs()?;
    drop(statistics);
    let hosts = [
        "sending host",
        "sending host",
        "receiving host",
        "receiving host",
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
