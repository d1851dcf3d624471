//! `[[parameter]]`: where the values of a scenario come from, and experiments in which one of them
//! is halved or doubled.
//!
//! ```text
//! entry  = { path = text, origin = origin, value = scalar, half = scalar, double = scalar }
//! origin = ("given" | "chosen" | "derived") ":" source
//! ```
//! `path` is dotted, such as `network.queue`; a number in it is a position in an array, from 0.
//! `value` is needed where the file leaves the default.

use std::path::{Path, PathBuf};

use sluicegate_config::{
    Problems,
    document::{Entry, Node, Value},
    problem::{Complaint, Sink},
    table::Table,
};

use serde::Serialize;

use crate::{
    experiment::Experiment,
    file,
    results::{Results, Verdict},
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
    /// Dotted path of the key.
    pub path: String,
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
        let path = table.text("path");
        if path.is_none() {
            table.require("path", "write for example path = \"network.queue\"");
        }
        let origin = table.parse("origin", origin);
        if table.get("origin").is_none() {
            table.require("origin", "write for example origin = \"given: section 5\"");
        }
        let own = |key| table.get(key).map(|item| item.node().clone());
        let (said, halved, doubled) = (own("value"), own("half"), own("double"));
        let (path, (origin, source)) = (path?, origin?);
        let Some(value) = at(tree, path).cloned().or(said) else {
            let advice = "correct the path, or add `value` if the file leaves the default";
            let reason = format!("the file does not set {path}");
            table.item().complain(reason, advice);
            return None;
        };
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
            path: path.to_owned(),
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

/// The node at a dotted path.
fn at<'a>(tree: &'a Node, path: &str) -> Option<&'a Node> {
    path.split('.')
        .try_fold(tree, |node, key| match &node.value {
            Value::List(items) => items.get(key.parse::<usize>().ok()?),
            _ => node.get(key),
        })
}

