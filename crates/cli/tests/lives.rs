//! Agents that are killed, started again and replaced by others of another layout, under traffic.
//! Needs root.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use site::{
    Agent, PATIENCE, Site,
    common::{ip, until_bridges_forward},
};
use sluicegate_agent::bpffs::{self, LAYOUT_VERSION};

use crate::site;

/// Connections that send all the time, and compare all that arrives.
struct Traffic {
    stop: Arc<AtomicBool>,
    received: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

/// The byte of a stream at this place: no two neighbouring segments are alike.
fn pattern(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Traffic {
    fn over(connections: Vec<(TcpStream, TcpStream)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut traffic = Self {
            stop: stop.clone(),
            received: Vec::new(),
            threads: Vec::new(),
        };
        for (client, server) in connections {
            let received = Arc::new(AtomicU64::new(0));
            traffic.received.push(received.clone());
            let stop = stop.clone();
            traffic
                .threads
                .push(thread::spawn(move || send(client, &stop)));
            traffic
                .threads
                .push(thread::spawn(move || receive(server, &received)));
        }
        traffic
    }

    /// Every connection gets on: more arrives on each than had.
    fn gets_on(&self) {
        let amounts = || -> Vec<u64> {
            let received = self.received.iter();
            received
                .map(|count| count.load(Ordering::Relaxed))
                .collect()
        };
        let before = amounts();
        let deadline = Instant::now() + PATIENCE;
        while amounts().iter().zip(&before).any(|(now, then)| now <= then) {
            assert!(Instant::now() < deadline, "a connection stands still");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it; everything sent has arrived as it was sent.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a connection broke, or bytes differ");
        }
    }
}

fn send(mut client: TcpStream, stop: &AtomicBool) {
    let mut place = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let chunk: Vec<u8> = (place..place + 8_192).map(pattern).collect();
        client.write_all(&chunk).expect("a sends");
        place += chunk.len() as u64;
        // Agents need the CPUs that it leaves.
        thread::sleep(Duration::from_millis(2));
    }
    client.shutdown(std::net::Shutdown::Write).expect("a ends");
    // The receiver closes once it has everything.
    assert_eq!(client.read(&mut [0]).expect("b ends"), 0);
}

fn receive(mut server: TcpStream, received: &AtomicU64) {
    let mut buffer = vec![0; 65_536];
    let mut place = 0u64;
    loop {
        let length = server.read(&mut buffer).expect("b receives");
        if length == 0 {
            return;
        }
        let expected = buffer[..length].iter().zip(place..);
        for (byte, at) in expected {
            assert_eq!(*byte, pattern(at), "byte {at}");
        }
        place += length as u64;
        received.store(place, Ordering::Relaxed);
    }
}

/// Connections over which nothing was sent that [`Traffic`] does not know of.
fn connections(site: &Site, count: usize) -> Vec<(TcpStream, TcpStream)> {
    (0..count).map(|_| site.host.transfer(0)).collect()
}

/// How many agents are killed one after another: `SG_KILLS`, a few if it says nothing.
fn kills() -> u32 {
    std::env::var("SG_KILLS").map_or(5, |text| text.parse().expect("SG_KILLS: not a number"))
}

#[test]
fn killed_agents_interrupt_nothing() {
    let site = Site::new();
    let mut agent = site.agent();
    let traffic = Traffic::over(connections(&site, 4));
    let flows = site.flow_records().len();
    assert_eq!(flows, 8, "each connection at both interfaces");
    for _ in 0..kills() {
        agent.kill();
        assert_eq!(site.attached("ta"), ["from_tenant"]);
        traffic.gets_on();
        agent = site.agent();
        traffic.gets_on();
    }
    // Flows of the first hour: each is still known from its handshake on.
    let known = site.flow_records();
    assert_eq!(known.len(), flows);
    for flow in &known {
        assert_eq!(
            (&flow["mode"], &flow["policed"]),
            (&"two-sided".into(), &0.into())
        );
    }
    traffic.end();
    assert_eq!(agent.stop(), Some(0));
}

/// [`site::POLICY`] with other treatment, another rule before it, and a bucket.
fn other_policy() -> String {
    let before = "[[rule]]\ndestination_port = 1\nmode = \"off\"\n";
    let bucket = "[[bucket]]\nclass = \"udp\"\nrate = \"1Gbit\"\n";
    let policy = site::POLICY.replacen("[[rule]]", &format!("{before}\n[[rule]]"), 1);
    policy.replace("dctcp", "cubic") + bucket
}

#[test]
fn agents_killed_while_they_start_interrupt_nothing() {
    let site = Site::new();
    site.write_policy("other.toml", &other_policy());
    site.agent().kill();
    let traffic = Traffic::over(connections(&site, 2));
    for step in 0..12 {
        let policy = ["policy.toml", "other.toml"][step / 2 % 2];
        let mut command = site.agent_command(policy);
        // Each start with another table than the one before: it has maps to put in place.
        command.args(["--flows-max", ["65536", "8192"][step % 2]]);
        let agent = Agent::start(command);
        thread::sleep(Duration::from_millis(30 * step as u64));
        agent.kill();
        traffic.gets_on();
    }
    let agent = site.agent();
    traffic.gets_on();
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    traffic.end();
    assert_eq!(agent.stop(), Some(0));
    assert!(!site.pins().exist());
}

#[test]
fn agents_killed_while_they_reload_or_attach_interrupt_nothing() {
    let site = Site::new();
    let h = site.host.name("h");
    let traffic = Traffic::over(connections(&site, 2));
    let other = other_policy();
    for step in 0..6 {
        let agent = site.agent();
        site.write_policy("policy.toml", [&other, site::POLICY][step % 2]);
        agent.signal("-HUP");
        // One more interface to attach, which the next agent finds in whatever state that was.
        let (name, peer) = (format!("t{step}"), format!("peer{step}"));
        ip(&[
            "-n",
            &h,
            "link",
            "add",
            &name,
            "type",
            "veth",
            "peer",
            "name",
            &peer,
            "netns",
            &site.host.name("b"),
        ]);
        thread::sleep(Duration::from_millis(4 * step as u64));
        agent.kill();
        traffic.gets_on();
    }
    let agent = site.agent();
    traffic.gets_on();
    for interface in ["ta", "tb", "t0", "t5"] {
        assert_eq!(site.attached(interface), ["from_tenant"], "{interface}");
    }
    let flows = site.flow_records();
    assert!(
        flows.iter().all(|flow| flow["rule_mode"] == "enforce"),
        "{flows:#?}"
    );
    traffic.end();
    assert_eq!(agent.stop(), Some(0));
    assert!(!site.pins().exist());
}

#[test]
fn agents_of_another_layout_are_replaced_and_nothing_is_interrupted() {
    let site = Site::new();
    site.agent().kill();
    let old = site.pinned();
    let traffic = Traffic::over(connections(&site, 2));
    // Pins as an agent of a build with another layout would have left them.
    let root = bpffs::product_root(Path::new(&site.bpffs()));
    for other in [LAYOUT_VERSION + 1, LAYOUT_VERSION - 1] {
        let theirs = root.join(format!("v{other}"));
        fs::create_dir_all(&theirs).unwrap();
        let ours = site.pins().root().to_owned();
        fs::rename(&ours, theirs.join(ours.file_name().unwrap())).unwrap();
        let agent = Agent::start(site.agent_command("policy.toml"));
        let line = agent.wait_for("took the place of an agent with another layout");
        assert!(line.contains(&format!("layout={other}")), "{line}");
        agent.wait_for("enforcing; stop");
        assert_eq!(site.attached("ta"), ["from_tenant"], "once, not twice");
        assert!(!theirs.exists());
        traffic.gets_on();
        agent.kill();
    }
    assert!(old.remaining(PATIENCE).is_empty());
    traffic.end();
    let report = site.command(&["detach", "--all"]).output().unwrap();
    assert!(report.status.success());
    assert!(!root.exists());
}

#[test]
fn a_cable_and_an_excluded_interface_are_left_out() {
    let site = Site::new();
    site.host.split_bridge();
    let h = site.host.name("h");
    ip(&["-n", &h, "link", "set", "wire-a", "name", "tx"]);
    let mut command = site.agent_command("policy.toml");
    command.args(["--exclude", "tb"]);
    let agent = Agent::start(command);
    agent.wait_for("both ends of this veth");
    agent.wait_for("enforcing; stop");
    assert_eq!(site.attached("ta"), ["from_tenant"]);
    assert!(site.attached("tb").is_empty() && site.attached("tx").is_empty());
    let left_out = site.state().left_out;
    assert!(left_out["tx"].contains("a cable"), "{left_out:?}");
    assert_eq!(agent.stop(), Some(0));
}

/// Network namespaces beside the site's own; gone when dropped.
struct More<'a>(&'a Site, [&'static str; 2]);

impl Drop for More<'_> {
    fn drop(&mut self) {
        for part in self.1 {
            let name = self.0.host.name(part);
            let _ = Command::new("ip").args(["netns", "del", &name]).status();
        }
    }
}

/// `ip` in the namespace of `part`.
fn ip_in(site: &Site, part: &str, arguments: &str) {
    let name = site.host.name(part);
    ip(&[&["-n", &name], &*arguments.split(' ').collect::<Vec<_>>()].concat());
}

/// b behind a bridge of its own, which is joined to that of a and of a third tenant c through
/// another namespace: tx and ty look like tenants' interfaces.
fn with_transit(site: &Site) -> More<'_> {
    let more = More(site, ["c", "m"]);
    for part in more.1 {
        ip(&["netns", "add", &site.host.name(part)]);
    }
    let (c, m) = (site.host.name("c"), site.host.name("m"));
    ip_in(site, "h", "link add name bridge-b type bridge");
    ip_in(site, "h", "link set bridge-b up");
    ip_in(site, "h", "link set tb master bridge-b");
    ip_in(site, "m", "link add name bridge type bridge");
    ip_in(site, "m", "link set bridge up");
    for (outer, bridge, netns, inner) in [
        ("tc", "bridge", &c, "eth0"),
        ("tx", "bridge", &m, "x0"),
        ("ty", "bridge-b", &m, "y0"),
    ] {
        ip_in(
            site,
            "h",
            &format!("link add name {outer} type veth peer name {inner} netns {netns}"),
        );
        ip_in(
            site,
            "h",
            &format!("link set dev {outer} master {bridge} up"),
        );
    }
    for inner in ["x0", "y0"] {
        ip_in(site, "m", &format!("link set {inner} master bridge up"));
    }
    ip_in(site, "c", "addr add 10.9.0.3/24 dev eth0");
    ip_in(site, "c", "link set eth0 up");
    for netns in [site.host.name("h"), m] {
        until_bridges_forward(&netns);
    }
    more
}

