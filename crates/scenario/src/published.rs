//! `[published]`: figures beside published ones, such as `enforced.rtt_us.p50 ~ 93`, and how far
//! they agree.
//!
//! ```text
//! line        = publication | { figure = publication, cause = text, fitted = text, vacuous = text }
//! publication = sum "~" sum                      without figures on the right
//! ```
//! with sums as in [`expect`](crate::expect). Those of a [`sweep`](crate::sweep) have its figures.
//!
//! A figure agrees within [`TOLERANCE`]. Of figures that do not, the order may: figures of one kind
//! are those whose expressions differ in variants, in names of flows and in values of axes only.
//! Published values of a kind that lie within the tolerance of each other have no order.
//!
//! An expression that compares figures of one kind has a value that it would have if these were
//! equal: `a / b` has 1, `1 - a / b` and `(a - b) / c` have 0. It is in order if ours and the
//! published value are on the same side of that. Values of opposite signs are never in order.
//!
//! A figure in order that is more than [`SIZE`] times the published one, or less than its inverse,
//! differs in size.

use sluicegate_config::{problem::Complaint, table::Item};

use crate::{
    claim::Side,
    expect::{Expr, Leaf, Parser, Token, tokens},
    figures::Figure,
    results::{FlowResult, PublishedResult, VariantResult, Verdict},
    stats,
};

/// How far apart figures are that agree, as a fraction of the published one.
pub const TOLERANCE: f64 = 0.2;

/// The largest ratio of ours and a published figure, either way, of which the order says something.
pub const SIZE: f64 = 2.0;

/// One line of `[published]`: nothing is expected of it, it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication<F = Figure> {
    /// Key in the file.
    pub name: String,
    /// As written.
    pub expression: String,
    /// Why ours differs, as runs have shown; `None` = unknown, or it does not.
    pub cause: Option<String>,
    /// The part of the set-up that was chosen after this figure, so that agreement shows nothing.
    pub fitted: Option<String>,
    /// Why agreement would show nothing, but for a fit: what would give this value in any case.
    pub vacuous: Option<String>,
    pub(crate) ours: Expr<F>,
    published: f64,
    kind: String,
    /// The value if all figures of a kind in it were equal: the order is against this.
    neutral: Option<f64>,
}

impl Publication {
    /// Reads a line: a text or a table.
    pub fn read(name: &str, item: &Item<'_>) -> Option<Self> {
        let (line, reasons) = read_line(item, |text| Self::parse(name, text))?;
        Some(line.with(reasons))
    }

    /// Parses a text.
    ///
    /// # Errors
    /// An expression that the grammar does not allow, and at which character; a right side that is
    /// no number.
    pub fn parse(name: &str, expression: &str) -> Result<Self, Complaint> {
        let tokens = tokens(expression)?;
        parse_rest(name, expression, &tokens, Parser::new(&tokens))
    }

    fn value(&self, variants: &[VariantResult]) -> Option<f64> {
        let value = self.ours.value(&|figure| figure.value(variants));
        value.filter(|value| value.is_finite())
    }
}

/// `cause`, `fitted` and `vacuous` of a line.
pub(crate) type Reasons = [Option<String>; 3];

/// Reads a line, a text or a table; `parse` reads its text.
pub(crate) fn read_line<T>(
    item: &Item<'_>,
    parse: impl Fn(&str) -> Result<T, Complaint>,
) -> Option<(T, Reasons)> {
    if !item.is_table() {
        return Some((item.parse(parse)?, Reasons::default()));
    }
    let table = item.table()?;
    let read = match table.get("figure") {
        Some(figure) => figure.parse(parse),
        None => {
            let example = "write for example figure = \"enforced.rtt_us.p50 ~ 93\"";
            table.require("figure", example);
            None
        }
    };
    let reasons = ["cause", "fitted", "vacuous"].map(|key| table.text(key).map(str::to_owned));
    table.close();
    Some((read?, reasons))
}

