//! Where in the files the keys of a variant stand, for a world that must refuse one of them.

use std::collections::BTreeMap;

use sluicegate_config::{
    Problem,
    document::Place,
    problem::Complaint,
    table::{Item, Table},
};

use crate::resolve::matches;

/// The place of every key of a variant. Says nothing of what is meant: any two are equal.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// In the order of the file.
    paths: Vec<String>,
    places: BTreeMap<String, Place>,
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    /// Of `root` and of every key below.
    pub fn of(root: &Table<'_>) -> Self {
        Self::of_item(root.item())
    }

    /// Of one key and of every key below.
    pub(crate) fn of_item(item: &Item<'_>) -> Self {
        let mut places = Self::default();
        places.add(item);
        places
    }

    fn add(&mut self, item: &Item<'_>) {
        self.paths.push(item.path().to_owned());
        self.places
            .insert(item.path().to_owned(), item.place().clone());
        if item.is_table() {
            for (_, below) in item.table().iter().flat_map(Table::named) {
                self.add(&below);
            }
        } else if item.is_list() {
            for element in item.one_or_more() {
                self.add(&element);
            }
        }
    }

    /// A problem of the key at this path, with its place; where no file has the key, with that of
    /// the innermost table around it that a file has.
    pub fn problem(&self, path: &str, reason: &str, advice: &str) -> Problem {
        let complaint = Complaint::new(reason, advice);
        let mut known = path;
        loop {
            if let Some(place) = self.places.get(known) {
                return place.problem(path, complaint);
            }
            if known.is_empty() {
                // The variant comes from no file.
                return Problem::of_key(path, complaint);
            }
            known = known.rfind(['.', '[']).map_or("", |end| &known[..end]);
        }
    }

    /// A problem of the first key of all, which a file calls `name`.
    pub(crate) fn problem_of_first(&self, name: &str, reason: &str, advice: &str) -> Problem {
        let complaint = Complaint::new(reason, advice);
        let first = self.paths.first().and_then(|path| self.places.get(path));
        match first {
            Some(place) => place.problem(name, complaint),
            None => Problem::of_key(name, complaint),
        }
    }

    /// Path of the first key named `key` in the top-level table `table`; without one `table.key`.
    pub fn find(&self, table: &str, key: &str) -> String {
        let fits = |path: &&String| {
            let top = path.split(['.', '[']).next();
            top == Some(table) && path.rsplit('.').next() == Some(key)
        };
        let found = self.paths.iter().find(fits);
        found.cloned().unwrap_or_else(|| format!("{table}.{key}"))
    }

    /// Path of the first of these keys that `table` has; without one that of the table.
    pub fn first_of(&self, table: &str, keys: &[&str]) -> String {
        let paths = keys.iter().map(|key| format!("{table}.{key}"));
        let mut known = paths.filter(|path| self.places.contains_key(path));
        known.next().unwrap_or_else(|| table.to_owned())
    }

    /// Path of the key that decides over a tenant: of its own table, else of the last whose pattern
    /// fits, else of `[tenant.default]`.
    pub fn of_tenant(&self, name: &str, key: &str) -> String {
        let rank = |path: &str| {
            let table = path.strip_prefix("tenant.")?.strip_suffix(key)?;
            match table.strip_suffix('.')? {
                own if own == name => Some(2),
                "default" => Some(0),
                pattern => matches(pattern, name).then_some(1),
            }
        };
        let ranked = self.paths.iter();
        let ranked = ranked.filter_map(|path| Some((rank(path)?, path)));
        match ranked.max_by_key(|(rank, _)| *rank) {
            Some((_, path)) => path.clone(),
            None => format!("tenant.{name}.{key}"),
        }
    }
}
