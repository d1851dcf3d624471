//! The lab world for real: networks are built, run, measured, and nothing is left. Needs root.
//!
//! The test binary runs itself again as a tenant, so it has a main of its own instead of libtest's.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fs::{FlockOperation, flock};
use sluicegate_lab::{Lab, tenant::maybe_run_tenant};
use sluicegate_scenario::{
    experiment::Experiment,
    file,
    results::LinkResult,
    world::{Observer, Outcome, Refused, World},
};

/// Argument of the process that `kill_9_then_clean` kills.
const RUN_LONG: &str = "run-a-long-lab";
/// How long to wait for another lab of this machine to end.
const PATIENCE: Duration = Duration::from_secs(300);

fn main() {
    maybe_run_tenant();
    if std::env::args().nth(1).as_deref() == Some(RUN_LONG) {
        return run_long();
    }
    let tests: [(&str, fn()); 21] = [
        ("a_run_leaves_nothing", a_run_leaves_nothing),
        ("two_hosts_fill_their_link", two_hosts_fill_their_link),
        ("ipv6_fills_the_link_too", ipv6_fills_the_link_too),
        (
            "drop_tail_drops_and_nothing_else_does",
            drop_tail_drops_and_nothing_else_does,
        ),
        (
            "a_marking_switch_marks_ecn_and_drops_the_rest",
            a_marking_switch_marks_ecn_and_drops_the_rest,
        ),
        (
            "enforcement_keeps_the_queue_short",
            enforcement_keeps_the_queue_short,
        ),
        (
            "enforcement_marks_and_nothing_is_dropped",
            enforcement_marks_and_nothing_is_dropped,
        ),
        (
            "hosts_can_be_detached_while_it_runs",
            hosts_can_be_detached_while_it_runs,
        ),
        ("bleaching_hides_marks", bleaching_hides_marks),
        ("red_marks_early", red_marks_early),
        (
            "switches_in_a_row_and_tenants_side_by_side",
            switches_in_a_row_and_tenants_side_by_side,
        ),
        (
            "guests_behind_the_userspace_switch_lose_nothing",
            guests_behind_the_userspace_switch_lose_nothing,
        ),
        (
            "a_panic_ends_the_userspace_switch",
            a_panic_ends_the_userspace_switch,
        ),
        (
            "guests_behind_open_vswitch_lose_nothing",
            guests_behind_open_vswitch_lose_nothing,
        ),
        (
            "guests_behind_open_vswitch_with_dpdk_lose_nothing",
            guests_behind_open_vswitch_with_dpdk_lose_nothing,
        ),
        ("a_panic_ends_open_vswitch", a_panic_ends_open_vswitch),
        ("cancelling_cleans_up", cancelling_cleans_up),
        ("a_panic_cleans_up", a_panic_cleans_up),
        ("kill_9_then_clean", kill_9_then_clean),
        ("a_second_lab_is_refused", a_second_lab_is_refused),
        (
            "what_it_cannot_build_is_refused_beforehand",
            what_it_cannot_build_is_refused_beforehand,
        ),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    });
    let mut arguments = Arguments::from_args();
    // There is one lab on a machine.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// Does what it is told while a run goes on.
#[derive(Default)]
struct Watcher {
    cancel_in: Option<&'static str>,
    panic_in: Option<&'static str>,
    announce: bool,
    phase: String,
    live_lines: usize,
}

impl Observer for Watcher {
    fn phase(&mut self, phase: &str) {
        self.phase = phase.to_owned();
        if self.announce {
            println!("{phase}");
        }
        if self.panic_in == Some(phase) {
            // Unlike panic!, this prints no message.
            resume_unwind(Box::new("as ordered"));
        }
    }
    fn progress(&mut self, done: Duration, total: Duration, live: &str) {
        assert!(done <= total && live.contains("queue"), "{live}");
        self.live_lines += 1;
    }
    fn note(&mut self, _: &str) {}
    fn cancelled(&self) -> bool {
        self.cancel_in == Some(self.phase.as_str())
    }
}

/// Hosts on one switch; every host but h1 sends to h1 in bulk, h2 probes; `more` may add tables.
fn star(hosts: usize, more: &str) -> Experiment {
    let senders: Vec<String> = (2..=hosts).map(|host| format!("'h{host}'")).collect();
    let text = format!(
        "seed = 1\nwarmup = '1s'\nduration = '2s'\n\
         [network]\ntopology = 'star'\nhosts = {hosts}\nrate = '100Mbit'\nmtu = 1500\nqueue = '150KB'\n\
         [traffic.bulk]\nkind = 'bulk'\nfrom = [{}]\nto = 'h1'\n\
         [traffic.probe]\nkind = 'ping-pong'\nfrom = 'h2'\nto = 'h1'\nbytes = '64B'\n{more}",
        senders.join(", ")
    );
    parse(&text)
}

