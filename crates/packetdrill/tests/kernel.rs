//! `packetdrill --against-kernel`: scripts on this kernel's TCP beside the endpoint. Needs root,
//! and CPUs that others leave alone.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const OPEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+.01 < . 1:1(0) ack 1 win 65535
+0 accept(3, ..., ...) = 4
";

fn packetdrill(files: &[PathBuf]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetdrill"));
    command.arg("--against-kernel").args(files);
    command.output().expect("runs")
}

/// A script of its own, which goes with the test.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, rest: &str) -> Self {
        let name = format!("pd-{}-{name}.pkt", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, format!("{OPEN}{rest}")).expect("has room");
        Self(path)
    }

    fn run(&self) -> (i32, String) {
        let output = packetdrill(std::slice::from_ref(&self.0));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap_or(-1), text)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_kernel_does_what_the_endpoint_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let names = [
        "open-passive",
        "close-half",
        "close-unread",
        "sack-blocks",
        "sack-beside-timestamps",
        "sack-fast-retransmit",
        "dsack",
        "reset-opening",
        "open-simultaneous",
        "open-simultaneous-stamps",
        "timeout-after-progress",
        "notsent-lowat",
        "no-tail-probe",
        "hystart-delay",
        "user-timeout",
    ];
    let files = names.map(|name| folder.join(format!("{name}.pkt")));
    let output = packetdrill(&files);
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = format!("{} same, 0 differ, 0 not run", names.len());
    assert!(text.ends_with(&format!("{summary}\n")), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_difference_is_told_with_both_sides() {
    // Virtual time is exact, and a round trip through the kernel takes a little longer.
    let script = Script::new(
        "differs",
        "+0 write(4, ..., 10) = 10\n+0 > P. 1:11(10) ack 1\n+.01 < . 1:1(0) ack 11 win 65535\n\
         +0 %{ assert tcpi_rtt == 10000, tcpi_rtt }%\n",
    );
    let (code, text) = script.run();
    assert_eq!(code, 1, "{text}");
    let line = text.lines().next().expect("there is one");
    assert!(line.starts_with("differs "), "{text}");
    assert!(line.contains(".pkt:11: kernel: expected tcpi_rtt == 10000; got tcpi_rtt = "));
    assert!(line.contains("; ours: as asserted"), "{text}");
}

#[test]
fn what_does_not_return_and_what_leaves_by_itself_is_seen() {
    // Neither side returns from a read of nothing; neither sends what the script expects.
    let script = Script::new("waits", "+0 read(4, ..., 10) = 10\n+.1 > . 1:1(0) ack 1\n");
    let (code, text) = script.run();
    assert_eq!((code, text.starts_with("same ")), (0, true), "{text}");
}

#[test]
fn what_cannot_be_run_is_named() {
    for (name, rest, reason) in [
        (
            "beyond",
            "+0 `rm -f /tmp/../pd-none`\n",
            "kernel: command rm -f /tmp/../pd-none",
        ),
        (
            "unknown",
            "+0 io_uring_setup(1) = 5\n",
            "ours: system call io_uring_setup",
        ),
        (
            "freebsd",
            "+0 `sysctl net.inet.tcp.sack.enable=1`\n",
            "a script of another kernel",
        ),
    ] {
        let (code, text) = Script::new(name, rest).run();
        assert_eq!(code, 0, "{text}");
        assert!(
            text.starts_with("not run ") && text.contains(reason),
            "{text}"
        );
        assert!(text.ends_with("0 same, 0 differ, 1 not run\n"), "{text}");
    }
}

#[test]
fn nothing_stays_behind() {
    let links = || {
        Command::new("ip")
            .args(["-o", "link"])
            .output()
            .expect("runs")
            .stdout
    };
    let named = || {
        Command::new("ip")
            .arg("netns")
            .output()
            .expect("runs")
            .stdout
    };
    let before = (links().len(), named());
    // It fails in the middle, with a call that waits.
    let rest = "+0...0.1 read(4, ..., 10) = 10\n+.01 `rm -f /tmp/../pd-none`\n";
    let (_, text) = Script::new("breaks", rest).run();
    assert!(text.starts_with("not run "), "{text}");
    assert_eq!((links().len(), named()), before);
}
