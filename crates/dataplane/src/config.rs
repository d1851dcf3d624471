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
    units::parse_duration,
};
use sluicegate_policy::{PolicyFile, Warning};
use sluicegate_vswitch::{
    filter::Filter,
    learning::{LearningLimits, Mac, Membership, VLANS},
};

use crate::{
    engine::Choice,
    govern::Governing,
    lanes::{Lanes, PRIORITIES, Priority},
    shm::{
        layout::{BUFFER_MAX, BUFFER_MIN, Layout, SLOTS_MAX, SLOTS_MIN},
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
    /// How its thread waits.
    pub pace: Pace,
    /// Its ports, with different names.
    pub ports: Vec<PortConfig>,
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
            ports: Vec::new(),
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
            let Some(port) = read_port(table, config.governing.is_some()) else {
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
        let cpu = table.integer("cpu", 0..=1023);
        self.pace.cpu = cpu.map(|cpu| cpu as u32);
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

fn read_port(table: Table<'_>, has_policy: bool) -> Option<PortConfig> {
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
            Some(read_cable(&table, socket, listen != Some(false)))
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
    })
}

/// The side that listens decides the sizes.
fn read_cable(table: &Table<'_>, socket: &str, listens: bool) -> Kind {
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
    Kind::Shm(PathBuf::from(socket), Wanted { mode, layout })
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
            config.pace,
            Pace {
                spin_ns: 10_000,
                cpu: Some(1)
            }
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
}
