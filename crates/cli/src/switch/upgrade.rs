//! `sluicegate switch upgrade`, and both processes of an upgrade.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use serde_json::{Value, json};
use sluicegate_agent::{log, service::Service as Manager};
use sluicegate_config::units::format_duration;
use sluicegate_dataplane::{
    config,
    control::{self, Ask},
    service::Service,
    upgrade::{self, Asked, Refused, Remedy, Replaced, Successor},
    vhost::notify::hand_down_nothing,
};

use crate::{
    interrupt,
    output::{self, Failure},
};

/// How often a process that takes over tries again where the machine is too busy.
const ATTEMPTS_MAX: u32 = 5;

/// Before another attempt, times the number of those so far: guests have their frames meanwhile.
const BETWEEN: Duration = Duration::from_millis(200);

/// The variable that numbers attempts.
const ATTEMPT: &str = "SLUICEGATE_ATTEMPT";

/// A successor answers at the control socket within this time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Which switch to upgrade, and to what.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The successor's program [default: the one at the path from which the switch was started]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// The control socket
    #[arg(long, value_name = "PATH", default_value = config::SOCKET)]
    socket: PathBuf,

    /// The answer as JSON
    #[arg(long)]
    json: bool,
}

/// Asks for an upgrade.
pub fn run(args: &Args) -> Result<(), Failure> {
    let program = args.program.as_ref().map(std::path::absolute);
    let program = program.transpose().context("the program's path")?;
    let done = control::upgrade(&args.socket, program).map_err(failure)?;
    let shown = show_of(&args.socket, done.pid);
    if args.json {
        let document = json!({
            "predecessor": done.predecessor,
            "pid": done.pid,
            "attempts": done.attempts,
            "version": shown["version"],
            "outage_ns": shown["predecessor"]["outage_ns"],
        });
        return output::print(&format!("{document:#}\n"));
    }
    output::print(&said(done, &shown))
}

fn failure(error: anyhow::Error) -> Failure {
    let goes_on = |text: String| format!("{text}\nthe switch that runs goes on");
    match error.downcast_ref::<Refused>() {
        Some(refused) => match refused.remedy {
            Remedy::Input => Failure::BadInput(goes_on(format!("{error:#}"))),
            Remedy::Restart => Failure::NeedsRestart(goes_on(format!("{error:#}"))),
            Remedy::Again | Remedy::Other => {
                Failure::Failed(anyhow!("{}", goes_on(format!("{error:#}"))))
            }
        },
        // No switch answers, or one whose answer is not understood.
        None => Failure::NeedsRestart(format!("{error:#}")),
    }
}

/// What the successor says of itself; nothing where it does not answer.
fn show_of(socket: &Path, pid: u32) -> Value {
    let start = Instant::now();
    while start.elapsed() < ANSWERS_WITHIN {
        match control::ask(socket, Ask::Show) {
            Ok(shown) if shown["pid"] == pid => return shown,
            _ => thread::sleep(Duration::from_millis(5)),
        }
    }
    Value::Null
}

fn said(done: Replaced, shown: &Value) -> String {
    let version = shown["version"].as_str();
    let version = version.map_or_else(String::new, |it| format!(" (version {it})"));
    let outage = shown["predecessor"]["outage_ns"].as_u64();
    let outage = outage.map_or_else(String::new, |ns| {
        let rounded = Duration::from_micros(ns.div_ceil(100_000) * 100);
        format!(": no frame moved for {}", format_duration(rounded))
    });
    let attempts = match done.attempts {
        1 => String::new(),
        attempts => format!(", at attempt {attempts}"),
    };
    format!(
        "process {}{version} has taken over from {}{attempts}{outage}\n",
        done.pid, done.predecessor
    )
}

/// How this process starts its successor: by the same arguments, from the same path.
#[derive(Debug)]
pub struct Plan {
    program: PathBuf,
    file: PathBuf,
}

impl Plan {
    /// Looks where this process came from: what is there later may be another program. `file` is
    /// its configuration.
    ///
    /// # Errors
    /// It cannot be said.
    pub fn new(file: &Path) -> anyhow::Result<Self> {
        // A link that was followed may lead elsewhere by then.
        let called = env::args_os().next().map(PathBuf::from);
        let called = called.filter(|path| path.is_absolute());
        let program = match called {
            Some(path) => path,
            None => env::current_exe().context("where this program is")?,
        };
        Ok(Self {
            program,
            file: file.to_owned(),
        })
    }

    fn successor(&self, program: Option<PathBuf>) -> Successor {
        let take_over = OsString::from("--take-over");
        let mut arguments: Vec<_> = env::args_os().skip(1).collect();
        if !arguments.contains(&take_over) {
            // Behind `switch run`.
            arguments.insert(2.min(arguments.len()), take_over);
        }
        Successor {
            program: program.unwrap_or_else(|| self.program.clone()),
            arguments,
            check: vec!["switch".into(), "check".into(), self.file.clone().into()],
            without: vec![ATTEMPT.into()],
        }
    }

    /// Does what was asked for. The client is answered where nothing came of it; else it waits
    /// until the service manager knows the successor, and is returned with it.
    pub fn serve(&self, service: &Service, asked: Asked) -> Option<(Asked, Replaced)> {
        let successor = self.successor(asked.program.clone());
        let done = match Manager::ends_with_this_process() {
            true => Err(Refused::new(
                Remedy::Restart,
                "the service manager would end a successor with this process: its unit needs \
                 Type=notify",
            )
            .into()),
            false => upgrade::replace(service, &successor, interrupt::requested),
        };
        match done {
            Ok(replaced) => Some((asked, replaced)),
            Err(error) => {
                tracing::warn!("no upgrade: {error:#}");
                asked.answer(&Err(error));
                service.upgrades().done();
                None
            }
        }
    }
}

/// Which attempt to take over this is.
fn attempt() -> u32 {
    let attempt = env::var(ATTEMPT).ok();
    attempt.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Tries again where this process was only too slow, as a process that has nothing yet. Returns
/// where that does not help.
pub fn try_again(error: anyhow::Error) -> Failure {
    let (attempt, remedy) = (attempt(), Refused::of(&error).remedy);
    if remedy != Remedy::Again || attempt >= ATTEMPTS_MAX {
        return match (remedy, error.downcast::<Refused>()) {
            (Remedy::Restart, Ok(refused)) => Failure::NeedsRestart(refused.error),
            (_, Ok(refused)) => Failure::Failed(refused.into()),
            (_, Err(error)) => Failure::Failed(error),
        };
    }
    tracing::warn!("attempt {attempt} of {ATTEMPTS_MAX} to take over: {error:#}");
    thread::sleep(BETWEEN * attempt);
    if interrupt::requested() {
        return Failure::Interrupted;
    }
    // What is left of this attempt ends with it.
    if let Err(error) = hand_down_nothing() {
        return Failure::Failed(anyhow::Error::from(error).context("cannot try again"));
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1));
    command.env(ATTEMPT, (attempt + 1).to_string());
    if let Some(name) = env::args_os().next() {
        command.arg0(name);
    }
    log::flush();
    Failure::Failed(anyhow::Error::from(command.exec()).context("cannot try again"))
}
