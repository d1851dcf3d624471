//! The control socket: a line of JSON asks, a line of JSON answers.
//!
//! `{"ask": "show"}` and `"ports"`, `"queues"`, `"drops"`, `"addresses"`, `"flows"`, `"reload"`. An
//! answer is `{"ok": …}`, or `{"error": "…", "remedy": "…"}` ([`Refused`]). Only the socket's owner
//! may open it.
//! `{"ask": "capture", "capture": {…}}` is answered with a file behind the line
//! ([`capture::Asked`], [`session`]).
//! `{"ask": "takeover"}` is answered with everything that the switch has ([`crate::handover`]).
//! `{"ask": "upgrade"}` is answered when a successor has taken over ([`crate::upgrade`]).

use std::{
    fs,
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    capture::{self, session},
    config::Access,
    handover::UNKNOWN,
    report::Report,
    service::{Claim, Service, reload_file},
    upgrade::{Asked, Refused, Remedy, Replaced},
    vhost::session::bind,
    views,
    worker::Worker,
};

/// The longest question in bytes.
const ASK_MAX: u64 = 1 << 16;

/// After a connection that could not be accepted.
const LATER: Duration = Duration::from_millis(100);

/// A question that takes longer is given up, and so is an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// An upgrade that takes longer is given up by the one who asked for it.
const UPGRADES_WITHIN: Duration = Duration::from_secs(60);

const NONSENSE: &str = "the switch answered nonsense";

/// The connection of a capture.
pub type Captured = BufReader<UnixStream>;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    /// The switch as a whole.
    Show,
    /// Each port with its counters.
    Ports,
    /// Which senders wait for which receiver.
    Queues,
    /// Drops by port and reason, the kernel's included.
    Drops,
    /// Addresses and where they are.
    Addresses,
    /// Its enforcement ([`Report`]); `null` without a policy.
    Flows,
    /// Read the file again.
    Reload,
    /// Capture frames.
    Capture,
    /// Hand everything over to the process that asks.
    Takeover,
    /// Start a successor, and hand everything over to it.
    Upgrade,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    ask: Ask,
    /// What to capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capture: Option<capture::Asked>,
    /// Whether the successor answers before the running switch stops anything for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    prepares: bool,
    /// The successor's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// The program of a successor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    program: Option<PathBuf>,
}

/// Answers at a socket in a thread of its own, while the process lives.
///
/// # Errors
/// The socket cannot be made, or another switch answers there.
pub fn serve(socket: &Path, file: PathBuf, service: Arc<Service>) -> anyhow::Result<()> {
    if UnixStream::connect(socket).is_ok() {
        bail!(
            "another switch answers at {}; give this one another socket",
            socket.display()
        );
    }
    if let Some(directory) = socket.parent() {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    match socket.symlink_metadata() {
        Ok(about) if about.file_type().is_socket() => {
            // What is left of a switch that ended.
            fs::remove_file(socket)?;
        }
        Ok(_) => bail!(
            "{} is a file and no socket; choose another path",
            socket.display()
        ),
        Err(_) => {}
    }
    let owner_alone = Access {
        mode: Some(0o600),
        group: None,
    };
    let listener = bind(socket, owner_alone)
        .with_context(|| format!("cannot listen at {}", socket.display()))?;
    listener.set_nonblocking(false)?;
    go_on(listener, file, service)
}

/// Answers at a socket that listens already, as [`serve`] does.
///
/// # Errors
/// No thread.
pub fn go_on(listener: UnixListener, file: PathBuf, service: Arc<Service>) -> anyhow::Result<()> {
    thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || {
            while !service.is_replaced() {
                let done = match listener.accept() {
                    Ok((stream, _)) => answer(stream, &listener, &file, &service),
                    Err(error) => {
                        // Out of descriptors, for example: to try at once would burn a CPU.
                        thread::sleep(LATER);
                        Err(error.into())
                    }
                };
                if let Err(error) = done {
                    tracing::debug!(%error, "a question was not answered");
                }
            }
        })?;
    Ok(())
}

fn answer(
    stream: UnixStream,
    listener: &UnixListener,
    file: &Path,
    service: &Arc<Service>,
) -> anyhow::Result<()> {
    let mut line = String::new();
    BufReader::new(Timed::new(&stream, PATIENCE).take(ASK_MAX)).read_line(&mut line)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = serde_json::from_str::<Request>(&line);
    match &request {
        Ok(Request {
            ask: Ask::Takeover,
            prepares,
            pid,
            ..
        }) => {
            let who = Claim {
                pid: *pid,
                prepares: *prepares,
            };
            let done = service.hand_over(who, &stream, listener);
            return done.inspect_err(|error| {
                tracing::warn!(%error, "nothing was handed over: this switch goes on");
            });
        }
        Ok(Request {
            ask: Ask::Upgrade,
            program,
            ..
        }) => {
            let asked = Asked::new(stream, program.clone());
            return service.upgrades().ask(asked);
        }
        Ok(Request {
            ask: Ask::Capture,
            capture,
            ..
        }) => return begin_capture(stream, capture.clone().unwrap_or_default(), service),
        _ => {}
    }
    let result = request
        .map_err(|error| anyhow!("{UNKNOWN}: {error}"))
        .and_then(|request| respond(request.ask, file, service));
    let value = match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!(Refused::of(&error)),
    };
    Timed::new(&stream, PATIENCE).write_all(format!("{value}\n").as_bytes())?;
    Ok(())
}

/// A connection on which all that is said has to be said in time, however little at once: others
/// wait for their answers meanwhile.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    fn new(stream: &'a UnixStream, patience: Duration) -> Self {
        let until = Instant::now() + patience;
        Self { stream, until }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A thread of its own captures.
