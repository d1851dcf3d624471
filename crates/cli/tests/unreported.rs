//! A switch whose reports fail: its log, its state, its descriptors. Frames pass all the same.
//! Needs root, to fill a file system of its own.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsFd,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use common::{Guest, PLAIN, frame, introduce, mac, number, until};
use rustix::{
    fs::{OFlags, fcntl_setfl},
    pipe::pipe,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use crate::common;

/// A switch with three ports; its log goes where the test says.
struct Switch {
    directory: PathBuf,
    child: Child,
}

impl Switch {
    fn start(name: &str, log: Stdio) -> Self {
        Self::with_state(name, log, "16m")
    }

    /// With a file system of this size for its state.
    fn with_state(name: &str, log: Stdio, size: &str) -> Self {
        let directory = format!("sg-unreported-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        fs::create_dir_all(directory.join("state")).expect("a directory");
        let here = directory.display();
        run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size}"),
                "tmpfs",
                &format!("{here}/state"),
            ],
        );
        let mut text =
            format!("[switch]\nsocket = \"{here}/switch.sock\"\nstate = \"{here}/state/ledger\"\n");
        for port in ["a", "b", "c"] {
            text += &format!("[[port]]\nname = \"{port}\"\nvhost_user = \"{here}/{port}.sock\"\n");
        }
        fs::write(directory.join("switch.toml"), text).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["switch", "run", "--verbose"])
            .arg(directory.join("switch.toml"))
            .stderr(log)
            .spawn()
            .expect("it starts");
        let switch = Self { directory, child };
        until("it runs", || switch.directory.join("switch.sock").exists());
        switch
    }

    fn guest(&self, port: &str) -> Guest {
        Guest::connect(&self.directory.join(format!("{port}.sock")), PLAIN)
    }

    fn show(&self) -> Option<Value> {
        let shown = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(["switch", "show", "--json", "--socket"])
            .arg(self.directory.join("switch.sock"))
            .output()
            .expect("it runs");
        serde_json::from_slice(&shown.stdout).ok()
    }

    /// Asks it to end; its exit code.
    fn end(mut self) -> Option<i32> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("a signal");
        self.child.wait().expect("its status").code()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount")
            .arg(self.directory.join("state"))
            .status();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(
        status.expect("it runs").success(),
        "{program} {arguments:?}"
    );
}

/// Frames from one guest to another.
fn pass(from: &mut Guest, to: &mut Guest) {
    for at in 0..300 {
        until("room", || from.send(&frame(mac(2), mac(1), at, 60)));
        assert_eq!(number(&to.expect()), (1, at));
    }
}

fn full() -> Stdio {
    let full = File::options().write(true).open("/dev/full");
    full.expect("the device").into()
}

/// One guest breaks a rule, which is logged, and others go on.
fn breaks(name: &str, log: Stdio) -> Switch {
    let switch = Switch::start(name, log);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|port| switch.guest(port));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    c.jump(30_000);
    let mut shown = Value::Null;
    until("the port is closed", || {
        shown = switch.show().expect("it answers");
        shown["ports_up"] == 2
    });
    pass(&mut a, &mut b);
    switch
}

#[test]
fn a_log_whose_reader_has_gone_or_whose_disk_is_full_costs_its_lines_alone() {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    for (name, log) in [("gone", writer.into()), ("full", full())] {
        let switch = breaks(name, log);
        until("lines are counted", || {
            let shown = switch.show().expect("it answers");
            shown["log_lines_lost"].as_u64() > Some(1)
        });
        assert_eq!(switch.end(), Some(0), "{name}");
    }
}

#[test]
fn a_log_that_nothing_reads_holds_no_thread_up() {
    let (_reader, writer) = pipe().expect("a pipe");
    fcntl_setfl(writer.as_fd(), OFlags::NONBLOCK).expect("its flags");
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    fcntl_setfl(writer.as_fd(), OFlags::empty()).expect("its flags");
    let switch = breaks("unread", writer.into());
    assert_eq!(switch.end(), Some(0));
}

#[test]
fn a_full_state_and_no_descriptors_stop_no_frame() {
    let switch = Switch::start("state", full());
    let [mut a, mut b] = ["a", "b"].map(|port| switch.guest(port));
    introduce(&mut [(&mut a, 1), (&mut b, 2)]);
    let mut filling = File::create(switch.directory.join("state/filling")).expect("a file");
    while filling.write(&[1; 4096]).is_ok() {}
    pass(&mut a, &mut b);
    // A guest that comes now is served as well.
    let mut c = switch.guest("c");
    until("room", || c.send(&frame(mac(1), mac(3), 7, 60)));
    assert_eq!(number(&a.expect()), (3, 7));

    let pid = switch.child.id();
    let limit = |soft: usize| {
        let limit = format!("--nofile={soft}:");
        run("prlimit", &["--pid", &pid.to_string(), &limit]);
    };
    // Those that are open stay so, and `accept` that waits has had the descriptor of the next.
    limit(3);
    until("no descriptor for a question", || switch.show().is_none());
    pass(&mut a, &mut b);
    limit(1024);
    until("it answers again", || switch.show().is_some());
    assert_eq!(switch.end(), Some(0));
}

/// What is left of one-shot commands whose reader has gone, or whose disk is full.
#[test]
fn a_command_whose_reader_has_gone_ends_in_silence() {
    for arguments in [&["--help"][..], &["man"], &["completions", "bash"]] {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .args(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(Child::wait_with_output)
            .expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}");
    }
    let directory = std::env::temp_dir().join(format!("sg-warned-{}.toml", std::process::id()));
    fs::write(&directory, "[[rule]]\nmode = 'enforce'\n").expect("a file");
    let warned = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(["policy", "check"])
        .arg(&directory)
        .stderr(full())
        .output()
        .expect("it runs");
    fs::remove_file(&directory).expect("removed");
    assert_eq!(warned.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&warned.stdout).contains("good"));
}

#[test]
fn a_start_without_room_for_the_state_moves_frames_and_says_what_is_lost() {
    // For nothing of it; for one of three ports.
    for size in ["64k", "4112k"] {
        let log = std::env::temp_dir().join(format!("sg-roomless-{}", std::process::id()));
        let file = File::create(&log).expect("a file");
        let switch = Switch::with_state(&format!("roomless-{size}"), file.into(), size);
        let [mut a, mut b] = ["a", "b"].map(|port| switch.guest(port));
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        pass(&mut a, &mut b);
        assert!(switch.show().is_some(), "{size}");
        assert_eq!(switch.end(), Some(0), "{size}");
        let said = fs::read_to_string(&log).expect("its log");
        let _ = fs::remove_file(&log);
        assert!(
            said.contains("the state is in memory alone"),
            "{size}: {said}"
        );
        assert!(said.contains("No space left on device"), "{size}: {said}");
    }
}
