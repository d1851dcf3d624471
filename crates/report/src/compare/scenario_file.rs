//! Where the scenario files of the sides differ.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Difference;

/// Keys that say nothing of what was measured, or that the head of the comparison shows anyway.
const NOT_MEASURED: [&str; 5] = ["expect", "mirrors", "name", "seed", "title"];

/// Every key whose value is not the same in all files, by name; `None` stands for no file, or one
/// that is no TOML.
pub fn differences(files: &[Option<&str>]) -> Vec<Difference> {
    let parsed: Vec<Option<BTreeMap<String, String>>> =
        files.iter().map(|file| file.and_then(keys)).collect();
    let names: BTreeSet<&String> = parsed
        .iter()
        .flatten()
        .flat_map(|keys| keys.keys())
        .collect();
    let difference = |name: &String| {
        let mut present = parsed.iter().flatten().map(|keys| keys.get(name));
        let first = present.next()?;
        present.any(|value| value != first).then(|| Difference {
            key: name.clone(),
            values: parsed
                .iter()
                .map(|keys| keys.as_ref()?.get(name).cloned())
                .collect(),
        })
    };
    names.into_iter().filter_map(difference).collect()
}

/// Dotted key and value, as TOML writes it, of everything in a file.
fn keys(text: &str) -> Option<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().ok()?;
    let mut keys = BTreeMap::new();
    for (name, value) in &table {
        if !NOT_MEASURED.contains(&name.as_str()) {
            flatten(name, value, &mut keys);
        }
    }
    Some(keys)
}

fn flatten(name: &str, value: &toml::Value, keys: &mut BTreeMap<String, String>) {
    let below = |inner: &str| format!("{name}.{inner}");
    let is_title = |inner: &str| inner == "title";
    match value {
        toml::Value::Table(table) => table
            .iter()
            .filter(|(inner, _)| !is_title(inner))
            .for_each(|(inner, value)| flatten(&below(inner), value, keys)),
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => list
            .iter()
            .enumerate()
            .for_each(|(index, value)| flatten(&format!("{name}[{index}]"), value, keys)),
        value => {
            keys.insert(name.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(files: &[Option<&str>]) -> Vec<String> {
        let write = |value: &Option<String>| value.clone().unwrap_or("-".into());
        differences(files)
            .iter()
            .map(|d| {
                format!(
                    "{}: {}",
                    d.key,
                    d.values.iter().map(write).collect::<Vec<_>>().join(" ")
                )
            })
            .collect()
    }

    #[test]
    fn keys_that_matter_are_compared_wherever_they_stand() {
        let a = "seed = 1\nduration = '5s'\n[variant.v]\ntitle = 'a'\nnetwork.rate = '1Gbit'\n[expect]\nx = 'y'";
        let b =
            "seed = 2\n[variant.v]\ntitle = 'b'\n[variant.v.network]\nrate = '2Gbit'\nmtu = 9000";
        assert_eq!(
            shown(&[Some(a), Some(b)]),
            [
                "duration: \"5s\" -",
                "variant.v.network.mtu: - 9000",
                "variant.v.network.rate: \"1Gbit\" \"2Gbit\"",
            ]
        );
    }

    #[test]
    fn rules_of_a_policy_are_told_apart_by_their_number() {
        let rule = |beta: &str| format!("[[p.rule]]\nport = 1\n[[p.rule]]\nbeta = {beta}\n");
        assert_eq!(
            shown(&[Some(&rule("0.5")), Some(&rule("0.7"))]),
            ["p.rule[1].beta: 0.5 0.7"]
        );
    }

    #[test]
    fn a_side_without_a_file_differs_in_nothing() {
        assert!(shown(&[Some("a = 1"), None]).is_empty());
        assert!(shown(&[Some("a = 1"), Some("a = =")]).is_empty());
        assert_eq!(shown(&[Some("a = 1"), None, Some("a = 2")]), ["a: 1 - 2"]);
    }
}
