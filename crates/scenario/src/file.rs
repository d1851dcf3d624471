//! Reading a scenario file: inheritance, variants, expectations.
//!
//! ```text
//! calibration ◀── extends ◀── file ◀── [short], when asked for ◀── the variant that it is like ◀── variant
//! ```
//! Each is laid over the one before; see [`Node::overlay`].

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use sluicegate_config::{
    Problems,
    document::{self, Node, Value},
    problem::{Complaint, Sink},
    table::{Item, Table, nearest},
};

use crate::{
    bounds,
    expect::Expectation,
    experiment::{Experiment, Variant},
    figures::Figure,
    inherit,
    inspect::Inspect,
    parameters,
    places::Places,
    published::Publication,
    resolve::{self, Checks},
};

/// Worlds that may have expectations of their own.
const WORLDS: [&str; 2] = ["lab", "sim"];

/// How a file is to be read.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Lay `[short]` over the file.
    pub short: bool,
    /// Seed instead of the file's.
    pub seed: Option<u64>,
    /// A file with a `[sim]` table to lay below the scenario's own.
    pub calibration: Option<PathBuf>,
}

/// Keys of the file as a whole: a variant cannot change them.
const FILE_KEYS: [&str; 11] = [
    "name",
    "mirrors",
    "seed",
    "repeats",
    "extends",
    "short",
    "variant",
    "expect",
    "parameter",
    "published",
    "like",
];

/// Longest chain of variants that are like one another.
const CHAIN_MAX: usize = bounds::CHAIN.most as usize;

/// Reads and resolves a scenario file.
///
/// # Errors
/// Every error in the file and in those it names.
pub fn load(path: &Path, options: &Options) -> Result<Experiment, Problems> {
    resolve_tree(&prepared(path, options)?, path, options)
}

/// The tree of a scenario with everything that it takes from other files, the calibration and the
/// short form.
pub(crate) fn prepared(path: &Path, options: &Options) -> Result<Node, Problems> {
    prepare(inherit::inherit(document::read(path)?, path)?, options)
}

/// Reads and resolves a scenario from text; `path` names it in messages and anchors what it names.
///
/// # Errors
/// As [`load`].
pub fn parse(path: &Path, text: &str, options: &Options) -> Result<Experiment, Problems> {
    let tree = document::parse(&path.display().to_string(), text)?;
    let tree = prepare(inherit::inherit(tree, path)?, options)?;
    resolve_tree(&tree, path, options)
}

