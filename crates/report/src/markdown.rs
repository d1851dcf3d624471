//! The comparison as Markdown.

use std::fmt::Write;

use sluicegate_scenario::results::Results;

use crate::{
    comparison::{self, Grid},
    table, units,
};

/// Tables, conditions and expectations of a scenario as GitHub-flavoured Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = format!(
        "## {}\n\n{}\n",
        escape(&results.scenario),
        escape(&results.title)
    );
    if let Some(mirrors) = &results.mirrors {
        let _ = write!(text, "\nMirrors: {}\n", escape(mirrors));
    }
    let grids = [
        comparison::variants(&[results]),
        comparison::completions(&[results]),
        comparison::programs(&[results]),
        comparison::points(&[results]),
        comparison::published(&results.published),
    ];
    for grid in grids.into_iter().flatten() {
        text += &pipes(&grid);
    }
    if let Some(derived) = comparison::by_name(results, |v| &v.derived, |v| units::plain(*v)) {
        text += &named("figure", derived);
    }
    let _ = write!(
        text,
        "\nConditions: {}, seed {}.\n",
        comparison::conditions(&results.conditions).join(", "),
        results.seed
    );
    for line in comparison::alarms(results) {
        let _ = write!(text, "\n**{}**\n", escape(&line));
    }
    text += &expectations(results);
    text
}

fn expectations(results: &Results) -> String {
    let line = |e: &sluicegate_scenario::results::ExpectationResult| {
        let mark = if e.held { "✓" } else { "✗" };
        format!(
            "- {mark} {}: `{}` ({})\n",
            escape(&e.name),
            e.expression.replace('`', "'"),
            table::values(e)
        )
    };
    match results.expectations.len() {
        0 => String::new(),
        _ => results
            .expectations
            .iter()
            .map(line)
            .fold("\n".into(), |text, line| text + &line),
    }
}

fn pipes(grid: &Grid) -> String {
    let heading = |h: &comparison::Heading| format!("{} {}", h.what, h.unit).trim_end().to_owned();
    rows(
        grid.headings.iter().map(heading).collect(),
        grid.labels,
        &grid.rows,
    )
}

/// A table with a row per name and a column per variant.
fn named(what: &str, (variants, figures): (Vec<String>, Vec<Vec<String>>)) -> String {
    let headings = std::iter::once(what.to_owned()).chain(variants).collect();
    rows(headings, 1, &figures)
}

/// A table whose first columns are labels and whose others are figures.
pub(crate) fn rows(headings: Vec<String>, labels: usize, figures: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: String = (0..headings.len())
        .map(|i| if i < labels { "---|" } else { "---:|" })
        .collect();
    let body: String = figures.iter().map(|row| line(row)).collect();
    format!("\n{}|{rule}\n{body}", line(&headings))
}

/// Backslashes before what Markdown would take for markup, and no line breaks.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '|' | '#' => escaped.extend(['\\', c]),
            '\n' | '\r' => escaped.push(' '),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_cannot_break_the_table() {
        assert_eq!(super::escape("a|b\n<i>_x_"), "a\\|b \\<i>\\_x\\_");
    }
}
