//! An upgrade of a switch that runs as a service: real processes, a service manager that believes
//! its main process alone, and two guests whose numbered frames flow meanwhile. Needs no
//! privileges.

use std::{
    fs,
    io::{BufRead, BufReader, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixDatagram, UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use common::{Guest, PLAIN, REMEMBERS, frame, introduce, mac, number, switch_table, until};
use rustix::{
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt},
    process::{
        Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpid,
    },
};
use serde_json::Value;

use crate::common;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sluicegate");

/// Upgrades stop frames for less.
const OUTAGE_NS_MAX: u64 = 50_000_000;

/// One test at a time: some take all of the machine.
static ALONE: Mutex<()> = Mutex::new(());

fn pid_of(pid: u32) -> Pid {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.expect("a process")
}

/// What systemd does with messages by NotifyAccess=main.
#[derive(Debug, Default)]
struct Heard {
    main: u32,
    /// Messages of the main process, in their order.
    believed: Vec<String>,
    /// Those of others.
    ignored: Vec<String>,
}

/// A service manager: it hears, and is the parent of processes whose parent has ended.
struct Manager {
    path: PathBuf,
    heard: Arc<Mutex<Heard>>,
}

impl Manager {
    fn new(directory: &Path) -> Self {
        set_child_subreaper(Some(pid_of(std::process::id()))).expect("a subreaper");
        let path = directory.join("notify.sock");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        sockopt::set_socket_passcred(&socket, true).expect("credentials");
        let heard = Arc::new(Mutex::new(Heard::default()));
        let known = Arc::clone(&heard);
        thread::spawn(move || {
            while let Some((pid, text)) = hear(&socket) {
                // The descriptor of a barrier is closed already, so that its sender goes on.
                if text == "BARRIER=1" {
                    continue;
                }
                let mut heard = known.lock().unwrap_or_else(PoisonError::into_inner);
                if pid != heard.main {
                    heard.ignored.push(text);
                    continue;
                }
                let main = text.lines().find_map(|line| line.strip_prefix("MAINPID="));
                if let Some(main) = main {
                    heard.main = main.parse().expect("a number");
                }
                heard.believed.push(text);
            }
        });
        Self { path, heard }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn main(&self) -> u32 {
        self.heard().main
    }

    fn has_heard(&self, line: &str) -> bool {
        self.heard()
            .believed
            .iter()
            .any(|text| text.lines().any(|it| it == line))
    }
}

/// The next message and the process that sent it. Its descriptors are closed at once.
fn hear(socket: &UnixDatagram) -> Option<(u32, String)> {
    let mut text = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut part = [IoSliceMut::new(&mut text)];
    let received = recvmsg(socket, &mut part, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut pid = 0;
    for with in ancillary.drain() {
        if let RecvAncillaryMessage::ScmCredentials(of) = with {
            pid = of.pid.as_raw_nonzero().get().unsigned_abs();
        }
    }
    let text = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Some((pid, text))
}

/// A switch as a service, with three ports.
struct Unit {
    directory: PathBuf,
    manager: Manager,
    first: Child,
    _alone: MutexGuard<'static, ()>,
}

impl Unit {
    fn start(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = format!("sg-upgrade-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        fs::create_dir_all(&directory).expect("a directory");
        let here = directory.display();
        let mut text = switch_table(&format!("socket = \"{here}/switch.sock\"\n{REMEMBERS}"));
        for port in ["a", "b", "c"] {
            text += &format!("[[port]]\nname = \"{port}\"\nvhost_user = \"{here}/{port}.sock\"\n");
        }
        fs::write(directory.join("switch.toml"), text).expect("a file");
        let manager = Manager::new(&directory);
        let log = fs::File::create(directory.join("log")).expect("a file");
        let first = {
            // Nothing of it is heard before it is known.
            let mut heard = manager.heard();
            let first = Command::new(PROGRAM)
                .args(["switch", "run"])
                .arg(directory.join("switch.toml"))
                .env("NOTIFY_SOCKET", &manager.path)
                .stderr(log)
                .spawn()
                .expect("it starts");
            heard.main = first.id();
            first
        };
        let unit = Self {
            directory,
            manager,
            first,
            _alone: alone,
        };
        until("it is ready", || unit.manager.has_heard("READY=1"));
        unit
    }

    fn ask(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("switch").args(arguments).arg("--socket");
        command.arg(self.directory.join("switch.sock"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn upgrade(&self, arguments: &[&str]) -> Output {
        let mut command = self.ask(&["upgrade"]);
        command.args(arguments).output().expect("it runs")
    }

    /// Upgrades; what is said of it.
    fn upgraded(&self) -> Value {
        let before = self.manager.main();
        let output = self.upgrade(&["--json"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}\n{}", self.log());
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(said["predecessor"], before);
        assert_ne!(said["pid"], before);
        // The manager knows it before the command ends.
        assert_eq!(said["pid"], self.manager.main());
        // It was this process's child, or has become it: the manager hears of its end.
        let (_, status) = waitpid(Some(pid_of(before)), WaitOptions::empty())
            .expect("it is a child")
            .expect("it has ended");
        assert_eq!(status.exit_status(), Some(0), "{}", self.log());
        said
    }

    /// An upgrade that comes to nothing, with this exit code, and why.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let before = self.manager.main();
        let output = self.upgrade(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains("the switch that runs goes on"), "{error}");
        assert_eq!(self.manager.main(), before);
        assert_eq!(self.shown()["pid"], before);
        error
    }

    fn shown(&self) -> Value {
        let output = self.ask(&["show", "--json"]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// A program in place of the switch: what it does as a successor; its check finds nothing.
    fn program(&self, name: &str, does: &str) -> String {
        let path = self.directory.join(name);
        let text = format!("#!/bin/sh\n[ \"$2\" = check ] && exit 0\n{does}\n");
        fs::write(&path, text).expect("a file");
        let rights = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, rights).expect("its rights");
        path.display().to_string()
    }

    fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.manager.main());
        fs::read_dir(path).expect("its descriptors").count()
    }

    fn flow(&self) -> Flow {
        Flow::start(&self.directory)
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let main = pid_of(self.manager.main());
        let _ = kill_process(main, Signal::KILL); // fails only when it is dead
        let _ = waitpid(Some(main), WaitOptions::empty());
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Two guests of which one sends numbered frames to the other, until it is told to stop.
struct Flow {
    received: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Flow {
    fn start(directory: &Path) -> Self {
        let guest = |port: &str| Guest::connect(&directory.join(format!("{port}.sock")), PLAIN);
        let [mut a, mut b] = ["a", "b"].map(guest);
        introduce(&mut [(&mut a, 1), (&mut b, 2)]);
        let (received, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counts, stops) = (Arc::clone(&received), Arc::clone(&ends));
        let sent = Arc::new(AtomicU64::new(u64::MAX));
        let all = Arc::clone(&sent);
        let sender = thread::spawn(move || {
            let mut count = 0;
            while !stops.load(Ordering::Acquire) {
                until("room", || a.send(&frame(mac(2), mac(1), count, 60)));
                count += 1;
                if count % 64 == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
            }
            all.store(count, Ordering::Release);
            // Its rings are there until all has arrived.
            until("all taken", || a.room() == usize::from(common::SIZE));
            count
        });
        let receiver = thread::spawn(move || {
            let mut next = 0;
            while next < sent.load(Ordering::Acquire) {
                let Some((_, bytes)) = b.receive() else {
                    thread::sleep(Duration::from_micros(100));
                    continue;
                };
                assert_eq!(number(&bytes), (1, next), "lost, doubled or out of order");
                next += 1;
                counts.store(next, Ordering::Release);
            }
            next
        });
        Self {
            received,
            ends,
            threads: vec![sender, receiver],
        }
    }

    /// Frames go on.
    fn goes_on(&self) {
        let before = self.received.load(Ordering::Acquire);
        until("frames", || {
            self.received.load(Ordering::Acquire) > before + 500
        });
    }

    /// How many have come: each once, and in order.
    fn stop(self) -> u64 {
        self.ends.store(true, Ordering::Release);
        let counts = self
            .threads
            .into_iter()
            .map(|it| it.join().expect("none lost"));
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts[0], counts[1]);
        counts[0]
    }
}

#[test]
fn twenty_upgrades_of_a_service_lose_nothing_and_its_manager_follows_each() {
    let unit = Unit::start("twenty");
    let flow = unit.flow();
    unit.upgraded();
    let descriptors = unit.descriptors();
    let mut outages_ns = Vec::new();
    for _ in 0..20 {
        flow.goes_on();
        let said = unit.upgraded();
        outages_ns.push(said["outage_ns"].as_u64().expect("a number"));
        assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    }
    flow.goes_on();
    // Nothing is handed down but what belongs to the switch.
    let now = unit.descriptors();
    assert!(
        now.abs_diff(descriptors) <= 3,
        "{descriptors} descriptors, then {now}"
    );
    let frames = flow.stop();
    outages_ns.sort_unstable();
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{frames} frames; none moved for {:.1} ms in the median and {:.1} ms at most",
        ms(outages_ns[10]),
        ms(outages_ns[19])
    );
    // A busy CPU may run a successor late: the longest say nothing, three in four do.
    assert!(outages_ns[15] < OUTAGE_NS_MAX, "{outages_ns:?}");
    let heard = unit.manager.heard();
    assert_eq!(heard.ignored, Vec::<String>::new());
    let told = heard.believed.iter().filter(|it| it.contains("MAINPID="));
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 21);
    assert!(told.iter().all(|text| text.contains("READY=1")), "{told:?}");
}

#[test]
fn a_successor_that_fails_leaves_the_switch_as_it_is() {
    let unit = Unit::start("fails");
    let flow = unit.flow();
    let absent = unit.refused(&["--program", "/nowhere/sluicegate"], 1);
    assert!(
        absent.contains("cannot start /nowhere/sluicegate"),
        "{absent}"
    );
    let other = unit.refused(&["--program", "/bin/false"], 1);
    assert!(other.contains("cannot check its file"), "{other}");
    let ends = unit.program("ends", "exit 7");
    let ended = unit.refused(&["--program", &ends], 1);
    assert!(
        ended.contains("without taking over (exit status: 7)"),
        "{ended}"
    );
    let hangs = unit.program("hangs", "exec sleep 100");
    let start = Instant::now();
    let hung = unit.refused(&["--program", &hangs], 1);
    assert!(
        hung.contains("has not asked for anything within 10 s"),
        "{hung}"
    );
    assert!(start.elapsed() < Duration::from_secs(20));
    // Nothing stopped for any of them.
    flow.goes_on();

    let file = unit.directory.join("switch.toml");
    let good = fs::read_to_string(&file).expect("a file");
    fs::write(
        &file,
        good.replace("name = \"c\"", "name = \"c\"\nvlna = 7"),
    )
    .expect("a file");
    let wrong = unit.refused(&[], 2);
    assert!(
        wrong.contains("switch.toml:") && wrong.contains("vlan"),
        "{wrong}"
    );
    // What only the running switch knows is refused when the successor has heard of it.
    let state = unit.directory.join("other.state").display().to_string();
    let other = format!("[switch]\nstate = \"{state}\"\n");
    fs::write(&file, good.replace("[switch]\n", &other)).expect("a file");
    // It has 50 ms to say so, in which a busy CPU may not run it.
    let elsewhere = (0..20)
        .map(|_| unit.refused(&[], 1))
        .find(|error| !error.contains("was not ready within"))
        .expect("it had a CPU");
    assert!(elsewhere.contains("`state` must be"), "{elsewhere}");
    flow.goes_on();

    fs::write(&file, good).expect("a file");
    unit.upgraded();
    flow.goes_on();
    flow.stop();
}

#[test]
fn of_two_upgrades_at_once_one_is_done_and_no_stranger_comes_between() {
    let unit = Unit::start("two");
    let flow = unit.flow();
    let slow = unit.program("slow", &format!("sleep 1\nexec {PROGRAM} \"$@\""));
    let before = unit.manager.main();
    let mut first = unit.ask(&["upgrade", "--program", &slow]);
    let first = first.spawn().expect("it runs");
    until("it has begun", || unit.log().contains("a successor starts"));
    let second = unit.refused(&[], 1);
    assert!(
        second.contains("an upgrade is under way already"),
        "{second}"
    );
    let stranger = Command::new(PROGRAM)
        .args(["switch", "run", "--take-over"])
        .arg(unit.directory.join("switch.toml"))
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&stranger.stderr);
    assert_eq!(stranger.status.code(), Some(1), "{error}");
    assert!(error.contains("an upgrade to process"), "{error}");
    let output = first.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(&format!("has taken over from {before}")),
        "{said}"
    );
    assert_ne!(unit.manager.main(), before);
    flow.goes_on();
    flow.stop();
}

#[test]
fn a_switch_that_is_told_to_stop_ends_its_successor_first() {
    let unit = Unit::start("stops");
    let hangs = unit.program("hangs", "exec sleep 100");
    let mut asks = unit.ask(&["upgrade", "--program", &hangs]);
    let asks = asks.spawn().expect("it runs");
    until("it has begun", || unit.log().contains("a successor starts"));
    let main = pid_of(unit.manager.main());
    kill_process(main, Signal::TERM).expect("it runs");
    let output = asks.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("was told to stop"), "{error}");
    until("it says so", || unit.manager.has_heard("STOPPING=1"));
}

/// A switch without a manager that listens, and its successors, which are of its process group.
struct ByHand(Child);

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = kill_process_group(pid_of(self.0.id()), Signal::KILL);
        let _ = self.0.wait();
    }
}

fn by_hand(unit: &Unit, set: &str) -> ByHand {
    let file = unit.directory.join("hand.toml");
    let socket = unit.directory.join("hand.sock").display().to_string();
    fs::write(&file, format!("[switch]\nsocket = \"{socket}\"\n")).expect("a file");
    let script = format!("{set} exec {PROGRAM} switch run {}", file.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env_remove("NOTIFY_SOCKET");
    let child = command.process_group(0).stderr(Stdio::null()).spawn();
    let child = ByHand(child.expect("it starts"));
    until("it listens", || UnixStream::connect(&socket).is_ok());
    child
}

#[test]
fn without_a_manager_the_successor_goes_on_and_one_that_would_end_it_is_not_tried() {
    let unit = Unit::start("hand");
    let socket = unit.directory.join("hand.sock").display().to_string();
    let upgrade = || {
        let mut command = Command::new(PROGRAM);
        command.args(["switch", "upgrade", "--json", "--socket", &socket]);
        command.output().expect("it runs")
    };
    let mut first = by_hand(&unit, "");
    let output = upgrade();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(first.0.wait().expect("it ends").success());
    let next = pid_of(u32::try_from(said["pid"].as_u64().expect("a number")).expect("a pid"));
    kill_process(next, Signal::TERM).expect("it runs");
    waitpid(Some(next), WaitOptions::empty()).expect("it ends");
    assert_eq!(upgrade().status.code(), Some(4), "nobody answers");

    let mut doomed = by_hand(&unit, "SYSTEMD_EXEC_PID=$$");
    let output = upgrade();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("needs Type=notify"), "{error}");
    assert!(doomed.0.try_wait().expect("a status").is_none());
}

/// Processes that use each CPU several times over.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let cpus = thread::available_parallelism().map_or(2, |it| it.get());
        let spin = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.spawn().expect("a shell")
        };
        Self((0..4 * cpus).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill(); // fails only when it is dead
            let _ = child.wait();
        }
    }
}

