//! The comparison as data: what matches what, values and ratios.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sluicegate_scenario::results::{Conditions, Results, VariantResult};

use super::{Contest, Run, Side, Tolerances, check, contest, scenario_file};
use crate::{
    comparison::{self, has_flows},
    figures, units,
};

/// Version of the schema of `compare.json`.
pub const SCHEMA: u32 = 1;

/// The whole of `compare.json`. Lists per side are in the order of `sides`; `null` is what a side
/// does not have.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The directories; the first is the reference.
    pub sides: Vec<SideName>,
    /// The tolerances within which figures count as the same.
    pub tolerances: Tolerances,
    /// Scenarios that the reference and another side have.
    pub scenarios: Vec<Scenario>,
    /// Parts that some side lacks.
    pub unmatched: Vec<Unmatched>,
    /// Differences outside the tolerances, a sentence each.
    pub outside: Vec<String>,
}

/// A directory and the letter that stands for it.
#[derive(Clone, Debug, Serialize)]
pub struct SideName {
    /// `A` is the reference.
    pub letter: char,
    /// As the user named it.
    pub directory: String,
}

/// One scenario on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// Name.
    pub name: String,
    /// One line for people, of the reference.
    pub title: String,
    /// Under what circumstances each side measured.
    pub origins: Vec<Option<Origin>>,
    /// Circumstances that are not the same on all sides.
    pub differs: Vec<&'static str>,
    /// Where the files differ that were run.
    pub as_run: Vec<Difference>,
    /// Why the sides may not be comparable.
    pub warnings: Vec<String>,
    /// Variants that the reference and another side have.
    pub variants: Vec<Variant>,
    /// Classes of flows with completion times.
    pub classes: Vec<String>,
    /// Which variant is best, by figure.
    pub contests: Vec<Contest>,
}

/// Where the figures of a side come from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// World that ran it.
    pub world: String,
    /// Seed of the run.
    pub seed: u64,
    /// As in `results.json`.
    pub conditions: Conditions,
    /// Reasons not to trust the figures.
    pub alarms: Vec<String>,
}

/// A key of the scenario file that has not the same value on all sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Dotted key.
    pub key: String,
    /// Its values as TOML writes them.
    pub values: Vec<Option<String>>,
}

/// One variant on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct Variant {
    /// Name.
    pub name: String,
    /// Which sides have it.
    pub found: Vec<bool>,
    /// By name: `goodput_bps.sum`, `rtt_us.p50`, `fct_us.CLASS.p99`, ….
    pub figures: BTreeMap<String, Measured>,
}

/// A figure on all sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The values.
    pub values: Vec<Option<f64>>,
    /// Each value over the reference's; `null` also over 0.
    pub ratios: Vec<Option<f64>>,
}

/// A scenario, or a variant of one, that some sides lack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmatched {
    /// Its scenario.
    pub scenario: String,
    /// The variant, when it is not the whole scenario.
    pub variant: Option<String>,
    /// The sides that have it.
    pub only_in: Vec<char>,
}

/// Compares what the sides hold; the first is the reference.
pub fn compare(sides: &[Side], tolerances: Tolerances) -> Comparison {
    let named = |(index, side): (usize, &Side)| SideName {
        letter: letter(index),
        directory: side.directory.clone(),
    };
    let scenarios = in_reference_and_another(sides, |side| names_of(side))
        .iter()
        .map(|name| scenario(sides, name, &tolerances))
        .collect();
    let mut comparison = Comparison {
        schema: SCHEMA,
        sides: sides.iter().enumerate().map(named).collect(),
        tolerances,
        scenarios,
        unmatched: unmatched(sides),
        outside: Vec::new(),
    };
    comparison.outside = check::outside(&comparison);
    comparison
}

/// The letter of a side; beyond Z all are `?`.
fn letter(index: usize) -> char {
    ('A'..='Z').nth(index).unwrap_or('?')
}

fn names_of(side: &Side) -> Vec<&str> {
    side.runs
        .iter()
        .map(|run| run.results.scenario.as_str())
        .collect()
}

fn run_of<'a>(side: &'a Side, scenario: &str) -> Option<&'a Run> {
    side.runs
        .iter()
        .find(|run| run.results.scenario == scenario)
}

fn variant_names(results: &Results) -> Vec<&str> {
    results.variants.iter().map(|v| v.name.as_str()).collect()
}

