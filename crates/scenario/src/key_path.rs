//! Dotted paths into the tree of a scenario, as axes of sweeps and parameters have them.
//!
//! ```text
//! path = step ("." step)*
//! step = key | position | "*"
//! ```
//! A key has letters, digits, `_` and `-`. In an array a step is a position, from 0. `*` stands for
//! every table in the table or array above it.

use std::{fmt, str::FromStr};

use sluicegate_config::{
    document::{Entry, Node, Place, Value},
    problem::Complaint,
    table::nearest,
};

/// The step that stands for every table.
const EVERY: &str = "*";

/// A dotted path; empty for the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl FromStr for KeyPath {
    type Err = Complaint;

    fn from_str(text: &str) -> Result<Self, Complaint> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_step = |step: &str| step == EVERY || !step.is_empty() && step.chars().all(fits);
        match text.split('.').all(is_step) {
            true => Ok(Self(text.split('.').map(str::to_owned).collect())),
            false => Err(Complaint::new(
                format!("`{text}` is no path"),
                "write keys with dots between them, for example network.rate",
            )),
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl KeyPath {
    /// The first step; empty for the root.
    pub fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The path one step longer.
    pub fn child(&self, step: &str) -> Self {
        Self(self.0.iter().cloned().chain([step.to_owned()]).collect())
    }

    /// Whether some key belongs to both.
    pub fn meets(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        let same = pairs.all(|(a, b)| a == b || a == EVERY || b == EVERY);
        same && self.0.len() == other.0.len()
    }

    /// Whether a problem with this key of the language (`rule[0].mss`) is about the path, about
    /// something below it, or about a table on the way. Problems of a variant name its keys as if
    /// they stood at the root.
    pub fn concerns(&self, key: &str) -> bool {
        let key = key.replace('[', ".").replace(']', "");
        let own = match self.first() {
            "variant" => self.0.get(2..).filter(|below| !below.is_empty()),
            _ => None,
        };
        let own = own.unwrap_or(&self.0);
        // The root is no key.
        !own.is_empty()
            && own
                .iter()
                .zip(key.split('.'))
                .all(|(own, other)| own == other)
    }

    /// The paths without `*` that this one stands for in a tree. Keys may be missing there.
    ///
    /// # Errors
    /// A `*` that stands for nothing, a step into an array that is no position in it.
    pub fn each(&self, tree: &Node) -> Result<Vec<Self>, Complaint> {
        let mut paths = vec![(Self::default(), Some(tree))];
        for step in &self.0 {
            let mut longer = Vec::new();
            for (path, node) in paths {
                for step in path.steps(node, step)? {
                    let below = node.and_then(|node| below(node, &step));
                    longer.push((path.child(&step), below));
                }
            }
            paths = longer;
        }
        Ok(paths.into_iter().map(|(path, _)| path).collect())
    }

    /// The steps that `step` stands for below `node`, which is at this path.
    fn steps(&self, node: Option<&Node>, step: &str) -> Result<Vec<String>, Complaint> {
        if let Some(Value::List(items)) = node.map(|node| &node.value) {
            if step != EVERY && position(items, step).is_none() {
                return Err(self.no_position(items.len(), step));
            }
        }
        let steps = match step {
            EVERY => node.map(tables).unwrap_or_default(),
            step => vec![step.to_owned()],
        };
        match steps.is_empty() {
            true => Err(Complaint::new(
                format!("there is nothing in `{self}` for `*` to stand for"),
                "name a table that the scenario has",
            )),
            false => Ok(steps),
        }
    }

    fn no_position(&self, length: usize, step: &str) -> Complaint {
        let advice = match length {
            0 => "it is empty".to_owned(),
            1 => "its only position is 0".to_owned(),
            _ => format!("its positions are 0 to {}", length - 1),
        };
        let reason = format!("the array `{self}` has no position \"{step}\"");
        Complaint::new(reason, advice)
    }

    /// The node at the path, which has no `*`.
    pub fn get<'a>(&self, tree: &'a Node) -> Option<&'a Node> {
        (self.0.iter()).try_fold(tree, |node, step| below(node, step))
    }

    /// Where the value at the path stands, or the innermost table on the way to it.
    pub fn place(&self, tree: &Node) -> Place {
        let mut at = tree;
        for step in &self.0 {
            let first = (step == EVERY).then(|| tables(at).into_iter().next());
            match below(at, first.flatten().as_deref().unwrap_or(step)) {
                Some(node) => at = node,
                None => break,
            }
        }
        at.place.clone()
    }

    /// That nothing is set at the path, which has no `*`; with the nearest key that is.
    pub fn unset(&self, tree: &Node) -> Complaint {
        let mut path = Self::default();
        let mut at = tree;
        for step in &self.0 {
            let Some(node) = below(at, step) else {
                let known: Vec<&str> = at.entries().iter().map(|e| e.key.as_str()).collect();
                let near = nearest(step, &known);
                let key = path.child(step);
                return Complaint::new(
                    format!("the file does not set `{key}`"),
                    near.trim_start_matches([';', ' ']),
                );
            };
            path = path.child(step);
            at = node;
        }
        Complaint::new(format!("the file sets `{self}`"), "")
    }

    /// Lays a node over each value that the path stands for; tables that are missing are made.
    ///
    /// # Errors
    /// Those of [`KeyPath::each`].
    pub fn lay(&self, tree: &mut Node, over: &Node) -> Result<(), Complaint> {
        for path in self.each(tree)? {
            lay(tree, &path.0, over);
        }
        Ok(())
    }
}

