//! Reading a table of a [`document`](crate::document) key by key, collecting every error.
//!
//! A key is known once a getter has read it. [`Table::close`] reports the unknown keys of the file,
//! each with the most similar known one. Getters return `None` both for a key that is absent and
//! for one that is wrong; the latter has been reported by then, so callers just go on with the
//! default.

use std::{cell::RefCell, ops::RangeInclusive};

use crate::{
    bound::{Bound, PRIORITIES, Quantity},
    document::{Entry, Node, Place, Value},
    problem::{Complaint, Sink},
};

/// A value being read: its node, its dotted path, and where errors go.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    node: &'a Node,
    path: String,
    sink: &'a Sink,
}

/// A table being read.
#[derive(Debug)]
pub struct Table<'a> {
    item: Item<'a>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Item<'a> {
    /// Where the value stands.
    pub fn place(&self) -> &'a Place {
        &self.node.place
    }

    /// The value as it was parsed.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Dotted path, for messages.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reports an error of this value.
    pub fn complain(&self, reason: impl Into<String>, advice: impl Into<String>) {
        let complaint = Complaint::new(reason, advice);
        self.sink.report(self.place(), &self.path, complaint);
    }

    fn expected<T>(&self, what: &str) -> Option<T> {
        self.complain(
            format!("must be {what}, not {}", self.node.value.kind()),
            "",
        );
        None
    }

    /// A string.
    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => self.expected("a string"),
        }
    }

    /// A boolean.
    pub fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Boolean(value) => Some(value),
            _ => self.expected("true or false"),
        }
    }

    /// An integer within bounds.
    pub fn integer(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let Value::Integer(value) = self.node.value else {
            return self.expected("a whole number");
        };
        if range.contains(&value) {
            return Some(value);
        }
        let reason = format!("must lie between {} and {}", range.start(), range.end());
        self.complain(format!("{reason}, not {value}"), "");
        None
    }

    /// An integer or float of any size.
    pub fn any_number(&self) -> Option<f64> {
        match self.node.value {
            Value::Integer(value) => Some(value as f64),
            Value::Float(value) => Some(value),
            _ => self.expected("a number"),
        }
    }

    /// A number that its bound allows.
    pub fn within<T: Quantity>(&self, bound: &Bound<T>) -> Option<T> {
        let value = T::read(self)?;
        self.allowed(value, bound)
    }

    /// `value`, which this says, if its bound allows it; else that is reported.
    pub fn allowed<T: Quantity>(&self, value: T, bound: &Bound<T>) -> Option<T> {
        if bound.allows(value) {
            return Some(value);
        }
        let complaint = bound.complaint(value);
        self.complain(complaint.reason, complaint.advice);
        None
    }

    /// An integer or float within bounds.
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.any_number()?;
        if range.contains(&value) {
            return Some(value);
        }
        let reason = format!("must lie between {} and {}", range.start(), range.end());
        self.complain(format!("{reason}, not {value}"), "");
        None
    }

    /// A string in a format of its own; a bare number is told that it lacks a unit.
    pub fn parse<T>(&self, parser: impl FnOnce(&str) -> Result<T, Complaint>) -> Option<T> {
        let result = match &self.node.value {
            Value::Text(text) => parser(text),
            // Let the parser say what a number lacks.
            Value::Integer(number) => parser(&number.to_string()),
            Value::Float(number) => parser(&number.to_string()),
            _ => return self.expected("a string"),
        };
        result
            .map_err(|complaint| self.complain(complaint.reason, complaint.advice))
            .ok()
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        for (name, _) in choices {
            self.sink.list(|| format!("{} = \"{name}\"", self.path));
        }
        let text = self.text()?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        self.complain(
            format!("\"{text}\" is not known here"),
            format!("use one of {}{}", names.join(", "), nearest(text, &names)),
        );
        None
    }

    /// A table.
    pub fn table(&self) -> Option<Table<'a>> {
        match self.node.value {
            Value::Table(_) => Some(Table {
                item: self.clone(),
                asked: RefCell::default(),
            }),
            _ => self.expected("a table"),
        }
    }

    /// True if this is a table rather than a plain value.
    pub fn is_table(&self) -> bool {
        matches!(self.node.value, Value::Table(_))
    }

    /// True if this is an array.
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// True if this is the boolean `false`.
    pub fn is_false(&self) -> bool {
        matches!(self.node.value, Value::Boolean(false))
    }

    /// True if this is a string.
    pub fn is_text(&self) -> bool {
        matches!(self.node.value, Value::Text(_))
    }

    /// The elements of an array.
    pub fn list(&self) -> Option<Vec<Item<'a>>> {
        match &self.node.value {
            Value::List(nodes) => Some(self.elements(nodes)),
            _ => self.expected("an array"),
        }
    }

    /// The elements of an array, or the value itself as the only one.
    pub fn one_or_more(&self) -> Vec<Item<'a>> {
        match &self.node.value {
            Value::List(nodes) => self.elements(nodes),
            _ => vec![self.clone()],
        }
    }

    /// Priorities of IEEE 802.1Q, 0 to 7: bit p is set if the item is priority p or a list with it.
    pub fn priorities(&self) -> u8 {
        let one = |bits: u8, item: &Item<'_>| {
            let Some(priority) = item.within(&PRIORITIES) else {
                return bits;
            };
            let bit = 1 << priority;
            if bits & bit != 0 {
                item.complain(format!("priority {priority} is here twice"), "name it once");
            }
            bits | bit
        };
        self.one_or_more().iter().fold(0, one)
    }

    fn elements(&self, nodes: &'a [Node]) -> Vec<Item<'a>> {
        let indexed = nodes.iter().enumerate();
        indexed
            .map(|(index, node)| Item {
                node,
                path: format!("{}[{index}]", self.path),
                sink: self.sink,
            })
            .collect()
    }
}

