//! `%{ assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd }%`: the part of Python that suites use.

use std::collections::BTreeMap;

/// Why code does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// An assertion does not hold: its text, and what the names in it stand for.
    False(String),
    Unknown(String),
}

/// Parentheses inside parentheses.
const DEEPEST: usize = 32;

/// Names that code has given values.
pub type Names = BTreeMap<String, i64>;

/// Runs `code`; `value` knows names beside those that code has given values.
pub fn run(
    code: &str,
    names: &mut Names,
    value: impl Fn(&str) -> Option<i64>,
) -> Result<(), Wrong> {
    for statement in statements(code) {
        let statement = statement.trim();
        let known = |name: &str| names.get(name).copied().or_else(|| value(name));
        if let Some((name, adds, expression)) = assignment(statement) {
            let mut value = Reader::new(expression, &known).whole()?;
            if adds {
                value = value.wrapping_add(Reader::new(name, &known).whole()?);
            }
            names.insert(name.to_owned(), value);
            continue;
        }
        if statement.is_empty() || statement.starts_with('#') || statement.starts_with("print") {
            continue;
        }
        let Some(rest) = statement.strip_prefix("assert") else {
            return Err(Wrong::Unknown(format!("code {statement:?}")));
        };
        let mut reader = Reader::new(condition(rest), &known);
        let holds = reader.whole()?;
        if holds == 0 {
            let used: Vec<_> = reader
                .used
                .iter()
                .map(|(name, value)| format!("{name} = {value}"))
                .collect();
            return Err(Wrong::False(format!(
                "{}; got {}",
                condition(rest).trim(),
                used.join(", ")
            )));
        }
    }
    Ok(())
}

/// `name = expression` or `name += expression`; true is the latter.
fn assignment(statement: &str) -> Option<(&str, bool, &str)> {
    let (name, expression) = statement.split_once('=')?;
    let (name, adds) = match name.strip_suffix('+') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let name = name.trim_end();
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let word = name
        .chars()
        .all(|char| char.is_ascii_alphanumeric() || char == '_');
    (begins && word && !expression.starts_with('=')).then_some((name, adds, expression))
}

/// Statements end with the line unless a bracket or a string is open.
fn statements(code: &str) -> Vec<String> {
    let joined = code.replace("\\\n", " ");
    let mut statements = vec![String::new()];
    scan(&joined, |char, plain| {
        if plain && (char == '\n' || char == ';') {
            statements.push(String::new());
        } else if let Some(last) = statements.last_mut() {
            last.push(if char == '\n' { ' ' } else { char });
        }
        true
    });
    statements
}

/// The text before the comma of an assertion's message.
fn condition(text: &str) -> &str {
    let mut len = 0;
    scan(text, |char, plain| {
        if plain && char == ',' {
            return false;
        }
        len += char.len_utf8();
        true
    });
    &text[..len]
}

/// Visits characters; the second argument is true outside of brackets and strings.
fn scan(text: &str, mut visit: impl FnMut(char, bool) -> bool) {
    let mut quote = None;
    let mut open = 0_usize;
    for char in text.chars() {
        match (quote, char) {
            (None, '\'' | '"') => quote = Some(char),
            (Some(begin), _) if begin == char => quote = None,
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') => open = open.saturating_sub(1),
            _ => (),
        }
        if !visit(char, quote.is_none() && open == 0) {
            return;
        }
    }
}

/// Reads and evaluates an expression; truth is 1 and 0.
struct Reader<'a> {
    text: &'a str,
    value: &'a dyn Fn(&str) -> Option<i64>,
    /// Names that were looked up.
    used: Vec<(String, i64)>,
    depth: usize,
}

type Number = Result<i64, Wrong>;

impl<'a> Reader<'a> {
    fn new(text: &'a str, value: &'a dyn Fn(&str) -> Option<i64>) -> Self {
        Self {
            text,
            value,
            used: Vec::new(),
            depth: 0,
        }
    }