/// Puts `new` at a dotted path; tables on the way are made.
fn put(tree: &mut Node, path: &str, new: Node) {
    let (key, below) = match path.split_once('.') {
        Some((key, below)) => (key, Some(below)),
        None => (path, None),
    };
    if below.is_some() && tree.entries().iter().all(|entry| entry.key != key) {
        let place = new.place.clone();
        let value = Value::Table(Vec::<Entry>::new());
        tree.set(key, Node { place, value });
    }
    let inner = match &mut tree.value {
        Value::List(items) => key.parse().ok().and_then(|at: usize| items.get_mut(at)),
        _ => tree.get_mut(key),
    };
    match (inner, below) {
        (Some(inner), Some(below)) => put(inner, below, new),
        (Some(inner), None) => *inner = new,
        (None, _) => tree.set(key, new),
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

/// A scenario with parameters, to be run as it is and with each of them changed.
#[derive(Clone, Debug)]
pub struct Study {
    /// The scenario as it is.
    pub base: Experiment,
    /// Its parameters in the order of the file.
    pub parameters: Vec<Parameter>,
    tree: Node,
    path: PathBuf,
    options: file::Options,
}

/// Reads a scenario for [`Study::experiment`].
///
/// # Errors
/// Every error of the file.
pub fn load(path: &Path, options: &file::Options) -> Result<Study, Problems> {
    study_of(file::prepared(path, options)?, path, options)
}

fn study_of(tree: Node, path: &Path, options: &file::Options) -> Result<Study, Problems> {
    let base = file::resolve_tree(&tree, path, options)?;
    let sink = Sink::default();
    let parameters = read(&Table::root(&tree, &sink), &tree);
    sink.finish(Study {
        base,
        parameters,
        tree,
        path: path.to_owned(),
        options: options.clone(),
    })
}

impl Study {
    /// Sets the number of seeds, unless that of the file is to stay.
    pub fn repeats(&mut self, repeats: Option<u32>) {
        self.base.repeats = repeats.unwrap_or(self.base.repeats);
    }

    /// The scenario with one parameter changed.
    ///
    /// # Errors
    /// A changed value that the language refuses.
    pub fn experiment(
        &self,
        parameter: &Parameter,
        change: Change,
    ) -> Result<Experiment, Problems> {
        let mut tree = self.tree.clone();
        let value = parameter.changed[change as usize].clone();
        put(&mut tree, &parameter.path, value);
        // The `[parameter]` table describes the value as it was, which is not true any more.
        tree.remove("parameter");
        let experiment = file::resolve_tree(&tree, &self.path, &self.options)?;
        Ok(Experiment {
            repeats: self.base.repeats,
            ..experiment
        })
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
    /// Every figure of `[published]`, before and after.
    pub figures: Vec<Moved>,
    /// Expectations that hold with the value of the file and not with this one.
    pub broken: Vec<String>,
}

/// A figure of `[published]` in [`Sensitivity`].
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

impl Parameter {
    /// Its row, of the results of the scenario as it is and those of each [`Change`], or why there
    /// are none.
    pub fn row(&self, base: &Results, changed: [Result<Results, String>; 2]) -> Row {
        let mut changed = changed.into_iter();
        let changes = Change::ALL.map(|change| {
            let value = self.changed(change);
            match changed.next() {
                Some(Ok(results)) => compare(value, base, &results),
                other => Changed {
                    value,
                    refused: other.and_then(Result::err),
                    figures: Vec::new(),
                    broken: Vec::new(),
                },
            }
        });
        Row {
            path: self.path.clone(),
            value: self.value(),
            origin: self.origin.word(),
            source: self.source.clone(),
            changes,
        }
    }
}

fn compare(value: String, base: &Results, changed: &Results) -> Changed {
    let figures = base.published.iter().zip(&changed.published);
    let expectations = base.expectations.iter().zip(&changed.expectations);
    Changed {
        value,
        refused: None,
        figures: figures
            .map(|(before, after)| Moved {
                name: before.name.clone(),
                before: before.ours,
                after: after.ours,
                verdict: after.verdict,
            })
            .collect(),
        broken: expectations
            .filter(|(before, after)| before.held && !after.held)
            .map(|(before, _)| before.name.clone())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::document;

    use super::*;
    use crate::sweep;

    fn study(entries: &str) -> Result<Study, Problems> {
        let text = format!(
            "[network]\ntopology = 'star'\nrate = '10Mbit'\nqueue = '5KB'\n\
             [traffic.b]\nkind = 'bulk'\nfrom = 'h1'\nto = 'h2'\n\
             [variant.a]\nenforcement = {{ hosts = 'h*', policy = {{ trusted = [], \
             rule = [{{ algorithm = 'dcvegas', k = '25us', mode = 'enforce' }}] }} }}\n{entries}"
        );
        let tree = document::parse("t.toml", &text)?;
        study_of(tree, Path::new("t.toml"), &file::Options::default())
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
        let mut inputs = vec![sweep::input(&study.base.variants[0])];
        for parameter in &study.parameters {
            for change in Change::ALL {
                let experiment = study.experiment(parameter, change);
                let experiment = experiment.unwrap_or_else(|problems| panic!("{problems}"));
                inputs.push(sweep::input(&experiment.variants[0]));
            }
        }
        inputs.sort();
        inputs.dedup();
        assert_eq!(inputs.len(), 7, "two experiments are the same");
    }

    #[test]
    fn a_path_may_end_in_an_array() {
        let mut tree = document::parse("t.toml", "a = [1, 2]\n").unwrap();
        let new = at(&tree, "a.0").cloned().unwrap();
        put(&mut tree, "a.1", new);
        assert_eq!(at(&tree, "a.1").map(written), Some("1".to_owned()));
    }

    #[test]
    fn wrong_entries_say_what_to_write() {
        for (path, origin, why) in [
            ("network.queue", "fitted", "does not say where"),
            ("network.queue", "given:", "does not say where"),
            ("network.quue", "given: 5", "does not set network.quue"),
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
