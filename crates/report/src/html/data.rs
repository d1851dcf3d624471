//! What the page's script draws: thinned curves and series as JSON.

use std::collections::HashMap;

use serde::Serialize;
use sluicegate_scenario::results::{
    FlowResult, Results, Series, SeriesKind, Trace, TraceKind, VariantResult,
};

use crate::{
    samples,
    thin::{self, Stretch},
};

/// Points of one CDF at most.
const CDF_POINTS: usize = 500;
/// Stretches of a series that is drawn as a mean with a band.
const BAND_POINTS: usize = 250;

/// Traces of a kind and variant that a page draws at most; of more, a reader could tell none from another.
pub const TRACES_DRAWN: usize = 64;

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

    /// Of all traces together.
    const TRACES: Budget = Budget {
        all: 80_000,
        each: 60..=800,
    };

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
    /// Of the first repeat, the first [`TRACES_DRAWN`] of each kind and variant.
    pub traces: Vec<Line>,
    /// There are more.
    #[serde(skip)]
    pub traces_left_out: bool,
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
        let (traces, traces_left_out) = traces(variants);
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
            traces,
            traces_left_out,
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
            traces: Vec::new(),
            traces_left_out: false,
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_empty()
            && self.fct.is_empty()
            && self.series.is_empty()
            && self.traces.is_empty()
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
        let order = next(&mut seen, kind);
        let flow = match series.kind {
            SeriesKind::QueueBytes => None,
            _ => flow_of(&series.name, &result.flows),
        };
        Line {
            variant,
            kind,
            name: series.name.clone(),
            label: label(&series.name, flow),
            order: flow.map_or(order, |(position, _)| position),
            points: points(
                &series.points,
                limit(series.kind),
                Thinning::of(series.kind),
                1e-4,
            ),
        }
    };
    result.samples.series.iter().map(line).collect()
}

/// How often `kind` has been asked for before.
fn next(seen: &mut HashMap<&'static str, usize>, kind: &'static str) -> usize {
    let next = seen.entry(kind).or_default();
    *next += 1;
    *next - 1
}

fn label(name: &str, flow: Option<(usize, &FlowResult)>) -> String {
    match flow {
        Some((_, flow)) => format!("{name} ({})", flow.tenant_cc),
        None => name.to_owned(),
    }
}

/// The first traces of each kind and variant, and whether there are more.
fn traces(variants: &[VariantResult]) -> (Vec<Line>, bool) {
    let (mut drawn, mut left_out) = (Vec::new(), false);
    for (variant, result) in variants.iter().enumerate() {
        let mut seen = HashMap::new();
        for trace in result.samples.traces.iter().filter(|t| t.repeat == 1) {
            let order = next(&mut seen, trace.kind.quantity());
            if order < TRACES_DRAWN {
                drawn.push((variant, result, trace, order));
            } else {
                left_out = true;
            }
        }
    }
    let limit = Budget::TRACES.share(drawn.len());
    let line = |(variant, result, trace, order): (usize, &VariantResult, &Trace, usize)| {
        let flow = match trace.kind {
            TraceKind::Queue | TraceKind::AllQueues => None,
            _ => flow_of(&trace.name, &result.flows),
        };
        let behind = result.flows.len() + order;
        Line {
            variant,
            kind: trace.kind.quantity(),
            name: trace.name.clone(),
            label: label(&trace.name, flow),
            order: match trace.kind {
                TraceKind::Queue | TraceKind::AllQueues => order,
                _ => flow.map_or(behind, |(position, _)| position),
            },
            points: points(&trace.points, limit, Thinning::of_trace(trace.kind), 1e-7),
        }
    };
    (drawn.into_iter().map(line).collect(), left_out)
}

/// How points become fewer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Thinning {
    /// The mean of rates is the rate over a longer time.
    Mean,
    /// A queue changes faster than a screen shows: its mean and extremes.
    MeanInBand,
    /// Windows and α keep the points at the extremes.
    Extremes,
}

impl Thinning {
    fn of(kind: SeriesKind) -> Self {
        match kind {
            SeriesKind::GoodputBps => Self::Mean,
            SeriesKind::QueueBytes => Self::MeanInBand,
            _ => Self::Extremes,
        }
    }

    fn of_trace(kind: TraceKind) -> Self {
        match kind {
            TraceKind::Goodput => Self::Mean,
            TraceKind::Queue | TraceKind::AllQueues => Self::MeanInBand,
            _ => Self::Extremes,
        }
    }
}

/// At most `limit` points, their times rounded to `grain_s`.
fn points(all: &[(f64, f64)], limit: usize, thinning: Thinning, grain_s: f64) -> Points {
    let finite = |(_, value): &(f64, f64)| value.is_finite();
    let all: Vec<_> = all.iter().copied().filter(finite).collect();
    let seconds = |time: f64| (time / grain_s).round() / (1.0 / grain_s).round();
    if thinning != Thinning::Extremes && all.len() > limit {
        let stretches = thin::stretches(&all, limit);
        let each =
            |value: fn(&Stretch) -> f64| stretches.iter().map(|s| thin::round(value(s))).collect();
        let with_band = thinning == Thinning::MeanInBand;
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

/// The flow that a series is about, and its place in the table: the name begins with its number.
fn flow_of<'a>(name: &str, flows: &'a [FlowResult]) -> Option<(usize, &'a FlowResult)> {
    let number: u32 = name.split(' ').next()?.parse().ok()?;
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
