//! `[sweep.expect]`: comparisons of arithmetic over figures of cells.
//!
//! ```text
//! statement = ["every"] [over] sum (("<=" | ">=" | "<" | ">" | "==") sum | "between" sum "and" sum)
//! figure    = name ("." name)+ ["[" axis "=" value ("|" value)* ("," …)* "]"]
//! ```
//! with sums as in [`expect`](crate::expect) and `over` as in `claim`. A figure has no variant:
//! `variant` is an axis like others. It is the mean over all cells that its selector leaves. With
//! `every` the statement is made for each combination of values of the axes that no selector of it
//! names. A value may stand in double quotes.
//!
//! Both sides are computed for each seed. Of several seeds, intervals of the means are compared;
//! `==` holds in every run.

use serde::{Deserialize, Serialize};
use sluicegate_config::{problem::Complaint, table::nearest};

use super::{
    Cell, Dimension,
    skip::{self, Skip},
};
use crate::{
    claim::{self, Over, Side},
    expect::{Comparison, Expr, Leaf, Parser, tokens, without_flows},
    figures::Quantity,
};

/// One line of `[sweep.expect]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Key in the file.
    pub name: String,
    /// As written.
    pub expression: String,
    every: bool,
    over: Over,
    left: Expr<Selected>,
    relation: Relation,
}

/// The relation that the left side is to have, with the right side or the bounds.
#[derive(Clone, Debug, PartialEq)]
enum Relation {
    Compared(Comparison, Expr<Selected>),
    Between(Expr<Selected>, Expr<Selected>),
}

/// A figure of some cells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selected {
    /// Its name without a variant.
    pub figure: String,
    /// The quantity that its name means.
    pub quantity: Quantity,
    /// Axes that it fixes, and at which values: at one, or at some as `a|b`.
    fixed: Place,
}

impl Leaf for Selected {
    fn parse(name: &str, selector: Option<&str>) -> Result<Self, Complaint> {
        let quantity = Quantity::parse(name).map_err(|complaint| {
            let advice = format!(
                "{} (figures of a sweep have no variant before them: write NAME[variant=x])",
                complaint.advice
            );
            Complaint::new(complaint.reason, advice)
        })?;
        Ok(Self {
            figure: name.to_owned(),
            quantity,
            fixed: selector.map_or(Ok(Vec::new()), fixed)?,
        })
    }

    fn kind(name: &str) -> String {
        without_flows(name.split('.'))
    }
}

impl Selected {
    /// The mean over those of the cells `own` that its brackets leave, `of` being its value in one;
    /// `None` if it was not measured in one of them, or none is left.
    pub fn mean(
        &self,
        dimensions: &[Dimension],
        cells: &[Cell],
        own: &[usize],
        of: &dyn Fn(usize, &str) -> Option<f64>,
    ) -> Option<f64> {
        let fits = |index: &&usize| cells[**index].fits(dimensions, &self.fixed);
        let values = own
            .iter()
            .filter(fits)
            .map(|index| of(*index, &self.figure));
        let values = values.collect::<Option<Vec<f64>>>()?;
        crate::stats::mean(&values)
    }
}

/// Axes with values, of cells that have them.
pub(super) type Place = Vec<(String, String)>;

/// Every combination of the values of those axes that no figure fixes, but those in which the sweep
/// leaves out all cells of a figure.
pub(super) fn free_places(
    figures: &[&Selected],
    dimensions: &[Dimension],
    skips: &[Skip],
) -> Vec<Place> {
    let mut places = vec![Place::new()];
    for dimension in dimensions {
        let mut fixed = figures.iter().flat_map(|figure| &figure.fixed);
        if fixed.any(|(axis, _)| *axis == dimension.name) {
            continue;
        }
        let longer = places.iter().flat_map(|place| {
            dimension.values.iter().map(|value| {
                let own = (dimension.name.clone(), value.clone());
                place.iter().cloned().chain([own]).collect()
            })
        });
        places = longer.collect();
    }
    places.retain(|place| {
        let left_out = |figure: &&Selected| skip::any_at(skips, place.iter().chain(&figure.fixed));
        !figures.iter().any(left_out)
    });
    places
}

