//! Enforcement with many flows: `make bench-scale`. Needs root and an otherwise idle machine.
//!
//! Three measurements: what the programs cost with thousands of flows that say little, by the
//! kernel's own accounting; what is left of a million flows that were opened and closed; and what a
//! flood of SYNs with a tuple each does to an established flow, in turns with a path that has no
//! programs.

#![allow(clippy::print_stdout)]

mod concurrent;
mod flood;
#[allow(dead_code)] // threads of this benchmark stay nowhere
#[path = "../shared/mod.rs"]
mod shared;
mod turnover;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::json;
use shared::{path::Path, policy, results};
use sluicegate_agent::{Instance, Options};

/// The arguments, with the figures of an ordinary run.
struct Settings {
    flows: usize,
    packets_per_second: u64,
    turnover: u64,
    syns: u64,
    out: Option<PathBuf>,
}

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == concurrent::KEEPER) {
        return concurrent::keep();
    }
    let settings = settings()?;
    raise_descriptor_limit(settings.flows as u64 + 100)?;
    let concurrent = concurrent::measure(settings.flows, settings.packets_per_second)?;
    println!("{concurrent:#}");
    let turnover = turnover::measure(settings.turnover)?;
    println!("{turnover:#}");
    let flood = flood::measure(settings.syns)?;
    println!("{flood:#}");
    let measured = json!({
        "concurrent": concurrent,
        "turnover": turnover,
        "flood": flood,
    });
    results::write(settings.out.as_deref(), measured)
}

fn settings() -> Result<Settings> {
    let mut settings = Settings {
        flows: 10_000,
        packets_per_second: 10_000,
        turnover: 1_000_000,
        syns: 1_000_000,
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
            "--flows" => settings.flows = value()?.parse().context("--flows")?,
            "--rate" => settings.packets_per_second = value()?.parse().context("--rate")?,
            "--turnover" => settings.turnover = value()?.parse().context("--turnover")?,
            "--syns" => settings.syns = value()?.parse().context("--syns")?,
            "--out" => settings.out = Some(value()?.into()),
            _ => bail!(
                "unknown argument {argument}; use --flows N, --rate PACKETS, --turnover N, --syns N, --out DIR"
            ),
        }
    }
    Ok(settings)
}

#[allow(unsafe_code)] // setrlimit: the library's wrapper is not among the features at hand
fn raise_descriptor_limit(least: u64) -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for both calls, which read or write no more than it.
    let code = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_cur.max(least);
        limit.rlim_max = limit.rlim_max.max(least);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    if code != 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| {
            format!("{least} open files are needed, and this machine allows fewer (ulimit -Hn); use fewer --flows")
        });
    }
    Ok(())
}

/// Enforcement on both hosts of a path.
fn enforced(path: &Path, options: &Options) -> Result<[Instance; 2]> {
    let attach = |host| {
        path.within(host, || {
            let mut instance = Instance::load(&policy::policy()?, options)?;
            instance.attach("tenant")?;
            Ok(instance)
        })
    };
    Ok([attach("ha")?, attach("hb")?])
}
