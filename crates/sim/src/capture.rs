//! Captures: what passed hosts and links, as files that Wireshark reads.
//!
//! Times are those of a frame's last bit on the wire. A port knows it as soon as it accepts a
//! frame, which may be long before; so frames wait here until nothing earlier can come.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use sluicegate_core::number::narrow;
use sluicegate_fabric::{
    cee::{Notification, PRIORITIES},
    graph::PortId,
};
use sluicegate_pcapng::{Direction, Passage, Writer};
use sluicegate_scenario::{
    experiment::{HostId, Node, Variant},
    inspect::{Captures, Point},
};

use crate::{
    frame::{self, Route},
    packet::{Blocks, Packet},
};

/// Where a frame is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Leaving a port; the time is that of its last bit.
    Sent,
    /// At a port's far end, handed to the host there.
    Arrived,
}

/// A packet's passage.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Where.
    pub port: PortId,
    /// At which end of the wire.
    pub side: Side,
    /// Simulated time.
    pub now_ps: u64,
    /// When its last bit passes, now or later.
    pub at_ps: u64,
    /// The priority in its tag; `None` = it has none.
    pub priority: Option<u8>,
}

/// Every capture of a run.
pub struct Capture {
    files: Vec<Sink>,
    /// By port: what is seen leaving it, and at its far end.
    sent: Vec<Vec<Tap>>,
    arrived: Vec<Vec<Tap>>,
    /// Between a frame's departure as the adapter's model has it and the wire.
    transmit_ps: u64,
    /// Between a frame's arrival at a host's adapter and at its tenant.
    receive_ps: u64,
    snaplen_bytes: usize,
    frame: Vec<u8>,
    failed: Option<anyhow::Error>,
}

/// One interface of one file.
#[derive(Clone, Copy)]
struct Tap {
    file: usize,
    interface: u32,
    direction: Direction,
    /// From the adapter's model to the wire.
    shift_ps: i64,
}

impl Capture {
    /// Opens a file for each host and link of `variant` that is asked for, in `directory`, which is
    /// made.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn open(asked: &Captures, variant: &Variant, directory: &Path) -> Result<Self> {
        let mut capture = Self {
            files: Vec::new(),
            sent: vec![Vec::new(); variant.ports().len()],
            arrived: vec![Vec::new(); variant.ports().len()],
            // Adapters of converged Ethernet get a frame when the stack has had its time.
            transmit_ps: match variant.cee {
                Some(_) => 0,
                None => ps(variant.sim.transmit_delay),
            },
            receive_ps: ps(variant.sim.receive_delay),
            snaplen_bytes: asked.snaplen_bytes as usize,
            frame: Vec::new(),
            failed: None,
        };
        for (name, point) in asked.points(variant) {
            let interfaces = match point {
                Point::Host(_) => vec![name.to_owned()],
                Point::Link(link) => directions(variant, link),
            };
            capture
                .files
                .push(Sink::open(directory, name, &interfaces, asked)?);
            match point {
                Point::Host(host) => capture.tap_host(variant, host),
                Point::Link(link) => capture.tap_link(variant, link),
            }
        }
        Ok(capture)
    }

    /// Captures the frames that the adapters of a host send and receive.
    fn tap_host(&mut self, variant: &Variant, host: HostId) {
        for port in variant.ports() {
            if variant.ends(port).0 == Node::Host(host) {
                let sent = self.tap(0, Direction::Outbound, self.transmit_ps as i64);
                let arrived = self.tap(0, Direction::Inbound, -(self.receive_ps as i64));
                self.sent[port.index()].push(sent);
                self.arrived[port.opposite().index()].push(arrived);
            }
        }
    }

    /// Captures the frames that both ends of a link send.
    fn tap_link(&mut self, variant: &Variant, link: usize) {
        for (interface, port) in (0..).zip(PortId::both_of(link)) {
            let shift_ps = match variant.ends(port).0 {
                Node::Host(_) => self.transmit_ps as i64,
                Node::Switch(_) => 0,
            };
            let sent = self.tap(interface, Direction::Outbound, shift_ps);
            self.sent[port.index()].push(sent);
        }
    }

    /// An interface of the file that was opened last.
    fn tap(&self, interface: u32, direction: Direction, shift_ps: i64) -> Tap {
        Tap {
            file: self.files.len() - 1,
            interface,
            direction,
            shift_ps,
        }
    }

    fn taps(&self, port: PortId, side: Side) -> &[Tap] {
        let taps = match side {
            Side::Sent => &self.sent,
            Side::Arrived => &self.arrived,
        };
        taps.get(port.index()).map_or(&[], Vec::as_slice)
    }

    /// Whether packets that pass there are captured.
    pub fn follows(&self, port: PortId, side: Side) -> bool {
        self.failed.is_none() && !self.taps(port, side).is_empty()
    }

    /// A packet passes.
    pub fn packet(&mut self, seen: Seen, packet: &Packet, blocks: &Blocks, route: &Route) {
        frame::write(&mut self.frame, packet, blocks, route);
        self.passed(seen);
    }

    /// A PFC frame passes; `source` and `times` as [`frame::pfc`] has them.
    pub fn pfc(&mut self, seen: Seen, source: [u8; 6], times: [Option<u16>; PRIORITIES]) {
        frame::pfc(&mut self.frame, source, times);
        self.passed(seen);
    }

    /// A congestion notification passes.
    pub fn cnm(&mut self, seen: Seen, notification: &Notification) {
        frame::cnm(&mut self.frame, notification);
        self.passed(seen);
    }

    /// The frame that has been written into `frame` passes.
    fn passed(&mut self, seen: Seen) {
        let Seen {
            port,
            side,
            now_ps,
            at_ps,
            priority,
        } = seen;
        if let Some(priority) = priority {
            frame::tag(&mut self.frame, priority);
        }
        let wire_bytes = narrow::<u32>(self.frame.len());
        self.frame.truncate(self.snaplen_bytes);
        for index in 0..self.taps(port, side).len() {
            let tap = self.taps(port, side)[index];
            let frame = Waiting {
                port,
                leaves_ps: at_ps,
                at_ps: at_ps.saturating_add_signed(tap.shift_ps),
                number: 0,
                interface: tap.interface,
                direction: tap.direction,
                wire_bytes,
                head: self.frame.clone(),
            };
            let file = &mut self.files[tap.file];
            file.add(frame);
            // Whatever comes next has passed no earlier than this.
            let done = file.write_until(now_ps.saturating_sub(self.receive_ps));
            if let Err(error) = done {
                self.failed.get_or_insert(error);
            }
        }
    }

    /// A port's link fails: what waits to leave by it never will.
    pub fn cut(&mut self, port: PortId, now_ps: u64) {
        for file in &mut self.files {
            let leaves = |frame: &Waiting| frame.port != port || frame.leaves_ps <= now_ps;
            file.waiting.retain(|Reverse(frame)| leaves(frame));
        }
    }

    /// Ends the files with what has passed by `end_ps`. Only now they have their names.
    ///
    /// # Errors
    /// The first that occurred in any file.
    pub fn finish(mut self, end_ps: u64) -> Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.files
            .drain(..)
            .try_for_each(|file| file.finish(end_ps))
    }
}

