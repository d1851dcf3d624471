//! How far two sides agree, as Markdown: a row per variant, and one per class of completion times.

use super::{Comparison, Contest, Pair, Scenario, Tolerance, Variant, model::completion_id};
use crate::{markdown, units};

/// The figures of each variant: the name among the figures, and the heading.
const FIGURES: [(&str, &str); 3] = [
    ("goodput_bps.sum", "goodput"),
    ("rtt_us.p50", "RTT p50"),
    ("rtt_us.p99", "RTT p99"),
];

/// The figures of each variant that are shown over the first one of its scenario.
const OVER_FIRST: [(&str, &str); 2] = [
    ("goodput_bps.sum", "goodput over first"),
    ("rtt_us.p50", "RTT p50 over first"),
];

/// For every side but the reference a table: each variant's figures over the reference's, the
/// variant over the first one of its scenario on both sides, and in which figures two variants
/// compare otherwise; then completion times by class. Bold is what lies outside the tolerances.
pub fn agreement(comparison: &Comparison) -> String {
    let letters: Vec<char> = comparison.sides.iter().map(|side| side.letter).collect();
    let tables = (1..letters.len()).map(|side| {
        let body: String = comparison
            .scenarios
            .iter()
            .map(|scenario| rows(comparison, scenario, side))
            .collect();
        let table = heading(letters[0], letters[side]) + &body + &count(comparison, side);
        table + &completions(comparison, side)
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn heading(reference: char, other: char) -> String {
    let mut columns = vec!["scenario".to_owned(), "variant".to_owned()];
    columns.extend(FIGURES.map(|(_, what)| format!("{what} {other}/{reference}")));
    columns.extend(OVER_FIRST.map(|(_, what)| format!("{what} {reference}, {other}")));
    columns.push("other ratios, other winners".to_owned());
    format!("{}|---|---|---|---|---|---|---|---|\n", row(&columns))
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn rows(comparison: &Comparison, scenario: &Scenario, side: usize) -> String {
    let variants = scenario.variants.iter().filter(|v| v.found[side]);
    let rows = variants.enumerate().map(|(index, variant)| {
        let first = |text: String| if index == 0 { text } else { String::new() };
        let mut cells = vec![
            first(markdown::escape(&scenario.name)),
            markdown::escape(&variant.name),
        ];
        cells.extend(figures(comparison, variant, side));
        cells.extend(OVER_FIRST.map(|(id, _)| over_first(comparison, scenario, variant, id, side)));
        cells.push(first(disagreements(comparison, scenario, side)));
        row(&cells)
    });
    rows.collect()
}

fn figures(comparison: &Comparison, variant: &Variant, side: usize) -> [String; 3] {
    let tolerances = &comparison.tolerances;
    let limits = [tolerances.goodput, tolerances.rtt_p50, tolerances.rtt_p99];
    let mut limits = limits.into_iter();
    FIGURES.map(|(id, _)| {
        let values = [0, side].map(|side| variant.value(id, side));
        let ratio = variant
            .figures
            .get(id)
            .and_then(|figure| figure.ratios[side]);
        match (limits.next(), values, ratio) {
            (Some(limit), [Some(a), Some(b)], Some(ratio)) => {
                bold(units::ratio(ratio), !limit.allows(a, b))
            }
            (_, [None, None], _) => "–".to_owned(),
            _ => bold("one side only".to_owned(), true),
        }
    })
}

fn bold(text: String, outside: bool) -> String {
    match outside {
        true => format!("**{text}**"),
        false => text,
    }
}

/// The variant over the first one, on the reference and on the other side.
fn over_first(
    comparison: &Comparison,
    scenario: &Scenario,
    variant: &Variant,
    figure: &str,
    side: usize,
) -> String {
    let first = scenario.variants.first().map_or("", |first| &first.name);
    let contest = scenario.contests.iter().find(|c| c.figure == figure);
    let pair = contest.and_then(|contest| {
        let of = |pair: &&Pair| pair.variant == variant.name && pair.to == first;
        Some((contest, contest.pairs.iter().find(of)?))
    });
    let Some((contest, pair)) = pair else {
        return String::new();
    };
    match (pair.ratios[0], pair.ratios[side]) {
        (Some(a), Some(b)) => {
            let outside = pair.reversed[side] || !limit(comparison, contest).allows(a, b);
            bold(format!("{}, {}", units::ratio(a), units::ratio(b)), outside)
        }
        _ => "–".to_owned(),
    }
}

fn limit(comparison: &Comparison, contest: &Contest) -> Tolerance {
    comparison.tolerances.of_ratio(&contest.figure)
}

/// In which figures two variants compare otherwise, and in which another one is the better.
fn disagreements(comparison: &Comparison, scenario: &Scenario, side: usize) -> String {
    let mut found = Vec::new();
    for contest in &scenario.contests {
        let limit = limit(comparison, contest);
        let apart = |pair: &Pair| match (pair.ratios[0], pair.ratios[side]) {
            (Some(a), Some(b)) => !limit.allows(a, b),
            _ => false,
        };
        let what = markdown::escape(&contest.what);
        if contest.pairs.iter().any(|pair| pair.reversed[side]) {
            found.push(format!("winner by {what}"));
        } else if contest.pairs.iter().any(apart) {
            found.push(format!("ratio of {what}"));
        }
    }
    match found.is_empty() {
        true => "none".to_owned(),
        false => bold(found.join(", "), true),
    }
}

/// In how many scenarios nothing lies outside the tolerances.
fn count(comparison: &Comparison, side: usize) -> String {
    let agrees = |scenario: &&Scenario| !rows(comparison, scenario, side).contains("**");
    let compared = comparison
        .scenarios
        .iter()
        .filter(|scenario| scenario.variants.iter().any(|v| v.found[side]));
    let all = compared.clone().count();
    let agree = compared.filter(agrees).count();
    format!(
        "\n{agree} of {all} scenarios agree in everything\n({}).\n",
        comparison.tolerances
    )
}

/// Completion times of each class over the reference's. No tolerance applies to them: scenarios
/// agree by their order of variants.
fn completions(comparison: &Comparison, side: usize) -> String {
    let mut rows = Vec::new();
    for scenario in &comparison.scenarios {
        for variant in scenario.variants.iter().filter(|v| v.found[side]) {
            for class in classes(variant) {
                let ratio = |field: &str| {
                    let figure = variant.figures.get(&completion_id(class, field));
                    let ratio = figure.and_then(|figure| figure.ratios[side]);
                    ratio.map_or("–".to_owned(), units::ratio)
                };
                rows.push(vec![
                    scenario.name.clone(),
                    variant.name.clone(),
                    class.to_owned(),
                    ratio("p50"),
                    ratio("p99"),
                ]);
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let letter = |side: usize| comparison.sides[side].letter;
    let over = |field: &str| format!("{field} {}/{}", letter(side), letter(0));
    let headings = ["scenario", "variant", "completion times of"].map(str::to_owned);
    let headings = [&headings[..], &[over("p50"), over("p99")]].concat();
    markdown::rows(headings, 3, &rows)
}

/// The classes of which a variant has completion times.
fn classes(variant: &Variant) -> impl Iterator<Item = &str> {
    let ids = variant.figures.keys();
    ids.filter_map(|id| id.strip_prefix("fct_us.")?.strip_suffix(".p50"))
}
