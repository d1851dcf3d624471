//! `[expect]`: comparisons of arithmetic over figures, such as `enforced.rtt_us.p50 <= 1.2 *
//! dctcp.rtt_us.p50`.
//!
//! ```text
//! expectation = [over] sum ("<=" | ">=" | "<" | ">" | "==") sum      over: see `claim`
//! sum         = product (("+" | "-") product)*
//! product     = unary (("*" | "/") unary)*
//! unary       = "-" unary | number | figure | ("min" | "max") "(" sum ("," sum)* ")" | "abs" "(" sum ")" | "(" sum ")"
//! figure      = variant ("." name)+              see [`figures`](crate::figures)
//! ```
//!
//! A `-` inside a name belongs to it: write spaces round a minus.
//!
//! The caller of the parser defines what a figure is ([`Leaf`]): the expectations of a
//! [`sweep`](crate::sweep) have other figures in the same arithmetic.

use std::fmt;

use sluicegate_config::{Problem, problem::Complaint};

use crate::{
    claim::{self, Over, Side},
    figures::{Figure, Quantity},
    places::Places,
    results::{ExpectationResult, VariantResult},
};

/// One line of `[expect]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Key in the file.
    pub name: String,
    /// The expression as written.
    pub expression: String,
    /// The only world that it is for; `None` = all but `except`.
    pub only: Option<&'static str>,
    /// Worlds that have a line of their own of this name.
    pub except: Vec<&'static str>,
    /// Where it stands.
    pub(crate) places: Places,
    over: Over,
    left: Expr<Figure>,
    comparison: Comparison,
    right: Expr<Figure>,
}

/// The symbol between two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
    Equal,
}

/// A figure of some language of expectations.
pub(crate) trait Leaf: Sized {
    /// From its name, and what stood in brackets behind it.
    fn parse(name: &str, selector: Option<&str>) -> Result<Self, Complaint>;

    /// A name without what figures of one kind differ in: names of variants and flows. Names of
    /// functions stay.
    fn kind(name: &str) -> String;
}

/// A name without that of its flows.
pub(crate) fn without_flows<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut parts: Vec<&str> = parts.collect();
    if matches!(parts.first(), Some(&"flows" | &"traffic")) && parts.len() > 1 {
        parts[1] = "*";
    }
    parts.join(".")
}

impl Leaf for Figure {
    fn parse(name: &str, selector: Option<&str>) -> Result<Self, Complaint> {
        match selector {
            None => Figure::parse(name),
            Some(selector) => Err(Complaint::new(
                format!("`[{selector}]` means nothing here"),
                "only the figures of [sweep.expect] and [sweep.published] select cells",
            )),
        }
    }

    fn kind(name: &str) -> String {
        match name.split_once('.') {
            Some((_variant, figure)) => without_flows(figure.split('.')),
            None => name.to_owned(),
        }
    }
}

/// Arithmetic over figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr<F> {
    Number(f64),
    Figure(F),
    Negate(Box<Expr<F>>),
    Binary(char, Box<Expr<F>>, Box<Expr<F>>),
    Call(Function, Vec<Expr<F>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Min,
    Max,
    Abs,
}

/// Deepest nesting of an expression, so that a hostile file cannot exhaust the stack.
const DEPTH_MAX: usize = 64;

