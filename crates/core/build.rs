//! Builds `c/native*.c`, the native face of core's headers, into a static library.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    let c = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("c");
    let mut sources = Vec::new();
    watch(&c, &mut sources);
    sources.sort();
    cc::Build::new()
        .files(sources)
        .include(&c)
        .std("c11")
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("sluice");
}

/// Rebuilds when any file below `directory` changes, and collects the sources among them.
fn watch(directory: &Path, sources: &mut Vec<PathBuf>) {
    println!("cargo:rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            watch(&path, sources);
            continue;
        }
        println!("cargo:rerun-if-changed={}", path.display());
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
}
