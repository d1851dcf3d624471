//! `[published]`: figures beside published ones, such as `enforced.rtt_us.p50 ~ 93`, and how far
//! they agree.
//!
//! ```text
//! line        = publication | { figure = publication, cause = text, fitted = text }
//! publication = sum "~" sum                      without figures on the right
//! ```
//! with sums as in [`expect`](crate::expect).
//!
//! A figure agrees within [`TOLERANCE`]. Of figures that do not, the order may: figures of one kind
//! are those whose expressions differ in variants and in names of flows only. Published values of a
//! kind that lie within the tolerance of each other have no order. A quotient of two figures of one
//! kind is in order if both quotients are on the same side of 1.

use sluicegate_config::{problem::Complaint, table::Item};

use crate::{
    expect::{Expr, Parser, Token, tokens},
    figures::Figure,
    results::{PublishedResult, VariantResult, Verdict},
};

/// How far apart figures are that agree, as a fraction of the published one.
pub const TOLERANCE: f64 = 0.2;

/// One line of `[published]`: nothing is expected of it, it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// Key in the file.
    pub name: String,
    /// As written.
    pub expression: String,
    /// Why ours differs, as runs have shown; `None` = unknown, or it does not.
    pub cause: Option<String>,
    /// The part of the set-up that was chosen after this figure, so that agreement shows nothing.
    pub fitted: Option<String>,
    ours: Expr<Figure>,
    published: f64,
    kind: String,
    is_quotient: bool,
}

impl Publication {
    /// Reads a line: a text or a table.
    pub fn read(name: &str, item: &Item<'_>) -> Option<Self> {
        if !item.is_table() {
            return item.parse(|text| Self::parse(name, text));
        }
        let table = item.table()?;
        let read = match table.get("figure") {
            Some(figure) => figure.parse(|text| Self::parse(name, text)),
            None => {
                let example = "write for example figure = \"enforced.rtt_us.p50 ~ 93\"";
                table.require("figure", example);
                None
            }
        };
        let [cause, fitted] = ["cause", "fitted"].map(|key| table.text(key).map(str::to_owned));
        table.close();
        Some(Self {
            cause,
            fitted,
            ..read?
        })
    }

    /// Parses a text.
    ///
    /// # Errors
    /// An expression that the grammar does not allow, and at which character; a right side that is
    /// no number.
    pub fn parse(name: &str, expression: &str) -> Result<Self, Complaint> {
        let tokens = tokens(expression)?;
        let mut parser = Parser::new(&tokens);
        let ours = parser.sum()?;
        parser.sign(&[("~", ())])?;
        let published: Expr<Figure> = parser.sum()?;
        parser.end()?;
        let published = published.value(&|_| None).filter(|value| value.is_finite());
        let published = published.ok_or_else(|| {
            Complaint::new(
                "the right side is no number",
                "write the published value there, for example \"enforced.rtt_us.p50 ~ 93\"",
            )
        })?;
        let tokens: Vec<Token> = tokens.into_iter().map(|(_, token)| token).collect();
        Ok(Self {
            name: name.to_owned(),
            expression: expression.to_owned(),
            cause: None,
            fitted: None,
            kind: kind(&tokens),
            is_quotient: is_quotient(&ours, &tokens),
            ours,
            published,
        })
    }

    /// Every figure that it names.
    pub fn figures(&self) -> Vec<&Figure> {
        let mut figures = Vec::new();
        self.ours.collect_figures(&mut figures);
        figures
    }

    fn value(&self, variants: &[VariantResult]) -> Option<f64> {
        let value = self.ours.value(&|figure| figure.value(variants));
        value.filter(|value| value.is_finite())
    }
}

