//! Finds the ECharts library in the `charming` package and hands its path to `include_str!`.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

/// Path inside the package, by the pinned version.
const ECHARTS: &str = "src/asset/echarts-5.5.1.min.js";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let script = package_directory("charming")?.join(ECHARTS);
    if !script.is_file() {
        bail!(
            "{} does not exist: the version of `charming` in crates/report/Cargo.toml changed; adapt ECHARTS in build.rs",
            script.display()
        );
    }
    println!("cargo::rustc-env=ECHARTS_JS={}", script.display());
    println!("cargo::rerun-if-changed={}", script.display());
    Ok(())
}

/// Directory of a dependency's sources, as Cargo resolved it.
fn package_directory(name: &str) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").context("CARGO is not set: run by cargo")?;
    let target = env::var("TARGET").context("TARGET is not set: run by cargo")?;
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version=1",
            "--filter-platform",
            &target,
        ])
        .output()
        .context("cargo metadata did not start")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .with_context(|| format!("cargo metadata does not list the package {name}"))?;
    let directory = PathBuf::from(manifest).parent().map(PathBuf::from);
    directory.with_context(|| format!("{manifest} has no parent directory"))
}