impl Expectation {
    /// Parses one line.
    ///
    /// # Errors
    /// An expression that the grammar does not allow, and at which character.
    pub fn parse(name: &str, expression: &str) -> Result<Self, Complaint> {
        let tokens = tokens(expression)?;
        let mut parser = Parser::new(&tokens);
        let over = Over::parse(&mut parser)?;
        let left = parser.sum()?;
        let comparison = parser.sign(&Comparison::ALL)?;
        let right = parser.sum()?;
        parser.end()?;
        if (over, comparison) == (Over::Means, Comparison::Equal) {
            return Err(Complaint::new(
                "no interval shows that means are equal",
                "write `in all runs` before it, or two lines that bound a ratio",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            expression: expression.to_owned(),
            only: None,
            except: Vec::new(),
            places: Places::default(),
            over,
            left,
            comparison,
            right,
        })
    }

    /// Whether it says anything of this world.
    pub fn is_for(&self, world: &str) -> bool {
        match self.only {
            Some(only) => only == world,
            None => !self.except.contains(&world),
        }
    }

    /// A problem of this line, for a world that cannot measure what it compares.
    pub fn problem(&self, reason: &str, advice: &str) -> Problem {
        let world = self.only.map_or(String::new(), |world| format!("{world}."));
        let name = format!("expect.{world}{}", self.name);
        self.places.problem_of_first(&name, reason, advice)
    }

    /// Every figure that it names.
    pub fn figures(&self) -> Vec<&Figure> {
        let mut figures = Vec::new();
        self.left.collect_figures(&mut figures);
        self.right.collect_figures(&mut figures);
        figures
    }

    /// Whether it holds whatever its figures are, once they were measured, such as `figure >= 0`.
    pub fn always_holds(&self) -> bool {
        let (small, large) = match self.comparison {
            Comparison::LessOrEqual => (&self.left, &self.right),
            Comparison::GreaterOrEqual => (&self.right, &self.left),
            _ => return false,
        };
        let is_low = small.value(&|_| None).is_some_and(|bound| bound <= 0.0);
        self.over == Over::Together && is_low && large.is_never_negative()
    }

    /// Whether it speaks of the machine's CPUs, which simulated time does not depend on.
    pub fn is_of_cpu(&self) -> bool {
        let figures = self.figures();
        figures.iter().any(|f| f.quantity == Quantity::CpuIdleMin)
    }

    /// Whether it speaks of single runs, so that it needs several.
    pub fn is_of_runs(&self) -> bool {
        self.over != Over::Together
    }

    /// Says what the results make of it: those of all runs together, or, where it speaks of single
    /// runs, those of `runs`. A figure that was not measured, or a division by zero, makes it not
    /// hold.
    pub fn evaluate(
        &self,
        together: &[VariantResult],
        runs: &[Vec<VariantResult>],
    ) -> ExpectationResult {
        let result = ExpectationResult {
            name: self.name.clone(),
            expression: self.expression.clone(),
            ..ExpectationResult::default()
        };
        let each = || runs.iter().map(|run| self.sides(run));
        match self.over {
            Over::Together => {
                let (left, right) = self.sides(together);
                ExpectationResult {
                    left,
                    right,
                    held: self.judge((left, right)) == Some(true),
                    ..result
                }
            }
            Over::Means => {
                let (left, right): (Vec<_>, Vec<_>) = each().unzip();
                let (left, right) = (Side::of(&left), Side::of(&right));
                let both = left.zip(right);
                ExpectationResult {
                    left: left.map(|side| side.mean),
                    left_interval: left.map(|side| side.bounds()),
                    right: right.map(|side| side.mean),
                    right_interval: right.map(|side| side.bounds()),
                    held: both.is_some_and(|(l, r)| Over::compare(self.comparison, l, r)),
                    ..result
                }
            }
            Over::Share { least, most } => {
                let each: Vec<Option<bool>> = each().map(|sides| self.judge(sides)).collect();
                let (share, held) = claim::judge_share(&each, least, most);
                ExpectationResult {
                    left: share,
                    right: Some(least),
                    upper: Some(most),
                    held,
                    ..result
                }
            }
        }
    }

    fn sides(&self, variants: &[VariantResult]) -> (Option<f64>, Option<f64>) {
        let figure = |figure: &Figure| figure.value(variants);
        let value = |side: &Expr<Figure>| side.value(&figure).filter(|value| value.is_finite());
        (value(&self.left), value(&self.right))
    }

    /// Whether it holds for these sides; `None` if one was not measured.
    fn judge(&self, (left, right): (Option<f64>, Option<f64>)) -> Option<bool> {
        let (left, right) = left.zip(right)?;
        Some(self.comparison.holds(left, right))
    }
}

impl Comparison {
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("<", Self::Less),
        (">", Self::Greater),
        ("==", Self::Equal),
    ];

    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::LessOrEqual => left <= right,
            Self::GreaterOrEqual => left >= right,
            Self::Less => left < right,
            Self::Greater => left > right,
            Self::Equal => left == right,
        }
    }
}