/// The kind of the left side: its text without variants and names of flows.
fn kind(tokens: &[Token]) -> String {
    let left = tokens
        .iter()
        .take_while(|token| **token != Token::Symbol("~"));
    let words = left.map(|token| match token {
        Token::Name(name) => {
            let mut parts: Vec<&str> = name.split('.').skip(1).collect();
            if matches!(parts.first(), Some(&"flows" | &"traffic")) && parts.len() > 1 {
                parts[1] = "*";
            }
            // A function has no dot in it.
            if parts.is_empty() {
                name.clone()
            } else {
                parts.join(".")
            }
        }
        other => other.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether it is a quotient of two figures of one kind.
fn is_quotient(ours: &Expr<Figure>, tokens: &[Token]) -> bool {
    if !matches!(ours, Expr::Binary('/', ..)) {
        return false;
    }
    let divisions = (0..tokens.len()).filter(|at| tokens[*at] == Token::Symbol("/"));
    let end = tokens.iter().position(|token| *token == Token::Symbol("~"));
    divisions.into_iter().any(|at| {
        let right = end.and_then(|end| tokens.get(at + 1..end));
        let of_figures =
            right.is_some_and(|right| right.iter().any(|t| matches!(t, Token::Name(_))));
        of_figures && right.map(kind) == Some(kind(&tokens[..at]))
    })
}

/// The measured figures beside the published ones, line by line.
pub fn evaluate(all: &[Publication], variants: &[VariantResult]) -> Vec<PublishedResult> {
    let ours: Vec<Option<f64>> = all.iter().map(|line| line.value(variants)).collect();
    let lines = all.iter().zip(&ours);
    lines
        .map(|(line, &value)| {
            let verdict = value.map(|value| {
                let kind = all
                    .iter()
                    .zip(&ours)
                    .filter(|(other, _)| other.kind == line.kind);
                let others = kind.filter_map(|(other, ours)| Some((other.published, (*ours)?)));
                verdict(line, value, others)
            });
            PublishedResult {
                name: line.name.clone(),
                expression: line.expression.clone(),
                published: line.published,
                ours: value,
                verdict,
                cause: match verdict {
                    Some(Verdict::Fitted) => line.fitted.clone(),
                    Some(Verdict::Agrees) => None,
                    _ => line.cause.clone(),
                },
            }
        })
        .collect()
}

/// How far `ours` agrees; `others` are published values of its kind with ours.
fn verdict(line: &Publication, ours: f64, others: impl Iterator<Item = (f64, f64)>) -> Verdict {
    if is_near(ours, line.published) {
        return match line.fitted {
            Some(_) => Verdict::Fitted,
            None => Verdict::Agrees,
        };
    }
    let one = line.is_quotient.then_some((1.0, 1.0));
    let mut ordered = others.chain(one).filter(|(published, _)| {
        !is_near(*published, line.published) && !is_near(line.published, *published)
    });
    let in_order = |(published, value): (f64, f64)| {
        (line.published < published) == (ours < value) && ours != value
    };
    let Some(first) = ordered.next() else {
        return Verdict::Differs;
    };
    match in_order(first) && ordered.all(in_order) {
        true => Verdict::OrderingOnly,
        false => Verdict::Differs,
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
                p50: *p50,
                ..Quantiles::default()
            },
            ..VariantResult::default()
        };
        medians.iter().map(variant).collect()
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
    fn a_quotient_has_an_order_of_its_own() {
        use Verdict::{Differs, OrderingOnly};
        let quotient = ["(a.rtt_us.p50 - c.rtt_us.p50) / (b.rtt_us.p50 - c.rtt_us.p50) ~ 100"];
        assert_eq!(
            verdicts(&quotient, [50.0, 20.0, 10.0]),
            [Some(OrderingOnly)]
        );
        assert_eq!(verdicts(&quotient, [20.0, 50.0, 10.0]), [Some(Differs)]);
        let of_numbers = ["a.rtt_us.p50 / 10 ~ 100"];
        assert_eq!(verdicts(&of_numbers, [50.0, 0.0, 0.0]), [Some(Differs)]);
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
            )
        };
        assert_eq!(of(100.0), (Verdict::Fitted, "the buffer".to_owned()));
        assert_eq!(of(200.0), (Verdict::Differs, "the hosts".to_owned()));
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
