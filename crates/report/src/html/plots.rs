//! Places for plots; the page's script fills them.

use maud::{Markup, html};
use sluicegate_scenario::results::{Results, SeriesKind, TraceKind};

use super::{
    data::{Class, Line, Plots, SERIES_DRAWN},
    tables::swatch,
    topology::topology,
};

/// All plots of a scenario, with the buttons that show and hide variants.
pub fn plots(results: &Results, plots: &Plots) -> Markup {
    html! {
        h2 { "Plots" }
        @if plots.is_empty() {
            p.no-data { "These results carry no samples (results.json alone has none), so there is nothing to plot." }
        } @else {
            noscript { p.alarm { "Plots need JavaScript; the tables do not." } }
            div.all-plots {
                (legend(plots))
                @if plots.series_left_out {
                    p.hint {
                        "Plots over time have the " (SERIES_DRAWN) " busiest flows and the " (SERIES_DRAWN)
                        " fullest queues of each variant only; the file of samples has more."
                    }
                }
                div.plots { (rtt(plots)) (queue(results, plots)) (completions(plots)) }
                (goodput(plots))
                (windows(plots))
                (traces(plots))
                (topology(&plots.films))
            }
        }
    }
}

/// The CDFs of all sides over each other.
pub fn overlaid(plots: &Plots) -> Markup {
    html! {
        h2 { "Distributions" }
        @if plots.is_empty() {
            p.no-data { "No side has samples (samples.parquet) of what was compared, so there is nothing to plot." }
        } @else {
            noscript { p.alarm { "Plots need JavaScript; the tables do not." } }
            div.all-plots {
                (legend(plots))
                div.plots { @if !plots.rtt.is_empty() { (rtt(plots)) } (completions(plots)) }
            }
        }
    }
}

/// Buttons that hide a variant, or a side, everywhere.
fn legend(plots: &Plots) -> Markup {
    html! {
        div.legend.variants role="group" aria-label="Variants" {
            @for (index, variant) in plots.variants.iter().enumerate() {
                button type="button" aria-pressed="true" data-variant=(index) { (swatch(variant.colour)) (variant.name) }
            }
            @for (index, letter) in plots.sides.iter().enumerate() {
                button type="button" aria-pressed="true" data-side=(index) { span.dash data-dash=(index) { } (letter) }
            }
            span.hint { "click to hide · drag in a plot to zoom, double-click to reset" }
        }
    }
}

/// One plot: `kind` chooses what the script draws, `index` which of several.
fn figure(kind: &str, index: Option<usize>, title: &str, controls: Markup) -> Markup {
    html! {
        figure data-plot=(kind) data-index=[index] {
            figcaption { span.name { (title) } span.controls { (controls) } }
            div.canvas role="img" aria-label=(title) { }
        }
    }
}

fn missing(what: &str) -> Markup {
    html! { p.no-data { (what) } }
}

fn tail_button() -> Markup {
    html! { button type="button" aria-pressed="false" data-toggle="tail" title="1 − CDF on a logarithmic axis" { "tail" } }
}

fn log_button() -> Markup {
    html! { button type="button" aria-pressed="false" data-toggle="log" { "log" } }
}

fn rtt(plots: &Plots) -> Markup {
    match plots.rtt.is_empty() {
        true => missing("No RTT samples: the scenario has no ping-pong probe."),
        false => figure("rtt", None, "RTT of the probes", tail_button()),
    }
}

/// A curve of those that were complete looks as good as one of all.
fn of_completions(class: &Class) -> String {
    let name = &class.name;
    match class.unfinished {
        0 => format!("Flow completion time, {name}"),
        left => format!("Flow completion time, {name}, without {left} unfinished"),
    }
}

fn completions(plots: &Plots) -> Markup {
    html! {
        @for (index, class) in plots.fct.iter().enumerate() {
            (figure("fct", Some(index), &of_completions(class), tail_button()))
        }
    }
}

fn queue(results: &Results, plots: &Plots) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for line in plots.of(SeriesKind::QueueBytes) {
        if !names.contains(&line.name.as_str()) {
            names.push(&line.name);
        }
    }
    let is_bottleneck = |name: &str| {
        results
            .variants
            .iter()
            .flat_map(|v| &v.links)
            .any(|link| link.bottleneck && link.id == name)
    };
    names.sort_by_key(|name| !is_bottleneck(name));
    let select = html! {
        @if names.len() > 1 { (select("link", "Link", names.iter().map(|name| (name.to_string(), *name)))) }
        (log_button())
    };
    match names[..] {
        [] => missing("No queue series was recorded."),
        [only] => figure("queue", None, &format!("Queue {only}"), select),
        _ => figure("queue", None, "Queue", select),
    }
}

