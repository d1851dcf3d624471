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

use std::{
    collections::HashSet,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use sluicegate_config::{
    Problems,
    document::{self, Value},
    problem::{Complaint, Sink},
    table::{Item, Table},
    units::{parse_duration, parse_rate},
};
use sluicegate_policy::{PolicyFile, Warning};
use sluicegate_vswitch::{
    filter::Filter,
    learning::{LearningLimits, Mac, Membership, VLANS},
};

use crate::{
    adapter::{self, AdapterConfig},
    engine::Choice,
    govern::Governing,
    lanes::{Lanes, PRIORITIES, Priority},
    shm::{
        layout::{BUFFER_MAX, BUFFER_MIN, Layout, SLOTS_MAX, SLOTS_MIN},
        pfc::{DELAY_NS, RATE_BPS, Settings},
        session::Wanted,
    },
    vhost::{PAIRS_MAX, session::Mode},
    worker::Pace,
    xdp::{self, RING_MAX, RING_MIN},
};

/// Where the control socket is if the file does not say.
pub const SOCKET: &str = "/run/sluicegate/switch.sock";

/// Most flows of a port if the file does not say, as of an interface of the agent.
pub const FLOW_QUOTA: u32 = 16_384;

/// Ports of a switch.
pub const PORTS_MAX: usize = 256;

/// Threads of a switch.
pub const THREADS_MAX: usize = 16;

const MAC_ADVICE: &str = "write six bytes, such as \"52:54:00:12:34:56\"";

/// A switch, as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The control socket.
    pub socket: PathBuf,
    /// What a successor goes on with (see [`crate::ledger`]).
    pub state: PathBuf,
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
        let mut places = HashSet::new();
        for table in root.tables("port") {
            let item = table.item().clone();
            let all = (config.choice.lanes, config.governing.is_some());
            let Some(port) = read_port(table, all, config.threads.len()) else {
                continue;
            };
            if !names.insert(port.name.clone()) {
                let reason = format!("two ports are called '{}'", port.name);
                item.complain(reason, "give each port a name of its own");
            }
            let place = match &port.kind {
                Kind::VhostUser(path, ..) | Kind::Shm(path, _) => path.clone(),
                Kind::Tap(name) => PathBuf::from(name),
                Kind::Xdp(wanted) => PathBuf::from(&wanted.interface),
            };
            if !places.insert(place) {
                let reason = format!("'{}' is where another port is", port.name);
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
            self.socket = PathBuf::from(socket);
        }
        if let Some(state) = table.text("state") {
            self.state = PathBuf::from(state);
        }
        let choice = &mut self.choice;
        choice.lanes = read_lanes(&table).unwrap_or(choice.lanes);
        if choice.lanes.lossless() == u8::MAX {
            if table.get("queue").is_some() {
                table.refuse(
                    "queue",
                    "frames wait in the rings of their senders where all priorities are lossless",
                );
            }
        } else if let Some(queue) = table.integer("queue", 0..=65_536) {
            choice.queue = queue as usize;
        }
        let nanoseconds = |key| {
            let duration: Option<Duration> = table.parse(key, parse_duration);
            duration.map(|duration| duration.as_nanos().min(u64::MAX.into()) as u64)
        };
        choice.stall_limit_ns = nanoseconds("stall_limit").or(choice.stall_limit_ns);
        let limits = &mut choice.learning;
        limits.ageing_ns = nanoseconds("ageing").unwrap_or(limits.ageing_ns);
        if let Some(count) = table.integer("addresses_per_port", 1..=1_048_576) {
            limits.per_port = count as u32;
        }
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

impl Default for Choice {
    fn default() -> Self {
        Self {
            lanes: Lanes::LOSSLESS,
            queue: 1024,
            stall_limit_ns: None,
            learning: LearningLimits::default(),
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

fn read_priority(item: &Item<'_>) -> Option<Priority> {
    match &item.node().value {
        Value::Text(text) if text == "tag" => Some(Priority::Tag),
        Value::Integer(_) => {
            let number = item.integer(0..=i64::from(PRIORITIES) - 1)?;
            Some(Priority::Of(number as u8))
        }
        _ => {
            let advice = "give 0 to 7, or \"tag\" where tags are to be believed";
            item.complain("is no priority", advice);
            None
        }
    }
}

/// The number of the thread that has a port, from 0.
fn read_thread(table: &Table<'_>, threads: usize) -> Option<usize> {
    let item = table.get("thread")?;
    let number = item.integer(0..=THREADS_MAX as i64 - 1)? as usize;
    if number >= threads {
        let last = threads - 1;
        let reason = match threads {
            1 => "the switch has only thread 0".to_owned(),
            _ => format!("the switch has the threads 0 to {last}"),
        };
        let advice = format!("give 0 to {last}, or [switch] threads = {}", number + 1);
        item.complain(reason, advice);
    }
    Some(number)
}

fn read_port(
    table: Table<'_>,
    (lanes, has_policy): (Lanes, bool),
    threads: usize,
) -> Option<PortConfig> {
    let name = table.text("name").map(str::to_owned);
    if name.is_none() {
        table.require("name", "give the port a name, such as name = \"vm1\"");
    }
    let listen = table.boolean("listen");
    let queues = table.integer("queues", 1..=PAIRS_MAX as i64);
    let (socket, tap, shm) = (
        table.text("vhost_user"),
        table.text("tap"),
        table.text("shm"),
    );
    let xdp = table.text("xdp");
    let (in_order, backpressure) = (table.boolean("in_order"), table.boolean("backpressure"));
    if in_order.is_some() && socket.is_none() {
        table.refuse(
            "in_order",
            "only a port with vhost_user = \"SOCKET\" has a ring of a driver",
        );
    }
    if shm.is_none() {
        for key in ["pfc", "rate", "delay"] {
            if table.get(key).is_some() {
                table.refuse(
                    key,
                    "pauses are sent and obeyed at a port with shm = \"SOCKET\" alone; an adapter does \
                     it itself ([[adapter]])",
                );
            }
        }
    }
    if backpressure.is_some() && tap.is_none() {
        table.refuse(
            "backpressure",
            "only a port with tap = \"INTERFACE\" has it",
        );
    }
    refuse_of_others(&table, shm.is_some(), xdp.is_some());
    let kind = match (socket, tap, shm, xdp) {
        (Some(socket), None, None, None) => {
            let mode = match listen {
                Some(false) => Mode::Client,
                _ => Mode::Server,
            };
            let pairs = queues.unwrap_or(1) as u16;
            Some(Kind::VhostUser(PathBuf::from(socket), mode, pairs))
        }
        (None, Some(tap), None, None) => {
            if listen.is_some() {
                table.refuse("listen", "an interface has no socket");
            }
            if queues.is_some() {
                table.refuse("queues", "an interface has one queue here");
            }
            read_interface(&table, "tap", tap).map(Kind::Tap)
        }
        (None, None, None, Some(name)) => {
            if listen.is_some() {
                table.refuse("listen", "an interface has no socket");
            }
            read_xdp(&table, name, queues.map(|count| count as u16))
        }
        (None, None, Some(socket), None) => {
            if queues.is_some() {
                table.refuse("queues", "a cable has one queue in each direction");
            }
            Some(read_cable(&table, socket, listen != Some(false), lanes))
        }
        _ => {
            table.item().complain(
                "a port is one thing",
                "write one of vhost_user = \"SOCKET\", tap = \"INTERFACE\", xdp = \"INTERFACE\" and \
                 shm = \"SOCKET\"",
            );
            None
        }
    };
    let member = read_member(&table);
    let filter = Filter {
        macs: list(&table, "macs", parse_mac),
        prefixes: list(&table, "addresses", parse_prefix),
    };
    let priority = table.get("priority").and_then(|item| read_priority(&item));
    let govern = table.boolean("govern");
    if !has_policy && govern == Some(true) {
        table.refuse("govern", "[switch] has no policy = \"FILE\"");
    }
    let tenant = table.text("tenant").map(str::to_owned);
    let thread = read_thread(&table, threads);
    table.close();
    let (name, kind) = (name?, kind?);
    Some(PortConfig {
        is_governed: has_policy && govern.unwrap_or(matches!(kind, Kind::VhostUser(..))),
        tenant: tenant.unwrap_or_else(|| name.clone()),
        in_order: in_order == Some(true),
        backpressure: backpressure == Some(true),
        name,
        kind,
        member,
        filter,
        priority: priority.unwrap_or_default(),
        thread,
    })
}

/// The side that listens decides the sizes.
fn read_cable(table: &Table<'_>, socket: &str, listens: bool, lanes: Lanes) -> Kind {
    let mut layout = Layout::default();
    if listens {
        let slots = table.integer("ring", i64::from(SLOTS_MIN)..=i64::from(SLOTS_MAX));
        let bytes = table.integer("buffer", i64::from(BUFFER_MIN)..=i64::from(BUFFER_MAX));
        let slots = slots.map_or(u32::from(layout.slots), |slots| slots as u32);
        let bytes = bytes.map_or(layout.buffer, |bytes| bytes as u32);
        match Layout::new(slots, bytes) {
            Ok(wanted) => layout = wanted,
            Err(reason) => {
                let keys = ["ring", "buffer"].into_iter();
                let item = keys.rev().find_map(|key| table.get(key));
                let item = item.unwrap_or_else(|| table.item().clone());
                item.complain(
                    reason,
                    "both are powers of two, and together 128 KB to 64 MB",
                );
            }
        }
    } else {
        for key in ["ring", "buffer"] {
            if table.get(key).is_some() {
                table.refuse(key, "the side that listens decides it: write it there");
            }
        }
    }
    let mode = if listens { Mode::Server } else { Mode::Client };
    let pfc = read_pfc(table, lanes);
    if let Some(Err(shortage)) = pfc.filter(|_| listens).map(|pfc| pfc.plan(layout)) {
        // The other side finds it when the cable is there.
        let item = table.get("pfc").unwrap_or_else(|| table.item().clone());
        item.complain(shortage.reason(), shortage.advice());
    }
    Kind::Shm(PathBuf::from(socket), Wanted { mode, layout, pfc })
}

/// Flow control by priority. It needs tags, since pauses name what tags say.
fn read_pfc(table: &Table<'_>, lanes: Lanes) -> Option<Settings> {
    let rate = table.parse("rate", parse_rate);
    let delay: Option<Duration> = table.parse("delay", parse_duration);
    if table.boolean("pfc") != Some(true) {
        for key in ["rate", "delay"] {
            if table.get(key).is_some() {
                table.refuse(
                    key,
                    "headroom is computed with it: write pfc = true as well",
                );
            }
        }
        return None;
    }
    if lanes.lossless() == 0 {
        table.refuse(
            "pfc",
            "no priority is lossless: write lossless = [3] in [switch]",
        );
        return None;
    }
    let by_tag = table
        .get("priority")
        .is_some_and(|item| matches!(&item.node().value, Value::Text(text) if text == "tag"));
    if !by_tag || table.get("trunk").is_none() {
        table.refuse(
            "pfc",
            "pauses name the priorities of tags: write trunk = [10] and priority = \"tag\" as well",
        );
    }
    if table.get("native_vlan").is_some() {
        table.refuse(
            "native_vlan",
            "frames without tags have no priority that a pause could name: put it into trunk",
        );
    }
    Some(Settings {
        rate_bps: rate.unwrap_or(RATE_BPS),
        delay_ns: delay.map_or(DELAY_NS, |it| it.as_nanos().min(u64::MAX.into()) as u64),
        lossless: lanes.lossless(),
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

/// Keys that only ports of another kind have.
fn refuse_of_others(table: &Table<'_>, is_cable: bool, is_xdp: bool) {
    let only = [
        (
            "ring",
            is_cable || is_xdp,
            "a port with shm = \"SOCKET\" or xdp = \"INTERFACE\" has buffers",
        ),
        (
            "buffer",
            is_cable,
            "a port with shm = \"SOCKET\" has buffers",
        ),
        (
            "mode",
            is_xdp,
            "a port with xdp = \"INTERFACE\" has sockets of AF_XDP",
        ),
    ];
    for (key, is_known, who) in only {
        if !is_known && table.get(key).is_some() {
            table.refuse(key, &format!("only {who} of its own"));
        }
    }
}

fn read_xdp(table: &Table<'_>, name: &str, queues: Option<u16>) -> Option<Kind> {
    let interface = read_interface(table, "xdp", name)?;
    let mut ring = Layout::default().slots;
    let (least, most) = (i64::from(RING_MIN), i64::from(RING_MAX));
    if let Some(entries) = table.integer("ring", least..=most) {
        ring = entries as u16;
        if let Some(item) = table.get("ring").filter(|_| !ring.is_power_of_two()) {
            let reason = format!("a ring cannot have {ring} entries");
            item.complain(reason, "write a power of two, such as 1024");
        }
    }
    let mode = table.parse("mode", |text| {
        let mut names = xdp::Mode::NAMES.iter();
        let known = names.find(|(name, _)| *name == text).map(|(_, mode)| *mode);
        let reason = format!("'{text}' is no mode");
        known.ok_or_else(|| Complaint::new(reason, "write \"auto\", \"copy\" or \"zero-copy\""))
    });
    Some(Kind::Xdp(xdp::Wanted {
        interface,
        queues,
        ring,
        mode: mode.unwrap_or_default(),
    }))
}

fn read_interface(table: &Table<'_>, key: &'static str, name: &str) -> Option<String> {
    if name.is_empty() || name.len() > 15 || name.contains(['/', ' ']) {
        let item = table.get(key)?;
        let reason = format!("no interface can be called '{name}'");
        item.complain(reason, "names have 1 to 15 bytes, without / and spaces");
        return None;
    }
    Some(name.to_owned())
}

fn read_member(table: &Table<'_>) -> Membership {
    let number = |item: &Item<'_>| {
        let number = item.integer(1..=i64::from(VLANS) - 1)?;
        u16::try_from(number).ok()
    };
    let access = table.get("vlan").and_then(|item| number(&item));
    let native = table.get("native_vlan").and_then(|item| number(&item));
    let Some(trunk) = table.get("trunk") else {
        if native.is_some() {
            table.refuse(
                "native_vlan",
                "only a trunk has one: write trunk = [10, 20]",
            );
        }
        return Membership::Access(access.unwrap_or(0));
    };
    if access.is_some() {
        table.refuse(
            "vlan",
            "a port with a trunk has vlans in it, or native_vlan",
        );
    }
    let list = trunk.list().unwrap_or_default();
    let mut tagged: Vec<_> = list.iter().filter_map(number).collect();
    tagged.sort_unstable();
    tagged.dedup();
    if native.is_some_and(|native| tagged.contains(&native)) {
        table.refuse(
            "native_vlan",
            "its frames have no tags: take its number out of trunk",
        );
    }
    Membership::Trunk { tagged, native }
}

fn list<T>(
    table: &Table<'_>,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, Complaint>,
) -> Vec<T> {
    let items = table.get(key).and_then(|item| item.list());
    let items = items.unwrap_or_default();
    items.iter().filter_map(|item| item.parse(&parse)).collect()
}

fn parse_mac(text: &str) -> Result<Mac, Complaint> {
    let mac = read_mac(text)?;
    if mac[0] & 1 != 0 {
        let reason = format!("'{text}' is not the address of one adapter");
        return Err(Complaint::new(reason, MAC_ADVICE));
    }
    Ok(mac)
}

/// An Ethernet address that people have written.
///
/// # Errors
/// It is none.
pub fn read_mac(text: &str) -> Result<Mac, Complaint> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: Vec<_> = bytes.filter_map(Result::ok).collect();
    let mac = bytes.try_into().ok().filter(|_| text.len() == 17);
    mac.ok_or_else(|| Complaint::new(format!("'{text}' is no Ethernet address"), MAC_ADVICE))
}

fn parse_prefix(text: &str) -> Result<(IpAddr, u8), Complaint> {
    let complaint = || {
        let advice = "write an address or a prefix, such as \"10.0.0.1\" or \"2001:db8::/64\"";
        Complaint::new(format!("'{text}' is no prefix"), advice)
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| complaint())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.map_or(Ok(most), str::parse).map_err(|_| complaint())?;
    if bits > most {
        return Err(complaint());
    }
    Ok((address, bits))
}

/// An Ethernet address as people write it.
pub fn show_mac(mac: Mac) -> String {
    let bytes: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "'c' is where another port is",
            "switch.toml:19:1: port[3].ring",
            "only a port with shm = \"SOCKET\"",
            "switch.toml:20:1: port[4]: a port is one thing",
        ] {
            assert!(text.contains(expected), "{expected} in:\n{text}");
        }
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
