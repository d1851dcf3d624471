//! A sweep as one page that works from `file://` and never touches a network.

use maud::{Markup, html};
use serde::Serialize;
use sluicegate_scenario::{
    results::PublishedResult,
    sweep::{Outcome, StatementResult, figures},
};

use super::text::{place, sides};
use crate::{comparison, html::self_contained};

const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("../../assets/format.js"),
    include_str!("../../assets/options.js"),
    include_str!("../../assets/sweep.js"),
    "})();\n"
);

/// The input of the script.
#[derive(Serialize)]
struct Data<'a> {
    /// Axes, and variants as the last.
    dimensions: Vec<Dimension<'a>>,
    figures: Vec<Figure<'a>>,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Dimension<'a> {
    name: &'a str,
    values: &'a [String],
}

#[derive(Serialize)]
struct Figure<'a> {
    index: usize,
    name: &'a str,
    /// The unit's name in the script.
    quantity: &'static str,
}

#[derive(Serialize)]
struct Cell {
    /// Position of its value in each dimension.
    at: Vec<usize>,
    /// Per figure n, mean, low, high, sd, min, max.
    figures: Vec<Option<Numbers>>,
}

type Numbers = (u32, f64, Option<f64>, Option<f64>, Option<f64>, f64, f64);

impl<'a> Data<'a> {
    fn of(outcome: &'a Outcome) -> Self {
        let axes = outcome.axes.iter().map(|axis| Dimension {
            name: &axis.name,
            values: &axis.values,
        });
        let variants = Dimension {
            name: "variant",
            values: &outcome.variants,
        };
        let dimensions: Vec<Dimension<'_>> = axes.chain([variants]).collect();
        let names = outcome.figures();
        let cells = outcome.cells.iter().map(|cell| {
            let values = cell.values.iter().chain([&cell.variant]);
            let at = dimensions.iter().zip(values).map(|(dimension, value)| {
                let at = dimension.values.iter().position(|known| known == value);
                at.unwrap_or_default()
            });
            let numbers = names.iter().map(|name| {
                let s = &cell.figures.get(*name)?.summary;
                Some((s.n, s.mean, s.ci_low, s.ci_high, s.sd, s.min, s.max))
            });
            Cell {
                at: at.collect(),
                figures: numbers.collect(),
            }
        });
        let cells = cells.collect();
        let figure = |(index, name): (usize, &&'a str)| Figure {
            index,
            name,
            quantity: quantity(name),
        };
        Self {
            figures: names.iter().enumerate().map(figure).collect(),
            dimensions,
            cells,
        }
    }
}

fn quantity(name: &str) -> &'static str {
    match figures::unit(name) {
        "us" => "us",
        "bit/s" => "bps",
        "bytes" => "bytes",
        _ => "none",
    }
}

/// A self-contained page: bars with confidence intervals by any axes, a table, what failed, what
/// was expected.
pub fn html(outcome: &Outcome) -> String {
    let data = Data::of(outcome);
    let navigation = html! {
        header.top { strong { "Sluicegate" } nav { (outcome.scenario) } }
    };
    let sections = html! {
        section.scenario {
            h1 { (outcome.scenario) }
            @if outcome.title != outcome.scenario { p.title { (outcome.title) } }
            @if let Some(mirrors) = &outcome.mirrors { p.mirrors { "Mirrors " (mirrors) } }
            (conditions(outcome))
            (published(&outcome.published))
            (expectations(&outcome.expectations))
            @if data.figures.is_empty() { p.no-data { "No run has measured anything." } }
            @else { (bars(&data)) (table(&data)) }
        }
    };
    let title = format!("{} – Sluicegate sweep", outcome.scenario);
    self_contained(&title, &navigation, &sections, &data, SCRIPT)
}

