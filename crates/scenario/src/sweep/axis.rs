//! The variations of a sweep: axes, their values, and what each value sets in the tree of a
//! scenario.

use sluicegate_config::{
    document::{self, Node, Place, Value},
    problem::{Complaint, Sink},
    table::{Item, Table},
};

use super::skip::{self, Skip};
use crate::key_path::KeyPath;

/// One thing that is varied.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name in tables: as given, or the path that it sets.
    pub name: String,
    /// The path that it sets; `None` if its values set several keys.
    path: Option<KeyPath>,
    /// Its values in the order of tables.
    pub values: Vec<AxisValue>,
}

/// One value of an axis.
#[derive(Clone, Debug)]
pub struct AxisValue {
    /// As written.
    pub name: String,
    /// Where it is laid over the scenario, and what is.
    path: KeyPath,
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

impl std::fmt::Display for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<&str> = self.labels().collect();
        write!(f, "{}={}", self.name, labels.join(","))
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
        let path = read_path(&set.name).map_err(|c| format!("--set {}: {c}", set.name))?;
        let mut axis = Self {
            name: set.name.clone(),
            path: Some(path),
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
                    let place = path.place(tree);
                    AxisValue {
                        name: label.clone(),
                        path: path.clone(),
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
        let path = table.parse("path", read_path);
        let name = table.get("name").and_then(|item| read_name(&item));
        let Some(name) = name.or_else(|| path.as_ref().map(KeyPath::to_string)) else {
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
}

impl AxisValue {
    /// Lays it over a scenario.
    ///
    /// # Errors
    /// A path that leads nowhere.
    pub(super) fn apply(&self, tree: &mut Node) -> Result<(), Complaint> {
        self.path.lay(tree, &self.node)
    }

    /// Every path that it sets.
    fn leaves(&self) -> Vec<KeyPath> {
        let mut leaves = Vec::new();
        add_leaves(&self.path, &self.node, &mut leaves);
        leaves
    }

    /// Whether a problem of `key` is one of what it sets.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.leaves().iter().any(|leaf| leaf.concerns(key))
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

/// A path that an axis may have.
fn read_path(text: &str) -> Result<KeyPath, Complaint> {
    let path: KeyPath = text.parse()?;
    if FILE_KEYS.contains(&path.first()) {
        let advice = match path.first() {
            "seed" | "repeats" => "say how many seeds with `repeat` or --repeat",
            _ => "vary what a variant may set",
        };
        let reason = format!("`{}` belongs to the file as a whole", path.first());
        return Err(Complaint::new(reason, advice));
    }
    Ok(path)
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
            path: KeyPath::default(),
            node: value.node().clone(),
        });
    }
    if values.is_empty() {
        item.complain("has no value", "name one, as in [sweep.axis.values.red]");
    }
    values
}

/// `values = [1, 2]` of an axis with a path.
fn listed(path: &KeyPath, item: &Item<'_>) -> Vec<AxisValue> {
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
            path: path.clone(),
            node: element.node().clone(),
        });
    }
    if values.is_empty() {
        item.complain("has no value", "list at least one");
    }
    values
}

fn add_leaves(path: &KeyPath, node: &Node, leaves: &mut Vec<KeyPath>) {
    if node.entries().is_empty() {
        leaves.push(path.clone());
    }
    for entry in node.entries() {
        add_leaves(&path.child(&entry.key), &entry.node, leaves);
    }
}

/// Axes that set the same keys: of these only the last would count.
pub(super) fn check_overlaps(axes: &[Axis], skips: &[Skip], sink: &Sink) {
    for (index, axis) in axes.iter().enumerate() {
        for other in &axes[..index] {
            if let Some((leaf, value)) = common(other, axis, skips) {
                let reason = format!("axes {} and {} both set {leaf}", other.name, axis.name);
                let advice = "let one of them set it, or `skip` the values with which both do";
                sink.report(value.place(), "sweep.axis", Complaint::new(reason, advice));
            }
        }
    }
}

/// A path that values of both axes set, and the value of the second, where the combination is not
/// left out.
fn common<'a>(one: &Axis, two: &'a Axis, skips: &[Skip]) -> Option<(KeyPath, &'a AxisValue)> {
    let named = |axis: &Axis, value: &AxisValue| (axis.name.clone(), value.name.clone());
    for (first, second) in (one.values.iter()).flat_map(|v| two.values.iter().map(move |w| (v, w)))
    {
        let own = second.leaves();
        let mut both = first.leaves().into_iter();
        let Some(leaf) = both.find(|leaf| own.iter().any(|own| own.meets(leaf))) else {
            continue;
        };
        let pair = [named(one, first), named(two, second)];
        if !skip::any_at(skips, pair.iter()) {
            return Some((leaf, second));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> Node {
        document::parse("t.toml", text).unwrap()
    }

    fn text_at(tree: &Node, path: &str) -> String {
        let path: KeyPath = path.parse().unwrap();
        format!("{:?}", path.get(tree).unwrap().value)
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