/// `from>to`, both ways.
fn directions(variant: &Variant, link: usize) -> Vec<String> {
    let name = |port| variant.port_name(port);
    PortId::both_of(link).map(name).to_vec()
}

fn ps(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_mul(1_000)
}

/// A capture file while it is written.
struct Sink {
    path: PathBuf,
    /// Its name until it is complete.
    half: PathBuf,
    writer: Option<Writer<BufWriter<File>>>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    frames: u64,
}

/// A frame that something earlier may still overtake; ordered by time, then by arrival here.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at_ps: u64,
    number: u64,
    /// The port that it leaves by, and when.
    port: PortId,
    leaves_ps: u64,
    interface: u32,
    direction: Direction,
    wire_bytes: u32,
    head: Vec<u8>,
}

impl Sink {
    fn open(directory: &Path, name: &str, interfaces: &[String], asked: &Captures) -> Result<Self> {
        let path = directory.join(format!("{name}.pcapng"));
        let half = directory.join(format!(".{name}.pcapng.new"));
        let open = || -> io::Result<_> {
            fs::create_dir_all(directory)?;
            let file = BufWriter::new(File::create(&half)?);
            Writer::new(file, interfaces, asked.snaplen_bytes)
        };
        let writer = open().with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Self {
            path,
            half,
            writer: Some(writer),
            waiting: BinaryHeap::new(),
            frames: 0,
        })
    }

    fn add(&mut self, mut frame: Waiting) {
        frame.number = self.frames;
        self.frames += 1;
        self.waiting.push(Reverse(frame));
    }

    fn write_until(&mut self, until_ps: u64) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        while let Some(Reverse(next)) = self.waiting.peek() {
            if next.at_ps > until_ps {
                break;
            }
            let passage = Passage {
                interface: next.interface,
                direction: next.direction,
                time_ns: next.at_ps / 1_000,
                wire_bytes: next.wire_bytes,
                comment: None,
            };
            writer
                .frame(&passage, |to| to.extend(&next.head))
                .with_context(|| format!("{}: cannot be written", self.path.display()))?;
            self.waiting.pop();
        }
        Ok(())
    }

    fn finish(mut self, end_ps: u64) -> Result<()> {
        self.write_until(end_ps)?;
        let finished = self.writer.take().map_or(Ok(()), Writer::finish);
        finished
            .and_then(|()| fs::rename(&self.half, &self.path))
            .with_context(|| format!("{}: cannot be written", self.path.display()))
    }
}

impl Drop for Sink {
    /// A run that failed leaves no half a file; of a complete one there is nothing to remove.
    fn drop(&mut self) {
        if self.writer.is_some() {
            let _ = fs::remove_file(&self.half);
        }
    }
}
