//! `results.json`: what was measured, and on what.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Writes `measured`, an object, and the machine it was measured on into a directory that is made
/// if need be; writes nothing without one.
pub fn write(out: Option<&Path>, mut measured: Value) -> Result<()> {
    let Some(out) = out else {
        return Ok(());
    };
    measured["kernel"] = json!(fs::read_to_string("/proc/sys/kernel/osrelease")?.trim());
    measured["cpus"] = json!(std::thread::available_parallelism()?.get());
    let file = out.join("results.json");
    let context = || format!("writing {}", file.display());
    fs::create_dir_all(out).with_context(context)?;
    fs::write(&file, serde_json::to_string_pretty(&measured)?).with_context(context)?;
    println!("written to {}", file.display());
    Ok(())
}
