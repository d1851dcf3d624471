//! Captures: frames at points of ports, on their way to clients of the control socket.
//!
//! ```text
//!  engine ──▶ Tap: chosen ports, points, addresses ──blocks of pcapng──▶ bounded ring
//!                                                                            │
//!                                 client ◀── its socket ◀── thread of a session
//! ```
//!
//! The thread of the switch never waits for a client: a frame that finds no room in the ring is
//! counted, and the counts are told at the end of the file.

pub mod session;

use std::{
    io::{self, ErrorKind, Write},
    net::IpAddr,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use anyhow::ensure;
use rtrb::Producer;
use serde::{Deserialize, Serialize};
use sluicegate_pcapng::{Direction, Passage, Writer};
use sluicegate_vswitch::{filter::is_tag, learning::Mac};

use crate::{config::read_mac, count::Drop, port::Outgoing};

/// Bytes of blocks that wait for a client at most.
pub const ROOM: usize = 16 << 20;

/// Captures that may run at the same time.
pub const CAPTURES_MAX: usize = 8;

/// The snap length that keeps every frame whole.
pub const SNAPLEN: u32 = 262_144;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Where a frame is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Point {
    /// Taken from a port, as its sender left it.
    In,
    /// Delivered to a port, as its receiver has it.
    Out,
    /// Dropped at a port, as the switch had it.
    Drop,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::In, Self::Out, Self::Drop];

    /// Its name.
    pub fn name(self) -> &'static str {
        ["in", "out", "drop"][self as usize]
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|point| point.name() == text);
        found.ok_or_else(|| format!("there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// What a client wants to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asked {
    /// Names of ports; none = all.
    pub ports: Vec<String>,
    /// Points; none = all.
    pub points: Vec<Point>,
    /// Bytes that are kept of each frame, at least 1.
    pub snaplen: u32,
    /// Frames after which it ends, at least 1.
    pub count: Option<u64>,
    /// Time after which it ends, ns.
    pub duration_ns: Option<u64>,
    /// Only frames from or to this Ethernet address.
    pub mac: Option<String>,
    /// Only frames from or to this IPv4 or IPv6 address, and ARP about it.
    pub address: Option<IpAddr>,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            points: Vec::new(),
            snaplen: SNAPLEN,
            count: None,
            duration_ns: None,
            mac: None,
            address: None,
        }
    }
}

impl Asked {
    fn wants(&self, name: &str, point: Point) -> bool {
        let port = self.ports.is_empty() || self.ports.iter().any(|port| port == name);
        port && (self.points.is_empty() || self.points.contains(&point))
    }
}

/// Addresses, of which a frame has all.
#[derive(Clone, Copy, Debug, Default)]
struct Filter {
    mac: Option<Mac>,
    address: Option<IpAddr>,
}

impl Filter {
    /// Whether a frame that begins so is wanted.
    fn lets(&self, start: &[u8]) -> bool {
        let mac = self.mac.is_none_or(|mac| {
            let mut ends = start.chunks(mac.len()).take(2);
            ends.any(|end| end == mac)
        });
        mac && self
            .address
            .is_none_or(|address| has_address(start, address))
    }
}

/// Whether an address is at an end of a packet, or ARP asks for it or says it.
fn has_address(start: &[u8], address: IpAddr) -> bool {
    let mut at = 12;
    let kind = loop {
        let Some(&[high, low]) = start.get(at..at + 2) else {
            return false;
        };
        let kind = u16::from_be_bytes([high, low]);
        if !is_tag(kind) {
            break kind;
        }
        at += 4;
    };
    let packet = &start[at + 2..];
    let is_at = |at: usize, octets: &[u8]| packet.get(at..at + octets.len()) == Some(octets);
    match (kind, address) {
        (IPV4, IpAddr::V4(it)) => is_at(12, &it.octets()) || is_at(16, &it.octets()),
        (ARP, IpAddr::V4(it)) => is_at(14, &it.octets()) || is_at(24, &it.octets()),
        (IPV6, IpAddr::V6(it)) => is_at(8, &it.octets()) || is_at(24, &it.octets()),
        _ => false,
    }
}

/// The ring on its way to a session, which gets whole blocks or none.
struct Room(Producer<u8>);

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let pushed = self.0.push_entire_slice(bytes);
        pushed.map_err(|_| ErrorKind::WouldBlock)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Frames of an interface of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    wanted: u64,
    lost: u64,
}

/// A capture, as the switch has it.
pub struct Tap {
    writer: Writer<Room>,
    /// By number of a port and point, the interface in the file.
    interfaces: Vec<[Option<u32>; Point::ALL.len()]>,
    tallies: Vec<Tally>,
    filter: Filter,
    snaplen: u32,
    /// Frames that are wanted still.
    left: u64,
    is_complete: Arc<AtomicBool>,
    start: (Instant, u64),
}

