//! The configuration of a switch: one TOML file.
//!
//! ```toml
//! [switch]
//! lossless = true
//!
//! [[port]]
//! name = "vm1"
//! vhost_user = "/run/sluicegate/vm1.sock"
//! macs = ["52:54:00:00:00:01"]
//!
//! [[port]]
//! name = "lan"
//! tap = "sg0"
//! ```

mod access;
mod filters;
mod port;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use sluicegate_config::{
    Problems,
    document::{self, Value},
    problem::{Complaint, Sink},
    table::Table,
    units::parse_duration,
};
use sluicegate_policy::{PolicyFile, Warning};
use sluicegate_vswitch::{
    filter::Filter,
    learning::{LearningLimits, Membership},
    reserved::Reserved,
};

use crate::{
    adapter::{self, AdapterConfig},
    engine::{Choice, RETURN_NS},
    govern::Governing,
    lanes::{Lanes, Priority},
    shm::session::Wanted,
    vhost::session::Mode,
    worker::Pace,
    xdp,
};

pub use access::{Access, SOCKET_PATH_MAX};
pub use filters::{read_mac, show_mac};

/// Where the control socket is if the file does not say.
pub const SOCKET: &str = "/run/sluicegate/switch.sock";

/// Most flows of a port if the file does not say, as of an interface of the agent.
pub const FLOW_QUOTA: u32 = 16_384;

/// How long a receiver may take nothing if the file does not say, ns: as long as frames wait for
/// one that has gone and may come back. A guest that is paused for a snapshot or for the end of its
/// migration takes frames again before; one that is suspended does not hold up others for ever.
pub const STALL_LIMIT_NS: u64 = RETURN_NS;

/// Ports of a switch.
pub const PORTS_MAX: usize = 256;

/// Threads of a switch.
pub const THREADS_MAX: usize = 16;

/// A switch, as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The control socket.
    pub socket: PathBuf,
    /// What a successor goes on with (see [`crate::ledger`]).
    pub state: PathBuf,
    /// Who may connect to sockets of ports that say nothing else.
    pub access: Access,
    /// What holds for all ports.
    pub choice: Choice,
    /// How its threads wait.
    pub pace: Pace,
    /// By thread, the CPU on which it stays.
    pub threads: Vec<Option<u32>>,
    /// Its ports, with different names.
    pub ports: Vec<PortConfig>,
    /// Adapters of the host, as far as the file says something of them.
    pub adapters: Vec<AdapterConfig>,
    /// What governs them.
    pub governing: Option<Governing>,
    /// What the policy allows but probably does not mean.
    pub warnings: Vec<Warning>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name.
    pub name: String,
    /// What is behind it.
    pub kind: Kind,
    /// Its VLANs.
    pub member: Membership,
    /// The addresses that it may use.
    pub filter: Filter,
    /// The priority of what it sends.
    pub priority: Priority,
    /// Whether the policy governs it.
    pub is_governed: bool,
    /// Its tenant, as policies and reports name it.
    pub tenant: String,
    /// Whether the driver of a guest may ask for its chains in their order.
    pub in_order: bool,
    /// Whether the kernel is to hold back what finds no room in the queue of a TAP interface.
    pub backpressure: bool,
    /// Whether a TAP interface that the switch made outlives it.
    pub persists: bool,
    /// Who may connect to the socket at which the switch listens.
    pub access: Access,
    /// The thread that has it, if the file says which.
    pub thread: Option<usize>,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A guest's adapter: its socket, which side of it the switch is, and queue pairs.
    VhostUser(PathBuf, Mode, u16),
    /// An interface of the kernel.
    Tap(String),
    /// Queues of an interface of the kernel, by AF_XDP.
    Xdp(xdp::Wanted),
    /// A cable of shared memory: its socket, and what it is there.
    Shm(PathBuf, Wanted),
}

