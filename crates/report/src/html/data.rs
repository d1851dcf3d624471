//! The data of the page's script: thinned curves and series as JSON.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use sluicegate_scenario::results::{FlowResult, Results, SeriesKind, TraceKind, VariantResult};

use super::topology::Films;
use crate::{
    samples,
    thin::{self, Stretch},
};

/// Points of one CDF at most.
const CDF_POINTS: usize = 500;
/// Stretches of a series that is drawn as a mean with a band.
const BAND_POINTS: usize = 250;

/// Series, or traces, of a kind and variant that a page draws at most; of more, a reader could tell
/// none from another.
pub const SERIES_DRAWN: usize = 64;

/// Points that the series of a kind may have, so that a page of many flows stays small.
struct Budget {
    /// Together, about.
    all: usize,
    /// One of them at least and at most; the most fills the width of its plot.
    each: std::ops::RangeInclusive<usize>,
}

impl Budget {
    fn of(thinning: Thinning) -> Budget {
        match thinning {
            Thinning::Mean => Budget {
                all: 30_000,
                each: 60..=140,
            },
            Thinning::MeanInBand => Budget {
                all: 10_000,
                each: 50..=BAND_POINTS,
            },
            Thinning::Extremes => Budget {
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
    /// The [`SERIES_DRAWN`] busiest of each kind and variant.
    pub series: Vec<Line>,
    /// There are more.
    #[serde(skip)]
    pub series_left_out: bool,
    /// Of the first repeat, as many likewise.
    pub traces: Vec<Line>,
    /// There are more.
    #[serde(skip)]
    pub traces_left_out: bool,
    /// The network over time.
    #[serde(flatten)]
    pub films: Films,
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
    /// Its side, when there are sides.
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
    /// Flows that have no completion time, of all variants.
    #[serde(skip)]
    pub unfinished: u64,
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
    /// The flow's place in the variant's table, the link's among those of a kind; chooses the
    /// colour.
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
        let (series, series_left_out) = drawn(variants, series);
        let (traces, traces_left_out) = drawn(variants, traces);
        let trace_points = Budget::TRACES.share(traces.len());
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
            series: series
                .iter()
                .map(|drawn| drawn.line(drawn.share_among(&series), 1e-4))
                .collect(),
            series_left_out,
            traces: traces
                .iter()
                .map(|drawn| drawn.line(trace_points, 1e-7))
                .collect(),
            traces_left_out,
            films: Films::new(variants),
        }
    }

    /// The CDFs of all sides over each other, without series: `sides` has the letter of each and
    /// its variants, the same ones in the same order; one that a side lacks has no samples.
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
            series_left_out: false,
            traces: Vec::new(),
            traces_left_out: false,
            films: Films::default(),
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.rtt.is_empty()
            && self.fct.is_empty()
            && self.series.is_empty()
            && self.traces.is_empty()
            && self.films.is_empty()
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
        unfinished: sides
            .iter()
            .copied()
            .flatten()
            .filter_map(|v| Some(v.fct_us.get(name)?.unfinished))
            .sum(),
    };
    names
        .into_iter()
        .map(class)
        .filter(|class| !class.curves.is_empty())
        .collect()
}

/// A series or a trace as it was measured.
#[derive(Clone, Copy)]
struct Source<'a> {
    kind: &'static str,
    thinning: Thinning,
    name: &'a str,
    points: &'a [(f64, f64)],
}

fn series(result: &VariantResult) -> Vec<Source<'_>> {
    let all = result.samples.series.iter();
    let source = all.map(|series| Source {
        kind: samples::quantity(series.kind),
        thinning: Thinning::of(series.kind),
        name: &series.name,
        points: &series.points,
    });
    source.collect()
}

fn traces(result: &VariantResult) -> Vec<Source<'_>> {
    let first = result.samples.traces.iter().filter(|t| t.repeat == 1);
    let source = first.map(|trace| Source {
        kind: trace.kind.quantity(),
        thinning: Thinning::of_trace(trace.kind),
        name: &trace.name,
        points: &trace.points,
    });
    source.collect()
}

