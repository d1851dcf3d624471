//! `sluicegate compare` as a script sees it, over results that the simulator makes in a moment.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

fn sluicegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .env("LC_ALL", "C")
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed by a signal")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two tenants with different stacks, half a second.
const SCENARIO: &str = "
name = 'tiny'
warmup = '100ms'
duration = '400ms'
[network]
topology = 'dumbbell'
pairs = 2
rate = '20Mbit'
queue = '60KB'
[traffic.bulk]
kind = 'bulk'
[traffic.probe]
kind = 'ping-pong'
from = 's1'
to = 'r1'
[variant.unenforced]
[variant.enforced]
network.marking = { kind = 'threshold', k = '9KB' }
enforcement.hosts = 'all'
";

/// A directory with the results `one` and `two`, of two seeds, and `both/one`, which is the first
/// again.
static RESULTS: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("a directory");
    let file = root.join("tiny.toml");
    fs::write(&file, SCENARIO).expect("a scenario");
    for (name, seed) in [("one", "1"), ("two", "2"), ("both/one", "1")] {
        let out = root.join(name);
        let (file, out) = (path(&file), path(&out));
        let run = sluicegate(&["run", file, "--seed", seed, "--out", out]);
        assert_eq!(code(&run), 0, "{}", text(&run.stderr));
    }
    root
});

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

/// The path of something below the results.
fn place(name: &str) -> String {
    path(&RESULTS.join(name)).to_owned()
}

/// A directory with this as its `results.json`.
fn with_results(name: &str, results: &str) -> String {
    let directory = RESULTS.join(name);
    fs::create_dir_all(&directory).expect("a directory");
    fs::write(directory.join("results.json"), results).expect("a file");
    path(&directory).to_owned()
}

#[test]
fn help_has_examples_and_one_directory_is_wrong_usage() {
    let help = sluicegate(&["compare", "--help"]);
    assert_eq!(code(&help), 0);
    let shown = text(&help.stdout);
    assert!(
        shown.contains("Examples:") && shown.contains("[default: 20%]"),
        "{shown}"
    );
    let wrong = sluicegate(&["compare", "a"]);
    assert_eq!(code(&wrong), 2);
    assert!(wrong.stdout.is_empty());
    let wrong = sluicegate(&["compare", "a", "b", "--ratio", "5"]);
    assert_eq!(code(&wrong), 2);
    assert!(
        text(&wrong.stderr).contains("such as 5%"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn a_directory_may_hold_several_results() {
    let output = sluicegate(&["compare", &place("one"), &place("both"), "--check"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("| unenforced  A "), "{shown}");
    assert!(
        shown.contains("all within the tolerances: goodput 5%"),
        "{shown}"
    );
    let results = fs::read_to_string(place("one/results.json")).expect("results.json");
    for name in ["twice/a", "twice/b"] {
        with_results(name, &results);
    }
    let twice = sluicegate(&["compare", &place("one"), &place("twice")]);
    assert_eq!(code(&twice), 2);
    let error = text(&twice.stderr);
    assert!(error.contains("scenario \"tiny\" is also in "), "{error}");
}

#[test]
fn check_exits_with_3_and_names_what_is_outside() {
    let tight = ["--rtt-p99", "1x", "--rtt-p50", "0%", "--tie", "0%"];
    let compare = |more: &[&str]| {
        let directories = [place("one"), place("two")];
        let mut arguments = vec!["compare", &directories[0], &directories[1]];
        arguments.extend(tight);
        arguments.extend(more);
        sluicegate(&arguments)
    };
    let output = compare(&["--check"]);
    assert_eq!(code(&output), 3);
    let error = text(&output.stderr);
    assert!(error.starts_with("check failed: tiny: "), "{error}");
    assert!(error.contains("unenforced: RTT p"), "{error}");
    assert!(!output.stdout.is_empty());
    assert_eq!(code(&compare(&[])), 0);
}

#[test]
fn json_and_files_parse() {
    let out = place("compared");
    let directories = [place("one"), place("two")];
    let output = sluicegate(&[
        "compare",
        &directories[0],
        &directories[1],
        "--json",
        "--out",
        &out,
    ]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["scenarios"][0]["variants"][1]["name"], "enforced");
    assert_eq!(json["scenarios"][0]["differs"][0], "seed");
    let file = fs::read(Path::new(&out).join("compare.json")).expect("compare.json");
    assert_eq!(file, output.stdout);
    let page = fs::read_to_string(Path::new(&out).join("compare.html")).expect("compare.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("\"sides\":[\"A\",\"B\"]"));
    assert!(
        page.contains("data-plot=\"rtt\""),
        "CDFs of samples.parquet"
    );
}

#[test]
fn what_cannot_be_read_exits_with_2_and_says_what_to_do() {
    let empty = place("empty");
    fs::create_dir_all(&empty).expect("a directory");
    let samples = with_results(
        "samples",
        &fs::read_to_string(place("one/results.json")).unwrap(),
    );
    fs::write(Path::new(&samples).join("samples.csv.gz"), "no gzip at all").unwrap();
    let out = place("nothing");
    for (directory, what, advice) in [
        ("/nonexistent", "/nonexistent: No such file", "--out"),
        (&empty, "there is no results.json", "--out"),
        (
            &with_results("newer", "{\"schema\": 9}"),
            "results.json: has schema 9",
            "run the scenario again",
        ),
        (
            &with_results("half", "{\"schema\""),
            "results.json: is no JSON",
            "run the scenario again",
        ),
        (&samples, "samples.csv.gz: ", "remove it"),
    ] {
        let output = sluicegate(&["compare", &place("one"), directory, "--out", &out]);
        let error = text(&output.stderr);
        assert_eq!(code(&output), 2, "{directory}: {error}");
        assert!(error.contains(what) && error.contains(advice), "{error}");
        assert!(output.stdout.is_empty());
    }
    assert!(
        !Path::new(&out).exists(),
        "nothing is written before all is read"
    );
}