/// The language as far as a text leads through it: the dotted path of every key that reading it
/// asks for, and `KEY = "WORD"` for every word that would do where one of a few must stand.
///
/// # Errors
/// As [`load`].
pub fn words(path: &Path, text: &str) -> Result<BTreeSet<String>, Problems> {
    let options = Options::default();
    let tree = document::parse(&path.display().to_string(), text)?;
    let tree = prepare(inherit::inherit(tree, path)?, &options)?;
    let sink = Sink::listing();
    let experiment = read_tree(&tree, path, &options, &sink)?;
    let words = sink.words();
    sink.finish(experiment).map(|_| words)
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Lays the calibration below a tree and the short form over it.
fn prepare(mut tree: Node, options: &Options) -> Result<Node, Problems> {
    let sink = Sink::default();
    if let Some(path) = &options.calibration {
        calibrate(&mut tree, path)?;
    }
    if let Some(short) = tree.remove("short") {
        check_override(
            &short,
            "short",
            &["name", "seed", "extends", "short"],
            &sink,
        );
        if options.short {
            tree.overlay(&short);
        }
    }
    sink.finish(tree)
}

/// Resolves a tree that is prepared.
pub(crate) fn resolve_tree(
    tree: &Node,
    path: &Path,
    options: &Options,
) -> Result<Experiment, Problems> {
    let sink = Sink::default();
    let experiment = read_tree(tree, path, options, &sink)?;
    sink.finish(experiment)
}

/// Names of the variants of a tree that is prepared, in the order of the file.
pub(crate) fn variant_names(tree: &Node) -> Vec<String> {
    let mut base = tree.clone();
    let overrides = base.remove("variant");
    let trees = variant_trees(&base, overrides.as_ref(), &Sink::default());
    trees.into_iter().map(|(name, _)| name).collect()
}

fn read_tree(
    tree: &Node,
    path: &Path,
    options: &Options,
    sink: &Sink,
) -> Result<Experiment, Problems> {
    let as_run = as_run(tree, path, options)?;
    parameters::read(&Table::root(tree, sink), tree);
    let mut tree = tree.clone();
    tree.remove("parameter");
    // The variations from run to run, see `sweep`, do not concern a single run.
    tree.remove("sweep");
    let overrides = tree.remove("variant");
    let expect = tree.remove("expect");
    let published = tree.remove("published");
    let root = Table::root(&tree, sink);
    let mut experiment = Experiment {
        name: read_name(&root, path),
        title: String::new(),
        mirrors: root.text("mirrors").map(str::to_owned),
        file: path.display().to_string(),
        seed: read_seed(&root, options),
        repeats: root.within("repeats", &bounds::REPEATS).unwrap_or(1) as u32,
        variants: Vec::new(),
        expectations: Vec::new(),
        published: Vec::new(),
        as_run,
        inspect: Inspect::default(),
    };
    experiment.title = root.text("title").unwrap_or(&experiment.name).to_owned();
    let trees = variant_trees(&tree, overrides.as_ref(), sink);
    for (name, tree) in &trees {
        let table = Table::root(tree, sink);
        experiment
            .variants
            .push(read_variant(name, &table, path, experiment.seed));
        table.close();
    }
    if let Some(expect) = expect {
        experiment.expectations = read_expectations(expect, &experiment, sink);
    }
    if let Some(published) = &published {
        let table = Table::root(published, sink);
        experiment.published = read_lines(&table, Publication::read, |publication, item| {
            check_figures(&publication.figures(), item, &experiment.variants);
        });
        // A file as it was run has lines before tables.
        experiment.published.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Ok(experiment)
}

/// Lays the `[sim]` table of a calibration below that of a scenario.
fn calibrate(tree: &mut Node, path: &Path) -> Result<(), Problems> {
    let mut calibration = document::read(path)?;
    let other = calibration.entries().iter().find(|e| e.key != "sim");
    if let Some(other) = other {
        let complaint = Complaint::new(
            "a calibration holds nothing but [sim]",
            "write one with `sluicegate lab calibrate --out FILE`",
        );
        return Err(other.place.problem(&other.key, complaint).into());
    }
    if let Some(mut sim) = calibration.remove("sim") {
        if let Some(own) = tree.get("sim") {
            sim.overlay(own);
        }
        tree.set("sim", sim);
    }
    Ok(())
}

/// The file with its name and seed, as TOML; read again it gives the same experiment.
fn as_run(tree: &Node, path: &Path, options: &Options) -> Result<String, Problems> {
    let mut tree = tree.clone();
    let place = tree.place.clone();
    let mut set = |key, value| {
        let place = place.clone();
        tree.set(key, Node { place, value });
    };
    if let Some(seed) = options.seed {
        set(
            "seed",
            Value::Integer(i64::try_from(seed).unwrap_or(i64::MAX)),
        );
    }
    if tree.get("name").is_none() {
        let value = Value::Text(stem(path));
        tree.set("name", Node { place, value });
    }
    inherit::to_text(&tree, path)
}

fn read_name(root: &Table<'_>, path: &Path) -> String {
    let Some(item) = root.get("name") else {
        return stem(path);
    };
    let name = item.text().unwrap_or_default();
    if !resolve::is_name(name) {
        item.complain(format!("\"{name}\" is no name"), resolve::NAME_ADVICE);
    }
    name.to_owned()
}

fn read_seed(root: &Table<'_>, options: &Options) -> u64 {
    let seed = root.within("seed", &bounds::SEED).unwrap_or(1);
    options.seed.unwrap_or(seed.unsigned_abs())
}

/// The complete tree of each variant, in the order of the file.
fn variant_trees(base: &Node, overrides: Option<&Node>, sink: &Sink) -> Vec<(String, Node)> {
    let Some(overrides) = overrides.filter(|node| !node.entries().is_empty()) else {
        return vec![("base".to_owned(), base.clone())];
    };
    let root = Table::root(overrides, sink);
    let mut trees = Vec::new();
    for (name, item) in root.named() {
        if !resolve::is_name(name) {
            item.complain(format!("\"{name}\" is no name"), resolve::NAME_ADVICE);
        }
        if item.table().is_none() {
            continue;
        }
        let mut tree = base.clone();
        for layer in layers(name, overrides, &item) {
            check_override(layer, name, &FILE_KEYS[..10], sink);
            let mut layer = layer.clone();
            layer.remove("like");
            tree.overlay(&layer);
        }
        trees.push((name.to_owned(), tree));
    }
    trees
}

/// The overrides of a variant, those that it is `like` first.
fn layers<'a>(name: &str, overrides: &'a Node, item: &Item<'_>) -> Vec<&'a Node> {
    let mut layers = Vec::new();
    let mut next = Some(name.to_owned());
    while let Some(name) = next {
        let Some(layer) = overrides.get(&name) else {
            let entries = overrides.entries().iter();
            let names: Vec<_> = entries.map(|entry| entry.key.as_str()).collect();
            let advice = format!(
                "known variants: {}{}",
                names.join(", "),
                nearest(&name, &names)
            );
            item.complain(format!("there is no variant \"{name}\" to be like"), advice);
            break;
        };
        if layers.len() > CHAIN_MAX {
            item.complain("too many variants are like one another", "break the circle");
            break;
        }
        layers.push(layer);
        next = match layer.get("like").map(|node| &node.value) {
            Some(Value::Text(name)) => Some(name.clone()),
            Some(_) => {
                item.complain("`like` must be the name of a variant", "");
                None
            }
            None => None,
        };
    }
    layers.reverse();
    layers
}

/// Keys that an override must not set.
fn check_override(layer: &Node, name: &str, forbidden: &[&str], sink: &Sink) {
    let table = Table::root(layer, sink);
    for (key, item) in table.named() {
        if forbidden.contains(&key) {
            item.complain(
                format!("`{name}` cannot set `{key}`"),
                "it belongs to the file as a whole",
            );
        }
    }
}

fn read_variant(name: &str, table: &Table<'_>, path: &Path, seed: u64) -> Variant {
    // Keys of the file as a whole were read before: here they are only known.
    for key in FILE_KEYS {
        table.get(key);
    }
    let checks = Checks {
        directory: path.parent().unwrap_or(Path::new("")),
        seed,
    };
    resolve::variant(name, table, &checks)
}

/// The lines of `[expect]` or `[published]`. `[expect]`, and `[expect.WORLD]` with lines that take
/// the place of those of their name in that world.
fn read_expectations(mut expect: Node, experiment: &Experiment, sink: &Sink) -> Vec<Expectation> {
    let is_table = |node: &Node| matches!(node.value, Value::Table(_));
    let own = WORLDS.map(|world| {
        let has_own = expect.get(world).is_some_and(is_table);
        has_own.then(|| expect.remove(world)).flatten()
    });
    let read = |node: &Node| {
        let table = Table::root(node, sink);
        let parse = |name: &str, item: &Item<'_>| {
            let mut line = item.parse(|text| Expectation::parse(name, text))?;
            line.places = Places::of_item(item);
            Some(line)
        };
        read_lines(&table, parse, |expectation, item| {
            check_figures(&expectation.figures(), item, &experiment.variants);
            if expectation.is_of_runs() && experiment.repeats < 2 {
                item.complain(
                    "it is about several runs, and there is one of each variant",
                    "set `repeats`, for example to 5; repeat i has the seed `seed` + i",
                );
            }
        })
    };
    let mut lines = read(&expect);
    for (world, own) in WORLDS.into_iter().zip(&own) {
        let Some(own) = own else { continue };
        for line in &mut lines {
            if line.only.is_none() && own.get(&line.name).is_some() {
                line.except.push(world);
            }
        }
        lines.extend(read(own).into_iter().map(|mut line| {
            line.only = Some(world);
            line
        }));
    }
    lines
}

fn read_lines<T>(
    table: &Table<'_>,
    read: impl Fn(&str, &Item<'_>) -> Option<T>,
    check: impl Fn(&T, &Item<'_>),
) -> Vec<T> {
    let mut lines = Vec::new();
    for (name, item) in table.named() {
        // `false` drops an inherited line.
        if item.is_false() {
            continue;
        }
        if let Some(line) = read(name, &item) {
            check(&line, &item);
            lines.push(line);
        }
    }
    lines
}

fn check_figures(figures: &[&Figure], item: &Item<'_>, variants: &[Variant]) {
    let names: Vec<&str> = variants.iter().map(|v| v.name.as_str()).collect();
    for figure in figures {
        let name = figure.variant.as_str();
        match variants.iter().find(|variant| variant.name == name) {
            None => item.complain(
                format!("there is no variant \"{name}\""),
                format!(
                    "known variants: {}{}",
                    names.join(", "),
                    nearest(name, &names)
                ),
            ),
            Some(variant) => {
                if let Err(complaint) = figure.check(variant) {
                    item.complain(complaint.reason, complaint.advice);
                }
            }
        }
    }
}
