//! System calls: `accept(3, ..., ...) = 4`, `write(4, ..., 10) = -1 EPIPE (Broken pipe)`.

use super::{Kind, Parser};
use crate::{
    Step, Stop,
    model::{Call, Expr},
};

/// Arguments inside arguments.
const DEEPEST: usize = 16;

impl Parser {
    pub(super) fn call(&mut self) -> Step<Call> {
        let mut returns_ns = None;
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
            returns_ns = Some(self.seconds()?);
        }
        let Some(Kind::Word(name)) = self.peek().cloned() else {
            return self.wrong("a system call");
        };
        self.at += 1;
        self.expect('(')?;
        let arguments = self.list(')', 0)?;
        self.expect('=')?;
        let result = self.expr(0)?;
        let errno = self.errno();
        self.note();
        Ok(Call {
            name,
            arguments,
            result,
            errno,
            returns_ns,
        })
    }

    /// `EPIPE (Broken pipe)`
    fn errno(&mut self) -> Option<String> {
        let word = match self.peek() {
            Some(Kind::Word(word)) if word.starts_with('E') => word.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(word)
    }

    /// A remark in parentheses.
    fn note(&mut self) {
        if self.is_symbol('(') {
            while self.peek().is_some() && !self.accept(')') {
                self.at += 1;
            }
        }
    }

    /// Expressions up to and with `close`.
    fn list(&mut self, close: char, depth: usize) -> Step<Vec<Expr>> {
        let mut list = Vec::new();
        if self.accept(close) {
            return Ok(list);
        }
        loop {
            list.push(self.expr(depth)?);
            if self.accept(close) {
                return Ok(list);
            }
            self.expect(',')?;
        }
    }

    fn expr(&mut self, depth: usize) -> Step<Expr> {
        if depth > DEEPEST {
            return Stop::unsupported(self.line(), "syntax: too deep");
        }
        let first = self.term(depth)?;
        if !self.is_symbol('|') {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.accept('|') {
            parts.push(self.term(depth)?);
        }
        Ok(Expr::Or(parts))
    }

    fn term(&mut self, depth: usize) -> Step<Expr> {
        let Some(kind) = self.peek().cloned() else {
            return self.wrong("an expression");
        };
        self.at += 1;
        match kind {
            Kind::Ellipsis => Ok(Expr::Ellipsis),
            Kind::Integer(value) => Ok(Expr::Integer(value)),
            Kind::Text(text) => Ok(self.text(text)),
            Kind::Symbol('[') => self.list(']', depth + 1).map(Expr::List),
            Kind::Symbol('{') => self.fields(depth + 1).map(Expr::Struct),
            Kind::Word(word) => self.word(word, depth),
            _ => {
                self.at -= 1;
                self.wrong("an expression")
            }
        }
    }

    /// Strings in a row are one, and `...` may follow.
    fn text(&mut self, first: String) -> Expr {
        let mut text = first;
        while let Some(Kind::Text(more)) = self.peek() {
            text.push_str(more);
            self.at += 1;
        }
        if self.peek() == Some(&Kind::Ellipsis) {
            self.at += 1;
        }
        Expr::Text(text)
    }

    /// A word, or a function's result.
    fn word(&mut self, word: String, depth: usize) -> Step<Expr> {
        if self.accept('(') {
            self.list(')', depth + 1)?;
            return Ok(Expr::Function(word));
        }
        Ok(Expr::Word(word))
    }

    /// `a=1, b(1)=[...], 5}`
    fn fields(&mut self, depth: usize) -> Step<Vec<(String, Expr)>> {
        let mut fields = Vec::new();
        while !self.accept('}') {
            let value = self.expr(depth)?;
            let field = match value {
                Expr::Word(name) | Expr::Function(name) if self.accept('=') => {
                    (name, self.expr(depth)?)
                }
                value => (String::new(), value),
            };
            fields.push(field);
            if !self.is_symbol('}') {
                self.expect(',')?;
            }
        }
        Ok(fields)
    }
}
