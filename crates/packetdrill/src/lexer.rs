//! From characters to tokens: the lexical rules of packetdrill, and `#` comments.

use crate::{Step, Stop};

/// A token and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub line: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[a-zA-Z0-9_]+` that is no number.
    Word(String),
    Integer(i64),
    /// A number with a point, as written.
    Decimal(String),
    /// An IPv4 address.
    Address,
    /// Between double quotes.
    Text(String),
    /// Between backquotes.
    Shell(String),
    /// Between `%{` and `}%`.
    Code(String),
    /// `--name` or `--name=value`.
    Option(String, Option<String>),
    /// `...`
    Ellipsis,
    Symbol(char),
}

/// All tokens of `text`.
pub fn tokens(text: &str) -> Step<Vec<Token>> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        cookie: false,
    };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    /// The next token may be a cookie of fast open: digits that are no number.
    cookie: bool,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Step<Option<Token>> {
        self.skip()?;
        let line = self.line;
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        let kind = match first {
            '"' => Kind::Text(self.quoted('"')?),
            '`' => Kind::Shell(self.quoted('`')?),
            '%' if self.rest.starts_with("%{") => Kind::Code(self.until(2, "}%")?.to_owned()),
            '.' if self.rest.starts_with("...") => {
                self.take(3);
                Kind::Ellipsis
            }
            '-' if self.option_len() > 2 => self.option()?,
            _ if self.cookie && word_len(self.rest) > 0 => {
                Kind::Word(self.take(word_len(self.rest)).to_owned())
            }
            _ => self.number_word_or_symbol(first)?,
        };
        self.cookie = matches!(&kind, Kind::Word(word) if word == "FO" || word == "FOEXP");
        Ok(Some(Token { line, kind }))
    }

    /// Blanks and comments.
    fn skip(&mut self) -> Step {
        loop {
            let trimmed = self.rest.trim_start();
            self.take(self.rest.len() - trimmed.len());
            if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.until(2, "*/")?;
            } else {
                return Ok(());
            }
        }
    }

    /// The next `len` bytes, which end at a character's boundary.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    /// The text between `open` bytes and `close`.
    fn until(&mut self, open: usize, close: &str) -> Step<&'a str> {
        let Some(len) = self.rest[open..].find(close) else {
            return Stop::unsupported(self.line, format!("syntax: no {close}"));
        };
        self.take(open);
        let inside = self.take(len);
        self.take(close.len());
        Ok(inside)
    }

    /// A quoted string; a backslash keeps the character after it from ending the string.
    fn quoted(&mut self, quote: char) -> Step<String> {
        let mut escaped = false;
        for (at, char) in self.rest.char_indices().skip(1) {
            if char == quote && !escaped {
                let text = self.rest[1..at].to_owned();
                self.take(at + 1);
                return Ok(text);
            }
            escaped = char == '\\' && !escaped;
        }
        Stop::unsupported(self.line, format!("syntax: no closing {quote}"))
    }

    /// Bytes of `--name`, 0 if there is none.
    fn option_len(&self) -> usize {
        match self.rest.strip_prefix("--") {
            Some(rest) => 2 + word_len(rest),
            None => 0,
        }
    }

    fn option(&mut self) -> Step<Kind> {
        let name = self.take(self.option_len())[2..].to_owned();
        if !self.rest.starts_with('=') {
            return Ok(Kind::Option(name, None));
        }
        self.take(1);
        let mut value = String::new();
        while let Some(char) = self
            .rest
            .chars()
            .next()
            .filter(|char| !char.is_whitespace())
        {
            if char == '"' || char == '`' {
                value = format!("{value}{char}{}{char}", self.quoted(char)?);
            } else {
                value.push(char);
                self.take(char.len_utf8());
            }
        }
        Ok(Kind::Option(name, Some(value)))
    }

    fn number_word_or_symbol(&mut self, first: char) -> Step<Kind> {
        let sign = usize::from(first == '-');
        let body = &self.rest[sign..];
        let digits = body.bytes().take_while(u8::is_ascii_digit).count();
        if let Some(fraction) = body[digits..].strip_prefix('.') {
            let more = fraction.bytes().take_while(u8::is_ascii_digit).count();
            if more > 0 {
                let len = digits + 1 + more;
                let address = address_len(body);
                if sign == 0 && address > len {
                    self.take(address);
                    return Ok(Kind::Address);
                }
                return Ok(Kind::Decimal(self.take(sign + len).to_owned()));
            }
        }
        let word = word_len(body);
        if digits > 0 && (word == digits || sign == 1) {
            return self.integer(sign + digits, 10, 0);
        }
        if sign == 0 && word > 2 && body.starts_with("0x") {
            return self.integer(word, 16, 2);
        }
        if sign == 0 && word > 0 {
            return Ok(Kind::Word(self.take(word).to_owned()));
        }
        self.take(first.len_utf8());
        Ok(Kind::Symbol(first))
    }

    fn integer(&mut self, len: usize, radix: u32, prefix: usize) -> Step<Kind> {
        let line = self.line;
        let text = self.take(len);
        match i64::from_str_radix(&text[prefix..], radix) {
            Ok(value) => Ok(Kind::Integer(value)),
            Err(_) => Stop::unsupported(line, format!("syntax: {text} is no number")),
        }
    }
}

