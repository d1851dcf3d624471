//! `[traffic.*]`: what is sent, when, and on which ports.

mod arrivals;
mod bulk;
mod datagrams;
mod hotspot;
mod program;
mod queries;
mod trace;

pub use hotspot::check as check_hotspots;

use std::{path::Path, time::Duration};

use sluicegate_config::{
    bound::Bytes,
    problem::Complaint,
    table::{Item, Table},
    units::parse_rate,
};

use super::{
    Checks, TIMES_ADVICE, complain_of, duration, is_name, network::Network, pairs, routing,
};
use crate::{
    bounds,
    cdf::Cdf,
    experiment::{Tenant, Traffic, TrafficKind},
    hotspot::HotspotType,
    ports::{self, FIRST_PORT, LAST_PORT},
    routings,
};

/// First port of the first table unless it says otherwise: above what systems listen on.
const USUAL_PORT: u32 = 10_000;

/// Of a blast, unless its table says otherwise: more than any window that a short path needs.
const BLAST_SPAN_BYTES: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bulk,
    Blast,
    Datagrams,
    Hotspot,
    PingPong,
    Incast,
    Messages,
    Program,
    Queries,
    Shuffle,
    Trace,
}

/// Reads every traffic table in the order of the file.
pub fn read(
    root: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    checks: &Checks<'_>,
    total: Duration,
) -> Vec<Traffic> {
    let Some(table) = root.table("traffic") else {
        let advice = "add one, for example [traffic.bulk] with kind = \"bulk\"";
        root.item()
            .complain("no [traffic.NAME] says what is sent", advice);
        return Vec::new();
    };
    let mut all: Vec<Traffic> = Vec::new();
    let mut next_port = USUAL_PORT;
    for (name, item) in table.named() {
        if !is_name(name) {
            item.complain(format!("\"{name}\" is no name"), super::NAME_ADVICE);
        }
        let Some(own) = item.table() else {
            continue;
        };
        let traffic = read_one(name, &own, network, tenants, checks, next_port);
        check_start(&own, total);
        own.close();
        if let Some(mut traffic) = traffic {
            place_ports(&item, &mut traffic, &all);
            next_port = traffic.port_range().end;
            all.push(traffic);
        }
    }
    all
}

fn read_one(
    name: &str,
    table: &Table<'_>,
    network: &Network,
    tenants: &[Tenant],
    checks: &Checks<'_>,
    default_port: u32,
) -> Option<Traffic> {
    let kind = read_kind(table);
    let spread = matches!(kind, Some(Kind::Shuffle | Kind::Trace));
    let start = duration(table, "start").unwrap_or(Duration::ZERO);
    let stop = duration(table, "stop");
    if stop.is_some_and(|stop| stop <= start) {
        complain_of(table, "stop", "must come after `start`");
    }
    let mut hotspot = None;
    let (special, pairs) = match kind {
        Some(Kind::Queries) => queries::read(table, checks.directory, network, tenants),
        Some(Kind::Program) => program::read(table, network, tenants, checks),
        Some(Kind::Hotspot) => match hotspot::read(table, network, tenants, start, stop) {
            Some(hot) => {
                hotspot = Some(hot.hotspot);
                (Some(hot.kind), hot.pairs)
            }
            None => (None, Vec::new()),
        },
        _ => (
            None,
            pairs::read(table, network, tenants, spread, checks.seed),
        ),
    };
    let port = table.within("port", &bounds::PORT);
    let port = port.map_or(default_port, |port| port as u32);
    // Where the output is at fault, its sources send before and after, too.
    let (start, stop) = match &hotspot {
        Some(hotspot) if hotspot.kind == HotspotType::Output => (Duration::ZERO, None),
        _ => (start, stop),
    };
    let deadline = read_deadline(table, kind);
    if network.cee.is_none() {
        let reason = "needs a [network.cee]: plain Ethernet has no priorities";
        table.refuse("priority", reason);
    }
    let priority = table.within("priority", &bounds::PRIORITY).unwrap_or(0) as u8;
    Some(Traffic {
        name: name.to_owned(),
        kind: match kind? {
            Kind::Bulk => bulk::read(name, table)?,
            Kind::Blast => read_blast(table)?,
            Kind::Datagrams => datagrams::read(
                table,
                checks.directory,
                network.mtu_bytes,
                network.ip_version,
            )?,
            Kind::PingPong => TrafficKind::PingPong {
                bytes: read_bytes(table, Some(64))?,
                interval: duration(table, "interval").unwrap_or(Duration::ZERO),
            },
            Kind::Incast => TrafficKind::Incast {
                bytes: read_bytes(table, None)?,
                interval: duration(table, "interval").unwrap_or(Duration::ZERO),
            },
            Kind::Messages => read_messages(name, table)?,
            Kind::Queries | Kind::Hotspot | Kind::Program => special?,
            Kind::Shuffle => TrafficKind::Shuffle {
                bytes: read_bytes(table, None)?,
                parallel: table.within("parallel", &bounds::PARALLEL).unwrap_or(2) as u32,
                class: read_class(name, table),
            },
            Kind::Trace => trace::read(table, checks.directory, network, tenants, &pairs)?,
        },
        pairs,
        start,
        stop,
        port: u16::try_from(port).unwrap_or(u16::MAX),
        shares_ports: false,
        deadline,
        priority,
        routing: {
            let common = routings::of(network.routing, &network.routings, priority);
            routing::read_own(table, common)
        },
        hotspot,
    })
}