/// Of what `parser` has not read yet of the tokens of `expression`.
pub(crate) fn parse_rest<F: Leaf>(
    name: &str,
    expression: &str,
    tokens: &[(usize, Token)],
    mut parser: Parser<'_>,
) -> Result<Publication<F>, Complaint> {
    let sum = tokens.len() - parser.left();
    let ours = parser.sum()?;
    parser.sign(&[("~", ())])?;
    let published: Expr<F> = parser.sum()?;
    parser.end()?;
    let published = published.value(&|_| None).filter(|value| value.is_finite());
    let published = published.ok_or_else(|| {
        Complaint::new(
            "the right side is no number",
            "write the published value there, for example \"enforced.rtt_us.p50 ~ 93\"",
        )
    })?;
    let tokens: Vec<Token> = tokens.iter().map(|(_, token)| token.clone()).collect();
    let end = (tokens.iter()).position(|token| *token == Token::Symbol("~"));
    let left = &tokens[..end.unwrap_or(tokens.len())];
    Ok(Publication {
        name: name.to_owned(),
        expression: expression.to_owned(),
        cause: None,
        fitted: None,
        vacuous: None,
        kind: kind::<F>(left),
        neutral: neutral(&ours, &left[sum.min(left.len())..]),
        ours,
        published,
    })
}

impl<F> Publication<F> {
    pub(crate) fn with(self, [cause, fitted, vacuous]: Reasons) -> Self {
        Self {
            cause,
            fitted,
            vacuous,
            ..self
        }
    }

    /// Every figure that it names.
    pub fn figures(&self) -> Vec<&F> {
        let mut figures = Vec::new();
        self.ours.collect_figures(&mut figures);
        figures
    }

    fn result(&self, ours: Option<f64>, verdict: Option<Verdict>) -> PublishedResult {
        PublishedResult {
            name: self.name.clone(),
            expression: self.expression.clone(),
            published: self.published,
            ours,
            interval: None,
            verdict,
            same_as: None,
            by_seed: Vec::new(),
            cause: self.cause.clone(),
            fitted: self.fitted.clone(),
            vacuous: self.vacuous.clone(),
        }
    }
}

