//! An agent that cannot tell what it does, or is told what it cannot read: enforcement goes on.
//! Needs root.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

use site::{Agent, Site, common::ip, eventually, text};
use sluicegate_agent::tcx::Direction;

use crate::site;

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    assert!(
        status.expect("it runs").success(),
        "{program} {arguments:?}"
    );
}

#[test]
fn an_agent_whose_log_and_state_cannot_be_written_enforces() {
    let site = Site::new();
    let run_dir = site.run_dir();
    fs::create_dir_all(&run_dir).unwrap();
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &run_dir],
    );
    let filling = format!("{run_dir}/filling");
    let mut file = File::create(&filling).unwrap();
    while file.write(&[1; 4096]).is_ok() {}
    let mut command = site.agent_command("policy.toml");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut agent = command.stderr(Stdio::from(full)).spawn().unwrap();
    eventually(|| site.attached("ta"), |programs| !programs.is_empty());
    eventually(|| site.attached("tb"), |programs| !programs.is_empty());
    site.host.transfer(1_000_000);
    assert_eq!(agent.try_wait().unwrap(), None);
    // As soon as there is room, others hear of it.
    fs::remove_file(&filling).unwrap();
    drop(file);
    let state = || fs::read_to_string(format!("{run_dir}/{}.json", site.host.name("h")));
    let state = eventually(state, Result::is_ok).unwrap();
    assert!(state.contains("\"log_lines_lost\": "), "{state}");
    assert!(!state.contains("\"log_lines_lost\": 0"), "{state}");
    run("kill", &[&agent.id().to_string()]);
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    run("umount", &[&run_dir]);
}

/// As `LimitFSIZE=0` of a unit has it: every write to a file is one beyond its largest size.
#[test]
fn an_agent_that_may_write_to_no_file_enforces_and_says_so() {
    let site = Site::new();
    let agent = site.agent_command("policy.toml");
    let mut command = Command::new("prlimit");
    command
        .args(["--fsize=0:unlimited", "--"])
        .arg(agent.get_program());
    command.args(agent.get_args());
    let agent = Agent::start(command);
    let line = agent.wait_for("the state file: ");
    assert!(line.contains("File too large"), "{line}");
    agent.wait_for("enforcing; stop");
    site.host.transfer(100_000);
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    let pid = agent.child.id().to_string();
    run("prlimit", &["--pid", &pid, "--fsize=unlimited:"]);
    agent.wait_for("the state file: it works again");
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn a_state_file_that_cannot_be_read_is_no_sign_that_no_agent_runs() {
    let site = Site::new();
    let agent = site.agent();
    let path = format!("{}/{}.json", site.run_dir(), site.host.name("h"));
    fs::write(&path, "{").unwrap();
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        let output = command.args(arguments).args(["--run-dir", &site.run_dir()]);
        let output = output.output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    };
    let doctor = said(&["doctor", "-i", "lo"]);
    let unknown = format!("Whether another agent runs is not known: reading {path}: ");
    assert!(doctor.contains(&unknown), "{doctor}");
    let detach = said(&["detach", "--all", "--bpffs", &site.bpffs()]);
    assert!(
        detach.contains("warning: an agent may run and will attach again then")
            && detach.contains(&path),
        "{detach}"
    );
    drop(agent);
}

/// As an agent leaves it that is killed between the two links of an interface.
#[test]
fn a_start_that_detaches_what_is_half_there_says_why_and_attaches_anew() {
    let site = Site::new();
    let agent = site.agent();
    let state = site.state_when(|state| state.interfaces.len() == 2);
    let mut places = state.interfaces.iter();
    let (index, _) = places.find(|(_, place)| place.name == "ta").unwrap();
    let pin = site.pins().link(*index, Direction::Egress);
    agent.kill();
    fs::remove_file(&pin).unwrap();
    let agent = Agent::start(site.agent_command("policy.toml"));
    let line = agent.wait_for("detached: ");
    assert!(line.contains("WARN") && line.contains("ta"), "{line}");
    let why = format!("one link of two, {} is missing", pin.display());
    assert!(line.contains(&why), "{line}");
    agent.wait_for("enforcing; stop");
    assert!(pin.exists());
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn an_alias_that_is_no_utf_8_is_a_label_and_a_detach_says_why() {
    let site = Site::new();
    let h = site.host.name("h");
    let policy = site.directory.join("policy.toml").display().to_string();
    let arguments = ["agent", "--policy", &policy, "-i", "t?", "--netns", &h];
    let agent = Agent::start(site.command(&arguments));
    agent.wait_for("enforcing; stop");
    let name = |alias: &[u8]| {
        let mut ip = Command::new("ip");
        ip.args(["-n", &h, "link", "set", "dev", "ta", "alias"]);
        assert!(ip.arg(OsStr::from_bytes(alias)).status().unwrap().success());
    };
    name(b"M\xfcller");
    let line = agent.wait_for("labelled");
    assert!(line.contains("M\u{fffd}ller"), "{line}");
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    agent.kill();
    // One that starts now attaches as well, and knows whose it is.
    let agent = Agent::start(site.command(&arguments));
    agent.wait_for("enforcing; stop");
    let state = site.state_when(|state| !state.interfaces.is_empty());
    let mut places = state.interfaces.values();
    assert!(
        places.any(|place| place.tenant == "M\u{fffd}ller"),
        "{state:?}"
    );
    ip(&["-n", &h, "link", "set", "ta", "name", "other"]);
    let line = agent.wait_for("detached");
    assert!(line.contains("its name is other"), "{line}");
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn interfaces_for_which_no_descriptors_are_left_are_named_and_tried_again() {
    let site = Site::new();
    let agent = site.agent();
    let pid = agent.child.id();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let limit = |soft: usize| {
        let limit = format!("--nofile={soft}:");
        run("prlimit", &["--pid", &pid.to_string(), &limit]);
    };
    limit(open + 10);
    let (h, a) = (site.host.name("h"), site.host.name("a"));
    let link = format!("link add tc type veth peer name peer netns {a}");
    let words: Vec<&str> = ["-n", &h].into_iter().chain(link.split(' ')).collect();
    ip(&words);
    let line = agent.wait_for("not attached");
    assert!(line.contains("no descriptors are left"), "{line}");
    let state = site.state_when(|state| state.failed.contains("tc"));
    assert!(state.left_out["tc"].contains("LimitNOFILE="), "{state:?}");
    let shown = text(&site.flows(&[]).stdout);
    assert!(shown.contains("nothing is enforced on tc"), "{shown}");
    limit(1024);
    assert!(agent.wait_for("INFO attached").contains("tc"));
    site.state_when(|state| state.failed.is_empty() && state.left_out.is_empty());
    assert_eq!(agent.stop(), Some(0));
}