impl Tap {
    /// Of these ports, with their numbers.
    ///
    /// # Errors
    /// What is asked for makes no sense, or `ring` is too small.
    pub fn new<'a>(
        asked: &Asked,
        ports: impl Iterator<Item = (u16, &'a str)>,
        ring: Producer<u8>,
    ) -> anyhow::Result<Self> {
        ensure!(asked.snaplen > 0, "a snap length of 0 keeps nothing");
        ensure!(asked.count != Some(0), "a capture of 0 frames has none");
        let (mut interfaces, mut names) = (Vec::new(), Vec::new());
        for (number, port) in ports {
            let index = usize::from(number);
            if interfaces.len() <= index {
                interfaces.resize(index + 1, [None; Point::ALL.len()]);
            }
            for point in Point::ALL {
                if asked.wants(port, point) {
                    interfaces[index][point as usize] = Some(names.len() as u32);
                    names.push(format!("{port} {}", point.name()));
                }
            }
        }
        let mac = asked.mac.as_deref().map(read_mac);
        let mac = mac.transpose()?;
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Ok(Self {
            writer: Writer::new(Room(ring), &names, asked.snaplen)?,
            interfaces,
            tallies: vec![Tally::default(); names.len()],
            filter: Filter {
                mac,
                address: asked.address,
            },
            snaplen: asked.snaplen,
            left: asked.count.unwrap_or(u64::MAX),
            is_complete: Arc::default(),
            start: (Instant::now(), since_1970.as_nanos() as u64),
        })
    }

    /// Set when it has as many frames as were asked for.
    pub fn is_complete(&self) -> &Arc<AtomicBool> {
        &self.is_complete
    }

    /// Time since 1970 that goes forwards only, ns.
    fn time_ns(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.start.0);
        self.start.1 + passed.as_nanos() as u64
    }

    /// A frame is at a point of a port.
    fn see(&mut self, number: u16, seen: &Seen<'_>, now: Instant) {
        let interfaces = self.interfaces.get(usize::from(number));
        let interface = interfaces.and_then(|points| points[seen.point as usize]);
        let Some(interface) = interface.filter(|_| self.left > 0) else {
            return;
        };
        if !self.filter.lets(seen.frame.start) {
            return;
        }
        let passage = Passage {
            interface,
            direction: seen.direction,
            time_ns: self.time_ns(now),
            wire_bytes: seen.frame.bytes(),
            comment: seen.reason.map(|reason| Drop::NAMES[reason as usize]),
        };
        let kept = self.snaplen.min(passage.wire_bytes) as usize;
        let tally = &mut self.tallies[interface as usize];
        tally.wanted += 1;
        // A frame is not copied in vain.
        let has_room = self.writer.out().0.slots() > kept;
        let head = |to: &mut Vec<u8>| seen.frame.head(kept, to);
        if !has_room || self.writer.frame(&passage, head).is_err() {
            tally.lost += 1;
            return;
        }
        self.left -= u64::from(self.left != u64::MAX);
        if self.left == 0 {
            self.is_complete.store(true, Ordering::Release);
        }
    }

    /// The counts at the end of the file; there must be room for them.
    ///
    /// # Errors
    /// There is none.
    pub fn finish(mut self) -> io::Result<()> {
        let time_ns = self.time_ns(Instant::now());
        for (interface, tally) in (0..).zip(&self.tallies) {
            self.writer
                .statistics(interface, time_ns, tally.wanted, tally.lost)?;
        }
        self.writer.finish()
    }
}

/// A frame at a point.
pub struct Seen<'a> {
    /// Where.
    pub point: Point,
    /// Whether it comes from the port or goes to it.
    pub direction: Direction,
    /// Why it was dropped.
    pub reason: Option<Drop>,
    /// The frame.
    pub frame: Outgoing<'a>,
}

impl<'a> Seen<'a> {
    /// One that a port has got.
    pub fn delivered(frame: Outgoing<'a>) -> Self {
        Self {
            point: Point::Out,
            direction: Direction::Outbound,
            reason: None,
            frame,
        }
    }
}

/// All captures that run, as a thread has them. Threads share each; none of them waits for its
/// client.
#[derive(Default)]
pub struct Taps(Vec<Arc<Mutex<Tap>>>);

impl Taps {
    /// Adds one.
    ///
    /// # Errors
    /// There are as many as may be.
    pub fn add(&mut self, tap: &Arc<Mutex<Tap>>) -> anyhow::Result<()> {
        let most = CAPTURES_MAX;
        ensure!(self.0.len() < most, "{most} captures run already; end one");
        self.0.push(Arc::clone(tap));
        Ok(())
    }

    /// Ends one. Whether others run.
    pub fn remove(&mut self, tap: &Arc<Mutex<Tap>>) -> bool {
        self.0.retain(|known| !Arc::ptr_eq(known, tap));
        !self.0.is_empty()
    }

    /// A port has gone; another one may get its number.
    pub fn forget(&mut self, number: u16) {
        for tap in &self.0 {
            let mut tap = tap.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(points) = tap.interfaces.get_mut(usize::from(number)) {
                *points = Default::default();
            }
        }
    }

    /// A frame is at a point of a port.
    #[cold]
    pub fn see(&mut self, number: u16, seen: &Seen<'_>) {
        for tap in &self.0 {
            // Threads write one after the other, so times in a file go forwards.
            let mut tap = tap.lock().unwrap_or_else(PoisonError::into_inner);
            tap.see(number, seen, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
