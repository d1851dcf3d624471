//! A switch starts its successor: another process of the program that is installed by now, which
//! takes over ([`crate::handover`]) as a child of this one.
//!
//! ```text
//!  client ── {"ask": "upgrade"} ──▶ control ──▶ Desk ──▶ the thread that waits there
//!                                               check of the file by the successor's program
//!                                               the child asks for a takeover; no other may
//!  client ◀── {"ok": {"pid": …}} ──             this process ends
//! ```
//!
//! Whatever the child does, this process goes on until it has let go of everything.

use std::{
    ffi::OsString,
    fmt,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    service::{Heir, Service},
    vhost::notify::hand_down_nothing,
};

/// The longest check of the file by the successor's program.
const CHECKS_WITHIN: Duration = Duration::from_secs(10);

/// The longest wait for a successor to ask for everything.
const ASKS_WITHIN: Duration = Duration::from_secs(10);

/// The longest wait for all of its attempts together.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(30);

/// The longest wait for the end of a successor that got nothing, and does not try again.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// Between two looks at a successor.
const LATER: Duration = Duration::from_millis(2);

/// The most that is kept of what a check says, in bytes.
const SAID_MAX: u64 = 1 << 14;

/// What helps where something was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remedy {
    /// What the reason says.
    #[default]
    Other,
    /// Another configuration: a restart would fail as well.
    Input,
    /// A restart, and nothing else.
    Restart,
    /// The same again: the machine was too busy.
    Again,
}

/// Why nothing was handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason.
    pub error: String,
    /// What helps.
    #[serde(default)]
    pub remedy: Remedy,
}

impl Refused {
    /// With a reason.
    pub fn new(remedy: Remedy, error: impl Into<String>) -> Self {
        let error = error.into();
        Self { error, remedy }
    }