fn conditions(outcome: &Outcome) -> Markup {
    let seeds = match outcome.seeds.as_slice() {
        [only] => format!("seed {only}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => String::new(),
    };
    html! {
        p.conditions {
            span { "sim" }
            span { "version " (outcome.version) ", build " (outcome.build) }
            span { (seeds) }
            span { (outcome.cells.len()) " cells" }
            span { (outcome.succeeded()) " runs" }
            span { (outcome.failed.len()) " failed" }
            span { "95% intervals of the mean, Student's t" }
        }
        @for failed in &outcome.failed {
            p.alarm role="alert" {
                @for (axis, value) in outcome.axes.iter().zip(&failed.values) { (axis.name) "=" (value) " " }
                "variant=" (failed.variant) " seed=" (failed.seed) ": " (failed.error)
            }
        }
        @for (counter, count) in &outcome.outside {
            p.alarm role="alert" { (counter) " = " (count) ", all runs together" }
        }
        @for note in &outcome.notes { p.note { (note) } }
    }
}

fn published(lines: &[PublishedResult]) -> Markup {
    let Some(grid) = comparison::published(lines) else {
        return html! {};
    };
    html! {
        h2 { "Published figures" }
        div.scroll {
            table {
                thead { tr { @for heading in &grid.headings { th { (heading.what) } } } }
                tbody { @for row in &grid.rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

fn expectations(list: &[StatementResult]) -> Markup {
    html! {
        @if !list.is_empty() {
            h2 { "Expectations" }
            div.scroll {
                table.expectations {
                    thead { tr { th { } th { "name" } th { "expression" } th { "cell" } th.figure { "values" } } }
                    tbody {
                        @for statement in list { @for instance in &statement.instances {
                            tr.broken[!instance.held] {
                                td { @if instance.held { span.good { "✓" } } @else { span.bad { "✗" } } }
                                td { (statement.name) }
                                td { code { (statement.expression) } }
                                td { (place(instance)) }
                                td.figure { (sides(instance)) }
                            }
                        } }
                    }
                }
            }
        }
    }
}

fn bars(data: &Data<'_>) -> Markup {
    let count = data.dimensions.len();
    // The variants are told by colour, where there are several.
    let several = data.dimensions[count - 1].values.len() > 1;
    let axes: Vec<usize> = (0..count - 1)
        .filter(|&at| data.dimensions[at].values.len() > 1)
        .collect();
    let group = axes
        .first()
        .copied()
        .unwrap_or(if several { count - 1 } else { 0 });
    let colour = match several && group != count - 1 {
        true => Some(count - 1),
        false => axes.get(1).copied(),
    };
    let facet = axes
        .iter()
        .copied()
        .find(|at| *at != group && Some(*at) != colour);
    html! {
        h2 { "Figures" }
        p.controls {
            label { "figure " select data-select="figure" {
                @for figure in &data.figures { option value=(figure.index) { (figure.name) } }
            } }
            (role(data, "group", "groups", Some(group), false))
            (role(data, "colour", "colours", colour, true))
            (role(data, "facet", "panels", facet, true))
            @for (index, dimension) in data.dimensions.iter().enumerate() {
                label data-held=(index) hidden { (dimension.name) " "
                    select data-select={ "held-" (index) } {
                        @for (at, value) in dimension.values.iter().enumerate() { option value=(at) { (value) } }
                    }
                }
            }
        }
        div.plots id="bars" { }
    }
}

/// A choice among dimensions.
fn role(data: &Data<'_>, name: &str, label: &str, chosen: Option<usize>, optional: bool) -> Markup {
    html! {
        label { (label) " " select data-select=(name) {
            @if optional { option value="" selected[chosen.is_none()] { "–" } }
            @for (index, dimension) in data.dimensions.iter().enumerate() {
                option value=(index) selected[chosen == Some(index)] { (dimension.name) }
            }
        } }
    }
}

fn table(data: &Data<'_>) -> Markup {
    let numbers = ["n", "mean", "±", "sd", "min", "max"];
    html! {
        h2 { "All cells" }
        p.hint { "Of the figure that is chosen above; a heading sorts." }
        div.scroll {
            table id="cells" {
                thead { tr {
                    @for dimension in &data.dimensions { th { button { (dimension.name) } } }
                    @for number in numbers { th.figure { button { (number) } } }
                } }
                tbody { }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tables::tests::outcome, *};

    #[test]
    fn the_page_names_no_address_and_escapes_what_users_write() {
        let page = html(&outcome());
        assert!(page.contains("Tiny &lt;i&gt;"));
        for tag in ["<link", "src=", "href="] {
            assert!(
                !page.split("<script").next().unwrap().contains(tag),
                "{tag}"
            );
        }
        assert!(page.contains("seeds 1 to 2"));
        assert_eq!(page, html(&outcome()), "the same bytes");
    }
}
