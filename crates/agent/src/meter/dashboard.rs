//! The dashboard in `dist/grafana` asks for what the exposition tells, and for nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::exposition::tests::full_text;

const DASHBOARD: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../dist/grafana/sluicegate.json"
));

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// Names of series, each with its labels.
fn exported() -> BTreeMap<String, BTreeSet<String>> {
    let text = full_text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in samples {
        let (name, rest) = sample.split_at(sample.find(['{', ' ']).unwrap());
        let labels = series.entry(name.to_owned()).or_default();
        if let Some((inside, _)) = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once("} "))
        {
            let pairs = inside.split("\",").filter_map(|pair| pair.split_once('='));
            labels.extend(pairs.map(|(label, _)| label.to_owned()));
        }
    }
    series
}

/// Everything in the dashboard that is PromQL.
fn queries(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    match document {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    Some(text) if ["expr", "definition"].contains(&key.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => found.extend(queries(value)),
                }
            }
        }
        Value::Array(items) => found.extend(items.iter().flat_map(queries)),
        _ => {}
    }
    found
}

fn is_of_a_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Our series in a query, each with the labels that stand in braces behind it.
fn selectors(query: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in query.match_indices("sluicegate_") {
        let rest = &query[at..];
        let end = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
        let inside = rest[end..]
            .strip_prefix('{')
            .and_then(|inside| inside.split_once('}'))
            .map_or("", |(inside, _)| inside);
        let labels = inside
            .split(',')
            .filter_map(|condition| condition.split(['=', '!']).next())
            .map(|label| label.trim().to_owned())
            .filter(|label| !label.is_empty());
        found.push((rest[..end].to_owned(), labels.collect()));
    }
    found
}

/// The labels by which a query groups.
fn groups(query: &str) -> Vec<String> {
    query
        .match_indices(" by (")
        .filter_map(|(at, sign)| query[at + sign.len()..].split_once(')'))
        .flat_map(|(inside, _)| inside.split(", ").map(str::to_owned))
        .collect()
}

fn balanced(query: &str) -> bool {
    let mut open = Vec::new();
    for character in query.chars() {
        match character {
            '(' | '{' | '[' => open.push(character),
            ')' if open.pop() != Some('(') => return false,
            '}' if open.pop() != Some('{') => return false,
            ']' if open.pop() != Some('[') => return false,
            _ => {}
        }
    }
    open.is_empty() && query.matches('"').count() % 2 == 0
}

#[test]
fn every_query_is_about_what_is_exported() {
    let document: Value = serde_json::from_str(DASHBOARD).unwrap();
    let series = exported();
    let queries = queries(&document);
    assert!(queries.len() > 50, "{} queries", queries.len());
    for query in queries {
        assert!(balanced(&query), "brackets of `{query}`");
        let asked = selectors(&query);
        assert!(!asked.is_empty(), "`{query}` is about nothing of ours");
        let mut labels_here: BTreeSet<&str> = OF_PROMETHEUS.into();
        for (name, conditions) in &asked {
            let labels = series
                .get(name)
                .unwrap_or_else(|| panic!("`{query}`: {name} is not exported"));
            labels_here.extend(labels.iter().map(String::as_str));
            for label in conditions {
                let known = labels.contains(label) || OF_PROMETHEUS.contains(&label.as_str());
                assert!(known, "`{query}`: {name} has no label {label}");
            }
        }
        for label in groups(&query) {
            assert!(
                labels_here.contains(label.as_str()),
                "`{query}`: nothing has the label {label}"
            );
        }
    }
}

#[test]
fn panels_have_places_of_their_own_and_say_what_they_show() {
    let document: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = document["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} lies over another", panel["title"]);
            }
        }
        let described = panel["description"]
            .as_str()
            .is_some_and(|text| !text.is_empty());
        assert!(described || panel["type"] == "row", "{}", panel["title"]);
    }
}

#[test]
fn a_wrong_query_would_be_found() {
    assert_eq!(
        selectors(r#"sum by (a) (rate(sluicegate_x_total{b=~"$b", c!="d"}[1m]))"#),
        [(
            "sluicegate_x_total".to_owned(),
            vec!["b".to_owned(), "c".to_owned()]
        )]
    );
    assert_eq!(groups("sum by (a, le) (x)"), ["a", "le"]);
    assert!(!balanced("sum(rate(x[5m))") && !balanced("x{a=\"b}") && balanced("x{a=\"b\"}"));
}