fn two_hosts(more: &str) -> Experiment {
    star(2, more)
}

fn parse(text: &str) -> Experiment {
    file::parse(Path::new("test.toml"), text, &file::Options::default())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// Runs the first variant, waiting while another lab is going on.
fn try_run(experiment: &Experiment, watcher: &mut Watcher) -> anyhow::Result<Outcome> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut lab = Lab::new()?;
        lab.check(experiment)?;
        let result = lab.run(experiment, &experiment.variants[0], 1, watcher);
        match result {
            Err(error)
                if error.to_string().contains("another lab run") && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(500));
            }
            other => return other,
        }
    }
}

/// Two senders share the link to h1.
fn run(more: &str) -> Outcome {
    run_one(&star(3, more))
}

fn run_one(experiment: &Experiment) -> Outcome {
    let outcome = try_run(experiment, &mut Watcher::default());
    outcome.unwrap_or_else(|error| panic!("{error:#}"))
}

fn bottleneck(outcome: &Outcome) -> &LinkResult {
    outcome
        .result
        .links
        .iter()
        .find(|link| link.id.ends_with(">h1"))
        .expect("the link to h1")
}

/// Objects that a run could leave on this machine, listed while no other lab is going on.
fn traces() -> BTreeSet<String> {
    let deadline = Instant::now() + PATIENCE;
    while lab_is_busy() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    traces_now()
}

/// Whether a process holds the lab's lock.
fn lab_is_busy() -> bool {
    let Ok(file) = fs::File::open("/run/sluicegate/lab/lock") else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

fn traces_now() -> BTreeSet<String> {
    let list = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .map(|entry| format!("{path}/{}", entry.file_name().to_string_lossy()))
            .collect()
    };
    let mut traces = BTreeSet::new();
    let named = list("/run/netns").into_iter();
    traces.extend(named.filter(|name| name.contains("sgl-")));
    let files = list("/run/sluicegate/lab").into_iter();
    traces.extend(files.filter(|name| name.ends_with(".journal") || name.ends_with(".switches")));
    traces.extend(list("/sys/class/net"));
    let backlog = fs::read_to_string("/proc/sys/net/core/netdev_max_backlog");
    traces.insert(format!("backlog {}", backlog.unwrap_or_default().trim()));
    traces.extend(children_of(std::process::id()));
    // Daemons that a dead keeper has left belong to nobody.
    traces.extend(children_of(1).into_iter().filter(|it| is_open_vswitch(it)));
    traces
}

fn is_open_vswitch(process: &str) -> bool {
    let id = process.trim_start_matches("process ");
    let name = fs::read_to_string(format!("/proc/{id}/comm"));
    name.is_ok_and(|name| name.starts_with("ovs"))
}

