//! For build scripts: compiles each `bpf/NAME.bpf.c` of a crate with clang into
//! `OUT_DIR/NAME.bpf.o`, and other sources under the names and with the macros that the build
//! script gives.
//!
//! The crate depends on libbpf-sys itself: only then does Cargo tell its build script where
//! libbpf's headers are.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, exit},
};

/// Older ones lack what the programs need (`-mcpu=v3` with 64-bit atomics, BTF of static
/// functions).
const CLANG_MIN: u32 = 16;

/// A source in `bpf/` that is compiled more than once.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its file name.
    pub source: &'static str,
    /// Stem of the object's name.
    pub object: String,
    /// Macros as `NAME=VALUE`.
    pub macros: Vec<String>,
}

/// One run of the compiler.
struct Job {
    source: PathBuf,
    object: PathBuf,
    macros: Vec<String>,
}

/// Compiles the programs of the crate whose build script calls this, and `variants`. Headers come
/// from its `bpf/` and from `shared`, directories relative to the crate. Ends the build with a
/// message if that fails.
pub fn compile_programs(shared: &[&str], variants: Vec<Variant>) {
    let manifest = PathBuf::from(required("CARGO_MANIFEST_DIR"));
    let bpf = manifest.join("bpf");
    let mut include = vec![bpf.clone()];
    include.extend(shared.iter().map(|directory| manifest.join(directory)));
    for directory in &include {
        watch(directory);
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    // Not PATH, in which cargo's own subcommands add directories: each would build all anew.
    let clang = clang().unwrap_or_else(|reason| fail(&reason));
    println!("cargo:rerun-if-changed={}", clang.display());
    let out = PathBuf::from(required("OUT_DIR"));
    let own = sources(&bpf).into_iter().map(|source| Job {
        object: out.join(source.with_extension("o").file_name().unwrap_or_default()),
        source,
        macros: Vec::new(),
    });
    let variants = variants.into_iter().map(|variant| Job {
        source: bpf.join(variant.source),
        object: out.join(format!("{}.bpf.o", variant.object)),
        macros: variant.macros,
    });
    let running: Vec<(Job, Child)> = own
        .chain(variants)
        .map(|job| {
            let child = compile(&clang, &job, &include);
            (job, child)
        })
        .collect();
    for (job, child) in running {
        finish(&clang, &job.source, child);
    }
}

fn required(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| fail(&format!("{variable} is not set: build with cargo")))
}

fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo:warning={line}");
    }
    eprintln!("{message}");
    exit(1)
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap_or_else(|error| fail(&format!("{}: {error}", directory.display())));
    let mut sources: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();
    sources
}

/// Cargo follows a directory's own time stamp only, so name every file below it as well.
fn watch(directory: &Path) {
    println!("cargo:rerun-if-changed={}", directory.display());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            watch(&path);
        } else {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
}

/// The newest clang in `PATH`, or `$CLANG`.
fn clang() -> Result<PathBuf, String> {
    let candidates: Vec<PathBuf> = match env::var_os("CLANG") {
        Some(chosen) => vec![PathBuf::from(chosen)],
        None => env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .filter(|path| is_clang(path))
            .collect(),
    };
    let newest = candidates
        .into_iter()
        .filter_map(|path| Some((version(&path)?, path)))
        .max_by_key(|(version, _)| *version);
    let how =
        format!("install one (Debian: apt-get install clang-{CLANG_MIN}) or name it in CLANG");
    match newest {
        Some((version, path)) if version >= CLANG_MIN => Ok(path),
        Some((version, path)) => Err(format!(
            "the kernel programs need clang {CLANG_MIN} or newer, {} is {version}: {how}",
            path.display()
        )),
        None => Err(format!(
            "the kernel programs need clang {CLANG_MIN} or newer, found none: {how}"
        )),
    }
}

/// `clang` or `clang-NN`, not `clang-format` and the like.
fn is_clang(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    match name.strip_prefix("clang") {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|digits| digits.parse::<u32>().is_ok()),
        None => false,
    }
}

fn version(clang: &Path) -> Option<u32> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, rest) = text.split_once("clang version ")?;
    rest.split('.').next()?.trim().parse().ok()
}

fn compile(clang: &Path, job: &Job, include: &[PathBuf]) -> Child {
    let mut command = Command::new(clang);
    command
        .args(["-target", "bpf", "-mcpu=v3", "-std=gnu11", "-O2", "-g"])
        // Programs have the parameters that the kernel gives them, and BPF_PROG adds one.
        .args(["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_arch()));
    for directory in include {
        command.arg("-I").arg(directory);
    }
    for name in &job.macros {
        command.arg(format!("-D{name}"));
    }
    // libbpf's own headers (bpf/bpf_helpers.h …) come with the library that we link.
    command.arg("-isystem").arg(required("DEP_BPF_INCLUDE"));
    // linux/types.h wants asm/types.h, which Debian keeps per architecture.
    let multiarch = format!(
        "/usr/include/{}-linux-gnu",
        required("CARGO_CFG_TARGET_ARCH")
    );
    command.arg("-idirafter").arg(multiarch);
    command.arg("-c").arg(&job.source);
    command.arg("-o").arg(&job.object);
    command
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| fail(&format!("{}: {error}", clang.display())))
}

fn finish(clang: &Path, source: &Path, child: Child) {
    let output = child
        .wait_with_output()
        .unwrap_or_else(|error| fail(&format!("{}: {error}", clang.display())));
    if !output.status.success() {
        fail(&format!(
            "{}: does not compile\n{}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
}

/// The kernel's name of the target architecture, as bpf_tracing.h wants it.
fn kernel_arch() -> String {
    match required("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "x86".into(),
        "aarch64" => "arm64".into(),
        "riscv64" => "riscv".into(),
        "powerpc64" => "powerpc".into(),
        "s390x" => "s390".into(),
        other => other.into(),
    }
}
