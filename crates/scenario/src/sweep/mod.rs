//! Sweeps: a scenario for every combination of values of some axes, with several seeds.
//!
//! ```text
//! file.toml ─▶ tree ─[axes]─▶ one tree per combination ─[resolve]─▶ variants ─▶ cells × seeds ─▶ Outcome
//! ```
//!
//! A [`Plan`] lists the runs; its caller has a world and runs them. Each run equals
//! `sluicegate run --seed` of the file with the values of its cell written into it.
//! [`Plan::outcome`] turns the measurements into tables.

mod axis;
mod expect;
pub mod figures;
mod outcome;
mod published;
mod skip;
mod statistics;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use sluicegate_config::{
    Problem, Problems,
    document::Node,
    problem::{Complaint, Sink},
    table::{Item, Table, nearest},
};

pub use axis::{Axis, AxisValue, Set};
pub use expect::{Instance, Statement, StatementResult};
pub use outcome::{
    AxisNames, CellFigures, CellResult, Failed, Measured, Outcome, RunFigures, SCHEMA,
};
pub use published::Publication;
use skip::Skip;
pub use statistics::{CONFIDENCE, Summary};

use crate::{
    bounds,
    experiment::{Experiment, Variant},
    figures::{Figure, Quantity},
    file, parameters,
    places::Places,
};

/// Most cells of a sweep.
const CELLS_MAX: usize = bounds::CELLS.most as usize;

const NOTHING_LEFT: &str = "`skip` leaves out every combination; take a condition away";

/// Most repeats of a cell.
pub const REPEATS_MAX: u32 = bounds::REPEATS.most as u32;

/// How a sweep is asked for, beside its file.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the file is read.
    pub file: file::Options,
    /// Axes that are added, or have other values.
    pub sets: Vec<Set>,
    /// Seeds of each cell, instead of the file's number.
    pub repeat: Option<u32>,
    /// Cells are left out that do not have one of these values: `axis=value,value`.
    pub only: Vec<Set>,
}

/// A sweep that has been checked: every cell that is to be run resolves.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the scenario.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Published figure that it mirrors.
    pub mirrors: Option<String>,
    /// The axes that are varied.
    pub axes: Vec<Axis>,
    /// Seeds of each cell.
    pub seeds: Vec<u64>,
    /// Figures that tables have, by their names without a variant; empty = all.
    pub figures: Vec<String>,
    /// The cells to run, for each seed; variants of one combination are neighbours.
    pub cells: Vec<Cell>,
    /// Notes for users before it runs.
    pub notes: Vec<String>,
    /// Hosts of the largest network.
    pub hosts: usize,
    statements: Vec<Statement>,
    publications: Vec<Publication>,
    skips: Vec<Skip>,
    /// Those of values that are not left out, as positions, the last axis turning the fastest.
    combinations: Vec<Vec<usize>>,
    dimensions: Vec<Dimension>,
    tree: Node,
    path: PathBuf,
    options: file::Options,
}

/// A variant of one combination of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// One value of each axis, as its position.
    pub values: Vec<usize>,
    /// Name of the variant.
    pub variant: String,
}

/// The values of an axis that `--only` keeps.
type Choices = (String, Vec<String>);

/// An axis, or the variants, as tables and expectations see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dimension {
    pub name: String,
    pub values: Vec<String>,
}

impl Cell {
    /// Whether it has all of these values, of `a|b` one; `dimensions` are the axes and, last, the
    /// variants.
    fn fits(&self, dimensions: &[Dimension], fixed: &[(String, String)]) -> bool {
        fixed.iter().all(|(axis, value)| {
            let at = dimensions.iter().position(|d| d.name == *axis);
            at.is_some_and(|at| match self.values.get(at) {
                Some(own) => is_among(&dimensions[at].values[*own], value),
                None => is_among(&self.variant, value),
            })
        })
    }
}

/// Whether a value is what a bracket says, or one of `a|b`.
fn is_among(own: &str, value: &str) -> bool {
    own == value || value.split('|').any(|one| one.trim() == own)
}