impl Kind {
    /// The socket or the interface behind the port.
    pub fn place(&self) -> PathBuf {
        match self {
            Self::VhostUser(path, ..) | Self::Shm(path, _) => path.clone(),
            Self::Tap(name) => PathBuf::from(name),
            Self::Xdp(wanted) => PathBuf::from(&wanted.interface),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Every error in the file, or why it cannot be read.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        Self::from_node(&document::read(path)?)
    }

    /// Reads a text; `file` is its name in messages.
    ///
    /// # Errors
    /// Every error in the text.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        Self::from_node(&document::parse(file, text)?)
    }

    fn from_node(node: &document::Node) -> Result<Self, Problems> {
        let sink = Sink::default();
        let config = Self::from_table(Table::root(node, &sink), &sink);
        sink.finish(config)
    }

    fn from_table(root: Table<'_>, sink: &Sink) -> Self {
        let mut config = Self {
            socket: PathBuf::from(SOCKET),
            state: PathBuf::new(),
            access: Access::default(),
            choice: Choice::default(),
            pace: Pace::default(),
            threads: vec![None],
            ports: Vec::new(),
            adapters: Vec::new(),
            governing: None,
            warnings: Vec::new(),
        };
        if let Some(table) = root.table("switch") {
            config.read_switch(table, sink);
        }
        if config.state.as_os_str().is_empty() {
            config.state = config.socket.with_extension("state");
        }
        let mut names = HashSet::new();
        let mut places = HashMap::new();
        for table in root.tables("port") {
            let item = table.item().clone();
            let all = port::Common {
                lanes: config.choice.lanes,
                relayed: config.choice.reserved,
                has_policy: config.governing.is_some(),
                threads: config.threads.len(),
                access: config.access,
                reserved: [&config.socket, &config.state],
            };
            let Some(port) = port::read_port(table, &all) else {
                continue;
            };
            if !names.insert(port.name.clone()) {
                let reason = format!("two ports are called '{}'", port.name);
                item.complain(reason, "give each port a name of its own");
            }
            if let Some(other) = places.insert(port.kind.place(), port.name.clone()) {
                let place = port.kind.place();
                let reason = format!("'{}' is at {}, as '{other}' is", port.name, place.display());
                item.complain(reason, "give each port a socket or an interface of its own");
            }
            config.ports.push(port);
        }
        check_tags(&root, &config.ports);
        config.adapters = adapter::read(&root, config.choice.lanes);
        if config.ports.len() > PORTS_MAX {
            let reason = format!("a switch has at most {PORTS_MAX} ports");
            root.item().complain(reason, "use two switches");
        }
        root.close();
        if config
            .ports
            .iter()
            .any(|it| it.priority != Priority::Unknown)
        {
            let lanes = &mut config.choice.lanes;
            *lanes = Lanes::each(lanes.lossless());
        }
        config
    }

    fn read_switch(&mut self, table: Table<'_>, sink: &Sink) {
        if let Some(socket) = table.text("socket") {
            access::check_length(&table, "socket");
            self.socket = PathBuf::from(socket);
        }
        if let Some(state) = table.text("state") {
            self.state = PathBuf::from(state);
        }
        self.access = Access::read(&table);
        let choice = &mut self.choice;
        choice.lanes = read_lanes(&table).unwrap_or(choice.lanes);
        if choice.lanes.lossless() == u8::MAX {
            table.refuse(
                "queue",
                "frames wait in the rings of their senders where all priorities are lossless",
            );
        } else if let Some(queue) = table.integer("queue", 0..=65_536) {
            choice.queue = queue as usize;
        }
        let nanoseconds = |key| {
            let duration: Option<Duration> = table.parse(key, parse_duration);
            duration.map(|duration| duration.as_nanos().min(u64::MAX.into()) as u64)
        };
        let ageing_ns = nanoseconds("ageing");
        if let Some(limit_ns) = table.parse("stall_limit", parse_stall_limit) {
            choice.stall_limit_ns = limit_ns;
        }
        if ageing_ns == Some(0) {
            table.refuse("ageing", "no address would be known");
        }
        let limits = &mut choice.learning;
        limits.ageing_ns = ageing_ns.unwrap_or(limits.ageing_ns);
        if let Some(count) = table.integer("addresses_per_port", 1..=1_048_576) {
            limits.per_port = count as u32;
        }
        choice.reserved = filters::read_reserved(&table);
        self.pace.spin_ns = nanoseconds("spin").unwrap_or(self.pace.spin_ns);
        self.threads = read_threads(&table);
        self.read_governing(&table, sink);
        table.close();
    }

