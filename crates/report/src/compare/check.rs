//! Differences outside the tolerances.

use super::{Comparison, Contest, Pair, Scenario, Tolerance, Tolerances, Variant};
use crate::{figures, units};

/// A sentence for everything that makes another side tell another story than the reference.
pub(super) fn outside(comparison: &Comparison) -> Vec<String> {
    let letters: Vec<char> = comparison.sides.iter().map(|side| side.letter).collect();
    let judge = Judge {
        letters: &letters,
        tolerances: &comparison.tolerances,
    };
    let mut lines = Vec::new();
    for side in 1..letters.len() {
        lines.extend(judge.nothing_shared(&comparison.scenarios, side));
    }
    for scenario in &comparison.scenarios {
        let mut faults = judge.cpu_bound(scenario);
        for side in 1..letters.len() {
            faults.extend(judge.variants(scenario, side));
            faults.extend(judge.contests(scenario, side));
        }
        lines.extend(
            faults
                .iter()
                .map(|fault| format!("{}: {fault}", scenario.name)),
        );
    }
    lines
}

/// The facts that judge a scenario.
struct Judge<'a> {
    letters: &'a [char],
    tolerances: &'a Tolerances,
}

impl Judge<'_> {
    /// A comparison of nothing must not pass for one that held.
    fn nothing_shared(&self, scenarios: &[Scenario], side: usize) -> Option<String> {
        let mut variants = scenarios.iter().flat_map(|s| &s.variants);
        let shared = variants.any(|variant| variant.found[side]);
        let [reference, other] = [self.letters[0], self.letters[side]];
        (!shared)
            .then(|| format!("{other} has no variant of a scenario in common with {reference}"))
    }

    /// Sides whose figures say nothing about the network.
    fn cpu_bound(&self, scenario: &Scenario) -> Vec<String> {
        let sides = self.letters.iter().zip(&scenario.origins);
        let bound = sides.filter(|(_, o)| {
            o.as_ref()
                .is_some_and(|o| o.conditions.cpu_bound && !o.conditions.accepts_cpu_bound)
        });
        bound
            .map(|(letter, _)| format!("the CPU was the bottleneck in {letter}"))
            .collect()
    }

    /// Figures of variants that are too far from the reference's.
    fn variants(&self, scenario: &Scenario, side: usize) -> Vec<String> {
        let checked = [
            ("goodput_bps.sum", "goodput", self.tolerances.goodput),
            ("rtt_us.p50", "RTT p50", self.tolerances.rtt_p50),
            ("rtt_us.p99", "RTT p99", self.tolerances.rtt_p99),
        ];
        let variants = scenario.variants.iter().filter(|v| v.found[side]);
        let faults = variants.flat_map(|variant| {
            checked.map(|(id, what, tolerance)| {
                let fault = self.figure(variant, id, tolerance, side)?;
                Some(format!("{}: {what} {fault}", variant.name))
            })
        });
        faults.flatten().collect()
    }

    fn figure(
        &self,
        variant: &Variant,
        id: &str,
        tolerance: Tolerance,
        side: usize,
    ) -> Option<String> {
        let [reference, other] = [self.letters[0], self.letters[side]];
        match (variant.value(id, 0), variant.value(id, side)) {
            (None, None) => None,
            (Some(_), None) => Some(format!("was not measured in {other}")),
            (None, Some(_)) => Some(format!("was not measured in {reference}")),
            (Some(a), Some(b)) if tolerance.allows(a, b) => None,
            (Some(a), Some(b)) => Some(format!(
                "{} in {reference}, {} in {other}: further apart than {tolerance}",
                with_unit(id, a),
                with_unit(id, b)
            )),
        }
    }

    /// Pairs of variants that compare otherwise than in the reference.
    fn contests(&self, scenario: &Scenario, side: usize) -> Vec<String> {
        let faults = scenario.contests.iter().flat_map(|contest| {
            let faults = contest
                .pairs
                .iter()
                .filter_map(move |pair| self.pair(contest, pair, side));
            faults.map(|fault| format!("{} of {fault}", contest.what))
        });
        faults.collect()
    }

    fn pair(&self, contest: &Contest, pair: &Pair, side: usize) -> Option<String> {
        let (a, b) = (pair.ratios[0]?, pair.ratios[side]?);
        let tolerance = self.tolerances.of_ratio(&contest.figure);
        let why = match (pair.reversed[side], tolerance.allows(a, b)) {
            (true, _) => "the other one is better".to_owned(),
            (false, true) => return None,
            (false, false) => format!("further apart than {tolerance}"),
        };
        Some(format!(
            "{} over {}: {} in {}, {} in {}: {why}",
            pair.variant,
            pair.to,
            units::ratio(a),
            self.letters[0],
            units::ratio(b),
            self.letters[side]
        ))
    }
}

/// A value of a figure of variants, with the unit that suits it.
fn with_unit(id: &str, value: f64) -> String {
    match figures::VARIANT.iter().find(|figure| figure.id == id) {
        Some(figure) => {
            let scale = figure.dimension.scale([value]);
            format!("{} {}", scale.write(value), scale.symbol())
        }
        None => units::plain(value),
    }
}