/// Reads a sweep and resolves the cells that are to be run.
///
/// # Errors
/// Every error of the file, of its `[sweep]`, and of what axes set, with the axis and the value.
pub fn load(path: &Path, options: &Options) -> Result<Plan, Problems> {
    plan(file::prepared(path, &options.file)?, path, options)
}

/// Of a tree that is prepared.
pub(crate) fn plan(mut tree: Node, path: &Path, options: &Options) -> Result<Plan, Problems> {
    // They describe the file, not what its axes make of it.
    let sink = Sink::default();
    parameters::read(&Table::root(&tree, &sink), &tree);
    sink.finish(())?;
    tree.remove("parameter");
    let sweep = tree.remove("sweep");
    let said = said(sweep.as_ref(), &tree)?;
    let command = |reason: String| command_problem(path, reason);
    let mut axes = said.axes;
    for set in &options.sets {
        match axes.iter_mut().find(|axis| axis.name == set.name) {
            Some(axis) => axis.replace(set, &tree),
            None => Axis::of_set(set, &tree).map(|axis| axes.push(axis)),
        }
        .map_err(command)?;
    }
    let overlaps = Sink::default();
    axis::check_overlaps(&axes, &said.skips, &overlaps);
    overlaps.finish(())?;
    let dimensions = dimensions(&axes);
    let combinations = combinations(&dimensions, &said.skips).map_err(command)?;
    let first = &combinations[0];
    let base = file::resolve_tree(&with_values(&tree, &axes, first)?, path, &options.file)
        .map_err(|problems| blame_all(problems, &axes, first))?;
    let repeat = (options.repeat).unwrap_or_else(|| said.repeat.unwrap_or(base.repeats));
    let mut plan = Plan {
        name: base.name,
        title: base.title,
        mirrors: base.mirrors,
        seeds: (0..u64::from(repeat))
            .map(|offset| base.seed.wrapping_add(offset))
            .collect(),
        figures: said.figures,
        cells: Vec::new(),
        notes: Vec::new(),
        hosts: 0,
        statements: said.statements,
        publications: said.publications,
        skips: said.skips,
        combinations,
        dimensions,
        axes,
        tree,
        path: path.to_owned(),
        options: options.file.clone(),
    };
    plan.check_values(&options.only)?;
    plan.name_variants()?;
    plan.lay_out(&options.only)?;
    plan.check_statements(sweep.as_ref())?;
    if !options.only.is_empty() {
        plan.drop_statements_without_cells();
    }
    Ok(plan)
}

/// Names of the axes of a tree that is prepared, and of those that are added; the variants are one.
///
/// # Errors
/// Those of `[sweep]`.
pub(crate) fn axis_names(tree: &Node, options: &Options) -> Result<Vec<String>, Problems> {
    let axes = said(tree.get("sweep"), tree)?.axes.into_iter();
    let added = options.sets.iter().map(|set| set.name.clone());
    let names = axes.map(|axis| axis.name).chain(added);
    Ok(names.chain(["variant".to_owned()]).collect())
}

/// The content of `[sweep]`.
#[derive(Default)]
struct Said {
    repeat: Option<u32>,
    figures: Vec<String>,
    axes: Vec<Axis>,
    statements: Vec<Statement>,
    publications: Vec<Publication>,
    skips: Vec<Skip>,
}

fn said(sweep: Option<&Node>, tree: &Node) -> Result<Said, Problems> {
    let Some(sweep) = sweep else {
        return Ok(Said::default());
    };
    let sink = Sink::default();
    // Paths of problems begin with the name of the table.
    let mut root = tree.clone();
    root.set("sweep", sweep.clone());
    let mut said = Said::default();
    if let Some(table) = Table::root(&root, &sink).table("sweep") {
        let repeat = table.within("repeat", &bounds::REPEATS);
        said.repeat = repeat.and_then(|repeat| u32::try_from(repeat).ok());
        said.figures = read_figures(&table);
        said.axes = read_axes(&table);
        said.skips = read_skips(&table, &dimensions(&said.axes));
        said.statements = read_lines(&table, "expect", |name, item| {
            item.parse(|text| Statement::parse(name, text))
        });
        said.publications = read_lines(&table, "published", Publication::read);
        table.close();
    }
    sink.finish(said)
}