    /// What is known of an error.
    pub fn of(error: &anyhow::Error) -> Self {
        let known = error.downcast_ref::<Self>();
        Self::new(
            known.map_or(Remedy::Other, |it| it.remedy),
            format!("{error:#}"),
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Refused {}

/// A client that has asked for an upgrade, and waits for an answer.
#[derive(Debug)]
pub struct Asked {
    stream: UnixStream,
    /// The successor's program, where it is not the installed one.
    pub program: Option<PathBuf>,
}

impl Asked {
    /// A client behind a connection.
    pub fn new(stream: UnixStream, program: Option<PathBuf>) -> Self {
        Self { stream, program }
    }

    /// Tells it how it went; one that has gone is told nothing.
    pub fn answer(self, result: &anyhow::Result<Replaced>) {
        let value = match result {
            Ok(done) => json!({ "ok": done }),
            Err(error) => json!(Refused::of(error)),
        };
        let _ = writeln!(&self.stream, "{value}");
    }
}

/// A successor that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The process that ends.
    pub predecessor: u32,
    /// The process that has taken over.
    pub pid: u32,
    /// How often frames were stopped for it, the last time included.
    pub attempts: u32,
}

/// Where questions for an upgrade wait for the thread that upgrades: one at a time.
#[derive(Debug, Default)]
pub struct Desk {
    slot: Mutex<Slot>,
    news: Condvar,
}

#[derive(Debug, Default)]
enum Slot {
    /// Nobody upgrades this process.
    #[default]
    Closed,
    Free,
    Waits(Asked),
    Busy,
}

impl Desk {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Questions are answered from now on: a thread calls [`Desk::next`] again and again.
    pub fn open(&self) {
        *self.slot() = Slot::Free;
    }

    /// Leaves a question.
    ///
    /// # Errors
    /// One is answered already, or none ever is; the client is told.
    pub fn ask(&self, asked: Asked) -> anyhow::Result<()> {
        let mut slot = self.slot();
        let refused = match *slot {
            Slot::Free => {
                *slot = Slot::Waits(asked);
                self.news.notify_all();
                return Ok(());
            }
            Slot::Closed => Refused::new(
                Remedy::Restart,
                "this switch starts no successor; start one with `switch run --take-over`",
            ),
            Slot::Waits(_) | Slot::Busy => {
                Refused::new(Remedy::Other, "an upgrade is under way already")
            }
        };
        asked.answer(&Err(refused.clone().into()));
        Err(refused.into())
    }

    /// Waits for a question, at most for so long, or until [`Desk::wake`]; until [`Desk::done`]
    /// there is no other.
    pub fn next(&self, patience: Duration) -> Option<Asked> {
        let mut slot = self.slot();
        if !matches!(*slot, Slot::Waits(_)) {
            let waited = self.news.wait_timeout(slot, patience);
            slot = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !matches!(*slot, Slot::Waits(_)) {
            return None;
        }
        match std::mem::replace(&mut *slot, Slot::Busy) {
            Slot::Waits(asked) => Some(asked),
            _ => None,
        }
    }

    /// The question was answered.
    pub fn done(&self) {
        *self.slot() = Slot::Free;
    }

    /// Ends a wait.
    pub fn wake(&self) {
        self.news.notify_all();
    }
}

/// How to start a successor.
#[derive(Clone, Debug)]
pub struct Successor {
    /// Its program.
    pub program: PathBuf,
    /// Its arguments: those of a switch that takes over.
    pub arguments: Vec<OsString>,
    /// Arguments with which the program only says whether the configuration is good: exit code 0,
    /// or 2 where that has an error.
    pub check: Vec<OsString>,
    /// Variables of the environment that it does not get.
    pub without: Vec<OsString>,
}

/// Starts a successor and waits until it has taken over. After an error this process goes on, and
/// the successor has ended.
///
/// # Errors
/// The configuration is refused, the successor fails or does nothing for long, or `stops`.
pub fn replace(
    service: &Service,
    successor: &Successor,
    stops: impl Fn() -> bool,
) -> anyhow::Result<Replaced> {
    check(successor, &stops)?;
    let mut command = Command::new(&successor.program);
    command.args(&successor.arguments).stdin(Stdio::null());
    for name in &successor.without {
        command.env_remove(name);
    }
    if let Err(error) = hand_down_nothing() {
        tracing::warn!(%error, "the successor inherits descriptors that it does not use");
    }
    let mut child = service
        .start_heir(|| {
            let child = command.spawn()?;
            Ok((child.id(), child))
        })
        .with_context(|| cannot_start(successor))?;
    tracing::info!(pid = child.id(), program = %successor.program.display(), "a successor starts");
    let mut waits = Waits::new(service);
    let ended = wait(&mut child, TAKES_OVER_WITHIN, || {
        stops() || service.is_replaced() || waits.is_over(service)
    });
    // From here on it has everything, or gets nothing.
    service.set_heir(Heir::Nobody);
    if let Some(pid) = service.successor() {
        return Ok(Replaced {
            predecessor: std::process::id(),
            pid,
            attempts: service.attempts() - waits.attempts,
        });
    }
    if ended.as_ref().is_ok_and(Option::is_none) {
        end(&mut child);
    }
    service.set_heir(Heir::Anybody);
    match (ended?, service.refusal()) {
        (_, Some(refused)) => Err(refused.into()),
        (Some(status), None) => {
            bail!("the successor ended without taking over ({status}); its log says why")
        }
        (None, None) if stops() => bail!("this switch was told to stop meanwhile"),
        (None, None) => bail!(
            "the successor has not asked for anything within {} s",
            ASKS_WITHIN.as_secs()
        ),
    }
}

/// How long a successor is waited for.
struct Waits {
    start: Instant,
    /// Attempts before it.
    attempts: u32,
    refused: Option<Instant>,
}

impl Waits {
    fn new(service: &Service) -> Self {
        Self {
            start: Instant::now(),
            attempts: service.attempts(),
            refused: None,
        }
    }

    fn is_over(&mut self, service: &Service) -> bool {
        let now = Instant::now();
        match service.remedy() {
            // It tries again by itself.
            Some(Remedy::Again) => false,
            Some(_) => now - *self.refused.get_or_insert(now) > ENDS_WITHIN,
            None if service.attempts() > self.attempts => false,
            None => now - self.start > ASKS_WITHIN,
        }
    }
}

fn cannot_start(successor: &Successor) -> String {
    format!("cannot start {}", successor.program.display())
}

/// Has the successor's program look at the configuration.
fn check(successor: &Successor, stops: &impl Fn() -> bool) -> anyhow::Result<()> {
    let mut command = Command::new(&successor.program);
    command.args(&successor.check).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn();
    let mut child = child.with_context(|| cannot_start(successor))?;
    let pipe = child.stderr.take();
    // Beside the wait: what is said may be longer than a pipe.
    let reader = thread::Builder::new().spawn(move || {
        let mut said = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(SAID_MAX).read_to_end(&mut said);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&said).trim().to_owned()
    });
    let reader = match reader {
        Ok(reader) => reader,
        Err(error) => {
            end(&mut child);
            return Err(error).context("cannot start a thread that reads what the successor says");
        }
    };
    let ended = wait(&mut child, CHECKS_WITHIN, stops);
    if !ended.as_ref().is_ok_and(Option::is_some) {
        end(&mut child);
    }
    let program = successor.program.display();
    let status = ended?.ok_or_else(|| {
        let seconds = CHECKS_WITHIN.as_secs();
        anyhow!("{program} has not checked the configuration within {seconds} s")
    })?;
    if status.success() {
        return Ok(());
    }
    let said = reader.join().unwrap_or_default();
    let said = match said.is_empty() {
        true => status.to_string(),
        false => said,
    };
    Err(match status.code() {
        Some(2) => Refused::new(
            Remedy::Input,
            format!("the successor refuses its file: {said}"),
        ),
        _ => Refused::new(
            Remedy::Other,
            format!("{program} cannot check its file: {said}"),
        ),
    }
    .into())
}

/// Waits for the end of a child; `None`: it has not ended in time, or something else has.
fn wait(
    child: &mut Child,
    patience: Duration,
    mut stops: impl FnMut() -> bool,
) -> anyhow::Result<Option<ExitStatus>> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if stops() || Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(LATER);
    }
}

/// Ends a child that has nothing.
fn end(child: &mut Child) {
    // It fails only when the child has ended.
    let _ = child.kill();
    let _ = child.wait();
}
