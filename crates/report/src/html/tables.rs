//! Tables of the page.

use std::collections::BTreeMap;

use maud::{Markup, html};
use sluicegate_scenario::results::{FlowResult, LinkResult, Results, VariantResult, VnicResult};

use super::data::{self, Plots};
use crate::{
    comparison::{self, Grid, Heading},
    figures,
    units::{self, Unit},
};

/// The most rows of a variant's flows, or of its queues, so that pages of large runs stay readable.
const ROWS_SHOWN: usize = 256;

/// The comparison: one row per variant, and completion times below.
pub fn comparison(results: &Results, plots: &Plots) -> Markup {
    html! {
        h2 { "Comparison" }
        @if let Some(variants) = comparison::variants(&[results]) { (grid(&variants, plots)) }
        @if let Some(completions) = comparison::completions(&[results]) { (grid(&completions, plots)) }
        @if let Some(programs) = comparison::programs(&[results]) { (grid(&programs, plots)) }
        @if let Some(points) = comparison::points(&[results]) { (grid(&points, plots)) }
        @if let Some(published) = comparison::published(&results.published) { (grid(&published, plots)) }
        dl.titles {
            @for (variant, shown) in results.variants.iter().zip(&plots.variants) {
                @if !variant.title.is_empty() {
                    dt { (swatch(shown.colour)) (variant.name) }
                    dd { (variant.title) }
                }
            }
        }
    }
}

/// A variant's colour.
pub fn swatch(colour: usize) -> Markup {
    html! { span.swatch data-colour=(colour) { } }
}

/// A grid; the colours of variants are those in `plots`.
pub fn grid(grid: &Grid, plots: &Plots) -> Markup {
    let colour = |cell: &str| {
        plots
            .variants
            .iter()
            .find(|v| v.name == cell)
            .map(|v| v.colour)
    };
    html! {
        div.scroll {
            table {
                thead { tr { @for (index, Heading { what, unit }) in grid.headings.iter().enumerate() {
                    th.figure[index >= grid.labels] { (what) @if !unit.is_empty() { br; small { (unit) } } }
                } } }
                tbody { @for row in &grid.rows { tr { @for (index, cell) in row.iter().enumerate() {
                    @if index >= grid.labels { td.figure { (cell) } }
                    @else if grid.headings[index].what == "variant" {
                        th scope="row" { @if let Some(colour) = colour(cell) { (swatch(colour)) } (cell) }
                    }
                    @else { td { (cell) } }
                } } } }
            }
        }
    }
}

/// Says how many of `all` rows a table has, where it has not all.
fn caption(variant: &VariantResult, all: usize, which: &str) -> Markup {
    html! {
        caption {
            (variant.name)
            @if all > ROWS_SHOWN { ": of " (all) " the " (ROWS_SHOWN) " " (which) "; results.json has all" }
        }
    }
}

/// Everything else in tables that open on demand.
pub fn details(results: &Results) -> Markup {
    let derived = comparison::by_name(results, |v| &v.derived, |v| units::plain(*v));
    let counters = comparison::by_name(results, |v| &v.enforcement, u64::to_string);
    let with_flows = || results.variants.iter().filter(|v| !v.flows.is_empty());
    let with_vnics = || results.variants.iter().filter(|v| !v.vnics.is_empty());
    let with_links = || results.variants.iter().filter(|v| !v.links.is_empty());
    html! {
        h2 { "Details" }
        @if let Some(derived) = derived { (fold("Derived figures", true, named("figure", derived))) }
        @if with_flows().next().is_some() {
            (fold("Flows", false, html! { @for variant in with_flows() { (flows(variant)) } }))
        }
        @if with_links().next().is_some() {
            (fold("Link queues", false, html! { @for variant in with_links() { (links(variant)) } }))
        }
        @if with_vnics().next().is_some() {
            (fold("Frames at vNICs", false, html! { @for variant in with_vnics() { (vnics(variant)) } }))
        }
        @if let Some(counters) = counters { (fold("Enforcement counters", false, named("counter", counters))) }
        @if !results.conditions.outside.is_empty() {
            (fold("Counters outside the experiment", false, outside(&results.conditions.outside)))
        }
    }
}

fn fold(title: &str, open: bool, content: Markup) -> Markup {
    html! { details open[open] { summary { (title) } div.scroll { (content) } } }
}

fn named(what: &str, (variants, rows): (Vec<String>, Vec<Vec<String>>)) -> Markup {
    html! {
        table {
            thead { tr { th { (what) } @for variant in variants { th.figure { (variant) } } } }
            tbody { @for row in rows { tr { @for (index, cell) in row.iter().enumerate() {
                @if index == 0 { th scope="row" { code { (cell) } } } @else { td.figure { (cell) } }
            } } } }
        }
    }
}

