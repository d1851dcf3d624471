//! A sweep for a terminal.

use sluicegate_scenario::sweep::{Instance, Outcome, StatementResult, Summary, figures};

use crate::{
    comparison::{self, Grid, Heading},
    table::{self, Paint, Style},
    units::{self, Unit},
};

/// Figures of which a table without a choice has those that there are.
const USUAL: [&str; 7] = [
    "goodput_bps.sum",
    "goodput_bps.jain",
    "rtt_us.p50",
    "rtt_us.p99",
    "links.bottleneck.queue_bytes.p99",
    "links.bottleneck.drops",
    "links.bottleneck.marks",
];

/// One row per cell, with mean ± half of the 95 % interval; then published figures, failures, and
/// what became of expectations.
///
/// Figures are those that the scenario chose, else the usual ones; all are in the files.
pub fn text(outcome: &Outcome, style: Style) -> String {
    let paint = Paint(style);
    let mut blocks = vec![paint.bold(&heading(outcome))];
    blocks.extend(grids(outcome, &shown(outcome), style));
    let published = comparison::published(&outcome.published);
    blocks.extend(published.map(|grid| table::draw(&grid, style)));
    blocks.extend(outcome.failed.iter().map(|failed| {
        let axes = outcome.axes.iter().zip(&failed.values);
        let values: Vec<String> = axes.map(|(a, v)| format!("{}={v}", a.name)).collect();
        let (cell, variant) = (values.join(" "), &failed.variant);
        let line = format!(
            "! {cell} variant={variant} seed={}: {}",
            failed.seed, failed.error
        );
        paint.alarm(&line)
    }));
    for (counter, count) in &outcome.outside {
        blocks.push(paint.alarm(&format!("! {counter} = {count}, all runs together")));
    }
    blocks.extend(
        outcome
            .notes
            .iter()
            .map(|note| table::clean(&format!("note: {note}"))),
    );
    for statement in &outcome.expectations {
        blocks.extend(expectation(statement, &paint));
    }
    let text = blocks.join("\n") + "\n";
    match style.unicode {
        true => text,
        false => table::ascii(&text),
    }
}

fn heading(outcome: &Outcome) -> String {
    let title = match outcome.title == outcome.scenario {
        true => String::new(),
        false => format!(" – {}", outcome.title),
    };
    format!(
        "{}{title}  [sim, {} cells, {} runs, 95% intervals]",
        outcome.scenario,
        outcome.cells.len(),
        outcome.succeeded()
    )
}

/// The figures that were chosen, else usual ones that there are.
fn shown(outcome: &Outcome) -> Vec<&str> {
    let all = outcome.figures();
    if !outcome.chosen.is_empty() {
        return all;
    }
    let is_fct = |name: &str| {
        name.starts_with("fct_us.") && (name.ends_with(".mean") || name.ends_with(".p99"))
    };
    let usual = USUAL.into_iter().filter(|name| all.contains(name));
    usual
        .chain(all.iter().copied().filter(|name| is_fct(name)))
        .collect()
}

/// As many tables side by side as fit, one below the other.
fn grids(outcome: &Outcome, figures: &[&str], style: Style) -> Vec<String> {
    if figures.is_empty() {
        return Vec::new();
    }
    let whole = table::draw(&grid(outcome, figures), style);
    let width = whole.lines().map(|line| line.chars().count()).max();
    if width.unwrap_or(0) <= style.width || figures.len() == 1 {
        return vec![whole];
    }
    let (left, right) = figures.split_at(figures.len().div_ceil(2));
    let mut all = grids(outcome, left, style);
    all.extend(grids(outcome, right, style));
    all
}

fn grid(outcome: &Outcome, figures: &[&str]) -> Grid {
    let with_variants = outcome.variants.len() > 1 || outcome.axes.is_empty();
    let mut headings: Vec<Heading> = outcome.axes.iter().map(|axis| plain(&axis.name)).collect();
    headings.extend(with_variants.then(|| plain("variant")));
    let labels = headings.len();
    let mut rows: Vec<Vec<String>> = (outcome.cells.iter())
        .map(|cell| {
            let variant = with_variants.then(|| cell.variant.clone());
            cell.values.iter().cloned().chain(variant).collect()
        })
        .collect();
    for name in figures {
        let summaries: Vec<Option<&Summary>> = (outcome.cells.iter())
            .map(|cell| cell.figures.get(*name).map(|figure| &figure.summary))
            .collect();
        let unit = unit_of(name, &summaries);
        headings.push(Heading {
            what: (*name).to_owned(),
            unit: unit.symbol.to_owned(),
        });
        for (row, summary) in rows.iter_mut().zip(summaries) {
            row.push(summary.map_or("–".to_owned(), |summary| written(summary, unit)));
        }
    }
    Grid {
        headings,
        rows,
        labels,
    }
}

