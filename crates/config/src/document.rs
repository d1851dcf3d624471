//! A TOML file as a tree in which every value knows its place.
//!
//! Tables keep the order of the file. Trees can be laid over one another ([`Node::overlay`]),
//! which is how scenario variants and inheritance between files work; a value that came from
//! another file keeps its own place.

use std::{
    fmt,
    path::Path,
    sync::{Arc, OnceLock},
};

use toml::de::{DeTable, DeValue};

use crate::{
    file,
    problem::{Complaint, Problem, Problems},
};

/// A file that was read.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
    /// Where lines begin, once a place is asked for: a file may have a problem in each of its
    /// lines.
    lines: OnceLock<Vec<usize>>,
}

impl Source {
    fn new(name: &str, text: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            lines: OnceLock::new(),
        })
    }

    fn lines(&self) -> &[usize] {
        self.lines.get_or_init(|| {
            let ends = self
                .text
                .bytes()
                .enumerate()
                .filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0)
                .chain(ends.map(|(at, _)| at + 1))
                .collect()
        })
    }
}

/// Where a value stands.
#[derive(Clone)]
pub struct Place {
    source: Arc<Source>,
    offset: usize,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_column();
        write!(f, "{}:{line}:{column}", self.file())
    }
}

impl Place {
    /// File as the user named it.
    pub fn file(&self) -> &str {
        &self.source.name
    }

    /// Line and column in characters, both from 1.
    pub fn line_column(&self) -> (usize, usize) {
        let lines = self.source.lines();
        let line = lines.partition_point(|begin| *begin <= self.offset).max(1);
        let before = self.source.text.get(lines[line - 1]..self.offset);
        (line, before.unwrap_or("").chars().count() + 1)
    }

    /// A problem of the value here, known as `key`.
    pub fn problem(&self, key: &str, complaint: Complaint) -> Problem {
        let (line, column) = self.line_column();
        Problem {
            file: self.file().to_owned(),
            line,
            column,
            key: key.to_owned(),
            reason: complaint.reason,
            advice: complaint.advice,
        }
    }
}

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where the value starts.
    pub place: Place,
    /// The value.
    pub value: Value,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A 64-bit integer.
    Integer(i64),
    /// A float; may be infinite or NaN, as TOML allows.
    Float(f64),
    /// A boolean.
    Boolean(bool),
    /// A date or time: nothing here uses one.
    Datetime,
    /// An array, or an array of tables.
    List(Vec<Node>),
    /// A table.
    Table(Vec<Entry>),
}

/// A key of a table and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key, unquoted.
    pub key: String,
    /// Where the key stands.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

impl Value {
    /// A scalar as in a file, without quotes; `None` of dates, arrays and tables.
    pub fn scalar_text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
            Self::Boolean(value) => Some(value.to_string()),
            Self::Datetime | Self::List(_) | Self::Table(_) => None,
        }
    }

    /// The name of this kind of value in messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime => "a date",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// Reads and parses a TOML file.
///
/// # Errors
/// It cannot be read, or every syntax error.
pub fn read(path: &Path) -> Result<Node, Problems> {
    parse(&path.display().to_string(), &file::read(path)?)
}

/// Parses TOML. `name` is the file as the user named it.
///
/// # Errors
/// Every syntax error, with its place.
pub fn parse(name: &str, text: &str) -> Result<Node, Problems> {
    let source = Source::new(name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            syntax_problem(&source, offset, error.message())
        })
        .collect();
    if problems.is_empty() {
        let value = table_value(table.get_ref(), &source, &mut problems);
        if problems.is_empty() {
            let place = Place { source, offset: 0 };
            return Ok(Node { place, value });
        }
    }
    Err(Problems(problems))
}

fn syntax_problem(source: &Arc<Source>, offset: usize, message: &str) -> Problem {
    let place = Place {
        source: Arc::clone(source),
        offset: floor_boundary(&source.text, offset),
    };
    let reason = message.trim().replace('\n', ", ");
    place.problem("", Complaint::new(reason, "the file must be valid TOML"))
}

fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