fn read_figures(table: &Table<'_>) -> Vec<String> {
    let items = table.get("figures").and_then(|item| item.list());
    let figure = |text: &str| Quantity::parse(text).map(|_| text.to_owned());
    let items = items.unwrap_or_default();
    items.iter().filter_map(|item| item.parse(figure)).collect()
}

fn read_axes(table: &Table<'_>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for entry in table.tables("axis") {
        let Some(axis) = Axis::read(&entry) else {
            continue;
        };
        if axes.iter().any(|known| known.name == axis.name) {
            let reason = format!("there are two axes named {}", axis.name);
            entry.item().complain(reason, "give one another name");
        }
        entry.close();
        axes.push(axis);
    }
    axes
}

fn read_skips(table: &Table<'_>, axes: &[Dimension]) -> Vec<Skip> {
    let items = table.get("skip").and_then(|item| item.list());
    let skip = |text: &str| Skip::parse(text, axes);
    let items = items.unwrap_or_default();
    items.iter().filter_map(|item| item.parse(skip)).collect()
}

/// The lines of a table, without those that `false` takes away.
fn read_lines<T>(
    table: &Table<'_>,
    key: &'static str,
    read: impl Fn(&str, &Item<'_>) -> Option<T>,
) -> Vec<T> {
    let lines = table.table(key).map(|lines| lines.named());
    let lines = lines.unwrap_or_default().into_iter();
    let lines = lines.filter(|(_, item)| !item.is_false());
    lines.filter_map(|(name, item)| read(name, &item)).collect()
}

/// A problem of what stood on the command line.
fn command_problem(path: &Path, reason: String) -> Problems {
    let complaint = match reason.split_once("; ") {
        Some((reason, advice)) => Complaint::new(reason, advice),
        None => Complaint::new(reason, ""),
    };
    let problem = Problem {
        key: "sweep".to_owned(),
        ..Problem::of_file(path, complaint)
    };
    problem.into()
}

/// The tree with these values of the axes.
fn with_values(tree: &Node, axes: &[Axis], values: &[usize]) -> Result<Node, Problems> {
    let mut tree = tree.clone();
    for (axis, value) in axes.iter().zip(values) {
        let value = &axis.values[*value];
        value
            .apply(&mut tree)
            .map_err(|complaint| Problems::from(value.place().problem(&axis.name, complaint)))?;
    }
    Ok(tree)
}

/// Names axis and value in problems of what they set.
fn blame(mut problems: Problems, axis: &Axis, value: &AxisValue) -> Problems {
    for problem in &mut problems.0 {
        if value.sets(&problem.key) {
            let reason = std::mem::take(&mut problem.reason);
            problem.reason = format!("with {}={}: {reason}", axis.name, value.name);
        }
    }
    problems
}

/// The same for one value of each axis.
fn blame_all(problems: Problems, axes: &[Axis], values: &[usize]) -> Problems {
    let set = axes.iter().zip(values);
    set.fold(problems, |problems, (axis, value)| {
        blame(problems, axis, &axis.values[*value])
    })
}

fn dimensions(axes: &[Axis]) -> Vec<Dimension> {
    let of = |axis: &Axis| Dimension {
        name: axis.name.clone(),
        values: axis.values.iter().map(|value| value.name.clone()).collect(),
    };
    axes.iter().map(of).collect()
}

impl Plan {
    /// The scenario of a cell, its variant alone, to be run with `seed`.
    ///
    /// # Errors
    /// As [`load`]; of cells that have been checked there are none but those of files that have
    /// changed.
    pub fn experiment(&self, cell: &Cell, seed: u64) -> Result<Experiment, Problems> {
        let mut experiment = self.resolve(&cell.values, Some(seed))?;
        experiment
            .variants
            .retain(|variant| variant.name == cell.variant);
        experiment.repeats = 1;
        experiment.expectations.clear();
        experiment.published.clear();
        Ok(experiment)
    }

    fn resolve(&self, values: &[usize], seed: Option<u64>) -> Result<Experiment, Problems> {
        let tree = with_values(&self.tree, &self.axes, values)?;
        let mut options = self.options.clone();
        options.seed = seed.or(options.seed);
        file::resolve_tree(&tree, &self.path, &options)
    }

    /// Values of the axes of a cell with their names, and its variant.
    pub fn label(&self, cell: &Cell) -> String {
        let axes = self.axes.iter().zip(&cell.values);
        let values =
            axes.map(|(axis, value)| format!("{}={}", axis.name, axis.values[*value].name));
        let variant = format!("variant={}", cell.variant);
        values.chain([variant]).collect::<Vec<_>>().join(" ")
    }

    /// Statements about cells all of which `--only` has left out say nothing of this sweep.
    fn drop_statements_without_cells(&mut self) {
        let (dimensions, cells) = (&self.dimensions, &self.cells);
        let (kept, dropped) = std::mem::take(&mut self.statements)
            .into_iter()
            .partition::<Vec<_>, _>(|statement| statement.has_cells(dimensions, cells));
        self.statements = kept;
        if !dropped.is_empty() {
            let names: Vec<&str> = dropped.iter().map(|it| it.name.as_str()).collect();
            self.notes.push(format!(
                "--only leaves out the cells of these statements, which are not judged: {}",
                names.join(", ")
            ));
        }
    }

    /// Tries each value that `only` keeps by itself, the other axes as in the first combination.
    fn check_values(&self, only: &[Set]) -> Result<(), Problems> {
        let left_out = |axis: &Axis, value: &AxisValue| {
            let mut own = only.iter().filter(|set| set.name == axis.name);
            own.any(|set| set.labels().all(|label| label != value.name))
        };
        let mut all = Vec::new();
        for (index, axis) in self.axes.iter().enumerate() {
            for (number, value) in axis.values.iter().enumerate().skip(1) {
                if left_out(axis, value) {
                    continue;
                }
                let mut values = self.combinations[0].clone();
                values[index] = number;
                if !self.combinations.contains(&values) {
                    continue;
                }
                if let Err(problems) = self.resolve(&values, None) {
                    all.extend(blame(problems, axis, value).0);
                }
            }
        }
        match all.is_empty() {
            true => Ok(()),
            false => {
                all.dedup();
                Err(Problems(all))
            }
        }
    }

    /// The variants of all combinations become the last dimension.
    fn name_variants(&mut self) -> Result<(), Problems> {
        let mut values: Vec<String> = Vec::new();
        for combination in &self.combinations {
            let tree = with_values(&self.tree, &self.axes, combination)?;
            for name in file::variant_names(&tree) {
                if !values.contains(&name) {
                    values.push(name);
                }
            }
        }
        let name = "variant".to_owned();
        let variants = Dimension { name, values };
        let told = self.skips.iter().try_for_each(|skip| skip.check(&variants));
        told.map_err(|complaint| command_problem(&self.path, format!("skip: {complaint}")))?;
        self.dimensions.push(variants);
        Ok(())
    }

    /// Every combination with its variants. What `only` leaves out is not resolved: large programs
    /// take seconds.
    fn lay_out(&mut self, only: &[Set]) -> Result<(), Problems> {
        let choices = self.checked_only(only)?;
        let mut seen: Vec<(Cell, u64)> = Vec::new();
        for values in &self.combinations {
            if !self.chosen(&choices, values, None) {
                continue;
            }
            let experiment = self.resolve(values, None).map_err(|mut problems| {
                let names = self.axes.iter().zip(values);
                let names =
                    names.map(|(axis, v)| format!("{}={}", axis.name, axis.values[*v].name));
                let cell = names.collect::<Vec<_>>().join(" ");
                for problem in &mut problems.0 {
                    problem.reason = format!("with {cell}: {}", problem.reason);
                }
                problems
            })?;
            for variant in &experiment.variants {
                if skip::any(&self.skips, &self.dimensions, values, Some(&variant.name)) {
                    continue;
                }
                let cell = Cell {
                    values: values.clone(),
                    variant: variant.name.clone(),
                };
                self.hosts = self.hosts.max(variant.hosts.len());
                seen.push((cell, digest(variant)));
            }
        }
        self.notes = idle_axes(&self.axes, &seen);
        if seen.is_empty() && only.is_empty() {
            return Err(command_problem(&self.path, NOTHING_LEFT.to_owned()));
        }
        let cells = seen.into_iter().map(|(cell, _)| cell);
        let chosen = cells.filter(|c| self.chosen(&choices, &c.values, Some(&c.variant)));
        self.cells = chosen.collect();
        Ok(())
    }

    /// Whether values of the axes, and the variant if it is known, have one of each of `choices`.
    fn chosen(&self, choices: &[Choices], values: &[usize], variant: Option<&str>) -> bool {
        choices.iter().all(|(axis, wanted)| {
            let at = self.dimensions.iter().position(|d| d.name == *axis);
            let own = at.and_then(|at| match values.get(at) {
                Some(value) => Some(self.dimensions[at].values[*value].as_str()),
                None => variant,
            });
            own.is_none_or(|own| wanted.iter().any(|value| value == own))
        })
    }

    /// Every cell, as a position, with every seed.
    pub fn runs(&self) -> impl Iterator<Item = (usize, u64)> {
        let seeds = |cell| self.seeds.iter().map(move |seed| (cell, *seed));
        (0..self.cells.len()).flat_map(seeds)
    }

    /// Whether it has an axis of this name; the variants are one.
    pub fn has_axis(&self, name: &str) -> bool {
        self.dimensions.iter().any(|d| d.name == name)
    }

    /// The axis and the values of each `--only`.
    ///
    /// # Errors
    /// An unknown axis or value.
    fn checked_only(&self, only: &[Set]) -> Result<Vec<Choices>, Problems> {
        let mut checked = Vec::new();
        for set in only {
            let names: Vec<&str> = self.dimensions.iter().map(|d| d.name.as_str()).collect();
            let fail =
                |reason| command_problem(&self.path, format!("--only {}: {reason}", set.name));
            let dimension = self.dimensions.iter().find(|d| d.name == set.name);
            let dimension = dimension.ok_or_else(|| {
                let near = nearest(&set.name, &names);
                fail(format!(
                    "there is no such axis; it has {}{near}",
                    names.join(", ")
                ))
            })?;
            let values: Vec<&str> = dimension.values.iter().map(String::as_str).collect();
            let labels: Vec<&str> = set.labels().collect();
            if let Some(unknown) = labels.iter().find(|label| !values.contains(label)) {
                let (known, near) = (values.join(", "), nearest(unknown, &values));
                return Err(fail(format!(
                    "there is no value \"{unknown}\"; it has {known}{near}"
                )));
            }
            let labels = labels.into_iter().map(str::to_owned).collect();
            checked.push((set.name.clone(), labels));
        }
        Ok(checked)
    }

    /// Figures and selectors of `[sweep]`, against what there is.
    fn check_statements(&self, sweep: Option<&Node>) -> Result<(), Problems> {
        let Some(sweep) = sweep else { return Ok(()) };
        let sink = Sink::default();
        let place = |table: &str, key: &str| {
            let node = sweep.get(table).map(|node| node.get(key).unwrap_or(node));
            node.unwrap_or(sweep).place.clone()
        };
        let mut wanted: Vec<(String, &str, Quantity)> = Vec::new();
        let statements = (self.statements.iter()).map(|line| {
            (
                line.name.as_str(),
                "expect",
                line.figures(),
                line.check(&self.dimensions),
            )
        });
        let publications = (self.publications.iter()).map(|line| {
            (
                line.name(),
                "published",
                line.figures(),
                line.check(&self.dimensions),
            )
        });
        for (name, table, figures, checked) in statements.chain(publications) {
            if let Err(complaint) = checked {
                sink.report(
                    &place(table, name),
                    &format!("sweep.{table}.{name}"),
                    complaint,
                );
            }
            let quantities = figures
                .into_iter()
                .map(|selected| selected.quantity.clone());
            wanted.extend(quantities.map(|quantity| (name.to_owned(), table, quantity)));
        }
        for name in &self.figures {
            if let Ok(quantity) = Quantity::parse(name) {
                wanted.push((String::new(), "figures", quantity));
            }
        }
        for (key, table, quantity) in wanted {
            if let Some(complaint) = self.nowhere(quantity)? {
                let path = format!("sweep.{table}.{key}");
                sink.report(&place(table, &key), path.trim_end_matches('.'), complaint);
            }
        }
        sink.finish(())
    }

    /// Why no variant of any combination can have this figure.
    fn nowhere(&self, quantity: Quantity) -> Result<Option<Complaint>, Problems> {
        let mut why = None;
        let mut figure = Figure {
            variant: String::new(),
            quantity,
        };
        for values in &self.combinations {
            for variant in &self.resolve(values, None)?.variants {
                figure.variant.clone_from(&variant.name);
                match figure.check(variant) {
                    Ok(()) => return Ok(None),
                    Err(complaint) => why = why.or(Some(complaint)),
                }
            }
        }
        Ok(why)
    }
}

/// Everything that decides what a run of this variant gives, beside its seed and the program; as
/// text.
pub fn input(variant: &Variant) -> String {
    let mut variant = variant.clone();
    // Names for people change nothing.
    variant.name.clear();
    variant.title.clear();
    variant.places = Places::default();
    format!("{variant:?}")
}

/// Of [`input`], which may be long; equal ones tell that an axis does nothing, and no more than
/// that.
fn digest(variant: &Variant) -> u64 {
    let mut hasher = DefaultHasher::new();
    input(variant).hash(&mut hasher);
    hasher.finish()
}

/// Positions of values, the last axis turning the fastest, without what is left out whatever the
/// variant.
///
/// # Errors
/// Too many, or none.
fn combinations(axes: &[Dimension], skips: &[Skip]) -> Result<Vec<Vec<usize>>, String> {
    let count = (axes.iter()).try_fold(1usize, |n, axis| n.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > CELLS_MAX) {
        return Err(format!("the sweep has more than {CELLS_MAX} combinations"));
    }
    let mut all = vec![Vec::new()];
    for axis in axes {
        let longer = all.iter().flat_map(|values: &Vec<usize>| {
            (0..axis.values.len()).map(|value| values.iter().copied().chain([value]).collect())
        });
        all = longer.collect();
    }
    all.retain(|values| !skip::any(skips, axes, values, None));
    match all.is_empty() {
        true => Err(NOTHING_LEFT.to_owned()),
        false => Ok(all),
    }
}

/// Axes that make no difference to a variant, which usually sets the same key itself.
fn idle_axes(axes: &[Axis], seen: &[(Cell, u64)]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    for (cell, _) in seen {
        if !variants.contains(&cell.variant.as_str()) {
            variants.push(&cell.variant);
        }
    }
    for (index, axis) in axes.iter().enumerate().filter(|(_, a)| a.values.len() > 1) {
        for variant in &variants {
            let mut own = seen.iter().filter(|(cell, _)| cell.variant == *variant);
            let mut others: HashMap<Vec<usize>, u64> = HashMap::new();
            let mut compared = false;
            let differs = own.any(|(cell, digest)| {
                let mut rest = cell.values.clone();
                rest.remove(index);
                let other = others.insert(rest, *digest);
                compared |= other.is_some();
                other.is_some_and(|other| other != *digest)
            });
            if compared && !differs {
                notes.push(format!(
                    "{} makes no difference to variant {variant}; if the variant sets that itself, vary variant.{variant}.…",
                    axis.name
                ));
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests;
