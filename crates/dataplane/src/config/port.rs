//! A port, as the configuration describes it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sluicegate_config::{
    document::Value,
    problem::Complaint,
    table::{Item, Table},
    units::{parse_duration, parse_rate},
};
use sluicegate_vswitch::{
    learning::{Membership, VLANS},
    reserved::Reserved,
};

use super::{
    Kind, PortConfig, THREADS_MAX,
    access::{self, Access},
    filters::read_filter,
};
use crate::{
    lanes::{Lanes, PRIORITIES, Priority},
    shm::{
        layout::{BUFFER_MAX, BUFFER_MIN, Layout, SLOTS_MAX, SLOTS_MIN},
        pfc::{DELAY_NS, RATE_BPS, Settings},
        session::Wanted,
    },
    vhost::{PAIRS_MAX, session::Mode},
    xdp::{self, RING_MAX, RING_MIN},
};

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

/// What holds for all ports.
pub(super) struct Common<'a> {
    pub(super) lanes: Lanes,
    pub(super) relayed: Reserved,
    pub(super) has_policy: bool,
    pub(super) threads: usize,
    pub(super) access: Access,
    /// Where the switch has its control socket, and its state.
    pub(super) reserved: [&'a Path; 2],
}

/// The path of a socket is short enough, and not the switch's own.
fn check_place(table: &Table<'_>, reserved: [&Path; 2]) {
    for key in ["vhost_user", "shm"] {
        let Some(item) = table.get(key) else { continue };
        access::check_length(table, key);
        let path = item.text().map(Path::new);
        for (own, what) in reserved.into_iter().zip(["control socket", "state"]) {
            if path == Some(own) {
                let reason = format!("the switch has its {what} at {}", own.display());
                item.complain(reason, "give the port a path of its own");
            }
        }
    }
}

/// Keys that only ports with a socket have at which the switch listens.
fn read_access(table: &Table<'_>, kind: Option<&Kind>, all: Access) -> Access {
    let listens = match kind {
        Some(Kind::VhostUser(_, mode, _)) => *mode == Mode::Server,
        Some(Kind::Shm(_, wanted)) => wanted.mode == Mode::Server,
        _ => false,
    };
    for key in ["socket_mode", "socket_group"] {
        if !listens {
            table.refuse(key, "the switch makes no socket for this port");
        }
    }
    Access::read(table).or(all)
}

/// The longest name of a port, in bytes.
const NAME_MAX: usize = 64;

/// The name of a port, which commands, metrics and captures show.
fn read_name(table: &Table<'_>) -> Option<String> {
    let advice = "give the port a name, such as name = \"vm1\"";
    let Some(item) = table.get("name") else {
        table.require("name", advice);
        return None;
    };
    let name = item.text()?;
    let is_name = (1..=NAME_MAX).contains(&name.len())
        && name.trim() == name
        && !name.contains(char::is_control);
    if !is_name {
        let reason = format!(
            "a port's name has 1 to {NAME_MAX} bytes, no control characters, and no spaces around it"
        );
        item.complain(reason, advice);
        return None;
    }
    Some(name.to_owned())
}

/// What is behind a port, as its keys say.
struct Asked<'a> {
    vhost_user: Option<&'a str>,
    tap: Option<&'a str>,
    shm: Option<&'a str>,
    xdp: Option<&'a str>,
}

pub(super) fn read_port(table: Table<'_>, all: &Common<'_>) -> Option<PortConfig> {
    let name = read_name(&table);
    let asked = Asked {
        vhost_user: table.text("vhost_user"),
        tap: table.text("tap"),
        shm: table.text("shm"),
        xdp: table.text("xdp"),
    };
    let (in_order, backpressure) = (table.boolean("in_order"), table.boolean("backpressure"));
    let persist = table.boolean("persist");
    check_place(&table, all.reserved);
    refuse_of_others(&table, &asked);
    let kind = read_kind(&table, &asked, all);
    let access = read_access(&table, kind.as_ref(), all.access);
    let member = read_member(&table);
    let filter = read_filter(&table);
    let priority = table.get("priority").and_then(|item| read_priority(&item));
    let govern = table.boolean("govern");
    if !all.has_policy && govern == Some(true) {
        table.refuse("govern", "[switch] has no policy = \"FILE\"");
    }
    let tenant = table.text("tenant").map(str::to_owned);
    let thread = read_thread(&table, all.threads);
    table.close();
    let (name, kind) = (name?, kind?);
    Some(PortConfig {
        is_governed: all.has_policy && govern.unwrap_or(matches!(kind, Kind::VhostUser(..))),
        tenant: tenant.unwrap_or_else(|| name.clone()),
        in_order: in_order == Some(true),
        backpressure: backpressure == Some(true),
        persists: persist != Some(false),
        access,
        name,
        kind,
        member,
        filter,
        priority: priority.unwrap_or_default(),
        thread,
    })
}