/// Names in the first list that are in another one, too, in the first one's order.
fn in_reference_and_another<'a, T>(
    lists: &'a [T],
    names: impl Fn(&'a T) -> Vec<&'a str>,
) -> Vec<&'a str> {
    let Some((reference, others)) = lists.split_first() else {
        return Vec::new();
    };
    let elsewhere: BTreeSet<&str> = others.iter().flat_map(&names).collect();
    let mut matched = names(reference);
    matched.retain(|name| elsewhere.contains(name));
    matched
}

fn scenario(sides: &[Side], name: &str, tolerances: &Tolerances) -> Scenario {
    let runs: Vec<Option<&Run>> = sides.iter().map(|side| run_of(side, name)).collect();
    let results: Vec<_> = runs.iter().map(|run| run.map(|r| &r.results)).collect();
    let files: Vec<_> = runs
        .iter()
        .map(|run| run.and_then(|r| r.as_run.as_deref()))
        .collect();
    let as_run = scenario_file::differences(&files);
    let variants: Vec<Variant> =
        in_reference_and_another(&results, |r| r.map_or(Vec::new(), variant_names))
            .iter()
            .map(|variant| variant_of(&results, variant))
            .collect();
    let classes = classes(&results, &variants);
    let origins: Vec<_> = results.iter().map(|r| r.map(origin)).collect();
    Scenario {
        name: name.into(),
        title: results[0].map_or(String::new(), |r| r.title.clone()),
        differs: differs(&origins),
        warnings: warnings(&origins, &as_run),
        origins,
        as_run,
        contests: contest::contests(&variants, &classes, tolerances.tie),
        variants,
        classes,
    }
}

fn origin(results: &Results) -> Origin {
    Origin {
        world: results.world.clone(),
        seed: results.seed,
        conditions: results.conditions.clone(),
        alarms: comparison::alarms(results),
    }
}

/// Circumstances by name, as far as they may explain a difference.
fn differs(origins: &[Option<Origin>]) -> Vec<&'static str> {
    type Part = fn(&Origin) -> String;
    let parts: [(&str, Part); 7] = [
        ("world", |o| o.world.clone()),
        ("seed", |o| o.seed.to_string()),
        ("link rates", |o| o.conditions.rate_scale.to_string()),
        ("version", |o| o.conditions.version.clone()),
        ("kernel", |o| o.conditions.kernel.clone()),
        ("CPUs", |o| {
            let cpus = o.conditions.cpus.map(|cpus| cpus.to_string());
            cpus.unwrap_or_default()
        }),
        ("offloads", |o| o.conditions.offloads.to_string()),
    ];
    let varies = |part: &Part| {
        // Parts that a world lacks are a property of the world.
        let values = origins.iter().flatten().map(part);
        let values: BTreeSet<String> = values.filter(|value| !value.is_empty()).collect();
        values.len() > 1
    };
    let names = parts.iter().filter(|(_, part)| varies(part));
    names.map(|(name, _)| *name).collect()
}

/// Reasons why the sides did not do the same experiment.
fn warnings(origins: &[Option<Origin>], as_run: &[Difference]) -> Vec<String> {
    let mut lines = Vec::new();
    let scales: Vec<(char, f64)> = (0..)
        .zip(origins)
        .filter_map(|(i, o)| Some((letter(i), o.as_ref()?.conditions.rate_scale)))
        .collect();
    let first = scales.first().map_or(1.0, |(_, scale)| *scale);
    if scales.iter().any(|(_, scale)| *scale != first) {
        let each: Vec<_> = scales
            .iter()
            .map(|(letter, scale)| format!("× {} in {letter}", units::plain(*scale)))
            .collect();
        lines.push(format!(
            "NOT THE SAME EXPERIMENT: link rates {}; compare the ratios of variants, not the figures",
            each.join(", ")
        ));
    } else if first != 1.0 {
        lines.push(format!(
            "all sides ran at link rates × {}: not the experiment of the scenario file",
            units::plain(first)
        ));
    }
    let times = ["duration", "repeats"];
    if as_run
        .iter()
        .any(|d| times.iter().any(|key| d.key.ends_with(key)))
    {
        lines.push("the sides measured for different times: compare no counts (drops, marks, retransmissions)".into());
    }
    lines
}

