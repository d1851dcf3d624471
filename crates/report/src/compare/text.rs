//! The comparison for a terminal.

use super::{Comparison, Contest, Difference, Origin, Scenario, Unmatched, grids};
use crate::{
    Style, comparison,
    table::{Paint, ascii, clean, fit},
};

/// Differences of scenario files that are listed; `compare.json` has all.
const DIFFERENCES: usize = 6;

/// The names of both sides, per scenario the figures and the better side, then the figures that
/// were not compared.
pub fn text(comparison: &Comparison, style: Style) -> String {
    let paint = Paint(style);
    let mut blocks: Vec<String> = comparison
        .sides
        .iter()
        .map(|side| {
            format!(
                "{}  {}",
                paint.bold(&side.letter.to_string()),
                clean(&side.directory)
            )
        })
        .collect();
    if comparison.scenarios.len() > 1 {
        blocks.push("\nper scenario the ratio that is the farthest from 1:".into());
        blocks.extend(fit(grids::summary(comparison), style));
    }
    for scenario in &comparison.scenarios {
        blocks.extend(one(comparison, scenario, &paint));
    }
    if !comparison.unmatched.is_empty() {
        blocks.push(String::new());
    }
    blocks.extend(
        unmatched(&comparison.unmatched)
            .iter()
            .map(|line| clean(line)),
    );
    blocks.push(format!("\n{}", verdict(comparison)));
    let text = blocks.join("\n") + "\n";
    if style.unicode { text } else { ascii(&text) }
}

/// Parts that some sides lack, a line for all that the same sides have.
pub(super) fn unmatched(list: &[Unmatched]) -> Vec<String> {
    let mut groups: Vec<(&[char], Vec<String>)> = Vec::new();
    for one in list {
        let name = match &one.variant {
            Some(variant) => format!("{variant} of {}", one.scenario),
            None => one.scenario.clone(),
        };
        match groups.iter_mut().find(|(sides, _)| *sides == one.only_in) {
            Some((_, names)) => names.push(name),
            None => groups.push((&one.only_in, vec![name])),
        }
    }
    let line = |(sides, names): (&[char], Vec<String>)| {
        let sides: Vec<String> = sides.iter().map(char::to_string).collect();
        format!("only in {}: {}", sides.join(", "), names.join(", "))
    };
    groups.into_iter().map(line).collect()
}

/// How many sentences `outside` has, and how to read them.
fn verdict(comparison: &Comparison) -> String {
    let tolerances = &comparison.tolerances;
    match comparison.outside.len() {
        0 => format!("all within the tolerances: {tolerances}"),
        n => format!("{n} outside the tolerances, which --check lists: {tolerances}"),
    }
}

fn one(comparison: &Comparison, scenario: &Scenario, paint: &Paint) -> Vec<String> {
    let style = paint.0;
    let mut blocks = vec![heading(scenario, paint)];
    blocks.extend(head(comparison, scenario, paint));
    blocks.extend(fit(grids::variants(comparison, scenario), style));
    let tables = [
        grids::completions(comparison, scenario),
        grids::contests(comparison, scenario),
    ];
    blocks.extend(
        tables
            .into_iter()
            .flatten()
            .flat_map(|grid| fit(grid, style)),
    );
    if !scenario.contests.is_empty() {
        blocks.push("same winners? the variants, best first, = is a tie:".into());
        blocks.extend(contests(comparison, &scenario.contests, paint));
    }
    blocks
}

fn heading(scenario: &Scenario, paint: &Paint) -> String {
    let title = match scenario.title.as_str() {
        "" => String::new(),
        title => format!(" – {title}"),
    };
    format!("\n{}{}", paint.bold(&scenario.name), clean(&title))
}

/// Where the figures come from, and why they may differ.
fn head(comparison: &Comparison, scenario: &Scenario, paint: &Paint) -> Vec<String> {
    let sides = comparison.sides.iter().zip(&scenario.origins);
    let sides: Vec<_> = sides
        .filter_map(|(s, o)| Some((s.letter, o.as_ref()?)))
        .collect();
    let mut lines: Vec<String> = sides
        .iter()
        .map(|(letter, origin)| clean(&format!("{letter}  {}", circumstances(origin).join(" · "))))
        .collect();
    if !scenario.differs.is_empty() {
        lines.push(format!("different: {}", scenario.differs.join(", ")));
    }
    lines.extend(
        as_run(comparison, &scenario.as_run)
            .iter()
            .map(|line| clean(line)),
    );
    let alarms = sides.iter().flat_map(|(letter, o)| {
        o.alarms
            .iter()
            .map(move |alarm| format!("{letter}: {alarm}"))
    });
    let loud = scenario.warnings.iter().cloned().chain(alarms);
    lines.extend(loud.map(|line| paint.alarm(&format!("! {line}"))));
    lines
}

/// World, seed, version and conditions in a few phrases.
pub(super) fn circumstances(origin: &Origin) -> Vec<String> {
    let mut phrases = vec![
        origin.world.clone(),
        format!("seed {}", origin.seed),
        format!("sluicegate {}", origin.conditions.version),
    ];
    phrases.extend(comparison::conditions(&origin.conditions));
    phrases
}

/// The first few keys in which the files differ that were run, and how many more there are.
pub(super) fn as_run(comparison: &Comparison, differences: &[Difference]) -> Vec<String> {
    let value = |(side, value): (&super::SideName, &Option<String>)| {
        format!("{} in {}", value.as_deref().unwrap_or("none"), side.letter)
    };
    let line = |difference: &Difference| {
        let values: Vec<_> = comparison
            .sides
            .iter()
            .zip(&difference.values)
            .map(value)
            .collect();
        format!("scenario.toml: {}: {}", difference.key, values.join(", "))
    };
    let mut lines: Vec<_> = differences.iter().take(DIFFERENCES).map(line).collect();
    if differences.len() > DIFFERENCES {
        let more = differences.len() - DIFFERENCES;
        lines.push(format!(
            "scenario.toml: {more} more keys differ, see compare.json"
        ));
    }
    lines
}

fn contests(comparison: &Comparison, list: &[Contest], paint: &Paint) -> Vec<String> {
    let width = list
        .iter()
        .map(|c| c.what.chars().count())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::new();
    for contest in list {
        let agree = contest.agrees.iter().all(|agrees| *agrees != Some(false));
        let mark = if agree {
            paint.good("✓")
        } else {
            paint.alarm("✗")
        };
        for (index, (letters, order)) in orders(comparison, contest).iter().enumerate() {
            let (mark, what) = match index {
                0 => (mark.as_str(), contest.what.as_str()),
                _ => (" ", ""),
            };
            lines.push(format!(
                "{mark} {}  {letters}: {}",
                clean(&format!("{what:width$}")),
                clean(order)
            ));
        }
    }
    lines
}

/// The orders of variants of a contest, each once, with the letters of the sides that have it.
pub(super) fn orders(comparison: &Comparison, contest: &Contest) -> Vec<(String, String)> {
    let mut orders: Vec<(String, String)> = Vec::new();
    for (side, groups) in comparison.sides.iter().zip(&contest.orders) {
        if groups.is_empty() {
            continue;
        }
        let order: Vec<String> = groups.iter().map(|names| names.join(" = ")).collect();
        let order = order.join(", ");
        match orders.iter_mut().find(|(_, known)| *known == order) {
            Some((letters, _)) => *letters += &format!(", {}", side.letter),
            None => orders.push((side.letter.into(), order)),
        }
    }
    orders
}