/// Processes that `parent` started, but for zombies.
fn children_of(parent: u32) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_whitespace();
            let (state, its_parent) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
            (its_parent == parent && state != "Z")
                .then(|| format!("process {}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

fn outside_is_clean(outcome: &Outcome) {
    let outside = &outcome.conditions.outside;
    for counter in [
        "softnet_dropped",
        "interface_dropped",
        "tenant_errors",
        "tcp_retransmits",
        "tcp_reordering",
    ] {
        assert_eq!(
            outside.get(counter),
            Some(&0),
            "{outside:?} {:?}",
            outcome.conditions.notes
        );
    }
}

fn a_run_leaves_nothing() {
    let before = traces();
    let mut watcher = Watcher::default();
    try_run(&two_hosts(""), &mut watcher).expect("a run");
    assert!(watcher.live_lines >= 2, "{} live lines", watcher.live_lines);
    assert_eq!(traces(), before);
}

/// `payload_bytes` of each frame of 1514 on a link of 100 Mb/s. Its token bucket holds two frames;
/// each timer later than 240 us costs it time: .954 to .994 of the rate were seen on machines that
/// others used as well.
fn fills_its_link(outcome: &Outcome, payload_bytes: f64) {
    let goodput = outcome.result.goodput_bps.sum;
    let full = 100e6 * payload_bytes / 1514.0;
    assert!((0.92 * full..=96e6).contains(&goodput), "{goodput}");
    assert!(
        outcome.result.rtt_us.count > 10,
        "{:?}",
        outcome.result.rtt_us
    );
    let link = bottleneck(outcome);
    assert!(link.sent > 14_000, "{link:?}");
    // Two seconds of hosts and of the switch do not begin together: 1.000 to 1.013 were seen.
    let carried = goodput / 8.0 * 2.0 * 1514.0 / payload_bytes;
    let of_the_link = carried / link.sent_bytes as f64;
    assert!((0.96..=1.04).contains(&of_the_link), "{of_the_link}");
    for counter in ["softnet_dropped", "interface_dropped", "tenant_errors"] {
        assert_eq!(
            outcome.conditions.outside[counter], 0,
            "{:?}",
            outcome.conditions.notes
        );
    }
}

fn two_hosts_fill_their_link() {
    fills_its_link(&run_one(&two_hosts("")), 1448.0);
}

fn ipv6_fills_the_link_too() {
    let outcome = run_one(&two_hosts("[variant.v6]\nnetwork.ip = 6\n"));
    fills_its_link(&outcome, 1428.0);
}

fn drop_tail_drops_and_nothing_else_does() {
    let outcome = run("");
    let link = bottleneck(&outcome);
    assert!(link.drops["tail"] > 0, "{link:?}");
    assert_eq!(
        (link.drops["not_ect"], link.drops["red"], link.marks),
        (0, 0, 0)
    );
    assert!(
        link.queue_bytes.max.unwrap() <= 150_000.0 * 1.04,
        "{link:?}"
    );
    // Three CUBIC flows keep the queue from running empty, however late hosts are.
    assert!(link.queue_bytes.p50.unwrap() > 20_000.0, "{link:?}");
    let retransmits: Option<u64> = outcome
        .result
        .flows
        .iter()
        .map(|flow| flow.retransmits)
        .sum();
    assert!(retransmits > Some(0));
}

const MARKING: &str = "network.marking = { kind = 'threshold', k = '20KB', not_ect = 'drop' }\n";

fn a_marking_switch_marks_ecn_and_drops_the_rest() {
    let ecn = run(&format!(
        "[variant.ecn]\n{MARKING}tenant.'*' = {{ ecn = true }}\n"
    ));
    let link = bottleneck(&ecn);
    assert!(
        link.marks > 0 && link.drops.values().sum::<u64>() == 0,
        "{link:?}"
    );
    outside_is_clean(&ecn);
    let deaf = run(&format!("[variant.deaf]\n{MARKING}"));
    let link = bottleneck(&deaf);
    assert!(link.marks == 0 && link.drops["not_ect"] > 0, "{link:?}");
}

const ENFORCED: &str = "enforcement.hosts = 'all'\n\
    enforcement.policy.rule = [{ algorithm = 'dctcp', mode = 'enforce' }]\n";

/// Traffic that is limited, where unmarked packets above the threshold are dropped.
fn enforced() -> Outcome {
    run(&format!("[variant.enforced]\n{MARKING}{ENFORCED}"))
}

fn enforcement_keeps_the_queue_short() {
    let outcome = enforced();
    let link = bottleneck(&outcome);
    assert!(link.queue_bytes.p99.unwrap() < 75_000.0, "{link:?}");
}

fn enforcement_marks_and_nothing_is_dropped() {
    let outcome = enforced();
    let link = bottleneck(&outcome);
    assert!(
        link.marks > 0 && link.drops.values().sum::<u64>() == 0,
        "{link:?}"
    );
    outside_is_clean(&outcome);
    assert!(outcome.result.enforcement.values().sum::<u64>() > 0);
    let kinds = outcome
        .result
        .samples
        .series
        .iter()
        .map(|series| format!("{:?}", series.kind));
    let kinds: BTreeSet<String> = kinds.collect();
    for kind in [
        "GoodputBps",
        "QueueBytes",
        "EnforcedWindowBytes",
        "TenantCwndBytes",
        "Alpha",
    ] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}

fn hosts_can_be_detached_while_it_runs() {
    let event = "[[event]]\nat = '1s'\ndetach = ['h1', 'h2', 'h3']\n";
    let outcome = run(&format!("[variant.left-alone]\n{ENFORCED}{event}"));
    let notes = &outcome.conditions.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("detached from h1, h2, h3")),
        "{notes:?}"
    );
    // No window limits CUBIC any more.
    assert!(
        bottleneck(&outcome).drops["tail"] > 0,
        "{:?}",
        bottleneck(&outcome)
    );
}