fn variant_of(results: &[Option<&Results>], name: &str) -> Variant {
    let found: Vec<Option<&VariantResult>> = results
        .iter()
        .map(|r| r.as_ref()?.variants.iter().find(|v| v.name == name))
        .collect();
    let mut figures = BTreeMap::new();
    for figure in &figures::VARIANT {
        let values = found.iter().map(|v| v.and_then(figure.value)).collect();
        figures.insert(figure.id.to_owned(), Measured::new(values));
    }
    let there = found.iter().flatten();
    let classes: BTreeSet<&String> = there.flat_map(|v| v.fct_us.keys()).collect();
    for class in classes {
        let completed = |v: &VariantResult| v.fct_us.get(class).filter(|f| has_flows(f)).cloned();
        let sides: Vec<_> = found.iter().map(|v| v.and_then(completed)).collect();
        for figure in &figures::COMPLETION {
            let values = sides.iter().map(|fct| fct.as_ref().and_then(figure.value));
            let values: Vec<_> = values.collect();
            // Few scenarios have deadlines.
            if values.iter().any(Option::is_some) {
                figures.insert(completion_id(class, figure.id), Measured::new(values));
            }
        }
    }
    Variant {
        name: name.into(),
        found: found.iter().map(Option::is_some).collect(),
        figures,
    }
}

/// Name of a figure of completion times.
pub(super) fn completion_id(class: &str, field: &str) -> String {
    format!("fct_us.{class}.{field}")
}

impl Measured {
    fn new(values: Vec<Option<f64>>) -> Self {
        let reference = values.first().copied().flatten();
        let ratios = values
            .iter()
            .map(|value| ratio(*value, reference))
            .collect();
        Self { values, ratios }
    }
}

/// One over the other; nothing over 0, unless both are.
pub(super) fn ratio(value: Option<f64>, reference: Option<f64>) -> Option<f64> {
    match (value?, reference?) {
        (0.0, 0.0) => Some(1.0),
        (_, 0.0) => None,
        (value, reference) => Some(value / reference).filter(|r| r.is_finite()),
    }
}

impl Variant {
    /// A figure's values on all sides; `None` when no side has it.
    pub fn figure(&self, id: &str) -> Option<&Measured> {
        self.figures.get(id)
    }

    /// A figure's value on one side.
    pub fn value(&self, id: &str, side: usize) -> Option<f64> {
        self.figure(id)?.values.get(side).copied().flatten()
    }
}

/// Classes of which a compared variant began flows.
fn classes(results: &[Option<&Results>], variants: &[Variant]) -> Vec<String> {
    let compared = |name: &str| variants.iter().any(|v| v.name == name);
    let all = results.iter().flatten().flat_map(|r| &r.variants);
    let classes: BTreeSet<_> = all
        .filter(|v| compared(&v.name))
        .flat_map(|v| v.fct_us.iter().filter(|(_, fct)| has_flows(fct)))
        .map(|(class, _)| class.clone())
        .collect();
    classes.into_iter().collect()
}

/// Scenarios that not all sides have; of those that are compared, variants that not all sides with
/// it have.
fn unmatched(sides: &[Side]) -> Vec<Unmatched> {
    let all: Vec<(char, Vec<&str>)> = lettered(sides.iter().map(|s| Some(names_of(s))));
    let compared = in_reference_and_another(sides, names_of);
    let mut list = Vec::new();
    for (scenario, only_in) in not_everywhere(&all) {
        list.push(Unmatched {
            scenario: scenario.into(),
            variant: None,
            only_in,
        });
    }
    for scenario in compared {
        let variants = |side| run_of(side, scenario).map(|run| variant_names(&run.results));
        for (variant, only_in) in not_everywhere(&lettered(sides.iter().map(variants))) {
            list.push(Unmatched {
                scenario: scenario.into(),
                variant: Some(variant.into()),
                only_in,
            });
        }
    }
    list
}

/// The sides that are there, with their letters.
fn lettered<T>(sides: impl Iterator<Item = Option<T>>) -> Vec<(char, T)> {
    sides
        .enumerate()
        .filter_map(|(index, side)| Some((letter(index), side?)))
        .collect()
}

/// Names that some lists lack, by first appearance, with the letters of those that have them.
fn not_everywhere<'a>(lists: &[(char, Vec<&'a str>)]) -> Vec<(&'a str, Vec<char>)> {
    let mut names: Vec<&str> = Vec::new();
    for name in lists.iter().flat_map(|(_, names)| names) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let found = |name: &&'a str| {
        let having = lists.iter().filter(|(_, names)| names.contains(name));
        let letters: Vec<char> = having.map(|(letter, _)| *letter).collect();
        (letters.len() < lists.len()).then_some((*name, letters))
    };
    names.iter().filter_map(found).collect()
}