fn goodput(plots: &Plots) -> Markup {
    let has = |variant: usize| {
        plots
            .of(SeriesKind::GoodputBps)
            .any(|line| line.variant == variant)
    };
    let shown: Vec<_> = (0..plots.variants.len())
        .filter(|variant| has(*variant))
        .collect();
    html! {
        h3 { "Goodput per flow" }
        @if shown.is_empty() { (missing("No goodput series was recorded.")) }
        div.legend.flows role="group" aria-label="Flows" { }
        div.plots.panels {
            @for variant in shown {
                figure data-plot="goodput" data-index=(variant) data-panel=(variant) {
                    figcaption { span.name { (swatch(plots.variants[variant].colour)) (plots.variants[variant].name) } }
                    div.canvas role="img" aria-label={ "Goodput per flow, " (plots.variants[variant].name) } { }
                }
            }
        }
    }
}

/// The enforced window beside the tenant's own, and α below, of one flow at a time.
fn windows(plots: &Plots) -> Markup {
    let windows: Vec<&Line> = [
        SeriesKind::EnforcedWindowBytes,
        SeriesKind::TenantCwndBytes,
        SeriesKind::Alpha,
    ]
    .into_iter()
    .flat_map(|kind| plots.of(kind))
    .collect();
    let has = |variant: &usize| windows.iter().any(|line| line.variant == *variant);
    let enforced = |variant: &usize| {
        plots
            .of(SeriesKind::EnforcedWindowBytes)
            .any(|line| line.variant == *variant)
    };
    let mut variants: Vec<usize> = (0..plots.variants.len()).filter(has).collect();
    variants.sort_by_key(|variant| !enforced(variant));
    let name = |variant: &usize| (variant.to_string(), plots.variants[*variant].name.as_str());
    let controls = html! {
        (select("variant", "Variant", variants.iter().map(name)))
        (select("flow", "Flow", std::iter::empty()))
        (log_button())
    };
    html! {
        h3 { "Windows" }
        @if windows.is_empty() { (missing("No window series was recorded.")) }
        @else { div.plots.wide { (figure("windows", None, "Enforced window, tenant's cwnd, α", controls)) } }
    }
}

/// Traces: a plot of each kind, of one variant at a time.
fn traces(plots: &Plots) -> Markup {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for (kind, _, quantity) in TraceKind::ALL {
        let known = kinds.iter().any(|(_, known)| *known == quantity);
        if !known && plots.traces.iter().any(|line| line.kind == quantity) {
            kinds.push((trace_title(kind), quantity));
        }
    }
    html! {
        @if !kinds.is_empty() {
            h3 { "Traces" }
            @if plots.traces_left_out {
                p.hint { "Each plot has the " (SERIES_DRAWN) " busiest of a variant only; the file of traces has all." }
            }
            div.plots { @for (title, quantity) in kinds { (trace(title, quantity, plots)) } }
        }
    }
}

fn trace(title: &str, quantity: &str, plots: &Plots) -> Markup {
    let has = |variant: &usize| {
        let of_kind = |line: &Line| line.variant == *variant && line.kind == quantity;
        plots.traces.iter().any(of_kind)
    };
    let variants = (0..plots.variants.len()).filter(has);
    let name = |variant: usize| (variant.to_string(), plots.variants[variant].name.as_str());
    html! {
        figure data-plot="trace" data-kind=(quantity) {
            figcaption {
                span.name { (title) }
                span.controls {
                    (select("variant", "Variant", variants.map(name)))
                    (select("line", "", std::iter::empty()))
                    (log_button())
                }
            }
            div.canvas role="img" aria-label=(title) { }
        }
    }
}

fn trace_title(kind: TraceKind) -> &'static str {
    match kind {
        TraceKind::Queue | TraceKind::AllQueues => "Queue",
        TraceKind::Cwnd => "Tenant's cwnd",
        TraceKind::Rwnd => "Receive window (rwnd)",
        TraceKind::Enforced => "Enforced window",
        TraceKind::Ssthresh => "Tenant's ssthresh",
        TraceKind::Srtt => "Smoothed RTT",
        TraceKind::Alpha => "α",
        TraceKind::InFlight => "In flight",
        TraceKind::Goodput => "Goodput",
    }
}

fn select<'a>(name: &str, label: &str, choices: impl Iterator<Item = (String, &'a str)>) -> Markup {
    html! {
        label { (label) " " select data-select=(name) { @for (value, text) in choices { option value=(value) { (text) } } } }
    }
}
