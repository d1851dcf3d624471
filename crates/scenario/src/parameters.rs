//! `[[parameter]]`: where the values of a scenario come from, and experiments in which one of them
//! is halved or doubled.
//!
//! ```text
//! entry  = { path = text, origin = origin, value = value, half = value, double = value }
//! origin = ("given" | "chosen" | "derived") ":" source
//! ```
//! `path` is a [`KeyPath`]. `value` is needed where the file leaves the default.

use std::path::{Path, PathBuf};

use sluicegate_config::{
    Problems,
    document::{Node, Value},
    problem::{Complaint, Sink},
    table::Table,
};

use serde::Serialize;

use crate::{
    experiment::Experiment,
    file,
    key_path::KeyPath,
    results::{Results, Verdict},
    sweep::{self, Outcome, Plan},
};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The publication states it.
    Given,
    /// The publication is silent, and it was chosen without its results in view.
    Chosen,
    /// It was computed from a published result, so that agreement with this result shows nothing.
    Derived,
}

impl Origin {
    /// All, as written in files.
    const WORDS: [(&'static str, Self); 3] = [
        ("given", Self::Given),
        ("chosen", Self::Chosen),
        ("derived", Self::Derived),
    ];

    /// The word in files and tables.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// Another value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Half of it.
    Half,
    /// Twice of it.
    Double,
}

impl Change {
    /// All.
    pub const ALL: [Self; 2] = [Self::Half, Self::Double];

    /// The key in files, and the heading in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Double => "double",
        }
    }

    fn factor(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::Double => 2.0,
        }
    }
}

/// A `[[parameter]]`.
#[derive(Clone, Debug)]
pub struct Parameter {
    path: KeyPath,
    /// Where the value comes from.
    pub origin: Origin,
    /// The place in the publication, or the reason.
    pub source: String,
    value: Node,
    changed: [Node; 2],
}

impl Parameter {
    /// Its value as written.
    pub fn value(&self) -> String {
        written(&self.value)
    }

    /// A changed value as written.
    pub fn changed(&self, change: Change) -> String {
        written(&self.changed[change as usize])
    }

    fn read(table: &Table<'_>, tree: &Node) -> Option<Self> {
        let path = table.parse("path", str::parse::<KeyPath>);
        if table.get("path").is_none() {
            table.require("path", "write for example path = \"network.queue\"");
        }
        let origin = table.parse("origin", origin);
        if table.get("origin").is_none() {
            table.require("origin", "write for example origin = \"given: section 5\"");
        }
        let own = |key| table.get(key).map(|item| item.node().clone());
        let (said, halved, doubled) = (own("value"), own("half"), own("double"));
        let (path, (origin, source)) = (path?, origin?);
        let complain = |c: Complaint| table.item().complain(c.reason, c.advice);
        let value = value_at(&path, tree, said).map_err(complain).ok()?;
        let changed = |change: Change, own: Option<Node>| {
            let scaled = || times(&value, change.factor());
            own.or_else(scaled).or_else(|| {
                let word = change.word();
                let reason = format!("there is no {word} of {path} = {}", written(&value));
                let advice = format!("add `{word}` with the value to compare with");
                table.item().complain(reason, advice);
                None
            })
        };
        let changed = [
            changed(Change::Half, halved)?,
            changed(Change::Double, doubled)?,
        ];
        Some(Self {
            path,
            origin,
            source,
            value,
            changed,
        })
    }
}

fn origin(text: &str) -> Result<(Origin, String), Complaint> {
    let parts = text.split_once(':');
    let found = parts.and_then(|(word, source)| {
        let mut words = Origin::WORDS.iter();
        let (_, origin) = words.find(|(known, _)| *known == word.trim())?;
        (!source.trim().is_empty()).then(|| (*origin, source.trim().to_owned()))
    });
    found.ok_or_else(|| {
        Complaint::new(
            format!("\"{text}\" does not say where the value comes from"),
            "write \"given: SECTION\", \"chosen: WHY\" or \"derived: FROM WHICH RESULT\"",
        )
    })
}

