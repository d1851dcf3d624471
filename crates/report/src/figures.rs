//! The figures of a variant as tables show them: what, in which dimension, and where the value
//! comes from.

use sluicegate_scenario::{
    figures as scenario,
    results::{
        Datagrams, FctQuantiles, FlowResult, LinkResult, QueueQuantiles, VariantResult, VnicResult,
    },
};

use crate::units::{self, Unit};

/// With fewer RTT samples a p99.9 is a matter of a few packets and not shown.
const P999_SAMPLES: u64 = 10_000;

/// The dimension of a figure; figures of one dimension share a unit in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Bit per second.
    Rate,
    /// A fraction of which the third decimal matters.
    Index,
    /// Microseconds.
    Time,
    /// Bytes.
    Size,
    /// Packets.
    Packets,
    /// Things without a unit.
    Count,
}

/// How the values of one dimension are written in one table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// In a unit.
    Unit(Unit),
    /// With three decimals.
    Index,
    /// As whole numbers of what the symbol says.
    Whole(&'static str),
}

impl Dimension {
    /// The scale for these values.
    pub fn scale(self, values: impl IntoIterator<Item = f64>) -> Scale {
        match self {
            Self::Rate => Scale::Unit(units::rate(values)),
            Self::Time => Scale::Unit(units::time(values)),
            Self::Size => Scale::Unit(units::size(values)),
            Self::Index => Scale::Index,
            Self::Packets => Scale::Whole("pkts"),
            Self::Count => Scale::Whole(""),
        }
    }
}

impl Scale {
    /// The unit as a heading names it; may be empty.
    pub fn symbol(&self) -> &'static str {
        match self {
            Self::Unit(unit) => unit.symbol,
            Self::Index => "",
            Self::Whole(symbol) => symbol,
        }
    }

    /// The value without its unit.
    pub fn write(&self, value: f64) -> String {
        match self {
            Self::Unit(unit) => unit.write(value),
            Self::Index => format!("{value:.3}"),
            Self::Whole(_) => format!("{value:.0}"),
        }
    }
}

/// A figure of a `T`.
#[derive(Clone, Copy, Debug)]
pub struct Figure<T> {
    /// Name for programs; where `results.json` has the figure, the same.
    pub id: &'static str,
    /// Heading of its column; within a group only the first says of what.
    pub what: &'static str,
    /// Its dimension.
    pub dimension: Dimension,
    /// The value, where it was measured.
    pub value: fn(&T) -> Option<f64>,
}

const fn figure<T>(
    id: &'static str,
    what: &'static str,
    dimension: Dimension,
    value: fn(&T) -> Option<f64>,
) -> Figure<T> {
    Figure {
        id,
        what,
        dimension,
        value,
    }
}

/// The figures of a variant in a table, in its order.
pub const VARIANT: [Figure<VariantResult>; 12] = [
    figure("goodput_bps.sum", "goodput", Dimension::Rate, |v| {
        has_tcp(v).then_some(v.goodput_bps.sum)
    }),
    figure("goodput_bps.jain", "Jain", Dimension::Index, |v| {
        v.goodput_bps.jain.filter(|_| has_tcp(v))
    }),
    figure("datagrams.goodput_bps", "UDP", Dimension::Rate, |v| {
        let rates = datagrams(v).map(|flow| flow.goodput_bps);
        rates.reduce(|sum, rate| sum + rate)
    }),
    figure("datagrams.loss", "lost", Dimension::Index, |v| {
        scenario::loss(datagrams(v))
    }),
    figure("rtt_us.p50", "RTT p50", Dimension::Time, |v| v.rtt_us.p50),
    figure("rtt_us.p99", "p99", Dimension::Time, |v| v.rtt_us.p99),
    figure("rtt_us.p999", "p99.9", Dimension::Time, |v| {
        v.rtt_us.p999.filter(|_| v.rtt_us.count >= P999_SAMPLES)
    }),
    figure("drops", "drops", Dimension::Packets, |v| {
        at_bottlenecks(v, drops)
    }),
    figure("marks", "marks", Dimension::Packets, |v| {
        at_bottlenecks(v, |link| link.marks)
    }),
    figure("queue_bytes.p50", "queue p50", Dimension::Size, |v| {
        queue(v)?.p50
    }),
    figure("queue_bytes.p99", "p99", Dimension::Size, |v| queue(v)?.p99),
    figure("retransmits", "retr.", Dimension::Count, |v| {
        scenario::retransmits(&v.flows)
    }),
];

