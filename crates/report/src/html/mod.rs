//! The report: one page that works from `file://` and never touches a network.

pub(crate) mod data;
pub(crate) mod plots;
pub(crate) mod tables;
mod timeline;
mod topology;

use std::collections::HashMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use sluicegate_scenario::results::{ExpectationResult, Results};

use crate::{comparison, table};

/// Apache ECharts (Apache-2.0), which the page carries.
const ECHARTS: &str = include_str!(env!("ECHARTS_JS"));
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = concat!(
    "(() => {\n\"use strict\";\n",
    include_str!("../../assets/format.js"),
    include_str!("../../assets/options.js"),
    include_str!("../../assets/topology.js"),
    include_str!("../../assets/page.js"),
    "})();\n"
);

/// The page may run its own scripts and nothing else: no request can leave it.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

/// A self-contained page for one or several scenarios, with tables, plots and how to reproduce
/// them.
///
/// Plots are drawn from `VariantResult::samples`; where these are empty the page says so.
pub fn html(results: &[&Results]) -> String {
    let colours = colours(results);
    let plots: Vec<_> = results
        .iter()
        .map(|r| data::Plots::new(r, |name| colours.get(name).copied().unwrap_or(0)))
        .collect();
    let title = match results {
        [only] => format!("{} – Sluicegate", only.scenario),
        _ => "Sluicegate report".into(),
    };
    let sections = html! {
        @for (index, (result, plots)) in results.iter().zip(&plots).enumerate() {
            (scenario(index, result, plots))
        }
    };
    document(&title, &navigation(results), &sections, &plots)
}

/// A page with everything that it needs; a `section` with `data-scenario` shows plots of that
/// index.
pub(crate) fn document(
    title: &str,
    navigation: &Markup,
    sections: &Markup,
    plots: &[data::Plots],
) -> String {
    self_contained(title, navigation, sections, &plots, SCRIPT)
}

/// A page with ECharts, `data` as JSON in the element `plots`, and `script`, which draws them.
pub(crate) fn self_contained(
    title: &str,
    navigation: &Markup,
    sections: &Markup,
    data: &impl Serialize,
    script: &str,
) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (navigation)
                main { (sections) }
                script type="application/json" id="plots" { (PreEscaped(data::json_in_script(data))) }
                script { (PreEscaped(ECHARTS)) }
                script { (PreEscaped(script)) }
            }
        }
    };
    page.into_string()
}

/// Each variant's place in the palette, by first appearance, so that a name has one colour in all
/// scenarios.
fn colours<'a>(results: &[&'a Results]) -> HashMap<&'a str, usize> {
    let mut colours = HashMap::new();
    for variant in results.iter().flat_map(|r| &r.variants) {
        let next = colours.len();
        colours.entry(variant.name.as_str()).or_insert(next);
    }
    colours
}

fn navigation(results: &[&Results]) -> Markup {
    html! {
        header.top {
            strong { "Sluicegate" }
            nav aria-label="Scenarios" {
                @for (index, result) in results.iter().enumerate() {
                    a href={ "#scenario-" (index) } {
                        (verdict_mark(result)) " " (result.scenario)
                    }
                }
            }
        }
    }
}

fn verdict_mark(results: &Results) -> Markup {
    let broken = results.expectations.iter().filter(|e| !e.held).count();
    html! {
        @if results.expectations.is_empty() { }
        @else if broken == 0 { span.good title="all expectations held" { "✓" } }
        @else { span.bad title={ (broken) " expectations did not hold" } { "✗" } }
    }
}

fn scenario(index: usize, results: &Results, plots: &data::Plots) -> Markup {
    html! {
        section.scenario id={ "scenario-" (index) } data-scenario=(index) {
            h1 { (results.scenario) }
            @if !results.title.is_empty() { p.title { (results.title) } }
            @if let Some(mirrors) = &results.mirrors { p.mirrors { "Mirrors " (mirrors) } }
            (conditions(results))
            (tables::comparison(results, plots))
            (expectations(&results.expectations))
            (plots::plots(results, plots))
            (timeline::timelines(results))
            (tables::details(results))
            (reproduce(results))
        }
    }
}

fn conditions(results: &Results) -> Markup {
    let notes = comparison::notes(&results.conditions);
    html! {
        p.conditions {
            span { (results.world) }
            @for phrase in comparison::conditions(&results.conditions) { span { (phrase) } }
            span { "seed " (results.seed) }
        }
        @for line in comparison::alarms(results) { p.alarm role="alert" { (line) } }
        @for note in &notes { p.note { (note) } }
    }
}

fn expectations(list: &[ExpectationResult]) -> Markup {
    html! {
        @if !list.is_empty() {
            h2 { "Expectations" }
            div.scroll {
                table.expectations {
                    thead { tr { th { } th { "name" } th { "expression" } th.figure { "values" } } }
                    tbody {
                        @for e in list {
                            tr.broken[!e.held] {
                                td { @if e.held { span.good { "✓" } } @else { span.bad { "✗" } } }
                                td { (e.name) }
                                td { code { (e.expression) } }
                                td.figure { (table::values(e)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn reproduce(results: &Results) -> Markup {
    let conditions = &results.conditions;
    html! {
        h2 { "Reproduce" }
        p { "With the " code { "scenario.toml" } " that lies beside " code { "results.json" } ":" }
        pre { "sluicegate run scenario.toml --world " (results.world) " --seed " (results.seed) " --out again --check" }
        p.small {
            "Run with sluicegate " (conditions.version) ", started " (conditions.started)
            ", results schema " (results.schema) "."
        }
    }
}