/// Every `[[parameter]]` of a tree that is prepared.
pub(crate) fn read(root: &Table<'_>, tree: &Node) -> Vec<Parameter> {
    let read = |table: Table<'_>| {
        let parameter = Parameter::read(&table, tree);
        table.close();
        parameter
    };
    root.tables("parameter")
        .into_iter()
        .filter_map(read)
        .collect()
}

/// The value that the file has at a path, else `said`.
fn value_at(path: &KeyPath, tree: &Node, said: Option<Node>) -> Result<Node, Complaint> {
    let paths = path.each(tree)?;
    let (first, others) = paths.split_first().ok_or_else(|| path.unset(tree))?;
    let found = |path: &KeyPath| path.get(tree).cloned().or_else(|| said.clone());
    let value = found(first).ok_or_else(|| {
        let Complaint { reason, advice } = first.unset(tree);
        let default = "add `value` if the file leaves the default";
        match advice.is_empty() {
            true => Complaint::new(reason, default),
            false => Complaint::new(reason, format!("{advice} or {default}")),
        }
    })?;
    let differs = |path: &&KeyPath| found(path).map(|node| written(&node)) != Some(written(&value));
    match others.iter().find(differs) {
        Some(other) => Err(Complaint::new(
            format!("`{first}` and `{other}` have different values"),
            "write an entry for each",
        )),
        None => Ok(value),
    }
}

/// A value as in a file, without quotes.
fn written(node: &Node) -> String {
    let scalar = node.value.scalar_text();
    scalar.unwrap_or_else(|| node.value.kind().to_owned())
}

/// A number, with or without unit, times `factor`; of an integer a whole number.
fn times(node: &Node, factor: f64) -> Option<Node> {
    let value = match &node.value {
        Value::Integer(value) => {
            let scaled = *value as f64 * factor;
            (scaled.fract() == 0.0).then_some(Value::Integer(scaled as i64))?
        }
        Value::Float(value) => Value::Float(value * factor),
        Value::Text(text) => {
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, unit) = text.split_at(end);
            let scaled = number.parse::<f64>().ok()? * factor;
            Value::Text(format!("{scaled}{unit}"))
        }
        _ => return None,
    };
    let place = node.place.clone();
    Some(Node { place, value })
}

/// What is run with each value of a parameter.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A scenario without axes.
    Single(Box<Experiment>),
    /// The cells of a sweep.
    Sweep(Box<Plan>),
}

/// A scenario with parameters, to be run as it is and with each of them changed.
#[derive(Clone, Debug)]
pub struct Study {
    /// The scenario as it is.
    pub base: Subject,
    /// Its parameters in the order of the file.
    pub parameters: Vec<Parameter>,
    tree: Node,
    path: PathBuf,
    options: sweep::Options,
}

/// Reads a scenario for [`Study::subject`]. Of `options.only` a file takes what its axes have.
///
/// # Errors
/// Every error of the file.
pub fn load(path: &Path, options: &sweep::Options) -> Result<Study, Problems> {
    study_of(file::prepared(path, &options.file)?, path, options)
}

fn study_of(tree: Node, path: &Path, options: &sweep::Options) -> Result<Study, Problems> {
    let sink = Sink::default();
    let parameters = read(&Table::root(&tree, &sink), &tree);
    sink.finish(())?;
    Ok(Study {
        base: subject(&tree, path, options)?,
        parameters,
        tree,
        path: path.to_owned(),
        options: options.clone(),
    })
}

impl Subject {
    /// The scenario's name and its line for people.
    pub fn names(&self) -> (&str, &str) {
        match self {
            Self::Single(experiment) => (&experiment.name, &experiment.title),
            Self::Sweep(plan) => (&plan.name, &plan.title),
        }
    }
}

