//! `[sweep.published]`: figures of cells beside published ones.
//!
//! ```text
//! line        = publication | { figure = publication, cause = text, fitted = text, vacuous = text }
//! publication = [over] sum "~" sum               without figures on the right
//! over        = ("mean" | "most" | "least") "of" "every" ["[" axis "=" value ("|" value)* ("," …)* "]"]
//! ```
//! with sums of the figures of [`expect`](super::expect). With `over` the sum is computed for each
//! combination of the values of the axes that none of its brackets names, as `every` of a statement
//! does, and the mean of these values, or the largest or the least of them, is the figure. Brackets
//! behind `every` leave the cells with one of their values.
//!
//! All is computed for each seed; the mean over the seeds is judged. Verdicts are those of
//! [`published`](crate::published).

use sluicegate_config::{problem::Complaint, table::Item};

use super::{
    Cell, Dimension,
    expect::{Place, Selected, check_axes, fixed, free_places},
    skip::Skip,
};
use crate::{
    expect::{Parser, tokens},
    published::{self, read_line},
    results::PublishedResult,
    stats,
};

/// One line of `[sweep.published]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    line: published::Publication<Selected>,
    over: Option<Over>,
}

/// What becomes of the values of several cells.
#[derive(Clone, Debug, PartialEq)]
struct Over {
    pool: Pool,
    /// Axes with the values of the cells that count; all values of others.
    only: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Mean,
    Most,
    Least,
}

impl Pool {
    const ALL: [(&'static str, Self); 3] = [
        ("mean", Self::Mean),
        ("most", Self::Most),
        ("least", Self::Least),
    ];

    fn of(self, values: &[f64]) -> Option<f64> {
        let each = values.iter().copied();
        match self {
            Self::Mean => stats::mean(values),
            Self::Most => each.reduce(f64::max),
            Self::Least => each.reduce(f64::min),
        }
    }
}

impl Over {
    fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, Complaint> {
        let mut pools = Pool::ALL.into_iter();
        let Some((_, pool)) = pools.find(|(word, _)| parser.take_word(word)) else {
            return Ok(None);
        };
        for word in ["of", "every"] {
            if !parser.take_word(word) {
                return Err(parser.unexpected(&format!("`{word}`")));
            }
        }
        let only = parser
            .take_selector()
            .map_or(Ok(Place::new()), |s| fixed(&s))?;
        let values = |values: String| values.split('|').map(|v| v.trim().to_owned()).collect();
        let only = only.into_iter().map(|(axis, v)| (axis, values(v)));
        Ok(Some(Self {
            pool,
            only: only.collect(),
        }))
    }

    fn counts(&self, place: &Place) -> bool {
        let fits = |(axis, values): &(String, Vec<String>)| {
            let own = place.iter().find(|(name, _)| name == axis);
            own.is_some_and(|(_, value)| values.contains(value))
        };
        self.only.iter().all(fits)
    }
}

impl Publication {
    pub(super) fn read(name: &str, item: &Item<'_>) -> Option<Self> {
        let (read, reasons) = read_line(item, |text| Self::parse(name, text))?;
        Some(Self {
            line: read.line.with(reasons),
            ..read
        })
    }

    /// Parses a text.
    ///
    /// # Errors
    /// A line that the grammar does not allow, and at which character; a right side that is no
    /// number.
    pub fn parse(name: &str, expression: &str) -> Result<Self, Complaint> {
        let tokens = tokens(expression)?;
        let mut parser = Parser::new(&tokens);
        if parser.take_word("every") {
            return Err(Complaint::new(
                "`every` gives many figures, and one was published",
                "write `mean of every`, `most of every` or `least of every`",
            ));
        }
        let over = Over::parse(&mut parser)?;
        let line = published::parse_rest(name, expression, &tokens, parser)?;
        Ok(Self { line, over })
    }

    /// Its key in the file.
    pub(super) fn name(&self) -> &str {
        &self.line.name
    }

    /// Every figure that it names.
    pub(super) fn figures(&self) -> Vec<&Selected> {
        self.line.figures()
    }

