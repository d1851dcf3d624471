//! `sluicegate sweep` as a script sees it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

fn sluicegate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.env("LC_ALL", "C").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    sluicegate(arguments).output().expect("the command runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed by a signal")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const SCENARIO: &str = "
name = 'tiny'
warmup = '100ms'
duration = '300ms'
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
[sweep]
repeat = 2
[[sweep.axis]]
name = 'marks'
[sweep.axis.values.off]
[sweep.axis.values.on]
network.marking = { kind = 'threshold', k = '9KB' }
enforcement.hosts = 'all'
[sweep.expect]
shorter = 'every rtt_us.p50[marks=on] < 0.8 * rtt_us.p50[marks=off]'
";

/// A directory of its own with this scenario.
fn place(name: &str, scenario: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("sweep")
        .join(name);
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("a directory");
    fs::write(root.join("tiny.toml"), scenario).expect("a scenario");
    root
}

/// Sweeps what is in `root` over two rates, into `root/OUT`.
fn arguments(root: &Path, out: &str, more: &[&str]) -> Vec<String> {
    let file = root.join("tiny.toml").display().to_string();
    let out = root.join(out).display().to_string();
    let fixed = [
        "sweep",
        &file,
        "--set",
        "network.rate=10Mbit,20Mbit",
        "--out",
        &out,
    ];
    fixed.iter().chain(more).map(|s| (*s).to_owned()).collect()
}

fn sweep(root: &Path, out: &str, more: &[&str]) -> Output {
    let arguments = arguments(root, out, more);
    run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

const FILES: [&str; 4] = ["sweep.parquet", "runs.parquet", "sweep.json", "index.html"];

fn files(root: &Path, out: &str) -> Vec<Vec<u8>> {
    let read = |name: &str| fs::read(root.join(out).join(name)).expect(name);
    FILES.map(read).into()
}

/// That both have left the same bytes; which bytes would fill pages.
fn assert_same(one: &[Vec<u8>], other: &[Vec<u8>]) {
    for (name, (one, other)) in FILES.iter().zip(one.iter().zip(other)) {
        assert!(one == other, "{name} differs");
    }
}

fn runs(root: &Path, out: &str) -> usize {
    let entries = fs::read_dir(root.join(out).join("runs"))
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".json")).count()
}