fn subject(tree: &Node, path: &Path, options: &sweep::Options) -> Result<Subject, Problems> {
    let axes = tree.get("sweep").and_then(|sweep| sweep.get("axis"));
    if axes.is_some() {
        let names = sweep::axis_names(tree, options)?;
        let mut options = options.clone();
        options.only.retain(|set| names.contains(&set.name));
        let plan = sweep::plan(tree.clone(), path, &options)?;
        return Ok(Subject::Sweep(Box::new(plan)));
    }
    let mut experiment = file::resolve_tree(tree, path, &options.file)?;
    experiment.repeats = options.repeat.unwrap_or(experiment.repeats);
    Ok(Subject::Single(Box::new(experiment)))
}

impl Study {
    /// The scenario with one parameter changed.
    ///
    /// # Errors
    /// A changed value that the language refuses.
    pub fn subject(&self, parameter: &Parameter, change: Change) -> Result<Subject, Problems> {
        let mut tree = self.tree.clone();
        let value = &parameter.changed[change as usize];
        let complaint = parameter.path.lay(&mut tree, value).err();
        if let Some(complaint) = complaint {
            let key = parameter.path.to_string();
            return Err(value.place.problem(&key, complaint).into());
        }
        // The `[parameter]` table describes the value as it was, which is not true any more.
        tree.remove("parameter");
        subject(&tree, &self.path, &self.options)
    }
}

/// The effects of halving and doubling each parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// Name of the scenario.
    pub scenario: String,
    /// One line for people.
    pub title: String,
    /// First seed.
    pub seed: u64,
    /// Seeds of each figure.
    pub repeats: u32,
    /// Whether the short form was run.
    pub short: bool,
    /// Of a sweep the values to which `--only` restricted it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// How many figures are looked at: those of `[published]`, of a sweep the left side of each
    /// expectation.
    pub figures: usize,
    /// Those of them that are 0 or not measured with the value of the file.
    pub empty: Vec<String>,
    /// How many expectations are looked at.
    pub expectations: usize,
    /// A row per parameter.
    pub rows: Vec<Row>,
}

/// A parameter in [`Sensitivity`].
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Dotted path of the key.
    pub path: String,
    /// Its value as written.
    pub value: String,
    /// The word of [`Origin`].
    pub origin: &'static str,
    /// The place in the publication, or the reason.
    pub source: String,
    /// Half and double.
    pub changes: [Changed; 2],
}

/// A changed value in [`Sensitivity`].
#[derive(Clone, Debug, Serialize)]
pub struct Changed {
    /// The value as written.
    pub value: String,
    /// Why there is no result: what the language or the world says of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Every run has the same results as with the value of the file: no run depends on the value.
    pub same_runs: bool,
    /// Every figure of `[published]`, of a sweep the left side of each expectation, before and
    /// after.
    pub figures: Vec<Moved>,
    /// Expectations that hold with the value of the file and not with this one.
    pub broken: Vec<String>,
}

/// A figure in [`Sensitivity`].
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// Name of the line.
    pub name: String,
    /// With the value of the file; `None` if it was not measured.
    pub before: Option<f64>,
    /// With the changed value.
    pub after: Option<f64>,
    /// How far it then agrees with the published one.
    pub verdict: Option<Verdict>,
}

/// What the results of a [`Subject`] say of its claims.
#[derive(Clone, Debug)]
pub struct Seen {
    figures: Vec<(String, Option<f64>, Option<Verdict>)>,
    /// Expectations, and whether they held.
    expectations: Vec<(String, bool)>,
    /// Tells the results of all runs from others.
    runs: u64,
}

impl Seen {
    /// With a number that tells the results of all its runs from others.
    pub fn of_runs(self, runs: u64) -> Self {
        Self { runs, ..self }
    }

    /// How many figures and expectations it has.
    pub fn counts(&self) -> [usize; 2] {
        [self.figures.len(), self.expectations.len()]
    }

