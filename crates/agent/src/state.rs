//! The published state of an agent: a file `NETNS.json` in a directory, replaced as a whole.
//!
//! The kernel's state knows interfaces by index and rules by position; here are their names, and
//! which policy is in force. A killed agent's file stays, as its pins do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sluicegate_policy::{Policy, PolicyFile, fingerprint};

use crate::{bpffs, file, record::Names};

/// Where agents keep their files.
pub const RUN_DIR: &str = "/run/sluicegate";

/// Version of this file's format.
pub const VERSION: u32 = 1;

/// Interfaces that are worth a line each in [`State::remarks`].
const FAILED_SHOWN: usize = 8;

/// Lines of a policy's last rule or bucket that are worth knowing the file before them.
const BEGINNINGS_MOST: usize = 64;

/// The device and the inode of a file.
pub type FileId = (u64, u64);

/// The state that an agent publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// [`VERSION`] of the agent that wrote it.
    pub version: u32,
    /// The agent's process.
    pub pid: u32,
    /// When that process started, in clock ticks since boot, as `/proc/PID/stat` has it.
    pub pid_started: u64,
    /// The agent's version.
    pub build: String,
    /// Layout of its pinned maps.
    pub layout: u32,
    /// Its network namespace.
    pub netns: String,
    /// The bpffs with its pins.
    pub bpffs: PathBuf,
    /// The policy in force.
    pub policy: InForce,
    /// The result of the last look at the policy file.
    pub reload: Option<Reload>,
    /// Interfaces on which it enforces, by index.
    pub interfaces: BTreeMap<u32, Place>,
    /// Interfaces that a pattern covers and on which it does not enforce, by name, and why.
    pub left_out: BTreeMap<String, String>,
    /// Of them, those where it has failed and tries again.
    #[serde(default)]
    pub failed: BTreeSet<String>,
    /// Notes for the operator.
    pub notes: Vec<String>,
    /// Lines of the agent's log that could not be written.
    #[serde(default)]
    pub log_lines_lost: u64,
}

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// Its file, absolute.
    pub path: PathBuf,
    /// [`sluicegate_policy::fingerprint`] of its text.
    pub fingerprint: String,
    /// Since when, in seconds since 1970.
    pub since_unix_s: u64,
    /// Its rules in order: names, or `rule N`.
    pub rules: Vec<String>,
    /// The number of its buckets; `None`: an earlier build does not say.
    #[serde(default)]
    pub buckets: Option<usize>,
    /// Its file. Another one has this name since if a file was renamed into its place.
    #[serde(default)]
    pub file: Option<FileId>,
    /// Its text ends with a line feed.
    #[serde(default)]
    pub ends_line: bool,
    /// Fingerprints of the beginnings of its text that have all of its rules and buckets.
    #[serde(default)]
    pub beginnings: Vec<String>,
}

/// The result of a look at the policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// Fingerprint of the text; empty if the file could not be read.
    pub fingerprint: String,
    /// Whether it is in force now.
    pub adopted: bool,
    /// Why not: one line for each error.
    pub problems: Vec<String>,
    /// The fates of rules: one line for each.
    pub changes: Vec<String>,
    /// Flows that another rule decides since, or none.
    pub flows_rematched: u64,
    /// The file as it was written, if it was held back since it may not be whole: an agent that
    /// starts does not take it either, until it is written again.
    #[serde(default)]
    pub held_back: Option<String>,
    /// That file, or one with errors: it was made at its place, and not renamed into it.
    #[serde(default)]
    pub held_file: Option<FileId>,
}

/// An interface on which an agent enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// Where that name comes from: `label`, `alias`, `libvirt`, `cni`, `docker`, `netns`,
    /// `interface`.
    pub tenant_from: String,
}

impl InForce {
    /// A policy that comes into force now, and the file with its text.
    pub fn now(file: &PolicyFile, id: Option<FileId>, policy: &Policy) -> Self {
        Self {
            path: file.path.clone(),
            fingerprint: file.fingerprint(),
            since_unix_s: unix_s(),
            rules: policy.rule_names(),
            buckets: Some(policy.buckets.len()),
            file: id,
            ends_line: file.text.ends_with('\n'),
            beginnings: beginnings(&file.text),
        }
    }
}

/// Fingerprints of what is left of `text` by a cut between two lines of its last rule or bucket.
fn beginnings(text: &str) -> Vec<String> {
    let Some(last) = text.rfind("\n[[").map(|at| at + 1).or(text.find("[[")) else {
        return Vec::new();
    };
    let ends = text.match_indices('\n').map(|(at, _)| at + 1);
    let ends = ends.filter(|end| *end > last && *end < text.len());
    let ends = ends.take(BEGINNINGS_MOST);
    ends.map(|end| fingerprint(&text[..end])).collect()
}

impl State {
    /// Whether the agent that wrote it runs.
    pub fn is_running(&self) -> bool {
        self.pid != 0 && process_started(self.pid) == Some(self.pid_started)
    }

