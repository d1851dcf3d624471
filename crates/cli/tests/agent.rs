//! The life of an agent, as a user sees it. Needs root.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::{net::UnixDatagram, process::CommandExt},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use site::{Agent, PATIENCE, Site, common::ip, text};
use sluicegate_agent::{
    bpffs, interfaces, state,
    tcx::{Direction, TcxLink},
};

use crate::site;

#[test]
fn an_agent_follows_interfaces_and_leaves_nothing_when_stopped() {
    let site = Site::new();
    let agent = site.agent();
    let h = site.host.name("h");
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    assert!(site.attached("bridge").is_empty());

    let a = site.host.name("a");
    ip(&[
        "-n", &h, "link", "add", "tc", "type", "veth", "peer", "name", "peer", "netns", &a,
    ]);
    assert!(agent.wait_for("attached").contains("tc"));
    assert_eq!(site.attached("tc"), ["from_tenant"]);
    ip(&["-n", &h, "link", "set", "tc", "name", "other"]);
    assert!(agent.wait_for("detached").contains("tc"));
    assert!(site.attached("other").is_empty());
    ip(&["-n", &h, "link", "del", "tb"]);
    assert!(agent.wait_for("detached").contains("tb"));

    let held = site.pinned();
    assert_eq!(held.links.len(), 2);
    assert_eq!(agent.stop(), Some(0));
    assert!(held.remaining(PATIENCE).is_empty());
    assert!(!site.pins().exist());
    assert!(site.attached("ta").is_empty());
}