/// The kind of a left side: its text without variants, names of flows, and values of axes.
fn kind<F: Leaf>(left: &[Token]) -> String {
    let words = left.iter().map(|token| match token {
        Token::Name(name) => F::kind(name),
        Token::Selector(text) => {
            let axes = text.split(',').filter_map(|part| part.split('=').next());
            format!("{:?}", axes.map(str::trim).collect::<Vec<_>>())
        }
        other => other.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The value of `ours`, whose tokens are `left`, if all figures of a kind in it were equal; `None`
/// if that depends on their values, as it does where no two of a kind are compared.
fn neutral<F: Leaf>(ours: &Expr<F>, left: &[Token]) -> Option<f64> {
    if matches!(ours, Expr::Binary('/', ..)) && is_quotient::<F>(left) {
        return Some(1.0);
    }
    let mut figures = Vec::new();
    ours.collect_figures(&mut figures);
    // Both are in the order of the text.
    let kinds = kinds::<F>(left);
    let several = kinds
        .iter()
        .enumerate()
        .any(|(at, kind)| kinds[..at].contains(kind));
    if !several || kinds.len() != figures.len() {
        return None;
    }
    let value = |trial: &f64| {
        let of = |figure: &F| {
            let at = figures
                .iter()
                .position(|other| std::ptr::eq(*other, figure))?;
            let kind = kinds.iter().position(|kind| *kind == kinds[at])?;
            Some(trial.powi(i32::try_from(kind).ok()? + 1))
        };
        ours.value(&of).filter(|value| value.is_finite())
    };
    let values: Option<Vec<f64>> = [1.3, 2.1, 3.7].iter().map(value).collect();
    let values = values?;
    let constant = |other: &f64| (other - values[0]).abs() <= 1e-9 * (1.0 + values[0].abs());
    values.iter().all(constant).then_some(values[0])
}

/// The kinds of the figures among these tokens, one by one.
fn kinds<F: Leaf>(tokens: &[Token]) -> Vec<String> {
    let is_called = |at: usize| tokens.get(at + 1) == Some(&Token::Symbol("("));
    let kind = |(at, token): (usize, &Token)| match token {
        Token::Name(name) if !is_called(at) => Some(F::kind(name)),
        _ => None,
    };
    tokens.iter().enumerate().filter_map(kind).collect()
}

/// Whether these tokens are figures of one kind with a division between them.
fn is_quotient<F: Leaf>(tokens: &[Token]) -> bool {
    let divisions = (0..tokens.len()).filter(|at| tokens[*at] == Token::Symbol("/"));
    divisions.into_iter().any(|at| {
        let right = &tokens[at + 1..];
        let of_figures = right.iter().any(|token| matches!(token, Token::Name(_)));
        of_figures && kind::<F>(right) == kind::<F>(&tokens[..at])
    })
}

/// The measured figures beside the published ones, line by line.
pub fn evaluate(all: &[Publication], variants: &[VariantResult]) -> Vec<PublishedResult> {
    let ours = all.iter().map(|line| line.value(variants)).collect();
    let mut results = evaluate_runs(&all.iter().collect::<Vec<_>>(), &[ours]);
    let measured: Vec<Expr<Figure>> = (all.iter())
        .map(|line| line.ours.map(&|figure| of_first(figure, variants)))
        .collect();
    for (at, result) in results.iter_mut().enumerate() {
        let same = measured[..at]
            .iter()
            .position(|other| *other == measured[at]);
        result.same_as = same.map(|first| all[first].name.clone());
    }
    results
}

/// The same figure of the first variant that had the same run: all that crossed its links was the
/// same, as it is for stacks that enforcement makes one.
fn of_first(figure: &Figure, variants: &[VariantResult]) -> Figure {
    let own = variants
        .iter()
        .find(|variant| variant.name == figure.variant);
    let of_variant = |variant: &VariantResult| Figure {
        variant: variant.name.clone(),
        quantity: figure.quantity.clone(),
    };
    let is_same = |other: &&VariantResult| {
        let value = |figure: &Figure| figure.value(variants).map(f64::to_bits);
        own.is_some_and(|own| crossed_the_same(other, own))
            && value(&of_variant(other)) == value(figure)
    };
    let first = variants.iter().find(is_same);
    first.map_or_else(|| figure.clone(), of_variant)
}

/// Whether the same crossed the links of both.
fn crossed_the_same(one: &VariantResult, other: &VariantResult) -> bool {
    let flow = |flow: &FlowResult| (flow.goodput_bps, flow.retransmits, flow.datagrams);
    one.links == other.links
        && one.vnics == other.vnics
        && one.rtt_us == other.rtt_us
        && one.fct_us == other.fct_us
        && one.flows.iter().map(flow).eq(other.flows.iter().map(flow))
}

/// The same of several runs, each with its value of each line: means, judged, with their intervals,
/// and what each run would be judged by itself.
pub(crate) fn evaluate_runs<F>(
    all: &[&Publication<F>],
    runs: &[Vec<Option<f64>>],
) -> Vec<PublishedResult> {
    let of_line = |at: usize| runs.iter().map(|run| run[at]).collect::<Vec<_>>();
    let mean = |at| {
        let values: Option<Vec<f64>> = of_line(at).into_iter().collect();
        values.and_then(|v| stats::mean(&v))
    };
    let means: Vec<Option<f64>> = (0..all.len()).map(mean).collect();
    let verdicts = judge(all, &means);
    let of_runs: Vec<_> = match runs {
        [_] => Vec::new(),
        several => several.iter().map(|run| judge(all, run)).collect(),
    };
    let result = |(at, line): (usize, &&Publication<F>)| {
        let interval = Side::of(&of_line(at)).map(|side| side.bounds());
        let decides = interval.is_none_or(|interval| decides(interval, line.published));
        let verdict = match decides {
            true => verdicts[at],
            false => Some(Verdict::Undecided),
        };
        PublishedResult {
            interval,
            by_seed: of_runs.iter().map(|verdicts| verdicts[at]).collect(),
            ..line.result(means[at], verdict)
        }
    };
    all.iter().enumerate().map(result).collect()
}

/// What several runs of one scenario with different seeds give together; `runs` are their
/// `published`, of which the first tells the lines.
///
/// # Errors
/// A line that this version cannot read.
pub fn over_seeds(runs: &[&[PublishedResult]]) -> Result<Vec<PublishedResult>, Complaint> {
    let Some(first) = runs.first() else {
        return Ok(Vec::new());
    };
    let mut lines = Vec::new();
    for line in *first {
        let same = |other: &&PublishedResult| {
            (&other.name, &other.expression) == (&line.name, &line.expression)
        };
        let measured: Vec<Option<&PublishedResult>> =
            (runs.iter()).map(|run| run.iter().find(same)).collect();
        let reasons = line.reasons().map(|reason| reason.cloned());
        let values: Vec<Option<f64>> = measured.iter().map(|run| (*run)?.ours).collect();
        let read = Publication::parse(&line.name, &line.expression)?;
        lines.push((read.with(reasons), values));
    }
    let values = |run: usize| lines.iter().map(|(_, values)| values[run]).collect();
    let values: Vec<Vec<Option<f64>>> = (0..runs.len()).map(values).collect();
    let lines: Vec<&Publication> = lines.iter().map(|(line, _)| line).collect();
    let mut results = evaluate_runs(&lines, &values);
    for (at, result) in results.iter_mut().enumerate() {
        let same_as = &first[at].same_as;
        let always = runs
            .iter()
            .all(|run| run.get(at).is_some_and(|line| line.same_as == *same_as));
        result.same_as = same_as.clone().filter(|_| always);
    }
    Ok(results)
}

/// How far each value agrees, among the others.
fn judge<F>(all: &[&Publication<F>], ours: &[Option<f64>]) -> Vec<Option<Verdict>> {
    let lines = || all.iter().zip(ours);
    let of_line = |(line, value): (&&Publication<F>, &Option<f64>)| {
        let kind = lines().filter(|(other, _)| other.kind == line.kind);
        let others = kind.filter_map(|(other, ours)| Some((other.published, (*ours)?)));
        Some(verdict(line, (*value)?, others))
    };
    lines().map(of_line).collect()
}

/// How far `ours` agrees; `others` are published values of its kind with ours.
fn verdict<F>(
    line: &Publication<F>,
    ours: f64,
    others: impl Iterator<Item = (f64, f64)>,
) -> Verdict {
    if is_near(ours, line.published) {
        return match (&line.fitted, &line.vacuous) {
            (Some(_), _) => Verdict::Fitted,
            (None, Some(_)) => Verdict::Vacuous,
            (None, None) => Verdict::Agrees,
        };
    }
    let neutral = line.neutral.map(|neutral| (neutral, neutral));
    let mut ordered = others.chain(neutral).filter(|(published, _)| {
        !is_near(*published, line.published) && !is_near(line.published, *published)
    });
    let in_order = |(published, value): (f64, f64)| {
        (line.published < published) == (ours < value) && ours != value
    };
    let Some(first) = ordered.next() else {
        return Verdict::Differs;
    };
    let ratio = ours / line.published;
    match in_order(first) && ordered.all(in_order) && ratio > 0.0 {
        true if (1.0 / SIZE..=SIZE).contains(&ratio) => Verdict::OrderingOnly,
        true => Verdict::DiffersInSize,
        false => Verdict::Differs,
    }
}

/// Whether an interval of ours lies within the tolerance, or outside of it, as a whole.
fn decides([low, high]: [f64; 2], published: f64) -> bool {
    match (is_near(low, published), is_near(high, published)) {
        (false, false) => (low < published) == (high < published),
        (low, high) => low && high,
    }
}

/// Whether two values agree, the second being the published one.
fn is_near(ours: f64, published: f64) -> bool {
    (ours - published).abs() <= TOLERANCE * published.abs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::results::Quantiles;

    fn variants(medians: &[(&str, f64)]) -> Vec<VariantResult> {
        let variant = |(name, p50): &(&str, f64)| VariantResult {
            name: (*name).to_owned(),
            rtt_us: Quantiles {
                count: 1,
                p50: Some(*p50),
                ..Quantiles::default()
            },
            ..VariantResult::default()
        };
        medians.iter().map(variant).collect()
    }

    #[test]
    fn an_interval_decides_that_lies_within_the_tolerance_or_outside_as_a_whole() {
        for (interval, does) in [
            ([81.0, 119.0], true),
            ([100.0, 100.0], true),
            ([10.0, 79.0], true),
            ([121.0, 500.0], true),
            ([79.0, 81.0], false),
            ([119.0, 121.0], false),
            ([10.0, 500.0], false),
        ] {
            assert_eq!(decides(interval, 100.0), does, "{interval:?}");
        }
    }

    /// The verdicts on these lines, with medians of the variants a, b and c.
    fn verdicts(lines: &[&str], [a, b, c]: [f64; 3]) -> Vec<Option<Verdict>> {
        let lines: Vec<Publication> = (lines.iter())
            .map(|line| Publication::parse("p", line).unwrap())
            .collect();
        let results = evaluate(&lines, &variants(&[("a", a), ("b", b), ("c", c)]));
        results.into_iter().map(|result| result.verdict).collect()
    }

    const THREE: [&str; 3] = [
        "a.rtt_us.p50 ~ 100",
        "b.rtt_us.p50 ~ 300",
        "c.rtt_us.p50 ~ 310",
    ];

    #[test]
    fn a_published_figure_stands_beside_ours() {
        let publish = |text: &str| Publication::parse("p", text);
        let beside = publish("8 * dctcp.rtt_us.p50 / 2 ~ 93 + 1").unwrap();
        let results = evaluate(&[beside], &variants(&[("dctcp", 100.0)]));
        assert_eq!((results[0].ours, results[0].published), (Some(400.0), 94.0));
        let unmeasured = publish("dctcp.fct_us.mice.p50 ~ 5").unwrap();
        assert_eq!(unmeasured.figures().len(), 1);
        let results = evaluate(&[unmeasured], &variants(&[("dctcp", 100.0)]));
        assert_eq!((results[0].ours, results[0].verdict), (None, None));
        let complaint = publish("93 ~ dctcp.rtt_us.p50").unwrap_err();
        assert!(complaint.reason.contains("right side"), "{complaint}");
        let complaint = publish("dctcp.rtt_us.p50 <= 93").unwrap_err();
        assert!(complaint.reason.contains("instead of ~"), "{complaint}");
    }

    #[test]
    fn a_figure_agrees_within_a_fifth_and_else_its_order_may() {
        use Verdict::{Agrees, Differs, OrderingOnly};
        let of = |ours| {
            verdicts(&THREE, ours)
                .into_iter()
                .map(Option::unwrap)
                .collect::<Vec<_>>()
        };
        assert_eq!(of([80.0, 360.0, 250.0]), [Agrees, Agrees, Agrees]);
        // b and c are too close to each other for an order of theirs.
        assert_eq!(
            of([79.0, 361.0, 240.0]),
            [OrderingOnly, OrderingOnly, OrderingOnly]
        );
        assert_eq!(of([200.0, 190.0, 240.0]), [Differs, Differs, OrderingOnly]);
        assert_eq!(of([190.0, 190.0, 310.0]), [Differs, Differs, Agrees]);
        assert_eq!(verdicts(&THREE[..1], [200.0, 0.0, 0.0]), [Some(Differs)]);
    }

    #[test]
    fn a_comparison_has_an_order_of_its_own() {
        use Verdict::{Differs, DiffersInSize, OrderingOnly};
        let of = |line: &str, medians| verdicts(&[line], medians)[0].unwrap();
        let quotient = "(a.rtt_us.p50 - c.rtt_us.p50) / (b.rtt_us.p50 - c.rtt_us.p50) ~ 6";
        assert_eq!(of(quotient, [50.0, 20.0, 10.0]), OrderingOnly);
        assert_eq!(of(quotient, [30.0, 20.0, 10.0]), DiffersInSize);
        assert_eq!(of(quotient, [20.0, 50.0, 10.0]), Differs);
        for difference in [
            "1 - a.rtt_us.p50 / b.rtt_us.p50 ~ 0.4",
            "100 * (1 - a.rtt_us.p50 / b.rtt_us.p50) ~ 40",
            "(b.rtt_us.p50 - a.rtt_us.p50) / c.rtt_us.p50 ~ 0.4",
        ] {
            assert_eq!(
                of(difference, [20.0, 40.0, 70.0]),
                OrderingOnly,
                "{difference}"
            );
            assert_eq!(
                of(difference, [49.0, 50.0, 50.0]),
                DiffersInSize,
                "{difference}"
            );
            assert_eq!(of(difference, [50.0, 20.0, 50.0]), Differs, "{difference}");
        }
        let of_numbers = "a.rtt_us.p50 / 10 ~ 100";
        assert_eq!(of(of_numbers, [50.0, 0.0, 0.0]), Differs);
    }

    #[test]
    fn a_value_of_the_other_sign_is_in_no_order() {
        // Published −3 is below both of its kind, and ours is, too; but theirs has another sign.
        let lines = [
            "a.rtt_us.p50 - 100 ~ -3",
            "b.rtt_us.p50 - 100 ~ 20",
            "c.rtt_us.p50 - 100 ~ 40",
        ];
        let verdicts = verdicts(&lines, [110.0, 125.0, 160.0]);
        assert_eq!(verdicts[0], Some(Verdict::Differs));
        assert_eq!(verdicts[2], Some(Verdict::OrderingOnly));
    }

    #[test]
    fn what_would_be_the_same_whatever_is_measured_is_neutral() {
        let neutral = |text| Publication::parse("p", text).unwrap().neutral;
        for (line, value) in [
            ("a.rtt_us.p50 / b.rtt_us.p50 ~ 2", Some(1.0)),
            ("3 * a.rtt_us.p50 / b.rtt_us.p50 + 1 ~ 2", Some(4.0)),
            ("a.rtt_us.p50 - b.rtt_us.p50 ~ 2", Some(0.0)),
            (
                "(a.rtt_us.p50 - b.rtt_us.p50) / a.rtt_us.p99 ~ 2",
                Some(0.0),
            ),
            (
                "max(a.rtt_us.p50, b.rtt_us.p50) / c.rtt_us.p50 ~ 2",
                Some(1.0),
            ),
            ("a.rtt_us.p50 / b.rtt_us.p99 ~ 2", None),
            ("a.rtt_us.p50 + b.rtt_us.p50 ~ 2", None),
            ("a.rtt_us.p50 ~ 2", None),
        ] {
            assert_eq!(neutral(line), value, "{line}");
        }
    }

    #[test]
    fn a_run_that_variants_share_is_told() {
        let lines = ["a", "b", "c"].map(|name| format!("{name}.rtt_us.p50 ~ 100"));
        let lines: Vec<Publication> = (lines.iter())
            .map(|line| Publication::parse(&line[..1], line).unwrap())
            .collect();
        let same_as = |medians: &[f64]| {
            let names = ["a", "b", "c"].into_iter().zip(medians.iter().copied());
            let results = evaluate(&lines, &variants(&names.collect::<Vec<_>>()));
            results
                .into_iter()
                .map(|line| line.same_as)
                .collect::<Vec<_>>()
        };
        let a = Some("a".to_owned());
        assert_eq!(same_as(&[90.0, 90.0, 91.0]), [None, a.clone(), None]);
        assert_eq!(same_as(&[90.0, 90.0, 90.0]), [None, a.clone(), a.clone()]);
        let run = |medians: [f64; 3]| {
            let names = ["a", "b", "c"].into_iter().zip(medians);
            evaluate(&lines, &variants(&names.collect::<Vec<_>>()))
        };
        let runs = [run([90.0, 90.0, 90.0]), run([80.0, 80.0, 81.0])];
        let runs: Vec<&[PublishedResult]> = runs.iter().map(Vec::as_slice).collect();
        let together = over_seeds(&runs).unwrap();
        let together: Vec<_> = together.into_iter().map(|line| line.same_as).collect();
        assert_eq!(together, [None, a, None]);
        let mut links = variants(&[("a", 90.0), ("b", 90.0), ("c", 90.0)]);
        links[1].links.push(crate::results::LinkResult::default());
        assert_eq!(evaluate(&lines, &links)[1].same_as, None);
    }

    #[test]
    fn kinds_are_told_by_what_is_measured() {
        let kind = |text| Publication::parse("p", text).unwrap().kind;
        assert_eq!(
            kind("a.flows.s1.goodput_bps / 8 ~ 3"),
            kind("b.flows.s2.goodput_bps / 8 ~ 4")
        );
        assert_ne!(kind("a.rtt_us.p50 ~ 3"), kind("a.rtt_us.p99 ~ 3"));
        assert_ne!(
            kind("max(a.rtt_us.p50, 1) ~ 3"),
            kind("min(a.rtt_us.p50, 1) ~ 3")
        );
    }

    #[test]
    fn what_was_fitted_does_not_agree() {
        let mut line = Publication::parse("p", THREE[0]).unwrap();
        line.fitted = Some("the buffer".to_owned());
        line.cause = Some("the hosts".to_owned());
        let of = |p50| {
            let results = evaluate(std::slice::from_ref(&line), &variants(&[("a", p50)]));
            (
                results[0].verdict.unwrap(),
                results[0].cause.clone().unwrap(),
                results[0].fitted.clone().unwrap(),
            )
        };
        let reasons = |verdict| (verdict, "the hosts".to_owned(), "the buffer".to_owned());
        assert_eq!(of(100.0), reasons(Verdict::Fitted));
        assert_eq!(of(200.0), reasons(Verdict::Differs));
        let mut given = Publication::parse("p", THREE[0]).unwrap();
        given.vacuous = Some("the link".to_owned());
        let result = &evaluate(&[given], &variants(&[("a", 100.0)]))[0];
        assert_eq!(result.verdict, Some(Verdict::Vacuous));
        assert_eq!(result.vacuous.as_deref(), Some("the link"));
        let of_an_earlier_version = PublishedResult {
            verdict: Some(Verdict::Fitted),
            cause: Some("the buffer".to_owned()),
            ..PublishedResult::default()
        };
        let text = "the buffer".to_owned();
        assert_eq!(of_an_earlier_version.reasons(), [None, Some(&text), None]);
    }

    #[test]
    fn several_seeds_are_judged_by_their_mean_and_each_by_itself() {
        use Verdict::{Agrees, OrderingOnly, Undecided};
        let mut near = Publication::parse("near", THREE[0]).unwrap();
        near.cause = Some("the hosts".to_owned());
        let lines = [near, Publication::parse("far", THREE[1]).unwrap()];
        let run = |a, b| evaluate(&lines, &variants(&[("a", a), ("b", b)]));
        let runs = [run(110.0, 300.0), run(120.0, 300.0), run(160.0, 300.0)];
        let runs: Vec<&[PublishedResult]> = runs.iter().map(Vec::as_slice).collect();
        let together = over_seeds(&runs).unwrap();
        assert_eq!(together[0].ours, Some(130.0));
        assert_eq!(together[0].verdict, Some(Undecided));
        assert_eq!(together[0].cause.as_deref(), Some("the hosts"));
        let by_seed = [Agrees, Agrees, OrderingOnly].map(Some);
        assert_eq!(together[0].by_seed, by_seed);
        // 4.303 × 26.46 / √3 (two degrees of freedom).
        let [low, high] = together[0].interval.unwrap();
        assert!((low - (130.0 - 65.72)).abs() < 0.01 && (high - (130.0 + 65.72)).abs() < 0.01);
        assert_eq!(together[1].interval, Some([300.0, 300.0]));
        assert_eq!(together[1].verdict, Some(Agrees));
        let one = over_seeds(&runs[..1]).unwrap();
        assert_eq!((one[0].interval, one[0].by_seed.len()), (None, 0));
        assert_eq!(over_seeds(&[]), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "[a-z0-9 .()<>=~+*/,é-]{0,60}") {
            if let Ok(publication) = Publication::parse("p", &text) {
                evaluate(&[publication], &[]);
            }
        }
    }
}
