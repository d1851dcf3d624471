//! A switch as a process of its own, which can be killed or replaced.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    mem,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::switch_table;
use sluicegate_dataplane::control::{self, Ask};

/// A switch as a process; killed when dropped.
pub struct Process {
    child: Child,
    pub directory: PathBuf,
}

impl Process {
    /// With these keys of `[switch]` and a port for each name.
    pub fn start(name: &str, switch: &str, ports: &[(&str, &str)]) -> Self {
        let directory = env::temp_dir().join(format!("sg-survive-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let socket = |name: &str| directory.join(format!("{name}.sock"));
        let control = socket("switch");
        let mut text = switch_table(&format!("socket = \"{}\"\n{switch}", control.display()));
        for (name, keys) in ports {
            let socket = socket(name);
            let socket = socket.display();
            text += &format!("[[port]]\nname = \"{name}\"\nvhost_user = \"{socket}\"\n{keys}\n");
        }
        fs::write(directory.join("switch.toml"), text).expect("a configuration");
        let child = Self::run(&directory, &[]);
        Self { child, directory }
    }

    fn run(directory: &Path, arguments: &[&str]) -> Child {
        // Tests of other crates use other parts of this module.
        let program = option_env!("CARGO_BIN_EXE_test-switch");
        let program = program.unwrap_or_else(|| panic!("a test of another crate"));
        let mut command = Command::new(program);
        let command = command.arg(directory.join("switch.toml")).args(arguments);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("a switch")
    }

    /// Another process takes over; for how long no frame moved, ns.
    pub fn replace(&mut self) -> u64 {
        let mut next = Self::run(&self.directory, &["--take-over"]);
        let output = next.stdout.as_mut().expect("piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let mut old = mem::replace(&mut self.child, next);
        assert!(old.wait().expect("it ends").success());
        line.trim().parse().expect("it took over")
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.sock"))
    }

    /// SIGKILL, and another process; `between` runs when the one is dead.
    pub fn kill(&mut self, between: impl FnOnce()) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it is dead");
        between();
        self.child = Self::run(&self.directory, &[]);
    }

    /// Frames that were dropped, by the ports' answer.
    pub fn dropped(&self) -> u64 {
        let ports = control::ask(&self.socket("switch"), Ask::Ports).expect("an answer");
        let each = ports.as_array().expect("ports").iter();
        each.map(|port| port["dropped"].as_u64().expect("a number"))
            .sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails only when it is dead
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