/// Refuses traffic that begins when the run is over: it is never sent.
fn check_start(table: &Table<'_>, total: Duration) {
    let Some(item) = table.get("start") else {
        return;
    };
    let start = duration(table, "start").unwrap_or(Duration::ZERO);
    if start >= total {
        let reason = format!("nothing would be sent: the run ends at {total:?}");
        item.complain(reason, TIMES_ADVICE);
    }
}

/// Only what completes can be late.
fn read_deadline(table: &Table<'_>, kind: Option<Kind>) -> Option<Duration> {
    let completes = !matches!(
        kind,
        Some(
            Kind::Bulk
                | Kind::Blast
                | Kind::Datagrams
                | Kind::Hotspot
                | Kind::PingPong
                | Kind::Program
        )
    ) || kind == Some(Kind::Bulk) && table.get("class").is_some();
    if !completes {
        table.refuse("deadline", "belongs to traffic with completion times");
        return None;
    }
    let deadline = duration(table, "deadline")?;
    if deadline.is_zero() {
        complain_of(table, "deadline", "must not be zero");
    }
    Some(deadline)
}

fn read_kind(table: &Table<'_>) -> Option<Kind> {
    let kinds = [
        ("bulk", Kind::Bulk),
        ("blast", Kind::Blast),
        ("datagrams", Kind::Datagrams),
        ("hotspot", Kind::Hotspot),
        ("ping-pong", Kind::PingPong),
        ("incast", Kind::Incast),
        ("messages", Kind::Messages),
        ("program", Kind::Program),
        ("queries", Kind::Queries),
        ("shuffle", Kind::Shuffle),
        ("trace", Kind::Trace),
    ];
    let kind = table.choice("kind", &kinds);
    if kind.is_none() {
        if table.get("kind").is_none() {
            let names = kinds.map(|(name, _)| name).join(", ");
            table.require("kind", &format!("use one of {names}"));
        }
        // Which of these keys are valid depends on the kind: without one, none is called unknown.
        for key in [
            "rate",
            "bytes",
            "span",
            "interval",
            "class",
            "parallel",
            "sizes",
            "load",
            "concurrent",
            "classes",
            "phases",
            "burst",
            "bursts",
            "arrivals",
            "socket_buffer",
            "request",
            "queries",
            "intra_rack",
            "type",
            "link",
            "severity",
            "degree",
            "drain",
            "goal",
            "collective",
            "algorithm",
            "size",
            "grid",
            "distance",
            "iterations",
            "compute",
            "training",
            "nas",
            "on",
            "ranks",
            "placement",
            "eager",
            "transport",
            "handshakes",
        ] {
            table.get(key);
        }
        table.get("max_bytes");
    }
    kind
}

