//! The variations of a sweep: axes, their values, and what each value sets in the tree of a
//! scenario.

use sluicegate_config::{
    document::{self, Entry, Node, Place, Value},
    problem::{Complaint, Sink},
    table::{Item, Table},
};

/// One thing that is varied.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name in tables: as given, or the path that it sets.
    pub name: String,
    /// The dotted path that it sets; `None` if its values set several keys.
    path: Option<String>,
    /// Its values in the order of tables.
    pub values: Vec<AxisValue>,
}

/// One value of an axis.
#[derive(Clone, Debug)]
pub struct AxisValue {
    /// As written.
    pub name: String,
    /// Path below the root, empty for the root itself, and what is laid over it.
    path: Vec<String>,
    node: Node,
}

/// Names that tables have for something else.
const RESERVED: [&str; 13] = [
    "variant", "seed", "figure", "unit", "n", "mean", "sd", "ci_low", "ci_high", "min", "max",
    "value", "and",
];

/// Keys of the file as a whole, which no axis sets.
const FILE_KEYS: [&str; 11] = [
    "name",
    "mirrors",
    "seed",
    "repeats",
    "extends",
    "short",
    "expect",
    "parameter",
    "published",
    "sweep",
    "like",
];

/// `--set NAME=VALUE,VALUE…` as given, before the scenario is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Name of an axis of the file, or a dotted path.
    pub name: String,
    /// Values as written, without quotes.
    values: Vec<(String, String)>,
}

impl Set {
    /// Its values as written, without quotes.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(label, _)| label.as_str())
    }
}

