//! A tenant as a process: how the lab starts one and talks to it.
//!
//! The lab runs its own executable again with a hidden first argument. On the child's stdin the
//! plan comes as one line of JSON, then the line `start NS` (CLOCK_REALTIME); on its stdout go
//! `ready`, then the report as one line, or `error TEXT` instead of either. End of file on stdin
//! means that the lab is gone: the child exits at once, so nothing outlives even a `kill -9` of the
//! lab. Guests speak the same through their keeper ([`crate::guest`]).

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::File,
    io::{self, BufRead, Read, Write},
    os::fd::{AsRawFd, BorrowedFd},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde::de::DeserializeOwned;

use super::{
    clock::timespec,
    plan::{Plan, Report},
    run::Prepared,
};

/// Hidden argument of a tenant in a namespace; the path of the namespace follows.
const TENANT: &str = "lab-tenant";

/// Hidden argument of what becomes another program in a namespace; the path of the namespace, the
/// program and its arguments follow.
const FOREIGN: &str = "lab-foreign";

/// Time that a tenant has to end after its stdin was closed.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs a tenant and ends the process, if this process was started as one; returns otherwise.
///
/// A program that calls [`spawn`] must call this first thing in `main`, before there are threads or
/// output.
pub fn maybe_run_tenant() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(first) = arguments.next() else {
        return;
    };
    let result = if first == TENANT {
        serve(arguments.next().map(PathBuf::from)).map(|_| ())
    } else if first == FOREIGN {
        become_program(arguments.next().map(PathBuf::from), arguments).map(|_| ())
    } else if first == crate::host_switch::SWITCH {
        crate::host_switch::serve(arguments).map(|_| ())
    } else {
        match crate::guest::maybe_run(&first, arguments) {
            Some(result) => result,
            None => return,
        }
    };
    if let Err(error) = &result {
        let _ = say(format!("error {}", format!("{error:#}").replace('\n', " ")).as_bytes()); // the lab may be gone
    }
    std::process::exit(i32::from(result.is_err()));
}

/// Starts a tenant in a network namespace. Returns before it is ready.
///
/// # Errors
/// The executable cannot be started or does not take its plan.
pub fn spawn(plan: &Plan, netns: BorrowedFd<'_>) -> anyhow::Result<TenantProcess> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    TenantProcess::start(&[TENANT.into(), path.into()], plan)
}

/// Starts a tenant's program of another make in a network namespace; see [`crate::foreign`].
///
/// # Errors
/// The executable cannot be started.
pub(crate) fn spawn_program(
    name: &str,
    netns: BorrowedFd<'_>,
    program: Vec<OsString>,
) -> anyhow::Result<TenantProcess> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd());
    let mut arguments = vec![FOREIGN.into(), path.into()];
    arguments.extend(program);
    TenantProcess::run(name, &arguments)
}

/// A running tenant. Dropping it ends it.
#[derive(Debug)]
pub struct TenantProcess {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    pending: Vec<u8>,
}

impl TenantProcess {
    /// Runs this executable with hidden arguments and hands it the plan.
    pub(crate) fn start(arguments: &[OsString], plan: &Plan) -> anyhow::Result<Self> {
        let mut tenant = Self::run(&plan.tenant, arguments)?;
        let mut line = serde_json::to_vec(plan)?;
        line.push(b'\n');
        tenant.tell(&line)?;
        Ok(tenant)
    }