impl<F> Expr<F> {
    /// Its value, where `of` says what a figure is.
    pub(crate) fn value(&self, of: &dyn Fn(&F) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Self::Number(value) => *value,
            Self::Figure(figure) => of(figure)?,
            Self::Negate(inner) => -inner.value(of)?,
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.value(of)?, right.value(of)?);
                match operator {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    _ => left / right,
                }
            }
            Self::Call(function, arguments) => {
                let values: Option<Vec<f64>> = arguments.iter().map(|a| a.value(of)).collect();
                function.apply(&values?)
            }
        })
    }

    /// The same of other figures.
    pub(crate) fn map(&self, of: &dyn Fn(&F) -> F) -> Self {
        match self {
            Self::Number(value) => Self::Number(*value),
            Self::Figure(figure) => Self::Figure(of(figure)),
            Self::Negate(inner) => Self::Negate(Box::new(inner.map(of))),
            Self::Binary(operator, left, right) => {
                Self::Binary(*operator, Box::new(left.map(of)), Box::new(right.map(of)))
            }
            Self::Call(function, arguments) => {
                Self::Call(*function, arguments.iter().map(|a| a.map(of)).collect())
            }
        }
    }

    /// Adds every figure that it names.
    pub(crate) fn collect_figures<'a>(&'a self, figures: &mut Vec<&'a F>) {
        match self {
            Self::Number(_) => {}
            Self::Figure(figure) => figures.push(figure),
            Self::Negate(inner) => inner.collect_figures(figures),
            Self::Binary(_, left, right) => {
                left.collect_figures(figures);
                right.collect_figures(figures);
            }
            Self::Call(_, arguments) => {
                for argument in arguments {
                    argument.collect_figures(figures);
                }
            }
        }
    }
}

impl Expr<Figure> {
    /// Whether it is known to be 0 or more: so is every figure but those that are derived.
    fn is_never_negative(&self) -> bool {
        match self {
            Self::Number(value) => *value >= 0.0,
            Self::Figure(figure) => !matches!(figure.quantity, Quantity::Derived(_)),
            Self::Negate(_) | Self::Binary('-', ..) => false,
            Self::Binary(_, left, right) => left.is_never_negative() && right.is_never_negative(),
            Self::Call(Function::Abs, _) => true,
            Self::Call(_, all) => all.iter().all(Self::is_never_negative),
        }
    }
}

impl Function {
    fn named(name: &str) -> Option<Self> {
        match name {
            "min" => Some(Self::Min),
            "max" => Some(Self::Max),
            "abs" => Some(Self::Abs),
            _ => None,
        }
    }

    /// `values` is not empty: the grammar sees to it.
    fn apply(self, values: &[f64]) -> f64 {
        match self {
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Abs => values[0].abs(),
        }
    }
}

/// A piece of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Number(f64),
    Name(String),
    /// The text in brackets behind a name.
    Selector(String),
    Symbol(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => write!(f, "{value}"),
            Self::Name(name) => f.write_str(name),
            Self::Selector(text) => write!(f, "[{text}]"),
            Self::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

const SYMBOLS: [&str; 13] = [
    "<=", ">=", "==", "<", ">", "~", "+", "-", "*", "/", "(", ")", ",",
];

/// Tokens with the character (from 1) at which each starts.
pub(crate) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Complaint> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let at = text[..text.len() - rest.len()].chars().count() + 1;
        let (token, length) = if first.is_ascii_digit() {
            number(rest, at)?
        } else if first == '[' {
            selector(rest, at)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = name_length(rest);
            (Token::Name(rest[..length].to_owned()), length)
        } else {
            let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
            let symbol = symbol.ok_or_else(|| {
                Complaint::new(
                    format!("character {at} (`{first}`) means nothing here"),
                    "compare two figures, for example \"enforced.rtt_us.p50 <= 150\"",
                )
            })?;
            (Token::Symbol(symbol), symbol.len())
        };
        tokens.push((at, token));
        rest = &rest[length..];
    }
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), Complaint> {
    let length = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(rest.len());
    let digits = rest[..length].replace('_', "");
    let value = digits.parse().map_err(|_| {
        Complaint::new(
            format!("`{digits}` at character {at} is not a number"),
            "write for example 0.98",
        )
    })?;
    Ok((Token::Number(value), length))
}

/// The text in brackets, quotes and all; a bracket in quotes does not end it.
fn selector(rest: &str, at: usize) -> Result<(Token, usize), Complaint> {
    let mut quoted = false;
    for (index, c) in rest.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ']' if !quoted => {
                return Ok((Token::Selector(rest[1..index].to_owned()), index + 1));
            }
            _ => {}
        }
    }
    Err(Complaint::new(
        format!("the bracket at character {at} is not closed"),
        "write for example fct_us.query.mean[pfc=on]",
    ))
}

