//! Virtual machines of QEMU (emulated) at the switch: one of the two is killed, or a machine
//! migrates while frames flow. Their guest is `guest/machine.c`.
#![cfg(target_arch = "x86_64")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use common::{Bench, Guest, PLAIN, mac, others::Others, process::Process};
use serde_json::{Value, json};
use sluicegate_dataplane::count::Drop as Reason;

use crate::common;

/// A limit for what never takes so long, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The guest as a kernel, compiled once.
fn kernel() -> &'static Path {
    static KERNEL: OnceLock<PathBuf> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("machine-{}.elf", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/guest/machine.c");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/guest/machine.sh");
        let status = Command::new(script).arg(source).arg(&path).status();
        assert!(status.expect("guest/machine.sh").success(), "gcc -m32");
        path
    })
}

/// How a machine is connected to its port.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The switch listens; QEMU connects, and again each second.
    Client,
    /// QEMU listens.
    Server,
}

/// A machine; gone when dropped.
struct Machine {
    child: Child,
    directory: PathBuf,
    name: String,
}

impl Machine {
    /// At the port `name` of a switch whose sockets are in `directory`, with these arguments of its
    /// guest, the first of which is its address, and further ones of QEMU.
    fn start(directory: &Path, name: &str, mode: Mode, guest: &str, more: &[&str]) -> Self {
        let file = |end: &str| {
            directory
                .join(format!("{name}.{end}"))
                .display()
                .to_string()
        };
        let mode = match mode {
            Mode::Client => "reconnect=1",
            Mode::Server => "server=on",
        };
        let mut words = guest.split(' ');
        let address = words.next().expect("an address");
        let (queues, several) = match words.nth(3) {
            Some(pairs) => (format!(",queues={pairs}"), ",mq=on,vectors=6"),
            None => (String::new(), ""),
        };
        let child = Command::new("qemu-system-x86_64")
            .args([
                "-accel",
                "tcg",
                "-m",
                "64",
                "-nodefaults",
                "-display",
                "none",
            ])
            .args(["-object", "memory-backend-memfd,id=ram,size=64M,share=on"])
            .args(["-machine", "q35,memory-backend=ram"])
            .args([
                "-chardev",
                &format!("socket,id=vm,path={},{mode}", file("sock")),
            ])
            .args(["-netdev", &format!("vhost-user,id=n1,chardev=vm{queues}")])
            .arg("-device")
            .arg(format!(
                "virtio-net-pci,netdev=n1,mac=02:00:00:00:00:{address:0>2}{several}"
            ))
            .args(["-serial", &format!("file:{}", file("log"))])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", file("qmp"))])
            .arg("-kernel")
            .arg(kernel())
            .args(["-append", guest])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            child: child.expect("qemu-system-x86_64; scripts/setup.sh test installs it"),
            directory: directory.to_owned(),
            name: name.to_owned(),
        }
    }

    /// What its guest has said, in whole lines.
    fn log(&self) -> String {
        let log = fs::read_to_string(self.directory.join(format!("{}.log", self.name)));
        let mut log = log.unwrap_or_default();
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        log
    }

    /// Frames of its peer that have come, in thousands and rounded down.
    fn received(&self) -> u64 {
        let log = self.log();
        let last = log.lines().filter_map(|line| line.strip_prefix("at "));
        let mut numbers = last.filter_map(|number| number.parse().ok());
        numbers.next_back().unwrap_or(0)
    }

    /// Waits until so many more frames have come.
    fn receives(&self, more: u64) {
        let before = self.received();
        until(&format!("{more} frames for {}", self.name), || {
            self.received() >= before + more
        });
    }

    /// Waits until all frames have come; how many came, and how many of them are missing. None came
    /// twice, later than a later one, or with other bytes.
    fn done(&self) -> (u64, u64) {
        let mut line = None;
        until(&format!("the end at {}", self.name), || {
            let log = self.log();
            line = log
                .lines()
                .find_map(|line| line.strip_prefix("done ").map(str::to_owned));
            line.is_some()
        });
        self.is_right();
        let line = line.expect("a line");
        let (all, missing) = line.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse().expect("a number");
        (number(all), number(missing))
    }

    /// How often frames were missing, one after the other.
    fn gaps(&self) -> usize {
        let log = self.log();
        log.lines().filter(|line| line.starts_with("gap ")).count()
    }

    /// Nothing came that must not.
    fn is_right(&self) {
        let log = self.log();
        let bad = log
            .lines()
            .find(|line| line.starts_with("wrong") || line.starts_with("error"));
        assert_eq!(bad, None, "at {}", self.name);
    }

    /// Its monitor (QMP).
    fn monitor(&self) -> Monitor {
        let path = self.directory.join(format!("{}.qmp", self.name));
        let mut stream = None;
        until("a monitor", || {
            stream = UnixStream::connect(&path).ok();
            stream.is_some()
        });
        let mut monitor = Monitor(BufReader::new(stream.expect("a monitor")));
        monitor.0.read_line(&mut String::new()).expect("a greeting");
        monitor.ask("qmp_capabilities", json!({}));
        monitor
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails only when it is dead
        let _ = self.child.wait();
    }
}

