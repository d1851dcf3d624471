//! A host with an agent, as a user sees it: what the tests of the command share.

#[path = "../../../agent/tests/common/mod.rs"]
pub mod common;

use std::{
    fmt::Debug,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use common::Host;
use serde_json::Value;
use sluicegate_agent::{
    bpffs::{self, Pins},
    doctor,
    interfaces::Patterns,
    inventory::Inventory,
    state::{self, State},
    tcx::{Direction, TcxLink},
};

/// Longer than anything here takes on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const POLICY: &str = r#"
trusted = ["10.9.0.0/24"]

[[rule]]
destination = "10.9.0.0/24"
algorithm = "dctcp"
mode = "enforce"
"#;

/// A host with a place of its own for pins and policies.
pub struct Site {
    pub host: Host,
    pub directory: PathBuf,
}

impl Site {
    pub fn new() -> Self {
        let host = Host::new();
        let directory = std::env::temp_dir().join(host.name("site"));
        fs::create_dir_all(directory.join("bpf")).unwrap();
        bpffs::ensure_mounted(&directory.join("bpf")).unwrap();
        let site = Self { host, directory };
        site.write_policy("policy.toml", POLICY);
        site
    }

    pub fn write_policy(&self, name: &str, text: &str) {
        fs::write(self.directory.join(name), text).unwrap();
    }

    pub fn bpffs(&self) -> String {
        self.directory.join("bpf").display().to_string()
    }

    pub fn pins(&self) -> Pins {
        Pins::new(Path::new(&self.bpffs()), &self.host.name("h"))
    }

    /// Where its agents say what they do.
    pub fn run_dir(&self) -> String {
        self.directory.join("run").display().to_string()
    }

    /// The last state of its agent.
    pub fn state(&self) -> State {
        let state = state::read(Path::new(&self.run_dir()), &self.host.name("h"));
        state.unwrap().expect("an agent has said something")
    }

    /// The state of its agent once it is `good`: the agent writes it after the line in its log.
    pub fn state_when(&self, good: impl Fn(&State) -> bool) -> State {
        eventually(|| self.state(), good)
    }

    /// Flows as `flows --json` shows them.
    pub fn flow_records(&self) -> Vec<Value> {
        let output = self.flows(&["--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["flows"].as_array().unwrap().clone()
    }

    /// `sluicegate policy set …` for its agent.
    pub fn set(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["policy", "set"]).args(arguments);
        command.args([
            "--netns",
            &self.host.name("h"),
            "--run-dir",
            &self.run_dir(),
        ]);
        command.output().unwrap()
    }

    /// `sluicegate` with these arguments, this site's bpffs and its place for what agents say.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(arguments);
        command.args(["--bpffs", &self.bpffs(), "--run-dir", &self.run_dir()]);
        command
    }

    pub fn agent_command(&self, policy: &str) -> Command {
        let policy = self.directory.join(policy).display().to_string();
        let netns = self.host.name("h");
        let arguments = [
            "agent",
            "--policy",
            &policy,
            "--interface",
            "t?",
            "--netns",
            &netns,
            "--label",
            "none",
        ];
        self.command(&arguments)
    }

    /// An agent that enforces.
    pub fn agent(&self) -> Agent {
        let agent = Agent::start(self.agent_command("policy.toml"));
        agent.wait_for("enforcing; stop");
        agent
    }

    pub fn flows(&self, more: &[&str]) -> Output {
        let netns = self.host.name("h");
        let mut command = self.command(&["flows", "--netns", &netns]);
        command.args(more).output().unwrap()
    }

    /// Programs at ingress of `interface`.
    pub fn attached(&self, interface: &str) -> Vec<String> {
        let patterns = Patterns::new(&[interface]).unwrap();
        let report = self
            .host
            .within("h", || doctor::examine(&patterns).unwrap());
        report.interfaces[0].tcx_ingress.clone()
    }

    /// The objects that this site's pins hold in the kernel.
    pub fn pinned(&self) -> Inventory {
        let pins = self.pins();
        let mut found = Inventory::default();
        for index in pins.interfaces() {
            for direction in [Direction::Ingress, Direction::Egress] {
                let link = TcxLink::open(&pins.link(index, direction)).unwrap();
                let info = link.link().info().unwrap();
                found.links.insert(info.id);
                found.programs.insert(info.prog_id);
            }
        }
        found
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.bpffs()).status();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A running agent and what it says; killed when dropped.
pub struct Agent {
    pub child: Child,
    lines: Receiver<String>,
}

impl Agent {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line with `text` in it.
    pub fn wait_for(&self, text: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("the agent never said `{text}`, but:\n{}", seen.join("\n")),
            }
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Asks it to stop; its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }

    pub fn kill(mut self) {
        self.signal("-KILL");
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `look` returns once it is `good`.
pub fn eventually<T: Debug>(mut look: impl FnMut() -> T, good: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if good(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
