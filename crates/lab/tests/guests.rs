//! Guests for real: User-Mode Linux on a TAP against a tenant in a namespace. Needs root and
//! Debian's package user-mode-linux; without the package each test says so and counts as ignored.

mod support;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::fd::{AsFd, BorrowedFd},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use sluicegate_lab::{
    guest::{self, Attachment, Port},
    tenant::{Report, TenantProcess, maybe_run_tenant, plans, spawn},
};
use sluicegate_scenario::experiment::{GuestKernel, TrafficKind};
use support::{PATIENCE, ip, run_all, traffic, variant, verified};

/// Argument of the process that `guests_die_with_the_lab` kills.
const HOLD: &str = "hold-a-guest";

fn main() {
    maybe_run_tenant();
    if std::env::args().nth(1).as_deref() == Some(HOLD) {
        return hold_a_guest();
    }
    let missing = guest::check(GuestKernel::Packaged).err();
    if let Some(error) = &missing {
        eprintln!("{error:#}");
    }
    let tests: [(&str, fn()); 5] = [
        (
            "guests_speak_dctcp_with_the_real_module",
            guests_speak_dctcp_with_the_real_module,
        ),
        ("guest_receives_and_answers", guest_receives_and_answers),
        ("missing_module_is_an_error", missing_module_is_an_error),
        ("missing_tap_is_an_error", missing_tap_is_an_error),
        ("guests_die_with_the_lab", guests_die_with_the_lab),
    ];
    let trials = tests.map(|(name, test)| {
        let run = move || {
            test();
            Ok::<(), Failed>(())
        };
        Trial::test(name, run).with_ignored_flag(missing.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}

/// A namespace with a bridge (tenant a, when it is a namespace) and two TAPs (a and b, when they
/// are guests).
struct Host {
    name: String,
    file: File,
}

impl Host {
    fn new(label: &str) -> Self {
        let name = format!("sgt-{}-{label}", std::process::id());
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        ip(&["-n", &name, "link", "add", "br0", "up", "type", "bridge"]);
        for tap in ["tap0", "tap1"] {
            ip(&["-n", &name, "tuntap", "add", "dev", tap, "mode", "tap"]);
            ip(&[
                "-n",
                &name,
                "link",
                "set",
                tap,
                "up",
                "master",
                "br0",
                "txqueuelen",
                "5000",
            ]);
        }
        let file = File::open(format!("/run/netns/{name}")).expect("namespace");
        Self { name, file }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
    }
}

/// Of tenant a (0) or b (1).
fn attachment(tap: &str, tenant: u8, offloads: bool) -> Attachment {
    let number = tenant + 1;
    let commands =
        format!("link set lo up\naddress add 10.9.0.{number}/24 dev eth0\nlink set eth0 up\n");
    Attachment {
        port: Port::Tap(tap.into()),
        mac: format!("02:73:67:00:00:0{number}"),
        commands,
        offloads,
        kernel: GuestKernel::Packaged.into(),
    }
}

fn assert_clean(reports: &[Report]) {
    for report in reports {
        assert_eq!(
            report.errors,
            Vec::<String>::new(),
            "tenant {}",
            report.tenant
        );
    }
}

/// DCTCP at both ends: the real module falls back to Reno towards a peer that is none.
fn guests_speak_dctcp_with_the_real_module() {
    let host = Host::new("dctcp");
    let bulk = traffic(TrafficKind::Bulk { rate_bps: None }, &[(1, 0)], 5000);
    let plans = verified(plans(&variant("dctcp", vec![bulk]), 7).expect("plans"));
    let guest = |end: u8| {
        let attachment = attachment(&format!("tap{end}"), end, false);
        guest::spawn(&plans[usize::from(end)], host.fd(), &attachment).expect("guest")
    };
    let reports = run_all(vec![guest(0), guest(1)]);
    assert_clean(&reports);
    let (a, b) = (&reports[0], &reports[1]);
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    assert_ne!(b.kernel, own.trim());
    assert_eq!(b.senders[0].congestion_control, "dctcp");
    assert!(b.senders[0].ecn, "DCTCP negotiates ECN by itself");
    assert!(
        a.receivers[0].measured_bytes > 0,
        "{}",
        a.receivers[0].measured_bytes
    );
    assert_eq!(a.receivers[0].verified_bytes, a.receivers[0].total_bytes);
    assert!(b.clock_offset_ns.is_some());
}

fn guest_receives_and_answers() {
    let host = Host::new("vegas");
    ip(&[
        "-n",
        &host.name,
        "address",
        "add",
        "10.9.0.1/24",
        "dev",
        "br0",
    ]);
    let bulk = traffic(
        TrafficKind::Bulk {
            rate_bps: Some(50_000_000),
        },
        &[(0, 1)],
        5000,
    );
    let probe = TrafficKind::PingPong {
        bytes: 64,
        interval: Duration::from_millis(1),
    };
    let mice = TrafficKind::Messages {
        bytes: 16_384,
        interval: Duration::from_millis(10),
        class: "mice".into(),
    };
    let kinds = vec![
        bulk,
        traffic(probe, &[(1, 0)], 5100),
        traffic(mice, &[(0, 1)], 5200),
    ];
    let mut variant = variant("cubic", kinds);
    variant.tenants[1].congestion_control = "vegas".into();
    let plans = verified(plans(&variant, 7).expect("plans"));
    let a = spawn(&plans[0], host.fd()).expect("spawn");
    let b = guest::spawn(&plans[1], host.fd(), &attachment("tap1", 1, true)).expect("guest");
    let reports = run_all(vec![a, b]);
    assert_clean(&reports);
    let b = &reports[1];
    assert!(
        b.receivers[0].measured_bytes > 0,
        "{}",
        b.receivers[0].measured_bytes
    );
    assert_eq!(b.receivers[0].verified_bytes, b.receivers[0].total_bytes);
    assert!(
        b.rtts[0].samples_us.len() > 1,
        "{}",
        b.rtts[0].samples_us.len()
    );
    assert!(
        b.completions[0].samples_us.len() > 1,
        "{}",
        b.completions[0].samples_us.len()
    );
}

/// The error with which a guest in this namespace dies.
fn failure(host: &Host, congestion_control: &str, tap: &str) -> String {
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(1, 0)],
        5000,
    )];
    let plans = plans(&variant(congestion_control, kinds), 7).expect("plans");
    let mut guest = guest::spawn(&plans[1], host.fd(), &attachment(tap, 1, false)).expect("guest");
    guest.wait_ready(PATIENCE).unwrap_err().to_string()
}

