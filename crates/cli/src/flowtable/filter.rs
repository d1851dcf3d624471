//! Which flows are shown: words that all must hold.
//!
//! | word | holds for |
//! |---|---|
//! | `text` | flows with this in one of their names (interface, tenant, ends, mode, reason, algorithm) |
//! | `column=text`, `column~text` | flows whose column is, or has in it, this text; of several words in `why`, one |
//! | `column<number`, `<=`, `=`, `>=`, `>` | numbers; K, M and G are powers of 1024 for bytes and of 1000 else |
//! | `!word`, `column!=value` | all others |

use std::fmt;

use super::{Column, Row, Value};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    words: Vec<Word>,
}

#[derive(Clone, Debug, PartialEq)]
struct Word {
    negated: bool,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Anywhere(String),
    Is(Column, String),
    Has(Column, String),
    Compares(Column, Operator, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// Longer ones before their beginnings.
const OPERATORS: [(&str, Operator); 5] = [
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

/// An error in a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem(String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Problem {}

impl std::str::FromStr for Filter {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let words = text.split_whitespace().map(Word::read);
        Ok(Self {
            words: words.collect::<Result<_, _>>()?,
        })
    }
}

impl Filter {
    /// Only flows whose `column` is `text`, too.
    pub fn and_is(mut self, column: Column, text: &str) -> Self {
        self.words.push(Word {
            negated: false,
            test: Test::Is(column, text.to_lowercase()),
        });
        self
    }

    /// Whether this flow is shown.
    pub fn holds(&self, row: &Row) -> bool {
        self.words
            .iter()
            .all(|word| word.test.holds(row) != word.negated)
    }
}

impl Word {
    fn read(text: &str) -> Result<Self, Problem> {
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        // `column!=text` as people write it.
        let (negated, text) = match text.split_once("!=") {
            Some((name, wanted)) => (!negated, format!("{name}={wanted}")),
            None => (negated, text.to_owned()),
        };
        let test = Test::read(&text)?;
        Ok(Self { negated, test })
    }
}

impl Test {
    fn read(text: &str) -> Result<Self, Problem> {
        let Some(at) = text.find(['<', '>', '=', '~']) else {
            return Ok(Self::Anywhere(text.to_lowercase()));
        };
        let (name, rest) = text.split_at(at);
        let column = Column::named(name).ok_or_else(|| unknown(name))?;
        if let Some(wanted) = rest.strip_prefix('~') {
            return Ok(Self::Has(column, wanted.to_lowercase()));
        }
        let operator = OPERATORS.iter().find_map(|(sign, operator)| {
            let wanted = rest.strip_prefix(sign)?;
            Some((*operator, wanted))
        });
        let (operator, wanted) =
            operator.ok_or_else(|| Problem(format!("`{text}`: no operator")))?;
        match (column.is_number(), operator) {
            (true, _) => Ok(Self::Compares(column, operator, number(column, wanted)?)),
            (false, Operator::Equal) => Ok(Self::Is(column, wanted.to_lowercase())),
            (false, _) => Err(Problem(format!(
                "`{text}`: {name} holds names; = and ~ compare names"
            ))),
        }
    }

    fn holds(&self, row: &Row) -> bool {
        match self {
            Self::Anywhere(wanted) => Column::ALL
                .into_iter()
                .filter(|column| !column.is_number())
                .any(|column| text(column, row).contains(wanted)),
            Self::Is(Column::Why, wanted) => {
                text(Column::Why, row).split(',').any(|word| word == wanted)
            }
            Self::Is(column, wanted) => text(*column, row) == *wanted,
            Self::Has(column, wanted) => text(*column, row).contains(wanted),
            Self::Compares(column, operator, wanted) => match column.value(row) {
                Value::Number(number) => operator.holds(number, *wanted),
                _ => false,
            },
        }
    }
}

impl Operator {
    fn holds(self, number: f64, wanted: f64) -> bool {
        match self {
            Self::Less => number < wanted,
            Self::LessOrEqual => number <= wanted,
            Self::Equal => number == wanted,
            Self::GreaterOrEqual => number >= wanted,
            Self::Greater => number > wanted,
        }
    }
}

fn text(column: Column, row: &Row) -> String {
    match column.value(row) {
        Value::Text(text) => text.to_lowercase(),
        Value::None => String::new(),
        Value::Number(_) => column.cell(row).to_lowercase(),
    }
}

/// With a unit or without.
fn number(column: Column, text: &str) -> Result<f64, Problem> {
    let step: f64 = match column {
        Column::Sending | Column::Receiving => 1000.0,
        _ => 1024.0,
    };
    let units = [('k', 1), ('m', 2), ('g', 3)];
    let lower = text.to_lowercase();
    let unit = units.iter().find_map(|(letter, power)| {
        let digits = lower.strip_suffix(*letter)?;
        Some((digits, step.powi(*power)))
    });
    let (digits, factor) = unit.unwrap_or((&lower, 1.0));
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * factor),
        _ => Err(Problem(format!(
            "`{text}` is no number to compare {} with (500, 1.5M)",
            column.name()
        ))),
    }
}

