//! Flows of network stacks of other projects, each beside three flows of Linux through an enforced
//! bottleneck.
//!
//! ```text
//! foreign PROGRAMS RESULTS.json [short|long] [unenforced] [step] [STACK[:send|:receive]…]
//! ```
//! PROGRAMS is the directory in which `scripts/foreign.sh` puts what it builds. Needs root. Exits
//! with 1 if something does not hold of what [`check`] demands.

mod case;
mod check;
mod interrupt;

use std::{fs, path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sluicegate_lab::{Lab, tenant::maybe_run_tenant};
use sluicegate_scenario::results::Conditions;

use case::{Case, Measured, Setting};

/// Tries of a case whose figures do not hold in runs that were disturbed.
const TRIES: u32 = 5;
/// Printed before each further try, as `scripts/stages.sh` counts them.
const AGAIN: &str = "==> did not pass, once more: ";
/// Lines of one case's failures at most; all are among the figures.
const SHOWN_LINES: usize = 8;
/// How often the link's rate is halved where the CPU is the bottleneck.
const HALVINGS_MAX: i32 = 2;

fn main() {
    maybe_run_tenant();
    match run() {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(1);
        }
    }
}

fn run() -> Result<bool> {
    let (setting, results, cases) = arguments()?;
    interrupt::install()?;
    let mut lab = Lab::new()?;
    println!("{}", check::HEADING);
    let mut rows = Vec::new();
    let mut bad = 0;
    for case in &cases {
        let failures = match tried(&mut lab, &setting, case) {
            Ok(tries) => {
                let (measured, failures) = tries.last().context("a try")?;
                println!("{}", check::row(case, measured, failures));
                rows.push(described(case, &tries));
                failures.clone()
            }
            Err(error) if interrupt::requested() => return Err(error),
            // An error that ends one case need not end the others.
            Err(error) => vec![format!("{error:#}")],
        };
        for line in failures.iter().take(SHOWN_LINES) {
            println!("    FAILED: {line}");
        }
        bad += usize::from(!failures.is_empty());
    }
    let text = serde_json::to_string_pretty(&json!({
        "enforced": setting.enforced,
        "flows": rows,
    }))?;
    fs::write(&results, text + "\n").with_context(|| results.display().to_string())?;
    println!("{} held, {bad} did not", cases.len() - bad);
    Ok(bad == 0)
}

fn arguments() -> Result<(Setting, PathBuf, Vec<Case>)> {
    let mut arguments = std::env::args().skip(1);
    let (Some(programs), Some(results)) = (arguments.next(), arguments.next()) else {
        bail!(
            "usage: foreign PROGRAMS RESULTS.json [short|long] [unenforced] [step] [STACK[:ROLE]…]"
        );
    };
    let mut setting = Setting {
        programs: PathBuf::from(programs).canonicalize()?,
        enforced: true,
        step: false,
        duration: Duration::from_secs(8),
        pause: Duration::from_secs(5),
    };
    let mut cases = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "short" => {
                setting.duration = Duration::from_secs(3);
                setting.pause = Duration::from_secs(2);
            }
            "unenforced" => setting.enforced = false,
            "step" => setting.step = true,
            "long" => setting.duration = Duration::from_secs(20),
            name => cases.extend(Case::named(name)?),
        }
    }
    if cases.is_empty() {
        cases = Case::all();
    }
    Ok((setting, results.into(), cases))
}

/// A run of a case, and what did not hold of it.
type Try = (Measured, Vec<String>);

/// Runs a case, slower where the CPU is the bottleneck, and again while the run says that it was
/// disturbed. A wrong byte is never tried again. Returns all runs, the one that counts last.
fn tried(lab: &mut Lab, setting: &Setting, case: &Case) -> Result<Vec<Try>> {
    let (mut attempt, mut halvings) = (1, 0);
    let mut tries = Vec::new();
    loop {
        let measured = case::measure(lab, setting, case, 0.5f64.powi(halvings))?;
        let failures = check::failures(setting, case, &measured);
        let (differs, cpu_bound) = (measured.differs(), measured.conditions.cpu_bound);
        let disturbed = disturbed(&measured.conditions);
        tries.push((measured, failures.clone()));
        if failures.is_empty() || differs || !disturbed {
            return Ok(tries);
        }
        if cpu_bound && halvings < HALVINGS_MAX {
            halvings += 1;
            println!(
                "    {}, and the CPU was the bottleneck: at half the rate",
                failures.join("; ")
            );
            println!("{AGAIN}{} {}", case.stack.name, case.role.name());
            continue;
        }
        if attempt >= TRIES {
            return Ok(tries);
        }
        println!("    {}", failures.join("; "));
        println!("{AGAIN}{} {}", case.stack.name, case.role.name());
        thread::sleep(setting.pause * attempt);
        attempt += 1;
    }
}

/// Whether a run has measured that something else had the machine, as `disturbed` of
/// `scripts/env.sh` decides it: the CPU was the bottleneck, the hypervisor took much of one, or
/// packets were lost between namespaces. What TCP's counters show without a cause is no such
/// measurement.
fn disturbed(conditions: &Conditions) -> bool {
    let mut outside = conditions.outside.iter();
    conditions.cpu_bound
        || conditions.is_cpu_stolen()
        || outside.any(|(name, count)| name.ends_with("_dropped") && *count > 0)
}

/// The last run in full, and in short those before it, which did not hold.
fn described(case: &Case, tries: &[Try]) -> Value {
    let Some(((measured, failures), before)) = tries.split_last() else {
        return Value::Null;
    };
    let before = before.iter().map(|(measured, failures)| {
        json!({
            "link_bps": measured.link_bps,
            "cpu_idle_min": measured.conditions.cpu_idle_min,
            "cpu_stolen_max": measured.conditions.cpu_stolen_max,
            "share": measured.share(),
            "failures": failures,
        })
    });
    let flows = measured.flows.iter().map(|flow| {
        json!({
            "foreign": flow.foreign,
            "goodput_bps": flow.goodput_bps,
            "bytes": flow.bytes,
            "verified_bytes": flow.verified_bytes,
            "longest_gap_ms": flow.longest_gap_ms,
            "sender_counters": flow.counters,
        })
    });
    json!({
        "stack": case.stack.name,
        "role": case.role.name(),
        "link_bps": measured.link_bps,
        "rate_scale": measured.rate_scale,
        "cpu_idle_min": measured.conditions.cpu_idle_min,
        "cpu_stolen_max": measured.conditions.cpu_stolen_max,
        "share": measured.share(),
        "flows": flows.collect::<Vec<Value>>(),
        "enforcement": measured.enforcement,
        "outside": measured.conditions.outside,
        "notes": measured.conditions.notes,
        "failures": failures,
        "tries_before": before.collect::<Vec<Value>>(),
    })
}