/// That the axes and values that these figures name are there.
pub(super) fn check_axes(
    figures: &[&Selected],
    more: &[(String, String)],
    dimensions: &[Dimension],
) -> Result<(), Complaint> {
    let named = figures.iter().flat_map(|figure| &figure.fixed).chain(more);
    for (axis, value) in named {
        let names: Vec<&str> = dimensions.iter().map(|d| d.name.as_str()).collect();
        let Some(dimension) = dimensions.iter().find(|d| d.name == *axis) else {
            return Err(Complaint::new(
                format!("there is no axis \"{axis}\""),
                format!("known axes: {}{}", names.join(", "), nearest(axis, &names)),
            ));
        };
        let values: Vec<&str> = dimension.values.iter().map(String::as_str).collect();
        let is_known = |one: &str| values.contains(&one);
        let unknown = |one: &&str| !is_known(one.trim());
        if let Some(unknown) = (value.split('|').find(unknown)).filter(|_| !is_known(value)) {
            let unknown = unknown.trim();
            return Err(Complaint::new(
                format!("axis {axis} has no value \"{unknown}\""),
                format!("it has {}{}", values.join(", "), nearest(unknown, &values)),
            ));
        }
    }
    Ok(())
}

/// `axis=value, axis="value"`.
pub(super) fn fixed(selector: &str) -> Result<Place, Complaint> {
    let example = "write for example fct_us.query.mean[pfc=on]";
    let mut fixed = Place::new();
    for part in split_quoted(selector) {
        let Some((axis, value)) = part.split_once('=') else {
            return Err(Complaint::new(
                format!("`{}` in `[{selector}]` is no axis=value", part.trim()),
                example,
            ));
        };
        let (axis, value) = (axis.trim(), value.trim().trim_matches('"'));
        if axis.is_empty() || value.is_empty() {
            let reason = format!("`[{selector}]` lacks an axis or a value");
            return Err(Complaint::new(reason, example));
        }
        if fixed.iter().any(|(known, _)| known == axis) {
            let reason = format!("`[{selector}]` names the axis {axis} twice");
            return Err(Complaint::new(
                reason,
                "a figure has one value of an axis, or all",
            ));
        }
        fixed.push((axis.to_owned(), value.to_owned()));
    }
    Ok(fixed)
}

fn split_quoted(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        quoted ^= c == '"';
        match (c, quoted) {
            (',', false) => parts.push(String::new()),
            _ => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts
}

/// The result of one statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatementResult {
    /// Key in the file.
    pub name: String,
    /// As written.
    pub expression: String,
    /// Whether it held wherever it was made.
    pub held: bool,
    /// Where it was made: once, or for every combination of values.
    pub instances: Vec<Instance>,
}

/// A statement about some cells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Axes with their values; empty without `every`.
    pub cell: Vec<(String, String)>,
    /// The left side, the mean over seeds; `None` when a run of a cell that it names has not
    /// measured it. Or the share of seeds with which the statement held, if it is about that.
    pub left: Option<f64>,
    /// Bounds of that mean at 95 %, by Student's t.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_interval: Option<[f64; 2]>,
    /// The right side, or the lower bound.
    pub right: Option<f64>,
    /// Bounds of the right side's mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub right_interval: Option<[f64; 2]>,
    /// The upper bound of `between`, or of the share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// Whether it held.
    pub held: bool,
}

/// The values of one seed: the left side, the right side or lower bound, the upper bound of
/// `between`.
#[derive(Clone, Copy)]
struct Values {
    left: Option<f64>,
    right: Option<f64>,
    upper: Option<f64>,
}

impl Relation {
    /// Whether it holds of these values; `None` if one was not measured.
    fn judge(&self, values: &Values) -> Option<bool> {
        let (left, right) = values.left.zip(values.right)?;
        Some(match self {
            Self::Compared(comparison, _) => comparison.holds(left, right),
            Self::Between(..) => (right..=values.upper?).contains(&left),
        })
    }
}

impl Statement {
    /// Parses one line.
    ///
    /// # Errors
    /// A line that the grammar does not allow, and at which character.
    pub fn parse(name: &str, expression: &str) -> Result<Self, Complaint> {
        let tokens = tokens(expression)?;
        let mut parser = Parser::new(&tokens);
        let every = parser.take_word("every");
        let over = Over::parse(&mut parser)?;
        if over == Over::Means {
            return Err(Complaint::new(
                "a sweep compares intervals in any case",
                "leave `significantly` out",
            ));
        }
        let left = parser.sum()?;
        let relation = if parser.take_word("between") {
            let low = parser.sum()?;
            if !parser.take_word("and") {
                return Err(parser.unexpected("`and` with the upper bound"));
            }
            Relation::Between(low, parser.sum()?)
        } else {
            let comparison = parser.sign(&Comparison::ALL)?;
            Relation::Compared(comparison, parser.sum()?)
        };
        parser.end()?;
        Ok(Self {
            name: name.to_owned(),
            expression: expression.to_owned(),
            every,
            over,
            left,
            relation,
        })
    }