fn unknown(name: &str) -> Problem {
    let names: Vec<String> = Column::ALL.iter().map(|column| column.name()).collect();
    Problem(format!(
        "no column `{name}`; there are {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowtable::{Rates, tests::row};

    fn holds(filter: &str) -> bool {
        let mut row = row("veth-web", 40_000);
        row.rates = Some(Rates {
            acked_bps: 2e6,
            ..Rates::default()
        });
        filter.parse::<Filter>().unwrap().holds(&row)
    }

    #[test]
    fn all_words_must_hold() {
        assert!(holds(""));
        assert!(holds("WEB"));
        assert!(holds("web 40000 dctcp"));
        assert!(!holds("web 40001"));
        assert!(holds("!db !interface=veth-db"));
        assert!(!holds("!web"));
    }

    #[test]
    fn names_are_equal_or_have_a_part() {
        assert!(holds("interface=VETH-web"));
        assert!(!holds("interface=veth"));
        assert!(holds("interface~veth"));
        assert!(holds("mode!=two-sided") && !holds("mode!=one-sided"));
    }

    #[test]
    fn each_word_of_why_is_found() {
        let mut row = row("veth-web", 40_000);
        row.flow.noticed = vec!["lenient", "strangers"];
        for (filter, held) in [
            ("why=observe", true),
            ("why=strangers", true),
            ("why=stranger", false),
            ("why~stranger", true),
            ("why!=lenient", false),
        ] {
            assert_eq!(
                filter.parse::<Filter>().unwrap().holds(&row),
                held,
                "{filter}"
            );
        }
    }

    #[test]
    fn numbers_have_the_units_of_their_column() {
        assert!(holds("allowed=20k"));
        assert!(holds("allowed>=20K") && !holds("allowed>20K"));
        assert!(holds("sending=2m") && holds("sending<=2M") && !holds("sending<2M"));
        assert!(holds("srtt<251"));
        assert!(!holds("receiving>0"));
    }

    #[test]
    fn what_has_no_value_fulfils_no_comparison() {
        let mut quiet = row("a", 1);
        quiet.flow.srtt_us = None;
        for filter in ["srtt>0", "srtt<=0", "sending>=0"] {
            assert!(!filter.parse::<Filter>().unwrap().holds(&quiet), "{filter}");
        }
    }

    #[test]
    fn errors_say_what_is_there() {
        let problem = |filter: &str| filter.parse::<Filter>().unwrap_err().to_string();
        assert!(problem("speed>1").contains("no column `speed`; there are interface, tenant"));
        assert!(problem("srtt>fast").contains("`fast` is no number"));
        assert!(problem("srtt>inf").contains("is no number"));
        assert!(problem("mode>x").contains("holds names"));
        assert!(problem("=x").contains("no column ``"));
    }
}
