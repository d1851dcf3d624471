//! Undoing what a run changed, from its journal: at the end of the run, or later by another process.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    mount::{UnmountFlags, unmount},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{
    journal::{self, Entry, Lock},
    net::names,
};

/// How long killed processes may take to go.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);

/// What [`clean`] removed or restored, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Journals of unfinished runs that were worked off.
    pub runs: usize,
    /// One line for each thing removed or restored.
    pub done: Vec<String>,
    /// One line for each thing that could not be.
    pub failed: Vec<String>,
}

/// Removes what crashed runs left: processes, namespaces with all that is in them, directories, changed
/// kernel parameters. Touches nothing that no journal names.
///
/// # Errors
/// A run is going on, no root, or a journal that is not ours.
pub fn clean() -> Result<CleanReport> {
    let lock = Lock::take()?;
    clean_holding(&lock)
}

/// [`clean`] for the holder of the lock.
///
/// # Errors
/// A journal that cannot be read.
pub fn clean_holding(_lock: &Lock) -> Result<CleanReport> {
    let mut report = CleanReport::default();
    for path in journal::all()? {
        undo(&path, &mut report)?;
        report.runs += 1;
    }
    Ok(report)
}

/// Works off one journal, last entry first, and removes it when nothing failed.
///
/// # Errors
/// The journal cannot be read.
pub fn undo(path: &Path, report: &mut CleanReport) -> Result<()> {
    let entries = journal::read(path)?;
    let boot = journal::boot_id()?;
    let same_boot = matches!(entries.first(), Some(Entry::Boot { id }) if *id == boot);
    let failures = report.failed.len();
    kill_children(&entries, same_boot, report);
    for entry in entries.iter().rev() {
        let undone = match entry {
            Entry::Boot { .. } | Entry::Child { .. } => Ok(None),
            Entry::Netns { name } => remove_netns(name),
            Entry::Directory { path } => remove_directory(path),
            Entry::Sysctl { path, value } if same_boot => restore(path, value).map(Some),
            Entry::Sysctl { .. } => Ok(None),
        };
        match undone {
            Ok(Some(line)) => report.done.push(line),
            Ok(None) => {}
            Err(error) => report.failed.push(format!("{error:#}")),
        }
    }
    if report.failed.len() == failures {
        fs::remove_file(path).with_context(|| format!("{}: cannot be removed", path.display()))?;
    }
    Ok(())
}

fn kill_children(entries: &[Entry], same_boot: bool, report: &mut CleanReport) {
    let mut dying = Vec::new();
    for entry in entries {
        let Entry::Child { pid, start_ticks } = entry else {
            continue;
        };
        if !same_boot {
            continue;
        }
        match kill(*pid, *start_ticks) {
            Ok(true) => {
                report.done.push(format!("process {pid} ended"));
                dying.push((*pid, *start_ticks));
            }
            Ok(false) => {}
            Err(error) => report.failed.push(format!("process {pid}: {error}")),
        }
    }
    let deadline = Instant::now() + DEATH_TIMEOUT;
    while dying.iter().any(|&(pid, start)| alive(pid, start)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// True when the process existed. The descriptor pins the identity that the start time confirms.
fn kill(pid: i32, start_ticks: u64) -> rustix::io::Result<bool> {
    let Some(id) = Pid::from_raw(pid) else {
        return Ok(false);
    };
    let handle: OwnedFd = match pidfd_open(id, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Ok(false),
        Err(error) => return Err(error),
    };
    if !alive(pid, start_ticks) {
        return Ok(false);
    }
    match pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A zombie no longer counts: its resources are gone.
fn alive(pid: i32, start_ticks: u64) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let zombie = stat
        .rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
    !zombie && journal::start_ticks(pid) == Some(start_ticks)
}

fn remove_netns(name: &str) -> Result<Option<String>> {
    if !name.starts_with(names::PREFIX) || name.contains('/') {
        return Ok(None);
    }
    let path = PathBuf::from("/run/netns").join(name);
    if !path.exists() {
        return Ok(None);
    }
    match unmount(&path, UnmountFlags::DETACH) {
        // Not a mount point: killed between the making of the file and the mount.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error).with_context(|| format!("namespace {name}: unmounting")),
    }
    fs::remove_file(&path).with_context(|| format!("namespace {name}: removing"))?;
    Ok(Some(format!("network namespace {name} removed")))
}

fn remove_directory(path: &Path) -> Result<Option<String>> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(Some(format!("{} removed", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{}: cannot be removed", path.display())),
    }
}

fn restore(path: &Path, value: &str) -> Result<String> {
    fs::write(path, value)
        .with_context(|| format!("{}: cannot be set back to {value}", path.display()))?;
    Ok(format!("{} set back to {value}", path.display()))
}
