//! The comparison as grids of text, the same for the terminal and the page.

use super::{
    Comparison, Contest, Measured, Scenario, Variant,
    model::{self, completion_id},
};
use crate::{
    comparison::{Columns, Grid, NOTHING},
    figures::{self, Figure, Scale},
    units,
};

/// Fields of completion times that are shown.
const COMPLETION: [&str; 5] = ["count", "unfinished", "p50", "p99", "p999"];

/// A row of a table that has several per thing: one for each side, and below each but A its ratio
/// to A.
#[derive(Clone, Copy)]
enum Row {
    Side(usize),
    Ratio(usize),
}

/// The rows for the sides that `found` names.
fn rows(found: &[bool]) -> Vec<Row> {
    let there = (0..found.len()).filter(|side| found[*side]);
    let of = |side| match side {
        0 => vec![Row::Side(0)],
        _ => vec![Row::Side(side), Row::Ratio(side)],
    };
    there.flat_map(of).collect()
}

impl Row {
    fn label(self, comparison: &Comparison) -> String {
        let letter = |side: usize| comparison.sides[side].letter;
        match self {
            Self::Side(side) => letter(side).into(),
            Self::Ratio(side) => format!("{}/{}", letter(side), letter(0)),
        }
    }
}

/// Names in a column where each stands once, above its other rows.
fn once(names: impl IntoIterator<Item = (String, usize)>) -> Vec<String> {
    let cells = names.into_iter().flat_map(|(name, rows)| {
        let rest = rows.saturating_sub(1);
        std::iter::once(name)
            .chain(std::iter::repeat_n(String::new(), rest))
            .take(rows)
    });
    cells.collect()
}

/// The subject of a table: a name in each label column, the rows, and the figures by the id of
/// their column.
struct Thing<'a> {
    names: Vec<String>,
    rows: Vec<Row>,
    variant: &'a Variant,
    /// The text before the id of a figure.
    prefix: String,
}

impl Thing<'_> {
    fn figure(&self, id: &str) -> Option<&Measured> {
        self.variant.figure(&format!("{}{id}", self.prefix))
    }
}

/// One table: label columns, the side, then the figures that a side has measured.
fn grid<'a, T: 'a>(
    comparison: &Comparison,
    labels: &[&'static str],
    things: &[Thing],
    list: impl Iterator<Item = &'a Figure<T>> + Clone,
) -> Grid {
    let mut columns = Columns::new();
    for (index, label) in labels.iter().enumerate() {
        let names = things
            .iter()
            .map(|t| (t.names[index].clone(), t.rows.len()));
        columns.push(label, "", once(names));
    }
    let sides = things
        .iter()
        .flat_map(|t| t.rows.iter().map(|row| row.label(comparison)));
    columns.push("side", "", sides.collect());
    let measured = |f: &&Figure<T>| values(things, f).next().is_some();
    for figure in list.clone().filter(measured) {
        let same = list.clone().filter(|f| f.dimension == figure.dimension);
        let scale = figure.dimension.scale(same.flat_map(|f| values(things, f)));
        let cells = things.iter().flat_map(|thing| {
            let measured = thing.figure(figure.id);
            let rows = thing.rows.iter();
            rows.map(move |row| cell(measured, *row, &scale))
        });
        columns.push(figure.what, scale.symbol(), cells.collect());
    }
    columns.into_grid(labels.len() + 1)
}

/// A figure's values of all things and sides.
fn values<T>(things: &[Thing], figure: &Figure<T>) -> impl Iterator<Item = f64> {
    let measured = things.iter().filter_map(|thing| thing.figure(figure.id));
    measured.flat_map(|m| m.values.iter().flatten().copied())
}

fn cell(measured: Option<&Measured>, row: Row, scale: &Scale) -> String {
    let value = |values: fn(&Measured) -> &Vec<Option<f64>>, side: usize| values(measured?)[side];
    match row {
        Row::Side(side) => value(|m| &m.values, side).map_or(NOTHING.into(), |v| scale.write(v)),
        Row::Ratio(side) => ratio(value(|m| &m.ratios, side)),
    }
}

/// A ratio; a dash where there is none.
pub(super) fn ratio(value: Option<f64>) -> String {
    value.map_or(NOTHING.into(), units::ratio)
}

/// The figures of every variant, a row per side and one for its ratio to the reference.
pub(super) fn variants(comparison: &Comparison, scenario: &Scenario) -> Grid {
    let things: Vec<_> = scenario.variants.iter().map(whole).collect();
    grid(comparison, &["variant"], &things, figures::VARIANT.iter())
}

fn whole(variant: &Variant) -> Thing<'_> {
    Thing {
        names: vec![variant.name.clone()],
        rows: rows(&variant.found),
        variant,
        prefix: String::new(),
    }
}

/// Completion times by class and variant; `None` when no side has any.
pub(super) fn completions(comparison: &Comparison, scenario: &Scenario) -> Option<Grid> {
    let classes = scenario.classes.iter();
    let all = classes.flat_map(|class| scenario.variants.iter().map(move |v| (class, v)));
    let things: Vec<_> = all.filter_map(|(class, v)| completion(class, v)).collect();
    let shown = figures::COMPLETION
        .iter()
        .filter(|f| COMPLETION.contains(&f.id));
    (!things.is_empty()).then(|| grid(comparison, &["FCT class", "variant"], &things, shown))
}