fn bleaching_hides_marks() {
    let event = "[[event]]\nat = '0s'\nbleach_ecn = true\n";
    let ecn = "tenant.'*' = { ecn = true }\n";
    let outcome =
        run(&format!("[variant.bleached]\n{MARKING}{ecn}{event}").replace("'drop'", "'pass'"));
    // No sender learns of the marks, so the queue grows to its limit.
    let link = bottleneck(&outcome);
    assert!(link.drops["tail"] > 0, "{link:?}");
    let notes = &outcome.conditions.notes;
    assert!(
        notes.iter().any(|note| note.contains("clear ECN")),
        "{notes:?}"
    );
}

fn red_marks_early() {
    let red = "network.marking = { kind = 'red', min = '10KB', max = '60KB', p_max = 0.1, weight = 0.01 }\n";
    let ecn = run(&format!(
        "[variant.ecn]\n{red}tenant.'*' = {{ ecn = true }}\n"
    ));
    let link = bottleneck(&ecn);
    assert!(link.marks > 0 && link.drops["tail"] == 0, "{link:?}");
    let deaf = run(&format!("[variant.deaf]\n{red}"));
    let link = bottleneck(&deaf);
    assert!(link.marks == 0 && link.drops["red"] > 0, "{link:?}");
}

fn switches_in_a_row_and_tenants_side_by_side() {
    let experiment = parse(
        "seed = 1\nwarmup = '1s'\nduration = '2s'\n\
         tenant.'*' = { ecn = true }\n\
         [network]\ntopology = 'parking-lot'\nsenders = 3\nrate = '50Mbit'\nmtu = 1500\nqueue = '1MB'\n\
         tenants_per_host = 2\nmarking = { kind = 'threshold', k = '60KB' }\n\
         [traffic.bulk]\nkind = 'bulk'\nfrom = 's*'\nto = 'r1-1'\n",
    );
    let outcome = run_one(&experiment);
    let busy = outcome
        .result
        .flows
        .iter()
        .filter(|flow| flow.goodput_bps > 0.0);
    assert_eq!(busy.count(), outcome.result.flows.len());
    // All flows end at one host, so the last link carries everything and is full. Marks keep
    // every flow from losses, after which bytes would wait for others to be delivered. As
    // above, late timers cost link time.
    let sum = outcome.result.goodput_bps.sum;
    assert!((47.5e6 * 0.92..=50e6).contains(&sum), "{sum}");
    for counter in ["softnet_dropped", "interface_dropped", "tenant_errors"] {
        assert_eq!(
            outcome.conditions.outside[counter], 0,
            "{:?}",
            outcome.conditions.notes
        );
    }
}

fn cancelling_cleans_up() {
    let before = traces();
    let mut watcher = Watcher {
        cancel_in: Some("running"),
        ..Watcher::default()
    };
    let error = try_run(&two_hosts(""), &mut watcher).expect_err("cancelled");
    assert!(error.to_string().contains("stopped"), "{error:#}");
    assert_eq!(traces(), before);
}

fn a_panic_cleans_up() {
    let before = traces();
    let mut watcher = Watcher {
        panic_in: Some("running"),
        ..Watcher::default()
    };
    let experiment = two_hosts("");
    let result = catch_unwind(AssertUnwindSafe(|| try_run(&experiment, &mut watcher)));
    assert!(result.is_err());
    assert_eq!(traces(), before);
}

/// A child of this test that runs a lab for a minute, once its tenants send.
fn long_run() -> Child {
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .arg(RUN_LONG)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    assert!(
        lines.map_while(Result::ok).any(|line| line == "running"),
        "it never ran"
    );
    child
}

/// Two guests on one host, one of which also sends to another host. Traffic begins and ends within
/// measured time, so that points can be compared.
fn guests_behind_the_switch(switch: &str) -> Experiment {
    parse(&format!(
        "warmup = '500ms'\nduration = '2500ms'\n\
         [network]\ntopology = 'star'\nhosts = 2\ntenants_per_host = 2\nrate = '100Mbit'\n\
         [tenant.default]\nkind = 'guest'\n[lab]\nswitch = '{switch}'\n\
         [traffic.near]\nkind = 'datagrams'\nfrom = 'h1-1'\nto = 'h1-2'\nrate = '2Mbit'\nstart = '700ms'\nstop = '2s'\n\
         [traffic.far]\nkind = 'datagrams'\nfrom = 'h1-1'\nto = 'h2-1'\nrate = '1Mbit'\nstart = '700ms'\nstop = '2s'\n"
    ))
}