    /// The policy is in a file of its own, beside this one unless it says where.
    fn read_governing(&mut self, table: &Table<'_>, sink: &Sink) {
        let (flows_max, quota) = (
            table.integer("flows_max", 64..=1 << 24),
            table.integer("flow_quota", 0..=1 << 24),
        );
        let Some(path) = table.text("policy") else {
            for (key, value) in [("flows_max", flows_max), ("flow_quota", quota)] {
                if value.is_some() {
                    table.refuse(key, "there are flows only where policy = \"FILE\"");
                }
            }
            return;
        };
        let here = Path::new(table.key_place("policy").file());
        let path = here.parent().unwrap_or(Path::new("")).join(path);
        if let (Err(error), Some(item)) = (File::open(&path), table.get("policy")) {
            let reason = format!("cannot read {}: {error}", path.display());
            item.complain(reason, "name the policy's file, relative to this one");
            return;
        }
        let read = PolicyFile::read(&path).and_then(|file| Ok((file.policy()?, file)));
        match read {
            Ok(((policy, warnings), file)) => {
                let mut governing = Governing::new(&file, policy);
                if let Some(flows) = flows_max {
                    governing.limits.flows = flows as usize;
                }
                governing.quota = quota.map_or(FLOW_QUOTA, |quota| quota as u32);
                self.governing = Some(governing);
                self.warnings = warnings;
            }
            Err(problems) => sink.extend(problems),
        }
    }
}

/// How long a receiver may take nothing, ns; `None`: as long as it wants.
fn parse_stall_limit(text: &str) -> Result<Option<u64>, Complaint> {
    if text == "never" {
        return Ok(None);
    }
    let limit = parse_duration(text).map_err(|complaint| {
        let advice = format!("{}, or \"never\"", complaint.advice);
        Complaint {
            advice,
            ..complaint
        }
    })?;
    if limit.is_zero() {
        let reason = "no receiver would be waited for at all";
        let advice = "give a longer time, such as \"5s\", or \"never\"";
        return Err(Complaint::new(reason, advice));
    }
    Ok(Some(limit.as_nanos().min(u64::MAX.into()) as u64))
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            lanes: Lanes::LOSSLESS,
            queue: 1024,
            stall_limit_ns: Some(STALL_LIMIT_NS),
            learning: LearningLimits::default(),
            reserved: Reserved::default(),
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            spin_ns: 50_000,
            cpu: None,
        }
    }
}

/// By thread, the CPU on which it stays.
fn read_threads(table: &Table<'_>) -> Vec<Option<u32>> {
    const CPUS: std::ops::RangeInclusive<i64> = 0..=1023;
    let count = table.integer("threads", 1..=THREADS_MAX as i64);
    let count = count.map_or(1, |count| count as usize);
    let cpu = table.integer("cpu", CPUS).map(|cpu| cpu as u32);
    if cpu.is_some() && count > 1 {
        table.refuse("cpu", "each thread has its own: write cpus = [2, 3]");
    }
    let Some(item) = table.get("cpus") else {
        let mut cpus = vec![None; count];
        cpus[0] = cpu.filter(|_| count == 1);
        return cpus;
    };
    let list = item.list().unwrap_or_default();
    let numbers = list.iter().filter_map(|cpu| cpu.integer(CPUS));
    let cpus: Vec<u32> = numbers.map(|cpu| cpu as u32).collect();
    if cpus.len() == list.len() && cpus.len() != count {
        let reason = format!(
            "{} CPUs are not one for each of {count} threads",
            cpus.len()
        );
        item.complain(reason, format!("write threads = {}", cpus.len().max(1)));
    }
    let is_twice = |at: usize| cpus[..at].contains(&cpus[at]);
    if let Some(at) = (0..cpus.len()).find(|&at| is_twice(at)) {
        let reason = format!("two threads would share CPU {}", cpus[at]);
        item.complain(
            reason,
            "give each thread a CPU of its own, or leave cpus out",
        );
    }
    let mut cpus: Vec<_> = cpus.into_iter().map(Some).collect();
    cpus.resize(count, None);
    cpus
}

