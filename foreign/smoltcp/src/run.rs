//! One run: its clock, the pattern, and what was seen.

use std::{
    io::{self, BufRead, Read},
    process, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde_json::json;
use smoltcp::socket::tcp::{Socket, State};

use crate::Order;

/// Length after which the pattern repeats, and what one look at it shows at most.
const PERIOD: usize = 65_521;
const CHUNK: usize = 64 * 1024;

/// The state of a run.
pub struct Run {
    start: SystemTime,
    begin_ns: u64,
    end_ns: u64,
    stop_ns: u64,
    pattern: Vec<u8>,
    connected: bool,
    closed: bool,
    bytes: u64,
    verified: u64,
    measured: u64,
    last_ns: u64,
    gap_ns: u64,
    errors: Vec<String>,
}

impl Run {
    /// Says that all is ready and waits for the start. The process ends with its stdin.
    pub fn begin(order: &Order) -> Result<Self> {
        println!("ready");
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        let start = line.strip_prefix("start ").map(|ns| ns.trim().parse());
        let start_ns: u64 = start.context("no start")?.context("the start")?;
        thread::spawn(|| {
            // Whatever it says, it is over.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            process::exit(0);
        });
        let start = UNIX_EPOCH + Duration::from_nanos(start_ns);
        // A start that has passed needs no wait.
        thread::sleep(start.duration_since(SystemTime::now()).unwrap_or_default());
        Ok(Self {
            start,
            begin_ns: order.get("begin-ns")?,
            end_ns: order.get("end-ns")?,
            stop_ns: order.get("stop-ns")?,
            pattern: pattern(),
            connected: false,
            closed: false,
            bytes: 0,
            verified: 0,
            measured: 0,
            last_ns: 0,
            gap_ns: 0,
            errors: Vec::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(self.start);
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// The end of the run has come.
    pub fn over(&self) -> bool {
        self.now_ns() >= self.stop_ns
    }

    /// Does what the socket lets it.
    pub fn step(&mut self, socket: &mut Socket<'_>, sends: bool) {
        let open = matches!(socket.state(), State::Established | State::CloseWait);
        if self.connected && !open && !self.closed && !self.over() {
            self.closed = true;
            self.errors
                .push(format!("the connection ended in {}", socket.state()));
        }
        self.connected |= open;
        match sends {
            true => self.send(socket),
            false => self.receive(socket),
        }
    }

    fn send(&mut self, socket: &mut Socket<'_>) {
        while socket.can_send() && !self.over() {
            let phase = (self.bytes % PERIOD as u64) as usize;
            match socket.send_slice(&self.pattern[phase..phase + CHUNK]) {
                Ok(count) => self.bytes += count as u64,
                Err(error) => return self.errors.push(format!("sending: {error}")),
            }
        }
    }

    fn receive(&mut self, socket: &mut Socket<'_>) {
        while socket.can_recv() {
            let taken = socket.recv(|data| {
                let data = &data[..data.len().min(CHUNK)];
                self.count(data);
                (data.len(), ())
            });
            if let Err(error) = taken {
                return self.errors.push(format!("receiving: {error}"));
            }
        }
    }

    fn count(&mut self, data: &[u8]) {
        let now_ns = self.now_ns();
        let phase = (self.bytes % PERIOD as u64) as usize;
        if data == &self.pattern[phase..phase + data.len()] {
            self.verified += data.len() as u64;
        } else if self.errors.is_empty() {
            let at = self.bytes;
            self.errors
                .push(format!("payload differs behind byte {at} of the stream"));
        }
        self.bytes += data.len() as u64;
        if (self.begin_ns..self.end_ns).contains(&now_ns) {
            self.measured += data.len() as u64;
            self.gap(now_ns);
        }
    }

    /// Nothing has arrived between the last time and now.
    fn gap(&mut self, now_ns: u64) {
        let since_ns = self.last_ns.max(self.begin_ns);
        self.gap_ns = self.gap_ns.max(now_ns.saturating_sub(since_ns));
        self.last_ns = now_ns;
    }

    /// Says what was seen.
    pub fn report(&mut self, sends: bool) -> Result<()> {
        if !sends {
            self.gap(self.end_ns);
        }
        let seen = json!({
            "bytes": self.bytes,
            "measured_bytes": self.measured,
            "verified_bytes": self.verified,
            "longest_gap_ms": self.gap_ns as f64 / 1e6,
            "errors": self.errors,
        });
        println!("{seen}");
        Ok(())
    }
}

/// That of `crates/lab/src/tenant/pattern.rs`: xorshift64, repeated so that any phase has a chunk.
fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut period = Vec::with_capacity(PERIOD);
    for _ in 0..PERIOD {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        period.push((state >> 32) as u8);
    }
    let all = period.iter().copied().cycle();
    all.take(PERIOD + CHUNK).collect()
}
