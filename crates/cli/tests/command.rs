//! The command as a script sees it: exit codes, what goes where, closed pipes. Needs no privileges.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn sluicegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
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

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluicegate-{}-{name}", std::process::id()));
        fs::write(&path, content).expect("a temporary file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("temporary paths are text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn help_goes_to_standard_output_and_wrong_usage_to_standard_error() {
    let help = sluicegate(&["run", "--help"]);
    assert_eq!(code(&help), 0);
    assert!(text(&help.stdout).contains("Examples:"));
    let wrong = sluicegate(&["run"]);
    assert_eq!(code(&wrong), 2);
    assert!(wrong.stdout.is_empty());
    assert!(text(&wrong.stderr).contains("FILE"));
}

#[test]
fn a_good_policy_is_described_and_explained() {
    let policy = Scratch::new(
        "good.toml",
        "[[rule]]\nport = 80\nmode = 'off'\n[[rule]]\nmode = 'enforce'\n",
    );
    let checked = sluicegate(&["policy", "check", policy.path()]);
    assert_eq!(code(&checked), 0);
    assert!(text(&checked.stdout).contains("rule 2: any to any"));
    let explained = sluicegate(&[
        "policy",
        "explain",
        policy.path(),
        "10.0.0.1",
        "[fd00::1]:80",
    ]);
    assert_eq!(code(&explained), 0);
    assert!(text(&explained.stdout).contains("rule 1 decides: mode off"));
}

#[test]
fn a_policy_that_enforces_one_way_is_good_with_a_warning() {
    let policy = Scratch::new(
        "one-way.toml",
        "trusted = ['10.0.0.0/8']\n\n[[rule]]\ndestination = '10.1.0.0/16'\nmode = 'enforce'\n",
    );
    let checked = sluicegate(&["policy", "check", policy.path()]);
    assert_eq!(code(&checked), 0);
    assert!(text(&checked.stdout).contains("good"));
    let warning = text(&checked.stderr);
    let place = format!("warning: {}:3:1: rule[0]: ", policy.path());
    assert!(warning.starts_with(&place), "{warning}");
}

#[test]
fn a_policy_that_leaves_a_way_out_is_good_with_a_warning_and_what_to_add() {
    let policy = Scratch::new("way-out.toml", "[[rule]]\nmode = 'enforce'\n");
    let check = |path: &str| {
        let checked = sluicegate(&["policy", "check", path]);
        assert_eq!(code(&checked), 0);
        assert!(text(&checked.stdout).contains("good"));
        text(&checked.stderr)
    };
    let said = check(policy.path());
    let lines: Vec<&str> = said.lines().collect();
    let warning = format!("warning: {}:1:1: rule[0]: enforces, but", policy.path());
    for (line, class, worth) in [
        (0, "watched-tcp", "MPTCP took 273"),
        (5, "non-tcp", "UDP took 281"),
        (10, "bare-tcp", "segments without data"),
    ] {
        let reason = format!("{warning} no bucket has class {class}: ");
        assert!(
            lines[line].starts_with(&reason) && lines[line].contains(worth),
            "{said}"
        );
        assert_eq!(lines[line + 1], "    [[bucket]]");
        assert_eq!(lines[line + 2], format!("    class = \"{class}\""));
        assert!(
            lines[line + 3].starts_with("    rate = \"100Mbit\" "),
            "{said}"
        );
        assert!(
            lines[line + 4].starts_with("    mode = \"observe\" "),
            "{said}"
        );
    }
    assert_eq!(lines.len(), 15, "{said}");
    // The lines that it says to add make a note of each warning, and nothing once it enforces.
    let add = |from: usize| lines[from..from + 4].join("\n") + "\n";
    let add = [1, 6, 11].map(add).concat();
    let added = format!("[[rule]]\nmode = 'enforce'\n{add}");
    let observing = Scratch::new("way-out-seen.toml", &added);
    let said = check(observing.path());
    let note = format!(
        "note: {}:3:5: bucket[0]: counts watched-tcp and",
        observing.path()
    );
    assert!(
        said.starts_with(&note) && said.lines().count() == 3,
        "{said}"
    );
    let enforcing = Scratch::new("no-way-out.toml", &added.replace("observe", "enforce"));
    assert_eq!(check(enforcing.path()), "");
    let explained = sluicegate(&[
        "policy",
        "explain",
        policy.path(),
        "--src",
        "10.0.0.1",
        "--dst",
        "10.0.0.2",
        "--protocol",
        "udp",
    ]);
    assert!(text(&explained.stdout).contains("a way out of what rule 1 enforces"));
}

#[test]
fn setting_a_rule_to_enforce_says_what_it_leaves_open() {
    let policy = Scratch::new("set.toml", "[[rule]]\nname = 'web'\n");
    let set = |mode: &str, more: &[&str]| {
        let run_dir = ["--run-dir", "/nonexistent"];
        let arguments = [
            "policy",
            "set",
            mode,
            "--rule",
            "web",
            "--policy",
            policy.path(),
        ];
        let output = sluicegate(&[&arguments[..], &run_dir, more].concat());
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        text(&output.stderr)
    };
    for more in [&["--dry-run"][..], &[]] {
        let said = set("enforce", more);
        assert!(
            said.contains("rule[0]: enforces, but no bucket has class non-tcp"),
            "{said}"
        );
    }
    assert_eq!(set("observe", &[]), "");
}

/// The output that README's tour shows for its policy is what comes out.
#[test]
fn readme_shows_what_policy_check_says_of_its_policy() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("README.md");
    let (_, shown) = readme
        .split_once("$ cat policy.toml\n")
        .expect("the policy");
    let (policy, shown) = shown
        .split_once("\n$ sluicegate policy check policy.toml\n")
        .expect("its check");
    let (shown, _) = shown.split_once("```").expect("the end");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    fs::create_dir_all(&directory).expect("our own directory");
    fs::write(directory.join("policy.toml"), policy).expect("a temporary file");
    let checked = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["policy", "check", "policy.toml"])
        .current_dir(&directory)
        .output()
        .expect("the command runs");
    assert_eq!(code(&checked), 0);
    // Long lines are broken there.
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let said = text(&checked.stderr) + &text(&checked.stdout);
    assert_eq!(words(shown), words(&said));
}