#[test]
fn a_killed_agent_leaves_enforcement_running_and_the_next_takes_it_over() {
    let site = Site::new();
    site.agent().kill();
    let held = site.pinned();
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    let (client, _server) = site.host.transfer(1_000_000);

    let output = site.flows(&["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let local = client.local_addr().unwrap().to_string();
    let flows = document["flows"].as_array().unwrap();
    let flow = flows
        .iter()
        .find(|flow| flow["local"] == local.as_str())
        .unwrap();
    assert_eq!(
        (&flow["rule_mode"], &flow["interface"]),
        (&"enforce".into(), &"ta".into())
    );
    assert!(flow["cwnd_bytes"].as_u64().unwrap() > 0);
    assert!(document["counters"]["packets"].as_u64().unwrap() > 0);

    let next = Agent::start(site.agent_command("policy.toml"));
    next.wait_for("took over from an earlier agent");
    next.wait_for("enforcing; stop");
    assert_eq!(site.pinned().links, held.links);
    let shown = text(&site.flows(&[]).stdout);
    assert!(shown.contains(&local) && shown.contains("dctcp"), "{shown}");
    assert_eq!(next.stop(), Some(0));
    assert!(held.remaining(PATIENCE).is_empty());
}

#[test]
fn interfaces_that_vanished_meanwhile_are_not_taken_over() {
    let site = Site::new();
    site.agent().kill();
    assert_eq!(site.pins().interfaces().len(), 2);
    ip(&["-n", &site.host.name("h"), "link", "del", "tb"]);
    let next = site.agent();
    assert_eq!(site.pins().interfaces().len(), 1);
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    assert_eq!(next.stop(), Some(0));
}

#[test]
fn a_wildcard_does_not_reach_what_is_no_tenants_interface() {
    let site = Site::new();
    let h = site.host.name("h");
    let policy = site.directory.join("policy.toml").display().to_string();
    let arguments = [
        "agent",
        "--policy",
        &policy,
        "--interface",
        "*",
        "--netns",
        &h,
    ];
    let agent = Agent::start(site.command(&arguments));
    assert!(
        agent
            .wait_for("not attached: a bridge")
            .contains("interface=\"bridge\"")
    );
    agent.wait_for("enforcing; stop");
    assert!(site.attached("bridge").is_empty() && site.attached("lo").is_empty());
    assert_eq!(site.attached("ta"), ["from_tenant"]);
}

#[test]
fn without_rights_the_agent_says_what_it_lacks() {
    let site = Site::new();
    let command = site.agent_command("policy.toml");
    // The program itself stays readable; only what it may do is taken away.
    let setpriv = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all"])
        .arg(command.get_program())
        .args(command.get_args())
        .output()
        .unwrap();
    assert_eq!(setpriv.status.code(), Some(1));
    let said = text(&setpriv.stderr);
    assert!(said.contains("missing capabilities: net_admin"), "{said}");
}

/// `command`, with no other rights than those that the packaged unit has.
fn confined(command: &Command) -> Command {
    let mut confined = Command::new("setpriv");
    confined
        .args([
            "--bounding-set=-all,+net_admin,+bpf,+perfmon",
            "--inh-caps=-all",
            "--no-new-privs",
        ])
        .arg(command.get_program())
        .args(command.get_args());
    confined
}

#[test]
fn three_capabilities_are_enough_to_enforce_and_to_show_it() {
    let site = Site::new();
    let policy = site.directory.join("policy.toml").display().to_string();
    let arguments = ["agent", "--persist", "-i", "t?", "--policy", &policy];
    // Started inside the namespace: to enter another takes more.
    let agent = site
        .host
        .within("h", || Agent::start(confined(&site.command(&arguments))));
    agent.wait_for("enforcing; stop");
    let (client, _server) = site.host.transfer(1_000_000);
    let flows = site.host.within("h", || {
        confined(&site.command(&["flows", "--json"]))
            .output()
            .unwrap()
    });
    assert!(flows.status.success(), "{}", text(&flows.stderr));
    let document: Value = serde_json::from_slice(&flows.stdout).unwrap();
    let local = client.local_addr().unwrap().to_string();
    let flow = document["flows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|flow| flow["local"] == local.as_str())
        .unwrap();
    assert_eq!(
        (&flow["mode"], &flow["enforced"]),
        (&"two-sided".into(), &true.into())
    );
    assert!(flow["acked_bytes"].as_u64().unwrap() > 0);

    let doctor = confined(&{
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["doctor", "--interface", "lo"]);
        command
    });
    let doctor = { doctor }.output().unwrap();
    assert!(doctor.status.success(), "{}", text(&doctor.stdout));

    // To show that nothing is left takes more, and it says so before it touches anything.
    let detach = confined(&site.command(&["detach", "--all"])).output();
    let detach = detach.unwrap();
    assert_eq!(detach.status.code(), Some(1));
    let said = text(&detach.stderr);
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    assert_eq!(site.attached("ta"), ["from_tenant"]);
}

#[test]
fn an_agent_that_persists_can_be_restarted_under_a_connection() {
    let site = Site::new();
    let persistent = || {
        let mut command = site.agent_command("policy.toml");
        command.arg("--persist");
        let agent = Agent::start(command);
        agent.wait_for("enforcing; stop");
        agent
    };
    let agent = persistent();
    let (mut client, mut server) = site.host.transfer(100_000);
    let held = site.pinned();
    assert_eq!(agent.stop(), Some(0));
    assert_eq!(site.pinned(), held);
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    exchange(&mut client, &mut server);

    let next = persistent();
    exchange(&mut client, &mut server);
    let document: Value = serde_json::from_slice(&site.flows(&["--json"]).stdout).unwrap();
    let local = client.local_addr().unwrap().to_string();
    let flows = document["flows"].as_array().unwrap();
    let flow = flows.iter().find(|flow| flow["local"] == local.as_str());
    // One flow, seen from its handshake on.
    assert_eq!(flow.unwrap()["mode"], "two-sided");
    assert_eq!(site.pinned().links, held.links);
    next.signal("-INT");
    next.wait_for("enforcement goes on");
    assert!(site.pins().exist());
}

/// A few bytes over a connection that is open.
fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    let mut received = [0; 5];
    client.write_all(b"still").unwrap();
    server.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"still");
}

#[test]
fn a_service_manager_hears_when_enforcement_has_begun_and_that_the_agent_lives() {
    let site = Site::new();
    let path = site.directory.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = |wanted: &str| {
        let mut datagram = [0; 512];
        loop {
            let length = manager.recv(&mut datagram).expect(wanted);
            let said = text(&datagram[..length]);
            if said.lines().any(|line| line == wanted) {
                return said;
            }
        }
    };
    let mut command = site.agent_command("policy.toml");
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000");
    let agent = Agent::start(command);
    assert!(hears("READY=1").contains("STATUS=2 interfaces"));
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    // The second one follows without any news of interfaces.
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    assert_eq!(agent.stop(), Some(0));
    hears("STOPPING=1");
}