    fn whole(&mut self) -> Number {
        let value = self.either()?;
        self.text = self.text.trim_start();
        if self.text.is_empty() {
            Ok(value)
        } else {
            self.unknown()
        }
    }

    fn unknown<T>(&self) -> Result<T, Wrong> {
        Err(Wrong::Unknown(format!("code at {:?}", self.text.trim())))
    }

    /// Takes `sign` if it comes next.
    fn accept(&mut self, sign: &str) -> bool {
        self.text = self.text.trim_start();
        let Some(rest) = self.text.strip_prefix(sign) else {
            return false;
        };
        let word = |char: char| char.is_alphanumeric() || char == '_';
        if sign.ends_with(word) && rest.starts_with(word) {
            return false;
        }
        self.text = rest;
        true
    }

    fn either(&mut self) -> Number {
        let mut value = self.both()?;
        while self.accept("or") {
            let other = self.both()?;
            value = if value != 0 { value } else { other };
        }
        Ok(value)
    }

    fn both(&mut self) -> Number {
        let mut value = self.negated()?;
        while self.accept("and") {
            let other = self.negated()?;
            value = if value == 0 { value } else { other };
        }
        Ok(value)
    }

    fn negated(&mut self) -> Number {
        let mut negate = false;
        while self.accept("not") {
            negate = !negate;
        }
        let value = self.comparison()?;
        Ok(if negate { i64::from(value == 0) } else { value })
    }

    /// `a < b <= c` holds if each part does.
    fn comparison(&mut self) -> Number {
        let mut left = self.bits()?;
        let mut holds = None;
        loop {
            let compare: fn(&i64, &i64) -> bool = if self.accept("==") {
                i64::eq
            } else if self.accept("!=") {
                i64::ne
            } else if self.accept("<=") {
                i64::le
            } else if self.accept(">=") {
                i64::ge
            } else if self.accept("<") {
                i64::lt
            } else if self.accept(">") {
                i64::gt
            } else {
                return Ok(holds.map_or(left, i64::from));
            };
            let right = self.bits()?;
            holds = Some(holds.unwrap_or(true) && compare(&left, &right));
            left = right;
        }
    }

    /// `a | b & c`
    fn bits(&mut self) -> Number {
        let mut value = self.common_bits()?;
        while self.accept("|") {
            value |= self.common_bits()?;
        }
        Ok(value)
    }

    fn common_bits(&mut self) -> Number {
        let mut value = self.sum()?;
        while self.accept("&") {
            value &= self.sum()?;
        }
        Ok(value)
    }

