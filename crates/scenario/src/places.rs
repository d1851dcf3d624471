//! Where in the files the keys of a variant stand, for a world that must refuse one of them.

use sluicegate_config::table::{Item, Table};

use crate::resolve::matches;

/// Every key of a variant by its dotted path, with `file:line:column`. Says nothing of what is meant: any two
/// are equal.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<(String, String)>);

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Places {
    /// Of every key below `root`.
    pub fn of(root: &Table<'_>) -> Self {
        let mut places = Self::default();
        for (_, item) in root.named() {
            places.add(&item);
        }
        places
    }

    fn add(&mut self, item: &Item<'_>) {
        let (line, column) = item.place().line_column();
        let place = format!("{}:{line}:{column}", item.place().file());
        self.0.push((item.path().to_owned(), place));
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

    /// `file:line:column: path` of the first key named `key` in the top-level table `table`; without one, as
    /// where the variant comes from no file, `table.key`.
    pub fn find(&self, table: &str, key: &str) -> String {
        let fits = |path: &str| {
            let top = path.split(['.', '[']).next();
            top == Some(table) && path.rsplit('.').next() == Some(key)
        };
        match self.0.iter().find(|(path, _)| fits(path)) {
            Some((path, place)) => format!("{place}: {path}"),
            None => format!("{table}.{key}"),
        }
    }

    /// `file:line:column: path` of this path; without one, where the variant comes from no file, the path.
    pub fn at(&self, path: &str) -> String {
        match self.0.iter().find(|(known, _)| known == path) {
            Some((path, place)) => format!("{place}: {path}"),
            None => path.to_owned(),
        }
    }

    /// [`Places::at`] for the key that decides over a tenant: of its own table, else of the last whose pattern
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
        let ranked = self
            .0
            .iter()
            .filter_map(|(path, _)| Some((rank(path)?, path)));
        match ranked.max_by_key(|(rank, _)| *rank) {
            Some((_, path)) => self.at(path),
            None => format!("tenant.{name}.{key}"),
        }
    }
}
