//! The comparison as a page, in the look of the report.

use maud::{Markup, html};
use sluicegate_scenario::results::VariantResult;

use super::{Comparison, Contest, Scenario, Side, grids, text};
use crate::html::{data::Plots, document, plots::overlaid, tables::grid};

/// A self-contained page; `sides` are those that were compared, with the samples of their CDFs.
pub fn html(comparison: &Comparison, sides: &[Side]) -> String {
    let plots: Vec<Plots> = comparison
        .scenarios
        .iter()
        .map(|scenario| plots(comparison, scenario, sides))
        .collect();
    let sections = html! {
        (overview(comparison))
        @for (index, (one, plots)) in comparison.scenarios.iter().zip(&plots).enumerate() {
            (section(comparison, index, one, plots))
        }
    };
    let title = match comparison.scenarios.as_slice() {
        [only] => format!("{} compared – Sluicegate", only.name),
        _ => "Sluicegate comparison".into(),
    };
    document(&title, &navigation(comparison), &sections, &plots)
}

/// The variants that were compared, from every side that has samples of the scenario.
fn plots(comparison: &Comparison, scenario: &Scenario, sides: &[Side]) -> Plots {
    let overlaid = comparison.sides.iter().zip(sides).map(|(name, side)| {
        let run = side
            .runs
            .iter()
            .find(|run| run.results.scenario == scenario.name);
        let variant = |wanted: &super::Variant| {
            let mut found = run.iter().flat_map(|run| &run.results.variants);
            let found = found.find(|v| v.name == wanted.name);
            VariantResult {
                name: wanted.name.clone(),
                samples: found.map(|v| v.samples.clone()).unwrap_or_default(),
                fct_us: found.map(|v| v.fct_us.clone()).unwrap_or_default(),
                ..Default::default()
            }
        };
        (name.letter, scenario.variants.iter().map(variant).collect())
    });
    Plots::overlaid(&overlaid.collect::<Vec<_>>())
}

fn navigation(comparison: &Comparison) -> Markup {
    html! {
        header.top {
            strong { "Sluicegate" }
            nav aria-label="Scenarios" {
                @for (index, scenario) in comparison.scenarios.iter().enumerate() {
                    a href={ "#scenario-" (index) } { (mark(scenario.contests.iter())) " " (scenario.name) }
                }
            }
        }
    }
}

/// Whether all sides put the variants in the same order.
fn mark<'a>(mut contests: impl Iterator<Item = &'a Contest>) -> Markup {
    let turned = contests.any(|contest| contest.agrees.contains(&Some(false)));
    html! {
        @if turned { span.bad title="another order of variants" { "✗" } }
        @else { span.good title="the same order of variants" { "✓" } }
    }
}

fn overview(comparison: &Comparison) -> Markup {
    let nothing = Plots::overlaid(&[]);
    html! {
        section {
            h1 { "Comparison" }
            table {
                tbody { @for side in &comparison.sides { tr {
                    th scope="row" { (side.letter) } td { code { (side.directory) } }
                } } }
            }
            @if comparison.scenarios.len() > 1 {
                h2 { "Summary" }
                p.small { "Per scenario the ratio to " (comparison.sides[0].letter) " that is the farthest from 1." }
                (grid(&grids::summary(comparison), &nothing))
            }
            (outside(comparison))
            @if !comparison.unmatched.is_empty() {
                h2 { "Not compared" }
                ul { @for line in &text::unmatched(&comparison.unmatched) { li { (line) } } }
            }
        }
    }
}

fn outside(comparison: &Comparison) -> Markup {
    html! {
        h2 { "Tolerances" }
        p.small { (comparison.tolerances) }
        @if comparison.outside.is_empty() {
            p { span.good { "✓" } " Everything lies within them." }
        } @else {
            details open[comparison.outside.len() <= 10] {
                summary { span.bad { "✗" } " " (comparison.outside.len()) " outside" }
                ul { @for line in &comparison.outside { li { (line) } } }
            }
        }
    }
}

fn section(comparison: &Comparison, index: usize, scenario: &Scenario, plots: &Plots) -> Markup {
    html! {
        section.scenario id={ "scenario-" (index) } data-scenario=(index) {
            h1 { (scenario.name) }
            @if !scenario.title.is_empty() { p.title { (scenario.title) } }
            (head(comparison, scenario))
            @if !scenario.contests.is_empty() {
                h2 { "Same winners?" }
                (orders(comparison, scenario))
                @if let Some(contests) = grids::contests(comparison, scenario) { (grid(&contests, plots)) }
            }
            h2 { "Figures" }
            (grid(&grids::variants(comparison, scenario), plots))
            @if let Some(completions) = grids::completions(comparison, scenario) { (grid(&completions, plots)) }
            (overlaid(plots))
        }
    }
}

fn head(comparison: &Comparison, scenario: &Scenario) -> Markup {
    let sides = || {
        let all = comparison.sides.iter().zip(&scenario.origins);
        all.filter_map(|(side, origin)| Some((side.letter, origin.as_ref()?)))
    };
    html! {
        @for (letter, origin) in sides() {
            p.conditions {
                strong { (letter) }
                @for phrase in text::circumstances(origin) { span { (phrase) } }
            }
        }
        @if !scenario.differs.is_empty() { p.note { "different: " (scenario.differs.join(", ")) } }
        @for line in text::as_run(comparison, &scenario.as_run) { p.note { (line) } }
        @for line in &scenario.warnings { p.alarm role="alert" { (line) } }
        @for (letter, origin) in sides() {
            @for line in &origin.alarms { p.alarm role="alert" { (letter) ": " (line) } }
        }
    }
}

/// The variants from the best to the worst, by figure, once where the sides agree to the letter.
fn orders(comparison: &Comparison, scenario: &Scenario) -> Markup {
    html! {
        div.scroll {
            table.orders {
                thead { tr { th { } th { "figure" } th { "side" } th { "best first, = is a tie" } } }
                tbody { @for contest in &scenario.contests {
                    @for (index, (letters, order)) in text::orders(comparison, contest).iter().enumerate() {
                        tr {
                            td { @if index == 0 { (mark(std::iter::once(contest))) } }
                            th scope="row" { @if index == 0 { (contest.what) } }
                            td { (letters) } td { (order) }
                        }
                    }
                } }
            }
        }
    }
}
