//! The library that records, and its place in a program's environment.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, anyhow};

/// Its sources, each with its name.
const SOURCES: [(&str, &str); 6] = [
    ("trace.h", include_str!("../c/trace.h")),
    ("trace.c", include_str!("../c/trace.c")),
    ("communicators.c", include_str!("../c/communicators.c")),
    ("point.c", include_str!("../c/point.c")),
    ("collectives.c", include_str!("../c/collectives.c")),
    ("unrecorded.c", include_str!("../c/unrecorded.c")),
];

/// Where traces go: the library reads it.
const DIRECTORY: &str = "SLUICEGATE_TRACE";

/// Compiles the library into a directory, with `$MPICC` or `mpicc`; returns its path.
///
/// # Errors
/// There is no compiler, or it fails.
pub fn build(directory: &Path) -> anyhow::Result<PathBuf> {
    for (name, text) in SOURCES {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let library = directory.join("libsluicegate-trace.so");
    let compiler = std::env::var_os("MPICC").unwrap_or_else(|| "mpicc".into());
    let sources = SOURCES.iter().map(|(name, _)| *name);
    let output = Command::new(&compiler)
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .args(sources.filter(|name| name.ends_with(".c")))
        .arg("-lpthread")
        .current_dir(directory)
        .output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow!(
            "there is no {}, which compiles the library that records; on Debian: apt-get install \
             openmpi-bin libopenmpi-dev gcc",
            compiler.to_string_lossy()
        ),
        _ => anyhow!("cannot start {}: {error}", compiler.to_string_lossy()),
    })?;
    match output.status.success() {
        true => Ok(library),
        false => Err(anyhow!(
            "{} cannot compile the library that records:\n{}",
            compiler.to_string_lossy(),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// The command, with the library before MPI in all of its processes, and traces in a directory.
pub fn command(words: &[OsString], library: &Path, traces: &Path) -> Command {
    let mut preload = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(words.first().map_or_else(|| "".into(), Clone::clone));
    command
        .args(words.iter().skip(1))
        .env("LD_PRELOAD", preload)
        .env(DIRECTORY, traces);
    command
}

/// The traces in a directory, of ranks in any order; and whether a second MPI program ran.
///
/// # Errors
/// A file cannot be read.
pub fn traces(directory: &Path) -> anyhow::Result<(Vec<Vec<u8>>, bool)> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        if name.is_some_and(|name| name.starts_with("rank-")) {
            let bytes = fs::read(&path);
            files.push(bytes.with_context(|| format!("reading {}", path.display()))?);
        }
    }
    Ok((files, directory.join("again").exists()))
}