fn has_tcp(variant: &VariantResult) -> bool {
    variant.flows.iter().any(|flow| flow.protocol.is_tcp())
}

fn datagrams(variant: &VariantResult) -> impl Iterator<Item = &FlowResult> + Clone {
    variant.flows.iter().filter(|flow| !flow.protocol.is_tcp())
}

/// The figures of completion times of a class in a table; the last only where there are
/// deadlines.
pub const COMPLETION: [Figure<FctQuantiles>; 7] = [
    figure("count", "flows", Dimension::Count, |f| Some(f.count as f64)),
    figure("unfinished", "unfinished", Dimension::Count, |f| {
        Some(f.unfinished as f64)
    }),
    figure("mean", "mean", Dimension::Time, |f| f.mean),
    figure("p50", "p50", Dimension::Time, |f| f.p50),
    figure("p99", "p99", Dimension::Time, |f| f.p99),
    figure("p999", "p99.9", Dimension::Time, |f| f.p999),
    figure("missed", "missed", Dimension::Index, |f| f.missed),
];

/// A point that frames pass on their way from one application to another.
pub struct Point {
    /// Its number in the zOVN thesis's figure 4.1, and its name.
    pub what: &'static str,
    /// What passes.
    pub unit: &'static str,
    /// How many have passed it, of a variant.
    pub value: fn(&VariantResult) -> Option<f64>,
}

/// The points in their order.
pub const POINTS: [Point; 6] = [
    point("1 application", "dgrams sent", |v| {
        at_applications(v, |it| it.sent)
    }),
    point("2 vNIC", "sent", |v| at_vnics(v, |it| it.sent)),
    point("3 switch", "in", |v| at_vnics(v, |it| it.into_switch)),
    point("4 switch", "out", |v| at_vnics(v, |it| it.out_of_switch)),
    point("5 vNIC", "received", |v| at_vnics(v, |it| it.received)),
    point("6 application", "dgrams rcvd", |v| {
        at_applications(v, |it| it.received)
    }),
];

const fn point(
    what: &'static str,
    unit: &'static str,
    value: fn(&VariantResult) -> Option<f64>,
) -> Point {
    Point { what, unit, value }
}

fn at_vnics(variant: &VariantResult, of: fn(&VnicResult) -> u64) -> Option<f64> {
    let all = variant.vnics.iter().map(of);
    all.reduce(|sum, one| sum + one).map(|sum| sum as f64)
}

fn at_applications(variant: &VariantResult, of: fn(&Datagrams) -> u64) -> Option<f64> {
    let counted = variant.flows.iter().filter_map(|it| it.datagrams.as_ref());
    let all = counted.map(of);
    all.reduce(|sum, one| sum + one).map(|sum| sum as f64)
}

/// Counts that are not zero, each behind its cause.
pub fn causes<'a>(drops: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let there = drops.into_iter().filter(|(_, count)| *count > 0);
    let written: Vec<_> = there
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    written.join(", ")
}

/// Packets dropped at a link, whatever the cause.
pub fn drops(link: &LinkResult) -> u64 {
    link.drops.values().sum()
}

fn bottlenecks(variant: &VariantResult) -> impl Iterator<Item = &LinkResult> {
    variant.links.iter().filter(|link| link.bottleneck)
}

fn at_bottlenecks(variant: &VariantResult, count: fn(&LinkResult) -> u64) -> Option<f64> {
    bottlenecks(variant).next()?;
    Some(bottlenecks(variant).map(count).sum::<u64>() as f64)
}

/// Of several bottlenecks the queue with the largest p99.
fn queue(variant: &VariantResult) -> Option<&QueueQuantiles> {
    let p99 = |link: &LinkResult| link.queue_bytes.p99.unwrap_or(-1.0);
    let longer = |a: &&LinkResult, b: &&LinkResult| p99(a).total_cmp(&p99(b));
    bottlenecks(variant)
        .max_by(longer)
        .map(|link| &link.queue_bytes)
}
