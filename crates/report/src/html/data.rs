//! What the page's script draws: thinned curves and series as JSON.

use std::collections::HashMap;

use serde::Serialize;
use sluicegate_scenario::results::{FlowResult, Results, Series, SeriesKind, VariantResult};

use crate::{
    samples,
    thin::{self, Stretch},
};

/// Points of one CDF at most.
const CDF_POINTS: usize = 500;
/// Stretches of a series that is drawn as a mean with a band.
const BAND_POINTS: usize = 250;

/// Points that the series of a kind may have, so that a page of many flows stays small.
struct Budget {
    /// Together, about.
    all: usize,
    /// One of them at least and at most; the most fills the width of its plot.
    each: std::ops::RangeInclusive<usize>,
}

impl Budget {
    fn of(kind: SeriesKind) -> Budget {
        match kind {
            SeriesKind::GoodputBps => Budget {
                all: 30_000,
                each: 60..=140,
            },
            SeriesKind::QueueBytes => Budget {
                all: 10_000,
                each: 50..=BAND_POINTS,
            },
            _ => Budget {
                all: 25_000,
                each: 80..=800,
            },
        }
    }

    /// Points for each of `count` series.
    fn share(&self, count: usize) -> usize {
        (self.all / count.max(1)).clamp(*self.each.start(), *self.each.end())
    }
}

/// A scenario's plots. `variant` fields index `variants`, `side` fields `sides`.
#[derive(Serialize)]
pub struct Plots {
    pub variants: Vec<Variant>,
    /// Letters of the directories that a comparison lays over each other; else empty.
    pub sides: Vec<char>,
    pub rtt: Vec<Curve>,
    pub fct: Vec<Class>,
    pub series: Vec<Line>,
}

/// A variant as plots name it.
#[derive(Serialize)]
pub struct Variant {
    pub name: String,
    /// Index into the palette, the same for a name in all scenarios of the page.
    pub colour: usize,
}

/// A CDF: `y[i]` is the fraction of `count` samples that are ≤ `x[i]` µs.
#[derive(Serialize)]
pub struct Curve {
    pub variant: usize,
    /// Whose it is, when there are sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<usize>,
    pub count: usize,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

/// The CDFs of one class of flows.
#[derive(Serialize)]
pub struct Class {
    pub name: String,
    pub curves: Vec<Curve>,
}

/// A quantity over time: `y[i]` in the unit of `kind` at `x[i]` seconds.
#[derive(Serialize)]
pub struct Line {
    pub variant: usize,
    /// As in the exports, such as `queue_bytes`.
    pub kind: &'static str,
    pub name: String,
    /// Name for people: of a flow with its tenant and the tenant's congestion control.
    pub label: String,
    /// The flow's place in the variant's table, the link's among those of a kind; chooses the colour.
    pub order: usize,
    #[serde(flatten)]
    pub points: Points,
}

/// Points of a [`Line`].
#[derive(Serialize)]
pub struct Points {
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    /// When `y` is a mean: the smallest and the largest values around it.
    pub band: Option<[Vec<f64>; 2]>,
}

impl Plots {
    /// Thins what a scenario's variants left; `colour` gives a variant's place in the palette.
    pub fn new(results: &Results, colour: impl Fn(&str) -> usize) -> Plots {
        let variants = &results.variants;
        let of_kind = |kind| {
            let series = variants.iter().flat_map(|v| &v.samples.series);
            series.filter(|series| series.kind == kind).count()
        };
        let limit = |kind| Budget::of(kind).share(of_kind(kind));
        let lines = |(index, variant)| lines(index, variant, &limit);
        Plots {
            variants: variants
                .iter()
                .map(|v| Variant {
                    name: v.name.clone(),
                    colour: colour(&v.name),
                })
                .collect(),
            sides: Vec::new(),
            rtt: curves(&[variants], |v| Some(&v.samples.rtt_us)),
            fct: classes(&[variants]),
            series: variants.iter().enumerate().flat_map(lines).collect(),
        }
    }

