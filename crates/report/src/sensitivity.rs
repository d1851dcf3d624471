//! The effects of halving and doubling each parameter, as one page.

use std::fmt::Write;

use sluicegate_scenario::parameters::{Change, Changed, Moved, Sensitivity};

use crate::{
    markdown::{escape, rows},
    units,
};

/// A figure that moves by less than this fraction is not mentioned.
const MOVED: f64 = 0.1;

/// Most figures that a cell names.
const NAMED: usize = 4;

/// A table for each scenario, as GitHub-flavoured Markdown.
pub fn sensitivity(scenarios: &[Sensitivity]) -> String {
    let mut text = format!(
        "# What half and double of a parameter change\n\n\
         Every parameter that a scenario names ([language](scenarios.md#parameter)) was halved and doubled,\n\
         one at a time.{}\n\n\
         - *given*: the publication states the value. *chosen*: it is silent. *derived*: the value was\n  \
         computed from a published result.\n\
         - A cell lists the published figures of which our value changes by {} or more, the largest\n  \
         change first, and the expectations that no longer hold. Of a sweep the figures are the left\n  \
         sides of its [expectations](sweep.md#expectations).\n\
         - *nothing*: no such figure and no such expectation. *no run differs*: not even a packet of any\n  \
         run, so that these runs say nothing of the value. A figure that is 0 or not measured with the\n  \
         value of the file says little, and is named above the table.\n\
         - With several seeds, rates and quantiles are medians and counters are sums.\n",
        form(scenarios),
        units::percent(MOVED)
    );
    for scenario in scenarios {
        let last = scenario.seed + u64::from(scenario.repeats.max(1)) - 1;
        let seeds = match scenario.repeats {
            0 | 1 => format!("Seed {last}"),
            _ => format!("Seeds {} to {last}", scenario.seed),
        };
        let _ = write!(
            text,
            "\n## {}\n\n{}.\n{seeds}{}.\n{}.\n",
            escape(&scenario.scenario),
            escape(&scenario.title),
            match scenario.only.is_empty() {
                true => String::new(),
                false => format!("; only {}", escape(&scenario.only.join(", "))),
            },
            looked_at(scenario),
        );
        let body: Vec<Vec<String>> = (scenario.rows.iter())
            .map(|row| {
                let mut cells = vec![
                    format!("{} = {}", row.path, row.value),
                    format!("{}: {}", row.origin, row.source),
                ];
                cells.extend(row.changes.iter().map(cell));
                cells
            })
            .collect();
        let headings = [
            "parameter",
            "origin",
            Change::Half.word(),
            Change::Double.word(),
        ];
        text += &rows(headings.map(str::to_owned).to_vec(), headings.len(), &body);
    }
    text
}

/// Figures of a scenario that are named above its table: a sweep may have hundreds.
const NAMES_MAX: usize = 12;

/// What may move or break.
fn looked_at(scenario: &Sensitivity) -> String {
    let count = |count, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let figures = count(scenario.figures, "figure");
    let expectations = count(scenario.expectations, "expectation");
    let empty = match &scenario.empty[..] {
        [] => String::new(),
        // Each on a line of its own, since a page's lines have a bound.
        names => {
            let mut shown: Vec<String> = names
                .iter()
                .take(NAMES_MAX)
                .map(|name| escape(name))
                .collect();
            let left = names.len() - shown.len();
            shown.extend((left > 0).then(|| format!("and {left} more")));
            format!(", of which 0 or not measured:\n{}", shown.join(",\n"))
        }
    };
    format!("{expectations}, {figures}{empty}")
}

/// A sentence where short forms were run.
fn form(scenarios: &[Sensitivity]) -> &'static str {
    match scenarios.iter().any(|scenario| scenario.short) {
        true => {
            " Scenarios that have a short form ran in it (`--short`), with less\n\
             time, fewer flows or fewer cells than where other pages quote them. So figures here may\n\
             differ from those there."
        }
        false => "",
    }
}

fn cell(changed: &Changed) -> String {
    if let Some(why) = &changed.refused {
        // The other lines say the same of other places.
        let first = why.lines().next().unwrap_or_default();
        return format!("{}: refused: {first}", changed.value);
    }
    let mut moved: Vec<(f64, &Moved)> = (changed.figures.iter())
        .filter_map(|figure| Some((movement(figure)?, figure)))
        .filter(|(movement, _)| *movement >= MOVED)
        .collect();
    moved.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let mut parts: Vec<String> = (moved.iter().take(NAMED))
        .map(|(_, figure)| {
            let [before, after] = [figure.before, figure.after]
                .map(|value| value.map_or("–".to_owned(), units::plain));
            format!("{} {before} → {after}", figure.name)
        })
        .collect();
    if moved.len() > NAMED {
        parts.push(format!("{} more figures", moved.len() - NAMED));
    }
    if !changed.broken.is_empty() {
        parts.push(format!("not held: {}", changed.broken.join(", ")));
    }
    match parts.is_empty() {
        true if changed.same_runs => format!("{}: no run differs", changed.value),
        true => format!("{}: nothing", changed.value),
        false => format!("{}: {}", changed.value, parts.join("; ")),
    }
}

/// How far a figure moves, as a fraction of the larger value, 0 to 1; 1 also where it is measured
/// with one of the values only.
fn movement(figure: &Moved) -> Option<f64> {
    match (figure.before, figure.after) {
        (None, None) => None,
        (Some(before), Some(after)) => {
            let larger = before.abs().max(after.abs());
            Some(if larger == 0.0 {
                0.0
            } else {
                (before - after).abs() / larger
            })
        }
        _ => Some(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_empty(names: usize) -> String {
        looked_at(&Sensitivity {
            scenario: "s".to_owned(),
            title: "t".to_owned(),
            seed: 1,
            repeats: 1,
            short: false,
            only: Vec::new(),
            figures: 100,
            empty: (0..names).map(|name| format!("f[{name}]")).collect(),
            expectations: 1,
            rows: Vec::new(),
        })
    }

    #[test]
    fn figures_without_a_value_have_lines_of_their_own_and_there_are_few() {
        assert_eq!(with_empty(0), "1 expectation, 100 figures");
        let two = "1 expectation, 100 figures, of which 0 or not measured:\nf\\[0],\nf\\[1]";
        assert_eq!(with_empty(2).replace("\\]", "]"), two);
        let many = with_empty(NAMES_MAX + 30);
        assert_eq!(many.lines().count(), 2 + NAMES_MAX);
        assert!(many.ends_with("and 30 more"), "{many}");
    }
}