fn read_bytes(table: &Table<'_>, default: Option<u64>) -> Option<u64> {
    let Some(item) = table.get("bytes") else {
        if default.is_none() {
            table.require("bytes", "for example bytes = \"16KB\"");
        }
        return default;
    };
    let Bytes(bytes) = item.within(&bounds::BYTES)?;
    Some(bytes)
}

/// A span from a byte to what a window can be at most.
fn read_blast(table: &Table<'_>) -> Option<TrafficKind> {
    if table.get("rate").is_none() {
        table.require("rate", "for example rate = \"100Mbit\"");
    }
    let span_bytes = match table.get("span") {
        Some(item) => item.within(&bounds::SPAN)?.0,
        None => BLAST_SPAN_BYTES,
    };
    Some(TrafficKind::Blast {
        rate_bps: table.parse("rate", parse_rate)?,
        span_bytes,
    })
}

/// The class of completion times, by default the name of the table.
fn read_class(name: &str, table: &Table<'_>) -> String {
    let Some(item) = table.get("class") else {
        return name.to_owned();
    };
    let class = item.text().unwrap_or(name);
    if !is_name(class) {
        item.complain(format!("\"{class}\" is no name"), super::NAME_ADVICE);
    }
    class.to_owned()
}

fn read_messages(name: &str, table: &Table<'_>) -> Option<TrafficKind> {
    let class = read_class(name, table);
    let bytes = read_bytes(table, None);
    let Some(interval) = duration(table, "interval") else {
        if table.get("interval").is_none() {
            table.require("interval", "for example interval = \"100ms\"");
        }
        return None;
    };
    if interval.is_zero() {
        complain_of(table, "interval", "must not be zero");
    }
    Some(TrafficKind::Messages {
        bytes: bytes?,
        interval,
        class,
    })
}

fn sizes_advice() -> String {
    let names: Vec<_> = Cdf::built_in_names().collect();
    format!("use {} or the path of a `bytes,cdf` file", names.join(", "))
}

fn read_sizes(item: &Item<'_>, directory: &Path) -> Option<Cdf> {
    item.parse(|text| {
        if let Some(cdf) = Cdf::built_in(text) {
            return Ok(cdf);
        }
        let path = directory.join(text);
        let content = std::fs::read_to_string(&path).map_err(|error| {
            Complaint::new(
                format!("{} cannot be read: {error}", path.display()),
                sizes_advice(),
            )
        })?;
        let name = path.display().to_string();
        Cdf::parse(&name, &content)
            .map_err(|p| Complaint::new(format!("{}:{}: {}", p.file, p.line, p.reason), p.advice))
    })
}

/// Finds ports for traffic: one for each pair if there are so many behind the first. Else each
/// receiver numbers its own, and where these do not fit either, they begin at the lowest free port,
/// unless `port` says where.
fn place_ports(item: &Item<'_>, traffic: &mut Traffic, others: &[Traffic]) {
    traffic.shares_ports = !traffic.has_ports();
    let is_given = item
        .table()
        .is_some_and(|table| table.get("port").is_some());
    if !traffic.has_ports() && !is_given {
        traffic.port = ports::free(traffic.ports(), others).unwrap_or(traffic.port);
    }
    let own = traffic.port_range();
    if !traffic.has_ports() {
        let reason = format!(
            "a receiver needs ports {} to {}, beyond {LAST_PORT}",
            own.start,
            own.end - 1
        );
        let most = LAST_PORT + 1 - FIRST_PORT;
        let advice = format!("use a lower `port`, and at most {most} pairs for each receiver");
        item.complain(reason, advice);
    }
    for other in others {
        let theirs = other.port_range();
        if own.start < theirs.end && theirs.start < own.end {
            item.complain(
                format!(
                    "its ports {} to {} are those of traffic \"{}\"",
                    own.start,
                    own.end - 1,
                    other.name
                ),
                "move one of them with `port`",
            );
        }
    }
}
