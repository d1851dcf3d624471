//! Compiles the kernel programs, which modules embed with `include_object!`, and lists the tenants'
//! stacks in `OUT_DIR/stacks.rs`: those of core's table of algorithms that Sluicegate brings.

use std::{env, fmt::Write, fs, path::Path, process::Command};

use sluicegate_bpf_build::{Variant, compile_programs};

fn main() {
    // From core's build script.
    let names = env::var("DEP_SLUICE_STACKS").expect("core's build script names the stacks");
    let names: Vec<&str> = names.split(',').collect();
    let ecn = env::var("DEP_SLUICE_ECN_STACKS").expect("core's build script names them");
    for name in ecn.split(',') {
        assert!(
            has_file_of_its_own(name),
            "cc_table.h: {name} needs PEER, and tenant_plain.c neither offers ECN nor answers marks \
             one by one; write bpf/tenant_{name}.bpf.c"
        );
    }
    let plain = names.iter().filter(|name| !has_file_of_its_own(name));
    let variants = plain.map(|name| Variant {
        source: "tenant_plain.c",
        object: format!("tenant_{name}"),
        macros: vec![
            format!("STACK_NAME=\"sg_{name}\""),
            format!("STACK_ALGORITHM=SG_CC_{}", name.to_uppercase()),
        ],
    });
    compile_programs(&["../agent/bpf", "../core/c"], variants.collect());
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("stacks.rs"), list(&names)).expect("writing the list of stacks");
    build_preloaded("c/uml_xstate.c", &Path::new(&out).join("uml_xstate.so"));
}

/// Compiles what `uml.rs` preloads.
fn build_preloaded(source: &str, to: &Path) {
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-env-changed=CC");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args([
            "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
        ])
        .arg(to)
        .args([source, "-ldl"])
        .status();
    let status = status.unwrap_or_else(|error| panic!("{compiler}: {error}; install a C compiler"));
    assert!(status.success(), "{compiler} does not compile {source}");
}

fn has_file_of_its_own(name: &str) -> bool {
    Path::new("bpf")
        .join(format!("tenant_{name}.bpf.c"))
        .exists()
}

/// An array of `Stack`.
fn list(names: &[&str]) -> String {
    let mut text = "[\n".to_owned();
    for name in names {
        let _ = writeln!(
            text,
            "Stack {{ name: \"{name}\", programs: include_object!(\"tenant_{name}\") }},"
        );
    }
    text + "]\n"
}