#[test]
fn a_namespace_has_one_agent() {
    let site = Site::new();
    let _agent = site.agent();
    let output = site.agent_command("policy.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("another agent already enforces"), "{said}");
}

#[test]
fn a_bad_policy_is_refused_and_what_runs_goes_on() {
    let site = Site::new();
    site.agent().kill();
    let before = site.pinned();
    site.write_policy("bad.toml", "[[rule]]\nalgorithm = \"speed\"\n");
    let output = site.agent_command("bad.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("bad.toml:2") && said.contains("algorithm"),
        "{said}"
    );
    assert_eq!(site.pinned(), before);
}

#[test]
fn detaching_all_removes_what_a_killed_agent_left() {
    let site = Site::new();
    site.agent().kill();
    let held = site.pinned();
    let output = site
        .command(&["detach", "--all", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["netns"], serde_json::json!([site.host.name("h")]));
    assert_eq!(report["removed"]["links"].as_array().unwrap().len(), 4);
    assert_eq!(report["remaining"]["maps"], serde_json::json!([]));
    assert!(held.remaining(PATIENCE).is_empty());
    assert!(!bpffs::product_root(Path::new(&site.bpffs())).exists());
    let again = site.command(&["detach", "--all"]).output().unwrap();
    assert!(text(&again.stdout).contains("nothing was pinned"));
}

#[test]
fn detaching_under_a_running_agent_names_it() {
    let site = Site::new();
    let agent = site.agent();
    let output = site.command(&["detach", "--all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains(&format!("process {}", agent.child.id())),
        "{said}"
    );
    let warned = text(&output.stderr);
    assert!(
        warned.contains(&format!(
            "stop it first (systemctl stop sluicegate, or kill {})",
            agent.child.id()
        )),
        "{warned}"
    );
    // The agent puts it back: on both interfaces, with pins that outlive it.
    agent.wait_for("pinned again");
    for _ in 0..2 {
        agent.wait_for("another process has detached it");
    }
    for _ in 0..2 {
        agent.wait_for("INFO attached");
    }
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    site.host.transfer(10_000);
    assert!(!site.flow_records().is_empty());
    agent.kill();
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    site.agent().stop();
}

#[test]
fn a_link_that_somebody_detached_is_made_again() {
    let site = Site::new();
    let agent = site.agent();
    let index = site
        .host
        .within("h", || interfaces::find("ta").unwrap().index);
    let pin = site.pins().link(index, Direction::Egress);
    TcxLink::open(&pin).unwrap().detach().unwrap();
    let line = agent.wait_for("another process has detached it");
    assert!(line.contains("ta"), "{line}");
    agent.wait_for("INFO attached");
    let link = TcxLink::open(&pin).unwrap();
    assert_eq!(link.ifindex().unwrap(), Some(index));
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn a_pin_that_cannot_be_opened_does_not_keep_others_attached() {
    let site = Site::new();
    site.agent().kill();
    let held = site.pinned();
    // A map where a link should be.
    let stray = site.pins().root().join("links/0-ingress");
    fs::rename(site.pins().map("places"), stray).unwrap();
    let output = site.command(&["detach", "--all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("failed: detaching") && said.contains("no link is pinned there"),
        "{said}"
    );
    assert!(held.remaining(PATIENCE).is_empty());
    assert!(!site.pins().root().exists());
}

#[test]
fn the_doctor_repeats_what_agents_have_found_out() {
    let site = Site::new();
    let agent = site.agent();
    let mut state = site.state();
    state.notes = vec!["no CE seen: a test".to_owned()];
    state::write(Path::new(&site.run_dir()), &state).unwrap();
    let doctor = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command
            .args(["doctor", "--run-dir", &site.run_dir()])
            .args(more);
        text(&command.output().unwrap().stdout)
    };
    assert!(doctor(&[]).contains("note: no CE seen: a test"));
    let json: Value = serde_json::from_str(&doctor(&["--json"])).unwrap();
    assert_eq!(
        json["agents"][&site.host.name("h")][0],
        "no CE seen: a test"
    );
    agent.kill();
    assert!(!doctor(&[]).contains("no CE seen"));
}

#[test]
fn flows_of_an_unenforced_namespace_say_so() {
    let site = Site::new();
    let output = site.flows(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("nothing is enforced in network namespace"),
        "{said}"
    );
}

#[test]
fn the_doctor_finds_root_able_and_nobody_unable() {
    let binary = env!("CARGO_BIN_EXE_sluicegate");
    let root = Command::new(binary)
        .args(["doctor", "--json", "-i", "lo"])
        .output()
        .unwrap();
    assert!(root.status.success(), "{}", text(&root.stdout));
    let report: Value = serde_json::from_slice(&root.stdout).unwrap();
    assert_eq!(report["can_enforce"], true);
    assert_eq!(report["interfaces"][0]["name"], "lo");

    // A copy that any user may run, wherever the build directory is.
    let copy = std::env::temp_dir().join(format!("sga-{}-doctor", std::process::id()));
    fs::copy(binary, &copy).unwrap();
    let nobody = Command::new(&copy)
        .arg("doctor")
        .uid(65_534)
        .gid(65_534)
        .output();
    fs::remove_file(&copy).unwrap();
    let nobody = nobody.unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    let said = text(&nobody.stdout);
    assert!(said.contains("missing capabilities: net_admin"), "{said}");
    assert!(said.contains("run as root"), "{said}");
    assert!(!text(&nobody.stderr).contains("panicked"));
}

/// The text of a scrape of `address`.
fn scrape(address: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a series; 0 if there is none.
fn value(metrics: &str, series: &str) -> f64 {
    let mut lines = metrics.lines();
    let rest = lines.find_map(|line| line.strip_prefix(series));
    rest.map_or(0.0, |rest| rest.trim().parse().unwrap())
}

#[test]
fn an_agent_serves_metrics_and_logs_in_json() {
    let site = Site::new();
    let mut command = site.agent_command("policy.toml");
    command.args(["--metrics", "127.0.0.1:0", "--log-format", "json"]);
    let agent = Agent::start(command);
    let parsed = |line: String| serde_json::from_str::<Value>(&line).unwrap();
    let attached = parsed(agent.wait_for("attached"));
    assert_eq!(
        (&attached["level"], &attached["interface"]),
        (&"INFO".into(), &"ta".into())
    );
    let serving = parsed(agent.wait_for("serving metrics"));
    let address = serving["address"].as_str().unwrap();

    // Sums begin with the first look; what flows do after that is counted.
    assert_eq!(value(&scrape(address), "sluicegate_up "), 1.0);
    let (_client, _server) = site.host.transfer(1_000_000);
    let acked = "sluicegate_tenant_acked_bytes_total{tenant=\"ta\",interface=\"ta\",rule=\"1\"} ";
    let deadline = Instant::now() + PATIENCE;
    while value(&scrape(address), acked) < 1_000_000.0 {
        assert!(Instant::now() < deadline, "{}", scrape(address));
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(agent.stop(), Some(0));
}

#[test]
fn what_is_enforced_can_be_watched_without_an_agent() {
    let site = Site::new();
    site.agent().kill();
    let (_client, _server) = site.host.transfer(1_000_000);
    let netns = site.host.name("h");
    let run = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.args(["--netns", &netns]).output().unwrap()
    };

    let metrics = text(&run(&["metrics"]).stdout);
    assert_eq!(value(&metrics, "sluicegate_up "), 1.0, "{metrics}");
    assert!(value(&metrics, "sluicegate_packets_total ") > 0.0);
    assert!(!metrics.contains("sluicegate_tenant_"), "{metrics}");

    let top = run(&["top", "--once", "--json", "--interval", "0.1"]);
    let document: Value = serde_json::from_slice(&top.stdout).unwrap();
    assert_eq!(document["tenants"][0]["tenant"], "ta");
    assert_eq!(document["totals"]["flows"], 2);
    assert!(document["flows"][0]["rates"]["acked_bps"].is_number());

    let tables = text(&run(&["top", "--batch", "2", "--interval", "0.1"]).stdout);
    assert_eq!(tables.matches("2 of 2 flows").count(), 2, "{tables}");
    let refused = run(&["top"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--batch"));
}

#[test]
fn flows_are_filtered_sorted_and_limited() {
    let site = Site::new();
    site.agent().kill();
    let (client, server) = site.host.transfer(1_000_000);
    let locals = |more: &[&str]| {
        let output = site.flows(&[&["--json"], more].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let flows = document["flows"].as_array().unwrap().clone();
        let locals = flows.iter().map(|flow| flow["local"].as_str().unwrap());
        locals.map(str::to_owned).collect::<Vec<_>>()
    };
    let client = client.local_addr().unwrap().to_string();
    let server = server.local_addr().unwrap().to_string();
    assert_eq!(locals(&["--sort", "acked"]), [&*client, &*server]);
    assert_eq!(
        locals(&["--sort", "acked", "--reverse"]),
        [&*server, &*client]
    );
    assert_eq!(locals(&["--sort", "acked", "--limit", "1"]), [&*client]);
    assert_eq!(locals(&["--interface", "tb"]), [&*server]);
    assert_eq!(locals(&["--filter", "acked>=1000 !tb"]), [&*client]);
    let wrong = site.flows(&["--filter", "speed>1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("no column `speed`"));
}