/// What is behind a port: one of four.
fn read_kind(table: &Table<'_>, asked: &Asked<'_>, all: &Common<'_>) -> Option<Kind> {
    let listen = table.boolean("listen");
    let queues = table.integer("queues", 1..=PAIRS_MAX as i64);
    let has_no_socket = "an interface has no socket";
    match (asked.vhost_user, asked.tap, asked.shm, asked.xdp) {
        (Some(socket), None, None, None) => {
            let mode = match listen {
                Some(false) => Mode::Client,
                _ => Mode::Server,
            };
            let pairs = queues.unwrap_or(1) as u16;
            Some(Kind::VhostUser(PathBuf::from(socket), mode, pairs))
        }
        (None, Some(tap), None, None) => {
            table.refuse("listen", has_no_socket);
            table.refuse("queues", "an interface has one queue here");
            read_interface(table, "tap", tap).map(Kind::Tap)
        }
        (None, None, Some(socket), None) => {
            table.refuse("queues", "a cable has one queue in each direction");
            Some(read_cable(table, socket, listen != Some(false), all.lanes))
        }
        (None, None, None, Some(name)) => {
            table.refuse("listen", has_no_socket);
            let queues = queues.map(|count| count as u16);
            read_xdp(table, name, queues, all.relayed)
        }
        _ => {
            table.item().complain(
                "a port is one thing",
                "write one of vhost_user = \"SOCKET\", tap = \"INTERFACE\", xdp = \"INTERFACE\" and \
                 shm = \"SOCKET\"",
            );
            None
        }
    }
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
            table.refuse(key, "the side that listens decides it: write it there");
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
            table.refuse(
                key,
                "headroom is computed with it: write pfc = true as well",
            );
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
    table.refuse(
        "native_vlan",
        "frames without tags have no priority that a pause could name: put it into trunk",
    );
    Some(Settings {
        rate_bps: rate.unwrap_or(RATE_BPS),
        delay_ns: delay.map_or(DELAY_NS, |it| it.as_nanos().min(u64::MAX.into()) as u64),
        lossless: lanes.lossless(),
    })
}

/// Keys that only ports of another kind have.
fn refuse_of_others(table: &Table<'_>, asked: &Asked<'_>) {
    const DRIVER: &str = "only a port with vhost_user = \"SOCKET\" has a ring of a driver";
    const PAUSES: &str = "pauses are sent and obeyed at a port with shm = \"SOCKET\" alone; an \
                          adapter does it itself ([[adapter]])";
    const TAP: &str = "only a port with tap = \"INTERFACE\" has it";
    const RING: &str =
        "only a port with shm = \"SOCKET\" or xdp = \"INTERFACE\" has buffers of its own";
    const BUFFER: &str = "only a port with shm = \"SOCKET\" has buffers of its own";
    const MODE: &str = "only a port with xdp = \"INTERFACE\" has sockets of AF_XDP of its own";
    let (is_cable, is_xdp) = (asked.shm.is_some(), asked.xdp.is_some());
    let only: [(&[&'static str], bool, &str); 6] = [
        (&["in_order"], asked.vhost_user.is_some(), DRIVER),
        (&["pfc", "rate", "delay"], is_cable, PAUSES),
        (&["backpressure", "persist"], asked.tap.is_some(), TAP),
        (&["ring"], is_cable || is_xdp, RING),
        (&["buffer"], is_cable, BUFFER),
        (&["mode"], is_xdp, MODE),
    ];
    for (keys, is_known, reason) in only {
        for &key in keys.iter().filter(|_| !is_known) {
            table.refuse(key, reason);
        }
    }
}

fn read_xdp(table: &Table<'_>, name: &str, queues: Option<u16>, relayed: Reserved) -> Option<Kind> {
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
        relayed: relayed.relayed(),
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