/// Which priorities are lossless; a list tells them apart.
fn read_lanes(table: &Table<'_>) -> Option<Lanes> {
    let item = table.get("lossless")?;
    Some(match &item.node().value {
        Value::Boolean(true) => Lanes::LOSSLESS,
        Value::Boolean(false) => Lanes::LOSSY,
        Value::List(listed) if listed.is_empty() => {
            item.complain("must not be empty", "give false, or leave it out");
            return None;
        }
        Value::Integer(_) | Value::List(_) => Lanes::each(item.priorities()),
        _ => {
            let advice = "give true, false, a priority or a list of priorities";
            item.complain("says neither whether nor which", advice);
            return None;
        }
    })
}

/// Where any port has flow control, tags say of each frame what the switch takes for its priority.
fn check_tags(root: &Table<'_>, ports: &[PortConfig]) {
    let has_pfc = |port: &PortConfig| matches!(&port.kind, Kind::Shm(_, it) if it.pfc.is_some());
    if !ports.iter().any(has_pfc) {
        return;
    }
    let is_trunk = |port: &&PortConfig| matches!(port.member, Membership::Trunk { .. });
    let unknown = |port: &&PortConfig| port.priority == Priority::Unknown;
    for port in ports.iter().filter(is_trunk).filter(unknown) {
        let reason = format!(
            "the tags of '{}' pass as they are, and a port with pfc would take them for another \
             priority than this switch",
            port.name
        );
        let advice = "write priority = \"tag\", or a number, at that trunk";
        root.item().complain(reason, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::{layout::Layout, pfc::Settings};

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
            [switch]
            socket = "/tmp/s.sock"
            lossless = [3, 4]
            queue = 64
            stall_limit = "2s"
            spin = "10us"
            cpu = 1
            ageing = "60s"
            addresses_per_port = 10
            [[port]]
            name = "vm1"
            vhost_user = "/tmp/vm1.sock"
            listen = false
            queues = 2
            vlan = 10
            priority = 3
            macs = ["52:54:00:00:00:01"]
            addresses = ["10.0.0.1", "2001:db8::/64"]
            [[port]]
            name = "up"
            tap = "sg0"
            trunk = [20, 10]
            native_vlan = 1
            priority = "tag"
        "#;
        let config = Config::parse("switch.toml", text).expect("a good file");
        assert_eq!(config.socket, Path::new("/tmp/s.sock"));
        assert_eq!(config.state, Path::new("/tmp/s.state"));
        assert_eq!(config.choice.lanes, Lanes::each(1 << 3 | 1 << 4));
        assert_eq!(config.choice.queue, 64);
        assert_eq!(config.choice.stall_limit_ns, Some(2_000_000_000));
        assert_eq!(config.choice.learning.ageing_ns, 60_000_000_000);
        assert_eq!(
            (config.pace.spin_ns, &config.threads[..]),
            (10_000, &[Some(1)][..])
        );
        let [vm, up] = &config.ports[..] else {
            panic!("two ports")
        };
        assert_eq!(
            vm.kind,
            Kind::VhostUser("/tmp/vm1.sock".into(), Mode::Client, 2)
        );
        assert_eq!(vm.member, Membership::Access(10));
        assert_eq!((vm.priority, up.priority), (Priority::Of(3), Priority::Tag));
        assert_eq!(vm.filter.macs, [[0x52, 0x54, 0, 0, 0, 1]]);
        assert_eq!(vm.filter.prefixes[1].1, 64);
        assert_eq!(up.kind, Kind::Tap("sg0".to_owned()));
        let tagged = vec![10, 20];
        assert_eq!(
            up.member,
            Membership::Trunk {
                tagged,
                native: Some(1)
            }
        );
    }

    #[test]
    fn a_cable_has_sizes_where_it_listens() {
        let text = r#"
            [[port]]
            name = "left"
            shm = "/tmp/left.sock"
            ring = 256
            buffer = 4096
            [[port]]
            name = "right"
            shm = "/tmp/right.sock"
            listen = false
        "#;
        let config = Config::parse("switch.toml", text).expect("a good file");
        let cable = |slots, buffer, mode| Wanted {
            mode,
            layout: Layout { slots, buffer },
            pfc: None,
        };
        let kinds = config.ports.iter().map(|port| port.kind.clone());
        let expected = [
            Kind::Shm("/tmp/left.sock".into(), cable(256, 4096, Mode::Server)),
            Kind::Shm("/tmp/right.sock".into(), cable(1024, 2048, Mode::Client)),
        ];
        assert!(kinds.eq(expected));
    }

    #[test]
    fn an_interface_by_af_xdp_has_queues_a_ring_and_a_mode() {
        let text = r#"
            [[port]]
            name = "up"
            xdp = "eth0"
            queues = 2
            ring = 256
            mode = "zero-copy"
            [[port]]
            name = "down"
            xdp = "eth1"
            [[port]]
            name = "vm"
            vhost_user = "/tmp/vm.sock"
            in_order = true
            [[port]]
            name = "lan"
            tap = "sg0"
            backpressure = true
        "#;
        let config = Config::parse("switch.toml", text).expect("a good file");
        let wanted = |interface: &str, queues, ring, mode| {
            let interface = interface.to_owned();
            Kind::Xdp(xdp::Wanted {
                interface,
                queues,
                ring,
                mode,
                relayed: 0,
            })
        };
        let [up, down, vm, lan] = &config.ports[..] else {
            panic!("four ports")
        };
        assert_eq!(up.kind, wanted("eth0", Some(2), 256, xdp::Mode::ZeroCopy));
        assert_eq!(down.kind, wanted("eth1", None, 1024, xdp::Mode::Auto));
        assert!(vm.in_order && lan.backpressure && !up.in_order && !vm.backpressure);
        for (keys, expected) in [
            (
                "xdp = \"eth0\"\nring = 100",
                "a ring cannot have 100 entries",
            ),
            ("xdp = \"eth0\"\nmode = \"fast\"", "'fast' is no mode"),
            ("xdp = \"eth0\"\nbuffer = 4096", "has buffers of its own"),
            (
                "xdp = \"eth0\"\nlisten = true",
                "an interface has no socket",
            ),
            ("xdp = \"eth0\"\ntap = \"sg0\"", "a port is one thing"),
            ("xdp = \"a/b\"", "no interface can be called 'a/b'"),
            ("tap = \"sg0\"\nmode = \"copy\"", "has sockets of AF_XDP"),
            ("tap = \"sg0\"\nin_order = true", "has a ring of a driver"),
            (
                "xdp = \"eth0\"\nbackpressure = true",
                "only a port with tap",
            ),
        ] {
            let text = format!("[[port]]\nname = \"a\"\n{keys}\n");
            let problems = Config::parse("switch.toml", &text).expect_err("a bad file");
            assert!(problems.to_string().contains(expected), "{problems}");
        }
    }

    #[test]
    fn an_error_of_a_cable_has_its_line_and_advice() {
        let text = r#"[[port]]
name = "a"
shm = "/tmp/a.sock"
ring = 100
[[port]]
name = "b"
shm = "/tmp/b.sock"
listen = false
buffer = 4096
queues = 2
[[port]]
name = "c"
shm = "/tmp/a.sock"
ring = 64
buffer = 512
[[port]]
name = "d"
vhost_user = "/tmp/d.sock"
ring = 64
[[port]]
name = "e"
shm = "/tmp/e.sock"
tap = "sg0"
"#;
        let problems = Config::parse("switch.toml", text).expect_err("a bad file");
        let text = problems.to_string();
        for expected in [
            "switch.toml:4:8: port[0].ring: a ring cannot have 100 buffers",
            "both are powers of two",
            "switch.toml:9:1: port[1].buffer",
            "the side that listens decides it",
            "a cable has one queue in each direction",
            "switch.toml:15:10: port[2].buffer: the buffers of a ring cannot have 32768 bytes",
            "'c' is at /tmp/a.sock, as 'a' is",
            "switch.toml:19:1: port[3].ring",
            "only a port with shm = \"SOCKET\"",
            "switch.toml:20:1: port[4]: a port is one thing",
        ] {
            assert!(text.contains(expected), "{expected} in:\n{text}");
        }
    }

    #[test]
    fn names_and_times_that_mean_nothing_are_refused() {
        for name in ["", " vm1", "vm1\\n", &"x".repeat(65)] {
            let text = format!("[[port]]\nname = \"{name}\"\ntap = \"sg0\"\n");
            let problems = Config::parse("file", &text).expect_err("no name");
            let said = problems.to_string();
            let expected = "file:2:8: port[0].name: a port's name has 1 to 64 bytes";
            assert!(said.contains(expected), "{said}");
        }
        let text = "[switch]\nstall_limit = \"0s\"\nageing = \"0s\"\n";
        let said = Config::parse("file", text).expect_err("no times");
        let said = said.to_string();
        assert!(
            said.contains("file:2:15: switch.stall_limit: no receiver would"),
            "{said}"
        );
        assert!(
            said.contains("file:3:1: switch.ageing: no address would"),
            "{said}"
        );
    }

    #[test]
    fn a_cable_with_pfc_has_room_for_its_headroom() {
        let text = r#"
            [switch]
            lossless = [3]
            [[port]]
            name = "up"
            shm = "/tmp/up.sock"
            trunk = [10]
            priority = "tag"
            pfc = true
            rate = "1Gbit"
            delay = "20us"
            [[adapter]]
            interface = "eth0"
            pfc = true
        "#;
        let config = Config::parse("switch.toml", text).expect("a good file");
        let Kind::Shm(_, wanted) = &config.ports[0].kind else {
            panic!("a cable")
        };
        let expected = Settings {
            rate_bps: 1_000_000_000,
            delay_ns: 20_000,
            lossless: 1 << 3,
        };
        assert_eq!(wanted.pfc, Some(expected));
        assert_eq!(config.adapters[0].pfc, Some(1 << 3));
        let small = text.replace("trunk", "ring = 128\ntrunk");
        let problems = Config::parse("switch.toml", &small).expect_err("too small");
        let text = problems.to_string();
        // 40 µs at 1 Gbit/s and the pause are 80 short frames; three segments, and one below XOFF.
        let needed = (80 + 99 + 33 + 34) * 2048;
        assert!(
            text.contains("switch.toml:10:13: port[0].pfc")
                || text.contains("switch.toml:10:19: port[0].pfc"),
            "{text}"
        );
        assert!(
            text.contains(&format!("PFC needs {needed} bytes")),
            "{text}"
        );
        assert!(text.contains("write ring = 256"), "{text}");
    }

    #[test]
    fn an_error_of_pfc_has_its_line_and_advice() {
        let text = r#"[switch]
lossless = false
[[port]]
name = "a"
shm = "/tmp/a.sock"
pfc = true
[[adapter]]
interface = "eth0"
pfc = true
"#;
        let expect = |text: &str, expected: &[&str]| {
            let problems = Config::parse("switch.toml", text).expect_err("a bad file");
            let said = problems.to_string();
            for expected in expected {
                assert!(said.contains(expected), "{expected} in:\n{said}");
            }
        };
        let lines = [
            "switch.toml:6:1: port[0].pfc",
            "write lossless = [3]",
            "switch.toml:9:1: adapter[0].pfc",
        ];
        expect(text, &lines);
        let text = r#"[switch]
lossless = [3]
[[port]]
name = "a"
shm = "/tmp/a.sock"
pfc = true
native_vlan = 1
[[port]]
name = "b"
shm = "/tmp/b.sock"
rate = "1Gbit"
[[port]]
name = "c"
tap = "sg0"
trunk = [10]
pfc = true
"#;
        let lines = [
            "switch.toml:6:1: port[0].pfc",
            "priority = \"tag\"",
            "switch.toml:7:1: port[0].native_vlan",
            "switch.toml:11:1: port[1].rate",
            "write pfc = true as well",
            "switch.toml:16:1: port[2].pfc",
            "[[adapter]]",
            "the tags of 'c' pass as they are",
        ];
        expect(text, &lines);
    }

    #[test]
    fn each_error_has_its_line_and_advice() {
        let text = r#"[switch]
lossles = true
queue = 3
[[port]]
name = "vm1"
[[port]]
name = "vm1"
tap = "a name with spaces"
[[port]]
name = "vm2"
tap = "sg0"
listen = true
vlan = 5000
macs = ["01:00:00:00:00:01", "52:54:00:00:01"]
addresses = ["10.0.0.0/40"]
[[port]]
name = "vm3"
tap = "sg1"
trunk = [10, 20]
native_vlan = 10
"#;
        let problems = Config::parse("switch.toml", text).expect_err("a bad file");
        let text = problems.to_string();
        for expected in [
            "switch.toml:2:1: switch.lossles",
            "lossless",
            "switch.toml:3",
            "a port is one thing",
            "no interface can be called",
            "an interface has no socket",
            "port[2].vlan",
            "not the address of one adapter",
            "'52:54:00:00:01' is no Ethernet address",
            "'10.0.0.0/40' is no prefix",
            "port[3].native_vlan",
        ] {
            assert!(text.contains(expected), "{expected} in:\n{text}");
        }
    }

    #[test]
    fn a_filtered_port_is_a_hosts_unless_the_file_says_otherwise() {
        let read = |keys: &str| {
            let port = format!("[[port]]\nname = \"a\"\ntap = \"sg0\"\n{keys}\n");
            Config::parse("file", &port).map(|config| config.ports[0].filter.clone())
        };
        let is_host = |keys: &str| read(keys).expect("a good file").is_host;
        let macs = "macs = [\"52:54:00:00:00:01\"]";
        let addresses = "addresses = [\"2001:db8::1\"]";
        assert!(is_host(macs) && is_host(addresses) && is_host("router = false"));
        assert!(!is_host("") && !is_host(&format!("{macs}\nrouter = true")));
        assert!(read("").expect("a good file").is_open());
        assert!(!read("router = false").expect("a good file").is_open());
        for (keys, line, advice) in [
            (
                "router = true",
                "file:4:1: port[0].router",
                "router = false it may not",
            ),
            ("router = 1", "file:4", "router"),
            ("ruter = true", "file:4:1: port[0].ruter", "router"),
        ] {
            let problems = read(keys).expect_err("a bad file").to_string();
            assert!(
                problems.contains(line) && problems.contains(advice),
                "{problems}"
            );
        }
    }

    #[test]
    fn threads_have_cpus_and_ports() {
        let port = "[[port]]\nname = \"a\"\ntap = \"sg0\"\n";
        let read = |switch: &str, key: &str| {
            Config::parse("file", &format!("[switch]\n{switch}\n{port}{key}\n"))
        };
        let config = read("threads = 2\ncpus = [2, 3]", "thread = 1").expect("a good file");
        assert_eq!(config.threads, [Some(2), Some(3)]);
        assert_eq!(config.ports[0].thread, Some(1));
        let config = read("threads = 3", "").expect("a good file");
        assert_eq!(
            (config.threads, config.ports[0].thread),
            (vec![None; 3], None)
        );
        for (switch, key, expected) in [
            ("threads = 2\ncpu = 1", "", "write cpus = [2, 3]"),
            ("threads = 2\ncpus = [1]", "", "write threads = 1"),
            ("threads = 2\ncpus = [1, 1]", "", "would share CPU 1"),
            ("threads = 17", "", "file:2"),
            (
                "threads = 2",
                "thread = 2",
                "give 0 to 1, or [switch] threads = 3",
            ),
            ("", "thread = 1", "the switch has only thread 0"),
        ] {
            let problems = read(switch, key).expect_err("a bad file").to_string();
            assert!(problems.contains(expected), "{expected} in:\n{problems}");
        }
    }
}