    /// The names of figures that are 0 or not measured.
    pub fn empty(&self) -> Vec<String> {
        let empty = self.figures.iter().filter(|figure| {
            let (_, value, _) = figure;
            value.is_none_or(|value| value == 0.0)
        });
        empty.map(|(name, ..)| name.clone()).collect()
    }
}

impl From<&Results> for Seen {
    /// The figures of `[published]`.
    fn from(results: &Results) -> Self {
        let figures = results.published.iter();
        let expectations = results.expectations.iter();
        Self {
            figures: figures
                .map(|line| (line.name.clone(), line.ours, line.verdict))
                .collect(),
            expectations: expectations
                .map(|line| (line.name.clone(), line.held))
                .collect(),
            runs: 0,
        }
    }
}

impl From<&Outcome> for Seen {
    /// The left side of each statement of `[sweep.expect]`.
    fn from(outcome: &Outcome) -> Self {
        let mut figures = Vec::new();
        for line in &outcome.expectations {
            for instance in &line.instances {
                let cell: Vec<String> = (instance.cell.iter())
                    .map(|(axis, value)| format!("{axis}={value}"))
                    .collect();
                let name = match cell.is_empty() {
                    true => line.name.clone(),
                    false => format!("{}[{}]", line.name, cell.join(",")),
                };
                figures.push((name, instance.left, None));
            }
        }
        let expectations = outcome.expectations.iter();
        Self {
            figures,
            expectations: expectations
                .map(|line| (line.name.clone(), line.held))
                .collect(),
            runs: 0,
        }
    }
}

impl Parameter {
    /// Its row, of what is seen of the scenario as it is and with each [`Change`], or why there is
    /// nothing.
    pub fn row(&self, base: &Seen, changed: [Result<Seen, String>; 2]) -> Row {
        let mut changed = changed.into_iter();
        let changes = Change::ALL.map(|change| {
            let value = self.changed(change);
            match changed.next() {
                Some(Ok(seen)) => compare(value, base, &seen),
                other => Changed {
                    value,
                    refused: other.and_then(Result::err),
                    same_runs: false,
                    figures: Vec::new(),
                    broken: Vec::new(),
                },
            }
        });
        Row {
            path: self.path.to_string(),
            value: self.value(),
            origin: self.origin.word(),
            source: self.source.clone(),
            changes,
        }
    }
}