fn begin_capture(
    stream: UnixStream,
    asked: capture::Asked,
    service: &Arc<Service>,
) -> anyhow::Result<()> {
    let service = Arc::clone(service);
    thread::Builder::new()
        .name("capture".to_owned())
        .spawn(move || {
            if let Err(error) = session::serve(stream, &asked, &service) {
                tracing::debug!(%error, "a client of a capture has gone");
            }
        })?;
    Ok(())
}

fn respond(ask: Ask, file: &Path, service: &Service) -> anyhow::Result<Value> {
    match ask {
        Ask::Reload => Ok(serde_json::to_value(reload_file(service, file)?)?),
        _ => view(ask, service),
    }
}

/// The answer to a question that changes nothing.
///
/// # Errors
/// The switch has ended, or it is another question.
pub fn view(ask: Ask, service: &Service) -> anyhow::Result<Value> {
    let value = match ask {
        Ask::Reload | Ask::Takeover | Ask::Upgrade | Ask::Capture => {
            bail!("it is answered elsewhere")
        }
        Ask::Flows => return Ok(serde_json::to_value(report(service)?)?),
        Ask::Show => views::show(service),
        Ask::Ports => views::ports(service),
        Ask::Drops => views::drops(service),
        Ask::Queues => views::queues(service),
        Ask::Addresses => views::addresses(service),
    };
    value.map_err(|reason| anyhow!(reason))
}

/// What a running switch tells of its enforcement; `None`: it has no policy.
///
/// # Errors
/// The switch has ended.
pub fn report(service: &Service) -> anyhow::Result<Option<Report>> {
    let order = |worker: &mut Worker| {
        let govern = worker.engine.govern.as_ref();
        govern.map(|govern| Report::new(govern, worker.now_ns()))
    };
    let reports = service.each(order).map_err(|reason| anyhow!(reason))?;
    Ok(Report::merge(reports.into_iter().flatten()))
}

fn question(ask: Ask) -> Request {
    Request {
        ask,
        capture: None,
        prepares: ask == Ask::Takeover,
        pid: (ask == Ask::Takeover).then(std::process::id),
        program: None,
    }
}

fn send(socket: &Path, request: &Request) -> anyhow::Result<UnixStream> {
    let stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "no switch answers at {}; start one with `sluicegate switch run FILE`, or name its socket",
            socket.display()
        )
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = serde_json::to_string(request)?;
    writeln!(&stream, "{request}")?;
    Ok(stream)
}

/// Asks a running switch for everything that it has: the connection by which that comes.
///
/// # Errors
/// No switch answers there.
pub fn ask_for_everything(socket: &Path) -> anyhow::Result<UnixStream> {
    send(socket, &question(Ask::Takeover))
}

/// Asks a running switch for a capture: the names of what is captured, and the connection by which
/// the file comes. It ends when this end is shut down for writing.
///
/// # Errors
/// No switch answers there, or it refuses.
pub fn capture(socket: &Path, asked: capture::Asked) -> anyhow::Result<(Vec<String>, Captured)> {
    let request = Request {
        capture: Some(asked),
        ..question(Ask::Capture)
    };
    let mut stream = BufReader::new(send(socket, &request)?);
    let mut answer = hear(&mut stream)?;
    let points = serde_json::from_value(answer["points"].take()).context(NONSENSE)?;
    Ok((points, stream))
}

/// Asks a running switch.
///
/// # Errors
/// No switch answers there, or it refuses.
pub fn ask(socket: &Path, ask: Ask) -> anyhow::Result<Value> {
    hear(&mut BufReader::new(send(socket, &question(ask))?))
}

/// Has a running switch start a successor, and waits until that has taken over. `program` is the
/// successor's, if not the one that is installed by now.
///
/// # Errors
/// No switch answers there; it goes on, for a reason that is a [`Refused`].
pub fn upgrade(socket: &Path, program: Option<PathBuf>) -> anyhow::Result<Replaced> {
    let request = Request {
        program,
        ..question(Ask::Upgrade)
    };
    let stream = send(socket, &request)?;
    stream.set_read_timeout(Some(UPGRADES_WITHIN))?;
    let answer = hear(&mut BufReader::new(stream))?;
    serde_json::from_value(answer).context(NONSENSE)
}

fn hear(stream: &mut Captured) -> anyhow::Result<Value> {
    let mut line = String::new();
    let read = stream.read_line(&mut line);
    read.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => anyhow!("the switch has not answered in time; its log says why"),
        _ => error.into(),
    })?;
    let mut answer: Value = serde_json::from_str(&line).context(NONSENSE)?;
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(refused(answer).into()),
    }
}

/// Why a switch did not do what it was asked for.
fn refused(answer: Value) -> Refused {
    match serde_json::from_value::<Refused>(answer) {
        Ok(refused) if refused.error.starts_with(UNKNOWN) => Refused::new(
            Remedy::Restart,
            "the switch that runs is older and does not know this question; restart it",
        ),
        Ok(refused) => refused,
        Err(_) => Refused::new(Remedy::Other, "no reason given"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_and_takes_little_at_a_time_is_left_in_time() {
        let patience = Duration::from_millis(50);
        let (client, stream) = UnixStream::pair().unwrap();
        let dripping = thread::spawn(move || {
            let mut client = client;
            while client.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut line = String::new();
        let asked = BufReader::new(Timed::new(&stream, patience)).read_line(&mut line);
        assert!(asked.is_err(), "{line}");
        drop(stream);
        dripping.join().unwrap();
        let (_client, stream) = UnixStream::pair().unwrap();
        let answered = Timed::new(&stream, patience).write_all(&vec![0; 64 << 20]);
        assert!(answered.is_err());
    }
}
