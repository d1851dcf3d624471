//! `kind = "datagrams"`.

use std::path::Path;

use sluicegate_config::{bound::Bytes, table::Table, units::parse_rate};

use super::{super::ETHERNET_BYTES, arrivals, read_sizes};
use crate::bounds;
use crate::experiment::{Arrivals, Pace, Sizes, TrafficKind};

/// The data that an application may have waiting for its adapter: a little above Linux's
/// `net.core.wmem_default`.
const SOCKET_BUFFER_BYTES: u64 = 256_000;

/// IP and UDP headers without options.
const HEADERS_V4_BYTES: u32 = 20 + 8;
const HEADERS_V6_BYTES: u32 = 40 + 8;

const ADVICE: &str = "give a constant `rate`, or bursts: `burst = \"28KB\"` or `bursts = \"background-medium\"` \
    with `load`, `interval` or `arrivals`";

pub fn read(
    table: &Table<'_>,
    directory: &Path,
    mtu_bytes: u32,
    ip_version: u8,
) -> Option<TrafficKind> {
    let frames = read_frames(table, mtu_bytes, ip_version);
    let pace = read_pace(table, directory);
    Some(frames?.at(pace?))
}

/// Datagrams but for when they are sent.
pub struct Frames {
    payload_bytes: u16,
    headers_bytes: u32,
    socket_buffer_bytes: u64,
}

fn headers_bytes(ip_version: u8) -> u32 {
    match ip_version {
        4 => HEADERS_V4_BYTES,
        _ => HEADERS_V6_BYTES,
    }
}

/// The payload of a datagram that fills the MTU.
pub fn payload_bytes(mtu_bytes: u32, ip_version: u8) -> u16 {
    let bytes = mtu_bytes.saturating_sub(headers_bytes(ip_version));
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// Reads `bytes` and `socket_buffer`.
pub fn read_frames(table: &Table<'_>, mtu_bytes: u32, ip_version: u8) -> Option<Frames> {
    let headers_bytes = headers_bytes(ip_version);
    let payload_bytes = read_payload(table, mtu_bytes - headers_bytes);
    let socket_buffer_bytes = read_buffer(table);
    Some(Frames {
        payload_bytes: payload_bytes?,
        headers_bytes: headers_bytes + ETHERNET_BYTES,
        socket_buffer_bytes: socket_buffer_bytes?,
    })
}

impl Frames {
    /// The rate on a link of so much payload; both in bits per second.
    pub fn wire(&self, payload_bps: f64) -> f64 {
        let payload_bytes = f64::from(self.payload_bytes);
        payload_bps * (payload_bytes + f64::from(self.headers_bytes)) / payload_bytes
    }

    /// The payload of so much on a link.
    pub fn payload(&self, wire_bps: f64) -> f64 {
        let payload_bytes = f64::from(self.payload_bytes);
        wire_bps * payload_bytes / (payload_bytes + f64::from(self.headers_bytes))
    }

    /// Sent at this pace.
    pub fn at(&self, pace: Pace) -> TrafficKind {
        TrafficKind::Datagrams {
            bytes: self.payload_bytes,
            pace,
            socket_buffer_bytes: self.socket_buffer_bytes,
        }
    }
}

/// Reads `bytes`, the payload of a datagram; by default as much as a frame holds.
fn read_payload(table: &Table<'_>, most_bytes: u32) -> Option<u16> {
    let Some(item) = table.get("bytes") else {
        return u16::try_from(most_bytes).ok();
    };
    let Bytes(bytes) = item.within(&bounds::DATAGRAM.up_to(Bytes(most_bytes.into())))?;
    u16::try_from(bytes).ok()
}

fn read_buffer(table: &Table<'_>) -> Option<u64> {
    let Some(item) = table.get("socket_buffer") else {
        return Some(SOCKET_BUFFER_BYTES);
    };
    let Bytes(bytes) = item.within(&bounds::SOCKET_BUFFER)?;
    Some(bytes)
}

fn read_pace(table: &Table<'_>, directory: &Path) -> Option<Pace> {
    let sizes = match (table.get("burst"), table.get("bursts")) {
        (Some(item), drawn) => {
            if drawn.is_some() {
                table.refuse("bursts", "`burst` says it");
            }
            let Bytes(bytes) = item.within(&bounds::BURST)?;
            Some(Sizes::Fixed(bytes))
        }
        (None, Some(item)) => Some(Sizes::Drawn(read_sizes(&item, directory)?)),
        (None, None) => None,
    };
    let Some(sizes) = sizes else {
        for key in ["load", "interval", "arrivals"] {
            table.refuse(key, "belongs to bursts");
        }
        if table.get("rate").is_none() {
            table.require("rate", ADVICE);
        }
        return Some(Pace::Rate(table.parse("rate", parse_rate)?.max(1)));
    };
    table.refuse("rate", "bursts have a `load`");
    let arrivals = read_arrivals(table, directory, &sizes)?;
    Some(Pace::Bursts { sizes, arrivals })
}

/// A mean from `load` or `interval`, and how times vary about it; or `arrivals` says both.
fn read_arrivals(table: &Table<'_>, directory: &Path, sizes: &Sizes) -> Option<Arrivals> {
    let said = table.get("arrivals");
    let known = [("fixed", false), ("exponential", true)];
    let by_name = said.as_ref().and_then(|item| {
        let text = item.is_text().then(|| item.text())??;
        let (_, exponential) = known.iter().find(|(name, _)| *name == text)?;
        Some(*exponential)
    });
    if let (Some(item), None) = (&said, by_name) {
        for key in ["load", "interval"] {
            table.refuse(key, "`arrivals` say it");
        }
        return arrivals::read(item, directory);
    }
    let mean_s = match (table.get("load"), table.get("interval")) {
        (Some(item), interval) => {
            if interval.is_some() {
                table.refuse("interval", "`load` says it");
            }
            let load_bps = item.parse(parse_rate)?;
            if load_bps == 0 {
                item.complain("must not be zero", "");
                return None;
            }
            sizes.mean_bytes() * 8.0 / load_bps as f64
        }
        (None, Some(_)) => arrivals::read_seconds(table, "interval")?,
        (None, None) => {
            table.require("load", ADVICE);
            return None;
        }
    };
    Some(match by_name.unwrap_or(true) {
        true => Arrivals::Exponential { mean_s },
        false => Arrivals::Fixed { interval_s: mean_s },
    })
}