    /// That the axes and values that it names are there, and none is named twice.
    pub(super) fn check(&self, dimensions: &[Dimension]) -> Result<(), Complaint> {
        let only = self.over.iter().flat_map(|over| &over.only);
        let pairs = only.flat_map(|(axis, values)| {
            values
                .iter()
                .map(move |value| (axis.clone(), value.clone()))
        });
        let figures = self.figures();
        check_axes(&figures, &pairs.collect::<Vec<_>>(), dimensions)?;
        let places = free_places(&figures, dimensions, &[]);
        match &self.over {
            Some(over) if !places.iter().any(|place| over.counts(place)) => Err(Complaint::new(
                "the brackets behind `every` name an axis that a figure names, too",
                "name it in one of the two places",
            )),
            _ => Ok(()),
        }
    }

    /// Its value with one seed, `of` being a figure of a cell. All combinations have to be there
    /// that the sweep does not leave out, since what was published is about all.
    fn value(
        &self,
        dimensions: &[Dimension],
        skips: &[Skip],
        cells: &[Cell],
        of: &dyn Fn(usize, &str) -> Option<f64>,
    ) -> Option<f64> {
        let value = |place: &Place| {
            let fits = |index: &usize| cells[*index].fits(dimensions, place);
            let own: Vec<usize> = (0..cells.len()).filter(fits).collect();
            let mean = |selected: &Selected| selected.mean(dimensions, cells, &own, of);
            self.line
                .ours
                .value(&mean)
                .filter(|value| value.is_finite())
        };
        let Some(over) = &self.over else {
            return value(&Place::new());
        };
        let places = free_places(&self.figures(), dimensions, skips);
        let values = places.iter().filter(|place| over.counts(place)).map(value);
        over.pool.of(&values.collect::<Option<Vec<f64>>>()?)
    }
}

/// The measured figures beside the published ones; `of` is a figure of a cell with a seed, if that
/// run measured it.
pub(super) fn evaluate(
    all: &[Publication],
    dimensions: &[Dimension],
    skips: &[Skip],
    cells: &[Cell],
    seeds: &[u64],
    of: &dyn Fn(usize, u64, &str) -> Option<f64>,
) -> Vec<PublishedResult> {
    let run = |seed: &u64| {
        let of = |cell, figure: &str| of(cell, *seed, figure);
        let lines = all.iter();
        lines
            .map(|line| line.value(dimensions, skips, cells, &of))
            .collect()
    };
    let runs: Vec<Vec<Option<f64>>> = seeds.iter().map(run).collect();
    let lines: Vec<_> = all.iter().map(|publication| &publication.line).collect();
    published::evaluate_runs(&lines, &runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    fn dimensions() -> Vec<Dimension> {
        let dimension = |name: &str, values: &[&str]| Dimension {
            name: name.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        vec![
            dimension("pfc", &["on", "off"]),
            dimension("cm", &["base", "qcn", "red"]),
            dimension("variant", &["main"]),
        ]
    }

    fn cells() -> Vec<Cell> {
        let cell = |pfc, cm| Cell {
            values: vec![pfc, cm],
            variant: "main".to_owned(),
        };
        (0..2)
            .flat_map(|pfc| (0..3).map(move |cm| cell(pfc, cm)))
            .collect()
    }

    /// With PFC 1, 1, 1, without 2, 4, 6, each times the seed; `max` was not measured without PFC.
    fn beside(lines: &[&str], cells: &[Cell], seeds: &[u64]) -> Vec<PublishedResult> {
        let lines: Vec<Publication> = (lines.iter())
            .map(|line| Publication::parse("p", line).unwrap_or_else(|c| panic!("{line}: {c}")))
            .collect();
        for line in &lines {
            line.check(&dimensions()).unwrap();
        }
        evaluate(
            &lines,
            &dimensions(),
            &[],
            cells,
            seeds,
            &|cell, seed, figure| {
                let value = [1.0, 1.0, 1.0, 2.0, 4.0, 6.0][cell] * seed as f64;
                (figure != "rtt_us.max" || cell < 3).then_some(value)
            },
        )
    }

    fn ours(line: &str) -> Option<f64> {
        beside(&[line], &cells(), &[1])[0].ours
    }

    #[test]
    fn a_figure_is_of_cells_or_the_mean_or_an_extreme_over_them() {
        let ratio = "rtt_us.p50[pfc=on] / rtt_us.p50[pfc=off] ~ 1";
        let shares = [1.0 / 2.0, 1.0 / 4.0, 1.0 / 6.0];
        assert_eq!(ours(ratio), Some(0.25));
        let mean = shares.iter().sum::<f64>() / 3.0;
        assert_eq!(ours(&format!("mean of every {ratio}")), Some(mean));
        assert_eq!(ours(&format!("most of every {ratio}")), Some(0.5));
        assert_eq!(ours(&format!("least of every {ratio}")), Some(shares[2]));
        let some = "mean of every[cm=base|red, variant=main]";
        assert_eq!(
            ours(&format!("{some} {ratio}")),
            Some((shares[0] + shares[2]) / 2.0)
        );
        assert_eq!(ours("rtt_us.p50[pfc=off,cm=red] ~ 1"), Some(6.0));
    }

    #[test]
    fn seeds_are_pooled_one_by_one_and_have_an_interval() {
        let line = ["most of every rtt_us.p50[pfc=off] ~ 11"];
        let result = &beside(&line, &cells(), &[1, 2, 3])[0];
        assert_eq!(result.ours, Some(12.0));
        let [low, high] = result.interval.unwrap();
        // 4.303 × 6 / √3 (two degrees of freedom).
        assert!((high - low - 2.0 * 14.905).abs() < 0.01, "{low} {high}");
        let by_seed = [Verdict::Differs, Verdict::Agrees, Verdict::Differs];
        assert_eq!(result.by_seed, by_seed.map(Some));
    }

    #[test]
    fn what_is_missing_in_a_cell_is_not_measured() {
        let line = "mean of every rtt_us.p50[pfc=on] / rtt_us.p50[pfc=off] ~ 1";
        assert_eq!(beside(&[line], &cells()[..5], &[1])[0].ours, None);
        assert_eq!(ours("mean of every rtt_us.max ~ 1"), None);
        assert_eq!(ours("mean of every rtt_us.max[pfc=on] ~ 1"), Some(1.0));
    }

    #[test]
    fn cells_of_one_kind_have_an_order() {
        let lines = [
            "rtt_us.p50[pfc=off,cm=base] ~ 3",
            "rtt_us.p50[pfc=off,cm=qcn] ~ 7",
            "mean of every 1 - rtt_us.p50[pfc=on] / rtt_us.p50[pfc=off] ~ 0.4",
        ];
        let results = beside(&lines, &cells(), &[1]);
        let verdicts: Vec<_> = results.iter().map(|r| r.verdict.unwrap()).collect();
        assert_eq!(verdicts, [Verdict::OrderingOnly; 3]);
    }

    #[test]
    fn what_means_nothing_is_told() {
        for (line, why) in [
            ("every rtt_us.p50 ~ 1", "`every` gives many figures"),
            ("mean rtt_us.p50 ~ 1", "instead of `of`"),
            ("most of rtt_us.p50 ~ 1", "instead of `every`"),
            ("mean of every[cm] rtt_us.p50 ~ 1", "is no axis=value"),
            ("main.rtt_us.p50 ~ 1", "is no figure here"),
            ("rtt_us.p50 ~ rtt_us.p99", "right side is no number"),
            ("rtt_us.p50 < 1", "instead of ~"),
        ] {
            let complaint = Publication::parse("p", line).unwrap_err();
            assert!(complaint.reason.contains(why), "{line}: {complaint}");
        }
        for (line, why) in [
            ("rtt_us.p50[cn=base] ~ 1", "there is no axis \"cn\""),
            (
                "mean of every[cm=base|rad] rtt_us.p50 ~ 1",
                "no value \"rad\"",
            ),
            (
                "mean of every[cm=red] rtt_us.p50[cm=red] ~ 1",
                "behind `every`",
            ),
        ] {
            let line = Publication::parse("p", line).unwrap();
            let complaint = line.check(&dimensions()).unwrap_err();
            assert!(complaint.reason.contains(why), "{complaint}");
        }
    }
}