/// A tenant can make its interface look so by one packet with another's address, so that it must
/// not get free of enforcement by it.
#[test]
fn an_interface_on_the_way_of_several_tenants_is_named_and_stays() {
    let site = Site::new();
    let _more = with_transit(&site);
    let agent = site.agent();
    let listener = site
        .host
        .within("b", || TcpListener::bind("10.9.0.2:0").unwrap());
    let to = listener.local_addr().unwrap();
    let connections: Vec<_> = ["a", "c"]
        .into_iter()
        .map(|part| {
            let client = site.host.within(part, || TcpStream::connect(to).unwrap());
            (client, listener.accept().unwrap().0)
        })
        .collect();
    let traffic = Traffic::over(connections);
    // The pairs are told in the order of their indices.
    agent.wait_for("ta and ty show the same flows");
    agent.wait_for("tc and ty show the same flows");
    for interface in ["ta", "tb", "tc", "tx", "ty"] {
        assert_eq!(site.attached(interface), ["from_tenant"], "{interface}");
    }
    traffic.gets_on();
    traffic.end();
    let named = |note: &&String| note.contains("ta and ty") && note.contains("--exclude");
    let state = site.state_when(|state| state.notes.iter().filter(named).count() == 1);
    assert!(state.left_out.is_empty(), "{state:?}");
    assert_eq!(agent.stop(), Some(0));
}
