//! The userspace switch as an operator sees it. Needs no privileges.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use sluicegate_pcapng::{Block, next_block};

const POLICY: &str = "[[rule]]\nname = \"bulk\"\ntenant = \"red\"\nalgorithm = \"dctcp\"\n\
                      mode = \"enforce\"\n[[bucket]]\nname = \"slow\"\nclass = \"udp\"\n\
                      rate = \"1Mbit\"\nmode = \"enforce\"\n";

const METRICS: &str = "127.0.0.1:19847";
const METRICS_OF_NEXT: &str = "127.0.0.1:19848";
const METRICS_WITHOUT_POLICY: &str = "127.0.0.1:19850";
const METRICS_OF_CAPTURED: &str = "127.0.0.1:19849";

/// A switch that runs; ended when dropped.
struct Switch {
    child: Child,
    directory: PathBuf,
}

impl Switch {
    fn start(metrics: &str) -> Self {
        let name = metrics.replace(':', "-");
        let name = format!("sg-cli-switch-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let here = directory.display();
        let text = format!(
            "[switch]\nsocket = \"{here}/control.sock\"\npolicy = \"policy.toml\"\n\
             [[port]]\nname = \"vm1\"\nvhost_user = \"{here}/vm1.sock\"\ntenant = \"red\"\n\
             [[port]]\nname = \"vm2\"\nvhost_user = \"{here}/vm2.sock\"\ngovern = false\n"
        );
        fs::write(directory.join("switch.toml"), text).expect("a file");
        fs::write(directory.join("policy.toml"), POLICY).expect("a file");
        let child = run(&["--metrics", metrics], &directory.join("switch.toml"));
        let switch = Self { child, directory };
        within_20_s("it starts", || {
            switch.directory.join("control.sock").exists()
        });
        switch
    }

    /// Asks by a command that takes `--switch`.
    fn ask(&self, arguments: &[&str]) -> Output {
        let socket = format!("--switch={}/control.sock", self.directory.display());
        Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(arguments)
            .arg(socket)
            .output()
            .expect("the command runs")
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("text") + &error
    }

    /// The exit code, and what it says.
    fn reload(&self) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["switch", "reload", "--socket"])
            .arg(self.directory.join("control.sock"))
            .output()
            .expect("the command runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

impl Switch {
    /// Another process takes over, and the first one ends.
    fn replace(&mut self, arguments: &[&str]) {
        let next = run(arguments, &self.directory.join("switch.toml"));
        let mut old = std::mem::replace(&mut self.child, next);
        within_20_s("the old one ends", || {
            let status = old.try_wait().expect("a status");
            status.is_some_and(|status| status.success())
        });
    }
}

fn run(arguments: &[&str], file: &Path) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["switch", "run"])
        .args(arguments)
        .arg(file)
        .stderr(Stdio::piped())
        .spawn();
    child.expect("the command runs")
}

fn scrape(metrics: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(metrics)?;
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut served = String::new();
    stream.read_to_string(&mut served)?;
    Ok(served)
}

