//! Which variant is best, and whether all sides say the same.

use serde::Serialize;

use super::{
    Tolerance, Variant,
    model::{completion_id, ratio},
};

/// The variants of a scenario against each other in one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Contest {
    /// Name of the figure.
    pub figure: String,
    /// The same for people.
    pub what: String,
    /// Whether more is better.
    pub larger_is_better: bool,
    /// Per side the variants from the best to the worst; those that tied are together.
    pub orders: Vec<Vec<Vec<String>>>,
    /// Per side whether it turns round no pair of variants that are clearly apart in the reference;
    /// `null` when there is no pair.
    pub agrees: Vec<Option<bool>>,
    /// Ratios of every two variants.
    pub pairs: Vec<Pair>,
}

/// The ratio of two variants on all sides.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The variant above the line.
    pub variant: String,
    /// The variant below it.
    pub to: String,
    /// Their ratio on each side.
    pub ratios: Vec<Option<f64>>,
    /// Whether each side says the opposite of the reference: which one is better, and by more than
    /// a tie.
    pub reversed: Vec<bool>,
}

/// A figure in which variants compete.
struct Discipline {
    id: String,
    what: String,
    larger_is_better: bool,
}

/// The figures by which the variants are ordered, as far as at least two of them measured one.
pub(super) fn contests(variants: &[Variant], classes: &[String], tie: Tolerance) -> Vec<Contest> {
    let all = disciplines(classes).into_iter();
    let contests = all.map(|discipline| contest(variants, discipline, tie));
    contests
        .filter(|contest| contest.orders.iter().any(|order| order.concat().len() > 1))
        .collect()
}

fn disciplines(classes: &[String]) -> Vec<Discipline> {
    let discipline = |id: &str, what: &str, larger_is_better| Discipline {
        id: id.into(),
        what: what.into(),
        larger_is_better,
    };
    let mut all = vec![
        discipline("goodput_bps.sum", "goodput", true),
        discipline("goodput_bps.jain", "Jain", true),
        discipline("rtt_us.p50", "RTT p50", false),
        discipline("rtt_us.p99", "RTT p99", false),
    ];
    for class in classes {
        for field in ["p50", "p99"] {
            let what = format!("FCT {class} {field}");
            all.push(discipline(&completion_id(class, field), &what, false));
        }
    }
    all
}

fn contest(variants: &[Variant], discipline: Discipline, tie: Tolerance) -> Contest {
    let sides = variants.first().map_or(0, |v| v.found.len());
    let pairs = pairs(variants, &discipline, sides, tie);
    let agrees = |side: usize| {
        let mut known = pairs
            .iter()
            .filter(|pair| pair.ratios[0].is_some() && pair.ratios[side].is_some())
            .peekable();
        known.peek()?;
        Some(known.all(|pair| !pair.reversed[side]))
    };
    Contest {
        orders: (0..sides)
            .map(|side| order(variants, &discipline, side, tie))
            .collect(),
        agrees: (0..sides).map(agrees).collect(),
        figure: discipline.id,
        what: discipline.what,
        larger_is_better: discipline.larger_is_better,
        pairs,
    }
}

/// Every variant over every one before it.
fn pairs(variants: &[Variant], discipline: &Discipline, sides: usize, tie: Tolerance) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, to) in variants.iter().enumerate() {
        for variant in &variants[index + 1..] {
            let values = |side| {
                Some((
                    variant.value(&discipline.id, side)?,
                    to.value(&discipline.id, side)?,
                ))
            };
            // Which is larger; nothing when they tied or one was not measured.
            let larger = |side| {
                let (a, b): (f64, f64) = values(side)?;
                (!tie.allows(a, b)).then_some(a > b)
            };
            let opposite = |side| matches!((larger(0), larger(side)), (Some(a), Some(b)) if a != b);
            let of = |side| values(side).and_then(|(a, b)| ratio(Some(a), Some(b)));
            pairs.push(Pair {
                variant: variant.name.clone(),
                to: to.name.clone(),
                ratios: (0..sides).map(of).collect(),
                reversed: (0..sides).map(opposite).collect(),
            });
        }
    }
    pairs
}

/// The variants that a side measured, the best first, in groups that lie no further than a tie from
/// their best.
fn order(
    variants: &[Variant],
    discipline: &Discipline,
    side: usize,
    tie: Tolerance,
) -> Vec<Vec<String>> {
    let mut measured: Vec<(f64, &str)> = variants
        .iter()
        .filter_map(|v| Some((v.value(&discipline.id, side)?, v.name.as_str())))
        .collect();
    measured.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    if discipline.larger_is_better {
        measured.reverse();
    }
    let mut groups: Vec<(f64, Vec<String>)> = Vec::new();
    for (value, name) in measured {
        match groups.last_mut() {
            Some((best, names)) if tie.allows(*best, value) => names.push(name.into()),
            _ => groups.push((value, vec![name.into()])),
        }
    }
    groups
        .into_iter()
        .map(|(_, mut names)| {
            // Within a tie the order of the file, so that noise does not look like a difference.
            names.sort_by_key(|name| variants.iter().position(|v| v.name == *name));
            names
        })
        .collect()
}