#[test]
fn the_packaged_policy_observes_and_has_every_bucket() {
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/debian/policy.toml");
    let packaged = fs::read_to_string(packaged).expect("the package's policy");
    let check = |name: &str, content: &str| {
        let policy = Scratch::new(name, content);
        let checked = sluicegate(&["policy", "check", policy.path()]);
        assert_eq!(code(&checked), 0);
        (text(&checked.stdout), text(&checked.stderr))
    };
    let (said, warnings) = check("packaged.toml", &packaged);
    assert!(
        said.contains("nothing is edited") && warnings.is_empty(),
        "{said}{warnings}"
    );
    assert!(
        said.contains(", watched-tcp: 1Gbit")
            && said.contains(", udp icmp fragment opaque other: ")
            && said.contains(", bare-tcp: 100Mbit")
    );
    // Its first rule enforces: all three are noted. All enforce: nothing is left.
    let first = packaged.replacen("mode = \"observe\"", "mode = \"enforce\"", 1);
    let (_, warnings) = check("packaged-first.toml", &first);
    let notes = warnings.lines().filter(|line| line.starts_with("note: "));
    assert_eq!(
        (notes.count(), warnings.lines().count()),
        (3, 3),
        "{warnings}"
    );
    let all = packaged.replace("mode = \"observe\"", "mode = \"enforce\"");
    assert_eq!(check("packaged-all.toml", &all).1, "");
}

#[test]
fn a_bad_policy_exits_with_2_and_lists_every_error() {
    let policy = Scratch::new("bad.toml", "[[rule]]\nbeta = 2\nprot = 80\n");
    let output = sluicegate(&["policy", "check", policy.path()]);
    assert_eq!(code(&output), 2);
    let errors = text(&output.stderr);
    assert!(
        errors.contains(":2:8: rule[0].beta: must lie between 0 and 1"),
        "{errors}"
    );
    assert!(errors.contains("did you mean \"port\"?"), "{errors}");
}

#[test]
fn a_bad_scenario_exits_with_2_before_anything_is_touched() {
    let scenario = Scratch::new("bad-scenario.toml", "[network]\ntopology = 'ring'\n");
    let output = sluicegate(&["run", scenario.path()]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("star, crossbar, dumbbell, parking-lot"));
    assert_eq!(code(&sluicegate(&["run", "/nonexistent.toml"])), 2);
}

