//! Claims about several runs, and published figures, as a script sees them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Flows of very different sizes and, in one variant, a little more delay: every run is slower with
/// it, but seeds differ by far more.
const SCENARIO: &str = "
name = 'tiny'
warmup = '100ms'
duration = '5s'
repeats = 4
[network]
topology = 'dumbbell'
pairs = 2
rate = '1Gbit'
[traffic.flows]
kind = 'trace'
from = 's*'
to = 'r*'
sizes = 'websearch'
load = '50Mbit'
classes = { all = 'rest' }
[variant.near]
[variant.far]
network.delay = '200us'
";

fn sluicegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(arguments)
        .env("LC_ALL", "C")
        .output()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of its own with this scenario.
fn place(name: &str, scenario: &str) -> (PathBuf, String) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("claims")
        .join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("a directory");
    let file = root.join("tiny.toml");
    fs::write(&file, scenario).expect("a scenario");
    let file = file.display().to_string();
    (root, file)
}

/// Runs the scenario with one line of `[expect]`: exit code and standard error.
fn checked(name: &str, line: &str) -> (Option<i32>, String) {
    let (_, file) = place(name, &format!("{SCENARIO}[expect]\nclaim = '{line}'\n"));
    let output = sluicegate(&["run", &file, "--check"]);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_significant_claim_fails_where_intervals_overlap() {
    let (code, said) = checked("plain", "near.fct_us.all.mean < far.fct_us.all.mean");
    assert_eq!(code, Some(0), "{said}");
    let line = "significantly near.fct_us.all.mean < far.fct_us.all.mean";
    let (code, said) = checked("overlap", line);
    assert_eq!(code, Some(3), "{said}");
    let line = said
        .lines()
        .find(|line| line.contains("claim: significantly"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.contains(" in [") && line.contains(" against "),
        "{line}"
    );
    // Run by run there is no doubt.
    let ratio = "significantly near.fct_us.all.mean / far.fct_us.all.mean < 1";
    let (code, said) = checked("paired", ratio);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = checked(
        "share",
        "in all runs near.fct_us.all.mean < far.fct_us.all.mean",
    );
    assert_eq!(code, Some(0), "{said}");
    let never = "in at most 0.5 of runs near.fct_us.all.mean < far.fct_us.all.mean";
    let (code, said) = checked("never", never);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("(1 of runs against 0 to 0.5)"), "{said}");
}

#[test]
fn claims_about_runs_need_several_of_them() {
    let scenario = SCENARIO.replace("repeats = 4\n", "");
    let line = "claim = 'significantly near.fct_us.all.mean < far.fct_us.all.mean'";
    let (_, file) = place("one-run", &format!("{scenario}[expect]\n{line}\n"));
    let output = sluicegate(&["run", &file]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let number = scenario.lines().count() + 2;
    assert!(said.contains(&format!("tiny.toml:{number}:")), "{said}");
    assert!(said.contains("claim: it is about several runs"), "{said}");
}

#[test]
fn a_sweep_compares_intervals() {
    let swept = |name: &str, line: &str| {
        let expect = format!("{SCENARIO}[sweep.expect]\nclaim = '{line}'\n");
        let (root, file) = place(name, &expect);
        let out = root.join("out").display().to_string();
        let set = "network.queue=1MB,2MB";
        let output = sluicegate(&["sweep", &file, "--set", set, "--check", "--out", &out]);
        (output.status.code(), text(&output.stderr))
    };
    let line = "every fct_us.all.mean[variant=near] < fct_us.all.mean[variant=far]";
    let (code, said) = swept("sweep-overlap", line);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains(" ± "), "{said}");
    let ratio = "every fct_us.all.mean[variant=near] / fct_us.all.mean[variant=far] < 1";
    let (code, said) = swept("sweep-paired", ratio);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn published_figures_have_verdicts_and_a_page() {
    let published = "
[published]
count = 'near.fct_us.all.count / near.fct_us.all.count ~ 1.1'
near-us = { figure = 'near.fct_us.all.mean ~ 1', cause = 'another testbed' }
far-us = 'far.fct_us.all.mean ~ 2'
";
    let (root, file) = place("published", &format!("{SCENARIO}{published}"));
    let out = root.join("out").display().to_string();
    let output = sluicegate(&["run", &file, "--out", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("differs in size"));
    let page = sluicegate(&["published", &out]);
    let page = text(&page.stdout);
    for (claim, verdict) in [
        ("| count |", "| agrees |  |"),
        ("| near-us |", "| differs in size | another testbed |"),
        ("| far-us |", "| differs in size | unknown |"),
    ] {
        let row = page.lines().find(|line| line.contains(claim));
        assert!(
            row.is_some_and(|row| row.ends_with(verdict)),
            "{claim}: {page}"
        );
    }
    let wrong = sluicegate(&["published", &root.join("nothing").display().to_string()]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn the_page_has_sweeps_and_the_means_of_several_seeds() {
    let scenario = SCENARIO.replace("repeats = 4", "repeats = 1");
    let ratio = "fct_us.all.mean[variant=near] / fct_us.all.mean[variant=far]";
    let lines = format!(
        "[published]\nnear-us = 'near.fct_us.all.mean ~ 1'\n[sweep.published]\n\
         shorter = 'mean of every {ratio} ~ 0.9'\n\
         longer = {{ figure = 'most of every 1 - {ratio} ~ 9', cause = 'another network' }}\n"
    );
    let (root, file) = place("seeds", &format!("{scenario}{lines}"));
    let dirs = ["1", "2", "sweep"].map(|name| root.join(name).display().to_string());
    for seed in 0..2 {
        let arguments = ["--seed", &dirs[seed][dirs[seed].len() - 1..], "--out"];
        let output = sluicegate(&[&["run", &file], &arguments[..], &[&dirs[seed]]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let set = ["--set", "network.queue=4MB,8MB", "--repeat", "6", "--out"];
    let output = sluicegate(&[&["sweep", &file], &set[..], &[&dirs[2]]].concat());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("shorter") && shown.contains("agrees"),
        "{shown}"
    );
    let json = fs::read_to_string(root.join("sweep/sweep.json")).expect("a sweep");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let line = json["published"]
        .as_array()
        .expect("lines")
        .iter()
        .find(|l| l["name"] == "shorter");
    let line = line.expect("a line");
    assert_eq!(
        (&line["verdict"], &line["published"]),
        (&"agrees".into(), &0.9.into())
    );
    assert_eq!(line["interval"].as_array().map(Vec::len), Some(2));
    let page = text(
        &sluicegate(&[&["published"], &dirs.each_ref().map(String::as_str)[..]].concat()).stdout,
    );
    let row = |claim: &str| {
        let row = page.lines().find(|line| line.contains(claim));
        row.unwrap_or_else(|| panic!("{claim}: {page}")).to_owned()
    };
    assert!(row("| near-us |").contains(" ± "), "{page}");
    assert!(
        row("| longer |").ends_with("| differs in size | another network |"),
        "{page}"
    );
    assert!(row("| sim |").contains("| 1, 2 |"), "{page}");
    assert!(row("| sweep |").contains("| 1, 2, 3, 4, 5, 6 |"), "{page}");
    let twice = sluicegate(&["published", &dirs[0], &dirs[0]]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(
        text(&twice.stderr).contains("two runs have seed 1"),
        "{}",
        text(&twice.stderr)
    );
}

/// The flow fills its link. So the published figure moves with the link's rate, and the expectation
/// breaks at half of it.
#[test]
fn half_and_double_of_a_parameter_stand_beside_the_value() {
    let scenario = "name = 'tiny'\nwarmup = '100ms'\nduration = '500ms'\n[network]\n\
        topology = 'dumbbell'\npairs = 1\nrate = '10Mbit'\nqueue = '64KB'\n[traffic.b]\n\
        kind = 'bulk'\n[expect]\nfast = 'base.goodput_bps.sum > 8_000_000'\n[published]\n\
        goodput = 'base.goodput_bps.sum ~ 9_500_000'\n[[parameter]]\npath = 'network.rate'\n\
        origin = 'given: section 5'\n[[parameter]]\npath = 'sim.receive_delay'\nvalue = '10us'\n\
        origin = 'chosen: the default'\ndouble = '2min'\n[[parameter]]\n\
        path = 'tenant.default.rto_initial'\nvalue = '1s'\norigin = 'chosen: no SYN is lost'\n";
    let (root, file) = place("sensitivity", scenario);
    let out = root.join("out").display().to_string();
    let page = sluicegate(&["sensitivity", &file, "--out", &out]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    let page = text(&page.stdout);
    let row = |path: &str| {
        page.lines()
            .find(|line| line.contains(path))
            .unwrap_or_default()
    };
    let rate = row("network.rate = 10Mbit");
    assert!(rate.contains("given: section 5"), "{page}");
    assert!(!page.contains("short form"), "{page}");
    assert!(rate.contains("5Mbit: goodput 9"), "{page}");
    assert!(rate.contains("not held: fast"), "{page}");
    assert!(rate.contains("20Mbit: goodput 9"), "{page}");
    let delay = row("sim.receive\\_delay = 10us");
    assert!(delay.contains("5us: nothing"), "{page}");
    assert!(delay.contains("2min: refused: "), "{page}");
    let unused = row("rto\\_initial = 1s");
    let (half, double) = ("0.5s: no run differs", "2s: no run differs");
    assert!(unused.contains(half) && unused.contains(double), "{page}");
    assert!(page.contains("\n1 expectation, 1 figure.\n"), "{page}");
    let json = fs::read_to_string(root.join("out/sensitivity.json")).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let half = &json[0]["rows"][0]["changes"][0];
    assert_eq!(half["broken"][0], "fast");
    let [before, after] = ["before", "after"].map(|at| half["figures"][0][at].as_f64().unwrap());
    assert!((0.4..0.6).contains(&(after / before)), "{before} {after}");
    // A file without a parameter says what to do.
    let (_, file) = place("no-parameter", SCENARIO);
    let none = sluicegate(&["sensitivity", &file]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        text(&none.stderr).contains("[[parameter]]"),
        "{}",
        text(&none.stderr)
    );
}

/// The same of a sweep: its figure is the left side of its expectation, in the cells that are left.
#[test]
fn half_and_double_of_a_sweep_move_its_expectations() {
    let scenario = "name = 'tiny'\nwarmup = '100ms'\nduration = '500ms'\n[network]\n\
        topology = 'dumbbell'\npairs = 1\nqueue = '64KB'\n[traffic.b]\nkind = 'bulk'\n\
        [[sweep.axis]]\nname = 'size'\n[sweep.axis.values.small]\nnetwork.rate = '10Mbit'\n\
        [sweep.axis.values.large]\nnetwork.rate = '40Mbit'\n[sweep.expect]\n\
        fast = 'every goodput_bps.sum[size=small] > 8_000_000'\n\
        calm = 'every flows.all.timeouts[size=small] == 0'\n[[parameter]]\n\
        path = 'sweep.axis.0.values.small.network.rate'\norigin = 'given: section 5'\n";
    let (_, file) = place("sensitivity-of-a-sweep", scenario);
    let page = sluicegate(&["sensitivity", &file, "--only", "size=small", "colour=red"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    let page = text(&page.stdout);
    assert!(page.contains("Seed 1; only size=small."), "{page}");
    let empty =
        "\n2 expectations, 2 figures, of which 0 or not measured:\ncalm\\[variant=base\\].\n";
    assert!(page.contains(empty), "{page}");
    let short = sluicegate(&["sensitivity", &file, "--short", "--only", "size=small"]);
    let short = text(&short.stdout);
    assert!(
        short.contains("a short form ran in it (`--short`)"),
        "{short}"
    );
    let mut rows = page.lines().filter(|line| line.contains("10Mbit"));
    let row = rows.next().unwrap_or_default();
    assert!(row.contains("5Mbit: fast\\[variant=base\\] 9"), "{page}");
    assert!(row.contains("not held: fast | 20Mbit: fast"), "{page}");
}