fn table_value(table: &DeTable<'_>, source: &Arc<Source>, problems: &mut Vec<Problem>) -> Value {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            place: Place {
                source: Arc::clone(source),
                offset: key.span().start,
            },
            node: node(value.get_ref(), value.span().start, source, problems),
        })
        .collect();
    // The parser's map is sorted by name; people think in the order of the file.
    entries.sort_by_key(|entry| entry.place.offset);
    Value::Table(entries)
}

fn node(
    value: &DeValue<'_>,
    offset: usize,
    source: &Arc<Source>,
    problems: &mut Vec<Problem>,
) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(digits) => integer(digits, offset, source, problems),
        DeValue::Float(digits) => Value::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| node(item.get_ref(), item.span().start, source, problems))
                .collect(),
        ),
        DeValue::Table(table) => table_value(table, source, problems),
    };
    let place = Place {
        source: Arc::clone(source),
        offset,
    };
    Node { place, value }
}

fn integer(
    digits: &toml::de::DeInteger<'_>,
    offset: usize,
    source: &Arc<Source>,
    problems: &mut Vec<Problem>,
) -> Value {
    match i64::from_str_radix(digits.as_str(), digits.radix()) {
        Ok(value) => Value::Integer(value),
        Err(_) => {
            let reason = format!("the integer {} does not fit 64 bits", digits.as_str());
            problems.push(syntax_problem(source, offset, &reason));
            Value::Integer(0)
        }
    }
}

impl Node {
    /// The tree as TOML text; a date, which no language here uses, becomes an empty string.
    ///
    /// # Errors
    /// The tree holds what TOML cannot, which no parsed file does.
    pub fn to_text(&self) -> Result<String, Complaint> {
        toml::to_string_pretty(&self.to_toml())
            .map_err(|error| Complaint::new(format!("cannot be written back: {error}"), ""))
    }

    fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Integer(value) => toml::Value::Integer(*value),
            Value::Float(value) => toml::Value::Float(*value),
            Value::Boolean(value) => toml::Value::Boolean(*value),
            Value::Datetime => toml::Value::String(String::new()),
            Value::List(nodes) => toml::Value::Array(nodes.iter().map(Self::to_toml).collect()),
            Value::Table(entries) => {
                let entries = entries.iter();
                let pairs = entries.map(|entry| (entry.key.clone(), entry.node.to_toml()));
                toml::Value::Table(pairs.collect())
            }
        }
    }

    /// The entries, if this is a table.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The value of `key`, if this is a table that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        Some(&entry.node)
    }

    /// The value of `key`, to be changed, if this is a table that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let entry = entries.iter_mut().find(|entry| entry.key == key)?;
        Some(&mut entry.node)
    }

    /// Takes `key` out of a table.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let Value::Table(entries) = &mut self.value else {
            return None;
        };
        let at = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(at).node)
    }

    /// Lays `over` on this tree: tables merge key by key, everything else is replaced.
    ///
    /// A table whose `kind` differs from the one below replaces it whole, since the keys of one
    /// kind mean nothing to another. `false` over a table removes the table.
    pub fn overlay(&mut self, over: &Node) {
        if !self.merges_with(over) {
            *self = over.clone();
            return;
        }
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        for entry in over.entries() {
            let Some(at) = entries.iter().position(|below| below.key == entry.key) else {
                entries.push(entry.clone());
                continue;
            };
            if entry.node.removes(&entries[at].node) {
                entries.remove(at);
                continue;
            }
            entries[at].node.overlay(&entry.node);
            entries[at].place = entry.place.clone();
        }
    }

    fn removes(&self, below: &Node) -> bool {
        matches!(self.value, Value::Boolean(false)) && matches!(below.value, Value::Table(_))
    }

    /// Adds a key to a table, or replaces its value.
    pub fn set(&mut self, key: &str, node: Node) {
        let Value::Table(entries) = &mut self.value else {
            return;
        };
        match entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => entry.node = node,
            None => entries.push(Entry {
                key: key.to_owned(),
                place: node.place.clone(),
                node,
            }),
        }
    }

    fn merges_with(&self, over: &Node) -> bool {
        let both_tables = matches!(
            (&self.value, &over.value),
            (Value::Table(_), Value::Table(_))
        );
        both_tables && !self.changes_kind(over)
    }

    fn changes_kind(&self, over: &Node) -> bool {
        match (self.get("kind"), over.get("kind")) {
            (Some(below), Some(above)) => match (&below.value, &above.value) {
                (Value::Text(below), Value::Text(above)) => below != above,
                _ => true,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(node: &Node, key: &str) -> String {
        match &node.get(key).expect(key).value {
            Value::Text(text) => text.clone(),
            other => panic!("{key} is {}", other.kind()),
        }
    }

    #[test]
    fn tables_keep_the_order_of_the_file() {
        let tree = parse("t.toml", "[z]\na=1\n[b]\n[a]\n").unwrap();
        let keys: Vec<_> = tree.entries().iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["z", "b", "a"]);
    }

    #[test]
    fn syntax_errors_have_line_and_column() {
        let problems = parse("t.toml", "a = 1\nb = \n").unwrap_err();
        assert_eq!(problems.0[0].line, 2);
        assert!(problems.to_string().starts_with("t.toml:2:"), "{problems}");
    }

    #[test]
    fn columns_count_characters() {
        let tree = parse("t.toml", "\"é\" = 'x'\n").unwrap();
        assert_eq!(tree.entries()[0].node.place.line_column(), (1, 7));
    }

    #[test]
    fn lines_count_from_one_at_either_end_of_a_line() {
        let tree = parse("t.toml", "a = 1\n\nb = [\n2,\n]\nc = 3").unwrap();
        let places = |node: &Node| node.place.line_column();
        assert_eq!(places(tree.get("a").unwrap()), (1, 5));
        assert_eq!(places(tree.get("b").unwrap()), (3, 5));
        assert_eq!(places(tree.get("c").unwrap()), (6, 5));
        assert_eq!(tree.entries()[2].place.line_column(), (6, 1));
        assert_eq!(tree.place.line_column(), (1, 1));
    }

    #[test]
    fn an_overlay_merges_tables_and_replaces_values() {
        let mut base = parse("base", "[n]\nrate='1'\nmtu='2'\nlist=[1,2]").unwrap();
        let over = parse("over", "[n]\nrate='3'\nlist=[4]").unwrap();
        base.overlay(&over);
        let n = base.get("n").unwrap();
        assert_eq!((text(n, "rate"), text(n, "mtu")), ("3".into(), "2".into()));
        assert_eq!(n.get("rate").unwrap().place.file(), "over");
        assert!(matches!(&n.get("list").unwrap().value, Value::List(l) if l.len() == 1));
    }

    #[test]
    fn another_kind_replaces_the_whole_table() {
        let mut base = parse("base", "m = { kind = 'threshold', k = '65KB' }").unwrap();
        let over = parse("over", "m = { kind = 'none' }").unwrap();
        base.overlay(&over);
        assert!(base.get("m").unwrap().get("k").is_none());
    }

    #[test]
    fn false_over_a_table_removes_it() {
        let mut base = parse("base", "[a.b]\nx=1\n[a.c]\nflag=true").unwrap();
        base.overlay(&parse("over", "a.b = false\na.c.flag = false").unwrap());
        let a = base.get("a").unwrap();
        assert!(a.get("b").is_none());
        assert!(a.get("c").unwrap().get("flag").is_some());
    }

    #[test]
    fn a_tree_is_written_back_in_the_order_of_the_file() {
        let text = "z = 1\na = [0.5, true]\n\n[m]\nk = \"65KB\"\n";
        let written = parse("t.toml", text).unwrap().to_text().unwrap();
        let again = parse("t.toml", &written).unwrap();
        let keys: Vec<_> = again.entries().iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["z", "a", "m"]);
        assert_eq!(again.to_text().unwrap(), written);
        assert_eq!(self::text(again.get("m").unwrap(), "k"), "65KB");
    }

    #[test]
    fn a_huge_integer_is_an_error() {
        assert!(parse("t", "a = 99999999999999999999").is_err());
    }
}