#[test]
fn what_the_simulator_cannot_do_exits_with_2_and_says_where() {
    let bbr = format!("{TINY}[tenant.s1]\ncongestion_control = 'bbr'\n");
    let scenario = Scratch::new("bbr.toml", &bbr);
    let output = sluicegate(&["run", scenario.path()]);
    assert_eq!(code(&output), 2);
    let line = bbr.lines().count();
    let place = format!(
        "{}:{line}:22: tenant.s1.congestion_control: the simulator has no \"bbr\"",
        scenario.path()
    );
    let errors = text(&output.stderr);
    assert!(errors.starts_with(&place), "{errors}");
}

#[test]
fn an_unknown_variant_exits_with_2_and_lists_the_known_ones() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/five-stacks.toml");
    let output = sluicegate(&["run", shipped.to_str().unwrap(), "--variant", "nobody"]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("unenforced, cubic-ecn, dctcp, enforced"));
}

#[test]
fn a_deadlock_that_nobody_expects_fails_a_check() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/cee/deadlock.toml");
    let check = |path: &str| sluicegate(&["run", path, "--variant", "pfc", "--check"]);
    assert_eq!(code(&check(shipped.to_str().unwrap())), 0);
    let extends = format!("extends = '{}'\n", shipped.display());
    let silent = Scratch::new(
        "silent.toml",
        &(extends + "[expect]\none-deadlock = false\n"),
    );
    let output = check(silent.path());
    assert_eq!(code(&output), 3, "{}", text(&output.stderr));
    let told = text(&output.stderr);
    assert!(
        told.contains("deadlocks = 1 where the experiment is not about it"),
        "{told}"
    );
}

#[test]
fn completions_survive_a_reader_that_goes_away() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

/// A fraction of a second of two senders.
const TINY: &str = "
warmup = '5ms'
duration = '20ms'
[network]
topology = 'dumbbell'
pairs = 2
rate = '100Mbit'
[traffic.bulk]
kind = 'bulk'
[variant.plain]
[variant.enforced]
enforcement.hosts = 'all'
";

#[test]
fn captures_and_traces_lie_beside_the_results() {
    let scenario = Scratch::new("tiny.toml", TINY);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inspect");
    let _ = fs::remove_dir_all(&out);
    let run = sluicegate(&[
        "run",
        scenario.path(),
        "--out",
        out.to_str().unwrap(),
        "--trace",
        "queue,cwnd,rwnd",
        "--csv",
        "--trace-interval",
        "1ms",
        "--pcap",
        "s*",
        "left-right",
    ]);
    assert_eq!(code(&run), 0, "{}", text(&run.stderr));
    for file in [
        "samples.parquet",
        "traces.parquet",
        "traces.csv.gz",
        "pcap/plain/s1.pcapng",
        "pcap/plain/s2.pcapng",
        "pcap/enforced/left-right.pcapng",
    ] {
        let written = fs::metadata(out.join(file)).map(|file| file.len());
        assert!(written.is_ok_and(|bytes| bytes > 100), "{file}");
    }
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("data-kind=\"rwnd_bytes\""));
}

#[test]
fn a_film_lies_beside_the_results_and_moves_in_the_report() {
    let scenario = Scratch::new("moving.toml", TINY);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moving");
    let _ = fs::remove_dir_all(&out);
    let files = ["run", scenario.path(), "--out", out.to_str().unwrap()];
    let run = sluicegate(&[&files[..], &["--film", "--film-interval", "1ms"]].concat());
    assert_eq!(code(&run), 0, "{}", text(&run.stderr));
    let written = fs::metadata(out.join("film.parquet")).map(|file| file.len());
    assert!(written.is_ok_and(|bytes| bytes > 1000));
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("data-topology>"));
    let results = fs::read_to_string(out.join("results.json")).unwrap();
    assert!(!results.contains("film"));
    let again = sluicegate(&files);
    assert_eq!(code(&again), 0, "{}", text(&again.stderr));
    assert!(!out.join("film.parquet").exists());
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(!report.contains("data-topology>"));
}