fn compare(value: String, base: &Seen, changed: &Seen) -> Changed {
    let figures = base.figures.iter().zip(&changed.figures);
    let expectations = base.expectations.iter().zip(&changed.expectations);
    Changed {
        value,
        refused: None,
        same_runs: base.runs == changed.runs,
        figures: figures
            .map(|((name, before, _), (_, after, verdict))| Moved {
                name: name.clone(),
                before: *before,
                after: *after,
                verdict: *verdict,
            })
            .collect(),
        broken: expectations
            .filter(|((_, before), (_, after))| *before && !after)
            .map(|((name, _), _)| name.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::document;

    use super::*;

    fn study(entries: &str) -> Result<Study, Problems> {
        let text = format!(
            "[network]\ntopology = 'star'\nrate = '10Mbit'\nqueue = '5KB'\n\
             [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
             [variant.a]\nenforcement = {{ hosts = 'h*', policy = {{ trusted = [], \
             rule = [{{ algorithm = 'dcvegas', k = '25us', mode = 'enforce' }}] }} }}\n{entries}"
        );
        let tree = document::parse("t.toml", &text)?;
        study_of(tree, Path::new("t.toml"), &sweep::Options::default())
    }

    fn input(subject: &Subject) -> String {
        match subject {
            Subject::Single(experiment) => sweep::input(&experiment.variants[0]),
            Subject::Sweep(plan) => {
                let experiments = plan.cells.iter().map(|cell| plan.experiment(cell, 1));
                let inputs = experiments.map(|e| sweep::input(&e.unwrap().variants[0]));
                inputs.collect::<Vec<_>>().join("\n")
            }
        }
    }

    #[test]
    fn half_and_double_reach_the_experiment() {
        let study = study(
            "[[parameter]]\npath = 'network.queue'\norigin = 'derived: figure 1'\n\
             [[parameter]]\npath = 'variant.a.enforcement.policy.rule.0.k'\n\
             origin = 'chosen: default'\n\
             [[parameter]]\npath = 'sim.transmit_delay'\nvalue = '5us'\norigin = 'chosen: it'\n",
        );
        let study = study.unwrap_or_else(|problems| panic!("{problems}"));
        let texts = study.parameters.iter().map(|parameter| {
            let [half, double] = Change::ALL.map(|change| parameter.changed(change));
            [parameter.value(), half, double]
        });
        let expected = [
            ["5KB", "2.5KB", "10KB"],
            ["25us", "12.5us", "50us"],
            ["5us", "2.5us", "10us"],
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        assert_eq!(study.parameters[0].origin.word(), "derived");
        let mut inputs = vec![input(&study.base)];
        for parameter in &study.parameters {
            for change in Change::ALL {
                let changed = study.subject(parameter, change);
                inputs.push(input(
                    &changed.unwrap_or_else(|problems| panic!("{problems}")),
                ));
            }
        }
        inputs.sort();
        inputs.dedup();
        assert_eq!(inputs.len(), 7, "two experiments are the same");
    }

    #[test]
    fn a_sweep_is_studied_in_the_cells_that_are_left() {
        let axis = "[[sweep.axis]]\npath = 'network.mtu'\nvalues = [1500, 9000]\n\
            [[parameter]]\npath = 'sweep.axis.0.values.1'\norigin = 'chosen: jumbo'\n\
            double = 4500\n[[parameter]]\npath = 'traffic.*.start'\nvalue = '1ms'\n\
            origin = 'chosen: any'\n";
        let study = study(axis).unwrap_or_else(|problems| panic!("{problems}"));
        let base = input(&study.base);
        assert_eq!(base.lines().count(), 2);
        let [mtu, start] = &study.parameters[..] else {
            panic!("{:?}", study.parameters);
        };
        for (parameter, same) in [(mtu, 1), (start, 0)] {
            let changed = input(&study.subject(parameter, Change::Double).unwrap());
            let cells = base.lines().zip(changed.lines());
            assert_eq!(cells.filter(|(a, b)| a == b).count(), same);
        }
        let only = ["network.mtu=1500", "tcp=reno"].map(|set| set.parse().unwrap());
        let options = sweep::Options {
            only: only.to_vec(),
            ..sweep::Options::default()
        };
        let left = subject(&study.tree, &study.path, &options).unwrap();
        assert_eq!(input(&left).lines().count(), 1);
    }

    #[test]
    fn wrong_entries_say_what_to_write() {
        for (path, origin, why) in [
            ("network.queue", "fitted", "does not say where"),
            ("network.queue", "given:", "does not say where"),
            (
                "network.quee",
                "given: 5",
                "the file does not set `network.quee`; did you mean \"queue\"? or add `value`",
            ),
            (
                "variant.a.enforcement.policy.rule.1.k",
                "given: 5",
                "has no position \"1\"; its only position is 0",
            ),
            (
                "network.topology",
                "given: 5",
                "there is no half of network.topology = star",
            ),
        ] {
            let entry = format!("[[parameter]]\npath = '{path}'\norigin = '{origin}'\n");
            let problems = study(&entry).expect_err(&entry).to_string();
            assert!(problems.contains(why), "{entry}: {problems}");
        }
        let problems = study("[[parameter]]\n")
            .expect_err("an empty entry")
            .to_string();
        assert!(problems.contains("`path` is missing"), "{problems}");
        assert!(problems.contains("`origin` is missing"), "{problems}");
    }
}
