//! The measurements of a sweep: `sweep.json`, schema 1, and the rows of its tables.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{Plan, StatementResult, Summary, figures, published};
use crate::{
    figures::Quantity,
    lossless,
    results::{PublishedResult, VariantResult},
};

/// Version of the schema, first field of the file.
pub const SCHEMA: u32 = 1;

/// The whole of `sweep.json`. Depends on the scenario, its axes and seeds, and on the program;
/// never on time, on the number of jobs, or on interruptions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the scenario.
    pub scenario: String,
    /// One line for people.
    pub title: String,
    /// Published figure that it mirrors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<String>,
    /// Version of sluicegate.
    pub version: String,
    /// Which build of the algorithms and the simulator ran it.
    pub build: String,
    /// Seeds of each cell.
    pub seeds: Vec<u64>,
    /// The axes that were varied.
    pub axes: Vec<AxisNames>,
    /// Variants in the order of the file.
    pub variants: Vec<String>,
    /// Figures that the scenario asks for; empty = all.
    pub chosen: Vec<String>,
    /// One entry per combination of values and variant.
    pub cells: Vec<CellResult>,
    /// Runs that gave no result.
    pub failed: Vec<Failed>,
    /// Problems at places that the experiment is not about, by counter, over all runs.
    pub outside: BTreeMap<String, u64>,
    /// The results of the statements of `[sweep.expect]`.
    pub expectations: Vec<StatementResult>,
    /// Published figures of `[sweep.published]`, ours beside them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedResult>,
    /// Notes for a reader.
    pub notes: Vec<String>,
    /// The figures of each run; not part of `sweep.json`.
    #[serde(skip)]
    pub runs: Vec<RunFigures>,
}

/// An axis by its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AxisNames {
    /// Its name.
    pub name: String,
    /// Its values, in order.
    pub values: Vec<String>,
}

/// Figures of a cell, over its seeds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// One value of each axis, in the order of the axes.
    pub values: Vec<String>,
    /// Name of the variant.
    pub variant: String,
    /// By the name of the figure.
    pub figures: BTreeMap<String, CellFigures>,
}

/// One figure of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CellFigures {
    /// Its unit; `1` = a plain number.
    pub unit: String,
    /// Over the runs.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A run that gave no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// One value of each axis.
    pub values: Vec<String>,
    /// Name of the variant.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// Why.
    pub error: String,
}

/// The figures of one run.
#[derive(Clone, Debug)]
pub struct RunFigures {
    /// The cell, as a position in [`Outcome::cells`].
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// By name, in their units.
    pub figures: BTreeMap<String, f64>,
}

/// The measurements of one run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Position in [`Plan::cells`].
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// Figures by name, or why there are none.
    pub figures: Result<BTreeMap<String, f64>, String>,
    /// Problems at places that the experiment is not about, by counter, as in `results.json`.
    pub outside: BTreeMap<String, u64>,
}

/// Figures that a note names at most.
const NAMED_MAX: usize = 5;

impl Plan {
    /// The figures of a run that its tables and expectations need.
    pub fn figures_of(&self, result: &VariantResult) -> BTreeMap<String, f64> {
        let mut names = match self.figures.is_empty() {
            true => figures::names(result),
            false => self.figures.clone(),
        };
        let published = self.publications.iter().flat_map(|line| line.figures());
        let selected = self.statements.iter().flat_map(|s| s.figures());
        let selected = selected.chain(published);
        names.extend(selected.map(|selected| selected.figure.clone()));
        let value = |name: String| Some((figures::value(&name, result)?, name));
        let values = names.into_iter().filter_map(value);
        values.map(|(value, name)| (name, value)).collect()
    }

    /// Tables and expectations over these runs: one for each cell and seed, in any order.
    pub fn outcome(&self, mut measured: Vec<Measured>, version: &str, build: &str) -> Outcome {
        // Sums of floating point numbers depend on their order.
        measured.sort_by_key(|run| (run.cell, run.seed));
        let selected = self.statements.iter().flat_map(|s| s.figures());
        let said: Vec<&Quantity> = selected.map(|selected| &selected.quantity).collect();
        let mut failed = Vec::new();
        let mut outside = BTreeMap::new();
        let mut runs = Vec::new();
        for run in measured {
            let cell = &self.cells[run.cell];
            for (counter, count) in run.outside.into_iter().filter(|(_, count)| *count > 0) {
                if said
                    .iter()
                    .any(|quantity| lossless::tells(quantity, &counter))
                {
                    continue;
                }
                *outside.entry(counter).or_default() += count;
            }
            match run.figures {
                Ok(figures) => runs.push(RunFigures {
                    cell: run.cell,
                    seed: run.seed,
                    figures,
                }),
                Err(error) => failed.push(Failed {
                    values: self.names(&cell.values),
                    variant: cell.variant.clone(),
                    seed: run.seed,
                    error,
                }),
            }
        }
        let cells = self.cell_results(&runs);
        let (expectations, published) = self.evaluate(&runs);
        let mut notes = self.said();
        notes.extend(partly_measured(&cells, &runs));
        Outcome {
            schema: SCHEMA,
            scenario: self.name.clone(),
            title: self.title.clone(),
            mirrors: self.mirrors.clone(),
            version: version.to_owned(),
            build: build.to_owned(),
            seeds: self.seeds.clone(),
            axes: self.axis_names(),
            variants: self.variants().to_vec(),
            chosen: self.figures.clone(),
            expectations,
            published,
            cells,
            failed,
            outside,
            notes,
            runs,
        }
    }