fn guests_behind_the_userspace_switch_lose_nothing() {
    guests_lose_nothing_behind("sluicegate");
}

fn guests_behind_open_vswitch_lose_nothing() {
    guests_lose_nothing_behind("ovs");
}

fn guests_behind_open_vswitch_with_dpdk_lose_nothing() {
    guests_lose_nothing_behind("ovs-dpdk");
}

fn guests_lose_nothing_behind(switch: &str) {
    let before = traces();
    let outcome = run_one(&guests_behind_the_switch(switch));
    let sent: Vec<u64> = (outcome.result.flows.iter())
        .map(|flow| {
            let counted = flow.datagrams.expect("datagrams");
            assert_eq!((counted.received, counted.lost), (counted.sent, 0));
            counted.sent
        })
        .collect();
    assert!(sent[0] > 150 && sent[1] > 75, "{sent:?}");
    let vnics = &outcome.result.vnics;
    let [sender, near, far, _] = &vnics[..] else {
        panic!("{vnics:?}")
    };
    let both = sent[0] + sent[1];
    assert_eq!((sender.sent, sender.into_switch), (both, both), "{vnics:?}");
    assert_eq!(
        (near.out_of_switch, near.received),
        (sent[0], sent[0]),
        "{vnics:?}"
    );
    assert_eq!(
        (far.out_of_switch, far.received),
        (sent[1], sent[1]),
        "{vnics:?}"
    );
    assert!(vnics.iter().all(|vnic| vnic.drops.is_empty()), "{vnics:?}");
    assert_eq!(traces(), before);
}

fn a_panic_ends_the_userspace_switch() {
    a_panic_ends("sluicegate");
}

fn a_panic_ends_open_vswitch() {
    a_panic_ends("ovs-dpdk");
}

fn a_panic_ends(switch: &str) {
    let before = traces();
    let mut watcher = Watcher {
        panic_in: Some("starting tenants"),
        ..Watcher::default()
    };
    let experiment = guests_behind_the_switch(switch);
    let ended = catch_unwind(AssertUnwindSafe(|| try_run(&experiment, &mut watcher)));
    assert!(ended.is_err());
    assert_eq!(traces(), before);
}

fn run_long() {
    let experiment = two_hosts("[variant.long]\nduration = '60s'\n");
    let mut watcher = Watcher {
        announce: true,
        ..Watcher::default()
    };
    try_run(&experiment, &mut watcher).expect("a run");
}

fn kill_9_then_clean() {
    let before = traces();
    let mut child = long_run();
    let tenants = children_of(child.id());
    assert_eq!(tenants.len(), 2, "{tenants:?}");
    child.kill().expect("kill");
    child.wait().expect("wait");
    let left = traces_now();
    assert!(left.difference(&before).count() >= 6, "{left:?}");
    let report = sluicegate_lab::clean().expect("clean");
    assert_eq!((report.runs, report.failed.len()), (1, 0), "{report:?}");
    assert_eq!(traces(), before);
    for tenant in tenants {
        let pid = tenant.strip_prefix("process ").expect("a process");
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(
            status.is_empty() || status.contains(") Z"),
            "tenant {status} lives"
        );
    }
    assert_eq!(sluicegate_lab::clean().expect("clean").runs, 0);
}

fn a_second_lab_is_refused() {
    let mut child = long_run();
    let experiment = two_hosts("");
    let mut lab = Lab::new().expect("a lab");
    let error = lab
        .run(
            &experiment,
            &experiment.variants[0],
            1,
            &mut Watcher::default(),
        )
        .expect_err("refused");
    let text = format!("{error:#}");
    let clean = sluicegate_lab::clean().expect_err("refused").to_string();
    child.kill().expect("kill");
    child.wait().expect("wait");
    for text in [text, clean] {
        assert!(
            text.contains("another lab run") && text.contains(&child.id().to_string()),
            "{text}"
        );
    }
    sluicegate_lab::clean().expect("clean");
}

fn what_it_cannot_build_is_refused_beforehand() {
    let mut experiment = two_hosts("");
    experiment.variants[0].links.truncate(1);
    let error = Lab::new()
        .expect("a lab")
        .check(&experiment)
        .expect_err("no path");
    let text = format!("{error:#}");
    assert!(
        error.is::<Refused>()
            && text.starts_with("test.toml:5:12: network.topology:")
            && text.contains("need a path"),
        "{text}"
    );
}