#[test]
fn on_a_busy_machine_a_successor_tries_again_by_itself() {
    let unit = Unit::start("busy");
    let flow = unit.flow();
    let busy = Busy::start();
    let attempts = (0..5).map(|_| unit.upgraded()["attempts"].as_u64());
    let attempts: u64 = attempts.map(|it| it.expect("a number")).sum();
    drop(busy);
    println!("5 upgrades on a busy machine took {attempts} attempts");
    let again = |log: &str| {
        log.matches("to take over: the switch that runs goes on")
            .count()
    };
    assert_eq!(again(&unit.log()) as u64 + 5, attempts, "{}", unit.log());
    flow.goes_on();

    flow.stop();
}

/// A process that takes over but is not ready in time, at first. It is the successor afterwards.
const LATE: &str = r#"#!/usr/bin/env python3
import json, os, socket, sys, time

if sys.argv[2] == "check":
    sys.exit(0)
control = socket.socket(socket.AF_UNIX)
control.connect(os.environ["CONTROL"])
asked = {"ask": "takeover", "prepares": True, "pid": os.getpid()}
control.sendall(json.dumps(asked).encode() + b"\n")
assert control.recv(8) == b"prepare\n"
control.sendall(b"p")
time.sleep(0.3)
control.close()
os.execv(os.environ["PROGRAM"], ["sluicegate"] + sys.argv[1:])
"#;