fn word_len(text: &str) -> usize {
    text.bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        .count()
}

/// Bytes of an IPv4 address at the beginning of `text`, 0 if there is none.
fn address_len(text: &str) -> usize {
    let len = text
        .bytes()
        .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
        .count();
    let parts = text[..len].trim_end_matches('.');
    let whole = parts.split('.').count() == 4 && parts.split('.').all(|part| !part.is_empty());
    if whole { parts.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        let tokens = tokens(text).expect("lexes");
        tokens.into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn numbers_flags_and_ellipses_are_told_apart() {
        use Kind::{Address, Decimal, Ellipsis, Integer, Symbol, Word};
        let word = |text: &str| Word(text.to_owned());
        let decimal = |text: &str| Decimal(text.to_owned());
        assert_eq!(
            kinds("0.1...0.4 +.5 0...1"),
            [
                decimal("0.1"),
                Ellipsis,
                decimal("0.4"),
                Symbol('+'),
                decimal(".5"),
                Integer(0),
                Ellipsis,
                Integer(1)
            ]
        );
        assert_eq!(kinds("SEW. -1"), [word("SEW"), Symbol('.'), Integer(-1)]);
        assert_eq!(
            kinds("0x1f 10a 1.2.3.4"),
            [Integer(31), word("10a"), Address]
        );
    }

    #[test]
    fn a_cookie_is_no_number() {
        let word = |text: &str| Kind::Word(text.to_owned());
        let long = "01020304050607080910111213";
        assert_eq!(kinds(&format!("FO {long}")), [word("FO"), word(long)]);
        assert_eq!(kinds("FO,12")[1..], [Kind::Symbol(','), Kind::Integer(12)]);
    }

    #[test]
    fn comments_vanish_and_lines_are_counted() {
        let tokens = tokens("// one\n/* two\n three */ # four\n`a\nb` x").expect("lexes");
        assert_eq!(tokens[0].kind, Kind::Shell("a\nb".to_owned()));
        assert_eq!((tokens[0].line, tokens[1].line), (4, 5));
    }

    #[test]
    fn options_keep_their_quotes() {
        let option = Kind::Option("define".to_owned(), Some("CC=\"a b\"".to_owned()));
        assert_eq!(
            kinds("--define=CC=\"a b\" x"),
            [option, Kind::Word("x".to_owned())]
        );
    }

    #[test]
    fn what_does_not_end_is_unsupported() {
        for text in ["\"", "`x", "%{ assert", "/* x", "99999999999999999999"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