/// The monitor of a machine.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let ask = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{ask}").expect("it lives");
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("it answers");
            let mut answer: Value = serde_json::from_str(&line).expect("JSON");
            assert!(answer.get("error").is_none(), "{command}: {line}");
            if let Some(result) = answer.get_mut("return") {
                return result.take();
            }
        }
    }

    /// The state of a migration.
    fn migration(&mut self) -> Value {
        let answer = self.ask("query-migrate", json!({}));
        assert_ne!(answer["status"], "failed", "{answer}");
        answer
    }

    /// How often it has looked which pages were written.
    fn round(&mut self) -> u64 {
        let answer = self.migration();
        answer["ram"]["dirty-sync-count"].as_u64().unwrap_or(0)
    }

    fn reaches_round(&mut self, round: u64) {
        until("a round of the migration", || self.round() >= round);
    }
}

/// Tells both machines to stop, from a port of its own: each then sends how many it has sent.
fn stop(socket: &Path, addresses: [u8; 2]) {
    let mut guest = Guest::connect(socket, PLAIN);
    for to in addresses {
        let mut bytes = [mac(to), mac(99)].concat();
        bytes.extend([0x88, 0xb6]);
        bytes.resize(60, 0);
        until("room", || guest.send(&bytes));
    }
    until("all taken", || guest.room() == usize::from(common::SIZE));
}

#[test]
fn machines_get_nothing_twice_when_the_switch_is_killed() {
    kill_switch("qemu", "");
}

#[test]
fn nor_with_two_threads() {
    kill_switch("qemu-2", "threads = 2");
}

/// How often the switch is killed.
const KILLS: usize = 5;

/// One machine is connected in each mode. QEMU drops what guests send while there is no switch.
fn kill_switch(name: &str, switch: &str) {
    let ports = [("a", ""), ("b", "listen = false"), ("tell", "")];
    let mut process = Process::start(name, switch, &ports);
    let directory = process.directory.clone();
    let a = Machine::start(&directory, "a", Mode::Client, "1 2", &[]);
    let b = Machine::start(&directory, "b", Mode::Server, "2 1", &[]);
    for _ in 0..KILLS {
        a.receives(2000);
        b.receives(2000);
        process.kill(|| ());
    }
    a.receives(2000);
    stop(&process.socket("tell"), [1, 2]);
    for machine in [&a, &b] {
        let (came, missing) = machine.done();
        assert!(came - missing >= 10_000, "{came}, {missing} missing");
        // Those of the time until the sender is connected again, and until the receiver is.
        let gaps = machine.gaps();
        assert!(gaps <= 2 * KILLS, "{gaps} gaps, {missing} missing");
    }
    // Nothing comes twice afterwards.
    thread::sleep(Duration::from_millis(200));
    a.is_right();
    b.is_right();
}