    fn sum(&mut self) -> Number {
        let mut value = self.product()?;
        loop {
            if self.accept("+") {
                value = value.wrapping_add(self.product()?);
            } else if self.accept("-") {
                value = value.wrapping_sub(self.product()?);
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Number {
        let mut value = self.atom()?;
        loop {
            if self.accept("*") {
                value = value.wrapping_mul(self.atom()?);
            } else if self.accept("//") {
                let by = self.atom()?;
                match value.checked_div_euclid(by) {
                    Some(quotient) if by > 0 => value = quotient,
                    _ => return self.unknown(),
                }
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Number {
        self.depth += 1;
        if self.depth > DEEPEST {
            return self.unknown();
        }
        let value = self.atom_inside();
        self.depth -= 1;
        value
    }

    fn atom_inside(&mut self) -> Number {
        if self.accept("-") {
            return Ok(self.atom()?.wrapping_neg());
        }
        if self.accept("(") {
            let value = self.either()?;
            return if self.accept(")") {
                Ok(value)
            } else {
                self.unknown()
            };
        }
        let word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let len = self
            .text
            .find(|char| !word(char))
            .unwrap_or(self.text.len());
        let (name, rest) = self.text.split_at(len);
        let value = match number(name) {
            Some(number) => Some(number),
            None => (self.value)(name).or_else(|| constant(name)),
        };
        let Some(value) = value else {
            return Err(Wrong::Unknown(format!("{name:?} in code")));
        };
        if number(name).is_none() && constant(name).is_none() {
            self.used.push((name.to_owned(), value));
        }
        self.text = rest;
        Ok(value)
    }
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Names with one meaning.
fn constant(name: &str) -> Option<i64> {
    Some(match name {
        "False" => 0,
        "True" => 1,
        "TCP_INFINITE_SSTHRESH" => 0x7fff_ffff,
        "TCP_ESTABLISHED" | "TCPI_ESTABLISHED" => 1,
        "TCP_SYN_SENT" | "TCPI_SYN_SENT" => 2,
        "TCP_SYN_RECV" | "TCPI_SYN_RECEIVED" => 3,
        "TCP_FIN_WAIT1" | "TCPI_FIN_WAIT_1" => 4,
        "TCP_FIN_WAIT2" | "TCPI_FIN_WAIT_2" => 5,
        "TCP_TIME_WAIT" | "TCPI_TIME_WAIT" => 6,
        "TCP_CLOSE" | "TCPI_CLOSED" => 7,
        "TCP_CLOSE_WAIT" | "TCPI_CLOSE_WAIT" => 8,
        "TCP_LAST_ACK" | "TCPI_LAST_ACK" => 9,
        "TCP_LISTEN" | "TCPI_LISTEN" => 10,
        "TCP_CLOSING" | "TCPI_CLOSING" => 11,
        "TCP_CA_Open" => 0,
        "TCP_CA_Disorder" => 1,
        "TCP_CA_CWR" => 2,
        "TCP_CA_Recovery" => 3,
        "TCP_CA_Loss" => 4,
        "TCPI_OPT_TIMESTAMPS" => 1,
        "TCPI_OPT_SACK" => 2,
        "TCPI_OPT_WSCALE" => 4,
        "TCPI_OPT_ECN" => 8,
        "TCPI_OPT_ECN_SEEN" => 16,
        "TCPI_OPT_SYN_DATA" => 32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str) -> Result<(), Wrong> {
        let mut names = Names::new();
        run(code, &mut names, |name| {
            (name == "tcpi_snd_cwnd").then_some(10)
        })
    }

    #[test]
    fn conditions_hold_or_do_not() {
        for code in [
            "assert tcpi_snd_cwnd == 10, tcpi_snd_cwnd",
            "assert tcpi_snd_cwnd == 10, 'cwnd=%d, %d' % (tcpi_snd_cwnd, 1)",
            "assert 9 < tcpi_snd_cwnd <= 10 and not (tcpi_snd_cwnd - 2 * 5)\nprint(tcpi_snd_cwnd)",
            "assert (tcpi_snd_cwnd == 1 or\n  tcpi_snd_cwnd // 2 == 5); assert -1 < 0",
            "# nothing",
            "half = tcpi_snd_cwnd // 2\nhalf += 1\nassert half == 6 and half < tcpi_snd_cwnd",
            "printed = 3; print(printed); assert printed == 3",
        ] {
            assert_eq!(check(code), Ok(()), "{code}");
        }
        let wrong = Wrong::False("tcpi_snd_cwnd > 10; got tcpi_snd_cwnd = 10".to_owned());
        assert_eq!(check("assert tcpi_snd_cwnd > 10, 'x'"), Err(wrong));
        let wrong = Wrong::False("x > 3; got x = 3".to_owned());
        assert_eq!(check("x = 3; assert x > 3"), Err(wrong));
    }

    #[test]
    fn other_code_is_unknown() {
        for code in [
            "import os",
            "assert tcpi_none == 1",
            "assert 1 +",
            "assert 1 // 0",
            "assert f(1)",
            "x = none",
            "x += 1",
            "assert",
        ] {
            assert!(matches!(check(code), Err(Wrong::Unknown(_))), "{code}");
        }
        assert!(check(&format!("assert {}1", "(".repeat(10_000))).is_err());
        assert!(check(&format!("assert {}1", "-".repeat(10_000))).is_err());
    }
}
