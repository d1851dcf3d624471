//! The keeper: boots a guest, speaks for it to the lab, and makes sure that it dies.

#![allow(unsafe_code)] // pre_exec

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{fd::AsFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{self, AddressFamily, SocketType},
    process::{Signal, set_parent_process_death_signal},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};
use sluicegate_labkit::uml;

use super::{
    Attachment, INIT, Port,
    job::{self, Job, Order},
    stamp::{Stamp, offset_ns},
};
use crate::tenant::{Report, say, timespec};

/// Memory of a guest. It is touched as needed; the size also limits the socket buffers that the
/// guest allows.
const MEMORY: &str = "256M";

/// Pause between looks at the job directory.
const LOOK: Duration = Duration::from_millis(5);

/// A guest's clock that runs away by more than this in a run makes its times worthless.
const MAX_DRIFT_NS: i64 = 500_000;

/// Bytes of the console that go into an error.
const CONSOLE_TAIL: usize = 600;

/// Runs until the guest has reported or died, or the lab is gone. Single-threaded throughout: a
/// process with threads cannot enter a new PID namespace.
pub fn run(netns: Option<OsString>, attachment: Option<OsString>) -> anyhow::Result<()> {
    let (Some(netns), Some(attachment)) = (netns.map(PathBuf::from), attachment) else {
        bail!("a keeper needs a network namespace and an attachment");
    };
    let attachment: Attachment =
        serde_json::from_slice(attachment.as_encoded_bytes()).context("attachment")?;
    let mut lab = Lab {
        input: File::from(io::stdin().as_fd().try_clone_to_owned()?),
        pending: Vec::new(),
    };
    let plan = serde_json::from_slice(&lab.first_line()?).context("the plan is unreadable")?;
    let namespace =
        File::open(&netns).with_context(|| format!("cannot open {}", netns.display()))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("cannot enter {}", netns.display()))?;
    if let Port::Tap(tap) = &attachment.port {
        require_tap(tap)?;
    }
    let job = Job::create()?;
    job.put(
        job::ORDER,
        &serde_json::to_vec(&Order {
            plan,
            attachment: attachment.clone(),
        })?,
    )?;
    let guest = Guest(boot(&job, &attachment)?);
    relay(&mut lab, &job, guest)
}

/// UML would make a TAP of its own where there is none, and the guest would have no peer.
fn require_tap(tap: &str) -> anyhow::Result<()> {
    let socket = net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = net::netdevice::name_to_index(&socket, tap);
    index
        .with_context(|| format!("no TAP {tap:?} in the host's network namespace"))
        .map(drop)
}

/// Starts the guest's kernel as process 1 of a new PID namespace.
fn boot(job: &Job, attachment: &Attachment) -> anyhow::Result<Child> {
    let executable = std::env::current_exe().context("cannot find the own executable")?;
    let directory = job.path().display();
    if executable.as_os_str().as_encoded_bytes().contains(&b' ') {
        bail!(
            "{} has a blank in its path, which a kernel's command line cannot carry",
            executable.display()
        );
    }
    let mac = &attachment.mac;
    let adapter = match &attachment.port {
        Port::Tap(tap) => format!("vec0:transport=tap,ifname={tap},depth=128,gro=1,mac={mac}"),
        Port::VhostUser(socket) => format!("virtio_uml.device={}:1", socket.display()),
    };
    let mut command = Command::new(&attachment.kernel.path);
    command
        .arg(format!("mem={MEMORY}"))
        .args([
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "con=null",
            "con0=fd:0,fd:1",
            "ssl=null",
            "quiet",
        ])
        // A tick every 10 ms. Without it an idle kernel of User-Mode Linux may sleep to its next
        // timer while frames wait in its ring (seen: for 220 and 360 ms).
        .arg("nohz=off")
        // Self-tests and benchmarks that only cost time at boot: 1.2 s become 0.2 s.
        .args([
            "selinux=0",
            "apparmor=0",
            "zswap.enabled=0",
            "initcall_blacklist=raid6_select_algo",
        ])
        .args([format!("uml_dir={directory}"), "umid=guest".into()])
        .arg(adapter)
        .arg(format!("init={}", executable.display()))
        .args(["--", INIT])
        .arg(job.path())
        .stdin(Stdio::null())
        .stdout(File::create(job.path().join(job::CONSOLE))?)
        .stderr(Stdio::inherit());
    let _preloaded = uml::adapt(&mut command).context("cannot prepare a guest's kernel")?;
    // SAFETY: prctl is a plain system call, safe between fork and exec.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
    // SAFETY: the PID namespace only concerns processes born from here on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }
        .context("cannot make a PID namespace")?;
    command
        .spawn()
        .with_context(|| format!("cannot start {}", attachment.kernel.path.display()))
}

