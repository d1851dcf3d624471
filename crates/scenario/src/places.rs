//! Where in the files the keys of a variant stand, for a world that must refuse one of them.

use sluicegate_policy::table::{Item, Table};

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
}
