//! Statements over several runs: about means, by their intervals, or about the share of runs in
//! which something holds.
//!
//! ```text
//! over  = "significantly"
//!       | "in" ("all" | "at" "least" share "of" | "at" "most" share "of" | share "to" share "of") "runs"
//! share = sum                                    without figures, from 0 to 1
//! ```

use std::convert::Infallible;

use sluicegate_config::problem::Complaint;

use crate::{
    expect::{Comparison, Expr, Leaf, Parser},
    sweep::Summary,
};

/// Of how many runs something is said, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Over {
    /// Of what the runs give together.
    Together,
    /// Of the means over runs: their 95 % intervals do not touch.
    Means,
    /// The share of runs in which it holds lies within these bounds.
    Share { least: f64, most: f64 },
}

/// One side of a comparison over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Side {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Leaf for Infallible {
    fn parse(name: &str, _: Option<&str>) -> Result<Self, Complaint> {
        Err(Complaint::new(
            format!("`{name}` cannot be a share of runs"),
            "write a number from 0 to 1, for example `in 0.25 to 0.65 of runs`",
        ))
    }

    fn kind(name: &str) -> String {
        name.to_owned()
    }
}

impl Over {
    /// Parses the words before a comparison; none mean that it is of all runs together.
    pub fn parse(parser: &mut Parser<'_>) -> Result<Self, Complaint> {
        if parser.take_word("significantly") {
            return Ok(Self::Means);
        }
        if !parser.take_word("in") {
            return Ok(Self::Together);
        }
        let (least, most) = if parser.take_word("all") {
            (1.0, 1.0)
        } else {
            let bounds = bounds(parser)?;
            expect_word(parser, "of")?;
            bounds
        };
        expect_word(parser, "runs")?;
        match least <= most {
            true => Ok(Self::Share { least, most }),
            false => Err(Complaint::new(
                format!("no share of runs lies between {least} and {most}"),
                "write the lesser bound first",
            )),
        }
    }

    /// Whether a comparison holds for means by their intervals, one of these sides being left.
    pub fn compare(comparison: Comparison, left: Side, right: Side) -> bool {
        match comparison {
            Comparison::LessOrEqual | Comparison::Less => comparison.holds(left.high, right.low),
            Comparison::GreaterOrEqual | Comparison::Greater => {
                comparison.holds(left.low, right.high)
            }
            Comparison::Equal => left == right && left.low == left.high,
        }
    }
}

fn bounds(parser: &mut Parser<'_>) -> Result<(f64, f64), Complaint> {
    if !parser.take_word("at") {
        let least = share(parser)?;
        expect_word(parser, "to")?;
        return Ok((least, share(parser)?));
    }
    if parser.take_word("least") {
        return Ok((share(parser)?, 1.0));
    }
    expect_word(parser, "most")?;
    Ok((0.0, share(parser)?))
}

fn share(parser: &mut Parser<'_>) -> Result<f64, Complaint> {
    let written: Expr<Infallible> = parser.sum()?;
    let value = written.value(&|never| match *never {});
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| {
        Complaint::new(
            "a share of runs is a number from 0 to 1",
            "write for example `in 0.25 to 0.65 of runs`, or `in at least 4 / 5 of runs`",
        )
    })
}

fn expect_word(parser: &mut Parser<'_>, word: &str) -> Result<(), Complaint> {
    match parser.take_word(word) {
        true => Ok(()),
        false => Err(parser.unexpected(&format!("`{word}`"))),
    }
}

impl Side {
    /// The mean of what each run gives, with its interval; `None` unless all runs give something,
    /// and they are two at least.
    pub fn of(runs: &[Option<f64>]) -> Option<Self> {
        let values: Option<Vec<f64>> = runs.iter().copied().collect();
        let values = values?;
        let first = *values.first()?;
        if values.iter().all(|value| *value == first) {
            // The sum of equal numbers over their count need not be that number.
            let all = Self {
                mean: first,
                low: first,
                high: first,
            };
            return (values.len() > 1).then_some(all);
        }
        let summary = Summary::of(&values)?;
        Some(Self {
            mean: summary.mean,
            low: summary.ci_low?,
            high: summary.ci_high?,
        })
    }