/// The guest's first process; dropping it kills the guest.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill(); // fails only when it is dead
        let _ = self.0.wait();
    }
}

/// Relays messages between lab and guest until one of them ends.
fn relay(lab: &mut Lab, job: &Job, mut guest: Guest) -> anyhow::Result<()> {
    let mut clock = GuestClock {
        boot: Stamp::now(),
        offset_ns: None,
    };
    loop {
        let dead = guest.0.try_wait()?;
        if let Some(text) = job.take(job::ERROR) {
            bail!("guest: {}", String::from_utf8_lossy(&text));
        }
        if let (None, Some(stamp)) = (clock.offset_ns, job.take(job::READY)) {
            clock.offset_ns = Some(clock.compare(&stamp)?);
            say(b"ready")?;
        }
        if let Some(report) = job.take(job::REPORT) {
            say(&clock.complete(&report, &job.take(job::END).unwrap_or_default())?)?;
            return lab.wait_end();
        }
        if let Some(status) = dead {
            bail!("guest died ({status}): {}", console_tail(job));
        }
        if let Some(line) = lab.line(LOOK)? {
            let start = line
                .strip_prefix(b"start ")
                .context("the lab says what a keeper does not understand")?;
            job.put(job::START, clock.translate(start)?.to_string().as_bytes())?;
        }
    }
}

/// The keeper's knowledge of the guest's clock.
struct GuestClock {
    boot: Stamp,
    offset_ns: Option<i64>,
}

impl GuestClock {
    fn compare(&self, stamp: &[u8]) -> anyhow::Result<i64> {
        let stamp = serde_json::from_slice(stamp).context("the guest's stamp is unreadable")?;
        offset_ns(stamp, self.boot, Stamp::now())
            .context("this processor's time-stamp counter does not run")
    }

    /// A time of the lab as the guest's clock shows it.
    fn translate(&self, start: &[u8]) -> anyhow::Result<u64> {
        let unix_ns: u64 = std::str::from_utf8(start)?
            .trim()
            .parse()
            .context("no time")?;
        unix_ns
            .checked_add_signed(self.offset_ns.unwrap_or(0))
            .context("no time")
    }

    /// Adds to the report what the guest could not know.
    fn complete(&self, report: &[u8], end: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut report: Report =
            serde_json::from_slice(report).context("the guest's report is unreadable")?;
        report.clock_offset_ns = self.offset_ns;
        let drift_ns = self.compare(end)? - self.offset_ns.unwrap_or(0);
        if drift_ns.abs() > MAX_DRIFT_NS {
            report.errors.push(format!(
                "the guest's clock drifted by {} µs in the run",
                drift_ns / 1000
            ));
        }
        Ok(serde_json::to_vec(&report)?)
    }
}

/// The last lines of the guest's console.
fn console_tail(job: &Job) -> String {
    let text = job.take(job::CONSOLE).unwrap_or_default();
    let tail = &text[text.len().saturating_sub(CONSOLE_TAIL)..];
    String::from_utf8_lossy(tail)
        .chars()
        .filter(|c| !c.is_control() || *c == '\n')
        .collect()
}

/// The lab's side of stdin.
struct Lab {
    input: File,
    pending: Vec<u8>,
}

impl Lab {
    fn first_line(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(line) = self.line(Duration::from_secs(1))? {
                return Ok(line);
            }
        }
    }

    /// Waits until the lab closes its end.
    fn wait_end(&mut self) -> anyhow::Result<()> {
        let mut rest = Vec::new();
        self.input
            .read_to_end(&mut rest)
            .context("cannot hear the lab")
            .map(drop)
    }

    /// Next line if it comes within this time. End of file is an error: the lab is gone.
    fn line(&mut self, wait: Duration) -> anyhow::Result<Option<Vec<u8>>> {
        if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let rest = self.pending.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.pending, rest);
            line.pop();
            return Ok(Some(line));
        }
        let timeout = timespec(wait.as_nanos() as u64);
        let mut descriptors = [PollFd::new(&self.input, PollFlags::IN)];
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error).context("poll"),
        }
        let mut buffer = [0; 16_384];
        let count = self
            .input
            .read(&mut buffer)
            .context("cannot hear the lab")?;
        if count == 0 {
            bail!("the lab is gone");
        }
        self.pending.extend_from_slice(&buffer[..count]);
        Ok(None)
    }
}