fn plain(what: &str) -> Heading {
    Heading {
        what: what.to_owned(),
        unit: String::new(),
    }
}

/// The unit in which a column is read best.
fn unit_of(name: &str, summaries: &[Option<&Summary>]) -> Unit {
    let means = summaries.iter().flatten().map(|summary| summary.mean);
    match figures::unit(name) {
        "us" => units::time(means),
        "bit/s" => units::rate(means),
        "bytes" => units::size(means),
        _ => Unit {
            scale: 1.0,
            symbol: "",
        },
    }
}

fn written(summary: &Summary, unit: Unit) -> String {
    let mean = unit.write(summary.mean);
    match summary.half_width() {
        Some(half) => format!("{mean} ± {}", unit.write(half)),
        None => mean,
    }
}

/// A line, and one for each cell in which it did not hold.
fn expectation(statement: &StatementResult, paint: &Paint) -> Vec<String> {
    let whole = match statement.instances.as_slice() {
        [only] if only.cell.is_empty() => format!("  [{}]", sides(only)),
        all => {
            let held = all.iter().filter(|instance| instance.held).count();
            format!("  [{held} of {} cells]", all.len())
        }
    };
    let line = format!("{}  {}{whole}", statement.name, statement.expression);
    let mut lines = vec![match statement.held {
        true => format!("{} {}", paint.good("✓"), table::clean(&line)),
        false => format!("{} {}", paint.alarm("✗"), paint.bold(&line)),
    }];
    let broken = statement
        .instances
        .iter()
        .filter(|i| !i.held && !i.cell.is_empty());
    lines.extend(broken.map(|instance| {
        let line = format!("    {}: {}", place(instance), sides(instance));
        paint.alarm(&line)
    }));
    lines
}

/// `axis=value axis=value`.
pub(super) fn place(instance: &Instance) -> String {
    let values = instance
        .cell
        .iter()
        .map(|(axis, value)| format!("{axis}={value}"));
    values.collect::<Vec<_>>().join(" ")
}

/// The compared sides.
pub(super) fn sides(instance: &Instance) -> String {
    let left = table::side(instance.left, instance.left_interval);
    let right = table::side(instance.right, instance.right_interval);
    match instance.upper {
        Some(upper) => format!("{left} between {right} and {}", units::plain(upper)),
        None => format!("{left} against {right}"),
    }
}

/// A line for every cell in which an expectation did not hold.
pub fn expectations(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for statement in outcome.expectations.iter().filter(|s| !s.held) {
        let whole = format!(
            "{}: {}: {}",
            outcome.scenario, statement.name, statement.expression
        );
        if statement.instances.is_empty() {
            lines.push(format!("{whole} (no cell to hold in)"));
        }
        for instance in statement.instances.iter().filter(|i| !i.held) {
            let sides = sides(instance);
            lines.push(match instance.cell.is_empty() {
                true => format!("{whole} ({sides})"),
                false => format!("{whole} with {} ({sides})", place(instance)),
            });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{super::tables::tests::outcome, *};

    #[test]
    fn a_row_has_its_axes_and_its_interval_in_one_unit() {
        let mut outcome = outcome();
        outcome.expectations.push(StatementResult {
            name: "fast".to_owned(),
            expression: "every fct_us.query.mean < 150".to_owned(),
            held: false,
            instances: vec![Instance {
                cell: vec![("network.rate".to_owned(), "10Gbit".to_owned())],
                left: Some(20_000.0),
                right: Some(150.0),
                ..Instance::default()
            }],
        });
        let text = text(&outcome, Style::PLAIN);
        let line = |with: &str| {
            text.lines()
                .find(|line| line.contains(with))
                .unwrap()
                .to_owned()
        };
        // t = 12.706, sd = 14.14 of two: half a width of 127.
        assert!(line(" 1Gbit").contains("0.110 +- 0.127"), "{text}");
        assert!(line(" 10Gbit").contains("20.0 "), "{text}");
        assert!(text.contains("FAIL fast"), "{text}");
        assert!(
            text.contains("network.rate=10Gbit: 20000 against 150"),
            "{text}"
        );
        let lines = expectations(&outcome);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("with network.rate=10Gbit"), "{lines:?}");
    }
}
