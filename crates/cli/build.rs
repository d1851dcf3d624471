//! Names the build of everything that decides what a simulation gives, so that results of another
//! are not taken for its own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Rooms whose code a simulated result depends on, and the versions of libraries.
const SOURCES: [&str; 12] = [
    "../core/c",
    "../core/src",
    "../config/src",
    "../policy/src",
    "../tcp/src",
    "../vswitch/src",
    "../fabric/src",
    "../program/src",
    "../scenario/src",
    "../apps/src",
    "../pcapng/src",
    "../sim/src",
];
const LOCK: &str = "../../Cargo.lock";

fn main() -> std::io::Result<()> {
    let mut files = vec![PathBuf::from(LOCK)];
    println!("cargo::rerun-if-changed={LOCK}");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(Path::new(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content = fs::read(&file)?;
        hash.update(file.to_string_lossy().as_bytes());
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    let hash: String = (hash.finalize().iter().take(8))
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("cargo::rustc-env=SLUICEGATE_BUILD={hash}");
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
