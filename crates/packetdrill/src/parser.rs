//! From tokens to a [`Script`]: the grammar of packetdrill.

mod calls;
mod icmp;
mod packets;

use crate::{
    Step, Stop,
    lexer::{self, Kind, Token},
    model::{Action, Event, Script, When},
    time::parse_seconds,
};

/// Definitions inside definitions are not looked up, so that this much is plenty.
const MOST_TOKENS: usize = 1_000_000;

/// Reads a script; `defines` are those of the caller.
pub fn parse(text: &str, defines: &[(String, String)]) -> Step<Script> {
    let mut script = Script::default();
    let mut tokens = Vec::new();
    let mut defines = defines.to_vec();
    for Token { line, kind } in lexer::tokens(text)? {
        match kind {
            Kind::Option(name, value) if name == "define" => {
                let pair = value.as_deref().and_then(|value| value.split_once('='));
                let Some((word, meaning)) = pair else {
                    return Stop::unsupported(line, "syntax: --define=NAME=VALUE is meant");
                };
                defines.push((word.to_owned(), meaning.to_owned()));
            }
            Kind::Option(name, value) => script.options.push((line, name, value)),
            Kind::Word(word) => tokens.extend(define(&defines, line, word)?),
            kind => tokens.push(Token { line, kind }),
        }
        if tokens.len() > MOST_TOKENS {
            return Stop::unsupported(line, "the script is too long");
        }
    }
    let mut parser = Parser { tokens, at: 0 };
    while let Some(Kind::Shell(command)) = parser.peek().cloned() {
        script.setup.push((parser.line(), command));
        parser.at += 1;
    }
    while parser.peek().is_some() {
        if parser.is_cleanup() {
            break;
        }
        script.events.push(parser.event()?);
    }
    Ok(script)
}

/// The meaning of a word: the last definition of it, or itself.
fn define(defines: &[(String, String)], line: usize, word: String) -> Step<Vec<Token>> {
    let Some((_, meaning)) = defines.iter().rev().find(|(name, _)| *name == word) else {
        let kind = Kind::Word(word);
        return Ok(vec![Token { line, kind }]);
    };
    let mut tokens = lexer::tokens(meaning)?;
    for token in &mut tokens {
        token.line = line;
    }
    Ok(tokens)
}

/// Where in the tokens reading has got to.
struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn peek_at(&self, ahead: usize) -> Option<&Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    /// The line of the next token, or of the last one.
    fn line(&self) -> usize {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    fn is_symbol(&self, symbol: char) -> bool {
        self.peek() == Some(&Kind::Symbol(symbol))
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Word(next)) if next == word)
    }

    /// Takes `symbol` if it comes next.
    fn accept(&mut self, symbol: char) -> bool {
        let found = self.is_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: char) -> Step {
        if self.accept(symbol) {
            return Ok(());
        }
        self.wrong(&format!("{symbol}"))
    }

    /// The next token is not what the grammar wants.
    fn wrong<T>(&self, wanted: &str) -> Step<T> {
        let got = match self.peek() {
            None => "the end".to_owned(),
            Some(Kind::Word(word)) => word.clone(),
            Some(Kind::Integer(number)) => number.to_string(),
            Some(Kind::Decimal(number)) => number.clone(),
            Some(Kind::Symbol(symbol)) => symbol.to_string(),
            Some(Kind::Ellipsis) => "...".to_owned(),
            Some(Kind::Text(_)) => "a string".to_owned(),
            Some(Kind::Shell(_)) => "a command".to_owned(),
            Some(Kind::Code(_)) => "code".to_owned(),
            Some(Kind::Address) => "an address".to_owned(),
            Some(Kind::Option(name, _)) => format!("--{name}"),
        };
        Stop::unsupported(
            self.line(),
            format!("syntax: {wanted} is expected, not {got}"),
        )
    }

    fn integer(&mut self) -> Step<i64> {
        match self.peek() {
            Some(Kind::Integer(value)) => {
                let value = *value;
                self.at += 1;
                Ok(value)
            }
            _ => self.wrong("a number"),
        }
    }

    /// An integer of a smaller type.
    fn number<T: TryFrom<i64>>(&mut self) -> Step<T> {
        let line = self.line();
        let value = self.integer()?;
        match T::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => Stop::unsupported(line, format!("syntax: {value} is out of range")),
        }
    }

    /// Commands after the last event clean up.
    fn is_cleanup(&self) -> bool {
        let rest = &self.tokens[self.at..];
        rest.iter()
            .all(|token| matches!(token.kind, Kind::Shell(_)))
    }

    fn event(&mut self) -> Step<Event> {
        let line = self.line();
        let when = self.when()?;
        let action = self.action()?;
        if !matches!(action, Action::Leaves(_) | Action::Unsupported(_))
            && !matches!(when, When::At(_) | When::After(_))
        {
            return Stop::unsupported(line, "syntax: only what leaves may have a range of times");
        }
        if let When::Between(from, to) | When::AfterBetween(from, to) = when {
            if from > to {
                return Stop::unsupported(line, "syntax: the range of times is backwards");
            }
        }
        Ok(Event { line, when, action })
    }

    fn when(&mut self) -> Step<When> {
        // Commands between events, as some suites write them, are run at once.
        if matches!(self.peek(), Some(Kind::Shell(_))) {
            return Ok(When::After(0));
        }
        if self.accept('*') {
            return Ok(When::Any);
        }
        let relative = self.accept('+');
        let from = self.seconds()?;
        if !self.accept('~') {
            return Ok(if relative {
                When::After(from)
            } else {
                When::At(from)
            });
        }
        if relative {
            self.expect('+')?;
            return Ok(When::AfterBetween(from, self.seconds()?));
        }
        Ok(When::Between(from, self.seconds()?))
    }

    fn seconds(&mut self) -> Step<u64> {
        let ns = match self.peek() {
            Some(Kind::Integer(value)) => parse_seconds(&value.to_string()),
            Some(Kind::Decimal(text)) => parse_seconds(text),
            _ => None,
        };
        let Some(ns) = ns else {
            return self.wrong("a time");
        };
        self.at += 1;
        Ok(ns)
    }

    fn action(&mut self) -> Step<Action> {
        match self.peek() {
            Some(Kind::Symbol('<')) => self.packet(true),
            Some(Kind::Symbol('>')) => self.packet(false),
            Some(Kind::Shell(command)) => {
                let action = Action::Shell(command.clone());
                self.at += 1;
                Ok(action)
            }
            Some(Kind::Code(code)) => {
                let action = Action::Code(code.clone());
                self.at += 1;
                Ok(action)
            }
            Some(Kind::Word(_) | Kind::Ellipsis) => self.call().map(Action::Call),
            _ => self.wrong("a packet, a call, a command or code"),
        }
    }
}

#[cfg(test)]
mod tests;