    /// Every figure that it names.
    pub(super) fn figures(&self) -> Vec<&Selected> {
        let mut figures = Vec::new();
        self.left.collect_figures(&mut figures);
        match &self.relation {
            Relation::Compared(_, right) => right.collect_figures(&mut figures),
            Relation::Between(low, high) => {
                low.collect_figures(&mut figures);
                high.collect_figures(&mut figures);
            }
        }
        figures
    }

    /// Whether some cell is of each of its figures.
    pub(super) fn has_cells(&self, dimensions: &[Dimension], cells: &[Cell]) -> bool {
        let has = |figure: &&Selected| {
            let mut cells = cells.iter();
            cells.any(|cell| cell.fits(dimensions, &figure.fixed))
        };
        self.figures().iter().all(has)
    }

    /// That the axes and values that it names are there.
    pub(super) fn check(&self, dimensions: &[Dimension]) -> Result<(), Complaint> {
        check_axes(&self.figures(), &[], dimensions)
    }

    /// Says what the cells make of it; `of` is a figure of a cell with a seed, if that run measured
    /// it.
    pub(super) fn evaluate(
        &self,
        dimensions: &[Dimension],
        skips: &[Skip],
        cells: &[Cell],
        seeds: &[u64],
        of: &dyn Fn(usize, u64, &str) -> Option<f64>,
    ) -> StatementResult {
        let places = match self.every {
            true => free_places(&self.figures(), dimensions, skips),
            false => vec![Place::new()],
        };
        // Combinations that `--only` has left out do not count.
        let exists = |place: &Place| cells.iter().any(|cell| cell.fits(dimensions, place));
        let instances: Vec<Instance> = (places.into_iter().filter(exists))
            .map(|cell| {
                let fits = |index: &usize| cells[*index].fits(dimensions, &cell);
                let own: Vec<usize> = (0..cells.len()).filter(fits).collect();
                let run = |seed: &u64| {
                    let of = |index, figure: &str| of(index, *seed, figure);
                    self.values(&|selected| selected.mean(dimensions, cells, &own, &of))
                };
                let runs: Vec<Values> = seeds.iter().map(run).collect();
                Instance {
                    cell,
                    ..self.judge(&runs)
                }
            })
            .collect();
        StatementResult {
            name: self.name.clone(),
            expression: self.expression.clone(),
            held: !instances.is_empty() && instances.iter().all(|instance| instance.held),
            instances,
        }
    }

    /// The values of both sides, where `of` gives the value of a figure.
    fn values(&self, of: &dyn Fn(&Selected) -> Option<f64>) -> Values {
        let value = |side: &Expr<Selected>| side.value(of).filter(|value| value.is_finite());
        let (right, upper) = match &self.relation {
            Relation::Compared(_, right) => (value(right), None),
            Relation::Between(low, high) => (value(low), value(high)),
        };
        Values {
            left: value(&self.left),
            right,
            upper,
        }
    }

    /// Whether it holds over these runs, one for each seed.
    fn judge(&self, runs: &[Values]) -> Instance {
        let held = runs.iter().map(|run| self.relation.judge(run));
        let held: Vec<Option<bool>> = held.collect();
        match (self.over, runs) {
            (Over::Share { least, most }, _) => {
                let (share, held) = claim::judge_share(&held, least, most);
                Instance {
                    left: share,
                    right: Some(least),
                    upper: Some(most),
                    held,
                    ..Instance::default()
                }
            }
            (_, [run]) => Instance {
                left: run.left,
                right: run.right,
                upper: run.upper,
                held: held[0] == Some(true),
                ..Instance::default()
            },
            _ => self.judge_means(runs, &held),
        }
    }

