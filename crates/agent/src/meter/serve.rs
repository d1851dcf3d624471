//! `/metrics` over HTTP, from a thread of its own that also keeps the [`Ledger`].
//!
//! One connection at a time, each with a deadline: a slow client delays other scrapes by seconds,
//! not enforcement.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::{debug, info, warn};

use super::{
    Ledger, Snapshot,
    exposition::{Exposition, Health},
    ports::SwitchUse,
};
use crate::{bpffs::Pins, interfaces, inventory::ProgramInfo, log, record::Names, state};

/// Between two looks, at most: a flow that has ended is in the table for twice as long.
pub const PERIOD: Duration = Duration::from_secs(5);

/// A scrape so soon after a look needs none of its own.
const FRESH: Duration = Duration::from_secs(1);

/// A client has so long to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// An address that cannot be had is tried again so often, and after a while less.
const BIND_SOON: Duration = Duration::from_millis(100);
const BIND_AGAIN: Duration = Duration::from_secs(10);
const BIND_QUIETLY: Duration = Duration::from_secs(5);

const REQUEST_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;

/// What a meter looks at.
enum Source {
    /// What is pinned here, with names that the agent of a directory says.
    Pins(Pins, Option<PathBuf>),
    /// Enforcement elsewhere than in the kernel.
    Other(Box<dyn Fn() -> Result<Option<Snapshot>> + Send>),
}

/// The owner of the ledger, which looks and remembers.
pub struct Meter {
    source: Source,
    /// The name of the network namespace in reports.
    pub netns: String,
    /// The kernel's account of the programs.
    pub programs: Box<dyn Fn() -> Vec<ProgramInfo> + Send>,
    /// The userspace switch, if one runs.
    pub switch: Box<dyn Fn() -> Option<SwitchUse> + Send>,
    state: State,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    health: Health,
    snapshot: Option<Snapshot>,
    switch: Option<SwitchUse>,
    looked: Option<Instant>,
}

impl Meter {
    /// Has not looked yet.
    pub fn new(
        pins: Pins,
        netns: String,
        programs: Box<dyn Fn() -> Vec<ProgramInfo> + Send>,
    ) -> Self {
        Self::with(Source::Pins(pins, None), netns, programs)
    }

    /// Of what is found elsewhere than in pins, or in both; `None`: nothing enforces, and that is
    /// no failure. `name` may stand for that of a network namespace.
    pub fn of(name: &str, look: impl Fn() -> Result<Option<Snapshot>> + Send + 'static) -> Self {
        let source = Source::Other(Box::new(look));
        Self::with(source, name.to_owned(), Box::new(Vec::new))
    }

    fn with(
        source: Source,
        netns: String,
        programs: Box<dyn Fn() -> Vec<ProgramInfo> + Send>,
    ) -> Self {
        let health = Health {
            started_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64()),
            ..Health::default()
        };
        let state = State {
            health,
            ..State::default()
        };
        Self {
            source,
            netns,
            programs,
            switch: Box::new(|| None),
            state,
        }
    }

    /// Calls tenants and rules as the agent says in this directory.
    pub fn with_names(mut self, run_dir: &Path) -> Self {
        if let Source::Pins(_, said) = &mut self.source {
            *said = Some(run_dir.to_owned());
        }
        self
    }

    fn names(&self) -> Result<Names> {
        let names = interfaces::names()?;
        Ok(self.said().unwrap_or_default().names(names))
    }

    /// What the agent says of itself, if it does.
    fn said(&self) -> Option<state::State> {
        match &self.source {
            Source::Pins(_, Some(run_dir)) => state::read(run_dir, &self.netns).ok()?,
            _ => None,
        }
    }

    fn read(&self) -> Result<Option<Snapshot>> {
        match &self.source {
            Source::Pins(pins, _) => Snapshot::read(pins, &self.names()?).map(Some),
            Source::Other(look) => look(),
        }
    }

    /// Looks at what is pinned; the calling thread is in the network namespace. A failure is told
    /// by what [`Meter::text`] gives, and logged once until it is over.
    pub fn look(&mut self) {
        let begun = Instant::now();
        // Gone before the next one is read: both at once would be twice the memory.
        let had_one = self.state.snapshot.take().is_some();
        let (read, switch) = (self.read(), (self.switch)());
        let left_out = self.said().map(|said| said.left_out.len());
        let state = &mut self.state;
        state.health.left_out = left_out;
        state.health.looks += 1;
        state.switch = switch;
        match read {
            Ok(snapshot) => {
                snapshot.iter().for_each(|it| state.ledger.look(it));
                state.snapshot = snapshot;
            }
            Err(error) => {
                state.health.failures += 1;
                if had_one || state.health.looks == 1 {
                    warn!("metrics: {error:#}");
                }
            }
        }
        state.health.looking_s += begun.elapsed().as_secs_f64();
        state.looked = Some(begun);
    }

    /// The text for Prometheus.
    ///
    /// # Errors
    /// As [`Exposition::text`].
    pub fn text(&self) -> Result<String> {
        let state = &self.state;
        // Another process may be the one that enforces.
        let other = self.said().filter(|said| said.pid != std::process::id());
        let health = Health {
            log_lines_lost: log::lost_lines() + other.map_or(0, |said| said.log_lines_lost),
            ..state.health.clone()
        };
        let exposition = Exposition {
            netns: &self.netns,
            snapshot: state.snapshot.as_ref(),
            switch: state.switch.as_ref(),
            ledger: state.ledger.has_looked().then_some(&state.ledger),
            programs: &(self.programs)(),
            health: Some(&health),
        };
        exposition.text()
    }

    /// Time until the next look is due.
    fn due_in(&self) -> Duration {
        self.state
            .looked
            .map_or(Duration::ZERO, |at| PERIOD.saturating_sub(at.elapsed()))
    }

    fn is_fresh(&self) -> bool {
        self.state.looked.is_some_and(|at| at.elapsed() < FRESH)
    }
}