impl<'a> Table<'a> {
    /// The root of a document.
    pub fn root(node: &'a Node, sink: &'a Sink) -> Self {
        Self {
            item: Item {
                node,
                path: String::new(),
                sink,
            },
            asked: RefCell::default(),
        }
    }

    /// This table as a value, to report errors of the whole.
    pub fn item(&self) -> &Item<'a> {
        &self.item
    }

    /// The value of `key`; from now on the key is known.
    pub fn get(&self, key: &'static str) -> Option<Item<'a>> {
        self.item.sink.list(|| self.path_of(key));
        self.find(key)
    }

    fn find(&self, key: &'static str) -> Option<Item<'a>> {
        self.asked.borrow_mut().push(key);
        let entry = self.item.node.entries().iter().find(|e| e.key == key)?;
        Some(self.entry_item(entry))
    }

    /// Every key with its value, in the order of the file, for tables whose keys are names.
    pub fn named(&self) -> Vec<(&'a str, Item<'a>)> {
        let entries = self.item.node.entries().iter();
        entries
            .map(|entry| (entry.key.as_str(), self.entry_item(entry)))
            .collect()
    }

    /// Where the key of an entry stands; the table itself if there is no such key.
    pub fn key_place(&self, key: &str) -> &'a Place {
        let mut entries = self.item.node.entries().iter();
        entries
            .find(|entry| entry.key == key)
            .map_or(self.item.place(), |entry| &entry.place)
    }

    fn entry_item(&self, entry: &'a Entry) -> Item<'a> {
        Item {
            node: &entry.node,
            path: self.path_of(&entry.key),
            sink: self.item.sink,
        }
    }

    fn path_of(&self, key: &str) -> String {
        match self.item.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// [`Item::text`] of `key`.
    pub fn text(&self, key: &'static str) -> Option<&'a str> {
        self.get(key)?.text()
    }

    /// [`Item::boolean`] of `key`.
    pub fn boolean(&self, key: &'static str) -> Option<bool> {
        self.get(key)?.boolean()
    }

    /// [`Item::integer`] of `key`.
    pub fn integer(&self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        self.get(key)?.integer(range)
    }

    /// [`Item::number`] of `key`.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        self.get(key)?.number(range)
    }

    /// [`Item::within`] of `key`.
    pub fn within<T: Quantity>(&self, key: &'static str, bound: &Bound<T>) -> Option<T> {
        self.get(key)?.within(bound)
    }

    /// [`Item::parse`] of `key`.
    pub fn parse<T>(
        &self,
        key: &'static str,
        parser: impl FnOnce(&str) -> Result<T, Complaint>,
    ) -> Option<T> {
        self.get(key)?.parse(parser)
    }

    /// [`Item::choice`] of `key`.
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        self.get(key)?.choice(choices)
    }

    /// [`Item::table`] of `key`.
    pub fn table(&self, key: &'static str) -> Option<Table<'a>> {
        self.get(key)?.table()
    }

    /// The tables of `[[key]]`; empty if there are none.
    pub fn tables(&self, key: &'static str) -> Vec<Table<'a>> {
        let items = self.get(key).and_then(|item| item.list());
        let tables = items.unwrap_or_default().into_iter();
        tables.filter_map(|item| item.table()).collect()
    }

    /// Reports a `key` that is known but means nothing here.
    pub fn refuse(&self, key: &'static str, reason: &str) {
        if let Some(item) = self.find(key) {
            let place = self.key_place(key);
            let complaint = Complaint::new(reason, "leave it out");
            item.sink.report(place, &item.path, complaint);
        }
    }

    /// Reports a `key` that is missing.
    pub fn require(&self, key: &'static str, advice: &str) {
        let reason = format!("`{key}` is missing");
        self.item.complain(reason, advice);
    }

    /// Reports every key that no getter has read.
    pub fn close(self) {
        let asked = self.asked.borrow();
        for entry in self.item.node.entries() {
            if asked.contains(&entry.key.as_str()) {
                continue;
            }
            let mut known = asked.clone();
            known.sort_unstable();
            known.dedup();
            let advice = match nearest(&entry.key, &known) {
                near if near.is_empty() => format!("known keys: {}", known.join(", ")),
                near => near.trim_start_matches([';', ' ']).to_owned(),
            };
            let complaint = Complaint::new("unknown key", advice);
            let path = self.path_of(&entry.key);
            self.item.sink.report(&entry.place, &path, complaint);
        }
    }
}

/// `; did you mean "x"?` for the most similar of `known`, or nothing.
pub fn nearest(word: &str, known: &[&str]) -> String {
    let best = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), *name))
        .min();
    match best {
        Some((distance, name)) if distance <= 1 + name.len() / 4 => {
            format!("; did you mean \"{name}\"?")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    fn problems(text: &str, read: impl FnOnce(&Table<'_>)) -> Vec<String> {
        let node = document::parse("t.toml", text).unwrap();
        let sink = Sink::default();
        let table = Table::root(&node, &sink);
        read(&table);
        table.close();
        match sink.finish(()) {
            Ok(()) => Vec::new(),
            Err(problems) => problems.0.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        let found = problems("windw_cap = 1\n", |t| {
            t.get("window_cap");
            t.get("beta");
        });
        assert_eq!(
            found,
            ["t.toml:1:1: windw_cap: unknown key; did you mean \"window_cap\"?"]
        );
    }

    #[test]
    fn unknown_keys_without_a_neighbour_list_what_is_known() {
        let found = problems("colour = 1\n", |t| {
            t.get("beta");
            t.get("alpha");
        });
        assert_eq!(
            found,
            ["t.toml:1:1: colour: unknown key; known keys: alpha, beta"]
        );
    }

    #[test]
    fn every_error_is_listed_in_the_order_of_the_file() {
        let found = problems("a = 7\nb = 'x'\n\n[c]\nd = 1\n", |t| {
            t.integer("b", 0..=1);
            t.integer("a", 0..=1);
            t.table("c").unwrap().close();
        });
        let lines: Vec<_> = found.iter().map(|p| p.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "2", "5"]);
    }

    #[test]
    fn a_bare_number_lacks_its_unit() {
        let found = problems("rate = 10\n", |t| {
            t.parse("rate", crate::units::parse_rate);
        });
        assert!(found[0].contains("has no unit"), "{found:?}");
    }
}