fn within_20_s(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "not: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails only when it is dead
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn flows_metrics_and_policy_of_a_switch_are_shown_like_the_kernels() {
    let switch = Switch::start(METRICS);
    let flows = switch.says(&["flows"]);
    assert!(flows.contains("0 flows"), "{flows}");
    let document: serde_json::Value =
        serde_json::from_str(&switch.says(&["flows", "--json"])).expect("JSON");
    assert_eq!(document["netns"], "switch");
    assert_eq!(document["counters"]["packets"], 0);
    let top = switch.says(&["top", "--once", "--interval", "0.1"]);
    assert!(top.contains("red") && !top.contains("vm2"), "{top}");
    let metrics = switch.says(&["metrics"]);
    let served = scrape(METRICS).expect("it serves");
    for text in [&metrics, &served] {
        for line in [
            "sluicegate_up 1",
            "sluicegate_packets_total 0",
            "tenant=\"red\",interface=\"vm1\"",
            "rule_mode=\"enforce\"",
            "sluicegate_switch_port_up{port=\"vm2\",kind=\"vhost-user\"} 0",
            "sluicegate_switch_port_drops_total{port=\"vm1\",place=\"full\"} 0",
            "sluicegate_switch_ports_waited_for 0",
            "sluicegate_switch_ports_circles 0",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }
    let asked = [
        "policy", "explain", "--src", "10.0.0.1", "--dst", "10.0.0.2",
    ];
    let red = switch.says(&[&asked[..], &["--interface", "vm1"]].concat());
    assert!(red.contains("bulk") && !red.contains("warning"), "{red}");

    // Another policy is in force only when the switch has read it.
    fs::write(
        switch.directory.join("policy.toml"),
        POLICY.replace("bulk", "thin"),
    )
    .expect("a file");
    let warned = switch.says(&asked);
    assert!(
        warned.contains("something else than the policy in force"),
        "{warned}"
    );
    let (code, reload) = switch.reload();
    assert_eq!(code, Some(0));
    assert!(reload.contains("policy: changed, 0 flows"), "{reload}");
    let read = switch.says(&[&asked[..], &["--interface", "vm1"]].concat());
    assert!(read.contains("thin") && !read.contains("warning"), "{read}");
    fs::write(
        switch.directory.join("policy.toml"),
        "[[rule]]\nmode = \"on\"\n",
    )
    .expect("a file");
    let (code, refused) = switch.reload();
    assert_eq!(code, Some(2), "as `check` says");
    assert!(refused.contains("policy.toml:2:"), "{refused}");
}

#[test]
fn ports_of_a_switch_without_a_policy_are_told() {
    let mut switch = Switch::start(METRICS_WITHOUT_POLICY);
    let file = switch.directory.join("switch.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let text = text
        .replace("policy = \"policy.toml\"\n", "")
        .replace("govern = false\n", "");
    fs::write(&file, text).expect("a file");
    switch.replace(&["--take-over", "--metrics", METRICS_WITHOUT_POLICY]);
    let mut served = String::new();
    within_20_s("it serves", || {
        served = scrape(METRICS_WITHOUT_POLICY).unwrap_or_default();
        !served.is_empty()
    });
    for text in [&served, &switch.says(&["metrics"])] {
        for line in [
            "sluicegate_up 1",
            "sluicegate_switch_port_received_frames_total{port=\"vm1\"} 0",
            "sluicegate_switch_port_drops_total{port=\"vm2\",place=\"forged\"} 0",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
        assert!(!text.contains("sluicegate_rule_info"), "{text}");
    }
}

#[test]
fn a_switch_that_does_not_run_is_said_to() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["flows", "--switch=/nowhere.sock"])
        .output()
        .expect("the command runs");
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("no switch answers at /nowhere.sock"),
        "{error}"
    );
}

#[test]
fn a_successor_has_the_metrics_and_the_control_socket_and_other_ports_anew() {
    let mut switch = Switch::start(METRICS_OF_NEXT);
    let file = switch.directory.join("switch.toml");
    let text = fs::read_to_string(&file).expect("read");
    let arguments = ["--take-over", "--metrics", METRICS_OF_NEXT];

    // Another state is refused, and the running switch goes on.
    let state = switch.directory.join("other.state");
    let other = format!("state = \"{}\"\npolicy = ", state.display());
    let other = text.replace("policy = ", &other);
    let elsewhere = switch.directory.join("elsewhere.toml");
    fs::write(&elsewhere, other).expect("a file");
    let refused = run(&arguments, &elsewhere).wait_with_output();
    let refused = refused.expect("it ends");
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && error.contains("must be"),
        "{error}"
    );
    assert!(!state.exists());
    switch.says(&["flows"]);

    // One port keeps its socket, one has more queues there, and one listens elsewhere.
    let third = switch.directory.join("vm3.sock");
    let changed = text.replace("govern = false", "govern = false\nqueues = 2")
        + &format!(
            "[[port]]\nname = \"vm3\"\nvhost_user = \"{}\"\n",
            third.display()
        );
    fs::write(&file, &changed).expect("a file");
    switch.replace(&arguments);
    switch.says(&["flows"]);
    for port in ["vm1.sock", "vm2.sock", "vm3.sock"] {
        UnixStream::connect(switch.directory.join(port)).expect("it listens");
    }
    within_20_s("it serves", || {
        scrape(METRICS_OF_NEXT).is_ok_and(|text| text.contains("sluicegate_up 1"))
    });
    let moved = changed.replace("vm3.sock", "vm4.sock");
    fs::write(&file, moved).expect("a file");
    switch.replace(&arguments);
    switch.says(&["flows"]);
    assert!(switch.directory.join("vm4.sock").exists());
}

