//! The page is what the code checks, and the code checks nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::all;

const BEGIN: &str = "<!-- bounds: begin -->\n";
const END: &str = "<!-- bounds: end -->\n";

/// With it the test writes the page instead of comparing it.
const WRITE: &str = "SLUICEGATE_WRITE_BOUNDS";

fn table() -> String {
    let mut text = "\n| keys | kind | least | most | reason |\n|---|---|---|---|---|\n".to_owned();
    let priorities = sluicegate_config::bound::PRIORITIES.row();
    for row in all().into_iter().map(|(_, _, row)| row).chain([priorities]) {
        text.push_str(&row);
        text.push('\n');
    }
    text + "\n"
}

#[test]
fn the_page_has_every_bound_that_the_code_checks() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/bounds.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark of the begin");
    let (found, after) = rest.split_once(END).expect("the mark of the end");
    let table = table();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
        return;
    }
    assert!(
        found == table,
        "docs/bounds.md differs from the code; write it with {WRITE}=1\n{table}"
    );
}

#[test]
fn every_bound_has_keys_and_a_reason_of_a_line() {
    for (name, keys, row) in all() {
        let reason = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let length = reason.chars().count();
        assert!((5..=75).contains(&length), "{name}: {length}: {reason}");
        assert!(!keys.is_empty(), "{name}");
    }
}

/// The files of the crate but for this folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match path.is_dir() {
            true if name == "bounds" => {}
            true => sources(&path, found),
            false if name.ends_with(".rs") && name != "bounds.rs" => found.push(path),
            false => {}
        }
    }
}

/// By file, its text without comments and without what only tests have.
fn code() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        (path, code)
    };
    let files = files.into_iter().filter(|path| !path.ends_with("tests.rs"));
    files.map(read).collect()
}

/// What would check a number by a range of its own, or report it in words of its own.
const OWN: [&str; 6] = [
    ".integer(",
    ".number(",
    ".any_number(",
    "Bound {",
    "must lie between",
    "must not be above",
];

#[test]
fn no_number_is_checked_by_a_range_that_the_table_does_not_have() {
    let mut own = Vec::new();
    for (path, code) in code() {
        for (at, line) in code.lines().enumerate() {
            if OWN.iter().any(|text| line.contains(text)) {
                own.push(format!("{}: code line {at}: {line}", path.display()));
            }
        }
    }
    assert!(own.is_empty(), "{}", own.join("\n"));
}

/// `"key"` and the name of the bound, where both stand in a call of `within`.
fn calls(code: &str) -> Vec<(&str, &str)> {
    let calls = code.split(".within(").skip(1);
    let parts = calls.filter_map(|call| {
        let rest = call.trim_start().strip_prefix('"')?;
        let (key, rest) = rest.split_once('"')?;
        let rest = rest.trim_start_matches([',', ' ', '\n']);
        let rest = rest.strip_prefix("&bounds::")?;
        let end = rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
        Some((key, &rest[..end?]))
    });
    parts.collect()
}

#[test]
fn a_key_is_read_by_a_bound_that_names_it() {
    let all = all();
    let mut found = 0;
    for (path, code) in code() {
        for (key, name) in calls(&code) {
            let bound = all.iter().find(|(own, ..)| *own == name);
            let (_, keys, _) = bound.unwrap_or_else(|| panic!("{}: {name}", path.display()));
            let last = |own: &&str| own.rsplit('.').next() == Some(key);
            assert!(
                keys.iter().any(last),
                "{}: `{key}` by {name}",
                path.display()
            );
            found += 1;
        }
    }
    assert!(found > 25, "{found} calls");
}