fn flows(variant: &VariantResult) -> Markup {
    let rate = units::rate(variant.flows.iter().map(|f| f.goodput_bps));
    let time = units::time(variant.flows.iter().filter_map(|f| f.srtt_us));
    let rows = variant.flows.iter().collect();
    let rows = data::busiest(rows, ROWS_SHOWN, |flow: &&FlowResult| flow.goodput_bps);
    html! {
        table {
            (caption(variant, variant.flows.len(), "of most goodput"))
            thead { tr {
                th { "flow" } th { "traffic" } th { "tenant" } th { "from" } th { "to" } th { "tenant's stack" }
                th.figure { "goodput" br; small { (rate.symbol) } }
                th.figure { "retransmits" } th.figure { "timeouts" }
                th.figure { "srtt at end" br; small { (time.symbol) } }
            } }
            tbody { @for f in rows { tr {
                th scope="row" { (f.id) } td { (f.traffic) } td { (f.tenant) } td { (f.from) } td { (f.to) } td { (f.tenant_cc) }
                td.figure { (rate.write(f.goodput_bps)) } td.figure { (count(f.retransmits)) } td.figure { (count(f.timeouts)) }
                td.figure { (of(f.srtt_us, time)) }
            } } }
        }
    }
}

fn links(variant: &VariantResult) -> Markup {
    let size = units::size(variant.links.iter().filter_map(|l| l.queue_bytes.max));
    let rows = variant.links.iter().collect();
    let rows = data::busiest(rows, ROWS_SHOWN, |link: &&LinkResult| {
        link.queue_bytes.max.unwrap_or(0.0)
    });
    html! {
        table {
            (caption(variant, variant.links.len(), "fullest at their fullest"))
            thead { tr {
                th { "queue" } th { "bottleneck" } th.figure { "sent" br; small { "pkts" } } th.figure { "sent" br; small { "bytes" } }
                th.figure { "drops" } th { "by cause" } th.figure { "marks" } th.figure { "marked" }
                th.figure { "queue p50" br; small { (size.symbol) } } th.figure { "p99" br; small { (size.symbol) } }
                th.figure { "max" br; small { (size.symbol) } }
            } }
            tbody { @for link in rows { tr {
                th scope="row" { (link.id) } td { @if link.bottleneck { "yes" } }
                td.figure { (link.sent) } td.figure { (link.sent_bytes) }
                td.figure { (figures::drops(link)) } td { (causes(&link.drops)) }
                td.figure { (link.marks) } td.figure { (marked(link)) }
                td.figure { (of(link.queue_bytes.p50, size)) } td.figure { (of(link.queue_bytes.p99, size)) }
                td.figure { (of(link.queue_bytes.max, size)) }
            } } }
        }
    }
}

fn vnics(variant: &VariantResult) -> Markup {
    let rows = variant.vnics.iter().collect();
    let rows = data::busiest(rows, ROWS_SHOWN, |vnic: &&VnicResult| {
        (vnic.sent + vnic.out_of_switch) as f64
    });
    html! {
        table {
            (caption(variant, variant.vnics.len(), "with most frames"))
            thead { tr {
                th { "vNIC of" } th.figure { "sent" br; small { "2" } } th.figure { "into switch" br; small { "3" } }
                th.figure { "out of switch" br; small { "4" } } th.figure { "received" br; small { "5" } }
                th.figure { "drops" } th { "by cause" }
            } }
            tbody { @for vnic in rows { tr {
                th scope="row" { (vnic.tenant) }
                td.figure { (vnic.sent) } td.figure { (vnic.into_switch) }
                td.figure { (vnic.out_of_switch) } td.figure { (vnic.received) }
                td.figure { (vnic.drops.values().sum::<u64>()) } td { (causes(&vnic.drops)) }
            } } }
        }
    }
}

/// A value in a unit, or that there is none.
fn of(value: Option<f64>, unit: Unit) -> String {
    value.map_or(comparison::NOTHING.into(), |value| unit.write(value))
}

fn count(value: Option<u64>) -> String {
    value.map_or(comparison::NOTHING.into(), |value| value.to_string())
}

fn causes(drops: &BTreeMap<String, u64>) -> String {
    figures::causes(drops.iter().map(|(cause, count)| (cause.as_str(), *count)))
}

fn marked(link: &LinkResult) -> String {
    match link.sent {
        0 => comparison::NOTHING.into(),
        sent => format!("{:.1}%", 100.0 * link.marks as f64 / sent as f64),
    }
}

fn outside(counters: &BTreeMap<String, u64>) -> Markup {
    html! {
        table {
            thead { tr { th { "counter" } th.figure { "events" } } }
            tbody { @for (name, n) in counters { tr {
                th scope="row" { code { (name) } } td.figure { @if *n > 0 { strong.bad { (n) } } @else { (n) } }
            } } }
        }
    }
}