/// Waits for scrapes.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens in the calling thread's network namespace.
    ///
    /// # Errors
    /// The address is in use or not of this host.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let socket = TcpListener::bind(address)
            .with_context(|| format!("listening on {address} for scrapes of metrics"))?;
        // A connection that poll announced may have gone again.
        socket.set_nonblocking(true).context("listening")?;
        Ok(Self(socket))
    }

    /// As [`Listener::bind`], now or, if that fails, as soon as it can be had: what is reported on
    /// does not wait for it. The log says so once, after a while: a process that is replaced gives
    /// its address up late.
    pub fn bind_or_later(address: SocketAddr) -> mpsc::Receiver<Self> {
        let (bound, later) = mpsc::channel();
        let try_it = move || Self::bind(address).map(|listener| drop(bound.send(listener)));
        if try_it().is_err() {
            let begun = thread::Builder::new()
                .name("metrics".into())
                .spawn(move || {
                    let begun = Instant::now();
                    let mut is_told = false;
                    while let Err(error) = try_it() {
                        let is_long = begun.elapsed() > BIND_QUIETLY;
                        if is_long && !is_told {
                            warn!("no metrics: {error:#}; it is tried again");
                            is_told = true;
                        }
                        thread::sleep(if is_long { BIND_AGAIN } else { BIND_SOON });
                    }
                });
            if let Err(error) = begun {
                warn!("no metrics: no thread that tries again to listen: {error}");
            }
        }
        later
    }

    /// Where it listens, the port included that the kernel chose for port 0.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn address(&self) -> Result<SocketAddr> {
        self.0.local_addr().context("asking for an address")
    }

    /// Looks and answers for good, on a thread of its own in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn serve(self, mut meter: Meter) -> Result<()> {
        let address = self.address()?;
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                loop {
                    if meter.due_in().is_zero() {
                        meter.look();
                    }
                    if let Err(error) = self.wait(&mut meter) {
                        debug!("metrics: {error:#}");
                    }
                }
            })
            .context("starting the thread that serves metrics")?;
        info!(%address, "serving metrics");
        Ok(())
    }

    /// Until a client connects, or the next look is due.
    fn wait(&self, meter: &mut Meter) -> Result<()> {
        let mut sources = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(meter.due_in()).unwrap_or(PollTimeout::ZERO);
        if poll(&mut sources, timeout).context("waiting for scrapes")? == 0 {
            return Ok(());
        }
        match self.0.accept() {
            Ok((client, _)) => converse(client, meter),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => {
                // Out of descriptors, for example: to try at once would only burn a CPU.
                thread::sleep(FRESH);
                Err(error).context("accepting a scrape")
            }
        }
    }
}

