//! The comparison table for a terminal.

use std::{env, io::IsTerminal};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use sluicegate_scenario::results::{ExpectationResult, Results};

use crate::{
    comparison::{self, Grid},
    units,
};

/// How [`table`] may draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Box lines and ✓/✗; otherwise ASCII.
    pub unicode: bool,
    /// ANSI colours.
    pub colour: bool,
    /// Columns of text that fit on a line; a wider table is split in two.
    pub width: usize,
}

impl Style {
    /// ASCII without colours, 110 columns: for files and pipes.
    pub const PLAIN: Style = Style {
        unicode: false,
        colour: false,
        width: 110,
    };

    /// The style that standard output can show: colour only on a terminal and without `NO_COLOR`,
    /// Unicode by the locale.
    ///
    /// `width` is the terminal's, in columns; `None` stands for 110.
    pub fn of_stdout(width: Option<usize>) -> Style {
        let terminal = std::io::stdout().is_terminal();
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find(|name| set(name));
        let locale = locale.and_then(|name| env::var(name).ok());
        let utf8 = locale.is_some_and(|l| l.to_lowercase().replace('-', "").contains("utf8"));
        let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
        Style {
            unicode: utf8,
            colour: terminal && !dumb && !set("NO_COLOR"),
            width: width.unwrap_or(110),
        }
    }
}

/// One comparison of all variants of one or several scenarios; then per scenario its conditions and
/// what became of its expectations.
///
/// Times, rates and sizes share one unit per group of columns; a dash stands for what was not
/// measured.
pub fn table(scenarios: &[&Results], style: Style) -> String {
    let paint = Paint(style);
    let mut blocks = Vec::new();
    if let [one] = scenarios {
        blocks.push(heading(one, &paint));
    }
    let grids = [
        comparison::variants(scenarios),
        comparison::completions(scenarios),
        comparison::programs(scenarios),
        comparison::points(scenarios),
    ];
    let grids = grids.into_iter().flatten();
    blocks.extend(grids.flat_map(|grid| fit(grid, style)));
    for results in scenarios {
        if scenarios.len() > 1 {
            blocks.push(format!("\n{}", heading(results, &paint)));
        }
        blocks.push(conditions(results, &paint));
        if !results.expectations.is_empty() {
            blocks.push(expectations(&results.expectations, &paint));
        }
        blocks.extend(comparison::published(&results.published).map(|grid| draw(&grid, style)));
    }
    let text = blocks.join("\n") + "\n";
    if style.unicode { text } else { ascii(&text) }
}

/// A text that users write, without what would steer a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn heading(results: &Results, paint: &Paint) -> String {
    let title = if results.title.is_empty() {
        String::new()
    } else {
        format!(" – {}", results.title)
    };
    let rest = format!("{title}  [{}, seed {}]", results.world, results.seed);
    paint.bold(&results.scenario) + &clean(&rest)
}

/// The grid in one piece, or in two with the labels repeated when it is too wide.
pub(crate) fn fit(grid: Grid, style: Style) -> Vec<String> {
    let whole = draw(&grid, style);
    let width = whole
        .lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    if width <= style.width || grid.headings.len() < grid.labels + 4 {
        return vec![whole];
    }
    let (left, right) = halve(&grid);
    vec![draw(&left, style), draw(&right, style)]
}

/// Splits the figures in the middle, moved so that a group (`RTT p50`, `p99`, `p99.9`) stays whole.
fn halve(grid: &Grid) -> (Grid, Grid) {
    let middle = grid.labels + (grid.headings.len() - grid.labels).div_ceil(2);
    let starts_group = |column: &usize| !grid.headings[*column].what.starts_with("p9");
    let cut = (middle..grid.headings.len())
        .find(starts_group)
        .unwrap_or(middle);
    let pick = |columns: std::ops::Range<usize>| {
        let chosen: Vec<usize> = (0..grid.labels).chain(columns).collect();
        let row = |row: &Vec<String>| chosen.iter().map(|&column| row[column].clone()).collect();
        Grid {
            headings: chosen
                .iter()
                .map(|&column| grid.headings[column].clone())
                .collect(),
            rows: grid.rows.iter().map(row).collect(),
            labels: grid.labels,
        }
    };
    (pick(grid.labels..cut), pick(cut..grid.headings.len()))
}