    fn names(&self, values: &[usize]) -> Vec<String> {
        let axes = self.axes.iter().zip(values);
        axes.map(|(axis, value)| axis.values[*value].name.clone())
            .collect()
    }

    fn axis_names(&self) -> Vec<AxisNames> {
        let names = |dimension: &super::Dimension| AxisNames {
            name: dimension.name.clone(),
            values: dimension.values.clone(),
        };
        self.dimensions[..self.axes.len()]
            .iter()
            .map(names)
            .collect()
    }

    /// Variants of all combinations.
    pub fn variants(&self) -> &[String] {
        self.dimensions
            .last()
            .map_or(&[], |variants| &variants.values)
    }

    fn cell_results(&self, runs: &[RunFigures]) -> Vec<CellResult> {
        let mut values: Vec<BTreeMap<&str, Vec<f64>>> = vec![BTreeMap::new(); self.cells.len()];
        for run in runs {
            for (name, value) in &run.figures {
                values[run.cell].entry(name).or_default().push(*value);
            }
        }
        let figures = |values: BTreeMap<&str, Vec<f64>>| {
            let summaries = values.into_iter().filter_map(|(name, values)| {
                let summary = Summary::of(&values)?;
                let unit = figures::unit(name).to_owned();
                Some((name.to_owned(), CellFigures { unit, summary }))
            });
            summaries.collect()
        };
        let cells = self.cells.iter().zip(values);
        cells
            .map(|(cell, values)| CellResult {
                values: self.names(&cell.values),
                variant: cell.variant.clone(),
                figures: figures(values),
            })
            .collect()
    }

    fn evaluate(&self, runs: &[RunFigures]) -> (Vec<StatementResult>, Vec<PublishedResult>) {
        let known: HashMap<(usize, u64), &BTreeMap<String, f64>> = runs
            .iter()
            .map(|run| ((run.cell, run.seed), &run.figures))
            .collect();
        let of =
            |cell: usize, seed: u64, figure: &str| known.get(&(cell, seed))?.get(figure).copied();
        let (dimensions, skips) = (&self.dimensions, &self.skips);
        let (cells, seeds) = (&self.cells, &self.seeds);
        let statements = self.statements.iter();
        let statements = statements.map(|line| line.evaluate(dimensions, skips, cells, seeds, &of));
        let lines = &self.publications;
        let published = published::evaluate(lines, dimensions, skips, cells, seeds, &of);
        (statements.collect(), published)
    }

    /// Notes for a reader.
    fn said(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.seeds.len() == 1 && !self.statements.is_empty() {
            let line = "one seed has no intervals: [sweep.expect] compares its values";
            notes.push(line.to_owned());
        }
        notes
    }
}

/// A note of figures whose means are of some runs of a cell, because others did not measure them.
fn partly_measured(cells: &[CellResult], runs: &[RunFigures]) -> Option<String> {
    let mut counts = vec![0; cells.len()];
    runs.iter().for_each(|run| counts[run.cell] += 1);
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (cell, count) in cells.iter().zip(counts) {
        let partly = cell.figures.iter().filter(|(_, it)| it.summary.n < count);
        partly.for_each(|(name, _)| *found.entry(name).or_default() += 1);
    }
    let mut names: Vec<String> = (found.iter().take(NAMED_MAX))
        .map(|(name, cells)| format!("{name} (cells: {cells})"))
        .collect();
    let others = found.len() - names.len();
    names.extend((others > 0).then(|| format!("{others} others")));
    let why = "some runs of a cell did not measure it; its mean is that of the `n` others";
    (!names.is_empty()).then(|| format!("{}: {why}", names.join(", ")))
}

impl Outcome {
    /// Every figure that some cell has, those that were chosen in their order.
    pub fn figures(&self) -> Vec<&str> {
        if !self.chosen.is_empty() {
            return self.chosen.iter().map(String::as_str).collect();
        }
        let mut names: Vec<&str> = (self.cells.iter())
            .flat_map(|cell| cell.figures.keys().map(String::as_str))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Runs that gave a result.
    pub fn succeeded(&self) -> usize {
        self.runs.len()
    }
}
