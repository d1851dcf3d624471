//! The thread between a capture and its client.
//!
//! A client asks by a line of JSON, gets `{"ok": {"points": […]}}` and behind it the file, until it
//! shuts down its half of the connection or the capture is complete. Whatever a client does or does
//! not do, it has only this thread.

use std::{
    io::{self, ErrorKind, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};
use rtrb::{Consumer, RingBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use sluicegate_config::table::nearest;

use super::{Asked, Point, ROOM, Tap};
use crate::{service::Service, worker::Worker};

/// Between two looks at a ring that was empty: short enough that it does not fill meanwhile.
const PAUSE_NS: i64 = 2_000_000;

/// A client that takes nothing is left alone for so long before the capture's end is looked at.
const TICK: Duration = Duration::from_millis(100);

/// At the end of a capture a client has so long to take something.
const PATIENCE: Duration = Duration::from_secs(5);

/// Captures for a client until the capture ends, and tells it what is wrong with its question.
///
/// # Errors
/// Those of its connection.
pub fn serve(mut stream: UnixStream, asked: &Asked, service: &Service) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let Begun {
        records,
        tap,
        is_complete,
        points,
    } = match begin(asked, service) {
        Ok(begun) => begun,
        Err(error) => return writeln!(stream, "{}", json!({ "error": format!("{error:#}") })),
    };
    let answer = json!({ "ok": { "points": points } });
    let sent = writeln!(stream, "{answer}").and_then(|()| stream.set_write_timeout(Some(TICK)));
    let mut session = Session { stream, records };
    let until = (asked.duration_ns).map(|ns| Instant::now() + Duration::from_nanos(ns));
    let followed = sent.and_then(|()| {
        session.follow(|| {
            is_complete.load(Ordering::Acquire)
                || until.is_some_and(|until| Instant::now() >= until)
                || service.is_replaced()
                || service.has_ended()
        })
    });
    let shown = Arc::clone(&tap);
    let ended = service.each(move |worker| worker.engine.end_capture(&shown));
    followed?;
    session.drain()?;
    // A switch that has ended has left what it had captured, and no counts.
    if let Some(Ok(tap)) = ended
        .ok()
        .and_then(|_| Arc::into_inner(tap))
        .map(Mutex::into_inner)
    {
        tap.finish()?;
    }
    session.drain()
}

/// A capture that has begun.
struct Begun {
    /// A ring that fills from now on.
    records: Consumer<u8>,
    tap: Arc<Mutex<Tap>>,
    /// Says that it has all.
    is_complete: Arc<AtomicBool>,
    /// The names of what is captured.
    points: Vec<String>,
}

fn begin(asked: &Asked, service: &Service) -> anyhow::Result<Begun> {
    let numbered = |worker: &mut Worker| {
        let bays = worker.engine.bays();
        let bays = bays.map(|(number, bay)| (number, bay.name.clone()));
        bays.collect::<Vec<_>>()
    };
    let call_failed = |reason: String| anyhow!(reason);
    // Each thread knows all ports.
    let ports = service.handle().call(numbered).map_err(call_failed)?;
    let names: Vec<_> = ports.iter().map(|(_, name)| name.clone()).collect();
    check(asked, &names)?;
    let (ring, records) = RingBuffer::new(ROOM);
    let tap = Tap::new(
        asked,
        ports.iter().map(|(number, name)| (*number, &name[..])),
        ring,
    )?;
    let is_complete = Arc::clone(tap.is_complete());
    let tap = Arc::new(Mutex::new(tap));
    let shown = Arc::clone(&tap);
    let begun = service.each(move |worker| worker.engine.begin_capture(&shown));
    let begun: anyhow::Result<Vec<()>> = begun.map_err(call_failed)?.into_iter().collect();
    if let Err(error) = begun {
        let shown = Arc::clone(&tap);
        let ended = service.each(move |worker| worker.engine.end_capture(&shown));
        ended.map_err(call_failed)?;
        return Err(error);
    }
    let points = names.iter().flat_map(|name| {
        let points = Point::ALL.into_iter();
        let points = points.filter(move |&point| asked.wants(name, point));
        points.map(move |point| format!("{name} {}", point.name()))
    });
    Ok(Begun {
        points: points.collect(),
        records,
        tap,
        is_complete,
    })
}

/// Whether there are such ports.
fn check(asked: &Asked, names: &[String]) -> anyhow::Result<()> {
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    if known.is_empty() {
        bail!("the switch has no ports");
    }
    for port in &asked.ports {
        if !known.contains(&&port[..]) {
            let advice = match nearest(port, &known) {
                near if near.is_empty() => format!("; there are {}", known.join(", ")),
                near => near,
            };
            bail!("no port \"{port}\"{advice}");
        }
    }
    Ok(())
}

struct Session {
    stream: UnixStream,
    records: Consumer<u8>,
}

impl Session {
    /// Sends what is captured until the capture is over, or its client wants no more.
    fn follow(&mut self, is_over: impl Fn() -> bool) -> io::Result<()> {
        while !is_over() && !self.records.is_abandoned() && !self.has_hung_up()? {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what is left.
    fn drain(&mut self) -> io::Result<()> {
        let mut last = Instant::now();
        while !self.records.is_empty() {
            if self.send()? > 0 {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Sends what the client takes, and returns how many bytes.
    fn send(&mut self) -> io::Result<usize> {
        let there = self.records.slots();
        let Ok(chunk) = self.records.read_chunk(there) else {
            return Ok(0);
        };
        let bytes = match self.stream.write(chunk.as_slices().0) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock => 0,
                _ => return Err(error),
            },
        };
        chunk.commit(bytes);
        Ok(bytes)
    }

    /// Whether the client has gone or wants no more. While nothing is to be sent this waits.
    fn has_hung_up(&self) -> io::Result<bool> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: if self.records.is_empty() { PAUSE_NS } else { 0 },
        };
        let mut ends = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        match poll(&mut ends, Some(&wait)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