fn completion<'a>(class: &str, variant: &'a Variant) -> Option<Thing<'a>> {
    let counted = variant.figure(&completion_id(class, "count"))?;
    let found: Vec<bool> = counted.values.iter().map(Option::is_some).collect();
    Some(Thing {
        names: vec![class.into(), variant.name.clone()],
        rows: rows(&found),
        variant,
        prefix: completion_id(class, ""),
    })
}

/// Each variant over the first one, a row per side and one for how far that is from the
/// reference's.
pub(super) fn contests(comparison: &Comparison, scenario: &Scenario) -> Option<Grid> {
    let (first, others) = scenario.variants.split_first()?;
    if scenario.contests.is_empty() || others.is_empty() {
        return None;
    }
    let both = |v: &Variant| -> Vec<bool> {
        let found = v.found.iter().zip(&first.found);
        found.map(|(a, b)| *a && *b).collect()
    };
    let each = others
        .iter()
        .flat_map(|v| rows(&both(v)).into_iter().map(move |row| (v, row)));
    let each: Vec<(&Variant, Row)> = each.collect();
    let named = |v: &Variant| (format!("{} / {}", v.name, first.name), rows(&both(v)).len());
    let mut columns = Columns::new();
    columns.push("ratio", "", once(others.iter().map(named)));
    columns.push(
        "side",
        "",
        each.iter().map(|(_, row)| row.label(comparison)).collect(),
    );
    for contest in &scenario.contests {
        let cell = |(variant, row): &(&Variant, Row)| ratio(pair(contest, variant, first, *row));
        let (what, quantile) = contest.what.rsplit_once(' ').unwrap_or((&contest.what, ""));
        columns.push(what, quantile, each.iter().map(cell).collect());
    }
    Some(columns.into_grid(2))
}

fn pair(contest: &Contest, variant: &Variant, to: &Variant, row: Row) -> Option<f64> {
    let mut pairs = contest.pairs.iter();
    let pair = pairs.find(|p| p.variant == variant.name && p.to == to.name)?;
    match row {
        Row::Side(side) => pair.ratios[side],
        Row::Ratio(side) => model::ratio(pair.ratios[side], pair.ratios[0]),
    }
}

/// A row per scenario and side: the ratios to the reference that are the farthest from 1, and how
/// many orders of variants agree.
pub(super) fn summary(comparison: &Comparison) -> Grid {
    let sides = 1..comparison.sides.len();
    let scenarios = comparison.scenarios.iter();
    let each = scenarios.flat_map(|s| sides.clone().map(move |side| (s, side)));
    let each: Vec<(&Scenario, usize)> = each
        .filter(|(s, side)| s.origins[*side].is_some())
        .collect();
    let rows_of = |s: &Scenario| {
        each.iter()
            .filter(|(other, _)| other.name == s.name)
            .count()
    };
    let names = comparison
        .scenarios
        .iter()
        .map(|s| (s.name.clone(), rows_of(s)));
    let mut columns = Columns::new();
    columns.push("scenario", "", once(names));
    let labels = each
        .iter()
        .map(|(_, side)| Row::Ratio(*side).label(comparison));
    columns.push("side", "", labels.collect());
    for (what, prefix, field) in SUMMARY {
        let cell = |(s, side): &(&Scenario, usize)| ratio(farthest(s, prefix, field, *side));
        columns.push(what, "", each.iter().map(cell).collect());
    }
    let order = |(s, side): &(&Scenario, usize)| agreement(s, *side);
    columns.push("same order", "", each.iter().map(order).collect());
    columns.into_grid(2)
}

/// Columns of the summary: heading, and beginning and end of the figures that they sum up.
const SUMMARY: [(&str, &str, &str); 6] = [
    ("goodput", "goodput_bps", "sum"),
    ("Jain", "goodput_bps", "jain"),
    ("RTT p50", "rtt_us", "p50"),
    ("p99", "rtt_us", "p99"),
    ("FCT p50", "fct_us", "p50"),
    ("p99", "fct_us", "p99"),
];

fn farthest(scenario: &Scenario, prefix: &str, field: &str, side: usize) -> Option<f64> {
    let figures = scenario.variants.iter().flat_map(|v| &v.figures);
    let of_kind = figures.filter(|(id, _)| {
        id.split('.').next() == Some(prefix) && id.rsplit('.').next() == Some(field)
    });
    let ratios = of_kind.filter_map(|(_, measured)| measured.ratios[side]);
    ratios.max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()))
}

/// How many orders of variants a side does not turn round, of how many.
pub(super) fn agreement(scenario: &Scenario, side: usize) -> String {
    let known: Vec<bool> = scenario
        .contests
        .iter()
        .filter_map(|c| c.agrees[side])
        .collect();
    match known.len() {
        0 => NOTHING.into(),
        all => format!(
            "{} of {all}",
            known.iter().filter(|agrees| **agrees).count()
        ),
    }
}
