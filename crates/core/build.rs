//! Builds `c/native*.c`, the native face of core's headers, into a static library, and turns the
//! table of algorithms into `OUT_DIR/algorithms.rs`. Build scripts of dependents get the names of
//! the tenants' stacks that are ours as `DEP_SLUICE_STACKS`, and those among them that offer ECN as
//! `DEP_SLUICE_ECN_STACKS`.

use std::{
    env,
    fmt::Write,
    fs,
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
    let table = c.join("sluice/cc_table.h");
    let text = fs::read_to_string(&table).expect("the table of algorithms");
    let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("algorithms.rs");
    fs::write(out, algorithms(&lines)).expect("writing the list of algorithms");
    let ours = lines
        .iter()
        .filter(|line| ["MODULE", "OURS"].contains(&line.stack));
    let ours: Vec<&Line> = ours.collect();
    let ecn: Vec<&Line> = (ours.iter().copied())
        .filter(|line| line.needs == "PEER")
        .collect();
    let names = |lines: &[&Line]| {
        let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
        names.join(",")
    };
    println!("cargo:stacks={}", names(&ours));
    println!("cargo:ecn_stacks={}", names(&ecn));
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

/// `X(constant, name, state, loss, needs, stack, "keys", "title")` of `cc_table.h`.
struct Line<'a> {
    name: &'a str,
    state: &'a str,
    needs: &'a str,
    stack: &'a str,
    keys: &'a str,
    title: &'a str,
}

impl<'a> Line<'a> {
    /// `None`: this is no line of the table.
    fn parse(text: &'a str) -> Option<Self> {
        let inner = text.trim().strip_prefix("X(")?;
        let inner = inner.trim_end_matches('\\').trim_end();
        let inner = inner.strip_suffix(')').unwrap_or(inner);
        let fields: Vec<&str> = inner.splitn(8, ',').map(str::trim).collect();
        let &[_, name, state, _, needs, stack, keys, title] = &fields[..] else {
            panic!("cc_table.h: eight fields are wanted in {text}");
        };
        Some(Self {
            name,
            state,
            needs,
            stack,
            keys: keys.trim_matches('"'),
            title,
        })
    }
}

/// `NO_STACK` becomes `NoStack`.
fn camel(words: &str) -> String {
    let words = words.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + &rest.to_lowercase()
    });
    words.collect()
}

/// A call of the macro in `src/cc.rs`.
fn algorithms(lines: &[Line<'_>]) -> String {
    let mut text = "algorithms! {\n".to_owned();
    for line in lines {
        let (variant, needs, stack) = (camel(line.name), camel(line.needs), camel(line.stack));
        let (name, state, title) = (line.name, line.state, line.title);
        let keys: Vec<&str> = line.keys.split_whitespace().collect();
        let _ = writeln!(
            text,
            "    {variant} \"{name}\" \"{state}\" {needs} {stack} {keys:?} {title}"
        );
    }
    text + "}\n"
}