    /// Runs this executable with hidden arguments.
    pub(crate) fn run(name: &str, arguments: &[OsString]) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("cannot find the own executable")?;
        let mut child = Command::new(&executable)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C at a terminal is the lab's business alone
            .spawn()
            .with_context(|| format!("cannot start {} for tenant {name}", executable.display()))?;
        let stdin = child.stdin.take();
        let Some(stdout) = child.stdout.take() else {
            bail!("a child without pipes")
        };
        Ok(Self {
            name: name.to_owned(),
            child,
            stdin,
            stdout,
            pending: Vec::new(),
        })
    }

    /// Process id, for cgroups and accounting.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its listeners are open.
    ///
    /// # Errors
    /// Waits for the tenant's word, its death, or the time-out.
    pub fn wait_ready(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let line = self.line(timeout)?;
        if line != b"ready" {
            bail!(
                "tenant {}: unexpected output {:?}",
                self.name,
                String::from_utf8_lossy(&line)
            );
        }
        Ok(())
    }

    /// Sets the start of the run as CLOCK_REALTIME in ns since 1970.
    pub fn set_start(&mut self, start_unix_ns: u64) -> anyhow::Result<()> {
        self.tell(format!("start {start_unix_ns}\n").as_bytes())
    }

    /// Waits for the report. The process stays, with its connections open, until this handle is
    /// dropped: drop the handles when all reports are there.
    ///
    /// # Errors
    /// As [`TenantProcess::wait_ready`].
    pub fn wait_report(&mut self, timeout: Duration) -> anyhow::Result<Report> {
        self.wait_json(timeout)
    }

    /// The same for whatever a program of another make says at its end.
    pub(crate) fn wait_json<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> anyhow::Result<T> {
        let line = self.line(timeout)?;
        serde_json::from_slice(&line)
            .with_context(|| format!("tenant {}: its report is unreadable", self.name))
    }

    fn tell(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            bail!("tenant {} was dismissed", self.name)
        };
        let told = stdin.write_all(line).and_then(|()| stdin.flush());
        told.map_err(|error| self.diagnosis(&format!("does not listen: {error}")))
    }

    /// Next line of its stdout, without the line feed; `error TEXT` becomes an error.
    fn line(&mut self, timeout: Duration) -> anyhow::Result<Vec<u8>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                return match line.strip_prefix(b"error ") {
                    Some(text) => Err(anyhow!(
                        "tenant {}: {}",
                        self.name,
                        String::from_utf8_lossy(text)
                    )),
                    None => Ok(line),
                };
            }
            self.fill(deadline, timeout)?;
        }
    }

    fn fill(&mut self, deadline: Instant, timeout: Duration) -> anyhow::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = timespec(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        let mut descriptors = [PollFd::new(&self.stdout, PollFlags::IN)];
        match poll(&mut descriptors, Some(&wait)) {
            Ok(0) => bail!(
                "tenant {}: no answer within {:.1} s",
                self.name,
                timeout.as_secs_f64()
            ),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context("poll"),
        }
        let start = self.pending.len();
        self.pending.resize(start + 65_536, 0);
        let count = self
            .stdout
            .read(&mut self.pending[start..])
            .context("cannot read from a tenant")?;
        self.pending.truncate(start + count);
        if count == 0 {
            return Err(self.diagnosis("ended without a word"));
        }
        Ok(())
    }

    /// An error with what the process left on stderr and how it ended. Ends it.
    fn diagnosis(&mut self, what: &str) -> anyhow::Error {
        let _ = self.child.kill(); // may be dead already
        let status = self
            .child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.take(4096).read_to_string(&mut text); // best effort: it is a diagnosis
        }
        anyhow!("tenant {} {what} ({status}) {}", self.name, text.trim())
    }
}

impl Drop for TenantProcess {
    /// Closing stdin ends the tenant, and lets a keeper bury its guest; what does not go is killed.
    fn drop(&mut self) {
        self.stdin = None;
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
        let _ = self.child.kill(); // both fail only when it is dead and reaped already
        let _ = self.child.wait();
    }
}

/// Puts the calling process, of one thread, into the network namespace of this path.
pub(crate) fn enter(netns: Option<PathBuf>) -> anyhow::Result<()> {
    let path = netns.context("the path of a network namespace is missing")?;
    let netns = File::open(&path)
        .with_context(|| format!("cannot open network namespace {}", path.display()))?;
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&netns),
        Some(LinkNameSpaceType::Network),
    )
    .with_context(|| format!("cannot enter network namespace {}", path.display()))
}

/// Goes on as another program, which finds itself in the namespace.
fn become_program(
    netns: Option<PathBuf>,
    mut program: impl Iterator<Item = OsString>,
) -> anyhow::Result<Infallible> {
    enter(netns)?;
    let path = PathBuf::from(program.next().context("the program is missing")?);
    let error = Command::new(&path).args(program).exec();
    Err(error).with_context(|| format!("cannot run {}", path.display()))
}

fn serve(netns: Option<PathBuf>) -> anyhow::Result<Infallible> {
    enter(netns)?;
    let input = Input::watch();
    let plan = serde_json::from_str(&input.line()?).context("the plan is unreadable")?;
    let prepared = Prepared::new(plan)?;
    say(b"ready")?;
    let report = prepared.run(input.start()?);
    say(&serde_json::to_vec(&report)?)?;
    loop {
        thread::park(); // the thread behind `input` ends the process
    }
}

/// One line to the lab.
pub(crate) fn say(line: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line)?;
    stdout.write_all(b"\n")?;
    stdout.flush().context("the lab does not listen")
}

/// Lines of stdin, read by a thread that ends the process when the lab is gone.
pub(crate) struct Input {
    lines: mpsc::Receiver<String>,
}

impl Input {
    /// Starts the thread.
    pub(crate) fn watch() -> Self {
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                match line {
                    Ok(line) => drop(send.send(line)), // fails only once the receiver is gone
                    Err(_) => break,
                }
            }
            std::process::exit(1);
        });
        Self { lines }
    }

    /// Next line.
    pub(crate) fn line(&self) -> anyhow::Result<String> {
        self.lines.recv().context("stdin ended")
    }

    /// The start that the lab sets.
    pub(crate) fn start(&self) -> anyhow::Result<u64> {
        let line = self.line()?;
        let number = line
            .strip_prefix("start ")
            .and_then(|number| number.trim().parse().ok());
        number.with_context(|| format!("expected `start NS`, got {line:?}"))
    }
}