impl std::str::FromStr for Set {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write for example network.rate=10Gbit,40Gbit";
        let (name, list) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` has no `=`; {example}"))?;
        let name = name.trim();
        if name.is_empty() {
            return Err(format!("there is no name before `=`; {example}"));
        }
        let mut values: Vec<(String, String)> = Vec::new();
        for written in split_values(list)? {
            if written.is_empty() {
                return Err(format!("{name}: a value is missing; {example}"));
            }
            let label = written.trim_matches(['"', '\'']).to_owned();
            if values.iter().any(|(known, _)| *known == label) {
                return Err(format!(
                    "{name}: the value {label} is there twice; leave out one"
                ));
            }
            values.push((label, written));
        }
        let name = name.to_owned();
        Ok(Self { name, values })
    }
}

/// Splits at commas that are not in quotes.
fn split_values(list: &str) -> Result<Vec<String>, String> {
    let mut values = vec![String::new()];
    let mut quote = None;
    for c in list.chars() {
        match (c, quote) {
            (',', None) => values.push(String::new()),
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            _ => {}
        }
        if c != ',' || quote.is_some() {
            values.last_mut().expect("never empty").push(c);
        }
    }
    match quote {
        Some(quote) => Err(format!("`{list}`: a {quote} is not closed")),
        None => Ok(values.iter().map(|value| value.trim().to_owned()).collect()),
    }
}

/// A TOML scalar; what is none is a string.
fn scalar(written: &str) -> Result<Value, String> {
    if written.starts_with(['[', '{']) {
        let why = "is no plain value";
        let advice = "write such values as [[sweep.axis]] into the scenario";
        return Err(format!("{written} {why}; {advice}"));
    }
    let parsed = document::parse("", &format!("value = {written}\n")).ok();
    let value = parsed.and_then(|mut tree| tree.remove("value"));
    Ok(match value.map(|node| node.value) {
        Some(Value::Datetime) | None => Value::Text(written.to_owned()),
        Some(value) => value,
    })
}

impl Axis {
    /// The axis of a `--set` that the scenario `tree` has no axis for.
    ///
    /// # Errors
    /// A path that no axis can have, a value that is no scalar.
    pub fn of_set(set: &Set, tree: &Node) -> Result<Self, String> {
        check_path(&set.name).map_err(|c| format!("--set {}: {c}", set.name))?;
        let mut axis = Self {
            name: set.name.clone(),
            path: Some(set.name.clone()),
            values: Vec::new(),
        };
        axis.replace(set, tree)?;
        Ok(axis)
    }

    /// Gives it the values of a `--set`: of an axis with named values those that are named.
    ///
    /// # Errors
    /// A name that is no value of it, a value that is no scalar.
    pub fn replace(&mut self, set: &Set, tree: &Node) -> Result<(), String> {
        let before = std::mem::take(&mut self.values);
        for (label, written) in &set.values {
            let value = match &self.path {
                None => (before.iter().find(|value| value.name == *label).cloned())
                    .ok_or_else(|| unknown_value(&self.name, label, &before))?,
                Some(path) => {
                    let value =
                        scalar(written).map_err(|why| format!("--set {}: {why}", set.name))?;
                    let path = segments(path);
                    let place = place_of(tree, &path);
                    AxisValue {
                        name: label.clone(),
                        path,
                        node: Node { place, value },
                    }
                }
            };
            self.values.push(value);
        }
        Ok(())
    }

    /// One entry of `[[sweep.axis]]`.
    pub(super) fn read(table: &Table<'_>) -> Option<Self> {
        let path = table.get("path").and_then(|item| {
            let path = item.text()?;
            let wrong = check_path(path).err();
            if let Some(complaint) = &wrong {
                item.complain(&complaint.reason, &complaint.advice);
            }
            wrong.is_none().then(|| path.to_owned())
        });
        let name = table.get("name").and_then(|item| read_name(&item));
        let Some(name) = name.or_else(|| path.clone()) else {
            if table.get("name").is_none() && table.get("path").is_none() {
                table.require("name", "or give it the `path` that it sets");
            }
            return None;
        };
        let Some(item) = table.get("values") else {
            table.require(
                "values",
                "list them, or name them as in [sweep.axis.values.red]",
            );
            return None;
        };
        let values = match (&path, item.is_table()) {
            (None, true) => bundles(&item),
            (Some(path), false) => listed(path, &item),
            (Some(_), true) => {
                item.complain("values with names set their own keys", "leave out `path`");
                Vec::new()
            }
            (None, false) => {
                let advice =
                    "add the `path` that they set, or name values as in [sweep.axis.values.red]";
                item.complain("the values say nothing without a path", advice);
                Vec::new()
            }
        };
        if values.is_empty() {
            return None;
        }
        Some(Self { name, path, values })
    }

    /// Every path that a value of it sets.
    pub(super) fn leaves(&self) -> Vec<String> {
        let mut leaves = Vec::new();
        for value in &self.values {
            add_leaves(&value.path.join("."), &value.node, &mut leaves);
        }
        leaves.sort();
        leaves.dedup();
        leaves
    }
}

impl AxisValue {
    /// Lays it over a scenario.
    ///
    /// # Errors
    /// A `*` that stands for nothing.
    pub(super) fn apply(&self, tree: &mut Node) -> Result<(), Complaint> {
        for path in expand(tree, &self.path)? {
            let over = path.iter().rev().fold(self.node.clone(), |node, key| Node {
                place: node.place.clone(),
                value: Value::Table(vec![Entry {
                    key: key.clone(),
                    place: node.place.clone(),
                    node,
                }]),
            });
            tree.overlay(&over);
        }
        Ok(())
    }

    /// Whether a problem of `key` is one of what it sets.
    pub(super) fn sets(&self, key: &str) -> bool {
        let mut leaves = Vec::new();
        add_leaves(&self.path.join("."), &self.node, &mut leaves);
        // Problems of a variant name its keys as if they stood at the root.
        leaves.iter().any(|leaf| {
            let leaf = match leaf.strip_prefix("variant.") {
                Some(below) => below.split_once('.').map_or(below, |(_, path)| path),
                None => leaf,
            };
            let below = |long: &str, short: &str| {
                let rest = long.strip_prefix(short);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            below(key, leaf) || below(leaf, key)
        })
    }

    /// Where it stands, for problems of the whole.
    pub(super) fn place(&self) -> &Place {
        &self.node.place
    }
}

/// That a value is unknown, and what is known.
pub(super) fn unknown_value(axis: &str, label: &str, values: &[AxisValue]) -> String {
    let names: Vec<&str> = values.iter().map(|value| value.name.as_str()).collect();
    format!(
        "axis {axis} has no value \"{label}\"; it has {}{}",
        names.join(", "),
        sluicegate_config::table::nearest(label, &names)
    )
}

fn segments(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

fn check_path(path: &str) -> Result<(), Complaint> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let parts: Vec<&str> = path.split('.').collect();
    let is_part = |part: &&str| *part == "*" || !part.is_empty() && part.chars().all(fits);
    if !parts.iter().all(is_part) {
        let advice = "write keys with dots between them, for example network.rate";
        return Err(Complaint::new(format!("`{path}` is no path"), advice));
    }
    if FILE_KEYS.contains(&parts[0]) {
        let advice = match parts[0] {
            "seed" | "repeats" => "say how many seeds with `repeat` or --repeat",
            _ => "vary what a variant may set",
        };
        let reason = format!("`{}` belongs to the file as a whole", parts[0]);
        return Err(Complaint::new(reason, advice));
    }
    Ok(())
}

fn read_name(item: &Item<'_>) -> Option<String> {
    let name = item.text()?;
    if !crate::resolve::is_name(name) {
        item.complain(
            format!("\"{name}\" is no name"),
            crate::resolve::NAME_ADVICE,
        );
        return None;
    }
    if RESERVED.contains(&name) {
        let reason = format!("tables have a column \"{name}\" already");
        item.complain(reason, "choose another name");
        return None;
    }
    Some(name.to_owned())
}

/// `[sweep.axis.values.NAME]`: tables that are laid over the scenario.
fn bundles(item: &Item<'_>) -> Vec<AxisValue> {
    let mut values = Vec::new();
    for (name, value) in item.table().iter().flat_map(Table::named) {
        let Some(table) = value.table() else { continue };
        for (key, inner) in table.named() {
            if FILE_KEYS.contains(&key) {
                inner.complain(
                    format!("an axis cannot set `{key}`"),
                    "it belongs to the file as a whole",
                );
            }
        }
        values.push(AxisValue {
            name: name.to_owned(),
            path: Vec::new(),
            node: value.node().clone(),
        });
    }
    if values.is_empty() {
        item.complain("has no value", "name one, as in [sweep.axis.values.red]");
    }
    values
}

/// `values = [1, 2]` of an axis with a path.
fn listed(path: &str, item: &Item<'_>) -> Vec<AxisValue> {
    let mut values: Vec<AxisValue> = Vec::new();
    for element in item.list().unwrap_or_default() {
        let value = &element.node().value;
        let Some(name) = value.scalar_text() else {
            let reason = format!("a value must be plain, not {}", value.kind());
            element.complain(reason, "give it a name, as in [sweep.axis.values.red]");
            continue;
        };
        if values.iter().any(|known| known.name == name) {
            element.complain(format!("the value {name} is there twice"), "leave out one");
        }
        values.push(AxisValue {
            name,
            path: segments(path),
            node: element.node().clone(),
        });
    }
    if values.is_empty() {
        item.complain("has no value", "list at least one");
    }
    values
}

fn add_leaves(path: &str, node: &Node, leaves: &mut Vec<String>) {
    match node.entries() {
        [] => leaves.push(path.to_owned()),
        entries => {
            for entry in entries {
                let dot = if path.is_empty() { "" } else { "." };
                add_leaves(&format!("{path}{dot}{}", entry.key), &entry.node, leaves);
            }
        }
    }
}

/// Where the value at `path` stands, or the innermost table on the way to it.
fn place_of(tree: &Node, path: &[String]) -> Place {
    let mut at = tree;
    for key in path {
        let next = match key.as_str() {
            "*" => at.entries().first().map(|entry| &entry.node),
            key => at.get(key),
        };
        match next {
            Some(node) => at = node,
            None => break,
        }
    }
    at.place.clone()
}

/// The paths that `pattern` stands for; each `*` is every name that there is.
fn expand(tree: &Node, pattern: &[String]) -> Result<Vec<Vec<String>>, Complaint> {
    let mut paths: Vec<(Vec<String>, Option<&Node>)> = vec![(Vec::new(), Some(tree))];
    for (depth, key) in pattern.iter().enumerate() {
        let mut next = Vec::new();
        for (path, node) in paths {
            let keys: Vec<String> = match key.as_str() {
                "*" => names_below(node),
                key => vec![key.to_owned()],
            };
            for key in keys {
                let below = node.and_then(|node| node.get(&key));
                let path = path.iter().cloned().chain([key]).collect();
                next.push((path, below));
            }
        }
        if next.is_empty() {
            let above = pattern[..depth].join(".");
            return Err(Complaint::new(
                format!("there is nothing in `{above}` for `*` to stand for"),
                "name a table that the scenario has",
            ));
        }
        paths = next;
    }
    Ok(paths.into_iter().map(|(path, _)| path).collect())
}

fn names_below(node: Option<&Node>) -> Vec<String> {
    let entries = node.map(Node::entries).unwrap_or_default().iter();
    let tables = entries.filter(|entry| matches!(entry.node.value, Value::Table(_)));
    tables.map(|entry| entry.key.clone()).collect()
}

/// Axes that set the same keys: of these only the last would count.
pub(super) fn check_overlaps(axes: &[Axis], sink: &Sink) {
    for (index, axis) in axes.iter().enumerate() {
        let own = axis.leaves();
        for other in &axes[..index] {
            let common = other.leaves().into_iter().find(|leaf| own.contains(leaf));
            if let (Some(leaf), Some(value)) = (common, axis.values.first()) {
                let reason = format!("axes {} and {} both set {leaf}", other.name, axis.name);
                let complaint = Complaint::new(reason, "let one of them set it");
                sink.report(value.place(), "sweep.axis", complaint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        document::parse("t.toml", text).unwrap()
    }

    fn text_at(tree: &Node, path: &str) -> String {
        let node = path
            .split('.')
            .fold(tree, |node, key| node.get(key).expect(path));
        format!("{:?}", node.value)
    }

    #[test]
    fn values_are_scalars_and_bare_words_strings() {
        let base = tree("[network]\nrate = '1Gbit'\n");
        let set: Set = "network.rate=10Gbit,7,true,0.5,\"a,b\"".parse().unwrap();
        let axis = Axis::of_set(&set, &base).unwrap();
        let values: Vec<String> = (axis.values.iter())
            .map(|value| {
                let mut tree = base.clone();
                value.apply(&mut tree).unwrap();
                text_at(&tree, "network.rate")
            })
            .collect();
        let expected = [
            "Text(\"10Gbit\")",
            "Integer(7)",
            "Boolean(true)",
            "Float(0.5)",
            "Text(\"a,b\")",
        ];
        assert_eq!(values, expected);
        assert_eq!(axis.values[4].name, "a,b");
        assert_eq!(axis.values[0].place().line_column(), (2, 8));
    }

    #[test]
    fn a_new_path_makes_its_tables_and_a_star_sets_every_one() {
        let mut base = tree("[variant.a]\n[variant.b]\nx = 1\n");
        let set: Set = "variant.*.network.rate=1Gbit".parse().unwrap();
        Axis::of_set(&set, &base).unwrap().values[0]
            .apply(&mut base)
            .unwrap();
        for variant in ["a", "b"] {
            let at = text_at(&base, &format!("variant.{variant}.network.rate"));
            assert_eq!(at, "Text(\"1Gbit\")");
        }
        assert_eq!(text_at(&base, "variant.b.x"), "Integer(1)");
        let set: Set = "tenant.*.ecn=true".parse().unwrap();
        let axis = Axis::of_set(&set, &base).unwrap();
        let error = axis.values[0].apply(&mut base).unwrap_err();
        assert!(error.reason.contains("nothing in `tenant`"), "{error}");
    }

    #[test]
    fn what_is_no_set_says_how_to_write_one() {
        for (text, why) in [
            ("network.rate", "has no `=`"),
            ("=1", "no name before"),
            ("a=1,,2", "a: a value is missing"),
            ("a=1,2,1", "a: the value 1 is there twice"),
            ("a='x", "is not closed"),
        ] {
            let error = text.parse::<Set>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let base = tree("a = 1\n");
        for (text, why) in [
            ("a..b=1", "`a..b` is no path"),
            ("seed=1,2", "--repeat"),
            ("a=[1]", "is no plain value"),
        ] {
            let error = Axis::of_set(&text.parse().unwrap(), &base).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