    /// The CDFs of all sides over each other, without series: `sides` has the letter of each and its variants, the
    /// same ones in the same order; one that a side lacks has no samples.
    pub fn overlaid(sides: &[(char, Vec<VariantResult>)]) -> Plots {
        let variants: Vec<&[VariantResult]> = sides.iter().map(|(_, v)| v.as_slice()).collect();
        let first = variants.first().copied().unwrap_or_default();
        let variant = |(colour, v): (usize, &VariantResult)| Variant {
            name: v.name.clone(),
            colour,
        };
        Plots {
            variants: first.iter().enumerate().map(variant).collect(),
            sides: sides.iter().map(|(letter, _)| *letter).collect(),
            rtt: curves(&variants, |v| Some(&v.samples.rtt_us)),
            fct: classes(&variants),
            series: Vec::new(),
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_empty() && self.fct.is_empty() && self.series.is_empty()
    }

    /// Series of a kind.
    pub fn of(&self, kind: SeriesKind) -> impl Iterator<Item = &Line> {
        self.series
            .iter()
            .filter(move |line| line.kind == samples::quantity(kind))
    }
}

/// A CDF per variant; of several sides, per variant and side.
fn curves<'a>(
    sides: &[&'a [VariantResult]],
    pick: impl Fn(&'a VariantResult) -> Option<&'a Vec<f64>>,
) -> Vec<Curve> {
    let several = sides.len() > 1;
    let all = sides.iter().enumerate().flat_map(|(side, variants)| {
        let numbered = variants.iter().enumerate();
        numbered.map(move |(variant, result)| (several.then_some(side), variant, result))
    });
    let curve = |(side, variant, result)| {
        let samples = pick(result)?;
        let points = thin::cdf(samples, CDF_POINTS);
        let (x, y) = points
            .into_iter()
            .map(|(x, y)| (thin::round(x), (y * 1e6).round() / 1e6))
            .unzip();
        (!samples.is_empty()).then_some(Curve {
            variant,
            side,
            count: samples.len(),
            x,
            y,
        })
    };
    all.filter_map(curve).collect()
}

fn classes(sides: &[&[VariantResult]]) -> Vec<Class> {
    let all = sides.iter().copied().flatten();
    let names: std::collections::BTreeSet<_> = all.flat_map(|v| v.samples.fct_us.keys()).collect();
    let class = |name: &String| Class {
        name: name.clone(),
        curves: curves(sides, |v| v.samples.fct_us.get(name)),
    };
    names
        .into_iter()
        .map(class)
        .filter(|class| !class.curves.is_empty())
        .collect()
}

fn lines(
    variant: usize,
    result: &VariantResult,
    limit: &impl Fn(SeriesKind) -> usize,
) -> Vec<Line> {
    let mut seen: HashMap<&'static str, usize> = HashMap::new();
    let line = |series: &Series| {
        let kind = samples::quantity(series.kind);
        let next = seen.entry(kind).or_default();
        let order = *next;
        *next += 1;
        let flow = flow_of(series, &result.flows);
        Line {
            variant,
            kind,
            name: series.name.clone(),
            label: flow.map_or(series.name.clone(), |(_, flow)| {
                format!("{} ({})", series.name, flow.tenant_cc)
            }),
            order: flow.map_or(order, |(position, _)| position),
            points: points(series, limit(series.kind)),
        }
    };
    result.samples.series.iter().map(line).collect()
}

/// Goodput is averaged: the mean of rates is the rate over a longer time. A queue changes faster than a screen shows:
/// its mean and extremes. Windows and α keep the points at the extremes.
fn points(series: &Series, limit: usize) -> Points {
    let finite = |(_, value): &(f64, f64)| value.is_finite();
    let all: Vec<_> = series.points.iter().copied().filter(finite).collect();
    let averaged = matches!(series.kind, SeriesKind::GoodputBps | SeriesKind::QueueBytes);
    if averaged && all.len() > limit {
        let stretches = thin::stretches(&all, limit);
        let each =
            |value: fn(&Stretch) -> f64| stretches.iter().map(|s| thin::round(value(s))).collect();
        let with_band = series.kind == SeriesKind::QueueBytes;
        return Points {
            x: stretches.iter().map(|s| seconds(s.time)).collect(),
            y: each(|s| s.mean),
            band: with_band.then(|| [each(|s| s.low), each(|s| s.high)]),
        };
    }
    let kept = thin::extremes(&all, limit).into_iter();
    let (x, y) = kept.map(|(t, v)| (seconds(t), thin::round(v))).unzip();
    Points { x, y, band: None }
}

/// Rounded to 0.1 ms.
fn seconds(time: f64) -> f64 {
    (time * 1e4).round() / 1e4
}

/// The flow that a series is about, and its place in the table: the name begins with its number.
fn flow_of<'a>(series: &Series, flows: &'a [FlowResult]) -> Option<(usize, &'a FlowResult)> {
    if series.kind == SeriesKind::QueueBytes {
        return None;
    }
    let number: u32 = series.name.split(' ').next()?.parse().ok()?;
    flows.iter().enumerate().find(|(_, flow)| flow.id == number)
}

/// JSON for a `<script>` element: nothing in it can end the element or start a comment.
pub fn json_in_script(value: &impl Serialize) -> String {
    // Strings are the only place where these characters occur, so that an escape is always allowed.
    let text = serde_json::to_string(value).expect("plots have string keys and finite numbers");
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    #[test]
    fn json_cannot_leave_its_script_element() {
        let hostile = "</script><!--<script>\u{2028}&amp;\"\\";
        let text = super::json_in_script(&hostile);
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }
}
