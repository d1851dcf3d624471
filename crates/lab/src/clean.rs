//! Undoing what a run changed, from its journal: at the end of the run, or later by another
//! process.

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

/// Objects that [`clean`] removed or restored, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Journals of unfinished runs that were worked off.
    pub runs: usize,
    /// One line for each thing removed or restored.
    pub done: Vec<String>,
    /// One line for each thing that could not be.
    pub failed: Vec<String>,
}

/// Removes what crashed runs left: processes, namespaces with all that is in them, directories,
/// changed kernel parameters. Touches nothing that no journal names.
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
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let zombie = String::from_utf8_lossy(&stat)
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

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A journal file of this test alone, and a child that sleeps.
    fn journal_of(name: &str, entries: &[Entry]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sgl-{}-{name}.journal", std::process::id()));
        let lines = entries
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap() + "\n");
        fs::write(&path, lines.collect::<String>()).unwrap();
        path
    }

    fn boot() -> Entry {
        let id = journal::boot_id().unwrap();
        Entry::Boot { id }
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_recorded_process_is_ended() {
        let mut child = sleeper();
        let pid = child.id() as i32;
        let start_ticks = journal::start_ticks(pid).unwrap();
        let path = journal_of("ours", &[boot(), Entry::Child { pid, start_ticks }]);
        let mut report = CleanReport::default();
        undo(&path, &mut report).unwrap();
        assert!(!alive(pid, start_ticks) && !path.exists());
        assert_eq!(
            (report.done.len(), report.failed.len()),
            (1, 0),
            "{report:?}"
        );
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_life_is_left_alone() {
        let mut child = sleeper();
        let pid = child.id() as i32;
        let start_ticks = journal::start_ticks(pid).unwrap();
        let earlier = Entry::Child {
            pid,
            start_ticks: start_ticks - 1,
        };
        let other_boot = Entry::Boot {
            id: "another".into(),
        };
        let exact = Entry::Child { pid, start_ticks };
        for (name, entries) in [("pid", [boot(), earlier]), ("boot", [other_boot, exact])] {
            let path = journal_of(name, &entries);
            undo(&path, &mut CleanReport::default()).unwrap();
            assert!(alive(pid, start_ticks), "{name}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn only_our_namespaces_are_removed() {
        assert_eq!(remove_netns("someone-elses").unwrap(), None);
        assert_eq!(remove_netns("sgl-../../etc").unwrap(), None);
        assert_eq!(remove_netns("sgl-that-is-gone-already").unwrap(), None);
    }

    #[test]
    fn a_parameter_gets_its_value_back_and_a_directory_goes() {
        let directory = std::env::temp_dir().join(format!("sgl-{}-directory", std::process::id()));
        fs::create_dir_all(directory.join("below")).unwrap();
        let parameter = std::env::temp_dir().join(format!("sgl-{}-parameter", std::process::id()));
        fs::write(&parameter, "new").unwrap();
        let restored = Entry::Sysctl {
            path: parameter.clone(),
            value: "old".into(),
        };
        let removed = Entry::Directory {
            path: directory.clone(),
        };
        let path = journal_of("restore", &[boot(), restored, removed]);
        undo(&path, &mut CleanReport::default()).unwrap();
        assert_eq!(fs::read_to_string(&parameter).unwrap(), "old");
        assert!(!directory.exists());
        fs::remove_file(parameter).unwrap();
    }

    #[test]
    fn what_cannot_be_undone_is_reported_and_the_journal_stays() {
        let lost = Entry::Sysctl {
            path: "/proc/sys/no/such/parameter".into(),
            value: "1".into(),
        };
        let path = journal_of("lost", &[boot(), lost]);
        let mut report = CleanReport::default();
        undo(&path, &mut report).unwrap();
        assert!(report.failed[0].contains("no/such/parameter"), "{report:?}");
        assert!(path.exists());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_line_cut_short_was_never_carried_out() {
        let path = journal_of("torn", &[boot()]);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"kind\":\"netns\",\"na");
        fs::write(&path, &text).unwrap();
        assert_eq!(journal::read(&path).unwrap().len(), 1);
        fs::write(&path, text + "\n").unwrap();
        let error = journal::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        fs::remove_file(path).unwrap();
    }
}