#[test]
fn machines_that_are_killed_leave_others_alone_and_their_ports_free() {
    let names = ["a", "b", "c", "d"];
    let bench = Bench::new("", &names.map(|name| (name, "")));
    let others = Others::begin(["a", "b"].map(|port| bench.guest(port, PLAIN)));
    let ends = |machine: Machine, port: u16| {
        machine.is_right();
        drop(machine);
        until("a free port", || {
            bench.ask(move |worker| {
                let bay = worker.engine.bay_mut(port).expect("a port");
                assert_eq!(bay.closed, None);
                !bay.port.is_up()
            })
        });
    };
    for _ in 0..3 {
        let c = Machine::start(&bench.directory, "c", Mode::Client, "3 4", &[]);
        let d = Machine::start(&bench.directory, "d", Mode::Client, "4 3", &[]);
        c.receives(2000);
        ends(c, 2);
        ends(d, 3);
    }
    let c = Machine::start(&bench.directory, "c", Mode::Client, "3 4 5000", &[]);
    let d = Machine::start(&bench.directory, "d", Mode::Client, "4 3 5000", &[]);
    assert_eq!([c.done(), d.done()], [(5000, 0); 2]);
    others.end();
    let dropped = [0, 1].map(|port| bench.drops(port, Reason::NoReceiver));
    assert_eq!(dropped, [0, 0]);
}

#[test]
fn machines_send_and_receive_by_two_pairs_of_queues() {
    let bench = Bench::new("", &[("a", "queues = 2"), ("b", "queues = 2")]);
    let a = Machine::start(&bench.directory, "a", Mode::Client, "1 2 20000 0 2", &[]);
    let b = Machine::start(&bench.directory, "b", Mode::Client, "2 1 20000 0 2", &[]);
    // Each pair's frames come by the peer's pair of that number, all of them and in order.
    assert_eq!([a.done(), b.done()], [(20_000, 0); 2]);
    // What one has called before the other was there.
    let early: u64 = [0, 1]
        .map(|port| bench.drops(port, Reason::NoReceiver))
        .iter()
        .sum();
    assert_eq!(bench.dropped(), early);
}

/// What is missing was dropped and counted: frames for a machine that has left one port and has not
/// been heard at the other one.
#[test]
fn a_machine_migrates_while_frames_flow() {
    let bench = Bench::new("", &[("a", ""), ("b", ""), ("c", ""), ("tell", "")]);
    let a = Machine::start(&bench.directory, "a", Mode::Client, "1 2", &[]);
    let source = Machine::start(&bench.directory, "b", Mode::Client, "2 1 0 1", &[]);
    a.receives(2000);
    source.receives(2000);
    let dropped = bench.dropped();
    let to = format!("unix:{}", bench.directory.join("migration").display());
    let target = Machine::start(
        &bench.directory,
        "c",
        Mode::Client,
        "2 1 0 1",
        &["-incoming", &to],
    );
    drop(target.monitor()); // it is ready
    let mut monitor = source.monitor();
    // Its guest writes more than may be left for the end, so that it does not end by itself.
    let slow = json!({ "max-bandwidth": 1_000_000, "downtime-limit": 1 });
    monitor.ask("migrate-set-parameters", slow);
    monitor.ask("migrate", json!({ "uri": to }));
    monitor.reaches_round(3);
    // Between the last two rounds the guest writes all of its pages again (see `machine.c`).
    let slower = json!({ "max-bandwidth": 100_000 });
    monitor.ask("migrate-set-parameters", slower);
    until("frames within a round", || {
        let round = monitor.round();
        source.receives(1000);
        monitor.round() == round
    });
    let fast = json!({ "max-bandwidth": 1_000_000_000, "downtime-limit": 20_000 });
    monitor.ask("migrate-set-parameters", fast);
    until("the end of the migration", || {
        monitor.migration()["status"] == "completed"
    });
    drop(source);
    target.receives(2000);
    a.receives(2000);
    stop(&bench.directory.join("tell.sock"), [1, 2]);
    let ([came_a, missing_a], [came_b, missing_b]) = (a.done().into(), target.done().into());
    assert!(
        came_a >= 4000 && came_b >= 6000,
        "{came_a} and {came_b} came"
    );
    assert_eq!(missing_a + missing_b, bench.dropped() - dropped);
}
