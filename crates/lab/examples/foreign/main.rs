//! Flows of network stacks that nobody here wrote, each beside three of Linux through an enforced bottleneck.
//!
//! ```text
//! foreign PROGRAMS RESULTS.json [short] [unenforced] [STACK[:send|:receive]…]
//! ```
//! PROGRAMS is the directory in which `scripts/foreign.sh` puts what it builds. Needs root. Exits with 1 if
//! something does not hold of what [`check`] demands.

mod case;
mod check;
mod interrupt;

use std::{fs, path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sluicegate_lab::{Lab, tenant::maybe_run_tenant};

use case::{Case, Measured, Setting};

/// Tries of a case whose figures do not hold; on a machine that others share they may have spoilt it.
const TRIES: u32 = 5;

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
        let (measured, failures) = tried(&mut lab, &setting, case)?;
        println!("{}", check::row(case, &measured, &failures));
        failures.iter().for_each(|line| println!("    {line}"));
        bad += usize::from(!failures.is_empty());
        rows.push(described(case, &measured, &failures));
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
        bail!("usage: foreign PROGRAMS RESULTS.json [short] [unenforced] [STACK[:send|:receive]…]");
    };
    let mut setting = Setting {
        programs: PathBuf::from(programs).canonicalize()?,
        enforced: true,
        duration: Duration::from_secs(8),
    };
    let mut cases = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "short" => setting.duration = Duration::from_secs(3),
            "unenforced" => setting.enforced = false,
            name => cases.extend(Case::named(name)?),
        }
    }
    if cases.is_empty() {
        cases = Case::all();
    }
    Ok((setting, results.into(), cases))
}

/// Runs a case until it holds. A wrong byte is never tried again.
fn tried(lab: &mut Lab, setting: &Setting, case: &Case) -> Result<(Measured, Vec<String>)> {
    for attempt in 1.. {
        let measured = case::measure(lab, setting, case)?;
        let failures = check::failures(setting, case, &measured);
        if failures.is_empty() || attempt == TRIES || measured.differs() {
            return Ok((measured, failures));
        }
        println!("    {}; once more", failures.join("; "));
        let pause = Duration::from_secs(u64::from(attempt) * 5);
        thread::sleep(if setting.is_short() { pause / 5 } else { pause });
    }
    unreachable!("the last attempt returns")
}

fn described(case: &Case, measured: &Measured, failures: &[String]) -> Value {
    let flows = measured.flows.iter().map(|flow| {
        json!({
            "foreign": flow.foreign,
            "goodput_bps": flow.goodput_bps,
            "bytes": flow.bytes,
            "verified_bytes": flow.verified_bytes,
            "longest_gap_ms": flow.longest_gap_ms,
        })
    });
    json!({
        "stack": case.stack.name,
        "role": case.role.name(),
        "link_bps": measured.link_bps,
        "rate_scale": measured.rate_scale,
        "cpu_idle_min": measured.conditions.cpu_idle_min,
        "share": measured.share(),
        "flows": flows.collect::<Vec<Value>>(),
        "enforcement": measured.enforcement,
        "outside": measured.conditions.outside,
        "notes": measured.conditions.notes,
        "failures": failures,
    })
}