#[test]
fn a_second_run_leaves_nothing_of_the_first_and_nothing_else_is_touched() {
    let scenario = Scratch::new("twice.toml", TINY);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("twice");
    let _ = fs::remove_dir_all(&out);
    let run = |more: &[&str]| {
        let files = [scenario.path(), "--out", out.to_str().unwrap()];
        let run = sluicegate(&[&["run"], &files[..], more].concat());
        assert_eq!(code(&run), 0, "{}", text(&run.stderr));
        text(&run.stderr)
    };
    let said = run(&["--trace", "cwnd", "--pcap", "s1", "--threads", "2"]);
    assert!(said.contains("in order: one thread runs"), "{said}");
    for file in ["pcap/plain/notes.txt", "pcap/own.pcapng", "traces.txt"] {
        fs::write(out.join(file), "mine").unwrap();
    }
    let said = run(&["--pcap", "s2", "--variant", "plain"]);
    assert!(!said.contains("one thread"), "{said}");
    let exists = |file: &str| out.join(file).exists();
    for left in [
        "pcap/plain/s1.pcapng",
        "pcap/enforced",
        "traces.csv.gz",
        "traces.parquet",
    ] {
        assert!(!exists(left), "{left}");
    }
    run(&[]);
    assert!(!exists("pcap/plain/s2.pcapng"));
    for kept in [
        "pcap/plain/notes.txt",
        "pcap/own.pcapng",
        "traces.txt",
        "results.json",
    ] {
        assert!(exists(kept), "{kept}");
    }
}

#[test]
fn what_cannot_be_shown_exits_with_2_and_says_what_can() {
    let scenario = Scratch::new("shown.toml", TINY);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("not-made");
    for (arguments, said) in [
        (&["--pcap", "s3"][..], "hosts: s1, s2, r1, r2"),
        (&["--trace", "cwnd,alhpa"], "did you mean \"alpha\""),
        (&["--trace", "cwnd", "--trace-interval", "5"], "has no unit"),
        (
            &["--trace", "cwnd", "--trace-interval", "1ns"],
            "at most 1000000",
        ),
        (
            &["--trace", "cwnd", "--trace-interval", "60s"],
            "there would be no samples",
        ),
        (&["--trace-interval", "1ms"], "--trace"),
        (&["--film-interval", "1ms"], "--film"),
        (
            &["--film", "--film-interval", "1ns"],
            "link directions; at most",
        ),
        (&["--pcap", "s1", "--snaplen", "10"], "54..=65535"),
    ] {
        let files = [scenario.path(), "--out", out.to_str().unwrap()];
        let output = sluicegate(&[&["run"], &files[..], arguments].concat());
        let errors = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {errors}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
    let nowhere = sluicegate(&["run", scenario.path(), "--pcap", "s1"]);
    assert_eq!(code(&nowhere), 2);
    assert!(text(&nowhere.stderr).contains("--out"));
    assert!(!out.exists());
}

#[test]
fn a_run_at_other_rates_says_so() {
    let scenario = Scratch::new(
        "scaled.toml",
        "name = 'scaled'\nwarmup = '10ms'\nduration = '50ms'\n[network]\ntopology = 'star'\nrate = '100Mbit'\n\
         [traffic.bulk]\nkind = 'bulk'\nfrom = 'h2'\nto = 'h1'\n",
    );
    let run = |scale| sluicegate(&["run", scenario.path(), "--json", "--rate-scale", scale]);
    let output = run("0.25");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let json = text(&output.stdout);
    assert!(json.contains("\"rate_scale\": 0.25"), "{json}");
    assert!(json.contains("\"rate_bps\": 25000000"), "{json}");
    let output = run("0");
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("0.25"));
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let directory = std::env::temp_dir().join(format!("sluicegate-{}-man", std::process::id()));
    let output = sluicegate(&["man", "--out", directory.to_str().unwrap()]);
    assert_eq!(code(&output), 0);
    let page = |name: &str| fs::read_to_string(directory.join(name)).expect(name);
    let agent = page("sluicegate-agent.1");
    assert!(agent.contains(".SH OPTIONS") && agent.contains("\\-\\-policy"));
    for name in ["run", "flows", "policy-explain", "lab-calibrate"] {
        assert!(page(&format!("sluicegate-{name}.1")).contains(".SH NAME"));
    }
    let shown = sluicegate(&["man"]);
    assert_eq!(text(&shown.stdout), page("sluicegate.1"));
    fs::remove_dir_all(&directory).expect("our own directory");
}