#[test]
fn tables_are_the_same_bytes_with_any_number_of_jobs_and_kept_runs_are_not_repeated() {
    let root = place("jobs", SCENARIO);
    let one = sweep(&root, "one", &["--jobs", "1", "--check"]);
    assert_eq!(code(&one), 0, "{}", text(&one.stderr));
    let said = text(&one.stderr);
    assert!(
        said.contains("4 cells with 2 seeds: 8 runs, 0 are there, 8 to do"),
        "{said}"
    );
    assert!(
        said.contains("8/8 marks=on network.rate=20Mbit variant=base seed=2"),
        "{said}"
    );
    let table = text(&one.stdout);
    assert!(
        table.contains("rtt_us.p50") && table.contains(" +- "),
        "{table}"
    );
    assert!(table.contains("[2 of 2 cells]"), "{table}");

    let two = sweep(&root, "two", &["--jobs", "2"]);
    assert_eq!(code(&two), 0, "{}", text(&two.stderr));
    assert_same(&files(&root, "one"), &files(&root, "two"));
    assert_eq!(runs(&root, "one"), 8);

    // The order of axes and comments make no other experiment; another value does.
    let changed =
        format!("# Later.\ntitle = 'Again'\n{SCENARIO}").replace("k = '9KB'", "k = '12KB'");
    fs::write(root.join("tiny.toml"), changed).expect("a scenario");
    let again = sweep(&root, "one", &["--json"]);
    let said = text(&again.stderr);
    assert!(said.contains("8 runs, 4 are there, 4 to do"), "{said}");
    assert_eq!(
        runs(&root, "one"),
        12,
        "runs that no cell needs any more stay"
    );
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(json["schema"], 1);
    assert_eq!(json["cells"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["cells"][0]["figures"]["rtt_us.p50"]["n"], 2);
}

#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let scenario = SCENARIO.replace("duration = '300ms'", "duration = '3s'");
    let root = place("killed", &scenario);
    let whole = sweep(&root, "whole", &["--repeat", "3"]);
    assert_eq!(code(&whole), 0, "{}", text(&whole.stderr));

    let arguments = arguments(&root, "killed", &["--repeat", "3", "--jobs", "1"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = sluicegate(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    while runs(&root, "killed") < 2 {
        assert!(
            child.try_wait().expect("a child").is_none(),
            "over before it was killed"
        );
        thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it can be killed");
    child.wait().expect("it is dead");
    let kept = runs(&root, "killed");
    assert!((2..12).contains(&kept), "{kept}");

    // Half a file of another process that was killed while it wrote.
    let half = root.join("killed/runs/.00.json.new.99999999");
    fs::write(&half, "{").expect("a file");
    let rest = sweep(&root, "killed", &["--repeat", "3"]);
    let said = text(&rest.stderr);
    let expected = format!("12 runs, {kept} are there, {} to do", 12 - kept);
    assert!(said.contains(&expected), "{said}");
    assert_same(&files(&root, "whole"), &files(&root, "killed"));
    assert!(!half.exists());
}

#[test]
fn an_interrupted_sweep_says_how_to_go_on() {
    let scenario = SCENARIO.replace("duration = '300ms'", "duration = '1000s'");
    let root = place("interrupted", &scenario);
    let arguments = arguments(&root, "out", &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let child = sluicegate(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    // The directory is made after the handler of signals.
    while !root.join("out/runs").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(code(&output), 130);
    let said = text(&output.stderr);
    assert!(said.contains("0 of 8 runs are in"), "{said}");
    assert!(
        said.contains("the same command goes on from there"),
        "{said}"
    );
    assert!(!root.join("out/sweep.parquet").exists());
}

#[test]
fn a_damaged_run_is_run_again() {
    let root = place("damaged", SCENARIO);
    assert_eq!(code(&sweep(&root, "out", &["--only", "marks=on"])), 0);
    let before = files(&root, "out");
    let run = fs::read_dir(root.join("out/runs"))
        .expect("runs")
        .flatten()
        .next();
    let run = run.expect("a run").path();
    fs::write(&run, "{\"schema\": 1").expect("a file");
    let again = sweep(&root, "out", &["--only", "marks=on"]);
    let said = text(&again.stderr);
    assert!(
        said.contains("is no result") && said.contains("it is run again"),
        "{said}"
    );
    assert!(said.contains("4 runs, 3 are there, 1 to do"), "{said}");
    assert_same(&files(&root, "out"), &before);
}

#[test]
fn an_expectation_that_does_not_hold_makes_exit_code_3() {
    let scenario = SCENARIO.replace("0.8 *", "0.01 *");
    let root = place("broken", &scenario);
    assert_eq!(code(&sweep(&root, "out", &[])), 0, "only --check checks");
    let checked = sweep(&root, "out", &["--check"]);
    assert_eq!(code(&checked), 3);
    let said = text(&checked.stderr);
    assert!(
        said.contains("tiny: shorter: every ")
            && said.contains("with network.rate=10Mbit variant=base"),
        "{said}"
    );
}

#[test]
fn a_value_that_the_simulator_refuses_is_bad_input_and_nothing_runs() {
    let root = place("refused", SCENARIO);
    let bbr = "tenant.default.congestion_control=cubic,bbr";
    let refused = sweep(&root, "out", &["--set", bbr]);
    let said = text(&refused.stderr);
    assert_eq!(code(&refused), 2, "{said}");
    let why = "tenant.default.congestion_control: the simulator has no \"bbr\"";
    assert_eq!(said.matches(why).count(), 1, "{said}");
    assert!(said.contains("--world lab"), "{said}");
    assert_eq!((refused.stdout.len(), runs(&root, "out")), (0, 0), "{said}");
    let only = sweep(
        &root,
        "out",
        &[
            "--set",
            bbr,
            "--only",
            "tenant.default.congestion_control=cubic",
        ],
    );
    assert_eq!(code(&only), 0, "{}", text(&only.stderr));
}

#[test]
fn what_is_wrong_is_told_before_anything_runs() {
    let root = place("wrong", SCENARIO);
    for (more, why) in [
        (
            &["--set", "network.rte=1Gbit"][..],
            "network.rte: with network.rte=1Gbit: unknown key; did you mean \"rate\"?",
        ),
        (
            &["--set", "network.queue=9KB,large"],
            "tiny.toml:9:9: network.queue: with network.queue=large: ",
        ),
        (
            &["--set", "marks=of"],
            "axis marks has no value \"of\"; it has off, on; did you mean \"off\"?",
        ),
        (&["--set", "network.queue"], "has no `=`"),
        (&["--only", "mark=on"], "did you mean \"marks\"?"),
        (&["--repeat", "0"], "0 is not in 1..=10000"),
    ] {
        let output = sweep(&root, "out", more);
        assert_eq!(code(&output), 2, "{more:?}");
        let said = text(&output.stderr);
        assert!(said.contains(why), "{more:?}: {said}");
    }
    assert!(!root.join("out").exists());
    let help = text(&run(&["sweep", "--help"]).stdout);
    for option in [
        "--set",
        "--repeat",
        "--jobs",
        "--out",
        "--only",
        "--json",
        "--check",
        "130 interrupted",
    ] {
        assert!(help.contains(option), "{option}");
    }
}