fn missing_module_is_an_error() {
    let error = failure(&Host::new("module"), "nosuchcc", "tap0");
    assert!(
        error.contains("tenant b") && error.contains("tcp_nosuchcc.ko"),
        "{error}"
    );
}

fn missing_tap_is_an_error() {
    let error = failure(&Host::new("tap"), "cubic", "tap7");
    assert!(error.contains("tap7"), "{error}");
}

/// Boots a guest, says the name of its namespace, and waits to be killed.
fn hold_a_guest() {
    let host = Host::new("hold");
    let kinds = vec![traffic(
        TrafficKind::Bulk { rate_bps: None },
        &[(1, 0)],
        5000,
    )];
    let plans = plans(&variant("cubic", kinds), 7).expect("plans");
    let mut guest: TenantProcess =
        guest::spawn(&plans[1], host.fd(), &attachment("tap0", 1, false)).expect("guest");
    guest.wait_ready(PATIENCE).expect("ready");
    println!("{} {}", host.name, guest.pid());
    std::thread::sleep(PATIENCE);
}

fn guests_die_with_the_lab() {
    let executable = std::env::current_exe().expect("executable");
    let mut lab = Command::new(executable)
        .arg(HOLD)
        .stdout(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut line = String::new();
    BufReader::new(lab.stdout.take().expect("stdout"))
        .read_line(&mut line)
        .expect("a line");
    let (namespace, keeper) = line.trim().split_once(' ').expect("two words");
    let directory = format!("/run/sluicegate/guests/{keeper}");
    assert!(processes_naming(&directory) > 0, "the guest runs");
    lab.kill().expect("kill"); // SIGKILL: no handler helps
    lab.wait().expect("wait");
    let deadline = Instant::now() + PATIENCE;
    while processes_naming(&directory) > 0 || fs::exists(&directory).unwrap_or(true) {
        assert!(Instant::now() < deadline, "the guest outlived the lab");
        std::thread::sleep(Duration::from_millis(5));
    }
    ip(&["netns", "delete", namespace]);
}

/// Processes with this text in their command line: all of a UML guest's have its `uml_dir`.
fn processes_naming(text: &str) -> usize {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}