/// The blocks of a file, which are whole; whether its end tells what was lost.
fn blocks(bytes: &[u8]) -> (usize, bool) {
    let (mut at, mut count, mut is_complete) = (0, 0, false);
    while let Some((block, length)) = next_block(&bytes[at..]).expect("blocks") {
        (at, count) = (at + length, count + 1);
        is_complete = matches!(block, Block::Statistics { dropped: 0 });
    }
    assert_eq!(at, bytes.len(), "half a block");
    (count, is_complete)
}

impl Switch {
    fn capture(&self, arguments: &[&str]) -> Child {
        let child = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["switch", "capture", "--socket"])
            .arg(self.directory.join("control.sock"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        child.expect("the command runs")
    }
}

/// Waits until a capture has begun to write.
fn begun(file: &Path) {
    within_20_s("it writes", || {
        fs::metadata(file).is_ok_and(|about| about.len() > 0)
    });
}

fn interrupt(child: &Child) {
    let mut kill = Command::new("kill");
    let kill = kill.args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
}

fn ended(child: Child) -> (Output, String) {
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[test]
fn a_capture_is_a_whole_file_however_it_ends() {
    let mut switch = Switch::start(METRICS_OF_CAPTURED);
    let file = switch.directory.join("all.pcapng");
    let name = file.display().to_string();
    fs::write(&file, "of before").expect("a file");

    // What the switch refuses leaves a file as it is.
    let refused = ["vm1", "mv2", "-w", &name];
    let (output, said) = ended(switch.capture(&refused));
    assert_eq!(output.status.code(), Some(1));
    let advice = "no port \"mv2\"; did you mean \"vm2\"?";
    assert!(said.contains(advice), "{said}");
    for wrong in [["--at", "inn"], ["--mac", "52:54"], ["--count", "0"]] {
        let (output, said) = ended(switch.capture(&wrong));
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
    assert_eq!(fs::read(&file).expect("a file"), b"of before");

    // By Ctrl-C.
    fs::remove_file(&file).expect("it is there");
    let capture = switch.capture(&["-w", &name]);
    begun(&file);
    interrupt(&capture);
    let (output, said) = ended(capture);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("0 frames, none lost"), "{said}");
    // A section, six interfaces, and their counts.
    assert_eq!(blocks(&fs::read(&file).expect("a file")), (13, true));

    // By time, to standard output.
    let short = ["vm2", "--at", "out", "--duration", "10ms"];
    let (output, said) = ended(switch.capture(&short));
    assert!(output.status.success(), "{said}");
    assert_eq!(blocks(&output.stdout), (3, true));

    // By the death of the switch.
    fs::remove_file(&file).expect("it is there");
    let capture = switch.capture(&["vm1", "-w", &name]);
    begun(&file);
    switch.child.kill().expect("it runs");
    let (output, said) = ended(capture);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("the switch ended before"), "{said}");
    assert_eq!(blocks(&fs::read(&file).expect("a file")), (4, false));
}