pub(crate) fn draw(grid: &Grid, style: Style) -> String {
    let mut table = Table::new();
    table.load_preset(if style.unicode {
        presets::UTF8_BORDERS_ONLY
    } else {
        presets::ASCII_BORDERS_ONLY_CONDENSED
    });
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(
        grid.headings
            .iter()
            .map(|h| format!("{}\n{}", h.what, h.unit)),
    );
    table.add_rows(
        grid.rows
            .iter()
            .map(|row| row.iter().map(|cell| clean(cell))),
    );
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((1, 0));
        if index >= grid.labels {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if let Some(last) = table.column_mut(grid.headings.len() - 1) {
        last.set_padding((1, 1));
    }
    table.to_string()
}

fn conditions(results: &Results, paint: &Paint) -> String {
    let mut lines = vec![clean(
        &comparison::conditions(&results.conditions).join(" · "),
    )];
    lines.extend(
        comparison::alarms(results)
            .iter()
            .map(|line| paint.alarm(&format!("! {line}"))),
    );
    let notes = comparison::notes(&results.conditions);
    lines.extend(notes.iter().map(|note| clean(&format!("note: {note}"))));
    lines.join("\n")
}

fn expectations(list: &[ExpectationResult], paint: &Paint) -> String {
    let width = list
        .iter()
        .map(|e| e.name.chars().count())
        .max()
        .unwrap_or(0);
    let lines: Vec<_> = list.iter().map(|e| expectation(e, width, paint)).collect();
    lines.join("\n")
}

fn expectation(e: &ExpectationResult, width: usize, paint: &Paint) -> String {
    let line = format!("{:width$}  {}  [{}]", e.name, e.expression, values(e));
    if e.held {
        format!("{} {}", paint.good("✓"), clean(&line))
    } else {
        format!("{} {}", paint.alarm("✗"), paint.bold(&line))
    }
}

/// Both sides of an expectation, or that one of them was not measured.
pub(crate) fn values(e: &ExpectationResult) -> String {
    if let (Some(share), Some(least), Some(most)) = (e.left, e.right, e.upper) {
        return share_of_runs(share, least, most);
    }
    match (e.left, e.right) {
        (None, None) => "not measured".into(),
        (left, right) => format!(
            "{} against {}",
            side(left, e.left_interval),
            side(right, e.right_interval)
        ),
    }
}

/// A side of an expectation, of a mean with half of its interval.
pub(crate) fn side(value: Option<f64>, interval: Option<[f64; 2]>) -> String {
    let value = value.map_or("not measured".into(), units::plain);
    match interval {
        Some([low, high]) if low < high => {
            format!("{value} ± {}", units::plain((high - low) / 2.0))
        }
        _ => value,
    }
}

/// In how many runs something held.
pub(crate) fn share_of_runs(share: f64, least: f64, most: f64) -> String {
    let (share, least) = (units::percent(share), units::percent(least));
    format!(
        "{share} of runs against {least} to {}",
        units::percent(most)
    )
}

/// Replaces what an ASCII terminal cannot show.
pub(crate) fn ascii(text: &str) -> String {
    [
        ("µ", "u"),
        ("✓", "ok  "),
        ("✗", "FAIL"),
        ("·", "|"),
        ("–", "-"),
        ("≥", ">="),
        ("×", "x"),
        ("±", "+-"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Emphasis, when the style allows it.
pub(crate) struct Paint(pub Style);

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.0.colour {
            format!("\x1b[{code}m{}\x1b[0m", clean(text))
        } else {
            clean(text)
        }
    }

    pub fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }

    pub fn good(&self, text: &str) -> String {
        self.with("32", text)
    }

    pub fn alarm(&self, text: &str) -> String {
        self.with("1;31", text)
    }
}