    /// Its bounds.
    pub fn bounds(&self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// The share of runs in which something held, and whether it lies within the bounds. There is no
/// share if a run has not measured it: a line that holds in few runs would be as good as shown by
/// runs without figures.
pub(crate) fn judge_share(held: &[Option<bool>], least: f64, most: f64) -> (Option<f64>, bool) {
    let known: Option<Vec<bool>> = held.iter().copied().collect();
    let known = known.filter(|known| !known.is_empty());
    let share = known.map(|known| {
        let count = known.iter().filter(|held| **held).count();
        count as f64 / known.len() as f64
    });
    let within = share.is_some_and(|share| least <= share && share <= most);
    (share, within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::tokens;

    fn parse(text: &str) -> Result<Over, Complaint> {
        Over::parse(&mut Parser::new(&tokens(text)?))
    }

    #[test]
    fn a_share_has_one_bound_or_two() {
        let share = |least, most| Over::Share { least, most };
        for (text, expected) in [
            ("significantly 1 < 2", Over::Means),
            ("1 < 2", Over::Together),
            ("in all runs 1 < 2", share(1.0, 1.0)),
            ("in at least 4 / 5 of runs 1 < 2", share(0.8, 1.0)),
            ("in at most 0.25 of runs 1 < 2", share(0.0, 0.25)),
            ("in 0.25 to 0.65 of runs 1 < 2", share(0.25, 0.65)),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for (text, why) in [
            ("in 0.5 of runs", "instead of `to`"),
            ("in some runs", "`some` cannot be a share"),
            ("in at 0.5 of runs", "instead of `most`"),
            ("in at least 50 of runs", "from 0 to 1"),
            ("in at least 1 / 0 of runs", "from 0 to 1"),
            ("in all of runs", "instead of `runs`"),
            ("in 0.6 to 0.4 of runs", "no share of runs lies between"),
        ] {
            let complaint = parse(text).unwrap_err();
            assert!(complaint.reason.contains(why), "{text}: {complaint}");
        }
    }

    #[test]
    fn a_side_is_a_mean_between_bounds_if_all_runs_have_measured_it() {
        // 4.303 × 1 / √3 (two degrees of freedom).
        let side = Side::of(&[Some(1.0), Some(2.0), Some(3.0)]).unwrap();
        assert!((side.high - (2.0 + 4.303 / 3.0f64.sqrt())).abs() < 1e-3);
        assert_eq!(Side::of(&[Some(1.0), None, Some(3.0)]), None);
        assert_eq!(Side::of(&[Some(1.0)]), None);
        assert_eq!(Side::of(&[]), None);
        assert_eq!(Side::of(&[Some(0.1); 3]).unwrap().bounds(), [0.1, 0.1]);
    }

    #[test]
    fn runs_that_measured_nothing_are_no_share() {
        let of = |held: &[Option<bool>]| judge_share(held, 0.0, 0.5);
        assert_eq!(of(&[Some(true), Some(false)]), (Some(0.5), true));
        assert_eq!(of(&[Some(false), None]), (None, false));
        assert_eq!(of(&[]), (None, false));
    }

    #[test]
    fn sides_that_touch_do_not_differ() {
        let side = |low, high| Side {
            mean: (low + high) / 2.0,
            low,
            high,
        };
        let less = |left, right| Over::compare(Comparison::Less, left, right);
        assert!(less(side(1.0, 2.0), side(2.5, 3.0)));
        assert!(!less(side(1.0, 2.0), side(2.0, 3.0)));
        assert!(!less(side(1.0, 2.6), side(2.5, 9.0)));
        assert!(Over::compare(
            Comparison::LessOrEqual,
            side(1.0, 2.0),
            side(2.0, 3.0)
        ));
        assert!(Over::compare(
            Comparison::Greater,
            side(2.5, 3.0),
            side(1.0, 2.0)
        ));
        assert!(!Over::compare(
            Comparison::GreaterOrEqual,
            side(2.5, 3.0),
            side(1.0, 2.6)
        ));
    }
}