    /// What an operator should know: the notes, interfaces where the agent has failed, a policy
    /// file that is not in force, and a log with gaps.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.notes.clone();
        for name in self.failed.iter().take(FAILED_SHOWN) {
            let why = self.left_out.get(name).map_or("", String::as_str);
            remarks.push(format!("nothing is enforced on {name}: {why}"));
        }
        if let more @ 1.. = self.failed.len().saturating_sub(FAILED_SHOWN) {
            remarks.push(format!(
                "nothing is enforced on {more} more interfaces: `left_out` in the agent's state file names them"
            ));
        }
        if let Some(reload) = self.reload.as_ref().filter(|reload| !reload.adopted) {
            let problems = reload.problems.join("; ");
            remarks.push(format!("the policy file is not in force: {problems}"));
        }
        if self.log_lines_lost > 0 {
            let lost = self.log_lines_lost;
            remarks.push(format!("{lost} lines of the agent's log were lost"));
        }
        remarks
    }

    /// Names for records of flows; interfaces that are not in it are called as in `interfaces`.
    pub fn names(&self, interfaces: BTreeMap<u32, String>) -> Names {
        let tenants = self.interfaces.iter();
        Names {
            interfaces,
            tenants: tenants
                .map(|(index, place)| (*index, place.tenant.clone()))
                .collect(),
            rules: self.policy.rules.clone(),
        }
    }
}

/// The file of the agent in the namespace called `netns`.
pub fn path(run_dir: &Path, netns: &str) -> PathBuf {
    run_dir.join(format!("{}.json", bpffs::encoded(netns)))
}

/// Puts `state` in the place of what the file said, at once: a reader sees one or the other.
///
/// # Errors
/// The directory cannot be made or written.
pub fn write(run_dir: &Path, state: &State) -> Result<()> {
    let path = path(run_dir, &state.netns);
    let context = || format!("writing {}", path.display());
    fs::create_dir_all(run_dir).with_context(context)?;
    let mut text = serde_json::to_string_pretty(state).with_context(context)?;
    text.push('\n');
    file::replace(&path, text.as_bytes())
}

/// The last state that the agent of that namespace has published; `None` if there is no file.
///
/// # Errors
/// It cannot be read, or is of a build that writes it otherwise.
pub fn read(run_dir: &Path, netns: &str) -> Result<Option<State>> {
    read_file(&path(run_dir, netns))
}

/// The states of all agents of this machine.
#[derive(Clone, Debug, Default)]
pub struct All {
    /// The last ones that could be read.
    pub states: Vec<State>,
    /// Why others could not: their agents may run.
    pub failures: Vec<String>,
}

/// The last states of all agents of this machine.
pub fn all(run_dir: &Path) -> All {
    let mut all = All::default();
    let entries = match fs::read_dir(run_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return all,
        entries => entries.and_then(|entries| entries.collect::<io::Result<Vec<_>>>()),
    };
    let entries = entries.unwrap_or_else(|error| {
        let run_dir = run_dir.display();
        all.failures.push(format!("reading {run_dir}: {error}"));
        Vec::new()
    });
    let paths = entries.iter().map(fs::DirEntry::path);
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        match read_file(&path) {
            Ok(state) => all.states.extend(state),
            Err(error) => all.failures.push(format!("{error:#}")),
        }
    }
    all.states.sort_by(|a, b| a.netns.cmp(&b.netns));
    all.failures.sort();
    all
}

/// Removes the file; that there is none is no error.
///
/// # Errors
/// No right to.
pub fn remove(run_dir: &Path, netns: &str) -> Result<()> {
    let path = path(run_dir, netns);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn read_file(path: &Path) -> Result<Option<State>> {
    let context = || format!("reading {}", path.display());
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).with_context(context),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(context),
    }
}

/// Seconds since 1970.
pub fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// When a process started, in clock ticks since boot; `None` if there is none, or it is a zombie.
pub fn process_started(pid: u32) -> Option<u64> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    // The command, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let status = fields.next()?;
    if status == "Z" || status == "X" {
        return None;
    }
    // Field 22 of proc_pid_stat(5); the first after the command is the third.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let directory = std::env::temp_dir().join(format!("sga-{}-state", std::process::id()));
        let state = State {
            version: VERSION,
            netns: "a.b".into(),
            interfaces: BTreeMap::from([(7, Place::default())]),
            reload: Some(Reload::default()),
            ..State::default()
        };
        assert_eq!(read(&directory, "a.b").unwrap(), None);
        write(&directory, &state).unwrap();
        assert_eq!(read(&directory, "a.b").unwrap(), Some(state.clone()));
        assert_eq!(all(&directory).states, [state]);
        assert!(all(&directory).failures.is_empty());
        fs::write(path(&directory, "broken"), "{").unwrap();
        assert!(read(&directory, "broken").is_err());
        let found = all(&directory);
        assert_eq!((found.states.len(), found.failures.len()), (1, 1));
        assert!(found.failures[0].contains("broken.json"), "{found:?}");
        remove(&directory, "a.b").unwrap();
        remove(&directory, "a.b").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(all(&directory).failures.is_empty(), "no agent was here");
        assert_eq!(all(Path::new("/proc/version")).failures.len(), 1);
    }

    #[test]
    fn interfaces_where_the_agent_has_failed_are_remarked() {
        let names = || (10..30).map(|number| format!("tap{number}"));
        let state = State {
            left_out: names().map(|name| (name, "no room".to_owned())).collect(),
            failed: names().collect(),
            log_lines_lost: 2,
            ..State::default()
        };
        let remarks = state.remarks();
        assert_eq!(remarks[0], "nothing is enforced on tap10: no room");
        assert!(remarks[FAILED_SHOWN].contains("12 more interfaces"));
        assert!(remarks[FAILED_SHOWN + 1].contains("2 lines"));
        assert!(State::default().remarks().is_empty());
    }

    #[test]
    fn only_the_process_that_wrote_it_keeps_a_state_alive() {
        let pid = std::process::id();
        let mut state = State {
            pid,
            pid_started: process_started(pid).unwrap(),
            ..State::default()
        };
        assert!(state.is_running());
        state.pid_started += 1;
        assert!(!state.is_running(), "another one with the same number");
        assert!(!State::default().is_running());
    }
}