/// A source that is drawn.
struct Drawn<'a> {
    variant: usize,
    source: Source<'a>,
    /// Its flow, if it is about one.
    flow: Option<&'a FlowResult>,
    order: usize,
}

/// The drawn part of the series that `sources` finds in each variant, and whether there is more.
fn drawn<'r>(
    variants: &'r [VariantResult],
    sources: impl Fn(&'r VariantResult) -> Vec<Source<'r>>,
) -> (Vec<Drawn<'r>>, bool) {
    let (mut all, mut left_out) = (Vec::new(), false);
    for (variant, result) in variants.iter().enumerate() {
        let numbered = result.flows.iter().enumerate();
        let flows: HashMap<u32, _> = numbered.map(|(at, flow)| (flow.id, (at, flow))).collect();
        let mut by_kind: BTreeMap<&str, Vec<Drawn<'r>>> = BTreeMap::new();
        for source in sources(result) {
            let of_kind = by_kind.entry(source.kind).or_default();
            let is_link = source.thinning == Thinning::MeanInBand;
            let flow = flow_number(source.name).filter(|_| !is_link);
            let flow = flow.and_then(|number| flows.get(&number));
            let order = match (is_link, flow) {
                (true, _) => of_kind.len(),
                (_, Some((position, _))) => *position,
                _ => result.flows.len() + of_kind.len(),
            };
            of_kind.push(Drawn {
                variant,
                source,
                flow: flow.map(|(_, flow)| *flow),
                order,
            });
        }
        for of_kind in by_kind.into_values() {
            left_out |= of_kind.len() > SERIES_DRAWN;
            all.extend(busiest(of_kind, SERIES_DRAWN, Drawn::rank));
        }
    }
    (all, left_out)
}

/// At most `limit` of `all`, those with the largest ranks, in the order that they had; of equals
/// the first.
pub fn busiest<T>(all: Vec<T>, limit: usize, rank: impl Fn(&T) -> f64) -> Vec<T> {
    if all.len() <= limit {
        return all;
    }
    let mut ranked: Vec<(f64, usize, T)> = Vec::with_capacity(all.len());
    ranked.extend(
        all.into_iter()
            .enumerate()
            .map(|(at, one)| (rank(&one), at, one)),
    );
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranked.truncate(limit);
    ranked.sort_by_key(|(_, at, _)| *at);
    ranked.into_iter().map(|(.., one)| one).collect()
}

impl Drawn<'_> {
    /// How busy it is: a flow's goodput, so that all about a flow is drawn or nothing; else the
    /// mean of its values.
    fn rank(&self) -> f64 {
        let points = self.source.points;
        let mean = || points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64;
        self.flow.map_or_else(mean, |flow| flow.goodput_bps)
    }

    /// Points that it may have where these are drawn.
    fn share_among(&self, all: &[Self]) -> usize {
        let same = all
            .iter()
            .filter(|other| other.source.kind == self.source.kind);
        Budget::of(self.source.thinning).share(same.count())
    }

    fn line(&self, limit: usize, grain_s: f64) -> Line {
        let Source {
            kind,
            thinning,
            name,
            points: all,
        } = self.source;
        Line {
            variant: self.variant,
            kind,
            name: name.to_owned(),
            label: match self.flow {
                Some(flow) => format!("{name} ({})", flow.tenant_cc),
                None => name.to_owned(),
            },
            order: self.order,
            points: points(all, limit, thinning, grain_s),
        }
    }
}

/// How points become fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The number of the flow that a series is about: its name begins with it.
fn flow_number(name: &str) -> Option<u32> {
    name.split(' ').next()?.parse().ok()
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
    fn the_busiest_keep_their_order() {
        let kept = super::busiest(vec![3, 9, 1, 9, 7], 3, |value| f64::from(*value));
        assert_eq!(kept, [9, 9, 7]);
        assert_eq!(super::busiest(vec![1, 1, 1], 2, |_| 1.0), [1, 1]);
        assert_eq!(
            super::busiest(vec![2, 1], 2, |value| f64::from(*value)),
            [2, 1]
        );
    }

    #[test]
    fn json_cannot_leave_its_script_element() {
        let hostile = "</script><!--<script>\u{2028}&amp;\"\\";
        let text = super::json_in_script(&hostile);
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }
}