#[test]
fn a_successor_that_is_late_has_another_attempt() {
    let mut unit = Unit::start("late");
    let path = unit.program("late", "");
    let text = LATE
        .replace("os.environ[\"PROGRAM\"]", &format!("{PROGRAM:?}"))
        .replace(
            "os.environ[\"CONTROL\"]",
            &format!("{:?}", unit.directory.join("switch.sock")),
        );
    fs::write(&path, text).expect("a file");
    let flow = unit.flow();
    let main = unit.manager.main();
    let output = unit.upgrade(&["--program", &path]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", unit.log());
    let wanted = format!("has taken over from {main}, at attempt 2: no frame");
    assert!(said.contains(&wanted), "{said}");
    assert!(unit.first.wait().expect("it ends").success());
    flow.goes_on();
    flow.stop();
}

#[test]
fn a_process_that_is_always_too_slow_tries_five_times() {
    let unit = Unit::start("slow");
    let socket = unit.directory.join("other.sock");
    let file = unit.directory.join("other.toml");
    let text = format!("[switch]\nsocket = \"{}\"\n", socket.display());
    fs::write(&file, text).expect("a file");
    // A switch that hands over, and does not wait until all has arrived.
    let listener = UnixListener::bind(&socket).expect("a socket");
    let hands = thread::spawn(move || {
        let each = (0..5).map(|_| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut asked = String::new();
            let mut lines = BufReader::new(stream.try_clone().expect("a copy"));
            lines.read_line(&mut asked).expect("a question");
            stream.write_all(b"prepare\n").expect("it hears");
            stream.read_exact(&mut [0]).expect("it answers");
            stream
                .write_all(&[9, 0, 0, 0, 0, 0, 0, 0])
                .expect("it hears");
            stream.write_all(&[0; 9]).expect("it hears");
            let asked: Value = serde_json::from_str(&asked).expect("JSON");
            asked["pid"].as_u64()
        });
        each.collect::<Vec<_>>()
    });
    let child = Command::new(PROGRAM)
        .args(["switch", "run", "--take-over"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let pid = u64::from(child.id());
    let output = child.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("attempt 4 of 5 to take over"), "{error}");
    // Each time it is the same process.
    assert_eq!(hands.join().expect("five"), [Some(pid); 5]);
}