fn lay(node: &mut Node, steps: &[String], over: &Node) {
    let inner = match steps {
        [] => None,
        [step, rest @ ..] => match &mut node.value {
            Value::List(items) => position(items, step).map(|at| (&mut items[at], rest)),
            // The last key is laid over as part of its table, of which it may change the kind.
            _ if rest.is_empty() => None,
            _ => node.get_mut(step).map(|inner| (inner, rest)),
        },
    };
    match inner {
        Some((inner, rest)) => lay(inner, rest, over),
        None => node.overlay(&in_tables(steps, over)),
    }
}

/// A node within tables, one for each step.
fn in_tables(steps: &[String], node: &Node) -> Node {
    steps.iter().rev().fold(node.clone(), |node, key| Node {
        place: node.place.clone(),
        value: Value::Table(vec![Entry {
            key: key.clone(),
            place: node.place.clone(),
            node,
        }]),
    })
}

/// The node one step below.
fn below<'a>(node: &'a Node, step: &str) -> Option<&'a Node> {
    match &node.value {
        Value::List(items) => items.get(position(items, step)?),
        _ => node.get(step),
    }
}

fn position(items: &[Node], step: &str) -> Option<usize> {
    step.parse().ok().filter(|at| *at < items.len())
}

/// The tables right below, as steps.
fn tables(node: &Node) -> Vec<String> {
    let is_table = |node: &Node| matches!(node.value, Value::Table(_));
    match &node.value {
        Value::List(items) => {
            let items = items.iter().enumerate().filter(|(_, item)| is_table(item));
            items.map(|(at, _)| at.to_string()).collect()
        }
        _ => {
            let entries = node.entries().iter().filter(|entry| is_table(&entry.node));
            entries.map(|entry| entry.key.clone()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_config::document;

    use super::*;

    const TREE: &str = "list = [1, 2]\nempty = []\n[network]\nqueue = '5KB'\n\
        marking = { kind = 'threshold', k = '9KB' }\n[variant.a]\nx = 1\n[variant.b]\nx = 2\n\
        [[rule]]\nmss = 1\n[[rule]]\nmss = 2\n";

    fn tree() -> Node {
        document::parse("t.toml", TREE).unwrap()
    }

    fn path(text: &str) -> KeyPath {
        text.parse().unwrap()
    }

    fn text_at(tree: &Node, at: &str) -> Option<String> {
        path(at).get(tree)?.value.scalar_text()
    }

    /// The tree with `value = 7` laid over it.
    fn laid(at: &str) -> Result<Node, Complaint> {
        let mut tree = tree();
        let seven = document::parse("seven.toml", "value = 7\n").unwrap();
        path(at).lay(&mut tree, seven.get("value").unwrap())?;
        Ok(tree)
    }

    #[test]
    fn keys_positions_and_stars_lead_to_values() {
        let tree = tree();
        for (text, paths) in [
            ("network.queue", &["network.queue"][..]),
            ("rule.1.mss", &["rule.1.mss"]),
            ("rule.*.mss", &["rule.0.mss", "rule.1.mss"]),
            ("variant.*.y.z", &["variant.a.y.z", "variant.b.y.z"]),
            (
                "*.*.x",
                &["network.marking.x", "variant.a.x", "variant.b.x"],
            ),
        ] {
            let each: Vec<String> = (path(text).each(&tree).unwrap().iter())
                .map(ToString::to_string)
                .collect();
            assert_eq!(each, paths, "{text}");
        }
        assert_eq!(text_at(&tree, "rule.1.mss").as_deref(), Some("2"));
        assert_eq!(text_at(&tree, "list.0").as_deref(), Some("1"));
        assert_eq!(text_at(&tree, "variant.a.y"), None);
    }

    #[test]
    fn what_is_laid_over_replaces_and_tables_are_made() {
        for at in [
            "list.1",
            "rule.*.mss",
            "variant.*.new.deep",
            "network.queue.x",
        ] {
            let tree = laid(at).unwrap();
            for at in path(at).each(&tree).unwrap() {
                assert_eq!(
                    text_at(&tree, &at.to_string()).as_deref(),
                    Some("7"),
                    "{at}"
                );
            }
            assert_eq!(text_at(&tree, "variant.b.x").as_deref(), Some("2"));
        }
        let other = laid("network.marking.kind").unwrap();
        assert_eq!(text_at(&other, "network.marking.k"), None, "another kind");
        assert_eq!(laid("*").unwrap().entries().len(), 5);
    }

    #[test]
    fn what_leads_nowhere_says_why() {
        for (text, why) in [
            (
                "rule.2.mss",
                "the array `rule` has no position \"2\"; its positions are 0 to 1",
            ),
            ("rule.mss", "the array `rule` has no position \"mss\""),
            (
                "empty.0",
                "the array `empty` has no position \"0\"; it is empty",
            ),
            ("tenant.*.ecn", "nothing in `tenant` for `*`"),
            ("list.*", "nothing in `list` for `*`"),
        ] {
            let error = laid(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let unset = path("network.quee").unset(&tree()).to_string();
        assert_eq!(
            unset,
            "the file does not set `network.quee`; did you mean \"queue\"?"
        );
        for text in ["", "a..b", "a b", "a.", "**", "a[0]"] {
            assert!(text.parse::<KeyPath>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_knows_its_place_and_its_problems() {
        let line = |text: &str| path(text).place(&tree()).line_column().0;
        assert_eq!(line("rule.1.mss"), 13);
        assert_eq!(line("variant.*.x"), 7);
        assert_eq!(line("network.rate"), 3);
        for (text, key, concerns) in [
            ("network.rate", "network.rate", true),
            ("network.rate.x", "network.rate", true),
            ("network", "network.rate", true),
            ("network.rat", "network.rate", false),
            ("variant.a.policy.rule.0.mss", "policy.rule[0].mss", true),
            ("variant.a.policy.rule.0.mss", "policy.rule[1].mss", false),
        ] {
            assert_eq!(path(text).concerns(key), concerns, "{text} {key}");
        }
        assert!(path("variant.*.x").meets(&path("variant.a.x")));
        assert!(!path("variant.*.x").meets(&path("variant.a.x.y")));
    }

    proptest! {
        #[test]
        fn a_path_is_printed_as_it_was_written(
            text in r"([a-zA-Z0-9_-]{1,8}|\*)(\.([a-zA-Z0-9_-]{1,8}|\*)){0,6}",
        ) {
            prop_assert_eq!(path(&text).to_string(), text);
        }

        #[test]
        fn no_text_becomes_another_path(text in r"[a-z0.*\[ ]{0,12}") {
            if let Ok(path) = text.parse::<KeyPath>() {
                prop_assert_eq!(path.to_string(), text);
            }
        }
    }
}