    fn judge_means(&self, runs: &[Values], held: &[Option<bool>]) -> Instance {
        let side =
            |of: fn(&Values) -> Option<f64>| Side::of(&runs.iter().map(of).collect::<Vec<_>>());
        let (left, right) = (side(|run| run.left), side(|run| run.right));
        let upper = side(|run| run.upper);
        let both = left.zip(right);
        let held = match &self.relation {
            Relation::Compared(Comparison::Equal, _) => {
                !held.is_empty() && held.iter().all(|held| *held == Some(true))
            }
            Relation::Compared(comparison, _) => {
                both.is_some_and(|(left, right)| Over::compare(*comparison, left, right))
            }
            Relation::Between(..) => both
                .zip(upper)
                .is_some_and(|((left, low), high)| low.high <= left.low && left.high <= high.low),
        };
        Instance {
            cell: Vec::new(),
            left: left.map(|side| side.mean),
            left_interval: left.map(|side| side.bounds()),
            right: right.map(|side| side.mean),
            right_interval: right.map(|side| side.bounds()),
            upper: upper.map(|side| side.mean),
            held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimensions() -> Vec<Dimension> {
        let dimension = |name: &str, values: &[&str]| Dimension {
            name: name.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        vec![
            dimension("pfc", &["on", "off"]),
            dimension("network.rate", &["1Gbit", "10Gbit"]),
            dimension("variant", &["base"]),
        ]
    }

    /// Means 1, 2 with PFC, 3, 4 without; the RTT has not been measured in the last cell.
    fn evaluate(expression: &str) -> StatementResult {
        let cells: Vec<Cell> = [[0, 0], [0, 1], [1, 0], [1, 1]]
            .map(|values| Cell {
                values: values.to_vec(),
                variant: "base".to_owned(),
            })
            .into();
        let statement =
            Statement::parse("s", expression).unwrap_or_else(|c| panic!("{expression}: {c}"));
        statement.check(&dimensions()).unwrap();
        statement.evaluate(&dimensions(), &[], &cells, &[1], &|cell, _, figure| {
            (figure != "rtt_us.p50" || cell < 3).then_some(cell as f64 + 1.0)
        })
    }

    /// The same with seeds that add so much.
    fn over_seeds(expression: &str, added: &[f64]) -> Instance {
        let cells: Vec<Cell> = [[0, 0], [0, 1], [1, 0], [1, 1]]
            .map(|values| Cell {
                values: values.to_vec(),
                variant: "base".to_owned(),
            })
            .into();
        let seeds: Vec<u64> = (0..added.len() as u64).collect();
        let statement = Statement::parse("s", expression).unwrap();
        let result =
            statement.evaluate(&dimensions(), &[], &cells, &seeds, &|cell, seed, figure| {
                let value = cell as f64 + 1.0 + added[seed as usize];
                (figure != "rtt_us.p50" || seed > 0).then_some(value)
            });
        result.instances[0].clone()
    }

    #[test]
    fn of_several_seeds_intervals_are_compared() {
        let line = "goodput_bps.sum[pfc=on] < goodput_bps.sum[pfc=off]";
        let close = over_seeds(line, &[-0.1, 0.0, 0.1]);
        assert!(close.held, "{close:?}");
        let [low, high] = close.left_interval.unwrap();
        // 4.303 × 0.1 / √3 about 1.5.
        assert!((low - 1.2516).abs() < 1e-3 && (high - 1.7484).abs() < 1e-3);
        // The means are as far apart as before, the intervals overlap.
        let wide = over_seeds(line, &[-1.0, 0.0, 1.0]);
        assert_eq!(
            (wide.left, wide.right, wide.held),
            (Some(1.5), Some(3.5), false)
        );
        // The part that a seed adds to all cells is in no difference of cells.
        let paired = "goodput_bps.sum[pfc=on] - goodput_bps.sum[pfc=off] < 0";
        assert!(over_seeds(paired, &[-1.0, 0.0, 1.0]).held);
    }

    #[test]
    fn intervals_lie_between_bounds_as_a_whole() {
        let line = "goodput_bps.sum[pfc=on] between 1 and 2";
        assert!(over_seeds(line, &[-0.1, 0.0, 0.1]).held);
        assert!(!over_seeds(line, &[-0.3, 0.0, 0.3]).held);
    }

    #[test]
    fn equality_holds_in_every_run_and_a_share_of_seeds_is_counted() {
        assert!(over_seeds("goodput_bps.sum[pfc=on] == 1.5", &[0.0, 0.0]).held);
        assert!(!over_seeds("goodput_bps.sum[pfc=on] == 1.5", &[-1.0, 1.0]).held);
        let half = over_seeds("in 0.4 to 0.6 of runs goodput_bps.sum > 2.5", &[0.0, 1.0]);
        assert_eq!(
            (half.left, half.upper, half.held),
            (Some(0.5), Some(0.6), true)
        );
        assert!(!over_seeds("in all runs goodput_bps.sum > 2.5", &[0.0, 1.0]).held);
        // One seed has not measured it.
        assert_eq!(over_seeds("rtt_us.p50 > 0", &[0.0, 0.0]).left, None);
    }

    #[test]
    fn a_figure_is_the_mean_over_what_its_selector_leaves() {
        let result = evaluate("goodput_bps.sum[pfc=on] < goodput_bps.sum[pfc=off]");
        let instance = &result.instances[0];
        assert_eq!((instance.left, instance.right), (Some(1.5), Some(3.5)));
        assert!(result.held && instance.cell.is_empty());
        let all =
            evaluate("2 * goodput_bps.sum == goodput_bps.sum[pfc=on, network.rate=\"1Gbit\"] + 4");
        assert!(all.held, "{all:?}");
        let some = evaluate("goodput_bps.sum[pfc=on|off] == goodput_bps.sum");
        assert!(some.held, "{some:?}");
        let one = evaluate("goodput_bps.sum[pfc=on | on] == goodput_bps.sum[pfc=on]");
        assert!(one.held, "{one:?}");
    }

    #[test]
    fn every_goes_over_the_axes_that_are_not_named() {
        let result = evaluate("every goodput_bps.sum[pfc=off] >= 4");
        let held: Vec<bool> = result.instances.iter().map(|i| i.held).collect();
        assert_eq!(held, [false, true]);
        assert!(!result.held);
        let rates: Vec<&str> = (result.instances.iter())
            .map(|instance| instance.cell[0].1.as_str())
            .collect();
        assert_eq!(rates, ["1Gbit", "10Gbit"]);
        assert_eq!(evaluate("every goodput_bps.sum > 0").instances.len(), 4);
    }

    #[test]
    fn between_has_two_bounds_that_belong_to_it() {
        assert!(evaluate("goodput_bps.sum[pfc=on] between 1 and 1.5").held);
        let outside = evaluate("goodput_bps.sum[pfc=on] between 1.6 and 2 * 3");
        let instance = &outside.instances[0];
        assert_eq!((instance.right, instance.upper), (Some(1.6), Some(6.0)));
        assert!(!outside.held);
    }

    #[test]
    fn what_was_not_measured_everywhere_does_not_hold() {
        let result = evaluate("rtt_us.p50[pfc=off] > 0");
        assert_eq!((result.instances[0].left, result.held), (None, false));
        assert!(evaluate("rtt_us.p50[pfc=on] > 0").held);
    }

    #[test]
    fn what_the_grammar_does_not_allow_is_told_with_its_place() {
        for (expression, why) in [
            (
                "goodput_bps.sum[pfc=on",
                "bracket at character 16 is not closed",
            ),
            ("goodput_bps.sum[pfc] < 1", "is no axis=value"),
            ("goodput_bps.sum[pfc=] < 1", "lacks an axis or a value"),
            (
                "goodput_bps.sum[pfc=on,pfc=off] < 1",
                "names the axis pfc twice",
            ),
            ("goodput_bps.sum between 1", "instead of `and`"),
            ("goodput_bps.sum", "found the end instead of one of"),
            ("goodput_bps.sum < 1 2", "instead of the end"),
            ("base.goodput_bps.sum < 1", "is no figure here"),
            ("goodput_bps.sum[pfc=on][pfc=off] < 1", "found `[pfc=off]`"),
            ("every < 1", "instead of a number or a figure"),
            (
                "significantly goodput_bps.sum < 1",
                "a sweep compares intervals",
            ),
        ] {
            let complaint = Statement::parse("s", expression).unwrap_err();
            assert!(complaint.reason.contains(why), "{expression}: {complaint}");
        }
    }

    #[test]
    fn unknown_axes_and_values_name_the_nearest() {
        for (expression, why) in [
            ("goodput_bps.sum[pfx=on] < 1", "did you mean \"pfc\"?"),
            (
                "goodput_bps.sum[network.rate=1Gbi] < 1",
                "did you mean \"1Gbit\"?",
            ),
        ] {
            let complaint = Statement::parse("s", expression)
                .unwrap()
                .check(&dimensions());
            let complaint = complaint.unwrap_err();
            assert!(complaint.advice.contains(why), "{expression}: {complaint}");
        }
    }
}