/// Letters, digits, `_` and `.`, and a `-` between two of them.
fn name_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let in_name = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
    };
    let mut length = 0;
    while in_name(length) || (matches!(bytes.get(length), Some(b'.' | b'-')) && in_name(length + 1))
    {
        length += 1;
    }
    length
}

/// Reads [`tokens`] from left to right.
pub(crate) struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(tokens: &'a [(usize, Token)]) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
        }
    }

    /// Passes over this word, if it is next.
    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Name(name)) if name == word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Passes over text in brackets, if it is next.
    pub(crate) fn take_selector(&mut self) -> Option<String> {
        let selector = match self.peek() {
            Some(Token::Selector(text)) => Some(text.clone()),
            _ => None,
        };
        self.at += usize::from(selector.is_some());
        selector
    }

    /// How many tokens are left.
    pub(crate) fn left(&self) -> usize {
        self.tokens.len() - self.at
    }

    /// That nothing is left.
    pub(crate) fn end(&self) -> Result<(), Complaint> {
        match self.at < self.tokens.len() {
            true => Err(self.unexpected("the end")),
            false => Ok(()),
        }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn take_symbol(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Symbol(symbol)) = self.peek() else {
            return None;
        };
        let symbol = symbols.contains(symbol).then_some(*symbol)?;
        self.at += 1;
        Some(symbol)
    }

    pub(crate) fn unexpected(&self, expected: &str) -> Complaint {
        let found = match self.tokens.get(self.at) {
            Some((at, token)) => format!("`{token}` at character {at}"),
            None => "the end".to_owned(),
        };
        Complaint::new(
            format!("found {found} instead of {expected}"),
            "write for example \"enforced.rtt_us.p50 <= 1.2 * dctcp.rtt_us.p50\"",
        )
    }

    /// Takes the symbol between two sides and returns its meaning.
    pub(crate) fn sign<T: Copy>(&mut self, signs: &[(&'static str, T)]) -> Result<T, Complaint> {
        let symbols: Vec<_> = signs.iter().map(|(symbol, _)| *symbol).collect();
        let found = match self.take_symbol(&symbols) {
            None => None,
            Some(taken) => signs.iter().find(|(symbol, _)| *symbol == taken),
        };
        found.map(|(_, sign)| *sign).ok_or_else(|| {
            let list = symbols.join(" ");
            match symbols.len() {
                1 => self.unexpected(&list),
                _ => self.unexpected(&format!("one of {list}")),
            }
        })
    }

    pub(crate) fn sum<F: Leaf>(&mut self) -> Result<Expr<F>, Complaint> {
        self.chain(&["+", "-"], Self::product)
    }

    fn product<F: Leaf>(&mut self) -> Result<Expr<F>, Complaint> {
        self.chain(&["*", "/"], Self::unary)
    }

    /// Left-associative operators over `operand`.
    fn chain<F: Leaf>(
        &mut self,
        operators: &[&'static str],
        operand: fn(&mut Self) -> Result<Expr<F>, Complaint>,
    ) -> Result<Expr<F>, Complaint> {
        let mut left = operand(self)?;
        let mut length = 0;
        while let Some(operator) = self.take_symbol(operators) {
            let right = operand(self)?;
            let operator = operator.chars().next().unwrap_or('+');
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
            length += 1;
            if length > DEPTH_MAX {
                return Err(self.unexpected("a shorter expression"));
            }
        }
        Ok(left)
    }

    fn unary<F: Leaf>(&mut self) -> Result<Expr<F>, Complaint> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.unexpected("fewer nested parentheses"));
        }
        let result = self.unary_inner();
        self.depth -= 1;
        result
    }

    fn unary_inner<F: Leaf>(&mut self) -> Result<Expr<F>, Complaint> {
        if self.take_symbol(&["-"]).is_some() {
            return Ok(Expr::Negate(Box::new(self.unary()?)));
        }
        if self.take_symbol(&["("]).is_some() {
            let inner = self.sum()?;
            return self.closed(inner);
        }
        match self.peek().cloned() {
            Some(Token::Number(value)) => {
                self.at += 1;
                Ok(Expr::Number(value))
            }
            Some(Token::Name(name)) => {
                self.at += 1;
                match Function::named(&name) {
                    Some(function) => self.call(function),
                    None => self.figure(&name),
                }
            }
            _ => Err(self.unexpected("a number or a figure")),
        }
    }

    fn figure<F: Leaf>(&mut self, name: &str) -> Result<Expr<F>, Complaint> {
        let selector = self.take_selector();
        F::parse(name, selector.as_deref()).map(Expr::Figure)
    }

    fn call<F: Leaf>(&mut self, function: Function) -> Result<Expr<F>, Complaint> {
        if self.take_symbol(&["("]).is_none() {
            return Err(self.unexpected("("));
        }
        let mut arguments = vec![self.sum()?];
        while function != Function::Abs && self.take_symbol(&[","]).is_some() {
            arguments.push(self.sum()?);
        }
        self.closed(Expr::Call(function, arguments))
    }

    fn closed<F>(&mut self, inner: Expr<F>) -> Result<Expr<F>, Complaint> {
        match self.take_symbol(&[")"]) {
            Some(_) => Ok(inner),
            None => Err(self.unexpected(")")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::results::{Goodput, Quantiles};

    fn variants() -> Vec<VariantResult> {
        let variant = |name: &str, p50: f64, jain: f64| VariantResult {
            name: name.to_owned(),
            rtt_us: Quantiles {
                p50: Some(p50),
                ..Quantiles::default()
            },
            goodput_bps: Goodput {
                jain: Some(jain),
                max: Some(0.0),
                sum: 1e9,
                mean: Some(2e8),
            },
            ..VariantResult::default()
        };
        vec![
            variant("dctcp", 100.0, 0.99),
            variant("n4-enforced", 110.0, 0.995),
        ]
    }

    #[test]
    fn lines_that_no_value_breaks_are_known() {
        for (line, always) in [
            ("dctcp.rtt_us.p50 >= 0", true),
            ("0 <= dctcp.rtt_us.p50 + dctcp.links.all.drops", true),
            ("dctcp.rtt_us.p50 > 0", false),
            ("dctcp.rtt_us.p50 >= 1", false),
            ("dctcp.rtt_us.p50 <= 0", false),
            ("dctcp.rtt_us.p50 - 3 >= 0", false),
            ("dctcp.derived.window_correlation >= 0", false),
        ] {
            let expectation = Expectation::parse("e", line).unwrap();
            assert_eq!(expectation.always_holds(), always, "{line}");
        }
    }

    fn evaluate(expression: &str) -> ExpectationResult {
        let expectation = Expectation::parse("e", expression);
        expectation
            .unwrap_or_else(|c| panic!("{expression}: {c}"))
            .evaluate(&variants(), &[])
    }

    /// Runs with these medians of two variants.
    fn over_runs(expression: &str, medians: &[(f64, f64)]) -> ExpectationResult {
        let runs: Vec<Vec<VariantResult>> = (medians.iter())
            .map(|(dctcp, enforced)| {
                let mut run = variants();
                run[0].rtt_us.p50 = Some(*dctcp);
                run[1].rtt_us.p50 = Some(*enforced);
                run
            })
            .collect();
        let expectation = Expectation::parse("e", expression).unwrap();
        assert!(expectation.is_of_runs());
        expectation.evaluate(&variants(), &runs)
    }

    #[test]
    fn a_significant_line_compares_intervals_and_not_means() {
        let line = "significantly dctcp.rtt_us.p50 < n4-enforced.rtt_us.p50";
        let apart = over_runs(line, &[(10.0, 20.0), (11.0, 21.0), (12.0, 22.0)]);
        assert!(apart.held);
        assert_eq!((apart.left, apart.right), (Some(11.0), Some(21.0)));
        // 4.303 / √3 on each side.
        let [low, high] = apart.left_interval.unwrap();
        assert!((low - 8.516).abs() < 1e-3 && (high - 13.484).abs() < 1e-3);
        // The means have the same order, but the intervals overlap.
        let overlapping = [(10.0, 12.0), (14.0, 16.0), (18.0, 20.0)];
        assert!(!over_runs(line, &overlapping).held);
        // Each run says the same: a difference of one run's figures is what is meant.
        let paired = "significantly dctcp.rtt_us.p50 / n4-enforced.rtt_us.p50 < 1";
        assert!(over_runs(paired, &overlapping).held);
        let one = over_runs(line, &[(10.0, 20.0)]);
        assert_eq!((one.left, one.held), (None, false));
        let zero = "significantly dctcp.rtt_us.p50 / n4-enforced.rtt_us.p50 < 1";
        assert!(!over_runs(zero, &[(1.0, 2.0), (1.0, 0.0), (1.0, 2.0)]).held);
    }

    #[test]
    fn a_share_of_runs_lies_between_its_bounds() {
        let runs = [(1.0, 2.0), (3.0, 2.0), (4.0, 2.0), (5.0, 2.0)];
        for (line, held) in [
            (
                "in 0.2 to 0.5 of runs dctcp.rtt_us.p50 < n4-enforced.rtt_us.p50",
                true,
            ),
            (
                "in at least 0.5 of runs dctcp.rtt_us.p50 < n4-enforced.rtt_us.p50",
                false,
            ),
            (
                "in at most 0.2 of runs dctcp.rtt_us.p50 < n4-enforced.rtt_us.p50",
                false,
            ),
            ("in all runs n4-enforced.rtt_us.p50 == 2", true),
            ("in all runs dctcp.rtt_us.p50 >= 3", false),
        ] {
            let result = over_runs(line, &runs);
            assert_eq!(result.held, held, "{line}");
            let shares = (result.left, result.upper.is_some());
            assert!(
                line.contains("all") || shares == (Some(0.25), true),
                "{line}"
            );
        }
        assert!(!over_runs("in at most 1 of runs 1 < 2", &[]).held);
    }

    #[test]
    fn means_are_never_shown_to_be_equal() {
        let complaint = Expectation::parse("e", "significantly 1 == 1").unwrap_err();
        assert!(complaint.reason.contains("no interval"), "{complaint}");
    }

    #[test]
    fn ratios_between_variants() {
        let result = evaluate("n4-enforced.rtt_us.p50 <= 1.2 * dctcp.rtt_us.p50");
        assert_eq!((result.left, result.right), (Some(110.0), Some(120.0)));
        assert!(result.held);
        assert!(!evaluate("n4-enforced.rtt_us.p50 < dctcp.rtt_us.p50").held);
    }

    #[test]
    fn arithmetic_binds_as_usual() {
        for (expression, value) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("24 / 4 / 2", 3.0),
            ("-2 * -3", 6.0),
            ("4-3", 1.0),
            ("1_000.5", 1000.5),
            ("max(1, 2, dctcp.goodput_bps.jain) - min(3, 4)", -1.0),
            ("abs(1 - 3)", 2.0),
            ("dctcp.rtt_us.p50 - 1", 99.0),
        ] {
            assert_eq!(
                evaluate(&format!("{expression} == 0")).left,
                Some(value),
                "{expression}"
            );
        }
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let result = evaluate("cubic.rtt_us.p50 >= 0");
        assert_eq!((result.left, result.held), (None, false));
        assert!(!evaluate("1 / 0 >= 0").held);
    }

    #[test]
    fn errors_name_the_character() {
        for (expression, expected) in [
            ("", "the end instead of a number"),
            ("1", "instead of one of <= >= < > =="),
            ("1 <= 2 3", "`3` at character 8 instead of the end"),
            ("1 <= (2", "the end instead of )"),
            ("1 <= 2 $", "character 8 (`$`)"),
            ("1.2.3 < 4", "`1.2.3` at character 1"),
            ("é < 4", "character 1 (`é`)"),
            ("max 3 < 4", "`3` at character 5 instead of ("),
            ("dctcp < 4", "names no figure"),
            ("dctcp.rtt.p50 < 4", "rtt_us"),
            ("dctcp.rtt_us.p50 ~ 4", "instead of one of <="),
        ] {
            let complaint = Expectation::parse("e", expression).unwrap_err();
            assert!(
                complaint.to_string().contains(expected),
                "{expression}: {complaint}"
            );
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(Expectation::parse("e", &"(".repeat(10_000)).is_err());
        assert!(Expectation::parse("e", &"-".repeat(10_000)).is_err());
        assert!(Expectation::parse("e", &format!("1{} < 2", "+1".repeat(10_000))).is_err());
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "[a-z0-9 .()<>=~+*/,é-]{0,60}") {
            if let Ok(expectation) = Expectation::parse("e", &text) {
                expectation.evaluate(&variants(), &[variants(), variants()]);
            }
        }
    }
}