fn converse(mut client: TcpStream, meter: &mut Meter) -> Result<()> {
    client.set_nonblocking(false)?;
    let request = receive(&mut client)?;
    let answer = match understand(&request) {
        Asked::Metrics { body } => {
            if !meter.is_fresh() {
                meter.look();
            }
            response("200 OK", prometheus::TEXT_FORMAT, &meter.text()?, body)
        }
        Asked::Start => response(
            "200 OK",
            PLAIN,
            "Sluicegate: metrics are at /metrics\n",
            true,
        ),
        Asked::Elsewhere => response("404 Not Found", PLAIN, "metrics are at /metrics\n", true),
        Asked::Otherwise => response("405 Method Not Allowed", PLAIN, "GET or HEAD\n", true),
        Asked::Nonsense => response("400 Bad Request", PLAIN, "this is no HTTP request\n", true),
    };
    send(&mut client, answer.as_bytes(), PATIENCE)
}

/// Sends all of it, or what the client takes in this time, however little it takes at once.
fn send(client: &mut TcpStream, mut answer: &[u8], patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !answer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "a client takes its answer too slowly");
        client.set_write_timeout(Some(left))?;
        match client.write(answer) {
            Ok(length) => answer = &answer[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn response(status: &str, kind: &str, content: &str, body: bool) -> String {
    let length = content.len();
    let content = if body { content } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{content}"
    )
}

/// The head of a request, or what there is of it when the client stops, takes too long or says too
/// much.
fn receive(client: &mut TcpStream) -> Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => request.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(request)
}

/// A request of a client.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics { body: bool },
    Start,
    Elsewhere,
    Otherwise,
    Nonsense,
}

fn understand(request: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    if !matches!(parsed.parse(request), Ok(httparse::Status::Complete(_))) {
        return Asked::Nonsense;
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    match (parsed.method.unwrap_or_default(), path) {
        ("GET", "/metrics") => Asked::Metrics { body: true },
        ("HEAD", "/metrics") => Asked::Metrics { body: false },
        ("GET" | "HEAD", "/") => Asked::Start,
        ("GET" | "HEAD", _) => Asked::Elsewhere,
        _ => Asked::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn requests_are_understood_or_refused() {
        let asked = |request: &str| understand(request.as_bytes());
        assert_eq!(
            asked("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"),
            Asked::Metrics { body: true }
        );
        assert_eq!(
            asked("HEAD /metrics HTTP/1.0\r\n\r\n"),
            Asked::Metrics { body: false }
        );
        assert_eq!(asked("GET / HTTP/1.1\r\n\r\n"), Asked::Start);
        assert_eq!(asked("GET /etc/passwd HTTP/1.1\r\n\r\n"), Asked::Elsewhere);
        assert_eq!(asked("POST /metrics HTTP/1.1\r\n\r\n"), Asked::Otherwise);
        for nonsense in [
            "",
            "GET /metrics HTTP/1.1\r\n",
            "\x16\x03\x01\r\n\r\n",
            "GET",
        ] {
            assert_eq!(asked(nonsense), Asked::Nonsense, "{nonsense:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
        assert_eq!(asked(&many), Asked::Nonsense);
    }

    #[test]
    fn an_address_that_is_taken_is_had_later() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let bound = Listener::bind_or_later(address);
        assert!(bound.try_recv().is_err());
        drop(taken);
        let listener = bound.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(listener.address().unwrap(), address);
    }

    #[test]
    fn a_scrape_is_answered_though_nothing_is_pinned() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let pins = Pins::new(Path::new("/no/such/place"), "none");
        let meter = Meter::new(pins, "none".to_owned(), Box::new(Vec::new));
        listener.serve(meter).unwrap();
        // A client that says nothing does not keep the next from being served.
        drop(TcpStream::connect(address).unwrap());
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\nsluicegate_up 0\n"), "{answer}");
        let length = answer.split("Content-Length: ").nth(1).unwrap();
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        assert!(length.starts_with(&format!("{}\r\n", body.len())));
    }

    #[test]
    fn a_client_that_takes_little_at_a_time_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut client, _) = listener.accept().unwrap();
        let reading = thread::spawn(move || {
            // At this pace it would take all of it in a day.
            let mut little = [0; 1024];
            while reader.read(&mut little).is_ok_and(|length| length > 0) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let answer = vec![0; 64 << 20];
        assert!(send(&mut client, &answer, Duration::from_millis(100)).is_err());
        client.shutdown(std::net::Shutdown::Both).unwrap();
        drop(client);
        reading.join().unwrap();
    }
}
